//! What the tests of the wire side share: frames from fields, the judgement of a frame in software, a module under test.
#![allow(dead_code)] // Each test crate uses its part.

/// A module on the interpreter, with Verilator in lock step beside it when asked for.
pub mod dut;

/// Frames made from fields.
pub mod frame;

/// What becomes of a frame, by the specification's own functions.
pub mod oracle;

/// Frames into an AXI-Stream port and out of one.
pub mod axis;

/// Bytes of hexadecimal digits; anything else between them is skipped.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

/// Bytes as the words of a bus with byte 0 in bits 7:0.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|c| c.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b))).collect()
}

/// The words of a bus as bytes.
pub fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The number that `bits` bits of a big-endian header from bit `at` on are, least significant word first.
pub fn number(header: &[u8], at: usize, bits: usize) -> Vec<u64> {
    let mut value = vec![0; bits.div_ceil(64)];
    for k in 0..bits {
        let bit = at + bits - 1 - k;
        value[k / 64] |= u64::from(header[bit / 8] >> (7 - bit % 8) & 1) << (k % 64);
    }
    value
}
