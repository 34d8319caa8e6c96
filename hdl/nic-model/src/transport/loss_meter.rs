//! How lossy the network was lately, as a card learns it over all its connections.
//!
//! A connection that carries one short message learns too late what its first packets could have told the next one, so
//! the card remembers: when a loss was last found, and which part of the packets is lost.

use crate::time::Time;
use nic_spec::consts::{LOSSY_PKTS, LOSS_METER_PKTS};

/// The part is that of about this many packets, as a power of two.
const PACKETS_LOG2: u32 = LOSS_METER_PKTS.ilog2();
/// Fixed point of the part.
const ONE: u32 = 1 << 16;
/// A network that loses more than this is lossy.
const LOSSY: u32 = ONE / LOSSY_PKTS;

/// The meter of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossMeter {
    last: Option<Time>,
    /// Lost of all packets, [`ONE`] is all.
    part: u32,
}

impl LossMeter {
    /// An acknowledgement told of so many packets that they arrived, and of so many transmissions that they were lost.
    pub fn on_ack(&mut self, now: Time, acked_pkts: u32, lost_pkts: u32) {
        if lost_pkts > 0 {
            self.last = Some(now);
        } else if self.part == 0 {
            return;
        }
        // A path tells of 256 packets at most.
        let (acked, lost) = (acked_pkts.min(1 << PACKETS_LOG2), lost_pkts.min(1 << PACKETS_LOG2));
        let up = lost * (ONE >> PACKETS_LOG2);
        let down = (u64::from(self.part) * u64::from(acked + lost)) >> PACKETS_LOG2;
        self.part = (self.part + up).saturating_sub(down as u32).min(ONE);
    }

    /// True when a loss was found within the last `memory_ps`.
    pub fn expects_losses(&self, now: Time, memory_ps: u64) -> bool {
        self.last.is_some_and(|at| now.since_ps(at) <= memory_ps)
    }

    /// True when more than one packet in [`LOSSY_PKTS`] was lost lately.
    pub fn is_lossy(&self, now: Time, memory_ps: u64) -> bool {
        self.part > LOSSY && self.expects_losses(now, memory_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_expected_again_for_a_while() {
        let mut meter = LossMeter::default();
        meter.on_ack(Time(5), 4, 0);
        assert!(!meter.expects_losses(Time(5), 100));
        meter.on_ack(Time(10), 4, 1);
        assert_eq!([110, 111].map(|at| meter.expects_losses(Time(at), 100)), [true, false]);
        assert!(!meter.is_lossy(Time(10), 100), "one packet of a few hundred");
    }

    #[test]
    fn the_part_lost_follows_the_network_and_single_losses_do_not_make_it_lossy() {
        for (every, want) in [(100, false), (20, true), (10, true)] {
            let mut meter = LossMeter::default();
            (0..4000).for_each(|i| meter.on_ack(Time(i), 1, u32::from(i % every == 0)));
            assert_eq!(meter.is_lossy(Time(4000), 100), want, "one in {every}");
            (4000..8000).for_each(|i| meter.on_ack(Time(i), 1, 0));
            meter.on_ack(Time(8000), 1, 1);
            assert!(!meter.is_lossy(Time(8000), 100), "no more");
        }
    }

    #[test]
    fn extreme_counts_stay_within_all_and_nothing() {
        let mut meter = LossMeter::default();
        for (acked, lost) in [(0, u32::MAX), (u32::MAX, u32::MAX), (u32::MAX, 0), (0, 256), (256, 256)] {
            meter.on_ack(Time(1), acked, lost);
            assert!(meter.part <= ONE);
        }
    }
}
