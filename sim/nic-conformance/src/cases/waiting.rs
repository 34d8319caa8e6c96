//! Waiting for the peer with nothing outstanding: it is probed after a silence, and given up when it answers no probe.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Nanos};
use crate::failure::{check, equal, Outcome};
use crate::kit::{remote, set_paths, Kit, Sent, MS, RTT};
use crate::setup::{ConnConfig, SendOp, SendWr, NS_PS};
use nic_spec::consts::ANSWER_WAIT_NS;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::Rsn;
use nic_spec::wire::{AtomicOp, Opcode};

cases! { "waiting":
    "R-030" + "M-040" [Caps::READ.and(Caps::PROBE)] a_peer_that_owes_an_answer_is_probed_after_a_silence;
    "R-030" + "M-050" [Caps::ATOMIC.and(Caps::PROBE)] a_peer_that_owes_the_result_of_an_operation_is_probed_after_a_silence;
    "R-030" [Caps::READ.and(Caps::PROBE)] a_peer_that_answers_its_probes_is_waited_for_without_end;
    "R-030" [Caps::READ.and(Caps::PROBE)] a_peer_whose_answer_flows_is_not_probed;
    "R-030" + "R-021" [Caps::READ.and(Caps::PROBE)] a_peer_that_owes_nothing_is_not_probed;
    "R-030" [Caps::READ.and(Caps::PROBE).and(Caps::RTT)] a_long_round_trip_makes_the_silence_longer;
    "R-031" + "E-002" [Caps::READ.and(Caps::PROBE)] a_peer_that_answers_no_probe_is_given_up_and_the_rest_flushed;
    "R-031" [Caps::READ.and(Caps::PROBE)] the_probes_take_the_paths_in_turn;
    "R-031" + "P-020" [Caps::READ.and(Caps::PROBE).and(Caps::RE_AIM)] the_third_probe_in_a_row_takes_another_route;
    "R-031" + "P-036" [Caps::READ.and(Caps::PROBE).and(Caps::RE_AIM).and(Caps::TWO_PORTS)] a_peer_is_not_given_up_while_a_plane_was_not_tried;
    "R-030" [Caps::READ.and(Caps::PROBE).and(Caps::RTT)] a_round_trip_that_was_never_measured_may_be_long;
    "R-031" + "M-034" [Caps::CREDIT.and(Caps::SEND).and(Caps::PROBE)] a_peer_that_grants_no_credit_and_answers_no_probe_is_given_up;
    "R-030" + "M-034" [Caps::CREDIT.and(Caps::SEND).and(Caps::PROBE)] a_peer_that_grants_no_credit_and_answers_probes_is_waited_for;
}

/// The silence after which the peer is probed.
const WAIT: Nanos = ANSWER_WAIT_NS as Nanos;

fn read(k: &Kit<'_>, wr_id: u64, len: u32) -> SendWr {
    SendWr::new(wr_id, SendOp::Read { remote: remote(0) }, k.local(0), len)
}

/// A connection with a read of `len` bytes that the peer acknowledged and owes; the number of the read.
fn owed(k: &mut Kit<'_>, len: u32, change: impl FnOnce(&mut ConnConfig)) -> Outcome<(Conn, u16)> {
    let c = k.warm(change)?;
    k.post(&c, read(k, 1, len))?;
    let request = k.expect(Opcode::ReadReq, k.at_once())?;
    k.inject(&c.ack(&request))?;
    Ok((c, request.rrth().map_or(0, |h| h.read_id())))
}

/// The next packet, which is a probe this long after now.
fn probe_after(k: &mut Kit<'_>, wait: Nanos) -> Outcome<Sent> {
    let from = k.dut.now();
    let probe = k.expect(Opcode::ProbeReq, wait + k.at_once())?;
    check(probe.at >= from + wait, format!("R-030: a probe after {} ns, want {wait}", probe.at - from))?;
    Ok(probe)
}

fn a_peer_that_owes_an_answer_is_probed_after_a_silence(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = owed(k, 8, |_| ())?;
    let before = k.snapshot()?;
    let probe = probe_after(k, WAIT)?;
    equal(probe.pbth().map(|h| h.snd_nxt().get()), Some(2), "snd_nxt")?;
    equal(k.counted(&before, Counter::TxProbe)?, 1, "tx_probe_count")?;
    k.inject(&c.probe_rsp(&probe))?;
    k.inject(&c.read_rsp(0, id, 0, 8, b"answered"))?;
    k.ack()?;
    k.completes(&[(1, Status::Ok)])?;
    k.silence(3 * WAIT)
}

