//! Shifts data that begins at byte 0 to the byte of memory where it belongs, with strobes.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `span` | [`WriteSpan`] | valid/ready | where the next beats of data go |
//! | `beat` | [`Beat`] | valid/ready | data; `keep` is not looked at, the span says how much there is |
//! | `line` | [`LineWrite`] | valid/ready | lines of memory with strobes, registered; bytes without strobe are undefined |
//!
//! A write of `len` bytes at offset `off` of a line takes ⌈len / 64⌉ beats in and gives ⌈(off + len) / 64⌉ lines out.
//! Latency 2 cycles; 1 line per cycle, the next write without a gap. Reset empties it. State: three beats of registers.
//! Drops: none.

use super::{read_align::select_bytes, split::RUN_BITS};
use crate::{
    prim::lanes::len_keep,
    stream::{Beat, BEAT_BYTES},
};
use rtl_graph::*;

record! {
    /// Where in the lines of memory a write's bytes go.
    pub struct WriteSpan {
        /// Offset of the first byte in the first line. Bytes.
        offset: 6,
        /// Bytes of the last line that are up to the end of the write, modulo 64.
        tail: 6,
        /// Beats of data, not 0.
        beats: RUN_BITS,
        /// One line more than beats; otherwise as many.
        owed: 1,
    }
}

record! {
    /// A line to write.
    pub struct LineWrite { data: 8 * BEAT_BYTES, strb: BEAT_BYTES }
}

/// The bus rotated by `offset` bytes, byte 0 → `offset`.
fn rotate_up<'a>(data: S<'a>, offset: S<'a>) -> S<'a> {
    (0..offset.width()).fold(data, |x, k| offset.bit(k).mux(x.rotl(8 << k), x))
}

module! {
    /// Aligner of writes.
    pub struct WriteAlign = "nic_dma_write_align" () {
        span: in Stream<WriteSpan>,
        beat: in Stream<Beat>,
        line: out Stream<LineWrite>,
    } |b| {
        let out_valid = b.reg_reset("out_valid", 1, 0);
        let out_free = (!out_valid | line.ready).named("out_free");
        // The last beat of a write left bytes for one more line.
        let flush = b.reg_reset("s2_flush", 1, 0);

        // s1: one beat, rotated.
        let s1_valid = b.reg_reset("s1_valid", 1, 0);
        let s1_free = (!s1_valid | (out_free & !flush)).named("s1_free");
        let (mid, left) = (b.reg_reset("s0_mid", 1, 0), b.reg("s0_left", RUN_BITS));
        let now_left = mid.mux(left, span.data.beats);
        let is_last = now_left.eq(1).named("s0_last");
        let go = (span.valid & beat.valid & s1_free).named("s0_go");
        beat.ready.set(span.valid & s1_free);
        span.ready.set(go & is_last);
        mid.set_en(go, !is_last);
        left.set_en(go, now_left.dec());

        s1_valid.set_en(s1_free, go);
        let s1 = |name: &str, value: S| {
            let r = b.reg(&format!("s1_{name}"), value.width());
            r.set_en(go, value);
            r
        };
        let rotated = s1("data", rotate_up(beat.data.data, span.data.offset));
        let first = s1("first", !mid);
        let last = s1("last", is_last);
        let owed = s1("owed", span.data.owed);
        let below = s1("below", len_keep(span.data.offset, BEAT_BYTES));
        let tail = span.data.tail;
        let up_to_end = s1("up_to_end", tail.is_zero().mux(b.ones(BEAT_BYTES), len_keep(tail, BEAT_BYTES)));

        // s2: what is left of the beat before, and the output register.
        let take = (s1_valid & out_free & !flush).named("s2_take");
        let (rest, rest_end) = (b.reg("s2_rest", 8 * BEAT_BYTES), b.reg("s2_end", BEAT_BYTES));
        rest.set_en(take, rotated);
        rest_end.set_en(take, up_to_end);
        flush.set_en(out_free, take & last & owed);
        let emit = (out_free & (flush | s1_valid)).named("emit");
        out_valid.set_en(out_free, flush | s1_valid);
        let from = (!flush & first).mux(!below, b.ones(BEAT_BYTES));
        let to = flush.mux(rest_end, (last & !owed).mux(up_to_end, b.ones(BEAT_BYTES)));
        let out = LineWrite { data: select_bytes(below | flush.rep(BEAT_BYTES), rest, rotated), strb: from & to };
        line.put(out_valid, &out.reg_en("out", emit));

        b.assert("a_write_has_beats", !span.valid | span.data.beats.any());
        b.assert("last_stands_where_the_length_says", !go | beat.data.last.eq(is_last));
        b.cover("flush", flush);
    }
}
