//! Send window of one path: what is in flight, what of it is acknowledged, what of it is lost.
//!
//! `una..nxt` are the sequence numbers that stand out, at most 256 of them, so that the receiver's bitmap always covers
//! them. Each has an [`InFlight`] entry in a ring that grows by doubling from 16 entries, because most paths hold few.
//!
//! Loss is one rule: a packet is lost when an acknowledgement echoes the clock of a packet that was sent on the same
//! path and epoch more than the reorder window after it. The path is a FIFO, so this holds for first transmissions and
//! for retransmissions alike.

use super::bitmap::{Bitmap, BITS};
use crate::time::Ticks;
use alloc::boxed::Box;
use nic_spec::num::Psn;

/// What kind of packet a descriptor describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DescKind {
    /// Part of a message of this side.
    #[default]
    Message,
    /// Part of the answer to a read.
    ReadRsp,
    /// Answer to an atomic operation.
    AtomicRsp,
}

/// All that is needed to build a packet again: the path layer carries it and the message layer reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Desc {
    /// Slot in the message layer's pool of that kind.
    pub slot: u32,
    /// First byte within the message.
    pub offset: u32,
    /// Payload, bytes.
    pub len: u16,
    /// Pool.
    pub kind: DescKind,
}

/// What made a packet be sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// An acknowledgement showed a gap.
    #[default]
    Gap,
    /// A timer expired, or the receiver had refused the packet for a while.
    Timer,
}

/// Transmissions of a packet besides the one that was sent last, as far as nothing shows them to be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyState {
    /// There never was one.
    #[default]
    Never,
    /// There is one.
    UnderWay,
    /// There was one.
    Past,
}

/// A part of a packet's condition that holds or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    /// It waits in the retransmit queue, or for a refusal to pass.
    Queued = 1,
    /// It waits for a refusal to pass.
    Parked = 2,
    /// It waits because of a timer, not of a gap.
    ByTimer = 4,
    /// Its last transmission was triggered by a gap: a duplicate of it speaks of reordering.
    GapResent = 8,
    /// A transmission of it was lost.
    Repaired = 16,
}

/// A packet's condition in one byte, since paths hold hundreds of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u8);

impl Marks {
    /// Whether it holds.
    pub const fn has(self, mark: Mark) -> bool {
        self.0 & mark as u8 != 0
    }

    /// Makes it hold or not. True when it held.
    pub fn set(&mut self, mark: Mark, holds: bool) -> bool {
        let held = self.has(mark);
        self.0 = if holds { self.0 | mark as u8 } else { self.0 & !(mark as u8) };
        held
    }

    /// It is to be sent again.
    pub fn queue(&mut self, cause: Cause) {
        self.set(Mark::Queued, true);
        self.set(Mark::ByTimer, cause == Cause::Timer);
    }

    /// Why it is, or was last, to be sent again.
    pub const fn cause(self) -> Cause {
        if self.has(Mark::ByTimer) {
            Cause::Timer
        } else {
            Cause::Gap
        }
    }
}

/// One packet that stands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// What the message layer calls it.
    pub desc: Desc,
    /// Clock of its last transmission.
    pub tx_ts: Ticks,
    /// Epoch of its last transmission.
    pub epoch: u8,
    /// Transmissions after the first.
    pub retries: u8,
    /// Its condition.
    pub marks: Marks,
    /// Whether a copy of it is under way: then there is none in idle time.
    pub copy: CopyState,
    /// Clock of the earlier of two transmissions under way.
    pub older_ts: Ticks,
}

impl InFlight {
    /// True when it was sent once and never again.
    pub fn is_first(&self) -> bool {
        self.retries == 0 && self.copy == CopyState::Never
    }

    /// True when its last transmission is the only one under way.
    pub fn is_single(&self) -> bool {
        !self.marks.has(Mark::Queued) && self.copy != CopyState::UnderWay
    }
}

/// What an acknowledgement shows of a packet that it does not acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Every transmission of it was lost.
    Lost,
    /// Of two transmissions the earlier one was lost.
    Single,
}

/// Why an acknowledgement was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AckError {
    /// It acknowledges a packet that was never sent.
    Unsent {
        /// The highest sequence number it acknowledges.
        acked: Psn,
        /// The next number that will be sent.
        nxt: Psn,
    },
    /// It was sent more than a window ago.
    Stale {
        /// What it acknowledges cumulatively.
        cum: Psn,
        /// The oldest number outstanding.
        una: Psn,
    },
}

