//! The whole card against itself on Verilator: what leaves it comes back, and one connection writes to another.
//!
//! Frames may be lost, doubled and put out of order on the way; memory may stall and reorder. All is done over registers
//! and host memory, as software would.

use cocotb_rs::{
    axi::{Axi4Memory, Axi4MemoryConfig, Axi4Ports, AxiLiteManager, AxiLitePorts, Fault, Response, SparseMemory},
    axis::{AxisPorts, AxisSink, AxisSource},
    Model, ModelBuilder, Optimization, Pace, Period, Port, PowerOn, Replay, Rng, Seed, Sim,
};
use nic_rtl::{
    params::NicParams,
    top::{verilog, TOP},
};
use nic_spec::{
    csr::{self, stats::Counter},
    desc::*,
    num::*,
};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

const MAC: u64 = 0x0200_0000_0001;
const PATHS: u32 = 4;
const SQ_LOG2: u32 = 4;
const CQ_LOG2: u32 = 5;
const SQ_BASE: u64 = 0x10_0000;
const CQ_BASE: u64 = 0x20_0000;
/// Bus address of the memory that connection 0 sends from, and of that which connection 1 opens.
const SOURCE: u64 = 0x100_0000;
const TARGET: u64 = 0x4000_0000_0000;
/// Where the regions begin in the space of WQEs and packets.
const SOURCE_VA: u64 = 0x7000_0000_0000;
const TARGET_VA: u64 = 0x1234_5000;
const REGION_BYTES: u64 = 1 << 20;
const SOURCE_KEY: u32 = 0x0311;
const TARGET_KEY: u32 = 0x0522;

fn params() -> NicParams {
    NicParams { conns: 4, paths: 4, cqs: 4, mrs: 8, ..NicParams::default() }
}

fn model() -> Model {
    ModelBuilder::new(TOP)
        .verilog(verilog(&params()))
        .optimization(Optimization::BuildTime)
        .build()
        .unwrap_or_else(|e| panic!("{e}"))
}

/// What happens to frames on the way back. Percent.
#[derive(Clone, Copy, Default)]
struct Way {
    loss: u32,
    duplicate: u32,
    late: u32,
}

struct Bench {
    sim: Sim,
    regs: AxiLiteManager,
    tx: AxisSink,
    rx: AxisSource,
    memory: Rc<RefCell<SparseMemory>>,
    rng: Rng,
    way: Way,
    /// Frames held back, and for how many cycles.
    held: VecDeque<(u64, Vec<u8>)>,
    rst: Port,
    cycle: u64,
    lost: u64,
    posted: u16,
    consumer: [u16; 2],
    vectors: Vec<u64>,
}

impl Bench {
    fn new(model: &Model, seed: Seed, config: Axi4MemoryConfig, way: Way) -> Self {
        Self::with_pmtu(model, seed, config, way, 10)
    }

    fn with_pmtu(model: &Model, seed: Seed, config: Axi4MemoryConfig, way: Way, pmtu_log2: u8) -> Self {
        let mut sim = Sim::new(model, PowerOn::Random { seed: seed.named("power-on").value() }).unwrap();
        let clk = sim.clock("clk", Period::ps(4000)).unwrap();
        let rst = sim.port("rst").unwrap();
        let tx = AxisSink::attach(&sim, clk, AxisPorts::find(&sim, "m_axis_tx").unwrap(), Pace::always()).unwrap();
        let rx = AxisSource::attach(&sim, clk, AxisPorts::find(&sim, "s_axis_rx").unwrap(), Pace::always()).unwrap();
        let regs = AxiLiteManager::attach(&sim, clk, AxiLitePorts::find(&sim, "s_axil").unwrap(), Pace::always());
        let memory = Rc::new(RefCell::new(SparseMemory::new()));
        Axi4Memory::attach(&sim, clk, Axi4Ports::find(&sim, "m_axi").unwrap(), config, memory.clone()).unwrap();
        sim.reset(rst, 8).unwrap();
        for pin in ["m_msix_ready", "link_up"] {
            sim.set(sim.port(pin).unwrap(), 1);
        }
        let mut bench = Bench {
            sim,
            regs,
            tx,
            rx,
            memory,
            rng: seed.named("way").rng(),
            way,
            held: VecDeque::new(),
            rst,
            cycle: 0,
            lost: 0,
            posted: 0,
            consumer: [0; 2],
            vectors: vec![],
        };
        bench.set_up(pmtu_log2);
        bench
    }

