//! Recovery at the sender: what an acknowledgement proves, what is sent again and when.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Nanos};
use crate::failure::{check, equal, Outcome};
use crate::kit::{set_paths, Kit, Sent, BURST_BYTES, MS, RTT, US};
use crate::setup::{ConnConfig, NS_PS};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::Psn;
use nic_spec::wire::Opcode;

cases! { "recovery":
    "R-001" + "M-008" one_number_acknowledges_everything_before_it;
    "R-001" + "M-008" a_bit_acknowledges_one_packet_and_completions_keep_their_order;
    "R-001" an_older_acknowledgement_takes_nothing_back;
    "R-001" a_lost_acknowledgement_is_made_up_for_by_the_next;
    "R-001" a_repeated_acknowledgement_changes_nothing;
    "R-002" a_number_that_was_never_sent_is_refused => |k| bad_ack(k, |c, sent| c.ack(&sent[4]).cum(6));
    "R-002" a_bit_of_a_packet_that_was_never_sent_is_refused => |k| bad_ack(k, |c, sent| c.ack(&sent[4]).cum(5).sack(&[1]));
    "R-002" a_number_half_the_circle_ahead_is_refused => |k| bad_ack(k, |c, sent| c.ack(&sent[4]).cum(0x7f_ffff));
    "R-002" [Caps::CONGESTION] a_number_more_than_a_window_behind_is_refused;
    "R-003" + "R-011" a_gap_is_sent_again_at_once_and_counted;
    "R-003" + "R-004" only_the_missing_packets_are_sent_again;
    "R-003" a_gap_at_the_end_is_no_gap;
    "R-003" + "R-004" a_retransmission_is_not_repeated_by_older_evidence;
    "R-003" + "R-004" a_lost_retransmission_is_sent_again_when_a_later_packet_arrives;
    "R-004" a_retransmission_goes_before_new_packets;
    "R-003" [Caps::BULK] the_gap_rule_holds_across_the_wrap_of_the_clock;
    "R-003" + "P-002" a_gap_is_found_across_the_wrap_of_pseq;
    "R-005" an_acknowledgement_of_another_epoch_proves_no_loss_and_acknowledges => |k| other_epoch(k, 0, 1);
    "R-005" an_acknowledgement_of_the_epoch_before_proves_no_loss => |k| other_epoch(k, 0, 15);
    "R-005" + "P-008" epoch_15_is_followed_by_0 => |k| other_epoch(k, 15, 0);
    "R-006" without_an_answer_the_oldest_packet_is_sent_again;
    "R-006" + "R-001" the_first_transmission_may_still_be_acknowledged_after_a_timeout;
    "R-006" + "P-020" [Caps::RE_AIM] a_path_that_timed_out_carries_nothing_new;
    "R-006" the_timeout_doubles;
    "R-006" progress_brings_the_timeout_back;
    "R-006" [Caps::BULK] the_timeout_ends_at_its_cap;
    "R-006" + "R-012" [Caps::RTT] the_timeout_follows_the_round_trip => |k| {
        let span = timeout_after(k, 40, 400 * US, 0)?;
        check((400 * US..=480 * US).contains(&span), format!("timeout {span} ns with a round trip of 400 us"))
    };
    "R-012" + "S-022" [Caps::RTT] what_the_receiver_held_back_is_not_part_of_the_round_trip => |k| {
        // Four round trips leave a deviation of 250 us / 2 * (3/4)^3; of 400 us it would be 737 us in all.
        let span = timeout_after(k, 4, 400 * US, (150 * US / 16) as u16)?;
        check((430 * US..=500 * US).contains(&span), format!("timeout {span} ns with 400 us less 150 us, want 461 us"))
    };
    "R-012" + "S-022" [Caps::RTT] a_saturated_hold_gives_no_round_trip => |k| {
        let span = timeout_after(k, 4, 400 * US, u16::MAX)?;
        check((990 * US..=MS + k.at_once()).contains(&span), format!("timeout {span} ns although no round trip is known"))
    };
    "R-007" + "H-025" silence_ends_the_connection;
    "R-008" [Caps::CONGESTION] an_isolated_loss_does_not_cut_the_window;
    "R-001" + "S-007" [Caps::CONGESTION] a_stale_ce_cnt_is_not_read_as_marks;
}

