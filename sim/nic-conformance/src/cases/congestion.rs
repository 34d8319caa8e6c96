//! Congestion control of the sender: how much is on the way, and what changes it.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::Caps;
use crate::failure::{check, equal, Failure, Outcome};
use crate::kit::{set_paths, Kit, Sent, BURST_BYTES, MS, RTT, US};
use crate::packet::Packet;
use crate::setup::{Algorithm, ConnConfig, Tunables, NS_PS};
use nic_spec::desc::Status;
use nic_spec::wire::Opcode;

cases! { "congestion":
    "C-001" [Caps::CONGESTION] one_packet_on_each_path_until_the_first_acknowledgement;
    "C-001" [Caps::CONGESTION] one_packet_on_all_paths_until_the_first_acknowledgement;
    "C-017" [Caps::CONGESTION] the_first_acknowledgements_open_the_window_step_by_step;
    "C-001" + "M-040" [Caps::CONGESTION.and(Caps::READ)] an_answer_begins_as_if_it_were_acknowledged;
    "C-002" [Caps::CONGESTION] six_packets_on_a_path_after_its_first_acknowledgement;
    "C-003" [Caps::CONGESTION] a_new_path_at_most_doubles_its_window_in_a_round_trip;
    "C-003" [Caps::CONGESTION] after_a_mark_the_window_grows_by_one_packet_a_round_trip;
    "C-003" [Caps::CONGESTION] a_window_that_is_not_used_does_not_grow;
    "C-005" + "S-007" [Caps::CONGESTION] marks_make_the_window_smaller;
    "C-005" [Caps::CONGESTION] full_marking_halves_the_window_and_never_below_one_packet;
    "C-005" [Caps::CONGESTION] marks_cut_at_most_once_a_round_trip;
    "C-005" + "S-007" [Caps::CONGESTION] marks_across_the_wrap_of_ce_cnt_are_seen;
    "C-006" + "P-011" [Caps::CONGESTION] marks_on_one_path_leave_the_others_alone;
    "C-006" [Caps::CONGESTION] a_heavily_marked_path_is_passed_over;
    "C-007" + "R-006" [Caps::CONGESTION] a_timeout_makes_the_window_one_packet;
    "C-007" + "C-003" [Caps::CONGESTION] one_acknowledgement_does_not_reopen_the_window_after_a_timeout;
    "C-008" + "R-008" [Caps::CONGESTION] heavy_loss_halves_the_window;
    "C-009" [Caps::CONGESTION] the_connection_has_at_most_twice_the_bandwidth_delay_product;
    "C-010" [Caps::CONGESTION] a_path_that_was_idle_for_long_begins_anew;
    "C-019" + "C-001" [Caps::DELAY_CONTROL] another_algorithm_begins_with_one_packet_too;
    "C-019" [Caps::DELAY_CONTROL] the_delay_based_algorithm_shrinks_the_window_without_marks;
    "C-005" + "S-007" [Caps::CONGESTION] marks_told_by_one_acknowledgement_across_the_wrap_are_seen;
    "C-005" + "R-001" [Caps::CONGESTION] older_acknowledgements_tell_of_no_marks;
    "C-008" + "R-008" [Caps::CONGESTION] one_loss_in_a_window_of_64_cuts_nothing;
    "C-008" [Caps::CONGESTION] the_loss_of_most_of_a_few_packets_cuts_nothing;
}

/// No timer interferes.
fn patient(cfg: &mut ConnConfig) {
    (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (100 * MS * NS_PS, 100 * MS * NS_PS);
}

/// Posts messages enough and takes what leaves at once.
fn fill(k: &mut Kit<'_>, c: &Conn, wr_id: u64) -> Outcome<Vec<Sent>> {
    (0..60).try_for_each(|i| k.post_write(c, wr_id + i, 0, BURST_BYTES))?;
    k.collect(RTT)
}

fn one_packet_on_each_path_until_the_first_acknowledgement(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 5, 1);
        patient(cfg);
    })?;
    let sent = fill(k, &c, 0)?;
    let mut paths: Vec<u8> = sent.iter().map(|s| s.pxth.path_id().get()).collect();
    paths.sort_unstable();
    equal(paths, [0, 1, 2, 3, 4], "paths of the packets before any acknowledgement")
}

