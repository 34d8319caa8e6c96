//! What a sender may do at any moment, whatever becomes of its messages: looked at after every event.
//!
//! The paths of a connection are compared with what they were after the event before, and with what the acknowledgements
//! that arrived for it said. Where those leave room for doubt (how many arrived at once, which of two round trips is the
//! smallest) the sender has the benefit of it.

use nic_model::transport::path::TxPath;
use nic_model::transport::path_set::PathSet;
use nic_model::transport::window::Mark;
use nic_model::wire::packet::Ack;
use nic_spec::consts::{HINT_BURST_PKTS, HINT_WINDOW_RTT_PERCENT, RATE_HINT_UNLIMITED, SACK_BITS};
use nic_spec::num::{HintSeq, Psn};

/// Bytes of a packet beyond its payload, at least: what every data packet has on the line.
const OVERHEAD_BYTES: u64 = 100;
/// How far a connection may go beyond the window that a hint allows: its smallest round trip is not known exactly here.
const WINDOW_DOUBT: u64 = 2;

/// What holds for a connection by its configuration and by the state of its host's ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Packets that a path may span.
    pub cap_pkts: u32,
    /// Packets for each plane before anything is acknowledged.
    pub begin_pkts: u32,
    /// Payload of a packet, bytes.
    pub pmtu_bytes: u64,
    /// How long the receiver holds an acknowledgement back.
    pub ack_delay_ps: u64,
    /// Smallest round trip of the connection lately. It has more samples than a path, and forgets sooner.
    pub min_rtt_ps: u64,
    /// Bit p: port p has a link, and is one of the connection's planes.
    pub linked: u16,
    /// Bit i: path i is switched off.
    pub denied: u16,
}

/// A path as it was after the last event.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// What the next new packet would be called.
    next: Psn,
    sport: u16,
    plane: u8,
    epoch: u8,
    reaims: u32,
    /// An acknowledgement of the present epoch arrived.
    is_acked: bool,
    /// One arrived just now.
    is_news: bool,
    /// When it took another route, until what that left behind was sent again.
    reaimed_at_ps: Option<u64>,
}

impl Seen {
    fn of(path: &TxPath) -> Seen {
        Seen {
            next: path.window.nxt(),
            sport: path.sport,
            plane: path.plane,
            epoch: path.epoch,
            reaims: path.stats.reaim_count,
            is_acked: path.rtt.srtt_ps().is_some(),
            is_news: false,
            reaimed_at_ps: None,
        }
    }

    /// True when a path that was like this may have taken another route between two bursts: all that it had sent is
    /// acknowledged (`una` comes next), and the first packet by the new route has left.
    fn left_crowded_route(&self, now: &Seen, una: Psn) -> bool {
        let is_drained = una.distance_from(self.next) <= now.next.distance_from(self.next);
        now.reaims == self.reaims.wrapping_add(1) && now.plane == self.plane && now.next != self.next && is_drained
    }

    /// What is wrong with the route of a path that was like this and is now like that, if anything.
    fn route_to(&self, now: &Seen) -> Option<String> {
        let turns = now.reaims.wrapping_sub(self.reaims);
        let epoch_turns = u32::from(now.epoch.wrapping_sub(self.epoch) & 15);
        if epoch_turns != turns & 15 {
            return Some(format!("went from epoch {} to {} in {turns} re-aims", self.epoch, now.epoch));
        }
        let is_moved = (self.sport, self.plane) != (now.sport, now.plane);
        // Two in one event may lead back.
        (is_moved && turns == 0 || !is_moved && turns == 1).then(|| {
            let (from, to) = ((self.plane, self.sport), (now.plane, now.sport));
            format!("went from plane and port {from:?} to {to:?} in {turns} re-aims")
        })
    }
}

/// The newest hint that arrived, and what may still leave under it at once.
#[derive(Clone, Copy, Debug)]
struct Hint {
    seq: HintSeq,
    mbps: u64,
    at_ps: u64,
    filled_at_ps: u64,
    /// In Mb/s · ps.
    tokens: i128,
}

