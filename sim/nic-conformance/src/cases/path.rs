//! Paths: numbering, windows, spreading.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::Caps;
use crate::failure::{check, equal, Failure, Outcome};
use crate::kit::{pattern, set_paths, Kit, Sent, BURST_BYTES, LEN, RTT, US};
use crate::peer::{same_packet, Fate, Peer};
use crate::setup::ConnConfig;
use nic_spec::desc::Status;
use nic_spec::num::Psn;
use nic_spec::wire::Opcode;

cases! { "path":
    "P-002" numbers_of_a_path_are_consecutive_from_the_configured_first => |k| numbers(k, 0x1234);
    "P-002" numbers_of_a_path_wrap_at_2_pow_24 => |k| numbers(k, 0xff_fffc);
    "P-001" + "P-002" each_path_numbers_its_own_packets;
    "P-003" + "P-004" + "R-003" a_retransmission_repeats_its_packet;
    "P-004" + "R-006" a_retransmission_by_timer_repeats_its_packet;
    "P-004" + "M-003" a_retransmission_reads_host_memory_again;
    "P-005" + "C-004" [Caps::CONGESTION.and(Caps::WINDOW_256)] a_path_never_has_more_than_256_packets_outstanding;
    "P-005" [Caps::CONGESTION.and(Caps::WINDOW_256)] the_window_counts_from_the_oldest_hole;
    "P-006" + "P-007" packets_are_spread_over_all_paths;
    "P-006" a_full_path_holds_back_no_other;
    "P-010" the_last_packet_of_a_message_asks_for_an_acknowledgement;
    "P-010" the_last_packet_of_a_burst_says_so;
    "P-011" a_loss_on_one_path_leaves_the_others_alone;
    "P-001" + "S-012" an_acknowledgement_may_come_by_any_path;
    "P-006" the_path_with_the_smallest_share_of_its_window_in_use_is_taken;
}

fn numbers(k: &mut Kit<'_>, first: u32) -> Outcome {
    let c = k.open(|cfg| cfg.tx_paths[0].first = Psn::new(first))?;
    for n in 0..8 {
        k.post_write(&c, n, 0, 100)?;
        let data = k.expect(Opcode::Write, k.at_once())?;
        equal(data.bth.pseq(), Psn::new(first + n as u32), "PSEQ")?;
        equal(data.mxth().map(|h| h.mseq().get()), Some(n as u32), "M-001: MSEQ")?;
        k.inject(&c.ack(&data))?;
        k.completes(&[(n, Status::Ok)])?;
    }
    k.silence(5_000 * US)
}

fn each_path_numbers_its_own_packets(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        set_paths(cfg, 3, 1);
        (0..3).for_each(|i| cfg.tx_paths[i].first = Psn::new(100 * i as u32));
    })?;
    let sent = k.burst(&c, 1, 12)?;
    let mut next = [1, 101, 201];
    for s in &sent {
        let n = &mut next[usize::from(s.pxth.path_id().get())];
        equal(s.bth.pseq().get(), *n, format!("PSEQ on path {}", s.pxth.path_id()))?;
        *n += 1;
    }
    equal(next.iter().sum::<u32>(), 1 + 101 + 201 + 12, "packets sent")
}

/// Five packets of which the first is lost; its retransmission.
fn lost_first(k: &mut Kit<'_>, c: &Conn) -> Outcome<(Sent, Sent)> {
    let mut sent = k.burst(c, 1, 5)?;
    k.advance(RTT)?;
    let una = sent[0].bth.pseq().get();
    k.inject(&c.ack(&sent[4]).cum(una.wrapping_sub(1)).sack(&[1, 2, 3, 4]))?;
    let again = k.expect(Opcode::Write, k.at_once())?;
    Ok((sent.swap_remove(0), again))
}

