//! Timers of the card: a heap in order of time, and of setting where times are equal.
//!
//! Acknowledgements are all owed after the same time, so their timers come in the order in which they are set: a queue
//! beside the heap holds those.
//!
//! A timer is never moved or taken out. Who owns one remembers when its earliest entry is due; an entry that comes due
//! too early makes its owner set the next one. So a packet that only pushes a deadline back costs nothing here.

use crate::foresee::Fetch;
use crate::time::Time;
use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;

/// Whose timer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerKey {
    /// Probe or retransmission of a path: connection, path.
    Path(u32, u8),
    /// Acknowledgement owed for a path: connection, path.
    Ack(u32, u8),
    /// The connection's token bucket is filled again.
    Pace(u32),
    /// The wait of the connection after a receiver-not-ready refusal is over, or credit is to be asked for.
    Retry(u32),
    /// Reads that wait for room may go on.
    Reads,
    /// Slow affairs of a connection: number of paths, handshakes, quarantine.
    Conn(u32),
}

/// The timers.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Timers {
    /// When the first one is due; kept, since it is asked for after every event.
    first_at: Time,
    set_count: u64,
    /// Ascending.
    in_order: VecDeque<(Time, u64, TimerKey)>,
    heap: BinaryHeap<Reverse<(Time, u64, TimerKey)>>,
}

impl Default for Timers {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), in_order: VecDeque::new(), set_count: 0, first_at: Time::NEVER }
    }
}

impl Timers {
    /// Sets a timer.
    #[inline(never)]
    pub fn set(&mut self, at: Time, key: TimerKey) {
        self.set_count += 1;
        self.first_at = self.first_at.min(at);
        let entry = (at, self.set_count, key);
        if matches!(key, TimerKey::Ack(..)) && self.in_order.back().is_none_or(|last| last.0 <= at) {
            self.in_order.push_back(entry);
        } else {
            self.heap.push(Reverse(entry));
        }
    }

    /// Sets a timer unless one that is due at or before `at` is already set; `armed` remembers.
    #[inline]
    pub fn arm(&mut self, armed: &mut Time, at: Time, key: TimerKey) {
        if at < *armed {
            *armed = at;
            self.set(at, key);
        }
    }

    /// When the first one is due.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        (self.first_at != Time::NEVER).then_some(self.first_at)
    }

    /// Whose acknowledgement is due first: connection, path.
    #[inline]
    pub fn next_ack(&self) -> Option<(u32, u8)> {
        match self.in_order.front()?.2 {
            TimerKey::Ack(conn, path) => Some((conn, path)),
            _ => None,
        }
    }

    /// Has what is looked at first fetched.
    #[inline]
    pub fn foresee(&self, fetch: impl Fetch) {
        if let Some(entry) = self.in_order.front() {
            fetch.line(entry);
        }
        if let Some(entry) = self.heap.peek() {
            fetch.line(entry);
        }
        // One that is set now goes to the end.
        if let Some(entry) = self.in_order.back() {
            fetch.line(entry);
        }
    }

    fn find_first(&self) -> Time {
        let (queued, heaped) = (self.in_order.front().map(|e| e.0), self.heap.peek().map(|e| e.0 .0));
        queued.unwrap_or(Time::NEVER).min(heaped.unwrap_or(Time::NEVER))
    }

    /// Takes the first one if it is due.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, TimerKey)> {
        if now < self.first_at {
            return None;
        }
        let queued = self.in_order.front().map(|e| (e.0, e.1));
        let is_queued_first = match (queued, self.heap.peek()) {
            (Some(a), Some(Reverse(b))) => a < (b.0, b.1),
            (queued, _) => queued.is_some(),
        };
        let (at, _, key) = if is_queued_first {
            self.in_order.front().copied().filter(|e| e.0 <= now)?
        } else {
            self.heap.peek().map(|e| e.0).filter(|e| e.0 <= now)?
        };
        if is_queued_first {
            self.in_order.pop_front();
        } else {
            self.heap.pop();
        }
        self.first_at = self.find_first();
        Some((at, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn timers_come_in_order_of_time_and_of_setting() {
        let mut t = Timers::default();
        for (at, conn) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            t.set(Time(at), TimerKey::Pace(conn));
        }
        assert_eq!((t.next(), t.pop_due(Time(2))), (Some(Time(3)), None));
        let got: Vec<_> = core::iter::from_fn(|| t.pop_due(Time(9))).collect();
        let want = [(3, 1), (3, 3), (5, 0), (5, 2)].map(|(at, conn)| (Time(at), TimerKey::Pace(conn)));
        assert_eq!((got, t.next()), (want.to_vec(), None));
    }

    #[test]
    fn arming_a_later_deadline_sets_nothing() {
        let (mut t, mut armed) = (Timers::default(), Time::NEVER);
        for at in [10, 20, 10, 5] {
            t.arm(&mut armed, Time(at), TimerKey::Conn(0));
        }
        assert_eq!(core::iter::from_fn(|| t.pop_due(Time::NEVER)).count(), 2, "10 and 5");
    }

    #[test]
    fn acknowledgement_timers_keep_their_order_among_the_others_even_when_set_out_of_order() {
        let mut t = Timers::default();
        let keys =
            [TimerKey::Ack(0, 0), TimerKey::Pace(1), TimerKey::Ack(2, 0), TimerKey::Ack(3, 0), TimerKey::Pace(4)];
        for (at, key) in [5, 5, 7, 6, 7].into_iter().zip(keys) {
            t.set(Time(at), key);
        }
        assert_eq!(t.pop_due(Time(4)), None);
        let got: Vec<_> = core::iter::from_fn(|| t.pop_due(Time(9))).map(|(at, key)| (at.0, key)).collect();
        assert_eq!(got, [(5, keys[0]), (5, keys[1]), (6, keys[3]), (7, keys[2]), (7, keys[4])]);
    }
}
