//! WRITE and WRITE with immediate between two cards, on good cables and on bad ones.

mod bench;

use bench::{local, remote, Bench, Cable, US};
use nic_model::memory::VirtualMemory;
use nic_model::work::{CqeOp, RecvWr, SendOp, SendWr};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;

fn write(wr_id: u64, offset: u64, len: u32, imm: Option<u32>) -> SendWr {
    SendWr::new(wr_id, SendOp::Write { remote: remote(offset), imm }, local(offset), len)
}

#[test]
fn a_write_arrives_byte_exact_and_completes_once() {
    let mut b = Bench::new(1, Cable::default(), 1, 1 << 20);
    b.fill(0);
    let [tx, _] = b.connect(0, 4, |_, _| ());
    b.nics[0].post_send(b.now, tx, 1, write(7, 5, 100_001, None)).expect("room");
    b.run(1000 * US);
    let done = b.completions(0, 0);
    assert_eq!(
        done.iter().map(|c| (c.wr_id, c.op, c.status, c.byte_len)).collect::<Vec<_>>(),
        [(7, CqeOp::Write, Status::Ok, 100_001)]
    );
    assert_eq!(b.mems[0].bytes[5..100_006], b.mems[1].bytes[5..100_006]);
    assert!(b.mems[1].bytes[..5].iter().chain(&b.mems[1].bytes[100_006..]).all(|x| *x == 0));
    assert_eq!(b.completions(1, 0), []);
    assert_eq!(b.nics[1].counters().get(Counter::RxData), 25);
    assert_eq!(b.nics[1].counters().get(Counter::RxMessages), 1);
}

#[test]
fn a_write_of_nothing_needs_no_memory_and_completes() {
    let mut b = Bench::new(1, Cable::default(), 1, 64);
    let [tx, _] = b.connect(0, 1, |_, _| ());
    let nowhere = SendWr::new(1, SendOp::Write { remote: Default::default(), imm: None }, Default::default(), 0);
    b.nics[0].post_send(b.now, tx, 1, nowhere).expect("room");
    b.run(100 * US);
    assert_eq!(b.completions(0, 0)[0].status, Status::Ok);
}

/// Many messages of both directions over cables that do everything wrong; memory and completions are exact.
fn exchange(seed: u64, cable: Cable, planes: usize, paths: usize, messages: u64) {
    let replay = format!("replay: SEED={seed} cargo test -p nic-model --test write");
    let size = 1 << 19;
    let mut b = Bench::new(seed, cable, planes, 4 * size);
    b.fill(0);
    b.fill(1);
    // Side 0 sends its first quarter to side 1's second quarter; side 1 its third to side 0's fourth.
    let conns = b.connect(0, paths, |_, _| ());
    let before = [b.mems[0].bytes.clone(), b.mems[1].bytes.clone()];
    let mut sizes = [Vec::new(), Vec::new()];
    for side in 0..2 {
        let (from, to) = (2 * side as u64 * size as u64, (2 * side as u64 + 1) * size as u64);
        let mut at = 0;
        for i in 0..messages {
            let len = b.rng.below(2 * size as u64 / messages).min(size as u64 - at);
            let imm = (i % 3 == 0).then_some(i as u32);
            let wr = SendWr::new(i, SendOp::Write { remote: remote(to + at), imm }, local(from + at), len as u32);
            b.nics[side].post_send(b.now, conns[side], 1, wr).expect("room");
            if imm.is_some() {
                let recv = RecvWr { wr_id: 1000 + i, local: Default::default(), len: 0, tag: None };
                b.nics[1 - side].post_recv(b.now, conns[1 - side], 1, recv).expect("room");
            }
            at += len;
            sizes[side].push(len);
        }
    }
    let want = messages + messages.div_ceil(3);
    let mut got = [Vec::new(), Vec::new()];
    let done = b.run_until(400_000 * US, |b| {
        for (side, got) in got.iter_mut().enumerate() {
            got.extend(b.completions(side, 0));
        }
        got.iter().all(|g| g.len() as u64 >= want)
    });
    assert!(done, "{:?} of {want} completions; {replay}", got.each_ref().map(Vec::len));
    b.run(2000 * US);
    for side in 0..2 {
        assert_eq!(b.completions(side, 0), [], "one completion a message; {replay}");
        assert!(got[side].iter().all(|c| c.status == Status::Ok), "{replay}");
        let sends: Vec<_> = got[side].iter().filter(|c| c.op != CqeOp::RecvImm).map(|c| c.wr_id).collect();
        assert_eq!(sends, (0..messages).collect::<Vec<_>>(), "in order; {replay}");
        let recvs: Vec<_> = got[side].iter().filter(|c| c.op == CqeOp::RecvImm).collect();
        for (n, c) in recvs.iter().enumerate() {
            let i = 3 * n;
            assert_eq!((c.wr_id, c.imm), (1000 + i as u64, Some(i as u32)), "{replay}");
            assert_eq!(u64::from(c.byte_len), sizes[1 - side][i], "{replay}");
        }
        let total: u64 = sizes[side].iter().sum();
        let (from, to) = (2 * side * size, (2 * side + 1) * size);
        let sent = &before[side][from..from + total as usize];
        assert!(b.mems[1 - side].bytes[to..to + total as usize] == *sent, "content; {replay}");
        let untouched = to + total as usize..to + size;
        assert!(b.mems[1 - side].bytes[untouched.clone()] == before[1 - side][untouched], "{replay}");
    }
}

