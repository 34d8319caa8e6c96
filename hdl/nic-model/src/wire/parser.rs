//! Frame to packet. Every refusal is a row of the counter table; nothing panics and nothing is allocated on the way that
//! the model's own frames take.
//!
//! A frame whose inline header is shorter than its headers, or whose payload does not begin where the headers end, is
//! laid out anew as plain bytes first; that is how frames of another sender come in.

use super::emit::icrc_of;
use super::frame::{Frame, Payload, HEADER_BYTES_MAX};
use super::packet::{Ack, Body, BufferPart, Message, Network, Packet, PathControl, ReadPart, Remote};
use crate::time::Ticks;
use crate::transport::bitmap::Bitmap;
use nic_spec::consts::{ICRC_BYTES, PMTU_BYTES_MAX, TVER, VLAN_TAGS_MAX};
use nic_spec::csr::stats::Counter;
use nic_spec::wire::opcode::Body as Content;
use nic_spec::wire::{
    Atag, AtomicAckEth, AtomicEth, AtomicOp, Axth, Bth, Bxth, Eth, Ieth, ImmDt, Ipv4, Ipv6, Mxth, Nxth, Opcode, Pbth,
    Pcth, Psth, Pxth, Reth, Rrth, Sack, Tmth, Udp, Vlan, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN,
    ETHERTYPE_VLAN_SERVICE,
};

/// What a port accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFilter {
    /// The port's MAC address; `None` accepts every destination.
    pub mac: Option<u64>,
    /// UDP destination port.
    pub udp_dport: u16,
    /// Longest frame, bytes without FCS.
    pub frame_bytes_max: u32,
    /// Do not check the ICRC of frames that have no payload bytes.
    pub elide_icrc: bool,
}

/// Longest chain before the payload: two tags, IPv6 and the longest opcode.
const CHAIN_BYTES_MAX: usize = 152;
const _: () = assert!(CHAIN_BYTES_MAX <= HEADER_BYTES_MAX);

/// The packet in `frame`, or the counter of the drop.
pub fn parse(frame: &Frame, filter: &PortFilter) -> Result<Packet, Counter> {
    let mut packet = Packet::empty();
    parse_into(frame, filter, &mut packet).map(|()| packet)
}

/// As [`parse`] into a packet that is there already; after an error its content means nothing.
pub(crate) fn parse_into(frame: &Frame, filter: &PortFilter, out: &mut Packet) -> Result<(), Counter> {
    if frame.len_bytes() > filter.frame_bytes_max {
        return Err(Counter::RxTooLong);
    }
    if parse_usual(frame, filter, out) == Some(()) {
        return Ok(());
    }
    // Whether the inline header holds the whole chain shows while parsing.
    match parse_inline(frame, filter, out) {
        Ok(()) => Ok(()),
        Err(Stop::Drop(counter)) => Err(counter),
        Err(Stop::Scattered) if frame.is_virtual() => Err(Counter::RxBadLength),
        Err(Stop::Scattered) => match parse_inline(&Frame::from_bytes(&frame.to_bytes()), filter, out) {
            Ok(()) => Ok(()),
            Err(Stop::Drop(counter)) => Err(counter),
            Err(Stop::Scattered) => Err(Counter::RxTruncated),
        },
    }
}

/// Headers from Ethernet to PXTH of an untagged IPv4 frame.
const USUAL_BYTES: usize = Eth::LEN + Ipv4::LEN + Udp::LEN + Bth::LEN + Pxth::LEN;

/// The header at a fixed place of an array, so that nothing is checked at run time.
macro_rules! part {
    ($bytes:ident, $at:expr, $header:ident) => {
        $header(<&[u8; $header::LEN]>::try_from(&$bytes[$at..$at + $header::LEN]).expect("a part of that length"))
    };
}

