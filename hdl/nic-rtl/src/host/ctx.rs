//! Register block `ctx`: the window through which software writes rows of the context tables.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `bus` | [`CsrBus`] | valid/ready | accesses to the block |
//! | `write` × `takers` | [`CtxWrite`] | valid/ready | the row, to each taker |
//! | `count` | | | `ctx_bad_count` |
//!
//! The takers get a row one after the other, in the order of the ports, and each gets every row. So a taker knows that
//! those before it have already acted: who must stop before others are changed stands first. A command that names no
//! table, or a row beyond it, sets STATUS.ERROR, reaches no taker and is counted. While STATUS.BUSY, writes to
//! the block have no effect.
//! Latency 2 cycles to the first taker, 1 from each to the next. Reset forgets the command. State: the registers of the
//! block. Drops: none.

use super::{bus::CsrBus, regs::serve};
use crate::{
    params::NicParams,
    stream::{Count, CtxWrite},
};
use nic_spec::{
    csr::{
        ctx::{BLOCK, COMMAND, COMMAND_WRITE, DATA, INDEX, STATUS, STATUS_BUSY, STATUS_ERROR, TABLE},
        stats::Counter,
    },
    desc::Table,
};
use rtl_graph::*;

/// Counters that the port `count` can name.
pub const COUNTS: &[Counter] = &[Counter::CtxBad];

/// Rows of a table in a build.
pub fn rows(table: Table, params: &NicParams) -> u32 {
    match table {
        Table::Conn | Table::Ah | Table::Sq => params.conns,
        Table::PathTx | Table::PathRx => params.rows(),
        Table::Mr => params.mrs,
        Table::Cq => params.cqs,
    }
}

