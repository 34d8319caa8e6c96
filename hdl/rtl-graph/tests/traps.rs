//! Every mistake the library knows panics with a sentence, at the line that made it.
use rtl_graph::*;
use std::cell::{Cell, RefCell};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

bundle! {
    /// A stream.
    pub struct Axis(bytes: u32) { fwd data: 8 * bytes, last: 1, valid: 1; rev ready: 1 }
}

module! {
    /// A stage with registers between its ends.
    pub struct Skid(bytes: u32) { rx: in Axis(bytes), tx: out Axis(bytes) }
    |b| {
        let (v, d) = (b.reg_reset("v", 1, 0), b.reg("d", rx.payload_width()));
        let free = !v | tx.ready;
        v.set_en(free, rx.valid);
        d.set_en(free, rx.payload());
        rx.ready.set(free);
        tx.valid.set(v);
        tx.set_payload(d);
    }
}

module! {
    /// A wire-through, combinational both ways.
    pub struct Tap() { rx: in Axis(4), tx: out Axis(4) }
    |b| { b.connect(&rx, &tx); }
}

module! {
    /// A stage that takes a word every other clock: no combinational path either way.
    pub struct Half() { rx: in Axis(4), tx: out Axis(4) }
    |b| {
        let (v, d) = (b.reg_reset("v", 1, 0), b.reg("d", rx.payload_width()));
        v.set(v.mux(!tx.ready, rx.valid));
        d.set_en(!v, rx.payload());
        rx.ready.set(!v);
        tx.valid.set(v);
        tx.set_payload(d);
    }
}

thread_local! {
    /// Whether the panic at hand is wanted.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
    /// File, line and text of the last panic of this thread.
    static LAST: RefCell<(String, u32, String)> = const { RefCell::new((String::new(), 0, String::new())) };
}

/// Runs `f`, which must panic; gives the panic's file, line and text.
fn fault(f: impl FnOnce()) -> (String, u32, String) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let old = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |i| {
            let l = i.location().expect("panics have a location");
            let text = i.payload().downcast_ref::<String>().cloned();
            let text = text.or(i.payload().downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default();
            LAST.with(|x| *x.borrow_mut() = (l.file().to_string(), l.line(), text));
            if !EXPECTED.get() {
                old(i);
            }
        }));
    });
    EXPECTED.set(true);
    let r = catch_unwind(AssertUnwindSafe(f));
    EXPECTED.set(false);
    assert!(r.is_err(), "nothing complained");
    LAST.with(|x| x.borrow().clone())
}

/// The fault of a module's body must lie at `line` of this file and say `says`.
#[track_caller]
fn check(line: u32, says: &str, body: impl FnOnce(&B)) {
    let (file, at, text) = fault(|| drop(Lib::new().module("t", body)));
    assert!(text.contains(says), "expected `{says}`, got `{text}`");
    assert!(file.ends_with("traps.rs"), "`{text}` is blamed on {file}:{at}");
    assert_eq!(at, line, "`{text}` is blamed on line {at}");
}

macro_rules! trap {
    ($says:literal, |$b:ident| $body:expr) => {
        check(line!(), $says, |$b| {
            let _ = $body;
        })
    };
}

