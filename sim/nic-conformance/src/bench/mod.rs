//! Benches that need nothing but this workspace's model. Those of the RTL and of a card live with their simulators.

pub mod model;
