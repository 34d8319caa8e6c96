//! Requests: how messages are cut and numbered, how they complete, and what becomes of them in an error.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, CardParams};
use crate::failure::{check, equal, Outcome};
use crate::kit::{pattern, remote, set_paths, Kit, Sent, GUARD, LEN, PD, PEER_VA, RTT, US, VA};
use crate::peer::{Fate, Peer};
use crate::setup::{CqeOp, Local, SendOp, SendWr, StreamConfig};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Lkey, Msn, Pd};
use nic_spec::wire::{NakReason, Opcode};

cases! { "request":
    "M-002" + "M-003" messages_are_cut_to_a_pmtu_of_1024 => |k| pmtu_out(k, 10);
    "M-002" + "M-003" messages_are_cut_to_a_pmtu_of_2048 => |k| pmtu_out(k, 11);
    "M-002" + "M-003" messages_are_cut_to_a_pmtu_of_4096 => |k| pmtu_out(k, 12);
    "M-002" + "M-003" messages_are_cut_to_a_pmtu_of_8192 => |k| pmtu_out(k, 13);
    "M-001" messages_are_numbered_across_the_wrap;
    "M-005" a_write_of_nothing_is_one_packet_and_looks_at_no_memory;
    "M-007" at_most_64_messages_of_a_stream_are_incomplete;
    "M-008" + "H-031" a_message_completes_when_all_its_packets_are_acknowledged;
    "M-008" + "H-032" messages_complete_in_order_whatever_the_acknowledgements_say;
    "M-008" + "M-018" [Caps::UNORDERED] an_unordered_stream_completes_as_messages_are_acknowledged;
    "M-008" [Caps::STREAMS] a_stream_does_not_wait_for_another;
    "P-006" [Caps::STREAMS] streams_take_turns;
    "H-031" a_request_that_asks_for_no_completion_gets_none;
    "H-025" + "H-031" a_request_that_fails_completes_although_it_asked_for_nothing;
    "H-023" a_request_of_more_than_2_pow_31_bytes_is_refused => |k| bad_request(k, Status::LocLen, |k| Ok((k.local(0), (1 << 31) + 1)));
    "H-023" a_request_of_2_pow_32_minus_1_bytes_is_refused => |k| bad_request(k, Status::LocLen, |k| Ok((k.local(0), u32::MAX)));
    "H-023" a_local_key_of_no_region_is_refused => |k| bad_request(k, Status::LocProt, |k| {
        Ok((Local { lkey: Lkey::new(k.key + 0x100), ..k.local(0) }, 8))
    });
    "H-023" a_local_region_of_another_domain_is_refused => |k| bad_request(k, Status::LocProt, |k| {
        let mut region = k.region();
        (region.pd, region.key) = (Pd::new(PD + 1), 0x77);
        let key = k.dut.register(&region)?;
        Ok((Local { va: VA, lkey: Lkey::new(key) }, 8))
    });
    "H-023" local_memory_beyond_the_region_is_refused => |k| bad_request(k, Status::LocProt, |k| Ok((k.local(LEN as u64 - 7), 8)));
    "H-023" local_memory_before_the_region_is_refused => |k| bad_request(k, Status::LocProt, |k| {
        Ok((Local { va: VA - 1, ..k.local(0) }, 8))
    });
    "H-024" + "M-017" [Caps::HOST_FAULT] local_memory_that_does_not_answer_ends_the_connection;
    "H-025" an_error_flushes_requests_and_receives_in_order;
    "H-025" + "H-032" what_was_acknowledged_before_the_error_completes_well;
    "H-025" + "E-002" requests_after_an_error_are_flushed;
    "H-025" [Caps::STREAMS] the_stream_that_failed_carries_the_status;
    "R-011" sent_packets_bytes_and_messages_are_counted;
    "M-006" + "H-031" a_solicited_request_says_so_in_its_last_packet;
    "S-034" + "P-011" an_error_of_one_connection_leaves_the_others_alone;
    "H-033" completions_that_nobody_has_read_stay_as_they_are;
}

fn write(k: &Kit<'_>, wr_id: u64, len: u32) -> SendWr {
    SendWr::new(wr_id, SendOp::Write { remote: remote(0), imm: None }, k.local(0), len)
}

