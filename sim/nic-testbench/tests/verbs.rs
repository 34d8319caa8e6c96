//! What a program sees through the driver when two cards talk: order, errors, flushes, retries, interrupts.

use cocotb_rs::Seed;
use nic_driver::{
    Completion, Cq, CqConfig, Device, DmaMem, Mr, MrAccess, PathConfig, Pd, Qp, QpConfig, QpState, SendWr,
};
use nic_fabric::{LinkSelect, LinkSpec, Rule, Topology};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::{CqeOpcode, Status, Wqe, WqeOpcode};
use nic_spec::num::{Lkey, Rkey};
use nic_testbench::{Bench, BenchConfig};

const LEN: u64 = 1 << 17;
const VA: u64 = 0x7f00_0000_0000;

/// One side.
struct Side {
    device: Device,
    pd: Pd,
    cq: Cq,
    memory: DmaMem,
    local: Mr,
    remote: Mr,
}

impl Side {
    fn new(bench: &mut Bench, card: u32) -> Self {
        let device = bench.open(card, false).expect("the card comes up");
        let pd = Pd::new(&device).expect("a protection domain");
        let cq = Cq::new(&device, CqConfig { log2_size: 10, vector: 3 }).expect("a completion queue");
        let memory = DmaMem::zeroed(LEN);
        let local = Mr::register(&pd, &memory, 0, LEN, MrAccess::LOCAL_READ).expect("a region");
        let remote = Mr::register_at(&pd, &memory, 0, LEN, MrAccess::REMOTE_WRITE, VA).expect("a region");
        Self { device, pd, cq, memory, local, remote }
    }

    fn qp(&self, config: &QpConfig) -> Qp {
        Qp::create(&self.pd, &self.cq, &self.cq, config).expect("a queue pair")
    }

    fn completions(&self, count: usize) -> Vec<Completion> {
        let got = self.cq.poll_until(count, 60_000).expect("the ring is read");
        assert_eq!(
            got.len(),
            count,
            "completions are missing; there are {:?}",
            got.iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>()
        );
        got
    }

    fn statuses(&self, count: usize) -> Vec<(u64, Status)> {
        self.completions(count).iter().map(|c| (c.wr_id, c.status)).collect()
    }
}

/// Two cards, two links, one connection of two paths.
struct Pair {
    a: Side,
    b: Side,
    qp_a: Qp,
    qp_b: Qp,
    bench: Bench,
}

fn network() -> Topology {
    let link = LinkSpec::new(100_000, 500_000).with_buffer_bytes(1 << 22);
    Topology::parallel_paths(&LinkSpec::new(400_000, 200_000).with_buffer_bytes(1 << 22), &vec![link; 2])
}

fn config() -> QpConfig {
    QpConfig { paths: vec![PathConfig::default(); 2], pmtu_log2: 10, ..QpConfig::default() }
}

impl Pair {
    fn new(loss_ppm: u32, config: &QpConfig) -> Self {
        let rules = if loss_ppm > 0 { vec![(LinkSelect::Core, Rule::loss(loss_ppm))] } else { vec![] };
        let mut bench = Bench::start(BenchConfig { rules, ..BenchConfig::two_cards(Seed::new(11), network()) })
            .expect("the bench starts");
        let (a, b) = (Side::new(&mut bench, 0), Side::new(&mut bench, 1));
        let (qp_a, qp_b) = (a.qp(config), b.qp(config));
        qp_a.connect(qp_b.conn_info()).expect("the connection opens");
        qp_b.connect(qp_a.conn_info()).expect("the connection opens");
        Self { a, b, qp_a, qp_b, bench }
    }

    fn write(&self, wr_id: u64, offset: u64, len: u32) -> SendWr {
        SendWr::write(wr_id, self.a.local.sge(offset, len), VA + offset, self.b.remote.rkey())
    }

    fn write_imm(&self, wr_id: u64, offset: u64, len: u32, imm: u32) -> SendWr {
        SendWr::write_imm(wr_id, self.a.local.sge(offset, len), VA + offset, self.b.remote.rkey(), imm)
    }

    fn no_faults(&self) {
        assert_eq!(
            self.bench.memories.iter().map(|m| m.fault_count()).sum::<u64>(),
            0,
            "a card touched memory it may not"
        );
    }
}

