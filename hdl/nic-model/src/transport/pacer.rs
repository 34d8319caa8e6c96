//! What a sender does with a rate hint: it paces by a token bucket and bounds its window.
//!
//! The window under a hint is ⌈hint·(1.5·minRTT + delay of acknowledgements) / PMTU⌉: the smallest round trip, so that a
//! standing queue cannot sustain itself, and the delay because what the receiver has and has not acknowledged yet is in
//! no queue. It is rounded up in each plane, since each has a queue of its own; where it is less than a packet, the
//! bucket alone keeps the rate.

use crate::time::Time;
use nic_spec::consts::{HINT_WINDOW_RTT_PERCENT, RATE_HINT_UNLIMITED};
use nic_spec::num::HintSeq;

/// Newest hint, expiry, token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    seq: Option<HintSeq>,
    rate_mbps: u32,
    expires: Time,
    /// Credit in 10^-6 bits (Mb/s · ps), so that filling loses nothing to rounding.
    tokens_microbits: i64,
    refilled: Time,
}

impl Default for Pacer {
    fn default() -> Self {
        Self {
            seq: None,
            rate_mbps: RATE_HINT_UNLIMITED,
            expires: Time::ZERO,
            tokens_microbits: 0,
            refilled: Time::ZERO,
        }
    }
}

/// No bucket fills for longer than this in one step: 2^24 Mb/s · 2^36 ps still fits 63 bits.
const REFILL_PS_MAX: u64 = 1 << 36;
const MICROBITS_PER_BYTE: i64 = 8_000_000;

impl Pacer {
    /// Takes a hint if it is newer than the last one (serial comparison); it holds for `lifetime_ps`.
    pub fn on_hint(&mut self, now: Time, seq: HintSeq, rate_mbps: u32, lifetime_ps: u64) -> bool {
        if rate_mbps == 0 || self.seq.is_some_and(|old| old != seq && !old.is_before(seq)) {
            return false;
        }
        if self.rate_mbps(now).is_none() {
            // What was saved up without a limit is no credit.
            (self.tokens_microbits, self.refilled) = (0, now);
        } else if self.rate_mbps != rate_mbps {
            self.refill(now, i64::MAX);
        }
        self.rate_mbps = rate_mbps;
        self.seq = Some(seq);
        self.expires = now.after_ps(lifetime_ps);
        true
    }

    /// A burst begins after a pause: a hint that expired no longer than `cache_ps` ago holds for `lifetime_ps` again.
    pub fn resume(&mut self, now: Time, lifetime_ps: u64, cache_ps: u64) {
        if self.rate_mbps != RATE_HINT_UNLIMITED && now >= self.expires && now.since_ps(self.expires) < cache_ps {
            self.expires = now.after_ps(lifetime_ps);
        }
    }

    /// True when the newest hint, however old, states no limit, or there was none.
    pub const fn is_unlimited(&self) -> bool {
        self.rate_mbps == RATE_HINT_UNLIMITED
    }

    /// True when the newest hint limited and holds no longer.
    pub fn is_expired(&self, now: Time) -> bool {
        !self.is_unlimited() && now >= self.expires
    }

    /// The rate to keep, Mb/s, or `None` when no hint limits.
    pub fn rate_mbps(&self, now: Time) -> Option<u32> {
        (self.rate_mbps != RATE_HINT_UNLIMITED && now < self.expires).then_some(self.rate_mbps)
    }

    /// Packets that may be in flight on so many planes when acknowledgements are held back for `hold_ps`, at least 1 a
    /// plane; `None` when no hint limits.
    pub fn window_pkts(&self, now: Time, min_rtt_ps: u64, hold_ps: u64, pmtu_bytes: u32, planes: u32) -> Option<u32> {
        let (rate_mbps, planes) = (self.rate_mbps(now)?, planes.max(1));
        let span_ps =
            min_rtt_ps.min(REFILL_PS_MAX) * u64::from(HINT_WINDOW_RTT_PERCENT) / 100 + hold_ps.min(REFILL_PS_MAX);
        // Mb/s · ps = 10^-6 bits.
        let bits = u64::from(rate_mbps) * span_ps / 1_000_000;
        let per_plane = bits.div_ceil(u64::from(pmtu_bytes) * 8 * u64::from(planes));
        Some((per_plane as u32).max(1) * planes)
    }

    fn refill(&mut self, now: Time, burst_microbits: i64) {
        let span_ps = now.since_ps(self.refilled).min(REFILL_PS_MAX);
        self.refilled = self.refilled.max(now);
        let filled = (u64::from(self.rate_mbps) * span_ps) as i64;
        self.tokens_microbits = self.tokens_microbits.saturating_add(filled).min(burst_microbits);
    }

