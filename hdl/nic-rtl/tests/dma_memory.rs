//! The AXI4 manager against a memory model on Verilator: latencies, back-pressure, reordering across ids, faults.

use cocotb_rs::{
    axi::{Axi4Memory, Axi4MemoryConfig, Axi4Ports, Fault, Response, SparseMemory},
    Model, ModelBuilder, Optimization, Period, Port, PowerOn, Replay, Rng, Seed, Sim,
};
use nic_rtl::dma::{BusManager, BURST_BEATS};
use rtl_graph::Lib;
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

fn model() -> Model {
    let def = BusManager::def(&Lib::new(), BURST_BEATS);
    let model = ModelBuilder::new(&def.name)
        .verilog(def.verilog())
        .verilator_argument("-Wall")
        .verilator_argument("-Werror-WIDTH")
        .optimization(Optimization::BuildTime)
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(!model.verilator_log().contains("%Warning"), "{}", model.verilator_log());
    model
}

/// The source end of a stream: records wait in a queue, fields least significant word first.
struct Source {
    valid: Port,
    ready: Port,
    fields: Vec<Port>,
    queue: VecDeque<Vec<Vec<u64>>>,
    is_offered: bool,
}

impl Source {
    fn new(sim: &Sim, name: &str, fields: &[&str]) -> Self {
        let port = |field: &str| sim.port(&format!("{name}_{field}")).unwrap();
        let fields = fields.iter().map(|f| port(f)).collect();
        Source { valid: port("valid"), ready: port("ready"), fields, queue: VecDeque::new(), is_offered: false }
    }

    fn push(&mut self, record: &[&[u64]]) {
        self.queue.push_back(record.iter().map(|f| f.to_vec()).collect());
    }

    /// After an edge: what was offered before it and met `ready` is gone; the next may be offered.
    fn step(&mut self, sim: &Sim, rng: &mut Rng, percent: u32) {
        if self.is_offered && sim.is_set(self.ready) {
            self.queue.pop_front();
            self.is_offered = false;
        }
        if !self.is_offered && !self.queue.is_empty() && rng.percent(percent) {
            self.is_offered = true;
            for (port, words) in self.fields.iter().zip(&self.queue[0]) {
                sim.set_words(*port, words);
            }
        }
        sim.set(self.valid, self.is_offered.into());
    }
}

/// The sink end of a stream.
struct Sink {
    valid: Port,
    ready: Port,
    fields: Vec<Port>,
    is_ready: bool,
}

impl Sink {
    fn new(sim: &Sim, name: &str, fields: &[&str]) -> Self {
        let port = |field: &str| sim.port(&format!("{name}_{field}")).unwrap();
        let fields = fields.iter().map(|f| port(f)).collect();
        Sink { valid: port("valid"), ready: port("ready"), fields, is_ready: false }
    }

    /// After an edge: what it took.
    fn step(&mut self, sim: &Sim, rng: &mut Rng, percent: u32) -> Option<Vec<Vec<u64>>> {
        let taken = self.is_ready && sim.is_set(self.valid);
        let record = taken.then(|| self.fields.iter().map(|f| sim.get_words(*f)).collect());
        self.is_ready = rng.percent(percent);
        sim.set(self.ready, self.is_ready.into());
        record
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    let mut padded = [0; 64];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

const INFO: [&str; 10] = ["conn", "mseq", "payload_len", "dma_len", "mflags", "imm", "rsn", "se", "complete", "error"];
/// Reads come from here, writes go there; the faulty page is in each of both.
const READ_BASE: u64 = 0x10_0000;
const WRITE_BASE: u64 = 0x8000_0000;
const CQE_BASE: u64 = 0x2_0000_0000;
const FAULT_PAGE: u64 = 5;

struct Bench {
    sim: Sim,
    rng: Rng,
    memory: Rc<RefCell<SparseMemory>>,
}

impl Bench {
    fn new(model: &Model, seed: Seed, config: Axi4MemoryConfig) -> Self {
        let mut sim = Sim::new(model, PowerOn::Random { seed: seed.named("power-on").value() }).unwrap();
        let clk = sim.clock("clk", Period::ps(4000)).unwrap();
        let rst = sim.port("rst").unwrap();
        let memory = Rc::new(RefCell::new(SparseMemory::new()));
        let ports = Axi4Ports::find(&sim, "axi").unwrap();
        Axi4Memory::attach(&sim, clk, ports, config, memory.clone()).unwrap();
        sim.reset(rst, 4).unwrap();
        Bench { sim, rng: seed.named("stimuli").rng(), memory }
    }

    fn any_bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.rng.next_u64() as u8).collect()
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.next_u64() % n
    }
}

