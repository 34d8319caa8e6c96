//! Cuts a run of 64-byte lines into bursts.
//!
//! A burst ends at every multiple of `burst_beats` lines. Since that is a power of two and at most 64, no burst crosses
//! a 4 KiB border, and all bursts but the first and the last of a run are whole.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `rx` | [`Run`] | valid/ready | lines to be accessed; a run of 0 lines gives no burst |
//! | `tx` | [`Burst`] | valid/ready | bursts in order of address, registered |
//!
//! Latency 2 cycles; 1 burst per cycle, the next run without a gap. Reset forgets the run. State: one run and one burst.
//! Drops: none.

use rtl_graph::*;

/// Bits of the address of a 64-byte line.
pub const LINE_BITS: u32 = 58;
/// Bits of a number of lines that a 14-bit length at any offset touches. 0..=257.
pub const RUN_BITS: u32 = 9;

record! {
    /// Consecutive lines of memory.
    pub struct Run {
        /// Address of the first one, in lines.
        line: LINE_BITS,
        beats: RUN_BITS,
    }
}

record! {
    /// One burst.
    pub struct Burst {
        /// Address of its first line, in lines.
        line: LINE_BITS,
        /// Beats less one, as on the bus.
        len: 8,
        /// Last burst of its run.
        last: 1,
    }
}

module! {
    /// Burst splitter.
    pub struct BurstSplit = "nic_dma_split" (burst_beats: u32) {
        rx: in Stream<Run>,
        tx: out Stream<Burst>,
    } |b| {
        assert!(
            burst_beats.is_power_of_two() && (2..=64).contains(&burst_beats),
            "bursts of {burst_beats} beats: must be a power of two from 2 to 64, or they would cross 4 KiB borders"
        );
        let offset_bits = index_bits(burst_beats.into());
        let active = b.reg_reset("active", 1, 0);
        let (line, left) = (b.reg("line", LINE_BITS), b.reg("left", RUN_BITS));

        let to_border = (b.lit(burst_beats.into(), RUN_BITS) - line.trunc(offset_bits).zext(RUN_BITS)).named("to_border");
        let is_last = left.le(to_border).named("is_last");
        let beats = is_last.mux(left, to_border).named("beats");
        let out_valid = b.reg_reset("out_valid", 1, 0);
        let out_free = !out_valid | tx.ready;
        let fire = (active & out_free).named("fire");
        let free = (!active | (fire & is_last)).named("free");
        let take = (free & rx.valid).named("take");

        active.set_en(free, rx.valid & rx.data.beats.any());
        // The burst after the first begins at the border.
        let border = line.high_bits(LINE_BITS - offset_bits).inc().cat(b.zero(offset_bits));
        line.set(take.mux(rx.data.line, fire.mux(border, line)));
        left.set(take.mux(rx.data.beats, fire.mux(left - to_border, left)));
        rx.ready.set(free);
        let burst = Burst { line, len: beats.dec().trunc(8), last: is_last };
        out_valid.set_en(out_free, active);
        tx.put(out_valid, &burst.reg_en("out", fire));

        let past = line.trunc(6).zext(RUN_BITS) + beats;
        b.assert("no_burst_crosses_4_kib", !active | past.le(64));
        b.assert("a_burst_has_beats", !active | beats.any());
    }
}

#[cfg(test)]
mod tests {
    use super::super::bench::*;
    use super::*;

    /// The bursts of a run, as (line, beats, last).
    fn expected(line: u64, beats: u64, burst: u64) -> Vec<(u64, u64, u64)> {
        let (mut at, mut left, mut bursts) = (line, beats, vec![]);
        while left > 0 {
            let n = left.min(burst - at % burst);
            left -= n;
            bursts.push((at, n, (left == 0).into()));
            at += n;
        }
        bursts
    }

    #[test]
    fn runs_become_bursts_that_no_border_cuts() {
        for seed in [1, 2] {
            for burst in [2, 16, 64] {
                let mut rng = Rng::new("runs_become_bursts", seed);
                let mut sim = sim(&BurstSplit::def(&Lib::new(), burst), &mut rng);
                let mut source = Source::new(&sim, "rx", &["line", "beats"]);
                let mut sink = Sink::new(&sim, "tx", &["line", "len", "last"]);
                (source.rate, sink.rate) = (pick(&mut rng, &[30, 100]), pick(&mut rng, &[30, 100]));
                let mut want = vec![];
                for k in 0..200 {
                    let line = (k << 10) + rng.below(64);
                    let any = rng.below(258);
                    let beats = pick(&mut rng, &[0, 1, 2, 64, 65, 129, 257, any]);
                    source.push(vec![word(line), word(beats)]);
                    want.extend(expected(line, beats, burst.into()));
                }
                let mut got = vec![];
                for _ in 0..200_000 {
                    source.drive(&mut sim, &mut rng);
                    sink.drive(&mut sim, &mut rng);
                    source.taken(&mut sim);
                    got.extend(sink.taken(&mut sim).map(|w| (w[0][0], w[1][0] + 1, w[2][0])));
                    sim.clock();
                    if source.queue.is_empty() && got.len() == want.len() {
                        break;
                    }
                }
                assert_eq!(got, want, "bursts of {burst}");
            }
        }
    }

    #[test]
    fn runs_follow_each_other_without_a_gap() {
        let mut sim = BurstSplit::def(&Lib::new(), 16).sim();
        sim.reset(2);
        sim.poke("rx_valid", 1);
        sim.poke("rx_beats", 1);
        sim.poke("tx_ready", 1);
        sim.clocks(2);
        for _ in 0..10 {
            assert_eq!((sim.peek("tx_valid"), sim.peek("rx_ready")), (1, 1));
            sim.clock();
        }
    }
}
