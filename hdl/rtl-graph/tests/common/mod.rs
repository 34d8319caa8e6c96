//! Random modules made of every construct, with random stimuli, for comparing engines.
#![allow(dead_code)]
use rtl_graph::*;
use std::sync::Arc;

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    pub fn wide(&mut self, w: u32) -> Vec<u64> {
        // Mostly random, sometimes all zeros, all ones or a lone bit: carries and comparisons meet their corners.
        let n = (w as usize).div_ceil(64);
        let mut v: Vec<u64> = match self.below(6) {
            0 => vec![0; n],
            1 => vec![!0; n],
            2 => {
                let k = self.below(w as u64) as usize;
                (0..n).map(|i| if i == k / 64 { 1 << (k % 64) } else { 0 }).collect()
            }
            _ => (0..n).map(|_| self.next()).collect(),
        };
        if w % 64 != 0 {
            v[n - 1] &= (1 << (w % 64)) - 1;
        }
        v
    }
}

pub const WIDTHS: [u32; 14] = [1, 1, 2, 3, 7, 8, 16, 31, 33, 63, 64, 65, 127, 200];

fn fit<'a>(s: S<'a>, w: u32) -> S<'a> {
    s.resize(w)
}

/// One random operation on signals of the pool.
fn operation<'a>(b: &'a B, r: &mut Rng, pool: &[S<'a>], k: usize) -> S<'a> {
    let any = |r: &mut Rng| pool[r.below(pool.len() as u64) as usize];
    let a = any(r);
    let w = a.width();
    let c = fit(any(r), w);
    let d = fit(any(r), w);
    let bit = any(r).any();
    let bit2 = any(r).bit(0);
    let narrow = fit(any(r), 6.min(w.max(2)));
    match k % 44 {
        0 => a & c,
        1 => a | c,
        2 => a ^ c,
        3 => !a,
        4 => a + c,
        5 => a - c,
        6 => a.eq(c),
        7 => a.ne(c),
        8 => a.lt(c),
        9 => a.le(c),
        10 => a.gt(c),
        11 => a.ge(c),
        12 => a.lt_signed(c),
        13 => bit.mux(a, c),
        14 => {
            let n = 1 + r.below(w as u64) as u32;
            a.bits(r.below((w - n + 1) as u64) as u32, n)
        }
        15 => fit(a, w.min(70)).cat(fit(c, w.min(50))),
        16 => a.any(),
        17 => a.all(),
        18 => a.xor(),
        19 => a.shl(r.below(w as u64 + 2) as u32),
        20 => a.shr(r.below(w as u64 + 2) as u32),
        21 => a.shl_by(narrow),
        22 => a.shr_by(narrow),
        23 => fit(a, w.min(100)).add_carry(fit(c, w.min(100))),
        24 => fit(a, w.min(100)).sub_borrow(fit(c, w.min(100))),
        25 => a.mul(c),
        26 => fit(a, w.min(40)).mul_full(fit(c, 9)),
        27 => b.select(&[(bit, a), (bit2, c)], d),
        28 => b.one_hot_select(&[(bit, a), (bit2, c), (!bit, d)]),
        29 => {
            let n = 2 + r.below(6) as usize;
            let v: Vec<S> = (0..n).map(|_| fit(any(r), w)).collect();
            b.pick(fit(c, index_bits(n as u64)), &v)
        }
        30 => a.first_one().1,
        31 => a.last_one().1,
        32 => a.lowest_one(),
        33 => a.trailing_ones(),
        34 => a.count_ones(),
        35 => fit(a, w.min(5)).one_hot(1 << w.min(5)),
        36 => fit(a, w.min(16)).one_hot_index(),
        37 => a.reverse(),
        38 => a.rotl_by(fit(c, (31 - w.leading_zeros()).max(1))),
        39 => fit(a, 8 * w.div_ceil(8)).swap_bytes(),
        40 => {
            let n = w.min(4);
            let t: Vec<u64> = (0..1 << n).map(|_| r.next() & 0x7ff).collect();
            fit(a, n).lookup(&format!("rom{k}"), &t, 11)
        }
        41 => {
            let rows: Vec<Vec<u64>> = (0..5).map(|_| r.wide(w)).collect();
            a.parity_rows(&rows)
        }
        42 => a.neg().sext(w + 5).named(&format!("neg{k}")),
        _ => bit.rep(w) & a | !bit.rep(w) & b.litw(&r.wide(w), w),
    }
}

/// State elements over the pool: registers of every kind of assignment, memories of every kind of port.
fn state<'a>(b: &'a B, r: &mut Rng, pool: &mut Vec<S<'a>>) {
    let bit = |r: &mut Rng, pool: &[S<'a>]| pool[r.below(pool.len() as u64) as usize].xor();
    let val = |r: &mut Rng, pool: &[S<'a>], w: u32| fit(pool[r.below(pool.len() as u64) as usize], w);
    let (c0, c1, c2) = (bit(r, pool), bit(r, pool), bit(r, pool));
    let regs: Vec<S> = (0..5)
        .map(|k| {
            let w = WIDTHS[r.below(14) as usize];
            b.reg_reset_wide(&format!("r{k}"), w, &r.wide(w))
        })
        .collect();
    regs[0].set(val(r, pool, regs[0].width()));
    regs[1].set_en(c0, val(r, pool, regs[1].width()));
    regs[2].set(val(r, pool, regs[2].width()));
    regs[2].when(c1, val(r, pool, regs[2].width()));
    regs[2].when(c2, val(r, pool, regs[2].width()));
    let (x, y, z) = (val(r, pool, regs[3].width()), val(r, pool, regs[3].width()), val(r, pool, regs[3].width()));
    b.when(c0, || {
        regs[3].set(x);
        b.when(c1, || regs[4].set(regs[4] + 1));
    })
    .elif(c2, || regs[3].set(y))
    .otherwise(|| regs[4].set(regs[3].resize(regs[4].width())));
    let wire = b.wire("w", regs[3].width());
    wire.set(z);
    wire.when(c2, regs[3]);
    pool.extend(regs);
    pool.push(wire);
    let m = b.mem("simple", 16, 65).zeroed();
    m.write(c0, val(r, pool, 4), val(r, pool, 65));
    pool.push(m.read(val(r, pool, 4)));
    let m = b.mem("en", 8, 7).zeroed();
    m.write(c1, val(r, pool, 3), val(r, pool, 7));
    pool.push(m.read_en(c2, val(r, pool, 3)));
    pool.push(m.read_registered(val(r, pool, 3)));
    let m = b.mem("lanes", 4, 72).init(vec![vec![1, 2], vec![3, 4]]).style(RamStyle::Block);
    m.write_lanes(c2, val(r, pool, 2), val(r, pool, 72), val(r, pool, 9));
    pool.push(m.read(val(r, pool, 2)));
    let m = b.mem("lutram", 8, 33).zeroed().style(RamStyle::Distributed);
    m.write(c0, val(r, pool, 3), val(r, pool, 33));
    pool.push(m.read_async(val(r, pool, 3)));
    let m = b.mem("dual", 8, 20).zeroed().style(RamStyle::Ultra);
    // The two ports write different halves, so that they never meet.
    let (lo, hi) = (b.low().cat(val(r, pool, 2)), b.high().cat(val(r, pool, 2)));
    let q = m.port(c0, c1, lo, val(r, pool, 20));
    pool.push(q);
    pool.push(m.port_lanes(c2 | c0, c1 ^ c0, hi, val(r, pool, 20), val(r, pool, 4)));
    b.cover("seen", c0 & c1);
}

fn inputs<'a>(b: &'a B) -> Vec<S<'a>> {
    WIDTHS.iter().enumerate().map(|(k, w)| b.input(&format!("i{k}"), *w)).collect()
}

