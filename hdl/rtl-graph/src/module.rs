//! Modules, their ports and instances, and the library that holds each module once.
use crate::builder::{Domain, Inner, SlotKind, B};
use crate::check;
use crate::crossing;
use crate::emit;
use crate::layout::{Fields, Layout};
use crate::names;
use crate::node::{Id, K};
use crate::signal::S;
use crate::sim::Sim;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

/// A port of a finished module.
#[derive(Clone, Debug)]
pub struct PortDef {
    /// Name in the Verilog.
    pub name: String,
    /// Bits.
    pub width: u32,
    /// Whether the module drives it.
    pub is_output: bool,
    pub(crate) node: Id,
    /// Clock domain, and whether it is the domain's reset rather than its clock.
    pub(crate) clock: Option<(u32, bool)>,
}

impl PortDef {
    /// Whether the port is a clock or a reset.
    pub fn is_clock_or_reset(&self) -> bool {
        self.clock.is_some()
    }
}

/// A bundle, array of bundles or vector among a module's ports.
#[derive(Clone, Debug)]
pub struct Group {
    /// Name in the port list, the prefix of its ports.
    pub name: String,
    /// Whether data flows into the module.
    pub is_in: bool,
    /// Elements, for an array.
    pub len: Option<usize>,
    /// Fields of one element.
    pub layout: Layout,
    /// Indices into the ports, element by element in field order.
    pub(crate) ports: Vec<usize>,
}

/// An instance inside a module.
#[derive(Clone, Debug)]
pub(crate) struct InstDef {
    pub name: String,
    pub def: Arc<ModDef>,
    /// Node of each child port that is not a clock or reset: its output, or the net that feeds its input.
    pub nodes: Vec<Option<Id>>,
    /// Parent domain of each child domain.
    pub clocks: Vec<Option<u32>>,
}

/// A finished module.
#[derive(Debug)]
pub struct ModDef {
    /// Name in the Verilog.
    pub name: String,
    /// Ports in order, clocks first.
    pub ports: Vec<PortDef>,
    /// The port list as declared.
    pub groups: Vec<Group>,
    /// Text of this module alone.
    pub text: String,
    pub(crate) inner: Inner,
    /// For each port, if an output: the inputs that reach it without a register.
    pub(crate) reach: Vec<Vec<usize>>,
    pub(crate) port_clocks: crossing::PortClocks,
    key: Option<String>,
}

impl ModDef {
    /// Verilog of this module and all below it, children first, each once.
    pub fn verilog(&self) -> String {
        let mut out = String::from(emit::HEADER);
        self.append_text(&mut HashSet::new(), &mut out);
        out
    }

    pub(crate) fn append_text(&self, seen: &mut HashSet<String>, out: &mut String) {
        if !seen.insert(self.name.clone()) {
            return;
        }
        for i in &self.inner.insts {
            i.def.append_text(seen, out);
        }
        *out += "\n";
        *out += &self.text;
    }

    /// Interpreter of this module and all below it.
    ///
    /// # Panics
    /// On a combinational loop, with the path of it.
    #[track_caller]
    pub fn sim(&self) -> Sim {
        Sim::new(self)
    }

    /// Index of a port.
    #[track_caller]
    pub fn port(&self, name: &str) -> usize {
        match self.ports.iter().position(|p| p.name == name) {
            Some(k) => k,
            None => panic!("module `{}` has no port `{name}`", self.name),
        }
    }

    /// Names of the clock domains; the default one is `""`.
    pub fn domains(&self) -> Vec<&str> {
        self.inner.domains.iter().map(|d| d.name.as_str()).collect()
    }

    /// Number of modules and instances below, this one included: `(distinct modules, instances)`.
    pub fn size(&self) -> (usize, usize) {
        fn count(d: &ModDef, seen: &mut HashSet<String>) -> usize {
            seen.insert(d.name.clone());
            1 + d.inner.insts.iter().map(|i| count(&i.def, seen)).sum::<usize>()
        }
        let mut seen = HashSet::new();
        let n = count(self, &mut seen);
        (seen.len(), n)
    }
}

#[derive(Default)]
struct LibInner {
    modules: RefCell<BTreeMap<String, Arc<ModDef>>>,
    open: RefCell<Vec<String>>,
}

