//! Tails: markers, probes by timer, copies in idle time; and the tolerance of reordering.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Nanos};
use crate::failure::{check, equal, Failure, Outcome};
use crate::kit::{pattern, set_paths, Kit, Sent, BURST_BYTES, MS, RTT, US};
use crate::peer::same_packet;
use crate::setup::{ConnConfig, NS_PS};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::Psn;
use nic_spec::wire::Opcode;

cases! { "probe":
    "R-020" [Caps::PROBE] a_path_that_goes_idle_with_data_outstanding_sends_a_marker_at_once;
    "R-020" + "P-002" [Caps::PROBE] a_marker_states_the_next_number_across_the_wrap;
    "R-020" [Caps::PROBE] every_path_with_data_sends_its_marker;
    "R-020" [Caps::PROBE] a_path_with_more_to_send_sends_no_marker;
    "R-020" + "R-003" [Caps::PROBE] the_answer_to_a_marker_exposes_a_lost_tail;
    "R-020" + "R-001" [Caps::PROBE] the_answer_to_a_marker_acknowledges;
    "R-020" + "R-005" [Caps::PROBE] the_answer_to_a_marker_of_another_epoch_exposes_nothing;
    "R-021" + "R-006" [Caps::PROBE] a_path_without_an_answer_probes_until_it_times_out;
    "R-021" [Caps::PROBE] probes_follow_the_round_trip;
    "R-021" [Caps::PROBE] an_answer_ends_the_probing;
    "R-021" [Caps::PROBE] a_lost_answer_is_asked_for_again;
    "R-021" [Caps::PROBE] an_idle_path_sends_no_probe;
    "R-022" [Caps::REDUNDANCY] in_idle_time_each_packet_is_sent_once_more_newest_first;
    "R-022" [Caps::REDUNDANCY] nothing_acknowledged_is_sent_once_more;
    "R-022" [Caps::REDUNDANCY] there_are_no_copies_while_there_is_something_new;
    "R-022" + "C-021" [Caps::REDUNDANCY.and(Caps::HINT)] there_are_no_copies_under_a_rate_hint;
    "R-022" [Caps::REDUNDANCY.and(Caps::CONGESTION)] there_are_no_copies_after_a_mark;
    "R-022" [Caps::REDUNDANCY.and(Caps::CONGESTION)] silence_after_a_mark_allows_no_copies_and_an_answer_without_one_does;
    "R-022" + "R-021" [Caps::REDUNDANCY.and(Caps::PROBE)] after_a_probe_by_timer_there_are_copies_again;
    "R-022" + "R-003" [Caps::REDUNDANCY] of_what_was_lost_there_is_another_copy;
    "R-022" + "C-020" [Caps::REDUNDANCY.and(Caps::HINT)] under_a_rate_hint_what_was_lost_is_copied;
    "R-020" + "R-025" [Caps::PROBE] after_a_loss_a_marker_is_sent_twice;
    "R-022" + "R-024" [Caps::REDUNDANCY.and(Caps::REORDER)] the_duplicate_of_a_copy_is_no_sign_of_reordering;
    "R-023" [Caps::REORDER] without_tolerance_a_gap_is_a_loss;
    "R-024" [Caps::REORDER] a_spurious_retransmission_raises_the_tolerance;
    "R-024" [Caps::REORDER] a_late_arrival_raises_the_tolerance;
    "R-024" + "R-003" [Caps::REORDER] what_is_later_than_the_tolerance_is_lost;
    "R-020" + "R-004" [Caps::PROBE] a_marker_follows_what_is_sent_again;
    "R-024" [Caps::REORDER] a_needless_repair_alone_raises_the_tolerance;
}

fn markers(cfg: &mut ConnConfig) {
    cfg.transport.tail_marker = true;
}

