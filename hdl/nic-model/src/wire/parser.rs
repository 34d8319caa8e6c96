//! Frame to packet. Every refusal is a row of the counter table; nothing panics and nothing is allocated on the way that
//! the model's own frames take.
//!
//! A frame whose inline header is shorter than its headers, or whose payload does not begin where the headers end, is
//! laid out anew as plain bytes first; that is how frames of another sender come in.

use super::emit::icrc_of;
use super::frame::{Frame, FrameRef, Payload, HEADER_BYTES_MAX};
use super::packet::{Ack, Body, BufferPart, Label, Message, Network, Packet, PathControl, ReadPart, Remote, WritePart};
use super::word::{be16, be32, be64, field, word};
use crate::time::Ticks;
use crate::transport::bitmap::Bitmap;
use nic_spec::consts::{ICRC_BYTES, PMTU_BYTES_MAX, TVER, VLAN_TAGS_MAX};
use nic_spec::csr::stats::Counter;
use nic_spec::num::{HintSeq, Psn, Rkey, RsnLimit};
use nic_spec::wire::opcode::Body as Content;
use nic_spec::wire::{
    Atag, AtomicAckEth, AtomicEth, AtomicOp, Axth, Bth, Bxth, Eth, Ieth, ImmDt, Ipv4, Ipv6, Mxth, Nxth, Opcode, Pbth,
    Pcth, Psth, Pxth, Reth, Rrth, Sack, Tmth, Udp, Vlan, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN,
    ETHERTYPE_VLAN_SERVICE, IP_PROTOCOL_UDP,
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
    parse_any(frame.as_parts(), filter, &mut packet).map(|()| packet)
}

/// Takes what nearly every frame is.
pub(crate) trait Usual {
    /// A part of a WRITE without immediate data.
    fn write(self, label: &Label, part: &WritePart, payload: &Payload);

    /// A short acknowledgement.
    fn ack(self, label: &Label, ack: &Ack);
}

/// As [`parse`] into a packet that is there already; after an error its content means nothing.
#[inline(never)]
pub(crate) fn parse_any(frame: FrameRef<'_>, filter: &PortFilter, out: &mut Packet) -> Result<(), Counter> {
    if frame.len_bytes() > filter.frame_bytes_max {
        return Err(Counter::RxTooLong);
    }
    // Whether the inline header holds the whole chain shows while parsing.
    match parse_inline(frame, filter, out) {
        Ok(()) => Ok(()),
        Err(Stop::Drop(counter)) => Err(counter),
        Err(Stop::Scattered) if frame.is_virtual() => Err(Counter::RxBadLength),
        Err(Stop::Scattered) => match parse_inline(Frame::from_bytes(&frame.to_bytes()).as_parts(), filter, out) {
            Ok(()) => Ok(()),
            Err(Stop::Drop(counter)) => Err(counter),
            Err(Stop::Scattered) => Err(Counter::RxTruncated),
        },
    }
}

const UDP_AT: usize = Eth::LEN + Ipv4::LEN;
const BTH_AT: usize = UDP_AT + Udp::LEN;
const PXTH_AT: usize = BTH_AT + Bth::LEN;
/// Headers from Ethernet to PXTH of an untagged IPv4 frame.
const USUAL_BYTES: usize = PXTH_AT + Pxth::LEN;

