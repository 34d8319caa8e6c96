//! What happens to frames in one shard: over links, through queues and switches, to the ports of nodes.
//!
//! A shard owns some nodes, the near ends of the links that leave them and the far ends of the links that reach them.
//! What goes to another shard is put into its outbox and taken over between two windows; see `parallel`.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use crate::address::{AddressTable, HOST_UNKNOWN};
use crate::agenda::Agenda;
use crate::fabric::Delivery;
use crate::flight::{Flight, Packet};
use crate::flow::{Headers, Udp4, ECN_CE, ECN_ECT0, ECN_ECT1};
use crate::frame::Frame;
use crate::link::{Admission, RxLink, TxLink};
use crate::route::Routes;
use crate::rule::Verdict;
use crate::seed::{stream, Purpose};
use crate::stats::{DropCause, FabricStats};
use crate::switch::Switch;
use crate::topology::Topology;

/// What an event is about; the order is the order of events of the same picosecond.
pub(crate) mod event {
    /// A cable goes down (sub 0) or comes back (sub 1). Entity: cable.
    pub const CABLE: u64 = 0;
    /// New forwarding tables come into force.
    pub const REROUTE: u64 = 1;
    /// The far end lets a link go on or pauses it. Entity: link; sub: see [`PauseRequest`](super::PauseRequest).
    pub const PAUSE: u64 = 2;
    /// The frame on the line of a link with classes has left. Entity: link.
    pub const SENT: u64 = 3;
    /// A frame on a link arrives; it waits there and has no event in the agenda. Entity: link.
    pub const HEAD: u64 = 4;
    /// A frame that left the order of its link arrives. Entity: link; sub: its number.
    pub const STRAY: u64 = 5;
    /// A frame injected ahead of time enters. Entity: link; sub: its number.
    pub const INJECT: u64 = 6;
    /// A timer. Entity: node; sub: token.
    pub const TIMER: u64 = 7;
}

const ENTITY_BITS: u32 = 28;

/// Most links and nodes a fabric can number.
pub(crate) const ENTITY_COUNT_MAX: u32 = 1 << ENTITY_BITS;

pub(crate) fn key(kind: u64, entity: u32, sub: u32) -> u64 {
    kind << 60 | u64::from(entity) << 32 | u64::from(sub)
}

/// Kind, entity and sub of a key.
#[inline]
pub(crate) fn split_key(key: u64) -> (u64, u32, u32) {
    (key >> 60, (key >> 32) as u32 & (ENTITY_COUNT_MAX - 1), key as u32)
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
    /// The graph, for new forwarding tables.
    pub topology: Arc<Topology>,
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
    pub(crate) fn ports(&self, node: u32) -> &[u32] {
        let range = self.port_start[node as usize] as usize..self.port_start[node as usize + 1] as usize;
        &self.port_links[range]
    }
}

/// What goes to another shard.
pub(crate) enum Crossing {
    /// A frame on a link.
    Frame {
        link: u32,
        epoch: u32,
        /// Its number, if it left the order of the link.
        stray: Option<u32>,
        flight: Flight,
    },
    /// A request of the far end to the near one.
    Pause { link: u32, at_ps: u64, request: PauseRequest },
}

/// What the far end of a link asks of the near one: the link's epoch, above a bit that is set if it must pause. So of
/// requests of the same picosecond that to pause comes last, as it does at the far end: what leaves a switch comes
/// before what arrives there.
#[derive(Clone, Copy)]
pub(crate) struct PauseRequest(pub u32);

impl PauseRequest {
    pub(crate) fn new(epoch: u32, may_go_on: bool) -> PauseRequest {
        PauseRequest(epoch << 1 | u32::from(!may_go_on))
    }

    /// Whether the link may go on; `None` if the cable has failed since the request was made, and it was lost.
    pub(crate) fn may_go_on(self, epoch: u32) -> Option<bool> {
        (self.0 >> 1 == epoch & (u32::MAX >> 1)).then_some(self.0 & 1 == 0)
    }
}

impl Crossing {
    pub(crate) fn is_frame(&self) -> bool {
        matches!(self, Crossing::Frame { .. })
    }
}

/// A shard without its nodes.
pub(crate) struct Core {
    pub shard: u16,
    pub seed: u64,
    pub now_ps: u64,
    /// As in `net`: nodes below this are hosts, the others switches.
    pub host_count: u32,
    pub net: Arc<Net>,
    pub routes: Arc<Routes>,
    pub tx: Vec<TxLink>,
    pub rx: Vec<RxLink>,
    pub switches: Vec<Switch>,
    pub stats: FabricStats,
    pub deliveries: Vec<Delivery>,
    /// For each other shard.
    pub outbox: Vec<Vec<Crossing>>,
    pub agenda: Agenda,
    /// Per cable: outages that are in force.
    pub outages: Vec<u32>,
    pub strays: BTreeMap<(u32, u32), Flight>,
    injected: BTreeMap<(u32, u32), Frame>,
    injected_count: u32,
    node_rngs: Vec<Option<Box<ChaCha8Rng>>>,
}

