//! Fence behind the memory table: a region's row counts as written only when no write that the old row let through is left.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready | rows of table `mr` wait here, behind the memory table; others pass |
//! | `judging` | 1 | | the responder has a packet that may have asked the memory table |
//! | `handed`, `placed` | 1, 1 | | a packet was accepted; memory has answered the oldest one that was accepted |
//!
//! Software takes memory back when its region's row is written. Writes are answered in the order of acceptance, so the fence
//! waits for a packet under judgement, then counts the accepted ones down; traffic that comes later does not delay it.
//! Latency 3 cycles with nothing under way. Reset forgets the count. State: 2 × 12 bits. Drops: none.

use crate::stream::CtxWrite;
use nic_spec::desc::Table;
use rtl_graph::*;

/// Bits of the count of packets between acceptance and the answer of memory.
const UNDER_WAY_BITS: u32 = 12;

module! {
    /// The fence.
    pub struct Fence = "nic_transport_fence" () {
        ctx: in Stream<CtxWrite>,
        judging: in Uint(1),
        handed: in Uint(1),
        placed: in Uint(1),
    } |b| {
        let fsm = b.fsm("state", &["open", "judged", "written"]);
        let is_mr = ctx.data.table.eq(Table::Mr.code());
        let in_written = fsm.is("written");
        let under_way = b.reg_reset("under_way", UNDER_WAY_BITS, 0);
        let after = b.select(
            &[(handed & !placed, under_way.inc()), (placed & !handed, under_way.dec())],
            under_way,
        );
        under_way.set(after);
        let left = b.reg("left", UNDER_WAY_BITS);
        left.set(in_written.mux(placed.mux(left.dec(), left), after));
        let is_over = (in_written & left.is_zero()).named("is_over");
        ctx.ready.set(!is_mr | is_over);
        fsm.step("open", ctx.valid & is_mr, "judged");
        fsm.step("judged", !judging, "written");
        fsm.step("written", left.is_zero(), "open");
        b.assert("nothing_is_answered_that_was_not_accepted", !placed | under_way.any() | handed);
        b.cover("waits_for_memory", in_written & left.any());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        prim::check::Rng,
        transport::bench::{Bench, Item},
    };

    #[test]
    fn a_region_waits_for_the_writes_accepted_before_it_and_for_no_others() {
        let mut bench = Bench::new(&Fence::def(&Lib::new()), Rng::new("a_region_waits_for_the_writes", 1));
        let mut under_way = 0u64;
        for round in 0..300 {
            let is_mr = bench.rng.chance(60);
            let table = if is_mr { Table::Mr } else { Table::Conn };
            bench.push("ctx", Item::of(&[("table", table.code().into())]));
            // A judgement of up to five cycles when the row comes; it may end in an acceptance.
            let judged_at = bench.rng.below(6);
            let mut before = None;
            for cycle in 0..200 {
                let judging = cycle < judged_at || before.is_some() && bench.rng.chance(30);
                let handed = judging && (cycle + 1 == judged_at || before.is_some()) && bench.rng.chance(70);
                let placed = under_way > 0 && bench.rng.chance(40);
                for (name, value) in [("judging", judging), ("handed", handed), ("placed", placed)] {
                    bench.sim.poke(name, value.into());
                }
                under_way = under_way + u64::from(handed) - u64::from(placed);
                let answered = u64::from(placed);
                if let Some(left) = &mut before {
                    *left -= answered.min(*left);
                } else if cycle >= judged_at && cycle > 0 {
                    before = Some(under_way);
                }
                bench.step();
                if bench.waiting("ctx") == 0 {
                    assert!(!is_mr || before == Some(0), "round {round}: {before:?} writes of before are left");
                    break;
                }
                assert!(cycle < if is_mr { 190 } else { 3 }, "round {round}: it waits for ever");
            }
            assert_eq!(bench.waiting("ctx"), 0);
        }
    }
}
