//! Reads host memory for two clients over the read channels of AXI4.
//!
//! ```text
//!  request ─► lines ─► bursts ─┬─► AR (round robin, id = client)
//!      └─► span ───────────┐   │ only while the client's buffer has room
//!  data ◄── align ◄── buffer ◄─┴── R (always taken)
//! ```
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `wqe`, `payload` | [`DmaRead`](crate::stream::DmaRead) | valid/ready | reads of any length at any byte address |
//! | `wqe_data`, `payload_data` | [`ReadBeat`] | valid/ready | the answers of each client in the order of its reads |
//! | `axi` | AXI4 | | `rready` is 1 always |
//! | `count` | | | `dma_read_error_count`, one a burst answered with an error |
//!
//! A burst is issued only when the client's buffer has room for all of it, so no beat ever waits on the bus and neither
//! client holds up the other. Responses may interleave and overtake between the ids. Lines are read whole: never a byte
//! outside the 64-byte lines asked for, so never outside their pages. Latency from a request to `arvalid` 3 cycles, from
//! the last beat needed to its data 6. Throughput 1 beat per cycle. Reset empties everything; responses of bursts from
//! before it must not come after it. State: the buffers. Drops: none; beats of foreign ids are ignored.

use super::{
    axi4::{is_error, Axi4Read, BURST_INCR, ID_BITS, SIZE_64},
    read_align::{MemBeat, ReadAlign, ReadSpan},
    split::{Burst, BurstSplit, Run, LINE_BITS},
    ID_PAYLOAD, ID_WQE,
};
use crate::{
    prim::{arbiter, fifo, fifo::pushed},
    stream::{Count, DmaRead as DmaReadRequest, ReadBeat, BEAT_BYTES, LEN_BITS},
};
use nic_spec::csr::stats::Counter;
use rtl_graph::*;

/// Counters that the port `count` can name.
pub const COUNTS: &[Counter] = &[Counter::DmaReadError];

/// Buffer of the WQE client. Beats.
pub const WQE_BUFFER_BEATS: u32 = 32;
/// Buffer of the payload client. Beats: 128 Gb/s for 2 µs.
pub const PAYLOAD_BUFFER_BEATS: u32 = 512;

/// Lines that `len` bytes at `offset` of a line touch; 0 for no bytes.
pub(super) fn lines_touched<'a>(offset: S<'a>, len: S<'a>) -> S<'a> {
    let bits = LEN_BITS + 1;
    let end = offset.zext(bits) + len.zext(bits) + u64::from(BEAT_BYTES - 1);
    len.any().mux(end.high_bits(bits - 6), 0)
}

module! {
    /// The reads of one client.
    pub struct ReadLane = "nic_dma_read_lane" (buffer_beats: u32, burst_beats: u32, requests: u32) {
        request: in Stream<DmaReadRequest>,
        burst: out Stream<Burst>,
        beat_valid: in Uint(1),
        beat_data: in Uint(8 * BEAT_BYTES),
        beat_error: in Uint(1),
        data: out Stream<ReadBeat>,
    } |b| {
        assert!(buffer_beats >= burst_beats, "a buffer of {buffer_beats} beats never has room for {burst_beats}");
        let (addr, len) = (request.data.addr, request.data.len);
        let offset = addr.trunc(6);
        let beats = lines_touched(offset, len).named("beats");
        let last_byte = len.trunc(6).dec().named("last_byte");
        let crosses = offset.add_carry(last_byte).bit(6);
        let span = ReadSpan {
            offset,
            tail: len.any().mux(last_byte.zext(7).inc(), 0),
            beats,
            owed: !crosses,
        };
        let spans_in = Stream { data: span, valid: b.wire("span_valid", 1), ready: b.wire("span_ready", 1) };
        let spans = fifo(b, "spans", &spans_in, requests);
        let split = BurstSplit::at(b, "split", burst_beats);
        spans_in.valid.set(request.valid & split.rx.ready);
        split.rx.put(request.valid & spans_in.ready, &Run { line: addr.bits(6, LINE_BITS), beats });
        request.ready.set(split.rx.ready & spans_in.ready);

        // Room that no issued burst has claimed.
        let bits = count_bits(buffer_beats.into());
        let room = b.reg_reset("room", bits, buffer_beats.into());
        let has_room = b.reg_reset("has_room", 1, 1);
        burst.put(split.tx.valid & has_room, &split.tx.data);
        split.tx.ready.set(burst.ready & has_room);

        let beat = MemBeat { data: beat_data, error: beat_error };
        let buffer = pushed(b, "buffer", beat_valid, &beat, buffer_beats);
        let align = ReadAlign::at(b, "align");
        b.connect(&spans, &align.span);
        b.connect(&buffer.tx, &align.beat);
        b.connect(&align.data, &data);

        let claimed = burst.fire().mux(burst.data.len.resize(bits).inc(), 0);
        let room_next = (room - claimed + align.beat.fire().zext(bits)).named("room_next");
        room.set(room_next);
        has_room.set(room_next.ge(burst_beats));

        b.assert("room_is_not_overdrawn", claimed.le(room));
        b.cover("no_room", !has_room);
    }
}

