//! Ports as rust-hdl signals and interfaces: the rust-hdl side of `bundle!`, `record!` and streams.
//!
//! The signals are [`Wire`]s, atoms whose width is chosen at run time, so the data width stays a parameter in rust-hdl
//! too; `.val().into()` converts from and to rust-hdl's `Bits<N>` and `bool`. A bundle `Axis` has two interface types,
//! [`Sink`]`<Axis>` and [`Source`]`<Axis>`, which link and join in rust-hdl kernels like its own.
use crate::layout::Layout;
use crate::signal::S;
use crate::words::{top_mask, words};
use rust_hdl::prelude as rh;
use rust_hdl::prelude::{AtomKind, Block, Direction, In, Logic, LogicJoin, LogicLink, Out, Probe};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

#[doc(hidden)]
pub use rust_hdl;

/// Value of a [`Wire`], little-endian words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(pub Vec<u64>);

impl From<u64> for Word {
    fn from(x: u64) -> Word {
        Word(vec![x])
    }
}

impl From<bool> for Word {
    fn from(x: bool) -> Word {
        Word(vec![x as u64])
    }
}

impl From<Word> for bool {
    fn from(x: Word) -> bool {
        x.0.first().is_some_and(|x| x & 1 == 1)
    }
}

impl<const N: usize> From<rh::Bits<N>> for Word {
    fn from(x: rh::Bits<N>) -> Word {
        let mut v = vec![0; words(N as u32)];
        (0..N).filter(|i| x.get_bit(*i)).for_each(|i| v[i / 64] |= 1 << (i % 64));
        Word(v)
    }
}

impl<const N: usize> From<Word> for rh::Bits<N> {
    fn from(x: Word) -> rh::Bits<N> {
        let bit = |i: &usize| x.0.get(i / 64).is_some_and(|v| v >> (i % 64) & 1 == 1);
        (0..N).filter(bit).fold(rh::Bits::<N>::default(), |b, i| b.replace_bit(i, true))
    }
}

/// A rust-hdl signal whose width is chosen at run time.
#[derive(Clone, Debug)]
pub struct Wire<D> {
    core: WireCore,
    dir: PhantomData<D>,
}

/// The part of a [`Wire`] that does not depend on its direction.
#[derive(Clone, Debug)]
pub struct WireCore {
    /// Value to be taken at the next update; kernels assign it.
    pub next: Word,
    val: Word,
    width: u32,
    kind: AtomKind,
    is_claimed: bool,
    is_changed: bool,
    id: usize,
}

impl WireCore {
    /// The value, as a kernel reads it.
    pub fn val(&self) -> Word {
        if self.kind == AtomKind::InputParameter {
            self.val.clone()
        } else {
            self.next.clone()
        }
    }

    /// Width in bits.
    pub fn width(&self) -> u32 {
        self.width
    }

    fn is_output(&self) -> bool {
        self.kind != AtomKind::InputParameter
    }
}

impl<D: Direction> Wire<D> {
    /// A signal of `width` bits.
    pub fn new(width: u32) -> Wire<D> {
        let (kind, id) = (D::KIND, rust_hdl::core::signal::get_signal_id());
        let z = Word(vec![0; words(width)]);
        let core = WireCore { next: z.clone(), val: z, width, kind, is_claimed: false, is_changed: false, id };
        Wire { core, dir: PhantomData }
    }
}

impl<D> Deref for Wire<D> {
    type Target = WireCore;
    fn deref(&self) -> &WireCore {
        &self.core
    }
}

impl<D> DerefMut for Wire<D> {
    fn deref_mut(&mut self) -> &mut WireCore {
        &mut self.core
    }
}

impl rh::Atom for WireCore {
    fn bits(&self) -> usize {
        self.width as usize
    }
    fn connected(&self) -> bool {
        self.is_claimed
    }
    fn changed(&self) -> bool {
        self.is_changed
    }
    fn kind(&self) -> AtomKind {
        self.kind
    }
    fn descriptor(&self) -> rh::TypeDescriptor {
        rh::TypeDescriptor { name: format!("Wire<{}>", self.width), kind: rh::TypeKind::Bits(self.width as usize) }
    }
    fn vcd(&self) -> rh::VCDValue {
        let bit = |i: u32| match rh::VCDValue::from(self.val.0[i as usize / 64] >> (i % 64) & 1 == 1) {
            rh::VCDValue::Single(v) => v,
            _ => unreachable!("a bool is a single value"),
        };
        match self.width {
            1 => rh::VCDValue::Single(bit(0)),
            w => rh::VCDValue::Vector((0..w).rev().map(bit).collect()),
        }
    }
    fn id(&self) -> usize {
        self.id
    }
    fn verilog(&self) -> rh::VerilogLiteral {
        // Asked for constants only, which a wire is not.
        self.val.0[0].into()
    }
    fn constraints(&self) -> Vec<rh::PinConstraint> {
        vec![]
    }
}

