//! The golden model as an endpoint of workloads.
//!
//! Hosts that exchange messages have one connection, whose streams are those of the workload. A written message carries its
//! number as immediate data and takes a posted receive, of which the receiver keeps as many as messages will come. Each
//! connection has an address range of its own, so that memory knows what came in over which.

use std::collections::VecDeque;

use nic_fabric::workload::{Connection, Endpoint, Event, MessageId, PathGauge, Request, Verb, Workload};
use nic_fabric::{Ahead, Context, Frame, NodeId, Topology};
use nic_model::conn_config::{ConnConfig, StreamConfig};
use nic_model::memory::{Fault, HostMemory};
use nic_model::mr::Mr;
use nic_model::time::Time;
use nic_model::wire::frame::Payload;
use nic_model::work::{ConnId, Cqe, CqeOp, Local, RecvWr, RemoteMemory, SendOp, SendWr};
use nic_node::connect::{nic_config, ConnectError, Connector};
use nic_node::Card;
use nic_spec::csr::stats::COUNTERS;
use nic_spec::desc::Status;
use nic_spec::num::{Lkey, Pd, Rkey};

use crate::transport::ModelSpec;

/// What a packet takes on the line besides payload: Ethernet, IPv4, UDP, BTH, PXTH, MXTH, RETH, ICRC, preamble, FCS and gap.
pub(crate) const OVERHEAD_BYTES: u64 = 14 + 20 + 8 + 12 + 8 + 8 + 16 + 4 + 24;

/// Address range of a connection.
const RANGE_BITS: u32 = 40;
const KEY: u8 = 1;
/// The completion queue of everything.
const CQ: u32 = 0;

/// Memory without content that knows how much was written into the range of each connection.
pub(crate) struct CountingMemory {
    written_bytes: Vec<u64>,
}

impl HostMemory for CountingMemory {
    fn read(&mut self, _iova: u64, len_bytes: u32) -> Result<Payload, Fault> {
        Ok(Payload::Virtual(len_bytes))
    }

    fn write(&mut self, iova: u64, data: &Payload) -> Result<(), Fault> {
        let range = (iova >> RANGE_BITS) as usize;
        let fault = Fault { iova, len_bytes: data.len_bytes() };
        *self.written_bytes.get_mut(range).ok_or(fault)? += u64::from(data.len_bytes());
        Ok(())
    }
}

/// A connection of the workload: a stream of a connection of the card.
struct Link {
    conn: ConnId,
    stream: u16,
    /// Place of the connection among those of the peer, which is the range it has there.
    peer_index: u32,
    /// Requests that found the queue full.
    backlog: VecDeque<Request>,
    /// Receives still to be posted for messages to come.
    receives_left: u32,
}

/// A card with the model, at a host.
pub(crate) struct ModelNic {
    card: Card<CountingMemory>,
    links: Vec<Link>,
    /// Links of the host with requests waiting.
    waiting: Vec<u32>,
    /// Of each connection of the card the first link, and its streams after it.
    first_link: Vec<(ConnId, u32)>,
    pmtu_bytes: u64,
    events: Vec<Event>,
}

/// The cards of all hosts.
pub(crate) fn cards(spec: &ModelSpec, topology: &Topology, workload: &Workload) -> Result<Vec<ModelNic>, ConnectError> {
    let host_count = workload.host_count();
    let mut nics: Vec<ModelNic> = (0..host_count).map(|host| ModelNic::new(spec, topology, workload, host)).collect();
    let mut expected: Vec<Vec<u32>> =
        (0..host_count).map(|host| vec![0; workload.connections_of(host).len()]).collect();
    for message in workload.messages().iter().filter(|message| message.verb == Verb::Write) {
        let connections = workload.connections_of(message.dst);
        let key = (message.src, message.stream);
        if let Ok(index) = connections.binary_search_by_key(&key, |other| (other.peer, other.stream)) {
            expected[message.dst as usize][index] += 1;
        }
    }
    let mut connector = Connector::new(topology);
    for host in 0..host_count {
        let connections = workload.connections_of(host);
        let mut start = 0;
        while let Some(first) = connections.get(start) {
            let end = start + connections[start..].iter().take_while(|other| other.peer == first.peer).count();
            if first.peer > host {
                let sides = connector.connect([NodeId(host), NodeId(first.peer)], spec.path_count())?;
                let ends = [(host, start as u32), (first.peer, first.peer_index)];
                for ((host, first_link), config) in ends.into_iter().zip(sides) {
                    let expected = &expected[host as usize];
                    nics[host as usize].open(spec, config, first_link, (end - start) as u32, expected);
                }
            }
            start = end;
        }
    }
    Ok(nics)
}

