//! One run: one case of a plan with one transport, and everything that is known of it afterwards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use nic_baseline::Roce;
use nic_fabric::workload::{Action, Endpoint, MessageId, Workload, WorkloadHost, NEVER_PS};
use nic_fabric::{Fabric, FabricStats, LinkSelect, NetworkPlan, NodeId, QueueSpec, Topology};
use serde::Deserialize;

use crate::model;
use crate::path::floor;
use crate::plan::PlanError;
use crate::series::{rate_mbps, Lookout, Series};
use crate::transport::TransportSpec;

/// RoCEv2's line time besides payload: Ethernet, IPv4, UDP, BTH, ICRC, preamble, FCS and gap.
const ROCE_OVERHEAD_BYTES: u64 = 14 + 20 + 8 + 12 + 4 + 24;

/// What is sampled host by host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watch {
    /// The host whose connections are sampled one by one.
    pub receiver: u32,
    /// The host whose first connection's windows are sampled.
    pub sender: u32,
}

/// Everything a run depends on.
#[derive(Clone)]
pub struct RunSpec {
    /// Name of the case.
    pub case: String,
    /// Name of the transport.
    pub transport: String,
    /// Root of every random choice.
    pub seed: u64,
    /// Simulated time at which the run is given up, picoseconds.
    pub limit_ps: u64,
    /// Time between two samples, picoseconds.
    pub sample_ps: u64,
    /// What is sampled host by host.
    pub watch: Watch,
    /// The network.
    pub network: NetworkPlan,
    /// The workload.
    pub workload: Arc<Workload>,
    /// The NICs.
    pub spec: TransportSpec,
}

impl std::fmt::Debug for RunSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RunSpec {{ case: {:?}, transport: {:?} }}", self.case, self.transport)
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Name of the case.
    pub case: String,
    /// Name of the transport.
    pub transport: String,
    /// Root of every random choice.
    pub seed: u64,
    /// Whether every message arrived before the limit.
    pub is_complete: bool,
    /// Messages that NICs gave up.
    pub failed_messages: u64,
    /// When the last message was where it goes, or when the run was given up, picoseconds.
    pub duration_ps: u64,
    /// Bytes of the messages that arrived.
    pub bytes: u64,
    /// No NIC with this framing finishes sooner, picoseconds.
    pub floor_ps: u64,
    /// Per message that arrived the time from its start, picoseconds, ascending.
    pub completion_ps: Vec<u64>,
    /// Counters of the network.
    pub stats: FabricStats,
    /// Deepest queue of any switch, bytes of line time.
    pub queue_bytes_max: u64,
    /// Counters of the NICs, summed.
    pub counters: BTreeMap<&'static str, u64>,
    /// What was sampled.
    pub series: Series,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunProgress {
    /// Steps of the workload that are done.
    pub done_steps: u64,
    /// All steps.
    pub all_steps: u64,
    /// Simulated time, picoseconds.
    pub now_ps: u64,
}

impl Run {
    /// Payload that arrived per time, megabits per second.
    pub fn goodput_mbps(&self) -> u64 {
        rate_mbps(self.bytes, self.duration_ps)
    }

    /// The same if the run had taken no longer than its floor.
    pub fn floor_goodput_mbps(&self) -> u64 {
        rate_mbps(self.bytes, self.floor_ps)
    }

    /// The time within which so many of a million messages were complete, picoseconds.
    pub fn completion_ps_at(&self, ppm: u64) -> Option<u64> {
        let count = self.completion_ps.len() as u64;
        let rank = (count * ppm).div_ceil(1_000_000).max(1);
        self.completion_ps.get(rank as usize - 1).copied()
    }
}

/// Plays a run. Captures of the network go to `directory`.
///
/// # Errors
/// [`PlanError`] if the network cannot be made.
pub fn run(
    spec: &RunSpec,
    directory: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(RunProgress),
) -> Result<Run, PlanError> {
    let place = format!("case \"{}\", transport \"{}\"", spec.case, spec.transport);
    let mut fabric = spec
        .network
        .build(spec.seed, 1, directory)
        .map_err(|source| PlanError::Network { place: place.clone(), source })?;
    let topology = &spec.network.topology;
    let workload = &spec.workload;
    let result = match &spec.spec {
        TransportSpec::Metaroce(model) => {
            let cards = model::cards(model, topology, workload)
                .map_err(|error| PlanError::Syntax { place, message: error.to_string() })?;
            let limit = floor(topology, workload, 1 << model.pmtu_log2(), model::OVERHEAD_BYTES);
            play(spec, &mut fabric, cards, limit.duration_ps(workload), stop, progress)
        }
        TransportSpec::Rocev2(roce) => {
            let (rate_mbps, is_lossless) = host_port(topology);
            let config = roce.config(rate_mbps, is_lossless);
            let limit = floor(topology, workload, config.pmtu_bytes.into(), ROCE_OVERHEAD_BYTES);
            let cards = (0..workload.host_count())
                .map(|host| Roce::new(config.clone(), workload, host, port_count(topology, host)))
                .collect();
            play(spec, &mut fabric, cards, limit.duration_ps(workload), stop, progress)
        }
    };
    fabric.finish_captures().map_err(|error| PlanError::Network {
        place: format!("case \"{}\", transport \"{}\"", spec.case, spec.transport),
        source: error.into(),
    })?;
    Ok(result)
}

