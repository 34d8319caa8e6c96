//! Queues with classes: control before data, and no loss under PFC as long as the headroom suffices.

mod traffic;

use nic_fabric::flow::Headers;
use nic_fabric::{
    Context, DropCause, Ecn, Fabric, FabricError, Frame, LeafSpine, LinkSelect, LinkSpec, Node, NodeId, Outage, Pfc,
    PlaneLinks, Port, Topology,
};
use traffic::{assert_conserved, udp};

const CONTROL_DSCP: u8 = 48;
const DATA_TOS: u8 = 0b10;
const CONTROL_TOS: u8 = CONTROL_DSCP << 2;

/// Eight hosts on two leaves, one spine, 100G, 1 us cables.
fn topology(link: LinkSpec) -> Topology {
    let planes = vec![PlaneLinks { host: link.clone(), core: link }];
    let shape = LeafSpine { leaf_count: 2, hosts_per_leaf: 4, spine_count: 1, planes };
    Topology::leaf_spine(&shape).with_control_dscp(CONTROL_DSCP)
}

fn link() -> LinkSpec {
    LinkSpec::new(100_000, 1_000_000).with_buffer_bytes(100_000).with_classes(20_000)
}

fn pfc(headroom_bytes: u64) -> Pfc {
    Pfc { xoff_bytes: 20_000, xon_bytes: 10_000, headroom_bytes }
}

/// Seven hosts send 200 frames of 1,000 bytes each to host 0 at once.
fn incast(link: LinkSpec) -> Fabric {
    let mut fabric = Fabric::new(&topology(link), 1).unwrap();
    for from in 1..8 {
        for i in 0..200 {
            fabric.inject(Port { node: NodeId(from), index: 0 }, 0, udp(from, 0, i, DATA_TOS, 1000)).unwrap();
        }
    }
    fabric.run_until_idle(u64::MAX);
    assert_conserved(&fabric);
    assert_eq!(fabric.stats().in_flight, 0);
    fabric
}

#[test]
fn incast_overflows_buffers_without_pfc() {
    let stats = incast(link()).stats();
    assert!(stats.drops.count(DropCause::BufferFull) > 500, "{}", stats.drops);
    assert_eq!(stats.pauses, 0);
}

#[test]
fn incast_loses_nothing_with_pfc_and_keeps_the_last_link_busy() {
    // On the way when a pause takes effect: two cables of 1 us at 100G, 25,000 bytes, and two frames.
    let fabric = incast(link().with_pfc(pfc(25_000 + 2 * 1_066 + 84)));
    let stats = fabric.stats();
    assert_eq!((stats.delivered, stats.drops.total()), (1400, 0));
    assert!(stats.pauses > 0);
    let line_ps = 1400 * (1000 + 42 + 24) * 80;
    assert!(fabric.now_ps() < line_ps + 20_000_000, "{} ps for {line_ps} ps of line time", fabric.now_ps());
}

#[test]
fn too_little_headroom_drops_by_that_name() {
    let stats = incast(link().with_pfc(pfc(10_000))).stats();
    assert!(stats.drops.count(DropCause::HeadroomExceeded) > 0);
    assert_eq!(stats.drops.total(), stats.drops.count(DropCause::HeadroomExceeded));
}

#[test]
fn lossless_incast_survives_an_outage_of_a_core_cable() {
    let mut fabric = Fabric::new(&topology(link().with_pfc(pfc(30_000))), 1).unwrap();
    fabric.schedule(&Outage::new("leaf1->spine0".into(), 10_000_000, 40_000_000)).unwrap();
    for from in 1..8 {
        for i in 0..200 {
            fabric.inject(Port { node: NodeId(from), index: 0 }, 0, udp(from, 0, i, DATA_TOS, 1000)).unwrap();
        }
    }
    fabric.run_until_idle(u64::MAX);
    assert_conserved(&fabric);
    // Pauses that the failure cut short block nobody: every frame either arrived or is accounted to the outage, and
    // those of the three hosts on the other leaf arrived.
    let stats = fabric.stats();
    assert_eq!(stats.in_flight, 0, "{stats:?}");
    assert_eq!(stats.drops.total(), stats.drops.count(DropCause::LinkDown));
    assert!(stats.delivered > 600 && stats.drops.total() > 300, "{stats:?}");
}

/// The request would reach a port that has nothing to do with it any more, and nobody would let that go on.
#[test]
fn pause_under_way_when_the_cable_fails_is_lost_with_it() {
    let mut pauses = 0;
    for step in 0..40 {
        let mut fabric = Fabric::new(&topology(link().with_pfc(pfc(30_000))), 1).unwrap();
        let from_ps = 3_000_000 + step * 300_000;
        fabric.schedule(&Outage::new("h1->leaf0".into(), from_ps, from_ps + 100_000)).unwrap();
        for from in 1..3 {
            for i in 0..100 {
                fabric.inject(Port { node: NodeId(from), index: 0 }, 0, udp(from, 0, i, DATA_TOS, 1000)).unwrap();
            }
        }
        fabric.inject(Port { node: NodeId(1), index: 0 }, 90_000_000, udp(1, 0, 0, DATA_TOS, 1000)).unwrap();
        fabric.run_until_idle(u64::MAX);
        assert_conserved(&fabric);
        let stats = fabric.stats();
        assert_eq!(stats.in_flight, 0, "outage at {from_ps} ps: {stats:?}");
        pauses += stats.pauses;
    }
    assert!(pauses > 40, "{pauses} pauses");
}

