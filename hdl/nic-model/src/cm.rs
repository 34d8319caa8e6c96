//! Connections by packets: CONN_REQ, CONN_REP, CONN_RTU to begin, DISC_REQ and DISC_REP to end.
//!
//! ```text
//! connect    --CONN_REQ-->  listener           repeated after 1, 2, 4 ... ms, 8 times, until answered
//!            <--CONN_REP--  RTR                the same; a copy of the request gives a copy of the answer
//! RTS        --CONN_RTU-->  RTS                or the first data packet
//! disconnect: nothing new begins (SQD); when all is done --DISC_REQ--> <--DISC_REP--, id in quarantine
//! ```
//! A nonce that the asker draws names the attempt in every packet, so that late copies of an earlier one do no harm.

use crate::ack::push_control;
use crate::conn_config::{spread_port, ConnConfig, PathConfig, StreamConfig};
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::plane::Control;
use crate::time::{Time, NS_PS};
use crate::wire::cm::CmContent;
use crate::wire::frame::Payload;
use crate::wire::packet::{Body, Network, Packet};
use crate::work::{ConnId, Event};
use nic_spec::consts;
use nic_spec::desc::Status;
use nic_spec::num::{Pkey, Psn, Qpn};
use nic_spec::wire::{CmStatus, Opcode, CM_QPN, ECN_ECT0};

/// Times that a packet without an answer is sent.
const TRIES_MAX: u8 = consts::CM_TRIES as u8;
/// Wait before the second time; it doubles each time.
const WAIT_PS: u64 = consts::CM_WAIT_NS as u64 * NS_PS;
/// Streams that one request may ask for.
const STREAMS_MAX: usize = 1024;

/// Where a connection stands in its beginning or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing to say.
    Idle,
    /// CONN_REQ is out.
    Asking,
    /// CONN_REP is out.
    Answering,
    /// It ends when all is done.
    Draining,
    /// DISC_REQ is out.
    Ending,
    /// Its row is not used again before this.
    Quarantine(Time),
}

/// Beginning and end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake {
    pub step: Step,
    pub nonce: u64,
    pub service: u16,
    tries: u8,
    next_at: Time,
}

impl Handshake {
    /// A connection that was agreed on by other means.
    pub const fn none() -> Self {
        Self { step: Step::Idle, nonce: 0, service: 0, tries: 0, next_at: Time::NEVER }
    }

    /// A connection that begins with `step`.
    pub const fn begin(step: Step, nonce: u64, service: u16, now: Time) -> Self {
        Self { step, nonce, service, tries: 0, next_at: now }
    }

    /// When something is due.
    pub const fn next_at(&self) -> Time {
        self.next_at
    }
}

/// Who waits for requests.
#[derive(Clone, Debug)]
pub(crate) struct Listener {
    pub service: u16,
    /// What holds for every connection: all but ids, peer's addresses, paths and streams.
    pub template: ConnConfig,
    /// Paths each way, at most.
    pub paths_max: u16,
}

/// A packet that belongs to no connection, built at once.
pub(crate) fn stray_packet(
    core: &Core,
    now: Time,
    asked: &Packet,
    dest: Qpn,
    opcode: Opcode,
    content: &CmContent,
) -> Packet {
    Packet {
        net: Network {
            src: asked.net.dst,
            dst: asked.net.src,
            is_ipv6: asked.net.is_ipv6,
            dscp: asked.net.dscp,
            ecn: ECN_ECT0,
            hop_limit: core.cfg.hop_limit,
            sport: asked.net.sport,
        },
        pkey: asked.pkey,
        dest,
        ack_req: false,
        rtx: false,
        eob: false,
        pseq: Psn::new(0),
        path: 0,
        plane: asked.plane,
        epoch: 0,
        stream: 0,
        tx_ts: now.ticks(crate::config::TransportConfig::default().tick_ps),
        body: Body::Cm(opcode),
        payload: Payload::from_bytes(&content.to_bytes()),
    }
}

impl Listener {
    /// The connection that `request` asks for, with `local_id` on this side.
    pub fn accept(
        &self,
        request: &CmContent,
        pkey: Pkey,
        local_id: Qpn,
        planes: usize,
    ) -> Result<ConnConfig, CmStatus> {
        let bad = CmStatus::BadParam;
        let mut cfg = ConnConfig { local_id, remote_id: request.conn_id, pkey, ..self.template.clone() };
        let pmtu = request.pmtu_log2.filter(|p| (10..=13).contains(p)).ok_or(bad)?;
        cfg.pmtu_log2 = pmtu.min(cfg.pmtu_log2);
        let count = request.paths.filter(|n| (1..=256).contains(n)).ok_or(bad)?.min(self.paths_max.max(1));
        let (psn, msn, rsn) = request.first.ok_or(bad)?;
        if request.streams.is_empty() || request.streams.len() > STREAMS_MAX || request.streams.contains(&0) {
            return Err(bad);
        }
        let like = cfg.streams.first().copied().unwrap_or(StreamConfig::new(1, 0));
        // Receives are posted after the connection is there, so the peer has no credit yet.
        let stream = |id: &u16| StreamConfig { id: *id, first_msn: msn, first_rsn: rsn, peer_limit: Some(rsn), ..like };
        cfg.streams = request.streams.iter().map(stream).collect();
        set_peer_addresses(&mut cfg, request).ok_or(bad)?;
        set_paths(&mut cfg, count, psn, planes);
        Ok(cfg)
    }
}

