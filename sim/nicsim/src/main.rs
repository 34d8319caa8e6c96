//! Command line of the simulator.
fn main() {}
