//! Atomic operations, carried out exactly once; and FLUSH.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Region};
use crate::failure::{check, equal, Outcome};
use crate::kit::{remote, Kit, Sent, LEN, MS, PD, PEER_KEY, PEER_VA, RTT, US, VA};
use crate::packet::Packet;
use crate::peer::{same_packet, Fate, Peer};
use crate::setup::{CqeOp, SendOp, SendWr, NS_PS};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::{Status, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE};
use nic_spec::num::Pd;
use nic_spec::wire::AtomicOp::{CompareSwap, FetchAdd};
use nic_spec::wire::{AtomicOp, NakReason, Opcode};

cases! { "atomic":
    "M-050" [Caps::ATOMIC] compare_and_swap_swaps_what_is_equal => |k| operate(k, CompareSwap, 7, (99, 7), 99);
    "M-050" [Caps::ATOMIC] compare_and_swap_leaves_what_differs => |k| operate(k, CompareSwap, 7, (99, 8), 7);
    "M-050" [Caps::ATOMIC] compare_and_swap_sees_all_64_bits => |k| operate(k, CompareSwap, 1 << 63 | 5, (1, 5), 1 << 63 | 5);
    "M-050" [Caps::ATOMIC] fetch_and_add_adds => |k| operate(k, FetchAdd, 40, (2, 0), 42);
    "M-050" [Caps::ATOMIC] fetch_and_add_wraps_at_2_pow_64 => |k| operate(k, FetchAdd, u64::MAX - 1, (5, 0), 3);
    "M-050" [Caps::ATOMIC] operations_of_a_stream_follow_each_other;
    "M-051" + "S-002" [Caps::ATOMIC] a_duplicate_operation_is_not_carried_out_again;
    "M-051" + "R-006" [Caps::ATOMIC] a_lost_result_is_repeated_and_not_computed_again;
    "M-052" [Caps::ATOMIC] an_operand_out_of_alignment_is_refused => |k| refuses(k, NakReason::Range, |_, c| Ok(add(c, 4)));
    "M-052" [Caps::ATOMIC] an_operand_beyond_the_region_is_refused => |k| refuses(k, NakReason::Range, |_, c| Ok(add(c, LEN as u64)));
    "M-052" [Caps::ATOMIC] an_operand_with_an_unknown_key_is_refused => |k| refuses(k, NakReason::Rkey, |k, c| Ok(with_key(add(c, 0), k.key ^ 1)));
    "M-052" [Caps::ATOMIC] an_operand_of_another_domain_is_refused => |k| refuses(k, NakReason::Pd, |k, c| {
        let key = second(k, |r| r.pd = Pd::new(PD + 1))?;
        Ok(with_key(add(c, 0), key))
    });
    "M-052" [Caps::ATOMIC] an_operand_without_permission_is_refused => |k| refuses(k, NakReason::Access, |k, c| {
        let key = second(k, |r| r.access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ)?;
        Ok(with_key(add(c, 0), key))
    });
    "M-053" [Caps::ATOMIC] an_operation_waits_for_the_write_that_is_missing;
    "M-054" [Caps::ATOMIC] a_request_names_operand_and_values;
    "M-054" [Caps::ATOMIC] the_result_goes_to_local_memory;
    "M-054" + "S-032" [Caps::ATOMIC] a_result_of_an_unknown_operation_is_refused;
    "M-054" + "H-032" [Caps::ATOMIC] an_operation_completes_with_its_result_and_in_order;
    "M-054" + "S-002" [Caps::ATOMIC] a_duplicate_result_is_not_placed;
    "M-055" [Caps::FLUSH] a_flush_is_acknowledged_after_the_writes_before_it;
    "M-055" [Caps::FLUSH] a_flush_of_memory_that_is_not_open_is_refused;
    "M-055" [Caps::FLUSH] a_flush_of_nothing_looks_at_no_memory;
    "M-055" [Caps::FLUSH] a_flush_waits_for_the_write_that_is_missing;
    "M-055" [Caps::FLUSH] a_flush_completes_after_all_earlier_messages;
}

