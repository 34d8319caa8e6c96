//! SEND, READ, atomic operations, FLUSH; credits, tags, streams, order of completions.

mod bench;

use bench::{local, remote, Bench, Cable, Fate, US};
use nic_model::conn_config::StreamConfig;
use nic_model::wire::packet::Body;
use nic_model::wire::parser::{parse, PortFilter};
use nic_model::work::{ConnId, Cqe, CqeOp, PostError, RecvWr, SendOp, SendWr, TagMatch};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Rkey, Rsn};

const ANY: PortFilter = PortFilter { mac: None, udp_dport: 4791, frame_bytes_max: 9216, elide_icrc: false };

fn send(wr_id: u64, offset: u64, len: u32) -> SendWr {
    SendWr::new(wr_id, SendOp::Send { imm: None, inv: None, tag: None }, local(offset), len)
}

fn recv(wr_id: u64, offset: u64, len: u32) -> RecvWr {
    RecvWr { wr_id, local: local(offset), len, tag: None }
}

fn summary(cqes: &[Cqe]) -> Vec<(u64, CqeOp, Status)> {
    cqes.iter().map(|c| (c.wr_id, c.op, c.status)).collect()
}

/// A bench with one connection of four paths.
fn pair(cable: Cable) -> (Bench, [ConnId; 2]) {
    let mut b = Bench::new(3, cable, 1, 1 << 20);
    b.fill(0);
    let conns = b.connect(0, 4, |_, _| ());
    (b, conns)
}

const LOSSY: Cable = Cable {
    rate_mbps: 400_000,
    delay_ps: 2 * US,
    loss_ppm: 50_000,
    duplicate_ppm: 30_000,
    reorder_ppm: 50_000,
    reorder_ps: 5 * US,
    damage_ppm: 10_000,
};

#[test]
fn a_send_lands_in_the_receive_of_its_ordinal_and_reports_what_came() {
    for cable in [Cable::default(), LOSSY] {
        let (mut b, [tx, rx]) = pair(cable);
        for i in 0..3u64 {
            b.nics[1].post_recv(b.now, rx, 1, recv(10 + i, 0x4_0000 + i * 0x1_0000, 0x1_0000)).expect("room");
        }
        let imm = SendOp::Send { imm: Some(0xfeed), inv: None, tag: None };
        b.nics[0].post_send(b.now, tx, 1, send(0, 0, 50_000)).expect("room");
        b.nics[0]
            .post_send(b.now, tx, 1, SendWr { solicited: true, ..SendWr::new(1, imm, local(100), 3) })
            .expect("room");
        b.nics[0].post_send(b.now, tx, 1, send(2, 200, 0)).expect("room");
        b.run(20_000 * US);
        let got = b.completions(1, 0);
        assert_eq!(summary(&got), [10, 11, 12].map(|i| (i, CqeOp::Recv, Status::Ok)));
        assert_eq!(
            got.iter().map(|c| (c.byte_len, c.imm, c.solicited)).collect::<Vec<_>>(),
            [(50_000, None, false), (3, Some(0xfeed), true), (0, None, false)]
        );
        assert_eq!(summary(&b.completions(0, 0)), [0, 1, 2].map(|i| (i, CqeOp::Send, Status::Ok)));
        assert_eq!(b.mems[1].bytes[0x4_0000..0x4_0000 + 50_000], b.mems[0].bytes[..50_000]);
        assert_eq!(b.mems[1].bytes[0x5_0000..0x5_0003], b.mems[0].bytes[100..103]);
    }
}

#[test]
fn a_read_brings_what_an_earlier_write_of_the_stream_left() {
    for cable in [Cable::default(), LOSSY] {
        let (mut b, [tx, _]) = pair(cable);
        let write = SendOp::Write { remote: remote(0x8_0000), imm: None };
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(0, write, local(0), 30_000)).expect("room");
        let read = SendOp::Read { remote: remote(0x8_0000) };
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, read, local(0x4_0000), 30_000)).expect("room");
        b.nics[0].post_send(b.now, tx, 1, SendWr::new(2, read, local(0x5_0000), 0)).expect("room");
        b.run(20_000 * US);
        assert_eq!(
            summary(&b.completions(0, 0)),
            [(0, CqeOp::Write, Status::Ok), (1, CqeOp::Read, Status::Ok), (2, CqeOp::Read, Status::Ok)]
        );
        assert_eq!(b.mems[0].bytes[0x4_0000..0x4_0000 + 30_000], b.mems[0].bytes[..30_000]);
    }
}