/// Parses what nearly every frame is: a WRITE without immediate data or a short ACK, untagged over IPv4, headers inline
/// and nothing wrong. `None` for everything else, which the general way decides; `out` means nothing then.
fn parse_usual(frame: &Frame, filter: &PortFilter, out: &mut Packet) -> Option<()> {
    let (head, rest) = frame.header().split_first_chunk::<USUAL_BYTES>()?;
    let eth = part!(head, 0, Eth);
    let ip = part!(head, Eth::LEN, Ipv4);
    const UDP_AT: usize = Eth::LEN + Ipv4::LEN;
    let udp = part!(head, UDP_AT, Udp);
    let bth = part!(head, UDP_AT + Udp::LEN, Bth);
    let pxth = part!(head, UDP_AT + Udp::LEN + Bth::LEN, Pxth);
    let pad = usize::from(bth.pad_count());
    let is_usual = eth.ethertype() == ETHERTYPE_IPV4
        && filter.mac.is_none_or(|mac| mac == eth.dst_mac())
        && ip.check().is_ok()
        && u32::from(ip.total_len()) + Eth::LEN as u32 == frame.len_bytes()
        && udp.dst_port() == filter.udp_dport
        && udp.len() == ip.total_len() - Ipv4::LEN as u16
        && bth.tver() == TVER
        && frame.trailer().len() == pad + ICRC_BYTES
        && frame.payload.len_bytes() as usize <= PMTU_BYTES_MAX;
    if !is_usual {
        return None;
    }
    const WRITE: u8 = Opcode::Write.code();
    const ACK: u8 = Opcode::Ack.code();
    match (bth.opcode(), rest.len()) {
        (WRITE, 24) => {
            let rest: &[u8; 24] = rest.try_into().ok()?;
            let m = message_of(&part!(rest, 0, Mxth));
            if m.has_imm && m.last {
                return None;
            }
            out.body = Body::Write(m, remote_of(&part!(rest, Mxth::LEN, Reth)));
        }
        (ACK, Axth::LEN) => {
            let h = Axth(<&[u8; Axth::LEN]>::try_from(rest).ok()?);
            if h.bm() || h.nak() || pad != 0 || frame.payload.len_bytes() != 0 {
                return None;
            }
            out.body = Body::Ack(ack_of(&h, Bitmap::EMPTY, None));
        }
        _ => return None,
    }
    out.payload =
        payload(frame, filter, Eth::LEN, frame.header().len(), frame.payload.len_bytes() as usize, pad).ok()?;
    let net = &mut out.net;
    (net.dst.mac, net.src.mac, net.sport) = (eth.dst_mac(), eth.src_mac(), udp.src_port());
    (net.dscp, net.ecn, net.hop_limit) = (ip.dscp().get(), ip.ecn(), ip.ttl());
    (net.is_ipv6, net.src.ip, net.dst.ip) = (false, ip.src_ip().into(), ip.dst_ip().into());
    take_transport(out, &bth, &pxth);
    Some(())
}

/// Takes over what BTH and PXTH say.
#[inline(always)]
fn take_transport(out: &mut Packet, bth: &Bth<&[u8; Bth::LEN]>, pxth: &Pxth<&[u8; Pxth::LEN]>) {
    (out.pkey, out.dest, out.pseq) = (bth.pkey(), bth.dest_qpn(), bth.pseq());
    (out.ack_req, out.rtx, out.eob) = (bth.ack_req(), bth.rtx(), bth.eob());
    (out.path, out.plane, out.epoch) = (pxth.path_id().get(), pxth.plane().get(), pxth.epoch().get());
    (out.stream, out.tx_ts) = (pxth.stream_id().get(), Ticks(pxth.tx_ts()));
}

/// Why parsing ended.
enum Stop {
    Drop(Counter),
    /// The inline header ends within the headers.
    Scattered,
}

impl From<Counter> for Stop {
    fn from(counter: Counter) -> Self {
        Self::Drop(counter)
    }
}

/// Reads headers one after the other.
struct Reader<'a> {
    header: &'a [u8],
    at: usize,
    /// Bytes that there are in all, of the frame first, of the datagram later.
    end: usize,
}

