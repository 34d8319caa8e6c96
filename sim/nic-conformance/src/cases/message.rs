//! Messages at the responder: placement in any order, completion in order.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::Caps;
use crate::failure::{check, equal, Outcome};
use crate::kit::{pattern, set_paths, Kit, GUARD, LEN, US};
use crate::packet::Packet;
use crate::setup::{CqeOp, RecvWr, StreamConfig};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Msn, Rsn};
use nic_spec::wire::NakReason;

cases! { "message":
    "M-002" + "M-003" messages_around_a_pmtu_of_1024_are_placed => |k| pmtu_in(k, 10);
    "M-002" + "M-003" messages_around_a_pmtu_of_2048_are_placed => |k| pmtu_in(k, 11);
    "M-002" + "M-003" messages_around_a_pmtu_of_4096_are_placed => |k| pmtu_in(k, 12);
    "M-002" + "M-003" messages_around_a_pmtu_of_8192_are_placed => |k| pmtu_in(k, 13);
    "M-003" packets_need_not_have_the_size_of_the_pmtu;
    "M-004" the_last_packet_alone_completes_a_message_of_one_packet;
    "M-004" a_message_without_first_and_last_is_placed;
    "M-004" + "M-016" the_last_packet_may_come_first;
    "M-005" a_write_of_nothing_needs_no_memory;
    "M-005" + "M-006" a_write_of_nothing_may_carry_immediate_data;
    "M-014" a_message_of_2_pow_32_minus_1_bytes_is_begun;
    "M-014" a_message_of_2_pow_31_bytes_is_begun;
    "M-001" + "M-013" mseq_wraps_at_2_pow_24;
    "M-006" + "M-015" rsn_wraps_at_2_pow_24;
    "M-013" sixty_four_messages_may_be_incomplete;
    "M-013" the_window_of_messages_moves_with_the_oldest;
    "M-013" + "P-001" [Caps::STREAMS] two_streams_interleave_on_one_path;
    "M-013" + "S-032" [Caps::SEND] a_message_has_one_operation;
    "P-001" + "P-009" all_256_paths_carry_packets;
    "M-013" + "P-001" one_stream_uses_all_paths;
    "M-013" [Caps::STREAMS] the_same_message_number_in_another_stream_is_another_message;
    "M-016" a_write_without_immediate_data_gives_no_completion;
    "M-016" + "H-031" a_write_with_immediate_data_gives_one_completion;
    "M-016" + "H-032" completions_wait_for_earlier_messages;
    "M-016" [Caps::STREAMS] a_stream_does_not_wait_for_another;
    "M-016" + "M-018" [Caps::UNORDERED] an_unordered_stream_completes_as_messages_end;
    "M-018" [Caps::UNORDERED] a_fence_waits_in_an_unordered_stream;
    "M-015" + "M-006" receives_are_taken_by_ordinal_and_not_by_arrival;
    "M-006" + "H-031" a_solicited_message_says_so;
    "M-012" a_region_may_lie_anywhere_in_its_buffer;
    "M-017" [Caps::HOST_FAULT] memory_that_does_not_answer_ends_the_connection;
    "M-017" + "S-005" [Caps::HOST_FAULT] a_packet_that_memory_refused_is_not_acknowledged;
    "M-017" + "M-020" [Caps::HOST_FAULT.and(Caps::SEND)] a_receive_buffer_that_does_not_answer_ends_the_connection;
    "R-011" received_packets_bytes_and_messages_are_counted;
}

/// Messages of lengths around the PMTU arrive whole.
fn pmtu_in(k: &mut Kit<'_>, pmtu_log2: u8) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = pmtu_log2)?;
    let pmtu = 1usize << pmtu_log2;
    let (mut pseq, mut at) = (0, 0);
    for (mseq, len) in [1, pmtu - 1, pmtu, pmtu + 1, 2 * pmtu, 3 * pmtu - 1].into_iter().enumerate() {
        let bytes = pattern(mseq as u8, len);
        for p in c.write_many(pseq, mseq as u32, at as u64, &bytes, pmtu) {
            k.inject(&p)?;
            pseq += 1;
        }
        k.collect(k.at_once())?;
        equal(k.memory(at, len)? == bytes, true, format!("memory of a message of {len} bytes"))?;
        equal(k.memory(at + len, 1)?, [0], format!("the byte behind a message of {len} bytes"))?;
        at += len + 1;
    }
    let messages = k.dut.counter(Counter::RxMessages)?;
    equal(messages, 6, "rx_messages_count")
}

