//! READ: the answer is a message of the other direction, and as reliable.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Region};
use crate::failure::{check, equal, Failure, Outcome};
use crate::kit::{pattern, remote, set_paths, Kit, Sent, MS, PD, PEER_KEY, PEER_VA, RTT, US, VA};
use crate::packet::Packet;
use crate::peer::{Fate, Peer};
use crate::setup::{CqeOp, Local, SendOp, SendWr, NS_PS};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::{Status, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE};
use nic_spec::num::{Lkey, Pd, Psn};
use nic_spec::wire::{NakReason, Opcode};

cases! { "read":
    "M-040" [Caps::READ] a_read_is_answered_in_packets_of_the_pmtu;
    "M-040" + "P-002" [Caps::READ] answers_are_numbered_with_the_card_s_own_packets;
    "M-040" [Caps::READ] a_read_of_nothing_is_answered_and_looks_at_no_memory;
    "M-041" + "S-032" [Caps::READ] a_read_with_an_unknown_key_is_refused => |k| refuses(k, NakReason::Rkey, |k, p| Ok(p.rkey(k.key + 0x100)));
    "M-041" [Caps::READ] a_read_from_another_domain_is_refused => |k| refuses(k, NakReason::Pd, |k, p| Ok(p.rkey(second(k, |r| r.pd = Pd::new(PD + 1))?)));
    "M-041" [Caps::READ] a_read_without_permission_is_refused => |k| refuses(k, NakReason::Access, |k, p| {
        Ok(p.rkey(second(k, |r| r.access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE)?))
    });
    "M-041" [Caps::READ] a_read_beyond_the_region_is_refused => |k| refuses(k, NakReason::Range, |_, p| Ok(p.va(VA + crate::kit::LEN as u64 - 99)));
    "M-042" + "M-016" [Caps::READ] a_read_sees_the_writes_before_it;
    "M-042" [Caps::READ] a_read_waits_for_the_write_that_is_missing;
    "M-043" + "S-002" [Caps::READ] a_duplicate_request_is_answered_once;
    "M-043" + "M-042" [Caps::READ] sixteen_reads_wait_for_one_write;
    "M-044" + "R-003" [Caps::READ] a_lost_part_of_an_answer_is_sent_again;
    "M-044" + "R-006" [Caps::READ] the_only_packet_of_an_answer_is_sent_again_by_timer;
    "M-044" + "P-004" [Caps::READ] every_lost_packet_of_an_answer_is_made_up_for;
    "M-045" + "M-041" [Caps::READ.and(Caps::HOST_FAULT)] memory_that_cannot_be_read_ends_the_connection;

    "M-046" [Caps::READ] a_request_names_memory_length_and_number;
    "M-046" [Caps::READ] the_parts_of_an_answer_are_placed_in_any_order;
    "M-046" + "S-002" [Caps::READ] a_duplicate_part_is_acknowledged_and_not_placed;
    "M-047" [Caps::READ] a_part_beyond_the_read_is_refused => |k| bad_part(k, NakReason::Mtu, |c, id| c.read_rsp(0, id, 1500, 2000, &[1; 501]));
    "M-047" [Caps::READ] a_part_of_another_length_is_refused => |k| bad_part(k, NakReason::Mtu, |c, id| c.read_rsp(0, id, 0, 1999, &[1; 100]));
    "M-047" [Caps::READ] an_offset_that_wraps_is_refused => |k| bad_part(k, NakReason::Mtu, |c, id| c.read_rsp(0, id, u32::MAX - 3, 2000, &[1; 8]));
    "M-047" + "S-032" [Caps::READ] a_part_of_an_unknown_read_is_refused => |k| bad_part(k, NakReason::Stream, |c, id| c.read_rsp(0, id ^ 0x5555, 0, 2000, &[1; 8]));
    "M-046" + "M-005" [Caps::READ] a_read_of_nothing_completes_with_its_empty_answer;
    "M-046" + "H-023" [Caps::READ] a_read_into_memory_that_may_not_be_written_is_refused;
    "M-048" + "H-032" [Caps::READ] a_read_completes_in_the_order_of_its_stream;
    "M-048" + "R-001" [Caps::READ] an_answer_may_overtake_the_acknowledgement_of_its_request;
    "M-048" + "R-006" [Caps::READ] a_lost_request_is_sent_again;
    "M-049" [Caps::READ] at_most_16_reads_are_on_their_way;
    "M-049" [Caps::READ] a_fence_waits_for_reads;
    "M-017" + "M-046" [Caps::READ.and(Caps::HOST_FAULT)] an_answer_that_memory_refuses_ends_the_connection;
    "R-010" + "M-041" [Caps::READ] a_refused_read_ends_the_connection;
    "M-047" + "M-046" [Caps::READ] a_part_of_a_read_that_is_over_is_refused_whatever_is_under_way;
    "M-040" + "M-043" [Caps::READ] numbers_of_reads_are_returned_across_their_wrap;
}

