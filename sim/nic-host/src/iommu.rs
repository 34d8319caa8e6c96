//! Host memory as a card sees it: through an IOMMU that remembers every fault.
//!
//! A card's access names a device address. Every 4 KiB page of it must be mapped with the right permission, or the
//! access does nothing at all, is recorded as an [`IommuFault`] and returned as an error, which a bus model answers
//! with SLVERR.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nic_driver::mem::{DmaMem, PAGE_BYTES};
use nic_driver::pci::{Direction, DmaAccess, PciError, PciResult};

/// Faults kept with all details; later ones are only counted.
pub const FAULTS_KEPT_MAX: usize = 1024;

/// Memory that a device reads and writes by address: what a bus model needs.
pub trait DeviceMemory: Send + Sync {
    /// Reads `buf.len()` bytes at `addr`.
    ///
    /// # Errors
    /// The fault, when any byte may not be read; `buf` is unchanged then.
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), IommuFault>;

    /// Writes `bytes` at `addr`, ascending.
    ///
    /// # Errors
    /// The fault, when any byte may not be written; nothing is written then.
    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), IommuFault>;
}

/// Why an access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultReason {
    /// A page of the range is not mapped.
    NotMapped,
    /// A page is mapped without the permission that the access needs.
    NotPermitted,
}

/// An access that the IOMMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {direction} of {len_bytes} bytes at {addr:#x}: address {fault_addr:#x} is {}", self.reason.text())]
pub struct IommuFault {
    /// First address of the access.
    pub addr: u64,
    /// Length of the access.
    pub len_bytes: u64,
    /// Read or write, seen from the device.
    pub direction: Direction,
    /// First address of the range at fault.
    pub fault_addr: u64,
    /// Why.
    pub reason: FaultReason,
}

impl FaultReason {
    fn text(self) -> &'static str {
        match self {
            FaultReason::NotMapped => "not mapped",
            FaultReason::NotPermitted => "mapped without that permission",
        }
    }
}

/// The host's memory behind one IOMMU domain, empty at first. Clones name the same domain.
#[derive(Clone, Default)]
pub struct HostMemory {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    /// First address → mapping; no two overlap.
    mappings: RwLock<BTreeMap<u64, Mapping>>,
    faults: Mutex<FaultLog>,
}

struct Mapping {
    len_bytes: u64,
    mem: DmaMem,
    offset_bytes: u64,
    access: DmaAccess,
}

#[derive(Default)]
struct FaultLog {
    kept: Vec<IommuFault>,
    count: u64,
}

impl HostMemory {
    /// A domain with nothing mapped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the device access `len_bytes` of `mem` from `offset_bytes` on at address `iova`.
    ///
    /// # Errors
    /// [`PciError::Dma`] when a number is not whole pages, the range is empty, runs over the end of `mem` or of the
    /// address space, or overlaps a mapping.
    pub fn map(&self, mem: &DmaMem, offset_bytes: u64, len_bytes: u64, iova: u64, access: DmaAccess) -> PciResult<()> {
        let refuse = |reason| Err(PciError::Dma { what: "map", iova, len_bytes, reason });
        if (offset_bytes | len_bytes | iova) % PAGE_BYTES != 0 || len_bytes == 0 {
            return refuse("offset, length and iova must be multiples of 4 KiB, and the length not 0");
        }
        if offset_bytes.checked_add(len_bytes).is_none_or(|end| end > mem.len_bytes()) {
            return refuse("the range runs over the end of the memory");
        }
        let Some(end) = iova.checked_add(len_bytes) else {
            return refuse("the range runs over the end of the address space");
        };
        let mut mappings = self.mappings_mut();
        let before = mappings.range(..end).next_back();
        if before.is_some_and(|(&start, mapping)| start + mapping.len_bytes > iova) {
            return refuse("something is mapped there (unmap it first)");
        }
        mappings.insert(iova, Mapping { len_bytes, mem: mem.clone(), offset_bytes, access });
        Ok(())
    }

    /// Takes the mappings in `iova..iova + len_bytes` back.
    ///
    /// # Errors
    /// [`PciError::Dma`] when the range holds no mapping or would cut one in two.
    pub fn unmap(&self, iova: u64, len_bytes: u64) -> PciResult<()> {
        let refuse = |reason| Err(PciError::Dma { what: "unmap", iova, len_bytes, reason });
        let Some(end) = iova.checked_add(len_bytes) else {
            return refuse("the range runs over the end of the address space");
        };
        let mut mappings = self.mappings_mut();
        let is_cut = |at: u64| {
            let before = mappings.range(..at).next_back();
            before.is_some_and(|(&start, mapping)| start + mapping.len_bytes > at)
        };
        if is_cut(iova) || is_cut(end) {
            return refuse("the range cuts a mapping in two (unmap what was mapped)");
        }
        let starts: Vec<u64> = mappings.range(iova..end).map(|(&start, _)| start).collect();
        if starts.is_empty() {
            return refuse("nothing is mapped there");
        }
        for start in starts {
            mappings.remove(&start);
        }
        Ok(())
    }