/// The label of what nearly every frame is: untagged over IPv4, headers inline and nothing wrong down to PXTH. `None` for
/// everything else, which the general way decides.
#[inline(always)]
pub(crate) fn check_usual(frame: FrameRef<'_>, filter: &PortFilter) -> Option<Label> {
    let head = frame.header.first_chunk::<USUAL_BYTES>()?;
    let (frame_bytes, payload_bytes) = (frame.len_bytes(), frame.payload.len_bytes() as usize);
    if filter.mac.is_some_and(|mac| mac != be64(head, 0) >> 16) || be16(head, 12) != ETHERTYPE_IPV4 {
        return None;
    }
    // A right header sums up to zero modulo 2^16 - 1, in whatever order the bytes of its words are taken.
    let sum: u64 = (0..5).map(|i| u64::from(be32(head, Eth::LEN + 4 * i).swap_bytes())).sum();
    let ip0 = be32(head, Eth::LEN);
    let fixed = !word!(Ipv4[0]: dscp = u8::MAX, ecn = u8::MAX, total_len = u16::MAX);
    if ip0 & fixed != word!(Ipv4[0]: version = 4u8, ihl = 5u8) || sum % 0xffff != 0 {
        return None;
    }
    let is_whole = be32(head, Eth::LEN + 4) & word!(Ipv4[1]: mf = true, frag_offset = u16::MAX) == 0;
    if !is_whole || field!(be32(head, Eth::LEN + 8), Ipv4[2].protocol) != u32::from(IP_PROTOCOL_UDP) {
        return None;
    }
    let total_len = field!(ip0, Ipv4[0].total_len);
    if total_len + Eth::LEN as u32 != frame_bytes || frame_bytes > filter.frame_bytes_max {
        return None;
    }
    let udp_len = u32::from(be16(head, UDP_AT + 4));
    if be16(head, UDP_AT + 2) != filter.udp_dport || udp_len + Ipv4::LEN as u32 != total_len {
        return None;
    }
    let bth0 = be32(head, BTH_AT);
    let pad = field!(bth0, Bth[0].pad_count) as usize;
    if field!(bth0, Bth[0].tver) != u32::from(TVER) || frame.trailer.len() != pad + ICRC_BYTES {
        return None;
    }
    if payload_bytes > PMTU_BYTES_MAX {
        return None;
    }
    if !(frame.is_virtual() || filter.elide_icrc && payload_bytes == 0) {
        payload(frame, filter, Eth::LEN, frame.header.len(), payload_bytes, pad).ok()?;
    }
    let (bth1, bth2) = (be32(head, BTH_AT + 4), be32(head, BTH_AT + 8));
    let (pxth0, pxth1) = (be32(head, PXTH_AT), be32(head, PXTH_AT + 4));
    Some(Label { bth0, bth1, bth2, pxth0, pxth1, ecn: field!(ip0, Ipv4[0].ecn) })
}

/// Hands on what nearly every frame with the label of a usual one is, a WRITE without immediate data or a short ACK, field
/// by field, so that it need not be laid out in memory. `None` for everything else.
#[inline(always)]
pub(crate) fn take_usual(frame: FrameRef<'_>, label: &Label, taker: impl Usual) -> Option<()> {
    let rest = frame.header.get(USUAL_BYTES..)?;
    const WRITE: u32 = Opcode::Write.code() as u32;
    const ACK: u32 = Opcode::Ack.code() as u32;
    match field!(label.bth0, Bth[0].opcode) {
        WRITE => {
            let rest: &[u8; Mxth::LEN + Reth::LEN] = rest.try_into().ok()?;
            let remote = Remote {
                va: be64(rest, Mxth::LEN),
                rkey: Rkey::new(be32(rest, Mxth::LEN + 8)),
                dma_len: be32(rest, Mxth::LEN + 12),
            };
            let part = WritePart { mxth0: be32(rest, 0), mxth1: be32(rest, 4), remote };
            if part.has_imm() && part.last() {
                return None;
            }
            taker.write(label, &part, frame.payload);
        }
        ACK => {
            let rest: &[u8; Axth::LEN] = rest.try_into().ok()?;
            let has_more = field!(label.bth0, Bth[0].pad_count) != 0 || frame.payload.len_bytes() != 0;
            if has_more || be32(rest, 0) & word!(Axth[0]: bm = true, nak = true) != 0 {
                return None;
            }
            taker.ack(label, &ack_of(rest, Bitmap::EMPTY, None));
        }
        _ => return None,
    }
    Some(())
}

/// What a look at a header tells without checking it.
pub(crate) struct Glance {
    pub dest: u32,
    /// Of the peer's path, or of the own one that is acknowledged.
    pub path: u8,
    pub is_ack: bool,
}

/// A look at a header of an untagged IPv4 frame.
#[inline]
pub(crate) fn glance(header: &[u8]) -> Option<Glance> {
    let head = header.first_chunk::<{ USUAL_BYTES + 4 }>()?;
    let (bth0, bth1) = (be32(head, BTH_AT), be32(head, BTH_AT + 4));
    let is_ack = field!(bth0, Bth[0].opcode) == u32::from(Opcode::Ack.code());
    let path = if is_ack {
        field!(be32(head, USUAL_BYTES), Axth[0].apath)
    } else {
        field!(be32(head, PXTH_AT), Pxth[0].path_id)
    };
    Some(Glance { dest: field!(bth1, Bth[1].dest_qpn), path: path as u8, is_ack })
}

/// Takes over what BTH and PXTH say.
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

fn parse_inline(frame: FrameRef<'_>, filter: &PortFilter, out: &mut Packet) -> Result<(), Stop> {
    let mut reader = Reader { header: frame.header, at: 0, end: frame.len_bytes() as usize };
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
    Ok(ack_of(h.0, sack, nak))
}

