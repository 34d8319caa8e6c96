//! The paths of a connection, and the choice among them.
//!
//! A port that is free asks for a packet. The connection's planes take turns in proportion to their rates; within the
//! plane the open path with the smallest share of its window in use is taken, ties in rotation. What the choice needs of
//! the paths stands in two short arrays of its own, so that choosing does not touch the paths themselves.

use super::path::TxPath;
use super::window::Desc;
use crate::config::TransportConfig;
use crate::footprint::of_vec;
use crate::foresee::Fetch;
use crate::time::{Ticks, Time};
use alloc::vec::Vec;
use nic_spec::num::Psn;

/// Planes that a card can have.
pub const PLANES_MAX: usize = 16;
/// Load of a path that may not take a new packet.
const CLOSED: i16 = i16::MAX;
/// Added to the load of a path that should be passed over for a while.
const SKIPPED: i16 = 0x4000;
/// Loads that are looked at together.
const ROW: usize = 16;

impl TxPath {
    /// How full its window is, in 1/256, or [`CLOSED`].
    #[inline(always)]
    fn load(&self, now: Time, cfg: &TransportConfig) -> i16 {
        let (in_flight, cwnd) = (self.window.in_flight_pkts(), self.cc.cwnd_pkts());
        if in_flight >= cwnd || !self.is_healthy() || self.window.is_full(cfg.path_cap_pkts) {
            return CLOSED;
        }
        (in_flight * 256 / cwnd) as i16 + if self.is_skipped(now) { SKIPPED } else { 0 }
    }
}

/// The [`load`](TxPath::load) of each path, in rows as wide as a few vector registers. The first row stands where the
/// set does, since most connections need no other; what is behind the last path is closed.
#[derive(Clone, Debug)]
#[repr(C)]
struct Loads {
    first: [i16; ROW],
    more: Vec<[i16; ROW]>,
}

impl Loads {
    const NONE: Self = Self { first: [CLOSED; ROW], more: Vec::new() };

    /// The load of path `index`, for which there is room.
    #[inline]
    fn of(&mut self, index: usize) -> &mut i16 {
        if index < ROW {
            &mut self.first[index]
        } else {
            &mut self.more[index / ROW - 1][index % ROW]
        }
    }

    /// Makes room for `count` paths.
    fn grow(&mut self, count: usize) {
        self.more.resize(count.div_ceil(ROW).saturating_sub(1), [CLOSED; ROW]);
    }

    /// The path with the smallest load, the first from `next` on where several have it; `None` when all are closed.
    #[inline]
    fn lightest(&self, next: u16) -> Option<usize> {
        let mut least = self.first;
        for row in &self.more {
            least.iter_mut().zip(row).for_each(|(least, load)| *least = (*least).min(*load));
        }
        let least = least.iter().fold(CLOSED, |least, load| least.min(*load));
        if least == CLOSED {
            return None;
        }
        let mut turn = first_turn(&self.first, least, 0, next);
        for (row, from) in self.more.iter().zip((ROW as i16..).step_by(ROW)) {
            turn = turn.min(first_turn(row, least, from, next));
        }
        Some(usize::from((turn as u16).wrapping_add(next) as u8))
    }

    /// As [`lightest`](Self::lightest) of those whose plane, in `planes`, is `plane`.
    fn lightest_of(&self, next: u16, planes: &[u8], plane: u8) -> Option<usize> {
        let loads = self.first.iter().chain(self.more.iter().flatten());
        let own = loads.zip(planes).zip(0u16..).filter(|((load, p), _)| **p == plane && **load != CLOSED);
        own.min_by_key(|((load, _), index)| (**load, index.wrapping_sub(next))).map(|(_, index)| index.into())
    }
}

