//! Packet to frame: headers from the tables, pad, ICRC.
//!
//! Everything is written in place into the frame's header room; nothing is allocated.

use super::frame::{Frame, Payload};
use super::packet::{Ack, Body, Message, Network, Packet, ReadPart, Remote};
use crate::time::Ticks;
use nic_spec::consts::{ICRC_BYTES, SYNDROME_ACK, TVER};
use nic_spec::num::{Dscp, Epoch, PathId, Plane, Psn, RsnLimit, StreamId};
use nic_spec::wire::icrc::{icrc, Crc32};
use nic_spec::wire::{
    Atag, AtomicAckEth, AtomicEth, Axth, Bth, Bxth, Eth, Ieth, ImmDt, Ipv4, Ipv6, Mxth, Nxth, Opcode, Pbth, Pcth, Psth,
    Pxth, Reth, Rrth, Sack, Tmth, Udp, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IP_PROTOCOL_UDP,
};

/// What a port puts into every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmitConfig {
    /// UDP destination port.
    pub udp_dport: u16,
    /// Leave the ICRC zero in frames that have no payload bytes. (Frames with a virtual payload never have one.)
    pub elide_icrc: bool,
}

/// Appends headers to the frame's header room.
struct Cursor<'a> {
    room: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    /// The next `N` bytes; as an array, so that writing fields of it needs no further checks.
    #[inline(always)]
    fn take<const N: usize>(&mut self) -> &mut [u8; N] {
        let bytes = self.room[self.at..].first_chunk_mut::<N>().expect("the longest chain fits the room");
        self.at += N;
        bytes
    }
}

macro_rules! put {
    ($cursor:ident, $header:ident) => {
        $header($cursor.take::<{ $header::LEN }>())
    };
}

/// What differs between the packets of one path.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub body: Body,
    pub stream: u16,
    pub pseq: Psn,
    pub tx_ts: Ticks,
    pub ack_req: bool,
    pub rtx: bool,
    pub eob: bool,
}

impl Draft {
    /// A packet without a body yet.
    pub const fn new(tx_ts: Ticks) -> Self {
        let body = Body::Cm(Opcode::ConnReq);
        Self { body, stream: 0, pseq: Psn::new(0), tx_ts, ack_req: false, rtx: false, eob: false }
    }
}

/// The header at a place of the room.
macro_rules! at {
    ($room:expr, $at:expr, $header:ident) => {
        $header($room[$at..].first_chunk_mut::<{ $header::LEN }>().expect("the headers are within the room"))
    };
}

/// Longest run of headers that a path's packets share: Ethernet, IPv6, UDP, BTH, PXTH.
const TEMPLATE_BYTES_MAX: usize = Eth::LEN + Ipv6::LEN + Udp::LEN + Bth::LEN + Pxth::LEN;

/// The headers from Ethernet to PXTH that the packets of one path share, lengths and sequence still zero. Most of a
/// packet is copied from here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    bytes: [u8; TEMPLATE_BYTES_MAX],
    len: u8,
    is_ipv6: bool,
}

impl Template {
    /// The template of packets like `p`.
    pub fn new(p: &Packet, udp_dport: u16) -> Self {
        let mut t = Self { bytes: [0; TEMPLATE_BYTES_MAX], len: 0, is_ipv6: p.net.is_ipv6 };
        let mut cursor = Cursor { room: &mut t.bytes, at: 0 };
        let c = &mut cursor;
        put_network(c, &p.net, udp_dport);
        put!(c, Bth).set_tver(TVER).set_pkey(p.pkey).set_dest_qpn(p.dest);
        let mut pxth = put!(c, Pxth);
        pxth.set_path_id(PathId::new(p.path)).set_plane(Plane::new(p.plane)).set_epoch(Epoch::new(p.epoch));
        t.len = cursor.at as u8;
        if !t.is_ipv6 {
            // Over a length of zero; the true length is added to the sum in each packet.
            at!(t.bytes, Eth::LEN, Ipv4).fill_checksum();
        }
        t
    }
}

/// The frame of `packet`.
pub fn emit(packet: Packet, cfg: &EmitConfig) -> Frame {
    let mut frame = Frame::empty();
    emit_packet(packet, cfg, &mut frame);
    frame
}

/// Makes `frame`, which must be empty, the frame of `packet`.
pub(crate) fn emit_packet(packet: Packet, cfg: &EmitConfig, frame: &mut Frame) {
    let template = Template::new(&packet, cfg.udp_dport);
    let Packet { body, stream, pseq, tx_ts, ack_req, rtx, eob, payload, .. } = packet;
    emit_draft(&template, &Draft { body, stream, pseq, tx_ts, ack_req, rtx, eob }, payload, cfg, frame);
}

