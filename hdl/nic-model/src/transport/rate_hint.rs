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
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Claim {
    weight: u32,
    last_data: Time,
    /// Bytes in this measuring window.
    window_bytes: u64,
    /// Cap on its claim, Mb/s; `u64::MAX` when it uses what it is offered.
    cap_mbps: u64,
    low_windows: u8,
    is_active: bool,
    /// Its cap was granted in the share-out under way.
    is_settled: bool,
    hint_mbps: u32,
    told_mbps: u32,
    seq: HintSeq,
}

/// The receiver's engine of one card.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct HintEngine {
    window_start: Time,
    window_ps: u64,
    claims: Vec<Claim>,
    line_mbps: u64,
    eta_q8: u32,
    /// Indices of the connections that sent lately.
    active: Vec<u32>,
    weight_sum: u64,
    /// Indices that may be given again.
    free: Vec<u32>,
}

impl HintEngine {
    /// An engine for ports of `line_mbps` together that shares out `eta_q8`/256 of it and measures over `window_ps`.
    pub fn new(line_mbps: u64, eta_q8: u32, window_ps: u64) -> Self {
        Self {
            line_mbps,
            eta_q8,
            window_ps: window_ps.max(1),
            window_start: Time::ZERO,
            claims: Vec::new(),
            active: Vec::new(),
            weight_sum: 0,
            free: Vec::new(),
        }
    }

    /// Adds a connection with a weight (1 by default) and returns its index.
    pub fn add(&mut self, weight: u32) -> usize {
        let claim = Claim {
            weight: weight.max(1),
            last_data: Time::ZERO,
            window_bytes: 0,
            cap_mbps: u64::MAX,
            low_windows: 0,
            is_active: false,
            is_settled: false,
            hint_mbps: RATE_HINT_UNLIMITED,
            told_mbps: RATE_HINT_UNLIMITED,
            seq: HintSeq::new(0),
        };
        match self.free.pop() {
            Some(index) => {
                self.claims[index as usize] = claim;
                index as usize
            }
            None => {
                self.claims.push(claim);
                self.claims.len() - 1
            }
        }
    }

    /// Takes a connection out; its index may be given again.
    pub fn remove(&mut self, index: usize) {
        let Some(claim) = self.claims.get_mut(index) else { return };
        if core::mem::take(&mut claim.is_active) {
            self.weight_sum -= u64::from(claim.weight);
            self.active.retain(|i| *i as usize != index);
            self.share_out();
        }
        self.free.push(index as u32);
    }

    /// Sets the rate of the ports that are up.
    pub fn set_line_mbps(&mut self, line_mbps: u64) {
        self.line_mbps = line_mbps;
        self.share_out();
    }

    /// Connections that sent within the last window.
    pub fn active_count(&self) -> u32 {
        self.active.len() as u32
    }

    /// Data of connection `index` arrived. True when it was idle before, so that its acknowledgement should leave at
    /// once.
    pub fn on_data(&mut self, now: Time, index: usize, len_bytes: u32) -> bool {
        let Some(claim) = self.claims.get_mut(index) else { return false };
        claim.last_data = now;
        claim.window_bytes += u64::from(len_bytes);
        let is_new = !claim.is_active;
        if is_new {
            (claim.is_active, claim.cap_mbps, claim.low_windows) = (true, u64::MAX, 0);
            self.weight_sum += u64::from(claim.weight);
            self.active.push(index as u32);
        }
        if now.since_ps(self.window_start) >= self.window_ps {
            self.roll(now);
        } else if is_new {
            self.share_out();
        }
        is_new
    }

    /// Ends a measuring window: idle connections leave, claims follow the use, shares are made anew.
    fn roll(&mut self, now: Time) {
        let span_ps = now.since_ps(self.window_start).max(1);
        self.window_start = now;
        let (claims, window_ps, weight_sum) = (&mut self.claims, self.window_ps, &mut self.weight_sum);
        self.active.retain(|i| {
            let claim = &mut claims[*i as usize];
            let bytes = core::mem::take(&mut claim.window_bytes);
            if now.since_ps(claim.last_data) > window_ps {
                claim.is_active = false;
                *weight_sum -= u64::from(claim.weight);
                return false;
            }
            // bytes · 8 / ps = Tb/s; · 10^6 = Mb/s.
            let used_mbps = (u128::from(bytes) * 8_000_000 / u128::from(span_ps)) as u64;
            // A capped claim is released only when it fills 19/20 of its cap, else cap and use would chase each other.
            let (num, den) = if claim.cap_mbps == u64::MAX { (4, 5) } else { (19, 20) };
            if claim.hint_mbps != RATE_HINT_UNLIMITED && used_mbps * den < u64::from(claim.hint_mbps) * num {
                claim.low_windows = claim.low_windows.saturating_add(1);
                if claim.low_windows >= 2 {
                    claim.cap_mbps = (used_mbps * 5 / 4).max(1);
                }
            } else {
                (claim.low_windows, claim.cap_mbps) = (0, u64::MAX);
            }
            true
        });
        self.share_out();
    }