#[test]
fn completions_come_in_order_on_both_sides_under_loss() {
    let p = Pair::new(20_000, &config());
    let bytes: Vec<u8> = (0..LEN).map(|i| (i * 7 / 5) as u8).collect();
    p.a.memory.write(0, &bytes);
    let sizes: Vec<u32> = (0..40u32).map(|i| (i * 397) % 3000).collect();
    for i in 0..40 {
        p.qp_b.post_recv(1000 + i).expect("room for a receive");
    }
    let mut offset = 0;
    for (i, len) in sizes.iter().enumerate() {
        p.qp_a.post_send(&p.write_imm(i as u64, offset, *len, 0xa000 + i as u32)).expect("room for a send");
        offset += u64::from(*len);
    }
    let sent = p.a.completions(40);
    assert_eq!(
        sent.iter().map(|c| (c.wr_id, c.status, c.opcode)).collect::<Vec<_>>(),
        (0..40).map(|i| (i, Status::Ok, CqeOpcode::WriteImm)).collect::<Vec<_>>()
    );
    let received = p.b.completions(40);
    for (i, c) in received.iter().enumerate() {
        assert_eq!(
            (c.wr_id, c.status, c.imm, c.byte_len),
            (1000 + i as u64, Status::Ok, Some(0xa000 + i as u32), sizes[i])
        );
    }
    assert!(p.b.memory.to_vec(0, offset as usize) == bytes[..offset as usize]);
    p.no_faults();
}

#[test]
fn both_directions_and_several_connections_share_the_cards() {
    let p = Pair::new(5_000, &config());
    let more: Vec<(Qp, Qp)> = (0..3).map(|_| (p.a.qp(&config()), p.b.qp(&config()))).collect();
    for (x, y) in &more {
        x.connect(y.conn_info()).expect("the connection opens");
        y.connect(x.conn_info()).expect("the connection opens");
    }
    p.a.memory.write(0, &(0..LEN / 2).map(|i| (i % 251) as u8).collect::<Vec<_>>());
    p.b.memory.write(LEN / 2, &(0..LEN / 2).map(|i| (i % 241) as u8).collect::<Vec<_>>());
    // Eight slices of 8 KiB: four go from a to b, four from b to a.
    for (k, (x, y)) in more.iter().map(|(x, y)| (x, y)).chain([(&p.qp_a, &p.qp_b)]).enumerate() {
        let (from, back) = (k as u64 * 8192, LEN / 2 + k as u64 * 8192);
        x.post_send(&p.write(k as u64, from, 8192)).expect("room");
        y.post_send(&SendWr::write(k as u64, p.b.local.sge(back, 8192), VA + back, p.a.remote.rkey())).expect("room");
    }
    for side in [&p.a, &p.b] {
        let mut done = side.statuses(4);
        done.sort_by_key(|d| d.0);
        assert_eq!(done, (0..4).map(|k| (k, Status::Ok)).collect::<Vec<_>>());
    }
    for (from, to, at) in [(&p.a, &p.b, 0), (&p.b, &p.a, LEN / 2)] {
        assert!(from.memory.to_vec(at, 32768) == to.memory.to_vec(at, 32768));
    }
    p.no_faults();
}