/// Messages of lengths around the PMTU are cut right.
fn pmtu_out(k: &mut Kit<'_>, pmtu_log2: u8) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = pmtu_log2)?;
    let pmtu = 1u32 << pmtu_log2;
    k.fill(0, &pattern(5, 4 * 8192))?;
    let mut peer = Peer::new(&c, RTT);
    for (n, len) in [1, pmtu - 1, pmtu, pmtu + 1, 2 * pmtu, 3 * pmtu - 1].into_iter().enumerate() {
        let seen = peer.log.len();
        k.post_write(&c, n as u64, 5, len)?;
        peer.complete(k, 1, 1_000 * US, |_, _| Fate::Pass)?;
        let packets: Vec<Sent> = peer.log[seen..].to_vec();
        equal(packets.len() as u32, len.div_ceil(pmtu), format!("packets of a message of {len} bytes"))?;
        for (i, p) in packets.iter().enumerate() {
            let at = i as u32 * pmtu;
            let (h, m) = (p.reth().map(|h| (h.va(), h.dma_len())), p.mxth().map(|h| (h.first(), h.last())));
            equal(h, Some((PEER_VA + 5 + u64::from(at), len)), "address of the packet and length of the message")?;
            equal(m, Some((i == 0, i + 1 == packets.len())), "FIRST and LAST")?;
            equal(p.payload.len() as u32, (len - at).min(pmtu), "bytes of the packet")?;
        }
        let got = &peer.memory[5..5 + len as usize];
        equal(got == &k.memory(5, len as usize)?[..], true, format!("memory of the peer after {len} bytes"))?;
    }
    Ok(())
}

fn messages_are_numbered_across_the_wrap(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.streams[0].first_msn = Msn::new(0xff_fffe))?;
    for (n, want) in [0xff_fffe, 0xff_ffff, 0, 1].into_iter().enumerate() {
        k.post_write(&c, n as u64, 0, 8)?;
        let data = k.expect(Opcode::Write, k.at_once())?;
        equal(data.mxth().map(|h| h.mseq().get()), Some(want), "MSEQ")?;
        equal(data.mxth().map(|h| h.rsn().get()), Some(0), "RSN of a message that takes no receive")?;
        k.inject(&c.ack(&data))?;
    }
    k.completes(&[(0, Status::Ok), (1, Status::Ok), (2, Status::Ok), (3, Status::Ok)]).map(|_| ())
}

fn a_write_of_nothing_is_one_packet_and_looks_at_no_memory(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let local = Local { va: u64::MAX, lkey: Lkey::new(0xffff_ffff) };
    k.post(&c, SendWr::new(1, SendOp::Write { remote: remote(0), imm: None }, local, 0))?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    let flags = data.mxth().map(|h| (h.first(), h.last()));
    equal(
        (flags, data.payload.len(), data.reth().map(|h| h.dma_len())),
        (Some((true, true)), 0, Some(0)),
        "the packet",
    )?;
    k.inject(&c.ack(&data))?;
    equal(k.completes(&[(1, Status::Ok)])?[0].byte_len, 0, "length")
}

fn at_most_64_messages_of_a_stream_are_incomplete(k: &mut Kit<'_>) -> Outcome {
    // Path 0 never answers, so the first message stays incomplete; path 1 carries the others.
    let c = k.open(|cfg| {
        set_paths(cfg, 2, 1);
        (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (1_000_000_000_000, 1_000_000_000_000);
    })?;
    (0..100).try_for_each(|n| k.post(&c, write(k, n, 800)))?;
    let (mut open, mut sent) = (Vec::new(), 0);
    while let Some(s) = k.next(20 * US)? {
        sent += 1;
        if s.mxth().is_some_and(|h| h.mseq().get() == 0) || s.pxth.path_id() == open_path(&open) {
            open.push(s);
        } else {
            k.inject(&c.ack(&s))?;
        }
    }
    equal(sent, 64, "messages begun while the first is incomplete")?;
    k.completes_nothing()?;
    let newest = open.last().map_or(0, |s| s.bth.pseq().get());
    k.inject(&c.ack(&open[0]).cum(newest))?;
    let mut all = k.completions_of(0, 64)?;
    while let Some(s) = k.next(20 * US)? {
        k.inject(&c.ack(&s))?;
    }
    all.extend(k.completions_of(0, 36)?);
    equal(all.iter().map(|c| c.wr_id).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>(), "requests completed")
}

fn open_path(open: &[Sent]) -> nic_spec::num::PathId {
    open.first().map_or(nic_spec::num::PathId::new(255), |s| s.pxth.path_id())
}

fn a_message_completes_when_all_its_packets_are_acknowledged(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| cfg.pmtu_log2 = 10)?;
    k.post_write(&c, 1, 0, 3 * 1024)?;
    let sent = k.collect(RTT)?;
    equal(sent.len(), 3, "packets")?;
    k.inject(&c.ack(&sent[2]).cum(1).sack(&[1]).echo(sent[0].pxth.tx_ts()))?;
    k.completes_nothing()?;
    k.inject(&c.ack(&sent[1]))?;
    let done = k.completes(&[(1, Status::Ok)])?;
    equal((done[0].op, done[0].byte_len, done[0].qpn), (CqeOp::Write, 3 * 1024, c.cfg.local_id), "completion")
}

