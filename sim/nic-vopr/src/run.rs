//! One run: everything drawn from the seed, played to its end, judged.

use std::collections::BTreeMap;
use std::path::Path;

use nic_fabric::{Fabric, LinkId, LinkSelect, NodeId, Tap};
use nic_spec::csr::stats::Counter;
use serde::Serialize;

use crate::check::check_end;
use crate::draw::Draw;
use crate::faults::{draw_faults, Faults};
use crate::host::Host;
use crate::network::{draw_network, Network};
use crate::plan::Plan;
use crate::traffic::draw_plan;

const US: u64 = 1_000_000;
const MS: u64 = 1_000 * US;
/// How long after the last fault and the last request everything must be done: more than any timer that may be set.
const PATIENCE_PS: u64 = 2_000 * MS;
/// The same where a connection fails: its peer tries every route of every plane, seconds apart in the end.
const PATIENCE_WITH_FAILURES_PS: u64 = 400_000 * MS;
/// How long a plane that is well may be left unused.
const PLANE_RETURN_PS: u64 = 300 * MS;
/// How long nothing may happen before the end: far more than any timer of a connection that waits for something.
const STANDSTILL_PS: u64 = 20_000 * MS;
/// How long nothing more may happen after the end.
const SILENCE_PS: u64 = 20 * MS;

/// A part of what a seed stands for: what is left when a failing run was made smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Numbers of the faults that are kept; `None` keeps all.
    pub faults: Option<Vec<u64>>,
    /// Numbers of the connections that are kept; `None` keeps all.
    pub connections: Option<Vec<u64>>,
    /// Messages of each direction of a stream, at most.
    pub messages_max: u64,
}

impl Cut {
    /// Nothing is cut.
    pub const NONE: Cut = Cut { faults: None, connections: None, messages_max: u64::MAX };

    pub(crate) fn has_fault(&self, number: u64) -> bool {
        self.faults.as_ref().is_none_or(|kept| kept.contains(&number))
    }

    pub(crate) fn has_connection(&self, number: u64) -> bool {
        self.connections.as_ref().is_none_or(|kept| kept.contains(&number))
    }
}

/// What a seed stands for.
#[derive(Clone)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// How much of it.
    pub cut: Cut,
    /// Where.
    pub network: Network,
    /// What goes wrong.
    pub faults: Faults,
    /// What is done.
    pub plan: Plan,
}

impl Scenario {
    /// Draws it.
    pub fn draw(seed: u64) -> Scenario {
        Scenario::draw_cut(seed, &Cut::NONE)
    }

    /// Draws a part of it.
    pub fn draw_cut(seed: u64, cut: &Cut) -> Scenario {
        let network = draw_network(&mut Draw::new(seed, 0));
        let mut faults = draw_faults(&mut Draw::new(seed, 1), &network);
        let plan = draw_plan(seed, &network, &faults, cut);
        faults.keep(|number| cut.has_fault(number));
        Scenario { seed, cut: cut.clone(), network, faults, plan }
    }

