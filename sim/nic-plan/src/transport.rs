//! The `[transport.NAME]` of a plan: which NIC, and what differs from its defaults.

use std::sync::Arc;

use nic_baseline::RoceConfig;
use nic_fabric::PS_PER_US;
use nic_model::config::{NicConfig, TransportConfig};
use nic_model::transport::cc::{CongestionControl, Dctcp, Delay};
use serde::Deserialize;

/// A NIC.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TransportSpec {
    /// The golden model.
    Metaroce(ModelSpec),
    /// RoCEv2: go-back-N, one path, DCQCN. Lossless if the network has classes and PFC.
    Rocev2(RoceSpec),
}

/// Settings of the golden model; what is not given is as in the specification.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Paths of a connection each way; 12 by default.
    pub paths: Option<usize>,
    /// Payload of a full packet; 1024, 2048, 4096 or 8192.
    pub pmtu_bytes: Option<u32>,
    /// `dctcp` or `delay`.
    pub congestion_control: Option<ControlSpec>,
    /// Whether receivers share out their bandwidth.
    pub hints: Option<bool>,
    /// Window of a path after its first acknowledgement, packets.
    pub path_init_pkts: Option<u32>,
    /// Packets of a connection in flight until the first acknowledgement.
    pub conn_init_pkts: Option<u32>,
    /// Packets in flight after the first acknowledgement, and of answers to reads from the start.
    pub conn_ramp_pkts: Option<u32>,
    /// Share of the line that hints give away at first, 1/256.
    pub hint_eta_q8: Option<u32>,
    /// Smallest such share.
    pub hint_eta_min_q8: Option<u32>,
    /// Largest such share.
    pub hint_eta_max_q8: Option<u32>,
    /// Time over which a receiver measures.
    pub hint_window_us: Option<u64>,
    /// Line time of what reads may have asked for and not got; 0 is no limit.
    pub read_horizon_us: Option<u64>,
    /// Smallest cap of a connection's window, packets.
    pub conn_window_min_pkts: Option<u32>,
    /// Packets per acknowledgement.
    pub ack_packets: Option<u32>,
    /// Smallest retransmission timeout.
    pub rto_min_us: Option<u64>,
    /// Smallest tail-loss probe timeout.
    pub tlp_min_us: Option<u64>,
    /// Reorder window at start, 1/256 of the smoothed round trip.
    pub reorder_of_srtt_q8: Option<u32>,
    /// Copies of the newest packets in idle time.
    pub idle_redundancy: Option<bool>,
    /// Marker when a path goes idle.
    pub tail_marker: Option<bool>,
    /// Open as many paths as rate and round trip ask for.
    pub bootstrap: Option<bool>,
    /// Most paths that bootstrapping opens.
    pub paths_max: Option<u32>,
    /// Reads of a connection under way at once.
    pub reads_max: Option<u32>,
}

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlSpec {
    /// AIMD by ECN, the baseline.
    Dctcp,
    /// By queueing delay.
    Delay,
}

impl ModelSpec {
    /// Paths of a connection.
    pub fn path_count(&self) -> usize {
        self.paths.unwrap_or(12)
    }

    /// Logarithm of the payload of a full packet.
    pub fn pmtu_log2(&self) -> u8 {
        self.pmtu_bytes.unwrap_or(4_096).ilog2() as u8
    }

    /// The algorithm.
    pub fn control(&self) -> Arc<dyn CongestionControl> {
        match self.congestion_control.unwrap_or(ControlSpec::Dctcp) {
            ControlSpec::Dctcp => Arc::new(Dctcp::default()),
            ControlSpec::Delay => Arc::new(Delay::default()),
        }
    }

    /// Sets what is a card's.
    pub fn tune(&self, card: &mut NicConfig) {
        let us = |value: Option<u64>, other: u64| value.map_or(other, |us| us * PS_PER_US);
        card.hints = self.hints.unwrap_or(card.hints);
        card.hint_eta_q8 = self.hint_eta_q8.unwrap_or(card.hint_eta_q8);
        card.hint_eta_min_q8 = self.hint_eta_min_q8.unwrap_or(card.hint_eta_min_q8);
        card.hint_eta_max_q8 = self.hint_eta_max_q8.unwrap_or(card.hint_eta_max_q8);
        card.hint_window_ps = us(self.hint_window_us, card.hint_window_ps);
        card.read_horizon_ps = us(self.read_horizon_us, card.read_horizon_ps);
    }

    /// The tunables of a connection.
    pub fn tunables(&self) -> TransportConfig {
        let standard = TransportConfig::default();
        let us = |value: Option<u64>, other: u64| value.map_or(other, |us| us * PS_PER_US);
        TransportConfig {
            path_init_pkts: self.path_init_pkts.unwrap_or(standard.path_init_pkts),
            conn_init_pkts: self.conn_init_pkts.unwrap_or(standard.conn_init_pkts),
            conn_ramp_pkts: self.conn_ramp_pkts.unwrap_or(standard.conn_ramp_pkts),
            conn_window_min_pkts: self.conn_window_min_pkts.unwrap_or(standard.conn_window_min_pkts),
            ack_packets: self.ack_packets.unwrap_or(standard.ack_packets),
            rto_min_ps: us(self.rto_min_us, standard.rto_min_ps),
            tlp_min_ps: us(self.tlp_min_us, standard.tlp_min_ps),
            reorder_of_srtt_q8: self.reorder_of_srtt_q8.unwrap_or(standard.reorder_of_srtt_q8),
            idle_redundancy: self.idle_redundancy.unwrap_or(standard.idle_redundancy),
            tail_marker: self.tail_marker.unwrap_or(standard.tail_marker),
            bootstrap: self.bootstrap.unwrap_or(standard.bootstrap),
            paths_max: self.paths_max.unwrap_or(standard.paths_max),
            reads_max: self.reads_max.unwrap_or(standard.reads_max),
            ..standard
        }
    }
}

/// Settings of RoCEv2; what is not given is as in [`RoceConfig::new`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoceSpec {
    /// Payload of a full packet.
    pub pmtu_bytes: Option<u32>,
    /// Most packets of a QP in flight.
    pub window_packets: Option<u32>,
    /// Packets per acknowledgement.
    pub ack_packets: Option<u32>,
    /// Timeouts in a row until a QP fails.
    pub retry_limit: Option<u32>,
    /// Smallest retransmission timeout.
    pub rto_min_us: Option<u64>,
}

impl RoceSpec {
    /// The card's settings for a port of this rate.
    pub fn config(&self, line_rate_mbps: u64, is_lossless: bool) -> RoceConfig {
        let standard = RoceConfig::new(line_rate_mbps);
        RoceConfig {
            pmtu_bytes: self.pmtu_bytes.unwrap_or(standard.pmtu_bytes),
            window_packets: self.window_packets.unwrap_or(standard.window_packets),
            ack_packets: self.ack_packets.unwrap_or(standard.ack_packets),
            retry_limit: self.retry_limit.unwrap_or(standard.retry_limit),
            rto_ps_min: self.rto_min_us.map_or(standard.rto_ps_min, |us| us * PS_PER_US),
            is_lossless,
            ..standard
        }
    }
}
