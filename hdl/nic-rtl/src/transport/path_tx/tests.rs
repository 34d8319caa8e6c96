//! path_tx against a plain model of a path, event by event, and in a loop with a lossy network.

use super::*;
use crate::{
    prim::check::{words, Rng},
    transport::bench::{packed, Bench, Item},
    transport::replay,
};
use nic_spec::num::{Epoch, Plane, Psn};
use std::collections::BTreeMap;

const MASK: u32 = 0xff_ffff;

fn params() -> NicParams {
    NicParams { conns: 2, paths: 4, window_pkts: 16, ..NicParams::default() }
}

fn open_row(row: u32, valid: bool, init: u32, sport: u16, plane: u8, epoch: u8) -> Item {
    let mut ctx = PathTxRow::zeroed();
    ctx.set_valid(valid).set_init_pseq(Psn::new(init)).set_sport(sport);
    ctx.set_plane(Plane::new(plane)).set_epoch(Epoch::new(epoch));
    Item::of(&[("table", Table::PathTx.code().into()), ("index", row.into())]).with("data", &words(&ctx.0))
}

fn bench(p: &NicParams, rng: Rng) -> Bench {
    let mut bench = Bench::new(&PathTx::def(&Lib::new(), p), rng);
    for (port, value) in [("cfg_rto_ticks", 1 << 24), ("cfg_retry_limit", 3), ("cfg_rnr_ticks", 1 << 22)] {
        bench.sim.poke(port, value);
    }
    bench
}

/// A packet in flight, as the model sees it.
#[derive(Clone, Debug)]
struct Sent {
    tx_ts: u32,
    slot: u64,
    desc: Vec<u64>,
    is_acked: bool,
    is_pending: bool,
}

/// A path, as the model sees it.
#[derive(Clone, Debug, Default)]
struct Path {
    is_open: bool,
    sport: u16,
    plane: u8,
    epoch: u8,
    una: u32,
    /// Outstanding packets from `una` on.
    sent: Vec<Sent>,
    deadline: Option<u32>,
    timeout: u32,
    retries: u32,
    refused: Option<u32>,
    /// Peer: received packets, by distance from the first PSEQ.
    init: u32,
    received: Vec<bool>,
}

impl Path {
    fn nxt(&self) -> u32 {
        (self.una + self.sent.len() as u32) & MASK
    }

    /// cum, bitmap words of what the peer received.
    fn peer_state(&self) -> (u32, Vec<u64>) {
        let cum = self.received.iter().take_while(|r| **r).count();
        let mut map = vec![0u64; 4];
        for (i, _) in self.received[cum..].iter().enumerate().filter(|(_, r)| **r) {
            map[i / 64] |= 1 << (i % 64);
        }
        ((self.init + cum as u32).wrapping_sub(1) & MASK, map)
    }
}

struct Model {
    p: NicParams,
    paths: Vec<Path>,
    failed: Vec<bool>,
    rto: u32,
    retry_limit: u32,
    rnr: u32,
}

/// What an event makes the block do.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    acked: Vec<(u64, u64)>,
    error: Option<(u64, u64)>,
    is_bad: bool,
}

impl Model {
    fn new(p: NicParams) -> Model {
        let paths = vec![Path::default(); p.rows() as usize];
        Model { p, paths, failed: vec![false; p.conns as usize], rto: 1 << 24, retry_limit: 3, rnr: 1 << 22 }
    }

    fn conn(&self, row: usize) -> usize {
        row / self.p.paths as usize
    }

