//! Routes: paths that leave a bad one, planes that fail and come back.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Nanos};
use crate::failure::{check, equal, Failure, Outcome};
use crate::kit::{pattern, set_paths, Kit, Sent, BURST_BYTES, MS, RTT, US};
use crate::packet::Packet;
use crate::peer::{same_packet, Fate, Peer};
use crate::setup::{ConnConfig, NS_PS};
use nic_spec::consts::{CM_TRIES, REROUTE_PKTS};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::Psn;
use nic_spec::wire::{Opcode, PathOp};

cases! { "plane":
    "P-008" + "P-020" [Caps::RE_AIM] the_second_timeout_re_aims_the_path;
    "P-008" + "P-020" [Caps::RE_AIM] the_epoch_of_a_re_aimed_path_wraps_at_16;
    "P-003" + "P-020" [Caps::RE_AIM] a_re_aimed_path_keeps_its_numbers;
    "P-020" + "R-005" [Caps::RE_AIM] an_acknowledgement_by_the_old_route_still_acknowledges;
    "P-023" + "R-005" [Caps::RE_AIM] what_the_old_route_lost_is_sent_again_a_round_trip_later;
    "P-021" + "P-008" [Caps::RE_AIM] a_new_epoch_moves_acknowledgements_to_another_source_port;
    "P-022" [Caps::RE_AIM.and(Caps::TWO_PORTS)] a_path_that_no_port_helps_tries_the_other_plane;
    "P-030" [Caps::TWO_PORTS] packets_are_dealt_to_both_planes_alike;
    "P-037" + "W-016" [Caps::TWO_PORTS] acknowledgements_leave_by_the_port_at_which_the_packet_came;
    "P-031" + "P-003" [Caps::TWO_PORTS.and(Caps::LINK).and(Caps::RE_AIM)] a_lost_link_sends_its_paths_to_the_other_plane_at_once;
    "P-032" [Caps::TWO_PORTS.and(Caps::LINK).and(Caps::RE_AIM)] the_peer_is_told_of_a_lost_link;
    "P-033" [Caps::TWO_PORTS.and(Caps::RE_AIM)] a_report_of_the_peer_is_obeyed;
    "P-033" [Caps::TWO_PORTS.and(Caps::RE_AIM)] an_older_report_is_ignored;
    "P-033" [Caps::TWO_PORTS.and(Caps::RE_AIM)] the_newest_report_wins_across_the_wrap;
    "P-034" + "P-033" [Caps::TWO_PORTS.and(Caps::RE_AIM)] a_report_of_no_plane_at_all_stops_nothing;
    "P-034" + "P-031" [Caps::TWO_PORTS.and(Caps::LINK).and(Caps::RE_AIM)] a_card_without_any_link_goes_on_when_one_returns;
    "W-016" + "P-037" [Caps::TWO_PORTS] the_plane_that_a_packet_names_is_not_where_it_must_arrive;
    "P-031" + "P-034" [Caps::TWO_PORTS.and(Caps::RE_AIM)] a_plane_that_swallows_everything_does_not_stop_a_transfer;
    "P-035" [Caps::TWO_PORTS.and(Caps::LINK).and(Caps::RE_AIM).and(Caps::BULK)] a_plane_that_answers_again_gets_its_paths_back;
    "P-036" + "R-007" [Caps::TWO_PORTS.and(Caps::LINK).and(Caps::RE_AIM)] the_loss_of_one_plane_is_no_error;
    "P-040" [Caps::RE_AIM] a_path_that_the_peer_opens_is_open;
    "P-040" [Caps::RE_AIM] an_opening_that_is_repeated_is_answered_again;
    "P-041" [Caps::RE_AIM] a_path_that_the_peer_closes_is_closed;
    "P-043" + "P-040" [Caps::BOOTSTRAP] a_long_round_trip_opens_more_paths;
    "P-040" [Caps::BOOTSTRAP] a_path_is_not_used_before_the_peer_answers;
    "P-042" + "W-012" [Caps::RE_AIM] an_unknown_path_operation_is_dropped;
    "R-005" + "P-023" [Caps::RE_AIM] the_old_route_proves_no_loss_of_what_it_carried;
    "P-023" + "R-005" [Caps::RE_AIM] the_new_route_proves_no_loss_of_what_the_old_one_carried;
    "P-031" + "P-036" [Caps::TWO_PORTS.and(Caps::RE_AIM)] a_plane_with_a_path_that_answers_is_kept;
    "P-034" [Caps::RE_AIM] the_last_plane_is_kept_though_nothing_answers;
    "P-035" [Caps::TWO_PORTS.and(Caps::LINK).and(Caps::RE_AIM).and(Caps::BULK)] an_unanswered_probe_begins_the_count_anew;
    "P-035" + "P-025" [Caps::TWO_PORTS.and(Caps::LINK).and(Caps::RE_AIM).and(Caps::CONGESTION)] a_probe_counts_though_its_path_took_another_route_meanwhile;
    "P-032" [Caps::TWO_PORTS.and(Caps::LINK).and(Caps::RE_AIM).and(Caps::BULK)] a_report_is_repeated_while_the_plane_is_down_and_numbered_anew_after;
    "P-025" + "P-008" [Caps::RE_AIM.and(Caps::CONGESTION)] a_crowded_route_is_left_when_nothing_is_on_its_way;
    "P-025" [Caps::RE_AIM.and(Caps::CONGESTION)] a_route_with_few_marks_is_kept;
    "P-025" + "R-005" [Caps::RE_AIM.and(Caps::CONGESTION)] an_answer_of_sixteen_routes_ago_proves_nothing;
    "P-025" + "P-003" [Caps::RE_AIM.and(Caps::CONGESTION)] a_crowded_route_is_not_left_while_packets_are_on_their_way;
    "P-040" [Caps::BOOTSTRAP] an_unanswered_opening_is_repeated_with_doubling_waits_and_given_up;
}

