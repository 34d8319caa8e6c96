//! What the driver needs from a PCI function: register regions, DMA mappings, interrupts, reset.
//!
//! [`PciDevice`] is the border between the driver and the way the card is reached. The numbering of regions and
//! interrupts is VFIO's, so that a kernel backend passes them through. Everything above (rings, doorbells, verbs) uses
//! this trait only.

use crate::irq::IrqEvent;
use crate::mem::DmaMem;

/// Region index of BAR 0.
pub const REGION_BAR0: u32 = 0;

/// Interrupt index of MSI-X.
pub const IRQ_MSIX: u32 = 2;

/// Result of an operation on the function.
pub type PciResult<T> = std::result::Result<T, PciError>;

/// Direction of a register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device.
    Read,
    /// To the device.
    Write,
}

impl std::fmt::Display for Direction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Direction::Read => "read",
            Direction::Write => "write",
        })
    }
}

/// What went wrong between the driver and the function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PciError {
    /// The device refused the access (SLVERR, completer abort).
    #[error(
        "the device answered a {direction} of {len_bytes} bytes at offset {offset_bytes:#x} of region {region} \
         with a bus error (no such register?)"
    )]
    Bus {
        /// Read or write.
        direction: Direction,
        /// Region index.
        region: u32,
        /// Offset in the region.
        offset_bytes: u64,
        /// Length of the access.
        len_bytes: usize,
    },
    /// The access lies outside the region or is not a naturally aligned access of a width that the region takes.
    #[error(
        "a {direction} of {len_bytes} bytes at offset {offset_bytes:#x} cannot be done in region {region} of \
         {size_bytes:#x} bytes (accesses are 4 or 8 bytes, aligned to their width)"
    )]
    Access {
        /// Read or write.
        direction: Direction,
        /// Region index.
        region: u32,
        /// Offset in the region.
        offset_bytes: u64,
        /// Length of the access.
        len_bytes: usize,
        /// Size of the region; 0 when there is no such region.
        size_bytes: u64,
    },
    /// A DMA mapping or its removal was refused.
    #[error("cannot {what} {len_bytes:#x} bytes at iova {iova:#x}: {reason}")]
    Dma {
        /// `"map"` or `"unmap"`.
        what: &'static str,
        /// Address as the device sees it.
        iova: u64,
        /// Length of the range.
        len_bytes: u64,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// There is no such interrupt.
    #[error("interrupts {start}..{end} of index {index} were asked for; the device has {have} there")]
    Irq {
        /// Interrupt index (INTx, MSI, MSI-X).
        index: u32,
        /// First vector asked for.
        start: u32,
        /// One past the last vector asked for.
        end: u64,
        /// Vectors there are.
        have: u32,
    },
    /// The device does not exist any more; nothing will work again through this handle.
    #[error("the device is gone: {reason}")]
    Gone {
        /// What is known about the end.
        reason: String,
    },
    /// The device did not answer.
    #[error(
        "no answer to {request} within {waited_ms} ms of real time (a simulated card stands still, or is very slow)"
    )]
    NoAnswer {
        /// What was asked.
        request: String,
        /// How long the caller waited.
        waited_ms: u128,
    },
}

/// Size and properties of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Size in bytes; 0 = the region does not exist.
    pub size_bytes: u64,
    /// May be read.
    pub is_readable: bool,
    /// May be written.
    pub is_writable: bool,
}

/// What the device may do with a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaAccess {
    /// The device reads (send queues, source buffers).
    Read,
    /// The device writes (completion queues).
    Write,
    /// Both.
    ReadWrite,
}

impl DmaAccess {
    /// True when the device may do an access of `direction`, seen from the device.
    pub const fn allows(self, direction: Direction) -> bool {
        matches!(
            (self, direction),
            (DmaAccess::ReadWrite, _) | (DmaAccess::Read, Direction::Read) | (DmaAccess::Write, Direction::Write)
        )
    }
}

/// A PCI function under the driver's control.
pub trait PciDevice: Send + Sync {
    /// Name for messages, such as the address on the bus.
    fn name(&self) -> String;

    /// Size and properties of region `region`; an absent region has size 0.
    fn region(&self, region: u32) -> PciResult<RegionInfo>;

    /// Reads from a region. `buf` is 4 or 8 bytes and `offset_bytes` a multiple of its length.
    fn read(&self, region: u32, offset_bytes: u64, buf: &mut [u8]) -> PciResult<()>;

    /// Writes to a region. `bytes` is 4 or 8 bytes and `offset_bytes` a multiple of its length. Writes arrive in the
    /// order of the calls; memory that the caller wrote before the call is visible to the device when the write
    /// arrives.
    fn write(&self, region: u32, offset_bytes: u64, bytes: &[u8]) -> PciResult<()>;

    /// Lets the device access `len_bytes` of `mem` from `offset_bytes` on at address `iova`. All three are multiples
    /// of [`PAGE_BYTES`](crate::mem::PAGE_BYTES). Mapping over an existing mapping is an error.
    fn dma_map(&self, mem: &DmaMem, offset_bytes: u64, len_bytes: u64, iova: u64, access: DmaAccess) -> PciResult<()>;

    /// Takes whole mappings back: the range must begin and end where mappings do.
    fn dma_unmap(&self, iova: u64, len_bytes: u64) -> PciResult<()>;

    /// Number of vectors of interrupt index `index`; 0 = none.
    fn irq_count(&self, index: u32) -> PciResult<u32>;

    /// From now on vector `start + i` signals `events[i]`. Vectors that had an event before lose it.
    fn set_irqs(&self, index: u32, start: u32, events: &[IrqEvent]) -> PciResult<()>;

    /// Detaches the events of all vectors of `index`.
    fn disable_irqs(&self, index: u32) -> PciResult<()>;

    /// Resets the function: registers have their reset values afterwards. DMA mappings and interrupt events stay.
    fn reset(&self) -> PciResult<()>;

    /// The caller polled, found nothing, and is about to poll again. A simulated device advances its time here, so
    /// every polling loop must call it; it fails when the device will never do anything again.
    fn idle(&self) -> PciResult<()> {
        std::hint::spin_loop();
        std::thread::yield_now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_seen_from_the_device() {
        use Direction::{Read, Write};
        let table =
            [(DmaAccess::Read, [true, false]), (DmaAccess::Write, [false, true]), (DmaAccess::ReadWrite, [true; 2])];
        for (access, expected) in table {
            assert_eq!([access.allows(Read), access.allows(Write)], expected, "{access:?}");
        }
    }

    #[test]
    fn a_message_says_what_was_tried_and_the_way_out() {
        let err = PciError::Access {
            direction: Direction::Write,
            region: 0,
            offset_bytes: 0x102,
            len_bytes: 4,
            size_bytes: 0x200_0000,
        };
        assert_eq!(
            err.to_string(),
            "a write of 4 bytes at offset 0x102 cannot be done in region 0 of 0x2000000 bytes (accesses are 4 or 8 \
             bytes, aligned to their width)"
        );
    }
}
