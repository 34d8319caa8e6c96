//! Clock-domain crossings: found wherever they are not declared, and the two safe ways to declare them.
//!
//! A register, memory port or instance that samples, through combinational logic, a register of another clock is a
//! mistake unless the path says so. [`B::synchronized`] takes one bit over through two flip-flops; [`S::crossing`] marks
//! a value that is stable when it is sampled, by a protocol around it (the rows of an asynchronous FIFO). The check runs
//! when a module is finished and sees through instances: each module keeps, for each output, the clocks whose registers
//! feed it and, for each input, the clocks that sample it.
use crate::builder::{Inner, B};
use crate::check::comb_args;
use crate::node::{Id, K};
use crate::signal::S;

/// For each port, as bits by clock domain: the clocks that feed an output or sample an input.
pub(crate) type PortClocks = Vec<u64>;

impl<'a> S<'a> {
    /// Declares that this value may be sampled by another clock, because a protocol keeps it stable then.
    #[track_caller]
    pub fn crossing(self) -> S<'a> {
        self.b.node(K::Cross(self.id), self.w)
    }
}

impl B {
    /// One bit taken over into the domain in force here through two flip-flops, `NAME_meta` and `NAME`.
    ///
    /// The bit must come straight from a register of its own clock. Use it for levels and Gray-coded pointers, bit by
    /// bit, never for the bits of a plain number.
    #[track_caller]
    pub fn synchronized<'a>(&'a self, name: &str, bit: S<'a>) -> S<'a> {
        assert_eq!(bit.w, 1, "one bit is synchronized at a time, not {}", bit.w);
        let meta = self.reg_reset(&format!("{name}_meta"), 1, 0).attr("ASYNC_REG", "TRUE");
        let out = self.reg_reset(name, 1, 0).attr("ASYNC_REG", "TRUE");
        meta.set(bit.crossing());
        out.set(meta);
        out
    }
}

/// What a node carries: clocks that feed it, and the input ports it depends on, both up to declared crossings.
struct Cone {
    clocks: u64,
    inputs: Vec<u64>,
}

/// Checks a module whose nodes are given in dependency order; returns what its ports carry.
///
/// # Panics
/// On an undeclared crossing, with the names and clocks of both ends.
#[track_caller]
pub(crate) fn check(module: &str, i: &Inner, order: &[Id]) -> PortClocks {
    assert!(i.domains.len() <= 64, "module `{module}` has more than 64 clocks");
    let words = i.ports.len().div_ceil(64);
    let mut cones: Vec<Cone> = i.nodes.iter().map(|_| Cone { clocks: 0, inputs: vec![0; words] }).collect();
    for id in order {
        let mut c = Cone { clocks: own_clocks(i, *id), inputs: vec![0; words] };
        match i.nodes[*id as usize].k {
            K::In(p) => c.inputs[p as usize / 64] |= 1 << (p % 64),
            K::Cross(_) => {}
            _ => comb_args(i, *id, &mut |a| {
                c.clocks |= cones[a as usize].clocks;
                c.inputs.iter_mut().zip(&cones[a as usize].inputs).for_each(|(x, y)| *x |= y);
            }),
        }
        cones[*id as usize] = c;
    }
    let mut ports: PortClocks =
        i.ports.iter().map(|p| if p.is_output { cones[p.node as usize].clocks } else { 0 }).collect();
    each_sample(i, &mut |what, clocks, id| {
        let from = cones[id as usize].clocks;
        let alone = clocks.count_ones() == 1;
        if from & !clocks != 0 || from != 0 && !alone {
            let a = clock_names(i, from & !clocks | if alone { 0 } else { from });
            panic!(
                "{what} of module `{module}` ({}) samples {}, undeclared: use `synchronized` or `crossing`",
                clock_names(i, clocks),
                source(i, id, from & !clocks).map_or(a.clone(), |n| format!("`{n}` ({a})")),
            );
        }
        for (k, p) in ports.iter_mut().enumerate() {
            if cones[id as usize].inputs[k / 64] >> (k % 64) & 1 == 1 {
                *p |= clocks;
            }
        }
    });
    ports
}

