//! What a case asks of a connection before it is opened, and the words in which host and card speak.
//!
//! Plain data: a bench turns them into what its card understands (context rows, verbs, a model's configuration). Where a
//! card cannot be given a value, its bench says so when the connection is opened.

pub use nic_model::wire::packet::Address;
pub use nic_model::work::{ConnId, Cqe, CqeOp, Event, Local, RecvWr, RemoteMemory, SendOp, SendWr, TagMatch};
use nic_spec::consts;
use nic_spec::num::{Msn, Pd, Pkey, Psn, Qpn, Rsn};

/// Picoseconds in a nanosecond.
pub const NS_PS: u64 = 1_000;

/// Tunables of a connection that cases set. Times in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// Window of a path after its first acknowledgement, packets.
    pub path_init_pkts: u32,
    /// Packets of a connection in flight until the first acknowledgement.
    pub conn_init_pkts: u32,
    /// Packets in flight after it, and of answers to reads from the start.
    pub conn_ramp_pkts: u32,
    /// Smallest cap of a connection's window, packets.
    pub conn_window_min_pkts: u32,
    /// Acknowledge after this many packets.
    pub ack_packets: u32,
    /// Acknowledge after this long.
    pub ack_delay_ps: u64,
    /// Retransmission timeout before the first round-trip sample.
    pub rto_init_ps: u64,
    /// Smallest retransmission timeout.
    pub rto_min_ps: u64,
    /// Timeouts in a row on one path before it is given up.
    pub retry_limit: u8,
    /// Tail-loss probes before the retransmission timeout.
    pub tlp_limit: u8,
    /// Shortest time between two refusals sent on a connection.
    pub nak_interval_ps: u64,
    /// Wait after a temporary refusal.
    pub rnr_ps: u64,
    /// Such refusals of one message in a row before the connection fails.
    pub rnr_retry_limit: u8,
    /// Open as many paths as rate and round trip ask for, within the two limits that follow.
    pub bootstrap: bool,
    /// Fewest paths.
    pub paths_min: u32,
    /// Most paths.
    pub paths_max: u32,
    /// Send the newest unacknowledged packets once more when the connection has nothing else to do.
    pub idle_redundancy: bool,
    /// Send a marker at once when a path goes idle with data outstanding.
    pub tail_marker: bool,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            path_init_pkts: consts::PATH_INIT,
            conn_init_pkts: consts::CONN_INIT,
            conn_ramp_pkts: consts::CONN_RAMP,
            conn_window_min_pkts: consts::CONN_WINDOW_MIN,
            ack_packets: consts::ACK_PACKETS,
            ack_delay_ps: u64::from(consts::ACK_DELAY_NS) * NS_PS,
            rto_init_ps: u64::from(consts::RTO_INIT_NS) * NS_PS,
            rto_min_ps: u64::from(consts::RTO_NS) * NS_PS,
            retry_limit: consts::RETRY_LIMIT as u8,
            tlp_limit: consts::TLP_LIMIT as u8,
            nak_interval_ps: u64::from(consts::NAK_INTERVAL_NS) * NS_PS,
            rnr_ps: u64::from(consts::RNR_NS) * NS_PS,
            rnr_retry_limit: consts::RNR_RETRY_LIMIT as u8,
            bootstrap: false,
            paths_min: consts::PATHS_MIN,
            paths_max: consts::PATHS_MAX,
            idle_redundancy: true,
            tail_marker: true,
        }
    }
}

/// Congestion control of the card's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Marks, as C-003 and C-005 say.
    #[default]
    Marks,
    /// Delay, as C-019 permits. Needs `Caps::DELAY_CONTROL`.
    Delay,
}

/// One path of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// Plane: of the sender's packets in a path of the card, of nothing in one of the peer.
    pub plane: u8,
    /// UDP source port: of the data in a path of the card, of the acknowledgements in one of the peer.
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

/// One connection as the card sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnConfig {
    /// Its id on the card's side; its low bits choose the row.
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
    /// The card's and the peer's address on each plane.
    pub addresses: Vec<(Address, Address)>,
    /// Paths on which the card sends; index = path_id.
    pub tx_paths: Vec<PathConfig>,
    /// Paths on which the peer sends.
    pub rx_paths: Vec<PathConfig>,
    /// Streams.
    pub streams: Vec<StreamConfig>,
    /// Tunables.
    pub transport: Tunables,
    /// Congestion control of the card's paths.
    pub cc: Algorithm,
    /// Weight of the connection when the card shares out its inbound bandwidth.
    pub hint_weight: u32,
}

impl ConnConfig {
    /// A connection with one stream (id 1, completion queue 0) and no addresses and paths yet.
    pub fn new(local_id: Qpn, remote_id: Qpn) -> Self {
        Self {
            local_id,
            remote_id,
            pd: Pd::new(0),
            pkey: Pkey::new(consts::PKEY_DEFAULT),
            pmtu_log2: consts::PMTU_LOG2,
            dscp: 0,
            dscp_control: 0,
            is_ipv6: false,
            addresses: Vec::new(),
            tx_paths: Vec::new(),
            rx_paths: Vec::new(),
            streams: vec![StreamConfig::new(1, 0)],
            transport: Tunables::default(),
            cc: Algorithm::default(),
            hint_weight: 1,
        }
    }
}
