//! The card: queue pairs that take turns at a port, each at its own rate.
//!
//! A port gets one data frame at a time, so that what is sent next is chosen as late as possible; ACKs, NAKs and CNPs go at
//! once. A QP has one UDP source port for ever and one port: that of its hash, alike at both ends, or the next whose cable is
//! up; and it follows its peer when that has moved.

use std::collections::VecDeque;
use std::sync::Arc;

use nic_fabric::workload::{Connection, Endpoint, Event, MessageId, PathGauge, Request, Workload};
use nic_fabric::{Context, Frame};
use nic_spec::consts::UDP_SPORT_MIN;

use crate::config::RoceConfig;
use crate::dcqcn::Dcqcn;
use crate::packet::{parse, Body, Packet, Template};
use crate::requester::{Answer, Requester};
use crate::responder::Responder;

/// What happened at a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoceCounters {
    /// Data packets sent, READ requests included.
    pub tx_data: u64,
    /// Of these, packets sent before; answers to READs that were asked again are not known to be.
    pub tx_again: u64,
    /// Acknowledgements sent.
    pub tx_acks: u64,
    /// NAKs sent.
    pub tx_naks: u64,
    /// CNPs sent.
    pub tx_cnps: u64,
    /// Data packets that were dropped because something before them was missing.
    pub rx_out_of_sequence: u64,
    /// Data packets that had come before.
    pub rx_duplicate: u64,
    /// Frames that are no packet for a QP of this card.
    pub rx_unknown: u64,
    /// Times the requester went back because of a NAK or a gap in an answer.
    pub gaps: u64,
    /// Times it went back because the timer expired.
    pub timeouts: u64,
    /// Rate cuts.
    pub rate_cuts: u64,
    /// Queue pairs in error.
    pub failed_qps: u64,
}

impl RoceCounters {
    /// Name and value of each.
    pub fn entries(&self) -> [(&'static str, u64); 12] {
        [
            ("tx_data", self.tx_data),
            ("tx_again", self.tx_again),
            ("tx_acks", self.tx_acks),
            ("tx_naks", self.tx_naks),
            ("tx_cnps", self.tx_cnps),
            ("rx_out_of_sequence", self.rx_out_of_sequence),
            ("rx_duplicate", self.rx_duplicate),
            ("rx_unknown", self.rx_unknown),
            ("gaps", self.gaps),
            ("timeouts", self.timeouts),
            ("rate_cuts", self.rate_cuts),
            ("failed_qps", self.failed_qps),
        ]
    }
}

/// A queue pair.
struct Qp {
    peer: u32,
    remote_qpn: u32,
    hash: u32,
    port: u16,
    template: Template,
    requester: Requester,
    responder: Responder,
    rate: Dcqcn,
    /// When its rate lets it send again.
    next_send_ps: u64,
    /// It stands in the queue of its port, or its timer will put it there.
    is_queued: bool,
    /// When the timer of its retransmission timeout is due.
    rto_timer_ps: Option<u64>,
    /// When its next CNP may go.
    next_cnp_ps: u64,
    received_bytes: u64,
    is_failed: bool,
}

/// A port.
#[derive(Default)]
struct Port {
    /// QPs with something to send.
    ready: VecDeque<u32>,
    /// A frame is on the line and the port will say when it has left.
    is_busy: bool,
    is_down: bool,
}

/// Timer tokens: the kind in the upper bits, a port or a QP in the lower.
const TOKEN_PORT: u32 = 0;
const TOKEN_PACE: u32 = 1 << 28;
const TOKEN_RTO: u32 = 2 << 28;
const TOKEN_INDEX: u32 = (1 << 28) - 1;

/// A RoCEv2 card at a host of the fabric.
pub struct Roce {
    config: RoceConfig,
    qps: Vec<Qp>,
    ports: Vec<Port>,
    counters: RoceCounters,
    events: Vec<Event>,
    done: Vec<MessageId>,
}

impl Roce {
    /// The card of a host, with a QP for each connection of the workload.
    ///
    /// # Panics
    /// If the workload has no such host or `port_count` is 0.
    pub fn new(config: RoceConfig, workload: &Arc<Workload>, host: u32, port_count: u16) -> Roce {
        assert!(port_count > 0, "a card without ports");
        let dscps = (config.data_dscp, config.cnp_dscp);
        let qp = |connection: &Connection| {
            let Connection { peer, stream, peer_index } = *connection;
            let hash = hash(host, peer, stream);
            let port = (hash >> 16) as u16 % port_count;
            Qp {
                peer,
                remote_qpn: peer_index,
                hash,
                port,
                template: Template::new(host, peer, port, sport(hash), peer_index, dscps),
                requester: Requester::new(),
                responder: Responder::new(),
                rate: Dcqcn::new(config.dcqcn),
                next_send_ps: 0,
                is_queued: false,
                rto_timer_ps: None,
                next_cnp_ps: 0,
                received_bytes: 0,
                is_failed: false,
            }
        };
        Roce {
            qps: workload.connections_of(host).iter().map(qp).collect(),
            ports: (0..port_count).map(|_| Port::default()).collect(),
            counters: RoceCounters::default(),
            events: Vec::new(),
            done: Vec::new(),
            config,
        }
    }

