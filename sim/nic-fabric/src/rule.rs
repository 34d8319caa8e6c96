//! Rules on a link: loss, bursts, damage, copies, delays, "the third frame that matches".
//!
//! A rule looks at a frame after the queue has accepted it, so a lost frame has used its line time. The rules of a link
//! are asked in the order they were added; the first that does not let the frame pass decides. Every link has its own
//! counters and its own random stream for each rule, so what happens on one link does not depend on another.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

use crate::flow::Headers;
use crate::frame::Frame;
use crate::seed::threshold_of_ppm;
use crate::stats::DropCause;

/// What happens to a frame on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It is lost.
    Drop,
    /// This bit is flipped, counted as in [`Frame::flip_bit`], and no FCS notices.
    FlipBit(u64),
    /// A bit is flipped and the receiving port discards the frame for its FCS.
    FailFcs,
    /// It goes on, and a copy arrives so much later.
    Duplicate {
        /// Picoseconds after the original.
        delay_ps: u64,
    },
    /// It arrives so much later, while others pass it.
    Delay {
        /// Picoseconds on top of the link's own delay.
        delay_ps: u64,
    },
}

/// A condition on a frame; depends on the frame alone.
pub type Predicate = Arc<dyn Fn(&Frame) -> bool + Send + Sync>;

/// A verdict as a function of a frame and the time in picoseconds.
pub type Judge = Arc<dyn Fn(&Frame, u64) -> Verdict + Send + Sync>;

/// Frames a rule applies to: those that satisfy every condition set.
#[derive(Clone, Default)]
pub struct Matcher {
    /// Source IP address.
    pub src: Option<IpAddr>,
    /// Destination IP address.
    pub dst: Option<IpAddr>,
    /// UDP or TCP source port.
    pub src_port: Option<RangeInclusive<u16>>,
    /// UDP or TCP destination port.
    pub dst_port: Option<RangeInclusive<u16>>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// Length in bytes, without wire overhead.
    pub len_bytes: Option<RangeInclusive<usize>>,
    /// Anything else, by its bytes. Must depend on the frame alone.
    pub predicate: Option<Predicate>,
}

impl Matcher {
    /// Matches what the predicate accepts.
    pub fn by(predicate: impl Fn(&Frame) -> bool + Send + Sync + 'static) -> Matcher {
        Matcher { predicate: Some(Arc::new(predicate)), ..Matcher::default() }
    }

    /// Whether the frame satisfies every condition.
    pub fn matches(&self, frame: &Frame) -> bool {
        let looks_at_ip = self.src.is_some() || self.dst.is_some() || self.dscp.is_some();
        let looks_at_ports = self.src_port.is_some() || self.dst_port.is_some();
        if looks_at_ip || looks_at_ports {
            let Some(ip) = Headers::parse(frame).and_then(|headers| headers.ip) else { return false };
            let is_match = self.src.is_none_or(|src| src == ip.src)
                && self.dst.is_none_or(|dst| dst == ip.dst)
                && self.dscp.is_none_or(|dscp| dscp == ip.dscp)
                && self.src_port.as_ref().is_none_or(|range| range.contains(&ip.src_port))
                && self.dst_port.as_ref().is_none_or(|range| range.contains(&ip.dst_port));
            if !is_match {
                return false;
            }
        }
        self.len_bytes.as_ref().is_none_or(|range| range.contains(&frame.len_bytes()))
            && self.predicate.as_ref().is_none_or(|predicate| predicate(frame))
    }
}

/// What a rule does with the frames it applies to.
#[derive(Clone)]
pub enum Action {
    /// Loses each frame with this probability, parts per million.
    Loss {
        /// Probability of loss.
        ppm: u32,
    },
    /// Gilbert-Elliott: a link that is in a good or a bad state, drawn anew at each frame.
    Burst {
        /// Probability to turn bad, drawn at each frame in the good state.
        to_bad_ppm: u32,
        /// Probability to turn good, drawn at each frame in the bad state; its inverse is the mean burst in frames.
        to_good_ppm: u32,
        /// Loss in the good state.
        good_loss_ppm: u32,
        /// Loss in the bad state.
        bad_loss_ppm: u32,
    },
    /// Flips one random bit with this probability.
    Corrupt {
        /// Probability of damage.
        ppm: u32,
        /// Whether the FCS finds it (damage on a cable) or not (damage inside a switch, which only an ICRC finds).
        is_found_by_fcs: bool,
    },
    /// Delivers a copy with this probability.
    Duplicate {
        /// Probability of a copy.
        ppm: u32,
        /// Picoseconds from the original to the copy.
        delay_ps: u64,
    },
    /// Holds a frame back with this probability, for a time drawn evenly from the range, while others pass it.
    Delay {
        /// Probability of a delay.
        ppm: u32,
        /// Shortest extra delay, picoseconds.
        min_ps: u64,
        /// Longest extra delay, picoseconds.
        max_ps: u64,
    },
    /// Gives the `first`-th matching frame (from 1) and `count - 1` after it the verdict.
    Nth {
        /// Number of the first frame concerned, from 1.
        first: u64,
        /// How many frames.
        count: u64,
        /// What happens to them.
        verdict: Verdict,
    },
    /// Asks a function of the frame and the time in picoseconds. For results that do not depend on threads the function
    /// keeps no state, or is put on one link only.
    Custom(Judge),
}