/// A switch that lets a link go on and, in the same picosecond, takes a frame from it that is too much again.
#[test]
fn pause_after_a_request_to_go_on_of_the_same_picosecond_is_what_holds() {
    let without_hysteresis = Pfc { xoff_bytes: 20_000, xon_bytes: 20_000, headroom_bytes: 25_000 + 2 * 1_066 + 84 };
    let stats = incast(link().with_pfc(without_hysteresis)).stats();
    assert_eq!((stats.delivered, stats.drops.total()), (1400, 0), "{stats:?}");
    assert!(stats.pauses > 20, "{stats:?}");
}

#[test]
fn control_frame_overtakes_queued_data_but_not_the_frame_on_the_line() {
    let mut fabric = Fabric::new(&topology(link()), 1).unwrap();
    let source = Port { node: NodeId(1), index: 0 };
    for i in 0..10 {
        fabric.inject(source, 1, udp(1, 0, i, DATA_TOS, 1000)).unwrap();
    }
    fabric.inject(source, 2, udp(1, 0, 99, CONTROL_TOS, 1000)).unwrap();
    let deliveries = fabric.run_until_idle(u64::MAX);
    let ports = deliveries.iter().map(|d| Headers::parse(&d.frame).unwrap().ip.unwrap().src_port);
    assert_eq!(ports.collect::<Vec<_>>(), [0, 99, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let frame_ps = 1066 * 80;
    assert_eq!(deliveries[1].time_ps, 1 + 3 * frame_ps + 2_000_000);
}

#[test]
fn real_queue_has_the_timing_of_the_virtual_one_when_there_is_one_class() {
    let times = |link: LinkSpec| -> Vec<(u64, Port, u8)> {
        let mut fabric = Fabric::new(&topology(link), 1).unwrap();
        for from in 1..8 {
            for i in 0..40 {
                let port = Port { node: NodeId(from), index: 0 };
                fabric.inject(port, 1 + i * 50_000, udp(from, 0, i as u16, DATA_TOS, 500 + 10 * i as u32)).unwrap();
            }
        }
        let deliveries = fabric.run_until_idle(u64::MAX);
        let ecn = |frame: &Frame| Headers::parse(frame).unwrap().ip.unwrap().ecn;
        deliveries.iter().map(|delivery| (delivery.time_ps, delivery.port, ecn(&delivery.frame))).collect()
    };
    let fifo = LinkSpec::new(100_000, 1_000_000).with_ecn(Ecn::step(20_000));
    let reference = times(fifo.clone());
    assert!(reference.iter().any(|delivery| delivery.2 == 0b11));
    assert_eq!(times(fifo.with_classes(1_000)), reference);
}

#[test]
fn control_class_has_its_own_room() {
    let mut fabric = Fabric::new(&topology(link()), 1).unwrap();
    for from in 1..4 {
        for i in 0..100 {
            fabric.inject(Port { node: NodeId(from), index: 0 }, 0, udp(from, 0, i, CONTROL_TOS, 1000)).unwrap();
        }
    }
    fabric.run_until_idle(u64::MAX);
    // Hosts keep what they have; the leaf has room for 18 control frames of 1,066 bytes.
    let stats = fabric.link_stats(fabric.link_named("leaf0->h0").unwrap());
    assert!(stats.drops.count(DropCause::BufferFull) > 100, "{}", stats.drops);
    assert!(stats.backlog_bytes_max <= 20_000 + 1_066, "{}", stats.backlog_bytes_max);
}

/// Sends a batch whenever its port runs empty.
struct Batcher {
    batches_left: u32,
    idle_at_ps: Vec<u64>,
}

impl Batcher {
    fn send(&mut self, ctx: &mut Context<'_>) {
        if self.batches_left > 0 {
            self.batches_left -= 1;
            (0..3).for_each(|i| ctx.send(0, udp(1, 0, i, DATA_TOS, 1000)));
        }
    }
}

impl Node for Batcher {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        self.send(ctx);
        assert_eq!(ctx.port_free_at_ps(0), 3 * 1066 * 80);
    }

    fn on_frame(&mut self, _: &mut Context<'_>, _: u16, _: Frame) {}

    fn on_timer(&mut self, _: &mut Context<'_>, _: u32) {}

    fn on_port_idle(&mut self, ctx: &mut Context<'_>, _port: u16) {
        self.idle_at_ps.push(ctx.now_ps());
        self.send(ctx);
    }
}

#[test]
fn node_is_told_when_its_port_with_classes_runs_empty() {
    let mut fabric = Fabric::new(&topology(link()), 1).unwrap();
    fabric.attach(NodeId(1), Batcher { batches_left: 2, idle_at_ps: Vec::new() });
    fabric.run_until_idle(u64::MAX);
    let batch_ps = 3 * 1066 * 80;
    assert_eq!(fabric.node::<Batcher>(NodeId(1)).unwrap().idle_at_ps, [batch_ps, 2 * batch_ps]);
}

#[test]
fn pfc_without_real_queues_is_refused() {
    let no_classes = LinkSpec::new(100_000, 1_000).with_pfc(pfc(1_000));
    let mut only_up = topology(no_classes.clone());
    for link in only_up.select(&LinkSelect::HostUp) {
        *only_up.link_spec_mut(link) = no_classes.clone().with_classes(1_000);
    }
    for topology in [topology(no_classes), only_up] {
        let error = Fabric::new(&topology, 1).err().unwrap();
        assert!(matches!(&error, FabricError::Topology(what) if what.contains("needs classes")), "{error}");
    }
}
