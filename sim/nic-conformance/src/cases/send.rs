//! SEND: matched to posted receives by ordinal or by tag, before its predecessors arrive; and receive credit.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::Caps;
use crate::failure::{check, equal, Failure, Outcome};
use crate::kit::{pattern, set_paths, Ack, Kit, RTT, US};
use crate::packet::Packet;
use crate::setup::{CqeOp, SendOp, SendWr, StreamConfig, TagMatch, NS_PS};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Pd, Rkey, Rsn};
use nic_spec::wire::{NakReason, Opcode};

cases! { "send":
    "M-020" [Caps::SEND] a_send_goes_into_the_receive_with_its_ordinal;
    "M-020" + "M-016" [Caps::SEND] the_second_send_is_placed_before_the_first_arrives;
    "M-021" [Caps::SEND] packets_of_a_send_are_placed_in_any_order;
    "M-021" [Caps::SEND] a_send_shorter_than_its_receive_leaves_the_rest_alone;
    "M-021" [Caps::SEND] a_send_of_nothing_completes;
    "M-022" [Caps::SEND] a_send_longer_than_its_receive_is_refused => |k| refuses(k, NakReason::Mtu, |c| c.send(0, &[1; 65]));
    "M-022" [Caps::SEND] a_packet_beyond_the_message_is_refused => |k| refuses(k, NakReason::Mtu, |c| c.send(0, &[1; 8]).offset(57).msg_len(64));
    "M-022" [Caps::SEND] an_offset_that_wraps_is_refused => |k| refuses(k, NakReason::Mtu, |c| c.send(0, &[1; 8]).offset(u32::MAX - 3).msg_len(64));
    "M-022" [Caps::SEND] a_payload_above_the_message_length_is_refused => |k| refuses(k, NakReason::Mtu, |c| c.send(0, &[1; 8]).msg_len(7));
    "M-023" + "S-033" [Caps::SEND] a_send_without_a_receive_is_refused_for_now;
    "M-023" + "S-002" [Caps::SEND] an_ordinal_that_was_used_is_refused;
    "M-024" [Caps::SEND] immediate_data_come_with_the_completion;
    "M-025" [Caps::SEND] a_send_invalidates_a_key;
    "M-025" [Caps::SEND] a_key_of_another_domain_is_not_invalidated;
    "M-026" [Caps::SEND] a_tagged_send_finds_the_receive_that_matches;
    "M-026" [Caps::SEND] bits_to_ignore_match_anything;
    "M-026" [Caps::SEND] the_first_matching_receive_is_taken;
    "M-026" + "M-023" [Caps::SEND] a_tag_that_matches_nothing_is_refused_for_now;
    "M-026" + "M-021" [Caps::SEND] packets_of_a_tagged_send_are_placed_in_any_order;
    "M-026" [Caps::SEND] tagged_receives_take_no_ordinal;
    "M-020" + "M-006" [Caps::SEND] ordinals_wrap_at_2_pow_24;
    "M-020" + "M-006" [Caps::SEND] sends_and_writes_with_immediate_share_the_ordinals;
    "S-002" [Caps::SEND] a_duplicate_send_is_placed_and_completed_once;
    "M-027" + "M-002" [Caps::SEND] sends_are_cut_and_numbered;
    "M-027" + "W-013" [Caps::SEND] key_and_tag_stand_where_the_receiver_needs_them;
    "M-027" [Caps::SEND] only_messages_that_take_a_receive_advance_the_ordinal;

    "M-030" [Caps::CREDIT] acknowledgements_tell_the_credit;
    "M-030" [Caps::CREDIT] the_credit_wraps_at_2_pow_16;
    "M-030" + "S-023" [Caps::CREDIT] without_a_receive_ever_posted_there_is_no_credit;
    "M-031" [Caps::CREDIT.and(Caps::SEND)] a_receive_that_the_peer_waits_for_is_told_at_once;
    "M-032" [Caps::CREDIT.and(Caps::SEND)] a_sender_stops_at_its_credit;
    "M-032" [Caps::CREDIT.and(Caps::SEND)] a_sender_goes_on_with_new_credit;
    "M-032" [Caps::CREDIT.and(Caps::SEND)] credit_across_the_wrap_is_understood;
    "M-033" [Caps::CREDIT.and(Caps::SEND)] an_older_credit_takes_nothing_back;
    "M-033" + "S-023" [Caps::CREDIT.and(Caps::SEND)] credit_without_its_flag_is_ignored;
    "M-032" [Caps::CREDIT.and(Caps::SEND)] messages_that_take_no_receive_need_no_credit;
    "M-034" [Caps::CREDIT.and(Caps::SEND).and(Caps::PROBE)] a_sender_without_credit_asks_for_it;
    "M-030" [Caps::CREDIT.and(Caps::STREAMS)] every_stream_has_its_credit;
    "M-026" [Caps::SEND] a_tagged_receive_that_is_taken_is_not_taken_again;
    "M-028" + "E-002" [Caps::SEND] a_receive_taken_out_of_turn_completes_nothing_and_ends_the_connection => |k| out_of_turn(k, &[1]);
    "M-028" + "M-023" [Caps::SEND] a_receive_taken_twice_completes_once => |k| out_of_turn(k, &[0, 0]);
    "M-028" [Caps::SEND] a_receive_that_was_skipped_is_missed => |k| out_of_turn(k, &[0, 2]);
    "M-023" + "M-018" [Caps::SEND.and(Caps::UNORDERED)] a_receive_used_before_its_turn_is_used_up;
}