fn word(k: &mut Kit<'_>, offset: usize) -> Outcome<u64> {
    let bytes = k.memory(offset, 8)?;
    Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

fn add(c: &Conn, offset: u64) -> Packet {
    c.atomic(0, 1, offset, FetchAdd, 1, 0)
}

fn with_key(p: Packet, key: u32) -> Packet {
    p.with_atomiceth(|h| _ = h.set_rkey(nic_spec::num::Rkey::new(key)))
}

fn second(k: &mut Kit<'_>, change: impl FnOnce(&mut Region)) -> Outcome<u32> {
    let mut region = Region { key: 0x91, ..k.region() };
    change(&mut region);
    k.dut.register(&region)
}

/// Serves the card until it has answered operation `id`.
fn result(k: &mut Kit<'_>, peer: &mut Peer, id: u16, fate: impl FnMut(&Sent, usize) -> Fate) -> Outcome<u64> {
    peer.serve(k, 200 * MS, fate, |_, peer| Ok(peer.results.contains_key(&id)))?;
    Ok(peer.results[&id])
}

/// The operand becomes `after`; the answer is what it was.
fn operate(k: &mut Kit<'_>, op: AtomicOp, before: u64, (swap_add, compare): (u64, u64), after: u64) -> Outcome {
    let c = k.open(|_| ())?;
    let mut peer = Peer::new(&c, RTT);
    k.fill(16, &before.to_le_bytes())?;
    k.inject(&c.atomic(0, 0xa55a, 16, op, swap_add, compare))?;
    equal(result(k, &mut peer, 0xa55a, |_, _| Fate::Pass)?, before, "value in the answer")?;
    equal(word(k, 16)?, after, "operand")?;
    k.memory_holds_only(&[(16, &after.to_le_bytes())])?;
    let said: Vec<_> = peer.log.iter().filter_map(|s| s.atag().map(|h| h.op())).collect();
    equal(said, [op.code()], "operation that the answer repeats")
}

fn operations_of_a_stream_follow_each_other(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let mut peer = Peer::new(&c, RTT);
    // They arrive in reverse.
    for n in (0..3u32).rev() {
        k.inject(&c.atomic(n, n as u16, 0, FetchAdd, 10u64.pow(n), 0))?;
    }
    peer.serve(k, MS, |_, _| Fate::Pass, |_, peer| Ok(peer.results.len() == 3))?;
    equal(peer.results.values().copied().collect::<Vec<_>>(), [0, 1, 11], "values in the answers")?;
    equal(word(k, 0)?, 111, "operand")
}

fn a_duplicate_operation_is_not_carried_out_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let mut peer = Peer::new(&c, RTT);
    for _ in 0..3 {
        k.inject(&add(&c, 0))?;
    }
    result(k, &mut peer, 1, |_, _| Fate::Pass)?;
    k.inject(&add(&c, 0).rtx())?;
    let more = k.collect(RTT / 2)?;
    check(more.iter().all(|s| s.opcode == Opcode::Ack), "M-051: a second answer")?;
    equal(word(k, 0)?, 1, "operand")
}

fn a_lost_result_is_repeated_and_not_computed_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (MS * NS_PS, MS * NS_PS))?;
    k.fill(0, &70u64.to_le_bytes())?;
    k.inject(&add(&c, 0))?;
    let mut sent = k.collect(k.at_once())?.into_iter().filter(|s| s.opcode == Opcode::AtomicRsp);
    let first = sent.next().ok_or_else(|| crate::failure::Failure::new("M-050: no answer"))?;
    // The host changes the operand before the answer is repeated.
    k.fill(0, &1000u64.to_le_bytes())?;
    let again = k.expect(Opcode::AtomicRsp, 2 * MS)?;
    same_packet(&first, &again)?;
    equal(again.atomicack().map(|h| h.orig()), Some(70), "value in the repeated answer")?;
    equal(word(k, 0)?, 1000, "operand")?;
    k.inject(&c.ack(&again))?;
    k.silence(20 * MS)
}

fn refuses(k: &mut Kit<'_>, reason: NakReason, make: impl Fn(&mut Kit<'_>, &Conn) -> Outcome<Packet>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    let bad = make(k, &c)?;
    k.inject(&bad)?;
    equal(k.nak(reason)?.cum, 0xff_ffff, "cum_pseq")?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::of_nak(reason), 1)])?;
    k.memory_holds_only(&[])
}

fn an_operation_waits_for_the_write_that_is_missing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let mut peer = Peer::new(&c, RTT);
    k.inject(&c.atomic(1, 1, 0, FetchAdd, 1, 0))?;
    k.acks(0xff_ffff, &[1])?;
    k.silence(100 * US)?;
    equal(word(k, 0)?, 0, "operand before the write")?;
    k.inject(&c.write(0, 0, &5u64.to_le_bytes()))?;
    equal(result(k, &mut peer, 1, |_, _| Fate::Pass)?, 5, "value in the answer")?;
    equal(word(k, 0)?, 6, "operand")
}

fn cas(k: &Kit<'_>, wr_id: u64) -> SendWr {
    let op = SendOp::CompareSwap { remote: remote(64), compare: 0x1111, swap: 0x2222 };
    SendWr::new(wr_id, op, k.local(8), 8)
}

fn a_request_names_operand_and_values(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.post(&c, cas(k, 1))?;
    k.post(&c, SendWr::new(2, SendOp::FetchAdd { remote: remote(72), add: 0x3333 }, k.local(8), 8))?;
    let (a, b) = (k.expect(Opcode::AtomicReq, k.at_once())?, k.expect(Opcode::AtomicReq, k.at_once())?);
    let fields = |s: &Sent| s.atomiceth().map(|h| (h.va(), h.rkey().get(), h.swap_add(), h.compare()));
    equal(fields(&a), Some((PEER_VA + 64, PEER_KEY, 0x2222, 0x1111)), "operand and values of compare and swap")?;
    equal(fields(&b).map(|f| (f.0, f.2)), Some((PEER_VA + 72, 0x3333)), "operand and value of fetch and add")?;
    let ops = [&a, &b].map(|s| s.atag().map(|h| h.op()));
    equal(ops, [Some(CompareSwap.code()), Some(FetchAdd.code())], "operations")?;
    check(a.atag().map(|h| h.atomic_id()) != b.atag().map(|h| h.atomic_id()), "M-054: two operations with one number")
}