#[inline(always)]
fn ack_of(h: &[u8; Axth::LEN], sack: Bitmap, nak: Option<(u8, u16)>) -> Ack {
    let word = |n: usize| be32(h, 4 * n);
    let flags = word(0);
    let is_set = |bit: u32| flags & bit != 0;
    let hint = || (HintSeq::new(field!(word(5), Axth[5].hint_seq) as u8), field!(word(5), Axth[5].rate_hint));
    let credit = || (field!(word(6), Axth[6].cstream) as u16, RsnLimit::new(field!(word(6), Axth[6].rq_limit) as u16));
    Ack {
        ce: is_set(word!(Axth[0]: ce = true)),
        dup: is_set(word!(Axth[0]: dup = true)),
        rtxe: is_set(word!(Axth[0]: rtxe = true)),
        apath: field!(flags, Axth[0].apath) as u8,
        plane: field!(flags, Axth[0].plane) as u8,
        epoch: field!(flags, Axth[0].epoch) as u8,
        syndrome: field!(flags, Axth[0].syndrome) as u8,
        cum: Psn::new(field!(word(1), Axth[1].cum_pseq)),
        trig: Psn::new(field!(word(2), Axth[2].trig_pseq)),
        ts_echo: Ticks(word(3)),
        hold: field!(word(4), Axth[4].hold) as u16,
        ce_cnt: field!(word(4), Axth[4].ce_cnt) as u16,
        hint: is_set(word!(Axth[0]: hint = true)).then(hint),
        credit: is_set(word!(Axth[0]: credit = true)).then(credit),
        sack,
        nak,
    }
}