fn probing(cfg: &mut ConnConfig) {
    cfg.transport.tlp_limit = 3;
    (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (10 * MS * NS_PS, 10 * MS * NS_PS);
}

fn copying(cfg: &mut ConnConfig) {
    cfg.transport.idle_redundancy = true;
    (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (10 * MS * NS_PS, 10 * MS * NS_PS);
}

fn snd_nxt(probe: &Sent) -> Option<u32> {
    probe.pbth().map(|h| h.snd_nxt().get())
}

/// A warm connection, and another round trip in which the first packet's marker does not matter.
fn marked(k: &mut Kit<'_>, change: impl FnOnce(&mut ConnConfig)) -> Outcome<Conn> {
    let c = k.open(|cfg| {
        markers(cfg);
        change(cfg);
    })?;
    k.post_write(&c, 1000, 0, BURST_BYTES)?;
    let sent = k.collect(RTT)?;
    k.inject(&c.ack(&sent[0]))?;
    k.completes(&[(1000, Status::Ok)])?;
    Ok(c)
}

fn a_path_that_goes_idle_with_data_outstanding_sends_a_marker_at_once(k: &mut Kit<'_>) -> Outcome {
    let c = marked(k, |_| ())?;
    let before = k.snapshot()?;
    let sent = k.burst(&c, 1, 3)?;
    let marker = k.expect(Opcode::ProbeReq, US + k.dut.slack())?;
    equal(snd_nxt(&marker), Some(4), "snd_nxt")?;
    equal((marker.sport, marker.pxth.epoch()), (sent[0].sport, sent[0].pxth.epoch()), "source port and epoch")?;
    equal(marker.pxth.path_id(), sent[0].pxth.path_id(), "path")?;
    check(!marker.pxth.tx_ts().wrapping_sub(sent[2].pxth.tx_ts()) & 1 << 31 != 0, "R-020: the marker's clock")?;
    equal(k.counted(&before, Counter::TxProbe)?, 1, "tx_probe_count")?;
    k.silence(8 * US)
}

fn a_marker_states_the_next_number_across_the_wrap(k: &mut Kit<'_>) -> Outcome {
    let c = marked(k, |cfg| cfg.tx_paths[0].first = Psn::new(0xff_fffd))?;
    k.burst(&c, 1, 2)?;
    let marker = k.expect(Opcode::ProbeReq, US + k.dut.slack())?;
    equal(snd_nxt(&marker), Some(0), "snd_nxt")
}

fn every_path_with_data_sends_its_marker(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        markers(cfg);
        set_paths(cfg, 4, 1);
    })?;
    (0..3).try_for_each(|i| k.post_write(&c, i, 0, 100))?;
    let sent = k.collect(RTT)?;
    let of = |opcode| {
        let mut paths: Vec<u8> = sent.iter().filter(|s| s.opcode == opcode).map(|s| s.pxth.path_id().get()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    };
    equal(of(Opcode::Write).len(), 3, "paths with data")?;
    equal(of(Opcode::ProbeReq), of(Opcode::Write), "paths that sent a marker")
}

fn a_path_with_more_to_send_sends_no_marker(k: &mut Kit<'_>) -> Outcome {
    let c = marked(k, |_| ())?;
    // The window is full long before the message ends.
    k.post_write(&c, 1, 0, 200_000)?;
    let sent = k.collect(8 * US)?;
    check(sent.iter().all(|s| s.opcode == Opcode::Write), "R-020: a marker of a path that has more to send")?;
    check(!sent.is_empty(), "P-002: nothing was sent")
}

fn the_answer_to_a_marker_exposes_a_lost_tail(k: &mut Kit<'_>) -> Outcome {
    let c = marked(k, |_| ())?;
    k.burst(&c, 1, 3)?;
    let marker = k.expect(Opcode::ProbeReq, US + k.dut.slack())?;
    k.advance(RTT)?;
    // Packet 1 arrived, 2 and 3 did not.
    k.inject(&c.probe_rsp(&marker).cum(1))?;
    let again: Vec<_> = k.collect(2 * US)?.into_iter().filter(|s| s.opcode == Opcode::Write).collect();
    let numbers: Vec<_> = again.iter().map(|s| (s.bth.pseq().get(), s.bth.rtx())).collect();
    equal(numbers, [(2, true), (3, true)], "what is sent again")?;
    k.inject(&c.ack(&again[1]))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok), (3, Status::Ok)]).map(|_| ())
}

fn the_answer_to_a_marker_acknowledges(k: &mut Kit<'_>) -> Outcome {
    let c = marked(k, |_| ())?;
    k.burst(&c, 1, 2)?;
    let marker = k.expect(Opcode::ProbeReq, US + k.dut.slack())?;
    k.inject(&c.probe_rsp(&marker))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    k.silence(5 * MS)
}

fn the_answer_to_a_marker_of_another_epoch_exposes_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = marked(k, |_| ())?;
    k.burst(&c, 1, 2)?;
    let marker = k.expect(Opcode::ProbeReq, US + k.dut.slack())?;
    k.inject(&c.probe_rsp(&marker).cum(0).ack_epoch(3))?;
    k.silence(8 * US)
}

