//! Plays on Verilator what a bench recorded on the interpreter, and lints the text on the way.

use super::bench::Trace;
use cocotb_rs::{ModelBuilder, Optimization, Period, PowerOn, Sim};
use rtl_graph::ModDef;

/// Builds the module's Verilog with every warning fatal, and checks that each cycle's outputs are those recorded.
///
/// A stream's record counts only while it is valid, an index on a read port not at all.
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
    let inputs: Vec<_> = trace.inputs.iter().map(|(name, _)| port(name)).collect();
    let outputs: Vec<_> = trace.outputs.iter().map(|(name, _)| port(name)).collect();
    let guards: Vec<Option<usize>> = trace.outputs.iter().map(|(name, _)| guard(trace, name)).collect();
    let is_index = |name: &str| name.ends_with("_read_conn");
    sim.reset(rst, 4).expect("reset");
    for (cycle, (given, expected)) in trace.cycles.iter().enumerate() {
        for (port, words) in inputs.iter().zip(given) {
            sim.set_words(*port, words);
        }
        sim.step().unwrap_or_else(|e| panic!("cycle {cycle}: {e}"));
        for (k, port) in outputs.iter().enumerate() {
            let name = &trace.outputs[k].0;
            let is_shown = guards[k].is_none_or(|valid| expected[valid][0] == 1);
            if is_shown && !is_index(name) {
                let words = sim.get_words(*port);
                assert_eq!(trimmed(&words), trimmed(&expected[k]), "`{name}` in cycle {cycle}");
            }
        }
    }
}

/// Index of the `valid` that stands for an output of a stream or counter.
fn guard(trace: &Trace, name: &str) -> Option<usize> {
    let prefixes = name.match_indices('_').map(|(at, _)| &name[..at]);
    let valids = prefixes.map(|prefix| format!("{prefix}_valid"));
    valids.rev().find_map(|valid| trace.outputs.iter().position(|(n, _)| *n == valid && *n != name))
}

fn trimmed(words: &[u64]) -> &[u64] {
    let used = words.iter().rposition(|w| *w != 0).map_or(0, |k| k + 1);
    &words[..used]
}
