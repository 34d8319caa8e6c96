//! Block `id`: what this card is and how large it was built.

use crate::csr_block;

csr_block! {
    /// What this card is and how large it was built.
    block "id": type 0x0001, version 1, base 0x0000, next 0x1000;
    /// Constant by which a driver recognises the card: "nic1" read as bytes.
    0x0c MAGIC: ro = 0x3163_696e, "";
    /// Connections the card was built for.
    0x10 CONNS: ro = 0, "connections";
    /// Paths of each connection.
    0x14 PATHS: ro = 0, "paths";
    /// Packets in flight on one path, at most.
    0x18 WINDOW_PKTS: ro = 0, "packets";
    /// Messages in flight on one stream, at most.
    0x1c MSGS: ro = 0, "messages";
    /// Memory regions.
    0x20 MRS: ro = 0, "regions";
    /// Completion queues.
    0x24 CQS: ro = 0, "queues";
    /// Width of the data path.
    0x28 DATA_BITS: ro = 0, "bits";
    /// Frequency of the core clock.
    0x2c CLOCK_KHZ: ro = 0, "kHz";
    /// Free-running count of the core clock, modulo 2^32.
    0x30 TIME: ro = 0, "ticks";
    /// Holds what was written, for tests of the bus.
    0x34 SCRATCH: rw = 0, "";
}