/// Makes `frame`, which must be empty, the frame of a packet of the path that `t` stands for.
pub(crate) fn emit_draft(t: &Template, d: &Draft, payload: Payload, cfg: &EmitConfig, frame: &mut Frame) {
    let payload_len = payload.len_bytes() as usize;
    let pad = payload_len.wrapping_neg() & 3;
    let room = frame.header_room();
    // The whole array, since a copy of known length is a few moves; what is beyond `len` is overwritten or not used.
    room[..TEMPLATE_BYTES_MAX].copy_from_slice(&t.bytes);
    let base_len = usize::from(t.len);
    let se = matches!(&d.body, Body::Write(m, _) | Body::Send(m, _) if m.se && m.last);
    let pxth_at = base_len - Pxth::LEN;
    let mut bth = at!(room, pxth_at - Bth::LEN, Bth);
    bth.set_opcode(d.body.opcode().code()).set_pseq(d.pseq);
    bth.set_se(se).set_pad_count(pad as u8).set_ack_req(d.ack_req).set_rtx(d.rtx).set_eob(d.eob);
    at!(room, pxth_at, Pxth).set_stream_id(StreamId::new(d.stream)).set_tx_ts(d.tx_ts.0);
    let mut cursor = Cursor { room, at: base_len };
    put_body(&mut cursor, &d.body);
    let header_len = cursor.at;
    let udp_at = base_len - (Udp::LEN + Bth::LEN + Pxth::LEN);
    let udp_len = (header_len - udp_at + payload_len + pad + ICRC_BYTES) as u16;
    let room = frame.header_room();
    if t.is_ipv6 {
        at!(room, Eth::LEN, Ipv6).set_payload_len(udp_len);
    } else {
        let total_len = udp_len + Ipv4::LEN as u16;
        let mut ip = at!(room, Eth::LEN, Ipv4);
        let sum = u32::from(!ip.checksum()) + u32::from(total_len);
        ip.set_total_len(total_len).set_checksum(!((sum & 0xffff) + (sum >> 16)) as u16);
    }
    at!(room, udp_at, Udp).set_len(udp_len);
    let crc = match payload.bytes() {
        Some(bytes) if !(cfg.elide_icrc && bytes.is_empty()) => {
            icrc_of(&room[Eth::LEN..header_len], bytes, &[0; 3][..pad])
        }
        _ => 0,
    };
    frame.set_header_len(header_len);
    frame.set_trailer(pad, crc);
    frame.payload = payload;
}

/// ICRC of a packet in three parts; `headers` begins with the IP header and reaches at least to the end of BTH.
pub(super) fn icrc_of(headers: &[u8], payload: &[u8], pad: &[u8]) -> u32 {
    let head = icrc(headers).expect("headers that the model built or checked are whole");
    let mut crc = Crc32::from_state(!head);
    crc.update(payload).update(pad);
    crc.finish()
}

fn put_network(c: &mut Cursor<'_>, net: &Network, udp_dport: u16) {
    let mut eth = put!(c, Eth);
    eth.set_dst_mac(net.dst.mac).set_src_mac(net.src.mac);
    if net.is_ipv6 {
        eth.set_ethertype(ETHERTYPE_IPV6);
        let mut ip = put!(c, Ipv6);
        ip.set_version(6).set_dscp(Dscp::new(net.dscp)).set_ecn(net.ecn & 3).set_next_header(IP_PROTOCOL_UDP);
        ip.set_hop_limit(net.hop_limit).set_src_ip(net.src.ip).set_dst_ip(net.dst.ip);
    } else {
        eth.set_ethertype(ETHERTYPE_IPV4);
        let mut ip = put!(c, Ipv4);
        ip.set_version(4).set_ihl(5).set_dscp(Dscp::new(net.dscp)).set_ecn(net.ecn & 3).set_df(true);
        ip.set_ttl(net.hop_limit).set_protocol(IP_PROTOCOL_UDP);
        ip.set_src_ip(net.src.ip as u32).set_dst_ip(net.dst.ip as u32);
    }
    put!(c, Udp).set_src_port(net.sport).set_dst_port(udp_dport);
}

