//! Buffer header: where in the posted receive buffer a packet of a SEND goes.

use crate::layout;

layout! {
    /// Buffer header of a SEND.
    pub struct Bxth[8]: big {
        /// Offset of this packet's first byte within the message. Bytes.
        msg_offset / set_msg_offset: 32 as u32,
        /// Length of the whole message. Bytes.
        msg_len / set_msg_len: 32 as u32,
    }
}
