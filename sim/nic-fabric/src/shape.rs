//! The usual shapes: a cable, parallel paths, leaf-spine and fat-tree planes.
//!
//! In shapes with planes port `p` of every host is its port into plane `p`; planes share nothing but the hosts.

use crate::link::LinkSpec;
use crate::topology::{End, Topology};

/// The cables of one plane.
#[derive(Clone, Debug)]
pub struct PlaneLinks {
    /// Between a host and its first switch.
    pub host: LinkSpec,
    /// Between switches.
    pub core: LinkSpec,
}

/// A two-tier network: every leaf has a cable to every spine.
#[derive(Clone, Debug)]
pub struct LeafSpine {
    /// Leaf switches per plane.
    pub leaf_count: u32,
    /// Hosts on each leaf.
    pub hosts_per_leaf: u32,
    /// Spine switches per plane.
    pub spine_count: u32,
    /// Cables of each plane; its length is the number of planes.
    pub planes: Vec<PlaneLinks>,
}

/// A three-tier network of switches with `arity` ports: `arity^3 / 4` hosts in `arity` pods.
#[derive(Clone, Debug)]
pub struct FatTree {
    /// Ports of a switch; even.
    pub arity: u32,
    /// Cables of each plane; its length is the number of planes.
    pub planes: Vec<PlaneLinks>,
}

impl Topology {
    /// Two hosts on one cable. No switch is between them, so frames need no address that the fabric knows.
    pub fn point_to_point(spec: &LinkSpec) -> Topology {
        let mut topology = Topology::new();
        let (a, b) = (topology.add_host(), topology.add_host());
        topology.add_cable(a, b, spec, 0);
        topology
    }

    /// Two hosts, each on its switch (`left`, `right`), and one cable per entry of `paths` between the switches; ECMP
    /// over the five-tuple chooses among them. Names: `left->right` for one path, `left->right#0` ... for several.
    pub fn parallel_paths(host: &LinkSpec, paths: &[LinkSpec]) -> Topology {
        let mut topology = Topology::new();
        let (a, b) = (topology.add_host(), topology.add_host());
        let (left, right) = (topology.add_switch("left"), topology.add_switch("right"));
        topology.add_cable(a, left, host, 0);
        topology.add_cable(b, right, host, 0);
        for path in paths {
            topology.add_cable(left, right, path, 0);
        }
        topology
    }

    /// Leaf-spine planes. Names: `leaf0`, `spine0`, with several planes `p0.leaf0`.
    pub fn leaf_spine(shape: &LeafSpine) -> Topology {
        let mut topology = Topology::new();
        let hosts = topology.add_hosts(shape.leaf_count * shape.hosts_per_leaf, shape.planes.len());
        for (plane, links) in (0..).zip(&shape.planes) {
            let prefix = plane_prefix(plane, shape.planes.len());
            let leaves = topology.add_switches(&format!("{prefix}leaf"), shape.leaf_count);
            let spines = topology.add_switches(&format!("{prefix}spine"), shape.spine_count);
            for (host, end) in hosts.iter().enumerate() {
                topology.add_cable(*end, leaves[host / shape.hosts_per_leaf as usize], &links.host, plane);
            }
            for leaf in &leaves {
                for spine in &spines {
                    topology.add_cable(*leaf, *spine, &links.core, plane);
                }
            }
        }
        topology
    }

    /// Fat-tree planes. Names: `edge0`, `aggregation0`, `core0`, with several planes `p0.edge0`; edge and aggregation
    /// switches are numbered through the pods.
    ///
    /// # Panics
    /// If the arity is odd or 0.
    pub fn fat_tree(shape: &FatTree) -> Topology {
        assert!(shape.arity > 0 && shape.arity % 2 == 0, "fat tree of arity {}, must be even", shape.arity);
        let half = shape.arity / 2;
        let mut topology = Topology::new();
        let hosts = topology.add_hosts(shape.arity * half * half, shape.planes.len());
        for (plane, links) in (0..).zip(&shape.planes) {
            let prefix = plane_prefix(plane, shape.planes.len());
            let edges = topology.add_switches(&format!("{prefix}edge"), shape.arity * half);
            let aggregations = topology.add_switches(&format!("{prefix}aggregation"), shape.arity * half);
            let cores = topology.add_switches(&format!("{prefix}core"), half * half);
            let half = half as usize;
            for (host, end) in hosts.iter().enumerate() {
                topology.add_cable(*end, edges[host / half], &links.host, plane);
            }
            for (index, edge) in edges.iter().enumerate() {
                let pod_start = index / half * half;
                for aggregation in &aggregations[pod_start..pod_start + half] {
                    topology.add_cable(*edge, *aggregation, &links.core, plane);
                }
            }
            for (index, aggregation) in aggregations.iter().enumerate() {
                let group_start = index % half * half;
                for core in &cores[group_start..group_start + half] {
                    topology.add_cable(*aggregation, *core, &links.core, plane);
                }
            }
        }
        topology
    }

