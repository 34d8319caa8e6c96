//! IPv4 header without options.

use super::IP_PROTOCOL_UDP;
use crate::{csr::stats::Counter, layout, num::Dscp};

layout! {
    /// IPv4 header without options.
    pub struct Ipv4[20]: big {
        /// 4.
        version / set_version: 4 as u8,
        /// Header length in 4-byte words; 5, since options are not supported.
        ihl / set_ihl: 4 as u8,
        /// Differentiated services code point: traffic class of the packet.
        dscp / set_dscp: 6 as Dscp,
        /// Explicit congestion notification; 3 = congestion experienced.
        ecn / set_ecn: 2 as u8,
        /// Length of header and content. Bytes.
        total_len / set_total_len: 16 as u16,
        /// Identification; 0, packets are never fragmented.
        ident / set_ident: 16 as u16,
        /// Reserved, sent as zero.
        resv1 / set_resv1: 1 as bool,
        /// Do not fragment; 1.
        df / set_df: 1 as bool,
        /// More fragments; 0.
        mf / set_mf: 1 as bool,
        /// Fragment offset. 8-byte units; 0.
        frag_offset / set_frag_offset: 13 as u16,
        /// Time to live. Hops.
        ttl / set_ttl: 8 as u8,
        /// Protocol of the content; 17 = UDP.
        protocol / set_protocol: 8 as u8,
        /// Ones' complement of the ones' complement sum of the header's 16-bit words.
        checksum / set_checksum: 16 as u16,
        /// Source address, first byte most significant.
        src_ip / set_src_ip: 32 as u32,
        /// Destination address, first byte most significant.
        dst_ip / set_dst_ip: 32 as u32,
    }
}

/// Checksum over a header of any whole number of words: 0 when a correct checksum is in place.
#[inline]
pub(crate) fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Checks what the card requires of a header; the error is the counter of the drop.
    #[inline]
    pub fn check(&self) -> Result<(), Counter> {
        match () {
            () if self.version() != 4 => Err(Counter::RxBadIpVersion),
            () if self.ihl() != 5 => Err(Counter::RxIpOptions),
            () if checksum(&self.0.as_ref()[..Ipv4::LEN]) != 0 => Err(Counter::RxBadIpChecksum),
            () if self.mf() || self.frag_offset() != 0 => Err(Counter::RxIpFragment),
            () if self.protocol() != IP_PROTOCOL_UDP => Err(Counter::RxNotUdp),
            () => Ok(()),
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Computes and sets the checksum.
    #[inline]
    pub fn fill_checksum(&mut self) -> &mut Self {
        self.set_checksum(0);
        let sum = checksum(&self.0.as_ref()[..Ipv4::LEN]);
        self.set_checksum(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The IPv4 header of the golden WRITE packet.
    const HEADER: [u8; 20] = [0x45, 2, 0, 0x54, 0, 0, 0x40, 0, 0x40, 0x11, 0x26, 0x93, 0x0a, 1, 0, 1, 0x0a, 1, 0, 2];

    #[test]
    fn a_known_header_reads_and_its_checksum_is_recomputed() {
        let ip = Ipv4(HEADER);
        assert_eq!(
            (ip.total_len(), ip.ecn(), ip.ttl(), ip.src_ip(), ip.dst_ip()),
            (84, 2, 64, 0x0a01_0001, 0x0a01_0002)
        );
        assert!(ip.df() && ip.check().is_ok());
        assert_eq!(Ipv4(HEADER).set_checksum(0).fill_checksum().0, HEADER);
    }

    #[test]
    fn each_bad_header_has_its_own_counter() {
        let refused = |change: fn(&mut Ipv4<[u8; 20]>)| {
            let mut ip = Ipv4(HEADER);
            change(&mut ip);
            ip.fill_checksum();
            ip.check().unwrap_err()
        };
        assert_eq!(refused(|ip| _ = ip.set_version(6)), Counter::RxBadIpVersion);
        assert_eq!(refused(|ip| _ = ip.set_ihl(6)), Counter::RxIpOptions);
        assert_eq!(refused(|ip| _ = ip.set_mf(true)), Counter::RxIpFragment);
        assert_eq!(refused(|ip| _ = ip.set_frag_offset(1)), Counter::RxIpFragment);
        assert_eq!(refused(|ip| _ = ip.set_protocol(6)), Counter::RxNotUdp);
        assert_eq!(Ipv4(HEADER).set_ident(1).check(), Err(Counter::RxBadIpChecksum));
    }
}
