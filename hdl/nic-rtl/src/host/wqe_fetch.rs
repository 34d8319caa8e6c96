//! Send queues: fetches WQEs from host memory, checks them and hands them on as messages.
//!
//! ```text
//!  doorbell ─► send_queue (rows, round robin) ─► fetch ─► memory ─► wqe_check ─► message
//!                 ▲      connection in error: no fetch, a flush ──────┘ │  ▲
//!                 └──────── credits: delivered, returned ───────────────┘  └─ MR table
//! ```
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `doorbell` | [`Doorbell`] | valid/ready | new producer index of a send queue |
//! | `ctx` | [`CtxWrite`] | valid/ready | tables `sq` and `conn`; others are taken and ignored |
//! | `credit` | [`TxCredit`] | valid only | the requester is done with a message of this connection |
//! | `conn_error` | `conns` | | connections in error: their WQEs are flushed |
//! | `conn_read` | [`ConnRead`] | | protection domain of the connection |
//! | `fetch`, `wqe` | [`DmaRead`], [`ReadBeat`] | valid/ready | 64 bytes each, answered in order |
//! | `lookup`, `verdict` | [`MrLookup`], [`MrResult`] | valid/ready | check of local memory, answered in order |
//! | `message` | [`TxMessage`] | valid/ready | messages; those of a connection in the order of its WQEs |
//! | `count` × 3 | | | see [`COUNTS`] |
//!
//! Every message, good or not, takes the next MSEQ; a good WRITE_IMM also takes the next RSN. After a bad one all that
//! follow on the connection are flushed until its `conn` row is written; so are those of a connection in error.
//! A doorbell counts as bad, and does nothing, when the queue is not enabled or the index is beyond the ring's size after
//! what was fetched; one that repeats or falls behind the last one changes nothing.
//! Writing the `conn` row disables the queue until the `sq` row is written, which starts it at index 0. WQEs on the way
//! at either write are forgotten. The requester must get the `conn` row after this block.
//!
//! Latency 15 cycles and the memory's. Throughput 1 WQE in 4 cycles. Reset disables all queues. State: see the two parts.
//! Drops: as counted.

use super::{send_queue::SendQueues, wqe_check::WqeCheck};
use crate::{
    params::NicParams,
    stream::{ConnRead, Count, CtxWrite, DmaRead, Doorbell, MrLookup, MrResult, ReadBeat, TxCredit, TxMessage},
};
use nic_spec::csr::stats::Counter;
use rtl_graph::*;

/// Counters that each of the ports `count` can name.
pub const COUNTS: [&[Counter]; 3] =
    [&[Counter::DoorbellBad], &[Counter::WqeFetched], &[Counter::WqeBad, Counter::WqeFlushed]];

