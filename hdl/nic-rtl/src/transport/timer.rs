//! Deadlines of all rows of a table: a copy of them in RAM, and a search that looks at one row a cycle.
//!
//! The owner of the table mirrors every row write here, and asks its row again when the search reports one, since the
//! row may have changed meanwhile. A deadline that passed is reported within rows + 2 cycles, then each round again
//! until the owner moves it. Deadlines lie at most 2^31 − 1 ticks ahead. State: 33 bits a row in one RAM.

use crate::stream::TIME_BITS;
use rtl_graph::*;

/// What the owner writes: at `row`, whether a deadline is set, and which.
#[derive(Clone, Copy)]
pub(super) struct DeadlineWrite<'a> {
    pub en: S<'a>,
    pub row: S<'a>,
    pub armed: S<'a>,
    pub deadline: S<'a>,
}

/// A row whose deadline has passed.
#[derive(Clone, Copy)]
pub(super) struct Expired<'a> {
    pub valid: S<'a>,
    pub row: S<'a>,
}

/// Whether `deadline` is `now` or before.
pub(super) fn has_passed<'a>(now: S<'a>, deadline: S<'a>) -> S<'a> {
    !(now - deadline).msb()
}

/// The search over `rows` deadlines. A report stays until `taken`. Rows are not cleared by reset: the owner writes each.
pub(super) fn deadlines<'a>(
    b: &'a B,
    name: &str,
    rows: u32,
    write: DeadlineWrite<'a>,
    now: S<'a>,
    taken: S<'a>,
) -> Expired<'a> {
    b.scope(name, || {
        let bits = index_bits(rows.into());
        let mem = b.mem("deadlines", rows.into(), 1 + TIME_BITS).style(RamStyle::Block).zeroed();
        mem.write(write.en, write.row, write.armed.cat(write.deadline));
        let scan = b.reg_reset("scan", bits, 0);
        scan.set(scan.inc());
        let seen = mem.read(scan);
        let seen_row = b.reg("seen_row", bits);
        seen_row.set(scan);
        let is_due = seen.msb() & has_passed(now, seen.trunc(TIME_BITS));
        let valid = b.reg_reset("expired", 1, 0);
        let row = b.reg("expired_row", bits);
        valid.set(valid.mux(!taken, is_due));
        row.set_en(!valid, seen_row);
        Expired { valid, row }
    })
}
