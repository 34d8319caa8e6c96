//! Cards, connections and regions that end in the middle of traffic: the rest goes on, and what comes after works.

use cocotb_rs::{Replay, Rng, Seed};
use nic_driver::{Device, Mr, MrAccess, PathConfig, QpConfig, SendWr};
use nic_fabric::{LinkSelect, LinkSpec, Rule, Topology};
use nic_host::SimPciDevice;
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_testbench::bench::Surroundings;
use nic_testbench::traffic::{connect, unexplained_frames, Side, FILL, REMOTE_VA};
use nic_testbench::{Bench, BenchConfig};
use std::sync::Arc;

const COMMAND: &str = "cargo test -p nic-testbench --test reset";
const LEN: u64 = 1 << 16;

fn network() -> Topology {
    let link = LinkSpec::new(100_000, 500_000).with_buffer_bytes(1 << 22);
    Topology::parallel_paths(&LinkSpec::new(400_000, 200_000).with_buffer_bytes(1 << 22), &vec![link; 2])
}

fn config() -> QpConfig {
    QpConfig { paths: vec![PathConfig::default(); 2], pmtu_log2: 10, ..QpConfig::default() }
}

fn rounds(default: u64) -> u64 {
    if std::env::var_os("RUN_SLOW").is_some() {
        20 * default
    } else {
        default
    }
}

fn start(seed: Seed, surroundings: Surroundings, loss_ppm: u32) -> Bench {
    let rules = vec![(LinkSelect::Core, Rule::loss(loss_ppm))];
    let config = BenchConfig { rules, surroundings, ..BenchConfig::two_cards(seed, network()) };
    Bench::start(config).expect("the bench starts")
}

/// Brings a card up on its function, as after a crash of its driver.
fn open(pci: &SimPciDevice, card: u32) -> Side {
    let device = Device::open(Arc::new(pci.clone()), Bench::port_config(card, false)).expect("the card comes up");
    let side = Side::on(device, LEN, 9);
    quick(&side);
    side
}

/// Short timeouts, so that the end of the peer is noticed soon.
fn quick(side: &Side) {
    let mut tunables = side.device.transport().expect("tunables");
    (tunables.rto_ticks, tunables.retry_limit) = (3000, 3);
    side.device.set_transport(&tunables).expect("tunables");
}

/// A message each way over new connections.
fn works(a: &Side, b: &Side, rng: &mut Rng) {
    let (qp_a, qp_b) = (a.qp(&config()), b.qp(&config()));
    connect(&qp_a, &qp_b);
    for (from, to, qp) in [(a, b, &qp_a), (b, a, &qp_b)] {
        let bytes = rng.bytes(5001);
        from.source.write(3, &bytes);
        qp.post_send(&from.write(to, 77, 3, 40_000, 5001)).expect("room");
        assert_eq!(from.statuses(1), [(77, Status::Ok)]);
        assert!(to.sink.to_vec(40_000, 5001) == bytes);
    }
}

fn reset_rounds(seed: Seed, surroundings: Surroundings, count: u64) {
    let mut rng = seed.named("moments").rng();
    let mut bench = start(seed, surroundings, 5_000);
    let pci = [0, 1].map(|card| bench.pci(card).expect("a function"));
    let mut b = open(&pci[1], 1);
    for _ in 0..count {
        let a = open(&pci[0], 0);
        let (qp_a, qp_b) = (a.qp(&config()), b.qp(&config()));
        connect(&qp_a, &qp_b);
        for i in 0..12 {
            qp_a.post_send(&a.write(&b, i, i * 100, i * 3001, 3000)).expect("room");
            qp_b.post_send(&b.write(&a, i, i * 100, i * 3001, 3000)).expect("room");
        }
        pci[0].run_cycles(1 + rng.below(2500)).expect("time passes");
        // The card is reset in mid-traffic; whatever its driver held is let go only afterwards.
        nic_driver::PciDevice::reset(&pci[0]).expect("the reset");
        drop(qp_a);
        drop(a);
        // The peer ends with one completion for each request, and serves the new card.
        let done = b.statuses(12);
        let good = done.iter().take_while(|d| d.1 == Status::Ok).count();
        assert!(done.iter().skip(good + 1).all(|d| d.1 == Status::WrFlush), "{done:?}");
        if let Some((_, status)) = done.get(good) {
            assert_eq!(*status, Status::RetryExc, "{done:?}");
        }
        drop(qp_b);
        let a = open(&pci[0], 0);
        works(&a, &b, &mut rng);
        assert_eq!(bench.memories[1].fault_count(), 0, "{:?}", bench.memories[1].take_faults());
        assert_eq!(unexplained_frames(&b.device.stats().expect("counters")), 0);
    }
    assert_eq!(bench.memories[0].fault_count(), 0, "{:?}", bench.memories[0].take_faults());
    // The same for the other one, without traffic.
    drop(b);
    b = open(&pci[1], 1);
    works(&open(&pci[0], 0), &b, &mut rng);
}