/// A connection with receives of 64 bytes at 0, 100, 200, ..., requests 50, 51, 52, ...
fn ready(k: &mut Kit<'_>, count: u64) -> Outcome<Conn> {
    let c = k.open(|_| ())?;
    (0..count).try_for_each(|i| k.post_recv(&c, 50 + i, 100 * i, 64))?;
    k.collect(k.at_once())?;
    Ok(c)
}

fn a_send_goes_into_the_receive_with_its_ordinal(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 2)?;
    k.inject(&c.send(0, b"hello"))?;
    k.acks(0, &[])?;
    let done = k.completes(&[(50, Status::Ok)])?;
    let d = done[0];
    equal((d.op, d.byte_len, d.imm, d.tag), (CqeOp::Recv, 5, None, None), "completion")?;
    k.memory_holds_only(&[(0, b"hello")])
}

fn the_second_send_is_placed_before_the_first_arrives(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 3)?;
    k.inject(&c.send(2, b"third"))?;
    k.acks(0xff_ffff, &[2])?;
    k.inject(&c.send(1, b"second"))?;
    k.acks(0xff_ffff, &[1, 2])?;
    k.memory_holds_only(&[(100, b"second"), (200, b"third")])?;
    k.completes_nothing()?;
    k.inject(&c.send(0, b"first"))?;
    k.acks(2, &[])?;
    let done = k.completes(&[(50, Status::Ok), (51, Status::Ok), (52, Status::Ok)])?;
    equal(done.iter().map(|d| d.byte_len).collect::<Vec<_>>(), [5, 6, 5], "lengths")?;
    k.memory_holds_only(&[(0, b"first"), (100, b"second"), (200, b"third")])
}

fn packets_of_a_send_are_placed_in_any_order(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = 10)?;
    k.post_recv(&c, 7, 8, 5000)?;
    k.collect(k.at_once())?;
    let bytes = pattern(3, 4321);
    let packets = c.send_many(0, 0, &bytes, 1024);
    for i in [4, 1, 3, 0, 2] {
        k.completes_nothing()?;
        k.inject(&packets[i])?;
        k.ack()?;
    }
    equal(k.completes(&[(7, Status::Ok)])?[0].byte_len, 4321, "length")?;
    k.memory_holds_only(&[(8, &bytes)])
}

fn a_send_shorter_than_its_receive_leaves_the_rest_alone(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 1)?;
    k.fill(0, &[0xaa; 64])?;
    k.inject(&c.send(0, b"abc"))?;
    k.acks(0, &[])?;
    k.completes(&[(50, Status::Ok)])?;
    k.memory_holds_only(&[(0, b"abc"), (3, &[0xaa; 61])])
}

fn a_send_of_nothing_completes(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 7, 0, 0)?;
    k.collect(k.at_once())?;
    k.inject(&c.send(0, &[]))?;
    k.acks(0, &[])?;
    equal(k.completes(&[(7, Status::Ok)])?[0].byte_len, 0, "length")
}