    fn ack(&mut self, row: usize, ack: &Item, now: u32) -> Outcome {
        let conn = self.conn(row) as u64;
        let (failed, w) = (self.failed[conn as usize], self.p.window_pkts);
        let path = &mut self.paths[row];
        let mut out = Outcome::default();
        if !path.is_open || failed {
            return out;
        }
        let (cum, sack) = (ack.get("cum") as u32, ack.words("sack"));
        let nxt = path.nxt();
        // Distance of a PSEQ from snd_una as a signed number.
        let signed = |pseq: u32| ((pseq.wrapping_sub(path.una) << 8) as i32) >> 8;
        let told = |i: u32| sack[(i / 64) as usize] >> (i % 64) & 1 == 1;
        let acked_pseqs: Vec<i32> =
            (0..256).filter(|i| told(*i)).map(|i| signed(cum.wrapping_add(1 + i) & MASK)).collect();
        let ahead = signed(cum) + 1;
        let count = path.sent.len() as i32;
        if ahead > count || ahead < -256 || acked_pseqs.iter().any(|k| *k >= count) {
            out.is_bad = true;
            return out;
        }
        assert!(count <= w as i32 && nxt == (path.una + count as u32) & MASK);
        let now_acked = |k: i32| k < ahead || acked_pseqs.contains(&k);
        for (k, s) in path.sent.iter_mut().enumerate() {
            if now_acked(k as i32) && !s.is_acked {
                s.is_acked = true;
                s.is_pending = false;
                out.acked.push((conn, s.slot));
            }
        }
        let highest = path.sent.iter().rposition(|s| s.is_acked).unwrap_or(0);
        let (epoch, una, refused) = (u64::from(path.epoch), path.una, path.refused);
        for (k, s) in path.sent[..highest].iter_mut().enumerate() {
            let is_later = (ack.get("ts_echo") as u32).wrapping_sub(s.tx_ts) as i32 > 0;
            let is_refused = refused == Some((una + k as u32) & MASK);
            if !s.is_acked && is_later && ack.get("epoch") == epoch && !is_refused {
                s.is_pending = true;
            }
        }
        let trig = ack.get("trig") as u32;
        let trig_at = trig.wrapping_sub(path.una) & MASK;
        let is_out = path.sent.get(trig_at as usize).is_some_and(|s| !s.is_acked);
        if path.refused.is_some_and(|r| path.sent.get((r.wrapping_sub(una) & MASK) as usize).is_none_or(|s| s.is_acked))
        {
            path.refused = None;
        }
        let moved = path.sent.iter().take_while(|s| s.is_acked).count();
        path.sent.drain(..moved);
        path.una = (path.una + moved as u32) & MASK;
        if !out.acked.is_empty() {
            (path.retries, path.timeout) = (0, self.rto);
            if path.refused.is_none() {
                path.deadline = Some(now.wrapping_add(self.rto));
            }
        }
        match ack.get("nak_reason") {
            1..=4 if is_out => out.error = Some((conn, Status::RemAccess.code().into())),
            6..=8 if is_out => out.error = Some((conn, Status::RemInvReq.code().into())),
            5 | 9 if is_out => {
                (path.retries, path.timeout, path.refused) = (0, self.rto, Some(trig));
                path.deadline = Some(now.wrapping_add(self.rnr));
            }
            _ => {}
        }
        if path.sent.is_empty() {
            path.deadline = None;
        }
        out
    }
}

/// One test run: the block, the model, and what moves between them.
struct Run {
    bench: Bench,
    model: Model,
    /// Slots given to packets, so that each acknowledgement can be told.
    next_slot: u64,
    old_acks: Vec<(usize, Item)>,
    data: u64,
    gap: u64,
    by_timer: u64,
    timeouts: u64,
    bad: u64,
    unknown: u64,
}

impl Run {
    fn new(rng: Rng) -> Run {
        let p = params();
        let bench = bench(&p, rng);
        let model = Model::new(p);
        Run {
            bench,
            model,
            next_slot: 0,
            old_acks: vec![],
            data: 0,
            gap: 0,
            by_timer: 0,
            timeouts: 0,
            bad: 0,
            unknown: 0,
        }
    }

    fn any_row(&mut self) -> usize {
        self.bench.rng.below(u64::from(self.model.p.rows())) as usize
    }

