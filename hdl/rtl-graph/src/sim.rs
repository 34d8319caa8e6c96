//! The interpreter: a flattened module run from a compact list of operations.
//!
//! Two-state, one settle per clock. Use it in unit tests of modules; Verilator is the reference for whole designs.
//! Registers without reset and memories without content start at zero, or at random values after [`Sim::randomize`].
use crate::builder::PropKind;
use crate::code::{compile, Code};
use crate::flat::{FlatMem, FlatProp};
use crate::module::ModDef;
use crate::words::{top_mask, words};
use std::collections::BTreeMap;

/// Place of a port or net in a [`Sim`], found once by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    pub(crate) at: u32,
    pub(crate) w: u32,
    pub(crate) is_input: bool,
}

impl Pin {
    /// Width in bits.
    pub fn width(self) -> u32 {
        self.w
    }
}

/// Interpreter of one module and everything below it.
pub struct Sim {
    pub(crate) v: Vec<u64>,
    pub(crate) code: Code,
    pub(crate) mems: Vec<FlatMem>,
    pub(crate) rows: Vec<Vec<u64>>,
    tmp: Vec<u64>,
    pins: BTreeMap<String, Pin>,
    props: Vec<FlatProp>,
    /// Cover counters, by index of the property.
    counts: Vec<u64>,
    domains: Vec<String>,
    cycles: u64,
    settled: bool,
    failures: Option<Vec<String>>,
}

impl Sim {
    /// Interpreter of `def`.
    ///
    /// # Panics
    /// On a combinational loop, with the nets on it.
    #[track_caller]
    pub fn new(def: &ModDef) -> Sim {
        let c = compile(def);
        let rows = c.mems.iter().map(|m| m.init.clone()).collect();
        let counts = vec![0; c.props.len()];
        Sim {
            v: c.values,
            tmp: vec![0; c.code.state_words()],
            code: c.code,
            mems: c.mems,
            rows,
            pins: c.pins,
            counts,
            props: c.props,
            domains: def.domains().iter().map(|s| s.to_string()).collect(),
            cycles: 0,
            settled: false,
            failures: None,
        }
    }

    /// Finds a port, or a named net or register below (`inst.net`).
    #[track_caller]
    pub fn pin(&self, name: &str) -> Pin {
        match self.pins.get(name) {
            Some(p) => *p,
            None => panic!("no port or net `{name}` in this design"),
        }
    }

