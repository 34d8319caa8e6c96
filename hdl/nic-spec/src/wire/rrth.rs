//! Read header: ties a response packet to its request.

use crate::layout;

layout! {
    /// Read request and response header.
    pub struct Rrth[12]: big {
        /// Number of the read within the connection.
        read_id / set_read_id: 16 as u16,
        /// Reserved, sent as zero.
        resv16 / set_resv16: 16 as u16,
        /// Offset of this packet's first byte within the read. Bytes.
        offset / set_offset: 32 as u32,
        /// Length of the whole read. Bytes.
        len / set_len: 32 as u32,
    }
}