    fn add_hosts(&mut self, count: u32, plane_count: usize) -> Vec<End> {
        let hosts = (0..count).map(|_| self.add_host()).collect();
        for plane in 1..plane_count as u16 {
            (0..count).for_each(|host| self.add_plane_addresses(host, plane));
        }
        hosts
    }

    fn add_switches(&mut self, name: &str, count: u32) -> Vec<End> {
        (0..count).map(|index| self.add_switch(format!("{name}{index}"))).collect()
    }
}

fn plane_prefix(plane: u16, plane_count: usize) -> String {
    if plane_count > 1 {
        format!("p{plane}.")
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{LinkId, LinkSelect};

    fn links() -> PlaneLinks {
        PlaneLinks { host: LinkSpec::new(400_000, 500_000), core: LinkSpec::new(400_000, 500_000) }
    }

    fn two_planes() -> Topology {
        let planes = vec![links(), links()];
        Topology::leaf_spine(&LeafSpine { leaf_count: 2, hosts_per_leaf: 2, spine_count: 3, planes })
    }

    #[test]
    fn leaf_spine_has_a_cable_per_host_and_plane_and_a_full_core() {
        let topology = two_planes();
        assert_eq!(topology.hosts.len(), 4);
        assert_eq!(topology.switches.len(), 2 * (2 + 3));
        assert_eq!(topology.cables.len(), 2 * (4 + 6));
        assert_eq!(topology.select(&LinkSelect::HostUp).len(), 8);
        assert_eq!(topology.select(&LinkSelect::Core).len(), 24);
        assert_eq!(topology.select(&LinkSelect::Plane(1)).len(), 20);
    }

    #[test]
    fn names_are_unique_and_patterns_select_by_them() {
        let topology = two_planes();
        let mut names: Vec<String> = (0..topology.link_count()).map(|i| topology.link_name(LinkId(i))).collect();
        assert_eq!(topology.select(&"h3->p1.leaf1".into()).len(), 1);
        assert_eq!(topology.select(&"p0.leaf*->p0.spine2".into()).len(), 2);
        assert_eq!(topology.select(&"nobody*".into()), []);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), topology.link_count() as usize);
    }

    #[test]
    fn parallel_cables_are_numbered() {
        let spec = LinkSpec::new(100_000, 1_000);
        let topology = Topology::parallel_paths(&spec, &[spec.clone(), spec.clone()]);
        assert_eq!(topology.link_name(LinkId(4)), "left->right#0");
        assert_eq!(topology.link_name(LinkId(7)), "right->left#1");
        assert_eq!(topology.link_name(LinkId(0)), "h0->left");
    }

    #[test]
    fn fat_tree_switches_use_all_their_ports() {
        let topology = Topology::fat_tree(&FatTree { arity: 4, planes: vec![links()] });
        assert_eq!(topology.hosts.len(), 16);
        assert_eq!(topology.switches.len(), 8 + 8 + 4);
        for switch in 0..20 {
            let ports = topology.cables.iter().filter(|c| c.a == End::Switch(switch) || c.b == End::Switch(switch));
            assert_eq!(ports.count(), 4, "switch {switch}");
        }
    }

    #[test]
    fn fat_tree_reaches_every_host_over_every_core() {
        let topology = Topology::fat_tree(&FatTree { arity: 4, planes: vec![links()] });
        let routes = crate::route::Routes::compute(&topology, |_| true);
        // From edge 0 to another pod: both aggregations; from aggregation 0: its two cores; from a core: one way.
        assert_eq!(routes.group(0, 15).len(), 2);
        assert_eq!(routes.group(8, 15).len(), 2);
        assert_eq!(routes.group(16, 15).len(), 1);
        // Inside the pod the aggregation goes straight down.
        assert_eq!(routes.group(8, 2).len(), 1);
    }
}
