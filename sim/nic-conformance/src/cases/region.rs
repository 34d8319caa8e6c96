//! Regions that are taken away while work needs them: from then on not a byte of them is read or written.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Region};
use crate::failure::{check, equal, Outcome};
use crate::kit::{pattern, remote, Kit, Sent, BURST_BYTES, GUARD, LEN, MS, RTT, US};
use crate::packet::Packet;
use crate::setup::{ConnConfig, Local, RecvWr, SendOp, SendWr, NS_PS};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::Lkey;
use nic_spec::wire::{AtomicOp, NakReason, Opcode};

const NEEDS: Caps = Caps::DEREGISTER;
const WRITE: SendOp = SendOp::Write {
    remote: crate::setup::RemoteMemory {
        va: crate::kit::PEER_VA,
        rkey: nic_spec::num::Rkey::new(crate::kit::PEER_KEY),
    },
    imm: None,
};
const SEND: SendOp = SendOp::Send { imm: None, inv: None, tag: None };

cases! { "region":
    "M-060" + "M-011" [NEEDS] the_second_packet_of_a_write_finds_the_region_gone;
    "M-060" [NEEDS] another_region_that_is_taken_away_disturbs_nothing;
    "M-060" [NEEDS] a_write_goes_on_where_its_region_lies_now;
    "M-060" + "M-021" [NEEDS.and(Caps::SEND)] a_send_goes_on_where_its_receive_s_region_lies_now;
    "M-060" + "M-046" [NEEDS.and(Caps::READ)] an_answer_goes_on_where_its_region_lies_now;
    "M-060" + "M-042" [NEEDS.and(Caps::READ)] an_answer_goes_on_from_where_its_region_lies_now;
    "M-061" + "H-025" [NEEDS] a_write_stops_when_its_source_is_gone => |k| source_is_gone(k, WRITE);
    "M-061" + "H-025" [NEEDS.and(Caps::SEND)] a_send_stops_when_its_source_is_gone => |k| source_is_gone(k, SEND);
    "M-061" + "R-004" [NEEDS] a_lost_packet_whose_source_is_gone_is_not_sent_again => |k| lost_source(k, WRITE);
    "M-061" + "R-004" [NEEDS.and(Caps::SEND)] a_lost_packet_of_a_send_whose_source_is_gone_is_not_sent_again => |k| lost_source(k, SEND);
    "M-061" + "R-006" [NEEDS] a_silent_packet_whose_source_is_gone_is_not_sent_again;
    "M-061" + "R-009" [NEEDS.and(Caps::SEND)] a_refused_packet_whose_source_is_gone_is_not_sent_again;
    "M-061" [NEEDS] a_message_that_arrived_needs_its_source_no_longer;
    "M-061" + "R-022" [NEEDS.and(Caps::REDUNDANCY)] there_are_no_copies_of_a_source_that_is_gone;
    "M-062" + "H-025" [NEEDS.and(Caps::READ)] a_part_of_a_read_that_finds_its_memory_gone_is_not_placed => |k| landing_is_gone(k, false);
    "M-062" [NEEDS.and(Caps::READ)] nor_is_one_that_is_sent_again => |k| landing_is_gone(k, true);
    "M-062" [NEEDS.and(Caps::ATOMIC)] a_result_that_finds_its_memory_gone_is_not_placed;
    "M-063" + "H-025" [NEEDS.and(Caps::SEND)] a_send_that_finds_its_receive_s_memory_gone_is_not_placed => |k| receive_is_gone(k, false);
    "M-063" [NEEDS.and(Caps::SEND)] nor_is_a_send_that_is_sent_again => |k| receive_is_gone(k, true);
    "M-063" + "M-026" [NEEDS.and(Caps::SEND)] a_tagged_send_that_finds_its_receive_s_memory_gone_is_not_placed;
    "M-063" + "M-015" [NEEDS.and(Caps::SEND)] what_looks_at_no_memory_of_a_receive_completes_it;
    "M-064" + "M-053" [NEEDS.and(Caps::ATOMIC)] an_operation_that_waited_until_its_region_was_gone_is_not_carried_out;
    "M-044" + "M-060" [NEEDS.and(Caps::READ)] an_answer_stops_when_its_region_is_gone;
    "M-044" + "M-060" [NEEDS.and(Caps::READ).and(Caps::PROBE)] an_answer_that_may_have_arrived_is_asked_for;
}

/// Long enough for every timer of [`quick`] to have sent something again.
const SETTLED: u64 = 5 * MS;

