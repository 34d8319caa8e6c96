//! The card: events and the time go in, frames, completions and events come out.
//!
//! ```text
//! post_send, post_recv ─┐                       ┌─> poll_transmit(plane)   when the port is free
//! on_frame(plane) ──────┼──> connections ───────┼─> poll_completion(cq)
//! on_timer ─────────────┘                       └─> poll_event
//! ```
//! After each of the first three, ask every free port; ask the others again when one of them gave a frame, because
//! planes take turns. `next_timer` says when `on_timer` is due.

use crate::ack::push_control;
use crate::cm::{stray_packet, Handshake, Listener, Step};
use crate::config::NicConfig;
use crate::conn_config::ConnConfig;
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::counters::Counters;
use crate::footprint::Footprint;
use crate::memory::HostMemory;
use crate::mr::MrTable;
use crate::plane::Control;
use crate::time::Time;
use crate::timer::TimerKey;
use crate::transport::path::{PathState, TimerAction};
use crate::transport::path_set::PathSet;
use crate::transport::rx_path::AckDue;
use crate::wire::cm::{CmContent, CmError};
use crate::wire::frame::{Frame, FrameRef, Payload};
use crate::wire::packet::{Ack, Body, Label, Packet, WritePart};
use crate::wire::parser::{check_usual, parse_any, take_usual, Usual};
use crate::work::{ConnId, Cqe, Event, PostError, RecvWr, SendWr};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nic_spec::csr::stats::Counter;
use nic_spec::num::{Pkey, Qpn};
use nic_spec::wire::{CmStatus, Opcode, CM_QPN};

/// A card.
#[derive(Debug)]
#[repr(C)]
pub struct Nic {
    pub(crate) conns: Vec<Option<Box<Connection>>>,
    pub(crate) core: Core,
    listeners: Vec<Listener>,
    /// Connections that began here or were granted; makes nonces and ids differ.
    drawn: u32,
}

