//! Node construction with the few simplifications that keep the emitted text short: constants and slices.
use crate::builder::B;
use crate::node::{Id, K};
use crate::signal::S;
use crate::words;

fn kind(s: S) -> K {
    s.b.inner.borrow().nodes[s.id as usize].k.clone()
}

/// The kind of an unnamed node, through which a simplification may look; names are kept.
fn open_kind(s: S) -> Option<K> {
    let i = s.b.inner.borrow();
    let n = &i.nodes[s.id as usize];
    n.name.is_none().then(|| n.k.clone())
}

fn constant(s: S) -> Option<Box<[u64]>> {
    match kind(s) {
        K::Const(c) => Some(c),
        _ => None,
    }
}

fn is_zero(s: S) -> bool {
    constant(s).is_some_and(|c| c.iter().all(|x| *x == 0))
}

fn is_ones(s: S) -> bool {
    let m = words::top_mask(s.w);
    constant(s).is_some_and(|c| c[..c.len() - 1].iter().all(|x| *x == !0) && c[c.len() - 1] == m)
}

fn sig(b: &B, id: Id) -> S<'_> {
    let w = b.inner.borrow().nodes[id as usize].w;
    S { b, id, w }
}

fn map2<'a>(a: S<'a>, c: S<'a>, f: fn(u64, u64) -> u64) -> Option<S<'a>> {
    let (x, y) = (constant(a)?, constant(c)?);
    let v: Vec<u64> = x.iter().zip(y.iter()).map(|(x, y)| f(*x, *y)).collect();
    Some(a.b.litw(&v, a.w))
}

#[track_caller]
pub(crate) fn not(a: S) -> S {
    if let Some(c) = constant(a) {
        let mut v: Vec<u64> = c.iter().map(|x| !x).collect();
        *v.last_mut().expect("a word") &= words::top_mask(a.w);
        return a.b.litw(&v, a.w);
    }
    match open_kind(a) {
        Some(K::Not(x)) => sig(a.b, x),
        _ => a.b.op(K::Not(a.id), a.w),
    }
}

#[track_caller]
pub(crate) fn and<'a>(a: S<'a>, c: S<'a>) -> S<'a> {
    if let Some(s) = map2(a, c, |x, y| x & y) {
        return s;
    }
    if is_zero(a) || is_ones(c) || a.id == c.id {
        return a;
    }
    if is_zero(c) || is_ones(a) {
        return c;
    }
    a.b.op(K::And(a.id, c.id), a.w)
}

#[track_caller]
pub(crate) fn or<'a>(a: S<'a>, c: S<'a>) -> S<'a> {
    if let Some(s) = map2(a, c, |x, y| x | y) {
        return s;
    }
    if is_ones(a) || is_zero(c) || a.id == c.id {
        return a;
    }
    if is_ones(c) || is_zero(a) {
        return c;
    }
    a.b.op(K::Or(a.id, c.id), a.w)
}

#[track_caller]
pub(crate) fn xor<'a>(a: S<'a>, c: S<'a>) -> S<'a> {
    if let Some(s) = map2(a, c, |x, y| x ^ y) {
        return s;
    }
    if is_zero(c) {
        return a;
    }
    if is_zero(a) {
        return c;
    }
    a.b.op(K::Xor(a.id, c.id), a.w)
}

#[track_caller]
pub(crate) fn add<'a>(a: S<'a>, c: S<'a>) -> S<'a> {
    if is_zero(c) {
        return a;
    }
    if is_zero(a) {
        return c;
    }
    a.b.op(K::Add(a.id, c.id), a.w)
}

#[track_caller]
pub(crate) fn sub<'a>(a: S<'a>, c: S<'a>) -> S<'a> {
    if is_zero(c) {
        return a;
    }
    a.b.op(K::Sub(a.id, c.id), a.w)
}

#[track_caller]
pub(crate) fn eq<'a>(a: S<'a>, c: S<'a>) -> S<'a> {
    if let (Some(x), Some(y)) = (constant(a), constant(c)) {
        return a.b.lit((x == y) as u64, 1);
    }
    if a.w == 1 {
        return not(xor1(a, c));
    }
    a.b.op(K::Eq(a.id, c.id), 1)
}

/// Exclusive or of single bits, with the constant 1 made an inversion.
#[track_caller]
fn xor1<'a>(a: S<'a>, c: S<'a>) -> S<'a> {
    if is_ones(c) {
        return not(a);
    }
    if is_ones(a) {
        return not(c);
    }
    xor(a, c)
}

#[track_caller]
pub(crate) fn mux<'a>(s: S<'a>, a: S<'a>, c: S<'a>) -> S<'a> {
    if let Some(k) = constant(s) {
        return if k[0] == 1 { a } else { c };
    }
    if a.id == c.id {
        return a;
    }
    if a.w == 1 && is_ones(a) && is_zero(c) {
        return s;
    }
    if a.w == 1 && is_zero(a) && is_ones(c) {
        return not(s);
    }
    a.b.op(K::Mux(s.id, a.id, c.id), a.w)
}

#[track_caller]
pub(crate) fn slice(a: S, lo: u32, w: u32) -> S {
    if w == a.w {
        return a;
    }
    match open_kind(a) {
        Some(K::Const(c)) => return a.b.litw(&words::slice(&c, lo, w), w),
        Some(K::Slice(x, l)) => return slice(sig(a.b, x), lo + l, w),
        Some(K::Cat(parts)) => {
            let mut at = 0;
            let mut hit = vec![];
            for p in parts.iter().rev() {
                let p = sig(a.b, *p);
                let (from, to) = (lo.max(at), (lo + w).min(at + p.w));
                if from < to {
                    hit.push(slice(p, from - at, to - from));
                }
                at += p.w;
            }
            hit.reverse();
            return cat(a.b, &hit);
        }
        _ => {}
    }
    a.b.op(K::Slice(a.id, lo), w)
}

/// Concatenation; nested ones are flattened, neighbouring constants and neighbouring slices of one signal merged.
#[track_caller]
pub(crate) fn cat<'a>(b: &'a B, msb_first: &[S<'a>]) -> S<'a> {
    let mut parts: Vec<S<'a>> = vec![];
    for s in msb_first {
        match open_kind(*s) {
            Some(K::Cat(v)) => v.iter().for_each(|x| push(b, &mut parts, sig(b, *x))),
            _ => push(b, &mut parts, *s),
        }
    }
    if parts.len() == 1 {
        return parts[0];
    }
    let w = parts.iter().map(|s| s.w).sum();
    b.op(K::Cat(parts.iter().map(|s| s.id).collect()), w)
}

#[track_caller]
fn push<'a>(b: &'a B, parts: &mut Vec<S<'a>>, s: S<'a>) {
    if let Some(&top) = parts.last() {
        if let (Some(hi), Some(lo)) = (constant(top), constant(s)) {
            let w = top.w + s.w;
            let mut v = vec![0; words::words(w)];
            words::insert(&mut v, &lo, 0, s.w);
            words::insert(&mut v, &hi, s.w, top.w);
            *parts.last_mut().expect("a part") = b.litw(&v, w);
            return;
        }
        if let (Some(K::Slice(x, hi)), Some(K::Slice(y, lo))) = (open_kind(top), open_kind(s)) {
            if x == y && lo + s.w == hi {
                *parts.last_mut().expect("a part") = slice(sig(b, x), lo, top.w + s.w);
                return;
            }
        }
    }
    parts.push(s);
}