/// The parameters of the text for the begin of a connection.
fn as_in_the_text(cfg: &mut ConnConfig) {
    let text = Tunables::default();
    (cfg.transport.conn_init_pkts, cfg.transport.conn_ramp_pkts) = (text.conn_init_pkts, text.conn_ramp_pkts);
    patient(cfg);
}

fn one_packet_on_all_paths_until_the_first_acknowledgement(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 16, 1);
        as_in_the_text(cfg);
    })?;
    equal(fill(k, &c, 0)?.len(), 1, "packets before any acknowledgement")
}

fn the_first_acknowledgements_open_the_window_step_by_step(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 4, 1);
        as_in_the_text(cfg);
        (cfg.transport.path_init_pkts, cfg.transport.conn_ramp_pkts) = (256, 8);
    })?;
    let mut open = fill(k, &c, 0)?;
    let mut sizes = Vec::new();
    for _ in 0..3 {
        for sent in &open {
            k.inject(&c.ack(sent))?;
        }
        open = k.collect(RTT)?;
        sizes.push(open.len());
    }
    // 8 at first; then two more for each that was acknowledged.
    check(sizes[0] == 8 && (24..=25).contains(&sizes[1]), format!("C-017: packets on the way {sizes:?}"))
}

fn an_answer_begins_as_if_it_were_acknowledged(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 32, 1);
        as_in_the_text(cfg);
    })?;
    k.inject(&c.read(0, 1, 0, 200_000))?;
    let sent = k.collect(RTT)?.into_iter().filter(|s| s.opcode == Opcode::ReadRsp).count();
    equal(sent, 16, "packets of an answer before any acknowledgement")
}

fn six_packets_on_a_path_after_its_first_acknowledgement(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(patient)?;
    let count = fill(k, &c, 0)?.len();
    check((6..=7).contains(&count), format!("C-002: {count} packets on the way after one acknowledgement"))
}

/// Acknowledges `open` one by one, marked as `mark` says, and takes what leaves meanwhile; then a round trip passes.
fn round(k: &mut Kit<'_>, c: &Conn, open: &[Sent], mut mark: impl FnMut(Packet) -> Packet) -> Outcome<Vec<Sent>> {
    for s in open {
        k.inject(&mark(c.ack(s)))?;
    }
    k.collect(RTT)
}

fn a_new_path_at_most_doubles_its_window_in_a_round_trip(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(patient)?;
    k.post_write(&c, 1, 0, 250_000)?;
    let mut open = k.collect(RTT)?;
    let mut sizes = vec![open.len()];
    for _ in 0..2 {
        open = round(k, &c, &open, |ack| ack)?;
        sizes.push(open.len());
    }
    let grows = sizes.windows(2).all(|w| (w[0] + 1..=2 * w[0]).contains(&w[1]));
    check(grows, format!("C-003: packets in each round trip: {sizes:?}"))
}

fn after_a_mark_the_window_grows_by_one_packet_a_round_trip(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(patient)?;
    k.post_write(&c, 1, 0, 250_000)?;
    let mut open = k.collect(RTT)?;
    open = round(k, &c, &open, |ack| ack.ce_cnt(1))?;
    let mut sizes = vec![open.len()];
    for _ in 0..5 {
        open = round(k, &c, &open, |ack| ack.ce_cnt(1))?;
        sizes.push(open.len());
    }
    let steps = sizes.windows(2).all(|w| (w[0]..=w[0] + 1).contains(&w[1]));
    check(steps && sizes[5] >= sizes[0] + 3, format!("C-003: packets in each round trip after a mark: {sizes:?}"))
}

fn a_window_that_is_not_used_does_not_grow(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(patient)?;
    for n in 0..60 {
        let sent = k.burst(&c, n, 1)?;
        k.advance(RTT)?;
        k.inject(&c.ack(&sent[0]))?;
        k.completes(&[(n, Status::Ok)])?;
    }
    let count = fill(k, &c, 100)?.len();
    check((6..=7).contains(&count), format!("C-003: {count} packets on the way after 60 round trips with one"))
}

