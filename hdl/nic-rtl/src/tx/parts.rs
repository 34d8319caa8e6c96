//! The bytes of headers from their fields: every field of every table is given a value here, or elaboration fails.

use super::header::transport_bytes;
use crate::{
    prim::lanes::scatter,
    rx::chain::{headers, places, Chain, Link, BTH_OFFSET, PXTH_OFFSET},
    stream::{mflag, AckPacket, AhContext, ConnContext, PacketDesc, TxPacket},
};
use nic_spec::{
    consts::TVER,
    layout::Layout,
    wire::{
        Bth, Eth, Header, Ipv4, Ipv6, Mxth, Opcode, Pxth, Udp, ECN_ECT0, ETHERTYPE_IPV4, ETHERTYPE_IPV6,
        IP_PROTOCOL_UDP,
    },
};
use rtl_graph::*;

/// A packet on its way to bytes.
pub struct Inputs<'a> {
    /// One-hot over the chains.
    pub chain: S<'a>,
    /// `ack` counts rather than `packet`.
    pub is_ack: S<'a>,
    /// The acknowledgement.
    pub ack: AckPacket<'a>,
    /// The WRITE packet.
    pub packet: TxPacket<'a>,
    /// Row of the connection.
    pub conn: ConnContext<'a>,
    /// Addresses of the connection.
    pub ah: AhContext<'a>,
    /// Pad bytes.
    pub pad: S<'a>,
    /// UDP length. Bytes.
    pub udp_len: S<'a>,
    /// UDP destination port.
    pub dport: S<'a>,
}

/// Places of a header's fields with their values.
type Placed<'a> = Vec<(Vec<(usize, usize)>, S<'a>)>;

/// A header at byte `at`; reserved fields stay zero.
///
/// # Panics
/// When a value is missing or the table has no such field: the tables have changed, and so must the caller.
#[track_caller]
fn header<'a>(layout: &Layout, at: usize, values: &[(&str, S<'a>)]) -> Placed<'a> {
    if let Some((name, _)) = values.iter().find(|(name, _)| layout.find(name).is_none()) {
        panic!("{} has no field `{name}`", layout.name);
    }
    let fields = layout.fields.iter().filter(|f| !f.is_reserved());
    let value = |name: &str| match values.iter().find(|(n, _)| *n == name) {
        Some((_, value)) => *value,
        None => panic!("no value for `{name}` of {}", layout.name),
    };
    fields.map(|f| (f.lanes(at).collect(), value(f.name))).collect()
}

