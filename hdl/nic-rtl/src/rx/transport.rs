//! UDP, BTH, PXTH and what follows them up to the payload.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `valid`, `data`, `first`, `last` | 1, 512, 1, 1 | valid only | frames that begin with UDP |
//! | `dport` | 16 | | UDP destination port accepted |
//! | `next_*` | the same, and `next_select` | valid only | the frames again, 1 cycle later, with the place of the payload (one-hot over [`payload_offsets`]; zero without payload) |
//! | `facts` | [`TransportFacts`] | | held from [`TRANSPORT_FACTS_LATENCY`] cycles after a frame's first beat on |
//! | `headers` | [`HEADER_BITS`] | | bytes from UDP on, held from [`TRANSPORT_HEADERS_LATENCY`] cycles after the beat that carries them |
//! | `chain` | one a [`Chain`](super::chain::Chain) | | one-hot, with `headers` |
//!
//! 1 beat per cycle. Reset clears the valid bits. State: registers, two header beats. Conditions for
//! `rx_other_udp_port_count`, `rx_bad_tver_count`, `rx_unknown_opcode_count`, `rx_unsupported_opcode_count`,
//! `rx_truncated_count`, `rx_bad_length_count`, `rx_too_long_count` come from here.

use super::chain::{chains, slices, BEAT_BYTES, BTH_OFFSET, EXT_OFFSET, OPCODES};
use super::front::BEAT_BITS;
use super::timing::{TRANSPORT_FACTS_LATENCY, TRANSPORT_HEADERS_LATENCY};
use crate::prim::lanes::gather;
use nic_spec::{
    consts::{ICRC_BYTES, PMTU_BYTES_MAX, TVER},
    wire::{opcode, Bth, Udp},
};
use rtl_graph::*;

/// Bits kept of the headers: from UDP to the end of the longest chain.
pub fn header_bits() -> u32 {
    8 * chains().iter().map(|c| c.len_bytes()).max().unwrap_or(EXT_OFFSET) as u32
}

/// Chains that the opcode table allows this card.
fn chain_count() -> u32 {
    chains().len() as u32
}

/// First bytes of payload from UDP on, over all chains, ascending.
pub fn payload_offsets() -> Vec<u32> {
    let mut all: Vec<u32> = chains().iter().filter(|c| c.has_payload()).map(|c| c.len_bytes() as u32).collect();
    all.sort();
    all.dedup();
    all
}

bundle! {
    /// What the headers from UDP on tell of a frame, besides their fields.
    pub struct TransportFacts {
        fwd
        /// UDP length. Bytes.
        udp_len: 16,
        /// Bytes of payload; only of a frame without a condition below.
        payload_len: 14,
        /// Beats of payload; 0 when `payload_len` means nothing.
        payload_beats: 8,
        /// Another UDP destination port.
        other_port: 1,
        /// The UDP datagram ends before PXTH and the ICRC.
        short_headers: 1,
        /// Another version of the transport header.
        bad_tver: 1,
        /// The opcode table has no such opcode.
        unknown_opcode: 1,
        /// An opcode that this card does not implement.
        unsupported_opcode: 1,
        /// The UDP datagram ends before the opcode's headers and the ICRC.
        short_chain: 1,
        /// Content and pad do not agree with the opcode or with each other.
        bad_length: 1,
        /// More payload than the largest PMTU.
        too_long: 1
    }
}

