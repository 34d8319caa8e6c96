//! Leaving a bad route: a path takes another UDP source port, and another plane when its own does not answer. A crowded
//! route is left between two bursts.

use crate::connection::{draw_port, ConnState, Connection};
use crate::core::Core;
use crate::time::Time;
use crate::transport::path::PathState;
use crate::work::{ConnId, Event};
use alloc::vec::Vec;
use nic_spec::consts::GOOD_PORTS;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;

const PORTS: usize = GOOD_PORTS as usize;

/// Source ports that worked lately, of one plane.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GoodPorts {
    ports: [u16; PORTS],
    next: u8,
}

impl GoodPorts {
    /// A packet sent by `port` was acknowledged unmarked.
    pub fn note(&mut self, port: u16) {
        // All at once: this is asked for every acknowledgement.
        if !self.ports.iter().fold(false, |known, p| known | (*p == port)) {
            self.ports[usize::from(self.next) % PORTS] = port;
            self.next = self.next.wrapping_add(1);
        }
    }

    /// `port` does not work.
    pub fn forget(&mut self, port: u16) {
        self.ports.iter_mut().filter(|p| **p == port).for_each(|p| *p = 0);
    }

    /// One that worked, in turn.
    pub fn draw(&mut self, turn: u32) -> Option<u16> {
        (0..PORTS as u32).map(|i| self.ports[turn.wrapping_add(i) as usize % PORTS]).find(|p| *p != 0)
    }
}

/// A UDP source port that is not `old`, from the sequence that `state` stands in.
fn draw_port_besides(state: &mut u32, old: u16) -> u16 {
    loop {
        let port = draw_port(state);
        if port != old {
            return port;
        }
    }
}

impl Connection {
    /// Path `index` timed out again: it takes another route, or the connection fails when no route is left.
    pub fn reaim(&mut self, core: &mut Core, now: Time, index: usize) {
        if self.paths.get(index).map(|p| p.plane).is_some_and(|plane| self.judge_plane(core, now, plane)) {
            return;
        }
        let per_plane = u32::from(self.cfg.transport.reaims_per_plane.max(1));
        let limit = self.cfg.transport.retry_limit;
        let usable: Vec<u8> = self.usable_planes(core);
        let tries_max = per_plane * usable.len().max(1) as u32;
        let is_lost = |p: &crate::transport::path::TxPath| {
            p.silent_rtos() > limit && u32::from(p.failed_reaims()) >= tries_max.min(255)
        };
        if self.paths.iter().filter(|p| p.window.in_flight_pkts() > 0).all(is_lost) {
            self.fail(core, Status::RetryExc, None);
            return;
        }
        let plane = self.next_plane(&usable, index);
        let Some(path) = self.paths.get_mut(index) else { return };
        // A path that is off or rested stays so, whatever becomes of what it sent before.
        if u32::from(path.failed_reaims()) >= tries_max && path.is_in_use() {
            path.state = PathState::Dead;
        }
        self.move_path(core, now, index, plane);
    }

    /// On which of the `usable` planes path `index` tries its next route: some tries on its own plane, then one on each
    /// other plane in turn.
    pub fn next_plane(&self, usable: &[u8], index: usize) -> u8 {
        let Some(path) = self.paths.get(index) else { return 0 };
        match usable.iter().position(|p| *p == path.plane) {
            Some(_) if path.failed_reaims() < self.cfg.transport.reaims_per_plane.max(1) => path.plane,
            Some(at) => usable[(at + 1) % usable.len()],
            None => usable.first().copied().unwrap_or(path.plane),
        }
    }

    /// Path `index` is about to send. With nothing outstanding it leaves a route whose packets came marked, for a random
    /// one: a port that others found good would soon be as crowded.
    #[inline]
    pub fn leave_crowded_route(&mut self, core: &mut Core, index: usize) {
        if self.paths.get(index).is_some_and(|path| path.window.in_flight_pkts() == 0) {
            self.judge_route(core, index);
        }
    }

    #[inline(never)]
    fn judge_route(&mut self, core: &mut Core, index: usize) {
        let cfg = &self.cfg.transport;
        let Some(path) = self.paths.get_mut(index) else { return };
        if !path.route.is_crowded(cfg.reroute_pkts, cfg.reroute_marks_q8) {
            return;
        }
        let (plane, old_port) = (path.plane, path.sport);
        if let Some(good) = self.good_ports.get_mut(usize::from(plane)) {
            good.forget(old_port);
        }
        let port = draw_port_besides(&mut self.port_draw, old_port);
        if let Some(path) = self.paths.get_mut(index) {
            path.reroute(port);
            core.counters.count(Counter::PathReaim);
        }
    }

    /// Gives path `index` another source port on `plane`.
    pub fn move_path(&mut self, core: &mut Core, now: Time, index: usize, plane: u8) {
        let Some(path) = self.paths.get(index) else { return };
        let (old_plane, old_port, tries) = (path.plane, path.sport, u32::from(path.failed_reaims()));
        if let Some(good) = self.good_ports.get_mut(usize::from(old_plane)) {
            good.forget(old_port);
        }
        let known = self.good_ports.get_mut(usize::from(plane)).and_then(|g| g.draw(index as u32 + tries));
        // A known port is worth one try; after that only a new one is news.
        let port = known.filter(|port| tries == 0 && *port != old_port);
        let port = port.unwrap_or_else(|| draw_port_besides(&mut self.port_draw, old_port));
        let Some(path) = self.paths.get_mut(index) else { return };
        path.reaim(now, plane, port);
        let state = path.state;
        core.counters.count(Counter::PathReaim);
        core.event(Event::Path { conn: ConnId(self.index), path: index as u8, state });
        self.settle_path(core, now, index);
        if self.state == ConnState::Rts {
            self.activate(core);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_drawn_is_never_the_one_that_did_not_work() {
        let mut state = 1;
        for _ in 0..100_000 {
            // The worst that can be asked for: besides the one that comes next.
            let next = draw_port(&mut state.clone());
            assert_ne!(draw_port_besides(&mut state, next), next);
        }
    }
}
