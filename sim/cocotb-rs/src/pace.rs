//! When a bus functional model is willing to move: the gaps and the back-pressure of a test.

use crate::seed::{Rng, Seed};

/// Decides cycle by cycle whether a channel may move.
#[derive(Clone, Debug)]
pub struct Pace(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Always,
    Never,
    Random { percent: u32, rng: Box<Rng> },
    Bursty { mean_go: u64, mean_wait: u64, is_going: bool, left: u64, rng: Box<Rng> },
}

impl Pace {
    /// Every cycle.
    pub fn always() -> Self {
        Pace(Kind::Always)
    }

    /// No cycle, until the pace is changed.
    pub fn never() -> Self {
        Pace(Kind::Never)
    }

    /// `percent` of all cycles, each drawn on its own.
    pub fn random(percent: u32, seed: Seed) -> Self {
        match percent {
            0 => Pace::never(),
            1..100 => Pace(Kind::Random { percent, rng: Box::new(seed.rng()) }),
            _ => Pace::always(),
        }
    }

    /// Runs of cycles that move and of cycles that do not, with these mean lengths; it starts moving.
    ///
    /// # Panics
    /// If a mean is 0.
    pub fn bursty(mean_go_cycles: u64, mean_wait_cycles: u64, seed: Seed) -> Self {
        assert!(mean_go_cycles > 0 && mean_wait_cycles > 0, "a run has at least one cycle");
        let rng = Box::new(seed.rng());
        Pace(Kind::Bursty { mean_go: mean_go_cycles, mean_wait: mean_wait_cycles, is_going: false, left: 0, rng })
    }

    /// Whether to move in the next cycle. To be called once a cycle.
    pub fn goes(&mut self) -> bool {
        match &mut self.0 {
            Kind::Always => true,
            Kind::Never => false,
            Kind::Random { percent, rng } => rng.percent(*percent),
            Kind::Bursty { mean_go, mean_wait, is_going, left, rng } => {
                if *left == 0 {
                    *is_going = !*is_going;
                    let mean = if *is_going { *mean_go } else { *mean_wait };
                    *left = rng.within(&(1..=2 * mean - 1));
                }
                *left -= 1;
                *is_going
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pace_keeps_its_share() {
        let share = |mut pace: Pace| (0..10_000).filter(|_| pace.goes()).count();
        assert_eq!((share(Pace::always()), share(Pace::never())), (10_000, 0));
        let random = share(Pace::random(25, Seed::new(3)));
        assert!((2300..2700).contains(&random), "{random}");
        let bursty = share(Pace::bursty(6, 2, Seed::new(3)));
        assert!((7200..7800).contains(&bursty), "{bursty}");
    }
}
