//! Retransmit queue: one bit a path row that has packets to send again, and a search that goes round them.
//!
//! Which packets is in the rows themselves, so the queue cannot overflow, holds no packet twice and forgets a path that
//! is re-opened. The search looks at 16 rows a cycle: a row waits at most rows / 16 cycles plus one service of every other
//! row.

use super::vector::bit_at;
use rtl_graph::*;

/// Rows looked at in one cycle.
const GROUP: u32 = 16;

/// A row that has, or just had, something to send again.
#[derive(Clone, Copy)]
pub(super) struct Pending<'a> {
    pub valid: S<'a>,
    pub row: S<'a>,
}

/// Goes round the bits of `pending`; a report stays until `taken` or until its bit falls.
pub(super) fn search<'a>(b: &'a B, pending: S<'a>, taken: S<'a>) -> Pending<'a> {
    let n = pending.width();
    let bits = index_bits(n.into());
    let row = b.reg("rtx_row", bits);
    let valid = b.reg_reset("rtx_found", 1, 0);
    let (found, place, next_group) = if n <= GROUP {
        let (found, place) = pending.first_one();
        (found, place, None)
    } else {
        let group_bits = bits - GROUP.ilog2();
        let group = b.reg_reset("rtx_group", group_bits, 0);
        let shift = group.cat(b.zero(GROUP.ilog2()));
        let (found, place) = pending.shr_by(shift).trunc(GROUP).first_one();
        (found, group.cat(place), Some(group))
    };
    // Behind each report the search moves on, so that no row is served twice before the others of later groups.
    if let Some(group) = next_group {
        group.set_en(!valid, group.inc());
    }
    valid.set(valid.mux(!taken & bit_at(pending, row), found));
    row.set_en(!valid, place);
    Pending { valid, row }
}
