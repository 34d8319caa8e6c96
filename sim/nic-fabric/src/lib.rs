//! A deterministic packet-level network: links, queues, switches, ECN, loss, failures, captures.
//!
//! [`Fabric`] is a discrete-event simulator in integer picoseconds. It moves opaque Ethernet [`Frame`]s between hosts
//! over switches and knows of them only addresses, UDP ports (for ECMP), the ECN bits and the DSCP: no QPN, no PSN.
//! A NIC is any [`Node`], or a card that runs outside (an RTL simulation) and is fed in time windows through
//! [`Fabric::inject`] and [`Fabric::advance`].
//!
//! ```text
//!   Node / inject ──► link ──► switch (ECMP or spray) ──► link ──► ... ──► Node / Delivery
//!                     │ queue: drop-tail, ECN      │
//!                     └ rules: loss, corruption, …  └ PFC, priority class
//! ```
//!
//! Results depend on the topology, the traffic and the root seed only. Every random choice comes from a ChaCha8 stream
//! of its own entity (a link's loss, a switch's spraying), and events of equal time are ordered by their entity, so
//! neither the number of threads nor the order in which a driver injects frames into different ports can change them.

// What moves: bytes, and what the fabric reads of them.
pub mod frame;

pub mod flow;

mod address;

mod flight;

mod prefetch;

// Where it moves: the graph, its usual shapes, and the way through it.
pub mod topology;

pub mod shape;

mod route;

// How it moves: events, links, queues, switches.
mod agenda;

mod engine;

mod sweep;

mod shard;

mod line;

pub mod link;

pub mod queue;

mod switch;

pub mod spray;

pub mod node;

pub mod fabric;

mod parallel;

// What happens to it on the way.
pub mod rule;

pub mod schedule;

mod seed;

// What is seen of it.
pub mod pcap;

pub mod stats;

// All of it from a file.
pub mod config;

// What the hosts have to send.
pub mod workload;

pub use config::{ConfigError, NetworkPlan};
pub use fabric::{Delivery, Fabric, FabricError};
pub use frame::{Frame, Payload};
pub use link::{Ecn, LinkSpec};
pub use node::{Ahead, Context, Node, OutPort};
pub use pcap::Tap;
pub use prefetch::{prefetch, prefetch_all};
pub use queue::{Pfc, QueueSpec};
pub use rule::{Action, Matcher, Rule, Verdict};
pub use schedule::Outage;
pub use shape::{FatTree, LeafSpine, PlaneLinks};
pub use spray::Forwarding;
pub use stats::{DropCause, FabricStats, LinkStats};
pub use topology::{LinkId, LinkSelect, NodeId, Port, Topology};

/// End of time, picoseconds: 53 days. A fabric stops there, so sums of times do not overflow; a timer beyond it never
/// comes.
pub const TIME_PS_MAX: u64 = 1 << 62;
/// Picoseconds in a nanosecond.
pub const PS_PER_NS: u64 = 1_000;
/// Picoseconds in a microsecond.
pub const PS_PER_US: u64 = 1_000_000;
/// Picoseconds in a millisecond.
pub const PS_PER_MS: u64 = 1_000_000_000;

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
