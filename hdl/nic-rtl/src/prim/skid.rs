//! Skid buffer: cuts the combinational paths of a stream in both directions at full throughput.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `rx` | `width` | valid/ready | words in; `ready` is a register |
//! | `tx` | `width` | valid/ready | the same words; `valid` and data are registers |
//!
//! Latency 1 cycle; 1 word per cycle. Reset empties it. State: two words of registers. Drops: none.

use super::through;
use rtl_graph::*;

module! {
    /// Skid buffer over one vector.
    pub struct Skid = "nic_prim_skid" (width: u32) {
        rx: in Stream<Raw>(Raw::layout(width)),
        tx: out Stream<Raw>(Raw::layout(width)),
    } |b| {
        let (out_valid, out) = (b.reg_reset("out_valid", 1, 0), b.reg("out", width));
        // The word that arrived while the output stood still.
        let (held_valid, held) = (b.reg_reset("held_valid", 1, 0), b.reg("held", width));
        let take = (rx.valid & !held_valid).named("take");
        let free = (!out_valid | tx.ready).named("free");
        out_valid.set_en(free, held_valid | take);
        out.set_en(free, held_valid.mux(held, rx.data.data));
        held_valid.set(!free & (held_valid | take));
        held.set_en(take & !free, rx.data.data);
        rx.ready.set(!held_valid);
        tx.valid.set(out_valid);
        tx.data.data.set(out);
        // A word is held only behind one that waits at the output, so order is kept.
        b.assert("order_is_kept", !held_valid | out_valid);
    }
}

/// Puts a [`Skid`] behind `up`; gives its output.
pub fn skid<'a, R: Record<'a>>(b: &'a B, name: &str, up: &Stream<'a, R>) -> Stream<'a, R> {
    let s = Skid::at(b, name, up.data.layout_of().width());
    through(up, &s.rx, &s.tx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng};

    #[test]
    fn words_keep_their_order_under_random_stalls() {
        let mut rng = Rng::new("prim::skid", 1);
        let mut sim = check::sim(&Skid::def(&Lib::new(), 32), &mut rng);
        for (valid, ready) in [(50, 50), (90, 20), (20, 90), (100, 70), (70, 100)] {
            check::check_order(&mut sim, &mut rng, 300, valid, ready);
        }
    }

    #[test]
    fn a_word_passes_every_cycle_when_nothing_stalls() {
        let mut rng = Rng::new("prim::skid", 2);
        let mut sim = check::sim(&Skid::def(&Lib::new(), 32), &mut rng);
        assert_eq!(check::check_order(&mut sim, &mut rng, 100, 100, 100), 101);
    }

    #[test]
    fn no_path_leads_from_one_handshake_to_the_other_within_a_cycle() {
        let mut rng = Rng::new("prim::skid", 3);
        let mut sim = check::sim(&Skid::def(&Lib::new(), 32), &mut rng);
        for (valid, ready) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            sim.poke("rx_valid", valid);
            sim.poke("tx_ready", ready);
            assert_eq!((sim.peek("rx_ready"), sim.peek("tx_valid")), (1, 0));
        }
    }
}
