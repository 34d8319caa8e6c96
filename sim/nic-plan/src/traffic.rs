//! The `[workload]` of a plan.

use std::path::{Path, PathBuf};

use nic_fabric::workload::{
    chakra, goal, htsim, msccl, Builder, Collective, CollectiveKind, ParseError, Queue, Workload, MESSAGE_BYTES_MAX,
};
use serde::Deserialize;

use crate::plan::PlanError;

/// A workload, described.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum TrafficSpec {
    /// Ring all-reduce.
    RingAllReduce(Members),
    /// All-reduce by two binary trees.
    TreeAllReduce(Members),
    /// All-gather by a ring.
    AllGather(Members),
    /// Reduce-scatter by a ring.
    ReduceScatter(Members),
    /// Everyone to everyone else.
    AllToAll(Members),
    /// Everyone to one other, at random.
    Permutation {
        /// How many hosts, from the first on; all by default.
        hosts: Option<u32>,
        message_bytes: u64,
        #[serde(default = "one")]
        count: u32,
        #[serde(default)]
        depth: u32,
    },
    /// Many to one.
    Incast {
        /// How many sources: the hosts after the destination.
        sources: u32,
        #[serde(default)]
        destination: u32,
        message_bytes: u64,
        #[serde(default = "one")]
        count: u32,
        #[serde(default)]
        depth: u32,
    },
    /// Clients, the first hosts, read from all servers, the hosts after them.
    Reads {
        #[serde(default = "one")]
        clients: u32,
        servers: u32,
        message_bytes: u64,
        #[serde(default = "one")]
        count: u32,
        #[serde(default)]
        depth: u32,
    },
    /// Messages between given pairs.
    Pairs {
        pairs: Vec<[u32; 2]>,
        message_bytes: u64,
        #[serde(default = "one")]
        count: u32,
        #[serde(default)]
        depth: u32,
    },
    /// An htsim connection matrix.
    Htsim { file: PathBuf },
    /// A GOAL schedule.
    Goal { file: PathBuf },
    /// An MSCCL algorithm, for a buffer of so many bytes.
    Msccl { file: PathBuf, bytes: u64 },
    /// Chakra traces, one for each rank or one for all.
    Chakra {
        files: Vec<PathBuf>,
        ranks: u32,
        #[serde(default = "one")]
        slices: u32,
    },
}

/// Keys of the collectives.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Members {
    /// How many hosts, from the first on; all by default.
    hosts: Option<u32>,
    /// Member `i` is host `i * stride` modulo the number of hosts, so that neighbours in a ring are on different leaves.
    #[serde(default = "one")]
    stride: u32,
    /// Buffer; for all-to-all, what goes to each other member.
    bytes: u64,
    #[serde(default = "one")]
    slices: u32,
    #[serde(default = "one_stream")]
    streams: u16,
    /// All-to-all: messages of a member under way at once; 0 is no limit.
    #[serde(default)]
    depth: u32,
}

fn one() -> u32 {
    1
}

fn one_stream() -> u16 {
    1
}

