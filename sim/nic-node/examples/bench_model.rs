//! Link-hops per CPU-second with the full model at every host: 64 hosts, 400G leaf-spine, a permutation.
//!
//! `cargo run --release -p nic-node --example bench_model -- [MB] [ppm of loss] [paths] [runs]`. The network is that of
//! nic-fabric's `bench_hops`: 8 leaves, 8 spines, 500 ns a cable, marking from 64 KiB, 2 MiB of buffer a port. Every run is
//! the same, from new cards on; what differs is how fast the machine was.

use nic_fabric::{Ecn, Fabric, LeafSpine, LinkSelect, LinkSpec, NodeId, PlaneLinks, Rule, Topology};
use nic_model::memory::VirtualMemory;
use nic_model::mr::Mr;
use nic_model::time::Time;
use nic_model::work::{Local, RemoteMemory, SendOp, SendWr};
use nic_node::connect::{nic_config, Connector};
use nic_node::Card;
use nic_spec::csr::stats::Counter;
use nic_spec::num::{Lkey, Pd, Rkey};

const HOSTS: u32 = 64;

type ModelCard = Card<VirtualMemory>;

/// Who a host sends to. Multiplication by an odd number permutes; the offset keeps everyone from sending to itself.
fn destination(host: u32) -> u32 {
    (host * 13 + 9) % HOSTS
}

/// CPU time of this thread, nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux kernel with schedstat");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("schedstat begins with nanoseconds")
}

/// What a run sends.
#[derive(Clone, Copy)]
struct Traffic {
    megabytes: u32,
    loss_ppm: u32,
    paths: usize,
}

fn topology() -> Topology {
    let link = LinkSpec::new(400_000, 500_000).with_buffer_bytes(2 << 20);
    let link = link.with_ecn(Ecn { min_bytes: 64 << 10, max_bytes: 256 << 10, max_ppm: 1_000_000 });
    let planes = vec![PlaneLinks { host: link.clone(), core: link }];
    Topology::leaf_spine(&LeafSpine { leaf_count: 8, hosts_per_leaf: 8, spine_count: 8, planes })
}

/// Cards with one message each to send.
fn cards(topology: &Topology, traffic: Traffic) -> Vec<ModelCard> {
    let mut cards: Vec<ModelCard> = (0..HOSTS)
        .map(|host| {
            let mut config = nic_config(topology, host);
            config.elide_icrc = true;
            let mut card = Card::new(config, VirtualMemory::default());
            let mr = Mr { key: 1, pd: Pd::new(0), access: 0xf, va: 0, len: 1 << 40, iova: 0 };
            card.nic_mut().mrs().register(mr);
            card
        })
        .collect();
    let mut connector = Connector::new(topology);
    for from in 0..HOSTS {
        let to = destination(from);
        let sides = connector.connect([NodeId(from), NodeId(to)], traffic.paths).expect("hosts of the topology");
        let [a, b] = sides;
        let conn = cards[from as usize].nic_mut().open_connection(Time(0), a).expect("a free row");
        cards[to as usize].nic_mut().open_connection(Time(0), b).expect("a free row");
        let op = SendOp::Write { remote: RemoteMemory { va: 0, rkey: Rkey::new(1) }, imm: None };
        let wr = SendWr::new(0, op, Local { va: 0, lkey: Lkey::new(1) }, traffic.megabytes << 20);
        cards[from as usize].nic_mut().post_send(Time(0), conn, 1, wr).expect("room in the queue");
    }
    cards
}

/// Plays it. Returns the network as it is afterwards and the CPU time, microseconds.
fn run(traffic: Traffic) -> (Fabric, u64) {
    let topology = topology();
    let mut fabric = Fabric::new(&topology, 1).expect("the topology is within its limits");
    if traffic.loss_ppm > 0 {
        fabric.add_rule(&LinkSelect::HostUp, Rule::loss(traffic.loss_ppm)).expect("hosts have uplinks");
    }
    let cards = cards(&topology, traffic);
    let begin_ns = cpu_ns();
    (0..).zip(cards).for_each(|(host, card)| fabric.attach(NodeId(host), card));
    fabric.run_until_idle(u64::MAX);
    let cpu_us = (cpu_ns() - begin_ns) / 1_000;
    (fabric, cpu_us)
}

fn describe(fabric: &Fabric, traffic: Traffic) {
    let Traffic { megabytes, loss_ppm, paths } = traffic;
    let stats = fabric.stats();
    let sum = |counter: Counter| -> u64 {
        let node = |host| fabric.node::<ModelCard>(NodeId(host)).expect("attached before");
        (0..HOSTS).map(|host| node(host).nic().counters().get(counter)).sum()
    };
    let messages = sum(Counter::TxMessages);
    println!(
        "{megabytes} MB per host, {loss_ppm} ppm loss, {paths} paths: {messages} of {HOSTS} messages acknowledged"
    );
    println!("{} link-hops, {} events, simulated {} us", stats.link_hops, stats.events, fabric.now_ps() / 1_000_000);
    println!("marked {}, dropped: {}", stats.ecn_marked, stats.drops);
    let acks = sum(Counter::TxAckShort) + sum(Counter::TxAckLong);
    let again = sum(Counter::TxRtxGap) + sum(Counter::TxRtxRto);
    println!("{} data packets, {acks} acknowledgements, {again} retransmissions", sum(Counter::TxData));
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>().expect("a whole number"));
    let megabytes = arguments.next().unwrap_or(16);
    let loss_ppm = arguments.next().unwrap_or(0);
    let paths = arguments.next().unwrap_or(12) as usize;
    let run_count = arguments.next().unwrap_or(1).max(1);
    let traffic = Traffic { megabytes, loss_ppm, paths };

    // Thousands of link-hops per CPU-second.
    let mut speeds = Vec::new();
    for number in 0..run_count {
        let (fabric, cpu_us) = run(traffic);
        if number == 0 {
            describe(&fabric, traffic);
        }
        println!("CPU {} ms", cpu_us / 1_000);
        speeds.push(fabric.stats().link_hops * 1_000 / cpu_us.max(1));
    }
    speeds.sort_unstable();
    let (lowest, highest) = (speeds[0], speeds[speeds.len() - 1]);
    print!("{} thousand link-hops per CPU-second", speeds[speeds.len() / 2]);
    match run_count {
        1 => println!(),
        _ => println!(" (median of {run_count} runs, {lowest} to {highest})"),
    }
}
