//! The fabric: a topology brought to life, driven to a time.
//!
//! A host is either a [`Node`] that is called ([`Fabric::attach`]) or is outside: its frames come in by
//! [`Fabric::inject`] and go out as the [`Delivery`]s of [`Fabric::advance`]. A simulation outside runs in windows no
//! longer than [`Fabric::lookahead_ps`]:
//!
//! ```text
//! loop: deliveries = fabric.advance(t + window)      // everything that arrives in (t, t + window]
//!       run every card from t to t + window with its deliveries, note what it sends and when
//!       fabric.inject(port, time, frame) for each    // up to lookahead in the past: it cannot have arrived yet
//!       t += window
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use pcap_file::PcapError;

use crate::address::AddressTable;
use crate::agenda::NEVER_PS;
use crate::engine::{Core, Net, ENTITY_COUNT_MAX};
use crate::frame::{Frame, FRAME_BYTES_MIN, WIRE_OVERHEAD_BYTES};
use crate::link::{RxLink, TxLink};
use crate::node::{Context, Node};
use crate::parallel;
use crate::pcap::{Capture, Tap};
use crate::queue::QueueSpec;
use crate::route::Routes;
use crate::rule::{Rule, RuleState};
use crate::schedule::{Outage, OutageLog};
use crate::seed::{stream, Purpose};
use crate::shard::Shard;
use crate::stats::{FabricStats, LinkStats};
use crate::sweep::Sides;
use crate::switch::Switch;
use crate::topology::{End, LinkId, LinkSelect, NodeId, Port, Topology};
use crate::TIME_PS_MAX;

/// A frame that reached a host outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// When its last bit arrived, picoseconds.
    pub time_ps: u64,
    /// Where.
    pub port: Port,
    /// What.
    pub frame: Frame,
}

/// What a driver asked for and cannot have.
#[derive(Debug)]
#[non_exhaustive]
pub enum FabricError {
    /// The frame would already have arrived: it was injected more than the lookahead too late.
    InjectTooLate {
        /// Time of the injection.
        time_ps: u64,
        /// Time the fabric has reached.
        now_ps: u64,
    },
    /// No host has this port.
    NoSuchPort(Port),
    /// A [`Node`] is attached to this host; only the node sends from it.
    NodeAttached(NodeId),
    /// A selection names no link.
    NoSuchLink(LinkSelect),
    /// The topology breaks a limit or contradicts itself.
    Topology(String),
    /// The outage begins before the time the fabric has reached, or ends before it begins.
    OutageTime {
        /// First picosecond of the outage.
        from_ps: u64,
        /// First picosecond after it.
        until_ps: u64,
        /// Time the fabric has reached.
        now_ps: u64,
    },
    /// A capture could not be written.
    Capture(PcapError),
}

impl std::fmt::Display for FabricError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FabricError::InjectTooLate { time_ps, now_ps } => {
                write!(f, "frame injected at {time_ps} ps would have arrived before {now_ps} ps (use shorter windows)")
            }
            FabricError::NoSuchPort(port) => write!(f, "host {} has no port {}", port.node.0, port.index),
            FabricError::NodeAttached(node) => write!(f, "host {} has a node attached (send from the node)", node.0),
            FabricError::NoSuchLink(select) => write!(f, "no link matches {select:?}"),
            FabricError::Topology(what) => write!(f, "{what}"),
            FabricError::OutageTime { from_ps, until_ps, now_ps } => {
                write!(
                    f,
                    "outage from {from_ps} ps to {until_ps} ps at {now_ps} ps (must begin later and end after it)"
                )
            }
            FabricError::Capture(error) => write!(f, "cannot write capture: {error}"),
        }
    }
}

impl std::error::Error for FabricError {}

impl From<PcapError> for FabricError {
    fn from(error: PcapError) -> FabricError {
        FabricError::Capture(error)
    }
}

/// Most hosts a topology may have: the default addresses have 16 bits for them.
pub const HOST_COUNT_MAX: usize = 65_534;

/// Longest delay of a link, picoseconds: a second.
pub const DELAY_PS_MAX: u64 = 1_000_000_000_000;

/// A network of links and switches with hosts at its edge.
pub struct Fabric {
    topology: Arc<Topology>,
    seed: u64,
    now_ps: u64,
    shards: Vec<Shard>,
    /// Shard of each node.
    shard_of: Vec<u16>,
    shard_lookahead_ps: u64,
    rule_counts: BTreeMap<LinkId, u32>,
    outages: OutageLog,
    link_names: BTreeMap<String, LinkId>,
}

