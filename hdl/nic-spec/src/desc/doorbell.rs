//! Doorbell word: tells the card how far a queue has got.

use crate::layout;

layout! {
    /// Word written to a doorbell.
    pub struct Doorbell[4]: little {
        /// Send queue: new producer index. Receive queue: receives posted so far. Completion queue: new consumer index.
        /// All modulo 2^16.
        index / set_index: 16 as u16,
        /// Reserved, zero.
        resv15 / set_resv15: 15 as u16,
        /// Completion queue: send an interrupt at the next completion. Otherwise zero.
        arm / set_arm: 1 as bool,
    }
}
