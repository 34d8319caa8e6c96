//! What a switch reads of a frame: addresses, protocol, UDP or TCP ports, DSCP, ECN.
//!
//! Parsed once, when a frame enters the fabric; after that only the 64-bit flow hash and the destination travel with
//! it. The parser neither panics nor allocates, and a frame it does not understand still has its MAC addresses.

use std::net::IpAddr;

use crate::frame::Frame;

/// ECN field of the IP header: transport does not react to marks.
pub const ECN_NOT_ECT: u8 = 0b00;
/// ECN field: ECN-capable, codepoint 1.
pub const ECN_ECT1: u8 = 0b01;
/// ECN field: ECN-capable, codepoint 0.
pub const ECN_ECT0: u8 = 0b10;
/// ECN field: congestion experienced.
pub const ECN_CE: u8 = 0b11;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const IP_PROTO_TCP: u8 = 6;
const IP_PROTO_UDP: u8 = 17;

/// The fields of one frame that the fabric looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Destination MAC address.
    pub dst_mac: [u8; 6],
    /// Source MAC address.
    pub src_mac: [u8; 6],
    /// The IP header, if there is one.
    pub ip: Option<IpHeaders>,
}

/// The IP and port fields of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeaders {
    /// Byte offset of the IP header in the frame.
    pub offset_bytes: u8,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol, or the IPv6 next header.
    pub protocol: u8,
    /// Differentiated services code point, 6 bits.
    pub dscp: u8,
    /// ECN field, 2 bits.
    pub ecn: u8,
    /// UDP or TCP source port; 0 for other protocols and for IPv4 fragments.
    pub src_port: u16,
    /// UDP or TCP destination port; 0 as above.
    pub dst_port: u16,
}

impl Headers {
    /// Reads a frame. `None` if it is too short for an Ethernet header.
    pub fn parse(frame: &Frame) -> Option<Headers> {
        let bytes = frame.header();
        let dst_mac = read(bytes, 0)?;
        let src_mac = read(bytes, 6)?;
        let mut offset = 12;
        let mut ethertype = u16::from_be_bytes(read(bytes, offset)?);
        if ethertype == ETHERTYPE_VLAN {
            offset += 4;
            ethertype = u16::from_be_bytes(read(bytes, offset)?);
        }
        offset += 2;
        let ip = match ethertype {
            ETHERTYPE_IPV4 => parse_ipv4(bytes, offset),
            ETHERTYPE_IPV6 => parse_ipv6(bytes, offset),
            _ => None,
        };
        Some(Headers { dst_mac, src_mac, ip })
    }

    /// Hash over (source address, destination address, protocol, source port, destination port); over the MAC
    /// addresses when there is no IP header. Switches mix it with their own seed.
    pub fn flow_hash(&self) -> u64 {
        match &self.ip {
            Some(ip) => {
                let ports = (ip.protocol as u64) << 32 | (ip.src_port as u64) << 16 | ip.dst_port as u64;
                match (ip.src, ip.dst) {
                    (IpAddr::V4(src), IpAddr::V4(dst)) => {
                        mix(mix(0, (u32::from(src) as u64) << 32 | u32::from(dst) as u64), ports)
                    }
                    (src, dst) => mix(mix_address(mix_address(0, src), dst), ports),
                }
            }
            None => mix(mix(0, mac_word(self.src_mac)), mac_word(self.dst_mac)),
        }
    }
}

/// What is read of a UDP datagram over IPv4 without options, VLAN tag or fragmentation: nearly every frame there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Udp4 {
    pub dst: u32,
    /// DSCP and ECN.
    pub tos: u8,
    src: u32,
    /// Source port, destination port.
    ports: u32,
}

impl Udp4 {
    pub(crate) const IP_OFFSET_BYTES: u8 = 14;

    /// Reads the first bytes of a frame; `None` leaves it to [`Headers::parse`].
    #[inline]
    pub(crate) fn parse(header: &[u8]) -> Option<Udp4> {
        let h: &[u8; 38] = header.first_chunk()?;
        let word = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
        // EtherType, version and length of the header; more-fragments and fragment offset; protocol.
        let is_usual = word(12) >> 8 == 0x08_0045 && word(20) & 0x3fff_00ff == u32::from(IP_PROTO_UDP);
        is_usual.then(|| Udp4 { dst: word(30), tos: h[15], src: word(26), ports: word(34) })
    }

    /// As [`Headers::flow_hash`].
    #[inline]
    pub(crate) fn flow_hash(&self) -> u64 {
        let addresses = u64::from(self.src) << 32 | u64::from(self.dst);
        mix(mix(0, addresses), u64::from(IP_PROTO_UDP) << 32 | u64::from(self.ports))
    }
}