impl Fabric {
    /// Makes a fabric at time 0 that runs on the caller's thread. Every host is outside until a node is attached.
    ///
    /// # Errors
    /// [`FabricError::Topology`] if a rate is 0, [`HOST_COUNT_MAX`] or [`DELAY_PS_MAX`] is exceeded, or a link has PFC without the
    /// real queues that needs.
    pub fn new(topology: &Topology, seed: u64) -> Result<Fabric, FabricError> {
        Fabric::with_threads(topology, seed, 1)
    }

    /// The same on several threads, with the same results. Worth it for large topologies driven by nodes: each call of
    /// [`Fabric::advance`] starts the threads anew.
    ///
    /// # Errors
    /// As [`Fabric::new`].
    pub fn with_threads(topology: &Topology, seed: u64, thread_count: u16) -> Result<Fabric, FabricError> {
        check(topology)?;
        let topology = Arc::new(topology.clone());
        let shard_count = thread_count.max(1);
        let shard_of = parallel::partition(&topology, shard_count);
        let (net, far_ports) = wire_up(&topology);
        let (net, routes) = (Arc::new(net), Arc::new(Routes::compute(&topology, |_| true)));
        let make_shard = |shard| {
            let mut core = Core::new(shard, shard_count, seed, net.clone(), routes.clone());
            for (link, &(node, port)) in (0..).zip(&far_ports) {
                let spec = topology.link_spec(LinkId(link));
                let ends = [far_ports[(link ^ 1) as usize].0, node];
                let shards = ends.map(|end| shard_of[end as usize]);
                core.tx.push(TxLink::new(spec, shards, || stream(seed, Purpose::Ecn, link, 0)));
                let pauses = node as usize >= topology.hosts.len();
                core.rx.push(RxLink::new(node, port, spec.pfc.filter(|_| pauses)));
            }
            let switches = (0..).zip(&topology.switches);
            core.switches = switches.map(|(index, spec)| Switch::new(seed, index, spec.forwarding)).collect();
            let sides = Sides::new(&topology, &shard_of, shard);
            Shard::new(core, topology.hosts.iter().map(|_| None).collect(), sides)
        };
        let links = (0..topology.link_count()).map(LinkId);
        Ok(Fabric {
            seed,
            now_ps: 0,
            shards: (0..shard_count).map(make_shard).collect(),
            shard_lookahead_ps: parallel::lookahead_ps(&topology, &shard_of),
            shard_of,
            rule_counts: BTreeMap::new(),
            outages: OutageLog::default(),
            link_names: topology.link_names().into_iter().zip(links).collect(),
            topology,
        })
    }

