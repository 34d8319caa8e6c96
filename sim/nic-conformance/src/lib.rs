//! What the protocol requires of a card, as cases that run on every bench: model, RTL simulation, card.
//!
//! A case ([`case::Case`]) acts as the peer of the device under test ([`dut::Dut`]): it makes frames, reads the card's,
//! and asserts only what the wire, host memory, counters and completions show. It names the requirements of
//! `hdl/nic-spec/spec` that it is about; `hdl/nic-spec/generated/coverage.txt` lists them the other way round.
//!
//! ```
//! use nic_conformance::{bench::model::ModelBench, case::{conform, Verdict}};
//! let mut failed = 0;
//! conform(&ModelBench, "::wire::", |case, verdict| failed += i32::from(matches!(verdict, Verdict::Failed(_))));
//! assert_eq!(failed, 0);
//! ```
#![forbid(unsafe_code)]

// What a bench offers.
pub mod dut;

pub mod setup;

pub mod bench;

// What a case works with.
pub mod failure;

pub mod packet;

pub mod conn;

pub mod kit;

pub mod peer;

// The cases.
pub mod case;

mod cases;
