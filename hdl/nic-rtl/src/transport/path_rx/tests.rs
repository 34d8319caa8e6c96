//! path_rx against a plain model of a receiving path: verdicts, when an ACK comes, and what it says.

use super::*;
use crate::{
    prim::check::{words, Rng},
    transport::bench::{packed, Bench, Item},
    transport::replay,
};
use nic_spec::{
    num::{Epoch, Plane, Psn},
    wire::NakReason,
};
use std::collections::BTreeSet;

const MASK: u32 = 0xff_ffff;
const ACK_DELAY: u32 = 1 << 22;
const ACK_BYTES: u64 = 16384;

fn params() -> NicParams {
    NicParams { conns: 2, paths: 4, ..NicParams::default() }
}

fn bench(rng: Rng) -> Bench {
    let mut bench = Bench::new(&PathRx::def(&Lib::new(), &params()), rng);
    bench.sim.poke("cfg_ack_packets", 4);
    bench.sim.poke("cfg_ack_bytes", ACK_BYTES);
    bench.sim.poke("cfg_ack_delay_ticks", ACK_DELAY.into());
    bench.sim.poke("cfg_nak_interval_ticks", 0);
    for conn in 0..2u64 {
        bench.row("conn_read", conn, packed(&ConnContext::layout(), &[("stream_id", 0x500 + conn)]));
        bench.row("credit_read", conn, vec![0xffe0 + conn]);
    }
    bench
}

/// A receiving path, as the model sees it.
#[derive(Clone, Debug, Default)]
struct Path {
    is_open: bool,
    sport: u64,
    plane: u64,
    epoch: u64,
    cum: u32,
    beyond: BTreeSet<u32>,
    ce_cnt: u64,
    has_packet: bool,
    pkts: u64,
    bytes: u64,
    is_armed: bool,
    /// Fields of the ACK that describe the trigger.
    trigger: Vec<(&'static str, u64)>,
    trig_time: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Closed,
    New,
    Duplicate,
    Beyond,
}

impl Path {
    fn verdict(&self, pseq: u32) -> Verdict {
        let ahead = (pseq.wrapping_sub(self.cum) & MASK) as i32;
        let ahead = if ahead >= 1 << 23 { ahead - (1 << 24) } else { ahead };
        match ahead {
            _ if !self.is_open => Verdict::Closed,
            ..=0 => Verdict::Duplicate,
            1..=256 if self.beyond.contains(&pseq) => Verdict::Duplicate,
            1..=256 => Verdict::New,
            _ => Verdict::Beyond,
        }
    }

    /// Takes a packet in; true when an ACK is due now.
    fn commit(&mut self, e: &Item, now: u32) -> bool {
        let verdict = self.verdict(e.get("pseq") as u32);
        if matches!(verdict, Verdict::Closed | Verdict::Beyond) {
            return false;
        }
        let had_hole = !self.beyond.is_empty();
        if verdict == Verdict::New {
            self.beyond.insert(e.get("pseq") as u32);
            while self.beyond.remove(&((self.cum + 1) & MASK)) {
                self.cum = (self.cum + 1) & MASK;
            }
        }
        self.ce_cnt = (self.ce_cnt + e.get("ce")) & 0xffff;
        let is_first = !std::mem::replace(&mut self.has_packet, true);
        self.pkts += 1;
        self.bytes += e.get("len");
        self.trigger = vec![
            ("axth_trig_pseq", e.get("pseq")),
            ("axth_ts_echo", e.get("tx_ts")),
            ("axth_plane", e.get("plane")),
            ("axth_epoch", e.get("epoch")),
            ("axth_ce", e.get("ce")),
            ("axth_dup", u64::from(verdict == Verdict::Duplicate)),
            ("axth_rtxe", e.get("rtx")),
        ];
        self.trig_time = now;
        let is_due = verdict == Verdict::Duplicate
            || e.get("ce") == 1
            || e.get("ack_now") == 1
            || is_first
            || had_hole
            || !self.beyond.is_empty()
            || self.pkts >= 4
            || self.bytes >= ACK_BYTES;
        self.is_armed |= !is_due;
        is_due
    }