impl<'a> Reader<'a> {
    /// The next `N` bytes; as an array, so that reading fields of it needs no further checks.
    #[inline(always)]
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], Stop> {
        if self.end - self.at < N {
            return Err(Counter::RxTruncated.into());
        }
        let bytes = self.header.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).ok_or(Stop::Scattered)?;
        self.at += N;
        Ok(bytes)
    }
}

macro_rules! get {
    ($reader:ident, $header:ident) => {
        $header($reader.take::<{ $header::LEN }>()?)
    };
}

fn parse_inline(frame: &Frame, filter: &PortFilter, out: &mut Packet) -> Result<(), Stop> {
    let mut reader = Reader { header: frame.header(), at: 0, end: frame.len_bytes() as usize };
    let r = &mut reader;
    let ip_at = network(r, filter, &mut out.net)?;
    let udp = get!(r, Udp);
    if udp.dst_port() != filter.udp_dport {
        return Err(Counter::RxOtherUdpPort.into());
    }
    if usize::from(udp.len()) != r.end - (r.at - Udp::LEN) {
        return Err(Counter::RxBadUdpLen.into());
    }
    out.net.sport = udp.src_port();
    // What follows ends before the ICRC.
    let Some(end) = r.end.checked_sub(ICRC_BYTES).filter(|end| *end >= r.at) else {
        return Err(Counter::RxTruncated.into());
    };
    r.end = end;
    let bth = get!(r, Bth);
    if bth.tver() != TVER {
        return Err(Counter::RxBadTver.into());
    }
    let opcode = Opcode::try_from(bth.opcode()).map_err(|_| Counter::RxUnknownOpcode)?;
    let pxth = get!(r, Pxth);
    body(r, opcode, &mut out.body)?;
    let content = r.end - r.at;
    let pad = usize::from(bth.pad_count());
    if pad > content || (content > 0 && opcode.info().body == Content::None) {
        return Err(Counter::RxBadLength.into());
    }
    let payload_len = content - pad;
    if payload_len > PMTU_BYTES_MAX {
        return Err(Counter::RxTooLong.into());
    }
    out.payload = payload(frame, filter, ip_at, r.at, payload_len, pad)?;
    take_transport(out, &bth, &pxth);
    Ok(())
}

/// Ethernet, tags and IP; leaves the reader at UDP with its end at that of the IP packet. Returns where IP begins.
#[inline]
fn network(r: &mut Reader<'_>, filter: &PortFilter, net: &mut Network) -> Result<usize, Stop> {
    let eth = get!(r, Eth);
    if filter.mac.is_some_and(|mac| mac != eth.dst_mac()) {
        return Err(Counter::RxOtherMac.into());
    }
    (net.dst.mac, net.src.mac) = (eth.dst_mac(), eth.src_mac());
    let (mut ethertype, mut tags) = (eth.ethertype(), 0);
    while matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_VLAN_SERVICE) {
        tags += 1;
        if tags > VLAN_TAGS_MAX {
            return Err(Counter::RxTooManyTags.into());
        }
        ethertype = get!(r, Vlan).ethertype();
    }
    let ip_at = r.at;
    let ip_len = match ethertype {
        ETHERTYPE_IPV4 => {
            let ip = get!(r, Ipv4);
            ip.check()?;
            (net.dscp, net.ecn, net.hop_limit) = (ip.dscp().get(), ip.ecn(), ip.ttl());
            (net.is_ipv6, net.src.ip, net.dst.ip) = (false, ip.src_ip().into(), ip.dst_ip().into());
            usize::from(ip.total_len())
        }
        ETHERTYPE_IPV6 => {
            let ip = get!(r, Ipv6);
            ip.check()?;
            (net.dscp, net.ecn, net.hop_limit) = (ip.dscp().get(), ip.ecn(), ip.hop_limit());
            (net.is_ipv6, net.src.ip, net.dst.ip) = (true, ip.src_ip(), ip.dst_ip());
            Ipv6::LEN + usize::from(ip.payload_len())
        }
        _ => return Err(Counter::RxNotIp.into()),
    };
    if ip_at + ip_len > r.end || ip_at + ip_len < r.at {
        return Err(Counter::RxTruncated.into());
    }
    r.end = ip_at + ip_len;
    Ok(ip_at)
}

