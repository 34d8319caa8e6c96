//! The order in which the nodes of a shard are served: each for as long as nothing new can reach it.
//!
//! What a node does takes at least the shortest link to reach another. So a node can be served for a while, all its
//! events in a row, without looking at the others: what they send meanwhile arrives later. The outcome is that of the
//! order of events, since nothing but frames and pause requests passes between nodes. In memory it is quite
//! another thing: a node's state is fetched once for dozens of frames and not for each of them, and nobody has to keep
//! the events of all nodes sorted.
//!
//! In most networks (leaf and spine, fat trees) the nodes fall into two sides such that every cable joins one of each:
//! hosts and spines here, leaves there. While one side is served the other waits, so each can be served twice as far:
//!
//! ```text
//!              done by the other side
//!   hosts,          ▼ + shortest link
//!   spines  ────────────────┤ served up to here
//!   leaves  ────────┤                           then the leaves, as far again beyond that, and so on
//! ```
//!
//! A time at which nothing happens anywhere is skipped; outages, which concern both sides, come between two sweeps.

use crate::engine::Core;
use crate::flight::Flight;
use crate::frame::{FRAME_BYTES_MIN, WIRE_OVERHEAD_BYTES};
use crate::topology::{LinkId, Topology};

/// Longest time for which one side is served. More would let what its frames take outgrow the caches, and the places of
/// arrivals are numbers of 32 bits.
const SWEEP_PS_MAX: u64 = 1 << 23;

const _: () = assert!(SWEEP_PS_MAX <= 1 << 32);

/// The nodes of a shard in the order in which they are served.
pub(crate) struct Sides {
    nodes: [Vec<u32>; 2],
    /// No cable joins two nodes of the same side.
    are_two: bool,
    /// The least time from what a node does to its effect at another.
    lookahead_ps: u64,
}

/// How far the sides have come: everything before is done.
pub(crate) struct Progress {
    done_ps: [u64; 2],
}

impl Sides {
    /// The nodes of one shard.
    pub(crate) fn new(topology: &Topology, shard_of: &[u16], shard: u16) -> Sides {
        let sides = two_sides(topology);
        let side_of = |node: u32| sides.as_ref().map_or(0, |sides| sides[node as usize]);
        let mut nodes = [Vec::new(), Vec::new()];
        for node in (0..shard_of.len() as u32).filter(|node| shard_of[*node as usize] == shard) {
            nodes[usize::from(side_of(node))].push(node);
        }
        let shortest = u64::from(FRAME_BYTES_MIN + WIRE_OVERHEAD_BYTES);
        let specs = (0..topology.link_count()).map(|link| topology.link_spec(LinkId(link)));
        let lookahead_ps = specs.map(|spec| spec.delay_ps + spec.serialisation_ps(shortest)).min();
        Sides { nodes, are_two: sides.is_some(), lookahead_ps: lookahead_ps.unwrap_or(SWEEP_PS_MAX) }
    }

    /// The nodes of a side.
    pub(crate) fn nodes(&self, side: usize) -> &[u32] {
        &self.nodes[side]
    }

    /// Up to where, exclusively, a side can be served now, but not beyond `limit_ps`.
    fn horizon_ps(&self, side: usize, progress: &Progress, limit_ps: u64) -> u64 {
        let other = if self.are_two { 1 - side } else { side };
        let reach_ps = progress.done_ps[other].saturating_add(self.lookahead_ps);
        reach_ps.min(progress.done_ps[side].saturating_add(SWEEP_PS_MAX)).min(limit_ps)
    }
}

impl Progress {
    /// Nothing happens before `start_ps`.
    pub(crate) fn from(start_ps: u64) -> Progress {
        Progress { done_ps: [start_ps; 2] }
    }

