//! The paths of a connection, and the choice among them.
//!
//! A port that is free asks for a packet. The connection's planes take turns in proportion to their rates; within the
//! plane the open path with the smallest share of its window in use is taken, ties in rotation. What the choice needs of
//! a path is kept in a compact row beside it, so that choosing does not touch the paths themselves.

use super::path::{PathState, TxPath};
use crate::config::TransportConfig;
use crate::time::Time;
use alloc::vec::Vec;

/// Planes that a card can have.
pub const PLANES_MAX: usize = 16;
/// Load of a path that may not take a new packet.
const CLOSED: u16 = u16::MAX;
/// Added to the load of a path that should be passed over for a while.
const SKIPPED: u16 = 0x4000;
/// Turns that one plane may be ahead of another that could send too.
const TURNS_AHEAD: u64 = 2;
/// What a plane of weight 1 pays for a turn.
const TURN_COST: u64 = 1 << 32;

/// Summary of one path.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// In flight / window, 1/256, or [`CLOSED`].
    load: u16,
    plane: u8,
    in_flight: u16,
    cwnd: u16,
    /// The path stands in its plane's retransmit queue.
    rtx_queued: bool,
    /// Earliest entry in the timer heap.
    armed: Time,
}

/// What a port that asks is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Use this path.
    Path(usize),
    /// No path of the plane takes a new packet.
    Closed,
    /// Another plane is due.
    OtherPlane,
}

/// The paths.
#[derive(Clone, Debug)]
pub struct PathSet {
    paths: Vec<TxPath>,
    rows: Vec<Row>,
    in_flight_pkts: u32,
    cwnd_pkts: u32,
    open_paths: [u16; PLANES_MAX],
    /// What each plane has paid for its turns.
    paid: [u64; PLANES_MAX],
    turn_cost: [u64; PLANES_MAX],
    plane_mask: u16,
    next: usize,
}

impl PathSet {
    /// What a path takes here besides itself.
    #[cfg(test)]
    pub(crate) const ROW_BYTES: usize = size_of::<Row>();

    /// No path yet; `rates_mbps` are the rates of the planes.
    pub fn new(rates_mbps: impl Iterator<Item = u64>) -> Self {
        let mut turn_cost = [TURN_COST; PLANES_MAX];
        turn_cost.iter_mut().zip(rates_mbps).for_each(|(cost, rate)| *cost = TURN_COST / rate.max(1));
        Self {
            paths: Vec::new(),
            rows: Vec::new(),
            in_flight_pkts: 0,
            cwnd_pkts: 0,
            open_paths: [0; PLANES_MAX],
            paid: [0; PLANES_MAX],
            turn_cost,
            plane_mask: 0,
            next: 0,
        }
    }

