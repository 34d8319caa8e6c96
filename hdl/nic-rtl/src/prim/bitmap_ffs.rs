//! First set bit of a 256-bit map from a starting bit on, wrapping, in two levels of 16.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `valid`, `bitmap`, `start` | 1, 256, 8 | valid only | a question |
//! | `out_valid`, `found`, `index` | 1, 1, 8 | valid only | its answer: the first set bit at `start`, `start + 1`, … modulo 256 |
//!
//! Latency 2 cycles; 1 question per cycle. Reset clears the valid bits. Drops: none.
//!
//! The first level chooses one of 16 groups of 16 bits: the start's own group when it has a bit at or behind the start,
//! else the next group with a bit, which may be the start's own again by its bits before the start. The second level
//! chooses within the group.

use rtl_graph::*;

/// Bits of the map.
pub const MAP_BITS: u32 = 256;
/// Bits of a group, and number of groups.
const GROUP: u32 = 16;
/// Bits of an index within a group and of a group's index.
const HALF: u32 = 4;

/// What the first level chose.
#[derive(Clone, Copy)]
pub struct Chosen<'a> {
    /// A bit is set.
    pub found: S<'a>,
    /// Index of the group.
    pub group: S<'a>,
    /// The group's bits that count.
    pub bits: S<'a>,
}

/// First level: the group that holds the answer. About six LUT levels.
pub fn choose_group<'a>(b: &'a B, map: S<'a>, start: S<'a>) -> Chosen<'a> {
    assert_eq!(map.width(), MAP_BITS, "the map has {MAP_BITS} bits");
    let groups = map.chunks(GROUP);
    let (start_group, start_bit) = (start.bits(HALF, HALF), start.trunc(HALF));
    // Bits of the start's group at or behind the start.
    let own = b.pick(start_group, &groups) & at_or_behind(b, start_bit);
    let own_hit = own.any();
    let any = b.cat(&groups.iter().rev().map(|g| g.any()).collect::<Vec<_>>());
    let strictly_behind = at_or_behind(b, start_group).shl(1);
    let (later_hit, later) = (any & strictly_behind).first_one();
    let (found, earliest) = any.first_one();
    let group = own_hit.mux(start_group, later_hit.mux(later, earliest));
    // When the search came round to the start's group, only bits before the start are left in it.
    let bits = own_hit.mux(own, b.pick(group, &groups));
    Chosen { found, group, bits }
}

/// Second level: the bit within the group.
pub fn choose_bit<'a>(chosen: &Chosen<'a>) -> S<'a> {
    chosen.group.cat(chosen.bits.first_one().1)
}

/// Mask of the positions `k >= start` among 16.
fn at_or_behind<'a>(b: &'a B, start: S<'a>) -> S<'a> {
    // Of the last position it always holds; saying so would be a comparison that is constant.
    let rest: Vec<S> = (0..GROUP - 1).rev().map(|k| start.le(k)).collect();
    b.high().cat(b.cat(&rest))
}

/// Both levels without a register between them: `(found, index)`.
pub fn bitmap_ffs<'a>(b: &'a B, map: S<'a>, start: S<'a>) -> (S<'a>, S<'a>) {
    let chosen = choose_group(b, map, start);
    (chosen.found, choose_bit(&chosen))
}

module! {
    /// Both levels, a register behind each.
    pub struct BitmapFfs = "nic_prim_bitmap_ffs" () {
        valid: in Uint(1),
        bitmap: in Uint(MAP_BITS),
        start: in Uint(2 * HALF),
        out_valid: out Uint(1),
        found: out Uint(1),
        index: out Uint(2 * HALF),
    } |b| {
        // s1: the group.
        let s1 = choose_group(b, bitmap, start);
        let (s1_found, s1_group, s1_bits) =
            (s1.found.delay("s1_found", 1), s1.group.delay("s1_group", 1), s1.bits.delay("s1_bits", 1));
        // s2: the bit.
        let bit = choose_bit(&Chosen { found: s1_found, group: s1_group, bits: s1_bits });
        out_valid.set(valid.delay_reset("valid_q", 2));
        found.set(s1_found.delay("s2_found", 1));
        index.set(bit.delay("s2_index", 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng};

    fn expected(map: &[u64; 4], start: u64) -> Option<u64> {
        (0..256).map(|k| (start + k) % 256).find(|k| map[(k / 64) as usize] >> (k % 64) & 1 == 1)
    }

    #[test]
    fn the_first_bit_from_the_start_on_is_found_around_the_end() {
        let mut rng = Rng::new("prim::bitmap_ffs", 1);
        let mut sim = check::sim(&BitmapFfs::def(&Lib::new()), &mut rng);
        let mut due = std::collections::VecDeque::new();
        for round in 0..3000u64 {
            let mut map = [0u64; 4];
            // From empty over a single bit to nearly full.
            match round % 4 {
                0 => (0..rng.below(4)).for_each(|_| map[rng.below(4) as usize] |= 1 << rng.below(64)),
                1 => map = std::array::from_fn(|_| rng.next() & rng.next() & rng.next() & rng.next()),
                2 => map = std::array::from_fn(|_| rng.next()),
                _ => (0..256).for_each(|k| map[k / 64] |= u64::from(k as u64 != round % 256) << (k % 64)),
            }
            let start = rng.below(256);
            sim.poke("valid", 1);
            sim.poke_wide("bitmap", &map);
            sim.poke("start", start);
            due.push_back(expected(&map, start));
            sim.clock();
            if due.len() == 2 {
                assert_eq!(sim.peek("out_valid"), 1);
                let found = (sim.peek("found") == 1).then(|| sim.peek("index"));
                assert_eq!(Some(found), due.pop_front());
            }
        }
    }
}
