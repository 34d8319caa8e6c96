//! Memory region table: may this key open these bytes, to whom and for what, and where are they on the bus.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `lookup` × `ports` | [`MrLookup`] | valid/ready | questions; `len` not 0 |
//! | `result` × `ports` | [`MrResult`] | valid/ready | answers in order, per port |
//! | `ctx` | [`CtxWrite`] | valid/ready | rows of table `mr`; others are taken and ignored |
//!
//! A question fails with the first of: RKEY (no such row, row not in use, key byte differs), PD, ACCESS (a needed bit is
//! missing), RANGE (begins before the region, or ends beyond it; computed with the carry, so no address wraps). A region
//! of length 0 never matches. A lookup sees every row written before it was taken.
//!
//! Latency 5 cycles; 1 lookup per cycle and port. Reset clears all rows: for `mrs` cycles neither lookups nor writes are
//! taken. State: `mrs` × 233 bits per port. Drops: none; the asker counts.

use crate::{
    prim::{
        fifo::pushed,
        ram::{sweep, Table},
        ready_while_room,
    },
    stream::{ctx_fields, field_bits, CtxWrite, MrLookup, MrResult, ADDR_BITS},
};
use nic_spec::{desc, desc::MrRow as Row, wire::NakReason};
use rtl_graph::*;

/// Depth of the queue of answers.
const ANSWERS: u32 = 16;

record! {
    /// What the table keeps of a row.
    struct MrRow {
        valid: field_bits(&Row::LAYOUT, "valid"),
        key: field_bits(&Row::LAYOUT, "key"),
        access: field_bits(&Row::LAYOUT, "access"),
        pd: field_bits(&Row::LAYOUT, "pd"),
        va: field_bits(&Row::LAYOUT, "va"),
        len: field_bits(&Row::LAYOUT, "len"),
        iova: field_bits(&Row::LAYOUT, "iova"),
    }
}

module! {
    /// The table with `ports` readers.
    pub struct MrTable = "nic_dma_mr" (mrs: u32, ports: usize) {
        lookup: in Stream<MrLookup> [ports],
        result: out Stream<MrResult> [ports],
        ctx: in Stream<CtxWrite>,
    } |b| {
        let bits = index_bits(mrs.into());
        let clear = sweep(b, "clear", mrs);
        let is_ours = ctx.valid & ctx.data.table.eq(desc::Table::Mr as u8) & !clear.busy;
        let row = ctx_fields(ctx.data.data, &Row::LAYOUT, &MrRow::layout());
        ctx.ready.set(!clear.busy);
        // A row index beyond the table is refused by the block that sends the write.
        let write = (clear.busy | is_ours).named("write");
        let addr = clear.busy.mux(clear.addr, ctx.data.index.trunc(bits));
        let data = clear.busy.mux(b.zero(MrRow::width()), row);
        let table = Table::new(b, "rows", mrs, RamStyle::Auto, write, addr, data);
        for (k, (lookup, result)) in lookup.iter().zip(&result).enumerate() {
            b.scope(&format!("p{k}"), || answer(b, &table, k, bits, clear.busy, lookup, result));
        }
    }
}

