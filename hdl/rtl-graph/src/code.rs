//! Operations of the interpreter: a flattened design compiled to a list, and its execution.
use crate::flat::{Flat, FlatMem, FlatProp, FlatRead, FlatWrite};
use crate::module::ModDef;
use crate::node::{Id, K};
use crate::sim::Pin;
use crate::words::{top_mask, words};
use std::collections::BTreeMap;

/// Kind of an operation. `1` works on single words, `W` on `n` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Not1,
    NotW,
    And1,
    AndW,
    Or1,
    OrW,
    Xor1,
    XorW,
    Add1,
    AddW,
    Sub1,
    SubW,
    Mul1,
    MulW,
    Eq1,
    EqW,
    Lt1,
    LtW,
    /// Signed less: `sh` bits left move the sign to the top of the last word.
    Slt,
    Mux1,
    MuxW,
    /// Bits of one word.
    Slice1,
    /// At most 64 bits across two words.
    Slice2,
    /// Bits across words; `x` is the number of source words.
    SliceW,
    /// Copies `x` words and clears the rest of `n`.
    First,
    /// Two one-word parts to one word.
    Cat1,
    /// Ors one word in, which does not cross a word's end.
    Put1,
    /// Ors `x` words in.
    PutW,
    All1,
    AllW,
    Any1,
    AnyW,
    Parity1,
    ParityW,
    /// Parity of `a & b`.
    ParityAnd,
    Shl1,
    ShlW,
    Shr1,
    ShrW,
    /// Row of memory `x`.
    Row,
}

#[derive(Clone, Copy, Debug)]
struct Op {
    what: Do,
    /// Words of the result, or of the operands where the result is a bit.
    n: u32,
    d: u32,
    a: u32,
    b: u32,
    x: u32,
    sh: u32,
    m: u64,
}

/// A register: where it stands and where its next value does.
#[derive(Clone, Copy)]
struct Reg {
    cur: u32,
    next: u32,
    w: u32,
    domain: u32,
}

struct Read {
    mem: u32,
    /// Words a row.
    n: u32,
    depth: u64,
    en: Option<u32>,
    addr: (u32, u32),
    cur: u32,
    w: u32,
    domain: u32,
}

struct Write {
    mem: u32,
    n: u32,
    depth: u64,
    en: u32,
    addr: (u32, u32),
    data: u32,
    /// Lane enables, lane width, lanes.
    lanes: Option<(u32, u32, u32)>,
    domain: u32,
}

/// The compiled design.
pub(crate) struct Code {
    ops: Vec<Op>,
    /// Depth and words a row of each memory.
    shape: Vec<(u64, u32)>,
    regs: Vec<Reg>,
    reads: Vec<Read>,
    writes: Vec<Write>,
    /// Condition and reset of each property.
    pub props: Vec<(u32, u32)>,
}

pub(crate) struct Compiled {
    pub code: Code,
    pub values: Vec<u64>,
    pub pins: BTreeMap<String, Pin>,
    pub mems: Vec<FlatMem>,
    pub props: Vec<FlatProp>,
}

