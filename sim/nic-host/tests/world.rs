//! Driver threads and a toy world on its own thread, through the `PciDevice` that the real driver uses.
//!
//! The toy card has one 64-bit register file; a write to word 0 makes it copy 8 bytes in host memory and raise an
//! interrupt 10 cycles later.

use std::collections::BTreeMap;
use std::thread::{spawn, JoinHandle};
use std::time::Duration;

use nic_driver::irq::IrqEvent;
use nic_driver::mem::{DmaMem, PAGE_BYTES};
use nic_driver::pci::{Direction, DmaAccess, PciDevice, PciError, IRQ_MSIX, REGION_BAR0};
use nic_host::{
    host_link, CardId, DeviceMemory, HostLink, HostMemory, MsixSink, SimOptions, SimPciDevice, World, WorldError,
    WorldLink,
};

const OPTIONS: SimOptions = SimOptions { bar0_bytes: 0x1000, idle_cycles: 4 };
const PATIENCE: Duration = Duration::from_secs(60);
const HOLE: u64 = 0x800;
const LAST_CYCLE: u64 = 1000;

struct Toy {
    cycle: u64,
    cards: Vec<ToyCard>,
}

struct ToyCard {
    memory: HostMemory,
    msix: MsixSink,
    registers: BTreeMap<u64, u8>,
    copy: Option<(u64, u64)>,
}

impl Toy {
    fn pass(&mut self, cycles: u64) -> Result<(), WorldError> {
        for _ in 0..cycles {
            self.cycle += 1;
            for card in &mut self.cards {
                if card.copy.is_some_and(|(_, due)| due == self.cycle) {
                    let (at, _) = card.copy.take().unwrap();
                    let mut bytes = [0; 8];
                    if card.memory.read(at, &mut bytes).and_then(|()| card.memory.write(at + 8, &bytes)).is_ok() {
                        card.msix.raise(1).unwrap();
                    }
                }
            }
        }
        if self.cycle > LAST_CYCLE {
            return Err(WorldError::Ended(format!("the run was limited to {LAST_CYCLE} cycles")));
        }
        Ok(())
    }
}

impl World for Toy {
    fn mmio_read(&mut self, card: CardId, region: u32, offset: u64, buf: &mut [u8]) -> Result<(), WorldError> {
        self.pass(1)?;
        assert_eq!(region, REGION_BAR0);
        if offset == HOLE {
            return Err(WorldError::Bus);
        }
        let registers = &self.cards[card.0 as usize].registers;
        for (i, byte) in buf.iter_mut().enumerate() {
            *byte = registers.get(&(offset + i as u64)).copied().unwrap_or(0);
        }
        Ok(())
    }

    fn mmio_write(&mut self, card: CardId, _region: u32, offset: u64, bytes: &[u8]) -> Result<(), WorldError> {
        self.pass(1)?;
        if offset == HOLE {
            return Err(WorldError::Bus);
        }
        let card = &mut self.cards[card.0 as usize];
        card.registers.extend((offset..).zip(bytes.iter().copied()));
        if let (0, Ok(bytes)) = (offset, bytes.try_into()) {
            card.copy = Some((u64::from_le_bytes(bytes), self.cycle + 10));
        }
        Ok(())
    }

    fn idle(&mut self, _card: CardId, cycles: u64) -> Result<(), WorldError> {
        self.pass(cycles)
    }

    fn reset(&mut self, card: CardId) -> Result<(), WorldError> {
        self.cards[card.0 as usize].registers.clear();
        Ok(())
    }
}

fn device(link: &HostLink, card: u32) -> SimPciDevice {
    SimPciDevice::new(link.clone(), CardId(card), HostMemory::new(), MsixSink::new(2), OPTIONS)
}

fn toy(count: u32) -> (Vec<SimPciDevice>, JoinHandle<u64>) {
    let (link, world) = host_link(PATIENCE);
    let devices: Vec<_> = (0..count).map(|card| device(&link, card)).collect();
    let cards = devices.iter().map(|device| ToyCard {
        memory: device.memory().clone(),
        msix: device.msix().clone(),
        registers: BTreeMap::new(),
        copy: None,
    });
    let mut toy = Toy { cycle: 0, cards: cards.collect() };
    let thread = spawn(move || {
        world.serve(&mut toy);
        toy.cycle
    });
    (devices, thread)
}

fn world_thread(serve: impl FnOnce(WorldLink) + Send + 'static, patience: Duration) -> SimPciDevice {
    let (link, world) = host_link(patience);
    spawn(move || serve(world));
    device(&link, 0)
}

fn read_u32(device: &SimPciDevice, offset: u64) -> Result<u32, PciError> {
    let mut buf = [0; 4];
    device.read(REGION_BAR0, offset, &mut buf).map(|()| u32::from_le_bytes(buf))
}

#[test]
fn registers_memory_and_interrupts_work_from_the_driver_s_side() {
    let (devices, thread) = toy(1);
    let device: &dyn PciDevice = &devices[0];
    let mem = DmaMem::zeroed(1);
    device.dma_map(&mem, 0, PAGE_BYTES, 0x7000, DmaAccess::ReadWrite).unwrap();
    let event = IrqEvent::new();
    assert_eq!([device.irq_count(IRQ_MSIX).unwrap(), device.irq_count(0).unwrap()], [2, 0]);
    device.set_irqs(IRQ_MSIX, 1, std::slice::from_ref(&event)).unwrap();

    mem.write(16, b"over DMA");
    device.write(REGION_BAR0, 0, &0x7010u64.to_le_bytes()).unwrap();
    assert_eq!(event.take(), 0, "no time has passed yet");
    assert_eq!(event.wait_polling(device, 10).unwrap(), 1);
    assert_eq!(mem.to_vec(24, 8), b"over DMA");

    device.dma_unmap(0x7000, PAGE_BYTES).unwrap();
    device.write(REGION_BAR0, 0, &0x7010u64.to_le_bytes()).unwrap();
    let err = event.wait_polling(device, 10).unwrap_err();
    assert_eq!(err.to_string(), "no interrupt after 10 polls");
    let faults = devices[0].memory().take_faults();
    assert_eq!((faults.len(), faults[0].addr, faults[0].direction), (1, 0x7010, Direction::Read));

    drop(devices);
    assert_eq!(
        thread.join().unwrap(),
        2 + 4 * 3 + 4 * 10,
        "two writes, three idle polls to the interrupt, ten in vain"
    );
}