/// A card whose region holds a pattern.
fn filled(k: &mut Kit<'_>, pmtu_log2: u8) -> Outcome<(Conn, Vec<u8>)> {
    let c = k.open(|cfg| {
        cfg.pmtu_log2 = pmtu_log2;
        (cfg.transport.path_init_pkts, cfg.transport.conn_init_pkts) = (64, 64);
    })?;
    let bytes = pattern(11, 20_000);
    k.fill(0, &bytes)?;
    Ok((c, bytes))
}

fn second(k: &mut Kit<'_>, change: impl FnOnce(&mut Region)) -> Outcome<u32> {
    let mut region = Region { key: 0x91, ..k.region() };
    change(&mut region);
    k.dut.register(&region)
}

/// Serves the card until the answer to read `id` has this length.
fn answered(k: &mut Kit<'_>, peer: &mut Peer, id: u16, len: usize, fate: impl FnMut(&Sent, usize) -> Fate) -> Outcome {
    peer.serve(k, 200 * MS, fate, |_, peer| Ok(peer.answers.contains_key(&id) && peer.answer(id).len() >= len))
}

fn a_read_is_answered_in_packets_of_the_pmtu(k: &mut Kit<'_>) -> Outcome {
    let (c, bytes) = filled(k, 10)?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.read(0, 0xbeef, 7, 3000))?;
    answered(k, &mut peer, 0xbeef, 3000, |_, _| Fate::Pass)?;
    equal(peer.answer(0xbeef) == bytes[7..3007], true, "content of the answer")?;
    let parts: Vec<_> = peer.log.iter().filter_map(|s| s.rrth().map(|h| (h.offset(), h.len()))).collect();
    equal(parts, [(0, 3000), (1024, 3000), (2048, 3000)], "offset of the packet and length of the read")
}

fn answers_are_numbered_with_the_card_s_own_packets(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.tx_paths[0].first = Psn::new(0xff_ffff))?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.read(0, 1, 0, 100))?;
    answered(k, &mut peer, 1, 100, |_, _| Fate::Pass)?;
    k.collect(RTT)?;
    k.post_write(&c, 9, 0, 8)?;
    peer.complete(k, 1, 1_000 * US, |_, _| Fate::Pass)?;
    let numbers: Vec<_> =
        peer.log.iter().filter(|s| s.opcode.info().is_sequenced).map(|s| (s.opcode, s.bth.pseq().get())).collect();
    equal(numbers, [(Opcode::ReadRsp, 0xff_ffff), (Opcode::Write, 0)], "packets of the card")
}

fn a_read_of_nothing_is_answered_and_looks_at_no_memory(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.read(0, 3, 0, 0).rkey(0xffff_ffff).va(u64::MAX))?;
    answered(k, &mut peer, 3, 0, |_, _| Fate::Pass)?;
    let parts: Vec<_> = peer.log.iter().filter_map(|s| s.rrth().map(|h| (h.offset(), h.len()))).collect();
    equal(parts, [(0, 0)], "packets of the answer")
}

fn refuses(k: &mut Kit<'_>, reason: NakReason, change: impl Fn(&mut Kit<'_>, Packet) -> Outcome<Packet>) -> Outcome {
    let (c, _) = filled(k, 12)?;
    let before = k.snapshot()?;
    let bad = change(k, c.read(0, 1, 0, 100))?;
    k.inject(&bad)?;
    equal(k.nak(reason)?.cum, 0xff_ffff, "cum_pseq")?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::of_nak(reason), 1)])
}