impl Core {
    pub(crate) fn new(shard: u16, shard_count: u16, seed: u64, net: Arc<Net>, routes: Arc<Routes>) -> Core {
        let host_count = net.host_count as usize;
        let cable_count = net.topology.cables.len();
        Core {
            shard,
            seed,
            now_ps: 0,
            host_count: net.host_count,
            routes,
            tx: Vec::new(),
            rx: Vec::new(),
            switches: Vec::new(),
            stats: FabricStats::default(),
            deliveries: Vec::new(),
            outbox: (0..shard_count).map(|_| Vec::new()).collect(),
            agenda: Agenda::new(net.port_start.len() - 1),
            outages: vec![0; cable_count],
            strays: BTreeMap::new(),
            injected: BTreeMap::new(),
            injected_count: 0,
            node_rngs: (0..host_count).map(|_| None).collect(),
            net,
        }
    }

    pub(crate) fn node_rng(&mut self, node: u32) -> &mut ChaCha8Rng {
        let seed = self.seed;
        self.node_rngs[node as usize].get_or_insert_with(|| Box::new(stream(seed, Purpose::Node, node, 0)))
    }

    pub(crate) fn set_timer(&mut self, node: u32, at_ps: u64, token: u32) {
        self.agenda.push(node, at_ps.max(self.now_ps), key(event::TIMER, node, token));
    }

    /// Keeps a frame until `at_ps`, when it enters the fabric on this link.
    pub(crate) fn inject_later(&mut self, link: u32, at_ps: u64, frame: Frame) {
        self.injected.insert((link, self.injected_count), frame);
        self.agenda.push(self.near_node(link), at_ps, key(event::INJECT, link, self.injected_count));
        self.injected_count = self.injected_count.wrapping_add(1);
    }

    /// A frame kept until now enters.
    pub(crate) fn enter_injected(&mut self, link: u32, number: u32) {
        if let Some(frame) = self.injected.remove(&(link, number)) {
            self.enter(link, frame, self.now_ps);
        }
    }

    /// Node where a link begins.
    #[inline]
    pub(crate) fn near_node(&self, link: u32) -> u32 {
        // The near end of a link is the far end of its opposite.
        self.rx[(link ^ 1) as usize].node
    }

    /// Frames here, in queues, on lines, and on their way to other shards.
    pub(crate) fn in_flight_count(&self) -> u64 {
        let crossing = self.outbox.iter().flatten().filter(|crossing| crossing.is_frame()).count();
        let on_lines: usize = self.rx.iter().map(|rx| rx.line.len()).sum();
        let waiting: usize = self.tx.iter().filter_map(|tx| tx.queue.as_ref()).map(|queue| queue.len()).sum();
        (crossing + on_lines + waiting + self.strays.len()) as u64
    }

    /// A frame enters the fabric from a host.
    #[inline]
    pub(crate) fn enter(&mut self, link: u32, frame: Frame, now_ps: u64) {
        let packet = self.admit(&frame);
        self.transmit(link, packet, frame, None, now_ps);
    }

    /// A frame enters on a cable of which the driver knows that it was down.
    pub(crate) fn enter_down(&mut self, link: u32, frame: Frame) {
        self.admit(&frame);
        self.lose(link, frame, DropCause::LinkDown);
    }

    #[inline]
    fn admit(&mut self, frame: &Frame) -> Packet {
        self.stats.sent += 1;
        if let Some(udp) = Udp4::parse(frame.header()) {
            let dst_host = self.net.addresses.host_of_ipv4(udp.dst);
            if dst_host != HOST_UNKNOWN {
                let packet = Packet::new(frame.wire_bytes() as u16, (udp.flow_hash() >> 32) as u32, dst_host);
                return self.classify(packet, Udp4::IP_OFFSET_BYTES, udp.tos);
            }
        }
        self.admit_other(frame)
    }

    #[inline]
    fn classify(&self, packet: Packet, ip_offset_bytes: u8, tos: u8) -> Packet {
        let (dscp, ecn) = (tos >> 2, tos & ECN_CE);
        let is_control = self.net.topology.control_dscps >> dscp & 1 == 1;
        packet.with_ip(ip_offset_bytes, ecn == ECN_ECT0 || ecn == ECN_ECT1, is_control)
    }

