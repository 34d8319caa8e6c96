//! Memories: rows of bits with registered or asynchronous reads and writes, byte lanes and initial content.
//!
//! Registered reads are read-first: a read sees the row as it was before this edge's writes. An address beyond the last
//! row reads an undefined value and writes nothing. Writes to one row on one edge through two ports are a bug; the
//! emitted text asserts against them and the interpreter lets the later port win.
use crate::builder::{Domain, PropKind, B};
use crate::node::{Id, K};
use crate::signal::S;
use crate::words::{index_bits, words};
use std::panic::Location;

/// What a memory is made of, as the `ram_style` attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RamStyle {
    /// The synthesis tool chooses.
    #[default]
    Auto,
    /// Block RAM.
    Block,
    /// UltraRAM.
    Ultra,
    /// LUT RAM.
    Distributed,
    /// Flip-flops.
    Registers,
}

impl RamStyle {
    pub(crate) fn attr(self) -> Option<&'static str> {
        match self {
            RamStyle::Auto => None,
            RamStyle::Block => Some("block"),
            RamStyle::Ultra => Some("ultra"),
            RamStyle::Distributed => Some("distributed"),
            RamStyle::Registers => Some("registers"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct WritePort {
    pub en: Id,
    pub addr: Id,
    pub data: Id,
    /// Lane enables, if the write has lanes.
    pub lanes: Option<(Id, u32)>,
    pub domain: u32,
    /// Index of the read port of the same true port.
    pub pair: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct ReadPort {
    pub en: Option<Id>,
    pub addr: Id,
    pub node: Id,
    pub domain: u32,
    pub paired: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct MemDef {
    pub name: String,
    pub depth: u64,
    pub w: u32,
    pub style: RamStyle,
    /// Rows of initial content; missing rows are zero when there are any.
    pub init: Option<Vec<Vec<u64>>>,
    pub writes: Vec<WritePort>,
    pub reads: Vec<ReadPort>,
    pub loc: &'static Location<'static>,
}

/// A memory of the module being built. Ports belong to the domain in force where they are made.
#[derive(Clone, Copy)]
pub struct Mem<'a> {
    b: &'a B,
    m: u32,
}

impl B {
    /// Memory of `depth` rows of `width` bits, its content undefined until written.
    #[track_caller]
    pub fn mem(&self, name: &str, depth: u64, width: u32) -> Mem<'_> {
        assert!(depth > 0 && width > 0, "memory `{name}` of {depth} rows of {width} bits");
        let full = self.full_name(name);
        let mut i = self.inner.borrow_mut();
        let name = i.unique(&full);
        i.mems.push(MemDef {
            name,
            depth,
            w: width,
            style: RamStyle::Auto,
            init: None,
            writes: vec![],
            reads: vec![],
            loc: Location::caller(),
        });
        Mem { b: self, m: i.mems.len() as u32 - 1 }
    }
}

impl<'a> Mem<'a> {
    fn with<T>(self, f: impl FnOnce(&mut MemDef) -> T) -> T {
        f(&mut self.b.inner.borrow_mut().mems[self.m as usize])
    }

    /// Number of rows.
    pub fn depth(self) -> u64 {
        self.with(|m| m.depth)
    }

    /// Bits of a row.
    pub fn width(self) -> u32 {
        self.with(|m| m.w)
    }

    /// Bits of an address.
    pub fn addr_bits(self) -> u32 {
        index_bits(self.depth())
    }

    /// Chooses what the memory is made of.
    pub fn style(self, style: RamStyle) -> Mem<'a> {
        self.with(|m| m.style = style);
        self
    }

    /// Initial content, one row after the other, least significant word first; missing rows and words are zero.
    #[track_caller]
    pub fn init(self, rows: Vec<Vec<u64>>) -> Mem<'a> {
        let (depth, w) = (self.depth(), self.width());
        assert!(rows.len() as u64 <= depth, "{} initial rows for a memory of {depth}", rows.len());
        let mut rows = rows;
        for r in &mut rows {
            self.b.litw(r, w);
            r.resize(words(w), 0);
        }
        self.with(|m| m.init = Some(rows));
        self
    }

    /// Initial content of zeros.
    pub fn zeroed(self) -> Mem<'a> {
        self.with(|m| m.init = Some(vec![]));
        self
    }

    #[track_caller]
    fn check(self, addr: S, data: Option<S>) {
        self.b.own(addr);
        let (name, depth, w) = self.with(|m| (m.name.clone(), m.depth, m.w));
        let n = index_bits(depth);
        assert!(addr.w == n, "memory `{name}` of {depth} rows needs {n} address bits, not {}", addr.w);
        if let Some(d) = data {
            self.b.own(d);
            assert!(d.w == w, "memory `{name}` has rows of {w} bits, not {}", d.w);
        }
    }

