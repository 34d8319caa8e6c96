//! Every number of the baseline, with where it comes from.

use nic_fabric::{PS_PER_MS, PS_PER_US};

use crate::dcqcn::DcqcnConfig;

/// Settings of a RoCEv2 card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoceConfig {
    /// Payload of a full packet, bytes. The largest PMTU of InfiniBand.
    pub pmtu_bytes: u32,
    /// The responder acknowledges after so many packets, and at once where the requester asks.
    pub ack_packets: u32,
    /// Most packets of a QP in flight; `u32::MAX` (the default) leaves it to the rate, as cards do.
    pub window_packets: u32,
    /// READs of a QP under way at once; 16 is what InfiniBand cards commonly offer.
    pub reads_max: u32,
    /// Shortest retransmission timeout, picoseconds. That of the card it is compared with, so that the comparison is of
    /// transports, not of timers.
    pub rto_ps_min: u64,
    /// Retransmission timeout before the first measurement, picoseconds.
    pub rto_ps_initial: u64,
    /// Longest retransmission timeout, picoseconds.
    pub rto_ps_max: u64,
    /// How often a timeout doubles at most. InfiniBand's timeout is constant; three doublings keep a storm of them in bounds
    /// and a host that had bad luck waiting for less than a millisecond.
    pub backoff_max: u32,
    /// Timeouts in a row after which a QP is in error; 7 is the largest value of InfiniBand's retry count.
    pub retry_limit: u32,
    /// Shortest time between two CNPs of a QP, picoseconds; 50 us in the DCQCN paper.
    pub cnp_interval_ps: u64,
    /// Rate control.
    pub dcqcn: DcqcnConfig,
    /// The host's links have classes and PFC: the port says when it is free, for a pause may hold it.
    pub is_lossless: bool,
    /// DSCP of data and acknowledgements.
    pub data_dscp: u8,
    /// DSCP of CNPs, which switches with classes send first.
    pub cnp_dscp: u8,
}

impl RoceConfig {
    /// The defaults for a port of this rate.
    pub fn new(line_rate_mbps: u64) -> RoceConfig {
        RoceConfig {
            pmtu_bytes: 4_096,
            ack_packets: 4,
            window_packets: u32::MAX,
            reads_max: 16,
            rto_ps_min: 100 * PS_PER_US,
            rto_ps_initial: PS_PER_MS,
            rto_ps_max: 8_000 * PS_PER_MS,
            backoff_max: 3,
            retry_limit: 7,
            cnp_interval_ps: 50 * PS_PER_US,
            dcqcn: DcqcnConfig::new(line_rate_mbps),
            is_lossless: false,
            data_dscp: 26,
            cnp_dscp: 48,
        }
    }
}
