//! Failures by the clock: cables and planes that go down and come back.
//!
//! When a cable goes down, what is queued for it and what is in flight on it, in both directions, is lost, and frames
//! offered to it are dropped until it is back. Nodes are told ([`crate::Node::on_port_state`]); switches drop what their
//! tables send there until new tables are in force ([`crate::Topology::reroute_after_ps`]). A failure that nobody
//! notices, perhaps in one direction only, is a [`crate::Rule`] that loses everything for a time.

use std::sync::Arc;

use crate::agenda::NEVER_PS;
use crate::engine::{event, key, split_key, Core};
use crate::frame::Frame;
use crate::route::Routes;
use crate::stats::DropCause;
use crate::topology::LinkSelect;

/// A time during which cables are down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Links whose cables go down, in both directions.
    pub select: LinkSelect,
    /// First picosecond.
    pub from_ps: u64,
    /// First picosecond after it; `u64::MAX` is for ever.
    pub until_ps: u64,
}

impl Outage {
    /// Cables down from one time to another.
    pub fn new(select: LinkSelect, from_ps: u64, until_ps: u64) -> Outage {
        Outage { select, from_ps, until_ps }
    }
}

/// The outages of every cable, to answer what a link's state was a moment ago.
#[derive(Default)]
pub(crate) struct OutageLog(Vec<(u32, u64, u64)>);

impl OutageLog {
    pub(crate) fn add(&mut self, cable: u32, from_ps: u64, until_ps: u64) {
        self.0.push((cable, from_ps, until_ps));
    }

    /// Whether the cable was down at any time in `from_ps..=until_ps`.
    pub(crate) fn was_down(&self, cable: u32, from_ps: u64, until_ps: u64) -> bool {
        self.0.iter().any(|&(other, down_ps, up_ps)| other == cable && down_ps <= until_ps && from_ps < up_ps)
    }
}

/// The part of a shard that deals with failures.
impl Core {
    /// Sets the events of an outage.
    pub(crate) fn schedule_outage(&mut self, cable: u32, from_ps: u64, until_ps: u64) {
        self.schedule_cable(from_ps, cable, 0);
        if until_ps != u64::MAX {
            self.schedule_cable(until_ps, cable, 1);
        }
    }

    fn schedule_cable(&mut self, at_ps: u64, cable: u32, sub: u32) {
        self.agenda.common.push(at_ps, key(event::CABLE, cable, sub));
        if let Some(after_ps) = self.net.topology.reroute_after_ps {
            self.agenda.common.push(at_ps.saturating_add(after_ps), key(event::REROUTE, 0, 0));
        }
    }

    /// A cable fails or comes back; with several outages at a time it is back when the last is over. True if its state
    /// changed. Every shard keeps the state of every cable, and of the ends that are its own the contents.
    pub(crate) fn change_cable(&mut self, cable: u32, is_up: bool) -> bool {
        let outages = &mut self.outages[cable as usize];
        *outages = if is_up { *outages - 1 } else { *outages + 1 };
        if *outages != u32::from(!is_up) {
            return false;
        }
        for link in [cable * 2, cable * 2 + 1] {
            self.tx[link as usize].set_down(!is_up);
            if !is_up {
                self.cut(link);
            }
        }
        true
    }

    /// Loses what waits for a link and what is on it.
    fn cut(&mut self, link: u32) {
        let now_ps = self.now_ps;
        let tx = &mut self.tx[link as usize];
        tx.epoch += 1;
        let mut lost: Vec<Frame> = Vec::new();
        match tx.queue.as_mut() {
            // The frame on the line keeps the line until its event; it is lost with the others on the link.
            Some(queue) => {
                queue.is_paused = false;
                for waiting in std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>() {
                    self.release(waiting.charge());
                    lost.push(waiting.flight.into_parts().1);
                }
            }
            None => tx.free_at_ps = tx.free_at_ps.min(now_ps),
        }
        let rx = &mut self.rx[link as usize];
        rx.epoch += 1;
        if let Some(ingress) = rx.ingress.as_mut() {
            ingress.forget_pause();
        }
        lost.extend(std::iter::from_fn(|| Some(rx.line.pop()?.1)));
        let strays: Vec<(u32, u32)> = self.strays.range((link, 0)..=(link, u32::MAX)).map(|entry| *entry.0).collect();
        lost.extend(strays.iter().filter_map(|stray| Some(self.strays.remove(stray)?.into_parts().1)));
        if !lost.is_empty() {
            self.expect_no_more(link, !strays.is_empty());
        }
        lost.into_iter().for_each(|frame| self.lose(link, frame, DropCause::LinkDown));
    }

    /// Nothing that was on a link will arrive at its far end, neither in the order of the link nor, if there were any,
    /// as strays: nobody is told of a time at which nothing happens.
    fn expect_no_more(&mut self, link: u32, had_strays: bool) {
        let node = self.rx[link as usize].node;
        if had_strays {
            let own = self.agenda.own(node);
            own.retain(|key| !matches!(split_key(key), (event::STRAY, of, _) if of == link));
        }
        let lines = self.net.ports(node).iter().map(|out| &self.rx[(out ^ 1) as usize].line);
        let first_ps = lines.map(|line| line.first_ps()).min();
        self.agenda.settle(node, first_ps.unwrap_or(NEVER_PS));
    }

    /// Brings tables into force that know which cables are up now.
    pub(crate) fn reroute(&mut self) {
        let outages = &self.outages;
        self.routes = Arc::new(Routes::compute(&self.net.topology, |cable| outages[cable] == 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cable_was_down_from_the_first_picosecond_to_the_last() {
        let mut log = OutageLog::default();
        log.add(3, 10, 20);
        for (cable, from, until, expected) in [
            (3, 0, 9, false),
            (3, 0, 10, true),
            (3, 19, 19, true),
            (3, 20, 25, false),
            (3, 5, 30, true),
            (4, 10, 20, false),
        ] {
            assert_eq!(log.was_down(cable, from, until), expected, "cable {cable} in {from}..={until}");
        }
    }
}