impl<D: Direction> Logic for Wire<D> {
    fn update(&mut self) {}
    fn connect(&mut self) {
        self.core.is_claimed = true;
    }
}

impl<D: Direction> Block for Wire<D> {
    fn connect_all(&mut self) {}
    fn update_all(&mut self) {
        self.core.step();
    }
    fn has_changed(&self) -> bool {
        self.core.is_changed
    }
    fn accept(&self, name: &str, probe: &mut dyn Probe) {
        probe.visit_atom(name, &self.core);
    }
}

fn links(my_name: &str, owner_name: &str, other_name: &str, is_forward: bool) -> Vec<rh::ast::VerilogLink> {
    let d = rh::ast::VerilogLinkDetails {
        my_name: my_name.into(),
        owner_name: owner_name.into(),
        other_name: other_name.into(),
    };
    vec![if is_forward { rh::ast::VerilogLink::Forward(d) } else { rh::ast::VerilogLink::Backward(d) }]
}

impl<D: Direction> LogicLink for Wire<D> {
    fn link(&mut self, other: &mut Self) {
        if self.is_output() {
            self.next = other.val();
        } else {
            other.next = self.val();
        }
    }
    fn link_hdl(my_name: &str, this: &str, that: &str) -> Vec<rh::ast::VerilogLink> {
        links(my_name, this, that, D::KIND == AtomKind::InputParameter)
    }
    fn link_connect_source(&mut self) {
        if self.is_output() {
            self.connect();
        }
    }
    fn link_connect_dest(&mut self) {
        if !self.is_output() {
            self.connect();
        }
    }
}

impl<D: Direction> LogicJoin for Wire<D> {
    fn join_connect(&mut self) {
        self.connect();
    }
    fn join_hdl(my_name: &str, this: &str, that: &str) -> Vec<rh::ast::VerilogLink> {
        links(my_name, this, that, D::KIND != AtomKind::InputParameter)
    }
}

/// Which end of a bundle a block is.
pub trait End: Clone + 'static {
    /// Direction of the forward fields.
    type Fwd: Direction + 'static;
    /// Direction of the reverse fields.
    type Rev: Direction + 'static;
    /// The other end.
    type Other: End;
}

/// The end into which the forward fields flow: an `in` port.
#[derive(Clone, Debug)]
pub struct SinkEnd;
/// The end that drives the forward fields: an `out` port.
#[derive(Clone, Debug)]
pub struct SourceEnd;

impl End for SinkEnd {
    type Fwd = In;
    type Rev = Out;
    type Other = SourceEnd;
}
impl End for SourceEnd {
    type Fwd = Out;
    type Rev = In;
    type Other = SinkEnd;
}

/// A rust-hdl port or interface of run-time widths.
pub trait HdlPort: Block + LogicLink + Sized {
    /// Builds it, taking the width of each field in order.
    fn build(next_width: &mut dyn FnMut() -> u32) -> Self;
    /// Visits its signals in order.
    fn leaves(&self, f: &mut dyn FnMut(&WireCore));
    /// Visits its signals in order, to change them.
    fn leaves_mut(&mut self, f: &mut dyn FnMut(&mut WireCore));
    /// Lets a probe visit its signals, without a name of its own.
    fn accept_fields(&self, probe: &mut dyn Probe);
    /// Links, as text, of its fields under the prefix `my_name`.
    fn fields_hdl(my_name: &str, this: &str, that: &str, is_join: bool) -> Vec<rh::ast::VerilogLink>;
}

/// Port types that have a rust-hdl form: those made by `bundle!` and `record!`, [`crate::Stream`], [`crate::Uint`].
pub trait HdlFields {
    /// The rust-hdl interface.
    type Ports<X: End>: HdlPort;
}

/// Records that have a rust-hdl form.
pub trait HdlRecord {
    /// The record's fields as rust-hdl signals of one direction.
    type Wires<D: Direction + 'static>: HdlPort;
}

/// The rust-hdl form of an `in` port.
pub type Sink<T> = <T as HdlFields>::Ports<SinkEnd>;
/// The rust-hdl form of an `out` port.
pub type Source<T> = <T as HdlFields>::Ports<SourceEnd>;

/// A rust-hdl port of this layout, for the ports of a hand-written top: `hdl::port(&Axis::layout(64))`.
pub fn port<P: HdlPort>(layout: &Layout) -> P {
    let mut w = layout.fields.iter().map(|f| f.width);
    P::build(&mut || w.next().expect("a width for each field"))
}