/// The packet is refused, nothing is placed, and its number stays free.
fn refuses(k: &mut Kit<'_>, reason: NakReason, make: impl Fn(&Conn) -> Packet) -> Outcome {
    let c = ready(k, 1)?;
    let before = k.snapshot()?;
    k.inject(&make(&c))?;
    equal(k.nak(reason)?.cum, 0xff_ffff, "cum_pseq")?;
    k.refused(&before, &[(Counter::of_nak(reason), 1)])?;
    k.memory_holds_only(&[])?;
    k.completes_nothing()?;
    k.inject(&c.send(0, &[2; 64]))?;
    k.acks(0, &[])?;
    k.completes(&[(50, Status::Ok)]).map(|_| ())
}

fn a_send_without_a_receive_is_refused_for_now(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.send(0, b"early"))?;
    k.nak(NakReason::Rnr)?;
    k.post_recv(&c, 7, 0, 64)?;
    k.collect(k.at_once())?;
    k.inject(&c.send(0, b"early").rtx())?;
    check(!k.acks(0, &[])?.dup, "S-004: the refused packet was remembered")?;
    k.completes(&[(7, Status::Ok)])?;
    k.memory_holds_only(&[(0, b"early")])
}

fn an_ordinal_that_was_used_is_refused(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 2)?;
    k.inject(&c.send(0, b"first"))?;
    k.acks(0, &[])?;
    k.completes(&[(50, Status::Ok)])?;
    k.inject(&c.send(1, b"again").rsn(0))?;
    k.nak(NakReason::Stream)?;
    k.memory_holds_only(&[(0, b"first")])
}

fn immediate_data_come_with_the_completion(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 1)?;
    k.inject(&c.send(0, b"word").imm(0x0102_0304))?;
    k.acks(0, &[])?;
    let done = k.completes(&[(50, Status::Ok)])?;
    equal((done[0].op, done[0].imm, done[0].byte_len), (CqeOp::Recv, Some(0x0102_0304), 4), "completion")
}

/// A key of a second region of this domain, which a SEND invalidates. True when the completion says so.
fn invalidate(k: &mut Kit<'_>, pd: Pd) -> Outcome<(Conn, u32, Option<Rkey>)> {
    let c = ready(k, 2)?;
    let mut region = k.region();
    (region.key, region.pd) = (0x99, pd);
    let key = k.dut.register(&region)?;
    k.inject(&c.send(0, b"inv").inv(key))?;
    k.acks(0, &[])?;
    let done = k.completes(&[(50, Status::Ok)])?;
    Ok((c, key, done[0].invalidated))
}

fn a_send_invalidates_a_key(k: &mut Kit<'_>) -> Outcome {
    let pd = k.region().pd;
    let (c, key, said) = invalidate(k, pd)?;
    equal(said, Some(Rkey::new(key)), "key that the completion says was invalidated")?;
    k.inject(&c.write(1, 500, b"closed").rkey(key))?;
    k.nak(NakReason::Rkey)?;
    k.memory_holds_only(&[(0, b"inv")])
}

fn a_key_of_another_domain_is_not_invalidated(k: &mut Kit<'_>) -> Outcome {
    let (c, key, said) = invalidate(k, Pd::new(0x77))?;
    equal(said, None, "key that the completion says was invalidated")?;
    // It is still known, and still of another domain.
    k.inject(&c.write(1, 500, b"closed").rkey(key))?;
    k.nak(NakReason::Pd).map(|_| ())
}

fn a_tagged_send_finds_the_receive_that_matches(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for (i, bits) in [0xa, 0xb, 0xc].into_iter().enumerate() {
        k.post_tagged(&c, 60 + i as u64, 100 * i as u64, 64, TagMatch { bits, ignore: 0 })?;
    }
    k.inject(&c.send(0, b"to b").tag(0xb))?;
    k.acks(0, &[])?;
    let done = k.completes(&[(61, Status::Ok)])?;
    equal((done[0].tag, done[0].byte_len), (Some(0xb), 4), "tag and length")?;
    k.memory_holds_only(&[(100, b"to b")])
}

fn bits_to_ignore_match_anything(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_tagged(&c, 60, 0, 64, TagMatch { bits: 0x1200, ignore: 0xff })?;
    k.inject(&c.send(0, b"x").tag(0x1300))?;
    k.nak(NakReason::Rnr)?;
    k.inject(&c.send(0, b"wild").tag(0x12ab))?;
    k.acks(0, &[])?;
    equal(k.completes(&[(60, Status::Ok)])?[0].tag, Some(0x12ab), "tag")
}

