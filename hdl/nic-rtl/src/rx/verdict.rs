//! One reason to drop a frame, or none: all conditions meet at the frame's last beat, the first in order counts.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `at_end` | 1 | | the inputs below belong to a frame whose last beat came [`COMPARE`] cycles ago |
//! | `end`, `network`, `transport`, `icrc_is_good` | | with `at_end` | what is known of it |
//! | `decided`, `is_good` | 1, 1 | | 2 cycles later: a frame is judged, and to be kept |
//! | `drop` | 8 | with `decided` | code of the counter, 0 for a good frame |
//!
//! Order is that of the headers: what stands behind a refused header is not looked at. The ICRC is judged before the
//! headers that the opcode's flags announce, since those may be what was damaged. A frame may be longer than its IP
//! packet only up to [`PADDED_BYTES`], to which a MAC pads.

use super::front::{FrameEnd, LEN_BITS};
use super::network::NetworkFacts;
use super::transport::TransportFacts;
use nic_spec::{csr::stats::Counter, wire::Udp};
use rtl_graph::*;

/// Shortest frame on Ethernet without its FCS: shorter ones are padded to it. Bytes.
pub const PADDED_BYTES: u64 = 60;

module! {
    /// Judges frames.
    pub struct Verdict = "nic_rx_verdict" () {
        at_end: in Uint(1),
        end: in FrameEnd,
        network: in NetworkFacts,
        transport: in TransportFacts,
        icrc_is_good: in Uint(1),
        decided: out Uint(1),
        is_good: out Uint(1),
        drop: out Uint(8),
    } |b| {
        let wide = network.ip_end.width();
        let len = end.len.zext(wide);
        let conditions = [
            (end.is_bad, Counter::RxMacError),
            (end.is_over, Counter::RxTooLong),
            (end.len.lt(network.headers_len.zext(LEN_BITS)), Counter::RxTruncated),
            (network.other_mac, Counter::RxOtherMac),
            (end.too_many_tags, Counter::RxTooManyTags),
            (end.not_ip, Counter::RxNotIp),
            (network.bad_version, Counter::RxBadIpVersion),
            (network.options, Counter::RxIpOptions),
            (network.bad_checksum, Counter::RxBadIpChecksum),
            (network.fragment, Counter::RxIpFragment),
            (network.extension, Counter::RxIpv6Extension),
            (network.not_udp, Counter::RxNotUdp),
            (len.lt(network.ip_end), Counter::RxTruncated),
            (len.gt(network.ip_end) & end.len.gt(PADDED_BYTES), Counter::RxTooLong),
            (network.ip_payload_len.lt_signed(b.lit(Udp::LEN as u64, wide)), Counter::RxTruncated),
            (transport.other_port, Counter::RxOtherUdpPort),
            (transport.udp_len.zext(wide).ne(network.ip_payload_len), Counter::RxBadUdpLen),
            (transport.short_headers, Counter::RxTruncated),
            (transport.bad_tver, Counter::RxBadTver),
            (transport.unknown_opcode, Counter::RxUnknownOpcode),
            (transport.unsupported_opcode, Counter::RxUnsupportedOpcode),
            (!icrc_is_good, Counter::RxBadIcrc),
            (transport.short_chain, Counter::RxTruncated),
            (transport.bad_length, Counter::RxBadLength),
            (transport.too_long, Counter::RxTooLong),
        ];
        // v1: all conditions.
        let holds: Vec<S> = conditions.iter().rev().map(|(condition, _)| *condition).collect();
        let v1_holds = b.cat(&holds).delay("v1_holds", 1);
        let v1_valid = at_end.delay_reset("v1_valid", 1);

        // v2: the first of them.
        let (found, index) = v1_holds.first_one();
        let (v2_found, v2_index) = (found.delay("v2_found", 1), index.delay("v2_index", 1));
        let codes: Vec<u64> = conditions.iter().map(|(_, counter)| counter.code().into()).collect();
        decided.set(v1_valid.delay_reset("v2_valid", 1));
        is_good.set((!found).delay("v2_is_good", 1));
        drop.set(v2_index.lookup("codes", &codes, 8) & v2_found.rep(8));
        for (k, (_, counter)) in conditions.iter().enumerate() {
            b.cover(&format!("v1_{k}_{}", counter.name()), v1_valid & found & index.eq(k));
        }
    }
}