/// Timeouts of 200 us, no other probing.
fn quick(cfg: &mut ConnConfig) {
    (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (200 * US * NS_PS, 200 * US * NS_PS);
}

/// The transmissions of one packet that nobody answers: the first, the retransmission, the one after the re-aim.
fn unanswered(k: &mut Kit<'_>, c: &Conn) -> Outcome<[Sent; 3]> {
    k.post_write(c, 1, 0, BURST_BYTES)?;
    let first = k.expect(Opcode::Write, k.at_once())?;
    let second = k.expect(Opcode::Write, 2 * MS)?;
    let third = k.expect(Opcode::Write, 2 * MS)?;
    Ok([first, second, third])
}

fn the_second_timeout_re_aims_the_path(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(quick)?;
    let before = k.snapshot()?;
    let [first, second, third] = unanswered(k, &c)?;
    equal(
        (second.sport, second.pxth.epoch()),
        (first.sport, first.pxth.epoch()),
        "source port and epoch after one timeout",
    )?;
    check(third.sport != first.sport && third.sport >= 0xc000, format!("P-020: source port {:#x} again", third.sport))?;
    equal(third.pxth.epoch(), first.pxth.epoch().next(), "epoch after two timeouts")?;
    equal(k.counted(&before, Counter::PathReaim)?, 1, "path_reaim_count")?;
    k.inject(&c.ack(&third))?;
    k.completes(&[(1, Status::Ok)])?;
    // The new route is kept.
    k.post_write(&c, 2, 0, 8)?;
    let next = k.expect(Opcode::Write, k.at_once())?;
    equal(
        (next.sport, next.pxth.epoch()),
        (third.sport, third.pxth.epoch()),
        "source port and epoch of the next packet",
    )
}

fn the_epoch_of_a_re_aimed_path_wraps_at_16(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        quick(cfg);
        cfg.tx_paths[0].epoch = 15;
    })?;
    let [first, _, third] = unanswered(k, &c)?;
    equal((first.pxth.epoch().get(), third.pxth.epoch().get()), (15, 0), "epoch before and after the re-aim")?;
    k.inject(&c.ack(&third))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

/// Source port and epoch of packets of path 0 that leave one at a time; `is_marked` says of which the answer tells a mark.
fn routes(k: &mut Kit<'_>, c: &Conn, count: u64, is_marked: impl Fn(u64) -> bool) -> Outcome<Vec<(u16, u8)>> {
    let (mut ce_cnt, mut routes) = (0, Vec::new());
    for n in 0..count {
        k.post_write(c, n, 0, 8)?;
        let sent = k.expect(Opcode::Write, k.at_once())?;
        routes.push((sent.sport, sent.pxth.epoch().get()));
        ce_cnt += u16::from(is_marked(n));
        k.inject(&c.ack(&sent).ce_cnt(ce_cnt))?;
        k.completes(&[(n, Status::Ok)])?;
    }
    Ok(routes)
}

fn a_crowded_route_is_left_when_nothing_is_on_its_way(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 1, 1))?;
    let before = k.snapshot()?;
    let enough = u64::from(REROUTE_PKTS);
    let at = routes(k, &c, 2 * enough + 1, |_| true)?;
    let distinct: Vec<_> = at.chunk_by(|a, b| a == b).map(|same| (same.len() as u64, same[0])).collect();
    equal(distinct.iter().map(|d| d.0).collect::<Vec<_>>(), vec![enough, enough, 1], "packets by each route")?;
    check(distinct.iter().all(|d| d.1 .0 >= 0xc000), "P-007: a source port below 0xc000")?;
    check(distinct[0].1 .0 != distinct[1].1 .0, "P-025: the same source port again")?;
    equal(distinct.iter().map(|d| d.1 .1).collect::<Vec<_>>(), vec![0, 1, 2], "epochs")?;
    equal(k.counted(&before, Counter::PathReaim)?, 2, "path_reaim_count")
}