    /// What the quick way does not know: other protocols, VLAN tags, destinations by MAC address.
    #[inline(never)]
    fn admit_other(&self, frame: &Frame) -> Packet {
        let wire_bytes = frame.wire_bytes() as u16;
        let Some(headers) = Headers::parse(frame) else { return Packet::new(wire_bytes, 0, HOST_UNKNOWN) };
        let flow_hash = (headers.flow_hash() >> 32) as u32;
        let packet = Packet::new(wire_bytes, flow_hash, self.net.addresses.destination(&headers));
        match headers.ip {
            Some(ip) => self.classify(packet, ip.offset_bytes, ip.dscp << 2 | ip.ecn),
            None => packet,
        }
    }

    /// Offers a frame that came in by link `from` to the queue of a link. Inlined, so that its parts stay in registers from
    /// one line to the next.
    #[inline(always)]
    pub(crate) fn transmit(&mut self, link: u32, mut packet: Packet, frame: Frame, from: Option<u32>, now_ps: u64) {
        let tx = &mut self.tx[link as usize];
        if !tx.is_plain {
            return self.transmit_other(link, Flight::new(packet, frame), from, now_ps);
        }
        match tx.admit(now_ps, packet.wire_bytes(), packet.is_markable()) {
            Admission::Full => self.lose(link, frame, DropCause::BufferFull),
            Admission::Accepted { departure_ps, is_marked } => {
                let arrival_ps = departure_ps + tx.delay_ps;
                if is_marked {
                    self.mark(link, &mut packet);
                }
                self.stats.link_hops += 1;
                self.queue_up(link, arrival_ps, packet, frame);
            }
        }
    }

    /// The same on a link that is down, has classes or rules, or leads to another shard.
    #[inline(never)]
    fn transmit_other(&mut self, link: u32, mut flight: Flight, from: Option<u32>, now_ps: u64) {
        let tx = &mut self.tx[link as usize];
        if tx.is_down() {
            return self.lose(link, flight.take_frame(), DropCause::LinkDown);
        }
        if tx.queue.is_some() {
            return self.enqueue(link, flight, from, now_ps);
        }
        let packet = &mut flight.packet;
        match tx.admit(now_ps, packet.wire_bytes(), packet.is_markable()) {
            Admission::Full => self.lose(link, flight.take_frame(), DropCause::BufferFull),
            Admission::Accepted { departure_ps, is_marked } => {
                if is_marked {
                    self.mark(link, packet);
                }
                self.depart(link, flight, departure_ps);
            }
        }
    }

    #[inline]
    pub(crate) fn mark(&mut self, link: u32, packet: &mut Packet) {
        packet.mark();
        self.tx[link as usize].stats.ecn_marked += 1;
        self.stats.ecn_marked += 1;
    }

    /// Counts a frame as lost on a link; it ends here.
    #[cold]
    pub(crate) fn lose(&mut self, link: u32, _lost: Frame, cause: DropCause) {
        self.tx[link as usize].stats.drops.add(cause, 1);
        self.stats.drops.add(cause, 1);
    }

    /// The last bit of a frame leaves a queue at `departure_ps`.
    pub(crate) fn depart(&mut self, link: u32, mut flight: Flight, departure_ps: u64) {
        self.stats.link_hops += 1;
        let tx = &mut self.tx[link as usize];
        flight.arrival_ps = departure_ps + tx.delay_ps;
        if tx.extra.is_some() {
            return self.depart_by_rules(link, flight, departure_ps);
        }
        self.fly(link, flight);
    }