/// How many turns after `next` it is that of the first path with the load `least` in a row that begins with path `from`,
/// all modulo 256, the most paths there are; 256 or more if there is none. No load of the row is less than that.
///
/// Written so that the compiler does it for several paths at a time.
#[inline(always)]
fn first_turn(row: &[i16; ROW], least: i16, from: i16, next: u16) -> i16 {
    let first = from.wrapping_sub(next as i16);
    let mut turn = i16::MAX;
    for (load, i) in row.iter().zip(0i16..) {
        // How much more it is comes first, and is nothing where it counts.
        let key = (load.wrapping_sub(least).min(64) << 8) | (first.wrapping_add(i) & 0xff);
        turn = turn.min(key);
    }
    turn
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
#[repr(C, align(64))]
pub struct PathSet {
    in_flight_pkts: u32,
    cwnd_pkts: u32,
    plane_mask: u16,
    /// Planes in `plane_mask`.
    plane_count: u16,
    /// Where the rotation stands, 0..=256.
    next: u16,
    slots: Vec<Slot>,
    /// Of each path: its plane.
    planes: Vec<u8>,
    loads: Loads,
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
            plane_count: 0,
            next: 0,
            loads: Loads::NONE,
            slots: Vec::new(),
            planes: Vec::new(),
            turns,
        }
    }

    /// Adds a path and returns its index, which is its path_id.
    pub fn push(&mut self, path: TxPath, now: Time, cfg: &TransportConfig) -> usize {
        self.loads.grow(self.slots.len() + 1);
        self.planes.push(path.plane);
        self.slots.push(Slot { armed: Time::NEVER, in_flight: 0, cwnd: 0, rtx_queued: false, path });
        self.refresh(self.slots.len() - 1, now, cfg);
        self.slots.len() - 1
    }

    /// Memory of the paths on the heap, bytes.
    pub fn heap_bytes(&self) -> usize {
        let own = of_vec(&self.slots) + of_vec(&self.loads.more) + of_vec(&self.planes);
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

    /// Planes by which paths leave.
    #[inline]
    pub const fn plane_count(&self) -> u32 {
        self.plane_count as u32
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
        fetch.line(&self.loads);
        fetch.line(&self.turns[0].open_paths);
    }

    /// Has fetched what an acknowledgement of path `index`, or a new packet on it, touches.
    #[inline]
    pub(crate) fn foresee(&self, index: usize, fetch: impl Fetch) {
        if let Some(slot) = self.slots.get(index) {
            fetch.line(slot);
            fetch.line(&slot.path.rtt);
            fetch.line(&slot.path.window);
        }
    }

    /// Has fetched what only an acknowledgement of path `index` touches besides.
    #[inline]
    pub(crate) fn foresee_acked(&self, index: usize, fetch: impl Fetch) {
        if let Some(slot) = self.slots.get(index) {
            fetch.line(&slot.path.skip_until);
        }
    }

    /// Takes over what changed in path `index`.
    pub fn refresh(&mut self, index: usize, now: Time, cfg: &TransportConfig) {
        self.take_over(index, now, cfg);
    }

    /// As [`refresh`](Self::refresh), and what path `index` wants now, each wish told once: the plane in whose retransmit
    /// queue it should stand, and when its timer should be set.
    #[inline(always)]
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

    /// A new packet leaves by path `index`, which was open: it takes the next sequence number, the rotation moves on and
    /// its plane pays for the turn.
    #[inline(always)]
    pub(crate) fn send_new(&mut self, index: usize, now: Time, tx_ts: Ticks, desc: Desc, cfg: &TransportConfig) -> Psn {
        let slot = &mut self.slots[index];
        let psn = slot.path.send_new(now, tx_ts, desc, cfg);
        let load = slot.path.load(now, cfg);
        // After a pause the window starts anew.
        let cwnd = slot.path.cc.cwnd_pkts();
        self.in_flight_pkts += 1;
        slot.in_flight += 1;
        self.cwnd_pkts = self.cwnd_pkts + cwnd - u32::from(slot.cwnd);
        slot.cwnd = cwnd as u16;
        let turn = &mut self.turns[usize::from(slot.path.plane & 15)];
        *self.loads.of(index) = load;
        turn.open_paths -= u16::from(load == CLOSED);
        turn.paid += turn.cost;
        self.next = index as u16 + 1;
        psn
    }

    #[inline(always)]
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
        let was_open = core::mem::replace(self.loads.of(index), load) != CLOSED;
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
            self.plane_count = self.plane_mask.count_ones() as u16;
        }
    }

    /// A plane that could not send for a while does not catch up on its turns.
    fn rejoin(&mut self, plane: usize) {
        let due = self.turns.iter().filter(|t| t.open_paths > 0).map(|t| t.paid).min();
        self.turns[plane].paid = self.turns[plane].paid.max(due.unwrap_or(0));
    }

    /// Which path of `plane` takes the next new packet.
    #[inline]
    pub fn choose(&self, plane: u8) -> Choice {
        let own = &self.turns[usize::from(plane & 15)];
        if own.open_paths == 0 {
            return Choice::Closed;
        }
        let lightest = if self.plane_count == 1 {
            self.loads.lightest(self.next)
        } else {
            let is_behind = |other: &Turn| {
                let ahead = own.paid.saturating_sub(other.paid);
                other.open_paths > 0 && ahead > TURNS_AHEAD * own.cost.max(other.cost)
            };
            // It is never behind itself.
            if self.turns.iter().any(is_behind) {
                return Choice::OtherPlane;
            }
            self.loads.lightest_of(self.next, &self.planes, plane)
        };
        lightest.map_or(Choice::Closed, Choice::Path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            s.send_new(i, Time(0), Ticks(0), Desc::default(), &CFG());
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