#[test]
fn a_malformed_wqe_completes_in_error_in_order_and_the_rest_is_flushed() {
    let good = |p: &Pair| {
        let mut wqe = Wqe::zeroed();
        wqe.set_opcode(WqeOpcode::Write as u8).set_signaled(true).set_length(100);
        wqe.set_local_va(p.a.local.va()).set_lkey(p.a.local.lkey()).set_remote_va(VA).set_rkey(p.b.remote.rkey());
        wqe
    };
    type Break = fn(&mut Wqe<[u8; Wqe::LEN]>);
    let cases: [(&str, Break, Status); 6] = [
        (
            "unknown opcode",
            |w| {
                w.set_opcode(0x7f);
            },
            Status::LocQpOp,
        ),
        (
            "reserved bits set",
            |w| {
                w.0[60] = 1;
            },
            Status::LocQpOp,
        ),
        (
            "longer than a message may be",
            |w| {
                w.set_length(0x8000_0001);
            },
            Status::LocLen,
        ),
        (
            "local key of no region",
            |w| {
                w.set_lkey(Lkey::new(0x3f01));
            },
            Status::LocProt,
        ),
        (
            "local range beyond the region",
            |w| {
                let va = w.local_va() + LEN - 50;
                w.set_local_va(va);
            },
            Status::LocProt,
        ),
        (
            "local address that wraps",
            |w| {
                w.set_local_va(u64::MAX - 10);
            },
            Status::LocProt,
        ),
    ];
    for (what, break_it, want) in cases {
        let p = Pair::new(0, &config());
        p.a.memory.write(0, &[5; 100]);
        p.qp_a.post_send(&p.write(1, 0, 100)).expect("room");
        let mut bad = good(&p);
        break_it(&mut bad);
        p.qp_a.post_raw(2, bad).expect("room");
        p.qp_a.post_send(&p.write(3, 200, 10)).expect("room");
        assert_eq!(p.a.statuses(3), [(1, Status::Ok), (2, want), (3, Status::WrFlush)], "{what}");
        assert_eq!(p.qp_a.query().expect("the bitmap"), QpState::Error, "{what}");
        assert_eq!(p.b.memory.to_vec(0, 210), [vec![5; 100], vec![0; 110]].concat(), "{what}");
        let stats = p.a.device.stats().expect("counters");
        assert_eq!((stats.get(Counter::WqeBad), stats.get(Counter::ConnErrors)), (1, 1), "{what}");
        p.no_faults();
    }
}

#[test]
fn a_remote_access_error_ends_the_connection_and_others_go_on() {
    let p = Pair::new(0, &config());
    let (other_a, other_b) = (p.a.qp(&config()), p.b.qp(&config()));
    other_a.connect(other_b.conn_info()).expect("the connection opens");
    other_b.connect(other_a.conn_info()).expect("the connection opens");
    p.qp_a.post_send(&SendWr::write(1, p.a.local.sge(0, 64), VA, Rkey::new(0x3f7f))).expect("room");
    p.qp_a.post_send(&p.write(2, 0, 64)).expect("room");
    assert_eq!(p.a.statuses(2), [(1, Status::RemAccess), (2, Status::WrFlush)]);
    assert_eq!(p.qp_a.query().expect("the bitmap"), QpState::Error);
    assert_eq!(p.qp_a.error_status().expect("the register"), Some(Ok(Status::RemAccess)));
    p.a.memory.write(0, b"others go on");
    other_a.post_send(&p.write(7, 0, 12)).expect("room");
    assert_eq!(p.a.statuses(1), [(7, Status::Ok)]);
    assert_eq!(p.b.memory.to_vec(0, 12), b"others go on");
    // The slot of the failed connection serves a new one.
    p.qp_a.destroy().expect("the connection closes");
    p.qp_b.destroy().expect("the connection closes");
    let (again_a, again_b) = (p.a.qp(&config()), p.b.qp(&config()));
    again_a.connect(again_b.conn_info()).expect("the connection opens");
    again_b.connect(again_a.conn_info()).expect("the connection opens");
    again_a.post_send(&SendWr::write(9, p.a.local.sge(0, 12), VA + 4096, p.b.remote.rkey())).expect("room");
    assert_eq!(p.a.statuses(1), [(9, Status::Ok)]);
    assert_eq!(p.b.memory.to_vec(4096, 12), b"others go on");
}

#[test]
fn a_dead_network_ends_in_retry_exceeded_and_everything_posted_is_flushed() {
    let p = Pair::new(0, &config());
    let mut tunables = p.a.device.transport().expect("tunables");
    (tunables.rto_ticks, tunables.retry_limit) = (2_000, 3);
    p.a.device.set_transport(&tunables).expect("tunables");
    p.bench.shared.cut(true);
    for i in 0..5 {
        p.qp_a.post_send(&p.write(i, i * 2048, 2048)).expect("room");
    }
    let mut want = vec![(0, Status::RetryExc)];
    want.extend((1..5).map(|i| (i, Status::WrFlush)));
    assert_eq!(p.a.statuses(5), want);
    assert!(p.a.device.counter(Counter::PathRto).expect("counter") >= 4);
}

#[test]
fn a_short_outage_is_survived() {
    let p = Pair::new(0, &config());
    let mut tunables = p.a.device.transport().expect("tunables");
    tunables.rto_ticks = 5_000;
    p.a.device.set_transport(&tunables).expect("tunables");
    p.a.memory.write(0, &[0x5a; 60_000]);
    p.qp_a.post_send(&p.write(1, 0, 60_000)).expect("room");
    p.bench.shared.cut(true);
    for _ in 0..200 {
        p.a.device.idle().expect("time passes");
    }
    p.bench.shared.cut(false);
    assert_eq!(p.a.statuses(1), [(1, Status::Ok)]);
    assert!(p.b.memory.to_vec(0, 60_000).iter().all(|b| *b == 0x5a));
}

