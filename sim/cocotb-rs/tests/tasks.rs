//! Tasks, triggers and what they exchange.

mod common;

use cocotb_rs::{both, combine, either, first, Either, Event, Queue, SimError};
use std::{future::Future, pin::Pin};

type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

#[test]
fn combine_waits_for_all_and_first_for_one() {
    let (mut sim, clk) = common::sim();
    let (handle, start) = (sim.handle(), sim.cycle(clk));
    let (all, one, pair, left) = sim
        .block_on(async move {
            let all = {
                let list: Vec<Boxed<u64>> = vec![
                    Box::pin({
                        let h = handle.clone();
                        async move {
                            h.cycles(clk, 5).await;
                            h.cycle(clk) - start
                        }
                    }),
                    Box::pin({
                        let h = handle.clone();
                        async move {
                            h.timer_ps(8000).await;
                            h.cycle(clk) - start
                        }
                    }),
                    Box::pin(async { 77 }),
                ];
                combine(list).await
            };
            let one = first([handle.cycles(clk, 3), handle.cycles(clk, 2), handle.cycles(clk, 2)]).await;
            let pair = both(handle.cycles(clk, 2), async { "now" }).await;
            let left = either(handle.timer_ps(1), handle.rising(clk)).await;
            (all, one.0, pair.1, (left, handle.cycle(clk) - start))
        })
        .unwrap();
    assert_eq!((all, one, pair), (vec![5, 2, 77], 1, "now"));
    assert_eq!(left, (Either::Left(()), 5 + 2 + 2));
}

#[test]
fn tasks_wake_in_the_order_in_which_they_began_to_wait() {
    let run = || {
        let (mut sim, clk) = common::sim();
        let log = Queue::new();
        for name in 0..6_u64 {
            let (handle, log) = (sim.handle(), log.clone());
            sim.spawn(async move {
                loop {
                    handle.cycles(clk, 1 + name % 3).await;
                    log.push((handle.cycle(clk), name));
                }
            });
        }
        sim.run_cycles(clk, 60).unwrap();
        log.drain()
    };
    let log = run();
    assert_eq!(log.len(), 2 * (60 + 30 + 20));
    assert_eq!(log[..3], [(4, 0), (4, 3), (5, 0)]);
    assert!((0..3).all(|_| run() == log));
}

#[test]
fn an_item_reaches_a_waiting_task_at_the_edge_at_which_it_is_pushed() {
    let (mut sim, clk) = common::sim();
    let (queue, event) = (Queue::new(), Event::new());
    let (handle, items, done) = (sim.handle(), queue.clone(), event.clone());
    let reader = sim.spawn(async move {
        let mut seen = Vec::new();
        for _ in 0..3 {
            let item: u64 = items.pop().await;
            seen.push((item, handle.cycle(clk)));
        }
        done.set();
        seen
    });
    let handle = sim.handle();
    sim.spawn(async move {
        for _ in 0..3 {
            handle.cycles(clk, 4).await;
            queue.push(handle.cycle(clk));
        }
    });
    sim.block_on(event.wait()).unwrap();
    assert_eq!(sim.block_on(reader).unwrap(), [(7, 7), (11, 11), (15, 15)]);
}

#[test]
fn a_timer_that_loses_leaves_no_event_behind() {
    let mut sim = cocotb_rs::Sim::new(common::model(), cocotb_rs::PowerOn::Zeros).unwrap();
    let handle = sim.handle();
    let forever = async move {
        for _ in 0..100 {
            assert_eq!(either(handle.timer_ps(1_000_000), handle.timer_ps(1)).await, Either::Right(()));
        }
        std::future::pending::<()>().await;
    };
    assert_eq!(sim.block_on(forever), Err(SimError::Deadlock));
    assert_eq!(sim.now_ps(), 100, "the times of the losers were never visited");
}

#[test]
fn a_future_that_never_completes_hits_the_limit() {
    let (mut sim, _) = common::sim();
    sim.set_limit_cycles(100);
    assert_eq!(sim.block_on(std::future::pending::<()>()), Err(SimError::LimitReached { limit_cycles: 100 }));
}

#[test]
fn waiting_without_clock_and_timer_is_a_deadlock_not_a_hang() {
    let mut sim = cocotb_rs::Sim::new(common::model(), cocotb_rs::PowerOn::Zeros).unwrap();
    assert_eq!(sim.block_on(std::future::pending::<()>()), Err(SimError::Deadlock));
    assert_eq!(sim.step(), Err(SimError::Deadlock));
    let handle = sim.handle();
    sim.block_on(async move { handle.timer_ps(500).await }).unwrap();
    assert_eq!(sim.now_ps(), 500);
}

#[test]
fn a_task_that_fails_ends_the_step_and_dropping_the_simulation_drops_the_tasks() {
    let (mut sim, clk) = common::sim();
    let token = std::rc::Rc::new(());
    let (handle, held) = (sim.handle(), token.clone());
    sim.spawn(async move {
        let _held = held;
        handle.cycles(clk, 2).await;
        handle.fail("the answer is wrong");
        std::future::pending::<()>().await;
    });
    let error = sim.run_cycles(clk, 10).unwrap_err();
    assert_eq!(error, SimError::Violation { time_ps: 18_000, message: "the answer is wrong".into() });
    assert_eq!(std::rc::Rc::strong_count(&token), 2);
    drop(sim);
    assert_eq!(std::rc::Rc::strong_count(&token), 1);
}