fn a_read_sees_the_writes_before_it(k: &mut Kit<'_>) -> Outcome {
    let (c, _) = filled(k, 12)?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.write(0, 0, b"written before"))?;
    k.inject(&c.read(1, 1, 0, 14))?;
    answered(k, &mut peer, 1, 14, |_, _| Fate::Pass)?;
    equal(&peer.answer(1)[..], b"written before", "content of the answer")
}

fn a_read_waits_for_the_write_that_is_missing(k: &mut Kit<'_>) -> Outcome {
    let (c, _) = filled(k, 12)?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.read(1, 1, 0, 14))?;
    k.acks(0xff_ffff, &[1])?;
    k.silence(100 * US)?;
    k.inject(&c.write(0, 0, b"written before"))?;
    answered(k, &mut peer, 1, 14, |_, _| Fate::Pass)?;
    equal(&peer.answer(1)[..], b"written before", "content of the answer")
}

fn a_duplicate_request_is_answered_once(k: &mut Kit<'_>) -> Outcome {
    let (c, _) = filled(k, 12)?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.read(0, 1, 0, 100))?;
    k.inject(&c.read(0, 1, 0, 100).rtx())?;
    answered(k, &mut peer, 1, 100, |_, _| Fate::Pass)?;
    let more = k.collect(RTT / 2)?;
    check(more.iter().all(|s| s.opcode != Opcode::ReadRsp), "M-043: a second answer")?;
    equal(peer.log.iter().filter(|s| s.opcode == Opcode::ReadRsp).count(), 1, "packets of the answer")
}

fn sixteen_reads_wait_for_one_write(k: &mut Kit<'_>) -> Outcome {
    let (c, bytes) = filled(k, 12)?;
    let mut peer = Peer::new(&c, RTT);
    for n in 1..=16u32 {
        k.inject(&c.read(n, n as u16, u64::from(n) * 100, 100))?;
        k.ack()?;
    }
    k.silence(20 * US)?;
    k.inject(&c.write(0, 100, b"first"))?;
    peer.serve(k, 100 * MS, |_, _| Fate::Pass, |_, peer| Ok(peer.answers.len() == 16))?;
    let mut want = bytes;
    want[100..105].copy_from_slice(b"first");
    for n in 1..=16usize {
        equal(
            peer.answer(n as u16) == want[100 * n..100 * n + 100],
            true,
            format!("content of the answer to read {n}"),
        )?;
    }
    Ok(())
}

fn a_lost_part_of_an_answer_is_sent_again(k: &mut Kit<'_>) -> Outcome {
    let (c, bytes) = filled(k, 10)?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.read(0, 1, 0, 10_000))?;
    let lose = |s: &Sent, _| {
        if !s.bth.rtx() && s.rrth().is_some_and(|h| h.offset() == 3072) {
            Fate::Lose
        } else {
            Fate::Pass
        }
    };
    let before = k.snapshot()?;
    answered(k, &mut peer, 1, 10_000, lose)?;
    equal(peer.answer(1) == bytes[..10_000], true, "content of the answer")?;
    equal(peer.retransmissions(), 1, "retransmissions")?;
    equal(k.counted(&before, Counter::TxRtxGap)?, 1, "tx_rtx_gap_count")
}

fn the_only_packet_of_an_answer_is_sent_again_by_timer(k: &mut Kit<'_>) -> Outcome {
    let (c, bytes) = filled(k, 12)?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.read(0, 1, 0, 64))?;
    answered(k, &mut peer, 1, 64, |s, _| if s.bth.rtx() { Fate::Pass } else { Fate::Lose })?;
    equal(peer.answer(1) == bytes[..64], true, "content of the answer")
}

fn every_lost_packet_of_an_answer_is_made_up_for(k: &mut Kit<'_>) -> Outcome {
    for position in 0..5u32 {
        k.reset(&Default::default())?;
        let (c, bytes) = filled(k, 10)?;
        let mut peer = Peer::new(&c, RTT);
        k.inject(&c.read(0, 1, 0, 5 * 1024))?;
        let lose = |s: &Sent, _| {
            let is_it = s.rrth().is_some_and(|h| h.offset() == position * 1024);
            if is_it && !s.bth.rtx() {
                Fate::Lose
            } else {
                Fate::Pass
            }
        };
        answered(k, &mut peer, 1, 5 * 1024, lose).map_err(|e| e.context(format!("packet {position} lost")))?;
        equal(peer.answer(1) == bytes[..5 * 1024], true, format!("content when packet {position} was lost"))?;
    }
    Ok(())
}

