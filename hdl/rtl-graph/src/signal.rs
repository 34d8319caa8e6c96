//! `S`, a signal: a copyable handle with a width, and the operations on it.
//!
//! Every operation checks its widths at once and panics with a sentence at the caller's line. Arithmetic wraps at the
//! operands' width; nothing is widened silently. Where a second operand is expected, an integer literal may stand: it
//! takes the width of the first.
use crate::builder::B;
use crate::fold;
use crate::node::{Id, K};
use std::ops::{Add, BitAnd, BitOr, BitXor, Not, Sub};

/// A signal of the module built by a [`B`].
#[derive(Clone, Copy)]
pub struct S<'a> {
    pub(crate) b: &'a B,
    pub(crate) id: Id,
    pub(crate) w: u32,
}

/// Port kind of a plain vector in `module!`: `addr: in Uint(12)`.
pub type Uint<'a> = S<'a>;

impl std::fmt::Debug for S<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let i = self.b.inner.borrow();
        let n = &i.nodes[self.id as usize];
        write!(f, "S({}:{})", n.name.as_deref().unwrap_or("_"), self.w)
    }
}

/// What may stand as a second operand: a signal, or an integer or `bool` that takes the other operand's width.
pub trait Operand<'a>: Copy {
    /// The width, when the operand has one.
    fn operand_width(&self) -> Option<u32>;
    /// The operand as a signal of `w` bits; panics at the caller's line when it is not.
    #[track_caller]
    fn sized(self, b: &'a B, w: u32) -> S<'a>;
}

impl<'a> Operand<'a> for S<'a> {
    fn operand_width(&self) -> Option<u32> {
        Some(self.w)
    }
    #[track_caller]
    fn sized(self, b: &'a B, w: u32) -> S<'a> {
        b.own(self);
        assert!(self.w == w, "{} bits where {w} are needed: widths must be equal (use zext or trunc)", self.w);
        self
    }
}

