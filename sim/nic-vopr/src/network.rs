//! A random network: shape, rates, delays, buffers, marking, how switches choose.

use nic_fabric::{Ecn, FatTree, Forwarding, LeafSpine, LinkSpec, PlaneLinks, Topology};

use crate::draw::Draw;

/// A network.
#[derive(Clone, Debug)]
pub struct Network {
    /// The graph.
    pub topology: Topology,
    /// Planes of every host.
    pub planes: u16,
    /// Packets of a path may pass each other without any fault.
    pub is_spraying: bool,
    /// No cable between switches has another one beside it.
    pub is_single_way: bool,
    /// In words.
    pub text: String,
}

/// Draws a network of at most 16 hosts.
pub fn draw_network(draw: &mut Draw) -> Network {
    let rate_mbps = *draw.pick(&[10_000, 25_000, 100_000, 200_000, 400_000, 400_000, 800_000]);
    // Up to the length of a campus, seldom to another city.
    let delay_ps =
        if draw.percent(5) { draw.magnitude(20_000_000, 300_000_000) } else { draw.magnitude(50_000, 5_000_000) };
    let link = draw_link(draw, rate_mbps, delay_ps);
    let planes = *draw.pick(&[1, 1, 1, 2, 2, 3, 4, 8]);
    let plane_links = |draw: &mut Draw| -> Vec<PlaneLinks> {
        let plane = |draw: &mut Draw| {
            let host = if draw.percent(30) { vary(draw, &link) } else { link.clone() };
            let core = if draw.percent(30) { vary(draw, &host) } else { host.clone() };
            PlaneLinks { host, core }
        };
        (0..planes).map(|_| plane(draw)).collect()
    };
    let (topology, planes, is_single_way, shape) = match draw.weighted(&[1, 3, 6, 1]) {
        0 => (Topology::point_to_point(&link), 1, true, "cable".to_string()),
        1 => {
            let count = draw.between(1, 6);
            let paths: Vec<LinkSpec> = (0..count).map(|_| vary(draw, &link)).collect();
            (Topology::parallel_paths(&link, &paths), 1, count == 1, format!("{count} parallel paths"))
        }
        2 => {
            let (leaf_count, spine_count) = (draw.between(1, 3) as u32, draw.between(1, 4) as u32);
            let hosts_per_leaf = if leaf_count == 1 { draw.between(2, 4) } else { draw.between(1, 3) } as u32;
            let shape = LeafSpine { leaf_count, hosts_per_leaf, spine_count, planes: plane_links(draw) };
            let text = format!("{leaf_count} leaves of {hosts_per_leaf} hosts, {spine_count} spines, {planes} planes");
            (Topology::leaf_spine(&shape), planes, spine_count == 1 || leaf_count == 1, text)
        }
        _ => {
            let shape = FatTree { arity: 4, planes: plane_links(draw) };
            (Topology::fat_tree(&shape), planes, false, format!("fat tree of arity 4, {planes} planes"))
        }
    };
    let forwarding = match draw.weighted(&[6, 1, 1, 1]) {
        0 => Forwarding::Ecmp,
        1 => Forwarding::Random,
        2 => Forwarding::RoundRobin,
        _ => Forwarding::LeastBacklog,
    };
    let mut topology = topology.with_forwarding(forwarding);
    if draw.percent(30) {
        topology = topology.with_switch_latency_ps(draw.magnitude(100_000, 1_000_000));
    }
    if draw.percent(30) {
        topology.reroute_after_ps = Some(draw.magnitude(10_000_000, 1_000_000_000));
    }
    let limits = match (link.buffer_bytes, link.ecn) {
        (u64::MAX, None) => String::new(),
        (u64::MAX, Some(_)) => ", marking".into(),
        (buffer, None) => format!(", buffers of {buffer} bytes"),
        (buffer, Some(_)) => format!(", buffers of {buffer} bytes, marking"),
    };
    Network {
        topology,
        planes,
        is_spraying: forwarding != Forwarding::Ecmp,
        is_single_way,
        text: format!("{shape}, {} Gb/s, {} ns a cable{limits}, {forwarding:?}", rate_mbps / 1000, delay_ps / 1000),
    }
}

fn draw_link(draw: &mut Draw, rate_mbps: u64, delay_ps: u64) -> LinkSpec {
    let mut link = LinkSpec::new(rate_mbps, delay_ps);
    if draw.percent(60) {
        link = link.with_buffer_bytes(draw.magnitude(32 << 10, 4 << 20));
    }
    if draw.percent(60) {
        let min_bytes = draw.magnitude(8 << 10, 256 << 10);
        link = link.with_ecn(Ecn { min_bytes, max_bytes: min_bytes * draw.between(1, 4), max_ppm: 1_000_000 });
    }
    link
}

/// Another rate or delay.
fn vary(draw: &mut Draw, link: &LinkSpec) -> LinkSpec {
    let mut link = link.clone();
    if draw.percent(50) {
        link.rate_mbps = (link.rate_mbps / draw.between(1, 4)).max(1_000);
    }
    if draw.percent(50) {
        link.delay_ps = link.delay_ps * draw.between(1, 8) / 2;
    }
    link
}
