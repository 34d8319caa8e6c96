//! Registers of the fake card: decoded from the tables, placed where its own chain says.

use std::collections::BTreeMap;

use nic_spec::csr::{self, id, stats};
use nic_spec::register::{Access, Block, Register};

/// A block in the card's chain. One without table is of a type that the driver does not know.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub base: u32,
    pub block: Option<&'static Block>,
    pub type_id: u32,
    pub version: u32,
}

/// What an address stands for.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub block: &'static Block,
    pub register: Register,
    pub index: u32,
}

/// The register file.
#[derive(Debug)]
pub struct Registers {
    pub chain: Vec<Link>,
    /// Base of a block → what its NEXT says, where that is not the next in the chain.
    pub next: BTreeMap<u32, u32>,
    /// Table address of a word → value, where it differs from the table's reset value.
    values: BTreeMap<u32, u32>,
}

impl Registers {
    pub fn new() -> Self {
        let link = |block: &&'static Block| Link {
            base: block.base,
            block: Some(block),
            type_id: block.type_id,
            version: block.version,
        };
        Self { chain: csr::BLOCKS.iter().map(link).collect(), next: BTreeMap::new(), values: BTreeMap::new() }
    }

    /// Forgets everything written through the bus.
    pub fn reset(&mut self) {
        let is_rw = |address: u32| {
            let registers = || csr::BLOCKS.iter().flat_map(|block| block.registers);
            registers().any(|r| (r.address..r.address + 4 * r.count).contains(&address) && r.access == Access::Rw)
        };
        self.values.retain(|&address, _| !is_rw(address));
    }

    /// The register at bus address `address`, or what the chain says when it is one of its own.
    pub fn decode(&self, address: u32) -> Result<Place, Option<u32>> {
        let at = self.chain.iter().rposition(|link| link.base <= address).ok_or(None)?;
        let link = self.chain[at];
        let offset = address - link.base;
        let [type_id, version, next] = [id::TYPE, id::VERSION, id::NEXT].map(|r| r.address - id::BLOCK.base);
        if offset == type_id {
            return Err(Some(link.type_id));
        }
        if offset == version {
            return Err(Some(link.version));
        }
        if offset == next {
            let following = self.chain.get(at + 1).map_or(0, |link| link.base);
            return Err(Some(self.next.get(&link.base).copied().unwrap_or(following)));
        }
        let block = link.block.ok_or(None)?;
        let address = block.base + offset;
        let is_there = |r: &&Register| (r.address..r.address + 4 * r.count).contains(&address) && address % 4 == 0;
        let register = *block.registers.iter().find(is_there).ok_or(None)?;
        Ok(Place { block, register, index: (address - register.address) / 4 })
    }

    pub fn get(&self, register: Register, index: u32) -> u32 {
        self.values.get(&register.at(index)).copied().unwrap_or(register.reset)
    }

    pub fn set(&mut self, register: Register, index: u32, value: u32) {
        self.values.insert(register.at(index), value);
    }

    /// Value of a counter.
    pub fn counter(&self, counter: stats::Counter) -> u64 {
        let [low, high] = counter.info().registers;
        u64::from(self.get(high, 0)) << 32 | u64::from(self.get(low, 0))
    }

    pub fn set_counter(&mut self, counter: stats::Counter, value: u64) {
        let [low, high] = counter.info().registers;
        self.set(low, 0, value as u32);
        self.set(high, 0, (value >> 32) as u32);
    }

    pub fn count(&mut self, counter: stats::Counter) {
        self.set_counter(counter, self.counter(counter).wrapping_add(1));
    }
}