/// The modules of a design, each held once by its name. Cloning gives another handle to the same library.
#[derive(Clone, Default)]
pub struct Lib(Rc<LibInner>);

impl Lib {
    /// An empty library.
    pub fn new() -> Lib {
        Lib::default()
    }

    /// Elaborates a module. `name` must tell its kind and all its parameters.
    ///
    /// # Panics
    /// When a module of this name exists and its text differs (a parameter is missing in the name), and on every fault
    /// of the module itself: an undriven output, a combinational loop.
    #[track_caller]
    pub fn module(&self, name: &str, f: impl FnOnce(&B)) -> Arc<ModDef> {
        self.elaborate(name, None, f)
    }

    /// Like [`Lib::module`], but a second call with the same `key` (all parameters as text) skips the elaboration.
    #[track_caller]
    pub fn module_keyed(&self, name: &str, key: String, f: impl FnOnce(&B)) -> Arc<ModDef> {
        if let Some(m) = self.find(name) {
            if m.key.as_ref() == Some(&key) {
                return m;
            }
        }
        self.elaborate(name, Some(key), f)
    }

    /// The module of this name, if elaborated already.
    pub fn find(&self, name: &str) -> Option<Arc<ModDef>> {
        self.0.modules.borrow().get(name).cloned()
    }

    #[track_caller]
    fn elaborate(&self, name: &str, key: Option<String>, f: impl FnOnce(&B)) -> Arc<ModDef> {
        names::check(name);
        assert!(!self.0.open.borrow().iter().any(|n| n == name), "module `{name}` contains itself");
        self.0.open.borrow_mut().push(name.into());
        let b = B::new(self.clone());
        f(&b);
        self.0.open.borrow_mut().pop();
        let def = b.finish(name, key);
        if let Some(old) = self.find(name) {
            if let Some((k, (x, y))) = old.text.lines().zip(def.text.lines()).enumerate().find(|(_, (x, y))| x != y) {
                panic!(
                    "two different modules are named `{name}` (a parameter is missing in the name); line {}: `{}` and `{}`",
                    k + 1,
                    x.trim(),
                    y.trim()
                );
            }
            assert!(old.text == def.text, "two different modules are named `{name}`; one is longer");
            return old;
        }
        let def = Arc::new(def);
        self.0.modules.borrow_mut().insert(name.into(), def.clone());
        def
    }
}

/// A module's parameter: what it adds to the module's name.
pub trait ModuleParam: std::fmt::Debug {
    /// The part of the name; empty adds nothing (then two different values that matter panic).
    fn tag(&self) -> String;
}

macro_rules! int_param {
    ($($t:ty)*) => {$(
        impl ModuleParam for $t {
            fn tag(&self) -> String {
                self.to_string().replace('-', "m")
            }
        }
    )*};
}
int_param!(u8 u16 u32 u64 usize i32 i64);

impl ModuleParam for bool {
    fn tag(&self) -> String {
        (if *self { "y" } else { "n" }).into()
    }
}

impl ModuleParam for &str {
    fn tag(&self) -> String {
        self.to_string()
    }
}

impl<T: ModuleParam + ?Sized> ModuleParam for &T {
    fn tag(&self) -> String {
        (**self).tag()
    }
}

impl<T: ModuleParam> ModuleParam for Option<T> {
    fn tag(&self) -> String {
        self.as_ref().map_or("none".into(), |x| x.tag())
    }
}

impl<T: ModuleParam> ModuleParam for [T] {
    fn tag(&self) -> String {
        let s = self.iter().map(|x| x.tag()).collect::<Vec<_>>().join("x");
        if s.len() <= 24 {
            s
        } else {
            debug_hash(&s)
        }
    }
}

impl<T: ModuleParam> ModuleParam for Vec<T> {
    fn tag(&self) -> String {
        self.as_slice().tag()
    }
}

