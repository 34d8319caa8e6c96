//! Acceptance on a receiving path: its row, and what a packet is to it.
//!
//! Bit i of the bitmap stands for PSEQ cum + 1 + i; bit 0 is therefore 0. All arithmetic on PSEQ wraps at 24 bits.

use crate::stream::{PSN_BITS, SACK_BITS, TIME_BITS};
use rtl_graph::*;

/// Bits of the count of packets since the last ACK.
pub(super) const PKTS_BITS: u32 = 8;
/// Bits of the count of bytes since the last ACK.
pub(super) const BYTES_BITS: u32 = 24;

record! {
    /// Row of a receiving path.
    pub(super) struct PathRxState {
        valid: 1,
        /// Of the ACKs that the path sends.
        sport: 16,
        plane: 4,
        epoch: 4,
        /// Every PSEQ up to this one is received.
        cum: PSN_BITS,
        map: SACK_BITS,
        /// Marked packets so far.
        ce_cnt: 16,
        /// No packet yet.
        fresh: 1,
        /// The last packet, which the next ACK answers.
        trig: PSN_BITS,
        trig_ts: TIME_BITS,
        trig_time: TIME_BITS,
        trig_plane: 4,
        trig_epoch: 4,
        trig_ce: 1,
        trig_dup: 1,
        trig_rtx: 1,
        /// Packets and bytes since the last ACK.
        pkts: PKTS_BITS,
        bytes: BYTES_BITS,
        /// An ACK is due at `deadline`.
        armed: 1,
        deadline: TIME_BITS,
        /// The row stands in the queue of ACKs to be built.
        queued: 1,
    }
}

/// What a packet is to the path (S-001, S-002, S-003); exactly one holds.
#[derive(Clone, Copy)]
pub(super) struct Acceptance<'a> {
    pub is_new: S<'a>,
    pub is_duplicate: S<'a>,
    pub is_beyond: S<'a>,
}

/// Distance of a PSEQ from cum + 1, modulo 2^24.
pub(super) fn distance<'a>(row: &PathRxState<'a>, pseq: S<'a>) -> S<'a> {
    pseq - row.cum - 1
}

pub(super) fn acceptance<'a>(map: S<'a>, distance: S<'a>) -> Acceptance<'a> {
    let is_behind = distance.msb();
    let is_spanned = distance.lt(SACK_BITS);
    let is_marked = map.shr_by(distance.trunc(SACK_BITS.ilog2())).bit(0);
    Acceptance {
        is_new: is_spanned & !is_marked,
        is_duplicate: is_behind | is_spanned & is_marked,
        is_beyond: !is_behind & !is_spanned,
    }
}
