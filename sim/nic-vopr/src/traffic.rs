//! Draws connections and the messages on them; see [`crate::plan`] for the rules.

use std::sync::Arc;

use nic_fabric::NodeId;
use nic_model::config::TransportConfig;
use nic_model::conn_config::{ConnConfig, StreamConfig};
use nic_model::mr::Mr;
use nic_model::transport::cc::Delay;
use nic_model::work::{CqeOp, Local, RecvWr, RemoteMemory, SendOp, SendWr, TagMatch};
use nic_node::connect::{nic_config, Connector};
use nic_spec::desc::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use nic_spec::num::{Lkey, Msn, Pd, Pkey, Psn, Rkey, Rsn};

use crate::draw::Draw;
use crate::faults::Faults;
use crate::memory::{GuardedMemory, Region, BASE};
use crate::network::Network;
use crate::plan::{Counter, Expected, Fate, HostPlan, Lane, Plan, Queue, Request};

const US: u64 = 1_000_000;
/// Access rights of nearly every region: all.
const ACCESS_ALL: u8 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;

/// Draws what a run does on a network.
pub fn draw_plan(draw: &mut Draw, network: &Network, faults: &Faults) -> Plan {
    let mut traffic = Traffic::new(draw, network, faults);
    let host_count = network.topology.hosts.len() as u64;
    let conn_count = traffic.draw.magnitude(1, 8);
    // All to one host, or any to any.
    let is_incast = traffic.draw.percent(25);
    for _ in 0..conn_count {
        let a = if is_incast { 0 } else { traffic.draw.below(host_count) };
        let b = (a + traffic.draw.between(1, host_count - 1)) % host_count;
        traffic.add_connection([a as u32, b as u32], network, faults);
    }
    let (bytes, doomed) = (traffic.plan.bytes, traffic.plan.doomed_conns);
    traffic.plan.text = format!("{conn_count} connections, {doomed} of them doomed, {bytes} bytes");
    traffic.plan
}

struct Traffic<'a> {
    draw: &'a mut Draw,
    connector: Connector,
    plan: Plan,
    /// How likely each kind of message is in this run.
    weights: [u64; 8],
    len_max: u64,
}

/// One side of a connection.
#[derive(Clone, Copy)]
struct Side {
    host: usize,
    /// Index of the connection there.
    conn: usize,
    /// Row of the region that covers all its memory, and its key.
    rkey: Rkey,
    /// Address in the region's space, less the bus address.
    va_less_iova: u64,
}

/// One direction of a stream.
struct Direction {
    here: Side,
    there: Side,
    stream: u16,
    is_unordered: bool,
    send_lane: usize,
    recv_lane: usize,
    send_queue: usize,
    recv_queue: usize,
    /// The connection fails, so what is written may be cut off.
    is_doomed: bool,
    /// What earlier messages of it wrote at the far side and nothing writes again.
    written: Vec<Region>,
    now_ps: u64,
}

/// A message to be added.
struct Draft {
    op: SendOp,
    local: Local,
    len: u32,
    fence: bool,
    /// What local memory holds when it is complete.
    content: Option<(u64, Arc<[u8]>)>,
}