    /// What happened so far.
    pub fn counters_now(&self) -> RoceCounters {
        RoceCounters { rate_cuts: self.qps.iter().map(|qp| qp.rate.cuts()).sum(), ..self.counters }
    }

    /// Puts a QP that has something to send into the queue of its port, or lets its timer do it.
    fn activate(&mut self, ctx: &mut Context<'_>, index: u32) {
        let qp = &mut self.qps[index as usize];
        if qp.is_queued || qp.is_failed || !(qp.requester.has_packet(&self.config) || qp.responder.has_response()) {
            return;
        }
        qp.is_queued = true;
        if qp.next_send_ps > ctx.now_ps() {
            ctx.set_timer(qp.next_send_ps, TOKEN_PACE | index);
        } else {
            let port = qp.port;
            self.ports[port as usize].ready.push_back(index);
            self.serve(ctx, port);
        }
    }

    /// Sends the next frame of a port, if it is free.
    fn serve(&mut self, ctx: &mut Context<'_>, port: u16) {
        while !self.ports[port as usize].is_busy {
            let Some(index) = self.ports[port as usize].ready.pop_front() else { return };
            self.qps[index as usize].is_queued = false;
            if self.send_one(ctx, index) {
                self.ports[port as usize].is_busy = true;
                if !self.config.is_lossless {
                    ctx.set_timer(ctx.port_free_at_ps(port), TOKEN_PORT | u32::from(port));
                }
            }
            self.activate(ctx, index);
        }
    }

    /// Sends one frame of a QP. False if it has none.
    fn send_one(&mut self, ctx: &mut Context<'_>, index: u32) -> bool {
        let now_ps = ctx.now_ps();
        let qp = &mut self.qps[index as usize];
        let mut ack = None;
        let (psn, body) = if let Some(response) = qp.responder.take_response(&self.config) {
            ack = response.ack;
            (response.psn, response.body)
        } else if let Some(packet) = qp.requester.take_packet(now_ps, &self.config) {
            self.counters.tx_again += u64::from(packet.is_retransmission);
            (packet.psn, packet.body)
        } else {
            return false;
        };
        self.counters.tx_data += 1;
        let frame = qp.template.frame(low(psn), body);
        let wire_bytes = u64::from(frame.wire_bytes());
        qp.rate.on_sent(wire_bytes, now_ps);
        qp.next_send_ps = qp.rate.next_send_ps(wire_bytes, now_ps);
        let port = qp.port;
        ctx.send(port, frame);
        if let Some((psn, body)) = ack {
            self.answer(ctx, index, psn, body);
        }
        self.set_rto_timer(ctx, index);
        true
    }

    fn set_rto_timer(&mut self, ctx: &mut Context<'_>, index: u32) {
        let qp = &mut self.qps[index as usize];
        let Some(deadline_ps) = qp.requester.deadline_ps() else { return };
        if qp.rto_timer_ps.is_none_or(|at_ps| deadline_ps < at_ps) {
            qp.rto_timer_ps = Some(deadline_ps);
            ctx.set_timer(deadline_ps, TOKEN_RTO | index);
        }
    }

