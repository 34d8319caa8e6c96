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
    hint(core::ptr::from_ref(place).cast());
}

/// The same for every cache line of `place`.
#[inline(always)]
pub fn prefetch_all<T>(place: &T) {
    let start = core::ptr::from_ref(place).cast::<u8>();
    // A number known when this is compiled: no loop is left of it.
    for line in 0..size_of::<T>().div_ceil(LINE_BYTES) {
        hint(start.wrapping_add(line * LINE_BYTES));
    }
    if align_of::<T>() < LINE_BYTES {
        hint(start.wrapping_add(size_of::<T>().saturating_sub(1)));
    }
}

/// The same for `COUNT` lines from the beginning of `place` on.
#[inline(always)]
pub(crate) fn prefetch_lines<const COUNT: usize>(place: &dyn crate::Node) {
    let start = core::ptr::from_ref(place).cast::<u8>();
    (0..COUNT).for_each(|line| hint(start.wrapping_add(line * LINE_BYTES)));
}

/// Of the processors that this is for.
const LINE_BYTES: usize = 64;

#[inline(always)]
fn hint(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        // SAFETY: a hint, which changes nothing that the program can see; it does not fault on any
        // address. Every x86_64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
