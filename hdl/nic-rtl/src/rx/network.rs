//! Ethernet and IP headers of a frame: addresses, version, checksum, lengths.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `beats` | [`Beats`] | valid only | only first beats matter: all headers up to IP end within them |
//! | `mac`, `promiscuous` | 48, 1 | | the port's address, first byte most significant; accept every address |
//! | `facts` | [`NetworkFacts`] | | held from [`NETWORK_LATENCY`] cycles after a frame's first beat on |
//!
//! Latency [`NETWORK_LATENCY`] cycles; 1 beat per cycle. Reset clears the valid bits. State: registers. Conditions for
//! `rx_other_mac_count`, `rx_bad_ip_version_count`, `rx_ip_options_count`, `rx_bad_ip_checksum_count`,
//! `rx_ip_fragment_count`, `rx_ipv6_extension_count`, `rx_not_udp_count` come from here.

use super::chain::{rx_links, Link};
use super::front::Beats;
use super::timing::NETWORK_LATENCY;
use crate::prim::lanes::gather;
use nic_spec::{
    consts::VLAN_TAGS_MAX,
    layout::Layout,
    wire::{Eth, Ipv4, Ipv6, IPV6_EXTENSIONS, IP_PROTOCOL_UDP},
};
use rtl_graph::*;

bundle! {
    /// What the Ethernet and IP headers tell.
    pub struct NetworkFacts {
        fwd
        /// Bytes from the start of the frame to the end of the IP header, or of the Ethernet header when it is no IP.
        headers_len: 7,
        /// Bytes from the start of the frame to the end of the IP packet.
        ip_end: 18,
        /// Bytes behind the IP header, two's complement.
        ip_payload_len: 18,
        /// Explicit congestion notification.
        ecn: 2,
        /// The destination is another MAC address.
        other_mac: 1,
        /// The version contradicts the Ethernet type.
        bad_version: 1,
        /// IPv4 header length other than that without options.
        options: 1,
        /// IPv4 header checksum is wrong.
        bad_checksum: 1,
        /// Fragment of an IPv4 packet.
        fragment: 1,
        /// IPv6 extension header.
        extension: 1,
        /// Another protocol than UDP.
        not_udp: 1
    }
}