/// Compiles a design.
#[track_caller]
pub(crate) fn compile(def: &ModDef) -> Compiled {
    let f = Flat::new(def);
    let order = f.order();
    let live = live(&f);
    let n = f.k.len();
    let mut in_parity = vec![false; n];
    for k in f.k.iter().zip(&live).filter_map(|(k, l)| l.then_some(k)) {
        if let K::Parity(a) = k {
            in_parity[f.resolve(*a) as usize] = true;
        }
    }
    let uses = uses(&f, &live);
    let mut c = Compiler { at: vec![u32::MAX; n], uses, in_parity, f: &f, values: vec![0], ops: vec![] };
    for id in &order {
        if live[*id as usize] {
            c.node(*id);
        }
    }
    let place = |id: Id| c.at[f.resolve(id) as usize];
    let pin = |id: Id, is_input: bool| Pin { at: place(id), w: f.w[id as usize], is_input };
    let mut pins = BTreeMap::new();
    for (id, n) in f.name.iter().enumerate() {
        if let Some(n) = n {
            let is_input = matches!(f.k[id], K::In(_));
            pins.insert(n.clone(), pin(id as Id, is_input));
        }
    }
    let regs =
        f.regs.iter().map(|r| Reg { cur: place(r.cur), next: place(r.next), w: f.w[r.cur as usize], domain: r.domain });
    let wide = |id: Id| (place(id), words(f.w[id as usize]) as u32);
    let read = |r: &FlatRead| {
        let m = &f.mems[r.mem as usize];
        let (n, w) = (words(m.w) as u32, m.w);
        let en = r.en.map(place);
        Read { mem: r.mem, n, depth: m.depth, en, addr: wide(r.addr), cur: place(r.node), w, domain: r.domain }
    };
    let write = |w: &FlatWrite| {
        let m = &f.mems[w.mem as usize];
        Write {
            mem: w.mem,
            n: words(m.w) as u32,
            depth: m.depth,
            en: place(w.en),
            addr: wide(w.addr),
            data: place(w.data),
            lanes: w.lanes.map(|(l, n)| (place(l), n, m.w / n)),
            domain: w.domain,
        }
    };
    let code = Code {
        regs: regs.collect(),
        reads: f.reads.iter().map(read).collect(),
        writes: f.writes.iter().map(write).collect(),
        props: f.props.iter().map(|p| (place(p.cond), place(p.rst))).collect(),
        shape: f.mems.iter().map(|m| (m.depth, words(m.w) as u32)).collect(),
        ops: c.ops,
    };
    Compiled { code, values: c.values, pins, mems: f.mems, props: f.props }
}

/// Nodes that something observable depends on.
fn live(f: &Flat) -> Vec<bool> {
    let mut live = vec![false; f.k.len()];
    let mut work: Vec<Id> = vec![];
    work.extend((0..f.k.len() as Id).filter(|id| f.name[*id as usize].is_some()));
    work.extend(f.regs.iter().flat_map(|r| [r.cur, r.next]));
    work.extend(f.reads.iter().flat_map(|r| [r.addr, r.node].into_iter().chain(r.en)));
    work.extend(f.writes.iter().flat_map(|w| [w.en, w.addr, w.data].into_iter().chain(w.lanes.map(|l| l.0))));
    work.extend(f.props.iter().flat_map(|p| [p.cond, p.rst]));
    while let Some(id) = work.pop() {
        if !std::mem::replace(&mut live[id as usize], true) {
            f.k[id as usize].each_arg(|a| work.push(a));
        }
    }
    live
}

fn uses(f: &Flat, live: &[bool]) -> Vec<u32> {
    let mut uses = vec![0; f.k.len()];
    for (id, k) in f.k.iter().enumerate() {
        if f.name[id].is_some() || matches!(k, K::Buf(_)) {
            uses[id] += 1;
        }
        if live[id] {
            k.each_arg(|a| uses[f.resolve(a) as usize] += 1);
        }
    }
    let state = f.regs.iter().map(|r| r.next).chain(f.reads.iter().flat_map(|r| [r.addr].into_iter().chain(r.en)));
    let w = f.writes.iter().flat_map(|w| [w.en, w.addr, w.data].into_iter().chain(w.lanes.map(|l| l.0)));
    for id in state.chain(w).chain(f.props.iter().map(|p| p.cond)) {
        uses[f.resolve(id) as usize] += 1;
    }
    uses
}

struct Compiler<'f> {
    f: &'f Flat,
    /// Place of each node's value.
    at: Vec<u32>,
    uses: Vec<u32>,
    /// Whether a parity reads the node.
    in_parity: Vec<bool>,
    values: Vec<u64>,
    ops: Vec<Op>,
}

