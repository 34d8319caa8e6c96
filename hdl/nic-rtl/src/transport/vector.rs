//! Row indices, and one bit a connection or row in flops: reading, writing and searching such vectors.
//!
//! Indexing goes by barrel shift, which is a decoder in hardware and a few words of work in simulation.

use crate::params::NicParams;
use rtl_graph::*;

/// Row of a path table: conn · paths + path.
pub(super) fn row_of<'a>(p: &NicParams, conn: S<'a>, path: S<'a>) -> S<'a> {
    conn.trunc(p.conn_bits()).cat(path.trunc(p.path_bits()))
}

/// Connection of a path row.
pub(super) fn conn_of<'a>(p: &NicParams, row: S<'a>) -> S<'a> {
    row.high_bits(p.conn_bits())
}

/// Path of a path row.
pub(super) fn path_of<'a>(p: &NicParams, row: S<'a>) -> S<'a> {
    row.trunc(p.path_bits())
}

/// Bit `index` of `vector`; 0 beyond its end.
pub(super) fn bit_at<'a>(vector: S<'a>, index: S<'a>) -> S<'a> {
    vector.shr_by(index).bit(0)
}

/// A vector of `n` bits of which bit `index` is 1 when `on` is.
pub(super) fn bit_mask<'a>(n: u32, index: S<'a>, on: S<'a>) -> S<'a> {
    on.zext(n).shl_by(index)
}

/// A vector of `n` flops, all 0 after reset, of which one bit can be written each cycle.
pub(super) fn written_bits<'a>(b: &'a B, name: &str, n: u32, en: S<'a>, index: S<'a>, value: S<'a>) -> S<'a> {
    let vector = b.reg_reset(name, n, 0);
    vector.set(vector & !bit_mask(n, index, en) | bit_mask(n, index, en & value));
    vector
}

/// `(found, index)` of the first 1 behind position `last`, coming round to `last` itself.
pub(super) fn next_after<'a>(request: S<'a>, last: S<'a>) -> (S<'a>, S<'a>) {
    let b = request.builder();
    let n = request.width();
    let behind = b.ones(n).shl_by(last).shl(1);
    let (later_found, later) = (request & behind).first_one();
    let (found, first) = request.first_one();
    (found, later_found.mux(later, first))
}

/// Wires that carry `base` unless [`Record::when`] or [`S::when`] says otherwise.
pub(super) fn wires_over<'a, R: Record<'a>>(name: &str, base: &R) -> R {
    let layout = base.layout_of();
    let wires: Vec<S> = base
        .signals()
        .iter()
        .zip(&layout.fields)
        .map(|(s, f)| {
            let wire = s.builder().wire(&format!("{name}_{}", f.name), f.width);
            wire.set(*s);
            wire
        })
        .collect();
    R::over(&wires)
}

/// `a` is later than `b` on the circle of their width.
pub(super) fn is_later<'a>(a: S<'a>, b: S<'a>) -> S<'a> {
    let ahead = a - b;
    ahead.any() & !ahead.msb()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::check::Rng;

    module! {
        struct Searched(n: u32) {
            request: in Uint(n),
            last: in Uint(index_bits(n.into())),
            found: out Uint(1),
            index: out Uint(index_bits(n.into())),
        } |b| {
            let _ = b;
            let (f, i) = next_after(request, last);
            found.set(f);
            index.set(i);
        }
    }

    #[test]
    fn the_search_begins_behind_the_last_one_and_comes_round() {
        let mut rng = Rng::new("the_search_begins_behind", 5);
        for n in [2u32, 8, 16] {
            let mut sim = Searched::def(&Lib::new(), n).sim();
            for _ in 0..500 {
                let (request, last) = (rng.next() & rng.next() & ((1 << n) - 1), rng.below(n.into()));
                sim.poke("request", request);
                sim.poke("last", last);
                let expected = (1..=u64::from(n)).map(|k| (last + k) % u64::from(n)).find(|i| request >> i & 1 == 1);
                assert_eq!(sim.peek("found"), u64::from(expected.is_some()));
                if let Some(i) = expected {
                    assert_eq!(sim.peek("index"), i, "request {request:#x} last {last} of {n}");
                }
            }
        }
    }
}
