//! The planes as one connection sees them: which carry its packets, which are being tried again.
//!
//! A plane goes down when the port loses its link, when the peer says so (PORT_STATUS), or when every path with data on
//! it has timed out and one of them twice. Its paths are re-aimed to other planes in one sweep and the peer is told on
//! every plane that lives. A plane that is down is probed at intervals by fresh source ports; some good answers in a row
//! bring it back, and its paths return. The two views are independent, so that neither side can lock the other out.

use crate::ack::push_control;
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::plane::Control;
use crate::time::Time;
use crate::timer::TimerKey;
use crate::wire::packet::{Body, Packet};
use crate::work::{ConnId, Event};
use alloc::vec::Vec;
use nic_spec::consts;
use nic_spec::csr::stats::Counter;

/// Times that a report is repeated after the last plane came back: it is not acknowledged.
const REPORT_REPEATS: u8 = consts::REPORT_REPEATS as u8;
/// Added to a path's epoch in the probes of a plane that the path does not use.
const PROBE_EPOCH: u8 = 8;

/// One plane of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneHealth {
    /// This side's own judgement.
    is_up: bool,
    /// What the peer said last.
    is_peer_up: bool,
    good_probes: u8,
    is_probe_out: bool,
    /// Epoch of the last probe: the path by which it asks may have taken another route when the answer comes.
    probe_epoch: u8,
    probed_at: Time,
}

/// The planes of one connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnPlanes {
    health: Vec<PlaneHealth>,
    /// Number of the last report of this side, and of the peer.
    report_seq: u16,
    peer_seq: Option<u16>,
    repeats: u8,
    /// When planes are probed and reports repeated again.
    next_at: Time,
}

impl ConnPlanes {
    pub fn new(count: usize) -> Self {
        let up = PlaneHealth {
            is_up: true,
            is_peer_up: true,
            good_probes: 0,
            is_probe_out: false,
            probe_epoch: 0,
            probed_at: Time::ZERO,
        };
        Self { health: alloc::vec![up; count], report_seq: 0, peer_seq: None, repeats: 0, next_at: Time::NEVER }
    }

    /// When [`Connection::on_plane_timer`] has something to do.
    pub const fn next_at(&self) -> Time {
        self.next_at
    }

    fn is_usable(&self, core: &Core, plane: usize) -> bool {
        core.planes.get(plane).is_some_and(|q| q.link_up)
            && self.health.get(plane).is_some_and(|h| h.is_up && h.is_peer_up)
    }
}

impl Connection {
    /// Planes that carry packets of this connection; those with a link if no better is known.
    pub fn usable_planes(&self, core: &Core) -> Vec<u8> {
        let all = 0..self.planes.health.len();
        let good: Vec<u8> = all.clone().filter(|p| self.planes.is_usable(core, *p)).map(|p| p as u8).collect();
        if good.is_empty() {
            all.filter(|p| core.planes[*p].link_up).map(|p| p as u8).collect()
        } else {
            good
        }
    }

    /// The connection begins to send: paths leave the ports that have no link now, and the peer is told.
    pub fn leave_dead_ports(&mut self, core: &mut Core, now: Time) {
        for plane in 0..self.planes.health.len() {
            if !core.planes[plane].link_up {
                self.planes.health[plane].is_up = false;
                self.leave_plane(core, now, plane as u8);
            }
        }
    }

    /// A path of `plane` timed out. True when the whole plane went down over it.
    pub fn judge_plane(&mut self, core: &mut Core, now: Time, plane: u8) -> bool {
        let at = usize::from(plane);
        if self.usable_planes(core).iter().all(|p| *p == plane) || !self.planes.is_usable(core, at) {
            return false;
        }
        let with_data = self.paths.iter().filter(|p| p.plane == plane && p.window.in_flight_pkts() > 0);
        let (mut count, mut silent, mut twice) = (0, 0, 0);
        for p in with_data {
            count += 1;
            silent += u32::from(p.silent_rtos() > 0);
            twice += u32::from(p.silent_rtos() > 1);
        }
        if count < 2 || silent < count || twice == 0 {
            return false;
        }
        self.planes.health[at].is_up = false;
        self.leave_plane(core, now, plane);
        true
    }

