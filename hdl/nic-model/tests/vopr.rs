//! What seeded fault runs (`nicsim vopr`) found, each in its smallest form.

mod bench;

use bench::{local, nic_config, remote, Bench, Cable, Fate, IOVA, US};
use nic_model::conn_config::ConnConfig;
use nic_model::memory::ByteMemory;
use nic_model::transport::path::PathState;
use nic_model::wire::packet::Body;
use nic_model::wire::parser::{parse, PortFilter};
use nic_model::work::{ConnId, Event, SendOp, SendWr};
use nic_model::ConnState;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use std::cell::Cell;
use std::rc::Rc;

const ANY: PortFilter = PortFilter { mac: None, udp_dport: 4791, frame_bytes_max: 9216, elide_icrc: false };

/// M-043: the first of many reads is lost; those after it fill the responder, whose limit is smaller.
#[test]
fn reads_that_wait_for_one_that_is_missing_leave_room_for_it() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    b.fill(1);
    let [tx, _] = b.connect(0, 4, |side, cfg| cfg.transport.reads_max = [16, 1][side]);
    let mut left = 1;
    b.hook = Some(Box::new(move |_, from, _, frame| match parse(frame, &ANY).map(|p| p.body) {
        Ok(Body::ReadReq(..)) if from == 0 && left > 0 => {
            left -= 1;
            Fate::Drop
        }
        _ => Fate::Pass,
    }));
    for i in 0..8 {
        let read = SendOp::Read { remote: remote(i * 1000) };
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(i, read, local(i * 1000), 1000)).expect("room");
    }
    b.run(20_000 * US);
    let done: Vec<_> = b.completions(0, 0).iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(done, (0..8).map(|i| (i, Status::Ok)).collect::<Vec<_>>());
    assert!(b.mems[0].bytes[..8000] == b.mems[1].bytes[..8000]);
}

/// M-044: a key is taken away when the peer has its answer, but the acknowledgement of it is lost.
#[test]
fn an_answer_that_arrived_is_not_read_again_when_its_memory_is_gone() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    b.fill(1);
    let [tx, rx] = b.connect(0, 4, |_, _| ());
    let mut is_deaf = true;
    b.hook = Some(Box::new(move |now, from, _, frame| match parse(frame, &ANY).map(|p| p.body) {
        // Acknowledgements of the answer are lost for long enough that a timer repeats it.
        Ok(Body::Ack(_) | Body::ProbeRsp(_)) if from == 0 && is_deaf => {
            is_deaf = now.0 < 2_000 * US;
            Fate::Drop
        }
        _ => Fate::Pass,
    }));
    let read = SendOp::Read { remote: remote(0) };
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, read, local(0), 10_000)).expect("room");
    b.run(30 * US);
    assert_eq!(b.completions(0, 0).iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Ok]);
    let asked = b.nics[1].counters().get(Counter::TxProbe);
    b.nics[1].mrs().set(0, None);
    b.mems[1].bytes.clear();
    b.run(50_000 * US);
    assert!(b.nics[1].counters().get(Counter::TxProbe) > asked, "it was to be repeated");
    assert_eq!(b.nics[1].counters().get(Counter::DmaReadError), 0);
    assert_eq!(b.nics[1].conn_state(rx), Some(ConnState::Rts));
    assert_eq!(b.nics[1].paths(rx).map(|p| p.in_flight_pkts()), Some(0));
}