    fn step(&mut self) {
        self.sim.step().unwrap_or_else(|e| panic!("cycle {}: {e}", self.cycle));
        self.cycle += 1;
        while let Some(frame) = self.tx.try_recv() {
            if self.rng.percent(self.way.loss) {
                self.lost += 1;
                continue;
            }
            let copies = 1 + u32::from(self.rng.percent(self.way.duplicate));
            for _ in 0..copies {
                let wait = if self.rng.percent(self.way.late) { 200 + self.rng.below(600) } else { 50 };
                self.held.push_back((self.cycle + wait, frame.bytes.clone()));
            }
        }
        let cycle = self.cycle;
        let due: Vec<usize> = (0..self.held.len()).filter(|k| self.held[*k].0 <= cycle).collect();
        for k in due.into_iter().rev() {
            let (_, frame) = self.held.remove(k).unwrap();
            self.rx.send(frame);
        }
        let vector = |name: &str| self.sim.get(self.sim.port(&format!("m_msix_{name}")).unwrap());
        if vector("valid") == 1 {
            let v = vector("vector");
            self.vectors.push(v);
        }
    }

    fn run(&mut self, cycles: u64) {
        (0..cycles).for_each(|_| self.step());
    }

    fn write(&mut self, addr: u32, value: u32) {
        let reply = self.regs.write(addr.into(), value.into());
        while !reply.is_ready() {
            self.step();
        }
        reply.try_take().unwrap().unwrap();
    }

    fn read(&mut self, addr: u32) -> u32 {
        let reply = self.regs.read(addr.into());
        while !reply.is_ready() {
            self.step();
        }
        reply.try_take().unwrap().unwrap() as u32
    }

    fn count(&mut self, counter: Counter) -> u64 {
        let low = self.read(counter.address());
        u64::from(self.read(counter.address() + 4)) << 32 | u64::from(low)
    }

    fn row(&mut self, table: Table, index: u32, row: &[u8; 64]) {
        self.write(csr::ctx::TABLE.address, table as u32);
        self.write(csr::ctx::INDEX.address, index);
        for (k, word) in row.chunks(4).enumerate() {
            self.write(csr::ctx::DATA.at(k as u32), u32::from_le_bytes(word.try_into().unwrap()));
        }
        self.write(csr::ctx::COMMAND.address, 1);
        while self.read(csr::ctx::STATUS.address) & 1 == 1 {}
        assert_eq!(self.read(csr::ctx::STATUS.address), 0);
    }

    fn set_up(&mut self, pmtu_log2: u8) {
        assert_eq!(self.read(csr::id::MAGIC.address), csr::id::MAGIC.reset);
        assert_eq!(self.read(csr::port::STATUS.address), 1);
        self.write(csr::port::MAC_LO.address, MAC as u32);
        self.write(csr::port::MAC_HI.address, (MAC >> 32) as u32);
        self.write(csr::port::CONTROL.address, 1);
        // A timeout that a test can wait for.
        self.write(csr::transport::RTO_TICKS.address, 3000);
        for (index, key, access, va, iova) in [
            (3, SOURCE_KEY, 0, SOURCE_VA, SOURCE),
            (5, TARGET_KEY, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE, TARGET_VA, TARGET),
        ] {
            let mut row = MrRow::zeroed();
            row.set_valid(true).set_key(key as u8).set_access(access).set_pd(Pd::new(9)).set_va(va);
            row.set_len(REGION_BYTES).set_iova(iova);
            self.row(Table::Mr, index, &row.0);
        }
        for cq in 0..2u64 {
            let mut row = CqRow::zeroed();
            row.set_enabled(true).set_log2_size(CQ_LOG2 as u8).set_vector(20 + cq as u8);
            row.set_base_iova(CQ_BASE + 0x1000 * cq);
            self.row(Table::Cq, cq as u32, &row.0);
        }
        for conn in 0..2 {
            self.open(conn, pmtu_log2);
        }
        self.write(csr::rq_doorbell(1), 1000);
    }

