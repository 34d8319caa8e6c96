//! The emitted Verilog of the wire side and of the building blocks passes Verilator's lint without a word.

use nic_rtl::{prim, rx, tx};
use rtl_graph::{Lib, ModDef, RamStyle};
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

#[test]
fn the_parser_and_all_below_it_lint_clean() {
    lint(&rx::Parser::def(&Lib::new()));
}

#[test]
fn the_transmitter_and_all_below_it_lint_clean() {
    lint(&tx::Transmitter::def(&Lib::new()));
}

#[test]
fn the_building_blocks_lint_clean() {
    let l = Lib::new();
    lint(&prim::Skid::def(&l, 32));
    lint(&prim::Fifo::def(&l, 32, 2, RamStyle::Registers));
    lint(&prim::Fifo::def(&l, 1, 512, RamStyle::Block));
    lint(&prim::PacketFifo::def(&l, 9, 16));
    lint(&prim::Arbiter::def(&l, 8, 2, None));
    lint(&prim::Arbiter::def(&l, 8, 5, Some(3)));
    lint(&prim::BitmapFfs::def(&l));
    lint(&prim::Strip::def(&l, 8, &[1, 5]));
}
