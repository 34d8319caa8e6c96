//! Packet to frame: headers from the tables, pad, ICRC.
//!
//! Everything is written in place into the frame's header room; nothing is allocated.

use super::frame::{Frame, Payload};
use super::packet::{Ack, Body, Message, Network, Packet, ReadPart, Remote};
use nic_spec::consts::{SYNDROME_ACK, TVER};
use nic_spec::num::{Dscp, Epoch, PathId, Plane, RsnLimit, StreamId};
use nic_spec::wire::icrc::{icrc, Crc32};
use nic_spec::wire::{
    Atag, AtomicAckEth, AtomicEth, Axth, Bth, Bxth, Eth, Ieth, ImmDt, Ipv4, Ipv6, Mxth, Nxth, Pbth, Pcth, Psth, Pxth,
    Reth, Rrth, Sack, Tmth, Udp, ETHERTYPE_IPV4, ETHERTYPE_IPV6, IP_PROTOCOL_UDP,
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

/// The header at a place of the room.
macro_rules! at {
    ($room:ident, $at:expr, $header:ident) => {
        $header($room[$at..].first_chunk_mut::<{ $header::LEN }>().expect("the headers are within the room"))
    };
}

/// The frame of `packet`.
pub fn emit(packet: Packet, cfg: &EmitConfig) -> Frame {
    let mut frame = Frame::empty();
    let Packet { payload, .. } = &packet;
    let payload = payload.clone();
    emit_into(&packet, payload, cfg, &mut frame);
    frame
}

/// Makes `frame`, which must be empty, the frame of `packet` with `payload` in place of its own.
pub(crate) fn emit_into(packet: &Packet, payload: Payload, cfg: &EmitConfig, frame: &mut Frame) {
    let payload_len = payload.len_bytes() as usize;
    let pad = payload_len.wrapping_neg() & 3;
    let mut cursor = Cursor { room: frame.header_room(), at: 0 };
    let c = &mut cursor;
    put_network(c, &packet.net, cfg.udp_dport);
    let ip_at = Eth::LEN;
    let ip_len = if packet.net.is_ipv6 { Ipv6::LEN } else { Ipv4::LEN };
    put_transport(c, packet, pad);
    put_body(c, &packet.body);
    let header_len = cursor.at;
    let udp_len = (header_len - ip_at - ip_len + payload_len + pad + 4) as u16;
    let room = frame.header_room();
    if packet.net.is_ipv6 {
        at!(room, ip_at, Ipv6).set_payload_len(udp_len);
    } else {
        at!(room, ip_at, Ipv4).set_total_len(udp_len + Ipv4::LEN as u16).fill_checksum();
    }
    at!(room, ip_at + ip_len, Udp).set_len(udp_len);
    let crc = match payload.bytes() {
        Some(bytes) if !(cfg.elide_icrc && bytes.is_empty()) => {
            icrc_of(&room[ip_at..header_len], bytes, &[0; 3][..pad])
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

fn put_transport(c: &mut Cursor<'_>, p: &Packet, pad: usize) {
    let se = matches!(&p.body, Body::Write(m, _) | Body::Send(m, _) if m.se && m.last);
    let mut bth = put!(c, Bth);
    bth.set_opcode(p.body.opcode().code()).set_se(se).set_pad_count(pad as u8).set_tver(TVER).set_pkey(p.pkey);
    bth.set_dest_qpn(p.dest).set_ack_req(p.ack_req).set_rtx(p.rtx).set_eob(p.eob).set_pseq(p.pseq);
    let mut pxth = put!(c, Pxth);
    pxth.set_path_id(PathId::new(p.path)).set_plane(Plane::new(p.plane)).set_epoch(Epoch::new(p.epoch));
    pxth.set_stream_id(StreamId::new(p.stream)).set_tx_ts(p.tx_ts.0);
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