fn marks_make_the_window_smaller(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        patient(cfg);
        cfg.transport.path_init_pkts = 40;
    })?;
    k.post_write(&c, 1, 0, 262_144)?;
    let mut open = k.collect(RTT)?;
    let before = open.len();
    let mut ce_cnt = 0;
    open = round(k, &c, &open, |ack| {
        ce_cnt += 1;
        ack.ce_cnt(ce_cnt)
    })?;
    let left = open.len();
    check(
        before >= 40 && left < before,
        format!("C-005: {before} packets on the way, {left} after a round trip of marks"),
    )
}

fn full_marking_halves_the_window_and_never_below_one_packet(k: &mut Kit<'_>) -> Outcome {
    // A window of 12 and a message that is long enough for 40 round trips of it.
    let c = k.warm(|cfg| {
        patient(cfg);
        cfg.pmtu_log2 = 10;
        cfg.transport.path_init_pkts = 12;
    })?;
    k.post_write(&c, 1, 0, 262_144)?;
    let mut open = k.collect(RTT)?;
    let (mut ce_cnt, mut sizes) = (0u16, vec![open.len()]);
    for _ in 0..40 {
        open = round(k, &c, &open, |ack| {
            ce_cnt += 1;
            ack.ce_cnt(ce_cnt)
        })?;
        sizes.push(open.len());
    }
    check(sizes.iter().all(|n| *n >= 1), format!("C-005: the window closed: {sizes:?}"))?;
    check(sizes[30..].iter().all(|n| *n == 1), format!("C-005: 30 round trips of marks leave {sizes:?}"))
}

fn marks_cut_at_most_once_a_round_trip(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        patient(cfg);
        cfg.transport.path_init_pkts = 32;
    })?;
    k.post_write(&c, 1, 0, 262_144)?;
    let open = k.collect(RTT)?;
    check((32..=33).contains(&open.len()), format!("C-002: {} packets on the way", open.len()))?;
    // Every one of these acknowledgements within far less than a round trip reports a mark: one cut of at most a half.
    let mut ce_cnt = 0;
    let next = round(k, &c, &open, |ack| {
        ce_cnt += 1;
        ack.ce_cnt(ce_cnt)
    })?;
    check(next.len() >= 16, format!("C-005: one round trip of marks leaves {} packets of 32 or 33", next.len()))
}

fn marks_across_the_wrap_of_ce_cnt_are_seen(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        patient(cfg);
        cfg.transport.path_init_pkts = 40;
    })?;
    // The receiver's count stands at ffff when the sender has seen all of it.
    for (n, ce_cnt) in [0x7fff, 0xfffe, 0xffff].into_iter().enumerate() {
        let sent = k.burst(&c, n as u64, 1)?;
        k.advance(RTT)?;
        k.inject(&c.ack(&sent[0]).ce_cnt(ce_cnt))?;
        k.completes(&[(n as u64, Status::Ok)])?;
    }
    k.advance(MS)?;
    k.post_write(&c, 1000, 0, 262_144)?;
    let open = k.collect(RTT)?;
    let mut ce_cnt = 0xffff_u16;
    let next = round(k, &c, &open, |ack| {
        ce_cnt = ce_cnt.wrapping_add(1);
        ack.ce_cnt(ce_cnt)
    })?;
    check(
        next.len() < open.len(),
        format!("C-005: {} packets before marks 0, 1, 2..., {} after", open.len(), next.len()),
    )
}

fn two_paths(k: &mut Kit<'_>, pkts: u32) -> Outcome<(Conn, [Vec<Sent>; 2])> {
    let c = k.warm(|cfg| {
        set_paths(cfg, 2, 1);
        patient(cfg);
        cfg.transport.path_init_pkts = pkts;
        cfg.pmtu_log2 = 10;
    })?;
    k.post_write(&c, 1, 0, 262_144)?;
    let open = k.collect(RTT)?;
    Ok((c, split(open)))
}

fn split(sent: Vec<Sent>) -> [Vec<Sent>; 2] {
    let (a, b) = sent.into_iter().partition(|s| s.pxth.path_id().get() == 0);
    [a, b]
}