    /// Sends a frame without payload.
    fn answer(&mut self, ctx: &mut Context<'_>, index: u32, psn: u64, body: Body) {
        match body {
            Body::Ack => self.counters.tx_acks += 1,
            Body::NakSequence => self.counters.tx_naks += 1,
            _ => self.counters.tx_cnps += 1,
        }
        let qp = &self.qps[index as usize];
        ctx.send(qp.port, qp.template.frame(low(psn), body));
    }

    fn take(&mut self, ctx: &mut Context<'_>, packet: &Packet) {
        let (index, now_ps) = (packet.qpn, ctx.now_ps());
        let qp = &mut self.qps[index as usize];
        if packet.is_marked && now_ps >= qp.next_cnp_ps {
            qp.next_cnp_ps = now_ps + self.config.cnp_interval_ps;
            self.answer(ctx, index, 0, Body::Cnp);
        }
        let qp = &mut self.qps[index as usize];
        let (config, done) = (&self.config, &mut self.done);
        match packet.body {
            Body::Write { .. } | Body::ReadRequest { .. } => {
                let reaction = qp.responder.on_request(packet.psn, packet.body, config);
                qp.received_bytes += u64::from(reaction.bytes);
                self.counters.rx_out_of_sequence += u64::from(reaction.is_out_of_sequence);
                self.counters.rx_duplicate += u64::from(reaction.is_duplicate);
                self.events.extend(reaction.arrived.map(Event::Arrived));
                if let Some((psn, body)) = reaction.answer {
                    self.answer(ctx, index, psn, body);
                }
            }
            Body::ReadResponse { len, .. } => match qp.requester.on_response(packet.psn, len, now_ps, config, done) {
                Answer::Taken(len) => qp.received_bytes += u64::from(len),
                Answer::Duplicate => self.counters.rx_duplicate += 1,
                Answer::Gap => {
                    self.counters.rx_out_of_sequence += 1;
                    self.counters.gaps += 1;
                }
            },
            Body::Ack => qp.requester.on_ack(packet.psn, now_ps, config, done),
            Body::NakSequence => {
                self.counters.gaps += u64::from(qp.requester.on_nak(packet.psn, now_ps, config, done));
            }
            Body::Cnp => qp.rate.on_cnp(now_ps),
        }
        self.events.extend(self.done.drain(..).map(Event::Completed));
        self.set_rto_timer(ctx, index);
        self.activate(ctx, index);
    }

    fn on_rto_timer(&mut self, ctx: &mut Context<'_>, index: u32) {
        let now_ps = ctx.now_ps();
        let qp = &mut self.qps[index as usize];
        if qp.rto_timer_ps == Some(now_ps) {
            qp.rto_timer_ps = None;
        }
        if qp.requester.deadline_ps().is_some_and(|deadline_ps| deadline_ps <= now_ps) {
            self.counters.timeouts += 1;
            if !qp.requester.on_timeout(now_ps, &self.config) {
                qp.is_failed = true;
                self.counters.failed_qps += 1;
                self.events.extend(qp.requester.fail().into_iter().map(Event::Failed));
            }
        }
        self.set_rto_timer(ctx, index);
        self.activate(ctx, index);
    }

    /// Moves QPs to the first port from their own on whose cable is up, if there is one.
    fn place_qps(&mut self, ctx: &mut Context<'_>) {
        let count = self.ports.len() as u16;
        for index in 0..self.qps.len() as u32 {
            let home = (self.qps[index as usize].hash >> 16) as u16 % count;
            let up = (0..count).map(|step| (home + step) % count).find(|port| !self.ports[*port as usize].is_down);
            self.move_qp(ctx, index, up.unwrap_or(home));
        }
        (0..count).for_each(|port| self.serve(ctx, port));
    }

