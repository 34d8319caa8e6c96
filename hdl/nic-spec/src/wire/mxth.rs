//! Message header: the place of a packet's message within its stream.

use crate::{
    layout,
    num::{Msn, Rsn},
};

layout! {
    /// Message header.
    pub struct Mxth[8]: big {
        /// First packet of the message; informational.
        first / set_first: 1 as bool,
        /// Last packet of the message; informational, placement does not need it.
        last / set_last: 1 as bool,
        /// The message carries immediate data, which stands in its last packet.
        imm / set_imm: 1 as bool,
        /// The message invalidates a memory key, which stands in its last packet.
        inv / set_inv: 1 as bool,
        /// The completion is a solicited event.
        se / set_se: 1 as bool,
        /// Not to complete before all earlier messages of the stream.
        fence / set_fence: 1 as bool,
        /// The receive buffer is found by match bits, which stand in every packet.
        tag / set_tag: 1 as bool,
        /// Reserved, sent as zero.
        resv1 / set_resv1: 1 as bool,
        /// Message sequence number within the stream.
        mseq / set_mseq: 24 as Msn,
        /// Reserved, sent as zero.
        resv8 / set_resv8: 8 as u8,
        /// Ordinal of the posted receive consumed by a SEND or a WRITE with immediate; otherwise 0.
        rsn / set_rsn: 24 as Rsn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mxth_of_the_golden_packets_is_made() {
        let mut h = Mxth::zeroed();
        h.set_first(true).set_last(true).set_mseq(Msn::new(9));
        assert_eq!(h.0, [0xc0, 0, 0, 9, 0, 0, 0, 0]);
        h.set_mseq(Msn::new(10)).set_rsn(Rsn::new(4));
        assert_eq!(h.0, [0xc0, 0, 0, 0x0a, 0, 0, 0, 4]);
        let mut flags = Mxth::zeroed();
        flags.set_imm(true).set_inv(true).set_se(true).set_fence(true).set_tag(true);
        assert_eq!(flags.0[0], 0x3e);
    }
}
