//! The next few events together: what they touch is fetched, and what happens at switches is done first.
//!
//! Nearly every hop touches lines that are no longer in the first caches; one event after the other would wait for them
//! several times each. Here the lines of some events are asked for together, and nothing depends on what is found: an
//! event that comes to find things changed only waits longer.
//!
//! Events of a batch lie within one bucket of the wheel. If no link is shorter than a bucket, what happens at a switch
//! and what happens at a host within a batch cannot touch each other: a frame that one of them sends reaches the other
//! later, and what they share, the chain of frames on the link between them, ends up the same whether a frame is first
//! put at its end or another first taken from its front. So the hops of a batch can be done in a row, in the order of
//! events, and the events of hosts after them: the outcome is that of the order of events, and the processor meets the
//! same few instructions again instead of now these, now those. The rare events (outages, pauses, queues with classes,
//! frames out of order) touch both sides; a batch that holds one is done in plain order.

use crate::address::HOST_UNKNOWN;
use crate::engine::{event, split_key, Core};
use crate::node::{Ahead, Node};
use crate::pool::{FrameId, Packet, FRAME_NONE};
use crate::prefetch::{prefetch, prefetch_lines};

/// Events of a batch at most.
const BATCH_EVENTS: usize = 16;
const PLACE_MASK: usize = BATCH_EVENTS - 1;
const _: () = assert!(BATCH_EVENTS.is_power_of_two(), "places are found by masking");

/// No link: it is found when the frame is forwarded.
const LINK_NONE: u32 = u32::MAX;

/// A frame that arrives at the end of a link.
#[derive(Clone, Copy, Default)]
struct Head {
    /// Which event of the batch it is.
    place: u32,
    link: u32,
    id: FrameId,
    /// The node at the end of the link.
    node: u32,
}

/// The batch, sorted by what happens. Each list is as long as its count says; what lies behind is of earlier batches.
#[derive(Default)]
pub(crate) struct Batch {
    event_count: usize,
    heads: [Head; BATCH_EVENTS],
    /// Of the heads those at switches, and the link by which each will leave.
    hops: [(Head, u32); BATCH_EVENTS],
    /// Of the heads those at hosts: node, frame.
    arrivals: [(u32, FrameId); BATCH_EVENTS],
    /// Node, token.
    timers: [(u32, u32); BATCH_EVENTS],
    /// Hops that are done.
    done_count: usize,
}

impl Batch {
    /// Events of the batch that are left to do one after the other.
    #[inline]
    pub(crate) fn call_count(&self) -> usize {
        self.event_count - self.done_count
    }

    /// Looks at the next events, has fetched what they touch, and does the hops as far as that is the same as to do them
    /// in turn. Returns when the last of them was; 0 if none is done.
    #[inline]
    pub(crate) fn begin(&mut self, core: &mut Core, nodes: &[Option<Box<dyn Node>>], until_ps: u64) -> u64 {
        self.done_count = 0;
        let (head_count, timer_count, is_plain) = self.sort_by_kind(core, until_ps);
        for head in &mut self.heads[..head_count] {
            let rx = &core.rx[head.link as usize];
            (head.id, head.node) = (rx.first.id, rx.node);
            core.pool.prefetch_if_any(head.id);
        }
        for &(node, _) in &self.timers[..timer_count] {
            prefetch_node(core, nodes, node);
        }
        let (hop_count, arrival_count) = self.sort_by_end(core, head_count);
        for &(node, id) in &self.arrivals[..arrival_count] {
            core.pool.prefetch_frame(id);
            prefetch_node(core, nodes, node);
        }
        for (head, out) in &mut self.hops[..hop_count] {
            *out = core.foresee_out(head.node - core.host_count, head.id);
        }
        let end_ps = if is_plain { self.do_hops(core, hop_count) } else { 0 };
        let calls = self.arrivals[..arrival_count].iter().chain(&self.timers[..timer_count]);
        for &(node, _) in calls {
            if let Some(nic) = nodes[node as usize].as_deref() {
                nic.foresee();
            }
        }
        for &(node, id) in &self.arrivals[..arrival_count] {
            if let Some(nic) = nodes[node as usize].as_deref() {
                nic.foresee_event(Ahead::Frame(core.pool.frame(id)));
            }
        }
        for &(node, token) in &self.timers[..timer_count] {
            if let Some(nic) = nodes[node as usize].as_deref() {
                nic.foresee_event(Ahead::Timer(token));
            }
        }
        end_ps
    }

