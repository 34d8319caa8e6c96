//! Collectives as messages: ring, double binary tree, direct all-to-all.
//!
//! Each takes a group of hosts and, per member, the steps it comes after; each returns per member one step that is done when
//! the member has its result (and, if others have theirs from it alone, has handed it over). A buffer is cut into slices that move independently, so a member passes on the first slice
//! while the second is still coming.

use crate::workload::graph::{Builder, StepId, MESSAGE_BYTES_MAX};

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Every member ends with the sum of all buffers of `bytes`, by a ring: each member sends 2 (n-1)/n of the buffer.
    RingAllReduce,
    /// The same by two binary trees, each with half of the buffer: up to the roots, then down.
    TreeAllReduce,
    /// Every member ends with its n-th of the sum of all buffers of `bytes`, by a ring.
    ReduceScatter,
    /// Every member contributes `bytes` and ends with all of them, by a ring.
    AllGather,
    /// The first member's `bytes` reach all, by a binary tree.
    Broadcast,
    /// The first member ends with the sum of all buffers of `bytes`, by a binary tree.
    Reduce,
    /// Every member's `bytes` go to the first.
    Gather,
    /// The first member sends different `bytes` to every other.
    Scatter,
    /// Every member sends a different `bytes` to every other, in the order of their distance.
    AllToAll {
        /// How many messages a member has under way at once; 0 is no limit.
        depth: u32,
    },
}

/// A collective among some hosts.
#[derive(Clone, Copy, Debug)]
pub struct Collective<'a> {
    /// What it does.
    pub kind: CollectiveKind,
    /// Its members, in the order of the ring.
    pub group: &'a [u32],
    /// Size, as [`CollectiveKind`] says.
    pub bytes: u64,
    /// Independent pieces of what a message of the plain algorithm would carry.
    pub slices: u32,
    /// Stream of its messages; slice `i` uses `stream + i % streams`.
    pub stream: u16,
    /// How many streams the slices are spread over.
    pub streams: u16,
}

