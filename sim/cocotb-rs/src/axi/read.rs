//! The read half of the AXI4 memory.

use super::{
    burst::Burst,
    config::Axi4MemoryConfig,
    memory::{Axi4Stats, Order},
    ports::Axi4Ports,
    storage::Memory,
    Response, AXI_BYTES_MAX,
};
use crate::{agent::Io, pace::Pace, stable::Stability};

struct Read {
    burst: Burst,
    due_cycle: u64,
    beat: usize,
    /// From the aligned address on; empty until the first beat is offered.
    data: Vec<u8>,
    response: Response,
}

pub(super) struct ReadHalf {
    address_rules: Stability,
    reads: Vec<Read>,
    order: Order,
    ready_pace: Pace,
    offer_pace: Pace,
    is_ready: bool,
    is_valid: bool,
    /// The read whose beat is on offer, or whose beats are under way.
    current: Option<usize>,
    spare: Vec<u8>,
}

impl ReadHalf {
    pub(super) fn new(ports: &Axi4Ports, config: &Axi4MemoryConfig) -> Self {
        ReadHalf {
            address_rules: Stability::new(ports.ar.payload()),
            reads: Vec::new(),
            order: Order::new(config, "read"),
            ready_pace: config.ready_pace("ar"),
            offer_pace: config.offer_pace("r"),
            is_ready: false,
            is_valid: false,
            current: None,
            spare: Vec::new(),
        }
    }

    pub(super) fn reset(&mut self, io: &mut Io<'_>, ports: &Axi4Ports) {
        self.address_rules.forget();
        self.reads.clear();
        (self.is_ready, self.is_valid, self.current) = (false, false, None);
        io.set(ports.ar.ready, 0);
        io.set(ports.r.valid, 0);
    }

    pub(super) fn outstanding(&self) -> usize {
        self.reads.len()
    }

    pub(super) fn on_edge(
        &mut self,
        io: &mut Io<'_>,
        ports: &Axi4Ports,
        config: &Axi4MemoryConfig,
        memory: &mut dyn Memory,
        stats: &mut Axi4Stats,
    ) {
        if self.is_valid && io.is_set(ports.r.ready) {
            self.beat_taken();
        }
        self.accept(io, ports, config, stats);
        if !self.is_valid {
            self.offer(io, ports, config, memory, stats);
        }
        self.is_ready = self.reads.len() < config.reads_max && self.ready_pace.goes();
        io.set(ports.ar.ready, u64::from(self.is_ready));
    }

    fn accept(&mut self, io: &mut Io<'_>, ports: &Axi4Ports, config: &Axi4MemoryConfig, stats: &mut Axi4Stats) {
        let is_valid = io.is_set(ports.ar.valid);
        if let Err(broken) = self.address_rules.check(io, is_valid, self.is_ready) {
            io.fail(format!("{} AR: {broken}", ports.name));
        }
        if !(is_valid && self.is_ready) {
            return;
        }
        let (burst, broken) = Burst::read(io, &ports.ar, ports.width_bytes());
        if let Some(broken) = broken {
            io.fail(format!("{} AR: {broken}", ports.name));
        }
        let due_cycle = io.cycle() + self.order.draw(&config.read_latency_cycles) - 1;
        let data = std::mem::take(&mut self.spare);
        self.reads.push(Read { burst, due_cycle, beat: 0, data, response: Response::Okay });
        stats.reads += 1;
        stats.reads_outstanding_max = stats.reads_outstanding_max.max(self.reads.len());
    }

    fn beat_taken(&mut self) {
        self.is_valid = false;
        let Some(index) = self.current else { return };
        let read = &mut self.reads[index];
        read.beat += 1;
        if read.beat == read.burst.beats {
            let mut data = self.reads.remove(index).data;
            data.clear();
            self.spare = data;
            self.current = None;
        }
    }

    fn offer(
        &mut self,
        io: &mut Io<'_>,
        ports: &Axi4Ports,
        config: &Axi4MemoryConfig,
        memory: &mut dyn Memory,
        stats: &mut Axi4Stats,
    ) {
        if config.is_interleaving || self.current.is_none() {
            let candidates = self.reads.iter().map(|read| (read.burst.id, read.due_cycle));
            self.current = self.order.choose(candidates, io.cycle());
        }
        self.is_valid = self.current.is_some() && self.offer_pace.goes();
        io.set(ports.r.valid, u64::from(self.is_valid));
        let (true, Some(index)) = (self.is_valid, self.current) else { return };
        if self.reads[index].beat == 0 && self.reads[index].data.is_empty() {
            stats.reads_overtaking += u64::from(index > 0);
            self.reads[index].fetch(memory);
        }
        let read = &self.reads[index];
        let response = read.beat_response(config);
        let beat_bytes = read.burst.beat_bytes;
        let beat_data = &read.data[read.beat * beat_bytes..][..beat_bytes];
        if beat_bytes == ports.width_bytes() {
            io.set_bytes(ports.r.data, beat_data);
        } else {
            let mut lanes = [0; AXI_BYTES_MAX];
            let lane = read.burst.lane(read.beat, ports.width_bytes());
            lanes[lane..lane + beat_bytes].copy_from_slice(beat_data);
            io.set_bytes(ports.r.data, &lanes[..ports.width_bytes()]);
        }
        if let Some(id) = ports.r.id {
            io.set(id, read.burst.id);
        }
        if let Some(resp) = ports.r.resp {
            io.set(resp, response.code());
        }
        if let Some(last) = ports.r.last {
            io.set(last, u64::from(read.beat + 1 == read.burst.beats));
        }
        stats.read_beats += 1;
        stats.read_errors += u64::from(response.is_error());
    }
}

impl Read {
    /// Reads memory at the moment the first beat is offered: the latest the manager can tell from later.
    fn fetch(&mut self, memory: &mut dyn Memory) {
        self.data.resize(self.burst.beats * self.burst.beat_bytes, 0);
        let skipped = self.burst.skipped();
        self.response = memory.read(self.burst.addr, &mut self.data[skipped..]);
    }

    fn beat_response(&self, config: &Axi4MemoryConfig) -> Response {
        if self.response.is_error() || config.faults.is_empty() {
            return self.response;
        }
        let skipped = if self.beat == 0 { self.burst.skipped() } else { 0 };
        let addr = self.burst.beat_addr(self.beat) + skipped as u64;
        config.fault(addr, self.burst.beat_bytes - skipped).unwrap_or(self.response)
    }
}
