//! Arithmetic on bit vectors held as little-endian `u64` words.

/// Words needed for `w` bits.
pub(crate) fn words(w: u32) -> usize {
    (w as usize).div_ceil(64)
}

/// Mask of the used bits of the most significant word.
pub(crate) fn top_mask(w: u32) -> u64 {
    if w % 64 == 0 {
        !0
    } else {
        (1 << (w % 64)) - 1
    }
}

/// Bits needed to count to `n - 1`, at least 1: the width of an index into `n` things.
pub fn index_bits(n: u64) -> u32 {
    (64 - n.saturating_sub(1).leading_zeros()).max(1)
}

/// Bits needed to hold the value `n`, at least 1: the width of a count of at most `n`.
pub fn count_bits(n: u64) -> u32 {
    (64 - n.leading_zeros()).max(1)
}

/// `w` bits of `v` from bit `lo` on.
pub(crate) fn slice(v: &[u64], lo: u32, w: u32) -> Vec<u64> {
    let (q, r) = ((lo / 64) as usize, lo % 64);
    let at = |i: usize| v.get(i).copied().unwrap_or(0);
    let mut out: Vec<u64> =
        (0..words(w)).map(|j| (at(q + j) >> r) | if r == 0 { 0 } else { at(q + j + 1) << (64 - r) }).collect();
    *out.last_mut().expect("a slice has a word") &= top_mask(w);
    out
}

/// Puts the `w` bits of `part` into `v` at bit `lo`; the place must be zero.
pub(crate) fn insert(v: &mut [u64], part: &[u64], lo: u32, w: u32) {
    let (q, r) = ((lo / 64) as usize, lo % 64);
    for (j, x) in part.iter().enumerate().take(words(w)) {
        v[q + j] |= x << r;
        if r != 0 && q + j + 1 < v.len() {
            v[q + j + 1] |= x >> (64 - r);
        }
    }
}

/// Hexadecimal digits without leading zeros.
pub(crate) fn hex(v: &[u64]) -> String {
    let mut s = String::new();
    for x in v.iter().rev() {
        if s.is_empty() {
            if *x != 0 {
                s = format!("{x:x}");
            }
        } else {
            s += &format!("{x:016x}");
        }
    }
    if s.is_empty() {
        s.push('0');
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insert_is_the_inverse_of_slice() {
        let mut v = [0u64; 3];
        insert(&mut v, &[0xdead_beef_0123_4567, 0x5], 61, 67);
        assert_eq!(slice(&v, 61, 67), [0xdead_beef_0123_4567, 0x5]);
        assert_eq!(v[0] & ((1 << 61) - 1), 0);
    }

    #[test]
    fn index_and_count_widths_are_never_zero() {
        assert_eq!([0, 1, 2, 3, 4, 5].map(index_bits), [1, 1, 1, 2, 2, 3]);
        assert_eq!([0, 1, 2, 3, 4, 8].map(count_bits), [1, 1, 2, 2, 3, 4]);
    }
}