    /// When a packet may leave: now, or the moment the bucket holds a credit again. The bucket saves up `burst_bytes` and
    /// may be overdrawn by `debt_bytes`.
    pub fn ready_at(&mut self, now: Time, burst_bytes: u32, debt_bytes: u32) -> Time {
        let Some(rate_mbps) = self.rate_mbps(now) else { return now };
        self.refill(now, i64::from(burst_bytes) * MICROBITS_PER_BYTE);
        let short = self.tokens_microbits + i64::from(debt_bytes) * MICROBITS_PER_BYTE;
        if short >= 0 {
            return now;
        }
        let wait_ps = short.unsigned_abs().div_ceil(u64::from(rate_mbps));
        now.after_ps(wait_ps).min(self.expires)
    }

    /// A packet of `wire_bytes` leaves.
    pub fn spend(&mut self, now: Time, wire_bytes: u32) {
        if self.rate_mbps(now).is_some() {
            let cost = i64::from(wire_bytes) * MICROBITS_PER_BYTE;
            self.tokens_microbits = self.tokens_microbits.saturating_sub(cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = crate::time::US_PS;

    #[test]
    fn the_newest_hint_wins_across_the_wrap_and_expires() {
        let mut pacer = Pacer::default();
        assert!(pacer.on_hint(Time(0), HintSeq::new(250), 1000, 100));
        assert!(pacer.on_hint(Time(1), HintSeq::new(2), 2000, 100));
        assert!(!pacer.on_hint(Time(2), HintSeq::new(251), 3000, 100), "older");
        assert_eq!(pacer.rate_mbps(Time(50)), Some(2000));
        assert_eq!(pacer.rate_mbps(Time(101)), None);
    }

    #[test]
    fn an_expired_hint_comes_back_for_the_next_burst_if_it_is_not_too_old() {
        let mut pacer = Pacer::default();
        pacer.on_hint(Time(0), HintSeq::new(1), 1000, 100);
        pacer.resume(Time(150), 100, 0);
        assert_eq!(pacer.rate_mbps(Time(150)), None, "no cache");
        pacer.resume(Time(150), 100, 60);
        assert_eq!((pacer.rate_mbps(Time(249)), pacer.rate_mbps(Time(250))), (Some(1000), None));
        pacer.resume(Time(310), 100, 60);
        assert_eq!(pacer.rate_mbps(Time(310)), None, "too old");
    }

    #[test]
    fn the_bucket_keeps_the_rate_and_the_window_follows_the_minimum_round_trip() {
        let mut pacer = Pacer::default();
        pacer.on_hint(Time(0), HintSeq::new(1), 100_000, u64::MAX);
        let mut now = Time(0);
        for _ in 0..1000 {
            now = pacer.ready_at(now, 8192, 0);
            pacer.spend(now, 4210);
        }
        // 1000 packets of 4210 bytes at 100 Gb/s take 336.8 us, less the burst.
        assert!((330 * US..340 * US).contains(&now.0), "{}", now.0);
        assert_eq!(pacer.window_pkts(now, 10 * US, 0, 4096, 1), Some(46));
        assert_eq!(pacer.window_pkts(now, 10 * US, 2 * US, 4096, 1), Some(52));
    }

    #[test]
    fn the_window_is_rounded_up_in_each_plane_so_that_it_grows_as_they_do() {
        let window = |mbps, planes| {
            let mut pacer = Pacer::default();
            pacer.on_hint(Time(0), HintSeq::new(1), mbps, u64::MAX);
            pacer.window_pkts(Time(0), 4 * US, 2 * US, 4096, planes)
        };
        // A fraction of a packet a plane, and a little more than one.
        for (mbps, pkts) in [(1_600, 1), (5_000, 2)] {
            for planes in [1, 2, 4, 8] {
                assert_eq!(
                    window(mbps * planes, planes),
                    Some(pkts * planes),
                    "{mbps} Mb/s in each of {planes} planes"
                );
            }
        }
    }

    #[test]
    fn extreme_rates_and_spans_do_not_overflow() {
        let mut pacer = Pacer::default();
        pacer.on_hint(Time(0), HintSeq::new(1), RATE_HINT_UNLIMITED - 1, u64::MAX);
        assert_eq!(pacer.ready_at(Time(u64::MAX - 1), u32::MAX, 0), Time(u64::MAX - 1));
        assert!(pacer.window_pkts(Time(1), u64::MAX, u64::MAX, 1024, 1).is_some_and(|w| w > 1_000_000));
        pacer.on_hint(Time(0), HintSeq::new(2), 1, u64::MAX);
        (0..1000).for_each(|_| pacer.spend(Time(5), u32::MAX));
        assert!(pacer.ready_at(Time(5), 1, 0) > Time(5));
    }

    #[test]
    fn a_limit_that_begins_finds_an_empty_bucket() {
        let mut pacer = Pacer::default();
        pacer.on_hint(Time(900 * US), HintSeq::new(1), 1_000, u64::MAX);
        assert_eq!(pacer.ready_at(Time(900 * US), 1 << 20, 0), Time(900 * US));
        pacer.spend(Time(900 * US), 1_000);
        assert_eq!(pacer.ready_at(Time(900 * US), 1 << 20, 0), Time(908 * US), "nothing was saved up before the limit");
        assert_eq!(pacer.ready_at(Time(900 * US), 1 << 20, 1_000), Time(900 * US), "what may be owed leaves at once");
    }
}
