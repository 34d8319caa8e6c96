//! One table per byte format: typed accessors for Rust, reflection for everything else.
//!
//! [`layout!`](crate::layout!) takes the fields of a format in order, with their widths; positions follow from the
//! widths, so gaps and overlaps cannot be written, and the sum is checked against the stated size at compile time.
//!
//! * `big` is for headers on the wire: bit 0 is the most significant bit of byte 0 (IETF order).
//! * `little` is for host memory: bit 0 is the least significant bit of byte 0, so a field of a format held in a
//!   register or on a bus with byte 0 in bits 7:0 is `[bit_offset + bits - 1 : bit_offset]`.
//!
//! Accessors read the bytes a field touches as one word and shift; a field on byte borders becomes a plain load.

/// Which end of a byte and of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Network order: bit 0 is the most significant bit of byte 0.
    Big,
    /// Host order: bit 0 is the least significant bit of byte 0.
    Little,
}

/// One field of a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name as in the table.
    pub name: &'static str,
    /// Position of the first bit from the start of the format, counted in the format's [`Order`].
    pub bit_offset: usize,
    /// Width in bits.
    pub bits: usize,
    /// Bit and byte order of the format that the field belongs to.
    pub order: Order,
    /// Meaning, unit, range.
    pub doc: &'static str,
}

impl Field {
    /// True when the field starts at a byte and consists of whole bytes.
    pub const fn is_byte_aligned(&self) -> bool {
        self.bit_offset % 8 == 0 && self.bits % 8 == 0
    }

    /// True for a field that carries nothing: sent as zero, ignored on reception.
    pub const fn is_reserved(&self) -> bool {
        let name = self.name.as_bytes();
        name.len() >= 4 && name[0] == b'r' && name[1] == b'e' && name[2] == b's' && name[3] == b'v'
    }

    /// Largest value the field can hold; `None` above 64 bits.
    pub const fn value_max(&self) -> Option<u64> {
        match self.bits {
            0..=64 => Some(mask(self.bits)),
            _ => None,
        }
    }

    /// How far the field's value is shifted within the big-endian word of `len_bytes` at byte `first_byte` of the
    /// format. Panics when the field does not lie within that word.
    pub const fn shift_in_word(&self, first_byte: usize, len_bytes: usize) -> usize {
        let end = 8 * (first_byte + len_bytes);
        assert!(matches!(self.order, Order::Big), "only big-endian fields lie in big-endian words");
        assert!(
            self.bit_offset >= 8 * first_byte && self.bit_offset + self.bits <= end,
            "the field lies in another word"
        );
        end - self.bit_offset - self.bits
    }

    /// Slices `(lsb, bits)` of a bus that carries byte `i` of the format in bits `8 * i + 7 : 8 * i`.
    ///
    /// Concatenated with the first slice most significant they are the field's value. `base_byte` is where on the bus
    /// the format begins.
    pub fn lanes(&self, base_byte: usize) -> impl Iterator<Item = (usize, usize)> + Clone {
        let (start, end, base, order) = (self.bit_offset, self.bit_offset + self.bits, 8 * base_byte, self.order);
        let (first, last) = match order {
            Order::Big => (start / 8, (end - 1) / 8),
            Order::Little => (0, 0),
        };
        (first..=last).map(move |byte| match order {
            Order::Big => {
                let (from, to) = (start.max(8 * byte), end.min(8 * byte + 8));
                (base + 8 * byte + 8 * byte + 8 - to, to - from)
            }
            Order::Little => (base + start, end - start),
        })
    }
}

/// A fixed-size format. Fields are contiguous by construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name of the Rust type.
    pub name: &'static str,
    /// What the format is for.
    pub doc: &'static str,
    /// Bit and byte order of all fields.
    pub order: Order,
    /// Size in bytes.
    pub len_bytes: usize,
    /// Fields in order of position.
    pub fields: &'static [Field],
}

impl Layout {
    /// The field called `name`. A wrong name is a bug of the caller: it panics, in a `const` at compile time.
    #[track_caller]
    pub const fn field(&self, name: &str) -> Field {
        let mut i = 0;
        while i < self.fields.len() {
            if str_eq(self.fields[i].name, name) {
                return self.fields[i];
            }
            i += 1;
        }
        panic!("the layout has no field of this name")
    }

    /// The field called `name`, or `None`.
    pub fn find(&self, name: &str) -> Option<Field> {
        self.fields.iter().find(|field| field.name == name).copied()
    }

