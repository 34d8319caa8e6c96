//! Waiting for the peer: who only waits has nothing under way whose timer would tell that the peer is gone.
//!
//! A request that was acknowledged and not answered, a message that lacks credit, and a message of the peer of which
//! the rest is missing when the connection ends: in all of them it is the peer's turn. Any packet of it is a sign of
//! life. After a silence it is probed, by the paths in turn, then by other routes, and given up in the end.

use crate::ack::push_control;
use crate::cm::Step;
use crate::connection::Connection;
use crate::core::Core;
use crate::plane::Control;
use crate::time::Time;
use crate::transport::path::PathState;
use nic_spec::consts::ANSWER_WAIT_SRTTS;
use nic_spec::desc::Status;

/// Probes in a row that take the paths' own routes; later ones take others.
const OWN_ROUTE_PROBES: u8 = 2;

/// The watch of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    next_at: Time,
    /// Probes since the peer was last heard.
    silent_probes: u8,
    /// Whose turn it is among the paths.
    turn: u8,
    /// Bit p: one of these probes left by plane p.
    tried_planes: u16,
}

impl Watch {
    /// Nothing is waited for.
    pub const fn new() -> Self {
        Self { next_at: Time::NEVER, silent_probes: 0, turn: 0, tried_planes: 0 }
    }

    /// When [`Connection::on_watch_timer`] has something to do.
    pub const fn next_at(&self) -> Time {
        self.next_at
    }
}

impl Connection {
    /// It is the peer's turn now, whatever this side sends.
    fn awaits_peer(&self) -> bool {
        let is_draining = self.handshake.step == Step::Draining;
        let is_owed = self.requester.streams.iter().any(|s| s.requests > 0);
        is_owed || self.requester.wants_credit() || is_draining && self.responder.awaits_packets()
    }

    fn watch_ps(&self) -> u64 {
        // Who only receives may never have measured a round trip.
        let srtt_ps = self.rtt.srtt_ps().unwrap_or(self.cfg.transport.rto_init_ps);
        self.cfg.transport.answer_wait_ps.max(u64::from(ANSWER_WAIT_SRTTS).saturating_mul(srtt_ps))
    }

    /// This side begins to wait for something of the peer.
    pub fn watch_peer(&mut self, core: &mut Core, now: Time) {
        if self.watch.next_at == Time::NEVER && self.awaits_peer() {
            self.watch.next_at = now.after_ps(self.watch_ps());
            (self.watch.silent_probes, self.watch.tried_planes) = (0, 0);
            self.arm_conn(core);
        }
    }

    /// Probes the peer if it was silent for too long, or gives it up.
    pub fn on_watch_timer(&mut self, core: &mut Core, now: Time) {
        if now < self.watch.next_at {
            return;
        }
        self.watch.next_at = Time::NEVER;
        if !self.awaits_peer() {
            return;
        }
        let wait_ps = self.watch_ps();
        let heard_until = self.heard_at.after_ps(wait_ps);
        if self.paths.in_flight_pkts() > 0 || heard_until > now {
            // What is under way has timers of its own.
            (self.watch.silent_probes, self.watch.tried_planes) = (0, 0);
            self.watch.next_at = if heard_until > now { heard_until } else { now.after_ps(wait_ps) };
            return;
        }
        // One plane that lives is enough, so each is tried.
        if self.watch.silent_probes > self.cfg.transport.retry_limit && self.untried_plane(core).is_none() {
            self.fail(core, Status::RetryExc, None);
            return;
        }
        self.watch.next_at = now.after_ps(wait_ps);
        match self.probe_peer(core, now) {
            Some(plane) => self.watch.tried_planes |= 1 << plane,
            // No path that the peer opened: no plane brings anything.
            None => self.watch.tried_planes = u16::MAX,
        }
        self.watch.silent_probes = self.watch.silent_probes.saturating_add(1);
    }

    /// A plane that carries the connection and by which no probe left since the peer was last heard.
    fn untried_plane(&self, core: &Core) -> Option<u8> {
        self.usable_planes(core).into_iter().find(|p| self.watch.tried_planes >> p & 1 == 0)
    }

    /// A probe by the next path, which takes another route when those that were there brought nothing: by a plane that
    /// was not tried if its own one was. Returns the plane.
    fn probe_peer(&mut self, core: &mut Core, now: Time) -> Option<u8> {
        let count = self.paths.len();
        let from = usize::from(self.watch.turn) % count.max(1);
        let open = (0..count).map(|i| (from + i) % count).filter(|i| self.opening.is_open(*i));
        let state = |i: usize| self.paths.get(i).map_or(PathState::Unused, |p| p.state);
        let mut used = open.clone().filter(|i| state(*i) != PathState::Unused && state(*i) != PathState::Denied);
        let index = used.next().or_else(|| open.clone().next())?;
        self.watch.turn = (index + 1) as u8;
        if self.watch.silent_probes >= OWN_ROUTE_PROBES {
            let own = self.next_plane(&self.usable_planes(core), index);
            let is_tried = self.watch.tried_planes >> own & 1 == 1;
            let plane = self.untried_plane(core).filter(|_| is_tried).unwrap_or(own);
            self.move_path(core, now, index, plane);
        }
        let plane = self.paths.get(index)?.plane;
        push_control(core, plane, Control::Probe { conn: self.index, path: index as u8 });
        Some(plane)
    }
}
