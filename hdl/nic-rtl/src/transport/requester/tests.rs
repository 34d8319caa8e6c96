//! The requester against a plain reading of its messages.

use super::*;
use crate::{
    prim::check::{words, Rng},
    transport::bench::{Bench, Item},
    transport::replay,
};
use nic_spec::desc::ConnRow;
use std::collections::{BTreeMap, VecDeque};

fn params() -> NicParams {
    NicParams { conns: 4, paths: 4, ..NicParams::default() }
}

const ALL_PATHS: u64 = 0xffff;

fn bench(rng: Rng, pmtu_log2: &[u8]) -> Bench {
    let mut bench = Bench::new(&Requester::def(&Lib::new(), &params()), rng);
    for (conn, log2) in pmtu_log2.iter().enumerate() {
        let (lo, bits) = ConnContext::layout().place("pmtu_log2");
        assert!(lo + bits <= 128);
        let value = u128::from(*log2) << lo;
        bench.row("conn_read", conn as u64, vec![value as u64, (value >> 64) as u64]);
    }
    for (port, value) in [("path_open", ALL_PATHS), ("can_open", 0xf), ("conn_valid", 0xf), ("conn_error", 0)] {
        bench.sim.poke(port, value);
    }
    (0..4).for_each(|conn| reopen(&mut bench, conn));
    bench.settle(10);
    bench
}

fn reopen(bench: &mut Bench, conn: u64) {
    let row = ConnRow::zeroed();
    bench.push("ctx", Item::of(&[("table", Table::Conn.code().into()), ("index", conn)]).with("data", &words(&row.0)));
}

fn message(conn: u64, mseq: u64, len: u64) -> Item {
    Item::of(&[
        ("conn", conn),
        ("mseq", mseq),
        ("len", len),
        ("wqe_index", mseq & 0xffff),
        ("opcode", mseq & 1),
        ("imm_valid", mseq & 1),
        ("imm", mseq * 3),
        ("rsn", (mseq + 1) & 0xff_ffff),
        ("se", mseq >> 1 & 1),
        ("signaled", 1),
        ("iova", 0x10_0000_0000 * (conn + 1) + mseq * 0x10000),
        ("remote_va", 0x7000_0000_0000 + mseq * 0x20000 + 5),
        ("rkey", 0xabc0 + conn),
    ])
}

/// What the packets of a message must be: (payload_len, offset, flags).
fn packets(len: u64, pmtu: u64) -> Vec<(u64, u64, bool, bool)> {
    let count = len.div_ceil(pmtu).max(1);
    (0..count).map(|i| (pmtu.min(len - i * pmtu), i * pmtu, i == 0, i + 1 == count)).collect()
}

fn desc(item: &Item, field: &str) -> u64 {
    item.inner("desc", &PacketDesc::layout(), field)
}

/// Checks that packets and openings are exactly those of the messages, each connection's in order.
fn check(sent: &[(Item, u64)], opens: &[Item], allocs: &[Item]) {
    for conn in 0..4 {
        let (mut opens, mut allocs) = (
            opens.iter().filter(|o| o.get("conn") == conn).collect::<VecDeque<_>>(),
            allocs.iter().filter(|a| a.get("conn") == conn).collect::<VecDeque<_>>(),
        );
        for (m, pmtu) in sent.iter().filter(|m| m.0.get("conn") == conn) {
            let want = packets(m.get("len"), *pmtu);
            let open = opens.pop_front().expect("each message is opened");
            for field in ["mseq", "wqe_index", "opcode", "signaled", "len"] {
                assert_eq!(open.get(field), m.get(field), "{field}");
            }
            assert_eq!((open.get("pkt_count"), open.get("status")), (want.len() as u64, 0));
            for (payload_len, offset, is_first, is_last) in want {
                let a = allocs.pop_front().expect("each packet is there");
                assert_eq!((desc(a, "payload_len"), desc(a, "iova")), (payload_len, m.get("iova") + offset));
                assert_eq!((desc(a, "remote_va"), desc(a, "dma_len")), (m.get("remote_va") + offset, m.get("len")));
                for field in ["rkey", "mseq", "rsn", "imm"] {
                    assert_eq!(desc(a, field), m.get(field), "{field}");
                }
                let flag = |name: &str| desc(a, "mflags") >> mflag(name) & 1 == 1;
                assert_eq!((flag("first"), flag("last"), flag("imm")), (is_first, is_last, m.get("imm_valid") == 1));
                assert_eq!(
                    (desc(a, "msg_slot"), desc(a, "se")),
                    (m.get("mseq") & 63, m.get("se") & u64::from(is_last))
                );
            }
        }
        assert!(opens.is_empty() && allocs.is_empty());
    }
}