/// A random module of all operations and all kinds of state. Outputs `o0` ….
pub fn leaf(lib: &Lib, name: &str, seed: u64) -> Arc<ModDef> {
    lib.module(name, |b| {
        let r = &mut Rng(seed);
        let mut pool = inputs(b);
        for k in 0..22 {
            pool.push(operation(b, r, &pool, k * 2));
        }
        state(b, r, &mut pool);
        let mut outs = vec![];
        for k in 0..66 {
            // The last round of operations is seen at the outputs one by one.
            let s = operation(b, r, &pool, k);
            if s.width() <= 300 {
                outs.push(s);
            }
            if k % 4 == 0 && s.width() <= 200 {
                pool.push(s);
            }
        }
        for (k, s) in outs.iter().enumerate() {
            b.output(&format!("o{k}"), s.width()).set(*s);
        }
    })
}

/// A module of two random ones, one fed by the other.
pub fn top(lib: &Lib, seed: u64) -> Arc<ModDef> {
    let (x, y) = (leaf(lib, &format!("leaf_{seed}"), seed), leaf(lib, &format!("leaf_{}", seed + 1), seed + 1));
    lib.module(&format!("top_{seed}"), |b| {
        let ins = inputs(b);
        let (u, v) = (b.instance("u", &x), b.instance("v", &y));
        let outs = |d: &ModDef| d.ports.iter().filter(|p| p.is_output).map(|p| p.name.clone()).collect::<Vec<_>>();
        let from_u: Vec<S> = outs(&x).iter().map(|n| u.port::<S>(n)).collect();
        for (k, s) in ins.iter().enumerate() {
            u.port::<S>(&format!("i{k}")).set(*s);
            v.port::<S>(&format!("i{k}")).set(fit(from_u[k * 3], s.width()) ^ *s);
        }
        for (k, s) in from_u.iter().enumerate() {
            b.output(&format!("u{k}"), s.width()).set(*s);
        }
        for (k, n) in outs(&y).iter().enumerate() {
            let s: S = v.port(n);
            b.output(&format!("v{k}"), s.width()).set(s);
        }
    })
}