    /// Max–min shares, at most four passes.
    fn share_out(&mut self) {
        if let [only] = self.active[..] {
            self.claims[only as usize].hint_mbps = RATE_HINT_UNLIMITED;
            return;
        }
        let mut left_mbps = self.line_mbps * u64::from(self.eta_q8) / 256;
        let mut weight = self.weight_sum;
        for i in &self.active {
            self.claims[*i as usize].is_settled = false;
        }
        for _ in 0..4 {
            let mut is_changed = false;
            for i in &self.active {
                let claim = &mut self.claims[*i as usize];
                let fair_mbps = left_mbps * u64::from(claim.weight) / weight.max(1);
                if !claim.is_settled && claim.cap_mbps < fair_mbps {
                    (claim.is_settled, is_changed) = (true, true);
                    left_mbps -= claim.cap_mbps;
                    weight -= u64::from(claim.weight);
                }
            }
            if !is_changed {
                break;
            }
        }
        for i in &self.active {
            let claim = &mut self.claims[*i as usize];
            let fair_mbps = left_mbps * u64::from(claim.weight) / weight.max(1);
            let mbps = if claim.is_settled { claim.cap_mbps } else { fair_mbps };
            claim.hint_mbps = mbps.clamp(1, u64::from(RATE_HINT_UNLIMITED) - 1) as u32;
        }
    }

    /// The hint that an acknowledgement to connection `index` carries now, and its number. The number counts hints that
    /// were told, not shares that were made, so that 8 bits suffice however often shares change.
    pub fn tell(&mut self, index: usize) -> (HintSeq, u32) {
        let Some(claim) = self.claims.get_mut(index) else { return (HintSeq::new(0), 0) };
        let mbps = if claim.is_active { claim.hint_mbps } else { RATE_HINT_UNLIMITED };
        if claim.told_mbps != mbps {
            claim.told_mbps = mbps;
            claim.seq = claim.seq.next();
        }
        (claim.seq, mbps)
    }
}