impl ModelNic {
    fn new(spec: &ModelSpec, topology: &Topology, workload: &Workload, host: u32) -> ModelNic {
        let connections: &[Connection] = workload.connections_of(host);
        let mut config = nic_config(topology, host);
        config.elide_icrc = true;
        spec.tune(&mut config);
        // Nothing here waits long to be taken.
        config.cq_depth = u32::MAX;
        let memory = CountingMemory { written_bytes: vec![0; connections.len()] };
        let mut card = Card::new(config, memory);
        let len = (connections.len().max(1) as u64) << RANGE_BITS;
        card.nic_mut().mrs().register(Mr { key: KEY, pd: Pd::new(0), access: 0xf, va: 0, len, iova: 0 });
        let link = |connection: &Connection| Link {
            conn: ConnId(0),
            stream: 0,
            peer_index: connection.peer_index,
            backlog: VecDeque::new(),
            receives_left: 0,
        };
        ModelNic {
            card,
            links: connections.iter().map(link).collect(),
            waiting: Vec::new(),
            first_link: Vec::new(),
            pmtu_bytes: 1 << spec.pmtu_log2(),
            events: Vec::new(),
        }
    }

    /// Opens a connection of the card for so many links from `first_link` on.
    fn open(&mut self, spec: &ModelSpec, mut config: ConnConfig, first_link: u32, count: u32, expected: &[u32]) {
        config.pmtu_log2 = spec.pmtu_log2();
        config.transport = spec.tunables();
        config.cc = spec.control();
        config.streams = (1..=count as u16).map(|id| StreamConfig::new(id, CQ)).collect();
        // The connector gave a free row and valid numbers.
        let conn = self.card.nic_mut().open_connection(Time(0), config).expect("a free row for a valid connection");
        self.first_link.push((conn, first_link));
        for (stream, link) in (1..=count as u16).zip(first_link..) {
            let entry = &mut self.links[link as usize];
            (entry.conn, entry.stream) = (conn, stream);
            entry.receives_left = expected[link as usize];
            self.post_receives(Time(0), link);
        }
        self.first_link.sort_unstable_by_key(|entry| entry.0);
    }

    fn post_receives(&mut self, now: Time, link: u32) {
        let entry = &mut self.links[link as usize];
        while entry.receives_left > 0 {
            let receive = RecvWr { wr_id: 0, local: Local::default(), len: 0, tag: None };
            if self.card.nic_mut().post_recv(now, entry.conn, entry.stream, receive).is_err() {
                break;
            }
            entry.receives_left -= 1;
        }
    }

    /// Gives a request to the card. False if there is no room for it.
    fn post_now(&mut self, now: Time, request: &Request) -> bool {
        let entry = &self.links[request.connection as usize];
        let key = u32::from(KEY);
        let here = Local { va: u64::from(request.connection) << RANGE_BITS, lkey: Lkey::new(key) };
        let remote = RemoteMemory { va: u64::from(entry.peer_index) << RANGE_BITS, rkey: Rkey::new(key) };
        let op = match request.verb {
            Verb::Write => SendOp::Write { remote, imm: Some(request.message.0) },
            Verb::Read => SendOp::Read { remote },
        };
        let wr = SendWr::new(u64::from(request.message.0), op, here, request.bytes as u32);
        match self.card.nic_mut().post_send(now, entry.conn, entry.stream, wr) {
            Ok(()) => true,
            Err(nic_model::work::PostError::QueueFull { .. }) => false,
            Err(_) => {
                self.events.push(Event::Failed(request.message));
                true
            }
        }
    }