impl Compiler<'_> {
    fn place(&self, id: Id) -> u32 {
        let id = self.f.resolve(id);
        debug_assert!(self.at[id as usize] != u32::MAX, "operand before its use");
        self.at[id as usize]
    }

    fn w(&self, id: Id) -> u32 {
        self.f.w[id as usize]
    }

    /// The operands of `a & constant`, when `id` is one that nothing else reads.
    fn masked(&self, id: Id) -> Option<(Id, Id)> {
        let id = self.f.resolve(id);
        match self.f.k[id as usize] {
            K::And(a, b) if self.uses[id as usize] == 1 && self.f.name[id as usize].is_none() => Some((a, b)),
            _ => None,
        }
    }

    fn node(&mut self, id: Id) {
        let k = self.f.k[id as usize].clone();
        if matches!(k, K::Buf(_)) {
            return;
        }
        if let K::And(..) = k {
            // Folded into the parity that is its only reader: no value of its own.
            if self.uses[id as usize] == 1 && self.f.name[id as usize].is_none() && self.in_parity[id as usize] {
                return;
            }
        }
        let w = self.w(id);
        let n = words(w) as u32;
        let d = self.values.len() as u32;
        self.at[id as usize] = d;
        self.values.resize(self.values.len() + n as usize, 0);
        let m = top_mask(w);
        let op = |what, a, b, x, sh| Op { what, n, d, a, b, x, sh, m };
        let one = n == 1;
        let pick = |s: Do, w: Do| if one { s } else { w };
        let new = match k {
            K::Const(c) => {
                self.values[d as usize..d as usize + n as usize].copy_from_slice(&c);
                return;
            }
            K::In(_) | K::Reg(_) | K::Read(..) => return,
            K::Wire(_) | K::InstOut(..) | K::Buf(_) | K::Cross(_) => unreachable!("made Buf by flattening"),
            K::Not(a) => op(pick(Do::Not1, Do::NotW), self.place(a), 0, 0, 0),
            K::And(a, b) => op(pick(Do::And1, Do::AndW), self.place(a), self.place(b), 0, 0),
            K::Or(a, b) => op(pick(Do::Or1, Do::OrW), self.place(a), self.place(b), 0, 0),
            K::Xor(a, b) => op(pick(Do::Xor1, Do::XorW), self.place(a), self.place(b), 0, 0),
            K::Add(a, b) => op(pick(Do::Add1, Do::AddW), self.place(a), self.place(b), 0, 0),
            K::Sub(a, b) => op(pick(Do::Sub1, Do::SubW), self.place(a), self.place(b), 0, 0),
            K::Mul(a, b) => op(pick(Do::Mul1, Do::MulW), self.place(a), self.place(b), 0, 0),
            K::Mux(s, a, b) => op(pick(Do::Mux1, Do::MuxW), self.place(a), self.place(b), self.place(s), 0),
            K::Eq(a, b) => self.bit_op(d, Do::Eq1, Do::EqW, a, b),
            K::Lt(a, b) => self.bit_op(d, Do::Lt1, Do::LtW, a, b),
            K::Slt(a, b) => self.bit_op(d, Do::Slt, Do::Slt, a, b),
            K::AllOnes(a) => self.bit_op(d, Do::All1, Do::AllW, a, a),
            K::AnyOne(a) => self.bit_op(d, Do::Any1, Do::AnyW, a, a),
            K::Parity(a) => match self.masked(a) {
                Some((x, y)) => self.bit_op(d, Do::ParityAnd, Do::ParityAnd, x, y),
                None => self.bit_op(d, Do::Parity1, Do::ParityW, a, a),
            },
            K::Slice(a, lo) => {
                let (q, r, src) = (lo / 64, lo % 64, words(self.w(a)) as u32);
                let p = self.place(a) + q;
                match (one, r + w <= 64) {
                    (true, true) => op(Do::Slice1, p, 0, 0, r),
                    (true, false) => op(Do::Slice2, p, 0, 0, r),
                    _ => op(Do::SliceW, p, 0, src - q, r),
                }
            }
            K::Shl(a, b) | K::Shr(a, b) => {
                let left = matches!(k, K::Shl(..));
                let (s, l) = if left { (Do::Shl1, Do::ShlW) } else { (Do::Shr1, Do::ShrW) };
                op(pick(s, l), self.place(a), self.place(b), words(self.w(b)) as u32, 0)
            }
            K::ReadAsync(mem, a) => op(Do::Row, self.place(a), words(self.w(a)) as u32, mem, 0),
            K::Cat(parts) => return self.cat(d, n, m, &parts),
        };
        self.ops.push(new);
    }

    fn bit_op(&self, d: u32, one: Do, wide: Do, a: Id, b: Id) -> Op {
        let w = self.w(a);
        let n = words(w) as u32;
        let sh = (64 - w % 64) % 64;
        Op { what: if n == 1 { one } else { wide }, n, d, a: self.place(a), b: self.place(b), x: 0, sh, m: top_mask(w) }
    }

    fn cat(&mut self, d: u32, n: u32, m: u64, parts: &[Id]) {
        if n == 1 && parts.len() == 2 {
            let (a, b, sh) = (self.place(parts[0]), self.place(parts[1]), self.w(parts[1]));
            return self.ops.push(Op { what: Do::Cat1, n, d, a, b, x: 0, sh, m });
        }
        let mut lo = 0;
        for p in parts.iter().rev() {
            let (a, w) = (self.place(*p), self.w(*p));
            let x = words(w) as u32;
            let (q, sh) = (lo / 64, lo % 64);
            let op = Op { what: Do::First, n, d, a, b: 0, x, sh, m };
            self.ops.push(if lo == 0 {
                op
            } else if sh + w <= 64 {
                Op { what: Do::Put1, d: d + q, ..op }
            } else {
                Op { what: Do::PutW, d: d + q, n: n - q, ..op }
            });
            lo += w;
        }
    }
}

