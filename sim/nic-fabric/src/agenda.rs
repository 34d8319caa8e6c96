//! When something happens to each node of a shard.
//!
//! Frames wait on the links that lead to a node, in the order of their arrival; what else concerns it (timers, pauses,
//! frames out of order) is in a heap of its own. What concerns all nodes at once, outages, is in one more. Events come
//! ordered by (time, key), and keys name entities, so the order of two events of the same picosecond does not depend on
//! which was set first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A time in picoseconds (upper half) and a key that says what happens (lower half): one number, quick to compare.
type Event = u128;

/// No event.
pub(crate) const NEVER_PS: u64 = u64::MAX;

#[inline]
fn time_of(event: Event) -> u64 {
    (event >> 64) as u64
}

/// Events in the order of (time, key).
#[derive(Default)]
pub(crate) struct Events(BinaryHeap<Reverse<Event>>);

impl Events {
    #[inline]
    pub(crate) fn push(&mut self, time_ps: u64, key: u64) {
        self.0.push(Reverse(u128::from(time_ps) << 64 | u128::from(key)));
    }

    /// Time and key of the first.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.0.peek().map(|Reverse(event)| (time_of(*event), *event as u64))
    }

    /// Takes the first.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, u64)> {
        self.0.pop().map(|Reverse(event)| (time_of(event), event as u64))
    }

    /// Keeps those whose key satisfies a condition.
    pub(crate) fn retain(&mut self, keeps: impl Fn(u64) -> bool) {
        self.0.retain(|Reverse(event)| keeps(*event as u64));
    }

    #[inline]
    pub(crate) fn first_ps(&self) -> u64 {
        self.0.peek().map_or(NEVER_PS, |Reverse(event)| time_of(*event))
    }
}

/// The events of a shard.
pub(crate) struct Agenda {
    /// Per node: nothing happens to it before this.
    next_ps: Vec<u64>,
    /// Per node: what is not a frame on a link.
    own: Vec<Events>,
    /// What concerns all nodes.
    pub common: Events,
}

impl Agenda {
    pub(crate) fn new(node_count: usize) -> Agenda {
        Agenda {
            next_ps: vec![NEVER_PS; node_count],
            own: (0..node_count).map(|_| Events::default()).collect(),
            common: Events::default(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, node: u32, time_ps: u64, key: u64) {
        self.own[node as usize].push(time_ps, key);
        self.expect(node, time_ps);
    }

    /// Something will happen to a node, a frame that arrives for instance.
    #[inline]
    pub(crate) fn expect(&mut self, node: u32, time_ps: u64) {
        let next_ps = &mut self.next_ps[node as usize];
        *next_ps = time_ps.min(*next_ps);
    }

    /// Everything of a node is done that was due; its first frame arrives at `arrival_ps`.
    #[inline]
    pub(crate) fn settle(&mut self, node: u32, arrival_ps: u64) {
        self.next_ps[node as usize] = arrival_ps.min(self.own[node as usize].first_ps());
    }

    /// The events of a node that are not frames on links.
    #[inline]
    pub(crate) fn own(&mut self, node: u32) -> &mut Events {
        &mut self.own[node as usize]
    }

    /// Time of the first of them.
    #[inline(always)]
    pub(crate) fn first_own_ps(&self, node: u32) -> u64 {
        self.own[node as usize].first_ps()
    }

    /// Time and key of the first of them.
    #[inline]
    pub(crate) fn first_own(&self, node: u32) -> Option<(u64, u64)> {
        self.own[node as usize].first()
    }

    /// Nothing happens to a node before this.
    #[inline]
    pub(crate) fn next_ps(&self, node: u32) -> u64 {
        self.next_ps[node as usize]
    }

    /// Nothing happens in the shard before this.
    pub(crate) fn first_ps(&self) -> u64 {
        self.next_ps.iter().copied().fold(self.common.first_ps(), u64::min)
    }
}