fn a_path_without_an_answer_probes_until_it_times_out(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(probing)?;
    let sent = k.burst(&c, 1, 2)?;
    let before = k.snapshot()?;
    let mut probes = Vec::new();
    let again = loop {
        let next = k.next(11 * MS)?.ok_or_else(|| Failure::new("R-006: nothing was sent again"))?;
        if next.opcode == Opcode::Write {
            break next;
        }
        equal((next.opcode, snd_nxt(&next)), (Opcode::ProbeReq, Some(3)), "opcode and snd_nxt")?;
        probes.push(next.at);
    };
    equal((again.bth.pseq(), again.bth.rtx()), (sent[0].bth.pseq(), true), "what is sent again")?;
    let waited = again.at - sent[0].at;
    check(waited.abs_diff(10 * MS) < 100 * US, format!("R-006: the timeout came after {waited} ns, want 10 ms"))?;
    // Five at a distance, then each after twice the time of the one before.
    let waits: Vec<Nanos> = probes.windows(2).map(|w| w[1] - w[0]).collect();
    check(waits.len() > 6, format!("R-021: only {} probes", probes.len()))?;
    let near = |a: Nanos, b: Nanos| a.abs_diff(b) <= US + k.dut.slack();
    check(waits[..4].iter().all(|w| near(*w, waits[0])), format!("R-021: distances of probes {waits:?}"))?;
    check(waits[3..].windows(2).all(|w| near(w[1], 2 * w[0])), format!("R-021: distances of probes {waits:?}"))?;
    equal(k.counted(&before, Counter::TxProbe)?, probes.len() as u64, "tx_probe_count")?;
    equal(k.counted(&before, Counter::PathRto)?, 1, "path_rto_count")
}

fn probes_follow_the_round_trip(k: &mut Kit<'_>) -> Outcome {
    // SRTT + 1 us, since the round trip does not vary and the last packet asks for its acknowledgement; 3 us at least.
    for (rtt, want) in [(US, 3 * US), (5 * US, 6 * US), (8 * US, 9 * US), (40 * US, 41 * US)] {
        let c = k.open(probing)?;
        for n in 0..30 {
            let sent = k.burst(&c, n, 1)?;
            k.advance(rtt)?;
            k.inject(&c.ack(&sent[0]))?;
            k.completes(&[(n, Status::Ok)])?;
        }
        let sent = k.burst(&c, 100, 1)?;
        let probe = k.expect(Opcode::ProbeReq, 2 * want)?;
        let waited = probe.at - sent[0].at;
        let tolerance = rtt / 4 + US + k.dut.slack();
        check(
            waited.abs_diff(want) <= tolerance,
            format!("round trip {rtt} ns: probe after {waited} ns, want {want}"),
        )?;
        k.inject(&c.probe_rsp(&probe))?;
        k.completes(&[(100, Status::Ok)])?;
    }
    Ok(())
}

fn an_answer_ends_the_probing(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(probing)?;
    k.burst(&c, 1, 2)?;
    let probe = k.expect(Opcode::ProbeReq, 40 * US)?;
    k.inject(&c.probe_rsp(&probe))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    k.silence(50 * MS)
}

fn a_lost_answer_is_asked_for_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(probing)?;
    k.burst(&c, 1, 2)?;
    k.expect(Opcode::ProbeReq, 40 * US)?;
    let second = k.expect(Opcode::ProbeReq, 40 * US)?;
    k.inject(&c.probe_rsp(&second).cum(0))?;
    let again = k.collect(2 * US)?;
    let numbers: Vec<_> = again.iter().map(|s| (s.bth.pseq().get(), s.bth.rtx())).collect();
    equal(numbers, [(1, true), (2, true)], "what is sent again")
}

fn an_idle_path_sends_no_probe(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        probing(cfg);
        markers(cfg);
        copying(cfg);
        cfg.transport.tail_marker = false;
        cfg.transport.idle_redundancy = false;
    })?;
    let sent = k.burst(&c, 1, 1)?;
    k.inject(&c.ack(&sent[0]))?;
    k.completes(&[(1, Status::Ok)])?;
    k.silence(500 * MS)
}

