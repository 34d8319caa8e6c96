//! Paths that are closed for good (P-044).
//!
//! A path that is closed carries nothing new. When all that it sent is acknowledged the peer is told (PATH_CTL CLOSE,
//! repeated until answered), so that it may forget the path. It is never opened again: a late copy of its CLOSE would
//! take it away from its sender, who could not know.

use crate::ack::push_control;
use crate::connection::{ConnState, Connection};
use crate::core::Core;
use crate::plane::Control;
use crate::time::{Time, NS_PS};
use crate::wire::packet::PathControl;
use crate::work::{ConnId, Event};
use alloc::vec::Vec;
use nic_spec::consts;
use nic_spec::wire::PathOp;

/// Times that an unanswered closing is sent.
const TRIES_MAX: u8 = consts::CM_TRIES as u8;

/// A path of whose end the peer is to be told.
#[derive(Clone, Copy, Debug)]
struct Closing {
    path: u8,
    tries: u8,
    next_at: Time,
}

/// The closed paths of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retired {
    all: Vec<u8>,
    /// Those whose end the peer has not confirmed.
    closing: Vec<Closing>,
}

impl Retired {
    /// True when the path is closed.
    pub fn has(&self, path: usize) -> bool {
        self.all.iter().any(|p| usize::from(*p) == path)
    }

    /// When something is to be said again.
    pub fn next_at(&self) -> Time {
        self.closing.iter().map(|c| c.next_at).min().unwrap_or(Time::NEVER)
    }
}

impl Connection {
    /// The path by which planes are probed: the first that is not closed.
    pub fn first_path(&self) -> usize {
        (0..self.paths.len()).find(|i| !self.retired.has(*i)).unwrap_or(0)
    }

    /// Closes path `index` for good. False when there is no such path, it is closed already, or no other would be left.
    pub fn close_path(&mut self, core: &mut Core, now: Time, index: usize) -> bool {
        let is_live = |i: usize| self.opening.is_open(i) && !self.retired.has(i);
        let has_other = (0..self.paths.len()).any(|i| i != index && is_live(i));
        let can_close = matches!(self.state, ConnState::Rts | ConnState::Sqd) && has_other && !self.retired.has(index);
        let was_open = self.opening.is_open(index);
        let Some(path) = self.paths.get_mut(index).filter(|_| can_close) else { return false };
        path.deny(true);
        self.retired.all.push(index as u8);
        self.opening.never_again(index as u8);
        if was_open {
            self.retired.closing.push(Closing { path: index as u8, tries: 0, next_at: now });
            self.on_closing_timer(core, now);
            self.arm_conn(core);
        } else {
            core.event(Event::PathClosed { conn: ConnId(self.index), path: index as u8, is_answered: false });
        }
        true
    }

    /// Tells the peer of the ends that it has not confirmed, if it is time.
    pub fn on_closing_timer(&mut self, core: &mut Core, now: Time) {
        let srtt_ps = self.rtt.srtt_ps().unwrap_or(self.cfg.transport.rto_init_ps);
        let wait_ps = (u64::from(consts::OPEN_WAIT_SRTTS) * srtt_ps).max(u64::from(consts::OPEN_WAIT_NS) * NS_PS);
        let (planes, mut at) = (self.usable_planes(core), 0);
        while let Some(c) = self.retired.closing.get_mut(at) {
            let Some(path) = self.paths.get(c.path.into()).filter(|_| c.next_at <= now) else {
                at += 1;
                continue;
            };
            if path.window.in_flight_pkts() > 0 {
                c.next_at = now.after_ps(wait_ps);
            } else if c.tries == TRIES_MAX {
                let Closing { path, .. } = self.retired.closing.remove(at);
                core.event(Event::PathClosed { conn: ConnId(self.index), path, is_answered: false });
                continue;
            } else {
                c.next_at = now.after_ps(wait_ps << c.tries);
                c.tries += 1;
                let (op, cum) = (PathOp::Close.code(), path.window.nxt() - 1);
                let control = PathControl { op, path: c.path, is_reply: false, new_epoch: path.epoch, cum };
                // By another plane each time, in case the path's own one does not carry.
                let own = planes.iter().position(|p| *p == path.plane).unwrap_or(0);
                let plane = planes.get((own + usize::from(c.tries) - 1) % planes.len().max(1)).copied();
                push_control(core, plane.unwrap_or(path.plane), Control::PathCtl { conn: self.index, control });
            }
            at += 1;
        }
    }

    /// The peer knows that a path is closed.
    pub fn on_path_closed(&mut self, core: &mut Core, path: u8) {
        if let Some(at) = self.retired.closing.iter().position(|c| c.path == path && c.tries > 0) {
            self.retired.closing.remove(at);
            core.event(Event::PathClosed { conn: ConnId(self.index), path, is_answered: true });
        }
    }
}
