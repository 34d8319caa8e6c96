//! The emitted Verilog of the host side passes Verilator's lint without a word, at the smallest, usual and large sizes.

use nic_rtl::{
    dma::{BusManager, MrTable},
    host::{CountLists, CqeWriter, Registers, WqeFetch},
    params::NicParams,
};
use nic_spec::csr::stats::Counter;
use rtl_graph::{Lib, ModDef};
use std::{process::Command, sync::Arc};

fn lint(def: &Arc<ModDef>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dut.v");
    std::fs::write(&file, def.verilog()).unwrap();
    // One file holds all modules, so their names cannot be the file's.
    let run = Command::new("verilator")
        .args(["--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module", &def.name])
        .arg(&file)
        .output()
        .expect("verilator is installed");
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success() && text.is_empty(), "{}: {text}", def.name);
}

fn sizes() -> [NicParams; 3] {
    let usual = NicParams::default();
    let least = NicParams { conns: 2, paths: 2, mrs: 2, cqs: 2, ..usual };
    let large = NicParams { conns: 32, paths: 32, mrs: 65536, cqs: 64, ..usual };
    [least, usual, large]
}

#[test]
fn queues_lint_clean() {
    for params in sizes() {
        lint(&WqeFetch::def(&Lib::new(), &params));
        lint(&CqeWriter::def(&Lib::new(), &params));
    }
}

#[test]
fn registers_lint_clean() {
    for params in sizes() {
        let lists = CountLists(vec![vec![Counter::RxFrames], vec![Counter::RxBytes, Counter::RxFrames]]);
        lint(&Registers::def(&Lib::new(), &params, 3, &lists));
    }
}

#[test]
fn memory_access_lints_clean() {
    for burst_beats in [2, 16, 64] {
        lint(&BusManager::def(&Lib::new(), burst_beats));
    }
    for params in sizes() {
        lint(&MrTable::def(&Lib::new(), params.mrs, 2));
    }
}
