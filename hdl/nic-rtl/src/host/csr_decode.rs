//! AXI4-Lite subordinate: finds the register block or doorbell that an address belongs to.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `axil` | AXI4-Lite | | BAR 0, 25 address bits, 32 data bits |
//! | `block` × 7 | [`CsrBus`] | valid/ready | one a block of `nic_spec::csr::BLOCKS`, in that order |
//! | `doorbell` | [`CsrBus`] | valid/ready | the high half of the BAR |
//! | `count` | | | `csr_bad_address_count` |
//!
//! Address and data of a write may come in either order. One access is under way at a time; a read and a write that wait
//! both take turns. SLVERR and a count answer: an address outside every block, one between registers, one that is no
//! multiple of 4, and a write of part of a word. A write without any strobe does nothing and is good.
//! Latency from the address (and data) to the answer 4 cycles with a block that answers in two. Reset drops what is under
//! way. State: registers. Drops: none.

use super::bus::{AxiLite, CsrBus, RESP_OKAY, RESP_SLVERR};
use crate::stream::Count;
use nic_spec::csr::{stats::Counter, BAR_BITS, BLOCKS, BLOCK_BYTES, DOORBELL_BASE};
use rtl_graph::*;

/// Counters that the port `count` can name.
pub const COUNTS: &[Counter] = &[Counter::CsrBadAddress];

