//! Paths that the host has closed for good.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::Caps;
use crate::failure::{check, equal, Outcome};
use crate::kit::{set_paths, Kit, Sent, BURST_BYTES, MS, RTT, US};
use crate::packet::Packet;
use nic_spec::consts::{CM_TRIES, OPEN_WAIT_NS};
use nic_spec::desc::Status;
use nic_spec::num::{PathId, Psn};
use nic_spec::wire::{Opcode, PathOp};

const NEEDS: Caps = Caps::CLOSE_PATH;

cases! { "retire":
    "P-044" + "P-041" [NEEDS] a_closed_path_carries_nothing_new_and_the_peer_is_told;
    "P-044" + "P-041" [NEEDS] a_path_is_closed_when_all_that_it_sent_is_acknowledged;
    "P-044" + "R-003" [NEEDS] what_a_path_lost_is_sent_again_before_it_is_closed;
    "P-044" + "P-040" [NEEDS] an_unanswered_closing_is_repeated_with_doubling_waits_and_given_up;
    "P-044" [NEEDS] the_last_path_stays;
    "P-042" [Caps::RE_AIM] an_answer_to_a_closing_that_was_not_asked_for_changes_nothing;
    "P-044" + "P-035" [NEEDS.and(Caps::LINK).and(Caps::TWO_PORTS).and(Caps::PROBE)] planes_are_probed_by_the_first_path_that_stays;
}

/// A connection of two paths whose windows are open.
fn two_paths(k: &mut Kit<'_>) -> Outcome<Conn> {
    k.warm(|cfg| set_paths(cfg, 2, 1))
}

fn of_path(sent: &[Sent], path: u8) -> Vec<&Sent> {
    sent.iter().filter(|s| s.opcode == Opcode::Write && s.pxth.path_id().get() == path).collect()
}

/// Operation, path, reply flag and number that a path control packet states.
fn said(sent: &Sent) -> Option<(u8, u8, u8, u32)> {
    sent.pcth().map(|h| (h.op(), h.path().get(), h.flags() & 1, h.cum_pseq().get()))
}

fn reply(c: &Conn, path: u8, cum: u32) -> Packet {
    c.packet(Opcode::PathCtl).with_pcth(|h| {
        _ = h.set_op(PathOp::Close.code()).set_path(PathId::new(path)).set_flags(1).set_cum_pseq(Psn::new(cum));
    })
}

/// `count` writes, and the acknowledgements of all that left for them.
fn carry(k: &mut Kit<'_>, c: &Conn, wr_id: u64, count: u64) -> Outcome<Vec<Sent>> {
    let sent = k.burst(c, wr_id, count)?;
    for s in &sent {
        k.inject(&c.ack(s))?;
    }
    k.completes(&(wr_id..wr_id + count).map(|n| (n, Status::Ok)).collect::<Vec<_>>())?;
    Ok(sent)
}

fn a_closed_path_carries_nothing_new_and_the_peer_is_told(k: &mut Kit<'_>) -> Outcome {
    let c = two_paths(k)?;
    check(!of_path(&carry(k, &c, 1, 4)?, 1).is_empty(), "P-002: path 1 carries nothing")?;
    let last = k.burst(&c, 10, 4)?;
    let newest = of_path(&last, 1).last().map_or(0, |s| s.bth.pseq().get());
    for s in &last {
        k.inject(&c.ack(s))?;
    }
    equal(k.dut.close_path(c.id, 1)?, true, "path 1 can be closed")?;
    let close = k.expect(Opcode::PathCtl, k.at_once())?;
    equal(said(&close), Some((PathOp::Close.code(), 1, 0, newest)), "operation, path, reply and number")?;
    k.inject(&reply(&c, 1, newest))?;
    k.completes(&(10..14).map(|n| (n, Status::Ok)).collect::<Vec<_>>())?;
    for round in 0..5 {
        equal(of_path(&carry(k, &c, 20 + 10 * round, 4)?, 1).len(), 0, "packets on a closed path")?;
    }
    k.silence(20 * MS)
}

fn a_path_is_closed_when_all_that_it_sent_is_acknowledged(k: &mut Kit<'_>) -> Outcome {
    let c = two_paths(k)?;
    let sent = k.burst(&c, 1, 4)?;
    equal(k.dut.close_path(c.id, 1)?, true, "path 1 can be closed")?;
    k.silence(20 * US)?;
    for s in of_path(&sent, 0) {
        k.inject(&c.ack(s))?;
    }
    k.silence(20 * US)?;
    for s in of_path(&sent, 1) {
        k.inject(&c.ack(s))?;
    }
    let newest = of_path(&sent, 1).last().map_or(0, |s| s.bth.pseq().get());
    let close = k.expect(Opcode::PathCtl, 4 * u64::from(OPEN_WAIT_NS) + k.dut.slack())?;
    equal(said(&close), Some((PathOp::Close.code(), 1, 0, newest)), "operation, path, reply and number")?;
    k.inject(&reply(&c, 1, newest))?;
    k.completes(&[(1, Status::Ok), (2, Status::Ok), (3, Status::Ok), (4, Status::Ok)]).map(|_| ())
}

