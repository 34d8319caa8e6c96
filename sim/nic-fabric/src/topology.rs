//! The graph: hosts, switches, and the cables between them.
//!
//! Hosts are numbered first, then switches; a node's ports are numbered in the order its cables were added. A cable is
//! two links, one per direction: cable `c` is link `2c` from its first end and link `2c + 1` from its second.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::LinkSpec;

/// A host or a switch. Hosts come first: host `i` of a topology is `NodeId(i)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// One direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// A port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The node.
    pub node: NodeId,
    /// The port's number on this node, from 0.
    pub index: u16,
}

/// An end of a cable while the graph is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// A host, by its index.
    Host(u32),
    /// A switch, by its index.
    Switch(u32),
}

/// A place where a NIC is.
#[derive(Clone, Debug)]
pub struct Host {
    /// Unique name, `h0`, `h1` ... by default.
    pub name: String,
    /// IP addresses at which switches find it.
    pub addresses: Vec<IpAddr>,
    /// MAC addresses at which switches find it when a frame is not IP.
    pub macs: Vec<[u8; 6]>,
}

/// A switch.
#[derive(Clone, Debug)]
pub struct SwitchSpec {
    /// Unique name.
    pub name: String,
}

/// A cable between two nodes.
#[derive(Clone, Debug)]
pub struct Cable {
    /// First end; its transmit direction is the even link.
    pub a: End,
    /// Second end.
    pub b: End,
    /// Direction a to b.
    pub a_to_b: LinkSpec,
    /// Direction b to a.
    pub b_to_a: LinkSpec,
    /// Plane it belongs to, from 0.
    pub plane: u16,
}

/// A network, described.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// Hosts; index is `NodeId`.
    pub hosts: Vec<Host>,
    /// Switches; `NodeId` is the number of hosts plus the index.
    pub switches: Vec<SwitchSpec>,
    /// Cables; index times two is the `LinkId` of the first direction.
    pub cables: Vec<Cable>,
}

/// A set of links, by where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkSelect {
    /// Every link.
    All,
    /// One link.
    Link(LinkId),
    /// From hosts into the network.
    HostUp,
    /// From the network to hosts.
    HostDown,
    /// Between switches.
    Core,
    /// Every link of a plane.
    Plane(u16),
    /// By name, `h0->leaf0`, with `*` for any run of characters.
    Name(String),
}

impl Topology {
    /// An empty graph.
    pub fn new() -> Topology {
        Topology::default()
    }

    /// Adds a host named `h<index>` with the default addresses of plane 0; see [`Topology::ipv4_of`].
    pub fn add_host(&mut self) -> End {
        let index = self.hosts.len() as u32;
        self.hosts.push(Host { name: format!("h{index}"), addresses: Vec::new(), macs: Vec::new() });
        self.add_plane_addresses(index, 0);
        End::Host(index)
    }

    /// Gives a host the default addresses of a plane.
    pub fn add_plane_addresses(&mut self, host: u32, plane: u16) {
        let entry = &mut self.hosts[host as usize];
        entry.addresses.push(Topology::ipv4_of(host, plane).into());
        entry.addresses.push(Topology::ipv6_of(host, plane).into());
        entry.macs.push(Topology::mac_of(host, plane));
    }

    /// Adds a switch.
    pub fn add_switch(&mut self, name: impl Into<String>) -> End {
        self.switches.push(SwitchSpec { name: name.into() });
        End::Switch(self.switches.len() as u32 - 1)
    }

    /// Adds a cable with both directions alike, except that a host's own egress neither drops nor marks: a NIC has its
    /// frames in host memory and holds them back itself.
    pub fn add_cable(&mut self, a: End, b: End, spec: &LinkSpec, plane: u16) {
        let direction = |from: End| match from {
            End::Host(_) => spec.clone().without_limits(),
            End::Switch(_) => spec.clone(),
        };
        self.cables.push(Cable { a, b, a_to_b: direction(a), b_to_a: direction(b), plane });
    }

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