/// Takes over the peer's addresses. The connection uses the planes from 0 on up to the first on which the peer has none;
/// `None` when there is no such plane.
fn set_peer_addresses(cfg: &mut ConnConfig, content: &CmContent) -> Option<()> {
    let of_plane = |plane: usize| content.addresses.iter().find(|a| usize::from(a.0) == plane);
    cfg.is_ipv6 = of_plane(0)?.1;
    let both = cfg.addresses.iter().enumerate().map_while(|(plane, own)| Some((own.0, of_plane(plane)?.2)));
    cfg.addresses = both.collect();
    (!cfg.addresses.is_empty()).then_some(())
}

/// `count` paths each way that begin with `first`, dealt to the planes both sides have.
fn set_paths(cfg: &mut ConnConfig, count: u16, first: Psn, planes: usize) {
    let planes = planes.min(cfg.addresses.len().max(1));
    let id = cfg.local_id.get();
    let path = |i: u16| PathConfig {
        plane: (usize::from(i) % planes) as u8,
        sport: spread_port(id, i.into()),
        epoch: 0,
        first,
    };
    cfg.tx_paths = (0..count).map(path).collect();
    cfg.rx_paths = (0..count).map(path).collect();
}

impl Connection {
    /// The connection management packet of the present step.
    pub fn build_cm(&mut self, core: &Core, now: Time, plane: u8, opcode: Opcode) -> Packet {
        let h = self.handshake;
        let mut content = CmContent::new(h.service, h.nonce, self.cfg.local_id);
        if matches!(opcode, Opcode::ConnReq | Opcode::ConnRep) {
            let first = self.cfg.tx_paths.first().map_or(Psn::new(0), |p| p.first);
            let stream = self.cfg.streams.first().copied().unwrap_or(StreamConfig::new(1, 0));
            content.pmtu_log2 = Some(self.cfg.pmtu_log2);
            content.paths = Some(self.cfg.tx_paths.len() as u16);
            content.streams = self.cfg.streams.iter().map(|s| s.id).collect();
            content.first = Some((first, stream.first_msn, stream.first_rsn));
            let own = self.cfg.addresses.iter().enumerate();
            content.addresses = own.map(|(p, a)| (p as u8, self.cfg.is_ipv6, a.0)).collect();
        }
        let sport = self.draw_port();
        let mut packet = self.control_packet(core, now, plane, sport);
        packet.body = Body::Cm(opcode);
        if opcode == Opcode::ConnReq {
            packet.dest = CM_QPN;
        }
        packet.payload = Payload::from_bytes(&content.to_bytes());
        packet
    }

    fn say(&mut self, core: &mut Core, opcode: Opcode) {
        // Another plane each time, in case one does not carry.
        let planes = self.usable_planes(core);
        let plane = planes.get(usize::from(self.handshake.tries) % planes.len().max(1)).copied().unwrap_or(0);
        push_control(core, plane, Control::Cm { conn: self.index, opcode });
    }

    /// Says again what is not answered, if it is time. True when the row is free.
    pub fn on_handshake_timer(&mut self, core: &mut Core, now: Time) -> bool {
        if now < self.handshake.next_at {
            return false;
        }
        let opcode = match self.handshake.step {
            Step::Idle => {
                self.handshake.next_at = Time::NEVER;
                return false;
            }
            Step::Quarantine(_) => return true,
            Step::Asking => Opcode::ConnReq,
            Step::Answering => Opcode::ConnRep,
            Step::Draining if self.is_drained() => {
                (self.handshake.step, self.handshake.tries) = (Step::Ending, 0);
                Opcode::DiscReq
            }
            Step::Draining => {
                self.handshake.next_at = now.after_ps(WAIT_PS / 10);
                self.watch_peer(core, now);
                return false;
            }
            Step::Ending => Opcode::DiscReq,
        };
        if self.handshake.tries == TRIES_MAX {
            match self.handshake.step {
                // The peer is gone; this side ends alone.
                Step::Ending => self.end(core, now),
                _ => self.give_up(core, now, CmStatus::NoService),
            }
            return false;
        }
        self.handshake.next_at = now.after_ps(WAIT_PS << self.handshake.tries);
        self.handshake.tries += 1;
        self.say(core, opcode);
        false
    }

    /// True when nothing is under way in either direction.
    fn is_drained(&self) -> bool {
        let is_done_here = self.requester.is_quiet() && self.paths.in_flight_pkts() == 0;
        is_done_here && !self.responder.has_work() && !self.responder.awaits_packets()
    }

