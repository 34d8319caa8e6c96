//! Tag match header: finds the receive buffer of a tagged SEND.

use crate::layout;

layout! {
    /// Tag match header.
    pub struct Tmth[8]: big {
        /// Bits that a posted receive must match.
        match_bits / set_match_bits: 64 as u64,
    }
}
