//! The card's counters: one 64-bit number a row of the specification's table.

use nic_spec::csr::stats::{Counter, COUNTERS};
use nic_spec::wire::NakReason;

/// All counters of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters([u64; COUNTERS.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self([0; COUNTERS.len()])
    }
}

impl Counters {
    /// The value of `counter`.
    pub const fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Where `counter` stands.
    #[inline]
    pub(crate) const fn of(&self, counter: Counter) -> &u64 {
        &self.0[counter as usize]
    }

    /// Counts one.
    #[inline]
    pub(crate) fn count(&mut self, counter: Counter) {
        self.add(counter, 1);
    }

    /// Counts a refusal under its reason.
    pub(crate) fn refuse(&mut self, reason: NakReason) {
        self.count(Counter::of_nak(reason));
    }

    /// Counts `more`.
    #[inline]
    pub(crate) fn add(&mut self, counter: Counter, more: u64) {
        let value = &mut self.0[counter as usize];
        *value = value.wrapping_add(more);
    }

    /// Every counter that is not zero, in the table's order.
    pub fn non_zero(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        COUNTERS.iter().map(|info| (info.counter, self.get(info.counter))).filter(|(_, value)| *value != 0)
    }
}
