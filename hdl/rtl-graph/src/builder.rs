//! `B`, the builder of one module: literals, registers, wires, scopes, clock domains, properties.
use crate::mem::MemDef;
use crate::module::{Group, InstDef, Lib, PortDef};
use crate::names;
use crate::node::{Id, Node, K};
use crate::signal::{Operand, S};
use crate::words::{top_mask, words};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::panic::Location;

type Loc = &'static Location<'static>;

/// Builder of one module. Made by [`Lib::module`] and by `module!`; everything a module contains is made through it.
pub struct B {
    pub(crate) inner: RefCell<Inner>,
    lib: Lib,
}

/// What drives a net or a register: a base value, then conditional values, later ones winning.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drive {
    pub base: Option<Id>,
    pub conds: Vec<(Id, Id)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    Wire,
    Output,
    /// Input of an instance: instance index, port index in the child.
    InstIn(u32, u32),
}

/// A net driven by assignment.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Name for messages; the net's own name stands in its node.
    pub name: String,
    pub kind: SlotKind,
    pub node: Id,
    pub drive: Drive,
    pub loc: Loc,
}

#[derive(Clone, Debug)]
pub(crate) struct RegDef {
    pub node: Id,
    pub reset: Option<Vec<u64>>,
    pub domain: u32,
    pub drive: Drive,
}

/// A clock with its synchronous, active-high reset.
#[derive(Clone, Debug)]
pub(crate) struct DomainDef {
    pub name: String,
    pub clk: String,
    /// Node of the reset input.
    pub rst: Id,
}

/// Kind of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PropKind {
    Assert,
    Assume,
    Cover,
}

#[derive(Clone, Debug)]
pub(crate) struct Prop {
    pub kind: PropKind,
    pub name: String,
    pub cond: Id,
    pub domain: u32,
    pub loc: Loc,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inner {
    pub nodes: Vec<Node>,
    pub cse: HashMap<(K, u32), Id>,
    pub ports: Vec<PortDef>,
    pub groups: Vec<Group>,
    pub slots: Vec<Slot>,
    pub regs: Vec<RegDef>,
    pub mems: Vec<MemDef>,
    pub insts: Vec<InstDef>,
    pub props: Vec<Prop>,
    pub domains: Vec<DomainDef>,
    pub names: HashSet<String>,
    cur_domain: u32,
    when: Vec<Id>,
    prefix: String,
}

impl Inner {
    pub fn new_node(&mut self, k: K, w: u32, name: Option<String>, loc: Loc) -> Id {
        self.nodes.push(Node { k, w, name, attrs: vec![], loc });
        (self.nodes.len() - 1) as Id
    }

    /// A name not used before in this module: `name`, else `name_2`, `name_3`, …
    pub fn unique(&mut self, name: &str) -> String {
        if self.names.insert(name.to_string()) {
            return name.to_string();
        }
        let n = (2u32..).map(|k| format!("{name}_{k}")).find(|n| !self.names.contains(n)).expect("endless");
        self.names.insert(n.clone());
        n
    }
}

/// A clock domain of the module being built. The default domain has the ports `clk` and `rst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain(pub(crate) u32);

/// Chain of conditions begun by [`B::when`].
pub struct When<'a> {
    b: &'a B,
    /// None of the conditions before holds.
    none: S<'a>,
}

impl B {
    pub(crate) fn new(lib: Lib) -> B {
        let b = B { inner: RefCell::default(), lib };
        b.domain("");
        b
    }

    /// The library the module will belong to.
    pub fn lib(&self) -> &Lib {
        &self.lib
    }

