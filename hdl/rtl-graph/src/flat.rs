//! Flattening: a module and all its instances as one list of nodes, for the interpreter.
use crate::builder::{Drive, Inner, PropKind, SlotKind};
use crate::check;
use crate::mem::MemDef;
use crate::module::{InstDef, ModDef};
use crate::node::{Id, K};
use crate::words::words;

pub(crate) struct FlatReg {
    pub cur: Id,
    pub next: Id,
    pub domain: u32,
}

pub(crate) struct FlatMem {
    pub name: String,
    pub depth: u64,
    pub w: u32,
    pub init: Vec<u64>,
    pub has_init: bool,
}

pub(crate) struct FlatRead {
    pub mem: u32,
    pub en: Option<Id>,
    pub addr: Id,
    pub node: Id,
    pub domain: u32,
}

pub(crate) struct FlatWrite {
    pub mem: u32,
    pub en: Id,
    pub addr: Id,
    pub data: Id,
    pub lanes: Option<(Id, u32)>,
    pub domain: u32,
}

pub(crate) struct FlatProp {
    pub kind: PropKind,
    pub name: String,
    pub cond: Id,
    pub rst: Id,
    pub domain: u32,
    pub loc: &'static std::panic::Location<'static>,
}

/// The design as one list. `InstOut`, `Wire` and inner `In` nodes have become `Buf`.
#[derive(Default)]
pub(crate) struct Flat {
    pub k: Vec<K>,
    pub w: Vec<u32>,
    pub name: Vec<Option<String>>,
    pub regs: Vec<FlatReg>,
    pub mems: Vec<FlatMem>,
    pub reads: Vec<FlatRead>,
    pub writes: Vec<FlatWrite>,
    pub props: Vec<FlatProp>,
}

impl Flat {
    /// Flattens `def`.
    pub fn new(def: &ModDef) -> Flat {
        let mut f = Flat::default();
        let domains: Vec<u32> = (0..def.inner.domains.len() as u32).collect();
        f.inline(def, "", &domains);
        f
    }

    fn push(&mut self, k: K, w: u32) -> Id {
        self.k.push(k);
        self.w.push(w);
        self.name.push(None);
        (self.k.len() - 1) as Id
    }

    /// Value of a driven thing that holds `hold` when no condition holds.
    fn driven(&mut self, d: &Drive, base: Id, hold: Id, w: u32) -> Id {
        let mut v = d.base.map_or(hold, |b| b + base);
        for (c, x) in &d.conds {
            v = self.push(K::Mux(c + base, x + base, v), w);
        }
        v
    }

    /// Copies a module in; returns the offset of its nodes. `domains` are the top's domains of the module's own.
    fn inline(&mut self, def: &ModDef, path: &str, domains: &[u32]) -> Id {
        let i = &def.inner;
        let base = self.k.len() as Id;
        let mem_base = self.mems.len() as u32;
        for n in &i.nodes {
            let k = match &n.k {
                K::ReadAsync(m, a) => K::ReadAsync(m + mem_base, a + base),
                K::Cross(a) => K::Buf(a + base),
                k => k.map_args(|a| a + base),
            };
            self.k.push(k);
            self.w.push(n.w);
            self.name.push(n.name.as_ref().map(|s| format!("{path}{s}")));
        }
        self.inline_nets_and_registers(i, base, domains);
        i.mems.iter().for_each(|m| self.inline_memory(m, path, base, domains));
        for p in &i.props {
            let d = p.domain as usize;
            self.props.push(FlatProp {
                kind: p.kind,
                name: format!("{path}{}", p.name),
                cond: p.cond + base,
                rst: i.domains[d].rst + base,
                domain: domains[d],
                loc: p.loc,
            });
        }
        for inst in &i.insts {
            let map: Vec<u32> = inst.clocks.iter().map(|c| domains[c.expect("bound in finish") as usize]).collect();
            let child = self.inline(&inst.def, &format!("{path}{}.", inst.name), &map);
            self.join_instance(i, inst, base, child);
        }
        base
    }