/// How a connection conducts itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conduct {
    paths: Vec<Seen>,
    hint: Option<Hint>,
    /// A round trip was ever known.
    is_heard: bool,
}

impl Conduct {
    /// Of a connection that begins with these paths.
    pub fn of(paths: Option<&PathSet>) -> Conduct {
        let paths = paths.into_iter().flat_map(|paths| paths.iter()).map(Seen::of).collect();
        Conduct { paths, ..Conduct::default() }
    }

    /// An acknowledgement arrives for the connection, whose paths are still as they were.
    pub fn hears(&mut self, now_ps: u64, ack: &Ack, paths: &PathSet) {
        let number = usize::from(ack.apath);
        let (Some(path), Some(seen)) = (paths.get(number), self.paths.get_mut(number)) else { return };
        let (base, una) = (ack.cum + 1, path.window.una());
        // Older ones by less than a window still say something.
        if base.distance_from(una) > path.window.span_pkts() && una.distance_from(base) >= SACK_BITS {
            return;
        }
        if ack.epoch == path.epoch {
            (seen.is_acked, seen.is_news) = (true, true);
        }
        let Some((seq, mbps)) = ack.hint.filter(|(_, mbps)| *mbps != 0) else { return };
        match &mut self.hint {
            Some(hint) if hint.seq != seq && !hint.seq.is_before(seq) => {}
            Some(hint) => {
                // Up to now the former rate held.
                let filled = i128::from(hint.mbps) * i128::from(now_ps - hint.filled_at_ps);
                (hint.tokens, hint.filled_at_ps) = (hint.tokens.saturating_add(filled), now_ps);
                (hint.seq, hint.mbps, hint.at_ps) = (seq, mbps.into(), now_ps);
            }
            None => {
                self.hint =
                    Some(Hint { seq, mbps: mbps.into(), at_ps: now_ps, filled_at_ps: now_ps, tokens: i128::MAX })
            }
        }
    }

    /// Looks at the paths after an event; what is wrong with them, if anything.
    pub fn check(&mut self, now_ps: u64, paths: &PathSet, limits: &Limits) -> Option<String> {
        let (mut wrong, mut sent_bytes) = (None, 0);
        for (number, path) in paths.iter().enumerate() {
            let mut now = Seen::of(path);
            if number == self.paths.len() {
                self.paths.push(now);
            }
            self.is_heard |= now.is_acked;
            let before = self.paths[number];
            (now.is_acked, now.reaimed_at_ps) = (before.is_acked, before.reaimed_at_ps);
            if before.left_crowded_route(&now, path.window.una()) {
                // The window and the round trip are those of the route before (P-025).
            } else if before.reaims != now.reaims {
                (now.is_acked, now.reaimed_at_ps) = (false, Some(now_ps));
            }
            let mut is_wrong = |what: String| wrong = Some(format!("path {number} {what}"));
            if let Some(what) = before.route_to(&now) {
                is_wrong(what);
            }
            if limits.linked != 0 && limits.linked >> now.plane & 1 == 0 {
                is_wrong(format!("is on plane {}, planes with a link: {:#b}", now.plane, limits.linked));
            }
            if path.rtt.srtt_ps().is_some() && !now.is_acked {
                is_wrong(format!("knows the round trip of epoch {} without an answer", now.epoch));
            }
            if before.is_news {
                if let Some(left) = left_behind(now_ps, path, &mut now.reaimed_at_ps) {
                    is_wrong(format!("has not sent {left} again, which its last route took"));
                }
            }
            if before.next != now.next {
                let (span, in_flight) = (path.window.span_pkts(), path.window.in_flight_pkts());
                let cwnd = path.cc.cwnd_pkts();
                if span > limits.cap_pkts.min(SACK_BITS) || in_flight > cwnd {
                    is_wrong(format!("has {in_flight} over {span} in flight, window {cwnd}"));
                }
                if number < 16 && limits.denied >> number & 1 == 1 {
                    is_wrong("is switched off and carries something new".into());
                }
                let new = (0..now.next.distance_from(before.next)).filter_map(|i| path.window.entry(before.next + i));
                sent_bytes += new.map(|entry| u64::from(entry.desc.len) + OVERHEAD_BYTES).sum::<u64>();
            }
            self.paths[number] = now;
        }
        if sent_bytes > 0 {
            wrong = self.check_begin(paths, limits).or(wrong);
        }
        self.check_hint(now_ps, paths, limits, sent_bytes).or(wrong)
    }