impl<D: Direction + 'static> HdlPort for Wire<D> {
    fn build(next_width: &mut dyn FnMut() -> u32) -> Self {
        Wire::new(next_width())
    }
    fn leaves(&self, f: &mut dyn FnMut(&WireCore)) {
        f(&self.core);
    }
    fn leaves_mut(&mut self, f: &mut dyn FnMut(&mut WireCore)) {
        f(&mut self.core);
    }
    fn accept_fields(&self, probe: &mut dyn Probe) {
        self.accept("", probe);
    }
    fn fields_hdl(my_name: &str, this: &str, that: &str, is_join: bool) -> Vec<rh::ast::VerilogLink> {
        if is_join {
            Self::join_hdl(my_name, this, that)
        } else {
            Self::link_hdl(my_name, this, that)
        }
    }
}

impl HdlFields for S<'static> {
    type Ports<X: End> = Wire<X::Fwd>;
}

/// Moves values from the outputs of each side to the inputs of the other: what rust-hdl calls a join.
pub fn join_fields(source: &mut impl HdlPort, sink: &mut impl HdlPort) {
    transfer(source, sink, |w| w.is_output());
}

/// Moves values between an outer port and the equal port of a block inside: what rust-hdl calls a link.
pub fn link_fields(outer: &mut impl HdlPort, inner: &mut impl HdlPort) {
    transfer(outer, inner, |w| !w.is_output());
}

/// Copies each signal of `a` to its like in `b` where `down` holds, and the other way where not.
fn transfer(a: &mut impl HdlPort, b: &mut impl HdlPort, down: impl Fn(&WireCore) -> bool) {
    let mut v: Vec<(bool, Word)> = vec![];
    a.leaves(&mut |w| v.push((down(w), w.val())));
    let mut k = 0;
    b.leaves_mut(&mut |w| {
        let x = &mut v[k];
        if x.0 {
            w.next = std::mem::take(&mut x.1);
        } else {
            x.1 = w.val();
        }
        k += 1;
    });
    k = 0;
    a.leaves_mut(&mut |w| {
        if !v[k].0 {
            w.next = std::mem::take(&mut v[k].1);
        }
        k += 1;
    });
}

/// rust-hdl's traits for an interface type, from its [`HdlPort`].
#[doc(hidden)]
#[macro_export]
macro_rules! __hdl_traits {
    ([$($gen:tt)*] $T:ty) => {
        const _: () = {
            use $crate::hdl::rust_hdl::prelude as rh;
            use $crate::hdl::HdlPort as _;
            impl<$($gen)*> rh::Logic for $T {
                fn update(&mut self) {}
            }
            impl<$($gen)*> rh::Block for $T {
                fn connect_all(&mut self) {}
                fn update_all(&mut self) {
                    self.leaves_mut(&mut |w| w.step());
                }
                fn has_changed(&self) -> bool {
                    let mut any = false;
                    self.leaves(&mut |w| any |= rh::Atom::changed(w));
                    any
                }
                fn accept(&self, name: &str, probe: &mut dyn rh::Probe) {
                    probe.visit_start_namespace(name, self);
                    self.accept_fields(probe);
                    probe.visit_end_namespace(name, self);
                }
            }
            impl<$($gen)*> rh::LogicLink for $T {
                fn link(&mut self, other: &mut Self) {
                    $crate::hdl::link_fields(self, other);
                }
                fn link_hdl(my_name: &str, this: &str, that: &str) -> Vec<rh::ast::VerilogLink> {
                    Self::fields_hdl(my_name, this, that, false)
                }
                fn link_connect_source(&mut self) {
                    self.leaves_mut(&mut |w| w.claim(true));
                }
                fn link_connect_dest(&mut self) {
                    self.leaves_mut(&mut |w| w.claim(false));
                }
            }
            impl<$($gen)*> rh::LogicJoin for $T {
                fn join_connect(&mut self) {
                    self.leaves_mut(&mut |w| {
                        w.claim(true);
                        w.claim(false);
                    });
                }
                fn join_hdl(my_name: &str, this: &str, that: &str) -> Vec<rh::ast::VerilogLink> {
                    Self::fields_hdl(my_name, this, that, true)
                }
            }
        };
    };
}

