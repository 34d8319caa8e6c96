//! Memory regions: host memory that the card may use under a key.

use serde::{Deserialize, Serialize};

use nic_spec::desc::{MrRow, Table, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use nic_spec::num::{Lkey, Rkey};

use crate::dma::DmaMapping;
use crate::error::{Error, Result};
use crate::mem::DmaMem;
use crate::pci::DmaAccess;
use crate::pd::Pd;
use crate::qp::Sge;

/// What may be done with a region. Reading it for one's own sends is always permitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MrAccess {
    /// The card may write it for its own host.
    pub local_write: bool,
    /// Peers may write it; needs `local_write`.
    pub remote_write: bool,
    /// Peers may read it.
    pub remote_read: bool,
    /// Peers may do atomic operations on it; needs `local_write`.
    pub remote_atomic: bool,
}

impl MrAccess {
    /// A source of sends.
    pub const LOCAL_READ: Self =
        Self { local_write: false, remote_write: false, remote_read: false, remote_atomic: false };

    /// A target of the peers' writes.
    pub const REMOTE_WRITE: Self = Self { local_write: true, remote_write: true, ..Self::LOCAL_READ };

    /// The bits of the region's row.
    pub fn bits(self) -> u8 {
        [
            (self.local_write, ACCESS_LOCAL_WRITE),
            (self.remote_write, ACCESS_REMOTE_WRITE),
            (self.remote_read, ACCESS_REMOTE_READ),
            (self.remote_atomic, ACCESS_REMOTE_ATOMIC),
        ]
        .iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |bits, (_, bit)| bits | bit)
    }

    fn dma(self) -> DmaAccess {
        if self.local_write {
            DmaAccess::ReadWrite
        } else {
            DmaAccess::Read
        }
    }
}

/// What a peer has to know of a region to write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteBuffer {
    /// First address.
    pub va: u64,
    /// Key.
    pub rkey: u32,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// A memory region. It ends when it is dropped or [deregistered](Mr::deregister).
#[derive(Debug)]
pub struct Mr {
    pd: Pd,
    mapping: DmaMapping,
    index: u32,
    key: u8,
    va: u64,
    is_on_card: bool,
}

impl Mr {
    /// Registers `offset_bytes..offset_bytes + len_bytes` of `mem`; the region's addresses are the device's.
    ///
    /// # Errors
    /// [`Error::Range`] for an empty range or one outside `mem`, [`Error::Config`] for an access that needs another,
    /// [`Error::Exhausted`], and the errors of mapping memory and of writing context rows.
    pub fn register(pd: &Pd, mem: &DmaMem, offset_bytes: u64, len_bytes: u64, access: MrAccess) -> Result<Self> {
        Self::create(pd, mem, offset_bytes, len_bytes, access, None)
    }

    /// The same with addresses from `va` on, as work requests and peers name them.
    ///
    /// # Errors
    /// As for [`Self::register`], and [`Error::Config`] when the range runs over the end of the address space.
    pub fn register_at(
        pd: &Pd,
        mem: &DmaMem,
        offset_bytes: u64,
        len_bytes: u64,
        access: MrAccess,
        va: u64,
    ) -> Result<Self> {
        Self::create(pd, mem, offset_bytes, len_bytes, access, Some(va))
    }

    fn create(pd: &Pd, mem: &DmaMem, offset: u64, len: u64, access: MrAccess, va: Option<u64>) -> Result<Self> {
        if (access.remote_write || access.remote_atomic) && !access.local_write {
            let reason = "peers may write only what the card may write";
            return Err(Error::Config { what: "access", value: access.bits().into(), reason });
        }
        let device = pd.device();
        let mapping = device.dma().map(mem, offset, len, access.dma())?;
        let va = va.unwrap_or(mapping.iova());
        if va.checked_add(len).is_none() {
            return Err(Error::Config {
                what: "va",
                value: va,
                reason: "the region runs over the end of the addresses",
            });
        }
        let (index, key) = {
            let mut pools = device.pools();
            let have = device.info().mrs;
            let index = pools.mrs.take().ok_or(Error::Exhausted { what: "memory regions", have })?;
            // A key differs from the row's last one, so that an old key opens nothing. Key 0 is left out: with it the
            // first region would have the number 0, which forgotten fields hold.
            let key = &mut pools.mr_keys[index as usize];
            *key = key.checked_add(1).unwrap_or(1);
            (index, *key)
        };
        let mut mr = Self { pd: pd.clone(), mapping, index, key, va, is_on_card: false };
        let mut row = MrRow::zeroed();
        row.set_valid(true).set_key(key).set_access(access.bits()).set_pd(pd.number());
        row.set_va(va).set_len(len).set_iova(mr.mapping.iova());
        // From here on the card may have the row, also when the answer is lost.
        mr.is_on_card = true;
        device.write_row(Table::Mr, index, &row.0)?;
        Ok(mr)
    }

    /// First address of the region, as work requests name it.
    pub fn va(&self) -> u64 {
        self.va
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.mapping.len_bytes()
    }

    /// Key for work requests of this host.
    pub fn lkey(&self) -> Lkey {
        Lkey::new(self.index << 8 | u32::from(self.key))
    }

    /// Key for peers.
    pub fn rkey(&self) -> Rkey {
        Rkey::new(self.lkey().get())
    }

    /// What a peer has to know.
    pub fn remote(&self) -> RemoteBuffer {
        RemoteBuffer { va: self.va, rkey: self.rkey().get(), len_bytes: self.len_bytes() }
    }

    /// A part of the region as the local end of a work request. Not checked here: the card checks.
    pub fn sge(&self, offset_bytes: u64, len_bytes: u32) -> Sge {
        Sge { va: self.va.wrapping_add(offset_bytes), lkey: self.lkey(), len_bytes }
    }

    /// Ends the region: the key is invalid on the card before the memory is taken away from it.
    ///
    /// # Errors
    /// The errors of writing context rows; the memory is unmapped all the same.
    pub fn deregister(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_on_card) {
            return Ok(());
        }
        let device = self.pd.device();
        device.write_row(Table::Mr, self.index, &MrRow::zeroed().0)?;
        device.pools().mrs.give_back(self.index);
        Ok(())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // A card that does not answer keeps the row; the row is then not used again, and the memory is unmapped.
        let _ = self.end();
    }
}
