//! Doorbell pages: writes to the high half of the BAR become events for the owners of the queues.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `bus` | [`CsrBus`] | valid/ready | accesses to the pages |
//! | `sq`, `rq`, `cq` | [`Doorbell`] | valid/ready | doorbells of send, receive and completion queues |
//! | `count` | | | `doorbell_bad_count` |
//!
//! A doorbell of a connection or completion queue that the build does not have is counted, and the write is good all the
//! same; an address in a page that is no doorbell answers with an error; a doorbell reads 0. An access takes two cycles;
//! the next doorbell waits until the owner has taken the one before. Reset forgets it. State: one doorbell. Drops: as
//! counted.

use super::{bus::CsrBus, ctx::is_below};
use crate::{
    params::NicParams,
    stream::{field_of, Count, Doorbell, CONN_BITS, DOORBELL_CQ, DOORBELL_RQ, DOORBELL_SQ},
};
use nic_spec::{
    csr::{self, stats::Counter},
    desc,
};
use rtl_graph::*;

/// Counters that the port `count` can name.
pub const COUNTS: &[Counter] = &[Counter::DoorbellBad];

module! {
    /// The pages.
    pub struct DoorbellPages = "nic_host_doorbell" (params: &NicParams) {
        bus: in CsrBus,
        sq: out Stream<Doorbell>,
        rq: out Stream<Doorbell>,
        cq: out Stream<Doorbell>,
        count: out Count,
    } |b| {
        let page_shift = csr::DOORBELL_PAGE_BYTES.ilog2();
        let page = bus.addr.bits(page_shift, CONN_BITS);
        let offset = bus.addr.trunc(page_shift);
        let kinds = [
            (csr::DOORBELL_SQ, DOORBELL_SQ, params.conns, sq),
            (csr::DOORBELL_RQ, DOORBELL_RQ, params.conns, rq),
            (csr::DOORBELL_CQ, DOORBELL_CQ, params.cqs, cq),
        ];
        let hits: Vec<S> = kinds.iter().map(|k| offset.eq(k.0)).collect();
        let in_range: Vec<S> = hits.iter().zip(&kinds).map(|(hit, k)| *hit & is_below(page, k.2)).collect();
        let is_known = b.or_tree(&hits);
        let is_good = b.or_tree(&in_range);

        let held = b.reg_reset("held", 1, 0);
        let done = b.reg_reset("done", 1, 0);
        let access = (bus.valid & !done & !held).named("access");
        let ring = (access & bus.write & is_good).named("ring");
        done.set(access);
        let kind = b.one_hot_select(&hits.iter().zip(&kinds).map(|(hit, k)| (*hit, b.lit(k.1, 2))).collect::<Vec<_>>());
        let field = |name| field_of(bus.wdata, desc::Doorbell::LAYOUT.field(name));
        let doorbell = Doorbell { kind, number: page, index: field("index"), arm: field("arm") }.reg_en("ring", ring);
        let mut taken = vec![];
        for (_, kind, _, port) in kinds {
            port.put(held & doorbell.kind.eq(kind), &doorbell);
            taken.push(port.fire());
        }
        held.when(b.or_tree(&taken), 0);
        held.when(ring, 1);

        bus.ready.set(done);
        bus.rdata.set(0);
        bus.error.set(!is_known);
        count.drive(b, &[(access & bus.write & is_known & !is_good, Counter::DoorbellBad)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::bench::*;
    use std::collections::VecDeque;

    #[test]
    fn each_doorbell_reaches_the_owner_of_its_queue() {
        let params = NicParams { conns: 8, cqs: 4, ..NicParams::default() };
        let mut rng = Rng::new("each_doorbell_reaches", 1);
        let mut sim = sim(&DoorbellPages::def(&Lib::new(), &params), &mut rng);
        let mut sinks = ["sq", "rq", "cq"].map(|p| Sink::new(&sim, p, &["kind", "number", "index", "arm"]));
        sinks.iter_mut().for_each(|s| s.rate = 40);
        let mut want: [VecDeque<Words>; 3] = Default::default();
        let (mut counted, mut bad) = (0, 0);
        for _ in 0..600 {
            let page = pick(&mut rng, &[0, 1, 3, 4, 7, 8, 15, 4095]);
            let offset = pick(&mut rng, &[0, 8, 0x10, 0x10, 4, 0x18, 0xffc]);
            let is_write = rng.chance(90);
            let data = rng.next() as u32;
            let kind = [csr::DOORBELL_SQ, csr::DOORBELL_RQ, csr::DOORBELL_CQ].iter().position(|o| *o == offset);
            let limit = if kind == Some(2) { params.cqs } else { params.conns };
            if let (Some(kind), true) = (kind, is_write) {
                if page < limit {
                    let fields = [kind as u64, page.into(), (data & 0xffff).into(), (data >> 31).into()];
                    want[kind].push_back(fields.map(word).to_vec());
                } else {
                    bad += 1;
                }
            }
            sim.poke("bus_valid", 1);
            sim.poke("bus_write", is_write.into());
            sim.poke("bus_addr", (csr::DOORBELL_BASE + page * csr::DOORBELL_PAGE_BYTES + offset).into());
            sim.poke("bus_wdata", data.into());
            let mut is_done = false;
            while !is_done || rng.chance(30) {
                sinks.iter_mut().for_each(|s| s.drive(&mut sim, &mut rng));
                if sim.peek("bus_ready") == 1 {
                    is_done = true;
                    assert_eq!((sim.peek("bus_error") == 0, sim.peek("bus_rdata")), (kind.is_some(), 0));
                }
                counted += sim.peek("count_valid");
                for (k, sink) in sinks.iter_mut().enumerate() {
                    if let Some(w) = sink.taken(&mut sim) {
                        assert_eq!(Some(w), want[k].pop_front());
                    }
                }
                sim.clock();
                if is_done {
                    sim.poke("bus_valid", 0);
                }
            }
        }
        for _ in 0..100 {
            sinks.iter_mut().for_each(|s| s.drive(&mut sim, &mut rng));
            for (k, sink) in sinks.iter_mut().enumerate() {
                if let Some(w) = sink.taken(&mut sim) {
                    assert_eq!(Some(w), want[k].pop_front());
                }
            }
            sim.clock();
        }
        assert!(want.iter().all(|w| w.is_empty()));
        assert_eq!(counted, bad);
        assert!(bad > 50);
    }
}