fn mix_address(hash: u64, address: IpAddr) -> u64 {
    let word = match address {
        IpAddr::V4(v4) => u32::from(v4) as u128,
        IpAddr::V6(v6) => u128::from(v6),
    };
    mix(mix(hash, (word >> 64) as u64), word as u64)
}

fn mac_word(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |word, byte| word << 8 | *byte as u64)
}

/// Mixes a word into a hash, such that each input bit reaches each output bit (the finaliser of MurmurHash3).
#[inline]
pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    let mut x = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ (x >> 33)
}

fn read<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

fn parse_ipv4(bytes: &[u8], offset: usize) -> Option<IpHeaders> {
    let [version_ihl, tos] = read(bytes, offset)?;
    let header_bytes = (version_ihl & 0xf) as usize * 4;
    if version_ihl >> 4 != 4 || header_bytes < 20 {
        return None;
    }
    let [protocol] = read(bytes, offset + 9)?;
    let fragment = u16::from_be_bytes(read(bytes, offset + 6)?) & 0x3fff;
    let src: [u8; 4] = read(bytes, offset + 12)?;
    let dst: [u8; 4] = read(bytes, offset + 16)?;
    let (src_port, dst_port) = if fragment == 0 { ports(bytes, offset + header_bytes, protocol) } else { (0, 0) };
    Some(IpHeaders {
        offset_bytes: offset as u8,
        src: src.into(),
        dst: dst.into(),
        protocol,
        dscp: tos >> 2,
        ecn: tos & 3,
        src_port,
        dst_port,
    })
}

fn parse_ipv6(bytes: &[u8], offset: usize) -> Option<IpHeaders> {
    let first = u16::from_be_bytes(read(bytes, offset)?);
    if first >> 12 != 6 {
        return None;
    }
    let traffic_class = (first >> 4) as u8;
    let [protocol] = read(bytes, offset + 6)?;
    let src: [u8; 16] = read(bytes, offset + 8)?;
    let dst: [u8; 16] = read(bytes, offset + 24)?;
    let (src_port, dst_port) = ports(bytes, offset + 40, protocol);
    Some(IpHeaders {
        offset_bytes: offset as u8,
        src: src.into(),
        dst: dst.into(),
        protocol,
        dscp: traffic_class >> 2,
        ecn: traffic_class & 3,
        src_port,
        dst_port,
    })
}

fn ports(bytes: &[u8], offset: usize, protocol: u8) -> (u16, u16) {
    if protocol != IP_PROTO_UDP && protocol != IP_PROTO_TCP {
        return (0, 0);
    }
    match read::<4>(bytes, offset) {
        Some([a, b, c, d]) => (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])),
        None => (0, 0),
    }
}

