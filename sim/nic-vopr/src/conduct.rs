//! What a sender may do at any moment, whatever becomes of its messages: looked at after every event.

use nic_model::transport::path::TxPath;
use nic_model::transport::path_set::PathSet;
use nic_spec::consts::SACK_BITS;
use nic_spec::num::Psn;

/// What holds for a connection by its configuration and by the state of its host's ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Packets that a path may span.
    pub cap_pkts: u32,
    /// Packets for each plane before anything is acknowledged.
    pub begin_pkts: u32,
    /// Bit p: port p has a link, and is one of the connection's planes.
    pub linked: u16,
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
}

impl Seen {
    fn of(path: &TxPath) -> Seen {
        let (next, reaims) = (path.window.nxt(), path.stats.reaim_count);
        Seen { next, sport: path.sport, plane: path.plane, epoch: path.epoch, reaims }
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

/// How a connection conducts itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conduct {
    paths: Vec<Seen>,
    /// A round trip was ever known.
    is_heard: bool,
}

impl Conduct {
    /// Of a connection that begins with these paths.
    pub fn of(paths: Option<&PathSet>) -> Conduct {
        let paths = paths.into_iter().flat_map(|paths| paths.iter()).map(Seen::of).collect();
        Conduct { paths, is_heard: false }
    }

    /// Looks at the paths after an event; what is wrong with them, if anything.
    pub fn check(&mut self, paths: &PathSet, limits: &Limits) -> Option<String> {
        let (mut wrong, mut has_sent) = (None, false);
        for (number, path) in paths.iter().enumerate() {
            let now = Seen::of(path);
            if number == self.paths.len() {
                self.paths.push(now);
            }
            self.is_heard |= path.rtt.srtt_ps().is_some();
            let before = std::mem::replace(&mut self.paths[number], now);
            if let Some(what) = before.route_to(&now) {
                wrong = Some(format!("path {number} {what}"));
            }
            let is_stranded = limits.linked != 0 && limits.linked >> now.plane & 1 == 0;
            if is_stranded {
                wrong =
                    Some(format!("path {number} is on plane {}, planes with a link: {:#b}", now.plane, limits.linked));
            }
            if before.next == now.next {
                continue;
            }
            has_sent = true;
            let (span, in_flight, cwnd) = (path.window.span_pkts(), path.window.in_flight_pkts(), path.cc.cwnd_pkts());
            if span > limits.cap_pkts.min(SACK_BITS) || in_flight > cwnd {
                wrong = Some(format!("path {number} has {in_flight} over {span} in flight, window {cwnd}"));
            }
        }
        let begin_pkts = (limits.begin_pkts * paths.plane_mask().count_ones()).max(1);
        if has_sent && !self.is_heard && paths.in_flight_pkts() > begin_pkts {
            wrong = Some(format!("{} in flight before anything is acknowledged", paths.in_flight_pkts()));
        }
        wrong
    }
}