impl Code {
    /// Words of all registers.
    pub fn state_words(&self) -> usize {
        self.state().map(|(_, w)| words(w)).sum()
    }

    /// Place and width of every register, those of read ports included.
    pub fn state(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.regs.iter().map(|r| (r.cur, r.w)).chain(self.reads.iter().map(|r| (r.cur, r.w)))
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Evaluates all operations.
    pub fn run(&self, v: &mut [u64], rows: &[Vec<u64>]) {
        for o in &self.ops {
            let (d, a, b, n) = (o.d as usize, o.a as usize, o.b as usize, o.n as usize);
            match o.what {
                Do::Not1 => v[d] = !v[a] & o.m,
                Do::And1 => v[d] = v[a] & v[b],
                Do::Or1 => v[d] = v[a] | v[b],
                Do::Xor1 => v[d] = v[a] ^ v[b],
                Do::Add1 => v[d] = v[a].wrapping_add(v[b]) & o.m,
                Do::Sub1 => v[d] = v[a].wrapping_sub(v[b]) & o.m,
                Do::Mul1 => v[d] = v[a].wrapping_mul(v[b]) & o.m,
                Do::Eq1 => v[d] = (v[a] == v[b]) as u64,
                Do::Lt1 => v[d] = (v[a] < v[b]) as u64,
                Do::Mux1 => v[d] = if v[o.x as usize] != 0 { v[a] } else { v[b] },
                Do::Slice1 => v[d] = (v[a] >> o.sh) & o.m,
                Do::Slice2 => v[d] = ((v[a] >> o.sh) | (v[a + 1] << (64 - o.sh))) & o.m,
                Do::Cat1 => v[d] = (v[a] << o.sh) | v[b],
                Do::Put1 => v[d] |= v[a] << o.sh,
                Do::All1 => v[d] = (v[a] == o.m) as u64,
                Do::Any1 => v[d] = (v[a] != 0) as u64,
                Do::Parity1 => v[d] = (v[a].count_ones() & 1) as u64,
                Do::Shl1 => v[d] = amount(v, b, o.x).map_or(0, |k| (v[a] << k) & o.m),
                Do::Shr1 => v[d] = amount(v, b, o.x).map_or(0, |k| v[a] >> k),
                Do::Row => {
                    let mem = o.x as usize;
                    row(v, rows, mem, self.shape[mem].0, d, (o.a, o.b), n);
                }
                _ => wide(v, o, d, a, b, n),
            }
        }
    }

    /// One clock edge of the domains for which `ticks` holds.
    pub fn edge(
        &self,
        v: &mut [u64],
        tmp: &mut [u64],
        rows: &mut [Vec<u64>],
        mems: &[FlatMem],
        ticks: impl Fn(u32) -> bool,
    ) {
        debug_assert_eq!(mems.len(), self.shape.len());
        let mut t = 0;
        for r in &self.regs {
            let n = words(r.w);
            let from = if ticks(r.domain) { r.next } else { r.cur } as usize;
            if n == 1 {
                tmp[t] = v[from];
            } else {
                tmp[t..t + n].copy_from_slice(&v[from..from + n]);
            }
            t += n;
        }
        for r in &self.reads {
            let n = r.n as usize;
            let on = ticks(r.domain) && r.en.is_none_or(|e| v[e as usize] != 0);
            if on {
                match address(v, r.addr, r.depth) {
                    Some(at) => tmp[t..t + n].copy_from_slice(&rows[r.mem as usize][at * n..at * n + n]),
                    None => tmp[t..t + n].fill(0),
                }
            } else {
                let cur = r.cur as usize;
                tmp[t..t + n].copy_from_slice(&v[cur..cur + n]);
            }
            t += n;
        }
        for w in &self.writes {
            if !ticks(w.domain) || v[w.en as usize] == 0 {
                continue;
            }
            let Some(at) = address(v, w.addr, w.depth) else { continue };
            let (n, data) = (w.n as usize, w.data as usize);
            let row = &mut rows[w.mem as usize][at * n..at * n + n];
            match w.lanes {
                None => row.copy_from_slice(&v[data..data + n]),
                Some((l, lane, count)) => {
                    for k in (0..count).filter(|k| v[l as usize + *k as usize / 64] >> (k % 64) & 1 == 1) {
                        for bit in k * lane..(k + 1) * lane {
                            let (q, m) = (bit as usize / 64, 1u64 << (bit % 64));
                            row[q] = (row[q] & !m) | (v[data + q] & m);
                        }
                    }
                }
            }
        }
        t = 0;
        for (at, w) in self.state() {
            let n = words(w);
            v[at as usize..at as usize + n].copy_from_slice(&tmp[t..t + n]);
            t += n;
        }
    }
}

/// A shift amount below 64, else none.
fn amount(v: &[u64], at: usize, n: u32) -> Option<u32> {
    let big = v[at] >= 64 || v[at + 1..at + n as usize].iter().any(|x| *x != 0);
    (!big).then(|| v[at] as u32)
}

fn address(v: &[u64], (at, n): (u32, u32), depth: u64) -> Option<usize> {
    let at = at as usize;
    (v[at] < depth && v[at + 1..at + n as usize].iter().all(|x| *x == 0)).then(|| v[at] as usize)
}

fn row(v: &mut [u64], rows: &[Vec<u64>], mem: usize, depth: u64, d: usize, addr: (u32, u32), n: usize) {
    match address(v, addr, depth) {
        Some(at) => v[d..d + n].copy_from_slice(&rows[mem][at * n..at * n + n]),
        None => v[d..d + n].fill(0),
    }
}

/// The operations on several words.
fn wide(v: &mut [u64], o: &Op, d: usize, a: usize, b: usize, n: usize) {
    match o.what {
        Do::EqW => v[d] = (v[a..a + n] == v[b..b + n]) as u64,
        Do::LtW => v[d] = v[a..a + n].iter().rev().lt(v[b..b + n].iter().rev()) as u64,
        Do::Slt => {
            let top = |at: usize| (v[at + n - 1] << o.sh) as i64 >> o.sh;
            let (x, y) = (top(a), top(b));
            let low = v[a..a + n - 1].iter().rev().lt(v[b..b + n - 1].iter().rev());
            v[d] = (x < y || x == y && low) as u64;
        }
        Do::AllW => v[d] = (v[a..a + n - 1].iter().all(|x| *x == !0) && v[a + n - 1] == o.m) as u64,
        Do::AnyW => v[d] = v[a..a + n].iter().any(|x| *x != 0) as u64,
        Do::ParityW => v[d] = (v[a..a + n].iter().fold(0, |x, y| x ^ y).count_ones() & 1) as u64,
        Do::ParityAnd => {
            let x = v[a..a + n].iter().zip(&v[b..b + n]).fold(0, |s, (x, y)| s ^ (x & y));
            v[d] = (x.count_ones() & 1) as u64;
        }
        Do::PutW => {
            for j in 0..o.x as usize {
                let x = v[a + j];
                v[d + j] |= x << o.sh;
                if o.sh != 0 && j + 1 < n {
                    v[d + j + 1] |= x >> (64 - o.sh);
                }
            }
        }
        Do::MuxW => {
            let from = if v[o.x as usize] != 0 { a } else { b };
            v.copy_within(from..from + n, d);
        }
        Do::First => {
            v.copy_within(a..a + o.x as usize, d);
            v[d + o.x as usize..d + n].fill(0);
        }
        _ => {
            // The result stands behind its operands.
            let (lo, hi) = v.split_at_mut(d);
            word_by_word(o, lo, &mut hi[..n], a, b);
        }
    }
}

/// The operations that make each word of the result `d` from words of the operands in `v`.
fn word_by_word(o: &Op, v: &[u64], d: &mut [u64], a: usize, b: usize) {
    let n = d.len();
    match o.what {
        Do::NotW => d.iter_mut().zip(&v[a..]).for_each(|(d, a)| *d = !a),
        Do::AndW => d.iter_mut().zip(&v[a..]).zip(&v[b..]).for_each(|((d, a), b)| *d = a & b),
        Do::OrW => d.iter_mut().zip(&v[a..]).zip(&v[b..]).for_each(|((d, a), b)| *d = a | b),
        Do::XorW => d.iter_mut().zip(&v[a..]).zip(&v[b..]).for_each(|((d, a), b)| *d = a ^ b),
        Do::AddW => chained(d, &v[a..], &v[b..], u64::overflowing_add),
        Do::SubW => chained(d, &v[a..], &v[b..], u64::overflowing_sub),
        Do::MulW => {
            d.fill(0);
            for i in 0..n {
                let mut carry = 0u128;
                for j in 0..n - i {
                    let t = v[a + i] as u128 * v[b + j] as u128 + d[i + j] as u128 + carry;
                    d[i + j] = t as u64;
                    carry = t >> 64;
                }
            }
        }
        Do::SliceW => shift_right(d, &v[a..a + o.x as usize], 0, o.sh),
        Do::ShlW => match wide_amount(v, b, o.x, n) {
            Some((q, r)) => {
                for j in (0..n).rev() {
                    let x = if j >= q { v[a + j - q] << r } else { 0 };
                    let y = if r > 0 && j > q { v[a + j - q - 1] >> (64 - r) } else { 0 };
                    d[j] = x | y;
                }
            }
            None => d.fill(0),
        },
        Do::ShrW => match wide_amount(v, b, o.x, n) {
            Some((q, r)) => shift_right(d, &v[a..a + n], q, r),
            None => d.fill(0),
        },
        w => unreachable!("{w:?} is done elsewhere"),
    }
    d[n - 1] &= o.m;
}

/// Sum or difference, the carry or borrow going from word to word.
fn chained(d: &mut [u64], a: &[u64], b: &[u64], step: fn(u64, u64) -> (u64, bool)) {
    let mut carry = false;
    for ((d, a), b) in d.iter_mut().zip(a).zip(b) {
        let (x, c1) = step(*a, *b);
        let (y, c2) = step(x, carry as u64);
        *d = y;
        carry = c1 | c2;
    }
}

fn shift_right(d: &mut [u64], src: &[u64], q: usize, r: u32) {
    for (j, d) in d.iter_mut().enumerate() {
        let x = src.get(q + j).copied().unwrap_or(0) >> r;
        let y = if r == 0 { 0 } else { src.get(q + j + 1).copied().unwrap_or(0) << (64 - r) };
        *d = x | y;
    }
}

/// Whole words and bits of a shift amount below `n` words, else none.
fn wide_amount(v: &[u64], at: usize, words: u32, n: usize) -> Option<(usize, u32)> {
    let big = v[at] >= 64 * n as u64 || v[at + 1..at + words as usize].iter().any(|x| *x != 0);
    (!big).then(|| ((v[at] / 64) as usize, (v[at] % 64) as u32))
}