#[test]
fn messages_of_all_lengths_are_cut_in_order_under_back_pressure_on_all_ports() {
    let mut rng = Rng::new("messages_of_all_lengths_are_cut", 0x11);
    let log2 = [10, 11, 12, 13];
    let mut bench = bench(Rng::new("bench", rng.next()), &log2);
    let (mut sent, mut opens, mut allocs) = (vec![], vec![], vec![]);
    let mut under_way: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut mseq = [0xff_fff0u64, 0, 5, 100];
    for round in 0..3000 {
        if round % 50 == 0 {
            bench.random_paces(30);
            bench.sim.poke("path_open", rng.next() & ALL_PATHS | 0x1111 << rng.below(4));
        }
        let conn = rng.below(4);
        let done = |conn: u64, allocs: &[Item]| {
            allocs.iter().filter(|a| a.get("conn") == conn && desc(a, "mflags") >> mflag("last") & 1 == 1).count()
                as u64
        };
        let given = under_way.entry(conn).or_default();
        given.1 = done(conn, &allocs);
        if given.0 - given.1 < 2 && bench.waiting("message") == 0 {
            let pmtu = 1u64 << log2[conn as usize];
            let len = [0, 1, pmtu - 1, pmtu, pmtu + 1, 3 * pmtu, rng.below(5 * pmtu)][rng.below(7) as usize];
            let m = message(conn, mseq[conn as usize], len);
            mseq[conn as usize] = (mseq[conn as usize] + 1) & 0xff_ffff;
            bench.push("message", m.clone());
            sent.push((m, pmtu));
            given.0 += 1;
        }
        bench.step();
        opens.extend(bench.take("open"));
        allocs.extend(bench.take("alloc"));
    }
    bench.sim.poke("path_open", ALL_PATHS);
    bench.settle(100);
    opens.extend(bench.take("open"));
    allocs.extend(bench.take("alloc"));
    assert!(sent.len() > 100, "{}", sent.len());
    check(&sent, &opens, &allocs);
}

#[test]
fn open_paths_take_turns_and_closed_ones_get_nothing() {
    let mut bench = bench(Rng::new("open_paths_take_turns", 3), &[10; 4]);
    bench.sim.poke("path_open", 0b1011);
    bench.push("message", message(0, 0, 9 * 1024));
    bench.settle(30);
    let paths: Vec<u64> = bench.take("alloc").iter().map(|a| a.get("path")).collect();
    assert_eq!(paths, [0, 1, 3, 0, 1, 3, 0, 1, 3]);
}