    /// Opens connection `conn`, whose peer is the other one.
    fn open(&mut self, conn: u32, pmtu_log2: u8) {
        let mut row = AhRow::zeroed();
        row.set_dst_mac(MAC).set_src_mac(MAC).set_hop_limit(64).set_dst_ip(0x0a00_0001).set_src_ip(0x0a00_0001);
        self.row(Table::Ah, conn, &row.0);
        for path in 0..PATHS {
            let index = conn * params().paths + path;
            let (mut tx, mut rx) = (PathTxRow::zeroed(), PathRxRow::zeroed());
            let first = |conn: u32| Psn::new((0xff_fff0 + 100 * conn * path) & 0xff_ffff);
            tx.set_valid(true).set_sport(0xc000 + path as u16).set_epoch(Epoch::new(0)).set_init_pseq(first(conn));
            rx.set_valid(true).set_sport(0xd000 + path as u16).set_epoch(Epoch::new(0)).set_init_pseq(first(1 - conn));
            self.row(Table::PathRx, index, &rx.0);
            self.row(Table::PathTx, index, &tx.0);
        }
        let mut row = ConnRow::zeroed();
        row.set_valid(true).set_local_id(Qpn::new(0x100 + conn)).set_remote_id(Qpn::new(0x101 - conn));
        row.set_path_count(PATHS as u8).set_pd(Pd::new(9)).set_pmtu_log2(pmtu_log2).set_pkey(Pkey::new(0xffff));
        row.set_stream_id(StreamId::new(7)).set_init_msn(Msn::new(0xff_fffe)).set_init_rsn(Rsn::new(0xff_ffff));
        self.row(Table::Conn, conn, &row.0);
        let mut row = SqRow::zeroed();
        row.set_enabled(true).set_rq_enabled(true).set_log2_size(SQ_LOG2 as u8).set_rq_log2_size(10);
        row.set_cq(0).set_rq_cq(1).set_base_iova(SQ_BASE + 0x10000 * u64::from(conn));
        self.row(Table::Sq, conn, &row.0);
    }

    /// Posts a WQE on connection 0.
    fn post(&mut self, wqe: &Wqe<[u8; 64]>) {
        let slot = u64::from(self.posted) % (1 << SQ_LOG2);
        self.memory.borrow_mut().store(SQ_BASE + 64 * slot, &wqe.0);
        self.posted = self.posted.wrapping_add(1);
        let posted = self.posted;
        self.write(csr::sq_doorbell(0), posted.into());
    }

    /// The next CQE of a queue, when it is there.
    fn poll(&mut self, cq: usize) -> Option<Cqe<[u8; 32]>> {
        let n = self.consumer[cq];
        let mut entry = Cqe::zeroed();
        let slot = u64::from(n) % (1 << CQ_LOG2);
        self.memory.borrow().load(CQ_BASE + 0x1000 * cq as u64 + 32 * slot, &mut entry.0);
        if entry.phase() != (n >> CQ_LOG2 & 1 == 0) {
            return None;
        }
        self.consumer[cq] = n.wrapping_add(1);
        let told = self.consumer[cq];
        self.write(csr::cq_doorbell(cq as u32), told.into());
        Some(entry)
    }

    fn wait(&mut self, cq: usize) -> Cqe<[u8; 32]> {
        for _ in 0..400 {
            if let Some(entry) = self.poll(cq) {
                return entry;
            }
            self.run(250);
        }
        self.report();
        panic!("no completion in queue {cq}");
    }

    fn report(&mut self) {
        for info in csr::stats::COUNTERS {
            let n = self.count(info.counter);
            if n != 0 {
                println!("{:>8} {}", n, info.name);
            }
        }
        println!("cycle {}, {} frames lost", self.cycle, self.lost);
    }
}

fn wqe(opcode: WqeOpcode, from: u64, to: u64, len: u64) -> Wqe<[u8; 64]> {
    let mut w = Wqe::zeroed();
    w.set_opcode(opcode as u8).set_signaled(true).set_length(len as u32).set_lkey(Lkey::new(SOURCE_KEY));
    w.set_local_va(SOURCE_VA + from)
        .set_rkey(Rkey::new(TARGET_KEY))
        .set_remote_va(TARGET_VA + to)
        .set_imm(0x1000 + len as u32);
    w
}

