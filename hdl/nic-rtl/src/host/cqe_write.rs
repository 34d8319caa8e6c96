//! Completion queues: writes CQEs into rings in host memory, then raises interrupts.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `completion` × 2 | [`Completion`] | valid/ready | what completed, from sending and from receiving |
//! | `doorbell` | [`Doorbell`] | valid/ready | consumer index of a completion queue, and whether it wants an interrupt |
//! | `ctx` | [`CtxWrite`] | valid/ready | table `cq`; others are taken and ignored |
//! | `conn_read` | [`ConnRead`] | | id of the connection, for the CQE |
//! | `cqe`, `cqe_done` | [`CqeWrite`], [`WriteDone`] | valid/ready | entries to be written; the memory's answers, in order |
//! | `irq` | [`IrqRequest`] | valid/ready | interrupt vectors |
//! | `count` | | | see [`COUNTS`] |
//!
//! A CQE's phase bit is 1 on the ring's first round and flips each round. A completion whose queue is full is lost and
//! counted, and so is one whose queue is not enabled. An armed queue raises its vector once the memory has answered the
//! write of the next CQE, and is then no longer armed. Arming with a consumer index behind a CQE that is already written
//! raises the vector at once: software that arms after it has looked cannot miss one. A doorbell whose index is not
//! between the last one and the producer's, or of a queue that is not enabled, does nothing and counts as bad.
//! Writing a row starts its ring at index 0; answers to entries written before it are ignored.
//!
//! Latency 4 cycles from a completion to `cqe`. One event in 3 cycles, so a CQE in 6: row writes before answers before
//! doorbells before completions. Reset disables all queues. State: 125 bits a queue. Drops: as counted.

use super::{
    msix::{IrqRequest, VECTOR_BITS},
    send_queue::{at, bit_of},
};
use crate::{
    dma::write::{CqeWrite, WriteDone, CQES_ON_THE_WAY},
    params::NicParams,
    prim::{arbiter, fifo},
    stream::{field_of, Completion, ConnContext, ConnRead, Count, CtxWrite, Doorbell, ADDR_BITS, CQ_BITS},
};
use nic_spec::{
    csr::stats::Counter,
    desc::{CqRow, Cqe, Table},
};
use rtl_graph::*;

/// Counters that the port `count` can name.
pub const COUNTS: &[Counter] = &[Counter::CqeWritten, Counter::CqOverflow, Counter::CqeNoQueue, Counter::DoorbellBad];

record! {
    /// What is kept of a queue beside its enable bit.
    struct Ring {
        base: ADDR_BITS,
        log2_size: 4,
        vector: VECTOR_BITS,
        /// CQEs up to here are on their way to memory.
        producer: 16,
        /// CQEs up to here are in memory.
        written: 16,
        /// CQEs up to here were consumed.
        consumer: 16,
        armed: 1,
    }
}

record! {
    /// A CQE on its way to memory.
    struct OnTheWay {
        cq: CQ_BITS,
        /// The queue's life that it belongs to.
        life: 1,
    }
}

