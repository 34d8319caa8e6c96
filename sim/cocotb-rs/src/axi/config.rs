//! How an AXI4 memory behaves: latencies, back-pressure, order, faults.

use super::Response;
use crate::{pace::Pace, seed::Seed};
use std::ops::{Range, RangeInclusive};

/// A range of addresses that answers with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Byte addresses.
    pub addresses: Range<u64>,
    /// The response of a transaction that touches them.
    pub response: Response,
}

/// The behaviour of an [`Axi4Memory`](super::Axi4Memory).
#[derive(Clone, Debug)]
pub struct Axi4MemoryConfig {
    /// Seed of all random choices.
    pub seed: Seed,
    /// Cycles from the acceptance of a read address to the earliest offer of its first beat, drawn per burst.
    pub read_latency_cycles: RangeInclusive<u64>,
    /// Cycles from the acceptance of address and last beat of a write to the earliest offer of its response, drawn per
    /// burst. Memory changes at the offer, so a manager that does not wait for responses reads old data.
    pub write_latency_cycles: RangeInclusive<u64>,
    /// Share of cycles in which each of AW, W and AR is ready. Percent.
    pub ready_percent: u32,
    /// Share of cycles in which a waiting beat of R or B is offered. Percent.
    pub offer_percent: u32,
    /// Whether transactions of different ids may overtake each other; those of one id never do.
    pub is_out_of_order: bool,
    /// Whether beats of read bursts of different ids may mix.
    pub is_interleaving: bool,
    /// Read bursts accepted and not yet answered. At least 1.
    pub reads_max: usize,
    /// Write addresses accepted and not yet answered; as many bursts of data may come before their address. At least 1.
    pub writes_max: usize,
    /// Addresses that answer with an error. Reads get it in the beats that touch them; a write that touches them
    /// changes nothing.
    pub faults: Vec<Fault>,
}

impl Default for Axi4MemoryConfig {
    /// A fast memory: one cycle of latency, always ready, in order, 32 transactions each way, no faults.
    fn default() -> Self {
        Axi4MemoryConfig {
            seed: Seed::new(1),
            read_latency_cycles: 1..=1,
            write_latency_cycles: 1..=1,
            ready_percent: 100,
            offer_percent: 100,
            is_out_of_order: false,
            is_interleaving: false,
            reads_max: 32,
            writes_max: 32,
            faults: Vec::new(),
        }
    }
}

impl Axi4MemoryConfig {
    /// An unpleasant memory: latencies of 1 to 60 cycles, back-pressure on all channels, any order AXI allows.
    pub fn stress(seed: Seed) -> Self {
        Axi4MemoryConfig {
            seed,
            read_latency_cycles: 1..=60,
            write_latency_cycles: 1..=60,
            ready_percent: 70,
            offer_percent: 70,
            is_out_of_order: true,
            is_interleaving: true,
            ..Axi4MemoryConfig::default()
        }
    }

    pub(super) fn ready_pace(&self, channel: &str) -> Pace {
        Pace::random(self.ready_percent, self.seed.named(channel))
    }

    pub(super) fn offer_pace(&self, channel: &str) -> Pace {
        Pace::random(self.offer_percent, self.seed.named(channel))
    }

    /// The error of an access to these bytes, if any.
    pub(super) fn fault(&self, addr: u64, len_bytes: usize) -> Option<Response> {
        let end = addr.saturating_add(len_bytes as u64);
        let touches = |fault: &&Fault| fault.addresses.start < end && addr < fault.addresses.end;
        self.faults.iter().find(touches).map(|fault| fault.response)
    }
}
