//! Layouts, records and bundles: named fields over signals, and streams of them.
//!
//! A [`Layout`] is an ordered list of fields chosen at run time. `record!` makes a struct of signals with a layout (a
//! table row, a payload); `bundle!` makes one whose fields have directions (a port). [`Stream`] is the bundle
//! `valid`/`ready` around a record.
use crate::builder::{SlotKind, B};
use crate::signal::{Operand, S};

/// A field of a [`Layout`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name; empty in the layout of a plain vector.
    pub name: String,
    /// Bits.
    pub width: u32,
    /// Whether the field flows against the bundle's direction (`ready`).
    pub is_reverse: bool,
}

/// Ordered named fields, the first in the least significant bits.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Layout {
    /// The fields in order.
    pub fields: Vec<Field>,
}

impl Layout {
    /// Layout of forward fields.
    #[track_caller]
    pub fn new<N: Into<String>>(fields: impl IntoIterator<Item = (N, u32)>) -> Layout {
        let mut l = Layout::default();
        for (n, w) in fields {
            l.push(n, w, false);
        }
        l
    }

    /// Layout of a plain vector: one field without a name.
    #[track_caller]
    pub fn scalar(width: u32) -> Layout {
        assert!(width > 0, "a port of zero width");
        Layout { fields: vec![Field { name: String::new(), width, is_reverse: false }] }
    }

    /// Appends a field.
    #[track_caller]
    pub fn push(&mut self, name: impl Into<String>, width: u32, is_reverse: bool) {
        let name = name.into();
        assert!(width > 0, "field `{name}` of zero width");
        crate::names::check_part(&name);
        assert!(self.fields.iter().all(|f| f.name != name), "two fields named `{name}`");
        self.fields.push(Field { name, width, is_reverse });
    }

    /// Bits of all fields.
    pub fn width(&self) -> u32 {
        self.fields.iter().map(|f| f.width).sum()
    }

    /// `(least significant bit, width)` of a field.
    #[track_caller]
    pub fn place(&self, name: &str) -> (u32, u32) {
        let mut lo = 0;
        for f in &self.fields {
            if f.name == name {
                return (lo, f.width);
            }
            lo += f.width;
        }
        let names: Vec<&str> = self.fields.iter().map(|f| f.name.as_str()).collect();
        panic!("no field `{name}` among {names:?}");
    }

    /// The field of a packed signal.
    #[track_caller]
    pub fn get<'a>(&self, packed: S<'a>, name: &str) -> S<'a> {
        self.check(packed);
        let (lo, w) = self.place(name);
        packed.bits(lo, w)
    }

    /// All fields of a packed signal, in order.
    #[track_caller]
    pub fn unpack<'a>(&self, packed: S<'a>) -> Vec<S<'a>> {
        self.check(packed);
        let mut lo = 0;
        let mut v = vec![];
        for f in &self.fields {
            v.push(packed.bits(lo, f.width));
            lo += f.width;
        }
        v
    }

    /// The packed signal with some fields replaced.
    #[track_caller]
    pub fn with<'a>(&self, packed: S<'a>, changes: &[(&str, S<'a>)]) -> S<'a> {
        let mut parts = self.unpack(packed);
        for (n, v) in changes {
            let k = self.index(n);
            assert!(v.w == self.fields[k].width, "field `{n}` has {} bits, not {}", self.fields[k].width, v.w);
            parts[k] = *v;
        }
        parts.reverse();
        packed.b.cat(&parts)
    }

    /// Packs named values; every field must be given exactly once.
    #[track_caller]
    pub fn pack<'a>(&self, values: &[(&str, S<'a>)]) -> S<'a> {
        assert!(!self.fields.is_empty(), "a layout without fields");
        assert!(values.len() == self.fields.len(), "{} values for {} fields", values.len(), self.fields.len());
        let mut parts: Vec<Option<S<'a>>> = vec![None; self.fields.len()];
        for (n, v) in values {
            let k = self.index(n);
            assert!(parts[k].is_none(), "field `{n}` is given twice");
            assert!(v.w == self.fields[k].width, "field `{n}` has {} bits, not {}", self.fields[k].width, v.w);
            parts[k] = Some(*v);
        }
        let parts: Vec<S> = parts.into_iter().rev().flatten().collect();
        parts[0].b.cat(&parts)
    }

    #[track_caller]
    fn index(&self, name: &str) -> usize {
        self.place(name);
        self.fields.iter().position(|f| f.name == name).expect("placed above")
    }

    #[track_caller]
    fn check(&self, packed: S) {
        assert!(packed.w == self.width(), "{} bits where the layout has {}", packed.w, self.width());
    }
}