#[test]
fn a_connection_without_open_paths_or_free_slots_does_not_hold_up_another() {
    let mut bench = bench(Rng::new("a_connection_without_open_paths", 4), &[10; 4]);
    bench.sim.poke("path_open", 0xff0f);
    bench.sim.poke("can_open", 0b1011);
    for conn in [1, 2, 0] {
        bench.push("message", message(conn, 7, 2000));
    }
    bench.settle(50);
    assert_eq!(bench.take("alloc").iter().map(|a| a.get("conn")).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(bench.take("open").iter().map(|a| a.get("conn")).collect::<Vec<_>>(), [1, 0]);
    bench.sim.poke("path_open", ALL_PATHS);
    bench.sim.poke("can_open", 0xf);
    bench.settle(50);
    assert_eq!(bench.take("alloc").len(), 4);
}

#[test]
fn bad_and_flushed_messages_are_opened_without_packets() {
    let mut bench = bench(Rng::new("bad_and_flushed_messages", 5), &[10; 4]);
    let bad = message(0, 1, 5000).with("status", &[Status::LocProt as u64]);
    bench.push("message", bad);
    bench.sim.poke("conn_error", 0b0010);
    bench.push("message", message(1, 9, 5000));
    bench.settle(30);
    let opens: Vec<_> =
        bench.take("open").iter().map(|o| (o.get("conn"), o.get("pkt_count"), o.get("status"))).collect();
    assert_eq!(opens, [(0, 0, Status::LocProt as u64), (1, 0, Status::WrFlush as u64)]);
    assert!(bench.take("alloc").is_empty());
    // The credits came back: two more of each are taken.
    for conn in [0, 1] {
        (10..12).for_each(|mseq| bench.push("message", message(conn, mseq, 100)));
    }
    bench.settle(30);
    assert_eq!((bench.take("open").len(), bench.take("alloc").len()), (4, 2));
}

#[test]
fn a_message_half_sent_when_its_connection_fails_is_left() {
    let mut bench = bench(Rng::new("a_message_half_sent", 6), &[10; 4]);
    bench.pace("alloc", 0);
    bench.push("message", message(2, 1, 50_000));
    for _ in 0..20 {
        bench.step();
    }
    bench.sim.poke("conn_error", 0b0100);
    bench.pace("alloc", 100);
    bench.settle(30);
    assert_eq!(bench.take("alloc").len(), 1, "the one that was offered");
    bench.push("message", message(2, 2, 50_000));
    bench.settle(30);
    let opens: Vec<_> = bench.take("open").iter().map(|o| (o.get("mseq"), o.get("status"))).collect();
    assert_eq!(opens, [(1, 0), (2, Status::WrFlush as u64)]);
}

#[test]
fn a_row_write_forgets_the_messages_of_its_connection_alone() {
    let mut bench = bench(Rng::new("a_row_write_forgets", 7), &[10; 4]);
    bench.sim.poke("path_open", 0);
    for (conn, mseq) in [(0, 1), (0, 2), (3, 1), (3, 2)] {
        bench.push("message", message(conn, mseq, 3000));
    }
    bench.settle(50);
    bench.take("open");
    reopen(&mut bench, 3);
    bench.settle(50);
    bench.push("message", message(3, 40, 100));
    bench.sim.poke("path_open", ALL_PATHS);
    bench.settle(50);
    let allocs: Vec<_> = bench.take("alloc").iter().map(|a| (a.get("conn"), desc(a, "mseq"))).collect();
    let of = |conn| allocs.iter().filter(|a| a.0 == conn).map(|a| a.1).collect::<Vec<_>>();
    assert_eq!((of(0), of(3)), (vec![1, 1, 1, 2, 2, 2], vec![40]));
    // A closed connection's message is dropped.
    bench.take("open");
    bench.sim.poke("conn_valid", 0b0111);
    bench.push("message", message(3, 41, 100));
    bench.settle(50);
    assert!(bench.take("open").is_empty() && bench.take("alloc").is_empty());
}

#[test]
fn verilator_does_what_the_interpreter_does() {
    let def = Requester::def(&Lib::new(), &params());
    let mut rng = Rng::new("verilator_does_what_the_interpreter_does", 8);
    let mut bench = bench(Rng::new("bench", rng.next()), &[10, 11, 12, 13]);
    bench.record(&def);
    (0..4).for_each(|conn| reopen(&mut bench, conn));
    bench.settle(10);
    for round in 0..10 {
        bench.random_paces(40);
        for conn in 0..4 {
            (0..2).for_each(|k| bench.push("message", message(conn, 2 * round + k, rng.below(4000))));
        }
        bench.settle(8);
    }
    replay::agrees(&def, &bench.take_trace());
}
