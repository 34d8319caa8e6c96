//! Refusals, both sides: what a receiver refuses and why, and what a sender does about it.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Region};
use crate::failure::{check, equal, Outcome};
use crate::kit::{Kit, PD, US, VA};
use crate::packet::Packet;
use crate::setup::{SendOp, SendWr, StreamConfig, NS_PS};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::{Status, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ};
use nic_spec::num::Pd;
use nic_spec::wire::{NakReason, Opcode};

cases! { "nak":
    "M-011" + "S-032" a_key_of_a_row_without_region => |k| refuses(k, NakReason::Rkey, |k, c| Ok(good(c).rkey(k.key + 0x100)));
    "M-011" a_key_with_another_low_byte => |k| refuses(k, NakReason::Rkey, |k, c| Ok(good(c).rkey(k.key ^ 1)));
    "M-011" a_key_beyond_the_table => |k| refuses(k, NakReason::Rkey, |_, c| Ok(good(c).rkey(u32::MAX)));
    "M-011" + "S-032" a_region_of_another_protection_domain => |k| refuses(k, NakReason::Pd, |k, c| {
        let key = second_region(k, |r| r.pd = Pd::new(PD + 1))?;
        Ok(good(c).rkey(key))
    });
    "M-011" + "S-032" a_region_that_peers_may_only_read => |k| refuses(k, NakReason::Access, |k, c| {
        let key = second_region(k, |r| r.access = ACCESS_REMOTE_READ | ACCESS_LOCAL_WRITE)?;
        Ok(good(c).rkey(key))
    });
    "M-011" a_region_without_any_access => |k| refuses(k, NakReason::Access, |k, c| {
        let key = second_region(k, |r| r.access = 0)?;
        Ok(good(c).rkey(key))
    });
    "M-011" + "S-032" a_byte_before_the_region => |k| range(k, 0x1000, 64, VA - 1);
    "M-011" a_byte_behind_the_region => |k| range(k, 0x1000, 64, VA + 0x1000);
    "M-011" the_last_byte_behind_the_region => |k| range(k, 0x1000, 64, VA + 0xfc1);
    "M-011" an_address_at_the_end_of_the_address_space => |k| range(k, 0x1000, 64, u64::MAX);
    "M-011" an_address_half_way_round => |k| range(k, 0x1000, 64, VA ^ 1 << 63);
    "M-011" + "M-012" the_last_byte_of_the_region_may_be_written;
    "M-011" a_region_at_the_end_of_the_address_space_does_not_wrap;
    "M-010" + "S-032" a_stream_that_is_not_open => |k| refuses(k, NakReason::Stream, |_, c| Ok(good(c).stream(77)));
    "M-010" + "S-032" the_control_stream_carries_no_message => |k| refuses(k, NakReason::Stream, |_, c| Ok(good(c).stream(0)));
    "M-013" + "S-032" a_message_that_is_complete => |k| {
        let c = k.open(|_| ())?;
        k.inject(&c.write(0, 8, b"done"))?;
        k.acks(0, &[])?;
        let before = k.snapshot()?;
        k.inject(&c.write(1, 0, b"again").mseq(0))?;
        equal(k.nak(NakReason::Stream)?.cum, 0, "cum_pseq")?;
        k.memory_holds_only(&[(8, b"done")])?;
        k.refused(&before, &[(Counter::NakStream, 1)])
    };
    "M-013" + "S-032" a_message_64_after_the_oldest => |k| refuses(k, NakReason::NoResource, |_, c| Ok(good(c).mseq(64)));
    "M-013" the_message_63_after_the_oldest_is_taken => |k| {
        let c = k.open(|_| ())?;
        k.inject(&good(&c).mseq(63))?;
        k.acks(0, &[]).map(|_| ())
    };
    "M-010" + "S-032" a_payload_above_the_pmtu => |k| refuses_on(k, 10, NakReason::Mtu, |_, c| Ok(c.write(0, 0, &[7; 1025])));
    "M-014" a_payload_above_the_message_length => |k| refuses(k, NakReason::Mtu, |_, c| Ok(good(c).dma_len(7)));
    "M-014" more_bytes_than_the_message_has;
    "M-014" a_packet_that_contradicts_its_message_s_length;
    "M-015" + "S-032" + "S-033" a_write_with_immediate_without_a_receive => |k| refuses(k, NakReason::Rnr, |_, c| Ok(good(c).imm(1)));
    "M-015" + "S-004" the_refused_write_with_immediate_is_taken_once_a_receive_is_posted;
    "S-030" a_refusal_states_trigger_path_and_state;
    "S-030" + "S-021" a_refusal_with_a_hole_has_a_bitmap;
    "S-031" refusals_of_a_connection_keep_their_distance;
    "S-031" refusals_of_different_connections_do_not_wait_for_each_other;
    "S-004" + "S-002" a_refused_packet_is_not_remembered;
    "M-010" memory_is_judged_before_the_message => |k| refuses(k, NakReason::Rkey, |_, c| Ok(good(c).rkey(0).mseq(99).imm(1)));
    "M-010" the_stream_is_judged_before_memory => |k| refuses(k, NakReason::Stream, |_, c| Ok(good(c).rkey(0).stream(9)));
    "M-010" the_message_is_judged_before_the_receive => |k| refuses(k, NakReason::NoResource, |_, c| Ok(good(c).mseq(99).imm(1)));

    "R-010" a_refused_key_ends_the_connection => |k| fatal(k, NakReason::Rkey, Status::RemAccess);
    "R-010" a_refused_domain_ends_the_connection => |k| fatal(k, NakReason::Pd, Status::RemAccess);
    "R-010" a_refused_range_ends_the_connection => |k| fatal(k, NakReason::Range, Status::RemAccess);
    "R-010" a_refused_access_ends_the_connection => |k| fatal(k, NakReason::Access, Status::RemAccess);
    "R-010" a_refused_stream_ends_the_connection => |k| fatal(k, NakReason::Stream, Status::RemInvReq);
    "R-010" a_refused_state_ends_the_connection => |k| fatal(k, NakReason::QpState, Status::RemInvReq);
    "R-010" a_refused_length_ends_the_connection => |k| fatal(k, NakReason::Mtu, Status::RemInvReq);
    "S-033" + "R-009" + "R-011" a_receiver_that_is_not_ready_is_asked_again => |k| temporary(k, NakReason::Rnr);
    "S-033" + "R-009" a_receiver_without_resources_is_asked_again => |k| temporary(k, NakReason::NoResource);
    "S-033" + "R-009" a_packet_outside_the_window_is_sent_again => |k| temporary(k, NakReason::Window);
    "R-009" + "R-006" waiting_for_a_receiver_is_no_timeout;
    "R-009" + "P-006" [Caps::STREAMS.and(Caps::SEND)] a_stream_that_waits_holds_back_no_other;
    "R-009" + "M-023" a_refused_message_of_many_packets_is_sent_again_whole;
    "R-009" + "R-007" a_receiver_that_stays_unready_ends_the_connection;
    "S-033" a_refusal_of_a_packet_that_is_not_outstanding_is_ignored;
    "S-033" a_refusal_for_an_unknown_reason_is_counted_and_ignored;
}

