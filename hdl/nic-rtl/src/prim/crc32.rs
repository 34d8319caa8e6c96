//! CRC-32 (reflected, Ethernet's polynomial) of wide words, as rows of exclusive or.
//!
//! The register of a CRC is linear in itself and in the data over GF(2). So a beat's contribution is 32 parities of
//! selected data bits, free of feedback and pipelined at will ([`block`]), and carrying the register over `n` bytes is
//! one 32×32 matrix ([`Matrix::advance`]); that matrix has an inverse, which takes trailing zeros back
//! ([`Matrix::retreat`]). Both are computed here at elaboration, bit by bit from the polynomial's definition.

use rtl_graph::*;

/// The polynomial, least significant bit first.
pub const POLY_REFLECTED: u32 = 0xedb8_8320;

/// The register after one more byte.
fn step(state: u32, byte: u8) -> u32 {
    (0..8).fold(state ^ u32::from(byte), |s, _| s >> 1 ^ if s & 1 == 1 { POLY_REFLECTED } else { 0 })
}

/// The register before a zero byte that led to `state`.
fn step_back(state: u32) -> u32 {
    // The polynomial's top bit is set, so the top bit of the register tells whether it was added.
    (0..8).fold(state, |s, _| if s >> 31 == 1 { (s ^ POLY_REFLECTED) << 1 | 1 } else { s << 1 })
}

/// A linear map of the register, by rows: bit `i` of the result is the parity of the register under `rows[i]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// One mask a bit of the result.
    pub rows: [u32; 32],
}

impl Matrix {
    fn of(map: impl Fn(u32) -> u32) -> Matrix {
        let columns: [u32; 32] = std::array::from_fn(|j| map(1 << j));
        let row = |i: usize| (0..32).fold(0, |row, j| row | (columns[j] >> i & 1) << j);
        Matrix { rows: std::array::from_fn(row) }
    }

    /// Carries the register over `bytes` zero bytes.
    pub fn advance(bytes: u32) -> Matrix {
        Matrix::of(|state| (0..bytes).fold(state, |s, _| step(s, 0)))
    }

    /// Takes `bytes` zero bytes back: the inverse of [`Matrix::advance`].
    pub fn retreat(bytes: u32) -> Matrix {
        Matrix::of(|state| (0..bytes).fold(state, |s, _| step_back(s)))
    }

    /// The map of one value.
    pub fn apply(&self, state: u32) -> u32 {
        (0..32).fold(0, |out, i| out | ((self.rows[i] & state).count_ones() % 2) << i)
    }

    /// The map as logic: at most two LUT levels and a half.
    #[track_caller]
    pub fn of_signal<'a>(&self, state: S<'a>) -> S<'a> {
        let masks: Vec<Vec<u64>> = self.rows.iter().map(|row| vec![u64::from(*row)]).collect();
        state.parity_rows(&masks)
    }
}

/// Masks of a block of `bytes` bytes, of 64-bit words: bit `i` of the CRC from a zero register, taken back by `back`
/// zero bytes, is the parity of the data under `masks[i]`.
fn data_masks(bytes: u32, back: u32) -> Vec<Vec<u64>> {
    let mut masks = vec![vec![0u64; bytes.div_ceil(8) as usize]; 32];
    for bit in 0..8 {
        let mut column = Matrix::retreat(back).apply(step(0, 1 << bit));
        for byte in (0..bytes).rev() {
            let at = 8 * byte + bit;
            for (i, mask) in masks.iter_mut().enumerate() {
                mask[(at / 64) as usize] |= u64::from(column >> i & 1) << (at % 64);
            }
            column = step(column, 0);
        }
    }
    masks
}

/// CRC of one beat from a zero register, [`BLOCK_LATENCY`] cycles later: registers `NAME_part_k` and `NAME_crc`.
///
/// The result is taken back by a constant number of zero bytes, `back`, at no cost: both steps are linear. The first
/// stage takes 8 bytes a part (two to three LUT levels), the second joins the parts (two levels).
#[track_caller]
pub fn block<'a>(b: &'a B, name: &str, data: S<'a>, back: u32) -> S<'a> {
    let masks = data_masks(data.width() / 8, back);
    let part = |(k, word): (usize, S<'a>)| {
        let masks: Vec<Vec<u64>> = masks.iter().map(|mask| vec![mask[k]]).collect();
        let r = b.reg(&format!("{name}_part_{k}"), 32);
        r.set(word.parity_rows(&masks));
        r
    };
    let parts: Vec<S> = data.chunks(64).into_iter().enumerate().map(part).collect();
    let crc = b.reg(&format!("{name}_crc"), 32);
    crc.set(b.xor_tree(&parts));
    crc
}