module! {
    /// The send queues.
    pub struct WqeFetch = "nic_host_wqe_fetch" (params: &NicParams) {
        doorbell: in Stream<Doorbell>,
        ctx: in Stream<CtxWrite>,
        credit: in TxCredit,
        conn_error: in Uint(params.conns),
        conn_read: out ConnRead,
        fetch: out Stream<DmaRead>,
        wqe: in Stream<ReadBeat>,
        lookup: out Stream<MrLookup>,
        verdict: in Stream<MrResult>,
        message: out Stream<TxMessage>,
        count: out Count [COUNTS.len()],
    } |b| {
        let queues = SendQueues::at(b, "queues", params);
        let check = WqeCheck::at(b, "check", params);
        b.connect(&doorbell, &queues.doorbell);
        b.connect(&queues.fetch, &fetch);
        b.connect(&queues.entry, &check.entry);
        b.connect(&wqe, &check.wqe);
        b.connect(&check.conn_read, &conn_read);
        b.connect(&check.lookup, &lookup);
        b.connect(&verdict, &check.verdict);
        b.connect(&check.message, &message);
        b.connect(&queues.life, &check.life);
        check.conn_error.set(conn_error);
        queues.stop.set(conn_error | check.failed);
        b.connect(&check.delivered, &queues.delivered);
        b.connect(&check.forgotten, &queues.forgotten);
        b.connect(&check.reopened, &queues.reopened);
        queues.returned.valid.set(credit.valid);
        queues.returned.conn.set(credit.conn);
        b.connect(&queues.count, &count[0]);
        b.connect(&check.count[0], &count[1]);
        b.connect(&check.count[1], &count[2]);

        // A row goes to the queues first: what the check then still gets of the life before, it forgets.
        let is_past_queues = b.reg_reset("is_past_queues", 1, 0);
        queues.ctx.put(ctx.valid & !is_past_queues, &ctx.data);
        check.ctx.put(ctx.valid & is_past_queues, &ctx.data);
        ctx.ready.set(is_past_queues & check.ctx.ready);
        is_past_queues.when(queues.ctx.fire(), 1);
        is_past_queues.when(check.ctx.fire(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::send_queue::Queue, *};
    use crate::{dma::bench::*, stream::ConnContext};
    use nic_spec::{
        desc::{ConnRow, SqRow, Status, Table, Wqe, WqeOpcode},
        num::{Lkey, Msn, Pd, Qpn, Rkey, Rsn},
    };

    use std::collections::{BTreeMap, VecDeque};

    const CONNS: usize = 4;
    const MESSAGE: [&str; 15] = [
        "conn",
        "wqe_index",
        "opcode",
        "imm_valid",
        "se",
        "fence",
        "signaled",
        "len",
        "iova",
        "remote_va",
        "rkey",
        "imm",
        "mseq",
        "rsn",
        "status",
    ];

    /// The reference's view of one connection.
    #[derive(Clone, Default)]
    struct Conn {
        pd: u32,
        base: u64,
        log2_size: u32,
        mseq: u32,
        rsn: u32,
        posted: u16,
        /// Messages that came out.
        done: u16,
        /// Messages that the requester holds.
        held: u64,
        failed: bool,
        is_open: bool,
        wqes: VecDeque<Wqe<[u8; 64]>>,
    }

    /// A region permits what its key's low byte says; its bytes are at the address with all bits of `hash(lkey)` flipped.
    fn permits(lkey: u32, pd: u32) -> bool {
        lkey & 0xff != 0xbd && (lkey >> 8 & 0xff) == pd
    }

    fn iova(lkey: u32, va: u64) -> u64 {
        va ^ hash(lkey.into())
    }

    fn read_fails(addr: u64, w: &Wqe<[u8; 64]>) -> bool {
        hash(addr ^ w.local_va()).is_multiple_of(40)
    }

    struct Bench {
        sim: Sim,
        rng: Rng,
        ctx: Source,
        doorbell: Source,
        fetch: Sink,
        wqe: Source,
        lookup: Sink,
        verdict: Source,
        message: Sink,
        conns: Vec<Conn>,
        memory: BTreeMap<u64, Wqe<[u8; 64]>>,
        counts: BTreeMap<u64, u64>,
        statuses: BTreeMap<u64, u64>,
        conn_read: u64,
    }

    impl Bench {
        fn new(test: &str, seed: u64) -> Self {
            let params = NicParams { conns: CONNS as u32, ..NicParams::default() };
            let mut rng = Rng::new(test, seed);
            let sim = sim(&WqeFetch::def(&Lib::new(), &params), &mut rng);
            let mut bench = Bench {
                ctx: Source::new(&sim, "ctx", &["table", "index", "data"]),
                doorbell: Source::new(&sim, "doorbell", &["kind", "number", "index", "arm"]),
                fetch: Sink::new(&sim, "fetch", &["addr", "len"]),
                wqe: Source::new(&sim, "wqe", &["data", "keep", "last", "error"]),
                lookup: Sink::new(&sim, "lookup", &["rkey", "va", "len", "pd", "access"]),
                verdict: Source::new(&sim, "verdict", &["ok", "reason", "iova"]),
                message: Sink::new(&sim, "message", &MESSAGE),
                conns: vec![Conn::default(); CONNS],
                memory: BTreeMap::new(),
                counts: BTreeMap::new(),
                statuses: BTreeMap::new(),
                conn_read: 0,
                sim,
                rng,
            };
            for sink in [&mut bench.fetch, &mut bench.lookup, &mut bench.message] {
                sink.rate = pick(&mut bench.rng, &[40, 100]);
            }
            for source in [&mut bench.wqe, &mut bench.verdict] {
                source.rate = pick(&mut bench.rng, &[30, 100]);
            }
            bench
        }

        /// One clock.
        fn cycle(&mut self) {
            let (sim, rng) = (&mut self.sim, &mut self.rng);
            for source in [&mut self.ctx, &mut self.doorbell, &mut self.wqe, &mut self.verdict] {
                source.drive(sim, rng);
            }
            for sink in [&mut self.fetch, &mut self.lookup, &mut self.message] {
                sink.drive(sim, rng);
            }
            // The connection table: the row of the index of the cycle before.
            let conn = &self.conns[self.conn_read as usize % CONNS];
            let layout = ConnContext::layout();
            let (valid_at, pd_at) = (layout.place("valid").0, layout.place("pd").0);
            let mut row = vec![0u64; ConnContext::width().div_ceil(64) as usize];
            row[valid_at as usize / 64] |= 1 << (valid_at % 64);
            (0..24).filter(|k| conn.pd >> k & 1 == 1).for_each(|k| {
                row[(pd_at + k) as usize / 64] |= 1 << ((pd_at + k) % 64);
            });
            sim.poke_wide("conn_read_row", &row);
            // A credit for something that the requester holds.
            let holders: Vec<usize> = (0..CONNS).filter(|c| self.conns[*c].held > 0).collect();
            let returns = (!holders.is_empty() && rng.chance(30)).then(|| pick(rng, &holders));
            sim.poke("credit_valid", returns.is_some().into());
            sim.poke("credit_conn", returns.unwrap_or_default() as u64);

            self.doorbell.taken(sim);
            self.wqe.taken(sim);
            self.verdict.taken(sim);
            let row = self.ctx.queue.front().cloned();
            if self.ctx.taken(sim) {
                let row = row.unwrap_or_default();
                let conn = &mut self.conns[row[1][0] as usize % CONNS];
                if row[0][0] == Table::Conn as u64 {
                    // The requester gets the row next, and forgets.
                    conn.held = 0;
                    conn.is_open = false;
                } else if row[0][0] == Table::Sq as u64 {
                    conn.is_open = true;
                }
            }
            if let Some(c) = returns.filter(|c| self.conns[*c].held > 0) {
                self.conns[c].held -= 1;
            }
            if let Some(w) = self.fetch.taken(sim) {
                assert_eq!(w[1][0], 64);
                let addr = w[0][0];
                let wqe =
                    self.memory.get(&addr).copied().unwrap_or_else(|| panic!("fetched {addr:#x}, where no WQE is"));
                let error = u64::from(read_fails(addr, &wqe));
                self.wqe.push(vec![words_of(&wqe.0), word(u64::MAX), word(1), word(error)]);
            }
            if let Some(w) = self.lookup.taken(sim) {
                assert!(w[2][0] != 0 && w[4][0] == 0);
                let (lkey, va, pd) = (w[0][0] as u32, w[1][0], w[3][0] as u32);
                let ok = permits(lkey, pd);
                let place = if ok { iova(lkey, va) } else { 0x00bad };
                self.verdict.push([ok.into(), if ok { 0 } else { 2 }, place].map(word).to_vec());
            }
            if let Some(w) = self.message.taken(sim) {
                let got: Vec<u64> = w.iter().map(|x| x[0]).collect();
                self.check_message(&got);
            }
            for (k, list) in COUNTS.iter().enumerate() {
                if self.sim.peek(&format!("count_{k}_valid")) == 1 {
                    let code = self.sim.peek(&format!("count_{k}_code"));
                    assert!(list.iter().any(|c| u64::from(c.code()) == code));
                    *self.counts.entry(code).or_default() += 1;
                }
            }
            self.conn_read = self.sim.peek("conn_read_conn");
            self.sim.clock();
        }

        fn check_message(&mut self, got: &[u64]) {
            let c = got[0] as usize;
            let conn = &mut self.conns[c];
            assert!(conn.is_open, "a message of a closed connection");
            let w = conn.wqes.pop_front().unwrap_or_else(|| panic!("a message of {c} that was not posted"));
            let addr = conn.base + 64 * u64::from(conn.done & ((1 << conn.log2_size) - 1));
            let reserved = (w.0[1] >> 3) | w.0[2] | w.0[3] | w.0[36..].iter().fold(0, |x, b| x | b);
            let status = if conn.failed {
                Status::WrFlush
            } else if read_fails(addr, &w) {
                Status::LocDma
            } else if w.opcode() > 1 || reserved != 0 {
                Status::LocQpOp
            } else if w.length() > 0x8000_0000 {
                Status::LocLen
            } else if w.length() != 0 && !permits(w.lkey().get(), conn.pd) {
                Status::LocProt
            } else {
                Status::Ok
            };
            *self.statuses.entry(status as u64).or_default() += 1;
            let is_imm = w.opcode() == WqeOpcode::WriteImm as u8;
            assert_eq!(
                (got[0], got[1], got[12], got[14]),
                (c as u64, conn.done.into(), conn.mseq.into(), status as u64)
            );
            if status == Status::Ok {
                let place = if w.length() == 0 { 0 } else { iova(w.lkey().get(), w.local_va()) };
                let rsn = if is_imm { conn.rsn } else { 0 };
                let flags = [is_imm, w.solicited(), w.fence(), w.signaled()].map(u64::from);
                assert_eq!(got[2..7], [&[u64::from(w.opcode())], &flags[..]].concat());
                assert_eq!(got[7..9], [u64::from(w.length()), place]);
                assert_eq!(got[9..12], [w.remote_va(), w.rkey().get().into(), w.imm().into()]);
                assert_eq!(got[13], u64::from(rsn));
                conn.rsn = (conn.rsn + u32::from(is_imm)) & 0xff_ffff;
            }
            conn.failed |= status != Status::Ok;
            conn.mseq = (conn.mseq + 1) & 0xff_ffff;
            conn.done = conn.done.wrapping_add(1);
            conn.held += 1;
            assert!(conn.held <= 2, "more messages of {c} than credits");
        }

        fn settle(&mut self) {
            for _ in 0..20 {
                while !(self.ctx.queue.is_empty() && self.doorbell.queue.is_empty()) {
                    self.cycle();
                }
                self.cycle();
            }
        }

        /// Writes the rows of a connection; from then on it is a new one.
        fn open(&mut self, c: usize, log2_size: u32) {
            let conn = Conn {
                pd: 1 + c as u32,
                base: ((c as u64 + 1) << 32) + (self.rng.below(1 << 20) << 6),
                log2_size,
                mseq: pick(&mut self.rng, &[0, 0xff_fffe, 77]),
                rsn: pick(&mut self.rng, &[0, 0xff_ffff, 5]),
                ..Conn::default()
            };
            let mut row = ConnRow::zeroed();
            row.set_valid(true).set_local_id(Qpn::new(c as u32)).set_pd(Pd::new(conn.pd));
            row.set_init_msn(Msn::new(conn.mseq)).set_init_rsn(Rsn::new(conn.rsn));
            self.ctx.push(vec![word(Table::Conn as u64), word(c as u64), words_of(&row.0)]);
            self.settle();
            self.conns[c] = conn.clone();
            let mut row = SqRow::zeroed();
            row.set_enabled(true).set_log2_size(log2_size as u8).set_base_iova(conn.base);
            self.ctx.push(vec![word(Table::Sq as u64), word(c as u64), words_of(&row.0)]);
            self.settle();
        }

        fn post(&mut self, c: usize, wqe: Wqe<[u8; 64]>) {
            let conn = &mut self.conns[c];
            let slot = u64::from(conn.posted & ((1 << conn.log2_size) - 1));
            self.memory.insert(conn.base + 64 * slot, wqe);
            conn.wqes.push_back(wqe);
            conn.posted = conn.posted.wrapping_add(1);
        }

        fn ring(&mut self, c: usize, index: u16) {
            self.doorbell.push([0, c as u64, index.into(), 0].map(word).to_vec());
        }

        fn room(&self, c: usize) -> u16 {
            (1 << self.conns[c].log2_size) - self.conns[c].posted.wrapping_sub(self.conns[c].done)
        }

        fn any_wqe(&mut self, c: usize, bad_percent: u64) -> Wqe<[u8; 64]> {
            let rng = &mut self.rng;
            let mut w = Wqe::zeroed();
            let any = rng.next() as u32 & 0xffff;
            w.set_opcode(rng.below(2) as u8).set_signaled(rng.chance(50)).set_solicited(rng.chance(50));
            w.set_fence(rng.chance(50)).set_length(pick(rng, &[0, 1, 4096, any, 0x8000_0000]));
            w.set_local_va(rng.next())
                .set_lkey(Lkey::new((1 + c as u32) << 8 | 7))
                .set_rkey(Rkey::new(rng.next() as u32));
            w.set_remote_va(rng.next()).set_imm(rng.next() as u32);
            while read_fails(0, &w) {
                w.set_local_va(rng.next());
            }
            if rng.chance(bad_percent) {
                match rng.below(6) {
                    0 => _ = w.set_opcode(2 + rng.below(254) as u8),
                    1 => w.0[1 + rng.below(3) as usize] |= 0xf8,
                    2 => w.0[36 + rng.below(28) as usize] = 1 << rng.below(8),
                    3 => _ = w.set_length(0x8000_0001 + (rng.next() as u32 >> 2)),
                    4 => _ = w.set_lkey(Lkey::new((1 + c as u32) << 8 | 0xbd)).set_length(1),
                    _ => _ = w.set_lkey(Lkey::new(99 << 8)).set_length(9),
                }
            }
            w
        }
    }

    #[test]
    fn every_wqe_becomes_a_message_in_order_with_its_status() {
        for seed in [1, 2, 3] {
            let mut bench = Bench::new("every_wqe_becomes_a_message", seed);
            for c in 0..CONNS {
                let log2_size = bench.rng.below(7) as u32;
                bench.open(c, log2_size);
            }
            let mut reopened = 0;
            for _ in 0..6000 {
                let c = bench.rng.below(CONNS as u64) as usize;
                // A connection that has failed is opened anew, at times with WQEs on the way.
                let is_due = bench.conns[c].failed && bench.rng.chance(10);
                if is_due || bench.rng.below(3000) == 0 {
                    let log2_size = bench.rng.below(7) as u32;
                    bench.open(c, log2_size);
                    reopened += 1;
                }
                if bench.doorbell.queue.is_empty() && bench.rng.chance(30) {
                    let batch = bench.rng.below(4).min(bench.room(c).into());
                    for _ in 0..batch {
                        let w = bench.any_wqe(c, 3);
                        bench.post(c, w);
                    }
                    let posted = bench.conns[c].posted;
                    bench.ring(c, posted);
                    // An older doorbell may be overtaken by a newer one.
                    if bench.rng.chance(20) && batch > 0 {
                        bench.ring(c, posted.wrapping_sub(1));
                    }
                }
                bench.cycle();
            }
            (0..3000).for_each(|_| bench.cycle());
            for (c, conn) in bench.conns.iter().enumerate() {
                assert_eq!(conn.wqes.len(), 0, "{} WQEs of {c} were not handed on", conn.wqes.len());
            }
            let counted = |c: Counter| bench.counts.get(&u64::from(c.code())).copied().unwrap_or_default();
            let ended = |s: Status| bench.statuses.get(&(s as u64)).copied().unwrap_or_default();
            let all: u64 = bench.statuses.values().sum();
            println!("{reopened} reopened, statuses {:?}", bench.statuses);
            assert!(reopened > 5 && all > 200 && bench.statuses.len() >= 5);
            // What was on the way at a reopening was fetched, and neither bad nor flushed.
            assert!(counted(Counter::WqeFetched) >= all - ended(Status::WrFlush));
            assert_eq!(counted(Counter::WqeFlushed), ended(Status::WrFlush));
            assert_eq!(counted(Counter::WqeBad), all - ended(Status::Ok) - ended(Status::WrFlush));
        }
    }

    #[test]
    fn the_ring_wraps_at_every_size_and_the_index_at_2_pow_16() {
        for log2_size in 0..=15 {
            let mut bench = Bench::new("the_ring_wraps", log2_size.into());
            for sink in [&mut bench.fetch, &mut bench.lookup, &mut bench.message] {
                sink.rate = 100;
            }
            (bench.wqe.rate, bench.verdict.rate) = (100, 100);
            bench.open(1, log2_size);
            // Both indices shortly before the wrap of the index, which is also one of the ring.
            let start = 0u16.wrapping_sub(20);
            let at = |name| Queue::layout().place(name).0;
            let mut row = bench.sim.mem_row("queues.rows", 1);
            for (name, value) in [("producer", start), ("fetched", start)] {
                (0..16).for_each(|k| {
                    let bit = (at(name) + k) as usize;
                    row[bit / 64] = row[bit / 64] & !(1 << (bit % 64)) | u64::from(value >> k & 1) << (bit % 64);
                });
            }
            bench.sim.set_mem_row("queues.rows", 1, &row);
            (bench.conns[1].posted, bench.conns[1].done) = (start, start);
            let mut left = 60;
            for _ in 0..3000 {
                if left > 0 && bench.room(1) > 0 && bench.doorbell.queue.is_empty() {
                    let mut w = bench.any_wqe(1, 0);
                    let slot = u64::from(bench.conns[1].posted & ((1 << log2_size) - 1));
                    while read_fails(bench.conns[1].base + 64 * slot, &w) {
                        w = bench.any_wqe(1, 0);
                    }
                    bench.post(1, w);
                    let posted = bench.conns[1].posted;
                    bench.ring(1, posted);
                    left -= 1;
                }
                bench.cycle();
            }
            assert_eq!((left, bench.conns[1].done), (0, start.wrapping_add(60)), "ring of 2^{log2_size}");
        }
    }

    #[test]
    fn a_connection_in_error_is_flushed_without_a_fetch() {
        let mut bench = Bench::new("a_connection_in_error", 1);
        bench.open(2, 4);
        bench.sim.poke("conn_error", 1 << 2);
        bench.conns[2].failed = true;
        for _ in 0..8 {
            let w = bench.any_wqe(2, 0);
            bench.post(2, w);
        }
        bench.memory.clear();
        bench.ring(2, 8);
        (0..400).for_each(|_| bench.cycle());
        assert_eq!(bench.conns[2].done, 8);
        assert_eq!(bench.counts, [(Counter::WqeFlushed.code().into(), 8)].into());
    }

    #[test]
    fn a_doorbell_out_of_place_is_counted_and_does_nothing() {
        let mut bench = Bench::new("a_doorbell_out_of_place", 1);
        bench.ring(3, 1);
        (0..20).for_each(|_| bench.cycle());
        bench.open(3, 2);
        bench.ring(3, 5);
        bench.ring(3, 0xffff);
        (0..200).for_each(|_| bench.cycle());
        assert_eq!(bench.counts, [(Counter::DoorbellBad.code().into(), 3)].into());
        assert_eq!(bench.conns[3].done, 0);
        (0..4).for_each(|_| {
            let w = bench.any_wqe(3, 0);
            bench.post(3, w);
        });
        bench.ring(3, 4);
        (0..400).for_each(|_| bench.cycle());
        assert_eq!(bench.conns[3].done, 4);
    }

    #[test]
    fn every_connection_gets_its_turn() {
        let mut bench = Bench::new("every_connection_gets_its_turn", 1);
        for c in 0..CONNS {
            bench.open(c, 6);
            for _ in 0..60 {
                let w = bench.any_wqe(c, 0);
                bench.post(c, w);
            }
            bench.ring(c, 60);
        }
        (0..1200).for_each(|_| bench.cycle());
        let done: Vec<u16> = bench.conns.iter().map(|c| c.done).collect();
        let (least, most) = (done.iter().min().unwrap(), done.iter().max().unwrap());
        assert!(*least > 10 && most - least <= 4, "{done:?}");
    }

    #[test]
    fn latency_is_as_documented() {
        let mut bench = Bench::new("latency_is_as_documented", 1);
        for sink in [&mut bench.fetch, &mut bench.lookup, &mut bench.message] {
            sink.rate = 0;
        }
        bench.open(0, 3);
        bench.sim.poke("doorbell_index", 1);
        bench.sim.poke("doorbell_number", 0);
        // The doorbell stands until it is taken.
        bench.sim.poke("doorbell_valid", 1);
        let mut cycles = 0;
        while bench.sim.peek("fetch_valid") == 0 {
            let taken = bench.sim.peek("doorbell_ready") == 1;
            bench.sim.clock();
            if taken {
                bench.sim.poke("doorbell_valid", 0);
            }
            cycles += 1;
        }
        assert_eq!(cycles, 7);
        // The memory's answer; a WQE of no bytes asks for no memory region.
        bench.sim.clocks(3);
        bench.sim.poke_wide("wqe_data", &[0; 8]);
        let to_message = cycles_until(&mut bench.sim, &["wqe_valid"], "message_valid");
        assert_eq!(to_message, 5);
    }
}