/// Few packets at a time, and timers that are soon due.
fn quick(cfg: &mut ConnConfig) {
    let t = &mut cfg.transport;
    (t.path_init_pkts, t.conn_init_pkts, t.conn_ramp_pkts) = (4, 4, 4);
    (t.rto_init_ps, t.rto_min_ps) = (MS * NS_PS, MS * NS_PS);
}

/// A region over the same memory with a key of its own.
fn second(k: &mut Kit<'_>) -> Outcome<u32> {
    let region = Region { key: 0x91, ..k.region() };
    k.dut.register(&region)
}

/// Takes the case's region away and puts one with the same key over other memory: the second half of its buffer.
fn move_region(k: &mut Kit<'_>) -> Outcome {
    k.dut.deregister(k.key)?;
    let there = Region { offset: GUARD + LEN / 2, len: LEN / 2, ..k.region() };
    let key = k.dut.register(&there)?;
    equal(key, k.key, "key of a region that takes the place of another")
}

fn data(sent: &[Sent]) -> Vec<&Sent> {
    sent.iter().filter(|s| s.opcode.info().is_sequenced).collect()
}

/// Nothing sequenced and no acknowledgement leaves any more.
fn is_dead(k: &mut Kit<'_>, span: u64) -> Outcome {
    let sent = k.collect(span)?;
    check(
        sent.is_empty(),
        format!("E-003: a connection in error sent {}", sent.first().map_or(String::new(), |s| s.packet.to_string())),
    )
}

fn the_second_packet_of_a_write_finds_the_region_gone(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let bytes = pattern(1, 2000);
    let packets = c.write_many(0, 0, 0, &bytes, 1000);
    k.inject(&packets[0])?;
    k.advance(100 * US)?;
    k.collect(US)?;
    k.dut.deregister(k.key)?;
    let before = k.snapshot()?;
    k.inject(&packets[1].clone().rtx())?;
    k.nak(NakReason::Rkey)?;
    k.refused(&before, &[(Counter::of_nak(NakReason::Rkey), 1)])?;
    k.memory_holds_only(&[(0, &bytes[..1000])])
}

fn another_region_that_is_taken_away_disturbs_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(quick)?;
    let other = second(k)?;
    let bytes = pattern(2, 20_000);
    k.fill(0, &bytes)?;
    k.post_recv(&c, 9, 30_000, 2000)?;
    k.post_write(&c, 1, 0, 20_000)?;
    let first = k.collect(k.at_once())?;
    let sends = c.send_many(0, 0, &bytes[..2000], 1000);
    k.inject(&sends[0])?;
    k.dut.deregister(other)?;
    k.inject(&sends[1])?;
    let mut all: Vec<Sent> = data(&first).into_iter().cloned().collect();
    while all.len() < 5 {
        let newest = all[all.len() - 1].clone();
        k.inject(&c.ack(&newest))?;
        let more = k.collect(k.at_once())?;
        check(!data(&more).is_empty(), "M-060: the write stopped")?;
        all.extend(data(&more).into_iter().cloned());
    }
    k.inject(&c.ack(&all[4]))?;
    k.completes(&[(9, Status::Ok), (1, Status::Ok)])?;
    let content: Vec<u8> = all.iter().flat_map(|s| s.payload.clone()).collect();
    equal(content == bytes, true, "content of the write")
}

fn a_write_goes_on_where_its_region_lies_now(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(quick)?;
    let (here, there) = (pattern(3, 20_000), pattern(4, 20_000));
    k.fill(0, &here)?;
    k.fill(LEN / 2, &there)?;
    k.post_write(&c, 1, 0, 20_000)?;
    let first = k.collect(k.at_once())?;
    equal(data(&first).len(), 4, "packets to begin with")?;
    move_region(k)?;
    k.inject(&c.ack(&first[3]))?;
    let last = k.expect(Opcode::Write, k.at_once())?;
    let content: Vec<u8> = first.iter().chain([&last]).flat_map(|s| s.payload.clone()).collect();
    equal(content[..16_384] == here[..16_384], true, "what was read before")?;
    equal(content[16_384..] == there[16_384..], true, "what was read afterwards")?;
    k.inject(&c.ack(&last))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn a_send_goes_on_where_its_receive_s_region_lies_now(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 1, 0, 2000)?;
    let bytes = pattern(5, 2000);
    let packets = c.send_many(0, 0, &bytes, 1000);
    k.inject(&packets[0])?;
    move_region(k)?;
    k.inject(&packets[1])?;
    k.completes(&[(1, Status::Ok)])?;
    k.memory_holds_only(&[(0, &bytes[..1000]), (LEN / 2 + 1000, &bytes[1000..])])
}