    fn open(&mut self, row: usize, valid: bool) {
        let rng = &mut self.bench.rng;
        let init = if rng.chance(70) { MASK - rng.below(40) as u32 } else { rng.below(1 << 24) as u32 };
        let (sport, plane, epoch) = (rng.next() as u16, rng.below(16) as u8, rng.below(16) as u8);
        self.bench.push("ctx", open_row(row as u32, valid, init, sport, plane, epoch));
        self.model.paths[row] =
            Path { is_open: valid, sport, plane, epoch, una: init, init, timeout: 1 << 24, ..Path::default() };
        self.old_acks.retain(|(r, _)| *r != row);
        self.settle();
    }

    fn settle(&mut self) {
        self.bench.settle(60);
        self.check_open();
    }

    /// A reset while packets and an ACK are under way: every path is closed, nothing of before shows.
    fn reset(&mut self) {
        let row = self.any_row();
        let ack = self.honest_ack(row, 0);
        self.bench.push("ack", ack);
        let request = Item::of(&[("conn", row as u64 / 4), ("path", row as u64 % 4)]).with("desc", &[0]);
        (0..3).for_each(|_| self.bench.push("alloc", request.clone()));
        let cycles = self.bench.rng.below(20);
        self.bench.steps(cycles);
        self.bench.reset();
        self.model.paths.fill(Path::default());
        self.old_acks.clear();
        self.settle();
        let (data, gap, bad, unknown) = (
            self.bench.counted(Counter::TxData),
            self.bench.counted(Counter::TxRtxGap),
            self.bench.counted(Counter::RxBadAck),
            self.bench.counted(Counter::RxUnknownPath),
        );
        (self.data, self.gap, self.bad, self.unknown) = (data, gap, bad, unknown);
    }

    fn check_open(&mut self) {
        let shown = self.bench.sim.peek("path_open");
        for (k, path) in self.model.paths.iter().enumerate() {
            let expected = path.is_open && path.sent.len() < self.model.p.window_pkts as usize;
            assert_eq!(shown >> k & 1 == 1, expected, "path_open of row {k}");
        }
    }

    fn alloc(&mut self, row: usize, n: usize) {
        let layout = PacketDesc::layout();
        let (conn, path) = (row / 4, row % 4);
        let room = self.model.p.window_pkts as usize - self.model.paths[row].sent.len();
        let works = self.model.paths[row].is_open && !self.model.failed[conn];
        // More than fit would wait for ever.
        let n = if works { n.min(room) } else { n };
        let mut expected = vec![];
        for _ in 0..n {
            let rng = &mut self.bench.rng;
            let (slot, len) = (self.next_slot % 64, rng.below(8193));
            self.next_slot += 1;
            let desc = packed(
                &layout,
                &[("iova", rng.next()), ("payload_len", len), ("remote_va", rng.next()), ("msg_slot", slot)],
            );
            let (a, e) = (rng.below(2), rng.below(2));
            let request = Item::of(&[("conn", conn as u64), ("path", path as u64), ("ack_req", a), ("eob", e)]);
            self.bench.push("alloc", request.with("desc", &desc));
            expected.push((a, e, slot, desc));
        }
        self.settle_without_check();
        let sent = self.bench.take("tx");
        let state = &mut self.model.paths[row];
        if !works {
            assert_eq!(sent, []);
            return;
        }
        assert_eq!(sent.len(), n);
        for (packet, (a, e, slot, desc)) in sent.iter().zip(expected) {
            let fills = state.sent.len() + 1 == self.model.p.window_pkts as usize;
            let header =
                ["conn", "path", "pseq", "sport", "plane", "epoch", "rtx", "ack_req", "eob"].map(|f| packet.get(f));
            let expected_header = [
                conn as u64,
                path as u64,
                state.nxt().into(),
                state.sport.into(),
                state.plane.into(),
                state.epoch.into(),
                0,
                a | u64::from(fills),
                e,
            ];
            assert_eq!(header, expected_header);
            assert_eq!(packet.words("desc"), desc);
            let tx_ts = packet.get("tx_ts") as u32;
            if state.sent.is_empty() {
                (state.deadline, state.timeout) = (Some(tx_ts.wrapping_add(self.model.rto)), self.model.rto);
            }
            state.sent.push(Sent { tx_ts, slot, desc, is_acked: false, is_pending: false });
            state.received.push(false);
            self.data += 1;
        }
        self.check_open();
    }

