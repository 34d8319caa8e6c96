//! Rate hints, receiver: the share-out of a card's inbound bandwidth.
//!
//! Each connection that is sending is offered η·C·w/Σw. One that uses little of its offer for some windows has its
//! claim capped at a little more than it uses and the rest is shared out again (max–min). A single sender is not limited.
//!
//! A sender says itself when it has no more (EOB); else it is idle after a window, or after some packets' time at its
//! own rate if that is longer, since a slow sender is not an idle one. Use is measured over the time of some packets at an
//! even share: over less, a sender that was offered the line for a moment would look idle, and one whose claim is small
//! would wait long for the next look. η follows the queue: while ports are not full and
//! packets come unmarked it rises, because some offers are not used; where marks come it falls below 1, so that the
//! queue drains.

use crate::time::{Ticks, Time};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nic_spec::consts::{self, RATE_HINT_UNLIMITED};
use nic_spec::num::HintSeq;

/// A claim is measured over the time of this many packets at least.
const MEASURE_PKTS: u64 = consts::HINT_MEASURE_PKTS as u64;
/// A claim without data for the time of this many packets is idle.
const IDLE_PKTS: u64 = consts::HINT_IDLE_PKTS as u64;
/// η is not raised when more than this part of the line, 1/256, is used.
const BUSY_Q8: u64 = consts::HINT_BUSY_Q8 as u64;

/// How a card shares out its bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintRules {
    /// η at first, 1/256.
    pub eta_q8: u32,
    /// Smallest η, 1/256.
    pub eta_min_q8: u32,
    /// Largest η, 1/256.
    pub eta_max_q8: u32,
    /// Use is measured over this long, and a sender without data for it is idle.
    pub window_ps: u64,
}

/// A packet as the engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inbound {
    /// Bytes on the line.
    pub wire_bytes: u32,
    /// It was marked CE.
    pub is_marked: bool,
    /// The sender has nothing more.
    pub is_end: bool,
    /// The sender's clock when it sent it.
    pub sent: Ticks,
}

/// One connection as the receiver sees it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Claim {
    weight: u32,
    /// Row of the connection.
    conn: u32,
    last_data: Time,
    /// When measuring of its use began.
    since: Time,
    /// Bytes since then.
    bytes: u64,
    /// Its largest packet, bytes on the line.
    packet_bytes: u32,
    /// Cap on its claim, Mb/s; `u64::MAX` when it uses what it is offered.
    cap_mbps: u64,
    low_windows: u8,
    is_active: bool,
    /// Its cap was granted in the share-out under way.
    is_settled: bool,
    /// It waits in the queue of those to be told.
    is_news: bool,
    hint_mbps: u32,
    told_mbps: u32,
    seq: HintSeq,
    /// Clock of the packet with which it ended; what was sent before does not begin anything.
    ended: Option<Ticks>,
}

impl Claim {
    /// Time of `count` of its packets at a rate, ps.
    fn packets_ps(&self, count: u64, mbps: u64) -> u64 {
        u64::from(self.packet_bytes) * 8_000_000 * count / mbps.max(1)
    }
}

/// The receiver's engine of one card.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct HintEngine {
    window_start: Time,
    claims: Vec<Claim>,
    window_bytes: u64,
    window_pkts: u32,
    window_marks: u32,
    /// Length of a window, ps.
    window_ps: u64,
    /// Connections may wait in `news`.
    has_news: bool,
    eta_q8: u32,
    line_mbps: u64,
    rules: HintRules,
    /// Indices of the connections that send.
    active: Vec<u32>,
    weight_sum: u64,
    /// Indices that may be given again.
    free: Vec<u32>,
    /// Rows of connections whose share fell to less than half of what they were told.
    news: VecDeque<u32>,
}

