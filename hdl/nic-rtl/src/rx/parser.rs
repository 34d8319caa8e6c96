//! The receive side of the wire: frames in, for each one record and, when it is good, its payload.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `s_axis` | 512-bit AXI-Stream | valid/ready | frames without FCS; `tuser` with `tlast` = bad frame; `tready` depends on no input |
//! | `enable`, `promiscuous` | 1, 1 | | the `port` block's control bits |
//! | `mac`, `dport` | 48, 16 | | the port's address, first byte most significant; UDP destination port |
//! | `meta` | [`RxMeta`] | valid/ready | one record a frame, in order |
//! | `payload` | [`Beat`] | valid/ready | `payload_beats` beats for each record, byte 0 of the payload in byte 0, there when the record is |
//! | `count_frames`, `count_bytes` | [`Count`] | valid only | `rx_frames_count`, `rx_bytes` |
//!
//! Latency 14 cycles from the last beat on `s_axis` to `meta`; 1 beat per cycle, frames of one beat back to back
//! included. Reset empties both queues.
//!
//! Nothing of a dropped frame is left: its payload is taken back before the record leaves, and `payload_beats` is 0.
//!
//! State: the packet buffer, [`BUFFER_BEATS`] beats of block RAM, and the record queue, [`RECORDS`] records of LUT RAM.
//! A packet of the largest PMTU takes 128 beats: one is being placed, one waits complete behind it, one comes in, and a
//! fourth covers the time until the write engine takes the first. Records: with short packets the buffer holds more
//! packets than records; then the MAC waits for the responder. When either queue is full, `tready` falls; no frame is
//! lost here.
//!
//! Drops: all `rx_*` rows of the counter table from `rx_mac_error_count` to `rx_bad_length_count` but
//! `rx_overflow_count`, told by `meta.drop`; order in [`verdict`](super::verdict).

use super::{
    chain::{chains, places, rx_links, slices, Chain, BEAT_BYTES, BTH_OFFSET, PXTH_OFFSET},
    front::{Front, BEAT_BITS},
    icrc::Icrc,
    network::Network,
    timing::{COMPARE, DECIDE, FROM_UDP, FRONT, ICRC_LATENCY, PAYLOAD, STRIP, TRANSPORT},
    transport::{payload_offsets, Transport},
    verdict::Verdict,
};
use crate::{
    prim::{
        fifo,
        lanes::{gather, len_keep},
        ready_while_room, Axis, PacketFifo, Strip,
    },
    stream::{Beat, Count, RxMeta},
};
use nic_spec::{
    csr::stats::Counter,
    wire::{Bth, Header, Pxth, Udp},
};
use rtl_graph::*;

/// Beats of payload that wait for the responder.
pub const BUFFER_BEATS: u32 = 512;
/// Records that wait for the responder.
pub const RECORDS: u32 = 32;

/// Bits that say how many bytes of a beat are payload: 1..=64.
const FILL_BITS: u32 = 7;