    fn settle_without_check(&mut self) {
        self.bench.settle(60);
    }

    /// Takes the retransmissions and checks that they are those the model has pending, in order within each path.
    fn expect_retransmissions(&mut self, by_timer: bool) {
        let mut got: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
        for packet in self.bench.take("tx") {
            got.entry((packet.get("conn") * 4 + packet.get("path")) as usize).or_default().push(packet);
        }
        for row in 0..self.model.paths.len() {
            let path = &mut self.model.paths[row];
            let mut packets = got.remove(&row).unwrap_or_default().into_iter();
            let una = path.una;
            for (k, s) in path.sent.iter_mut().enumerate().filter(|(_, s)| s.is_pending) {
                let packet = packets.next().unwrap_or_else(|| panic!("row {row}: packet {k} is not sent again"));
                assert_eq!(packet.get("pseq"), u64::from((una + k as u32) & MASK), "row {row}");
                assert_eq!((packet.get("rtx"), packet.get("ack_req"), packet.words("desc")), (1, 1, &s.desc[..]));
                let now_ts = packet.get("tx_ts") as u32;
                assert!(now_ts.wrapping_sub(s.tx_ts) as i32 > 0, "a retransmission has a later time");
                (s.tx_ts, s.is_pending) = (now_ts, false);
                *(if by_timer { &mut self.by_timer } else { &mut self.gap }) += 1;
            }
            assert_eq!(packets.next(), None, "row {row}: a packet that is not lost is sent again");
        }
        assert!(got.is_empty());
    }

    fn ack(&mut self, row: usize, item: Item) {
        self.bench.push("ack", item.clone());
        self.bench.settle(80);
        let now = self.bench.now;
        let out = self.model.ack(row, &item, now);
        let acked: Vec<_> = self.bench.take("acked").iter().map(|i| (i.get("conn"), i.get("msg_slot"))).collect();
        assert_eq!(acked, out.acked, "{item:?}");
        let error = self.bench.take("error").first().map(|i| (i.get("conn"), i.get("status")));
        assert_eq!(error, out.error, "{item:?}");
        self.bad += u64::from(out.is_bad);
        self.unknown += u64::from(!self.model.paths[row].is_open);
        self.expect_retransmissions(false);
        if let Some((conn, _)) = error {
            self.fail(conn as usize);
        }
        self.check_open();
    }

    fn fail(&mut self, conn: usize) {
        self.model.failed[conn] = true;
        self.show_failures();
    }

    fn show_failures(&mut self) {
        let bits = self.model.failed.iter().enumerate().fold(0, |v, (k, f)| v | u64::from(*f) << k);
        self.bench.sim.poke("conn_error", bits);
    }

    /// Opens a failed connection again, with its paths closed.
    fn reopen(&mut self, row: usize) {
        let conn = self.model.conn(row);
        for row in conn * 4..conn * 4 + 4 {
            self.open(row, false);
        }
        self.model.failed[conn] = false;
        self.show_failures();
        for row in conn * 4..conn * 4 + 3 {
            self.open(row, true);
        }
    }

