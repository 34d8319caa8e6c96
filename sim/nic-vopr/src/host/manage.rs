//! What a host does to its connections besides posting: asks for them, ends them, and what its administrator does.

use nic_model::mr::Mr;
use nic_model::work::CqeOp;
use nic_model::ConnState;
use nic_spec::num::{Pd, Rkey};

use super::{Host, Stage};
use crate::memory::BASE;
use crate::plan::{Act, Begin, Request};

/// After a refusal for want of room a host asks again after this long.
const ASK_AGAIN_PS: u64 = 300_000_000;
/// What cannot be done yet is tried again after this long.
const LATER_PS: u64 = 20_000_000;

impl Host {
    /// Asks for connections whose time has come, ends those that are done; true if anything was asked for.
    pub(super) fn manage(&mut self, now_ps: u64) -> bool {
        let now = self.card.time(now_ps);
        let mut has_acted = false;
        for index in 0..self.conns.len() {
            let plan = &self.conn_plans[index];
            match (self.stages[index], plan.begin) {
                (Stage::Waiting, Begin::Asks { service, at_ps, after, given_up_after_ps, .. }) if at_ps <= now_ps => {
                    // The host goes by what it was told, the id by what the card says.
                    let is_over = |before: usize| self.stages[before] == Stage::Over;
                    let is_free = after.and_then(|before| self.conns[before]);
                    let is_free = is_free.is_none_or(|conn| self.card.nic().conn_state(conn).is_none());
                    // After a refusal its own id rests for a while.
                    let may_ask = self.ask_again[index].is_none_or(|(again_ps, conn)| {
                        again_ps <= now_ps && self.card.nic().conn_state(conn).is_none()
                    });
                    if !after.is_none_or(is_over) || !is_free || !may_ask {
                        continue;
                    }
                    match self.card.nic_mut().connect(now, service, plan.config.clone()) {
                        Ok(conn) => {
                            (self.conns[index], self.stages[index]) = (Some(conn), Stage::Asked);
                            self.give_up_at_ps[index] = given_up_after_ps.map(|after_ps| now_ps + after_ps);
                        }
                        Err(error) => self.violate(now_ps, format!("connection {index} was not asked for: {error}")),
                    }
                    has_acted = true;
                }
                (Stage::Up | Stage::Asked, _) if self.is_to_end(index, now_ps) => {
                    if let Some(conn) = self.conns[index] {
                        self.card.nic_mut().disconnect(now, conn);
                    }
                    (self.stages[index], self.ended_at_ps[index]) = (Stage::Closing, now_ps);
                    has_acted = true;
                }
                _ => {}
            }
        }
        has_acted
    }

    /// True when everything of a connection is done and this host ends it, or it gives up.
    fn is_to_end(&self, index: usize, now_ps: u64) -> bool {
        let plan = &self.conn_plans[index];
        let is_done = self.conn_left[index][1] == 0 || plan.closes_early && self.has_asked_for_all(index);
        self.stages[index] == Stage::Up && plan.closes && is_done
            || self.give_up_at_ps[index].is_some_and(|at_ps| at_ps <= now_ps)
    }

    /// True when everything is posted, the peer's last message came, and only own messages are under way.
    fn has_asked_for_all(&self, index: usize) -> bool {
        let is_posted = self.lanes.iter().all(|lane| lane.conn != index || lane.requests.is_empty());
        let mut left = self.expected.iter().zip(&self.seen).filter(|(e, seen)| e.conn == index && !**seen);
        is_posted && left.all(|(e, _)| e.op == CqeOp::Send)
    }

    /// Does what the administrator does by now; true if there was anything.
    pub(super) fn act(&mut self, now_ps: u64) -> bool {
        let now = self.card.time(now_ps);
        let mut has_acted = false;
        while let Some((_, act)) = self.acts.front().copied().filter(|(at_ps, _)| *at_ps <= now_ps) {
            self.acts.pop_front();
            has_acted = true;
            let there = |index: usize| self.conns[index].filter(|_| self.stages[index].is_there());
            let (conn, nic) = match act {
                Act::Deny { conn, .. }
                | Act::Permit { conn, .. }
                | Act::Close { conn, .. }
                | Act::Pause { conn }
                | Act::Resume { conn } => (there(conn), self.card.nic_mut()),
                Act::Revoke { key, .. } if self.is_to_be_posted(key) => {
                    let at = self.acts.partition_point(|(at_ps, _)| *at_ps <= now_ps + LATER_PS);
                    self.acts.insert(at, (now_ps + LATER_PS, act));
                    continue;
                }
                Act::Revoke { key, region } => {
                    self.card.nic_mut().mrs().invalidate(key, None);
                    self.card.memory_mut().revoke(region);
                    continue;
                }
                Act::Churn => {
                    let (pd, key) = (Pd::new(0xff_ffff), self.completions as u8);
                    let mr = Mr { key, pd, access: 0, va: 0, len: 1, iova: BASE };
                    let mrs = self.card.nic_mut().mrs();
                    let key = mrs.register(mr);
                    mrs.invalidate(key, None);
                    continue;
                }
            };
            // A connection that is not there, or has no such path, is left alone.
            let Some(conn) = conn else { continue };
            match act {
                Act::Deny { conn: index, path } => {
                    self.denied[index] |= u16::from(nic.deny_path(now, conn, path, true)) << path;
                }
                Act::Permit { conn: index, path } => {
                    self.denied[index] &= !(u16::from(nic.deny_path(now, conn, path, false)) << path);
                }
                Act::Pause { conn: index } => self.is_paused[index] = nic.modify(conn, ConnState::Sqd),
                Act::Resume { conn: index } => {
                    nic.modify(conn, ConnState::Rts);
                    self.is_paused[index] = false;
                    let of_it = self.is_held.iter_mut().zip(&self.expected).filter(|(_, e)| e.conn == index);
                    of_it.for_each(|(is_held, _)| *is_held = false);
                }
                Act::Close { conn: index, path } => {
                    let bit = u16::from(nic.close_path(now, conn, path)) << path;
                    self.denied[index] |= bit;
                    self.closing[index] |= bit;
                }
                Act::Revoke { .. } | Act::Churn => {}
            }
        }
        has_acted
    }
    /// True when a receive with this key is not posted yet. It takes an ordinal, so it has to be.
    fn is_to_be_posted(&self, key: Rkey) -> bool {
        let requests = self.lanes.iter().flat_map(|lane| &lane.requests);
        let mut receives = requests.filter_map(|(_, request)| match request {
            Request::Recv(wr) => Some(wr.local.lkey),
            Request::Send(_) | Request::Farewell(_) => None,
        });
        receives.any(|lkey| lkey.get() == key.get())
    }

    /// A connection that was asked for is refused for want of room; true if that may be.
    pub(super) fn is_full(&mut self, now_ps: u64, index: usize) -> bool {
        let Begin::Asks { may_be_full: true, given_up_after_ps, .. } = self.conn_plans[index].begin else {
            return false;
        };
        let Some(conn) = self.conns[index].filter(|_| self.stages[index] == Stage::Asked) else { return false };
        if given_up_after_ps.is_some() {
            self.stages[index] = Stage::Over;
        } else {
            (self.stages[index], self.conns[index]) = (Stage::Waiting, None);
            self.ask_again[index] = Some((now_ps + ASK_AGAIN_PS, conn));
        }
        true
    }
}
