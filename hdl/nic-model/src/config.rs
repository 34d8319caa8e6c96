//! Parameters of the transport: every constant of the protocol that may be tuned, with the specification's default.

use crate::time::NS_PS;
use alloc::vec::Vec;
use nic_spec::consts;

/// Tunables of one connection's transport. Times in picoseconds. In memory, what every packet needs comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TransportConfig {
    /// Tick of the clock that packets carry.
    pub tick_ps: u64,
    /// Largest window of a path, packets, ≤ 256.
    pub path_cap_pkts: u32,
    /// Acknowledge after this many packets.
    pub ack_packets: u32,
    /// Acknowledge after this many bytes.
    pub ack_bytes: u32,
    /// Incomplete messages of a stream, at most 64.
    pub msgs_max: u32,
    /// Acknowledge after this long.
    pub ack_delay_ps: u64,
    /// Smallest tail-loss probe timeout.
    pub tlp_min_ps: u64,
    /// Least allowance of that timeout for the jitter of a round trip.
    pub tlp_slack_ps: u64,
    /// Packets of a connection in flight after the first acknowledgement, for each plane, more as they are acknowledged;
    /// and of answers to reads from the start, because who reads knows how much it asked for.
    pub conn_ramp_pkts: u32,
    /// Reorder window at start, as a fraction of SRTT in 1/256; 0 for networks that keep each path in order.
    pub reorder_of_srtt_q8: u32,
    /// Window of a path after its first acknowledgement, packets.
    pub path_init_pkts: u32,
    /// Tail-loss probes before the retransmission timeout.
    pub tlp_limit: u8,
    /// Send the newest unacknowledged packets once more when the connection has nothing else to do.
    pub idle_redundancy: bool,
    /// Send a marker at once when a path goes idle with data outstanding.
    pub tail_marker: bool,
    /// Open as many paths as rate and round trip ask for, within `paths_min` and `paths_max`.
    pub bootstrap: bool,
    /// Retransmission timeout before the first round-trip sample.
    pub rto_init_ps: u64,
    /// Smallest retransmission timeout.
    pub rto_min_ps: u64,
    /// Largest retransmission timeout.
    pub rto_max_ps: u64,
    /// How long a round-trip minimum is remembered.
    pub min_rtt_period_ps: u64,
    /// Packets by a route before it is judged by its marks.
    pub reroute_pkts: u32,
    /// Packets over which the following fraction is taken at least.
    pub heavy_loss_pkts: u32,
    /// A window's loss above this fraction (1/256) is congestion.
    pub heavy_loss_q8: u32,
    /// Part of them that is marked on a crowded route, 1/256.
    pub reroute_marks_q8: u32,
    /// How long a loss makes the card expect others.
    pub loss_memory_ps: u64,
    /// A limiting hint that expired while the connection was idle still holds for the first round trip of its next
    /// burst, this long after at most; 0 = not at all. For senders that meet at one receiver again and again.
    pub hint_cache_ps: u64,
    /// After this long without a packet a path falls back to `path_init_pkts`.
    pub idle_restart_ps: u64,
    /// Timeouts in a row on one path before it is given up.
    pub retry_limit: u8,
    /// Re-aims on one plane before another plane is tried.
    pub reaims_per_plane: u8,
    /// Interval of probes on a dead path.
    pub probe_interval_ps: u64,
    /// Silence of a peer that is waited for after which it is probed, at least.
    pub answer_wait_ps: u64,
    /// Good probes that bring a dead path back.
    pub probe_good: u8,
    /// Packets of a connection in flight until the first acknowledgement, for each plane.
    pub conn_init_pkts: u32,
    /// Fewest paths.
    pub paths_min: u32,
    /// Most paths, at most 256.
    pub paths_max: u32,
    /// Smallest cap of a connection's window, packets; the cap is twice the bandwidth-delay product if that is more.
    pub conn_window_min_pkts: u32,
    /// Shortest time between two refusals sent on a connection.
    pub nak_interval_ps: u64,
    /// Wait after a receiver-not-ready or no-resource refusal.
    pub rnr_ps: u64,
    /// Such refusals of one message in a row before the connection fails.
    pub rnr_retry_limit: u8,
    /// Reads and atomic operations in flight, asked for and answered alike.
    pub reads_max: u32,
    /// Requests that a send queue holds.
    pub sq_depth: u32,
    /// Receives that a receive queue holds.
    pub rq_depth: u32,
}