/// M-044: a key is taken away while the answer is under way, and part of it is lost.
#[test]
fn an_answer_whose_memory_is_gone_fails_where_it_would_be_read() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    let [tx, rx] = b.connect(0, 8, |_, cfg| cfg.transport.idle_redundancy = false);
    let mut count = 0;
    b.hook = Some(Box::new(move |_, from, _, frame| match parse(frame, &ANY).map(|p| p.body) {
        Ok(Body::ReadRsp(..)) if from == 1 => {
            count += 1;
            if count == 2 {
                Fate::Drop
            } else {
                Fate::Pass
            }
        }
        _ => Fate::Pass,
    }));
    let read = SendOp::Read { remote: remote(0) };
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, read, local(0), 20_000)).expect("room");
    let is_all_sent = |b: &mut Bench| b.nics[1].paths(rx).is_some_and(|p| p.in_flight_pkts() == 5);
    assert!(b.run_until(100 * US, is_all_sent));
    b.nics[1].mrs().set(0, None);
    b.mems[1].bytes.clear();
    b.run(10_000 * US);
    assert_eq!(b.nics[1].counters().get(Counter::DmaReadError), 0);
    let failed = Event::ConnError { conn: rx, status: Status::LocProt };
    assert!(std::iter::from_fn(|| b.nics[1].poll_event()).any(|e| e == failed));
    assert!(b.completions(0, 0).iter().all(|c| c.status != Status::Ok));
}

/// E-001: a port loses its link while a connection is asked for, whose number at the peer nobody knows yet.
#[test]
fn a_connection_that_is_asked_for_tells_nobody_about_planes() {
    let mut b = Bench::new(1, Cable::default(), 2, 1 << 12);
    let cfg = bench::conn_config(0, 5, 4, 2);
    b.nics[0].connect(b.now, 7, cfg).expect("a free row");
    b.nics[0].set_link(b.now, 1, false);
    b.run(100 * US);
    b.nics[0].set_link(b.now, 1, true);
    b.run(900 * US);
    assert_eq!(b.sent, 2, "a request and its refusal");
}

/// E-017: an attempt is given up before its answer arrives; the granter is told at once and not after a quarter second.
#[test]
fn an_attempt_that_is_given_up_leaves_nothing_behind() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 12);
    let template: ConnConfig = bench::conn_config(1, 0, 0, 1);
    b.nics[1].listen(7, template, 8);
    let tx = b.nics[0].connect(b.now, 7, bench::conn_config(0, 5, 4, 1)).expect("a free row");
    b.run(3 * US);
    b.nics[0].disconnect(b.now, tx);
    b.run(100 * US);
    assert_eq!(b.nics[0].poll_event(), Some(Event::Disconnected { conn: tx }));
    assert!(matches!(b.nics[1].poll_event(), Some(Event::ConnectFailed { .. })));
    b.run(15_000 * US);
    assert_eq!(b.nics[0].conn_state(tx), None);
    // Request, grant, DISC_REQ, DISC_REP and nothing more.
    assert_eq!((b.sent, b.nics.each_ref().map(|nic| nic.next_timer())), (4, [None, None]));
}

fn write_all(b: &mut Bench, conns: [ConnId; 2]) {
    let write = SendOp::Write { remote: remote(0), imm: None };
    b.nics[0].post_send(b.now, conns[0], 1, SendWr::new(1, write, local(0), 400_000)).expect("room");
    b.run(2_000 * US);
    assert_eq!(b.completions(0, 0).iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Ok]);
}

/// P-031: a port has no link when a connection begins, and never gets one. New packets do not wait for its turn.
#[test]
fn a_connection_that_begins_without_one_of_its_links_does_without() {
    let mut b = Bench::new(1, Cable::default(), 2, 1 << 20);
    b.cut[1] = true;
    (0..2).for_each(|side| b.nics[side].set_link(b.now, 1, false));
    let conns = b.connect(0, 8, |_, _| ());
    write_all(&mut b, conns);

    let mut b = Bench::new(1, Cable::default(), 2, 1 << 20);
    b.cut[1] = true;
    (0..2).for_each(|side| b.nics[side].set_link(b.now, 1, false));
    b.nics[1].listen(7, bench::conn_config(1, 0, 0, 2), 8);
    let tx = b.nics[0].connect(b.now, 7, bench::conn_config(0, 5, 8, 2)).expect("a free row");
    b.run(100 * US);
    write_all(&mut b, [tx, tx]);
}