    /// Size in bits.
    pub const fn bits(&self) -> usize {
        8 * self.len_bytes
    }
}

/// A buffer is shorter than the format read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// Name of the format.
    pub format: &'static str,
    /// Size of the format.
    pub need_bytes: usize,
    /// Size of the buffer.
    pub have_bytes: usize,
}

impl core::fmt::Display for TooShort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} needs {} bytes, {} are there", self.format, self.need_bytes, self.have_bytes)
    }
}

impl core::error::Error for TooShort {}

/// A type that a field's accessors may give and take.
pub trait Value: Copy {
    /// Reads the field of `bits` bits at bit `at`.
    fn load(buf: &[u8], order: Order, at: usize, bits: usize) -> Self;
    /// Writes the field of `bits` bits at bit `at`.
    fn store(self, buf: &mut [u8], order: Order, at: usize, bits: usize);
}

macro_rules! integer_values {
    ($($ty:ty)+) => {$(
        impl Value for $ty {
            #[inline(always)]
            fn load(buf: &[u8], order: Order, at: usize, bits: usize) -> Self {
                get_bits(buf, order, at, bits) as $ty
            }
            #[inline(always)]
            fn store(self, buf: &mut [u8], order: Order, at: usize, bits: usize) {
                set_bits(buf, order, at, bits, u64::from(self));
            }
        }
    )+};
}
integer_values!(u8 u16 u32 u64);

impl Value for bool {
    #[inline(always)]
    fn load(buf: &[u8], order: Order, at: usize, bits: usize) -> Self {
        get_bits(buf, order, at, bits) != 0
    }
    #[inline(always)]
    fn store(self, buf: &mut [u8], order: Order, at: usize, bits: usize) {
        set_bits(buf, order, at, bits, u64::from(self));
    }
}

/// An address of 128 bits, on byte borders.
impl Value for u128 {
    #[inline(always)]
    fn load(buf: &[u8], order: Order, at: usize, bits: usize) -> Self {
        let bytes = <[u8; 16]>::load(buf, order, at, bits);
        match order {
            Order::Big => u128::from_be_bytes(bytes),
            Order::Little => u128::from_le_bytes(bytes),
        }
    }
    #[inline(always)]
    fn store(self, buf: &mut [u8], order: Order, at: usize, bits: usize) {
        match order {
            Order::Big => self.to_be_bytes().store(buf, order, at, bits),
            Order::Little => self.to_le_bytes().store(buf, order, at, bits),
        }
    }
}

/// Other fields beyond 64 bits are byte strings in the order in which they stand in memory.
impl<const N: usize> Value for [u8; N] {
    #[inline(always)]
    fn load(buf: &[u8], _: Order, at: usize, _: usize) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&buf[at / 8..at / 8 + N]);
        bytes
    }
    #[inline(always)]
    fn store(self, buf: &mut [u8], _: Order, at: usize, _: usize) {
        buf[at / 8..at / 8 + N].copy_from_slice(&self);
    }
}

#[inline(always)]
const fn mask(bits: usize) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// First byte, number of bytes and shift of a field within the word that those bytes form.
#[inline(always)]
const fn place(order: Order, at: usize, bits: usize) -> (usize, usize, usize) {
    let (first, last_bit) = (at / 8, at + bits - 1);
    let shift = match order {
        Order::Big => 7 - last_bit % 8,
        Order::Little => at % 8,
    };
    (first, last_bit / 8 - first + 1, shift)
}

/// The bytes as a number. A loop of known length, which the compiler turns into loads; `copy_from_slice` would be a call
/// where it does not optimise fully.
#[inline(always)]
fn load_word(bytes: &[u8], order: Order) -> u64 {
    let (mut word, mut i) = (0, 0);
    while i < bytes.len() {
        word |= match order {
            Order::Big => u64::from(bytes[i]) << (8 * (bytes.len() - 1 - i)),
            Order::Little => u64::from(bytes[i]) << (8 * i),
        };
        i += 1;
    }
    word
}

/// The number as bytes.
#[inline(always)]
fn store_word(bytes: &mut [u8], order: Order, word: u64) {
    let (len, mut i) = (bytes.len(), 0);
    while i < len {
        bytes[i] = match order {
            Order::Big => (word >> (8 * (len - 1 - i))) as u8,
            Order::Little => (word >> (8 * i)) as u8,
        };
        i += 1;
    }
}

/// Reads a field of 1..=64 bits at bit `at`; it may touch at most 8 bytes.
#[inline(always)]
pub fn get_bits(buf: &[u8], order: Order, at: usize, bits: usize) -> u64 {
    let (first, len, shift) = place(order, at, bits);
    (load_word(&buf[first..first + len], order) >> shift) & mask(bits)
}