fn a_route_with_few_marks_is_kept(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 1, 1))?;
    let enough = u64::from(REROUTE_PKTS);
    // One in eight is below a quarter; and no judgement is made of fewer packets.
    let at = routes(k, &c, 4 * enough, |n| n % 8 == 0)?;
    check(at.iter().all(|r| *r == at[0]), format!("P-025: routes {at:?}"))
}

fn a_crowded_route_is_not_left_while_packets_are_on_their_way(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| set_paths(cfg, 1, 1))?;
    let mut open = k.burst(&c, 1, 2)?;
    let (first, mut ce_cnt) = (open[0].pxth.epoch(), 0);
    let last = 3 + 3 * u64::from(REROUTE_PKTS);
    for n in 3..last {
        // Another leaves before one is answered: there is always one on its way.
        open.extend(k.burst(&c, n, 1)?);
        ce_cnt += 1;
        k.inject(&c.ack(&open.remove(0)).ce_cnt(ce_cnt))?;
        let epoch = open[open.len() - 1].pxth.epoch();
        equal(epoch, first, "P-025: epoch with packets on their way")?;
    }
    for sent in open.drain(..) {
        ce_cnt += 1;
        k.inject(&c.ack(&sent).ce_cnt(ce_cnt))?;
    }
    let sent = k.burst(&c, last, 1)?;
    equal(sent[0].pxth.epoch(), first.next(), "P-025: epoch after they were answered")
}

fn an_answer_of_sixteen_routes_ago_proves_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 1, 1))?;
    k.post_write(&c, 0, 0, 8)?;
    let old = k.expect(Opcode::Write, k.at_once())?;
    k.advance(RTT)?;
    k.inject(&c.ack(&old).ce_cnt(1))?;
    k.completes(&[(0, Status::Ok)])?;
    let enough = u64::from(REROUTE_PKTS);
    let (mut ce_cnt, mut epochs, mut sent) = (1, Vec::new(), None);
    for n in 1..=16 * enough {
        k.post_write(&c, n, 0, 8)?;
        let next = k.expect(Opcode::Write, k.at_once())?;
        epochs.push(next.pxth.epoch().get());
        if n < 16 * enough {
            ce_cnt += 1;
            k.advance(RTT)?;
            k.inject(&c.ack(&next).ce_cnt(ce_cnt))?;
            k.completes(&[(n, Status::Ok)])?;
        }
        sent = Some(next);
    }
    epochs.dedup();
    equal(epochs, (0..=16u8).map(|n| n % 16).collect::<Vec<_>>(), "epochs")?;
    // Its epoch is the present one again; what it was sent for is long acknowledged, and what is out was sent after it.
    k.inject(&c.ack(&old).dup())?;
    k.silence(2 * RTT)?;
    let sent = sent.ok_or_else(|| Failure::new("nothing was sent"))?;
    k.inject(&c.ack(&sent).ce_cnt(ce_cnt))?;
    k.completes(&[(16 * enough, Status::Ok)]).map(|_| ())
}

fn a_re_aimed_path_keeps_its_numbers(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        quick(cfg);
        cfg.tx_paths[0].first = Psn::new(0xff_ffff);
    })?;
    let [first, second, third] = unanswered(k, &c)?;
    same_packet(&first, &second)?;
    same_packet(&first, &third)?;
    k.inject(&c.ack(&third))?;
    k.completes(&[(1, Status::Ok)])?;
    k.post_write(&c, 2, 0, 8)?;
    equal(k.expect(Opcode::Write, k.at_once())?.bth.pseq(), Psn::new(0), "PSEQ of the next packet")
}

fn an_acknowledgement_by_the_old_route_still_acknowledges(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(quick)?;
    let [first, ..] = unanswered(k, &c)?;
    k.inject(&c.ack(&first))?;
    k.completes(&[(1, Status::Ok)])?;
    k.silence(5 * MS)
}

fn what_the_old_route_lost_is_sent_again_a_round_trip_later(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(quick)?;
    let lost = k.burst(&c, 1, 4)?;
    // Nobody answers until the path is re-aimed; then the oldest packet arrives by the new route.
    k.expect(Opcode::Write, 2 * MS)?;
    let moved = k.expect(Opcode::Write, 2 * MS)?;
    check(moved.pxth.epoch() != lost[0].pxth.epoch(), "P-020: no new epoch after two timeouts")?;
    k.advance(RTT)?;
    k.inject(&c.ack(&moved))?;
    k.completes(&[(1, Status::Ok)])?;
    // A further packet, acknowledged well after the re-aim, makes the others fall due.
    k.advance(2 * RTT)?;
    k.inject(&c.ack(&moved))?;
    let again = k.collect(RTT)?;
    let numbers: Vec<_> = again.iter().map(|s| (s.bth.pseq().get(), s.bth.rtx())).collect();
    equal(numbers, [(2, true), (3, true), (4, true)], "what is sent again by the new route")?;
    check(again.iter().all(|s| s.pxth.epoch() == moved.pxth.epoch()), "P-004: epoch of what is sent again")
}

