//! Connections between hosts of a topology, agreed on out of band: ids, addresses, planes, paths.

use nic_fabric::topology::End;
use nic_fabric::{LinkId, NodeId, Topology};
use nic_model::config::{NicConfig, PlaneConfig};
use nic_model::conn_config::ConnConfig;
use nic_model::wire::packet::Address;
use nic_spec::num::Qpn;

/// Connections that a host of a [`Connector`] may have: its ids keep the number of the connection in the low 12 bits,
/// which choose the row of the card's table, and tell the host by the upper ones.
pub const CONNECTIONS_PER_HOST_MAX: u32 = 4096;

/// The first 12 bits.
const ROW_BITS: u32 = 12;

/// Why two hosts were not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The topology has no such host.
    NoSuchHost(u32),
    /// The host has [`CONNECTIONS_PER_HOST_MAX`] connections.
    HostFull(u32),
    /// The hosts have no plane in common.
    NoPlane(u32, u32),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConnectError::NoSuchHost(host) => write!(f, "the topology has no host {host}"),
            ConnectError::HostFull(host) => {
                write!(f, "host {host} already has {CONNECTIONS_PER_HOST_MAX} connections, the most it may have")
            }
            ConnectError::NoPlane(a, b) => write!(f, "hosts {a} and {b} have no plane in common"),
        }
    }
}

impl std::error::Error for ConnectError {}

/// The card for a host: a port per cable, the rates of the cables, the host's default MAC addresses.
///
/// The model's `conns_max` is set to [`CONNECTIONS_PER_HOST_MAX`], the seed to a number of the host.
///
/// # Panics
/// If the host has no cable, or more than 16.
pub fn nic_config(topology: &Topology, host: u32) -> NicConfig {
    let planes = (0..).zip(ports(topology, host));
    let plane = |(plane, link): (u16, LinkId)| PlaneConfig {
        mac: address(host, plane, false).mac,
        rate_mbps: topology.link_spec(link).rate_mbps,
    };
    let mut config = NicConfig::new(planes.map(plane).collect());
    config.conns_max = CONNECTIONS_PER_HOST_MAX;
    config.seed = u64::from(host) + 1;
    config
}

/// The links that leave a host, in the order of its ports.
fn ports(topology: &Topology, host: u32) -> Vec<LinkId> {
    let links = (0..topology.link_count()).map(LinkId);
    links.filter(|link| topology.ends(*link).0 == End::Host(host)).collect()
}

/// Default address of a host in a plane.
pub fn address(host: u32, plane: u16, is_ipv6: bool) -> Address {
    let [a, b, c, d, e, f] = Topology::mac_of(host, plane);
    let ip = if is_ipv6 {
        u128::from(Topology::ipv6_of(host, plane))
    } else {
        u128::from(u32::from(Topology::ipv4_of(host, plane)))
    };
    Address { mac: u64::from_be_bytes([0, 0, a, b, c, d, e, f]), ip }
}

/// Numbers the connections of a topology.
#[derive(Clone, Debug)]
pub struct Connector {
    /// Per host: planes it is in.
    planes: Vec<u16>,
    /// Per host: connections it has.
    counts: Vec<u32>,
}

impl Connector {
    /// No connection yet.
    pub fn new(topology: &Topology) -> Connector {
        let hosts = 0..topology.hosts.len() as u32;
        Connector {
            planes: hosts.map(|host| ports(topology, host).len() as u16).collect(),
            counts: vec![0; topology.hosts.len()],
        }
    }