#[test]
fn operands_of_unequal_widths_are_refused_at_the_operation() {
    trap!("8 bits where 9 are needed", |b| b.input("a", 9) + b.input("c", 8));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9) - b.input("c", 8));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9) & b.input("c", 8));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9) | b.input("c", 8));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9) ^ b.input("c", 8));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9).eq(b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9).lt(b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9).ge(b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9).lt_signed(b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9).add_carry(b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.input("a", 9).mul(b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.input("s", 1).mux(b.input("a", 9), b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.reg("r", 9).set(b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.output("o", 9).set(b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.reg("r", 9).when(b.high(), b.input("c", 8)));
    trap!("8 bits where 9 are needed", |b| b.reg("r", 9).set_en(b.high(), b.input("c", 8)));
    trap!("9 bits where 8 are needed", |b| b.select(&[(b.input("s", 1), b.input("c", 8))], b.input("a", 9)));
}

#[test]
fn reductions_and_selections_of_unequal_widths_are_refused() {
    trap!("8 bits in place 0 and 9 in place 1", |b| b.or_tree(&[b.input("a", 8), b.input("c", 9)]));
    check(line!() + 2, "8 bits in place 0 and 9 in place 1", |b| {
        let arms = [(b.input("s", 1), b.input("a", 8)), (b.input("t", 1), b.input("c", 9))];
        b.one_hot_select(&arms);
    });
    trap!("9 bits where 8 are needed", |b| b.pick(b.input("i", 1), &[b.input("a", 9), b.input("c", 8)]));
    trap!("3 values need 2 index bits, not 1", |b| b.pick(b.input("i", 1), &[b.zero(8), b.zero(8), b.zero(8)]));
    trap!("a reduction of nothing", |b| b.and_tree(&[]));
}

#[test]
fn conditions_must_be_one_bit() {
    trap!("1 bit wide, not 2", |b| b.input("s", 2).mux(b.zero(3), 1));
    trap!("1 bit wide, not 2", |b| b.reg("r", 3).when(b.input("s", 2), 1));
    trap!("1 bit wide, not 2", |b| b.when(b.input("s", 2), || ()));
    trap!("1 bit wide, not 2", |b| b.assert("p", b.input("s", 2)));
    trap!("only one bit is repeated", |b| b.input("s", 2).rep(4));
}

#[test]
fn zero_widths_and_slices_beyond_the_end_are_refused() {
    trap!("a slice of zero width", |b| b.input("a", 8).bits(3, 0));
    trap!("bits 7..9 of a signal of 8 bits", |b| b.input("a", 8).bits(7, 2));
    trap!("bits 8..9 of a signal of 8 bits", |b| b.input("a", 8).bit(8));
    trap!("zero width", |b| b.reg("r", 0));
    trap!("a port of zero width", |b| b.input("a", 0));
    trap!("zero width", |b| b.wire("w", 0));
    trap!("zero width", |b| b.lit(0, 0));
    trap!("field `x` of zero width", |_b| Layout::new([("x", 0)]));
    trap!("12 bits do not fit 8", |b| b.input("a", 12).zext(8));
    trap!("a concatenation of nothing", |b| b.cat(&[]));
    trap!("0 rows of 8 bits", |b| b.mem("m", 0, 8));
}

#[test]
fn literals_must_fit() {
    trap!("literal 256 does not fit 8 bits", |b| b.lit(256, 8));
    trap!("literal 256 does not fit 8 bits", |b| b.input("a", 8) + 256);
    trap!("literal -1 is negative", |b| b.input("a", 8) + -1);
    trap!("wide literal does not fit 65 bits", |b| b.litw(&[0, 2], 65));
    trap!("reset value 4 does not fit 2 bits", |b| b.reg_reset("r", 2, 4));
    trap!("two literals have no width", |b| b.input("s", 1).mux(1, 0));
}

#[test]
fn a_second_driver_is_refused_where_it_is_given() {
    check(line!() + 3, "`r` (made at hdl/rtl-graph/tests/traps.rs", |b| {
        let r = b.reg("r", 8);
        r.set(1);
        r.set(2);
    });
    check(line!() + 3, "is driven twice", |b| {
        let r = b.reg("r", 8);
        r.when(b.input("c", 1), 1);
        r.set_en(b.high(), 2);
    });
    check(line!() + 4, "`q.rx_data` (made at", |b| {
        let (s, t, q) = (Skid::at(b, "s", 4), Skid::at(b, "t", 4), Skid::at(b, "q", 4));
        b.connect(&s.tx, &q.rx);

        b.connect(&t.tx, &q.rx);
    });
}

#[test]
fn only_things_with_a_driver_to_come_are_assigned() {
    trap!("`a` is an input of this module", |b| b.input("a", 8).set(1));
    trap!("an expression cannot be assigned", |b| (b.input("a", 8) + 1).set(1));
    trap!("driven by the instance", |b| Skid::at(b, "s", 4).tx.data.set(1));
}

#[test]
fn streams_connected_the_wrong_way_are_refused_at_connect() {
    check(line!() + 3, "cannot flow this way", |b| {
        let tx: Axis = b.port("tx", false, &Axis::layout(4));
        let s = Skid::at(b, "s", 4);
        b.connect(&tx, &s.rx);
    });
    check(line!() + 2, "cannot flow this way", |b| {
        let (s, t) = (Skid::at(b, "s", 4), Skid::at(b, "t", 4));
        b.connect(&t.rx, &s.tx);
    });
    check(line!() + 2, "cannot flow this way", |b| {
        let (s, t) = (Skid::at(b, "s", 4), Skid::at(b, "t", 4));
        b.connect(&s.tx, &t.tx);
    });
    check(line!() + 2, "field `data` has 32 bits at one end and 64 at the other", |b| {
        let (s, t) = (Skid::at(b, "s", 4), Skid::at(b, "t", 8));
        b.connect(&s.tx, &t.rx);
    });
}

/// A fault found when the module is complete names the line that made the culprit.
#[track_caller]
fn late(made: u32, says: &str, body: impl FnOnce(&B)) {
    let (_, _, text) = fault(|| drop(Lib::new().module("t", body)));
    assert!(text.contains(says), "expected `{says}`, got `{text}`");
    assert!(text.contains(&format!("traps.rs:{made}:")), "line {made} is not named: `{text}`");
}

#[test]
fn what_is_never_driven_is_named_with_its_line() {
    late(line!() + 1, "output `o` of module `t` is not driven", |b| {
        b.output("o", 8);
    });
    late(line!() + 1, "wire `w` of module `t` is not driven", |b| {
        b.wire("w", 8);
    });
    late(line!() + 1, "register `r` of module `t` is never assigned", |b| {
        b.reg("r", 8);
    });
    late(line!() + 1, "output `o` of module `t` is driven only under conditions", |b| {
        b.output("o", 8).when(b.input("c", 1), 1);
    });
    late(line!() + 3, "input `q.rx_data` of module `t` is not driven", |b| {
        let (rx, tx): (Axis, Axis) = (b.port("rx", true, &Axis::layout(4)), b.port("tx", false, &Axis::layout(4)));
        let s = Skid::at(b, "s", 4);
        let q = Skid::at(b, "q", 4);
        b.connect(&rx, &s.rx);
        s.tx.ready.set(1);
        b.connect(&q.tx, &tx);
    });
    late(line!() + 1, "memory `m` of module `t` is never read", |b| {
        b.mem("m", 4, 8).write(b.high(), b.zero(2), b.zero(8));
    });
    late(line!() + 1, "memory `m` of module `t` is never written", |b| {
        b.output("o", 8).set(b.mem("m", 4, 8).read(b.zero(2)));
    });
}

#[test]
fn combinational_loops_are_found_within_a_module() {
    late(line!() + 1, "combinational loop in module `t`: ", |b| {
        let w = b.wire("w", 8);
        w.set(w + 1);
        b.output("o", 8).set(w);
    });
}

#[test]
fn combinational_loops_are_found_through_instances() {
    late(line!() + 1, "combinational loop in module `t`: ", |b| {
        let (x, y) = (Tap::at(b, "x"), Tap::at(b, "y"));
        b.connect(&x.tx, &y.rx);
        b.connect(&y.tx, &x.rx);
    });
    // The same ring with a stage in it that registers both ways is none.
    Lib::new().module("t", |b| {
        let (x, y) = (Tap::at(b, "x"), Half::at(b, "y"));
        b.connect(&x.tx, &y.rx);
        b.connect(&y.tx, &x.rx);
    });
}

#[test]
fn streams_packed_into_one_vector_port_are_reported_as_a_loop() {
    let lib = Lib::new();
    let leaf = lib.module("vector_leaf", |b| {
        let (x, y) = (b.input("x", 1), b.input("y", 1));
        b.output("r", 2).set(y.cat(x));
    });
    let (_, _, text) = fault(|| {
        lib.module("t", |b| {
            let u = b.instance("u", &leaf);
            let r: S = u.port("r");
            u.port::<S>("x").set(b.input("x", 1));
            u.port::<S>("y").set(r.bit(0));
            b.output("z", 1).set(r.bit(1));
        });
    });
    assert!(text.contains("combinational loop in module `t`: ") && text.contains("`u_r`"), "{text}");
}

#[derive(Debug)]
struct Hidden(u32);
impl ModuleParam for Hidden {
    fn tag(&self) -> String {
        String::new()
    }
}

module! {
    /// A module whose name does not tell its parameter.
    pub struct Forgetful(p: &Hidden) { q: out Uint(8) }
    |b| { q.set(b.lit(p.0 as u64, 8)); }
}

#[test]
fn a_parameter_missing_in_the_name_is_found_where_the_second_module_is_asked_for() {
    check(line!() + 3, "two different modules are named `forgetful`", |b| {
        Forgetful::at(b, "x", &Hidden(1));
        Forgetful::at(b, "y", &Hidden(1));
        Forgetful::at(b, "z", &Hidden(2));
    });
    let lib = Lib::new();
    lib.module("m", |b| b.output("q", 8).set(1));
    lib.module("m", |b| b.output("q", 8).set(1));
    let (_, line, text) = fault(|| drop(lib.module("m", |b| b.output("q", 8).set(2))));
    assert!(text.contains("two different modules are named `m`") && text.contains("8'h1"), "{text}");
    assert_eq!(line, line!() - 2);
}

#[test]
fn names_that_a_tool_would_stumble_over_are_refused() {
    trap!("`rx$data` is no name", |b| b.input("rx$data", 8));
    trap!("`a b` is no name", |b| b.reg("a b", 8));
    trap!("`1a` is no name", |b| b.wire("1a", 8));
    trap!("`reg` is a word of Verilog", |b| b.input("reg", 8));
    trap!("`priority` is a word of Verilog", |b| (b.input("a", 8) + 1).named("priority"));
    trap!("kept for made-up names", |b| b.reg("a__b", 8));
    trap!("the name `a` is taken", |b| [b.input("a", 8), b.input("a", 8)]);
    trap!("the name `s` is taken", |b| (Skid::at(b, "s", 4), Skid::at(b, "s", 4)));
}

#[test]
fn signals_do_not_cross_between_modules() {
    let (_, _, text) = fault(|| {
        let lib = Lib::new();
        lib.module("outer", |b| {
            let x = b.input("x", 1);
            lib.module("inner", |c| {
                // Safe Rust lets both builders be in reach here; the library does not.
                let mix = |s: S| c.cat(&[c.low(), c.low()]).bit(0).width() + s.width();
                assert_eq!(mix(x), 2);
                c.output("q", 1).set(c.input("y", 1));
            });
            lib.module("outer", |_| ());
        });
    });
    assert!(text.contains("module `outer` contains itself"), "{text}");
}

#[test]
fn memories_check_addresses_rows_and_lanes() {
    trap!("needs 3 address bits, not 4", |b| b.mem("m", 8, 8).read(b.input("a", 4)));
    trap!("needs 3 address bits, not 2", |b| b.mem("m", 5, 8).read_async(b.input("a", 2)));
    trap!("rows of 8 bits, not 9", |b| b.mem("m", 8, 8).write(b.high(), b.zero(3), b.zero(9)));
    trap!("3 lane enables", |b| b.mem("m", 8, 8).write_lanes(b.high(), b.zero(3), b.zero(8), b.zero(3)));
    trap!("9 initial rows for a memory of 8", |b| b.mem("m", 8, 8).init(vec![vec![0]; 9]));
    trap!("wide literal does not fit 8 bits", |b| b.mem("m", 8, 8).init(vec![vec![256]]));
}

#[test]
fn records_and_machines_check_their_names() {
    trap!("no field `y` among [\"x\"]", |b| Layout::new([("x", 8)]).get(b.zero(8), "y"));
    trap!("9 bits where the layout has 8", |b| Layout::new([("x", 8)]).get(b.zero(9), "x"));
    trap!("two fields named `x`", |_b| Layout::new([("x", 8), ("x", 8)]));
    trap!("no state `gone` among", |b| b.fsm("state", &["idle", "busy"]).is("gone"));
    trap!("no field `nothing` in this bundle", |b| Skid::at(b, "s", 4).rx.field("nothing"));
    trap!("has no port `nothing`", |b| Skid::at(b, "s", 4).inst.port::<S>("nothing"));
    trap!("has no clock domain `eth`", |b| Skid::at(b, "s", 4).inst.clock("eth", b.domain("eth")));
}

#[test]
fn the_interpreter_refuses_what_does_not_exist() {
    let d = Skid::def(&Lib::new(), 4);
    let at = |f: &dyn Fn(&mut Sim)| fault(|| f(&mut d.sim()));
    let (_, line, text) = at(&|s| s.poke("nothing", 1));
    assert!(text.contains("no port or net `nothing`"), "{text}");
    assert_eq!(line, line!() - 2);
    assert!(at(&|s| s.poke("tx_data", 1)).2.contains("only input ports are set"));
    assert!(at(&|s| s.poke("rx_last", 2)).2.contains("does not fit 1 bits"));
    assert!(at(&|s| s.clock_domains(&["eth"])).2.contains("no clock domain `eth`"));
}