/// The window.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct SendWindow {
    una: Psn,
    nxt: Psn,
    /// Slot and pool of the message to which all that stands out belongs, while `is_run`.
    run_slot: u32,
    run_kind: DescKind,
    is_run: bool,
    /// Of all that stands out nothing was sent more than once, or noted in another way.
    is_fresh: bool,
    acked_count: u16,
    /// Entries of the ring before `nxt` that were ever written since it last grew.
    used: u16,
    ring: Box<[InFlight]>,
    /// Bit i: una + i is acknowledged. Bit 0 is clear whenever una ≠ nxt.
    acked: Bitmap,
}

impl SendWindow {
    /// An empty window whose first packet will carry `first`.
    pub fn new(first: Psn) -> Self {
        Self {
            una: first,
            nxt: first,
            run_slot: 0,
            run_kind: DescKind::Message,
            is_run: false,
            is_fresh: true,
            acked_count: 0,
            used: 0,
            ring: Box::default(),
            acked: Bitmap::EMPTY,
        }
    }

    /// Memory on the heap, bytes.
    pub const fn heap_bytes(&self) -> usize {
        size_of::<InFlight>() * self.ring.len()
    }

    /// Oldest number that stands out.
    pub const fn una(&self) -> Psn {
        self.una
    }

    /// Next new number.
    pub const fn nxt(&self) -> Psn {
        self.nxt
    }

    /// Numbers between una and nxt, acknowledged ones included, 0..=256.
    pub const fn span_pkts(&self) -> u32 {
        self.nxt.distance_from(self.una)
    }

    /// Packets not yet acknowledged.
    pub const fn in_flight_pkts(&self) -> u32 {
        self.span_pkts() - self.acked_count as u32
    }

    /// True when no new number fits under the bitmap's span or under `cap_pkts`.
    pub const fn is_full(&self, cap_pkts: u32) -> bool {
        self.span_pkts() >= if cap_pkts < BITS { cap_pkts } else { BITS }
    }

    fn slot(&self, psn: Psn) -> usize {
        psn.get() as usize & (self.ring.len() - 1)
    }

    #[cold]
    fn grow(&mut self) {
        let old = core::mem::take(&mut self.ring);
        let size = (old.len() * 2).max(16);
        self.ring = alloc::vec![InFlight::default(); size].into_boxed_slice();
        for i in 0..self.span_pkts() {
            let psn = self.una + i;
            let to = self.slot(psn);
            self.ring[to] = old[psn.get() as usize & (old.len() - 1)];
        }
        self.used = self.span_pkts() as u16;
    }

    /// Takes the next number for a new packet. The window must not be full.
    #[inline(always)]
    pub fn push(&mut self, desc: Desc, tx_ts: Ticks, epoch: u8) -> Psn {
        assert!(!self.is_full(BITS), "a path may not hold more than {BITS} packets");
        if self.span_pkts() as usize == self.ring.len() {
            self.grow();
        }
        let psn = self.nxt;
        let at = self.slot(psn);
        if self.una == psn {
            (self.run_slot, self.run_kind, self.is_run, self.is_fresh) = (desc.slot, desc.kind, true, true);
        } else if (self.run_slot, self.run_kind) != (desc.slot, desc.kind) {
            self.is_run = false;
        }
        self.ring[at] = InFlight { desc, tx_ts, epoch, ..InFlight::default() };
        self.nxt += 1;
        self.used = (self.used + 1).min(BITS as u16);
        psn
    }

    /// The entry of `psn` if it stands out unacknowledged.
    pub fn entry(&self, psn: Psn) -> Option<&InFlight> {
        let at = psn.distance_from(self.una);
        (at < self.span_pkts() && !self.acked.get(at)).then(|| &self.ring[self.slot(psn)])
    }

    /// The entry of `psn` if the ring still has it, even when it is acknowledged.
    pub fn recent(&self, psn: Psn) -> Option<&InFlight> {
        let behind = self.nxt.distance_from(psn);
        (behind > 0 && behind as usize <= self.ring.len() && behind <= self.used.into())
            .then(|| &self.ring[self.slot(psn)])
    }

