//! The event queue: a timing wheel of 2.048 ns buckets with a heap for what lies beyond 16.8 us.
//!
//! Events come out ordered by (time, key), and keys name entities, so the order of two events of the same picosecond
//! does not depend on who pushed first. A bucket is a list of nodes of some events in one store, so that the memory touched is that of
//! the events that are set, and no more; it is sorted when time reaches it. An event pushed into the open bucket (or
//! before it, when the next event lay far ahead) is inserted in place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const BUCKET_PS_LOG2: u32 = 11;
/// Events in the open bucket lie within this time.
pub(crate) const BUCKET_PS: u64 = 1 << BUCKET_PS_LOG2;
const BUCKET_COUNT: usize = 8192;
const WORD_COUNT: usize = BUCKET_COUNT / 64;

/// A time in picoseconds (upper half) and a key that says what happens (lower half): one number, quick to compare.
type Event = u128;

#[inline]
fn event(time_ps: u64, key: u64) -> Event {
    u128::from(time_ps) << 64 | u128::from(key)
}

#[inline]
fn time_of(event: Event) -> u64 {
    (event >> 64) as u64
}

/// Ends a list of nodes.
const NODE_NONE: u32 = u32::MAX >> COUNT_BITS;
/// The number of events in a node takes so many bits.
const COUNT_BITS: u32 = 2;

/// Events of a bucket, or a free place; a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Node {
    events: [Event; NODE_EVENTS],
    next: u32,
}

/// First node of a bucket, and how many events that holds; all nodes after it are full. The number stands here, so that
/// to add an event is to write to a node and not to read it first.
#[derive(Clone, Copy)]
struct Bucket(u32);

impl Bucket {
    /// As if a node that is full came last, so that the next event gets a new one.
    const EMPTY: Bucket = Bucket::new(NODE_NONE, NODE_EVENTS);

    const fn new(node: u32, count: usize) -> Bucket {
        Bucket(node << COUNT_BITS | count as u32)
    }

    #[inline]
    const fn node(self) -> u32 {
        self.0 >> COUNT_BITS
    }

    #[inline]
    const fn count(self) -> usize {
        self.0 as usize % (1 << COUNT_BITS)
    }
}

/// What fits a cache line.
const NODE_EVENTS: usize = 3;

const _: () = assert!(std::mem::size_of::<Node>() == 64);

/// Events in the order of (time, key).
pub(crate) struct Wheel {
    buckets: Box<[Bucket; BUCKET_COUNT]>,
    nodes: Vec<Node>,
    /// First free node; the one freed last.
    free: u32,
    /// One bit per bucket: not empty.
    occupied: [u64; WORD_COUNT],
    /// Number of the open bucket, counted from time 0.
    open_number: u64,
    /// Up to `open_end` the events of the open bucket, sorted; those before `open_position` are gone. It never gets
    /// shorter, since to clear room costs time.
    open: Vec<Event>,
    open_position: usize,
    open_end: usize,
    /// Room for events before they are sorted, as long as `open`.
    drained: Vec<Event>,
    far: BinaryHeap<Reverse<Event>>,
    /// When the first event of `far` is due; `u64::MAX` if there is none.
    far_ps: u64,
}