    /// Names of all ports and named nets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.pins.keys().map(|s| s.as_str())
    }

    /// Sets an input port of at most 64 bits.
    #[track_caller]
    pub fn set(&mut self, pin: Pin, value: u64) {
        assert!(pin.is_input, "only input ports are set");
        assert!(pin.w >= 64 || value >> pin.w == 0, "value {value:#x} does not fit {} bits", pin.w);
        let at = pin.at as usize;
        let n = words(pin.w);
        if self.v[at] != value || n > 1 {
            self.v[at] = value;
            self.v[at + 1..at + n].fill(0);
            self.settled = false;
        }
    }

    /// Sets an input port, least significant word first; missing words are zero.
    #[track_caller]
    pub fn set_wide(&mut self, pin: Pin, value: &[u64]) {
        assert!(pin.is_input, "only input ports are set");
        let n = words(pin.w);
        let fits = value.len() <= n && (value.len() < n || value[n - 1] & !top_mask(pin.w) == 0);
        assert!(fits, "the value does not fit {} bits", pin.w);
        let at = pin.at as usize;
        self.v[at..at + value.len()].copy_from_slice(value);
        self.v[at + value.len()..at + n].fill(0);
        self.settled = false;
    }

    /// Value of a port or net of at most 64 bits, settled.
    #[track_caller]
    pub fn get(&mut self, pin: Pin) -> u64 {
        assert!(pin.w <= 64, "{} bits do not fit u64: use get_wide", pin.w);
        self.eval();
        self.v[pin.at as usize]
    }

    /// Value of a port or net, settled, least significant word first.
    pub fn get_wide(&mut self, pin: Pin) -> &[u64] {
        self.eval();
        &self.v[pin.at as usize..pin.at as usize + words(pin.w)]
    }

    /// [`Sim::set`] by name.
    #[track_caller]
    pub fn poke(&mut self, name: &str, value: u64) {
        let p = self.pin(name);
        self.set(p, value);
    }

    /// [`Sim::set_wide`] by name.
    #[track_caller]
    pub fn poke_wide(&mut self, name: &str, value: &[u64]) {
        let p = self.pin(name);
        self.set_wide(p, value);
    }

    /// [`Sim::get`] by name.
    #[track_caller]
    pub fn peek(&mut self, name: &str) -> u64 {
        let p = self.pin(name);
        self.get(p)
    }

    /// [`Sim::get_wide`] by name.
    #[track_caller]
    pub fn peek_wide(&mut self, name: &str) -> Vec<u64> {
        let p = self.pin(name);
        self.get_wide(p).to_vec()
    }

    /// Settles the combinational logic; done by every reading method.
    pub fn eval(&mut self) {
        if !self.settled {
            self.code.run(&mut self.v, &self.rows);
            self.settled = true;
        }
    }

    /// One edge of every clock.
    ///
    /// # Panics
    /// When an assertion of the design fails, unless [`Sim::collect_failures`] was called.
    #[track_caller]
    pub fn clock(&mut self) {
        self.edge(None);
    }

    /// `n` edges of every clock.
    #[track_caller]
    pub fn clocks(&mut self, n: u64) {
        for _ in 0..n {
            self.clock();
        }
    }

    /// One edge of the named clocks (`""` is the default one) at the same instant.
    #[track_caller]
    pub fn clock_domains(&mut self, names: &[&str]) {
        let mut on = vec![false; self.domains.len()];
        for n in names {
            match self.domains.iter().position(|d| d == n) {
                Some(k) => on[k] = true,
                None => panic!("no clock domain `{n}` in this design"),
            }
        }
        self.edge(Some(&on));
    }

    /// Holds every reset for `n` clocks, then releases them.
    #[track_caller]
    pub fn reset(&mut self, n: u64) {
        let pins: Vec<Pin> = self.domains.iter().map(|d| self.pins[&rst_name(d)]).collect();
        pins.iter().for_each(|p| self.set(*p, 1));
        self.clocks(n);
        pins.iter().for_each(|p| self.set(*p, 0));
    }

    #[track_caller]
    fn edge(&mut self, on: Option<&[bool]>) {
        self.eval();
        let ticks = |d: u32| on.is_none_or(|o| o[d as usize]);
        for (p, (k, at)) in self.props.iter().zip(self.counts.iter_mut().zip(&self.code.props)) {
            if !ticks(p.domain) || self.v[at.1 as usize] != 0 {
                continue;
            }
            let holds = self.v[at.0 as usize] != 0;
            match p.kind {
                PropKind::Cover => *k += holds as u64,
                PropKind::Assert | PropKind::Assume if !holds => {
                    let s = format!("assertion `{}` ({}) failed in cycle {}", p.name, p.loc, self.cycles);
                    match &mut self.failures {
                        Some(f) => f.push(s),
                        None => panic!("{s}"),
                    }
                }
                _ => {}
            }
        }
        self.code.edge(&mut self.v, &mut self.tmp, &mut self.rows, &self.mems, ticks);
        self.cycles += 1;
        self.settled = false;
    }

    /// Edges so far.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Records failing assertions instead of panicking.
    pub fn collect_failures(&mut self) {
        self.failures.get_or_insert_default();
    }

    /// The assertions that failed, when they are collected.
    pub fn failures(&self) -> &[String] {
        self.failures.as_deref().unwrap_or_default()
    }

    /// How often a cover point was seen.
    #[track_caller]
    pub fn covered(&self, name: &str) -> u64 {
        match self.props.iter().position(|p| p.kind == PropKind::Cover && p.name == name) {
            Some(k) => self.counts[k],
            None => panic!("no cover point `{name}` in this design"),
        }
    }

    /// Gives registers and memories without initial content random values: finds missing resets.
    pub fn randomize(&mut self, seed: u64) {
        let mut x = seed ^ 0x9e37_79b9_7f4a_7c15;
        let mut next = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        for (at, w) in self.code.state() {
            let n = words(w);
            for k in 0..n {
                self.v[at as usize + k] = next() & if k + 1 == n { top_mask(w) } else { !0 };
            }
        }
        for (m, rows) in self.mems.iter().zip(&mut self.rows).filter(|(m, _)| !m.has_init) {
            let n = words(m.w);
            for (k, x) in rows.iter_mut().enumerate() {
                *x = next() & if k % n + 1 == n { top_mask(m.w) } else { !0 };
            }
        }
        self.settled = false;
    }

    #[track_caller]
    fn mem(&self, name: &str, row: u64) -> (usize, usize, usize) {
        let k = match self.mems.iter().position(|m| m.name == name) {
            Some(k) => k,
            None => panic!("no memory `{name}` in this design"),
        };
        assert!(row < self.mems[k].depth, "memory `{name}` has no row {row}");
        let n = words(self.mems[k].w);
        (k, row as usize * n, n)
    }

    /// A memory's row, least significant word first.
    #[track_caller]
    pub fn mem_row(&self, name: &str, row: u64) -> Vec<u64> {
        let (k, at, n) = self.mem(name, row);
        self.rows[k][at..at + n].to_vec()
    }

    /// Overwrites a memory's row.
    #[track_caller]
    pub fn set_mem_row(&mut self, name: &str, row: u64, value: &[u64]) {
        let (k, at, n) = self.mem(name, row);
        let mut v = value.to_vec();
        v.resize(n, 0);
        assert!(value.len() <= n && v[n - 1] & !top_mask(self.mems[k].w) == 0, "the value does not fit the row");
        self.rows[k][at..at + n].copy_from_slice(&v);
        self.settled = false;
    }

    /// Operations executed a settle: a measure of size.
    pub fn ops(&self) -> usize {
        self.code.len()
    }
}

fn rst_name(domain: &str) -> String {
    if domain.is_empty() {
        "rst".into()
    } else {
        format!("{domain}_rst")
    }
}