fn a_new_epoch_moves_acknowledgements_to_another_source_port(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let mut ports = Vec::new();
    for (pseq, epoch) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)] {
        k.inject(&c.write(pseq, 0, b"x").epoch(epoch))?;
        ports.push(k.expect(Opcode::Ack, k.at_once())?.sport);
    }
    equal((ports[0], ports[2]), (ports[1], ports[3]), "source ports of acknowledgements within an epoch")?;
    check(ports[0] != ports[2] && ports[2] != ports[4], format!("P-021: source ports of acknowledgements {ports:x?}"))
}

fn a_path_that_no_port_helps_tries_the_other_plane(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(quick)?;
    k.post_write(&c, 1, 0, 100)?;
    let mut planes = Vec::new();
    for _ in 0..10 {
        let Some(sent) = k.next(50 * MS)? else { break };
        planes.push(sent.port);
        if sent.port == 1 {
            k.inject(&c.ack(&sent))?;
            break;
        }
    }
    check(planes.contains(&1), format!("P-022: planes tried {planes:?}"))?;
    check(planes.iter().filter(|p| **p == 0).count() >= 3, format!("P-022: planes tried {planes:?}"))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn two_planes(cfg: &mut ConnConfig) {
    set_paths(cfg, 4, 2);
    quick(cfg);
}

fn packets_are_dealt_to_both_planes_alike(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    let mut peer = Peer::new(&c, RTT);
    k.fill(0, &pattern(1, 200_000))?;
    k.post_write(&c, 1, 0, 200_000)?;
    peer.complete(k, 1, 10 * MS, |_, _| Fate::Pass)?;
    let by = |port| peer.log.iter().filter(|s| s.port == port && s.opcode == Opcode::Write).count();
    let (a, b) = (by(0), by(1));
    check(a.abs_diff(b) <= 4, format!("P-030: {a} and {b} packets by the planes"))?;
    equal(peer.memory[..200_000] == pattern(1, 200_000), true, "memory of the peer")
}

fn acknowledgements_leave_by_the_port_at_which_the_packet_came(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    for (n, path) in [0u8, 1, 2, 3].into_iter().enumerate() {
        let mut p = c.write(0, 0, b"x").mseq(n as u32);
        let (card, peer) = c.cfg.addresses[usize::from(path % 2)];
        (p.src, p.dst) = (peer, card);
        k.inject(&p.path(path).plane(path % 2))?;
        let ack = k.ack()?;
        equal((ack.port, ack.plane, ack.apath), (path % 2, path % 2, path), "port, plane and path of the ACK")?;
    }
    Ok(())
}

/// Posts a message and takes what leaves in a round trip, reports left out.
fn some(k: &mut Kit<'_>, c: &Conn, wr_id: u64) -> Outcome<Vec<Sent>> {
    (0..4).try_for_each(|i| k.post_write(c, wr_id + i, 0, BURST_BYTES))?;
    let sent = k.collect(RTT)?;
    Ok(sent.into_iter().filter(|s| s.opcode == Opcode::Write).collect())
}

fn a_lost_link_sends_its_paths_to_the_other_plane_at_once(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    let sent = some(k, &c, 1)?;
    let down: Vec<_> = sent.iter().filter(|s| s.port == 1).collect();
    check(!down.is_empty() && down.len() < 4, format!("P-030: {} of 4 packets by plane 1", down.len()))?;
    k.dut.set_link(1, false)?;
    let again: Vec<_> = k.collect(RTT)?.into_iter().filter(|s| s.opcode == Opcode::Write).collect();
    equal(again.iter().map(|s| s.port).max(), Some(0), "P-031: planes used after the link was lost")?;
    for first in &down {
        let copy = again.iter().find(|s| s.bth.pseq() == first.bth.pseq() && s.pxth.path_id() == first.pxth.path_id());
        let copy = copy.ok_or_else(|| Failure::new("P-031: a packet of the lost plane was not sent again at once"))?;
        same_packet(first, copy)?;
        equal(copy.pxth.epoch(), first.pxth.epoch().next(), "P-008: epoch")?;
    }
    for s in sent.iter().filter(|s| s.port == 0).chain(&again) {
        k.inject(&c.ack(s))?;
    }
    k.completes(&[(1, Status::Ok), (2, Status::Ok), (3, Status::Ok), (4, Status::Ok)]).map(|_| ())
}

fn reports(sent: &[Sent]) -> Vec<(u8, u16, u16)> {
    sent.iter().filter_map(|s| s.psth().map(|h| (s.port, h.planes_up(), h.seq()))).collect()
}

fn the_peer_is_told_of_a_lost_link(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    let sent = some(k, &c, 1)?;
    for s in &sent {
        k.inject(&c.ack(s))?;
    }
    k.dut.set_link(1, false)?;
    let told = reports(&k.collect(RTT)?);
    equal(told.first().map(|t| (t.0, t.1)), Some((0, 0b01)), "plane and content of the report")
}

/// A report of the peer by plane 0.
fn report(c: &Conn, planes_up: u16, seq: u16) -> Packet {
    c.packet(Opcode::PortStatus).with_psth(|h| _ = h.set_planes_up(planes_up).set_seq(seq).set_cookie(7))
}

/// Planes by which the next packets leave; all are acknowledged.
fn planes_used(k: &mut Kit<'_>, c: &Conn, wr_id: u64) -> Outcome<Vec<u8>> {
    let sent = some(k, c, wr_id)?;
    for s in &sent {
        k.inject(&c.ack(s))?;
    }
    k.collect(RTT)?;
    let all: Vec<_> = (0..4).map(|i| (wr_id + i, Status::Ok)).collect();
    k.completes(&all)?;
    let mut ports: Vec<u8> = sent.iter().map(|s| s.port).collect();
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

fn a_report_of_the_peer_is_obeyed(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    equal(planes_used(k, &c, 1)?, [0, 1], "planes used before the report")?;
    k.inject(&report(&c, 0b01, 1))?;
    k.collect(RTT)?;
    equal(planes_used(k, &c, 10)?, [0], "planes used when plane 1 is down at the peer")?;
    k.inject(&report(&c, 0b11, 2))?;
    k.collect(RTT)?;
    equal(planes_used(k, &c, 20)?, [0, 1], "planes used when plane 1 is up again")
}

fn an_older_report_is_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    k.inject(&report(&c, 0b11, 9))?;
    k.inject(&report(&c, 0b01, 8))?;
    k.inject(&report(&c, 0b01, 9))?;
    k.collect(RTT)?;
    equal(planes_used(k, &c, 1)?, [0, 1], "planes used after older reports")
}

fn the_newest_report_wins_across_the_wrap(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    k.inject(&report(&c, 0b11, 0xffff))?;
    k.inject(&report(&c, 0b01, 1))?;
    k.inject(&report(&c, 0b11, 0))?;
    k.collect(RTT)?;
    equal(planes_used(k, &c, 1)?, [0], "planes used after reports ffff, 1, 0")
}

fn a_plane_that_swallows_everything_does_not_stop_a_transfer(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    let mut peer = Peer::new(&c, RTT);
    k.fill(0, &pattern(1, 200_000))?;
    k.post_write(&c, 1, 0, 200_000)?;
    let mut told = 0;
    let done = peer_with_reports(k, &mut peer, 100 * MS, |s, n| {
        told += usize::from(s.psth().is_some());
        if s.port == 1 && n >= 8 {
            Fate::Lose
        } else {
            Fate::Pass
        }
    })?;
    equal(done, [(1, Status::Ok)], "completions")?;
    equal(peer.memory[..200_000] == pattern(1, 200_000), true, "memory of the peer")
}

/// As [`Peer::complete`], with a peer that takes reports of planes as they are.
fn peer_with_reports(
    k: &mut Kit<'_>,
    peer: &mut Peer,
    limit: Nanos,
    fate: impl FnMut(&Sent, usize) -> Fate,
) -> Outcome<Vec<(u64, Status)>> {
    let done = peer.complete(k, 1, limit, fate)?;
    Ok(done.iter().map(|c| (c.wr_id, c.status)).collect())
}

fn a_plane_that_answers_again_gets_its_paths_back(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    equal(planes_used(k, &c, 1)?, [0, 1], "planes used to begin with")?;
    k.dut.set_link(1, false)?;
    k.collect(RTT)?;
    equal(planes_used(k, &c, 10)?, [0], "planes used without the link")?;
    k.dut.set_link(1, true)?;
    // Probes leave by the plane; each is answered.
    let end = k.dut.now() + 100 * MS;
    let mut probes = 0;
    while k.dut.now() < end {
        let Some(sent) = k.next(end - k.dut.now())? else { break };
        if sent.opcode == Opcode::ProbeReq && sent.port == 1 {
            probes += 1;
            k.inject(&c.probe_rsp(&sent))?;
        }
    }
    check(probes >= 3, format!("P-035: {probes} probes of the plane"))?;
    equal(planes_used(k, &c, 20)?, [0, 1], "planes used after the plane answered")
}

fn the_loss_of_one_plane_is_no_error(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    let before = k.snapshot()?;
    planes_used(k, &c, 1)?;
    k.dut.set_link(1, false)?;
    k.collect(50 * MS)?;
    equal(planes_used(k, &c, 10)?, [0], "planes used")?;
    equal(k.counted(&before, Counter::ConnErrors)?, 0, "conn_error_count")
}

/// The peer opens path 5 with first number 100.
fn open_path(c: &Conn) -> Packet {
    c.packet(Opcode::PathCtl).with_pcth(|h| {
        _ = h.set_op(PathOp::Open.code()).set_path(nic_spec::num::PathId::new(5)).set_cum_pseq(Psn::new(99));
    })
}

fn a_path_that_the_peer_opens_is_open(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&open_path(&c))?;
    let reply = k.expect(Opcode::PathCtl, k.at_once())?;
    let said = reply.pcth().map(|h| (h.op(), h.path().get(), h.flags() & 1, h.cum_pseq().get()));
    equal(said, Some((PathOp::Open.code(), 5, 1, 99)), "operation, path, reply and number of the answer")?;
    k.inject(&c.write(100, 0, b"open").mseq(0).path(5))?;
    equal(k.acks(100, &[])?.apath, 5, "path acknowledged")?;
    // The paths in between are not open.
    let before = k.snapshot()?;
    k.inject(&c.write(0, 0, b"shut").mseq(1).path(3))?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::RxUnknownPath, 1)])
}

