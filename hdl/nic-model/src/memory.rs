//! What the card sees of its host: memory behind bus addresses.

use crate::wire::frame::Payload;
use alloc::vec::Vec;

/// The bus answered an access with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// First address of the access.
    pub iova: u64,
    /// Its length, bytes.
    pub len_bytes: u32,
}

impl core::fmt::Display for Fault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "no memory answers {} bytes at {:#x}", self.len_bytes, self.iova)
    }
}

impl core::error::Error for Fault {}

/// Host memory by bus address.
pub trait HostMemory {
    /// Reads `len_bytes` at `iova`.
    fn read(&mut self, iova: u64, len_bytes: u32) -> Result<Payload, Fault>;

    /// Writes `data` at `iova`.
    fn write(&mut self, iova: u64, data: &Payload) -> Result<(), Fault>;

    /// Reads the 8-byte little-endian number at `iova`; memory without content reads as 0.
    fn read_u64(&mut self, iova: u64) -> Result<u64, Fault> {
        let data = self.read(iova, 8)?;
        Ok(data.bytes().and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes))
    }

    /// Writes an 8-byte little-endian number at `iova`.
    fn write_u64(&mut self, iova: u64, value: u64) -> Result<(), Fault> {
        self.write(iova, &Payload::from_bytes(&value.to_le_bytes()))
    }
}

/// Memory of lengths only: everything may be read and written and nothing is kept but how much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualMemory {
    /// Bytes read so far.
    pub read_bytes: u64,
    /// Bytes written so far.
    pub written_bytes: u64,
}

impl HostMemory for VirtualMemory {
    fn read(&mut self, _iova: u64, len_bytes: u32) -> Result<Payload, Fault> {
        self.read_bytes += u64::from(len_bytes);
        Ok(Payload::Virtual(len_bytes))
    }

    fn write(&mut self, _iova: u64, data: &Payload) -> Result<(), Fault> {
        self.written_bytes += u64::from(data.len_bytes());
        Ok(())
    }

    fn write_u64(&mut self, _iova: u64, _value: u64) -> Result<(), Fault> {
        self.written_bytes += 8;
        Ok(())
    }
}

/// Memory of bytes from bus address `base` on; anything else faults. A virtual payload is written as zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteMemory {
    /// Bus address of the first byte.
    pub base: u64,
    /// The content.
    pub bytes: Vec<u8>,
}

impl ByteMemory {
    /// `len_bytes` of zeros at `base`.
    pub fn new(base: u64, len_bytes: usize) -> Self {
        Self { base, bytes: alloc::vec![0; len_bytes] }
    }

    /// Where an access lies in `bytes`.
    fn range(&self, iova: u64, len_bytes: u32) -> Result<core::ops::Range<usize>, Fault> {
        let fault = Fault { iova, len_bytes };
        let from = usize::try_from(iova.checked_sub(self.base).ok_or(fault)?).map_err(|_| fault)?;
        let to = from.checked_add(len_bytes as usize).filter(|to| *to <= self.bytes.len()).ok_or(fault)?;
        Ok(from..to)
    }
}

impl HostMemory for ByteMemory {
    fn read(&mut self, iova: u64, len_bytes: u32) -> Result<Payload, Fault> {
        Ok(Payload::from_bytes(&self.bytes[self.range(iova, len_bytes)?]))
    }

    fn write(&mut self, iova: u64, data: &Payload) -> Result<(), Fault> {
        let range = self.range(iova, data.len_bytes())?;
        match data.bytes() {
            Some(bytes) => self.bytes[range].copy_from_slice(bytes),
            None => self.bytes[range].fill(0),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_beyond_the_memory_faults_and_changes_nothing() {
        let mut m = ByteMemory::new(0x1000, 16);
        assert_eq!(m.write(0x1008, &Payload::from_bytes(&[7; 8])), Ok(()));
        for (iova, len) in [(0xfff, 1), (0x1010, 1), (0x100f, 2), (u64::MAX, 1), (0, u32::MAX)] {
            assert_eq!(m.read(iova, len).err(), Some(Fault { iova, len_bytes: len }));
        }
        assert!(m.write(0x100c, &Payload::from_bytes(&[9; 8])).is_err());
        assert_eq!(m.read_u64(0x1008), Ok(0x0707_0707_0707_0707));
        assert_eq!(m.read(0x1010, 0).map(|p| p.len_bytes()), Ok(0), "nothing at the end");
    }

    #[test]
    fn virtual_memory_counts_and_reads_as_nothing() {
        let mut m = VirtualMemory::default();
        assert_eq!(m.read(5, 100), Ok(Payload::Virtual(100)));
        assert_eq!((m.write(5, &Payload::Virtual(50)), m.read_u64(0)), (Ok(()), Ok(0)));
        assert_eq!((m.read_bytes, m.written_bytes), (108, 50));
    }
}
