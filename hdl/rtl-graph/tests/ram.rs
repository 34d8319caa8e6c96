//! Memories become the kind of RAM that they ask for, as yosys maps them for UltraScale+.
mod common;
use common::*;
use rtl_graph::*;
use std::process::Command;
use std::sync::Arc;

fn input<'a>(b: &'a B, name: &str, w: u32) -> S<'a> {
    b.input(name, w)
}

/// Module name, kind of cell it must become, and the module.
fn memories(lib: &Lib) -> Vec<(&'static str, Arc<ModDef>)> {
    vec![
        (
            "RAMB",
            lib.module("simple", |b| {
                let m = b.mem("rows", 1024, 72).style(RamStyle::Block);
                m.write(input(b, "we", 1), input(b, "wa", 10), input(b, "d", 72));
                b.output("q", 72).set(m.read_en(input(b, "re", 1), input(b, "ra", 10)));
            }),
        ),
        (
            "RAMB",
            lib.module("byte_lanes", |b| {
                let m = b.mem("rows", 512, 64).style(RamStyle::Block);
                m.write_lanes(input(b, "we", 1), input(b, "wa", 9), input(b, "d", 64), input(b, "be", 8));
                b.output("q", 64).set(m.read_registered(input(b, "ra", 9)));
            }),
        ),
        (
            "RAMB",
            lib.module("two_full_ports", |b| {
                let m = b.mem("rows", 1024, 32).style(RamStyle::Block);
                for p in ["a", "b"] {
                    let i = |n: &str, w| input(b, &format!("{p}_{n}"), w);
                    let q = m.port_lanes(i("en", 1), i("we", 1), i("addr", 10), i("d", 32), i("be", 4));
                    b.output(&format!("{p}_q"), 32).set(q);
                }
            }),
        ),
        (
            "RAMB",
            lib.module("initial_content", |b| {
                let rows = (0..1000).map(|k| vec![k * 7]).collect();
                let m = b.mem("rows", 1024, 16).style(RamStyle::Block).init(rows);
                m.write(input(b, "we", 1), input(b, "wa", 10), input(b, "d", 16));
                b.output("q", 16).set(m.read(input(b, "ra", 10)));
            }),
        ),
        (
            "RAM64M8",
            lib.module("lut_ram", |b| {
                let m = b.mem("rows", 64, 20).style(RamStyle::Distributed);
                m.write(input(b, "we", 1), input(b, "wa", 6), input(b, "d", 20));
                b.output("q", 20).set(m.read_async(input(b, "ra", 6)));
            }),
        ),
        (
            "URAM288",
            lib.module("ultra_ram", |b| {
                let m = b.mem("rows", 4096, 72).style(RamStyle::Ultra);
                m.write(input(b, "we", 1), input(b, "wa", 12), input(b, "d", 72));
                b.output("q", 72).set(m.read(input(b, "ra", 12)));
            }),
        ),
    ]
}

#[test]
fn memories_become_the_ram_they_ask_for() {
    if std::env::var_os("RUN_SLOW").is_none() {
        return eprintln!("skipped: yosys maps memories for some seconds; set RUN_SLOW=1");
    }
    let lib = Lib::new();
    let all = memories(&lib);
    let top = lib.module("all_memories", |b| {
        for (_, d) in &all {
            let u = b.instance(&format!("u_{}", d.name), d);
            for p in d.ports.iter().filter(|p| !p.is_clock_or_reset()) {
                let (name, s): (_, S) = (format!("{}_{}_port", d.name, p.name), u.port(&p.name));
                match p.is_output {
                    true => b.output(&name, p.width).set(s),
                    false => s.set(b.input(&name, p.width)),
                }
            }
        }
    });
    let dir = scratch("ram");
    std::fs::write(dir.join("dut.v"), top.verilog()).unwrap();
    let script = "read_verilog -sv dut.v; hierarchy -top all_memories; \
                  synth_xilinx -family xcup -top all_memories -run prepare:map_ffram; tee -q -o stat.txt stat";
    run(Command::new("yosys").current_dir(&dir).args(["-q", "-p", script]));
    let text = std::fs::read_to_string(dir.join("stat.txt")).unwrap();
    for (kind, d) in &all {
        let stat = text.split("=== ").find(|s| s.starts_with(&format!("{} ", d.name)));
        let stat = stat.unwrap_or_else(|| panic!("{} is not in {text}", d.name));
        assert!(stat.contains(kind) && !stat.contains("$mem"), "{}: no {kind} in {stat}", d.name);
    }
}