fn seeds() -> impl Iterator<Item = u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (1..6).collect(),
    }
    .into_iter()
}

#[test]
fn messages_are_exact_over_good_cables() {
    seeds().for_each(|seed| exchange(seed, Cable::default(), 1, 4, 30));
}

#[test]
fn messages_are_exact_when_one_frame_in_ten_is_lost() {
    seeds().for_each(|seed| exchange(seed, Cable { loss_ppm: 100_000, ..Cable::default() }, 1, 4, 30));
}

#[test]
fn messages_are_exact_when_frames_are_lost_reordered_duplicated_and_damaged() {
    let cable =
        Cable { loss_ppm: 30_000, duplicate_ppm: 30_000, reorder_ppm: 100_000, damage_ppm: 10_000, ..Cable::default() };
    seeds().for_each(|seed| exchange(seed, cable, 1, 6, 50));
    seeds().for_each(|seed| exchange(seed, cable, 4, 8, 30));
}

#[test]
fn messages_are_exact_when_a_third_of_all_frames_is_lost() {
    seeds().for_each(|seed| exchange(seed, Cable { loss_ppm: 333_333, ..Cable::default() }, 2, 4, 20));
}

#[test]
fn a_virtual_transfer_fills_the_line() {
    let cable = Cable { delay_ps: 4 * US, ..Cable::default() };
    let mut b = Bench::with_memory(1, cable, 1, 1 << 30, [VirtualMemory::default(); 2]);
    let [tx, _] = b.connect(0, 12, |_, _| ());
    let start = b.now;
    (0..8).for_each(|i| b.nics[0].post_send(b.now, tx, 1, write(i, 0, 8 << 20, None)).expect("room"));
    let mut got = 0;
    assert!(b.run_until(100_000 * US, |b| {
        got += b.completions(0, 0).len();
        got == 8
    }));
    let ideal_ps = (64u64 << 20) * 8 * 1_000_000 / 400_000;
    let took_ps = b.now.since_ps(start);
    // 4 KiB packets carry 97.3 % of the line; the windows open within six round trips.
    let start_ps = 6 * 2 * cable.delay_ps;
    assert!((took_ps - start_ps) * 100 < ideal_ps * 103, "took {took_ps} of {ideal_ps}");
    assert_eq!(b.mems[1].written_bytes, 64 << 20);
    assert_eq!(b.nics[0].counters().get(Counter::TxRtxGap), 0);
}