impl TrafficSpec {
    /// Makes the workload for a network of so many hosts.
    pub(crate) fn make(
        &self,
        host_count: u32,
        seed: u64,
        directory: &Path,
        place: &str,
    ) -> Result<Workload, PlanError> {
        let wrong = |message: String| PlanError::Syntax { place: format!("{place}: [workload]"), message };
        let parsed = |source: ParseError| PlanError::Workload { place: place.into(), source };
        let mut builder = Builder::new(host_count);
        let need = |what: &str, hosts: u64| {
            if hosts > u64::from(host_count) {
                return Err(wrong(format!("{what} in a network of {host_count} hosts")));
            }
            Ok(())
        };
        let queue = |message_bytes: u64, count: u32, depth: u32| {
            if message_bytes > MESSAGE_BYTES_MAX {
                return Err(wrong(format!("message_bytes = {message_bytes}, at most {MESSAGE_BYTES_MAX}")));
            }
            Ok(Queue { message_bytes, count, depth, stream: 0 })
        };
        match self {
            TrafficSpec::RingAllReduce(members) => {
                members.add(&mut builder, CollectiveKind::RingAllReduce).map_err(wrong)?
            }
            TrafficSpec::TreeAllReduce(members) => {
                members.add(&mut builder, CollectiveKind::TreeAllReduce).map_err(wrong)?
            }
            TrafficSpec::AllGather(members) => members.add(&mut builder, CollectiveKind::AllGather).map_err(wrong)?,
            TrafficSpec::ReduceScatter(members) => {
                members.add(&mut builder, CollectiveKind::ReduceScatter).map_err(wrong)?
            }
            TrafficSpec::AllToAll(members) => {
                members.add(&mut builder, CollectiveKind::AllToAll { depth: members.depth }).map_err(wrong)?;
            }
            TrafficSpec::Permutation { hosts, message_bytes, count, depth } => {
                let hosts = hosts.unwrap_or(host_count);
                need(&format!("{hosts} hosts"), hosts.into())?;
                let hosts: Vec<u32> = (0..hosts).collect();
                queue(*message_bytes, *count, *depth)?.permutation(&mut builder, &hosts, seed);
            }
            TrafficSpec::Incast { sources, destination, message_bytes, count, depth } => {
                need(&format!("host {destination}"), u64::from(*destination) + 1)?;
                need(&format!("{sources} sources and a destination"), u64::from(*sources) + 1)?;
                let sources: Vec<u32> = (1..=*sources).map(|step| (destination + step) % host_count).collect();
                queue(*message_bytes, *count, *depth)?.incast(&mut builder, &sources, *destination);
            }
            TrafficSpec::Reads { clients, servers, message_bytes, count, depth } => {
                need(&format!("{clients} clients and {servers} servers"), u64::from(*clients) + u64::from(*servers))?;
                let (clients, servers): (Vec<u32>, Vec<u32>) = (0..clients + servers).partition(|host| host < clients);
                queue(*message_bytes, *count, *depth)?.fan_in(&mut builder, &servers, &clients);
            }
            TrafficSpec::Pairs { pairs, message_bytes, count, depth } => {
                let queue = queue(*message_bytes, *count, *depth)?;
                for [src, dst] in pairs {
                    [src, dst].into_iter().try_for_each(|host| need(&format!("host {host}"), u64::from(*host) + 1))?;
                    queue.write(&mut builder, *src, *dst);
                }
            }
            TrafficSpec::Htsim { file } => {
                let (name, text) = read_text(directory, file)?;
                return htsim::parse(&name, &text)
                    .map_err(parsed)
                    .and_then(|workload| fits(workload, host_count, place));
            }
            TrafficSpec::Goal { file } => {
                let (name, text) = read_text(directory, file)?;
                return goal::parse(&name, &text)
                    .map_err(parsed)
                    .and_then(|workload| fits(workload, host_count, place));
            }
            TrafficSpec::Msccl { file, bytes } => {
                let (name, text) = read_text(directory, file)?;
                return msccl::parse(&name, &text, *bytes)
                    .map_err(parsed)
                    .and_then(|workload| fits(workload, host_count, place));
            }
            TrafficSpec::Chakra { files, ranks, slices } => {
                let contents: Vec<(String, Vec<u8>)> =
                    files.iter().map(|file| read_bytes(directory, file)).collect::<Result<_, _>>()?;
                let files: Vec<(&str, &[u8])> =
                    contents.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
                let options = chakra::Options { slices: *slices, rank_count: *ranks };
                return chakra::parse(&files, options)
                    .map_err(parsed)
                    .and_then(|workload| fits(workload, host_count, place));
            }
        }
        builder.build().map_err(|source| PlanError::Steps { place: place.into(), source })
    }
}

impl Members {
    fn add(&self, builder: &mut Builder, kind: CollectiveKind) -> Result<(), String> {
        let all = builder.host_count();
        let count = self.hosts.unwrap_or(all);
        if count > all || count < 2 {
            return Err(format!("{count} hosts of a network of {all} (a collective needs at least 2)"));
        }
        let group: Vec<u32> =
            (0..count).map(|member| (u64::from(member) * u64::from(self.stride) % u64::from(count)) as u32).collect();
        let mut sorted = group.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != group.len() {
            return Err(format!("stride = {} and {count} hosts have a common divisor", self.stride));
        }
        let (bytes, slices, streams) = (self.bytes, self.slices, self.streams);
        Collective { kind, group: &group, bytes, slices, stream: 0, streams }.add_to(builder, &[]);
        Ok(())
    }
}

fn read_bytes(directory: &Path, file: &Path) -> Result<(String, Vec<u8>), PlanError> {
    let path = directory.join(file);
    let bytes = std::fs::read(&path).map_err(|source| PlanError::Read { path: path.clone(), source })?;
    Ok((path.display().to_string(), bytes))
}

fn read_text(directory: &Path, file: &Path) -> Result<(String, String), PlanError> {
    let path = directory.join(file);
    let text = std::fs::read_to_string(&path).map_err(|source| PlanError::Read { path: path.clone(), source })?;
    Ok((path.display().to_string(), text))
}

/// A workload from a file needs as many hosts as it has ranks.
fn fits(workload: Workload, host_count: u32, place: &str) -> Result<Workload, PlanError> {
    if workload.host_count() > host_count {
        let message = format!("{} ranks in a network of {host_count} hosts", workload.host_count());
        return Err(PlanError::Syntax { place: format!("{place}: [workload]"), message });
    }
    Ok(workload)
}
