//! Block `irq`: interrupt vectors.

use crate::csr_block;

csr_block! {
    /// Interrupt vectors. A vector's message is sent when it is pending and not masked.
    block "irq": type 0x0006, version 1, base 0x5000, next 0x6000;
    /// Bit v mod 32 of word v / 32 masks vector v: 1 = held back.
    0x20 MASK[8]: rw = 0, "";
    /// Bit v mod 32 of word v / 32 is set while vector v waits behind its mask.
    0x40 PENDING[8]: w1c = 0, "";
}
