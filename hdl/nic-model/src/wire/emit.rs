//! Packet to frame: headers from the tables, pad, ICRC.
//!
//! Everything is written in place into the frame's header room; nothing is allocated.

use super::frame::{Frame, Payload, HEADER_BYTES_MAX};
use super::packet::{Ack, Body, Message, Network, Packet, ReadPart, Remote, WritePart};
use super::word::{be32, field, put32, put64, word};
use crate::time::Ticks;
use nic_spec::consts::{ICRC_BYTES, SYNDROME_ACK, TVER};
use nic_spec::num::{Dscp, Epoch, PathId, Psn};
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

/// What the headers of a packet say besides its route and its operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub stream: u16,
    pub pseq: Psn,
    pub tx_ts: Ticks,
    pub ack_req: bool,
    pub rtx: bool,
    pub eob: bool,
}

impl Head {
    /// Of a packet that is no part of a sequence.
    pub const fn new(tx_ts: Ticks) -> Self {
        Self { stream: 0, pseq: Psn::new(0), tx_ts, ack_req: false, rtx: false, eob: false }
    }
}

/// What the packets of one path share and those of other paths in its plane do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub path: u8,
    pub epoch: u8,
    pub sport: u16,
}

/// The header at a place of the room.
macro_rules! at {
    ($room:expr, $at:expr, $header:ident) => {
        $header($room[$at..].first_chunk_mut::<{ $header::LEN }>().expect("the headers are within the room"))
    };
}

/// Ethernet to PXTH over an IP header of this length.
const fn base_bytes(ip_len: usize) -> usize {
    Eth::LEN + ip_len + Udp::LEN + Bth::LEN + Pxth::LEN
}

/// Longest run of headers that packets share.
const TEMPLATE_BYTES_MAX: usize = base_bytes(Ipv6::LEN);

/// The headers from Ethernet to PXTH that the packets of a connection in one plane share, what differs still zero. Most
/// of a packet is copied from here.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Template {
    /// `None`: not made yet.
    is_ipv6: Option<bool>,
    plane: u8,
    bytes: [u8; TEMPLATE_BYTES_MAX],
}

impl Template {
    /// One that is not made yet.
    pub const EMPTY: Self = Self { is_ipv6: None, plane: 0, bytes: [0; TEMPLATE_BYTES_MAX] };

    /// True once it is made.
    pub const fn is_made(&self) -> bool {
        self.is_ipv6.is_some()
    }

