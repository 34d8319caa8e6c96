//! Memory regions: which part of host memory a key opens, to whom and for what.

use crate::foresee::Fetch;
use alloc::vec::Vec;
use nic_spec::num::{Pd, Rkey};
use nic_spec::wire::NakReason;

/// One region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Low 8 bits of the region's keys.
    pub key: u8,
    /// Protection domain.
    pub pd: Pd,
    /// Permitted accesses: `nic_spec::desc::ACCESS_*`.
    pub access: u8,
    /// First address in the space that work requests and packets use.
    pub va: u64,
    /// Length, bytes; a region of length 0 never matches.
    pub len: u64,
    /// First address on the bus.
    pub iova: u64,
}

/// The table. lkey = rkey = row index << 8 | key.
#[derive(Clone, Debug, Default)]
pub struct MrTable {
    rows: Vec<Option<Mr>>,
    /// Regions taken away or replaced so far.
    losses: u64,
}

impl MrTable {
    /// Has the first region fetched, beside which many cards have no other.
    #[inline]
    pub(crate) fn foresee(&self, fetch: impl Fetch) {
        if let Some(row) = self.rows.first() {
            fetch.line(row);
        }
    }

    /// How many regions were taken away or replaced so far: while it stands still, what was found once is still right.
    #[inline]
    pub const fn losses(&self) -> u64 {
        self.losses
    }

    /// Sets row `index` and returns its key.
    pub fn set(&mut self, index: u32, mr: Option<Mr>) -> Rkey {
        let at = index as usize;
        if at >= self.rows.len() {
            self.rows.resize(at + 1, None);
        }
        self.losses += u64::from(self.rows[at].is_some());
        self.rows[at] = mr;
        Rkey::new(index << 8 | mr.map_or(0, |mr| mr.key.into()))
    }

    /// Puts `mr` into the first free row and returns its key.
    pub fn register(&mut self, mr: Mr) -> Rkey {
        let index = self.rows.iter().position(Option::is_none).unwrap_or(self.rows.len());
        self.set(index as u32, Some(mr))
    }

    /// Frees the region of `rkey` if it is the present one of its row and belongs to `pd` (or `pd` is `None`).
    /// True when it was.
    pub fn invalidate(&mut self, rkey: Rkey, pd: Option<Pd>) -> bool {
        match self.rows.get_mut((rkey.get() >> 8) as usize) {
            Some(row) if row.is_some_and(|mr| mr.key == rkey.get() as u8 && pd.is_none_or(|pd| pd == mr.pd)) => {
                *row = None;
                self.losses += 1;
                true
            }
            _ => false,
        }
    }

    /// The bus address of `len` bytes at `va`, if `rkey` opens all of them to `pd` for all of `access`.
    pub fn resolve(&self, rkey: Rkey, pd: Pd, access: u8, va: u64, len: u64) -> Result<u64, NakReason> {
        let row = self.rows.get((rkey.get() >> 8) as usize).and_then(Option::as_ref);
        let mr = row.filter(|mr| mr.key == rkey.get() as u8 && mr.len > 0).ok_or(NakReason::Rkey)?;
        if mr.pd != pd {
            return Err(NakReason::Pd);
        }
        if mr.access & access != access {
            return Err(NakReason::Access);
        }
        let from = va.checked_sub(mr.va).ok_or(NakReason::Range)?;
        let to = from.checked_add(len).filter(|to| *to <= mr.len).ok_or(NakReason::Range)?;
        va.checked_add(len).ok_or(NakReason::Range)?;
        debug_assert!(from <= to);
        Ok(mr.iova.wrapping_add(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_spec::desc::{ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};

    #[test]
    fn each_check_has_its_reason_in_the_stated_order() {
        let mut table = MrTable::default();
        let (pd, other) = (Pd::new(7), Pd::new(8));
        let mr = Mr { key: 0x5a, pd, access: ACCESS_REMOTE_WRITE, va: 0x1000, len: 0x100, iova: 0x9000 };
        let rkey = table.register(mr);
        assert_eq!(rkey.get(), 0x5a);
        let ask = |k: u32, pd, access, va, len| table.resolve(Rkey::new(k), pd, access, va, len);
        assert_eq!(ask(0x5a, pd, ACCESS_REMOTE_WRITE, 0x1010, 0xf0), Ok(0x9010));
        assert_eq!(ask(0x5b, other, ACCESS_REMOTE_READ, 0, 1), Err(NakReason::Rkey));
        assert_eq!(ask(0x15a, pd, ACCESS_REMOTE_WRITE, 0x1010, 1), Err(NakReason::Rkey));
        assert_eq!(ask(0x5a, other, ACCESS_REMOTE_READ, 0, 1), Err(NakReason::Pd));
        assert_eq!(ask(0x5a, pd, ACCESS_REMOTE_READ, 0, 1), Err(NakReason::Access));
        for (va, len) in [(0xfff, 1), (0x1100, 1), (0x1010, 0xf1), (0x1000, u64::MAX), (u64::MAX, 1)] {
            assert_eq!(ask(0x5a, pd, ACCESS_REMOTE_WRITE, va, len), Err(NakReason::Range), "{va:#x} {len}");
        }
    }

    #[test]
    fn a_region_at_the_end_of_the_address_space_does_not_wrap() {
        let mut table = MrTable::default();
        let mr = Mr { key: 1, pd: Pd::new(0), access: 0, va: u64::MAX - 15, len: 16, iova: 0 };
        let rkey = table.register(mr);
        assert_eq!(table.resolve(rkey, Pd::new(0), 0, u64::MAX - 15, 15), Ok(0));
        assert_eq!(table.resolve(rkey, Pd::new(0), 0, u64::MAX, 1), Err(NakReason::Range), "the sum wraps");
    }

    #[test]
    fn an_invalidated_key_opens_nothing_and_its_row_is_used_again() {
        let mut table = MrTable::default();
        let mr = Mr { key: 1, pd: Pd::new(3), access: 0, va: 0, len: 8, iova: 0 };
        let rkey = table.register(mr);
        assert!(!table.invalidate(rkey, Some(Pd::new(4))) && table.invalidate(rkey, Some(Pd::new(3))));
        assert!(!table.invalidate(rkey, None));
        assert_eq!(table.resolve(rkey, Pd::new(3), 0, 0, 8), Err(NakReason::Rkey));
        assert_eq!(table.register(Mr { key: 2, ..mr }).get(), 2);
        assert_eq!(table.resolve(rkey, Pd::new(3), 0, 0, 8), Err(NakReason::Rkey), "the old key");
        assert_eq!(table.losses(), 1, "neither what failed nor a new region takes one away");
        table.set(0, Some(mr));
        assert_eq!(table.losses(), 2, "the one that was there");
    }
}