fn a_peer_that_owes_the_result_of_an_operation_is_probed_after_a_silence(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.post(&c, SendWr::new(1, SendOp::FetchAdd { remote: remote(0), add: 1 }, k.local(0), 8))?;
    let request = k.expect(Opcode::AtomicReq, k.at_once())?;
    k.inject(&c.ack(&request))?;
    let probe = probe_after(k, WAIT)?;
    k.inject(&c.probe_rsp(&probe))?;
    let id = request.atag().map_or(0, |h| h.atomic_id());
    k.inject(&c.atomic_rsp(0, id, AtomicOp::FetchAdd, 5))?;
    k.ack()?;
    k.completes(&[(1, Status::Ok)])?;
    k.silence(3 * WAIT)
}

fn a_peer_that_answers_its_probes_is_waited_for_without_end(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = owed(k, 8, |cfg| cfg.transport.retry_limit = 2)?;
    for _ in 0..12 {
        // Of three probes in a row one is answered.
        for is_answered in [false, false, true] {
            let probe = probe_after(k, WAIT)?;
            if is_answered {
                k.inject(&c.probe_rsp(&probe))?;
            }
        }
    }
    k.completes_nothing()?;
    k.inject(&c.read_rsp(0, id, 0, 8, b"answered"))?;
    k.ack()?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn a_peer_whose_answer_flows_is_not_probed(k: &mut Kit<'_>) -> Outcome {
    let (c, id) = owed(k, 40, |_| ())?;
    for n in 0..5 {
        k.silence(WAIT - MS)?;
        k.inject(&c.read_rsp(n, id, n * 8, 40, b"8 bytes."))?;
        let sent = k.collect(k.at_once() + 50_000)?;
        check(sent.iter().all(|s| s.opcode == Opcode::Ack), "R-030: a probe while the answer flows")?;
    }
    k.completes(&[(1, Status::Ok)])?;
    k.silence(3 * WAIT)
}

fn a_peer_that_owes_nothing_is_not_probed(k: &mut Kit<'_>) -> Outcome {
    let c = k.warm(|_| ())?;
    k.post_recv(&c, 9, 0, 64)?;
    k.collect(k.at_once())?;
    k.silence(10 * WAIT)
}

fn a_long_round_trip_makes_the_silence_longer(k: &mut Kit<'_>) -> Outcome {
    let rtt = 8 * MS;
    let c = k.open(|cfg| (cfg.transport.rto_init_ps, cfg.transport.rto_min_ps) = (WAIT * NS_PS, WAIT * NS_PS))?;
    k.post(&c, read(k, 1, 8))?;
    let request = k.expect(Opcode::ReadReq, k.at_once())?;
    k.silence(rtt)?;
    k.inject(&c.ack(&request))?;
    // The card knows the round trip but for the time that the request took to leave.
    let probe = k.expect(Opcode::ProbeReq, 5 * rtt)?;
    let silence = probe.at - request.at - rtt;
    check(silence + 2 * k.at_once() > 4 * rtt, format!("R-030: a probe after {silence} ns"))
}

fn a_peer_that_answers_no_probe_is_given_up_and_the_rest_flushed(k: &mut Kit<'_>) -> Outcome {
    let (c, _) = owed(k, 8, |cfg| cfg.transport.retry_limit = 2)?;
    let fence = SendWr { fence: true, ..SendWr::new(2, SendOp::Write { remote: remote(0), imm: None }, k.local(0), 8) };
    k.post(&c, fence)?;
    k.post_recv(&c, 3, 0, 64)?;
    k.collect(k.at_once())?;
    for n in 0..3 {
        k.expect(Opcode::ProbeReq, WAIT + k.at_once())?;
        check(n == 2 || k.completions_of(0, 0)?.is_empty(), "R-031: given up early")?;
    }
    k.silence(WAIT + k.at_once())?;
    k.completes(&[(1, Status::RetryExc), (2, Status::WrFlush), (3, Status::WrFlush)])?;
    k.silence(3 * WAIT)
}

fn the_probes_take_the_paths_in_turn(k: &mut Kit<'_>) -> Outcome {
    let (c, _) = owed(k, 8, |cfg| set_paths(cfg, 3, 1))?;
    let mut paths = Vec::new();
    for _ in 0..6 {
        let probe = probe_after(k, WAIT)?;
        paths.push(probe.pxth.path_id().get());
        k.inject(&c.probe_rsp(&probe))?;
    }
    let mut first: Vec<u8> = paths[..3].to_vec();
    first.sort_unstable();
    equal(first, vec![0, 1, 2], "paths of the first three probes")?;
    equal(&paths[..3], &paths[3..], "the turn of the paths")
}

fn the_third_probe_in_a_row_takes_another_route(k: &mut Kit<'_>) -> Outcome {
    let (c, _) = owed(k, 8, |_| ())?;
    let mut routes = Vec::new();
    for _ in 0..4 {
        let probe = probe_after(k, WAIT)?;
        routes.push((probe.sport, probe.pxth.epoch().get()));
    }
    equal(routes[0], (c.cfg.tx_paths[0].sport, 0), "route of the first probe")?;
    equal(routes[1], routes[0], "route of the second probe")?;
    equal((routes[2].1, routes[3].1), (1, 2), "epochs of the third and the fourth")?;
    check(routes[2].0 != routes[1].0 && routes[3].0 != routes[2].0, "R-031: the same source port again")?;
    // An answer by the new route ends the search.
    let probe = probe_after(k, WAIT)?;
    k.inject(&c.probe_rsp(&probe))?;
    let next = probe_after(k, WAIT)?;
    equal((next.sport, next.pxth.epoch()), (probe.sport, probe.pxth.epoch()), "route after an answer")
}

fn a_peer_is_not_given_up_while_a_plane_was_not_tried(k: &mut Kit<'_>) -> Outcome {
    // All paths begin on plane 0, which from now on swallows what it gets.
    let (c, id) = owed(k, 8, |cfg| {
        set_paths(cfg, 12, 1);
        cfg.transport.retry_limit = 2;
    })?;
    let probe = loop {
        let probe = probe_after(k, WAIT)?;
        if probe.port == 1 {
            break probe;
        }
    };
    k.inject(&c.probe_rsp(&probe))?;
    k.silence(WAIT - MS)?;
    k.inject(&c.read_rsp(0, id, 0, 8, b"answered"))?;
    k.ack()?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn a_round_trip_that_was_never_measured_may_be_long(k: &mut Kit<'_>) -> Outcome {
    let rto = 20 * MS;
    let c = k.open(|cfg| cfg.transport.rto_init_ps = rto * NS_PS)?;
    k.post(&c, read(k, 1, 8))?;
    let request = k.expect(Opcode::ReadReq, k.at_once())?;
    // The receiver cannot say how long it held this back, so nothing is learnt of the round trip.
    k.inject(&c.ack(&request).hold(u16::MAX))?;
    probe_after(k, 4 * rto).map(|_| ())
}

/// A warm connection without credit that has a SEND to send, and asks for credit seldom.
fn without_credit(k: &mut Kit<'_>, retry_limit: u8) -> Outcome<Conn> {
    let c = k.warm(|cfg| {
        cfg.streams[0].peer_limit = Some(Rsn::new(0));
        cfg.transport.rnr_ps = 4 * MS * NS_PS;
        cfg.transport.retry_limit = retry_limit;
    })?;
    k.post(&c, SendWr::new(1, SendOp::Send { imm: None, inv: None, tag: None }, k.local(0), 8))?;
    Ok(c)
}

fn a_peer_that_grants_no_credit_and_answers_no_probe_is_given_up(k: &mut Kit<'_>) -> Outcome {
    without_credit(k, 2)?;
    let sent = k.collect(4 * WAIT - MS)?;
    check(sent.iter().all(|s| s.opcode == Opcode::ProbeReq), "M-034: something else than probes")?;
    k.completes_nothing()?;
    k.collect(MS + k.at_once())?;
    k.completes(&[(1, Status::RetryExc)])?;
    k.silence(3 * WAIT)
}

fn a_peer_that_grants_no_credit_and_answers_probes_is_waited_for(k: &mut Kit<'_>) -> Outcome {
    let c = without_credit(k, 0)?;
    let end = k.dut.now() + 10 * WAIT;
    while k.dut.now() < end {
        let probe = k.expect(Opcode::ProbeReq, 4 * MS + k.at_once())?;
        k.advance(RTT)?;
        k.inject(&c.probe_rsp(&probe))?;
    }
    k.completes_nothing()?;
    let probe = k.expect(Opcode::ProbeReq, 4 * MS + k.at_once())?;
    k.inject(&c.probe_rsp(&probe).credit(1, 1))?;
    let data = k.expect(Opcode::Send, k.at_once())?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}