/// [`HdlPort`] for a struct whose fields are ports.
#[doc(hidden)]
#[macro_export]
macro_rules! __hdl_interface {
    ([$($gen:tt)*] $T:ty { $($f:ident : $ft:ty),* $(,)? }) => {
        impl<$($gen)*> $crate::hdl::HdlPort for $T {
            fn build(next_width: &mut dyn FnMut() -> u32) -> Self {
                Self { $($f: $crate::hdl::HdlPort::build(next_width)),* }
            }
            fn leaves(&self, f: &mut dyn FnMut(&$crate::hdl::WireCore)) {
                $($crate::hdl::HdlPort::leaves(&self.$f, f);)*
            }
            fn leaves_mut(&mut self, f: &mut dyn FnMut(&mut $crate::hdl::WireCore)) {
                $($crate::hdl::HdlPort::leaves_mut(&mut self.$f, f);)*
            }
            fn accept_fields(&self, probe: &mut dyn $crate::hdl::rust_hdl::prelude::Probe) {
                $($crate::hdl::rust_hdl::prelude::Block::accept(&self.$f, stringify!($f), probe);)*
            }
            fn fields_hdl(
                my_name: &str,
                this: &str,
                that: &str,
                is_join: bool,
            ) -> Vec<$crate::hdl::rust_hdl::prelude::ast::VerilogLink> {
                let mut v = vec![];
                $(v.extend(<$ft as $crate::hdl::HdlPort>::fields_hdl(
                    &format!("{my_name}.{}", stringify!($f)), this, that, is_join));)*
                v
            }
        }
        $crate::__hdl_traits!([$($gen)*] $T);
    };
}

/// The rust-hdl form of a [`crate::Stream`]; the record's fields are reached directly.
pub struct StreamPorts<R: HdlRecord, X: End> {
    data: R::Wires<X::Fwd>,
    /// The source has something.
    pub valid: Wire<X::Fwd>,
    /// The sink takes it.
    pub ready: Wire<X::Rev>,
}

impl<R: HdlRecord, X: End> Deref for StreamPorts<R, X> {
    type Target = R::Wires<X::Fwd>;
    fn deref(&self) -> &Self::Target {
        &self.data
    }
}

impl<R: HdlRecord, X: End> DerefMut for StreamPorts<R, X> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.data
    }
}

impl<R: HdlRecord, X: End> HdlPort for StreamPorts<R, X> {
    fn build(next_width: &mut dyn FnMut() -> u32) -> Self {
        let data = HdlPort::build(next_width);
        let valid = HdlPort::build(next_width);
        StreamPorts { data, valid, ready: HdlPort::build(next_width) }
    }
    fn leaves(&self, f: &mut dyn FnMut(&WireCore)) {
        self.data.leaves(f);
        self.valid.leaves(f);
        self.ready.leaves(f);
    }
    fn leaves_mut(&mut self, f: &mut dyn FnMut(&mut WireCore)) {
        self.data.leaves_mut(f);
        self.valid.leaves_mut(f);
        self.ready.leaves_mut(f);
    }
    fn accept_fields(&self, probe: &mut dyn Probe) {
        self.data.accept_fields(probe);
        self.valid.accept("valid", probe);
        self.ready.accept("ready", probe);
    }
    fn fields_hdl(my_name: &str, this: &str, that: &str, is_join: bool) -> Vec<rh::ast::VerilogLink> {
        let mut v = R::Wires::<X::Fwd>::fields_hdl(my_name, this, that, is_join);
        v.extend(Wire::<X::Fwd>::fields_hdl(&format!("{my_name}.valid"), this, that, is_join));
        v.extend(Wire::<X::Rev>::fields_hdl(&format!("{my_name}.ready"), this, that, is_join));
        v
    }
}
crate::__hdl_traits!([R: HdlRecord, X: End] StreamPorts<R, X>);

impl<R: HdlRecord> StreamPorts<R, SourceEnd> {
    /// Connects this source to a sink.
    pub fn join(&mut self, sink: &mut StreamPorts<R, SinkEnd>) {
        join_fields(self, sink);
    }
}

impl<R: HdlRecord> HdlFields for crate::Stream<'static, R> {
    type Ports<X: End> = StreamPorts<R, X>;
}

/// The fields of [`crate::Raw`].
pub struct RawWires<D: Direction> {
    /// The vector.
    pub data: Wire<D>,
}
crate::__hdl_interface!([D: Direction + 'static] RawWires<D> { data: Wire<D> });

impl HdlRecord for crate::Raw<'static> {
    type Wires<D: Direction + 'static> = RawWires<D>;
}

impl WireCore {
    /// Marks an output (or an input) as connected, for rust-hdl's checks; the other direction is left alone.
    #[doc(hidden)]
    pub fn claim(&mut self, outputs: bool) {
        self.is_claimed |= self.is_output() == outputs;
    }

    /// Takes the next value.
    #[doc(hidden)]
    pub fn step(&mut self) {
        self.next.0.resize(words(self.width), 0);
        *self.next.0.last_mut().expect("a word") &= top_mask(self.width);
        self.is_changed = self.val != self.next;
        if self.is_changed {
            self.val = self.next.clone();
        }
    }
}