/// Sends `messages` of random lengths and checks memory, completions and their order.
fn transfer(model: &Model, seed: Seed, config: Axi4MemoryConfig, way: Way, messages: u64) -> Bench {
    let mut bench = Bench::new(model, seed, config, way);
    let mut rng = seed.named("messages").rng();
    let mut image = vec![0; REGION_BYTES as usize];
    rng.fill(&mut image);
    bench.memory.borrow_mut().store(SOURCE, &image);
    let (mut at, mut in_flight, mut sent, mut expected) = (0u64, VecDeque::new(), 0, vec![]);
    let mut imms = VecDeque::new();
    let mut next_wqe_index = 0u16;
    while sent < messages || !in_flight.is_empty() {
        if sent < messages && in_flight.len() < 1 << SQ_LOG2 {
            let limit = [1, 64, 1024, 5000, 20_000][rng.below(5) as usize];
            let len = if rng.percent(10) { 0 } else { 1 + rng.below(limit) };
            let opcode = if rng.percent(40) { WqeOpcode::WriteImm } else { WqeOpcode::Write };
            at += rng.below(70);
            let from = rng.below(REGION_BYTES - len);
            bench.post(&wqe(opcode, from, at, len));
            if opcode == WqeOpcode::WriteImm {
                imms.push_back(len);
            }
            in_flight.push_back((opcode, from, at, len));
            expected.push((at, from, len));
            at += len;
            sent += 1;
            continue;
        }
        let entry = bench.wait(0);
        let (opcode, from, to, len) = in_flight.pop_front().unwrap();
        assert_eq!((entry.status(), entry.opcode(), entry.qpn()), (0, opcode as u8, Qpn::new(0x100)));
        assert_eq!((entry.wqe_index(), u64::from(entry.byte_len())), (next_wqe_index, len));
        next_wqe_index = next_wqe_index.wrapping_add(1);
        // What is acknowledged is in memory, or on its way there; after the last one it is checked byte for byte.
        let _ = (from, to);
    }
    while let Some(len) = imms.pop_front() {
        let entry = bench.wait(1);
        assert_eq!((entry.status(), entry.opcode(), entry.qpn()), (0, CqeOpcode::RecvImm as u8, Qpn::new(0x101)));
        assert_eq!((entry.imm_valid(), entry.imm(), u64::from(entry.byte_len())), (true, 0x1000 + len as u32, len));
    }
    bench.run(3000);
    let mut want = vec![0u8; at as usize + 64];
    for (to, from, len) in expected {
        want[to as usize..(to + len) as usize].copy_from_slice(&image[from as usize..(from + len) as usize]);
    }
    let mut got = vec![0u8; want.len()];
    bench.memory.borrow().load(TARGET, &mut got);
    if let Some(k) = (0..want.len()).find(|k| want[*k] != got[*k]) {
        bench.report();
        panic!("byte {k:#x} of the target is {:#x}, not {:#x}", got[k], want[k]);
    }
    for cq in 0..2 {
        assert!(bench.poll(cq).is_none(), "one completion too many in queue {cq}");
    }
    bench
}

#[test]
fn messages_arrive_byte_for_byte_and_complete_in_order() {
    let model = model();
    let seed = Seed::from_env_or(1).unwrap();
    let _replay = Replay::new(seed, "cargo test -p nic-rtl --test top_loopback messages_arrive");
    let mut bench = transfer(&model, seed, Axi4MemoryConfig::default(), Way::default(), 40);
    assert_eq!(bench.count(Counter::TxMessages), 40);
    assert_eq!(bench.count(Counter::TxRtxGap) + bench.count(Counter::TxRtxRto), 0, "nothing was lost");
}

#[test]
fn loss_duplication_and_disorder_change_nothing_but_time() {
    let model = model();
    let seed = Seed::from_env_or(2).unwrap();
    let _replay = Replay::new(seed, "cargo test -p nic-rtl --test top_loopback loss_duplication");
    let way = Way { loss: 3, duplicate: 3, late: 3 };
    let mut bench = transfer(&model, seed, Axi4MemoryConfig::stress(seed), way, 40);
    assert!(bench.lost > 0 && bench.count(Counter::RxDuplicate) > 0);
    assert_eq!(bench.count(Counter::ConnErrors), 0);
}