module! {
    /// Register decoder.
    pub struct CsrDecode = "nic_host_csr_decode" () {
        axil: in AxiLite,
        block: out CsrBus [BLOCKS.len()],
        doorbell: out CsrBus,
        count: out Count,
    } |b| {
        // What has arrived.
        let taken = b.wire("write_taken", 1);
        let arrived = |name: &str, valid: S, free: S| {
            let full = b.reg_reset(name, 1, 0);
            full.set((full & !free) | (valid & !full));
            full
        };
        let aw_full = arrived("aw_full", axil.awvalid, taken);
        let w_full = arrived("w_full", axil.wvalid, taken);
        let read_taken = b.wire("read_taken", 1);
        let ar_full = arrived("ar_full", axil.arvalid, read_taken);
        axil.awready.set(!aw_full);
        axil.wready.set(!w_full);
        axil.arready.set(!ar_full);
        let keep = |name: &str, valid: S, full: S, value: S| {
            let r = b.reg(name, value.width());
            r.set_en(valid & !full, value);
            r
        };
        let aw_addr = keep("aw_addr", axil.awvalid, aw_full, axil.awaddr);
        let w_data = keep("w_data", axil.wvalid, w_full, axil.wdata);
        let w_strb = keep("w_strb", axil.wvalid, w_full, axil.wstrb);
        let ar_addr = keep("ar_addr", axil.arvalid, ar_full, axil.araddr);

        // The access under way.
        let state = b.fsm("state", &["idle", "run", "answer"]);
        let (is_write, addr, wdata) = (b.reg_reset("is_write", 1, 0), b.reg("addr", BAR_BITS), b.reg("wdata", 32));
        let (is_partial, is_empty) = (b.reg("is_partial", 1), b.reg("is_empty", 1));
        let has_write = aw_full & w_full;
        // `is_write` still tells of the access before.
        let choose_write = (has_write & !(ar_full & is_write)).named("choose_write");
        let start = (state.is("idle") & (has_write | ar_full)).named("start");
        taken.set(start & choose_write);
        read_taken.set(start & !choose_write);
        b.when(start, || {
            is_write.set(choose_write);
            addr.set(choose_write.mux(aw_addr, ar_addr));
            wdata.set(w_data);
            is_empty.set(choose_write & w_strb.is_zero());
            is_partial.set(choose_write & w_strb.any() & !w_strb.all());
        });
        state.step("idle", start, "run");

        // Where it goes.
        let run = state.is("run").named("run");
        let doorbell_bit = DOORBELL_BASE.ilog2();
        let block_shift = BLOCK_BYTES.ilog2();
        let is_doorbell = addr.bit(doorbell_bit);
        let number = addr.bits(block_shift, doorbell_bit - block_shift);
        let mut targets: Vec<(S, CsrBus)> = vec![(is_doorbell, doorbell)];
        for (table, port) in BLOCKS.iter().zip(&block) {
            targets.push((!is_doorbell & number.eq(table.base >> block_shift), *port));
        }
        let is_bad = (addr.trunc(2).any() | is_partial).named("is_bad");
        let go = (run & !is_bad & !is_empty).named("go");
        let (mut found, mut answered) = (vec![], vec![]);
        for (hit, port) in &targets {
            port.valid.set(go & *hit);
            port.write.set(is_write);
            port.addr.set(addr);
            port.wdata.set(wdata);
            found.push(*hit);
            answered.push((*hit, port.ready, port.error, port.rdata));
        }
        let nowhere = !b.or_tree(&found);
        let ready = b.or_tree(&answered.iter().map(|a| a.0 & a.1).collect::<Vec<_>>());
        let error = b.or_tree(&answered.iter().map(|a| a.0 & a.1 & a.2).collect::<Vec<_>>());
        let rdata = b.one_hot_select(&answered.iter().map(|a| (a.0, a.3)).collect::<Vec<_>>());
        let is_error = (is_bad | nowhere | error).named("is_error");
        let finish = (run & (is_bad | is_empty | nowhere | ready)).named("finish");
        state.step("run", finish, "answer");

        // The answer.
        let (answer, answer_data) = (b.reg("answer", 2), b.reg("answer_data", 32));
        answer.set_en(finish, is_error.mux(b.lit(RESP_SLVERR, 2), b.lit(RESP_OKAY, 2)));
        answer_data.set_en(finish, is_error.mux(0, rdata));
        let respond = state.is("answer");
        axil.bvalid.set(respond & is_write);
        axil.bresp.set(answer);
        axil.rvalid.set(respond & !is_write);
        axil.rresp.set(answer);
        axil.rdata.set(answer_data);
        state.step("answer", is_write.mux(axil.bready, axil.rready), "idle");
        count.drive(b, &[(finish & is_error, Counter::CsrBadAddress)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::bench::*;
    use nic_spec::csr::BAR_BYTES;

    /// Answers of a block: any, but the same for the same access.
    fn answer(target: usize, addr: u64) -> (u64, u64) {
        let x = hash(addr << 4 | target as u64);
        (x & 0xffff_ffff, u64::from(x >> 32 & 3 == 0))
    }

    fn target_of(addr: u64) -> Option<usize> {
        if addr >= u64::from(DOORBELL_BASE) {
            return Some(BLOCKS.len());
        }
        BLOCKS.iter().position(|t| u64::from(t.base) == addr - addr % u64::from(BLOCK_BYTES))
    }

    #[test]
    fn every_access_goes_to_its_block_and_is_answered_once() {
        for seed in [1, 2] {
            let mut rng = Rng::new("every_access_goes_to_its_block", seed);
            let mut sim = sim(&CsrDecode::def(&Lib::new()), &mut rng);
            let ports: Vec<String> =
                (0..BLOCKS.len()).map(|k| format!("block_{k}")).chain(["doorbell".into()]).collect();
            let (mut counted, mut errors) = (0, 0);
            for _ in 0..400 {
                let is_write = rng.chance(50);
                let base = BLOCKS[rng.below(BLOCKS.len() as u64) as usize].base;
                let wild = rng.below(BAR_BYTES.into());
                let high = u64::from(DOORBELL_BASE) + rng.below(1 << 24);
                let addr = pick(&mut rng, &[u64::from(base) + wild % 0x1000, wild, high]);
                let addr = if rng.chance(90) { addr & !3 } else { addr };
                let data = rng.next() & 0xffff_ffff;
                let strb = if rng.chance(80) { 0xf } else { rng.below(16) };
                // When each channel shows itself.
                let (at_addr, at_data) = (rng.below(6), rng.below(6));
                let is_partial = is_write && strb != 0xf && strb != 0;
                let is_empty = is_write && strb == 0;
                let target = target_of(addr).filter(|_| addr % 4 == 0 && !is_partial);
                let reached = target.filter(|_| !is_empty);
                let (want_data, want_error) = match reached {
                    Some(target) => answer(target, addr),
                    None => (0, u64::from(target.is_none())),
                };
                let (mut seen, mut left_addr, mut left_data, mut done) = (0, true, is_write, false);
                let mut delay = rng.below(4);
                for cycle in 0..200 {
                    let (a, d) = if is_write { ("aw", "w") } else { ("ar", "w") };
                    sim.poke(&format!("axil_{a}valid"), (left_addr && cycle >= at_addr).into());
                    sim.poke(&format!("axil_{a}addr"), if left_addr { addr } else { rng.below(1 << 25) });
                    sim.poke(&format!("axil_{d}valid"), (left_data && cycle >= at_data).into());
                    sim.poke("axil_wdata", if left_data { data } else { rng.below(1 << 32) });
                    sim.poke("axil_wstrb", if left_data { strb } else { rng.below(16) });
                    let takes = rng.chance(50);
                    sim.poke("axil_bready", takes.into());
                    sim.poke("axil_rready", takes.into());
                    for (k, port) in ports.iter().enumerate() {
                        let is_asked = sim.peek(&format!("{port}_valid")) == 1;
                        sim.poke(&format!("{port}_ready"), (is_asked && delay == 0).into());
                        if is_asked {
                            assert_eq!(Some(k), reached, "{addr:#x} went to {port}");
                            assert_eq!(sim.peek(&format!("{port}_addr")), addr);
                            assert_eq!(sim.peek(&format!("{port}_write")) == 1, is_write);
                            assert!(!is_write || sim.peek(&format!("{port}_wdata")) == data);
                            sim.poke(&format!("{port}_rdata"), answer(k, addr).0);
                            sim.poke(&format!("{port}_error"), answer(k, addr).1);
                            seen += u32::from(delay == 0);
                            delay = delay.saturating_sub(1);
                        }
                    }
                    left_addr &= sim.peek(&format!("axil_{a}valid")) & sim.peek(&format!("axil_{a}ready")) == 0;
                    left_data &= sim.peek("axil_wvalid") & sim.peek("axil_wready") == 0;
                    let (valid, resp) = if is_write { ("bvalid", "bresp") } else { ("rvalid", "rresp") };
                    counted += sim.peek("count_valid");
                    if sim.peek(&format!("axil_{valid}")) == 1 {
                        assert!(!done);
                        assert_eq!(sim.peek(&format!("axil_{resp}")), 2 * want_error, "{addr:#x} strobes {strb:#x}");
                        if !is_write {
                            assert_eq!(sim.peek("axil_rdata"), if want_error == 1 { 0 } else { want_data });
                        }
                        done = takes;
                    }
                    sim.clock();
                    if done {
                        break;
                    }
                }
                assert!(done, "no answer at {addr:#x}");
                assert_eq!(seen, u32::from(reached.is_some()));
                errors += want_error;
                assert_eq!(counted, errors);
            }
        }
    }

    #[test]
    fn a_read_and_a_write_that_wait_take_turns() {
        let mut rng = Rng::new("a_read_and_a_write", 1);
        let mut sim = sim(&CsrDecode::def(&Lib::new()), &mut rng);
        for pin in ["axil_awvalid", "axil_wvalid", "axil_arvalid", "axil_bready", "axil_rready", "block_0_ready"] {
            sim.poke(pin, 1);
        }
        sim.poke("axil_wstrb", 0xf);
        let (mut order, mut reads) = (vec![], 0);
        for _ in 0..100 {
            if sim.peek("axil_bvalid") == 1 {
                order.push('w');
            }
            if sim.peek("axil_rvalid") == 1 {
                order.push('r');
                reads += 1;
            }
            sim.clock();
        }
        assert!(reads > 10, "{order:?}");
        assert!(order.windows(2).all(|pair| pair[0] != pair[1]), "{order:?}");
    }

    #[test]
    fn latency_is_as_documented() {
        let mut sim = CsrDecode::def(&Lib::new()).sim();
        sim.reset(2);
        // A block that answers in two cycles would be ready in the second of them.
        assert_eq!(cycles_until(&mut sim, &["axil_arvalid"], "block_0_valid"), 2);
        sim.clock();
        assert_eq!(cycles_until(&mut sim, &["block_0_ready"], "axil_rvalid"), 1);
    }
}
