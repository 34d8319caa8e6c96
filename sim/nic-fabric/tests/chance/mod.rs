//! Networks, traffic and faults drawn from a seed, with much that happens in the same picosecond.

use std::io::Write;
use std::sync::{Arc, Mutex};

use nic_fabric::fabric::DELAY_PS_MAX;
use nic_fabric::topology::End;
use nic_fabric::{
    Action, Context, Ecn, Fabric, FatTree, Forwarding, Frame, LeafSpine, LinkId, LinkSelect, LinkSpec, Node, NodeId,
    Outage, Pfc, PlaneLinks, Port, Rule, Tap, Topology, Verdict,
};
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

use crate::traffic::udp_in_plane;

pub const CONTROL_DSCP: u8 = 48;

/// A number below a limit.
pub fn below(rng: &mut ChaCha8Rng, limit: u64) -> u64 {
    rng.next_u64() % limit
}

/// One of several.
pub fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[below(rng, from.len() as u64) as usize]
}

/// A network in which few things are alike, or all.
pub fn topology(rng: &mut ChaCha8Rng, unit_ps: u64) -> Topology {
    // Some networks are lossless in part, and need classes everywhere for it.
    let style = Style { has_pfc: below(rng, 3) == 0, is_even: below(rng, 3) == 0 };
    let first = style.link(rng, unit_ps);
    let link = |rng: &mut ChaCha8Rng| if style.is_even { first.clone() } else { style.link(rng, unit_ps) };
    let planes = |rng: &mut ChaCha8Rng, count: u64| -> Vec<PlaneLinks> {
        (0..count).map(|_| PlaneLinks { host: link(rng), core: link(rng) }).collect()
    };
    let mut topology = match below(rng, 4) {
        0 | 1 => {
            let [leaf_count, hosts_per_leaf, spine_count] = [2, 1, 1].map(|least| least + below(rng, 3) as u32);
            let plane_count = 1 + below(rng, 2);
            Topology::leaf_spine(&LeafSpine {
                leaf_count,
                hosts_per_leaf,
                spine_count,
                planes: planes(rng, plane_count),
            })
        }
        2 => Topology::fat_tree(&FatTree { arity: 4, planes: planes(rng, 1) }),
        _ => any_graph(rng, link),
    };
    let forwarding = pick(rng, &[Forwarding::Ecmp, Forwarding::Random, Forwarding::LeastBacklog]);
    topology = topology.with_forwarding(forwarding).with_control_dscp(CONTROL_DSCP);
    topology.reroute_after_ps = pick(rng, &[None, Some(0), Some(unit_ps), Some(7 * unit_ps)]);
    topology
}

/// Switches and hosts on cables from anywhere to anywhere, also twice, from host to host, and from a host to itself.
fn any_graph(rng: &mut ChaCha8Rng, link: impl Fn(&mut ChaCha8Rng) -> LinkSpec) -> Topology {
    let mut topology = Topology::new();
    let hosts: Vec<End> = (0..2 + below(rng, 5)).map(|_| topology.add_host()).collect();
    let switches: Vec<End> = (0..1 + below(rng, 4)).map(|index| topology.add_switch(format!("s{index}"))).collect();
    for host in &hosts {
        topology.add_cable(*host, pick(rng, &switches), &link(rng), 0);
    }
    let all = [hosts, switches].concat();
    for _ in 0..below(rng, 8) {
        let (a, b) = (pick(rng, &all), pick(rng, &all));
        topology.add_cable(a, b, &link(rng), 0);
    }
    topology
}

struct Style {
    has_pfc: bool,
    is_even: bool,
}

impl Style {
    fn link(&self, rng: &mut ChaCha8Rng, unit_ps: u64) -> LinkSpec {
        let rate_mbps =
            if self.is_even { 400_000 } else { pick(rng, &[400_000, 400_000, 100_000, 30_000, 80_000_000]) };
        let delay_ps = pick(rng, &[0, 1, 2_050, 2_050, unit_ps, 3 * unit_ps, 40 * unit_ps]);
        let delay_ps = if below(rng, 40) == 0 { DELAY_PS_MAX } else { delay_ps };
        let mut link = LinkSpec::new(rate_mbps, delay_ps).with_buffer_bytes(pick(rng, &[600, 1_500, 6_000, u64::MAX]));
        if below(rng, 2) == 0 {
            link = link.with_ecn(Ecn { min_bytes: 200, max_bytes: 2_000, max_ppm: 800_000 });
        }
        if self.has_pfc || below(rng, 4) == 0 {
            link = link.with_classes(pick(rng, &[1_000, u64::MAX]));
        }
        if self.has_pfc && below(rng, 3) > 0 {
            let xon_bytes = below(rng, 600);
            link = link.with_pfc(Pfc {
                xoff_bytes: xon_bytes + below(rng, 600),
                xon_bytes,
                headroom_bytes: below(rng, 3_000),
            });
        }
        link
    }
}

