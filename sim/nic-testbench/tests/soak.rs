//! Random traffic over bad networks and slow hosts: whatever is lost, copied, damaged or late, each byte arrives once.

use cocotb_rs::{Replay, Seed};
use nic_fabric::{Action, LinkSelect, LinkSpec, Rule, Topology};
use nic_testbench::bench::Surroundings;
use nic_testbench::traffic::{Traffic, TrafficPlan};
use nic_testbench::BenchConfig;

const COMMAND: &str = "cargo test -p nic-testbench --test soak";

fn network(links: usize) -> Topology {
    let link = LinkSpec::new(100_000, 500_000).with_buffer_bytes(1 << 22);
    Topology::parallel_paths(&LinkSpec::new(400_000, 200_000).with_buffer_bytes(1 << 22), &vec![link; links])
}

fn on_core(rules: Vec<Action>) -> Vec<(LinkSelect, Rule)> {
    rules.into_iter().map(|action| (LinkSelect::Core, Rule::new(action))).collect()
}

fn run(test: &str, seed: u64, rules: Vec<Action>, surroundings: Surroundings, plan: TrafficPlan) {
    let seed = Seed::from_env_or(seed).expect("a seed");
    let _replay = Replay::new(seed, format!("{COMMAND} {test}"));
    let config =
        BenchConfig { rules: on_core(rules), surroundings, ..BenchConfig::two_cards(seed, network(plan.paths)) };
    Traffic::new(config, plan, seed).run();
}

const LOSS: Action = Action::Loss { ppm: 20_000 };
const COPIES: Action = Action::Duplicate { ppm: 50_000, delay_ps: 3_000_000 };
const LATE: Action = Action::Delay { ppm: 100_000, min_ps: 100_000, max_ps: 8_000_000 };
const DAMAGE: Action = Action::Corrupt { ppm: 20_000, is_found_by_fcs: false };

#[test]
fn nothing_is_placed_twice_when_the_network_copies_and_reorders() {
    run("copies", 1, vec![COPIES, LATE], Surroundings::Typical, TrafficPlan::default());
}

#[test]
fn damaged_frames_are_repaired_by_the_sender() {
    run("damaged", 2, vec![DAMAGE, LOSS], Surroundings::Typical, TrafficPlan::default());
}

#[test]
fn all_sixteen_connections_talk_both_ways_under_loss() {
    let plan = TrafficPlan { conns: 16, messages: 4, message_bytes_max: 1200, ..TrafficPlan::default() };
    run("all_sixteen", 3, vec![LOSS, LATE], Surroundings::Typical, plan);
}

#[test]
fn packet_message_and_receive_numbers_wrap_together() {
    let plan = TrafficPlan { first: (0xff_fff0, 0xff_fff8, 0xff_fffa), messages: 20, ..TrafficPlan::default() };
    run("numbers_wrap", 4, vec![LOSS, COPIES, LATE], Surroundings::Typical, plan);
}

#[test]
fn slow_hosts_and_bad_networks_together_change_nothing() {
    let plan = TrafficPlan { messages: 8, ..TrafficPlan::default() };
    run("slow_hosts", 5, vec![LOSS, COPIES, LATE, DAMAGE], Surroundings::Stress, plan);
}

#[test]
fn queues_of_two_entries_and_a_completion_queue_just_large_enough_suffice() {
    let plan = TrafficPlan { conns: 2, queue_log2_size: 1, cq_log2_size: 3, messages: 15, ..TrafficPlan::default() };
    run("queues_of_two", 6, vec![LOSS], Surroundings::Typical, plan);
}

/// A run drawn from the seed alone.
fn drawn(seed: Seed) {
    let mut rng = seed.named("plan").rng();
    let conns = 1 + rng.below(16) as usize;
    let plan = TrafficPlan {
        conns,
        messages: 5 + rng.below(80 / conns as u64) as usize,
        message_bytes_max: [200, 1500, 5000, 20_000][rng.below(4) as usize],
        pmtu_log2: 10 + rng.below(4) as u8,
        paths: 1 + rng.below(8) as usize,
        first: [(0, 0, 0), (0xff_fff8, 0xff_fffc, 0xff_fffe), (0x7f_fff8, 0xfffc, 0xfffe)][rng.below(3) as usize],
        queue_log2_size: rng.below(6) as u8,
        cq_log2_size: 10,
        rto_ticks: 8_000 + 4_000 * rng.below(4) as u32,
    };
    let ppm = |rng: &mut cocotb_rs::Rng| [0, 2_000, 20_000, 60_000][rng.below(4) as usize];
    let rules = vec![
        Action::Loss { ppm: ppm(&mut rng) },
        Action::Duplicate { ppm: ppm(&mut rng), delay_ps: 1 + rng.below(9_000_000) },
        Action::Corrupt { ppm: ppm(&mut rng), is_found_by_fcs: false },
        Action::Delay { ppm: 5 * ppm(&mut rng), min_ps: 0, max_ps: rng.below(12_000_000) },
    ];
    let surroundings = if rng.percent(50) { Surroundings::Stress } else { Surroundings::Typical };
    eprintln!("seed {seed}: {plan:?} {surroundings:?}");
    let config =
        BenchConfig { rules: on_core(rules), surroundings, ..BenchConfig::two_cards(seed, network(plan.paths)) };
    Traffic::new(config, plan, seed).run();
}

#[test]
fn many_drawn_runs() {
    let (first, count) = match (std::env::var_os("RUN_SLOW"), std::env::var_os("SEED")) {
        (_, Some(_)) => (Seed::from_env_or(0).expect("a seed").value(), 1),
        (Some(_), None) => (1000, 60),
        (None, None) => (1001, 1),
    };
    for seed in (first..first + count).map(Seed::new) {
        let _replay = Replay::new(seed, format!("{COMMAND} many_drawn_runs"));
        drawn(seed);
    }
}