fn a_retransmission_repeats_its_packet(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.fill(0, &pattern(3, 5000))?;
    let (first, again) = lost_first(k, &c)?;
    same_packet(&first, &again)?;
    check(!first.bth.rtx() && again.bth.rtx(), "P-004: RTX")?;
    check(again.pxth.tx_ts() != first.pxth.tx_ts(), "P-004: tx_ts of the retransmission")?;
    equal((again.sport, again.pxth.epoch()), (first.sport, first.pxth.epoch()), "source port and epoch")
}

fn a_retransmission_by_timer_repeats_its_packet(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.fill(0, &pattern(3, 300))?;
    k.post_write(&c, 1, 0, 300)?;
    let first = k.expect(Opcode::Write, k.at_once())?;
    let again = k.expect(Opcode::Write, 3_000 * US)?;
    same_packet(&first, &again)?;
    check(again.bth.rtx(), "P-004: RTX")
}

fn a_retransmission_reads_host_memory_again(k: &mut Kit<'_>) -> Outcome {
    // The text asks for the same payload; memory that the host leaves alone until the completion has it.
    let c = k.open(|_| ())?;
    let bytes = pattern(9, 2000);
    k.fill(0, &bytes)?;
    k.post_write(&c, 1, 0, 2000)?;
    k.expect(Opcode::Write, k.at_once())?;
    for _ in 0..3 {
        let again = k.expect(Opcode::Write, 20_000 * US)?;
        equal(&again.payload, &bytes, "payload of a retransmission")?;
    }
    Ok(())
}

/// Windows open to the cap with the first acknowledgement.
fn wide(cfg: &mut ConnConfig) {
    cfg.pmtu_log2 = 10;
    cfg.transport.path_init_pkts = 256;
    cfg.transport.conn_window_min_pkts = 4096;
}

fn a_path_never_has_more_than_256_packets_outstanding(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(wide)?;
    (0..2).try_for_each(|i| k.post_write(&c, i, 0, LEN as u32))?;
    let sent = k.collect(30 * US)?;
    equal(sent.len(), 256, "packets sent without an acknowledgement")?;
    k.inject(&c.ack(&sent[9]))?;
    let more = k.collect(10 * US)?;
    equal(more.len(), 10, "packets sent when 10 were acknowledged")
}

fn the_window_counts_from_the_oldest_hole(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(wide)?;
    (0..2).try_for_each(|i| k.post_write(&c, i, 0, LEN as u32))?;
    let sent = k.collect(30 * US)?;
    equal(sent.len(), 256, "packets sent without an acknowledgement")?;
    // All but the first are acknowledged: only the first is sent again, for the window still begins with it.
    let bits: Vec<u32> = (1..256).collect();
    k.inject(&c.ack(&sent[255]).cum(0).sack(&bits))?;
    let more = k.collect(10 * US)?;
    let numbers: Vec<_> = more.iter().map(|s| (s.bth.pseq().get(), s.bth.rtx())).collect();
    equal(numbers, [(1, true)], "what is sent")?;
    k.inject(&c.ack(&more[0]).cum(256))?;
    check(k.collect(30 * US)?.len() > 100, "P-005: the window does not open after the hole is filled")
}

fn packets_are_spread_over_all_paths(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| set_paths(cfg, 8, 1))?;
    let sent = k.burst(&c, 1, 24)?;
    let mut used = [0; 8];
    sent.iter().for_each(|s| used[usize::from(s.pxth.path_id().get())] += 1);
    check(used.iter().all(|n| (2..=4).contains(n)), format!("P-006: 24 packets on 8 paths: {used:?}"))?;
    let mut ports: Vec<u16> = sent.iter().map(|s| s.sport).collect();
    ports.sort_unstable();
    ports.dedup();
    equal(ports.len(), 8, "P-007: source ports")
}

