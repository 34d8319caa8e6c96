//! Register block `stats`: a 64-bit counter for each row of the counter table.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `count` × n | [`Count`] | valid only | events; a port names only the counters of its list |
//! | `bus` | [`CsrBus`] | valid/ready | reads of the counters |
//!
//! Events add up in a narrow register a counter; a pointer walks over all counters, one a cycle, and moves what has added
//! up into a RAM of 64-bit values. So an event can be read [`settle_cycles`] later at the latest, and none is lost at any
//! rate. Reading a low word latches the high word of the same counter; a high word reads what was latched last.
//! An access takes two cycles, the first after reset waits for the first walk. Reset clears all counters.
//! State: 64 bits a counter in RAM, 9 to 24 bits a counter in registers. Drops: none.

use super::bus::CsrBus;
use crate::stream::Count;
use nic_spec::csr::{
    stats::{Counter, BLOCK, COUNTERS},
    BLOCK_BYTES,
};
use rtl_graph::*;

/// Which counters each `count` port can name.
#[derive(Clone, Debug)]
pub struct CountLists(pub Vec<Vec<Counter>>);

impl ModuleParam for CountLists {
    fn tag(&self) -> String {
        debug_hash(self)
    }
}

/// Cycles after which an event is in the value that a read gives.
pub fn settle_cycles() -> u64 {
    COUNTERS.len() as u64 + 3
}

/// Most that one event of a counter adds.
fn amount_max(counter: Counter) -> u64 {
    if counter.info().registers[0].unit == "bytes" {
        0xffff
    } else {
        1
    }
}

