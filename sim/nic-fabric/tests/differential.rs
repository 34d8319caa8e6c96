//! Whatever a network is like and whatever happens in it: neither threads nor steps nor the length of a sweep change it.

mod chance;
mod traffic;

use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};

use chance::{below, Chatter, Step, Tape};
use nic_fabric::{Delivery, DropCause, Fabric, FabricStats, LinkId, LinkSpec, LinkStats, NodeId, Topology};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use traffic::assert_conserved;

/// How the same run is done.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// 0 as well as 1 is the thread of the test.
    thread_count: u16,
    /// How far time goes between two steps of the driver.
    pace: Pace,
    /// An unused cable without length beside the network: no node is served for longer than the shortest frame takes.
    has_short_cable: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Pace {
    /// As far as it can.
    #[default]
    Whole,
    /// In many parts.
    Parts,
    /// From event to event.
    Events,
}

/// Everything that can be seen of a run.
#[derive(PartialEq, Debug)]
struct Outcome {
    stats: FabricStats,
    links: Vec<LinkStats>,
    deliveries: Vec<Delivery>,
    /// What the fabric said to each step of the driver, and how it stood then.
    answers: Vec<(String, FabricStats, Option<u64>)>,
    logs: Vec<Vec<(u64, u64)>>,
    captures: Vec<Vec<u8>>,
    end_ps: u64,
}

struct Scenario {
    seed: u64,
    topology: Topology,
    unit_ps: u64,
    script: Vec<(u64, Step)>,
}

impl Scenario {
    fn new(seed: u64) -> Scenario {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // The line time of a short frame at 400 Gb/s, or any time.
        let unit_ps = chance::pick(&mut rng, &[84 * 20, 2_050 + 84 * 20, 10_000, 1_000_000]);
        let topology = chance::topology(&mut rng, unit_ps);
        let script = chance::script(&mut rng, &topology, unit_ps);
        Scenario { seed, topology, unit_ps, script }
    }

    fn run(&self, way: Way) -> Outcome {
        let mut topology = self.topology.clone();
        if way.has_short_cable {
            let [a, b] = [(); 2].map(|()| topology.add_host());
            topology.add_cable(a, b, &LinkSpec::new(80_000_000, 0), 77);
            let added = topology.hosts.iter_mut().skip(self.topology.hosts.len());
            added.for_each(|host| (host.addresses, host.macs) = (Vec::new(), Vec::new()));
        }
        let mut fabric = Fabric::with_threads(&topology, self.seed, way.thread_count).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let (mut deliveries, mut answers, mut tapes) = (Vec::new(), Vec::new(), Vec::<Tape>::new());
        for (at_ps, step) in &self.script {
            advance(&mut fabric, *at_ps, way.pace, self.unit_ps, &mut rng, &mut deliveries);
            let answer = chance::play(&mut fabric, step, self.unit_ps, &mut tapes);
            answers.push((answer, fabric.stats(), fabric.next_event_ps()));
        }
        if let Pace::Events = way.pace {
            while let Some(next_ps) = fabric.next_event_ps() {
                deliveries.extend(fabric.advance(next_ps));
            }
        }
        deliveries.extend(fabric.run_until_idle(u64::MAX));
        assert_conserved(&fabric);
        assert_eq!(fabric.next_event_ps(), None);
        fabric.finish_captures().unwrap();
        let hosts = (0..self.topology.hosts.len() as u32).map(NodeId);
        Outcome {
            stats: fabric.stats(),
            links: (0..self.topology.link_count()).map(|link| fabric.link_stats(LinkId(link))).collect(),
            deliveries,
            answers,
            logs: hosts.map(|host| fabric.node(host).map_or(Vec::new(), |node: &Chatter| node.log.clone())).collect(),
            captures: tapes.iter().map(|tape| tape.0.lock().unwrap().clone()).collect(),
            end_ps: fabric.now_ps(),
        }
    }
}

