//! Counts how often a test reached the situations it is meant to reach.

use std::{collections::BTreeMap, fmt};

/// Named counts. A random test declares what it must reach and asserts at its end that nothing is
/// [missed](Coverage::missed).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    /// Counts of these names, all 0.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Coverage { counts: names.into_iter().map(|name| (name.into(), 0)).collect() }
    }

    /// Counts one more; a name not declared is added.
    pub fn hit(&mut self, name: &str) {
        self.add(name, 1);
    }

    /// Counts `count` more.
    pub fn add(&mut self, name: &str, count: u64) {
        match self.counts.get_mut(name) {
            Some(known) => *known += count,
            None => {
                self.counts.insert(name.to_owned(), count);
            }
        }
    }

    /// The count of a name; 0 if it is unknown.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// The declared names never hit.
    pub fn missed(&self) -> Vec<&str> {
        self.counts.iter().filter(|(_, count)| **count == 0).map(|(name, _)| name.as_str()).collect()
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Coverage) {
        other.counts.iter().for_each(|(name, count)| self.add(name, *count));
    }
}

/// One line a name, sorted by name.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().try_for_each(|(name, count)| writeln!(f, "{count:10} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_declared_and_never_hit_is_missed() {
        let mut coverage = Coverage::of(["full", "empty", "wrap"]);
        coverage.hit("full");
        coverage.add("surprise", 0);
        let mut other = Coverage::default();
        other.add("wrap", 3);
        coverage.merge(&other);
        assert_eq!(coverage.missed(), ["empty", "surprise"]);
        assert_eq!(coverage.to_string().lines().nth(1), Some("         1 full"));
        assert_eq!((coverage.count("wrap"), coverage.count("unknown")), (3, 0));
    }
}
