//! As many paths as rate and round trip ask for.
//!
//! A path holds at most 256 packets, and a hole stops it for a round trip, so a connection needs twice the
//! bandwidth-delay product in paths of 256. Now and then the number is computed anew; when it is a quarter off, paths
//! are opened (PATH_CTL, repeated until answered) or rested. A rested path keeps its numbers and can come back at once.

use crate::ack::push_control;
use crate::conn_config::spread_port;
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::plane::Control;
use crate::time::{Time, NS_PS};
use crate::transport::bitmap::BITS;
use crate::transport::path::{PathState, TxPath};
use crate::transport::rx_path::RxPath;
use crate::wire::packet::PathControl;
use alloc::vec::Vec;
use nic_spec::consts;
use nic_spec::csr::stats::Counter;
use nic_spec::num::Psn;
use nic_spec::wire::PathOp;

/// Round trips between two looks at the number of paths.
const LOOK_RTTS: u64 = consts::PATHS_LOOK_SRTTS as u64;
/// Times that an unanswered opening is sent.
const TRIES_MAX: u8 = consts::CM_TRIES as u8;
/// Shortest wait before the first repetition.
const OPEN_WAIT_PS: u64 = consts::OPEN_WAIT_NS as u64 * NS_PS;

/// Paths that wait for the peer to open its side.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// Paths that the peer is asked to open now.
    waiting: Vec<u8>,
    /// All that it has not opened, those included.
    unopened: Vec<u8>,
    /// It did not want this path, nor those after it.
    limit: usize,
    tries: u8,
    next_at: Time,
    next_look: Time,
}

impl Default for Opening {
    fn default() -> Self {
        let (waiting, unopened) = (Vec::new(), Vec::new());
        Self { waiting, unopened, limit: 256, tries: 0, next_at: Time::NEVER, next_look: Time::ZERO }
    }
}

impl Opening {
    /// When openings are sent again.
    pub const fn next_at(&self) -> Time {
        self.next_at
    }

    /// The path is closed for good.
    pub fn never_again(&mut self, path: u8) {
        self.waiting.retain(|p| *p != path);
        if self.is_open(path.into()) {
            self.unopened.push(path);
        }
    }

    /// False while the peer would drop what is sent on `path`.
    pub fn is_open(&self, path: usize) -> bool {
        !self.unopened.iter().any(|p| usize::from(*p) == path)
    }
}

/// Paths that carry `bdp_pkts` through holes: ⌈2·BDP / 256⌉ within the limits.
pub fn paths_wanted(bdp_pkts: u32, min: u32, max: u32) -> u32 {
    (2 * u64::from(bdp_pkts)).div_ceil(u64::from(BITS)).clamp(u64::from(min), u64::from(max.max(min))) as u32
}

impl Connection {
    /// Looks at the number of paths if it is time.
    pub fn bootstrap_paths(&mut self, core: &mut Core, now: Time) {
        let cfg = &self.cfg.transport;
        if !cfg.bootstrap || now < self.opening.next_look {
            return;
        }
        let Some(srtt_ps) = self.rtt.srtt_ps() else { return };
        self.opening.next_look = now.after_ps(LOOK_RTTS * srtt_ps);
        let want = paths_wanted(self.bdp_pkts, cfg.paths_min, cfg.paths_max.min(256)) as usize;
        let in_use = self.paths.iter().filter(|p| p.is_in_use()).count() + self.opening.waiting.len();
        if want > in_use + in_use / 4 {
            self.add_paths(core, now, want - in_use);
        } else if want + in_use / 4 < in_use {
            // Those that the peer may never open go first, and one path stays in any case.
            let excess = in_use - want.max(1);
            let waiting = self.opening.waiting.len();
            self.opening.waiting.truncate(waiting - excess.min(waiting));
            self.rest_paths(now, excess.saturating_sub(waiting));
        }
    }

    /// Brings a rested path back if none is in use any more: the others were closed or switched off.
    pub fn keep_a_path(&mut self, now: Time) {
        if self.paths.iter().any(TxPath::is_in_use) {
            return;
        }
        let rested = |i: &usize| self.paths.get(*i).is_some_and(|p| p.state == PathState::Unused);
        let next = (0..self.paths.len()).filter(rested).find(|i| self.opening.is_open(*i));
        if let Some((index, path)) = next.and_then(|i| Some((i, self.paths.get_mut(i)?))) {
            path.state = PathState::Bootstrap;
            self.paths.refresh(index, now, &self.cfg.transport);
        }
    }

    fn add_paths(&mut self, core: &mut Core, now: Time, mut more: usize) {
        for i in 0..self.paths.len().min(self.opening.limit) {
            let is_waiting = self.opening.waiting.contains(&(i as u8));
            let Some(path) = self.paths.get_mut(i).filter(|p| p.state == PathState::Unused && !is_waiting) else {
                continue;
            };
            if more == 0 {
                break;
            }
            more -= 1;
            if !self.opening.is_open(i) {
                self.opening.waiting.push(i as u8);
                continue;
            }
            path.state = PathState::Bootstrap;
            self.paths.refresh(i, now, &self.cfg.transport);
        }
        let planes = self.usable_planes(core);
        while more > 0 && self.paths.len() < self.opening.limit && !planes.is_empty() {
            let index = self.paths.len();
            let plane = planes[index % planes.len()];
            let mut path = TxPath::open(plane, spread_port(self.cfg.local_id.get(), index as u32), 0, Psn::new(0));
            path.state = PathState::Unused;
            self.paths.push(path, now, &self.cfg.transport);
            self.home.push(plane);
            self.opening.waiting.push(index as u8);
            self.opening.unopened.push(index as u8);
            more -= 1;
        }
        if !self.opening.waiting.is_empty() {
            self.opening.tries = 0;
            self.opening.next_at = now;
            self.on_opening_timer(core, now);
        }
    }