    fn depart_by_rules(&mut self, link: u32, mut flight: Flight, departure_ps: u64) {
        let extra = self.tx[link as usize].extra_mut();
        let frame = flight.frame_mut();
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
            Verdict::Pass => self.fly(link, flight),
            Verdict::Drop => self.lose(link, flight.take_frame(), cause),
            Verdict::FailFcs => self.lose(link, flight.take_frame(), DropCause::FcsError),
            Verdict::FlipBit(bit) => {
                frame.flip_bit(bit);
                self.fly(link, flight);
            }
            Verdict::Duplicate { delay_ps } => {
                let mut copy = Flight::new(flight.packet, flight.sent_frame().clone());
                copy.arrival_ps = flight.arrival_ps.saturating_add(delay_ps);
                self.stats.duplicated += 1;
                self.fly(link, flight);
                self.stray(link, copy);
            }
            Verdict::Delay { delay_ps } => {
                flight.arrival_ps = flight.arrival_ps.saturating_add(delay_ps);
                self.stray(link, flight);
            }
        }
    }

    /// Puts a frame on the line, to arrive after those before it.
    fn fly(&mut self, link: u32, flight: Flight) {
        if self.tx[link as usize].to_shard != self.shard {
            return self.cross(link, flight, None);
        }
        let arrival_ps = flight.arrival_ps;
        let (packet, frame) = flight.into_parts();
        self.queue_up(link, arrival_ps, packet, frame);
    }

    #[inline(always)]
    fn queue_up(&mut self, link: u32, arrival_ps: u64, packet: Packet, frame: Frame) {
        let rx = &mut self.rx[link as usize];
        if rx.line.len() == 0 {
            self.agenda.expect(rx.node, arrival_ps);
        }
        rx.line.push(arrival_ps, packet, frame);
    }

    /// Puts a frame on the line, to arrive on its own.
    fn stray(&mut self, link: u32, flight: Flight) {
        let extra = self.tx[link as usize].extra_mut();
        let number = extra.stray_number;
        extra.stray_number = number.wrapping_add(1);
        if self.tx[link as usize].to_shard != self.shard {
            return self.cross(link, flight, Some(number));
        }
        self.push_stray(link, number, flight);
    }

    fn push_stray(&mut self, link: u32, number: u32, flight: Flight) {
        let node = self.rx[link as usize].node;
        self.agenda.push(node, flight.arrival_ps, key(event::STRAY, link, number));
        self.strays.insert((link, number), flight);
    }

    fn cross(&mut self, link: u32, flight: Flight, stray: Option<u32>) {
        let tx = &self.tx[link as usize];
        let crossing = Crossing::Frame { link, epoch: tx.epoch, stray, flight };
        self.outbox[tx.to_shard as usize].push(crossing);
    }

    /// Takes over what another shard sent. A frame sent before its link went down is lost here.
    pub(crate) fn take_over(&mut self, crossing: Crossing) {
        match crossing {
            Crossing::Pause { link, at_ps, request } => self.expect_pause(link, at_ps, request),
            Crossing::Frame { link, epoch, stray, mut flight } => {
                if epoch != self.rx[link as usize].epoch {
                    return self.lose(link, flight.take_frame(), DropCause::LinkDown);
                }
                match stray {
                    Some(number) => self.push_stray(link, number, flight),
                    None => {
                        let arrival_ps = flight.arrival_ps;
                        let (packet, frame) = flight.into_parts();
                        self.queue_up(link, arrival_ps, packet, frame);
                    }
                }
            }
        }
    }

    /// The far end's request to pause a link, or to let it go on, will reach the near end.
    pub(crate) fn expect_pause(&mut self, link: u32, at_ps: u64, request: PauseRequest) {
        self.agenda.push(self.near_node(link), at_ps, key(event::PAUSE, link, request.0));
    }

    /// Takes the first frame off a link, at its time.
    #[inline(always)]
    pub(crate) fn take_first(&mut self, link: u32, arrival_ps: u64) -> Option<(Packet, Frame)> {
        self.now_ps = arrival_ps;
        self.stats.events += 1;
        let rx = &mut self.rx[link as usize];
        if rx.capture.is_some() {
            return self.take_first_captured(link);
        }
        rx.line.pop()
    }

    #[cold]
    fn take_first_captured(&mut self, link: u32) -> Option<(Packet, Frame)> {
        let (packet, frame) = self.rx[link as usize].line.pop()?;
        let mut flight = Flight::new(packet, frame);
        self.record_arrival(link, &mut flight);
        Some(flight.into_parts())
    }

    /// Takes a frame that left the order of its link, unless the link went down since.
    pub(crate) fn take_stray(&mut self, link: u32, number: u32) -> Option<Flight> {
        self.strays.remove(&(link, number))
    }

    #[cold]
    pub(crate) fn record_arrival(&mut self, link: u32, flight: &mut Flight) {
        if let Some(capture) = &mut self.rx[link as usize].capture {
            capture.record(self.now_ps, flight.frame_mut());
        }
    }

    /// A frame that came in by link `from` is at a switch.
    #[inline(always)]
    pub(crate) fn forward(&mut self, switch: u32, from: u32, packet: Packet, frame: Frame) {
        if packet.dst_host() == HOST_UNKNOWN {
            return self.lose(from, frame, DropCause::UnknownDestination);
        }
        let group = self.routes.group(switch as usize, packet.dst_host());
        let Some(out) = self.switches[switch as usize].choose(group, packet.flow_hash(), &self.tx, self.now_ps) else {
            return self.lose(from, frame, DropCause::NoRoute);
        };
        self.transmit(out, packet, frame, Some(from), self.now_ps);
    }

    /// The same for one that left the order of its link.
    pub(crate) fn forward_stray(&mut self, switch: u32, from: u32, packet: Packet, frame: Frame) {
        self.forward(switch, from, packet, frame);
    }
}
