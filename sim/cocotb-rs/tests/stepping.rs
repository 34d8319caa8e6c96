//! Clocks, ports, stepping and the ways a design can end.

mod common;

use cocotb_rs::{Period, PowerOn, Sim, SimError};

#[test]
fn a_task_reads_what_a_flip_flop_would_and_its_writes_take_part_in_the_next_edge() {
    let (mut sim, clk) = common::sim();
    let (step, count) = (sim.port("step").unwrap(), sim.port("count").unwrap());
    let handle = sim.handle();
    let seen = sim
        .block_on(async move {
            let mut seen = Vec::new();
            for value in [1, 1, 0, 1, 0, 0] {
                handle.set(step, value);
                handle.rising(clk).await;
                seen.push(handle.get(count));
            }
            seen
        })
        .unwrap();
    assert_eq!(seen, [0, 1, 2, 2, 3, 3]);
}

#[test]
fn settle_shows_combinational_paths_without_an_edge() {
    let (mut sim, clk) = common::sim();
    let [step, addend, sum] = ["step", "addend", "sum"].map(|name| sim.port(name).unwrap());
    sim.set(step, 1);
    sim.run_cycles(clk, 5).unwrap();
    sim.set(addend, 100);
    sim.settle().unwrap();
    assert_eq!((sim.get(sum), sim.cycle(clk)), (105, 8));
}

#[test]
fn two_clocks_rise_at_their_own_times() {
    let (mut sim, clk) = common::sim_of(common::model(), 1);
    let clk2 = sim.clock("clk2", Period::of_hz(322_265_625)).unwrap();
    let [rst, count2] = ["rst", "count2"].map(|name| sim.port(name).unwrap());
    sim.reset(rst, 3).unwrap();
    let before = sim.cycle(clk2);
    sim.run_until_ps(4_000_000).unwrap();
    sim.settle().unwrap();
    // 4 us hold 1000 periods of 4 ns and 1289.06 of 322.27 MHz.
    assert_eq!((sim.cycle(clk), sim.cycle(clk2), sim.now_ps()), (1000, 1289, 4_000_000));
    assert_eq!(sim.get(count2), 1289 - before);
}

#[test]
fn windows_of_any_length_give_the_same_simulation() {
    let run = |window_ps: u64| {
        let (mut sim, clk) = common::sim();
        let [step, count] = ["step", "count"].map(|name| sim.port(name).unwrap());
        let log = cocotb_rs::Queue::new();
        let (handle, out) = (sim.handle(), log.clone());
        sim.spawn(async move {
            loop {
                handle.timer_ps(7_001).await;
                handle.set(step, handle.now_ps() / 7 % 2);
                handle.cycles(clk, 3).await;
                out.push((handle.now_ps(), handle.get(count)));
            }
        });
        let mut end_ps = sim.now_ps();
        while end_ps < 1_000_000 {
            end_ps = (end_ps + window_ps).min(1_000_000);
            sim.run_until_ps(end_ps).unwrap();
        }
        (log.drain(), sim.cycle(clk))
    };
    let whole = run(1_000_000);
    assert!(whole.0.len() > 40 && whole.0.iter().any(|(_, count)| *count > 3), "{whole:?}");
    for window_ps in [1, 999, 2000, 4000, 12_345] {
        assert_eq!(run(window_ps), whole, "window of {window_ps} ps");
    }
}

#[test]
fn a_stop_in_the_design_is_an_error_with_its_place_and_stays_one() {
    let (mut sim, clk) = common::sim();
    let order = sim.port("order").unwrap();
    sim.set(order, 1);
    let error = sim.run_cycles(clk, 10).unwrap_err();
    assert!(matches!(&error, SimError::Stopped { message, .. } if message.contains("kit.v:")), "{error}");
    assert_eq!(sim.step(), Err(error));
}

#[test]
fn a_failing_assertion_is_an_error_that_carries_its_message() {
    let (mut sim, clk) = common::sim();
    let order = sim.port("order").unwrap();
    sim.set(order, 3);
    let text = sim.run_cycles(clk, 10).unwrap_err().to_string();
    assert!(text.contains("count is not 255") && text.contains("stopped at 14000 ps"), "{text}");
    assert_eq!(sim.take_output()[0], "count is 0");
}

#[test]
fn a_finish_in_the_design_is_told_apart_from_a_stop() {
    let (mut sim, clk) = common::sim();
    let order = sim.port("order").unwrap();
    sim.set(order, 2);
    assert!(matches!(sim.run_cycles(clk, 10), Err(SimError::Finished { .. })));
}

#[test]
fn a_combinational_loop_that_does_not_settle_is_an_error_not_a_hang() {
    let (mut sim, clk) = common::sim();
    let order = sim.port("order").unwrap();
    sim.set(order, 5);
    let error = sim.run_cycles(clk, 10).unwrap_err();
    assert!(matches!(&error, SimError::ModelFailed { message, .. } if message.contains("converge")), "{error}");
}

#[test]
fn what_the_design_prints_is_kept_with_simulated_time() {
    let (mut sim, clk) = common::sim();
    let [step, order] = ["step", "order"].map(|name| sim.port(name).unwrap());
    sim.set(step, 1);
    sim.set(order, 4);
    sim.run_cycles(clk, 2).unwrap();
    assert_eq!(sim.take_output(), ["hello from cycle 0 at 14000", "hello from cycle 1 at 18000"]);
    assert!(sim.take_output().is_empty());
}

#[test]
fn power_on_values_follow_the_seed() {
    let read = |power_on| {
        let sim = Sim::new(common::model(), power_on).unwrap();
        let port = sim.port("power_on").unwrap();
        sim.get(port)
    };
    let random: Vec<u64> = (0..8).map(|seed| read(PowerOn::Random { seed })).collect();
    let distinct: std::collections::BTreeSet<_> = random.iter().collect();
    assert_eq!(distinct.len(), 8, "{random:x?}");
    assert_eq!(read(PowerOn::Random { seed: 3 }), random[3]);
    assert_eq!((read(PowerOn::Zeros), read(PowerOn::Ones)), (0, 0xffff_ffff));
}

#[test]
fn an_unknown_port_is_answered_with_those_there_are() {
    let (sim, _) = common::sim();
    let text = sim.port("cuont").unwrap_err().to_string();
    assert!(text.contains("no port cuont") && text.contains("count"), "{text}");
    assert!(sim.clock("addend", Period::ps(10)).is_err());
    assert!(sim.clock("clk", Period::ps(10)).is_err());
}

#[test]
fn a_violation_reported_by_an_agent_ends_the_step() {
    let (mut sim, clk) = common::sim();
    sim.attach(clk, |io: &mut cocotb_rs::Io<'_>| {
        if io.cycle() == 8 {
            io.fail("eight is too much");
        }
    });
    let error = sim.run_cycles(clk, 20).unwrap_err();
    assert_eq!(error, SimError::Violation { time_ps: 30_000, message: "eight is too much".into() });
    assert_eq!(sim.cycle(clk), 8);
    sim.run_cycles(clk, 20).unwrap();
}
