//! The register space over AXI4-Lite on Verilator, held to the tables register by register.

use cocotb_rs::{
    axi::{AxiLiteError, AxiLiteManager, AxiLitePorts, Response},
    ModelBuilder, Optimization, Pace, Period, PowerOn, Replay, Rng, Seed, Sim,
};
use nic_rtl::{
    host::{stats, CountLists, Registers},
    params::NicParams,
};
use nic_spec::{
    csr::{self, stats::Counter},
    register::{Access, Register},
};
use rtl_graph::Lib;

const TAKERS: usize = 2;

struct Bench {
    sim: Sim,
    regs: AxiLiteManager,
    rng: Rng,
    bad: u64,
}

impl Bench {
    fn new(seed: Seed) -> Self {
        let lists = CountLists(vec![vec![Counter::RxFrames, Counter::RxBytes]]);
        let def = Registers::def(&Lib::new(), &NicParams::default(), TAKERS, &lists);
        let model = ModelBuilder::new(&def.name)
            .verilog(def.verilog())
            .verilator_argument("-Wall")
            .verilator_argument("-Werror-WIDTH")
            .optimization(Optimization::BuildTime)
            .build()
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(!model.verilator_log().contains("%Warning"), "{}", model.verilator_log());
        let mut sim = Sim::new(&model, PowerOn::Random { seed: seed.named("power-on").value() }).unwrap();
        let clk = sim.clock("clk", Period::ps(4000)).unwrap();
        let rst = sim.port("rst").unwrap();
        let ports = AxiLitePorts::find(&sim, "axil").unwrap();
        let regs = AxiLiteManager::attach(&sim, clk, ports, Pace::random(70, seed.named("pace")));
        sim.reset(rst, 4).unwrap();
        for queue in ["sq", "rq", "cq"] {
            sim.set(sim.port(&format!("{queue}_ready")).unwrap(), 1);
        }
        Bench { sim, regs, rng: seed.named("stimuli").rng(), bad: 0 }
    }

    fn read(&mut self, addr: u32) -> Result<u32, AxiLiteError> {
        let reply = self.sim.block_on(self.regs.read(addr.into())).unwrap();
        self.bad += u64::from(reply.is_err());
        reply.map(|x| x as u32)
    }

    fn write(&mut self, addr: u32, value: u32) -> Result<(), AxiLiteError> {
        let reply = self.sim.block_on(self.regs.write(addr.into(), value.into())).unwrap();
        self.bad += u64::from(reply.is_err());
        reply.map(|_| ())
    }

    fn set(&mut self, port: &str, value: u64) {
        let port = self.sim.port(port).unwrap();
        self.sim.set(port, value);
    }

    fn get(&self, port: &str) -> u64 {
        self.sim.get(self.sim.port(port).unwrap())
    }

    fn run(&mut self, cycles: u64) {
        (0..cycles).for_each(|_| self.sim.step().unwrap());
    }

    fn counter(&mut self, counter: Counter) -> u64 {
        self.run(stats::settle_cycles());
        let low = self.read(counter.address()).unwrap();
        u64::from(self.read(counter.address() + 4).unwrap()) << 32 | u64::from(low)
    }
}

fn seed() -> Seed {
    Seed::from_env_or(1).unwrap()
}

fn held(r: &Register) -> u32 {
    if r.fields.is_empty() {
        u32::MAX
    } else {
        r.fields.iter().map(|f| f.mask()).sum()
    }
}

#[test]
fn the_map_describes_itself_and_every_register_keeps_its_word() {
    let _replay = Replay::new(seed(), "cargo test -p nic-rtl --test host_registers");
    let mut bench = Bench::new(seed());
    let mut at = 0;
    for block in csr::BLOCKS {
        assert_eq!((bench.read(at), bench.read(at + 4)), (Ok(block.type_id), Ok(block.version)), "{}", block.name);
        for r in block.registers.iter().filter(|r| r.access == Access::Rw) {
            for k in 0..r.count {
                assert_eq!(bench.read(r.at(k)), Ok(r.reset & held(r)), "{} after reset", r.name);
                let value = bench.rng.next_u64() as u32;
                bench.write(r.at(k), value).unwrap();
                assert_eq!(bench.read(r.at(k)), Ok(value & held(r)), "{}", r.name);
            }
        }
        at = bench.read(at + 8).unwrap();
    }
    assert_eq!(at, 0, "the chain ends");
    assert_eq!(bench.bad, 0);
}

