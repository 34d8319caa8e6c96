//! The bus functional models against plain Verilog.

mod common;

use cocotb_rs::{
    axi::{Axi4Manager, Axi4Memory, Axi4MemoryConfig, Axi4Ports, AxiLiteError, AxiLiteManager, AxiLitePorts},
    axi::{Fault, Response, SparseMemory},
    axis::{AxisMonitor, AxisPorts, AxisSink, AxisSource},
    Clock, Pace, Replay, Seed, Sim, SimError,
};
use std::{cell::RefCell, rc::Rc};

fn seed(name: &str) -> (Seed, Replay) {
    let seed = Seed::from_env_or(7).unwrap();
    (seed.named(name), Replay::new(seed, format!("cargo test -p cocotb-rs --test buses {name}")))
}

struct Streams {
    source: AxisSource,
    sink: AxisSink,
    monitor: AxisMonitor,
}

fn streams(sim: &Sim, clk: Clock, source_pace: Pace, sink_pace: Pace) -> Streams {
    let (input, output) = (AxisPorts::find(sim, "s_axis").unwrap(), AxisPorts::find(sim, "m_axis").unwrap());
    Streams {
        source: AxisSource::attach(sim, clk, input.clone(), source_pace).unwrap(),
        sink: AxisSink::attach(sim, clk, output, sink_pace).unwrap(),
        monitor: AxisMonitor::attach(sim, clk, input),
    }
}

#[test]
fn frames_of_every_length_cross_a_register_slice_under_gaps_and_back_pressure() {
    let (seed, _replay) = seed("frames_of_every_length_cross_a_register_slice_under_gaps_and_back_pressure");
    for (percent_in, percent_out) in [(100, 100), (100, 30), (30, 100), (60, 60)] {
        let (mut sim, clk) = common::sim();
        let pace = |percent, name| Pace::random(percent, seed.named(name));
        let bench = streams(&sim, clk, pace(percent_in, "source"), pace(percent_out, "sink"));
        let mut rng = seed.named("frames").rng();
        let frames: Vec<Vec<u8>> = (1..=200).map(|len_bytes| rng.bytes(len_bytes)).collect();
        frames.iter().zip(0..).for_each(|(frame, index)| bench.source.send_with(frame.clone(), index, 0));
        for (frame, index) in frames.iter().zip(0..) {
            let received = sim.block_on(bench.sink.recv()).unwrap();
            assert_eq!((&received.bytes, received.user_first, received.user_last), (frame, index, index));
            assert_eq!(received.beats, frame.len().div_ceil(64) as u64);
            assert_eq!(bench.monitor.try_recv().unwrap().bytes, *frame);
        }
        let stats = bench.sink.stats();
        assert_eq!((stats.frames, stats.bytes, bench.source.sent_frames()), (200, 20_100, 200));
        if percent_in + percent_out == 200 {
            // One beat a cycle once the first has come through.
            assert_eq!((stats.stalled_cycles, stats.beats), (0, bench.monitor.stats().beats));
            assert!(stats.idle_cycles <= 3, "{stats:?}");
        }
    }
}

#[test]
fn a_frame_waits_for_its_time() {
    let (mut sim, clk) = common::sim();
    let bench = streams(&sim, clk, Pace::always(), Pace::always());
    bench.source.send_with([1], 0, 400_000);
    let received = sim.block_on(bench.sink.recv()).unwrap();
    assert_eq!((received.first_ps, received.bytes), (410_000, vec![1]));
}

#[test]
fn a_payload_that_changes_while_it_waits_is_a_violation() {
    let (mut sim, clk) = common::sim();
    let bench = streams(&sim, clk, Pace::always(), Pace::never());
    let disturb = sim.port("disturb").unwrap();
    bench.source.send([1; 200]);
    sim.run_cycles(clk, 10).unwrap();
    sim.set(disturb, 1);
    let error = sim.run_cycles(clk, 2).unwrap_err();
    assert!(
        matches!(&error, SimError::Violation { message, .. } if message == "m_axis: the payload changed between valid and ready"),
        "{error}"
    );
}

fn registers(sim: &Sim, clk: Clock, pace: Pace) -> AxiLiteManager {
    AxiLiteManager::attach(sim, clk, AxiLitePorts::find(sim, "s_axil").unwrap(), pace)
}

