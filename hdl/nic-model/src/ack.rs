//! Acknowledgements, both sides: what the receiver owes and says, what the sender learns.

use crate::connection::{Connection, TrafficClass};
use crate::core::Core;
use crate::memory::HostMemory;
use crate::plane::Control;
use crate::responder::{Refusal, WriteRequest};
use crate::send::OVERHEAD_BYTES;
use crate::time::{Time, NS_PS};
use crate::timer::TimerKey;
use crate::transport::path::{AckContext, AckInfo};
use crate::transport::rate_hint::Inbound;
use crate::transport::rx_path::{AckDue, Arrival, Trigger, Verdict};
use crate::wire::emit::{emit_ack, Head, Route};
use crate::wire::frame::{Frame, Payload};
use crate::wire::packet::{Ack, Body, Label, Message, Packet, WritePart};
use nic_spec::consts::{HINT_LIFE_SRTTS, HOLD_UNIT_NS, SYNDROME_ACK};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::Psn;
use nic_spec::wire::{NakReason, Opcode};

/// Unit of the residency, ps.
const HOLD_UNIT_PS: u64 = HOLD_UNIT_NS as u64 * NS_PS;

fn message(body: &Body) -> Option<&Message> {
    match body {
        Body::Write(m, _) | Body::Send(m, _) | Body::ReadReq(m, ..) | Body::Flush(m, _) => Some(m),
        Body::AtomicReq { message, .. } => Some(message),
        _ => None,
    }
}

#[inline(always)]
fn trigger(now: Time, port: u8, label: &Label) -> Trigger {
    Trigger {
        pseq: label.pseq(),
        tx_ts: label.tx_ts(),
        arrived: now,
        epoch: label.epoch(),
        plane: label.plane(),
        port,
        ce: label.is_marked(),
        rtx: label.rtx(),
        dup: false,
        is_probe: false,
    }
}

/// What a sequenced packet asks for.
trait Request {
    /// On success the packet may be acknowledged.
    fn carry_out(self, c: &mut Connection, core: &mut Core, mem: &mut dyn HostMemory) -> Result<(), Refusal>;
}

impl Request for WriteRequest<'_> {
    #[inline(always)]
    fn carry_out(self, c: &mut Connection, core: &mut Core, mem: &mut dyn HostMemory) -> Result<(), Refusal> {
        c.on_write_part(core, self, mem)
    }
}

impl Request for &Packet {
    #[inline(always)]
    fn carry_out(self, c: &mut Connection, core: &mut Core, mem: &mut dyn HostMemory) -> Result<(), Refusal> {
        c.on_request(core, self, mem)
    }
}