fn packets_need_not_have_the_size_of_the_pmtu(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let bytes = pattern(1, 1000);
    let before = k.snapshot()?;
    let (mut at, mut pseq) = (0, 0);
    for len in [1, 333, 7, 512, 147] {
        k.inject(&c.write(pseq, at as u64, &bytes[at..at + len]).mseq(0).middle().dma_len(1000))?;
        (at, pseq) = (at + len, pseq + 1);
    }
    k.collect(k.at_once())?;
    k.memory_holds_only(&[(0, &bytes)])?;
    equal(k.counted(&before, Counter::RxMessages)?, 1, "rx_messages_count")
}

fn the_last_packet_alone_completes_a_message_of_one_packet(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 0, 0)?;
    k.inject(&c.write_imm(0, 0, b"last", 0, 9).last())?;
    k.acks(0, &[])?;
    k.completes(&[(5, Status::Ok)]).map(|_| ())
}

fn a_message_without_first_and_last_is_placed(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    k.inject(&c.write(0, 0, b"neither!").middle().ack_req())?;
    k.acks(0, &[])?;
    equal(k.counted(&before, Counter::RxMessages)?, 1, "rx_messages_count")
}

fn the_last_packet_may_come_first(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = 10)?;
    k.post_recv(&c, 5, 0, 0)?;
    let bytes = pattern(6, 3000);
    let packets: Vec<Packet> = c.write_many(0, 0, 0, &bytes, 1024).into_iter().map(|p| p.imm(0xabcd)).collect();
    k.inject(&packets[2])?;
    k.acks(0xff_ffff, &[2])?;
    k.inject(&packets[0])?;
    k.acks(0, &[2])?;
    k.completes_nothing()?;
    k.inject(&packets[1])?;
    k.acks(2, &[])?;
    let done = k.completes(&[(5, Status::Ok)])?;
    equal((done[0].imm, done[0].byte_len), (Some(0xabcd), 3000), "immediate data and length")?;
    k.memory_holds_only(&[(0, &bytes)])
}

fn a_write_of_nothing_needs_no_memory(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    k.inject(&c.write(0, 0, &[]).va(u64::MAX).rkey(0xffff_ffff))?;
    k.acks(0, &[])?;
    equal(k.counted(&before, Counter::RxMessages)?, 1, "rx_messages_count")?;
    k.refused(&before, &[])?;
    k.memory_holds_only(&[])
}

fn a_write_of_nothing_may_carry_immediate_data(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 0, 0)?;
    k.inject(&c.write_imm(0, 0, &[], 0, 0).rkey(0))?;
    k.acks(0, &[])?;
    let done = k.completes(&[(5, Status::Ok)])?;
    equal((done[0].imm, done[0].byte_len), (Some(0), 0), "immediate data and length")
}

/// A packet of a message of `len` bytes is placed; the message is not complete.
fn begun(k: &mut Kit<'_>, len: u32) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 0, 0)?;
    let before = k.snapshot()?;
    k.inject(&c.write_imm(0, 16, b"a part", 0, 1).dma_len(len).first())?;
    k.acks(0, &[])?;
    k.inject(&c.write_imm(1, 32, b"the end", 0, 1).mseq(0).dma_len(len).last())?;
    k.acks(1, &[])?;
    k.memory_holds_only(&[(16, b"a part"), (32, b"the end")])?;
    k.completes_nothing()?;
    equal(k.counted(&before, Counter::RxMessages)?, 0, "rx_messages_count")
}