/// Why a connection was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The row of this id holds another connection.
    RowInUse(ConnId),
    /// A number is outside its range.
    BadConfig(&'static str),
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::RowInUse(id) => write!(f, "row {} holds another connection", id.0),
            Self::BadConfig(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for OpenError {}

impl Nic {
    /// A card with these ports. Panics when it has none, more than 16, or a connection table that is no power of two.
    pub fn new(cfg: NicConfig) -> Self {
        assert!((1..=16).contains(&cfg.planes.len()), "a card has 1 to 16 ports, not {}", cfg.planes.len());
        assert!(cfg.conns_max.is_power_of_two(), "conns_max {} is no power of two", cfg.conns_max);
        Self { core: Core::new(cfg), conns: Vec::new(), listeners: Vec::new(), drawn: 0 }
    }

    /// Its configuration.
    pub fn config(&self) -> &NicConfig {
        &self.core.cfg
    }

    /// Its memory regions.
    pub fn mrs(&mut self) -> &mut MrTable {
        &mut self.core.mrs
    }

    /// Its counters.
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Opens a connection that both sides agreed on by other means; it sends and receives at once.
    pub fn open_connection(&mut self, now: Time, cfg: ConnConfig) -> Result<ConnId, OpenError> {
        let id = self.add_connection(now, cfg)?;
        if let Some(c) = find(&mut self.conns, id.0) {
            c.leave_dead_ports(&mut self.core, now);
        }
        Ok(id)
    }

    fn add_connection(&mut self, now: Time, cfg: ConnConfig) -> Result<ConnId, OpenError> {
        let planes = self.core.cfg.planes.len();
        let check = |ok: bool, what| if ok { Ok(()) } else { Err(OpenError::BadConfig(what)) };
        check((10..=13).contains(&cfg.pmtu_log2), "pmtu_log2 is 10 to 13")?;
        check(cfg.tx_paths.len() <= 256 && cfg.rx_paths.len() <= 256, "a connection has at most 256 paths")?;
        check(cfg.tx_paths.iter().all(|p| usize::from(p.plane) < planes), "a path's plane has no port")?;
        check((1..=64).contains(&cfg.transport.msgs_max), "msgs_max is 1 to 64")?;
        check((1..=256).contains(&cfg.transport.path_cap_pkts), "path_cap_pkts is 1 to 256")?;
        check(cfg.streams.iter().all(|s| s.id != 0), "stream 0 is for control")?;
        let row = cfg.local_id.get() & (self.core.cfg.conns_max - 1);
        let at = row as usize;
        if at >= self.conns.len() {
            self.conns.resize_with(at + 1, || None);
        }
        if self.conns[at].is_some() {
            return Err(OpenError::RowInUse(ConnId(row)));
        }
        self.conns[at] = Some(Box::new(Connection::new(row, cfg, &mut self.core, now)));
        Ok(ConnId(row))
    }

    /// Asks the peer of `cfg.addresses` for a connection to `service`. `cfg.remote_id` is not looked at; the number of
    /// `cfg.tx_paths` is the most that are wanted. [`Event::Connected`] or [`Event::ConnectFailed`] tells the end.
    pub fn connect(&mut self, now: Time, service: u16, cfg: ConnConfig) -> Result<ConnId, OpenError> {
        if cfg.addresses.is_empty() || cfg.tx_paths.is_empty() || cfg.streams.is_empty() {
            return Err(OpenError::BadConfig("a connection needs addresses, paths and streams"));
        }
        self.drawn = self.drawn.wrapping_add(1);
        // Splitmix64 of seed and count: different for every attempt of every card.
        let mut nonce = self.core.cfg.seed.wrapping_add(u64::from(self.drawn).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        nonce = (nonce ^ nonce >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let id = self.add_connection(now, cfg)?;
        if let Some(c) = find(&mut self.conns, id.0) {
            c.state = ConnState::Init;
            c.handshake = Handshake::begin(Step::Asking, nonce ^ nonce >> 27, service, now);
            c.on_handshake_timer(&mut self.core, now);
            c.arm_conn(&mut self.core);
        }
        Ok(id)
    }

    /// Grants connections to `service` like `template`, with at most `paths_max` paths each way. The template's ids,
    /// paths, stream ids, first numbers and peer's addresses are not looked at.
    pub fn listen(&mut self, service: u16, template: ConnConfig, paths_max: u16) {
        self.listeners.retain(|l| l.service != service);
        self.listeners.push(Listener { service, template, paths_max });
    }

    /// Ends a connection when all that was asked for is done; [`Event::Disconnected`] tells when.
    pub fn disconnect(&mut self, now: Time, conn: ConnId) {
        if let Some(c) = find(&mut self.conns, conn.0) {
            c.disconnect(&mut self.core, now);
        }
    }

    /// Ends a connection on this side at once; what is not done is flushed, the peer is not told.
    pub fn close_connection(&mut self, now: Time, conn: ConnId) {
        if let Some(c) = find(&mut self.conns, conn.0) {
            c.end(&mut self.core, now);
        }
    }

    /// Moves a connection between RTS and SQD. False when it is in neither.
    pub fn modify(&mut self, conn: ConnId, state: ConnState) -> bool {
        let Some(c) = find(&mut self.conns, conn.0) else { return false };
        let movable = |s: ConnState| matches!(s, ConnState::Rts | ConnState::Sqd);
        if !movable(c.state) || !movable(state) {
            return false;
        }
        c.state = state;
        c.requester.wake_all();
        c.activate(&mut self.core);
        true
    }

    /// Closes path `path` of a connection for good: it carries nothing new, and the peer is told when all it sent is
    /// acknowledged; [`Event::PathClosed`] tells the end. False when there is no such path, the connection does not send,
    /// or no other path would be left.
    pub fn close_path(&mut self, now: Time, conn: ConnId, path: u8) -> bool {
        let Some(c) = find(&mut self.conns, conn.0) else { return false };
        if !c.close_path(&mut self.core, now, path.into()) {
            return false;
        }
        c.settle_path(&mut self.core, now, path.into());
        c.keep_a_path(now);
        c.activate(&mut self.core);
        true
    }

    /// Switches path `path` of a connection off for new packets, or on again. False when there is no such path, or it
    /// is closed.
    pub fn deny_path(&mut self, now: Time, conn: ConnId, path: u8, is_denied: bool) -> bool {
        let (core, index) = (&mut self.core, usize::from(path));
        let Some(c) = find(&mut self.conns, conn.0) else { return false };
        let is_closed = c.retired.has(index);
        let Some(p) = c.paths.get_mut(index).filter(|_| !is_closed) else { return false };
        p.deny(is_denied);
        if !is_denied && !c.opening.is_open(index) {
            // The peer would drop what is sent on it.
            p.state = PathState::Unused;
        }
        core.event(Event::Path { conn, path, state: p.state });
        c.settle_path(core, now, index);
        c.keep_a_path(now);
        c.activate(core);
        true
    }

    /// Smallest round trip of a connection in the last periods, over all its paths, ps.
    pub fn min_rtt_ps(&self, conn: ConnId) -> Option<u64> {
        self.conn(conn)?.rtt.min_ps()
    }

    /// State of a connection.
    pub fn conn_state(&self, conn: ConnId) -> Option<ConnState> {
        self.conn(conn).map(|c| c.state)
    }

    /// Paths on which a connection sends.
    pub fn paths(&self, conn: ConnId) -> Option<&PathSet> {
        self.conn(conn).map(|c| &c.paths)
    }

    /// Memory that a connection takes now.
    pub fn footprint(&self, conn: ConnId) -> Option<Footprint> {
        self.conn(conn).map(Connection::footprint)
    }

    fn conn(&self, conn: ConnId) -> Option<&Connection> {
        self.conns.get(conn.0 as usize)?.as_deref()
    }

    /// Asks for an operation.
    pub fn post_send(&mut self, _now: Time, conn: ConnId, stream: u16, wr: SendWr) -> Result<(), PostError> {
        let c = find(&mut self.conns, conn.0).ok_or(PostError::UnknownConn(conn))?;
        c.post_send(&mut self.core, stream, wr)
    }

    /// Posts a receive.
    pub fn post_recv(&mut self, _now: Time, conn: ConnId, stream: u16, wr: RecvWr) -> Result<(), PostError> {
        let c = find(&mut self.conns, conn.0).ok_or(PostError::UnknownConn(conn))?;
        if c.post_recv(&mut self.core, stream, wr)? {
            if let Some(path) = c.last_rx_path {
                c.owe_ack(&mut self.core, path, AckDue::Now);
            }
        }
        Ok(())
    }

    /// A frame arrived at the port of `plane`; it is ignored when there is no such port.
    pub fn on_frame(&mut self, now: Time, plane: u8, frame: &Frame, mem: &mut dyn HostMemory) {
        self.on_frame_parts(now, plane, frame.as_parts(), mem);
    }

    /// As [`on_frame`](Self::on_frame), for a frame whose parts lie elsewhere.
    #[inline]
    pub fn on_frame_parts(&mut self, now: Time, plane: u8, frame: FrameRef<'_>, mem: &mut dyn HostMemory) {
        let core = &mut self.core;
        core.counters.count(Counter::RxFrames);
        core.counters.add(Counter::RxBytes, frame.len_bytes().into());
        let Some(queue) = core.planes.get(usize::from(plane)) else { return };
        if let Some(label) = check_usual(frame, &queue.filter) {
            let arrival = Arrival { nic: self, now, plane, mem };
            if take_usual(frame, &label, arrival).is_some() {
                return;
            }
        }
        self.on_other_frame(now, plane, frame, mem);
    }

    /// A frame arrived that is no usual one.
    #[inline(never)]
    fn on_other_frame(&mut self, now: Time, plane: u8, frame: FrameRef<'_>, mem: &mut dyn HostMemory) {
        let mut packet = Packet::empty();
        match parse_any(frame, &self.core.planes[usize::from(plane)].filter, &mut packet) {
            Ok(()) => {
                self.on_packet(now, plane, &packet, mem);
                self.follow_up(now);
            }
            Err(counter) => self.core.counters.count(counter),
        }
    }

    /// What a packet that was taken brings about elsewhere in the card.
    #[inline]
    fn follow_up(&mut self, now: Time) {
        if self.core.hints.has_news() {
            self.tell_news();
        }
        if self.core.are_reads_awaited {
            self.grant_reads(now);
        }
    }

    /// Acknowledges to senders whose share fell much, so that they need not wait to be told.
    fn tell_news(&mut self) {
        while let Some(row) = self.core.hints.next_news() {
            let Some(c) = find(&mut self.conns, row) else { continue };
            if let Some(path) = c.last_rx_path {
                c.owe_ack(&mut self.core, path, AckDue::Now);
            }
        }
    }

    /// Gives room for reads to the connections that wait for it.
    fn grant_reads(&mut self, now: Time) {
        while let Some((row, grant)) = self.core.reads.next_grant(now) {
            if let Some(c) = find(&mut self.conns, row) {
                c.on_read_grant(&mut self.core, grant);
            }
        }
        self.core.are_reads_awaited = self.core.reads.is_awaited();
        self.core.arm_reads();
    }

    /// The MAC reported a damaged frame.
    pub fn on_damaged_frame(&mut self) {
        self.core.counters.count(Counter::RxFrames);
        self.core.counters.count(Counter::RxMacError);
    }

    fn on_packet(&mut self, now: Time, plane: u8, p: &Packet, mem: &mut dyn HostMemory) {
        if let Body::Cm(opcode) = p.body {
            self.on_cm(now, plane, p, opcode);
            return;
        }
        let Some((c, core)) = self.addressed(now, p.dest, p.pkey) else { return };
        match &p.body {
            Body::Ack(ack) => c.on_ack(core, now, ack, false),
            Body::ProbeRsp(ack) => c.on_ack(core, now, ack, true),
            Body::ProbeReq { snd_nxt, .. } => c.on_probe(core, now, plane, p, *snd_nxt),
            Body::PathCtl(control) => c.on_path_control(core, now, plane, control),
            Body::PortStatus { planes_up, seq, .. } => c.on_port_status(core, now, *planes_up, *seq),
            _ => c.on_sequenced(core, now, plane, p, mem),
        }
    }

    /// The connection to which a packet belongs, unless it takes none.
    #[inline(always)]
    fn addressed(&mut self, now: Time, dest: Qpn, pkey: Pkey) -> Option<(&mut Connection, &mut Core)> {
        let core = &mut self.core;
        let row = dest.get() & core.row_mask;
        let refused = match find(&mut self.conns, row) {
            Some(c) if c.own().id == dest => {
                if c.own().pkey != pkey {
                    Counter::RxBadPkey
                } else if matches!(c.state, ConnState::Error | ConnState::Init) {
                    Counter::RxConnError
                } else {
                    c.heard_at = now;
                    if c.state == ConnState::Rtr {
                        c.on_confirmed(core);
                    }
                    return Some((c, core));
                }
            }
            _ => Counter::RxUnknownConn,
        };
        core.counters.count(refused);
        None
    }

    /// The port of `plane` lost its link, or has it again.
    pub fn set_link(&mut self, now: Time, plane: u8, is_up: bool) {
        let Some(queue) = self.core.planes.get_mut(usize::from(plane)) else { return };
        if core::mem::replace(&mut queue.link_up, is_up) == is_up {
            return;
        }
        // What waits at a port without a link is dealt anew: at this one, and at any other if there was none with a link.
        let (mut control, mut rtx) = queue.take_urgent();
        for dead in self.core.planes.iter_mut().filter(|q| !q.link_up) {
            let (more_control, more_rtx) = dead.take_urgent();
            control.extend(more_control);
            rtx.extend(more_rtx);
        }
        let ports = self.core.cfg.planes.iter().zip(&self.core.planes);
        let line_mbps = ports.filter(|(_, q)| q.link_up).map(|(p, _)| p.rate_mbps).sum();
        self.core.hints.set_line_mbps(line_mbps);
        for item in control {
            // What was meant for this port leaves by another one, except for probes of this very plane.
            if !matches!(item, Control::PlaneProbe { .. }) {
                push_control(&mut self.core, plane, item);
            }
        }
        for (conn, path) in &rtx {
            if let Some(c) = find(&mut self.conns, *conn).filter(|c| usize::from(*path) < c.paths.len()) {
                c.paths.set_rtx_queued((*path).into(), false);
            }
        }
        for c in self.conns.iter_mut().flatten().filter(|c| c.state != ConnState::Error) {
            c.on_link(&mut self.core, now, plane, is_up);
        }
        // Not before the paths stand where they will stay.
        for (conn, path) in rtx {
            if let Some(c) = find(&mut self.conns, conn).filter(|c| usize::from(path) < c.paths.len()) {
                c.settle_path(&mut self.core, now, path.into());
            }
        }
    }

    /// A connection management packet arrived.
    fn on_cm(&mut self, now: Time, plane: u8, p: &Packet, opcode: Opcode) {
        let content = match CmContent::from_bytes(p.payload.bytes().unwrap_or(&[])) {
            Ok(content) => content,
            Err(CmError::Version(_)) if opcode == Opcode::ConnReq && p.dest == CM_QPN => {
                // Who speaks another version can at least read the fixed part.
                let id = nic_spec::wire::Cmth::split(p.payload.bytes().unwrap_or(&[]))
                    .map(|(h, _)| (h.conn_id(), h.nonce()));
                if let Ok((id, nonce)) = id {
                    self.refuse_connection(now, plane, p, &CmContent::new(0, nonce, id), CmStatus::BadVersion);
                }
                return;
            }
            Err(_) => {
                self.core.counters.count(Counter::RxBadLength);
                return;
            }
        };
        if opcode == Opcode::ConnReq {
            if p.dest == CM_QPN {
                self.on_conn_req(now, plane, p, &content);
            } else {
                self.core.counters.count(Counter::RxUnknownConn);
            }
            return;
        }
        let core = &mut self.core;
        let row = p.dest.get() & core.row_mask;
        let found = find(&mut self.conns, row).filter(|c| c.cfg.local_id == p.dest);
        let is_late = found.as_ref().is_none_or(|c| c.has_given_up(content.nonce));
        // It is over here already; the peer need not wait.
        let answer = match opcode {
            Opcode::DiscReq if found.is_none() => Some(Opcode::DiscRep),
            Opcode::ConnRep if is_late && content.status == CmStatus::Ok.code() => Some(Opcode::DiscReq),
            _ => None,
        };
        if let Some(answer) = answer {
            let about = CmContent::new(content.service, content.nonce, p.dest);
            let packet = stray_packet(core, now, p, content.conn_id, answer, &about);
            push_control(core, plane, Control::StrayCm { packet: Box::new(packet) });
        }
        let Some(c) = found else {
            core.counters.count(Counter::RxUnknownConn);
            return;
        };
        if c.cfg.pkey != p.pkey {
            core.counters.count(Counter::RxBadPkey);
            return;
        }
        let planes = core.cfg.planes.len();
        match opcode {
            Opcode::ConnRep => c.on_conn_rep(core, now, &content, planes),
            Opcode::ConnRtu if content.nonce == c.handshake.nonce => c.on_confirmed(core),
            Opcode::DiscReq => c.on_disc_req(core, now, &content),
            Opcode::DiscRep => c.on_disc_rep(core, now, &content),
            _ => {}
        }
    }

    fn on_conn_req(&mut self, now: Time, plane: u8, p: &Packet, content: &CmContent) {
        let is_same = |c: &&mut Box<Connection>| {
            c.handshake.nonce == content.nonce
                && c.cfg.remote_id == content.conn_id
                && c.cfg.addresses.iter().any(|a| a.1.ip == p.net.src.ip)
        };
        if let Some(c) = self.conns.iter_mut().flatten().find(is_same) {
            // A copy of the request gives a copy of the answer.
            push_control(&mut self.core, plane, Control::Cm { conn: c.index, opcode: Opcode::ConnRep });
            return;
        }
        let Some(at) = self.listeners.iter().position(|l| l.service == content.service) else {
            return self.refuse_connection(now, plane, p, content, CmStatus::NoService);
        };
        if self.listeners[at].template.pkey != p.pkey {
            self.core.counters.count(Counter::RxBadPkey);
            return;
        }
        let Some(local_id) = self.free_id() else {
            return self.refuse_connection(now, plane, p, content, CmStatus::NoResource);
        };
        let granted = self.listeners[at].accept(content, p.pkey, local_id, self.core.cfg.planes.len());
        let opened = granted.and_then(|cfg| self.open_connection(now, cfg).map_err(|_| CmStatus::BadParam));
        match opened {
            Ok(id) => {
                if let Some(c) = find(&mut self.conns, id.0) {
                    c.state = ConnState::Rtr;
                    c.handshake = Handshake::begin(Step::Answering, content.nonce, content.service, now);
                    c.on_handshake_timer(&mut self.core, now);
                    c.arm_conn(&mut self.core);
                }
            }
            Err(status) => self.refuse_connection(now, plane, p, content, status),
        }
    }

    fn refuse_connection(&mut self, now: Time, plane: u8, p: &Packet, content: &CmContent, status: CmStatus) {
        let answer = CmContent { status: status.code(), ..CmContent::new(content.service, content.nonce, CM_QPN) };
        let packet = stray_packet(&self.core, now, p, content.conn_id, Opcode::ConnRep, &answer);
        push_control(&mut self.core, plane, Control::StrayCm { packet: Box::new(packet) });
    }

    /// An id whose row is free; each time another one as far as the width allows.
    fn free_id(&mut self) -> Option<Qpn> {
        let rows = self.core.cfg.conns_max;
        for _ in 0..rows {
            self.drawn = self.drawn.wrapping_add(1);
            let id = Qpn::new(self.drawn.wrapping_add(rows));
            let row = (id.get() & (rows - 1)) as usize;
            // 0 and the id of connection management are never given.
            if id.get() > CM_QPN.get() && self.conns.get(row).is_none_or(Option::is_none) {
                return Some(id);
            }
        }
        None
    }

    /// When [`on_timer`](Self::on_timer) is due.
    pub fn next_timer(&self) -> Option<Time> {
        self.core.timers.next()
    }

    /// Does everything that is due at or before `now`.
    pub fn on_timer(&mut self, now: Time) {
        while let Some((at, key)) = self.core.timers.pop_due(now) {
            let core = &mut self.core;
            match key {
                TimerKey::Path(conn, path) => {
                    if let Some(c) = find(&mut self.conns, conn) {
                        on_path_timer(c, core, now, at, path);
                    }
                }
                TimerKey::Ack(conn, path) => {
                    if let Some(c) = find(&mut self.conns, conn) {
                        c.on_ack_timer(core, now, at, path);
                    }
                }
                TimerKey::Pace(conn) => {
                    if let Some(c) = find(&mut self.conns, conn) {
                        c.on_pace_timer(core, now);
                    }
                }
                TimerKey::Reads => {
                    core.reads.armed = Time::NEVER;
                    self.grant_reads(now);
                }
                TimerKey::Retry(conn) => {
                    if let Some(c) = find(&mut self.conns, conn) {
                        c.on_retry_timer(core, now, at);
                    }
                }
                TimerKey::Conn(conn) => {
                    let Some(c) = find(&mut self.conns, conn) else { continue };
                    c.conn_armed = Time::NEVER;
                    if c.on_handshake_timer(core, now) {
                        self.conns[conn as usize] = None;
                        continue;
                    }
                    if c.state != ConnState::Error {
                        c.on_plane_timer(core, now);
                        c.on_opening_timer(core, now);
                        c.on_closing_timer(core, now);
                        c.on_watch_timer(core, now);
                    }
                    c.arm_conn(core);
                }
            }
        }
    }

    /// Takes the oldest completion of queue `cq`.
    pub fn poll_completion(&mut self, cq: u32) -> Option<Cqe> {
        self.core.pop_completion(cq)
    }

    /// Takes the oldest event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.pop_event()
    }
}

/// The arrival of a frame at a card.
struct Arrival<'a> {
    nic: &'a mut Nic,
    now: Time,
    plane: u8,
    mem: &'a mut dyn HostMemory,
}

impl Usual for Arrival<'_> {
    #[inline(always)]
    fn write(self, label: &Label, part: &WritePart, payload: &Payload) {
        let Self { nic, now, plane, mem } = self;
        if let Some((c, core)) = nic.addressed(now, label.dest(), label.pkey()) {
            c.on_write(core, now, plane, label, part, payload, mem);
        }
        nic.follow_up(now);
    }

    #[inline(always)]
    fn ack(self, label: &Label, ack: &Ack) {
        let Self { nic, now, .. } = self;
        if let Some((c, core)) = nic.addressed(now, label.dest(), label.pkey()) {
            c.on_ack(core, now, ack, false);
        }
        nic.follow_up(now);
    }
}

/// The connection of a row.
pub(crate) fn find(conns: &mut [Option<Box<Connection>>], row: u32) -> Option<&mut Connection> {
    conns.get_mut(row as usize)?.as_deref_mut()
}

fn on_path_timer(c: &mut Connection, core: &mut Core, now: Time, at: Time, path: u8) {
    let index = usize::from(path);
    if index >= c.paths.len() || c.state == ConnState::Error {
        return;
    }
    let armed = c.paths.armed_mut(index);
    if *armed == at {
        *armed = Time::NEVER;
    }
    let srtt_ps = c.rtt.srtt_ps();
    let Some(p) = c.paths.get_mut(index) else { return };
    let action = p.on_timer(now, srtt_ps, &*c.cfg.cc, &c.cfg.transport);
    let plane = p.plane;
    match action {
        TimerAction::None => {}
        TimerAction::Probe => {
            push_control(core, plane, Control::Probe { conn: c.index, path });
            if !c.has_new() {
                if let Some(p) = c.paths.get_mut(index) {
                    p.renew_redundancy();
                }
                c.offer_copies(core);
            }
        }
        TimerAction::Retransmit => core.counters.count(Counter::PathRto),
        TimerAction::Reaim => {
            core.counters.count(Counter::PathRto);
            c.reaim(core, now, index);
        }
    }
    c.settle_path(core, now, index);
}