impl Collective<'_> {
    /// Adds the collective. `after` has one list per member; an empty outer list is none for anyone.
    ///
    /// # Panics
    /// If `after` has neither one entry per member nor none.
    pub fn add_to(&self, builder: &mut Builder, after: &[Vec<StepId>]) -> Vec<StepId> {
        assert!(after.is_empty() || after.len() == self.group.len(), "steps to come after for {} members", after.len());
        let joins: Vec<StepId> = (0..self.group.len())
            .map(|member| builder.wait(self.group[member], 0, after.get(member).map_or(&[][..], Vec::as_slice)))
            .collect();
        let count = self.group.len() as u64;
        let mut ends: Vec<Vec<StepId>> = joins.iter().map(|join| vec![*join]).collect();
        if count > 1 {
            match self.kind {
                CollectiveKind::RingAllReduce => self.ring(builder, &joins, &mut ends, 2 * (count - 1), self.bytes),
                CollectiveKind::ReduceScatter => self.ring(builder, &joins, &mut ends, count - 1, self.bytes),
                CollectiveKind::AllGather => {
                    self.ring(builder, &joins, &mut ends, count - 1, self.bytes.saturating_mul(count));
                }
                CollectiveKind::TreeAllReduce => {
                    for (tree, bytes) in parts(self.bytes, 2).enumerate() {
                        for (slice, bytes) in self.slices(bytes) {
                            let sums = self.up(builder, &joins, tree, slice, bytes);
                            self.down(builder, &sums, tree, slice, bytes, &mut ends);
                        }
                    }
                }
                CollectiveKind::Broadcast => {
                    for (slice, bytes) in self.slices(self.bytes) {
                        let sources: Vec<Vec<StepId>> = joins.iter().map(|join| vec![*join]).collect();
                        self.down(builder, &sources, 0, slice, bytes, &mut ends);
                    }
                }
                CollectiveKind::Reduce => {
                    for (slice, bytes) in self.slices(self.bytes) {
                        let sums = self.up(builder, &joins, 0, slice, bytes);
                        ends.iter_mut().zip(sums).for_each(|(ends, sums)| ends.extend(sums));
                    }
                }
                CollectiveKind::Gather => self.star(builder, &joins, &mut ends, |leaf| (leaf, 0)),
                CollectiveKind::Scatter => self.star(builder, &joins, &mut ends, |leaf| (0, leaf)),
                CollectiveKind::AllToAll { depth } => self.all_to_all(builder, &joins, depth as usize, &mut ends),
            }
        }
        self.group.iter().zip(ends).map(|(host, ends)| builder.wait(*host, 0, &ends)).collect()
    }

    fn stream_of(&self, slice: usize) -> u16 {
        self.stream + (slice % usize::from(self.streams.max(1))) as u16
    }

    /// Slices of a message, none larger than a message may be and none empty where there are bytes.
    fn slices(&self, bytes: u64) -> impl Iterator<Item = (usize, u64)> {
        let count = u64::from(self.slices).max(bytes.div_ceil(MESSAGE_BYTES_MAX)).clamp(1, bytes.max(1));
        parts(bytes, count).enumerate()
    }

    /// So many rounds in which every member passes to the next what it got in the round before.
    fn ring(&self, builder: &mut Builder, joins: &[StepId], ends: &mut [Vec<StepId>], rounds: u64, bytes: u64) {
        let count = self.group.len();
        let chunks: Vec<u64> = parts(bytes, count as u64).collect();
        // What a member got of each slice in the round before.
        let mut held: Vec<Vec<StepId>> = vec![Vec::new(); count];
        for round in 0..rounds as usize {
            let mut got = vec![Vec::new(); count];
            for member in 0..count {
                let next = (member + 1) % count;
                let chunk = (member + rounds as usize * count - round) % count;
                for (slice, bytes) in self.slices(chunks[chunk]) {
                    let before = held[member].get(slice).copied().unwrap_or(joins[member]);
                    let stream = self.stream_of(slice);
                    let (_, receive) = builder.write(self.group[member], self.group[next], bytes, stream, &[before]);
                    builder.order(joins[next], receive);
                    got[next].push(receive);
                    ends[next].push(receive);
                }
            }
            held = got;
        }
    }

    /// A member's place in a tree, which is the heap of its index; the second tree is the mirror of the first, so that
    /// members that have children in one are mostly leaves of the other.
    fn place(&self, member: usize, tree: usize) -> usize {
        if tree == 0 {
            member
        } else {
            self.group.len() - 1 - member
        }
    }

    /// Every member sends to its parent when its children's have come. Returns per member the steps after which it has the sum
    /// of its subtree.
    fn up(&self, builder: &mut Builder, joins: &[StepId], tree: usize, slice: usize, bytes: u64) -> Vec<Vec<StepId>> {
        let mut sums: Vec<Vec<StepId>> = joins.iter().map(|join| vec![*join]).collect();
        for place in (1..self.group.len()).rev() {
            let (member, parent) = (self.place(place, tree), self.place((place - 1) / 2, tree));
            let after = sums[member].clone();
            let stream = self.stream_of(slice);
            let (_, receive) = builder.write(self.group[member], self.group[parent], bytes, stream, &after);
            builder.order(joins[parent], receive);
            sums[parent].push(receive);
        }
        sums
    }

    /// Every member sends to its children when its parent's has come.
    fn down(
        &self,
        builder: &mut Builder,
        sums: &[Vec<StepId>],
        tree: usize,
        slice: usize,
        bytes: u64,
        ends: &mut [Vec<StepId>],
    ) {
        let mut sources = sums.to_vec();
        for place in 1..self.group.len() {
            let (member, parent) = (self.place(place, tree), self.place((place - 1) / 2, tree));
            let after = sources[parent].clone();
            let stream = self.stream_of(slice);
            let (send, receive) = builder.write(self.group[parent], self.group[member], bytes, stream, &after);
            builder.order(sums[member][0], receive);
            sources[member] = vec![receive];
            ends[member].push(receive);
            // A member that got nothing has done its part when what it sent has gone out.
            if place <= 2 && self.kind == CollectiveKind::Broadcast {
                ends[parent].push(send);
            }
        }
        ends[self.place(0, tree)].extend(&sums[self.place(0, tree)]);
    }

    /// One transfer per member but the first, between the two that `ends_of` names.
    fn star(
        &self,
        builder: &mut Builder,
        joins: &[StepId],
        ends: &mut [Vec<StepId>],
        ends_of: impl Fn(usize) -> (usize, usize),
    ) {
        for leaf in 1..self.group.len() {
            let (src, dst) = ends_of(leaf);
            for (slice, bytes) in self.slices(self.bytes) {
                let stream = self.stream_of(slice);
                let (send, receive) = builder.write(self.group[src], self.group[dst], bytes, stream, &[joins[src]]);
                builder.order(joins[dst], receive);
                ends[src].push(send);
                ends[dst].push(receive);
            }
        }
    }

    fn all_to_all(&self, builder: &mut Builder, joins: &[StepId], depth: usize, ends: &mut [Vec<StepId>]) {
        let count = self.group.len();
        for member in 0..count {
            let mut sends: Vec<StepId> = Vec::new();
            for distance in 1..count {
                let peer = (member + distance) % count;
                for (slice, bytes) in self.slices(self.bytes) {
                    let mut after = vec![joins[member]];
                    after.extend(sends.len().checked_sub(depth).filter(|_| depth > 0).map(|oldest| sends[oldest]));
                    let stream = self.stream_of(slice);
                    let (send, receive) = builder.write(self.group[member], self.group[peer], bytes, stream, &after);
                    builder.order(joins[peer], receive);
                    sends.push(send);
                    ends[member].push(send);
                    ends[peer].push(receive);
                }
            }
        }
    }
}

