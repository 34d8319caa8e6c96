//! Draws hosts, memory and connections; see [`crate::plan`] for the rules and [`crate::messages`] for what they carry.

use std::sync::Arc;

use nic_fabric::NodeId;
use nic_model::conn_config::{ConnConfig, StreamConfig};
use nic_model::mr::Mr;
use nic_model::transport::cc::Delay;
use nic_model::work::{CqeOp, Local, SendOp};
use nic_node::connect::{nic_config, Connector};
use nic_spec::consts::SACK_BITS;
use nic_spec::desc::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use nic_spec::num::{Msn, Pd, Pkey, Psn, Qpn, Rkey, Rsn};

use crate::acts::Doom;
use crate::draw::Draw;
use crate::faults::Faults;
use crate::memory::{GuardedMemory, Region, BASE};
use crate::network::Network;
use crate::plan::{Begin, ConnPlan, Counter, Fate, HostPlan, Lane, Plan, Queue, Request};
use crate::run::Cut;
use crate::tuning::{draw_card, draw_transport};

pub(crate) const US: u64 = 1_000_000;
/// Access rights of nearly every region: all.
pub(crate) const ACCESS_ALL: u8 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;
/// Purposes of a seed's streams of chance from here on are connections.
const PURPOSE_CONNECTION: u64 = 16;
/// And from here on what is done to them from outside.
const PURPOSE_ACTS: u64 = 1 << 20;
/// First row for connections that a side asks for; rows before it are agreed on or granted.
const ASKED_ROW: u32 = 2048;

/// Draws what a run does on a network, without what is cut.
pub(crate) fn draw_plan(seed: u64, network: &Network, faults: &Faults, cut: &Cut) -> Plan {
    let mut traffic = Traffic::new(Draw::new(seed, 2), network, faults, cut);
    let conn_count = traffic.draw.magnitude(1, 8);
    // All to one host, or any to any.
    let is_incast = traffic.draw.percent(25);
    for number in 0..conn_count {
        if cut.has_connection(number) {
            // Each has its own stream of chance, so that it stays what it is when others are cut.
            traffic.draw = Draw::new(seed, PURPOSE_CONNECTION + number);
            traffic.outside = Draw::new(seed, PURPOSE_ACTS + number);
            traffic.add_connections(number, is_incast, network, faults);
        }
    }
    traffic.outside = Draw::new(seed, PURPOSE_ACTS - 1);
    traffic.fill_tables();
    traffic.add_churn(faults);
    traffic.plan.seal();
    let (plan, mut text) = (&traffic.plan, format!("{conn_count} connections"));
    let asked = plan.hosts.iter().flat_map(|host| &host.conns).filter(|conn| matches!(conn.begin, Begin::Asks { .. }));
    text +=
        &format!(", {} asked for in band, {} of them doomed, {} bytes", asked.count(), plan.doomed_conns, plan.bytes);
    traffic.plan.text = text;
    traffic.plan
}

pub(crate) struct Traffic {
    pub(crate) draw: Draw,
    /// For what is done to connections; what they carry does not depend on it.
    pub(crate) outside: Draw,
    connector: Connector,
    pub(crate) plan: Plan,
    /// How likely each kind of message is in this run.
    pub(crate) weights: [u64; 8],
    pub(crate) len_max: u64,
    /// Messages of one direction of a stream, at most.
    pub(crate) messages_max: u64,
}

/// One side of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) host: usize,
    /// Index of the connection there.
    pub(crate) conn: usize,
    /// Row of the region that covers all its memory, and its key.
    pub(crate) rkey: Rkey,
    /// Address in the region's space, less the bus address.
    pub(crate) va_less_iova: u64,
}

/// One direction of a stream.
pub(crate) struct Direction {
    pub(crate) here: Side,
    pub(crate) there: Side,
    pub(crate) stream: u16,
    pub(crate) is_unordered: bool,
    pub(crate) send_lane: usize,
    pub(crate) recv_lane: usize,
    pub(crate) send_queue: usize,
    pub(crate) recv_queue: usize,
    /// The connection fails, so what is written may be cut off.
    pub(crate) is_doomed: bool,
    /// Every request gives a completion: the host waits for all of them before it ends the connection.
    pub(crate) is_all_signaled: bool,
    /// What earlier messages of it wrote at the far side and nothing writes again.
    pub(crate) written: Vec<Region>,
    pub(crate) now_ps: u64,
}

