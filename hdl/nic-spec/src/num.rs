//! Identifiers and sequence numbers as types, so that one cannot be taken for another.
//!
//! Sequence numbers wrap and therefore have no `Ord`: two of them are compared by distance on a circle. `a` is before
//! `b` when going forward from `a` reaches `b` in less than half the circle.

use crate::layout::{get_bits, set_bits, Order, Value};

/// Makes `$name` readable and writable as a field.
macro_rules! field_value {
    ($name:ident, $repr:ty) => {
        impl Value for $name {
            #[inline(always)]
            fn load(buf: &[u8], order: Order, at: usize, bits: usize) -> Self {
                Self(get_bits(buf, order, at, bits) as $repr)
            }
            #[inline(always)]
            fn store(self, buf: &mut [u8], order: Order, at: usize, bits: usize) {
                set_bits(buf, order, at, bits, u64::from(self.0));
            }
        }
    };
}

macro_rules! identifiers {
    ($($(#[doc = $doc:literal])+ $name:ident($repr:ty), $bits:literal bits;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($repr);

        impl $name {
            /// Width in bits.
            pub const BITS: u32 = $bits;

            /// Takes the low [`Self::BITS`] bits of `value`.
            #[inline]
            pub const fn new(value: $repr) -> Self {
                Self(value & (<$repr>::MAX >> (<$repr>::BITS - $bits)))
            }

            /// The number.
            #[inline]
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        field_value!($name, $repr);
    )+};
}

identifiers! {
    /// Queue pair number, which is also the connection id on the wire.
    Qpn(u32), 24 bits;
    /// Key by which a remote peer names a memory region.
    Rkey(u32), 32 bits;
    /// Key by which the local host names a memory region.
    Lkey(u32), 32 bits;
    /// Protection domain.
    Pd(u32), 24 bits;
    /// Completion queue number.
    Cqn(u32), 24 bits;
    /// Logical path within one direction of a connection.
    PathId(u8), 8 bits;
    /// Plane: the port of the card a path leaves by.
    Plane(u8), 4 bits;
    /// Ordered flow within a connection; 0 is control.
    StreamId(u16), 16 bits;
    /// Differentiated services code point.
    Dscp(u8), 6 bits;
    /// Partition key.
    Pkey(u16), 16 bits;
}

macro_rules! serials {
    ($($(#[doc = $doc:literal])+ $name:ident($repr:ty), $bits:literal bits;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name($repr);

        impl $name {
            /// Width in bits.
            pub const BITS: u32 = $bits;
            const MASK: $repr = <$repr>::MAX >> (<$repr>::BITS - $bits);

            /// Takes `value` modulo 2^[`Self::BITS`].
            #[inline]
            pub const fn new(value: $repr) -> Self {
                Self(value & Self::MASK)
            }

            /// The number, 0..2^[`Self::BITS`].
            #[inline]
            pub const fn get(self) -> $repr {
                self.0
            }

            /// Steps forward from `older` to `self`, 0..2^[`Self::BITS`].
            #[inline]
            pub const fn distance_from(self, older: Self) -> $repr {
                self.0.wrapping_sub(older.0) & Self::MASK
            }

            /// True when `other` lies ahead by 1..2^([`Self::BITS`] - 1).
            #[inline]
            pub const fn is_before(self, other: Self) -> bool {
                let ahead = other.distance_from(self);
                ahead != 0 && ahead <= Self::MASK >> 1
            }

            /// The number after this one.
            #[inline]
            pub const fn next(self) -> Self {
                Self::new(self.0.wrapping_add(1))
            }
        }

        impl core::ops::Add<$repr> for $name {
            type Output = Self;
            #[inline]
            fn add(self, steps: $repr) -> Self {
                Self::new(self.0.wrapping_add(steps))
            }
        }

        impl core::ops::AddAssign<$repr> for $name {
            #[inline]
            fn add_assign(&mut self, steps: $repr) {
                *self = *self + steps;
            }
        }

        impl core::ops::Sub<$repr> for $name {
            type Output = Self;
            #[inline]
            fn sub(self, steps: $repr) -> Self {
                Self::new(self.0.wrapping_sub(steps))
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        field_value!($name, $repr);
    )+};
}

serials! {
    /// Packet sequence number within (connection, path): PSEQ.
    Psn(u32), 24 bits;
    /// Message sequence number within a stream: MSEQ.
    Msn(u32), 24 bits;
    /// Ordinal of a posted receive within a stream: RSN.
    Rsn(u32), 24 bits;
    /// Generation of a path's aim (UDP source port and plane).
    Epoch(u8), 4 bits;
    /// Counts rate hints so that the newest wins.
    HintSeq(u8), 8 bits;
    /// Low 16 bits of an [`Rsn`], as a credit limit.
    RsnLimit(u16), 16 bits;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_psn_wraps_at_2_pow_24() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.next(), Psn::new(0));
        assert_eq!(last + 3, Psn::new(2));
        assert_eq!(Psn::new(1) - 2, last);
        assert_eq!(Psn::new(2).distance_from(last), 3);
        assert_eq!(Psn::new(0x0100_0005).get(), 5);
    }

    #[test]
    fn order_is_by_distance_across_the_wrap() {
        let (old, new) = (Psn::new(0xff_fff0), Psn::new(0x10));
        assert!(old.is_before(new) && !new.is_before(old) && !old.is_before(old));
        assert!(Psn::new(0).is_before(Psn::new(0x7f_ffff)));
        assert!(!Psn::new(0).is_before(Psn::new(0x80_0000)), "half the circle away is not before");
        assert!(HintSeq::new(250).is_before(HintSeq::new(3)));
        assert_eq!(Epoch::new(15).next(), Epoch::new(0));
    }

    #[test]
    fn identifiers_keep_their_width() {
        assert_eq!(Qpn::new(0xff12_3456).get(), 0x12_3456);
        assert_eq!(Rkey::new(u32::MAX).get(), u32::MAX);
        assert_eq!(Plane::new(0x1f).get(), 15);
        assert_eq!(Qpn::new(0x123).to_string(), "0x123");
    }
}
