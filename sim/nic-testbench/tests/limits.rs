//! Edges: every alignment, full rings, and a host whose memory answers with errors.

use cocotb_rs::Seed;
use nic_driver::{PathConfig, Qp, QpConfig};
use nic_fabric::{LinkSpec, Topology};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_testbench::traffic::{connect, nonzero, Side, FILL};
use nic_testbench::{Bench, BenchConfig};

const LEN: u64 = 1 << 16;
/// Where a card's DMA addresses begin.
const FIRST_IOVA: u64 = 1 << 32;

fn network() -> Topology {
    let link = LinkSpec::new(100_000, 500_000).with_buffer_bytes(1 << 22);
    Topology::parallel_paths(&LinkSpec::new(400_000, 200_000).with_buffer_bytes(1 << 22), &vec![link; 2])
}

fn config() -> QpConfig {
    QpConfig { paths: vec![PathConfig::default(); 2], ..QpConfig::default() }
}

fn pair() -> (Bench, Side, Side, Qp, Qp) {
    let mut bench = Bench::start(BenchConfig::two_cards(Seed::new(41), network())).expect("the bench starts");
    let (a, b) = (Side::open(&mut bench, 0, LEN, 9), Side::open(&mut bench, 1, LEN, 9));
    for side in [&a, &b] {
        let mut tunables = side.device.transport().expect("tunables");
        (tunables.rto_ticks, tunables.retry_limit) = (2500, 3);
        side.device.set_transport(&tunables).expect("tunables");
    }
    let (qp_a, qp_b) = (a.qp(&config()), b.qp(&config()));
    connect(&qp_a, &qp_b);
    (bench, a, b, qp_a, qp_b)
}

fn other_connection_works(a: &Side, b: &Side) {
    let (qp_a, qp_b) = (a.qp(&config()), b.qp(&config()));
    connect(&qp_a, &qp_b);
    a.source.write(0, b"others go on");
    qp_a.post_send(&a.write(b, 99, 0, 0, 12)).expect("room");
    assert_eq!(a.statuses(1), [(99, Status::Ok)]);
    assert_eq!(b.sink.to_vec(0, 12), b"others go on");
}

#[test]
fn every_alignment_of_both_sides_around_beats_and_pages() {
    let (bench, a, b, qp, _qp_b) = pair();
    a.source.write(0, &(0..LEN).map(|i| ((i * 131) >> 3) as u8 ^ i as u8).collect::<Vec<_>>());
    let lens = [1u64, 2, 62, 63, 64, 65, 66, 127, 128, 129];
    let step = if std::env::var_os("RUN_SLOW").is_some() { 1 } else { 7 };
    for offset in (0..64u64).step_by(step) {
        // Sources just before a page's end and sinks in all relations to them; four lengths each, all over the offsets.
        let batch: Vec<(u64, u64, u64)> = (0..4)
            .map(|k| {
                let len = if k == 3 { 4096 + offset % 3 - 1 } else { lens[(offset as usize + 3 * k) % lens.len()] };
                (
                    4096 * k as u64 + 4096 - 64 + offset,
                    12_000 * k as u64 + 100 + (offset * 37 + k as u64 * 11) % 64,
                    len,
                )
            })
            .collect();
        b.sink.write(0, &[FILL; LEN as usize]);
        for (k, (from, to, len)) in batch.iter().enumerate() {
            qp.post_send(&a.write(&b, k as u64, *from, *to, *len as u32)).expect("room");
        }
        assert_eq!(a.statuses(4), [0, 1, 2, 3].map(|k| (k, Status::Ok)));
        let mut want = vec![FILL; LEN as usize];
        for (from, to, len) in &batch {
            want[*to as usize..(to + len) as usize].copy_from_slice(&a.source.to_vec(*from, *len as usize));
        }
        let got = b.sink.to_vec(0, LEN as usize);
        assert!(got == want, "offset {offset}: differs at {:?}", (0..got.len()).find(|i| got[*i] != want[*i]));
    }
    assert_eq!(bench.memories.iter().map(|m| m.fault_count()).sum::<u64>(), 0);
}