    /// The entry of `psn` if it stands out unacknowledged.
    pub fn entry_mut(&mut self, psn: Psn) -> Option<&mut InFlight> {
        let at = psn.distance_from(self.una);
        if at >= self.span_pkts() || self.acked.get(at) {
            return None;
        }
        self.is_fresh = false;
        let slot = self.slot(psn);
        Some(&mut self.ring[slot])
    }

    /// Numbers not acknowledged, oldest first.
    pub fn outstanding(&self) -> impl DoubleEndedIterator<Item = Psn> + '_ {
        let una = self.una;
        (0..self.span_pkts()).filter(|i| !self.acked.get(*i)).map(move |i| una + i)
    }

    /// The oldest and the newest number not acknowledged.
    pub fn newest(&self) -> Option<Psn> {
        self.outstanding().next_back()
    }

    /// Takes an acknowledgement of what nearly every window is: nothing missing, all of one message. Returns how many
    /// packets are acknowledged, and slot and pool of their message; `None`, and nothing is changed, for any other one.
    /// What was noted of each packet is not looked at, which spares the processor's cache most of the ring.
    #[inline]
    pub fn acknowledge_run(&mut self, cum: Psn, sack: &Bitmap) -> Option<(u32, Desc)> {
        let ahead = (cum + 1).distance_from(self.una);
        if !self.is_run || self.acked_count != 0 || ahead > self.span_pkts() || !sack.is_empty() {
            return None;
        }
        self.una += ahead;
        Some((ahead, Desc { slot: self.run_slot, kind: self.run_kind, ..Desc::default() }))
    }

    /// Takes an acknowledgement: everything up to `cum`, and bit i of `sack` for cum + 1 + i. Calls `acked` for each
    /// packet that is acknowledged for the first time, oldest first. A stale acknowledgement only adds what it knows.
    pub fn acknowledge(
        &mut self,
        cum: Psn,
        sack: &Bitmap,
        mut acked: impl FnMut(Psn, &InFlight),
    ) -> Result<u32, AckError> {
        let span = self.span_pkts();
        let base = cum + 1;
        let ahead = base.distance_from(self.una);
        if ahead <= span && sack.is_empty() && self.acked_count == 0 {
            // Nothing is missing, which is how it nearly always is.
            for i in 0..ahead {
                let psn = self.una + i;
                acked(psn, &self.ring[self.slot(psn)]);
            }
            self.una += ahead;
            return Ok(ahead);
        }
        let mut known = Bitmap::EMPTY;
        let high = sack.highest().map_or(cum, |h| base + h);
        if ahead <= span {
            // The usual case: cum + 1 lies in una..=nxt.
            let sacked_to = sack.highest().map_or(0, |h| h + 1);
            if ahead + sacked_to > span {
                return Err(AckError::Unsent { acked: high, nxt: self.nxt });
            }
            (0..ahead).for_each(|i| known.set(i));
            sack.ones().for_each(|i| known.set(ahead + i));
        } else {
            let behind = self.una.distance_from(base);
            if behind >= 1 << (Psn::BITS - 1) {
                return Err(AckError::Unsent { acked: high, nxt: self.nxt });
            }
            if behind >= BITS {
                return Err(AckError::Stale { cum, una: self.una });
            }
            known = *sack;
            known.advance(behind);
            if known.highest().is_some_and(|h| h >= span) {
                return Err(AckError::Unsent { acked: high, nxt: self.nxt });
            }
        }
        let new = known.minus(&self.acked);
        let count = new.count();
        for i in new.ones() {
            let psn = self.una + i;
            acked(psn, &self.ring[self.slot(psn)]);
        }
        self.acked = self.acked.union(&new);
        self.acked_count += count as u16;
        let done = self.acked.leading_run();
        if done > 0 {
            self.una += done;
            self.acked.advance(done);
            self.acked_count -= done as u16;
        }
        Ok(count)
    }

    /// True when all that stands out was sent once, after packet `trigger`: the clock of that one shows no loss. What was
    /// noted of each packet is not looked at, as in [`acknowledge_run`](Self::acknowledge_run).
    #[inline]
    pub fn is_later_than(&self, trigger: Psn) -> bool {
        self.is_fresh && trigger.is_before(self.una)
    }

    /// Calls `found` for every packet of which an acknowledgement of `epoch` echoing `echo` shows a transmission to be
    /// lost, oldest first: sent in that epoch, more than `reorder_ticks` before `echo`, and not already queued for
    /// retransmission.
    pub fn find_lost(&mut self, echo: Ticks, epoch: u8, reorder_ticks: u32, mut found: impl FnMut(Psn, Finding)) {
        let una = self.una;
        if una == self.nxt {
            return;
        }
        let oldest = &self.ring[self.slot(una)];
        if oldest.is_first() && oldest.tx_ts.is_after_by(echo, 0) {
            return;
        }
        for i in self.acked.zeros_below(self.span_pkts()) {
            let psn = una + i;
            let slot = self.slot(psn);
            let entry = &mut self.ring[slot];
            let is_candidate = entry.epoch == epoch && !entry.marks.has(Mark::Queued);
            if is_candidate && echo.is_after_by(entry.tx_ts, reorder_ticks) {
                entry.marks.queue(Cause::Gap);
                found(psn, Finding::Lost);
            } else if is_candidate
                && entry.copy == CopyState::UnderWay
                && echo.is_after_by(entry.older_ts, reorder_ticks)
            {
                entry.copy = CopyState::Past;
                entry.marks.set(Mark::Repaired, true);
                found(psn, Finding::Single);
            } else if entry.is_first() && entry.tx_ts.is_after_by(echo, 0) {
                // First transmissions leave in order, and a resent packet's clock only grows: all that follow are later.
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn window(first: u32, count: u32) -> SendWindow {
        let mut w = SendWindow::new(Psn::new(first));
        (0..count).for_each(|i| {
            w.push(Desc { slot: i, ..Desc::default() }, Ticks(100 + 10 * i), 0);
        });
        w
    }

    fn ack(w: &mut SendWindow, cum: u32, bits: &[u32]) -> Result<Vec<u32>, AckError> {
        let mut sack = Bitmap::EMPTY;
        bits.iter().for_each(|b| sack.set(*b));
        let mut got = Vec::new();
        w.acknowledge(Psn::new(cum), &sack, |_, e| got.push(e.desc.slot))?;
        Ok(got)
    }

    fn found(w: &mut SendWindow, echo: u32, what: Finding) -> Vec<u32> {
        let mut got = Vec::new();
        w.find_lost(Ticks(echo), 0, 0, |p, finding| {
            if finding == what {
                got.push(p.get());
            }
        });
        got
    }

    fn lost(w: &mut SendWindow, echo: u32) -> Vec<u32> {
        found(w, echo, Finding::Lost)
    }

    #[test]
    fn every_packet_is_acknowledged_once_across_the_sequence_wrap() {
        let mut w = window(0xff_fffe, 6);
        assert_eq!(ack(&mut w, 0xff_fffe, &[1, 3]), Ok(alloc::vec![0, 2, 4]));
        assert_eq!((w.una().get(), w.in_flight_pkts()), (0xff_ffff, 3));
        assert_eq!(ack(&mut w, 0xff_fffe, &[1, 3]), Ok(alloc::vec![]), "again");
        assert_eq!(ack(&mut w, 0xff_fffd, &[2]), Ok(alloc::vec![]), "a stale one");
        assert_eq!(ack(&mut w, 3, &[]), Ok(alloc::vec![1, 3, 5]));
        assert_eq!((w.una(), w.in_flight_pkts()), (w.nxt(), 0));
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_is_refused() {
        let mut w = window(10, 4);
        for (cum, bits) in [(14, &[][..]), (12, &[1][..]), (9, &[4][..]), (0x80_0009, &[][..])] {
            assert!(ack(&mut w, cum, bits).is_err(), "cum {cum} bits {bits:?}");
        }
        assert_eq!(w.in_flight_pkts(), 4);
        assert_eq!(ack(&mut w, 13, &[]).map(|v| v.len()), Ok(4));
    }

    #[test]
    fn an_acknowledgement_from_more_than_a_window_ago_is_refused() {
        let mut w = window(300, 4);
        assert_eq!(ack(&mut w, 44, &[255]), Ok(alloc::vec![0]), "256 before the oldest, which the last bit reaches");
        assert!(ack(&mut w, 43, &[255]).is_err());
        assert!(ack(&mut w, 0xc0_0000, &[]).is_err());
    }

    #[test]
    fn a_gap_is_lost_once_per_evidence_and_again_when_its_retransmission_is_passed() {
        let mut w = window(0, 6);
        assert_eq!(ack(&mut w, 1, &[1, 2]), Ok(alloc::vec![0, 1, 3, 4]));
        assert_eq!(lost(&mut w, 140), [2]);
        assert_eq!(lost(&mut w, 150), [], "already queued");
        let e = w.entry_mut(Psn::new(2)).expect("still out");
        (e.tx_ts, e.retries) = (Ticks(200), 1);
        e.marks.set(Mark::Queued, false);
        assert_eq!(lost(&mut w, 160), [5], "passed by a later first transmission");
        assert_eq!(lost(&mut w, 210), [2], "the retransmission was passed too");
    }

    #[test]
    fn of_a_packet_sent_twice_each_transmission_is_found_lost_once() {
        let mut w = window(0, 6);
        assert_eq!(ack(&mut w, 1, &[1]), Ok(alloc::vec![0, 1, 3]));
        let e = w.entry_mut(Psn::new(2)).expect("still out");
        (e.older_ts, e.tx_ts, e.copy) = (e.tx_ts, Ticks(135), CopyState::UnderWay);
        assert_eq!(found(&mut w, 120, Finding::Single), [], "its own first transmission was heard of, not later ones");
        assert_eq!(found(&mut w, 130, Finding::Single), [2]);
        assert_eq!((found(&mut w, 134, Finding::Single), lost(&mut w, 134)), (alloc::vec![], alloc::vec![]));
        assert_eq!(lost(&mut w, 136), [2], "the copy, too");
    }

    #[test]
    fn an_acknowledged_entry_is_remembered_until_its_place_is_used_again() {
        let mut w = window(0, 3);
        assert_eq!(ack(&mut w, 2, &[]).map(|v| v.len()), Ok(3));
        assert_eq!(w.recent(Psn::new(1)).map(|e| e.desc.slot), Some(1));
        assert_eq!((w.entry(Psn::new(1)), w.recent(Psn::new(3)), w.recent(Psn::new(0xff_ffff))), (None, None, None));
        (3..17).for_each(|i| _ = w.push(Desc { slot: i, ..Desc::default() }, Ticks(0), 0));
        assert_eq!((w.recent(Psn::new(0)), w.recent(Psn::new(1)).map(|e| e.desc.slot)), (None, Some(1)));
    }

    #[test]
    fn a_window_of_one_message_is_acknowledged_without_its_entries() {
        let mut w = SendWindow::new(Psn::new(0xff_fffe));
        let push = |w: &mut SendWindow, slot| _ = w.push(Desc { slot, ..Desc::default() }, Ticks(0), 0);
        (0..4).for_each(|_| push(&mut w, 7));
        let mut hole = Bitmap::EMPTY;
        hole.set(1);
        assert_eq!(w.acknowledge_run(Psn::new(0xff_fffe), &hole), None, "a gap");
        assert_eq!(w.acknowledge_run(Psn::new(2), &Bitmap::EMPTY), None, "never sent");
        assert_eq!(w.acknowledge_run(Psn::new(0xff_fffc), &Bitmap::EMPTY), None, "stale");
        let run = w.acknowledge_run(Psn::new(0), &Bitmap::EMPTY);
        assert_eq!(run, Some((3, Desc { slot: 7, ..Desc::default() })));
        push(&mut w, 8);
        assert_eq!(w.acknowledge_run(Psn::new(1), &Bitmap::EMPTY), None, "two messages");
        assert_eq!(ack(&mut w, 2, &[]), Ok(alloc::vec![7, 8]));
        push(&mut w, 9);
        assert_eq!(w.acknowledge_run(Psn::new(3), &Bitmap::EMPTY).map(|r| (r.0, r.1.slot)), Some((1, 9)));
        assert_eq!(w.in_flight_pkts(), 0);
    }

    #[test]
    fn a_path_holds_at_most_256_packets() {
        let mut w = window(0xff_ff80, 256);
        assert!(w.is_full(300) && w.is_full(256));
        assert_eq!(ack(&mut w, 0xff_ff7f, &(1..256).collect::<Vec<_>>()).map(|v| v.len()), Ok(255));
        assert!(w.is_full(256), "the hole at the base holds the window");
        assert_eq!(w.outstanding().count(), 1);
        assert_eq!(ack(&mut w, 0xff_ff80, &[]).map(|v| v.len()), Ok(1));
        assert_eq!(w.span_pkts(), 0);
    }
}
