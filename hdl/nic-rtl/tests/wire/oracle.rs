//! What becomes of a frame: read front to back in software, by the specification's own tables and checks.

use super::number;
use nic_spec::{
    consts,
    csr::stats::Counter,
    wire::{icrc, opcode::Body, *},
};
use std::collections::HashMap;

/// Settings of the port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// MAC address.
    pub mac: u64,
    /// Every address is accepted.
    pub is_promiscuous: bool,
    /// UDP destination port.
    pub dport: u16,
}

/// What a good frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// `header_field` of every header that is there, least significant word first; also `sport`, `ecn`.
    pub fields: HashMap<String, Vec<u64>>,
    /// Payload without pad.
    pub payload: Vec<u8>,
}

/// Longest frame whose length the card can tell. Bytes.
const LEN_MAX: usize = 16383;
/// Shortest frame on Ethernet without FCS. Bytes.
const PADDED: usize = 60;

/// The packet in the frame, or why it is dropped.
pub fn judge(frame: &[u8], is_bad: bool, port: &Port) -> Result<Packet, Counter> {
    // Headers are read as if zeros followed the frame; no decision rests on them, since lengths are checked first.
    let mut padded = frame.to_vec();
    padded.resize(frame.len().max(256), 0);
    let (eth, mut rest) = Eth::split(&padded).unwrap();
    let (mut ethertype, mut tags) = (eth.ethertype(), 0);
    while matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_VLAN_SERVICE) && tags <= consts::VLAN_TAGS_MAX {
        let (tag, behind) = Vlan::split(rest).unwrap();
        (ethertype, rest, tags) = (tag.ethertype(), behind, tags + 1);
    }
    let ip_len = match ethertype {
        ETHERTYPE_IPV4 => Some(Ipv4::LEN),
        ETHERTYPE_IPV6 => Some(Ipv6::LEN),
        _ => None,
    }
    .filter(|_| tags <= consts::VLAN_TAGS_MAX);
    let ip_at = Eth::LEN + tags * Vlan::LEN;
    let headers_len = ip_len.map_or(Eth::LEN, |len| ip_at + len);
    let refuse = |when: bool, why: Counter| if when { Err(why) } else { Ok(()) };
    refuse(is_bad, Counter::RxMacError)?;
    refuse(frame.len() > LEN_MAX, Counter::RxTooLong)?;
    refuse(frame.len() < headers_len, Counter::RxTruncated)?;
    refuse(eth.dst_mac() != port.mac && !port.is_promiscuous, Counter::RxOtherMac)?;
    refuse(tags > consts::VLAN_TAGS_MAX, Counter::RxTooManyTags)?;
    let ip_len = ip_len.ok_or(Counter::RxNotIp)?;
    let (content_len, ecn) = if ip_len == Ipv4::LEN {
        let ip = Ipv4(rest);
        ip.check()?;
        (i64::from(ip.total_len()) - Ipv4::LEN as i64, ip.ecn())
    } else {
        let ip = Ipv6(rest);
        ip.check()?;
        (i64::from(ip.payload_len()), ip.ecn())
    };
    let ip_end = headers_len as i64 + content_len;
    refuse((frame.len() as i64) < ip_end, Counter::RxTruncated)?;
    refuse(frame.len() as i64 > ip_end && frame.len() > PADDED, Counter::RxTooLong)?;
    refuse(content_len < Udp::LEN as i64, Counter::RxTruncated)?;
    let (udp, rest) = Udp::split(&rest[ip_len..]).unwrap();
    refuse(udp.dst_port() != port.dport, Counter::RxOtherUdpPort)?;
    refuse(i64::from(udp.len()) != content_len, Counter::RxBadUdpLen)?;
    let left = usize::from(udp.len()).checked_sub(Udp::LEN + Bth::LEN + Pxth::LEN + consts::ICRC_BYTES);
    let mut left = left.ok_or(Counter::RxTruncated)?;
    let (bth, behind) = Bth::split(rest).unwrap();
    refuse(bth.tver() != consts::TVER, Counter::RxBadTver)?;
    let opcode = Opcode::try_from(bth.opcode()).map_err(|_| Counter::RxUnknownOpcode)?;
    refuse(!matches!(opcode, Opcode::Write | Opcode::Ack), Counter::RxUnsupportedOpcode)?;
    refuse(!icrc::is_valid(&frame[ip_at..ip_end as usize]).unwrap(), Counter::RxBadIcrc)?;

    let mut fields = HashMap::new();
    fields.insert("sport".into(), vec![u64::from(udp.src_port())]);
    fields.insert("ecn".into(), vec![u64::from(ecn)]);
    let mut note = |name: &str, layout: &nic_spec::layout::Layout, bytes: &[u8]| {
        for f in layout.fields {
            fields.insert(format!("{name}_{}", f.name), number(bytes, f.bit_offset, f.bits));
        }
    };
    note("bth", &Bth::LAYOUT, rest);
    note("pxth", &Pxth::LAYOUT, behind);
    let mut rest = &behind[Pxth::LEN..];
    let mut seen: HashMap<Header, &[u8]> = HashMap::new();
    for step in opcode.info().steps {
        let is_there = step
            .when
            .as_ref()
            .is_none_or(|when| when.fields().all(|f| number(seen[&when.header], f.bit_offset, f.bits) == [1]));
        if is_there {
            let layout = step.header.layout();
            left = left.checked_sub(layout.len_bytes).ok_or(Counter::RxTruncated)?;
            note(&layout.name.to_lowercase(), layout, rest);
            seen.insert(step.header, rest);
            rest = &rest[layout.len_bytes..];
        }
    }
    let pad = usize::from(bth.pad_count());
    let has_payload = opcode.info().body == Body::Payload;
    refuse(left % 4 != 0 || left < pad || (!has_payload && left + pad != 0), Counter::RxBadLength)?;
    refuse(left - pad > consts::PMTU_BYTES_MAX, Counter::RxTooLong)?;
    let payload = rest[..left - pad].to_vec();
    fields.insert("payload_len".into(), vec![payload.len() as u64]);
    fields.insert("payload_beats".into(), vec![payload.len().div_ceil(64) as u64]);
    Ok(Packet { fields, payload })
}