fn marks_on_one_path_leave_the_others_alone(k: &mut Kit<'_>) -> Outcome {
    let (c, open) = two_paths(k, 16)?;
    let begun = open[1].len();
    check(begun >= 16 && open[0].len() >= 16, format!("C-002: {} and {begun} packets on the way", open[0].len()))?;
    let mut ce_cnt = 0;
    round(k, &c, &open[0], |ack| {
        ce_cnt += 1;
        ack.ce_cnt(ce_cnt)
    })?;
    let next = split(round(k, &c, &open[1], |ack| ack)?);
    check(next[1].len() >= begun, format!("C-006: {} packets on the unmarked path", next[1].len()))
}

fn a_heavily_marked_path_is_passed_over(k: &mut Kit<'_>) -> Outcome {
    let (c, open) = two_paths(k, 16)?;
    // Both paths have room; path 0 has just been marked throughout.
    for (n, s) in open[0].iter().enumerate() {
        k.inject(&c.ack(s).ce_cnt(n as u16 + 1))?;
    }
    let before = split(k.collect(10)?);
    for s in &open[1][..4] {
        k.inject(&c.ack(s))?;
    }
    let next = split(k.collect(100)?);
    check(next[1].len() >= 4, format!("C-006: {} packets on the unmarked path", next[1].len()))?;
    check(before[0].len() < 16, format!("C-005: {} packets on the marked path", before[0].len()))
}

fn a_timeout_makes_the_window_one_packet(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (MS * NS_PS, MS * NS_PS))?;
    k.post_write(&c, 1, 0, 262_144)?;
    let open = k.collect(500 * US)?;
    check(open.len() >= 6, format!("C-002: {} packets on the way", open.len()))?;
    let again = k.expect(Opcode::Write, 2 * MS)?;
    // One more arrived; the others may still be on their way and are more than the window.
    k.inject(&c.ack(&again))?;
    let next = k.collect(RTT)?;
    check(next.iter().all(|s| s.bth.rtx()), format!("C-007: {} packets after a timeout with six out", next.len()))
}

fn one_acknowledgement_does_not_reopen_the_window_after_a_timeout(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (MS * NS_PS, MS * NS_PS);
        cfg.transport.path_init_pkts = 32;
    })?;
    k.post_write(&c, 1, 0, 262_144)?;
    let open = k.collect(500 * US)?;
    check(open.len() >= 32, format!("C-002: {} packets on the way", open.len()))?;
    let again = k.expect(Opcode::Write, 2 * MS)?;
    // All of them had arrived; one acknowledgement says so. The window grows by a packet a round trip, not by all.
    k.inject(&c.ack(&again).cum(open[open.len() - 1].bth.pseq().get()))?;
    let next = k.collect(RTT)?;
    check((1..=2).contains(&next.len()), format!("C-003: {} packets on the way after a timeout", next.len()))
}

fn heavy_loss_halves_the_window(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        patient(cfg);
        cfg.pmtu_log2 = 10;
        cfg.transport.path_init_pkts = 64;
        cfg.transport.conn_window_min_pkts = 512;
    })?;
    k.post_write(&c, 1, 0, 262_144)?;
    // One mark ends the doubling of a new path.
    let open = k.collect(RTT)?;
    let open = round(k, &c, &open, |ack| ack.ce_cnt(1))?;
    let count = open.len() as u32;
    check(count >= 48, format!("C-005: {count} packets on the way after one mark"))?;
    // Three of four packets are lost.
    let first = open[0].bth.pseq().get();
    let bits: Vec<u32> = (3..count).step_by(4).collect();
    let last = bits[bits.len() - 1];
    k.inject(&c.ack(&open[last as usize]).cum(first - 1).sack(&bits).ce_cnt(1))?;
    let again = k.collect(RTT)?;
    let newest = again.iter().max_by_key(|s| s.bth.pseq().get()).map_or(0, |s| s.bth.pseq().get());
    k.inject(&c.ack(&again[again.len() - 1]).cum(newest).ce_cnt(1))?;
    let next = k.collect(RTT)?.len() as u32;
    check((count / 3..=3 * count / 4).contains(&next), format!("C-008: {next} packets of {count} after heavy loss"))
}