fn a_message_of_2_pow_32_minus_1_bytes_is_begun(k: &mut Kit<'_>) -> Outcome {
    begun(k, u32::MAX)
}

fn a_message_of_2_pow_31_bytes_is_begun(k: &mut Kit<'_>) -> Outcome {
    begun(k, 1 << 31)
}

fn mseq_wraps_at_2_pow_24(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.streams[0].first_msn = Msn::new(0xff_fffe))?;
    // The messages arrive in the order 2, 0, 3, 1.
    for (n, i) in [2u32, 0, 3, 1].into_iter().enumerate() {
        k.inject(&c.write(n as u32, u64::from(i), &[b'a' + i as u8]).mseq(0xff_fffe + i))?;
        k.acks(n as u32, &[])?;
    }
    equal(k.dut.counter(Counter::RxMessages)?, 4, "rx_messages_count")?;
    // The oldest is now number 2: 65 is within its window, 66 is not.
    k.inject(&c.write(4, 8, b"z").mseq(65))?;
    k.acks(4, &[])?;
    k.inject(&c.write(5, 8, b"z").mseq(66))?;
    k.nak(NakReason::NoResource)?;
    k.memory_holds_only(&[(0, b"abcd"), (8, b"z")])
}

fn rsn_wraps_at_2_pow_24(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.streams[0].first_rsn = Rsn::new(0xff_fffe))?;
    (0..4).try_for_each(|i| k.post_recv(&c, 10 + i, 0, 0))?;
    for n in 0..4u32 {
        k.inject(&c.write_imm(n, 0, b"x", 0xff_fffe + n, n))?;
        k.acks(n, &[])?;
    }
    let done = k.completes(&[(10, Status::Ok), (11, Status::Ok), (12, Status::Ok), (13, Status::Ok)])?;
    equal(done.iter().map(|c| c.imm).collect::<Vec<_>>(), [Some(0), Some(1), Some(2), Some(3)], "immediate data")?;
    k.inject(&c.write_imm(4, 0, b"x", 2, 4))?;
    k.nak(NakReason::Rnr).map(|_| ())
}

/// The first packet of 64 messages; then their second, newest first.
fn sixty_four_messages_may_be_incomplete(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for n in 0..64 {
        k.inject(&c.write(n, 8 * u64::from(n), &[n as u8; 4]).first().dma_len(8))?;
    }
    k.collect(k.at_once())?;
    equal(k.dut.counter(Counter::RxMessages)?, 0, "rx_messages_count")?;
    for n in 0..64 {
        let m = 63 - n;
        k.inject(&c.write(64 + n, 8 * u64::from(m) + 4, &[m as u8; 4]).mseq(m).last().dma_len(8))?;
        k.collect(US)?;
        equal(k.dut.counter(Counter::RxMessages)?, if n == 63 { 64 } else { 0 }, "rx_messages_count")?;
    }
    let all: Vec<u8> = (0..64u8).flat_map(|n| [n; 8]).collect();
    k.memory_holds_only(&[(0, &all)])
}

fn the_window_of_messages_moves_with_the_oldest(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.transport.nak_interval_ps = 0)?;
    k.inject(&c.write(0, 0, b"64").mseq(64))?;
    k.nak(NakReason::NoResource)?;
    k.inject(&c.write(0, 0, b"0").mseq(0))?;
    k.acks(0, &[])?;
    k.inject(&c.write(1, 2, b"64").mseq(64))?;
    k.acks(1, &[])?;
    k.inject(&c.write(2, 4, b"65").mseq(65))?;
    k.nak(NakReason::NoResource)?;
    k.memory_holds_only(&[(0, b"0"), (2, b"64")])
}

fn two_streams(k: &mut Kit<'_>) -> Outcome<Conn> {
    k.open(|cfg| cfg.streams = vec![StreamConfig::new(1, 0), StreamConfig::new(2, 1)])
}

