//! Invariant CRC: CRC-32 over everything that no switch may change.
//!
//! The CRC runs over 8 bytes of ones (where InfiniBand has its local route header), then the packet from the IP header
//! to the last byte before the ICRC, with the fields that a switch may rewrite taken as ones: type of service, time to
//! live and checksum of IPv4; traffic class, flow label and hop limit of IPv6; the UDP checksum; byte 4 of BTH. Its
//! value is sent least significant byte first. Algorithm of IBTA annex A17; VLAN tags are outside of it.

use super::{Bth, Ipv4, Ipv6, Udp};
use crate::{
    consts::ICRC_BYTES,
    layout::{set_bits, Field},
};

/// Fields of the IPv4 header that the ICRC takes as ones.
pub const MASKED_IPV4: &[Field] =
    &[Ipv4::LAYOUT.field("dscp"), Ipv4::LAYOUT.field("ecn"), Ipv4::LAYOUT.field("ttl"), Ipv4::LAYOUT.field("checksum")];
/// Fields of the IPv6 header that the ICRC takes as ones.
pub const MASKED_IPV6: &[Field] = &[
    Ipv6::LAYOUT.field("dscp"),
    Ipv6::LAYOUT.field("ecn"),
    Ipv6::LAYOUT.field("flow_label"),
    Ipv6::LAYOUT.field("hop_limit"),
];
/// Fields of the UDP header that the ICRC takes as ones.
pub const MASKED_UDP: &[Field] = &[Udp::LAYOUT.field("checksum")];
/// Fields of the base transport header that the ICRC takes as ones.
pub const MASKED_BTH: &[Field] = &[Bth::LAYOUT.field("fecn"), Bth::LAYOUT.field("becn"), Bth::LAYOUT.field("resv6")];

/// CRC-32 polynomial of Ethernet, least significant bit first.
pub const CRC32_POLY_REFLECTED: u32 = 0xedb8_8320;

/// `TABLES[k][b]` is the CRC of byte `b` followed by `k` zero bytes.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { CRC32_POLY_REFLECTED } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[k - 1][byte];
            tables[k][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    tables
}

/// CRC-32 of Ethernet, fed piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc32 {
    state: u32,
}

impl Default for Crc32 {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc32 {
    /// Nothing consumed yet.
    pub const fn new() -> Self {
        Self { state: u32::MAX }
    }

    /// Continues from a register value, before the final inversion.
    pub const fn from_state(state: u32) -> Self {
        Self { state }
    }

    /// The register value, before the final inversion.
    pub const fn state(self) -> u32 {
        self.state
    }

    /// Consumes `bytes`.
    pub fn update(&mut self, bytes: &[u8]) -> &mut Self {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let low = self.state ^ u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let [a, b, c, d] = low.to_le_bytes();
            self.state = TABLES[7][usize::from(a)]
                ^ TABLES[6][usize::from(b)]
                ^ TABLES[5][usize::from(c)]
                ^ TABLES[4][usize::from(d)]
                ^ TABLES[3][usize::from(word[4])]
                ^ TABLES[2][usize::from(word[5])]
                ^ TABLES[1][usize::from(word[6])]
                ^ TABLES[0][usize::from(word[7])];
        }
        for &byte in words.remainder() {
            self.state = self.state >> 8 ^ TABLES[0][usize::from(self.state as u8 ^ byte)];
        }
        self
    }

    /// The CRC of everything consumed.
    pub const fn finish(self) -> u32 {
        !self.state
    }
}

/// Why no ICRC can be computed over some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IcrcError {
    /// The bytes end within the IP, UDP or base transport header.
    TooShort {
        /// Bytes needed for the headers.
        need_bytes: usize,
        /// Bytes there.
        have_bytes: usize,
    },
    /// Neither IPv4 without options nor IPv6.
    BadIpVersion {
        /// First byte of the packet: version and, for IPv4, header length.
        first_byte: u8,
    },
}

impl core::fmt::Display for IcrcError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            IcrcError::TooShort { need_bytes, have_bytes } => {
                write!(f, "the headers need {need_bytes} bytes, {have_bytes} are there")
            }
            IcrcError::BadIpVersion { first_byte } => {
                write!(f, "first byte {first_byte:#04x} begins neither IPv4 without options nor IPv6")
            }
        }
    }
}

