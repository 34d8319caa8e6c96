//! What a plan expects of its runs, and whether it came.
//!
//! | key | meaning |
//! |---|---|
//! | `label` | what a table calls it |
//! | `claim` | what others have said in public, if they have |
//! | `case`, `transport` | the run (transport `metaroce` by default) |
//! | `metric` | see [`Metric`]; with `from_us` and `until_us` of a window only |
//! | `counter`, `per`, `plane`, `rate_mbps`, `hold_us` | what some metrics need |
//! | `of` | = { `case`, `transport`, `metric` }: the number is a part of that other one, parts per million |
//! | `at_least`, `at_most` | bounds in the metric's unit |
//! | `limit` | physical limit in the metric's unit, where the plan knows better |

use serde::Deserialize;

use crate::measure::{ps_of_us, Measure, Metric, Unit};
use crate::run::{Run, RunSpec};

/// An expectation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What a table calls it.
    pub label: String,
    /// What others have said in public.
    pub claim: Option<String>,
    /// Case of the run.
    pub case: String,
    /// Transport of the run.
    #[serde(default = "ours")]
    pub transport: String,
    /// What is measured.
    pub metric: Metric,
    from_us: Option<u64>,
    until_us: Option<u64>,
    counter: Option<String>,
    per: Option<String>,
    plane: Option<usize>,
    rate_mbps: Option<u64>,
    #[serde(default)]
    hold_us: u64,
    of: Option<Of>,
    /// Least value.
    pub at_least: Option<u64>,
    /// Largest value.
    pub at_most: Option<u64>,
    limit: Option<u64>,
}

/// The other number that one is a part of.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    case: Option<String>,
    transport: Option<String>,
    metric: Option<Metric>,
}

fn ours() -> String {
    "metaroce".into()
}

/// Whether an expectation was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was.
    Met,
    /// The number is out of bounds.
    Missed,
    /// There is no number: the run never came to what is measured.
    Absent,
}

/// An expectation and the numbers that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What a table calls it.
    pub label: String,
    /// What others have said in public.
    pub claim: Option<String>,
    /// The transport it is about.
    pub transport: String,
    /// The number of that transport.
    pub value: Option<u64>,
    /// The same number of every transport that ran the case.
    pub values: Vec<(String, Option<u64>)>,
    /// Unit of all of them.
    pub unit: Unit,
    /// Least value.
    pub at_least: Option<u64>,
    /// Largest value.
    pub at_most: Option<u64>,
    /// Physical limit, where it is known.
    pub limit: Option<u64>,
    /// Whether it was met.
    pub verdict: Verdict,
}

impl Expect {
    fn measure(&self, metric: Metric) -> Measure {
        let window = self.from_us.is_some() || self.until_us.is_some();
        let (from_ps, until_ps) = (ps_of_us(self.from_us.unwrap_or(0)), self.until_us.map_or(u64::MAX, ps_of_us));
        Measure {
            metric,
            window_ps: window.then_some((from_ps, until_ps)),
            counter: self.counter.clone(),
            per: self.per.clone(),
            plane: self.plane,
            rate_mbps: self.rate_mbps,
            hold_ps: ps_of_us(self.hold_us),
        }
    }

    /// What is wrong with it, given the runs of the plan.
    pub(crate) fn check(&self, runs: &[RunSpec]) -> Result<(), String> {
        let exists = |case: &str, transport: &str| {
            let found = runs.iter().any(|run| run.case == case && run.transport == transport);
            let missing = || format!("no case \"{case}\" runs with transport \"{transport}\"");
            found.then_some(()).ok_or_else(missing)
        };
        exists(&self.case, &self.transport)?;
        if let Some(of) = &self.of {
            let transport = of.transport.as_deref().unwrap_or(&self.transport);
            exists(of.case.as_deref().unwrap_or(&self.case), transport)?;
            self.measure(of.metric.unwrap_or(self.metric)).check()?;
        }
        if self.at_least.is_none() && self.at_most.is_none() {
            return Err("needs at_least or at_most".into());
        }
        self.measure(self.metric).check()
    }

    /// The number for a transport.
    fn value(&self, runs: &[Run], transport: &str) -> Option<u64> {
        let find = |case: &str, transport: &str| runs.iter().find(|run| run.case == case && run.transport == transport);
        let value = self.measure(self.metric).value(find(&self.case, transport)?)?;
        let Some(of) = &self.of else { return Some(value) };
        let other = find(of.case.as_deref().unwrap_or(&self.case), of.transport.as_deref().unwrap_or(transport))?;
        let whole = self.measure(of.metric.unwrap_or(self.metric)).value(other)?;
        let ppm = (u128::from(value) * 1_000_000).checked_div(u128::from(whole))?;
        u64::try_from(ppm).ok()
    }

    /// Judges the runs.
    pub fn outcome(&self, runs: &[Run]) -> Outcome {
        let measure = self.measure(self.metric);
        let value = self.value(runs, &self.transport);
        let of_case = || runs.iter().filter(|run| run.case == self.case);
        let own = of_case().find(|run| run.transport == self.transport);
        let known = || match &self.of {
            None => own.and_then(|run| measure.limit(run)),
            Some(_) => None,
        };
        let verdict = match value {
            None => Verdict::Absent,
            Some(value) => {
                let is_met =
                    self.at_least.is_none_or(|least| value >= least) && self.at_most.is_none_or(|most| value <= most);
                if is_met {
                    Verdict::Met
                } else {
                    Verdict::Missed
                }
            }
        };
        Outcome {
            label: self.label.clone(),
            claim: self.claim.clone(),
            transport: self.transport.clone(),
            value,
            values: of_case().map(|run| (run.transport.clone(), self.value(runs, &run.transport))).collect(),
            unit: if self.of.is_some() { Unit::Ppm } else { measure.unit() },
            at_least: self.at_least,
            at_most: self.at_most,
            limit: self.limit.or_else(known),
            verdict,
        }
    }
}

impl Outcome {
    /// The bounds as people read them.
    pub fn shown_bounds(&self) -> String {
        let bound = |sign: &str, value: Option<u64>| value.map(|value| format!("{sign} {}", self.unit.shown(value)));
        let bounds = [bound(">=", self.at_least), bound("<=", self.at_most)];
        bounds.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// A number as people read it.
    pub fn shown(&self, value: Option<u64>) -> String {
        value.map_or("-".into(), |value| self.unit.shown(value))
    }
}
