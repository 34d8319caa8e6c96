//! A subordinate that answers the design's AXI4 manager from a memory.

use super::{config::Axi4MemoryConfig, ports::Axi4Ports, read::ReadHalf, storage::Memory, write::WriteHalf};
use crate::{
    agent::{Agent, Io},
    error::SimError,
    port::Direction,
    seed::Rng,
    sim::{Clock, Handle},
};
use std::{
    cell::{Cell, RefCell},
    ops::RangeInclusive,
    rc::Rc,
};

/// What an AXI4 memory has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Axi4Stats {
    /// Read bursts accepted.
    pub reads: u64,
    /// Write bursts accepted.
    pub writes: u64,
    /// Beats of read data offered.
    pub read_beats: u64,
    /// Beats of write data accepted.
    pub write_beats: u64,
    /// Beats of read data with an error response.
    pub read_errors: u64,
    /// Write responses with an error.
    pub write_errors: u64,
    /// Read bursts whose first beat was offered before an older burst was complete.
    pub reads_overtaking: u64,
    /// Write responses offered before that of an older burst.
    pub writes_overtaking: u64,
    /// Most reads outstanding at a time.
    pub reads_outstanding_max: usize,
    /// Most writes outstanding at a time.
    pub writes_outstanding_max: usize,
    /// Reads outstanding now.
    pub reads_outstanding: usize,
    /// Writes outstanding now.
    pub writes_outstanding: usize,
}

/// An AXI4 subordinate in front of a [`Memory`]. It checks that the manager keeps the protocol: payloads stable until
/// taken, incrementing bursts, no 4 KiB crossing, strobes within their lanes, as many beats as announced.
pub struct Axi4Memory {
    stats: Rc<Cell<Axi4Stats>>,
}

impl Axi4Memory {
    /// Answers at every edge of `clock`. The memory stays shared with the caller.
    ///
    /// # Errors
    /// The design is not the manager of these ports.
    pub fn attach<M: Memory + 'static>(
        handle: &Handle,
        clock: Clock,
        ports: Axi4Ports,
        config: Axi4MemoryConfig,
        memory: Rc<RefCell<M>>,
    ) -> Result<Self, SimError> {
        ports.check_direction(Direction::Output)?;
        if config.reads_max == 0 || config.writes_max == 0 {
            let reason = "a memory takes at least one transaction each way".into();
            return Err(SimError::PortShape { name: ports.name, reason });
        }
        let stats = Rc::<Cell<Axi4Stats>>::default();
        handle.attach(
            clock,
            Subordinate {
                read: ReadHalf::new(&ports, &config),
                write: WriteHalf::new(&ports, &config),
                ports,
                config,
                memory,
                stats: stats.clone(),
            },
        );
        Ok(Axi4Memory { stats })
    }

    /// What it has seen so far.
    pub fn stats(&self) -> Axi4Stats {
        self.stats.get()
    }
}

struct Subordinate<M> {
    ports: Axi4Ports,
    config: Axi4MemoryConfig,
    memory: Rc<RefCell<M>>,
    read: ReadHalf,
    write: WriteHalf,
    stats: Rc<Cell<Axi4Stats>>,
}

impl<M: Memory> Agent for Subordinate<M> {
    fn on_edge(&mut self, io: &mut Io<'_>) {
        if io.is_in_reset() {
            self.read.reset(io, &self.ports);
            self.write.reset(io, &self.ports);
            return;
        }
        let mut stats = self.stats.get();
        let mut memory = self.memory.borrow_mut();
        self.write.on_edge(io, &self.ports, &self.config, &mut *memory, &mut stats);
        self.read.on_edge(io, &self.ports, &self.config, &mut *memory, &mut stats);
        (stats.reads_outstanding, stats.writes_outstanding) = (self.read.outstanding(), self.write.outstanding());
        self.stats.set(stats);
    }
}

/// Draws latencies and decides which transaction is answered next.
pub(super) struct Order {
    rng: Rng,
    is_out_of_order: bool,
    ids: Vec<u64>,
    eligible: Vec<usize>,
}

impl Order {
    pub(super) fn new(config: &Axi4MemoryConfig, half: &str) -> Self {
        let rng = config.seed.named(half).rng();
        Order { rng, is_out_of_order: config.is_out_of_order, ids: Vec::new(), eligible: Vec::new() }
    }

    /// A latency of the range, at least 1.
    pub(super) fn draw(&mut self, range: &RangeInclusive<u64>) -> u64 {
        if range.start() == range.end() { *range.start() } else { self.rng.within(range) }.max(1)
    }

    /// One of the transactions (id, due cycle; oldest first) that may be answered now.
    ///
    /// In order, that is the oldest. Out of order, it is any that is the oldest of its id.
    pub(super) fn choose(&mut self, waiting: impl Iterator<Item = (u64, u64)>, cycle: u64) -> Option<usize> {
        if !self.is_out_of_order {
            let (_, due_cycle) = waiting.take(1).next()?;
            return (due_cycle <= cycle).then_some(0);
        }
        self.ids.clear();
        self.eligible.clear();
        for (index, (id, due_cycle)) in waiting.enumerate() {
            if !self.ids.contains(&id) {
                self.ids.push(id);
                if due_cycle <= cycle {
                    self.eligible.push(index);
                }
            }
        }
        match self.eligible.as_slice() {
            [] => None,
            [only] => Some(*only),
            several => Some(several[self.rng.below(several.len() as u64) as usize]),
        }
    }
}