#[test]
fn a_bad_wqe_fails_its_connection_and_the_next_life_works() {
    let model = model();
    let seed = Seed::from_env_or(3).unwrap();
    let mut bench = Bench::new(&model, seed, Axi4MemoryConfig::default(), Way::default());
    let mut bad = wqe(WqeOpcode::Write, 0, 0, 64);
    bad.set_lkey(Lkey::new(0x0312));
    bench.post(&wqe(WqeOpcode::Write, 0, 0, 64));
    bench.post(&bad);
    bench.post(&wqe(WqeOpcode::Write, 0, 0, 64));
    let statuses: Vec<u8> = (0..3).map(|_| bench.wait(0).status()).collect();
    assert_eq!(statuses, [Status::Ok, Status::LocProt, Status::WrFlush].map(|s| s as u8));
    assert_eq!(bench.read(csr::conn::ERROR.at(0)), 1);
    assert_eq!(bench.read(csr::conn::ERROR_STATUS.address), Status::LocProt as u32);
    // Both ends begin anew.
    bench.posted = 0;
    for conn in 0..2 {
        bench.row(Table::Conn, conn, &[0; 64]);
    }
    for conn in 0..2 {
        bench.open(conn, 10);
    }
    assert_eq!(bench.read(csr::conn::ERROR.at(0)), 0);
    bench.memory.borrow_mut().store(SOURCE, b"anew");
    bench.post(&wqe(WqeOpcode::Write, 0, 0x100, 4));
    assert_eq!(bench.wait(0).status(), 0);
    let mut got = [0; 4];
    bench.memory.borrow().load(TARGET + 0x100, &mut got);
    assert_eq!(&got, b"anew");
}

#[test]
fn an_armed_queue_raises_its_vector_once() {
    let model = model();
    let seed = Seed::from_env_or(4).unwrap();
    let mut bench = Bench::new(&model, seed, Axi4MemoryConfig::default(), Way::default());
    bench.write(csr::cq_doorbell(0), 1 << 31);
    for k in 0..3 {
        bench.post(&wqe(WqeOpcode::Write, 0, 64 * k, 10));
    }
    (0..3).for_each(|_| assert_eq!(bench.wait(0).status(), 0));
    assert_eq!(bench.vectors, [20]);
    // Nothing new: the queue is armed, and waits.
    bench.write(csr::cq_doorbell(0), 1 << 31 | 3);
    bench.run(500);
    assert_eq!(bench.vectors, [20]);
    bench.post(&wqe(WqeOpcode::Write, 0, 0, 10));
    bench.run(2000);
    assert_eq!(bench.vectors, [20, 20]);
    assert_eq!(bench.count(Counter::MsixSent), 2);
}

#[test]
fn the_transmit_stream_is_busy_while_a_mebibyte_goes() {
    let model = model();
    let seed = Seed::from_env_or(5).unwrap();
    let config = Axi4MemoryConfig {
        read_latency_cycles: 100..=150,
        write_latency_cycles: 60..=90,
        is_out_of_order: true,
        ..Axi4MemoryConfig::default()
    };
    let mut bench = Bench::with_pmtu(&model, seed, config, Way::default(), 12);
    let before = bench.tx.stats();
    let start = bench.cycle;
    for k in 0..16u64 {
        bench.post(&wqe(WqeOpcode::Write, k << 16, k << 16, 1 << 16));
    }
    while bench.tx.stats().bytes - before.bytes < 1 << 20 {
        bench.step();
    }
    let cycles = bench.cycle - start - 200;
    let beats = bench.tx.stats().beats - before.beats;
    println!("{beats} beats in {cycles} cycles, {} %", 100 * beats / cycles);
    assert!(100 * beats >= 80 * cycles, "{beats} beats in {cycles} cycles");
    (0..16).for_each(|_| assert_eq!(bench.wait(0).status(), 0));
    assert_eq!(bench.count(Counter::TxRtxGap) + bench.count(Counter::TxRtxRto), 0, "nothing was lost");
}

/// A memory in which one page answers every access with an error.
fn faulty(page: u64) -> Axi4MemoryConfig {
    let fault = Fault { addresses: page..page + 4096, response: Response::SubordinateError };
    Axi4MemoryConfig { faults: vec![fault], ..Axi4MemoryConfig::default() }
}

