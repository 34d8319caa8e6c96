//! Tail markers, idle-time redundancy, adaptive tolerance of reordering, hints, and the loss of every packet position.

mod bench;

use bench::{local, remote, Bench, Cable, Fate, US};
use nic_model::memory::VirtualMemory;
use nic_model::time::Time;
use nic_model::transport::path::PathState;
use nic_model::wire::packet::Body;
use nic_model::wire::parser::{parse, PortFilter};
use nic_model::work::{RecvWr, SendOp, SendWr};
use nic_spec::csr::stats::Counter;

const ANY: PortFilter = PortFilter { mac: None, udp_dport: 4791, frame_bytes_max: 9216, elide_icrc: false };

fn write(len: u32) -> SendWr {
    SendWr::new(0, SendOp::Write { remote: remote(0), imm: None }, local(0), len)
}

/// Times of `count` messages of `len` bytes, each posted when the one before is complete, sorted, ps.
fn synchronous(seed: u64, cable: Cable, len: u32, count: usize, redundancy: bool) -> (Vec<u64>, Bench<VirtualMemory>) {
    let mut b = Bench::with_memory(seed, cable, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [tx, _] = b.connect(0, 12, |_, c| c.transport.idle_redundancy = redundancy);
    let mut times = Vec::new();
    for _ in 0..count {
        let start = b.now;
        b.nics[0].post_send(b.now, tx, 1, write(len)).expect("room");
        assert!(b.run_until(100_000 * US, |b| b.nics[0].poll_completion(0).is_some()), "seed {seed}");
        times.push(b.now.since_ps(start));
    }
    // The first ones learn the round trip.
    times.drain(..count / 10);
    times.sort_unstable();
    (times, b)
}

const CABLE: Cable = Cable {
    rate_mbps: 400_000,
    delay_ps: 5 * US,
    loss_ppm: 0,
    duplicate_ppm: 0,
    reorder_ppm: 0,
    reorder_ps: 0,
    damage_ppm: 0,
};

#[test]
fn copies_in_idle_time_hide_the_loss_of_synchronous_messages() {
    let lossy = Cable { loss_ppm: 10_000, ..CABLE };
    for (len, want) in [(64 << 10, 96), (1 << 20, 90)] {
        let count = if len > 1 << 18 { 160 } else { 400 };
        let total = |times: &[u64]| times.iter().sum::<u64>();
        let (clean, b) = synchronous(1, CABLE, len, count, true);
        assert_eq!(b.nics[0].counters().get(Counter::TxRtxGap), 0);
        let (times, _) = synchronous(1, lossy, len, count, true);
        let share = total(&clean) * 100 / total(&times);
        assert!(share >= want, "{len} bytes: {share} % of lossless");
        let (without, _) = synchronous(1, lossy, len, count, false);
        assert!(total(&without) > total(&times), "{len} bytes");
        let (p99, p99_clean) = (times[times.len() * 99 / 100], clean[clean.len() * 99 / 100]);
        assert!(p99 * 10 <= p99_clean * 13, "{len} bytes: p99 {p99} of {p99_clean}");
    }
}

#[test]
fn without_copies_a_marker_finds_a_lost_tail_in_one_more_round_trip() {
    // The last packet of the message is lost once.
    let mut b = Bench::with_memory(1, CABLE, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [tx, _] = b.connect(0, 4, |_, c| c.transport.idle_redundancy = false);
    b.nics[0].post_send(b.now, tx, 1, write(40_960)).expect("room");
    b.run(1000 * US);
    assert!(b.nics[0].poll_completion(0).is_some());
    b.hook = Some(Box::new(|_, _, _, f| match parse(f, &ANY).map(|p| (p.rtx, p.body)) {
        Ok((false, Body::Write(m, _))) if m.last => Fate::Drop,
        _ => Fate::Pass,
    }));
    let start = b.now;
    b.nics[0].post_send(b.now, tx, 1, write(40_960)).expect("room");
    assert!(b.run_until(1000 * US, |b| b.nics[0].poll_completion(0).is_some()));
    let took = b.now.since_ps(start);
    assert!((20 * US..24 * US).contains(&took), "{took}: one round trip to find out, one to repair");
    assert_eq!(b.nics[0].counters().get(Counter::PathRto), 0);
}

#[test]
fn the_loss_of_any_single_frame_is_repaired() {
    // A message of seven packets with immediate data each way; frame number n of the exchange is lost, for every n.
    let mut n = 0;
    loop {
        let mut b = Bench::new(1, CABLE, 1, 1 << 16);
        b.fill(0);
        let [tx, rx] = b.connect(0, 3, |_, _| ());
        let mut count = 0;
        b.hook = Some(Box::new(move |_, _, _, _| {
            count += 1;
            if count == n + 1 {
                Fate::Drop
            } else {
                Fate::Pass
            }
        }));
        b.nics[1]
            .post_recv(b.now, rx, 1, RecvWr { wr_id: 1, local: Default::default(), len: 0, tag: None })
            .expect("room");
        let imm = SendOp::Write { remote: remote(0x8000), imm: Some(7) };
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(0, imm, local(0), 25_000)).expect("room");
        let read = SendOp::Read { remote: remote(0x8000) };
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, read, local(0xd000), 9000)).expect("room");
        let start = b.now;
        let mut got = 0;
        let is_done = b.run_until(50_000 * US, |b| {
            got += b.completions(0, 0).len();
            got == 2
        });
        assert!(is_done, "frame {n}");
        assert!(b.now.since_ps(start) < 1300 * US, "frame {n}: {} ps", b.now.since_ps(start));
        assert!(b.mems[1].bytes[0x8000..][..25_000] == b.mems[0].bytes[..25_000], "frame {n}");
        assert_eq!(b.completions(1, 0).len(), 1, "frame {n}");
        b.run(5_000 * US);
        if b.sent <= n as u64 {
            break;
        }
        n += 1;
    }
    assert!(n > 20, "{n} frames");
}

