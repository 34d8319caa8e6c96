//! Headers of atomic operations and their responses.

use crate::{codes, layout, num::Rkey};

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
        resv8 / set_resv8: 8 as u8,
        /// What to do: see the atomic operations. A response repeats it.
        op / set_op: 8 as u8,
    }
}

codes! {
    /// Atomic operations on 8 bytes.
    pub enum AtomicOp(u8) {
        /// Swap in the new value if the operand equals the value to compare with.
        CompareSwap = 0, "COMPARE_SWAP";
        /// Add to the operand, modulo 2^64.
        FetchAdd = 1, "FETCH_ADD";
    }
}

layout! {
    /// Result of an atomic operation.
    pub struct AtomicAckEth[8]: big {
        /// Value of the operand before the operation.
        orig / set_orig: 64 as u64,
    }
}
