//! Addresses that the device sees: who has which range.
//!
//! First fit over a sorted list of free ranges. Between two ranges given out lies at least one page that is never
//! mapped, so that a device that runs over the end of a buffer faults instead of hitting the neighbour. Addresses start
//! above 4 GiB: one that lost its upper half on the way faults too.

use std::collections::BTreeMap;

use crate::mem::PAGE_BYTES;

/// First address given out by [`IovaAllocator::default`].
pub const IOVA_FIRST: u64 = 1 << 32;

/// One past the last address given out by [`IovaAllocator::default`]: 48 bits pass every IOMMU.
pub const IOVA_END: u64 = 1 << 48;

/// Allocator of device addresses.
#[derive(Clone, Debug)]
pub struct IovaAllocator {
    /// Start → length of every free range; no two touch.
    free: BTreeMap<u64, u64>,
}

impl Default for IovaAllocator {
    fn default() -> Self {
        Self::new(IOVA_FIRST, IOVA_END)
    }
}

impl IovaAllocator {
    /// Gives out `first..end`, which are multiples of [`PAGE_BYTES`].
    pub fn new(first: u64, end: u64) -> Self {
        assert!(first % PAGE_BYTES == 0 && end % PAGE_BYTES == 0 && first < end, "iova range {first:#x}..{end:#x}");
        Self { free: BTreeMap::from([(first, end - first)]) }
    }

    /// An address for `len_bytes` bytes, a multiple of [`PAGE_BYTES`]; `None` when no free range is long enough.
    pub fn allocate(&mut self, len_bytes: u64) -> Option<u64> {
        let need = Self::with_guard(len_bytes)?;
        let (&start, &have) = self.free.iter().find(|(_, &have)| have >= need)?;
        self.free.remove(&start);
        if have > need {
            self.free.insert(start + need, have - need);
        }
        Some(start)
    }

    /// Takes back what [`Self::allocate`] returned for the same length.
    pub fn release(&mut self, iova: u64, len_bytes: u64) {
        let mut len = Self::with_guard(len_bytes).expect("the length was allocated");
        let mut start = iova;
        if let Some((&before, &before_len)) = self.free.range(..iova).next_back() {
            assert!(before + before_len <= iova, "iova {iova:#x} is released twice");
            if before + before_len == iova {
                (start, len) = (before, before_len + len);
            }
        }
        if let Some((&after, &after_len)) = self.free.range(iova..).next() {
            assert!(after >= start + len, "iova {iova:#x} is released twice");
            if after == start + len {
                self.free.remove(&after);
                len += after_len;
            }
        }
        self.free.insert(start, len);
    }

    /// Free bytes, guard pages included.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    fn with_guard(len_bytes: u64) -> Option<u64> {
        assert!(len_bytes > 0 && len_bytes % PAGE_BYTES == 0, "{len_bytes:#x} bytes are not whole pages");
        len_bytes.checked_add(PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: u64 = PAGE_BYTES;

    #[test]
    fn ranges_have_an_unused_page_between_them() {
        let mut iova = IovaAllocator::new(16 * P, 64 * P);
        assert_eq!([iova.allocate(P), iova.allocate(3 * P)], [Some(16 * P), Some(18 * P)]);
        assert_eq!(iova.allocate(P), Some(22 * P));
    }

    #[test]
    fn exhaustion_is_none_and_release_makes_room() {
        let mut iova = IovaAllocator::new(P, 5 * P);
        let a = iova.allocate(P).unwrap();
        let b = iova.allocate(P).unwrap();
        assert_eq!(iova.allocate(P), None);
        assert_eq!(iova.allocate(u64::MAX - P + 1), None);
        iova.release(a, P);
        assert_eq!(iova.allocate(2 * P), None);
        iova.release(b, P);
        assert_eq!(iova.allocate(3 * P), Some(P), "neighbours are joined again");
    }

    proptest! {
        #![proptest_config(crate::random::config())]
        #[test]
        fn ranges_given_out_never_overlap_and_all_come_back(steps in prop::collection::vec((any::<bool>(), 1u64..6, any::<prop::sample::Index>()), 1..80)) {
            let mut iova = IovaAllocator::new(P, 101 * P);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (take, pages, pick) in steps {
                if take {
                    let Some(start) = iova.allocate(pages * P) else { continue };
                    for &(other, len) in &held {
                        prop_assert!(start + pages * P < other || other + len < start);
                    }
                    prop_assert!(start >= P && start + pages * P <= 101 * P);
                    held.push((start, pages * P));
                } else if !held.is_empty() {
                    let (start, len) = held.swap_remove(pick.index(held.len()));
                    iova.release(start, len);
                }
            }
            for (start, len) in held {
                iova.release(start, len);
            }
            prop_assert_eq!(iova.free_bytes(), 100 * P);
            prop_assert_eq!(iova.allocate(99 * P), Some(P));
        }
    }
}