fn two_streams_interleave_on_one_path(k: &mut Kit<'_>) -> Outcome {
    let c = two_streams(k)?;
    let (a, b) = (pattern(1, 3000), pattern(2, 3000));
    let of_a = c.write_many(0, 0, 0, &a, 1000);
    let of_b = c.write_many(0, 0, 8192, &b, 1000);
    for i in 0..3u32 {
        k.inject(&of_a[i as usize].clone().pseq(2 * i))?;
        k.inject(&of_b[i as usize].clone().pseq(2 * i + 1).stream(2))?;
    }
    k.collect(k.at_once())?;
    k.memory_holds_only(&[(0, &a), (8192, &b)])?;
    equal(k.dut.counter(Counter::RxMessages)?, 2, "rx_messages_count")
}

fn a_message_has_one_operation(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 1000, 64)?;
    k.inject(&c.write(0, 0, b"0123").mseq(0).first().dma_len(8))?;
    k.acks(0, &[])?;
    k.inject(&c.send(1, b"4567").mseq(0).rsn(0).offset(4).msg_len(8).last())?;
    k.nak(NakReason::Stream)?;
    k.inject(&c.write(1, 4, b"4567").mseq(0).last().dma_len(8))?;
    k.acks(1, &[])?;
    k.memory_holds_only(&[(0, b"01234567")])
}

fn all_256_paths_carry_packets(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 256, 1);
        cfg.transport.conn_init_pkts = 256;
    })?;
    let mut want = Vec::new();
    for path in 0..=255u8 {
        let n = u32::from(path);
        k.inject(&c.write(0, u64::from(n), &[path ^ 0x5a]).mseq(n).path(path))?;
        equal(k.acks(0, &[])?.apath, path, "path acknowledged")?;
        want.push(path ^ 0x5a);
    }
    k.memory_holds_only(&[(0, &want)])?;
    (0..64).try_for_each(|i| k.post_write(&c, i, 0, 4 * 4096))?;
    let sent = k.collect(30 * US)?;
    let mut paths: Vec<u8> = sent.iter().map(|s| s.pxth.path_id().get()).collect();
    paths.sort_unstable();
    equal(paths, (0..=255).collect::<Vec<_>>(), "paths used")
}

fn one_stream_uses_all_paths(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 4, 1))?;
    let bytes = pattern(3, 12_000);
    let packets = c.write_many(0, 0, 0, &bytes, 1000);
    // Packet i goes on path i mod 4, with its own numbers there; the paths deliver one after the other, last first.
    for path in (0..4usize).rev() {
        for (n, p) in packets.iter().skip(path).step_by(4).enumerate() {
            k.inject(&p.clone().path(path as u8).pseq(n as u32))?;
        }
    }
    k.collect(k.at_once())?;
    k.memory_holds_only(&[(0, &bytes)])?;
    equal(k.dut.counter(Counter::RxMessages)?, 1, "rx_messages_count")
}

fn the_same_message_number_in_another_stream_is_another_message(k: &mut Kit<'_>) -> Outcome {
    let c = two_streams(k)?;
    for (pseq, stream) in [(0, 1), (1, 2)] {
        let recv = RecvWr { wr_id: stream.into(), local: Default::default(), len: 0, tag: None };
        k.dut.post_recv(c.id, stream, recv)?;
        k.inject(&c.write_imm(pseq, 8 * u64::from(pseq), b"x", 0, 70 + u32::from(stream)).mseq(0).stream(stream))?;
    }
    k.collect(k.at_once())?;
    let first = k.completes(&[(1, Status::Ok)])?;
    let second = k.completions_of(1, 1)?;
    equal((first[0].stream, first[0].imm), (1, Some(71)), "completion of stream 1")?;
    let got: Vec<_> = second.iter().map(|c| (c.wr_id, c.stream, c.imm)).collect();
    equal(got, [(2, 2, Some(72))], "completions of stream 2")
}

fn a_write_without_immediate_data_gives_no_completion(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 0, 0)?;
    (0..5).try_for_each(|n| k.inject(&c.write(n, 0, b"x")))?;
    k.collect(k.at_once())?;
    k.completes_nothing()?;
    // The receive is still there.
    k.inject(&c.write_imm(5, 0, b"x", 0, 1))?;
    k.completes(&[(5, Status::Ok)]).map(|_| ())
}

