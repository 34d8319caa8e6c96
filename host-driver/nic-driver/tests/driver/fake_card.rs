//! A card in memory: registers, context rows, DMA and interrupts; what it does with work requests is in `engine`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use nic_driver::mem::PAGE_BYTES;
use nic_driver::pci::{Direction, DmaAccess, PciResult, RegionInfo, IRQ_MSIX, REGION_BAR0};
use nic_driver::{Device, DmaMem, IrqEvent, PciDevice, PciError, PortConfig};
use nic_spec::csr::{self, conn, ctx, id, irq, stats::Counter};
use nic_spec::desc::{self, CqRow, SqRow, Table, CTX_ROW_BYTES};

use crate::engine::Engine;
use crate::registers::Registers;

pub const CONNS: u32 = 4;
pub const PATHS: u32 = 4;
pub const MRS: u32 = 8;
pub const CQS: u32 = 4;
pub const VECTORS: usize = 8;

/// Clones name the same card.
#[derive(Clone)]
pub struct FakeCard {
    inner: Arc<Mutex<Inner>>,
}

pub struct Inner {
    pub registers: Registers,
    pub rows: BTreeMap<(Table, u32), [u8; CTX_ROW_BYTES]>,
    /// Every row written, in order.
    pub row_log: Vec<(Table, u32)>,
    pub engine: Engine,
    pub memory: Memory,
    pub irqs: Vec<Option<IrqEvent>>,
    pub bar_bytes: u64,
    pub resets: u32,
    pub idles: u64,
    /// Polls for which a context command stays busy.
    pub ctx_busy_polls: u32,
    busy: u32,
    /// The device is gone.
    pub is_gone: bool,
    latch: u32,
}

/// The IOMMU: what is mapped, by address.
#[derive(Default)]
pub struct Memory {
    pub mappings: BTreeMap<u64, Mapping>,
}

pub struct Mapping {
    pub mem: DmaMem,
    pub offset: u64,
    pub len: u64,
    pub access: DmaAccess,
}

impl FakeCard {
    pub fn new() -> Self {
        let mut registers = Registers::new();
        let sizes = [
            (id::CONNS, CONNS),
            (id::PATHS, PATHS),
            (id::WINDOW_PKTS, 64),
            (id::MSGS, 64),
            (id::MRS, MRS),
            (id::CQS, CQS),
            (id::DATA_BITS, 512),
            (id::CLOCK_KHZ, 250_000),
        ];
        for (register, value) in sizes {
            registers.set(register, 0, value);
        }
        let inner = Inner {
            registers,
            rows: BTreeMap::new(),
            row_log: Vec::new(),
            engine: Engine::default(),
            memory: Memory::default(),
            irqs: vec![None; VECTORS],
            bar_bytes: csr::BAR_BYTES.into(),
            resets: 0,
            idles: 0,
            ctx_busy_polls: 1,
            busy: 0,
            is_gone: false,
            latch: 0,
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// A look inside, which a real card does not offer.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub fn row(&self, table: Table, row: u32) -> [u8; CTX_ROW_BYTES] {
        self.lock().row(table, row)
    }

    pub fn open(&self) -> Device {
        Device::open(Arc::new(self.clone()), port()).unwrap()
    }
}

pub fn port() -> PortConfig {
    PortConfig::new("02:00:00:00:00:0a".parse().unwrap(), "10.0.0.1".parse().unwrap())
}

impl Inner {
    pub fn row(&self, table: Table, row: u32) -> [u8; CTX_ROW_BYTES] {
        self.rows.get(&(table, row)).copied().unwrap_or([0; CTX_ROW_BYTES])
    }

    fn gone<T>(&self) -> PciResult<T> {
        Err(PciError::Gone { reason: "unplugged".into() })
    }