fn good(c: &Conn) -> Packet {
    c.write(0, 0, b"refused!")
}

/// A second region over the case's buffer, after `change`.
fn second_region(k: &mut Kit<'_>, change: impl FnOnce(&mut Region)) -> Outcome<u32> {
    let mut region = Region { key: 0x91, ..k.region() };
    change(&mut region);
    k.dut.register(&region)
}

fn refuses(k: &mut Kit<'_>, reason: NakReason, make: impl Fn(&mut Kit<'_>, &Conn) -> Outcome<Packet>) -> Outcome {
    refuses_on(k, 12, reason, make)
}

/// The packet is refused for this reason, which is counted; nothing is placed and its number stays free.
fn refuses_on(
    k: &mut Kit<'_>,
    pmtu_log2: u8,
    reason: NakReason,
    make: impl Fn(&mut Kit<'_>, &Conn) -> Outcome<Packet>,
) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = pmtu_log2)?;
    let packet = make(k, &c)?;
    let before = k.snapshot()?;
    k.inject(&packet)?;
    let nak = k.nak(reason)?;
    equal((nak.cum, nak.trig, nak.syndrome), (0xff_ffff, 0, reason.syndrome()), "cum_pseq, trigger and syndrome")?;
    k.memory_holds_only(&[])?;
    k.completes_nothing()?;
    k.refused(&before, &[(Counter::of_nak(reason), 1)])?;
    equal(k.counted(&before, Counter::TxNak)?, 1, "tx_nak_count")?;
    k.inject(&c.write(0, 0, b"accepted"))?;
    k.acks(0, &[])?;
    k.memory_holds_only(&[(0, b"accepted")])
}