#[test]
fn every_atomic_operation_is_carried_out_once_and_returns_the_value_before() {
    for cable in [Cable::default(), LOSSY] {
        let (mut b, conns) = pair(cable);
        // Both sides add to the same number of side 1, side 1 by itself being the peer of side 0.
        b.mems[1].bytes[..8].copy_from_slice(&100u64.to_le_bytes());
        for i in 0..200u64 {
            let op = SendOp::FetchAdd { remote: remote(0), add: 3 };
            b.nics[0].post_send(b.now, conns[0], 1, SendWr::new(i, op, local(0x1000 + 8 * i), 0)).expect("room");
        }
        b.run(100_000 * US);
        assert_eq!(
            b.completions(0, 0).len(),
            200,
            "{:?}",
            b.nics.each_ref().map(|n| n.counters().non_zero().collect::<Vec<_>>())
        );
        let word = |b: &Bench, side: usize, at: usize| {
            u64::from_le_bytes(b.mems[side].bytes[at..at + 8].try_into().expect("8 bytes"))
        };
        let before: Vec<u64> = (0..200).map(|i| word(&b, 0, 0x1000 + 8 * i)).collect();
        assert_eq!(before, (0..200).map(|i| 100 + 3 * i).collect::<Vec<_>>(), "in the order of the stream");
        assert_eq!(word(&b, 1, 0), 700);

        let swap = |compare, swap| SendOp::CompareSwap { remote: remote(0), compare, swap };
        b.nics[0].post_send(b.now, conns[0], 1, SendWr::new(1, swap(700, 5), local(0x3000), 0)).expect("room");
        b.nics[0].post_send(b.now, conns[0], 1, SendWr::new(2, swap(700, 6), local(0x3008), 0)).expect("room");
        b.run(100_000 * US);
        assert_eq!(summary(&b.completions(0, 0)), [1, 2].map(|i| (i, CqeOp::CompareSwap, Status::Ok)));
        assert_eq!((word(&b, 0, 0x3000), word(&b, 0, 0x3008), word(&b, 1, 0)), (700, 5, 5));
    }
}

#[test]
fn a_flush_completes_after_the_writes_before_it_and_checks_its_memory() {
    let (mut b, [tx, _]) = pair(LOSSY);
    let write = SendOp::Write { remote: remote(0x8_0000), imm: None };
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(0, write, local(0), 200_000)).expect("room");
    let flush = |at| SendOp::Flush { remote: remote(at) };
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, flush(0x8_0000), local(0), 200_000)).expect("room");
    let done = b.run_until(20_000 * US, |b| b.nics[0].counters().get(Counter::CqeWritten) == 2);
    assert!(done && b.mems[1].bytes[0x8_0000..][..200_000] == b.mems[0].bytes[..200_000]);
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(2, flush(0xf_ffff), local(0), 2)).expect("room");
    b.run(20_000 * US);
    assert_eq!(b.completions(0, 0)[2].status, Status::RemAccess);
}

