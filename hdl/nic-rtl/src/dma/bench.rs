//! Random records into and out of a module on the interpreter: the bench of the unit tests of `dma` and `host`.
//!
//! A cycle is: sources and sinks set their pins, the test looks at what fires, the clock ticks.

pub(crate) use crate::prim::check::{sim, words as words_of, Rng};
use rtl_graph::{Pin, Sim};
use std::collections::VecDeque;

/// Fields of one record, each least significant word first.
pub(crate) type Words = Vec<Vec<u64>>;

/// One field of at most 64 bits.
pub(crate) fn word(x: u64) -> Vec<u64> {
    vec![x]
}

/// One of several values.
pub(crate) fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// A number that looks random and is the same for the same `x`.
pub(crate) fn hash(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Drives a stream's source end from a queue, with random gaps.
pub(crate) struct Source {
    valid: Pin,
    ready: Pin,
    fields: Vec<Pin>,
    /// What is still to be offered.
    pub(crate) queue: VecDeque<Words>,
    /// Probability of offering the next word in a cycle. Percent.
    pub(crate) rate: u64,
    offering: bool,
}

impl Source {
    pub(crate) fn new(sim: &Sim, port: &str, fields: &[&str]) -> Self {
        let fields = fields.iter().map(|f| sim.pin(&format!("{port}_{f}"))).collect();
        let (valid, ready) = (sim.pin(&format!("{port}_valid")), sim.pin(&format!("{port}_ready")));
        Source { valid, ready, fields, queue: VecDeque::new(), rate: 100, offering: false }
    }

    pub(crate) fn push(&mut self, words: Words) {
        assert_eq!(words.len(), self.fields.len());
        self.queue.push_back(words);
    }

    /// Sets the pins of this cycle.
    pub(crate) fn drive(&mut self, sim: &mut Sim, rng: &mut Rng) {
        if !self.offering && !self.queue.is_empty() && rng.chance(self.rate) {
            self.offering = true;
            for (pin, value) in self.fields.iter().zip(&self.queue[0]) {
                sim.set_wide(*pin, value);
            }
        }
        sim.set(self.valid, self.offering.into());
    }

    /// True, and the word is gone, when it is taken in this cycle.
    pub(crate) fn taken(&mut self, sim: &mut Sim) -> bool {
        let taken = self.offering && sim.get(self.ready) == 1;
        if taken {
            self.offering = false;
            self.queue.pop_front();
        }
        taken
    }
}

/// Takes words from a stream's sink end, with random stalls, and checks that an offer stands until it is taken.
pub(crate) struct Sink {
    valid: Pin,
    ready: Pin,
    fields: Vec<Pin>,
    /// Probability of taking a word in a cycle. Percent.
    pub(crate) rate: u64,
    standing: Option<Words>,
}

impl Sink {
    pub(crate) fn new(sim: &Sim, port: &str, fields: &[&str]) -> Self {
        let fields = fields.iter().map(|f| sim.pin(&format!("{port}_{f}"))).collect();
        let (valid, ready) = (sim.pin(&format!("{port}_valid")), sim.pin(&format!("{port}_ready")));
        Sink { valid, ready, fields, rate: 100, standing: None }
    }

    /// Sets the pin of this cycle.
    pub(crate) fn drive(&mut self, sim: &mut Sim, rng: &mut Rng) {
        sim.set(self.ready, rng.chance(self.rate).into());
    }

    /// The word taken in this cycle.
    pub(crate) fn taken(&mut self, sim: &mut Sim) -> Option<Words> {
        if sim.get(self.valid) == 0 {
            assert!(self.standing.is_none(), "an offer was withdrawn");
            return None;
        }
        let words: Words = self.fields.iter().map(|pin| sim.get_wide(*pin).to_vec()).collect();
        if let Some(before) = &self.standing {
            assert_eq!(before, &words, "an offer changed before it was taken");
        }
        let is_taken = sim.get(self.ready) == 1;
        self.standing = if is_taken { None } else { Some(words.clone()) };
        is_taken.then_some(words)
    }
}

/// Bytes of a wide field.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The byte of the test's memory at an address: any, but the same at every reading.
pub(crate) fn memory_byte(addr: u64) -> u8 {
    (hash(addr / 8) >> (8 * (addr % 8))) as u8
}

/// The line of the test's memory at an address, a multiple of 64.
pub(crate) fn memory_line(addr: u64) -> Vec<u64> {
    assert_eq!(addr % 64, 0);
    (0..8).map(|k| hash(addr / 8 + k)).collect()
}

/// One access over a `CsrBus` port; gives what was read and whether it was an error. Other inputs keep their values.
pub(crate) fn csr_access(sim: &mut Sim, port: &str, write: Option<u32>, addr: u32) -> (u32, bool) {
    sim.poke(&format!("{port}_valid"), 1);
    sim.poke(&format!("{port}_write"), write.is_some().into());
    sim.poke(&format!("{port}_addr"), addr.into());
    sim.poke(&format!("{port}_wdata"), write.unwrap_or(0xdead_beef).into());
    for _ in 0..1000 {
        let is_ready = sim.peek(&format!("{port}_ready")) == 1;
        let answer = (sim.peek(&format!("{port}_rdata")) as u32, sim.peek(&format!("{port}_error")) == 1);
        sim.clock();
        if is_ready {
            sim.poke(&format!("{port}_valid"), 0);
            return answer;
        }
    }
    panic!("no answer to the access at {addr:#x}");
}

/// Reads a register over a `CsrBus` port.
pub(crate) fn csr_read(sim: &mut Sim, port: &str, addr: u32) -> u32 {
    let (value, error) = csr_access(sim, port, None, addr);
    assert!(!error, "no register at {addr:#x}");
    value
}

/// Writes a register over a `CsrBus` port.
pub(crate) fn csr_write(sim: &mut Sim, port: &str, addr: u32, value: u32) {
    assert!(!csr_access(sim, port, Some(value), addr).1, "no register at {addr:#x}");
}

/// Cycles, from this one on, until a one-bit output is 1; the inputs in `once` are 1 in this cycle only.
pub(crate) fn cycles_until(sim: &mut Sim, once: &[&str], output: &str) -> u64 {
    once.iter().for_each(|pin| sim.poke(pin, 1));
    for cycle in 0..100 {
        if sim.peek(output) == 1 {
            return cycle;
        }
        sim.clock();
        once.iter().for_each(|pin| sim.poke(pin, 0));
    }
    panic!("`{output}` stays 0");
}