#[test]
fn registers_keep_what_is_written_whatever_the_pace() {
    let (seed, _replay) = seed("registers_keep_what_is_written_whatever_the_pace");
    for percent in [100, 40] {
        let (mut sim, clk) = common::sim();
        let registers = registers(&sim, clk, Pace::random(percent, seed));
        let values = sim.block_on(async {
            for index in 0..4 {
                registers.write(index * 4, 0x1111_0000 + index).await?;
            }
            let mut values = Vec::new();
            for index in (0..4).rev() {
                values.push(registers.read(index * 4).await?);
            }
            Ok::<_, AxiLiteError>(values)
        });
        assert_eq!(values.unwrap(), Ok(vec![0x1111_0003, 0x1111_0002, 0x1111_0001, 0x1111_0000]));
    }
}

#[test]
fn a_refused_and_an_unanswered_access_are_told_apart() {
    let (mut sim, clk) = common::sim();
    let registers = registers(&sim, clk, Pace::always());
    registers.set_timeout_cycles(50);
    let refused = AxiLiteError::Refused { addr: 0x40, response: Response::DecodeError };
    assert_eq!(sim.block_on(registers.read(0x40)).unwrap(), Err(refused));
    assert_eq!(sim.block_on(registers.write(0x40, 1)).unwrap(), Err(refused));
    let unanswered = AxiLiteError::NoAnswer { addr: 0x800, cycles: 50 };
    assert_eq!(sim.block_on(registers.read(0x800)).unwrap(), Err(unanswered));
}

#[test]
fn synchronous_code_starts_an_access_and_looks_for_its_result_between_steps() {
    let (mut sim, clk) = common::sim();
    let registers = registers(&sim, clk, Pace::always());
    let written = registers.write(4, 99);
    let read = registers.read(4);
    let mut steps = 0;
    let value = loop {
        if let Some(value) = read.try_take() {
            break value;
        }
        sim.step().unwrap();
        steps += 1;
        assert!(steps < 30);
    };
    assert_eq!((written.try_take(), value), (Some(Ok(())), Ok(99)));
}

struct Bus {
    manager: Axi4Manager,
    memory: Axi4Memory,
    content: Rc<RefCell<SparseMemory>>,
}

fn bus(sim: &Sim, clk: Clock, percent: u32, config: Axi4MemoryConfig) -> Bus {
    let content = Rc::new(RefCell::new(SparseMemory::new()));
    let (near, far) = (Axi4Ports::find(sim, "s_axi").unwrap(), Axi4Ports::find(sim, "m_axi").unwrap());
    let seed = config.seed.named("manager");
    Bus {
        manager: Axi4Manager::attach(sim, clk, near, percent, seed).unwrap(),
        memory: Axi4Memory::attach(sim, clk, far, config, content.clone()).unwrap(),
        content,
    }
}

#[test]
fn bursts_of_any_place_and_length_reach_memory_and_come_back() {
    let (seed, _replay) = seed("bursts_of_any_place_and_length_reach_memory_and_come_back");
    for config in [Axi4MemoryConfig { seed, ..Default::default() }, Axi4MemoryConfig::stress(seed)] {
        let (mut sim, clk) = common::sim();
        let bus = bus(&sim, clk, 80, config);
        let mut rng = seed.named("bursts").rng();
        // One page per burst, so that the order of answers does not matter.
        let bursts: Vec<(u64, Vec<u8>)> = (0..200)
            .map(|page| {
                let len_bytes = rng.within(&(1..=1000));
                let offset = rng.below(4096 - len_bytes + 1);
                ((page << 12) + offset, rng.bytes(len_bytes as usize))
            })
            .collect();
        let writes: Vec<_> =
            bursts.iter().map(|(addr, bytes)| bus.manager.write(addr >> 12 & 15, *addr, bytes.clone())).collect();
        let responses = sim.block_on(cocotb_rs::combine(writes)).unwrap();
        assert!(responses.iter().all(|response| *response == Response::Okay));
        for (addr, bytes) in &bursts {
            let around = bus.content.borrow().bytes(addr - 1, bytes.len() + 2);
            let mut expected = bytes.clone();
            expected.insert(0, 0);
            expected.push(0);
            assert_eq!(around, expected, "only the bytes written change, at {addr:#x}");
        }
        let reads: Vec<_> =
            bursts.iter().map(|(addr, bytes)| bus.manager.read(addr >> 12 & 15, *addr, bytes.len())).collect();
        let results = sim.block_on(cocotb_rs::combine(reads)).unwrap();
        for ((addr, bytes), result) in bursts.iter().zip(results) {
            assert_eq!((&result.bytes, result.response), (bytes, Response::Okay), "read of {addr:#x}");
        }
        let stats = bus.memory.stats();
        assert_eq!((stats.reads, stats.writes, stats.reads_outstanding, stats.writes_outstanding), (200, 200, 0, 0));
    }
}