    /// Number of mappings.
    pub fn mapping_count(&self) -> usize {
        self.mappings().len()
    }

    /// Faults since the start, or since [`Self::take_faults`].
    pub fn fault_count(&self) -> u64 {
        self.log().count
    }

    /// The faults since the last call, at most [`FAULTS_KEPT_MAX`] of them, oldest first; the count starts anew.
    pub fn take_faults(&self) -> Vec<IommuFault> {
        std::mem::take(&mut *self.log()).kept
    }

    /// Calls `part(memory, offset in it, range of the access)` for every piece of the access, after the whole range
    /// has been found to be permitted.
    fn access(
        &self,
        addr: u64,
        len: usize,
        direction: Direction,
        mut part: impl FnMut(&DmaMem, u64, std::ops::Range<usize>),
    ) -> Result<(), IommuFault> {
        let mappings = self.mappings();
        let mut pieces = Vec::new();
        let mut done = 0usize;
        while done < len {
            let at = addr.checked_add(done as u64);
            let found = at.and_then(|at| {
                let (&start, mapping) = mappings.range(..=at).next_back()?;
                (at - start < mapping.len_bytes).then_some((at - start, mapping))
            });
            let reason = match found {
                None => FaultReason::NotMapped,
                Some((_, mapping)) if !mapping.access.allows(direction) => FaultReason::NotPermitted,
                Some((skip, mapping)) => {
                    let have = usize::try_from(mapping.len_bytes - skip).unwrap_or(usize::MAX);
                    let end = done + have.min(len - done);
                    pieces.push((mapping, mapping.offset_bytes + skip, done..end));
                    done = end;
                    continue;
                }
            };
            let fault_addr = addr.wrapping_add(done as u64);
            let fault = IommuFault { addr, len_bytes: len as u64, direction, fault_addr, reason };
            self.log().add(fault);
            return Err(fault);
        }
        for (mapping, offset, range) in pieces {
            part(&mapping.mem, offset, range);
        }
        Ok(())
    }