    /// Takes completions, and gives the card what it has room for now.
    fn settle(&mut self, ctx: &mut Context<'_>) {
        let now = Time(ctx.now_ps());
        let mut has_posted = false;
        while let Some(cqe) = self.card.nic_mut().poll_completion(CQ) {
            self.complete(now, &cqe);
        }
        // The card reports paths and planes, too; nobody here asks.
        while self.card.nic_mut().poll_event().is_some() {}
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|link| {
            while let Some(request) = self.links[*link as usize].backlog.front().copied() {
                if !self.post_now(now, &request) {
                    return true;
                }
                has_posted = true;
                self.links[*link as usize].backlog.pop_front();
            }
            false
        });
        self.waiting.append(&mut waiting);
        if has_posted {
            self.card.pump(ctx);
        }
    }

    fn complete(&mut self, now: Time, cqe: &Cqe) {
        let message = MessageId(cqe.wr_id as u32);
        match (cqe.op, cqe.status, cqe.imm) {
            (CqeOp::RecvImm, Status::Ok, Some(imm)) => {
                self.events.push(Event::Arrived(MessageId(imm)));
                if let Ok(place) = self.first_link.binary_search_by_key(&cqe.conn, |entry| entry.0) {
                    self.post_receives(now, self.first_link[place].1 + u32::from(cqe.stream) - 1);
                }
            }
            (CqeOp::RecvImm, ..) => {}
            (_, Status::Ok, _) => self.events.push(Event::Completed(message)),
            _ => self.events.push(Event::Failed(message)),
        }
    }
}

impl Endpoint for ModelNic {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        self.card.pump(ctx);
    }

    fn post(&mut self, ctx: &mut Context<'_>, request: &Request) {
        let backlog = &self.links[request.connection as usize].backlog;
        if !backlog.is_empty() || !self.post_now(Time(ctx.now_ps()), request) {
            let backlog = &mut self.links[request.connection as usize].backlog;
            if backlog.is_empty() {
                self.waiting.push(request.connection);
            }
            backlog.push_back(*request);
        }
        self.card.pump(ctx);
        self.settle(ctx);
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        self.card.on_frame(ctx, port, frame);
        self.settle(ctx);
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        self.card.on_timer(ctx, token);
        self.settle(ctx);
    }

    fn foresee(&self) {
        self.card.foresee();
    }

    fn foresee_event(&self, ahead: Ahead<'_>) {
        self.card.foresee_event(ahead);
    }

    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        self.card.on_port_state(ctx, port, is_up);
        self.settle(ctx);
    }

    fn on_port_idle(&mut self, ctx: &mut Context<'_>, port: u16) {
        self.card.on_port_idle(ctx, port);
        self.settle(ctx);
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    fn received_bytes(&self, connection: u32) -> u64 {
        self.card.memory().written_bytes[connection as usize]
    }

    fn gauges(&self, connection: u32, gauges: &mut Vec<PathGauge>) {
        let Some(paths) = self.card.nic().paths(self.links[connection as usize].conn) else { return };
        gauges.extend((0..).zip(paths.iter()).map(|(path, state)| PathGauge {
            path,
            window_bytes: u64::from(state.cc.cwnd_pkts()) * self.pmtu_bytes,
            in_flight_bytes: u64::from(state.window.in_flight_pkts()) * self.pmtu_bytes,
            rate_mbps: u64::MAX,
        }));
    }

    fn counters(&self, show: &mut dyn FnMut(&'static str, u64)) {
        let counters = self.card.nic().counters();
        COUNTERS.iter().for_each(|info| show(info.name, counters.get(info.counter)));
        let mut spurious = 0;
        for (conn, _) in &self.first_link {
            let paths = self.card.nic().paths(*conn).into_iter().flat_map(|paths| paths.iter());
            spurious += paths.map(|path| path.stats.spurious_pkts).sum::<u64>();
        }
        show("spurious_pkts", spurious);
    }
}