    /// The template of packets like `p`, whatever their path.
    pub fn new(p: &Packet, udp_dport: u16) -> Self {
        let mut t = Self { bytes: [0; TEMPLATE_BYTES_MAX], plane: p.plane, is_ipv6: Some(p.net.is_ipv6) };
        let mut cursor = Cursor { room: &mut t.bytes, at: 0 };
        let c = &mut cursor;
        put_network(c, &p.net, udp_dport);
        put!(c, Bth).set_tver(TVER).set_pkey(p.pkey).set_dest_qpn(p.dest);
        if !p.net.is_ipv6 {
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

/// Makes `frame` the frame of `packet`.
#[inline(never)]
pub(crate) fn emit_packet(packet: Packet, cfg: &EmitConfig, frame: &mut Frame) {
    let template = Template::new(&packet, cfg.udp_dport);
    let Packet { body, stream, pseq, tx_ts, ack_req, rtx, eob, payload, .. } = packet;
    let route = Route { path: packet.path, epoch: packet.epoch, sport: packet.net.sport };
    emit_body(&template, route, &Head { stream, pseq, tx_ts, ack_req, rtx, eob }, &body, payload, cfg, frame);
}

/// Makes `frame` the frame of a packet of the connection and plane that `t` stands for.
#[inline(never)]
pub(crate) fn emit_body(
    t: &Template,
    route: Route,
    head: &Head,
    body: &Body,
    payload: Payload,
    cfg: &EmitConfig,
    frame: &mut Frame,
) {
    let ip_len = if t.is_ipv6 == Some(true) { Ipv6::LEN } else { Ipv4::LEN };
    let room = frame.header_room();
    room[base_bytes(ip_len)..].fill(0);
    let mut cursor = Cursor { room, at: base_bytes(ip_len) };
    put_body(&mut cursor, body);
    let header_len = cursor.at;
    let se = matches!(body, Body::Write(m, _) | Body::Send(m, _) if m.se && m.last);
    finish(t, route, head, body.opcode(), se, header_len, payload, cfg, frame);
}

/// As [`emit_body`] for a WRITE without immediate data.
#[inline(always)]
pub(crate) fn emit_write(
    t: &Template,
    route: Route,
    head: &Head,
    part: &WritePart,
    payload: Payload,
    cfg: &EmitConfig,
    frame: &mut Frame,
) {
    if t.is_ipv6 == Some(true) {
        return emit_body(t, route, head, &Body::Write(part.message(), part.remote), payload, cfg, frame);
    }
    const AT: usize = base_bytes(Ipv4::LEN);
    let room = frame.header_room();
    put32(room, AT, part.mxth0);
    put32(room, AT + 4, part.mxth1);
    put64(room, AT + Mxth::LEN, part.remote.va);
    put32(room, AT + Mxth::LEN + 8, part.remote.rkey.get());
    put32(room, AT + Mxth::LEN + 12, part.remote.dma_len);
    let se = part.se() && part.last();
    finish_ipv4(t, route, head, Opcode::Write, se, AT + Mxth::LEN + Reth::LEN, payload, cfg, frame);
}

/// As [`emit_body`] for an acknowledgement (or the answer to a probe).
#[inline(always)]
pub(crate) fn emit_ack(
    t: &Template,
    route: Route,
    head: &Head,
    opcode: Opcode,
    ack: &Ack,
    cfg: &EmitConfig,
    frame: &mut Frame,
) {
    let is_short = ack.sack.is_empty() && ack.nak.is_none() && opcode == Opcode::Ack;
    if t.is_ipv6 == Some(true) || !is_short {
        let body = if opcode == Opcode::Ack { Body::Ack(*ack) } else { Body::ProbeRsp(*ack) };
        return emit_body(t, route, head, &body, Payload::EMPTY, cfg, frame);
    }
    const AT: usize = base_bytes(Ipv4::LEN);
    let room = frame.header_room();
    put_axth(room[AT..].first_chunk_mut().expect("the headers are within the room"), ack);
    finish_ipv4(t, route, head, Opcode::Ack, false, AT + Axth::LEN, Payload::EMPTY, cfg, frame);
}

/// Writes what stands before the body, and what depends on lengths. The body ends at `header_len`.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn finish(
    t: &Template,
    route: Route,
    head: &Head,
    opcode: Opcode,
    se: bool,
    header_len: usize,
    payload: Payload,
    cfg: &EmitConfig,
    frame: &mut Frame,
) {
    if t.is_ipv6 != Some(true) {
        return finish_ipv4(t, route, head, opcode, se, header_len, payload, cfg, frame);
    }
    let pad = payload.len_bytes().wrapping_neg() as usize & 3;
    // From the UDP header on.
    let udp_bytes = header_len - Eth::LEN - Ipv6::LEN + payload.len_bytes() as usize + pad + ICRC_BYTES;
    let room = frame.header_room();
    let flags = word!(Bth[0]: opcode = opcode.code(), se = se, pad_count = pad as u8);
    put_base::<{ Ipv6::LEN }, { base_bytes(Ipv6::LEN) }>(room, t, route, head, flags, udp_bytes as u16);
    at!(room, Eth::LEN, Ipv6).set_payload_len(udp_bytes as u16);
    end(header_len, pad, payload, cfg, frame);
}

/// As [`finish`] over IPv4.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn finish_ipv4(
    t: &Template,
    route: Route,
    head: &Head,
    opcode: Opcode,
    se: bool,
    header_len: usize,
    payload: Payload,
    cfg: &EmitConfig,
    frame: &mut Frame,
) {
    let pad = payload.len_bytes().wrapping_neg() as usize & 3;
    // From the UDP header on.
    let udp_len = (header_len - Eth::LEN - Ipv4::LEN + payload.len_bytes() as usize + pad + ICRC_BYTES) as u16;
    let room = frame.header_room();
    let flags = word!(Bth[0]: opcode = opcode.code(), se = se, pad_count = pad as u8);
    put_base::<{ Ipv4::LEN }, { base_bytes(Ipv4::LEN) }>(room, t, route, head, flags, udp_len);
    let total_len = udp_len + Ipv4::LEN as u16;
    let (first, third) = (be32(&t.bytes, Eth::LEN), be32(&t.bytes, Eth::LEN + 8));
    let sum = field!(!third, Ipv4[2].checksum) + u32::from(total_len);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    put32(room, Eth::LEN, first | word!(Ipv4[0]: total_len = total_len));
    put32(room, Eth::LEN + 8, third & !word!(Ipv4[2]: checksum = u16::MAX) | word!(Ipv4[2]: checksum = checksum));
    end(header_len, pad, payload, cfg, frame);
}

/// What stands behind the headers.
#[inline(always)]
fn end(header_len: usize, pad: usize, payload: Payload, cfg: &EmitConfig, frame: &mut Frame) {
    let has_icrc = match payload {
        Payload::Virtual(len) => len == 0 && !cfg.elide_icrc,
        Payload::Bytes { len, .. } => len > 0 || !cfg.elide_icrc,
    };
    let crc = if has_icrc { icrc_of_frame(&frame.header_room()[..header_len], &payload, pad) } else { 0 };
    frame.set_header_len(header_len);
    frame.set_trailer(pad, crc);
    frame.payload = payload;
}

#[inline(never)]
fn icrc_of_frame(headers: &[u8], payload: &Payload, pad: usize) -> u32 {
    icrc_of(&headers[Eth::LEN..], payload.bytes().unwrap_or(&[]), &[0; 3][..pad])
}

/// Ethernet to PXTH but for the lengths and sums of IP.
#[inline(always)]
fn put_base<const IP_LEN: usize, const LEN: usize>(
    room: &mut [u8; HEADER_BYTES_MAX],
    t: &Template,
    route: Route,
    head: &Head,
    bth_flags: u32,
    udp_len: u16,
) {
    let udp_at = Eth::LEN + IP_LEN;
    let bth_at = udp_at + Udp::LEN;
    let pxth_at = bth_at + Bth::LEN;
    // A copy of known length is a few moves.
    room[..LEN].copy_from_slice(&t.bytes[..LEN]);
    put32(room, udp_at, be32(&t.bytes, udp_at) | word!(Udp[0]: src_port = route.sport));
    put32(room, udp_at + 4, word!(Udp[1]: len = udp_len));
    put32(room, bth_at, be32(&t.bytes, bth_at) | bth_flags);
    let (ack_req, rtx, eob) = (head.ack_req, head.rtx, head.eob);
    put32(room, bth_at + 8, word!(Bth[2]: ack_req = ack_req, rtx = rtx, eob = eob, pseq = head.pseq.get()));
    let path = word!(Pxth[0]: path_id = route.path, plane = t.plane, epoch = route.epoch, stream_id = head.stream);
    put64(room, pxth_at, u64::from(path) << 32 | u64::from(head.tx_ts.0));
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
    put!(c, Udp).set_dst_port(udp_dport);
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

#[inline(always)]
fn put_axth(room: &mut [u8; Axth::LEN], a: &Ack) {
    let (has_hint, has_credit, has_nak) = (a.hint.is_some(), a.credit.is_some(), a.nak.is_some());
    let syndrome = if has_nak { a.syndrome } else { SYNDROME_ACK };
    let flags = word!(Axth[0]:
        bm = !a.sack.is_empty(), ce = a.ce, dup = a.dup, rtxe = a.rtxe, hint = has_hint, nak = has_nak,
        credit = has_credit, apath = a.apath, plane = a.plane, epoch = a.epoch, syndrome = syndrome);
    put32(room, 0, flags);
    put32(room, 4, word!(Axth[1]: cum_pseq = a.cum.get()));
    put32(room, 8, word!(Axth[2]: trig_pseq = a.trig.get()));
    put32(room, 12, a.ts_echo.0);
    put32(room, 16, word!(Axth[4]: hold = a.hold, ce_cnt = a.ce_cnt));
    let hint = a.hint.map_or(0, |(seq, mbps)| word!(Axth[5]: hint_seq = seq.get(), rate_hint = mbps));
    put32(room, 20, hint);
    let credit = a.credit.map_or(0, |(stream, limit)| word!(Axth[6]: cstream = stream, rq_limit = limit.get()));
    put32(room, 24, credit);
}

fn put_ack(c: &mut Cursor<'_>, a: &Ack) {
    put_axth(c.take::<{ Axth::LEN }>(), a);
    if !a.sack.is_empty() {
        put!(c, Sack).set_bitmap(a.sack.to_wire());
    }
    if let Some((reason, detail)) = a.nak {
        *c.take::<{ Nxth::LEN }>() = Nxth::zeroed().set_reason(reason).set_detail(detail).0;
    }
}
