//! Clocks: exact periods, and who waits for which edge.

use crate::{executor::Waiter, port::Port};
use std::collections::BTreeMap;

/// The period of a clock, exact as a fraction of femtoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    numerator_fs: u64,
    denominator: u64,
}

impl Period {
    /// A period in picoseconds.
    ///
    /// # Panics
    /// If it is zero.
    pub const fn ps(period_ps: u64) -> Self {
        Period::fs(period_ps * 1000)
    }

    /// A period in femtoseconds.
    ///
    /// # Panics
    /// If it is zero.
    pub const fn fs(period_fs: u64) -> Self {
        assert!(period_fs > 0, "a clock needs a period");
        Period { numerator_fs: period_fs, denominator: 1 }
    }

    /// The period of a frequency in hertz. Edges are rounded down to femtoseconds one by one, so nothing drifts.
    ///
    /// # Panics
    /// If the frequency is zero or above 10^12 Hz.
    pub const fn of_hz(frequency_hz: u64) -> Self {
        assert!(frequency_hz > 0 && frequency_hz <= 1_000_000_000_000, "a clock runs between 1 Hz and 1 THz");
        Period { numerator_fs: 1_000_000_000_000_000, denominator: frequency_hz }
    }

    /// The length in femtoseconds, rounded down.
    pub const fn as_fs(self) -> u64 {
        self.numerator_fs / self.denominator
    }
}

pub(crate) struct ClockState {
    pub(crate) port: Port,
    period: Period,
    /// Rising edges so far.
    pub(crate) cycle: u64,
    pub(crate) is_high: bool,
    pub(crate) next_rise_fs: u64,
    /// What rounding `next_rise_fs` down left over, in fractions of the denominator.
    remainder: u64,
    /// When the clock falls, or fell, after its last rise.
    pub(crate) fall_fs: u64,
    /// Who waits for the next edge.
    next_edge: Vec<Waiter>,
    /// Who waits for a later edge, by its number and the order of registration.
    later_edges: BTreeMap<(u64, u64), Waiter>,
}

impl ClockState {
    /// A clock that is low for the half period from `now_fs` on.
    pub(crate) fn new(port: Port, period: Period, now_fs: u64) -> Self {
        ClockState {
            port,
            period,
            cycle: 0,
            is_high: false,
            next_rise_fs: now_fs + period.as_fs() / 2,
            remainder: 0,
            fall_fs: 0,
            next_edge: Vec::new(),
            later_edges: BTreeMap::new(),
        }
    }

    /// Takes the rising edge that is due: counts it and schedules the fall and the next one.
    pub(crate) fn rise(&mut self) {
        self.cycle += 1;
        self.is_high = true;
        self.fall_fs = self.next_rise_fs + self.period.as_fs() / 2;
        self.next_rise_fs += self.period.as_fs();
        self.remainder += self.period.numerator_fs % self.period.denominator;
        if self.remainder >= self.period.denominator {
            self.remainder -= self.period.denominator;
            self.next_rise_fs += 1;
        }
    }

    pub(crate) fn wait(&mut self, target_cycle: u64, number: u64, waiter: Waiter) {
        if target_cycle == self.cycle + 1 {
            self.next_edge.push(waiter);
        } else {
            self.later_edges.insert((target_cycle, number), waiter);
        }
    }

    /// Takes a waiter off the list. One that waits for the next edge stays: it is woken in vain, once.
    pub(crate) fn forget(&mut self, target_cycle: u64, number: u64) {
        self.later_edges.remove(&(target_cycle, number));
    }

    /// Hands all waiters of the edge just taken to `wake`.
    pub(crate) fn wake_due(&mut self, mut wake: impl FnMut(Waiter)) {
        self.next_edge.drain(..).for_each(&mut wake);
        while let Some(entry) = self.later_edges.first_entry() {
            if entry.key().0 > self.cycle {
                break;
            }
            wake(entry.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{PortDecl, PortMap};

    #[test]
    fn a_period_that_is_no_whole_number_of_femtoseconds_does_not_drift() {
        let map = PortMap::new(vec![PortDecl::input("clk", 1)]);
        let period = Period::of_hz(322_265_625);
        let mut clock = ClockState::new(map.find("clk").unwrap(), period, 0);
        let first_fs = clock.next_rise_fs;
        (0..322_265).for_each(|_| clock.rise());
        // 322,265 periods are 322265 * 10^15 / 322265625 fs, rounded down.
        assert_eq!(clock.next_rise_fs - first_fs, 999_998_060_606);
        assert_eq!(999_998_060_606 - period.as_fs() * 322_265, 97_656, "what whole femtoseconds would have lost");
    }
}