    /// What `hosts` agree on for a further connection between them, over IPv4: the first's side, the second's side.
    ///
    /// Both directions have `paths` paths, dealt to the planes that both hosts are in, with source ports spread by the
    /// connection's id. Everything else is as in [`ConnConfig::new`]; change it on both sides before opening.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(&mut self, hosts: [NodeId; 2], paths: usize) -> Result<[ConnConfig; 2], ConnectError> {
        self.connect_over(hosts, paths, false)
    }

    /// As [`Connector::connect`], over IPv6 if asked to.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_over(
        &mut self,
        hosts: [NodeId; 2],
        paths: usize,
        is_ipv6: bool,
    ) -> Result<[ConnConfig; 2], ConnectError> {
        let [a, b] = hosts.map(|host| host.0);
        let planes = self.planes_of(a)?.min(self.planes_of(b)?);
        if planes == 0 {
            return Err(ConnectError::NoPlane(a, b));
        }
        // A connection of a host with itself takes two rows there.
        let need = if a == b { 2 } else { 1 };
        let is_full = |host: &u32| self.counts[*host as usize] + need > CONNECTIONS_PER_HOST_MAX;
        if let Some(host) = [a, b].into_iter().find(is_full) {
            return Err(ConnectError::HostFull(host));
        }
        let ids = [self.next_id(a), self.next_id(b)];
        let side = |own: usize| {
            let (here, there) = ([a, b][own], [a, b][1 - own]);
            let mut config = ConnConfig::new(ids[own], ids[1 - own]).with_paths(paths, planes.into());
            config.is_ipv6 = is_ipv6;
            config.addresses =
                (0..planes).map(|plane| (address(here, plane, is_ipv6), address(there, plane, is_ipv6))).collect();
            config
        };
        Ok([side(0), side(1)])
    }

    fn planes_of(&self, host: u32) -> Result<u16, ConnectError> {
        self.planes.get(host as usize).copied().ok_or(ConnectError::NoSuchHost(host))
    }

    fn next_id(&mut self, host: u32) -> Qpn {
        let row = self.counts[host as usize];
        self.counts[host as usize] += 1;
        // From 1: an id of 0 would look like one that was forgotten.
        Qpn::new((host % 0xfff + 1) << ROW_BITS | row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_fabric::{LeafSpine, LinkSpec, PlaneLinks};

    fn two_planes() -> Topology {
        let links = |rate| PlaneLinks { host: LinkSpec::new(rate, 1_000), core: LinkSpec::new(rate, 1_000) };
        let planes = vec![links(400_000), links(100_000)];
        Topology::leaf_spine(&LeafSpine { leaf_count: 2, hosts_per_leaf: 2, spine_count: 2, planes })
    }

    #[test]
    fn a_card_has_a_port_per_plane_with_its_rate_and_address() {
        let config = nic_config(&two_planes(), 2);
        let ports: Vec<_> = config.planes.iter().map(|plane| (plane.mac, plane.rate_mbps)).collect();
        assert_eq!(ports, [(0x0200_0000_0003, 400_000), (0x0200_0100_0003, 100_000)]);
    }

    #[test]
    fn both_sides_of_a_connection_agree() {
        let mut connector = Connector::new(&two_planes());
        for _ in 0..3 {
            let [a, b] = connector.connect([NodeId(0), NodeId(3)], 4).expect("hosts of the topology");
            assert_eq!((a.local_id, a.remote_id), (b.remote_id, b.local_id));
            assert_eq!((a.tx_paths.len(), a.rx_paths.len()), (b.rx_paths.len(), b.tx_paths.len()));
            let swapped: Vec<_> = b.addresses.iter().map(|(own, peer)| (*peer, *own)).collect();
            assert_eq!((a.addresses.len(), &a.addresses), (2, &swapped));
            assert_eq!(a.tx_paths.iter().map(|path| path.plane).collect::<Vec<_>>(), [0, 1, 0, 1]);
        }
    }

    #[test]
    fn ids_are_different_within_a_host_and_tell_hosts_apart() {
        let mut connector = Connector::new(&two_planes());
        let mut ids = Vec::new();
        for (a, b) in [(0, 1), (0, 2), (1, 2), (3, 3)] {
            let sides = connector.connect([NodeId(a), NodeId(b)], 1).expect("hosts of the topology");
            ids.extend([(a, sides[0].local_id), (b, sides[1].local_id)]);
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 8);
        let rows = ids.iter().filter(|(host, _)| *host == 3).map(|(_, id)| id.get() & 4095);
        assert_eq!(rows.collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_host_that_is_not_there_or_full_is_refused() {
        let mut connector = Connector::new(&two_planes());
        assert_eq!(connector.connect([NodeId(0), NodeId(4)], 1).err(), Some(ConnectError::NoSuchHost(4)));
        for _ in 0..CONNECTIONS_PER_HOST_MAX {
            connector.connect([NodeId(0), NodeId(1)], 1).expect("room");
        }
        assert_eq!(connector.connect([NodeId(2), NodeId(1)], 1).err(), Some(ConnectError::HostFull(1)));
    }
}
