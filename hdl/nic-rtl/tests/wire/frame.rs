//! Frames made from fields with the specification's own setters.

use cocotb_rs::Rng;
use nic_spec::{
    consts,
    num::*,
    wire::{icrc, *},
};

/// MAC address of the port under test.
pub const PORT_MAC: u64 = 0x0200_0000_0002;

/// Everything of a frame but its length fields, checksums and ICRC.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Ethernet header; its type is filled in.
    pub eth: Eth<[u8; 14]>,
    /// (type that announces the tag, the tag's control information).
    pub tags: Vec<(u16, u16)>,
    /// IPv4 or IPv6.
    pub ip: Ip,
    /// UDP header; length filled in.
    pub udp: Udp<[u8; 8]>,
    /// From BTH to the last header.
    pub headers: Vec<u8>,
    /// Payload without pad.
    pub payload: Vec<u8>,
}

/// The IP header.
#[derive(Clone, Copy, Debug)]
pub enum Ip {
    /// IPv4; length and checksum filled in.
    V4(Ipv4<[u8; 20]>),
    /// IPv6; length filled in.
    V6(Ipv6<[u8; 40]>),
}

impl Ip {
    /// IPv4 from 10.1.0.1 to 10.1.0.2.
    pub fn v4() -> Ip {
        let mut ip = Ipv4::zeroed();
        ip.set_version(4).set_ihl(5).set_ecn(ECN_ECT0).set_df(true).set_ttl(consts::HOP_LIMIT);
        ip.set_protocol(IP_PROTOCOL_UDP).set_src_ip(0x0a01_0001).set_dst_ip(0x0a01_0002);
        Ip::V4(ip)
    }

    /// IPv6 between two documentation addresses.
    pub fn v6() -> Ip {
        let mut ip = Ipv6::zeroed();
        ip.set_version(6).set_ecn(ECN_ECT0).set_flow_label(0xabcde).set_hop_limit(consts::HOP_LIMIT);
        ip.set_next_header(IP_PROTOCOL_UDP).set_src_ip(0x2001_0db8 << 96 | 1).set_dst_ip(0x2001_0db8 << 96 | 2);
        Ip::V6(ip)
    }
}

impl Frame {
    /// Around headers from BTH on and a payload: IPv4, no tag, to the port under test.
    pub fn new(headers: Vec<u8>, payload: Vec<u8>) -> Frame {
        let (mut eth, mut udp) = (Eth::zeroed(), Udp::zeroed());
        eth.set_dst_mac(PORT_MAC).set_src_mac(0x0200_0000_0001);
        udp.set_src_port(0xc003).set_dst_port(consts::UDP_DPORT);
        Frame { eth, tags: vec![], ip: Ip::v4(), udp, headers, payload }
    }

    /// The bytes, with lengths, checksum, pad and ICRC right.
    pub fn bytes(&self) -> Vec<u8> {
        let mut body = [&self.headers[..], &self.payload].concat();
        body.resize(body.len() + self.payload.len().wrapping_neg() % 4, 0);
        let udp_len = Udp::LEN + body.len() + consts::ICRC_BYTES;
        let mut udp = self.udp;
        udp.set_len(udp_len as u16);
        let mut packet = match self.ip {
            Ip::V4(mut ip) => {
                let len = ip.ihl().max(5) as usize * 4 + udp_len;
                ip.set_total_len(len as u16).fill_checksum();
                ip.0.to_vec()
            }
            Ip::V6(mut ip) => ip.set_payload_len(udp_len as u16).0.to_vec(),
        };
        packet.extend([&udp.0[..], &body].concat());
        // Of a header that no ICRC is defined for, any four bytes do.
        let crc = icrc::icrc(&packet).unwrap_or(0);
        packet.extend(crc.to_le_bytes());
        [self.link(), packet].concat()
    }

    fn link(&self) -> Vec<u8> {
        let ip_type = match self.ip {
            Ip::V4(_) => ETHERTYPE_IPV4,
            Ip::V6(_) => ETHERTYPE_IPV6,
        };
        let mut eth = self.eth;
        eth.set_ethertype(self.tags.first().map_or(ip_type, |(tpid, _)| *tpid));
        let mut link = eth.0.to_vec();
        for (k, (_, control)) in self.tags.iter().enumerate() {
            link.extend(control.to_be_bytes());
            link.extend(self.tags.get(k + 1).map_or(ip_type, |(tpid, _)| *tpid).to_be_bytes());
        }
        link
    }
}