/// Cycles of [`block`].
pub const BLOCK_LATENCY: u32 = 2;

/// Takes `len` times `unit` zero bytes back from `state`, two bits of `len` a cycle.
///
/// Gives the result after [`retreat_latency`] cycles: registers `NAME_0`, ….
#[track_caller]
pub fn retreat<'a>(name: &str, state: S<'a>, len: S<'a>, unit: u32) -> S<'a> {
    let (mut state, mut len) = (state, Some(len));
    for stage in 0.. {
        let Some(left) = len else { break };
        let base = unit << (2 * stage);
        let back = |k: u32| if k == 0 { state } else { Matrix::retreat(base * k).of_signal(state) };
        let choices: Vec<S> = (0..1 << left.width().min(2)).map(back).collect();
        state = state.builder().pick(left.trunc(left.width().min(2)), &choices).delay(&format!("{name}_{stage}"), 1);
        len = (left.width() > 2).then(|| left.bits(2, left.width() - 2).delay(&format!("{name}_len_{stage}"), 1));
    }
    state
}

/// Cycles of [`retreat`] for a length of `len_bits` bits.
pub fn retreat_latency(len_bits: u32) -> u32 {
    len_bits.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::{self, Rng};

    fn software(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |s, b| step(s, *b))
    }

    #[test]
    fn the_check_string_gives_the_published_value() {
        assert_eq!(software(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn going_back_undoes_going_forward_for_every_distance_of_a_beat() {
        for bytes in 0..=68 {
            let (there, back) = (Matrix::advance(bytes), Matrix::retreat(bytes));
            for state in [1, 0x8000_0000, 0xdead_beef, u32::MAX] {
                assert_eq!(back.apply(there.apply(state)), state, "{bytes} bytes");
                assert_eq!(there.apply(state), (0..bytes).fold(state, |s, _| step(s, 0)), "{bytes} bytes");
            }
        }
    }

    #[test]
    fn a_block_from_a_zero_register_is_the_sum_of_its_masks() {
        let data: Vec<u8> = (0..64).map(|i| (i * 89 + 3) as u8).collect();
        let words: Vec<u64> = data.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let parity = |m: &Vec<u64>| m.iter().zip(&words).map(|(m, w)| (m & w).count_ones()).sum::<u32>() % 2;
        let crc = data_masks(64, 0).iter().enumerate().fold(0, |crc, (i, m)| crc | parity(m) << i);
        assert_eq!(crc, data.iter().fold(0, |s, b| step(s, *b)));
    }

    module! {
        /// Running CRC of 64-byte blocks with up to 127 trailing bytes taken back.
        struct Running() {
            data: in Uint(512),
            state: in Uint(32),
            back: in Uint(7),
            block_crc: out Uint(32),
            moved: out Uint(32),
            retreated: out Uint(32),
            block_back: out Uint(32),
        } |b| {
            block_crc.set(block(b, "block", data, 0));
            block_back.set(block(b, "early", data, 6));
            moved.set(Matrix::advance(64).of_signal(state));
            retreated.set(retreat("back", state, back, 1));
        }
    }

    #[test]
    fn the_logic_equals_the_definition_bit_by_bit() {
        let mut rng = Rng::new("prim::crc32", 1);
        let mut sim = check::sim(&Running::def(&Lib::new()), &mut rng);
        for _ in 0..200 {
            let (data, state, back) = (rng.bytes(64), rng.next() as u32, rng.below(128) as u32);
            sim.poke_wide("data", &check::words(&data));
            sim.poke("state", state.into());
            sim.poke("back", back.into());
            sim.clocks(u64::from(retreat_latency(7)));
            let crc = data.iter().fold(0, |s, b| step(s, *b));
            assert_eq!(sim.peek("block_crc") as u32, crc);
            assert_eq!(sim.peek("block_back") as u32, (0..6).fold(crc, |s, _| step_back(s)));
            assert_eq!(sim.peek("moved") as u32, (0..64).fold(state, |s, _| step(s, 0)));
            assert_eq!(sim.peek("retreated") as u32, (0..back).fold(state, |s, _| step_back(s)));
        }
    }
}