/// A rule: which frames, when, what.
#[derive(Clone)]
pub struct Rule {
    /// Frames it applies to.
    pub matcher: Matcher,
    /// First picosecond of its life.
    pub from_ps: u64,
    /// First picosecond after its life.
    pub until_ps: u64,
    /// What it does.
    pub action: Action,
}

impl Rule {
    /// A rule for every frame at all times.
    pub fn new(action: Action) -> Rule {
        Rule { matcher: Matcher::default(), from_ps: 0, until_ps: u64::MAX, action }
    }

    /// Loses each frame with this probability, parts per million: 10,000 is 1 %.
    pub fn loss(ppm: u32) -> Rule {
        Rule::new(Action::Loss { ppm })
    }

    /// Loses the n-th frame, counted from 1.
    pub fn drop_nth(n: u64) -> Rule {
        Rule::nth(n, Verdict::Drop)
    }

    /// Gives the n-th frame, counted from 1, this verdict.
    pub fn nth(n: u64, verdict: Verdict) -> Rule {
        Rule::new(Action::Nth { first: n, count: 1, verdict })
    }

    /// Restricts it to frames that match.
    pub fn matching(mut self, matcher: Matcher) -> Rule {
        self.matcher = matcher;
        self
    }

    /// Restricts it to a time, picoseconds.
    pub fn during(mut self, from_ps: u64, until_ps: u64) -> Rule {
        (self.from_ps, self.until_ps) = (from_ps, until_ps);
        self
    }
}

/// A rule at work on one link.
pub(crate) struct RuleState {
    rule: Rule,
    rng: ChaCha8Rng,
    matched_count: u64,
    is_bad: bool,
}

impl RuleState {
    pub(crate) fn new(rule: Rule, rng: ChaCha8Rng) -> RuleState {
        RuleState { rule, rng, matched_count: 0, is_bad: false }
    }

    /// What happens to this frame, and the cause to count if it is lost.
    pub(crate) fn verdict(&mut self, frame: &Frame, now_ps: u64) -> (Verdict, DropCause) {
        let pass = (Verdict::Pass, DropCause::Custom);
        if now_ps < self.rule.from_ps || now_ps >= self.rule.until_ps || !self.rule.matcher.matches(frame) {
            return pass;
        }
        self.matched_count += 1;
        let rng = &mut self.rng;
        match self.rule.action {
            Action::Loss { ppm } if draw(rng, ppm) => (Verdict::Drop, DropCause::Loss),
            Action::Burst { to_bad_ppm, to_good_ppm, good_loss_ppm, bad_loss_ppm } => {
                let turn_ppm = if self.is_bad { to_good_ppm } else { to_bad_ppm };
                self.is_bad ^= draw(rng, turn_ppm);
                let loss_ppm = if self.is_bad { bad_loss_ppm } else { good_loss_ppm };
                if draw(rng, loss_ppm) {
                    (Verdict::Drop, DropCause::BurstLoss)
                } else {
                    pass
                }
            }
            Action::Corrupt { ppm, is_found_by_fcs } if draw(rng, ppm) => {
                let bit = rng.next_u64() % (frame.len_bytes() as u64 * 8).max(1);
                (if is_found_by_fcs { Verdict::FailFcs } else { Verdict::FlipBit(bit) }, DropCause::FcsError)
            }
            Action::Duplicate { ppm, delay_ps } if draw(rng, ppm) => {
                (Verdict::Duplicate { delay_ps }, DropCause::Custom)
            }
            Action::Delay { ppm, min_ps, max_ps } if draw(rng, ppm) => {
                let range_ps = max_ps.saturating_sub(min_ps).saturating_add(1);
                let delay_ps = min_ps.saturating_add(rng.next_u64() % range_ps);
                (Verdict::Delay { delay_ps }, DropCause::Custom)
            }
            Action::Nth { first, count, verdict } if self.matched_count >= first => {
                let is_hit = self.matched_count - first < count;
                (if is_hit { verdict } else { Verdict::Pass }, DropCause::Nth)
            }
            Action::Custom(ref function) => (function(frame, now_ps), DropCause::Custom),
            _ => pass,
        }
    }
}

