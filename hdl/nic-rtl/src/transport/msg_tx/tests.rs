//! The message window of the sending side against a plain list of messages.

use super::*;
use crate::{
    prim::check::{words, Rng},
    transport::bench::{Bench, Item},
    transport::replay,
};
use nic_spec::num::Msn;
use std::collections::VecDeque;

fn params() -> NicParams {
    NicParams { conns: 4, msgs: 8, ..NicParams::default() }
}

fn bench(rng: Rng) -> Bench {
    let mut bench = Bench::new(&MsgTx::def(&Lib::new(), &params()), rng);
    bench.sim.poke("conn_error", 0);
    bench
}

fn start(bench: &mut Bench, conn: u64, init: u32, cq: u16) {
    let (mut row, mut sq) = (ConnRow::zeroed(), SqRow::zeroed());
    row.set_init_msn(Msn::new(init));
    sq.set_cq(cq);
    for (table, bytes) in [(Table::Conn, row.0), (Table::Sq, sq.0)] {
        bench.push("ctx", Item::of(&[("table", table.code().into()), ("index", conn)]).with("data", &words(&bytes)));
    }
    bench.settle(10);
}

fn open(conn: u64, mseq: u64, pkt_count: u64, signaled: u64, status: Status) -> Item {
    Item::of(&[
        ("conn", conn),
        ("mseq", mseq & 0xff_ffff),
        ("pkt_count", pkt_count),
        ("wqe_index", mseq & 0xffff),
        ("opcode", mseq & 1),
        ("signaled", signaled),
        ("len", pkt_count * 1000),
        ("status", status as u64),
    ])
}

fn acked(conn: u64, mseq: u64) -> Item {
    Item::of(&[("conn", conn), ("msg_slot", mseq & 7)])
}

fn completions(bench: &mut Bench) -> Vec<(u64, u64, u64)> {
    bench.take("completion").iter().map(|c| (c.get("conn"), c.get("wqe_index"), c.get("status"))).collect()
}

#[test]
fn messages_complete_in_order_however_their_packets_are_acknowledged() {
    let mut rng = Rng::new("messages_complete_in_order", 21);
    let mut bench = bench(Rng::new("bench", rng.next()));
    let init = [0xff_fffau64, 0, 77, 0x7f_ffff];
    for conn in 0..4 {
        start(&mut bench, conn, init[conn as usize] as u32, 3 + conn as u16);
    }
    // (mseq, packets left, signaled) of each connection, and what must come out.
    let mut live: Vec<VecDeque<(u64, u64, u64)>> = vec![VecDeque::new(); 4];
    let mut next = init;
    let (mut want, mut got) = (vec![vec![]; 4], vec![vec![]; 4]);
    let (mut ok_count, mut opened) = (0, 0);
    for round in 0..8000 {
        if round % 64 == 0 {
            bench.random_paces(40);
        }
        let conn = rng.below(4) as usize;
        let list = &mut live[conn];
        if rng.chance(30) && list.len() < 8 && bench.waiting("open") == 0 && bench.waiting("acked") == 0 {
            // As the requester does: only when the slot is said to be free, and then two cycles of patience.
            let (count, signaled) = (1 + rng.below(4), rng.below(2));
            bench.push("open", open(conn as u64, next[conn], count, signaled, Status::Ok));
            bench.settle(6);
            list.push_back((next[conn], count, signaled));
            next[conn] += 1;
            opened += 1;
        } else if !list.is_empty() && bench.waiting("acked") < 3 {
            let k = rng.below(list.len() as u64) as usize;
            if list[k].1 > 0 {
                list[k].1 -= 1;
                bench.push("acked", acked(conn as u64, list[k].0));
            }
        }
        while live[conn].front().is_some_and(|m| m.1 == 0) {
            let (mseq, _, signaled) = live[conn].pop_front().expect("checked");
            ok_count += 1;
            if signaled == 1 {
                want[conn].push(mseq & 0xffff);
            }
        }
        bench.step();
    }
    bench.settle(50);
    for c in bench.take("completion") {
        assert_eq!((c.get("status"), c.get("cq"), c.get("imm_valid")), (0, 3 + c.get("conn"), 0));
        assert_eq!(c.get("opcode"), c.get("wqe_index") & 1);
        got[c.get("conn") as usize].push(c.get("wqe_index"));
    }
    assert_eq!(got, want);
    assert!(opened > 300);
    assert_eq!(bench.counted(Counter::TxMessages), ok_count);
}

