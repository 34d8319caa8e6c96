//! Round-robin arbiter: several streams into one.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `rx` × `inputs` | `width` | valid/ready | words in; `ready` depends on the `valid`s |
//! | `tx` | `width` | valid/ready | words out, registered |
//! | `source` | bits of an input's index | with `tx` | input that the word came from |
//!
//! With `last_bit` an input keeps the grant until it sent a word whose bit `last_bit` is 1 (packets stay whole), else
//! the grant moves on after each word. The input after the last served one comes first, so none waits for more than
//! `inputs − 1` others. Latency 1 cycle; 1 word per cycle. Reset drops the held word and the lock. Drops: none.

use rtl_graph::*;

module! {
    /// Arbiter over vectors.
    pub struct Arbiter = "nic_prim_arbiter" (width: u32, inputs: usize, last_bit: Option<u32>) {
        rx: in Stream<Raw>(Raw::layout(width)) [inputs],
        tx: out Stream<Raw>(Raw::layout(width)),
        source: out Uint(index_bits(inputs as u64)),
    } |b| {
        let n = inputs as u32;
        assert!(n >= 2, "an arbiter of {n} inputs has nothing to choose");
        let (out_valid, out) = (b.reg_reset("out_valid", 1, 0), b.reg("out", width));
        let out_source = b.reg("out_source", index_bits(n.into()));
        // Inputs behind the last served one.
        let behind = b.reg_reset("behind", n, 0);
        let (locked, owner) = (b.reg_reset("locked", 1, 0), b.reg("owner", n));

        let request = bits_of(b, &rx.iter().map(|s| s.valid).collect::<Vec<_>>()).named("request");
        let first = request & behind;
        let pick = first.any().mux(first.lowest_one(), request.lowest_one());
        let grant = locked.mux(owner, pick).named("grant");
        let free = (!out_valid | tx.ready).named("free");
        let fire = (free & (grant & request).any()).named("fire");

        let arms: Vec<(S, S)> = rx.iter().enumerate().map(|(k, s)| (grant.bit(k as u32), s.data.data)).collect();
        let word = b.one_hot_select(&arms).named("word");
        let is_last = last_bit.map_or(b.high(), |bit| word.bit(bit));
        locked.set_en(fire, !is_last);
        owner.set_en(fire, grant);
        let above: Vec<S> = (0..n).map(|k| if k == 0 { b.low() } else { grant.trunc(k).any() }).collect();
        behind.set_en(fire & is_last, bits_of(b, &above));

        out_valid.set_en(free, fire);
        out.set_en(fire, word);
        out_source.set_en(fire, grant.one_hot_index());
        for (k, s) in rx.iter().enumerate() {
            s.ready.set(grant.bit(k as u32) & free);
        }
        tx.valid.set(out_valid);
        tx.data.data.set(out);
        source.set(out_source);

        b.assert("at_most_one_grant", (grant & (grant - 1)).is_zero());
    }
}

fn bits_of<'a>(b: &'a B, bits: &[S<'a>]) -> S<'a> {
    b.cat(&bits.iter().rev().copied().collect::<Vec<_>>())
}

/// Puts an [`Arbiter`] behind streams of one record; gives its output and the index of the word's input.
///
/// `last` names the one-bit field that ends a packet; `None` arbitrates word by word.
#[track_caller]
pub fn arbiter<'a, R: Record<'a>>(
    b: &'a B,
    name: &str,
    up: &[Stream<'a, R>],
    last: Option<&str>,
) -> (Stream<'a, R>, S<'a>) {
    assert!(!up.is_empty(), "arbiter `{name}` has no inputs");
    let layout = up[0].data.layout_of();
    let a = Arbiter::at(b, name, layout.width(), up.len(), last.map(|field| layout.place(field).0));
    for (from, to) in up.iter().zip(&a.rx) {
        to.data.data.set(from.data.pack());
        to.valid.set(from.valid);
        from.ready.set(to.ready);
    }
    let data = R::unpack_as(&layout, a.tx.data.data);
    (Stream { data, valid: a.tx.valid, ready: a.tx.ready }, a.source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng, Sink, Source};

    /// Words carry input 31:24, sequence 23:1 and, in bit 0, the end of a packet.
    fn words(input: usize, count: u64, rng: &mut Rng) -> Vec<u64> {
        (0..count).map(|k| (input as u64) << 24 | k << 1 | u64::from(k + 1 == count || rng.chance(40))).collect()
    }

    fn run(inputs: usize, last_bit: Option<u32>, valid: u64, ready: u64, rng: &mut Rng) -> Vec<u64> {
        let mut sim = check::sim(&Arbiter::def(&Lib::new(), 32, inputs, last_bit), rng);
        let sent: Vec<Vec<u64>> = (0..inputs).map(|k| words(k, 60, rng)).collect();
        let mut sources: Vec<Source> =
            sent.iter().enumerate().map(|(k, w)| Source::new(&sim, &format!("rx_{k}"), w.clone())).collect();
        let (mut sink, source) = (Sink::new(&sim, "tx"), sim.pin("source"));
        let mut got = vec![];
        while got.len() < 60 * inputs {
            sources.iter_mut().for_each(|s| s.drive(&mut sim, rng, valid));
            sink.drive(&mut sim, rng, ready);
            let taken: Vec<u64> = sources.iter_mut().filter_map(|s| s.taken(&mut sim)).collect();
            assert!(taken.len() <= 1, "two words taken in one cycle");
            if let Some(word) = sink.taken(&mut sim) {
                assert_eq!(sim.get(source), word >> 24);
                got.push(word);
            }
            sim.clock();
            assert!(sim.cycles() < 20_000, "{} words came out", got.len());
        }
        assert!(sources.iter().all(Source::is_done));
        for (k, w) in sent.iter().enumerate() {
            assert_eq!(&got.iter().filter(|x| **x >> 24 == k as u64).copied().collect::<Vec<_>>(), w, "input {k}");
        }
        got
    }

    #[test]
    fn every_input_keeps_its_order_and_none_is_starved() {
        let mut rng = Rng::new("prim::arbiter", 1);
        for inputs in [2, 3, 5] {
            run(inputs, None, 50, 60, &mut rng);
            let got = run(inputs, None, 100, 100, &mut rng);
            // All inputs always have a word: they are served in turn.
            assert!(got.windows(2).all(|w| (w[0] >> 24) + 1 == w[1] >> 24 || w[1] >> 24 == 0));
        }
    }

    #[test]
    fn a_locked_packet_stays_whole() {
        let mut rng = Rng::new("prim::arbiter", 2);
        for (valid, ready) in [(100, 100), (40, 70)] {
            let got = run(3, Some(0), valid, ready, &mut rng);
            assert!(got.windows(2).all(|w| w[0] & 1 == 1 || w[0] >> 24 == w[1] >> 24));
            assert!(got.windows(2).any(|w| w[0] >> 24 != w[1] >> 24));
        }
    }
}
