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
use crate::config::NicConfig;
use crate::conn_config::ConnConfig;
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::counters::Counters;
use crate::memory::HostMemory;
use crate::mr::MrTable;
use crate::plane::Control;
use crate::send::Next;
use crate::time::Time;
use crate::timer::TimerKey;
use crate::transport::path::TimerAction;
use crate::transport::path_set::PathSet;
use crate::transport::rx_path::AckDue;
use crate::wire::emit::emit_into;
use crate::wire::frame::Frame;
use crate::wire::packet::{Body, Packet};
use crate::wire::parser::{parse, PortFilter};
use crate::work::{ConnId, Cqe, Event, PostError, RecvWr, SendWr};
use alloc::boxed::Box;
use alloc::vec::Vec;
use nic_spec::csr::stats::Counter;

/// A card.
#[derive(Debug)]
pub struct Nic {
    core: Core,
    conns: Vec<Option<Box<Connection>>>,
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
        Self { core: Core::new(cfg), conns: Vec::new() }
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

    /// State of a connection.
    pub fn conn_state(&self, conn: ConnId) -> Option<ConnState> {
        self.conn(conn).map(|c| c.state)
    }

    /// Paths on which a connection sends.
    pub fn paths(&self, conn: ConnId) -> Option<&PathSet> {
        self.conn(conn).map(|c| &c.paths)
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

    /// A frame arrived at the port of `plane`.
    pub fn on_frame(&mut self, now: Time, plane: u8, frame: &Frame, mem: &mut dyn HostMemory) {
        let core = &mut self.core;
        core.counters.count(Counter::RxFrames);
        core.counters.add(Counter::RxBytes, frame.len_bytes().into());
        let mac = core.cfg.planes.get(usize::from(plane)).map(|p| p.mac);
        let filter = PortFilter {
            mac: if core.cfg.promiscuous { None } else { mac },
            udp_dport: core.cfg.udp_dport,
            frame_bytes_max: core.cfg.frame_bytes_max,
            elide_icrc: core.cfg.elide_icrc,
        };
        match parse(frame, &filter) {
            Ok(packet) => self.on_packet(now, plane, &packet, mem),
            Err(counter) => core.counters.count(counter),
        }
    }

    /// The MAC reported a damaged frame.
    pub fn on_damaged_frame(&mut self) {
        self.core.counters.count(Counter::RxFrames);
        self.core.counters.count(Counter::RxMacError);
    }

    fn on_packet(&mut self, now: Time, plane: u8, p: &Packet, mem: &mut dyn HostMemory) {
        let core = &mut self.core;
        let row = p.dest.get() & (core.cfg.conns_max - 1);
        let Some(c) = find(&mut self.conns, row).filter(|c| c.cfg.local_id == p.dest) else {
            core.counters.count(Counter::RxUnknownConn);
            return;
        };
        if c.cfg.pkey != p.pkey {
            core.counters.count(Counter::RxBadPkey);
            return;
        }
        if c.state == ConnState::Error {
            core.counters.count(Counter::RxConnError);
            return;
        }
        match &p.body {
            Body::Ack(ack) => c.on_ack(core, now, ack, false),
            Body::ProbeRsp(ack) => c.on_ack(core, now, ack, true),
            Body::ProbeReq { snd_nxt, .. } => c.on_probe(core, now, plane, p, *snd_nxt),
            Body::PathCtl(control) => c.on_path_control(core, now, plane, control),
            Body::PortStatus { planes_up, seq, .. } => c.on_port_status(core, now, *planes_up, *seq),
            Body::Cm(_) => core.counters.count(Counter::RxUnsupportedOpcode),
            _ => c.on_sequenced(core, now, plane, p, mem),
        }
    }

    /// The port of `plane` lost its link, or has it again.
    pub fn set_link(&mut self, now: Time, plane: u8, is_up: bool) {
        let Some(queue) = self.core.planes.get_mut(usize::from(plane)) else { return };
        if core::mem::replace(&mut queue.link_up, is_up) == is_up {
            return;
        }
        let (control, rtx) = (core::mem::take(&mut queue.control), core::mem::take(&mut queue.rtx));
        let ports = self.core.cfg.planes.iter().zip(&self.core.planes);
        let line_mbps = ports.filter(|(_, q)| q.link_up).map(|(p, _)| p.rate_mbps).sum();
        self.core.hints.set_line_mbps(line_mbps);
        for item in control {
            // What was meant for this port leaves by another one, except for probes of this very plane.
            if !matches!(item, Control::PlaneProbe { .. }) {
                push_control(&mut self.core, plane, item);
            }
        }
        for (conn, path) in rtx {
            if let Some(c) = find(&mut self.conns, conn).filter(|c| usize::from(path) < c.paths.len()) {
                c.paths.set_rtx_queued(path.into(), false);
                c.settle_path(&mut self.core, now, path.into());
            }
        }
        for c in self.conns.iter_mut().flatten().filter(|c| c.state != ConnState::Error) {
            c.on_link(&mut self.core, now, plane, is_up);
        }
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
                        c.pace_armed = Time::NEVER;
                        c.activate(core);
                    }
                }
                TimerKey::Retry(conn) => {
                    if let Some(c) = find(&mut self.conns, conn) {
                        c.on_retry_timer(core, now, at);
                    }
                }
                TimerKey::Conn(conn) => {
                    if let Some(c) = find(&mut self.conns, conn).filter(|c| c.state != ConnState::Error) {
                        c.conn_armed = Time::NEVER;
                        c.on_plane_timer(core, now);
                        c.on_opening_timer(core, now);
                        c.arm_conn(core);
                    }
                }
            }
        }
    }

    /// True when the port of `plane` should be asked. It may still have nothing.
    pub fn wants_transmit(&self, plane: u8) -> bool {
        self.core.planes.get(usize::from(plane)).is_some_and(|q| q.wants_transmit())
    }

    /// The next frame for the port of `plane`, which is free now.
    pub fn poll_transmit(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory) -> Option<Frame> {
        let mut frame = Frame::empty();
        if !self.next_frame(now, plane, mem, &mut frame) {
            return None;
        }
        self.core.counters.count(Counter::TxFrames);
        self.core.counters.add(Counter::TxBytes, frame.len_bytes().into());
        Some(frame)
    }

    /// Fills `out`, which is empty; false when there is nothing to send.
    fn next_frame(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory, out: &mut Frame) -> bool {
        let at = usize::from(plane);
        if !self.core.planes.get(at).is_some_and(|q| q.link_up) {
            return false;
        }
        loop {
            while let Some(control) = self.core.planes[at].control.pop_front() {
                if let Some(packet) = self.build_control(now, plane, control) {
                    emit_into(&packet, packet.payload.clone(), &self.core.emit, out);
                    return true;
                }
            }
            while let Some((conn, path)) = self.core.planes[at].rtx.pop_front() {
                if self.retransmission(now, plane, conn, path, mem, out) {
                    return true;
                }
            }
            if self.new_packet(now, plane, mem, out) {
                return true;
            }
            // Connections that ran out of packets, or of copies, leave markers.
            if self.core.planes[at].control.is_empty() {
                if self.redundant_copy(now, plane, mem, out) {
                    return true;
                }
                if self.core.planes[at].control.is_empty() {
                    return false;
                }
            }
        }
    }

    fn build_control(&mut self, now: Time, plane: u8, control: Control) -> Option<Packet> {
        let core = &mut self.core;
        match control {
            Control::Ack { conn, path } => find(&mut self.conns, conn)?.build_ack(core, now, plane, path, None),
            Control::Nak { conn, path, trigger, reason } => {
                find(&mut self.conns, conn)?.build_ack(core, now, plane, path, Some((trigger, reason)))
            }
            Control::Probe { conn, path } => {
                let c = find(&mut self.conns, conn)?;
                let there = c.paths.get(usize::from(path))?.plane;
                if there != plane && core.planes.get(usize::from(there)).is_some_and(|q| q.link_up) {
                    // Re-aimed since: the probe belongs to the new route.
                    push_control(core, there, control);
                    return None;
                }
                core.counters.count(Counter::TxProbe);
                c.build_probe(core, now, path)
            }
            Control::PortStatus { conn } => Some(find(&mut self.conns, conn)?.build_port_status(core, now, plane)),
            Control::PlaneProbe { conn } => {
                core.counters.count(Counter::TxProbe);
                find(&mut self.conns, conn)?.build_plane_probe(core, now, plane)
            }
            Control::PathCtl { conn, control } => {
                let c = find(&mut self.conns, conn)?;
                let sport = c.draw_port();
                let mut packet = c.control_packet(core, now, plane, sport);
                packet.body = Body::PathCtl(control);
                Some(packet)
            }
        }
    }

    fn retransmission(
        &mut self,
        now: Time,
        plane: u8,
        conn: u32,
        path: u8,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> bool {
        let (core, index) = (&mut self.core, usize::from(path));
        let Some(c) = find(&mut self.conns, conn).filter(|c| index < c.paths.len()) else { return false };
        c.paths.set_rtx_queued(index, false);
        let is_here = c.paths.get(index).is_some_and(|p| p.plane == plane);
        // A path re-aimed since then stands in the queue of its new plane after this.
        let sent = is_here && c.next_retransmission(core, now, index, mem, out);
        c.settle_path(core, now, index);
        sent
    }

    fn new_packet(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory, out: &mut Frame) -> bool {
        let at = usize::from(plane);
        // Each connection is asked once; one for which another plane is due keeps its place.
        for _ in 0..self.core.planes[at].ready.len() {
            let Some(conn) = self.core.planes[at].ready.pop_front() else { return false };
            let core = &mut self.core;
            let Some(c) = find(&mut self.conns, conn) else { continue };
            match c.next_new(core, now, plane, mem, out) {
                Next::Frame => {
                    core.planes[at].ready.push_back(conn);
                    return true;
                }
                Next::OtherPlane => core.planes[at].ready.push_back(conn),
                Next::Blocked => c.in_ready &= !(1 << plane),
                Next::Nothing => {
                    c.in_ready &= !(1 << plane);
                    c.go_idle(core, now);
                }
            }
        }
        false
    }

    fn redundant_copy(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory, out: &mut Frame) -> bool {
        let at = usize::from(plane);
        while let Some(conn) = self.core.planes[at].idle.pop_front() {
            let core = &mut self.core;
            let Some(c) = find(&mut self.conns, conn) else { continue };
            if c.next_redundant(core, now, plane, mem, out) {
                core.planes[at].idle.push_back(conn);
                return true;
            }
            c.in_idle &= !(1 << plane);
            if !c.has_new() {
                c.go_idle(core, now);
            }
        }
        false
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

fn find(conns: &mut [Option<Box<Connection>>], row: u32) -> Option<&mut Connection> {
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
            if c.cfg.transport.idle_redundancy && !c.has_new() {
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
