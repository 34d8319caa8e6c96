//! RoCEv2 cards in a network: loss, congestion, pauses, outages; always the same for the same seed.

use std::sync::Arc;

use nic_baseline::{Roce, RoceConfig, RoceCounters};
use nic_fabric::workload::{Builder, Collective, CollectiveKind, Endpoint, Queue, Workload, WorkloadHost, NEVER_PS};
use nic_fabric::{
    Ecn, Fabric, FabricStats, LeafSpine, LinkSelect, LinkSpec, NodeId, Outage, Pfc, PlaneLinks, Rule, Topology,
    PS_PER_MS, PS_PER_US,
};

type Host = WorkloadHost<Roce>;

const RATE_MBPS: u64 = 100_000;

fn link() -> LinkSpec {
    LinkSpec::new(RATE_MBPS, 500_000).with_buffer_bytes(1 << 20).with_ecn(Ecn {
        min_bytes: 50_000,
        max_bytes: 200_000,
        max_ppm: 100_000,
    })
}

/// 8 hosts on two leaves with two spines, so many planes.
fn topology(link: &LinkSpec, planes: usize) -> Topology {
    let planes = vec![PlaneLinks { host: link.clone(), core: link.clone() }; planes];
    Topology::leaf_spine(&LeafSpine { leaf_count: 2, hosts_per_leaf: 4, spine_count: 2, planes }).with_control_dscp(48)
}

struct Outcome {
    /// When the last message was where it goes; [`NEVER_PS`] if one was not.
    done_ps: u64,
    counters: RoceCounters,
    stats: FabricStats,
    failed: usize,
}

fn config() -> RoceConfig {
    RoceConfig::new(RATE_MBPS)
}

/// A fabric with its cards; the first frames are sent before this returns.
fn fabric(
    topology: &Topology,
    workload: &Arc<Workload>,
    config: &RoceConfig,
    threads: u16,
    prepare: impl Fn(&mut Fabric),
) -> Fabric {
    let mut fabric = Fabric::with_threads(topology, 5, threads).expect("a valid topology");
    prepare(&mut fabric);
    for host in 0..workload.host_count() {
        let planes = topology.cables.iter().map(|cable| cable.plane + 1).max().unwrap_or(1);
        let card = Roce::new(config.clone(), workload, host, planes);
        fabric.attach(NodeId(host), WorkloadHost::new(workload.clone(), host, card));
    }
    fabric
}

fn outcome(fabric: &Fabric, workload: &Workload) -> Outcome {
    let hosts = || (0..workload.host_count()).map(|host| fabric.node::<Host>(NodeId(host)).expect("a host"));
    let mut counters = RoceCounters::default();
    for other in hosts().map(|host| host.endpoint().counters_now()) {
        counters.tx_data += other.tx_data;
        counters.tx_again += other.tx_again;
        counters.tx_naks += other.tx_naks;
        counters.gaps += other.gaps;
        counters.timeouts += other.timeouts;
        counters.rate_cuts += other.rate_cuts;
        counters.rx_out_of_sequence += other.rx_out_of_sequence;
        counters.rx_unknown += other.rx_unknown;
    }
    let done_ps = hosts().flat_map(|host| host.player().times()).map(|times| times.done_ps).max().unwrap_or(0);
    let failed = hosts().map(|host| host.failed().len()).sum();
    Outcome { done_ps, counters, stats: fabric.stats(), failed }
}

fn run(topology: &Topology, workload: Workload, config: &RoceConfig, prepare: impl Fn(&mut Fabric)) -> Outcome {
    let workload = Arc::new(workload);
    let mut fabric = fabric(topology, &workload, config, 1, prepare);
    fabric.run_until_idle(1_000 * PS_PER_MS);
    let outcome = outcome(&fabric, &workload);
    assert_eq!(outcome.counters.rx_unknown, 0);
    outcome
}

fn queue(message_bytes: u64, count: u32, depth: u32) -> Queue {
    Queue { message_bytes, count, depth, stream: 0 }
}

fn workload(add: impl Fn(&mut Builder)) -> Workload {
    let mut builder = Builder::new(8);
    add(&mut builder);
    builder.build().expect("a workload")
}

fn lose(select: &str, ppm: u32) -> impl Fn(&mut Fabric) + '_ {
    move |fabric| fabric.add_rule(&select.into(), Rule::loss(ppm)).expect("links")
}

#[test]
fn quiet_line_carries_a_message_at_line_rate() {
    let outcome = run(&topology(&link(), 1), workload(|b| queue(4 << 20, 1, 0).write(b, 0, 5)), &config(), |_| {});
    let line_ps = (4u64 << 20) * 80 * 4_178 / 4_096;
    assert!(outcome.done_ps > line_ps && outcome.done_ps < line_ps * 104 / 100, "{} of {line_ps} ps", outcome.done_ps);
    assert_eq!((outcome.counters.tx_again, outcome.counters.tx_data), (0, 1_024));
}

