//! Verilog text of one module.
//!
//! Widths are exact by construction: both operands of every operator have the result's width, so Verilog's context rules
//! have nothing to widen and expressions may be nested. A node becomes a net when it is named, used more than once, or
//! when its text would grow too long to read; the rest is written in place.
use crate::builder::{Drive, Inner, Prop, PropKind, SlotKind};
use crate::mem::MemDef;
use crate::node::{Id, K};
use crate::words;
use std::fmt::Write;

/// Head of every emitted file.
pub(crate) const HEADER: &str = "\
// Generated from an RTL graph in Rust; edit the graph, not this text.
/* verilator lint_off DECLFILENAME */
/* verilator lint_off UNUSEDSIGNAL */
";

/// Longest expression written in place of a net, in characters.
const INLINE_MAX: usize = 90;
/// Column at which statements are wrapped.
const WRAP: usize = 116;

/// The text of a module.
pub(crate) fn module(name: &str, i: &Inner) -> String {
    let e = Emit::new(i);
    let mut o = format!("module {name} (\n");
    for (k, p) in i.ports.iter().enumerate() {
        let dir = if p.is_output { "output" } else { "input" };
        let end = if k + 1 == i.ports.len() { "" } else { "," };
        let _ = writeln!(o, "  {dir} wire {}{}{end}", range(p.width), p.name);
    }
    o += ");\n";
    e.declarations(&mut o);
    e.nets(&mut o);
    e.instances(&mut o);
    i.mems.iter().for_each(|m| e.memory(&mut o, m));
    e.registers(&mut o);
    e.assigns(&mut o);
    e.properties(&mut o);
    o += "endmodule\n";
    o
}

fn range(w: u32) -> String {
    if w == 1 {
        String::new()
    } else {
        format!("[{}:0] ", w - 1)
    }
}

fn literal(c: &[u64], w: u32) -> String {
    if w == 1 {
        format!("1'b{}", c[0])
    } else {
        format!("{w}'h{}", words::hex(c))
    }
}

/// Appends a statement, wrapped at blanks.
fn put(o: &mut String, indent: usize, text: &str) {
    let mut pad = indent;
    let mut rest = text;
    while pad + rest.len() > WRAP {
        let from = 20.min(rest.len());
        let to = (WRAP - pad).max(from);
        let cut = rest[from..to].rfind(' ').map(|k| from + k).or_else(|| rest[from..].find(' ').map(|k| from + k));
        let Some(cut) = cut else { break };
        let _ = writeln!(o, "{:pad$}{}", "", &rest[..cut]);
        rest = &rest[cut + 1..];
        pad = indent + 4;
    }
    let _ = writeln!(o, "{:pad$}{rest}", "");
}

struct Emit<'i> {
    i: &'i Inner,
    /// Name of each node that is a net.
    net: Vec<Option<String>>,
    live: Vec<bool>,
    /// How often each node is read.
    uses: Vec<u32>,
    /// A multiplexer whose else-branch is a multiplexer written in place.
    chain: Vec<bool>,
}

impl<'i> Emit<'i> {
    fn new(i: &'i Inner) -> Self {
        let n = i.nodes.len();
        let mut e = Emit { i, net: vec![None; n], live: vec![false; n], uses: vec![0; n], chain: vec![false; n] };
        let mut roots = vec![];
        for s in &i.slots {
            drive_ids(&s.drive, &mut roots);
        }
        i.regs.iter().for_each(|r| drive_ids(&r.drive, &mut roots));
        for m in &i.mems {
            m.writes.iter().for_each(|w| roots.extend([w.en, w.addr, w.data]));
            m.reads.iter().for_each(|r| roots.extend(r.en.into_iter().chain([r.addr])));
        }
        roots.extend(i.props.iter().map(|p| p.cond));
        let mut lanes: Vec<Id> = vec![];
        for w in i.mems.iter().flat_map(|m| &m.writes) {
            if let Some((l, _)) = w.lanes {
                roots.push(l);
                lanes.extend([l, w.data]);
            }
        }
        let named = |id: &Id| i.nodes[*id as usize].name.is_some();
        let mut work: Vec<Id> = roots.iter().copied().chain((0..n as Id).filter(named)).collect();
        while let Some(id) = work.pop() {
            if !std::mem::replace(&mut e.live[id as usize], true) {
                i.nodes[id as usize].k.each_arg(|a| work.push(a));
            }
        }
        roots.iter().for_each(|r| e.uses[*r as usize] += 1);
        for id in 0..n {
            if e.live[id] {
                i.nodes[id].k.each_arg(|a| e.uses[a as usize] += 1);
            }
        }
        e.choose_nets(&lanes);
        e
    }

