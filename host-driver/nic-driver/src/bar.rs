//! Registers of BAR 0 by name.
//!
//! The card describes its own register map: blocks are found by walking the chain from address 0, not by assuming where
//! they are. A register's place within its block, its name and its bit fields come from `nic-spec`.

use std::collections::BTreeMap;
use std::sync::Arc;

use nic_spec::csr;
use nic_spec::register::{Block, Register};

use crate::error::{Error, Result};
use crate::pci::{Direction, PciDevice, PciResult, REGION_BAR0};

/// BAR 0 with the register blocks that were found in it.
pub struct Bar {
    device: Arc<dyn PciDevice>,
    /// Block type → where it is and which version it has.
    found: BTreeMap<u32, Found>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    base: u32,
    version: u32,
}

impl Bar {
    /// Walks the chain of register blocks. Blocks of types that the driver does not know are passed over.
    ///
    /// # Errors
    /// [`Error::BarTooSmall`], [`Error::Chain`], [`Error::Magic`], or [`Error::Csr`] for a failed access.
    pub fn walk(device: Arc<dyn PciDevice>) -> Result<Self> {
        let have_bytes = device.region(REGION_BAR0).map_err(|source| Error::Region { source })?.size_bytes;
        let need_bytes = u64::from(csr::BAR_BYTES);
        if have_bytes < need_bytes {
            return Err(Error::BarTooSmall { have_bytes, need_bytes });
        }
        let mut bar = Self { device, found: BTreeMap::new() };
        bar.check_magic()?;
        let mut at = csr::id::BLOCK.base;
        // Every block takes its window, so a longer chain runs in a circle.
        for _ in 0..csr::DOORBELL_BASE / csr::BLOCK_BYTES {
            let [type_id, version, next] =
                [csr::id::TYPE, csr::id::VERSION, csr::id::NEXT].map(|register| bar.read_head(at, register));
            let found = Found { base: at, version: version? };
            if bar.found.insert(type_id?, found).is_some() {
                return Err(Error::Chain { address: at, reason: "there is a second block of the same type" });
            }
            at = next?;
            if at == 0 {
                return Ok(bar);
            }
            if at % csr::BLOCK_BYTES != 0 || at >= csr::DOORBELL_BASE {
                return Err(Error::Chain { address: at, reason: "no block can begin there" });
            }
        }
        Err(Error::Chain { address: at, reason: "the chain has no end" })
    }

    /// Access to a block.
    ///
    /// # Errors
    /// [`Error::BlockMissing`] or [`Error::BlockVersion`].
    pub fn block(&self, block: &'static Block) -> Result<BlockAccess<'_>> {
        let (name, type_id, want) = (block.name, block.type_id, block.version);
        let found = self.found.get(&type_id).ok_or(Error::BlockMissing { block: name, type_id })?;
        if found.version != want {
            return Err(Error::BlockVersion { block: name, have: found.version, want });
        }
        Ok(BlockAccess { bar: self, block, base: found.base })
    }

    /// The function behind the BAR.
    pub fn device(&self) -> &Arc<dyn PciDevice> {
        &self.device
    }

    /// Writes the word at `address`, for doorbells.
    pub(crate) fn write_word(&self, address: u32, word: [u8; 4]) -> PciResult<()> {
        self.device.write(REGION_BAR0, u64::from(address), &word)
    }

    /// A foreign device answers anything; so the constant is looked at before any address that was read is believed.
    fn check_magic(&self) -> Result<()> {
        let found = self.read_head(csr::id::BLOCK.base, csr::id::MAGIC)?;
        let expected = csr::id::MAGIC.reset;
        if found == expected {
            Ok(())
        } else {
            Err(Error::Magic { found, expected })
        }
    }

    /// Reads a register of the block at `base` as if that were the block `id`.
    fn read_head(&self, base: u32, register: Register) -> Result<u32> {
        BlockAccess { bar: self, block: &csr::id::BLOCK, base }.read(register)
    }
}

/// A register block of the card.
#[derive(Clone, Copy)]
pub struct BlockAccess<'a> {
    bar: &'a Bar,
    block: &'static Block,
    base: u32,
}

impl BlockAccess<'_> {
    /// Reads a register.
    pub fn read(&self, register: Register) -> Result<u32> {
        self.read_at(register, 0)
    }

    /// Reads element `index` of a register array.
    pub fn read_at(&self, register: Register, index: u32) -> Result<u32> {
        let mut word = [0; 4];
        let read = self.bar.device.read(REGION_BAR0, self.offset(register, index), &mut word);
        read.map_err(|source| self.error(Direction::Read, register, source))?;
        Ok(u32::from_le_bytes(word))
    }

    /// Writes a register.
    pub fn write(&self, register: Register, value: u32) -> Result<()> {
        self.write_at(register, 0, value)
    }

    /// Writes element `index` of a register array.
    pub fn write_at(&self, register: Register, index: u32, value: u32) -> Result<()> {
        let write = self.bar.device.write(REGION_BAR0, self.offset(register, index), &value.to_le_bytes());
        write.map_err(|source| self.error(Direction::Write, register, source))
    }

    fn offset(&self, register: Register, index: u32) -> u64 {
        u64::from(self.base) + u64::from(register.at(index) - self.block.base)
    }

    fn error(&self, direction: Direction, register: Register, source: crate::pci::PciError) -> Error {
        Error::Csr { direction, block: self.block.name, register: register.name, source }
    }
}