    /// CONN_REP arrived: the connection is there, or refused.
    pub fn on_conn_rep(&mut self, core: &mut Core, now: Time, content: &CmContent, planes: usize) {
        if content.nonce != self.handshake.nonce {
            return;
        }
        match self.handshake.step {
            Step::Asking => {}
            // A copy: the confirmation was lost.
            Step::Idle if self.state == ConnState::Rts => return self.say(core, Opcode::ConnRtu),
            _ => return,
        }
        let status = match CmStatus::try_from(content.status) {
            Ok(CmStatus::Ok) => self.take_grant(core, now, content, planes),
            Ok(refusal) => Err(refusal),
            Err(_) => Err(CmStatus::BadParam),
        };
        match status {
            Ok(()) => {
                self.handshake.step = Step::Idle;
                self.handshake.next_at = Time::NEVER;
                self.state = ConnState::Rts;
                self.say(core, Opcode::ConnRtu);
                self.leave_dead_ports(core, now);
                core.event(Event::Connected { conn: ConnId(self.index), service: self.handshake.service });
                self.activate(core);
            }
            Err(status) => self.give_up(core, now, status),
        }
    }

    fn give_up(&mut self, core: &mut Core, now: Time, status: CmStatus) {
        core.event(Event::ConnectFailed { conn: ConnId(self.index), status });
        self.rest(core, now);
    }

    fn take_grant(&mut self, core: &mut Core, now: Time, c: &CmContent, planes: usize) -> Result<(), CmStatus> {
        let bad = CmStatus::BadParam;
        let pmtu = c.pmtu_log2.filter(|p| (10..=self.cfg.pmtu_log2).contains(p)).ok_or(bad)?;
        let count = c.paths.filter(|n| (1..=self.cfg.tx_paths.len() as u16).contains(n)).ok_or(bad)?;
        let first = self.cfg.tx_paths.first().map_or(Psn::new(0), |p| p.first);
        let mut cfg = ConnConfig { remote_id: c.conn_id, pmtu_log2: pmtu, ..self.cfg.clone() };
        for s in &mut cfg.streams {
            s.peer_limit = Some(s.first_rsn);
        }
        set_peer_addresses(&mut cfg, c).ok_or(bad)?;
        set_paths(&mut cfg, count, first, planes);
        self.restart(core, now, cfg);
        Ok(())
    }

    /// CONN_RTU or a data packet arrived: the peer knows that the connection is there.
    pub fn on_confirmed(&mut self, core: &mut Core) {
        if self.handshake.step == Step::Answering {
            self.handshake.step = Step::Idle;
            self.handshake.next_at = Time::NEVER;
            self.state = ConnState::Rts;
            core.event(Event::Connected { conn: ConnId(self.index), service: self.handshake.service });
            self.activate(core);
        }
    }

    /// The host wants the connection to end when all that was asked for is done.
    pub fn disconnect(&mut self, core: &mut Core, now: Time) {
        match self.handshake.step {
            // Whom to tell is not known yet; a grant that still comes is answered by DISC_REQ.
            Step::Asking => self.end(core, now),
            Step::Idle | Step::Answering => {
                self.handshake.step = Step::Draining;
                self.handshake.next_at = now;
                self.arm_conn(core);
            }
            Step::Draining | Step::Ending | Step::Quarantine(_) => {}
        }
    }

    /// True when a grant of the attempt `nonce` is of no use any more: the attempt is over.
    pub fn has_given_up(&self, nonce: u64) -> bool {
        self.handshake.nonce != nonce || matches!(self.handshake.step, Step::Quarantine(_))
    }

    /// The connection is over on this side: what is left is flushed, the id rests.
    pub fn end(&mut self, core: &mut Core, now: Time) {
        if !matches!(self.handshake.step, Step::Quarantine(_)) {
            core.event(Event::Disconnected { conn: ConnId(self.index) });
            self.rest(core, now);
        }
    }

    fn rest(&mut self, core: &mut Core, now: Time) {
        let was_error = self.state == ConnState::Error;
        self.state = ConnState::Error;
        if !was_error {
            self.clear(core, Status::WrFlush, None);
        }
        core.hints.remove(self.hint_index as usize);
        let rest_ps = core.cfg.quarantine_ps.max(2 * self.rtt.srtt_ps().unwrap_or(0));
        let until = now.after_ps(rest_ps);
        self.handshake.step = Step::Quarantine(until);
        self.handshake.next_at = until;
        self.arm_conn(core);
    }

    /// DISC_REQ arrived.
    pub fn on_disc_req(&mut self, core: &mut Core, now: Time, content: &CmContent) {
        if content.nonce == self.handshake.nonce && content.conn_id == self.cfg.remote_id {
            self.say(core, Opcode::DiscRep);
            if self.handshake.step == Step::Answering {
                // The host never heard of it.
                self.give_up(core, now, CmStatus::NoService);
            } else {
                self.end(core, now);
            }
        }
    }

    /// DISC_REP arrived.
    pub fn on_disc_rep(&mut self, core: &mut Core, now: Time, content: &CmContent) {
        if content.nonce == self.handshake.nonce && self.handshake.step == Step::Ending {
            self.end(core, now);
        }
    }
}
