//! RoCEv2 as deployed, to compare with: go-back-N, one path, DCQCN, optionally over a lossless fabric.
//!
//! ```text
//!   Workload ──Request──► Roce (an Endpoint) ──► Requester ─ WRITE, READ request ─► │ fabric │ ─► Responder
//!                              │                    ▲ ACK, NAK, READ response ──────┘        │
//!                              └── Dcqcn per QP ◄── CNP ◄── ECN-CE ◄─────────────────────────┘
//! ```
//!
//! A QP is the reliable connection of InfiniBand: WRITEs (the last packet with the message's number as immediate) and READs,
//! packets in order on one five-tuple. A responder drops what is out of sequence and says so once (NAK); the requester then
//! sends again everything from there on. The retransmission timer follows the measured round trip. What is compared is the
//! transport, so payload is virtual, keys are not checked, and the ICRC is a field of zeros.
//!
//! For a network without loss, give its links classes and PFC ([`nic_fabric::QueueSpec::Classes`], [`nic_fabric::Pfc`]) and
//! set [`RoceConfig::is_lossless`].
#![forbid(unsafe_code)]

// Numbers.
pub mod config;

// The wire.
mod packet;

// Control loops.
pub mod dcqcn;

mod rtt;

// A queue pair.
mod requester;

mod responder;

// The card.
mod nic;

pub use config::RoceConfig;
pub use nic::{Roce, RoceCounters};