/// `total` in `count` parts that differ by at most one.
pub(crate) fn parts(total: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |index| total / count + u64::from(index < total % count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::floor::Floor;
    use crate::workload::graph::Workload;

    fn make(kind: CollectiveKind, count: u32, bytes: u64, slices: u32) -> Workload {
        let group: Vec<u32> = (0..count).collect();
        let mut builder = Builder::new(count);
        Collective { kind, group: &group, bytes, slices, stream: 0, streams: 1 }.add_to(&mut builder, &[]);
        builder.build().unwrap()
    }

    fn sent_by(workload: &Workload, host: u32) -> u64 {
        workload.messages().iter().filter(|message| message.src == host).map(|message| message.bytes).sum()
    }

    #[test]
    fn ring_all_reduce_sends_twice_the_buffer_less_a_share() {
        let workload = make(CollectiveKind::RingAllReduce, 8, 8_000, 4);
        assert_eq!(workload.messages().len(), 8 * 14 * 4);
        assert!((0..8).all(|host| sent_by(&workload, host) == 2 * 7_000));
        assert!(workload.messages().iter().all(|message| message.dst == (message.src + 1) % 8));
    }

    #[test]
    fn uneven_buffer_loses_no_byte() {
        for kind in [CollectiveKind::RingAllReduce, CollectiveKind::ReduceScatter] {
            let workload = make(kind, 5, 1_003, 3);
            let rounds = workload.bytes() / 1_003;
            assert_eq!(
                (workload.bytes() % 1_003, rounds),
                (0, if kind == CollectiveKind::ReduceScatter { 4 } else { 8 })
            );
        }
    }

    #[test]
    fn rounds_of_a_ring_follow_each_other() {
        // With no overhead, a latency of 0 and 1 byte a picosecond, the chain is the number of rounds.
        let floor = Floor { rate_mbps: 8_000_000, latency_ps: 0, short_latency_ps: 0, mtu_bytes: 1, overhead_bytes: 0 };
        assert_eq!(floor.duration_ps(&make(CollectiveKind::RingAllReduce, 8, 800, 1)), 14 * 100);
        assert_eq!(floor.duration_ps(&make(CollectiveKind::AllGather, 8, 100, 1)), 7 * 100);
        assert_eq!(floor.duration_ps(&make(CollectiveKind::ReduceScatter, 8, 800, 1)), 7 * 100);
    }

    #[test]
    fn tree_all_reduce_moves_each_half_up_and_down_once() {
        let workload = make(CollectiveKind::TreeAllReduce, 7, 1_000, 1);
        assert_eq!(workload.messages().len(), 2 * 2 * 6);
        assert_eq!(workload.bytes(), 2 * 6 * 1_000);
        // Three levels: two up, two down, half of the buffer each.
        let floor = Floor {
            rate_mbps: 8_000_000,
            latency_ps: 10_000,
            short_latency_ps: 10_000,
            mtu_bytes: 1_000,
            overhead_bytes: 0,
        };
        assert_eq!(floor.duration_ps(&workload), 4 * (500 + 10_000));
    }

    #[test]
    fn all_to_all_sends_to_every_other_and_keeps_its_depth() {
        let workload = make(CollectiveKind::AllToAll { depth: 2 }, 6, 100, 1);
        for src in 0..6 {
            let mut peers: Vec<u32> =
                workload.messages().iter().filter(|message| message.src == src).map(|message| message.dst).collect();
            peers.sort_unstable();
            assert_eq!(peers, (0..6).filter(|host| *host != src).collect::<Vec<_>>());
        }
        let floor = Floor {
            rate_mbps: 8_000_000,
            latency_ps: 10_000,
            short_latency_ps: 10_000,
            mtu_bytes: 1_000,
            overhead_bytes: 0,
        };
        // Five messages, two at a time: the fifth waits for the third, that for the first; each a round trip.
        assert_eq!(floor.duration_ps(&workload), 3 * (100 + 20_000));
    }

    #[test]
    fn rooted_collectives_move_one_buffer_per_other_member() {
        for kind in [CollectiveKind::Broadcast, CollectiveKind::Reduce, CollectiveKind::Gather, CollectiveKind::Scatter]
        {
            assert_eq!(make(kind, 9, 100, 3).bytes(), 800, "{kind:?}");
        }
        let to_root = |kind| make(kind, 9, 100, 1).messages().iter().filter(|message| message.dst == 0).count();
        assert_eq!([CollectiveKind::Reduce, CollectiveKind::Gather, CollectiveKind::Scatter].map(to_root), [2, 8, 0]);
    }

    #[test]
    fn group_of_one_has_nothing_to_send() {
        let workload = make(CollectiveKind::RingAllReduce, 1, 1_000, 1);
        assert!(workload.messages().is_empty() && workload.steps().len() == 2);
    }
}
