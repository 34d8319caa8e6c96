//! Numbers of a run, by name.

use serde::Deserialize;

use nic_fabric::{DropCause, PS_PER_NS, PS_PER_US};

use crate::run::Run;
use crate::series::{rate_mbps, shown_time};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// 1 if every message arrived, else 0.
    Complete,
    /// When the last message arrived, nanoseconds.
    Duration,
    /// Payload per time, megabits per second; of a window, what came in during it.
    Goodput,
    /// The floor as a part of the duration, parts per million.
    Efficiency,
    /// Median time of a message, nanoseconds.
    CompletionMedian,
    /// Time within which 99 % of messages are complete, nanoseconds.
    CompletionP99,
    /// Time of the slowest message, nanoseconds.
    CompletionMax,
    /// Frames dropped, for any cause.
    Drops,
    /// Frames dropped because a queue was full.
    BufferDrops,
    /// Frames marked CE.
    Marked,
    /// Deepest queue of any switch, bytes of line time.
    Queue,
    /// Jain's index of the watched receiver's connections in a window, parts per million.
    Fairness,
    /// How far the connection furthest from the mean is from it in a window, parts per million.
    Unfairness,
    /// Time after `from_us` until goodput is `rate_mbps` and stays so for `hold_us`, nanoseconds.
    TimeToRate,
    /// Line time of the links of a plane to hosts in a window, megabits per second.
    PlaneRate,
    /// A counter of the NICs, or with `per` its part of another, parts per million.
    Counter,
}

/// Unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// None.
    Count,
    /// Nanoseconds.
    Ns,
    /// Megabits per second.
    Mbps,
    /// Parts per million.
    Ppm,
    /// Bytes.
    Bytes,
}

impl Unit {
    /// A number as people read it.
    pub fn shown(self, value: u64) -> String {
        match self {
            Unit::Count => value.to_string(),
            Unit::Ns => shown_time(value.saturating_mul(PS_PER_NS)),
            Unit::Mbps => format!("{}.{} Gb/s", value / 1_000, value % 1_000 / 100),
            Unit::Ppm if value > 0 && value < 1_000 => {
                format!("{} %", format!("0.{value:04}").trim_end_matches('0'))
            }
            Unit::Ppm => format!("{}.{} %", value / 10_000, value % 10_000 / 1_000),
            Unit::Bytes if value >= 1 << 20 => format!("{}.{} MiB", value >> 20, ((value % (1 << 20)) * 10) >> 20),
            Unit::Bytes => format!("{} KiB", value >> 10),
        }
    }
}

/// A metric and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Which.
    pub metric: Metric,
    /// Window, picoseconds; none is the whole run.
    pub window_ps: Option<(u64, u64)>,
    /// Name of a counter.
    pub counter: Option<String>,
    /// The counter that is the whole of which it is a part.
    pub per: Option<String>,
    /// Number of a plane.
    pub plane: Option<usize>,
    /// Rate to be reached, megabits per second.
    pub rate_mbps: Option<u64>,
    /// How long it must be held, picoseconds.
    pub hold_ps: u64,
}

impl Measure {
    /// The unit of its numbers.
    pub fn unit(&self) -> Unit {
        match self.metric {
            Metric::Complete | Metric::Drops | Metric::BufferDrops | Metric::Marked => Unit::Count,
            Metric::Duration
            | Metric::CompletionMedian
            | Metric::CompletionP99
            | Metric::CompletionMax
            | Metric::TimeToRate => Unit::Ns,
            Metric::Goodput | Metric::PlaneRate => Unit::Mbps,
            Metric::Efficiency | Metric::Fairness | Metric::Unfairness => Unit::Ppm,
            Metric::Queue => Unit::Bytes,
            Metric::Counter if self.per.is_some() => Unit::Ppm,
            Metric::Counter => Unit::Count,
        }
    }