/// The headers of the opcode.
#[inline]
fn body(r: &mut Reader<'_>, opcode: Opcode, out: &mut Body) -> Result<(), Stop> {
    *out = match opcode {
        Opcode::Write => {
            let mut m = message(r)?;
            let remote = remote(r)?;
            tail(r, &mut m, false)?;
            Body::Write(m, remote)
        }
        Opcode::Send => {
            let (mut m, has_tag) = message_and_tag(r)?;
            let b = get!(r, Bxth);
            let part = BufferPart { offset: b.msg_offset(), len: b.msg_len() };
            if has_tag {
                m.tag = Some(get!(r, Tmth).match_bits());
            }
            tail(r, &mut m, true)?;
            Body::Send(m, part)
        }
        Opcode::ReadReq => Body::ReadReq(message(r)?, remote(r)?, read(r)?),
        Opcode::ReadRsp => Body::ReadRsp(read(r)?),
        Opcode::AtomicReq => {
            let message = message(r)?;
            let a = get!(r, AtomicEth);
            let t = get!(r, Atag);
            let op = AtomicOp::try_from(t.op()).map_err(|_| Counter::RxUnsupportedOpcode)?;
            let (va, rkey, swap_add, compare) = (a.va(), a.rkey(), a.swap_add(), a.compare());
            Body::AtomicReq { message, va, rkey, swap_add, compare, op, atomic_id: t.atomic_id() }
        }
        Opcode::AtomicRsp => {
            let t = get!(r, Atag);
            let op = AtomicOp::try_from(t.op()).map_err(|_| Counter::RxUnsupportedOpcode)?;
            Body::AtomicRsp { op, atomic_id: t.atomic_id(), orig: get!(r, AtomicAckEth).orig() }
        }
        Opcode::Flush => Body::Flush(message(r)?, remote(r)?),
        Opcode::Ack => Body::Ack(ack(r, true)?),
        Opcode::ProbeRsp => Body::ProbeRsp(ack(r, false)?),
        Opcode::ProbeReq => {
            let p = get!(r, Pbth);
            Body::ProbeReq { snd_nxt: p.snd_nxt(), cookie: p.cookie() }
        }
        Opcode::PathCtl => {
            let p = get!(r, Pcth);
            let (op, path, is_reply) = (p.op(), p.path().get(), p.flags() & 1 != 0);
            Body::PathCtl(PathControl { op, path, is_reply, new_epoch: p.new_epoch().get(), cum: p.cum_pseq() })
        }
        Opcode::PortStatus => {
            let p = get!(r, Psth);
            Body::PortStatus { planes_up: p.planes_up(), seq: p.seq(), cookie: p.cookie() }
        }
        Opcode::ConnReq | Opcode::ConnRep | Opcode::ConnRtu | Opcode::DiscReq | Opcode::DiscRep => Body::Cm(opcode),
    };
    Ok(())
}

#[inline]
fn message(r: &mut Reader<'_>) -> Result<Message, Stop> {
    Ok(message_and_tag(r)?.0)
}

/// MXTH; the second value says that a tag follows in operations that have one.
#[inline]
fn message_and_tag(r: &mut Reader<'_>) -> Result<(Message, bool), Stop> {
    let h = get!(r, Mxth);
    Ok((message_of(&h), h.tag()))
}

#[inline(always)]
fn message_of(h: &Mxth<&[u8; Mxth::LEN]>) -> Message {
    Message {
        first: h.first(),
        last: h.last(),
        imm: None,
        inv: None,
        has_imm: h.imm(),
        has_inv: h.inv(),
        se: h.se(),
        fence: h.fence(),
        tag: None,
        mseq: h.mseq(),
        rsn: h.rsn(),
    }
}