/// Clocks that a node carries by itself.
fn own_clocks(i: &Inner, id: Id) -> u64 {
    match &i.nodes[id as usize].k {
        K::Reg(r) => 1 << i.regs[*r as usize].domain,
        K::Read(m, r) => 1 << i.mems[*m as usize].reads[*r as usize].domain,
        // What stands in the rows belongs to the clocks that write them.
        K::ReadAsync(m, _) => i.mems[*m as usize].writes.iter().map(|w| 1 << w.domain).fold(0, |x, y| x | y),
        K::In(p) => i.ports[*p as usize].clock.map_or(0, |(d, _)| 1 << d),
        K::InstOut(k, p) => {
            let inst = &i.insts[*k as usize];
            mapped(inst.def.port_clocks[*p as usize], &inst.clocks)
        }
        _ => 0,
    }
}

/// A child's clocks as clocks of the parent.
fn mapped(child: u64, clocks: &[Option<u32>]) -> u64 {
    let bit = |(k, c): (usize, &Option<u32>)| c.filter(|_| child >> k & 1 == 1).map_or(0, |d| 1u64 << d);
    clocks.iter().enumerate().map(bit).fold(0, |x, y| x | y)
}

/// Calls `f` with everything that samples a node at a clock edge: its name, its clocks, the node.
#[track_caller]
fn each_sample(i: &Inner, f: &mut dyn FnMut(String, u64, Id)) {
    for r in &i.regs {
        let name = format!("register `{}`", i.nodes[r.node as usize].name.as_deref().unwrap_or_default());
        r.drive.base.iter().for_each(|x| f(name.clone(), 1 << r.domain, *x));
        for (c, v) in &r.drive.conds {
            f(name.clone(), 1 << r.domain, *c);
            f(name.clone(), 1 << r.domain, *v);
        }
    }
    for m in &i.mems {
        let name = format!("memory `{}`", m.name);
        for r in &m.reads {
            r.en.iter().chain([&r.addr]).for_each(|x| f(name.clone(), 1 << r.domain, *x));
        }
        for w in &m.writes {
            let all = [w.en, w.addr, w.data].into_iter().chain(w.lanes.map(|l| l.0));
            all.for_each(|x| f(name.clone(), 1 << w.domain, x));
        }
    }
    for inst in &i.insts {
        for (k, p) in inst.def.ports.iter().enumerate() {
            if let (false, Some(n)) = (p.is_output, inst.nodes[k]) {
                let clocks = mapped(inst.def.port_clocks[k], &inst.clocks);
                if clocks != 0 {
                    f(format!("input `{}.{}`", inst.name, p.name), clocks, n);
                }
            }
        }
    }
}

fn clock_names(i: &Inner, clocks: u64) -> String {
    let name = |(k, d): (usize, &crate::builder::DomainDef)| (clocks >> k & 1 == 1).then(|| d.clk.clone());
    let v: Vec<String> = i.domains.iter().enumerate().filter_map(name).collect();
    format!("clock {}", v.join(" and "))
}

/// Name of a thing on the path to `id` that carries one of `clocks`.
fn source(i: &Inner, id: Id, clocks: u64) -> Option<String> {
    let (mut seen, mut work) = (vec![false; i.nodes.len()], vec![id]);
    while let Some(id) = work.pop() {
        if std::mem::replace(&mut seen[id as usize], true) {
            continue;
        }
        let n = &i.nodes[id as usize];
        if own_clocks(i, id) & clocks != 0 {
            return n.name.clone();
        }
        if !matches!(n.k, K::Cross(_)) {
            comb_args(i, id, &mut |a| work.push(a));
        }
    }
    None
}
