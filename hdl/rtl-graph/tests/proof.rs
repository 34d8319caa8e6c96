//! The FIFO of the examples proved by induction, and the proof shown to notice faults.
mod common;
#[path = "../examples/fifo.rs"]
mod fifo;
use common::*;
use rtl_graph::formal::{prove, prove_text, ProofError};
use rtl_graph::*;
use std::process::Command;

#[test]
fn fifo_keeps_every_word_for_ever() {
    let d = fifo::Fifo::def(&Lib::new(), 8, 3);
    prove(&d, 4).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn proof_finds_a_fifo_that_takes_a_word_too_many() {
    let d = fifo::Fifo::def(&Lib::new(), 2, 1);
    let (right, wrong) = ("assign rx_ready = ~held[1];", "assign rx_ready = 1'b1;");
    let text = d.verilog();
    assert!(text.contains(right), "{text}");
    let r = prove_text(&d, &text.replace(right, wrong), 6);
    assert!(matches!(&r, Err(ProofError::Falsified(s)) if s.contains("Assert failed")), "{r:?}");
}

#[test]
fn proof_tells_a_true_but_weak_property_from_an_invariant() {
    // Two counters that stay equal; asserting only that one stays below the limit of the other is not inductive.
    let d = Lib::new().module("two_counters", |b| {
        let (x, y) = (b.reg_reset("x", 8, 0), b.reg_reset("y", 8, 0));
        x.set(x.eq(100).mux(0, x + 1));
        y.set(y.eq(100).mux(0, y + 1));
        b.assert("never_apart_at_seven", !(x.eq(7) & y.eq(9)));
        b.output("q", 8).set(x ^ y);
    });
    let r = prove(&d, 3);
    assert!(matches!(r, Err(ProofError::NotInductive(_))), "{r:?}");
}

#[test]
fn a_module_without_assertions_is_not_called_proved() {
    let d = Lib::new().module("silent", |b| b.output("q", 1).set(b.input("a", 1)));
    assert!(matches!(prove(&d, 3), Err(ProofError::Unsupported(_))));
}

#[test]
fn yosys_synthesises_the_text() {
    let d = leaf(&Lib::new(), "leaf", 5);
    let dir = scratch("yosys");
    std::fs::write(dir.join("dut.v"), fifo::Fifo::def(&Lib::new(), 8, 3).verilog()).unwrap();
    std::fs::write(dir.join("random.v"), d.verilog()).unwrap();
    let script = "read_verilog -sv dut.v; synth -top fifo_8_3; check -assert; stat; design -reset; \
                  read_verilog -sv random.v; hierarchy -check -top leaf; proc; check -assert";
    let text = run(Command::new("yosys").current_dir(&dir).args(["-p", script]));
    assert!(text.contains("Number of cells:") && !text.contains("$assert"), "{text}");
}
