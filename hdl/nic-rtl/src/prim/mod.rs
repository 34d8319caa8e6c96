//! Building blocks that know nothing of NICs: buffers, arbiters, bitmaps, memories, checksums, byte lanes.
//!
//! Blocks that move data are modules over one vector; the function of the same name puts one behind a stream of any
//! record: `let q = fifo(b, "q", &stream, 32);`. Credits stand where a pipeline is too deep for a ready signal.

// Streams: where a handshake is cut, stored or shared.

/// Cuts both handshake directions at full throughput.
pub mod skid;

/// Synchronous queue with a level.
pub mod fifo;

/// Several streams into one, word by word or packet by packet.
pub mod arbiter;

/// Ready signal for a pipeline that cannot stop.
pub mod credit;

/// Queue whose newest words can be taken back until they are committed.
pub mod packet_fifo;

/// AXI-Stream with the standard's signal names.
pub mod axis;

// Memories and bitmaps.

/// Tables with forwarding, and the sweep that clears them.
pub mod ram;

/// First set bit of 256 from a starting point on.
pub mod bitmap_ffs;

// Bytes.

/// Byte lanes: fields, keeps, lengths.
pub mod lanes;

/// Takes the first bytes off a frame.
pub mod strip;

/// CRC-32 of wide words by rows of exclusive or.
pub mod crc32;

pub use arbiter::{arbiter, Arbiter};
pub use axis::Axis;
pub use bitmap_ffs::{bitmap_ffs, BitmapFfs};
pub use credit::ready_while_room;
pub use fifo::{fifo, Fifo};
pub use packet_fifo::PacketFifo;
pub use skid::{skid, Skid};
pub use strip::Strip;

use rtl_graph::*;

/// Puts a module with the ports `rx` and `tx` of one vector each behind a stream of records.
fn through<'a, R: Record<'a>>(up: &Stream<'a, R>, rx: &Flow<'a>, tx: &Flow<'a>) -> Stream<'a, R> {
    rx.data.data.set(up.data.pack());
    rx.valid.set(up.valid);
    up.ready.set(rx.ready);
    Stream { data: R::unpack_as(&up.data.layout_of(), tx.data.data), valid: tx.valid, ready: tx.ready }
}

#[cfg(test)]
pub(crate) mod check;