    /// Decides which nodes become nets, and names those that have no name.
    fn choose_nets(&mut self, forced: &[Id]) {
        let i = self.i;
        let n = i.nodes.len();
        let mut net = vec![false; n];
        let mut sliced = vec![false; n];
        let mut branch = vec![false; n];
        // The `data & MASK` of a parity stays in place, however long the mask.
        let mut masked = vec![false; n];
        for (id, node) in i.nodes.iter().enumerate().filter(|(id, _)| self.live[*id]) {
            match &node.k {
                K::Slice(a, _) => sliced[*a as usize] = true,
                K::Parity(a) => masked[*a as usize] = self.uses[*a as usize] == 1 && self.is_mask(*a),
                K::Mux(_, _, c) => branch[*c as usize] = self.uses[*c as usize] == 1,
                _ => {}
            }
            net[id] = node.name.is_some() || node.k.is_net();
        }
        forced.iter().for_each(|id| net[*id as usize] = true);
        let mut cost = vec![0usize; n];
        for id in 0..n {
            let node = &i.nodes[id];
            let mut len = 0;
            match &node.k {
                K::Const(c) => len = 6 + words::hex(c).len(),
                K::Mux(s, a, c) => {
                    let c = *c as usize;
                    self.chain[id] = !net[c] && matches!(i.nodes[c].k, K::Mux(..)) && self.rep(c as Id).is_none();
                    len = 8 + cost[*s as usize] + cost[*a as usize] + if self.chain[id] { 0 } else { cost[c] };
                }
                k => k.each_arg(|a| len += 4 + cost[a as usize]),
            }
            let is_const = matches!(node.k, K::Const(_));
            let cheap = match &node.k {
                K::Const(_) => true,
                K::Slice(a, _) => net[*a as usize],
                K::Not(a) => node.w == 1 && net[*a as usize],
                _ => false,
            };
            let chain_alone = self.chain[id] && !branch[id];
            net[id] |= !is_const
                && (sliced[id] || (self.uses[id] > 1 && !cheap) || (len > INLINE_MAX && !masked[id]) || chain_alone);
            cost[id] = if net[id] { 6 } else { len };
        }
        let mut k = 0;
        for (id, _) in net.iter().enumerate().filter(|(_, is_net)| **is_net) {
            if self.live[id] {
                self.net[id] = Some(i.nodes[id].name.clone().unwrap_or_else(|| {
                    k += 1;
                    format!("n__{k}")
                }));
            }
        }
    }

    fn is_mask(&self, id: Id) -> bool {
        match self.i.nodes[id as usize].k {
            K::And(_, b) => matches!(self.i.nodes[b as usize].k, K::Const(_)),
            _ => false,
        }
    }

    /// The operand of `{n{bit}}`, for a multiplexer between all ones and zero.
    fn rep(&self, id: Id) -> Option<Id> {
        let n = &self.i.nodes[id as usize];
        let K::Mux(s, a, c) = n.k else { return None };
        let is = |x: Id, ones: bool| match &self.i.nodes[x as usize].k {
            K::Const(v) => {
                let top = words::top_mask(n.w);
                let last = v.len() - 1;
                v.iter().enumerate().all(|(k, x)| {
                    *x == if !ones {
                        0
                    } else if k == last {
                        top
                    } else {
                        !0
                    }
                })
            }
            _ => false,
        };
        (n.w > 1 && is(a, true) && is(c, false)).then_some(s)
    }

    fn arg(&self, id: Id) -> String {
        match &self.net[id as usize] {
            Some(n) => n.clone(),
            None => self.text(id, false),
        }
    }

    /// Operand of an associative operator: the same operator on the left needs no parentheses.
    fn same(&self, id: Id, is: impl Fn(&K) -> bool) -> String {
        if self.net[id as usize].is_none() && is(&self.i.nodes[id as usize].k) {
            self.text(id, true)
        } else {
            self.arg(id)
        }
    }

