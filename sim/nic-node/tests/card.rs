//! Cards in a network: messages arrive, ports are used fully, runs repeat.

use nic_fabric::{Fabric, Frame, LeafSpine, LinkSelect, LinkSpec, NodeId, Outage, PlaneLinks, Rule, Topology};
use nic_model::conn_config::ConnConfig;
use nic_model::memory::{ByteMemory, HostMemory, VirtualMemory};
use nic_model::mr::Mr;
use nic_model::time::Time;
use nic_model::work::{ConnId, Local, RemoteMemory, SendOp, SendWr};
use nic_node::connect::{nic_config, Connector};
use nic_node::Card;
use nic_spec::csr::stats::Counter;
use nic_spec::num::{Lkey, Pd, Rkey};

const US: u64 = 1_000_000;
const IOVA: u64 = 0x10_0000;
const MEMORY_BYTES: usize = 1 << 20;

fn topology(planes: usize) -> Topology {
    let link = LinkSpec::new(400_000, 500_000);
    let planes = vec![PlaneLinks { host: link.clone(), core: link }; planes];
    Topology::leaf_spine(&LeafSpine { leaf_count: 2, hosts_per_leaf: 2, spine_count: 2, planes })
}

fn card<M: HostMemory + Send + 'static>(topology: &Topology, host: u32, memory: M, elide_icrc: bool) -> Card<M> {
    let mut config = nic_config(topology, host);
    config.elide_icrc = elide_icrc;
    let mut card = Card::new(config, memory);
    let mr = Mr { key: 7, pd: Pd::new(0), access: 0xf, va: 0, len: MEMORY_BYTES as u64, iova: IOVA };
    assert_eq!(card.nic_mut().mrs().register(mr), Rkey::new(7));
    card
}

/// Opens one side of a connection.
fn open<M: HostMemory + Send + 'static>(fabric: &mut Fabric, host: u32, config: ConnConfig) -> ConnId {
    fabric
        .call(NodeId(host), |card: &mut Card<M>, ctx| {
            card.nic_mut().open_connection(Time(ctx.now_ps()), config).expect("a free row")
        })
        .expect("a card at this host")
}

fn write<M: HostMemory + Send + 'static>(
    fabric: &mut Fabric,
    host: u32,
    conn: ConnId,
    wr_id: u64,
    from: u64,
    len: u32,
) {
    fabric
        .call(NodeId(host), |card: &mut Card<M>, ctx| {
            let op = SendOp::Write { remote: RemoteMemory { va: from, rkey: Rkey::new(7) }, imm: None };
            let wr = SendWr::new(wr_id, op, Local { va: from, lkey: Lkey::new(7) }, len);
            card.nic_mut().post_send(Time(ctx.now_ps()), conn, 1, wr).expect("room in the queue");
            card.pump(ctx);
        })
        .expect("a card at this host");
}

fn completed<M: HostMemory + Send + 'static>(fabric: &mut Fabric, host: u32) -> Vec<u64> {
    fabric
        .call(NodeId(host), |card: &mut Card<M>, _| {
            std::iter::from_fn(|| card.nic_mut().poll_completion(0)).map(|cqe| cqe.wr_id).collect()
        })
        .expect("a card at this host")
}

/// Bytes cross two planes that lose, copy, delay and damage frames.
#[test]
fn a_message_arrives_byte_for_byte_over_bad_links() {
    let topology = topology(2);
    let mut fabric = Fabric::new(&topology, 3).expect("a valid topology");
    for action in [
        nic_fabric::Action::Loss { ppm: 20_000 },
        nic_fabric::Action::Duplicate { ppm: 10_000, delay_ps: 3 * US },
        nic_fabric::Action::Delay { ppm: 10_000, min_ps: 0, max_ps: 5 * US },
        nic_fabric::Action::Corrupt { ppm: 10_000, is_found_by_fcs: false },
    ] {
        fabric.add_rule(&LinkSelect::HostUp, Rule::new(action)).expect("hosts have uplinks");
    }
    let [a, b] = Connector::new(&topology).connect([NodeId(0), NodeId(3)], 8).expect("two hosts");
    let mut memory = ByteMemory::new(IOVA, MEMORY_BYTES);
    memory.bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 251) as u8);
    let expected = memory.bytes.clone();
    fabric.attach(NodeId(0), card(&topology, 0, memory, false));
    fabric.attach(NodeId(3), card(&topology, 3, ByteMemory::new(IOVA, MEMORY_BYTES), false));
    let conn = open::<ByteMemory>(&mut fabric, 0, a);
    open::<ByteMemory>(&mut fabric, 3, b);
    write::<ByteMemory>(&mut fabric, 0, conn, 5, 1000, 700_001);
    fabric.run_until_idle(100_000 * US);
    assert_eq!(completed::<ByteMemory>(&mut fabric, 0), [5]);
    let there = &fabric.node::<Card<ByteMemory>>(NodeId(3)).expect("a card").memory().bytes;
    assert!(there[1000..701_001] == expected[1000..701_001], "the message differs");
    assert!(there[..1000].iter().chain(&there[701_001..]).all(|byte| *byte == 0), "bytes beside the message");
}