impl Wheel {
    pub(crate) fn new() -> Wheel {
        Wheel {
            buckets: Box::new([Bucket::EMPTY; BUCKET_COUNT]),
            nodes: Vec::new(),
            free: NODE_NONE,
            occupied: [0; WORD_COUNT],
            open_number: 0,
            open: Vec::new(),
            open_position: 0,
            open_end: 0,
            drained: Vec::new(),
            far: BinaryHeap::new(),
            far_ps: u64::MAX,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, time_ps: u64, key: u64) {
        let number = time_ps >> BUCKET_PS_LOG2;
        let event = event(time_ps, key);
        // Wraps to a large number for the buckets before the open one.
        let ahead = number.wrapping_sub(self.open_number + 1);
        if ahead < BUCKET_COUNT as u64 - 1 {
            let index = number as usize % BUCKET_COUNT;
            let bucket = self.buckets[index];
            let (first, count) = (bucket.node(), bucket.count());
            if count < NODE_EVENTS {
                self.nodes[first as usize].events[count] = event;
                self.buckets[index] = Bucket::new(first, count + 1);
                return;
            }
            self.buckets[index] = Bucket::new(self.make_node(Node { events: [event, 0, 0], next: first }), 1);
            self.occupied[index / 64] |= 1 << (index % 64);
        } else if number <= self.open_number {
            self.insert_open(event);
        } else {
            self.far_ps = self.far_ps.min(time_ps);
            self.far.push(Reverse(event));
        }
    }

    #[inline]
    fn make_node(&mut self, node: Node) -> u32 {
        let at = self.free;
        match self.nodes.get_mut(at as usize) {
            Some(place) => {
                self.free = place.next;
                *place = node;
                at
            }
            None => {
                self.nodes.push(node);
                let at = u32::try_from(self.nodes.len() - 1).expect("events fit 30 bits");
                assert!(at < NODE_NONE, "events fit 30 bits");
                at
            }
        }
    }

    fn insert_open(&mut self, event: Event) {
        if self.open_end == self.open.len() {
            self.grow_open();
        }
        let mut at = self.open_end;
        self.open_end += 1;
        while at > self.open_position && self.open[at - 1] > event {
            self.open[at] = self.open[at - 1];
            at -= 1;
        }
        self.open[at] = event;
    }

    #[cold]
    fn grow_open(&mut self) {
        let len = (2 * self.open.len()).max(2 * SORT_BY_RANK_MAX);
        self.open.resize(len, 0);
        self.drained.resize(len, 0);
    }

    /// Takes the first event of the open bucket, unless it is later than `until_ps`.
    #[inline]
    pub(crate) fn pop_open(&mut self, until_ps: u64) -> Option<(u64, u64)> {
        let event = *self.open[..self.open_end].get(self.open_position)?;
        if time_of(event) > until_ps {
            return None;
        }
        self.open_position += 1;
        Some((time_of(event), event as u64))
    }

    /// Time and key of the next events of the open bucket, so many at most.
    #[inline]
    pub(crate) fn open_events(&self, count_max: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
        let end = self.open_end.min(self.open_position + count_max);
        let left = self.open.get(self.open_position..end).unwrap_or_default();
        left.iter().map(|event| (time_of(*event), *event as u64))
    }

    /// Time of an event of the open bucket; 0 is the next one.
    #[inline]
    pub(crate) fn open_time_ps(&self, place: usize) -> u64 {
        time_of(self.open[self.open_position + place])
    }

    /// Whether there is an event in the open bucket that is not later than `until_ps`.
    #[inline]
    pub(crate) fn has_open(&self, until_ps: u64) -> bool {
        self.open_position < self.open_end && time_of(self.open[self.open_position]) <= until_ps
    }

    /// Changes when an event is pushed into the open bucket.
    #[inline]
    pub(crate) fn open_len(&self) -> usize {
        self.open_end
    }

    /// Of the next `count` events of the open bucket, takes out those whose bits are set; bit 0 is the first one.
    #[inline]
    pub(crate) fn take_out(&mut self, count: usize, bits: u32) {
        let events = &mut self.open[self.open_position..self.open_position + count];
        // Those that stay move to the end.
        let mut end = count;
        for from in (0..count).rev() {
            events[end - 1] = events[from];
            end -= usize::from(bits >> from & 1 == 0);
        }
        self.open_position += end;
    }

    /// Time of the first event.
    pub(crate) fn next_time_ps(&mut self) -> Option<u64> {
        if self.open_position == self.open_end && !self.open_next(u64::MAX) {
            return None;
        }
        Some(time_of(self.open[self.open_position]))
    }

    /// Opens the next bucket that holds anything, once the open one is empty. False if it is not, if there is none, or
    /// if the next one begins after `until_ps`: what is set before then need not be inserted into an open bucket.
    pub(crate) fn open_next(&mut self, until_ps: u64) -> bool {
        if self.open_position < self.open_end {
            return false;
        }
        (self.open_position, self.open_end) = (0, 0);
        let far = self.far_ps >> BUCKET_PS_LOG2;
        let near = self.next_occupied();
        let number = match near {
            Some(near) => near.min(far),
            None if self.far.is_empty() => return false,
            None => far,
        };
        if number << BUCKET_PS_LOG2 > until_ps {
            return false;
        }
        self.open_number = number;
        let mut count = if near == Some(number) { self.drain(number as usize % BUCKET_COUNT) } else { 0 };
        if far == number {
            count = self.drain_far(number, count);
        }
        let (events, open) = (&self.drained[..count], &mut self.open[..count]);
        match count {
            0..=1 => open.copy_from_slice(events),
            2..=SORT_BY_RANK_MAX => sort_by_rank(events, open),
            _ => {
                open.copy_from_slice(events);
                open.sort_unstable();
            }
        }
        self.open_end = count;
        true
    }

    /// Moves the events of a bucket, of which there is one at least, to `drained`. Returns how many there are.
    #[inline]
    fn drain(&mut self, index: usize) -> usize {
        let bucket = std::mem::replace(&mut self.buckets[index], Bucket::EMPTY);
        self.occupied[index / 64] &= !(1 << (index % 64));
        let (first, mut count) = (bucket.node(), 0);
        let (mut last, mut more) = (first, bucket.count());
        loop {
            if count + NODE_EVENTS > self.drained.len() {
                self.grow_open();
            }
            let node = &self.nodes[last as usize];
            // All of them, of which the last may be none: that is quicker than to copy so many.
            self.drained[count..count + NODE_EVENTS].copy_from_slice(&node.events);
            count += more;
            if node.next == NODE_NONE {
                break;
            }
            (last, more) = (node.next, NODE_EVENTS);
        }
        self.nodes[last as usize].next = self.free;
        self.free = first;
        count
    }

    /// Adds the events of the heap that lie in a bucket to the first `count` of `drained`. Returns how many there are.
    #[cold]
    fn drain_far(&mut self, number: u64, mut count: usize) -> usize {
        self.far_ps = u64::MAX;
        while let Some(Reverse(event)) = self.far.peek() {
            if time_of(*event) >> BUCKET_PS_LOG2 != number {
                self.far_ps = time_of(*event);
                break;
            }
            if count == self.drained.len() {
                self.grow_open();
            }
            if let Some(Reverse(event)) = self.far.pop() {
                self.drained[count] = event;
                count += 1;
            }
        }
        count
    }

    /// Number of the first occupied bucket after the open one.
    #[inline]
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

/// Events up to which counting beats a sort that branches on what it compares, which nothing can predict.
const SORT_BY_RANK_MAX: usize = 24;

/// Bits of the place of an event among those that are sorted, and of what is taken of its entity.
const PLACE_BITS: u32 = 5;
const ENTITY_BITS: u32 = 12;

/// Puts every event of a bucket where as many are before it as are less than it. What is compared are short numbers, of
/// which the processor takes several at a time: the time within the bucket, the kind, the lower part of the entity, and
/// the place among `events`, by which no two are equal. Where that is not the order of the events themselves, it is put
/// right in the end.
#[inline]
fn sort_by_rank(events: &[Event], out: &mut [Event]) {
    let mut shorts = [i32::MAX; SHORTS_MAX];
    for (place, event) in events.iter().enumerate() {
        let (time, rest) = ((*event >> 64) as u32 % BUCKET_PS as u32, (*event >> 32) as u32);
        let (kind, entity) = (rest >> 28 & 7, rest % (1 << ENTITY_BITS));
        let short = ((time << 3 | kind) << ENTITY_BITS | entity) << PLACE_BITS | place as u32;
        shorts[place % SHORTS_MAX] = short as i32;
    }
    let mut ranks = [0; SHORTS_MAX];
    let (lanes, ranked) = (shorts.as_chunks().0, ranks.as_chunks_mut().0);
    for (lanes, ranked) in lanes.iter().zip(ranked).take(events.len().div_ceil(LANES)) {
        rank(lanes, &shorts[..events.len()], ranked);
    }
    for (event, rank) in events.iter().zip(&ranks) {
        out[*rank as usize] = *event;
    }
    for at in 1..out.len() {
        if out[at - 1] > out[at] {
            sink(out, at);
        }
    }
}

/// Numbers that are compared at a time.
const LANES: usize = 8;
/// As many as places can be told apart.
const SHORTS_MAX: usize = 1 << PLACE_BITS;
const _: () = assert!(SORT_BY_RANK_MAX <= SHORTS_MAX);

/// Tells of each number of `lanes` how many of `all` are less. Not inlined, or the compiler makes the ranks as wide as
/// their use as indices asks for, and the processor takes half as many at a time.
#[inline(never)]
fn rank(lanes: &[i32; LANES], all: &[i32], ranks: &mut [i32; LANES]) {
    let mut sums = [0; LANES];
    for short in all {
        for (sum, own) in sums.iter_mut().zip(lanes) {
            *sum += i32::from(short < own);
        }
    }
    *ranks = sums;
}

/// Moves an event down to its place among the sorted ones before it.
#[cold]
fn sink(events: &mut [Event], mut at: usize) {
    while at > 0 && events[at - 1] > events[at] {
        events.swap(at - 1, at);
        at -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    /// The first event, unless it is later than `until_ps`.
    fn pop(wheel: &mut Wheel, until_ps: u64) -> Option<(u64, u64)> {
        wheel.pop_open(until_ps).or_else(|| wheel.open_next(until_ps).then(|| wheel.pop_open(until_ps))?)
    }

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
                    assert_eq!(pop(&mut wheel, until), expected, "seed {seed}");
                    if expected.is_none() {
                        break;
                    }
                }
                now = until;
            }
        }
        while let Some(Reverse(event)) = reference.pop() {
            assert_eq!(wheel.next_time_ps(), Some(event.0), "seed {seed}");
            assert_eq!(pop(&mut wheel, u64::MAX), Some(event), "seed {seed}");
        }
        assert_eq!(pop(&mut wheel, u64::MAX), None, "seed {seed}");
    }

    #[test]
    fn events_come_out_by_time_then_key_as_from_a_heap() {
        for seed in 0..8 {
            check_against_heap(seed);
        }
    }

    #[test]
    fn equal_events_all_come_out() {
        for count in [2, SORT_BY_RANK_MAX, SORT_BY_RANK_MAX + 1] {
            let mut wheel = Wheel::new();
            (0..count).for_each(|i| wheel.push(5_000 + i as u64 % 2, 7));
            let times: Vec<_> = std::iter::from_fn(|| pop(&mut wheel, u64::MAX)).map(|event| event.0).collect();
            let expected: Vec<_> = (0..count).map(|i| 5_000 + u64::from(i >= count.div_ceil(2))).collect();
            assert_eq!(times, expected);
        }
    }

    #[test]
    fn event_before_the_open_bucket_comes_first() {
        let mut wheel = Wheel::new();
        wheel.push(1 << 40, 1);
        assert_eq!(pop(&mut wheel, 10), None);
        wheel.push(11, 2);
        assert_eq!(pop(&mut wheel, 20), Some((11, 2)));
        assert_eq!(wheel.next_time_ps(), Some(1 << 40));
    }
}