/// A region of `len` bytes at `VA` refuses `bytes` bytes at `va`.
fn range(k: &mut Kit<'_>, len: usize, bytes: usize, va: u64) -> Outcome {
    refuses(k, NakReason::Range, |k, c| {
        let key = second_region(k, |r| r.len = len)?;
        Ok(c.write(0, 0, &vec![1; bytes]).va(va).rkey(key))
    })
}

fn the_last_byte_of_the_region_may_be_written(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let key = second_region(k, |r| r.len = 0x1000)?;
    k.inject(&c.write(0, 0xfff, b"e").rkey(key))?;
    k.acks(0, &[])?;
    k.inject(&c.write(1, 0, b"b").rkey(key))?;
    k.acks(1, &[])?;
    k.memory_holds_only(&[(0, b"b"), (0xfff, b"e")])
}

fn a_region_at_the_end_of_the_address_space_does_not_wrap(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let key = second_region(k, |r| (r.va, r.len) = (u64::MAX - 0xfff, 0x1000))?;
    k.inject(&c.write(0, 0, b"in").va(u64::MAX - 0xfff).rkey(key))?;
    k.acks(0, &[])?;
    k.inject(&c.write(1, 0, b"over").va(u64::MAX - 1).rkey(key))?;
    k.nak(NakReason::Range)?;
    k.memory_holds_only(&[(0, b"in")])
}

fn more_bytes_than_the_message_has(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"0123").mseq(0).first().dma_len(6))?;
    k.acks(0, &[])?;
    let before = k.snapshot()?;
    k.inject(&c.write(1, 4, b"4567").mseq(0).last().dma_len(6))?;
    k.nak(NakReason::Mtu)?;
    k.refused(&before, &[(Counter::NakMtu, 1)])?;
    k.memory_holds_only(&[(0, b"0123")])
}

fn a_packet_that_contradicts_its_message_s_length(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"0123").mseq(0).first().dma_len(8))?;
    k.acks(0, &[])?;
    k.inject(&c.write(1, 4, b"4567").mseq(0).last().dma_len(12))?;
    k.nak(NakReason::Mtu)?;
    k.memory_holds_only(&[(0, b"0123")])
}

fn the_refused_write_with_immediate_is_taken_once_a_receive_is_posted(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&good(&c).imm(0x55))?;
    k.nak(NakReason::Rnr)?;
    k.post_recv(&c, 9, 0, 0)?;
    k.collect(k.at_once())?;
    k.inject(&good(&c).imm(0x55).rtx())?;
    check(!k.acks(0, &[])?.dup, "S-004: the refused packet was remembered")?;
    let done = k.completes(&[(9, Status::Ok)])?;
    equal((done[0].imm, done[0].byte_len), (Some(0x55), 8), "immediate data and length")
}

fn a_refusal_states_trigger_path_and_state(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| crate::kit::set_paths(cfg, 2, 1))?;
    k.inject(&c.write(0, 0, b"x").path(1))?;
    k.acks(0, &[])?;
    k.inject(&c.write(1, 0, b"x").path(1).rkey(0).ts(0xabcd).epoch(4).rtx())?;
    let nak = k.nak(NakReason::Rkey)?;
    equal((nak.apath, nak.trig, nak.cum), (1, 1, 0), "path, trigger and cum_pseq")?;
    equal((nak.echo, nak.epoch, nak.rtxe), (0xabcd, 4, true), "ts_echo, epoch and RTXE")
}

fn a_refusal_with_a_hole_has_a_bitmap(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(1, 0, b"x"))?;
    k.acks(0xff_ffff, &[1])?;
    k.inject(&c.write(2, 0, b"x").rkey(0))?;
    let nak = k.nak(NakReason::Rkey)?;
    equal((nak.cum, &nak.sack[..], nak.trig), (0xff_ffff, &[1][..], 2), "state and trigger")
}

fn refusals_of_a_connection_keep_their_distance(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.transport.nak_interval_ps = 200 * US * NS_PS)?;
    let before = k.snapshot()?;
    k.inject(&good(&c).rkey(0))?;
    k.nak(NakReason::Rkey)?;
    for _ in 0..5 {
        k.inject(&good(&c).rkey(0))?;
    }
    k.silence(150 * US)?;
    k.refused(&before, &[(Counter::NakRkey, 6)])?;
    equal(k.counted(&before, Counter::TxNak)?, 1, "tx_nak_count")?;
    k.advance(60 * US)?;
    k.inject(&good(&c).rkey(0))?;
    k.nak(NakReason::Rkey).map(|_| ())
}

