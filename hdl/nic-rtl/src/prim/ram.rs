//! Tables in RAM as engines use them: one owner, read-first, with the write of the moment before forwarded.

use rtl_graph::*;

/// A table's ports: a registered read that sees every write made before or together with it.
pub struct Table<'a> {
    mem: Mem<'a>,
    b: &'a B,
    name: String,
    write: (S<'a>, S<'a>, S<'a>),
}

impl<'a> Table<'a> {
    /// Table of `depth` rows whose only write port writes `data` at `addr` when `en` is 1. Rows start as zero.
    #[track_caller]
    pub fn new(b: &'a B, name: &str, depth: u32, style: RamStyle, en: S<'a>, addr: S<'a>, data: S<'a>) -> Self {
        let mem = b.mem(name, depth.into(), data.width()).style(style).zeroed();
        mem.write(en, addr, data);
        Table { mem, b, name: name.into(), write: (en, addr, data) }
    }

    /// The row at `addr` one cycle later, with a write to it at the same edge already in.
    ///
    /// The RAM is read-first: the forwarded row comes from registers beside it. `port` names them.
    #[track_caller]
    pub fn read(&self, port: &str, addr: S<'a>) -> S<'a> {
        let (en, write_addr, data) = self.write;
        let name = |what: &str| format!("{}_{port}_{what}", self.name);
        let hit = self.b.reg(&name("hit"), 1);
        hit.set(en & write_addr.eq(addr));
        let fresh = self.b.reg(&name("fresh"), data.width());
        fresh.set(data);
        hit.mux(fresh, self.mem.read(addr)).named(&name("row"))
    }

    /// The memory itself, for ports of another kind.
    pub fn mem(&self) -> Mem<'a> {
        self.mem
    }
}

/// Walk over all rows after reset, to clear what the RAM kept from before.
pub struct Sweep<'a> {
    /// 1 until the last row was named.
    pub busy: S<'a>,
    /// Row of this cycle.
    pub addr: S<'a>,
}

/// Names each of `depth` rows (a power of two) once after reset: registers `NAME_busy` and `NAME_addr`.
#[track_caller]
pub fn sweep<'a>(b: &'a B, name: &str, depth: u32) -> Sweep<'a> {
    assert!(depth.is_power_of_two(), "a sweep over {depth} rows: the number must be a power of two");
    let busy = b.reg_reset(&format!("{name}_busy"), 1, 1);
    let addr = b.reg_reset(&format!("{name}_addr"), index_bits(depth.into()), 0);
    addr.set_en(busy, addr.inc());
    busy.set(busy & addr.ne(depth - 1));
    Sweep { busy, addr }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng};

    module! {
        /// A table of eight rows.
        struct Eight() {
            en: in Uint(1),
            write_addr: in Uint(3),
            data: in Uint(40),
            addr: in Uint(3),
            row: out Uint(40),
            busy: out Uint(1),
        } |b| {
            let sweep = sweep(b, "sweep", 8);
            let en = sweep.busy | en;
            let table = Table::new(
                b, "rows", 8, RamStyle::Block, en, sweep.busy.mux(sweep.addr, write_addr), sweep.busy.mux(0, data));
            row.set(table.read("a", addr));
            busy.set(sweep.busy);
        }
    }

    #[test]
    fn a_read_sees_the_write_of_the_same_cycle_and_all_before() {
        let mut rng = Rng::new("prim::ram", 1);
        let mut sim = check::sim(&Eight::def(&Lib::new()), &mut rng);
        let mut model = [0u64; 8];
        while sim.peek("busy") == 1 {
            sim.clock();
        }
        for _ in 0..2000 {
            let (en, write, read) = (rng.chance(60), rng.below(8) as usize, rng.below(8));
            let data = rng.next() >> 24;
            sim.poke("en", en.into());
            sim.poke("write_addr", write as u64);
            sim.poke("data", data);
            sim.poke("addr", read);
            if en {
                model[write] = data;
            }
            sim.clock();
            assert_eq!(sim.peek("row"), model[read as usize]);
        }
    }

    #[test]
    fn a_sweep_clears_every_row_after_each_reset() {
        let mut rng = Rng::new("prim::ram", 2);
        let mut sim = check::sim(&Eight::def(&Lib::new()), &mut rng);
        (0..8).for_each(|k| sim.set_mem_row("rows", k, &[k + 1]));
        sim.reset(1);
        sim.poke("en", 0);
        sim.clocks(8);
        assert_eq!(sim.peek("busy"), 0);
        assert!((0..8).all(|k| sim.mem_row("rows", k) == [0]));
    }
}
