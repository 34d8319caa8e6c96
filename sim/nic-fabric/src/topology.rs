//! The graph: hosts, switches, and the cables between them.
//!
//! Hosts are numbered first, then switches; a node's ports are numbered in the order its cables were added. A cable is
//! two links, one per direction: cable `c` is link `2c` from its first end and link `2c + 1` from its second.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::link::LinkSpec;
use crate::spray::Forwarding;

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
    /// How it chooses among equal ways.
    pub forwarding: Forwarding,
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
    /// DSCPs of the control class, one bit each. Matters on links with classes only.
    pub control_dscps: u64,
    /// How long after a cable went down or came back all switches have new tables; `None` is never, and flows whose
    /// way is cut stay cut.
    pub reroute_after_ps: Option<u64>,
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

/// `all`, `host-up`, `host-down`, `core`, `plane:1`; anything else is a pattern of link names.
impl From<&str> for LinkSelect {
    fn from(text: &str) -> LinkSelect {
        match text {
            "all" => LinkSelect::All,
            "host-up" => LinkSelect::HostUp,
            "host-down" => LinkSelect::HostDown,
            "core" => LinkSelect::Core,
            _ => match text.strip_prefix("plane:").and_then(|number| number.parse().ok()) {
                Some(plane) => LinkSelect::Plane(plane),
                None => LinkSelect::Name(text.into()),
            },
        }
    }
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
        self.switches.push(SwitchSpec { name: name.into(), forwarding: Forwarding::Ecmp });
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

    /// Number of links, two per cable.
    pub fn link_count(&self) -> u32 {
        self.cables.len() as u32 * 2
    }

    /// Makes every switch choose among equal ways like this.
    pub fn with_forwarding(mut self, forwarding: Forwarding) -> Topology {
        self.switches.iter_mut().for_each(|switch| switch.forwarding = forwarding);
        self
    }

    /// Adds the time a switch takes to forward to every link that leaves one.
    pub fn with_switch_latency_ps(mut self, latency_ps: u64) -> Topology {
        for link in (0..self.link_count()).map(LinkId) {
            if let (End::Switch(_), _) = self.ends(link) {
                let spec = self.link_spec_mut(link);
                spec.delay_ps = spec.delay_ps.saturating_add(latency_ps);
            }
        }
        self
    }

    /// Puts frames with this DSCP into the control class.
    pub fn with_control_dscp(mut self, dscp: u8) -> Topology {
        self.control_dscps |= 1 << (dscp & 63);
        self
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
        self.link_names().swap_remove(link.0 as usize)
    }

    /// Names of all links, in their order.
    pub fn link_names(&self) -> Vec<String> {
        let pair = |cable: &Cable| (cable.a.min(cable.b), cable.a.max(cable.b));
        let mut counts: BTreeMap<(End, End), (u32, u32)> = BTreeMap::new();
        self.cables.iter().for_each(|cable| counts.entry(pair(cable)).or_default().0 += 1);
        let mut names = Vec::with_capacity(self.cables.len() * 2);
        for cable in &self.cables {
            let (total, seen) = counts.entry(pair(cable)).or_default();
            let suffix = if *total > 1 { format!("#{seen}") } else { String::new() };
            *seen += 1;
            let (a, b) = (self.node_name(self.node_of(cable.a)), self.node_name(self.node_of(cable.b)));
            names.push(format!("{a}->{b}{suffix}"));
            names.push(format!("{b}->{a}{suffix}"));
        }
        names
    }

    /// The links a selection names, ascending.
    pub fn select(&self, select: &LinkSelect) -> Vec<LinkId> {
        let is_host = |end: End| matches!(end, End::Host(_));
        let names = if let LinkSelect::Name(_) = select { self.link_names() } else { Vec::new() };
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
                LinkSelect::Name(pattern) => glob_matches(pattern.as_bytes(), names[link.0 as usize].as_bytes()),
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

    #[test]
    fn glob_star_stands_for_any_run() {
        for (pattern, name, expected) in
            [("a*c", "abbc", true), ("a*c", "ac", true), ("a*c", "abd", false), ("*", "", true), ("", "x", false)]
        {
            assert_eq!(glob_matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }
}
