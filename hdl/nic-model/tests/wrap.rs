//! Every number that wraps, wrapping while messages of every kind cross bad cables; memory and completions stay exact.

mod bench;

use bench::{local, remote, Bench, Cable, Rng, US};
use nic_model::time::Time;
use nic_model::work::{ConnId, Cqe, CqeOp, RecvWr, SendOp, SendWr};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Msn, Psn, Rsn};
use std::collections::VecDeque;

const BAD: Cable = Cable {
    rate_mbps: 400_000,
    delay_ps: 2 * US,
    loss_ppm: 40_000,
    duplicate_ppm: 40_000,
    reorder_ppm: 100_000,
    reorder_ps: 4 * US,
    damage_ppm: 5_000,
};

/// Each side writes, sends, reads and adds at random. `AREA` bytes at 0 are read only; a slot of `SLOT` bytes for each
/// operation follows.
const AREA: u64 = 1 << 18;
const SLOT: u64 = 1 << 14;
const OPS: u64 = 120;

#[derive(Clone, Copy)]
enum Op {
    Write(u64, u32),
    Send(u64, u32),
    Read(u64, u32),
    Add,
}

fn run(
    seed: u64,
    cable: Cable,
    planes: usize,
    is_unordered: bool,
    change: impl Fn(&mut nic_model::conn_config::ConnConfig),
) {
    let replay = format!("replay: SEED={seed} cargo test -p nic-model --test wrap");
    let bytes = (AREA + SLOT * (2 * OPS + 1)) as usize;
    let mut b = Bench::new(seed, cable, planes, bytes);
    // The 32-bit clock of the wire wraps some microseconds after the start.
    b.now = Time((u64::from(u32::MAX) - 5_000) * 4_000);
    (0..2).for_each(|side| b.fill(side));
    let counter_at = AREA + SLOT * 2 * OPS;
    for side in 0..2 {
        b.mems[side].bytes[AREA as usize..].fill(0);
    }
    let conns: [ConnId; 2] = b.connect(0, 5, |_, c| {
        c.tx_paths.iter_mut().chain(&mut c.rx_paths).for_each(|p| p.first = Psn::new(0xff_fff0));
        c.streams[0].first_msn = Msn::new(0xff_ffe0);
        c.streams[0].first_rsn = Rsn::new(0xff_fff8);
        c.streams[0].is_unordered = is_unordered;
        change(c);
    });
    let mut rng = Rng(seed | 1);
    let mut ops: [Vec<Op>; 2] = [Vec::new(), Vec::new()];
    let mut recvs: [VecDeque<(u64, u64)>; 2] = [VecDeque::new(), VecDeque::new()];
    for side in 0..2 {
        for i in 0..OPS {
            let (from, len) = (rng.below(AREA - SLOT), rng.below(SLOT) as u32);
            // The sink of operation i: a slot of the peer for writes and sends, one of this side for reads.
            let sink = AREA + SLOT * i;
            let own = AREA + SLOT * (OPS + i);
            let (op, wr) = match rng.below(4) {
                0 => (
                    Op::Write(from, len),
                    SendWr::new(i, SendOp::Write { remote: remote(sink), imm: None }, local(from), len),
                ),
                1 => {
                    recvs[1 - side].push_back((i, sink));
                    let send = SendOp::Send { imm: Some(i as u32), inv: None, tag: None };
                    (Op::Send(from, len), SendWr::new(i, send, local(from), len))
                }
                2 => (Op::Read(from, len), SendWr::new(i, SendOp::Read { remote: remote(from) }, local(own), len)),
                _ => {
                    let add = SendOp::FetchAdd { remote: remote(counter_at), add: 1 };
                    (Op::Add, SendWr::new(i, add, local(own), 0))
                }
            };
            ops[side].push(op);
            b.nics[side].post_send(b.now, conns[side], 1, wr).expect("room");
        }
    }
    // Receives are posted a few at a time, so that credit runs out and comes again.
    let mut got: [Vec<Cqe>; 2] = [Vec::new(), Vec::new()];
    let sends = recvs.each_ref().map(VecDeque::len);
    let want = [OPS as usize + sends[0], OPS as usize + sends[1]];
    let is_done = b.run_until(3_000_000 * US, |b| {
        for side in 0..2 {
            got[side].extend(b.completions(side, 0));
            let done = got[side].iter().filter(|c| c.op == CqeOp::Recv).count();
            while sends[side] - recvs[side].len() < done + 3 {
                let Some((i, sink)) = recvs[side].pop_front() else { break };
                let wr = RecvWr { wr_id: 1000 + i, local: local(sink), len: SLOT as u32, tag: None };
                b.nics[side].post_recv(b.now, conns[side], 1, wr).expect("room");
            }
        }
        (0..2).all(|side| got[side].len() >= want[side])
    });
    assert!(is_done, "{:?} of {want:?}; {replay}", got.each_ref().map(Vec::len));
    b.run(3_000 * US);
    for side in 0..2 {
        assert_eq!(b.completions(side, 0), [], "{replay}");
        assert!(got[side].iter().all(|c| c.status == Status::Ok), "{replay}");
        let mut sent: Vec<u64> = got[side].iter().filter(|c| c.op != CqeOp::Recv).map(|c| c.wr_id).collect();
        if is_unordered {
            sent.sort_unstable();
        }
        assert!(sent.iter().copied().eq(0..OPS), "one completion each, in order; {replay}");
        let mut adds = Vec::new();
        for (i, op) in ops[side].iter().enumerate() {
            let sink = (AREA + SLOT * i as u64) as usize;
            let own = (AREA + SLOT * (OPS + i as u64)) as usize;
            let (here, there) = (&b.mems[side].bytes, &b.mems[1 - side].bytes);
            match *op {
                Op::Write(from, len) | Op::Send(from, len) => {
                    let (from, len) = (from as usize, len as usize);
                    assert!(there[sink..sink + len] == here[from..from + len], "operation {i}; {replay}");
                    assert!(there[sink + len..sink + SLOT as usize].iter().all(|x| *x == 0), "operation {i}; {replay}");
                }
                Op::Read(from, len) => {
                    let (from, len) = (from as usize, len as usize);
                    assert!(here[own..own + len] == there[from..from + len], "operation {i}; {replay}");
                }
                Op::Add => adds.push(u64::from_le_bytes(here[own..own + 8].try_into().expect("8 bytes"))),
            }
        }
        // Each addition took place once: the values before are 0, 1, 2 ... in some order.
        let total = adds.len() as u64;
        adds.sort_unstable();
        assert!(adds.iter().copied().eq(0..total), "{replay}");
        assert_eq!(
            b.mems[1 - side].bytes[counter_at as usize..counter_at as usize + 8],
            total.to_le_bytes(),
            "{replay}"
        );
        assert_eq!(b.nics[side].counters().get(Counter::ConnErrors), 0, "{replay}");
        assert_eq!(b.nics[side].counters().get(Counter::RxBadAck), 0, "{replay}");
    }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (1..=count).collect(),
    }
    .into_iter()
}

#[test]
fn every_operation_is_exact_across_every_wrap() {
    seeds(4).for_each(|seed| run(seed, BAD, 1, false, |_| ()));
}

#[test]
fn every_operation_is_exact_over_several_planes() {
    seeds(4).for_each(|seed| run(seed, BAD, 4, false, |_| ()));
}

#[test]
fn every_operation_is_exact_in_unordered_streams() {
    seeds(4).for_each(|seed| run(seed, BAD, 2, true, |_| ()));
}

#[test]
fn every_operation_is_exact_with_few_messages_small_windows_and_the_delay_based_algorithm() {
    seeds(3).for_each(|seed| {
        run(seed, BAD, 1, false, |c| {
            (c.transport.msgs_max, c.transport.path_cap_pkts, c.transport.reads_max) = (3, 2, 1);
            (c.transport.idle_redundancy, c.transport.tail_marker) = (false, false);
            c.cc = std::sync::Arc::new(nic_model::transport::cc::Delay::default());
        });
    });
}