/// Timeouts of this length; path and card take no other route meanwhile.
fn timeout(cfg: &mut ConnConfig, ns: Nanos) {
    (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (ns * NS_PS, ns * NS_PS);
}

fn numbers(sent: &[Sent]) -> Vec<(u32, bool)> {
    sent.iter().map(|s| (s.bth.pseq().get(), s.bth.rtx())).collect()
}

/// A warm connection and five packets on their way, numbers 1 to 5, requests 1 to 5.
fn five(k: &mut Kit<'_>) -> Outcome<(Conn, Vec<Sent>)> {
    let c = k.warm(|_| ())?;
    let sent = k.burst(&c, 1, 5)?;
    k.advance(RTT)?;
    Ok((c, sent))
}

fn one_number_acknowledges_everything_before_it(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    k.inject(&c.ack(&sent[2]))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok), (3, Status::Ok)])?;
    k.inject(&c.ack(&sent[4]))?;
    k.completes(&[(4, Status::Ok), (5, Status::Ok)])?;
    k.silence(5 * MS)
}

fn a_bit_acknowledges_one_packet_and_completions_keep_their_order(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    // Packet 2 arrived, its predecessor not yet; the clock proves no loss of it.
    k.inject(&c.ack(&sent[1]).cum(0).sack(&[1]).echo(sent[0].pxth.tx_ts()))?;
    k.silence(US)?;
    k.completes_nothing()?;
    k.inject(&c.ack(&sent[0]).cum(0).sack(&[]))?;
    k.completes_nothing()?;
    k.inject(&c.ack(&sent[0]).cum(2))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    k.inject(&c.ack(&sent[4]))?;
    k.completes(&[(3, Status::Ok), (4, Status::Ok), (5, Status::Ok)]).map(|_| ())
}

fn an_older_acknowledgement_takes_nothing_back(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    k.inject(&c.ack(&sent[3]))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok), (3, Status::Ok), (4, Status::Ok)])?;
    let before = k.snapshot()?;
    k.inject(&c.ack(&sent[0]))?;
    k.inject(&c.ack(&sent[2]).cum(1).sack(&[1]))?;
    k.silence(RTT)?;
    k.refused(&before, &[])?;
    k.inject(&c.ack(&sent[4]))?;
    k.completes(&[(5, Status::Ok)])?;
    k.silence(5 * MS)
}

fn a_lost_acknowledgement_is_made_up_for_by_the_next(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    k.inject(&c.ack(&sent[4]))?;
    let all: Vec<_> = (1..=5).map(|n| (n, Status::Ok)).collect();
    k.completes(&all)?;
    k.silence(5 * MS)
}

fn a_repeated_acknowledgement_changes_nothing(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    for _ in 0..10 {
        k.inject(&c.ack(&sent[1]))?;
    }
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    k.silence(RTT)?;
    k.inject(&c.ack(&sent[4]))?;
    k.completes(&[(3, Status::Ok), (4, Status::Ok), (5, Status::Ok)]).map(|_| ())
}

/// The acknowledgement is counted as bad and acknowledges nothing, not even what it could.
fn bad_ack(k: &mut Kit<'_>, make: impl Fn(&Conn, &[Sent]) -> crate::packet::Packet) -> Outcome {
    let (c, sent) = five(k)?;
    let before = k.snapshot()?;
    k.inject(&make(&c, &sent))?;
    k.completes_nothing()?;
    k.refused(&before, &[(Counter::RxBadAck, 1)])?;
    k.inject(&c.ack(&sent[4]))?;
    let all: Vec<_> = (1..=5).map(|n| (n, Status::Ok)).collect();
    k.completes(&all).map(|_| ())
}

