//! M-060: whatever is under way, not a byte of a region is read or written once it was taken away.

mod bench;

use bench::{local, remote, Bench, Cable, US};
use nic_model::mr::Mr;
use nic_model::work::{Local, RecvWr, SendOp, SendWr};
use nic_model::ConnState;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Lkey, Rkey};

const LEN: u64 = 1 << 20;

fn faults(b: &Bench) -> u64 {
    let of = |side: usize, counter| b.nics[side].counters().get(counter);
    (0..2).map(|side| of(side, Counter::DmaReadError) + of(side, Counter::DmaWriteError)).sum()
}

/// Messages of every kind in both directions over a bad cable; one side loses its memory at a random moment. Every
/// access to memory that is gone is an error on the bus, and there is none.
#[test]
fn no_byte_is_touched_after_its_region_was_taken_away() {
    let mut ends = [0; 2];
    for seed in 1..=60 {
        let cable = Cable { loss_ppm: 20_000, duplicate_ppm: 10_000, reorder_ppm: 10_000, ..Cable::default() };
        let mut b = Bench::new(seed, cable, 1, LEN as usize);
        let conns = b.connect(0, 4, |_, cfg| (cfg.transport.reads_max, cfg.transport.retry_limit) = (4, 3));
        for (side, conn) in conns.into_iter().enumerate() {
            for n in 0..16 {
                let wr = RecvWr { wr_id: 100 + n, local: local(n * 20_000), len: 20_000, tag: None };
                b.nics[side].post_recv(b.now, conn, 1, wr).expect("room");
            }
        }
        for n in 0..32 {
            let side = b.rng.below(2) as usize;
            let (at, len) = (b.rng.below(100) * 8, b.rng.below(20_000) as u32);
            let remote = remote(500_000 + at);
            let (op, len) = match b.rng.below(5) {
                0 => (SendOp::Write { remote, imm: None }, len),
                1 => (SendOp::Send { imm: None, inv: None, tag: None }, len),
                2 => (SendOp::Read { remote }, len),
                3 => (SendOp::FetchAdd { remote, add: 1 }, 8),
                _ => (SendOp::CompareSwap { remote, compare: 0, swap: 1 }, 8),
            };
            let wr = SendWr::new(n, op, local(700_000 + at), len);
            b.nics[side].post_send(b.now, conns[side], 1, wr).expect("room");
        }
        let span = b.rng.below(25 * US);
        b.run(span);
        let side = b.rng.below(2) as usize;
        b.nics[side].mrs().set(0, None);
        b.mems[side].bytes.clear();
        b.run(200_000 * US);
        assert_eq!(faults(&b), 0, "seed {seed}");
        let statuses: Vec<Status> = b.completions(side, 0).iter().map(|c| c.status).collect();
        let has_failed = b.nics[side].conn_state(conns[side]) == Some(ConnState::Error);
        ends[usize::from(has_failed)] += 1;
        let reasons = statuses.iter().filter(|s| !matches!(s, Status::Ok | Status::WrFlush)).count();
        assert!(reasons <= 1, "seed {seed}: {statuses:?}");
        assert_eq!(statuses.iter().any(|s| *s != Status::Ok), has_failed, "seed {seed}: {statuses:?}");
    }
    assert!(ends[1] > 20, "{ends:?}: hardly any run lost memory that something needed");
}

/// M-061: a region that nothing needs may go and come at any time.
#[test]
fn work_in_other_regions_goes_on_while_regions_come_and_go() {
    let mut b = Bench::new(7, Cable { loss_ppm: 10_000, ..Cable::default() }, 1, LEN as usize);
    b.fill(0);
    let [tx, _] = b.connect(0, 4, |_, _| ());
    let mr = Mr { key: 0x77, ..bench::region(4096) };
    for n in 0..20 {
        let wr = SendWr::new(n, SendOp::Write { remote: remote(n * 30_000), imm: None }, local(n * 30_000), 30_000);
        b.nics[0].post_send(b.now, tx, 1, wr).expect("room");
    }
    let mut count = 0;
    let mut done = 0;
    let all = b.run_until(100_000 * US, |b| {
        for side in 0..2 {
            let key = b.nics[side].mrs().register(mr);
            assert!(b.nics[side].mrs().invalidate(key, None));
        }
        count += 1;
        done += b.completions(0, 0).iter().filter(|c| c.status == Status::Ok).count();
        done == 20
    });
    assert!(all && count > 100, "{done} messages done, {count} regions gone");
    assert!(b.mems[0].bytes[..600_000] == b.mems[1].bytes[..600_000]);
}

/// M-061: what a message reads is looked for with the key of its request and no other.
#[test]
fn a_source_under_another_key_stays_when_a_region_over_the_same_memory_goes() {
    let mut b = Bench::new(1, Cable::default(), 1, LEN as usize);
    b.fill(0);
    let conns = [0, 1].map(|n| b.connect(n, 1, |_, _| ())[0]);
    let key = b.nics[0].mrs().register(Mr { key: 0x77, ..bench::region(LEN) });
    let sources = [Local { lkey: Lkey::new(key.get()), ..local(0) }, local(0)];
    for (conn, source) in conns.into_iter().zip(sources) {
        let op = SendOp::Write { remote: remote(0), imm: None };
        b.nics[0].post_send(b.now, conn, 1, SendWr::new(conn.0.into(), op, source, 500_000)).expect("room");
    }
    b.run(8 * US);
    b.nics[0].mrs().invalidate(Rkey::new(bench::KEY), None);
    b.run(10_000 * US);
    let done: Vec<_> = b.completions(0, 0).iter().map(|c| (c.conn, c.status)).collect();
    assert_eq!(done, [(conns[1], Status::LocProt), (conns[0], Status::Ok)]);
}
