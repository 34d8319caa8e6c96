//! What stands behind an AXI4 memory: a trait, and a sparse memory that grows as it is written.

use super::Response;
use std::collections::BTreeMap;

const PAGE_BYTES: usize = 4096;

/// An address space that an [`Axi4Memory`](super::Axi4Memory) reads and writes. Lengths are at most one burst, and
/// nothing crosses a 4 KiB boundary.
pub trait Memory {
    /// Fills `data` from `addr` on. The content of `data` does not matter if the response is an error.
    fn read(&mut self, addr: u64, data: &mut [u8]) -> Response;

    /// Writes `data` from `addr` on. A write with gaps comes as several calls, in ascending order.
    fn write(&mut self, addr: u64, data: &[u8]) -> Response;
}

/// A memory of 2^64 bytes, zero until written.
#[derive(Clone, Debug, Default)]
pub struct SparseMemory {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
}

impl SparseMemory {
    /// An empty memory.
    pub fn new() -> Self {
        SparseMemory::default()
    }

    /// Copies bytes in, whatever their length. Addresses wrap at 2^64.
    pub fn store(&mut self, addr: u64, data: &[u8]) {
        let mut at = addr;
        let mut rest = data;
        while !rest.is_empty() {
            let offset = at as usize % PAGE_BYTES;
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - offset));
            let page = self.pages.entry(at / PAGE_BYTES as u64).or_insert_with(|| Box::new([0; PAGE_BYTES]));
            page[offset..offset + now.len()].copy_from_slice(now);
            at = at.wrapping_add(now.len() as u64);
            rest = later;
        }
    }

    /// Copies bytes out, whatever their length. Addresses wrap at 2^64.
    pub fn load(&self, addr: u64, data: &mut [u8]) {
        let mut at = addr;
        let mut rest = data;
        while !rest.is_empty() {
            let offset = at as usize % PAGE_BYTES;
            let len = rest.len().min(PAGE_BYTES - offset);
            let (now, later) = rest.split_at_mut(len);
            match self.pages.get(&(at / PAGE_BYTES as u64)) {
                Some(page) => now.copy_from_slice(&page[offset..offset + len]),
                None => now.fill(0),
            }
            at = at.wrapping_add(len as u64);
            rest = later;
        }
    }

    /// That many bytes from `addr` on.
    pub fn bytes(&self, addr: u64, len_bytes: usize) -> Vec<u8> {
        let mut data = vec![0; len_bytes];
        self.load(addr, &mut data);
        data
    }
}

impl Memory for SparseMemory {
    fn read(&mut self, addr: u64, data: &mut [u8]) -> Response {
        self.load(addr, data);
        Response::Okay
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Response {
        self.store(addr, data);
        Response::Okay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cross_pages_and_unwritten_ones_are_zero() {
        let mut memory = SparseMemory::new();
        let data: Vec<u8> = (0..9000_u32).map(|i| i as u8 | 1).collect();
        memory.store(0xfff, &data);
        assert_eq!(memory.bytes(0xfff, data.len()), data);
        assert_eq!(memory.bytes(0xffe, 1), [0]);
        memory.store(u64::MAX, &[7, 8]);
        assert_eq!((memory.bytes(u64::MAX, 1), memory.bytes(0, 1)), (vec![7], vec![8]));
    }
}