macro_rules! int_operand {
    ($($t:ty)*) => {$(
        impl<'a> Operand<'a> for $t {
            fn operand_width(&self) -> Option<u32> {
                None
            }
            #[track_caller]
            fn sized(self, b: &'a B, w: u32) -> S<'a> {
                match u64::try_from(self) {
                    Ok(v) => b.lit(v, w),
                    Err(_) => panic!("literal {self} is negative"),
                }
            }
        }
    )*};
}
int_operand!(i32 u8 u16 u32 u64 usize bool);

// `eq`, `shl`, … are the field's words; Rust's traits of these names mean something else (a bool, a fixed type).
#[allow(clippy::should_implement_trait)]
impl<'a> S<'a> {
    /// Width in bits.
    pub fn width(self) -> u32 {
        self.w
    }

    /// The builder the signal belongs to.
    pub fn builder(self) -> &'a B {
        self.b
    }

    /// Field list of a plain vector port; see [`Uint`].
    #[track_caller]
    pub fn layout(width: u32) -> crate::Layout {
        crate::Layout::scalar(width)
    }

    /// Gives the signal a net of this name in the Verilog; the interpreter can peek it by that name.
    #[track_caller]
    pub fn named(self, name: &str) -> S<'a> {
        let full = self.b.full_name(name);
        let target = {
            let i = self.b.inner.borrow();
            let n = &i.nodes[self.id as usize];
            n.k.is_net() || n.name.is_some() || matches!(n.k, K::Const(_))
        };
        let s = if target { self.b.node(K::Buf(self.id), self.w) } else { self };
        let mut i = self.b.inner.borrow_mut();
        let full = i.unique(&full);
        i.nodes[s.id as usize].name = Some(full);
        s
    }

    /// Attaches a synthesis attribute, `(* key = "value" *)`, to the net, register or wire.
    #[track_caller]
    pub fn attr(self, key: &str, value: &str) -> S<'a> {
        crate::names::check(key);
        let mut i = self.b.inner.borrow_mut();
        let n = &mut i.nodes[self.id as usize];
        let ok = n.name.is_some() && !matches!(n.k, K::In(_) | K::InstOut(..));
        assert!(ok, "attribute `{key}` needs a register, a wire or a named net");
        n.attrs.push((key.into(), value.into()));
        self
    }

    /// Assigns a register (its next value), a wire, an output or an input of an instance.
    ///
    /// Inside [`B::when`] the assignment is conditional; outside it is the base value and must be the only one so far.
    #[track_caller]
    pub fn set(self, value: impl Operand<'a>) {
        let v = value.sized(self.b, self.w);
        self.b.drive(self, None, v.id, false);
    }

    /// Assigns a register that nothing has assigned yet: it takes `value` when `en` is 1 and holds otherwise.
    #[track_caller]
    pub fn set_en(self, en: S<'a>, value: impl Operand<'a>) {
        let v = value.sized(self.b, self.w);
        assert_eq!(en.w, 1, "an enable must be 1 bit wide, not {}", en.w);
        self.b.own(en);
        self.b.drive(self, Some(en.id), v.id, true);
    }

    /// Assigns when `cond` holds. Repeatable; of several the last whose condition holds wins, over the base value too.
    #[track_caller]
    pub fn when(self, cond: S<'a>, value: impl Operand<'a>) {
        let v = value.sized(self.b, self.w);
        assert_eq!(cond.w, 1, "a condition must be 1 bit wide, not {}", cond.w);
        self.b.own(cond);
        self.b.drive(self, Some(cond.id), v.id, false);
    }

    #[track_caller]
    fn pair(self, o: impl Operand<'a>) -> (S<'a>, S<'a>) {
        (self, o.sized(self.b, self.w))
    }

    /// Equal.
    #[track_caller]
    pub fn eq(self, o: impl Operand<'a>) -> S<'a> {
        let (a, c) = self.pair(o);
        fold::eq(a, c)
    }

    /// Not equal.
    #[track_caller]
    pub fn ne(self, o: impl Operand<'a>) -> S<'a> {
        !self.eq(o)
    }

    /// Less, unsigned.
    #[track_caller]
    pub fn lt(self, o: impl Operand<'a>) -> S<'a> {
        let (a, c) = self.pair(o);
        self.b.op(K::Lt(a.id, c.id), 1)
    }

    /// Greater, unsigned.
    #[track_caller]
    pub fn gt(self, o: impl Operand<'a>) -> S<'a> {
        let (a, c) = self.pair(o);
        self.b.op(K::Lt(c.id, a.id), 1)
    }

    /// Less or equal, unsigned.
    #[track_caller]
    pub fn le(self, o: impl Operand<'a>) -> S<'a> {
        !self.gt(o)
    }

    /// Greater or equal, unsigned.
    #[track_caller]
    pub fn ge(self, o: impl Operand<'a>) -> S<'a> {
        !self.lt(o)
    }

    /// Less, two's complement.
    #[track_caller]
    pub fn lt_signed(self, o: impl Operand<'a>) -> S<'a> {
        let (a, c) = self.pair(o);
        self.b.op(K::Slt(a.id, c.id), 1)
    }

    /// `a` where this one-bit signal is 1, else `c`.
    #[track_caller]
    pub fn mux(self, a: impl Operand<'a>, c: impl Operand<'a>) -> S<'a> {
        assert_eq!(self.w, 1, "the condition of a mux must be 1 bit wide, not {}", self.w);
        let w = a.operand_width().or(c.operand_width());
        let w = w.expect("two literals have no width: make one of them with `lit`");
        let (a, c) = (a.sized(self.b, w), c.sized(self.b, w));
        fold::mux(self, a, c)
    }

    /// Bits `lo .. lo + w`.
    #[track_caller]
    pub fn bits(self, lo: u32, w: u32) -> S<'a> {
        assert!(w > 0, "a slice of zero width");
        assert!(lo + w <= self.w, "bits {lo}..{} of a signal of {} bits", lo + w, self.w);
        fold::slice(self, lo, w)
    }

    /// Bit `i`.
    #[track_caller]
    pub fn bit(self, i: u32) -> S<'a> {
        self.bits(i, 1)
    }

    /// Most significant bit.
    #[track_caller]
    pub fn msb(self) -> S<'a> {
        self.bits(self.w - 1, 1)
    }

    /// The `w` most significant bits.
    #[track_caller]
    pub fn high_bits(self, w: u32) -> S<'a> {
        assert!(w <= self.w, "{w} bits of a signal of {} bits", self.w);
        self.bits(self.w - w, w)
    }

    /// The `w` least significant bits.
    #[track_caller]
    pub fn trunc(self, w: u32) -> S<'a> {
        self.bits(0, w)
    }

    /// Zero-extended to `w` bits.
    #[track_caller]
    pub fn zext(self, w: u32) -> S<'a> {
        assert!(w >= self.w, "{} bits do not fit {w}", self.w);
        if w == self.w {
            self
        } else {
            self.b.cat(&[self.b.zero(w - self.w), self])
        }
    }

    /// Sign-extended to `w` bits.
    #[track_caller]
    pub fn sext(self, w: u32) -> S<'a> {
        assert!(w >= self.w, "{} bits do not fit {w}", self.w);
        if w == self.w {
            self
        } else {
            self.b.cat(&[self.msb().rep(w - self.w), self])
        }
    }

    /// Zero-extended or truncated to `w` bits.
    #[track_caller]
    pub fn resize(self, w: u32) -> S<'a> {
        if w <= self.w {
            self.trunc(w)
        } else {
            self.zext(w)
        }
    }

    /// This signal above `low`.
    #[track_caller]
    pub fn cat(self, low: S<'a>) -> S<'a> {
        self.b.cat(&[self, low])
    }

    /// This one-bit signal `w` times.
    #[track_caller]
    pub fn rep(self, w: u32) -> S<'a> {
        assert_eq!(self.w, 1, "only one bit is repeated, not {}", self.w);
        if w == 1 {
            self
        } else {
            self.mux(self.b.ones(w), self.b.zero(w))
        }
    }

    /// 1 when any bit is 1.
    #[track_caller]
    pub fn any(self) -> S<'a> {
        if self.w == 1 {
            self
        } else {
            self.b.op(K::AnyOne(self.id), 1)
        }
    }

    /// 1 when no bit is 1.
    #[track_caller]
    pub fn is_zero(self) -> S<'a> {
        !self.any()
    }

    /// 1 when every bit is 1.
    #[track_caller]
    pub fn all(self) -> S<'a> {
        if self.w == 1 {
            self
        } else {
            self.b.op(K::AllOnes(self.id), 1)
        }
    }

    /// Exclusive or of all bits.
    #[track_caller]
    pub fn xor(self) -> S<'a> {
        if self.w == 1 {
            self
        } else {
            self.b.op(K::Parity(self.id), 1)
        }
    }

    /// Plus one, wrapping.
    #[track_caller]
    pub fn inc(self) -> S<'a> {
        self + 1
    }

    /// Minus one, wrapping.
    #[track_caller]
    pub fn dec(self) -> S<'a> {
        self - 1
    }

    /// Two's complement negation.
    #[track_caller]
    pub fn neg(self) -> S<'a> {
        self.b.zero(self.w) - self
    }

    /// Sum with its carry as one more bit.
    #[track_caller]
    pub fn add_carry(self, o: impl Operand<'a>) -> S<'a> {
        let (a, c) = self.pair(o);
        a.zext(self.w + 1) + c.zext(self.w + 1)
    }

    /// Difference with its borrow as one more bit (1 when `self < o`).
    #[track_caller]
    pub fn sub_borrow(self, o: impl Operand<'a>) -> S<'a> {
        let (a, c) = self.pair(o);
        a.zext(self.w + 1) - c.zext(self.w + 1)
    }

    /// Product, wrapping at the width.
    #[track_caller]
    pub fn mul(self, o: impl Operand<'a>) -> S<'a> {
        let (a, c) = self.pair(o);
        self.b.op(K::Mul(a.id, c.id), self.w)
    }

    /// Product at full width, the sum of both widths.
    #[track_caller]
    pub fn mul_full(self, o: S<'a>) -> S<'a> {
        self.b.own(o);
        let w = self.w + o.w;
        self.zext(w).mul(o.zext(w))
    }

    /// Shifted left by a constant, zeros coming in.
    #[track_caller]
    pub fn shl(self, n: u32) -> S<'a> {
        if n == 0 {
            self
        } else if n >= self.w {
            self.b.zero(self.w)
        } else {
            self.b.cat(&[self.trunc(self.w - n), self.b.zero(n)])
        }
    }

    /// Shifted right by a constant, zeros coming in.
    #[track_caller]
    pub fn shr(self, n: u32) -> S<'a> {
        if n == 0 {
            self
        } else if n >= self.w {
            self.b.zero(self.w)
        } else {
            self.bits(n, self.w - n).zext(self.w)
        }
    }

    /// Shifted left by a signal of any width (a barrel shifter); zero when `n` is the width or more.
    #[track_caller]
    pub fn shl_by(self, n: S<'a>) -> S<'a> {
        self.b.own(n);
        self.b.op(K::Shl(self.id, n.id), self.w)
    }

    /// Shifted right by a signal of any width (a barrel shifter); zero when `n` is the width or more.
    #[track_caller]
    pub fn shr_by(self, n: S<'a>) -> S<'a> {
        self.b.own(n);
        self.b.op(K::Shr(self.id, n.id), self.w)
    }
}

impl<'a> Not for S<'a> {
    type Output = S<'a>;
    #[track_caller]
    fn not(self) -> S<'a> {
        fold::not(self)
    }
}

macro_rules! binary {
    ($($tr:ident $f:ident $fold:path;)*) => {$(
        impl<'a, T: Operand<'a>> $tr<T> for S<'a> {
            type Output = S<'a>;
            #[track_caller]
            fn $f(self, o: T) -> S<'a> {
                let (a, c) = self.pair(o);
                $fold(a, c)
            }
        }
    )*};
}
binary! {
    BitAnd bitand fold::and;
    BitOr bitor fold::or;
    BitXor bitxor fold::xor;
    Add add fold::add;
    Sub sub fold::sub;
}
