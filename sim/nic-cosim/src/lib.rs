//! The card's RTL under cocotb-rs: bring-up, host memory, wire.
//!
//! ```text
//!   registers  ──AXI4-Lite manager──►┐          ┌──AXI-Stream sink──► frames the card sends, with their times
//!   HostMemory ◄──AXI4 memory────────┤  Card    │
//!   MsixSink   ◄──vector requests────┘ (RTL)    └◄─AXI-Stream source── frames from the network, not before their times
//! ```
//! The card sees what a card sees: registers, memory behind an IOMMU, a wire. Nothing here looks into the RTL.
#![forbid(unsafe_code)]

/// The card: model, clock, bus models.
pub mod card;

/// Host memory as an AXI4 memory.
pub mod memory;

/// Interrupt requests to the host's sink.
pub mod msix;

pub use card::{Card, CardConfig, CardModel, CosimError, SentFrame};