fn what_a_path_lost_is_sent_again_before_it_is_closed(k: &mut Kit<'_>) -> Outcome {
    let c = two_paths(k)?;
    let sent = k.burst(&c, 1, 6)?;
    let (lost, later) = (of_path(&sent, 1)[0].clone(), of_path(&sent, 1)[2].clone());
    equal(k.dut.close_path(c.id, 1)?, true, "path 1 can be closed")?;
    for s in of_path(&sent, 0) {
        k.inject(&c.ack(s))?;
    }
    k.inject(&c.ack(&later).cum(lost.bth.pseq().get().wrapping_sub(1)).sack(&[1, 2]))?;
    let again = k.expect(Opcode::Write, k.at_once())?;
    equal((again.bth.pseq(), again.pxth.path_id().get()), (lost.bth.pseq(), 1), "what is sent again")?;
    k.silence(20 * US)?;
    k.inject(&c.ack(&again).cum(later.bth.pseq().get()))?;
    let close = k.expect(Opcode::PathCtl, 4 * u64::from(OPEN_WAIT_NS) + k.dut.slack())?;
    equal(said(&close), Some((PathOp::Close.code(), 1, 0, later.bth.pseq().get())), "operation, path and number")
}

fn an_unanswered_closing_is_repeated_with_doubling_waits_and_given_up(k: &mut Kit<'_>) -> Outcome {
    let c = two_paths(k)?;
    equal(k.dut.close_path(c.id, 1)?, true, "path 1 can be closed")?;
    let mut times = Vec::new();
    let end = k.dut.now() + 500 * MS;
    while let Some(sent) = k.next(end.saturating_sub(k.dut.now()))? {
        if said(&sent).is_some_and(|s| (s.0, s.1) == (PathOp::Close.code(), 1)) {
            times.push(sent.at);
        }
    }
    equal(times.len(), CM_TRIES as usize, "times that the closing is sent")?;
    let waits: Vec<_> = times.windows(2).map(|w| w[1] - w[0]).collect();
    let doubles = waits.windows(2).all(|w| (w[0] * 19 / 10..=w[0] * 21 / 10 + k.dut.slack()).contains(&w[1]));
    check(doubles && waits[0] >= u64::from(OPEN_WAIT_NS), format!("P-044: waits between the closings: {waits:?} ns"))?;
    // The path stays closed all the same.
    equal(of_path(&carry(k, &c, 1, 4)?, 1).len(), 0, "packets on a closed path")
}

fn the_last_path_stays(k: &mut Kit<'_>) -> Outcome {
    let c = two_paths(k)?;
    equal(k.dut.close_path(c.id, 0)?, true, "path 0 can be closed")?;
    let close = k.expect(Opcode::PathCtl, k.at_once())?;
    k.inject(&reply(&c, 0, said(&close).map_or(0, |s| s.3)))?;
    equal(k.dut.close_path(c.id, 1)?, false, "the last path can be closed")?;
    equal(k.dut.close_path(c.id, 0)?, false, "a closed path can be closed")?;
    equal(k.dut.close_path(c.id, 2)?, false, "a path that is not there can be closed")?;
    equal(of_path(&carry(k, &c, 1, 4)?, 1).len(), 4, "packets on the last path")?;
    k.silence(20 * MS)
}

fn an_answer_to_a_closing_that_was_not_asked_for_changes_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = two_paths(k)?;
    let before = k.snapshot()?;
    k.inject(&reply(&c, 1, 0))?;
    k.silence(k.at_once())?;
    k.refused(&before, &[])?;
    check(!of_path(&carry(k, &c, 1, 4)?, 1).is_empty(), "P-042: the path is gone")
}

fn planes_are_probed_by_the_first_path_that_stays(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|cfg| set_paths(cfg, 4, 2))?;
    equal(k.dut.close_path(c.id, 0)?, true, "path 0 can be closed")?;
    let close = k.expect(Opcode::PathCtl, k.at_once())?;
    k.inject(&reply(&c, 0, said(&close).map_or(0, |s| s.3)))?;
    k.dut.set_link(1, false)?;
    k.collect(RTT)?;
    k.dut.set_link(1, true)?;
    let end = k.dut.now() + 200 * MS;
    let mut paths = Vec::new();
    while let Some(sent) = k.next(end.saturating_sub(k.dut.now()))? {
        if sent.opcode == Opcode::ProbeReq && sent.port == 1 {
            paths.push(sent.pxth.path_id().get());
            k.inject(&c.probe_rsp(&sent))?;
        }
    }
    check(!paths.is_empty() && paths.iter().all(|p| *p == 1), format!("P-044: plane 1 is probed by paths {paths:?}"))?;
    // It is in use again.
    k.post_write(&c, 1, 0, 16 * BURST_BYTES)?;
    let sent = k.collect(k.at_once())?;
    check(sent.iter().any(|s| s.opcode == Opcode::Write && s.port == 1), "P-035: the plane is not in use again")
}
