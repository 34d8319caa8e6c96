//! Synchronous queue, first word falls through: what `tx` shows is taken by `ready`, without a request before it.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `rx` | `width` | valid/ready | words in; `ready` is a register |
//! | `tx` | `width` | valid/ready | words out in order; `valid` is a register, data the RAM's output register |
//! | `level` | bits of `depth` | | words held now; a word counts from the cycle after it was taken in |
//! | `high_water` | bits of `depth` | | largest level since reset |
//!
//! Latency 2 cycles through the empty queue; 1 word per cycle in and out at once. Reset empties it. State: `depth` words
//! of RAM in the given style. Drops: none; overflow is impossible, since `ready` stands for room.

use super::through;
use rtl_graph::*;

module! {
    /// Queue over one vector; `depth` is a power of two from 2 on.
    pub struct Fifo = "nic_prim_fifo" (width: u32, depth: u32, style: RamStyle) {
        rx: in Stream<Raw>(Raw::layout(width)),
        tx: out Stream<Raw>(Raw::layout(width)),
        level: out Uint(count_bits(depth.into())),
        high_water: out Uint(count_bits(depth.into())),
    } |b| {
        let is_depth = depth.is_power_of_two() && depth >= 2;
        assert!(is_depth, "a queue of {depth} words: the depth must be a power of two from 2 on");
        let (index, count) = (index_bits(depth.into()), count_bits(depth.into()));
        // Pointers have one bit more than the address; `rd` is ahead by the word that is shown.
        let (wr, rd) = (b.reg_reset("wr", index + 1, 0), b.reg_reset("rd", index + 1, 0));
        let held = b.reg_reset("held", count, 0);
        let has_room = b.reg_reset("has_room", 1, 1);
        let out_valid = b.reg_reset("out_valid", 1, 0);

        let push = (rx.valid & has_room).named("push");
        let pop = (out_valid & tx.ready).named("pop");
        // The address is a register and only the enable waits for `ready`.
        let load = ((!out_valid | tx.ready) & wr.ne(rd)).named("load");
        let mem = b.mem("words", depth.into(), width).style(style);
        mem.write(push, wr.trunc(index), rx.data.data);
        let head = mem.read_en(load, rd.trunc(index));
        wr.set_en(push, wr.inc());
        rd.set_en(load, rd.inc());
        out_valid.set(load | (out_valid & !tx.ready));

        held.set(b.select(&[(push & !pop, held.inc()), (pop & !push, held.dec())], held));
        // `pop` comes late, so it decides last.
        let fills = held.eq(depth) | (held.eq(depth - 1) & push);
        has_room.set(pop | !fills);
        let peak = b.reg_reset("peak", count, 0);
        peak.set_en(held.gt(peak), held);

        rx.ready.set(has_room);
        tx.valid.set(out_valid);
        tx.data.data.set(head);
        level.set(held);
        high_water.set(peak);

        b.assert("held_fits", held.le(depth) & (wr - rd).le(depth));
        b.assert("pointers_and_level_agree", held.eq((wr - rd).resize(count) + out_valid.zext(count)));
        b.assert("room_is_told_right", has_room.eq(held.ne(depth)));
        b.cover("full", held.eq(depth));
    }
}

/// What a queue of `depth` words is made of when nobody says otherwise: LUT RAM up to 64 words, block RAM beyond.
pub fn default_style(depth: u32) -> RamStyle {
    if depth <= 64 {
        RamStyle::Distributed
    } else {
        RamStyle::Block
    }
}

/// Puts a [`Fifo`] of `depth` words behind `up`; gives its output.
pub fn fifo<'a, R: Record<'a>>(b: &'a B, name: &str, up: &Stream<'a, R>, depth: u32) -> Stream<'a, R> {
    let f = Fifo::at(b, name, up.data.layout_of().width(), depth, default_style(depth));
    through(up, &f.rx, &f.tx)
}

/// A queue fed by a pipeline that cannot wait: its output, and its level for the credit of the pipeline's start.
pub struct Pushed<'a, R> {
    /// Words out.
    pub tx: Stream<'a, R>,
    /// Words held.
    pub level: S<'a>,
}

/// A [`Fifo`] that takes `data` whenever `valid` is 1; who feeds it holds credits (see
/// [`ready_while_room`](super::ready_while_room)). A word pushed into a full queue is a bug and trips an assertion.
pub fn pushed<'a, R: Record<'a>>(b: &'a B, name: &str, valid: S<'a>, data: &R, depth: u32) -> Pushed<'a, R> {
    let layout = data.layout_of();
    let f = Fifo::at(b, name, layout.width(), depth, default_style(depth));
    f.rx.data.data.set(data.pack());
    f.rx.valid.set(valid);
    b.assert(&format!("{name}_never_overflows"), !valid | f.rx.ready);
    let data = R::unpack_as(&layout, f.tx.data.data);
    Pushed { tx: Stream { data, valid: f.tx.valid, ready: f.tx.ready }, level: f.level }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng};

    fn queue(depth: u32, style: RamStyle, rng: &mut Rng) -> Sim {
        check::sim(&Fifo::def(&Lib::new(), 32, depth, style), rng)
    }

    #[test]
    fn words_keep_their_order_at_every_depth_and_style() {
        let mut rng = Rng::new("prim::fifo", 1);
        for (depth, style) in [(2, RamStyle::Registers), (4, RamStyle::Distributed), (64, RamStyle::Block)] {
            let mut sim = queue(depth, style, &mut rng);
            for (valid, ready) in [(50, 50), (95, 30), (30, 95), (100, 100)] {
                check::check_order(&mut sim, &mut rng, 300, valid, ready);
            }
        }
    }

    #[test]
    fn a_word_falls_through_in_two_cycles_and_then_one_passes_every_cycle() {
        let mut rng = Rng::new("prim::fifo", 2);
        let mut sim = queue(4, RamStyle::Distributed, &mut rng);
        assert_eq!(check::check_order(&mut sim, &mut rng, 100, 100, 100), 102);
    }

    #[test]
    fn it_takes_exactly_its_depth_and_tells_level_and_high_water() {
        let mut rng = Rng::new("prim::fifo", 3);
        let mut sim = queue(8, RamStyle::Distributed, &mut rng);
        sim.poke("tx_ready", 0);
        sim.poke("rx_valid", 1);
        let mut taken = 0;
        for _ in 0..20 {
            taken += sim.peek("rx_ready");
            sim.clock();
        }
        assert_eq!((taken, sim.peek("level"), sim.peek("rx_ready")), (8, 8, 0));
        sim.poke("rx_valid", 0);
        sim.poke("tx_ready", 1);
        sim.clocks(8);
        assert_eq!((sim.peek("level"), sim.peek("tx_valid"), sim.peek("high_water")), (0, 0, 8));
        assert!(sim.covered("full") > 0);
    }
}