fn a_write_with_immediate_data_gives_one_completion(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 77, 0, 0)?;
    k.inject(&c.write_imm(0, 8, b"notice", 0, 0xdead_beef))?;
    k.acks(0, &[])?;
    // A duplicate completes nothing.
    k.inject(&c.write_imm(0, 8, b"notice", 0, 0xdead_beef).rtx())?;
    k.acks(0, &[])?;
    let done = k.completes(&[(77, Status::Ok)])?;
    let c0 = done[0];
    equal((c0.op, c0.imm, c0.byte_len), (CqeOp::RecvImm, Some(0xdead_beef), 6), "operation, immediate data, length")?;
    equal((c0.qpn, c0.stream, c0.solicited), (c.cfg.local_id, 1, false), "QPN, stream and solicited event")
}

fn completions_wait_for_earlier_messages(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    (0..3).try_for_each(|i| k.post_recv(&c, 20 + i, 0, 0))?;
    for n in [2, 1] {
        k.inject(&c.write_imm(n, 0, b"x", n, n))?;
        k.ack()?;
        k.completes_nothing()?;
    }
    k.inject(&c.write_imm(0, 0, b"x", 0, 0))?;
    k.ack()?;
    let done = k.completes(&[(20, Status::Ok), (21, Status::Ok), (22, Status::Ok)])?;
    equal(done.iter().map(|c| c.imm).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)], "immediate data")
}

fn a_stream_does_not_wait_for_another(k: &mut Kit<'_>) -> Outcome {
    let c = two_streams(k)?;
    let recv = RecvWr { wr_id: 9, local: Default::default(), len: 0, tag: None };
    k.dut.post_recv(c.id, 2, recv)?;
    // Stream 1 lacks its first message.
    k.inject(&c.write(0, 0, b"x").mseq(1))?;
    k.inject(&c.write_imm(1, 0, b"x", 0, 1).mseq(0).stream(2))?;
    k.collect(k.at_once())?;
    let done = k.completions_of(1, 1)?;
    equal(done.iter().map(|c| c.wr_id).collect::<Vec<_>>(), [9], "completions of stream 2")
}

fn unordered(k: &mut Kit<'_>) -> Outcome<Conn> {
    let c = k.open(|cfg| cfg.streams[0].is_unordered = true)?;
    (0..4).try_for_each(|i| k.post_recv(&c, 30 + i, 0, 0))?;
    Ok(c)
}

fn an_unordered_stream_completes_as_messages_end(k: &mut Kit<'_>) -> Outcome {
    let c = unordered(k)?;
    for n in [2, 0, 3, 1] {
        k.inject(&c.write_imm(n, 0, b"x", n, n))?;
        k.ack()?;
        k.completes(&[(30 + u64::from(n), Status::Ok)])?;
    }
    k.completes_nothing()
}

fn a_fence_waits_in_an_unordered_stream(k: &mut Kit<'_>) -> Outcome {
    let c = unordered(k)?;
    k.inject(&c.write_imm(2, 0, b"x", 2, 2).fence())?;
    k.ack()?;
    k.completes_nothing()?;
    k.inject(&c.write_imm(0, 0, b"x", 0, 0))?;
    k.ack()?;
    k.completes(&[(30, Status::Ok)])?;
    k.inject(&c.write_imm(1, 0, b"x", 1, 1))?;
    k.ack()?;
    k.completes(&[(31, Status::Ok), (32, Status::Ok)]).map(|_| ())
}

fn receives_are_taken_by_ordinal_and_not_by_arrival(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    (0..2).try_for_each(|i| k.post_recv(&c, 40 + i, 0, 0))?;
    // The second message arrives first and takes the second receive.
    k.inject(&c.write_imm(1, 0, b"x", 1, 111))?;
    k.ack()?;
    k.inject(&c.write_imm(0, 0, b"x", 0, 100))?;
    k.ack()?;
    let done = k.completes(&[(40, Status::Ok), (41, Status::Ok)])?;
    equal((done[0].imm, done[1].imm), (Some(100), Some(111)), "immediate data")
}

