//! Small enumerations of numbers that cross a boundary: one table gives the enum, its codes and its documents.

use crate::layout::Layout;

/// One code of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Name as the specification spells it.
    pub name: &'static str,
    /// The number.
    pub value: u32,
    /// Meaning.
    pub doc: &'static str,
}

/// An enumeration as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes {
    /// Name of the Rust type.
    pub name: &'static str,
    /// What the codes are for.
    pub doc: &'static str,
    /// All codes in order.
    pub codes: &'static [Code],
}

/// Says that a field of a format holds a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodedField {
    /// The format.
    pub layout: &'static Layout,
    /// Name of the field.
    pub field: &'static str,
    /// What its values mean.
    pub codes: &'static Codes,
}

/// A number that is no code of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownCode {
    /// Name of the enumeration.
    pub of: &'static str,
    /// The number.
    pub value: u32,
}

impl core::fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x} is no {}", self.value, self.of)
    }
}

impl core::error::Error for UnknownCode {}

/// Declares an enumeration of codes: `enum`, `CODES`, `code()`, `name()`, `TryFrom`.
#[macro_export]
macro_rules! codes {
    ($(#[doc = $doc:literal])+ pub enum $enum:ident($repr:ty) {
        $($(#[doc = $vdoc:literal])+ $variant:ident = $value:literal, $name:literal;)+
    }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr($repr)]
        pub enum $enum { $($(#[doc = $vdoc])+ $variant = $value),+ }

        impl $enum {
            /// Every value in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The enumeration as data.
            pub const CODES: $crate::codes::Codes = $crate::codes::Codes {
                name: stringify!($enum), doc: concat!($($doc),+),
                codes: &[$($crate::codes::Code { name: $name, value: $value, doc: concat!($($vdoc),+) }),+],
            };

            /// The number that stands for this value.
            pub const fn code(self) -> $repr {
                self as $repr
            }

            /// Name as the specification spells it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }

        impl TryFrom<$repr> for $enum {
            type Error = $crate::codes::UnknownCode;
            fn try_from(value: $repr) -> Result<Self, Self::Error> {
                match value {
                    $($value => Ok(Self::$variant),)+
                    _ => Err($crate::codes::UnknownCode { of: stringify!($enum), value: value.into() }),
                }
            }
        }

        impl core::fmt::Display for $enum {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    codes! {
        /// Two things.
        pub enum Thing(u8) {
            /// The first.
            One = 1, "ONE";
            /// The other.
            Five = 5, "FIVE";
        }
    }

    #[test]
    fn a_code_comes_back_and_an_unknown_number_is_an_error() {
        assert_eq!(Thing::try_from(5), Ok(Thing::Five));
        assert_eq!((Thing::One.code(), Thing::One.name(), Thing::ALL.len()), (1, "ONE", 2));
        assert_eq!(Thing::CODES.codes.iter().map(|c| c.value).collect::<Vec<_>>(), [1, 5]);
        assert_eq!(Thing::try_from(2).unwrap_err().to_string(), "0x2 is no Thing");
    }
}
