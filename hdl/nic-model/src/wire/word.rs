//! Headers word by word: several fields of one big-endian 32-bit word at once, at places known at compile time.
//!
//! The accessors of a layout read and write one field each. Where a packet is made or taken apart millions of times a
//! second, a word is loaded or stored once; shifts and widths still come from the same tables.

/// Big-endian number of 2 bytes at `at`.
#[inline(always)]
pub(super) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Big-endian number of 4 bytes at `at`.
#[inline(always)]
pub(super) fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Big-endian number of 8 bytes at `at`.
#[inline(always)]
pub(super) fn be64<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// Stores a word at `at`.
#[inline(always)]
pub(super) fn put32<const N: usize>(bytes: &mut [u8; N], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
}

/// Stores two words at `at`.
#[inline(always)]
pub(super) fn put64<const N: usize>(bytes: &mut [u8; N], at: usize, pair: u64) {
    bytes[at..at + 8].copy_from_slice(&pair.to_be_bytes());
}

/// Bits of word number `$word` of a header with the given fields set and the others zero. A value's bits beyond its
/// field's width are cut off.
macro_rules! word {
    ($header:ident[$word:literal]: $($field:ident = $value:expr),+ $(,)?) => {
        0 $(| {
            const F: nic_spec::layout::Field = nic_spec::wire::$header::LAYOUT.field(stringify!($field));
            const SHIFT: usize = F.shift_in_word(4 * $word, 4);
            const MASK: u32 = u32::MAX >> (32 - F.bits);
            (u32::from($value) & MASK) << SHIFT
        })+
    };
}

/// One field of word number `$word` of a header.
macro_rules! field {
    ($value:expr, $header:ident[$word:literal].$field:ident) => {{
        const F: nic_spec::layout::Field = nic_spec::wire::$header::LAYOUT.field(stringify!($field));
        const SHIFT: usize = F.shift_in_word(4 * $word, 4);
        const MASK: u32 = u32::MAX >> (32 - F.bits);
        $value >> SHIFT & MASK
    }};
}

pub(super) use {field, word};

#[cfg(test)]
mod tests {
    use super::*;
    use nic_spec::num::{Pkey, Psn};
    use nic_spec::wire::Bth;

    #[test]
    fn words_and_accessors_mean_the_same_fields() {
        let mut h = Bth::zeroed();
        h.set_opcode(0xe0).set_se(true).set_pad_count(2).set_tver(1).set_pkey(Pkey::new(0x8001));
        h.set_rtx(true).set_pseq(Psn::new(0xab_cdef));
        let first = word!(Bth[0]: opcode = 0xe0u8, se = true, pad_count = 2u8, tver = 1u8, pkey = 0x8001u16);
        let third = word!(Bth[2]: rtx = true, pseq = 0xab_cdefu32);
        assert_eq!((be32(&h.0, 0), be32(&h.0, 8)), (first, third));
        assert_eq!((field!(first, Bth[0].pad_count), field!(third, Bth[2].pseq)), (2, 0xab_cdef));
        assert_eq!((field!(third, Bth[2].ack_req), field!(third, Bth[2].rtx)), (0, 1));
        let mut made = [0; Bth::LEN];
        put32(&mut made, 0, first);
        put64(&mut made, 4, third.into());
        assert_eq!((made, be16(&made, 2), be64(&made, 4)), (h.0, 0x8001, third.into()));
    }
}
