//! What a workload needs of a NIC, and nothing more.

use crate::frame::Frame;
use crate::node::{Ahead, Context};
use crate::workload::graph::{MessageId, Verb, Workload};

/// A message to be moved, as its initiator's NIC is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which; for a written message the far side reports this number when all of it is there.
    pub message: MessageId,
    /// Index of the connection in [`Workload::connections_of`] this host.
    pub connection: u32,
    /// Bytes to move; may be 0.
    pub bytes: u64,
    /// Write it to the peer, or read it from there.
    pub verb: Verb,
}

impl Request {
    /// The request for a message of a workload.
    pub fn of(workload: &Workload, message: MessageId) -> Request {
        let connection = workload.connection_at_initiator(message);
        let entry = workload.message(message);
        Request { message, connection, bytes: entry.bytes, verb: entry.verb }
    }
}

/// What a NIC reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message that this host asked for is done: written and acknowledged, or read and here.
    Completed(MessageId),
    /// All of a message that a peer wrote is here.
    Arrived(MessageId),
    /// The NIC gave up on a message that this host asked for.
    Failed(MessageId),
}

/// How a path of a connection stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathGauge {
    /// Number of the path; a NIC with one path per connection has path 0.
    pub path: u16,
    /// What congestion control lets be in flight, bytes; `u64::MAX` where there is no window.
    pub window_bytes: u64,
    /// What is in flight, bytes.
    pub in_flight_bytes: u64,
    /// What congestion control lets be sent, megabits per second; `u64::MAX` where there is no rate.
    pub rate_mbps: u64,
}

/// A NIC in the fabric that can be given messages.
///
/// Connections are those of [`Workload::connections_of`] the host, known from the start on both sides. The timer token
/// [`crate::workload::PLAYER_TOKEN`] is not the endpoint's to use.
pub trait Endpoint: Send + 'static {
    /// Called once, before anything else.
    fn on_start(&mut self, _ctx: &mut Context<'_>) {}

    /// Takes a message to move. Messages of a connection complete in any order.
    fn post(&mut self, ctx: &mut Context<'_>, request: &Request);

    /// A frame arrived.
    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame);

    /// A timer is due.
    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32);

    /// As [`Node::foresee`](crate::Node::foresee).
    fn foresee(&self) {}

    /// As [`Node::foresee_event`](crate::Node::foresee_event).
    fn foresee_event(&self, _ahead: Ahead<'_>) {}

    /// The cable at a port went down or came back.
    fn on_port_state(&mut self, _ctx: &mut Context<'_>, _port: u16, _is_up: bool) {}

    /// The queue of a port with classes has run empty.
    fn on_port_idle(&mut self, _ctx: &mut Context<'_>, _port: u16) {}

    /// Moves what happened since the last call to the end of `events`.
    fn take_events(&mut self, events: &mut Vec<Event>);

    /// Payload bytes of a connection that have come in for good, so far.
    fn received_bytes(&self, _connection: u32) -> u64 {
        0
    }

    /// Adds the state of every path of a connection.
    fn gauges(&self, _connection: u32, _gauges: &mut Vec<PathGauge>) {}

    /// Shows every counter.
    fn counters(&self, _show: &mut dyn FnMut(&'static str, u64)) {}
}