    fn check_begin(&self, paths: &PathSet, limits: &Limits) -> Option<String> {
        let begin_pkts = (limits.begin_pkts * paths.plane_mask().count_ones()).max(1);
        let in_flight = paths.in_flight_pkts();
        (!self.is_heard && in_flight > begin_pkts)
            .then(|| format!("has {in_flight} in flight before anything is acknowledged"))
    }

    /// Window and pace of the newest hint, while it is so new that it holds in any case.
    fn check_hint(&mut self, now_ps: u64, paths: &PathSet, limits: &Limits, sent_bytes: u64) -> Option<String> {
        let hint = self.hint.as_mut()?;
        let planes = u64::from(paths.plane_mask().count_ones());
        let burst = i128::from(planes * u64::from(HINT_BURST_PKTS) * (limits.pmtu_bytes + 114)) * 8_000_000;
        let (shortest_ps, longest_ps) = paths
            .iter()
            .filter_map(|path| path.rtt.min_ps())
            .fold((u64::MAX, 0), |(short, long), ps| (short.min(ps), long.max(ps)));
        let is_limit = hint.mbps != u64::from(RATE_HINT_UNLIMITED);
        if !is_limit || longest_ps == 0 || now_ps - hint.at_ps > shortest_ps {
            (hint.tokens, hint.filled_at_ps) = (burst, now_ps);
            return None;
        }
        let filled = i128::from(hint.mbps) * i128::from(now_ps - hint.filled_at_ps);
        hint.tokens = hint.tokens.saturating_add(filled).min(burst) - i128::from(sent_bytes) * 8_000_000;
        hint.filled_at_ps = now_ps;
        if sent_bytes == 0 {
            return None;
        }
        // The last packet may overdraw the bucket, on each plane.
        if hint.tokens < -burst {
            return Some(format!("left the pace of {} Mb/s", hint.mbps));
        }
        let span_ps =
            longest_ps.max(limits.min_rtt_ps) * u64::from(HINT_WINDOW_RTT_PERCENT) / 100 + limits.ack_delay_ps;
        let bits = u128::from(hint.mbps) * u128::from(span_ps) / 1_000_000;
        let per_plane = (bits as u64).div_ceil(limits.pmtu_bytes * 8 * planes.max(1)) + 1;
        let (most, in_flight) = (WINDOW_DOUBT * per_plane * planes, u64::from(paths.in_flight_pkts()));
        (in_flight > most).then(|| format!("has {in_flight} in flight under a hint of {} Mb/s", hint.mbps))
    }
}

/// The first packet that a path sent by another route and has not sent again, though an acknowledgement of the present
/// one arrived more than a round trip after the re-aim.
fn left_behind(now_ps: u64, path: &TxPath, reaimed_at_ps: &mut Option<u64>) -> Option<Psn> {
    let (from_ps, srtt_ps) = ((*reaimed_at_ps)?, path.rtt.srtt_ps()?);
    if now_ps - from_ps <= srtt_ps {
        return None;
    }
    *reaimed_at_ps = None;
    let is_left = |psn: &Psn| {
        let entry = path.window.entry(*psn);
        entry.is_some_and(|e| e.epoch != path.epoch && !e.marks.has(Mark::Queued) && !e.marks.has(Mark::Parked))
    };
    path.window.outstanding().find(is_left)
}
