//! Seeded fault runs: a random network, random work, random faults, and a judge of everything the protocol promises.
//!
//! ```text
//!   seed ─► network ─► faults ─┐
//!             └──────► plan ───┴► Host (a Card with its software) ◄─► nic-fabric ─► Report
//! ```
//!
//! A [`plan::Plan`] knows every completion and every byte of memory in advance. A [`host::Host`] judges each completion when
//! it sees it (once, in the order of its stream, after its bytes) and after every event the windows of its paths;
//! memory notices an access outside its regions at once; when all is done, memory, counters and frames are compared
//! with what they must be. A run that goes wrong prints the command that plays it again.
#![forbid(unsafe_code)]

// Chance.
pub mod draw;

// What happens.
pub mod faults;
mod messages;
pub mod network;
pub mod plan;
mod traffic;
mod tuning;

// Who it happens to.
mod conduct;
pub mod host;
pub mod memory;
mod tags;

// What has to hold.
mod acts;
mod check;

pub mod run;

pub mod shrink;

pub mod cli;

pub use run::{replay, run_scenario, run_seed, Cut, Report, Scenario};