#[test]
fn reads_of_different_ids_overtake_each_other_and_reads_of_one_id_do_not() {
    let (seed, _replay) = seed("reads_of_different_ids_overtake_each_other_and_reads_of_one_id_do_not");
    let order_of = |ids: u64| {
        let (mut sim, clk) = common::sim();
        let bus = bus(&sim, clk, 100, Axi4MemoryConfig::stress(seed));
        let order = cocotb_rs::Queue::new();
        for index in 0..32_u64 {
            let (read, order) = (bus.manager.read(index % ids, index * 64, 64), order.clone());
            sim.spawn(async move {
                read.await;
                order.push(index);
            });
        }
        let last = order.clone();
        sim.block_on(async move {
            let mut seen = Vec::new();
            while seen.len() < 32 {
                seen.push(last.pop().await);
            }
            (seen, bus.memory.stats().reads_overtaking)
        })
        .unwrap()
    };
    let (one_id, overtaking) = order_of(1);
    assert_eq!((one_id, overtaking), ((0..32).collect(), 0));
    let (eight_ids, overtaking) = order_of(8);
    assert!(overtaking > 5 && !eight_ids.is_sorted(), "{eight_ids:?}");
    for id in 0..8 {
        assert!(eight_ids.iter().filter(|index| *index % 8 == id).is_sorted(), "id {id} in {eight_ids:?}");
    }
}

#[test]
fn faulty_addresses_answer_with_their_error_and_stay_unwritten() {
    let (mut sim, clk) = common::sim();
    let fault = Fault { addresses: 0x1080..0x10c0, response: Response::SubordinateError };
    let bus = bus(&sim, clk, 100, Axi4MemoryConfig { faults: vec![fault], ..Default::default() });
    let response = |sim: &mut Sim, addr: u64| sim.block_on(bus.manager.write(0, addr, [5; 128])).unwrap();
    assert_eq!(response(&mut sim, 0x1000), Response::Okay);
    assert_eq!(response(&mut sim, 0x1040), Response::SubordinateError);
    assert_eq!(bus.content.borrow().bytes(0x1080, 64), [0; 64]);
    let read = sim.block_on(bus.manager.read(0, 0x1000, 256)).unwrap();
    assert_eq!(read.response, Response::SubordinateError);
    assert_eq!(bus.memory.stats().read_errors, 1, "only the beat that touches the range");
}

#[test]
fn a_manager_that_breaks_the_rules_of_bursts_is_named() {
    let cases = [
        // address, beats less one, burst kind
        (0x1fc0, 1, 1, "crosses a 4 KiB boundary"),
        (0x1000, 3, 2, "not incrementing"),
    ];
    for (addr, len, burst, expected) in cases {
        let (mut sim, clk) = common::sim();
        let far = Axi4Ports::find(&sim, "m_axi").unwrap();
        let content = Rc::new(RefCell::new(SparseMemory::new()));
        Axi4Memory::attach(&sim, clk, far, Axi4MemoryConfig::default(), content).unwrap();
        let near = Axi4Ports::find(&sim, "s_axi").unwrap();
        let fields = [(near.ar.len, len), (near.ar.size, 6), (near.ar.burst, burst)];
        sim.set(near.ar.addr, addr);
        sim.set(near.ar.valid, 1);
        fields.into_iter().for_each(|(port, value)| sim.set(port.unwrap(), value));
        let text = sim.run_cycles(clk, 5).unwrap_err().to_string();
        assert!(text.contains("m_axi AR") && text.contains(expected), "{text}");
    }
}
