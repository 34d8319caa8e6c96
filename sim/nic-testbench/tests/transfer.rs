//! A file crosses two simulated cards: byte for byte, at every size, with loss, over IPv4 and IPv6, and always the same by seed.

use nic_testbench::bench::Surroundings;
use nic_testbench::transfer::{run, TransferPlan, TransferReport};

/// Bytes that repeat nowhere, so that a packet in the wrong place shows.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_be_bytes()).take(len).collect()
}

/// Runs a plan and checks what must hold of every run.
fn check(plan: &TransferPlan) -> TransferReport {
    let replay = format!(
        "replay: paths {} loss {} ppm seed {} bytes {} pmtu_log2 {}",
        plan.paths,
        plan.loss_ppm,
        plan.seed,
        plan.data.len(),
        plan.pmtu_log2
    );
    let report = run(plan, |_| {}).unwrap_or_else(|e| panic!("{e}: {:?}\n{replay}", std::error::Error::source(&e)));
    assert!(report.received == plan.data, "the file arrived changed\n{replay}");
    assert_eq!(report.iommu_faults, 0, "{replay}");
    report
}

#[test]
fn a_lossless_mebibyte_keeps_the_transmit_stream_busy_and_resends_nothing() {
    let report = check(&TransferPlan::new(pattern(1 << 20)));
    assert!(report.tx_busy_permille >= 800, "{} per mille", report.tx_busy_permille);
    assert_eq!(
        (report.retransmissions(), report.counter("rx_duplicate_count"), report.lost_data_frames),
        (0, (0, 0), 0)
    );
    assert_eq!(report.counter("tx_data_count").0, 256);
    assert_eq!(report.counter("rx_data_bytes").1, 1 << 20);
}

#[test]
fn at_one_percent_loss_at_most_two_packets_are_resent_for_each_lost_one() {
    let mut lost = 0;
    for seed in 1..=4 {
        let report = check(&TransferPlan { loss_ppm: 10_000, seed, ..TransferPlan::new(pattern(1 << 20)) });
        let (resent, gone) = (report.retransmissions(), report.lost_data_frames);
        assert!(resent <= 2 * gone, "seed {seed}: {resent} resent for {gone} lost");
        lost += gone;
    }
    assert!(lost >= 4, "1024 packets at 1 % loss: {lost} lost");
}

#[test]
fn a_tenth_of_all_frames_may_be_lost() {
    check(&TransferPlan { loss_ppm: 100_000, ..TransferPlan::new(pattern(200_000)) });
}

#[test]
fn every_size_around_a_border_arrives() {
    for len in [0, 1, 3, 63, 64, 65, 1023, 1024, 1025, 2048, 4095, 4097, 12_288] {
        check(&TransferPlan { pmtu_log2: 10, message_bytes: 3000, ..TransferPlan::new(pattern(len)) });
    }
}

#[test]
fn every_pmtu_and_number_of_paths_works_over_ipv4_and_ipv6() {
    for (pmtu_log2, paths) in [(10, 1), (11, 2), (12, 3), (13, 16)] {
        for is_ipv6 in [false, true] {
            let report = check(&TransferPlan {
                pmtu_log2,
                paths,
                is_ipv6,
                loss_ppm: 5_000,
                ..TransferPlan::new(pattern(100_001))
            });
            assert_eq!(report.counter("tx_data_count").0, 100_001u64.div_ceil(1 << pmtu_log2));
        }
    }
}

#[test]
fn sequence_numbers_wrap_under_loss() {
    check(&TransferPlan {
        first_pseq: 0xff_fffa,
        loss_ppm: 30_000,
        pmtu_log2: 10,
        ..TransferPlan::new(pattern(150_000))
    });
}

#[test]
fn random_latency_and_back_pressure_at_every_port_change_nothing_in_the_file() {
    for seed in 1..=2 {
        check(&TransferPlan {
            surroundings: Surroundings::Stress,
            loss_ppm: 20_000,
            seed,
            message_bytes: 5_001,
            ..TransferPlan::new(pattern(120_000))
        });
    }
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_picosecond_and_another_seed_another() {
    let plan = TransferPlan { loss_ppm: 10_000, keep_frames: true, ..TransferPlan::new(pattern(150_000)) };
    let (a, b, c) = (check(&plan), check(&plan), check(&TransferPlan { seed: 8, ..plan.clone() }));
    assert_eq!((a.elapsed_ps, &a.counters, &a.network_drops), (b.elapsed_ps, &b.counters, &b.network_drops));
    assert!(a.frames == b.frames, "other frames, or at other times");
    assert!(a.frames != c.frames);
}