fn in_idle_time_each_packet_is_sent_once_more_newest_first(k: &mut Kit<'_>) -> Outcome {
    let c = copying_conn(k)?;
    k.fill(0, &pattern(2, 4000))?;
    let before = k.snapshot()?;
    let sent = k.burst(&c, 1, 4)?;
    let copies = k.collect(8 * US)?;
    let numbers: Vec<_> = copies.iter().map(|s| (s.bth.pseq().get(), s.bth.rtx())).collect();
    equal(numbers, [(4, true), (3, true), (2, true), (1, true)], "copies")?;
    sent.iter().rev().zip(&copies).try_for_each(|(first, copy)| same_packet(first, copy))?;
    equal(k.counted(&before, Counter::TxRedundant)?, 4, "tx_redundant_count")?;
    equal(k.counted(&before, Counter::TxRtxGap)? + k.counted(&before, Counter::TxRtxRto)?, 0, "retransmissions counted")
}

/// A warm connection whose first packets and their copies are over.
fn copying_conn(k: &mut Kit<'_>) -> Outcome<Conn> {
    let c = k.open(copying)?;
    k.post_write(&c, 1000, 0, BURST_BYTES)?;
    let sent = k.collect(RTT)?;
    k.inject(&c.ack(&sent[0]))?;
    k.completes(&[(1000, Status::Ok)])?;
    Ok(c)
}

fn nothing_acknowledged_is_sent_once_more(k: &mut Kit<'_>) -> Outcome {
    let c = copying_conn(k)?;
    // A window full with more behind it: there is no idle time yet.
    k.post_write(&c, 1, 0, 40_000)?;
    let mut open = k.collect(8 * US)?;
    let mut last = 0;
    // Everything but the last packet is acknowledged before the card comes to rest.
    for _ in 0..100 {
        let Some(newest) = open.last().cloned() else { break };
        last = newest.bth.pseq().get();
        if newest.mxth().is_some_and(|h| h.last()) {
            k.inject(&c.ack(&newest).cum(last - 1))?;
            break;
        }
        k.inject(&c.ack(&newest))?;
        open = Vec::new();
        while let Some(sent) = k.next(100)? {
            open.push(sent);
            if open.last().is_some_and(|s| s.mxth().is_some_and(|h| h.last())) {
                break;
            }
        }
    }
    let copies = k.collect(8 * US)?;
    let numbers: Vec<_> = copies.iter().map(|s| s.bth.pseq().get()).collect();
    check(numbers.iter().filter(|n| **n == last).count() == 1, format!("copies {numbers:?}, of which {last} once"))
}

fn there_are_no_copies_while_there_is_something_new(k: &mut Kit<'_>) -> Outcome {
    let c = copying_conn(k)?;
    k.post_write(&c, 1, 0, 200_000)?;
    let sent = k.collect(9 * MS)?;
    check(sent.iter().all(|s| !s.bth.rtx()), "R-022: a copy although there is something new")?;
    check(!sent.is_empty(), "P-002: nothing was sent")
}

fn there_are_no_copies_under_a_rate_hint(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(copying)?;
    k.post_write(&c, 1000, 0, BURST_BYTES)?;
    let sent = k.collect(RTT)?;
    k.inject(&c.ack(&sent[0]).hint(1, 100_000))?;
    k.completes(&[(1000, Status::Ok)])?;
    k.burst(&c, 1, 2)?;
    k.silence(10 * US)
}

fn there_are_no_copies_after_a_mark(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        copying(cfg);
        cfg.transport.conn_init_pkts = 64;
    })?;
    k.post_write(&c, 1000, 0, BURST_BYTES)?;
    let sent = k.collect(50 * US)?;
    k.inject(&c.ack(&sent[0]).ce_cnt(1))?;
    k.completes(&[(1000, Status::Ok)])?;
    k.burst(&c, 1, 1)?;
    k.silence(20 * US)
}

fn silence_after_a_mark_allows_no_copies_and_an_answer_without_one_does(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        copying(cfg);
        cfg.transport.conn_init_pkts = 64;
    })?;
    k.post_write(&c, 1000, 0, BURST_BYTES)?;
    let sent = k.collect(50 * US)?;
    k.inject(&c.ack(&sent[0]).ce_cnt(1))?;
    k.completes(&[(1000, Status::Ok)])?;
    // Many round trips without a word.
    k.silence(5 * MS)?;
    let sent = k.burst(&c, 1, 1)?;
    k.silence(20 * US)?;
    k.inject(&c.ack(&sent[0]).ce_cnt(1))?;
    k.completes(&[(1, Status::Ok)])?;
    k.burst(&c, 2, 1)?;
    equal(k.collect(20 * US)?.len(), 1, "copies after an answer without a mark")
}