/// A message to be added.
pub(crate) struct Draft {
    pub(crate) op: SendOp,
    pub(crate) local: Local,
    pub(crate) len: u32,
    pub(crate) fence: bool,
    /// What local memory holds when it is complete.
    pub(crate) content: Option<(u64, Arc<[u8]>)>,
}

impl Traffic {
    fn new(mut draw: Draw, network: &Network, faults: &Faults, cut: &Cut) -> Traffic {
        let mut weights = [1; 8];
        for weight in &mut weights {
            *weight = *draw.pick(&[0, 1, 1, 2, 5]);
        }
        // There is always something that can be drawn.
        weights[0] += 1;
        let hosts = (0..network.topology.hosts.len() as u32).map(|host| {
            let mut nic = nic_config(&network.topology, host);
            draw_card(&mut draw, &mut nic);
            let stall_count = if draw.percent(30) { draw.between(1, 3) } else { 0 };
            let mut stall = |_| {
                let from = draw.below(faults.end_ps);
                from..from + draw.magnitude(US, 4_000 * US)
            };
            let stalls = (0..stall_count).map(&mut stall).collect();
            HostPlan {
                nic,
                // Clocks do not agree, and wrap at any moment.
                clock_ps: if draw.percent(40) { 0 } else { (1 << 32) * 4_000 - draw.magnitude(1, 20_000 * US) },
                tag_percent: if draw.percent(20) { draw.between(1, 100) } else { 0 },
                memory: GuardedMemory::new(),
                image: Vec::new(),
                open_ranges: Vec::new(),
                loose_ranges: Vec::new(),
                used_rows: Vec::new(),
                mrs: Vec::new(),
                conns: Vec::new(),
                fates: Vec::new(),
                lanes: Vec::new(),
                expected: Vec::new(),
                queues: Vec::new(),
                acts: Vec::new(),
                tx_messages: 0,
                rx_messages: 0,
                stalls,
                poll_every_ps: if draw.percent(50) { 0 } else { draw.magnitude(100_000, 50 * US) },
                cq_count: draw.between(1, 4) as u32,
            }
        });
        let hosts: Vec<HostPlan> = hosts.collect();
        let len_max = if draw.percent(10) { 1 << 20 } else { draw.magnitude(64, 256 << 10) };
        let connector = Connector::new(&network.topology);
        let plan = Plan {
            hosts,
            counters: Vec::new(),
            doomed_conns: 0,
            ended_conns: 0,
            has_closings: false,
            has_even_windows: true,
            bytes: 0,
            end_ps: 0,
            text: String::new(),
        };
        let outside = draw.clone();
        let mut traffic = Traffic { draw, outside, connector, plan, weights, len_max, messages_max: cut.messages_max };
        for _ in 0..2 {
            traffic.add_counter();
        }
        traffic
    }

    fn add_counter(&mut self) {
        let host = self.draw.below(self.plan.hosts.len() as u64) as usize;
        let cell = self.add_region(host, 8, 8, true);
        let first = u64::from_le_bytes(self.image(host, cell).try_into().expect("8 bytes"));
        self.open(host, cell);
        self.plan.counters.push(Counter { host: host as u32, iova: cell.iova, first, adds: Vec::new() });
    }

    // Memory.

    pub(crate) fn add_region(&mut self, host: usize, len: u64, align: u64, is_target: bool) -> Region {
        let plan = &mut self.plan.hosts[host];
        let region = plan.memory.add(&mut self.draw, len, align, is_target);
        let begun = plan.image.len();
        plan.image.extend_from_slice(&plan.memory.bytes()[begun..]);
        region
    }

    pub(crate) fn range(region: Region) -> std::ops::Range<usize> {
        (region.iova - BASE) as usize..(region.iova - BASE + region.len) as usize
    }

    /// What a region will hold after the messages so far.
    pub(crate) fn image(&self, host: usize, region: Region) -> &[u8] {
        &self.plan.hosts[host].image[Self::range(region)]
    }

