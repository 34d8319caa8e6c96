//! Networks from TOML: what the keys mean, and what a wrong file is told.

mod traffic;

use nic_fabric::{Ecn, Forwarding, LinkSelect, LinkSpec, NetworkPlan, NodeId, Pfc, Port, QueueSpec, Topology};
use std::path::Path;
use traffic::{udp, udp_in_plane, A};

const TWO_PLANES: &str = include_str!("../examples/two-planes.toml");

fn spec(topology: &Topology, name: &str) -> LinkSpec {
    let links = topology.select(&name.into());
    assert_eq!(links.len(), 1, "{name}");
    topology.link_spec(links[0]).clone()
}

#[test]
fn example_file_means_what_it_says() {
    let plan = NetworkPlan::from_toml(TWO_PLANES).unwrap();
    let topology = &plan.topology;
    assert_eq!((topology.hosts.len(), topology.switches.len()), (64, 32));
    assert_eq!(topology.select(&LinkSelect::All).len(), 2 * 2 * (64 + 64));
    let ecn = Ecn { min_bytes: 65_536, max_bytes: 262_144, max_ppm: 1_000_000 };
    let core = LinkSpec::new(400_000, 800_000).with_buffer_bytes(2_097_152).with_ecn(ecn);
    assert_eq!(spec(topology, "p0.leaf3->p0.spine1"), core);
    assert_eq!(spec(topology, "p0.leaf0->p0.spine1"), LinkSpec { rate_mbps: 200_000, ..core.clone() });
    assert_eq!(spec(topology, "p1.spine7->p1.leaf2"), LinkSpec { rate_mbps: 100_000, delay_ps: 1_000_000, ..core });
    // A host's own egress has no limits, and no switch before it.
    assert_eq!(spec(topology, "h63->p1.leaf7"), LinkSpec::new(100_000, 500_000));
    assert_eq!(topology.control_dscps, 1 << 48);
    assert_eq!(topology.reroute_after_ps, Some(500_000_000));
    assert_eq!((plan.rules.len(), plan.outages.len(), plan.captures.len()), (2, 1, 1));
}

#[test]
fn built_network_loses_fails_and_captures_as_planned() {
    let directory = tempfile::tempdir().unwrap();
    let plan = NetworkPlan::from_toml(TWO_PLANES).unwrap();
    let mut fabric = plan.build(1, 1, directory.path()).unwrap();
    for i in 0..2000 {
        fabric.inject(A, i * 1_000_000, udp(0, 9, i as u16, 2, 64)).unwrap();
    }
    let other_plane = Port { node: NodeId(0), index: 1 };
    fabric.inject(other_plane, 2_000_000_000, udp_in_plane(1, 0, 9, 1, 2, 64)).unwrap();
    fabric.advance(3_000_000_000);
    fabric.finish_captures().unwrap();
    let drops = fabric.stats().drops;
    assert!(drops.count(nic_fabric::DropCause::Loss).abs_diff(20) < 18, "{drops}");
    assert_eq!(drops.count(nic_fabric::DropCause::LinkDown), 1);
    let capture = std::fs::metadata(directory.path().join("h0-plane0.pcap")).unwrap();
    assert_eq!(capture.len(), 24 + 2000 * (16 + 42 + 64));
}

