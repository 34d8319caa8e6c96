//! Ethernet header.

use crate::layout;

/// Type of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// Type of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Type of an 802.1Q tag.
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// Type of an outer 802.1ad tag.
pub const ETHERTYPE_VLAN_SERVICE: u16 = 0x88a8;

layout! {
    /// Ethernet II header.
    pub struct Eth[14]: big {
        /// Destination MAC address, first byte most significant.
        dst_mac / set_dst_mac: 48 as u64,
        /// Source MAC address, first byte most significant.
        src_mac / set_src_mac: 48 as u64,
        /// Type of what follows.
        ethertype / set_ethertype: 16 as u16,
    }
}
