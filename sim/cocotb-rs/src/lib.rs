//! Verilated models built at run time and driven by async Rust tasks.
//!
//! ```no_run
//! use cocotb_rs::{ModelBuilder, Period, PowerOn, Sim};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let verilog = "module counter(input clk, input rst, output reg [7:0] q);
//!                always @(posedge clk) q <= rst ? 0 : q + 1; endmodule";
//! let model = ModelBuilder::new("counter").verilog(verilog).build()?;
//! let mut sim = Sim::new(&model, PowerOn::Random { seed: 1 })?;
//! let (clk, rst, q) = (sim.clock("clk", Period::ps(4000))?, sim.port("rst")?, sim.port("q")?);
//! sim.reset(rst, 2)?;
//! let handle = sim.handle();
//! let seen = sim.block_on(async move {
//!     handle.cycles(clk, 10).await;
//!     handle.get(q)
//! })?;
//! assert_eq!(seen, 9);
//! # Ok(()) }
//! ```
//!
//! **Timing.** At each rising edge: the inputs written so far are loaded and the design settles; all ports are sampled;
//! the clocks rise and the design is evaluated; agents are called, then tasks run. They read the sample, that is what a
//! flip-flop at the other end of the wire would capture at this edge, and write what it captures at the next.

mod agent;
pub mod axi;
pub mod axis;
mod cache;
mod clock;
mod cover;
mod error;
mod executor;
mod ffi;
mod model;
mod observe;
mod pace;
mod port;
mod queue;
mod run;
mod scoreboard;
mod seed;
mod shim;
mod sim;
mod stable;
mod tool;
mod trigger;

pub use agent::{Agent, Io};
pub use clock::Period;
pub use cover::Coverage;
pub use error::{BuildError, SimError};
pub use executor::Join;
pub use model::{Model, ModelBuilder, Optimization};
pub use observe::{Observe, ObserveError};
pub use pace::Pace;
pub use port::{Direction, Port, PortDecl, PortImage, PortMap};
pub use queue::{Event, Queue, Reply};
pub use run::{PowerOn, Sim};
pub use scoreboard::{KeyedScoreboard, Scoreboard, ScoreboardError};
pub use seed::{Replay, Rng, Seed, SeedError};
pub use sim::{Clock, Handle};
pub use trigger::{both, combine, either, first, Cycles, Either, Timer};
