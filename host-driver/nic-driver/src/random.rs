//! Settings of the random tests: the same cases in every run, others on request.

use proptest::test_runner::{Config, RngSeed};

/// Seed of a run that names none.
const SEED: u64 = 1;

/// Takes the seed from `PROPTEST_RNG_SEED`; prints it, which shows when the test fails.
pub(crate) fn config() -> Config {
    let asked = Config::default().rng_seed;
    let rng_seed = if matches!(asked, RngSeed::Random) { RngSeed::Fixed(SEED) } else { asked };
    println!("seed {rng_seed}; replay: PROPTEST_RNG_SEED={rng_seed} cargo test -p nic-driver");
    Config { rng_seed, failure_persistence: None, ..Config::default() }
}