    fn read_word(&mut self, address: u32) -> Result<u32, ()> {
        let place = match self.registers.decode(address) {
            Ok(place) => place,
            Err(Some(value)) => return Ok(value),
            Err(None) => return Err(()),
        };
        if place.register == id::TIME {
            return Ok(self.idles as u32);
        }
        if place.register == ctx::STATUS && self.busy > 0 {
            self.busy -= 1;
            return Ok(ctx::STATUS_BUSY.mask());
        }
        if place.register == conn::ERROR_STATUS {
            let index = conn::ERROR_SELECT_INDEX.get(self.registers.get(conn::ERROR_SELECT, 0));
            return Ok(self.engine.conn_status(index).into());
        }
        if place.register == conn::ERROR {
            let failed = |bit: &u32| self.engine.conn_status(32 * place.index + bit) != 0;
            return Ok((0..32).filter(failed).map(|bit| 1 << bit).sum());
        }
        if place.block.type_id == csr::stats::BLOCK.type_id {
            let is_low = place.register.address % 8 == csr::stats::COUNTERS[0].registers[0].address % 8;
            if is_low {
                let high = place.block.registers.iter().find(|r| r.address == place.register.address + 4).unwrap();
                self.latch = self.registers.get(*high, 0);
                return Ok(self.registers.get(place.register, 0));
            }
            return Ok(self.latch);
        }
        Ok(self.registers.get(place.register, place.index))
    }