    /// Adds a path and returns its index, which is its path_id.
    pub fn push(&mut self, path: TxPath, now: Time, cfg: &TransportConfig) -> usize {
        let row = Row { load: CLOSED, plane: path.plane, in_flight: 0, cwnd: 0, rtx_queued: false, armed: Time::NEVER };
        self.rows.push(row);
        self.paths.push(path);
        self.refresh(self.paths.len() - 1, now, cfg);
        self.paths.len() - 1
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Path `index`.
    pub fn get(&self, index: usize) -> Option<&TxPath> {
        self.paths.get(index)
    }

    /// Path `index`; [`refresh`](Self::refresh) must follow what changes its window, state or plane.
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut TxPath> {
        self.paths.get_mut(index)
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = &TxPath> {
        self.paths.iter()
    }

    /// Packets of all paths not yet acknowledged.
    pub const fn in_flight_pkts(&self) -> u32 {
        self.in_flight_pkts
    }

    /// Windows of the usable paths together, packets.
    pub const fn cwnd_pkts(&self) -> u32 {
        self.cwnd_pkts
    }

    /// Bit p: a path leaves by plane p.
    pub const fn plane_mask(&self) -> u16 {
        self.plane_mask
    }

    /// The timer entry of path `index`.
    pub(crate) fn armed_mut(&mut self, index: usize) -> &mut Time {
        &mut self.rows[index].armed
    }

    /// Sets the mark that path `index` stands in a retransmit queue and returns what it was.
    pub(crate) fn set_rtx_queued(&mut self, index: usize, queued: bool) -> bool {
        core::mem::replace(&mut self.rows[index].rtx_queued, queued)
    }

    /// Takes over what changed in path `index`.
    pub fn refresh(&mut self, index: usize, now: Time, cfg: &TransportConfig) {
        let (path, row) = (&self.paths[index], &mut self.rows[index]);
        let in_flight = path.window.in_flight_pkts();
        let usable = matches!(path.state, PathState::Bootstrap | PathState::Active | PathState::Skip);
        let cwnd = if usable { path.cc.cwnd_pkts() } else { 0 };
        let load = if path.is_open(cfg) {
            (in_flight * 256 / cwnd.max(1)) as u16 + if path.is_skipped(now) { SKIPPED } else { 0 }
        } else {
            CLOSED
        };
        self.in_flight_pkts = self.in_flight_pkts + in_flight - u32::from(row.in_flight);
        self.cwnd_pkts = self.cwnd_pkts + cwnd - u32::from(row.cwnd);
        (row.in_flight, row.cwnd) = (in_flight as u16, cwnd as u16);
        let (was_open, old_plane) = (row.load != CLOSED, row.plane);
        let new_plane = path.plane;
        (row.load, row.plane) = (load, new_plane);
        let is_open = load != CLOSED;
        if (was_open, old_plane) != (is_open, new_plane) {
            let plane = usize::from(new_plane & 15);
            self.open_paths[usize::from(old_plane & 15)] -= u16::from(was_open);
            if is_open && self.open_paths[plane] == 0 {
                self.rejoin(plane);
            }
            self.open_paths[plane] += u16::from(is_open);
        }
        if self.plane_mask >> new_plane & 1 == 0 || old_plane != new_plane {
            self.plane_mask = self.paths.iter().fold(0, |mask, p| mask | 1 << (p.plane & 15));
        }
    }

    /// A plane that could not send for a while does not catch up on its turns.
    fn rejoin(&mut self, plane: usize) {
        let due = (0..PLANES_MAX).filter(|p| self.open_paths[*p] > 0).map(|p| self.paid[p]).min();
        self.paid[plane] = self.paid[plane].max(due.unwrap_or(0));
    }

    /// Which path of `plane` takes the next new packet.
    pub fn choose(&self, plane: u8) -> Choice {
        let p = usize::from(plane & 15);
        if self.open_paths[p] == 0 {
            return Choice::Closed;
        }
        if self.plane_mask & (self.plane_mask - 1) != 0 {
            let ahead = |q: usize| self.paid[p].saturating_sub(self.paid[q]);
            if (0..PLANES_MAX).any(|q| {
                q != p && self.open_paths[q] > 0 && ahead(q) > TURNS_AHEAD * self.turn_cost[p].max(self.turn_cost[q])
            }) {
                return Choice::OtherPlane;
            }
        }
        let (mut best, mut best_load) = (0, CLOSED);
        let (late, early) = self.rows.split_at(self.next.min(self.rows.len()));
        for (i, row) in early.iter().enumerate() {
            if row.load < best_load && row.plane == plane {
                (best, best_load) = (i + self.next, row.load);
            }
        }
        for (i, row) in late.iter().enumerate() {
            if row.load < best_load && row.plane == plane {
                (best, best_load) = (i, row.load);
            }
        }
        if best_load == CLOSED {
            Choice::Closed
        } else {
            Choice::Path(best)
        }
    }

    /// A new packet leaves by path `index`: the rotation moves on and its plane pays for the turn.
    pub fn took_turn(&mut self, index: usize) {
        self.next = index + 1;
        let plane = usize::from(self.rows[index].plane & 15);
        self.paid[plane] += self.turn_cost[plane];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::window::Desc;
    use nic_spec::num::Psn;

    const CFG: fn() -> TransportConfig = TransportConfig::default;

    fn set(planes: &[u8], rates: &[u64]) -> PathSet {
        let mut s = PathSet::new(rates.iter().copied());
        for plane in planes {
            s.push(TxPath::open(*plane, 0xc000, 0, Psn::new(0)), Time(0), &CFG());
        }
        for i in 0..planes.len() {
            widen(&mut s, i, 8);
        }
        s
    }

    fn widen(s: &mut PathSet, index: usize, pkts: u32) {
        s.get_mut(index).expect("a path").cc.set_cwnd_q(pkts << 8, 256);
        s.refresh(index, Time(0), &CFG());
    }

    fn send(s: &mut PathSet, plane: u8) -> Choice {
        let choice = s.choose(plane);
        if let Choice::Path(i) = choice {
            s.get_mut(i).expect("a path").send_new(Time(0), Desc::default(), &CFG());
            s.refresh(i, Time(0), &CFG());
            s.took_turn(i);
        }
        choice
    }

    #[test]
    fn the_emptiest_path_is_taken_and_ties_rotate() {
        let mut s = set(&[0, 0, 0], &[100]);
        widen(&mut s, 1, 4);
        let order: Vec<_> = (0..8).map(|_| send(&mut s, 0)).collect();
        let count = |i| order.iter().filter(|c| **c == Choice::Path(i)).count();
        assert_eq!(order[..3], [Choice::Path(0), Choice::Path(1), Choice::Path(2)]);
        assert_eq!((count(0), count(1), count(2)), (3, 2, 3), "in proportion to the windows");
        (0..12).for_each(|_| _ = send(&mut s, 0));
        assert_eq!((send(&mut s, 0), s.in_flight_pkts(), s.cwnd_pkts()), (Choice::Closed, 20, 20));
    }

    #[test]
    fn planes_take_turns_in_proportion_to_their_rates() {
        let mut s = set(&[0, 1], &[100, 400]);
        (0..2).for_each(|i| widen(&mut s, i, 256));
        let mut sent = [0; 2];
        for _ in 0..200 {
            for plane in 0..2 {
                sent[usize::from(plane)] += u32::from(matches!(send(&mut s, plane), Choice::Path(_)));
            }
        }
        assert!((50..=56).contains(&sent[0]) && sent[1] == 200, "{sent:?}");
    }

    #[test]
    fn a_plane_that_was_closed_does_not_catch_up() {
        let mut s = set(&[0, 1], &[100, 100]);
        widen(&mut s, 0, 256);
        s.get_mut(1).expect("a path").state = PathState::Suspect;
        s.refresh(1, Time(0), &CFG());
        (0..100).for_each(|_| assert!(matches!(send(&mut s, 0), Choice::Path(0))));
        s.get_mut(1).expect("a path").state = PathState::Active;
        widen(&mut s, 1, 256);
        assert!(matches!(send(&mut s, 0), Choice::Path(0)), "plane 0 goes on at once");
        assert_eq!(s.plane_mask(), 3);
    }
}