    /// Text of a node's operation; `top` leaves the outer parentheses out.
    fn text(&self, id: Id, top: bool) -> String {
        let n = &self.i.nodes[id as usize];
        let p = |s: String| if top { s } else { format!("({s})") };
        let two = |a: &Id, op: &str, b: &Id| p(format!("{} {op} {}", self.arg(*a), self.arg(*b)));
        match &n.k {
            K::In(_) | K::Wire(_) | K::InstOut(..) | K::Reg(_) | K::Read(..) => {
                self.net[id as usize].clone().expect("nets have names")
            }
            K::Const(c) => literal(c, n.w),
            K::ReadAsync(m, a) => format!("{}[{}]", self.i.mems[*m as usize].name, self.arg_top(*a)),
            K::Buf(a) | K::Cross(a) => self.arg(*a),
            K::Not(a) => self.not(*a, &p),
            K::And(a, b) => p(format!("{} & {}", self.same(*a, |k| matches!(k, K::And(..))), self.arg(*b))),
            K::Or(a, b) => p(format!("{} | {}", self.same(*a, |k| matches!(k, K::Or(..))), self.arg(*b))),
            K::Xor(a, b) => p(format!("{} ^ {}", self.same(*a, |k| matches!(k, K::Xor(..))), self.arg(*b))),
            K::Add(a, b) => two(a, "+", b),
            K::Sub(a, b) => two(a, "-", b),
            K::Mul(a, b) => two(a, "*", b),
            K::Eq(a, b) => two(a, "==", b),
            K::Lt(a, b) => two(a, "<", b),
            K::Slt(a, b) => p(format!("$signed({}) < $signed({})", self.arg_top(*a), self.arg_top(*b))),
            K::Shl(a, b) => two(a, "<<", b),
            K::Shr(a, b) => two(a, ">>", b),
            K::AllOnes(a) => p(format!("&{}", self.arg(*a))),
            K::AnyOne(a) => p(format!("|{}", self.arg(*a))),
            K::Parity(a) => p(format!("^{}", self.arg(*a))),
            K::Slice(a, lo) if n.w == 1 => format!("{}[{lo}]", self.arg(*a)),
            K::Slice(a, lo) => format!("{}[{}:{lo}]", self.arg(*a), lo + n.w - 1),
            K::Cat(v) => {
                let parts: Vec<String> = v.iter().map(|a| self.arg_top(*a)).collect();
                format!("{{{}}}", parts.join(", "))
            }
            K::Mux(s, a, c) => match self.rep(id) {
                Some(bit) => format!("{{{}{{{}}}}}", n.w, self.arg_top(bit)),
                None => p(format!("{} ? {} : {}", self.arg(*s), self.arg(*a), self.arg(*c))),
            },
        }
    }

    fn arg_top(&self, id: Id) -> String {
        match &self.net[id as usize] {
            Some(n) => n.clone(),
            None => self.text(id, true),
        }
    }

    fn not(&self, a: Id, p: &dyn Fn(String) -> String) -> String {
        let inner = &self.i.nodes[a as usize];
        if self.net[a as usize].is_none() {
            match &inner.k {
                K::Eq(x, y) => return p(format!("{} != {}", self.arg(*x), self.arg(*y))),
                K::Lt(x, y) => return p(format!("{} >= {}", self.arg(*x), self.arg(*y))),
                K::AnyOne(x) => return p(format!("~|{}", self.arg(*x))),
                K::AllOnes(x) => return p(format!("~&{}", self.arg(*x))),
                K::Parity(x) => return p(format!("~^{}", self.arg(*x))),
                _ => {}
            }
        }
        format!("~{}", self.arg(a))
    }

    /// The whole value of a net, several lines for a chain of multiplexers; `end` closes the statement.
    fn statement(&self, o: &mut String, head: &str, id: Id) {
        let mut arms = vec![];
        let mut at = id;
        while let (true, K::Mux(s, a, c)) = (self.chain[at as usize], &self.i.nodes[at as usize].k) {
            arms.push((*s, *a));
            at = *c;
        }
        if arms.is_empty() {
            return put(o, 2, &format!("{head} = {};", self.text(id, true)));
        }
        self.arms(o, head, &arms, at);
    }

    fn arms(&self, o: &mut String, head: &str, arms: &[(Id, Id)], last: Id) {
        put(o, 2, &format!("{head} ="));
        for (c, v) in arms {
            put(o, 6, &format!("{} ? {} :", self.arg(*c), self.arg(*v)));
        }
        put(o, 6, &format!("{};", self.arg_top(last)));
    }

    fn declarations(&self, o: &mut String) {
        let i = self.i;
        for m in &i.mems {
            let style = m.style.attr().map(|s| format!("(* ram_style = \"{s}\" *) ")).unwrap_or_default();
            put(o, 2, &format!("{style}reg {}{} [0:{}];", range(m.w), m.name, m.depth - 1));
        }
        for n in &i.nodes {
            let kind = match n.k {
                K::Reg(_) | K::Read(..) => "reg",
                K::InstOut(..) => "wire",
                K::Wire(s) => match i.slots[s as usize].kind {
                    SlotKind::Wire => "wire",
                    SlotKind::InstIn(..) if self.has_net(s) => "wire",
                    _ => continue,
                },
                _ => continue,
            };
            let name = n.name.as_deref().expect("nets have names");
            put(o, 2, &format!("{}{kind} {}{name};", attrs(&n.attrs), range(n.w)));
        }
    }