    #[track_caller]
    fn add_read(self, en: Option<S<'a>>, addr: S<'a>, paired: bool) -> (u32, S<'a>) {
        self.check(addr, None);
        let en = match (en, self.b.scope_cond()) {
            (Some(e), _) => Some(self.b.scoped(e)),
            (None, c) => c,
        };
        let domain = self.b.current_domain().0;
        let mut i = self.b.inner.borrow_mut();
        let m = &i.mems[self.m as usize];
        let (r, w, name) = (m.reads.len() as u32, m.w, format!("{}_q", m.name));
        let name = i.unique(&name);
        let node = i.new_node(K::Read(self.m, r), w, Some(name), Location::caller());
        let port = ReadPort { en: en.map(|e| e.id), addr: addr.id, node, domain, paired };
        i.mems[self.m as usize].reads.push(port);
        (r, S { b: self.b, id: node, w })
    }

    /// Registered read: the row at `addr` appears one clock later, in a register named `NAME_q`.
    #[track_caller]
    pub fn read(self, addr: S<'a>) -> S<'a> {
        self.add_read(None, addr, false).1
    }

    /// Registered read that holds its output while `en` is 0.
    #[track_caller]
    pub fn read_en(self, en: S<'a>, addr: S<'a>) -> S<'a> {
        self.add_read(Some(en), addr, false).1
    }

    /// Registered read with the RAM's output register: two clocks, for block and ultra RAM at full speed.
    #[track_caller]
    pub fn read_registered(self, addr: S<'a>) -> S<'a> {
        let q = self.read(addr);
        let name = format!("{}_q_reg", self.with(|m| m.name.clone()));
        self.b.plain_reg(&name, q)
    }

    /// Asynchronous read, for distributed RAM and registers.
    #[track_caller]
    pub fn read_async(self, addr: S<'a>) -> S<'a> {
        self.check(addr, None);
        self.b.op(K::ReadAsync(self.m, addr.id), self.width())
    }

    #[track_caller]
    fn add_write(self, en: S<'a>, addr: S<'a>, data: S<'a>, lanes: Option<S<'a>>, pair: Option<u32>) {
        self.check(addr, Some(data));
        self.b.own(en);
        let en = self.b.scoped(en);
        if let Some(l) = lanes {
            self.b.own(l);
            let ok = data.w % l.w == 0;
            assert!(ok, "{} lane enables do not divide rows of {} bits into equal lanes", l.w, data.w);
        }
        let lanes = lanes.map(|l| (l.id, data.w / l.w));
        let domain = self.b.current_domain().0;
        self.with(|m| m.writes.push(WritePort { en: en.id, addr: addr.id, data: data.id, lanes, domain, pair }));
    }

    /// Writes a row when `en` is 1.
    #[track_caller]
    pub fn write(self, en: S<'a>, addr: S<'a>, data: S<'a>) {
        self.add_write(en, addr, data, None, None);
    }

    /// Writes those lanes of a row whose bit of `lanes` is 1 (8-bit lanes are byte enables) when `en` is 1.
    #[track_caller]
    pub fn write_lanes(self, en: S<'a>, addr: S<'a>, data: S<'a>, lanes: S<'a>) {
        self.add_write(en, addr, data, Some(lanes), None);
    }

    /// One port of a true dual-port memory: on `en` reads the row at `addr` and, on `we`, writes it (read-first).
    #[track_caller]
    pub fn port(self, en: S<'a>, we: S<'a>, addr: S<'a>, data: S<'a>) -> S<'a> {
        let (r, q) = self.add_read(Some(en), addr, true);
        self.add_write(en & we, addr, data, None, Some(r));
        q
    }

    /// Like [`Mem::port`] with lane enables.
    #[track_caller]
    pub fn port_lanes(self, en: S<'a>, we: S<'a>, addr: S<'a>, data: S<'a>, lanes: S<'a>) -> S<'a> {
        let (r, q) = self.add_read(Some(en), addr, true);
        self.add_write(en & we, addr, data, Some(lanes), Some(r));
        q
    }
}

impl B {
    /// Register that follows `d`, under a name that is already complete.
    #[track_caller]
    fn plain_reg<'a>(&'a self, full_name: &str, d: S<'a>) -> S<'a> {
        let r = self.new_reg_full(full_name, d.w, None);
        r.set(d);
        r
    }

    /// Adds the assertions that no two ports write one row on one edge.
    #[track_caller]
    pub(crate) fn assert_no_write_conflicts(&self) {
        let mems = self.inner.borrow().mems.clone();
        let sig = |id: Id| S { b: self, id, w: self.inner.borrow().nodes[id as usize].w };
        for m in &mems {
            for (k, x) in m.writes.iter().enumerate() {
                for y in m.writes[..k].iter().filter(|y| y.domain == x.domain) {
                    let clash = sig(x.en) & sig(y.en) & sig(x.addr).eq(sig(y.addr));
                    self.in_domain(Domain(x.domain), || {
                        self.prop_full(PropKind::Assert, &format!("{}_one_writer", m.name), !clash)
                    });
                }
            }
        }
    }
}