#[test]
fn a_bus_error_while_reading_ends_the_message_with_its_status() {
    let model = model();
    let seed = Seed::from_env_or(6).unwrap();
    for page in [SOURCE + 0x2000, SQ_BASE] {
        let mut bench = Bench::new(&model, seed, faulty(page), Way::default());
        // A failure ends whatever its connection has under way, so the good message completes first.
        bench.post(&wqe(WqeOpcode::Write, 0x1000, 0, 3000));
        let mut statuses = vec![bench.wait(0).status()];
        bench.post(&wqe(WqeOpcode::Write, 0x1f00, 0x4000, 3000));
        bench.post(&wqe(WqeOpcode::Write, 0, 0, 10));
        statuses.extend((0..2).map(|_| bench.wait(0).status()));
        let first = if page == SQ_BASE { [Status::LocDma, Status::WrFlush] } else { [Status::Ok, Status::LocDma] };
        assert_eq!(statuses, [first[0], first[1], Status::WrFlush].map(|s| s as u8), "page {page:#x}");
        assert!(bench.count(Counter::DmaReadError) > 0);
        assert_eq!(bench.read(csr::conn::ERROR_STATUS.address), Status::LocDma as u32);
    }
}

#[test]
fn a_bus_error_while_placing_fails_the_receiver_and_the_card_runs_on() {
    let model = model();
    let seed = Seed::from_env_or(7).unwrap();
    let mut bench = Bench::new(&model, seed, faulty(TARGET + 0x3000), Way::default());
    bench.post(&wqe(WqeOpcode::WriteImm, 0, 0, 100));
    assert_eq!((bench.wait(0).status(), bench.wait(1).status()), (0, 0));
    bench.post(&wqe(WqeOpcode::WriteImm, 0, 0x2ff0, 100));
    bench.run(5000);
    assert!(bench.count(Counter::DmaWriteError) > 0);
    assert_eq!(bench.read(csr::conn::ERROR.at(0)) & 2, 2, "the receiving connection has failed");
    bench.write(csr::conn::ERROR_SELECT.address, 1);
    assert_eq!(bench.read(csr::conn::ERROR_STATUS.address), Status::LocDma as u32);
    // No message with bytes missing has told the application that it is there.
    while let Some(entry) = bench.poll(1) {
        assert_ne!(entry.status(), Status::Ok as u8);
    }
    // Registers answer, and connections opened anew work.
    bench.posted = 0;
    for conn in 0..2 {
        bench.row(Table::Conn, conn, &[0; 64]);
    }
    while bench.poll(0).is_some() {}
    for conn in 0..2 {
        bench.open(conn, 10);
    }
    bench.post(&wqe(WqeOpcode::Write, 0, 0x100, 4));
    assert_eq!(bench.wait(0).status(), 0);
}

#[test]
fn a_completion_entry_that_cannot_be_written_is_counted_and_blocks_nothing() {
    let model = model();
    let seed = Seed::from_env_or(8).unwrap();
    let mut bench = Bench::new(&model, seed, faulty(CQ_BASE), Way::default());
    bench.post(&wqe(WqeOpcode::WriteImm, 0, 0, 100));
    assert_eq!(bench.wait(1).status(), 0, "the other queue works");
    bench.run(1000);
    assert_eq!((bench.count(Counter::DmaWriteError), bench.count(Counter::CqeWritten)), (1, 2));
}

#[test]
fn a_reset_at_any_moment_leaves_a_card_that_works() {
    let model = model();
    let seed = Seed::from_env_or(9).unwrap();
    let _replay = Replay::new(seed, "cargo test -p nic-rtl --test top_loopback a_reset_at_any_moment");
    let mut bench = Bench::new(&model, seed, Axi4MemoryConfig::stress(seed), Way::default());
    let mut rng = seed.named("moments").rng();
    for _ in 0..6 {
        for k in 0..8u64 {
            bench.post(&wqe(WqeOpcode::WriteImm, k << 12, k << 12, 3000));
        }
        bench.run(rng.below(3000));
        // All is reset together: the card, the buses and the wire.
        bench.sim.reset(bench.rst, 8).unwrap();
        bench.held.clear();
        bench.tx.drain();
        (bench.posted, bench.consumer) = (0, [0; 2]);
        bench.memory.borrow_mut().store(CQ_BASE, &[0; 0x2000]);
        bench.set_up(10);
        for info in [Counter::TxMessages, Counter::RxFrames, Counter::WqeFetched] {
            assert_eq!(bench.count(info), 0, "reset clears counters");
        }
        bench.memory.borrow_mut().store(SOURCE, b"after");
        bench.post(&wqe(WqeOpcode::WriteImm, 0, 0x8_0000, 5));
        assert_eq!((bench.wait(0).status(), bench.wait(1).status()), (0, 0));
        let mut got = [0; 5];
        bench.memory.borrow().load(TARGET + 0x8_0000, &mut got);
        assert_eq!(&got, b"after");
    }
}
