//! Where a card is put under test: benches, cases, experiments.
