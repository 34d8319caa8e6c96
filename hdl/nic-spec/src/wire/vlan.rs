//! VLAN tag, as it stands after the Ethernet type that announces it.

use crate::layout;

layout! {
    /// 802.1Q tag: control information and the type of what follows.
    pub struct Vlan[4]: big {
        /// Priority code point.
        pcp / set_pcp: 3 as u8,
        /// Drop eligible indicator.
        dei / set_dei: 1 as bool,
        /// VLAN identifier.
        vid / set_vid: 12 as u16,
        /// Type of what follows.
        ethertype / set_ethertype: 16 as u16,
    }
}
