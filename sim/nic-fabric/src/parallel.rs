//! One run on several threads: shards advance in windows no longer than what any frame needs from one to another.
//!
//! A window begins at the earliest event of all shards and ends one lookahead later; nothing that happens in it can
//! reach another shard before its end. Between windows the shards exchange what they sent. Since events of equal time
//! are ordered by entity, and the entities of a node are all in its shard, the result is that of one thread.

use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};

use crate::engine::Crossing;
use crate::frame::{FRAME_BYTES_MIN, WIRE_OVERHEAD_BYTES};
use crate::shard::Shard;
use crate::topology::{End, LinkId, Topology};

/// Chooses a shard for each node: hosts stay with their first switch, and switches with hosts are dealt out in blocks
/// of about equally many hosts; the others, which are between them, in turn.
pub(crate) fn partition(topology: &Topology, shard_count: u16) -> Vec<u16> {
    let host_count = topology.hosts.len();
    let mut shard_of = vec![0; host_count + topology.switches.len()];
    let block = |index: usize, count: usize| (index * shard_count as usize / count.max(1)) as u16;
    let mut is_placed = vec![false; shard_of.len()];
    // Cables come plane by plane and host by host, so the first one of a host is that to its first switch.
    for cable in &topology.cables {
        let (host, other) = match (cable.a, cable.b) {
            (End::Host(host), other) | (other, End::Host(host)) => (host as usize, topology.node_of(other).0 as usize),
            _ => continue,
        };
        if !is_placed[host] {
            is_placed[host] = true;
            shard_of[host] = if is_placed[other] { shard_of[other] } else { block(host, host_count) };
        }
        if !is_placed[other] {
            is_placed[other] = true;
            shard_of[other] = if other < host_count { block(other, host_count) } else { shard_of[host] };
        }
    }
    let rest = (host_count..shard_of.len()).filter(|node| !is_placed[*node]);
    for (turn, node) in rest.enumerate() {
        shard_of[node] = (turn % shard_count as usize) as u16;
    }
    shard_of
}

/// The least time from an event in one shard to its effect in another.
pub(crate) fn lookahead_ps(topology: &Topology, shard_of: &[u16]) -> u64 {
    let shortest = u64::from(FRAME_BYTES_MIN + WIRE_OVERHEAD_BYTES);
    let crosses = |link: &LinkId| {
        let (from, to) = topology.ends(*link);
        shard_of[topology.node_of(from).0 as usize] != shard_of[topology.node_of(to).0 as usize]
    };
    let latency_ps = |link: LinkId| {
        let spec = topology.link_spec(link);
        spec.delay_ps + spec.serialisation_ps(shortest)
    };
    (0..topology.link_count()).map(LinkId).filter(crosses).map(latency_ps).min().unwrap_or(u64::MAX)
}

/// Hands over everything in the outboxes.
pub(crate) fn exchange(shards: &mut [Shard]) {
    for to in 0..shards.len() {
        for from in 0..shards.len() {
            for crossing in std::mem::take(&mut shards[from].core.outbox[to]) {
                shards[to].core.take_over(crossing);
            }
        }
    }
}

/// What the threads of a run share.
struct Meeting {
    barrier: Barrier,
    mailboxes: Vec<Mutex<Vec<Crossing>>>,
    /// Time of each shard's next event; `u64::MAX` if it has none.
    next_ps: Vec<AtomicU64>,
    has_panicked: AtomicBool,
}

/// Processes every event up to and including `until_ps`, one thread per shard. Outboxes are empty before and after.
pub(crate) fn run_until(shards: &mut [Shard], until_ps: u64, lookahead_ps: u64) {
    let next_ps = shards.iter().map(|shard| AtomicU64::new(next_of(shard))).collect();
    let meeting = Meeting {
        barrier: Barrier::new(shards.len()),
        mailboxes: shards.iter().map(|_| Mutex::default()).collect(),
        next_ps,
        has_panicked: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let run = |shard| run_shard(shard, &meeting, until_ps, lookahead_ps);
        let threads: Vec<_> = shards.iter_mut().map(|shard| scope.spawn(move || run(shard))).collect();
        if let Some(panic) = threads.into_iter().find_map(|thread| thread.join().err()) {
            resume_unwind(panic);
        }
    });
}

fn next_of(shard: &Shard) -> u64 {
    shard.core.agenda.first_ps()
}

fn run_shard(shard: &mut Shard, meeting: &Meeting, until_ps: u64, lookahead_ps: u64) {
    let own = shard.core.shard as usize;
    loop {
        let start_ps = meeting.next_ps.iter().map(|next| next.load(Ordering::SeqCst)).min().unwrap_or(u64::MAX);
        if start_ps > until_ps || start_ps == u64::MAX {
            return;
        }
        let end_ps = start_ps.saturating_add(lookahead_ps - 1).min(until_ps);
        // A node that panics must not leave the other threads at the barrier.
        let outcome = catch_unwind(AssertUnwindSafe(|| shard.run_until(end_ps)));
        if outcome.is_err() {
            meeting.has_panicked.store(true, Ordering::SeqCst);
        }
        for (to, crossings) in shard.core.outbox.iter_mut().enumerate().filter(|(_, crossings)| !crossings.is_empty()) {
            meeting.mailboxes[to].lock().unwrap_or_else(PoisonError::into_inner).append(crossings);
        }
        meeting.barrier.wait();
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
        if meeting.has_panicked.load(Ordering::SeqCst) {
            return;
        }
        let arrived = std::mem::take(&mut *meeting.mailboxes[own].lock().unwrap_or_else(PoisonError::into_inner));
        arrived.into_iter().for_each(|crossing| shard.core.take_over(crossing));
        meeting.next_ps[own].store(next_of(shard), Ordering::SeqCst);
        meeting.barrier.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::shape::{LeafSpine, PlaneLinks};

    fn topology() -> Topology {
        let links = PlaneLinks { host: LinkSpec::new(100_000, 10), core: LinkSpec::new(100_000, 5_000) };
        let planes = vec![links.clone(), links];
        Topology::leaf_spine(&LeafSpine { leaf_count: 4, hosts_per_leaf: 2, spine_count: 2, planes })
    }

    #[test]
    fn hosts_stay_with_their_leaf_in_every_plane_and_are_dealt_out_evenly() {
        let topology = topology();
        let shard_of = partition(&topology, 2);
        assert_eq!(shard_of[..8], [0, 0, 0, 0, 1, 1, 1, 1]);
        for cable in topology.cables.iter().filter(|cable| matches!(cable.a, End::Host(_))) {
            let [a, b] = [cable.a, cable.b].map(|end| shard_of[topology.node_of(end).0 as usize]);
            assert_eq!(a, b, "{cable:?}");
        }
        let spines = (0..topology.switches.len()).filter(|index| topology.switches[*index].name.contains("spine"));
        let in_first = spines.filter(|index| shard_of[8 + index] == 0).count();
        assert_eq!(in_first, 2);
    }

    #[test]
    fn lookahead_is_the_shortest_link_between_shards() {
        let topology = topology();
        // Only core links cross: 5 ns and 84 bytes at 80 ps.
        assert_eq!(lookahead_ps(&topology, &partition(&topology, 2)), 5_000 + 84 * 80);
        assert_eq!(lookahead_ps(&topology, &partition(&topology, 1)), u64::MAX);
    }
}