impl ModuleParam for crate::RamStyle {
    fn tag(&self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Eight hexadecimal digits that tell values of one type apart: a tag for a parameter struct.
pub fn debug_hash(x: &impl std::fmt::Debug) -> String {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    for c in format!("{x:?}").bytes() {
        h = (h ^ c as u64).wrapping_mul(0x0100_0000_01b3);
    }
    format!("h{:08x}", (h ^ (h >> 32)) as u32)
}

/// An instance of a module.
#[derive(Clone, Copy)]
pub struct Instance<'a> {
    b: &'a B,
    index: u32,
}

fn joined(prefix: &str, field: &str) -> String {
    if field.is_empty() {
        prefix.into()
    } else {
        format!("{prefix}_{field}")
    }
}

impl B {
    #[track_caller]
    pub(crate) fn add_input(&self, name: &str, width: u32, clock: Option<(u32, bool)>) -> S<'_> {
        let name = self.port_name(name);
        let mut i = self.inner.borrow_mut();
        let p = i.ports.len() as u32;
        let id = i.new_node(K::In(p), width, Some(name.clone()), Location::caller());
        i.ports.push(PortDef { name, width, is_output: false, node: id, clock });
        S { b: self, id, w: width }
    }

    #[track_caller]
    fn port_name(&self, name: &str) -> String {
        names::check(name);
        let new = self.inner.borrow_mut().names.insert(name.into());
        assert!(new, "the name `{name}` is taken in this module");
        name.into()
    }

    #[track_caller]
    fn add_output(&self, name: &str, width: u32) -> S<'_> {
        let name = self.port_name(name);
        let s = self.slot(name.clone(), Some(name.clone()), width, SlotKind::Output);
        self.inner.borrow_mut().ports.push(PortDef { name, width, is_output: true, node: s.id, clock: None });
        s
    }

    /// Input port; `module!` declares ports from its list.
    #[track_caller]
    pub fn input(&self, name: &str, width: u32) -> S<'_> {
        self.port(name, true, &Layout::scalar(width))
    }

    /// Output port, to be driven with [`S::set`]; readable like a wire.
    #[track_caller]
    pub fn output(&self, name: &str, width: u32) -> S<'_> {
        self.port(name, false, &Layout::scalar(width))
    }

    /// Port of a bundle type; forward fields are inputs when `is_in`.
    #[track_caller]
    pub fn port<'a, P: Fields<'a>>(&'a self, name: &str, is_in: bool, layout: &Layout) -> P {
        self.declare(name, is_in, layout, None).remove(0)
    }

    /// Array of ports of a bundle type, named `NAME_0`, `NAME_1`, …
    #[track_caller]
    pub fn port_array<'a, P: Fields<'a>>(&'a self, name: &str, is_in: bool, layout: &Layout, len: usize) -> Vec<P> {
        assert!(len > 0, "port array `{name}` of no elements");
        self.declare(name, is_in, layout, Some(len))
    }

    #[track_caller]
    fn declare<'a, P: Fields<'a>>(&'a self, name: &str, is_in: bool, layout: &Layout, len: Option<usize>) -> Vec<P> {
        let (mut ports, mut out) = (vec![], vec![]);
        for k in 0..len.unwrap_or(1) {
            let prefix = if len.is_some() { format!("{name}_{k}") } else { name.to_string() };
            let mut v = vec![];
            for f in &layout.fields {
                ports.push(self.inner.borrow().ports.len());
                let full = joined(&prefix, &f.name);
                v.push(if is_in != f.is_reverse {
                    self.add_input(&full, f.width, None)
                } else {
                    self.add_output(&full, f.width)
                });
            }
            out.push(P::over(&v));
        }
        let g = Group { name: name.into(), is_in, len, layout: layout.clone(), ports };
        self.inner.borrow_mut().groups.push(g);
        out
    }

    /// Instance of a module. Its default clock and reset are those in force here; its other domains are bound to the
    /// domains of the same name unless [`Instance::clock`] says otherwise.
    #[track_caller]
    pub fn instance<'a>(&'a self, name: &str, def: &Arc<ModDef>) -> Instance<'a> {
        let full = self.full_name(name);
        let new = self.inner.borrow_mut().names.insert(full.clone());
        assert!(new, "the name `{full}` is taken in this module");
        let index = self.inner.borrow().insts.len() as u32;
        let mut nodes = vec![];
        for (k, p) in def.ports.iter().enumerate() {
            if p.clock.is_some() {
                nodes.push(None);
                continue;
            }
            let net = self.inner.borrow_mut().unique(&format!("{full}_{}", p.name));
            nodes.push(Some(if p.is_output {
                let loc = Location::caller();
                self.inner.borrow_mut().new_node(K::InstOut(index, k as u32), p.width, Some(net), loc)
            } else {
                let kind = SlotKind::InstIn(index, k as u32);
                self.slot(format!("{full}.{}", p.name), Some(net), p.width, kind).id
            }));
        }
        let mut clocks = vec![None; def.inner.domains.len()];
        clocks[0] = Some(self.current_domain().0);
        self.inner.borrow_mut().insts.push(InstDef { name: full, def: def.clone(), nodes, clocks });
        Instance { b: self, index }
    }

    /// Checks the module and turns it into its definition.
    #[track_caller]
    fn finish(self, name: &str, key: Option<String>) -> ModDef {
        let unbound: Vec<(usize, usize, String)> = {
            let i = self.inner.borrow();
            let of = |(k, x): (usize, &InstDef)| {
                let f = move |(d, c): (usize, &Option<u32>)| c.is_none().then_some((k, d));
                x.clocks.iter().enumerate().filter_map(f).collect::<Vec<_>>()
            };
            let all = i.insts.iter().enumerate().flat_map(of);
            all.map(|(k, d)| (k, d, i.insts[k].def.inner.domains[d].name.clone())).collect()
        };
        for (k, d, n) in unbound {
            let dom = self.domain(&n);
            self.inner.borrow_mut().insts[k].clocks[d] = Some(dom.0);
        }
        self.assert_no_write_conflicts();
        let mut inner = self.inner.into_inner();
        inner.cse.clear();
        check::driven(name, &inner);
        let order = check::order(name, &inner);
        let reach = check::reach(&inner, &order);
        let port_clocks = crossing::check(name, &inner, &order);
        let (ports, groups) = (inner.ports.clone(), inner.groups.clone());
        let text = emit::module(name, &inner);
        ModDef { name: name.into(), ports, groups, text, inner, reach, port_clocks, key }
    }
}

