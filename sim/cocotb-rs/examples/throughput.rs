//! Prints how many thousand cycles a second the parts of a testbench reach, each on the same small 512-bit design.
//!
//! `cargo run -p cocotb-rs --example throughput [CYCLES]`

use cocotb_rs::{
    axi::{Axi4Manager, Axi4Memory, Axi4MemoryConfig, Axi4Ports, SparseMemory},
    axis::{AxisMonitor, AxisPorts, AxisSink, AxisSource},
    Clock, ModelBuilder, Pace, Period, PowerOn, Seed, Sim,
};
use std::{cell::RefCell, error::Error, rc::Rc, time::Instant};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let cycles = std::env::args().nth(1).map_or(Ok(300_000), |text| text.parse())?;
    measure("no testbench", cycles, |_, _| Ok(()))?;
    measure("1 task, every edge", cycles, |sim, clk| {
        add_tasks(sim, clk, 1);
        Ok(())
    })?;
    measure("5 tasks, every edge", cycles, |sim, clk| {
        add_tasks(sim, clk, 5);
        Ok(())
    })?;
    measure("stream source, sink, monitor", cycles, add_streams)?;
    measure("AXI4 manager and memory, both directions busy", cycles, add_memory)?;
    measure("all buses, out-of-order memory, random pace", cycles, |sim, clk| {
        add_streams(sim, clk)?;
        add_memory_with(sim, clk, Axi4MemoryConfig::stress(Seed::new(1)), 80)
    })
}

fn measure(what: &str, cycles: u64, set_up: impl Fn(&mut Sim, Clock) -> Outcome) -> Outcome {
    let model = ModelBuilder::new("kit").verilog(include_str!("../tests/verilog/kit.v")).build()?;
    let mut sim = Sim::new(&model, PowerOn::Zeros)?;
    let clk = sim.clock("clk", Period::ps(4000))?;
    set_up(&mut sim, clk)?;
    let rst = sim.port("rst")?;
    sim.reset(rst, 4)?;
    let start = Instant::now();
    sim.run_cycles(clk, cycles)?;
    let seconds = start.elapsed().as_secs_f64();
    let ns = seconds * 1e9 / cycles as f64;
    println!("{:6.0} kc/s  {ns:6.0} ns per cycle  {what}", cycles as f64 / seconds / 1e3);
    Ok(())
}

fn add_tasks(sim: &Sim, clk: Clock, count: u64) {
    let (step, tready) = (sim.find_port("step").unwrap(), sim.find_port("s_axis_tready").unwrap());
    for _ in 0..count {
        let handle = sim.handle();
        sim.spawn(async move {
            loop {
                handle.rising(clk).await;
                handle.set(step, handle.get(tready));
            }
        });
    }
}

fn add_streams(sim: &mut Sim, clk: Clock) -> Outcome {
    let (input, output) = (AxisPorts::find(sim, "s_axis")?, AxisPorts::find(sim, "m_axis")?);
    let source = AxisSource::attach(sim, clk, input.clone(), Pace::random(80, Seed::new(1)))?;
    let sink = AxisSink::attach(sim, clk, output, Pace::random(80, Seed::new(2)))?;
    let monitor = AxisMonitor::attach(sim, clk, input);
    let handle = sim.handle();
    sim.spawn(async move {
        loop {
            while source.pending() < 4 {
                source.send(vec![0x5a; 1500]);
            }
            let received = sink.recv().await;
            let seen = monitor.recv().await;
            if received.bytes != seen.bytes {
                handle.fail("the sink and the monitor differ");
            }
        }
    });
    Ok(())
}

fn add_memory(sim: &mut Sim, clk: Clock) -> Outcome {
    add_memory_with(sim, clk, Axi4MemoryConfig::default(), 100)
}

fn add_memory_with(sim: &mut Sim, clk: Clock, config: Axi4MemoryConfig, percent: u32) -> Outcome {
    let memory = Rc::new(RefCell::new(SparseMemory::new()));
    let manager = Axi4Manager::attach(sim, clk, Axi4Ports::find(sim, "s_axi")?, percent, Seed::new(3))?;
    Axi4Memory::attach(sim, clk, Axi4Ports::find(sim, "m_axi")?, config, memory)?;
    for lane in 0..8 {
        let manager = manager.clone();
        sim.spawn(async move {
            loop {
                manager.write(lane, lane << 12, vec![7; 4096]).await;
                manager.read(lane, lane << 12, 4096).await;
            }
        });
    }
    Ok(())
}