    /// Puts a node at a host and starts it.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn attach(&mut self, host: NodeId, node: impl Node) {
        let shard = self.shard_mut(host);
        shard.nodes[host.0 as usize] = Some(Box::new(node));
        shard.call(host.0, |node, ctx| node.on_start(ctx));
    }

    /// The node at a host, if it has this type.
    pub fn node<T: Node>(&self, host: NodeId) -> Option<&T> {
        let node = self.shards[self.shard_of[host.0 as usize] as usize].nodes[host.0 as usize].as_deref()?;
        node.as_any().downcast_ref()
    }

    /// Calls the node at a host, for instance to give it work. `None` if it does not have this type.
    pub fn call<T: Node, R>(&mut self, host: NodeId, f: impl FnOnce(&mut T, &mut Context<'_>) -> R) -> Option<R> {
        self.shard_mut(host).call(host.0, |node, ctx| Some(f(node.as_any_mut().downcast_mut()?, ctx)))?
    }

    /// Lets a frame enter at a host outside. `time_ps` is when the NIC has it ready: its first bit leaves then, or
    /// after the frames injected before. May lie before [`Fabric::now_ps`] as long as the frame would still be on its
    /// first cable, and that has no classes.
    ///
    /// # Errors
    /// [`FabricError::InjectTooLate`], [`FabricError::NoSuchPort`], [`FabricError::NodeAttached`].
    pub fn inject(&mut self, port: Port, time_ps: u64, frame: Frame) -> Result<(), FabricError> {
        let now_ps = self.now_ps;
        let host = port.node.0 as usize;
        if host >= self.topology.hosts.len() {
            return Err(FabricError::NoSuchPort(port));
        }
        let shard = self.shard_mut(port.node);
        if port.index >= shard.core.net.port_count(port.node.0) {
            return Err(FabricError::NoSuchPort(port));
        }
        if shard.nodes[host].is_some() {
            return Err(FabricError::NodeAttached(port.node));
        }
        let link = shard.core.net.out_link(port.node.0, port.index);
        let was_down = self.outages.was_down(link / 2, time_ps, now_ps);
        let shard = self.shard_mut(port.node);
        if time_ps > now_ps {
            shard.core.inject_later(link, time_ps, frame);
            return Ok(());
        }
        let tx = &shard.core.tx[link as usize];
        if tx.queue.is_some() && time_ps < now_ps {
            return Err(FabricError::InjectTooLate { time_ps, now_ps });
        }
        let departure_ps = tx.free_at_ps.max(time_ps) + tx.serialisation_ps(frame.wire_bytes());
        if departure_ps + tx.delay_ps <= now_ps {
            return Err(FabricError::InjectTooLate { time_ps, now_ps });
        }
        if was_down {
            shard.core.enter_down(link, frame);
        } else {
            shard.core.enter(link, frame, time_ps);
        }
        Ok(())
    }

    /// Runs every event up to and including `until_ps`, and returns what reached hosts outside, by time, then port.
    pub fn advance(&mut self, until_ps: u64) -> Vec<Delivery> {
        let deliveries = self.run_events(until_ps);
        self.set_now(until_ps.clamp(self.now_ps, TIME_PS_MAX));
        deliveries
    }

    /// Runs until nothing is left to happen, or to `limit_ps`. Time stops at the last event, not at the limit.
    pub fn run_until_idle(&mut self, limit_ps: u64) -> Vec<Delivery> {
        let deliveries = self.run_events(limit_ps);
        let last_ps = self.shards.iter().map(|shard| shard.core.now_ps).max();
        self.set_now(last_ps.unwrap_or(self.now_ps));
        deliveries
    }

    fn run_events(&mut self, until_ps: u64) -> Vec<Delivery> {
        let until_ps = until_ps.min(TIME_PS_MAX);
        match &mut self.shards[..] {
            [shard] => shard.run_until(until_ps),
            shards => {
                parallel::exchange(shards);
                parallel::run_until(shards, until_ps, self.shard_lookahead_ps);
            }
        }
        let mut deliveries = Vec::new();
        self.shards.iter_mut().for_each(|shard| deliveries.append(&mut shard.core.deliveries));
        deliveries.sort_by_key(|delivery: &Delivery| (delivery.time_ps, delivery.port));
        deliveries
    }

    fn set_now(&mut self, now_ps: u64) {
        self.now_ps = now_ps;
        self.shards.iter_mut().for_each(|shard| shard.core.now_ps = now_ps);
    }

    /// Time the fabric has reached, picoseconds.
    pub fn now_ps(&self) -> u64 {
        self.now_ps
    }

    /// Time of the next event; `None` if nothing will happen any more.
    pub fn next_event_ps(&mut self) -> Option<u64> {
        parallel::exchange(&mut self.shards);
        let first_ps = self.shards.iter().map(|shard| shard.core.agenda.first_ps()).min();
        first_ps.filter(|first_ps| *first_ps != NEVER_PS)
    }

    /// Longest window in which hosts outside may run ahead: no frame, however short, crosses its first cable faster.
    pub fn lookahead_ps(&self) -> u64 {
        let shortest = u64::from(FRAME_BYTES_MIN + WIRE_OVERHEAD_BYTES);
        let links = self.topology.select(&LinkSelect::HostUp);
        let crossing = |link: LinkId| {
            let spec = self.topology.link_spec(link);
            spec.delay_ps + spec.serialisation_ps(shortest) - 1
        };
        links.into_iter().map(crossing).min().unwrap_or(u64::MAX)
    }

    /// Puts a rule on every link of a selection; each link gets its own counters and random stream.
    ///
    /// # Errors
    /// [`FabricError::NoSuchLink`] if the selection is empty.
    pub fn add_rule(&mut self, select: &LinkSelect, rule: Rule) -> Result<(), FabricError> {
        for link in self.select(select)? {
            let count = self.rule_counts.entry(link).or_insert(0);
            let rng = stream(self.seed, Purpose::Rule, link.0, *count);
            *count += 1;
            self.tx_mut(link).extra_mut().rules.push(RuleState::new(rule.clone(), rng));
        }
        Ok(())
    }

    /// Removes every rule from the links of a selection.
    ///
    /// # Errors
    /// [`FabricError::NoSuchLink`] if the selection is empty.
    pub fn clear_rules(&mut self, select: &LinkSelect) -> Result<(), FabricError> {
        for link in self.select(select)? {
            self.tx_mut(link).extra_mut().rules.clear();
        }
        Ok(())
    }

    /// Takes the cables of a selection down for a time.
    ///
    /// # Errors
    /// [`FabricError::NoSuchLink`] if the selection is empty, [`FabricError::OutageTime`].
    pub fn schedule(&mut self, outage: &Outage) -> Result<(), FabricError> {
        let Outage { from_ps, until_ps, .. } = *outage;
        if from_ps <= self.now_ps && self.now_ps > 0 || until_ps <= from_ps {
            return Err(FabricError::OutageTime { from_ps, until_ps, now_ps: self.now_ps });
        }
        let cables: BTreeSet<u32> = self.select(&outage.select)?.into_iter().map(|link| link.0 / 2).collect();
        for cable in cables {
            self.outages.add(cable, from_ps, until_ps);
            self.shards.iter_mut().for_each(|shard| shard.core.schedule_outage(cable, from_ps, until_ps));
        }
        Ok(())
    }

    /// Writes what passes one end of a link to a nanosecond pcap file. One capture per link and end.
    ///
    /// # Errors
    /// [`FabricError::Capture`] if the file header cannot be written.
    pub fn capture(&mut self, link: LinkId, tap: Tap, writer: Box<dyn Write + Send>) -> Result<(), FabricError> {
        let capture = Capture::new(writer)?;
        match tap {
            Tap::Sent => self.tx_mut(link).extra_mut().capture = Some(capture),
            Tap::Received => {
                let node = self.topology.node_of(self.topology.ends(link).1);
                self.shard_mut(node).core.rx[link.0 as usize].capture = Some(Box::new(capture));
            }
        }
        Ok(())
    }

    /// Flushes and closes every capture.
    ///
    /// # Errors
    /// [`FabricError::Capture`] with the first error any capture met in its life.
    pub fn finish_captures(&mut self) -> Result<(), FabricError> {
        let mut result = Ok(());
        for core in self.shards.iter_mut().map(|shard| &mut shard.core) {
            let sent = core.tx.iter_mut().filter_map(|tx| tx.extra.as_mut()?.capture.take());
            let received = core.rx.iter_mut().filter_map(|rx| rx.capture.take()).map(|capture| *capture);
            for closed in sent.chain(received).map(Capture::close) {
                result = result.and(closed);
            }
        }
        result.map_err(FabricError::Capture)
    }

    /// Makes switches send frames for this address to a host, in addition to its default addresses.
    pub fn bind_address(&mut self, host: NodeId, address: IpAddr) {
        let mut net = Net::clone(&self.shards[0].core.net);
        net.addresses.insert_ip(address, host.0);
        let net = Arc::new(net);
        self.shards.iter_mut().for_each(|shard| shard.core.net = net.clone());
    }

    /// Whether the cable at a host's port is up; false if there is no such port.
    pub fn port_is_up(&self, port: Port) -> bool {
        let Some(host_shard) = self.shard_of.get(port.node.0 as usize) else { return false };
        let core = &self.shards[*host_shard as usize].core;
        port.index < core.net.port_count(port.node.0)
            && !core.tx[core.net.out_link(port.node.0, port.index) as usize].is_down()
    }

    /// The link with this name.
    pub fn link_named(&self, name: &str) -> Option<LinkId> {
        self.link_names.get(name).copied()
    }

    /// The topology the fabric was made of.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Counters of the whole fabric.
    pub fn stats(&self) -> FabricStats {
        let mut stats = FabricStats::default();
        for core in self.shards.iter().map(|shard| &shard.core) {
            stats.merge(&core.stats);
            stats.in_flight += core.in_flight_count();
        }
        stats
    }

    /// Counters of one link.
    pub fn link_stats(&self, link: LinkId) -> LinkStats {
        let mut stats = self.tx(link).stats();
        let owner = self.tx_shard(link);
        // What other shards lost of this link's frames on arrival, they counted themselves.
        for (_, shard) in self.shards.iter().enumerate().filter(|(index, _)| *index != owner) {
            stats.drops.merge(&shard.core.tx[link.0 as usize].stats.drops);
        }
        stats
    }

    /// Bytes of line time that wait in front of a link now, the rest of the frame being sent included.
    pub fn link_backlog_bytes(&self, link: LinkId) -> u64 {
        let tx = self.tx(link);
        tx.bytes_in(tx.backlog_ps(self.now_ps))
    }

    fn select(&self, select: &LinkSelect) -> Result<Vec<LinkId>, FabricError> {
        let links = self.topology.select(select);
        if links.is_empty() {
            return Err(FabricError::NoSuchLink(select.clone()));
        }
        Ok(links)
    }

    fn tx_shard(&self, link: LinkId) -> usize {
        self.shard_of[self.topology.node_of(self.topology.ends(link).0).0 as usize] as usize
    }

    fn tx(&self, link: LinkId) -> &TxLink {
        &self.shards[self.tx_shard(link)].core.tx[link.0 as usize]
    }

    fn tx_mut(&mut self, link: LinkId) -> &mut TxLink {
        let shard = self.tx_shard(link);
        &mut self.shards[shard].core.tx[link.0 as usize]
    }

    fn shard_mut(&mut self, node: NodeId) -> &mut Shard {
        &mut self.shards[self.shard_of[node.0 as usize] as usize]
    }
}

