#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// Time.
pub mod time;

/// Tunables.
pub mod config;

/// Connections as agreed.
pub mod conn_config;

/// Counters.
pub mod counters;

/// Host memory.
mod local_memory;
pub mod memory;

/// Memory regions.
pub mod mr;

/// Requests, completions, events.
pub mod work;

/// Frames and packets.
pub mod wire;

/// Paths, windows, recovery, congestion control.
pub mod transport;

/// The card.
pub mod nic;

/// What it will touch.
pub mod foresee;

mod ack;
mod bootstrap;
mod cm;
mod conn_plane;
mod connection;
mod core;
mod footprint;
mod idle;
mod plane;
mod queue;
mod read_budget;
mod reaim;
mod recv_queue;
mod requester;
mod responder;
mod retire;
mod send;
mod slab;
mod timer;
mod transmit;
mod watch;

pub use connection::ConnState;
pub use footprint::Footprint;
pub use nic::Nic;
