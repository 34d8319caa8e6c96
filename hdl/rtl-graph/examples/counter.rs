//! A counter: ports, a register with reset, conditional assignments, an assertion. Prints its Verilog.
use rtl_graph::*;

module! {
    /// Counts `up` pulses from 0 to `limit`, then starts again; `clear` wins.
    pub struct Counter(limit: u32) { up: in Uint(1), clear: in Uint(1), count: out Uint(count_bits(limit.into())), wraps: out Uint(1) }
    |b| {
        let n = b.reg_reset("n", count.width(), 0);
        let is_last = n.eq(limit).named("is_last");
        b.when(up, || n.set(is_last.mux(0, n + 1)));
        n.when(clear, 0); // later assignments win
        count.set(n);
        wraps.set(up & is_last & !clear);
        b.assert("n_is_within_limit", n.le(limit));
    }
}

fn main() {
    println!("{}", Counter::def(&Lib::new(), 9).verilog());
}

#[test]
fn counter_wraps_behind_its_limit() {
    let mut s = Counter::def(&Lib::new(), 9).sim();
    s.reset(1);
    s.poke("up", 1);
    s.poke("clear", 0);
    for cycle in 0..25 {
        assert_eq!((s.peek("count"), s.peek("wraps")), (cycle % 10, (cycle % 10 == 9) as u64));
        s.clock();
    }
    s.poke("clear", 1);
    s.clock();
    assert_eq!(s.peek("count"), 0);
}
