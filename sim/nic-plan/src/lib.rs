//! Experiments from files: a network, a workload, transports, what is measured and what is expected of it.
//!
//! ```text
//!   PLAN.toml ──► Plan: a RunSpec per case and transport ──► run ──► Run (times, counters, samples)
//!                       and Expects ───────────────────────────────────┴► Outcome, JSON, tables, SVG, Markdown
//! ```
//!
//! Runs are functions of the plan alone: integers, fixed seeds, simulated time. Several runs go side by side on threads; their
//! results come in the order of the plan.
#![forbid(unsafe_code)]

// What a file says.
pub mod plan;

mod merge;

mod traffic;

mod transport;

// What is done.
mod model;

mod path;

pub mod run;

mod series;

mod execute;

// What comes out.
pub mod measure;

pub mod expect;

pub mod report;

pub mod headline;

mod panels;

pub mod plot;

pub use execute::{execute, Options, Progress};
pub use expect::{Expect, Outcome, Verdict};
pub use measure::{Measure, Metric};
pub use plan::{Plan, PlanError};
pub use run::{Run, RunSpec};
pub use series::{Sample, Series};
pub use transport::{ModelSpec, RoceSpec, TransportSpec};
