//! IPv6 header without extension headers.

use super::IP_PROTOCOL_UDP;
use crate::{csr::stats::Counter, layout, num::Dscp};

layout! {
    /// IPv6 header; UDP follows at once.
    pub struct Ipv6[40]: big {
        /// 6.
        version / set_version: 4 as u8,
        /// Differentiated services code point: traffic class of the packet.
        dscp / set_dscp: 6 as Dscp,
        /// Explicit congestion notification; 3 = congestion experienced.
        ecn / set_ecn: 2 as u8,
        /// Flow label; 0 by default, may carry more path entropy.
        flow_label / set_flow_label: 20 as u32,
        /// Length of what follows this header. Bytes.
        payload_len / set_payload_len: 16 as u16,
        /// Protocol of the content; 17 = UDP.
        next_header / set_next_header: 8 as u8,
        /// Hop limit. Hops.
        hop_limit / set_hop_limit: 8 as u8,
        /// Source address, first byte most significant.
        src_ip / set_src_ip: 128 as u128,
        /// Destination address, first byte most significant.
        dst_ip / set_dst_ip: 128 as u128,
    }
}

/// Protocol numbers of the extension headers, and of "nothing follows".
pub const IPV6_EXTENSIONS: &[u8] = &[0, 43, 44, 50, 51, 59, 60, 135, 139];

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Checks what the card requires of a header; the error is the counter of the drop.
    pub fn check(&self) -> Result<(), Counter> {
        match self.next_header() {
            _ if self.version() != 6 => Err(Counter::RxBadIpVersion),
            IP_PROTOCOL_UDP => Ok(()),
            next if IPV6_EXTENSIONS.contains(&next) => Err(Counter::RxIpv6Extension),
            _ => Err(Counter::RxNotUdp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_rfc_8200_puts_them() {
        let mut ip = Ipv6::zeroed();
        ip.set_version(6).set_dscp(Dscp::new(0x2e)).set_ecn(2).set_flow_label(0xabcde).set_payload_len(0x1234);
        ip.set_next_header(17).set_hop_limit(64).set_src_ip(0x2001_0db8 << 96 | 1).set_dst_ip(0xfe80 << 112 | 2);
        let mut bytes = [0; 40];
        bytes[..10].copy_from_slice(&[0x6b, 0xaa, 0xbc, 0xde, 0x12, 0x34, 17, 64, 0x20, 0x01]);
        (bytes[10], bytes[11], bytes[23], bytes[24], bytes[25], bytes[39]) = (0x0d, 0xb8, 1, 0xfe, 0x80, 2);
        assert_eq!(ip.0, bytes);
        assert_eq!((ip.src_ip(), ip.dst_ip()), (0x2001_0db8 << 96 | 1, 0xfe80 << 112 | 2));
        assert_eq!(ip.check(), Ok(()));
        assert_eq!(ip.set_next_header(44).check(), Err(Counter::RxIpv6Extension));
        assert_eq!(ip.set_next_header(6).check(), Err(Counter::RxNotUdp));
        assert_eq!(ip.set_version(4).check(), Err(Counter::RxBadIpVersion));
    }
}