fn refusals_of_different_connections_do_not_wait_for_each_other(k: &mut Kit<'_>) -> Outcome {
    let (a, b) = (k.open(|_| ())?, k.open(|_| ())?);
    for c in [&a, &b] {
        k.inject(&good(c).rkey(0))?;
        k.nak(NakReason::Rkey)?;
    }
    Ok(())
}

fn a_refused_packet_is_not_remembered(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.transport.nak_interval_ps = 0)?;
    for _ in 0..3 {
        k.inject(&good(&c).rkey(0).rtx())?;
        check(!k.nak(NakReason::Rkey)?.dup, "S-022: DUP of a refused packet")?;
    }
    Ok(())
}

/// Three messages are outstanding; the refusal of the second ends the connection: the oldest incomplete one carries the
/// status and the others are flushed.
fn fatal(k: &mut Kit<'_>, reason: NakReason, status: Status) -> Outcome {
    let c = k.open(|cfg| {
        crate::kit::set_paths(cfg, 3, 1);
    })?;
    (1..=3).try_for_each(|n| k.post_write(&c, n, 0, 64))?;
    let sent = [k.expect(Opcode::Write, US)?, k.expect(Opcode::Write, US)?, k.expect(Opcode::Write, US)?];
    let before = k.snapshot()?;
    k.inject(&c.ack(&sent[0]))?;
    k.completes(&[(1, Status::Ok)])?;
    k.inject(&c.ack(&sent[1]).cum(0xff_ffff).nak(reason))?;
    k.completes(&[(2, status), (3, Status::WrFlush)])?;
    equal(k.counted(&before, Counter::RxNak)?, 1, "rx_nak_count")?;
    equal(k.counted(&before, Counter::ConnErrors)?, 1, "conn_error_count")?;
    equal(k.counted(&before, Counter::WqeFlushed)?, 1, "wqe_flushed_count")?;
    k.silence(5_000 * US)?;
    k.post_write(&c, 4, 0, 64)?;
    k.completes(&[(4, Status::WrFlush)])?;
    k.silence(US)
}

/// The refused packet is sent again after the configured wait, and then all is well.
fn temporary(k: &mut Kit<'_>, reason: NakReason) -> Outcome {
    let c = k.open(|cfg| {
        cfg.transport.rnr_ps = 300 * US * NS_PS;
        cfg.transport.rto_init_ps = 50_000 * US * NS_PS;
        cfg.transport.rto_min_ps = 50_000 * US * NS_PS;
    })?;
    k.post_write(&c, 1, 0, 64)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    let before = k.snapshot()?;
    k.inject(&c.ack(&data).cum(0xff_ffff).nak(reason))?;
    let refused_at = k.dut.now();
    let again = k.expect(Opcode::Write, 400 * US + k.dut.slack())?;
    let waited = again.at - refused_at;
    check((299 * US..=300 * US + k.at_once()).contains(&waited), format!("sent again after {waited} ns of 300 us"))?;
    equal((again.bth.pseq(), again.bth.rtx()), (data.bth.pseq(), true), "PSEQ and RTX")?;
    equal(k.counted(&before, Counter::TxRtxRto)?, 1, "tx_rtx_rto_count")?;
    equal(k.counted(&before, Counter::PathRto)?, 0, "path_rto_count")?;
    k.completes_nothing()?;
    k.inject(&c.ack(&again))?;
    k.completes(&[(1, Status::Ok)])?;
    k.silence(1_000 * US)
}

fn a_receiver_that_stays_unready_ends_the_connection(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        cfg.transport.rnr_ps = 100 * US * NS_PS;
        cfg.transport.rnr_retry_limit = 3;
        cfg.transport.rto_init_ps = 50_000 * US * NS_PS;
        cfg.transport.rto_min_ps = 50_000 * US * NS_PS;
    })?;
    k.post_write(&c, 1, 0, 64)?;
    for n in 0..4 {
        k.completes_nothing()?;
        let data = k.expect(Opcode::Write, 200 * US).map_err(|e| e.context(format!("transmission {n}")))?;
        k.inject(&c.ack(&data).cum(0xff_ffff).nak(NakReason::Rnr))?;
    }
    k.completes(&[(1, Status::RnrRetryExc)])?;
    k.silence(1_000 * US)
}

