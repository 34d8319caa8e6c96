//! Frames made by hand, right or wrong on purpose, for tests that stand in for a peer.

use nic_spec::consts::{ICRC_BYTES, PKEY_DEFAULT, TVER, UDP_DPORT, UDP_SPORT_MIN};
use nic_spec::num::{Dscp, Epoch, Msn, PathId, Pkey, Plane, Psn, Qpn, Rkey, Rsn, StreamId};
use nic_spec::wire::icrc::icrc;
use nic_spec::wire::{
    Bth, Eth, ImmDt, Ipv4, Ipv6, Mxth, Opcode, Pxth, Reth, Udp, Vlan, ECN_ECT0, ETHERTYPE_IPV4, ETHERTYPE_IPV6,
    ETHERTYPE_VLAN, IP_PROTOCOL_UDP,
};
use std::net::IpAddr;

/// IPv6 extension header that says nothing: destination options with padding only.
const EMPTY_EXTENSION: [u8; 8] = [IP_PROTOCOL_UDP, 0, 1, 4, 0, 0, 0, 0];
/// Protocol number of destination options.
const DESTINATION_OPTIONS: u8 = 60;

/// A WRITE packet. Start from [`WritePacket::new`] and change what the test is about.
#[derive(Clone, Debug)]
pub struct WritePacket {
    /// MAC addresses: destination, source.
    pub macs: (u64, u64),
    /// IP addresses: source, destination; both of one family.
    pub ips: (IpAddr, IpAddr),
    /// VLAN ids, outermost first.
    pub vlans: Vec<u16>,
    /// Adds four bytes of options to an IPv4 header.
    pub has_ip_options: bool,
    /// Adds an extension header to an IPv6 packet.
    pub has_extension: bool,
    /// More fragments follow (IPv4).
    pub is_fragment: bool,
    /// Congestion field.
    pub ecn: u8,
    /// UDP ports: source, destination.
    pub ports: (u16, u16),
    /// Opcode.
    pub opcode: u8,
    /// Transport header version.
    pub tver: u8,
    /// Partition key.
    pub pkey: u16,
    /// Connection id.
    pub dest: u32,
    /// Acknowledge now.
    pub ack_req: bool,
    /// Sequence number within the path.
    pub pseq: u32,
    /// Path.
    pub path: u8,
    /// Epoch.
    pub epoch: u8,
    /// Stream.
    pub stream: u16,
    /// Clock.
    pub tx_ts: u32,
    /// First packet of the message.
    pub first: bool,
    /// Last packet of the message.
    pub last: bool,
    /// Number of the message.
    pub mseq: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Ordinal of the receive.
    pub rsn: u32,
    /// Address of the first byte.
    pub va: u64,
    /// Key.
    pub rkey: u32,
    /// Length of the message; `None` = that of the payload.
    pub dma_len: Option<u32>,
    /// Payload.
    pub payload: Vec<u8>,
    /// Pad count to state; `None` = the right one. The bytes of pad are always right.
    pub pad_count: Option<u8>,
    /// Flips a bit of the ICRC.
    pub has_bad_icrc: bool,
    /// Added to the length in the IP header.
    pub ip_len_error: i32,
    /// Added to the length in the UDP header.
    pub udp_len_error: i32,
    /// Bytes cut off the end of the frame.
    pub cut_bytes: usize,
    /// Bytes added behind the frame.
    pub extra_bytes: usize,
}

impl WritePacket {
    /// A good single-packet message to connection `dest` of a card with these addresses.
    pub fn new(macs: (u64, u64), ips: (IpAddr, IpAddr), dest: u32, va: u64, rkey: u32, payload: &[u8]) -> Self {
        Self {
            macs,
            ips,
            vlans: Vec::new(),
            has_ip_options: false,
            has_extension: false,
            is_fragment: false,
            ecn: ECN_ECT0,
            ports: (UDP_SPORT_MIN, UDP_DPORT),
            opcode: Opcode::Write.code(),
            tver: TVER,
            pkey: PKEY_DEFAULT,
            dest,
            ack_req: true,
            pseq: 0,
            path: 0,
            epoch: 0,
            stream: 1,
            tx_ts: 0x1000,
            first: true,
            last: true,
            mseq: 0,
            imm: None,
            rsn: 0,
            va,
            rkey,
            dma_len: None,
            payload: payload.to_vec(),
            pad_count: None,
            has_bad_icrc: false,
            ip_len_error: 0,
            udp_len_error: 0,
            cut_bytes: 0,
            extra_bytes: 0,
        }
    }

