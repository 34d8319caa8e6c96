//! Packets as a peer makes and reads them: every header a value of its table, laid out by the parse graph.
//!
//! [`Packet::to_bytes`] makes a right frame: lengths, checksums, pad and ICRC. What a case wants wrong it changes in the
//! bytes ([`Bytes`]). [`Packet::parse`] is as strict as the text is with senders, so that every frame of the card that a
//! case looks at is checked whole.

use crate::failure::{check, equal, Failure, Outcome};
use crate::setup::Address;
use nic_spec::consts::{HOP_LIMIT, ICRC_BYTES, PKEY_DEFAULT, TVER, UDP_DPORT, UDP_SPORT_MIN};
use nic_spec::num::{Dscp, Epoch, HintSeq, Msn, PathId, Pkey, Plane, Psn, Qpn, Rkey, Rsn, RsnLimit, StreamId};
use nic_spec::wire::icrc::icrc;
use nic_spec::wire::opcode::Body;
use nic_spec::wire::{
    Atag, AtomicAckEth, AtomicEth, Axth, Bth, Bxth, Condition, Eth, Header, Ieth, ImmDt, Ipv4, Ipv6, Mxth, NakReason,
    Nxth, Opcode, Pbth, Pcth, Psth, Pxth, Reth, Rrth, Sack, Tmth, Udp, Vlan, ECN_CE, ECN_ECT0, ETHERTYPE_IPV4,
    ETHERTYPE_IPV6, ETHERTYPE_VLAN, ETHERTYPE_VLAN_SERVICE, IP_PROTOCOL_UDP,
};
use std::collections::BTreeMap;
use std::fmt;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Sender's address.
    pub src: Address,
    /// Receiver's address.
    pub dst: Address,
    /// VLAN ids, outermost first.
    pub vlans: Vec<u16>,
    /// IPv6 rather than IPv4.
    pub is_ipv6: bool,
    /// Code point.
    pub dscp: u8,
    /// Congestion field.
    pub ecn: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// UDP source port.
    pub sport: u16,
    /// UDP destination port.
    pub dport: u16,
    /// Base transport header; its opcode and pad count are set on the way to bytes unless they were changed.
    pub bth: Bth<[u8; Bth::LEN]>,
    /// Path header.
    pub pxth: Pxth<[u8; Pxth::LEN]>,
    /// Chain of headers to follow.
    pub opcode: Opcode,
    /// Extension headers by kind; those that the chain asks for and that are not here are zero.
    pub headers: BTreeMap<Header, Vec<u8>>,
    /// Payload, or other content.
    pub payload: Vec<u8>,
}

macro_rules! headers {
    ($($get:ident $set:ident $header:ident;)+) => {
        impl Packet {
            $(
                /// The header, if the packet has it.
                pub fn $get(&self) -> Option<$header<&[u8]>> {
                    self.headers.get(&Header::$header).map(|h| $header(h.as_slice()))
                }

                /// Changes the header; it comes into being as zeros.
                #[must_use]
                pub fn $set<R>(mut self, change: impl FnOnce(&mut $header<&mut [u8]>) -> R) -> Self {
                    let bytes = self.headers.entry(Header::$header).or_insert_with(|| vec![0; $header::LEN]);
                    change(&mut $header(bytes.as_mut_slice()));
                    self
                }
            )+
        }
    };
}

headers! {
    mxth with_mxth Mxth;
    reth with_reth Reth;
    bxth with_bxth Bxth;
    tmth with_tmth Tmth;
    rrth with_rrth Rrth;
    immdt with_immdt ImmDt;
    ieth with_ieth Ieth;
    atomiceth with_atomiceth AtomicEth;
    atag with_atag Atag;
    atomicack with_atomicack AtomicAckEth;
    axth with_axth Axth;
    sack_header with_sack_header Sack;
    nxth with_nxth Nxth;
    pbth with_pbth Pbth;
    pcth with_pcth Pcth;
    psth with_psth Psth;
}