    /// What is wrong with it, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        let needs = |what: &str, has: bool| if has { Ok(()) } else { Err(format!("this metric needs {what}")) };
        match self.metric {
            Metric::Fairness | Metric::Unfairness | Metric::PlaneRate if self.window_ps.is_none() => {
                needs("from_us and until_us", false)
            }
            Metric::PlaneRate => needs("plane", self.plane.is_some()),
            Metric::Counter => needs("counter", self.counter.is_some()),
            Metric::TimeToRate => needs("rate_mbps and from_us", self.rate_mbps.is_some() && self.window_ps.is_some()),
            _ => Ok(()),
        }
    }

    /// The number; none if the run has none (it never came to what is measured).
    pub fn value(&self, run: &Run) -> Option<u64> {
        let window = self.window_ps.and_then(|(from_ps, until_ps)| run.series.window(from_ps, until_ps));
        let whole = self.window_ps.is_none();
        match self.metric {
            Metric::Complete => Some(u64::from(run.is_complete)),
            Metric::Duration => run.is_complete.then_some(run.duration_ps / PS_PER_NS),
            Metric::Goodput if whole => Some(run.goodput_mbps()),
            Metric::Goodput => {
                let (from, until) = window?;
                Some(rate_mbps(until.received_bytes - from.received_bytes, until.time_ps - from.time_ps))
            }
            Metric::Efficiency => {
                let ppm = u128::from(run.floor_ps) * 1_000_000 / u128::from(run.duration_ps.max(1));
                run.is_complete.then_some(ppm as u64)
            }
            Metric::CompletionMedian => Some(run.completion_ps_at(500_000)? / PS_PER_NS),
            Metric::CompletionP99 => Some(run.completion_ps_at(990_000)? / PS_PER_NS),
            Metric::CompletionMax => Some(run.completion_ps.last()? / PS_PER_NS),
            Metric::Drops if whole => Some(run.stats.drops.total()),
            Metric::Drops => window.map(|(from, until)| until.drops - from.drops),
            Metric::BufferDrops if whole => Some(run.stats.drops.count(DropCause::BufferFull)),
            Metric::BufferDrops => window.map(|(from, until)| until.buffer_drops - from.buffer_drops),
            Metric::Marked if whole => Some(run.stats.ecn_marked),
            Metric::Marked => window.map(|(from, until)| until.marked - from.marked),
            Metric::Queue if whole => Some(run.queue_bytes_max),
            Metric::Queue => {
                let (from_ps, until_ps) = self.window_ps?;
                let inside = |time_ps: u64| (from_ps..=until_ps).contains(&time_ps);
                run.series.samples.iter().filter(|sample| inside(sample.time_ps)).map(|s| s.queue_bytes).max()
            }
            Metric::Fairness => jain_ppm(&self.flows(run)?),
            Metric::Unfairness => {
                let flows = self.flows(run)?;
                let mean = flows.iter().sum::<u64>() / (flows.len() as u64).max(1);
                let furthest = flows.iter().map(|bytes| bytes.abs_diff(mean)).max()?;
                (furthest * 1_000_000).checked_div(mean)
            }
            Metric::TimeToRate => self.time_to_rate_ns(run),
            Metric::PlaneRate => {
                let (from, until) = window?;
                let bytes = |sample: &crate::Sample| sample.plane_bytes.get(self.plane?).copied();
                // Nothing was sampled at time 0.
                Some(rate_mbps(bytes(until)? - bytes(from).unwrap_or(0), until.time_ps - from.time_ps))
            }
            Metric::Counter => {
                let counter = |name: &Option<String>| run.counters.get(name.as_deref()?).copied();
                let value = counter(&self.counter).unwrap_or(0);
                match &self.per {
                    None => Some(value),
                    Some(_) => (value * 1_000_000).checked_div(counter(&self.per)?),
                }
            }
        }
    }

    /// The best number that is physically possible, where that is known.
    pub fn limit(&self, run: &Run) -> Option<u64> {
        match self.metric {
            Metric::Complete => Some(1),
            Metric::Duration => Some(run.floor_ps / PS_PER_NS),
            Metric::Goodput if self.window_ps.is_none() => Some(run.floor_goodput_mbps()),
            Metric::Efficiency | Metric::Fairness => Some(1_000_000),
            Metric::BufferDrops | Metric::Unfairness => Some(0),
            _ => None,
        }
    }

    /// Bytes of each watched connection in the window.
    fn flows(&self, run: &Run) -> Option<Vec<u64>> {
        let (from_ps, until_ps) = self.window_ps?;
        let (from, until) = run.series.window(from_ps, until_ps)?;
        let before = |index: usize| from.flow_bytes.get(index).copied().unwrap_or(0);
        Some(until.flow_bytes.iter().enumerate().map(|(index, bytes)| bytes - before(index)).collect())
    }

    fn time_to_rate_ns(&self, run: &Run) -> Option<u64> {
        let (goal_mbps, from_ps) = (self.rate_mbps?, self.window_ps?.0);
        let mut since: Option<u64> = None;
        for pair in run.series.samples.windows(2).filter(|pair| pair[0].time_ps >= from_ps) {
            let [before, after] = pair else { continue };
            let reached =
                rate_mbps(after.received_bytes - before.received_bytes, after.time_ps - before.time_ps) >= goal_mbps;
            since = if reached { since.or(Some(before.time_ps)) } else { None };
            if let Some(since_ps) = since.filter(|since_ps| after.time_ps - since_ps >= self.hold_ps) {
                return Some((since_ps - from_ps) / PS_PER_NS);
            }
        }
        None
    }
}