fn an_answer_goes_on_where_its_region_lies_now(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = asked(k)?;
    let bytes = pattern(6, 2000);
    k.inject(&c.read_rsp(0, id, 0, 2000, &bytes[..1000]))?;
    move_region(k)?;
    k.inject(&c.read_rsp(1, id, 1000, 2000, &bytes[1000..]))?;
    k.completes(&[(1, Status::Ok)])?;
    k.memory_holds_only(&[(8, &bytes[..1000]), (LEN / 2 + 1008, &bytes[1000..])])
}

fn an_answer_goes_on_from_where_its_region_lies_now(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(quick)?;
    let (here, there) = (pattern(7, 20_000), pattern(8, 20_000));
    k.fill(0, &here)?;
    k.fill(LEN / 2, &there)?;
    k.inject(&c.read(0, 1, 0, 20_000))?;
    let first = k.collect(k.at_once())?;
    let parts = data(&first);
    equal(parts.len(), 4, "packets to begin with")?;
    move_region(k)?;
    k.inject(&c.ack(parts[3]))?;
    let last = k.expect(Opcode::ReadRsp, k.at_once())?;
    equal(last.payload == there[16_384..], true, "what was read afterwards")
}

/// A message of five packets whose source is taken away when four have left.
fn source_is_gone(k: &mut Kit<'_>, op: SendOp) -> Outcome {
    let c = k.warm(quick)?;
    k.fill(0, &pattern(9, 20_000))?;
    k.post(&c, SendWr::new(1, op, k.local(0), 20_000))?;
    k.post_write(&c, 2, 0, 8)?;
    let first = k.collect(k.at_once())?;
    equal(data(&first).len(), 4, "packets to begin with")?;
    let before = k.snapshot()?;
    k.dut.deregister(k.key)?;
    k.completes_nothing()?;
    k.inject(&c.ack(&first[3]))?;
    k.completes(&[(1, Status::LocProt), (2, Status::WrFlush)])?;
    is_dead(k, SETTLED)?;
    equal(k.counted(&before, Counter::ConnErrors)?, 1, "conn_error_count")?;
    equal(k.counted(&before, Counter::DmaReadError)?, 0, "dma_read_error_count")
}

/// The first of three messages is shown to be lost when its source is gone.
fn lost_source(k: &mut Kit<'_>, op: SendOp) -> Outcome {
    let c = k.warm(quick)?;
    (1..=3).try_for_each(|n| k.post(&c, SendWr::new(n, op, k.local(0), BURST_BYTES)))?;
    let sent = k.collect(k.at_once())?;
    equal(data(&sent).len(), 3, "packets")?;
    k.dut.deregister(k.key)?;
    let una = sent[0].bth.pseq().get();
    k.inject(&c.ack(&sent[2]).cum(una.wrapping_sub(1)).sack(&[1, 2]))?;
    k.completes(&[(1, Status::LocProt), (2, Status::WrFlush), (3, Status::WrFlush)])?;
    is_dead(k, SETTLED)
}

fn a_silent_packet_whose_source_is_gone_is_not_sent_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(quick)?;
    k.post_write(&c, 1, 0, 64)?;
    k.expect(Opcode::Write, k.at_once())?;
    k.dut.deregister(k.key)?;
    k.silence(900 * US)?;
    k.completes_nothing()?;
    is_dead(k, SETTLED)?;
    k.completes(&[(1, Status::LocProt)]).map(|_| ())
}

fn a_refused_packet_whose_source_is_gone_is_not_sent_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        quick(cfg);
        cfg.transport.rnr_ps = 300 * US * NS_PS;
    })?;
    k.post(&c, SendWr::new(1, SEND, k.local(0), 64))?;
    let sent = k.expect(Opcode::Send, k.at_once())?;
    k.inject(&c.ack(&sent).cum(0xff_ffff).nak(NakReason::Rnr))?;
    k.dut.deregister(k.key)?;
    k.silence(250 * US)?;
    k.completes_nothing()?;
    is_dead(k, SETTLED)?;
    k.completes(&[(1, Status::LocProt)]).map(|_| ())
}

