//! Headers and payload to the beats of a frame, with room for its ICRC.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `header` | [`Header`] | valid/ready | one a frame |
//! | `payload` | [`PayloadBeat`] | valid/ready | its payload, all of it there, bytes beyond the end zero |
//! | `room` | 1 | | a beat may be sent, with all that is under way |
//! | `frame` | [`FrameBeats`] | valid only | the frame, 2 cycles after `room`; pad and ICRC are zero |
//! | `sent` | 2 | | a beat has gone; and with a frame's last, that it was one fewer than reckoned |
//! | `count_frames`, `count_bytes` | [`Count`] | valid only | `tx_frames_count`, `tx_bytes` |
//!
//! Latency [`MERGE_LATENCY`] cycles; 1 beat per cycle, without a gap between frames. Reset drops what is under way.
//! Drops: none.
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

/// Cycles from the decision to send a beat to the beat.
pub const MERGE_LATENCY: u32 = 2;

bundle! {
    /// Beats of frames to be sent: one may come every cycle and nobody can stop it.
    pub struct FrameBeats {
        fwd
        /// The bytes, zero behind the end.
        data: BITS,
        /// Bytes that belong to the frame: 64 but in the last beat.
        fill: FILL_BITS,
        /// First beat of a frame.
        first: 1,
        /// Last beat of a frame.
        last: 1,
        /// IPv6 rather than IPv4.
        is_ipv6: 1,
        /// A beat is there.
        valid: 1
    }
}

module! {
    /// Puts frames together.
    pub struct Merge = "nic_tx_merge" () {
        header: in Stream<Header>,
        payload: in Stream<PayloadBeat>,
        room: in Uint(1),
        frame: out FrameBeats,
        sent: out Uint(2),
        count_frames: out Count,
        count_bytes: out Count,
    } |b| {
        let h = header.data;

        // m0: the next beat of the frame whose header stands at the queue's head.
        let index = b.reg_reset("index", 8, 0);
        let is_first = index.is_zero().named("is_first");
        let is_last = index.eq(h.last_beat).named("is_last");
        // Payload beat `index - 1` goes with frame beat `index`.
        let wants = (!is_first & index.le(h.payload_beats)).named("wants_payload");
        let has_payload = h.payload_beats.any();
        // A frame does not begin before its payload shows, so that it has no gap.
        let must_see = is_first.mux(has_payload, wants).named("must_see_payload");
        let go = (header.valid & (!must_see | payload.valid) & room).named("go");
        index.set_en(go, is_last.mux(0, index.inc()));
        header.ready.set(go & is_last);
        payload.ready.set(go & wants);
        sent.set((is_last & h.spare & go).cat(go));

        // m1: header bytes and payload side by side.
        let of_header = header_beats(b, h.bytes);
        let by_index: Vec<(S, S)> = of_header.iter().zip(0u64..).map(|(beat, k)| (index.eq(k), *beat)).collect();
        let m1_header = b.one_hot_select(&by_index).delay("m1_header", 1);
        // The payload stays for the next beat, however long that takes.
        let m1_payload = b.reg("m1_payload", BITS);
        let m1_before = b.reg("m1_before", BITS);
        m1_payload.set_en(go, wants.mux(payload.data.data, b.zero(BITS)));
        m1_before.set_en(go, index.le(1).mux(b.zero(BITS), m1_payload));
        let m1_shift = h.shift.delay("m1_shift", 1);
        let rest = h.frame_len.trunc(6);
        let m1_fill = (is_last & rest.any()).mux(rest.zext(FILL_BITS), BEAT_BYTES).delay("m1_fill", 1);

        // m2: one beat.
        let window = m1_payload.cat(m1_before);
        let shifts = payload_shifts();
        let arms: Vec<(S, S)> =
            shifts.iter().zip(0..).map(|(s, k)| (m1_shift.bit(k), window.bits(BITS - 8 * s, BITS))).collect();
        frame.valid.set(go.delay_reset("valid", MERGE_LATENCY));
        frame.data.set((m1_header | b.one_hot_select(&arms)).delay("m2_data", 1));
        frame.fill.set(m1_fill.delay("m2_fill", 1));
        frame.first.set(is_first.delay("first", MERGE_LATENCY));
        frame.last.set(is_last.delay("last", MERGE_LATENCY));
        frame.is_ipv6.set(h.is_ipv6.delay("is_ipv6", MERGE_LATENCY));

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
