//! Path control header: opens, closes and re-aims a path.

use crate::{
    codes, layout,
    num::{Epoch, PathId, Psn},
};

layout! {
    /// Path control header.
    pub struct Pcth[12]: big {
        /// What to do: see the path operations.
        op / set_op: 8 as u8,
        /// Path it is done to.
        path / set_path: 8 as PathId,
        /// Flags: bit 0 = this is the reply to the operation; the others are reserved, sent as zero.
        flags / set_flags: 8 as u8,
        /// Reserved, sent as zero.
        resv4 / set_resv4: 4 as u8,
        /// Epoch from now on.
        new_epoch / set_new_epoch: 4 as Epoch,
        /// Reserved, sent as zero.
        resv8 / set_resv8: 8 as u8,
        /// Cumulative PSEQ of a path that is closed.
        cum_pseq / set_cum_pseq: 24 as Psn,
        /// Reserved, sent as zero.
        resv32 / set_resv32: 32 as u32,
    }
}

codes! {
    /// Path operations.
    pub enum PathOp(u8) {
        /// Path comes into use.
        Open = 1, "OPEN";
        /// Path is retired; the reply states what was received.
        Close = 2, "CLOSE";
        /// Path takes a new source port or plane.
        ReAim = 3, "RE_AIM";
        /// Unreceived packets of a closed path move to others.
        Remap = 4, "REMAP";
    }
}