    /// The port of `plane` lost or found its link.
    pub fn on_link(&mut self, core: &mut Core, now: Time, plane: u8, is_up: bool) {
        if self.state == ConnState::Init {
            // The peer's id is not known: there is nobody to tell, and nothing is under way.
            return;
        }
        let Some(h) = self.planes.health.get_mut(usize::from(plane)) else { return };
        // A link that comes up proves only the cable; the plane is probed first.
        (h.is_up, h.good_probes, h.is_probe_out) = (false, 0, false);
        if is_up {
            self.planes.next_at = now;
            self.arm_conn(core);
            // Paths that had nowhere else to go try at once instead of when their timers say, and none stays at a port
            // without a link: new packets would wait for its turn.
            for i in 0..self.paths.len() {
                let Some(path) = self.paths.get(i) else { continue };
                let is_stranded = !core.planes.get(usize::from(path.plane)).is_some_and(|q| q.link_up);
                if is_stranded || path.plane == plane && path.window.in_flight_pkts() > 0 {
                    self.move_path(core, now, i, plane);
                }
            }
        } else {
            self.leave_plane(core, now, plane);
        }
    }

    /// A report of the peer arrived.
    pub fn on_port_status(&mut self, core: &mut Core, now: Time, planes_up: u16, seq: u16) {
        let is_new = self.planes.peer_seq.is_none_or(|old| (1..1 << 15).contains(&seq.wrapping_sub(old)));
        if !is_new {
            return;
        }
        self.planes.peer_seq = Some(seq);
        // All of it at once: no path goes to a plane of which the same report says that it is down.
        let mut changed = 0u16;
        for (plane, h) in self.planes.health.iter_mut().enumerate() {
            let is_peer_up = planes_up >> plane & 1 == 1;
            changed |= u16::from(core::mem::replace(&mut h.is_peer_up, is_peer_up) != is_peer_up) << plane;
        }
        for plane in (0..self.planes.health.len()).filter(|plane| changed >> plane & 1 == 1) {
            if planes_up >> plane & 1 == 1 {
                self.return_to_plane(core, now, plane as u8);
            } else {
                self.leave_plane(core, now, plane as u8);
            }
        }
    }

    /// Re-aims every path of a plane that is down to the others, and says so.
    fn leave_plane(&mut self, core: &mut Core, now: Time, plane: u8) {
        core.event(Event::Plane { conn: ConnId(self.index), plane, is_up: false });
        core.counters.count(Counter::PlaneDown);
        let others: Vec<u8> = self.usable_planes(core).into_iter().filter(|p| *p != plane).collect();
        if !others.is_empty() && self.state != ConnState::Error {
            let mut turn = 0;
            for i in 0..self.paths.len() {
                if self.paths.get(i).is_some_and(|p| p.plane == plane) {
                    self.move_path(core, now, i, others[turn % others.len()]);
                    turn += 1;
                }
            }
        }
        self.report_planes(core, now);
    }

    /// Brings the paths of a plane home that can be used again.
    fn return_to_plane(&mut self, core: &mut Core, now: Time, plane: u8) {
        if !self.planes.is_usable(core, usize::from(plane)) || self.state == ConnState::Error {
            return;
        }
        core.event(Event::Plane { conn: ConnId(self.index), plane, is_up: true });
        for i in 0..self.paths.len() {
            let is_astray = self.paths.get(i).is_some_and(|p| p.plane != plane);
            if is_astray && self.home.get(i) == Some(&plane) {
                self.move_path(core, now, i, plane);
            }
        }
        // Paths that had no plane to go to have one now.
        let good = self.usable_planes(core);
        for i in 0..self.paths.len() {
            let Some(there) = self.paths.get(i).map(|p| usize::from(p.plane)) else { continue };
            if !self.planes.is_usable(core, there) {
                self.move_path(core, now, i, good[i % good.len()]);
            }
        }
    }

    /// Tells the peer on every usable plane which planes this side can use, now and some times more.
    fn report_planes(&mut self, core: &mut Core, now: Time) {
        self.planes.report_seq = self.planes.report_seq.wrapping_add(1);
        self.planes.repeats = REPORT_REPEATS;
        self.planes.next_at = self.planes.next_at.min(now.after_ps(self.cfg.transport.probe_interval_ps));
        self.send_report(core);
        self.arm_conn(core);
    }

    fn send_report(&mut self, core: &mut Core) {
        for plane in self.usable_planes(core) {
            push_control(core, plane, Control::PortStatus { conn: self.index });
        }
    }

