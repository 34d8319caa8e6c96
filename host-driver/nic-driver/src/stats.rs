//! The card's counters by name.

use nic_spec::csr::stats::{self, Counter, COUNTERS};

use crate::bar::Bar;
use crate::error::Result;

/// The value of every counter at one time; the counters are read one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    values: Vec<u64>,
}

impl Stats {
    /// The value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize]
    }

    /// The value of the counter called `name`, such as `"rx_bad_icrc_count"`; `None` when there is no such counter.
    pub fn by_name(&self, name: &str) -> Option<u64> {
        self.iter().find(|(counter, _)| counter.name() == name).map(|(_, value)| value)
    }

    /// Every counter with its value, in order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        COUNTERS.iter().map(|info| (info.counter, self.get(info.counter)))
    }

    /// What was counted since `earlier`, modulo 2^64.
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.values.iter().zip(&earlier.values);
        Self { values: pairs.map(|(now, before)| now.wrapping_sub(*before)).collect() }
    }
}

/// Reads a counter. Reading the low word latches the high one, so nothing else may read counters meanwhile.
pub(crate) fn read_counter(bar: &Bar, counter: Counter) -> Result<u64> {
    let block = bar.block(&stats::BLOCK)?;
    let [low, high] = counter.info().registers;
    let low = block.read(low)?;
    Ok(u64::from(block.read(high)?) << 32 | u64::from(low))
}

/// Reads all counters; see [`read_counter`].
pub(crate) fn read_all(bar: &Bar) -> Result<Stats> {
    let values: Result<_> = COUNTERS.iter().map(|info| read_counter(bar, info.counter)).collect();
    Ok(Stats { values: values? })
}