module! {
    /// The counters.
    pub struct Stats = "nic_host_stats" (lists: &CountLists) {
        count: in Count [lists.0.len()],
        bus: in CsrBus,
    } |b| {
        let n = COUNTERS.len() as u64;
        let bits = index_bits(n);
        // The walk.
        let walk = b.reg_reset("walk", bits, 0);
        let wraps = walk.eq(n - 1);
        walk.set(wraps.mux(0, walk.inc()));
        // The RAM holds nothing of use until each row was written once.
        let is_primed = b.reg_reset("is_primed", 1, 0);
        is_primed.when(wraps, 1);

        let events: Vec<Count> = count
            .iter()
            .enumerate()
            .map(|(k, c)| Count {
                valid: c.valid.delay_reset(&format!("e{k}_valid"), 1),
                code: c.code.delay(&format!("e{k}_code"), 1),
                amount: c.amount.delay(&format!("e{k}_amount"), 1),
            })
            .collect();
        let gathered: Vec<S> = COUNTERS.iter().enumerate().map(|(k, info)| {
            let counter = info.counter;
            let sources: Vec<&Count> =
                events.iter().zip(&lists.0).filter(|(_, list)| list.contains(&counter)).map(|(e, _)| e).collect();
            if sources.is_empty() {
                return b.zero(1);
            }
            let amount_bits = count_bits(amount_max(counter));
            let width = count_bits(amount_max(counter) * sources.len() as u64 * (n + 1));
            let parts: Vec<S> = sources
                .iter()
                .map(|e| {
                    let hit = e.valid & e.code.eq(counter.code());
                    (hit.rep(amount_bits) & e.amount.trunc(amount_bits)).zext(width)
                })
                .collect();
            let now = b.tree(&parts, |x, y| x + y);
            let sum = b.reg_reset(&format!("sum_{}", info.name), width, 0);
            sum.set(walk.eq(k as u64).mux(now, sum + now));
            sum
        }).collect();
        let widest = gathered.iter().map(|s| s.width()).max().unwrap_or(1);
        let gathered: Vec<S> = gathered.iter().map(|s| s.zext(widest)).collect();

        // s1: the counter's value and what has gathered for it.
        let mem = b.mem("values", n, 64).style(RamStyle::Distributed).zeroed();
        let s1_amount = b.pick(walk, &gathered).delay("s1_amount", 1);
        let s1_index = walk.delay("s1_index", 1);
        let s1_valid = b.high().delay_reset("s1_valid", 1);
        let s1_old = is_primed.delay("s1_old", 1).rep(64) & mem.read(walk);
        mem.write(s1_valid, s1_index, s1_old + s1_amount.zext(64));

        // Reads.
        let word = bus.addr.bits(2, index_bits((BLOCK_BYTES / 4).into()));
        let first = u64::from((COUNTERS[0].counter.address() - BLOCK.base) / 4);
        assert!(first % 2 == 0 && COUNTERS[0].counter.code() == 1, "a counter's words share all address bits but one");
        let is_counter = word.ge(first) & word.lt(first + 2 * n);
        let header: Vec<(S, S)> = BLOCK
            .registers
            .iter()
            .filter(|r| r.address < COUNTERS[0].counter.address())
            .map(|r| (word.eq((r.address - BLOCK.base) / 4), b.lit(r.reset.into(), 32)))
            .collect();
        let is_header = b.or_tree(&header.iter().map(|h| h.0).collect::<Vec<_>>());
        let value = mem.read((word.high_bits(word.width() - 1) - first / 2).resize(bits));
        let done = b.reg_reset("done", 1, 0);
        let access = (bus.valid & !done & is_primed).named("access");
        done.set(access);
        let is_high = word.bit(0);
        let (latched, answer) = (b.reg("latched", 32), b.reg("header", 32));
        answer.set_en(access, b.one_hot_select(&header));
        latched.set_en(done & !bus.write & is_counter & !is_high, value.high_bits(32));
        bus.ready.set(done);
        bus.rdata.set(is_counter.mux(is_high.mux(latched, value.trunc(32)), answer));
        bus.error.set(!is_counter & !is_header);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::bench::*;

    fn read(sim: &mut Sim, counter: Counter) -> u64 {
        let low = csr_read(sim, "bus", counter.address());
        u64::from(csr_read(sim, "bus", counter.address() + 4)) << 32 | u64::from(low)
    }

    #[test]
    fn every_event_is_counted_at_any_rate() {
        let lists = CountLists(vec![
            vec![Counter::RxFrames, Counter::RxBytes, Counter::RxBadIcrc],
            vec![Counter::RxBytes, Counter::CtxBad],
            vec![Counter::RxMacError, Counter::CqeNoQueue, Counter::RxBadIcrc, Counter::RxBytes],
        ]);
        let mut rng = Rng::new("every_event_is_counted", 1);
        let mut sim = sim(&Stats::def(&Lib::new(), &lists), &mut rng);
        let mut want = vec![0u64; COUNTERS.len()];
        for cycle in 0..2000 {
            for (k, list) in lists.0.iter().enumerate() {
                // All ports at their limit for a while, then anything, then silence.
                let counter = if cycle < 800 { list[1] } else { pick(&mut rng, list) };
                let is_bytes = counter == Counter::RxBytes;
                let most = if is_bytes { 0xffff } else { 1 };
                let amount = if cycle < 800 || !is_bytes { most } else { rng.below(0x10000) };
                let valid = cycle < 1900 && (cycle < 800 || rng.chance(60));
                sim.poke(&format!("count_{k}_valid"), valid.into());
                sim.poke(&format!("count_{k}_code"), counter.code().into());
                sim.poke(&format!("count_{k}_amount"), amount);
                want[counter as usize] += if valid { amount } else { 0 };
            }
            sim.clock();
        }
        for info in COUNTERS {
            assert_eq!(read(&mut sim, info.counter), want[info.counter as usize], "{}", info.name);
        }
    }

    #[test]
    fn an_event_can_be_read_after_the_stated_time() {
        let lists = CountLists(vec![vec![Counter::RxFrames]]);
        let mut rng = Rng::new("an_event_can_be_read", 1);
        let def = Stats::def(&Lib::new(), &lists);
        for start in 0..COUNTERS.len() as u64 {
            let mut sim = sim(&def, &mut rng);
            sim.clocks(200 + start);
            sim.poke("count_0_code", Counter::RxFrames.code().into());
            sim.poke("count_0_amount", 1);
            sim.poke("count_0_valid", 1);
            sim.clock();
            sim.poke("count_0_valid", 0);
            sim.clocks(settle_cycles() - 1);
            assert_eq!(read(&mut sim, Counter::RxFrames), 1, "start {start}");
        }
    }

    #[test]
    fn the_low_word_latches_the_high_word() {
        let lists = CountLists(vec![vec![Counter::RxBytes]]);
        let mut rng = Rng::new("the_low_word_latches", 1);
        let mut sim = sim(&Stats::def(&Lib::new(), &lists), &mut rng);
        sim.clocks(100);
        sim.set_mem_row("values", Counter::RxBytes as u64, &[0x1234_ffff_ffff]);
        assert_eq!(csr_read(&mut sim, "bus", Counter::RxBytes.address()), 0xffff_ffff);
        sim.poke("count_0_code", Counter::RxBytes.code().into());
        sim.poke("count_0_amount", 3);
        sim.poke("count_0_valid", 1);
        sim.clock();
        sim.poke("count_0_valid", 0);
        sim.clocks(100);
        assert_eq!(csr_read(&mut sim, "bus", Counter::RxBytes.address() + 4), 0x1234);
        assert_eq!(read(&mut sim, Counter::RxBytes), 0x1235_0000_0002);
    }

    #[test]
    fn reset_clears_and_only_the_tables_registers_are_there() {
        let mut rng = Rng::new("reset_clears", 1);
        let mut sim = sim(&Stats::def(&Lib::new(), &CountLists(vec![vec![Counter::RxBytes]])), &mut rng);
        sim.clocks(100);
        sim.set_mem_row("values", Counter::RxBytes as u64, &[77]);
        sim.reset(1);
        assert_eq!(read(&mut sim, Counter::RxBytes), 0);
        for offset in (0..0x1000).step_by(4) {
            let addr = BLOCK.base + offset;
            let register = BLOCK.registers.iter().find(|r| r.address == addr);
            let (value, error) = csr_access(&mut sim, "bus", None, addr);
            assert_eq!(error, register.is_none(), "{addr:#x}");
            assert!(error || value == register.map_or(0, |r| r.reset), "{addr:#x} reads {value:#x}");
            assert_eq!(csr_access(&mut sim, "bus", Some(1), addr).1, register.is_none(), "{addr:#x} written");
        }
        assert_eq!(read(&mut sim, Counter::RxBytes), 0);
    }
}
