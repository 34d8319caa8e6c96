//! Writes host memory for two clients over the write channels of AXI4.
//!
//! ```text
//!  place ──► bursts ─┬─► AW (round robin, id = client) ─► order ─► W takes its beats from the clients in this order
//!  place_data ─► align ──────────────────────────────────────────┘
//!                    └─► tokens, one a burst ◄── B
//!  place_info ─► queue ─► placed, when all bursts of its placement are answered
//! ```
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `place`, `place_data` | `PlaceRequest`, `Beat` | valid/ready | payload and where it goes, length not 0 |
//! | `place_info` | `PlaceInfo` | valid/ready | one after each request; with `payload_len` 0 one that has no request |
//! | `placed` | `PlaceInfo` | valid/ready | the same in order, once the memory has answered; `error` says how |
//! | `cqe` | [`CqeWrite`] | valid/ready | completion entries |
//! | `cqe_done` | `error` | valid/ready | one a completion entry in order, once the memory has answered |
//! | `axi` | AXI4 | | `bready` is 1 always |
//! | `count` | | | `dma_write_error_count`, one a burst answered with an error |
//!
//! Each burst on the way holds a token, and the queue of responses is as deep as that of the tokens: a response is taken
//! always, whatever becomes of the placements. The CQE client must have no more than [`CQES_ON_THE_WAY`] entries without
//! `cqe_done`. Bytes outside the write are never strobed. Latency from a request with data to `awvalid` 3 cycles, from
//! the last response to `placed` 4. Throughput 1 line per cycle. Reset empties everything; responses of bursts from
//! before it must not come after it. State: the queues. Drops: none; responses with foreign ids are ignored.

use super::{
    axi4::{is_error, Axi4Write, BURST_INCR, ID_BITS, SIZE_64},
    read::lines_touched,
    split::{Burst, BurstSplit, Run, LINE_BITS},
    write_align::{LineWrite, WriteAlign, WriteSpan},
    ID_CQE, ID_PAYLOAD,
};
use crate::{
    prim::{arbiter, fifo, fifo::pushed, skid},
    stream::{Beat, Count, PlaceInfo, PlaceRequest, ADDR_BITS, BEAT_BYTES},
};
use nic_spec::{csr::stats::Counter, desc::Cqe};
use rtl_graph::*;

/// Counters that the port `count` can name.
pub const COUNTS: &[Counter] = &[Counter::DmaWriteError];

/// Payload bursts without response, at most.
const BURSTS_ON_THE_WAY: u32 = 64;
/// Placements that wait for their response, at most.
const PLACES_ON_THE_WAY: u32 = 64;
/// Completion entries without response, at most.
pub const CQES_ON_THE_WAY: u32 = 16;

record! {
    /// A completion entry to write.
    pub struct CqeWrite {
        /// Multiple of 32.
        addr: ADDR_BITS,
        data: Cqe::LAYOUT.bits() as u32,
    }
}

record! {
    /// The memory has answered.
    pub struct WriteDone {
        /// It could not write.
        error: 1,
    }
}

record! { struct Token { last: 1 } }

record! {
    /// Whose beats go over W next, and how many.
    struct Turn { source: 1, len: 8 }
}

record! { struct BusLine { data: 8 * BEAT_BYTES, strb: BEAT_BYTES, last: 1 } }

module! {
    /// The payload client: requests to bursts and lines.
    struct PlaceLane = "nic_dma_place_lane" (burst_beats: u32) {
        place: in Stream<PlaceRequest>,
        place_data: in Stream<Beat>,
        burst: out Stream<Burst>,
        line: out Stream<LineWrite>,
    } |b| {
        let (addr, len) = (place.data.iova, place.data.len);
        let (offset, len_low) = (addr.trunc(6), len.trunc(6));
        let span = WriteSpan {
            offset,
            tail: offset + len_low,
            beats: lines_touched(b.zero(6), len),
            owed: offset.add_carry(len_low.dec()).bit(6),
        };
        let spans_in = Stream { data: span, valid: b.wire("span_valid", 1), ready: b.wire("span_ready", 1) };
        let spans = fifo(b, "spans", &spans_in, 4);
        let split = BurstSplit::at(b, "split", burst_beats);
        spans_in.valid.set(place.valid & split.rx.ready);
        let run = Run { line: addr.bits(6, LINE_BITS), beats: lines_touched(offset, len) };
        split.rx.put(place.valid & spans_in.ready, &run);
        place.ready.set(split.rx.ready & spans_in.ready);
        b.connect(&split.tx, &burst);

        let align = WriteAlign::at(b, "align");
        b.connect(&spans, &align.span);
        b.connect(&place_data, &align.beat);
        b.connect(&align.line, &line);
        b.assert("a_placement_has_bytes", !place.valid | len.any());
    }
}

