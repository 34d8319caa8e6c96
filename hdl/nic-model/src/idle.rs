//! What a connection does with the idle time of its link: markers that tell the receiver what was sent, and copies.
//!
//! Nothing follows the last packets of a burst, so their loss would show only when a timer expires. A marker on each
//! path shows it one round trip later; where the card has seen losses lately, two, since a marker can be lost like
//! anything else. A copy hides a loss altogether. Of each packet two transmissions may be under way at most; when an
//! acknowledgement shows that the earlier one was lost, there is room for another.

use crate::ack::push_control;
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::memory::HostMemory;
use crate::plane::Control;
use crate::send::Way;
use crate::time::Time;
use crate::transport::path::Copies;
use crate::wire::frame::Frame;
use nic_spec::csr::stats::Counter;
use nic_spec::num::Psn;

impl Connection {
    /// There is nothing new to send: markers go out on paths with data, and copies may follow.
    pub fn go_idle(&mut self, core: &mut Core, now: Time) {
        if !core::mem::take(&mut self.is_marker_owed) || self.state == ConnState::Error {
            return;
        }
        self.send_markers(core, now);
        self.offer_copies(core);
    }

    /// Markers of the paths with data that none follows yet.
    pub fn send_markers(&mut self, core: &mut Core, now: Time) {
        if !self.cfg.transport.tail_marker {
            return;
        }
        let count = if core.losses.expects_losses(now, self.cfg.transport.loss_memory_ps) { 2 } else { 1 };
        for i in 0..self.paths.len() {
            let Some(path) = self.paths.get_mut(i).filter(|p| p.wants_marker()) else { continue };
            path.sent_marker(now);
            let plane = path.plane;
            for _ in 0..count {
                push_control(core, plane, Control::Probe { conn: self.index, path: i as u8 });
            }
            self.arm_path(core, i);
        }
    }

    /// Lets the ports ask for copies when they have nothing else.
    pub fn offer_copies(&mut self, core: &mut Core) {
        if !self.cfg.transport.idle_redundancy {
            return;
        }
        let mut missing = self.paths.plane_mask() & !self.in_idle;
        while missing != 0 {
            let plane = missing.trailing_zeros() as usize;
            missing &= missing - 1;
            if let Some(queue) = core.planes.get_mut(plane) {
                queue.push_idle(self.index);
                self.in_idle |= 1 << plane;
            }
        }
    }

    /// Which packets may be copied now. A limit by the receiver is kept: copies take the tokens that new packets leave,
    /// and where little is lost they leave those to others.
    fn copies(&mut self, core: &mut Core, now: Time) -> Option<Copies> {
        if self.state != ConnState::Rts || self.has_new() || self.last_ce.is_some() {
            return None;
        }
        if !self.is_paced(core, now, 0) {
            return None;
        }
        let has_room = self.paths.in_flight_pkts() < self.window_pkts(now);
        // A limit that holds no longer says that there were many, who may begin again at once.
        let is_free = self.pacer.is_unlimited() || core.losses.is_lossy(now, self.cfg.transport.loss_memory_ps);
        // What was lost once is little: copies of it are in nobody's way.
        Some(if has_room && is_free { Copies::All } else { Copies::Repaired })
    }

    /// A copy of the packet of `plane` that was sent last.
    pub fn next_redundant(
        &mut self,
        core: &mut Core,
        now: Time,
        plane: u8,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> bool {
        let Some(copies) = self.copies(core, now) else { return false };
        let tick_ps = self.cfg.transport.tick_ps;
        let age = |t: crate::time::Ticks| now.ticks(tick_ps).since(t);
        let mut newest: Option<(u32, usize, Psn)> = None;
        for i in 0..self.paths.len() {
            let Some(path) = self.paths.get_mut(i).filter(|p| p.plane == plane && p.is_healthy()) else { continue };
            if let Some((psn, at)) = path.redundancy_candidate(copies) {
                if newest.is_none_or(|n| age(at) < n.0) {
                    newest = Some((age(at), i, psn));
                }
            }
        }
        let Some((_, index, psn)) = newest else { return false };
        let sent = self.paths.get_mut(index).and_then(|p| p.send_redundant(now, psn, &self.cfg.transport));
        let Some(desc) = sent else { return false };
        self.is_marker_owed = true;
        let is_made = self.data_frame(core, now, index, psn, &desc, Way::Copy, mem, out);
        core.counters.add(Counter::TxRedundant, is_made.into());
        is_made
    }
}
