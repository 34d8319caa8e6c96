//! The physical limit of a workload: no NIC finishes it sooner.
//!
//! Two bounds, of which the later counts: the busiest direction of any host's line, and the longest chain of steps, each
//! message taking its line time and the way. Whatever shares the network besides is ignored, so the bound may be below what
//! any NIC can do, never above.

use crate::workload::graph::{Action, Verb, Workload};

/// What a network imposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Line rate of a host, all its ports together, megabits per second.
    pub rate_mbps: u64,
    /// Shortest time from the last bit of a packet leaving a host to its arrival at another, picoseconds.
    pub latency_ps: u64,
    /// The same for a packet without payload: a request, an acknowledgement.
    pub short_latency_ps: u64,
    /// Payload of a full packet, bytes.
    pub mtu_bytes: u64,
    /// What a packet takes on the line besides its payload, bytes.
    pub overhead_bytes: u64,
}

impl Floor {
    /// Bytes of line time of a message.
    pub fn wire_bytes(&self, bytes: u64) -> u64 {
        bytes + bytes.div_ceil(self.mtu_bytes).max(1) * self.overhead_bytes
    }

    fn line_ps(&self, wire_bytes: u64) -> u64 {
        let ps = u128::from(wire_bytes) * 8_000_000 / u128::from(self.rate_mbps);
        u64::try_from(ps).unwrap_or(u64::MAX)
    }

    /// The least time the workload takes, picoseconds.
    pub fn duration_ps(&self, workload: &Workload) -> u64 {
        self.line_bound_ps(workload).max(self.chain_bound_ps(workload))
    }

    fn line_bound_ps(&self, workload: &Workload) -> u64 {
        let mut bytes = vec![(0, 0); workload.host_count() as usize];
        for message in workload.messages() {
            let wire_bytes = self.wire_bytes(message.bytes);
            bytes[message.src as usize].0 += wire_bytes;
            bytes[message.dst as usize].1 += wire_bytes;
        }
        let busiest = bytes.iter().map(|(out, into)| *out.max(into)).max().unwrap_or(0);
        if busiest == 0 {
            0
        } else {
            self.line_ps(busiest) + self.latency_ps
        }
    }

    fn chain_bound_ps(&self, workload: &Workload) -> u64 {
        let count = workload.steps().len();
        let mut done_ps = vec![0u64; count];
        let mut arrival_ps = vec![0u64; workload.messages().len()];
        // When the steps that each step comes after are done.
        let mut before: Vec<Vec<u64>> = vec![Vec::new(); count];
        for step in workload.sorted_steps() {
            let entry = workload.steps()[step as usize];
            let mut times = std::mem::take(&mut before[step as usize]);
            times.sort_unstable();
            let start_ps = (entry.need as usize).checked_sub(1).map_or(0, |last| times[last]);
            done_ps[step as usize] = match entry.action {
                Action::Wait { duration_ps } => start_ps.saturating_add(duration_ps),
                Action::Receive(message) => start_ps.max(arrival_ps[message.0 as usize]),
                Action::Send(message) | Action::Fetch(message) => {
                    let message_entry = workload.message(message);
                    let request_ps = if message_entry.verb == Verb::Read { self.short_latency_ps } else { 0 };
                    let line_ps = self.line_ps(self.wire_bytes(message_entry.bytes));
                    let here_ps = start_ps + request_ps + line_ps + self.latency_ps;
                    arrival_ps[message.0 as usize] = here_ps;
                    if message_entry.verb == Verb::Read {
                        here_ps
                    } else {
                        here_ps + self.short_latency_ps
                    }
                }
            };
            for &follower in workload.followers(step) {
                before[follower as usize].push(done_ps[step as usize]);
            }
        }
        // The acknowledgement of a message nobody waits for does not count.
        let arrivals = arrival_ps.iter().max().copied().unwrap_or(0);
        let others = (0..count).filter(|step| !matches!(workload.steps()[*step].action, Action::Send(_)));
        others.map(|step| done_ps[step]).max().unwrap_or(0).max(arrivals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::graph::Builder;

    /// 1 byte takes 20 ps.
    const FLOOR: Floor =
        Floor { rate_mbps: 400_000, latency_ps: 1_000, short_latency_ps: 800, mtu_bytes: 1_000, overhead_bytes: 100 };

    #[test]
    fn many_to_one_is_bound_by_the_line_of_the_one() {
        let mut builder = Builder::new(4);
        for src in 1..4 {
            builder.write(src, 0, 2_000, 0, &[]);
        }
        assert_eq!(FLOOR.duration_ps(&builder.build().unwrap()), 3 * 2_200 * 20 + 1_000);
    }

    #[test]
    fn chain_is_bound_by_its_links() {
        let mut builder = Builder::new(2);
        let (_, there) = builder.write(0, 1, 1_000, 0, &[]);
        let thought = builder.wait(1, 7_000, &[there]);
        builder.write(1, 0, 0, 0, &[thought]);
        assert_eq!(FLOOR.duration_ps(&builder.build().unwrap()), (1_100 + 100) * 20 + 2 * 1_000 + 7_000);
    }

    #[test]
    fn read_takes_a_round_trip() {
        let mut builder = Builder::new(2);
        builder.read(1, 0, 1_000, 0, &[]);
        assert_eq!(FLOOR.duration_ps(&builder.build().unwrap()), 1_100 * 20 + 1_000 + 800);
    }
}
