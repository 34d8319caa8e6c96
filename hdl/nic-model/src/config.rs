//! Parameters of the transport: every constant of the protocol that may be tuned, with the specification's default.

use crate::time::{MS_PS, NS_PS, US_PS};
use nic_spec::consts;

/// Tunables of one connection's transport. Times in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportConfig {
    /// Tick of the clock that packets carry.
    pub tick_ps: u64,
    /// Largest window of a path, packets, ≤ 256.
    pub path_cap_pkts: u32,
    /// Window of a path after its first acknowledgement, packets.
    pub path_init_pkts: u32,
    /// Acknowledge after this many packets.
    pub ack_packets: u32,
    /// Acknowledge after this many bytes.
    pub ack_bytes: u32,
    /// Acknowledge after this long.
    pub ack_delay_ps: u64,
    /// Retransmission timeout before the first round-trip sample.
    pub rto_init_ps: u64,
    /// Smallest retransmission timeout.
    pub rto_min_ps: u64,
    /// Largest retransmission timeout.
    pub rto_max_ps: u64,
    /// Timeouts in a row on one path before it is given up.
    pub retry_limit: u8,
    /// Smallest tail-loss probe timeout.
    pub tlp_min_ps: u64,
    /// Tail-loss probes before the retransmission timeout.
    pub tlp_limit: u8,
    /// Reorder window at start, as a fraction of SRTT in 1/256; 0 for networks that keep each path in order.
    pub reorder_of_srtt_q8: u32,
    /// How long a round-trip minimum is remembered.
    pub min_rtt_period_ps: u64,
    /// Re-aims on one plane before another plane is tried.
    pub reaims_per_plane: u8,
    /// Interval of probes on a dead path.
    pub probe_interval_ps: u64,
    /// Good probes that bring a dead path back.
    pub probe_good: u8,
    /// A window's loss above this fraction (1/256) is congestion.
    pub heavy_loss_q8: u32,
    /// Packets over which that fraction is taken at least.
    pub heavy_loss_pkts: u32,
    /// Share of the line rate that hints give away, in 1/256.
    pub hint_eta_q8: u32,
    /// Send the newest unacknowledged packets once more when the connection has nothing else to do.
    pub idle_redundancy: bool,
    /// Send a marker at once when a path goes idle with data outstanding.
    pub tail_marker: bool,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            tick_ps: 4 * NS_PS,
            path_cap_pkts: consts::SACK_BITS,
            path_init_pkts: 6,
            ack_packets: consts::ACK_PACKETS,
            ack_bytes: consts::ACK_BYTES,
            ack_delay_ps: u64::from(consts::ACK_DELAY_NS) * NS_PS,
            rto_init_ps: MS_PS,
            rto_min_ps: u64::from(consts::RTO_NS) * NS_PS,
            rto_max_ps: consts::RTO_NS_MAX * NS_PS,
            retry_limit: consts::RETRY_LIMIT as u8,
            tlp_min_ps: 15 * US_PS,
            tlp_limit: 3,
            reorder_of_srtt_q8: 0,
            min_rtt_period_ps: 10 * MS_PS,
            reaims_per_plane: 3,
            probe_interval_ps: 10 * MS_PS,
            probe_good: 3,
            heavy_loss_q8: 64,
            heavy_loss_pkts: 64,
            hint_eta_q8: 243,
            idle_redundancy: true,
            tail_marker: true,
        }
    }
}