#[test]
fn a_receiver_whose_memory_answers_with_errors_ends_the_connection_not_the_card() {
    let (bench, a, b, qp_a, qp_b) = pair();
    let lost = nic_driver::DmaMem::zeroed(8192);
    let mr = nic_driver::Mr::register(&b.pd, &lost, 0, 8192, nic_driver::MrAccess::REMOTE_WRITE).expect("a region");
    let remote = mr.remote();
    bench.memories[1].unmap(mr.va() & !4095, 8192).expect("the mapping exists");
    qp_b.post_recv(5).expect("room");
    let rkey = nic_spec::num::Rkey::new(remote.rkey);
    qp_a.post_send(&nic_driver::SendWr::write_imm(1, a.local.sge(0, 8000), remote.va, rkey, 3)).expect("room");
    qp_a.post_send(&a.write(&b, 2, 0, 0, 16)).expect("room");
    // An acknowledgement says that the write was issued (S-005), so the sender may see success; the receiver never does.
    let done = a.statuses(2);
    assert!(done.iter().all(|d| [Status::Ok, Status::RetryExc, Status::WrFlush].contains(&d.1)), "{done:?}");
    for _ in 0..50 {
        a.device.idle().expect("time passes");
    }
    assert_eq!(qp_b.query().expect("the bitmap"), nic_driver::QpState::Error);
    assert_eq!(qp_b.error_status().expect("the register"), Some(Ok(Status::LocDma)));
    assert_eq!(b.statuses(1), [(5, Status::WrFlush)]);
    assert!(b.device.counter(Counter::DmaWriteError).expect("counter") > 0);
    // From then on the receiver is silent.
    qp_a.post_send(&a.write(&b, 3, 0, 0, 16)).expect("room");
    let last = a.statuses(1);
    assert!([Status::RetryExc, Status::WrFlush].contains(&last[0].1), "{last:?}");
    assert!(b.sink.to_vec(64, 64).iter().all(|x| *x == FILL));
    other_connection_works(&a, &b);
}

#[test]
fn a_completion_queue_that_cannot_be_written_stops_neither_card_nor_other_queues() {
    let (bench, a, b, qp_a, _qp_b) = pair();
    // The ring of the side's completion queue was the first that the driver mapped.
    let ring_bytes = u64::from(a.cq.entries()) * 32;
    bench.memories[0].unmap(FIRST_IOVA, ring_bytes).expect("the ring is there");
    qp_a.post_send(&a.write(&b, 1, 0, 0, 100)).expect("room");
    for _ in 0..200 {
        a.device.idle().expect("time passes");
    }
    let stats = a.device.stats().expect("counters");
    assert_eq!((stats.get(Counter::TxMessages), stats.get(Counter::DmaWriteError)), (1, 1), "{:?}", nonzero(&stats));
    let cq = nic_driver::Cq::new(&a.device, nic_driver::CqConfig { log2_size: 4, vector: 1 }).expect("another queue");
    let other = Qp::create(&a.pd, &cq, &cq, &config()).expect("a queue pair");
    let peer = b.qp(&config());
    connect(&other, &peer);
    other.post_send(&a.write(&b, 2, 0, 0, 10)).expect("room");
    let done = cq.poll_until(1, 5000).expect("the ring is read");
    assert_eq!(done.iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), [(2, Status::Ok)]);
}

#[test]
fn a_host_that_takes_all_memory_away_leaves_a_card_that_answers_and_can_be_reset() {
    let mut bench = Bench::start(BenchConfig::two_cards(Seed::new(42), network())).expect("the bench starts");
    let pci = bench.pci(0).expect("a function");
    let open = || {
        let device = nic_driver::Device::open(std::sync::Arc::new(pci.clone()), Bench::port_config(0, false));
        Side::on(device.expect("the card comes up"), LEN, 9)
    };
    let b = Side::open(&mut bench, 1, LEN, 9);
    let a = open();
    let (qp_a, qp_b) = (a.qp(&config()), b.qp(&config()));
    connect(&qp_a, &qp_b);
    for i in 0..10 {
        qp_a.post_send(&a.write(&b, i, 0, 0, 6000)).expect("room");
        qp_b.post_send(&b.write(&a, i, 0, 0, 6000)).expect("room");
    }
    pci.run_cycles(600).expect("time passes");
    bench.memories[0].unmap(FIRST_IOVA, 1 << 40).expect("there are mappings");
    pci.run_cycles(20_000).expect("time passes");
    let stats = a.device.stats().expect("the card answers");
    assert!(stats.get(Counter::DmaReadError) + stats.get(Counter::DmaWriteError) > 0, "{:?}", nonzero(&stats));
    nic_driver::PciDevice::reset(&pci).expect("the reset");
    drop(qp_a);
    drop(a);
    drop(qp_b);
    other_connection_works(&open(), &b);
}
