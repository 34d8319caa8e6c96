//! The design under test, built once and shared by all tests of a binary.
#![allow(dead_code)]

use cocotb_rs::{Clock, Model, ModelBuilder, Period, PowerOn, Sim};
use std::sync::OnceLock;

pub fn builder() -> ModelBuilder {
    ModelBuilder::new("kit").verilog(include_str!("../verilog/kit.v"))
}

pub fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| builder().build().unwrap_or_else(|error| panic!("{error}")))
}

/// The same design with trace and coverage compiled in.
pub fn observable_model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| builder().trace(true).coverage(true).build().unwrap_or_else(|error| panic!("{error}")))
}

pub fn sim_of(model: &Model, seed: u64) -> (Sim, Clock) {
    let sim = Sim::new(model, PowerOn::Random { seed }).unwrap();
    let clk = sim.clock("clk", Period::ps(4000)).unwrap();
    (sim, clk)
}

/// A simulation that has left reset.
pub fn sim() -> (Sim, Clock) {
    let (mut sim, clk) = sim_of(model(), 1);
    let rst = sim.port("rst").unwrap();
    sim.reset(rst, 3).unwrap();
    (sim, clk)
}