/// A struct whose fields are signals: what `record!` and `bundle!` make.
pub trait Fields<'a>: Sized + Clone {
    /// Builds the struct, asking for each field's signal in order.
    #[doc(hidden)]
    fn build(next: &mut dyn FnMut() -> S<'a>) -> Self;
    /// Appends every field's signal in order.
    #[doc(hidden)]
    fn collect(&self, out: &mut Vec<S<'a>>);
    /// Field names and directions, in order.
    #[doc(hidden)]
    fn names(out: &mut Vec<(String, bool)>);

    /// Every field's signal in order.
    fn signals(&self) -> Vec<S<'a>> {
        let mut v = vec![];
        self.collect(&mut v);
        v
    }

    /// The layout of these signals.
    fn layout_of(&self) -> Layout {
        let mut n = vec![];
        Self::names(&mut n);
        let f = |((name, is_reverse), s): ((String, bool), S)| Field { name, width: s.w, is_reverse };
        Layout { fields: n.into_iter().zip(self.signals()).map(f).collect() }
    }

    /// The struct over given signals.
    #[track_caller]
    fn over(signals: &[S<'a>]) -> Self {
        let mut it = signals.iter();
        let r = Self::build(&mut || *it.next().expect("too few signals"));
        assert!(it.next().is_none(), "too many signals");
        r
    }
}

/// A struct of signals without direction: what `record!` makes.
pub trait Record<'a>: Fields<'a> {
    /// All fields as one signal, the first in the least significant bits.
    #[track_caller]
    fn pack(&self) -> S<'a> {
        let mut v = self.signals();
        v.reverse();
        v[0].b.cat(&v)
    }

    /// The record of a packed signal.
    #[track_caller]
    fn unpack_as(layout: &Layout, packed: S<'a>) -> Self {
        Self::over(&layout.unpack(packed))
    }

    /// Registers without reset, one a field, named `NAME_field`.
    #[track_caller]
    fn reg_like(&self, name: &str) -> Self {
        let s = self.signals();
        let l = self.layout_of();
        let mut r = vec![];
        for (s, f) in s.iter().zip(&l.fields) {
            r.push(s.b.reg(&format!("{name}_{}", f.name), s.w));
        }
        Self::over(&r)
    }

    /// Registers without reset that take this record when `en` is 1.
    #[track_caller]
    fn reg_en(&self, name: &str, en: S<'a>) -> Self {
        let r = self.reg_like(name);
        r.set_en(en, self);
        r
    }

    /// Registers without reset that take this record at every clock.
    #[track_caller]
    fn delayed(&self, name: &str) -> Self {
        let r = self.reg_like(name);
        r.set(self);
        r
    }

    /// Assigns every field; see [`S::set`].
    #[track_caller]
    fn set(&self, value: &Self) {
        for (t, v) in self.signals().into_iter().zip(value.signals()) {
            t.set(v);
        }
    }

    /// Assigns every field under an enable; see [`S::set_en`].
    #[track_caller]
    fn set_en(&self, en: S<'a>, value: &Self) {
        for (t, v) in self.signals().into_iter().zip(value.signals()) {
            t.set_en(en, v);
        }
    }

    /// Assigns every field under a condition; see [`S::when`].
    #[track_caller]
    fn when(&self, cond: S<'a>, value: &Self) {
        for (t, v) in self.signals().into_iter().zip(value.signals()) {
            t.when(cond, v);
        }
    }

    /// `a` where `cond` is 1, else `c`, field by field.
    #[track_caller]
    fn mux(cond: S<'a>, a: &Self, c: &Self) -> Self {
        let mut v = vec![];
        for (x, y) in a.signals().into_iter().zip(c.signals()) {
            v.push(cond.mux(x, y));
        }
        Self::over(&v)
    }

    /// First record whose condition holds, else `default`.
    #[track_caller]
    fn select(arms: &[(S<'a>, Self)], default: &Self) -> Self {
        let mut r = default.clone();
        for (c, v) in arms.iter().rev() {
            r = Self::mux(*c, v, &r);
        }
        r
    }

    /// Names every field's net `NAME_field`.
    #[track_caller]
    fn named(&self, name: &str) -> Self {
        let l = self.layout_of();
        let mut v = vec![];
        for (s, f) in self.signals().into_iter().zip(&l.fields) {
            v.push(s.named(&format!("{name}_{}", f.name)));
        }
        Self::over(&v)
    }
}

/// A struct of signals with directions: what `bundle!` makes, and [`Stream`].
///
/// One type serves both ends: as an `in` port the forward fields are readable and the reverse ones are to be driven, as
/// an `out` port and as the `in` port of an instance it is the other way round.
pub trait Bundle<'a>: Fields<'a> {
    /// The signal of a field.
    #[track_caller]
    fn field(&self, name: &str) -> S<'a> {
        let mut n = vec![];
        Self::names(&mut n);
        match n.iter().position(|(f, _)| f == name) {
            Some(k) => self.signals()[k],
            None => panic!("no field `{name}` in this bundle"),
        }
    }

    /// Whether the bundle has a field of this name.
    fn has_field(&self, name: &str) -> bool {
        let mut n = vec![];
        Self::names(&mut n);
        n.iter().any(|(f, _)| f == name)
    }

    /// The signals of the forward fields but `valid`.
    fn payload_signals(&self) -> Vec<S<'a>> {
        let mut n = vec![];
        Self::names(&mut n);
        let keep = |((name, rev), s): ((String, bool), S<'a>)| (!rev && name != "valid").then_some(s);
        n.into_iter().zip(self.signals()).filter_map(keep).collect()
    }

    /// The forward fields but `valid` as one signal, the first in the least significant bits.
    #[track_caller]
    fn payload(&self) -> S<'a> {
        let mut v = self.payload_signals();
        v.reverse();
        assert!(!v.is_empty(), "a bundle without payload");
        v[0].b.cat(&v)
    }

    /// Bits of the payload.
    fn payload_width(&self) -> u32 {
        self.payload_signals().iter().map(|s| s.w).sum()
    }

    /// Drives the forward fields but `valid` from one signal.
    #[track_caller]
    fn set_payload(&self, packed: S<'a>) {
        let (w, mut lo) = (self.payload_width(), 0);
        assert!(packed.w == w, "{} bits where the payload has {w}", packed.w);
        for s in self.payload_signals() {
            s.set(packed.bits(lo, s.w));
            lo += s.w;
        }
    }

    /// `valid & ready`: a transfer happens at this clock edge.
    #[track_caller]
    fn fire(&self) -> S<'a> {
        self.field("valid") & self.field("ready")
    }

    /// Wires of the bundle's shape, named `NAME_field`, to be driven at both ends by [`B::connect`].
    #[track_caller]
    fn wires(&self, name: &str) -> Self {
        let l = self.layout_of();
        let b = self.signals()[0].b;
        let mut v = vec![];
        for f in &l.fields {
            v.push(b.wire(&format!("{name}_{}", f.name), f.width));
        }
        Self::over(&v)
    }
}

