//! How much reordering within a path is tolerated before a gap counts as a loss.
//!
//! Where each path takes one way through the network, nothing is reordered and the tolerance stays 0. Where switches
//! spray packets, an acknowledgement shows a late arrival: its trigger is older than something already received. The
//! tolerance follows the largest lateness seen, rises further when the receiver reports as a duplicate what only a gap
//! had made the sender repeat, never exceeds one round trip, and falls slowly when nothing is late.

use super::path::AckOutcome;
use crate::config::TransportConfig;
use crate::time::Time;

/// Tolerance of one connection, ticks of the wire's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderTolerance {
    ticks: u32,
    floor_ticks: u32,
    next_decay: Time,
}

/// Round trips without evidence after which the tolerance falls.
const DECAY_RTTS: u64 = nic_spec::consts::REORDER_DECAY_RTTS as u64;

impl ReorderTolerance {
    /// Present tolerance, ticks.
    pub const fn ticks(&self) -> u32 {
        self.ticks
    }

    /// Sets the smallest tolerance: `floor_q8`/256 of a round trip of `srtt_ticks`.
    pub fn set_floor(&mut self, srtt_ticks: u32, floor_q8: u32) {
        self.floor_ticks = ((u64::from(srtt_ticks) * u64::from(floor_q8)) >> 8) as u32;
        self.ticks = self.ticks.max(self.floor_ticks);
    }

    /// Learns from an acknowledgement; `srtt_ps` is the connection's round trip.
    #[inline(never)]
    pub fn on_ack(&mut self, now: Time, ack: &AckOutcome, srtt_ps: u64, cfg: &TransportConfig) {
        let srtt_ticks = (srtt_ps / cfg.tick_ps).min(u64::from(u32::MAX)) as u32;
        if let Some(late) = ack.late_ticks {
            self.on_late(now, late, srtt_ticks, srtt_ps);
        }
        if ack.was_spurious {
            self.on_spurious(now, srtt_ticks, srtt_ps);
        }
        if self.ticks > 0 || cfg.reorder_of_srtt_q8 > 0 {
            self.decay(now, srtt_ps);
            self.set_floor(srtt_ticks, cfg.reorder_of_srtt_q8);
        }
    }

    /// A packet arrived `late_ticks` after one that was sent later on the same path.
    pub fn on_late(&mut self, now: Time, late_ticks: u32, srtt_ticks: u32, srtt_ps: u64) {
        // A quarter more than was seen, since the largest of few is seldom the largest of many.
        let want = late_ticks.saturating_add(late_ticks / 4).saturating_add(1);
        self.raise(now, want, srtt_ticks, srtt_ps);
    }

    /// The receiver had already what a gap made the sender repeat.
    pub fn on_spurious(&mut self, now: Time, srtt_ticks: u32, srtt_ps: u64) {
        let want = self.ticks.saturating_add(self.ticks / 4).max(srtt_ticks / 16).max(1);
        self.raise(now, want, srtt_ticks, srtt_ps);
    }

    fn raise(&mut self, now: Time, want: u32, srtt_ticks: u32, srtt_ps: u64) {
        self.ticks = self.ticks.max(want.min(srtt_ticks));
        self.next_decay = now.after_ps(srtt_ps.saturating_mul(DECAY_RTTS));
    }

    /// Lets the tolerance fall by a sixteenth if nothing was late for long.
    pub fn decay(&mut self, now: Time, srtt_ps: u64) {
        if self.ticks > self.floor_ticks && now >= self.next_decay {
            self.ticks = (self.ticks - (self.ticks / 16).max(1)).max(self.floor_ticks);
            self.next_decay = now.after_ps(srtt_ps.saturating_mul(DECAY_RTTS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_covers_the_lateness_seen_up_to_a_round_trip_and_never_falls_at_once() {
        let mut r = ReorderTolerance::default();
        assert_eq!(r.ticks(), 0);
        r.on_late(Time(0), 100, 2500, 10);
        assert_eq!(r.ticks(), 126);
        r.on_late(Time(0), 10, 2500, 10);
        assert_eq!(r.ticks(), 126);
        r.on_late(Time(0), 9000, 2500, 10);
        assert_eq!(r.ticks(), 2500);
        r.on_late(Time(0), u32::MAX, u32::MAX, 10);
        assert_eq!(r.ticks(), u32::MAX);
    }

    #[test]
    fn spurious_repeats_raise_it_from_nothing() {
        let mut r = ReorderTolerance::default();
        r.on_spurious(Time(0), 1600, 10);
        assert_eq!(r.ticks(), 100);
        r.on_spurious(Time(0), 1600, 10);
        assert_eq!(r.ticks(), 125);
        (0..50).for_each(|_| r.on_spurious(Time(0), 1600, 10));
        assert_eq!(r.ticks(), 1600);
    }

    #[test]
    fn it_falls_slowly_to_its_floor() {
        let mut r = ReorderTolerance::default();
        r.set_floor(1000, 16);
        assert_eq!(r.ticks(), 62);
        r.on_late(Time(0), 400, 1000, 10);
        r.decay(Time(1279), 10);
        assert_eq!(r.ticks(), 501);
        r.decay(Time(1280), 10);
        assert_eq!(r.ticks(), 470);
        (0..100).for_each(|i| r.decay(Time(10_000 * i), 10));
        assert_eq!(r.ticks(), 62);
    }
}