    /// An ACK that the peer could send now: some more packets have arrived, the trigger is one of them.
    fn honest_ack(&mut self, row: usize, nak: u64) -> Item {
        let rng = &mut self.bench.rng;
        let path = &mut self.model.paths[row];
        let base = (path.una.wrapping_sub(path.init) & MASK) as usize;
        let mut trigger = None;
        for (k, s) in path.sent.iter().enumerate().filter(|_| nak == 0) {
            if rng.chance(50) {
                path.received[base + k] = true;
                trigger = trigger.max(Some((s.tx_ts, k)));
            }
        }
        if trigger.is_none() && !path.sent.is_empty() {
            let k = rng.below(path.sent.len() as u64) as usize;
            trigger = Some((path.sent[k].tx_ts, k));
        }
        let (ts, k) = trigger.unwrap_or((rng.next() as u32, 0));
        let (cum, map) = path.peer_state();
        let epoch = if rng.chance(85) { path.epoch } else { (path.epoch + 1) % 16 };
        let item = Item::of(&[
            ("conn", row as u64 / 4),
            ("apath", row as u64 % 4),
            ("epoch", epoch.into()),
            ("cum", cum.into()),
            ("trig", u64::from((path.una + k as u32) & MASK)),
            ("ts_echo", ts.into()),
            ("flags", rng.below(256)),
            ("ce_cnt", rng.below(1 << 16)),
            ("nak_reason", nak),
            ("nak_detail", rng.below(1 << 16)),
        ]);
        item.with("sack", &map)
    }

    /// Lets time pass until at least one path's timer must have run out.
    fn expire(&mut self) {
        let mut deadlines: Vec<u32> = self.model.paths.iter().filter_map(|p| p.deadline).collect();
        let now = self.bench.now;
        deadlines.sort_by_key(|d| d.wrapping_sub(now));
        let Some(mut until) = deadlines.first().copied() else { return };
        for d in deadlines {
            if d.wrapping_sub(until) < 5000 {
                until = d;
            }
        }
        until = until.wrapping_add(600);
        self.bench.now = until;
        self.bench.settle(80);
        let mut errors: Vec<u64> = vec![];
        for error in self.bench.take("error") {
            assert_eq!(error.get("status"), u64::from(Status::RetryExc.code()));
            errors.push(error.get("conn"));
        }
        let was_failed = self.model.failed.clone();
        for row in 0..self.model.paths.len() {
            let conn = self.model.conn(row);
            let failed = was_failed[conn];
            let path = &mut self.model.paths[row];
            let is_due = path.deadline.is_some_and(|d| until.wrapping_sub(d) as i32 >= 0);
            if !is_due || failed {
                continue;
            }
            if let Some(refused) = path.refused.take() {
                let at = refused.wrapping_sub(path.una) & MASK;
                path.sent[at as usize].is_pending = true;
                path.timeout = self.model.rto;
            } else if path.retries >= self.model.retry_limit {
                path.deadline = None;
                self.timeouts += 1;
                let at = errors.iter().position(|c| *c == conn as u64).expect("an error for each path that gives up");
                errors.swap_remove(at);
                self.fail(conn);
                continue;
            } else {
                path.retries += 1;
                path.timeout = (path.timeout * 2).min(timeout_max(&self.model.p) as u32);
                path.sent[0].is_pending = true;
                self.timeouts += 1;
            }
            path.deadline = Some(until.wrapping_add(path.timeout));
        }
        assert!(errors.is_empty(), "only paths that give up fail their connection");
        self.expect_retransmissions(true);
    }

    fn check_counts(&self) {
        let b = &self.bench;
        let counted = [
            Counter::TxData,
            Counter::TxRtxGap,
            Counter::TxRtxRto,
            Counter::PathRto,
            Counter::RxBadAck,
            Counter::RxUnknownPath,
        ]
        .map(|c| b.counted(c));
        assert_eq!(counted, [self.data, self.gap, self.by_timer, self.timeouts, self.bad, self.unknown]);
    }
}

