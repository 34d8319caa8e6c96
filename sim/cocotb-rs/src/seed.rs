//! One root seed per test, named sub-seeds for its parts, and the command that replays a failure.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};
use std::{fmt, ops::RangeInclusive};

/// The environment variable that overrides a test's root seed.
const VARIABLE: &str = "SEED";

/// A seed. Sub-seeds depend on the root and their name only, so adding a random part to a test leaves the others as
/// they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

/// The variable `SEED` is set but is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SEED={value} is no seed: give a decimal number, or hexadecimal after 0x, below 2^64")]
pub struct SeedError {
    value: String,
}

impl Seed {
    /// A root seed.
    pub const fn new(value: u64) -> Self {
        Seed(value)
    }

    /// The root seed in the environment variable `SEED`, or else `default`.
    ///
    /// # Errors
    /// The variable is set and is no number.
    pub fn from_env_or(default: u64) -> Result<Self, SeedError> {
        match std::env::var(VARIABLE) {
            Ok(value) => Self::parse(&value),
            Err(_) => Ok(Seed(default)),
        }
    }

    fn parse(text: &str) -> Result<Self, SeedError> {
        let text = text.trim();
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        parsed.map(Seed).map_err(|_| SeedError { value: text.into() })
    }

    /// The number.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The sub-seed of that name.
    pub fn named(self, name: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0.to_le_bytes());
        hash.update(name);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Seed(u64::from_le_bytes(first))
    }

    /// A generator that starts from this seed.
    pub fn rng(self) -> Rng {
        Rng(ChaCha8Rng::seed_from_u64(self.0))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A random generator whose stream is the same on every machine.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        // The high half of a 64 x 64 bit product; its bias, bound / 2^64, is of no account here.
        let product = u128::from(self.0.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// A number of that range.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let span = range.end().checked_sub(*range.start()).expect("a range that is not empty");
        match span.checked_add(1) {
            Some(bound) => range.start() + self.below(bound),
            None => self.next_u64(),
        }
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u32) -> bool {
        // 2^32 / 100, rounded; 32 bits are drawn because this is called several times a cycle.
        u64::from(self.0.next_u32()) < u64::from(percent) * 42_949_673
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill_bytes(buffer);
    }

    /// That many random bytes.
    pub fn bytes(&mut self, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.fill(&mut bytes);
        bytes
    }
}

/// Prints how to replay a test if the test panics while this lives.
///
/// ```
/// # use cocotb_rs::{Replay, Seed};
/// let seed = Seed::from_env_or(1).unwrap();
/// let _replay = Replay::new(seed, "cargo test -p my-crate my_test");
/// ```
#[derive(Debug)]
pub struct Replay {
    seed: Seed,
    command: String,
}

impl Replay {
    /// Guards the rest of the scope.
    pub fn new(seed: Seed, command: impl Into<String>) -> Self {
        Replay { seed, command: command.into() }
    }

    /// The line printed.
    pub fn line(&self) -> String {
        format!("replay: {VARIABLE}={} {}", self.seed, self.command)
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.line());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_seeds_depend_on_root_and_name_alone() {
        let root = Seed::new(5);
        assert_eq!(root.named("source"), Seed::new(5).named("source"));
        assert_ne!(root.named("source"), root.named("sink"));
        assert_ne!(root.named("source"), Seed::new(6).named("source"));
    }

    #[test]
    fn a_printed_seed_reads_back_and_a_bad_one_is_named() {
        let seed = Seed::new(0xfeed_0000_0000_0001);
        assert_eq!(Seed::parse(&seed.to_string()), Ok(seed));
        assert_eq!(Seed::parse("17"), Ok(Seed::new(17)));
        assert!(Seed::parse("0xg").unwrap_err().to_string().contains("SEED=0xg"));
        assert_eq!(Replay::new(Seed::new(16), "cargo test x").line(), "replay: SEED=0x10 cargo test x");
    }

    #[test]
    fn percent_hits_its_share_and_its_ends() {
        let mut rng = Seed::new(1).rng();
        let hits = (0..10_000).filter(|_| rng.percent(30)).count();
        assert!((2800..3200).contains(&hits), "{hits}");
        assert!((0..10_000).all(|_| rng.percent(100) && !rng.percent(0)));
        assert!((0..1000).all(|_| (3..=5).contains(&rng.within(&(3..=5)))));
    }
}