    /// Lets the last paths in use carry nothing new.
    fn rest_paths(&mut self, now: Time, count: usize) {
        let usable: Vec<usize> = (0..self.paths.len())
            .rev()
            .filter(|i| self.paths.get(*i).is_some_and(|p| matches!(p.state, PathState::Active | PathState::Skip)))
            .take(count)
            .collect();
        for i in usable {
            if let Some(path) = self.paths.get_mut(i) {
                path.state = PathState::Unused;
            }
            self.paths.refresh(i, now, &self.cfg.transport);
        }
    }

    /// Sends the openings that are not answered yet, if it is time.
    pub fn on_opening_timer(&mut self, core: &mut Core, now: Time) {
        if now < self.opening.next_at {
            return;
        }
        self.opening.tries += 1;
        if self.opening.waiting.is_empty() || self.opening.tries > TRIES_MAX {
            // The peer does not want them; the paths stay unused, and it is not asked again.
            let refused = self.opening.waiting.iter().map(|p| usize::from(*p)).min();
            self.opening.limit = self.opening.limit.min(refused.unwrap_or(256));
            self.opening.waiting.clear();
            self.opening.next_at = Time::NEVER;
            return;
        }
        for path in self.opening.waiting.clone() {
            let Some(p) = self.paths.get(usize::from(path)) else { continue };
            let control = PathControl {
                op: PathOp::Open.code(),
                path,
                is_reply: false,
                new_epoch: p.epoch,
                cum: p.window.una() - 1,
            };
            let plane = p.plane;
            push_control(core, plane, Control::PathCtl { conn: self.index, control });
        }
        let srtt_ps = self.rtt.srtt_ps().unwrap_or(self.cfg.transport.rto_init_ps);
        self.opening.next_at =
            now.after_ps((u64::from(consts::OPEN_WAIT_SRTTS) * srtt_ps).max(OPEN_WAIT_PS) << (self.opening.tries - 1));
        self.arm_conn(core);
    }

    /// A path control packet arrived at `port`.
    pub fn on_path_control(&mut self, core: &mut Core, now: Time, port: u8, c: &PathControl) {
        let at = usize::from(c.path);
        match PathOp::try_from(c.op) {
            Ok(PathOp::Open) if c.is_reply => {
                if let Some(n) = self.opening.waiting.iter().position(|p| *p == c.path) {
                    self.opening.waiting.remove(n);
                    self.opening.unopened.retain(|p| *p != c.path);
                    // It may have been switched off since.
                    if let Some(path) = self.paths.get_mut(at).filter(|p| p.state == PathState::Unused) {
                        path.state = PathState::Bootstrap;
                    }
                    self.paths.refresh(at, now, &self.cfg.transport);
                    if self.state == ConnState::Rts {
                        self.activate(core);
                    }
                }
            }
            Ok(PathOp::Open) => {
                if c.path >= self.cfg.transport.paths_max.min(256) as u8 && self.cfg.transport.paths_max < 256 {
                    core.counters.count(Counter::RxUnknownPath);
                    return;
                }
                while self.rx_paths.len() <= at {
                    let sport = spread_port(self.cfg.local_id.get(), self.rx_paths.len() as u32);
                    self.rx_paths.push(RxPath::closed(sport));
                }
                self.rx_paths[at].open(c.cum + 1);
                self.reply(core, port, c, self.rx_paths[at].cum());
            }
            Ok(PathOp::Close) if c.is_reply => self.on_path_closed(core, c.path),
            Ok(PathOp::Close) => match self.rx_paths.get_mut(at) {
                Some(row) => {
                    row.close();
                    let cum = row.cum();
                    self.reply(core, port, c, cum);
                }
                None => core.counters.count(Counter::RxUnknownPath),
            },
            _ => core.counters.count(Counter::RxUnsupportedOpcode),
        }
    }

    fn reply(&self, core: &mut Core, port: u8, c: &PathControl, cum: Psn) {
        let control = PathControl { is_reply: true, cum, ..*c };
        push_control(core, port, Control::PathCtl { conn: self.index, control });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_paths_follows_rate_and_round_trip() {
        // 4 KiB packets: 100, 200, 400 Gb/s at 10 us and at 1 ms.
        let bdp = |gbps: u32, us: u32| (gbps * us * 1000 / 8).div_ceil(4096);
        assert_eq!([100, 200, 400].map(|g| paths_wanted(bdp(g, 10), 12, 64)), [12; 3]);
        assert_eq!([100, 200, 400].map(|g| paths_wanted(bdp(g, 1000), 12, 128)), [24, 48, 96]);
        assert_eq!(paths_wanted(u32::MAX, 12, 64), 64);
        assert_eq!(paths_wanted(0, 0, 0), 0);
    }
}