    pub(crate) fn set_image(&mut self, d: &Direction, side: Side, region: Region, bytes: &[u8]) {
        let range = Self::range(region);
        let plan = &mut self.plan.hosts[side.host];
        plan.image[range.start..range.start + bytes.len()].copy_from_slice(bytes);
        if d.is_doomed {
            plan.loose_ranges.push(range);
        }
    }

    pub(crate) fn open(&mut self, host: usize, region: Region) {
        self.plan.hosts[host].open_ranges.push(Self::range(region));
    }

    pub(crate) fn add_mr(&mut self, host: usize, mr: Mr) -> Rkey {
        let mrs = &mut self.plan.hosts[host].mrs;
        mrs.push(mr);
        Rkey::new((mrs.len() as u32 - 1) << 8 | u32::from(mr.key))
    }

    // Connections.

    /// A connection, or several that have the same id one after the other.
    fn add_connections(&mut self, number: u64, is_incast: bool, network: &Network, faults: &Faults) {
        let host_count = network.topology.hosts.len() as u64;
        let a = if is_incast { 0 } else { self.draw.below(host_count) };
        let b = (a + self.draw.between(1, host_count - 1)) % host_count;
        let hosts = if self.draw.percent(50) { [a as u32, b as u32] } else { [b as u32, a as u32] };
        if !self.draw.percent(40) {
            return self.add_connection(hosts, None, network, faults);
        }
        // Often all at once, so that hosts ask each other at the same time.
        let mut at_ps = if self.draw.percent(60) { 0 } else { self.draw.below(faults.end_ps) };
        let (mut after, id) = (None, self.draw.bits() as u32);
        let generations = if self.draw.percent(60) { 1 } else { self.draw.between(2, 3) };
        for generation in 0..generations {
            let service = (number * 8 + generation) as u16;
            let is_last = generation + 1 == generations;
            // Most answers are there within some microseconds.
            let given_up_after_ps = self.draw.percent(10).then(|| self.draw.magnitude(1, 4_000 * US));
            let is_refused = given_up_after_ps.is_none() && self.draw.percent(8);
            let in_band = InBand {
                is_refused,
                service,
                at_ps,
                after,
                id: Qpn::new(id & !0xfff | ASKED_ROW | number as u32),
                ends: !is_last || given_up_after_ps.is_some() || is_refused || self.draw.percent(70),
                given_up_after_ps,
            };
            // What a connection before it has done with a region is over by then.
            after = Some(self.plan.hosts[hosts[0] as usize].conns.len());
            self.add_connection(hosts, Some(in_band), network, faults);
            at_ps = 0;
        }
    }