fn memory_that_cannot_be_read_ends_the_connection(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 0, 0)?;
    let before = k.snapshot()?;
    k.dut.set_fault(k.buffer, true)?;
    k.inject(&c.read(0, 1, 0, 64))?;
    let sent = k.collect(k.at_once())?;
    k.dut.set_fault(k.buffer, false)?;
    check(sent.iter().all(|s| s.opcode != Opcode::ReadRsp), "M-045: an answer without memory")?;
    equal(k.counted(&before, Counter::DmaReadError)?, 1, "dma_read_error_count")?;
    k.completes(&[(5, Status::WrFlush)]).map(|_| ())
}

fn read(k: &Kit<'_>, wr_id: u64, offset: u64, len: u32) -> SendWr {
    SendWr::new(wr_id, SendOp::Read { remote: remote(offset) }, k.local(offset), len)
}

/// Posts a read of 2000 bytes and takes its request, which is acknowledged.
fn asked(k: &mut Kit<'_>) -> Outcome<(Conn, u16)> {
    let c = k.open(|_| ())?;
    k.post(&c, read(k, 1, 8, 2000))?;
    let request = k.expect(Opcode::ReadReq, k.at_once())?;
    k.inject(&c.ack(&request))?;
    Ok((c, request.rrth().map_or(0, |h| h.read_id())))
}

fn a_request_names_memory_length_and_number(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.post(&c, read(k, 1, 8, 2000))?;
    k.post(&c, read(k, 2, 0, 1))?;
    let (a, b) = (k.expect(Opcode::ReadReq, k.at_once())?, k.expect(Opcode::ReadReq, k.at_once())?);
    let memory = a.reth().map(|h| (h.va(), h.rkey().get(), h.dma_len()));
    equal(memory, Some((PEER_VA + 8, PEER_KEY, 2000)), "address, key and length")?;
    equal(a.rrth().map(|h| (h.offset(), h.len())), Some((0, 2000)), "RRTH")?;
    let flags = a.mxth().map(|h| (h.first(), h.last(), h.mseq().get()));
    equal(flags, Some((true, true, 1)), "FIRST, LAST and MSEQ")?;
    check(a.rrth().map(|h| h.read_id()) != b.rrth().map(|h| h.read_id()), "M-046: two reads with one number")
}

fn the_parts_of_an_answer_are_placed_in_any_order(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = asked(k)?;
    let bytes = pattern(4, 2000);
    for (pseq, (from, to)) in [(1500, 2000), (0, 700), (1499, 1500), (700, 1499)].into_iter().enumerate() {
        k.completes_nothing()?;
        let part = c.read_rsp(pseq as u32, id, from as u32, 2000, &bytes[from..to]).ack_req();
        k.inject(&part)?;
        k.acks(pseq as u32, &[])?;
    }
    let done = k.completes(&[(1, Status::Ok)])?;
    equal((done[0].op, done[0].byte_len), (CqeOp::Read, 2000), "completion")?;
    k.memory_holds_only(&[(8, &bytes)])
}

fn a_duplicate_part_is_acknowledged_and_not_placed(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = asked(k)?;
    k.inject(&c.read_rsp(0, id, 0, 2000, &[1; 1000]))?;
    k.acks(0, &[])?;
    k.inject(&c.read_rsp(0, id, 0, 2000, &[9; 1000]).rtx())?;
    check(k.acks(0, &[])?.dup, "S-022: DUP")?;
    k.completes_nothing()?;
    k.inject(&c.read_rsp(1, id, 1000, 2000, &[2; 1000]).ack_req())?;
    k.acks(1, &[])?;
    k.completes(&[(1, Status::Ok)])?;
    k.memory_holds_only(&[(8, &[1; 1000]), (1008, &[2; 1000])])
}

