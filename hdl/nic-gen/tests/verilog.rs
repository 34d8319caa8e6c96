//! `nic-gen verilog`: the design on disk is what the simulation builds, and sizes that make no card are refused.

use std::process::Command;

fn nic_gen(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_nic-gen")).args(args).output().expect("nic-gen runs")
}

#[test]
fn the_design_is_written_whole_and_the_same_each_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("new/folder");
    let out = out.to_str().expect("UTF-8");
    assert_eq!(nic_gen(&["verilog", "--out", out]).status.code(), Some(0));
    let text = std::fs::read_to_string(format!("{out}/card.v")).expect("the design");
    assert_eq!(text, nic_rtl::top::verilog(&nic_rtl::params::NicParams::default()));
    assert!(text.contains(&format!("module {}", nic_rtl::top::TOP)));
    let small = nic_gen(&["verilog", "--out", out, "--conns", "4", "--paths", "4"]);
    assert_eq!(small.status.code(), Some(0));
    assert_ne!(text, std::fs::read_to_string(format!("{out}/card.v")).expect("the design"));
}

#[test]
fn sizes_that_make_no_card_are_refused_with_a_sentence_and_code_2() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = nic_gen(&["verilog", "--out", dir.path().to_str().expect("UTF-8"), "--conns", "12"]);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2));
    assert!(text.contains("conns (12) must be a power of two"), "{text}");
    assert!(!dir.path().join("card.v").exists());
}