impl core::error::Error for IcrcError {}

/// CRC register after the 8 bytes of ones that come before the IP header.
pub const ICRC_SEED: u32 = 0xdebb_20e3;

/// Sets `fields` of the header at the start of `header` to ones.
fn set_ones(header: &mut [u8], fields: &[Field]) {
    for field in fields {
        set_bits(header, field.order, field.bit_offset, field.bits, u64::MAX >> (64 - field.bits));
    }
}

/// Headers with the masked fields set to ones, and their length.
fn masked_headers(packet: &[u8]) -> Result<([u8; Ipv6::LEN + Udp::LEN + Bth::LEN], usize), IcrcError> {
    let first_byte = *packet.first().ok_or(IcrcError::TooShort { need_bytes: Ipv4::LEN, have_bytes: 0 })?;
    let (ip_len, masked_ip) = match first_byte {
        0x45 => (Ipv4::LEN, MASKED_IPV4),
        0x60..=0x6f => (Ipv6::LEN, MASKED_IPV6),
        _ => return Err(IcrcError::BadIpVersion { first_byte }),
    };
    let len = ip_len + Udp::LEN + Bth::LEN;
    if packet.len() < len {
        return Err(IcrcError::TooShort { need_bytes: len, have_bytes: packet.len() });
    }
    let mut headers = [0; Ipv6::LEN + Udp::LEN + Bth::LEN];
    headers[..len].copy_from_slice(&packet[..len]);
    set_ones(&mut headers, masked_ip);
    set_ones(&mut headers[ip_len..], MASKED_UDP);
    set_ones(&mut headers[ip_len + Udp::LEN..], MASKED_BTH);
    Ok((headers, len))
}

/// ICRC of `packet`, which begins with the IP header and ends with the last byte before the ICRC.
///
/// On the wire the value stands least significant byte first: `icrc.to_le_bytes()`.
pub fn icrc(packet: &[u8]) -> Result<u32, IcrcError> {
    let (headers, len) = masked_headers(packet)?;
    let mut crc = Crc32::from_state(ICRC_SEED);
    crc.update(&headers[..len]).update(&packet[len..]);
    Ok(crc.finish())
}

/// True when `packet`, which begins with the IP header, ends with its ICRC.
pub fn is_valid(packet: &[u8]) -> Result<bool, IcrcError> {
    match packet.split_last_chunk::<ICRC_BYTES>() {
        Some((covered, sent)) => Ok(icrc(covered)?.to_le_bytes() == *sent),
        None => Err(IcrcError::TooShort { need_bytes: ICRC_BYTES, have_bytes: packet.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_of_the_check_string_is_the_published_value() {
        assert_eq!(Crc32::new().update(b"123456789").finish(), 0xcbf4_3926);
        let (mut whole, mut parts) = (Crc32::new(), Crc32::new());
        let bytes: [u8; 100] = core::array::from_fn(|i| (i * 37) as u8);
        whole.update(&bytes);
        bytes.chunks(7).for_each(|c| _ = parts.update(c));
        assert_eq!(whole, parts);
    }

    #[test]
    fn the_seed_is_the_crc_of_eight_bytes_of_ones() {
        assert_eq!(Crc32::new().update(&[0xff; 8]).state(), ICRC_SEED);
    }

    #[test]
    fn bytes_that_are_no_packet_are_an_error() {
        assert_eq!(icrc(&[]), Err(IcrcError::TooShort { need_bytes: 20, have_bytes: 0 }));
        assert_eq!(icrc(&[0x46; 80]), Err(IcrcError::BadIpVersion { first_byte: 0x46 }));
        assert_eq!(icrc(&[0x45; 39]), Err(IcrcError::TooShort { need_bytes: 40, have_bytes: 39 }));
        assert_eq!(icrc(&[0x60; 59]), Err(IcrcError::TooShort { need_bytes: 60, have_bytes: 59 }));
        assert_eq!(is_valid(&[0x45; 3]), Err(IcrcError::TooShort { need_bytes: 4, have_bytes: 3 }));
    }
}
