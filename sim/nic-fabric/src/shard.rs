//! The event loop of one shard: takes events in order and tells the nodes of what concerns them.

use crate::batch::Batch;
use crate::engine::{event, split_key, Arrival, Core};
use crate::fabric::Delivery;
use crate::node::{Context, Node};
use crate::topology::{NodeId, Port};

/// A shard: its state and its nodes.
pub(crate) struct Shard {
    pub core: Core,
    /// Per host: its node, if it has one here. Others are outside and get their frames as deliveries.
    pub nodes: Vec<Option<Box<dyn Node>>>,
    batch: Batch,
}

impl Shard {
    pub(crate) fn new(core: Core, nodes: Vec<Option<Box<dyn Node>>>) -> Shard {
        Shard { core, nodes, batch: Batch::default() }
    }

    /// Processes every event up to and including `until_ps`. Time stays at the last event.
    pub(crate) fn run_until(&mut self, until_ps: u64) {
        loop {
            let hops_end_ps = self.batch.begin(&mut self.core, &self.nodes, until_ps);
            for _ in 0..self.batch.call_count() {
                let Some((time_ps, key)) = self.core.wheel.pop_open(until_ps) else { break };
                self.core.now_ps = time_ps;
                self.dispatch(key);
            }
            self.core.now_ps = self.core.now_ps.max(hops_end_ps);
            if !self.core.wheel.has_open(until_ps) && !self.core.wheel.open_next(until_ps) {
                return;
            }
        }
    }

    #[inline]
    fn dispatch(&mut self, key: u64) {
        let core = &mut self.core;
        let (kind, entity, sub) = split_key(key);
        core.stats.events += 1;
        let arrival = match kind {
            event::HEAD => core.arrive_first(entity),
            event::STRAY => core.arrive_astray(entity, sub),
            event::TIMER => return self.call(entity, |node, ctx| node.on_timer(ctx, sub)).unwrap_or_default(),
            _ => return self.dispatch_rare(kind, entity, sub),
        };
        if let Some(arrival) = arrival {
            self.deliver(arrival);
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
            event::PAUSE => core.pause(entity, sub == 1),
            event::REROUTE => {
                // Every shard has these; they are not counted, so that the count is that of one shard.
                core.stats.events -= 1;
                core.reroute();
            }
            event::CABLE => {
                core.stats.events -= 1;
                if core.change_cable(entity, sub == 1) {
                    for link in [entity * 2, entity * 2 + 1] {
                        self.tell_port(link, |node, ctx, port| node.on_port_state(ctx, port, sub == 1));
                    }
                }
            }
            _ => unreachable!("event kind {kind}"),
        }
    }

    #[inline]
    fn deliver(&mut self, arrival: Arrival) {
        let Arrival { node, port, id } = arrival;
        let core = &mut self.core;
        core.stats.delivered += 1;
        let frame = core.pool.remove(id);
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
