//! Checks of a finished module: everything driven, no combinational loop.
use crate::builder::{Drive, Inner, SlotKind};
use crate::node::{Id, K};

/// Panics when an output, wire, input of an instance or register has no driver.
#[track_caller]
pub(crate) fn driven(module: &str, i: &Inner) {
    for s in &i.slots {
        let what = match s.kind {
            SlotKind::Output => "output",
            SlotKind::Wire => "wire",
            SlotKind::InstIn(..) => "input",
        };
        let (name, loc) = (&s.name, s.loc);
        if s.drive.base.is_none() {
            assert!(s.drive.conds.is_empty(), "{what} `{name}` of module `{module}` is driven only under conditions: give it a base value with `set` first (made at {loc})");
            panic!("{what} `{name}` of module `{module}` is not driven (made at {loc})");
        }
    }
    for r in &i.regs {
        let n = &i.nodes[r.node as usize];
        let name = n.name.as_deref().unwrap_or_default();
        let ok = r.drive.base.is_some() || !r.drive.conds.is_empty();
        assert!(ok, "register `{name}` of module `{module}` is never assigned (made at {})", n.loc);
    }
    for (k, m) in i.mems.iter().enumerate() {
        let is_read = |n: &crate::node::Node| matches!(n.k, K::ReadAsync(x, _) if x as usize == k);
        let ok = !m.reads.is_empty() || i.nodes.iter().any(is_read);
        assert!(ok, "memory `{}` of module `{module}` is never read (made at {})", m.name, m.loc);
        let ok = !m.writes.is_empty() || m.init.is_some();
        assert!(ok, "memory `{}` of module `{module}` is never written (made at {})", m.name, m.loc);
    }
}

/// Nodes that a net's drivers depend on.
fn drive_args(d: &Drive, f: &mut dyn FnMut(Id)) {
    d.base.iter().for_each(|x| f(*x));
    d.conds.iter().for_each(|(c, v)| {
        f(*c);
        f(*v);
    });
}

/// Nodes that node `id` depends on within the clock cycle.
pub(crate) fn comb_args(i: &Inner, id: Id, f: &mut dyn FnMut(Id)) {
    match &i.nodes[id as usize].k {
        K::Wire(s) => drive_args(&i.slots[*s as usize].drive, f),
        K::InstOut(k, p) => {
            let inst = &i.insts[*k as usize];
            for q in &inst.def.reach[*p as usize] {
                if let Some(n) = inst.nodes[*q] {
                    f(n);
                } else if let Some((d, true)) = inst.def.ports[*q].clock {
                    let dom = inst.clocks[d as usize].unwrap_or(0);
                    f(i.domains[dom as usize].rst);
                }
            }
        }
        k => k.each_arg(f),
    }
}

/// The nodes in dependency order.
///
/// # Panics
/// On a combinational loop, with its nets and the lines that made them.
#[track_caller]
pub(crate) fn order(module: &str, i: &Inner) -> Vec<Id> {
    match topological(i.nodes.len(), |id, f| comb_args(i, id, f)) {
        Ok(o) => o,
        Err(cycle) => {
            let names: Vec<String> = cycle
                .iter()
                .map(|id| &i.nodes[*id as usize])
                .filter_map(|n| n.name.as_ref().map(|s| format!("`{s}` ({})", n.loc)))
                .collect();
            panic!("combinational loop in module `{module}`: {}", names.join(" <- "));
        }
    }
}

/// For each port that is an output: the input ports that reach it without a register.
pub(crate) fn reach(i: &Inner, order: &[Id]) -> Vec<Vec<usize>> {
    let n = i.ports.len().div_ceil(64);
    let mut sets = vec![vec![0u64; n]; i.nodes.len()];
    for id in order {
        let mut s = vec![0u64; n];
        if let K::In(p) = i.nodes[*id as usize].k {
            s[p as usize / 64] |= 1 << (p % 64);
        }
        comb_args(i, *id, &mut |a| s.iter_mut().zip(&sets[a as usize]).for_each(|(x, y)| *x |= y));
        sets[*id as usize] = s;
    }
    let of = |p: &crate::module::PortDef| {
        if !p.is_output {
            return vec![];
        }
        let s = &sets[p.node as usize];
        (0..i.ports.len()).filter(|k| s[k / 64] >> (k % 64) & 1 == 1).collect()
    };
    i.ports.iter().map(of).collect()
}

/// Depth-first order of `n` nodes, operands first; or the nodes of a cycle.
pub(crate) fn topological(n: usize, args: impl Fn(Id, &mut dyn FnMut(Id))) -> Result<Vec<Id>, Vec<Id>> {
    let mut state = vec![0u8; n];
    let mut order = vec![];
    let mut stack: Vec<(Id, Vec<Id>)> = vec![];
    for root in 0..n as Id {
        if state[root as usize] != 0 {
            continue;
        }
        let open = |id: Id| {
            let mut v = vec![];
            args(id, &mut |a| v.push(a));
            v.reverse();
            (id, v)
        };
        state[root as usize] = 1;
        stack.push(open(root));
        while let Some((id, rest)) = stack.last_mut() {
            match rest.pop() {
                None => {
                    state[*id as usize] = 2;
                    order.push(*id);
                    stack.pop();
                }
                Some(a) if state[a as usize] == 1 => {
                    let at = stack.iter().position(|(x, _)| *x == a).expect("an open node is on the stack");
                    return Err(stack[at..].iter().map(|(x, _)| *x).collect());
                }
                Some(a) if state[a as usize] == 0 => {
                    state[a as usize] = 1;
                    stack.push(open(a));
                }
                Some(_) => {}
            }
        }
    }
    Ok(order)
}
