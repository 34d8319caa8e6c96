//! A FIFO between a stream source and a sink, with a scoreboard and coverage of its corner cases.
//!
//! `cargo run -p cocotb-rs --example fifo`; `SEED=5` chooses another run, `COCOTB_RS_TRACE=fifo.fst` traces it.

use cocotb_rs::{
    axis::{AxisPorts, AxisSink, AxisSource},
    Coverage, Io, ModelBuilder, Observe, Pace, Period, PowerOn, Replay, Scoreboard, Seed, Sim,
};
use std::{cell::RefCell, error::Error, rc::Rc};

const FIFO: &str = "
module fifo #(parameter LOG2 = 3) (
    input clk, input rst,
    input  [31:0] s_tdata, input  [3:0] s_tkeep, input  s_tlast, input  s_tvalid, output s_tready,
    output [31:0] m_tdata, output [3:0] m_tkeep, output m_tlast, output m_tvalid, input  m_tready,
    output [LOG2:0] level);
    reg [36:0] store [0:(1<<LOG2)-1];
    reg [LOG2:0] head, tail;
    assign level = tail - head;
    assign s_tready = !level[LOG2];
    assign m_tvalid = level != 0;
    assign {m_tlast, m_tkeep, m_tdata} = store[head[LOG2-1:0]];
    always @(posedge clk) begin
        if (s_tvalid && s_tready) begin
            store[tail[LOG2-1:0]] <= {s_tlast, s_tkeep, s_tdata};
            tail <= tail + 1'b1;
        end
        if (m_tvalid && m_tready) head <= head + 1'b1;
        if (rst) begin head <= 0; tail <= 0; end
        assert (rst || level <= (1 << LOG2)) else $error(\"the level is %0d\", level);
    end
endmodule";

fn main() -> Result<(), Box<dyn Error>> {
    let seed = Seed::from_env_or(1)?;
    let _replay = Replay::new(seed, "cargo run -p cocotb-rs --example fifo");
    let observe = Observe::from_env()?;
    let model = observe.variant(ModelBuilder::new("fifo").verilog(FIFO)).build()?;
    let mut sim = Sim::new(&model, PowerOn::Random { seed: seed.named("power-on").value() })?;
    let clk = sim.clock("clk", Period::of_hz(322_265_625))?;
    let (rst, level) = (sim.port("rst")?, sim.port("level")?);

    let pace = |name| Pace::bursty(20, 20, seed.named(name));
    let source = AxisSource::attach(&sim, clk, AxisPorts::find(&sim, "s")?, pace("source"))?;
    let sink = AxisSink::attach(&sim, clk, AxisPorts::find(&sim, "m")?, pace("sink"))?;
    let coverage = Rc::new(RefCell::new(Coverage::of(["empty", "full"])));
    let counts = coverage.clone();
    sim.attach(clk, move |io: &mut Io<'_>| match io.get(level) {
        0 => counts.borrow_mut().hit("empty"),
        8 => counts.borrow_mut().hit("full"),
        _ => {}
    });
    observe.start(&mut sim)?;
    sim.reset(rst, 2)?;

    let mut board = Scoreboard::new("fifo");
    let mut rng = seed.named("frames").rng();
    for _ in 0..500 {
        let len_bytes = rng.within(&(1..=100)) as usize;
        let frame = rng.bytes(len_bytes);
        source.send(frame.clone());
        board.expect(frame);
    }
    while board.pending() > 0 {
        let received = sim.block_on(sink.recv())?;
        board.observe(&received.bytes)?;
    }
    observe.finish(&mut sim)?;
    println!("{} frames in {} cycles; level:\n{}", board.finish()?, sim.cycle(clk), coverage.borrow());
    let coverage = coverage.borrow();
    match coverage.missed().as_slice() {
        [] => Ok(()),
        missed => Err(format!("never reached: {missed:?}").into()),
    }
}