fn the_first_matching_receive_is_taken(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let any = TagMatch { bits: 0, ignore: u64::MAX };
    (0..2).try_for_each(|i| k.post_tagged(&c, 60 + i, 100 * i, 64, any))?;
    k.inject(&c.send(0, b"1").tag(7))?;
    k.inject(&c.send(1, b"2").tag(7))?;
    k.collect(k.at_once())?;
    k.completes(&[(60, Status::Ok), (61, Status::Ok)])?;
    k.memory_holds_only(&[(0, b"1"), (100, b"2")])
}

fn a_tag_that_matches_nothing_is_refused_for_now(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    // A receive without a tag is for messages without one.
    k.post_recv(&c, 50, 0, 64)?;
    k.collect(k.at_once())?;
    k.inject(&c.send(0, b"lost").tag(1))?;
    k.nak(NakReason::Rnr)?;
    k.post_tagged(&c, 60, 100, 64, TagMatch { bits: 1, ignore: 0 })?;
    k.collect(k.at_once())?;
    k.inject(&c.send(0, b"lost").tag(1).rtx())?;
    k.acks(0, &[])?;
    k.completes(&[(60, Status::Ok)]).map(|_| ())
}

fn tagged_receives_take_no_ordinal(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_tagged(&c, 60, 200, 64, TagMatch { bits: 1, ignore: 0 })?;
    k.post_recv(&c, 50, 0, 64)?;
    k.collect(k.at_once())?;
    k.inject(&c.send(0, b"ordinal 0"))?;
    k.acks(0, &[])?;
    k.completes(&[(50, Status::Ok)])?;
    k.memory_holds_only(&[(0, b"ordinal 0")])
}

fn ordinals_wrap_at_2_pow_24(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.streams[0].first_rsn = Rsn::new(0xff_ffff))?;
    (0..3).try_for_each(|i| k.post_recv(&c, 50 + i, 100 * i, 64))?;
    k.collect(k.at_once())?;
    for (n, rsn) in [1, 0xff_ffff, 0].into_iter().enumerate() {
        let i = (rsn + 1) & 0xff_ffff;
        k.inject(&c.send(n as u32, &[b'0' + i as u8]).mseq(i).rsn(rsn))?;
        k.ack()?;
    }
    k.completes(&[(50, Status::Ok), (51, Status::Ok), (52, Status::Ok)])?;
    k.memory_holds_only(&[(0, b"0"), (100, b"1"), (200, b"2")])
}

fn sends_and_writes_with_immediate_share_the_ordinals(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 3)?;
    k.inject(&c.send(0, b"zero"))?;
    k.inject(&c.write_imm(1, 1000, b"one", 1, 11))?;
    k.inject(&c.send(2, b"two"))?;
    k.collect(k.at_once())?;
    let done = k.completes(&[(50, Status::Ok), (51, Status::Ok), (52, Status::Ok)])?;
    equal(done.iter().map(|d| d.op).collect::<Vec<_>>(), [CqeOp::Recv, CqeOp::RecvImm, CqeOp::Recv], "operations")?;
    k.memory_holds_only(&[(0, b"zero"), (200, b"two"), (1000, b"one")])
}

fn a_duplicate_send_is_placed_and_completed_once(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 2)?;
    for payload in [b"first", b"again"] {
        k.inject(&c.send(0, payload))?;
        k.acks(0, &[])?;
    }
    k.completes(&[(50, Status::Ok)])?;
    k.memory_holds_only(&[(0, b"first")])
}

fn send(k: &Kit<'_>, wr_id: u64, len: u32) -> SendWr {
    SendWr::new(wr_id, SendOp::Send { imm: None, inv: None, tag: None }, k.local(0), len)
}

