//! What a connection gives to a free port: retransmissions and new packets, and the frames of both and of copies.

use crate::ack::push_control;
use crate::connection::{ConnState, Connection, TrafficClass};
use crate::core::Core;
use crate::memory::HostMemory;
use crate::plane::Control;
use crate::requester::Place;
use crate::time::{Ticks, Time};
use crate::timer::TimerKey;
use crate::transport::path_set::Choice;
use crate::transport::window::{Cause, Desc, DescKind};
use crate::wire::emit::{emit_body, emit_write, Head, Route};
use crate::wire::frame::{Frame, Payload};
use crate::wire::packet::{Body, Packet};
use nic_spec::consts;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::Psn;

/// Bytes of a full frame beyond its payload, preamble and gap included, as pacing counts them.
pub(crate) const OVERHEAD_BYTES: u32 = 114;
/// Retransmissions may leave while the token bucket is overdrawn by this many packets a plane.
const RTX_DEBT_PKTS: u32 = consts::HINT_DEBT_PKTS;

/// What came of asking a connection for a new packet.
#[derive(Debug)]
pub(crate) enum Next {
    /// A frame was made.
    Frame,
    /// It has something and may not send it yet.
    Blocked,
    /// It has something and another plane is due.
    OtherPlane,
    /// It has nothing.
    Nothing,
}

/// Transmissions of part of an answer after which its loss is believed although it can no longer be repeated.
const GONE_TRIES_MAX: u8 = 4;

/// How a packet is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    New,
    /// Without proof that it was lost.
    Again,
    /// Besides one that is under way.
    Copy,
    /// It was shown to be lost.
    Repair,
}

/// A packet on its way out.
#[derive(Clone, Copy)]
struct Sending {
    now: Time,
    /// The same as the wire's clock.
    tx_ts: Ticks,
    /// Its path.
    index: usize,
    psn: Psn,
    way: Way,
    /// Window of the connection, packets.
    window_pkts: u32,
}

impl Connection {
    /// The ready queue of `plane` no longer holds this connection, because that is what came of asking it.
    #[inline(never)]
    pub fn leave_ready(&mut self, core: &mut Core, now: Time, plane: u8, next: Next) {
        self.in_ready &= !(1 << plane);
        if matches!(next, Next::Nothing) {
            self.go_idle(core, now);
        }
    }

