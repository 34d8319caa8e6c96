//! ACK builder: what an acknowledgement says, and how often a refusal may be said.

use super::{
    sack::PathRxState,
    vector::{bit_at, bit_mask, conn_of, path_of},
};
use crate::{
    params::NicParams,
    stream::{AckPacket, ConnContext, PathRxEvent, CONN_BITS, PATH_BITS, TIME_BITS},
};
use nic_spec::{
    consts::{HOLD_UNIT_NS, SYNDROME_ACK},
    wire::NakReason,
};
use rtl_graph::*;

/// What an ACK is made of.
#[derive(Clone, Copy)]
pub(super) struct AckSource<'a> {
    pub row: S<'a>,
    pub state: PathRxState<'a>,
    /// The refusal, if it is one.
    pub is_nak: S<'a>,
    pub refused: PathRxEvent<'a>,
    /// Row of the connection.
    pub conn: ConnContext<'a>,
    pub rq_limit: S<'a>,
    pub now: S<'a>,
}

/// The acknowledgement of a path as it is now (S-020 to S-023), or the refusal of a packet (S-030).
pub(super) fn build<'a>(p: &NicParams, from: &AckSource<'a>) -> AckPacket<'a> {
    let (st, event, b) = (&from.state, &from.refused, from.row.builder());
    let of_trigger = |refused: S<'a>, last: S<'a>| from.is_nak.mux(refused, last);
    let path = path_of(p, from.row).zext(PATH_BITS);
    let arms: Vec<(S, S)> =
        NakReason::ALL.iter().map(|r| (event.nak_reason.eq(r.code()), b.lit(r.syndrome().into(), 8))).collect();
    let hold = hold_units(p, from.now - st.trig_time);
    AckPacket {
        conn: conn_of(p, from.row).zext(CONN_BITS),
        path,
        plane: st.plane,
        epoch: st.epoch,
        sport: st.sport,
        tx_ts: from.now,
        axth_bm: st.map.any(),
        axth_ce: of_trigger(event.ce, st.trig_ce),
        axth_dup: !from.is_nak & st.trig_dup,
        axth_rtxe: of_trigger(event.rtx, st.trig_rtx),
        axth_hint: b.low(),
        axth_nak: from.is_nak,
        axth_credit: b.high(),
        axth_apath: path,
        axth_plane: of_trigger(event.plane, st.trig_plane),
        axth_epoch: of_trigger(event.epoch, st.trig_epoch),
        axth_syndrome: from.is_nak.mux(b.one_hot_select(&arms), SYNDROME_ACK),
        axth_cum_pseq: st.cum,
        axth_trig_pseq: of_trigger(event.pseq, st.trig),
        axth_ts_echo: of_trigger(event.tx_ts, st.trig_ts),
        axth_hold: (!from.is_nak).rep(16) & hold,
        axth_ce_cnt: st.ce_cnt,
        axth_hint_seq: b.zero(8),
        axth_rate_hint: b.zero(24),
        axth_cstream: from.conn.stream_id,
        axth_rq_limit: from.rq_limit,
        sack_bitmap: st.map.reverse(),
        nxth_reason: from.is_nak.rep(8) & event.nak_reason,
        nxth_detail: from.is_nak.rep(16) & event.nak_detail,
    }
}

/// Ticks in units of the header's hold time, 16 bits, saturating.
fn hold_units<'a>(p: &NicParams, ticks: S<'a>) -> S<'a> {
    /// Bits of the fraction that stands for the ratio of the units.
    const FRACTION_BITS: u32 = 16;
    let khz_of_unit = 1_000_000 / u64::from(HOLD_UNIT_NS);
    let ratio = (khz_of_unit << FRACTION_BITS) / u64::from(p.clock_khz);
    let ticks_max = (u64::from(u16::MAX) << FRACTION_BITS) / ratio;
    let saturates = ticks.gt(ticks_max);
    let b = ticks.builder();
    let units = if ratio.is_power_of_two() && ratio.ilog2() <= FRACTION_BITS {
        ticks.shr(FRACTION_BITS - ratio.ilog2()).trunc(16)
    } else {
        let product = ticks.trunc(count_bits(ticks_max)).mul_full(b.lit(ratio, count_bits(ratio)));
        product.zext(product.width().max(FRACTION_BITS + 16)).bits(FRACTION_BITS, 16)
    };
    saturates.mux(b.ones(16), units)
}

/// Quarters of the interval that pass at least between two refusals of a connection.
const QUARTERS: u64 = 5;

/// Whether a connection may send a refusal now (S-031): at least `interval` ticks after its last one, at most a quarter
/// more. `sent` notes one.
///
/// Each connection has an age of three flops that a common tick, four an interval, counts down.
pub(super) fn nak_allowed<'a>(b: &'a B, p: &NicParams, interval: S<'a>, conn: S<'a>, sent: S<'a>) -> S<'a> {
    let quarter = interval.shr(2);
    let elapsed = b.reg_reset("nak_elapsed", TIME_BITS, 0);
    let is_tick = elapsed.inc().ge(quarter).named("nak_tick");
    elapsed.set(is_tick.mux(0, elapsed.inc()));
    let age: Vec<S> = (0..3).map(|k| b.reg_reset(&format!("nak_age_{k}"), p.conns, 0)).collect();
    let is_old = age[0] | age[1] | age[2];
    let on_tick = is_tick.rep(p.conns) & is_old;
    let just = bit_mask(p.conns, conn, sent);
    // Minus one on every age but 0, bit by bit.
    let mut borrow = on_tick;
    for (k, plane) in age.iter().enumerate() {
        let lower = *plane ^ borrow;
        borrow = borrow & !*plane;
        plane.set(if QUARTERS >> k & 1 == 1 { lower | just } else { lower & !just });
    }
    !bit_at(is_old, conn) | interval.is_zero()
}
