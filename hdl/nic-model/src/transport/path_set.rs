//! The paths of a connection, and the choice among them.
//!
//! A port that is free asks for a packet. The connection's planes take turns in proportion to their rates; within the
//! plane the open path with the smallest share of its window in use is taken, ties in rotation. What the choice needs of
//! the paths stands in two short arrays of its own, so that choosing does not touch the paths themselves.

use super::path::TxPath;
use crate::config::TransportConfig;
use crate::footprint::of_vec;
use crate::foresee::Fetch;
use crate::time::Time;
use alloc::vec::Vec;

/// Planes that a card can have.
pub const PLANES_MAX: usize = 16;
/// Load of a path that may not take a new packet.
const CLOSED: u16 = u16::MAX;
/// Added to the load of a path that should be passed over for a while.
const SKIPPED: u16 = 0x4000;

impl TxPath {
    /// How full its window is, in 1/256, or [`CLOSED`].
    #[inline]
    fn load(&self, now: Time, cfg: &TransportConfig) -> u16 {
        let (in_flight, cwnd) = (self.window.in_flight_pkts(), self.cc.cwnd_pkts());
        if in_flight >= cwnd || !self.is_healthy() || self.window.is_full(cfg.path_cap_pkts) {
            return CLOSED;
        }
        (in_flight * 256 / cwnd) as u16 + if self.is_skipped(now) { SKIPPED } else { 0 }
    }
}
/// Turns that one plane may be ahead of another that could send too.
const TURNS_AHEAD: u64 = 2;
/// What a plane of weight 1 pays for a turn.
const TURN_COST: u64 = 1 << 32;

/// One path and what the set keeps about it; what a send touches comes first.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Slot {
    /// Earliest entry in the timer heap.
    armed: Time,
    /// Its part of the sums.
    in_flight: u16,
    cwnd: u16,
    /// The path stands in its plane's retransmit queue.
    rtx_queued: bool,
    path: TxPath,
}

const _: () = {
    let window_at = core::mem::offset_of!(Slot, path) + core::mem::offset_of!(TxPath, window);
    assert!(window_at == 128, "a new packet touches the first two cache lines and what of the window is in the third");
};

/// Whose turn it is among the planes: one plane.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// What the plane has paid for its turns.
    paid: u64,
    /// What it pays for one.
    cost: u64,
    open_paths: u16,
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
#[repr(C)]
pub struct PathSet {
    in_flight_pkts: u32,
    cwnd_pkts: u32,
    plane_mask: u16,
    /// Where the rotation stands, 0..=256.
    next: u16,
    /// Of each path: its [`load`](TxPath::load) in the high 16 bits.
    loads: Vec<u32>,
    slots: Vec<Slot>,
    /// Of each path: its plane.
    planes: Vec<u8>,
    turns: [Turn; PLANES_MAX],
}

impl PathSet {
    /// No path yet; `rates_mbps` are the rates of the planes.
    pub fn new(rates_mbps: impl Iterator<Item = u64>) -> Self {
        let mut turns = [Turn { paid: 0, cost: TURN_COST, open_paths: 0 }; PLANES_MAX];
        turns.iter_mut().zip(rates_mbps).for_each(|(turn, rate)| turn.cost = TURN_COST / rate.max(1));
        Self {
            in_flight_pkts: 0,
            cwnd_pkts: 0,
            plane_mask: 0,
            next: 0,
            loads: Vec::new(),
            slots: Vec::new(),
            planes: Vec::new(),
            turns,
        }
    }

    /// Adds a path and returns its index, which is its path_id.
    pub fn push(&mut self, path: TxPath, now: Time, cfg: &TransportConfig) -> usize {
        self.loads.push(u32::from(CLOSED) << 16);
        self.planes.push(path.plane);
        self.slots.push(Slot { armed: Time::NEVER, in_flight: 0, cwnd: 0, rtx_queued: false, path });
        self.refresh(self.slots.len() - 1, now, cfg);
        self.slots.len() - 1
    }