    #[track_caller]
    pub(crate) fn node(&self, k: K, w: u32) -> S<'_> {
        assert!(w > 0, "a signal of zero width");
        let id = self.inner.borrow_mut().new_node(k, w, None, Location::caller());
        S { b: self, id, w }
    }

    /// Node for an operation; the same operation on the same operands is the same node.
    #[track_caller]
    pub(crate) fn op(&self, k: K, w: u32) -> S<'_> {
        assert!(w > 0, "a signal of zero width");
        let mut i = self.inner.borrow_mut();
        if let Some(&id) = i.cse.get(&(k.clone(), w)) {
            return S { b: self, id, w };
        }
        let id = i.new_node(k.clone(), w, None, Location::caller());
        i.cse.insert((k, w), id);
        S { b: self, id, w }
    }

    /// Literal `value` of `width` bits.
    ///
    /// # Panics
    /// When the value does not fit.
    #[track_caller]
    pub fn lit(&self, value: u64, width: u32) -> S<'_> {
        assert!(width >= 64 || value >> width == 0, "literal {value} does not fit {width} bits");
        assert!(width > 0, "a literal of zero width");
        let mut c = vec![0; words(width)];
        c[0] = value;
        self.op(K::Const(c.into()), width)
    }

    /// Wide literal, least significant word first; missing words are zero.
    #[track_caller]
    pub fn litw(&self, value: &[u64], width: u32) -> S<'_> {
        let n = words(width);
        let mut c = value.to_vec();
        c.resize(n.max(c.len()), 0);
        assert!(
            width > 0 && c[n..].iter().all(|x| *x == 0) && c[n - 1] & !top_mask(width) == 0,
            "wide literal does not fit {width} bits"
        );
        c.truncate(n);
        self.op(K::Const(c.into()), width)
    }

    /// All-zero literal.
    #[track_caller]
    pub fn zero(&self, width: u32) -> S<'_> {
        self.lit(0, width)
    }

    /// All-one literal.
    #[track_caller]
    pub fn ones(&self, width: u32) -> S<'_> {
        let mut c = vec![!0u64; words(width)];
        *c.last_mut().expect("a literal of zero width") = top_mask(width);
        self.litw(&c, width)
    }

    /// One-bit 1.
    pub fn high(&self) -> S<'_> {
        self.lit(1, 1)
    }

    /// One-bit 0.
    pub fn low(&self) -> S<'_> {
        self.lit(0, 1)
    }

    #[track_caller]
    pub(crate) fn full_name(&self, name: &str) -> String {
        let full = format!("{}{name}", self.inner.borrow().prefix);
        names::check(&full);
        full
    }

    #[track_caller]
    fn new_reg(&self, name: &str, w: u32, reset: Option<Vec<u64>>) -> S<'_> {
        assert!(w > 0, "register `{name}` of zero width");
        self.new_reg_full(&self.full_name(name), w, reset)
    }

    #[track_caller]
    pub(crate) fn new_reg_full(&self, full: &str, w: u32, reset: Option<Vec<u64>>) -> S<'_> {
        let mut i = self.inner.borrow_mut();
        let full = i.unique(full);
        let (r, domain) = (i.regs.len() as u32, i.cur_domain);
        let id = i.new_node(K::Reg(r), w, Some(full), Location::caller());
        i.regs.push(RegDef { node: id, reset, domain, drive: Drive::default() });
        S { b: self, id, w }
    }

    /// Register without reset, for payload. Assign it with [`S::set`], [`S::set_en`] or [`S::when`].
    #[track_caller]
    pub fn reg(&self, name: &str, width: u32) -> S<'_> {
        self.new_reg(name, width, None)
    }

    /// Register with a synchronous reset value, for control. The reset wins over every assignment.
    #[track_caller]
    pub fn reg_reset(&self, name: &str, width: u32, reset: u64) -> S<'_> {
        assert!(width >= 64 || reset >> width == 0, "reset value {reset} does not fit {width} bits");
        let mut c = vec![0; words(width)];
        if let Some(x) = c.first_mut() {
            *x = reset;
        }
        self.new_reg(name, width, Some(c))
    }

    /// Register with a wide synchronous reset value, least significant word first.
    #[track_caller]
    pub fn reg_reset_wide(&self, name: &str, width: u32, reset: &[u64]) -> S<'_> {
        self.litw(reset, width);
        let mut c = reset.to_vec();
        c.resize(words(width), 0);
        self.new_reg(name, width, Some(c))
    }

    /// Named net driven later by [`S::set`] (and [`S::when`] on top of it); readable at once.
    #[track_caller]
    pub fn wire(&self, name: &str, width: u32) -> S<'_> {
        let full = self.full_name(name);
        let full = self.inner.borrow_mut().unique(&full);
        self.slot(full.clone(), Some(full), width, SlotKind::Wire)
    }

    #[track_caller]
    pub(crate) fn slot(&self, msg_name: String, net: Option<String>, w: u32, kind: SlotKind) -> S<'_> {
        assert!(w > 0, "`{msg_name}` has zero width");
        let mut i = self.inner.borrow_mut();
        let s = i.slots.len() as u32;
        let id = i.new_node(K::Wire(s), w, net, Location::caller());
        i.slots.push(Slot { name: msg_name, kind, node: id, drive: Drive::default(), loc: Location::caller() });
        S { b: self, id, w }
    }

    /// Adds a driver to a register or net; `cond` of `None` makes it the base value.
    #[track_caller]
    pub(crate) fn drive(&self, target: S, cond: Option<Id>, value: Id, exclusive: bool) {
        let scope = self.inner.borrow().when.last().copied();
        let cond = match (scope, cond) {
            (Some(s), Some(c)) => Some((S { b: self, id: s, w: 1 } & S { b: self, id: c, w: 1 }).id),
            (s, c) => s.or(c),
        };
        let mut i = self.inner.borrow_mut();
        let node = &i.nodes[target.id as usize];
        let (k, loc) = (node.k.clone(), node.loc);
        let name = node.name.clone();
        let (d, name) = match k {
            K::Reg(r) => (&mut i.regs[r as usize].drive, name.unwrap_or_default()),
            K::Wire(s) => {
                let s = &mut i.slots[s as usize];
                (&mut s.drive, s.name.clone())
            }
            K::In(_) => panic!("`{}` is an input of this module: it cannot be driven here", name.unwrap_or_default()),
            K::InstOut(..) => {
                panic!("`{}` is driven by the instance: it cannot be driven here", name.unwrap_or_default())
            }
            _ => panic!("an expression cannot be assigned; only registers, wires, outputs and inputs of instances can"),
        };
        let assigned = d.base.is_some() || !d.conds.is_empty();
        if assigned && (exclusive || cond.is_none()) {
            drop(i);
            panic!("`{name}` (made at {loc}) is driven twice");
        }
        match cond {
            None => d.base = Some(value),
            Some(c) => d.conds.push((c, value)),
        }
    }

    /// Assignments, memory writes and properties inside `f` happen only when `cond` holds.
    ///
    /// Scopes nest; of several assignments to one target the last whose condition holds wins.
    #[track_caller]
    pub fn when<'a>(&'a self, cond: S<'a>, f: impl FnOnce()) -> When<'a> {
        assert_eq!(cond.w, 1, "a condition must be 1 bit wide, not {}", cond.w);
        self.guarded(cond, f);
        When { b: self, none: !cond }
    }

    fn guarded<'a>(&'a self, cond: S<'a>, f: impl FnOnce()) {
        let all = match self.scope_cond() {
            Some(outer) => outer & cond,
            None => cond,
        };
        self.inner.borrow_mut().when.push(all.id);
        f();
        self.inner.borrow_mut().when.pop();
    }

    /// The condition of the enclosing [`B::when`] scopes.
    pub(crate) fn scope_cond(&self) -> Option<S<'_>> {
        self.inner.borrow().when.last().map(|id| S { b: self, id: *id, w: 1 })
    }

    /// `en` and the enclosing [`B::when`] scopes.
    #[track_caller]
    pub(crate) fn scoped<'a>(&'a self, en: S<'a>) -> S<'a> {
        assert_eq!(en.w, 1, "an enable must be 1 bit wide, not {}", en.w);
        match self.scope_cond() {
            Some(c) => c & en,
            None => en,
        }
    }

    /// Prefixes `prefix_` to the names of everything made inside `f`, so that a helper can be used twice.
    #[track_caller]
    pub fn scope<T>(&self, prefix: &str, f: impl FnOnce() -> T) -> T {
        names::check_part(prefix);
        let old = self.inner.borrow().prefix.clone();
        self.inner.borrow_mut().prefix = format!("{old}{prefix}_");
        let r = f();
        self.inner.borrow_mut().prefix = old;
        r
    }

    /// Declares (or finds) a clock domain with the input ports `NAME_clk` and `NAME_rst`; `""` is the default one.
    #[track_caller]
    pub fn domain(&self, name: &str) -> Domain {
        if let Some(k) = self.inner.borrow().domains.iter().position(|d| d.name == name) {
            return Domain(k as u32);
        }
        let k = self.inner.borrow().domains.len() as u32;
        let pre = if name.is_empty() { String::new() } else { format!("{name}_") };
        let (clk, rst) = (format!("{pre}clk"), format!("{pre}rst"));
        self.add_input(&clk, 1, Some((k, false)));
        let rst = self.add_input(&rst, 1, Some((k, true))).id;
        self.inner.borrow_mut().domains.push(DomainDef { name: name.into(), clk, rst });
        Domain(k)
    }

    /// Registers, memory ports, properties and default clocks of instances made inside `f` belong to `domain`.
    pub fn in_domain<T>(&self, domain: Domain, f: impl FnOnce() -> T) -> T {
        let old = std::mem::replace(&mut self.inner.borrow_mut().cur_domain, domain.0);
        let r = f();
        self.inner.borrow_mut().cur_domain = old;
        r
    }

    /// The domain in force here.
    pub fn current_domain(&self) -> Domain {
        Domain(self.inner.borrow().cur_domain)
    }

    /// The reset input of the domain in force here (active high, synchronous).
    pub fn rst(&self) -> S<'_> {
        let i = self.inner.borrow();
        S { b: self, id: i.domains[i.cur_domain as usize].rst, w: 1 }
    }

    #[track_caller]
    fn prop(&self, kind: PropKind, name: &str, cond: S) {
        assert_eq!(cond.w, 1, "a property must be 1 bit wide, not {}", cond.w);
        let full = self.full_name(name);
        self.prop_full(kind, &full, cond);
    }

    #[track_caller]
    pub(crate) fn prop_full(&self, kind: PropKind, full: &str, cond: S) {
        let mut i = self.inner.borrow_mut();
        let (name, domain) = (i.unique(full), i.cur_domain);
        i.props.push(Prop { kind, name, cond: cond.id, domain, loc: Location::caller() });
    }

    fn implied<'a>(&'a self, cond: S<'a>) -> S<'a> {
        match self.scope_cond() {
            Some(c) => !c | cond,
            None => cond,
        }
    }

    /// Property that holds at every clock edge outside reset; inside [`B::when`] only when the scope's condition does.
    ///
    /// Checked by the interpreter, by Verilator and by yosys-smtbmc; absent in synthesis.
    #[track_caller]
    pub fn assert<'a>(&'a self, name: &str, cond: S<'a>) {
        self.prop(PropKind::Assert, name, self.implied(cond));
    }

    /// Property of the surroundings: checked like [`B::assert`] in simulation, assumed in a formal proof.
    #[track_caller]
    pub fn assume<'a>(&'a self, name: &str, cond: S<'a>) {
        self.prop(PropKind::Assume, name, self.implied(cond));
    }

    /// Event worth seeing in a test: counted by the interpreter and by Verilator's user coverage.
    #[track_caller]
    pub fn cover<'a>(&'a self, name: &str, cond: S<'a>) {
        let c = self.scoped(cond);
        self.prop(PropKind::Cover, name, c);
    }

    /// Concatenation, most significant part first.
    #[track_caller]
    pub fn cat<'a>(&'a self, msb_first: &[S<'a>]) -> S<'a> {
        assert!(!msb_first.is_empty(), "a concatenation of nothing");
        for s in msb_first {
            self.own(*s);
        }
        crate::fold::cat(self, msb_first)
    }

    /// Panics when `s` comes from another module's builder.
    #[track_caller]
    pub(crate) fn own(&self, s: S) {
        assert!(std::ptr::eq(self, s.b), "a signal of another module: connect modules through ports");
    }

    /// First value whose condition holds, else `default`.
    #[track_caller]
    pub fn select<'a>(&'a self, arms: &[(S<'a>, S<'a>)], default: impl Operand<'a>) -> S<'a> {
        let w = default.operand_width().or(arms.first().map(|a| a.1.w));
        let w = w.expect("a selection among nothing");
        let mut r = default.sized(self, w);
        for (c, v) in arms.iter().rev() {
            r = c.mux(*v, r);
        }
        r
    }

    /// Or of the values whose condition holds (zero if none does): a selection by one-hot conditions without priority.
    #[track_caller]
    pub fn one_hot_select<'a>(&'a self, arms: &[(S<'a>, S<'a>)]) -> S<'a> {
        let mut parts = vec![];
        for (c, v) in arms {
            parts.push(c.rep(v.w) & *v);
        }
        self.or_tree(&parts)
    }

    /// `values[index]`; an index beyond the end gives one of the values.
    #[track_caller]
    pub fn pick<'a>(&'a self, index: S<'a>, values: &[S<'a>]) -> S<'a> {
        assert!(!values.is_empty(), "a selection among nothing");
        if values.len() == 1 {
            return values[0];
        }
        let bits = crate::words::index_bits(values.len() as u64);
        assert!(index.w >= bits, "{} values need {bits} index bits, not {}", values.len(), index.w);
        let half = 1usize << (bits - 1);
        let (lo, hi) = values.split_at(half);
        let top = index.bits(bits - 1, index.w - bits + 1).any();
        if bits == 1 {
            return top.mux(hi[0], lo[0]);
        }
        let sub = index.trunc(bits - 1);
        let high = if hi.len() == 1 { hi[0] } else { self.pick(sub, hi) };
        top.mux(high, self.pick(sub, lo))
    }

    /// Or of all, as a balanced tree.
    #[track_caller]
    pub fn or_tree<'a>(&'a self, v: &[S<'a>]) -> S<'a> {
        same_widths(v);
        self.tree(v, |a, b| a | b)
    }

    /// And of all, as a balanced tree.
    #[track_caller]
    pub fn and_tree<'a>(&'a self, v: &[S<'a>]) -> S<'a> {
        same_widths(v);
        self.tree(v, |a, b| a & b)
    }

    /// Exclusive or of all, as a balanced tree.
    #[track_caller]
    pub fn xor_tree<'a>(&'a self, v: &[S<'a>]) -> S<'a> {
        same_widths(v);
        self.tree(v, |a, b| a ^ b)
    }

    /// Balanced reduction by `f`.
    #[track_caller]
    pub fn tree<'a>(&'a self, v: &[S<'a>], f: impl Fn(S<'a>, S<'a>) -> S<'a> + Copy) -> S<'a> {
        match v {
            [] => panic!("a reduction of nothing"),
            [x] => *x,
            _ => {
                let (a, c) = v.split_at(v.len().div_ceil(2));
                f(self.tree(a, f), self.tree(c, f))
            }
        }
    }
}

/// Panics, at the caller's line, when the widths differ.
#[track_caller]
fn same_widths(v: &[S]) {
    if let Some((k, s)) = v.iter().enumerate().find(|(_, s)| s.w != v[0].w) {
        panic!("{} bits in place 0 and {} in place {k}: widths must be equal", v[0].w, s.w);
    }
}

impl<'a> When<'a> {
    /// Else-if: inside `f` none of the conditions before holds and `cond` does.
    #[track_caller]
    pub fn elif(self, cond: S<'a>, f: impl FnOnce()) -> When<'a> {
        assert_eq!(cond.w, 1, "a condition must be 1 bit wide, not {}", cond.w);
        self.b.guarded(self.none & cond, f);
        When { b: self.b, none: self.none & !cond }
    }

    /// Else: inside `f` none of the conditions before holds.
    pub fn otherwise(self, f: impl FnOnce()) {
        self.b.guarded(self.none, f);
    }
}