#[test]
fn switches_that_spray_packets_are_tolerated_after_a_short_while() {
    // One packet in five is up to 3 us late, as if it had met a queue on another way.
    let cable = Cable { reorder_ppm: 200_000, reorder_ps: 3 * US, ..CABLE };
    let mut b = Bench::with_memory(5, cable, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [tx, _] = b.connect(0, 12, |_, _| ());
    b.nics[0].post_send(b.now, tx, 1, write(1 << 30)).expect("room");
    b.run(500 * US);
    let (data, spurious) = (b.nics[0].counters().get(Counter::TxData), b.nics[0].counters().get(Counter::TxRtxGap));
    b.run(2_500 * US);
    let data = b.nics[0].counters().get(Counter::TxData) - data;
    let later = b.nics[0].counters().get(Counter::TxRtxGap) - spurious;
    assert!(later * 1000 <= data, "{later} of {data} packets repeated for nothing, {spurious} at first");
    let mbps = b.mems[1].written_bytes * 8_000_000 / (3_000 * US);
    assert!(mbps > 370_000, "{mbps} Mb/s");
}

#[test]
fn losses_are_still_found_where_packets_are_sprayed() {
    let cable = Cable { reorder_ppm: 200_000, reorder_ps: 3 * US, loss_ppm: 10_000, ..CABLE };
    let mut b = Bench::with_memory(5, cable, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [tx, _] = b.connect(0, 12, |_, _| ());
    b.nics[0].post_send(b.now, tx, 1, write(64 << 20)).expect("room");
    assert!(b.run_until(4_000 * US, |b| b.nics[0].poll_completion(0).is_some()));
    let c = b.nics[0].counters();
    let (again, data) = (c.get(Counter::TxRtxGap) + c.get(Counter::TxRtxRto), c.get(Counter::TxData));
    assert!(again * 1000 < data * 15, "{again} of {data}");
    assert_eq!(c.get(Counter::PathRto), 0);
}

#[test]
fn two_senders_to_one_card_are_told_to_share_and_one_is_not_limited() {
    // Two connections between the same cards stand for two senders: the receiver cannot tell.
    let mut b = Bench::with_memory(1, CABLE, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [first, _] = b.connect(0, 12, |_, _| ());
    let [second, _] = b.connect(1, 12, |_, _| ());
    b.nics[0].post_send(b.now, first, 1, write(64 << 20)).expect("room");
    b.run(100 * US);
    let alone = b.mems[1].written_bytes;
    b.nics[0].post_send(b.now, second, 1, write(64 << 20)).expect("room");
    b.run(30 * US);
    let hints = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let seen = hints.clone();
    b.hook = Some(Box::new(move |_, side, _, f| {
        if let (1, Ok(Body::Ack(a))) = (side, parse(f, &ANY).map(|p| p.body)) {
            seen.borrow_mut().push(a.hint.expect("every acknowledgement has a hint").1);
        }
        Fate::Pass
    }));
    b.run(20 * US);
    // 243/256 to twice 400 Gb/s in two; one sender cannot fill both shares if they are more than the line.
    assert!(hints.borrow().iter().all(|h| (189_843..=400_000).contains(h)), "{:?}", hints.borrow());
    let before = b.mems[1].written_bytes;
    b.run(100 * US);
    let both = b.mems[1].written_bytes - before;
    assert!(both * 100 > alone * 94 && both < 4_865_000, "{both} of {alone}");
}

#[test]
fn no_copies_are_sent_while_the_receiver_limits_the_sender() {
    let mut b = Bench::with_memory(1, CABLE, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let conns = [0, 1].map(|n| b.connect(n, 12, |_, _| ())[0]);
    // One connection sends all the time, the other goes idle again and again.
    b.nics[0].post_send(b.now, conns[0], 1, write(64 << 20)).expect("room");
    for _ in 0..30 {
        b.nics[0].post_send(b.now, conns[1], 1, write(16 << 10)).expect("room");
        b.run(6 * US);
    }
    let early = b.nics[0].counters().get(Counter::TxRedundant);
    for _ in 0..100 {
        b.nics[0].post_send(b.now, conns[1], 1, write(16 << 10)).expect("room");
        b.run(6 * US);
    }
    assert_eq!(b.nics[0].counters().get(Counter::TxRedundant), early);
    assert!(b.now > Time(0));
}

/// Times and sequence numbers.
type Seen = std::rc::Rc<std::cell::RefCell<Vec<(u64, Option<u32>)>>>;

/// Reports every frame that leaves side 0 with what it is: sequence number of path 0 for data, none for a marker.
fn watch(b: &mut Bench<VirtualMemory>) -> Seen {
    let seen = Seen::default();
    let to = seen.clone();
    b.hook = Some(Box::new(move |now, side, _, f| {
        match (side, parse(f, &ANY).map(|p| (p.pseq.get(), p.body))) {
            (0, Ok((psn, Body::Write(..)))) => to.borrow_mut().push((now.0, Some(psn))),
            (0, Ok((_, Body::ProbeReq { .. }))) => to.borrow_mut().push((now.0, None)),
            _ => {}
        }
        Fate::Pass
    }));
    seen
}

#[test]
fn markers_are_sent_twice_while_the_card_sees_losses_and_once_otherwise() {
    let mut b = Bench::with_memory(1, CABLE, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [tx, _] = b.connect(0, 1, |_, c| c.transport.idle_redundancy = false);
    let markers = |b: &mut Bench<VirtualMemory>| {
        let seen = watch(b);
        b.nics[0].post_send(b.now, tx, 1, write(4096)).expect("room");
        b.run(50 * US);
        assert!(b.nics[0].poll_completion(0).is_some());
        let count = seen.borrow().iter().filter(|s| s.1.is_none()).count();
        count
    };
    assert_eq!((markers(&mut b), markers(&mut b)), (1, 1));
    // Of four packets the second is lost once.
    let mut count = 0;
    b.hook = Some(Box::new(move |_, side, _, _| {
        count += u32::from(side == 0);
        if side == 0 && count == 2 {
            Fate::Drop
        } else {
            Fate::Pass
        }
    }));
    b.nics[0].post_send(b.now, tx, 1, write(16_384)).expect("room");
    b.run(100 * US);
    assert!(b.nics[0].poll_completion(0).is_some());
    assert_eq!((b.nics[0].counters().get(Counter::TxRtxGap), markers(&mut b)), (1, 2));
    b.run(1_000 * US);
    assert_eq!(markers(&mut b), 1, "a millisecond later");
}

#[test]
fn a_lost_marker_costs_a_round_trip_and_not_a_fixed_time() {
    // A round trip of 2 us; the last packet is lost, and its marker.
    let cable = Cable { delay_ps: US, ..CABLE };
    let mut b = Bench::with_memory(1, cable, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [tx, _] = b.connect(0, 4, |_, c| c.transport.idle_redundancy = false);
    for _ in 0..40 {
        b.nics[0].post_send(b.now, tx, 1, write(40_960)).expect("room");
        b.run(100 * US);
        assert!(b.nics[0].poll_completion(0).is_some());
    }
    let (mut lost_path, mut is_marker_lost) = (None, false);
    b.hook = Some(Box::new(move |_, side, _, f| match parse(f, &ANY).map(|p| (p.path, p.rtx, p.body)) {
        Ok((path, false, Body::Write(m, _))) if m.last => {
            lost_path = Some(path);
            Fate::Drop
        }
        Ok((path, _, Body::ProbeReq { .. })) if side == 0 && lost_path == Some(path) && !is_marker_lost => {
            is_marker_lost = true;
            Fate::Drop
        }
        _ => Fate::Pass,
    }));
    let start = b.now;
    b.nics[0].post_send(b.now, tx, 1, write(40_960)).expect("room");
    assert!(b.run_until(1000 * US, |b| b.nics[0].poll_completion(0).is_some()));
    let took = b.now.since_ps(start);
    assert!(took < 12 * US, "{took}: sending, a wait of a round trip, one to find out and one to repair");
    assert_eq!(b.nics[0].counters().get(Counter::PathRto), 0);
}

#[test]
fn under_a_hint_repairs_are_copied_at_its_pace_and_everything_only_where_much_is_lost() {
    let run = |loss_ppm: u64| {
        let cable = Cable { loss_ppm, ..CABLE };
        let mut b = Bench::with_memory(3, cable, 1, 1 << 30, [VirtualMemory::default(); 2]);
        let [often, always] = [0, 1].map(|n| b.connect(n, 12, |_, _| ())[0]);
        // One of them never pauses, so the other is limited; only that one has idle time.
        b.nics[0].post_send(b.now, always, 1, write(512 << 20)).expect("room");
        for _ in 0..120 {
            b.nics[0].post_send(b.now, often, 1, write(128 << 10)).expect("room");
            b.run(18 * US);
        }
        assert!(b.completions(0, 0).len() > 110, "{loss_ppm} ppm");
        let c = b.nics[0].counters();
        (c.get(Counter::TxRedundant), c.get(Counter::TxRtxGap) + c.get(Counter::TxRtxRto))
    };
    let ((few, repairs), (many, _)) = (run(10_000), run(100_000));
    assert!(few > 0 && few < 3 * repairs, "{few} copies, {repairs} repairs");
    assert!(many > 10 * few, "{many} copies of everything, {few} of repairs");
}

#[test]
fn a_window_spent_by_the_connection_asks_for_acknowledgements_at_once() {
    // A window of one packet at first, then hints of a few over twelve paths: no path ever has the four packets that make
    // a receiver answer.
    let mut b = Bench::with_memory(1, Cable { delay_ps: US, ..CABLE }, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let conns: Vec<_> = (0..16).map(|n| b.connect(n, 12, |_, _| ())[0]).collect();
    let asked = std::rc::Rc::new(std::cell::RefCell::new([0; 2]));
    let to = asked.clone();
    b.hook = Some(Box::new(move |_, side, _, f| {
        if let (0, Ok((ack_req, Body::Write(..)))) = (side, parse(f, &ANY).map(|p| (p.ack_req, p.body))) {
            to.borrow_mut()[usize::from(ack_req)] += 1;
        }
        Fate::Pass
    }));
    for conn in &conns {
        b.nics[0].post_send(b.now, *conn, 1, write(4 << 20)).expect("room");
    }
    b.run(2 * US);
    assert_eq!(*asked.borrow(), [0, 16], "the first packet of each");
    b.run(200 * US);
    let before = b.mems[1].written_bytes;
    b.run(100 * US);
    let mbps = (b.mems[1].written_bytes - before) * 8_000_000 / (100 * US);
    assert!(mbps > 370_000, "{mbps} Mb/s");
}

#[test]
fn a_path_whose_last_packet_is_acknowledged_by_its_old_route_takes_new_ones() {
    let mut b = Bench::new(1, CABLE, 1, 1 << 20);
    let [tx, _] = b.connect(0, 1, |_, c| (c.transport.idle_redundancy, c.transport.tail_marker) = (false, false));
    let ask = |b: &mut Bench, side: usize| b.nics[side].poll_transmit(b.now, 0, &mut b.mems[side]);
    b.nics[0].post_send(b.now, tx, 1, write(100)).expect("room");
    let data = ask(&mut b, 0).expect("a packet");
    b.nics[1].on_frame(b.now, 0, &data, &mut b.mems[1]);
    let ack = ask(&mut b, 1).expect("its acknowledgement");
    // The link goes and comes back, so the path takes another port; what it sends is lost until it is suspect.
    for is_up in [false, true] {
        b.nics[0].set_link(b.now, 0, is_up);
    }
    while b.nics[0].paths(tx).expect("open").get(0).map(|p| p.state) != Some(PathState::Suspect) {
        while ask(&mut b, 0).is_some() {}
        b.now = b.nics[0].next_timer().expect("the path's timer");
        b.nics[0].on_timer(b.now);
    }
    while ask(&mut b, 0).is_some() {}
    b.nics[0].on_frame(b.now, 0, &ack, &mut b.mems[0]);
    assert!(b.nics[0].poll_completion(0).is_some(), "the acknowledgement counts");
    b.nics[0].post_send(b.now, tx, 1, write(100)).expect("room");
    assert!(ask(&mut b, 0).is_some(), "the next packet");
}

#[test]
fn a_path_never_answered_takes_its_timer_from_the_round_trip_of_the_others() {
    // Of a cold connection the first packet of path 3 is lost, and then the marker that would find it.
    let mut b = Bench::with_memory(1, CABLE, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [tx, _] = b.connect(0, 4, |_, c| c.transport.idle_redundancy = false);
    let (mut has_lost_data, mut has_lost_marker) = (false, false);
    b.hook = Some(Box::new(move |_, _, _, f| {
        let has_lost = match parse(f, &ANY).map(|p| (p.path, p.body)) {
            Ok((3, Body::Write(..))) => &mut has_lost_data,
            Ok((3, Body::ProbeReq { .. })) => &mut has_lost_marker,
            _ => return Fate::Pass,
        };
        if std::mem::replace(has_lost, true) {
            Fate::Pass
        } else {
            Fate::Drop
        }
    }));
    let start = b.now;
    b.nics[0].post_send(b.now, tx, 1, write(40_960)).expect("room");
    assert!(b.run_until(100_000 * US, |b| b.nics[0].poll_completion(0).is_some()));
    let took = b.now.since_ps(start);
    assert!(took < 100 * US, "{took}: the initial timeout is 1 ms, a probe is due two round trips after the marker");
}
