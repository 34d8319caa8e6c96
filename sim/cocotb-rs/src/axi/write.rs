//! The write half of the AXI4 memory.

use super::{
    burst::Burst,
    config::Axi4MemoryConfig,
    memory::{Axi4Stats, Order},
    ports::Axi4Ports,
    storage::Memory,
    Response,
};
use crate::{agent::Io, pace::Pace, port::PortImage, stable::Stability};
use std::collections::VecDeque;

/// The beats of one burst, whole bus words.
#[derive(Default)]
struct Beats {
    data: Vec<u8>,
    strobes: Vec<u128>,
}

struct Write {
    burst: Burst,
    beats: Beats,
    due_cycle: u64,
}

pub(super) struct WriteHalf {
    address_rules: Stability,
    data_rules: Stability,
    addresses: VecDeque<Burst>,
    filling: Beats,
    filled: VecDeque<Beats>,
    /// Address and data complete, response not yet taken.
    writes: Vec<Write>,
    order: Order,
    address_pace: Pace,
    data_pace: Pace,
    offer_pace: Pace,
    is_address_ready: bool,
    is_data_ready: bool,
    is_valid: bool,
    current: Option<usize>,
    spare: Beats,
}

impl WriteHalf {
    pub(super) fn new(ports: &Axi4Ports, config: &Axi4MemoryConfig) -> Self {
        WriteHalf {
            address_rules: Stability::new(ports.aw.payload()),
            data_rules: Stability::new(ports.w.payload()),
            addresses: VecDeque::new(),
            filling: Beats::default(),
            filled: VecDeque::new(),
            writes: Vec::new(),
            order: Order::new(config, "write"),
            address_pace: config.ready_pace("aw"),
            data_pace: config.ready_pace("w"),
            offer_pace: config.offer_pace("b"),
            is_address_ready: false,
            is_data_ready: false,
            is_valid: false,
            current: None,
            spare: Beats::default(),
        }
    }

    pub(super) fn reset(&mut self, io: &mut Io<'_>, ports: &Axi4Ports) {
        self.address_rules.forget();
        self.data_rules.forget();
        self.addresses.clear();
        self.filling = Beats::default();
        self.filled.clear();
        self.writes.clear();
        (self.is_address_ready, self.is_data_ready, self.is_valid, self.current) = (false, false, false, None);
        for port in [ports.aw.ready, ports.w.ready, ports.b.valid] {
            io.set(port, 0);
        }
    }

    pub(super) fn outstanding(&self) -> usize {
        self.addresses.len() + self.writes.len()
    }

    pub(super) fn on_edge(
        &mut self,
        io: &mut Io<'_>,
        ports: &Axi4Ports,
        config: &Axi4MemoryConfig,
        memory: &mut dyn Memory,
        stats: &mut Axi4Stats,
    ) {
        if self.is_valid && io.is_set(ports.b.ready) {
            self.response_taken();
        }
        self.accept_address(io, ports, stats);
        self.accept_data(io, ports, stats);
        self.join(io, ports, config, stats);
        if !self.is_valid {
            self.offer(io, ports, config, memory, stats);
        }
        self.is_address_ready = self.outstanding() < config.writes_max && self.address_pace.goes();
        io.set(ports.aw.ready, u64::from(self.is_address_ready));
        self.is_data_ready = self.filled.len() < config.writes_max && self.data_pace.goes();
        io.set(ports.w.ready, u64::from(self.is_data_ready));
    }

    fn accept_address(&mut self, io: &mut Io<'_>, ports: &Axi4Ports, stats: &mut Axi4Stats) {
        let is_valid = io.is_set(ports.aw.valid);
        if let Err(broken) = self.address_rules.check(io, is_valid, self.is_address_ready) {
            io.fail(format!("{} AW: {broken}", ports.name));
        }
        if is_valid && self.is_address_ready {
            let (burst, broken) = Burst::read(io, &ports.aw, ports.width_bytes());
            if let Some(broken) = broken {
                io.fail(format!("{} AW: {broken}", ports.name));
            }
            self.addresses.push_back(burst);
            stats.writes += 1;
            stats.writes_outstanding_max = stats.writes_outstanding_max.max(self.outstanding());
        }
    }