#[test]
fn with_known_credit_no_send_is_refused_however_late_receives_are_posted() {
    for cable in [Cable::default(), LOSSY] {
        let mut b = Bench::new(5, cable, 1, 1 << 20);
        let [tx, rx] = b.connect(0, 4, |_, c| c.streams[0].peer_limit = Some(Rsn::new(0)));
        (0..40).for_each(|i| b.nics[0].post_send(b.now, tx, 1, send(i, 0, 9000)).expect("room"));
        for i in 0..40 {
            b.run(if i % 4 == 0 { 700 * US } else { 10 * US });
            b.nics[1].post_recv(b.now, rx, 1, recv(i, 0x4_0000, 0x1_0000)).expect("room");
        }
        b.run(50_000 * US);
        assert_eq!(b.completions(0, 0).len(), 40, "{:?}", b.nics[0].counters().non_zero().collect::<Vec<_>>());
        assert_eq!(b.completions(1, 0).iter().map(|c| c.wr_id).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        assert_eq!(b.nics[1].counters().get(Counter::NakRnr), 0);
    }
}

#[test]
fn a_send_without_a_receive_is_refused_and_sent_again_when_one_is_there() {
    for cable in [Cable::default(), LOSSY] {
        let (mut b, [tx, rx]) = pair(cable);
        b.nics[0].post_send(b.now, tx, 1, send(7, 0, 20_000)).expect("room");
        b.run(250 * US);
        assert!(b.nics[1].counters().get(Counter::NakRnr) > 0 && b.nics[0].counters().get(Counter::RxNak) > 0);
        assert_eq!(b.completions(0, 0), []);
        b.nics[1].post_recv(b.now, rx, 1, recv(8, 0x4_0000, 0x1_0000)).expect("room");
        b.run(20_000 * US);
        assert_eq!(summary(&b.completions(0, 0)), [(7, CqeOp::Send, Status::Ok)]);
        assert_eq!(summary(&b.completions(1, 0)), [(8, CqeOp::Recv, Status::Ok)]);
        assert_eq!(b.mems[1].bytes[0x4_0000..][..20_000], b.mems[0].bytes[..20_000]);
    }
}

#[test]
fn refusals_without_end_fail_the_connection_and_flush_in_order() {
    let (mut b, [tx, _]) = pair(Cable::default());
    (0..4).for_each(|i| b.nics[0].post_send(b.now, tx, 1, send(i, 0, 100)).expect("room"));
    let read = SendWr::new(4, SendOp::Read { remote: remote(0) }, local(0), 8);
    b.nics[0].post_send(b.now, tx, 1, read).expect("room");
    b.run(5_000 * US);
    let got = b.completions(0, 0);
    assert_eq!(got.iter().map(|c| c.wr_id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(got[0].status, Status::RnrRetryExc);
    assert!(got[1..].iter().all(|c| c.status == Status::WrFlush));
    b.nics[0].post_send(b.now, tx, 1, send(9, 0, 1)).expect("a flushed request is taken");
    assert_eq!(summary(&b.completions(0, 0)), [(9, CqeOp::Send, Status::WrFlush)]);
    assert_eq!(b.nics[0].conn_state(tx), Some(nic_model::ConnState::Error));
    assert_eq!(b.nics[0].counters().get(Counter::ConnErrors), 1);
}

#[test]
fn each_bad_request_ends_with_the_status_of_its_fault() {
    let beyond = |len| SendWr::new(0, SendOp::Write { remote: remote((1 << 20) - 10), imm: None }, local(0), len);
    let key = |rkey: u32| {
        let mut memory = remote(0);
        memory.rkey = Rkey::new(rkey);
        SendWr::new(0, SendOp::Read { remote: memory }, local(0), 8)
    };
    let cases: [(&str, SendWr, Status, Option<Counter>); 8] = [
        ("range", beyond(11), Status::RemAccess, Some(Counter::NakRange)),
        ("key", key(0x43), Status::RemAccess, Some(Counter::NakRkey)),
        ("row", key(0x142), Status::RemAccess, Some(Counter::NakRkey)),
        (
            "misaligned atomic",
            SendWr::new(0, SendOp::FetchAdd { remote: remote(4), add: 1 }, local(0), 0),
            Status::RemAccess,
            Some(Counter::NakRange),
        ),
        ("send beyond its receive", send(0, 0, 5000), Status::RemInvReq, Some(Counter::NakMtu)),
        ("local range", send(0, (1 << 20) - 10, 11), Status::LocProt, None),
        ("local key", SendWr { local: nic_model::work::Local::default(), ..send(0, 0, 1) }, Status::LocProt, None),
        ("length", send(0, 0, 0x8000_0001), Status::LocLen, None),
    ];
    for (name, wr, status, refused) in cases {
        let (mut b, [tx, rx]) = pair(Cable::default());
        b.nics[1].post_recv(b.now, rx, 1, recv(1, 0, 4999)).expect("room");
        b.nics[0].post_send(b.now, tx, 1, wr).expect("room");
        b.nics[0].post_send(b.now, tx, 1, send(1, 0, 0)).expect("room");
        b.run(2_000 * US);
        let got = b.completions(0, 0);
        assert_eq!(got.iter().map(|c| c.status).collect::<Vec<_>>(), [status, Status::WrFlush], "{name}");
        match refused {
            Some(counter) => assert!(b.nics[1].counters().get(counter) > 0, "{name}"),
            None => assert_eq!(b.nics[0].counters().get(Counter::WqeBad), 1, "{name}"),
        }
        assert!(b.mems[1].bytes.iter().all(|x| *x == 0), "{name}");
    }
}

#[test]
fn tagged_sends_find_their_receives_in_any_order() {
    for cable in [Cable::default(), LOSSY] {
        let (mut b, [tx, rx]) = pair(cable);
        for i in 0..8u64 {
            let tag = Some(TagMatch { bits: i, ignore: 0 });
            let wr = RecvWr { tag, ..recv(100 + i, 0x4_0000 + i * 0x4000, 0x4000) };
            b.nics[1].post_recv(b.now, rx, 1, wr).expect("room");
        }
        for i in 0..8u64 {
            let op = SendOp::Send { imm: None, inv: None, tag: Some(7 - i) };
            b.nics[0].post_send(b.now, tx, 1, SendWr::new(i, op, local(i * 0x2000), 6000)).expect("room");
        }
        b.run(20_000 * US);
        assert_eq!(b.completions(0, 0).len(), 8);
        let got: Vec<_> = b.completions(1, 0).iter().map(|c| (c.wr_id, c.tag)).collect();
        assert_eq!(got, (0..8).map(|i| (107 - i, Some(7 - i))).collect::<Vec<_>>());
        for i in 0..8 {
            let (from, to) = (i * 0x2000, 0x4_0000 + (7 - i) * 0x4000);
            assert_eq!(b.mems[1].bytes[to..to + 6000], b.mems[0].bytes[from..from + 6000]);
        }
    }
}

#[test]
fn a_send_can_invalidate_a_key_of_the_peer() {
    let (mut b, [tx, rx]) = pair(Cable::default());
    let extra = b.nics[1].mrs().register(nic_model::mr::Mr { key: 9, ..bench::region(64) });
    b.nics[1].post_recv(b.now, rx, 1, recv(1, 0, 100)).expect("room");
    let op = SendOp::Send { imm: None, inv: Some(extra), tag: None };
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(0, op, local(0), 10)).expect("room");
    b.run(1_000 * US);
    assert_eq!(b.completions(1, 0)[0].invalidated, Some(extra));
    let mut memory = remote(0);
    memory.rkey = extra;
    b.nics[0].post_send(b.now, tx, 1, SendWr::new(1, SendOp::Read { remote: memory }, local(0), 8)).expect("room");
    b.run(1_000 * US);
    assert_eq!(b.completions(0, 0)[1].status, Status::RemAccess);
}

#[test]
fn a_stream_that_waits_for_credit_does_not_hold_another_one() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    let [tx, rx] = b.connect(0, 4, |_, c| {
        let blocked = StreamConfig { peer_limit: Some(Rsn::new(0)), ..StreamConfig::new(7, 0) };
        c.streams = vec![blocked, StreamConfig::new(8, 1)];
    });
    b.nics[0].post_send(b.now, tx, 7, send(1, 0, 100)).expect("room");
    let write = SendOp::Write { remote: remote(0), imm: None };
    b.nics[0].post_send(b.now, tx, 8, SendWr::new(2, write, local(0), 100_000)).expect("room");
    b.run(1_000 * US);
    assert_eq!((b.completions(0, 0).len(), b.completions(0, 1).len()), (0, 1));
    b.nics[1].post_recv(b.now, rx, 7, recv(3, 0, 100)).expect("room");
    b.run(1_000 * US);
    assert_eq!(b.completions(0, 0).len(), 1);
    assert_eq!(b.nics[0].post_send(b.now, tx, 9, send(1, 0, 1)), Err(PostError::UnknownStream(9)));
}

#[test]
fn a_hold_that_outlasts_the_timer_set_for_an_earlier_one_ends_too() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    let [tx, rx] = b.connect(0, 4, |_, c| {
        c.streams = vec![StreamConfig::new(7, 0), StreamConfig::new(8, 1)];
        (c.transport.rnr_ps, c.transport.nak_interval_ps) = (100 * US, 0);
        c.transport.idle_redundancy = false;
    });
    b.nics[0].post_send(b.now, tx, 7, send(1, 0, 100)).expect("room");
    b.run(50 * US);
    b.nics[0].post_send(b.now, tx, 8, send(2, 0, 100)).expect("room");
    b.run(20 * US);
    assert_eq!(b.nics[0].counters().get(Counter::RxNak), 2, "both are held, the second for longer");
    for stream in [7, 8] {
        b.nics[1].post_recv(b.now, rx, stream, recv(3, 0, 100)).expect("room");
    }
    b.run(10_000 * US);
    assert_eq!((b.completions(0, 0).len(), b.completions(0, 1).len()), (1, 1));
}

