//! The event loop of one shard: frames over links and through switches, timers, arrivals at nodes.
//!
//! A shard owns some nodes, the near ends of the links that leave them and the far ends of the links that reach them.
//! A frame for another shard goes to its outbox and is taken over between two windows; see `parallel`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use crate::address::{AddressTable, HOST_UNKNOWN};
use crate::fabric::Delivery;
use crate::flow::{mark_ce, Headers, ECN_ECT0, ECN_ECT1};
use crate::frame::Frame;
use crate::link::{Admission, InFlight, RxLink, TxLink};
use crate::node::{Context, Node};
use crate::pool::{FrameId, Meta, Pool};
use crate::route::Routes;
use crate::rule::Verdict;
use crate::seed::{stream, Purpose};
use crate::stats::{DropCause, FabricStats};
use crate::switch::Switch;
use crate::topology::{NodeId, Port};
use crate::wheel::Wheel;

/// What an event is about; the order is the order of events of the same picosecond.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum EventKind {
    /// The head of a link's ring arrives. Entity: link.
    Head = 3,
    /// A frame that left the order of its link arrives. Entity: link; sub: its number.
    Stray = 4,
    /// A frame injected ahead of time enters. Entity: link; sub: its number.
    Inject = 5,
    /// A timer. Entity: node; sub: token.
    Timer = 6,
}

const ENTITY_BITS: u32 = 28;

fn key(kind: EventKind, entity: u32, sub: u32) -> u64 {
    debug_assert!(entity < 1 << ENTITY_BITS);
    (kind as u64) << 60 | u64::from(entity) << 32 | u64::from(sub)
}

/// Facts about the network that no event changes.
#[derive(Clone)]
pub(crate) struct Net {
    pub host_count: u32,
    /// Per node: where its ports begin in `port_links`; one more entry at the end.
    pub port_start: Vec<u32>,
    /// Egress link of every port of every node.
    pub port_links: Vec<u32>,
    pub addresses: AddressTable,
}

impl Net {
    #[inline]
    pub(crate) fn out_link(&self, node: u32, port: u16) -> u32 {
        self.ports(node)[port as usize]
    }

    pub(crate) fn port_count(&self, node: u32) -> u16 {
        self.ports(node).len() as u16
    }

    #[inline]
    fn ports(&self, node: u32) -> &[u32] {
        let range = self.port_start[node as usize] as usize..self.port_start[node as usize + 1] as usize;
        &self.port_links[range]
    }
}

/// A frame on its way to another shard.
pub(crate) struct Crossing {
    link: u32,
    arrival_ps: u64,
    epoch: u32,
    /// Its number, if it left the order of the link.
    stray: Option<u32>,
    meta: Meta,
    frame: Frame,
}

/// A shard without its nodes.
pub(crate) struct Core {
    pub shard: u16,
    pub seed: u64,
    pub now_ps: u64,
    pub net: Arc<Net>,
    pub routes: Arc<Routes>,
    pub tx: Vec<TxLink>,
    pub rx: Vec<RxLink>,
    pub switches: Vec<Switch>,
    pub pool: Pool,
    pub stats: FabricStats,
    pub deliveries: Vec<Delivery>,
    /// Frames for each other shard.
    pub outbox: Vec<Vec<Crossing>>,
    pub wheel: Wheel,
    strays: BTreeMap<(u32, u32), InFlight>,
    injected: BTreeMap<(u32, u32), Frame>,
    injected_count: u32,
    node_rngs: Vec<Option<Box<ChaCha8Rng>>>,
}

impl Core {
    pub(crate) fn new(shard: u16, shard_count: u16, seed: u64, net: Arc<Net>, routes: Arc<Routes>) -> Core {
        let host_count = net.host_count as usize;
        Core {
            shard,
            seed,
            now_ps: 0,
            net,
            routes,
            tx: Vec::new(),
            rx: Vec::new(),
            switches: Vec::new(),
            pool: Pool::default(),
            stats: FabricStats::default(),
            deliveries: Vec::new(),
            outbox: (0..shard_count).map(|_| Vec::new()).collect(),
            wheel: Wheel::new(),
            strays: BTreeMap::new(),
            injected: BTreeMap::new(),
            injected_count: 0,
            node_rngs: (0..host_count).map(|_| None).collect(),
        }
    }

