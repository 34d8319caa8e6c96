//! Numbers that are given out and come back: rows of the card's tables, protection domains.
//!
//! A number comes back into use as late as possible: never used ones first, then the one that was returned longest ago.
//! What still travels under an old number then meets an empty row.

use std::collections::VecDeque;
use std::ops::Range;

/// A pool of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    unused: Range<u32>,
    returned: VecDeque<u32>,
}

impl Pool {
    /// All numbers of `range` are free.
    pub(crate) fn new(range: Range<u32>) -> Self {
        Self { unused: range, returned: VecDeque::new() }
    }

    /// A free number; `None` when all are in use.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.unused.next().or_else(|| self.returned.pop_front())
    }

    /// Takes a number back.
    pub(crate) fn give_back(&mut self, number: u32) {
        debug_assert!(!self.unused.contains(&number) && !self.returned.contains(&number), "{number} is free already");
        self.returned.push_back(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_as_late_as_possible_and_all_are_given_out() {
        let mut pool = Pool::new(3..6);
        assert_eq!([pool.take(), pool.take()], [Some(3), Some(4)]);
        pool.give_back(4);
        pool.give_back(3);
        assert_eq!([pool.take(), pool.take(), pool.take(), pool.take()], [Some(5), Some(4), Some(3), None]);
    }
}