#[test]
fn a_message_without_a_posted_receive_waits_until_one_is_posted() {
    let p = Pair::new(0, &config());
    p.a.memory.write(0, b"late");
    p.qp_a.post_send(&p.write_imm(1, 0, 4, 42)).expect("room");
    for _ in 0..100 {
        p.a.device.idle().expect("time passes");
    }
    assert_eq!(p.b.memory.to_vec(0, 4), [0; 4], "nothing may be placed before a receive is posted");
    assert!(p.b.device.counter(Counter::NakRnr).expect("counter") >= 1);
    p.qp_b.post_recv(77).expect("room");
    assert_eq!(p.a.statuses(1), [(1, Status::Ok)]);
    let got = p.b.completions(1);
    assert_eq!((got[0].wr_id, got[0].imm, got[0].byte_len), (77, Some(42), 4));
    assert_eq!(p.b.memory.to_vec(0, 4), b"late");
}

#[test]
fn an_armed_queue_interrupts_once_and_unsignaled_writes_complete_silently() {
    let p = Pair::new(0, &config());
    let interrupts = |p: &Pair| p.bench.interrupts[0].count(3);
    assert_eq!(interrupts(&p), 0);
    p.a.cq.arm().expect("the doorbell");
    for i in 0..3 {
        p.qp_a.post_send(&p.write(i, 0, 32).unsignaled()).expect("room");
    }
    for i in 3..6 {
        p.qp_a.post_send(&p.write(i, 0, 32)).expect("room");
    }
    assert_eq!(p.a.statuses(3), [(3, Status::Ok), (4, Status::Ok), (5, Status::Ok)]);
    for _ in 0..20 {
        p.a.device.idle().expect("time passes");
    }
    assert_eq!(interrupts(&p), 1, "one interrupt for each arming");
    assert_eq!(p.qp_a.send_room(), 64, "unsignaled requests are reclaimed");
}

#[test]
fn a_dma_address_that_the_iommu_refuses_ends_the_connection_not_the_card() {
    let p = Pair::new(0, &config());
    // A region over memory that the host takes away behind the card's back.
    let lost = DmaMem::zeroed(8192);
    let mr = Mr::register(&p.a.pd, &lost, 0, 8192, MrAccess::LOCAL_READ).expect("a region");
    let sge = mr.sge(0, 8192);
    p.bench.memories[0].unmap(mr.va() & !4095, 8192).expect("the mapping exists");
    p.qp_a.post_send(&SendWr::write(1, sge, VA, p.b.remote.rkey())).expect("room");
    p.qp_a.post_send(&p.write(2, 0, 16)).expect("room");
    assert_eq!(p.a.statuses(2), [(1, Status::LocDma), (2, Status::WrFlush)]);
    assert!(p.bench.memories[0].fault_count() > 0);
    let (other_a, other_b) = (p.a.qp(&config()), p.b.qp(&config()));
    other_a.connect(other_b.conn_info()).expect("the connection opens");
    other_b.connect(other_a.conn_info()).expect("the connection opens");
    other_a.post_send(&p.write(3, 0, 16)).expect("room");
    assert_eq!(p.a.statuses(1), [(3, Status::Ok)]);
}

#[test]
fn send_queues_of_every_small_size_wrap_many_times() {
    for log2_size in [0, 1, 3] {
        let p = Pair::new(0, &QpConfig { sq_log2_size: log2_size, rq_log2_size: Some(log2_size), ..config() });
        for i in 0..20u64 {
            p.a.memory.write(i * 64, &[i as u8 + 1; 64]);
            p.qp_b.post_recv(i).expect("room");
            p.qp_a.post_send(&p.write_imm(i, i * 64, 64, i as u32)).expect("room");
            assert_eq!(p.a.statuses(1), [(i, Status::Ok)]);
            assert_eq!(p.b.completions(1)[0].imm, Some(i as u32));
            assert_eq!(p.b.memory.to_vec(i * 64, 64), [i as u8 + 1; 64]);
        }
        p.no_faults();
    }
}
