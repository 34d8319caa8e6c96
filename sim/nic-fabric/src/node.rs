//! What stands at the end of a cable: the `Node` trait, and what a node may do.

use std::any::Any;

use rand_chacha::ChaCha8Rng;

use crate::engine::Core;
use crate::frame::Frame;
use crate::topology::NodeId;

/// A NIC, or anything else that sends and receives frames.
///
/// A node acts only through its [`Context`], and learns of time only from it, so a run is a function of the seed.
pub trait Node: AsAny + Send {
    /// Called once, before anything else happens to the node.
    fn on_start(&mut self, _ctx: &mut Context<'_>) {}

    /// The last bit of a frame has arrived.
    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame);

    /// A timer set with [`Context::set_timer`] is due. Timers cannot be cancelled: a node that no longer wants one
    /// ignores it.
    fn on_timer(&mut self, ctx: &mut Context<'_>, token: u32);

    /// The node will be served soon, after one or two others: the lines of memory that every call touches may be fetched
    /// with [`prefetch`](crate::prefetch()). The first two lines of the node are being fetched when this comes.
    fn foresee(&self) {}

    /// As [`foresee`](Self::foresee) when it is known what will happen: for the first events while another node is served,
    /// for the frames after them a few events ahead.
    fn foresee_event(&self, _ahead: Ahead<'_>) {}

    /// The cable at a port went down or came back.
    fn on_port_state(&mut self, _ctx: &mut Context<'_>, _port: u16, _is_up: bool) {}

    /// The queue of a port with classes has run empty. Ports without classes have [`Context::port_free_at_ps`] and do
    /// not call this.
    fn on_port_idle(&mut self, _ctx: &mut Context<'_>, _port: u16) {}
}

/// What will happen to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead<'a> {
    /// This frame arrives.
    Frame(&'a Frame),
    /// A timer with this token is due.
    Timer(u32),
}

/// Access to the concrete type of a node; implemented for every type.
pub trait AsAny: Any {
    /// The node as any type.
    fn as_any(&self) -> &dyn Any;
    /// The node as any type, to be changed.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<T: Any> AsAny for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// What a node sees of the fabric while it is called.
pub struct Context<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) node: u32,
}

impl Context<'_> {
    /// Current time, picoseconds.
    #[inline]
    pub fn now_ps(&self) -> u64 {
        self.core.now_ps
    }

    /// The node that is being called.
    pub fn node(&self) -> NodeId {
        NodeId(self.node)
    }

    /// Number of ports of this node.
    pub fn port_count(&self) -> u16 {
        self.core.net.port_count(self.node)
    }

    /// A port of this node.
    ///
    /// # Panics
    /// If the node has no such port.
    #[inline]
    pub fn out_port(&mut self, port: u16) -> OutPort<'_> {
        let link = self.core.net.out_link(self.node, port);
        OutPort { core: self.core, link }
    }

    /// Queues a frame on a port. It leaves after those queued before it.
    ///
    /// # Panics
    /// If the node has no such port.
    #[inline]
    pub fn send(&mut self, port: u16, frame: Frame) {
        self.out_port(port).send(frame);
    }

    /// Calls [`Node::on_timer`] with this token at `at_ps`, or now if that is past. Timers of the same node and
    /// picosecond come in the order of their tokens.
    #[inline]
    pub fn set_timer(&mut self, at_ps: u64, token: u32) {
        self.core.set_timer(self.node, at_ps, token);
    }

    /// When the frames queued on a port so far have left: the earliest time at which another could start. On a port
    /// with classes this assumes that nothing pauses it.
    ///
    /// # Panics
    /// If the node has no such port.
    #[inline]
    pub fn port_free_at_ps(&self, port: u16) -> u64 {
        self.core.now_ps + self.port_backlog_ps(port)
    }

    /// Line time of the frames queued on a port, the rest of the one being sent included, picoseconds.
    ///
    /// # Panics
    /// If the node has no such port.
    #[inline]
    pub fn port_backlog_ps(&self, port: u16) -> u64 {
        self.core.tx[self.core.net.out_link(self.node, port) as usize].backlog_ps(self.core.now_ps)
    }

    /// Time on this port's line for a frame of so many wire bytes ([`Frame::wire_bytes`]), picoseconds.
    ///
    /// # Panics
    /// If the node has no such port.
    #[inline]
    pub fn serialisation_ps(&self, port: u16, wire_bytes: u32) -> u64 {
        self.core.tx[self.core.net.out_link(self.node, port) as usize].serialisation_ps(wire_bytes)
    }

    /// Whether the cable at a port is up.
    ///
    /// # Panics
    /// If the node has no such port.
    pub fn port_is_up(&self, port: u16) -> bool {
        !self.core.tx[self.core.net.out_link(self.node, port) as usize].is_down()
    }

    /// The node's own random stream.
    pub fn rng(&mut self) -> &mut ChaCha8Rng {
        self.core.node_rng(self.node)
    }
}

/// A port of a node that is being called: for a node that has several questions about it.
pub struct OutPort<'a> {
    core: &'a mut Core,
    link: u32,
}

impl OutPort<'_> {
    /// As [`Context::send`].
    #[inline]
    pub fn send(&mut self, frame: Frame) {
        let now_ps = self.core.now_ps;
        self.core.enter(self.link, frame, now_ps);
    }

    /// As [`Context::port_free_at_ps`].
    #[inline]
    pub fn free_at_ps(&self) -> u64 {
        let now_ps = self.core.now_ps;
        now_ps + self.core.tx[self.link as usize].backlog_ps(now_ps)
    }

    /// As [`Context::port_is_up`].
    #[inline]
    pub fn is_up(&self) -> bool {
        !self.core.tx[self.link as usize].is_down()
    }
}