fn advance(
    fabric: &mut Fabric,
    to_ps: u64,
    pace: Pace,
    part_ps: u64,
    rng: &mut ChaCha8Rng,
    deliveries: &mut Vec<Delivery>,
) {
    while fabric.now_ps() < to_ps {
        let left_ps = to_ps - fabric.now_ps();
        let until_ps = match pace {
            Pace::Whole => to_ps,
            Pace::Parts => fabric.now_ps() + below(rng, left_ps.min(part_ps)) + 1,
            Pace::Events => fabric.next_event_ps().map_or(to_ps, |next_ps| next_ps.min(to_ps)),
        };
        deliveries.extend(fabric.advance(until_ps));
        assert_conserved(fabric);
        if let (Pace::Events, true) = (pace, until_ps == to_ps) {
            return;
        }
    }
}

/// Compares the ways of many runs. `FABRIC_SEEDS=7..8` replays one, `FABRIC_SEEDS=0..100000` looks for another.
fn assert_same(usual: Range<u64>, ways: &[Way]) -> Vec<Outcome> {
    let seeds = std::env::var("FABRIC_SEEDS").ok().and_then(|range| {
        let (from, to) = range.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    let outcomes = seeds.unwrap_or(usual).map(|seed| {
        let scenario = Scenario::new(seed);
        let command = format!("FABRIC_SEEDS={seed}..{} cargo test -p nic-fabric --test differential", seed + 1);
        let run = |way: Way| {
            let outcome = catch_unwind(AssertUnwindSafe(|| scenario.run(way)));
            outcome.unwrap_or_else(|_| panic!("{command}: {way:?}"))
        };
        let reference = run(Way::default());
        for way in ways {
            let replay = format!("{command}: {way:?}");
            let outcome = run(*way);
            assert_eq!(outcome.stats, reference.stats, "{replay}");
            assert_eq!(outcome.links, reference.links, "{replay}");
            let differs = outcome.answers.iter().zip(&reference.answers).position(|(one, other)| one != other);
            if let Some(at) = differs {
                assert_eq!(outcome.answers[at], reference.answers[at], "{replay}, step {at}");
            }
            assert_eq!(outcome.end_ps, reference.end_ps, "{replay}");
            assert!(outcome == reference, "{replay}");
        }
        reference
    });
    let outcomes: Vec<_> = outcomes.collect();
    outcomes
}

/// Asserts that in some run there was what could make a difference.
fn assert_eventful(outcomes: &[Outcome]) {
    let count = |of: &dyn Fn(&FabricStats) -> bool| outcomes.iter().filter(|outcome| of(&outcome.stats)).count();
    let causes = DropCause::ALL.into_iter().filter(|cause| *cause != DropCause::Custom);
    let absent: Vec<DropCause> = causes.filter(|cause| count(&|stats| stats.drops.count(*cause) > 0) == 0).collect();
    assert_eq!(absent, []);
    assert!(count(&|stats| stats.pauses > 20) > 1 && count(&|stats| stats.duplicated > 5) > 1);
    assert!(count(&|stats| stats.ecn_marked > 5) > 1 && count(&|stats| stats.delivered > 500) > 1);
    assert!(outcomes.iter().any(|outcome| outcome.captures.iter().any(|capture| capture.len() > 1_000)));
    assert!(outcomes.iter().any(|outcome| outcome.deliveries.len() > 100));
}

#[test]
fn threads_change_nothing() {
    let ways = [2, 3, 5].map(|thread_count| Way { thread_count, ..Way::default() });
    _ = assert_same(0..5, &ways);
}

#[test]
fn steps_change_nothing() {
    let ways = [Pace::Parts, Pace::Events].map(|pace| Way { pace, ..Way::default() });
    assert_eventful(&assert_same(100..160, &ways));
}

#[test]
fn length_of_a_sweep_changes_nothing() {
    let ways = [Pace::Whole, Pace::Parts].map(|pace| Way { pace, has_short_cable: true, ..Way::default() });
    assert_eventful(&assert_same(200..260, &ways));
}