    /// Lets a side go on as far as it can, but not beyond `limit_ps`. Returns the time it takes, first and last picosecond.
    pub(crate) fn advance(&mut self, sides: &Sides, side: usize, limit_ps: u64) -> Option<(u64, u64)> {
        let (start_ps, end_ps) = (self.done_ps[side], sides.horizon_ps(side, self, limit_ps));
        self.done_ps[side] = end_ps;
        (end_ps > start_ps).then(|| (start_ps, end_ps - 1))
    }
}

/// Which of two sides each node is on, if the network falls into two.
fn two_sides(topology: &Topology) -> Option<Vec<u8>> {
    let node_count = topology.hosts.len() + topology.switches.len();
    let mut neighbours = vec![Vec::new(); node_count];
    for link in 0..topology.link_count() {
        let (from, to) = topology.ends(LinkId(link));
        neighbours[topology.node_of(from).0 as usize].push(topology.node_of(to).0 as usize);
    }
    let mut sides: Vec<Option<u8>> = vec![None; node_count];
    for first in 0..node_count {
        if sides[first].is_some() {
            continue;
        }
        sides[first] = Some(0);
        let mut reached = vec![first];
        while let Some(node) = reached.pop() {
            let other = sides[node].map(|side| 1 - side);
            for &neighbour in &neighbours[node] {
                match sides[neighbour] {
                    None => {
                        sides[neighbour] = other;
                        reached.push(neighbour);
                    }
                    side if side != other => return None,
                    _ => {}
                }
            }
        }
    }
    sides.into_iter().collect()
}

/// The frames that reach a node in a time, in the order of (time, link).
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Time since `start_ps` (upper half) and link.
    order: Vec<u64>,
    start_ps: u64,
    /// Links by which they come.
    link_count: usize,
    /// Room to sort.
    sorted: Vec<u64>,
}

/// Arrivals from which on they are sorted by counting.
const COUNT_MIN: usize = 32;
const BUCKETS_LOG2: u32 = 7;
const BUCKETS: usize = 1 << BUCKETS_LOG2;

impl Arrivals {
    /// Finds the frames that reach a node from `start_ps` to `end_ps`, no earlier ones being left.
    #[inline]
    pub(crate) fn find(&mut self, core: &Core, node: u32, (start_ps, end_ps): (u64, u64)) {
        self.order.clear();
        self.start_ps = start_ps;
        self.link_count = 0;
        for out in core.net.ports(node) {
            let link = out ^ 1;
            let before = self.order.len();
            let flights = core.rx[link as usize].line.until(end_ps);
            self.order.extend(flights.map(|flight| (flight.arrival_ps - start_ps) << 32 | u64::from(link)));
            self.link_count += usize::from(self.order.len() > before);
        }
        if self.link_count > 1 {
            self.sort(end_ps - start_ps);
        }
    }

    /// Sorts what came from several links, spread about evenly over the time: first roughly, by counting, which needs no
    /// branches on what is compared, then what is left by insertion.
    fn sort(&mut self, span_ps: u64) {
        if self.order.len() < COUNT_MIN {
            return self.order.sort_unstable();
        }
        let shift = 32 + (u64::BITS - span_ps.leading_zeros()).saturating_sub(BUCKETS_LOG2);
        let mut ends = [0; BUCKETS];
        for entry in &self.order {
            ends[(entry >> shift) as usize % BUCKETS] += 1;
        }
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        self.sorted.clear();
        self.sorted.resize(self.order.len(), 0);
        for entry in &self.order {
            let place = &mut ends[(entry >> shift) as usize % BUCKETS];
            self.sorted[*place] = *entry;
            *place += 1;
        }
        for at in 1..self.sorted.len() {
            let entry = self.sorted[at];
            let mut to = at;
            while to > 0 && self.sorted[to - 1] > entry {
                self.sorted[to] = self.sorted[to - 1];
                to -= 1;
            }
            self.sorted[to] = entry;
        }
        std::mem::swap(&mut self.order, &mut self.sorted);
    }

