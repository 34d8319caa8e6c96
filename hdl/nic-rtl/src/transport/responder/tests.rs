//! responder against a plain model: what comes of each packet, from the answers that path_rx and the memory table gave.

use super::*;
use crate::{
    prim::check::{words, Rng},
    transport::bench::{packed, Bench, Item},
    transport::replay,
};
use nic_spec::{
    desc::ConnRow,
    num::{Msn, Pd, Pkey, Qpn, StreamId},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const MASK: u64 = 0xff_ffff;
const MSGS: u64 = 8;

fn params() -> NicParams {
    NicParams { conns: 2, paths: 4, msgs: MSGS as u32, ..NicParams::default() }
}

/// The two connections: 0 is open, 1 too until it is put into error.
fn conn_row(conn: u64) -> Vec<(&'static str, u64)> {
    vec![
        ("valid", 1),
        ("local_id", 0x10_0000 + conn),
        ("path_count", 3),
        ("pd", 0x77 + conn),
        ("pmtu_log2", 10 + conn),
        ("pkey", 0x8001),
        ("stream_id", 5 + conn),
    ]
}

fn field(row: &[(&str, u64)], name: &str) -> u64 {
    row.iter().find(|(n, _)| *n == name).expect("a field").1
}

/// A frame of the stimuli.
#[derive(Clone)]
struct Frame {
    meta: Item,
    beats: u64,
}

impl Frame {
    fn get(&self, name: &str) -> u64 {
        self.meta.get(name)
    }

    fn conn(&self) -> u64 {
        self.get("bth_dest_qpn") & 1
    }

    fn key(&self) -> (u64, u64, u64) {
        (self.conn(), self.get("pxth_path_id"), self.get("bth_pseq"))
    }
}

/// Makes frames: packets of messages, out of order and again, among them all kinds of bad ones.
struct Sender {
    /// Good packets by their name, to be sent again when they are refused or lost.
    good: BTreeMap<(u64, u64, u64), Frame>,
    next_mseq: [u64; 2],
    next_pseq: BTreeMap<(u64, u64), u64>,
    todo: Vec<Frame>,
    sent: VecDeque<Frame>,
}

impl Sender {
    /// Packets of a new message of connection `conn`.
    fn message(&mut self, rng: &mut Rng, conn: u64) {
        let pmtu = 1u64 << (10 + conn);
        let len = match rng.below(6) {
            0 => 0,
            1 => rng.below(64),
            2 => pmtu * (1 + rng.below(3)),
            _ => rng.below(4 * pmtu),
        };
        let mseq = self.next_mseq[conn as usize];
        self.next_mseq[conn as usize] = (mseq + 1) & MASK;
        let count = len.div_ceil(pmtu).max(1);
        let (imm, rsn, va) = (rng.below(2), (0xfff0 + rng.below(24)) & 0xffff, rng.next() >> 1);
        for k in 0..count {
            let payload_len = (len - k * pmtu).min(pmtu);
            let path = rng.below(3);
            let pseq = self.next_pseq.entry((conn, path)).or_insert(0xff_fff0);
            let meta = Item::of(&[
                ("drop", 0),
                ("bth_opcode", Opcode::Write.code().into()),
                ("bth_pkey", 0x8001),
                ("bth_dest_qpn", 0x10_0000 + conn),
                ("bth_ack_req", rng.below(2)),
                ("bth_rtx", rng.below(2)),
                ("bth_se", rng.below(2)),
                ("bth_pseq", *pseq),
                ("pxth_path_id", path),
                ("pxth_plane", rng.below(16)),
                ("pxth_epoch", rng.below(16)),
                ("pxth_stream_id", 5 + conn),
                ("pxth_tx_ts", rng.below(1 << 32)),
                ("mxth_first", u64::from(k == 0)),
                ("mxth_last", u64::from(k == count - 1)),
                ("mxth_imm", imm),
                ("mxth_se", rng.below(2)),
                ("mxth_fence", rng.below(2)),
                ("mxth_mseq", mseq),
                ("mxth_rsn", rsn | rng.below(256) << 16),
                ("reth_va", va.wrapping_add(k * pmtu)),
                ("reth_rkey", rng.below(1 << 32)),
                ("reth_dma_len", len),
                ("immdt_imm", rng.below(1 << 32)),
                ("ecn", [0, 2, 3][rng.below(3) as usize]),
                ("sport", rng.below(1 << 16)),
                ("payload_len", payload_len),
                ("payload_beats", payload_len.div_ceil(64)),
            ]);
            *pseq = (*pseq + 1) & MASK;
            let frame = Frame { meta, beats: payload_len.div_ceil(64) };
            self.good.insert(frame.key(), frame.clone());
            self.todo.push(frame);
        }
    }

    /// A packet was not accepted: it comes again, now with a receive.
    fn again(&mut self, key: (u64, u64, u64)) {
        if let Some(frame) = self.good.get(&key) {
            let mut frame = frame.clone();
            frame.meta = frame.meta.with("mxth_rsn", &[0xfff0]);
            self.todo.push(frame);
        }
    }

    fn ack(rng: &mut Rng, conn: u64) -> Frame {
        let bitmap: Vec<u64> = (0..4).map(|_| rng.next() & rng.next()).collect();
        let meta = Item::of(&[
            ("drop", 0),
            ("bth_opcode", Opcode::Ack.code().into()),
            ("bth_pkey", 0x8001),
            ("bth_dest_qpn", 0x10_0000 + conn),
            ("bth_pseq", 0x70_0000),
            ("pxth_path_id", rng.below(256)),
            ("axth_bm", rng.below(2)),
            ("axth_ce", rng.below(2)),
            ("axth_nak", u64::from(rng.chance(30))),
            ("axth_credit", rng.below(2)),
            ("axth_apath", rng.below(4)),
            ("axth_epoch", rng.below(16)),
            ("axth_cum_pseq", rng.below(1 << 24)),
            ("axth_trig_pseq", rng.below(1 << 24)),
            ("axth_ts_echo", rng.below(1 << 32)),
            ("axth_ce_cnt", rng.below(1 << 16)),
            ("nxth_reason", rng.below(12)),
            ("nxth_detail", rng.below(1 << 16)),
            ("mxth_mseq", rng.below(1 << 24)),
            ("payload_len", 0),
            ("payload_beats", 0),
            ("ecn", 0),
        ]);
        Frame { meta: meta.with("sack_bitmap", &bitmap), beats: 0 }
    }

    fn frame(&mut self, rng: &mut Rng) -> Frame {
        while self.todo.is_empty() || self.todo.len() < 12 && rng.chance(50) {
            let conn = rng.below(2);
            self.message(rng, conn);
        }
        let conn = rng.below(2);
        let mut frame = match rng.below(100) {
            0..=19 => Sender::ack(rng, conn),
            20..=34 if !self.sent.is_empty() => self.sent[rng.below(self.sent.len() as u64) as usize].clone(),
            _ => {
                let k = rng.below(self.todo.len().min(6) as u64) as usize;
                self.todo.remove(k)
            }
        };
        self.sent.push_back(frame.clone());
        if self.sent.len() > 10 {
            self.sent.pop_front();
        }
        // One thing wrong with some of them; the good one follows.
        if rng.chance(15) {
            self.again(frame.key());
            let (name, value) = match rng.below(17) {
                0 => ("drop", 1 + rng.below(20)),
                1 => ("bth_dest_qpn", (0x20_0000 | conn) & MASK),
                2 => ("bth_pkey", 0x8002),
                3 => ("bth_opcode", Opcode::Send.code().into()),
                13..=15 => ("reth_dma_len", 1),
                4 => ("pxth_path_id", [3, 200][rng.below(2) as usize]),
                5 => ("axth_apath", [3, 200][rng.below(2) as usize]),
                6 => ("pxth_stream_id", 9),
                7 => ("payload_len", 4096),
                8 => ("mxth_mseq", (self.next_mseq[frame.conn() as usize] + MSGS + rng.below(1000)) & MASK),
                9 => ("mxth_mseq", (self.next_mseq[frame.conn() as usize] + MASK - rng.below(40)) & MASK),
                10 => ("reth_dma_len", 0),
                11 => ("reth_dma_len", u64::from(u32::MAX)),
                _ => ("mxth_rsn", 0x7fff),
            };
            frame.meta = frame.meta.with(name, &[value]);
            if name == "payload_len" {
                frame.meta = frame.meta.with("payload_beats", &[64]);
                frame.beats = 64;
            }
        }
        frame
    }
}

/// What went into the block and what it answered to, in order.
#[derive(Default)]
struct Seen {
    frames: Vec<Frame>,
    verdicts: VecDeque<[u64; 3]>,
    memory: VecDeque<(u64, u64, u64)>,
    reports: VecDeque<Item>,
    lookups: VecDeque<Item>,
    acks: VecDeque<Item>,
    places: VecDeque<Item>,
    data: VecDeque<Item>,
    infos: VecDeque<Item>,
    counts: BTreeMap<u8, u64>,
}

fn beat(frame: usize, k: u64, of: u64) -> Item {
    Item::of(&[("keep", u64::MAX), ("last", u64::from(k + 1 == of))]).with("data", &[frame as u64, k])
}

/// Runs `count` frames through a new block.
fn run(rng: Rng, count: usize, record: bool) -> (Bench, Seen) {
    let def = Responder::def(&Lib::new(), &params());
    let mut bench = Bench::new(&def, rng);
    if record {
        bench.record(&def);
    }
    run_on(bench, count)
}

/// Runs `count` frames through the block, which has none yet.
fn run_on(mut bench: Bench, count: usize) -> (Bench, Seen) {
    bench.counts.clear();
    for conn in 0..2 {
        bench.row("conn_read", conn, packed(&ConnContext::layout(), &conn_row(conn)));
        bench.row("credit_read", conn, vec![(0xfffe + conn * 7) & 0xffff]);
        bench.row("msg_base", conn, vec![0xff_fffa + conn]);
    }
    bench.random_paces(40);
    let mut sender = Sender {
        good: BTreeMap::new(),
        next_mseq: [0xff_fffa, 0xff_fffb],
        next_pseq: BTreeMap::new(),
        todo: vec![],
        sent: VecDeque::new(),
    };
    let mut seen = Seen::default();
    let mut committed: BTreeSet<(u64, u64, u64)> = BTreeSet::new();
    // msg_rx: what is written but not answered by memory, and what it retires.
    let (mut written, mut busy, mut bases) = (VecDeque::new(), 0, [0xff_fffau64, 0xff_fffb]);
    let mut complete: [BTreeSet<u64>; 2] = Default::default();
    let mut idle = 0;
    while idle < 300 {
        if seen.frames.len() < count && bench.waiting("meta") < 3 {
            let frame = sender.frame(&mut bench.rng);
            bench.push("meta", frame.meta.clone());
            (0..frame.beats).for_each(|k| bench.push("payload", beat(seen.frames.len(), k, frame.beats)));
            seen.frames.push(frame);
        }
        bench.sim.poke("placed", 0);
        busy = if written.is_empty() || busy > 0 { u64::saturating_sub(busy, 1) } else { busy };
        if busy == 0 && !written.is_empty() && bench.rng.chance(20) {
            let info: Item = written.pop_front().expect("not empty");
            bench.sim.poke("placed", 1);
            busy = 4;
            let conn = info.get("conn") as usize;
            if info.get("complete") == 1 {
                complete[conn].insert(info.get("mseq"));
            }
            while complete[conn].remove(&bases[conn]) {
                bases[conn] = (bases[conn] + 1) & MASK;
            }
            bench.row("msg_base", conn as u64, vec![bases[conn]]);
        }
        bench.sim.poke("msgs_idle", u64::from(busy == 0));
        let moved = bench.step();
        idle = if moved || bench.waiting("meta") > 0 { 0 } else { idle + 1 };
        for event in bench.take("event") {
            let key = (event.get("conn"), event.get("path"), event.get("pseq"));
            if event.get("kind") == PATH_RX_CHECK {
                let luck = bench.rng.below(100);
                let verdict = match luck {
                    _ if committed.contains(&key) => [0, 1, 0],
                    0..=3 => [0, 0, 1],
                    4..=5 => [0, 0, 0],
                    _ => [1, 0, 0],
                };
                seen.verdicts.push_back(verdict);
                if verdict == [0, 0, 1] || verdict == [0, 0, 0] {
                    sender.again(key);
                }
                let names = ["accept", "duplicate", "out_of_window"];
                bench.push(
                    "verdict",
                    Item::of(&[(names[0], verdict[0]), (names[1], verdict[1]), (names[2], verdict[2])]),
                );
            } else {
                if event.get("kind") == PATH_RX_COMMIT {
                    committed.insert(key);
                } else {
                    sender.again(key);
                }
                seen.reports.push_back(event);
            }
        }
        for lookup in bench.take("mr_lookup") {
            let ok = u64::from(bench.rng.chance(90));
            let answer = (ok, if ok == 1 { 0 } else { 1 + bench.rng.below(4) }, bench.rng.next());
            seen.memory.push_back(answer);
            seen.lookups.push_back(lookup);
            bench.push("mr_result", Item::of(&[("ok", answer.0), ("reason", answer.1), ("iova", answer.2)]));
        }
        seen.acks.extend(bench.take("ack"));
        seen.places.extend(bench.take("place"));
        seen.data.extend(bench.take("place_data"));
        for info in bench.take("place_info") {
            written.push_back(info.clone());
            seen.infos.push_back(info);
        }
    }
    seen.counts = bench.counts.clone();
    (bench, seen)
}

/// Judges every frame again and checks all that came out.
fn check(mut seen: Seen) {
    let mut left: [BTreeMap<u64, u64>; 2] = Default::default();
    let mut bases = [0xff_fffau64, 0xff_fffb];
    let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
    let mut placed = BTreeSet::new();
    for (n, frame) in seen.frames.iter().enumerate() {
        let get = |name: &str| frame.get(name);
        let conn = frame.conn();
        let row = conn_row(conn);
        let mut add = |c: Counter, amount: u64| *counts.entry(c.code()).or_default() += amount;
        let is_ack = get("bth_opcode") == u64::from(Opcode::Ack.code());
        let path = if is_ack { get("axth_apath") } else { get("pxth_path_id") };
        if get("drop") == 0 && get("ecn") == 3 {
            add(Counter::RxCe, 1);
        }
        let drop = match () {
            _ if get("drop") != 0 => Counter::from_code(get("drop") as u8),
            _ if get("bth_dest_qpn") != field(&row, "local_id") => Some(Counter::RxUnknownConn),
            _ if get("bth_pkey") != 0x8001 => Some(Counter::RxBadPkey),
            _ if !is_ack && get("bth_opcode") != 0xe0 => Some(Counter::RxUnsupportedOpcode),
            _ if path >= 3 => Some(Counter::RxUnknownPath),
            _ => None,
        };
        if let Some(counter) = drop {
            add(counter, 1);
            continue;
        }
        if is_ack {
            add(Counter::RxAck, 1);
            add(Counter::RxNak, get("axth_nak"));
            let mut expected = Item::of(&[
                ("conn", conn),
                ("apath", path),
                ("epoch", get("axth_epoch")),
                ("cum", get("axth_cum_pseq")),
                ("trig", get("axth_trig_pseq")),
                ("ts_echo", get("axth_ts_echo")),
                ("flags", get("axth_bm") << 7 | get("axth_ce") << 6 | get("axth_nak") << 2 | get("axth_credit") << 1),
                ("ce_cnt", get("axth_ce_cnt")),
                ("nak_reason", get("axth_nak") * get("nxth_reason")),
                ("nak_detail", get("axth_nak") * get("nxth_detail")),
            ]);
            let map = frame.meta.words("sack_bitmap");
            let reversed: Vec<u64> = map.iter().rev().map(|w| w.reverse_bits() * get("axth_bm")).collect();
            expected = expected.with("sack", &reversed);
            assert_eq!(seen.acks.pop_front(), Some(expected), "frame {n}");
            continue;
        }
        // Path and memory are asked.
        let len = get("payload_len");
        let verdict = seen.verdicts.pop_front().expect("each WRITE is checked");
        let early = match () {
            _ if get("pxth_stream_id") != field(&row, "stream_id") => Some(NakReason::Stream),
            _ if len > 1 << field(&row, "pmtu_log2") => Some(NakReason::Mtu),
            _ => None,
        };
        let mut memory = (1, 0, 0);
        if early.is_none() && len > 0 {
            memory = seen.memory.pop_front().expect("memory is asked");
            let expected = Item::of(&[
                ("rkey", get("reth_rkey")),
                ("va", get("reth_va")),
                ("len", len),
                ("pd", field(&row, "pd")),
                ("access", 2),
            ]);
            assert_eq!(seen.lookups.pop_front(), Some(expected), "frame {n}");
        }
        let (mseq, side) = (get("mxth_mseq"), conn as usize);
        let away = mseq.wrapping_sub(bases[side]) & MASK;
        let missing = left[side].get(&mseq).copied();
        let room = (0xfffe + conn * 7).wrapping_sub(get("mxth_rsn")) & 0xffff;
        let refusal = match () {
            _ if early.is_some() => early,
            _ if memory.0 == 0 => NakReason::try_from(memory.1 as u8).ok(),
            _ if away >= 1 << 23 || missing == Some(0) => Some(NakReason::Stream),
            _ if away >= MSGS => Some(NakReason::NoResource),
            _ if len > missing.unwrap_or(get("reth_dma_len")) => Some(NakReason::Mtu),
            _ if get("mxth_imm") == 1 && !(1..1 << 15).contains(&room) => Some(NakReason::Rnr),
            _ => None,
        };
        let mut report = Item::of(&[
            ("kind", PATH_RX_COMMIT),
            ("conn", conn),
            ("path", path),
            ("pseq", get("bth_pseq")),
            ("epoch", get("pxth_epoch")),
            ("plane", get("pxth_plane")),
            ("tx_ts", get("pxth_tx_ts")),
            ("ce", u64::from(get("ecn") == 3)),
            ("ack_now", get("bth_ack_req") | get("mxth_last")),
            ("rtx", get("bth_rtx")),
            ("len", len),
            ("nak_reason", 0),
            ("nak_detail", 0),
        ]);
        match (verdict, refusal) {
            ([0, 0, 0], _) => add(Counter::RxUnknownPath, 1),
            ([0, 0, 1], _) => add(Counter::RxOutOfWindow, 1),
            ([0, 1, 0], _) => {
                add(Counter::RxDuplicate, 1);
                assert_eq!(seen.reports.pop_front(), Some(report), "frame {n} comes again");
            }
            (_, Some(reason)) => {
                add(Counter::of_nak(reason), 1);
                report = report.with("kind", &[PATH_RX_NAK]).with("nak_reason", &[reason.code().into()]);
                assert_eq!(seen.reports.pop_front(), Some(report), "frame {n} is refused: {reason}");
            }
            (_, None) => {
                assert!(placed.insert(frame.key()), "frame {n} is placed twice");
                let rest = missing.unwrap_or(get("reth_dma_len")) - len;
                left[side].insert(mseq, rest);
                while left[side].get(&bases[side]) == Some(&0) {
                    bases[side] = (bases[side] + 1) & MASK;
                }
                add(Counter::RxData, 1);
                add(Counter::RxDataBytes, len);
                assert_eq!(seen.reports.pop_front(), Some(report), "frame {n} is accepted");
                if len > 0 {
                    let expected = Item::of(&[("iova", memory.2), ("len", len)]);
                    assert_eq!(seen.places.pop_front(), Some(expected), "frame {n}");
                }
                for k in 0..frame.beats {
                    let shown = seen.data.pop_front().expect("a beat");
                    assert_eq!(
                        (shown.words("data")[..2].to_vec(), shown.get("last")),
                        (vec![n as u64, k], u64::from(k + 1 == frame.beats))
                    );
                }
                let flag = |name: &str, bit: u32| get(name) << bit;
                let expected = Item::of(&[
                    ("conn", conn),
                    ("mseq", mseq),
                    ("payload_len", len),
                    ("dma_len", get("reth_dma_len")),
                    (
                        "mflags",
                        flag("mxth_first", 7)
                            | flag("mxth_last", 6)
                            | flag("mxth_imm", 5)
                            | flag("mxth_se", 3)
                            | flag("mxth_fence", 2),
                    ),
                    ("imm", get("immdt_imm")),
                    ("rsn", get("mxth_rsn")),
                    ("se", get("bth_se")),
                    ("complete", u64::from(rest == 0)),
                    ("error", 0),
                ]);
                assert_eq!(seen.infos.pop_front(), Some(expected), "frame {n}");
            }
        }
    }
    let rest = [&seen.acks, &seen.places, &seen.data, &seen.infos, &seen.reports, &seen.lookups];
    assert!(rest.iter().all(|v| v.is_empty()), "nothing else comes out");
    counts.retain(|_, n| *n > 0);
    seen.counts.retain(|_, n| *n > 0);
    assert_eq!(seen.counts, counts);
}

#[test]
fn every_packet_is_judged_as_the_model_says() {
    let mut numbers = [0; 8];
    let mut rng = Rng::new("every_packet_is_judged_as_the_model_says", 1);
    for _ in 0..4 {
        let (bench, seen) = run(rng, 250, false);
        let reached = [
            Counter::RxUnknownPath,
            Counter::RxDuplicate,
            Counter::RxOutOfWindow,
            Counter::NakStream,
            Counter::NakMtu,
            Counter::NakRnr,
            Counter::NakRkey,
            Counter::RxData,
        ];
        numbers.iter_mut().zip(reached).for_each(|(n, c)| *n += bench.counted(c));
        assert!(bench.sim.covered("same_packet_is_being_placed") + bench.sim.covered("waits_for_messages") > 0);
        rng = bench.rng;
        check(seen);
    }
    assert!(numbers.iter().all(|n| *n > 0), "the stimuli reach every end: {numbers:?}");
}

#[test]
fn a_reset_in_mid_traffic_leaves_nothing_behind() {
    let (mut bench, _) = run(Rng::new("a_reset_in_mid_traffic_leaves_nothing_behind", 6), 60, false);
    for k in 0..4 {
        bench.push("meta", write_of(0, 0xff_fffa, k, 2048));
        (0..32).for_each(|i| bench.push("payload", beat(k as usize, i, 32)));
    }
    for _ in 0..30 {
        bench.step();
        serve(&mut bench);
    }
    bench.reset();
    // The same messages again, from their beginning.
    let (_, seen) = run_on(bench, 100);
    check(seen);
}

#[test]
fn verilator_agrees_with_the_interpreter() {
    let (mut bench, seen) = run(Rng::new("responder::tests::verilator_agrees_with_the_interpreter", 9), 60, true);
    check(seen);
    replay::agrees(&Responder::def(&Lib::new(), &params()), &bench.take_trace());
}

/// A bench whose path_rx accepts everything and whose memory is everywhere.
fn willing(p: &NicParams) -> Bench {
    let mut bench = Bench::new(&Responder::def(&Lib::new(), p), Rng::new("responder willing", 1));
    for conn in 0..2 {
        bench.row("conn_read", conn, packed(&ConnContext::layout(), &conn_row(conn)));
        bench.row("credit_read", conn, vec![0]);
        bench.row("msg_base", conn, vec![0]);
    }
    bench.sim.poke("msgs_idle", 1);
    bench
}

fn serve(bench: &mut Bench) -> Vec<Item> {
    let mut reports = vec![];
    for event in bench.take("event") {
        if event.get("kind") == PATH_RX_CHECK {
            bench.push("verdict", Item::of(&[("accept", 1)]));
        } else {
            reports.push(event);
        }
    }
    for _ in bench.take("mr_lookup") {
        bench.push("mr_result", Item::of(&[("ok", 1), ("iova", 0x1000)]));
    }
    reports
}

fn write_of(conn: u64, mseq: u64, pseq: u64, len: u64) -> Item {
    Item::of(&[
        ("bth_opcode", 0xe0),
        ("bth_pkey", 0x8001),
        ("bth_dest_qpn", 0x10_0000 + conn),
        ("bth_pseq", pseq),
        ("pxth_stream_id", 5 + conn),
        ("mxth_mseq", mseq),
        ("reth_dma_len", u64::from(u32::MAX)),
        ("payload_len", len),
        ("payload_beats", len.div_ceil(64)),
    ])
}

#[test]
fn large_packets_stream_without_a_gap_and_small_ones_take_eight_cycles() {
    // Connection 1 has a PMTU of 2 KiB.
    for (len, limit) in [(2048, 32), (64, 8)] {
        let mut bench = willing(&params());
        bench.settle(40);
        for k in 0..40 {
            bench.push("meta", write_of(1, 0, k, len));
            let beats = len.div_ceil(64);
            (0..beats).for_each(|i| bench.push("payload", beat(k as usize, i, beats)));
        }
        let mut times = vec![];
        while times.len() < 40 {
            bench.step();
            times.extend(serve(&mut bench).iter().map(|_| bench.sim.cycles()));
        }
        let cycles = (times[39] - times[19]) / 20;
        assert_eq!(cycles, limit, "{len} bytes");
    }
}

#[test]
fn a_written_context_forgets_the_messages_of_its_connection_only() {
    let mut bench = willing(&params());
    bench.settle(40);
    let complete = |bench: &mut Bench, conn: u64, len: u64| {
        bench.push("meta", write_of(conn, 3, 0, len).with("reth_dma_len", &[1000]));
        (0..len.div_ceil(64)).for_each(|i| bench.push("payload", beat(0, i, len.div_ceil(64))));
        for _ in 0..60 {
            bench.step();
            serve(bench);
        }
        bench.take("place_info").iter().map(|i| i.get("complete")).collect::<Vec<_>>()
    };
    assert_eq!((complete(&mut bench, 0, 400), complete(&mut bench, 1, 400)), (vec![0], vec![0]));
    let mut row = ConnRow::zeroed();
    row.set_valid(true).set_local_id(Qpn::new(0x10_0000)).set_pd(Pd::new(0x77)).set_pkey(Pkey::new(0x8001));
    row.set_stream_id(StreamId::new(5)).set_init_msn(Msn::new(0));
    let item = Item::of(&[("table", Table::Conn.code().into()), ("index", 0)]).with("data", &words(&row.0));
    bench.push("ctx", item);
    bench.settle(20);
    // Of connection 0 the first 400 bytes are forgotten, so 600 do not complete it.
    assert_eq!((complete(&mut bench, 0, 600), complete(&mut bench, 1, 600)), (vec![0], vec![1]));
}

#[test]
fn a_failed_connection_takes_nothing() {
    let mut bench = willing(&params());
    bench.sim.poke("conn_error", 2);
    bench.settle(40);
    for conn in 0..2 {
        bench.push("meta", write_of(conn, 0, 0, 64));
        bench.push("payload", beat(0, 0, 1));
        let ack = [("bth_opcode", 0xf0), ("bth_pkey", 0x8001), ("bth_dest_qpn", 0x10_0000 + conn)];
        bench.push("meta", Item::of(&ack));
    }
    let mut reports = vec![];
    for _ in 0..80 {
        bench.step();
        reports.extend(serve(&mut bench));
    }
    assert_eq!((reports.len(), reports[0].get("conn")), (1, 0));
    assert_eq!((bench.take("ack").len(), bench.take("place").len()), (1, 1));
    assert_eq!(bench.counted(Counter::RxConnError), 2);
}
