//! Takes the first bytes off a frame: shifts what follows to byte 0.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `valid`, `data`, `first`, `last` | 1, 8·`bytes`, 1, 1 | valid only | beats of frames, gaps allowed |
//! | `select` | one a shift | with every beat | one-hot: bytes to take off this frame; none = the frame's content does not matter |
//! | `out_*` | the same | valid only | one beat for each beat in; `out_last` on the beat made of the frame's last |
//!
//! Beat `k` out is the bytes from `64·k + shift` on (for 64-byte beats), zero beyond the last beat in. So the last beat
//! may hold nothing of the frame. The shifts are below a beat.
//!
//! Latency: beat `k` comes out 1 cycle after beat `k + 1` came in, and the last beat 2 cycles after itself. 1 beat per
//! cycle. Reset clears the valid bits. State: two beats of registers. Drops: none.

use rtl_graph::*;

module! {
    /// Strips a frame by one of `shifts` bytes.
    pub struct Strip = "nic_prim_strip" (bytes: u32, shifts: &[u32]) {
        valid: in Uint(1),
        data: in Uint(8 * bytes),
        first: in Uint(1),
        last: in Uint(1),
        select: in Uint(shifts.len() as u32),
        out_valid: out Uint(1),
        out_data: out Uint(8 * bytes),
        out_first: out Uint(1),
        out_last: out Uint(1),
    } |b| {
        assert!(shifts.iter().all(|s| *s < bytes), "shifts {shifts:?} must be below a beat of {bytes} bytes");
        // r1: the beat that waits for the one behind it.
        let wait_valid = b.reg_reset("r1_valid", 1, 0);
        let (wait, wait_first, wait_last) = (b.reg("r1_data", 8 * bytes), b.reg("r1_first", 1), b.reg("r1_last", 1));
        // Which shift it is, for the bytes of this beat; and for those of the next, which the last beat has not.
        let (wait_select, wait_next) = (b.reg("r1_select", shifts.len() as u32), b.reg("r1_next", shifts.len() as u32));
        let emit = (wait_valid & (wait_last | valid)).named("r1_emit");
        wait_valid.set(valid | (wait_valid & !emit));
        wait.set_en(valid, data);
        wait_first.set_en(valid, first);
        wait_last.set_en(valid, last);
        wait_select.set_en(valid, select);
        wait_next.set_en(valid, select & (!last).rep(select.width()));

        // r2: both, shifted.
        let of_this: Vec<(S, S)> = shifts.iter().zip(0..).map(|(s, k)| (wait_select.bit(k), wait.shr(8 * s))).collect();
        let of_next: Vec<(S, S)> =
            shifts.iter().zip(0..).map(|(s, k)| (wait_next.bit(k), data.shl(8 * (bytes - s)))).collect();
        out_valid.set(emit.delay_reset("r2_valid", 1));
        let (shifted, is_first, is_last) = (b.reg("r2_data", 8 * bytes), b.reg("r2_first", 1), b.reg("r2_last", 1));
        shifted.set_en(emit, b.one_hot_select(&of_this) | b.one_hot_select(&of_next));
        is_first.set_en(emit, wait_first);
        is_last.set_en(emit, wait_last);
        out_data.set(shifted);
        out_first.set(is_first);
        out_last.set(is_last);

        b.assert("one_shift_at_most", !wait_valid | (wait_select & (wait_select - 1)).is_zero());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng};

    #[test]
    fn every_byte_behind_the_cut_moves_to_the_front_whatever_the_gaps() {
        let mut rng = Rng::new("prim::strip", 1);
        let shifts = [2u32, 7, 13];
        let mut sim = check::sim(&Strip::def(&Lib::new(), 16, &shifts), &mut rng);
        for gaps in [0, 60] {
            let frames: Vec<(usize, Vec<u8>)> = (0..60)
                .map(|_| {
                    let beats = 1 + rng.below(5) as usize;
                    (rng.below(3) as usize, rng.bytes(16 * beats))
                })
                .collect();
            let mut out: Vec<Vec<u8>> = vec![];
            let collect = |sim: &mut Sim, out: &mut Vec<Vec<u8>>| {
                if sim.peek("out_valid") == 1 {
                    if sim.peek("out_first") == 1 {
                        out.push(vec![]);
                    }
                    let words = sim.peek_wide("out_data");
                    out.last_mut().unwrap().extend(words.iter().flat_map(|w| w.to_le_bytes()));
                }
            };
            for (select, bytes) in &frames {
                for (k, beat) in bytes.chunks(16).enumerate() {
                    while rng.chance(gaps) {
                        sim.poke("valid", 0);
                        sim.poke("last", rng.below(2));
                        sim.clock();
                        collect(&mut sim, &mut out);
                    }
                    sim.poke("valid", 1);
                    sim.poke_wide("data", &check::words(beat));
                    sim.poke("first", (k == 0).into());
                    sim.poke("last", ((k + 1) * 16 == bytes.len()).into());
                    sim.poke("select", 1 << select);
                    sim.clock();
                    collect(&mut sim, &mut out);
                }
            }
            sim.poke("valid", 0);
            (0..3).for_each(|_| {
                sim.clock();
                collect(&mut sim, &mut out);
            });
            assert_eq!(out.len(), frames.len());
            for ((select, bytes), got) in frames.iter().zip(&out) {
                let cut = &bytes[shifts[*select] as usize..];
                assert_eq!((got.len(), &got[..cut.len()]), (bytes.len(), cut));
                assert!(got[cut.len()..].iter().all(|byte| *byte == 0), "zero beyond the end");
            }
        }
    }
}