/// 1 when `index` is below `limit`, a power of two.
#[track_caller]
pub(super) fn is_below(index: S<'_>, limit: u32) -> S<'_> {
    assert!(limit.is_power_of_two(), "a limit of {limit} is no power of two");
    match index.width() - limit.ilog2() {
        0 => index.builder().high(),
        above => index.high_bits(above).is_zero(),
    }
}

module! {
    /// The window.
    pub struct CtxWindow = "nic_host_ctx" (params: &NicParams, takers: usize) {
        bus: in CsrBus,
        write: out Stream<CtxWrite> [takers],
        count: out Count,
    } |b| {
        let is_busy = b.reg_reset("is_busy", 1, 0);
        let is_bad = b.reg_reset("is_bad", 1, 0);
        let flag = |s, shift| S::zext(s, 32).shl(shift);
        let status = flag(is_busy, STATUS_BUSY.shift) | flag(is_bad, STATUS_ERROR.shift);
        // While a command runs the takers see the registers: writes then have no effect.
        let quiet = CsrBus { write: bus.write & !is_busy, ..bus };
        let served = serve(b, &quiet, &BLOCK, &|r, _| (r.name == STATUS.name).then(|| status.trunc(2)));
        let (table, index) = (served.value(&TABLE), served.value(&INDEX));
        let data = b.cat(&served.values(&DATA).iter().rev().copied().collect::<Vec<_>>());

        let command = (served.writes(&COMMAND)[0] & served.wdata.bit(COMMAND_WRITE.shift)).named("command");
        let exists: Vec<S> = Table::ALL
            .iter()
            .map(|t| table.eq(*t as u8) & is_below(index, rows(*t, params)))
            .collect();
        let exists = b.or_tree(&exists).named("exists");

        // The taker whose turn it is, one-hot.
        let turn = b.reg_reset("turn", takers as u32, 0);
        let ready: Vec<S> = write.iter().rev().map(|w| w.ready).collect();
        let is_taken = (turn & b.cat(&ready)).any().named("is_taken");
        let next = turn.shl(1);
        is_bad.set_en(command, !exists);
        turn.when(is_taken, next);
        turn.when(command & exists, 1);
        is_busy.when(is_taken & next.is_zero(), 0);
        is_busy.when(command & exists, 1);
        for (k, w) in write.iter().enumerate() {
            w.put(turn.bit(k as u32), &CtxWrite { table, index, data });
        }
        count.drive(b, &[(command & !exists, Counter::CtxBad)]);
        b.assert("one_turn_at_a_time", (turn & (turn - 1)).is_zero());
        b.assert("busy_while_it_is_somebodys_turn", is_busy.eq(turn.any()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::bench::*;

    const TAKERS: usize = 3;

    #[test]
    fn a_row_goes_to_all_takers_in_turn_or_to_none() {
        let params = NicParams { conns: 4, paths: 8, mrs: 16, cqs: 2, ..NicParams::default() };
        let mut rng = Rng::new("a_row_goes_to_all_takers", 1);
        let mut sim = sim(&CtxWindow::def(&Lib::new(), &params, TAKERS), &mut rng);
        let mut sinks = [0, 1, 2].map(|k| Sink::new(&sim, &format!("write_{k}"), &["table", "index", "data"]));
        let mut bad = 0;
        for round in 0..200 {
            let table = rng.below(9) as u32;
            let of = Table::ALL.iter().find(|t| **t as u32 == table);
            let size = of.map_or(1, |t| rows(*t, &params));
            let index = pick(&mut rng, &[0, size - 1, size, 2 * size, 0xffff]) & 0xffff;
            let row: Vec<u32> = (0..16).map(|_| rng.next() as u32).collect();
            csr_write(&mut sim, "bus", TABLE.address, table);
            csr_write(&mut sim, "bus", INDEX.address, index);
            (0..16).for_each(|k| csr_write(&mut sim, "bus", DATA.at(k), row[k as usize]));
            let is_good = of.is_some() && index < size;
            bad += u64::from(!is_good);
            let mut counted = 0;
            // The command, by hand: the count comes within it.
            sim.poke("bus_valid", 1);
            sim.poke("bus_write", 1);
            sim.poke("bus_addr", COMMAND.address.into());
            sim.poke("bus_wdata", 1);
            while sim.peek("bus_ready") == 0 {
                counted += sim.peek("count_valid");
                sim.clock();
            }
            sim.clock();
            sim.poke("bus_valid", 0);
            assert_eq!(counted, u64::from(!is_good));
            let flags = csr_read(&mut sim, "bus", STATUS.address);
            assert_eq!((STATUS_BUSY.get(flags) == 1, STATUS_ERROR.get(flags) == 1), (is_good, !is_good), "{round}");
            if is_good {
                // Nobody has taken it: what is written now has no effect.
                csr_write(&mut sim, "bus", INDEX.address, 0x5555);
                csr_write(&mut sim, "bus", DATA.at(3), 0x5555_5555);
                csr_write(&mut sim, "bus", COMMAND.address, 1);
            }
            let mut order = vec![];
            for _ in 0..60 {
                for sink in &mut sinks {
                    sink.rate = 30;
                    sink.drive(&mut sim, &mut rng);
                }
                for (k, sink) in sinks.iter_mut().enumerate() {
                    if let Some(w) = sink.taken(&mut sim) {
                        order.push(k);
                        let words: Vec<u64> = row.chunks(2).map(|c| u64::from(c[1]) << 32 | u64::from(c[0])).collect();
                        assert_eq!(w, vec![word(table.into()), word(index.into()), words]);
                    }
                }
                sim.clock();
            }
            assert_eq!(order, if is_good { vec![0, 1, 2] } else { vec![] }, "round {round}");
            assert_eq!(csr_read(&mut sim, "bus", STATUS.address) & STATUS_BUSY.mask(), 0);
            (0..3).for_each(|k| sim.poke(&format!("write_{k}_ready"), 0));
        }
        assert!((20..180).contains(&bad), "{bad} of 200 commands were bad");
    }
}