fn bad_part(k: &mut Kit<'_>, reason: NakReason, make: impl Fn(&Conn, u16) -> Packet) -> Outcome {
    let (c, id) = asked(k)?;
    let before = k.snapshot()?;
    k.inject(&make(&c, id))?;
    equal(k.nak(reason)?.cum, 0xff_ffff, "cum_pseq")?;
    k.refused(&before, &[(Counter::of_nak(reason), 1)])?;
    k.memory_holds_only(&[])?;
    k.completes_nothing()
}

fn a_read_of_nothing_completes_with_its_empty_answer(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post(&c, read(k, 1, 0, 0))?;
    let request = k.expect(Opcode::ReadReq, k.at_once())?;
    k.inject(&c.ack(&request))?;
    k.completes_nothing()?;
    let id = request.rrth().map_or(0, |h| h.read_id());
    k.inject(&c.read_rsp(0, id, 0, 0, &[]))?;
    k.ack()?;
    equal(k.completes(&[(1, Status::Ok)])?[0].byte_len, 0, "length")
}

fn a_read_completes_in_the_order_of_its_stream(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.post_write(&c, 1, 0, 8)?;
    k.post(&c, read(k, 2, 0, 8))?;
    k.post_write(&c, 3, 0, 8)?;
    let sent = k.collect(RTT)?;
    equal(
        sent.iter().map(|s| s.opcode).collect::<Vec<_>>(),
        [Opcode::Write, Opcode::ReadReq, Opcode::Write],
        "packets",
    )?;
    k.inject(&c.ack(&sent[2]))?;
    k.completes(&[(1, Status::Ok)])?;
    let id = sent[1].rrth().map_or(0, |h| h.read_id());
    k.inject(&c.read_rsp(0, id, 0, 8, b"answered"))?;
    k.ack()?;
    k.completes(&[(2, Status::Ok), (3, Status::Ok)])?;
    k.memory_holds_only(&[(0, b"answered")])
}

fn an_answer_may_overtake_the_acknowledgement_of_its_request(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post(&c, read(k, 1, 0, 8))?;
    let request = k.expect(Opcode::ReadReq, k.at_once())?;
    let id = request.rrth().map_or(0, |h| h.read_id());
    k.inject(&c.read_rsp(0, id, 0, 8, b"answered"))?;
    k.ack()?;
    k.completes(&[(1, Status::Ok)])?;
    k.inject(&c.ack(&request))?;
    k.completes_nothing()?;
    // Afterwards all goes on.
    k.post_write(&c, 2, 0, 8)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(2, Status::Ok)]).map(|_| ())
}

fn a_lost_request_is_sent_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (MS * NS_PS, MS * NS_PS))?;
    k.post(&c, read(k, 1, 0, 8))?;
    let first = k.expect(Opcode::ReadReq, k.at_once())?;
    let again = k.expect(Opcode::ReadReq, 2 * MS)?;
    crate::peer::same_packet(&first, &again)?;
    k.inject(&c.ack(&again))?;
    let id = again.rrth().map_or(0, |h| h.read_id());
    k.inject(&c.read_rsp(0, id, 0, 8, b"answered"))?;
    k.ack()?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn at_most_16_reads_are_on_their_way(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 1, 1);
        (cfg.transport.path_init_pkts, cfg.transport.conn_window_min_pkts) = (64, 256);
    })?;
    (0..20).try_for_each(|n| k.post(&c, read(k, n, 16 * n, 16)))?;
    // Every request is acknowledged, none is answered.
    let mut requests = Vec::new();
    while let Some(s) = k.next(10 * US)? {
        k.inject(&c.ack(&s))?;
        requests.push(s);
    }
    equal(requests.len(), 16, "requests on their way")?;
    let id = requests[0].rrth().map_or(0, |h| h.read_id());
    k.inject(&c.read_rsp(0, id, 0, 16, &[1; 16]))?;
    let next: Vec<_> = k.collect(10 * US)?.into_iter().filter(|s| s.opcode == Opcode::ReadReq).collect();
    equal(next.len(), 1, "requests after one was answered")?;
    k.completes(&[(0, Status::Ok)]).map(|_| ())
}