fn a_refusal_of_a_packet_that_is_not_outstanding_is_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_write(&c, 1, 0, 64)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)])?;
    // A refusal that was overtaken by the acknowledgement of a retransmission.
    k.inject(&c.ack(&data).cum(0xff_ffff).nak(NakReason::Rkey))?;
    k.completes_nothing()?;
    k.post_write(&c, 2, 0, 64)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(2, Status::Ok)]).map(|_| ())
}

fn a_refusal_for_an_unknown_reason_is_counted_and_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_write(&c, 1, 0, 64)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    let before = k.snapshot()?;
    let unknown = c.ack(&data).cum(0xff_ffff).nak(NakReason::Rkey).with_nxth(|h| _ = h.set_reason(0x7f));
    k.inject(&unknown)?;
    k.completes_nothing()?;
    k.refused(&before, &[(Counter::RxBadAck, 1)])?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn waiting_for_a_receiver_is_no_timeout(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.transport.rnr_ps = 5_000 * US * NS_PS)?;
    k.post_write(&c, 1, 0, 64)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    let before = k.snapshot()?;
    k.inject(&c.ack(&data).cum(0xff_ffff).nak(NakReason::Rnr))?;
    k.silence(4_900 * US)?;
    let again = k.expect(Opcode::Write, 200 * US + k.dut.slack())?;
    equal((again.sport, again.pxth.epoch()), (data.sport, data.pxth.epoch()), "source port and epoch after the wait")?;
    equal(k.counted(&before, Counter::PathRto)?, 0, "path_rto_count")?;
    k.inject(&c.ack(&again))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn a_refused_message_of_many_packets_is_sent_again_whole(k: &mut Kit<'_>) -> Outcome {
    // The receiver refuses each of four packets, two on each of two paths, and takes them after the wait.
    let c = k.warm(|cfg| {
        crate::kit::set_paths(cfg, 2, 1);
        cfg.pmtu_log2 = 10;
        cfg.transport.rnr_ps = 300 * US * NS_PS;
    })?;
    k.fill(0, &crate::kit::pattern(3, 4096))?;
    k.post_write(&c, 1, 0, 4096)?;
    let sent = k.collect(US)?;
    equal(sent.len(), 4, "packets")?;
    for s in &sent {
        k.inject(&c.ack(s).cum(0).nak(NakReason::Rnr))?;
    }
    k.silence(290 * US)?;
    let mut peer = crate::peer::Peer::new(&c, 5 * US);
    // The peer saw number 0 of each path during the warm-up.
    (0..2).for_each(|path| peer.knows(path, 0));
    let done = peer.complete(k, 1, 10_000 * US, |_, _| crate::peer::Fate::Pass)?;
    equal(done.iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Ok], "completions")?;
    equal(peer.memory[..4096] == crate::kit::pattern(3, 4096), true, "memory of the peer")
}

fn a_stream_that_waits_holds_back_no_other(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        cfg.streams = vec![StreamConfig::new(1, 0), StreamConfig::new(2, 1)];
        cfg.transport.rnr_ps = 2_000 * US * NS_PS;
    })?;
    let send = |wr_id| SendWr::new(wr_id, SendOp::Send { imm: None, inv: None, tag: None }, k.local(0), 8);
    let (first, second) = (send(1), send(2));
    k.dut.post_send(c.id, 1, first)?;
    let data = k.expect(Opcode::Send, k.at_once())?;
    k.inject(&c.ack(&data).cum(0).nak(NakReason::Rnr))?;
    // Stream 1 begins nothing more while it waits, stream 2 does not notice.
    k.dut.post_send(c.id, 1, SendWr { wr_id: 9, ..first })?;
    k.dut.post_send(c.id, 2, second)?;
    let other = k.expect(Opcode::Send, k.at_once())?;
    equal(other.pxth.stream_id().get(), 2, "stream of what is sent during the wait")?;
    k.inject(&c.ack(&other).cum(0).sack(&[1]))?;
    equal(k.completions_of(1, 1)?.len(), 1, "completions of stream 2")?;
    k.silence(1_500 * US)?;
    let again = k.expect(Opcode::Send, 1_000 * US)?;
    equal((again.bth.pseq(), again.bth.rtx()), (data.bth.pseq(), true), "what is sent after the wait")
}
