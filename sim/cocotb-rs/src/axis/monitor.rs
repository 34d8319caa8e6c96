//! Watches a stream without taking part in it.

use super::{collect::Collector, AxisCapture, AxisPorts, AxisStats};
use crate::{
    agent::{Agent, Io},
    port::Port,
    queue::Queue,
    sim::{Clock, Handle},
};
use std::{cell::Cell, rc::Rc};

/// Frames a monitor keeps for its owner; older ones are dropped first, so that nobody has to take them.
const FRAMES_MAX: usize = 4096;

/// Watches a stream, in either direction, and checks the protocol. Clones are the same monitor.
#[derive(Clone)]
pub struct AxisMonitor {
    frames: Queue<AxisCapture>,
    stats: Rc<Cell<AxisStats>>,
}

impl AxisMonitor {
    /// Watches at every edge of `clock`.
    pub fn attach(handle: &Handle, clock: Clock, ports: AxisPorts) -> Self {
        let monitor = AxisMonitor { frames: Queue::new(), stats: Rc::default() };
        let watcher = Watcher { ready: ports.ready, collector: Collector::new(ports), monitor: monitor.clone() };
        handle.attach(clock, watcher);
        monitor
    }

    /// The oldest frame seen and not taken, of the last few thousand.
    pub fn try_recv(&self) -> Option<AxisCapture> {
        self.frames.try_pop()
    }

    /// Waits for a frame.
    pub async fn recv(&self) -> AxisCapture {
        self.frames.pop().await
    }

    /// What happened so far.
    pub fn stats(&self) -> AxisStats {
        self.stats.get()
    }
}

struct Watcher {
    ready: Port,
    collector: Collector,
    monitor: AxisMonitor,
}

impl Agent for Watcher {
    fn on_edge(&mut self, io: &mut Io<'_>) {
        if io.is_in_reset() {
            self.collector.reset();
            return;
        }
        let is_ready = io.is_set(self.ready);
        if let Some(frame) = self.collector.on_edge(io, is_ready) {
            if self.monitor.frames.len() == FRAMES_MAX {
                self.monitor.frames.try_pop();
            }
            self.monitor.frames.push(frame);
        }
        self.monitor.stats.set(self.collector.stats);
    }
}