    pub(crate) fn node_rng(&mut self, node: u32) -> &mut ChaCha8Rng {
        let seed = self.seed;
        self.node_rngs[node as usize].get_or_insert_with(|| Box::new(stream(seed, Purpose::Node, node, 0)))
    }

    pub(crate) fn set_timer(&mut self, node: u32, at_ps: u64, token: u32) {
        self.wheel.push(at_ps.max(self.now_ps), key(EventKind::Timer, node, token));
    }

    /// Keeps a frame until `at_ps`, when it enters the fabric on this link.
    pub(crate) fn inject_later(&mut self, link: u32, at_ps: u64, frame: Frame) {
        self.injected.insert((link, self.injected_count), frame);
        self.wheel.push(at_ps, key(EventKind::Inject, link, self.injected_count));
        self.injected_count = self.injected_count.wrapping_add(1);
    }

    /// Frames that wait to be injected are not in the fabric yet.
    pub(crate) fn in_flight_count(&self) -> u64 {
        self.pool.in_flight_count() as u64
    }

    /// A frame enters the fabric from a host.
    pub(crate) fn enter(&mut self, link: u32, frame: Frame, now_ps: u64) {
        let mut meta = Meta { dst_host: HOST_UNKNOWN, wire_bytes: frame.wire_bytes(), ..Meta::default() };
        if let Some(headers) = Headers::parse(&frame) {
            meta.flow_hash = headers.flow_hash();
            meta.dst_host = self.net.addresses.destination(&headers);
            if let Some(ip) = headers.ip {
                meta.ip_offset_bytes = ip.offset_bytes;
                meta.is_markable = ip.ecn == ECN_ECT0 || ip.ecn == ECN_ECT1;
            }
        }
        self.stats.sent += 1;
        let id = self.pool.insert(meta, frame);
        self.transmit(link, id, now_ps);
    }

    /// Offers a frame to the queue of a link.
    #[inline]
    fn transmit(&mut self, link: u32, id: FrameId, now_ps: u64) {
        let tx = &mut self.tx[link as usize];
        if tx.is_down {
            return self.lose(link, id, DropCause::LinkDown);
        }
        let meta = self.pool.meta_mut(id);
        match tx.admit(now_ps, meta.wire_bytes, meta.is_markable) {
            Admission::Full => self.lose(link, id, DropCause::BufferFull),
            Admission::Accepted { departure_ps, is_marked } => {
                if is_marked {
                    self.mark(link, id);
                }
                self.depart(link, id, departure_ps);
            }
        }
    }

    fn mark(&mut self, link: u32, id: FrameId) {
        let meta = self.pool.meta_mut(id);
        meta.is_markable = false;
        let offset = meta.ip_offset_bytes as usize;
        mark_ce(self.pool.frame_mut(id), offset);
        self.tx[link as usize].stats.ecn_marked += 1;
        self.stats.ecn_marked += 1;
    }

    fn lose(&mut self, link: u32, id: FrameId, cause: DropCause) {
        self.tx[link as usize].stats.drops.add(cause, 1);
        self.stats.drops.add(cause, 1);
        self.pool.discard(id);
    }

    /// The last bit of a frame leaves a queue at `departure_ps`.
    #[inline]
    fn depart(&mut self, link: u32, id: FrameId, departure_ps: u64) {
        self.stats.link_hops += 1;
        let tx = &mut self.tx[link as usize];
        let arrival_ps = departure_ps + tx.delay_ps;
        if tx.extra.is_some() {
            return self.depart_by_rules(link, id, departure_ps, arrival_ps);
        }
        self.fly(link, id, arrival_ps);
    }

