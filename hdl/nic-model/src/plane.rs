//! What waits at a port. A port that is free takes, in this order: control packets, retransmissions, new packets in
//! turn of the connections, redundant copies.

use crate::transport::rx_path::Trigger;
use crate::wire::packet::{Packet, PathControl};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use nic_spec::wire::Opcode;

/// A control packet to be built when the port is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Acknowledgement, or answer to a probe, of a path of the peer.
    Ack { conn: u32, path: u8 },
    /// Marker or probe of a path of this side.
    Probe { conn: u32, path: u8 },
    /// Refusal of a packet.
    Nak { conn: u32, path: u8, trigger: Trigger, reason: u8 },
    /// Report of the planes that this side can use.
    PortStatus { conn: u32 },
    /// Probe of a plane that is down.
    PlaneProbe { conn: u32 },
    /// Connection management.
    Cm { conn: u32, opcode: Opcode },
    /// The same about a connection that is not there.
    StrayCm { packet: Box<Packet> },
    /// Path control.
    PathCtl { conn: u32, control: PathControl },
}

/// The queues of one port. Each holds a connection or path at most once; its owner remembers.
#[derive(Clone, Debug)]
pub(crate) struct PlaneQueue {
    pub link_up: bool,
    pub control: VecDeque<Control>,
    /// Paths with retransmissions.
    pub rtx: VecDeque<(u32, u8)>,
    /// Connections that may have a new packet.
    pub ready: VecDeque<u32>,
    /// Connections that have nothing new and may send copies.
    pub idle: VecDeque<u32>,
}

impl Default for PlaneQueue {
    fn default() -> Self {
        Self {
            link_up: true,
            control: VecDeque::new(),
            rtx: VecDeque::new(),
            ready: VecDeque::new(),
            idle: VecDeque::new(),
        }
    }
}

impl PlaneQueue {
    /// True when a free port should ask.
    pub fn wants_transmit(&self) -> bool {
        self.link_up
            && !(self.control.is_empty() && self.rtx.is_empty() && self.ready.is_empty() && self.idle.is_empty())
    }
}
