//! Invariant CRC of received frames: right or wrong, at one beat per cycle, for every length.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `beats` | [`Beats`] | valid only | frames, bytes beyond the end zero |
//! | `len` | 6 | with the last beat | length of the frame modulo 64 |
//! | `is_good` | 1 | | [`ICRC_LATENCY`] cycles after a last beat: the frame ends with its ICRC |
//!
//! The CRC starts at the IP header, wherever it stands, and includes the ICRC itself: then the register holds a constant
//! when all is right, and after `k` zero bytes to the end of the beat it holds the `k`-th of 64 constants. So no byte is
//! shifted at either end. Before the IP header the bytes count as zeros but the last four, which are ones: from a zero
//! register that is the state that the format prescribes, eight bytes of ones from an all-one register.
//!
//! Latency 5 cycles; 1 beat per cycle. Reset clears the valid bits. State: one beat of registers. The condition for
//! `rx_bad_icrc_count` comes from here. Whether the IP length agrees with the frame's is checked elsewhere.

use super::chain::{rx_links, Link, BEAT_BYTES, BTH_OFFSET};
use super::front::{Beats, BEAT_BITS};
use super::timing::ICRC_LATENCY;
use crate::prim::crc32::{self, Matrix, BLOCK_LATENCY};
use nic_spec::{
    layout::Field,
    wire::icrc::{MASKED_BTH, MASKED_IPV4, MASKED_IPV6, MASKED_UDP},
};
use rtl_graph::*;

/// Register after a message and its CRC, least significant byte first: the residue of CRC-32.
pub const RESIDUE: u32 = 0xdebb_20e3;

/// Bits of a beat that count as zero, and as one, whatever they are. 64-bit words.
pub struct Mask {
    /// Count as zero: bytes before the CRC.
    pub zeros: Vec<u64>,
    /// Count as one: the four bytes before the IP header, and the fields that switches may rewrite.
    pub ones: Vec<u64>,
}

/// Masks of the first and of the second beat of a frame of this shape.
pub fn masks(link: Link) -> [Mask; 2] {
    let words = 2 * BEAT_BYTES / 8;
    let (mut zeros, mut ones) = (vec![0u64; words], vec![0u64; words]);
    let set =
        |mask: &mut Vec<u64>, from: usize, bits: usize| (from..from + bits).for_each(|i| mask[i / 64] |= 1 << (i % 64));
    let seed = link.ip_offset() - 4;
    set(&mut zeros, 0, 8 * seed);
    set(&mut ones, 8 * seed, 32);
    let ip: &[Field] = if link.is_ipv6 { MASKED_IPV6 } else { MASKED_IPV4 };
    let udp = link.udp_offset();
    for (fields, at) in [(ip, link.ip_offset()), (MASKED_UDP, udp), (MASKED_BTH, udp + BTH_OFFSET)] {
        fields.iter().flat_map(|f| f.lanes(at)).for_each(|(lo, bits)| set(&mut ones, lo, bits));
    }
    let half = words / 2;
    [
        Mask { zeros: zeros[..half].to_vec(), ones: ones[..half].to_vec() },
        Mask { zeros: zeros[half..].to_vec(), ones: ones[half..].to_vec() },
    ]
}

/// The beat as the CRC sees it: masked by the frame's shape (one-hot over `links`) when it is the first or second.
pub fn masked<'a>(b: &'a B, links: &[Link], link: S<'a>, data: S<'a>, is_first: S<'a>, is_second: S<'a>) -> S<'a> {
    let (mut zeros, mut ones) = (vec![], vec![]);
    for (k, l) in links.iter().enumerate() {
        let [first, second] = masks(*l);
        let shape = link.bit(k as u32);
        zeros.push((shape & is_first, b.litw(&first.zeros, BEAT_BITS)));
        ones.push((shape & is_first, b.litw(&first.ones, BEAT_BITS)));
        if second.ones.iter().any(|w| *w != 0) {
            ones.push((shape & is_second, b.litw(&second.ones, BEAT_BITS)));
        }
    }
    data & !b.one_hot_select(&zeros) | b.one_hot_select(&ones)
}

/// Register of the running CRC over beats: `crc` is the contribution of the beat, from [`crc32::block`].
pub fn running<'a>(b: &'a B, name: &str, valid: S<'a>, is_first: S<'a>, crc: S<'a>) -> S<'a> {
    let state = b.reg(name, 32);
    let carried = Matrix::advance(BEAT_BYTES as u32).of_signal(state);
    state.set_en(valid, is_first.mux(crc, crc ^ carried));
    state
}

module! {
    /// ICRC check.
    pub struct Icrc = "nic_rx_icrc" () {
        beats: in Beats,
        len: in Uint(6),
        is_good: out Uint(1),
    } |b| {
        // i1: the beat as the CRC sees it.
        let is_second = b.reg_reset("is_second", 1, 0);
        is_second.set_en(beats.valid, beats.first & !beats.last);
        let seen = masked(b, &rx_links(), beats.link, beats.data, beats.first, is_second & !beats.first);
        let i1_data = seen.delay("i1_data", 1);

        // i2, i3: its contribution.
        let crc = crc32::block(b, "i", i1_data, 0);
        let wait = 1 + BLOCK_LATENCY;
        let valid = beats.valid.delay_reset("valid", wait);
        let first = beats.first.delay("first", wait);
        // What the register must hold at the end, by the number of zero bytes in the last beat.
        let expected: Vec<u64> = (0..BEAT_BYTES as u32)
            .map(|rest| Matrix::advance((BEAT_BYTES as u32 - rest) % BEAT_BYTES as u32).apply(RESIDUE).into())
            .collect();
        let i1_expected = len.lookup("residue", &expected, 32).delay("i1_expected", 1);

        // i4: the register with this beat in it. i5: compared.
        let i4_state = running(b, "i4_state", valid, first, crc);
        let i4_expected = i1_expected.delay("expected", wait);
        is_good.set(i4_state.eq(i4_expected).delay("i5_is_good", 1));
        assert_eq!(wait + 2, ICRC_LATENCY, "the timing table and the block disagree");
    }
}