fn check(topology: &Topology) -> Result<(), FabricError> {
    let fail = |message: String| Err(FabricError::Topology(message));
    if topology.hosts.len() > HOST_COUNT_MAX {
        return fail(format!("{} hosts, at most {HOST_COUNT_MAX}", topology.hosts.len()));
    }
    if topology.cables.len() >= ENTITY_COUNT_MAX as usize / 2 {
        return fail(format!("{} cables, fewer than {}", topology.cables.len(), ENTITY_COUNT_MAX / 2));
    }
    let has_classes = |link: LinkId| topology.link_spec(link).queue != QueueSpec::VirtualFifo;
    let links = || (0..topology.link_count()).map(LinkId);
    let names = topology.link_names();
    for link in links() {
        let (spec, name) = (topology.link_spec(link), &names[link.0 as usize]);
        if spec.rate_mbps == 0 {
            return fail(format!("link {name} has rate 0"));
        }
        if spec.delay_ps > DELAY_PS_MAX {
            return fail(format!("link {name} has a delay of {} ps, at most {DELAY_PS_MAX}", spec.delay_ps));
        }
        let (End::Switch(_), Some(pfc)) = (topology.ends(link).1, spec.pfc) else { continue };
        if pfc.xon_bytes > pfc.xoff_bytes {
            return fail(format!(
                "link {name} resumes above {} bytes but pauses above {}",
                pfc.xon_bytes, pfc.xoff_bytes
            ));
        }
        let leaves_switch = |other: &LinkId| topology.ends(*other).0 == topology.ends(link).1;
        if let Some(other) =
            std::iter::once(link).chain(links().filter(leaves_switch)).find(|other| !has_classes(*other))
        {
            return fail(format!("link {name} has PFC, so link {} needs classes", names[other.0 as usize]));
        }
    }
    Ok(())
}

