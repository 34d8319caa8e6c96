//! One path of a connection, receiver side: what arrived, what is owed an acknowledgement.
//!
//! A packet is first checked (nothing changes) and committed once its payload is on its way to memory, so a bit of the
//! bitmap means *placed*. A refused packet leaves no trace and will come again. CE marks count even on duplicates.

use super::bitmap::{Bitmap, BITS};
use crate::config::TransportConfig;
use crate::time::{Ticks, Time};
use nic_spec::num::Psn;

/// Whether a sequenced packet is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// New and within the window.
    Accept,
    /// Seen before: acknowledge again, place nothing.
    Duplicate,
    /// Beyond what the bitmap covers: drop and count.
    OutOfWindow,
}

/// When an acknowledgement is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDue {
    /// At once.
    Now,
    /// At the path's deadline at the latest.
    Later,
}

/// The packet that triggers an acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// Its sequence number.
    pub pseq: Psn,
    /// Its clock.
    pub tx_ts: Ticks,
    /// When it arrived.
    pub arrived: Time,
    /// Its epoch.
    pub epoch: u8,
    /// Its plane, as the sender numbers it.
    pub plane: u8,
    /// The port it came in by, where its acknowledgement leaves.
    pub port: u8,
    /// It was marked CE.
    pub ce: bool,
    /// It was a retransmission.
    pub rtx: bool,
    /// It was a duplicate.
    pub dup: bool,
    /// It was a probe.
    pub is_probe: bool,
}

/// What arrived, as the sender stated it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The packet.
    pub trigger: Trigger,
    /// Payload, bytes.
    pub len_bytes: u32,
    /// The sender asks for an acknowledgement, or the packet ends its message.
    pub ack_now: bool,
}

/// The path.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct RxPath {
    /// Everything up to this arrived.
    cum: Psn,
    heard: bool,
    /// Packets of the path are taken.
    is_open: bool,
    /// An acknowledgement waits in a port's queue.
    pub(crate) ack_queued: bool,
    /// The map has a bit set; where it has none, as usual, one cache line is all that a packet needs of its path.
    has_map: bool,
    owed_pkts: u32,
    owed_bytes: u32,
    ce_cnt: u16,
    /// UDP source port of its acknowledgements; changes with the epoch, since the old way back may be what is broken.
    sport: u16,
    deadline: Time,
    /// Earliest entry in the timer heap.
    pub(crate) armed: Time,
    trigger: Trigger,
    /// Bit i: cum + 1 + i arrived. Bit 0 is always clear.
    map: Bitmap,
}

const _: () = assert!(core::mem::offset_of!(RxPath, map) == 64);

impl RxPath {
    /// A path whose first packet will carry `first`; its acknowledgements leave by UDP source port `sport`.
    pub fn new(first: Psn, sport: u16) -> Self {
        Self {
            cum: first - 1,
            map: Bitmap::EMPTY,
            has_map: false,
            ce_cnt: 0,
            trigger: Trigger::default(),
            sport,
            owed_pkts: 0,
            owed_bytes: 0,
            deadline: Time::NEVER,
            heard: false,
            is_open: true,
            ack_queued: false,
            armed: Time::NEVER,
        }
    }

    /// A path that the sender has not opened yet.
    pub fn closed(sport: u16) -> Self {
        Self { is_open: false, ..Self::new(Psn::new(0), sport) }
    }

    /// The sender opens the path with number `first`; one that is open stays as it is.
    pub fn open(&mut self, first: Psn) {
        if !self.is_open {
            *self = Self { ack_queued: self.ack_queued, armed: self.armed, ..Self::new(first, self.sport) };
        }
    }

    /// The sender retires the path.
    pub fn close(&mut self) {
        self.is_open = false;
    }

    /// True when packets of the path are taken.
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Everything up to this arrived.
    pub const fn cum(&self) -> Psn {
        self.cum
    }

    /// What arrived beyond `cum` + 1.
    pub const fn map(&self) -> Bitmap {
        if self.has_map {
            self.map
        } else {
            Bitmap::EMPTY
        }
    }

    /// CE-marked packets so far, modulo 2^16.
    pub const fn ce_cnt(&self) -> u16 {
        self.ce_cnt
    }

    /// The packet that the next acknowledgement echoes.
    pub const fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// When an owed acknowledgement must leave.
    pub const fn deadline(&self) -> Time {
        self.deadline
    }

    /// UDP source port of its acknowledgements.
    pub const fn sport(&self) -> u16 {
        self.sport
    }

    /// True once a packet was accepted.
    pub const fn is_heard(&self) -> bool {
        self.heard
    }

    /// Is `pseq` new? Changes nothing.
    #[inline]
    pub fn check(&self, pseq: Psn) -> Verdict {
        let ahead = pseq.distance_from(self.cum);
        if ahead == 0 || ahead >= 1 << (Psn::BITS - 1) {
            Verdict::Duplicate
        } else if ahead > BITS {
            Verdict::OutOfWindow
        } else if self.has_map && self.map.get(ahead - 1) {
            Verdict::Duplicate
        } else {
            Verdict::Accept
        }
    }

    /// Records a packet that [`check`](Self::check) accepted and whose payload is on its way to memory.
    #[inline(always)]
    pub fn commit(&mut self, a: &Arrival, cfg: &TransportConfig) -> AckDue {
        let ahead = a.trigger.pseq.distance_from(self.cum);
        let had_hole = self.has_map;
        if ahead == 1 && !had_hole {
            self.cum = a.trigger.pseq;
        } else {
            self.fill(ahead);
        }
        let hole = had_hole || self.has_map;
        let first = !core::mem::replace(&mut self.heard, true);
        self.owed_bytes = self.owed_bytes.saturating_add(a.len_bytes);
        self.arrived(a, cfg, hole || first)
    }