    fn depart_by_rules(&mut self, link: u32, id: FrameId, departure_ps: u64, arrival_ps: u64) {
        let extra = self.tx[link as usize].extra_mut();
        let frame = self.pool.frame_mut(id);
        if let Some(capture) = &mut extra.capture {
            capture.record(departure_ps, frame);
        }
        let (mut verdict, mut cause) = (Verdict::Pass, DropCause::Custom);
        for rule in &mut extra.rules {
            (verdict, cause) = rule.verdict(frame, departure_ps);
            if verdict != Verdict::Pass {
                break;
            }
        }
        match verdict {
            Verdict::Pass => self.fly(link, id, arrival_ps),
            Verdict::Drop => self.lose(link, id, cause),
            Verdict::FailFcs => self.lose(link, id, DropCause::FcsError),
            Verdict::FlipBit(bit) => {
                frame.flip_bit(bit);
                self.fly(link, id, arrival_ps);
            }
            Verdict::Duplicate { delay_ps } => {
                let (meta, copy) = (*self.pool.meta(id), self.pool.frame(id).clone());
                let copy = self.pool.insert(meta, copy);
                self.stats.duplicated += 1;
                self.fly(link, id, arrival_ps);
                self.stray(link, copy, arrival_ps + delay_ps);
            }
            Verdict::Delay { delay_ps } => self.stray(link, id, arrival_ps + delay_ps),
        }
    }

    /// Puts a frame on the line, to arrive after those before it.
    #[inline]
    fn fly(&mut self, link: u32, id: FrameId, arrival_ps: u64) {
        let tx = &self.tx[link as usize];
        if tx.to_shard != self.shard {
            return self.cross(link, id, arrival_ps, None);
        }
        self.push_ring(link, InFlight { arrival_ps, frame: id });
    }

    #[inline]
    fn push_ring(&mut self, link: u32, entry: InFlight) {
        let ring = &mut self.rx[link as usize].ring;
        if ring.is_empty() {
            self.wheel.push(entry.arrival_ps, key(EventKind::Head, link, 0));
        }
        ring.push_back(entry);
    }

    /// Puts a frame on the line, to arrive on its own.
    fn stray(&mut self, link: u32, id: FrameId, arrival_ps: u64) {
        let extra = self.tx[link as usize].extra_mut();
        let number = extra.stray_number;
        extra.stray_number = number.wrapping_add(1);
        if self.tx[link as usize].to_shard != self.shard {
            return self.cross(link, id, arrival_ps, Some(number));
        }
        self.push_stray(link, number, InFlight { arrival_ps, frame: id });
    }

    fn push_stray(&mut self, link: u32, number: u32, entry: InFlight) {
        self.wheel.push(entry.arrival_ps, key(EventKind::Stray, link, number));
        self.strays.insert((link, number), entry);
    }

    fn cross(&mut self, link: u32, id: FrameId, arrival_ps: u64, stray: Option<u32>) {
        let (meta, frame) = self.pool.remove(id);
        let tx = &self.tx[link as usize];
        let crossing = Crossing { link, arrival_ps, epoch: tx.epoch, stray, meta, frame };
        self.outbox[tx.to_shard as usize].push(crossing);
    }

    /// Takes over a frame from another shard. One that was sent before its link went down is lost here.
    pub(crate) fn take_over(&mut self, crossing: Crossing) {
        let Crossing { link, arrival_ps, epoch, stray, meta, frame } = crossing;
        let id = self.pool.insert(meta, frame);
        if epoch != self.rx[link as usize].epoch {
            return self.lose(link, id, DropCause::LinkDown);
        }
        let entry = InFlight { arrival_ps, frame: id };
        match stray {
            Some(number) => self.push_stray(link, number, entry),
            None => self.push_ring(link, entry),
        }
    }

    /// The head of a link's ring, if it is due now; then the next one gets the event. An event may find nothing due
    /// when the link went down after it was set.
    #[inline]
    fn take_head(&mut self, link: u32) -> Option<FrameId> {
        let ring = &mut self.rx[link as usize].ring;
        let head = *ring.front()?;
        if head.arrival_ps != self.now_ps {
            return None;
        }
        ring.pop_front();
        if let Some(next) = ring.front() {
            self.wheel.push(next.arrival_ps, key(EventKind::Head, link, 0));
        }
        Some(head.frame)
    }

