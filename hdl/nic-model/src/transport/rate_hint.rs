//! Rate hints: the receiver's share-out of its inbound bandwidth, and what a sender does with its share.
//!
//! The receiver counts the connections that sent lately; each is offered η·C·w/Σw. One that uses less than 80 % of its
//! offer for two windows has its claim capped at 125 % of what it uses and the rest is shared out again (max–min). A
//! single active connection is not limited. The sender paces at the hint (token bucket) and bounds its window by
//! ⌈1.5·hint·minRTT⌉, so that a standing queue cannot sustain itself.

use crate::time::Time;
use alloc::vec::Vec;
use nic_spec::consts::RATE_HINT_UNLIMITED;
use nic_spec::num::HintSeq;

/// One connection as the receiver sees it.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    weight: u32,
    last_data: Option<Time>,
    window_bytes: u64,
    /// Cap on its claim, Mb/s; `u64::MAX` when it uses what it is offered.
    cap_mbps: u64,
    idle_windows: u8,
    hint_mbps: u32,
    seq: HintSeq,
}

/// The receiver's engine of one port.
#[derive(Clone, Debug)]
pub struct HintEngine {
    line_mbps: u64,
    eta_q8: u32,
    window_ps: u64,
    window_start: Time,
    claims: Vec<Claim>,
    active: u32,
    weight_sum: u64,
}

impl HintEngine {
    /// An engine for a port of `line_mbps` that shares out `eta_q8`/256 of it and measures over `window_ps`.
    pub fn new(line_mbps: u64, eta_q8: u32, window_ps: u64) -> Self {
        Self {
            line_mbps,
            eta_q8,
            window_ps: window_ps.max(1),
            window_start: Time::ZERO,
            claims: Vec::new(),
            active: 0,
            weight_sum: 0,
        }
    }

    /// Adds a connection with a weight (1 by default) and returns its index.
    pub fn add(&mut self, weight: u32) -> usize {
        self.claims.push(Claim {
            weight: weight.max(1),
            cap_mbps: u64::MAX,
            hint_mbps: RATE_HINT_UNLIMITED,
            ..Claim::default()
        });
        self.claims.len() - 1
    }

    /// Connections that sent within the last window.
    pub const fn active_count(&self) -> u32 {
        self.active
    }

    /// Data of connection `index` arrived. True when it was idle before, so that its acknowledgement should leave at once.
    pub fn on_data(&mut self, now: Time, index: usize, len_bytes: u32) -> bool {
        let Some(claim) = self.claims.get_mut(index) else { return false };
        let newly = claim.last_data.is_none();
        claim.last_data = Some(now);
        claim.window_bytes += u64::from(len_bytes);
        if newly {
            self.active += 1;
            self.weight_sum += u64::from(claim.weight);
            claim.cap_mbps = u64::MAX;
            claim.idle_windows = 0;
        }
        self.roll(now);
        if newly {
            self.share_out();
        }
        newly
    }

    /// Ends a measuring window when it is over: idle connections leave, claims follow the use, shares are made anew.
    pub fn roll(&mut self, now: Time) {
        let span_ps = now.since_ps(self.window_start);
        if span_ps < self.window_ps {
            return;
        }
        self.window_start = now;
        for claim in &mut self.claims {
            let Some(last) = claim.last_data else { continue };
            if now.since_ps(last) > self.window_ps {
                claim.last_data = None;
                self.active -= 1;
                self.weight_sum -= u64::from(claim.weight);
                claim.window_bytes = 0;
                continue;
            }
            // bytes · 8 / ps = Tb/s; · 10^6 = Mb/s.
            let used_mbps = (u128::from(claim.window_bytes) * 8_000_000 / u128::from(span_ps)) as u64;
            claim.window_bytes = 0;
            // A capped claim is released only when it fills 19/20 of its cap, else cap and use would chase each other.
            let (num, den) = if claim.cap_mbps == u64::MAX { (4, 5) } else { (19, 20) };
            if claim.hint_mbps != RATE_HINT_UNLIMITED && used_mbps * den < u64::from(claim.hint_mbps) * num {
                claim.idle_windows = claim.idle_windows.saturating_add(1);
                if claim.idle_windows >= 2 {
                    claim.cap_mbps = (used_mbps * 5 / 4).max(1);
                }
            } else {
                claim.idle_windows = 0;
                claim.cap_mbps = u64::MAX;
            }
        }
        self.share_out();
    }