module! {
    /// Matches placements with the responses of their bursts.
    struct PlaceTracker = "nic_dma_place_tracker" () {
        /// A burst is issued; `last` of its placement.
        token: in Stream<Token>,
        /// A response of a payload burst has come.
        response: in Uint(1),
        response_error: in Uint(1),
        place_info: in Stream<PlaceInfo>,
        placed: out Stream<PlaceInfo>,
    } |b| {
        let tokens = fifo(b, "tokens", &token, BURSTS_ON_THE_WAY);
        let responses = pushed(b, "responses", response, &WriteDone { error: response_error }, BURSTS_ON_THE_WAY).tx;
        let infos = fifo(b, "infos", &place_info, PLACES_ON_THE_WAY);

        let failed = b.reg_reset("failed", 1, 0);
        let error = failed | responses.data.error;
        let done_in = Stream {
            data: WriteDone { error },
            valid: tokens.valid & responses.valid & tokens.data.last,
            ready: b.wire("done_ready", 1),
        };
        let done = fifo(b, "done", &done_in, PLACES_ON_THE_WAY);
        let matched = (tokens.valid & responses.valid & (!tokens.data.last | done_in.ready)).named("matched");
        tokens.ready.set(matched);
        responses.ready.set(matched);
        failed.set_en(matched, error & !tokens.data.last);

        let has_data = infos.data.payload_len.any().named("has_data");
        let out = PlaceInfo { error: has_data & done.data.error, ..infos.data };
        placed.put(infos.valid & (!has_data | done.valid), &out);
        infos.ready.set(placed.fire());
        done.ready.set(placed.fire() & has_data);
        b.assert("no_response_without_a_burst", !responses.valid | tokens.valid);
    }
}