fn a_number_more_than_a_window_behind_is_refused(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    let first = k.burst(&c, 1, 1)?;
    k.inject(&c.ack(&first[0]))?;
    k.completes(&[(1, Status::Ok)])?;
    let mut last = first[0].clone();
    for n in 2..300 {
        last = k.burst(&c, n, 1)?.swap_remove(0);
        k.inject(&c.ack(&last))?;
        k.completes(&[(n, Status::Ok)])?;
    }
    let before = k.snapshot()?;
    // 255 behind is an acknowledgement that took a detour; 298 behind nobody can have sent lately.
    k.inject(&c.ack(&last).cum(last.bth.pseq().get() - 255))?;
    k.silence(US)?;
    k.refused(&before, &[])?;
    k.inject(&c.ack(&first[0]))?;
    k.silence(US)?;
    k.refused(&before, &[(Counter::RxBadAck, 1)])
}

fn a_gap_is_sent_again_at_once_and_counted(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    let before = k.snapshot()?;
    k.inject(&c.ack(&sent[1]).cum(0).sack(&[1]))?;
    let again = k.expect(Opcode::Write, k.at_once())?;
    equal(numbers(&[again]), [(1, true)], "what is sent again")?;
    k.silence(RTT)?;
    equal(k.counted(&before, Counter::TxRtxGap)?, 1, "tx_rtx_gap_count")?;
    equal(k.counted(&before, Counter::TxRtxRto)?, 0, "tx_rtx_rto_count")?;
    equal(k.counted(&before, Counter::TxData)?, 0, "tx_data_count")
}

fn only_the_missing_packets_are_sent_again(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    k.inject(&c.ack(&sent[4]).cum(1).sack(&[1, 3]))?;
    let again = k.collect(RTT)?;
    equal(numbers(&again), [(2, true), (4, true)], "what is sent again")?;
    k.inject(&c.ack(&again[1]).cum(5))?;
    let all: Vec<_> = (1..=5).map(|n| (n, Status::Ok)).collect();
    k.completes(&all)?;
    k.silence(5 * MS)
}

fn a_gap_at_the_end_is_no_gap(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    k.inject(&c.ack(&sent[2]))?;
    // 4 and 5 may still be on their way.
    k.silence(8 * US)
}

fn a_retransmission_is_not_repeated_by_older_evidence(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    k.inject(&c.ack(&sent[1]).cum(0).sack(&[1]))?;
    k.expect(Opcode::Write, k.at_once())?;
    for (n, bits) in [(2, &[1, 2][..]), (3, &[1, 2, 3]), (4, &[1, 2, 3, 4])] {
        k.inject(&c.ack(&sent[n]).cum(0).sack(bits))?;
    }
    k.silence(8 * US)
}

fn a_lost_retransmission_is_sent_again_when_a_later_packet_arrives(k: &mut Kit<'_>) -> Outcome {
    let (c, sent) = five(k)?;
    k.inject(&c.ack(&sent[4]).cum(0).sack(&[1, 2, 3, 4]))?;
    let lost = k.expect(Opcode::Write, k.at_once())?;
    let later = k.burst(&c, 6, 1)?;
    k.advance(RTT)?;
    k.inject(&c.ack(&later[0]).cum(0).sack(&[1, 2, 3, 4, 5]))?;
    let again = k.expect(Opcode::Write, k.at_once())?;
    equal(numbers(&[lost, again.clone()]), [(1, true), (1, true)], "what is sent again")?;
    k.silence(RTT)?;
    k.inject(&c.ack(&again).cum(6))?;
    let all: Vec<_> = (1..=6).map(|n| (n, Status::Ok)).collect();
    k.completes(&all).map(|_| ())
}

fn a_retransmission_goes_before_new_packets(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    (1..=40).try_for_each(|i| k.post_write(&c, i, 0, BURST_BYTES))?;
    let sent = k.collect(RTT)?;
    check(sent.len() >= 3, format!("a warm path sends {} packets", sent.len()))?;
    let bits: Vec<u32> = (1..sent.len() as u32).collect();
    k.inject(&c.ack(&sent[sent.len() - 1]).cum(0).sack(&bits))?;
    let next = k.collect(RTT)?;
    equal(next.first().map(|s| (s.bth.pseq().get(), s.bth.rtx())), Some((1, true)), "first of what is sent")?;
    check(next.len() > 1 && next[1..].iter().all(|s| !s.bth.rtx()), "R-004: new packets follow")
}