/// A value of BTH or PXTH or of the network layer that is set by a word of its own.
macro_rules! shortcuts {
    ($($(#[doc = $doc:literal])+ $name:ident($($arg:ident: $ty:ty)?) = |$p:ident| $set:expr;)+) => {
        impl Packet {$(
            $(#[doc = $doc])+
            #[must_use]
            pub fn $name(self $(, $arg: $ty)?) -> Self {
                let mut $p = self;
                $set;
                $p
            }
        )+}
    };
}

shortcuts! {
    /// Sequence number.
    pseq(n: u32) = |p| p.bth.set_pseq(Psn::new(n));
    /// Asks for an acknowledgement.
    ack_req() = |p| p.bth.set_ack_req(true);
    /// Nothing follows.
    eob() = |p| p.bth.set_eob(true);
    /// Retransmission.
    rtx() = |p| p.bth.set_rtx(true);
    /// Path.
    path(n: u8) = |p| p.pxth.set_path_id(PathId::new(n));
    /// Plane.
    plane(n: u8) = |p| p.pxth.set_plane(Plane::new(n));
    /// Epoch.
    epoch(n: u8) = |p| p.pxth.set_epoch(Epoch::new(n));
    /// Stream.
    stream(n: u16) = |p| p.pxth.set_stream_id(StreamId::new(n));
    /// Sender's clock.
    ts(n: u32) = |p| p.pxth.set_tx_ts(n);
    /// Marked.
    ce() = |p| p.ecn = ECN_CE;
    /// Number of the message.
    mseq(n: u32) = |p| p = p.with_mxth(|h| _ = h.set_mseq(Msn::new(n)));
    /// Ordinal of the receive.
    rsn(n: u32) = |p| p = p.with_mxth(|h| _ = h.set_rsn(Rsn::new(n)));
    /// First packet of a message and not its last.
    first() = |p| p = p.with_mxth(|h| _ = h.set_first(true).set_last(false));
    /// Neither first nor last.
    middle() = |p| p = p.with_mxth(|h| _ = h.set_first(false).set_last(false));
    /// Last packet of a message and not its first.
    last() = |p| p = p.with_mxth(|h| _ = h.set_first(false).set_last(true));
    /// The message carries immediate data, which stand in its last packet.
    imm(n: u32) = |p| p = p.with_mxth(|h| _ = h.set_imm(true)).with_immdt(|h| _ = h.set_imm(n));
    /// The message invalidates a key, which stands in its last packet.
    inv(key: u32) = |p| p = p.with_mxth(|h| _ = h.set_inv(true)).with_ieth(|h| _ = h.set_rkey(Rkey::new(key)));
    /// The receive is found by match bits.
    tag(bits: u64) = |p| p = p.with_mxth(|h| _ = h.set_tag(true)).with_tmth(|h| _ = h.set_match_bits(bits));
    /// Complete after all earlier messages.
    fence() = |p| p = p.with_mxth(|h| _ = h.set_fence(true));
    /// Address of the first byte.
    va(n: u64) = |p| p = p.with_reth(|h| _ = h.set_va(n));
    /// Key.
    rkey(n: u32) = |p| p = p.with_reth(|h| _ = h.set_rkey(Rkey::new(n)));
    /// Length of the whole message of a WRITE, READ or FLUSH.
    dma_len(n: u32) = |p| p = p.with_reth(|h| _ = h.set_dma_len(n));
    /// Offset of a SEND's packet.
    offset(n: u32) = |p| p = p.with_bxth(|h| _ = h.set_msg_offset(n));
    /// Length of the whole message of a SEND.
    msg_len(n: u32) = |p| p = p.with_bxth(|h| _ = h.set_msg_len(n));
    /// Path acknowledged.
    apath(n: u8) = |p| p = p.with_axth(|h| _ = h.set_apath(PathId::new(n)));
    /// Epoch of the trigger that an acknowledgement states.
    ack_epoch(n: u8) = |p| p = p.with_axth(|h| _ = h.set_epoch(Epoch::new(n)));
    /// Everything up to this is received.
    cum(n: u32) = |p| p = p.with_axth(|h| _ = h.set_cum_pseq(Psn::new(n)));
    /// Trigger of an acknowledgement.
    trig(n: u32) = |p| p = p.with_axth(|h| _ = h.set_trig_pseq(Psn::new(n)));
    /// Clock of the trigger.
    echo(n: u32) = |p| p = p.with_axth(|h| _ = h.set_ts_echo(n));
    /// Residency at the receiver, units of 16 ns.
    hold(n: u16) = |p| p = p.with_axth(|h| _ = h.set_hold(n));
    /// Marks counted.
    ce_cnt(n: u16) = |p| p = p.with_axth(|h| _ = h.set_ce_cnt(n));
    /// The trigger was a duplicate.
    dup() = |p| p = p.with_axth(|h| _ = h.set_dup(true));
}

impl Packet {
    /// An empty packet of this kind from `src` to connection `dest` at `dst`.
    pub fn new(opcode: Opcode, src: Address, dst: Address, is_ipv6: bool, dest: Qpn) -> Self {
        let mut bth = Bth::zeroed();
        bth.set_opcode(opcode.code()).set_tver(TVER).set_pkey(Pkey::new(PKEY_DEFAULT)).set_dest_qpn(dest);
        Self {
            src,
            dst,
            vlans: Vec::new(),
            is_ipv6,
            dscp: 0,
            ecn: ECN_ECT0,
            hop_limit: HOP_LIMIT,
            sport: UDP_SPORT_MIN,
            dport: UDP_DPORT,
            bth,
            pxth: Pxth::zeroed(),
            opcode,
            headers: BTreeMap::new(),
            payload: Vec::new(),
        }
    }

    /// With this payload.
    #[must_use]
    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload = bytes.to_vec();
        self
    }

    /// With these VLAN tags, outermost first.
    #[must_use]
    pub fn vlans(mut self, ids: &[u16]) -> Self {
        self.vlans = ids.to_vec();
        self
    }

    /// An acknowledgement whose bitmap says that cum + 1 + i is received for each of these i.
    #[must_use]
    pub fn sack(self, received: &[u32]) -> Self {
        let packet = self.with_axth(|h| _ = h.set_bm(true));
        packet.with_sack_header(|h| received.iter().for_each(|i| _ = h.mark(*i as usize)))
    }

    /// An acknowledgement with a rate hint.
    #[must_use]
    pub fn hint(self, seq: u8, mbps: u32) -> Self {
        self.with_axth(|h| _ = h.set_hint(true).set_hint_seq(HintSeq::new(seq)).set_rate_hint(mbps))
    }

    /// An acknowledgement that grants receives of `stream` before ordinal `limit`.
    #[must_use]
    pub fn credit(self, stream: u16, limit: u16) -> Self {
        let (stream, limit) = (StreamId::new(stream), RsnLimit::new(limit));
        self.with_axth(|h| _ = h.set_credit(true).set_cstream(stream).set_rq_limit(limit))
    }

    /// An acknowledgement that refuses its trigger.
    #[must_use]
    pub fn nak(self, reason: NakReason) -> Self {
        let packet = self.with_axth(|h| _ = h.set_nak(true).set_syndrome(reason.syndrome()));
        packet.with_nxth(|h| _ = h.set_reason(reason.code()))
    }

    fn flag_is_set(&self, when: &Condition) -> bool {
        when.fields().all(|f| {
            let byte = self.headers.get(&when.header).map_or(0, |h| h[f.bit_offset / 8]);
            byte >> (7 - f.bit_offset % 8) & 1 == 1
        })
    }

    /// The frame, without FCS.
    pub fn to_bytes(&self) -> Vec<u8> {
        let pad = self.payload.len().wrapping_neg() & 3;
        let mut bth = self.bth;
        if self.opcode.info().body != Body::None {
            bth.set_pad_count(pad as u8);
        }
        let mut content = [&bth.0[..], &self.pxth.0].concat();
        for step in self.opcode.info().steps {
            if step.when.as_ref().is_none_or(|when| self.flag_is_set(when)) {
                let zeros = vec![0; step.header.layout().len_bytes];
                content.extend(self.headers.get(&step.header).unwrap_or(&zeros));
            }
        }
        content.extend(&self.payload);
        content.resize(content.len() + pad + ICRC_BYTES, 0);
        let mut frame = self.link_layer();
        let ip_at = frame.len();
        let udp_len = (Udp::LEN + content.len()) as u16;
        frame.extend(self.ip_header(udp_len));
        let mut udp = Udp::zeroed();
        udp.set_src_port(self.sport).set_dst_port(self.dport).set_len(udp_len);
        frame.extend(udp.0);
        frame.extend(content);
        let mut bytes = Bytes { bytes: frame, ip_at };
        bytes.fix_icrc();
        bytes.bytes
    }

    fn link_layer(&self) -> Vec<u8> {
        let ip = if self.is_ipv6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        let types: Vec<u16> = self.vlans.iter().map(|_| ETHERTYPE_VLAN).chain([ip]).collect();
        let mut eth = Eth::zeroed();
        eth.set_dst_mac(self.dst.mac).set_src_mac(self.src.mac).set_ethertype(types[0]);
        let mut frame = eth.0.to_vec();
        for (vid, next) in self.vlans.iter().zip(&types[1..]) {
            let mut tag = Vlan::zeroed();
            tag.set_vid(*vid).set_ethertype(*next);
            frame.extend(tag.0);
        }
        frame
    }

    fn ip_header(&self, udp_len: u16) -> Vec<u8> {
        if self.is_ipv6 {
            let mut ip = Ipv6::zeroed();
            ip.set_version(6).set_dscp(Dscp::new(self.dscp)).set_ecn(self.ecn).set_payload_len(udp_len);
            ip.set_next_header(IP_PROTOCOL_UDP).set_hop_limit(self.hop_limit);
            ip.set_src_ip(self.src.ip).set_dst_ip(self.dst.ip);
            return ip.0.to_vec();
        }
        let mut ip = Ipv4::zeroed();
        ip.set_version(4).set_ihl(5).set_dscp(Dscp::new(self.dscp)).set_ecn(self.ecn).set_df(true);
        ip.set_total_len(udp_len + Ipv4::LEN as u16).set_ttl(self.hop_limit).set_protocol(IP_PROTOCOL_UDP);
        ip.set_src_ip(self.src.ip as u32).set_dst_ip(self.dst.ip as u32).fill_checksum();
        ip.0.to_vec()
    }

    /// The frame, to be spoilt.
    pub fn spoil(&self) -> Bytes {
        Bytes { bytes: self.to_bytes(), ip_at: Eth::LEN + Vlan::LEN * self.vlans.len() }
    }

    /// Reads a frame of the card. Everything that a sender must observe in every frame is checked.
    pub fn parse(bytes: &[u8]) -> Outcome<Self> {
        let mut r = Reader { bytes, at: 0 };
        let eth = Eth(r.take::<{ Eth::LEN }>("Ethernet")?);
        let (mut ethertype, mut vlans) = (eth.ethertype(), Vec::new());
        while matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_VLAN_SERVICE) {
            let tag = Vlan(r.take::<{ Vlan::LEN }>("VLAN")?);
            (ethertype, _) = (tag.ethertype(), vlans.push(tag.vid()));
        }
        let ip_at = r.at;
        let is_ipv6 = ethertype == ETHERTYPE_IPV6;
        check(is_ipv6 || ethertype == ETHERTYPE_IPV4, format!("W-004: Ethernet type {ethertype:#x}"))?;
        let mut p = Self::new(Opcode::Write, Address::default(), Address::default(), is_ipv6, Qpn::new(0));
        (p.dst.mac, p.src.mac, p.vlans) = (eth.dst_mac(), eth.src_mac(), vlans);
        let end = ip_at + p.read_ip(&mut r)?;
        check(end <= bytes.len(), "W-008: the frame ends before its IP packet")?;
        check(bytes[end..].iter().all(|b| *b == 0), "the Ethernet padding is not zero")?;
        let udp = Udp(r.take::<{ Udp::LEN }>("UDP")?);
        equal(usize::from(udp.len()), end - r.at + Udp::LEN, "W-007: UDP length")?;
        check(is_ipv6 || udp.checksum() == 0, "W-006: a UDP checksum over IPv4")?;
        (p.sport, p.dport) = (udp.src_port(), udp.dst_port());
        let ip_packet = &bytes[ip_at..end];
        let sum = icrc(&ip_packet[..ip_packet.len() - ICRC_BYTES]).map_err(|e| Failure::new(format!("ICRC: {e:?}")))?;
        equal(&ip_packet[ip_packet.len() - ICRC_BYTES..], &sum.to_le_bytes()[..], "W-018: ICRC")?;
        p.read_transport(&mut r, end - ICRC_BYTES)?;
        Ok(p)
    }

    /// The IP header; returns the length of the IP packet.
    fn read_ip(&mut self, r: &mut Reader<'_>) -> Outcome<usize> {
        if self.is_ipv6 {
            let ip = Ipv6(r.take::<{ Ipv6::LEN }>("IPv6")?);
            equal(ip.flow_label(), 0, "W-023: flow label")?;
            ip.check().map_err(|c| Failure::new(format!("W-004: {c}")))?;
            (self.dscp, self.ecn, self.hop_limit) = (ip.dscp().get(), ip.ecn(), ip.hop_limit());
            (self.src.ip, self.dst.ip) = (ip.src_ip(), ip.dst_ip());
            return Ok(Ipv6::LEN + usize::from(ip.payload_len()));
        }
        let ip = Ipv4(r.take::<{ Ipv4::LEN }>("IPv4")?);
        ip.check().map_err(|c| Failure::new(format!("W-004: {c}")))?;
        check(ip.df() && ip.ident() == 0 && !ip.resv1(), "W-004: DF, identification or the reserved flag")?;
        (self.dscp, self.ecn, self.hop_limit) = (ip.dscp().get(), ip.ecn(), ip.ttl());
        (self.src.ip, self.dst.ip) = (ip.src_ip().into(), ip.dst_ip().into());
        Ok(usize::from(ip.total_len()))
    }

    fn read_transport(&mut self, r: &mut Reader<'_>, end: usize) -> Outcome {
        self.bth = Bth(r.take("BTH")?);
        self.pxth = Pxth(r.take("PXTH")?);
        equal(self.bth.tver(), TVER, "W-011: TVer")?;
        let (m, fecn, becn) = (self.bth.m(), self.bth.fecn(), self.bth.becn());
        let bth_reserved = u32::from(self.bth.resv6()) + u32::from(self.bth.resv5());
        check(!m && !fecn && !becn && bth_reserved == 0, "W-002: reserved bits of BTH")?;
        self.opcode = Opcode::try_from(self.bth.opcode()).map_err(|e| Failure::new(format!("W-012: {e}")))?;
        let info = self.opcode.info();
        for step in info.steps {
            if step.when.as_ref().is_some_and(|when| !self.flag_is_set(when)) {
                continue;
            }
            let layout = step.header.layout();
            let bytes = r.slice(layout.len_bytes, layout.name)?.to_vec();
            for f in layout.fields.iter().filter(|f| f.is_reserved() && f.bits <= 64) {
                let value = nic_spec::layout::get_bits(&bytes, f.order, f.bit_offset, f.bits);
                equal(value, 0, format!("W-002: {}.{}", layout.name, f.name))?;
            }
            self.headers.insert(step.header, bytes);
        }
        let content =
            r.slice(end.checked_sub(r.at).ok_or_else(|| Failure::new("the headers end in the ICRC"))?, "body")?;
        let pad = usize::from(self.bth.pad_count());
        check(info.body != Body::None || content.is_empty(), "W-017: content where there is none")?;
        check(content.len() % 4 == 0, "W-017: the packet is no multiple of four bytes")?;
        let len = content.len().checked_sub(pad).ok_or_else(|| Failure::new("W-017: PadCnt"))?;
        check(content[len..].iter().all(|b| *b == 0), "W-017: pad bytes are not zero")?;
        self.payload = content[..len].to_vec();
        if !info.is_sequenced {
            equal((self.bth.pseq().get(), self.pxth.stream_id().get()), (0, 0), "W-014: PSEQ and stream")?;
        }
        Ok(())
    }
}

/// What a failure says of a packet: one line, the payload by its length.
impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, plane, epoch) = (self.pxth.path_id().get(), self.pxth.plane().get(), self.pxth.epoch().get());
        write!(f, "{} path {path} plane {plane} epoch {epoch}", self.opcode.info().name)?;
        if self.opcode.info().is_sequenced {
            write!(f, " stream {} PSEQ {}", self.pxth.stream_id().get(), self.bth.pseq())?;
        }
        for (is_set, name) in [(self.bth.rtx(), " RTX"), (self.bth.ack_req(), " A"), (self.bth.eob(), " EOB")] {
            f.write_str(if is_set { name } else { "" })?;
        }
        for (header, bytes) in &self.headers {
            write!(f, ", {header:?} {bytes:02x?}")?;
        }
        write!(f, ", {} bytes", self.payload.len())
    }
}

