//! One table per register block: offsets, access, reset values and bit fields, for decoder, driver and documents.
//!
//! [`csr_block!`](crate::csr_block!) begins every block with the three registers that make the map self-describing:
//! TYPE, VERSION and NEXT (byte address of the next block, 0 at the last one).

/// What a register does when it is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only; a write is accepted and has no effect.
    Ro,
    /// Read and write.
    Rw,
    /// Reads a state; writing a one clears that bit.
    W1c,
    /// Write only: a write acts, a read gives zero.
    Wo,
}

impl Access {
    /// Short name as in the documents.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Ro => "ro",
            Access::Rw => "rw",
            Access::W1c => "w1c",
            Access::Wo => "wo",
        }
    }
}

/// A named part of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// Name as in the table; begins with the register's name.
    pub name: &'static str,
    /// Position of the least significant bit.
    pub shift: u32,
    /// Width in bits.
    pub bits: u32,
    /// Meaning, unit, range.
    pub doc: &'static str,
}

impl BitField {
    /// Ones in the place of the field.
    pub const fn mask(self) -> u32 {
        (u32::MAX >> (32 - self.bits)) << self.shift
    }

    /// The field's value within `word`.
    pub const fn get(self, word: u32) -> u32 {
        (word & self.mask()) >> self.shift
    }

    /// `word` with the field replaced by the low bits of `value`.
    pub const fn put(self, word: u32, value: u32) -> u32 {
        word & !self.mask() | (value << self.shift) & self.mask()
    }
}

/// A 32-bit register, or an array of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Name as in the table.
    pub name: &'static str,
    /// Byte address in the BAR (of element 0 of an array).
    pub address: u32,
    /// Number of elements; 1 for a plain register.
    pub count: u32,
    /// Read and write behaviour.
    pub access: Access,
    /// Value after reset. Registers that mirror a parameter of the build state 0 here.
    pub reset: u32,
    /// Unit of the value; empty for flags and codes.
    pub unit: &'static str,
    /// Meaning, range, who writes it.
    pub doc: &'static str,
    /// Named parts; may be empty.
    pub fields: &'static [BitField],
}

impl Register {
    /// Byte address of element `index`. Panics beyond the array.
    #[track_caller]
    pub const fn at(&self, index: u32) -> u32 {
        assert!(index < self.count, "index beyond the register array");
        self.address + 4 * index
    }
}

/// A block of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Name in the documents.
    pub name: &'static str,
    /// What kind of block this is.
    pub type_id: u32,
    /// Version of the block's layout.
    pub version: u32,
    /// Byte address in the BAR.
    pub base: u32,
    /// What the block is for.
    pub doc: &'static str,
    /// Registers in order of address.
    pub registers: &'static [Register],
}

impl Block {
    /// The register called `name`, or `None`.
    pub fn find(&self, name: &str) -> Option<&'static Register> {
        self.registers.iter().find(|register| register.name == name)
    }
}

/// `(1)` or the count given; for use by [`csr_block!`](crate::csr_block!).
#[doc(hidden)]
pub const fn count_or_one(given: &[u32]) -> u32 {
    if given.is_empty() {
        1
    } else {
        given[0]
    }
}

/// Checks addresses and fields; for use by [`csr_block!`](crate::csr_block!).
#[doc(hidden)]
pub const fn checked<const N: usize>(registers: [Register; N]) -> [Register; N] {
    let (mut i, mut free) = (0, registers[0].address);
    while i < N {
        let r = registers[i];
        assert!(r.address % 4 == 0 && r.count > 0, "a register stands at a multiple of four");
        assert!(r.address >= free, "registers overlap or are out of order");
        free = r.address + 4 * r.count;
        let (mut f, mut free_bit) = (0, 0);
        while f < r.fields.len() {
            let field = r.fields[f];
            assert!(field.bits > 0 && field.shift >= free_bit && field.shift + field.bits <= 32, "bit fields overlap");
            free_bit = field.shift + field.bits;
            f += 1;
        }
        i += 1;
    }
    registers
}

/// Declares a register block in the module that invokes it: `BLOCK`, one [`Register`] constant a register, one
/// [`BitField`] constant a field.
///
/// Each line: offset, name, `[count]` for arrays, access, reset value, unit, then fields as `shift, bits`.
#[macro_export]
macro_rules! csr_block {
    (
        $(#[doc = $doc:literal])+
        block $block:literal: type $type:literal, version $version:literal, base $base:literal, next $next:literal;
        $(
            $(#[doc = $rdoc:literal])+
            $offset:literal $name:ident $([$count:literal])?: $access:ident = $reset:expr, $unit:literal
            $({ $($(#[doc = $fdoc:literal])+ $field:ident: $shift:literal, $bits:literal;)+ })?;
        )*
    ) => {
        /// Type of the block.
        pub const TYPE: $crate::register::Register = $crate::register::Register {
            name: "TYPE", address: $base, count: 1, access: $crate::register::Access::Ro, reset: $type, unit: "",
            doc: " Type of the block.", fields: &[],
        };
        /// Version of the block's layout.
        pub const VERSION: $crate::register::Register = $crate::register::Register {
            name: "VERSION", address: $base + 4, count: 1, access: $crate::register::Access::Ro, reset: $version,
            unit: "", doc: " Version of the block's layout.", fields: &[],
        };
        /// Byte address of the next block; 0 at the last one.
        pub const NEXT: $crate::register::Register = $crate::register::Register {
            name: "NEXT", address: $base + 8, count: 1, access: $crate::register::Access::Ro, reset: $next,
            unit: "bytes", doc: " Byte address of the next block; 0 at the last one.", fields: &[],
        };
        $(
            $(#[doc = $rdoc])+
            pub const $name: $crate::register::Register = $crate::register::Register {
                name: stringify!($name), address: $base + $offset,
                count: $crate::register::count_or_one(&[$($count)?]),
                access: $crate::csr_block!(@access $access), reset: $reset, unit: $unit, doc: concat!($($rdoc),+),
                fields: &[$($($field),+)?],
            };
            $($(
                $(#[doc = $fdoc])+
                pub const $field: $crate::register::BitField = $crate::register::BitField {
                    name: stringify!($field), shift: $shift, bits: $bits, doc: concat!($($fdoc),+),
                };
            )+)?
        )*
        $(#[doc = $doc])+
        pub const BLOCK: $crate::register::Block = {
            const REGISTERS: &[$crate::register::Register] =
                &$crate::register::checked([TYPE, VERSION, NEXT, $($name),*]);
            $crate::register::Block {
                name: $block, type_id: $type, version: $version, base: $base, doc: concat!($($doc),+),
                registers: REGISTERS,
            }
        };
    };
    (@access ro) => { $crate::register::Access::Ro };
    (@access rw) => { $crate::register::Access::Rw };
    (@access w1c) => { $crate::register::Access::W1c };
    (@access wo) => { $crate::register::Access::Wo };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_field_reads_and_replaces_only_its_bits() {
        let field = BitField { name: "f", shift: 4, bits: 3, doc: "" };
        assert_eq!((field.mask(), field.get(0xffff_ffdf), field.put(0xffff_ffff, 0b1010)), (0x70, 5, 0xffff_ffaf));
        let whole = BitField { name: "w", shift: 0, bits: 32, doc: "" };
        assert_eq!((whole.mask(), whole.put(0, 0x1234_5678)), (u32::MAX, 0x1234_5678));
    }
}