fn the_gap_rule_holds_across_the_wrap_of_the_clock(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    // The tick of the card's clock is not known: look for the moment of the wrap with messages of one packet.
    let mut wr_id = 1;
    let mut stamp = |k: &mut Kit<'_>| -> Outcome<(Nanos, u32)> {
        let sent = k.burst(&c, wr_id, 1)?;
        k.advance(RTT)?;
        k.inject(&c.ack(&sent[0]))?;
        k.completes(&[(wr_id, Status::Ok)])?;
        wr_id += 1;
        Ok((sent[0].at, sent[0].pxth.tx_ts()))
    };
    let wait = |k: &mut Kit<'_>, until: Nanos| k.advance(until.saturating_sub(k.dut.now()));
    let (first_at, first) = stamp(k)?;
    k.advance(500 * MS)?;
    let (second_at, second) = stamp(k)?;
    let tick_ps = (second_at - first_at) * NS_PS / u64::from(second.wrapping_sub(first).max(1));
    let wraps_at = |(at, ts): (Nanos, u32)| at + u64::from(ts.wrapping_neg()) * tick_ps / NS_PS;
    // What a long way leaves uncertain a short one tells.
    wait(k, wraps_at((second_at, second)) - 2 * MS)?;
    let wraps_at = wraps_at(stamp(k)?);
    wait(k, wraps_at - 2 * US)?;
    // Three packets just before the wrap, three just after.
    let mut sent = k.burst(&c, 100, 3)?;
    wait(k, wraps_at + 2 * US)?;
    sent.extend(k.burst(&c, 103, 3)?);
    let (old, new) = (sent[0].pxth.tx_ts(), sent[5].pxth.tx_ts());
    check(old > new, format!("the clock wraps between {old:#x} and {new:#x}"))?;
    let una = sent[0].bth.pseq().get();
    k.advance(2 * US)?;
    k.inject(&c.ack(&sent[5]).cum(una - 1).sack(&[1, 2, 3, 4, 5]))?;
    let again = k.expect(Opcode::Write, k.at_once())?;
    equal(numbers(&[again]), [(una, true)], "what is sent again")
}

fn a_gap_is_found_across_the_wrap_of_pseq(k: &mut Kit<'_>) -> Outcome {
    // Numbers fffffe, ffffff, 0, 1, 2: ffffff and 1 are lost.
    let c = k.warm(|cfg| cfg.tx_paths[0].first = Psn::new(0xff_fffd))?;
    let sent = k.burst(&c, 1, 5)?;
    k.advance(RTT)?;
    k.inject(&c.ack(&sent[4]).cum(0xff_fffe).sack(&[1, 3]))?;
    let again = k.collect(RTT)?;
    equal(numbers(&again), [(0xff_ffff, true), (1, true)], "what is sent again")?;
    k.inject(&c.ack(&again[1]).cum(2))?;
    let all: Vec<_> = (1..=5).map(|n| (n, Status::Ok)).collect();
    k.completes(&all).map(|_| ())
}

fn other_epoch(k: &mut Kit<'_>, of_path: u8, of_ack: u8) -> Outcome {
    let c = k.warm(|cfg| cfg.tx_paths[0].epoch = of_path)?;
    let sent = k.burst(&c, 1, 5)?;
    k.advance(RTT)?;
    k.inject(&c.ack(&sent[4]).cum(0).sack(&[1, 2, 3, 4]).ack_epoch(of_ack))?;
    k.silence(8 * US)?;
    // But packets 2 to 5 are acknowledged: with the first, all complete.
    k.inject(&c.ack(&sent[0]))?;
    let all: Vec<_> = (1..=5).map(|n| (n, Status::Ok)).collect();
    k.completes(&all).map(|_| ())
}