fn sends_are_cut_and_numbered(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        cfg.pmtu_log2 = 10;
        cfg.streams[0].first_rsn = Rsn::new(0xff_ffff);
    })?;
    let bytes = pattern(8, 2500);
    k.fill(0, &bytes)?;
    k.post(&c, send(k, 1, 2500))?;
    let sent = k.collect(RTT)?;
    let parts: Vec<_> = sent.iter().filter_map(|s| s.bxth().map(|h| (h.msg_offset(), h.msg_len()))).collect();
    equal(parts, [(0, 2500), (1024, 2500), (2048, 2500)], "offset of the packet and length of the message")?;
    let rsns: Vec<_> = sent.iter().filter_map(|s| s.mxth().map(|h| h.rsn().get())).collect();
    equal(rsns, [0xff_ffff; 3], "RSN")?;
    equal(sent.iter().flat_map(|s| s.payload.clone()).collect::<Vec<_>>(), bytes, "payload")?;
    k.inject(&c.ack(&sent[2]))?;
    equal(k.completes(&[(1, Status::Ok)])?[0].op, CqeOp::Send, "operation")?;
    k.post(&c, send(k, 2, 1))?;
    let next = k.expect(Opcode::Send, k.at_once())?;
    equal(next.mxth().map(|h| h.rsn().get()), Some(0), "RSN after the wrap")
}

fn key_and_tag_stand_where_the_receiver_needs_them(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| cfg.pmtu_log2 = 10)?;
    let op = SendOp::Send { imm: None, inv: Some(Rkey::new(0x1234)), tag: Some(0x55aa) };
    k.post(&c, SendWr::new(1, op, k.local(0), 2000))?;
    let sent = k.collect(RTT)?;
    let tags: Vec<_> = sent.iter().map(|s| s.tmth().map(|h| h.match_bits())).collect();
    equal(tags, [Some(0x55aa), Some(0x55aa)], "match bits in every packet")?;
    let keys: Vec<_> = sent.iter().map(|s| s.ieth().map(|h| h.rkey().get())).collect();
    equal(keys, [None, Some(0x1234)], "key to invalidate in the last packet")
}

fn only_messages_that_take_a_receive_advance_the_ordinal(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.post(&c, send(k, 1, 8))?;
    k.post_write(&c, 2, 0, 8)?;
    k.post(&c, SendWr { op: SendOp::Send { imm: None, inv: None, tag: Some(1) }, ..send(k, 3, 8) })?;
    k.post(&c, send(k, 4, 8))?;
    let sent = k.collect(RTT)?;
    let ordinals: Vec<_> = sent.iter().filter_map(|s| s.mxth().map(|h| h.rsn().get())).collect();
    equal((ordinals.len(), ordinals[0], ordinals[3]), (4, 0, 1), "messages, RSN of the first and the second plain SEND")
}

fn credit(k: &mut Kit<'_>, c: &Conn, pseq: u32) -> Outcome<Option<(u16, u16)>> {
    k.inject(&c.write(pseq, 0, b"x").ack_req())?;
    Ok(k.ack()?.credit)
}

fn acknowledgements_tell_the_credit(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 5)?;
    equal(credit(k, &c, 0)?, Some((1, 5)), "stream and limit with 5 receives posted")?;
    k.post_recv(&c, 99, 0, 0)?;
    k.collect(k.at_once())?;
    equal(credit(k, &c, 1)?, Some((1, 6)), "stream and limit with one more")?;
    // Receives that are used up do not lower the limit.
    k.inject(&c.write_imm(2, 0, b"x", 0, 0))?;
    equal(k.ack()?.credit, Some((1, 6)), "stream and limit after one was used")
}

fn the_credit_wraps_at_2_pow_16(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.streams[0].first_rsn = Rsn::new(0x12_fffe))?;
    for (n, limit) in [0xffff, 0, 1].into_iter().enumerate() {
        k.post_recv(&c, n as u64, 0, 0)?;
        k.collect(k.at_once())?;
        equal(credit(k, &c, n as u32)?, Some((1, limit)), "stream and limit")?;
    }
    Ok(())
}

fn without_a_receive_ever_posted_there_is_no_credit(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    equal(credit(k, &c, 0)?, None, "credit")
}

fn a_receive_that_the_peer_waits_for_is_told_at_once(k: &mut Kit<'_>) -> Outcome {
    let c = ready(k, 1)?;
    k.inject(&c.send(0, b"one"))?;
    k.acks(0, &[])?;
    k.completes(&[(50, Status::Ok)])?;
    k.silence(k.at_once())?;
    k.post_recv(&c, 51, 0, 64)?;
    equal(k.ack()?.credit, Some((1, 2)), "stream and limit")
}

/// A warm connection to a peer that has posted receives up to `limit`.
fn granted(k: &mut Kit<'_>, first: u32, limit: Option<u32>) -> Outcome<Conn> {
    k.warm(|cfg| {
        cfg.streams[0].first_rsn = Rsn::new(first);
        cfg.streams[0].peer_limit = limit.map(Rsn::new);
        cfg.transport.rnr_ps = 20_000 * US * NS_PS;
    })
}