/// Numbers the ports. Returns the net, and for each link the node and port at its far end.
fn wire_up(topology: &Arc<Topology>) -> (Net, Vec<(u32, u16)>) {
    let node_count = topology.hosts.len() + topology.switches.len();
    let mut ports: Vec<Vec<u32>> = vec![Vec::new(); node_count];
    let mut far_ports = vec![(0, 0); topology.link_count() as usize];
    for link in 0..topology.link_count() {
        let (from, _) = topology.ends(LinkId(link));
        let node = topology.node_of(from);
        // The far end of the opposite direction is the near end of this one.
        far_ports[(link ^ 1) as usize] = (node.0, ports[node.0 as usize].len() as u16);
        ports[node.0 as usize].push(link);
    }
    let mut addresses = AddressTable::default();
    for (host, entry) in (0..).zip(&topology.hosts) {
        entry.addresses.iter().for_each(|address| addresses.insert_ip(*address, host));
        entry.macs.iter().for_each(|mac| addresses.insert_mac(*mac, host));
    }
    let mut port_start = vec![0];
    let mut port_links = Vec::new();
    for links in ports {
        port_links.extend(links);
        port_start.push(port_links.len() as u32);
    }
    let host_count = topology.hosts.len() as u32;
    (Net { host_count, port_start, port_links, addresses, topology: topology.clone() }, far_ports)
}
