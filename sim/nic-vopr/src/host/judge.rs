//! What a host makes of the completions and events that it gets.

use nic_model::work::{Cqe, CqeOp, Event};
use nic_spec::desc::Status;
use nic_spec::wire::CmStatus;

use super::{describe, Host, Stage};
use crate::plan::{Begin, ConnPlan, Expected, Fate};

/// The longest that a peer which is there lets the end of a connection wait. Without an answer it takes a quarter of a
/// second.
const END_MAX_PS: u64 = 240_000_000_000;

impl Host {
    pub(super) fn judge_event(&mut self, now_ps: u64, event: Event) {
        let wrong = match event {
            Event::ConnError { conn, status } => {
                let index = self.index_of(conn);
                if let Some(index) = index {
                    self.fails(index);
                }
                index.is_none_or(|index| !self.conn_plans[index].reasons.contains(&status))
            }
            Event::Connected { conn, service } => {
                let is_it = |index: &usize| match (self.conn_plans[*index].begin, self.stages[*index]) {
                    (Begin::Asks { service: own, .. }, Stage::Asked) => {
                        own == service && self.conns[*index] == Some(conn)
                    }
                    (Begin::Grants { service: own, .. }, Stage::Waiting) => own == service,
                    _ => false,
                };
                let index = (0..self.conns.len()).find(is_it);
                if let Some(index) = index {
                    self.is_up(index, conn);
                }
                index.is_none()
            }
            Event::Disconnected { conn } => match self.index_of(conn) {
                Some(index) => {
                    let from_ps = self.calm_ps.map(|calm_ps| calm_ps.max(self.ended_at_ps[index]));
                    let is_alone = from_ps.is_some_and(|from_ps| now_ps > from_ps + END_MAX_PS);
                    let is_late = is_alone && self.stages[index] == Stage::Closing;
                    self.stages[index] = Stage::Over;
                    !self.conn_plans[index].ends || self.conn_left[index][1] > 0 || is_late
                }
                None => true,
            },
            Event::ConnectFailed { conn, status: CmStatus::NoResource } => {
                self.index_of(conn).is_none_or(|index| !self.is_full(now_ps, index))
            }
            Event::ConnectFailed { conn, status }
                if self.index_of(conn).is_some_and(|index| self.is_refused(index)) =>
            {
                if let Some(index) = self.index_of(conn) {
                    self.stages[index] = Stage::Over;
                }
                status != CmStatus::NoService
            }
            // Of a peer that gave up, or was refused when it asked before, before this host heard of it.
            Event::ConnectFailed { conn, .. } => {
                let may_fail = |plan: &ConnPlan| matches!(plan.begin, Begin::Grants { is_given_up: true, .. });
                self.index_of(conn).is_some() || !self.conn_plans.iter().any(may_fail) && !self.was_full
            }
            Event::Plane { conn, plane, is_up } => {
                if let Some(index) = self.index_of(conn) {
                    let without = self.down[index] & !(1 << plane);
                    self.down[index] = if is_up { without } else { without | 1 << plane };
                    // Answered probes say more than an old report.
                    if let Some((_, planes_up)) = self.reports[index].as_mut().filter(|_| is_up) {
                        *planes_up |= 1 << plane;
                    }
                }
                false
            }
            Event::PathClosed { conn, path, is_answered } => {
                self.index_of(conn).is_none_or(|index| !self.is_closed_rightly(index, path, is_answered))
            }
            _ => false,
        };
        if wrong {
            self.violate(now_ps, format!("{event:?} of connections {:?} {:?}", self.conns, self.stages));
        }
    }

    /// The end of a path was told to the peer; true if it was to be closed and had nothing under way. The peer answers,
    /// unless it is gone or never opened the path: faults that end do so long before it is no longer asked.
    fn is_closed_rightly(&mut self, index: usize, path: u8, is_answered: bool) -> bool {
        let plan = &self.conn_plans[index];
        let may_be_silent = self.calm_ps.is_none() || plan.ends || plan.config.transport.bootstrap;
        let is_told = is_answered || may_be_silent;
        let was_asked = self.closing[index] >> path & 1 == 1;
        self.closing[index] &= !(1 << path);
        let path = self.paths(index).and_then(|paths| paths.get(path.into()));
        was_asked && is_told && path.is_none_or(|path| path.window.in_flight_pkts() == 0)
    }

    /// It is asked for and nobody grants it.
    fn is_refused(&self, index: usize) -> bool {
        let is_refused = matches!(self.conn_plans[index].begin, Begin::Asks { is_refused: true, .. });
        is_refused && self.stages[index] == Stage::Asked
    }

