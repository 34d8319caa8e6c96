//! The Verilog of the whole card: lint, pins, one text for one set of parameters.

use nic_rtl::{
    params::NicParams,
    top::{pins, verilog, TOP},
};
use std::process::Command;

#[test]
fn the_card_lints_clean_and_has_its_pins() {
    let params = NicParams::default();
    let text = verilog(&params);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("top.v");
    std::fs::write(&file, &text).unwrap();
    // One file holds all modules, so their names cannot be the file's.
    let run = Command::new("verilator")
        .args(["--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module", TOP])
        .arg(&file)
        .output()
        .expect("verilator is installed");
    let report = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success() && report.is_empty(), "{report}");

    let pins = pins(&params);
    let has = |name: &str, bits: u32| pins.iter().any(|p| p.name == name && p.bits == bits);
    assert!(has("clk", 1) && has("rst", 1) && has("m_axi_wdata", 512) && has("s_axil_awaddr", 25));
    assert!(has("s_axis_rx_tdata", 512) && has("m_axis_tx_tkeep", 64) && has("m_msix_vector", 8));
    let head = &text[text.find(&format!("module {TOP}(")).expect("the top module")..];
    let head = &head[..head.find(");").expect("its port list")];
    for p in &pins {
        assert!(head.contains(&p.name), "pin {} is missing in {head}", p.name);
    }
}

#[test]
fn the_same_sizes_give_the_same_text() {
    let params = NicParams { conns: 4, paths: 4, ..NicParams::default() };
    let text = verilog(&params);
    assert!(text == verilog(&params));
    assert!(text != verilog(&NicParams { paths: 8, ..params }));
}