/// A rule of any kind.
pub fn rule(rng: &mut ChaCha8Rng, unit_ps: u64) -> Rule {
    let delay_ps = pick(rng, &[0, 1, unit_ps, 20 * unit_ps]);
    let action = match below(rng, 7) {
        0 => Action::Loss { ppm: 100_000 },
        1 => Action::Burst { to_bad_ppm: 50_000, to_good_ppm: 300_000, good_loss_ppm: 0, bad_loss_ppm: 700_000 },
        2 => Action::Corrupt { ppm: 100_000, is_found_by_fcs: below(rng, 2) == 0 },
        3 => Action::Duplicate { ppm: 200_000, delay_ps },
        4 => Action::Delay { ppm: 300_000, min_ps: 0, max_ps: delay_ps },
        5 => Action::Delay { ppm: 300_000, min_ps: delay_ps, max_ps: delay_ps },
        _ => {
            let verdict = pick(rng, &[Verdict::Drop, Verdict::Duplicate { delay_ps }]);
            Action::Nth { first: 3, count: 4, verdict }
        }
    };
    Rule::new(action)
}

/// Some of the links.
pub fn links(rng: &mut ChaCha8Rng, topology: &Topology) -> LinkSelect {
    match below(rng, 20) {
        0 => LinkSelect::HostUp,
        1 => LinkSelect::HostDown,
        _ => LinkSelect::Link(LinkId(below(rng, u64::from(topology.link_count())) as u32)),
    }
}

/// A frame from a host to another, to itself, or to one that does not exist.
pub fn frame(rng: &mut ChaCha8Rng, from: u32, host_count: u32) -> Frame {
    let to = if below(rng, 30) == 0 { host_count } else { below(rng, u64::from(host_count)) as u32 };
    // Nobody has plane 9; others may not have plane 1.
    let plane = if below(rng, 4) > 0 { 0 } else { pick(rng, &[0, 0, 0, 0, 0, 0, 1, 1, 1, 9]) };
    let tos = pick(rng, &[0x02, 0x02, 0x01, 0, CONTROL_DSCP << 2]);
    let payload_bytes = pick(rng, &[0, 0, 100, 100, 400]);
    udp_in_plane(plane, from, to, below(rng, 50) as u16, tos, payload_bytes)
}

/// Sends at any occasion, and remembers everything.
pub struct Chatter {
    pub log: Vec<(u64, u64)>,
    host_count: u32,
    unit_ps: u64,
    frames_left: u32,
}

impl Chatter {
    pub fn new(host_count: u32, unit_ps: u64) -> Chatter {
        Chatter { log: Vec::new(), host_count, unit_ps, frames_left: 150 }
    }

    /// Notes what happened, and does something about it.
    pub fn act(&mut self, ctx: &mut Context<'_>, what: u64) {
        let (port_count, now_ps) = (u64::from(ctx.port_count()), ctx.now_ps());
        let ports = (0..ctx.port_count()).map(|port| ctx.port_free_at_ps(port) + u64::from(ctx.port_is_up(port)));
        let ports_digest = ports.fold(what, |digest, free_at_ps| digest.wrapping_mul(0x100_0193) ^ free_at_ps);
        self.log.push((now_ps, ports_digest));
        let from = ctx.node().0;
        for _ in 0..below(ctx.rng(), 5).min(u64::from(self.frames_left)) {
            self.frames_left -= 1;
            let (port, frame) = (below(ctx.rng(), port_count) as u16, frame(ctx.rng(), from, self.host_count));
            ctx.send(port, frame);
        }
        if self.frames_left > 0 && below(ctx.rng(), 2) == 0 {
            let in_ps = pick(ctx.rng(), &[0, 0, 1, self.unit_ps / 2, self.unit_ps, 3 * self.unit_ps]);
            let at_ps = if below(ctx.rng(), 9) == 0 { now_ps / 2 } else { now_ps + in_ps };
            let token = below(ctx.rng(), 5) as u32;
            ctx.set_timer(at_ps, token);
            self.frames_left -= 1;
        }
    }
}

