//! The interpreter against Icarus Verilog on random modules made of every construct, and the lint of their text.
mod common;
#[path = "../examples/fifo.rs"]
mod fifo;
#[allow(dead_code)]
#[path = "../examples/pipeline.rs"]
mod pipeline;
use common::*;
use rtl_graph::*;
use std::fmt::Write;
use std::process::Command;

/// Seeds of the random comparison; set `RTL_GRAPH_SEED` to replay or explore one.
fn seeds() -> Vec<u64> {
    match std::env::var("RTL_GRAPH_SEED") {
        Ok(s) => vec![s.parse().expect("RTL_GRAPH_SEED is a number")],
        Err(_) => vec![10, 20],
    }
}

/// Whether a net is a register: they start at zero in both engines, so that four states do not blur the comparison.
fn is_state(net: &str) -> bool {
    let n = net.split('.').next_back().expect("a name");
    let plain = n.strip_prefix('r').is_some_and(|k| k.len() == 1);
    net.contains('.') && (plain || ["_q", "_q_2", "_q_reg"].iter().any(|e| n.ends_with(e)))
}

/// A testbench that applies the stimuli from a file and prints the outputs before each edge.
fn testbench(d: &ModDef, n: usize) -> String {
    let total: u32 = 1 + WIDTHS.iter().sum::<u32>();
    let mut t = format!(
        "module tb;\n  reg clk = 0; reg [{}:0] v [0:{}]; reg [{}:0] x; integer k;\n",
        total - 1,
        n - 1,
        total - 1
    );
    for (o, w) in outputs(d) {
        let _ = writeln!(t, "  wire [{}:0] {o};", w - 1);
    }
    let _ = write!(t, "  {} dut (.clk(clk), .rst(x[0])", d.name);
    let mut lo = 1;
    for (k, w) in WIDTHS.iter().enumerate() {
        let _ = write!(t, ", .i{k}(x[{}:{lo}])", lo + w - 1);
        lo += w;
    }
    for (o, _) in outputs(d) {
        let _ = write!(t, ", .{o}({o})");
    }
    let sim = d.sim();
    let state: Vec<&str> = sim.names().filter(|n| is_state(n)).collect();
    let start: String = state.iter().map(|n| format!("    dut.{n} = 0;\n")).collect();
    let names: Vec<String> = outputs(d).into_iter().map(|o| o.0).collect();
    let fmt = vec!["%h"; names.len()].join(" ");
    let _ = write!(
        t,
        ");\n  initial begin\n{start}    $readmemh(\"stimuli.hex\", v);\n    for (k = 0; k < {n}; k = k + 1) begin\n      x = v[k]; #1;\n      \
         $display(\"{fmt}\", {});\n      clk = 1; #1; clk = 0; #1;\n    end\n    $finish(0);\n  end\nendmodule\n",
        names.join(", ")
    );
    t
}

fn packed(st: &[(u64, Vec<Vec<u64>>)]) -> String {
    let mut out = String::new();
    for (rst, ins) in st {
        let mut bits = vec![*rst == 1];
        for (v, w) in ins.iter().zip(WIDTHS) {
            bits.extend((0..w).map(|i| v[i as usize / 64] >> (i % 64) & 1 == 1));
        }
        let mut words = vec![0u64; bits.len().div_ceil(64)];
        bits.iter().enumerate().filter(|b| *b.1).for_each(|(i, _)| words[i / 64] |= 1 << (i % 64));
        out += &hex(&words, bits.len() as u32);
        out.push('\n');
    }
    out
}

#[test]
fn interpreter_and_verilog_agree_on_random_modules() {
    for seed in seeds() {
        let n = 120;
        let d = top(&Lib::new(), seed);
        let st = stimuli(seed, n);
        let dir = scratch(&format!("icarus_{seed}"));
        std::fs::write(dir.join("dut.v"), d.verilog()).unwrap();
        std::fs::write(dir.join("tb.v"), testbench(&d, n)).unwrap();
        std::fs::write(dir.join("stimuli.hex"), packed(&st)).unwrap();
        run(Command::new("iverilog").current_dir(&dir).args([
            "-g2012",
            "-DSYNTHESIS",
            "-o",
            "tb.vvp",
            "tb.v",
            "dut.v",
        ]));
        let text = run(Command::new("vvp").current_dir(&dir).args(["-n", "tb.vvp"]));
        let theirs: Vec<String> = text.lines().map(|s| s.to_string()).collect();
        println!("seed {seed}; replay: RTL_GRAPH_SEED={seed} cargo test -p rtl-graph --test engines");
        compare(&d, seed, &interpret(&d, &st), &theirs);
    }
}

#[test]
fn emitted_text_passes_verilator_lint_with_all_warnings() {
    let lib = Lib::new();
    let masks: Vec<Vec<u64>> = (0..32).map(|k| vec![0x1234_5678_9abc_def1u64.rotate_left(k); 8]).collect();
    let crc = lib.module("crc_rows", |b| b.output("next", 32).set(b.input("data", 512).parity_rows(&masks)));
    assert!(crc.text.lines().all(|l| l.len() < 180), "{}", crc.text);
    let words = crc.text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words.matches("= ^(data & 512'h").count(), 32, "{}", crc.text);
    for d in [top(&lib, 10), pipeline::Pipeline::def(&lib, 2, 20), fifo::Fifo::def(&lib, 64, 4), crc] {
        lint(&d);
    }
    lint(&AsyncFifo::def(&lib, 9, 3));
}

fn lint(d: &ModDef) {
    let dir = scratch(&format!("lint_{}", d.name));
    std::fs::write(dir.join("dut.v"), d.verilog()).unwrap();
    run(Command::new("verilator").current_dir(&dir).args([
        "--lint-only",
        "-Wall",
        "-Werror-WIDTH",
        "--top-module",
        &d.name,
        "dut.v",
    ]));
}

#[test]
fn emitted_text_is_the_same_every_time() {
    assert_eq!(top(&Lib::new(), 10).verilog(), top(&Lib::new(), 10).verilog());
}
