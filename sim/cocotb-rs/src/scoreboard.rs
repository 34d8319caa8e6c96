//! Compares what the design did with what it should have done.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Debug,
};

/// What a scoreboard found wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScoreboardError {
    /// An item came that differs from the one expected.
    #[error("{name}: item {index} is {actual}, expected {expected}")]
    Different {
        /// The scoreboard.
        name: String,
        /// How many items came before, or the key.
        index: String,
        /// What came.
        actual: String,
        /// What should have come.
        expected: String,
    },
    /// An item came when none was expected.
    #[error("{name}: unexpected item {index}: {actual}")]
    Unexpected {
        /// The scoreboard.
        name: String,
        /// How many items came before, or the key.
        index: String,
        /// What came.
        actual: String,
    },
    /// Items were expected that did not come.
    #[error("{name}: {count} expected items did not come, the first is {first}")]
    Missing {
        /// The scoreboard.
        name: String,
        /// How many.
        count: usize,
        /// The oldest of them.
        first: String,
    },
}

/// Characters of an item that a message shows; frames can be long.
const SHOWN_CHARS_MAX: usize = 400;

fn show(item: &impl Debug) -> String {
    let text = format!("{item:x?}");
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}... ({} characters)", &text[..end], text.len()),
        None => text,
    }
}

/// Expects items in order.
#[derive(Clone, Debug)]
pub struct Scoreboard<T> {
    name: String,
    expected: VecDeque<T>,
    matched: u64,
}

impl<T: PartialEq + Debug> Scoreboard<T> {
    /// A scoreboard that expects nothing yet.
    pub fn new(name: impl Into<String>) -> Self {
        Scoreboard { name: name.into(), expected: VecDeque::new(), matched: 0 }
    }

    /// Expects an item after those expected before.
    pub fn expect(&mut self, item: T) {
        self.expected.push_back(item);
    }

    /// Takes an item that came.
    ///
    /// # Errors
    /// It is not the one expected next.
    pub fn observe(&mut self, item: &T) -> Result<(), ScoreboardError> {
        let (name, index) = (self.name.clone(), self.matched.to_string());
        match self.expected.pop_front() {
            Some(expected) if expected == *item => {
                self.matched += 1;
                Ok(())
            }
            Some(expected) => {
                Err(ScoreboardError::Different { name, index, actual: show(item), expected: show(&expected) })
            }
            None => Err(ScoreboardError::Unexpected { name, index, actual: show(item) }),
        }
    }

    /// Items that came as expected.
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// Items still expected.
    pub fn pending(&self) -> usize {
        self.expected.len()
    }

    /// Ends the comparison: the number of items matched.
    ///
    /// # Errors
    /// Items are still expected.
    pub fn finish(self) -> Result<u64, ScoreboardError> {
        match self.expected.front() {
            None => Ok(self.matched),
            Some(first) => {
                let (count, first) = (self.expected.len(), show(first));
                Err(ScoreboardError::Missing { name: self.name, count, first })
            }
        }
    }
}

/// Expects items in any order, each told by a key; items of one key in order.
#[derive(Clone, Debug)]
pub struct KeyedScoreboard<K, T> {
    name: String,
    expected: BTreeMap<K, VecDeque<T>>,
    matched: u64,
}

impl<K: Ord + Debug, T: PartialEq + Debug> KeyedScoreboard<K, T> {
    /// A scoreboard that expects nothing yet.
    pub fn new(name: impl Into<String>) -> Self {
        KeyedScoreboard { name: name.into(), expected: BTreeMap::new(), matched: 0 }
    }

    /// Expects an item of that key.
    pub fn expect(&mut self, key: K, item: T) {
        self.expected.entry(key).or_default().push_back(item);
    }

    /// Takes an item that came.
    ///
    /// # Errors
    /// It is not the one expected next for its key.
    pub fn observe(&mut self, key: &K, item: &T) -> Result<(), ScoreboardError> {
        let (name, index) = (self.name.clone(), show(key));
        let Some(queue) = self.expected.get_mut(key) else {
            return Err(ScoreboardError::Unexpected { name, index, actual: show(item) });
        };
        let expected = queue.pop_front();
        if queue.is_empty() {
            self.expected.remove(key);
        }
        match expected {
            Some(expected) if expected != *item => {
                Err(ScoreboardError::Different { name, index, actual: show(item), expected: show(&expected) })
            }
            _ => {
                self.matched += 1;
                Ok(())
            }
        }
    }

    /// Items that came as expected.
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// Items still expected.
    pub fn pending(&self) -> usize {
        self.expected.values().map(VecDeque::len).sum()
    }

    /// Ends the comparison: the number of items matched.
    ///
    /// # Errors
    /// Items are still expected.
    pub fn finish(self) -> Result<u64, ScoreboardError> {
        let count = self.pending();
        match self.expected.first_key_value() {
            None => Ok(self.matched),
            Some(first) => Err(ScoreboardError::Missing { name: self.name, count, first: show(&first) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_counts_without_keys() {
        let mut board = Scoreboard::new("frames");
        board.expect(vec![1_u8]);
        board.expect(vec![2]);
        board.observe(&vec![1]).unwrap();
        let text = board.observe(&vec![3]).unwrap_err().to_string();
        assert_eq!(text, "frames: item 1 is [3], expected [2]");
        assert_eq!(board.observe(&vec![0xff]).unwrap_err().to_string(), "frames: unexpected item 1: [ff]");
        board.expect(vec![4]);
        assert_eq!(board.finish().unwrap_err().to_string(), "frames: 1 expected items did not come, the first is [4]");
    }

    #[test]
    fn order_counts_only_within_a_key() {
        let mut board = KeyedScoreboard::new("reads");
        [(1, "a"), (1, "b"), (2, "c")].into_iter().for_each(|(key, item)| board.expect(key, item));
        board.observe(&2, &"c").unwrap();
        board.observe(&1, &"a").unwrap();
        assert!(matches!(board.observe(&2, &"c"), Err(ScoreboardError::Unexpected { .. })));
        assert!(matches!(board.clone().observe(&1, &"a"), Err(ScoreboardError::Different { .. })));
        board.observe(&1, &"b").unwrap();
        assert_eq!(board.finish(), Ok(3));
    }

    #[test]
    fn a_long_item_is_shown_in_part() {
        let mut board = Scoreboard::new("frames");
        board.expect(vec![0_u8; 4096]);
        let text = board.observe(&vec![1_u8; 4096]).unwrap_err().to_string();
        assert!(text.len() < 1000 && text.contains("... (12288 characters)"), "{}", text.len());
    }
}
