//! Draws the tunables of a connection, and of a card.

use nic_model::config::{NicConfig, TransportConfig};
use nic_spec::consts::SACK_BITS;

use crate::draw::Draw;
use crate::faults::Faults;
use crate::network::Network;

const US: u64 = 1_000_000;

/// What a host sets at its card.
pub(crate) fn draw_card(draw: &mut Draw, nic: &mut NicConfig) {
    nic.hints = draw.percent(80);
    nic.seed = draw.bits();
    if draw.percent(30) {
        nic.hint_eta_q8 = draw.between(200, 256) as u32;
        nic.hint_window_ps = draw.magnitude(2 * US, 100 * US);
    }
}

pub(crate) fn draw_transport(draw: &mut Draw, network: &Network, faults: &Faults) -> TransportConfig {
    let mut transport = TransportConfig::default();
    if draw.percent(50) {
        transport.path_cap_pkts = draw.magnitude(1, 256) as u32;
        transport.path_init_pkts = draw.between(1, 12) as u32;
        transport.ack_packets = draw.between(1, 8) as u32;
        transport.ack_bytes = draw.magnitude(1 << 10, 1 << 17) as u32;
        transport.ack_delay_ps = draw.magnitude(US / 2, 8 * US);
    }
    if draw.percent(50) {
        transport.msgs_max = draw.magnitude(1, 64) as u32;
        transport.reads_max = draw.magnitude(1, 16) as u32;
        transport.sq_depth = draw.magnitude(1, 64) as u32;
        transport.rq_depth = draw.magnitude(32, 256) as u32;
    }
    transport.conn_init_pkts = draw.magnitude(1, 64) as u32;
    if draw.percent(12) {
        // The whole bitmap is in use after the first round trip.
        (transport.path_cap_pkts, transport.path_init_pkts) = (SACK_BITS, SACK_BITS);
        (transport.conn_ramp_pkts, transport.conn_window_min_pkts) = (16 * SACK_BITS, 16 * SACK_BITS);
    }
    transport.bootstrap = draw.percent(15);
    (transport.paths_min, transport.paths_max) = (draw.between(1, 12) as u32, draw.between(12, 96) as u32);
    transport.idle_redundancy = draw.percent(70);
    transport.tail_marker = draw.percent(80);
    if network.is_spraying || draw.percent(20) {
        transport.reorder_of_srtt_q8 = *draw.pick(&[0, 64, 128]);
    }
    if draw.percent(40) {
        draw_times(draw, &mut transport);
    }
    if faults.is_heavy {
        transport.retry_limit = 15;
    }
    // Receives come late in some runs; how late is not bounded by a number of refusals.
    transport.rnr_retry_limit = u8::MAX;
    transport
}

/// Times and limits that are seldom changed.
fn draw_times(draw: &mut Draw, transport: &mut TransportConfig) {
    transport.tick_ps = *draw.pick(&[4_000, 4_000, 1_000, 64_000]);
    transport.rto_init_ps = draw.magnitude(200 * US, 4_000 * US);
    transport.rto_min_ps = draw.magnitude(25 * US, 400 * US);
    // Shorter timeouts in a row must still outlast what a route may be down for.
    transport.retry_limit = 15;
    transport.tlp_min_ps = draw.magnitude(5 * US, 50 * US);
    transport.tlp_limit = draw.below(4) as u8;
    transport.min_rtt_period_ps = draw.magnitude(100 * US, 10_000 * US);
    transport.reaims_per_plane = draw.between(1, 4) as u8;
    transport.probe_interval_ps = draw.magnitude(500 * US, 10_000 * US);
    transport.answer_wait_ps = draw.magnitude(500 * US, 10_000 * US);
    transport.probe_good = draw.between(1, 4) as u8;
    transport.idle_restart_ps = draw.magnitude(20 * US, 100_000 * US);
    transport.hint_cache_ps = if draw.percent(50) { 0 } else { draw.magnitude(100 * US, 100_000 * US) };
    if transport.path_init_pkts < SACK_BITS {
        transport.conn_window_min_pkts = draw.magnitude(1, 144) as u32;
    }
    transport.nak_interval_ps = draw.below(200 * US);
    transport.rnr_ps = draw.magnitude(20 * US, 400 * US);
    transport.heavy_loss_q8 = draw.between(16, 128) as u32;
    transport.heavy_loss_pkts = draw.magnitude(8, 128) as u32;
}
