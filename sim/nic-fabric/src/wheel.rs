//! The event queue: a timing wheel of 8.192 ns buckets with a heap for what lies beyond 67 us.
//!
//! Events come out ordered by (time, key), and keys name entities, so the order of two events of the same picosecond
//! does not depend on who pushed first. A bucket is sorted when time reaches it; an event pushed into the open bucket
//! (or before it, when the next event lay far ahead) is inserted in place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const BUCKET_PS_LOG2: u32 = 13;
const BUCKET_COUNT: usize = 8192;
const WORD_COUNT: usize = BUCKET_COUNT / 64;

/// A time in picoseconds (upper half) and a key that says what happens (lower half): one number, quick to compare.
type Event = u128;

fn event(time_ps: u64, key: u64) -> Event {
    u128::from(time_ps) << 64 | u128::from(key)
}

fn time_of(event: Event) -> u64 {
    (event >> 64) as u64
}

/// Events in the order of (time, key).
pub(crate) struct Wheel {
    buckets: Vec<Vec<Event>>,
    /// One bit per bucket: not empty.
    occupied: [u64; WORD_COUNT],
    /// Number of the open bucket, counted from time 0.
    open_number: u64,
    /// Events of the open bucket, sorted; those before `open_position` are gone.
    open: Vec<Event>,
    open_position: usize,
    far: BinaryHeap<Reverse<Event>>,
    /// Memory of drained buckets, the warmest last. Empty buckets have none of their own, so that what is touched is
    /// what the next few hundred nanoseconds need, not all the wheel.
    spare: Vec<Vec<Event>>,
    count: usize,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel {
            buckets: vec![Vec::new(); BUCKET_COUNT],
            occupied: [0; WORD_COUNT],
            open_number: 0,
            open: Vec::new(),
            open_position: 0,
            far: BinaryHeap::new(),
            spare: Vec::new(),
            count: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, time_ps: u64, key: u64) {
        self.count += 1;
        let number = time_ps >> BUCKET_PS_LOG2;
        if number <= self.open_number {
            self.insert_open(event(time_ps, key));
        } else if number - self.open_number < BUCKET_COUNT as u64 {
            let index = number as usize % BUCKET_COUNT;
            let bucket = &mut self.buckets[index];
            if bucket.capacity() == 0 {
                *bucket = self.spare.pop().unwrap_or_default();
            }
            bucket.push(event(time_ps, key));
            self.occupied[index / 64] |= 1 << (index % 64);
        } else {
            self.far.push(Reverse(event(time_ps, key)));
        }
    }

    fn insert_open(&mut self, event: Event) {
        let mut at = self.open.len();
        self.open.push(event);
        while at > self.open_position && self.open[at - 1] > event {
            self.open[at] = self.open[at - 1];
            at -= 1;
        }
        self.open[at] = event;
    }

    /// Takes the first event, unless it is later than `until_ps`.
    #[inline]
    pub(crate) fn pop_until(&mut self, until_ps: u64) -> Option<(u64, u64)> {
        if self.open_position == self.open.len() && !self.open_next() {
            return None;
        }
        let event = self.open[self.open_position];
        if time_of(event) > until_ps {
            return None;
        }
        self.open_position += 1;
        self.count -= 1;
        Some((time_of(event), event as u64))
    }

    /// Time of the first event.
    pub(crate) fn next_time_ps(&mut self) -> Option<u64> {
        if self.open_position == self.open.len() && !self.open_next() {
            return None;
        }
        Some(time_of(self.open[self.open_position]))
    }

    /// Opens the next bucket that holds anything. False if none does.
    fn open_next(&mut self) -> bool {
        self.open.clear();
        self.open_position = 0;
        if self.count == 0 {
            return false;
        }
        let near = self.next_occupied();
        let far = self.far.peek().map(|event| time_of(event.0) >> BUCKET_PS_LOG2);
        let number = match (near, far) {
            (Some(near), Some(far)) => near.min(far),
            (Some(number), None) | (None, Some(number)) => number,
            (None, None) => return false,
        };
        self.open_number = number;
        let index = number as usize % BUCKET_COUNT;
        if near == Some(number) {
            let drained = std::mem::replace(&mut self.open, std::mem::take(&mut self.buckets[index]));
            self.spare.push(drained);
            self.occupied[index / 64] &= !(1 << (index % 64));
        }
        while let Some(Reverse(event)) = self.far.peek() {
            if time_of(*event) >> BUCKET_PS_LOG2 != number {
                break;
            }
            self.open.push(*event);
            self.far.pop();
        }
        self.open.sort_unstable();
        true
    }

    /// Number of the first occupied bucket after the open one.
    fn next_occupied(&self) -> Option<u64> {
        let start = (self.open_number as usize + 1) % BUCKET_COUNT;
        let mut word = start / 64;
        let mut bits = self.occupied[word] & (u64::MAX << (start % 64));
        for _ in 0..=WORD_COUNT {
            if bits != 0 {
                let index = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (index + BUCKET_COUNT - start) % BUCKET_COUNT;
                return Some(self.open_number + 1 + ahead as u64);
            }
            word = (word + 1) % WORD_COUNT;
            bits = self.occupied[word];
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    /// The wheel against a sorted list, with pushes at every distance interleaved with pops up to a moving limit.
    fn check_against_heap(seed: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut wheel = Wheel::new();
        let mut reference = BinaryHeap::new();
        let mut now = 0;
        for _ in 0..20_000 {
            let range_log2 = rng.next_u32() % 34;
            let event = (now + (rng.next_u64() & ((1 << range_log2) - 1)), u64::from(rng.next_u32() % 4));
            wheel.push(event.0, event.1);
            reference.push(Reverse(event));
            if rng.next_u32() % 3 == 0 {
                let until = now + (rng.next_u64() & ((1 << (rng.next_u32() % 30)) - 1));
                loop {
                    let expected = match reference.peek() {
                        Some(Reverse(event)) if event.0 <= until => reference.pop().map(|event| event.0),
                        _ => None,
                    };
                    assert_eq!(wheel.pop_until(until), expected, "seed {seed}");
                    if expected.is_none() {
                        break;
                    }
                }
                now = until;
            }
        }
        while let Some(Reverse(event)) = reference.pop() {
            assert_eq!(wheel.next_time_ps(), Some(event.0), "seed {seed}");
            assert_eq!(wheel.pop_until(u64::MAX), Some(event), "seed {seed}");
        }
        assert_eq!(wheel.pop_until(u64::MAX), None, "seed {seed}");
    }

    #[test]
    fn events_come_out_by_time_then_key_as_from_a_heap() {
        for seed in 0..8 {
            check_against_heap(seed);
        }
    }

    #[test]
    fn event_before_the_open_bucket_comes_first() {
        let mut wheel = Wheel::new();
        wheel.push(1 << 40, 1);
        assert_eq!(wheel.pop_until(10), None);
        wheel.push(11, 2);
        assert_eq!(wheel.pop_until(20), Some((11, 2)));
        assert_eq!(wheel.next_time_ps(), Some(1 << 40));
    }
}