fn a_message_that_arrived_needs_its_source_no_longer(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(quick)?;
    let other = second(k)?;
    k.post_write(&c, 1, 0, 64)?;
    let sent = k.expect(Opcode::Write, k.at_once())?;
    k.dut.deregister(k.key)?;
    k.inject(&c.ack(&sent))?;
    k.completes(&[(1, Status::Ok)])?;
    // And the connection lives.
    let local = Local { lkey: Lkey::new(other), ..k.local(0) };
    k.post(&c, SendWr::new(2, WRITE, local, 64))?;
    let sent = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&sent))?;
    k.completes(&[(2, Status::Ok)]).map(|_| ())
}

fn there_are_no_copies_of_a_source_that_is_gone(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        quick(cfg);
        cfg.transport.idle_redundancy = true;
    })?;
    k.collect(RTT)?;
    let other = second(k)?;
    k.post_write(&c, 1, 0, BURST_BYTES)?;
    k.dut.deregister(k.key)?;
    let from = k.dut.now();
    let sent = k.collect(20 * US)?;
    check(sent.iter().skip(1).all(|s| s.at < from), "M-061: a copy from memory that is gone")?;
    k.inject(&c.ack(&sent[0]))?;
    k.completes(&[(1, Status::Ok)])?;
    // Of a source that is there, there are.
    k.post(&c, SendWr::new(2, WRITE, Local { lkey: Lkey::new(other), ..k.local(0) }, BURST_BYTES))?;
    equal(data(&k.collect(20 * US)?).len(), 2, "packets when the source is there")
}

/// A connection with a read of 2000 bytes to offset 8 that the peer acknowledged and owes; the number of the read.
fn asked(k: &mut Kit<'_>) -> Outcome<(Conn, u16)> {
    let c = k.open(quick)?;
    k.post(&c, SendWr::new(1, SendOp::Read { remote: remote(8) }, k.local(8), 2000))?;
    let request = k.expect(Opcode::ReadReq, k.at_once())?;
    k.inject(&c.ack(&request))?;
    Ok((c, request.rrth().map_or(0, |h| h.read_id())))
}

/// Half of an answer arrives when its memory is there and half when it is gone.
fn landing_is_gone(k: &mut Kit<'_>, is_again: bool) -> Outcome {
    let (c, id) = asked(k)?;
    let bytes = pattern(10, 2000);
    let parts = [c.read_rsp(0, id, 0, 2000, &bytes[..1000]), c.read_rsp(1, id, 1000, 2000, &bytes[1000..])];
    // Where it is sent again the first of the two was lost.
    let (early, late) = if is_again { (1, 0) } else { (0, 1) };
    k.inject(&parts[early])?;
    k.collect(100 * US)?;
    k.post_write(&c, 2, 0, 0)?;
    k.collect(k.at_once())?;
    let before = k.snapshot()?;
    k.dut.deregister(k.key)?;
    let late = parts[late].clone().ack_req();
    k.inject(&if is_again { late.rtx() } else { late })?;
    is_dead(k, SETTLED)?;
    k.completes(&[(1, Status::LocProt), (2, Status::WrFlush)])?;
    k.refused(&before, &[(Counter::RxConnError, 1)])?;
    let at = 1000 * early;
    k.memory_holds_only(&[(8 + at, &bytes[at..at + 1000])])
}

fn a_result_that_finds_its_memory_gone_is_not_placed(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(quick)?;
    k.post(&c, SendWr::new(1, SendOp::FetchAdd { remote: remote(0), add: 1 }, k.local(0), 8))?;
    let request = k.expect(Opcode::AtomicReq, k.at_once())?;
    k.inject(&c.ack(&request))?;
    k.dut.deregister(k.key)?;
    k.inject(&c.atomic_rsp(0, request.atag().map_or(0, |h| h.atomic_id()), AtomicOp::FetchAdd, 5).ack_req())?;
    is_dead(k, SETTLED)?;
    k.completes(&[(1, Status::LocProt)])?;
    k.memory_holds_only(&[])
}