/// Immediate data and key to invalidate, in the last packet only.
#[inline]
fn tail(r: &mut Reader<'_>, m: &mut Message, may_invalidate: bool) -> Result<(), Stop> {
    if m.has_imm && m.last {
        m.imm = Some(get!(r, ImmDt).imm());
    }
    if may_invalidate && m.has_inv && m.last {
        m.inv = Some(get!(r, Ieth).rkey());
    }
    Ok(())
}

#[inline]
fn remote(r: &mut Reader<'_>) -> Result<Remote, Stop> {
    Ok(remote_of(&get!(r, Reth)))
}

#[inline(always)]
fn remote_of(h: &Reth<&[u8; Reth::LEN]>) -> Remote {
    Remote { va: h.va(), rkey: h.rkey(), dma_len: h.dma_len() }
}

#[inline]
fn read(r: &mut Reader<'_>) -> Result<ReadPart, Stop> {
    let h = get!(r, Rrth);
    Ok(ReadPart { read_id: h.read_id(), offset: h.offset(), len: h.len() })
}

#[inline]
fn ack(r: &mut Reader<'_>, may_refuse: bool) -> Result<Ack, Stop> {
    let h = get!(r, Axth);
    let sack = if h.bm() { Bitmap::from_wire(&get!(r, Sack).bitmap()) } else { Bitmap::EMPTY };
    let nak = if may_refuse && h.nak() {
        let n = get!(r, Nxth);
        Some((n.reason(), n.detail()))
    } else {
        None
    };
    Ok(ack_of(&h, sack, nak))
}

#[inline(always)]
fn ack_of(h: &Axth<&[u8; Axth::LEN]>, sack: Bitmap, nak: Option<(u8, u16)>) -> Ack {
    Ack {
        ce: h.ce(),
        dup: h.dup(),
        rtxe: h.rtxe(),
        apath: h.apath().get(),
        plane: h.plane().get(),
        epoch: h.epoch().get(),
        syndrome: h.syndrome(),
        cum: h.cum_pseq(),
        trig: h.trig_pseq(),
        ts_echo: Ticks(h.ts_echo()),
        hold: h.hold(),
        ce_cnt: h.ce_cnt(),
        hint: h.hint().then(|| (h.hint_seq(), h.rate_hint())),
        credit: h.credit().then(|| (h.cstream().get(), h.rq_limit())),
        sack,
        nak,
    }
}

/// The payload, once the ICRC is found right. `at` is where the headers end.
#[inline]
fn payload(
    frame: &Frame,
    filter: &PortFilter,
    ip_at: usize,
    at: usize,
    len: usize,
    pad: usize,
) -> Result<Payload, Stop> {
    let (header, trailer) = (frame.header(), frame.trailer());
    if header.len() == at && frame.payload.len_bytes() as usize == len && trailer.len() >= pad + ICRC_BYTES {
        let Some(bytes) = frame.payload.bytes() else { return Ok(frame.payload.clone()) };
        if !(filter.elide_icrc && bytes.is_empty()) {
            check_icrc(&header[ip_at..], bytes, &trailer[..pad], &trailer[pad..])?;
        }
        return Ok(frame.payload.clone());
    }
    if frame.is_virtual() {
        return Err(Counter::RxBadLength.into());
    }
    let all = frame.to_bytes();
    let (content, icrc) = all[at..].split_at(len + pad);
    check_icrc(&all[ip_at..at], &content[..len], &content[len..], icrc)?;
    Ok(if len == 0 { Payload::EMPTY } else { Payload::from_bytes(&content[..len]) })
}

fn check_icrc(headers: &[u8], payload: &[u8], pad: &[u8], icrc: &[u8]) -> Result<(), Stop> {
    if icrc.get(..ICRC_BYTES) == Some(&icrc_of(headers, payload, pad).to_le_bytes()) {
        Ok(())
    } else {
        Err(Counter::RxBadIcrc.into())
    }
}