module! {
    /// The read half of the card's bus manager.
    pub struct DmaRead = "nic_dma_read" (burst_beats: u32) {
        wqe: in Stream<DmaReadRequest>,
        wqe_data: out Stream<ReadBeat>,
        payload: in Stream<DmaReadRequest>,
        payload_data: out Stream<ReadBeat>,
        axi: out Axi4Read,
        count: out Count,
    } |b| {
        let lanes = [
            ReadLane::at(b, "wqe_lane", WQE_BUFFER_BEATS.max(burst_beats), burst_beats, 16),
            ReadLane::at(b, "payload_lane", PAYLOAD_BUFFER_BEATS, burst_beats, 64),
        ];
        let clients = [(&wqe, &wqe_data), (&payload, &payload_data)];
        let ids = [ID_WQE, ID_PAYLOAD];

        // r1: what came over the bus.
        let is_ours = ids.map(|id| axi.rvalid & axi.rid.eq(id));
        let r_valid = is_ours.map(|x| x.delay_reset("r1_valid", 1));
        let r_data = b.reg("r1_data", 8 * BEAT_BYTES);
        r_data.set_en(axi.rvalid, axi.rdata);
        let r_error = b.reg("r1_error", 1);
        r_error.set_en(axi.rvalid, is_error(axi.rresp));
        let r_last = b.reg("r1_last", 1);
        r_last.set_en(axi.rvalid, axi.rlast);
        axi.rready.set(1);

        let mut bad_burst = vec![];
        for (k, (lane, (request, data))) in lanes.iter().zip(clients).enumerate() {
            b.connect(request, &lane.request);
            b.connect(&lane.data, data);
            lane.beat_valid.set(r_valid[k]);
            lane.beat_data.set(r_data);
            lane.beat_error.set(r_error);
            // A burst counts once however many of its beats are bad; those of the other id may stand in between.
            let seen = b.reg_reset(&format!("bad_{k}"), 1, 0);
            let bad = seen | r_error;
            seen.set_en(r_valid[k], bad & !r_last);
            bad_burst.push(r_valid[k] & r_last & bad);
        }
        count.drive(b, &[(b.or_tree(&bad_burst), Counter::DmaReadError)]);

        let (burst, source) = arbiter(b, "ar", &lanes.map(|lane| lane.burst), None);
        axi.arvalid.set(burst.valid);
        burst.ready.set(axi.arready);
        axi.arid.set(b.pick(source, &ids.map(|id| b.lit(id, ID_BITS))));
        axi.araddr.set(burst.data.line.cat(b.zero(6)));
        axi.arlen.set(burst.data.len);
        axi.arsize.set(SIZE_64);
        axi.arburst.set(BURST_INCR);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{bench::*, BURST_BEATS};
    use super::*;
    use std::collections::VecDeque;

    /// Memory behind the read channels: ids overtake each other, lines of some addresses answer with an error.
    struct Memory {
        /// Lines still to be delivered, per id: address, last of its burst.
        queues: [VecDeque<(u64, bool)>; 2],
        current: Option<(usize, u64, bool)>,
        errors: u64,
        bad_bursts: u64,
        burst_is_bad: [bool; 2],
        burst_beats: u64,
        rate: u64,
        ready_rate: u64,
    }

    fn line_is_bad(addr: u64, errors: u64) -> bool {
        errors != 0 && hash(addr ^ 0xbad).is_multiple_of(errors)
    }

    impl Memory {
        fn drive(&mut self, sim: &mut Sim, rng: &mut Rng) {
            sim.poke("axi_arready", rng.chance(self.ready_rate).into());
            self.current = None;
            let ids: Vec<usize> = (0..2).filter(|id| !self.queues[*id].is_empty()).collect();
            if !ids.is_empty() && rng.chance(self.rate) {
                let id = pick(rng, &ids);
                let (addr, last) = self.queues[id][0];
                self.current = Some((id, addr, last));
                sim.poke("axi_rid", id as u64);
                sim.poke_wide("axi_rdata", &memory_line(addr));
                let ok = rng.below(2);
                let bad = 2 + rng.below(2);
                sim.poke("axi_rresp", if line_is_bad(addr, self.errors) { bad } else { ok });
                sim.poke("axi_rlast", last.into());
            } else if rng.chance(10) {
                // A stray response of somebody else's.
                sim.poke("axi_rid", 2 + rng.below(14));
                sim.poke("axi_rvalid", 1);
                return;
            }
            sim.poke("axi_rvalid", self.current.is_some().into());
        }

        fn look(&mut self, sim: &mut Sim) {
            assert_eq!(sim.peek("axi_rready"), 1);
            if let Some((id, addr, last)) = self.current {
                self.queues[id].pop_front();
                self.burst_is_bad[id] |= line_is_bad(addr, self.errors);
                if last {
                    self.bad_bursts += u64::from(self.burst_is_bad[id]);
                    self.burst_is_bad[id] = false;
                }
            }
            if sim.peek("axi_arvalid") == 1 && sim.peek("axi_arready") == 1 {
                let (addr, beats) = (sim.peek("axi_araddr"), sim.peek("axi_arlen") + 1);
                assert_eq!((sim.peek("axi_arsize"), sim.peek("axi_arburst"), addr % 64), (6, 1, 0));
                assert!(beats <= self.burst_beats);
                assert_eq!(addr / 4096, (addr + 64 * beats - 1) / 4096, "a burst crosses 4 KiB at {addr:#x}");
                let id = sim.peek("axi_arid") as usize;
                self.queues[id].extend((0..beats).map(|k| (addr + 64 * k, k + 1 == beats)));
            }
        }
    }

    /// What a read of `len` bytes at `addr` gives: beats of (bytes kept, last, error).
    fn expected(addr: u64, len: u64, errors: u64) -> Vec<(Vec<u8>, bool, bool)> {
        let bytes: Vec<u8> = (0..len).map(|k| memory_byte(addr.wrapping_add(k))).collect();
        let lines = if len == 0 { 0 } else { (addr % 64 + len).div_ceil(64) };
        let bad = (0..lines).any(|k| line_is_bad(addr - addr % 64 + 64 * k, errors));
        if len == 0 {
            return vec![(vec![], true, false)];
        }
        let n = bytes.chunks(64).len();
        bytes.chunks(64).enumerate().map(|(k, c)| (c.to_vec(), k + 1 == n, bad && k + 1 == n)).collect()
    }

    fn beat_of(w: &Words) -> (Vec<u8>, bool, bool) {
        let kept = w[1][0].count_ones();
        assert_eq!(u64::MAX.checked_shr(64 - kept).unwrap_or(0), w[1][0], "keep is not ones from byte 0 on");
        assert!(w[2][0] == 1 || kept == 64, "a beat before the last one is not full");
        (bytes_of(&w[0])[..kept as usize].to_vec(), w[2][0] == 1, w[3][0] == 1)
    }

    fn check(mut rng: Rng, burst_beats: u32, errors: u64, lens: &[u64], reads: usize) {
        let mut sim = sim(&DmaRead::def(&Lib::new(), burst_beats), &mut rng);
        let ports = ["wqe", "payload"];
        let mut sources = ports.map(|p| Source::new(&sim, p, &["addr", "len"]));
        let mut sinks = ports.map(|p| Sink::new(&sim, &format!("{p}_data"), &["data", "keep", "last", "error"]));
        let mut memory = Memory {
            queues: Default::default(),
            current: None,
            errors,
            bad_bursts: 0,
            burst_is_bad: [false; 2],
            burst_beats: burst_beats.into(),
            rate: pick(&mut rng, &[40, 100]),
            ready_rate: pick(&mut rng, &[40, 100]),
        };
        let mut want: [VecDeque<(Vec<u8>, bool, bool)>; 2] = Default::default();
        for (k, source) in sources.iter_mut().enumerate() {
            source.rate = pick(&mut rng, &[20, 100]);
            sinks[k].rate = pick(&mut rng, &[20, 60, 100]);
            for _ in 0..reads {
                let any = rng.below(8193);
                let len = if k == 0 { 64 } else { pick(&mut rng, lens).min(any.max(1)) };
                // Near a page border, and where the sum of address and length carries far up.
                let page = pick(&mut rng, &[1 << 12, 1 << 32, 1 << 63]) + (rng.below(4) << 12);
                let near = 4096 - 64 * rng.below(4);
                let addr = page + if rng.chance(50) { near + rng.below(64) } else { rng.below(4096) };
                source.push(vec![word(addr), word(len)]);
                want[k].extend(expected(addr, len, errors));
            }
        }
        let mut counted = 0;
        for _ in 0..400_000 {
            for k in 0..2 {
                sources[k].drive(&mut sim, &mut rng);
                sinks[k].drive(&mut sim, &mut rng);
            }
            memory.drive(&mut sim, &mut rng);
            memory.look(&mut sim);
            for k in 0..2 {
                sources[k].taken(&mut sim);
                if let Some(w) = sinks[k].taken(&mut sim) {
                    assert_eq!(Some(beat_of(&w)), want[k].pop_front(), "client {k}");
                }
            }
            counted += sim.peek("count_valid");
            sim.clock();
            if want.iter().all(|w| w.is_empty()) {
                assert_eq!(counted, memory.bad_bursts);
                assert_eq!(errors == 0, counted == 0);
                return;
            }
        }
        panic!("{:?} beats are missing", want.map(|w| w.len()));
    }

    #[test]
    fn every_offset_and_length_arrives_at_byte_0_in_order_per_client() {
        for seed in 1..5 {
            let burst_beats = [2, 16, 64, 4][seed as usize % 4];
            check(Rng::new("every_offset_and_length", seed), burst_beats, 0, &[0, 1, 63, 64, 65, 4096, 8192], 60);
        }
    }

    #[test]
    fn an_error_of_any_line_marks_the_last_beat_and_is_counted_once_a_burst() {
        for seed in [11, 12] {
            check(Rng::new("an_error_of_any_line", seed), BURST_BEATS, 12, &[0, 1, 64, 200, 4096], 60);
        }
    }

    #[test]
    fn a_client_that_stands_still_does_not_stop_the_other() {
        let mut rng = Rng::new("a_client_that_stands_still", 5);
        let mut sim = DmaRead::def(&Lib::new(), BURST_BEATS).sim();
        sim.reset(2);
        let mut memory = Memory {
            queues: Default::default(),
            current: None,
            errors: 0,
            bad_bursts: 0,
            burst_is_bad: [false; 2],
            burst_beats: BURST_BEATS.into(),
            rate: 100,
            ready_rate: 100,
        };
        let mut payload = Source::new(&sim, "payload", &["addr", "len"]);
        let mut wqe = Source::new(&sim, "wqe", &["addr", "len"]);
        let mut wqe_data = Sink::new(&sim, "wqe_data", &["data", "keep", "last", "error"]);
        sim.poke("payload_data_ready", 0);
        (0..40).for_each(|k| payload.push(vec![word(8192 * k + 5), word(8192)]));
        (0..40).for_each(|k| wqe.push(vec![word((1 << 20) + 64 * k), word(64)]));
        let mut got = 0;
        for _ in 0..3000 {
            payload.drive(&mut sim, &mut rng);
            wqe.drive(&mut sim, &mut rng);
            wqe_data.drive(&mut sim, &mut rng);
            memory.drive(&mut sim, &mut rng);
            memory.look(&mut sim);
            payload.taken(&mut sim);
            wqe.taken(&mut sim);
            if let Some(w) = wqe_data.taken(&mut sim) {
                assert_eq!(w[0], memory_line((1 << 20) + 64 * got));
                got += 1;
            }
            sim.clock();
        }
        assert_eq!(got, 40);
        assert!(!payload.queue.is_empty(), "the payload client was to be held up");
    }

    #[test]
    fn aligned_reads_come_at_one_beat_a_cycle() {
        let mut rng = Rng::new("aligned_reads", 6);
        let mut sim = DmaRead::def(&Lib::new(), BURST_BEATS).sim();
        sim.reset(2);
        let mut memory = Memory {
            queues: Default::default(),
            current: None,
            errors: 0,
            bad_bursts: 0,
            burst_is_bad: [false; 2],
            burst_beats: BURST_BEATS.into(),
            rate: 100,
            ready_rate: 100,
        };
        let mut payload = Source::new(&sim, "payload", &["addr", "len"]);
        (0..20).for_each(|k| payload.push(vec![word(4096 * k), word(4096)]));
        sim.poke("payload_data_ready", 1);
        let (mut first, mut last, mut beats) = (None, 0, 0);
        for cycle in 0..2000u64 {
            payload.drive(&mut sim, &mut rng);
            memory.drive(&mut sim, &mut rng);
            // Without stray responses, which take the bus.
            if memory.current.is_none() {
                sim.poke("axi_rvalid", 0);
            }
            memory.look(&mut sim);
            payload.taken(&mut sim);
            if sim.peek("payload_data_valid") == 1 {
                first.get_or_insert(cycle);
                (last, beats) = (cycle, beats + 1);
            }
            sim.clock();
        }
        assert_eq!(beats, 20 * 64);
        assert_eq!(last - first.unwrap() + 1, beats, "there were gaps");
    }

    #[test]
    fn latencies_are_as_documented() {
        let mut sim = DmaRead::def(&Lib::new(), BURST_BEATS).sim();
        sim.reset(2);
        sim.poke("axi_arready", 1);
        sim.poke("payload_len", 64);
        assert_eq!(cycles_until(&mut sim, &["payload_valid"], "axi_arvalid"), 3);
        sim.clocks(5);
        sim.poke("axi_rid", ID_PAYLOAD);
        sim.poke("axi_rlast", 1);
        assert_eq!(cycles_until(&mut sim, &["axi_rvalid"], "payload_data_valid"), 6);
    }
}