    /// Max–min shares, at most four passes.
    fn share_out(&mut self) {
        if self.active <= 1 {
            for claim in &mut self.claims {
                set_hint(claim, RATE_HINT_UNLIMITED);
            }
            return;
        }
        let mut left_mbps = self.line_mbps * u64::from(self.eta_q8) / 256;
        let mut weight = self.weight_sum;
        let mut capped = alloc::vec![false; self.claims.len()];
        for _ in 0..4 {
            let mut changed = false;
            for (claim, done) in self.claims.iter().zip(&mut capped) {
                let fair = left_mbps * u64::from(claim.weight) / weight.max(1);
                if claim.last_data.is_some() && !*done && claim.cap_mbps < fair {
                    *done = true;
                    changed = true;
                    left_mbps -= claim.cap_mbps;
                    weight -= u64::from(claim.weight);
                }
            }
            if !changed {
                break;
            }
        }
        for (claim, done) in self.claims.iter_mut().zip(&capped) {
            if claim.last_data.is_some() {
                let mbps = if *done { claim.cap_mbps } else { left_mbps * u64::from(claim.weight) / weight.max(1) };
                set_hint(claim, mbps.clamp(1, u64::from(RATE_HINT_UNLIMITED) - 1) as u32);
            }
        }
    }

    /// The hint that an acknowledgement to connection `index` carries, and its sequence number.
    pub fn hint(&self, index: usize) -> (HintSeq, u32) {
        self.claims.get(index).map_or((HintSeq::new(0), 0), |c| (c.seq, c.hint_mbps))
    }
}

fn set_hint(claim: &mut Claim, mbps: u32) {
    if claim.hint_mbps != mbps {
        claim.hint_mbps = mbps;
        claim.seq = claim.seq.next();
    }
}

/// The sender's side: newest hint, expiry, token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    seq: Option<HintSeq>,
    rate_mbps: u32,
    expires: Time,
    tokens_bits: i64,
    refilled: Time,
}

impl Default for Pacer {
    fn default() -> Self {
        Self { seq: None, rate_mbps: RATE_HINT_UNLIMITED, expires: Time::ZERO, tokens_bits: 0, refilled: Time::ZERO }
    }
}

impl Pacer {
    /// Takes a hint if it is newer than the last one (serial comparison); it holds for `lifetime_ps`.
    pub fn on_hint(&mut self, now: Time, seq: HintSeq, rate_mbps: u32, lifetime_ps: u64) -> bool {
        if rate_mbps == 0 || self.seq.is_some_and(|old| old != seq && !old.is_before(seq)) {
            return false;
        }
        self.refill(now, i64::MAX);
        self.seq = Some(seq);
        self.rate_mbps = rate_mbps;
        self.expires = now.after_ps(lifetime_ps);
        true
    }

    /// The rate to keep, Mb/s, or `None` when no hint limits.
    pub fn rate_mbps(&self, now: Time) -> Option<u32> {
        (self.rate_mbps != RATE_HINT_UNLIMITED && now < self.expires).then_some(self.rate_mbps)
    }

    /// Packets that may be in flight: ⌈1.5·hint·minRTT / PMTU⌉, at least 1; `None` when no hint limits.
    pub fn window_pkts(&self, now: Time, min_rtt_ps: u64, pmtu_bytes: u32) -> Option<u32> {
        let rate_mbps = self.rate_mbps(now)?;
        // Mb/s · ps = 10^-6 bits.
        let bits = u128::from(rate_mbps) * u128::from(min_rtt_ps) * 3 / 2 / 1_000_000;
        Some((bits.div_ceil(u128::from(pmtu_bytes) * 8) as u32).max(1))
    }

