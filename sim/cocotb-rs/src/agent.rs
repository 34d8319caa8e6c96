//! Bus functional models as plain callbacks: the fast way to take part in every cycle.

use crate::port::{Port, PortImage};
use std::ops::Deref;

/// Something called after every rising edge of its clock, before any task runs.
///
/// It sees the ports as they stood just before the edge, so a handshake took place at the edge if both valid and ready
/// are set in what it sees, and it writes what the design is to see before the next edge. Any
/// `FnMut(&mut Io<'_>)` is an agent.
pub trait Agent {
    /// One rising edge.
    fn on_edge(&mut self, io: &mut Io<'_>);
}

impl<F: FnMut(&mut Io<'_>)> Agent for F {
    fn on_edge(&mut self, io: &mut Io<'_>) {
        self(io);
    }
}

/// What an agent sees and writes at an edge. Dereferences to the [`PortImage`] for reading.
pub struct Io<'a> {
    pub(crate) image: &'a mut PortImage,
    pub(crate) cycle: u64,
    pub(crate) time_ps: u64,
    pub(crate) is_in_reset: bool,
    pub(crate) failure: &'a mut Option<String>,
}

impl Deref for Io<'_> {
    type Target = PortImage;

    fn deref(&self) -> &PortImage {
        self.image
    }
}

impl Io<'_> {
    /// Number of this rising edge of the agent's clock; the first is 1.
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// Time of the edge in picoseconds.
    pub fn time_ps(&self) -> u64 {
        self.time_ps
    }

    /// Whether the design was in reset at this edge, so that its outputs mean nothing. Always false if the simulation
    /// was not told of a reset.
    pub fn is_in_reset(&self) -> bool {
        self.is_in_reset
    }

    /// Writes an input of at most 64 bits. Panics as [`PortImage::set`] does.
    #[inline]
    pub fn set(&mut self, port: Port, value: u64) {
        self.image.set(port, value);
    }

    /// Writes an input of any width from words. Panics as [`PortImage::set_words`] does.
    #[inline]
    pub fn set_words(&mut self, port: Port, words: &[u64]) {
        self.image.set_words(port, words);
    }

    /// Writes an input of any width from little-endian bytes. Panics as [`PortImage::set_bytes`] does.
    #[inline]
    pub fn set_bytes(&mut self, port: Port, bytes: &[u8]) {
        self.image.set_bytes(port, bytes);
    }

    /// Reports that the design broke a rule: the step that called the agent returns
    /// [`SimError::Violation`](crate::SimError::Violation).
    pub fn fail(&mut self, message: impl AsRef<str>) {
        add_failure(self.failure, message.as_ref());
    }
}

/// Several violations of one step become one message.
pub(crate) fn add_failure(failure: &mut Option<String>, message: &str) {
    match failure {
        Some(earlier) => {
            earlier.push_str("; ");
            earlier.push_str(message);
        }
        None => *failure = Some(message.to_owned()),
    }
}
