//! A plan: one TOML file with a network, a workload, transports, cases that change them, and expectations.
//!
//! | table | keys |
//! |---|---|
//! | top | `name`, `title`, `seed` (1), `limit_us` (simulated time at which a run is given up), `sample_us` (10), `transports` (all) |
//! | `[network]` | as in [`nic_fabric::config`] |
//! | `[workload]` | `kind` and its keys, see the README |
//! | `[watch]` | `receiver`: the host whose connections are sampled one by one (0); `sender`: the one whose windows are (0) |
//! | `[transport.NAME]` | `kind` (`metaroce`, `rocev2`) and its keys; `network`: what this transport changes in the network |
//! | `[[case]]` | `name`, `transports`; every other key is laid over the plan's |
//! | `[[expect]]` | see [`crate::expect`] |
//!
//! Without cases there is one, called `all`. Numbers are whole, units are in the names, unknown keys are errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nic_fabric::config::ConfigError;
use nic_fabric::workload::{ParseError, Workload, WorkloadError};
use nic_fabric::{NetworkPlan, PS_PER_US};
use serde::Deserialize;
use toml::{Table, Value};

use crate::expect::Expect;
use crate::merge::merge;
use crate::run::{RunSpec, Watch};
use crate::traffic::TrafficSpec;
use crate::transport::TransportSpec;

/// Why a plan cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not TOML, or a table has keys that do not belong there.
    #[error("{place}: {message}")]
    Syntax {
        /// File, case, transport.
        place: String,
        /// What is wrong, with line and column where they are known.
        message: String,
    },
    /// The network of a run cannot be made.
    #[error("{place}: network")]
    Network {
        /// File, case, transport.
        place: String,
        /// Why.
        source: ConfigError,
    },
    /// The file of a workload is wrong.
    #[error("{place}: workload")]
    Workload {
        /// File, case, transport.
        place: String,
        /// Why.
        source: ParseError,
    },
    /// The workload makes no sense.
    #[error("{place}: workload")]
    Steps {
        /// File, case, transport.
        place: String,
        /// Why.
        source: WorkloadError,
    },
    /// A result cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A plot cannot be drawn.
    #[error("cannot draw {}: {message}", path.display())]
    Plot {
        /// The file.
        path: PathBuf,
        /// Why.
        message: String,
    },
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Short name, for files.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Every case with every transport, in the order of the file.
    pub runs: Vec<RunSpec>,
    /// What is expected.
    pub expects: Vec<Expect>,
}

/// Keys of the top that are not laid over.
#[derive(Deserialize)]
struct Head {
    name: String,
    title: String,
    #[serde(default)]
    case: Vec<Table>,
    #[serde(default)]
    transport: Table,
    transports: Option<Vec<String>>,
    #[serde(default)]
    expect: Vec<Expect>,
}

/// What is left of a plan for one case and transport.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default = "one")]
    seed: u64,
    limit_us: u64,
    #[serde(default = "ten")]
    sample_us: u64,
    network: Table,
    workload: TrafficSpec,
    #[serde(default)]
    watch: Watch,
}

fn one() -> u64 {
    1
}

fn ten() -> u64 {
    10
}

