//! The driver against a card in memory that is made from the same tables.

// The card.
mod fake_card;

mod engine;

mod registers;

#[path = "../../src/random.rs"]
mod random;

// What the driver has to do with it.
mod bring_up;

mod resources;

mod connection;

mod transfer;

mod rings;

mod completions;

mod failures;
