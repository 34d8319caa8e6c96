//! Short runs whose seeds are fixed, and what the judge makes of runs in which something is wrong.

use nic_model::work::CqeOp;
use nic_spec::desc::Status;
use nic_vopr::plan::{Act, Begin, ConnPlan, Fate, HostPlan, Queue};
use nic_vopr::{replay, run_scenario, run_seed, Cut, Scenario};

/// Seeds that any change must pass. Each takes some tens of milliseconds.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=20;

fn check(seed: u64) {
    let report = run_seed(seed, 1, None).expect("nothing is written");
    assert!(report.is_good(), "{:#?}\n{:#?}\nreplay: {}", report.violations, report.story, replay(seed, &Cut::NONE));
}

#[test]
fn promises_hold_in_random_networks_with_random_faults() {
    SEEDS.for_each(check);
}

#[test]
fn promises_hold_for_the_seeds_that_once_found_a_bug() {
    let lines = include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#'));
    let seeds = lines.map(|line| line.split_whitespace().next().and_then(|seed| seed.parse().ok()));
    seeds.for_each(|seed| check(seed.expect("a seed at the start of the line")));
}

#[test]
fn a_run_is_the_same_every_time_and_on_two_threads() {
    for seed in [3, 8] {
        let report = run_seed(seed, 1, None).expect("nothing is written");
        assert_eq!(
            report,
            run_seed(seed, 1, None).expect("nothing is written"),
            "replay: {}",
            replay(seed, &Cut::NONE)
        );
        assert_eq!(
            report,
            run_seed(seed, 2, None).expect("nothing is written"),
            "replay: {}",
            replay(seed, &Cut::NONE)
        );
    }
}

/// Some minutes of CPU time: `RUN_SLOW=1`.
#[test]
fn promises_hold_for_a_thousand_seeds() {
    if std::env::var_os("RUN_SLOW").is_none() {
        return eprintln!("skipped: a thousand runs take some minutes; set RUN_SLOW=1");
    }
    for seed in 100_000..101_000 {
        check(seed);
        if seed % 10 == 0 {
            let reports = [1, 2].map(|threads| run_seed(seed, threads, None).expect("nothing is written"));
            assert_eq!(reports[0], reports[1], "replay: {}", replay(seed, &Cut::NONE));
        }
    }
}

/// A scenario in which a host that expects many completions has a connection that lives.
fn scenario() -> (Scenario, usize) {
    let busy = |scenario: &Scenario| {
        let hosts = scenario.plan.hosts.iter();
        hosts.enumerate().max_by_key(|(_, host)| host.expected.len()).map_or(0, |(number, _)| number)
    };
    let mut scenarios = (1..).map(Scenario::draw);
    let fits = |scenario: &Scenario| {
        let host = &scenario.plan.hosts[busy(scenario)];
        scenario.plan.doomed_conns == 0 && host.expected.len() > 30 && host.fates.contains(&Fate::Lives)
    };
    let scenario = scenarios.find(fits).expect("one of all seeds");
    let host = busy(&scenario);
    (scenario, host)
}

/// The scenario is good as it is, and with this change the judge says this.
fn finds(change: impl FnOnce(&mut Scenario, usize), complaint: &str) {
    let (mut scenario, host) = scenario();
    change(&mut scenario, host);
    let report = run_scenario(&scenario, 1, None).expect("nothing is written");
    let is_found = report.violations.iter().any(|what| what.contains(complaint));
    assert!(is_found, "no {complaint:?} in {:#?}, seed {}", report.violations, scenario.seed);
}

/// A queue with several completions that must come, and their places in it.
fn busy_queue(queues: &[Queue], is_signaled: impl Fn(usize) -> bool) -> (usize, Vec<usize>) {
    let places = |queue: &Queue| -> Vec<usize> {
        (0..queue.order.len()).filter(|place| is_signaled(queue.order[*place])).collect()
    };
    let ordered = queues.iter().enumerate().filter(|(_, queue)| !queue.is_unordered);
    ordered.map(|(number, queue)| (number, places(queue))).max_by_key(|(_, places)| places.len()).expect("queues")
}

