//! Connection table: rows for their readers, and one error bit and status a connection.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready, always ready | rows of the tables `conn` and `ah`; others are ignored |
//! | `conn_read` × `readers` | [`ConnRead`] | none | row of the index one cycle before; `valid` is 0 for rows not written since reset |
//! | `ah_read` × `ah_readers` | [`AhRead`] | none | the same for addresses |
//! | `status_read` × `status_readers` | [`StatusRead`] | none | status of a failed connection, 0 for others, one cycle later |
//! | `error` × `sources` | [`ConnError`] | valid/ready | a connection has failed; the first one of a connection counts |
//! | `conn_valid`, `conn_error` | 1 a connection | | which rows are in use, which connections have failed |
//! | `count` | [`Count`] | valid | see [`COUNTS`] |
//!
//! A write to a row of `conn` ends the error of its connection. Latency: rows 1 cycle, an error 3 cycles from `error` to
//! `conn_error`. Throughput: one write and one error a cycle. Reset: every connection closed, no error. State: 172 bits
//! a connection and reader, 360 a connection and address reader, 8 a connection and status reader in RAM; 2 flops a
//! connection. Drops: none.

use super::vector::{bit_at, bit_mask};
use crate::{
    params::NicParams,
    prim,
    stream::{ctx_fields, AhContext, AhRead, ConnContext, ConnError, ConnRead, Count, CtxWrite, StatusRead},
};
use nic_spec::{
    csr::stats::Counter,
    desc::{AhRow, ConnRow, Table},
};
use rtl_graph::*;

/// What `count` names.
pub const COUNTS: &[Counter] = &[Counter::ConnErrors];

