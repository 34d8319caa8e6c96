//! A simulated card as a `PciDevice`: registers by message, memory and interrupts directly.

use nic_driver::irq::IrqEvent;
use nic_driver::mem::DmaMem;
use nic_driver::pci::{Direction, DmaAccess, PciDevice, PciError, PciResult, RegionInfo, IRQ_MSIX, REGION_BAR0};

use crate::iommu::HostMemory;
use crate::link::{CardId, HostLink, Request};
use crate::msix::MsixSink;

/// What a [`SimPciDevice`] is told about its card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimOptions {
    /// Size of BAR 0.
    pub bar0_bytes: u64,
    /// Cycles of the card's clock that pass when the driver polled in vain. A driver notices things this much late, and
    /// polls this much less often.
    pub idle_cycles: u64,
}

/// One simulated card, from its host. Clones name the same card.
#[derive(Clone, Debug)]
pub struct SimPciDevice {
    link: HostLink,
    card: CardId,
    memory: HostMemory,
    msix: MsixSink,
    options: SimOptions,
}

impl SimPciDevice {
    /// The card `card` behind `link`, which reaches memory through `memory` and interrupts through `msix`.
    pub fn new(link: HostLink, card: CardId, memory: HostMemory, msix: MsixSink, options: SimOptions) -> Self {
        Self { link, card, memory, msix, options }
    }

    /// The memory behind the card's IOMMU.
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// The card's interrupts.
    pub fn msix(&self) -> &MsixSink {
        &self.msix
    }

    /// Lets `cycles` of the card's clock pass.
    ///
    /// # Errors
    /// [`PciError::Gone`] or [`PciError::NoAnswer`].
    pub fn run_cycles(&self, cycles: u64) -> PciResult<()> {
        self.link.call(Request::Idle { card: self.card, cycles }).map(drop)
    }

    fn check(&self, direction: Direction, region: u32, offset_bytes: u64, len: usize) -> PciResult<()> {
        let size_bytes = self.region(region)?.size_bytes;
        let len_u64 = len as u64;
        let is_inside = offset_bytes.checked_add(len_u64).is_some_and(|end| end <= size_bytes);
        if is_inside && matches!(len, 4 | 8) && offset_bytes % len_u64 == 0 {
            return Ok(());
        }
        Err(PciError::Access { direction, region, offset_bytes, len_bytes: len, size_bytes })
    }
}

impl PciDevice for SimPciDevice {
    fn name(&self) -> String {
        format!("simulated {}", self.card)
    }

    fn region(&self, region: u32) -> PciResult<RegionInfo> {
        let is_bar0 = region == REGION_BAR0;
        let size_bytes = if is_bar0 { self.options.bar0_bytes } else { 0 };
        Ok(RegionInfo { size_bytes, is_readable: is_bar0, is_writable: is_bar0 })
    }

    fn read(&self, region: u32, offset_bytes: u64, buf: &mut [u8]) -> PciResult<()> {
        let len_bytes = buf.len();
        self.check(Direction::Read, region, offset_bytes, len_bytes)?;
        let bytes = self.link.call(Request::MmioRead { card: self.card, region, offset_bytes, len_bytes })?;
        if bytes.len() != len_bytes {
            let reason = format!("the simulated world answered a read of {len_bytes} bytes with {}", bytes.len());
            return Err(PciError::Gone { reason });
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn write(&self, region: u32, offset_bytes: u64, bytes: &[u8]) -> PciResult<()> {
        self.check(Direction::Write, region, offset_bytes, bytes.len())?;
        let bytes = bytes.to_vec();
        self.link.call(Request::MmioWrite { card: self.card, region, offset_bytes, bytes }).map(drop)
    }

    fn dma_map(&self, mem: &DmaMem, offset_bytes: u64, len_bytes: u64, iova: u64, access: DmaAccess) -> PciResult<()> {
        self.memory.map(mem, offset_bytes, len_bytes, iova, access)
    }

    fn dma_unmap(&self, iova: u64, len_bytes: u64) -> PciResult<()> {
        self.memory.unmap(iova, len_bytes)
    }

    fn irq_count(&self, index: u32) -> PciResult<u32> {
        Ok(if index == IRQ_MSIX { self.msix.vector_count() } else { 0 })
    }

    fn set_irqs(&self, index: u32, start: u32, events: &[IrqEvent]) -> PciResult<()> {
        if index != IRQ_MSIX {
            return Err(PciError::Irq { index, start, end: u64::from(start) + events.len() as u64, have: 0 });
        }
        self.msix.attach(start, events)
    }

    fn disable_irqs(&self, index: u32) -> PciResult<()> {
        if index == IRQ_MSIX {
            self.msix.detach_all();
        }
        Ok(())
    }

    fn reset(&self) -> PciResult<()> {
        self.link.call(Request::Reset { card: self.card }).map(drop)
    }

    fn idle(&self) -> PciResult<()> {
        self.run_cycles(self.options.idle_cycles)
    }
}