fn the_connection_has_at_most_twice_the_bandwidth_delay_product(k: &mut Kit<'_>) -> Outcome {
    // 4 paths whose windows are open to 256; the ports' rate and a round trip of 5 us bound what is on the way.
    let c = k.warm(|cfg| {
        set_paths(cfg, 4, 1);
        patient(cfg);
        cfg.pmtu_log2 = 10;
        cfg.transport.path_init_pkts = 256;
        cfg.transport.conn_window_min_pkts = 8;
    })?;
    (1..=4).try_for_each(|i| k.post_write(&c, i, 0, 262_144))?;
    let sent = k.collect(200 * US)?.len() as u64;
    let bdp = |rtt: u64| k.dut.rate_mbps() * rtt / 1000 / 8 / 1024;
    // The paths use one port of those whose rates are added; the round trip is known to the case within its polling.
    let limit = 2 * bdp(RTT + k.at_once()) + 8;
    check(sent >= 64 && sent <= limit, format!("C-009: {sent} packets on the way, at most {limit}"))
}

fn a_path_that_was_idle_for_long_begins_anew(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(patient)?;
    k.post_write(&c, 1, 0, 250_000)?;
    let mut open = k.collect(RTT)?;
    let mut last = 0;
    while !open.is_empty() {
        last = open.len();
        open = round(k, &c, &open, |ack| ack)?;
    }
    check(last > 0, "C-003: nothing was sent")?;
    k.completes(&[(1, Status::Ok)])?;
    k.advance(200 * MS)?;
    let sent = fill(k, &c, 100)?;
    check((1..=6).contains(&sent.len()), format!("C-010: {} packets on the way after 200 ms of silence", sent.len()))
}

fn by_delay(cfg: &mut ConnConfig) {
    patient(cfg);
    cfg.cc = Algorithm::Delay;
    cfg.transport.path_init_pkts = 32;
}

fn another_algorithm_begins_with_one_packet_too(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 3, 1);
        by_delay(cfg);
    })?;
    equal(fill(k, &c, 0)?.len(), 3, "packets on 3 paths before any acknowledgement")
}

fn the_delay_based_algorithm_shrinks_the_window_without_marks(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(by_delay)?;
    k.post_write(&c, 1, 0, 262_144)?;
    let mut open = k.collect(RTT)?;
    let before = open.len();
    check(before >= 32, format!("C-002: {before} packets on the way"))?;
    for _ in 0..3 {
        // Each round trip takes four times as long as the smallest.
        k.advance(3 * RTT)?;
        open = round(k, &c, &open, |ack| ack)?;
    }
    check(open.len() < before / 2, format!("C-019: {before} packets on the way, {} when the delay rose", open.len()))
}

/// A warm connection with a window of 64 packets of 1 KiB on its one path.
fn wide(k: &mut Kit<'_>) -> Outcome<Conn> {
    k.warm(|cfg| {
        patient(cfg);
        cfg.pmtu_log2 = 10;
        cfg.transport.path_init_pkts = 64;
        cfg.transport.conn_window_min_pkts = 512;
    })
}

fn marks_told_by_one_acknowledgement_across_the_wrap_are_seen(k: &mut Kit<'_>) -> Outcome {
    let c = wide(k)?;
    for (n, ce_cnt) in [0x7fff, 0xfffe].into_iter().enumerate() {
        let sent = k.burst(&c, n as u64, 1)?;
        k.advance(RTT)?;
        k.inject(&c.ack(&sent[0]).ce_cnt(ce_cnt))?;
        k.completes(&[(n as u64, Status::Ok)])?;
    }
    k.advance(MS)?;
    k.post_write(&c, 1000, 0, 262_144)?;
    let mut open = k.collect(RTT)?;
    let before = open.len() as u16;
    // Each round trip one acknowledgement tells of marks on all that it acknowledges.
    let mut ce_cnt = 0xfffe_u16;
    for _ in 0..2 {
        ce_cnt = ce_cnt.wrapping_add(open.len() as u16);
        let last = open[open.len() - 1].clone();
        k.inject(&c.ack(&last).ce_cnt(ce_cnt))?;
        open = k.collect(RTT)?;
        if ce_cnt >= 0x8000 {
            break;
        }
    }
    let after = open.len() as u16;
    check(after < before, format!("C-005: {before} packets on the way before marks across the wrap, {after} after"))
}

