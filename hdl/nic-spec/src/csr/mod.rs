//! Registers of the card, as the host and the control processor see them in BAR 0.
//!
//! The low half of the BAR holds register blocks, chained by NEXT from address 0. The high half holds doorbell pages.
//! Registers are 32 bits wide, little-endian, and accessed as whole words. An address that holds no register answers
//! with an error and is counted.

// The chain, in order of address.
pub mod id;
pub mod port;

pub mod ctx;
pub mod transport;

pub mod conn;
pub mod irq;

pub mod stats;

use crate::register::Block;

/// Bytes of BAR 0.
pub const BAR_BYTES: u32 = 0x200_0000;
/// Address bits of BAR 0.
pub const BAR_BITS: u32 = 25;
/// Bytes that each register block may take; blocks begin at multiples of it.
pub const BLOCK_BYTES: u32 = 0x1000;
/// Address of doorbell page 0; the high half of the BAR.
pub const DOORBELL_BASE: u32 = 0x100_0000;
/// Bytes of a doorbell page.
pub const DOORBELL_PAGE_BYTES: u32 = 0x1000;
/// Number of doorbell pages.
pub const DOORBELL_PAGES: u32 = 4096;
/// In page k: doorbell of connection k's send queue.
pub const DOORBELL_SQ: u32 = 0x00;
/// In page k: doorbell of connection k's receive queue.
pub const DOORBELL_RQ: u32 = 0x08;
/// In page k: doorbell of completion queue k.
pub const DOORBELL_CQ: u32 = 0x10;

/// Every register block in order of address.
pub const BLOCKS: &[&Block] =
    &[&id::BLOCK, &port::BLOCK, &ctx::BLOCK, &transport::BLOCK, &conn::BLOCK, &irq::BLOCK, &stats::BLOCK];

/// Address of the send doorbell of connection `index`, 0..[`DOORBELL_PAGES`].
pub const fn sq_doorbell(index: u32) -> u32 {
    DOORBELL_BASE + index * DOORBELL_PAGE_BYTES + DOORBELL_SQ
}

/// Address of the receive doorbell of connection `index`, 0..[`DOORBELL_PAGES`].
pub const fn rq_doorbell(index: u32) -> u32 {
    DOORBELL_BASE + index * DOORBELL_PAGE_BYTES + DOORBELL_RQ
}

/// Address of the doorbell of completion queue `index`, 0..[`DOORBELL_PAGES`].
pub const fn cq_doorbell(index: u32) -> u32 {
    DOORBELL_BASE + index * DOORBELL_PAGE_BYTES + DOORBELL_CQ
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_from_address_0_visits_every_block_once() {
        let mut next = 0;
        for (i, block) in BLOCKS.iter().enumerate() {
            assert_eq!(block.base, next, "{}", block.name);
            let [ty, version, link] = [0, 1, 2].map(|k| block.registers[k]);
            assert_eq!((ty.name, version.name, link.name), ("TYPE", "VERSION", "NEXT"));
            assert_eq!((ty.reset, version.reset), (block.type_id, block.version));
            next = link.reset;
            assert_eq!(next == 0, i + 1 == BLOCKS.len(), "{}", block.name);
        }
    }

    #[test]
    fn every_register_lies_in_its_blocks_window_and_has_a_unique_name() {
        for block in BLOCKS {
            assert_eq!(block.base % BLOCK_BYTES, 0);
            for (i, r) in block.registers.iter().enumerate() {
                assert!(r.address >= block.base && r.address + 4 * r.count <= block.base + BLOCK_BYTES, "{}", r.name);
                assert!(block.registers[..i].iter().all(|other| other.name != r.name), "{}", r.name);
                assert!(r.fields.iter().all(|f| f.name.starts_with(r.name)), "{}", r.name);
            }
        }
    }

    #[test]
    fn block_types_are_unique_and_doorbells_fill_the_high_half() {
        for (i, block) in BLOCKS.iter().enumerate() {
            assert!(BLOCKS[..i].iter().all(|other| other.type_id != block.type_id));
        }
        assert_eq!((BAR_BYTES, DOORBELL_BASE), (1 << BAR_BITS, BAR_BYTES / 2));
        assert_eq!(DOORBELL_BASE + DOORBELL_PAGES * DOORBELL_PAGE_BYTES, BAR_BYTES);
        assert_eq!((sq_doorbell(0), rq_doorbell(1), cq_doorbell(2)), (0x100_0000, 0x100_1008, 0x100_2010));
    }
}