fn a_fence_waits_for_reads(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.post(&c, read(k, 1, 0, 8))?;
    let wr = SendWr::new(2, SendOp::Write { remote: remote(0), imm: None }, k.local(0), 8);
    k.post(&c, SendWr { fence: true, ..wr })?;
    let sent = k.collect(RTT)?;
    equal(sent.iter().map(|s| s.opcode).collect::<Vec<_>>(), [Opcode::ReadReq], "packets before the answer")?;
    k.inject(&c.ack(&sent[0]))?;
    let id = sent[0].rrth().map_or(0, |h| h.read_id());
    k.inject(&c.read_rsp(0, id, 0, 8, b"answered"))?;
    let sent = k.collect(RTT)?;
    let data = sent.iter().find(|s| s.opcode == Opcode::Write);
    equal(data.map(|s| &s.payload[..]), Some(&b"answered"[..]), "payload of the fenced WRITE")?;
    check(data.is_some_and(|s| s.mxth().is_some_and(|h| h.fence())), "M-018: FENCE")
}

fn a_refused_read_ends_the_connection(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post(&c, read(k, 1, 0, 8))?;
    let request = k.expect(Opcode::ReadReq, k.at_once())?;
    k.inject(&c.ack(&request).cum(0xff_ffff).nak(NakReason::Access))?;
    k.completes(&[(1, Status::RemAccess)]).map(|_| ())
}

fn an_answer_that_memory_refuses_ends_the_connection(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = asked(k)?;
    let before = k.snapshot()?;
    k.dut.set_fault(k.buffer, true)?;
    k.inject(&c.read_rsp(0, id, 0, 2000, &[1; 1000]))?;
    k.silence(k.at_once())?;
    k.dut.set_fault(k.buffer, false)?;
    equal(k.counted(&before, Counter::DmaWriteError)?, 1, "dma_write_error_count")?;
    k.completes(&[(1, Status::LocDma)])?;
    k.memory_holds_only(&[])
}

fn a_read_into_memory_that_may_not_be_written_is_refused(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let key = second(k, |r| r.access = ACCESS_REMOTE_WRITE)?;
    let local = Local { va: VA, lkey: Lkey::new(key) };
    k.post(&c, SendWr::new(1, SendOp::Read { remote: remote(0) }, local, 8))?;
    k.completes(&[(1, Status::LocProt)])?;
    k.silence(MS)
}

fn a_part_of_a_read_that_is_over_is_refused_whatever_is_under_way(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    let mut ids = Vec::new();
    for n in 0..=16u32 {
        k.post(&c, read(k, u64::from(n), 8, 8))?;
        let request = k.expect(Opcode::ReadReq, k.at_once())?;
        k.inject(&c.ack(&request))?;
        ids.push(request.rrth().map_or(0, |h| h.read_id()));
        if n < 16 {
            k.inject(&c.read_rsp(n, ids[n as usize], 0, 8, b"answered").ack_req())?;
            k.ack()?;
            k.completes(&[(n.into(), Status::Ok)])?;
        }
    }
    // The table of reads has been gone round once; the last read stands where the first stood.
    for old in ids.iter().take(16).filter(|id| **id != ids[16]) {
        k.advance(200 * crate::kit::US)?;
        k.inject(&c.read_rsp(16, *old, 0, 8, b"too late"))?;
        k.nak(NakReason::Stream)?;
    }
    k.memory_holds_only(&[(8, b"answered")])?;
    k.inject(&c.read_rsp(16, ids[16], 0, 8, b"in time!").ack_req())?;
    k.ack()?;
    k.completes(&[(16, Status::Ok)])?;
    k.memory_holds_only(&[(8, b"in time!")])
}

fn numbers_of_reads_are_returned_across_their_wrap(k: &mut Kit<'_>) -> Outcome {
    let (c, bytes) = filled(k, 12)?;
    for (n, id) in [0xfffe, 0xffff, 0, 1].into_iter().enumerate() {
        k.inject(&c.read(n as u32, id, n as u64, 4))?;
        let sent = k.collect(k.at_once())?;
        let answer = sent.iter().find(|s| s.opcode == Opcode::ReadRsp);
        let answer = answer.ok_or_else(|| Failure::new(format!("M-040: read {id:#x} is not answered")))?;
        equal(answer.rrth().map(|h| h.read_id()), Some(id), "number of the answer")?;
        equal(&answer.payload[..], &bytes[n..n + 4], "content of the answer")?;
        k.inject(&c.ack(answer))?;
    }
    Ok(())
}
