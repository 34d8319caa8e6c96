//! RDMA header: where in the peer's memory a packet goes.

use crate::{layout, num::Rkey};

layout! {
    /// RDMA extended transport header.
    pub struct Reth[16]: big {
        /// Virtual address of this packet's first byte at the receiver.
        va / set_va: 64 as u64,
        /// Key of the memory region at the receiver.
        rkey / set_rkey: 32 as Rkey,
        /// Length of the whole message. Bytes.
        dma_len / set_dma_len: 32 as u32,
    }
}
