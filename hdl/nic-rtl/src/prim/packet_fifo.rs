//! Queue whose newest words can be taken back: words of a packet come in before it is known whether the packet is good.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `push`, `data` | 1, `width` | | a word in; the source minds `level` |
//! | `commit` | 1 | | all words pushed so far, this cycle's included, may leave |
//! | `rollback` | 1 | | all words pushed since the last commit, this cycle's included, are forgotten |
//! | `tx` | `width` | valid/ready | committed words in order; `valid` is a register |
//! | `level` | bits of `depth` | | words held, not yet committed ones included, from the cycle after the push |
//!
//! Latency 2 cycles from the commit; 1 word per cycle in and out at once. `commit` and `rollback` never come together.
//! Reset empties it. State: `depth` words of RAM. Drops: what is rolled back, counted by who asks for it.

use super::fifo::default_style;
use rtl_graph::*;

module! {
    /// Packet queue over one vector; `depth` is a power of two from 2 on.
    pub struct PacketFifo = "nic_prim_packet_fifo" (width: u32, depth: u32) {
        push: in Uint(1),
        data: in Uint(width),
        commit: in Uint(1),
        rollback: in Uint(1),
        tx: out Stream<Raw>(Raw::layout(width)),
        level: out Uint(count_bits(depth.into())),
    } |b| {
        let is_depth = depth.is_power_of_two() && depth >= 2;
        assert!(is_depth, "a queue of {depth} words: the depth must be a power of two from 2 on");
        let (index, count) = (index_bits(depth.into()), count_bits(depth.into()));
        // Pointers have one bit more than the address; `rd` is ahead by the word that is shown.
        let (wr, rd) = (b.reg_reset("wr", index + 1, 0), b.reg_reset("rd", index + 1, 0));
        let committed = b.reg_reset("committed", index + 1, 0);
        let held = b.reg_reset("held", count, 0);
        let pending = b.reg_reset("pending", count, 0);
        let out_valid = b.reg_reset("out_valid", 1, 0);

        let pop = (out_valid & tx.ready).named("pop");
        // The address is a register and only the enable waits for `ready`.
        let load = ((!out_valid | tx.ready) & rd.ne(committed)).named("load");
        let mem = b.mem("words", depth.into(), width).style(default_style(depth));
        mem.write(push, wr.trunc(index), data);
        let head = mem.read_en(load, rd.trunc(index));
        let wr_pushed = push.mux(wr.inc(), wr).named("wr_pushed");
        wr.set(rollback.mux(committed, wr_pushed));
        committed.set_en(commit, wr_pushed);
        rd.set_en(load, rd.inc());
        out_valid.set(load | (out_valid & !tx.ready));

        let kept = (push & !rollback).named("kept");
        let remain = held - rollback.mux(pending, 0);
        held.set(b.select(&[(kept & !pop, remain.inc()), (pop & !kept, remain.dec())], remain));
        pending.set((commit | rollback).mux(0, push.mux(pending.inc(), pending)));

        tx.valid.set(out_valid);
        tx.data.data.set(head);
        level.set(held);

        b.assert("never_overflows", !push | held.ne(depth));
        b.assert("one_decision_at_a_time", !(commit & rollback));
        b.assert("order_of_pointers", (committed - rd).le(wr - rd));
        b.assert("level_and_pointers_agree", held.eq((wr - rd).resize(count) + out_valid.zext(count)));
        b.assert("pending_and_pointers_agree", pending.eq((wr - committed).resize(count)));
        b.assert("held_fits", held.le(depth) & (wr - rd).le(depth));
        b.cover("rolled_back", rollback & wr.ne(committed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng, Sink};
    use std::collections::VecDeque;

    #[test]
    fn committed_words_come_out_in_order_and_no_others() {
        let mut rng = Rng::new("prim::packet_fifo", 1);
        const DEPTH: u64 = 16;
        let mut sim = check::sim(&PacketFifo::def(&Lib::new(), 32, DEPTH as u32), &mut rng);
        let mut sink = Sink::new(&sim, "tx");
        let (mut pending, mut due, mut got) = (vec![], VecDeque::new(), 0);
        for cycle in 0..8000u64 {
            let ready = [20, 60, 100][(cycle / 500 % 3) as usize];
            let has_room = sim.peek("level") < DEPTH;
            let push = has_room && rng.chance(70);
            let word = rng.next() & 0xffff_ffff;
            // A packet that fills the queue must be decided on, or nothing would move again.
            let decide = rng.chance(20) || pending.len() as u64 + 1 >= DEPTH;
            let commit = decide && rng.chance(70);
            sim.poke("push", push.into());
            sim.poke("data", word);
            sim.poke("commit", commit.into());
            sim.poke("rollback", (decide && !commit).into());
            sink.drive(&mut sim, &mut rng, ready);
            pending.extend(push.then_some(word));
            if let Some(word) = sink.taken(&mut sim) {
                assert_eq!(Some(word), due.pop_front());
                got += 1;
            }
            if commit {
                due.extend(pending.drain(..));
            } else if decide {
                pending.clear();
            }
            sim.clock();
            assert_eq!(sim.peek("level"), (due.len() + pending.len()) as u64);
        }
        assert!(got > 1000 && sim.covered("rolled_back") > 100, "{got} words");
    }
}
