//! Receives frames from the design.

use super::{collect::Collector, AxisCapture, AxisPorts, AxisStats};
use crate::{
    agent::{Agent, Io},
    error::SimError,
    pace::Pace,
    port::{Direction, Port},
    queue::Queue,
    sim::{Clock, Handle},
};
use std::{cell::RefCell, rc::Rc};

struct Shared {
    pace: Pace,
    stats: AxisStats,
}

/// Receives frames from a stream output of the design, checking the protocol. Clones are the same sink.
#[derive(Clone)]
pub struct AxisSink {
    shared: Rc<RefCell<Shared>>,
    frames: Queue<AxisCapture>,
}

impl AxisSink {
    /// Drives ready at every edge of `clock` as `pace` says.
    ///
    /// # Errors
    /// The ports are not a stream out of the design.
    pub fn attach(handle: &Handle, clock: Clock, ports: AxisPorts, pace: Pace) -> Result<Self, SimError> {
        ports.check_direction(Direction::Output)?;
        let shared = Rc::new(RefCell::new(Shared { pace, stats: AxisStats::default() }));
        let frames = Queue::new();
        let receiver = Receiver {
            is_ready: false,
            ready: ports.ready,
            collector: Collector::new(ports),
            shared: shared.clone(),
            frames: frames.clone(),
        };
        handle.attach(clock, receiver);
        Ok(AxisSink { shared, frames })
    }

    /// The oldest frame received, if there is one.
    pub fn try_recv(&self) -> Option<AxisCapture> {
        self.frames.try_pop()
    }

    /// Waits for a frame.
    pub async fn recv(&self) -> AxisCapture {
        self.frames.pop().await
    }

    /// Takes all frames received.
    pub fn drain(&self) -> Vec<AxisCapture> {
        self.frames.drain()
    }

    /// Frames received and not taken.
    pub fn pending(&self) -> usize {
        self.frames.len()
    }

    /// What happened so far.
    pub fn stats(&self) -> AxisStats {
        self.shared.borrow().stats
    }

    /// Changes the pace.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.borrow_mut().pace = pace;
    }
}

struct Receiver {
    is_ready: bool,
    ready: Port,
    collector: Collector,
    shared: Rc<RefCell<Shared>>,
    frames: Queue<AxisCapture>,
}

impl Agent for Receiver {
    fn on_edge(&mut self, io: &mut Io<'_>) {
        if io.is_in_reset() {
            self.collector.reset();
            self.is_ready = false;
            io.set(self.ready, 0);
            return;
        }
        if let Some(frame) = self.collector.on_edge(io, self.is_ready) {
            self.frames.push(frame);
        }
        let mut shared = self.shared.borrow_mut();
        shared.stats = self.collector.stats;
        self.is_ready = shared.pace.goes();
        io.set(self.ready, u64::from(self.is_ready));
    }
}
