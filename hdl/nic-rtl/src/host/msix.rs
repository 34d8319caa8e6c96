//! Interrupt vectors: pending and mask bits (register block `irq`), and the requests that leave the card.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `bus` | [`CsrBus`] | valid/ready | accesses to the block |
//! | `request` | [`IrqRequest`] | valid/ready, always ready | a vector to be raised |
//! | `msix` | [`Msix`] | valid/ready | messages, registered |
//! | `count` | | | `msix_sent_count` |
//!
//! A request sets the vector's pending bit; the message is sent, and the bit cleared, when the vector is not masked.
//! Requests of one vector before its message is sent are one message. A pointer walks over the words of 32 vectors; all
//! vectors of a word that are due when it arrives are served before it walks on, so each waits for no more than 255
//! others. Latency 2 to 10 cycles when nothing waits. Reset clears pending and mask. State: 512 bits. Drops: none.

use super::{bus::CsrBus, regs::serve};
use crate::stream::Count;
use nic_spec::csr::{
    irq::{BLOCK, MASK, PENDING},
    stats::Counter,
};
use rtl_graph::*;

/// Counters that the port `count` can name.
pub const COUNTS: &[Counter] = &[Counter::MsixSent];

/// Bits of a vector number.
pub const VECTOR_BITS: u32 = 8;

record! {
    /// A vector to be raised.
    pub struct IrqRequest { vector: VECTOR_BITS }
}

bundle! {
    /// Request for an MSI-X message, to whatever sends it.
    pub struct Msix { fwd vector: VECTOR_BITS, valid: 1; rev ready: 1 }
}