impl Plan {
    /// Reads a plan; files it names are relative to its own.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn read(path: &Path) -> Result<Plan, PlanError> {
        let text = std::fs::read_to_string(path).map_err(|source| PlanError::Read { path: path.into(), source })?;
        let directory = path.parent().unwrap_or(Path::new("."));
        Plan::from_toml(&path.display().to_string(), &text, directory)
    }

    /// Reads a plan's text; `file` is what errors call it.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn from_toml(file: &str, text: &str, directory: &Path) -> Result<Plan, PlanError> {
        let syntax = |place: &str, error: toml::de::Error| PlanError::Syntax {
            place: place.into(),
            message: error.to_string().trim_end().into(),
        };
        let table: Table = text.parse().map_err(|error| syntax(file, error))?;
        let head: Head = toml::from_str(text).map_err(|error| syntax(file, error))?;
        let mut base = table;
        for key in ["name", "title", "case", "transport", "transports", "expect"] {
            base.remove(key);
        }
        let mut cases = head.case.clone();
        if cases.is_empty() {
            cases.push(Table::from_iter([("name".to_string(), Value::String("all".into()))]));
        }
        let mut plan =
            Plan { name: head.name.clone(), title: head.title.clone(), runs: Vec::new(), expects: Vec::new() };
        let mut last: Option<(Table, Arc<Workload>)> = None;
        for case in &cases {
            let (name, transports) = head
                .case_head(case)
                .map_err(|message| PlanError::Syntax { place: format!("{file}: [[case]]"), message })?;
            for transport in transports {
                let place = format!("{file}: case \"{name}\", transport \"{transport}\"");
                let mut table = base.clone();
                let mut own = transport_table(&head.transport, &transport, &place)?;
                if let Some(network) = own.remove("network") {
                    merge(&mut table, &Table::from_iter([("network".to_string(), network)]));
                }
                let mut over = case.clone();
                over.remove("name");
                over.remove("transports");
                if let Some(Value::Table(changes)) = over.remove("transport") {
                    if let Some(Value::Table(changes)) = changes.get(&transport) {
                        merge(&mut own, changes);
                    }
                }
                merge(&mut table, &over);
                // The workload of the run before is often the same.
                let traffic = table.get("workload").and_then(Value::as_table).cloned().unwrap_or_default();
                let body: Body = table.try_into().map_err(|error| syntax(&place, error))?;
                let spec: TransportSpec = own.try_into().map_err(|error| syntax(&place, error))?;
                let network_text = body.network.to_string();
                let network = NetworkPlan::from_toml(&network_text)
                    .map_err(|source| PlanError::Network { place: place.clone(), source })?;
                let host_count = network.topology.hosts.len() as u32;
                let mut key = traffic;
                key.insert("hosts of the network".into(), Value::Integer(host_count.into()));
                key.insert("seed".into(), Value::String(body.seed.to_string()));
                let workload = match last.take().filter(|last| last.0 == key) {
                    Some((_, workload)) => workload,
                    None => Arc::new(body.workload.make(host_count, body.seed, directory, &place)?),
                };
                last = Some((key, workload.clone()));
                plan.runs.push(RunSpec {
                    case: name.clone(),
                    transport,
                    seed: body.seed,
                    limit_ps: body.limit_us.saturating_mul(PS_PER_US),
                    sample_ps: body.sample_us.max(1).saturating_mul(PS_PER_US),
                    watch: body.watch,
                    network,
                    workload,
                    spec,
                });
            }
        }
        for expect in head.expect {
            expect.check(&plan.runs).map_err(|message| PlanError::Syntax {
                place: format!("{file}: [[expect]] \"{}\"", expect.label),
                message,
            })?;
            plan.expects.push(expect);
        }
        Ok(plan)
    }
}

impl Plan {
    /// Keeps the runs of some cases and transports (all if none is named), and the expectations that these can answer.
    pub fn select(&mut self, cases: &[String], transports: &[String]) {
        let is_named = |names: &[String], name: &String| names.is_empty() || names.contains(name);
        self.runs.retain(|run| is_named(cases, &run.case) && is_named(transports, &run.transport));
        let runs = &self.runs;
        self.expects.retain(|expect| expect.check(runs).is_ok());
    }
}

fn transport_table(transports: &Table, name: &str, place: &str) -> Result<Table, PlanError> {
    let found = transports.get(name).and_then(Value::as_table).cloned();
    found.ok_or_else(|| PlanError::Syntax { place: place.into(), message: format!("there is no [transport.{name}]") })
}