    /// The ACK's fields but time and hold.
    fn ack(&self, row: u64) -> Item {
        let mut map = vec![0u64; 4];
        for pseq in &self.beyond {
            // Most significant bit first.
            let i = 255 - (pseq.wrapping_sub(self.cum + 1) & MASK);
            map[(i / 64) as usize] |= 1 << (i % 64);
        }
        let fields = [
            ("conn", row / 4),
            ("path", row % 4),
            ("plane", self.plane),
            ("epoch", self.epoch),
            ("sport", self.sport),
            ("axth_bm", u64::from(!self.beyond.is_empty())),
            ("axth_hint", 0),
            ("axth_nak", 0),
            ("axth_credit", 1),
            ("axth_apath", row % 4),
            ("axth_syndrome", 0x1f),
            ("axth_cum_pseq", self.cum.into()),
            ("axth_ce_cnt", self.ce_cnt),
            ("axth_hint_seq", 0),
            ("axth_rate_hint", 0),
            ("axth_cstream", 0x500 + row / 4),
            ("axth_rq_limit", 0xffe0 + row / 4),
            ("nxth_reason", 0),
            ("nxth_detail", 0),
        ];
        let item = Item::of(&fields).with("sack_bitmap", &map);
        self.trigger.iter().fold(item, |item, (name, value)| item.with(name, &[*value]))
    }
}

/// An ACK without its times.
fn timeless(ack: &Item) -> Item {
    let mut ack = ack.clone();
    ack.0.remove("tx_ts");
    ack.0.remove("axth_hold");
    ack
}

struct Run {
    bench: Bench,
    paths: Vec<Path>,
}

impl Run {
    fn new(rng: Rng) -> Run {
        Run { bench: bench(rng), paths: vec![Path::default(); 8] }
    }

    /// Opens a path without waiting for what is under way.
    fn open_now(&mut self, row: usize) {
        self.push_open(row, true);
        self.bench.steps(4);
    }

    fn open(&mut self, row: usize, valid: bool) {
        self.push_open(row, valid);
        self.bench.settle(30);
    }

    fn push_open(&mut self, row: usize, valid: bool) {
        let rng = &mut self.bench.rng;
        let init = if rng.chance(70) { MASK - rng.below(100) as u32 } else { rng.below(1 << 24) as u32 };
        let (sport, plane, epoch) = (rng.below(1 << 16), rng.below(16), rng.below(16));
        let mut ctx = PathRxRow::zeroed();
        ctx.set_valid(valid).set_init_pseq(Psn::new(init)).set_sport(sport as u16);
        ctx.set_plane(Plane::new(plane as u8)).set_epoch(Epoch::new(epoch as u8));
        let item = Item::of(&[("table", Table::PathRx.code().into()), ("index", row as u64)]);
        self.bench.push("ctx", item.with("data", &words(&ctx.0)));
        let cum = init.wrapping_sub(1) & MASK;
        self.paths[row] = Path { is_open: valid, sport, plane, epoch, cum, ..Path::default() };
    }

