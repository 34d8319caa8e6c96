//! The cache of models, their variants, and instances on several threads.

mod common;

use cocotb_rs::{BuildError, ModelBuilder, Observe, Optimization, Period, PortDecl, PowerOn, Sim, SimError};
use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

const TINY: &str = "module tiny #(parameter W = 4) (input clk, output reg [W-1:0] q);
    initial q = 0;
    always @(posedge clk) q <= q + 1;
endmodule";

#[test]
fn the_second_build_of_a_model_comes_from_the_cache() {
    let first = common::model();
    let second = common::builder().build().unwrap();
    assert!(!second.was_built());
    assert_eq!(second.cache_entry(), first.cache_entry());
    assert!(second.cache_entry().join("kit.v").is_file());
}

#[test]
fn two_builders_of_one_model_compile_it_once_and_both_can_use_it() {
    // A cache of its own, so that the model is not there; the runtime is copied, as it takes longest.
    let cache = tempfile::tempdir().unwrap();
    let common_cache = common::model().cache_entry().parent().unwrap().to_owned();
    for file in fs::read_dir(common_cache).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "o") {
            fs::copy(&path, cache.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let built = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let builder = ModelBuilder::new("tiny").verilog(TINY).optimization(Optimization::BuildTime);
                let model = builder.parameter("W", 7).cache_dir(cache.path()).build().unwrap();
                built.fetch_add(u32::from(model.was_built()), Ordering::SeqCst);
                let mut sim = Sim::new(&model, PowerOn::Zeros).unwrap();
                let (clk, q) = (sim.clock("clk", Period::ps(1000)).unwrap(), sim.port("q").unwrap());
                sim.run_cycles(clk, 101).unwrap();
                assert_eq!((q.width_bits(), sim.get(q)), (7, 100));
            });
        }
    });
    assert_eq!(built.into_inner(), 1);
}

#[test]
fn ports_other_than_those_listed_are_an_error_that_names_the_difference() {
    let cache = tempfile::tempdir().unwrap();
    let build = |ports: Vec<PortDecl>| {
        let error = ModelBuilder::new("tiny").verilog(TINY).ports(ports).cache_dir(cache.path()).build().unwrap_err();
        error.to_string()
    };
    let clk = || PortDecl::input("clk", 1);
    assert!(build(vec![clk(), PortDecl::output("q", 5)]).contains("has output [4:0] q, the module has output [3:0] q"));
    assert!(build(vec![clk()]).contains("the module has output [3:0] q, the list has no such port"));
    let text = build(vec![clk(), PortDecl::output("q", 4), PortDecl::input("rst", 1)]);
    assert!(text.contains("the list has input [0:0] rst, the module has no such port"), "{text}");
}

#[test]
fn verilog_that_does_not_compile_is_answered_with_verilators_words() {
    let cache = tempfile::tempdir().unwrap();
    let build = |text: &str| ModelBuilder::new("tiny").verilog(text).cache_dir(cache.path()).build().unwrap_err();
    let error = build("module tiny(input a, output b); assign b = a + ; endmodule");
    assert!(matches!(&error, BuildError::ToolFailed { output, .. } if output.contains("tiny.v:1:")), "{error}");
    let error = ModelBuilder::new("tiny").build().unwrap_err();
    assert_eq!(error.to_string(), "no Verilog was given for top module tiny");
}

#[test]
fn a_trace_shows_the_cycles_asked_for_and_coverage_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let run = |name: &str, cycles| {
        let (mut sim, clk) = common::sim_of(common::observable_model(), 1);
        let [rst, step] = ["rst", "step"].map(|name| sim.port(name).unwrap());
        let observe = Observe { trace: Some((file(name), cycles)), coverage: Some(file("coverage.dat")) };
        observe.start(&mut sim).unwrap();
        sim.reset(rst, 3).unwrap();
        sim.set(step, 1);
        sim.run_cycles(clk, 300).unwrap();
        observe.finish(&mut sim).unwrap();
        fs::metadata(file(name)).unwrap().len()
    };
    let (all, some, none) = (run("all.fst", 0..u64::MAX), run("some.fst", 50..100), run("none.fst", 5000..6000));
    assert!(all > some && some > none, "{all} {some} {none} bytes");
    // An FST file begins with a header block: type 0, length 329.
    assert_eq!(fs::read(file("some.fst")).unwrap()[..9], [0, 0, 0, 0, 0, 0, 0, 1, 73]);
    let coverage = fs::read_to_string(file("coverage.dat")).unwrap();
    assert!(coverage.starts_with("# SystemC::Coverage") && coverage.contains("kit.v"), "{coverage:.200}");
}

#[test]
fn a_trace_that_cannot_be_written_and_a_model_that_cannot_trace_are_errors() {
    let (mut sim, _) = common::sim_of(common::observable_model(), 1);
    let path = "/nowhere/trace.fst";
    assert_eq!(sim.trace(path, 0..10), Err(SimError::Write { path: path.into() }));
    assert_eq!(sim.write_coverage("/nowhere/c.dat"), Err(SimError::Write { path: "/nowhere/c.dat".into() }));
    let (mut sim, _) = common::sim();
    let refused = |feature| Err(SimError::NotBuiltFor { model: "kit".into(), feature });
    assert_eq!(sim.trace("trace.fst", 0..10), refused("trace"));
    assert_eq!(sim.write_coverage("c.dat"), refused("coverage"));
}

#[test]
fn instances_on_several_threads_are_independent_and_repeatable() {
    let run = |seed| {
        let (mut sim, clk) = common::sim_of(common::model(), seed);
        let [rst, step, count, power_on] = ["rst", "step", "count", "power_on"].map(|name| sim.port(name).unwrap());
        sim.reset(rst, 3).unwrap();
        sim.set(step, 1);
        sim.run_cycles(clk, 100 + seed).unwrap();
        (sim.get(count), sim.get(power_on))
    };
    let alone: Vec<_> = (0..8).map(run).collect();
    assert_eq!(alone.iter().map(|(count, _)| *count).collect::<Vec<_>>(), (99..107).collect::<Vec<_>>());
    for _ in 0..5 {
        let together = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || run(seed))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(together, alone);
    }
}