    /// Memory of the paths on the heap, bytes.
    pub fn heap_bytes(&self) -> usize {
        let own = of_vec(&self.slots) + of_vec(&self.loads) + of_vec(&self.planes);
        own + self.iter().map(TxPath::heap_bytes).sum::<usize>()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Path `index`.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&TxPath> {
        self.slots.get(index).map(|s| &s.path)
    }

    /// Path `index`; [`refresh`](Self::refresh) must follow what changes its window, state or plane.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut TxPath> {
        self.slots.get_mut(index).map(|s| &mut s.path)
    }

    /// All of them in order.
    pub fn iter(&self) -> impl Iterator<Item = &TxPath> {
        self.slots.iter().map(|s| &s.path)
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
        &mut self.slots[index].armed
    }

    /// Sets the mark that path `index` stands in a retransmit queue and returns what it was.
    pub(crate) fn set_rtx_queued(&mut self, index: usize, queued: bool) -> bool {
        core::mem::replace(&mut self.slots[index].rtx_queued, queued)
    }

    /// Has the lines of the set itself fetched.
    #[inline]
    pub(crate) fn foresee_self(&self, fetch: impl Fetch) {
        fetch.line(self);
        fetch.line(&self.planes);
        fetch.line(&self.turns[0].open_paths);
    }

    /// Has fetched what an acknowledgement of path `index`, or a new packet on it, touches.
    #[inline]
    pub(crate) fn foresee(&self, index: usize, fetch: impl Fetch) {
        if let (Some(slot), Some(load), Some(plane)) =
            (self.slots.get(index), self.loads.get(index), self.planes.get(index))
        {
            fetch.line(load);
            fetch.line(plane);
            fetch.line(slot);
            fetch.line(&slot.path.rtt);
            fetch.line(&slot.path.window);
            // An acknowledgement needs it.
            fetch.line(&slot.path.skip_until);
        }
    }

    /// Takes over what changed in path `index`.
    pub fn refresh(&mut self, index: usize, now: Time, cfg: &TransportConfig) {
        self.take_over(index, now, cfg);
    }

