//! Shifts what was read from memory so that the first byte asked for stands in byte 0.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `span` | [`ReadSpan`] | valid/ready | what the next beats of memory are |
//! | `beat` | [`MemBeat`] | valid/ready | beats as the bus delivered them |
//! | `data` | [`ReadBeat`] | valid/ready | aligned beats, registered; bytes whose `keep` is 0 are undefined |
//!
//! A read of `len` bytes at offset `off` of a line takes ⌈(off + len) / 64⌉ beats in and gives ⌈len / 64⌉ beats out, and
//! at least one: a read of 0 bytes is one empty last beat. `error` with the last beat is the or of the errors of all
//! beats. Latency 3 cycles from the last beat needed. Throughput 1 beat per cycle in or out, the next read without a gap.
//! Reset empties it. State: three beats of registers. Drops: none.

use crate::{
    prim::lanes::len_keep,
    stream::{ReadBeat, BEAT_BYTES},
};
use rtl_graph::*;

use super::split::RUN_BITS;

record! {
    /// Where in the lines of memory a read's bytes are.
    pub struct ReadSpan {
        /// Offset of the first byte in the first line. Bytes.
        offset: 6,
        /// Bytes of the last aligned beat, 1..=64; 0 for an empty read.
        tail: 7,
        /// Lines; 0 for an empty read.
        beats: RUN_BITS,
        /// As many aligned beats as lines; otherwise one less.
        owed: 1,
    }
}

record! {
    /// A line of memory.
    pub struct MemBeat { data: 8 * BEAT_BYTES, error: 1 }
}

/// The bus rotated by `offset` bytes, `offset` → byte 0.
fn rotate_down<'a>(data: S<'a>, offset: S<'a>) -> S<'a> {
    (0..offset.width()).fold(data, |x, k| offset.bit(k).mux(x.rotr(8 << k), x))
}

/// Bytes of `a` where `mask` is 1, else of `c`.
pub(super) fn select_bytes<'a>(mask: S<'a>, a: S<'a>, c: S<'a>) -> S<'a> {
    let parts: Vec<S> = (0..mask.width()).rev().map(|i| mask.bit(i).mux(a.bits(8 * i, 8), c.bits(8 * i, 8))).collect();
    mask.builder().cat(&parts)
}

module! {
    /// Aligner of reads.
    pub struct ReadAlign = "nic_dma_read_align" () {
        span: in Stream<ReadSpan>,
        beat: in Stream<MemBeat>,
        data: out Stream<ReadBeat>,
    } |b| {
        let out_valid = b.reg_reset("out_valid", 1, 0);
        let out_free = (!out_valid | data.ready).named("out_free");

        // s1: one line, rotated, with what is known of its read.
        let s1_valid = b.reg_reset("s1_valid", 1, 0);
        let s1_free = (!s1_valid | out_free).named("s1_free");
        let (mid, left) = (b.reg_reset("s0_mid", 1, 0), b.reg("s0_left", RUN_BITS));
        let is_empty = span.data.beats.is_zero().named("s0_empty");
        let now_left = mid.mux(left, span.data.beats);
        let is_last = (is_empty | now_left.eq(1)).named("s0_last");
        let go = (span.valid & (is_empty | beat.valid) & s1_free).named("s0_go");
        beat.ready.set(span.valid & !is_empty & s1_free);
        span.ready.set(go & is_last);
        mid.set_en(go, !is_last);
        left.set_en(go, now_left.dec());

        s1_valid.set_en(s1_free, go);
        let s1 = |name: &str, value: S| {
            let r = b.reg(&format!("s1_{name}"), value.width());
            r.set_en(go, value);
            r
        };
        let line = s1("line", rotate_down(beat.data.data, span.data.offset));
        let first = s1("first", !mid);
        let last = s1("last", is_last);
        let owed = s1("owed", is_empty | span.data.owed);
        let tail = s1("tail", span.data.tail);
        let line_error = s1("error", !is_empty & beat.data.error);
        // Byte i of an aligned beat comes from the earlier of its two lines when offset + i < 64.
        let from_first: Vec<S> =
            (0..BEAT_BYTES).rev().map(|i| if i == 0 { b.high() } else { span.data.offset.le(BEAT_BYTES - 1 - i) }).collect();
        let from_first = s1("from_first", b.cat(&from_first));

        // s2: the line before, waiting for its successor, or for nothing when it is `complete`.
        let (hold_valid, complete) = (b.reg_reset("s2_valid", 1, 0), b.reg("s2_complete", 1));
        let (hold, hold_tail, hold_error) =
            (b.reg("s2_line", 8 * BEAT_BYTES), b.reg("s2_tail", 7), b.reg("s2_error", 1));
        let take = (s1_valid & out_free).named("s2_take");
        let flush = (hold_valid & complete).named("s2_flush");
        let join = (hold_valid & !complete & s1_valid).named("s2_join");
        let ends_here = (join & last & !owed).named("s2_ends");
        let error = (!first & hold_error) | line_error;
        hold_valid.set_en(out_free, take.mux(!ends_here, hold_valid & !complete));
        hold.set_en(take, line);
        complete.set_en(take, last);
        hold_tail.set_en(take, tail);
        hold_error.set_en(take, error);

        // Output register.
        let emit = (out_free & (flush | join)).named("emit");
        out_valid.set_en(out_free, flush | join);
        let out_last = (flush | ends_here).named("out_is_last");
        let keep = out_last.mux(len_keep(flush.mux(hold_tail, tail), BEAT_BYTES), b.ones(BEAT_BYTES));
        let beat_out = ReadBeat {
            data: select_bytes(from_first | flush.rep(BEAT_BYTES), hold, line),
            keep,
            last: out_last,
            error: out_last & flush.mux(hold_error, error),
        };
        data.put(out_valid, &beat_out.reg_en("out", emit));

        b.assert("a_read_begins_where_the_one_before_ended", !take | !first | !hold_valid | complete);
        b.assert("the_last_line_ends_the_read", !take | !hold_valid | complete | !first);
        b.cover("waits_for_a_line", hold_valid & !complete & !s1_valid);
        b.cover("flush_and_load_together", flush & take);
    }
}