fn answer<'a>(
    b: &'a B,
    table: &Table<'a>,
    port: usize,
    bits: u32,
    clearing: S<'a>,
    lookup: &Stream<'a, MrLookup<'a>>,
    result: &Stream<'a, MrResult<'a>>,
) {
    // s1: the row.
    let room = b.wire("room", 1);
    let ready = room & !clearing;
    lookup.ready.set(ready);
    let s1_valid = (lookup.valid & ready).delay_reset("s1_valid", 1);
    let s1 = lookup.data.delayed("s1");
    let row = MrRow::unpack(table.read(&format!("port{port}"), lookup.data.rkey.bits(8, bits)));
    let index_fits = match 24 - bits {
        0 => b.high(),
        above => s1.rkey.bits(8 + bits, above).is_zero(),
    };

    // s2: comparisons and the offset within the region.
    let s2_valid = s1_valid.delay_reset("s2_valid", 1);
    let reg = |name: &str, value: S<'a>| value.delay(name, 1);
    let key_ok = reg("s2_key_ok", row.valid & index_fits & row.key.eq(s1.rkey.trunc(8)));
    let pd_ok = reg("s2_pd_ok", row.pd.eq(s1.pd));
    let access_ok = reg("s2_access_ok", (s1.access & !row.access).is_zero());
    let offset = reg("s2_offset", s1.va.sub_borrow(row.va));
    let (len, region_len, iova) = (reg("s2_len", s1.len), reg("s2_region_len", row.len), reg("s2_iova", row.iova));

    // s3: the end, the address on the bus, the verdict.
    let s3_valid = s2_valid.delay_reset("s3_valid", 1);
    let begins_before = offset.msb();
    let end = offset.trunc(ADDR_BITS).add_carry(len.zext(ADDR_BITS));
    let range_ok = !begins_before & end.le(region_len.zext(ADDR_BITS + 1)) & region_len.any();
    let why = |reason: NakReason| b.lit(reason.code().into(), 8);
    let reason = b.select(
        &[
            (!key_ok, why(NakReason::Rkey)),
            (!pd_ok, why(NakReason::Pd)),
            (!access_ok, why(NakReason::Access)),
            (!range_ok, why(NakReason::Range)),
        ],
        0,
    );
    let verdict = MrResult { ok: reason.is_zero(), reason, iova: iova + offset.trunc(ADDR_BITS) };
    let answers = pushed(b, "answers", s3_valid, &verdict.delayed("s3"), ANSWERS);
    room.set(ready_while_room(b, "has_room", answers.level, ANSWERS, 4));
    b.connect(&answers.tx, result);
}

#[cfg(test)]
mod tests {
    use super::super::bench::*;
    use super::*;
    use nic_spec::{desc::MrRow as Region, num::Pd};
    use std::collections::VecDeque;

    const MRS: u32 = 8;

    /// What the table must answer, in plain words.
    fn expected(regions: &[Option<Region<[u8; 64]>>], rkey: u32, va: u64, len: u32, pd: u32, access: u8) -> (u64, u64) {
        let region = regions.get((rkey >> 8) as usize).copied().flatten();
        let Some(m) = region.filter(|m| m.valid() && u32::from(m.key()) == rkey & 0xff) else {
            return (NakReason::Rkey.code().into(), 0);
        };
        if m.pd().get() != pd {
            return (NakReason::Pd.code().into(), 0);
        }
        if m.access() & access != access {
            return (NakReason::Access.code().into(), 0);
        }
        let (begin, end) = (u128::from(m.va()), u128::from(m.va()) + u128::from(m.len()));
        if u128::from(va) < begin || u128::from(va) + u128::from(len) > end || m.len() == 0 {
            return (NakReason::Range.code().into(), 0);
        }
        (0, m.iova().wrapping_add(va - m.va()))
    }

    const LOOKUP: [&str; 5] = ["rkey", "va", "len", "pd", "access"];

