//! Port status header: tells the peer which planes are usable.

use crate::layout;

layout! {
    /// Port status header.
    pub struct Psth[12]: big {
        /// Bit p is set when plane p is up.
        planes_up / set_planes_up: 16 as u16,
        /// Number of the report; the newest wins.
        seq / set_seq: 16 as u16,
        /// Reserved, sent as zero.
        resv32 / set_resv32: 32 as u32,
        /// Free number that identifies the report.
        cookie / set_cookie: 32 as u32,
    }
}
