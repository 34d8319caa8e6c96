//! RoCEv2 packets: Ethernet, IPv4, UDP, BTH, and RETH, AETH or ImmDt.
//!
//! Opcodes of the reliable connection as in the InfiniBand Architecture Specification, volume 1, table "OpCode field"; the
//! CNP as in its annex on RoCEv2.

use nic_fabric::{Frame, Topology};
use nic_spec::consts::{PKEY_DEFAULT, UDP_DPORT};
use nic_spec::num::{Dscp, Pkey, Psn, Qpn};
use nic_spec::wire::{
    Bth, Eth, ImmDt, Ipv4, Reth, Udp, ECN_CE, ECN_ECT0, ECN_NOT_ECT, ETHERTYPE_IPV4, IP_PROTOCOL_UDP,
};

/// Headers before the BTH.
const ENCAPSULATION_BYTES: usize = Eth::LEN + Ipv4::LEN + Udp::LEN;
const BTH_END: usize = ENCAPSULATION_BYTES + Bth::LEN;
const AETH_BYTES: usize = 4;
/// ICRC, always zero here.
const ICRC_BYTES: usize = 4;

mod opcode {
    pub const WRITE_FIRST: u8 = 0x06;
    pub const WRITE_MIDDLE: u8 = 0x07;
    pub const WRITE_LAST_IMM: u8 = 0x09;
    pub const WRITE_ONLY_IMM: u8 = 0x0b;
    pub const READ_REQUEST: u8 = 0x0c;
    pub const READ_RESPONSE_FIRST: u8 = 0x0d;
    pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
    pub const READ_RESPONSE_LAST: u8 = 0x0f;
    pub const READ_RESPONSE_ONLY: u8 = 0x10;
    pub const ACKNOWLEDGE: u8 = 0x11;
    pub const CNP: u8 = 0x81;
}

/// AETH syndrome: acknowledged, credits not counted.
const SYNDROME_ACK: u8 = 0x1f;
/// AETH syndrome: NAK, PSN sequence error.
const SYNDROME_NAK_SEQUENCE: u8 = 0x60;

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Part of a WRITE. `dma_len` of the whole message in the first packet, `imm` in the last.
    Write { dma_len: Option<u32>, imm: Option<u32>, len: u32, ack_req: bool },
    /// Asks for `len` bytes, in packets numbered from this one on.
    ReadRequest { len: u32 },
    /// Part of the answer.
    ReadResponse { is_first: bool, is_last: bool, len: u32 },
    /// Everything up to this PSN arrived.
    Ack,
    /// Everything before this PSN arrived, and then something later.
    NakSequence,
    /// Packets of this QP were marked.
    Cnp,
}

/// A packet of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub qpn: u32,
    /// 24 bits.
    pub psn: u32,
    pub is_marked: bool,
    pub body: Body,
}

/// What all packets from one QP to its peer have in common.
#[derive(Clone)]
pub(crate) struct Template {
    /// Ethernet, IPv4, UDP and BTH of data.
    bytes: [u8; BTH_END],
    data_dscp: u8,
    cnp_dscp: u8,
}

impl Template {
    /// Packets from a host to the QP `qpn` of another, over a plane.
    pub(crate) fn new(from: u32, to: u32, plane: u16, sport: u16, qpn: u32, dscps: (u8, u8)) -> Template {
        let mut bytes = [0; BTH_END];
        let mac =
            |host: u32| Topology::mac_of(host, plane).iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        Eth(&mut bytes[..]).set_dst_mac(mac(to)).set_src_mac(mac(from)).set_ethertype(ETHERTYPE_IPV4);
        Ipv4(&mut bytes[Eth::LEN..])
            .set_version(4)
            .set_ihl(5)
            .set_df(true)
            .set_ttl(64)
            .set_protocol(IP_PROTOCOL_UDP)
            .set_src_ip(u32::from(Topology::ipv4_of(from, plane)))
            .set_dst_ip(u32::from(Topology::ipv4_of(to, plane)));
        Udp(&mut bytes[Eth::LEN + Ipv4::LEN..]).set_src_port(sport).set_dst_port(UDP_DPORT);
        Bth(&mut bytes[ENCAPSULATION_BYTES..]).set_pkey(Pkey::new(PKEY_DEFAULT)).set_dest_qpn(Qpn::new(qpn));
        Template { bytes, data_dscp: dscps.0, cnp_dscp: dscps.1 }
    }