fn an_opening_that_is_repeated_is_answered_again(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&open_path(&c))?;
    k.expect(Opcode::PathCtl, k.at_once())?;
    k.inject(&c.write(100, 0, b"open").mseq(0).path(5))?;
    k.acks(100, &[])?;
    k.inject(&open_path(&c))?;
    k.expect(Opcode::PathCtl, k.at_once())?;
    // What was received stays received.
    k.inject(&c.write(100, 0, b"late").mseq(0).path(5))?;
    check(k.acks(100, &[])?.dup, "P-040: a repeated opening forgot what was received")?;
    k.memory_holds_only(&[(0, b"open")])
}

fn a_path_that_the_peer_closes_is_closed(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 2, 1))?;
    k.inject_all(&[c.write(0, 0, b"a").path(1), c.write(1, 1, b"b").path(1)])?;
    k.collect(k.at_once())?;
    let close = c.packet(Opcode::PathCtl).with_pcth(|h| {
        _ = h.set_op(PathOp::Close.code()).set_path(nic_spec::num::PathId::new(1));
    });
    k.inject(&close)?;
    let reply = k.expect(Opcode::PathCtl, k.at_once())?;
    equal(reply.pcth().map(|h| (h.flags() & 1, h.cum_pseq().get())), Some((1, 1)), "reply and cumulative number")?;
    let before = k.snapshot()?;
    k.inject(&c.write(2, 2, b"c").path(1))?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::RxUnknownPath, 1)])
}