/// Reads a frame piece by piece.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn slice(&mut self, len: usize, what: &str) -> Outcome<&'a [u8]> {
        let piece = self.bytes.get(self.at..self.at + len);
        self.at += len;
        piece.ok_or_else(|| Failure::new(format!("the frame ends within {what}")))
    }

    fn take<const N: usize>(&mut self, what: &str) -> Outcome<[u8; N]> {
        self.slice(N, what).map(|s| *s.first_chunk().expect("a slice of N bytes"))
    }
}

/// A frame as bytes, to be made wrong on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The frame.
    pub bytes: Vec<u8>,
    /// Where its IP header begins.
    pub ip_at: usize,
}

impl Bytes {
    /// Changes the IPv4 header and makes its checksum right again.
    #[must_use]
    pub fn ipv4<R>(mut self, change: impl FnOnce(&mut Ipv4<&mut [u8]>) -> R) -> Self {
        let mut ip = Ipv4(&mut self.bytes[self.ip_at..self.ip_at + Ipv4::LEN]);
        change(&mut ip);
        ip.fill_checksum();
        self
    }

    /// Changes the IPv6 header.
    #[must_use]
    pub fn ipv6<R>(mut self, change: impl FnOnce(&mut Ipv6<&mut [u8]>) -> R) -> Self {
        change(&mut Ipv6(&mut self.bytes[self.ip_at..self.ip_at + Ipv6::LEN]));
        self
    }