    fn mappings(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Mapping>> {
        self.inner.mappings.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn mappings_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Mapping>> {
        self.inner.mappings.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self) -> MutexGuard<'_, FaultLog> {
        self.inner.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceMemory for HostMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), IommuFault> {
        self.access(addr, buf.len(), Direction::Read, |mem, offset, range| mem.read(offset, &mut buf[range]))
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), IommuFault> {
        self.access(addr, bytes.len(), Direction::Write, |mem, offset, range| mem.write(offset, &bytes[range]))
    }
}

impl FaultLog {
    fn add(&mut self, fault: IommuFault) {
        self.count += 1;
        if self.kept.len() < FAULTS_KEPT_MAX {
            self.kept.push(fault);
        }
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemory({} mappings, {} faults)", self.mapping_count(), self.fault_count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: u64 = PAGE_BYTES;
    const BASE: u64 = 0x1_0000_0000;

    fn mapped(pages: u64, access: DmaAccess) -> (HostMemory, DmaMem) {
        let (host, mem) = (HostMemory::new(), DmaMem::zeroed(pages * P));
        host.map(&mem, 0, pages * P, BASE, access).unwrap();
        (host, mem)
    }

    #[test]
    fn device_and_host_see_the_same_bytes() {
        let (host, mem) = mapped(1, DmaAccess::ReadWrite);
        mem.write(5, b"from the host");
        let mut buf = [0; 13];
        host.read(BASE + 5, &mut buf).unwrap();
        assert_eq!(&buf, b"from the host");
        host.write(BASE + 4091, b"card!").unwrap();
        assert_eq!(mem.to_vec(4091, 5), b"card!");
    }

    #[test]
    fn an_access_crosses_from_one_mapping_into_the_next() {
        let (host, first) = mapped(1, DmaAccess::ReadWrite);
        let second = DmaMem::zeroed(2 * P);
        host.map(&second, P, P, BASE + P, DmaAccess::ReadWrite).unwrap();
        host.write(BASE + P - 3, b"abcdef").unwrap();
        assert_eq!((first.to_vec(P - 3, 3), second.to_vec(P, 3)), (b"abc".to_vec(), b"def".to_vec()));
        assert_eq!(second.to_vec(0, 8), [0; 8]);
        let mut buf = [0; 6];
        host.read(BASE + P - 3, &mut buf).unwrap();
        assert_eq!(&buf, b"abcdef");
    }

    #[test]
    fn a_fault_is_recorded_with_address_length_and_direction_and_moves_nothing() {
        let (host, mem) = mapped(1, DmaAccess::ReadWrite);
        let fault = host.write(BASE + P - 2, b"xyz").unwrap_err();
        let expected = IommuFault {
            addr: BASE + P - 2,
            len_bytes: 3,
            direction: Direction::Write,
            fault_addr: BASE + P,
            reason: FaultReason::NotMapped,
        };
        assert_eq!(fault, expected);
        assert_eq!(mem.to_vec(P - 2, 2), [0, 0], "the permitted part was not written either");
        let mut buf = [7; 4];
        host.read(BASE - 4, &mut buf).unwrap_err();
        assert_eq!(buf, [7; 4]);
        assert_eq!(host.fault_count(), 2);
        let faults = host.take_faults();
        assert_eq!((faults.len(), faults[0], faults[1].direction), (2, expected, Direction::Read));
        assert_eq!((host.fault_count(), host.take_faults().len()), (0, 0));
        assert_eq!(fault.to_string(), "device write of 3 bytes at 0x100000ffe: address 0x100001000 is not mapped");
    }

    #[test]
    fn permission_is_per_mapping_and_direction() {
        for (access, may_read, may_write) in
            [(DmaAccess::Read, true, false), (DmaAccess::Write, false, true), (DmaAccess::ReadWrite, true, true)]
        {
            let (host, _mem) = mapped(1, access);
            assert_eq!(host.read(BASE, &mut [0; 8]).is_ok(), may_read, "{access:?}");
            assert_eq!(host.write(BASE, &[0; 8]).is_ok(), may_write, "{access:?}");
            for fault in host.take_faults() {
                assert_eq!(fault.reason, FaultReason::NotPermitted);
            }
        }
    }

    #[test]
    fn after_unmap_the_device_faults_and_the_host_keeps_its_memory() {
        let (host, mem) = mapped(2, DmaAccess::ReadWrite);
        host.write(BASE, &[1]).unwrap();
        host.unmap(BASE, 2 * P).unwrap();
        host.write(BASE, &[2]).unwrap_err();
        assert_eq!(mem.load_u8(0), 1);
        assert_eq!(host.mapping_count(), 0);
    }

    #[test]
    fn a_mapping_is_neither_overlapped_nor_cut() {
        let (host, mem) = mapped(2, DmaAccess::Read);
        let dma = |what, result: PciResult<()>| match result {
            Err(PciError::Dma { what: got, .. }) => assert_eq!(got, what),
            other => panic!("{other:?}"),
        };
        for iova in [BASE - P, BASE, BASE + P] {
            dma("map", host.map(&mem, 0, 2 * P, iova, DmaAccess::Read));
        }
        for (iova, len) in
            [(BASE, P), (BASE + P, P), (BASE - P, 2 * P), (BASE + 2 * P, P), (BASE + 1, P), (u64::MAX, P)]
        {
            dma("unmap", host.unmap(iova, len));
        }
        for (offset, len, iova) in
            [(1, P, 0), (0, P + 1, 0), (0, P, 8), (0, 0, 0), (P, 2 * P, 0), (0, P, P.wrapping_neg())]
        {
            dma("map", host.map(&mem, offset, len, iova, DmaAccess::Read));
        }
        assert_eq!(host.mapping_count(), 1);
        host.map(&mem, 0, P, BASE + 2 * P, DmaAccess::Read).unwrap();
        host.unmap(BASE - P, 4 * P).unwrap();
        assert_eq!(host.mapping_count(), 0, "a range that holds two mappings whole takes both back");
    }

    #[test]
    fn an_access_at_the_end_of_the_address_space_faults() {
        let (host, _mem) = mapped(1, DmaAccess::ReadWrite);
        assert_eq!(host.read(u64::MAX, &mut [0; 2]).unwrap_err().fault_addr, u64::MAX);
        host.read(u64::MAX, &mut []).unwrap();
    }

    #[test]
    fn faults_beyond_the_limit_are_counted_and_not_kept() {
        let host = HostMemory::new();
        for addr in 0..FAULTS_KEPT_MAX as u64 + 5 {
            host.write(addr, &[0]).unwrap_err();
        }
        assert_eq!(host.fault_count(), FAULTS_KEPT_MAX as u64 + 5);
        assert_eq!(host.take_faults().len(), FAULTS_KEPT_MAX);
    }
}
