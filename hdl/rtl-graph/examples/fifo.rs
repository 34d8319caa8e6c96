//! A FIFO over any stream's payload, with the invariants that prove it. Prints its Verilog.
use rtl_graph::*;

module! {
    /// Queue of `2^depth_log2` words in LUT RAM; a word shows at the output the cycle after it went in.
    ///
    /// `watch` belongs to the proof: it names any one place in the sequence of words (its low bits the row), and the
    /// assertions say that the word put in there is the word taken out there. Tie it to 0 elsewhere; what hangs on it
    /// drives nothing and synthesis removes it.
    pub struct Fifo(width: u32, depth_log2: u32) {
        rx: in Stream<Raw>(Raw::layout(width)),
        tx: out Stream<Raw>(Raw::layout(width)),
        level: out Uint(depth_log2 + 1),
        watch: in Uint(depth_log2 + 1),
    }
    |b| {
        let n = depth_log2;
        let (wr, rd) = (b.reg_reset("wr", n + 1, 0), b.reg_reset("rd", n + 1, 0));
        let held = (wr - rd).named("held");
        rx.ready.set(!held.msb());
        tx.valid.set(held.any());
        level.set(held);
        let rows = b.mem("rows", 1 << n, width).style(RamStyle::Distributed);
        rows.write(rx.fire(), wr.trunc(n), rx.data.data);
        tx.data.data.set(rows.read_async(rd.trunc(n)));
        wr.set_en(rx.fire(), wr + 1);
        rd.set_en(tx.fire(), rd + 1);

        b.assert("held_fits", held.le(1u64 << n));
        let before = b.reg("watch_before", n + 1);
        before.set(watch);
        b.assume("watch_stays", watch.eq(before));
        let is_inside = b.reg_reset("is_inside", 1, 0);
        let copy = b.reg("copy", width);
        b.when(rx.fire() & wr.eq(watch), || {
            is_inside.set(1);
            copy.set(rx.data.data);
        });
        b.when(tx.fire() & rd.eq(watch), || is_inside.set(0));
        b.assert("inside_between_the_pointers", is_inside.eq((watch - rd).lt(held)));
        b.when(is_inside, || {
            b.assert("row_holds_the_word", rows.read_async(watch.trunc(n)).eq(copy));
            b.assert("word_comes_out", tx.data.data.eq(copy) | rd.ne(watch));
        });
        b.cover("full", held.msb());
    }
}

#[allow(dead_code)]
fn main() {
    println!("{}", Fifo::def(&Lib::new(), 8, 4).verilog());
}

#[test]
fn words_come_out_in_order() {
    let mut s = Fifo::def(&Lib::new(), 16, 2).sim();
    s.reset(1);
    let (mut sent, mut got) = (0, 0);
    for cycle in 0u64..200 {
        // Bursts that fill it and drain it.
        s.poke("rx_valid", (cycle / 7 % 2 == 0) as u64);
        s.poke("tx_ready", (cycle / 5 % 2 == 0) as u64);
        s.poke("rx_data", sent);
        assert_eq!(s.peek("level"), sent - got);
        sent += s.peek("rx_valid") & s.peek("rx_ready");
        if s.peek("tx_valid") & s.peek("tx_ready") == 1 {
            assert_eq!(s.peek("tx_data"), got);
            got += 1;
        }
        s.clock();
    }
    assert!(got > 60 && s.covered("full") > 0);
}
