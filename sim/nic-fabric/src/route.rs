//! Shortest ways from every switch to every host, as ECMP groups of egress links.
//!
//! Equal groups are stored once: a leaf has as many groups as it has hosts, and one more for all others.

use std::collections::{BTreeMap, VecDeque};

use crate::topology::{End, LinkId, Topology};

/// The forwarding tables of every switch.
#[derive(Clone)]
pub(crate) struct Routes {
    host_count: usize,
    /// Per (switch, host): first and last-plus-one place of the group in `links`.
    groups: Vec<(u32, u32)>,
    /// Egress links of all groups, each group once.
    links: Vec<u32>,
}

impl Routes {
    /// Finds all shortest ways over the cables that are up. `is_up` takes a cable's index.
    pub(crate) fn compute(topology: &Topology, is_up: impl Fn(usize) -> bool) -> Routes {
        let host_count = topology.hosts.len();
        let switch_count = topology.switches.len();
        // Per switch: its egress links and where they go.
        let mut neighbours: Vec<Vec<(u32, End)>> = vec![Vec::new(); switch_count];
        let mut leaves: Vec<Vec<u32>> = vec![Vec::new(); host_count];
        for link in (0..topology.link_count()).filter(|link| is_up(*link as usize / 2)) {
            if let (End::Switch(from), to) = topology.ends(LinkId(link)) {
                neighbours[from as usize].push((link, to));
                if let End::Host(host) = to {
                    leaves[host as usize].push(from);
                }
            }
        }
        let mut routes = Routes { host_count, groups: vec![(0, 0); switch_count * host_count], links: Vec::new() };
        let mut known = BTreeMap::new();
        for (host, leaves) in leaves.iter().enumerate() {
            let distance = distances(&neighbours, leaves);
            for (switch, out) in neighbours.iter().enumerate() {
                let is_next = |to: &End| match *to {
                    End::Host(other) => other as usize == host,
                    End::Switch(next) => distance[switch] > 1 && distance[next as usize] == distance[switch] - 1,
                };
                let is_reached = distance[switch] != UNREACHED;
                let next = out.iter().filter(|(_, to)| is_reached && is_next(to)).map(|(link, _)| *link);
                let group: Vec<u32> = next.collect();
                routes.groups[switch * host_count + host] = routes.intern(&mut known, group);
            }
        }
        routes
    }

    fn intern(&mut self, known: &mut BTreeMap<Vec<u32>, (u32, u32)>, group: Vec<u32>) -> (u32, u32) {
        if let Some(range) = known.get(&group) {
            return *range;
        }
        let start = self.links.len() as u32;
        self.links.extend_from_slice(&group);
        let range = (start, self.links.len() as u32);
        known.insert(group, range);
        range
    }

    /// The egress links of a switch on shortest ways to a host; empty if there is none.
    #[inline]
    pub(crate) fn group(&self, switch: usize, host: u32) -> &[u32] {
        let (start, end) = self.groups[switch * self.host_count + host as usize];
        &self.links[start as usize..end as usize]
    }
}

const UNREACHED: u32 = u32::MAX;

/// Hops from each switch to a host that hangs on `leaves`: breadth first, over cables taken as usable both ways.
fn distances(neighbours: &[Vec<(u32, End)>], leaves: &[u32]) -> Vec<u32> {
    let mut distance = vec![UNREACHED; neighbours.len()];
    let mut queue = VecDeque::new();
    for leaf in leaves {
        distance[*leaf as usize] = 1;
        queue.push_back(*leaf);
    }
    while let Some(switch) = queue.pop_front() {
        for (_, to) in &neighbours[switch as usize] {
            if let End::Switch(next) = *to {
                if distance[next as usize] == UNREACHED {
                    distance[next as usize] = distance[switch as usize] + 1;
                    queue.push_back(next);
                }
            }
        }
    }
    distance
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::shape::{LeafSpine, PlaneLinks};

    fn leaf_spine() -> Topology {
        let links = PlaneLinks { host: LinkSpec::new(1000, 1), core: LinkSpec::new(1000, 1) };
        Topology::leaf_spine(&LeafSpine { leaf_count: 2, hosts_per_leaf: 2, spine_count: 3, planes: vec![links] })
    }

    fn names(topology: &Topology, routes: &Routes, switch: usize, host: u32) -> Vec<String> {
        routes.group(switch, host).iter().map(|link| topology.link_name(LinkId(*link))).collect()
    }

    #[test]
    fn leaf_uses_every_spine_for_far_hosts_and_one_link_for_its_own() {
        let topology = leaf_spine();
        let routes = Routes::compute(&topology, |_| true);
        assert_eq!(names(&topology, &routes, 0, 0), ["leaf0->h0"]);
        assert_eq!(names(&topology, &routes, 0, 3), ["leaf0->spine0", "leaf0->spine1", "leaf0->spine2"]);
        assert_eq!(names(&topology, &routes, 3, 3), ["spine1->leaf1"]);
    }

    #[test]
    fn dead_cable_leaves_the_groups_on_both_sides_of_the_spine() {
        let topology = leaf_spine();
        let dead = topology.select(&crate::topology::LinkSelect::Name("leaf1->spine1".into()))[0].0 as usize / 2;
        let routes = Routes::compute(&topology, |cable| cable != dead);
        assert_eq!(names(&topology, &routes, 0, 3), ["leaf0->spine0", "leaf0->spine2"]);
        assert_eq!(names(&topology, &routes, 1, 0), ["leaf1->spine0", "leaf1->spine2"]);
    }

    #[test]
    fn unreachable_host_has_an_empty_group() {
        let topology = leaf_spine();
        let routes = Routes::compute(&topology, |cable| cable != 3);
        assert!(routes.group(0, 3).is_empty());
    }
}
