//! FIFO between two clocks.
//!
//! | port | clock | width | handshake | meaning |
//! |---|---|---|---|---|
//! | `rx` | `wr` | `width` | valid/ready | words in |
//! | `tx` | `rd` | `width` | valid/ready | words out, in order |
//!
//! Rows stand in LUT RAM; the pointers cross as Gray codes through two flip-flops a bit. `ready` and `valid` are
//! registers. Latency: one `wr` clock, then three to four `rd` clocks. 1 word a clock of the slower side, if the rows
//! cover the pointers' round trip of about four clocks of each side. Both resets must be asserted together, for as long
//! as both clocks need to see them. State: `2^depth_log2` rows. Drops: none.
use crate::{module, RamStyle, Raw, Stream, Uint, B, S};

module! {
    /// Queue of `2^depth_log2` words (`depth_log2` at least 2) from the clock `wr` to the clock `rd`.
    pub struct AsyncFifo(width: u32, depth_log2: u32) clocks(wr, rd) {
        rx: in Stream<Raw>(Raw::layout(width)),
        tx: out Stream<Raw>(Raw::layout(width)),
        /// Rows taken as the writer sees it, which may be late to notice reads.
        wr_level: out Uint(depth_log2 + 1),
    } |b| {
        assert!(depth_log2 >= 2, "an asynchronous FIFO has at least 4 rows");
        let n = depth_log2;
        let (wr, rd) = (b.domain("wr"), b.domain("rd"));
        let rows = b.mem("rows", 1 << n, width).style(RamStyle::Distributed);
        let wr_gray = b.in_domain(wr, || b.reg_reset("wr_gray", n + 1, 0));
        let rd_gray = b.in_domain(rd, || b.reg_reset("rd_gray", n + 1, 0));
        b.in_domain(wr, || {
            let at = b.reg_reset("wr_at", n + 1, 0);
            let is_open = b.reg_reset("wr_is_open", 1, 0);
            let seen = crossed(b, "wr_sees", rd_gray);
            let push = rx.valid & is_open;
            let next = push.mux(at + 1, at).named("wr_next");
            at.set(next);
            wr_gray.set(gray(next));
            rows.write(push, at.trunc(n), rx.data.data);
            let level = (next - binary(seen)).named("wr_level_next");
            is_open.set(!level.msb());
            let shown = b.reg_reset("wr_level_shown", n + 1, 0);
            shown.set(level);
            wr_level.set(shown);
            rx.ready.set(is_open);
            b.assert("wr_never_overflows", level.le(1u64 << n));
        });
        b.in_domain(rd, || {
            let at = b.reg_reset("rd_at", n + 1, 0);
            let is_full = b.reg_reset("rd_is_valid", 1, 0);
            let seen = crossed(b, "rd_sees", wr_gray);
            let pop = is_full & tx.ready;
            let next = pop.mux(at + 1, at).named("rd_next");
            at.set(next);
            rd_gray.set(gray(next));
            is_full.set(seen.ne(gray(next)));
            // The row was written before the pointer that covers it could cross.
            tx.data.data.set(rows.read_async(at.trunc(n)).crossing());
            tx.valid.set(is_full);
            b.assert("rd_never_underflows", (binary(seen) - at).le(1u64 << n));
        });
    }
}

fn crossed<'a>(b: &'a B, name: &str, gray: S<'a>) -> S<'a> {
    let bits: Vec<S> = (0..gray.w).rev().map(|k| b.synchronized(&format!("{name}_{k}"), gray.bit(k))).collect();
    b.cat(&bits)
}

fn gray(x: S) -> S {
    x ^ x.shr(1)
}

fn binary(g: S) -> S {
    let bits: Vec<S> = (0..g.w).rev().map(|k| g.bits(k, g.w - k).xor()).collect();
    g.b.cat(&bits)
}