/// Drops the first transmission of the packet that begins message 0 of side 0.
fn drop_first_of_message_0(b: &mut Bench) {
    b.hook = Some(Box::new(|_, side, _, frame| match parse(frame, &ANY) {
        Ok(p) if side == 0 && !p.rtx => match &p.body {
            Body::Write(m, _) | Body::Send(m, _) if m.mseq.get() == 0 && m.first => Fate::Drop,
            _ => Fate::Pass,
        },
        _ => Fate::Pass,
    }));
}

#[test]
fn completions_are_in_order_unless_the_stream_asks_for_the_order_of_ends() {
    for is_unordered in [false, true] {
        let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
        let [tx, rx] = b.connect(0, 4, |_, c| {
            c.streams[0].is_unordered = is_unordered;
            (c.transport.idle_redundancy, c.transport.conn_init_pkts) = (false, 12);
        });
        drop_first_of_message_0(&mut b);
        (0..3).for_each(|i| b.nics[1].post_recv(b.now, rx, 1, recv(10 + i, 0x4_0000, 0x1000)).expect("room"));
        (0..3).for_each(|i| b.nics[0].post_send(b.now, tx, 1, send(i, 0, 100)).expect("room"));
        b.run(1_000 * US);
        let order = |n: usize| {
            if is_unordered {
                [n, n + 1, n - 1].map(|i| i as u64)
            } else {
                [n - 1, n, n + 1].map(|i| i as u64)
            }
        };
        assert_eq!(b.completions(0, 0).iter().map(|c| c.wr_id).collect::<Vec<_>>(), order(1));
        assert_eq!(b.completions(1, 0).iter().map(|c| c.wr_id).collect::<Vec<_>>(), order(11));
    }
}