#[test]
fn writes_and_reads_complete_whatever_is_lost() {
    for (read, ppm) in [(false, 10_000), (true, 10_000), (false, 100_000), (true, 100_000)] {
        let workload = workload(|builder| {
            for host in 0..4 {
                if read {
                    queue(300_001, 3, 2).read(builder, host, host + 4);
                } else {
                    queue(300_001, 3, 2).write(builder, host, host + 4);
                }
            }
        });
        let outcome = run(&topology(&link(), 1), workload, &config(), lose("host-up", ppm));
        assert!(outcome.done_ps != NEVER_PS && outcome.failed == 0, "read {read}, {ppm} ppm");
        assert!(outcome.stats.drops.total() > 10 && outcome.counters.gaps > 0, "read {read}, {ppm} ppm");
    }
}

#[test]
fn one_lost_packet_costs_one_round_trip_of_packets() {
    let lose = |fabric: &mut Fabric| fabric.add_rule(&"h0->leaf0".into(), Rule::drop_nth(100)).expect("a link");
    let workload = workload(|b| queue(1 << 20, 1, 0).write(b, 0, 5));
    let outcome = run(&topology(&link(), 1), workload, &config(), lose);
    let RoceCounters { gaps, tx_again, tx_naks, rx_out_of_sequence, timeouts, .. } = outcome.counters;
    assert_eq!((gaps, tx_naks, timeouts), (1, 1, 0));
    // What was under way from the loss to the NAK: eight cables of 500 ns, four full frames and four short ones, in
    // full frames of 334 ns; all but the lost one reached the responder in vain.
    assert!((15..=18).contains(&tx_again), "{tx_again}");
    assert_eq!(rx_out_of_sequence + 1, tx_again);
}

#[test]
fn lost_last_packet_waits_for_the_timer() {
    let lose = |fabric: &mut Fabric| fabric.add_rule(&"h0->leaf0".into(), Rule::drop_nth(512)).expect("a link");
    let workload = workload(|b| queue(1 << 20, 2, 1).write(b, 0, 5));
    let outcome = run(&topology(&link(), 1), workload, &config(), lose);
    // The three before it arrived, and were not acknowledged because the fourth was missing.
    assert_eq!((outcome.counters.timeouts, outcome.counters.tx_again), (1, 4));
    assert!(outcome.done_ps > config().rto_ps_min && outcome.done_ps < config().rto_ps_min + 250 * PS_PER_US);
}

#[test]
fn timer_does_not_expire_because_a_queue_is_long() {
    // Seven to one without marking, so that buffers are all that holds senders: round trips of 80 us and more, which the
    // timeout has to follow.
    let link = LinkSpec::new(RATE_MBPS, 500_000);
    let config = RoceConfig { window_packets: 60, rto_ps_initial: 4 * PS_PER_MS, ..config() };
    let workload = workload(|b| queue(1 << 20, 4, 0).incast(b, &[1, 2, 3, 4, 5, 6, 7], 0));
    let outcome = run(&topology(&link, 1), workload, &config, |_| {});
    assert_eq!((outcome.counters.timeouts, outcome.counters.tx_again), (0, 0));
}

/// Received bytes per sender between two times, for senders that all go to host 0.
fn shares(senders: &[u32], from_ps: u64, until_ps: u64) -> (Vec<u64>, RoceCounters, FabricStats) {
    let workload = Arc::new(workload(|b| queue(64 << 20, 2, 0).incast(b, senders, 0)));
    let mut fabric = fabric(&topology(&link(), 1), &workload, &config(), 1, |_| {});
    let received = |fabric: &Fabric| -> Vec<u64> {
        let card = fabric.node::<Host>(NodeId(0)).expect("a host").endpoint();
        (0..senders.len() as u32).map(|connection| card.received_bytes(connection)).collect()
    };
    fabric.advance(from_ps);
    let before = received(&fabric);
    fabric.advance(until_ps);
    let after = received(&fabric);
    let outcome = outcome(&fabric, &workload);
    (after.iter().zip(before).map(|(after, before)| after - before).collect(), outcome.counters, outcome.stats)
}

#[test]
fn dcqcn_shares_a_bottleneck_fairly_and_keeps_it_busy() {
    let (shares, counters, _) = shares(&[1, 2, 4, 6], 10 * PS_PER_MS, 20 * PS_PER_MS);
    let sum: u64 = shares.iter().sum();
    let squares: u64 = shares.iter().map(|share| (share / 1_000) * (share / 1_000)).sum();
    let jain_permille = (sum / 1_000) * (sum / 1_000) * 1_000 / (squares * shares.len() as u64);
    // 100 Gb/s for 10 ms are 125 MB, headers included.
    assert!(jain_permille >= 950, "Jain's index {jain_permille} permille of {shares:?}");
    assert!(sum > 100_000_000, "{sum} bytes");
    assert!(counters.rate_cuts > 10, "{}", counters.rate_cuts);
}