    fn add_connection(&mut self, hosts: [u32; 2], in_band: Option<InBand>, network: &Network, faults: &Faults) {
        let draw = &mut self.draw;
        let paths = if draw.percent(10) { draw.between(17, 64) } else { draw.between(1, 16) } as usize;
        let is_ipv6 = draw.percent(30);
        let mut configs = self
            .connector
            .connect_over(hosts.map(NodeId), paths, is_ipv6)
            .expect("hosts of the topology with few connections");
        let mut transports = [draw_transport(draw, network, faults); 2];
        if draw.percent(30) {
            transports[1] = draw_transport(draw, network, faults);
        }
        let (pmtu_log2, paths_max) = (draw.between(10, 13) as u8, draw.between(1, 64) as u16);
        let (pd, pkey) = (Pd::new(draw.below(1 << 24) as u32), Pkey::new(draw.bits() as u16 | 1));
        let (dscp, dscp_control) = (draw.below(64) as u8, draw.below(64) as u8);
        let is_delay_based = draw.percent(30);
        let weight = draw.between(1, 4) as u32;
        for (config, transport) in configs.iter_mut().zip(transports) {
            (config.transport, config.pmtu_log2, config.pd, config.pkey) = (transport, pmtu_log2, pd, pkey);
            (config.dscp, config.dscp_control, config.hint_weight) = (dscp, dscp_control, weight);
            if is_delay_based {
                config.cc = Arc::new(Delay::default());
            }
        }
        let streams = match in_band {
            None => {
                draw_paths(draw, &mut configs);
                draw_streams(draw)
            }
            Some(_) => {
                // The smaller one is what is agreed on.
                configs[1].pmtu_log2 = draw.between(10, 13) as u8;
                draw_agreement(draw, &mut configs)
            }
        };
        let is_deep = transports.iter().any(|t| t.path_init_pkts == SACK_BITS) && self.outside.percent(50);
        if is_deep {
            deepen(&mut configs);
        }
        let sides = hosts.map(|host| self.add_side(host as usize, pd));
        self.place_streams(&streams, in_band.is_some(), sides, &mut configs);
        let (side, stream) = (self.draw.below(2) as usize, self.draw.below(streams.len() as u64) as usize);
        let doom = match self.draw.weighted(&[88, 8, 4]) {
            0 => None,
            1 => Some(Doom::Bad(side, stream)),
            _ => Some(Doom::Revoked(side, stream)),
        }
        .filter(|_| in_band.is_none_or(|in_band| !in_band.ends));
        let is_spared = doom.is_some() || in_band.is_some_and(|in_band| in_band.ends);
        let doom = doom.or_else(|| self.draw_loss_of_memory(side, stream).filter(|_| !is_spared));
        self.plan.doomed_conns += u64::from(doom.is_some());
        let ends = in_band.is_some_and(|in_band| in_band.ends);
        let mut farewells = Vec::new();
        let is_given_up = in_band.is_some_and(|in_band| in_band.may_not_be());
        for (index, stream) in streams.iter().enumerate().filter(|_| !is_given_up) {
            let lanes = sides.map(|side| self.add_lanes(side, stream));
            for (own, far) in [(0, 1), (1, 0)] {
                let (here, there) = (lanes[own], lanes[far]);
                let mut direction = Direction {
                    here: sides[own],
                    there: sides[far],
                    stream: stream.id,
                    is_unordered: stream.is_unordered,
                    send_lane: here.0,
                    recv_lane: there.1,
                    send_queue: here.2,
                    recv_queue: there.3,
                    is_doomed: doom.is_some(),
                    is_all_signaled: ends,
                    written: Vec::new(),
                    now_ps: 0,
                };
                self.add_messages(&mut direction, faults);
                if is_deep && index == 0 && self.messages_max > 1 {
                    self.add_long_write(&mut direction);
                }
                if let Some(doom) = doom.filter(|doom| doom.is_of(own, index)) {
                    self.add_doom(&mut direction, doom, faults);
                }
                if ends && index == 0 {
                    farewells.push(direction);
                }
            }
        }
        farewells.iter_mut().for_each(|direction| self.add_farewell(direction));
        if in_band.is_none() {
            for own in 0..2 {
                for stream in &mut configs[own].streams {
                    let depth = transports[1 - own].rq_depth;
                    let known = self.receives_at_start(sides[1 - own], stream.id, depth);
                    if self.draw.percent(30) {
                        stream.peer_limit = Some(stream.first_rsn + known);
                    }
                }
            }
        }
        self.plan.has_even_windows &= transports[0].msgs_max == transports[1].msgs_max;
        let is_known = |own: usize, at: usize| in_band.is_some() || configs[1 - own].streams[at].peer_limit.is_some();
        let bounded = [0, 1].map(|own| {
            let known = streams.iter().enumerate().filter(|(at, _)| !faults.has_damage && is_known(own, *at));
            known.map(|(_, stream)| (stream.id, stream.first_rsn)).collect()
        });
        self.finish_connection(sides, configs, in_band, doom, paths_max, faults);
        for (side, bounded) in sides.into_iter().zip(bounded) {
            self.plan.hosts[side.host].conns[side.conn].bounded = bounded;
        }
    }