fn the_duplicate_of_a_copy_is_no_sign_of_reordering(k: &mut Kit<'_>) -> Outcome {
    let c = copying_conn(k)?;
    let sent = k.burst(&c, 1, 2)?;
    let copies = k.collect(RTT)?;
    equal(copies.len(), 2, "copies")?;
    k.inject(&c.ack(&sent[1]))?;
    for copy in &copies {
        k.inject(&c.ack(copy).cum(2).dup())?;
    }
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    // A gap is still a loss at once.
    let sent = k.burst(&c, 3, 2)?;
    k.inject(&c.ack(&sent[1]).cum(2).sack(&[1]))?;
    let next = k.expect(Opcode::Write, US + k.dut.slack())?;
    equal((next.bth.pseq().get(), next.bth.rtx()), (3, true), "what is sent")
}

/// Two packets of which the first is missing when the second is acknowledged; what the card sends then.
fn gap(k: &mut Kit<'_>, c: &Conn, wr_id: u64) -> Outcome<(Vec<Sent>, Vec<Sent>)> {
    let sent = k.burst(c, wr_id, 2)?;
    k.advance(RTT)?;
    let una = sent[0].bth.pseq().get();
    k.inject(&c.ack(&sent[1]).cum(una.wrapping_sub(1)).sack(&[1]))?;
    let again = k.collect(US)?;
    Ok((sent, again))
}

fn without_tolerance_a_gap_is_a_loss(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    let (sent, again) = gap(k, &c, 1)?;
    equal(again.iter().map(|s| s.bth.pseq()).collect::<Vec<_>>(), [sent[0].bth.pseq()], "what is sent again")
}

fn a_spurious_retransmission_raises_the_tolerance(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    let (sent, again) = gap(k, &c, 1)?;
    let spurious = again.first().ok_or_else(|| Failure::new("R-003: the gap was not sent again"))?;
    // The first copy comes late, so that the second is a duplicate.
    k.inject(&c.ack(&sent[0]).cum(2))?;
    k.advance(RTT)?;
    k.inject(&c.ack(spurious).cum(2).dup())?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    let (_, again) = gap(k, &c, 3)?;
    equal(again.len(), 0, "packets sent again within the tolerance")
}

fn a_late_arrival_raises_the_tolerance(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    // The acknowledgement of the late packet overtakes that of the early one.
    let sent = k.burst(&c, 1, 2)?;
    k.advance(RTT)?;
    k.inject(&c.ack(&sent[0]).cum(2))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    let (_, again) = gap(k, &c, 3)?;
    equal(again.len(), 0, "packets sent again within the tolerance")
}

fn what_is_later_than_the_tolerance_is_lost(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    let sent = k.burst(&c, 1, 2)?;
    k.advance(RTT)?;
    k.inject(&c.ack(&sent[0]).cum(2))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    let (sent, again) = gap(k, &c, 3)?;
    equal(again.len(), 0, "packets sent again within the tolerance")?;
    // A packet sent a whole round trip later arrives before it.
    let later = k.burst(&c, 5, 1)?;
    let wait: Nanos = RTT;
    k.advance(wait)?;
    let una = sent[0].bth.pseq().get();
    k.inject(&c.ack(&later[0]).cum(una - 1).sack(&[1, 2]))?;
    let lost = k.expect(Opcode::Write, US + k.dut.slack())?;
    equal(lost.bth.pseq(), sent[0].bth.pseq(), "what is sent again")
}

fn after_a_probe_by_timer_there_are_copies_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        copying(cfg);
        probing(cfg);
    })?;
    k.post_write(&c, 1000, 0, BURST_BYTES)?;
    let sent = k.collect(RTT)?;
    k.inject(&c.ack(&sent[0]))?;
    k.completes(&[(1000, Status::Ok)])?;
    k.burst(&c, 1, 2)?;
    let numbers = |sent: &[Sent]| sent.iter().map(|s| (s.opcode, s.bth.pseq().get())).collect::<Vec<_>>();
    let (probe, newest, oldest) = ((Opcode::ProbeReq, 0), (Opcode::Write, 2), (Opcode::Write, 1));
    equal(numbers(&k.collect(10 * US)?), [newest, oldest], "copies before the probe")?;
    equal(numbers(&k.collect(15 * US)?), [probe, newest, oldest], "probe and copies after it")
}

