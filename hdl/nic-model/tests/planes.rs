//! Several planes: even load, failure by link and in the network, reports, return; re-aim of single paths; path count.

mod bench;

use bench::{local, remote, Bench, Cable, Fate, US};
use nic_model::memory::VirtualMemory;
use nic_model::time::Time;
use nic_model::transport::path::PathState;
use nic_model::wire::packet::Body;
use nic_model::wire::parser::{parse, PortFilter};
use nic_model::work::{ConnId, Event, SendOp, SendWr};
use nic_model::ConnState;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;

const ANY: PortFilter = PortFilter { mac: None, udp_dport: 4791, frame_bytes_max: 9216, elide_icrc: false };
const GIB: u64 = 1 << 30;

type Virtual = Bench<VirtualMemory>;

fn bench(planes: usize, paths: usize, cable: Cable) -> (Virtual, [ConnId; 2]) {
    let mut b = Bench::with_memory(7, cable, planes, GIB, [VirtualMemory::default(); 2]);
    let conns = b.connect(0, paths, |_, _| ());
    (b, conns)
}

fn stream(b: &mut Virtual, conn: ConnId, mib: u32) {
    let op = SendOp::Write { remote: remote(0), imm: None };
    b.nics[0].post_send(b.now, conn, 1, SendWr::new(0, op, local(0), mib << 20)).expect("room");
}

/// Payload that arrives at side 1 within `span_ps`, as Mb/s.
fn goodput_mbps(b: &mut Virtual, span_ps: u64) -> u64 {
    let before = b.mems[1].written_bytes;
    b.run(span_ps);
    (b.mems[1].written_bytes - before) * 8_000_000 / span_ps
}

fn planes_in_use(b: &Virtual, conn: ConnId) -> Vec<u8> {
    let mut planes: Vec<u8> = b.nics[0].paths(conn).expect("open").iter().map(|p| p.plane).collect();
    planes.sort_unstable();
    planes.dedup();
    planes
}

const CABLE: Cable = Cable {
    rate_mbps: 100_000,
    delay_ps: 4 * US,
    loss_ppm: 0,
    duplicate_ppm: 0,
    reorder_ppm: 0,
    reorder_ps: 0,
    damage_ppm: 0,
};

#[test]
fn goodput_grows_with_the_planes() {
    for planes in [1, 2, 4, 8] {
        let (mut b, [tx, _]) = bench(planes, 16, CABLE);
        stream(&mut b, tx, 256);
        b.run(300 * US);
        let mbps = goodput_mbps(&mut b, 300 * US);
        // 97.3 % of each line is payload.
        assert!(mbps > 97_300 * planes as u64 * 97 / 100, "{planes} planes: {mbps} Mb/s");
    }
}

#[test]
fn small_messages_are_spread_over_the_planes() {
    let (mut b, [tx, _]) = bench(4, 8, CABLE);
    let counts = std::rc::Rc::new(std::cell::RefCell::new([0u32; 4]));
    let seen = counts.clone();
    b.hook = Some(Box::new(move |_, side, plane, frame| {
        let is_data = parse(frame, &ANY).is_ok_and(|p| matches!(p.body, Body::Write(..)) && !p.rtx);
        seen.borrow_mut()[usize::from(plane)] += u32::from(side == 0 && is_data);
        Fate::Pass
    }));
    for i in 0..400 {
        let op = SendOp::Write { remote: remote(0), imm: None };
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(i, op, local(0), 64)).expect("room");
        b.run(20 * US);
    }
    assert!(counts.borrow().iter().all(|c| (90..=110).contains(c)), "{:?}", counts.borrow());
}

#[test]
fn a_plane_that_dies_in_the_network_is_left_within_a_millisecond_and_comes_back() {
    let (mut b, [tx, _]) = bench(4, 12, CABLE);
    stream(&mut b, tx, 1000);
    b.run(300 * US);
    let full = goodput_mbps(&mut b, 200 * US);
    b.cut[2] = true;
    b.run(1000 * US);
    assert_eq!(planes_in_use(&b, tx), [0, 1, 3], "detected");
    assert_eq!(b.nics[0].counters().get(Counter::PlaneDown), 1);
    b.run(1000 * US);
    let degraded = goodput_mbps(&mut b, 300 * US);
    assert!(degraded * 100 > full * 75 * 97 / 100, "{degraded} of {full}");
    b.cut[2] = false;
    let back = b.run_until(50_000 * US, |b| planes_in_use(b, tx).len() == 4);
    assert!(back);
    b.run(500 * US);
    let mbps = goodput_mbps(&mut b, 200 * US);
    assert!(mbps * 100 > full * 97, "{mbps} of {full}");
    let events: Vec<_> = std::iter::from_fn(|| b.nics[0].poll_event())
        .filter_map(|e| match e {
            Event::Plane { plane, is_up, .. } => Some((plane, is_up)),
            _ => None,
        })
        .collect();
    assert_eq!(events, [(2, false), (2, true)]);
    assert_eq!(b.nics[0].conn_state(tx), Some(ConnState::Rts));
}