/// Valid/ready around a record. `valid` does not wait for `ready`; the payload is stable until taken.
///
/// Ports: `NAME_valid`, `NAME_ready` and `NAME_field` for each field.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a, R> {
    /// The payload's fields.
    pub data: R,
    /// The source has something.
    pub valid: S<'a>,
    /// The sink takes it (reverse).
    pub ready: S<'a>,
}

/// Valid/ready around one vector `data`, for blocks that move any payload.
pub type Flow<'a> = Stream<'a, Raw<'a>>;

impl<'a, R: Fields<'a>> Fields<'a> for Stream<'a, R> {
    fn build(next: &mut dyn FnMut() -> S<'a>) -> Self {
        let data = R::build(next);
        let valid = next();
        Stream { data, valid, ready: next() }
    }
    fn collect(&self, out: &mut Vec<S<'a>>) {
        self.data.collect(out);
        out.extend([self.valid, self.ready]);
    }
    fn names(out: &mut Vec<(String, bool)>) {
        R::names(out);
        out.extend([("valid".into(), false), ("ready".into(), true)]);
    }
}
impl<'a, R: Fields<'a>> Bundle<'a> for Stream<'a, R> {}

impl<'a, R: Record<'a>> Stream<'a, R> {
    /// Field list around a record of this layout: `in Stream<Row>(Row::layout(p))` in a port list.
    #[track_caller]
    pub fn layout_of_record(record: Layout) -> Layout {
        let mut l = record;
        l.push("valid", 1, false);
        l.push("ready", 1, true);
        l
    }

    /// Drives `valid` and every field.
    #[track_caller]
    pub fn put(&self, valid: impl Operand<'a>, data: &R) {
        self.valid.set(valid);
        self.data.set(data);
    }
}