    fn transport(&self) -> Vec<u8> {
        let pad = self.payload.len().next_multiple_of(4) - self.payload.len();
        let mut bth = Bth::zeroed();
        bth.set_opcode(self.opcode)
            .set_tver(self.tver)
            .set_pkey(Pkey::new(self.pkey))
            .set_dest_qpn(Qpn::new(self.dest));
        bth.set_pad_count(self.pad_count.unwrap_or(pad as u8)).set_ack_req(self.ack_req).set_pseq(Psn::new(self.pseq));
        let mut pxth = Pxth::zeroed();
        pxth.set_path_id(PathId::new(self.path)).set_plane(Plane::new(0)).set_epoch(Epoch::new(self.epoch));
        pxth.set_stream_id(StreamId::new(self.stream)).set_tx_ts(self.tx_ts);
        let mut mxth = Mxth::zeroed();
        mxth.set_first(self.first).set_last(self.last).set_imm(self.imm.is_some());
        mxth.set_mseq(Msn::new(self.mseq)).set_rsn(Rsn::new(self.rsn));
        let mut reth = Reth::zeroed();
        reth.set_va(self.va)
            .set_rkey(Rkey::new(self.rkey))
            .set_dma_len(self.dma_len.unwrap_or(self.payload.len() as u32));
        let mut out = [&bth.0[..], &pxth.0, &mxth.0, &reth.0].concat();
        if let (Some(imm), true) = (self.imm, self.last) {
            let mut header = ImmDt::zeroed();
            header.set_imm(imm);
            out.extend(header.0);
        }
        out.extend(&self.payload);
        out.resize(out.len() + pad, 0);
        out
    }

    fn ip_packet(&self) -> Vec<u8> {
        let transport = self.transport();
        let udp_len = (Udp::LEN + transport.len() + ICRC_BYTES) as i32;
        let mut udp = Udp::zeroed();
        udp.set_src_port(self.ports.0).set_dst_port(self.ports.1).set_len((udp_len + self.udp_len_error) as u16);
        let mut packet = match self.ips {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let options: &[u8] = if self.has_ip_options { &[1; 4] } else { &[] };
                let len = (Ipv4::LEN + options.len()) as i32 + udp_len + self.ip_len_error;
                let mut ip = Ipv4::zeroed();
                ip.set_version(4)
                    .set_ihl(5 + (options.len() / 4) as u8)
                    .set_ecn(self.ecn)
                    .set_total_len(len as u16)
                    .set_ttl(64);
                ip.set_df(!self.is_fragment).set_mf(self.is_fragment).set_protocol(IP_PROTOCOL_UDP);
                ip.set_src_ip(src.into()).set_dst_ip(dst.into());
                // With options the checksum covers them too; the header is refused before anybody looks.
                ip.fill_checksum();
                [&ip.0[..], options].concat()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let extension: &[u8] = if self.has_extension { &EMPTY_EXTENSION } else { &[] };
                let mut ip = Ipv6::zeroed();
                ip.set_version(6).set_ecn(self.ecn).set_dscp(Dscp::new(0)).set_hop_limit(64);
                ip.set_payload_len((extension.len() as i32 + udp_len + self.ip_len_error) as u16);
                ip.set_next_header(if self.has_extension { DESTINATION_OPTIONS } else { IP_PROTOCOL_UDP });
                ip.set_src_ip(src.into()).set_dst_ip(dst.into());
                [&ip.0[..], extension].concat()
            }
            _ => Vec::new(),
        };
        packet.extend(udp.0);
        packet.extend(transport);
        // A header the ICRC is not defined over (options, extensions) is refused before the ICRC matters.
        let mut crc = icrc(&packet).unwrap_or(0);
        if self.has_bad_icrc {
            crc ^= 1 << 13;
        }
        packet.extend(crc.to_le_bytes());
        packet
    }

    /// The frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        let ethertype = if self.ips.0.is_ipv6() { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        let mut types: Vec<u16> = vec![ETHERTYPE_VLAN; self.vlans.len()];
        types.push(ethertype);
        let mut eth = Eth::zeroed();
        eth.set_dst_mac(self.macs.0).set_src_mac(self.macs.1).set_ethertype(types[0]);
        let mut out = eth.0.to_vec();
        for (vid, next) in self.vlans.iter().zip(&types[1..]) {
            let mut vlan = Vlan::zeroed();
            vlan.set_vid(*vid).set_ethertype(*next);
            out.extend(vlan.0);
        }
        out.extend(self.ip_packet());
        out.truncate(out.len() - self.cut_bytes);
        out.resize(out.len() + self.extra_bytes, 0xa5);
        out
    }
}
