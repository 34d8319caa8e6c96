//! What the two sides of a connection agree on before it carries data.

use crate::config::TransportConfig;
use crate::footprint::of_vec;
use crate::transport::cc::{CongestionControl, Dctcp};
use crate::wire::packet::Address;
use alloc::sync::Arc;
use alloc::vec::Vec;
use nic_spec::consts::{PKEY_DEFAULT, PMTU_LOG2, UDP_SPORT_MIN};
use nic_spec::num::{Msn, Pd, Pkey, Psn, Qpn, Rsn};

/// One path of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// Plane: of the sender's packets in a path of this side, of nothing in one of the peer.
    pub plane: u8,
    /// UDP source port: of the data in a path of this side, of the acknowledgements in one of the peer.
    pub sport: u16,
    /// Epoch at start.
    pub epoch: u8,
    /// Number of the first packet.
    pub first: Psn,
}

/// One stream, both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Its id, not 0.
    pub id: u16,
    /// First message number, both ways.
    pub first_msn: Msn,
    /// First ordinal of receives, both ways.
    pub first_rsn: Rsn,
    /// Completion queue of the send side.
    pub sq_cq: u32,
    /// Completion queue of the receive side.
    pub rq_cq: u32,
    /// Ordinal before which the peer has posted receives already; `None`: not known, so try.
    pub peer_limit: Option<Rsn>,
    /// Completions of both directions come as messages end, except those with a fence.
    pub is_unordered: bool,
}

impl StreamConfig {
    /// An ordered stream whose numbers begin with 0, with completion queue `cq` for both sides.
    pub const fn new(id: u16, cq: u32) -> Self {
        let (first_msn, first_rsn) = (Msn::new(0), Rsn::new(0));
        Self { id, first_msn, first_rsn, sq_cq: cq, rq_cq: cq, peer_limit: None, is_unordered: false }
    }
}

/// One connection as its side sees it. In memory, what every packet needs comes first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct ConnConfig {
    /// Its id on this side; its low bits choose the row.
    pub local_id: Qpn,
    /// Its id on the peer's side.
    pub remote_id: Qpn,
    /// Protection domain.
    pub pd: Pd,
    /// Partition key.
    pub pkey: Pkey,
    /// Logarithm of the largest payload of a packet, 10..=13.
    pub pmtu_log2: u8,
    /// Code point of data packets.
    pub dscp: u8,
    /// Code point of acknowledgements and other control packets.
    pub dscp_control: u8,
    /// IPv6 rather than IPv4.
    pub is_ipv6: bool,
    /// Weight of the connection when this side shares out its inbound bandwidth.
    pub hint_weight: u32,
    /// Tunables.
    pub transport: TransportConfig,
    /// Congestion control of this side's paths.
    pub cc: Arc<dyn CongestionControl>,
    /// Own and peer's address on each plane.
    pub addresses: Vec<(Address, Address)>,
    /// Paths on which this side sends; index = path_id.
    pub tx_paths: Vec<PathConfig>,
    /// Paths on which the peer sends.
    pub rx_paths: Vec<PathConfig>,
    /// Streams.
    pub streams: Vec<StreamConfig>,
}

impl ConnConfig {
    /// A connection with one stream (id 1, completion queue 0) and no addresses and paths yet.
    pub fn new(local_id: Qpn, remote_id: Qpn) -> Self {
        Self {
            local_id,
            remote_id,
            pd: Pd::new(0),
            pkey: Pkey::new(PKEY_DEFAULT),
            pmtu_log2: PMTU_LOG2,
            dscp: 0,
            dscp_control: 0,
            is_ipv6: false,
            addresses: Vec::new(),
            tx_paths: Vec::new(),
            rx_paths: Vec::new(),
            streams: alloc::vec![StreamConfig::new(1, 0)],
            transport: TransportConfig::default(),
            cc: Arc::new(Dctcp::default()),
            hint_weight: 1,
        }
    }

    /// Sets `count` paths each way, dealt to `planes` planes in turn, with source ports spread by the connection ids.
    /// Both sides that call this with the same count agree.
    pub fn with_paths(mut self, count: usize, planes: usize) -> Self {
        let path = |id: Qpn, i: usize| PathConfig {
            plane: (i % planes.max(1)) as u8,
            sport: spread_port(id.get(), i as u32),
            epoch: 0,
            first: Psn::new(0),
        };
        self.tx_paths = (0..count).map(|i| path(self.local_id, i)).collect();
        self.rx_paths = (0..count).map(|i| path(self.local_id, i)).collect();
        self
    }
}

/// From the id of a stream to its index.
#[derive(Clone, Debug)]
pub(crate) struct StreamIndex {
    /// The smallest id and its index, beside which most connections have no other.
    first: (u16, u16),
    sorted: Vec<(u16, u16)>,
}

impl StreamIndex {
    /// Of these streams.
    pub fn new(streams: &[StreamConfig]) -> Self {
        let mut sorted: Vec<(u16, u16)> = streams.iter().enumerate().map(|(i, s)| (s.id, i as u16)).collect();
        sorted.sort_unstable();
        // No stream has id 0.
        Self { first: sorted.first().copied().unwrap_or((0, 0)), sorted }
    }

    /// Memory on the heap, bytes.
    pub const fn heap_bytes(&self) -> usize {
        of_vec(&self.sorted)
    }

    /// Index of the stream with this id.
    #[inline]
    pub fn find(&self, id: u16) -> Option<usize> {
        if id == self.first.0 && id != 0 {
            return Some(self.first.1.into());
        }
        self.find_other(id)
    }

    #[inline(never)]
    fn find_other(&self, id: u16) -> Option<usize> {
        let at = self.sorted.binary_search_by_key(&id, |entry| entry.0).ok()?;
        Some(self.sorted[at].1.into())
    }
}

/// A UDP source port for path number `index` of connection `id`: different for different paths, spread for
/// different connections.
pub fn spread_port(id: u32, index: u32) -> u16 {
    // 0x9e5 is odd, so that the first 16384 indices give different ports.
    let start = id.wrapping_mul(0x9e37_79b1) >> 16;
    UDP_SPORT_MIN | (start.wrapping_add(index.wrapping_mul(0x9e5)) & 0x3fff) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_by_id_whatever_their_order() {
        let streams = [900, 3, 65_535].map(|id| StreamConfig::new(id, 0));
        let index = StreamIndex::new(&streams);
        assert_eq!([3, 900, 65_535, 4].map(|id| index.find(id)), [Some(1), Some(0), Some(2), None]);
    }

    #[test]
    fn the_paths_of_a_connection_have_different_ports_above_the_smallest() {
        let conn = ConnConfig::new(Qpn::new(0x123), Qpn::new(0x456)).with_paths(256, 4);
        let mut ports: Vec<u16> = conn.tx_paths.iter().map(|p| p.sport).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!((ports.len(), ports[0] >= UDP_SPORT_MIN), (256, true));
        assert_eq!(conn.tx_paths[7].plane, 3);
    }
}
