//! UDP header; its source port steers the packet.

use crate::layout;

layout! {
    /// UDP header.
    pub struct Udp[8]: big {
        /// Source port: entropy by which switches choose the way of the path.
        src_port / set_src_port: 16 as u16,
        /// Destination port; 4791 by default.
        dst_port / set_dst_port: 16 as u16,
        /// Length of this header and what follows. Bytes.
        len / set_len: 16 as u16,
        /// Checksum; 0 = none.
        checksum / set_checksum: 16 as u16,
    }
}