    /// As [`refresh`](Self::refresh), and what path `index` wants now, each wish told once: the plane in whose retransmit
    /// queue it should stand, and when its timer should be set.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        index: usize,
        now: Time,
        srtt_ps: Option<u64>,
        cfg: &TransportConfig,
    ) -> (Option<u8>, Option<Time>) {
        let slot = self.take_over(index, now, cfg);
        let mut queue = None;
        if slot.path.has_retransmit() && !core::mem::replace(&mut slot.rtx_queued, true) {
            queue = Some(slot.path.plane);
        }
        let deadline = slot.path.deadline(srtt_ps, cfg);
        if deadline >= slot.armed {
            return (queue, None);
        }
        slot.armed = deadline;
        (queue, Some(deadline))
    }

    /// As [`refresh`](Self::refresh) after one more packet was sent by path `index`, which was open.
    #[inline]
    pub(crate) fn count_sent(&mut self, index: usize, now: Time, cfg: &TransportConfig) {
        let slot = &mut self.slots[index];
        let load = slot.path.load(now, cfg);
        // After a pause the window starts anew.
        let cwnd = slot.path.cc.cwnd_pkts();
        self.in_flight_pkts += 1;
        slot.in_flight += 1;
        self.cwnd_pkts = self.cwnd_pkts + cwnd - u32::from(slot.cwnd);
        slot.cwnd = cwnd as u16;
        self.loads[index] = u32::from(load) << 16;
        if load == CLOSED {
            self.turns[usize::from(slot.path.plane & 15)].open_paths -= 1;
        }
    }

    #[inline]
    fn take_over(&mut self, index: usize, now: Time, cfg: &TransportConfig) -> &mut Slot {
        let slot = &mut self.slots[index];
        let path = &slot.path;
        let in_flight = path.window.in_flight_pkts();
        let cwnd = if path.is_healthy() { path.cc.cwnd_pkts() } else { 0 };
        let load = path.load(now, cfg);
        let new_plane = path.plane;
        self.in_flight_pkts = self.in_flight_pkts + in_flight - u32::from(slot.in_flight);
        self.cwnd_pkts = self.cwnd_pkts + cwnd - u32::from(slot.cwnd);
        (slot.in_flight, slot.cwnd) = (in_flight as u16, cwnd as u16);
        let old_load = core::mem::replace(&mut self.loads[index], u32::from(load) << 16);
        let was_open = old_load >> 16 != u32::from(CLOSED);
        let old_plane = core::mem::replace(&mut self.planes[index], new_plane);
        let is_open = load != CLOSED;
        if was_open != is_open || old_plane != new_plane || self.plane_mask >> new_plane & 1 == 0 {
            self.move_open(was_open, old_plane, is_open, new_plane);
        }
        &mut self.slots[index]
    }

    /// A path opened or closed, or took another plane.
    fn move_open(&mut self, was_open: bool, old_plane: u8, is_open: bool, new_plane: u8) {
        let plane = usize::from(new_plane & 15);
        self.turns[usize::from(old_plane & 15)].open_paths -= u16::from(was_open);
        if is_open && self.turns[plane].open_paths == 0 {
            self.rejoin(plane);
        }
        self.turns[plane].open_paths += u16::from(is_open);
        if self.plane_mask >> new_plane & 1 == 0 || old_plane != new_plane {
            self.plane_mask = self.planes.iter().fold(0, |mask, plane| mask | 1 << (plane & 15));
        }
    }

    /// A plane that could not send for a while does not catch up on its turns.
    fn rejoin(&mut self, plane: usize) {
        let due = self.turns.iter().filter(|t| t.open_paths > 0).map(|t| t.paid).min();
        self.turns[plane].paid = self.turns[plane].paid.max(due.unwrap_or(0));
    }

    /// Which path of `plane` takes the next new packet.
    pub fn choose(&self, plane: u8) -> Choice {
        let own = &self.turns[usize::from(plane & 15)];
        if own.open_paths == 0 {
            return Choice::Closed;
        }
        // The smallest load first, then the place in the rotation.
        let next = u32::from(self.next);
        let key = |index: u32, load: u32| load | index.wrapping_sub(next) & 0xffff;
        let mut best = u32::MAX;
        if self.plane_mask & (self.plane_mask - 1) == 0 {
            // Four at a time, so that it is a row of comparisons without branches.
            let (quads, rest) = self.loads.as_chunks::<4>();
            let mut index = 0;
            for [a, b, c, d] in quads {
                let (a, b) = (key(index, *a), key(index + 1, *b));
                let (c, d) = (key(index + 2, *c), key(index + 3, *d));
                best = best.min(a.min(b).min(c.min(d)));
                index += 4;
            }
            for load in rest {
                best = best.min(key(index, *load));
                index += 1;
            }
        } else {
            let is_behind = |other: &Turn| {
                let ahead = own.paid.saturating_sub(other.paid);
                other.open_paths > 0 && ahead > TURNS_AHEAD * own.cost.max(other.cost)
            };
            // It is never behind itself.
            if self.turns.iter().any(is_behind) {
                return Choice::OtherPlane;
            }
            for ((load, p), index) in self.loads.iter().zip(&self.planes).zip(0..) {
                best = best.min(if *p == plane { key(index, *load) } else { u32::MAX });
            }
        }
        if best >> 16 == u32::from(CLOSED) {
            Choice::Closed
        } else {
            Choice::Path((best.wrapping_add(next) & 0xffff) as usize)
        }
    }

    /// A new packet leaves by path `index`: the rotation moves on and its plane pays for the turn.
    pub fn took_turn(&mut self, index: usize) {
        self.next = index as u16 + 1;
        let turn = &mut self.turns[usize::from(self.planes[index] & 15)];
        turn.paid += turn.cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::window::Desc;
    use nic_spec::num::Psn;

    use super::super::path::PathState;
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