fn messages_complete_in_order_whatever_the_acknowledgements_say(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 4, 1))?;
    (0..4).try_for_each(|n| k.post(&c, write(k, n, 100)))?;
    let sent = k.collect(RTT)?;
    let of = |m: u32| sent.iter().find(|s| s.mxth().is_some_and(|h| h.mseq().get() == m));
    for m in [3, 1, 2] {
        let s = of(m).ok_or_else(|| crate::failure::Failure::new(format!("P-006: message {m} was not sent")))?;
        k.inject(&c.ack(s))?;
        k.completes_nothing()?;
    }
    k.inject(&c.ack(of(0).ok_or_else(|| crate::failure::Failure::new("message 0 was not sent"))?))?;
    k.completes(&[(0, Status::Ok), (1, Status::Ok), (2, Status::Ok), (3, Status::Ok)]).map(|_| ())
}

fn an_unordered_stream_completes_as_messages_are_acknowledged(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 3, 1);
        cfg.streams[0].is_unordered = true;
    })?;
    (0..3).try_for_each(|n| k.post(&c, write(k, n, 100)))?;
    let sent = k.collect(RTT)?;
    for m in [2u32, 0, 1] {
        let s = sent.iter().find(|s| s.mxth().is_some_and(|h| h.mseq().get() == m));
        k.inject(&c.ack(s.ok_or_else(|| crate::failure::Failure::new(format!("message {m} was not sent")))?))?;
        k.completes(&[(m.into(), Status::Ok)])?;
    }
    Ok(())
}

fn streams(k: &mut Kit<'_>, paths: usize) -> Outcome<Conn> {
    k.open(|cfg| {
        set_paths(cfg, paths, 1);
        cfg.streams = vec![StreamConfig::new(1, 0), StreamConfig::new(2, 1)];
    })
}

fn a_stream_does_not_wait_for_another(k: &mut Kit<'_>) -> Outcome {
    let c = streams(k, 2)?;
    k.dut.post_send(c.id, 1, write(k, 1, 100))?;
    k.dut.post_send(c.id, 2, write(k, 2, 100))?;
    let sent = k.collect(RTT)?;
    let second = sent.iter().find(|s| s.pxth.stream_id().get() == 2);
    k.inject(&c.ack(second.ok_or_else(|| crate::failure::Failure::new("P-006: stream 2 sent nothing"))?))?;
    equal(k.completions_of(1, 1)?.iter().map(|c| (c.wr_id, c.stream)).collect::<Vec<_>>(), [(2, 2)], "completions")?;
    k.completes_nothing()
}

fn streams_take_turns(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        cfg.pmtu_log2 = 10;
        cfg.streams = vec![StreamConfig::new(1, 0), StreamConfig::new(2, 1)];
    })?;
    k.dut.post_send(c.id, 1, write(k, 1, 20 * 1024))?;
    k.dut.post_send(c.id, 2, write(k, 2, 4 * 1024))?;
    // The short message of stream 2 is over long before the long one of stream 1.
    let mut order = Vec::new();
    for _ in 0..40 {
        let sent = k.collect(RTT)?;
        order.extend(sent.iter().map(|s| s.pxth.stream_id().get()));
        let Some(newest) = sent.last() else { break };
        k.inject(&c.ack(newest))?;
    }
    equal(order.len(), 24, "packets sent")?;
    let last = order.iter().rposition(|s| *s == 2).unwrap_or(0);
    check(last <= 14, format!("streams in the order of their packets: {order:?}"))
}