    /// Whether an input of an instance has a net of its own rather than an expression in the port list.
    fn has_net(&self, slot: u32) -> bool {
        let s = &self.i.slots[slot as usize];
        let simple = match s.drive.base {
            Some(b) if s.drive.conds.is_empty() => self.arg_top(b).len() < 50,
            _ => false,
        };
        self.uses[s.node as usize] > 0 || !simple
    }

    fn nets(&self, o: &mut String) {
        for (id, n) in self.i.nodes.iter().enumerate() {
            if n.k.is_net() {
                continue;
            }
            if let Some(name) = &self.net[id] {
                self.statement(o, &format!("{}wire {}{name}", attrs(&n.attrs), range(n.w)), id as Id);
            }
        }
    }

    fn instances(&self, o: &mut String) {
        for inst in &self.i.insts {
            let _ = writeln!(o, "  {} {} (", inst.def.name, inst.name);
            let last = inst.def.ports.len() - 1;
            for (k, p) in inst.def.ports.iter().enumerate() {
                let to = match (p.clock, inst.nodes[k]) {
                    (Some((d, is_rst)), _) => {
                        let d = &self.i.domains[inst.clocks[d as usize].expect("bound in finish") as usize];
                        if is_rst {
                            self.arg(d.rst)
                        } else {
                            d.clk.clone()
                        }
                    }
                    (None, Some(id)) => match self.i.nodes[id as usize].k {
                        K::Wire(s) if !self.has_net(s) => {
                            self.arg_top(self.i.slots[s as usize].drive.base.expect("driven"))
                        }
                        _ => self.arg(id),
                    },
                    (None, None) => unreachable!("only clocks and resets have no node"),
                };
                put(o, 4, &format!(".{}({to}){}", p.name, if k == last { "" } else { "," }));
            }
            o.push_str("  );\n");
        }
    }

    fn memory(&self, o: &mut String, m: &MemDef) {
        if let Some(rows) = &m.init {
            let _ = writeln!(o, "  initial begin : {}__init", m.name);
            if (rows.len() as u64) < m.depth {
                let _ = writeln!(o, "    integer k;");
                let z = literal(&vec![0; words::words(m.w)], m.w);
                put(o, 4, &format!("for (k = {}; k < {}; k = k + 1) {}[k] = {z};", rows.len(), m.depth, m.name));
            }
            for (k, r) in rows.iter().enumerate() {
                let _ = writeln!(o, "    {}[{k}] = {};", m.name, literal(r, m.w));
            }
            o.push_str("  end\n");
        }
        for (d, dom) in self.i.domains.iter().enumerate() {
            let mut body = String::new();
            for r in m.reads.iter().filter(|r| r.domain == d as u32 && !r.paired) {
                self.read_port(&mut body, m, r);
            }
            for w in m.writes.iter().filter(|w| w.domain == d as u32 && w.pair.is_none()) {
                self.write_port(&mut body, m, w);
            }
            block(o, &dom.clk, &body);
            for w in m.writes.iter().filter(|w| w.domain == d as u32) {
                let Some(r) = w.pair else { continue };
                let mut body = String::new();
                self.read_port(&mut body, m, &m.reads[r as usize]);
                self.write_port(&mut body, m, w);
                block(o, &dom.clk, &body);
            }
        }
    }

    fn read_port(&self, o: &mut String, m: &MemDef, r: &crate::mem::ReadPort) {
        let en = r.en.map(|e| format!("if ({}) ", self.arg_top(e))).unwrap_or_default();
        put(o, 4, &format!("{en}{} <= {}[{}];", self.arg(r.node), m.name, self.arg_top(r.addr)));
    }

    fn write_port(&self, o: &mut String, m: &MemDef, w: &crate::mem::WritePort) {
        let (en, addr) = (self.arg_top(w.en), self.arg_top(w.addr));
        match w.lanes {
            None => put(o, 4, &format!("if ({en}) {}[{addr}] <= {};", m.name, self.arg_top(w.data))),
            Some((l, lane)) => {
                let (l, d) = (self.arg(l), self.arg(w.data));
                put(o, 4, &format!("if ({en}) begin"));
                for k in 0..m.w / lane {
                    let bit = if m.w == lane { String::new() } else { format!("[{k}]") };
                    let at = if m.w == 1 {
                        String::new()
                    } else if lane == 1 {
                        format!("[{k}]")
                    } else {
                        format!("[{}:{}]", (k + 1) * lane - 1, k * lane)
                    };
                    put(o, 6, &format!("if ({l}{bit}) {}[{addr}]{at} <= {d}{at};", m.name));
                }
                put(o, 4, "end");
            }
        }
    }