    /// Finds heads and timers. Returns how many there are of each, and whether there is nothing else.
    ///
    /// Which kind comes next is what nothing can predict, so there are no branches on it.
    #[inline]
    fn sort_by_kind(&mut self, core: &Core, until_ps: u64) -> (usize, usize, bool) {
        let (mut head_count, mut timer_count, mut event_count, mut last_ps) = (0, 0, 0, 0);
        for (time_ps, key) in core.wheel.open_events(BATCH_EVENTS) {
            let (kind, entity, sub) = split_key(key);
            let head = &mut self.heads[head_count & PLACE_MASK];
            (head.place, head.link) = (event_count as u32, entity);
            self.timers[timer_count & PLACE_MASK] = (entity, sub);
            head_count += usize::from(kind == event::HEAD);
            timer_count += usize::from(kind == event::TIMER);
            last_ps = time_ps;
            event_count += 1;
        }
        self.event_count = event_count;
        let is_plain = core.may_hop_ahead && head_count + timer_count == event_count && last_ps <= until_ps;
        (head_count, timer_count, is_plain)
    }

    /// Tells hops from arrivals at hosts. Returns how many there are of each.
    #[inline]
    fn sort_by_end(&mut self, core: &Core, head_count: usize) -> (usize, usize) {
        let (mut hop_count, mut arrival_count) = (0, 0);
        for head in &self.heads[..head_count] {
            if head.id == FRAME_NONE {
                // The link went down since.
                continue;
            }
            core.pool.prefetch_if_any(core.pool.next(head.id).id);
            self.hops[hop_count & PLACE_MASK].0 = *head;
            self.arrivals[arrival_count & PLACE_MASK] = (head.node, head.id);
            let is_hop = usize::from(head.node >= core.host_count);
            hop_count += is_hop;
            arrival_count += 1 - is_hop;
        }
        (hop_count, arrival_count)
    }

    /// Does the hops, until one sets an event within the batch, which has to have its turn. Returns when the last was.
    #[inline]
    fn do_hops(&mut self, core: &mut Core, hop_count: usize) -> u64 {
        let open_len = core.wheel.open_len();
        let (mut done, mut done_count) = (0u32, 0);
        for (head, out) in &self.hops[..hop_count] {
            core.now_ps = core.wheel.open_time_ps(head.place as usize);
            core.hop(head.link, head.id, *out);
            done |= 1 << head.place;
            done_count += 1;
            if core.wheel.open_len() != open_len {
                break;
            }
        }
        if done_count == 0 {
            return 0;
        }
        self.done_count = done_count;
        core.stats.events += done_count as u64;
        core.wheel.take_out(self.event_count, done);
        core.now_ps
    }
}

/// Fetches the first lines of a node, of the first link that leaves it, and the last frame on that.
#[inline]
fn prefetch_node(core: &Core, nodes: &[Option<Box<dyn Node>>], node: u32) {
    if let Some(nic) = nodes[node as usize].as_deref() {
        prefetch_lines::<2>(nic);
    }
    if let Some(&link) = core.net.ports(node).first() {
        prefetch(&core.tx[link as usize]);
        core.pool.prefetch_if_any(core.rx[link as usize].last);
    }
}

impl Core {
    /// Fetches the link by which a frame will leave a switch, and the last frame on it, where that can be told.
    #[inline]
    fn foresee_out(&self, switch: u32, id: FrameId) -> u32 {
        let Packet { dst_host, flow_hash, .. } = *self.pool.packet(id);
        if dst_host == HOST_UNKNOWN {
            return LINK_NONE;
        }
        let group = self.routes.group(switch as usize, dst_host);
        let Some(out) = self.switches[switch as usize].foresee(group, flow_hash) else { return LINK_NONE };
        prefetch(&self.tx[out as usize]);
        self.pool.prefetch_if_any(self.rx[out as usize].last);
        out
    }

    /// The first frame on a link, of which it is foreseen that it is this one and will leave by `out`, arrives at a
    /// switch.
    #[inline]
    fn hop(&mut self, link: u32, foreseen: FrameId, out: u32) {
        let Some((node, _, id)) = self.take_first(link) else { return };
        if id == foreseen && out != LINK_NONE {
            self.transmit(out, id, Some(link), self.now_ps);
        } else {
            self.forward(node - self.host_count, link, id);
        }
    }
}