fn a_request_that_asks_for_no_completion_gets_none(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post(&c, SendWr { signaled: false, ..write(k, 1, 8) })?;
    let first = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&first))?;
    k.completes_nothing()?;
    k.post(&c, write(k, 2, 8))?;
    let second = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&second))?;
    k.completes(&[(2, Status::Ok)]).map(|_| ())
}

fn a_request_that_fails_completes_although_it_asked_for_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    (1..=2).try_for_each(|n| k.post(&c, SendWr { signaled: false, ..write(k, n, 8) }))?;
    let first = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&first).cum(0xff_ffff).nak(NakReason::Access))?;
    k.completes(&[(1, Status::RemAccess), (2, Status::WrFlush)]).map(|_| ())
}

/// The second of three requests is bad: it completes with `status`, the third is flushed, the first is not sent again.
fn bad_request(k: &mut Kit<'_>, status: Status, make: impl Fn(&mut Kit<'_>) -> Outcome<(Local, u32)>) -> Outcome {
    let c = k.open(|_| ())?;
    let (local, len) = make(k)?;
    k.post(&c, write(k, 1, 8))?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)])?;
    let before = k.snapshot()?;
    k.post(&c, SendWr::new(2, SendOp::Write { remote: remote(0), imm: None }, local, len))?;
    k.post(&c, write(k, 3, 8))?;
    k.completes(&[(2, status), (3, Status::WrFlush)])?;
    k.silence(10_000 * US)?;
    equal(k.counted(&before, Counter::WqeBad)?, 1, "wqe_bad_count")?;
    equal(k.counted(&before, Counter::ConnErrors)?, 1, "conn_error_count")
}

fn local_memory_that_does_not_answer_ends_the_connection(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    k.dut.set_fault(k.buffer, true)?;
    k.post(&c, write(k, 1, 8))?;
    k.post(&c, write(k, 2, 8))?;
    k.completes(&[(1, Status::LocDma), (2, Status::WrFlush)])?;
    k.silence(10_000 * US)?;
    equal(k.counted(&before, Counter::DmaReadError)?, 1, "dma_read_error_count")?;
    equal(k.counted(&before, Counter::ConnErrors)?, 1, "conn_error_count")
}

fn an_error_flushes_requests_and_receives_in_order(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.streams[0].rq_cq = 3)?;
    (0..5).try_for_each(|n| k.post_recv(&c, 100 + n, 0, 0))?;
    (0..5).try_for_each(|n| k.post(&c, write(k, n, 8)))?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    let before = k.snapshot()?;
    k.inject(&c.ack(&data).cum(0xff_ffff).nak(NakReason::Range))?;
    let flushed = Status::WrFlush;
    k.completes(&[(0, Status::RemAccess), (1, flushed), (2, flushed), (3, flushed), (4, flushed)])?;
    let receives = k.completions_of(3, 5)?;
    let got: Vec<_> = receives.iter().map(|c| (c.wr_id, c.status)).collect();
    equal(got, (100..105).map(|n| (n, flushed)).collect::<Vec<_>>(), "receives flushed")?;
    equal(k.counted(&before, Counter::WqeFlushed)?, 9, "wqe_flushed_count")
}

fn what_was_acknowledged_before_the_error_completes_well(k: &mut Kit<'_>) -> Outcome {
    // Message 1 is refused; the same packet acknowledges message 0.
    let c = k.warm(|_| ())?;
    let sent = k.burst(&c, 1, 3)?;
    k.inject(&c.ack(&sent[1]).cum(1).nak(NakReason::Access))?;
    k.completes(&[(1, Status::Ok), (2, Status::RemAccess), (3, Status::WrFlush)]).map(|_| ())
}

fn requests_after_an_error_are_flushed(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post(&c, write(k, 0, 8))?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&data).cum(0xff_ffff).nak(NakReason::Rkey))?;
    k.completes(&[(0, Status::RemAccess)])?;
    for n in 1..4 {
        k.post(&c, write(k, n, 8))?;
        k.post_recv(&c, 10 + n, 0, 0)?;
        k.completes(&[(n, Status::WrFlush), (10 + n, Status::WrFlush)])?;
    }
    k.silence(10_000 * US)
}

