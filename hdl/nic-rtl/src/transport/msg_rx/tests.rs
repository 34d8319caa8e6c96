//! msg_rx against a plain model: which messages retire, in which order, and what their completions say.

use super::*;
use crate::{
    prim::check::{words, Rng},
    transport::bench::{Bench, Item},
    transport::replay,
};
use nic_spec::num::{Msn, Rsn};
use std::collections::BTreeMap;

const MASK: u64 = 0xff_ffff;
const MSGS: u64 = 8;

fn params() -> NicParams {
    NicParams { conns: 4, msgs: MSGS as u32, ..NicParams::default() }
}

/// A connection whose first MSEQ is `init` and whose first RSN is [`rsn_of`] it.
fn conn_write(index: u64, init: u64) -> Item {
    let mut row = ConnRow::zeroed();
    row.set_valid(true).set_init_msn(Msn::new(init as u32)).set_init_rsn(Rsn::new(rsn_of(init) as u32));
    Item::of(&[("table", Table::Conn.code().into()), ("index", index)]).with("data", &words(&row.0))
}

/// First RSN of a connection, such that some wrap.
fn rsn_of(init: u64) -> u64 {
    (init * 7 + 0xfff0) & MASK
}

fn sq_write(index: u64, cq: u64) -> Item {
    let mut row = SqRow::zeroed();
    row.set_rq_cq(cq as u16).set_cq(0x5a);
    Item::of(&[("table", Table::Sq.code().into()), ("index", index)]).with("data", &words(&row.0))
}

/// A message being received, as the model sees it.
#[derive(Clone, Default)]
struct Message {
    is_done: bool,
    imm: Option<(u64, u64, u64)>,
    len: u64,
    has_failed: bool,
}

#[derive(Default)]
struct Conn {
    base: u64,
    /// What `msg_base` shows for sure, and so what the responder lets through.
    shown: u64,
    cq: u64,
    messages: BTreeMap<u64, Message>,
    /// What the sender still has to send: (mseq, packets left, receive it consumes).
    open: Vec<(u64, u64, Option<u64>)>,
    next: u64,
    /// RSN of the next message that consumes a receive, at the sender and at the receiver.
    next_rsn: u64,
    rsn: u64,
}

impl Conn {
    fn opened(base: u64, cq: u64) -> Conn {
        let rsn = rsn_of(base);
        Conn { base, shown: base, next: base, cq, next_rsn: rsn, rsn: rsn & 0xffff, ..Conn::default() }
    }

    /// Completions that a packet gives rise to, messages retired well, receives used out of turn.
    fn packet(&mut self, conn: u64, info: &Item) -> (Vec<Item>, u64, u64) {
        let mseq = info.get("mseq");
        if mseq.wrapping_sub(self.base) & MASK >= MSGS {
            return (vec![], 0, 0);
        }
        let m = self.messages.entry(mseq).or_default();
        m.is_done |= info.get("complete") == 1;
        m.has_failed |= info.get("error") == 1;
        m.len = info.get("dma_len");
        if info.get("mflags") & 0x60 == 0x60 {
            m.imm = Some((info.get("imm"), info.get("se"), info.get("rsn") & 0xffff));
        }
        let (mut out, mut retired, mut broken) = (vec![], 0, 0);
        while self.messages.get(&self.base).is_some_and(|m| m.is_done) {
            let m = self.messages.remove(&self.base).expect("just seen");
            self.base = (self.base + 1) & MASK;
            if m.imm.is_some_and(|(_, _, rsn)| rsn != self.rsn) {
                broken += u64::from(!m.has_failed);
                continue;
            }
            self.rsn = (self.rsn + u64::from(m.imm.is_some())) & 0xffff;
            retired += u64::from(!m.has_failed);
            if let (Some((imm, se, rsn)), false) = (m.imm, m.has_failed) {
                out.push(Item::of(&[
                    ("cq", self.cq),
                    ("conn", conn),
                    ("opcode", 0x80),
                    ("status", 0),
                    ("wqe_index", rsn),
                    ("byte_len", m.len),
                    ("imm", imm),
                    ("imm_valid", 1),
                    ("se", se),
                ]));
            }
        }
        (out, retired, broken)
    }

    /// The next packet of one of the connection's messages, or a stray one.
    fn next_packet(&mut self, rng: &mut Rng, conn: u64) -> Item {
        if rng.chance(3) {
            // Retired long ago.
            let mseq = (self.base + MASK - MSGS - rng.below(20)) & MASK;
            return Item::of(&[("conn", conn), ("mseq", mseq), ("complete", 1), ("mflags", 0x60)]);
        }
        while self.open.len() < 4 && (self.next.wrapping_sub(self.shown) & MASK) < MSGS {
            let receive = rng.chance(60).then_some(self.next_rsn);
            self.next_rsn = (self.next_rsn + u64::from(receive.is_some())) & MASK;
            // Now and then a receive that was used, or is not there yet.
            let receive = receive.map(|rsn| if rng.chance(3) { rsn ^ 1 } else { rsn });
            self.open.push((self.next, 1 + rng.below(3), receive));
            self.next = (self.next + 1) & MASK;
        }
        if self.open.is_empty() {
            return Item::of(&[("conn", conn), ("mseq", (self.base + 2 * MSGS) & MASK), ("complete", 1)]);
        }
        let k = rng.below(self.open.len() as u64) as usize;
        let (mseq, left, receive) = self.open[k];
        self.open[k].1 -= 1;
        if left == 1 {
            self.open.remove(k);
        }
        // LAST may come at any time: packets overtake one another. Which of them brings the immediate data is drawn.
        let is_last = left == 1 || receive.is_none() && rng.chance(30);
        let item = [
            ("conn", conn),
            ("mseq", mseq),
            ("payload_len", rng.below(4097)),
            ("dma_len", [0, 1000 + mseq, u64::from(u32::MAX)][rng.below(3) as usize]),
            ("mflags", u64::from(is_last) << 6 | u64::from(receive.is_some()) << 5 | rng.below(2) << 7),
            ("imm", rng.below(1 << 32)),
            ("rsn", receive.unwrap_or(0)),
            ("se", rng.below(2)),
            ("complete", u64::from(left == 1)),
            ("error", u64::from(rng.chance(2))),
        ];
        Item::of(&item)
    }
}

