//! A counter with enable, checked against its model by one task while another drives it.
//!
//! `cargo run -p cocotb-rs --example counter`; `SEED=5` chooses another run, `COCOTB_RS_TRACE=counter.fst` traces it.

use cocotb_rs::{ModelBuilder, Observe, Period, PowerOn, Replay, Seed, Sim};
use std::error::Error;

const COUNTER: &str = "
module counter (input clk, input rst, input enable, output reg [7:0] count);
    always @(posedge clk)
        if (rst) count <= 8'd0;
        else if (enable) count <= count + 8'd1;
endmodule";

fn main() -> Result<(), Box<dyn Error>> {
    let seed = Seed::from_env_or(1)?;
    let _replay = Replay::new(seed, "cargo run -p cocotb-rs --example counter");
    let observe = Observe::from_env()?;
    let model = observe.variant(ModelBuilder::new("counter").verilog(COUNTER)).build()?;
    let mut sim = Sim::new(&model, PowerOn::Random { seed: seed.named("power-on").value() })?;
    let clk = sim.clock("clk", Period::ps(4000))?;
    let (rst, enable, count) = (sim.port("rst")?, sim.port("enable")?, sim.port("count")?);
    observe.start(&mut sim)?;
    sim.reset(rst, 2)?;

    let handle = sim.handle();
    sim.spawn(async move {
        let mut rng = seed.named("enable").rng();
        loop {
            handle.set(enable, u64::from(rng.percent(50)));
            handle.rising(clk).await;
        }
    });
    let handle = sim.handle();
    let enabled = sim.block_on(async move {
        let mut enabled = 0_u64;
        for _ in 0..1000 {
            handle.rising(clk).await;
            // Both were sampled just before this edge: the enable takes effect at it.
            assert_eq!(handle.get(count), enabled % 256);
            enabled += handle.get(enable);
        }
        enabled
    })?;
    observe.finish(&mut sim)?;
    println!("1000 cycles, {enabled} of them enabled, {} ns simulated: the counter is right", sim.now_ps() / 1000);
    Ok(())
}