    /// Where UDP begins.
    pub fn udp_at(&self) -> usize {
        self.ip_at + if self.bytes[self.ip_at] >> 4 == 6 { Ipv6::LEN } else { Ipv4::LEN }
    }

    /// Changes the UDP header.
    #[must_use]
    pub fn udp<R>(mut self, change: impl FnOnce(&mut Udp<&mut [u8]>) -> R) -> Self {
        let at = self.udp_at();
        change(&mut Udp(&mut self.bytes[at..at + Udp::LEN]));
        self
    }

    /// Changes the base transport header.
    #[must_use]
    pub fn bth<R>(mut self, change: impl FnOnce(&mut Bth<&mut [u8]>) -> R) -> Self {
        let at = self.udp_at() + Udp::LEN;
        change(&mut Bth(&mut self.bytes[at..at + Bth::LEN]));
        self
    }

    /// Changes the bytes.
    #[must_use]
    pub fn edit<R>(mut self, change: impl FnOnce(&mut Vec<u8>) -> R) -> Self {
        change(&mut self.bytes);
        self
    }

    /// Makes the ICRC right for a frame that ends with it.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.fix_icrc();
        self
    }

    fn fix_icrc(&mut self) {
        let at = self.bytes.len() - ICRC_BYTES;
        let sum = icrc(&self.bytes[self.ip_at..at]).expect("the frame has whole IP, UDP and BTH headers");
        self.bytes[at..].copy_from_slice(&sum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRC: Address = Address { mac: 0x0200_0000_0001, ip: 0x0a01_0001 };
    const DST: Address = Address { mac: 0x0200_0000_0002, ip: 0x0a01_0002 };

    /// The golden WRITE, byte for byte.
    #[test]
    fn the_golden_write_is_made_and_read() {
        let mut p = Packet::new(Opcode::Write, SRC, DST, false, Qpn::new(0x123));
        p.sport = 0xc003;
        let p = p.path(3).plane(1).stream(5).ts(0x1122_3344).pseq(7).ack_req();
        let p = p.with_mxth(|h| _ = h.set_first(true).set_last(true)).mseq(9);
        let p = p.va(0x7f00_1234_0000).rkey(0xdead_beef).dma_len(8).payload(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let want = "0200000000020200000000010800\
            4502005400004000401126930a0100010a010002c00312b700400000e001ffff0000012380000007031000051122334\
            4c00000090000000000007f0012340000deadbeef00000008000102030405060785200b4e";
        let hex: String = p.to_bytes().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, want);
        assert_eq!(Packet::parse(&p.to_bytes()), Ok(p));
    }

    #[test]
    fn optional_headers_follow_their_flags_and_come_back() {
        let p = Packet::new(Opcode::Send, SRC, DST, true, Qpn::new(1)).msg_len(3).tag(9).imm(7).payload(b"abc");
        assert_eq!(Packet::parse(&p.clone().first().to_bytes()).map(|p| p.immdt().is_some()), Ok(false));
        let last = Packet::parse(&p.last().to_bytes()).expect("a right packet");
        assert_eq!(last.immdt().map(|h| h.imm()), Some(7));
        assert_eq!((last.tmth().map(|h| h.match_bits()), last.bth.pad_count()), (Some(9), 1));
    }

    #[test]
    fn a_frame_with_a_fault_is_not_read() {
        let good = Packet::new(Opcode::Ack, SRC, DST, false, Qpn::new(1)).cum(4).sack(&[3]);
        assert!(Packet::parse(&good.to_bytes()).is_ok());
        assert!(Packet::parse(&good.spoil().edit(|b| b[60] ^= 1).bytes).is_err(), "ICRC");
        assert!(Packet::parse(&good.spoil().bth(|b| _ = b.set_resv5(1)).sealed().bytes).is_err(), "reserved");
        assert!(Packet::parse(&good.spoil().ipv4(|ip| _ = ip.set_ident(1)).sealed().bytes).is_err(), "identification");
    }
}