#[test]
fn every_event_does_what_the_model_says() {
    let mut run = Run::new(Rng::new("every_event_does_what_the_model_says", 1));
    run.bench.now = u32::MAX - 20_000;
    let mut failures = 0;
    for _ in 0..700 {
        run.bench.random_paces(20);
        let row = run.any_row();
        let is_live = run.model.paths[row].is_open && !run.model.failed[run.model.conn(row)];
        match run.bench.rng.below(100) {
            0..=5 => run.open(row, true),
            6 => run.open(row, false),
            7..=16 if run.model.failed[run.model.conn(row)] => {
                failures += 1;
                run.reopen(row);
            }
            7..=16 if !is_live => run.open(row, true),
            13..=50 => {
                let n = 1 + run.bench.rng.below(6) as usize;
                run.alloc(row, n);
            }
            51..=80 => {
                let ack = run.honest_ack(row, 0);
                if run.model.paths[row].is_open {
                    run.old_acks.push((row, ack.clone()));
                }
                run.ack(row, ack);
            }
            81..=88 if !run.old_acks.is_empty() => {
                let k = run.bench.rng.below(run.old_acks.len() as u64) as usize;
                let (row, ack) = run.old_acks[k].clone();
                run.ack(row, ack);
            }
            89..=90 => {
                // Packets that were never sent.
                let ack = run.honest_ack(row, 0);
                let path = &run.model.paths[row];
                let beyond = (path.nxt() + run.bench.rng.below(300) as u32) & MASK;
                let ack = Item(ack.0).with("cum", &[beyond.into()]);
                run.ack(row, ack);
            }
            91..=95 => {
                let reason = [1, 2, 3, 4, 5, 5, 5, 5, 6, 7, 8, 8, 9, 9, 10, 11][run.bench.rng.below(16) as usize];
                let ack = run.honest_ack(row, reason);
                run.ack(row, ack);
            }
            96..=98 => run.expire(),
            99 if run.bench.rng.chance(20) => run.reset(),
            _ => {}
        }
    }
    run.check_counts();
    let reached = [failures, run.gap, run.by_timer, run.timeouts, run.bad, run.unknown];
    assert!(reached.iter().all(|n| *n >= 1), "the stimuli reach every event: {reached:?}");
}

#[test]
fn the_timeout_doubles_up_to_eight_seconds() {
    let p = params();
    let mut bench = bench(&p, Rng::new("the_timeout_doubles_up_to_eight_seconds", 4));
    let first = 1u32 << 28;
    bench.sim.poke("cfg_rto_ticks", first.into());
    bench.sim.poke("cfg_retry_limit", 15);
    bench.now = u32::MAX - 5;
    bench.push("ctx", open_row(0, true, 7, 0xc000, 0, 0));
    bench.settle(20);
    bench.push("alloc", Item::of(&[("conn", 0), ("path", 0)]).with("desc", &[0]));
    bench.settle(20);
    let mut last = bench.take("tx")[0].get("tx_ts") as u32;
    let cap = 2_000_000_000;
    for timeout in [first, 2 * first, 4 * first, cap, cap, cap] {
        bench.now = last.wrapping_add(timeout - 100);
        bench.settle(40);
        assert_eq!(bench.take("tx"), [], "not before {timeout} ticks");
        bench.now = last.wrapping_add(timeout);
        bench.settle(40);
        let again = bench.take("tx");
        assert_eq!(again.len(), 1, "after {timeout} ticks");
        last = again[0].get("tx_ts") as u32;
    }
}

/// A peer and the network to it: loses packets and ACKs, keeps the order of each path.
struct Network {
    cum: Vec<u32>,
    beyond: Vec<Vec<u32>>,
}

impl Network {
    fn receive(&mut self, row: usize, pseq: u32) {
        let after = |a: u32, b: u32| (a.wrapping_sub(b) & MASK) < 1 << 23;
        if after(self.cum[row], pseq) {
            return;
        }
        if !self.beyond[row].contains(&pseq) {
            self.beyond[row].push(pseq);
        }
        while let Some(k) = self.beyond[row].iter().position(|x| *x == (self.cum[row] + 1) & MASK) {
            self.beyond[row].swap_remove(k);
            self.cum[row] = (self.cum[row] + 1) & MASK;
        }
    }

