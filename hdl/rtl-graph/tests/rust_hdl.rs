//! Library modules inside a hand-written rust-hdl top: emission, lint, simulation; and what rust-hdl's kernels get wrong.
mod common;
use common::*;
use rtl_graph::hdl::{port, Sink, Source};
use rtl_graph::*;
use rust_hdl::prelude::*;
use std::process::Command;

rtl_graph::bundle! {
    /// A stream of words.
    pub struct Axis(bytes: u32) { fwd data: 8 * bytes, last: 1, valid: 1; rev ready: 1 }
}

rtl_graph::record! {
    /// A note about a beat.
    pub struct Note { low: 4, is_last: 1 }
}

rtl_graph::module! {
    /// A register stage that xors a tag in and notes each beat.
    pub struct Stage(tag: u32, bytes: u32) clocks(aux) {
        rx: in Axis(bytes), tx: out Axis(bytes), note: out Stream<Note>, count: out Uint(8),
    }
    |b| {
        let (v, d) = (b.reg_reset("s1_v", 1, 0), b.reg("s1_d", rx.payload_width()));
        let free = !v | tx.ready;
        v.set_en(free, rx.valid);
        d.set_en(free, rx.payload());
        rx.ready.set(free);
        tx.valid.set(v);
        tx.set_payload(d ^ tag);
        note.put(v, &Note { low: d.trunc(4), is_last: d.msb() });
        let aux = b.domain("aux");
        b.in_domain(aux, || {
            let n = b.reg_reset("ticks", 8, 0);
            n.set(n + 1);
            count.set(n);
        });
    }
}

/// The top: a kernel that only wires.
#[derive(LogicBlock)]
struct Card {
    pub clk: Signal<In, Clock>,
    pub rst: Signal<In, Bit>,
    pub aux_clk: Signal<In, Clock>,
    pub rx: Sink<Axis<'static>>,
    pub tx: Source<Axis<'static>>,
    pub note: Source<NoteStream>,
    pub count: Signal<Out, Bits<8>>,
    pub low: Signal<Out, Bits<4>>,
    first: BlockOf<Stage<'static>>,
    second: BlockOf<Stage<'static>>,
}

type NoteStream = Stream<'static, Note<'static>>;

impl Card {
    fn new(lib: &Lib, bytes: u32) -> Card {
        Card {
            clk: Default::default(),
            rst: Default::default(),
            aux_clk: Default::default(),
            rx: port(&Axis::layout(bytes)),
            tx: port(&Axis::layout(bytes)),
            note: port(&Stream::<Note>::layout()),
            count: Default::default(),
            low: Default::default(),
            first: Stage::block(lib, 1, bytes),
            second: Stage::block(lib, 6, bytes),
        }
    }
}

impl Logic for Card {
    #[hdl_gen]
    fn update(&mut self) {
        self.first.clk.next = self.clk.val();
        self.first.rst.next = self.rst.val();
        self.first.aux.clk.next = self.aux_clk.val();
        self.first.aux.rst.next = self.rst.val();
        self.second.clk.next = self.clk.val();
        self.second.rst.next = self.rst.val();
        self.second.aux.clk.next = self.aux_clk.val();
        self.second.aux.rst.next = self.rst.val();
        Sink::<Axis>::link(&mut self.rx, &mut self.first.rx);
        Source::<Axis>::join(&mut self.first.tx, &mut self.second.rx);
        Source::<Axis>::link(&mut self.tx, &mut self.second.tx);
        Source::<NoteStream>::link(&mut self.note, &mut self.second.note);
        self.first.note.ready.next = true.into();
        self.low.next = self.first.note.low.val().into();
        self.count.next = self.second.count.val().into();
    }
}

#[test]
fn rust_hdl_top_emits_each_module_once_and_lints() {
    // On a test's own 2 MB stack.
    for bytes in [4, 64] {
        let lib = Lib::new();
        let mut card = Card::new(&lib, bytes);
        card.connect_all();
        let text = verilog(&card, &lib);
        assert_eq!(text.matches(&format!("module stage_1_{bytes} (")).count(), 1);
        assert!(!text.contains("rx$"), "a dollar in a name");
        let dir = scratch(&format!("rust_hdl_{bytes}"));
        std::fs::write(dir.join("top.v"), &text).unwrap();
        let args = ["--lint-only", "-Wall", "-Werror-WIDTH", "--top-module", "top", "top.v"];
        run(Command::new("verilator").current_dir(&dir).args(args));
    }
}

