//! Host memory: reads and writes over AXI4, and the memory regions that permit them.
//!
//! Clients speak in bytes: an address, a length, data that begins at byte 0 of a beat. Here become of it bursts that no
//! 4 KiB border cuts, lanes that a byte offset shifts, and answers in the order of the questions.

// Bus signals.
pub mod axi4;

// What may be accessed.
pub mod mr;

// Bytes into bursts.
pub mod split;

// Reads: client and burst channels, then the shift of what comes back.
pub mod read;
pub mod read_align;

// Writes: client and burst channels, then the shift of what goes out.
pub mod write;
pub mod write_align;

// Both on one set of pins.
pub mod manager;

#[cfg(test)]
pub(crate) mod bench;

pub use manager::BusManager;
pub use mr::MrTable;
pub use read::DmaRead;
pub use write::{CqeWrite, DmaWrite, WriteDone};

/// Largest burst. Beats, a power of two, at most 64 (4 KiB). Bursts also end at multiples of it.
pub const BURST_BEATS: u32 = 16;
/// AXI id of the WQE reads and of the payload writes.
pub const ID_WQE: u64 = 0;
/// AXI id of the payload reads.
pub const ID_PAYLOAD: u64 = 1;
/// AXI id of the completion entries' writes.
pub const ID_CQE: u64 = 0;