/// When the packet is sent `count` more times without an answer, counted from its first transmission.
fn timeouts(k: &mut Kit<'_>, first: &Sent, count: usize, limit: Nanos) -> Outcome<Vec<Nanos>> {
    let mut at = vec![first.at];
    for _ in 0..count {
        let again = k.expect(Opcode::Write, limit)?;
        equal(again.bth.pseq(), first.bth.pseq(), "PSEQ of what is sent again")?;
        at.push(again.at);
    }
    Ok(at.windows(2).map(|w| w[1] - w[0]).collect())
}

fn without_an_answer_the_oldest_packet_is_sent_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| timeout(cfg, MS))?;
    let sent = k.burst(&c, 1, 4)?;
    let before = k.snapshot()?;
    let again = k.expect(Opcode::Write, 2 * MS)?;
    equal(numbers(std::slice::from_ref(&again)), [(1, true)], "what is sent again")?;
    let waited = again.at - sent[3].at;
    check((990 * US..=1_000 * US + k.at_once()).contains(&waited), format!("sent again after {waited} ns of 1 ms"))?;
    k.silence(500 * US)?;
    equal(k.counted(&before, Counter::PathRto)?, 1, "path_rto_count")?;
    equal(k.counted(&before, Counter::TxRtxRto)?, 1, "tx_rtx_rto_count")?;
    equal(k.counted(&before, Counter::TxRtxGap)?, 0, "tx_rtx_gap_count")?;
    k.inject(&c.ack(&again).cum(4))?;
    let all: Vec<_> = (1..=4).map(|n| (n, Status::Ok)).collect();
    k.completes(&all).map(|_| ())
}

fn the_first_transmission_may_still_be_acknowledged_after_a_timeout(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| timeout(cfg, MS))?;
    let sent = k.burst(&c, 1, 2)?;
    k.expect(Opcode::Write, 2 * MS)?;
    k.inject(&c.ack(&sent[1]))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    // The same route goes on.
    let next = k.burst(&c, 3, 1)?;
    equal((next[0].sport, next[0].pxth.epoch()), (sent[0].sport, sent[0].pxth.epoch()), "source port and epoch")?;
    k.inject(&c.ack(&next[0]))?;
    k.completes(&[(3, Status::Ok)]).map(|_| ())
}

fn a_path_that_timed_out_carries_nothing_new(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        set_paths(cfg, 2, 1);
        timeout(cfg, MS);
    })?;
    let sent = k.burst(&c, 1, 2)?;
    let silent = sent[0].pxth.path_id();
    k.inject(&c.ack(&sent[1]))?;
    let again = k.expect(Opcode::Write, 2 * MS)?;
    equal(again.pxth.path_id(), silent, "path that timed out")?;
    for n in 10..30 {
        k.post_write(&c, n, 0, BURST_BYTES)?;
        let data = k.expect(Opcode::Write, k.at_once())?;
        check(data.pxth.path_id() != silent, "P-020: a new packet on a path that timed out")?;
        k.inject(&c.ack(&data))?;
    }
    k.inject(&c.ack(&again))?;
    k.silence(20 * US)?;
    // Once it is acknowledged it carries packets again.
    let next = k.burst(&c, 40, 2)?;
    check(next.iter().any(|s| s.pxth.path_id() == silent), "P-020: an acknowledged path carries nothing")
}

fn the_timeout_doubles(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| timeout(cfg, MS))?;
    let first = k.burst(&c, 1, 1)?;
    let spans = timeouts(k, &first[0], 5, 40 * MS)?;
    let slack = k.at_once();
    for (n, span) in spans.iter().enumerate() {
        let want = MS << n;
        check((want - US..=want + slack).contains(span), format!("timeouts {spans:?} ns; number {n} is to be {want}"))?;
    }
    Ok(())
}

fn progress_brings_the_timeout_back(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| timeout(cfg, MS))?;
    let first = k.burst(&c, 1, 1)?;
    timeouts(k, &first[0], 2, 40 * MS)?;
    let again = k.expect(Opcode::Write, 40 * MS)?;
    k.inject(&c.ack(&again))?;
    k.completes(&[(1, Status::Ok)])?;
    let second = k.burst(&c, 2, 1)?;
    let spans = timeouts(k, &second[0], 1, 40 * MS)?;
    check(spans[0] <= MS + k.at_once(), format!("timeout after progress: {} ns of 1 ms", spans[0]))
}