impl<'a> Inputs<'a> {
    fn b(&self) -> &'a B {
        self.chain.builder()
    }

    /// The acknowledgement's value in an acknowledgement, else the packet's.
    fn either(&self, ack: impl Operand<'a>, packet: S<'a>) -> S<'a> {
        self.is_ack.mux(ack, packet)
    }

    /// Ethernet and IPv4 headers, the checksum zero.
    pub fn ipv4(&self) -> S<'a> {
        let (b, link) = (self.b(), Link { tags: 0, is_ipv6: false });
        let lit = |value: u64, width| b.lit(value, width);
        let ip = header(
            &Ipv4::LAYOUT,
            link.ip_offset(),
            &[
                ("version", lit(4, 4)),
                ("ihl", lit(Ipv4::LEN as u64 / 4, 4)),
                ("dscp", self.conn.dscp),
                ("ecn", lit(ECN_ECT0.into(), 2)),
                ("total_len", self.udp_len + Ipv4::LEN),
                ("ident", lit(0, 16)),
                ("df", lit(1, 1)),
                ("mf", lit(0, 1)),
                ("frag_offset", lit(0, 13)),
                ("ttl", self.ah.hop_limit),
                ("protocol", lit(IP_PROTOCOL_UDP.into(), 8)),
                ("checksum", lit(0, 16)),
                ("src_ip", self.ah.src_ip.trunc(32)),
                ("dst_ip", self.ah.dst_ip.trunc(32)),
            ],
        );
        scatter(b, link.udp_offset(), self.ethernet(ETHERTYPE_IPV4).into_iter().chain(ip))
    }

    /// Ethernet and IPv6 headers.
    pub fn ipv6(&self) -> S<'a> {
        let (b, link) = (self.b(), Link { tags: 0, is_ipv6: true });
        let lit = |value: u64, width| b.lit(value, width);
        let ip = header(
            &Ipv6::LAYOUT,
            link.ip_offset(),
            &[
                ("version", lit(6, 4)),
                ("dscp", self.conn.dscp),
                ("ecn", lit(ECN_ECT0.into(), 2)),
                ("flow_label", lit(0, 20)),
                ("payload_len", self.udp_len),
                ("next_header", lit(IP_PROTOCOL_UDP.into(), 8)),
                ("hop_limit", self.ah.hop_limit),
                ("src_ip", self.ah.src_ip),
                ("dst_ip", self.ah.dst_ip),
            ],
        );
        scatter(b, link.udp_offset(), self.ethernet(ETHERTYPE_IPV6).into_iter().chain(ip))
    }

    fn ethernet(&self, ethertype: u16) -> Placed<'a> {
        let ethertype = self.b().lit(ethertype.into(), 16);
        let (dst, src) = (self.ah.dst_mac, self.ah.src_mac);
        header(&Eth::LAYOUT, 0, &[("dst_mac", dst), ("src_mac", src), ("ethertype", ethertype)])
    }

    /// From UDP to the last header, zero behind it.
    pub fn transport(&self, chains: &[Chain]) -> S<'a> {
        let b = self.b();
        let fixed = self.udp().into_iter().chain(self.bth()).chain(self.pxth());
        let mut parts = vec![scatter(b, transport_bytes(), fixed)];
        for kind in headers(chains) {
            for (at, list) in places(chains, kind) {
                let is_here = b.or_tree(&list.iter().map(|k| self.chain.bit(*k as u32)).collect::<Vec<_>>());
                let bytes = scatter(b, transport_bytes(), header(kind.layout(), at, &self.extension(kind)));
                parts.push(is_here.rep(bytes.width()) & bytes);
            }
        }
        b.or_tree(&parts)
    }

    fn udp(&self) -> Placed<'a> {
        let (sport, none) = (self.either(self.ack.sport, self.packet.sport), self.b().zero(16));
        let ports = [("src_port", sport), ("dst_port", self.dport)];
        header(&Udp::LAYOUT, 0, &[&ports[..], &[("len", self.udp_len), ("checksum", none)]].concat())
    }

    fn bth(&self) -> Placed<'a> {
        let b = self.b();
        let desc = PacketDesc::unpack(self.packet.desc);
        let code = |opcode: Opcode| b.lit(opcode.code().into(), 8);
        header(
            &Bth::LAYOUT,
            BTH_OFFSET,
            &[
                ("opcode", self.either(code(Opcode::Ack), code(Opcode::Write))),
                ("se", self.either(0, desc.se)),
                ("m", b.low()),
                ("pad_count", self.pad),
                ("tver", b.lit(TVER.into(), 4)),
                ("pkey", self.conn.pkey),
                ("fecn", b.low()),
                ("becn", b.low()),
                ("dest_qpn", self.conn.remote_id),
                ("ack_req", self.either(0, self.packet.ack_req)),
                ("rtx", self.either(0, self.packet.rtx)),
                ("eob", self.either(0, self.packet.eob)),
                ("pseq", self.either(0, self.packet.pseq)),
            ],
        )
    }

    fn pxth(&self) -> Placed<'a> {
        header(
            &Pxth::LAYOUT,
            PXTH_OFFSET,
            &[
                ("path_id", self.either(self.ack.path, self.packet.path)),
                ("plane", self.either(self.ack.plane, self.packet.plane)),
                ("epoch", self.either(self.ack.epoch, self.packet.epoch)),
                // An acknowledgement belongs to no stream.
                ("stream_id", self.either(0, self.conn.stream_id)),
                ("tx_ts", self.either(self.ack.tx_ts, self.packet.tx_ts)),
            ],
        )
    }

    /// Values of a header behind PXTH.
    fn extension(&self, kind: Header) -> Vec<(&'static str, S<'a>)> {
        let desc = PacketDesc::unpack(self.packet.desc);
        match kind {
            Header::Mxth => {
                let is_flag = |f: &&nic_spec::layout::Field| f.bits == 1 && !f.is_reserved();
                let flags = Mxth::LAYOUT.fields.iter().filter(is_flag);
                let flags = flags.map(|f| (f.name, desc.mflags.bit(mflag(f.name))));
                flags.chain([("mseq", desc.mseq), ("rsn", desc.rsn)]).collect()
            }
            Header::Reth => vec![("va", desc.remote_va), ("rkey", desc.rkey), ("dma_len", desc.dma_len)],
            Header::ImmDt => vec![("imm", desc.imm)],
            // The record names the fields of these headers HEADER_field.
            Header::Axth | Header::Sack | Header::Nxth => {
                let names = AckPacket::layout();
                let signals = self.ack.signals();
                let layout = kind.layout();
                let prefix = layout.name.to_lowercase();
                let value = |f: &'static nic_spec::layout::Field| {
                    let name = format!("{prefix}_{}", f.name);
                    let k = names.fields.iter().position(|g| g.name == name);
                    (f.name, signals[k.unwrap_or_else(|| panic!("AckPacket has no field `{name}`"))])
                };
                layout.fields.iter().filter(|f| !f.is_reserved()).map(value).collect()
            }
            _ => panic!("no packet of this card has the header {kind:?}"),
        }
    }
}