    fn move_qp(&mut self, ctx: &mut Context<'_>, index: u32, port: u16) {
        let qp = &mut self.qps[index as usize];
        if port == qp.port {
            return;
        }
        let dscps = (self.config.data_dscp, self.config.cnp_dscp);
        qp.template = Template::new(ctx.node().0, qp.peer, port, sport(qp.hash), qp.remote_qpn, dscps);
        let old = std::mem::replace(&mut qp.port, port);
        // If it is not in the old queue, its timer or the next activation puts it into the new one.
        let ready = &mut self.ports[old as usize].ready;
        if let Some(place) = ready.iter().position(|other| *other == index) {
            ready.remove(place);
            self.ports[port as usize].ready.push_back(index);
            self.serve(ctx, port);
        }
    }
}

/// Entropy of a QP, the same at both ends.
fn hash(host: u32, peer: u32, stream: u16) -> u32 {
    let mut word = u64::from(host.min(peer)) << 40 ^ u64::from(host.max(peer)) << 16 ^ u64::from(stream);
    for _ in 0..2 {
        // The finaliser of MurmurHash3.
        word = (word ^ word >> 33).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
        word ^= word >> 33;
    }
    word as u32
}

fn sport(hash: u32) -> u16 {
    UDP_SPORT_MIN | (hash as u16 & !UDP_SPORT_MIN)
}

fn low(psn: u64) -> u32 {
    psn as u32 & 0xff_ffff
}

impl Endpoint for Roce {
    fn post(&mut self, ctx: &mut Context<'_>, request: &Request) {
        let qp = &mut self.qps[request.connection as usize];
        if qp.is_failed {
            self.events.push(Event::Failed(request.message));
            return;
        }
        qp.requester.post(request.message, request.verb, request.bytes, &self.config);
        self.activate(ctx, request.connection);
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        match parse(&frame).filter(|packet| (packet.qpn as usize) < self.qps.len()) {
            Some(packet) => {
                if port != self.qps[packet.qpn as usize].port && !self.ports[port as usize].is_down {
                    self.move_qp(ctx, packet.qpn, port);
                }
                self.take(ctx, &packet);
            }
            None => self.counters.rx_unknown += 1,
        }
    }

    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32) {
        let index = token & TOKEN_INDEX;
        match token & !TOKEN_INDEX {
            TOKEN_PORT => {
                let port = index as u16;
                let free_at_ps = ctx.port_free_at_ps(port);
                if free_at_ps > ctx.now_ps() {
                    // An answer went between.
                    ctx.set_timer(free_at_ps, token);
                } else {
                    self.ports[port as usize].is_busy = false;
                    self.serve(ctx, port);
                }
            }
            TOKEN_PACE => {
                self.qps[index as usize].is_queued = false;
                self.activate(ctx, index);
            }
            _ => self.on_rto_timer(ctx, index),
        }
    }

    fn on_port_state(&mut self, ctx: &mut Context<'_>, port: u16, is_up: bool) {
        let Some(entry) = self.ports.get_mut(port as usize) else { return };
        entry.is_down = !is_up;
        // What was on the line of a port with classes is gone and nobody says that it has left.
        entry.is_busy &= !self.config.is_lossless;
        self.place_qps(ctx);
    }

    fn on_port_idle(&mut self, ctx: &mut Context<'_>, port: u16) {
        if self.config.is_lossless {
            self.ports[port as usize].is_busy = false;
            self.serve(ctx, port);
        }
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    fn received_bytes(&self, connection: u32) -> u64 {
        self.qps[connection as usize].received_bytes
    }

    fn gauges(&self, connection: u32, gauges: &mut Vec<PathGauge>) {
        let qp = &self.qps[connection as usize];
        let pmtu_bytes = u64::from(self.config.pmtu_bytes);
        let window_bytes = match self.config.window_packets {
            u32::MAX => u64::MAX,
            packets => u64::from(packets) * pmtu_bytes,
        };
        gauges.push(PathGauge {
            path: 0,
            window_bytes,
            in_flight_bytes: qp.requester.in_flight_packets() * pmtu_bytes,
            rate_mbps: qp.rate.last_rate_kbps() / 1_000,
        });
    }

    fn counters(&self, show: &mut dyn FnMut(&'static str, u64)) {
        self.counters_now().entries().into_iter().for_each(|(name, value)| show(name, value));
    }
}
