//! Random choices of a run, all from one stream.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// The stream.
#[derive(Clone, Debug)]
pub struct Draw(ChaCha8Rng);

impl Draw {
    /// The stream of this seed for this purpose; different purposes do not disturb each other.
    pub fn new(seed: u64, purpose: u64) -> Draw {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose);
        Draw(rng)
    }

    /// Any number.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The upper half of the product is even enough for ranges far below 2^64.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number from `low` to `high` whose order of magnitude is drawn evenly; `low` is at least 1.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let octave = self.between(u64::from(low.ilog2()), u64::from(high.ilog2()));
        self.between(1 << octave, (2 << octave) - 1).clamp(low, high)
    }

    /// True this often of a hundred times.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// An index, each as likely as its weight says. At least one weight is not 0.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut at = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return index,
            }
        }
        unreachable!("the sum of the weights bounds the draw")
    }

    /// Fills with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_their_ranges_and_reach_both_ends() {
        let mut draw = Draw::new(1, 0);
        let drawn: Vec<u64> = (0..1000).map(|_| draw.between(5, 8)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&5), Some(&8)));
        assert!((0..1000).map(|_| draw.magnitude(3, 1000)).all(|n| (3..=1000).contains(&n)));
        assert_eq!(draw.below(0), 0);
        let weighted: Vec<usize> = (0..100).map(|_| draw.weighted(&[0, 1, 0, 1])).collect();
        assert!(weighted.contains(&1) && weighted.contains(&3) && weighted.iter().all(|i| i % 2 == 1));
    }

    #[test]
    fn purposes_do_not_disturb_each_other() {
        let (mut a, mut b, mut same) = (Draw::new(7, 0), Draw::new(7, 1), Draw::new(7, 0));
        let first = a.bits();
        assert_ne!(first, b.bits());
        assert_eq!(first, same.bits());
    }
}