impl Head {
    /// Name and transports of a case.
    fn case_head(&self, case: &Table) -> Result<(String, Vec<String>), String> {
        let name = case.get("name").and_then(Value::as_str).ok_or("a case needs a name")?;
        let listed = match case.get("transports") {
            None => self.transports.clone(),
            Some(value) => Some(
                value.clone().try_into().map_err(|_| format!("transports of case \"{name}\" is no list of names"))?,
            ),
        };
        Ok((name.into(), listed.unwrap_or_else(|| self.transport.keys().cloned().collect())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
        name = "small"
        title = "two hosts"
        limit_us = 10_000
        [network]
        topology = { kind = "point-to-point" }
        host_link = { rate_mbps = 100_000, delay_ns = 500 }
        [workload]
        kind = "pairs"
        pairs = [[0, 1]]
        message_bytes = 4_096
        [transport.a]
        kind = "rocev2"
        [transport.b]
        kind = "rocev2"
        window_packets = 8
        network.host_link.delay_ns = 700
        [[case]]
        name = "plain"
        [[case]]
        name = "larger"
        transports = ["b"]
        seed = 9
        workload.message_bytes = 8_192
        transport.b.window_packets = 16
        [[expect]]
        label = "it ends"
        case = "plain"
        transport = "a"
        metric = "complete"
        at_least = 1
    "#;

    fn read(text: &str) -> Result<Plan, PlanError> {
        Plan::from_toml("x.toml", text, Path::new("."))
    }

    #[test]
    fn cases_and_transports_are_laid_over_the_plan() {
        let plan = read(PLAN).expect("a plan");
        let names: Vec<(&str, &str)> =
            plan.runs.iter().map(|run| (run.case.as_str(), run.transport.as_str())).collect();
        assert_eq!(names, [("plain", "a"), ("plain", "b"), ("larger", "b")]);
        let delays: Vec<u64> = plan.runs.iter().map(|run| run.network.topology.cables[0].a_to_b.delay_ps).collect();
        assert_eq!(delays, [500_000, 700_000, 700_000]);
        assert_eq!(plan.runs.iter().map(|run| run.workload.bytes()).collect::<Vec<_>>(), [4_096, 4_096, 8_192]);
        assert_eq!(plan.runs.iter().map(|run| run.seed).collect::<Vec<_>>(), [1, 1, 9]);
        let windows: Vec<Option<u32>> = plan
            .runs
            .iter()
            .map(|run| match &run.spec {
                TransportSpec::Rocev2(spec) => spec.window_packets,
                TransportSpec::Metaroce(_) => None,
            })
            .collect();
        assert_eq!(windows, [None, Some(8), Some(16)]);
    }

    #[test]
    fn selection_keeps_what_it_can_answer() {
        let mut plan = read(PLAN).expect("a plan");
        plan.select(&[], &["b".into()]);
        assert_eq!((plan.runs.len(), plan.expects.len()), (2, 0));
        let mut plan = read(PLAN).expect("a plan");
        plan.select(&["plain".into()], &[]);
        assert_eq!((plan.runs.len(), plan.expects.len()), (2, 1));
    }

    #[test]
    fn mistake_is_named_with_its_place() {
        let check = |from: &str, to: &str, expected: &[&str]| {
            assert!(PLAN.contains(from));
            let error = read(&PLAN.replacen(from, to, 1)).expect_err("a mistake");
            let text =
                format!("{error}: {}", std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default());
            assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        };
        check("kind = \"pairs\"", "kind = \"pears\"", &["x.toml: case \"plain\"", "pears"]);
        check("message_bytes = 4_096", "message_bites = 4_096", &["message_bites"]);
        check("kind = \"rocev2\"", "kind = \"rocev3\"", &["transport \"a\"", "rocev3"]);
        check("delay_ns = 500", "delay_ms = 500", &["network", "delay_ms"]);
        check("limit_us = 10_000", "limit = 3", &["x.toml", "limit"]);
        check("transports = [\"b\"]", "transports = [\"c\"]", &["there is no [transport.c]"]);
        check("[[0, 1]]", "[[0, 2]]", &["host 2", "2 hosts"]);
        check("case = \"plain\"", "case = \"plane\"", &["it ends", "plane"]);
        check("metric = \"complete\"", "metric = \"complet\"", &["complet"]);
        check("title = \"two hosts\"", "title = 2", &["title"]);
    }
}
