//! Sends frames into the design.

use super::AxisPorts;
use crate::{
    agent::{Agent, Io},
    error::SimError,
    pace::Pace,
    port::Direction,
    queue::Event,
    sim::{Clock, Handle},
};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

struct Waiting {
    bytes: Vec<u8>,
    user: u64,
    not_before_ps: u64,
}

struct Shared {
    waiting: VecDeque<Waiting>,
    pace: Pace,
    sent_frames: u64,
    idle: Event,
}

/// Sends frames into a stream input of the design. Clones are the same source.
#[derive(Clone)]
pub struct AxisSource {
    shared: Rc<RefCell<Shared>>,
    width_bytes: usize,
}

impl AxisSource {
    /// Drives the stream at every edge of `clock`, offering beats as `pace` allows.
    ///
    /// # Errors
    /// The ports are not a stream into the design.
    pub fn attach(handle: &Handle, clock: Clock, ports: AxisPorts, pace: Pace) -> Result<Self, SimError> {
        ports.check_direction(Direction::Input)?;
        let idle = Event::new();
        idle.set();
        let shared = Rc::new(RefCell::new(Shared { waiting: VecDeque::new(), pace, sent_frames: 0, idle }));
        let width_bytes = ports.width_bytes();
        handle.attach(clock, Driver { ports, shared: shared.clone(), is_valid: false, offset: 0, offered: 0 });
        Ok(AxisSource { shared, width_bytes })
    }

    /// Queues a frame. Its last beat has the rest of the bytes and the others are full; without a keep port the frame
    /// must fill its last beat.
    ///
    /// # Panics
    /// If the frame is empty.
    pub fn send(&self, bytes: impl Into<Vec<u8>>) {
        self.send_with(bytes, 0, 0);
    }

    /// Queues a frame with a value of the user port, that is not offered before a time. A frame waits for those queued
    /// before it.
    ///
    /// # Panics
    /// If the frame is empty.
    pub fn send_with(&self, bytes: impl Into<Vec<u8>>, user: u64, not_before_ps: u64) {
        let bytes = bytes.into();
        assert!(!bytes.is_empty(), "a stream cannot carry an empty frame");
        let mut shared = self.shared.borrow_mut();
        shared.waiting.push_back(Waiting { bytes, user, not_before_ps });
        shared.idle.clear();
    }

    /// Frames not yet taken whole.
    pub fn pending(&self) -> usize {
        self.shared.borrow().waiting.len()
    }

    /// Frames taken whole so far.
    pub fn sent_frames(&self) -> u64 {
        self.shared.borrow().sent_frames
    }

    /// Bytes per beat.
    pub fn width_bytes(&self) -> usize {
        self.width_bytes
    }

    /// Waits until everything queued has been taken.
    pub async fn drained(&self) {
        let idle = self.shared.borrow().idle.clone();
        idle.wait().await;
    }

    /// Changes the pace from the next beat on; a beat already offered stays.
    pub fn set_pace(&self, pace: Pace) {
        self.shared.borrow_mut().pace = pace;
    }
}

struct Driver {
    ports: AxisPorts,
    shared: Rc<RefCell<Shared>>,
    is_valid: bool,
    /// Bytes of the head frame taken so far.
    offset: usize,
    /// Bytes in the beat on offer.
    offered: usize,
}

impl Agent for Driver {
    fn on_edge(&mut self, io: &mut Io<'_>) {
        let shared = self.shared.clone();
        let mut shared = shared.borrow_mut();
        if io.is_in_reset() {
            (self.is_valid, self.offset) = (false, 0);
            io.set(self.ports.valid, 0);
            return;
        }
        if self.is_valid {
            if !io.is_set(self.ports.ready) {
                return;
            }
            self.take(&mut shared);
        }
        let is_due = shared.waiting.front().is_some_and(|frame| frame.not_before_ps <= io.time_ps());
        self.is_valid = is_due && shared.pace.goes();
        io.set(self.ports.valid, u64::from(self.is_valid));
        if self.is_valid {
            self.offer(&shared, io);
        }
    }
}

impl Driver {
    /// The beat on offer was taken.
    fn take(&mut self, shared: &mut Shared) {
        self.offset += self.offered;
        let is_over = shared.waiting.front().is_some_and(|frame| self.offset >= frame.bytes.len());
        if is_over {
            shared.waiting.pop_front();
            self.offset = 0;
            shared.sent_frames += 1;
            if shared.waiting.is_empty() {
                shared.idle.set();
            }
        }
    }

    fn offer(&mut self, shared: &Shared, io: &mut Io<'_>) {
        let Some(frame) = shared.waiting.front() else { return };
        let rest = &frame.bytes[self.offset..];
        self.offered = rest.len().min(self.ports.width_bytes());
        io.set_bytes(self.ports.data, &rest[..self.offered]);
        if let Some(keep) = self.ports.keep {
            let mask = u128::MAX >> (128 - self.offered);
            io.set_words(keep, &[mask as u64, (mask >> 64) as u64][..keep.width_words()]);
        } else if self.offered < self.ports.width_bytes() {
            io.fail(format!("{}: a frame of {} bytes needs a keep port", self.ports.name, frame.bytes.len()));
        }
        if let Some(last) = self.ports.last {
            io.set(last, u64::from(self.offered == rest.len()));
        }
        if let Some(user) = self.ports.user {
            io.set(user, frame.user);
        }
    }
}