impl<'a> Instance<'a> {
    /// The module of this instance.
    pub fn def(self) -> Arc<ModDef> {
        self.b.inner.borrow().insts[self.index as usize].def.clone()
    }

    /// Binds a clock domain of the instance (`""` is its default one) to a domain of this module.
    #[track_caller]
    pub fn clock(self, child: &str, domain: Domain) -> Instance<'a> {
        let def = self.def();
        match def.inner.domains.iter().position(|d| d.name == child) {
            Some(k) => self.b.inner.borrow_mut().insts[self.index as usize].clocks[k] = Some(domain.0),
            None => panic!("module `{}` has no clock domain `{child}`", def.name),
        }
        self
    }

    /// The bundle or vector `name` of the port list.
    #[track_caller]
    pub fn port<P: Fields<'a>>(self, name: &str) -> P {
        self.ports(name).remove(0)
    }

    /// The array of ports `name` of the port list.
    #[track_caller]
    pub fn ports<P: Fields<'a>>(self, name: &str) -> Vec<P> {
        let def = self.def();
        let g = match def.groups.iter().find(|g| g.name == name) {
            Some(g) => g,
            None => panic!("module `{}` has no port `{name}`", def.name),
        };
        let i = self.b.inner.borrow();
        let nodes = &i.insts[self.index as usize].nodes;
        let sig = |p: &usize| {
            let id = nodes[*p].expect("groups hold no clocks");
            S { b: self.b, id, w: i.nodes[id as usize].w }
        };
        g.ports.chunks(g.layout.fields.len()).map(|c| P::over(&c.iter().map(sig).collect::<Vec<_>>())).collect()
    }
}

impl S<'_> {
    /// What kind of assignable net this is, if it is one.
    pub(crate) fn slot_kind(self) -> Option<SlotKind> {
        let i = self.b.inner.borrow();
        match i.nodes[self.id as usize].k {
            K::Wire(s) => Some(i.slots[s as usize].kind),
            _ => None,
        }
    }

    pub(crate) fn label(self) -> String {
        let i = self.b.inner.borrow();
        match &i.nodes[self.id as usize] {
            n if n.name.is_some() => n.name.clone().unwrap_or_default(),
            n => format!("an expression of {} bits", n.w),
        }
    }
}