fn draw(rng: &mut ChaCha8Rng, ppm: u32) -> bool {
    u64::from(rng.next_u32()) < threshold_of_ppm(ppm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::tests::udp4;
    use rand_core::SeedableRng;

    fn verdicts(rule: Rule, frames: usize) -> Vec<Verdict> {
        let mut state = RuleState::new(rule, ChaCha8Rng::seed_from_u64(7));
        let frame = Frame::new(&udp4(0xc000, 2));
        (0..frames).map(|_| state.verdict(&frame, 0).0).collect()
    }

    fn losses(rule: Rule, frames: usize) -> usize {
        verdicts(rule, frames).into_iter().filter(|verdict| *verdict == Verdict::Drop).count()
    }

    #[test]
    fn loss_meets_its_probability_and_both_ends_of_it() {
        assert_eq!(losses(Rule::loss(0), 10_000), 0);
        assert_eq!(losses(Rule::loss(1_000_000), 10_000), 10_000);
        // Four standard deviations of a binomial with n = 100,000 and p = 1 % are 126.
        assert!(losses(Rule::loss(10_000), 100_000).abs_diff(1_000) < 126);
    }

    #[test]
    fn burst_losses_come_in_runs_of_the_chosen_mean() {
        let action =
            Action::Burst { to_bad_ppm: 10_000, to_good_ppm: 250_000, good_loss_ppm: 0, bad_loss_ppm: 1_000_000 };
        let verdicts = verdicts(Rule::new(action), 100_000);
        let lost = verdicts.iter().filter(|verdict| **verdict == Verdict::Drop).count();
        let runs = verdicts.windows(2).filter(|pair| pair[0] == Verdict::Pass && pair[1] == Verdict::Drop).count();
        // In the long run 1/26 of the frames is lost, in bursts of 4.
        assert!(lost.abs_diff(3_846) < 400, "{lost} lost");
        assert!((lost * 10 / runs).abs_diff(40) < 4, "{lost} lost in {runs} runs");
    }

    #[test]
    fn nth_hits_exactly_the_frames_named() {
        let action = Action::Nth { first: 3, count: 2, verdict: Verdict::Drop };
        let hit: Vec<bool> = verdicts(Rule::new(action), 6).iter().map(|verdict| *verdict == Verdict::Drop).collect();
        assert_eq!(hit, [false, false, true, true, false, false]);
    }

    #[test]
    fn rule_counts_only_frames_that_match_during_its_life() {
        let matcher = Matcher { src_port: Some(5..=5), ..Matcher::default() };
        let rule = Rule::drop_nth(2).matching(matcher).during(10, 20);
        let mut state = RuleState::new(rule, ChaCha8Rng::seed_from_u64(0));
        let (other, matching) = (Frame::new(&udp4(4, 0)), Frame::new(&udp4(5, 0)));
        let cases = [(&matching, 9, false), (&matching, 10, false), (&other, 11, false), (&matching, 19, true)];
        for (frame, now_ps, is_dropped) in cases {
            assert_eq!(state.verdict(frame, now_ps).0 == Verdict::Drop, is_dropped, "at {now_ps} ps");
        }
    }

    #[test]
    fn matcher_requires_every_condition() {
        let frame = Frame::new(&udp4(5, 0x6a));
        let good = Matcher {
            src: Some([10, 0, 0, 1].into()),
            dst: Some([10, 0, 0, 2].into()),
            src_port: Some(1..=5),
            dst_port: Some(4791..=4791),
            dscp: Some(26),
            len_bytes: Some(42..=42),
            predicate: Some(Arc::new(|frame| frame.header()[0] == 2)),
        };
        assert!(good.matches(&frame));
        let bad = [
            Matcher { src: Some([10, 0, 0, 2].into()), ..good.clone() },
            Matcher { dst: Some([10, 0, 0, 1].into()), ..good.clone() },
            Matcher { src_port: Some(6..=9), ..good.clone() },
            Matcher { dst_port: Some(1..=2), ..good.clone() },
            Matcher { dscp: Some(0), ..good.clone() },
            Matcher { len_bytes: Some(0..=41), ..good.clone() },
            Matcher::by(|frame| frame.header()[0] == 3),
        ];
        assert!(bad.iter().all(|matcher| !matcher.matches(&frame)));
        assert!(!Matcher { dscp: Some(0), ..Matcher::default() }.matches(&Frame::new(&[0; 60])));
    }

    #[test]
    fn delay_is_drawn_from_its_range() {
        let delays: Vec<u64> = verdicts(Rule::new(Action::Delay { ppm: 1_000_000, min_ps: 5, max_ps: 8 }), 200)
            .into_iter()
            .map(|verdict| match verdict {
                Verdict::Delay { delay_ps } => delay_ps,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!((delays.iter().min(), delays.iter().max()), (Some(&5), Some(&8)));
    }
}