    /// The next new packet for `plane`.
    #[inline(never)]
    pub fn next_new(
        &mut self,
        core: &mut Core,
        now: Time,
        plane: u8,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> Next {
        if !matches!(self.state, ConnState::Rts | ConnState::Sqd) || !self.has_new() {
            return Next::Nothing;
        }
        let in_flight_pkts = self.paths.in_flight_pkts();
        if in_flight_pkts == 0 && !self.pacer.is_unlimited() {
            self.begin_burst(now);
        }
        let window_pkts = self.window_pkts(now);
        if in_flight_pkts >= window_pkts {
            if self.rtt.srtt_ps().is_none() && core::mem::take(&mut self.is_marker_owed) {
                // All that may leave has left; if it is lost, nothing else will tell.
                self.send_markers(core, now);
            }
            return Next::Blocked;
        }
        if !self.is_paced(core, now, 0) {
            return Next::Blocked;
        }
        let index = match self.paths.choose(plane) {
            Choice::Path(index) => index,
            Choice::Closed => return Next::Blocked,
            Choice::OtherPlane => return Next::OtherPlane,
        };
        let Some(desc) = self.next_desc(core, now) else { return Next::Nothing };
        self.leave_crowded_route(core, index);
        let tx_ts = now.ticks(self.cfg.transport.tick_ps);
        let psn = self.paths.send_new(index, now, tx_ts, desc, &self.cfg.transport);
        self.is_marker_owed = true;
        // Before the first round trip the window may depend on what was just taken.
        let window_pkts = if self.rtt.srtt_ps().is_some() { window_pkts } else { self.window_pkts(now) };
        let sending = Sending { now, tx_ts, index, psn, way: Way::New, window_pkts };
        if self.make_data_frame(core, &sending, &desc, mem, out) {
            core.counters.count(Counter::TxData);
            core.counters.add(Counter::TxDataBytes, desc.len.into());
            Next::Frame
        } else {
            self.arm_path(core, index);
            Next::Nothing
        }
    }

    /// A burst begins, under a hint that limited.
    #[cold]
    fn begin_burst(&mut self, now: Time) {
        if self.pacer.is_expired(now) {
            // It was one of many, who may begin again at once.
            self.ramp_pkts = 0;
        }
        if self.cfg.transport.hint_cache_ps > 0 {
            let lifetime_ps = u64::from(consts::HINT_LIFE_SRTTS) * self.rtt.srtt_ps().unwrap_or(0);
            self.pacer.resume(now, lifetime_ps, self.cfg.transport.hint_cache_ps);
        }
    }

    /// True when the token bucket, overdrawn by at most `debt_pkts` a plane, lets a packet go; else its timer is set.
    #[inline]
    pub fn is_paced(&mut self, core: &mut Core, now: Time, debt_pkts: u32) -> bool {
        self.pacer.rate_mbps(now).is_none() || self.has_credit(core, now, debt_pkts)
    }

    #[inline(never)]
    fn has_credit(&mut self, core: &mut Core, now: Time, debt_pkts: u32) -> bool {
        let per_plane = (self.pmtu_bytes() + OVERHEAD_BYTES) * self.paths.plane_count();
        let at = self.pacer.ready_at(now, consts::HINT_BURST_PKTS * per_plane, debt_pkts * per_plane);
        if at > now {
            core.timers.arm(&mut self.pace_armed, at, TimerKey::Pace(self.index));
        }
        at <= now
    }

    /// The token bucket may have credit again.
    pub fn on_pace_timer(&mut self, core: &mut Core, now: Time) {
        self.pace_armed = Time::NEVER;
        if core::mem::take(&mut self.is_rtx_held) {
            (0..self.paths.len()).for_each(|index| self.settle_path(core, now, index));
        }
        if self.has_new() {
            self.activate(core);
        } else {
            self.offer_copies(core);
        }
    }

    /// The next retransmission of path `index`; false when there is none, or it has to wait.
    pub fn next_retransmission(
        &mut self,
        core: &mut Core,
        now: Time,
        index: usize,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> bool {
        if self.is_rtx_held || !self.is_paced(core, now, RTX_DEBT_PKTS) {
            self.is_rtx_held = true;
            return false;
        }
        loop {
            let Some(path) = self.paths.get_mut(index) else { return false };
            let Some((psn, desc)) = path.peek_retransmit() else { return false };
            if !self.requester.is_held(&desc, now) {
                break;
            }
            if path.park(psn) {
                self.parked.push((index as u8, psn));
            }
        }
        let sent = self.paths.get_mut(index).and_then(|p| p.send_retransmit(now, &self.cfg.transport));
        let Some((psn, desc, cause)) = sent else { return false };
        self.is_marker_owed = true;
        let (way, counter) = match cause {
            Cause::Gap => (Way::Repair, Counter::TxRtxGap),
            Cause::Timer => (Way::Again, Counter::TxRtxRto),
        };
        let is_made = self.data_frame(core, now, index, psn, &desc, way, mem, out);
        core.counters.add(counter, is_made.into());
        if !self.has_new() {
            self.go_idle(core, now);
        }
        is_made
    }

    /// Makes the frame of a packet that leaves once more. False when host memory does not answer; the connection has
    /// failed then.
    #[allow(clippy::too_many_arguments)]
    #[inline(never)]
    pub fn data_frame(
        &mut self,
        core: &mut Core,
        now: Time,
        index: usize,
        psn: Psn,
        desc: &Desc,
        way: Way,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> bool {
        let tx_ts = now.ticks(self.cfg.transport.tick_ps);
        let sending = Sending { now, tx_ts, index, psn, way, window_pkts: self.window_pkts(now) };
        self.make_data_frame(core, &sending, desc, mem, out)
    }

    #[inline(always)]
    fn make_data_frame(
        &mut self,
        core: &mut Core,
        sending: &Sending,
        desc: &Desc,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> bool {
        let Some((part, place)) = self.describe_write(desc) else {
            return self.other_data_frame(core, *sending, desc, mem, out);
        };
        let Some((head, route)) = self.lead(sending, &place) else { return false };
        let Some(payload) = self.fetch(core, sending, desc, &place, mem) else { return false };
        let plane = self.note_sent(core, sending, desc, head.ack_req);
        let Some(template) = self.template(core, plane, TrafficClass::Data) else { return false };
        emit_write(template, route, &head, &part, payload, &core.emit, out);
        true
    }

    /// As [`make_data_frame`](Self::make_data_frame) for what is no WRITE, or one with immediate data.
    #[inline(never)]
    fn other_data_frame(
        &mut self,
        core: &mut Core,
        sending: Sending,
        desc: &Desc,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> bool {
        let Some((body, place)) = self.describe(desc) else { return false };
        let Some((head, route)) = self.lead(&sending, &place) else { return false };
        let Some(payload) = self.fetch(core, &sending, desc, &place, mem) else { return false };
        let plane = self.note_sent(core, &sending, desc, head.ack_req);
        let Some(template) = self.template(core, plane, TrafficClass::Data) else { return false };
        emit_body(template, route, &head, &body, payload, &core.emit, out);
        true
    }

    /// What the headers of a packet say besides its operation.
    #[inline(always)]
    fn lead(&self, sending: &Sending, place: &Place) -> Option<(Head, Route)> {
        let Sending { tx_ts, index, psn, way, window_pkts, .. } = *sending;
        let path = self.paths.get(index)?;
        let path_count = self.paths.len() as u32;
        let route = Route { path: index as u8, epoch: path.epoch, sport: path.sport };
        let outlook = self.requester.outlook();
        // With a small window the sender would wait for an acknowledgement that the receiver holds back.
        let (cwnd_pkts, held_pkts) = (path.cc.cwnd_pkts(), self.cfg.transport.ack_packets);
        let is_window_spent = cwnd_pkts <= held_pkts && path.window.in_flight_pkts() >= cwnd_pkts
            || window_pkts <= held_pkts * path_count && self.paths.in_flight_pkts() >= window_pkts;
        // The last packets each end the burst of their path.
        let ends_burst = outlook.left_bytes <= u64::from(path_count * self.pmtu_bytes());
        let head = Head {
            stream: place.stream,
            pseq: psn,
            tx_ts,
            ack_req: place.is_last || is_window_spent || ends_burst,
            rtx: way != Way::New,
            eob: !(outlook.has_more || self.responder.has_answers()),
        };
        Some((head, route))
    }

    /// The payload of a packet; `None` when its memory was taken away or does not answer.
    #[inline(always)]
    fn fetch(
        &mut self,
        core: &mut Core,
        sending: &Sending,
        desc: &Desc,
        place: &Place,
        mem: &mut dyn HostMemory,
    ) -> Option<Payload> {
        let Some(mut iova) = place.iova.filter(|_| desc.len > 0) else { return Some(Payload::EMPTY) };
        if place.losses != core.mrs.losses() {
            match self.find_payload(core, desc) {
                Some(found) => iova = found,
                None => {
                    self.leave_out(core, sending.index, sending.psn, desc, sending.way);
                    return None;
                }
            }
        }
        match mem.read(iova, desc.len.into()) {
            Ok(payload) => Some(payload),
            Err(_) => {
                core.counters.count(Counter::DmaReadError);
                let stream = self.stream_of(desc);
                self.fail(core, Status::LocDma, stream);
                None
            }
        }
    }

    /// A packet leaves by path `index`: the token bucket pays and the path's timer is set. Returns its plane.
    #[inline(always)]
    fn note_sent(&mut self, core: &mut Core, sending: &Sending, desc: &Desc, ack_req: bool) -> u8 {
        let Sending { now, index, way, .. } = *sending;
        self.pacer.spend(now, u32::from(desc.len) + OVERHEAD_BYTES);
        if self.paths.get(index).is_some_and(|path| path.is_ack_asked != ack_req) {
            self.ask_for_ack(core, index, way, ack_req);
        }
        self.arm_sent(core, index);
        self.paths.get(index).map_or(0, |path| path.plane)
    }

    /// The last packet of path `index` asks for an acknowledgement at once, or not, unlike the one before.
    #[inline(never)]
    fn ask_for_ack(&mut self, core: &mut Core, index: usize, way: Way, ack_req: bool) {
        if way == Way::New {
            // A timer as if nothing had changed, too: one that is early looks at the path anew.
            self.arm_path(core, index);
        }
        if let Some(path) = self.paths.get_mut(index) {
            path.is_ack_asked = ack_req;
        }
    }

    /// A packet cannot be sent because its memory was taken away. A message of this side is not done, so its host has
    /// done wrong. Part of an answer the peer may have, and only the acknowledgement be lost: a probe asks.
    #[cold]
    fn leave_out(&mut self, core: &mut Core, index: usize, psn: Psn, desc: &Desc, way: Way) {
        if desc.kind == DescKind::Message {
            if way != Way::Copy {
                self.fail(core, Status::LocProt, self.stream_of(desc));
            }
            return;
        }
        let Some(path) = self.paths.get(index) else { return };
        let tries = path.window.entry(psn).map_or(0, |e| e.retries);
        if way == Way::New || way == Way::Repair && tries >= GONE_TRIES_MAX {
            self.fail(core, Status::LocProt, None);
            return;
        }
        push_control(core, path.plane, Control::Probe { conn: self.index, path: index as u8 });
    }

    /// The probe of path `path`, which tells the receiver what was sent and asks what arrived.
    pub fn build_probe(&mut self, core: &Core, now: Time, path: u8) -> Option<Packet> {
        let p = self.paths.get(usize::from(path))?;
        let (sport, plane, epoch, snd_nxt) = (p.sport, p.plane, p.epoch, p.window.nxt());
        let mut packet = self.control_packet(core, now, plane, sport);
        packet.body = Body::ProbeReq { snd_nxt, cookie: packet.tx_ts.0 };
        (packet.path, packet.epoch) = (path, epoch);
        Some(packet)
    }

    /// Asks the peer for an acknowledgement, which tells its credit.
    pub fn ask_for_credit(&mut self, core: &mut Core) {
        let Some(at) = self.paths.iter().position(|p| p.is_healthy()) else { return };
        let Some(plane) = self.paths.get(at).map(|p| p.plane) else { return };
        push_control(core, plane, Control::Probe { conn: self.index, path: at as u8 });
    }

    /// Cap of the window: twice what the connection's planes carry in the smallest round trip.
    pub fn update_window_max(&mut self, core: &Core) {
        let Some(min_ps) = self.rtt.min_ps() else { return };
        if min_ps == self.window_for_ps {
            return;
        }
        self.window_for_ps = min_ps;
        let mask = self.paths.plane_mask();
        let rate_mbps: u64 =
            core.cfg.planes.iter().enumerate().filter(|(p, _)| mask >> p & 1 == 1).map(|(_, c)| c.rate_mbps).sum();
        // Mb/s · ps = 10^-6 bits.
        let bits = u128::from(rate_mbps) * u128::from(min_ps) / 1_000_000;
        self.bdp_pkts = u32::try_from(bits.div_ceil(u128::from(self.pmtu_bytes()) * 8)).unwrap_or(u32::MAX);
        self.window_max_pkts =
            self.bdp_pkts.saturating_mul(consts::CONN_WINDOW_BDPS).max(self.cfg.transport.conn_window_min_pkts);
    }
}
