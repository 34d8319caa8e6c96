//! Random streams: one ChaCha8 generator per entity and purpose, all from one root seed.

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

/// What a stream is for. The numbers are part of the results: a new purpose gets a new number.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// Probabilistic ECN marking of a link.
    Ecn = 1,
    /// A rule on a link; the rule's index is the sub-entity.
    Rule = 2,
    /// Spraying and the ECMP seed of a switch.
    Switch = 3,
    /// A node's own choices.
    Node = 4,
    /// Who sends to whom in generated traffic.
    Workload = 5,
}

/// The stream of one entity.
pub(crate) fn stream(root: u64, purpose: Purpose, entity: u32, sub: u32) -> ChaCha8Rng {
    let mut seed = [0; 32];
    seed[0..8].copy_from_slice(&root.to_le_bytes());
    seed[8..16].copy_from_slice(&(purpose as u64).to_le_bytes());
    seed[16..20].copy_from_slice(&entity.to_le_bytes());
    seed[20..24].copy_from_slice(&sub.to_le_bytes());
    ChaCha8Rng::from_seed(seed)
}

/// Parts per million as a threshold for a 32-bit draw: the event happens when `draw < threshold`.
pub(crate) fn threshold_of_ppm(ppm: u32) -> u64 {
    (u64::from(ppm.min(1_000_000)) << 32) / 1_000_000
}