    fn write_word(&mut self, address: u32, value: u32) -> Result<(), ()> {
        if address >= csr::DOORBELL_BASE {
            return self.doorbell(address, value);
        }
        let place = self.registers.decode(address).map_err(drop)?;
        match place.register {
            ctx::COMMAND if ctx::COMMAND_WRITE.get(value) != 0 => self.write_row(),
            irq::PENDING => {
                let now = self.registers.get(irq::PENDING, place.index);
                self.registers.set(irq::PENDING, place.index, now & !value);
            }
            register if register.access == nic_spec::register::Access::Rw => {
                self.registers.set(register, place.index, value);
                if register == irq::MASK {
                    self.send_pending();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn write_row(&mut self) {
        self.busy = self.ctx_busy_polls;
        let row = ctx::INDEX_ROW.get(self.registers.get(ctx::INDEX, 0));
        let number = ctx::TABLE_ID.get(self.registers.get(ctx::TABLE, 0)) as u8;
        let table = Table::try_from(number).ok().filter(|table| {
            let rows = match table {
                Table::Conn | Table::Ah | Table::Sq => CONNS,
                Table::PathTx | Table::PathRx => CONNS * PATHS,
                Table::Mr => MRS,
                Table::Cq => CQS,
            };
            row < rows
        });
        let Some(table) = table else {
            self.registers.set(ctx::STATUS, 0, ctx::STATUS_ERROR.mask());
            return;
        };
        self.registers.set(ctx::STATUS, 0, 0);
        let mut bytes = [0; CTX_ROW_BYTES];
        for (i, word) in bytes.chunks_exact_mut(4).enumerate() {
            word.copy_from_slice(&self.registers.get(ctx::DATA, i as u32).to_le_bytes());
        }
        self.rows.insert((table, row), bytes);
        self.row_log.push((table, row));
        match table {
            Table::Conn => self.engine.reset_conn(row),
            Table::Sq => self.engine.reset_queues(row),
            Table::Cq => self.engine.reset_cq(row),
            _ => {}
        }
    }

    fn doorbell(&mut self, address: u32, value: u32) -> Result<(), ()> {
        let word = desc::Doorbell(value.to_le_bytes());
        let page = (address - csr::DOORBELL_BASE) / csr::DOORBELL_PAGE_BYTES;
        let queues = SqRow(self.row(Table::Sq, page));
        let is_good = match address {
            _ if address == csr::sq_doorbell(page) => queues.enabled() && self.fetch(page, word.index()),
            _ if address == csr::rq_doorbell(page) => {
                self.engine.set_posted(page, word.index());
                queues.rq_enabled()
            }
            _ if address == csr::cq_doorbell(page) => {
                let row = CqRow(self.row(Table::Cq, page));
                if self.engine.set_consumer(page, word.index(), word.arm()) {
                    self.raise(row.vector());
                }
                row.enabled()
            }
            _ => return Err(()),
        };
        if !is_good {
            self.registers.count(Counter::DoorbellBad);
        }
        Ok(())
    }

    /// Sends the messages that wait and are not masked.
    pub fn send_pending(&mut self) {
        for vector in 0..VECTORS as u32 {
            let (word, bit) = (vector / 32, 1 << (vector % 32));
            let pending = self.registers.get(irq::PENDING, word);
            if pending & bit & !self.registers.get(irq::MASK, word) != 0 {
                self.registers.set(irq::PENDING, word, pending & !bit);
                if let Some(event) = &self.irqs[vector as usize] {
                    event.signal();
                }
            }
        }
    }
}

impl Memory {
    /// Calls `f` with the memory behind `addr..addr + len`, which lies in one mapping, unless it is not permitted.
    fn at<T>(&self, addr: u64, len: usize, direction: Direction, f: impl FnOnce(&DmaMem, u64) -> T) -> Option<T> {
        let (&start, mapping) = self.mappings.range(..=addr).next_back()?;
        let is_inside = addr - start + len as u64 <= mapping.len;
        (is_inside && mapping.access.allows(direction)).then(|| f(&mapping.mem, mapping.offset + (addr - start)))
    }

    pub fn read(&self, addr: u64, len: usize) -> Option<Vec<u8>> {
        self.at(addr, len, Direction::Read, |mem, offset| mem.to_vec(offset, len))
    }

    pub fn write(&self, addr: u64, bytes: &[u8]) -> Option<()> {
        self.at(addr, bytes.len(), Direction::Write, |mem, offset| mem.write(offset, bytes))
    }
}

impl PciDevice for FakeCard {
    fn name(&self) -> String {
        "fake card".into()
    }

    fn region(&self, region: u32) -> PciResult<RegionInfo> {
        let size_bytes = if region == REGION_BAR0 { self.lock().bar_bytes } else { 0 };
        Ok(RegionInfo { size_bytes, is_readable: true, is_writable: true })
    }

    fn read(&self, region: u32, offset: u64, buf: &mut [u8]) -> PciResult<()> {
        let mut inner = self.lock();
        if inner.is_gone {
            return inner.gone();
        }
        assert_eq!((region, buf.len()), (REGION_BAR0, 4));
        let bus = PciError::Bus { direction: Direction::Read, region, offset_bytes: offset, len_bytes: 4 };
        let word = inner.read_word(offset as u32).map_err(|()| bus)?;
        buf.copy_from_slice(&word.to_le_bytes());
        Ok(())
    }

    fn write(&self, region: u32, offset: u64, bytes: &[u8]) -> PciResult<()> {
        let mut inner = self.lock();
        if inner.is_gone {
            return inner.gone();
        }
        assert_eq!(region, REGION_BAR0);
        let word = u32::from_le_bytes(bytes.try_into().unwrap());
        let bus = PciError::Bus { direction: Direction::Write, region, offset_bytes: offset, len_bytes: 4 };
        inner.write_word(offset as u32, word).map_err(|()| bus)
    }

    fn dma_map(&self, mem: &DmaMem, offset: u64, len: u64, iova: u64, access: DmaAccess) -> PciResult<()> {
        let mut inner = self.lock();
        assert!((offset | len | iova) % PAGE_BYTES == 0 && len > 0 && offset + len <= mem.len_bytes());
        let before = inner.memory.mappings.range(..iova + len).next_back();
        assert!(before.is_none_or(|(&start, mapping)| start + mapping.len <= iova), "the driver maps twice");
        inner.memory.mappings.insert(iova, Mapping { mem: mem.clone(), offset, len, access });
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, len: u64) -> PciResult<()> {
        let removed = self.lock().memory.mappings.remove(&iova);
        assert_eq!(removed.map(|mapping| mapping.len), Some(len), "the driver unmaps what it mapped");
        Ok(())
    }

    fn irq_count(&self, index: u32) -> PciResult<u32> {
        Ok(if index == IRQ_MSIX { VECTORS as u32 } else { 0 })
    }

    fn set_irqs(&self, index: u32, start: u32, events: &[IrqEvent]) -> PciResult<()> {
        let end = u64::from(start) + events.len() as u64;
        if index != IRQ_MSIX || end > VECTORS as u64 {
            return Err(PciError::Irq { index, start, end, have: VECTORS as u32 });
        }
        for (irq, event) in self.lock().irqs[start as usize..].iter_mut().zip(events) {
            *irq = Some(event.clone());
        }
        Ok(())
    }

    fn disable_irqs(&self, _index: u32) -> PciResult<()> {
        self.lock().irqs.fill(None);
        Ok(())
    }

    fn reset(&self) -> PciResult<()> {
        let mut inner = self.lock();
        if inner.is_gone {
            return inner.gone();
        }
        inner.resets += 1;
        inner.registers.reset();
        inner.rows.clear();
        inner.engine = Engine::default();
        Ok(())
    }

    fn idle(&self) -> PciResult<()> {
        let mut inner = self.lock();
        if inner.is_gone {
            return inner.gone();
        }
        inner.idles += 1;
        inner.step();
        Ok(())
    }
}