fn put_body(c: &mut Cursor<'_>, body: &Body) {
    match body {
        Body::Write(m, r) => {
            put_message(c, m, None);
            put_remote(c, r);
            put_tail(c, m);
        }
        Body::Send(m, b) => {
            put_message(c, m, m.tag);
            put!(c, Bxth).set_msg_offset(b.offset).set_msg_len(b.len);
            if let Some(tag) = m.tag {
                put!(c, Tmth).set_match_bits(tag);
            }
            put_tail(c, m);
        }
        Body::ReadReq(m, r, part) => {
            put_message(c, m, None);
            put_remote(c, r);
            put_read(c, part);
        }
        Body::ReadRsp(part) => put_read(c, part),
        Body::AtomicReq { message, va, rkey, swap_add, compare, op, atomic_id } => {
            put_message(c, message, None);
            put!(c, AtomicEth).set_va(*va).set_rkey(*rkey).set_swap_add(*swap_add).set_compare(*compare);
            put!(c, Atag).set_atomic_id(*atomic_id).set_op(op.code());
        }
        Body::AtomicRsp { op, atomic_id, orig } => {
            put!(c, Atag).set_atomic_id(*atomic_id).set_op(op.code());
            put!(c, AtomicAckEth).set_orig(*orig);
        }
        Body::Flush(m, r) => {
            put_message(c, m, None);
            put_remote(c, r);
        }
        Body::Ack(a) | Body::ProbeRsp(a) => put_ack(c, a),
        Body::ProbeReq { snd_nxt, cookie } => _ = put!(c, Pbth).set_snd_nxt(*snd_nxt).set_cookie(*cookie),
        Body::PathCtl(p) => {
            let mut h = put!(c, Pcth);
            h.set_op(p.op).set_path(PathId::new(p.path)).set_flags(u8::from(p.is_reply));
            h.set_new_epoch(Epoch::new(p.new_epoch)).set_cum_pseq(p.cum);
        }
        Body::PortStatus { planes_up, seq, cookie } => {
            put!(c, Psth).set_planes_up(*planes_up).set_seq(*seq).set_cookie(*cookie);
        }
        Body::Cm(_) => {}
    }
}

fn put_message(c: &mut Cursor<'_>, m: &Message, tag: Option<u64>) {
    let mut h = put!(c, Mxth);
    h.set_first(m.first).set_last(m.last).set_imm(m.has_imm).set_inv(m.has_inv).set_se(m.se).set_fence(m.fence);
    h.set_tag(tag.is_some()).set_mseq(m.mseq).set_rsn(m.rsn);
}

/// Immediate data and key to invalidate, in the last packet only.
fn put_tail(c: &mut Cursor<'_>, m: &Message) {
    if m.has_imm && m.last {
        put!(c, ImmDt).set_imm(m.imm.unwrap_or(0));
    }
    if let (true, true, Some(rkey)) = (m.has_inv, m.last, m.inv) {
        put!(c, Ieth).set_rkey(rkey);
    }
}

fn put_remote(c: &mut Cursor<'_>, r: &Remote) {
    put!(c, Reth).set_va(r.va).set_rkey(r.rkey).set_dma_len(r.dma_len);
}

fn put_read(c: &mut Cursor<'_>, part: &ReadPart) {
    put!(c, Rrth).set_read_id(part.read_id).set_offset(part.offset).set_len(part.len);
}

fn put_ack(c: &mut Cursor<'_>, a: &Ack) {
    let mut h = put!(c, Axth);
    h.set_bm(!a.sack.is_empty()).set_ce(a.ce).set_dup(a.dup).set_rtxe(a.rtxe).set_nak(a.nak.is_some());
    h.set_apath(PathId::new(a.apath)).set_plane(Plane::new(a.plane)).set_epoch(Epoch::new(a.epoch));
    h.set_syndrome(if a.nak.is_some() { a.syndrome } else { SYNDROME_ACK });
    h.set_cum_pseq(a.cum).set_trig_pseq(a.trig).set_ts_echo(a.ts_echo.0).set_hold(a.hold).set_ce_cnt(a.ce_cnt);
    if let Some((seq, mbps)) = a.hint {
        h.set_hint(true).set_hint_seq(seq).set_rate_hint(mbps);
    }
    if let Some((stream, limit)) = a.credit {
        h.set_credit(true).set_cstream(StreamId::new(stream)).set_rq_limit(RsnLimit::new(limit.get()));
    }
    if !a.sack.is_empty() {
        put!(c, Sack).set_bitmap(a.sack.to_wire());
    }
    if let Some((reason, detail)) = a.nak {
        put!(c, Nxth).set_reason(reason).set_detail(detail);
    }
}
