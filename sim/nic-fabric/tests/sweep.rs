//! To serve each node for a while changes nothing: the outcome is that of the order of events.

mod traffic;

use nic_fabric::{
    Action, Context, Ecn, Fabric, FabricStats, Forwarding, Frame, LeafSpine, LinkId, LinkSelect, LinkSpec, LinkStats,
    Node, NodeId, Outage, PlaneLinks, Rule, Topology,
};
use rand_core::RngCore;
use traffic::{assert_conserved, udp};

const HOST_COUNT: u32 = 16;
const END_PS: u64 = 2_000_000;
/// Short, so that much of what happens in a sweep happens near its ends.
const DELAY_PS: u64 = 2_050;

/// Sends short frames, several at the same time as others do, answers some, and remembers everything.
#[derive(Default)]
struct Talker {
    log: Vec<(u64, u64)>,
}

impl Node for Talker {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        ctx.set_timer(0, 0);
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, _port: u16, frame: Frame) {
        let digest = frame.to_bytes().iter().fold(0, |sum: u64, byte| sum.wrapping_mul(31) + u64::from(*byte));
        self.log.push((ctx.now_ps(), digest));
        if ctx.rng().next_u32() % 2 == 0 && ctx.now_ps() < END_PS {
            self.send(ctx);
        }
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        self.log.push((ctx.now_ps(), ctx.port_free_at_ps(0)));
        (0..1 + ctx.rng().next_u32() % 3).for_each(|_| self.send(ctx));
        if ctx.now_ps() < END_PS {
            // Often within the same sweep.
            let at_ps = ctx.now_ps() + 20 * u64::from(ctx.rng().next_u32() % 500);
            ctx.set_timer(at_ps, token + 1);
        }
    }
}

impl Talker {
    fn send(&mut self, ctx: &mut Context<'_>) {
        let from = ctx.node().0;
        let to = (from + 1 + ctx.rng().next_u32() % (HOST_COUNT - 1)) % HOST_COUNT;
        let (sport, len) = (ctx.rng().next_u32() as u16, ctx.rng().next_u32() % 80);
        ctx.send(0, udp(from, to, sport, 0x02, len));
    }
}

type Outcome = (FabricStats, Vec<LinkStats>, Vec<Vec<(u64, u64)>>);

/// What stands beside the network, without any traffic, and decides how far its nodes are served at a time.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// Nothing: two sides, one served after the other.
    Nothing,
    /// Three hosts in a triangle: there are no two sides, so all are served half as far.
    Triangle,
    /// A cable without length: no node is served for longer than the shortest frame takes on a line, in which few have
    /// more than one event. The reference.
    ShortCable,
}

fn run(forwarding: Forwarding, seed: u64, beside: Beside) -> Outcome {
    let ecn = Ecn { min_bytes: 500, max_bytes: 2_000, max_ppm: 800_000 };
    let link = LinkSpec::new(400_000, DELAY_PS).with_buffer_bytes(6_000).with_ecn(ecn);
    let planes = vec![PlaneLinks { host: link.clone(), core: link.clone() }];
    let shape = LeafSpine { leaf_count: 4, hosts_per_leaf: HOST_COUNT / 4, spine_count: 3, planes };
    let mut topology = Topology::leaf_spine(&shape).with_forwarding(forwarding);
    let link_count = topology.link_count();
    let hosts = [(); 3].map(|()| topology.add_host());
    match beside {
        Beside::Nothing => {}
        Beside::Triangle => (0..3).for_each(|at| topology.add_cable(hosts[at], hosts[(at + 1) % 3], &link, 0)),
        Beside::ShortCable => topology.add_cable(hosts[0], hosts[1], &LinkSpec::new(400_000, 0), 0),
    }
    let mut fabric = Fabric::new(&topology, seed).unwrap();
    for action in [Action::Loss { ppm: 20_000 }, Action::Delay { ppm: 50_000, min_ps: 0, max_ps: 9_000 }] {
        fabric.add_rule(&LinkSelect::Core, Rule::new(action)).unwrap();
    }
    fabric.schedule(&Outage::new("leaf1->spine2".into(), 500_000, 1_500_000)).unwrap();
    (0..HOST_COUNT).for_each(|host| fabric.attach(NodeId(host), Talker::default()));
    // In many steps, so that some end within a sweep.
    (1..=97).for_each(|step| _ = fabric.advance(step * 21_013));
    fabric.run_until_idle(u64::MAX);
    assert_conserved(&fabric);
    let links = (0..link_count).map(|link| fabric.link_stats(LinkId(link))).collect();
    let logs = (0..HOST_COUNT).map(|host| fabric.node::<Talker>(NodeId(host)).unwrap().log.clone()).collect();
    (fabric.stats(), links, logs)
}

#[test]
fn nodes_served_for_a_while_give_what_the_order_of_events_gives() {
    for (forwarding, seed) in [(Forwarding::Ecmp, 1), (Forwarding::Ecmp, 2), (Forwarding::Random, 3)] {
        let plain = run(forwarding, seed, Beside::ShortCable);
        assert!(plain.0.sent > 5_000 && plain.0.ecn_marked > 100, "too quiet to tell: {:?}", plain.0);
        for beside in [Beside::Nothing, Beside::Triangle] {
            let swept = run(forwarding, seed, beside);
            let replay = format!("{forwarding:?}, seed {seed}, {beside:?}");
            assert!(plain.2 == swept.2, "{replay}");
            assert_eq!(plain.0, swept.0, "{replay}");
            assert_eq!(plain.1, swept.1, "{replay}");
        }
    }
}
