//! Host memory of real bytes in which every byte that is nobody's is watched.
//!
//! Memory consists of regions with gaps between them. An access that is not inside one region is a violation even where
//! the card's memory region would permit it, so a placement that is off by one byte is found when it happens.

use nic_model::memory::{Fault, HostMemory};
use nic_model::wire::frame::Payload;

use crate::draw::Draw;

/// Bus address of the first byte.
pub const BASE: u64 = 0x10_0000;

/// A part of memory that has a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Bus address.
    pub iova: u64,
    /// Length, bytes.
    pub len: u64,
    /// The card may write it.
    pub is_target: bool,
}

/// Memory of one host.
#[derive(Clone, Debug, Default)]
pub struct GuardedMemory {
    bytes: Vec<u8>,
    /// In the order of their addresses.
    regions: Vec<Region>,
    /// Parts that were taken away.
    revoked: Vec<Region>,
    violation: Option<String>,
}

impl GuardedMemory {
    /// No memory yet.
    pub fn new() -> GuardedMemory {
        GuardedMemory::default()
    }

    /// Adds a region of random content after a gap.
    pub fn add(&mut self, draw: &mut Draw, len: u64, align: u64, is_target: bool) -> Region {
        let gap_end = self.bytes.len() as u64 + draw.between(1, 40);
        let start = gap_end.next_multiple_of(align);
        let filled = self.bytes.len();
        self.bytes.resize((start + len) as usize, 0);
        draw.fill(&mut self.bytes[filled..]);
        let region = Region { iova: BASE + start, len, is_target };
        self.regions.push(region);
        region
    }

    /// Bus address after the last byte.
    pub fn end(&self) -> u64 {
        BASE + self.bytes.len() as u64
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes at a bus address.
    ///
    /// # Panics
    /// If they are not there.
    pub fn at(&self, iova: u64, len: u64) -> &[u8] {
        &self.bytes[(iova - BASE) as usize..(iova - BASE + len) as usize]
    }

    /// The region that has the byte at this offset of [`GuardedMemory::bytes`].
    pub fn region_at(&self, offset: usize) -> Option<Region> {
        let iova = BASE + offset as u64;
        self.regions.iter().copied().find(|region| (region.iova..region.iova + region.len).contains(&iova))
    }

    /// The first access that should not have been.
    pub fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }

    /// From now on nothing of `region` may be touched.
    pub fn revoke(&mut self, region: Region) {
        self.revoked.push(region);
    }

    fn check(&mut self, iova: u64, len_bytes: u32, is_write: bool) -> Result<std::ops::Range<usize>, Fault> {
        let end = iova.saturating_add(u64::from(len_bytes));
        let index = self.regions.partition_point(|region| region.iova <= iova);
        let region = index.checked_sub(1).map(|index| self.regions[index]);
        let is_inside = region.is_some_and(|region| end <= region.iova + region.len && (region.is_target || !is_write));
        if !is_inside {
            let what = if is_write { "write" } else { "read" };
            let near = region.map_or("before every region".into(), |r| format!("after the start of {r:x?}"));
            self.violation.get_or_insert(format!("{what} of {len_bytes} bytes at {iova:#x}, {near}"));
            return Err(Fault { iova, len_bytes });
        }
        if let Some(gone) = self.revoked.iter().find(|gone| gone.iova < end && iova < gone.iova + gone.len) {
            let what = if is_write { "write" } else { "read" };
            self.violation.get_or_insert(format!("{what} of {len_bytes} bytes at {iova:#x}, taken away: {gone:x?}"));
            return Err(Fault { iova, len_bytes });
        }
        Ok((iova - BASE) as usize..(end - BASE) as usize)
    }
}

impl HostMemory for GuardedMemory {
    fn read(&mut self, iova: u64, len_bytes: u32) -> Result<Payload, Fault> {
        let range = self.check(iova, len_bytes, false)?;
        Ok(Payload::from_bytes(&self.bytes[range]))
    }

    fn write(&mut self, iova: u64, data: &Payload) -> Result<(), Fault> {
        let range = self.check(iova, data.len_bytes(), true)?;
        match data.bytes() {
            Some(bytes) => self.bytes[range].copy_from_slice(bytes),
            None => {
                self.violation.get_or_insert(format!("write of a payload without bytes at {iova:#x}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accesses_inside_one_region_of_the_right_kind_pass() {
        let mut memory = GuardedMemory::new();
        let mut draw = Draw::new(1, 0);
        let source = memory.add(&mut draw, 10, 1, false);
        let target = memory.add(&mut draw, 10, 8, true);
        assert_eq!(target.iova % 8, 0);
        let byte = Payload::from_bytes(&[1]);
        assert!(memory.read(source.iova, 10).is_ok() && memory.read(target.iova + 9, 1).is_ok());
        assert!(memory.write(target.iova + 9, &byte).is_ok());
        assert_eq!(memory.take_violation(), None);
        for (iova, is_write) in [(source.iova, true), (target.iova + 10, true), (target.iova - 1, true), (BASE, false)]
        {
            let result = if is_write { memory.write(iova, &byte) } else { memory.read(iova, 1).map(|_| ()) };
            assert!(result.is_err() && memory.take_violation().is_some(), "{iova:#x}");
        }
        assert!(memory.read(source.iova, 11).is_err() && memory.take_violation().is_some());
        memory.revoke(Region { iova: target.iova + 4, len: 2, ..target });
        assert!(memory.write(target.iova + 3, &byte).is_ok() && memory.read(target.iova + 6, 4).is_ok());
        assert!(memory.read(target.iova, 5).is_err() && memory.take_violation().is_some());
    }
}
