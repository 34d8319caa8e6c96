//! The event loop of one shard: serves its nodes, and tells them of what concerns them.

use crate::agenda::NEVER_PS;
use crate::engine::{event, key, split_key, Core, PauseRequest};
use crate::fabric::Delivery;
use crate::frame::Frame;
use crate::node::{Ahead, Context, Node};
use crate::prefetch::{prefetch, prefetch_lines};
use crate::sweep::{Arrivals, Progress, Sides};
use crate::topology::{NodeId, Port};

/// Frames whose place in memory is fetched ahead of their turn.
const AHEAD: usize = 2;

/// A shard: its state and its nodes.
pub(crate) struct Shard {
    pub core: Core,
    /// Per host: its node, if it has one here. Others are outside and get their frames as deliveries.
    pub nodes: Vec<Option<Box<dyn Node>>>,
    sides: Sides,
    arrivals: Arrivals,
    /// Nodes to be served.
    due: Vec<u32>,
}

impl Shard {
    pub(crate) fn new(core: Core, nodes: Vec<Option<Box<dyn Node>>>, sides: Sides) -> Shard {
        Shard { core, nodes, sides, arrivals: Arrivals::default(), due: Vec::new() }
    }

    /// Processes every event up to and including `until_ps`. Time stays at the last event.
    pub(crate) fn run_until(&mut self, until_ps: u64) {
        let mut last_ps = self.core.now_ps;
        loop {
            let start_ps = self.core.agenda.first_ps();
            if start_ps > until_ps || start_ps == NEVER_PS {
                break;
            }
            let common_ps = self.core.agenda.common.first_ps();
            if common_ps == start_ps {
                self.dispatch_common(start_ps);
                last_ps = last_ps.max(start_ps);
                continue;
            }
            let limit_ps = common_ps.min(until_ps.saturating_add(1));
            let mut progress = Progress::from(start_ps);
            let mut is_busy = true;
            while is_busy {
                is_busy = false;
                for side in 0..2 {
                    let Some(time) = progress.advance(&self.sides, side, limit_ps) else { continue };
                    is_busy |= self.sweep(side, time, &mut last_ps);
                }
            }
        }
        self.core.now_ps = last_ps;
    }

    /// Serves the nodes of a side for a time. False if nothing was due.
    fn sweep(&mut self, side: usize, time: (u64, u64), last_ps: &mut u64) -> bool {
        let agenda = &self.core.agenda;
        self.due.clear();
        self.due.extend(self.sides.nodes(side).iter().filter(|node| agenda.next_ps(**node) <= time.1));
        for place in 0..self.due.len() {
            // Far enough ahead that what is fetched is there when the node is served.
            let ahead = |ahead: usize| self.due.get(place + ahead).copied();
            ahead(3).into_iter().for_each(|node| self.foresee_node(node));
            ahead(2).into_iter().for_each(|node| self.foresee(node, time.1));
            ahead(1).into_iter().for_each(|node| self.foresee_events(node, time.1));
            self.serve(self.due[place], time);
            *last_ps = self.core.now_ps.max(*last_ps);
        }
        !self.due.is_empty()
    }

    /// Has fetched where a node begins.
    #[inline]
    fn foresee_node(&self, node: u32) {
        if let Some(Some(nic)) = self.nodes.get(node as usize) {
            prefetch_lines::<2>(nic.as_ref());
        }
        for out in self.core.net.ports(node) {
            prefetch(&self.core.tx[*out as usize]);
            let rx = &self.core.rx[(out ^ 1) as usize];
            if let Some(first) = rx.line.get(0) {
                prefetch(first);
            }
        }
    }

    /// Has fetched what a node will touch up to `end_ps`.
    #[inline]
    fn foresee(&self, node: u32, end_ps: u64) {
        if node >= self.core.host_count {
            return;
        }
        for out in self.core.net.ports(node) {
            let line = &self.core.rx[(out ^ 1) as usize].line;
            line.until(end_ps).for_each(|flight| flight.sent_frame().prefetch());
        }
        if let Some(Some(nic)) = self.nodes.get(node as usize) {
            nic.foresee();
        }
    }

    /// Has fetched what the first events of a node will touch.
    #[inline]
    fn foresee_events(&self, node: u32, end_ps: u64) {
        let Some(Some(nic)) = self.nodes.get(node as usize) else { return };
        for out in self.core.net.ports(node) {
            let line = &self.core.rx[(out ^ 1) as usize].line;
            line.until(end_ps).take(AHEAD).for_each(|flight| nic.foresee_event(Ahead::Frame(flight.sent_frame())));
        }
        if let Some((_, key)) = self.core.agenda.first_own(node) {
            let (kind, _, sub) = split_key(key);
            if kind == event::TIMER {
                nic.foresee_event(Ahead::Timer(sub));
            }
        }
    }