/// Both directions of two pairs, virtual payload, with loss; what happened, as numbers.
fn exchange(threads: u16) -> (Vec<(u32, &'static str, u64)>, u64, u64) {
    let topology = topology(1);
    let mut fabric = Fabric::with_threads(&topology, 9, threads).expect("a valid topology");
    fabric.add_rule(&LinkSelect::Core, Rule::loss(10_000)).expect("there are core links");
    (0..4).for_each(|host| fabric.attach(NodeId(host), card(&topology, host, VirtualMemory::default(), true)));
    let mut connector = Connector::new(&topology);
    for [a, b] in [[0, 2], [1, 3]] {
        let sides = connector.connect([NodeId(a), NodeId(b)], 4).expect("two hosts");
        for (host, config) in [a, b].into_iter().zip(sides) {
            let conn = open::<VirtualMemory>(&mut fabric, host, config);
            write::<VirtualMemory>(&mut fabric, host, conn, u64::from(host), 0, 300_000);
        }
    }
    fabric.run_until_idle(100_000 * US);
    let mut counters = Vec::new();
    for host in 0..4 {
        assert_eq!(completed::<VirtualMemory>(&mut fabric, host), [u64::from(host)]);
        let card = fabric.node::<Card<VirtualMemory>>(NodeId(host)).expect("a card");
        assert_eq!(card.memory().written_bytes, 300_000, "host {host}");
        counters.extend(card.nic().counters().non_zero().map(|(counter, value)| (host, counter.name(), value)));
    }
    (counters, fabric.stats().link_hops, fabric.now_ps())
}

#[test]
fn a_run_is_the_same_on_one_thread_and_on_two() {
    let once = exchange(1);
    assert!(once.0.iter().any(|(_, name, _)| *name == Counter::TxRtxGap.name()), "something was lost and sent again");
    assert_eq!(once, exchange(1));
    assert_eq!(once, exchange(2));
}

#[test]
fn a_port_with_work_is_never_idle() {
    let topology = topology(1);
    let mut fabric = Fabric::new(&topology, 1).expect("a valid topology");
    let [a, b] = Connector::new(&topology).connect([NodeId(0), NodeId(1)], 12).expect("two hosts");
    for host in 0..2 {
        fabric.attach(NodeId(host), card(&topology, host, VirtualMemory::default(), true));
    }
    let conn = open::<VirtualMemory>(&mut fabric, 0, a);
    open::<VirtualMemory>(&mut fabric, 1, b);
    for wr_id in 0..8 {
        write::<VirtualMemory>(&mut fabric, 0, conn, wr_id, 0, 1 << 20);
    }
    // After the start, and long before the end.
    fabric.advance(50 * US);
    let uplink = fabric.link_named("h0->leaf0").expect("its uplink");
    let before = fabric.link_stats(uplink).wire_bytes;
    fabric.advance(100 * US);
    let sent = fabric.link_stats(uplink).wire_bytes - before;
    // 50 us of 400 Gb/s are 2,500,000 bytes; a frame may lie across either end.
    assert!(sent.abs_diff(2_500_000) <= 5_000, "{sent} bytes in 50 us");
}

#[test]
fn messages_survive_the_loss_of_a_plane_and_of_all_cables_for_a_moment() {
    let topology = topology(2);
    let mut fabric = Fabric::new(&topology, 5).expect("a valid topology");
    for outage in [
        Outage::new(LinkSelect::Plane(1), 20 * US, 400 * US),
        Outage::new(LinkSelect::Name("h0->*".into()), 30 * US, 60 * US),
    ] {
        fabric.schedule(&outage).expect("cables");
    }
    let [a, b] = Connector::new(&topology).connect([NodeId(0), NodeId(2)], 8).expect("two hosts");
    for host in [0, 2] {
        fabric.attach(NodeId(host), card(&topology, host, VirtualMemory::default(), true));
    }
    let conn = open::<VirtualMemory>(&mut fabric, 0, a);
    open::<VirtualMemory>(&mut fabric, 2, b);
    for wr_id in 0..6 {
        write::<VirtualMemory>(&mut fabric, 0, conn, wr_id, 0, 1 << 20);
    }
    fabric.run_until_idle(1_000_000 * US);
    assert_eq!(completed::<VirtualMemory>(&mut fabric, 0), [0, 1, 2, 3, 4, 5]);
    let there = fabric.node::<Card<VirtualMemory>>(NodeId(2)).expect("a card");
    assert_eq!(there.memory().written_bytes, 6 << 20);
}

/// What a packet costs apart from time. The figures are those of this run, rounded up by a few percent.
#[test]
fn a_packet_costs_a_timer_or_two_and_no_allocation_of_a_frame() {
    let topology = topology(1);
    let mut fabric = Fabric::new(&topology, 1).expect("a valid topology");
    (0..4).for_each(|host| fabric.attach(NodeId(host), card(&topology, host, VirtualMemory::default(), true)));
    let mut connector = Connector::new(&topology);
    let conns: Vec<ConnId> = (0..4)
        .map(|from| {
            let to = (from + 2) % 4;
            let [a, b] = connector.connect([NodeId(from), NodeId(to)], 8).expect("hosts of the topology");
            let conn = open::<VirtualMemory>(&mut fabric, from, a);
            open::<VirtualMemory>(&mut fabric, to, b);
            conn
        })
        .collect();
    let run = |fabric: &mut Fabric, wr_id| {
        for (host, conn) in (0..).zip(&conns) {
            write::<VirtualMemory>(fabric, host, *conn, wr_id, 0, MEMORY_BYTES as u32);
        }
        fabric.run_until_idle(u64::MAX);
        (0..4).for_each(|host| assert_eq!(completed::<VirtualMemory>(fabric, host), [wr_id]));
    };
    run(&mut fabric, 1);
    let (before, made_before) = (fabric.stats(), Frame::made_count());
    run(&mut fabric, 2);
    let stats = fabric.stats();
    let (hops, sent) = (stats.link_hops - before.link_hops, stats.sent - before.sent);
    let timers = stats.events - before.events - hops;
    assert!(sent > 4 * 256, "{sent} frames");
    assert!(timers * 100 <= sent * 150, "{timers} timers for {sent} frames");
    let made = Frame::made_count() - made_before;
    assert!(made * 100 <= sent, "{made} records allocated for {sent} frames");
}
