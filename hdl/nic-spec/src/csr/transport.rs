//! Block `transport`: timers and limits of the reliable transport.

use crate::{
    consts::{
        ACK_BYTES as BYTES, ACK_DELAY_NS, ACK_PACKETS as PACKETS, CLOCK_KHZ, NAK_INTERVAL_NS, RETRY_LIMIT as RETRIES,
        RNR_NS, RTO_NS,
    },
    csr_block,
};

/// Cycles of the default core clock in `time_ns`.
const fn ticks(time_ns: u32) -> u32 {
    (time_ns as u64 * CLOCK_KHZ as u64 / 1_000_000) as u32
}

csr_block! {
    /// Timers and limits of the reliable transport. Ticks are cycles of the core clock; resets assume its default of 250 MHz.
    block "transport": type 0x0004, version 1, base 0x3000, next 0x4000;
    /// Retransmission timeout of a path before the first doubling.
    0x0c RTO_TICKS: rw = ticks(RTO_NS), "ticks";
    /// Timeouts in a row on one path after which its connection fails.
    0x10 RETRY_LIMIT: rw = RETRIES, "timeouts" {
        /// The limit.
        RETRY_LIMIT_VALUE: 0, 4;
    };
    /// Packets received on a path that make an ACK due.
    0x14 ACK_PACKETS: rw = PACKETS, "packets" {
        /// The count; 0 acts as 1.
        ACK_PACKETS_VALUE: 0, 8;
    };
    /// Payload received on a path that makes an ACK due.
    0x18 ACK_BYTES: rw = BYTES, "bytes" {
        /// The count.
        ACK_BYTES_VALUE: 0, 24;
    };
    /// Longest time an ACK is held back.
    0x1c ACK_DELAY_TICKS: rw = ticks(ACK_DELAY_NS), "ticks";
    /// Shortest time between two NAKs of a connection.
    0x20 NAK_INTERVAL_TICKS: rw = ticks(NAK_INTERVAL_NS), "ticks";
    /// Wait after a receiver-not-ready NAK before the packet is sent again.
    0x24 RNR_TICKS: rw = ticks(RNR_NS), "ticks";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_the_constants_in_cycles_of_the_default_clock() {
        assert_eq!((RTO_TICKS.reset, ACK_DELAY_TICKS.reset, NAK_INTERVAL_TICKS.reset), (25_000, 500, 25_000));
        assert_eq!((RETRY_LIMIT.reset, ACK_PACKETS.reset, ACK_BYTES.reset), (7, 4, 16_384));
    }
}