#[test]
fn a_fence_waits_for_earlier_reads_and_orders_even_an_unordered_stream() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    let [tx, _] = b.connect(0, 4, |_, c| {
        c.streams[0].is_unordered = true;
        (c.transport.idle_redundancy, c.transport.conn_init_pkts) = (false, 12);
    });
    drop_first_of_message_0(&mut b);
    let write = |id| SendWr::new(id, SendOp::Write { remote: remote(0x8_0000), imm: None }, local(0), 100);
    let read = SendWr::new(1, SendOp::Read { remote: remote(0) }, local(0), 100);
    b.nics[0].post_send(b.now, tx, 1, write(0)).expect("room");
    b.nics[0].post_send(b.now, tx, 1, read).expect("room");
    b.nics[0].post_send(b.now, tx, 1, SendWr { fence: true, ..write(2) }).expect("room");
    b.nics[0].post_send(b.now, tx, 1, write(3)).expect("room");
    b.run(1_000 * US);
    let got: Vec<_> = b.completions(0, 0).iter().map(|c| c.wr_id).collect();
    let place = |id| got.iter().position(|g| *g == id).expect("it completed");
    assert!(place(2) > place(0) && place(2) > place(1) && place(1) < place(0), "{got:?}");
}

#[test]
fn a_full_send_queue_says_so() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 12);
    let [tx, rx] = b.connect(0, 1, |_, c| (c.transport.sq_depth, c.transport.rq_depth) = (2, 1));
    (0..2).for_each(|i| b.nics[0].post_send(b.now, tx, 1, send(i, 0, 1)).expect("room"));
    assert_eq!(b.nics[0].post_send(b.now, tx, 1, send(2, 0, 1)), Err(PostError::QueueFull { depth: 2 }));
    b.nics[1].post_recv(b.now, rx, 1, recv(0, 0, 1)).expect("room");
    assert_eq!(b.nics[1].post_recv(b.now, rx, 1, recv(1, 0, 1)), Err(PostError::QueueFull { depth: 1 }));
    assert_eq!(b.nics[1].post_recv(b.now, ConnId(1), 1, recv(1, 0, 1)), Err(PostError::UnknownConn(ConnId(1))));
    let foreign = RecvWr { local: Default::default(), ..recv(1, 0, 1) };
    b.run(1_000 * US);
    assert_eq!(b.nics[1].post_recv(b.now, rx, 1, foreign), Err(PostError::LocalProtection));
}

#[test]
fn reads_beyond_the_limit_wait_and_all_complete() {
    let (mut b, conns) = pair(LOSSY);
    for (side, conn) in conns.into_iter().enumerate() {
        for i in 0..100 {
            let read = SendOp::Read { remote: remote(i * 1000) };
            let wr = SendWr::new(i, read, local(0x8_0000 + i * 1000), 1000);
            b.nics[side].post_send(b.now, conn, 1, wr).expect("room");
        }
    }
    b.run(100_000 * US);
    for side in 0..2 {
        let got = b.completions(side, 0);
        assert_eq!(
            got.iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(),
            (0..100).map(|i| (i, Status::Ok)).collect::<Vec<_>>()
        );
        assert!(b.mems[side].bytes[0x8_0000..][..100_000] == b.mems[1 - side].bytes[..100_000]);
    }
}