    /// In words, a line each.
    pub fn describe(&self) -> Vec<String> {
        let head = [self.network.text.clone(), self.plan.text.clone()];
        head.into_iter().chain(self.faults.texts.clone()).collect()
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How to play it again, if something should not have happened.
    pub replay: Option<String>,
    /// Simulated time, picoseconds.
    pub simulated_ps: u64,
    /// Messages that were to be delivered.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Completions seen.
    pub completions: u64,
    /// Frames sent.
    pub frames: u64,
    /// Frames on links.
    pub link_hops: u64,
    /// Frames lost, for any cause.
    pub dropped: u64,
    /// Packets sent again because they were lost or late.
    pub retransmitted: u64,
    /// Paths that took another route.
    pub reaimed: u64,
    /// Counters of all cards together, those that are not 0.
    pub counters: BTreeMap<&'static str, u64>,
    /// A number that depends on everything the hosts saw and when.
    pub digest: u64,
    /// What should not have happened.
    pub violations: Vec<String>,
    /// The scenario, and the state it stopped in, if something should not have happened.
    pub story: Vec<String>,
}

impl Report {
    /// Nothing happened that should not have.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }
}

/// The command that plays a seed again.
pub fn replay(seed: u64, cut: &Cut) -> String {
    let mut command = format!("nicsim vopr --seed {seed} --runs 1");
    for (option, kept) in [("--only-faults", &cut.faults), ("--only-connections", &cut.connections)] {
        if let Some(kept) = kept {
            let kept: Vec<String> = kept.iter().map(u64::to_string).collect();
            let kept = if kept.is_empty() { "none".to_string() } else { kept.join(",") };
            command += &format!(" {option} {kept}");
        }
    }
    if cut.messages_max < u64::MAX {
        command += &format!(" --messages {}", cut.messages_max);
    }
    command
}

/// Plays a seed on so many threads; the report does not depend on their number.
///
/// With a folder, what passes the hosts' cables is written there as one pcap file per direction.
///
/// # Errors
/// A capture that could not be written. A run itself cannot fail: what goes wrong in it is in the report.
pub fn run_seed(seed: u64, threads: u16, captures: Option<&Path>) -> anyhow::Result<Report> {
    run_scenario(&Scenario::draw(seed), threads, captures)
}

/// As [`run_seed`] for a scenario that was drawn, or changed since.
///
/// # Errors
/// As [`run_seed`].
pub fn run_scenario(scenario: &Scenario, threads: u16, captures: Option<&Path>) -> anyhow::Result<Report> {
    let mut fabric = Fabric::with_threads(&scenario.network.topology, scenario.seed, threads)?;
    scenario.faults.apply(&mut fabric)?;
    if let Some(folder) = captures {
        capture(&mut fabric, &scenario.network, folder)?;
    }
    let hosts = scenario.plan.hosts.len() as u32;
    let calm_ps = Some(calm_ps(scenario)).filter(|_| !scenario.faults.is_lasting);
    for (number, plan) in (0..).zip(&scenario.plan.hosts) {
        let host = Host::new(number, plan.clone(), calm_ps).map_err(anyhow::Error::msg)?;
        fabric.attach(NodeId(number), host);
    }
    let mut violations = play(&mut fabric, scenario, hosts);
    if violations.is_empty() {
        violations = check_end(&fabric, scenario, hosts);
    }
    fabric.finish_captures()?;
    Ok(report(&fabric, scenario, hosts, violations))
}

fn capture(fabric: &mut Fabric, network: &Network, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let links = network.topology.select(&LinkSelect::HostUp).into_iter().map(|link| (link, Tap::Sent));
    let down = network.topology.select(&LinkSelect::HostDown).into_iter().map(|link| (link, Tap::Received));
    let links: Vec<(LinkId, Tap)> = links.chain(down).collect();
    for (link, tap) in links {
        let name = network.topology.link_name(link).replace("->", "-to-");
        let file = std::fs::File::create(folder.join(format!("{name}.pcap")))?;
        fabric.capture(link, tap, Box::new(std::io::BufWriter::new(file)))?;
    }
    Ok(())
}

/// When the last fault is over and the last request may be posted.
fn calm_ps(scenario: &Scenario) -> u64 {
    scenario.faults.end_ps.max(scenario.plan.end_ps)
}

/// Runs until all is done and stays so, something is wrong, or patience ends. Returns what is wrong.
fn play(fabric: &mut Fabric, scenario: &Scenario, hosts: u32) -> Vec<String> {
    let patience_ps = if scenario.plan.doomed_conns > 0 { PATIENCE_WITH_FAILURES_PS } else { PATIENCE_PS };
    let deadline_ps = calm_ps(scenario) + patience_ps;
    let mut slice_ps = 20 * US;
    let mut moved = (0, 0);
    loop {
        fabric.advance(fabric.now_ps() + slice_ps);
        if moved.0 != fabric.stats().sent {
            moved = (fabric.stats().sent, fabric.now_ps());
        }
        let host = |number| fabric.node::<Host>(NodeId(number)).expect("every host was attached");
        let violations: Vec<String> = (0..hosts).flat_map(|number| host(number).violations().to_vec()).collect();
        if !violations.is_empty() {
            return violations;
        }
        if (0..hosts).all(|number| host(number).is_done() && host(number).is_quiet()) {
            break;
        }
        let stands_still = fabric.now_ps() > calm_ps(scenario).max(moved.1) + STANDSTILL_PS;
        if fabric.now_ps() > deadline_ps || stands_still {
            let missing = |number: u32| host(number).missing().into_iter().map(move |what| (number, what));
            let missing = (0..hosts).flat_map(missing).map(|(number, what)| format!("host {number}: {what}"));
            return std::iter::once("not done in time".to_string()).chain(missing).collect();
        }
        // The longer it takes, the less often it matters when exactly it ends.
        slice_ps = (fabric.now_ps() / 8).clamp(20 * US, 50 * MS);
    }
    fabric.advance(fabric.now_ps() + SILENCE_PS);
    let planes_down = |fabric: &Fabric| -> Vec<String> {
        let of = |number| fabric.node::<Host>(NodeId(number)).map_or(Vec::new(), Host::planes_down);
        (0..hosts).flat_map(|number| of(number).into_iter().map(move |what| format!("host {number}: {what}"))).collect()
    };
    // Planes are probed at intervals; all of them are well again.
    if !scenario.faults.is_lasting && !planes_down(fabric).is_empty() {
        fabric.advance(fabric.now_ps() + PLANE_RETURN_PS);
    }
    let judged = (0..hosts)
        .flat_map(|number| fabric.node::<Host>(NodeId(number)).map_or(Vec::new(), |host| host.violations().to_vec()));
    let mut violations: Vec<String> = judged.collect();
    if !scenario.faults.is_lasting {
        violations.extend(planes_down(fabric));
    }
    violations
}

fn report(fabric: &Fabric, scenario: &Scenario, hosts: u32, violations: Vec<String>) -> Report {
    let nodes: Vec<&Host> = (0..hosts).filter_map(|number| fabric.node::<Host>(NodeId(number))).collect();
    let total = |counter: Counter| -> u64 { nodes.iter().map(|n| n.card().nic().counters().get(counter)).sum() };
    let stats = fabric.stats();
    let mut counters = BTreeMap::new();
    for (counter, value) in nodes.iter().flat_map(|node| node.card().nic().counters().non_zero()) {
        *counters.entry(counter.name()).or_insert(0) += value;
    }
    let mut story = Vec::new();
    if !violations.is_empty() {
        story = scenario.describe();
        for (number, node) in nodes.iter().enumerate() {
            story.extend(node.states().into_iter().map(|state| format!("host {number} {state}")));
        }
        story.push(format!("dropped: {}", stats.drops));
    }
    let digest = nodes.iter().fold(stats.delivered_bytes, |sum, node| sum.rotate_left(7) ^ node.digest());
    Report {
        seed: scenario.seed,
        replay: (!violations.is_empty()).then(|| replay(scenario.seed, &scenario.cut)),
        simulated_ps: fabric.now_ps(),
        messages: scenario.plan.hosts.iter().map(|host| host.tx_messages).sum(),
        bytes: scenario.plan.bytes,
        completions: nodes.iter().map(|node| node.completions()).sum(),
        frames: stats.sent,
        link_hops: stats.link_hops,
        dropped: stats.drops.total(),
        retransmitted: total(Counter::TxRtxGap) + total(Counter::TxRtxRto),
        reaimed: total(Counter::PathReaim),
        counters,
        digest,
        violations,
        story,
    }
}