/// Stimuli of `n` cycles: reset, then the inputs.
pub fn stimuli(seed: u64, n: usize) -> Vec<(u64, Vec<Vec<u64>>)> {
    let mut r = Rng(seed ^ 0xabcd);
    (0..n).map(|c| ((c < 2 || r.below(40) == 0) as u64, WIDTHS.iter().map(|w| r.wide(*w)).collect())).collect()
}

pub fn hex(v: &[u64], w: u32) -> String {
    let digits = w.div_ceil(4) as usize;
    let all: String = v.iter().rev().map(|x| format!("{x:016x}")).collect();
    all[all.len() - digits..].to_string()
}

/// Output ports with their widths.
pub fn outputs(d: &ModDef) -> Vec<(String, u32)> {
    d.ports.iter().filter(|p| p.is_output).map(|p| (p.name.clone(), p.width)).collect()
}

/// What the interpreter answers: a line of hexadecimal outputs a cycle, before the edge.
pub fn interpret(d: &ModDef, st: &[(u64, Vec<Vec<u64>>)]) -> Vec<String> {
    let mut s = d.sim();
    let outs: Vec<(Pin, u32)> = outputs(d).iter().map(|(n, w)| (s.pin(n), *w)).collect();
    let mut lines = vec![];
    for (rst, ins) in st {
        s.poke("rst", *rst);
        for (k, v) in ins.iter().enumerate() {
            s.poke_wide(&format!("i{k}"), v);
        }
        lines.push(outs.iter().map(|(p, w)| hex(s.get_wide(*p), *w)).collect::<Vec<_>>().join(" "));
        s.clock();
    }
    lines
}

/// Says which output differs first.
pub fn compare(d: &ModDef, seed: u64, mine: &[String], theirs: &[String]) {
    let names: Vec<String> = outputs(d).into_iter().map(|o| o.0).collect();
    assert_eq!(mine.len(), theirs.len(), "seed {seed}: number of cycles");
    for (cycle, (x, y)) in mine.iter().zip(theirs).enumerate() {
        for (k, (x, y)) in x.split(' ').zip(y.split(' ')).enumerate() {
            assert!(x == y, "seed {seed}, cycle {cycle}, output {}: interpreter {x}, Verilog {y}", names[k]);
        }
    }
}

/// A directory for one test's files.
pub fn scratch(name: &str) -> std::path::PathBuf {
    let d = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&d).expect("scratch directory");
    d
}

/// Runs a tool; its output, or a panic with it.
pub fn run(cmd: &mut std::process::Command) -> String {
    let out = cmd.output().unwrap_or_else(|e| panic!("cannot run {cmd:?}: {e}"));
    let text = String::from_utf8_lossy(&out.stdout).to_string();
    assert!(out.status.success(), "{cmd:?} failed:\n{text}\n{}", String::from_utf8_lossy(&out.stderr));
    text
}