impl Connection {
    /// A part of a WRITE without immediate data arrived at `port`.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    pub fn on_write(
        &mut self,
        core: &mut Core,
        now: Time,
        port: u8,
        label: &Label,
        part: &WritePart,
        payload: &Payload,
        mem: &mut dyn HostMemory,
    ) {
        let len_bytes = payload.len_bytes();
        let request = WriteRequest { stream: label.stream(), part, payload, len_bytes };
        self.on_data(core, now, port, label, len_bytes, part.last(), request, mem);
    }

    /// Another sequenced packet arrived at `port`.
    #[inline(never)]
    pub fn on_sequenced(&mut self, core: &mut Core, now: Time, port: u8, p: &Packet, mem: &mut dyn HostMemory) {
        let is_last = message(&p.body).is_some_and(|m| m.last);
        self.on_data(core, now, port, &p.label(), p.payload.len_bytes(), is_last, p, mem);
    }

    /// A sequenced packet arrived at `port`; `request` carries out what it asks for.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    fn on_data(
        &mut self,
        core: &mut Core,
        now: Time,
        port: u8,
        label: &Label,
        len_bytes: u32,
        is_last: bool,
        request: impl Request,
        mem: &mut dyn HostMemory,
    ) {
        let path = label.path();
        let at = usize::from(path);
        let Some(row) = self.rx_paths.get(at).filter(|row| row.is_open()) else {
            core.counters.count(Counter::RxUnknownPath);
            return;
        };
        if label.is_marked() {
            core.counters.count(Counter::RxCe);
        }
        match row.check(label.pseq()) {
            Verdict::OutOfWindow => core.counters.count(Counter::RxOutOfWindow),
            Verdict::Duplicate => self.on_duplicate(core, now, port, label, len_bytes, is_last),
            Verdict::Accept => match request.carry_out(self, core, mem) {
                Ok(()) => {
                    core.counters.count(Counter::RxData);
                    core.counters.add(Counter::RxDataBytes, len_bytes.into());
                    let mut ack_now = label.ack_req() || is_last;
                    if core.has_hints && len_bytes > 0 {
                        let packet = Inbound {
                            wire_bytes: len_bytes + OVERHEAD_BYTES,
                            is_marked: label.is_marked(),
                            is_end: label.eob(),
                            sent: label.tx_ts(),
                        };
                        ack_now |= core.hints.on_data(now, self.hint_index as usize, &packet);
                    }
                    self.last_rx_path = Some(path);
                    let arrival = Arrival { trigger: trigger(now, port, label), len_bytes, ack_now };
                    let due = self.rx_paths[at].commit(&arrival, &self.cfg.transport);
                    self.owe_ack(core, path, due);
                }
                // It put the connection into error.
                Err(Refusal::Drop) => core.counters.count(Counter::RxConnError),
                Err(Refusal::Nak(reason)) => self.refuse(core, now, path, trigger(now, port, label), reason),
            },
        }
    }

    #[inline(never)]
    fn on_duplicate(&mut self, core: &mut Core, now: Time, port: u8, label: &Label, len_bytes: u32, is_last: bool) {
        core.counters.count(Counter::RxDuplicate);
        let trigger = Trigger { dup: true, ..trigger(now, port, label) };
        let arrival = Arrival { trigger, len_bytes, ack_now: label.ack_req() || is_last };
        let path = label.path();
        let due = self.rx_paths[usize::from(path)].duplicate(&arrival, &self.cfg.transport);
        self.owe_ack(core, path, due);
    }

    /// A probe arrived: it is answered at once.
    pub fn on_probe(&mut self, core: &mut Core, now: Time, port: u8, p: &Packet, snd_nxt: Psn) {
        let mut trigger = trigger(now, port, &p.label());
        (trigger.is_probe, trigger.pseq) = (true, snd_nxt - 1);
        let Some(row) = self.rx_paths.get_mut(usize::from(p.path)).filter(|row| row.is_open()) else {
            core.counters.count(Counter::RxUnknownPath);
            return;
        };
        row.probe(trigger);
        self.owe_ack(core, p.path, AckDue::Now);
    }

    /// Queues the acknowledgement of `path` at once, or sets its timer.
    #[inline]
    pub fn owe_ack(&mut self, core: &mut Core, path: u8, due: AckDue) {
        let index = self.index;
        let Some(row) = self.rx_paths.get_mut(usize::from(path)) else { return };
        match due {
            AckDue::Later => {
                let deadline = row.deadline();
                core.timers.arm(&mut row.armed, deadline, TimerKey::Ack(index, path));
            }
            AckDue::Now if row.ack_queued => {}
            AckDue::Now => {
                row.ack_queued = true;
                let port = row.trigger().port;
                push_control(core, port, Control::Ack { conn: index, path });
            }
        }
    }

    /// The acknowledgement timer of `path` came due at `at`.
    pub fn on_ack_timer(&mut self, core: &mut Core, now: Time, at: Time, path: u8) {
        let Some(row) = self.rx_paths.get_mut(usize::from(path)) else { return };
        if row.armed == at {
            row.armed = Time::NEVER;
        }
        let deadline = row.deadline();
        if deadline <= now {
            self.owe_ack(core, path, AckDue::Now);
        } else if deadline != Time::NEVER {
            self.owe_ack(core, path, AckDue::Later);
        }
    }

    #[inline(never)]
    fn refuse(&mut self, core: &mut Core, now: Time, path: u8, trigger: Trigger, reason: NakReason) {
        core.counters.refuse(reason);
        if now < self.nak_free_at {
            return;
        }
        self.nak_free_at = now.after_ps(self.cfg.transport.nak_interval_ps);
        push_control(core, trigger.port, Control::Nak { conn: self.index, path, trigger, reason: reason.code() });
    }

    /// Makes the acknowledgement of `path` as its row stands now, or the refusal of `refused`.
    #[inline(never)]
    pub fn build_ack(
        &mut self,
        core: &mut Core,
        now: Time,
        port: u8,
        path: u8,
        refused: Option<(Trigger, u8)>,
        out: &mut Frame,
    ) -> bool {
        let credit = self.responder.credit();
        let Some(row) = self.rx_paths.get_mut(usize::from(path)) else { return false };
        let trigger = refused.map_or(*row.trigger(), |(t, _)| t);
        if refused.is_none() {
            row.ack_queued = false;
            row.acknowledged();
        }
        let hint = core.has_hints.then(|| core.hints.tell(self.hint_index as usize)).filter(|(_, mbps)| *mbps != 0);
        let ack = Ack {
            ce: trigger.ce,
            dup: trigger.dup,
            rtxe: trigger.rtx,
            apath: path,
            plane: trigger.plane,
            epoch: trigger.epoch,
            syndrome: refused.and_then(|(_, r)| NakReason::try_from(r).ok()).map_or(SYNDROME_ACK, NakReason::syndrome),
            cum: row.cum(),
            trig: trigger.pseq,
            ts_echo: trigger.tx_ts,
            hold: u16::try_from(now.since_ps(trigger.arrived) / HOLD_UNIT_PS).unwrap_or(u16::MAX),
            ce_cnt: row.ce_cnt(),
            hint,
            credit,
            sack: row.map(),
            nak: refused.map(|(_, reason)| (reason, 0)),
        };
        let sport = row.sport();
        core.counters.count(match (&ack.nak, ack.sack.is_empty()) {
            (Some(_), _) => Counter::TxNak,
            (None, true) => Counter::TxAckShort,
            (None, false) => Counter::TxAckLong,
        });
        let head = Head::new(now.ticks(self.cfg.transport.tick_ps));
        let opcode = if trigger.is_probe && refused.is_none() { Opcode::ProbeRsp } else { Opcode::Ack };
        let Some(template) = self.template(core, port, TrafficClass::Control) else { return false };
        emit_ack(template, Route { path, epoch: 0, sport }, &head, opcode, &ack, &core.emit, out);
        true
    }

    /// An acknowledgement, a refusal or the answer to a probe arrived.
    pub fn on_ack(&mut self, core: &mut Core, now: Time, ack: &Ack, is_probe: bool) {
        core.counters.count(Counter::RxAck);
        let index = usize::from(ack.apath);
        let (cwnd_sum, path_count) = (self.paths.cwnd_pkts(), self.paths.len() as u32);
        let Some(path) = self.paths.get_mut(index) else {
            core.counters.count(Counter::RxUnknownPath);
            return;
        };
        let info = AckInfo {
            cum: ack.cum,
            sack: ack.sack,
            ts_echo: ack.ts_echo,
            hold_ps: (ack.hold != u16::MAX).then_some(u64::from(ack.hold) * HOLD_UNIT_PS),
            ce_cnt: ack.ce_cnt,
            epoch: ack.epoch,
            dup: ack.dup,
            rtxe: ack.rtxe,
            is_data: !is_probe && ack.nak.is_none(),
            trig: ack.trig,
        };
        let cfg = &self.cfg.transport;
        // The sum is capped, but a path below its share may grow: it may have come late.
        let may_grow = cwnd_sum < self.window_max_pkts || path.cc.cwnd_pkts() * path_count < self.window_max_pkts;
        let ctx = AckContext {
            now,
            may_grow,
            reorder_ticks: self.reorder.ticks(),
            conn_srtt_ps: self.rtt.srtt_ps(),
            cc: &*self.cfg.cc,
            cfg,
        };
        let (acked, mut first) = (&mut self.acked, None);
        let outcome = path.on_ack(&info, &ctx, |desc, count| match first {
            // One is nearly always all.
            None => first = Some((desc, count)),
            Some(_) => acked.push((desc, count)),
        });
        let Ok(outcome) = outcome else {
            self.acked.clear();
            core.counters.count(Counter::RxBadAck);
            return;
        };
        let is_first_sample = outcome.rtt_ps.is_some() && self.rtt.srtt_ps().is_none();
        if let Some(sample_ps) = outcome.rtt_ps {
            self.rtt.sample(now, sample_ps, cfg.min_rtt_period_ps);
        }
        let srtt_ps = self.rtt.srtt_ps().unwrap_or(cfg.rto_init_ps);
        let is_out_of_order = outcome.late_ticks.is_some() || outcome.was_spurious;
        if is_out_of_order || self.reorder.ticks() > 0 || cfg.reorder_of_srtt_q8 > 0 {
            self.reorder.on_ack(now, &outcome, srtt_ps, cfg);
        }
        core.losses.on_ack(now, outcome.acked_pkts, outcome.lost_pkts + outcome.single_pkts);
        if outcome.ce_pkts > 0 {
            self.last_ce = Some(now);
        } else if self.last_ce.is_some_and(|at| now.since_ps(at) > srtt_ps) {
            // An answer without a mark, a round trip later: the queue is gone. Silence alone does not say so.
            self.last_ce = None;
        }
        if outcome.ce_pkts == 0 && info.epoch == path.epoch {
            if let Some(good) = self.good_ports.get_mut(usize::from(path.plane)) {
                good.note(path.sport);
            }
        }
        if let Some((seq, mbps)) = ack.hint {
            self.pacer.on_hint(now, seq, mbps, u64::from(HINT_LIFE_SRTTS) * srtt_ps);
        }
        if let Some((stream, limit)) = ack.credit {
            self.requester.on_credit(stream, limit);
        }
        if outcome.acked_pkts > 0 {
            let first = self.ramp_pkts.max(self.begin_pkts(cfg.conn_ramp_pkts));
            self.ramp_pkts = first.saturating_add(if is_first_sample { 0 } else { 2 * outcome.acked_pkts });
        }
        if let Some((desc, count)) = first {
            self.on_acked(core, &desc, count);
        }
        if !self.acked.is_empty() {
            self.on_others_acked(core);
        }
        if let Some((reason, _)) = ack.nak {
            self.on_nak(core, now, index, ack.trig, reason);
        }
        self.settle_path(core, now, index);
        if is_first_sample {
            // The other paths armed their timers before any round trip was known.
            (0..self.paths.len()).for_each(|other| self.arm_path(core, other));
        }
        self.update_window_max(core);
        self.bootstrap_paths(core, now);
        if is_probe {
            self.on_plane_probe_answer(core, now, index, ack.plane, ack.epoch);
        }
        if self.has_new() {
            self.activate(core);
        } else {
            if outcome.single_pkts > 0 {
                self.offer_copies(core);
            }
            if self.in_idle == 0 {
                self.go_idle(core, now);
            }
        }
    }

    #[inline(never)]
    fn on_others_acked(&mut self, core: &mut Core) {
        let mut acked = core::mem::take(&mut self.acked);
        for (desc, count) in acked.drain(..) {
            self.on_acked(core, &desc, count);
        }
        self.acked = acked;
    }

    /// The receiver refused packet `trig` of path `index`.
    #[inline(never)]
    fn on_nak(&mut self, core: &mut Core, now: Time, index: usize, trig: Psn, code: u8) {
        core.counters.count(Counter::RxNak);
        let Ok(reason) = NakReason::try_from(code) else {
            core.counters.count(Counter::RxBadAck);
            return;
        };
        let entry = self.paths.get(index).and_then(|p| p.window.entry(trig)).copied();
        let Some(entry) = entry else { return };
        if reason.is_fatal() {
            let status = match reason {
                NakReason::Rkey | NakReason::Pd | NakReason::Range | NakReason::Access => Status::RemAccess,
                _ => Status::RemInvReq,
            };
            let stream = self.stream_of(&entry.desc);
            self.fail(core, status, stream);
            return;
        }
        let until = now.after_ps(self.cfg.transport.rnr_ps);
        if let Some((stream, count)) = self.hold_message(&entry.desc, until) {
            if count > self.cfg.transport.rnr_retry_limit {
                self.fail(core, Status::RnrRetryExc, Some(stream));
                return;
            }
        }
        if self.paths.get_mut(index).is_some_and(|p| p.park(trig)) {
            self.parked.push((index as u8, trig));
        }
        core.timers.arm(&mut self.retry_armed, until, TimerKey::Retry(self.index));
    }

    /// The wait after a refusal may be over, or credit is to be asked for.
    pub fn on_retry_timer(&mut self, core: &mut Core, now: Time, at: Time) {
        if self.retry_armed == at {
            self.retry_armed = Time::NEVER;
        }
        self.requester.release(now);
        for (index, psn) in core::mem::take(&mut self.parked) {
            if let Some(path) = self.paths.get_mut(usize::from(index)) {
                path.resume(now, psn);
            }
            self.settle_path(core, now, usize::from(index));
        }
        // The timer serves the first that needs it; holds that last longer need it again.
        if let Some(at) = self.requester.next_release() {
            core.timers.arm(&mut self.retry_armed, at, TimerKey::Retry(self.index));
        }
        if self.requester.wants_credit() {
            if self.paths.in_flight_pkts() == 0 {
                self.ask_for_credit(core);
            }
            let next = now.after_ps(self.cfg.transport.rnr_ps);
            core.timers.arm(&mut self.retry_armed, next, TimerKey::Retry(self.index));
        }
        self.activate(core);
    }
}

/// Puts a control packet into the queue of `port`, or of the first port whose link is up if that one's is not.
pub(crate) fn push_control(core: &mut Core, port: u8, control: Control) {
    let at = usize::from(port);
    let at = match core.planes.get(at) {
        Some(queue) if queue.link_up => at,
        _ => core.planes.iter().position(|q| q.link_up).unwrap_or(0),
    };
    if let Some(queue) = core.planes.get_mut(at) {
        queue.push_control(control);
    }
}