    /// Does everything that happens to a node in a time, first and last picosecond.
    fn serve(&mut self, node: u32, time: (u64, u64)) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        arrivals.find(&self.core, node, time);
        if node >= self.core.host_count {
            self.serve_switch(node, &arrivals);
        } else {
            self.serve_host(node, &arrivals, time.1);
        }
        self.dispatch_before(node, time.1 + 1, 0);
        let links = self.core.net.ports(node).iter().map(|out| (out ^ 1) as usize);
        let first_ps = links.map(|link| self.core.rx[link].line.first_ps()).min();
        self.core.agenda.settle(node, first_ps.unwrap_or(NEVER_PS));
        self.arrivals = arrivals;
    }

    fn serve_switch(&mut self, node: u32, arrivals: &Arrivals) {
        for (arrival_ps, link) in arrivals.iter() {
            if self.core.agenda.first_own_ps(node) <= arrival_ps {
                self.dispatch_before(node, arrival_ps, key(event::HEAD, link, 0));
            }
            if let Some((packet, frame)) = self.core.take_first(link, arrival_ps) {
                self.core.forward(node - self.core.host_count, link, packet, frame);
            }
        }
    }

    fn serve_host(&mut self, node: u32, arrivals: &Arrivals, end_ps: u64) {
        self.foresee_events(node, end_ps);
        for (place, (arrival_ps, link)) in arrivals.iter().enumerate() {
            if let (Some(ahead), Some(Some(nic))) =
                (arrivals.flight(&self.core, place, AHEAD), self.nodes.get(node as usize))
            {
                nic.foresee_event(Ahead::Frame(ahead.sent_frame()));
            }
            self.dispatch_before(node, arrival_ps, key(event::HEAD, link, 0));
            if let Some((packet, frame)) = self.core.take_first(link, arrival_ps) {
                self.deliver(node, link, packet.finish(frame));
            }
        }
    }

    /// Does what happens to a node, other than arrivals in the order of a link, before a time and key.
    #[inline]
    fn dispatch_before(&mut self, node: u32, time_ps: u64, key: u64) {
        while let Some(first) = self.core.agenda.own(node).first().filter(|first| *first < (time_ps, key)) {
            self.core.agenda.own(node).pop();
            self.core.now_ps = first.0;
            self.dispatch(first.1);
        }
    }

    #[inline]
    fn dispatch(&mut self, key: u64) {
        let (kind, entity, sub) = split_key(key);
        self.core.stats.events += 1;
        if kind == event::TIMER {
            self.call(entity, |node, ctx| node.on_timer(ctx, sub));
        } else {
            self.dispatch_rare(kind, entity, sub);
        }
    }

    fn dispatch_rare(&mut self, kind: u64, entity: u32, sub: u32) {
        let core = &mut self.core;
        match kind {
            event::INJECT => core.enter_injected(entity, sub),
            event::SENT => {
                if core.sent(entity) {
                    self.tell_port(entity, |node, ctx, port| node.on_port_idle(ctx, port));
                }
            }
            event::PAUSE => core.pause(entity, PauseRequest(sub)),
            event::STRAY => {
                if let Some(mut flight) = core.take_stray(entity, sub) {
                    core.record_arrival(entity, &mut flight);
                    let (packet, frame) = flight.into_parts();
                    match core.rx[entity as usize].node {
                        host if host < core.host_count => self.deliver(host, entity, packet.finish(frame)),
                        switch => core.forward_stray(switch - core.host_count, entity, packet, frame),
                    }
                }
            }
            _ => unreachable!("event kind {kind}"),
        }
    }

    /// Does what concerns all nodes at a time. Every shard has these events; they are not counted, so that the count is
    /// that of one shard.
    fn dispatch_common(&mut self, time_ps: u64) {
        self.core.now_ps = time_ps;
        while self.core.agenda.common.first_ps() == time_ps {
            let Some((_, key)) = self.core.agenda.common.pop() else { return };
            let (kind, entity, sub) = split_key(key);
            if kind == event::REROUTE {
                self.core.reroute();
            } else if self.core.change_cable(entity, sub == 1) {
                for link in [entity * 2, entity * 2 + 1] {
                    self.tell_port(link, |node, ctx, port| node.on_port_state(ctx, port, sub == 1));
                }
            }
        }
    }

    /// A frame is at a host.
    #[inline]
    fn deliver(&mut self, node: u32, link: u32, frame: Frame) {
        let core = &mut self.core;
        let port = core.rx[link as usize].port;
        core.stats.delivered += 1;
        core.stats.delivered_bytes += frame.len_bytes() as u64;
        match &mut self.nodes[node as usize] {
            Some(nic) => nic.on_frame(&mut Context { core, node }, port, frame),
            None => {
                let port = Port { node: NodeId(node), index: port };
                core.deliveries.push(Delivery { time_ps: core.now_ps, port, frame });
            }
        }
    }

    /// Calls the node from whose port a link starts, if there is one in this shard.
    fn tell_port(&mut self, link: u32, f: impl FnOnce(&mut dyn Node, &mut Context<'_>, u16)) {
        // The near end of a link is the far end of its opposite.
        let near = &self.core.rx[(link ^ 1) as usize];
        let (node, port) = (near.node, near.port);
        if node < self.core.net.host_count {
            self.call(node, |nic, ctx| f(nic, ctx, port));
        }
    }

    /// Calls a node, if there is one.
    pub(crate) fn call<R>(&mut self, node: u32, f: impl FnOnce(&mut dyn Node, &mut Context<'_>) -> R) -> Option<R> {
        let nic = self.nodes[node as usize].as_mut()?;
        Some(f(nic.as_mut(), &mut Context { core: &mut self.core, node }))
    }
}
