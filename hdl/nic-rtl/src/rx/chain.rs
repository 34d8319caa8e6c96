//! Where headers stand in a frame: every way through the parse graph that this card takes, computed from the tables.
//!
//! A frame is cut at its UDP header. Before it stands the *link part*, one [`Link`] for each number of VLAN tags and IP
//! version; from it on the *transport part*, one [`Chain`] for each opcode and set of optional headers. Positions within
//! a part are constants, so parser and header builder need no position in a register.

use nic_spec::{
    consts::{ICRC_BYTES, PMTU_BYTES_MAX, VLAN_TAGS_MAX},
    layout::{Field, Layout},
    wire::{opcode::Body, Bth, Condition, Eth, Header, Ipv4, Ipv6, Opcode, Pxth, Udp, Vlan},
};

/// Opcodes that this card implements.
pub const OPCODES: &[Opcode] = &[Opcode::Write, Opcode::Ack];

/// Bytes of a beat on the streams of the card.
pub const BEAT_BYTES: usize = 64;

/// One shape of the headers before UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Number of VLAN tags.
    pub tags: usize,
    /// IPv6 rather than IPv4.
    pub is_ipv6: bool,
}

impl Link {
    /// First byte of the IP header.
    pub const fn ip_offset(self) -> usize {
        Eth::LEN + self.tags * Vlan::LEN
    }

    /// Length of the IP header. Bytes.
    pub const fn ip_len(self) -> usize {
        if self.is_ipv6 {
            Ipv6::LEN
        } else {
            Ipv4::LEN
        }
    }

    /// First byte of the UDP header.
    pub const fn udp_offset(self) -> usize {
        self.ip_offset() + self.ip_len()
    }
}

/// The shapes with at most `tags_max` tags: IPv4 then IPv6 for each number of tags.
pub fn links(tags_max: usize) -> Vec<Link> {
    (0..=tags_max).flat_map(|tags| [false, true].map(|is_ipv6| Link { tags, is_ipv6 })).collect()
}

/// The shapes that a received frame may have.
pub fn rx_links() -> Vec<Link> {
    links(VLAN_TAGS_MAX)
}

/// First byte of BTH, from UDP on.
pub const BTH_OFFSET: usize = Udp::LEN;
/// First byte of PXTH, from UDP on.
pub const PXTH_OFFSET: usize = BTH_OFFSET + Bth::LEN;
/// First byte of the header behind PXTH, from UDP on.
pub const EXT_OFFSET: usize = PXTH_OFFSET + Pxth::LEN;

/// One way through the parse graph: an opcode with some of its optional headers.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The opcode.
    pub opcode: Opcode,
    /// Headers behind PXTH with their first byte, from UDP on.
    pub headers: Vec<(Header, usize)>,
    /// The opcode's conditions and whether each holds here.
    pub conditions: Vec<(Condition, bool)>,
    /// What follows the headers.
    pub body: Body,
}

impl Chain {
    /// Length from the first byte of UDP to the end of the last header. Bytes.
    pub fn len_bytes(&self) -> usize {
        self.headers.last().map_or(EXT_OFFSET, |(header, at)| at + header.layout().len_bytes)
    }

    /// True when payload may follow.
    pub fn has_payload(&self) -> bool {
        self.body == Body::Payload
    }

    /// First byte of a header, if the chain has it.
    pub fn offset(&self, header: Header) -> Option<usize> {
        self.headers.iter().find(|(h, _)| *h == header).map(|(_, at)| *at)
    }
}

/// Every chain of the implemented opcodes, in the order of [`OPCODES`] and of the conditions counted in binary.
///
/// # Panics
/// When the tables ask for what parser and builder cannot do: an unimplemented kind of content, a flag beyond the first
/// beat, a chain longer than two beats, payload that begins beyond the first beat.
pub fn chains() -> Vec<Chain> {
    OPCODES.iter().flat_map(|opcode| chains_of(*opcode)).collect()
}

