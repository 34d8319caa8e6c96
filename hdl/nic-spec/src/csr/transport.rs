//! Block `transport`: timers and limits of the reliable transport.

use crate::csr_block;

csr_block! {
    /// Timers and limits of the reliable transport. Ticks are cycles of the core clock; resets assume 250 MHz.
    block "transport": type 0x0004, version 1, base 0x3000, next 0x4000;
    /// Retransmission timeout of a path before the first doubling.
    0x0c RTO_TICKS: rw = 25000, "ticks";
    /// Timeouts in a row on one path after which its connection fails.
    0x10 RETRY_LIMIT: rw = 7, "timeouts" {
        /// The limit.
        RETRY_LIMIT_VALUE: 0, 4;
    };
    /// Packets received on a path that make an ACK due.
    0x14 ACK_PACKETS: rw = 4, "packets" {
        /// The count; 0 acts as 1.
        ACK_PACKETS_VALUE: 0, 8;
    };
    /// Payload received on a path that makes an ACK due.
    0x18 ACK_BYTES: rw = 16384, "bytes" {
        /// The count.
        ACK_BYTES_VALUE: 0, 24;
    };
    /// Longest time an ACK is held back.
    0x1c ACK_DELAY_TICKS: rw = 500, "ticks";
    /// Shortest time between two NAKs of a connection.
    0x20 NAK_INTERVAL_TICKS: rw = 25000, "ticks";
    /// Wait after a receiver-not-ready NAK before the packet is sent again.
    0x24 RNR_TICKS: rw = 25000, "ticks";
}