    fn inline_nets_and_registers(&mut self, i: &Inner, base: Id, domains: &[u32]) {
        for s in &i.slots {
            let id = s.node + base;
            let v = self.driven(&s.drive, base, id, self.w[id as usize]);
            self.k[id as usize] = K::Buf(v);
            if matches!(s.kind, SlotKind::InstIn(..)) {
                self.name[id as usize] = None;
            }
        }
        for r in &i.regs {
            let cur = r.node + base;
            let w = self.w[cur as usize];
            let mut next = self.driven(&r.drive, base, cur, w);
            if let Some(v) = &r.reset {
                let c = self.push(K::Const(v.clone().into()), w);
                let rst = i.domains[r.domain as usize].rst + base;
                next = self.push(K::Mux(rst, c, next), w);
            }
            self.k[cur as usize] = K::Reg(self.regs.len() as u32);
            self.regs.push(FlatReg { cur, next, domain: domains[r.domain as usize] });
        }
    }

    fn inline_memory(&mut self, m: &MemDef, path: &str, base: Id, domains: &[u32]) {
        let mem = self.mems.len() as u32;
        let mut init = m.init.iter().flatten().flatten().copied().collect::<Vec<u64>>();
        init.resize(words(m.w) * m.depth as usize, 0);
        let name = format!("{path}{}", m.name);
        self.mems.push(FlatMem { name, depth: m.depth, w: m.w, init, has_init: m.init.is_some() });
        for r in &m.reads {
            let domain = domains[r.domain as usize];
            let (node, addr) = (r.node + base, r.addr + base);
            self.k[node as usize] = K::Read(mem, self.reads.len() as u32);
            self.reads.push(FlatRead { mem, en: r.en.map(|e| e + base), addr, node, domain });
        }
        for w in &m.writes {
            self.writes.push(FlatWrite {
                mem,
                en: w.en + base,
                addr: w.addr + base,
                data: w.data + base,
                lanes: w.lanes.map(|(l, n)| (l + base, n)),
                domain: domains[w.domain as usize],
            });
        }
    }

    /// Makes the ports of an instance other names of the nodes on the other side.
    fn join_instance(&mut self, i: &Inner, inst: &InstDef, base: Id, child: Id) {
        for (p, node) in inst.def.ports.iter().zip(&inst.nodes) {
            match (node, p.clock) {
                (Some(n), _) if p.is_output => self.k[(n + base) as usize] = K::Buf(p.node + child),
                (Some(n), _) => self.k[(p.node + child) as usize] = K::Buf(n + base),
                (None, Some((d, true))) => {
                    let dom = inst.clocks[d as usize].expect("bound in finish");
                    self.k[(p.node + child) as usize] = K::Buf(i.domains[dom as usize].rst + base);
                }
                // A clock carries no value here.
                (None, _) => self.k[(p.node + child) as usize] = K::Const([0].into()),
            }
        }
    }

    /// The node behind any number of other names.
    pub fn resolve(&self, mut id: Id) -> Id {
        let mut steps = 0;
        while let K::Buf(a) = self.k[id as usize] {
            id = a;
            steps += 1;
            if steps > self.k.len() {
                break;
            }
        }
        id
    }

    /// Evaluation order of all nodes.
    ///
    /// # Panics
    /// On a combinational loop, with the nets on it.
    #[track_caller]
    pub fn order(&self) -> Vec<Id> {
        let args = |id: Id, f: &mut dyn FnMut(Id)| self.k[id as usize].each_arg(f);
        match check::topological(self.k.len(), args) {
            Ok(o) => o,
            Err(cycle) => {
                let names: Vec<String> = cycle.iter().filter_map(|id| self.name[*id as usize].clone()).collect();
                panic!("combinational loop: {}", names.join(" <- "));
            }
        }
    }
}