fn chains_of(opcode: Opcode) -> Vec<Chain> {
    let info = opcode.info();
    assert!(info.body != Body::Opaque, "{} has content that this version does not define", info.name);
    let mut conditions: Vec<Condition> = vec![];
    for when in info.steps.iter().filter_map(|step| step.when) {
        if !conditions.contains(&when) {
            conditions.push(when);
        }
    }
    let with = |set: usize| {
        let conditions: Vec<(Condition, bool)> =
            conditions.iter().enumerate().map(|(k, c)| (*c, set >> k & 1 == 1)).collect();
        let holds = |c: &Condition| conditions.iter().any(|(d, is_set)| d == c && *is_set);
        let (mut at, mut headers) = (EXT_OFFSET, vec![]);
        for step in info.steps.iter().filter(|step| step.when.as_ref().is_none_or(holds)) {
            headers.push((step.header, at));
            at += step.header.layout().len_bytes;
        }
        let chain = Chain { opcode, headers, conditions, body: info.body };
        check(&chain, info.name);
        chain
    };
    (0..1 << conditions.len()).map(with).collect()
}

fn check(chain: &Chain, name: &str) {
    let len = chain.len_bytes();
    assert!(len <= 2 * BEAT_BYTES, "{name}: headers of {len} bytes from UDP on; the parser keeps two beats");
    assert!(!chain.has_payload() || len < BEAT_BYTES, "{name}: payload begins at byte {len}, beyond the first beat");
    for (condition, _) in &chain.conditions {
        let at = chain.offset(condition.header).expect("a condition's header is always there, as nic-spec tests");
        assert!(
            condition.fields().all(|f| 8 * at + f.bit_offset < 8 * BEAT_BYTES),
            "{name}: a flag beyond the first beat"
        );
    }
}

/// Places of one header over all chains: `(first byte from UDP on, indices of the chains that have it there)`.
pub fn places(chains: &[Chain], header: Header) -> Vec<(usize, Vec<usize>)> {
    let mut places: Vec<(usize, Vec<usize>)> = vec![];
    for (k, at) in chains.iter().enumerate().filter_map(|(k, c)| Some((k, c.offset(header)?))) {
        match places.iter_mut().find(|(other, _)| *other == at) {
            Some((_, list)) => list.push(k),
            None => places.push((at, vec![k])),
        }
    }
    places
}

/// The headers behind PXTH that some chain has, each once.
pub fn headers(chains: &[Chain]) -> Vec<Header> {
    let mut all: Vec<Header> = chains.iter().flat_map(|c| c.headers.iter().map(|(h, _)| *h)).collect();
    all.sort();
    all.dedup();
    all
}

/// Headers that stand at a fixed place in every packet from UDP on.
pub const FIXED: [(&Layout, usize); 3] = [(&Udp::LAYOUT, 0), (&Bth::LAYOUT, BTH_OFFSET), (&Pxth::LAYOUT, PXTH_OFFSET)];

/// Largest frame that can be good. Bytes.
pub fn frame_bytes_max() -> usize {
    let link = rx_links().into_iter().map(Link::udp_offset).max().unwrap_or(0);
    let of = |c: &Chain| c.len_bytes() + if c.has_payload() { PMTU_BYTES_MAX } else { 0 };
    link + chains().iter().map(of).max().unwrap_or(0) + ICRC_BYTES
}

/// Slices of a bus that begins with the bytes from UDP on, for a field of a header that begins at byte `at`.
pub fn slices(field: Field, at: usize) -> Vec<(usize, usize)> {
    field.lanes(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_six_links_end_within_the_first_beat() {
        let offsets: Vec<usize> = rx_links().into_iter().map(Link::udp_offset).collect();
        assert_eq!(offsets, [34, 54, 38, 58, 42, 62]);
    }

    #[test]
    fn a_write_has_two_chains_and_an_ack_four() {
        let all: Vec<(Opcode, usize)> = chains().iter().map(|c| (c.opcode, c.len_bytes())).collect();
        let (w, a) = (Opcode::Write, Opcode::Ack);
        assert_eq!(all, [(w, 52), (w, 56), (a, 56), (a, 88), (a, 60), (a, 92)]);
        assert_eq!(places(&chains(), Header::Nxth), [(56, vec![4]), (88, vec![5])]);
        assert_eq!(places(&chains(), Header::Sack), [(56, vec![3, 5])]);
    }

    #[test]
    fn the_largest_good_frame_is_an_immediate_write_over_tagged_ipv6() {
        assert_eq!(frame_bytes_max(), 62 + 56 + 8192 + 4);
    }
}