/// Sets CE in the IP header at `offset` of the frame, keeping the IPv4 checksum right. The caller has parsed the frame.
pub(crate) fn mark_ce(frame: &mut Frame, offset: usize) {
    let bytes = frame.header_mut();
    if bytes[offset] >> 4 == 6 {
        // The ECN bits are the low two of the traffic class, which straddles the first two bytes.
        bytes[offset + 1] |= ECN_CE << 4;
        return;
    }
    let old = u16::from_be_bytes([bytes[offset], bytes[offset + 1]]);
    bytes[offset + 1] |= ECN_CE;
    let new = u16::from_be_bytes([bytes[offset], bytes[offset + 1]]);
    let checksum = u16::from_be_bytes([bytes[offset + 10], bytes[offset + 11]]);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
    let mut sum = !checksum as u32 + !old as u32 + new as u32;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    bytes[offset + 10..offset + 12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand_chacha::ChaCha8Rng;
    use rand_core::{RngCore, SeedableRng};

    /// A UDP frame from 10.0.0.1 to 10.0.0.2, port 4791, with a valid IPv4 checksum.
    pub(crate) fn udp4(src_port: u16, ecn: u8) -> Vec<u8> {
        let mut bytes = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00];
        bytes.extend([0x45, ecn, 0, 28, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(src_port.to_be_bytes());
        bytes.extend([0x12, 0xb7, 0, 8, 0, 0]);
        bytes
    }

    fn udp6(src_port: u16, traffic_class: u8) -> Vec<u8> {
        let mut bytes = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x86, 0xdd];
        bytes.extend([0x60 | traffic_class >> 4, traffic_class << 4, 0, 0, 0, 8, 17, 64]);
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        bytes.extend(src_port.to_be_bytes());
        bytes.extend([0x12, 0xb7, 0, 8, 0, 0]);
        bytes
    }

    fn checksum(header: &[u8]) -> u16 {
        let mut sum: u32 = header.chunks(2).map(|w| u16::from_be_bytes([w[0], w[1]]) as u32).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn ipv4_udp_fields_are_read() {
        let ip = Headers::parse(&Frame::new(&udp4(0xc003, 0x6a))).unwrap().ip.unwrap();
        assert_eq!(ip.src, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(ip.dst, IpAddr::from([10, 0, 0, 2]));
        assert_eq!((ip.dscp, ip.ecn, ip.protocol, ip.src_port, ip.dst_port), (26, ECN_ECT0, 17, 0xc003, 4791));
    }

    #[test]
    fn ipv6_udp_fields_are_read() {
        let ip = Headers::parse(&Frame::new(&udp6(0xc003, 0x6a))).unwrap().ip.unwrap();
        assert_eq!(ip.dst, "fd00::2".parse::<IpAddr>().unwrap());
        assert_eq!((ip.dscp, ip.ecn, ip.protocol, ip.src_port, ip.dst_port), (26, ECN_ECT0, 17, 0xc003, 4791));
    }

    #[test]
    fn vlan_tag_is_skipped() {
        let mut bytes = udp4(7, 0);
        bytes.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
        let ip = Headers::parse(&Frame::new(&bytes)).unwrap().ip.unwrap();
        assert_eq!((ip.offset_bytes, ip.src_port), (18, 7));
    }

    /// Damages frames at random; where the quick way reads a frame at all, it reads what the thorough one reads.
    #[test]
    fn the_quick_way_reads_what_the_thorough_one_reads() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut read_count = 0;
        for round in 0..20_000 {
            let mut bytes = udp4(rng.next_u32() as u16, rng.next_u32() as u8 & 3);
            bytes.truncate(bytes.len() - rng.next_u32() as usize % 8);
            for _ in 0..rng.next_u32() % 3 {
                let at = rng.next_u32() as usize % bytes.len();
                bytes[at] ^= 1 << (rng.next_u32() % 8);
            }
            let Some(quick) = Udp4::parse(&bytes) else { continue };
            read_count += 1;
            let headers = Headers::parse(&Frame::new(&bytes)).unwrap();
            let ip = headers.ip.unwrap();
            assert_eq!(quick.flow_hash(), headers.flow_hash(), "round {round}: {bytes:02x?}");
            let dst = IpAddr::from(quick.dst.to_be_bytes());
            let expected = (ip.dst, ip.dscp << 2 | ip.ecn, ip.offset_bytes, ip.protocol);
            assert_eq!((dst, quick.tos, Udp4::IP_OFFSET_BYTES, IP_PROTO_UDP), expected, "round {round}: {bytes:02x?}");
        }
        assert!(read_count > 10_000, "{read_count} frames read the quick way");
    }

    #[test]
    fn every_truncation_parses_without_panic() {
        for bytes in [udp4(1, 2), udp6(1, 2)] {
            for len in 0..bytes.len() {
                let headers = Headers::parse(&Frame::new(&bytes[..len]));
                assert_eq!(headers.is_some(), len >= 14, "{len} bytes");
            }
        }
    }

    #[test]
    fn flow_hash_depends_on_each_field_of_the_five_tuple_and_on_nothing_else() {
        for base in [udp4(0xc000, 2), udp6(0xc000, 2)] {
            let hash = |bytes: &[u8]| Headers::parse(&Frame::new(bytes)).unwrap().flow_hash();
            let l3 = base.len() - 28;
            let is_v6 = base[14] >> 4 == 6;
            let tuple: Vec<usize> =
                if is_v6 { (20..21).chain(22..58).collect() } else { (23..24).chain(26..38).collect() };
            for i in 0..base.len() {
                let mut changed = base.clone();
                // Stay UDP or become TCP, so that the ports are still read.
                changed[i] ^= if i == 20 || i == 23 { 17 ^ 6 } else { 1 };
                let differs = hash(&changed) != hash(&base);
                let structural = i == 12 || i == 13 || i == 14 || (!is_v6 && (i == 20 || i == 21));
                if !structural {
                    assert_eq!(differs, tuple.contains(&i), "byte {i}, ip header ends near {l3}");
                }
            }
        }
    }

    #[test]
    fn marking_keeps_the_ipv4_checksum_valid() {
        for ecn in [ECN_ECT0, ECN_ECT1] {
            for sport in 0..2000 {
                let mut bytes = udp4(1, ecn);
                bytes[18..20].copy_from_slice(&(sport as u16).wrapping_mul(33).to_be_bytes());
                bytes[24..26].copy_from_slice(&[0, 0]);
                let sum = checksum(&bytes[14..34]);
                bytes[24..26].copy_from_slice(&sum.to_be_bytes());
                let mut frame = Frame::new(&bytes);
                mark_ce(&mut frame, 14);
                assert_eq!(Headers::parse(&frame).unwrap().ip.unwrap().ecn, ECN_CE);
                assert_eq!(checksum(&frame.header()[14..34]), 0, "identification {sport}");
            }
        }
        let mut frame = Frame::new(&udp6(1, 0x02));
        mark_ce(&mut frame, 14);
        assert_eq!(Headers::parse(&frame).unwrap().ip.unwrap().ecn, ECN_CE);
    }
}