/// Declares a module: from one port list come the graph ports, the typed instance handle and the module's name.
///
/// ```
/// use rtl_graph::*;
/// bundle! { pub struct Axis(bytes: u32) { fwd data: 8 * bytes, last: 1, valid: 1; rev ready: 1 } }
/// module! {
///     /// One register stage.
///     pub struct Stage(bytes: u32) { rx: in Axis(bytes), tx: out Axis(bytes), busy: out Uint(1) }
///     |b| {
///         let (v, d) = (b.reg_reset("s1_v", 1, 0), b.reg("s1_d", rx.payload_width()));
///         let free = (!v | tx.ready).named("s1_free");
///         v.set_en(free, rx.valid);
///         d.set_en(free, rx.payload());
///         rx.ready.set(free);
///         tx.valid.set(v);
///         tx.set_payload(d);
///         busy.set(v);
///     }
/// }
/// let def = Stage::def(&Lib::new(), 4);
/// assert_eq!(def.name, "stage_4");
/// ```
///
/// Grammar of a port: `name: in|out Type`, `Type(args)`, `Type<Record>`, `Type<Record>(layout)`, each with `[n]` behind it
/// for an array. The module's name is the type's in snake case, or the literal after `=`:
/// `pub struct Stage = "nic_stage" (bytes: u32) { … }`, then `_` and each parameter. Further clock domains may be listed
/// behind the parameters, `clocks(eth, host)`; the module's rust-hdl block needs the list.
#[macro_export]
macro_rules! module {
    ($(#[$m:meta])* $vis:vis struct $Name:ident $(= $verilog:literal)? ($($p:ident : $pt:ty),* $(,)?)
    $(clocks($($clock:ident),+ $(,)?))? {
        $($(#[$pm:meta])* $port:ident : $dir:tt $K:ident $(<$($g:ident),+>)? $(($($arg:expr),* $(,)?))? $([$n:expr])?),*
        $(,)?
    } |$b:ident| $body:block) => {
        $(#[$m])*
        #[allow(dead_code)]
        $vis struct $Name<'a> {
            $($(#[$pm])* #[allow(missing_docs)]
            pub $port: $crate::__module!(@type [$K<'a $($(, $g<'a>)+)?>] $($n)?),)*
            /// The instance.
            pub inst: $crate::Instance<'a>,
        }
        #[allow(dead_code, clippy::too_many_arguments)]
        impl<'a> $Name<'a> {
            /// The module's definition, elaborated once a library.
            #[track_caller]
            pub fn def(lib: &$crate::Lib $(, $p: $pt)*) -> std::sync::Arc<$crate::ModDef> {
                #[allow(unused_mut)]
                let mut name = $crate::__module!(@name $Name $($verilog)?);
                #[allow(unused_mut)]
                let mut key = String::from(concat!(module_path!(), "::", stringify!($Name)));
                $($crate::push_param(&mut name, &mut key, &$p);)*
                lib.module_keyed(&name, key, |$b: &$crate::B| {
                    $($($b.domain(stringify!($clock));)+)?
                    $(#[allow(unused_variables)]
                    let $port: $crate::__module!(@type [$K<'_ $($(, $g<'_>)+)?>] $($n)?) = $crate::__module!(@declare $b $dir $port
                        ($crate::__module!(@layout $K $(<$($g),+>)? $(($($arg),*))?)) $($n)?);)*
                    $body
                })
            }
            /// An instance inside the module that `b` builds.
            #[track_caller]
            pub fn at(b: &'a $crate::B, name: &str $(, $p: $pt)*) -> Self {
                let def = Self::def(b.lib() $(, $p)*);
                let inst = b.instance(name, &def);
                $Name { $($port: $crate::__module!(@instance inst $port $($n)?),)* inst }
            }
            /// The module as a rust-hdl block.
            #[track_caller]
            pub fn block(lib: &$crate::Lib $(, $p: $pt)*) -> $crate::BlockOf<$Name<'static>> {
                $crate::HdlBlock::new(Self::def(lib $(, $p)*))
            }
        }
        const _: () = {
            #[allow(missing_docs)]
            pub struct Ports {
                $($(pub $clock: $crate::ClockPorts,)+)?
                $(pub $port: $crate::__module!(@hdl $dir [$K<'static $($(, $g<'static>)+)?>] $($n)?),)*
            }
            #[allow(unused_variables, unused_mut, unused_assignments)]
            impl $crate::HdlPorts for Ports {
                fn build(groups: &[$crate::Group]) -> Self {
                    let mut g = groups.iter();
                    Ports {
                        $($($clock: Default::default(),)+)?
                        $($port: $crate::HdlGroup::build_group(g.next().expect(stringify!($port))),)*
                    }
                }
                fn leaves(&self, f: &mut dyn FnMut(&$crate::hdl::WireCore)) {
                    $($crate::HdlGroup::group_leaves(&self.$port, f);)*
                }
                fn leaves_mut(&mut self, f: &mut dyn FnMut(&mut $crate::hdl::WireCore)) {
                    $($crate::HdlGroup::group_leaves_mut(&mut self.$port, f);)*
                }
                fn accept(&self, probe: &mut dyn $crate::hdl::rust_hdl::prelude::Probe) {
                    $($crate::HdlGroup::group_accept(&self.$port, stringify!($port), probe);)*
                }
                fn clocks(&self, f: &mut dyn FnMut(&str, &$crate::ClockPorts)) {
                    $($(f(stringify!($clock), &self.$clock);)+)?
                }
                fn clocks_mut(&mut self, f: &mut dyn FnMut(&mut $crate::ClockPorts)) {
                    $($(f(&mut self.$clock);)+)?
                }
            }
            impl $crate::HdlModule for $Name<'static> {
                type Ports = Ports;
            }
        };
    };
}

