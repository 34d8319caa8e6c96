//! Serves a register block from its table: addresses, access, reset values and read multiplexer come from `nic-spec`.
//!
//! An access takes two cycles: the first acts and fills the answer's register, the second answers.

use super::bus::CsrBus;
use nic_spec::register::{Access, Block, Register};
use rtl_graph::*;

/// Registers of a served block.
pub struct Served<'a> {
    /// Name, and per element the stored value (`rw`).
    values: Vec<(&'static str, Vec<S<'a>>)>,
    /// Name, and per element 1 in the cycle of a write (`wo`, `w1c`).
    writes: Vec<(&'static str, Vec<S<'a>>)>,
    /// What is being written, in the cycle of a write.
    pub wdata: S<'a>,
}

impl<'a> Served<'a> {
    /// Stored values of the elements of a read-write register; as wide as its fields need.
    ///
    /// # Panics
    /// When the block has no such read-write register.
    #[track_caller]
    pub fn values(&self, register: &Register) -> &[S<'a>] {
        find(&self.values, register)
    }

    /// Stored value of a read-write register that is no array.
    #[track_caller]
    pub fn value(&self, register: &Register) -> S<'a> {
        self.values(register)[0]
    }

    /// 1 in the cycle in which an element of a `wo` or `w1c` register is written with [`Served::wdata`].
    #[track_caller]
    pub fn writes(&self, register: &Register) -> &[S<'a>] {
        find(&self.writes, register)
    }
}

#[track_caller]
fn find<'x, 'a>(among: &'x [(&'static str, Vec<S<'a>>)], register: &Register) -> &'x [S<'a>] {
    match among.iter().find(|(name, _)| *name == register.name) {
        Some((_, signals)) => signals,
        None => panic!("register {} is not kept here", register.name),
    }
}

/// Bits that a register holds: those of its fields, or all 32.
fn held_mask(register: &Register) -> u32 {
    match register.fields {
        [] => u32::MAX,
        fields => fields.iter().fold(0, |mask, f| mask | f.mask()),
    }
}

/// Makes the registers of `block` and answers `bus`, which accesses nothing but this block.
///
/// `read` gives the value of an element of a `ro` or `w1c` register; where it gives `None` the table's reset value is
/// read. Writes to `ro` registers have no effect; an address between registers answers with an error.
#[track_caller]
pub fn serve<'a>(
    b: &'a B,
    bus: &CsrBus<'a>,
    block: &Block,
    read: &dyn Fn(&Register, u32) -> Option<S<'a>>,
) -> Served<'a> {
    let done = b.reg_reset("csr_done", 1, 0);
    let access = (bus.valid & !done).named("csr_access");
    done.set(access);
    let word_bits = index_bits((nic_spec::csr::BLOCK_BYTES / 4).into());
    let word = bus.addr.bits(2, word_bits);
    let write = access & bus.write;

    let mut served = Served { values: vec![], writes: vec![], wdata: bus.wdata };
    let (mut known, mut arms) = (vec![], vec![]);
    for r in block.registers {
        let first = u64::from((r.address - block.base) / 4);
        let last = first + u64::from(r.count) - 1;
        known.push(if first == last { word.eq(first) } else { word.ge(first) & word.le(last) });
        let (mut values, mut writes) = (vec![], vec![]);
        for k in 0..r.count {
            let hit = || word.eq(first + u64::from(k));
            let mut show = |value: S<'a>| arms.push((hit(), value.zext(32)));
            match r.access {
                Access::Rw => {
                    let mask = held_mask(r);
                    let bits = 32 - mask.leading_zeros();
                    let name = format!("{}_{k}", r.name.to_lowercase());
                    let value = b.reg_reset(&name, bits, (r.reset & mask).into());
                    value.set_en(write & hit(), bus.wdata.trunc(bits) & u64::from(mask));
                    show(value);
                    values.push(value);
                }
                Access::Ro => match read(r, k) {
                    Some(value) => show(value),
                    None if r.reset != 0 => show(b.lit(r.reset.into(), 32)),
                    None => {}
                },
                Access::W1c => {
                    if let Some(value) = read(r, k) {
                        show(value);
                    }
                    writes.push((write & hit()).named(&format!("clear_{}_{k}", r.name.to_lowercase())));
                }
                Access::Wo => writes.push((write & hit()).named(&format!("write_{}_{k}", r.name.to_lowercase()))),
            }
        }
        if !values.is_empty() {
            served.values.push((r.name, values));
        }
        if !writes.is_empty() {
            served.writes.push((r.name, writes));
        }
    }
    let (rdata, error) = (b.reg("csr_rdata", 32), b.reg("csr_error", 1));
    rdata.set_en(access, b.one_hot_select(&arms));
    error.set_en(access, !b.or_tree(&known));
    bus.ready.set(done);
    bus.rdata.set(rdata);
    bus.error.set(error);
    served
}