/// P-036: both links of one card go, one after the other, and only the first comes back.
#[test]
fn paths_that_a_second_failure_stranded_come_along_when_the_first_is_over() {
    let mut b = Bench::new(1, Cable::default(), 2, 1 << 20);
    let conns = b.connect(0, 8, |_, _| ());
    for (plane, is_up) in [(0, false), (1, false), (0, true)] {
        b.cut[plane] = !is_up;
        b.nics[0].set_link(b.now, plane as u8, is_up);
        b.run(50 * US);
    }
    write_all(&mut b, conns);
}

/// Loses links at every moment of a transfer with much loss; what waits at their ports must leave by others.
fn links_lost_at_any_moment(lost: &[(usize, usize, bool)]) {
    for at_us in 2..100 {
        // So slow that something waits at the ports most of the time.
        let cable = Cable { rate_mbps: 20_000, loss_ppm: 300_000, ..Cable::default() };
        let mut b = Bench::new(at_us, cable, 2, 1 << 20);
        let [tx, _] = b.connect(0, 8, |_, cfg| cfg.transport.idle_redundancy = false);
        let write = SendOp::Write { remote: remote(0), imm: None };
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, write, local(0), 400_000)).expect("room");
        b.run(at_us * US);
        for (side, plane, is_up) in lost {
            b.cut[*plane] = !is_up;
            b.nics[*side].set_link(b.now, *plane as u8, *is_up);
            b.run(10 * US);
        }
        b.cable.loss_ppm = 0;
        b.run(100_000 * US);
        let done: Vec<_> = b.completions(0, 0).iter().map(|c| c.status).collect();
        assert_eq!(done, [Status::Ok], "at {at_us} us");
    }
}

/// P-031: retransmissions that wait at a port leave by another when its link is lost.
#[test]
fn retransmissions_do_not_wait_for_a_link_that_is_lost() {
    links_lost_at_any_moment(&[(0, 1, false)]);
}

/// P-037: the same of acknowledgements, when no port has a link for a while.
#[test]
fn acknowledgements_leave_by_the_first_link_that_comes_back() {
    links_lost_at_any_moment(&[(1, 0, false), (1, 1, false), (1, 1, true)]);
}

/// P-040: the peer opens fewer paths than are asked for. Those it does not open are never used, and others stay in use.
#[test]
fn paths_that_the_peer_does_not_open_are_not_used_nor_counted_on() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    let [tx, _] = b.connect(0, 4, |side, cfg| {
        cfg.transport.bootstrap = side == 0;
        (cfg.transport.paths_min, cfg.transport.paths_max) = ([1, 1][side], [64, 6][side]);
    });
    let write = SendOp::Write { remote: remote(0), imm: None };
    // Now and then the round trip is so long that dozens of paths are wanted, then so short that one is enough.
    for round in 0..40 {
        b.cable.delay_ps = [1_000 * US, US][round % 2];
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, write, local(0), 100_000)).expect("room");
        b.run(20_000 * US);
        if round == 20 {
            b.nics[0].deny_path(b.now, tx, 20, true);
            b.nics[0].deny_path(b.now, tx, 20, false);
        }
        assert_eq!(b.completions(0, 0).len(), 1, "round {round}");
        let unopened = b.nics[0].paths(tx).into_iter().flat_map(|paths| paths.iter().skip(6));
        assert!(unopened.into_iter().all(|p| p.state == PathState::Unused), "round {round}");
    }
}