    /// Gives the streams to both sides, with completion queues.
    fn place_streams(
        &mut self,
        streams: &[StreamConfig],
        is_in_band: bool,
        sides: [Side; 2],
        configs: &mut [ConnConfig; 2],
    ) {
        for (own, (side, config)) in sides.iter().zip(configs).enumerate() {
            let cqs = u64::from(self.plan.hosts[side.host].cq_count);
            let mut with_queues = |stream: &StreamConfig| {
                let (sq_cq, rq_cq) = (self.draw.below(cqs) as u32, self.draw.below(cqs) as u32);
                StreamConfig { sq_cq, rq_cq, ..*stream }
            };
            // Who grants has one kind of stream and is told how many.
            let count = if is_in_band && own == 1 { 1 } else { streams.len() };
            config.streams = streams[..count].iter().map(&mut with_queues).collect();
        }
    }

    fn finish_connection(
        &mut self,
        sides: [Side; 2],
        configs: [ConnConfig; 2],
        in_band: Option<InBand>,
        doom: Option<Doom>,
        paths_max: u16,
        faults: &Faults,
    ) {
        // Who ends it; at least one does.
        let closers = *self.draw.pick(&[[true, false], [false, true], [true, true]]);
        let pmtu_log2 = configs[0].pmtu_log2.min(configs[1].pmtu_log2);
        for (own, (side, mut config)) in sides.into_iter().zip(configs).enumerate() {
            let is_asked = self.asks(sides[1 - own]);
            let plan = &mut self.plan.hosts[side.host];
            plan.fates.push(match doom {
                None => Fate::Lives,
                Some(doom) => doom.fate(own),
            });
            let bounded = Vec::new();
            let reasons = doom.map_or(&[][..], |doom| doom.reasons(own));
            let mr = &mut plan.mrs[(side.rkey.get() >> 8) as usize];
            mr.len = plan.memory.end() - mr.iova;
            let begin = match in_band {
                None => Begin::Agreed,
                Some(InBand { service, at_ps, after, id, given_up_after_ps, is_refused, .. }) if own == 0 => {
                    config.local_id = id;
                    Begin::Asks { service, at_ps, after, given_up_after_ps, is_refused, may_be_full: false }
                }
                Some(in_band) => {
                    let (is_given_up, is_deaf) = (in_band.may_not_be(), in_band.is_refused);
                    Begin::Grants { service: in_band.service, paths_max, is_given_up, is_deaf }
                }
            };
            let ends = in_band.is_some_and(|in_band| in_band.ends);
            let is_given_up = in_band.is_some_and(|in_band| in_band.may_not_be());
            let closes = ends && closers[own] && !is_given_up;
            let closes_early = self.draw.percent(40);
            plan.conns.push(ConnPlan {
                config,
                begin,
                pmtu_log2,
                is_asked,
                ends,
                closes,
                closes_early,
                reasons,
                bounded,
            });
            if doom.is_none() && self.draw.percent(12) {
                self.add_acts(side, faults);
            }
            if doom.is_none() && !is_given_up {
                self.add_closings(side, faults);
            }
        }
        self.plan.ended_conns += u64::from(in_band.is_some_and(|in_band| in_band.ends));
    }

    /// True when a side has requests that want answers.
    fn asks(&self, side: Side) -> bool {
        let wants_answer = |op| matches!(op, CqeOp::Read | CqeOp::CompareSwap | CqeOp::FetchAdd);
        self.plan.hosts[side.host].expected.iter().any(|e| e.conn == side.conn && wants_answer(e.op))
    }

    /// Receives of a stream that a side posts before anything happens, without those found by tag.
    fn receives_at_start(&self, side: Side, stream: u16, rq_depth: u32) -> u32 {
        let plan = &self.plan.hosts[side.host];
        let is_there = |lane: &&Lane| lane.conn == side.conn && lane.stream == stream;
        let requests = plan.lanes.iter().filter(is_there).flat_map(|lane| &lane.requests);
        let receives = requests.filter_map(|(at_ps, request)| match request {
            Request::Recv(wr) => Some((at_ps, wr.tag)),
            Request::Send(_) | Request::Farewell(_) => None,
        });
        let at_start = receives.take_while(|(at_ps, _)| **at_ps == 0).take(rq_depth as usize);
        at_start.filter(|(_, tag)| tag.is_none()).count() as u32
    }