    /// A packet near the window: mostly the next ones, some before, some far beyond.
    fn packet(&mut self, row: usize, kind: u64) -> Item {
        let rng = &mut self.bench.rng;
        let at = match rng.below(20) {
            0..=9 => 1,
            10..=14 => 1 + rng.below(8),
            15 => 1 + rng.below(256),
            16 => 250 + rng.below(20),
            17..=18 => (1u64 << 24) - rng.below(30),
            _ => rng.below(1 << 24),
        };
        let pseq = (self.paths[row].cum as u64 + at) & u64::from(MASK);
        Item::of(&[
            ("kind", kind),
            ("conn", row as u64 / 4),
            ("path", row as u64 % 4),
            ("pseq", pseq),
            ("epoch", rng.below(16)),
            ("plane", rng.below(16)),
            ("tx_ts", rng.below(1 << 32)),
            ("ce", u64::from(rng.chance(10))),
            ("ack_now", u64::from(rng.chance(10))),
            ("rtx", rng.below(2)),
            ("len", if rng.chance(5) { 8192 } else { rng.below(4097) }),
            ("nak_reason", 1 + rng.below(10)),
            ("nak_detail", rng.below(1 << 16)),
        ])
    }

    fn expect_ack(&mut self, row: usize, ack: &Item) {
        let path = &mut self.paths[row];
        assert_eq!(timeless(ack), path.ack(row as u64));
        let hold = u64::from((ack.get("tx_ts") as u32).wrapping_sub(path.trig_time)) / 4;
        assert!(ack.get("axth_hold").abs_diff(hold.min(0xffff)) < 40, "hold {} of {hold}", ack.get("axth_hold"));
        (path.pkts, path.bytes, path.is_armed) = (0, 0, false);
    }