/// the side that answers fails over a key that was taken away, while the side that asked only waits.
#[test]
fn a_requester_that_waits_for_an_answer_learns_that_its_peer_failed() {
    let mut b = Bench::new(1, Cable::default(), 1, 4 << 20);
    b.fill(1);
    let [tx, rx] = b.connect(0, 4, |_, _| ());
    let read = SendOp::Read { remote: remote(0) };
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, read, local(0), 2 << 20)).expect("room");
    let write = SendOp::Write { remote: remote(0), imm: None };
    let fenced = SendWr { fence: true, ..SendWr::new(2, write, local(0), 8) };
    b.nics[0].post_send(b.now, tx, 1, fenced).expect("room");
    b.run(20 * US);
    b.nics[1].mrs().set(0, None);
    b.run(1_000 * US);
    assert_eq!(b.nics[1].conn_state(rx), Some(ConnState::Error), "it cannot answer");
    assert_eq!((b.nics[0].conn_state(tx), b.completions(0, 0).len()), (Some(ConnState::Rts), 0), "nothing is heard");
    b.run(100_000 * US);
    let done: Vec<_> = b.completions(0, 0).iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(done, [(1, Status::RetryExc), (2, Status::WrFlush)]);
}

/// P-035: nothing was ever sent, so nobody knows that answers take longer than the time between two probes.
#[test]
fn a_plane_comes_back_over_a_way_whose_round_trip_is_not_known() {
    for interval_us in [500, 10_000] {
        let cable = Cable { delay_ps: 2_000 * US, ..Cable::default() };
        let mut b = Bench::new(1, cable, 2, 1 << 20);
        let [conn, _] = b.connect(0, 8, |_, cfg| cfg.transport.probe_interval_ps = interval_us * US);
        for is_up in [false, true] {
            b.cut[1] = !is_up;
            b.nics[0].set_link(b.now, 1, is_up);
            b.run(1_000 * US);
        }
        b.run(200_000 * US);
        let events = std::iter::from_fn(|| b.nics[0].poll_event());
        let planes: Vec<_> = events.filter(|e| matches!(e, Event::Plane { .. })).collect();
        let [lost, found] = [false, true].map(|is_up| Event::Plane { conn, plane: 1, is_up });
        assert_eq!(planes, [lost, found], "probes each {interval_us} us");
    }
}

/// P-033: a plane that the peer reported down was the only one with a link for a while; it is left when there is another.
#[test]
fn paths_leave_a_plane_that_the_peer_reported_down_as_soon_as_they_can() {
    let mut b = Bench::new(1, Cable::default(), 2, 1 << 12);
    let [tx, _] = b.connect(0, 4, |_, _| ());
    let on = |b: &Bench, plane: u8| b.nics[0].paths(tx).map_or(0, |p| p.iter().filter(|p| p.plane == plane).count());
    b.cut[0] = true;
    b.nics[1].set_link(b.now, 0, false);
    b.run(100 * US);
    assert_eq!(on(&b, 1), 4, "the report was obeyed");
    b.nics[0].set_link(b.now, 1, false);
    b.run(100 * US);
    assert_eq!(on(&b, 0), 4, "nowhere else to go");
    b.nics[0].set_link(b.now, 1, true);
    b.run(60_000 * US);
    assert_eq!(on(&b, 1), 4, "plane 1 is well again, of plane 0 the peer said that it is not");
}

/// P-043, P-044: all paths but those that were rested are closed or switched off.
#[test]
fn a_rested_path_comes_back_when_the_others_are_closed_or_denied() {
    for is_closed in [true, false] {
        let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
        let [tx, _] = b.connect(0, 4, |side, cfg| {
            cfg.transport.bootstrap = side == 0;
            cfg.transport.paths_min = 2;
        });
        for i in 0..200 {
            let write = SendOp::Write { remote: remote(0), imm: None };
            b.nics[0].post_send(b.now, tx, 1, SendWr::new(i, write, local(0), 1000)).expect("room");
            b.run(10 * US);
        }
        let states: Vec<_> = b.nics[0].paths(tx).expect("a connection").iter().map(|p| p.state).collect();
        let in_use: Vec<u8> = (0..4).filter(|path| states[usize::from(*path)] != PathState::Unused).collect();
        assert_eq!(in_use.len(), 2, "two were to be rested: {states:?}");
        for path in in_use {
            let is_done = match is_closed {
                true => b.nics[0].close_path(b.now, tx, path),
                false => b.nics[0].deny_path(b.now, tx, path, true),
            };
            assert!(is_done, "path {path}");
        }
        b.completions(0, 0);
        let write = SendOp::Write { remote: remote(0), imm: None };
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(7, write, local(0), 100_000)).expect("room");
        b.run(1_000 * US);
        let done: Vec<_> = b.completions(0, 0).iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(done, [(7, Status::Ok)], "closed: {is_closed}");
    }
}