impl Node for Chatter {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        self.act(ctx, 1);
        let now_ps = ctx.now_ps();
        (0..20).for_each(|turn| ctx.set_timer(now_ps + turn * self.unit_ps, 9));
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        let digest = frame.to_bytes().iter().fold(u64::from(port), |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        self.act(ctx, digest);
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        self.act(ctx, 10 + u64::from(token));
    }

    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        self.act(ctx, 100 + 2 * u64::from(port) + u64::from(is_up));
    }

    fn on_port_idle(&mut self, ctx: &mut Context<'_>, port: u16) {
        self.act(ctx, 1_000 + u64::from(port));
    }
}

/// What a driver does between two runs.
pub enum Step {
    /// A host, and how many there are to send to.
    Attach(u32, u32),
    Call(u32),
    Inject(Port, u64, Frame),
    Schedule(Outage),
    AddRule(LinkSelect, Rule),
    ClearRules(LinkSelect),
    Capture(LinkId, Tap),
}

/// What a driver does, in the order of time, up to an end.
pub fn script(rng: &mut ChaCha8Rng, topology: &Topology, unit_ps: u64) -> Vec<(u64, Step)> {
    let host_count = topology.hosts.len() as u64;
    let link_count = u64::from(topology.link_count());
    let mut steps: Vec<(u64, Step)> = Vec::new();
    // Some hosts stay outside all the time, some for a while.
    let is_outside: Vec<bool> = (0..host_count).map(|_| below(rng, 3) == 0).collect();
    for host in 0..host_count as u32 {
        if !is_outside[host as usize] {
            steps.push((pick(rng, &[0, 0, 0, 5 * unit_ps]), Step::Attach(host, host_count as u32)));
        }
    }
    for _ in 0..40 {
        let at_ps = below(rng, 40) * unit_ps / 2 + pick(rng, &[0, 0, 1]);
        let host = below(rng, host_count) as u32;
        let step = match below(rng, 12) {
            0 => Step::Call(host),
            1 => {
                // Also such as begin or end with each other, or when a driver looks.
                let (from_ps, length_ps) =
                    (at_ps + 1 + below(rng, 3) * unit_ps / 2, pick(rng, &[1, unit_ps / 2, unit_ps, 2 * unit_ps]));
                let from_ps = if below(rng, 2) == 0 { from_ps } else { from_ps - 1 + unit_ps };
                Step::Schedule(Outage::new(links(rng, topology), from_ps, from_ps + length_ps))
            }
            2 => Step::AddRule(links(rng, topology), rule(rng, unit_ps)),
            3 if below(rng, 4) == 0 => Step::ClearRules(links(rng, topology)),
            3 => Step::Capture(LinkId(below(rng, link_count) as u32), pick(rng, &[Tap::Sent, Tap::Received])),
            kind => {
                let port = Port { node: NodeId(host), index: below(rng, 2) as u16 };
                let ahead_ps = pick(rng, &[0, 1, unit_ps / 2, unit_ps]);
                let time_ps = if kind % 2 == 0 { at_ps + ahead_ps } else { at_ps.saturating_sub(ahead_ps) };
                Step::Inject(port, time_ps, frame(rng, host, host_count as u32))
            }
        };
        steps.push((at_ps, step));
    }
    steps.sort_by_key(|step| step.0);
    steps
}

/// A file that can be read when it was written.
#[derive(Clone, Default)]
pub struct Tape(pub Arc<Mutex<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Does one step. What the fabric says to it is part of the outcome.
pub fn play(fabric: &mut Fabric, step: &Step, unit_ps: u64, tapes: &mut Vec<Tape>) -> String {
    match step {
        Step::Attach(host, host_count) => {
            fabric.attach(NodeId(*host), Chatter::new(*host_count, unit_ps));
            String::new()
        }
        Step::Call(host) => {
            format!("{:?}", fabric.call(NodeId(*host), |node: &mut Chatter, ctx| node.act(ctx, 7)))
        }
        Step::Inject(port, time_ps, frame) => format!("{:?}", fabric.inject(*port, *time_ps, frame.clone()).is_ok()),
        Step::Schedule(outage) => format!("{:?}", fabric.schedule(outage).is_ok()),
        Step::AddRule(select, rule) => format!("{:?}", fabric.add_rule(select, rule.clone()).is_ok()),
        Step::ClearRules(select) => format!("{:?}", fabric.clear_rules(select).is_ok()),
        Step::Capture(link, tap) => {
            tapes.push(Tape::default());
            format!("{:?}", fabric.capture(*link, *tap, Box::new(tapes[tapes.len() - 1].clone())).is_ok())
        }
    }
}