/// Pieces of [`module!`].
#[doc(hidden)]
#[macro_export]
macro_rules! __module {
    (@type [$($t:tt)*]) => { $($t)* };
    (@type [$($t:tt)*] $n:expr) => { Vec<$($t)*> };
    (@hdl in [$($t:tt)*]) => { $crate::hdl::Sink<$($t)*> };
    (@hdl out [$($t:tt)*]) => { $crate::hdl::Source<$($t)*> };
    (@hdl in [$($t:tt)*] $n:expr) => { Vec<$crate::hdl::Sink<$($t)*>> };
    (@hdl out [$($t:tt)*] $n:expr) => { Vec<$crate::hdl::Source<$($t)*>> };
    (@name $Name:ident) => { $crate::snake_case(stringify!($Name)) };
    (@name $Name:ident $v:literal) => { String::from($v) };
    (@layout $K:ident) => { <$K>::layout() };
    (@layout $K:ident ($($arg:expr),*)) => { <$K>::layout($($arg),*) };
    (@layout $K:ident <$($g:ident),+>) => { <$K<$($g),+>>::layout() };
    (@layout $K:ident <$($g:ident),+> ($($arg:expr),*)) => { <$K<$($g),+>>::layout_of_record($($arg),*) };
    (@declare $b:ident in $port:ident ($l:expr)) => { $b.port(stringify!($port), true, &$l) };
    (@declare $b:ident out $port:ident ($l:expr)) => { $b.port(stringify!($port), false, &$l) };
    (@declare $b:ident in $port:ident ($l:expr) $n:expr) => { $b.port_array(stringify!($port), true, &$l, $n) };
    (@declare $b:ident out $port:ident ($l:expr) $n:expr) => { $b.port_array(stringify!($port), false, &$l, $n) };
    (@instance $i:ident $port:ident) => { $i.port(stringify!($port)) };
    (@instance $i:ident $port:ident $n:expr) => { $i.ports(stringify!($port)) };
}

/// Adds a parameter to a module's name and key.
#[doc(hidden)]
pub fn push_param(name: &mut String, key: &mut String, p: &dyn ModuleParam) {
    let tag = p.tag();
    if !tag.is_empty() {
        *name += &format!("_{tag}");
    }
    *key += &format!(" {p:?}");
}