#[test]
fn a_full_window_is_said_within_two_cycles() {
    let mut bench = bench(Rng::new("a_full_window_is_said", 22));
    start(&mut bench, 1, 0, 0);
    for mseq in 0..8 {
        assert_eq!(bench.sim.peek("can_open") >> 1 & 1, 1);
        bench.push("open", open(1, mseq, 1, 1, Status::Ok));
        while bench.waiting("open") > 0 {
            bench.step();
        }
        bench.step();
    }
    assert_eq!(bench.sim.peek("can_open"), 0b1101);
    bench.push("acked", acked(1, 0));
    bench.settle(10);
    assert_eq!(bench.sim.peek("can_open"), 0b1111);
}

#[test]
fn a_bad_message_waits_for_its_turn_then_fails_its_connection_and_the_rest_is_flushed() {
    let mut bench = bench(Rng::new("a_bad_message_waits_for_its_turn", 23));
    start(&mut bench, 2, 10, 0);
    bench.push("open", open(2, 10, 2, 0, Status::Ok));
    bench.push("open", open(2, 11, 0, 1, Status::LocLen));
    bench.push("open", open(2, 12, 0, 1, Status::WrFlush));
    bench.settle(20);
    assert!(completions(&mut bench).is_empty() && bench.take("error").is_empty(), "the first is not acknowledged yet");
    bench.push("acked", acked(2, 10));
    bench.push("acked", acked(2, 10));
    bench.settle(20);
    assert_eq!(completions(&mut bench), [(2, 11, Status::LocLen as u64), (2, 12, Status::WrFlush as u64)]);
    let errors: Vec<_> = bench.take("error").iter().map(|e| (e.get("conn"), e.get("status"))).collect();
    assert_eq!(errors, [(2, Status::LocLen as u64)]);
    // Whatever follows is flushed.
    bench.sim.poke("conn_error", 0b0100);
    bench.push("open", open(2, 13, 0, 1, Status::WrFlush));
    bench.settle(20);
    assert_eq!(completions(&mut bench), [(2, 13, Status::WrFlush as u64)]);
    assert_eq!(bench.counted(Counter::WqeFlushed), 0, "what came flushed was counted before");
}

#[test]
fn a_failed_connection_reports_its_status_once_then_flushes_signaled_or_not() {
    let mut bench = bench(Rng::new("a_failed_connection_reports", 24));
    for conn in 0..2 {
        start(&mut bench, conn, 0, 0);
        (0..4).for_each(|mseq| bench.push("open", open(conn, mseq, 2, mseq & 1, Status::Ok)));
    }
    bench.settle(20);
    // The second message of connection 0 is whole, the first is not.
    (0..2).for_each(|_| bench.push("acked", acked(0, 1)));
    bench.settle(20);
    bench.row("status_read", 0, vec![Status::RetryExc as u64]);
    bench.sim.poke("conn_error", 0b0001);
    bench.settle(40);
    let flushed = Status::WrFlush as u64;
    let expected = [(0, 0, Status::RetryExc as u64), (0, 1, flushed), (0, 2, flushed), (0, 3, flushed)];
    assert_eq!(completions(&mut bench), expected);
    assert!(bench.take("error").is_empty());
    assert_eq!(bench.counted(Counter::WqeFlushed), 3);
    // A new connection in the same row begins anew.
    bench.sim.poke("conn_error", 0);
    start(&mut bench, 0, 50, 0);
    bench.push("open", open(0, 50, 1, 1, Status::Ok));
    bench.settle(20);
    bench.push("acked", acked(0, 50));
    bench.push("acked", acked(0, 51));
    bench.settle(20);
    assert_eq!(completions(&mut bench), [(0, 50, 0)]);
}

#[test]
fn verilator_does_what_the_interpreter_does() {
    let def = MsgTx::def(&Lib::new(), &params());
    let mut bench = bench(Rng::new("verilator_does_what_the_interpreter_does", 25));
    bench.record(&def);
    start(&mut bench, 1, 0, 9);
    start(&mut bench, 3, 0xff_ffff, 2);
    bench.random_paces(50);
    for mseq in 0..8 {
        bench.push("open", open(1, mseq, 1 + mseq % 3, 1, if mseq == 6 { Status::LocProt } else { Status::Ok }));
        bench.push("open", open(3, 0xff_ffff + mseq, 1, 1, Status::Ok));
    }
    bench.settle(30);
    for mseq in (0..8).rev() {
        (0..3).for_each(|_| bench.push("acked", acked(1, mseq)));
        bench.push("acked", acked(3, 0xff_ffff + mseq));
    }
    bench.settle(60);
    bench.row("status_read", 1, vec![5]);
    bench.sim.poke("conn_error", 2);
    bench.settle(60);
    replay::agrees(&def, &bench.take_trace());
}
