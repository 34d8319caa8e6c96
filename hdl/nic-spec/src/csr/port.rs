//! Block `port`: the Ethernet port.

use crate::{consts::UDP_DPORT as DPORT, csr_block};

csr_block! {
    /// The Ethernet port.
    block "port": type 0x0002, version 1, base 0x1000, next 0x2000;
    /// Low 32 bits of the port's MAC address; its first byte is the most significant of the 48 bits.
    0x0c MAC_LO: rw = 0, "";
    /// High 16 bits of the port's MAC address.
    0x10 MAC_HI: rw = 0, "" {
        /// The bits.
        MAC_HI_VALUE: 0, 16;
    };
    /// UDP destination port sent and accepted.
    0x14 UDP_DPORT: rw = DPORT as u32, "port" {
        /// The port.
        UDP_DPORT_VALUE: 0, 16;
    };
    /// What the port does.
    0x18 CONTROL: rw = 0, "" {
        /// Frames are received; otherwise all are discarded uncounted.
        CONTROL_RX_ENABLE: 0, 1;
        /// Frames to any MAC address are accepted.
        CONTROL_PROMISCUOUS: 1, 1;
    };
    /// What the port reports.
    0x1c STATUS: ro = 0, "" {
        /// The link is up.
        STATUS_LINK_UP: 0, 1;
    };
}