    /// Marks the packet that is `ahead` of `cum` and moves on over what has no gap.
    #[inline(never)]
    fn fill(&mut self, ahead: u32) {
        self.map.set(ahead - 1);
        let run = self.map.leading_run();
        self.cum += run;
        self.map.advance(run);
        self.has_map = !self.map.is_empty();
    }

    /// Records a duplicate: it is acknowledged at once and its mark counts.
    pub fn duplicate(&mut self, a: &Arrival, cfg: &TransportConfig) -> AckDue {
        self.arrived(a, cfg, true)
    }

    #[inline(always)]
    fn arrived(&mut self, a: &Arrival, cfg: &TransportConfig, now: bool) -> AckDue {
        self.ce_cnt = self.ce_cnt.wrapping_add(u16::from(a.trigger.ce));
        self.set_trigger(a.trigger);
        self.owed_pkts += 1;
        if self.deadline == Time::NEVER {
            self.deadline = a.trigger.arrived.after_ps(cfg.ack_delay_ps);
        }
        if now || a.ack_now || a.trigger.ce || self.owed_pkts >= cfg.ack_packets || self.owed_bytes >= cfg.ack_bytes {
            AckDue::Now
        } else {
            AckDue::Later
        }
    }

    /// Records a probe: it is answered at once.
    pub fn probe(&mut self, trigger: Trigger) {
        self.set_trigger(trigger);
        self.ce_cnt = self.ce_cnt.wrapping_add(u16::from(trigger.ce));
    }

    #[inline]
    fn set_trigger(&mut self, trigger: Trigger) {
        if trigger.epoch != self.trigger.epoch && self.heard {
            let turns = u32::from(trigger.epoch.wrapping_sub(self.trigger.epoch) & 15);
            self.sport = 0xc000 | (u32::from(self.sport) + 0x1357 * turns) as u16 & 0x3fff;
        }
        self.trigger = trigger;
    }

    /// An acknowledgement was built from this state.
    pub fn acknowledged(&mut self) {
        (self.owed_pkts, self.owed_bytes, self.deadline) = (0, 0, Time::NEVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(pseq: u32) -> Arrival {
        Arrival { trigger: Trigger { pseq: Psn::new(pseq), ..Trigger::default() }, len_bytes: 1000, ack_now: false }
    }

    #[test]
    fn packets_in_any_order_are_accepted_once_across_the_wrap() {
        let cfg = TransportConfig::default();
        let first = 0xff_fff0u32;
        let mut path = RxPath::new(Psn::new(first), 0xc000);
        for i in (0..32).rev() {
            let pseq = (first + i) & 0xff_ffff;
            assert_eq!(path.check(Psn::new(pseq)), Verdict::Accept);
            path.commit(&arrival(pseq), &cfg);
            assert_eq!(path.check(Psn::new(pseq)), Verdict::Duplicate);
        }
        assert_eq!((path.cum().get(), path.map().is_empty()), ((first + 31) & 0xff_ffff, true));
    }

    #[test]
    fn the_window_is_the_256_packets_after_cum() {
        let path = RxPath::new(Psn::new(10), 0xc000);
        assert_eq!(path.check(Psn::new(9)), Verdict::Duplicate);
        assert_eq!(path.check(Psn::new(265)), Verdict::Accept);
        assert_eq!(path.check(Psn::new(266)), Verdict::OutOfWindow);
    }

    #[test]
    fn acknowledgements_are_due_at_once_for_a_hole_a_mark_or_the_fourth_packet() {
        let cfg = TransportConfig::default();
        let mut path = RxPath::new(Psn::new(0), 0xc000);
        assert_eq!(path.commit(&arrival(0), &cfg), AckDue::Now, "first of the path");
        path.acknowledged();
        for i in 1..4 {
            assert_eq!(path.commit(&arrival(i), &cfg), AckDue::Later);
        }
        assert_eq!(path.commit(&arrival(4), &cfg), AckDue::Now, "fourth");
        path.acknowledged();
        let mut marked = arrival(5);
        marked.trigger.ce = true;
        assert_eq!(path.commit(&marked, &cfg), AckDue::Now);
        path.acknowledged();
        assert_eq!(path.commit(&arrival(7), &cfg), AckDue::Now, "leaves a hole");
        path.acknowledged();
        assert_eq!(path.commit(&arrival(6), &cfg), AckDue::Now, "fills it");
        path.acknowledged();
        marked.trigger.pseq = Psn::new(7);
        assert_eq!((path.duplicate(&marked, &cfg), path.ce_cnt()), (AckDue::Now, 2));
    }

    #[test]
    fn a_new_epoch_moves_the_acknowledgements_to_another_source_port() {
        let cfg = TransportConfig::default();
        let mut path = RxPath::new(Psn::new(0), 0xc001);
        path.commit(&arrival(0), &cfg);
        assert_eq!(path.sport(), 0xc001);
        let mut reaimed = arrival(1);
        reaimed.trigger.epoch = 1;
        path.commit(&reaimed, &cfg);
        let moved = path.sport();
        assert!(moved != 0xc001 && moved >= 0xc000);
        path.duplicate(&reaimed, &cfg);
        assert_eq!(path.sport(), moved);
    }
}