#[test]
fn an_address_that_holds_nothing_answers_with_an_error_and_is_counted() {
    let mut bench = Bench::new(seed());
    let holds = |addr: u32| {
        let registers = csr::BLOCKS.iter().flat_map(|b| b.registers);
        let is_doorbell = addr >= csr::DOORBELL_BASE && [0, 8, 16].contains(&(addr % csr::DOORBELL_PAGE_BYTES));
        is_doorbell || registers.into_iter().any(|r| (r.address..r.address + 4 * r.count).contains(&addr))
    };
    for _ in 0..150 {
        let any = bench.rng.next_u64() as u32;
        let addr = [any % 0x8000, any % csr::BAR_BYTES, csr::DOORBELL_BASE + any % 0x40][(any >> 8) as usize % 3] & !3;
        let (read, write) = (bench.read(addr), bench.write(addr, 0));
        assert_eq!((read.is_ok(), write.is_ok()), (holds(addr), holds(addr)), "{addr:#x}: {read:?} {write:?}");
        assert!(
            read.is_ok()
                || read == Err(AxiLiteError::Refused { addr: addr.into(), response: Response::SubordinateError })
        );
    }
    let bad = bench.bad;
    assert!(bad > 50);
    assert_eq!(bench.counter(Counter::CsrBadAddress), bad);
}

#[test]
fn events_doorbells_rows_and_vectors_pass() {
    let mut bench = Bench::new(seed());
    // Events.
    bench.set("count_0_code", Counter::RxBytes.code().into());
    bench.set("count_0_amount", 0xffff);
    bench.set("count_0_valid", 1);
    bench.run(1000);
    bench.set("count_0_valid", 0);
    bench.run(1);
    assert_eq!(bench.counter(Counter::RxBytes), 1000 * 0xffff);
    // A doorbell, and one of a queue that is not there.
    bench.write(csr::sq_doorbell(4000), 1).unwrap();
    bench.set("cq_ready", 0);
    bench.write(csr::cq_doorbell(3), 0x8000_1234).unwrap();
    bench.run(2);
    let shown = ["valid", "kind", "number", "index", "arm"].map(|f| bench.get(&format!("cq_{f}")));
    assert_eq!((shown, bench.get("sq_valid")), ([1, 2, 3, 0x1234, 1], 0));
    assert_eq!(bench.counter(Counter::DoorbellBad), 1);
    // A row, to one taker after the other.
    bench.write(csr::ctx::TABLE.address, 5).unwrap();
    bench.write(csr::ctx::INDEX.address, 63).unwrap();
    (0..16).for_each(|k| bench.write(csr::ctx::DATA.at(k), 100 + k).unwrap());
    bench.write(csr::ctx::COMMAND.address, 1).unwrap();
    for k in 0..TAKERS {
        assert_eq!(bench.read(csr::ctx::STATUS.address), Ok(1));
        let shown = ["valid", "table", "index"].map(|f| bench.get(&format!("ctx_{k}_{f}")));
        assert_eq!(shown, [1, 5, 63]);
        let data = bench.sim.get_words(bench.sim.port(&format!("ctx_{k}_data")).unwrap());
        assert_eq!(data, (0..8).map(|i| (101 + 2 * i) << 32 | (100 + 2 * i)).collect::<Vec<u64>>());
        bench.set(&format!("ctx_{k}_ready"), 1);
        bench.run(1);
        bench.set(&format!("ctx_{k}_ready"), 0);
        bench.run(1);
    }
    assert_eq!(bench.read(csr::ctx::STATUS.address), Ok(0));
    // A vector behind its mask, then without.
    bench.write(csr::irq::MASK.at(1), 1 << 8).unwrap();
    bench.set("irq_vector", 40);
    bench.set("irq_valid", 1);
    bench.run(1);
    bench.set("irq_valid", 0);
    bench.run(20);
    assert_eq!((bench.get("msix_valid"), bench.read(csr::irq::PENDING.at(1))), (0, Ok(1 << 8)));
    bench.write(csr::irq::MASK.at(1), 0).unwrap();
    bench.run(20);
    assert_eq!((bench.get("msix_valid"), bench.get("msix_vector")), (1, 40));
    assert_eq!(bench.read(csr::irq::PENDING.at(1)), Ok(0));
    // Time goes on.
    let before = bench.read(csr::id::TIME.address).unwrap();
    bench.run(100);
    assert!(bench.read(csr::id::TIME.address).unwrap() >= before + 100);
}