/// The frame's ICRC set right over whatever it holds now: from `ip_offset` to four bytes before its end.
pub fn repair_icrc(frame: &mut [u8], ip_offset: usize) {
    let end = frame.len() - 4;
    if let Ok(crc) = icrc::icrc(&frame[ip_offset..end]) {
        frame[end..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The frame's IPv4 checksum set right.
pub fn repair_checksum(frame: &mut [u8], ip_offset: usize) {
    Ipv4(&mut frame[ip_offset..ip_offset + 20]).fill_checksum();
}

/// A base transport header with random fields, for an opcode and `payload_len` bytes.
pub fn random_bth(rng: &mut Rng, opcode: Opcode, payload_len: usize) -> Vec<u8> {
    let mut bth = Bth::zeroed();
    bth.set_opcode(opcode.code()).set_tver(consts::TVER).set_pkey(Pkey::new(rng.next_u64() as u16));
    bth.set_pad_count((payload_len.wrapping_neg() % 4) as u8);
    bth.set_dest_qpn(Qpn::new(rng.next_u64() as u32 & 0xff_ffff)).set_pseq(Psn::new(rng.next_u64() as u32 & 0xff_ffff));
    bth.set_se(rng.percent(50)).set_ack_req(rng.percent(50)).set_rtx(rng.percent(50)).set_eob(rng.percent(50));
    bth.0.to_vec()
}

/// A good WRITE with random fields.
pub fn random_write(rng: &mut Rng, payload_len: usize, with_imm: bool) -> Frame {
    let mut headers = random_bth(rng, Opcode::Write, payload_len);
    headers.extend(rng.bytes(Pxth::LEN));
    let mut mxth = Mxth::zeroed();
    mxth.0.copy_from_slice(&rng.bytes(Mxth::LEN));
    // Without immediate at least one of the two flags is clear.
    let last = with_imm || rng.percent(50);
    mxth.set_last(last).set_imm(with_imm || (!last && rng.percent(50))).set_resv1(false).set_resv8(0);
    headers.extend(mxth.0);
    headers.extend(rng.bytes(Reth::LEN));
    headers.extend(rng.bytes(if with_imm { ImmDt::LEN } else { 0 }));
    let payload = rng.bytes(payload_len);
    random_way(rng, Frame::new(headers, payload))
}

/// A good ACK with random fields.
pub fn random_ack(rng: &mut Rng, with_bitmap: bool, is_nak: bool) -> Frame {
    let mut headers = random_bth(rng, Opcode::Ack, 0);
    headers.extend(rng.bytes(Pxth::LEN));
    let mut axth = Axth::zeroed();
    axth.0.copy_from_slice(&rng.bytes(Axth::LEN));
    axth.set_bm(with_bitmap).set_nak(is_nak).set_resv1(false).set_resv8a(0).set_resv8b(0);
    headers.extend(axth.0);
    headers.extend(rng.bytes(if with_bitmap { Sack::LEN } else { 0 }));
    headers.extend(rng.bytes(if is_nak { Nxth::LEN } else { 0 }));
    random_way(rng, Frame::new(headers, vec![]))
}

/// The frame with random tags, IP version, ECN and source port.
pub fn random_way(rng: &mut Rng, mut frame: Frame) -> Frame {
    let tpids = [ETHERTYPE_VLAN, ETHERTYPE_VLAN_SERVICE];
    let tags = rng.below(3);
    frame.tags = (0..tags).map(|_| (tpids[rng.below(2) as usize], rng.next_u64() as u16)).collect();
    frame.ip = if rng.percent(50) { Ip::v4() } else { Ip::v6() };
    let ecn = rng.below(4) as u8;
    match &mut frame.ip {
        Ip::V4(ip) => _ = ip.set_ecn(ecn).set_dscp(Dscp::new(rng.below(64) as u8)).set_ttl(rng.next_u64() as u8),
        Ip::V6(ip) => _ = ip.set_ecn(ecn).set_dscp(Dscp::new(rng.below(64) as u8)).set_hop_limit(rng.next_u64() as u8),
    }
    frame.udp.set_src_port(rng.next_u64() as u16).set_checksum(rng.next_u64() as u16);
    frame
}
