//! Memory mapped for the device, for as long as its owner lives.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::iova::IovaAllocator;
use crate::mem::{DmaMem, PAGE_BYTES};
use crate::pci::{DmaAccess, PciDevice};

/// The device's address space: gives out addresses and maps memory there. Clones name the same space.
#[derive(Clone)]
pub struct DmaSpace {
    device: Arc<dyn PciDevice>,
    addresses: Arc<Mutex<IovaAllocator>>,
}

impl DmaSpace {
    /// The address space of `device`, with nothing mapped by this driver.
    pub fn new(device: Arc<dyn PciDevice>) -> Self {
        Self { device, addresses: Arc::default() }
    }

    /// Maps the pages of `mem` that hold `offset_bytes..offset_bytes + len_bytes`, at an address of the allocator's
    /// choice.
    ///
    /// # Errors
    /// [`Error::Range`] when the range is empty or not inside `mem`; [`Error::NoIova`] when the address space is used
    /// up; [`Error::DmaMap`] when the backend refuses.
    pub fn map(&self, mem: &DmaMem, offset_bytes: u64, len_bytes: u64, access: DmaAccess) -> Result<DmaMapping> {
        let end = offset_bytes.checked_add(len_bytes).filter(|&end| len_bytes > 0 && end <= mem.len_bytes());
        let end = end.ok_or(Error::Range { offset_bytes, len_bytes, have_bytes: mem.len_bytes() })?;
        let first_page = offset_bytes / PAGE_BYTES * PAGE_BYTES;
        let pages_bytes = end.next_multiple_of(PAGE_BYTES) - first_page;
        let iova = self.lock().allocate(pages_bytes).ok_or(Error::NoIova { len_bytes })?;
        if let Err(source) = self.device.dma_map(mem, first_page, pages_bytes, iova, access) {
            self.lock().release(iova, pages_bytes);
            return Err(Error::DmaMap { len_bytes, source });
        }
        Ok(DmaMapping {
            space: self.clone(),
            mem: mem.clone(),
            pages: iova,
            pages_bytes,
            iova: iova + (offset_bytes - first_page),
            len_bytes,
        })
    }

    /// Allocates zeroed memory and maps all of it.
    ///
    /// # Errors
    /// As for [`Self::map`].
    pub fn allocate(&self, len_bytes: u64, access: DmaAccess) -> Result<DmaMapping> {
        self.map(&DmaMem::zeroed(len_bytes), 0, len_bytes.max(1), access)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, IovaAllocator> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A range of memory that the device sees at [`Self::iova`]. Dropping it takes the mapping back.
pub struct DmaMapping {
    space: DmaSpace,
    mem: DmaMem,
    pages: u64,
    pages_bytes: u64,
    iova: u64,
    len_bytes: u64,
}

impl DmaMapping {
    /// The memory; its offset 0 need not be the start of the mapped range.
    pub fn mem(&self) -> &DmaMem {
        &self.mem
    }

    /// Address of the range's first byte as the device sees it.
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Length of the range in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

impl Drop for DmaMapping {
    fn drop(&mut self) {
        // An address whose mapping could not be taken back stays in use: giving it out again could only fail later.
        if self.space.device.dma_unmap(self.pages, self.pages_bytes).is_ok() {
            self.space.lock().release(self.pages, self.pages_bytes);
        }
    }
}

impl std::fmt::Debug for DmaMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DmaMapping({:#x}, {:#x} bytes)", self.iova, self.len_bytes)
    }
}
