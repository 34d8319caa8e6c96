//! Base transport header: 12 bytes that begin every packet.

use crate::{
    layout,
    num::{Pkey, Psn, Qpn},
};

layout! {
    /// Base transport header.
    pub struct Bth[12]: big {
        /// What the packet is: see the opcode table.
        opcode / set_opcode: 8 as u8,
        /// Solicited event; valid on the last packet of a message.
        se / set_se: 1 as bool,
        /// Migration state; 0, unused.
        m / set_m: 1 as bool,
        /// Zero bytes that pad the payload to a multiple of four. 0..=3.
        pad_count / set_pad_count: 2 as u8,
        /// Transport header version; 1 = this format, 0 = plain RoCEv2.
        tver / set_tver: 4 as u8,
        /// Partition key.
        pkey / set_pkey: 16 as Pkey,
        /// Forward congestion notification; 0. The network may change this byte, the ICRC does not cover it.
        fecn / set_fecn: 1 as bool,
        /// Backward congestion notification; 0.
        becn / set_becn: 1 as bool,
        /// Reserved, sent as zero.
        resv6 / set_resv6: 6 as u8,
        /// Connection id at the receiver.
        dest_qpn / set_dest_qpn: 24 as Qpn,
        /// An acknowledgement is requested now.
        ack_req / set_ack_req: 1 as bool,
        /// This transmission is a retransmission.
        rtx / set_rtx: 1 as bool,
        /// End of burst: the sender has nothing more queued on this path.
        eob / set_eob: 1 as bool,
        /// Reserved, sent as zero.
        resv5 / set_resv5: 5 as u8,
        /// Sequence number within (connection, path) of a sequenced packet; 0 in others.
        pseq / set_pseq: 24 as Psn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bth_of_the_golden_write_is_made_and_read() {
        let mut h = Bth::zeroed();
        h.set_opcode(0xe0).set_tver(1).set_pkey(Pkey::new(0xffff)).set_dest_qpn(Qpn::new(0x123));
        h.set_ack_req(true).set_pseq(Psn::new(7));
        assert_eq!(h.0, [0xe0, 1, 0xff, 0xff, 0, 0, 1, 0x23, 0x80, 0, 0, 7]);
        assert_eq!(
            (h.dest_qpn(), h.pseq(), h.ack_req(), h.rtx(), h.eob()),
            (Qpn::new(0x123), Psn::new(7), true, false, false)
        );
        h.set_se(true).set_pad_count(3).set_rtx(true).set_eob(true);
        assert_eq!((h.0[1], h.0[8]), (0xb1, 0xe0));
    }
}
