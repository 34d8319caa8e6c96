//! Nodes inside the fabric: frames, timers, their own randomness, work given from outside.

mod traffic;

use nic_fabric::{
    Action, Context, Fabric, Frame, LinkId, LinkSelect, LinkSpec, Node, NodeId, Outage, Port, Rule, Topology,
};
use rand_core::RngCore;
use traffic::udp;

/// Sends a frame every `period_ps`, echoes what it gets, and logs.
#[derive(Default)]
struct Chatter {
    period_ps: u64,
    sends_left: u32,
    is_echo: bool,
    log: Vec<(u64, String)>,
}

impl Node for Chatter {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        if self.sends_left > 0 {
            ctx.set_timer(self.period_ps, 1);
        }
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        self.log.push((ctx.now_ps(), format!("frame of {} on {port}", frame.len_bytes())));
        if self.is_echo {
            ctx.send(port, frame);
        }
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        self.log.push((ctx.now_ps(), format!("timer {token}")));
        if token == 1 {
            ctx.send(0, Frame::new(&[0; 60]));
            self.sends_left -= 1;
            if self.sends_left > 0 {
                ctx.set_timer(ctx.now_ps() + self.period_ps, 1);
            }
        }
    }
}

fn pair(a: Chatter, b: Chatter) -> Fabric {
    let mut fabric = Fabric::new(&Topology::point_to_point(&LinkSpec::new(100_000, 1_000)), 9).unwrap();
    fabric.attach(NodeId(0), a);
    fabric.attach(NodeId(1), b);
    fabric
}

#[test]
fn echo_comes_back_after_two_serialisations_and_two_delays() {
    let sender = Chatter { period_ps: 50_000, sends_left: 2, ..Chatter::default() };
    let mut fabric = pair(sender, Chatter { is_echo: true, ..Chatter::default() });
    assert_eq!(fabric.run_until_idle(u64::MAX), []);
    let log = &fabric.node::<Chatter>(NodeId(0)).unwrap().log;
    let one_way_ps = 84 * 80 + 1_000;
    let expected = [
        (50_000, "timer 1".to_string()),
        (50_000 + 2 * one_way_ps, "frame of 60 on 0".to_string()),
        (100_000, "timer 1".to_string()),
        (100_000 + 2 * one_way_ps, "frame of 60 on 0".to_string()),
    ];
    assert_eq!(log[..], expected);
}

#[test]
fn timers_of_one_moment_come_in_the_order_of_their_tokens() {
    let mut fabric = pair(Chatter::default(), Chatter::default());
    fabric.call(NodeId(0), |_: &mut Chatter, ctx| {
        for token in [9, 7, 8] {
            ctx.set_timer(5_000, token);
        }
    });
    fabric.advance(4_999);
    assert!(fabric.node::<Chatter>(NodeId(0)).unwrap().log.is_empty());
    fabric.advance(5_000);
    let log: Vec<_> = fabric.node::<Chatter>(NodeId(0)).unwrap().log.iter().map(|entry| entry.1.as_str()).collect();
    assert_eq!(log, ["timer 7", "timer 8", "timer 9"]);
}

#[test]
fn call_reaches_only_a_node_of_the_named_type() {
    struct Other;
    impl Node for Other {
        fn on_frame(&mut self, _: &mut Context<'_>, _: u16, _: Frame) {}
        fn on_timer(&mut self, _: &mut Context<'_>, _: u32) {}
    }
    let mut fabric = pair(Chatter::default(), Chatter::default());
    assert_eq!(fabric.call(NodeId(0), |_: &mut Other, _| 1), None);
    assert_eq!(fabric.call(NodeId(0), |_: &mut Chatter, _| 1), Some(1));
}

#[test]
fn node_randomness_is_its_own_and_follows_the_seed() {
    let draw = |seed: u64, node: u32| {
        let mut fabric = Fabric::new(&Topology::point_to_point(&LinkSpec::new(100_000, 1_000)), seed).unwrap();
        fabric.attach(NodeId(node), Chatter::default());
        fabric.call(NodeId(node), |_: &mut Chatter, ctx| ctx.rng().next_u64()).unwrap()
    };
    assert_eq!(draw(1, 0), draw(1, 0));
    assert_ne!(draw(1, 0), draw(1, 1));
    assert_ne!(draw(1, 0), draw(2, 0));
}

/// Notes what comes, in the order in which it comes.
#[derive(Default)]
struct Clerk(Vec<(u64, String)>);

impl Node for Clerk {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        ctx.set_timer(ARRIVAL_PS, 2);
        ctx.set_timer(ARRIVAL_PS, 1);
        ctx.set_timer(ARRIVAL_PS - 1, 3);
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, _: Frame) {
        self.0.push((ctx.now_ps(), format!("frame {port}")));
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        self.0.push((ctx.now_ps(), format!("timer {token}")));
        if token == 2 {
            // The past is now.
            ctx.set_timer(0, 0);
        }
    }

    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, _: bool) {
        self.0.push((ctx.now_ps(), format!("state {port}")));
    }
}

const ARRIVAL_PS: u64 = 84 * 80 + 5_000;

#[test]
fn events_of_a_picosecond_come_as_cables_frames_strays_timers_each_in_the_order_of_their_numbers() {
    let mut topology = Topology::new();
    let (from, to) = (topology.add_host(), topology.add_host());
    (0..3).for_each(|_| topology.add_cable(from, to, &LinkSpec::new(100_000, 5_000), 0));
    let mut fabric = Fabric::new(&topology, 1).unwrap();
    let copy = Action::Duplicate { ppm: 1_000_000, delay_ps: 0 };
    fabric.add_rule(&LinkSelect::Link(LinkId(0)), Rule::new(copy)).unwrap();
    fabric.schedule(&Outage::new(LinkSelect::Link(LinkId(4)), ARRIVAL_PS, ARRIVAL_PS + 1)).unwrap();
    for index in [1, 0] {
        fabric.inject(Port { node: NodeId(0), index }, 0, udp(0, 1, 7, 0, 0)).unwrap();
    }
    fabric.attach(NodeId(1), Clerk::default());
    fabric.run_until_idle(u64::MAX);
    let log = &fabric.node::<Clerk>(NodeId(1)).unwrap().0;
    assert_eq!((log[0].0, log[0].1.as_str()), (ARRIVAL_PS - 1, "timer 3"));
    let now: Vec<&str> = log.iter().filter(|entry| entry.0 == ARRIVAL_PS).map(|entry| entry.1.as_str()).collect();
    assert_eq!(now, ["state 2", "frame 0", "frame 1", "frame 0", "timer 1", "timer 2", "timer 0"]);
    assert_eq!(log.len(), 1 + now.len() + 1);
}