#[test]
fn every_shape_and_queue_has_a_spelling() {
    let links = "[host_link]\nrate_mbps = 100000\ndelay_ns = 1\n[core_link]\nrate_mbps = 100000\ndelay_ns = 2\n";
    let hosts = |shape: &str| {
        let plan = NetworkPlan::from_toml(&format!("[topology]\n{shape}\n{links}")).unwrap();
        plan.build(1, 2, Path::new(".")).unwrap().topology().hosts.len()
    };
    assert_eq!(hosts("kind = \"point-to-point\""), 2);
    assert_eq!(hosts("kind = \"parallel-paths\"\npaths = 12"), 2);
    assert_eq!(hosts("kind = \"leaf-spine\"\nleaves = 2\nhosts_per_leaf = 3\nspines = 2"), 6);
    assert_eq!(hosts("kind = \"fat-tree\"\narity = 4\nplanes = 2"), 16);

    let text = "[topology]\nkind = \"parallel-paths\"\npaths = 3\n[switch]\nforwarding = \"least-backlog\"\n\
        [host_link]\nrate_mbps = 400000\ndelay_ns = 1\ncontrol_buffer_bytes = 9000\n\
        pfc = { xoff_bytes = 5000, xon_bytes = 4000, headroom_bytes = 3000 }\n\
        [core_link]\nrate_mbps = 100000\ndelay_ns = 2\ncontrol_buffer_bytes = 8000\n\
        [[path]]\n[[path]]\nrate_mbps = 50000\necn = { min_bytes = 7 }\n";
    let topology = NetworkPlan::from_toml(text).unwrap().topology;
    assert_eq!(spec(&topology, "left->right#0").rate_mbps, 100_000);
    assert_eq!(spec(&topology, "right->left#1").rate_mbps, 50_000);
    assert_eq!(spec(&topology, "right->left#1").ecn, Some(Ecn::step(7)));
    assert_eq!(spec(&topology, "right->left#2").queue, QueueSpec::Classes { control_buffer_bytes: 8000 });
    let pfc = Pfc { xoff_bytes: 5000, xon_bytes: 4000, headroom_bytes: 3000 };
    assert_eq!(spec(&topology, "h0->left").pfc, Some(pfc));
    assert!(topology.switches.iter().all(|switch| switch.forwarding == Forwarding::LeastBacklog));
}

#[test]
fn wrong_file_is_told_where_and_what() {
    let good = "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nhosts_per_leaf = 2\nspines = 2\n\
        [host_link]\nrate_mbps = 1\ndelay_ns = 1\n[core_link]\nrate_mbps = 1\ndelay_ns = 1\n";
    let cases = [
        (good.replace("spines", "spine"), "unknown field `spine`"),
        (good.replace("delay_ns = 1\n[core", "delay_ms = 1\n[core"), "line 8"),
        (good.replace("leaves = 2", "leaves = \"two\""), "invalid type: string \"two\", expected u32"),
        (good.replace("leaf-spine", "ring"), "unknown variant `ring`"),
        (good.replace("[core_link]\nrate_mbps = 1\ndelay_ns = 1\n", ""), "needs [core_link]"),
        (good.replace("[core_link]\nrate_mbps = 1\n", "[core_link]\n"), "[core_link] needs rate_mbps"),
        (good.replace("hosts_per_leaf = 2", "hosts_per_leaf = 40000"), "80000 hosts, at most 65534"),
        (good.to_string() + "[[path]]\nrate_mbps = 1\n", "[[path]] belongs to"),
        (good.to_string() + "[[plane]]\nplane = 1\n", "[[plane]] 1 of 1 planes"),
        (good.to_string() + "[[link]]\nselect = \"x\"\nchange = {}\n", "\"x\" matches no link"),
        (good.to_string() + "[switch]\ncontrol_dscps = [64]\n", "at most 63"),
        (good.to_string() + "[[rule]]\nselect = \"x\"\naction = { kind = \"loss\", ppm = 1 }\n", "no link matches"),
        (good.to_string() + "[[outage]]\nselect = \"all\"\nfrom_us = 2\nuntil_us = 1\n", "outage from 2000000 ps"),
        (good.to_string() + "[[capture]]\nlink = \"x\"\ntap = \"sent\"\nfile = \"f\"\n", "no such link"),
        (good.replace("[host_link]\nrate_mbps = 1", "[host_link]\nrate_mbps = 0"), "has rate 0"),
        (
            good.replace(
                "[host_link]\nrate_mbps = 1\ndelay_ns = 1",
                "[host_link]\nrate_mbps = 1\ndelay_ns = 9000000000000000000",
            ),
            "delay",
        ),
    ];
    for (text, expected) in cases {
        let result = NetworkPlan::from_toml(&text).and_then(|plan| plan.build(1, 1, Path::new(".")));
        let message = result.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.contains(expected), "expected `{expected}` in `{message}`");
    }
}