    /// The frame of a packet.
    pub(crate) fn frame(&self, psn: u32, body: Body) -> Frame {
        let mut header = [0; BTH_END + Reth::LEN + ImmDt::LEN];
        header[..BTH_END].copy_from_slice(&self.bytes);
        let mut end = BTH_END;
        let (mut payload_bytes, mut ack_req) = (0, false);
        let mut dscp = self.data_dscp;
        let mut ecn = ECN_NOT_ECT;
        let code = match body {
            Body::Write { dma_len, imm, len, ack_req: asks } => {
                (payload_bytes, ack_req, ecn) = (len, asks, ECN_ECT0);
                if let Some(dma_len) = dma_len {
                    Reth(&mut header[end..]).set_dma_len(dma_len);
                    end += Reth::LEN;
                }
                if let Some(imm) = imm {
                    ImmDt(&mut header[end..]).set_imm(imm);
                    end += ImmDt::LEN;
                }
                match (dma_len.is_some(), imm.is_some()) {
                    (true, true) => opcode::WRITE_ONLY_IMM,
                    (true, false) => opcode::WRITE_FIRST,
                    (false, false) => opcode::WRITE_MIDDLE,
                    (false, true) => opcode::WRITE_LAST_IMM,
                }
            }
            Body::ReadRequest { len } => {
                Reth(&mut header[end..]).set_dma_len(len);
                end += Reth::LEN;
                ack_req = true;
                opcode::READ_REQUEST
            }
            Body::ReadResponse { is_first, is_last, len } => {
                (payload_bytes, ecn) = (len, ECN_ECT0);
                if is_first || is_last {
                    header[end] = SYNDROME_ACK;
                    end += AETH_BYTES;
                }
                match (is_first, is_last) {
                    (true, true) => opcode::READ_RESPONSE_ONLY,
                    (true, false) => opcode::READ_RESPONSE_FIRST,
                    (false, false) => opcode::READ_RESPONSE_MIDDLE,
                    (false, true) => opcode::READ_RESPONSE_LAST,
                }
            }
            Body::Ack | Body::NakSequence => {
                header[end] = if body == Body::Ack { SYNDROME_ACK } else { SYNDROME_NAK_SEQUENCE };
                end += AETH_BYTES;
                opcode::ACKNOWLEDGE
            }
            Body::Cnp => {
                dscp = self.cnp_dscp;
                opcode::CNP
            }
        };
        let pad_bytes = payload_bytes.wrapping_neg() as usize & 3;
        let after_udp = end - ENCAPSULATION_BYTES + payload_bytes as usize + pad_bytes + ICRC_BYTES;
        Bth(&mut header[ENCAPSULATION_BYTES..])
            .set_opcode(code)
            .set_pad_count(pad_bytes as u8)
            .set_ack_req(ack_req)
            .set_pseq(Psn::new(psn));
        Udp(&mut header[Eth::LEN + Ipv4::LEN..]).set_len((after_udp + Udp::LEN) as u16);
        let mut ip = Ipv4(&mut header[Eth::LEN..Eth::LEN + Ipv4::LEN]);
        ip.set_dscp(Dscp::new(dscp)).set_ecn(ecn).set_total_len((after_udp + Udp::LEN + Ipv4::LEN) as u16);
        ip.fill_checksum();
        let trailer = [0; 3 + ICRC_BYTES];
        Frame::new(&header[..end]).with_virtual_payload(payload_bytes).with_trailer(&trailer[..pad_bytes + ICRC_BYTES])
    }
}