#[test]
fn each_card_has_its_own_registers_and_time_is_common() {
    let (devices, thread) = toy(2);
    devices[0].write(REGION_BAR0, 8, &7u32.to_le_bytes()).unwrap();
    devices[1].write(REGION_BAR0, 8, &9u32.to_le_bytes()).unwrap();
    assert_eq!([read_u32(&devices[0], 8), read_u32(&devices[1], 8)], [Ok(7), Ok(9)]);
    devices[1].reset().unwrap();
    assert_eq!([read_u32(&devices[0], 8), read_u32(&devices[1], 8)], [Ok(7), Ok(0)]);
    drop(devices);
    assert_eq!(thread.join().unwrap(), 6);
}

#[test]
fn a_bus_error_comes_back_as_one_with_its_address() {
    let (devices, _thread) = toy(1);
    let bus = |direction| PciError::Bus { direction, region: REGION_BAR0, offset_bytes: HOLE, len_bytes: 4 };
    assert_eq!(read_u32(&devices[0], HOLE), Err(bus(Direction::Read)));
    assert_eq!(devices[0].write(REGION_BAR0, HOLE, &[0; 4]), Err(bus(Direction::Write)));
    assert_eq!(read_u32(&devices[0], 8), Ok(0), "the card keeps running");
}

#[test]
fn an_access_that_no_bus_could_carry_is_refused_before_it_is_sent() {
    let (devices, thread) = toy(1);
    for (region, offset, len) in
        [(0, 2, 4), (0, 4, 8), (0, 0, 3), (0, 0, 0), (0, 0x1000, 4), (1, 0, 4), (0, u64::MAX - 3, 4)]
    {
        let err = devices[0].write(region, offset, &vec![0; len]).unwrap_err();
        assert!(matches!(err, PciError::Access { direction: Direction::Write, .. }), "{err}");
    }
    let err = devices[0].set_irqs(0, 0, &[IrqEvent::new()]).unwrap_err();
    assert_eq!(err, PciError::Irq { index: 0, start: 0, end: 1, have: 0 });
    drop(devices);
    assert_eq!(thread.join().unwrap(), 0);
}

#[test]
fn polling_ends_with_an_error_when_the_world_ends() {
    let (devices, _thread) = toy(1);
    let err = IrqEvent::new().wait_polling(&devices[0], u32::MAX).unwrap_err();
    assert_eq!(err.to_string(), "cannot wait for the device");
    let source = std::error::Error::source(&err).unwrap().to_string();
    assert_eq!(source, "the device is gone: the run was limited to 1000 cycles");
}

#[test]
fn a_closed_world_tells_its_reason_to_requests_that_wait_and_that_come_later() {
    let (link, world) = host_link(PATIENCE);
    let waiting = device(&link, 0);
    let waiter = spawn(move || read_u32(&waiting, 0));
    let job = world.next_job().unwrap();
    assert_eq!(job.request().to_string(), "card 0: read of 4 bytes at offset 0x0 of region 0");
    world.close("the seed failed");
    drop(job);
    let gone = Err(PciError::Gone { reason: "the seed failed".into() });
    assert_eq!(waiter.join().unwrap(), gone);
    assert_eq!(read_u32(&device(&link, 0), 0), gone);
}

#[test]
fn a_world_that_dies_is_an_error_and_not_a_hang() {
    let device = world_thread(|world| drop(world.next_job()), PATIENCE);
    assert!(matches!(device.idle(), Err(PciError::Gone { .. })));
    assert!(matches!(device.reset(), Err(PciError::Gone { .. })));
}

#[test]
fn a_world_that_stands_still_is_an_error_and_not_a_hang() {
    let (link, _world) = host_link(Duration::from_millis(5));
    let err = device(&link, 3).run_cycles(9).unwrap_err();
    assert_eq!(err, PciError::NoAnswer { request: "card 3: 9 idle cycles".into(), waited_ms: 5 });
}

#[test]
fn a_read_answered_with_too_few_bytes_is_an_error() {
    let device = world_thread(|world| world.next_job().unwrap().answer_read(vec![1, 2]), PATIENCE);
    let err = read_u32(&device, 0).unwrap_err();
    assert_eq!(err.to_string(), "the device is gone: the simulated world answered a read of 4 bytes with 2");
}

#[test]
fn the_world_can_go_on_between_requests() {
    let (link, world) = host_link(PATIENCE);
    assert!(matches!(world.poll_job(), Ok(None)));
    let waiting = device(&link, 0);
    let waiter = spawn(move || waiting.reset());
    let job = loop {
        if let Some(job) = world.poll_job().unwrap() {
            break job;
        }
        std::thread::yield_now();
    };
    assert_eq!(job.request().card(), CardId(0));
    job.answer_done();
    waiter.join().unwrap().unwrap();
    drop(link);
    assert!(world.poll_job().is_err(), "all drivers are gone");
}