    fn refill(&mut self, now: Time, burst_bits: i64) {
        let span_ps = now.since_ps(self.refilled);
        self.refilled = self.refilled.max(now);
        let bits = (u128::from(self.rate_mbps) * u128::from(span_ps) / 1_000_000).min(i64::MAX as u128 / 4) as i64;
        self.tokens_bits = (self.tokens_bits + bits).min(burst_bits.min(i64::MAX / 4));
    }

    /// When a packet may leave: now, or the moment the bucket holds a credit again.
    pub fn ready_at(&mut self, now: Time, burst_bytes: u32) -> Time {
        let Some(rate_mbps) = self.rate_mbps(now) else { return now };
        self.refill(now, i64::from(burst_bytes) * 8);
        if self.tokens_bits >= 0 {
            return now;
        }
        let wait_ps = (u128::from(self.tokens_bits.unsigned_abs()) * 1_000_000).div_ceil(u128::from(rate_mbps)) as u64;
        now.after_ps(wait_ps).min(self.expires)
    }

    /// A packet of `wire_bytes` leaves.
    pub fn spend(&mut self, now: Time, wire_bytes: u32) {
        if self.rate_mbps(now).is_some() {
            self.tokens_bits -= i64::from(wire_bytes) * 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = crate::time::US_PS;

    #[test]
    fn active_connections_share_the_line_and_a_single_one_is_not_limited() {
        let mut engine = HintEngine::new(400_000, 256, 20 * US);
        let ids: Vec<usize> = (0..4).map(|_| engine.add(1)).collect();
        assert!(engine.on_data(Time(US), ids[0], 4096));
        assert_eq!(engine.hint(0).1, RATE_HINT_UNLIMITED);
        for i in &ids[1..] {
            engine.on_data(Time(US), *i, 4096);
        }
        assert!(ids.iter().all(|i| engine.hint(*i).1 == 100_000));
    }

    #[test]
    fn a_share_that_is_not_used_goes_to_the_others() {
        let mut engine = HintEngine::new(400_000, 256, 20 * US);
        (0..4).for_each(|_| {
            engine.add(1);
        });
        // Connection 0 sends 10 Gb/s, the others what they are offered.
        for step in 0..40u64 {
            let now = Time(US + step * 5 * US);
            engine.on_data(now, 0, 6_250);
            (1..4).for_each(|i| {
                let mbps = engine.hint(i).1.min(400_000);
                engine.on_data(now, i, (u64::from(mbps) * 5 / 8) as u32);
            });
        }
        assert!((10_000..=14_000).contains(&engine.hint(0).1), "{}", engine.hint(0).1);
        assert!(engine.hint(1).1 > 125_000, "{}", engine.hint(1).1);
    }

    #[test]
    fn an_idle_connection_leaves_and_the_rest_grow() {
        let mut engine = HintEngine::new(100_000, 256, 20 * US);
        (0..2).for_each(|_| {
            engine.add(1);
        });
        engine.on_data(Time(US), 0, 1);
        engine.on_data(Time(US), 1, 1);
        assert_eq!((engine.hint(0).1, engine.active_count()), (50_000, 2));
        for t in 2..12 {
            engine.on_data(Time(t * 5 * US), 0, 60_000);
        }
        assert_eq!((engine.hint(0).1, engine.active_count()), (RATE_HINT_UNLIMITED, 1));
    }

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
    fn the_bucket_keeps_the_rate_and_the_window_follows_the_minimum_round_trip() {
        let mut pacer = Pacer::default();
        pacer.on_hint(Time(0), HintSeq::new(1), 100_000, u64::MAX);
        let mut now = Time(0);
        for _ in 0..1000 {
            now = pacer.ready_at(now, 8192);
            pacer.spend(now, 4210);
        }
        // 1000 packets of 4210 bytes at 100 Gb/s take 336.8 us, less the burst.
        assert!((330 * US..340 * US).contains(&now.0), "{}", now.0);
        assert_eq!(pacer.window_pkts(now, 10 * US, 4096), Some(46));
    }
}