    fn check(mut rng: Rng) {
        let mut sim = sim(&MrTable::def(&Lib::new(), MRS, 2), &mut rng);
        let mut ctx = Source::new(&sim, "ctx", &["table", "index", "data"]);
        let mut lookups = [0, 1].map(|p| Source::new(&sim, &format!("lookup_{p}"), &LOOKUP));
        let mut results = [0, 1].map(|p| Sink::new(&sim, &format!("result_{p}"), &["ok", "reason", "iova"]));
        let mut regions: Vec<Option<Region<[u8; 64]>>> = vec![None; MRS as usize];
        let mut want: [VecDeque<(u64, u64)>; 2] = Default::default();
        let mut seen = [0; 11];
        let rates = [pick(&mut rng, &[30, 100]), pick(&mut rng, &[30, 100])];
        for k in 0..2 {
            (lookups[k].rate, results[k].rate) = (rates[k], rates[1 - k]);
        }
        for cycle in 0..6000 {
            if ctx.queue.is_empty() && rng.chance(3) {
                let mut m = Region::zeroed();
                let base = pick(&mut rng, &[0x1000, 0, u64::MAX - 0xffff, 1 << 40]);
                m.set_valid(rng.chance(90)).set_key(rng.below(3) as u8).set_access(rng.below(16) as u8);
                m.set_pd(Pd::new(rng.below(2) as u32)).set_va(base + rng.below(64));
                m.set_len(pick(&mut rng, &[0, 1, 64, 4096, 1 << 33])).set_iova(rng.next());
                // A third of the writes are for other tables.
                let table = pick(&mut rng, &[desc::Table::Mr, desc::Table::Mr, desc::Table::Cq]) as u64;
                ctx.push(vec![word(table), word(rng.below(MRS.into())), words_of(&m.0)]);
            }
            for source in &mut lookups {
                if source.queue.is_empty() {
                    let row = rng.below(u64::from(MRS)) as usize;
                    let m = regions[row].unwrap_or_else(Region::zeroed);
                    let wild = rng.chance(5);
                    let rkey = (row as u64) << 8 | if rng.chance(90) { m.key().into() } else { rng.below(4) };
                    let rkey = if wild { rkey | 1 << (8 + 3 + rng.below(21)) } else { rkey };
                    let near = pick(&mut rng, &[m.va(), m.va().wrapping_add(m.len()), 0, u64::MAX]);
                    let va = near.wrapping_add(rng.below(8)).wrapping_sub(rng.below(8));
                    let any = 1 + rng.below(5000);
                    let len = pick(&mut rng, &[1, 2, 64, any, u64::from(u32::MAX)]);
                    let pd = if rng.chance(90) { u64::from(m.pd().get()) } else { rng.below(3) };
                    let access = if rng.chance(90) { m.access() as u64 & rng.next() } else { rng.below(16) };
                    source.push([rkey, va, len, pd, access].map(word).to_vec());
                }
            }
            ctx.drive(&mut sim, &mut rng);
            for k in 0..2 {
                lookups[k].drive(&mut sim, &mut rng);
                results[k].drive(&mut sim, &mut rng);
            }
            // A lookup taken together with a write sees it.
            let write = ctx.queue.front().cloned();
            if ctx.taken(&mut sim) {
                let write = write.unwrap_or_default();
                if write[0][0] == desc::Table::Mr as u64 {
                    let bytes = bytes_of(&write[2]);
                    regions[write[1][0] as usize] = Some(Region(bytes.try_into().unwrap()));
                }
                assert!(cycle >= u64::from(MRS), "written while the rows are cleared");
            }
            for k in 0..2 {
                let asked = lookups[k].queue[0].clone();
                if lookups[k].taken(&mut sim) {
                    let q: Vec<u64> = asked.iter().map(|w| w[0]).collect();
                    let answer = expected(&regions, q[0] as u32, q[1], q[2] as u32, q[3] as u32, q[4] as u8);
                    seen[answer.0 as usize] += 1;
                    want[k].push_back(answer);
                }
                if let Some(r) = results[k].taken(&mut sim) {
                    let (reason, iova) = want[k].pop_front().unwrap();
                    assert_eq!((r[0][0], r[1][0]), ((reason == 0).into(), reason), "port {k}");
                    assert!(reason != 0 || r[2][0] == iova, "port {k}: {:#x} for {iova:#x}", r[2][0]);
                }
            }
            sim.clock();
        }
        assert!(seen[..5].iter().all(|n| *n > 50), "outcomes {seen:?} are lopsided");
    }

    #[test]
    fn every_question_gets_the_answer_of_the_reference() {
        for seed in [1, 2, 3] {
            check(Rng::new("every_question", seed));
        }
    }

    #[test]
    fn latency_is_as_documented() {
        let mut sim = MrTable::def(&Lib::new(), MRS, 1).sim();
        sim.reset(2);
        sim.clocks(u64::from(MRS) + 2);
        assert_eq!(cycles_until(&mut sim, &["lookup_0_valid"], "result_0_valid"), 5);
    }
}
