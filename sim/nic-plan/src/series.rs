//! What is looked at again and again while a run goes on.

use nic_fabric::topology::End;
use nic_fabric::workload::PathGauge;
use nic_fabric::{DropCause, Fabric, LinkId, LinkSelect, PS_PER_MS, PS_PER_US};

/// Most samples that are kept; then every second one goes and the interval doubles.
const SAMPLE_COUNT_MAX: usize = 8_192;

/// One look. Everything that counts is counted from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, picoseconds.
    pub time_ps: u64,
    /// Payload that all hosts have received for good, bytes.
    pub received_bytes: u64,
    /// Frames dropped for any cause.
    pub drops: u64,
    /// Frames dropped because a queue was full.
    pub buffer_drops: u64,
    /// Frames marked CE.
    pub marked: u64,
    /// Deepest queue of any switch now, bytes of line time.
    pub queue_bytes: u64,
    /// Per plane: line time of what was accepted for its links to hosts, bytes.
    pub plane_bytes: Vec<u64>,
    /// Payload that each connection of the watched receiver has brought, bytes.
    pub flow_bytes: Vec<u64>,
    /// The paths of the watched sender's first connection.
    pub paths: Vec<PathGauge>,
}

/// The looks of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Time between two, picoseconds.
    pub interval_ps: u64,
    /// The looks, the first at time 0.
    pub samples: Vec<Sample>,
}

impl Series {
    pub(crate) fn new(interval_ps: u64) -> Series {
        Series { interval_ps, samples: vec![Sample::default()] }
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        self.samples.push(sample);
        if self.samples.len() > SAMPLE_COUNT_MAX {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval_ps *= 2;
        }
    }

    /// The last look at or before a time, and the first at or after another: what happened between them includes all
    /// that happened between the times.
    pub fn window(&self, from_ps: u64, until_ps: u64) -> Option<(&Sample, &Sample)> {
        let from = self.samples.iter().rev().find(|sample| sample.time_ps <= from_ps)?;
        let until = self.samples.iter().find(|sample| sample.time_ps >= until_ps).or(self.samples.last())?;
        (from.time_ps < until.time_ps).then_some((from, until))
    }
}

/// Which links to look at.
pub(crate) struct Lookout {
    /// Links that leave switches.
    queues: Vec<LinkId>,
    /// Per plane its links to hosts.
    planes: Vec<Vec<LinkId>>,
}

impl Lookout {
    pub(crate) fn new(fabric: &Fabric) -> Lookout {
        let topology = fabric.topology();
        let leaves_switch = |link: &LinkId| matches!(topology.ends(*link).0, End::Switch(_));
        let mut planes: Vec<Vec<LinkId>> = Vec::new();
        for link in topology.select(&LinkSelect::HostDown) {
            let plane = topology.cables[link.0 as usize / 2].plane as usize;
            planes.resize_with(planes.len().max(plane + 1), Vec::new);
            planes[plane].push(link);
        }
        Lookout { queues: (0..topology.link_count()).map(LinkId).filter(leaves_switch).collect(), planes }
    }

    /// Looks at the network; the hosts are the caller's.
    pub(crate) fn look(&self, fabric: &Fabric) -> Sample {
        let stats = fabric.stats();
        let plane = |links: &Vec<LinkId>| links.iter().map(|link| fabric.link_stats(*link).wire_bytes).sum();
        Sample {
            time_ps: fabric.now_ps(),
            drops: stats.drops.total(),
            buffer_drops: stats.drops.count(DropCause::BufferFull),
            marked: stats.ecn_marked,
            queue_bytes: self.queues.iter().map(|link| fabric.link_backlog_bytes(*link)).max().unwrap_or(0),
            plane_bytes: self.planes.iter().map(plane).collect(),
            ..Sample::default()
        }
    }

    /// Deepest queue of any switch so far, bytes of line time.
    pub(crate) fn queue_bytes_max(&self, fabric: &Fabric) -> u64 {
        self.queues.iter().map(|link| fabric.link_stats(*link).backlog_bytes_max).max().unwrap_or(0)
    }
}

/// Rate of so many bytes in a time, megabits per second.
pub fn rate_mbps(bytes: u64, ps: u64) -> u64 {
    // 8 bits a byte, 1e12 ps a second, 1e6 bit/s a Mb/s.
    u64::try_from(u128::from(bytes) * 8_000_000 / u128::from(ps.max(1))).unwrap_or(u64::MAX)
}

/// A time as people read it: `12.3 us`.
pub fn shown_time(ps: u64) -> String {
    let (whole, unit) = match ps {
        0..PS_PER_US => return format!("{} ns", ps / 1_000),
        PS_PER_US..PS_PER_MS => (ps / (PS_PER_US / 10), "us"),
        _ => (ps / (PS_PER_MS / 10), "ms"),
    };
    format!("{}.{} {unit}", whole / 10, whole % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_thins_itself_and_keeps_its_span() {
        let mut series = Series::new(10);
        (1..=20_000u64).for_each(|index| {
            if index * 10 % series.interval_ps == 0 {
                series.push(Sample { time_ps: index * 10, ..Sample::default() });
            }
        });
        assert!(series.samples.len() <= SAMPLE_COUNT_MAX && series.interval_ps > 10);
        assert!(series.samples.windows(2).all(|pair| pair[1].time_ps - pair[0].time_ps == series.interval_ps));
        let (from, until) = series.window(1_001, 50_001).expect("a window");
        assert!(
            from.time_ps <= 1_001
                && until.time_ps >= 50_001
                && until.time_ps - from.time_ps < 49_000 + 2 * series.interval_ps
        );
    }

    #[test]
    fn rates_and_times_are_as_people_read_them() {
        assert_eq!(rate_mbps(50_000, 1_000_000), 400_000);
        assert_eq!(
            [shown_time(999_999), shown_time(12_345_678), shown_time(7_000_000_000)],
            ["999 ns", "12.3 us", "7.0 ms"]
        );
    }
}
