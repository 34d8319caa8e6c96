//! Plain traffic: queues of messages between pairs, permutations, incast, reads from many servers.

use rand_core::RngCore;

use crate::seed::{stream, Purpose};
use crate::workload::graph::{Builder, StepId};

/// Messages that a host sends, or reads, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Size of each, bytes.
    pub message_bytes: u64,
    /// How many to each peer.
    pub count: u32,
    /// How many under way at once per pair: 1 is synchronous, 0 is no limit.
    pub depth: u32,
    /// Stream of the messages.
    pub stream: u16,
}

impl Queue {
    /// Adds the messages that `src` writes to `dst`.
    pub fn write(&self, builder: &mut Builder, src: u32, dst: u32) {
        self.add(|after| builder.write(src, dst, self.message_bytes, self.stream, after).0);
    }

    /// Adds the messages that `dst` reads from `src`.
    pub fn read(&self, builder: &mut Builder, src: u32, dst: u32) {
        self.add(|after| builder.read(src, dst, self.message_bytes, self.stream, after));
    }

    fn add(&self, mut message: impl FnMut(&[StepId]) -> StepId) {
        let mut steps: Vec<StepId> = Vec::new();
        for index in 0..self.count as usize {
            let before = index.checked_sub(self.depth as usize).filter(|_| self.depth > 0);
            let after = before.map(|oldest| steps[oldest]);
            steps.push(message(after.as_slice()));
        }
    }

    /// Adds a queue from each of some hosts to another, such that each also receives one: a random cycle through all.
    pub fn permutation(&self, builder: &mut Builder, hosts: &[u32], seed: u64) {
        let mut cycle = hosts.to_vec();
        let mut random = stream(seed, Purpose::Workload, 0, 0);
        // Sattolo's shuffle: every cycle is equally likely, and none has a host that sends to itself.
        for last in (1..cycle.len()).rev() {
            cycle.swap(last, random.next_u32() as usize % last);
        }
        for (src, dst) in hosts.iter().zip(cycle).filter(|(src, dst)| *src != dst) {
            self.write(builder, *src, dst);
        }
    }

    /// Adds a queue from each of some hosts to one.
    pub fn incast(&self, builder: &mut Builder, sources: &[u32], dst: u32) {
        sources.iter().for_each(|src| self.write(builder, *src, dst));
    }

    /// Adds a queue of reads by each client from each server.
    pub fn fan_in(&self, builder: &mut Builder, servers: &[u32], clients: &[u32]) {
        for client in clients {
            servers.iter().for_each(|server| self.read(builder, *server, *client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::graph::Workload;

    const QUEUE: Queue = Queue { message_bytes: 100, count: 4, depth: 2, stream: 0 };

    fn make(add: impl Fn(&mut Builder)) -> Workload {
        let mut builder = Builder::new(16);
        add(&mut builder);
        builder.build().unwrap()
    }

    #[test]
    fn permutation_sends_once_from_and_once_to_every_host() {
        let hosts: Vec<u32> = (0..16).collect();
        for seed in 0..20 {
            let workload = make(|builder| QUEUE.permutation(builder, &hosts, seed));
            for host in 0..16 {
                let from = workload.messages().iter().filter(|message| message.src == host).count();
                let to = workload.messages().iter().filter(|message| message.dst == host).count();
                assert_eq!((from, to), (4, 4), "seed {seed}, host {host}");
            }
        }
        let pairs = |seed| make(|builder| QUEUE.permutation(builder, &hosts, seed));
        assert!(pairs(1) == pairs(1) && pairs(1) != pairs(2));
    }

    #[test]
    fn queue_of_depth_two_lets_each_message_wait_for_the_one_before_the_last() {
        let workload = make(|builder| QUEUE.write(builder, 3, 5));
        let needs: Vec<u32> = workload.steps_of(3).map(|step| workload.steps()[step as usize].need).collect();
        assert_eq!(needs, [0, 0, 1, 1]);
        assert_eq!(workload.followers(workload.steps_of(3).start + 1), [workload.steps_of(3).start + 3]);
    }

    #[test]
    fn fan_in_is_asked_for_by_the_clients() {
        let workload = make(|builder| QUEUE.fan_in(builder, &[1, 2, 3], &[0, 9]));
        assert_eq!(workload.messages().len(), 3 * 2 * 4);
        assert_eq!(workload.steps_of(0).len(), 12);
        assert!(workload.steps_of(1).is_empty());
        assert!(workload.messages().iter().all(|message| [0, 9].contains(&message.initiator())));
    }
}
