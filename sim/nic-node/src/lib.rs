//! The golden model as a card at a host of the simulated network.
//!
//! ```text
//!   host software ──post, poll──► Card { Nic (nic-model), HostMemory } ◄──frames, timers──► Context (nic-fabric)
//! ```
//!
//! A [`Card`] is a [`nic_fabric::Node`] of its own; host software that reacts to completions is a node that holds a card
//! and passes its calls on, see [`Card::on_timer`]. [`connect`] says what both ends of a connection between two hosts
//! of a topology agree on.
//!
//! A run is a function of the topology, the seed and what is posted: a card draws nothing and keeps no other clock.
#![forbid(unsafe_code)]

// Bytes between the two kinds of frame.
mod convert;

// The card.
mod card;

// Connections between hosts of a topology.
pub mod connect;

pub use card::{Card, CARD_TOKENS};
pub use convert::{to_fabric, to_model};
