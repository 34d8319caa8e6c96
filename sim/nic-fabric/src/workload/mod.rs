//! Traffic with a reason: messages that wait for messages, from files, from generators, played on any NIC.
//!
//! A [`Workload`] is a list of messages and, per host, of steps: send, fetch (an RDMA READ), receive, wait. A step starts when
//! the steps of its own host it comes after are done, so a host needs to know nothing but what it sent and received, and a
//! run is the same on any number of threads.
//!
//! ```text
//!   .cm, MSCCL XML, GOAL, Chakra ET ─┐
//!   ring, tree, all-to-all, incast … ┴► Workload ──► Player (one per host) ◄─► Endpoint (a NIC) ◄─► fabric
//!                                                    └────────── WorkloadHost: a Node ──────────┘
//! ```
//!
//! [`Endpoint`] is all that a NIC has to offer; nothing here knows a protocol.

mod graph;

mod player;

mod endpoint;

mod host;

mod floor;

// Generators.
mod collective;

mod traffic;

// Readers of files.
mod error;

pub mod htsim;

pub mod goal;

pub mod msccl;

mod protobuf;

pub mod chakra;

pub use collective::{Collective, CollectiveKind};
pub use endpoint::{Endpoint, Event, PathGauge, Request};
pub use error::{ParseError, Place};
pub use floor::Floor;
pub use graph::{
    Action, Builder, Connection, Message, MessageId, Step, StepId, Verb, Workload, WorkloadError, HOST_COUNT_MAX,
    MESSAGE_BYTES_MAX, STEP_COUNT_MAX,
};
pub use host::{WorkloadHost, PLAYER_TOKEN};
pub use player::{Player, StepTimes, NEVER_PS};
pub use traffic::Queue;