/// M-043: the answer that holds the room for reads never comes, and nothing else arrives.
#[test]
fn room_for_reads_comes_back_by_the_clock_when_nothing_arrives() {
    let (cable, bytes) = (Cable::default(), 8 << 20);
    let configs = [0, 1].map(|side| {
        let mut cfg = nic_config(side, 1, &cable);
        // Room for one read.
        cfg.read_horizon_ps = 2 * US;
        cfg
    });
    let memory = || ByteMemory::new(IOVA, bytes);
    let mut b = Bench::with_configs(1, cable, bytes as u64, [memory(), memory()], configs);
    let [dead, _] = b.connect(0, 4, |_, _| ());
    let [alive, _] = b.connect(1, 4, |_, _| ());
    let is_asked = Rc::new(Cell::new(false));
    let (mut lost, is_sent) = (None, is_asked.clone());
    b.hook = Some(Box::new(move |_, from, _, frame| match parse(frame, &ANY) {
        // All that the first connection sends, and what the peer says before it was asked.
        Ok(p) if from == 0 && p.dest == *lost.get_or_insert(p.dest) => Fate::Drop,
        Ok(p) if from == 0 && matches!(p.body, Body::ReadReq(..)) => {
            is_sent.set(true);
            Fate::Pass
        }
        _ if from == 1 && !is_sent.get() => Fate::Drop,
        _ => Fate::Pass,
    }));
    for (conn, wr_id) in [(dead, 1), (alive, 99)] {
        let read = SendOp::Read { remote: remote(0) };
        b.nics[0].post_send(b.now, conn, 1, SendWr::new(wr_id, read, local(0), 4 << 20)).expect("room");
        b.run(US);
    }
    b.run(10 * US);
    assert!(!is_asked.get(), "the last read has to wait");
    b.run(2_000 * US);
    assert!(is_asked.get(), "it was never sent");
    assert!(b.completions(0, 0).iter().any(|c| (c.wr_id, c.status) == (99, Status::Ok)));
}

/// P-022, P-024: what a path sent before it was switched off finds no route for long.
#[test]
fn a_path_that_is_off_stays_off_whatever_becomes_of_what_it_sent() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    let [tx, _] = b.connect(0, 2, |_, _| ());
    let is_cut = Rc::new(Cell::new(true));
    let cut = is_cut.clone();
    b.hook = Some(Box::new(move |_, from, _, frame| match parse(frame, &ANY) {
        Ok(p) if from == 0 && p.path == 0 && cut.get() => Fate::Drop,
        _ => Fate::Pass,
    }));
    let write = SendOp::Write { remote: remote(0), imm: None };
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, write, local(0), 100_000)).expect("room");
    b.run(3 * US);
    assert!(b.nics[0].deny_path(b.now, tx, 0, true));
    b.run(100_000 * US);
    let path = |b: &Bench| {
        let path = b.nics[0].paths(tx).and_then(|paths| paths.iter().next()).expect("a path");
        (path.state, path.stats.reaim_count, path.new_pkts)
    };
    let (state, reaim_count, new_pkts) = path(&b);
    assert_eq!(state, PathState::Denied);
    assert!(reaim_count > 3, "it was to try every route");
    is_cut.set(false);
    b.run(100_000 * US);
    assert_eq!(b.completions(0, 0).iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Ok]);
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(2, write, local(0), 100_000)).expect("room");
    b.run(1_000 * US);
    assert_eq!(b.completions(0, 0).iter().map(|c| c.status).collect::<Vec<_>>(), [Status::Ok]);
    assert_eq!((path(&b).0, path(&b).2), (PathState::Denied, new_pkts));
}