fn of_what_was_lost_there_is_another_copy(k: &mut Kit<'_>) -> Outcome {
    let c = copying_conn(k)?;
    let sent = k.burst(&c, 1, 2)?;
    k.collect(RTT)?;
    let before = k.snapshot()?;
    k.inject(&c.ack(&sent[1]).cum(0).sack(&[1]).echo(sent[0].pxth.tx_ts()))?;
    k.silence(US)?;
    // Packet 1 was lost, but its copy may have arrived: another copy, and only one.
    k.inject(&c.ack(&sent[1]).cum(0).sack(&[1]))?;
    let numbers = |sent: &[Sent]| sent.iter().map(|s| (s.bth.pseq().get(), s.bth.rtx())).collect::<Vec<_>>();
    equal(numbers(&k.collect(US)?), [(1, true)], "copies after the loss of the first transmission")?;
    equal(k.counted(&before, Counter::TxRedundant)?, 1, "tx_redundant_count")?;
    // Later evidence: packet 1 is lost, with its copies. It is sent again, and that is copied.
    let later = k.burst(&c, 3, 1)?;
    k.collect(US)?;
    k.inject(&c.ack(&later[0]).cum(0).sack(&[1, 2]))?;
    equal(numbers(&k.collect(RTT)?), [(1, true), (1, true)], "the lost packet and its copy")?;
    equal(k.counted(&before, Counter::TxRtxGap)?, 1, "tx_rtx_gap_count")
}

fn under_a_rate_hint_what_was_lost_is_copied(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(copying)?;
    k.post_write(&c, 1000, 0, BURST_BYTES)?;
    let sent = k.collect(RTT)?;
    k.inject(&c.ack(&sent[0]).hint(1, 100_000))?;
    k.completes(&[(1000, Status::Ok)])?;
    let sent = k.burst(&c, 1, 3)?;
    k.silence(2 * US)?;
    k.inject(&c.ack(&sent[1]).cum(0).sack(&[1]).hint(1, 100_000))?;
    let numbers: Vec<_> = k.collect(10 * US)?.iter().map(|s| s.bth.pseq().get()).collect();
    equal(numbers, [1, 1], "the lost packet and its copy, and none of what may not be lost")
}

fn after_a_loss_a_marker_is_sent_twice(k: &mut Kit<'_>) -> Outcome {
    let c = marked(k, |_| ())?;
    let sent = k.burst(&c, 1, 2)?;
    equal(k.collect(2 * US)?.len(), 1, "markers before any loss")?;
    k.inject(&c.ack(&sent[1]).cum(0).sack(&[1]))?;
    let opcodes: Vec<_> = k.collect(2 * US)?.iter().map(|s| s.opcode).collect();
    equal(opcodes, [Opcode::Write, Opcode::ProbeReq, Opcode::ProbeReq], "the lost packet and its markers")?;
    // A millisecond without a loss later there is one again.
    k.inject(&c.ack(&sent[1]).cum(2))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    k.silence(MS)?;
    k.burst(&c, 3, 1)?;
    equal(k.collect(2 * US)?.len(), 1, "markers when the loss is long past")
}

fn a_marker_follows_what_is_sent_again(k: &mut Kit<'_>) -> Outcome {
    let c = marked(k, |cfg| cfg.pmtu_log2 = 10)?;
    k.post_write(&c, 1, 0, 4000)?;
    let sent: Vec<_> = k.collect(RTT)?.into_iter().filter(|s| s.opcode == Opcode::Write).collect();
    equal(sent.len(), 4, "packets of 4000 bytes")?;
    k.inject(&c.ack(&sent[3]).cum(0).sack(&[3]))?;
    let mut opcodes: Vec<_> = k.collect(US + k.dut.slack())?.iter().map(|s| s.opcode).collect();
    let want = [Opcode::Write, Opcode::Write, Opcode::Write, Opcode::ProbeReq];
    // After losses the marker may come twice.
    let is_twice = opcodes.len() == 5 && opcodes[4] == Opcode::ProbeReq;
    opcodes.truncate(if is_twice { 4 } else { 5 });
    equal(opcodes, want, "three packets sent again, and what follows them")
}

fn a_needless_repair_alone_raises_the_tolerance(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    let (_, again) = gap(k, &c, 1)?;
    let spurious = again.first().ok_or_else(|| Failure::new("R-003: the gap was not sent again"))?;
    // The acknowledgement of the late packet is lost; that of its repair says that it was one too many.
    k.advance(RTT)?;
    k.inject(&c.ack(spurious).cum(2).dup().with_axth(|h| _ = h.set_rtxe(true)))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok)])?;
    let (_, again) = gap(k, &c, 3)?;
    equal(again.len(), 0, "packets sent again within the tolerance")
}