    /// A frame reaches the far end of a link: a switch sends it on, a host gets it.
    #[inline]
    fn arrive(&mut self, link: u32, id: FrameId) -> Option<Delivery> {
        let rx = &mut self.rx[link as usize];
        if let Some(capture) = &mut rx.capture {
            capture.record(self.now_ps, self.pool.frame(id));
        }
        let (node, port) = (rx.node, rx.port);
        if node >= self.net.host_count {
            self.forward(node - self.net.host_count, link, id);
            return None;
        }
        let (_, frame) = self.pool.remove(id);
        self.stats.delivered += 1;
        self.stats.delivered_bytes += frame.len_bytes() as u64;
        Some(Delivery { time_ps: self.now_ps, port: Port { node: NodeId(node), index: port }, frame })
    }

    #[inline]
    fn forward(&mut self, switch: u32, from: u32, id: FrameId) {
        let meta = self.pool.meta_mut(id);
        meta.ingress_link = from;
        let (dst_host, flow_hash) = (meta.dst_host, meta.flow_hash);
        if dst_host == HOST_UNKNOWN {
            return self.lose(from, id, DropCause::UnknownDestination);
        }
        let group = self.routes.group(switch as usize, dst_host);
        if group.is_empty() {
            return self.lose(from, id, DropCause::NoRoute);
        }
        let out = self.switches[switch as usize].ecmp(group, flow_hash);
        self.transmit(out, id, self.now_ps);
    }
}

/// A shard: its state and its nodes.
pub(crate) struct Shard {
    pub core: Core,
    /// Per host: its node, if it has one here. Others are outside and get their frames as deliveries.
    pub nodes: Vec<Option<Box<dyn Node>>>,
}

impl Shard {
    /// Processes every event up to and including `until_ps`.
    pub(crate) fn run_until(&mut self, until_ps: u64) {
        while let Some((time_ps, key)) = self.core.wheel.pop_until(until_ps) {
            self.core.now_ps = time_ps;
            self.core.stats.events += 1;
            self.dispatch(key);
        }
        self.core.now_ps = self.core.now_ps.max(until_ps);
    }

    fn dispatch(&mut self, key: u64) {
        const HEAD: u64 = EventKind::Head as u64;
        const STRAY: u64 = EventKind::Stray as u64;
        const INJECT: u64 = EventKind::Inject as u64;
        const TIMER: u64 = EventKind::Timer as u64;
        let core = &mut self.core;
        let entity = (key >> 32) as u32 & ((1 << ENTITY_BITS) - 1);
        let sub = key as u32;
        let arrived = match key >> 60 {
            HEAD => core.take_head(entity),
            STRAY => core.strays.remove(&(entity, sub)).map(|entry| entry.frame),
            INJECT => {
                if let Some(frame) = core.injected.remove(&(entity, sub)) {
                    core.enter(entity, frame, core.now_ps);
                }
                None
            }
            TIMER => {
                self.call(entity, |node, ctx| node.on_timer(ctx, sub));
                None
            }
            kind => unreachable!("event kind {kind}"),
        };
        if let Some(delivery) = arrived.and_then(|id| self.core.arrive(entity, id)) {
            self.deliver(delivery);
        }
    }

    #[inline]
    fn deliver(&mut self, delivery: Delivery) {
        let Port { node, index } = delivery.port;
        match &mut self.nodes[node.0 as usize] {
            Some(nic) => {
                let mut ctx = Context { core: &mut self.core, node: node.0 };
                nic.on_frame(&mut ctx, index, delivery.frame);
            }
            None => self.core.deliveries.push(delivery),
        }
    }

    /// Calls a node, if there is one.
    pub(crate) fn call<R>(&mut self, node: u32, f: impl FnOnce(&mut dyn Node, &mut Context<'_>) -> R) -> Option<R> {
        let nic = self.nodes[node as usize].as_mut()?;
        Some(f(nic.as_mut(), &mut Context { core: &mut self.core, node }))
    }
}

/// An empty far end.
pub(crate) fn rx_link(node: u32, port: u16) -> RxLink {
    RxLink { ring: VecDeque::new(), node, port, epoch: 0, capture: None }
}