    /// Leaf-spine planes: in each plane every host has one port, every leaf one cable to each spine. Port `p` of a host
    /// is plane `p`. Names: `leaf0`, `spine0`, with several planes `p0.leaf0`.
    pub fn leaf_spine(shape: &LeafSpine) -> Topology {
        let mut topology = Topology::new();
        let host_count = shape.leaf_count * shape.hosts_per_leaf;
        let hosts: Vec<End> = (0..host_count).map(|_| topology.add_host()).collect();
        for (plane, links) in shape.planes.iter().enumerate() {
            let plane = plane as u16;
            let prefix = if shape.planes.len() > 1 { format!("p{plane}.") } else { String::new() };
            if plane > 0 {
                (0..host_count).for_each(|host| topology.add_plane_addresses(host, plane));
            }
            let mut switches = |kind: &str, count: u32| -> Vec<End> {
                (0..count).map(|i| topology.add_switch(format!("{prefix}{kind}{i}"))).collect()
            };
            let leaves = switches("leaf", shape.leaf_count);
            let spines = switches("spine", shape.spine_count);
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

    /// Number of links, two per cable.
    pub fn link_count(&self) -> u32 {
        self.cables.len() as u32 * 2
    }

    /// The node at an end.
    pub fn node_of(&self, end: End) -> NodeId {
        match end {
            End::Host(index) => NodeId(index),
            End::Switch(index) => NodeId(self.hosts.len() as u32 + index),
        }
    }

    /// The node with this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        let host = self.hosts.iter().position(|host| host.name == name);
        let switch = || self.switches.iter().position(|switch| switch.name == name).map(|i| i + self.hosts.len());
        host.or_else(switch).map(|index| NodeId(index as u32))
    }

    /// Name of a node.
    pub fn node_name(&self, node: NodeId) -> &str {
        let index = node.0 as usize;
        match index.checked_sub(self.hosts.len()) {
            None => &self.hosts[index].name,
            Some(switch) => &self.switches[switch].name,
        }
    }

    /// Both ends of a link: where it starts, where it goes.
    pub fn ends(&self, link: LinkId) -> (End, End) {
        let cable = &self.cables[link.0 as usize / 2];
        if link.0 % 2 == 0 {
            (cable.a, cable.b)
        } else {
            (cable.b, cable.a)
        }
    }

    /// The description of a link.
    pub fn link_spec(&self, link: LinkId) -> &LinkSpec {
        let cable = &self.cables[link.0 as usize / 2];
        if link.0 % 2 == 0 {
            &cable.a_to_b
        } else {
            &cable.b_to_a
        }
    }

    /// The description of a link, to be changed before the fabric is made.
    pub fn link_spec_mut(&mut self, link: LinkId) -> &mut LinkSpec {
        let cable = &mut self.cables[link.0 as usize / 2];
        if link.0 % 2 == 0 {
            &mut cable.a_to_b
        } else {
            &mut cable.b_to_a
        }
    }

    /// Name of a link, `from->to`, with `#k` for the k-th of several parallel cables.
    pub fn link_name(&self, link: LinkId) -> String {
        let (from, to) = self.ends(link);
        let pair = (from.min(to), from.max(to));
        let is_parallel = |cable: &Cable| (cable.a.min(cable.b), cable.a.max(cable.b)) == pair;
        let own = link.0 as usize / 2;
        let before = self.cables[..own].iter().filter(|cable| is_parallel(cable)).count();
        let after = self.cables[own + 1..].iter().any(is_parallel);
        let suffix = if before > 0 || after { format!("#{before}") } else { String::new() };
        format!("{}->{}{suffix}", self.node_name(self.node_of(from)), self.node_name(self.node_of(to)))
    }

    /// The links a selection names, ascending.
    pub fn select(&self, select: &LinkSelect) -> Vec<LinkId> {
        let is_host = |end: End| matches!(end, End::Host(_));
        let all = (0..self.link_count()).map(LinkId);
        let matches = |link: &LinkId| {
            let (from, to) = self.ends(*link);
            match select {
                LinkSelect::All => true,
                LinkSelect::Link(id) => id == link,
                LinkSelect::HostUp => is_host(from),
                LinkSelect::HostDown => is_host(to),
                LinkSelect::Core => !is_host(from) && !is_host(to),
                LinkSelect::Plane(plane) => self.cables[link.0 as usize / 2].plane == *plane,
                LinkSelect::Name(pattern) => glob_matches(pattern.as_bytes(), self.link_name(*link).as_bytes()),
            }
        };
        all.filter(matches).collect()
    }

    /// Default IPv4 address of a host in a plane: 10.`plane`.x.y, where x.y is the host's index plus 1.
    pub fn ipv4_of(host: u32, plane: u16) -> Ipv4Addr {
        let [_, _, x, y] = (host + 1).to_be_bytes();
        Ipv4Addr::new(10, plane as u8, x, y)
    }

    /// Default IPv6 address of a host in a plane: fd00::`plane`:x, where x is the host's index plus 1.
    pub fn ipv6_of(host: u32, plane: u16) -> Ipv6Addr {
        let [a, b, c, d] = (host + 1).to_be_bytes();
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, plane, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }

    /// Default MAC address of a host in a plane: 02:00:`plane`:x:x:x, where x is the host's index plus 1.
    pub fn mac_of(host: u32, plane: u16) -> [u8; 6] {
        let [_, b, c, d] = (host + 1).to_be_bytes();
        [2, 0, plane as u8, b, c, d]
    }
}

/// Shape of a leaf-spine network.
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

/// The cables of one plane.
#[derive(Clone, Debug)]
pub struct PlaneLinks {
    /// Between a host and its leaf.
    pub host: LinkSpec,
    /// Between switches.
    pub core: LinkSpec,
}

/// Whether `name` matches `pattern`, in which `*` stands for any run of bytes.
fn glob_matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skip| glob_matches(rest, &name[skip..])),
        Some((first, rest)) => name.first() == Some(first) && glob_matches(rest, &name[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_planes() -> Topology {
        let links = PlaneLinks { host: LinkSpec::new(400_000, 500_000), core: LinkSpec::new(400_000, 500_000) };
        Topology::leaf_spine(&LeafSpine {
            leaf_count: 2,
            hosts_per_leaf: 2,
            spine_count: 3,
            planes: vec![links.clone(), links],
        })
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
        assert_eq!(topology.select(&LinkSelect::Name("h3->p1.leaf1".into())).len(), 1);
        assert_eq!(topology.select(&LinkSelect::Name("p0.leaf*->p0.spine2".into())).len(), 2);
        assert_eq!(topology.select(&LinkSelect::Name("nobody*".into())), []);
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
    fn glob_star_stands_for_any_run() {
        for (pattern, name, expected) in
            [("a*c", "abbc", true), ("a*c", "ac", true), ("a*c", "abd", false), ("*", "", true), ("", "x", false)]
        {
            assert_eq!(glob_matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