/// Posts a compare and swap and takes its request, which is acknowledged.
fn asked(k: &mut Kit<'_>) -> Outcome<(Conn, u16)> {
    let c = k.open(|_| ())?;
    k.post(&c, cas(k, 1))?;
    let request = k.expect(Opcode::AtomicReq, k.at_once())?;
    k.inject(&c.ack(&request))?;
    Ok((c, request.atag().map_or(0, |h| h.atomic_id())))
}

fn the_result_goes_to_local_memory(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = asked(k)?;
    k.completes_nothing()?;
    k.inject(&c.atomic_rsp(0, id, CompareSwap, 0x0102_0304_0506_0708))?;
    k.acks(0, &[])?;
    let done = k.completes(&[(1, Status::Ok)])?;
    equal((done[0].op, done[0].byte_len), (CqeOp::CompareSwap, 8), "completion")?;
    k.memory_holds_only(&[(8, &0x0102_0304_0506_0708u64.to_le_bytes())])
}

fn a_result_of_an_unknown_operation_is_refused(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = asked(k)?;
    let before = k.snapshot()?;
    k.inject(&c.atomic_rsp(0, id ^ 0x4444, CompareSwap, 5))?;
    k.nak(NakReason::Stream)?;
    k.refused(&before, &[(Counter::NakStream, 1)])?;
    k.memory_holds_only(&[])?;
    k.completes_nothing()
}

fn an_operation_completes_with_its_result_and_in_order(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.post(&c, cas(k, 1))?;
    k.post_write(&c, 2, 0, 8)?;
    let sent = k.collect(RTT)?;
    k.inject(&c.ack(&sent[1]))?;
    k.completes_nothing()?;
    let id = sent[0].atag().map_or(0, |h| h.atomic_id());
    k.inject(&c.atomic_rsp(0, id, CompareSwap, 5))?;
    k.ack()?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)]).map(|_| ())
}

fn a_duplicate_result_is_not_placed(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = asked(k)?;
    k.inject(&c.atomic_rsp(0, id, CompareSwap, 5))?;
    k.acks(0, &[])?;
    k.inject(&c.atomic_rsp(0, id, CompareSwap, 6).rtx())?;
    check(k.acks(0, &[])?.dup, "S-022: DUP")?;
    k.completes(&[(1, Status::Ok)])?;
    k.memory_holds_only(&[(8, &5u64.to_le_bytes())])
}

fn a_flush_is_acknowledged_after_the_writes_before_it(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"to be flushed"))?;
    k.inject(&c.flush(1, 0, 13))?;
    k.collect(k.at_once())?;
    k.memory_holds_only(&[(0, b"to be flushed")])?;
    equal(k.dut.counter(Counter::RxMessages)?, 2, "rx_messages_count")
}

fn a_flush_of_memory_that_is_not_open_is_refused(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.flush(0, 0, 8).rkey(k.key ^ 1))?;
    k.nak(NakReason::Rkey)?;
    k.advance(MS)?;
    k.inject(&c.flush(0, 0, 8).va(VA + LEN as u64))?;
    k.nak(NakReason::Range).map(|_| ())
}

fn a_flush_completes_after_all_earlier_messages(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| cfg.streams[0].is_unordered = true)?;
    k.post_write(&c, 1, 0, 1000)?;
    k.post(&c, SendWr::new(2, SendOp::Flush { remote: remote(0) }, k.local(0), 1000))?;
    let sent = k.collect(RTT)?;
    equal(sent.iter().map(|s| s.opcode).collect::<Vec<_>>(), [Opcode::Write, Opcode::Flush], "packets")?;
    equal(sent[1].reth().map(|h| (h.va(), h.dma_len())), Some((PEER_VA, 1000)), "memory flushed")?;
    k.inject(&c.ack(&sent[1]).cum(0).sack(&[1]).echo(sent[0].pxth.tx_ts()))?;
    k.completes_nothing()?;
    k.inject(&c.ack(&sent[1]))?;
    let done = k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    equal(done[1].op, CqeOp::Flush, "operation")
}

fn a_flush_of_nothing_looks_at_no_memory(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.flush(0, 0, 0).rkey(u32::MAX))?;
    k.acks(0, &[])?;
    equal(k.dut.counter(Counter::RxMessages)?, 1, "rx_messages_count")
}

fn a_flush_waits_for_the_write_that_is_missing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.flush(1, 0, 8))?;
    k.acks(0xff_ffff, &[1])?;
    equal(k.dut.counter(Counter::RxMessages)?, 0, "rx_messages_count before the write")?;
    k.inject(&c.write(0, 0, b"missing!"))?;
    k.acks(1, &[])?;
    equal(k.dut.counter(Counter::RxMessages)?, 2, "rx_messages_count")
}