/// The payload, once the ICRC is found right. `at` is where the headers end.
#[inline]
fn payload(
    frame: FrameRef<'_>,
    filter: &PortFilter,
    ip_at: usize,
    at: usize,
    len: usize,
    pad: usize,
) -> Result<Payload, Stop> {
    let (header, trailer) = (frame.header, frame.trailer);
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

#[cfg(test)]
mod tests {
    use super::super::emit::{emit, EmitConfig};
    use super::super::packet::Address;
    use super::*;
    use nic_spec::num::{Msn, Pkey, Qpn, Rsn};

    fn filter() -> PortFilter {
        PortFilter { mac: Some(0x0200_0000_0002), udp_dport: 4791, frame_bytes_max: 9216, elide_icrc: false }
    }

    fn packet(body: Body, payload: Payload) -> Packet {
        let net = Network {
            src: Address { mac: 0x0200_0000_0001, ip: 0x0a01_0001 },
            dst: Address { mac: 0x0200_0000_0002, ip: 0xffff_fffe },
            is_ipv6: false,
            dscp: 0x2a,
            ecn: 3,
            hop_limit: 64,
            sport: 0xc123,
        };
        let (pkey, dest, pseq) = (Pkey::new(0xffff), Qpn::new(0xab_cdef), Psn::new(0x12_3456));
        let (ack_req, rtx, eob) = (true, false, true);
        let (path, plane, epoch, stream, tx_ts) = (200, 9, 14, 0xfedc, Ticks(0x8765_4321));
        Packet { net, pkey, dest, ack_req, rtx, eob, pseq, path, plane, epoch, stream, tx_ts, body, payload }
    }

    /// Makes a packet of what the usual way hands on.
    struct Collect<'a>(&'a mut Option<Packet>);

    impl Collect<'_> {
        fn put(self, label: &Label, body: Body, payload: Payload) {
            *self.0 = Some(Self::packet(label, body, payload));
        }

        fn packet(label: &Label, body: Body, payload: Payload) -> Packet {
            let net = Network { ecn: label.ecn as u8, ..Network::default() };
            let (pkey, dest, pseq, tx_ts) = (label.pkey(), label.dest(), label.pseq(), label.tx_ts());
            let (ack_req, rtx, eob) = (label.ack_req(), label.rtx(), label.eob());
            let (path, plane, epoch, stream) = (label.path(), label.plane(), label.epoch(), label.stream());
            Packet { net, pkey, dest, ack_req, rtx, eob, pseq, path, plane, epoch, stream, tx_ts, body, payload }
        }
    }

    impl Usual for Collect<'_> {
        fn write(self, label: &Label, part: &WritePart, payload: &Payload) {
            self.put(label, Body::Write(part.message(), part.remote), payload.clone());
        }

        fn ack(self, label: &Label, ack: &Ack) {
            self.put(label, Body::Ack(*ack), Payload::EMPTY);
        }
    }

    fn usual_of(frame: &Frame, filter: &PortFilter) -> Option<Packet> {
        let mut packet = None;
        let label = check_usual(frame.as_parts(), filter)?;
        let is_taken = take_usual(frame.as_parts(), &label, Collect(&mut packet)).is_some();
        assert_eq!(is_taken, packet.is_some());
        packet
    }

    fn write(m: Message) -> Body {
        Body::Write(m, Remote { va: u64::MAX - 5, rkey: Rkey::new(0x8000_0001), dma_len: 77 })
    }

    #[test]
    fn the_usual_way_reads_what_the_general_way_reads() {
        let message = Message { first: true, se: true, mseq: Msn::new(0xff_fffe), ..Message::default() };
        let last = Message { last: true, fence: true, rsn: Rsn::new(0x80_0000), has_inv: true, ..Message::default() };
        let axth: [u8; Axth::LEN] = core::array::from_fn(|i| if i == 0 { 0x7a } else { 0x91 + i as u8 });
        let cases = [
            packet(write(message), Payload::Virtual(4096)),
            packet(write(last), Payload::from_bytes(&[1, 2, 3, 4, 5])),
            packet(write(last), Payload::EMPTY),
            packet(Body::Ack(ack_of(&axth, Bitmap::EMPTY, None)), Payload::EMPTY),
            packet(Body::Ack(ack_of(&[0; Axth::LEN], Bitmap::EMPTY, None)), Payload::EMPTY),
        ];
        for elide_icrc in [false, true] {
            let filter = PortFilter { elide_icrc, ..filter() };
            for p in &cases {
                let frame = emit(p.clone(), &EmitConfig { udp_dport: 4791, elide_icrc });
                let usual = usual_of(&frame, &filter).unwrap_or_else(|| panic!("{p:?}"));
                let mut general = parse(&frame, &filter).expect("a good frame");
                assert_eq!(general.net.ecn, 3);
                general.net = Network { ecn: 3, ..Network::default() };
                assert_eq!(usual, general);
                let label = general.label();
                let again = Collect::packet(&label, general.body.clone(), general.payload.clone());
                assert_eq!(again, general, "the label of a packet says what the packet does");
            }
        }
    }

    #[test]
    fn a_frame_that_is_used_again_keeps_nothing_of_what_it_was() {
        let mut sack = Bitmap::EMPTY;
        sack.set(200);
        let message = Message { last: true, has_imm: true, imm: Some(7), ..Message::default() };
        let bodies = [
            Body::Send(message, BufferPart { offset: 1, len: 6 }),
            Body::Ack(ack_of(&[0; Axth::LEN], sack, Some((3, 0)))),
            Body::ProbeReq { snd_nxt: Psn::new(0), cookie: 0 },
            write(Message::default()),
        ];
        let cfg = EmitConfig { udp_dport: 4791, elide_icrc: false };
        for (body, is_ipv6) in bodies.iter().flat_map(|b| [(b, false), (b, true)]) {
            let has_payload = matches!(body, Body::Send(..) | Body::Write(..));
            let payload = if has_payload { Payload::from_bytes(&[9; 5]) } else { Payload::EMPTY };
            let mut p = packet(body.clone(), payload);
            p.net.is_ipv6 = is_ipv6;
            let mut used = Frame::new(&[0xff; HEADER_BYTES_MAX], Payload::Virtual(9), &[0xff; 8]);
            super::super::emit::emit_packet(p.clone(), &cfg, &mut used);
            assert_eq!(used.to_bytes(), emit(p, &cfg).to_bytes(), "{body:?}");
        }
    }

    #[test]
    fn the_usual_way_takes_no_frame_with_a_wrong_bit_that_the_general_way_drops() {
        let m = Message { first: true, ..Message::default() };
        let frame = emit(packet(write(m), Payload::Virtual(64)), &EmitConfig { udp_dport: 4791, elide_icrc: true });
        let filter = PortFilter { elide_icrc: true, ..filter() };
        for bit in 0..8 * frame.header().len() {
            let mut bad = frame.clone();
            bad.header_mut()[bit / 8] ^= 0x80 >> (bit % 8);
            let (usual, general) = (usual_of(&bad, &filter), parse(&bad, &filter));
            assert!(usual.is_none() || general.is_ok(), "bit {bit}: {general:?}");
            if let (Some(usual), Ok(mut general)) = (usual, general) {
                general.net = Network { ecn: general.net.ecn, ..Network::default() };
                assert_eq!(usual, general, "bit {bit}");
            }
        }
    }
}
