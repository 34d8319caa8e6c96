//! The way between two hosts, for the physical limit of a run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nic_fabric::workload::{Floor, Workload};
use nic_fabric::{LinkId, LinkSelect, Topology};

/// Line time of the shortest frame: 60 bytes, preamble, FCS and gap.
const SHORT_WIRE_BYTES: u64 = 84;

/// What the network imposes on a workload whose packets have this much payload and this much overhead.
pub(crate) fn floor(topology: &Topology, workload: &Workload, mtu_bytes: u64, overhead_bytes: u64) -> Floor {
    let mut rates = vec![0; topology.hosts.len()];
    for link in topology.select(&LinkSelect::HostUp) {
        let host = topology.node_of(topology.ends(link).0).0 as usize;
        rates[host] += topology.link_spec(link).rate_mbps;
    }
    let rate_mbps = rates.iter().copied().max().unwrap_or(1).max(1);
    let smallest = workload.messages().iter().map(|message| message.bytes.min(mtu_bytes)).min().unwrap_or(0);
    let sizes = [smallest + overhead_bytes, SHORT_WIRE_BYTES];
    // Per source the destinations; the shortest of all ways is what no message can beat.
    let mut pairs: Vec<(u32, u32)> = workload.messages().iter().map(|message| (message.src, message.dst)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    let [latency_ps, short_latency_ps] = sizes.map(|wire_bytes| {
        let mut from: Option<(u32, Vec<u64>)> = None;
        let latency = |(src, dst): &(u32, u32)| {
            if from.as_ref().is_none_or(|from| from.0 != *src) {
                from = Some((*src, distances_ps(topology, *src, wire_bytes)));
            }
            from.as_ref().map(|from| from.1[*dst as usize])
        };
        pairs.iter().filter_map(latency).min().unwrap_or(0)
    });
    Floor { rate_mbps, latency_ps, short_latency_ps, mtu_bytes, overhead_bytes }
}

/// Time from the last bit of a packet leaving `src` to its arrival at every node, by the fastest way (Dijkstra's
/// algorithm); each switch receives the packet whole before it sends it on.
fn distances_ps(topology: &Topology, src: u32, wire_bytes: u64) -> Vec<u64> {
    let node_count = topology.hosts.len() + topology.switches.len();
    let mut out: Vec<Vec<LinkId>> = vec![Vec::new(); node_count];
    for link in (0..topology.link_count()).map(LinkId) {
        out[topology.node_of(topology.ends(link).0).0 as usize].push(link);
    }
    let mut distances = vec![u64::MAX; node_count];
    distances[src as usize] = 0;
    let mut queue = BinaryHeap::from([Reverse((0u64, src as usize))]);
    while let Some(Reverse((distance_ps, node))) = queue.pop() {
        // Hosts do not forward.
        if distance_ps > distances[node] || (node < topology.hosts.len() && node != src as usize) {
            continue;
        }
        for link in &out[node] {
            let spec = topology.link_spec(*link);
            let again_ps = if node == src as usize { 0 } else { spec.serialisation_ps(wire_bytes) };
            let next = topology.node_of(topology.ends(*link).1).0 as usize;
            let at_ps = distance_ps + again_ps + spec.delay_ps;
            if at_ps < distances[next] {
                distances[next] = at_ps;
                queue.push(Reverse((at_ps, next)));
            }
        }
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_fabric::workload::Builder;
    use nic_fabric::{LeafSpine, LinkSpec, PlaneLinks};

    #[test]
    fn latency_is_that_of_the_shortest_way_used() {
        let link = LinkSpec::new(400_000, 500_000);
        let planes = vec![PlaneLinks { host: link.clone(), core: link }; 2];
        let shape = LeafSpine { leaf_count: 2, hosts_per_leaf: 2, spine_count: 2, planes };
        let topology = Topology::leaf_spine(&shape);
        let floor = |pairs: &[(u32, u32)]| {
            let mut builder = Builder::new(4);
            for (src, dst) in pairs {
                builder.write(*src, *dst, 10_000, 0, &[]);
            }
            floor(&topology, &builder.build().expect("messages"), 4_000, 100)
        };
        let across = floor(&[(0, 2), (3, 1)]);
        assert_eq!((across.rate_mbps, across.latency_ps), (800_000, 4 * 500_000 + 3 * 4_100 * 20));
        assert_eq!(across.short_latency_ps, 4 * 500_000 + 3 * 84 * 20);
        assert_eq!(floor(&[(0, 2), (0, 1)]).latency_ps, 2 * 500_000 + 4_100 * 20);
    }
}
