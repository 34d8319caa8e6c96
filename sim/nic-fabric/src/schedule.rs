//! Failures by the clock: cables and planes that go down and come back.
//!
//! When a cable goes down, what is queued for it and what is in flight on it, in both directions, is lost, and frames
//! offered to it are dropped until it is back. Nodes are told ([`crate::Node::on_port_state`]); switches drop what their
//! tables send there until new tables are in force ([`crate::Topology::reroute_after_ps`]). A failure that nobody
//! notices, perhaps in one direction only, is a [`crate::Rule`] that loses everything for a time.

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