    fn accept_data(&mut self, io: &mut Io<'_>, ports: &Axi4Ports, stats: &mut Axi4Stats) {
        let is_valid = io.is_set(ports.w.valid);
        if let Err(broken) = self.data_rules.check(io, is_valid, self.is_data_ready) {
            io.fail(format!("{} W: {broken}", ports.name));
        }
        if !(is_valid && self.is_data_ready) {
            return;
        }
        io.append_bytes(ports.w.data, ports.width_bytes(), &mut self.filling.data);
        self.filling.strobes.push(strobe(io, ports));
        stats.write_beats += 1;
        if ports.w.last.is_none_or(|last| io.is_set(last)) {
            let next = std::mem::take(&mut self.spare);
            self.filled.push_back(std::mem::replace(&mut self.filling, next));
        }
    }

    /// Brings addresses and data together in their order; AXI4 knows no other for write data.
    fn join(&mut self, io: &mut Io<'_>, ports: &Axi4Ports, config: &Axi4MemoryConfig, stats: &mut Axi4Stats) {
        while !self.addresses.is_empty() && !self.filled.is_empty() {
            let (Some(burst), Some(beats)) = (self.addresses.pop_front(), self.filled.pop_front()) else { return };
            let sent = beats.strobes.len();
            let width_bytes = ports.width_bytes();
            if sent != burst.beats {
                io.fail(format!("{} W: {sent} beats for a burst of {}", ports.name, burst.beats));
                stats.writes -= 1;
                continue;
            }
            let stray = (0..sent).find(|beat| beats.strobes[*beat] & !burst.lanes(*beat, width_bytes) != 0);
            // Without strobes every lane is written, and an unaligned address is simply that of the beat.
            if let (Some(beat), Some(_)) = (stray, ports.w.strb) {
                let (strobe, addr) = (beats.strobes[beat], burst.addr);
                io.fail(format!("{} W: strobe {strobe:#x} of beat {beat} leaves the lanes of {addr:#x}", ports.name));
            }
            let due_cycle = io.cycle() + self.order.draw(&config.write_latency_cycles) - 1;
            self.writes.push(Write { burst, beats, due_cycle });
        }
    }

    fn response_taken(&mut self) {
        self.is_valid = false;
        if let Some(index) = self.current.take() {
            self.spare = self.writes.remove(index).beats;
            self.spare.data.clear();
            self.spare.strobes.clear();
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
        if self.current.is_none() {
            let candidates = self.writes.iter().map(|write| (write.burst.id, write.due_cycle));
            self.current = self.order.choose(candidates, io.cycle());
        }
        self.is_valid = self.current.is_some() && self.offer_pace.goes();
        io.set(ports.b.valid, u64::from(self.is_valid));
        let (true, Some(index)) = (self.is_valid, self.current) else { return };
        stats.writes_overtaking += u64::from(index > 0);
        let write = &self.writes[index];
        let response = match config.fault(write.burst.addr, write.burst.len_bytes()) {
            Some(response) => response,
            None => write.commit(memory, ports.width_bytes()),
        };
        stats.write_errors += u64::from(response.is_error());
        if let Some(id) = ports.b.id {
            io.set(id, write.burst.id);
        }
        if let Some(resp) = ports.b.resp {
            io.set(resp, response.code());
        }
    }
}

impl Write {
    /// Writes every run of strobed bytes that is contiguous in address and buffer with one call.
    fn commit(&self, memory: &mut dyn Memory, width_bytes: usize) -> Response {
        let mut response = Response::Okay;
        // Address, place in the buffer, length.
        let mut run = (0_u64, 0_usize, 0_usize);
        let mut flush = |(addr, start, len): (u64, usize, usize)| {
            if len > 0 {
                response = response.max(memory.write(addr, &self.beats.data[start..start + len]));
            }
        };
        for (beat, strobe) in self.beats.strobes.iter().enumerate() {
            let mut left = strobe & self.burst.lanes(beat, width_bytes);
            let first_lane = self.burst.lane(beat, width_bytes);
            while left != 0 {
                let lane = left.trailing_zeros() as usize;
                let len = (left >> lane).trailing_ones() as usize;
                let addr = self.burst.beat_addr(beat).wrapping_add((lane - first_lane) as u64);
                let start = beat * width_bytes + lane;
                if run.0.wrapping_add(run.2 as u64) == addr && run.1 + run.2 == start {
                    run.2 += len;
                } else {
                    flush(run);
                    run = (addr, start, len);
                }
                left &= u128::MAX.checked_shl((lane + len) as u32).unwrap_or(0);
            }
        }
        flush(run);
        response
    }
}

fn strobe(image: &PortImage, ports: &Axi4Ports) -> u128 {
    match ports.w.strb {
        Some(port) => {
            let words = image.words(port);
            u128::from(words[0]) | words.get(1).map_or(0, |high| u128::from(*high) << 64)
        }
        None => u128::MAX >> (128 - ports.width_bytes()),
    }
}