#[test]
fn a_byte_that_should_be_another_is_found() {
    finds(
        |scenario, host| {
            let plan = &mut scenario.plan.hosts[host];
            let last = plan.image.len() - 1;
            plan.image[last] ^= 1;
        },
        "byte 0x",
    );
}

#[test]
fn a_completion_out_of_order_is_found() {
    finds(
        |scenario, host| {
            let plan = &mut scenario.plan.hosts[host];
            let (queue, places) = busy_queue(&plan.queues, |index| plan.expected[index].is_signaled);
            plan.queues[queue].order.swap(places[0], places[1]);
        },
        "came before",
    );
}

#[test]
fn a_completion_that_does_not_come_is_found() {
    finds(
        |scenario, host| {
            let plan = &mut scenario.plan.hosts[host];
            let extra = plan.expected[0].clone();
            plan.expected.push(nic_vopr::plan::Expected { is_signaled: true, ..extra });
        },
        "not done in time",
    );
}

#[test]
fn a_completion_with_other_contents_is_found() {
    finds(
        |scenario, host| {
            let plan = &mut scenario.plan.hosts[host];
            let index = plan.expected.iter().position(|e| e.is_signaled).expect("one");
            plan.expected[index].byte_len += 1;
        },
        "expected Expected",
    );
}

#[test]
fn a_failure_that_nobody_asked_for_is_found() {
    let mut scenarios = (1..).map(Scenario::draw);
    let is_bad = |scenario: &Scenario| scenario.plan.hosts.iter().any(|host| host.expected.iter().any(|e| e.is_bad));
    let mut scenario = scenarios.find(is_bad).expect("one of all seeds");
    scenario.plan.hosts.iter_mut().flat_map(|host| &mut host.conns).for_each(|conn| conn.reasons = &[]);
    let report = run_scenario(&scenario, 1, None).expect("nothing is written");
    assert!(report.violations.iter().any(|what| what.contains("ConnError")), "{:#?}", report.violations);
}

#[test]
fn everything_that_is_done_from_outside_is_drawn() {
    let mut drawn = [0; 7];
    // Without messages, which take the time.
    let cut = Cut { messages_max: 0, ..Cut::NONE };
    for scenario in (1..=60).map(|seed| Scenario::draw_cut(seed, &cut)) {
        for host in &scenario.plan.hosts {
            for (_, act) in &host.acts {
                match act {
                    Act::Close { .. } => drawn[0] += 1,
                    Act::Churn => drawn[1] += 1,
                    Act::Revoke { .. } => drawn[2] += 1,
                    _ => {}
                }
            }
            drawn[3] += usize::from(!host.used_rows.is_empty());
            for conn in &host.conns {
                drawn[4] += usize::from(conn.reasons == [Status::LocProt]);
                drawn[5] += usize::from(matches!(conn.begin, Begin::Asks { may_be_full: true, .. }));
                drawn[6] += usize::from(!conn.bounded.is_empty());
            }
        }
    }
    assert!(drawn.iter().all(|count| *count >= 2), "{drawn:?}");
}

#[test]
fn a_message_beyond_the_credit_is_found() {
    let is_bounded = |conn: &ConnPlan| !conn.bounded.is_empty();
    let takes_receives = |scenario: &Scenario| {
        let of = |host: &HostPlan| {
            host.expected.iter().any(|e| {
                let conn = &host.conns[e.conn];
                let is_ordinal = e.tag.is_none() && matches!(e.op, CqeOp::Recv | CqeOp::RecvImm);
                is_ordinal && conn.bounded.iter().any(|(stream, _)| *stream == e.stream)
            })
        };
        scenario.plan.doomed_conns == 0 && scenario.plan.hosts.iter().any(of)
    };
    let mut scenario = (1..).map(Scenario::draw).find(takes_receives).expect("one of all seeds");
    // The judge is told that the first receive comes later than it does.
    let conns = scenario.plan.hosts.iter_mut().flat_map(|host| &mut host.conns);
    for (_, first) in conns.filter(|conn| is_bounded(conn)).flat_map(|conn| &mut conn.bounded) {
        *first += 1;
    }
    let report = run_scenario(&scenario, 1, None).expect("nothing is written");
    assert!(report.violations.iter().any(|what| what.contains("a message for receive")), "{:#?}", report.violations);
}
