//! Memory region row: which part of host memory a key opens, to whom and for what.

use crate::{layout, num::Pd};

layout! {
    /// Row of the memory region table. The region's lkey and rkey are both `index << 8 | key`.
    pub struct MrRow[64]: little {
        /// The row is in use.
        valid / set_valid: 1 as bool,
        /// Reserved, zero.
        resv7 / set_resv7: 7 as u8,
        /// Low 8 bits of the region's keys; changed when the row is used again.
        key / set_key: 8 as u8,
        /// Permitted accesses: see the access bits.
        access / set_access: 8 as u8,
        /// Reserved, zero.
        resv8a / set_resv8a: 8 as u8,
        /// Protection domain.
        pd / set_pd: 24 as Pd,
        /// Reserved, zero.
        resv8b / set_resv8b: 8 as u8,
        /// First address of the region in the space that WQEs and packets use.
        va / set_va: 64 as u64,
        /// Length of the region. Bytes; a region of length 0 never matches.
        len / set_len: 64 as u64,
        /// First address of the region on the bus.
        iova / set_iova: 64 as u64,
        /// Reserved, zero.
        resv256 / set_resv256: 256 as [u8; 32],
    }
}

/// Access bit: the card may write the region for its own host.
pub const ACCESS_LOCAL_WRITE: u8 = 1 << 0;
/// Access bit: peers may write the region.
pub const ACCESS_REMOTE_WRITE: u8 = 1 << 1;
/// Access bit: peers may read the region.
pub const ACCESS_REMOTE_READ: u8 = 1 << 2;
/// Access bit: peers may do atomic operations on the region.
pub const ACCESS_REMOTE_ATOMIC: u8 = 1 << 3;