fn the_stream_that_failed_carries_the_status(k: &mut Kit<'_>) -> Outcome {
    let c = streams(k, 2)?;
    k.dut.post_send(c.id, 1, write(k, 1, 100))?;
    k.dut.post_send(c.id, 2, write(k, 2, 100))?;
    let sent = k.collect(RTT)?;
    let second = sent.iter().find(|s| s.pxth.stream_id().get() == 2);
    let second = second.ok_or_else(|| crate::failure::Failure::new("P-006: stream 2 sent nothing"))?;
    k.inject(&c.ack(second).cum(0xff_ffff).nak(NakReason::Access))?;
    k.completes(&[(1, Status::WrFlush)])?;
    let of_second: Vec<_> = k.completions_of(1, 1)?.iter().map(|c| (c.wr_id, c.status)).collect();
    equal(of_second, [(2, Status::RemAccess)], "completions of stream 2")
}

fn sent_packets_bytes_and_messages_are_counted(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| cfg.pmtu_log2 = 10)?;
    let before = k.snapshot()?;
    k.post(&c, write(k, 1, 2500))?;
    let sent = k.collect(RTT)?;
    let bytes: u64 = sent.iter().map(|s| s.to_bytes().len() as u64).sum();
    k.inject(&c.ack(&sent[2]))?;
    k.completes(&[(1, Status::Ok)])?;
    equal(k.counted(&before, Counter::TxData)?, 3, "tx_data_count")?;
    equal(k.counted(&before, Counter::TxDataBytes)?, 2500, "tx_data_bytes")?;
    equal(k.counted(&before, Counter::TxFrames)?, 3, "tx_frames_count")?;
    equal(k.counted(&before, Counter::TxBytes)?, bytes, "tx_bytes")?;
    equal(k.counted(&before, Counter::TxMessages)?, 1, "tx_messages_count")?;
    equal(k.counted(&before, Counter::CqeWritten)?, 1, "cqe_written_count")
}

fn a_solicited_request_says_so_in_its_last_packet(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| cfg.pmtu_log2 = 10)?;
    let op = SendOp::Write { remote: remote(0), imm: Some(1) };
    k.post(&c, SendWr { solicited: true, ..SendWr::new(1, op, k.local(0), 2048) })?;
    let sent = k.collect(RTT)?;
    equal(sent.iter().map(|s| s.bth.se()).collect::<Vec<_>>(), [false, true], "SE of the packets")
}

fn an_error_of_one_connection_leaves_the_others_alone(k: &mut Kit<'_>) -> Outcome {
    let (bad, good) = (k.open(|_| ())?, k.open(|_| ())?);
    k.post_write(&bad, 1, 0, 8)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&bad.ack(&data).cum(0xff_ffff).nak(NakReason::Rkey))?;
    k.completes(&[(1, Status::RemAccess)])?;
    let mut peer = Peer::new(&good, RTT);
    k.fill(0, &pattern(1, 30_000))?;
    k.post_write(&good, 2, 0, 30_000)?;
    let done = peer.complete(k, 1, 1_000 * US, |_, _| Fate::Pass)?;
    equal((done[0].wr_id, done[0].status), (2, Status::Ok), "request of the other connection")?;
    equal(peer.memory[..30_000] == k.dut.read(k.buffer, GUARD, 30_000)?[..], true, "memory of the peer")
}

fn completions_that_nobody_has_read_stay_as_they_are(k: &mut Kit<'_>) -> Outcome {
    // Room for four; six messages end before the host looks.
    k.reset(&CardParams { cq_depth: Some(4), ..CardParams::default() })?;
    let c = k.warm(|_| ())?;
    let before = k.snapshot()?;
    let sent = k.burst(&c, 1, 6)?;
    k.inject(&c.ack(&sent[5]))?;
    k.advance(k.at_once())?;
    let found: Vec<_> = k.completions_of(0, 6)?.iter().map(|cqe| (cqe.wr_id, cqe.status)).collect();
    let want: Vec<_> = (1..=found.len() as u64).map(|n| (n, Status::Ok)).collect();
    check(found.len() >= 4, format!("H-033: {} of four completions are left", found.len()))?;
    equal(found, want, "completions of a queue that was full")?;
    check(k.counted(&before, Counter::CqOverflow)? > 0, "H-033: cq_overflow_count")?;
    // Once the host has caught up all is well.
    let next = k.burst(&c, 10, 1)?;
    k.inject(&c.ack(&next[0]))?;
    k.completes(&[(10, Status::Ok)]).map(|_| ())
}
