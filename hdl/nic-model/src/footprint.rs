//! What a connection takes of the simulator's memory: its own structures and what they hold on the heap.
//!
//! Thousands of connections with a dozen paths each must fit, and the processor's caches with them, so the size of a path
//! is a promise that tests hold. Capacities count, not what is in use.

use crate::connection::Connection;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Memory of one end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Paths each way; the larger number.
    pub paths: usize,
    /// The paths of both directions, with what is remembered of the packets that stand out on them. Bytes.
    pub paths_bytes: usize,
    /// Everything else: the connection, its streams and messages. Bytes.
    pub rest_bytes: usize,
}

/// Bytes behind a vector.
pub(crate) const fn of_vec<T>(v: &Vec<T>) -> usize {
    v.capacity() * size_of::<T>()
}

/// Bytes behind a queue.
pub(crate) fn of_queue<T>(q: &VecDeque<T>) -> usize {
    q.capacity() * size_of::<T>()
}

impl Connection {
    /// What it takes now.
    pub fn footprint(&self) -> Footprint {
        let config = of_vec(&self.cfg.addresses)
            + of_vec(&self.cfg.tx_paths)
            + of_vec(&self.cfg.rx_paths)
            + of_vec(&self.cfg.streams);
        let small = of_vec(&self.acked) + of_vec(&self.good_ports) + of_vec(&self.parked) + of_vec(&self.home);
        Footprint {
            paths: self.paths.len().max(self.rx_paths.len()),
            paths_bytes: self.paths.heap_bytes() + of_vec(&self.rx_paths),
            rest_bytes: size_of::<Self>()
                + config
                + small
                + self.template_bytes()
                + self.requester.heap_bytes()
                + self.responder.heap_bytes(),
        }
    }
}