/// RSN of the SENDs that leave now.
fn ordinals(k: &mut Kit<'_>) -> Outcome<Vec<u32>> {
    let sent = k.collect(RTT)?;
    Ok(sent.iter().filter(|s| s.opcode == Opcode::Send).filter_map(|s| s.mxth().map(|h| h.rsn().get())).collect())
}

fn a_sender_stops_at_its_credit(k: &mut Kit<'_>) -> Outcome {
    let c = granted(k, 0, Some(2))?;
    (0..5).try_for_each(|n| k.post(&c, send(k, n, 8)))?;
    equal(ordinals(k)?, [0, 1], "RSN sent with a credit of 2")
}

/// An acknowledgement of everything that says this credit.
fn grant(k: &mut Kit<'_>, c: &Conn, cum: u32, limit: u16) -> Outcome {
    let ack = c.packet(Opcode::Ack).cum(cum).trig(cum).with_axth(|h| _ = h.set_syndrome(0x1f));
    k.inject(&ack.credit(1, limit))
}

fn a_sender_goes_on_with_new_credit(k: &mut Kit<'_>) -> Outcome {
    let c = granted(k, 0, Some(2))?;
    (0..5).try_for_each(|n| k.post(&c, send(k, n, 8)))?;
    equal(ordinals(k)?, [0, 1], "RSN sent with a credit of 2")?;
    grant(k, &c, 2, 4)?;
    equal(ordinals(k)?, [2, 3], "RSN sent with a credit of 4")?;
    grant(k, &c, 4, 100)?;
    equal(ordinals(k)?, [4], "RSN sent with a credit of 100")
}

fn credit_across_the_wrap_is_understood(k: &mut Kit<'_>) -> Outcome {
    let c = granted(k, 0x0a_fffe, Some(0x0a_ffff))?;
    (0..5).try_for_each(|n| k.post(&c, send(k, n, 8)))?;
    equal(ordinals(k)?, [0x0a_fffe], "RSN sent with a limit of ffff")?;
    grant(k, &c, 1, 1)?;
    equal(ordinals(k)?, [0x0a_ffff, 0x0b_0000], "RSN sent with a limit of 1")
}

fn an_older_credit_takes_nothing_back(k: &mut Kit<'_>) -> Outcome {
    let c = granted(k, 0, Some(0))?;
    grant(k, &c, 0, 3)?;
    grant(k, &c, 0, 1)?;
    (0..5).try_for_each(|n| k.post(&c, send(k, n, 8)))?;
    equal(ordinals(k)?, [0, 1, 2], "RSN sent with credits of 3 and 1")
}

fn credit_without_its_flag_is_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = granted(k, 0, Some(1))?;
    let ack = c.packet(Opcode::Ack).cum(0).trig(0).credit(1, 9);
    k.inject(&ack.with_axth(|h| _ = h.set_syndrome(0x1f).set_credit(false)))?;
    (0..5).try_for_each(|n| k.post(&c, send(k, n, 8)))?;
    equal(ordinals(k)?, [0], "RSN sent with a credit of 1")
}

fn messages_that_take_no_receive_need_no_credit(k: &mut Kit<'_>) -> Outcome {
    let c = granted(k, 0, Some(0))?;
    k.post_write(&c, 1, 0, 8)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn a_sender_without_credit_asks_for_it(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        cfg.streams[0].peer_limit = Some(Rsn::new(0));
        cfg.transport.rnr_ps = 50 * US * NS_PS;
    })?;
    k.post(&c, send(k, 1, 8))?;
    let probe = k.expect(Opcode::ProbeReq, 60 * US + k.dut.slack())?;
    k.inject(&c.probe_rsp(&probe).credit(1, 1))?;
    let data = k.expect(Opcode::Send, k.at_once())?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn every_stream_has_its_credit(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 1, 1);
        cfg.streams = vec![StreamConfig::new(7, 0), StreamConfig::new(9, 0)];
    })?;
    let recv = |wr_id| crate::setup::RecvWr { wr_id, local: Default::default(), len: 0, tag: None };
    (0..3).try_for_each(|n| k.dut.post_recv(c.id, 7, recv(n)))?;
    (0..5).try_for_each(|n| k.dut.post_recv(c.id, 9, recv(n)))?;
    k.collect(k.at_once())?;
    let mut told = Vec::new();
    for n in 0..6 {
        k.inject(&c.write(n, 0, b"x"))?;
        let sent = k.expect(Opcode::Ack, k.at_once())?;
        told.push(Ack::of(&sent)?.credit.ok_or_else(|| Failure::new("S-023: no credit"))?);
    }
    check(told.contains(&(7, 3)) && told.contains(&(9, 5)), format!("streams and limits told: {told:?}"))
}