    fn registers(&self, o: &mut String) {
        for (d, dom) in self.i.domains.iter().enumerate() {
            let of = |with_reset: bool| {
                let f = move |r: &&crate::builder::RegDef| r.domain == d as u32 && r.reset.is_some() == with_reset;
                self.i.regs.iter().filter(f).collect::<Vec<_>>()
            };
            let mut body = String::new();
            let regs = of(true);
            if !regs.is_empty() {
                put(&mut body, 4, &format!("if ({}) begin", self.arg(dom.rst)));
                for r in &regs {
                    let w = self.i.nodes[r.node as usize].w;
                    let v = literal(r.reset.as_ref().expect("filtered"), w);
                    put(&mut body, 6, &format!("{} <= {v};", self.arg(r.node)));
                }
                put(&mut body, 4, "end else begin");
                self.register_list(&mut body, 6, &regs);
                put(&mut body, 4, "end");
            }
            block(o, &dom.clk, &body);
            let mut body = String::new();
            self.register_list(&mut body, 4, &of(false));
            block(o, &dom.clk, &body);
        }
    }

    fn register_list(&self, o: &mut String, pad: usize, regs: &[&crate::builder::RegDef]) {
        let enable = |d: &Drive| (d.base.is_none() && d.conds.len() == 1).then(|| d.conds[0].0);
        let mut k = 0;
        while k < regs.len() {
            let en = enable(&regs[k].drive);
            let n = regs[k..].iter().take_while(|r| en.is_some() && enable(&r.drive) == en).count();
            if n > 1 {
                put(o, pad, &format!("if ({}) begin", self.arg_top(en.expect("counted"))));
                for r in &regs[k..k + n] {
                    put(o, pad + 2, &format!("{} <= {};", self.arg(r.node), self.arg_top(r.drive.conds[0].1)));
                }
                put(o, pad, "end");
                k += n;
                continue;
            }
            let r = self.arg(regs[k].node);
            if let Some(b) = regs[k].drive.base {
                put(o, pad, &format!("{r} <= {};", self.arg_top(b)));
            }
            for (c, v) in &regs[k].drive.conds {
                put(o, pad, &format!("if ({}) {r} <= {};", self.arg_top(*c), self.arg_top(*v)));
            }
            k += 1;
        }
    }

    fn assigns(&self, o: &mut String) {
        for (k, s) in self.i.slots.iter().enumerate() {
            if matches!(s.kind, SlotKind::InstIn(..)) && !self.has_net(k as u32) {
                continue;
            }
            let name = self.i.nodes[s.node as usize].name.as_deref().expect("nets have names");
            let head = format!("assign {name}");
            let base = s.drive.base.expect("checked");
            if s.drive.conds.is_empty() {
                put(o, 2, &format!("{head} = {};", self.arg_top(base)));
            } else {
                let arms: Vec<(Id, Id)> = s.drive.conds.iter().rev().copied().collect();
                self.arms(o, &head, &arms, base);
            }
        }
    }

    fn properties(&self, o: &mut String) {
        let i = self.i;
        if !i.props.is_empty() {
            o.push_str("`ifndef SYNTHESIS\n");
            for (d, dom) in i.domains.iter().enumerate() {
                let v: Vec<&Prop> = i.props.iter().filter(|p| p.domain == d as u32).collect();
                if v.is_empty() {
                    continue;
                }
                let _ = writeln!(o, "  always @(posedge {}) if (!{}) begin", dom.clk, self.arg(dom.rst));
                for p in v {
                    let kind = match p.kind {
                        PropKind::Assert => "assert",
                        PropKind::Assume => "assume",
                        PropKind::Cover => "cover",
                    };
                    put(o, 4, &format!("{}: {kind} ({});", p.name, self.arg_top(p.cond)));
                }
                o.push_str("  end\n");
            }
            o.push_str("`endif\n");
        }
    }
}

fn attrs(v: &[(String, String)]) -> String {
    v.iter().map(|(k, x)| format!("(* {k} = \"{x}\" *) ")).collect()
}

fn drive_ids(d: &Drive, out: &mut Vec<Id>) {
    out.extend(d.base);
    out.extend(d.conds.iter().flat_map(|(c, v)| [*c, *v]));
}

fn block(o: &mut String, clk: &str, body: &str) {
    if !body.is_empty() {
        let _ = write!(o, "  always @(posedge {clk}) begin\n{body}  end\n");
    }
}
