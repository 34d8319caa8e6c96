//! Host memory that host and card share: bytes in atomic words, so that sharing needs no `unsafe`.
//!
//! A [`DmaMem`] is a handle; clones name the same memory. Whole 8-byte words are loaded with acquire and stored with
//! release order, always in ascending address order. So whoever writes a record with one call and keeps its flag (a
//! phase bit) in the record's last word publishes the rest with it, provided that the reader looks at the flag first.
//! Parts of a word are merged atomically: writers of different bytes of one word do not disturb each other.
//!
//! Where the words come from is private, so that memory backed by a file descriptor, which a process can share with
//! the kernel or another process, can be added without changing a caller.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Granule of [`DmaMem`] sizes and of every mapping for the device. Bytes.
pub const PAGE_BYTES: u64 = 4096;

const WORD_BYTES: usize = 8;

/// A piece of host memory that a device may be given access to.
#[derive(Clone)]
pub struct DmaMem {
    words: Arc<[AtomicU64]>,
}

impl DmaMem {
    /// Memory of at least `len_bytes`, rounded up to whole pages and at least one, all zero.
    pub fn zeroed(len_bytes: u64) -> Self {
        let len =
            usize::try_from(len_bytes.max(1).next_multiple_of(PAGE_BYTES)).expect("memory fits the address space");
        Self { words: (0..len / WORD_BYTES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Size in bytes, a multiple of [`PAGE_BYTES`].
    pub fn len_bytes(&self) -> u64 {
        (self.words.len() * WORD_BYTES) as u64
    }

    /// True when both handles name the same memory.
    pub fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.words, &other.words)
    }

    /// Copies bytes out, ascending.
    ///
    /// # Panics
    /// When the range is not inside the memory, as indexing a slice would.
    #[track_caller]
    pub fn read(&self, offset_bytes: u64, buf: &mut [u8]) {
        let start = self.check(offset_bytes, buf.len());
        let (mut at, mut rest) = (start, buf);
        while !rest.is_empty() {
            let skip = at % WORD_BYTES;
            let n = rest.len().min(WORD_BYTES - skip);
            let (now, later) = rest.split_at_mut(n);
            let word = self.words[at / WORD_BYTES].load(Ordering::Acquire).to_le_bytes();
            now.copy_from_slice(&word[skip..skip + n]);
            (at, rest) = (at + n, later);
        }
    }

    /// Copies bytes in, ascending.
    ///
    /// # Panics
    /// When the range is not inside the memory, as indexing a slice would.
    #[track_caller]
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) {
        let start = self.check(offset_bytes, bytes.len());
        let (mut at, mut rest) = (start, bytes);
        while !rest.is_empty() {
            let skip = at % WORD_BYTES;
            let n = rest.len().min(WORD_BYTES - skip);
            let (now, later) = rest.split_at(n);
            let word = &self.words[at / WORD_BYTES];
            let mut value = [0; WORD_BYTES];
            value[skip..skip + n].copy_from_slice(now);
            let value = u64::from_le_bytes(value);
            if n == WORD_BYTES {
                word.store(value, Ordering::Release);
            } else {
                let mask = (u64::MAX >> (64 - 8 * n)) << (8 * skip);
                let merge = |old: u64| Some(old & !mask | value);
                let merged = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, merge);
                debug_assert!(merged.is_ok(), "the closure never refuses");
            }
            (at, rest) = (at + n, later);
        }
    }

    /// `len_bytes` bytes from `offset_bytes` on.
    ///
    /// # Panics
    /// When the range is not inside the memory, as indexing a slice would.
    #[track_caller]
    pub fn to_vec(&self, offset_bytes: u64, len_bytes: usize) -> Vec<u8> {
        let mut buf = vec![0; len_bytes];
        self.read(offset_bytes, &mut buf);
        buf
    }

    /// The byte at `offset_bytes`, read with acquire order: what the writer stored before it is visible afterwards.
    ///
    /// # Panics
    /// When the byte is not inside the memory, as indexing a slice would.
    #[track_caller]
    pub fn load_u8(&self, offset_bytes: u64) -> u8 {
        let at = self.check(offset_bytes, 1);
        self.words[at / WORD_BYTES].load(Ordering::Acquire).to_le_bytes()[at % WORD_BYTES]
    }

    #[track_caller]
    fn check(&self, offset_bytes: u64, len: usize) -> usize {
        let end = offset_bytes.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.len_bytes()),
            "{len} bytes at {offset_bytes:#x} are not inside {:#x} bytes of memory",
            self.len_bytes()
        );
        offset_bytes as usize
    }
}

impl fmt::Debug for DmaMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaMem({:#x} bytes)", self.len_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_is_whole_pages_and_zero() {
        for (asked, got) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
            let mem = DmaMem::zeroed(asked);
            assert_eq!(mem.len_bytes(), got);
            assert!(mem.to_vec(0, got as usize).iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn clones_name_the_same_memory() {
        let a = DmaMem::zeroed(1);
        let b = a.clone();
        b.write(4095, &[7]);
        assert_eq!(a.load_u8(4095), 7);
        assert!(a.is_same_as(&b) && !a.is_same_as(&DmaMem::zeroed(1)));
    }

    #[test]
    fn writers_of_different_bytes_of_one_word_do_not_lose_each_other() {
        let mem = DmaMem::zeroed(1);
        std::thread::scope(|scope| {
            for byte in 0..8u64 {
                let mem = mem.clone();
                scope.spawn(move || (1..=200u8).for_each(|v| mem.write(byte, &[v])));
            }
        });
        assert_eq!(mem.to_vec(0, 8), [200; 8]);
    }

    proptest! {
        #![proptest_config(crate::random::config())]
        #[test]
        fn any_sequence_of_writes_reads_back_as_from_a_byte_array(
            writes in prop::collection::vec((0u64..200, prop::collection::vec(any::<u8>(), 0..40)), 1..20),
            at in 0usize..200, len in 0usize..60,
        ) {
            let (mem, mut model) = (DmaMem::zeroed(1), vec![0u8; 4096]);
            for (offset, bytes) in &writes {
                mem.write(*offset, bytes);
                model[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            prop_assert_eq!(mem.to_vec(at as u64, len), &model[at..at + len]);
            prop_assert_eq!(mem.load_u8(at as u64), model[at]);
        }
    }
}