    /// The report that leaves by `plane`.
    pub fn build_port_status(&mut self, core: &Core, now: Time, plane: u8) -> Packet {
        let own = self.planes.health.iter().enumerate().filter(|(p, h)| h.is_up && core.planes[*p].link_up);
        let planes_up = own.fold(0, |mask, (p, _)| mask | 1 << p);
        let sport = self.draw_port();
        let mut packet = self.control_packet(core, now, plane, sport);
        packet.body = Body::PortStatus { planes_up, seq: self.planes.report_seq, cookie: 0 };
        packet
    }

    /// Probes the planes that are down and repeats the report, if it is time.
    pub fn on_plane_timer(&mut self, core: &mut Core, now: Time) {
        if now < self.planes.next_at {
            return;
        }
        let (mut any_down, mut any_good) = (false, false);
        let interval_ps = self.cfg.transport.probe_interval_ps;
        let answer_ps = interval_ps.max(4 * self.rtt.srtt_ps().unwrap_or(0));
        for plane in 0..self.planes.health.len() {
            if !core.planes[plane].link_up || self.planes.is_usable(core, plane) {
                continue;
            }
            any_down = true;
            let h = &mut self.planes.health[plane];
            if h.is_probe_out && now.since_ps(h.probed_at) < answer_ps {
                // The answer may still come: nothing is known of the round trip while nothing was sent.
                any_good |= h.good_probes > 0;
                continue;
            }
            h.probed_at = now;
            if core::mem::replace(&mut h.is_probe_out, true) {
                h.good_probes = 0;
            }
            any_good |= h.good_probes > 0;
            push_control(core, plane as u8, Control::PlaneProbe { conn: self.index });
        }
        if self.planes.repeats > 0 {
            // While a plane is down by this side's judgement, the report is repeated without end.
            let own_down = self.planes.health.iter().any(|h| !h.is_up);
            self.planes.repeats -= u8::from(!own_down);
            self.send_report(core);
        }
        self.planes.next_at = match (any_down || self.planes.repeats > 0, any_good) {
            (true, true) => now.after_ps((interval_ps / 8).max(4 * self.rtt.srtt_ps().unwrap_or(0))),
            (true, false) => now.after_ps(interval_ps),
            (false, _) => Time::NEVER,
        };
        self.arm_conn(core);
    }

    /// The probe of a plane that is down: asks on the first path, in an epoch that the path does not use.
    pub fn build_plane_probe(&mut self, core: &Core, now: Time, plane: u8) -> Option<Packet> {
        let path = self.first_path();
        let first = self.paths.get(path)?;
        let (epoch, snd_nxt) = ((first.epoch + PROBE_EPOCH) & 15, first.window.nxt());
        self.planes.health.get_mut(usize::from(plane))?.probe_epoch = epoch;
        let sport = self.draw_port();
        let mut packet = self.control_packet(core, now, plane, sport);
        packet.body = Body::ProbeReq { snd_nxt, cookie: packet.tx_ts.0 };
        (packet.path, packet.epoch) = (path as u8, epoch);
        Some(packet)
    }

    /// An answer to a probe arrived that says it was sent by `plane` in `epoch` of path `index`.
    pub fn on_plane_probe_answer(&mut self, core: &mut Core, now: Time, index: usize, plane: u8, epoch: u8) {
        let at = usize::from(plane);
        if index != self.first_path() || self.planes.is_usable(core, at) {
            return;
        }
        let Some(h) = self.planes.health.get_mut(at).filter(|h| h.probe_epoch == epoch) else { return };
        if !core::mem::take(&mut h.is_probe_out) {
            return;
        }
        h.good_probes += 1;
        if h.good_probes < self.cfg.transport.probe_good {
            let soon = now.after_ps(self.cfg.transport.probe_interval_ps / 8);
            self.planes.next_at = self.planes.next_at.min(soon);
            self.arm_conn(core);
            return;
        }
        (h.is_up, h.is_peer_up, h.good_probes) = (true, true, 0);
        self.return_to_plane(core, now, plane);
        self.report_planes(core, now);
    }

    /// Sets the timer of slow affairs.
    pub fn arm_conn(&mut self, core: &mut Core) {
        let mut at = self.handshake.next_at();
        if self.state != ConnState::Error {
            at = at.min(self.planes.next_at()).min(self.opening.next_at()).min(self.watch.next_at());
            at = at.min(self.retired.next_at());
        }
        core.timers.arm(&mut self.conn_armed, at, TimerKey::Conn(self.index));
    }
}
