//! Memory fetched ahead of its use.
//!
//! A simulation of many hosts touches more than the caches near the core hold, and what an event will touch is known
//! some events before. A load would do, but it cannot retire before its line is there and so holds up what comes after
//! it; the processor's own hint does not.
#![allow(unsafe_code)]

/// Has the processor fetch the cache line where `place` begins, without waiting for it. Does nothing on processors
/// without such a hint.
#[inline(always)]
pub fn prefetch<T: ?Sized>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a hint, which changes nothing that the program can see; it would not fault on any address, and this
        // one is valid. Every x86_64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(place).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