#[test]
fn rust_hdl_simulation_of_the_top_runs_the_modules() {
    let lib = Lib::new();
    let mut card = Card::new(&lib, 4);
    card.connect_all();
    let mut got = vec![];
    for cycle in 0..8u64 {
        card.clk.next = false.into();
        card.aux_clk.next = false.into();
        card.rst.next = cycle < 2;
        card.rx.data.next = (0x100 + cycle).into();
        card.rx.valid.next = true.into();
        card.tx.ready.next = true.into();
        card.note.ready.next = true.into();
        assert!(simulate(&mut card, 20));
        if bool::from(card.tx.valid.val()) {
            got.push((cycle, card.tx.data.val().0[0], card.note.low.val().0[0]));
        }
        card.clk.next = true.into();
        card.aux_clk.next = (cycle % 2 == 0).into();
        assert!(simulate(&mut card, 20));
    }
    // Two stages of latency behind reset; the second stage notes what the first has made of the word.
    assert_eq!(got, [(4, 0x102 ^ 7, 3), (5, 0x103 ^ 7, 2), (6, 0x104 ^ 7, 5), (7, 0x105 ^ 7, 4)]);
    assert_eq!(card.count.val(), bits::<8>(3));
    // The clock of cycle 7 has moved word 7 into the first stage.
    assert_eq!(card.low.val(), bits::<4>(7));
}

rtl_graph::module! {
    /// The five expressions that rust-hdl's kernel language prints wrongly.
    pub struct Probe5() {
        a: in Uint(8), c: in Uint(8), d: in Uint(8),
        p1: out Uint(1), p2: out Uint(1), p3: out Uint(9), p4: out Uint(16), p5: out Uint(1),
    }
    |b| {
        p1.set((a + 1).eq(c));
        p2.set((a & c).eq(d));
        p3.set((a + c).zext(9));
        p4.set((!a).zext(16));
        p5.set((a - c).lt(5));
    }
}

const OUT: [(&str, u32); 5] = [("p1", 1), ("p2", 1), ("p3", 9), ("p4", 16), ("p5", 1)];

#[test]
fn expressions_that_rust_hdl_miscompiles_come_out_right() {
    // Inputs and the right answers, by hand: 8-bit wrapping arithmetic, then extension.
    let cases: [([u64; 3], usize, u64); 5] = [
        ([255, 0, 0], 0, 1),
        ([4, 6, 4], 1, 1),
        ([200, 100, 0], 2, 0x02c),
        ([200, 0, 0], 3, 0x0037),
        ([3, 255, 0], 4, 1),
    ];
    let d = Probe5::def(&Lib::new());
    let mut s = d.sim();
    let mut tb = String::from(
        "module tb; reg [7:0] a, c, d; wire p1, p2, p5; wire [8:0] p3; wire [15:0] p4;\n\
         probe5 u (.clk(1'b0), .rst(1'b0), .a(a), .c(c), .d(d), .p1(p1), .p2(p2), .p3(p3), .p4(p4), .p5(p5));\ninitial begin\n",
    );
    let mut want = String::new();
    for ([a, c, e], k, answer) in cases {
        s.poke("a", a);
        s.poke("c", c);
        s.poke("d", e);
        assert_eq!(s.peek(OUT[k].0), answer, "{}", OUT[k].0);
        tb += &format!("a = {a}; c = {c}; d = {e}; #1 $display(\"%h\", {});\n", OUT[k].0);
        want += &format!("{}\n", hex(&[answer], OUT[k].1));
    }
    tb += "end endmodule\n";
    let dir = scratch("probe5");
    std::fs::write(dir.join("dut.v"), d.verilog() + &tb).unwrap();
    run(Command::new("iverilog").current_dir(&dir).args(["-g2012", "-o", "tb.vvp", "dut.v"]));
    assert_eq!(run(Command::new("vvp").current_dir(&dir).args(["-n", "tb.vvp"])), want);
}

rtl_graph::module! {
    /// Uses a clock that its list does not name.
    pub struct Unlisted() { q: out Uint(1) }
    |b| {
        let r = b.in_domain(b.domain("other"), || b.reg_reset("r", 1, 0));
        r.set(!r);
        q.set(r);
    }
}

#[test]
fn a_block_with_an_unlisted_clock_is_refused() {
    let e = std::panic::catch_unwind(|| Unlisted::block(&Lib::new())).err();
    let text = e.and_then(|e| e.downcast_ref::<String>().cloned()).unwrap_or_default();
    assert!(text.contains("list it in `clocks(other)`"), "{text}");
}