    pub(super) fn judge(&mut self, now_ps: u64, cqe: &Cqe) {
        self.completions += 1;
        for part in [now_ps, cqe.wr_id, cqe.byte_len.into()] {
            self.digest = (self.digest ^ part).wrapping_mul(0x100_0000_01b3);
        }
        let index = cqe.wr_id as usize;
        let Some(e) = self.expected.get(index) else {
            return self.violate(now_ps, format!("{cqe:?} belongs to no request"));
        };
        let is_good = cqe.status == Status::Ok;
        let mut wrong = Vec::new();
        if Some(cqe.conn) != self.conns[e.conn] || cqe.stream != e.stream {
            wrong.push(format!("is {cqe:?}, expected {e:?}"));
        }
        if is_good {
            self.judge_good(cqe, e, &mut wrong);
        } else {
            self.judge_failed(cqe, e, &mut wrong);
        }
        if self.seen[index] {
            wrong.push("came before".into());
        } else if let Some(what) = self.out_of_order(index) {
            wrong.push(what);
        }
        let (conn, queue, is_farewell) = (e.conn, e.queue, e.is_farewell);
        if self.is_certain(e) && !self.seen[index] {
            self.left -= 1;
            self.conn_left[conn][0] -= usize::from(!is_farewell);
            self.conn_left[conn][1] -= 1;
        }
        self.reasons[conn] += u32::from(!is_good && cqe.status != Status::WrFlush);
        self.failed[queue] |= !is_good;
        (self.seen[index], self.is_good[index]) = (true, is_good);
        self.advance_place(index);
        for what in wrong {
            self.violate(now_ps, format!("completion {index} {what}"));
        }
    }

    fn judge_good(&self, cqe: &Cqe, e: &Expected, wrong: &mut Vec<String>) {
        let is_as_expected = (cqe.op, cqe.byte_len) == (e.op, e.byte_len)
            && (cqe.imm, cqe.tag, cqe.invalidated, cqe.solicited) == (e.imm, e.tag, e.invalidated, e.solicited);
        if !is_as_expected {
            wrong.push(format!("is {cqe:?}, expected {e:?}"));
        }
        if let Some((iova, bytes)) = &e.content {
            if self.card.memory().at(*iova, bytes.len() as u64) != &bytes[..] {
                wrong.push(format!("came before its bytes: {}", describe(e)));
            }
        }
        if !e.is_signaled {
            wrong.push("was not asked for".into());
        }
        if e.is_bad {
            wrong.push(format!("is good although it asked for something bad: {}", describe(e)));
        }
        if self.failed[e.queue] {
            wrong.push("is good after one in error".into());
        }
        if self.is_held[cqe.wr_id as usize] {
            wrong.push("is good although its queue is paused".into());
        }
    }

    fn judge_failed(&self, cqe: &Cqe, e: &Expected, wrong: &mut Vec<String>) {
        // The peer, which has everything, may end the connection before its last acknowledgement arrives.
        let is_cut_off = e.is_farewell && e.op == CqeOp::Send && cqe.status == Status::WrFlush;
        if self.fates[e.conn] == Fate::Lives && !is_cut_off {
            wrong.push(format!("is {cqe:?}, expected {e:?}"));
        }
        if cqe.status != Status::WrFlush && self.reasons[e.conn] > 0 {
            wrong.push(format!("gives another reason: {:?}", cqe.status));
        }
    }

    /// What should have come before this completion, if anything.
    fn out_of_order(&self, index: usize) -> Option<String> {
        let e = &self.expected[index];
        let queue = &self.queues[e.queue];
        // When a connection fails, receives come back as they were posted, those found by tag after the others.
        if queue.is_unordered && !e.is_barrier || self.fates[e.conn] != Fate::Lives {
            return None;
        }
        let from = self.places[e.queue];
        let mut before = queue.order[from..].iter().take_while(|other| **other != index);
        let missing = before.find(|other| self.expected[**other].is_signaled && !self.seen[**other])?;
        Some(format!("({}) came before {missing} ({})", describe(e), describe(&self.expected[*missing])))
    }

    fn advance_place(&mut self, index: usize) {
        let queue = self.expected[index].queue;
        let is_over = |index: &usize| self.seen[*index] || !self.expected[*index].is_signaled;
        let order = &self.queues[queue].order;
        while order.get(self.places[queue]).is_some_and(is_over) {
            self.places[queue] += 1;
        }
    }
}
