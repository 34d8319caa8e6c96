//! A network from a TOML file: shape, links, switches, rules, outages, captures.
//!
//! Units are in the names of the keys, every number is whole, and a key that does not exist is an error, so a typing
//! error cannot become a default. The README lists the keys. [`NetworkPlan::build`] makes the fabric.

use std::fs::File;
use std::io::BufWriter;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::fabric::{Fabric, FabricError, HOST_COUNT_MAX};
use crate::link::{Ecn, LinkSpec};
use crate::pcap::Tap;
use crate::queue::{Pfc, QueueSpec};
use crate::rule::{Action, Matcher, Rule, Verdict};
use crate::schedule::Outage;
use crate::shape::{FatTree, LeafSpine, PlaneLinks};
use crate::spray::Forwarding;
use crate::topology::{LinkSelect, Topology};
use crate::{PS_PER_NS, PS_PER_US};

/// Everything a file says about a network.
#[derive(Clone)]
pub struct NetworkPlan {
    /// The graph.
    pub topology: Topology,
    /// Rules, in the order they are asked.
    pub rules: Vec<(LinkSelect, Rule)>,
    /// Failures.
    pub outages: Vec<Outage>,
    /// Captures: link name, end, file.
    pub captures: Vec<(String, Tap, PathBuf)>,
}

/// Why a file does not describe a network.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is not TOML, has a key that does not exist, or a value of the wrong type. Says line and column.
    Syntax(toml::de::Error),
    /// The values do not fit together.
    Meaning(String),
    /// The fabric refuses it.
    Fabric(FabricError),
    /// A capture file cannot be created.
    File(PathBuf, std::io::Error),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::Syntax(error) => write!(f, "{error}"),
            ConfigError::Meaning(what) => write!(f, "{what}"),
            ConfigError::Fabric(error) => write!(f, "{error}"),
            ConfigError::File(path, error) => write!(f, "cannot create {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<FabricError> for ConfigError {
    fn from(error: FabricError) -> ConfigError {
        ConfigError::Fabric(error)
    }
}

impl NetworkPlan {
    /// Reads a file's text.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`], [`ConfigError::Meaning`].
    pub fn from_toml(text: &str) -> Result<NetworkPlan, ConfigError> {
        let file: FileToml = toml::from_str(text).map_err(ConfigError::Syntax)?;
        file.into_plan()
    }