module! {
    /// The completion queues.
    pub struct CqeWriter = "nic_host_cqe_write" (params: &NicParams) {
        completion: in Stream<Completion> [2],
        doorbell: in Stream<Doorbell>,
        ctx: in Stream<CtxWrite>,
        conn_read: out ConnRead,
        cqe: out Stream<CqeWrite>,
        cqe_done: in Stream<WriteDone>,
        irq: out Stream<IrqRequest>,
        count: out Count,
    } |b| {
        let (cqs, bits) = (params.cqs, index_bits(params.cqs.into()));
        let (done, _) = arbiter(b, "completions", &completion, None);
        let (enabled, life) = (b.reg_reset("enabled", cqs, 0), b.reg_reset("life", cqs, 0));
        let out_valid = b.reg_reset("out_valid", 1, 0);
        let way_in = Stream {
            data: OnTheWay { cq: b.wire("way_cq", CQ_BITS), life: b.wire("way_life", 1) },
            valid: b.wire("way_valid", 1),
            ready: b.wire("way_ready", 1),
        };
        let way = fifo(b, "way", &way_in, CQES_ON_THE_WAY);

        // An event chooses a row, then the row is weighed, then the event acts on it. None starts that could then not be
        // finished.
        let (weighing, acting) = (b.reg_reset("weighing", 1, 0), b.reg_reset("acting", 1, 0));
        let irq_valid = b.reg_reset("irq_valid", 1, 0);
        let idle = (!weighing & !acting & !irq_valid).named("idle");
        let is_cq = ctx.data.table.eq(Table::Cq as u8);
        let do_ctx = idle & ctx.valid & is_cq;
        let do_answer = idle & !do_ctx & cqe_done.valid & way.valid;
        let do_doorbell = idle & !do_ctx & !do_answer & doorbell.valid;
        let do_cqe = idle & !do_ctx & !do_answer & !do_doorbell & done.valid & !out_valid & way_in.ready;
        weighing.set(do_ctx | do_answer | do_doorbell | do_cqe);
        acting.set(weighing);
        let act_ctx = do_ctx.delay_reset("act_ctx", 2);
        let act_answer = do_answer.delay_reset("act_answer", 2);
        let act_doorbell = do_doorbell.delay_reset("act_doorbell", 2);
        let act_cqe = do_cqe.delay_reset("act_cqe", 2);
        let index = b.select(
            &[
                (do_ctx, ctx.data.index.trunc(bits)),
                (do_answer, way.data.cq.trunc(bits)),
                (do_doorbell, doorbell.data.number.trunc(bits)),
            ],
            done.data.cq.trunc(bits),
        );
        let rows = b.mem("rows", cqs.into(), Ring::width()).zeroed();

        // Weighed: what the row says of each kind of event.
        let weighed = index.delay("weighed", 1);
        let row = Ring::unpack(rows.read(index)).named("row");
        let kept = |name, value| S::delay(value, name, 1);
        let size = b.lit(1, 16).shl_by(row.log2_size).named("size");
        let unconsumed = (row.producer - row.consumer).named("unconsumed");
        let on_the_way = (row.producer - row.written).named("on_the_way");
        let is_enabled = kept("is_enabled", bit_of(enabled, weighed));
        let life_now = kept("life_now", bit_of(life, weighed));
        let is_full = kept("is_full", unconsumed.ge(size));
        // Software may have seen, and consumed, an entry before its answer came.
        let is_news = kept("is_news", on_the_way.dec().lt(unconsumed));
        let is_between = kept("is_between", (doorbell.data.index - row.consumer).le(unconsumed));
        let has_unseen = kept("has_unseen", on_the_way.lt(row.producer - doorbell.data.index));
        let slot = row.producer & size.dec();
        let slot = kept("slot", slot);
        // The bit above the slot counts the rounds. A ring of 2^15 entries has it too.
        let phase = kept("phase", (row.producer & size).is_zero());
        let ring = row.delayed("kept");
        let cq = kept("cq", weighed);
        let here = |on| at(on, cq, cqs);

        // A row is written.
        ctx.ready.set(act_ctx | (ctx.valid & !is_cq));
        let field = |name| field_of(ctx.data.data, CqRow::LAYOUT.field(name));
        let zero = b.zero(16);
        let opened = Ring {
            base: field("base_iova"),
            log2_size: field("log2_size"),
            vector: field("vector"),
            producer: zero,
            written: zero,
            consumer: zero,
            armed: b.low(),
        };
        enabled.set((enabled & !here(act_ctx)) | here(act_ctx & field("enabled")));
        life.set(life ^ here(act_ctx));

        // The memory has answered.
        cqe_done.ready.set(act_answer);
        way.ready.set(act_answer);
        let arrives = (act_answer & way.data.life.eq(life_now)).named("arrives");
        let raised = (arrives & ring.armed & is_news).named("raised");
        let answered = Ring { written: ring.written.inc(), armed: ring.armed & !is_news, ..ring };

        // A doorbell.
        doorbell.ready.set(act_doorbell);
        let is_good = (is_enabled & is_between).named("doorbell_is_good");
        let rung = (act_doorbell & is_good).named("rung");
        let at_once = (rung & doorbell.data.arm & has_unseen).named("at_once");
        let consumed =
            Ring { consumer: doorbell.data.index, armed: ring.armed | (doorbell.data.arm & !has_unseen), ..ring };

        // A completion.
        done.ready.set(act_cqe);
        conn_read.conn.set(done.data.conn);
        let is_there = is_enabled & done.data.cq.eq(cq.zext(CQ_BITS));
        let write = (act_cqe & is_there & !is_full).named("write");
        let produced = Ring { producer: ring.producer.inc(), ..ring };
        let c = &done.data;
        let values = [
            ("qpn", ConnContext::unpack(conn_read.row).local_id),
            ("opcode", c.opcode),
            ("status", c.status),
            ("imm_valid", c.imm_valid),
            ("solicited", c.se),
            ("wqe_index", c.wqe_index),
            ("byte_len", c.byte_len),
            ("imm", c.imm),
            ("phase", phase),
        ];
        let parts: Vec<S> = Cqe::LAYOUT
            .fields
            .iter()
            .rev()
            .map(|f| match values.iter().find(|(name, _)| *name == f.name) {
                Some((_, value)) => *value,
                None => {
                    assert!(f.is_reserved(), "the CQE field {} has no value", f.name);
                    b.zero(f.bits as u32)
                }
            })
            .collect();
        let addr = ring.base + slot.zext(ADDR_BITS).shl(Cqe::LEN.ilog2());
        let entry = CqeWrite { addr, data: b.cat(&parts) };
        cqe.put(out_valid, &entry.reg_en("out", write));
        out_valid.when(cqe.ready, 0);
        out_valid.when(write, 1);
        way_in.data.cq.set(cq.zext(CQ_BITS));
        way_in.data.life.set(life_now);
        way_in.valid.set(write);

        let next = Ring::select(&[(act_ctx, opened), (act_answer, answered), (act_doorbell, consumed)], &produced);
        rows.write(act_ctx | arrives | rung | write, cq, next.pack());
        let raise = raised | at_once;
        irq.put(irq_valid, &IrqRequest { vector: ring.vector }.reg_en("irq", raise));
        irq_valid.when(irq.ready, 0);
        irq_valid.when(raise, 1);
        count.drive(
            b,
            &[
                (write, Counter::CqeWritten),
                (act_cqe & is_there & is_full, Counter::CqOverflow),
                (act_cqe & !is_there, Counter::CqeNoQueue),
                (act_doorbell & !is_good, Counter::DoorbellBad),
            ],
        );
        b.assert("an_entry_has_its_place", !write | way_in.ready);
        b.assert("an_answer_belongs_to_an_entry", !cqe_done.valid | way.valid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::bench::*;
    use nic_spec::{
        desc::{CqRow as Row, Cqe as Entry},
        num::Qpn,
    };
    use std::collections::{BTreeMap, VecDeque};

    const CQS: usize = 4;
    const COMPLETION: [&str; 9] = ["cq", "conn", "opcode", "status", "wqe_index", "byte_len", "imm", "imm_valid", "se"];

    /// Software's view of one queue, and the entries it is to find.
    #[derive(Clone, Default)]
    struct Queue {
        base: u64,
        log2_size: u32,
        /// Entries sent, and not yet consumed, per source: their order is kept within a source only.
        sent: [VecDeque<Vec<u64>>; 2],
        sent_count: u16,
        consumer: u16,
        /// What the card was told.
        told: u16,
        is_armed: bool,
    }

    struct Bench {
        sim: Sim,
        rng: Rng,
        ctx: Source,
        doorbell: Source,
        completion: [Source; 2],
        cqe: Sink,
        cqe_done: Source,
        irq: Sink,
        queues: Vec<Queue>,
        /// Entries issued and not yet in memory, in order.
        issued: VecDeque<(u64, Entry<[u8; 32]>)>,
        memory: BTreeMap<u64, Entry<[u8; 32]>>,
        vectors: Vec<u64>,
        counts: BTreeMap<u64, u64>,
        conn_read: u64,
        memory_rate: u64,
    }

    fn id_of(conn: u64) -> u64 {
        hash(conn) & 0xff_ffff
    }

    impl Bench {
        fn new(test: &str, seed: u64) -> Self {
            let params = NicParams { cqs: CQS as u32, ..NicParams::default() };
            let mut rng = Rng::new(test, seed);
            let sim = sim(&CqeWriter::def(&Lib::new(), &params), &mut rng);
            let mut bench = Bench {
                ctx: Source::new(&sim, "ctx", &["table", "index", "data"]),
                doorbell: Source::new(&sim, "doorbell", &["kind", "number", "index", "arm"]),
                completion: [0, 1].map(|k| Source::new(&sim, &format!("completion_{k}"), &COMPLETION)),
                cqe: Sink::new(&sim, "cqe", &["addr", "data"]),
                cqe_done: Source::new(&sim, "cqe_done", &["error"]),
                irq: Sink::new(&sim, "irq", &["vector"]),
                queues: vec![Queue::default(); CQS],
                issued: VecDeque::new(),
                memory: BTreeMap::new(),
                vectors: vec![],
                counts: BTreeMap::new(),
                conn_read: 0,
                memory_rate: 100,
                sim,
                rng,
            };
            bench.memory_rate = pick(&mut bench.rng, &[5, 30, 100]);
            for source in [&mut bench.cqe_done, &mut bench.doorbell] {
                source.rate = pick(&mut bench.rng, &[10, 50, 100]);
            }
            bench.cqe.rate = pick(&mut bench.rng, &[40, 100]);
            bench.irq.rate = pick(&mut bench.rng, &[40, 100]);
            bench
        }

        fn cycle(&mut self) {
            let (sim, rng) = (&mut self.sim, &mut self.rng);
            let [c0, c1] = &mut self.completion;
            for source in [&mut self.ctx, &mut self.doorbell, &mut self.cqe_done, &mut *c0, &mut *c1] {
                source.drive(sim, rng);
            }
            self.cqe.drive(sim, rng);
            self.irq.drive(sim, rng);
            let mut row = vec![0u64; ConnContext::width().div_ceil(64) as usize];
            let at = ConnContext::layout().place("local_id").0 as usize;
            (0..24)
                .filter(|k| id_of(self.conn_read) >> k & 1 == 1)
                .for_each(|k| row[(at + k) / 64] |= 1 << ((at + k) % 64));
            sim.poke_wide("conn_read_row", &row);
            for source in [&mut self.ctx, &mut self.doorbell, &mut self.cqe_done, c0, c1] {
                source.taken(sim);
            }
            if let Some(w) = self.cqe.taken(sim) {
                self.issued.push_back((w[0][0], Entry(bytes_of(&w[1]).try_into().unwrap())));
                assert!(self.issued.len() + self.cqe_done.queue.len() <= CQES_ON_THE_WAY as usize);
            }
            // The entry lands, and some time later the answer comes.
            if rng.chance(self.memory_rate) {
                if let Some((addr, entry)) = self.issued.pop_front() {
                    self.memory.insert(addr, entry);
                    self.cqe_done.push(vec![word(rng.below(2))]);
                }
            }
            if let Some(w) = self.irq.taken(sim) {
                self.vectors.push(w[0][0]);
            }
            if sim.peek("count_valid") == 1 {
                *self.counts.entry(sim.peek("count_code")).or_default() += 1;
            }
            self.conn_read = sim.peek("conn_read_conn");
            sim.clock();
        }

        fn open(&mut self, cq: usize, log2_size: u32) {
            let base = ((cq as u64 + 1) << 40) + (self.rng.below(1 << 20) << 5);
            self.queues[cq] = Queue { base, log2_size, ..Queue::default() };
            let mut row = Row::zeroed();
            row.set_enabled(true).set_log2_size(log2_size as u8).set_vector(10 + cq as u8).set_base_iova(base);
            self.ctx.push(vec![word(Table::Cq as u64), word(cq as u64), words_of(&row.0)]);
            (0..20).for_each(|_| self.cycle());
        }

        /// Sends any completion to a queue.
        fn send(&mut self, cq: usize) {
            let source = self.rng.below(2) as usize;
            let r = &mut self.rng;
            let fields = [
                cq as u64,
                r.below(16),
                r.below(256),
                r.below(11),
                r.below(1 << 16),
                r.next() & 0xffff_ffff,
                r.next() & 0xffff_ffff,
                r.below(2),
                r.below(2),
            ];
            self.completion[source].push(fields.map(word).to_vec());
            self.queues[cq].sent[source].push_back(fields.to_vec());
            self.queues[cq].sent_count = self.queues[cq].sent_count.wrapping_add(1);
        }

        /// Software looks into a queue; gives the number of entries that it found.
        fn poll(&mut self, cq: usize) -> u64 {
            let q = &mut self.queues[cq];
            let mut found = 0;
            loop {
                let slot = u64::from(q.consumer & ((1 << q.log2_size) - 1));
                let round = q.consumer >> q.log2_size;
                let Some(entry) = self.memory.get(&(q.base + 32 * slot)) else { break };
                if entry.phase() != (round & 1 == 0) {
                    break;
                }
                let fields = |w: &Vec<u64>| {
                    let mut e = Entry::zeroed();
                    e.set_qpn(Qpn::new(id_of(w[1]) as u32)).set_opcode(w[2] as u8).set_status(w[3] as u8);
                    e.set_wqe_index(w[4] as u16).set_byte_len(w[5] as u32).set_imm(w[6] as u32);
                    e.set_imm_valid(w[7] == 1).set_solicited(w[8] == 1).set_phase(entry.phase());
                    e.0
                };
                let from = q.sent.iter().position(|s| s.front().is_some_and(|w| fields(w) == entry.0));
                let Some(from) = from else { panic!("entry {} of queue {cq} was not sent: {:?}", q.consumer, entry.0) };
                q.sent[from].pop_front();
                q.consumer = q.consumer.wrapping_add(1);
                found += 1;
            }
            found
        }

        fn tell(&mut self, cq: usize, arm: bool) {
            let consumer = self.queues[cq].consumer;
            self.doorbell.push([2, cq as u64, consumer.into(), arm.into()].map(word).to_vec());
            self.queues[cq].told = consumer;
            self.queues[cq].is_armed = arm;
        }

        fn counted(&self, counter: Counter) -> u64 {
            self.counts.get(&counter.code().into()).copied().unwrap_or_default()
        }
    }

    #[test]
    fn software_that_sleeps_until_the_interrupt_finds_every_entry() {
        for seed in 1..=6 {
            let mut bench = Bench::new("software_that_sleeps", seed);
            for cq in 0..CQS {
                let log2_size = bench.rng.below(6) as u32;
                bench.open(cq, log2_size);
                bench.tell(cq, true);
            }
            let (mut left, mut sent) = (250, 0);
            for _ in 0..60_000 {
                let cq = bench.rng.below(CQS as u64) as usize;
                let q = &bench.queues[cq];
                if left > 0 && q.sent_count.wrapping_sub(q.told) < 1 << q.log2_size && bench.doorbell.queue.is_empty() {
                    let burst = bench.rng.chance(30);
                    if burst {
                        bench.send(cq);
                        (left, sent) = (left - 1, sent + 1);
                    }
                }
                bench.cycle();
                for vector in std::mem::take(&mut bench.vectors) {
                    let cq = vector as usize - 10;
                    assert!(std::mem::take(&mut bench.queues[cq].is_armed), "an interrupt that nobody asked for");
                    assert!(bench.poll(cq) > 0, "an interrupt without an entry");
                    // At times software takes a while before it arms.
                    for _ in 0..bench.rng.below(30) {
                        bench.cycle();
                    }
                    bench.poll(cq);
                    bench.tell(cq, true);
                }
                if left == 0 && bench.queues.iter().all(|q| q.consumer == q.sent_count) {
                    break;
                }
            }
            let consumed: u64 = bench.queues.iter().map(|q| u64::from(q.consumer)).sum();
            assert_eq!((left, consumed), (0, sent), "seed {seed}");
            assert_eq!(bench.counts, [(Counter::CqeWritten.code().into(), sent)].into());
        }
    }

    #[test]
    fn a_full_queue_loses_what_comes_and_goes_on_when_there_is_room() {
        for log2_size in 0..=6 {
            let mut bench = Bench::new("a_full_queue_loses", log2_size.into());
            bench.open(1, log2_size);
            let size = 1u64 << log2_size;
            for round in 1..4 {
                (0..size + 3).for_each(|_| bench.send(1));
                (0..3000).for_each(|_| bench.cycle());
                assert_eq!(bench.counted(Counter::CqOverflow), 3 * round);
                assert_eq!(bench.counted(Counter::CqeWritten), size * round);
                // Which of the two sources lost is not known: what was written must be a prefix of neither, but in order.
                let q = &mut bench.queues[1];
                q.sent.iter_mut().for_each(|s| s.clear());
                q.consumer = q.consumer.wrapping_add(size as u16);
                q.sent_count = q.consumer;
                bench.tell(1, false);
                (0..100).for_each(|_| bench.cycle());
            }
            let mut slots: Vec<u64> = bench.memory.keys().map(|a| (a - bench.queues[1].base) / 32).collect();
            slots.sort_unstable();
            assert_eq!(slots, (0..size).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_ring_wraps_at_every_size_and_the_index_at_2_pow_16() {
        for log2_size in 0..=15 {
            let mut bench = Bench::new("the_ring_wraps", log2_size.into());
            (bench.memory_rate, bench.cqe_done.rate, bench.doorbell.rate) = (100, 100, 100);
            bench.open(2, log2_size);
            let start = 0u16.wrapping_sub(10);
            let mut row = bench.sim.mem_row("rows", 2);
            for name in ["producer", "written", "consumer"] {
                let at = Ring::layout().place(name).0 as usize;
                (0..16).for_each(|k| {
                    let bit = at + k;
                    row[bit / 64] = row[bit / 64] & !(1 << (bit % 64)) | u64::from(start >> k & 1) << (bit % 64);
                });
            }
            bench.sim.set_mem_row("rows", 2, &row);
            let q = &mut bench.queues[2];
            (q.consumer, q.told, q.sent_count) = (start, start, start);
            let mut left = 40;
            for _ in 0..3000 {
                let q = &bench.queues[2];
                if left > 0 && q.sent_count.wrapping_sub(q.told) < 1 << log2_size && bench.doorbell.queue.is_empty() {
                    bench.send(2);
                    left -= 1;
                }
                bench.cycle();
                if bench.poll(2) > 0 {
                    bench.tell(2, false);
                }
            }
            assert_eq!((left, bench.queues[2].consumer), (0, start.wrapping_add(40)), "ring of 2^{log2_size}");
        }
    }

    #[test]
    fn what_has_no_queue_is_counted() {
        let mut bench = Bench::new("what_has_no_queue", 1);
        bench.open(0, 3);
        bench.send(1);
        let fields = [CQS as u64, 0, 0, 0, 0, 0, 0, 0, 0];
        bench.completion[0].push(fields.map(word).to_vec());
        bench.tell(1, true);
        // An index that the card has not written up to yet.
        bench.queues[0].consumer = 1;
        bench.tell(0, true);
        (0..200).for_each(|_| bench.cycle());
        assert_eq!((bench.counted(Counter::CqeNoQueue), bench.counted(Counter::DoorbellBad)), (2, 2));
        assert!(bench.memory.is_empty() && bench.vectors.is_empty());
    }

    #[test]
    fn a_queue_written_anew_starts_at_its_first_slot() {
        let mut bench = Bench::new("a_queue_written_anew", 1);
        bench.open(3, 2);
        bench.memory_rate = 0;
        (0..3).for_each(|_| bench.send(3));
        (0..100).for_each(|_| bench.cycle());
        // The row is written while three entries are on their way.
        bench.memory.clear();
        let old = bench.queues[3].base;
        bench.open(3, 4);
        bench.memory_rate = 100;
        (0..100).for_each(|_| bench.cycle());
        assert_eq!(bench.memory.len(), 3);
        assert!(bench.memory.keys().all(|a| *a >= old && *a < old + 128));
        bench.tell(3, true);
        bench.send(3);
        (0..200).for_each(|_| bench.cycle());
        assert_eq!((bench.vectors.clone(), bench.poll(3)), (vec![13], 1));
    }

    #[test]
    fn latency_is_as_documented() {
        let mut bench = Bench::new("latency_is_as_documented", 1);
        bench.open(0, 3);
        assert_eq!(cycles_until(&mut bench.sim, &["completion_0_valid"], "cqe_valid"), 4);
    }
}