const _: () = {
    assert!(core::mem::offset_of!(TransportConfig, rto_init_ps) == 64, "what data packets need is one cache line");
    assert!(core::mem::offset_of!(TransportConfig, loss_memory_ps) < 128, "what acknowledgements need is another one");
};

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            tick_ps: 4 * NS_PS,
            path_cap_pkts: consts::SACK_BITS,
            path_init_pkts: consts::PATH_INIT,
            ack_packets: consts::ACK_PACKETS,
            ack_bytes: consts::ACK_BYTES,
            ack_delay_ps: u64::from(consts::ACK_DELAY_NS) * NS_PS,
            rto_init_ps: u64::from(consts::RTO_INIT_NS) * NS_PS,
            rto_min_ps: u64::from(consts::RTO_NS) * NS_PS,
            rto_max_ps: consts::RTO_NS_MAX * NS_PS,
            retry_limit: consts::RETRY_LIMIT as u8,
            tlp_min_ps: u64::from(consts::TLP_MIN_NS) * NS_PS,
            tlp_slack_ps: u64::from(consts::TLP_SLACK_NS) * NS_PS,
            tlp_limit: consts::TLP_LIMIT as u8,
            loss_memory_ps: u64::from(consts::LOSS_MEMORY_NS) * NS_PS,
            reorder_of_srtt_q8: 0,
            min_rtt_period_ps: u64::from(consts::MIN_RTT_PERIOD_NS) * NS_PS,
            reaims_per_plane: consts::REAIMS_PER_PLANE as u8,
            reroute_pkts: consts::REROUTE_PKTS,
            reroute_marks_q8: consts::REROUTE_MARKS_Q8,
            probe_interval_ps: u64::from(consts::PROBE_INTERVAL_NS) * NS_PS,
            answer_wait_ps: u64::from(consts::ANSWER_WAIT_NS) * NS_PS,
            probe_good: consts::PROBE_GOOD as u8,
            heavy_loss_q8: consts::HEAVY_LOSS_Q8,
            heavy_loss_pkts: consts::HEAVY_LOSS_PKTS,
            idle_restart_ps: u64::from(consts::IDLE_RESTART_NS) * NS_PS,
            hint_cache_ps: 0,
            conn_init_pkts: consts::CONN_INIT,
            conn_ramp_pkts: consts::CONN_RAMP,
            bootstrap: false,
            paths_min: consts::PATHS_MIN,
            paths_max: consts::PATHS_MAX,
            conn_window_min_pkts: consts::CONN_WINDOW_MIN,
            nak_interval_ps: u64::from(consts::NAK_INTERVAL_NS) * NS_PS,
            rnr_ps: u64::from(consts::RNR_NS) * NS_PS,
            rnr_retry_limit: consts::RNR_RETRY_LIMIT as u8,
            reads_max: consts::READS_MAX,
            msgs_max: consts::MSGS_PER_STREAM,
            sq_depth: 4096,
            rq_depth: 4096,
            idle_redundancy: true,
            tail_marker: true,
        }
    }
}

/// One port of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneConfig {
    /// MAC address, 48 bits.
    pub mac: u64,
    /// Line rate, Mb/s.
    pub rate_mbps: u64,
}

/// A card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicConfig {
    /// The ports, at most 16; plane p is port p.
    pub planes: Vec<PlaneConfig>,
    /// UDP destination port.
    pub udp_dport: u16,
    /// Time to live of what it sends.
    pub hop_limit: u8,
    /// Rows of the connection table, a power of two; a connection's row is its id modulo this.
    pub conns_max: u32,
    /// Longest frame it takes, bytes without FCS.
    pub frame_bytes_max: u32,
    /// Take frames to any MAC address.
    pub promiscuous: bool,
    /// Neither make nor check the ICRC of frames without payload bytes. Both ends must agree.
    pub elide_icrc: bool,
    /// Allot inbound bandwidth to connections.
    pub hints: bool,
    /// Share of the line rate that hints give away at first, in 1/256.
    pub hint_eta_q8: u32,
    /// Smallest such share, when packets come marked.
    pub hint_eta_min_q8: u32,
    /// Largest such share, when the ports are not full and packets come unmarked.
    pub hint_eta_max_q8: u32,
    /// Bytes of answers that reads may have asked for and not got, in line time of all ports; 0 = no limit. Of a read only
    /// what its responder sends before the first acknowledgement counts.
    pub read_horizon_ps: u64,
    /// Over this long a connection's use is measured, and after it without data it is idle.
    pub hint_window_ps: u64,
    /// Completions that a queue holds before further ones are counted as overflow.
    pub cq_depth: u32,
    /// How long a connection id stays unused after teardown.
    pub quarantine_ps: u64,
    /// Where the choice of UDP source ports begins; nothing else is drawn from it.
    pub seed: u64,
}

impl NicConfig {
    /// A card with these ports and defaults otherwise.
    pub fn new(planes: Vec<PlaneConfig>) -> Self {
        Self {
            planes,
            udp_dport: consts::UDP_DPORT,
            hop_limit: consts::HOP_LIMIT,
            conns_max: 4096,
            frame_bytes_max: 9216,
            promiscuous: false,
            elide_icrc: false,
            hints: true,
            hint_eta_q8: consts::HINT_ETA_Q8,
            hint_window_ps: u64::from(consts::HINT_WINDOW_NS) * NS_PS,
            hint_eta_min_q8: consts::HINT_ETA_MIN_Q8,
            hint_eta_max_q8: consts::HINT_ETA_MAX_Q8,
            read_horizon_ps: u64::from(consts::READ_HORIZON_NS) * NS_PS,
            cq_depth: 65_536,
            quarantine_ps: u64::from(consts::CONN_QUARANTINE_NS) * NS_PS,
            seed: 1,
        }
    }

    /// Rate of all ports together, Mb/s.
    pub fn rate_mbps(&self) -> u64 {
        self.planes.iter().map(|p| p.rate_mbps).sum()
    }
}