/// Records whose widths are constants; their streams need no layout in a port list.
pub trait ConstRecord {
    /// The record's layout.
    fn const_layout() -> Layout;
}

impl<'a, R: Record<'a> + ConstRecord> Stream<'a, R> {
    /// Field list: `in Stream<Event>` in a port list.
    #[track_caller]
    pub fn layout() -> Layout {
        Self::layout_of_record(R::const_layout())
    }
}

/// The record of one vector, `data`.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// The vector.
    pub data: S<'a>,
}

impl<'a> Fields<'a> for Raw<'a> {
    fn build(next: &mut dyn FnMut() -> S<'a>) -> Self {
        Raw { data: next() }
    }
    fn collect(&self, out: &mut Vec<S<'a>>) {
        out.push(self.data);
    }
    fn names(out: &mut Vec<(String, bool)>) {
        out.push(("data".into(), false));
    }
}
impl<'a> Record<'a> for Raw<'a> {}

impl Raw<'_> {
    /// Layout of a vector of `width` bits.
    #[track_caller]
    pub fn layout(width: u32) -> Layout {
        Layout::new([("data", width)])
    }
}

impl<'a> Fields<'a> for S<'a> {
    fn build(next: &mut dyn FnMut() -> S<'a>) -> Self {
        next()
    }
    fn collect(&self, out: &mut Vec<S<'a>>) {
        out.push(*self);
    }
    fn names(out: &mut Vec<(String, bool)>) {
        out.push((String::new(), false));
    }
}

impl B {
    /// Connects two ends of a bundle: each field goes from the end that has it to the end that needs it.
    ///
    /// # Panics
    /// At the caller's line when the widths differ, both ends drive a field, neither does, or one is driven twice.
    #[track_caller]
    pub fn connect<'a, P: Fields<'a>>(&'a self, up: &P, down: &P) {
        let (l, m) = (up.layout_of(), down.layout_of());
        for ((f, g), (x, y)) in l.fields.iter().zip(&m.fields).zip(up.signals().into_iter().zip(down.signals())) {
            let what = if f.name.is_empty() { "the signal".into() } else { format!("field `{}`", f.name) };
            assert!(f.width == g.width, "{what} has {} bits at one end and {} at the other", f.width, g.width);
            let (from, to) = if f.is_reverse { (y, x) } else { (x, y) };
            let flows = to.slot_kind().is_some() && matches!(from.slot_kind(), None | Some(SlotKind::Wire));
            assert!(
                flows,
                "{what} cannot flow this way: is `{}` to drive `{}`? (the first argument of connect is the source)",
                from.label(),
                to.label()
            );
            to.set(from);
        }
    }
}