/// The sender's side: newest hint, expiry, token bucket.
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
        if self.rate_mbps != rate_mbps {
            self.refill(now, i64::MAX);
            self.rate_mbps = rate_mbps;
        }
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

    /// The rate to keep, Mb/s, or `None` when no hint limits.
    pub fn rate_mbps(&self, now: Time) -> Option<u32> {
        (self.rate_mbps != RATE_HINT_UNLIMITED && now < self.expires).then_some(self.rate_mbps)
    }

    /// Packets that may be in flight: ⌈1.5·hint·minRTT / PMTU⌉, at least 1; `None` when no hint limits.
    pub fn window_pkts(&self, now: Time, min_rtt_ps: u64, pmtu_bytes: u32) -> Option<u32> {
        let rate_mbps = self.rate_mbps(now)?;
        // Mb/s · ps = 10^-6 bits.
        let bits = u64::from(rate_mbps) * min_rtt_ps.min(REFILL_PS_MAX) / 1_000_000 * 3 / 2;
        Some((bits.div_ceil(u64::from(pmtu_bytes) * 8) as u32).max(1))
    }

    fn refill(&mut self, now: Time, burst_microbits: i64) {
        let span_ps = now.since_ps(self.refilled).min(REFILL_PS_MAX);
        self.refilled = self.refilled.max(now);
        let filled = (u64::from(self.rate_mbps) * span_ps) as i64;
        self.tokens_microbits = self.tokens_microbits.saturating_add(filled).min(burst_microbits);
    }

    /// When a packet may leave: now, or the moment the bucket holds a credit again.
    pub fn ready_at(&mut self, now: Time, burst_bytes: u32) -> Time {
        let Some(rate_mbps) = self.rate_mbps(now) else { return now };
        self.refill(now, i64::from(burst_bytes) * MICROBITS_PER_BYTE);
        if self.tokens_microbits >= 0 {
            return now;
        }
        let wait_ps = self.tokens_microbits.unsigned_abs().div_ceil(u64::from(rate_mbps));
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
    fn active_connections_share_the_line_and_a_single_one_is_not_limited() {
        let mut engine = HintEngine::new(400_000, 256, 20 * US);
        let ids: Vec<usize> = (0..4).map(|_| engine.add(1)).collect();
        assert!(engine.on_data(Time(US), ids[0], 4096));
        assert_eq!(engine.tell(0).1, RATE_HINT_UNLIMITED);
        for i in &ids[1..] {
            engine.on_data(Time(US), *i, 4096);
        }
        assert!(ids.iter().all(|i| engine.tell(*i).1 == 100_000));
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
                let mbps = engine.tell(i).1.min(400_000);
                engine.on_data(now, i, (u64::from(mbps) * 5 / 8) as u32);
            });
        }
        assert!((10_000..=14_000).contains(&engine.tell(0).1), "{}", engine.tell(0).1);
        assert!(engine.tell(1).1 > 125_000, "{}", engine.tell(1).1);
    }

    #[test]
    fn an_idle_connection_leaves_and_the_rest_grow() {
        let mut engine = HintEngine::new(100_000, 256, 20 * US);
        (0..2).for_each(|_| {
            engine.add(1);
        });
        engine.on_data(Time(US), 0, 1);
        engine.on_data(Time(US), 1, 1);
        assert_eq!((engine.tell(0).1, engine.active_count()), (50_000, 2));
        for t in 2..12 {
            engine.on_data(Time(t * 5 * US), 0, 60_000);
        }
        assert_eq!((engine.tell(0).1, engine.active_count()), (RATE_HINT_UNLIMITED, 1));
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
            now = pacer.ready_at(now, 8192);
            pacer.spend(now, 4210);
        }
        // 1000 packets of 4210 bytes at 100 Gb/s take 336.8 us, less the burst.
        assert!((330 * US..340 * US).contains(&now.0), "{}", now.0);
        assert_eq!(pacer.window_pkts(now, 10 * US, 4096), Some(46));
    }

    #[test]
    fn many_new_shares_between_two_acknowledgements_are_one_new_hint() {
        let mut engine = HintEngine::new(400_000, 256, 20 * US);
        (0..300).for_each(|_| _ = engine.add(1));
        let (first, _) = engine.tell(0);
        (0..300).for_each(|i| assert!(engine.on_data(Time(1), i, 1)));
        let (second, mbps) = engine.tell(0);
        assert_eq!((second, mbps), (first.next(), 1333));
        assert_eq!(engine.tell(0).0, second, "unchanged");
    }

    #[test]
    fn a_connection_that_ends_gives_its_share_back() {
        let mut engine = HintEngine::new(100_000, 256, 20 * US);
        let ids: Vec<usize> = (0..3).map(|_| engine.add(1)).collect();
        ids.iter().for_each(|i| _ = engine.on_data(Time(1), *i, 1));
        engine.remove(ids[1]);
        assert_eq!((engine.tell(ids[0]).1, engine.active_count()), (50_000, 2));
        assert_eq!((engine.add(1), engine.tell(ids[1]).1), (ids[1], RATE_HINT_UNLIMITED));
    }

    #[test]
    fn weights_divide_the_line() {
        let mut engine = HintEngine::new(100_000, 256, 20 * US);
        let (heavy, light) = (engine.add(3), engine.add(1));
        engine.on_data(Time(1), heavy, 1);
        engine.on_data(Time(1), light, 1);
        assert_eq!((engine.tell(heavy).1, engine.tell(light).1), (75_000, 25_000));
        engine.set_line_mbps(50_000);
        assert_eq!((engine.tell(heavy).1, engine.tell(light).1), (37_500, 12_500));
    }

    #[test]
    fn extreme_rates_and_spans_do_not_overflow() {
        let mut pacer = Pacer::default();
        pacer.on_hint(Time(0), HintSeq::new(1), RATE_HINT_UNLIMITED - 1, u64::MAX);
        assert_eq!(pacer.ready_at(Time(u64::MAX - 1), u32::MAX), Time(u64::MAX - 1));
        assert!(pacer.window_pkts(Time(1), u64::MAX, 1024).is_some_and(|w| w > 1_000_000));
        pacer.on_hint(Time(0), HintSeq::new(2), 1, u64::MAX);
        (0..1000).for_each(|_| pacer.spend(Time(5), u32::MAX));
        assert!(pacer.ready_at(Time(5), 1) > Time(5));
    }
}
