//! One run on several threads gives what it gives on one, with everything in it that could differ.

mod traffic;

use nic_fabric::{
    Action, Context, Ecn, Fabric, FabricStats, Forwarding, Frame, LeafSpine, LinkId, LinkSelect, LinkSpec, LinkStats,
    Node, NodeId, Outage, Pfc, PlaneLinks, Rule, Topology,
};
use rand_core::RngCore;
use traffic::{assert_conserved, udp_in_plane};

const HOST_COUNT: u32 = 12;
const CONTROL_DSCP: u8 = 48;
const END_PS: u64 = 35_000_000;

/// Sends at random times to random hosts over random ports, answers some, and remembers everything.
#[derive(Default)]
struct Talker {
    /// What happened: time, and a number that says what.
    log: Vec<(u64, u64)>,
}

impl Node for Talker {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        ctx.set_timer(0, 0);
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        let digest = frame.to_bytes().iter().fold(u64::from(port), |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        self.log.push((ctx.now_ps(), digest));
        if ctx.rng().next_u32() % 2 == 0 && ctx.now_ps() < END_PS {
            self.send(ctx, 0x30);
        }
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        self.log.push((ctx.now_ps(), u64::from(token)));
        let burst = 1 + ctx.rng().next_u32() % 4;
        (0..burst).for_each(|_| self.send(ctx, 0x02));
        if ctx.now_ps() < END_PS {
            let at_ps = ctx.now_ps() + u64::from(ctx.rng().next_u32() % 400_000);
            ctx.set_timer(at_ps, token + 1);
        }
    }

    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        self.log.push((ctx.now_ps(), 1_000_000 + u64::from(port) * 2 + u64::from(is_up)));
    }

    fn on_port_idle(&mut self, ctx: &mut Context<'_>, port: u16) {
        self.log.push((ctx.now_ps(), 2_000_000 + u64::from(port)));
    }
}

impl Talker {
    fn send(&mut self, ctx: &mut Context<'_>, dscp_bits: u8) {
        let from = ctx.node().0;
        let to = (from + 1 + ctx.rng().next_u32() % (HOST_COUNT - 1)) % HOST_COUNT;
        let plane = (ctx.rng().next_u32() % 2) as u16;
        let (sport, len) = (ctx.rng().next_u32() as u16, ctx.rng().next_u32() % 1500);
        let tos = if dscp_bits == 0x02 { 0x02 } else { CONTROL_DSCP << 2 };
        ctx.send(plane, udp_in_plane(plane, from, to, sport, tos, len));
    }
}

fn topology(forwarding: Forwarding) -> Topology {
    let lossy = LinkSpec::new(100_000, 700_000).with_buffer_bytes(30_000).with_ecn(Ecn {
        min_bytes: 2_000,
        max_bytes: 20_000,
        max_ppm: 800_000,
    });
    let pfc = Pfc { xoff_bytes: 8_000, xon_bytes: 4_000, headroom_bytes: 30_000 };
    let lossless = LinkSpec::new(100_000, 300_000).with_classes(10_000).with_pfc(pfc);
    let planes =
        vec![PlaneLinks { host: lossy.clone(), core: lossy }, PlaneLinks { host: lossless.clone(), core: lossless }];
    let shape = LeafSpine { leaf_count: 4, hosts_per_leaf: 3, spine_count: 3, planes };
    let topology = Topology::leaf_spine(&shape).with_forwarding(forwarding).with_control_dscp(CONTROL_DSCP);
    Topology { reroute_after_ps: Some(2_000_000), ..topology }
}

type Outcome = (FabricStats, Vec<LinkStats>, Vec<Vec<(u64, u64)>>);

fn run(forwarding: Forwarding, seed: u64, thread_count: u16) -> Outcome {
    let topology = topology(forwarding);
    let mut fabric = Fabric::with_threads(&topology, seed, thread_count).unwrap();
    let actions = [
        Action::Loss { ppm: 20_000 },
        Action::Corrupt { ppm: 20_000, is_found_by_fcs: false },
        Action::Duplicate { ppm: 20_000, delay_ps: 12_345 },
        Action::Delay { ppm: 50_000, min_ps: 0, max_ps: 900_000 },
    ];
    for action in actions {
        fabric.add_rule(&LinkSelect::Core, Rule::new(action)).unwrap();
    }
    fabric.schedule(&Outage::new("p0.leaf1->p0.spine2".into(), 10_000_000, 25_000_000)).unwrap();
    fabric.schedule(&Outage::new("p1.leaf2->p1.spine0".into(), 20_000_000, 30_000_000)).unwrap();
    fabric.schedule(&Outage::new("h5->p0.leaf1".into(), 15_000_000, 18_000_000)).unwrap();
    for host in 0..HOST_COUNT {
        fabric.attach(NodeId(host), Talker::default());
    }
    // In two steps, so that frames are under way between calls.
    fabric.advance(22_345_678);
    assert_conserved(&fabric);
    fabric.run_until_idle(u64::MAX);
    assert_conserved(&fabric);
    let links = (0..topology.link_count()).map(|link| fabric.link_stats(LinkId(link))).collect();
    let logs = (0..HOST_COUNT).map(|host| fabric.node::<Talker>(NodeId(host)).unwrap().log.clone()).collect();
    (fabric.stats(), links, logs)
}

fn assert_same_on_threads(forwarding: Forwarding, seed: u64) {
    let reference = run(forwarding, seed, 1);
    let causes = reference.0.drops.iter().count();
    assert!(reference.0.sent > 3_000 && reference.0.pauses > 0 && causes >= 3, "too quiet to tell: {:?}", reference.0);
    for thread_count in [2, 3, 5] {
        let (stats, links, logs) = run(forwarding, seed, thread_count);
        let replay = format!("{forwarding:?}, seed {seed}, {thread_count} threads");
        assert!(logs == reference.2, "{replay}");
        assert_eq!(stats, reference.0, "{replay}");
        assert_eq!(links, reference.1, "{replay}");
    }
}

#[test]
fn ecmp_run_is_the_same_on_any_number_of_threads() {
    assert_same_on_threads(Forwarding::Ecmp, 1);
}

#[test]
fn sprayed_run_is_the_same_on_any_number_of_threads() {
    assert_same_on_threads(Forwarding::Random, 3);
}

#[test]
fn adaptive_run_is_the_same_on_any_number_of_threads() {
    assert_same_on_threads(Forwarding::LeastBacklog, 4);
}

#[test]
fn panic_of_a_node_ends_the_run_instead_of_hanging_it() {
    struct Bomb;
    impl Node for Bomb {
        fn on_start(&mut self, ctx: &mut Context<'_>) {
            ctx.set_timer(5_000_000, 0);
        }
        fn on_frame(&mut self, _: &mut Context<'_>, _: u16, _: Frame) {}
        fn on_timer(&mut self, _: &mut Context<'_>, _: u32) {
            panic!("bomb");
        }
    }
    let mut fabric = Fabric::with_threads(&topology(Forwarding::Ecmp), 1, 3).unwrap();
    (0..HOST_COUNT - 1).for_each(|host| fabric.attach(NodeId(host), Talker::default()));
    fabric.attach(NodeId(HOST_COUNT - 1), Bomb);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fabric.run_until_idle(u64::MAX)));
    assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"bomb"));
}