    fn step(&mut self) {
        let row = self.bench.rng.below(8) as usize;
        self.bench.random_paces(20);
        match self.bench.rng.below(100) {
            0..=4 => {
                let valid = self.bench.rng.chance(90);
                self.open(row, valid);
            }
            5..=24 => {
                let packet = self.packet(row, PATH_RX_CHECK);
                self.bench.push("event", packet.clone());
                self.bench.settle(20);
                let verdict = self.paths[row].verdict(packet.get("pseq") as u32);
                let answer = self
                    .bench
                    .take("verdict")
                    .iter()
                    .map(|v| (v.get("accept"), v.get("duplicate"), v.get("out_of_window")))
                    .collect::<Vec<_>>();
                let is = |v| u64::from(verdict == v);
                assert_eq!(answer, [(is(Verdict::New), is(Verdict::Duplicate), is(Verdict::Beyond))]);
            }
            25..=89 => {
                let packet = self.packet(row, PATH_RX_COMMIT);
                self.bench.push("event", packet.clone());
                let now = self.bench.now;
                self.bench.settle(20);
                let is_due = self.paths[row].commit(&packet, now);
                let acks = self.bench.take("ack");
                assert_eq!(acks.len(), usize::from(is_due), "{packet:?} {:?}", self.paths[row]);
                if let Some(ack) = acks.first() {
                    self.expect_ack(row, ack);
                }
            }
            90..=94 => {
                let packet = self.packet(row, PATH_RX_NAK);
                self.bench.push("event", packet.clone());
                self.bench.settle(20);
                let acks = self.bench.take("ack");
                assert_eq!(acks.len(), usize::from(self.paths[row].is_open));
                if let Some(ack) = acks.first() {
                    let reason = NakReason::try_from(packet.get("nak_reason") as u8).expect("a reason");
                    let mut expected = self.paths[row].ack(row as u64);
                    for (name, value) in [
                        ("axth_nak", 1),
                        ("axth_syndrome", reason.syndrome().into()),
                        ("axth_trig_pseq", packet.get("pseq")),
                        ("axth_ts_echo", packet.get("tx_ts")),
                        ("axth_plane", packet.get("plane")),
                        ("axth_epoch", packet.get("epoch")),
                        ("axth_ce", packet.get("ce")),
                        ("axth_dup", 0),
                        ("axth_rtxe", packet.get("rtx")),
                        ("axth_hold", 0),
                        ("nxth_reason", packet.get("nak_reason")),
                        ("nxth_detail", packet.get("nak_detail")),
                    ] {
                        expected = expected.with(name, &[value]);
                    }
                    expected.0.remove("axth_hold");
                    assert_eq!(timeless(ack), expected);
                }
            }
            95 if self.bench.rng.chance(50) => {
                // A reset while packets are under way: every path is closed.
                for _ in 0..3 {
                    let packet = self.packet(row, PATH_RX_COMMIT);
                    self.bench.push("event", packet);
                }
                let cycles = self.bench.rng.below(20);
                self.bench.steps(cycles);
                self.bench.reset();
                self.paths.fill(Path::default());
                self.bench.settle(30);
                assert_eq!(self.bench.take("ack"), []);
                for row in 0..7 {
                    self.open(row, true);
                }
            }
            _ => {
                // Time passes: every path that owes an ACK sends it.
                self.bench.now = self.bench.now.wrapping_add(ACK_DELAY + 1000);
                self.bench.settle(40);
                for ack in self.bench.take("ack") {
                    let row = (ack.get("conn") * 4 + ack.get("path")) as usize;
                    assert!(self.paths[row].is_armed, "row {row} owes no ACK");
                    self.expect_ack(row, &ack);
                }
                assert!(self.paths.iter().all(|p| !p.is_armed), "every ACK owed is sent");
            }
        }
    }
}

#[test]
fn every_event_does_what_the_model_says() {
    let mut run = Run::new(Rng::new("path_rx::tests::every_event_does_what_the_model_says", 1));
    run.bench.now = u32::MAX - 20_000;
    for row in 0..7 {
        run.open(row, true);
    }
    for _ in 0..1100 {
        run.step();
    }
    let sent = [Counter::TxAckShort, Counter::TxAckLong, Counter::TxNak].map(|c| run.bench.counted(c));
    assert!(sent.iter().all(|n| *n > 20), "the stimuli reach every kind of ACK: {sent:?}");
    assert!(run.bench.sim.covered("joined") > 0);
}

/// Packets come without a pause; the bench has recorded it all. Each ACK tells a state that the path had, never an older
/// one than the ACK before it, and in the end the last one.
fn burst(rng: Rng, packets: usize) -> Bench {
    let mut run = Run::new(rng);
    run.bench.record(&PathRx::def(&Lib::new(), &params()));
    run.bench.sim.poke("cfg_ack_delay_ticks", 300);
    for row in 0..8 {
        run.open(row, true);
    }
    run.bench.random_paces(30);
    let mut states: Vec<Vec<Item>> = run.paths.iter().map(|_| vec![]).collect();
    for _ in 0..packets {
        let row = run.bench.rng.below(8) as usize;
        let packet = run.packet(row, PATH_RX_COMMIT);
        run.bench.push("event", packet.clone());
        run.paths[row].commit(&packet, 0);
        if run.paths[row].has_packet {
            states[row].push(run.paths[row].ack(row as u64));
        }
    }
    run.bench.settle(600);
    let mut seen = [0; 8];
    for ack in run.bench.take("ack") {
        let row = (ack.get("conn") * 4 + ack.get("path")) as usize;
        let ack = timeless(&ack);
        let at = states[row].iter().rposition(|s| *s == ack).unwrap_or_else(|| panic!("row {row} never was {ack:?}"));
        assert!(at + 1 >= seen[row], "row {row}: an ACK tells an older state than the one before");
        seen[row] = at + 1;
    }
    for (row, states) in states.iter().enumerate() {
        assert_eq!(seen[row], states.len(), "row {row}: the last state is acknowledged");
    }
    run.bench
}

#[test]
fn acks_built_under_load_tell_the_newest_state() {
    let mut rng = Rng::new("acks_built_under_load_tell_the_newest_state", 1);
    for _ in 0..3 {
        rng = burst(rng, 300).rng;
    }
}

#[test]
fn verilator_agrees_with_the_interpreter_on_a_burst() {
    let mut bench = burst(Rng::new("verilator_agrees_with_the_interpreter_on_a_burst", 5), 200);
    replay::agrees(&PathRx::def(&Lib::new(), &params()), &bench.take_trace());
}

#[test]
fn refusals_of_a_connection_keep_their_distance() {
    let mut run = Run::new(Rng::new("refusals_of_a_connection_keep_their_distance", 2));
    run.bench.sim.poke("cfg_nak_interval_ticks", 400);
    run.open(1, true);
    run.open(5, true);
    run.bench.take("ack");
    for _ in 0..300 {
        for row in [1, 5] {
            let packet = run.packet(row, PATH_RX_NAK);
            run.bench.push("event", packet);
        }
        run.bench.settle(10);
    }
    let acks = run.bench.take("ack");
    for conn in 0..2 {
        let times: Vec<u64> = acks.iter().filter(|a| a.get("conn") == conn).map(|a| a.get("tx_ts")).collect();
        assert!(times.len() > 5);
        let distances: Vec<u64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(distances.iter().all(|d| (400..540).contains(d)), "{distances:?}");
    }
}

#[test]
fn a_check_costs_three_cycles_and_a_commit_four() {
    for (kind, cycles) in [(PATH_RX_CHECK, 3), (PATH_RX_COMMIT, 4)] {
        let mut run = Run::new(Rng::new("a_check_costs_three_cycles", 3));
        run.open(0, true);
        let first = u64::from(run.paths[0].cum) + 1;
        let item = |k| Item::of(&[("kind", kind), ("pseq", (first + k) & u64::from(MASK))]);
        run.bench.push("event", item(0));
        run.bench.settle(20);
        (1..=3).for_each(|k| run.bench.push("event", item(k)));
        let start = run.bench.sim.cycles();
        while run.bench.waiting("event") > 0 {
            run.bench.step();
        }
        assert_eq!((run.bench.sim.cycles() - start - 1) / 2, cycles);
    }
}

#[test]
fn a_path_opened_again_and_again_stands_once_in_the_queue_of_acks() {
    let mut run = Run::new(Rng::new("a_path_opened_again_and_again_stands_once", 5));
    run.bench.pace("ack", 0);
    // The first two ACKs fill the output; from then on they wait in the queue, which has a place for each path.
    for _ in 0..30 {
        run.open_now(3);
        let packet = run.packet(3, PATH_RX_COMMIT).with("pseq", &[u64::from((run.paths[3].cum + 1) & MASK)]);
        run.bench.push("event", packet.clone());
        run.paths[3].commit(&packet, 0);
        run.bench.steps(12);
    }
    run.bench.pace("ack", 100);
    run.bench.settle(30);
    let acks = run.bench.take("ack");
    assert_eq!(timeless(&acks[acks.len() - 1]), run.paths[3].ack(3), "the last one tells of the path as it is");
    assert!(acks.len() <= 3, "{} ACKs", acks.len());
}

#[test]
fn the_count_of_marked_packets_wraps_at_16_bits() {
    let mut run = Run::new(Rng::new("the_count_of_marked_packets_wraps_at_16_bits", 4));
    run.open(2, true);
    let layout = PathRxState::layout();
    let (lo, bits) = layout.place("ce_cnt");
    let mut row = run.bench.sim.mem_row("paths", 2);
    (0..bits).for_each(|k| row[((lo + k) / 64) as usize] |= 1 << ((lo + k) % 64));
    run.bench.sim.set_mem_row("paths", 2, &row);
    run.paths[2].ce_cnt = 0xffff;
    for _ in 0..2 {
        let packet = run.packet(2, PATH_RX_COMMIT).with("ce", &[1]).with("pseq", &[run.paths[2].cum.into()]);
        run.bench.push("event", packet.clone());
        let now = run.bench.now;
        run.bench.settle(20);
        assert!(run.paths[2].commit(&packet, now));
        let acks = run.bench.take("ack");
        run.expect_ack(2, &acks[0]);
    }
    assert_eq!(run.paths[2].ce_cnt, 1, "duplicates count too");
}
