//! What waits at a port. A port that is free takes, in this order: control packets, retransmissions, new packets in
//! turn of the connections, redundant copies.

use crate::queue::Queue;
use crate::transport::rx_path::Trigger;
use crate::wire::packet::{Packet, PathControl};
use crate::wire::parser::PortFilter;
use alloc::boxed::Box;
use alloc::vec::Vec;
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
///
/// A port is asked whether it wants something far more often than it is served, so that is one word in front.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct PlaneQueue {
    pub link_up: bool,
    /// Entries of all queues.
    waiting: u32,
    /// Those of `control` and `rtx`.
    urgent: u32,
    ready: Queue<u32>,
    control: Queue<Control>,
    rtx: Queue<(u32, u8)>,
    idle: Queue<u32>,
    /// What the port accepts.
    pub filter: PortFilter,
}

impl PlaneQueue {
    /// A port whose link is up and that accepts this.
    pub const fn new(filter: PortFilter) -> Self {
        Self {
            link_up: true,
            waiting: 0,
            urgent: 0,
            filter,
            ready: Queue::new(),
            control: Queue::new(),
            rtx: Queue::new(),
            idle: Queue::new(),
        }
    }
}

/// Makes the two ends of a queue.
macro_rules! queue {
    ($($(#[$doc:meta])+ $queue:ident: $item:ty, $push:ident, $pop:ident, $urgent:literal;)+) => {
        impl PlaneQueue {$(
            $(#[$doc])+
            #[inline]
            pub fn $push(&mut self, item: $item) {
                self.waiting += 1;
                self.urgent += $urgent;
                self.$queue.push_back(item);
            }

            /// Takes the oldest one.
            #[inline]
            pub fn $pop(&mut self) -> Option<$item> {
                let item = self.$queue.pop_front();
                self.waiting -= u32::from(item.is_some());
                self.urgent -= $urgent * u32::from(item.is_some());
                item
            }
        )+}
    };
}

queue! {
    /// Queues a control packet.
    control: Control, push_control, pop_control, 1;
    /// Queues a path with retransmissions.
    rtx: (u32, u8), push_rtx, pop_rtx, 1;
    /// Queues a connection that may have a new packet.
    ready: u32, push_ready, pop_ready, 0;
    /// Queues a connection that has nothing new and may send copies.
    idle: u32, push_idle, pop_idle, 0;
}

impl PlaneQueue {
    /// The acknowledgement that is likely to leave next, if one is: connection, path.
    #[inline]
    pub fn next_ack(&self) -> Option<(u32, u8)> {
        match self.control.front()? {
            Control::Ack { conn, path } => Some((*conn, *path)),
            _ => None,
        }
    }

    /// The connection that is likely to send the next new packet, behind the acknowledgements.
    #[inline]
    pub fn next_new(&self) -> Option<u32> {
        self.ready.front().copied()
    }

    /// Takes the oldest control packet if it is an acknowledgement: connection, path.
    #[inline]
    pub fn pop_ack(&mut self) -> Option<(u32, u8)> {
        let ack = if self.urgent > 0 { self.next_ack()? } else { return None };
        self.control.drop_front();
        self.waiting -= 1;
        self.urgent -= 1;
        Some(ack)
    }

    /// True when a control packet or a retransmission waits.
    #[inline]
    pub const fn has_urgent(&self) -> bool {
        self.urgent > 0
    }

    /// The only connection that may have a new packet, if it is one.
    #[inline]
    pub fn only_ready(&self) -> Option<u32> {
        self.ready.only().copied()
    }

    /// True when a free port should ask.
    #[inline]
    pub const fn wants_transmit(&self) -> bool {
        self.link_up && self.waiting > 0
    }

    /// Connections that may have a new packet.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// True when a control packet waits.
    pub fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// Takes what cannot leave by this port while its link is down: control packets and retransmissions.
    pub fn take_urgent(&mut self) -> (Vec<Control>, Vec<(u32, u8)>) {
        let (control, rtx): (Vec<_>, Vec<_>) = (self.control.drain().collect(), self.rtx.drain().collect());
        self.waiting -= self.urgent;
        self.urgent = 0;
        (control, rtx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_wants_to_send_while_anything_waits_and_its_link_is_up() {
        let filter = PortFilter { mac: None, udp_dport: 1, frame_bytes_max: 2, elide_icrc: false };
        let mut q = PlaneQueue::new(filter);
        assert!(!q.wants_transmit());
        q.push_idle(1);
        q.push_ready(2);
        q.push_rtx((3, 4));
        q.push_control(Control::Ack { conn: 5, path: 6 });
        assert!(q.wants_transmit() && q.has_control());
        let (control, rtx) = q.take_urgent();
        assert_eq!((control.len(), rtx.len(), q.ready_count(), q.wants_transmit()), (1, 1, 1, true));
        assert_eq!((q.pop_ready(), q.pop_ready(), q.pop_idle(), q.pop_control()), (Some(2), None, Some(1), None));
        assert!(!q.wants_transmit());
        q.push_rtx((7, 0));
        q.link_up = false;
        assert_eq!((q.wants_transmit(), q.pop_rtx()), (false, Some((7, 0))));
    }
}
