//! From packets and acknowledgements to the wire: fetch the payload, put headers before it, close with the ICRC.
//!
//! ```text
//!                       ConnRead, AhRead
//!                              │
//! AckPacket ─────────────► header ─► header queue ─┐
//! TxPacket ─► payload ─┬──────┘                    ├─► merge ─► icrc ─► m_axis
//!      DmaRead ◄┘  ▲   └─────────── payload ───────┘
//!        ReadBeat ─┘
//! ```
//!
//! Nothing here waits for the receive side. A packet goes on only when its whole payload is there and good, so a frame
//! once begun comes without a gap, and a packet whose payload cannot be read is dropped before it has begun.

/// Payload of a packet out of host memory.
pub mod payload;

/// Header bytes of the next frame.
pub mod header;

/// Bytes of headers from their fields.
mod parts;

/// Headers and payload to beats of a frame.
pub mod merge;

/// Both: from packets and acknowledgements to frames without their ICRC.
pub mod header_build;

/// Invariant CRC into the frame.
pub mod icrc;

/// All of it.
pub mod transmitter;

pub use transmitter::Transmitter;