/// Rate of a host's port, and whether it has classes.
fn host_port(topology: &Topology) -> (u64, bool) {
    let uplinks = topology.select(&LinkSelect::HostUp);
    let specs = || uplinks.iter().map(|link| topology.link_spec(*link));
    let is_lossless = specs().all(|spec| spec.queue != QueueSpec::VirtualFifo);
    (specs().map(|spec| spec.rate_mbps).max().unwrap_or(1), is_lossless)
}

fn port_count(topology: &Topology, host: u32) -> u16 {
    let uplinks = topology.select(&LinkSelect::HostUp);
    uplinks.iter().filter(|link| topology.node_of(topology.ends(**link).0) == NodeId(host)).count() as u16
}

fn play<E: Endpoint>(
    spec: &RunSpec,
    fabric: &mut Fabric,
    cards: Vec<E>,
    floor_ps: u64,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(RunProgress),
) -> Run {
    let workload = &spec.workload;
    let hosts: Vec<u32> =
        (0..workload.host_count()).filter(|host| !workload.connections_of(*host).is_empty()).collect();
    for (host, card) in (0..).zip(cards).filter(|(host, _)| !workload.connections_of(*host).is_empty()) {
        fabric.attach(NodeId(host), WorkloadHost::new(workload.clone(), host, card));
    }
    let all_steps: u64 = hosts.iter().map(|host| workload.steps_of(*host).len() as u64).sum();
    let lookout = Lookout::new(fabric);
    let mut series = Series::new(spec.sample_ps);
    loop {
        let next_ps = fabric.now_ps() + series.interval_ps;
        fabric.advance(next_ps.min(spec.limit_ps));
        let mut sample = lookout.look(fabric);
        let mut open_steps = 0;
        for host in &hosts {
            let Some(node) = fabric.node::<WorkloadHost<E>>(NodeId(*host)) else { continue };
            open_steps += node.player().open_count() as u64;
            let connections = 0..workload.connections_of(*host).len() as u32;
            let received = connections.map(|connection| node.endpoint().received_bytes(connection));
            if *host == spec.watch.receiver {
                sample.flow_bytes = received.collect();
                sample.received_bytes += sample.flow_bytes.iter().sum::<u64>();
            } else {
                sample.received_bytes += received.sum::<u64>();
            }
            if *host == spec.watch.sender {
                node.endpoint().gauges(0, &mut sample.paths);
            }
        }
        series.push(sample);
        progress(RunProgress { done_steps: all_steps - open_steps, all_steps, now_ps: fabric.now_ps() });
        let is_over = open_steps == 0 || fabric.now_ps() >= spec.limit_ps || fabric.next_event_ps().is_none();
        if is_over || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    finish::<E>(spec, fabric, &hosts, floor_ps, series, &lookout)
}

fn finish<E: Endpoint>(
    spec: &RunSpec,
    fabric: &Fabric,
    hosts: &[u32],
    floor_ps: u64,
    series: Series,
    lookout: &Lookout,
) -> Run {
    let workload = &spec.workload;
    let mut times = vec![None; workload.steps().len()];
    let mut counters: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut failed_messages = 0;
    for host in hosts {
        let Some(node) = fabric.node::<WorkloadHost<E>>(NodeId(*host)) else { continue };
        failed_messages += node.failed().len() as u64;
        node.endpoint().counters(&mut |name, value| *counters.entry(name).or_insert(0) += value);
        for (step, entry) in workload.steps_of(*host).zip(node.player().times()) {
            times[step as usize] = Some(*entry);
        }
    }
    let done = |step: usize| times[step].map_or(0, |entry| entry.done_ps);
    let mut completion_ps = Vec::new();
    let mut bytes = 0;
    for (index, message) in (0..).zip(workload.messages()) {
        let (moved, arrived) = (workload.moving_step(MessageId(index)), workload.arrival_step(MessageId(index)));
        let started_ps = times[moved.0 as usize].map_or(NEVER_PS, |entry| entry.started_ps);
        let arrived_ps = done(arrived.0 as usize);
        if started_ps != NEVER_PS && arrived_ps != NEVER_PS {
            completion_ps.push(arrived_ps.saturating_sub(started_ps));
            bytes += message.bytes;
        }
    }
    completion_ps.sort_unstable();
    // The acknowledgement of a message is not part of what the workload is for.
    let counted = |step: &usize| !matches!(workload.steps()[*step].action, Action::Send(_));
    let last_ps = (0..workload.steps().len()).filter(counted).map(done).max().unwrap_or(0);
    let is_complete = last_ps != NEVER_PS && completion_ps.len() == workload.messages().len();
    Run {
        case: spec.case.clone(),
        transport: spec.transport.clone(),
        seed: spec.seed,
        is_complete,
        failed_messages,
        duration_ps: if is_complete { last_ps } else { fabric.now_ps() },
        bytes,
        floor_ps,
        completion_ps,
        stats: fabric.stats(),
        queue_bytes_max: lookout.queue_bytes_max(fabric),
        counters,
        series,
    }
}