fn the_timeout_ends_at_its_cap(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        timeout(cfg, 1_000 * MS);
        cfg.transport.retry_limit = 15;
    })?;
    let first = k.burst(&c, 1, 1)?;
    let spans = timeouts(k, &first[0], 4, 10_000 * MS)?;
    let want = [1_000, 2_000, 4_000, 8_000].map(|ms| ms * MS);
    let slack = k.at_once();
    let right = spans.iter().zip(want).all(|(span, want)| span.abs_diff(want) <= slack);
    check(right, format!("timeouts {spans:?} ns, want {want:?}"))?;
    let last = k.expect(Opcode::Write, 8_000 * MS + slack)?;
    equal(last.bth.pseq(), first[0].bth.pseq(), "PSEQ of what is sent again after 8 s more")
}

/// The timeout after `count` equal round trips, of which the receiver says that it held each acknowledgement for so long.
fn timeout_after(k: &mut Kit<'_>, count: u64, rtt: Nanos, hold: u16) -> Outcome<Nanos> {
    let c = k.open(|_| ())?;
    for n in 0..count {
        let sent = k.burst(&c, n, 1)?;
        k.advance(rtt)?;
        k.inject(&c.ack(&sent[0]).hold(hold))?;
        k.completes(&[(n, Status::Ok)])?;
    }
    let first = k.burst(&c, 100, 1)?;
    Ok(timeouts(k, &first[0], 1, 10 * MS)?[0])
}

fn silence_ends_the_connection(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 1, 1);
        timeout(cfg, 100 * US);
        cfg.transport.retry_limit = 3;
        cfg.addresses = Vec::new();
    })?;
    let before = k.snapshot()?;
    (1..=3).try_for_each(|n| k.post_write(&c, n, 0, 100))?;
    let mut transmissions = 0;
    while k.next(50 * MS)?.is_some_and(|s| s.opcode == Opcode::Write) {
        transmissions += 1;
    }
    check(transmissions > 3, format!("R-007: given up after {transmissions} transmissions"))?;
    k.completes(&[(1, Status::RetryExc), (2, Status::WrFlush), (3, Status::WrFlush)])?;
    equal(k.counted(&before, Counter::ConnErrors)?, 1, "conn_error_count")?;
    check(k.counted(&before, Counter::PathRto)? > 3, "R-007: path_rto_count")?;
    k.silence(1_000 * MS)
}

/// Packets that a connection sends without an answer.
fn window(k: &mut Kit<'_>, c: &Conn) -> Outcome<Vec<Sent>> {
    (0..60).try_for_each(|i| k.post_write(c, 100 + i, 0, BURST_BYTES))?;
    k.collect(RTT)
}

fn an_isolated_loss_does_not_cut_the_window(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    let sent = window(k, &c)?;
    let count = sent.len() as u32;
    let bits: Vec<u32> = (1..count).collect();
    k.inject(&c.ack(&sent[sent.len() - 1]).cum(0).sack(&bits))?;
    // One packet is out (the retransmission); the window fills again to what it was at least.
    let next = k.collect(RTT)?;
    check(next.len() as u32 >= count, format!("R-008: {count} packets before the loss, {} after", next.len()))
}

fn a_stale_ce_cnt_is_not_read_as_marks(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    let sent = window(k, &c)?;
    // Acknowledgements of unmarked packets, the second older than the first, across the wrap of ce_cnt.
    k.inject(&c.ack(&sent[0]).ce_cnt(2))?;
    k.collect(RTT)?;
    let before = k.collect(RTT)?.len();
    k.inject(&c.ack(&sent[1]).ce_cnt(0xffff))?;
    let after = k.collect(RTT)?;
    check(before == 0 && !after.is_empty(), "S-007: an older ce_cnt closed the window")
}