fn packets_of_a_tagged_send_are_placed_in_any_order(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = 10)?;
    k.post_tagged(&c, 60, 0, 4000, TagMatch { bits: 1, ignore: 0 })?;
    k.post_tagged(&c, 61, 8000, 4000, TagMatch { bits: 2, ignore: 0 })?;
    let (a, b) = (pattern(1, 3000), pattern(2, 2500));
    let of_a: Vec<Packet> = c.send_many(0, 0, &a, 1024).into_iter().map(|p| p.rsn(0).tag(1)).collect();
    let of_b: Vec<Packet> = c.send_many(3, 1, &b, 1024).into_iter().map(|p| p.rsn(0).tag(2)).collect();
    for p in [&of_b[2], &of_a[1], &of_b[0], &of_a[2], &of_b[1], &of_a[0]] {
        k.inject(p)?;
    }
    k.collect(k.at_once())?;
    let done = k.completes(&[(60, Status::Ok), (61, Status::Ok)])?;
    equal(done.iter().map(|d| d.tag).collect::<Vec<_>>(), [Some(1), Some(2)], "tags")?;
    k.memory_holds_only(&[(0, &a), (8000, &b)])
}

fn a_tagged_receive_that_is_taken_is_not_taken_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = 10)?;
    let any = TagMatch { bits: 0, ignore: u64::MAX };
    (0..2).try_for_each(|i| k.post_tagged(&c, 60 + i, 10_000 * i, 2048, any))?;
    let bytes = pattern(6, 2048);
    let long: Vec<_> = c.send_many(0, 0, &bytes, 1024).into_iter().map(|p| p.tag(7)).collect();
    // Half of the first message takes the first receive for the whole of it.
    k.inject(&long[0])?;
    k.inject(&c.send(2, b"second").mseq(1).tag(7))?;
    k.inject(&long[1])?;
    k.collect(k.at_once())?;
    k.completes(&[(60, Status::Ok), (61, Status::Ok)])?;
    k.memory_holds_only(&[(0, &bytes), (10_000, b"second")])
}

/// Messages that name these ordinals, in order; all but the last are in turn.
fn out_of_turn(k: &mut Kit<'_>, ordinals: &[u32]) -> Outcome {
    let c = ready(k, 3)?;
    let before = k.snapshot()?;
    for (n, rsn) in ordinals.iter().enumerate() {
        let n = n as u32;
        k.inject(&c.send(n, b"x").mseq(n).rsn(*rsn))?;
    }
    k.collect(k.at_once())?;
    let done = ordinals.len() - 1;
    let all = k.completions_of(0, 3)?;
    let well = all.iter().filter(|cqe| cqe.status == Status::Ok).map(|cqe| cqe.wr_id).collect::<Vec<_>>();
    equal(well, (0..done as u64).map(|i| 50 + i).collect::<Vec<_>>(), "receives that completed well")?;
    let is_refused = k.counted(&before, Counter::NakStream)? == 1;
    let is_ended = k.counted(&before, Counter::ConnErrors)? == 1;
    check(is_refused || is_ended, "M-028: a receive out of turn was taken")
}

fn a_receive_used_before_its_turn_is_used_up(k: &mut Kit<'_>) -> Outcome {
    // In an unordered stream the second receive may complete before the first.
    let c = k.open(|cfg| cfg.streams[0].is_unordered = true)?;
    (0..2).try_for_each(|i| k.post_recv(&c, 50 + i, 100 * i, 64))?;
    k.collect(k.at_once())?;
    k.inject(&c.send(0, b"second").mseq(1).rsn(1))?;
    k.acks(0, &[])?;
    k.completes(&[(51, Status::Ok)])?;
    k.inject(&c.send(1, b"again").mseq(2).rsn(1))?;
    k.nak(NakReason::Stream)?;
    k.memory_holds_only(&[(100, b"second")])
}