module! {
    /// Transport headers.
    pub struct Transport = "nic_rx_transport" () {
        valid: in Uint(1),
        data: in Uint(BEAT_BITS),
        first: in Uint(1),
        last: in Uint(1),
        dport: in Uint(16),
        next_valid: out Uint(1),
        next_data: out Uint(BEAT_BITS),
        next_first: out Uint(1),
        next_last: out Uint(1),
        next_select: out Uint(payload_offsets().len() as u32),
        facts: out TransportFacts,
        headers: out Uint(header_bits()),
        chain: out Uint(chain_count()),
    } |b| {
        let all = chains();
        let udp = |name: &str| gather(data, slices(Udp::LAYOUT.field(name), 0));
        let bth = |name: &str| gather(data, slices(Bth::LAYOUT.field(name), BTH_OFFSET));

        // t1: which chain it is.
        let opcode = bth("opcode");
        let is_opcode = |code: u8| opcode.eq(code);
        let is_chain: Vec<S> = all
            .iter()
            .map(|c| {
                let mut terms = vec![is_opcode(c.opcode.code())];
                for (condition, is_set) in &c.conditions {
                    let at = c.offset(condition.header).expect("checked by `chains`");
                    let flags: Vec<S> = condition.fields().map(|f| gather(data, slices(f, at))).collect();
                    let holds = b.and_tree(&flags);
                    terms.push(if *is_set { holds } else { !holds });
                }
                b.and_tree(&terms)
            })
            .collect();
        let t1_begins = (valid & first).delay_reset("t1_begins", 1);
        let t1_chain = b.reg("t1_chain", chain_count());
        // Held for the beats behind the first.
        t1_chain.set_en(valid & first, b.cat(&is_chain.iter().rev().copied().collect::<Vec<_>>()));
        let known = b.or_tree(&opcode::OPCODES.iter().map(|o| is_opcode(o.opcode.code())).collect::<Vec<_>>());
        let supported = b.or_tree(&OPCODES.iter().map(|o| is_opcode(o.code())).collect::<Vec<_>>());
        let t1_unknown = (!known).delay("t1_unknown", 1);
        let t1_unsupported = (!supported).delay("t1_unsupported", 1);
        let t1_bad_tver = bth("tver").ne(TVER).delay("t1_bad_tver", 1);
        let t1_other_port = udp("dst_port").ne(dport).delay("t1_other_port", 1);
        let t1_udp_len = udp("len").delay("t1_udp_len", 1);
        let t1_pad = bth("pad_count").delay("t1_pad", 1);

        // The frame goes on to the payload's strip.
        let offsets = payload_offsets();
        let select: Vec<S> = offsets
            .iter()
            .map(|offset| {
                let here = all.iter().zip(0..).filter(|(c, _)| c.has_payload() && c.len_bytes() as u32 == *offset);
                b.or_tree(&here.map(|(_, k)| t1_chain.bit(k)).collect::<Vec<_>>())
            })
            .collect();
        next_valid.set(valid.delay_reset("t1_valid", 1));
        next_data.set(data.delay("t1_data", 1));
        next_first.set(first.delay("t1_first", 1));
        next_last.set(last.delay("t1_last", 1));
        next_select.set(b.cat(&select.iter().rev().copied().collect::<Vec<_>>()));

        // t2: what is left behind the headers and before the ICRC.
        let overhead: Vec<(S, S)> = all
            .iter()
            .zip(0..)
            .map(|(c, k)| (t1_chain.bit(k), b.lit((c.len_bytes() + ICRC_BYTES) as u64, 16)))
            .collect();
        let t2_rest = t1_udp_len.sub_borrow(b.one_hot_select(&overhead)).delay("t2_rest", 1);
        let with_payload: Vec<S> =
            all.iter().zip(0..).filter(|(c, _)| c.has_payload()).map(|(_, k)| t1_chain.bit(k)).collect();
        let t2_has_payload = b.or_tree(&with_payload).delay("t2_has_payload", 1);
        let t2_pad = t1_pad.delay("t2_pad", 1);
        let shortest = (EXT_OFFSET + ICRC_BYTES) as u64;
        let t2_short_headers = t1_udp_len.lt(shortest).delay("t2_short_headers", 1);

        // t3: payload without its pad.
        let t3_len = (t2_rest - t2_pad.zext(17)).delay("t3_len", 1);
        let t3_short_chain = t2_rest.msb().delay("t3_short_chain", 1);
        let odd = t2_rest.trunc(2).any();
        let unwanted = !t2_has_payload & (t2_rest.any() | t2_pad.any());
        let t3_odd_or_unwanted = (odd | unwanted).delay("t3_odd_or_unwanted", 1);
        let t3_has_payload = t2_has_payload.delay("t3_has_payload", 1);

        // t4: beats of it.
        let t4_too_long = (!t3_len.msb() & t3_len.trunc(16).gt(PMTU_BYTES_MAX)).delay("t4_too_long", 1);
        let t4_bad_length = (t3_odd_or_unwanted | t3_len.msb()).delay("t4_bad_length", 1);
        let t4_short_chain = t3_short_chain.delay("t4_short_chain", 1);
        let t4_len = t3_len.trunc(14).delay("t4_len", 1);
        let t4_beats = (t3_len.trunc(14) + (BEAT_BYTES as u64 - 1)).bits(6, 8).delay("t4_beats", 1);
        let t4_has_payload = t3_has_payload.delay("t4_has_payload", 1);
        let is_written = t4_has_payload & !(t4_too_long | t4_bad_length | t4_short_chain);

        // t5: held until the next frame's.
        assert_eq!(TRANSPORT_FACTS_LATENCY, 5, "the timing table and the block disagree");
        let t4_begins = t1_begins.delay_reset("t4_begins", 3);
        facts.udp_len.set(held("t5_udp_len", t4_begins, t1_udp_len.delay("udp_len", 3)));
        facts.payload_len.set(held("t5_payload_len", t4_begins, t4_len));
        facts.payload_beats.set(held("t5_payload_beats", t4_begins, is_written.mux(t4_beats, 0)));
        facts.other_port.set(held("t5_other_port", t4_begins, t1_other_port.delay("other_port", 3)));
        facts.short_headers.set(held("t5_short_headers", t4_begins, t2_short_headers.delay("short_headers", 2)));
        facts.bad_tver.set(held("t5_bad_tver", t4_begins, t1_bad_tver.delay("bad_tver", 3)));
        facts.unknown_opcode.set(held("t5_unknown", t4_begins, t1_unknown.delay("unknown", 3)));
        facts.unsupported_opcode.set(held("t5_unsupported", t4_begins, t1_unsupported.delay("unsupported", 3)));
        facts.short_chain.set(held("t5_short_chain", t4_begins, t4_short_chain));
        facts.bad_length.set(held("t5_bad_length", t4_begins, t4_bad_length));
        facts.too_long.set(held("t5_too_long", t4_begins, t4_too_long));

        // t7: the header bytes, of the first beat and of the second.
        let late = TRANSPORT_HEADERS_LATENCY - 1;
        let is_second = b.reg_reset("is_second", 1, 0);
        is_second.set_en(valid, first & !last);
        let late_data = data.delay("late_data", late);
        let begins = (valid & first).delay_reset("late_begins", late);
        let continues = (valid & is_second & !first).delay_reset("late_continues", late);
        let head = held("t7_head", begins, late_data);
        chain.set(held("t7_chain", begins, t1_chain.delay("late_chain", late - 1)));
        let tail_bits = header_bits() - BEAT_BITS;
        // Zero when the frame has no second beat.
        let tail = held("t7_tail", begins | continues, continues.rep(tail_bits) & late_data.trunc(tail_bits));
        headers.set(tail.cat(head));
    }
}

/// Register that takes `value` when `en` is 1.
fn held<'a>(name: &str, en: S<'a>, value: S<'a>) -> S<'a> {
    let r = value.builder().reg(name, value.width());
    r.set_en(en, value);
    r
}