/// Writes a field of 1..=64 bits at bit `at`; it may touch at most 8 bytes. Panics when `value` does not fit.
#[inline(always)]
pub fn set_bits(buf: &mut [u8], order: Order, at: usize, bits: usize, value: u64) {
    assert!(value & !mask(bits) == 0, "value does not fit the field");
    let (first, len, shift) = place(order, at, bits);
    let bytes = &mut buf[first..first + len];
    let word = if bits == 8 * len { value } else { load_word(bytes, order) & !(mask(bits) << shift) | value << shift };
    store_word(bytes, order, word);
}

pub(crate) const fn str_eq(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// Gives every field its position and checks the whole; for use by [`layout!`](crate::layout!).
#[doc(hidden)]
pub const fn placed<const N: usize>(mut fields: [Field; N], len_bytes: usize) -> [Field; N] {
    let (mut i, mut at) = (0, 0);
    while i < N {
        fields[i].bit_offset = at;
        let (_, len, _) = place(fields[i].order, at, fields[i].bits);
        assert!(len <= 8 || fields[i].is_byte_aligned(), "a field that touches more than 8 bytes must be whole bytes");
        at += fields[i].bits;
        i += 1;
    }
    assert!(at == 8 * len_bytes, "the widths do not add up to the size of the format");
    fields
}

/// Declares a byte format: see the [module](crate::layout) documentation.
///
/// ```
/// nic_spec::layout! {
///     /// A tag.
///     pub struct Tag[2]: big {
///         /// Priority.
///         priority / set_priority: 3 as u8,
///         /// Drop eligible.
///         drop_eligible / set_drop_eligible: 1 as bool,
///         /// Identifier.
///         id / set_id: 12 as u16,
///     }
/// }
/// let mut tag = Tag::zeroed();
/// tag.set_id(0x123);
/// tag.set_drop_eligible(true);
/// assert_eq!(tag.0, [0x11, 0x23]);
/// assert_eq!(Tag::LAYOUT.field("id").bit_offset, 4);
/// ```
#[macro_export]
macro_rules! layout {
    ($(#[doc = $doc:literal])+ pub struct $name:ident[$len:literal]: $order:ident {
        $($(#[doc = $fdoc:literal])+ $field:ident / $set:ident: $bits:literal as $ty:ty,)+
    }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<T>(
            /// The bytes.
            pub T,
        );
        impl $name<()> {
            /// Size in bytes.
            pub const LEN: usize = $len;
            /// The format as data.
            pub const LAYOUT: $crate::layout::Layout = {
                const ORDER: $crate::layout::Order = $crate::layout!(@order $order);
                const N: usize = [$(stringify!($field)),+].len();
                const FIELDS: [$crate::layout::Field; N] = $crate::layout::placed([$($crate::layout::Field {
                    name: stringify!($field), bit_offset: 0, bits: $bits, order: ORDER, doc: concat!($($fdoc),+),
                }),+], $len);
                $crate::layout::Layout {
                    name: stringify!($name), doc: concat!($($doc),+), order: ORDER, len_bytes: $len, fields: &FIELDS,
                }
            };
        }
        impl $name<[u8; $len]> {
            /// All fields zero.
            pub const fn zeroed() -> Self {
                Self([0; $len])
            }
        }
        impl<'a> $name<&'a [u8]> {
            /// The format at the start of `buf` and what follows it.
            pub fn split(buf: &'a [u8]) -> Result<(Self, &'a [u8]), $crate::layout::TooShort> {
                Self::new_checked(buf).map(|_| (Self(&buf[..$len]), &buf[$len..]))
            }
        }
        #[allow(clippy::len_without_is_empty)] // `len` is a field of some formats
        impl<T: AsRef<[u8]>> $name<T> {
            /// Wraps `buf`, which must hold at least the whole format; accessors cannot fail afterwards.
            pub fn new_checked(buf: T) -> Result<Self, $crate::layout::TooShort> {
                match buf.as_ref().len() {
                    have_bytes if have_bytes < $len => {
                        Err($crate::layout::TooShort { format: stringify!($name), need_bytes: $len, have_bytes })
                    }
                    _ => Ok(Self(buf)),
                }
            }
            $($(#[doc = $fdoc])+
            #[inline]
            pub fn $field(&self) -> $ty {
                const F: $crate::layout::Field = $name::LAYOUT.field(stringify!($field));
                <$ty as $crate::layout::Value>::load(self.0.as_ref(), F.order, F.bit_offset, F.bits)
            })+
        }
        impl<T: AsMut<[u8]>> $name<T> {
            $($(#[doc = $fdoc])+
            #[inline]
            pub fn $set(&mut self, value: $ty) -> &mut Self {
                const F: $crate::layout::Field = $name::LAYOUT.field(stringify!($field));
                $crate::layout::Value::store(value, self.0.as_mut(), F.order, F.bit_offset, F.bits);
                self
            })+
        }
    };
    (@order big) => { $crate::layout::Order::Big };
    (@order little) => { $crate::layout::Order::Little };
}

#[cfg(test)]
mod tests {
    use super::*;
    use sample::{Mixed, MixedLe};

    /// Formats of which the tests use a part.
    #[allow(dead_code)]
    mod sample {
        layout! {
            /// Fields on and off byte borders.
            pub struct Mixed[12]: big {
                /// Three bits.
                a / set_a: 3 as u8,
                /// Across a byte border.
                b / set_b: 13 as u16,
                /// Whole bytes.
                c / set_c: 24 as u32,
                /// Whole bytes.
                d / set_d: 56 as u64,
            }
        }

        layout! {
            /// The same in host order.
            pub struct MixedLe[12]: little {
                /// Three bits.
                a / set_a: 3 as u8,
                /// Across a byte border.
                b / set_b: 13 as u16,
                /// Whole bytes.
                c / set_c: 24 as u32,
                /// Whole bytes.
                d / set_d: 56 as u64,
            }
        }
    }

    #[test]
    fn a_big_format_has_the_first_field_in_the_high_bits_of_byte_0() {
        let mut m = Mixed::zeroed();
        m.set_a(0b101).set_b(0x1234).set_c(0xabcdef).set_d(0x11223344556677);
        assert_eq!(m.0, [0xb2, 0x34, 0xab, 0xcd, 0xef, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]);
        assert_eq!((m.a(), m.b(), m.c(), m.d()), (0b101, 0x1234, 0xabcdef, 0x11223344556677));
    }

    #[test]
    fn a_little_format_has_the_first_field_in_the_low_bits_of_byte_0() {
        let mut m = MixedLe::zeroed();
        m.set_a(0b101).set_b(0x1234).set_c(0xabcdef).set_d(0x11223344556677);
        assert_eq!(m.0, [0xa5, 0x91, 0xef, 0xcd, 0xab, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        assert_eq!((m.a(), m.b(), m.c(), m.d()), (0b101, 0x1234, 0xabcdef, 0x11223344556677));
    }

    #[test]
    fn the_lanes_of_a_bus_give_what_the_accessors_give() {
        let bytes: [u8; 12] = [0xb2, 0x34, 0xab, 0xcd, 0xef, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77];
        let bit = |i: usize| u64::from(bytes[i / 8 - 2] >> (i % 8) & 1);
        for layout in [Mixed::LAYOUT, MixedLe::LAYOUT] {
            for f in layout.fields {
                let value = f.lanes(2).fold(0, |acc, (lsb, n)| (0..n).rev().fold(acc, |a, k| a << 1 | bit(lsb + k)));
                assert_eq!(value, get_bits(&bytes, f.order, f.bit_offset, f.bits), "{} of {}", f.name, layout.name);
            }
        }
    }

    #[test]
    fn a_short_buffer_is_an_error_with_both_sizes() {
        let err = Mixed::new_checked([0u8; 11]).unwrap_err();
        assert_eq!(err.to_string(), "Mixed needs 12 bytes, 11 are there");
        let (head, rest) = Mixed::split(&[0u8; 14]).unwrap();
        assert_eq!((head.0.len(), rest.len()), (12, 2));
    }

    #[test]
    fn writing_a_field_leaves_every_other_bit_alone() {
        for layout in [Mixed::LAYOUT, MixedLe::LAYOUT] {
            for f in layout.fields {
                for background in [0x00u8, 0xff] {
                    let mut buf = [background; 12];
                    let value = f.value_max().unwrap() & u64::from_be_bytes([!background; 8]);
                    set_bits(&mut buf, f.order, f.bit_offset, f.bits, value);
                    let flipped: u32 = buf.iter().map(|b| (b ^ background).count_ones()).sum();
                    assert_eq!((flipped as usize, get_bits(&buf, f.order, f.bit_offset, f.bits)), (f.bits, value));
                }
            }
        }
    }
}