/// Half of a SEND arrives when the memory of its receive is there and half when it is gone.
fn receive_is_gone(k: &mut Kit<'_>, is_again: bool) -> Outcome {
    let c = k.open(|cfg| cfg.streams[0].rq_cq = 3)?;
    k.post_recv(&c, 1, 0, 2000)?;
    k.post_recv(&c, 2, 4000, 2000)?;
    let bytes = pattern(11, 2000);
    let parts = c.send_many(0, 0, &bytes, 1000);
    let (early, late) = if is_again { (1, 0) } else { (0, 1) };
    k.inject(&parts[early])?;
    k.collect(100 * US)?;
    let before = k.snapshot()?;
    k.dut.deregister(k.key)?;
    let late: Packet = parts[late].clone().ack_req();
    k.inject(&if is_again { late.rtx() } else { late })?;
    is_dead(k, SETTLED)?;
    let done = k.completions_of(3, 2)?;
    let got: Vec<_> = done.iter().map(|c| (c.wr_id, c.status)).collect();
    equal(got, vec![(1, Status::LocProt), (2, Status::WrFlush)], "receives")?;
    equal(k.counted(&before, Counter::ConnErrors)?, 1, "conn_error_count")?;
    equal(k.counted(&before, Counter::WqeFlushed)?, 1, "wqe_flushed_count")?;
    k.refused(&before, &[(Counter::RxConnError, 1)])?;
    let at = 1000 * early;
    k.memory_holds_only(&[(at, &bytes[at..at + 1000])])
}

fn a_tagged_send_that_finds_its_receive_s_memory_gone_is_not_placed(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let tag = crate::setup::TagMatch { bits: 0x77, ignore: 0 };
    k.post_tagged(&c, 1, 0, 100, tag)?;
    k.dut.deregister(k.key)?;
    k.inject(&c.send(0, &[7; 100]).rsn(0).tag(0x77))?;
    is_dead(k, SETTLED)?;
    k.completes(&[(1, Status::LocProt)])?;
    k.memory_holds_only(&[])
}

fn what_looks_at_no_memory_of_a_receive_completes_it(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let other = second(k)?;
    for wr_id in [1, 2, 3] {
        let lkey = Lkey::new(if wr_id == 3 { other } else { k.key });
        let wr = RecvWr { wr_id, local: Local { lkey, ..k.local(0) }, len: 100, tag: None };
        k.dut.post_recv(c.id, c.stream(), wr)?;
    }
    k.dut.deregister(k.key)?;
    k.inject(&c.write_imm(0, 500, &[1; 64], 0, 0xabcd).rkey(other))?;
    k.inject(&c.send(1, &[]))?;
    k.inject(&c.send(2, &[2; 100]))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok), (3, Status::Ok)])?;
    k.memory_holds_only(&[(500, &[1; 64]), (0, &[2; 100])])
}

fn an_operation_that_waited_until_its_region_was_gone_is_not_carried_out(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let other = second(k)?;
    k.post_recv(&c, 9, 0, 0)?;
    k.inject(&c.atomic(1, 1, 16, AtomicOp::FetchAdd, 5, 0))?;
    k.collect(100 * US)?;
    k.dut.deregister(k.key)?;
    k.inject(&c.write(0, 100, &[3; 8]).rkey(other))?;
    let sent = k.collect(SETTLED)?;
    check(sent.iter().all(|s| s.opcode != Opcode::AtomicRsp), "M-064: a result")?;
    k.completes(&[(9, Status::WrFlush)])?;
    k.memory_holds_only(&[(100, &[3; 8])])
}

fn an_answer_stops_when_its_region_is_gone(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(quick)?;
    k.fill(0, &pattern(12, 20_000))?;
    k.post_recv(&c, 9, 0, 0)?;
    k.inject(&c.read(0, 1, 0, 20_000))?;
    let first = k.collect(k.at_once())?;
    let parts = data(&first);
    equal(parts.len(), 4, "packets to begin with")?;
    let before = k.snapshot()?;
    k.dut.deregister(k.key)?;
    k.inject(&c.ack(parts[3]))?;
    is_dead(k, SETTLED)?;
    equal(k.counted(&before, Counter::ConnErrors)?, 1, "conn_error_count")?;
    equal(k.counted(&before, Counter::DmaReadError)?, 0, "dma_read_error_count")?;
    k.completes(&[(9, Status::WrFlush)]).map(|_| ())
}

fn an_answer_that_may_have_arrived_is_asked_for(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(quick)?;
    k.fill(0, &pattern(13, 64))?;
    k.inject(&c.read(0, 1, 0, 64))?;
    let first = k.collect(k.at_once())?;
    equal(data(&first).len(), 1, "packets of the answer")?;
    k.dut.deregister(k.key)?;
    // By timer, whose turn it is after a millisecond.
    let probe = k.expect(Opcode::ProbeReq, 2 * MS)?;
    k.inject(&c.probe_rsp(&probe))?;
    k.silence(20 * MS)?;
    // The connection lives.
    let other = second(k)?;
    k.inject(&c.read(1, 2, 0, 64).rkey(other))?;
    let again = k.collect(k.at_once())?;
    equal(data(&again).len(), 1, "packets of the next answer")
}
