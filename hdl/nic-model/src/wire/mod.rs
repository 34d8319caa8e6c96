//! Frames and packets, and the way from one to the other.

/// A frame: header bytes, payload, trailer.
pub mod frame;

/// A packet as values.
pub mod packet;

/// Fields of one word at once.
mod word;

/// Frame to packet.
pub mod parser;

/// Packet to frame.
pub mod emit;

/// Content of connection management packets.
pub mod cm;