fn older_acknowledgements_tell_of_no_marks(k: &mut Kit<'_>) -> Outcome {
    let c = wide(k)?;
    (1..=4).try_for_each(|i| k.post_write(&c, i, 0, 262_144))?;
    let mut open = k.collect(RTT)?;
    open = round(k, &c, &open, |ack| ack.ce_cnt(9))?;
    let before = open.len();
    for _ in 0..6 {
        // The first of each round trip is one from before the marks.
        let (first, rest) = open.split_first().ok_or_else(|| Failure::new("P-005: nothing on the way"))?;
        k.inject(&c.ack(first).ce_cnt(8))?;
        let mut next = round(k, &c, rest, |ack| ack.ce_cnt(9))?;
        std::mem::swap(&mut open, &mut next);
    }
    check(open.len() >= before, format!("C-005: {before} packets on the way, {} after stale counts", open.len()))
}

/// A window of 64 without its growth: one mark ends the doubling.
fn settled(k: &mut Kit<'_>) -> Outcome<(Conn, Vec<Sent>)> {
    let c = wide(k)?;
    (1..=2).try_for_each(|i| k.post_write(&c, i, 0, 262_144))?;
    let open = k.collect(RTT)?;
    let open = round(k, &c, &open, |ack| ack.ce_cnt(1))?;
    Ok((c, open))
}

/// The packets `lost` of `open` are missing, all others acknowledged by one acknowledgement; what is on the way when the
/// repairs have arrived too.
fn repaired(k: &mut Kit<'_>, c: &Conn, open: &[Sent], lost: &[u32]) -> Outcome<Vec<Sent>> {
    let (first, count) = (open[0].bth.pseq().get(), open.len() as u32);
    let bits: Vec<u32> = (0..count).filter(|i| !lost.contains(i)).collect();
    k.inject(&c.ack(&open[open.len() - 1]).cum(first - 1).sack(&bits).ce_cnt(1))?;
    let again = k.collect(RTT)?;
    let repairs = again.iter().filter(|s| s.bth.rtx()).count();
    equal(repairs, lost.len(), "R-004: packets sent again")?;
    let newest = again.iter().map(|s| s.bth.pseq().get()).max().unwrap_or(first);
    k.inject(&c.ack(&again[again.len() - 1]).cum(newest).ce_cnt(1))?;
    k.collect(RTT)
}

fn one_loss_in_a_window_of_64_cuts_nothing(k: &mut Kit<'_>) -> Outcome {
    let (c, mut open) = settled(k)?;
    let count = open.len();
    // More than 64 packets in two windows, one lost in each.
    let mut least = count;
    for _ in 0..2 {
        let first = open[0].bth.pseq().get();
        let bits: Vec<u32> = (1..open.len() as u32).collect();
        k.inject(&c.ack(&open[open.len() - 1]).cum(first - 1).sack(&bits).ce_cnt(1))?;
        let next = k.collect(RTT)?;
        least = least.min(next.len());
        let newest = next.iter().map(|s| s.bth.pseq().get()).max().unwrap_or(first);
        k.inject(&c.ack(&next[next.len() - 1]).cum(newest).ce_cnt(1))?;
        open = k.collect(RTT)?;
        least = least.min(open.len());
    }
    check(least >= count, format!("R-008: {count} packets on the way, then {least} after single losses"))
}

fn the_loss_of_most_of_a_few_packets_cuts_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| {
        patient(cfg);
        cfg.pmtu_log2 = 10;
        cfg.transport.path_init_pkts = 16;
    })?;
    k.post_write(&c, 1, 0, 262_144)?;
    let open = k.collect(RTT)?;
    let open = round(k, &c, &open, |ack| ack.ce_cnt(1))?;
    let count = open.len();
    check((12..=24).contains(&count), format!("C-002: {count} packets on the way"))?;
    let lost: Vec<u32> = (0..count as u32 - 1).filter(|i| i % 4 != 3).collect();
    let next = repaired(k, &c, &open, &lost)?.len();
    check(next >= count, format!("C-008: {count} packets on the way, {next} after the loss of {}", lost.len()))
}