fn an_unknown_path_operation_is_dropped(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    k.inject(&c.packet(Opcode::PathCtl).with_pcth(|h| _ = h.set_op(99)))?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::RxUnsupportedOpcode, 1)])
}

/// A connection that adapts, with a round trip of 1 ms; the paths it asks the peer to open.
fn long_way(k: &mut Kit<'_>) -> Outcome<(Conn, Vec<Sent>)> {
    let c = k.open(|cfg| {
        set_paths(cfg, 12, 1);
        quick(cfg);
        (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (100 * MS * NS_PS, 100 * MS * NS_PS);
        (cfg.transport.bootstrap, cfg.transport.paths_min, cfg.transport.paths_max) = (true, 12, 40);
    })?;
    (0..12).try_for_each(|i| k.post_write(&c, i, 0, BURST_BYTES))?;
    let sent = k.collect(MS)?;
    for s in &sent {
        k.inject(&c.ack(s))?;
    }
    let opened: Vec<_> = k.collect(10 * US)?.into_iter().filter(|s| s.opcode == Opcode::PathCtl).collect();
    Ok((c, opened))
}

fn a_long_round_trip_opens_more_paths(k: &mut Kit<'_>) -> Outcome {
    // 400 Gb/s or more over 1 ms need 96 paths of 256 packets of 4 KiB; 40 are permitted.
    let (_, opened) = long_way(k)?;
    let mut paths: Vec<_> =
        opened.iter().filter_map(|s| s.pcth().map(|h| (h.op(), h.path().get(), h.cum_pseq().get()))).collect();
    paths.sort_unstable();
    let want: Vec<_> = (12..40).map(|path| (PathOp::Open.code(), path, 0xff_ffff)).collect();
    equal(paths, want, "operation, path and number before the first")
}

fn a_path_is_not_used_before_the_peer_answers(k: &mut Kit<'_>) -> Outcome {
    let (c, opened) = long_way(k)?;
    k.completions_of(0, 12)?;
    (100..160).try_for_each(|i| k.post_write(&c, i, 0, BURST_BYTES))?;
    let of = |sent: &[Sent]| sent.iter().filter(|s| s.opcode == Opcode::Write).map(|s| s.pxth.path_id().get()).max();
    let sent = k.collect(10 * US)?;
    check(of(&sent).is_some_and(|path| path < 12), format!("P-040: path {:?} used before it is open", of(&sent)))?;
    for s in sent.iter().filter(|s| s.opcode == Opcode::Write) {
        k.inject(&c.ack(s))?;
    }
    let first = opened.first().ok_or_else(|| Failure::new("P-043: no path opened"))?;
    let path = first.pcth().map_or(0, |h| h.path().get());
    let reply = c.packet(Opcode::PathCtl).with_pcth(|h| {
        _ = h
            .set_op(PathOp::Open.code())
            .set_path(nic_spec::num::PathId::new(path))
            .set_flags(1)
            .set_cum_pseq(Psn::new(0xff_ffff));
    });
    k.inject(&reply)?;
    (200..264).try_for_each(|i| k.post_write(&c, i, 0, BURST_BYTES))?;
    let sent = k.collect(10 * US)?;
    check(
        sent.iter().any(|s| s.opcode == Opcode::Write && s.pxth.path_id().get() == path),
        "P-040: the opened path is not used",
    )
}

fn a_report_of_no_plane_at_all_stops_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    k.inject(&report(&c, 0, 1))?;
    k.collect(RTT)?;
    let used = planes_used(k, &c, 1)?;
    check(!used.is_empty(), "P-034: nothing is sent after a report of no plane")
}