/// Jain's fairness index: the square of the sum over the count times the sum of squares.
fn jain_ppm(flows: &[u64]) -> Option<u64> {
    let sum: u128 = flows.iter().map(|bytes| u128::from(*bytes)).sum();
    let squares: u128 = flows.iter().map(|bytes| u128::from(*bytes) * u128::from(*bytes)).sum();
    let ppm = (sum * sum).saturating_mul(1_000_000).checked_div(squares * flows.len() as u128)?;
    Some(ppm as u64)
}

/// Microseconds as picoseconds.
pub(crate) fn ps_of_us(us: u64) -> u64 {
    us.saturating_mul(PS_PER_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{Sample, Series};
    use std::collections::BTreeMap;

    const US: u64 = PS_PER_US;

    /// 10 us a sample; a rise to 400 Gb/s at 30 us, a dip at 60 us.
    fn series() -> Series {
        let mut bytes = 0;
        let samples = (0..=12u64).map(|index| {
            bytes += match index {
                0..=3 | 7 => 100_000,
                _ => 500_000,
            };
            Sample {
                time_ps: index * 10 * US,
                received_bytes: bytes,
                buffer_drops: index,
                flow_bytes: vec![bytes, bytes * 3],
                plane_bytes: vec![bytes, 0],
                ..Sample::default()
            }
        });
        Series { interval_ps: 10 * US, samples: samples.collect() }
    }

    fn run() -> Run {
        Run {
            case: String::new(),
            transport: String::new(),
            seed: 1,
            is_complete: true,
            failed_messages: 0,
            duration_ps: 200 * US,
            bytes: 5_000_000,
            floor_ps: 150 * US,
            completion_ps: (1..=200).map(|index| index * 1_000).collect(),
            stats: Default::default(),
            queue_bytes_max: 7,
            counters: BTreeMap::from([("a", 30), ("b", 1_000)]),
            series: series(),
        }
    }

    fn measure(metric: Metric) -> Measure {
        Measure { metric, window_ps: None, counter: None, per: None, plane: None, rate_mbps: None, hold_ps: 0 }
    }

    #[test]
    fn numbers_of_a_whole_run() {
        let value = |metric| measure(metric).value(&run());
        assert_eq!(value(Metric::Goodput), Some(200_000));
        assert_eq!(measure(Metric::Goodput).limit(&run()), Some(266_666));
        assert_eq!(value(Metric::Efficiency), Some(750_000));
        assert_eq!(value(Metric::CompletionMedian), Some(100));
        assert_eq!(value(Metric::CompletionP99), Some(198));
        assert_eq!(value(Metric::CompletionMax), Some(200));
        assert_eq!(value(Metric::Queue), Some(7));
        let counter = Measure { counter: Some("a".into()), per: Some("b".into()), ..measure(Metric::Counter) };
        assert_eq!((counter.value(&run()), counter.unit()), (Some(30_000), Unit::Ppm));
    }

    #[test]
    fn numbers_of_a_window() {
        let value = |metric| {
            let measure = Measure { window_ps: Some((40 * US, 60 * US)), plane: Some(0), ..measure(metric) };
            measure.value(&run())
        };
        assert_eq!(value(Metric::Goodput), Some(400_000));
        assert_eq!(value(Metric::PlaneRate), Some(400_000));
        assert_eq!(value(Metric::BufferDrops), Some(2));
        assert_eq!(value(Metric::Unfairness), Some(500_000));
        assert_eq!(value(Metric::Fairness), Some(800_000));
    }

    #[test]
    fn rate_counts_as_reached_only_if_it_is_held() {
        let time = |hold_us: u64| {
            let measure = Measure {
                window_ps: Some((10 * US, u64::MAX)),
                rate_mbps: Some(400_000),
                hold_ps: hold_us * US,
                ..measure(Metric::TimeToRate)
            };
            measure.value(&run())
        };
        assert_eq!(time(20), Some(20_000));
        assert_eq!(time(50), Some(60_000));
        assert_eq!(time(60), None);
    }

    #[test]
    fn numbers_are_shown_with_their_units() {
        assert_eq!(Unit::Mbps.shown(398_765), "398.7 Gb/s");
        assert_eq!(Unit::Ppm.shown(993_456), "99.3 %");
        assert_eq!(Unit::Ppm.shown(120), "0.012 %");
        assert_eq!(Unit::Ns.shown(1_500), "1.5 us");
        assert_eq!(Unit::Bytes.shown(3 << 19), "1.5 MiB");
    }
}
