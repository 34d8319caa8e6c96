//! Cables and planes that go down and come back: what is lost, who is told, where frames go then.

mod traffic;

use nic_fabric::{
    Action, Context, DropCause, Fabric, FabricError, Frame, LeafSpine, LinkSelect, LinkSpec, Node, NodeId, Outage,
    PlaneLinks, Port, Rule, Topology, Verdict,
};
use traffic::{assert_conserved, frames_on, udp, udp_in_plane, A};

const US: u64 = nic_fabric::PS_PER_US;

fn cable() -> Topology {
    Topology::point_to_point(&LinkSpec::new(100_000, US))
}

/// Sends frames of 1,000 bytes of line time (80 ns) at these times; returns which arrived.
fn arrived(outages: &[(u64, u64)], sends: &[u64]) -> Vec<usize> {
    let mut fabric = Fabric::new(&cable(), 1).unwrap();
    for (from_ps, until_ps) in outages {
        fabric.schedule(&Outage::new(LinkSelect::All, *from_ps, *until_ps)).unwrap();
    }
    for (index, time_ps) in sends.iter().enumerate() {
        fabric.inject(A, *time_ps, udp(0, 1, index as u16, 0, 1000 - 66)).unwrap();
    }
    let deliveries = fabric.run_until_idle(u64::MAX);
    assert_conserved(&fabric);
    assert_eq!(fabric.stats().drops.count(DropCause::LinkDown) as usize, sends.len() - deliveries.len());
    let index = |frame: &Frame| u16::from_be_bytes([frame.header()[34], frame.header()[35]]) as usize;
    deliveries.iter().map(|delivery| index(&delivery.frame)).collect()
}

#[test]
fn frame_in_flight_or_queued_when_the_cable_fails_is_lost() {
    // A frame takes 80 ns on the line and 1 us to the far end.
    let flight_ps = 80_000 + US;
    assert_eq!(arrived(&[(flight_ps, 2 * flight_ps)], &[0]), [], "in flight to the last picosecond");
    assert_eq!(arrived(&[(flight_ps + 1, 2 * flight_ps)], &[0]), [0], "just arrived");
    assert_eq!(arrived(&[(40_000, 50_000)], &[0, 0, 0]), [], "on the line and queued");
}

#[test]
fn cable_carries_frames_again_after_the_outage_without_waiting_for_the_lost_ones() {
    let mut fabric = Fabric::new(&cable(), 1).unwrap();
    fabric.schedule(&Outage::new(LinkSelect::All, 10_000, 20_000)).unwrap();
    for _ in 0..100 {
        fabric.inject(A, 0, udp(0, 1, 1, 0, 1000 - 66)).unwrap();
    }
    fabric.inject(A, 20_000, udp(0, 1, 2, 0, 1000 - 66)).unwrap();
    let deliveries = fabric.run_until_idle(u64::MAX);
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].time_ps, 20_000 + 80_000 + US);
    assert_conserved(&fabric);
}

#[test]
fn overlapping_outages_end_with_the_last() {
    let sends = [5_000_000, 15_000_000, 25_000_000, 35_000_000];
    assert_eq!(arrived(&[(10_000_000, 20_000_000), (18_000_000, 30_000_000)], &sends), [0, 3]);
}

#[test]
fn frame_injected_late_is_lost_if_the_cable_failed_meanwhile() {
    let outcome = |outage: (u64, u64), time_ps: u64| {
        let mut fabric = Fabric::new(&cable(), 1).unwrap();
        fabric.schedule(&Outage::new(LinkSelect::All, outage.0, outage.1)).unwrap();
        fabric.advance(US);
        fabric.inject(A, time_ps, udp(0, 1, 1, 0, 1000 - 66)).unwrap();
        let deliveries = fabric.run_until_idle(u64::MAX);
        assert_conserved(&fabric);
        deliveries.len()
    };
    assert_eq!(outcome((500_000, 600_000), 400_000), 0);
    assert_eq!(outcome((500_000, 600_000), 599_999), 0);
    assert_eq!(outcome((500_000, 600_000), 600_000), 1);
    assert_eq!(outcome((500_000, 5_000_000), 900_000), 0);
}

#[test]
fn outage_in_the_past_or_of_no_length_is_refused() {
    let mut fabric = Fabric::new(&cable(), 1).unwrap();
    fabric.advance(100);
    for (from_ps, until_ps) in [(100, 200), (50, 200), (300, 300)] {
        let error = fabric.schedule(&Outage::new(LinkSelect::All, from_ps, until_ps)).unwrap_err();
        assert!(matches!(error, FabricError::OutageTime { .. }), "{error}");
    }
    let error = fabric.schedule(&Outage::new("nothing".into(), 200, 300)).unwrap_err();
    assert!(matches!(error, FabricError::NoSuchLink(_)), "{error}");
}

/// Notes what it is told about its ports.
#[derive(Default)]
struct Witness(Vec<(u64, u16, bool)>);