impl HintEngine {
    /// An engine for ports of `line_mbps` together.
    pub fn new(line_mbps: u64, rules: HintRules) -> Self {
        Self {
            line_mbps,
            rules: HintRules { window_ps: rules.window_ps.max(1), ..rules },
            window_ps: rules.window_ps.max(1),
            has_news: false,
            eta_q8: rules.eta_q8,
            window_start: Time::ZERO,
            window_bytes: 0,
            window_pkts: 0,
            window_marks: 0,
            claims: Vec::new(),
            active: Vec::new(),
            weight_sum: 0,
            free: Vec::new(),
            news: VecDeque::new(),
        }
    }

    /// Adds the connection of row `conn` with a weight (1 by default) and returns its index.
    pub fn add(&mut self, weight: u32, conn: u32) -> usize {
        let claim = Claim {
            weight: weight.max(1),
            conn,
            last_data: Time::ZERO,
            since: Time::ZERO,
            bytes: 0,
            packet_bytes: 0,
            cap_mbps: u64::MAX,
            low_windows: 0,
            is_active: false,
            is_settled: false,
            is_news: false,
            hint_mbps: RATE_HINT_UNLIMITED,
            told_mbps: RATE_HINT_UNLIMITED,
            seq: HintSeq::new(0),
            ended: None,
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
        if index < self.claims.len() {
            self.leave(index);
            self.free.push(index as u32);
        }
    }

    fn leave(&mut self, index: usize) {
        let claim = &mut self.claims[index];
        if core::mem::take(&mut claim.is_active) {
            self.weight_sum -= u64::from(claim.weight);
            self.active.retain(|i| *i as usize != index);
            self.share_out();
        }
    }

    /// Sets the rate of the ports that are up.
    pub fn set_line_mbps(&mut self, line_mbps: u64) {
        self.line_mbps = line_mbps;
        self.share_out();
    }

    /// Connections that send.
    pub fn active_count(&self) -> u32 {
        self.active.len() as u32
    }

    /// The part of the line that is offered now, 1/256.
    pub const fn eta_q8(&self) -> u32 {
        self.eta_q8
    }

    /// Data of connection `index` arrived. True when it was idle before, so that its acknowledgement should leave at
    /// once.
    #[inline]
    pub fn on_data(&mut self, now: Time, index: usize, packet: &Inbound) -> bool {
        let Some(claim) = self.claims.get_mut(index) else { return false };
        let is_midst = claim.is_active && claim.ended.is_none() && !packet.is_end;
        if !is_midst || now.since_ps(self.window_start) >= self.window_ps {
            return self.on_turn(now, index, packet);
        }
        self.window_bytes += u64::from(packet.wire_bytes);
        self.window_pkts += 1;
        self.window_marks += u32::from(packet.is_marked);
        claim.bytes += u64::from(packet.wire_bytes);
        claim.packet_bytes = claim.packet_bytes.max(packet.wire_bytes);
        claim.last_data = now;
        false
    }

    /// As [`on_data`](Self::on_data) for a packet that may begin or end something.
    #[inline(never)]
    fn on_turn(&mut self, now: Time, index: usize, packet: &Inbound) -> bool {
        let claim = &mut self.claims[index];
        self.window_bytes += u64::from(packet.wire_bytes);
        self.window_pkts += 1;
        self.window_marks += u32::from(packet.is_marked);
        claim.bytes += u64::from(packet.wire_bytes);
        claim.packet_bytes = claim.packet_bytes.max(packet.wire_bytes);
        // Paths overtake each other: what left before the end does not begin a burst.
        let is_over = now.since_ps(claim.last_data) <= self.rules.window_ps
            && claim.ended.is_some_and(|end| !packet.sent.is_after_by(end, 0));
        claim.last_data = now;
        let is_new = !claim.is_active && !is_over && !packet.is_end;
        if packet.is_end && !is_over {
            claim.ended = Some(packet.sent);
        }
        if is_new {
            (claim.is_active, claim.cap_mbps, claim.low_windows) = (true, u64::MAX, 0);
            (claim.since, claim.bytes, claim.ended) = (now, 0, None);
            self.weight_sum += u64::from(claim.weight);
            self.active.push(index as u32);
        }
        if packet.is_end && !is_over {
            self.leave(index);
        }
        if now.since_ps(self.window_start) >= self.rules.window_ps {
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
        self.follow_queue(span_ps);
        let (claims, rules, weight_sum) = (&mut self.claims, &self.rules, &mut self.weight_sum);
        let (line_mbps, weights) = (self.line_mbps, (*weight_sum).max(1));
        self.active.retain(|i| {
            let claim = &mut claims[*i as usize];
            // What it is offered may for a moment be far more than it can use.
            let fair_mbps = line_mbps * u64::from(claim.weight) / weights;
            let slow_mbps = fair_mbps.min(claim.hint_mbps.into());
            if now.since_ps(claim.last_data) > rules.window_ps.max(claim.packets_ps(IDLE_PKTS, slow_mbps)) {
                claim.is_active = false;
                *weight_sum -= u64::from(claim.weight);
                return false;
            }
            let span_ps = now.since_ps(claim.since);
            if span_ps < rules.window_ps.max(claim.packets_ps(MEASURE_PKTS, fair_mbps)) {
                return true;
            }
            claim.since = now;
            let bytes = core::mem::take(&mut claim.bytes);
            // bytes · 8 / ps = Tb/s; · 10^6 = Mb/s.
            let used_mbps = (u128::from(bytes) * 8_000_000 / u128::from(span_ps)) as u64;
            // A capped claim is released only when it fills 19/20 of its cap, else cap and use would chase each other.
            let is_capped = claim.cap_mbps != u64::MAX;
            let enough_percent = if is_capped { consts::HINT_FULL_PERCENT } else { consts::HINT_LOW_PERCENT };
            if claim.hint_mbps != RATE_HINT_UNLIMITED
                && used_mbps * 100 < u64::from(claim.hint_mbps) * u64::from(enough_percent)
            {
                claim.low_windows = claim.low_windows.saturating_add(1);
                if u32::from(claim.low_windows) >= consts::HINT_LOW_WINDOWS {
                    claim.cap_mbps = (used_mbps * u64::from(consts::HINT_SPARE_PERCENT) / 100).max(1);
                }
            } else {
                (claim.low_windows, claim.cap_mbps) = (0, u64::MAX);
            }
            true
        });
        self.share_out();
    }

    /// Moves η by what the last window showed.
    fn follow_queue(&mut self, span_ps: u64) {
        let (bytes, pkts) = (core::mem::take(&mut self.window_bytes), core::mem::take(&mut self.window_pkts));
        let marks = core::mem::take(&mut self.window_marks);
        let rules = &self.rules;
        if span_ps > 2 * rules.window_ps || self.active.len() < 2 {
            self.eta_q8 = rules.eta_q8;
            return;
        }
        // bytes · 8 / ps = Tb/s; · 10^6 = Mb/s.
        let used_q8 = u128::from(bytes) * 8_000_000 * 256 / u128::from(span_ps) / u128::from(self.line_mbps.max(1));
        // Marks while the ports are not full come from elsewhere in the network.
        self.eta_q8 = if used_q8 < u128::from(BUSY_Q8) {
            (self.eta_q8 + self.eta_q8 / consts::HINT_ETA_RISE).min(rules.eta_max_q8)
        } else if marks * consts::HINT_MARKED_PKTS > pkts {
            // Half of what is above 1 goes at once.
            let above = self.eta_q8.saturating_sub(256);
            (self.eta_q8 - above.div_ceil(2)).saturating_sub(consts::HINT_ETA_FALL_Q8).max(rules.eta_min_q8)
        } else {
            (self.eta_q8 + 1).min(rules.eta_max_q8.min(256).max(self.eta_q8))
        };
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
            if u64::from(claim.hint_mbps) * 2 < u64::from(claim.told_mbps) && !claim.is_news {
                claim.is_news = true;
                self.news.push_back(*i);
                self.has_news = true;
            }
        }
    }

    /// True when [`next_news`](Self::next_news) may have one.
    #[inline]
    pub const fn has_news(&self) -> bool {
        self.has_news
    }

    /// Row of a connection that must be told soon because its share halved, by an acknowledgement made for that.
    pub fn next_news(&mut self) -> Option<u32> {
        while let Some(index) = self.news.pop_front() {
            let claim = &mut self.claims[index as usize];
            if core::mem::take(&mut claim.is_news) && claim.is_active {
                return Some(claim.conn);
            }
        }
        self.has_news = false;
        None
    }

    /// The hint that an acknowledgement to connection `index` carries now, and its number. The number counts hints that
    /// were told, not shares that were made, so that 8 bits suffice however often shares change. A connection that does
    /// not send is told what it would have if it did.
    pub fn tell(&mut self, index: usize) -> (HintSeq, u32) {
        let (line_mbps, others) = (self.line_mbps * u64::from(self.eta_q8) / 256, self.weight_sum);
        let Some(claim) = self.claims.get_mut(index) else { return (HintSeq::new(0), 0) };
        let mbps = if claim.is_active {
            claim.hint_mbps
        } else if others == 0 {
            RATE_HINT_UNLIMITED
        } else {
            let weight = u64::from(claim.weight);
            (line_mbps * weight / (weight + others)).clamp(1, u64::from(RATE_HINT_UNLIMITED) - 1) as u32
        };
        claim.is_news = false;
        if claim.told_mbps != mbps {
            claim.told_mbps = mbps;
            claim.seq = claim.seq.next();
        }
        (claim.seq, mbps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = crate::time::US_PS;

    fn engine(line_mbps: u64) -> HintEngine {
        HintEngine::new(line_mbps, HintRules { eta_q8: 256, eta_min_q8: 256, eta_max_q8: 256, window_ps: 20 * US })
    }

    fn packet(wire_bytes: u32) -> Inbound {
        Inbound { wire_bytes, is_marked: false, is_end: false, sent: Ticks(0) }
    }

    #[test]
    fn active_connections_share_the_line_and_a_single_one_is_not_limited() {
        let mut engine = engine(400_000);
        let ids: Vec<usize> = (0..4).map(|_| engine.add(1, 0)).collect();
        assert!(engine.on_data(Time(US), ids[0], &packet(4096)));
        assert_eq!(engine.tell(0).1, RATE_HINT_UNLIMITED);
        for i in &ids[1..] {
            engine.on_data(Time(US), *i, &packet(4096));
        }
        assert!(ids.iter().all(|i| engine.tell(*i).1 == 100_000));
    }

    #[test]
    fn a_share_that_is_not_used_goes_to_the_others() {
        let mut engine = engine(400_000);
        (0..4).for_each(|_| {
            engine.add(1, 0);
        });
        // Connection 0 sends 10 Gb/s, the others what they are offered.
        for step in 0..40u64 {
            let now = Time(US + step * 5 * US);
            engine.on_data(now, 0, &packet(6_250));
            (1..4).for_each(|i| {
                let mbps = engine.tell(i).1.min(400_000);
                engine.on_data(now, i, &packet((u64::from(mbps) * 5 / 8) as u32));
            });
        }
        assert!((10_000..=14_000).contains(&engine.tell(0).1), "{}", engine.tell(0).1);
        assert!(engine.tell(1).1 > 125_000, "{}", engine.tell(1).1);
    }

    #[test]
    fn a_claim_that_was_capped_low_is_looked_at_again_after_sixteen_packets_at_an_even_share() {
        let mut engine = engine(100_000);
        (0..8).for_each(|_| _ = engine.add(1, 0));
        // 1000 bytes each 4 us are 2 Gb/s; an even share is 12.5 Gb/s, of which 16 packets take 10.24 us.
        let mut now = Time(US);
        let mut run = |engine: &mut HintEngine, us: u64, first_bytes: u32| {
            for _ in 0..us / 4 {
                now = now.after_ps(4 * US);
                engine.on_data(now, 0, &packet(first_bytes));
                (1..8).for_each(|i| _ = engine.on_data(now, i, &packet(6_250)));
            }
            engine.tell(0).1
        };
        let capped = run(&mut engine, 100, 1_000);
        assert!((2_000..=2_600).contains(&capped), "{capped}");
        let freed = run(&mut engine, 44, 1_250);
        assert_eq!(freed, 12_500, "two windows later, and not after 16 packets at 2.5 Gb/s");
    }

    #[test]
    fn an_idle_connection_leaves_and_the_rest_grow() {
        let mut engine = engine(100_000);
        (0..2).for_each(|_| {
            engine.add(1, 0);
        });
        engine.on_data(Time(US), 0, &packet(1));
        engine.on_data(Time(US), 1, &packet(1));
        assert_eq!((engine.tell(0).1, engine.active_count()), (50_000, 2));
        for t in 2..12 {
            engine.on_data(Time(t * 5 * US), 0, &packet(60_000));
        }
        assert_eq!((engine.tell(0).1, engine.active_count()), (RATE_HINT_UNLIMITED, 1));
    }

    #[test]
    fn many_new_shares_between_two_acknowledgements_are_one_new_hint() {
        let mut engine = engine(400_000);
        (0..300).for_each(|_| _ = engine.add(1, 0));
        let (first, _) = engine.tell(0);
        (0..300).for_each(|i| assert!(engine.on_data(Time(1), i, &packet(1))));
        let (second, mbps) = engine.tell(0);
        assert_eq!((second, mbps), (first.next(), 1333));
        assert_eq!(engine.tell(0).0, second, "unchanged");
    }

    #[test]
    fn a_connection_that_ends_gives_its_share_back() {
        let mut engine = engine(100_000);
        let ids: Vec<usize> = (0..3).map(|_| engine.add(1, 0)).collect();
        ids.iter().for_each(|i| _ = engine.on_data(Time(1), *i, &packet(1)));
        engine.remove(ids[1]);
        assert_eq!((engine.tell(ids[0]).1, engine.active_count()), (50_000, 2));
        assert_eq!((engine.add(1, 0), engine.tell(ids[1]).1), (ids[1], 33_333), "what it would have");
    }

    #[test]
    fn eta_falls_to_the_smallest_that_can_be_set_and_no_further() {
        for eta_min_q8 in [1, 3, 4, 200] {
            let rules = HintRules { eta_q8: 249, eta_min_q8, eta_max_q8: 512, window_ps: 20 * US };
            let mut engine = HintEngine::new(100_000, rules);
            (0..2).for_each(|_| _ = engine.add(1, 0));
            // 2.5 kB each 200 ns from both are twice the line.
            for step in 0..20_000 {
                for index in 0..2 {
                    engine.on_data(Time(step * US / 5), index, &Inbound { is_marked: true, ..packet(2_500) });
                }
            }
            assert_eq!(engine.eta_q8(), eta_min_q8);
        }
    }

    #[test]
    fn weights_divide_the_line() {
        let mut engine = engine(100_000);
        let (heavy, light) = (engine.add(3, 0), engine.add(1, 0));
        engine.on_data(Time(1), heavy, &packet(1));
        engine.on_data(Time(1), light, &packet(1));
        assert_eq!((engine.tell(heavy).1, engine.tell(light).1), (75_000, 25_000));
        engine.set_line_mbps(50_000);
        assert_eq!((engine.tell(heavy).1, engine.tell(light).1), (37_500, 12_500));
    }
}