    fn ack(&self, row: usize, trig: &Item) -> Item {
        let mut map = vec![0u64; 4];
        for pseq in &self.beyond[row] {
            let i = pseq.wrapping_sub(self.cum[row] + 1) & MASK;
            map[(i / 64) as usize] |= 1 << (i % 64);
        }
        Item::of(&[
            ("conn", trig.get("conn")),
            ("apath", trig.get("path")),
            ("epoch", trig.get("epoch")),
            ("cum", self.cum[row].into()),
            ("trig", trig.get("pseq")),
            ("ts_echo", trig.get("tx_ts")),
        ])
        .with("sack", &map)
    }
}

/// Sends `total` packets on random paths through a network that loses `loss` percent each way; gives the bench.
fn lossy_loop(rng: Rng, p: &NicParams, total: usize, loss: u64, record: bool) -> (Bench, usize) {
    let (def, paths) = (PathTx::def(&Lib::new(), p), p.paths as usize);
    let mut bench = Bench::new(&def, rng);
    for (port, value) in [("cfg_rto_ticks", 600), ("cfg_retry_limit", 15), ("cfg_rnr_ticks", 3000)] {
        bench.sim.poke(port, value);
    }
    if record {
        bench.record(&def);
    }
    bench.now = u32::MAX - 10_000;
    bench.random_paces(40);
    let rows = p.rows() as usize;
    let mut net = Network { cum: vec![0; rows], beyond: vec![vec![]; rows] };
    let mut first: Vec<u32> = vec![];
    for row in 0..rows {
        let init = MASK - bench.rng.below(60) as u32;
        first.push(init);
        net.cum[row] = init.wrapping_sub(1) & MASK;
        bench.push("ctx", open_row(row as u32, true, init, 0xc000, 0, 3));
    }
    bench.settle(20);
    let layout = PacketDesc::layout();
    // A slot of a connection stands for one packet at a time, so an acknowledgement names its packet.
    let mut slots: Vec<Vec<Option<usize>>> = vec![vec![None; 64]; p.conns as usize];
    let mut acked = vec![0usize; total];
    let mut todo: Vec<usize> = (0..total).collect();
    // Where each packet went, and which packet each place of a path holds.
    let mut places = vec![(0, 0); total];
    let mut sent: Vec<Vec<usize>> = vec![vec![]; rows];
    let (mut lost, mut delayed) = (0, vec![]);
    while acked.contains(&0) {
        if bench.waiting("alloc") < 2 {
            let row = bench.rng.below(rows as u64) as usize;
            let slot = slots[row / paths].iter().position(|s| s.is_none());
            if let Some((slot, k)) = slot.and_then(|slot| Some((slot, todo.pop()?))) {
                slots[row / paths][slot] = Some(k);
                let desc = packed(&layout, &[("iova", k as u64), ("msg_slot", slot as u64)]);
                let item = Item::of(&[("conn", (row / paths) as u64), ("path", (row % paths) as u64)]);
                bench.push("alloc", item.with("desc", &desc));
            }
        }
        bench.step();
        for packet in bench.take("tx") {
            let row = packet.get("conn") as usize * paths + packet.get("path") as usize;
            let k = packet.inner("desc", &layout, "iova") as usize;
            let place = ((packet.get("pseq") as u32).wrapping_sub(first[row]) & MASK) as usize;
            if packet.get("rtx") == 0 {
                assert_eq!(place, sent[row].len(), "new packets take the next PSEQ");
                sent[row].push(k);
                places[k] = (row, place);
            } else {
                assert_eq!(places[k], (row, place), "a packet keeps its path and PSEQ");
            }
            let oldest = sent[row].iter().position(|k| acked[*k] == 0).unwrap_or(sent[row].len());
            assert!(sent[row].len() - oldest <= p.window_pkts as usize, "the window is kept");
            if bench.rng.chance(loss) {
                lost += 1;
                continue;
            }
            net.receive(row, packet.get("pseq") as u32);
            if !bench.rng.chance(loss) {
                delayed.push((bench.sim.cycles() + 20 + bench.rng.below(60), net.ack(row, &packet)));
            }
        }
        let cycle = bench.sim.cycles();
        let due: Vec<_> = delayed.iter().filter(|(at, _)| *at <= cycle).map(|(_, ack)| ack.clone()).collect();
        delayed.retain(|(at, _)| *at > cycle);
        due.into_iter().for_each(|ack| bench.push("ack", ack));
        for done in bench.take("acked") {
            let slot = &mut slots[done.get("conn") as usize][done.get("msg_slot") as usize];
            let k = slot.take().expect("an acknowledged packet is outstanding");
            let (row, place) = places[k];
            let pseq = (first[row] + place as u32) & MASK;
            let is_received = (net.cum[row].wrapping_sub(pseq) & MASK) < 1 << 23 || net.beyond[row].contains(&pseq);
            assert!(is_received, "only received packets are acknowledged");
            acked[k] += 1;
        }
        let missing = acked.iter().filter(|n| **n == 0).count();
        assert!(
            bench.sim.cycles() < 400_000,
            "{missing} of {total} packets get through, {lost} lost, {:?}",
            bench.counts
        );
    }
    assert!(acked.iter().all(|n| *n == 1), "each packet is acknowledged once");
    assert_eq!(bench.take("error"), []);
    (bench, lost)
}

