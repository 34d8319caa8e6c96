//! Receive credit: how many receives each connection has posted, as the first RSN that has none.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready, always ready | a row of `conn` sets the credit to `init_rsn`: nothing posted |
//! | `doorbell` | [`Doorbell`] | valid/ready | receive queue: receives posted so far; others are ignored |
//! | `credit_read` × `readers` | [`CreditRead`] | none | limit of the connection one cycle before |
//!
//! The limit is init_rsn + posted modulo 2^16: RSNs before it, on the circle of 16 bits, have a receive. Latency 1
//! cycle. Throughput: one doorbell a cycle, but in the cycle of a context write. Reset keeps the rows; a connection is
//! written before it is used. State: 16 + 16 bits a connection, and 16 for each further reader. Drops: none.

use crate::{
    params::NicParams,
    stream::{field_of, CreditRead, CtxWrite, Doorbell, DOORBELL_RQ},
};
use nic_spec::desc::{ConnRow, Table};
use rtl_graph::*;

/// Bits of a limit.
const LIMIT_BITS: u32 = 16;

module! {
    /// The credits of all connections.
    pub struct Credit = "nic_transport_credit" (p: &NicParams, readers: usize) {
        ctx: in Stream<CtxWrite>,
        doorbell: in Stream<Doorbell>,
        credit_read: in CreditRead [readers],
    } |b| {
        let (n, bits) = (p.conns, p.conn_bits());
        let index = ctx.data.index.trunc(bits);
        let is_conn = ctx.data.table.eq(Table::Conn.code()) & ctx.data.index.shr(bits).is_zero();
        let write = (ctx.valid & is_conn).named("write");
        ctx.ready.set(b.high());
        doorbell.ready.set(!write);
        let number = doorbell.data.number;
        let is_rq = doorbell.data.kind.eq(DOORBELL_RQ) & number.shr(bits).is_zero();
        let ring = (doorbell.valid & is_rq & !write).named("ring");

        let init = field_of(ctx.data.data, ConnRow::LAYOUT.field("init_rsn")).trunc(LIMIT_BITS);
        let first = b.mem("first", n.into(), LIMIT_BITS).style(RamStyle::Distributed);
        first.write(write, index, init);
        let rung = number.trunc(bits);
        let limit = write.mux(init, first.read_async(rung) + doorbell.data.index).named("limit");
        for (k, port) in credit_read.iter().enumerate() {
            let limits = b.mem(&format!("limits_{k}"), n.into(), LIMIT_BITS).style(RamStyle::Distributed);
            limits.write(write | ring, write.mux(index, rung), limit);
            port.rq_limit.set(limits.read(port.conn.trunc(bits)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        prim::check::{words, Rng},
        stream::{DOORBELL_CQ, DOORBELL_SQ},
        transport::bench::{Bench, Item},
    };
    use nic_spec::num::Rsn;

    #[test]
    fn the_limit_is_the_first_rsn_without_a_receive() {
        let p = NicParams { conns: 4, ..NicParams::default() };
        let mut bench = Bench::new(&Credit::def(&Lib::new(), &p, 2), Rng::new("the_limit_is_the_first_rsn", 1));
        let mut model = [(0u64, 0u64); 4];
        let write = |index: u64, init: u64| {
            let mut row = ConnRow::zeroed();
            row.set_valid(true).set_init_rsn(Rsn::new(init as u32));
            Item::of(&[("table", Table::Conn.code().into()), ("index", index)]).with("data", &words(&row.0))
        };
        for conn in 0..4 {
            bench.push("ctx", write(conn, 0xff_fff0 + conn));
            model[conn as usize] = (0xfff0 + conn, 0xfff0 + conn);
        }
        bench.settle(2);
        for _ in 0..300 {
            bench.random_paces(30);
            let (conn, index) = (bench.rng.below(5), bench.rng.below(1 << 16));
            let kind = [DOORBELL_SQ, DOORBELL_RQ, DOORBELL_RQ, DOORBELL_CQ][bench.rng.below(4) as usize];
            if bench.rng.chance(10) {
                bench.push("ctx", write(conn, index));
                if let Some(m) = model.get_mut(conn as usize) {
                    *m = (index, index);
                }
            } else {
                let ring = [("kind", kind), ("number", conn), ("index", index)];
                bench.push("doorbell", Item::of(&ring));
                if let (Some(m), DOORBELL_RQ) = (model.get_mut(conn as usize), kind) {
                    m.1 = (m.0 + index) & 0xffff;
                }
            }
            bench.settle(2);
            let at = bench.rng.below(4);
            for k in 0..2 {
                bench.sim.poke(&format!("credit_read_{k}_conn"), at);
            }
            bench.step();
            for k in 0..2 {
                assert_eq!(bench.sim.peek(&format!("credit_read_{k}_rq_limit")), model[at as usize].1);
            }
        }
    }
}