module! {
    /// The table with its read ports.
    pub struct Conn = "nic_transport_conn" (
        p: &NicParams, readers: usize, ah_readers: usize, status_readers: usize, sources: usize,
    ) {
        ctx: in Stream<CtxWrite>,
        conn_read: in ConnRead [readers],
        ah_read: in AhRead [ah_readers],
        status_read: in StatusRead [status_readers],
        error: in Stream<ConnError> [sources],
        conn_valid: out Uint(p.conns),
        conn_error: out Uint(p.conns),
        count: out Count,
    } |b| {
        let (n, bits) = (p.conns, p.conn_bits());
        let index = ctx.data.index.trunc(bits);
        let in_range = ctx.data.index.shr(bits).is_zero();
        let writes = |table: Table| ctx.valid & ctx.data.table.eq(table.code()) & in_range;
        let write = writes(Table::Conn).named("write");
        let write_ah = writes(Table::Ah).named("write_ah");
        ctx.ready.set(b.high());

        let row = ctx_fields(ctx.data.data, &ConnRow::LAYOUT, &ConnContext::layout()).named("row");
        let is_valid = ConnContext::unpack(row).valid;
        let valid = b.reg_reset("valid", n, 0);
        valid.set(valid & !bit_mask(n, index, write) | bit_mask(n, index, write & is_valid));
        conn_valid.set(valid);

        for (k, port) in conn_read.iter().enumerate() {
            let mem = b.mem(&format!("rows_{k}"), n.into(), ConnContext::width()).style(RamStyle::Block);
            mem.write(write, index, row);
            let at = port.conn.trunc(bits);
            let in_use = bit_at(valid, at).delay_reset(&format!("rows_{k}_valid"), 1);
            let read = ConnContext::unpack(mem.read(at));
            port.row.set(ConnContext { valid: in_use, ..read }.pack());
        }
        let ah_row = ctx_fields(ctx.data.data, &AhRow::LAYOUT, &AhContext::layout()).named("ah_row");
        for (k, port) in ah_read.iter().enumerate() {
            let mem = b.mem(&format!("ah_{k}"), n.into(), AhContext::width()).style(RamStyle::Block);
            mem.write(write_ah, index, ah_row);
            port.row.set(mem.read(port.conn.trunc(bits)));
        }

        // Errors, one at a time; the first of a connection stays.
        let (failed, _) = prim::arbiter(b, "failed", &error, None);
        failed.ready.set(b.high());
        let at = failed.data.conn.trunc(bits);
        let errors = b.reg_reset("errors", n, 0);
        let is_first = (failed.valid & bit_at(valid, at) & !bit_at(errors, at)).named("is_first");
        errors.set((errors | bit_mask(n, at, is_first)) & !bit_mask(n, index, write));
        conn_error.set(errors);
        for (k, port) in status_read.iter().enumerate() {
            let mem = b.mem(&format!("status_{k}"), n.into(), 8).style(RamStyle::Distributed);
            mem.write(is_first, at, failed.data.status);
            let asked = port.conn.trunc(bits);
            let has_failed = bit_at(errors, asked).delay_reset(&format!("status_{k}_valid"), 1);
            port.status.set(has_failed.rep(8) & mem.read(asked));
        }
        count.drive(b, &[(is_first, Counter::ConnErrors)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        prim::check::{words, Rng},
        transport::bench::{bits_of, Bench, Item},
    };
    use nic_spec::num::{Pd, Qpn};

    fn def(p: &NicParams) -> std::sync::Arc<ModDef> {
        Conn::def(&Lib::new(), p, 2, 1, 2, 3)
    }

    fn conn_write(index: u64, local_id: u32, valid: bool) -> Item {
        let mut row = ConnRow::zeroed();
        row.set_valid(valid).set_local_id(Qpn::new(local_id)).set_pd(Pd::new(local_id ^ 0xff));
        Item::of(&[("table", Table::Conn.code().into()), ("index", index)]).with("data", &words(&row.0))
    }

    fn field(row: &[u64], name: &str) -> u64 {
        let (lo, bits) = ConnContext::layout().place(name);
        bits_of(row, lo, bits)
    }

    #[test]
    fn readers_see_what_was_written_and_nothing_of_before_the_reset() {
        let p = NicParams { conns: 4, ..NicParams::default() };
        let mut bench = Bench::new(&def(&p), Rng::new("readers_see_what_was_written", 1));
        let mut model = [None; 4];
        for step in 0..400 {
            let (index, id) = (bench.rng.below(5), bench.rng.below(1 << 24) as u32);
            let valid = bench.rng.chance(70);
            if bench.rng.chance(40) {
                bench.push("ctx", conn_write(index, id, valid));
                bench.settle(2);
                if let Some(row) = model.get_mut(index as usize) {
                    *row = valid.then_some(id);
                }
            }
            if step == 200 {
                bench.sim.reset(1);
                model = [None; 4];
            }
            let at = bench.rng.below(4);
            for k in 0..2 {
                bench.sim.poke(&format!("conn_read_{k}_conn"), at);
            }
            bench.step();
            for k in 0..2 {
                let row = bench.sim.peek_wide(&format!("conn_read_{k}_row"));
                assert_eq!(field(&row, "valid"), u64::from(model[at as usize].is_some()));
                if let Some(id) = model[at as usize] {
                    assert_eq!((field(&row, "local_id"), field(&row, "pd")), (id.into(), u64::from(id ^ 0xff)));
                }
            }
            let valid = model.iter().enumerate().fold(0, |v, (k, m)| v | u64::from(m.is_some()) << k);
            assert_eq!(bench.sim.peek("conn_valid"), valid);
        }
    }

    #[test]
    fn an_address_row_comes_back() {
        let p = NicParams { conns: 4, ..NicParams::default() };
        let mut bench = Bench::new(&def(&p), Rng::new("an_address_row_comes_back", 1));
        let mut row = AhRow::zeroed();
        row.set_dst_mac(0x0203_0405_0607).set_hop_limit(64).set_src_ip(0xfe80 << 112 | 7);
        let item = Item::of(&[("table", Table::Ah.code().into()), ("index", 3)]).with("data", &words(&row.0));
        bench.push("ctx", item);
        bench.settle(2);
        bench.sim.poke("ah_read_0_conn", 3);
        bench.step();
        let read = bench.sim.peek_wide("ah_read_0_row");
        let get = |name: &str| AhContext::layout().place(name);
        let at = |name: &str, skip: u32| bits_of(&read, get(name).0 + skip, get(name).1.min(64));
        assert_eq!((at("dst_mac", 0), at("hop_limit", 0)), (0x0203_0405_0607, 64));
        assert_eq!((at("src_ip", 0), at("src_ip", 64)), (7, 0xfe80 << 48));
    }

    #[test]
    fn the_first_error_of_a_connection_stays_until_it_is_written_again() {
        let p = NicParams { conns: 4, ..NicParams::default() };
        let mut bench = Bench::new(&def(&p), Rng::new("the_first_error_of_a_connection_stays", 1));
        let (mut status, mut errors) = ([0u64; 4], 0);
        let mut is_open = [false; 4];
        for _ in 0..400 {
            let conn = bench.rng.below(4);
            if bench.rng.chance(20) {
                is_open[conn as usize] = bench.rng.chance(80);
                bench.push("ctx", conn_write(conn, 5, is_open[conn as usize]));
                status[conn as usize] = 0;
            } else {
                let (source, code) = (bench.rng.below(3), 1 + bench.rng.below(10));
                bench.push(&format!("error_{source}"), Item::of(&[("conn", conn), ("status", code)]));
                if is_open[conn as usize] && status[conn as usize] == 0 {
                    status[conn as usize] = code;
                    errors += 1;
                }
            }
            bench.settle(4);
            let at = bench.rng.below(4);
            bench.sim.poke("status_read_1_conn", at);
            bench.step();
            assert_eq!(bench.sim.peek("status_read_1_status"), status[at as usize]);
            let bits = status.iter().enumerate().fold(0, |v, (k, s)| v | u64::from(*s != 0) << k);
            assert_eq!(bench.sim.peek("conn_error"), bits);
        }
        assert_eq!(bench.counted(Counter::ConnErrors), errors);
    }

    #[test]
    fn of_errors_at_one_time_one_is_kept_and_each_source_is_served() {
        let p = NicParams { conns: 4, ..NicParams::default() };
        let mut bench = Bench::new(&def(&p), Rng::new("of_errors_at_one_time_one_is_kept", 1));
        bench.push("ctx", conn_write(2, 5, true));
        bench.settle(4);
        for source in 0..3 {
            bench.push(&format!("error_{source}"), Item::of(&[("conn", 2), ("status", 5 + source)]));
        }
        bench.settle(4);
        bench.sim.poke("status_read_0_conn", 2);
        bench.step();
        assert_eq!(bench.sim.peek("status_read_0_status"), 5);
        assert_eq!((bench.sim.peek("conn_error"), bench.counted(Counter::ConnErrors)), (1 << 2, 1));
    }
}
