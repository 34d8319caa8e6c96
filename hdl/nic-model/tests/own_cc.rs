//! A congestion control that was written outside the crate.

mod bench;

use bench::{local, remote, Bench, Cable, US};
use nic_model::time::Time;
use nic_model::transport::cc::{AckSample, CongestionControl, PathCc, Q};
use nic_model::work::{SendOp, SendWr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

/// A window of constant size, which counts what it was told.
#[derive(Debug, Default)]
struct Constant {
    window_pkts: u32,
    acked_pkts: AtomicU32,
    timeouts: AtomicU32,
}

impl CongestionControl for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn on_ack(&self, path: &mut PathCc, sample: &AckSample) -> bool {
        self.acked_pkts.fetch_add(sample.acked_pkts, Ordering::Relaxed);
        path.set_cwnd_q(self.window_pkts << Q, self.window_pkts);
        false
    }

    fn on_heavy_loss(&self, _: &mut PathCc, _: Time, _: u64) {}

    fn on_rto(&self, path: &mut PathCc, _: Time) {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
        path.set_cwnd_q(1 << Q, self.window_pkts);
    }
}

/// Sends 4 MiB over four paths and returns the time it took, the most that was seen in flight after the first round trip, and
/// the algorithm.
fn run(window_pkts: u32) -> (u64, u32, Arc<Constant>) {
    let cc = Arc::new(Constant { window_pkts, ..Constant::default() });
    let mut b = Bench::new(1, Cable::default(), 1, 4 << 20);
    b.fill(0);
    let [tx, _] = b.connect(0, 4, |_, cfg| cfg.cc = cc.clone());
    let write = SendWr::new(1, SendOp::Write { remote: remote(0), imm: None }, local(0), 4 << 20);
    b.nics[0].post_send(b.now, tx, 1, write).expect("room");
    let (begin, mut in_flight_pkts) = (b.now, 0);
    while b.completions(0, 0).is_empty() {
        b.run(US);
        let paths = b.nics[0].paths(tx).expect("a connection");
        in_flight_pkts = in_flight_pkts.max(paths.in_flight_pkts());
        assert!(b.now.since_ps(begin) < 100_000 * US, "not done after 100 ms");
    }
    assert!(b.mems[0].bytes == b.mems[1].bytes);
    (b.now.since_ps(begin), in_flight_pkts, cc)
}

#[test]
fn an_algorithm_from_outside_sets_the_windows_and_hears_of_every_packet() {
    let (slow_ps, slow_pkts, slow) = run(2);
    let (fast_ps, fast_pkts, fast) = run(8);
    assert_eq!([&slow, &fast].map(|cc| cc.acked_pkts.load(Ordering::Relaxed)), [1024; 2]);
    assert_eq!([&slow, &fast].map(|cc| cc.timeouts.load(Ordering::Relaxed)), [0; 2]);
    assert!(slow_pkts <= 4 * 2 && fast_pkts > slow_pkts && fast_pkts <= 4 * 8, "{slow_pkts} {fast_pkts}");
    assert!(slow_ps > 3 * fast_ps && slow_ps < 5 * fast_ps, "a quarter of the window: {slow_ps} ps, {fast_ps} ps");
}
