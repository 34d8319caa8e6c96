//! Refusal header: why a packet was not accepted.

use crate::{codes, layout};

layout! {
    /// Refusal header, after AXTH (and the bitmap) of a NAK.
    pub struct Nxth[4]: big {
        /// Why the packet was refused.
        reason / set_reason: 8 as u8,
        /// Reserved, sent as zero.
        resv8 / set_resv8: 8 as u8,
        /// Detail of the reason; the RNR timer code for receiver not ready, otherwise 0.
        detail / set_detail: 16 as u16,
    }
}

codes! {
    /// Why a packet was refused.
    pub enum NakReason(u8) {
        /// No memory region has this key.
        Rkey = 0x01, "RKEY";
        /// The region belongs to another protection domain than the connection.
        Pd = 0x02, "PD";
        /// The packet reaches beyond the region.
        Range = 0x03, "RANGE";
        /// The region does not permit this access.
        Access = 0x04, "ACCESS";
        /// No receive is posted; to be tried again later.
        Rnr = 0x05, "RNR";
        /// The stream is not open, or the message number is not acceptable.
        Stream = 0x06, "STREAM";
        /// The connection is not in a state that takes the operation.
        QpState = 0x07, "QP_STATE";
        /// The payload exceeds the connection's PMTU, or the message its stated length.
        Mtu = 0x08, "MTU";
        /// A resource is used up for now; to be tried again later.
        NoResource = 0x09, "NO_RESOURCE";
        /// The packet lies outside the receive window.
        Window = 0x0a, "WINDOW";
    }
}

impl NakReason {
    /// True when the connection fails at once; otherwise the packet stays pending and is sent again.
    pub const fn is_fatal(self) -> bool {
        !matches!(self, NakReason::Rnr | NakReason::NoResource | NakReason::Window)
    }

    /// IBTA AETH syndrome that accompanies the reason.
    pub const fn syndrome(self) -> u8 {
        match self {
            NakReason::Rkey | NakReason::Pd | NakReason::Range | NakReason::Access => 0x62,
            NakReason::Rnr => 0x20,
            NakReason::Stream | NakReason::QpState | NakReason::Mtu => 0x61,
            NakReason::NoResource => 0x63,
            NakReason::Window => 0x60,
        }
    }
}
