//! Acknowledgement header, and the bitmap that follows it when the path has a hole.

use crate::{
    layout,
    num::{Epoch, HintSeq, PathId, Plane, Psn, RsnLimit, StreamId},
};

layout! {
    /// Acknowledgement header.
    pub struct Axth[28]: big {
        /// The bitmap follows.
        bm / set_bm: 1 as bool,
        /// The packet that triggered this ACK was marked congestion experienced.
        ce / set_ce: 1 as bool,
        /// The packet that triggered this ACK was a duplicate.
        dup / set_dup: 1 as bool,
        /// The packet that triggered this ACK was a retransmission.
        rtxe / set_rtxe: 1 as bool,
        /// The rate hint is valid.
        hint / set_hint: 1 as bool,
        /// A reason header follows: the trigger was refused.
        nak / set_nak: 1 as bool,
        /// The receive credit is valid.
        credit / set_credit: 1 as bool,
        /// Reserved, sent as zero.
        resv1 / set_resv1: 1 as bool,
        /// Path being acknowledged, not the path this ACK travels on.
        apath / set_apath: 8 as PathId,
        /// Plane of the trigger.
        plane / set_plane: 4 as Plane,
        /// Epoch of the trigger.
        epoch / set_epoch: 4 as Epoch,
        /// IBTA AETH syndrome.
        syndrome / set_syndrome: 8 as u8,
        /// Reserved, sent as zero.
        resv8a / set_resv8a: 8 as u8,
        /// Every PSEQ up to and including this one is received.
        cum_pseq / set_cum_pseq: 24 as Psn,
        /// Reserved, sent as zero.
        resv8b / set_resv8b: 8 as u8,
        /// PSEQ of the packet that triggered this ACK.
        trig_pseq / set_trig_pseq: 24 as Psn,
        /// Transmit time stamp of the trigger, unchanged. Ticks of the sender.
        ts_echo / set_ts_echo: 32 as u32,
        /// Time from the trigger's arrival to this ACK, saturating. Units of 16 ns.
        hold / set_hold: 16 as u16,
        /// Packets marked congestion experienced on this path so far, modulo 2^16.
        ce_cnt / set_ce_cnt: 16 as u16,
        /// Number of the rate hint; the newest wins across paths.
        hint_seq / set_hint_seq: 8 as HintSeq,
        /// Inbound rate allotted to this connection. Mb/s; 0 = none, 0xffffff = unlimited.
        rate_hint / set_rate_hint: 24 as u32,
        /// Stream that the receive credit refers to.
        cstream / set_cstream: 16 as StreamId,
        /// The sender may use receive ordinals before this one, modulo 2^16.
        rq_limit / set_rq_limit: 16 as RsnLimit,
    }
}

layout! {
    /// Selective acknowledgement bitmap.
    pub struct Sack[32]: big {
        /// Bit i, most significant bit of byte 0 first, says that PSEQ cum_pseq + 1 + i is received.
        bitmap / set_bitmap: 256 as [u8; 32],
    }
}

impl<T: AsRef<[u8]>> Sack<T> {
    /// True when PSEQ `cum_pseq + 1 + index` is received. False beyond the bitmap.
    pub fn is_received(&self, index: usize) -> bool {
        index < 256 && self.0.as_ref()[index / 8] >> (7 - index % 8) & 1 != 0
    }
}

impl<T: AsMut<[u8]>> Sack<T> {
    /// Marks PSEQ `cum_pseq + 1 + index` received. Panics beyond the bitmap.
    pub fn mark(&mut self, index: usize) -> &mut Self {
        self.0.as_mut()[index / 8] |= 0x80 >> (index % 8);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axth_of_the_golden_long_ack_is_made() {
        let mut a = Axth::zeroed();
        a.set_bm(true).set_ce(true).set_hint(true).set_credit(true);
        a.set_apath(PathId::new(3)).set_plane(Plane::new(1)).set_syndrome(0x1f);
        a.set_cum_pseq(Psn::new(6)).set_trig_pseq(Psn::new(9)).set_ts_echo(0x1122_3500).set_hold(12).set_ce_cnt(1);
        a.set_hint_seq(HintSeq::new(17))
            .set_rate_hint(47_500)
            .set_cstream(StreamId::new(5))
            .set_rq_limit(RsnLimit::new(260));
        assert_eq!(
            a.0,
            [
                0xca, 0x03, 0x10, 0x1f, 0, 0, 0, 6, 0, 0, 0, 9, 0x11, 0x22, 0x35, 0, 0, 0x0c, 0, 1, 0x11, 0, 0xb9,
                0x8c, 0, 5, 1, 4
            ]
        );
        let mut rest = Axth::zeroed();
        rest.set_dup(true).set_rtxe(true).set_nak(true);
        assert_eq!(rest.0[0], 0x34);
    }

    #[test]
    fn bit_0_of_the_bitmap_is_the_first_bit_on_the_wire() {
        let mut sack = Sack::zeroed();
        sack.mark(2).mark(8).mark(255);
        assert_eq!((sack.0[0], sack.0[1], sack.0[31]), (0x20, 0x80, 0x01));
        assert!(sack.is_received(2) && sack.is_received(255) && !sack.is_received(0) && !sack.is_received(256));
    }
}
