//! Where a card is put under test: benches, cases, experiments.
//!
//! A bench is a world of simulated cards, their hosts and a network, run on a thread of its own. The driver reaches a
//! card only as it would over PCIe: registers, host memory, interrupts. Time moves only while the driver asks for
//! something, so a run depends on its seed alone.
#![forbid(unsafe_code)]
// An error ends a run; its size matters to nobody.
#![allow(clippy::result_large_err)]

/// The world: cards and network advanced side by side in windows.
pub mod world;

/// What passed on the wire of a card, and frames of a test's own.
pub mod wire;

/// Frames made by hand.
pub mod craft;

/// Random traffic between two cards.
pub mod traffic;

/// A card whose peer is the test.
pub mod impostor;

/// A world on its thread, and the drivers' ends of it.
pub mod bench;

/// The main experiment: a file crosses from one card to another.
pub mod transfer;

pub use bench::{Bench, BenchConfig, BenchError};
