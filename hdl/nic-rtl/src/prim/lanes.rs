//! Byte lanes of a bus that carries byte `i` in bits `8·i + 7 : 8·i`: fields, keeps and lengths.

use rtl_graph::*;

/// Slices `(least significant bit, bits)` of a bus joined to one value, the first slice most significant.
#[track_caller]
pub fn gather<'a>(bus: S<'a>, slices: impl IntoIterator<Item = (usize, usize)>) -> S<'a> {
    let parts: Vec<S> = slices.into_iter().map(|(lo, w)| bus.bits(lo as u32, w as u32)).collect();
    bus.builder().cat(&parts)
}

/// Bus of `bytes` bytes with values put at slices as [`gather`] takes them; all other bits are zero.
///
/// # Panics
/// When slices overlap or leave the bus.
#[track_caller]
pub fn scatter<'a>(b: &'a B, bytes: usize, values: impl IntoIterator<Item = (Vec<(usize, usize)>, S<'a>)>) -> S<'a> {
    // (least significant bit on the bus, part), in ascending order.
    let mut parts: Vec<(usize, S)> = vec![];
    for (slices, value) in values {
        let mut above = value.width();
        for (lo, w) in slices {
            above -= w as u32;
            parts.push((lo, value.bits(above, w as u32)));
        }
        assert!(above == 0, "a value of {} bits has {above} more than its place", value.width());
    }
    parts.sort_by_key(|(lo, _)| *lo);
    let (mut filled, mut at) = (vec![], 0);
    for (lo, part) in parts {
        assert!(lo >= at, "two values share bit {lo} of the bus");
        if lo > at {
            filled.push(b.zero((lo - at) as u32));
        }
        filled.push(part);
        at = lo + part.width() as usize;
    }
    assert!(at <= 8 * bytes, "a value ends at bit {at} of a bus of {bytes} bytes");
    if at < 8 * bytes {
        filled.push(b.zero((8 * bytes - at) as u32));
    }
    filled.reverse();
    b.cat(&filled)
}

/// Number of leading valid bytes, from a keep that is ones from byte 0 on. Three LUT levels for 64 bytes.
pub fn keep_len(keep: S<'_>) -> S<'_> {
    let (b, n) = (keep.builder(), keep.width());
    // The border between ones and zeros, one-hot over the lengths 1..=n, then the index of it.
    let border = keep & !keep.shr(1);
    let bits = count_bits(n.into());
    let of_bit = |k: u32| {
        let hits: Vec<S> = (0..n).filter(|i| (i + 1) >> k & 1 == 1).map(|i| border.bit(i)).collect();
        b.or_tree(&hits)
    };
    b.cat(&(0..bits).rev().map(of_bit).collect::<Vec<_>>())
}

/// Keep of `bytes` lanes with the first `len` set; `len` may exceed `bytes`.
pub fn len_keep<'a>(len: S<'a>, bytes: u32) -> S<'a> {
    let b = len.builder();
    // What no length of this width reaches is not compared: lint calls that a constant.
    let reaches = |i: u32| len.width() >= 32 || u64::from(i) + 1 < 1 << len.width();
    b.cat(&(0..bytes).rev().map(|i| if reaches(i) { len.gt(i) } else { b.low() }).collect::<Vec<_>>())
}

/// The bus with the bytes zeroed whose keep is 0.
#[track_caller]
pub fn mask_bytes<'a>(data: S<'a>, keep: S<'a>) -> S<'a> {
    assert_eq!(data.width(), 8 * keep.width(), "one keep bit a byte");
    let b = data.builder();
    let mask: Vec<S> = (0..keep.width()).rev().map(|i| keep.bit(i).rep(8)).collect();
    data & b.cat(&mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng};

    module! {
        /// All helpers on a bus of 16 bytes.
        struct Helpers() {
            bus: in Uint(128),
            len: in Uint(6),
            field: out Uint(20),
            rebuilt: out Uint(128),
            keep: out Uint(16),
            len_of_keep: out Uint(5),
            masked: out Uint(128),
        } |b| {
            // 20 bits, big-endian: the low half of byte 3, byte 4, byte 5.
            let slices = vec![(24, 4), (32, 8), (40, 8)];
            let value = gather(bus, slices.clone());
            field.set(value);
            rebuilt.set(scatter(b, 16, [(vec![(0, 8)], bus.trunc(8)), (slices, value)]));
            let first = len_keep(len, 16);
            keep.set(first);
            len_of_keep.set(keep_len(first));
            masked.set(mask_bytes(bus, first));
        }
    }

    #[test]
    fn a_field_is_gathered_most_significant_byte_first_and_scattered_back() {
        let mut rng = Rng::new("prim::lanes", 1);
        let mut sim = check::sim(&Helpers::def(&Lib::new()), &mut rng);
        let bytes: Vec<u8> = (0x10..0x20).collect();
        sim.poke_wide("bus", &check::words(&bytes));
        assert_eq!(sim.peek("field"), 0x3_1415);
        assert_eq!(sim.peek_wide("rebuilt"), [0x1514_0300_0010, 0]);
    }

    #[test]
    fn length_and_keep_say_the_same_up_to_the_whole_bus() {
        let mut rng = Rng::new("prim::lanes", 2);
        let mut sim = check::sim(&Helpers::def(&Lib::new()), &mut rng);
        sim.poke_wide("bus", &[u64::MAX; 2]);
        for len in 0..=20 {
            sim.poke("len", len);
            assert_eq!(sim.peek("keep"), (1 << len.min(16)) - 1);
            assert_eq!(sim.peek("len_of_keep"), len.min(16));
            let bits = 8 * len.min(16);
            let expected = if bits == 128 { u128::MAX } else { (1 << bits) - 1 };
            assert_eq!(sim.peek_wide("masked"), [expected as u64, (expected >> 64) as u64]);
        }
    }
}