#[test]
fn a_lost_link_is_left_at_once_and_the_peer_leaves_it_too() {
    let (mut b, conns) = bench(2, 4, CABLE);
    stream(&mut b, conns[0], 100);
    let op = SendOp::Write { remote: remote(0), imm: None };
    b.nics[1].post_send(b.now, conns[1], 1, SendWr::new(0, op, local(0), 100 << 20)).expect("room");
    b.run(200 * US);
    b.cut[1] = true;
    b.nics[0].set_link(b.now, 1, false);
    assert_eq!(planes_in_use(&b, conns[0]), [0]);
    b.run(20 * US);
    assert!(b.nics[1].paths(conns[1]).expect("open").iter().all(|p| p.plane == 0), "told by PORT_STATUS");
    assert_eq!(b.nics[1].counters().get(Counter::PathRto), 0);
    b.run(500 * US);
    assert!(goodput_mbps(&mut b, 200 * US) > 92_000);
    b.cut[1] = false;
    b.nics[0].set_link(b.now, 1, true);
    b.run(20_000 * US);
    assert_eq!(planes_in_use(&b, conns[0]), [0, 1]);
    assert!(b.nics[1].paths(conns[1]).expect("open").iter().any(|p| p.plane == 1));
}

#[test]
fn lost_reports_do_not_keep_a_plane_down() {
    let (mut b, conns) = bench(2, 4, CABLE);
    // Side 1 hears that plane 1 is down and never that it is up.
    let mut reports = 0;
    b.hook = Some(Box::new(move |_, side, _, frame| {
        let is_report = parse(frame, &ANY).is_ok_and(|p| matches!(p.body, Body::PortStatus { .. }));
        reports += u32::from(is_report && side == 0);
        if is_report && side == 0 && reports > 1 {
            Fate::Drop
        } else {
            Fate::Pass
        }
    }));
    b.run(10 * US);
    b.nics[0].set_link(b.now, 1, false);
    b.run(100 * US);
    assert!(b.nics[1].paths(conns[1]).expect("open").iter().all(|p| p.plane == 0));
    b.nics[0].set_link(b.now, 1, true);
    b.run(100_000 * US);
    assert!(b.nics[1].paths(conns[1]).expect("open").iter().any(|p| p.plane == 1), "found by probes");
}

#[test]
fn one_dead_route_is_left_by_another_source_port_and_the_rest_go_on() {
    let (mut b, [tx, _]) = bench(1, 12, CABLE);
    let dead = b.nics[0].paths(tx).and_then(|p| p.get(5)).expect("path 5").sport;
    b.hook = Some(Box::new(move |_, side, _, frame| match parse(frame, &ANY) {
        Ok(p) if side == 0 && p.net.sport == dead => Fate::Drop,
        _ => Fate::Pass,
    }));
    stream(&mut b, tx, 64);
    assert!(b.run_until(8_000 * US, |b| b.nics[0].poll_completion(0).is_some()));
    let paths = b.nics[0].paths(tx).expect("open");
    let moved = paths.get(5).expect("path 5");
    assert!(moved.sport != dead && moved.epoch > 0 && moved.state == PathState::Active, "{moved:?}");
    assert!(paths.iter().enumerate().all(|(i, p)| i == 5 || p.epoch == 0));
}

#[test]
fn a_route_that_only_fails_backwards_is_left_too() {
    let (mut b, [tx, _]) = bench(1, 4, CABLE);
    // Acknowledgements of path 2 by their first source port vanish.
    let dead = bench::conn_config(1, 0, 4, 1).rx_paths[2].sport;
    b.hook = Some(Box::new(move |_, side, _, frame| match parse(frame, &ANY) {
        Ok(p) if side == 1 && p.net.sport == dead => Fate::Drop,
        _ => Fate::Pass,
    }));
    stream(&mut b, tx, 16);
    assert!(b.run_until(10_000 * US, |b| b.nics[0].poll_completion(0).is_some()));
}

