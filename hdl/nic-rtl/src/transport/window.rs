//! Window of a sending path: its row, and what an acknowledgement means to it.
//!
//! Bit i of the row's bitmaps stands for PSEQ snd_una + i. `PSEQ mod window_pkts` is a packet's place in the in-flight
//! table. All arithmetic on PSEQ wraps at 24 bits.

use crate::{
    params::NicParams,
    stream::{AckEvent, PSN_BITS, SACK_BITS, TIME_BITS},
};
use rtl_graph::*;

/// Bits of the counter of timeouts in a row, one more than those of the limit.
pub(super) const RETRY_BITS: u32 = 5;

record! {
    /// Row of a sending path.
    pub(super) struct PathTxState(p: &NicParams) {
        valid: 1,
        sport: 16,
        plane: 4,
        epoch: 4,
        /// Oldest outstanding PSEQ.
        una: PSN_BITS,
        /// Next PSEQ.
        nxt: PSN_BITS,
        /// Acknowledged packets; bit 0 is 0.
        sacked: p.window_pkts,
        /// Packets to be sent again.
        rtx: p.window_pkts,
        /// `rtx` of `timer_pseq` was set by the timer.
        by_timer: 1,
        timer_pseq: PSN_BITS,
        /// The timer runs.
        armed: 1,
        deadline: TIME_BITS,
        /// Timeout in force, doubled by each expiry.
        timeout: TIME_BITS,
        /// Expiries in a row.
        retries: RETRY_BITS,
        /// `refused_pseq` was refused for now: the gap rule leaves it alone, the timer sends it again.
        refused: 1,
        refused_pseq: PSN_BITS,
    }
}

/// Number of outstanding packets, 0..=window_pkts.
pub(super) fn outstanding<'a>(p: &NicParams, una: S<'a>, nxt: S<'a>) -> S<'a> {
    (nxt - una).trunc(p.window_bits() + 1)
}

/// How an acknowledgement lies to a window; all relative to snd_una.
#[derive(Clone, Copy)]
pub(super) struct Placement<'a> {
    /// cum + 1 − snd_una, modulo 2^24.
    pub ahead: S<'a>,
    /// snd_nxt − (cum + 1): packets that the bitmap may speak about.
    pub room: S<'a>,
}

pub(super) fn place<'a>(row: &PathTxState<'a>, ack: &AckEvent<'a>) -> Placement<'a> {
    let first = ack.cum.inc();
    Placement { ahead: first - row.una, room: row.nxt - first }
}

/// What an acknowledgement says of each packet of the window.
#[derive(Clone, Copy)]
pub(super) struct Acknowledged<'a> {
    /// Packets it acknowledges, bit i for snd_una + i.
    pub map: S<'a>,
    /// It speaks of packets that were never sent, or is older than the bitmap reaches.
    pub is_bad: S<'a>,
}

pub(super) fn acknowledged<'a>(p: &NicParams, at: Placement<'a>, count: S<'a>, sack: S<'a>) -> Acknowledged<'a> {
    let w = p.window_pkts;
    let is_behind = at.ahead.msb();
    // A cumulative number ahead of snd_una: everything before it and the bitmap shifted up.
    let below = !sack.builder().ones(w).shl_by(at.ahead.trunc(p.window_bits() + 1));
    let ahead = sack.resize(w).shl_by(at.ahead.trunc(p.window_bits() + 1)) | below;
    // One from an older acknowledgement: the bitmap shifted down.
    let age = at.ahead.neg().trunc(SACK_BITS.ilog2() + 1);
    let behind = sack.shr_by(age).resize(w);
    // Both bounds at once: ahead <= count, and age <= 256.
    let limit = count.zext(PSN_BITS) + SACK_BITS;
    let reach = at.room.trunc(SACK_BITS.ilog2() + 2);
    let never_sent = sack.shr_by(reach).any();
    Acknowledged { map: is_behind.mux(behind, ahead), is_bad: at.room.gt(limit) | never_sent }
}

/// Bits of `map` below its highest 1.
pub(super) fn below_highest(map: S) -> S {
    let mut smeared = map;
    let mut step = 1;
    while step < map.width() {
        smeared = smeared | smeared.shr(step);
        step *= 2;
    }
    smeared.shr(1)
}