impl<'a> Traffic<'a> {
    fn new(draw: &'a mut Draw, network: &Network, faults: &Faults) -> Traffic<'a> {
        let mut weights = [1; 8];
        for weight in &mut weights {
            *weight = *draw.pick(&[0, 1, 1, 2, 5]);
        }
        // There is always something that can be drawn.
        weights[0] += 1;
        let hosts = (0..network.topology.hosts.len() as u32).map(|host| {
            let mut nic = nic_config(&network.topology, host);
            nic.hints = draw.percent(80);
            nic.seed = draw.bits();
            let stall_count = if draw.percent(30) { draw.between(1, 3) } else { 0 };
            let mut stall = |_| {
                let from = draw.below(faults.end_ps);
                from..from + draw.magnitude(US, 500 * US)
            };
            let stalls = (0..stall_count).map(&mut stall).collect();
            HostPlan {
                nic,
                memory: GuardedMemory::new(),
                image: Vec::new(),
                open_ranges: Vec::new(),
                loose_ranges: Vec::new(),
                mrs: Vec::new(),
                conns: Vec::new(),
                fates: Vec::new(),
                lanes: Vec::new(),
                expected: Vec::new(),
                queues: Vec::new(),
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
        let plan = Plan { hosts, counters: Vec::new(), doomed_conns: 0, bytes: 0, end_ps: 0, text: String::new() };
        let mut traffic = Traffic { draw, connector, plan, weights, len_max };
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

    fn add_region(&mut self, host: usize, len: u64, align: u64, is_target: bool) -> Region {
        let plan = &mut self.plan.hosts[host];
        let region = plan.memory.add(self.draw, len, align, is_target);
        let begun = plan.image.len();
        plan.image.extend_from_slice(&plan.memory.bytes()[begun..]);
        region
    }

    fn range(region: Region) -> std::ops::Range<usize> {
        (region.iova - BASE) as usize..(region.iova - BASE + region.len) as usize
    }

    /// What a region will hold after the messages so far.
    fn image(&self, host: usize, region: Region) -> &[u8] {
        &self.plan.hosts[host].image[Self::range(region)]
    }

    fn set_image(&mut self, d: &Direction, side: Side, region: Region, bytes: &[u8]) {
        let range = Self::range(region);
        let plan = &mut self.plan.hosts[side.host];
        plan.image[range.start..range.start + bytes.len()].copy_from_slice(bytes);
        if d.is_doomed {
            plan.loose_ranges.push(range);
        }
    }

    fn open(&mut self, host: usize, region: Region) {
        self.plan.hosts[host].open_ranges.push(Self::range(region));
    }

    fn add_mr(&mut self, host: usize, mr: Mr) -> Rkey {
        let mrs = &mut self.plan.hosts[host].mrs;
        mrs.push(mr);
        Rkey::new((mrs.len() as u32 - 1) << 8 | u32::from(mr.key))
    }

    // Connections.

    fn add_connection(&mut self, hosts: [u32; 2], network: &Network, faults: &Faults) {
        let draw = &mut *self.draw;
        let paths = if draw.percent(10) { draw.between(17, 64) } else { draw.between(1, 16) } as usize;
        let is_ipv6 = draw.percent(30);
        let [mut a, mut b] = self
            .connector
            .connect_over(hosts.map(NodeId), paths, is_ipv6)
            .expect("hosts of the topology with few connections");
        let (transport, pmtu_log2) = (draw_transport(draw, network, faults), draw.between(10, 13) as u8);
        let (pd, pkey) = (Pd::new(draw.below(1 << 24) as u32), Pkey::new(draw.bits() as u16 | 1));
        let (dscp, dscp_control) = (draw.below(64) as u8, draw.below(64) as u8);
        let is_delay_based = draw.percent(30);
        let weight = draw.between(1, 4) as u32;
        for config in [&mut a, &mut b] {
            (config.transport, config.pmtu_log2, config.pd, config.pkey) = (transport, pmtu_log2, pd, pkey);
            (config.dscp, config.dscp_control, config.hint_weight) = (dscp, dscp_control, weight);
            if is_delay_based {
                config.cc = Arc::new(Delay::default());
            }
        }
        for index in 0..paths {
            draw_path(draw, &mut a, &mut b, index);
            draw_path(draw, &mut b, &mut a, index);
        }
        let stream_count = draw.magnitude(1, 4);
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
        let sides = [hosts[0], hosts[1]].map(|host| self.add_side(host as usize, pd));
        let mut configs = [a, b];
        for (side, config) in sides.iter().zip(&mut configs) {
            let cqs = u64::from(self.plan.hosts[side.host].cq_count);
            let mut with_queues = |stream: &StreamConfig| {
                let (sq_cq, rq_cq) = (self.draw.below(cqs) as u32, self.draw.below(cqs) as u32);
                StreamConfig { sq_cq, rq_cq, ..*stream }
            };
            config.streams = streams.iter().map(&mut with_queues).collect();
        }
        // Who asks for something bad, on which stream.
        let bad = self.draw.percent(8).then(|| (self.draw.below(2) as usize, self.draw.below(stream_count) as usize));
        self.plan.doomed_conns += u64::from(bad.is_some());
        for (index, stream) in streams.iter().enumerate() {
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
                    is_doomed: bad.is_some(),
                    written: Vec::new(),
                    now_ps: 0,
                };
                self.add_messages(&mut direction, faults);
                if bad == Some((own, index)) {
                    self.add_bad(&mut direction);
                }
            }
        }
        for own in 0..2 {
            for index in 0..streams.len() {
                let known = self.receives_at_start(sides[1 - own], streams[index].id, transport.rq_depth);
                if self.draw.percent(30) {
                    let stream = &mut configs[own].streams[index];
                    stream.peer_limit = Some(stream.first_rsn + known);
                }
            }
        }
        for (own, (side, config)) in sides.into_iter().zip(configs).enumerate() {
            let plan = &mut self.plan.hosts[side.host];
            plan.fates.push(match bad {
                None => Fate::Lives,
                Some((culprit, _)) if culprit == own => Fate::Fails,
                Some(_) => Fate::Bereaved,
            });
            let mr = &mut plan.mrs[(side.rkey.get() >> 8) as usize];
            mr.len = plan.memory.end() - mr.iova;
            plan.conns.push(config);
        }
    }

    /// Receives of a stream that a side posts before anything happens, without those found by tag.
    fn receives_at_start(&self, side: Side, stream: u16, rq_depth: u32) -> u32 {
        let plan = &self.plan.hosts[side.host];
        let is_there = |lane: &&Lane| lane.conn == side.conn && lane.stream == stream;
        let requests = plan.lanes.iter().filter(is_there).flat_map(|lane| &lane.requests);
        let receives = requests.filter_map(|(at_ps, request)| match request {
            Request::Recv(wr) => Some((at_ps, wr.tag)),
            Request::Send(_) => None,
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

    // Messages.

    fn add_messages(&mut self, direction: &mut Direction, faults: &Faults) {
        let count = if self.draw.percent(20) { 0 } else { self.draw.magnitude(1, 24) };
        let gap_ps = if self.draw.percent(40) { 1 } else { faults.end_ps / count.max(1) };
        for _ in 0..count {
            direction.now_ps += self.draw.below(gap_ps.max(1) * 2);
            self.add_message(direction);
        }
        self.plan.end_ps = self.plan.end_ps.max(direction.now_ps);
    }

    fn len(&mut self) -> u64 {
        match self.draw.weighted(&[1, 2, 6]) {
            0 => 0,
            // Around the payload of one packet.
            1 => (1 << self.draw.between(10, 13)) - 2 + self.draw.below(5),
            _ => self.draw.magnitude(1, self.len_max),
        }
    }

    fn add_message(&mut self, d: &mut Direction) {
        // What becomes of a word when its change was cut off could be either.
        let weights = if d.is_doomed { [3, 2, 3, 1, 2, 0, 0, 0] } else { self.weights };
        match self.draw.weighted(&weights) {
            0 => self.add_write(d, false),
            1 => self.add_write(d, true),
            2 => self.add_send(d, false),
            3 => self.add_send(d, true),
            4 => self.add_read(d),
            5 => self.add_compare_swap(d),
            6 => self.add_fetch_add(d),
            _ if self.draw.percent(50) => self.add_flush(d),
            _ => self.add_read_and_overwrite(d),
        }
    }

    /// Where this region is in the space of a side's keys.
    fn local(side: Side, region: Region) -> Local {
        Local { va: region.iova.wrapping_add(side.va_less_iova), lkey: Lkey::new(side.rkey.get()) }
    }

    fn remote(side: Side, region: Region) -> RemoteMemory {
        RemoteMemory { va: region.iova.wrapping_add(side.va_less_iova), rkey: side.rkey }
    }

    /// Puts a message into its lane and its completion into its queue.
    fn push(&mut self, d: &Direction, draft: Draft) -> SendWr {
        let is_signaled = self.draw.percent(85);
        let solicited = self.draw.percent(10);
        let plan = &mut self.plan.hosts[d.here.host];
        let is_barrier = draft.fence || matches!(draft.op, SendOp::Flush { .. });
        let wr_id = plan.expected.len() as u64;
        plan.expected.push(Expected {
            conn: d.here.conn,
            stream: d.stream,
            op: draft.op.cqe_op(),
            byte_len: draft.len,
            imm: None,
            tag: None,
            invalidated: None,
            solicited: false,
            is_signaled,
            is_bad: false,
            is_barrier,
            content: draft.content,
            queue: d.send_queue,
        });
        plan.queues[d.send_queue].order.push(wr_id as usize);
        let wr = SendWr {
            wr_id,
            op: draft.op,
            local: draft.local,
            len: draft.len,
            signaled: is_signaled,
            solicited,
            fence: draft.fence,
        };
        plan.lanes[d.send_lane].requests.push_back((d.now_ps, Request::Send(wr)));
        plan.tx_messages += 1;
        self.plan.hosts[d.there.host].rx_messages += 1;
        self.plan.bytes += u64::from(draft.len);
        wr
    }

    /// Puts the receive that a message takes into its lane, and its completion into its queue.
    fn push_recv(&mut self, d: &Direction, wr: &SendWr, buffer: Region, content: (u64, Arc<[u8]>)) {
        let (op, imm, inv, tag) = match wr.op {
            SendOp::Send { imm, inv, tag } => (CqeOp::Recv, imm, inv, tag),
            SendOp::Write { imm, .. } => (CqeOp::RecvImm, imm, None, None),
            _ => unreachable!("only these take a receive"),
        };
        // In good time, or late.
        let posted_ps = if self.draw.percent(70) { 0 } else { d.now_ps + self.draw.below(200 * US) };
        let ignore = if self.draw.percent(30) { 0xff << 56 } else { 0 };
        let plan = &mut self.plan.hosts[d.there.host];
        let wr_id = plan.expected.len() as u64;
        plan.expected.push(Expected {
            conn: d.there.conn,
            stream: d.stream,
            op,
            byte_len: wr.len,
            imm,
            tag,
            invalidated: inv,
            solicited: wr.solicited,
            is_signaled: true,
            is_bad: false,
            is_barrier: wr.fence,
            content: Some(content),
            queue: d.recv_queue,
        });
        plan.queues[d.recv_queue].order.push(wr_id as usize);
        let recv = RecvWr {
            wr_id,
            local: Self::local(d.there, buffer),
            len: buffer.len as u32,
            tag: tag.map(|bits| TagMatch { bits, ignore }),
        };
        let lane = &mut plan.lanes[d.recv_lane].requests;
        let posted_ps = lane.back().map_or(0, |(at_ps, _)| *at_ps).max(posted_ps);
        lane.push_back((posted_ps, Request::Recv(recv)));
        self.plan.end_ps = self.plan.end_ps.max(posted_ps);
    }

    fn source(&mut self, d: &Direction, len: u64) -> (Region, Arc<[u8]>) {
        let region = self.add_region(d.here.host, len, 1, false);
        let bytes = self.image(d.here.host, region).into();
        (region, bytes)
    }

    fn add_write(&mut self, d: &mut Direction, has_imm: bool) {
        let len = self.len();
        let (source, bytes) = self.source(d, len);
        let target = self.add_region(d.there.host, len, 1, true);
        let imm = has_imm.then(|| self.draw.bits() as u32);
        let op = SendOp::Write { remote: Self::remote(d.there, target), imm };
        self.set_image(d, d.there, target, &bytes);
        let fence = self.draw.percent(10);
        let draft = Draft { op, local: Self::local(d.here, source), len: len as u32, fence, content: None };
        let wr = self.push(d, draft);
        if has_imm {
            let buffer = self.add_region(d.there.host, 1, 1, true);
            self.push_recv(d, &wr, buffer, (target.iova, bytes));
        }
        d.written.push(target);
    }

    fn add_send(&mut self, d: &mut Direction, is_special: bool) {
        let len = self.len();
        let (source, bytes) = self.source(d, len);
        let spare = if self.draw.percent(50) { 0 } else { self.draw.below(100) };
        let buffer = self.add_region(d.there.host, (len + spare).max(1), 1, true);
        self.set_image(d, d.there, buffer, &bytes);
        let imm = self.draw.percent(30).then(|| self.draw.bits() as u32);
        let (mut inv, mut tag) = (None, None);
        if is_special && self.draw.percent(50) {
            // Tags differ in the bits that no receive ignores.
            let number = self.plan.hosts[d.there.host].expected.len() as u64;
            tag = Some(self.draw.bits() << 56 | number);
        } else if is_special {
            inv = Some(self.add_key_to_invalidate(d));
        }
        // Immediate data and a key to invalidate take the same place in the packet.
        let imm = imm.filter(|_| inv.is_none());
        let op = SendOp::Send { imm, inv, tag };
        let fence = self.draw.percent(10);
        let draft = Draft { op, local: Self::local(d.here, source), len: len as u32, fence, content: None };
        let wr = self.push(d, draft);
        self.push_recv(d, &wr, buffer, (buffer.iova, bytes));
    }

    /// A key of the far side that nothing uses any more when it is invalidated.
    fn add_key_to_invalidate(&mut self, d: &mut Direction) -> Rkey {
        let len = self.len();
        let target = self.add_region(d.there.host, len, 1, true);
        let pd = self.plan.hosts[d.there.host].mrs[(d.there.rkey.get() >> 8) as usize].pd;
        let va = self.draw.below(1 << 47);
        let key = self.draw.bits() as u8;
        let rkey =
            self.add_mr(d.there.host, Mr { key, pd, access: ACCESS_ALL, va, len: len.max(1), iova: target.iova });
        if !d.is_unordered && self.draw.percent(70) {
            let (source, bytes) = self.source(d, len);
            self.set_image(d, d.there, target, &bytes);
            let op = SendOp::Write { remote: RemoteMemory { va, rkey }, imm: None };
            let draft = Draft { op, local: Self::local(d.here, source), len: len as u32, fence: false, content: None };
            self.push(d, draft);
        }
        rkey
    }

    fn add_read(&mut self, d: &mut Direction) {
        let is_of_written = !d.written.is_empty() && self.draw.percent(50);
        let remote = if is_of_written {
            *self.draw.pick(&d.written)
        } else {
            let len = self.len();
            self.add_region(d.there.host, len, 1, false)
        };
        let fence = (is_of_written && d.is_unordered) || self.draw.percent(10);
        self.push_read(d, remote, fence);
    }

    fn push_read(&mut self, d: &Direction, remote: Region, fence: bool) {
        let bytes: Arc<[u8]> = self.image(d.there.host, remote).into();
        let target = self.add_region(d.here.host, remote.len, 1, true);
        self.set_image(d, d.here, target, &bytes);
        let op = SendOp::Read { remote: Self::remote(d.there, remote) };
        let content = Some((target.iova, bytes));
        self.push(d, Draft { op, local: Self::local(d.here, target), len: remote.len as u32, fence, content });
    }

    /// A read, and a write over what it took that may only begin when it is done.
    fn add_read_and_overwrite(&mut self, d: &mut Direction) {
        let len = self.len();
        let cell = self.add_region(d.there.host, len, 1, true);
        self.push_read(d, cell, false);
        let (source, bytes) = self.source(d, len);
        self.set_image(d, d.there, cell, &bytes);
        let op = SendOp::Write { remote: Self::remote(d.there, cell), imm: None };
        self.push(d, Draft { op, local: Self::local(d.here, source), len: len as u32, fence: true, content: None });
    }

    fn add_compare_swap(&mut self, d: &mut Direction) {
        // Several on one word, each of which sees what the one before left. Without order each is alone on its word.
        let rounds = if d.is_unordered { 1 } else { self.draw.between(1, 3) };
        let cell = self.add_region(d.there.host, 8, 8, true);
        for _ in 0..rounds {
            let before: [u8; 8] = self.image(d.there.host, cell).try_into().expect("8 bytes");
            let orig = u64::from_le_bytes(before);
            let is_hit = self.draw.percent(60);
            let compare = if is_hit { orig } else { orig ^ 1 << self.draw.below(64) };
            let swap = self.draw.bits();
            if is_hit {
                self.set_image(d, d.there, cell, &swap.to_le_bytes());
            }
            let target = self.add_region(d.here.host, 8, 1, true);
            self.set_image(d, d.here, target, &before);
            let op = SendOp::CompareSwap { remote: Self::remote(d.there, cell), compare, swap };
            let content = Some((target.iova, before.into()));
            self.push(d, Draft { op, local: Self::local(d.here, target), len: 8, fence: false, content });
        }
        if !d.is_unordered {
            d.written.push(cell);
        }
    }

    fn add_fetch_add(&mut self, d: &mut Direction) {
        let Some(index) = self.plan.counters.iter().position(|counter| counter.host as usize == d.there.host) else {
            return self.add_compare_swap(d);
        };
        let add = self.draw.bits() | 1;
        let pd = self.plan.hosts[d.there.host].mrs[(d.there.rkey.get() >> 8) as usize].pd;
        let iova = self.plan.counters[index].iova;
        // Words that are added to lie outside the connections' regions, so each user has a key for them.
        let va = self.draw.below(1 << 47) & !7;
        let key = self.draw.bits() as u8;
        let rkey = self.add_mr(d.there.host, Mr { key, pd, access: ACCESS_ALL, va, len: 8, iova });
        let target = self.add_region(d.here.host, 8, 1, true);
        self.open(d.here.host, target);
        self.plan.counters[index].adds.push((d.here.host as u32, target.iova, add));
        let op = SendOp::FetchAdd { remote: RemoteMemory { va, rkey }, add };
        let fence = self.draw.percent(10);
        self.push(d, Draft { op, local: Self::local(d.here, target), len: 8, fence, content: None });
    }

    /// A request that one of the checks has to refuse.
    fn add_bad(&mut self, d: &mut Direction) {
        let len = 1 + self.len();
        let source = self.add_region(d.here.host, len, 1, false);
        let target = self.add_region(d.there.host, len, 1, true);
        let (mut local, mut remote) = (Self::local(d.here, source), Self::remote(d.there, target));
        let mr = self.plan.hosts[d.there.host].mrs[(d.there.rkey.get() >> 8) as usize];
        let special = |access, pd| Mr { key: !mr.key, pd, access, va: remote.va, len, iova: target.iova };
        let read = self.draw.percent(50);
        match self.draw.below(6) {
            0 => remote.rkey = Rkey::new(d.there.rkey.get() ^ 1),
            1 => remote.rkey = Rkey::new(d.there.rkey.get() | 0xff_ff00),
            // The region ends with the connection's last byte, which comes later; 2^40 bytes do not.
            2 => remote.va = remote.va.wrapping_add(1 << 40),
            3 => remote.rkey = self.add_mr(d.there.host, special(ACCESS_ALL, Pd::new(mr.pd.get() ^ 1))),
            4 => remote.rkey = self.add_mr(d.there.host, special(ACCESS_LOCAL_WRITE, mr.pd)),
            _ => local.lkey = Lkey::new(local.lkey.get() ^ 1),
        }
        let op = if read { SendOp::Read { remote } } else { SendOp::Write { remote, imm: None } };
        // A read needs a place that it may write.
        if read {
            let place = self.add_region(d.here.host, len, 1, true);
            local.va = Self::local(d.here, place).va;
        }
        let wr = self.push(d, Draft { op, local, len: len as u32, fence: false, content: None });
        self.plan.hosts[d.here.host].expected[wr.wr_id as usize].is_bad = true;
    }

    fn add_flush(&mut self, d: &mut Direction) {
        let Some(region) = d.written.last().copied() else { return self.add_write(d, false) };
        let op = SendOp::Flush { remote: Self::remote(d.there, region) };
        let local = Local { va: 0, lkey: Lkey::new(0) };
        self.push(d, Draft { op, local, len: region.len as u32, fence: false, content: None });
    }
}

fn near_wrap(draw: &mut Draw, bits: u32) -> u32 {
    if draw.percent(60) {
        (draw.below(1 << bits)) as u32
    } else {
        ((1 << bits) - draw.between(1, 64)) as u32
    }
}

/// One path of `own`: its start and epoch, which the peer knows.
fn draw_path(draw: &mut Draw, own: &mut ConnConfig, peer: &mut ConnConfig, index: usize) {
    let (first, epoch) = (Psn::new(near_wrap(draw, 24)), draw.below(16) as u8);
    (own.tx_paths[index].first, own.tx_paths[index].epoch) = (first, epoch);
    (peer.rx_paths[index].first, peer.rx_paths[index].epoch) = (first, epoch);
}

fn draw_transport(draw: &mut Draw, network: &Network, faults: &Faults) -> TransportConfig {
    let mut transport = TransportConfig::default();
    if draw.percent(50) {
        transport.path_cap_pkts = draw.magnitude(1, 256) as u32;
        transport.path_init_pkts = draw.between(1, 12) as u32;
        transport.ack_packets = draw.between(1, 8) as u32;
        transport.ack_delay_ps = draw.magnitude(US / 2, 8 * US);
    }
    if draw.percent(50) {
        transport.msgs_max = draw.magnitude(1, 64) as u32;
        transport.reads_max = draw.magnitude(1, 16) as u32;
        transport.sq_depth = draw.magnitude(1, 64) as u32;
        transport.rq_depth = draw.magnitude(32, 256) as u32;
    }
    transport.conn_init_pkts = draw.magnitude(1, 64) as u32;
    transport.bootstrap = draw.percent(15);
    (transport.paths_min, transport.paths_max) = (draw.between(1, 12) as u32, draw.between(12, 96) as u32);
    transport.idle_redundancy = draw.percent(70);
    transport.tail_marker = draw.percent(80);
    if network.is_spraying || draw.percent(20) {
        transport.reorder_of_srtt_q8 = *draw.pick(&[0, 64, 128]);
    }
    if faults.is_heavy {
        transport.retry_limit = 15;
    }
    // Receives come late in some runs; how late is not bounded by a number of refusals.
    transport.rnr_retry_limit = u8::MAX;
    transport
}
