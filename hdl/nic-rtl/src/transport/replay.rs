//! Plays on Verilator what a bench recorded on the interpreter, and lints the text on the way.

use super::bench::Trace;
use cocotb_rs::{ModelBuilder, Optimization, Period, PowerOn, Sim};
use rtl_graph::ModDef;

/// Builds the module's Verilog with every warning fatal, and checks that each cycle's outputs are those recorded.
///
/// A stream's record counts only while it is valid, a read port not at all.
pub(super) fn agrees(def: &ModDef, trace: &Trace) {
    let model = ModelBuilder::new(&def.name)
        .verilog(def.verilog())
        .verilator_argument("-Wall")
        .verilator_argument("-Werror-WIDTH")
        .optimization(Optimization::BuildTime)
        .build()
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(!model.verilator_log().contains("%Warning"), "{}", model.verilator_log());
    let mut sim = Sim::new(&model, PowerOn::Random { seed: 7 }).expect("the model starts");
    let clk = sim.clock("clk", Period::ps(4000)).expect("clk is a port");
    let rst = sim.port("rst").expect("rst is a port");
    let _ = clk;
    let port = |name: &String| sim.port(name).unwrap_or_else(|e| panic!("{e}"));
    let inputs: Vec<_> = trace.inputs.iter().map(port).collect();
    let outputs: Vec<_> = trace.outputs.iter().map(|o| port(&o.name)).collect();
    sim.reset(rst, 4).expect("reset");
    for (cycle, ports) in trace.cycles.iter().enumerate() {
        sim.set(rst, ports.is_reset.into());
        for (port, words) in inputs.iter().zip(&ports.inputs) {
            sim.set_words(*port, words);
        }
        sim.step().unwrap_or_else(|e| panic!("cycle {cycle}: {e}"));
        for ((port, output), words) in outputs.iter().zip(&trace.outputs).zip(&ports.outputs) {
            let is_shown = !ports.is_reset && output.valid.is_none_or(|valid| ports.outputs[valid][0] == 1);
            if is_shown && !output.is_read_port {
                let got = sim.get_words(*port);
                assert_eq!(trimmed(&got), trimmed(words), "`{}` in cycle {cycle}", output.name);
            }
        }
    }
}

fn trimmed(words: &[u64]) -> &[u64] {
    let used = words.iter().rposition(|w| *w != 0).map_or(0, |k| k + 1);
    &words[..used]
}
