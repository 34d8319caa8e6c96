//! Headers and payload to the beats of a frame, with room for its ICRC.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `header` | [`Header`] | valid/ready | one a frame |
//! | `payload` | [`PayloadBeat`] | valid/ready | its payload, all of it there, bytes beyond the end zero |
//! | `frame` | [`FrameBeat`] | valid/ready | the frame; pad and ICRC are zero |
//! | `sent` | 2 | | a beat has gone; and with a frame's last, that it was one fewer than reckoned |
//! | `count_frames`, `count_bytes` | [`Count`] | valid only | `tx_frames_count`, `tx_bytes` |
//!
//! Latency 2 cycles; 1 beat per cycle, without a gap between frames. Reset drops what is under way. Drops: none.
//!
//! Beat 0 is headers. Beat 1 is the rest of the headers and, shifted behind them, the first payload; each later beat is
//! the upper part of one payload beat and the lower part of the next. There are as many shifts as lengths of headers,
//! so the shifter is one selection. Headers without payload may fill a third beat.

use super::{
    header::{header_bytes, payload_shifts, Header},
    payload::PayloadBeat,
};
use crate::{rx::chain::BEAT_BYTES, stream::Count};
use nic_spec::csr::stats::Counter;
use rtl_graph::*;

/// Bits of a beat.
const BITS: u32 = 8 * BEAT_BYTES as u32;
/// Bits that say how many bytes of a beat belong to the frame: 1..=64.
pub const FILL_BITS: u32 = 7;

record! {
    /// A beat of a frame that is to be sent.
    pub struct FrameBeat {
        /// The bytes, zero behind the end.
        data: BITS,
        /// Bytes that belong to the frame: 64 but in the last beat.
        fill: FILL_BITS,
        first: 1,
        last: 1,
        /// IPv6 rather than IPv4.
        is_ipv6: 1,
    }
}

module! {
    /// Puts frames together.
    pub struct Merge = "nic_tx_merge" () {
        header: in Stream<Header>,
        payload: in Stream<PayloadBeat>,
        frame: out Stream<FrameBeat>,
        sent: out Uint(2),
        count_frames: out Count,
        count_bytes: out Count,
    } |b| {
        let h = header.data;

        // m0: the next beat of the frame whose header stands at the queue's head.
        let index = b.reg_reset("index", 8, 0);
        let is_first = index.is_zero().named("is_first");
        let is_last = (index + 1).eq(h.frame_beats).named("is_last");
        // Payload beat `index - 1` goes with frame beat `index`.
        let wants = (!is_first & index.le(h.payload_beats)).named("wants_payload");
        let has_payload = h.payload_beats.any();
        // A frame does not begin before its payload shows, so that it has no gap.
        let must_see = is_first.mux(has_payload, wants).named("must_see_payload");
        let may_go = b.wire("m1_free", 1);
        let go = (header.valid & (!must_see | payload.valid) & may_go).named("go");
        index.set_en(go, is_last.mux(0, index.inc()));
        header.ready.set(go & is_last);
        payload.ready.set(go & wants);
        sent.set((is_last & h.spare & go).cat(go));

        // m1: header bytes and payload side by side.
        let m1_valid = b.reg_reset("m1_valid", 1, 0);
        let m2_free = b.wire("m2_free", 1);
        may_go.set(!m1_valid | m2_free);
        m1_valid.set_en(may_go, go);
        let of_header = header_beats(b, h.bytes);
        let by_index: Vec<(S, S)> = of_header.iter().zip(0u64..).map(|(beat, k)| (index.eq(k), *beat)).collect();
        let m1_header = held("m1_header", go, b.one_hot_select(&by_index));
        let m1_payload = held("m1_payload", go, wants.mux(payload.data.data, b.zero(BITS)));
        let m1_before = held("m1_before", go, index.le(1).mux(b.zero(BITS), m1_payload));
        let m1_shift = held("m1_shift", go, h.shift);
        let m1_first = held("m1_first", go, is_first);
        let m1_last = held("m1_last", go, is_last);
        let rest = h.frame_len.trunc(6);
        let fill = (is_last & rest.any()).mux(rest.zext(FILL_BITS), BEAT_BYTES);
        let m1_fill = held("m1_fill", go, fill);
        let m1_is_ipv6 = held("m1_is_ipv6", go, h.is_ipv6);

        // m2: one beat.
        let m2_valid = b.reg_reset("m2_valid", 1, 0);
        m2_free.set(!m2_valid | frame.ready);
        m2_valid.set_en(m2_free, m1_valid);
        let window = m1_payload.cat(m1_before);
        let shifts = payload_shifts();
        let arms: Vec<(S, S)> =
            shifts.iter().zip(0..).map(|(s, k)| (m1_shift.bit(k), window.bits(BITS - 8 * s, BITS))).collect();
        let beat = FrameBeat {
            data: m1_header | b.one_hot_select(&arms),
            fill: m1_fill,
            first: m1_first,
            last: m1_last,
            is_ipv6: m1_is_ipv6,
        };
        frame.put(m2_valid, &beat.reg_en("m2", m2_free));

        let ends = (go & is_last).named("ends");
        count_frames.drive(b, &[(ends, Counter::TxFrames)]);
        count_bytes.drive_amounts(b, &[(ends, b.lit(Counter::TxBytes.code().into(), 8), h.frame_len.zext(16))]);
        b.assert("payload_ends_with_the_packet", !(go & wants) | payload.data.last.eq(index.eq(h.payload_beats)));
    }
}

/// Header bytes by beats, the last one filled up with zeros.
fn header_beats<'a>(b: &'a B, bytes: S<'a>) -> Vec<S<'a>> {
    let count = header_bytes().div_ceil(BEAT_BYTES) as u32;
    let missing = count * BITS - bytes.width();
    let filled = if missing == 0 { bytes } else { b.zero(missing).cat(bytes) };
    filled.chunks(BITS)
}

/// Register that takes `value` when `en` is 1.
fn held<'a>(name: &str, en: S<'a>, value: S<'a>) -> S<'a> {
    let r = value.builder().reg(name, value.width());
    r.set_en(en, value);
    r
}