    /// Time and link of each arrival.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.order.iter().map(|entry| (self.start_ps + (entry >> 32), *entry as u32))
    }

    /// The frame that arrives so many places after `place`, if by the only link that there is.
    #[inline]
    pub(crate) fn flight<'a>(&self, core: &'a Core, place: usize, ahead: usize) -> Option<&'a Flight> {
        let entry = self.order.get(place + ahead).filter(|_| self.link_count == 1)?;
        core.rx[*entry as u32 as usize].line.get(ahead as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::shape::{FatTree, LeafSpine, PlaneLinks};
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    fn planes() -> Vec<PlaneLinks> {
        let links = PlaneLinks { host: LinkSpec::new(100_000, 10), core: LinkSpec::new(100_000, 5_000) };
        vec![links.clone(), links]
    }

    fn sides(topology: &Topology) -> Sides {
        let node_count = topology.hosts.len() + topology.switches.len();
        Sides::new(topology, &vec![0; node_count], 0)
    }

    #[test]
    fn leaves_of_every_plane_are_one_side_hosts_and_spines_the_other() {
        let shape = LeafSpine { leaf_count: 2, hosts_per_leaf: 2, spine_count: 3, planes: planes() };
        let topology = Topology::leaf_spine(&shape);
        let sides = sides(&topology);
        assert!(sides.are_two);
        let leaf = |node: &u32| {
            let switch = node.checked_sub(topology.hosts.len() as u32);
            switch.is_some_and(|switch| topology.switches[switch as usize].name.contains("leaf"))
        };
        assert!(!sides.nodes(0).iter().any(leaf) && sides.nodes(1).iter().all(leaf));
        assert_eq!([sides.nodes(0).len(), sides.nodes(1).len()], [4 + 2 * 3, 2 * 2]);
        assert_eq!(sides.lookahead_ps, 10 + 84 * 80);
    }

    #[test]
    fn fat_tree_has_two_sides_and_a_triangle_has_not() {
        assert!(sides(&Topology::fat_tree(&FatTree { arity: 4, planes: planes() })).are_two);
        let mut triangle = Topology::default();
        let hosts = [(); 3].map(|()| triangle.add_host());
        (0..3).for_each(|at| triangle.add_cable(hosts[at], hosts[(at + 1) % 3], &LinkSpec::new(1_000, 1), 0));
        let sides = sides(&triangle);
        assert!(!sides.are_two);
        assert_eq!([sides.nodes(0).len(), sides.nodes(1).len()], [3, 0]);
    }

    /// Served alternately, each side goes as far beyond the other as a frame needs, and never further.
    #[test]
    fn side_is_served_twice_as_far_as_the_shortest_link() {
        let mut topology = Topology::default();
        let hosts = [(); 2].map(|()| topology.add_host());
        topology.add_cable(hosts[0], hosts[1], &LinkSpec::new(400_000, 98_320), 0);
        let sides = sides(&topology);
        let mut progress = Progress::from(1_000_000);
        let mut advance = |side, limit_ps| progress.advance(&sides, side, limit_ps);
        assert_eq!(advance(0, u64::MAX), Some((1_000_000, 1_099_999)));
        assert_eq!(advance(1, u64::MAX), Some((1_000_000, 1_199_999)));
        assert_eq!(advance(0, u64::MAX), Some((1_100_000, 1_299_999)));
        assert_eq!(advance(1, 1_250_000), Some((1_200_000, 1_249_999)));
        assert_eq!(advance(0, 1_250_000), None);
    }

    #[test]
    fn counting_sorts_like_any_other_way() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        for round in 0..200 {
            let (count, span_ps) = (1 + rng.next_u32() as usize % 300, 1 << (round % 24));
            let mut arrivals = Arrivals::default();
            let entry = |_| (u64::from(rng.next_u32()) % span_ps) << 32 | u64::from(rng.next_u32() % 64);
            arrivals.order = (0..count).map(entry).collect();
            let mut expected = arrivals.order.clone();
            expected.sort_unstable();
            arrivals.sort(span_ps);
            assert_eq!(arrivals.order, expected, "{count} arrivals in {span_ps} ps");
        }
    }
}