module! {
    /// The write half of the card's bus manager.
    pub struct DmaWrite = "nic_dma_write" (burst_beats: u32) {
        place: in Stream<PlaceRequest>,
        place_data: in Stream<Beat>,
        place_info: in Stream<PlaceInfo>,
        placed: out Stream<PlaceInfo>,
        cqe: in Stream<CqeWrite>,
        cqe_done: out Stream<WriteDone>,
        axi: out Axi4Write,
        count: out Count,
    } |b| {
        let lane = PlaceLane::at(b, "place_lane", burst_beats);
        b.connect(&place, &lane.place);
        b.connect(&place_data, &lane.place_data);
        let tracker = PlaceTracker::at(b, "tracker");
        b.connect(&place_info, &tracker.place_info);
        b.connect(&tracker.placed, &placed);

        // A payload burst takes a token, a completion entry a place in its queue.
        let burst = Stream {
            data: lane.burst.data,
            valid: lane.burst.valid & tracker.token.ready,
            ready: b.wire("burst_ready", 1),
        };
        lane.burst.ready.set(burst.ready & tracker.token.ready);
        tracker.token.put(lane.burst.valid & burst.ready, &Token { last: burst.data.last });
        let entry_in = Stream { data: cqe.data, valid: b.wire("entry_valid", 1), ready: b.wire("entry_ready", 1) };
        let entry = fifo(b, "entries", &entry_in, CQES_ON_THE_WAY);
        let cqe_burst = Stream {
            data: Burst { line: cqe.data.addr.bits(6, LINE_BITS), len: b.zero(8), last: b.high() },
            valid: cqe.valid & entry_in.ready,
            ready: b.wire("cqe_burst_ready", 1),
        };
        entry_in.valid.set(cqe.valid & cqe_burst.ready);
        cqe.ready.set(cqe_burst.ready & entry_in.ready);

        // AW, and with each the turn that its beats have on W.
        let (aw, source) = arbiter(b, "aw", &[burst, cqe_burst], None);
        let turn_in = Stream {
            data: Turn { source, len: aw.data.len },
            valid: aw.valid & axi.awready,
            ready: b.wire("turn_ready", 1),
        };
        let turns = fifo(b, "turns", &turn_in, 16);
        axi.awvalid.set(aw.valid & turn_in.ready);
        aw.ready.set(axi.awready & turn_in.ready);
        axi.awid.set(source.mux(b.lit(ID_CQE, ID_BITS), b.lit(ID_PAYLOAD, ID_BITS)));
        axi.awaddr.set(aw.data.line.cat(b.zero(6)));
        axi.awlen.set(aw.data.len);
        axi.awsize.set(SIZE_64);
        axi.awburst.set(BURST_INCR);

        // W.
        let half = entry.data.addr.bit(5);
        let entry_line = LineWrite {
            data: entry.data.data.cat(entry.data.data),
            strb: half.rep(BEAT_BYTES / 2).cat((!half).rep(BEAT_BYTES / 2)),
        };
        let is_cqe = turns.data.source;
        let sent = b.reg_reset("w_sent", 8, 0);
        let is_last = sent.eq(turns.data.len).named("w_last");
        let line = LineWrite::mux(is_cqe, &entry_line, &lane.line.data);
        let w_in = Stream {
            data: BusLine { data: line.data, strb: line.strb, last: is_last },
            valid: turns.valid & is_cqe.mux(entry.valid, lane.line.valid),
            ready: b.wire("w_ready", 1),
        };
        let w = skid(b, "w", &w_in);
        let go = w_in.fire().named("w_go");
        lane.line.ready.set(turns.valid & !is_cqe & w_in.ready);
        entry.ready.set(turns.valid & is_cqe & w_in.ready);
        turns.ready.set(go & is_last);
        sent.set_en(go, is_last.mux(0, sent.inc()));
        axi.wvalid.set(w.valid);
        axi.wdata.set(w.data.data);
        axi.wstrb.set(w.data.strb);
        axi.wlast.set(w.data.last);
        w.ready.set(axi.wready);

        // B.
        axi.bready.set(1);
        let error = is_error(axi.bresp);
        tracker.response.set(axi.bvalid & axi.bid.eq(ID_PAYLOAD));
        tracker.response_error.set(error);
        let is_entry = axi.bvalid & axi.bid.eq(ID_CQE);
        b.connect(&pushed(b, "cqe_answers", is_entry, &WriteDone { error }, CQES_ON_THE_WAY).tx, &cqe_done);
        count.drive(b, &[(axi.bvalid & error, Counter::DmaWriteError)]);
        b.assert("an_entry_stands_at_its_size", !cqe.valid | cqe.data.addr.trunc(5).is_zero());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{bench::*, BURST_BEATS};
    use super::*;
    use std::collections::{BTreeMap, VecDeque};

    /// Memory behind the write channels.
    #[derive(Default)]
    struct Memory {
        bytes: BTreeMap<u64, u8>,
        /// Bursts whose beats are still to come: id, address, beats.
        open: VecDeque<(u64, u64, u64)>,
        /// Answers to give, per id: is it bad.
        answers: [VecDeque<bool>; 2],
        errors: u64,
        bad_bursts: u64,
        beat: u64,
    }

    fn burst_is_bad(addr: u64, errors: u64) -> bool {
        errors != 0 && hash(addr ^ 0xbad).is_multiple_of(errors)
    }

    impl Memory {
        /// Gives the id that is answered in this cycle.
        fn cycle(&mut self, sim: &mut Sim, rng: &mut Rng, rate: u64) -> Option<usize> {
            sim.poke("axi_awready", rng.chance(rate).into());
            sim.poke("axi_wready", rng.chance(rate).into());
            let ids: Vec<usize> = (0..2).filter(|id| !self.answers[*id].is_empty()).collect();
            let id = (!ids.is_empty() && rng.chance(rate)).then(|| pick(rng, &ids));
            sim.poke("axi_bvalid", id.is_some().into());
            if let Some(id) = id {
                sim.poke("axi_bid", id as u64);
                let bad = self.answers[id].pop_front().unwrap_or_default();
                self.bad_bursts += u64::from(bad);
                let kind = rng.below(2);
                sim.poke("axi_bresp", if bad { 2 + kind } else { kind });
            }
            assert_eq!(sim.peek("axi_bready"), 1);
            if sim.peek("axi_awvalid") & sim.peek("axi_awready") == 1 {
                let (addr, beats) = (sim.peek("axi_awaddr"), sim.peek("axi_awlen") + 1);
                assert_eq!((sim.peek("axi_awsize"), sim.peek("axi_awburst"), addr % 64), (6, 1, 0));
                assert_eq!(addr / 4096, (addr + 64 * beats - 1) / 4096, "a burst crosses 4 KiB at {addr:#x}");
                self.open.push_back((sim.peek("axi_awid"), addr, beats));
            }
            if sim.peek("axi_wvalid") & sim.peek("axi_wready") == 1 {
                let (id, addr, beats) = self.open[0];
                let (data, strb) = (bytes_of(&sim.peek_wide("axi_wdata")), sim.peek("axi_wstrb"));
                let bad = burst_is_bad(addr, self.errors);
                for lane in (0..64).filter(|lane| strb >> lane & 1 == 1 && !bad) {
                    let old = self.bytes.insert(addr + 64 * self.beat + lane, data[lane as usize]);
                    assert_eq!(old, None, "byte {:#x} is written twice", addr + 64 * self.beat + lane);
                }
                self.beat += 1;
                assert_eq!(sim.peek("axi_wlast") == 1, self.beat == beats, "wlast at beat {} of {beats}", self.beat);
                if self.beat == beats {
                    self.beat = 0;
                    self.answers[id as usize].push_back(bad);
                    self.open.pop_front();
                }
            }
            id
        }
    }

    const INFO: [&str; 10] =
        ["conn", "mseq", "payload_len", "dma_len", "mflags", "imm", "rsn", "se", "complete", "error"];

    fn check(mut rng: Rng, burst_beats: u32, errors: u64, rates: [u64; 3]) {
        let mut sim = sim(&DmaWrite::def(&Lib::new(), burst_beats), &mut rng);
        let mut place = Source::new(&sim, "place", &["iova", "len"]);
        let mut data = Source::new(&sim, "place_data", &["data", "keep", "last"]);
        let mut info = Source::new(&sim, "place_info", &INFO);
        let mut placed = Sink::new(&sim, "placed", &INFO);
        let mut cqe = Source::new(&sim, "cqe", &["addr", "data"]);
        let mut cqe_done = Sink::new(&sim, "cqe_done", &["error"]);
        (place.rate, data.rate, info.rate) = (rates[0], rates[1], rates[2]);
        (placed.rate, cqe_done.rate) = (rates[2], rates[0]);
        let mut memory = Memory { errors, ..Memory::default() };
        let (mut want, mut bytes, mut want_cqe) = (VecDeque::new(), BTreeMap::new(), VecDeque::new());
        let lens = [1, 2, 31, 63, 64, 65, 127, 128, 1000, 1024, 4096, 8192];
        for k in 0..80 {
            let any = 1 + rng.below(300);
            let len = if rng.chance(20) { 0 } else { pick(&mut rng, &lens).min(pick(&mut rng, &[any, 8192])) };
            let near = pick(&mut rng, &[64, 4096, 1024]) - rng.below(64) + 64 * rng.below(4);
            let addr = ((1 + k) << 20) + near;
            let content: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
            let mut error = false;
            if len > 0 {
                place.push(vec![word(addr), word(len)]);
                let n = content.chunks(64).len();
                for (i, c) in content.chunks(64).enumerate() {
                    // What is not kept is not to be written.
                    let mut line: Vec<u8> = (0..64).map(|_| rng.next() as u8).collect();
                    line[..c.len()].copy_from_slice(c);
                    data.push(vec![words_of(&line), word(u64::MAX >> (64 - c.len())), word((i + 1 == n).into())]);
                }
                let (mut at, burst) = (addr, 64 * u64::from(burst_beats));
                while at < addr + len {
                    let end = (addr + len).min((at / burst + 1) * burst);
                    let bad = burst_is_bad(at - at % 64, errors);
                    error |= bad;
                    if !bad {
                        bytes.extend((at..end).map(|a| (a, content[(a - addr) as usize])));
                    }
                    at = end;
                }
            }
            let mut row: Words = [rng.below(16), k, len, 99, 3, 7, 1, 1, k & 1, 0].map(word).to_vec();
            info.push(row.clone());
            row[9] = word(error.into());
            want.push_back(row);
        }
        let mut entries: VecDeque<Words> = (0..120)
            .map(|k| {
                let addr = (1 << 40) + 32 * k;
                let content: Vec<u8> = (0..32).map(|_| rng.next() as u8).collect();
                let bad = burst_is_bad(addr - addr % 64, errors);
                want_cqe.push_back(u64::from(bad));
                if !bad {
                    bytes.extend((0..32).map(|i| (addr + i, content[i as usize])));
                }
                vec![word(addr), words_of(&content)]
            })
            .collect();
        let (mut on_the_way, mut counted, mut answered, mut released) = (0, 0, 0u64, 0u64);
        for _ in 0..100_000 {
            if on_the_way < CQES_ON_THE_WAY && cqe.queue.is_empty() {
                if let Some(entry) = entries.pop_front() {
                    cqe.push(entry);
                    on_the_way += 1;
                }
            }
            for source in [&mut place, &mut data, &mut info, &mut cqe] {
                source.drive(&mut sim, &mut rng);
            }
            placed.drive(&mut sim, &mut rng);
            cqe_done.drive(&mut sim, &mut rng);
            answered += u64::from(memory.cycle(&mut sim, &mut rng, rates[1]) == Some(ID_PAYLOAD as usize));
            for source in [&mut place, &mut data, &mut info, &mut cqe] {
                source.taken(&mut sim);
            }
            if let Some(row) = placed.taken(&mut sim) {
                let (addr, len) = (0, row[2][0]);
                released += u64::from(len > addr);
                assert_eq!(Some(row), want.pop_front());
                assert!(released <= answered, "placed before the memory answered");
            }
            if let Some(row) = cqe_done.taken(&mut sim) {
                assert_eq!(Some(row[0][0]), want_cqe.pop_front());
                on_the_way -= 1;
            }
            counted += sim.peek("count_valid");
            sim.clock();
            if want.is_empty() && want_cqe.is_empty() {
                assert_eq!(memory.bytes, bytes);
                assert_eq!(counted, memory.bad_bursts);
                assert_eq!(errors == 0, counted == 0);
                return;
            }
        }
        panic!("{} placements and {} entries are missing", want.len(), want_cqe.len());
    }

    #[test]
    fn every_byte_lands_at_its_address_and_no_other() {
        for seed in [1, 2, 3] {
            check(Rng::new("every_byte_lands", seed), BURST_BEATS, 0, [100, 100, 100]);
            check(Rng::new("every_byte_lands", seed), [2, 4, 64][seed as usize - 1], 0, [50, 70, 30]);
        }
    }

    #[test]
    fn a_bad_response_marks_its_placement_only() {
        for seed in [11, 12] {
            check(Rng::new("a_bad_response", seed), BURST_BEATS, 5, [100, 60, 100]);
        }
    }

    #[test]
    fn placements_are_released_in_order_after_all_their_responses() {
        let mut sim = DmaWrite::def(&Lib::new(), BURST_BEATS).sim();
        sim.reset(2);
        let mut rng = Rng::new("placements_are_released", 1);
        let mut place = Source::new(&sim, "place", &["iova", "len"]);
        let mut data = Source::new(&sim, "place_data", &["data", "keep", "last"]);
        let mut info = Source::new(&sim, "place_info", &INFO);
        // 40 beats at the start of a page are three bursts; then a placement without data.
        place.push(vec![word(0x1000), word(64 * 40)]);
        (0..40).for_each(|k| data.push(vec![word(k), word(u64::MAX), word((k == 39).into())]));
        info.push([0, 1, 64 * 40, 0, 0, 0, 0, 0, 0, 0].map(word).to_vec());
        info.push([0, 2, 0, 0, 0, 0, 0, 0, 0, 0].map(word).to_vec());
        ["axi_awready", "axi_wready", "placed_ready"].iter().for_each(|pin| sim.poke(pin, 1));
        let mut bursts = 0;
        let mut run = |sim: &mut Sim, cycles: u64, answer: bool| {
            let mut placed = vec![];
            for k in 0..cycles {
                for source in [&mut place, &mut data, &mut info] {
                    source.drive(sim, &mut rng);
                }
                sim.poke("axi_bid", ID_PAYLOAD);
                sim.poke("axi_bvalid", (answer && k == 0).into());
                bursts += sim.peek("axi_awvalid");
                for source in [&mut place, &mut data, &mut info] {
                    source.taken(sim);
                }
                if sim.peek("placed_valid") == 1 {
                    placed.push(sim.peek("placed_mseq"));
                }
                sim.clock();
            }
            (placed, bursts)
        };
        assert_eq!(run(&mut sim, 100, false).1, 3);
        assert!(run(&mut sim, 20, true).0.is_empty());
        assert!(run(&mut sim, 20, true).0.is_empty());
        assert_eq!(run(&mut sim, 20, true).0, vec![1, 2]);
    }

    #[test]
    fn aligned_writes_go_at_one_line_a_cycle() {
        let mut rng = Rng::new("aligned_writes", 1);
        let mut sim = DmaWrite::def(&Lib::new(), BURST_BEATS).sim();
        sim.reset(2);
        let mut place = Source::new(&sim, "place", &["iova", "len"]);
        let mut data = Source::new(&sim, "place_data", &["data", "keep", "last"]);
        let mut info = Source::new(&sim, "place_info", &INFO);
        for k in 0..10 {
            place.push(vec![word(4096 * k), word(4096)]);
            (0..64).for_each(|i| data.push(vec![word(i), word(u64::MAX), word((i == 63).into())]));
            info.push([0, k, 4096, 0, 0, 0, 0, 0, 0, 0].map(word).to_vec());
        }
        sim.poke("placed_ready", 1);
        let mut memory = Memory::default();
        let (mut first, mut last, mut lines) = (None, 0, 0);
        for cycle in 0..900u64 {
            for source in [&mut place, &mut data, &mut info] {
                source.drive(&mut sim, &mut rng);
            }
            memory.cycle(&mut sim, &mut rng, 100);
            for source in [&mut place, &mut data, &mut info] {
                source.taken(&mut sim);
            }
            if sim.peek("axi_wvalid") == 1 {
                first.get_or_insert(cycle);
                (last, lines) = (cycle, lines + 1);
            }
            sim.clock();
        }
        assert_eq!(lines, 640);
        assert_eq!(last - first.unwrap() + 1, lines, "there were gaps");
    }

    #[test]
    fn latencies_are_as_documented() {
        let mut sim = DmaWrite::def(&Lib::new(), BURST_BEATS).sim();
        sim.reset(2);
        for (pin, value) in [("place_len", 64), ("place_data_last", 1), ("place_info_payload_len", 64)] {
            sim.poke(pin, value);
        }
        sim.poke("axi_awready", 1);
        sim.poke("axi_wready", 1);
        assert_eq!(cycles_until(&mut sim, &["place_valid", "place_info_valid"], "axi_awvalid"), 3);
        cycles_until(&mut sim, &["place_data_valid"], "axi_wvalid");
        sim.clocks(5);
        sim.poke("axi_bid", ID_PAYLOAD);
        assert_eq!(cycles_until(&mut sim, &["axi_bvalid"], "placed_valid"), 4);
    }
}