/// Declares a struct of signals with a layout: `record! { pub struct Row(p: &Params) { psn: 24, map: p.window } }`.
///
/// Gives the struct `Row<'a>` (fields of type [`S`]), `Row::layout(p)`, `Row::width(p)`, `Row::unpack(packed, p)` and the
/// methods of [`Record`]. Without parameters its [`Stream`] needs no layout. The first field is least significant.
#[macro_export]
macro_rules! record {
    ($(#[$m:meta])* $vis:vis struct $Name:ident { $($(#[$fm:meta])* $f:ident : $w:expr),* $(,)? }) => {
        $crate::record! { $(#[$m])* $vis struct $Name() { $($(#[$fm])* $f : $w),* } }
        impl $crate::ConstRecord for $Name<'_> {
            fn const_layout() -> $crate::Layout {
                $Name::layout()
            }
        }
    };
    ($(#[$m:meta])* $vis:vis struct $Name:ident ($($p:ident : $pt:ty),* $(,)?) {
        $($(#[$fm:meta])* $f:ident : $w:expr),* $(,)?
    }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $Name<'a> { $($(#[$fm])* #[allow(missing_docs)] pub $f: $crate::S<'a>),* }
        #[allow(dead_code)]
        impl<'a> $Name<'a> {
            /// The record's fields and widths.
            #[track_caller]
            pub fn layout($($p: $pt),*) -> $crate::Layout {
                $crate::Layout::new([$((stringify!($f), $w)),*])
            }
            /// Bits of the packed record.
            #[track_caller]
            pub fn width($($p: $pt),*) -> u32 {
                Self::layout($($p),*).width()
            }
            /// The record of a packed signal.
            #[track_caller]
            pub fn unpack(packed: $crate::S<'a>, $($p: $pt),*) -> Self {
                <Self as $crate::Record>::unpack_as(&Self::layout($($p),*), packed)
            }
            /// All fields zero.
            #[track_caller]
            pub fn zero(b: &'a $crate::B, $($p: $pt),*) -> Self {
                let l = Self::layout($($p),*);
                <Self as $crate::Record>::unpack_as(&l, b.zero(l.width()))
            }
        }
        impl<'a> $crate::Fields<'a> for $Name<'a> {
            fn build(next: &mut dyn FnMut() -> $crate::S<'a>) -> Self {
                $Name { $($f: next()),* }
            }
            fn collect(&self, out: &mut Vec<$crate::S<'a>>) {
                out.extend([$(self.$f),*]);
            }
            fn names(out: &mut Vec<(String, bool)>) {
                out.extend([$((stringify!($f).to_string(), false)),*]);
            }
        }
        impl<'a> $crate::Record<'a> for $Name<'a> {}
        const _: () = {
            use $crate::hdl::rust_hdl::prelude::Direction;
            #[allow(missing_docs)]
            pub struct Wires<D> {
                $(pub $f: $crate::hdl::Wire<D>),*
            }
            $crate::__hdl_interface!([D: Direction + 'static] Wires<D> { $($f: $crate::hdl::Wire<D>),* });
            impl $crate::hdl::HdlRecord for $Name<'static> {
                type Wires<D: Direction + 'static> = Wires<D>;
            }
        };
    };
}

/// Declares a port type: forward and reverse fields, widths constant or from parameters.
///
/// `bundle! { pub struct Axis(bytes: u32) { fwd data: 8 * bytes, keep: bytes, last: 1, valid: 1; rev ready: 1 } }` gives
/// the struct `Axis<'a>` (fields of type [`S`]), `Axis::layout(bytes)` and the methods of [`Bundle`].
#[macro_export]
macro_rules! bundle {
    ($(#[$m:meta])* $vis:vis struct $Name:ident $(($($p:ident : $pt:ty),* $(,)?))? {
        fwd $($(#[$fm:meta])* $f:ident : $w:expr),* $(,)?
        $(; rev $($(#[$rm:meta])* $r:ident : $v:expr),* $(,)?)? $(;)?
    }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $Name<'a> {
            $($(#[$fm])* #[allow(missing_docs)] pub $f: $crate::S<'a>,)*
            $($($(#[$rm])* #[allow(missing_docs)] pub $r: $crate::S<'a>,)*)?
        }
        #[allow(dead_code)]
        impl<'a> $Name<'a> {
            /// The bundle's fields, widths and directions.
            #[track_caller]
            pub fn layout($($($p: $pt),*)?) -> $crate::Layout {
                let mut l = $crate::Layout::default();
                $(l.push(stringify!($f), $w, false);)*
                $($(l.push(stringify!($r), $v, true);)*)?
                l
            }
        }
        impl<'a> $crate::Fields<'a> for $Name<'a> {
            fn build(next: &mut dyn FnMut() -> $crate::S<'a>) -> Self {
                $Name { $($f: next(),)* $($($r: next(),)*)? }
            }
            fn collect(&self, out: &mut Vec<$crate::S<'a>>) {
                out.extend([$(self.$f,)* $($(self.$r,)*)?]);
            }
            fn names(out: &mut Vec<(String, bool)>) {
                out.extend([$((stringify!($f).to_string(), false),)* $($((stringify!($r).to_string(), true),)*)?]);
            }
        }
        impl<'a> $crate::Bundle<'a> for $Name<'a> {}
        const _: () = {
            use $crate::hdl::{End, SinkEnd, SourceEnd, Wire};
            #[allow(missing_docs)]
            pub struct Ports<X: End> {
                $(pub $f: Wire<X::Fwd>,)*
                $($(pub $r: Wire<X::Rev>,)*)?
            }
            $crate::__hdl_interface!([X: End] Ports<X> { $($f: Wire<X::Fwd>,)* $($($r: Wire<X::Rev>,)*)? });
            impl Ports<SourceEnd> {
                /// Connects this source to a sink.
                #[allow(dead_code)]
                pub fn join(&mut self, sink: &mut Ports<SinkEnd>) {
                    $crate::hdl::join_fields(self, sink);
                }
            }
            impl $crate::hdl::HdlFields for $Name<'static> {
                type Ports<X: End> = Ports<X>;
            }
        };
    };
}
