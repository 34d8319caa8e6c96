//! Timers of the card: a heap in order of time, and of setting where times are equal.
//!
//! A timer is never moved or taken out. Who owns one remembers when its earliest entry is due; an entry that comes due
//! too early makes its owner set the next one. So a packet that only pushes a deadline back costs nothing here.

use crate::time::Time;
use alloc::collections::BinaryHeap;
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
    /// Slow affairs of a connection: number of paths, handshakes, quarantine.
    Conn(u32),
}

/// The timers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u64, TimerKey)>>,
    set_count: u64,
}

impl Timers {
    /// Sets a timer.
    pub fn set(&mut self, at: Time, key: TimerKey) {
        self.set_count += 1;
        self.heap.push(Reverse((at, self.set_count, key)));
    }

    /// Sets a timer unless one that is due at or before `at` is already set; `armed` remembers.
    pub fn arm(&mut self, armed: &mut Time, at: Time, key: TimerKey) {
        if at < *armed {
            *armed = at;
            self.set(at, key);
        }
    }

    /// When the first one is due.
    pub fn next(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.0 .0)
    }

    /// Takes the first one if it is due.
    pub fn pop_due(&mut self, now: Time) -> Option<(Time, TimerKey)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((at, _, key))| (at, key))
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
}