fn a_card_without_any_link_goes_on_when_one_returns(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    let mut peer = Peer::new(&c, RTT);
    k.fill(0, &pattern(1, 100_000))?;
    k.dut.set_link(0, false)?;
    k.dut.set_link(1, false)?;
    // A report of the first loss may have left by the other port.
    k.collect(RTT)?;
    k.post_write(&c, 1, 0, 100_000)?;
    let dark = k.collect(2 * MS)?;
    check(dark.is_empty(), format!("P-031: {} packets without a link", dark.len()))?;
    k.dut.set_link(1, true)?;
    // Packets built before the link was lost cannot have left; the peer sees retransmissions first.
    (0..4).for_each(|path| peer.knows(path, 0xff_ffff));
    let done = peer.complete(k, 1, 200 * MS, |_, _| Fate::Pass)?;
    equal(done.iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Ok], "completions")?;
    equal(peer.memory[..100_000] == pattern(1, 100_000), true, "memory of the peer")
}

fn the_plane_that_a_packet_names_is_not_where_it_must_arrive(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.dut.inject(0, &c.write(0, 0, b"x").plane(9).to_bytes())?;
    let ack = k.acks(0, &[])?;
    equal((ack.port, ack.plane), (0, 9), "port of the ACK and plane that it returns")
}

/// Four packets of which the first two transmissions of the first were in vain, and the one by the new route.
fn moved(k: &mut Kit<'_>) -> Outcome<(Conn, Vec<Sent>, Sent)> {
    let c = k.warm(quick)?;
    let sent = k.burst(&c, 1, 4)?;
    k.expect(Opcode::Write, 2 * MS)?;
    let moved = k.expect(Opcode::Write, 2 * MS)?;
    check(moved.pxth.epoch() != sent[0].pxth.epoch(), "P-020: no new epoch after two timeouts")?;
    Ok((c, sent, moved))
}

fn the_old_route_proves_no_loss_of_what_it_carried(k: &mut Kit<'_>) -> Outcome {
    let (c, sent, _) = moved(k)?;
    // The last packet did arrive; its acknowledgement took its time. Packets 2 and 3 were sent before it.
    k.inject(&c.ack(&sent[3]).cum(0).sack(&[3]))?;
    k.silence(100 * US)
}