fn a_solicited_message_says_so(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 0, 0)?;
    let mut p = c.write_imm(0, 0, b"x", 0, 1).with_mxth(|h| _ = h.set_se(true));
    p.bth.set_se(true);
    k.inject(&p)?;
    check(k.completes(&[(5, Status::Ok)])?[0].solicited, "H-031: solicited event")
}

fn a_region_may_lie_anywhere_in_its_buffer(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for (n, (offset, va)) in [(1, 0xfff), (4097, 3), (65_537, 0x1234_5679)].into_iter().enumerate() {
        let mut region = k.region();
        (region.offset, region.va, region.len, region.key) = (GUARD + offset, va, 100, 0x50 + n as u8);
        let key = k.dut.register(&region)?;
        k.inject(&c.write(n as u32, 0, b"anywhere").va(va + 3).rkey(key))?;
        k.acks(n as u32, &[])?;
        equal(k.memory(offset + 3, 8)?, b"anywhere", "memory")?;
    }
    let written: usize = k.dut.read(k.buffer, 0, LEN)?.iter().filter(|b| **b != 0).count();
    equal(written, 24, "bytes written")
}

fn memory_that_does_not_answer_ends_the_connection(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 0, 0)?;
    let before = k.snapshot()?;
    k.dut.set_fault(k.buffer, true)?;
    k.inject(&c.write(0, 0, b"lost"))?;
    k.collect(k.at_once())?;
    k.dut.set_fault(k.buffer, false)?;
    equal(k.counted(&before, Counter::DmaWriteError)?, 1, "dma_write_error_count")?;
    equal(k.counted(&before, Counter::ConnErrors)?, 1, "conn_error_count")?;
    k.completes(&[(5, Status::WrFlush)])?;
    let before = k.snapshot()?;
    k.inject(&c.write(1, 0, b"more"))?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::RxConnError, 1)])?;
    k.memory_holds_only(&[])
}

fn a_packet_that_memory_refused_is_not_acknowledged(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"good"))?;
    k.acks(0, &[])?;
    k.dut.set_fault(k.buffer, true)?;
    k.inject(&c.write(1, 0, b"lost"))?;
    k.silence(k.at_once())?;
    k.dut.set_fault(k.buffer, false)?;
    k.memory_holds_only(&[(0, b"good")])
}

fn a_receive_buffer_that_does_not_answer_ends_the_connection(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_recv(&c, 5, 0, 64)?;
    k.collect(k.at_once())?;
    let before = k.snapshot()?;
    k.dut.set_fault(k.buffer, true)?;
    k.inject(&c.send(0, b"lost"))?;
    k.silence(k.at_once())?;
    k.dut.set_fault(k.buffer, false)?;
    equal(k.counted(&before, Counter::DmaWriteError)?, 1, "dma_write_error_count")?;
    k.completes(&[(5, Status::WrFlush)])?;
    k.memory_holds_only(&[])
}

fn received_packets_bytes_and_messages_are_counted(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    let packets = [c.write(0, 0, &[1; 100]), c.write(1, 0, &[1; 50]), c.write(1, 0, &[1; 50]), c.write(2, 0, &[])];
    let bytes: u64 = packets.iter().map(|p| p.to_bytes().len() as u64).sum();
    k.inject_all(&packets)?;
    k.collect(k.at_once())?;
    equal(k.counted(&before, Counter::RxFrames)?, 4, "rx_frames_count")?;
    equal(k.counted(&before, Counter::RxBytes)?, bytes, "rx_bytes")?;
    equal(k.counted(&before, Counter::RxData)?, 3, "rx_data_count")?;
    equal(k.counted(&before, Counter::RxDataBytes)?, 150, "rx_data_bytes")?;
    equal(k.counted(&before, Counter::RxMessages)?, 3, "rx_messages_count")
}