/// Reads a frame; `None` if it is no RoCEv2 packet of the kinds above.
pub(crate) fn parse(frame: &Frame) -> Option<Packet> {
    let header = frame.header();
    let (eth, rest) = Eth::split(header).ok()?;
    let (ip, rest) = Ipv4::split(rest).ok()?;
    let (udp, rest) = Udp::split(rest).ok()?;
    let (bth, rest) = Bth::split(rest).ok()?;
    let is_roce = eth.ethertype() == ETHERTYPE_IPV4
        && (ip.version(), ip.ihl(), ip.protocol()) == (4, 5, IP_PROTOCOL_UDP)
        && udp.dst_port() == UDP_DPORT
        && bth.tver() == 0;
    if !is_roce {
        return None;
    }
    let len = frame.payload().len_bytes() as u32;
    let reth = || Some(Reth::new_checked(rest).ok()?.dma_len());
    let imm = |skip: usize| Some(ImmDt::new_checked(rest.get(skip..)?).ok()?.imm());
    let write = |dma_len, imm| Body::Write { dma_len, imm, len, ack_req: bth.ack_req() };
    let response = |is_first, is_last| Body::ReadResponse { is_first, is_last, len };
    let body = match bth.opcode() {
        opcode::WRITE_FIRST => write(Some(reth()?), None),
        opcode::WRITE_MIDDLE => write(None, None),
        opcode::WRITE_LAST_IMM => write(None, Some(imm(0)?)),
        opcode::WRITE_ONLY_IMM => write(Some(reth()?), Some(imm(Reth::LEN)?)),
        opcode::READ_REQUEST => Body::ReadRequest { len: reth()? },
        opcode::READ_RESPONSE_FIRST => response(true, false),
        opcode::READ_RESPONSE_MIDDLE => response(false, false),
        opcode::READ_RESPONSE_LAST => response(false, true),
        opcode::READ_RESPONSE_ONLY => response(true, true),
        opcode::ACKNOWLEDGE => match rest.first()? {
            &SYNDROME_NAK_SEQUENCE => Body::NakSequence,
            syndrome if syndrome >> 5 == 0 => Body::Ack,
            _ => return None,
        },
        opcode::CNP => Body::Cnp,
        _ => return None,
    };
    let is_marked = ip.ecn() == ECN_CE;
    Some(Packet { qpn: bth.dest_qpn().get(), psn: bth.pseq().get(), is_marked, body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_fabric::flow::Headers;

    fn template() -> Template {
        Template::new(3, 9, 1, 0xc123, 77, (26, 48))
    }

    #[test]
    fn every_body_is_read_as_it_was_written() {
        for body in [
            Body::Write { dma_len: Some(9_000), imm: None, len: 4_096, ack_req: false },
            Body::Write { dma_len: None, imm: None, len: 4_096, ack_req: true },
            Body::Write { dma_len: None, imm: Some(5), len: 13, ack_req: true },
            Body::Write { dma_len: Some(0), imm: Some(u32::MAX), len: 0, ack_req: true },
            Body::ReadRequest { len: 1 << 20 },
            Body::ReadResponse { is_first: true, is_last: false, len: 4_096 },
            Body::ReadResponse { is_first: false, is_last: false, len: 4_096 },
            Body::ReadResponse { is_first: false, is_last: true, len: 1 },
            Body::ReadResponse { is_first: true, is_last: true, len: 1 },
            Body::Ack,
            Body::NakSequence,
            Body::Cnp,
        ] {
            let packet = parse(&template().frame(0xabcdef, body)).expect("our own packet");
            assert_eq!(packet, Packet { qpn: 77, psn: 0xabcdef, is_marked: false, body });
        }
    }

    #[test]
    fn frame_is_what_a_switch_expects() {
        let frame = template().frame(1, Body::Write { dma_len: None, imm: None, len: 4_093, ack_req: false });
        assert_eq!(frame.len_bytes(), 14 + 20 + 8 + 12 + 4_093 + 3 + 4);
        let bytes = frame.to_bytes();
        assert_eq!(u16::from_be_bytes([bytes[16], bytes[17]]) as usize, bytes.len() - 14);
        assert_eq!(u16::from_be_bytes([bytes[38], bytes[39]]) as usize, bytes.len() - 34);
        assert!(Ipv4::new_checked(&bytes[14..34]).expect("20 bytes").check().is_ok());
        let ip = Headers::parse(&frame).and_then(|headers| headers.ip).expect("IPv4");
        assert_eq!((ip.dscp, ip.ecn, ip.src_port, ip.dst_port), (26, ECN_ECT0, 0xc123, 4791));
        let cnp = Headers::parse(&template().frame(0, Body::Cnp)).and_then(|headers| headers.ip).expect("IPv4");
        assert_eq!((cnp.dscp, cnp.ecn), (48, ECN_NOT_ECT));
    }

    #[test]
    fn what_is_no_roce_packet_is_not_read() {
        let good = template().frame(1, Body::Ack).to_bytes();
        for (byte, value) in [(12, 0x86), (23, 6), (37, 0), (43, 1), (42, 0x04)] {
            let mut bad = good.clone();
            bad[byte] = value;
            assert_eq!(parse(&Frame::from_bytes(&bad)), None, "byte {byte}");
        }
        for len in 0..good.len() - 8 {
            assert_eq!(parse(&Frame::from_bytes(&good[..len])), None, "{len} bytes");
        }
    }
}
