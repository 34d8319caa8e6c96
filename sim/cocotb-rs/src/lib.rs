//! Verilated models built at run time and driven by async Rust tasks.
