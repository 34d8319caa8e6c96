//! The interpreter against Verilator: random modules made of every construct, two clocks, assertions.
mod common;
use cocotb_rs::{ModelBuilder, Optimization, Period, PowerOn, SimError};
use common::*;
use rtl_graph::*;

fn model(d: &ModDef) -> cocotb_rs::Model {
    let b = ModelBuilder::new(&d.name).verilog(d.verilog()).optimization(Optimization::BuildTime);
    b.verilator_argument("-Wall").verilator_argument("-Werror-WIDTH").build().unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn interpreter_and_verilator_agree_on_random_modules() {
    let seed: u64 = std::env::var("RTL_GRAPH_SEED").map_or(30, |s| s.parse().expect("RTL_GRAPH_SEED is a number"));
    println!("seed {seed}; replay: RTL_GRAPH_SEED={seed} cargo test -p rtl-graph --test verilator");
    let d = leaf(&Lib::new(), "leaf", seed);
    let st = stimuli(seed, 2000);
    let mut sim = cocotb_rs::Sim::new(&model(&d), PowerOn::Zeros).unwrap();
    sim.clock("clk", Period::ps(4000)).unwrap();
    let rst = sim.port("rst").unwrap();
    let ins: Vec<_> = (0..WIDTHS.len()).map(|k| sim.port(&format!("i{k}")).unwrap()).collect();
    let outs: Vec<_> = outputs(&d).into_iter().map(|(n, w)| (sim.port(&n).unwrap(), w)).collect();
    let mut theirs = vec![];
    for (r, v) in &st {
        sim.set(rst, *r);
        for (p, x) in ins.iter().zip(v) {
            sim.set_words(*p, x);
        }
        sim.step().unwrap();
        theirs.push(outs.iter().map(|(p, w)| hex(&sim.get_words(*p), *w)).collect::<Vec<_>>().join(" "));
    }
    compare(&d, seed, &interpret(&d, &st), &theirs);
}

fn guarded(lib: &Lib) -> std::sync::Arc<ModDef> {
    let child = lib.module("counter_with_limit", |b| {
        let n = b.reg_reset("n", 4, 0);
        b.when(b.input("en", 1), || n.set(n + 1));
        b.assert("below_limit", n.lt(9));
        b.cover("reached_five", n.eq(5));
        b.output("q", 4).set(n);
    });
    lib.module("guarded", |b| {
        let u = b.instance("u", &child);
        u.port::<S>("en").set(b.input("en", 1));
        b.output("q", 4).set(u.port::<S>("q"));
    })
}

#[test]
fn assertion_in_an_instance_stops_interpreter_and_verilator_in_the_same_cycle() {
    let d = guarded(&Lib::new());
    let mut i = d.sim();
    i.collect_failures();
    let mut v = cocotb_rs::Sim::new(&model(&d), PowerOn::Zeros).unwrap();
    v.clock("clk", Period::ps(4000)).unwrap();
    let (rst, en) = (v.port("rst").unwrap(), v.port("en").unwrap());
    i.poke("en", 1);
    v.set(en, 1);
    for cycle in 0..20u64 {
        i.poke("rst", (cycle < 2) as u64);
        v.set(rst, (cycle < 2) as u64);
        let stopped = match v.step() {
            Ok(_) => false,
            Err(SimError::Stopped { message, .. }) => {
                assert!(message.contains("below_limit") || message.contains("ssert"), "{message}");
                true
            }
            Err(e) => panic!("{e}"),
        };
        i.clock();
        assert_eq!(stopped, !i.failures().is_empty(), "cycle {cycle}");
        if stopped {
            // Reset for two edges, then the count stands at 9 before edge 11.
            assert_eq!(cycle, 11);
            assert!(i.failures()[0].contains("u.below_limit"), "{}", i.failures()[0]);
            assert_eq!(i.covered("u.reached_five"), 1);
            return;
        }
    }
    panic!("the assertion never failed");
}