module! {
    /// Receive side of the wire.
    pub struct Parser = "nic_rx_parser" () {
        s_axis: in Axis(BEAT_BYTES as u32),
        enable: in Uint(1),
        promiscuous: in Uint(1),
        mac: in Uint(48),
        dport: in Uint(16),
        meta: out Stream<RxMeta>,
        payload: out Stream<Beat>,
        count_frames: out Count,
        count_bytes: out Count,
    } |b| {
        let front = Front::at(b, "front");
        b.connect(&s_axis, &front.s_axis);
        front.enable.set(enable);
        let beats = front.beats;

        let network = Network::at(b, "network");
        b.connect(&beats, &network.beats);
        network.mac.set(mac);
        network.promiscuous.set(promiscuous);

        let icrc = Icrc::at(b, "icrc");
        b.connect(&beats, &icrc.beats);
        icrc.len.set(front.end.len.trunc(6));

        // Off come the headers before UDP …
        let links: Vec<u32> = rx_links().into_iter().map(|l| l.udp_offset() as u32).collect();
        let to_udp = Strip::at(b, "to_udp", BEAT_BYTES as u32, &links);
        to_udp.valid.set(beats.valid);
        to_udp.data.set(beats.data);
        to_udp.first.set(beats.first);
        to_udp.last.set(beats.last);
        to_udp.select.set(beats.link);

        let transport = Transport::at(b, "transport");
        transport.valid.set(to_udp.out_valid);
        transport.data.set(to_udp.out_data);
        transport.first.set(to_udp.out_first);
        transport.last.set(to_udp.out_last);
        transport.dport.set(dport);

        // … and those before the payload.
        let to_payload = Strip::at(b, "to_payload", BEAT_BYTES as u32, &payload_offsets());
        to_payload.valid.set(transport.next_valid);
        to_payload.data.set(transport.next_data);
        to_payload.first.set(transport.next_first);
        to_payload.last.set(transport.next_last);
        to_payload.select.set(transport.next_select);
        assert_eq!(PAYLOAD, FRONT + STRIP + (TRANSPORT - FROM_UDP) + STRIP);

        // At COMPARE: which beats are payload; whether the frame is good.
        let index = b.reg("p_index", 8);
        let p_index = to_payload.out_first.mux(0, index).named("p_index_now");
        // Beyond 255 nothing is payload, so the index may stay there.
        index.set_en(to_payload.out_valid, p_index.all().mux(p_index, p_index.inc()));
        let wait = COMPARE - PAYLOAD;
        let c_index = p_index.delay("c_index", wait);
        let c_valid = to_payload.out_valid.delay_reset("c_valid", wait);
        let c_end = (to_payload.out_valid & to_payload.out_last).delay_reset("c_end", wait);
        let facts = transport.facts;
        let is_last = (c_index + 1).eq(facts.payload_beats).named("c_is_last");
        let rest = facts.payload_len.trunc(6);
        let fill = (is_last & rest.any()).mux(rest.zext(FILL_BITS), BEAT_BYTES);

        let verdict = Verdict::at(b, "verdict");
        verdict.at_end.set(c_end);
        let end = (beats.valid & beats.last).delay_reset("end", COMPARE - FRONT);
        b.assert("the_pipelines_are_in_step", end.eq(c_end));
        for (from, to) in front.end.signals().into_iter().zip(verdict.end.signals()) {
            to.set(from.delay("end_fact", COMPARE - FRONT));
        }
        b.connect(&network.facts, &verdict.network);
        b.connect(&transport.facts, &verdict.transport);
        verdict.icrc_is_good.set(icrc.is_good.delay("icrc_is_good", COMPARE - FRONT - ICRC_LATENCY));

        // At DECIDE: the beat is written; the frame's beats stay or go.
        let wait = DECIDE - COMPARE;
        let buffer = PacketFifo::at(b, "buffer", BEAT_BITS + 1 + FILL_BITS, BUFFER_BEATS);
        buffer.push.set((c_valid & c_index.lt(facts.payload_beats)).delay_reset("d_push", wait));
        let d_tail = is_last.cat(fill).delay("d_tail", wait);
        buffer.data.set(d_tail.cat(to_payload.out_data.delay("d_data", DECIDE - PAYLOAD)));
        let is_kept = (verdict.decided & verdict.is_good).named("is_kept");
        buffer.commit.set(is_kept);
        buffer.rollback.set(verdict.decided & !verdict.is_good);
        let word = buffer.tx.data.data;
        let keep = len_keep(word.bits(BEAT_BITS, FILL_BITS), BEAT_BYTES as u32);
        payload.put(buffer.tx.valid, &Beat { data: word.trunc(BEAT_BITS), keep, last: word.msb() });
        buffer.tx.ready.set(payload.ready);

        let len = front.end.len.delay("count_len", DECIDE - FRONT);
        count_frames.drive(b, &[(verdict.decided, Counter::RxFrames)]);
        count_bytes.drive_amounts(b, &[(verdict.decided, b.lit(Counter::RxBytes.code().into(), 8), len.zext(16))]);

        // The record enters its queue together with the decision.
        let record: Vec<S> = RxMeta::layout()
            .fields
            .iter()
            .map(|field| match field.name.as_str() {
                "drop" => verdict.drop,
                "ecn" => network.facts.ecn.delay("d_ecn", wait),
                "payload_len" => facts.payload_len.delay("d_payload_len", wait),
                "payload_beats" => facts.payload_beats.delay("d_payload_beats", wait) & verdict.is_good.rep(8),
                name => header_field(b, transport.headers, transport.chain, name),
            })
            .collect();
        let records = fifo::pushed(b, "records", verdict.decided, &RxMeta::over(&record), RECORDS);
        b.connect(&records.tx, &meta);

        // The edge that takes a beat begins cycle 0; the one that ends DECIDE pushes.
        let has_buffer = ready_while_room(b, "has_buffer", buffer.level, BUFFER_BEATS, DECIDE + 1);
        let has_record = ready_while_room(b, "has_record", records.level, RECORDS, DECIDE + 1);
        front.room.set(has_buffer & has_record);
    }
}

/// The field `HEADER_field`, or `sport`, out of the bytes from UDP on.
fn header_field<'a>(b: &'a B, headers: S<'a>, chain: S<'a>, name: &str) -> S<'a> {
    if name == "sport" {
        return gather(headers, slices(Udp::LAYOUT.field("src_port"), 0));
    }
    let (header, field) = name.split_once('_').expect("a record field of a header is named HEADER_field");
    match header {
        "bth" => gather(headers, slices(Bth::LAYOUT.field(field), BTH_OFFSET)),
        "pxth" => gather(headers, slices(Pxth::LAYOUT.field(field), PXTH_OFFSET)),
        _ => {
            let is_it = |h: &&Header| h.layout().name.to_lowercase() == header;
            let of = *Header::ALL.iter().find(is_it).unwrap_or_else(|| panic!("no header is called `{header}`"));
            variable_field(b, headers, chain, &chains(), of, field)
        }
    }
}

/// A field of a header whose place depends on the chain.
fn variable_field<'a>(b: &'a B, bus: S<'a>, chain: S<'a>, all: &[Chain], header: Header, field: &str) -> S<'a> {
    let places = places(all, header);
    assert!(!places.is_empty(), "no opcode of this card has the header {header:?}");
    let field = header.layout().field(field);
    if let [(at, _)] = places[..] {
        return gather(bus, slices(field, at));
    }
    let arms: Vec<(S, S)> = places
        .iter()
        .map(|(at, list)| {
            let here = b.or_tree(&list.iter().map(|k| chain.bit(*k as u32)).collect::<Vec<_>>());
            (here, gather(bus, slices(field, *at)))
        })
        .collect();
    b.one_hot_select(&arms)
}
