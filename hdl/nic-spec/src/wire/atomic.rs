//! Headers of atomic operations and their responses.

use crate::{layout, num::Rkey};

layout! {
    /// Atomic operation.
    pub struct AtomicEth[28]: big {
        /// Virtual address of the 8-byte operand at the receiver.
        va / set_va: 64 as u64,
        /// Key of the memory region at the receiver.
        rkey / set_rkey: 32 as Rkey,
        /// Value to swap in or to add.
        swap_add / set_swap_add: 64 as u64,
        /// Value to compare with.
        compare / set_compare: 64 as u64,
    }
}

layout! {
    /// Ties an atomic response to its request.
    pub struct Atag[4]: big {
        /// Number of the atomic operation within the connection.
        atomic_id / set_atomic_id: 16 as u16,
        /// Reserved, sent as zero.
        resv16 / set_resv16: 16 as u16,
    }
}

layout! {
    /// Result of an atomic operation.
    pub struct AtomicAckEth[8]: big {
        /// Value of the operand before the operation.
        orig / set_orig: 64 as u64,
    }
}