fn run(rng: Rng, packets: usize, record: bool) -> Bench {
    let p = params();
    let def = MsgRx::def(&Lib::new(), &p);
    let mut bench = Bench::new(&def, rng);
    if record {
        bench.record(&def);
    }
    bench.random_paces(30);
    let mut conns: Vec<Conn> = vec![];
    for k in 0..4 {
        let base = (MASK - 3 * k) & MASK;
        bench.push("ctx", conn_write(k, base));
        bench.push("ctx", sq_write(k, 0x100 + k));
        conns.push(Conn::opened(base, 0x100 + k));
    }
    bench.settle(60);
    let mut retired = 0;
    for round in 0..packets / 10 {
        // Completions of one connection come in order; those of several interleave.
        let mut expected: Vec<Vec<Item>> = vec![vec![]; 4];
        let mut errors = vec![];
        for _ in 0..10 {
            let k = bench.rng.below(4) as usize;
            let info = conns[k].next_packet(&mut bench.rng, k as u64);
            bench.push("placed", info.clone());
            let (out, n, broken) = conns[k].packet(k as u64, &info);
            expected[k].extend(out);
            retired += n;
            (0..broken).for_each(|_| errors.push((k as u64, u64::from(Status::RemInvReq.code()))));
            if info.0.get("error").is_some_and(|e| e[0] == 1) {
                errors.push((k as u64, u64::from(Status::LocDma.code())));
            }
        }
        // Longer than all messages take to retire, which nothing may show.
        bench.settle(140);
        let mut got: Vec<Vec<Item>> = vec![vec![]; 4];
        bench.take("completion").into_iter().for_each(|c| got[c.get("conn") as usize].push(c));
        assert_eq!(got, expected, "round {round}");
        let mut failed: Vec<_> = bench.take("error").iter().map(|e| (e.get("conn"), e.get("status"))).collect();
        failed.sort_unstable();
        errors.sort_unstable();
        assert_eq!(failed, errors);
        assert_eq!(bench.sim.peek("idle"), 1);
        for (k, conn) in conns.iter_mut().enumerate() {
            conn.shown = conn.base;
            bench.sim.poke("msg_base_conn", k as u64);
            bench.step();
            assert_eq!(bench.sim.peek("msg_base_base"), conn.base);
        }
        if bench.rng.chance(10) {
            // A reset while packets are under way: every message is forgotten, the queues' numbers are kept.
            (0..5).for_each(|k| bench.push("placed", Item::of(&[("conn", k % 4), ("mseq", conns[0].base)])));
            let cycles = bench.rng.below(12);
            bench.steps(cycles);
            bench.reset();
            for (k, conn) in conns.iter_mut().enumerate() {
                let base = bench.rng.below(1 << 24);
                bench.push("ctx", conn_write(k as u64, base));
                *conn = Conn::opened(base, conn.cq);
            }
            bench.settle(60);
            bench.take("completion");
        }
        if bench.rng.chance(15) {
            // The connection is opened again: what it had is forgotten.
            let (k, base) = (bench.rng.below(4), bench.rng.below(1 << 24));
            bench.push("ctx", conn_write(k, base));
            conns[k as usize] = Conn::opened(base, 0x100 + k);
            bench.settle(20);
        }
    }
    assert_eq!(bench.counted(Counter::RxMessages), retired);
    bench
}

#[test]
fn messages_retire_in_order_and_those_with_immediate_data_complete() {
    let mut rng = Rng::new("messages_retire_in_order", 1);
    for _ in 0..4 {
        rng = run(rng, 600, false).rng;
    }
}

#[test]
fn verilator_agrees_with_the_interpreter() {
    let mut bench = run(Rng::new("msg_rx::tests::verilator_agrees_with_the_interpreter", 6), 150, true);
    replay::agrees(&MsgRx::def(&Lib::new(), &params()), &bench.take_trace());
}

#[test]
fn a_packet_costs_three_cycles() {
    let mut bench = Bench::new(&MsgRx::def(&Lib::new(), &params()), Rng::new("a_packet_costs_three_cycles", 1));
    bench.push("ctx", conn_write(0, 0));
    bench.settle(40);
    (0..11).for_each(|_| bench.push("placed", Item::of(&[("mseq", 2)])));
    let start = bench.sim.cycles();
    while bench.waiting("placed") > 0 {
        bench.step();
    }
    assert_eq!(bench.sim.cycles() - start - 1, 30);
}
