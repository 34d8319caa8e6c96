//! Headers in the last packet of a message: immediate data, or the key to invalidate.

use crate::{layout, num::Rkey};

layout! {
    /// Immediate data.
    pub struct ImmDt[4]: big {
        /// Data handed to the receiver's completion.
        imm / set_imm: 32 as u32,
    }
}

layout! {
    /// Invalidate header.
    pub struct Ieth[4]: big {
        /// Key that the receiver invalidates.
        rkey / set_rkey: 32 as Rkey,
    }
}