    /// Begins the memory region of a connection at a host; its length is set when all is drawn.
    fn add_side(&mut self, host: usize, pd: Pd) -> Side {
        let iova = self.add_region(host, 1, 64, false).iova;
        let va = self.draw.below(1 << 47) & !0xfff;
        let key = self.draw.bits() as u8;
        let rkey = self.add_mr(host, Mr { key, pd, access: ACCESS_ALL, va, len: 0, iova });
        // Both ends of a connection may be at one host: each has its own place.
        let conn = self.plan.hosts[host].conns.len();
        Side { host, conn, rkey, va_less_iova: va.wrapping_sub(iova) }
    }

    /// Send lane, receive lane, send queue, receive queue of a stream at one side.
    fn add_lanes(&mut self, side: Side, stream: &StreamConfig) -> (usize, usize, usize, usize) {
        let plan = &mut self.plan.hosts[side.host];
        let (lane, queue) = (plan.lanes.len(), plan.queues.len());
        for _ in 0..2 {
            plan.lanes.push(Lane { conn: side.conn, stream: stream.id, requests: Default::default() });
            plan.queues.push(Queue { is_unordered: stream.is_unordered, order: Vec::new() });
        }
        (lane, lane + 1, queue, queue + 1)
    }
}

/// How a connection that is established by packets begins and ends.
#[derive(Clone, Copy)]
struct InBand {
    service: u16,
    at_ps: u64,
    /// Connection of the asking host that is over before.
    after: Option<usize>,
    /// Id at the asking side.
    id: Qpn,
    ends: bool,
    given_up_after_ps: Option<u64>,
    /// Nobody listens for it.
    is_refused: bool,
}

impl InBand {
    /// It may never be there, so nothing is asked of it.
    const fn may_not_be(&self) -> bool {
        self.given_up_after_ps.is_some() || self.is_refused
    }
}

/// Few paths and small packets: a path holds all that its bitmap can tell.
fn deepen(configs: &mut [ConnConfig; 2]) {
    for config in configs {
        config.tx_paths.truncate(2);
        config.rx_paths.truncate(2);
        config.pmtu_log2 = 10;
    }
}

pub(crate) fn near_wrap(draw: &mut Draw, bits: u32) -> u32 {
    if draw.percent(60) {
        (draw.below(1 << bits)) as u32
    } else {
        ((1 << bits) - draw.between(1, 64)) as u32
    }
}

/// Streams of different kinds.
fn draw_streams(draw: &mut Draw) -> Vec<StreamConfig> {
    let stream_count = if draw.percent(5) { draw.between(5, 40) } else { draw.magnitude(1, 4) };
    let mut streams = Vec::new();
    while streams.len() < stream_count as usize {
        let mut stream = StreamConfig::new(draw.between(1, 0xffff) as u16, 0);
        // Near the wrap more often than anywhere else.
        stream.first_msn = Msn::new(near_wrap(draw, 24));
        stream.first_rsn = Rsn::new(near_wrap(draw, 24));
        stream.is_unordered = draw.percent(25);
        if streams.iter().all(|other: &StreamConfig| other.id != stream.id) {
            streams.push(stream);
        }
    }
    streams
}

/// What one request for a connection can say: the same first numbers for all paths and for all streams.
fn draw_agreement(draw: &mut Draw, configs: &mut [ConnConfig; 2]) -> Vec<StreamConfig> {
    let first = Psn::new(near_wrap(draw, 24));
    configs[0].tx_paths.iter_mut().for_each(|path| path.first = first);
    let mut streams = draw_streams(draw);
    let like = streams[0];
    streams.iter_mut().for_each(|stream| *stream = StreamConfig { id: stream.id, ..like });
    streams
}

/// Start and epoch of every path, which the peer knows.
fn draw_paths(draw: &mut Draw, configs: &mut [ConnConfig; 2]) {
    for own in 0..2 {
        for index in 0..configs[own].tx_paths.len() {
            let (first, epoch) = (Psn::new(near_wrap(draw, 24)), draw.below(16) as u8);
            let tx = &mut configs[own].tx_paths[index];
            (tx.first, tx.epoch) = (first, epoch);
            let rx = &mut configs[1 - own].rx_paths[index];
            (rx.first, rx.epoch) = (first, epoch);
        }
    }
}