fn faults() -> Vec<Fault> {
    let page = |base: u64| base + 4096 * FAULT_PAGE..base + 4096 * (FAULT_PAGE + 1);
    vec![
        Fault { addresses: page(READ_BASE), response: Response::SubordinateError },
        Fault { addresses: page(WRITE_BASE), response: Response::DecodeError },
    ]
}

fn touches_fault(base: u64, addr: u64, len: u64) -> bool {
    let (begin, end) = (base + 4096 * FAULT_PAGE, base + 4096 * (FAULT_PAGE + 1));
    addr < end && addr + len > begin
}

fn check(model: &Model, seed: Seed, config: Axi4MemoryConfig) {
    let mut bench = Bench::new(model, seed, config);
    let image = bench.any_bytes(10 * 4096);
    bench.memory.borrow_mut().store(READ_BASE, &image);
    let mut reads = ["wqe", "payload"].map(|n| Source::new(&bench.sim, n, &["addr", "len"]));
    let data = ["data", "keep", "last", "error"];
    let mut answers = ["wqe_data", "payload_data"].map(|n| Sink::new(&bench.sim, n, &data));
    let mut place = Source::new(&bench.sim, "place", &["iova", "len"]);
    let mut place_data = Source::new(&bench.sim, "place_data", &["data", "keep", "last"]);
    let mut place_info = Source::new(&bench.sim, "place_info", &INFO);
    let mut placed = Sink::new(&bench.sim, "placed", &INFO);
    let mut cqe = Source::new(&bench.sim, "cqe", &["addr", "data"]);
    let mut cqe_done = Sink::new(&bench.sim, "cqe_done", &["error"]);
    let counts = [0, 1].map(|k| bench.sim.port(&format!("count_{k}_valid")).unwrap());
    let mut rates: Vec<u32> = (0..8).map(|_| [100, 100, 60, 30][bench.rng.next_u64() as usize % 4]).collect();

    // Reads anywhere in ten pages, the faulty one among them.
    let mut want: [VecDeque<(Vec<u8>, bool)>; 2] = Default::default();
    for (k, source) in reads.iter_mut().enumerate() {
        for _ in 0..60 {
            let len =
                if k == 0 { 64 } else { 1 + bench.rng.next_u64() % [8192, 64, 130][bench.rng.next_u64() as usize % 3] };
            let at = bench.rng.next_u64() % (10 * 4096 - len);
            source.push(&[&[READ_BASE + at], &[len]]);
            let first = READ_BASE + at - at % 64;
            let lines = (READ_BASE + at + len).next_multiple_of(64) - first;
            want[k]
                .push_back((image[at as usize..(at + len) as usize].to_vec(), touches_fault(READ_BASE, first, lines)));
        }
    }
    // Writes one behind the other with gaps, so that a stray byte is seen.
    let mut expected = SparseMemory::new();
    let (mut at, mut order) = (WRITE_BASE, VecDeque::new());
    for k in 0..60 {
        let limit = [8192, 64, 130][bench.below(3) as usize];
        let len = if k % 8 == 3 { 0 } else { 1 + bench.below(limit) };
        let content = bench.any_bytes(len as usize);
        at += bench.below(100);
        if len > 0 {
            place.push(&[&[at], &[len]]);
            let beats = content.chunks(64).count();
            for (i, c) in content.chunks(64).enumerate() {
                place_data.push(&[&words(c), &[u64::MAX >> (64 - c.len())], &[(i + 1 == beats).into()]]);
            }
        }
        place_info.push(&[&[1], &[k], &[len], &[len], &[0], &[0], &[0], &[0], &[1], &[0]]);
        order.push_back((k, at, content));
        at += len;
    }
    let mut entries: VecDeque<Vec<u8>> = (0..80).map(|_| bench.any_bytes(32)).collect();
    let (mut sent, mut done) = (0, 0);

    let (mut open, mut bad_reads, mut counted) = ([vec![], vec![]], 0, [0, 0]);
    for cycle in 0..60_000 {
        if sent - done < 16 && cqe.queue.is_empty() {
            if let Some(entry) = entries.pop_front() {
                let addr = CQE_BASE + 32 * sent;
                cqe.push(&[&[addr], &words(&entry)[..4]]);
                expected.store(addr, &entry);
                sent += 1;
            }
        }
        let Bench { sim, rng, .. } = &mut bench;
        sim.step().unwrap_or_else(|e| panic!("cycle {cycle}: {e}"));
        counts.iter().zip(&mut counted).for_each(|(port, n)| *n += sim.get(*port));
        for k in 0..2 {
            reads[k].step(sim, rng, rates[k]);
            if let Some(beat) = answers[k].step(sim, rng, rates[2 + k]) {
                let kept = beat[1][0].trailing_ones() as usize;
                open[k].extend_from_slice(&bytes(&beat[0])[..kept]);
                if beat[2][0] == 1 {
                    let (content, is_bad) = want[k].pop_front().expect("an answer to a read");
                    assert_eq!(beat[3][0] == 1, is_bad);
                    bad_reads += u64::from(is_bad);
                    let got = std::mem::take(&mut open[k]);
                    assert!(is_bad && got.len() == content.len() || got == content, "client {k} read other bytes");
                }
            }
        }
        place.step(sim, rng, rates[4]);
        place_data.step(sim, rng, rates[5]);
        place_info.step(sim, rng, rates[6]);
        cqe.step(sim, rng, 100);
        if let Some(info) = placed.step(sim, rng, rates[7]) {
            let (k, addr, content) = order.pop_front().expect("a placement");
            let is_bad =
                !content.is_empty() && touches_fault(WRITE_BASE, addr - addr % 64, addr % 64 + content.len() as u64);
            assert_eq!((info[1][0], info[9][0] == 1), (k, is_bad), "placement at {addr:#x}");
            // Memory has answered, so the bytes are there.
            let mut there = vec![0; content.len()];
            bench.memory.borrow().load(addr, &mut there);
            let in_fault = |i: usize| touches_fault(WRITE_BASE, addr + i as u64, 1);
            let is_right = (0..content.len()).all(|i| there[i] == if in_fault(i) { 0 } else { content[i] });
            assert!(is_right || is_bad, "placement {k} was reported before it was written");
            if !is_bad {
                expected.store(addr, &content);
            }
        }
        done += u64::from(cqe_done.step(&bench.sim, &mut bench.rng, rates[6]).is_some());
        if want.iter().all(|w| w.is_empty()) && order.is_empty() && done == 80 {
            break;
        }
        if cycle % 1000 == 999 {
            rates.rotate_left(1);
        }
    }
    assert!(want.iter().all(|w| w.is_empty()) && order.is_empty() && done == 80, "some answers did not come");
    assert!(bad_reads > 0 && counted[0] >= 1 && counted[1] >= 1, "{bad_reads} bad reads, counted {counted:?}");

    // Outside the faulty page and its neighbours, which a bad burst may have left out, memory is as it must be.
    for page in (0..(at - WRITE_BASE).div_ceil(4096)).filter(|p| !(FAULT_PAGE - 3..=FAULT_PAGE + 3).contains(p)) {
        let (mut ours, mut theirs) = ([0; 4096], [0; 4096]);
        bench.memory.borrow().load(WRITE_BASE + 4096 * page, &mut ours);
        expected.load(WRITE_BASE + 4096 * page, &mut theirs);
        assert!(ours == theirs, "page {page} differs");
    }
    let (mut ours, mut theirs) = ([0; 80 * 32], [0; 80 * 32]);
    bench.memory.borrow().load(CQE_BASE, &mut ours);
    expected.load(CQE_BASE, &mut theirs);
    assert!(ours == theirs, "completion entries differ");
}

#[test]
fn bytes_travel_unharmed_through_a_memory_that_reorders_and_stalls() {
    let model = model();
    let seed = Seed::from_env_or(1).unwrap();
    let _replay = Replay::new(seed, "cargo test -p nic-rtl --test dma_memory");
    for k in 0..3 {
        let seed = seed.named(&format!("round {k}"));
        check(&model, seed, Axi4MemoryConfig { faults: faults(), ..Axi4MemoryConfig::stress(seed) });
    }
    check(&model, seed, Axi4MemoryConfig { faults: faults(), seed, ..Axi4MemoryConfig::default() });
}