module! {
    /// The vectors.
    pub struct MsixQueue = "nic_host_msix" () {
        bus: in CsrBus,
        request: in Stream<IrqRequest>,
        msix: out Msix,
        count: out Count,
    } |b| {
        let words = PENDING.count;
        assert_eq!((words, MASK.count), (1 << (VECTOR_BITS - 5), words), "the irq block has a bit a vector");
        let pending: Vec<S> = (0..words).map(|k| b.reg_reset(&format!("pending_{k}"), 32, 0)).collect();
        let served = serve(b, &bus, &BLOCK, &|r, k| (r.name == PENDING.name).then(|| pending[k as usize]));
        let mask = served.values(&MASK);
        let cleared = served.writes(&PENDING);

        let (out_valid, out_vector) = (b.reg_reset("out_valid", 1, 0), b.reg("out_vector", VECTOR_BITS));
        let free = (!out_valid | msix.ready).named("free");
        // The word the pointer is at, and those of its vectors that were due when it arrived.
        let at = b.reg_reset("at", VECTOR_BITS - 5, 0);
        let batch = b.reg_reset("batch", 32, 0);
        let due: Vec<S> = pending.iter().zip(mask).map(|(p, m)| *p & !*m).collect();
        let due = b.pick(at, &due).named("due");
        let serving = batch.any().named("serving");
        let live = (batch & due).named("live");
        let (found, bit) = live.first_one();
        let send = (serving & found & free).named("send");
        let sent = (live.lowest_one() & send.rep(32)).named("sent");
        let rest = serving.mux(live & !sent, due).named("rest");
        at.set_en(rest.is_zero(), at.inc());
        batch.set(rest);

        for (k, p) in pending.iter().enumerate() {
            let here = |hit| S::rep(hit, 32);
            let ours = request.data.vector.high_bits(VECTOR_BITS - 5).eq(k);
            let raised = here(request.valid & ours) & request.data.vector.trunc(5).one_hot(32);
            let gone = (here(at.eq(k)) & sent) | (here(cleared[k]) & served.wdata);
            p.set((*p & !gone) | raised);
        }
        request.ready.set(1);
        out_valid.set_en(free, send);
        out_vector.set_en(send, at.cat(bit));
        msix.valid.set(out_valid);
        msix.vector.set(out_vector);
        count.drive(b, &[(out_valid & msix.ready, Counter::MsixSent)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::bench::*;
    use std::collections::BTreeSet;

    struct Bench {
        sim: Sim,
        rng: Rng,
        sink: Sink,
        counted: u64,
    }

    impl Bench {
        fn new(test: &str, seed: u64) -> Self {
            let mut rng = Rng::new(test, seed);
            let sim = sim(&MsixQueue::def(&Lib::new()), &mut rng);
            let sink = Sink::new(&sim, "msix", &["vector"]);
            Bench { sim, rng, sink, counted: 0 }
        }

        /// Raises vectors, one a cycle, then runs on; gives the messages.
        fn run(&mut self, raise: &[u64], cycles: usize) -> Vec<u64> {
            let mut sent = vec![];
            for k in 0..raise.len() + cycles {
                self.sim.poke("request_valid", (k < raise.len()).into());
                self.sim.poke("request_vector", raise.get(k).copied().unwrap_or_default());
                self.sink.drive(&mut self.sim, &mut self.rng);
                assert_eq!(self.sim.peek("request_ready"), 1);
                self.counted += self.sim.peek("count_valid");
                sent.extend(self.sink.taken(&mut self.sim).map(|w| w[0][0]));
                self.sim.clock();
            }
            self.sim.poke("request_valid", 0);
            self.sim.poke("msix_ready", 0);
            sent
        }

        fn words(&mut self, register: nic_spec::register::Register) -> BTreeSet<u64> {
            let mut set = BTreeSet::new();
            for k in 0..register.count {
                let value = csr_read(&mut self.sim, "bus", register.at(k));
                set.extend((0..32).filter(|bit| value >> bit & 1 == 1).map(|bit| u64::from(32 * k + bit)));
            }
            set
        }

        fn write(&mut self, register: nic_spec::register::Register, set: &BTreeSet<u64>) {
            for k in 0..register.count {
                let bits = set.iter().filter(|v| **v / 32 == u64::from(k)).fold(0, |x, v| x | 1 << (v % 32));
                csr_write(&mut self.sim, "bus", register.at(k), bits);
            }
        }
    }

    #[test]
    fn a_vector_waits_behind_its_mask_and_is_sent_once() {
        for seed in [1, 2, 3] {
            let mut bench = Bench::new("a_vector_waits_behind_its_mask", seed);
            bench.sink.rate = 50;
            let mut waiting = BTreeSet::new();
            let mut total = 0;
            for _ in 0..20 {
                let mask: BTreeSet<u64> = (0..256).filter(|_| bench.rng.chance(40)).collect();
                bench.write(MASK, &mask);
                assert_eq!(bench.words(MASK), mask);
                // Unmasking sends what waited.
                let raise: Vec<u64> = (0..bench.rng.below(40)).map(|_| bench.rng.below(256)).collect();
                let mut sent = bench.run(&raise, 1500);
                total += sent.len() as u64;
                let all: BTreeSet<u64> = waiting.iter().chain(&raise).copied().collect();
                sent.sort_unstable();
                let want: BTreeSet<u64> = all.difference(&mask).copied().collect();
                sent.dedup();
                assert_eq!(sent, want.into_iter().collect::<Vec<_>>());
                waiting = all.intersection(&mask).copied().collect();
                assert_eq!(bench.words(PENDING), waiting);
                // Software may take back what waits.
                let clear: BTreeSet<u64> = (0..256).filter(|_| bench.rng.chance(20)).collect();
                bench.write(PENDING, &clear);
                waiting = waiting.difference(&clear).copied().collect();
                assert_eq!(bench.words(PENDING), waiting);
            }
            assert_eq!(bench.counted, total);
        }
    }

    #[test]
    fn requests_of_one_vector_before_its_message_are_one() {
        let mut bench = Bench::new("requests_of_one_vector", 1);
        bench.sink.rate = 0;
        // Two messages are under way at most: one at the port, one that was raised again behind it.
        assert!(bench.run(&[9; 50], 50).is_empty());
        bench.sink.rate = 100;
        assert_eq!(bench.run(&[], 50), vec![9, 9]);
    }

    #[test]
    fn a_busy_vector_does_not_starve_the_others() {
        let mut bench = Bench::new("a_busy_vector", 1);
        bench.sink.rate = 100;
        let raise: Vec<u64> = (0..600).map(|k| if k == 10 { 200 } else { k % 3 }).collect();
        let sent = bench.run(&raise, 0);
        assert!(sent.iter().position(|v| *v == 200).is_some_and(|at| at < 40), "{sent:?}");
    }
}
