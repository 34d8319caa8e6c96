//! Per-packet choices of switches against per-flow ones.

mod traffic;

use nic_fabric::{Fabric, Forwarding, LinkSpec, Topology};
use traffic::{frames_on, udp, A};

const PATHS: usize = 4;

/// Sends 400 frames of one flow, 1 us apart unless `is_burst`, over four paths, the first of them slower; frames per
/// path.
fn frames_per_path(forwarding: Forwarding, slow_mbps: u64, is_burst: bool, seed: u64) -> Vec<u64> {
    let host = LinkSpec::new(400_000, 500_000);
    let mut paths = vec![LinkSpec::new(100_000, 500_000); PATHS];
    paths[0].rate_mbps = slow_mbps;
    let topology = Topology::parallel_paths(&host, &paths).with_forwarding(forwarding);
    let mut fabric = Fabric::new(&topology, seed).unwrap();
    for i in 0..400 {
        let time_ps = if is_burst { 0 } else { i * 1_000_000 };
        fabric.inject(A, time_ps, udp(0, 1, 0xc000, 2, 1000)).unwrap();
    }
    assert_eq!(fabric.run_until_idle(u64::MAX).len(), 400);
    (0..PATHS).map(|path| frames_on(&fabric, &format!("left->right#{path}"))).collect()
}

#[test]
fn ecmp_keeps_a_flow_on_one_path() {
    let frames = frames_per_path(Forwarding::Ecmp, 100_000, false, 1);
    assert_eq!(frames.iter().filter(|count| **count == 400).count(), 1, "{frames:?}");
}

#[test]
fn round_robin_gives_each_path_its_turn() {
    assert_eq!(frames_per_path(Forwarding::RoundRobin, 100_000, false, 1), [100; 4]);
}

#[test]
fn random_spraying_uses_every_path_and_follows_the_seed() {
    let frames = frames_per_path(Forwarding::Random, 100_000, false, 1);
    // Four standard deviations of a binomial with n = 400 and p = 1/4 are 35.
    assert!(frames.iter().all(|count| count.abs_diff(100) < 35), "{frames:?}");
    assert_eq!(frames, frames_per_path(Forwarding::Random, 100_000, false, 1));
    assert_ne!(frames, frames_per_path(Forwarding::Random, 100_000, false, 2));
}

#[test]
fn least_backlog_sends_less_over_a_slow_path_and_takes_turns_on_idle_ones() {
    assert_eq!(frames_per_path(Forwarding::LeastBacklog, 100_000, false, 1), [100; 4]);
    let frames = frames_per_path(Forwarding::LeastBacklog, 25_000, true, 1);
    // The paths together take 325 Gb/s of the 400 offered, so all have a backlog and share by their rates.
    assert!(frames[0].abs_diff(400 * 25 / 325) < 6, "{frames:?}");
    assert!(frames[1..].iter().all(|count| count.abs_diff(400 * 100 / 325) < 6), "{frames:?}");
}