#[test]
fn a_card_reset_in_mid_traffic_works_again_and_its_peer_never_stopped() {
    let seed = Seed::from_env_or(31).expect("a seed");
    let _replay = Replay::new(seed, format!("{COMMAND} a_card_reset"));
    reset_rounds(seed, Surroundings::Typical, rounds(2));
}

#[test]
fn a_reset_finds_slow_hosts_with_bursts_under_way() {
    let seed = Seed::from_env_or(32).expect("a seed");
    let _replay = Replay::new(seed, format!("{COMMAND} a_reset_finds"));
    reset_rounds(seed, Surroundings::Stress, rounds(1));
}

#[test]
fn connections_come_and_go_beside_one_that_stays() {
    let seed = Seed::from_env_or(33).expect("a seed");
    let _replay = Replay::new(seed, format!("{COMMAND} connections_come"));
    let mut rng = seed.named("cycles").rng();
    let mut bench = start(seed, Surroundings::Typical, 5_000);
    let (a, b) = (Side::open(&mut bench, 0, LEN, 9), Side::open(&mut bench, 1, LEN, 9));
    let bytes = rng.bytes(LEN as usize / 2);
    a.source.write(0, &bytes);
    let (stays_a, stays_b) = (a.qp(&config()), b.qp(&config()));
    connect(&stays_a, &stays_b);
    let count = rounds(3);
    for round in 0..count {
        let at = (round % 8) * 4096;
        stays_a.post_send(&a.write(&b, 1000 + round, at, at, 4096)).expect("room");
        let (x, y) = (a.qp(&config()), b.qp(&config()));
        connect(&x, &y);
        for i in 0..4 {
            x.post_send(&a.write(&b, i, 0, LEN / 2 + 3000 * i, 2999)).expect("room");
            y.post_send(&b.write(&a, i, 0, 3000 * i, 2999)).expect("room");
        }
        for _ in 0..rng.below(30) {
            a.device.idle().expect("time passes");
        }
        // Either end first.
        let (first, second) = if rng.percent(50) { (x, y) } else { (y, x) };
        first.destroy().expect("the connection closes");
        for _ in 0..rng.below(10) {
            a.device.idle().expect("time passes");
        }
        second.destroy().expect("the connection closes");
        // What came of the connection that is gone is passed over; the other one's completion arrives.
        let mut found = false;
        for _ in 0..20_000 {
            let done = a.cq.poll(64).expect("the ring is read");
            found |= done.iter().any(|c| (c.wr_id, c.status) == (1000 + round, Status::Ok));
            if found {
                break;
            }
        }
        assert!(found, "round {round}: the connection that stays has stopped");
        assert!(b.sink.to_vec(at, 4096) == bytes[at as usize..at as usize + 4096], "round {round}");
        let _ = b.cq.poll(64).expect("the ring is read");
    }
    for (k, side) in [&a, &b].into_iter().enumerate() {
        let stats = side.device.stats().expect("counters");
        assert_eq!((unexplained_frames(&stats), stats.get(Counter::CqeNoQueue)), (0, 0), "card {k}");
        assert_eq!(bench.memories[k].fault_count(), 0, "card {k}: {:?}", bench.memories[k].take_faults());
    }
    works(&a, &b, &mut rng);
}

#[test]
fn memory_is_left_alone_once_its_region_is_gone() {
    let seed = Seed::from_env_or(34).expect("a seed");
    let _replay = Replay::new(seed, format!("{COMMAND} memory_is_left_alone"));
    let mut rng = seed.named("moments").rng();
    let mut bench = start(seed, Surroundings::Typical, 1);
    let (a, b) = (Side::open(&mut bench, 0, LEN, 9), Side::open(&mut bench, 1, LEN, 9));
    quick(&a);
    for round in 0..rounds(2) {
        let (qp_a, qp_b) = (a.qp(&config()), b.qp(&config()));
        connect(&qp_a, &qp_b);
        let region = nic_driver::DmaMem::zeroed(32768);
        let mr =
            Mr::register_at(&b.pd, &region, 0, 32768, MrAccess::REMOTE_WRITE, REMOTE_VA + (1 << 32)).expect("a region");
        let remote = mr.remote();
        for i in 0..8 {
            let wr = SendWr::write(i, a.local.sge(0, 32768), remote.va, nic_spec::num::Rkey::new(remote.rkey));
            qp_a.post_send(&wr).expect("room");
        }
        for _ in 0..4 + rng.below(40) {
            a.device.idle().expect("time passes");
        }
        mr.deregister().expect("the region goes");
        region.write(0, &[FILL; 32768]);
        let done = a.statuses(8);
        let good = done.iter().take_while(|d| d.1 == Status::Ok).count();
        if let Some((_, status)) = done.get(good) {
            assert_eq!(*status, Status::RemAccess, "round {round}: {done:?}");
        }
        assert!(region.to_vec(0, 32768).iter().all(|x| *x == FILL), "round {round}: written after it was taken back");
        assert_eq!(bench.memories[1].fault_count(), 0, "round {round}: {:?}", bench.memories[1].take_faults());
        qp_a.destroy().expect("the connection closes");
        qp_b.destroy().expect("the connection closes");
    }
    works(&a, &b, &mut rng);
}
