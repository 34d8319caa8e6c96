//! How much the reads of a card may have asked for at once.
//!
//! A thousand servers that are asked at once answer at once. Who reads knows how much it asked for, so it bounds what may
//! come before its hints are known: of each read the bytes that its responder sends before the first acknowledgement
//! count, until they arrived. Connections for which there is no room wait in the order in which they came. Room that is
//! not given back, because a responder is silent, is free again after [`LIFE_PS`].

use crate::time::{Time, NS_PS};
use alloc::collections::VecDeque;
use nic_spec::consts::RTO_NS;

/// How long room is held at most: a timeout of a path, after which nothing that was asked for is on its way.
const LIFE_PS: u64 = RTO_NS as u64 * NS_PS;

#[derive(Clone, Copy, Debug)]
struct Room {
    until: Time,
    left_bytes: u32,
}

/// The budget.
#[derive(Clone, Debug)]
pub(crate) struct ReadBudget {
    limit_bytes: u64,
    out_bytes: u64,
    /// Room taken, oldest first; the first has number `first`.
    rooms: VecDeque<Room>,
    first: u64,
    /// Connections that wait, and for how much.
    waiting: VecDeque<(u32, u32)>,
    /// When its timer is due.
    pub armed: Time,
}

impl ReadBudget {
    /// A budget of `horizon_ps` of line time at `rate_mbps`; 0 = no limit.
    pub fn new(rate_mbps: u64, horizon_ps: u64) -> Self {
        // Mb/s · ps = 10^-6 bits.
        let bytes = u128::from(rate_mbps) * u128::from(horizon_ps) / 8_000_000;
        let limit_bytes = if horizon_ps == 0 { u64::MAX } else { bytes as u64 };
        let (rooms, waiting) = (VecDeque::new(), VecDeque::new());
        Self { limit_bytes, out_bytes: 0, rooms, first: 0, waiting, armed: Time::NEVER }
    }

    fn expire(&mut self, now: Time) {
        while let Some(room) = self.rooms.front().filter(|r| r.left_bytes == 0 || r.until <= now) {
            self.out_bytes -= u64::from(room.left_bytes);
            self.rooms.pop_front();
            self.first += 1;
        }
    }

    fn take(&mut self, now: Time, bytes: u32) -> Option<u64> {
        self.expire(now);
        // One read may always be under way, however long.
        if self.out_bytes > 0 && self.out_bytes + u64::from(bytes) > self.limit_bytes {
            return None;
        }
        self.out_bytes += u64::from(bytes);
        self.rooms.push_back(Room { until: now.after_ps(LIFE_PS), left_bytes: bytes });
        Some(self.first + self.rooms.len() as u64 - 1)
    }

    /// Room for `bytes`, unless others wait or there is none.
    pub fn take_room(&mut self, now: Time, bytes: u32) -> Option<u64> {
        self.waiting.is_empty().then(|| self.take(now, bytes))?
    }

    /// Puts connection `conn` into the queue for `bytes`.
    pub fn wait(&mut self, conn: u32, bytes: u32) {
        self.waiting.push_back((conn, bytes));
    }

    /// `bytes` for which room was taken arrived.
    pub fn give_back(&mut self, room: u64, bytes: u32) {
        let at = room.checked_sub(self.first).and_then(|at| self.rooms.get_mut(at as usize));
        if let Some(room) = at {
            let bytes = bytes.min(room.left_bytes);
            room.left_bytes -= bytes;
            self.out_bytes -= u64::from(bytes);
        }
    }

    /// True when a connection waits.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next connection that waits, and its room, if there is some.
    pub fn next_grant(&mut self, now: Time) -> Option<(u32, u64)> {
        let (conn, bytes) = *self.waiting.front()?;
        let room = self.take(now, bytes)?;
        self.waiting.pop_front();
        Some((conn, room))
    }

    /// When room comes back by itself, if a connection waits for it.
    pub fn deadline(&self) -> Option<Time> {
        let oldest = self.rooms.front()?;
        (!self.waiting.is_empty()).then_some(oldest.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::US_PS;
    use alloc::vec::Vec;

    /// 400 Gb/s and 2 us are 100,000 bytes.
    fn budget() -> ReadBudget {
        ReadBudget::new(400_000, 2 * US_PS)
    }

    #[test]
    fn no_more_is_asked_for_than_fits_and_those_who_wait_have_their_turns() {
        let mut b = budget();
        let rooms: Vec<_> = (0..3).map(|_| b.take_room(Time(0), 40_000)).collect();
        assert_eq!(rooms, [Some(0), Some(1), None]);
        b.wait(7, 40_000);
        b.wait(8, 10_000);
        assert_eq!((b.next_grant(Time(0)), b.take_room(Time(0), 1)), (None, None), "nobody overtakes");
        b.give_back(0, 4_096);
        b.give_back(0, 40_000);
        assert_eq!([b.next_grant(Time(0)), b.next_grant(Time(0))], [Some((7, 2)), Some((8, 3))]);
        assert_eq!(b.next_grant(Time(0)), None);
    }

    #[test]
    fn a_read_longer_than_the_budget_goes_alone() {
        let mut b = budget();
        assert_eq!((b.take_room(Time(0), 1 << 30), b.take_room(Time(0), 1)), (Some(0), None));
        b.give_back(0, 1 << 30);
        assert_eq!(b.take_room(Time(0), 1), Some(1));
    }

    #[test]
    fn room_of_a_silent_responder_comes_back_by_itself() {
        let mut b = budget();
        assert_eq!((b.take_room(Time(0), 100_000), b.deadline()), (Some(0), None));
        b.wait(1, 50_000);
        assert_eq!((b.deadline(), b.next_grant(Time(LIFE_PS - 1))), (Some(Time(LIFE_PS)), None));
        assert_eq!(b.next_grant(Time(LIFE_PS)), Some((1, 1)));
        b.give_back(0, 50_000);
        assert_eq!(b.take_room(Time(LIFE_PS), 60_000), None, "what is late gives nothing back twice");
    }

    #[test]
    fn without_a_horizon_there_is_no_limit() {
        let mut b = ReadBudget::new(400_000, 0);
        assert!((0..1_000).all(|_| b.take_room(Time(0), u32::MAX).is_some()));
    }
}