fn the_new_route_proves_no_loss_of_what_the_old_one_carried(k: &mut Kit<'_>) -> Outcome {
    let (c, _, moved) = moved(k)?;
    // Well within a round trip of the re-aim; a saturated hold gives no new one.
    k.advance(RTT / 5)?;
    k.inject(&c.ack(&moved).hold(u16::MAX))?;
    k.silence(RTT / 5)?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn a_plane_with_a_path_that_answers_is_kept(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(two_planes)?;
    let before = k.snapshot()?;
    let sent = k.burst(&c, 1, 24)?;
    let of = |path: u8| sent.iter().filter(move |s| s.pxth.path_id().get() == path).collect::<Vec<_>>();
    for path in [1, 3] {
        let last = of(path).last().copied().cloned().ok_or_else(|| Failure::new("P-006: an unused path"))?;
        k.inject(&c.ack(&last))?;
    }
    // Paths 0 and 2 share plane 0. Nobody answers path 0, and path 2 gets on slowly.
    let slow = of(2);
    check(slow.len() >= 5, format!("P-006: {} of 24 packets on path 2", slow.len()))?;
    let mut told = 0;
    for s in &slow {
        told += reports(&k.collect(150 * US)?).len();
        k.inject(&c.ack(s))?;
    }
    check(k.counted(&before, Counter::PathReaim)? > 0, "P-020: path 0 was not re-aimed")?;
    equal((told, k.counted(&before, Counter::PlaneDown)?), (0, 0), "reports and plane_down_count")
}

fn the_last_plane_is_kept_though_nothing_answers(k: &mut Kit<'_>) -> Outcome {
    let mut cfg = k.config(|cfg| {
        set_paths(cfg, 3, 1);
        quick(cfg);
    })?;
    // The connection has one plane, whatever the card has.
    cfg.addresses.truncate(1);
    let c = Conn { id: k.dut.open(&cfg)?, cfg, key: k.key };
    let before = k.snapshot()?;
    (0..3).try_for_each(|i| k.post_write(&c, i, 0, BURST_BYTES))?;
    let told = reports(&k.collect(5 * MS)?).len();
    check(k.counted(&before, Counter::PathReaim)? >= 3, "P-020: paths that nobody answers were not re-aimed")?;
    equal((told, k.counted(&before, Counter::PlaneDown)?), (0, 0), "reports and plane_down_count")
}

/// Answers as many of the probes of plane 1 as `answers` says, in turn, and then none.
fn answer_probes(k: &mut Kit<'_>, c: &Conn, answers: &[bool]) -> Outcome {
    let mut left = answers.iter();
    let end = k.dut.now() + 100 * MS;
    while k.dut.now() < end {
        let Some(sent) = k.next(end - k.dut.now())? else { break };
        if sent.opcode == Opcode::ProbeReq && sent.port == 1 && left.next() == Some(&true) {
            k.inject(&c.probe_rsp(&sent))?;
        }
    }
    equal(left.next(), None, "P-035: probes that did not come")
}

fn an_unanswered_probe_begins_the_count_anew(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    planes_used(k, &c, 1)?;
    k.dut.set_link(1, false)?;
    k.collect(RTT)?;
    k.dut.set_link(1, true)?;
    answer_probes(k, &c, &[true, true, false, true, true, false])?;
    equal(planes_used(k, &c, 10)?, [0], "planes used after two answers, none, and two again")
}

fn a_probe_counts_though_its_path_took_another_route_meanwhile(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 1, 2))?;
    k.dut.set_link(1, false)?;
    k.collect(RTT)?;
    k.dut.set_link(1, true)?;
    let end = k.dut.now() + 100 * MS;
    let (mut wr_id, mut ce_cnt, mut probes) = (0, 0, 0);
    let mut is_back = false;
    while k.dut.now() < end && !is_back {
        let Some(probe) = k.next(end - k.dut.now())? else { break };
        is_back = reports(std::slice::from_ref(&probe)).iter().any(|t| t.1 == 0b11);
        if probe.opcode != Opcode::ProbeReq || probe.port != 1 {
            continue;
        }
        probes += 1;
        let mut epochs = Vec::new();
        for _ in 0..=REROUTE_PKTS {
            k.post_write(&c, wr_id, 0, 8)?;
            let sent = k.expect(Opcode::Write, k.at_once())?;
            epochs.push(sent.pxth.epoch());
            ce_cnt += 1;
            k.inject(&c.ack(&sent).ce_cnt(ce_cnt))?;
            k.completes(&[(wr_id, Status::Ok)])?;
            wr_id += 1;
        }
        check(epochs[0] != epochs[REROUTE_PKTS as usize], "P-025: the path keeps a crowded route")?;
        k.inject(&c.probe_rsp(&probe))?;
    }
    check(is_back, format!("P-035: {probes} answered probes did not bring the plane back"))
}

fn a_report_is_repeated_while_the_plane_is_down_and_numbered_anew_after(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(two_planes)?;
    planes_used(k, &c, 1)?;
    k.dut.set_link(1, false)?;
    let told = reports(&k.collect(45 * MS)?);
    check((4..=6).contains(&told.len()), format!("P-032: {} reports in 45 ms with one each 10 ms", told.len()))?;
    let seq = told[0].2;
    check(told.iter().all(|t| *t == (0, 0b01, seq)), format!("P-032: reports {told:?}"))?;
    k.dut.set_link(1, true)?;
    let end = k.dut.now() + 150 * MS;
    let mut after = Vec::new();
    while let Some(sent) = k.next(end.saturating_sub(k.dut.now()))? {
        if sent.opcode == Opcode::ProbeReq && sent.port == 1 {
            k.inject(&c.probe_rsp(&sent))?;
        }
        after.extend(reports(&[sent]).into_iter().filter(|t| t.1 == 0b11));
    }
    for port in 0..2 {
        let by: Vec<_> = after.iter().filter(|t| t.0 == port).collect();
        check((3..=4).contains(&by.len()), format!("P-032: {} reports of the return by plane {port}", by.len()))?;
        check(by.iter().all(|t| t.2 == seq.wrapping_add(1)), format!("P-032: numbers after {seq}: {by:?}"))?;
    }
    Ok(())
}

fn an_unanswered_opening_is_repeated_with_doubling_waits_and_given_up(k: &mut Kit<'_>) -> Outcome {
    let (_, opened) = long_way(k)?;
    let path = |s: &Sent| s.pcth().map(|h| h.path().get());
    let first = opened.first().ok_or_else(|| Failure::new("P-043: no path opened"))?;
    let mut times = vec![first.at];
    let end = first.at + 2_000 * MS;
    while let Some(sent) = k.next(end.saturating_sub(k.dut.now()))? {
        if path(&sent).is_some() && path(&sent) == path(first) {
            times.push(sent.at);
        }
    }
    equal(times.len(), CM_TRIES as usize, "times that a path is opened")?;
    let waits: Vec<_> = times.windows(2).map(|w| w[1] - w[0]).collect();
    let doubles = waits.windows(2).all(|w| (w[0] * 19 / 10..=w[0] * 21 / 10 + k.dut.slack()).contains(&w[1]));
    check(doubles, format!("P-040: waits between the openings of a path: {waits:?} ns"))
}