#[test]
fn dcqcn_keeps_the_queue_below_the_buffer() {
    let (_, _, stats) = shares(&[1, 4], 2 * PS_PER_MS, 3 * PS_PER_MS);
    assert_eq!(stats.drops.total(), 0);
    assert!(stats.ecn_marked > 0);
}

/// Links with classes and pauses: 1 us of cable and two full frames of headroom each way.
fn lossless_link() -> LinkSpec {
    let pfc = Pfc { xoff_bytes: 100_000, xon_bytes: 80_000, headroom_bytes: 30_000 };
    link().with_buffer_bytes(u64::MAX).with_classes(100_000).with_pfc(pfc)
}

#[test]
fn pauses_make_incast_lossless() {
    let senders = [1, 2, 3, 4, 5, 6, 7];
    let lossy = link().with_buffer_bytes(200_000);
    let incast = |link: &LinkSpec, config: &RoceConfig| {
        run(&topology(link, 1), workload(|b| queue(1 << 20, 1, 0).incast(b, &senders, 0)), config, |_| {})
    };
    let dropped = incast(&lossy, &config());
    assert!(dropped.stats.drops.total() > 0 && dropped.counters.tx_again > 0);
    let lossless = RoceConfig { is_lossless: true, ..config() };
    let paused = incast(&lossless_link(), &lossless);
    assert_eq!((paused.stats.drops.total(), paused.counters.tx_again, paused.failed), (0, 0, 0));
    assert!(paused.stats.pauses > 0);
    // Without marks nobody slows down, and the last link is busy until the end.
    let unmarked = incast(&LinkSpec { ecn: None, ..lossless_link() }, &lossless);
    let line_ps = 7 * (1u64 << 20) * 80 * 4_178 / 4_096;
    assert_eq!(unmarked.stats.drops.total(), 0);
    assert!(unmarked.done_ps < line_ps * 105 / 100, "{} of {line_ps} ps", unmarked.done_ps);
}

#[test]
fn qp_moves_to_the_other_port_when_its_cable_goes_down() {
    let workload = workload(|builder| {
        for stream in 0..4 {
            Queue { message_bytes: 2 << 20, count: 4, depth: 0, stream }.write(builder, 0, 5);
        }
    });
    let cut = |fabric: &mut Fabric| {
        let outage = Outage::new(LinkSelect::Name("h0->p0.*".into()), 100 * PS_PER_US, u64::MAX);
        fabric.schedule(&outage).expect("a cable");
    };
    let outcome = run(&topology(&link(), 2), workload, &config(), cut);
    assert!(outcome.done_ps != NEVER_PS && outcome.failed == 0, "{:?}", outcome.counters);
    assert!(outcome.counters.tx_again > 0);
}

#[test]
fn qp_whose_packets_vanish_fails_and_says_which_messages() {
    let config = RoceConfig { retry_limit: 3, ..config() };
    let workload = workload(|b| queue(100_000, 5, 0).write(b, 0, 5));
    let outcome = run(&topology(&link(), 1), workload, &config, lose("h0->leaf0", 1_000_000));
    assert_eq!((outcome.failed, outcome.done_ps), (5, NEVER_PS));
}

#[test]
fn same_seed_gives_the_same_run_on_any_number_of_threads() {
    let all_reduce = || {
        let group: Vec<u32> = (0..8).collect();
        let collective = Collective {
            kind: CollectiveKind::RingAllReduce,
            group: &group,
            bytes: 1 << 20,
            slices: 2,
            stream: 0,
            streams: 2,
        };
        Arc::new(workload(|builder| {
            collective.add_to(builder, &[]);
        }))
    };
    let run = |threads: u16| {
        let workload = all_reduce();
        let mut fabric = fabric(&topology(&link(), 1), &workload, &config(), threads, lose("core", 5_000));
        fabric.run_until_idle(u64::MAX);
        let times: Vec<u64> = (0..8)
            .flat_map(|host| fabric.node::<Host>(NodeId(host)).expect("a host").player().times().to_vec())
            .map(|times| times.done_ps)
            .collect();
        (times, outcome(&fabric, &workload).counters)
    };
    let once = run(1);
    assert!(once.0.iter().all(|done_ps| *done_ps != NEVER_PS) && once.1.tx_again > 0);
    assert_eq!(once, run(1));
    assert_eq!(once, run(3));
}