module! {
    /// Ethernet and IP headers.
    pub struct Network = "nic_rx_network" () {
        beats: in Beats,
        mac: in Uint(48),
        promiscuous: in Uint(1),
        facts: out NetworkFacts,
    } |b| {
        let links = rx_links();
        let of_shape = |want: &dyn Fn(&Link) -> bool| {
            let bits: Vec<S> = links.iter().zip(0..).filter(|(l, _)| want(l)).map(|(_, k)| beats.link.bit(k)).collect();
            b.or_tree(&bits)
        };
        // A constant chosen by the frame's shape, `other` when it is none.
        let by_shape = |value: &dyn Fn(&Link) -> usize, other: usize, width: u32| {
            let arms: Vec<(S, S)> =
                links.iter().zip(0..).map(|(l, k)| (beats.link.bit(k), b.lit(value(l) as u64, width))).collect();
            b.one_hot_select(&arms) | beats.link.is_zero().mux(b.lit(other as u64, width), b.zero(width))
        };

        // n1: the IP header moved to byte 0 of its own bus; parts of the address compare.
        let n1_valid = (beats.valid & beats.first).delay_reset("n1_valid", 1);
        let bits = 8 * Ipv6::LEN as u32;
        let arms: Vec<(S, S)> = (0..=VLAN_TAGS_MAX)
            .map(|tags| {
                let at = 8 * Link { tags, is_ipv6: false }.ip_offset() as u32;
                (of_shape(&|l| l.tags == tags), beats.data.bits(at, bits))
            })
            .collect();
        let n1_ip = b.one_hot_select(&arms).delay("n1_ip", 1);
        let n1_is_ipv4 = of_shape(&|l| !l.is_ipv6).delay("n1_is_ipv4", 1);
        let n1_is_ipv6 = of_shape(&|l| l.is_ipv6).delay("n1_is_ipv6", 1);
        let n1_ip_offset = by_shape(&|l| l.ip_offset(), 0, 5).delay("n1_ip_offset", 1);
        let headers_len = by_shape(&|l| l.udp_offset(), Eth::LEN, 7).delay("headers_len", NETWORK_LATENCY - 1);
        let dst_mac = gather(beats.data, Eth::LAYOUT.field("dst_mac").lanes(0));
        let differs: Vec<S> = dst_mac.chunks(16).into_iter().zip(mac.chunks(16)).map(|(x, y)| x.ne(y)).collect();
        let n1_mac_differs = b.cat(&differs).delay("n1_mac_differs", 1);

        // n2: simple checks; first sums.
        let v4 = |name: &str| field(n1_ip, &Ipv4::LAYOUT, name);
        let v6 = |name: &str| field(n1_ip, &Ipv6::LAYOUT, name);
        let rest = NETWORK_LATENCY - 2;
        let other_mac = (n1_mac_differs.any() & !promiscuous).delay("other_mac", rest);
        let bad_version = ((n1_is_ipv4 & v4("version").ne(4)) | (n1_is_ipv6 & v6("version").ne(6)))
            .delay("bad_version", rest);
        let options = (n1_is_ipv4 & v4("ihl").ne(Ipv4::LEN / 4)).delay("options", rest);
        let fragment = (n1_is_ipv4 & (v4("mf") | v4("frag_offset").any())).delay("fragment", rest);
        let next = v6("next_header");
        let is_extension = b.or_tree(&IPV6_EXTENSIONS.iter().map(|code| next.eq(*code)).collect::<Vec<_>>());
        let extension = (n1_is_ipv6 & is_extension).delay("extension", rest);
        let protocol = n1_is_ipv6.mux(next, v4("protocol"));
        let not_udp = protocol.ne(IP_PROTOCOL_UDP).delay("not_udp", rest);
        let ecn = n1_is_ipv6.mux(v6("ecn"), v4("ecn")).delay("ecn", rest);
        let (total, payload) = (v4("total_len").zext(18), v6("payload_len").zext(18));
        let n2_ip_len = n1_is_ipv6.mux(payload + Ipv6::LEN, total).delay("n2_ip_len", 1);
        let ip_payload_len = n1_is_ipv6.mux(payload, total - Ipv4::LEN).delay("ip_payload_len", rest);
        let n2_ip_offset = n1_ip_offset.delay("n2_ip_offset", 1);
        // Ones' complement sum of the ten words of an IPv4 header, big-endian.
        let word = |k: usize| gather(n1_ip, [(16 * k, 8), (16 * k + 8, 8)]);
        let pair = |k: usize| word(2 * k).add_carry(word(2 * k + 1)).delay(&format!("n2_sum_{k}"), 1);
        let pairs: Vec<S> = (0..Ipv4::LEN / 4).map(pair).collect();
        let [p0, p1, p2, p3, p4] = pairs[..] else { panic!("an IPv4 header has five pairs of words") };

        // n3 … n6: the sum, then its carries.
        let ip_end = (n2_ip_len + n2_ip_offset.zext(18)).delay("ip_end", rest - 1);
        let n3_sum_0 = p0.add_carry(p1).delay("n3_sum_0", 1);
        let n3_sum_1 = p2.add_carry(p3).delay("n3_sum_1", 1);
        let n4_sum = n3_sum_0.add_carry(n3_sum_1).delay("n4_sum", 1);
        let n5_sum = (n4_sum.zext(20) + p4.delay("p4", 2).zext(20)).delay("n5_sum", 1);
        let n6_sum = (n5_sum.trunc(16).zext(17) + n5_sum.bits(16, 4).zext(17)).delay("n6_sum", 1);
        let is_ones = n6_sum.eq(0xffff) | n6_sum.eq(0x1_fffe);
        let n6_is_ipv4 = n1_is_ipv4.delay("n6_is_ipv4", 5);
        let n6_valid = n1_valid.delay_reset("n6_valid", 5);

        // n7: held until the next frame's.
        facts.headers_len.set(held("n7_headers_len", n6_valid, headers_len));
        facts.ip_end.set(held("n7_ip_end", n6_valid, ip_end));
        facts.ip_payload_len.set(held("n7_ip_payload_len", n6_valid, ip_payload_len));
        facts.ecn.set(held("n7_ecn", n6_valid, ecn));
        facts.other_mac.set(held("n7_other_mac", n6_valid, other_mac));
        facts.bad_version.set(held("n7_bad_version", n6_valid, bad_version));
        facts.options.set(held("n7_options", n6_valid, options));
        facts.bad_checksum.set(held("n7_bad_checksum", n6_valid, n6_is_ipv4 & !is_ones));
        facts.fragment.set(held("n7_fragment", n6_valid, fragment));
        facts.extension.set(held("n7_extension", n6_valid, extension));
        facts.not_udp.set(held("n7_not_udp", n6_valid, not_udp));
    }
}

fn field<'a>(bus: S<'a>, layout: &Layout, name: &str) -> S<'a> {
    gather(bus, layout.field(name).lanes(0))
}

/// Register that takes `value` when `en` is 1.
fn held<'a>(name: &str, en: S<'a>, value: S<'a>) -> S<'a> {
    let r = value.builder().reg(name, value.width());
    r.set_en(en, value);
    r
}