#[test]
fn a_connection_lives_while_one_plane_does() {
    let (mut b, [tx, _]) = bench(4, 8, CABLE);
    stream(&mut b, tx, 200);
    for plane in [0, 3, 1] {
        b.run(300 * US);
        b.cut[plane] = true;
    }
    b.run(2_000 * US);
    assert_eq!(b.nics[0].conn_state(tx), Some(ConnState::Rts));
    assert_eq!(planes_in_use(&b, tx), [2]);
    let mbps = goodput_mbps(&mut b, 300 * US);
    assert!(mbps > 92_000, "{mbps} Mb/s");
    assert!(b.run_until(50_000 * US, |b| b.nics[0].poll_completion(0).is_some()));
}

#[test]
fn a_connection_without_any_plane_fails_after_all_retries() {
    let (mut b, [tx, _]) = bench(2, 4, CABLE);
    stream(&mut b, tx, 200);
    b.run(300 * US);
    b.cut = vec![true, true];
    b.run(10_000 * US);
    assert_eq!(b.nics[0].conn_state(tx), Some(ConnState::Rts), "not at once");
    b.run(2_000_000 * US);
    assert_eq!(b.nics[0].conn_state(tx), Some(ConnState::Error));
    assert_eq!(b.nics[0].poll_completion(0).map(|c| c.status), Some(Status::RetryExc));
}

#[test]
fn a_long_round_trip_opens_more_paths_and_fills_the_line() {
    let cable = Cable { rate_mbps: 100_000, delay_ps: 500 * US, ..CABLE };
    for loss_ppm in [0, 10_000] {
        let mut b = Bench::with_memory(7, Cable { loss_ppm, ..cable }, 1, GIB, [VirtualMemory::default(); 2]);
        let [tx, _] = b.connect(0, 12, |_, c| c.transport.bootstrap = true);
        stream(&mut b, tx, 1000);
        b.run(40_000 * US);
        let paths = b.nics[0].paths(tx).expect("open");
        let open = paths.iter().filter(|p| p.state != PathState::Unused).count();
        assert!((24..=26).contains(&open), "{open} paths");
        let mbps = goodput_mbps(&mut b, 5_000 * US);
        let want = if loss_ppm == 0 { 95 } else { 85 };
        assert!(mbps > 97_300 * want / 100, "{mbps} Mb/s at {loss_ppm} ppm");
    }
}

#[test]
fn a_path_that_the_peer_has_not_opened_takes_nothing() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    let [tx, _] = b.connect(0, 2, |side, c| {
        if side == 1 {
            c.rx_paths.truncate(1);
        }
    });
    let op = SendOp::Write { remote: remote(0), imm: None };
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(0, op, local(0), 8192)).expect("room");
    b.run(500 * US);
    assert!(b.nics[1].counters().get(Counter::RxUnknownPath) > 0);
    assert_eq!((b.nics[0].poll_completion(0), b.now > Time(0)), (None, true));
}

#[test]
fn a_denied_path_takes_nothing_new_and_recovers_what_it_holds() {
    let (mut b, [tx, _]) = bench(1, 3, CABLE);
    stream(&mut b, tx, 64);
    b.run(100 * US);
    assert!(b.nics[0].deny_path(b.now, tx, 1, true) && !b.nics[0].deny_path(b.now, tx, 9, true));
    b.run(100 * US);
    let sent = |b: &Virtual| b.nics[0].paths(tx).and_then(|p| p.get(1)).map(|p| (p.new_pkts, p.state));
    let before = sent(&b);
    assert_eq!(b.nics[0].paths(tx).and_then(|p| p.get(1)).map(|p| p.window.in_flight_pkts()), Some(0));
    b.run(100 * US);
    assert_eq!((sent(&b), before.map(|s| s.1)), (before, Some(PathState::Denied)));
    b.nics[0].deny_path(b.now, tx, 1, false);
    b.run(100 * US);
    let after = sent(&b).expect("open");
    assert!(Some(after.0) > before.map(|s| s.0) && after.1 == PathState::Active);
}