#[test]
fn all_packets_get_through_a_lossy_network_and_each_is_acknowledged_once() {
    let sized = |conns, paths, window_pkts| NicParams { conns, paths, window_pkts, ..params() };
    let cases = [
        (params(), 300, 0),
        (params(), 300, 5),
        (params(), 300, 20),
        (sized(4, 16, 64), 300, 10),
        (sized(2, 2, 2), 60, 20),
        (sized(2, 2, 256), 400, 20),
    ];
    let mut rng = Rng::new("all_packets_get_through_a_lossy_network", 1);
    for (p, total, loss) in cases {
        let (bench, lost) = lossy_loop(rng, &p, total, loss, false);
        let again = bench.counted(Counter::TxRtxGap) + bench.counted(Counter::TxRtxRto);
        assert_eq!(bench.counted(Counter::TxData), total as u64);
        if loss == 0 {
            assert_eq!(again, 0, "nothing is sent again without loss");
        } else {
            assert!(again as usize >= lost / 2, "{again} retransmissions for {lost} losses");
        }
        rng = bench.rng;
    }
}

#[test]
fn verilator_agrees_with_the_interpreter_on_a_lossy_loop() {
    let rng = Rng::new("verilator_agrees_with_the_interpreter_on_a_lossy_loop", 21);
    let (mut bench, _) = lossy_loop(rng, &params(), 120, 20, true);
    replay::agrees(&PathTx::def(&Lib::new(), &params()), &bench.take_trace());
}

#[test]
fn a_new_packet_costs_two_cycles_and_an_ack_of_four_packets_thirteen() {
    let p = params();
    let mut bench = bench(&p, Rng::new("a_new_packet_costs_two_cycles", 3));
    bench.push("ctx", open_row(0, true, 100, 0xc000, 0, 0));
    bench.settle(20);
    let request = Item::of(&[("conn", 0), ("path", 0)]).with("desc", &[0]);
    (0..16).for_each(|_| bench.push("alloc", request.clone()));
    let start = bench.sim.cycles();
    while bench.waiting("alloc") > 0 {
        bench.step();
    }
    assert_eq!(bench.sim.cycles() - start, 31);
    bench.settle(20);
    let ack = |cum| Item::of(&[("cum", cum)]);
    (1..=4).for_each(|k| bench.push("ack", ack(99 + 4 * k)));
    let start = bench.sim.cycles();
    while bench.waiting("ack") > 0 {
        bench.step();
    }
    assert_eq!((bench.sim.cycles() - start - 1) / 3, 13);
}