fn a_full_path_holds_back_no_other(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 2, 1);
        (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (1_000_000_000_000, 1_000_000_000_000);
    })?;
    (0..40).try_for_each(|i| k.post_write(&c, i, 0, BURST_BYTES))?;
    // Path 0 is never acknowledged; path 1 carries all the rest.
    let mut on_0 = 0;
    let mut on_1 = 0;
    while let Some(sent) = k.next(10 * US)? {
        if sent.pxth.path_id().get() == 0 {
            on_0 += 1;
        } else {
            on_1 += 1;
            k.inject(&c.ack(&sent))?;
        }
    }
    equal(on_0 + on_1, 40, "packets sent")?;
    check(on_1 >= 20, format!("P-006: {on_1} of 40 packets on the path that is acknowledged"))
}

fn the_last_packet_of_a_message_asks_for_an_acknowledgement(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| cfg.pmtu_log2 = 10)?;
    k.post_write(&c, 1, 0, 3 * 1024)?;
    let sent = k.collect(10 * US)?;
    let asks: Vec<bool> = sent.iter().map(|s| s.bth.ack_req()).collect();
    equal((asks.len(), asks[0], asks[2]), (3, false, true), "packets of the message, ack_req of the first and the last")
}

fn the_last_packet_of_a_burst_says_so(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| cfg.pmtu_log2 = 10)?;
    k.post_write(&c, 1, 0, 3 * 1024)?;
    let sent = k.collect(10 * US)?;
    equal(sent.last().map(|s| s.bth.eob()), Some(true), "EOB of the last packet")?;
    check(!sent[0].bth.eob(), "P-010: EOB of the first packet")
}

fn a_loss_on_one_path_leaves_the_others_alone(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| set_paths(cfg, 2, 1))?;
    k.fill(0, &pattern(1, 12_000))?;
    let sent = k.burst(&c, 1, 12)?;
    k.advance(RTT)?;
    let of = |path: u8| sent.iter().filter(move |s| s.pxth.path_id().get() == path);
    let on_0: Vec<_> = of(0).collect();
    let count = on_0.len() as u32;
    k.inject(&c.ack(on_0[on_0.len() - 1]).cum(0).sack(&(1..count).collect::<Vec<_>>()))?;
    let again = k.collect(RTT)?;
    let numbers: Vec<_> = again.iter().map(|s| (s.pxth.path_id().get(), s.bth.pseq().get())).collect();
    equal(numbers, [(0, 1)], "what is sent again after a loss on path 0")?;
    // Path 1 is acknowledged as if nothing had happened.
    for s in of(1) {
        k.inject(&c.ack(s))?;
    }
    k.inject(&c.ack(&again[0]).cum(count))?;
    let all: Vec<_> = (1..=12).map(|i| (i, Status::Ok)).collect();
    k.completes(&all)?;
    k.silence(5_000 * US)
}

fn an_acknowledgement_may_come_by_any_path(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 3, 1))?;
    let mut peer = Peer::new(&c, RTT);
    k.post_write(&c, 1, 0, 100)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    // It travels on path 2 and is about path 0.
    equal(data.pxth.path_id().get(), 0, "path of the first packet")?;
    k.inject(&c.ack(&data).path(2))?;
    k.completes(&[(1, Status::Ok)])?;
    // The rest of the transfer goes on as ever.
    k.post_write(&c, 2, 0, 100)?;
    let done = peer.complete(k, 1, 1_000 * US, |_, _| Fate::Pass)?;
    equal(done[0].wr_id, 2, "request completed")
}

fn the_path_with_the_smallest_share_of_its_window_in_use_is_taken(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| set_paths(cfg, 3, 1))?;
    let sent = k.burst(&c, 1, 9)?;
    // Three on each path; those of one path arrive, and the next three packets have a path of their own.
    for path in [2u8, 0, 1] {
        let last = sent.iter().rev().find(|s| s.pxth.path_id().get() == path);
        k.inject(&c.ack(last.ok_or_else(|| Failure::new(format!("P-006: path {path} is not used")))?))?;
        let next = k.burst(&c, 100, 3)?;
        equal(next.iter().map(|s| s.pxth.path_id().get()).collect::<Vec<_>>(), [path; 3], "paths of the next packets")?;
    }
    Ok(())
}
