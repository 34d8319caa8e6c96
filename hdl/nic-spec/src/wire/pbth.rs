//! Probe header: asks for an acknowledgement without carrying data.

use crate::{layout, num::Psn};

layout! {
    /// Probe header.
    pub struct Pbth[8]: big {
        /// Next PSEQ the sender will use on this path; everything before it was sent.
        snd_nxt / set_snd_nxt: 24 as Psn,
        /// Reserved, sent as zero.
        resv8 / set_resv8: 8 as u8,
        /// Free number that identifies the probe.
        cookie / set_cookie: 32 as u32,
    }
}