impl Node for Witness {
    fn on_frame(&mut self, _: &mut Context<'_>, _: u16, _: Frame) {}
    fn on_timer(&mut self, _: &mut Context<'_>, _: u32) {}
    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        assert_eq!(ctx.port_is_up(port), is_up);
        self.0.push((ctx.now_ps(), port, is_up));
    }
}

fn two_planes(reroute_after_ps: Option<u64>) -> Topology {
    let link = LinkSpec::new(400_000, 500_000);
    let planes = vec![PlaneLinks { host: link.clone(), core: link }; 2];
    let shape = LeafSpine { leaf_count: 2, hosts_per_leaf: 1, spine_count: 4, planes };
    Topology { reroute_after_ps, ..Topology::leaf_spine(&shape) }
}

#[test]
fn plane_outage_is_told_to_its_ports_and_leaves_the_other_plane_alone() {
    let mut fabric = Fabric::new(&two_planes(None), 1).unwrap();
    fabric.attach(NodeId(1), Witness::default());
    fabric.schedule(&Outage::new(LinkSelect::Plane(1), 10 * US, 30 * US)).unwrap();
    fabric.advance(20 * US);
    let ports = [0, 1].map(|index| fabric.port_is_up(Port { node: NodeId(0), index }));
    assert_eq!(ports, [true, false]);
    for plane in 0..2 {
        let port = Port { node: NodeId(0), index: plane };
        fabric.inject(port, 20 * US, udp_in_plane(plane, 0, 1, 7, 0, 100)).unwrap();
    }
    fabric.run_until_idle(u64::MAX);
    assert_eq!(fabric.stats().delivered, 1);
    assert_eq!(fabric.stats().drops.count(DropCause::LinkDown), 1);
    let witness = fabric.node::<Witness>(NodeId(1)).unwrap();
    assert_eq!(witness.0, [(10 * US, 1, false), (30 * US, 1, true)]);
}

/// Sends 64 flows while a far core cable is down, and again when it is back; returns how many frames arrived each time.
fn flows_past_dead_cable(reroute_after_ps: Option<u64>) -> (u64, u64, Fabric) {
    let mut fabric = Fabric::new(&two_planes(reroute_after_ps), 1).unwrap();
    fabric.schedule(&Outage::new("p0.spine2->p0.leaf1".into(), US, 100 * US)).unwrap();
    let mut counts = [0; 2];
    for (count, time_ps) in counts.iter_mut().zip([50 * US, 200 * US]) {
        let before = fabric.stats().delivered;
        for flow in 0..64 {
            fabric.inject(A, time_ps, udp(0, 1, flow, 0, 100)).unwrap();
        }
        fabric.advance(time_ps + 40 * US);
        *count = fabric.stats().delivered - before;
        assert_conserved(&fabric);
    }
    (counts[0], counts[1], fabric)
}

#[test]
fn without_rerouting_flows_over_a_dead_cable_stay_cut() {
    let (during, after, fabric) = flows_past_dead_cable(None);
    assert!((40..60).contains(&during), "{during} of 64 flows avoid one of four spines");
    assert_eq!(after, 64);
    assert_eq!(fabric.stats().drops.count(DropCause::LinkDown), 64 - during);
}

#[test]
fn rerouting_moves_flows_off_a_dead_cable_and_back() {
    let (during, after, fabric) = flows_past_dead_cable(Some(10 * US));
    assert_eq!((during, after), (64, 64));
    let (_, _, unaware) = flows_past_dead_cable(None);
    let spine2 = |fabric: &Fabric| frames_on(fabric, "p0.leaf0->p0.spine2");
    // The spine gets its flows only when the cable is back.
    assert_eq!(spine2(&fabric) * 2, spine2(&unaware));
}

#[test]
fn host_without_a_way_is_counted_as_no_route() {
    let mut fabric = Fabric::new(&two_planes(Some(US)), 1).unwrap();
    fabric.schedule(&Outage::new("p0.leaf1->h1".into(), US, u64::MAX)).unwrap();
    fabric.inject(A, 10 * US, udp(0, 1, 7, 0, 100)).unwrap();
    fabric.run_until_idle(u64::MAX);
    assert_eq!(fabric.stats().drops.count(DropCause::NoRoute), 1);
}

/// A frame, and one that came to be late, on a cable between two threads when it fails.
#[test]
fn what_a_failed_cable_lost_leaves_no_time_at_which_nothing_happens() {
    for thread_count in [1, 2] {
        let link = LinkSpec::new(400_000, 500_000);
        let planes = vec![PlaneLinks { host: link.clone(), core: link }];
        let shape = LeafSpine { leaf_count: 2, hosts_per_leaf: 1, spine_count: 1, planes };
        // Both frames are at the spine before 1.1 us.
        for from_ps in (1_100_000..1_400_000).step_by(20_000) {
            let mut fabric = Fabric::with_threads(&Topology::leaf_spine(&shape), 1, thread_count).unwrap();
            let delay = Action::Nth { first: 2, count: 1, verdict: Verdict::Delay { delay_ps: 5 * US } };
            fabric.add_rule(&"spine0->leaf1".into(), Rule::new(delay)).unwrap();
            fabric.schedule(&Outage::new("spine0->leaf1".into(), from_ps, from_ps + 10)).unwrap();
            (0..2).for_each(|flow| fabric.inject(A, 0, udp(0, 1, flow, 0, 100)).unwrap());
            fabric.advance(from_ps);
            assert_eq!(fabric.stats().drops.count(DropCause::LinkDown), 2, "outage from {from_ps} ps");
            assert_eq!(fabric.next_event_ps(), Some(from_ps + 10));
            fabric.run_until_idle(u64::MAX);
            assert_eq!((fabric.next_event_ps(), fabric.now_ps()), (None, from_ps + 10));
            // The first switch and the spine, and nothing else.
            assert_eq!(fabric.stats().events, 2 * 2, "outage from {from_ps} ps, {thread_count} threads");
        }
    }
}