    /// Makes the fabric, with its rules, outages and captures. Paths of captures are relative to `directory`.
    ///
    /// # Errors
    /// [`ConfigError::Fabric`], [`ConfigError::File`], [`ConfigError::Meaning`] if a capture names no link.
    pub fn build(&self, seed: u64, thread_count: u16, directory: &Path) -> Result<Fabric, ConfigError> {
        let mut fabric = Fabric::with_threads(&self.topology, seed, thread_count)?;
        for (select, rule) in &self.rules {
            fabric.add_rule(select, rule.clone())?;
        }
        for outage in &self.outages {
            fabric.schedule(outage)?;
        }
        for (name, tap, path) in &self.captures {
            let no_link = || ConfigError::Meaning(format!("capture of {name}: there is no such link"));
            let link = fabric.link_named(name).ok_or_else(no_link)?;
            let path = directory.join(path);
            let file = File::create(&path).map_err(|error| ConfigError::File(path, error))?;
            fabric.capture(link, *tap, Box::new(BufWriter::new(file)))?;
        }
        Ok(fabric)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileToml {
    topology: ShapeToml,
    host_link: LinkToml,
    core_link: Option<LinkToml>,
    /// Links of single planes, where they differ.
    #[serde(default)]
    plane: Vec<PlaneToml>,
    /// Links of single paths of `parallel-paths`, where they differ.
    #[serde(default)]
    path: Vec<LinkToml>,
    #[serde(default)]
    switch: SwitchToml,
    /// Changes to links by name or place.
    #[serde(default)]
    link: Vec<LinkChangeToml>,
    #[serde(default)]
    rule: Vec<RuleToml>,
    #[serde(default)]
    outage: Vec<OutageToml>,
    #[serde(default)]
    capture: Vec<CaptureToml>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum ShapeToml {
    PointToPoint {},
    ParallelPaths {
        paths: usize,
    },
    LeafSpine {
        leaves: u32,
        hosts_per_leaf: u32,
        spines: u32,
        #[serde(default = "one")]
        planes: usize,
    },
    FatTree {
        arity: u32,
        #[serde(default = "one")]
        planes: usize,
    },
}

fn one() -> usize {
    1
}

#[derive(Deserialize, Clone, Default)]
#[serde(deny_unknown_fields)]
struct LinkToml {
    rate_mbps: Option<u64>,
    delay_ns: Option<u64>,
    buffer_bytes: Option<u64>,
    ecn: Option<EcnToml>,
    control_buffer_bytes: Option<u64>,
    pfc: Option<PfcToml>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct EcnToml {
    min_bytes: u64,
    max_bytes: Option<u64>,
    max_ppm: Option<u32>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct PfcToml {
    xoff_bytes: u64,
    xon_bytes: u64,
    headroom_bytes: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaneToml {
    plane: usize,
    host_link: Option<LinkToml>,
    core_link: Option<LinkToml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkChangeToml {
    select: String,
    change: LinkToml,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct SwitchToml {
    #[serde(default)]
    latency_ns: u64,
    #[serde(default)]
    forwarding: ForwardingToml,
    #[serde(default)]
    control_dscps: Vec<u8>,
    reroute_after_us: Option<u64>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum ForwardingToml {
    #[default]
    Ecmp,
    Random,
    RoundRobin,
    LeastBacklog,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleToml {
    select: String,
    #[serde(default)]
    from_us: u64,
    until_us: Option<u64>,
    #[serde(rename = "match", default)]
    matcher: MatcherToml,
    action: ActionToml,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct MatcherToml {
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
    src_port: Option<u16>,
    dst_port: Option<u16>,
    dscp: Option<u8>,
    min_bytes: Option<usize>,
    max_bytes: Option<usize>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum ActionToml {
    Loss {
        ppm: u32,
    },
    Burst {
        to_bad_ppm: u32,
        to_good_ppm: u32,
        #[serde(default)]
        good_loss_ppm: u32,
        #[serde(default = "certain")]
        bad_loss_ppm: u32,
    },
    Corrupt {
        ppm: u32,
        #[serde(default)]
        is_found_by_fcs: bool,
    },
    Duplicate {
        ppm: u32,
        delay_ns: u64,
    },
    Delay {
        ppm: u32,
        min_ns: u64,
        max_ns: u64,
    },
    DropNth {
        first: u64,
        #[serde(default = "one_frame")]
        count: u64,
    },
}

fn certain() -> u32 {
    1_000_000
}

fn one_frame() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutageToml {
    select: String,
    from_us: u64,
    until_us: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaptureToml {
    link: String,
    tap: TapToml,
    file: PathBuf,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum TapToml {
    Sent,
    Received,
}

impl FileToml {
    fn into_plan(self) -> Result<NetworkPlan, ConfigError> {
        let mut topology = self.shape()?.with_switch_latency_ps(ps_of_ns(self.switch.latency_ns));
        for change in &self.link {
            let links = topology.select(&change.select.as_str().into());
            if links.is_empty() {
                return meaning(format!("[[link]] select = \"{}\" matches no link", change.select));
            }
            for link in links {
                change.change.apply(topology.link_spec_mut(link));
            }
        }
        topology = topology.with_forwarding(match self.switch.forwarding {
            ForwardingToml::Ecmp => Forwarding::Ecmp,
            ForwardingToml::Random => Forwarding::Random,
            ForwardingToml::RoundRobin => Forwarding::RoundRobin,
            ForwardingToml::LeastBacklog => Forwarding::LeastBacklog,
        });
        for dscp in &self.switch.control_dscps {
            if *dscp > 63 {
                return meaning(format!("control_dscps has {dscp}, a DSCP is at most 63"));
            }
            topology = topology.with_control_dscp(*dscp);
        }
        topology.reroute_after_ps = self.switch.reroute_after_us.map(ps_of_us);
        let tap = |tap| match tap {
            TapToml::Sent => Tap::Sent,
            TapToml::Received => Tap::Received,
        };
        Ok(NetworkPlan {
            topology,
            rules: self.rule.iter().map(|rule| (rule.select.as_str().into(), rule.rule())).collect(),
            outages: self.outage.iter().map(OutageToml::outage).collect(),
            captures: self.capture.into_iter().map(|entry| (entry.link, tap(entry.tap), entry.file)).collect(),
        })
    }

    fn shape(&self) -> Result<Topology, ConfigError> {
        let host = self.host_link.spec("[host_link]")?;
        let core = self.core_link.as_ref();
        let need_core = || core.ok_or_else(|| ConfigError::Meaning("this topology needs [core_link]".into()));
        let is_paths = matches!(self.topology, ShapeToml::ParallelPaths { .. });
        if !self.path.is_empty() && !is_paths {
            return meaning("[[path]] belongs to kind = \"parallel-paths\"".into());
        }
        match self.topology {
            ShapeToml::PointToPoint {} => Ok(Topology::point_to_point(&host)),
            ShapeToml::ParallelPaths { paths } => {
                if self.path.len() > paths {
                    return meaning(format!("{} [[path]] entries for {paths} paths", self.path.len()));
                }
                let path = |index: usize| {
                    let own = self.path.get(index).cloned().unwrap_or_default();
                    own.over(need_core()?).spec("[core_link]")
                };
                Ok(Topology::parallel_paths(&host, &(0..paths).map(path).collect::<Result<Vec<_>, _>>()?))
            }
            ShapeToml::LeafSpine { leaves: leaf_count, hosts_per_leaf, spines: spine_count, planes } => {
                check_host_count(u64::from(leaf_count) * u64::from(hosts_per_leaf))?;
                let planes = self.planes(planes, need_core()?)?;
                Ok(Topology::leaf_spine(&LeafSpine { leaf_count, hosts_per_leaf, spine_count, planes }))
            }
            ShapeToml::FatTree { arity, planes } => {
                if arity == 0 || arity % 2 != 0 {
                    return meaning(format!("arity = {arity}, a fat tree needs an even number of ports"));
                }
                check_host_count(u64::from(arity).saturating_pow(3) / 4)?;
                Ok(Topology::fat_tree(&FatTree { arity, planes: self.planes(planes, need_core()?)? }))
            }
        }
    }

    fn planes(&self, count: usize, core: &LinkToml) -> Result<Vec<PlaneLinks>, ConfigError> {
        if let Some(entry) = self.plane.iter().find(|entry| entry.plane >= count) {
            return meaning(format!("[[plane]] {} of {count} planes", entry.plane));
        }
        let plane = |index: usize| {
            let own = self.plane.iter().find(|entry| entry.plane == index);
            let merge = |own: Option<&LinkToml>, common: &LinkToml| own.cloned().unwrap_or_default().over(common);
            Ok(PlaneLinks {
                host: merge(own.and_then(|entry| entry.host_link.as_ref()), &self.host_link).spec("[host_link]")?,
                core: merge(own.and_then(|entry| entry.core_link.as_ref()), core).spec("[core_link]")?,
            })
        };
        (0..count).map(plane).collect()
    }
}

fn check_host_count(count: u64) -> Result<(), ConfigError> {
    if count > HOST_COUNT_MAX as u64 {
        return meaning(format!("a topology of {count} hosts, at most {HOST_COUNT_MAX}"));
    }
    Ok(())
}

/// Times that do not fit become the end of time, and the checks of the fabric speak of them.
fn ps_of_ns(ns: u64) -> u64 {
    ns.saturating_mul(PS_PER_NS)
}

fn ps_of_us(us: u64) -> u64 {
    us.saturating_mul(PS_PER_US)
}

fn meaning<T>(what: String) -> Result<T, ConfigError> {
    Err(ConfigError::Meaning(what))
}

impl LinkToml {
    /// This, and where it says nothing, `other`.
    fn over(self, other: &LinkToml) -> LinkToml {
        LinkToml {
            rate_mbps: self.rate_mbps.or(other.rate_mbps),
            delay_ns: self.delay_ns.or(other.delay_ns),
            buffer_bytes: self.buffer_bytes.or(other.buffer_bytes),
            ecn: self.ecn.or(other.ecn),
            control_buffer_bytes: self.control_buffer_bytes.or(other.control_buffer_bytes),
            pfc: self.pfc.or(other.pfc),
        }
    }

    fn spec(&self, place: &str) -> Result<LinkSpec, ConfigError> {
        let (Some(rate_mbps), Some(delay_ns)) = (self.rate_mbps, self.delay_ns) else {
            return meaning(format!("{place} needs rate_mbps and delay_ns"));
        };
        let mut spec = LinkSpec::new(rate_mbps, ps_of_ns(delay_ns));
        self.apply(&mut spec);
        Ok(spec)
    }

    /// Changes what is said here.
    fn apply(&self, spec: &mut LinkSpec) {
        spec.rate_mbps = self.rate_mbps.unwrap_or(spec.rate_mbps);
        spec.delay_ps = self.delay_ns.map_or(spec.delay_ps, ps_of_ns);
        spec.buffer_bytes = self.buffer_bytes.unwrap_or(spec.buffer_bytes);
        if let Some(EcnToml { min_bytes, max_bytes, max_ppm }) = self.ecn {
            let max_bytes = max_bytes.unwrap_or(min_bytes);
            spec.ecn = Some(Ecn { min_bytes, max_bytes, max_ppm: max_ppm.unwrap_or(1_000_000) });
        }
        if let Some(control_buffer_bytes) = self.control_buffer_bytes {
            spec.queue = QueueSpec::Classes { control_buffer_bytes };
        }
        if let Some(PfcToml { xoff_bytes, xon_bytes, headroom_bytes }) = self.pfc {
            spec.pfc = Some(Pfc { xoff_bytes, xon_bytes, headroom_bytes });
        }
    }
}

impl RuleToml {
    fn rule(&self) -> Rule {
        let action = match self.action {
            ActionToml::Loss { ppm } => Action::Loss { ppm },
            ActionToml::Burst { to_bad_ppm, to_good_ppm, good_loss_ppm, bad_loss_ppm } => {
                Action::Burst { to_bad_ppm, to_good_ppm, good_loss_ppm, bad_loss_ppm }
            }
            ActionToml::Corrupt { ppm, is_found_by_fcs } => Action::Corrupt { ppm, is_found_by_fcs },
            ActionToml::Duplicate { ppm, delay_ns } => Action::Duplicate { ppm, delay_ps: ps_of_ns(delay_ns) },
            ActionToml::Delay { ppm, min_ns, max_ns } => {
                Action::Delay { ppm, min_ps: ps_of_ns(min_ns), max_ps: ps_of_ns(max_ns) }
            }
            ActionToml::DropNth { first, count } => Action::Nth { first, count, verdict: Verdict::Drop },
        };
        let until_ps = self.until_us.map_or(u64::MAX, ps_of_us);
        Rule::new(action).matching(self.matcher.matcher()).during(ps_of_us(self.from_us), until_ps)
    }
}

impl MatcherToml {
    fn matcher(&self) -> Matcher {
        let has_length = self.min_bytes.is_some() || self.max_bytes.is_some();
        Matcher {
            src: self.src,
            dst: self.dst,
            src_port: self.src_port.map(|port| port..=port),
            dst_port: self.dst_port.map(|port| port..=port),
            dscp: self.dscp,
            len_bytes: has_length.then(|| self.min_bytes.unwrap_or(0)..=self.max_bytes.unwrap_or(usize::MAX)),
            predicate: None,
        }
    }
}

impl OutageToml {
    fn outage(&self) -> Outage {
        let until_ps = self.until_us.map_or(u64::MAX, ps_of_us);
        Outage::new(self.select.as_str().into(), ps_of_us(self.from_us), until_ps)
    }
}
