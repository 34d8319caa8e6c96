//! What leaves by a port: control packets first, then retransmissions, new packets in turn of the connections, and copies
//! when there is nothing else.

use crate::ack::push_control;
use crate::memory::HostMemory;
use crate::nic::{find, Nic};
use crate::plane::Control;
use crate::send::Next;
use crate::time::Time;
use crate::wire::emit::emit_packet;
use crate::wire::frame::Frame;
use crate::wire::packet::{Body, Packet};
use nic_spec::csr::stats::Counter;

impl Nic {
    /// True when the port of `plane` should be asked. It may still have nothing.
    pub fn wants_transmit(&self, plane: u8) -> bool {
        self.core.planes.get(usize::from(plane)).is_some_and(|q| q.wants_transmit())
    }

    /// The next frame for the port of `plane`, which is free now.
    pub fn poll_transmit(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory) -> Option<Frame> {
        let mut frame = Frame::empty();
        self.poll_transmit_into(now, plane, mem, &mut frame).then_some(frame)
    }

    /// As [`poll_transmit`](Self::poll_transmit), into a frame that is used again; false when there is nothing to send,
    /// and then `out` means nothing.
    pub fn poll_transmit_into(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory, out: &mut Frame) -> bool {
        let Some(queue) = self.core.planes.get_mut(usize::from(plane)).filter(|q| q.link_up) else { return false };
        // Nearly every frame is one of these two.
        let is_made = if let Some((conn, path)) = queue.pop_ack() {
            let c = find(&mut self.conns, conn);
            c.is_some_and(|c| c.build_ack(&mut self.core, now, plane, path, None, out))
                || self.next_frame(now, plane, false, mem, out)
        } else if queue.has_urgent() {
            self.next_frame(now, plane, false, mem, out)
        } else {
            self.new_packet(now, plane, mem, out) || self.next_frame(now, plane, true, mem, out)
        };
        if is_made {
            self.core.counters.count(Counter::TxFrames);
            self.core.counters.add(Counter::TxBytes, out.len_bytes().into());
        }
        is_made
    }

    /// Makes `out` the next frame, whatever it was before; false when there is nothing to send. `is_new_asked` says that
    /// there is no new packet before something else left or was found unwanted.
    #[inline(never)]
    fn next_frame(
        &mut self,
        now: Time,
        plane: u8,
        mut is_new_asked: bool,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> bool {
        let at = usize::from(plane);
        loop {
            while let Some(control) = self.core.planes[at].pop_control() {
                is_new_asked = false;
                if self.control_frame(now, plane, control, out) {
                    return true;
                }
            }
            while let Some((conn, path)) = self.core.planes[at].pop_rtx() {
                is_new_asked = false;
                if self.retransmission(now, plane, conn, path, mem, out) {
                    return true;
                }
            }
            if !core::mem::take(&mut is_new_asked) && self.new_packet(now, plane, mem, out) {
                return true;
            }
            // Connections that ran out of packets, or of copies, leave markers.
            if !self.core.planes[at].has_control() {
                if self.redundant_copy(now, plane, mem, out) {
                    return true;
                }
                if !self.core.planes[at].has_control() {
                    return false;
                }
            }
        }
    }

    /// Makes the frame of a control packet; false when it is no longer wanted here.
    #[inline(never)]
    fn control_frame(&mut self, now: Time, plane: u8, control: Control, out: &mut Frame) -> bool {
        let (core, refused) = (&mut self.core, |trigger, reason| Some((trigger, reason)));
        let (conn, path, refused) = match control {
            Control::Ack { conn, path } => (conn, path, None),
            Control::Nak { conn, path, trigger, reason } => (conn, path, refused(trigger, reason)),
            other => match self.build_control(now, plane, other) {
                Some(packet) => {
                    emit_packet(packet, &self.core.emit, out);
                    return true;
                }
                None => return false,
            },
        };
        find(&mut self.conns, conn).is_some_and(|c| c.build_ack(core, now, plane, path, refused, out))
    }

    fn build_control(&mut self, now: Time, plane: u8, control: Control) -> Option<Packet> {
        let core = &mut self.core;
        match control {
            Control::Ack { .. } | Control::Nak { .. } => None,
            Control::Probe { conn, path } => {
                let c = find(&mut self.conns, conn)?;
                let there = c.paths.get(usize::from(path))?.plane;
                if there != plane && core.planes.get(usize::from(there)).is_some_and(|q| q.link_up) {
                    // Re-aimed since: the probe belongs to the new route.
                    push_control(core, there, control);
                    return None;
                }
                core.counters.count(Counter::TxProbe);
                c.build_probe(core, now, path)
            }
            Control::PortStatus { conn } => Some(find(&mut self.conns, conn)?.build_port_status(core, now, plane)),
            Control::PlaneProbe { conn } => {
                core.counters.count(Counter::TxProbe);
                find(&mut self.conns, conn)?.build_plane_probe(core, now, plane)
            }
            Control::Cm { conn, opcode } => Some(find(&mut self.conns, conn)?.build_cm(core, now, plane, opcode)),
            Control::StrayCm { packet } => Some(*packet),
            Control::PathCtl { conn, control } => {
                let c = find(&mut self.conns, conn)?;
                let sport = c.draw_port();
                let mut packet = c.control_packet(core, now, plane, sport);
                packet.body = Body::PathCtl(control);
                Some(packet)
            }
        }
    }

    #[inline(never)]
    fn retransmission(
        &mut self,
        now: Time,
        plane: u8,
        conn: u32,
        path: u8,
        mem: &mut dyn HostMemory,
        out: &mut Frame,
    ) -> bool {
        let (core, index) = (&mut self.core, usize::from(path));
        let Some(c) = find(&mut self.conns, conn).filter(|c| index < c.paths.len()) else { return false };
        c.paths.set_rtx_queued(index, false);
        let is_here = c.paths.get(index).is_some_and(|p| p.plane == plane);
        // A path re-aimed since then stands in the queue of its new plane after this.
        let sent = is_here && c.next_retransmission(core, now, index, mem, out);
        c.settle_path(core, now, index);
        sent
    }

    #[inline]
    fn new_packet(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory, out: &mut Frame) -> bool {
        let core = &mut self.core;
        let Some(queue) = core.planes.get(usize::from(plane)) else { return false };
        // A turn of the only connection leaves the queue as it is.
        if let Some(c) = queue.only_ready().and_then(|conn| find(&mut self.conns, conn)) {
            match c.next_new(core, now, plane, mem, out) {
                Next::Frame => return true,
                Next::OtherPlane => {}
                next => {
                    core.planes[usize::from(plane)].pop_ready();
                    c.leave_ready(core, now, plane, next);
                }
            }
            return false;
        }
        self.new_packet_of_many(now, plane, mem, out)
    }

    #[inline(never)]
    fn new_packet_of_many(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory, out: &mut Frame) -> bool {
        let at = usize::from(plane);
        // Each connection is asked once; one for which another plane is due keeps its place.
        for _ in 0..self.core.planes[at].ready_count() {
            let Some(conn) = self.core.planes[at].pop_ready() else { return false };
            let core = &mut self.core;
            let Some(c) = find(&mut self.conns, conn) else { continue };
            match c.next_new(core, now, plane, mem, out) {
                Next::Frame => {
                    core.planes[at].push_ready(conn);
                    return true;
                }
                Next::OtherPlane => core.planes[at].push_ready(conn),
                next => c.leave_ready(core, now, plane, next),
            }
        }
        false
    }

    #[inline(never)]
    fn redundant_copy(&mut self, now: Time, plane: u8, mem: &mut dyn HostMemory, out: &mut Frame) -> bool {
        let at = usize::from(plane);
        while let Some(conn) = self.core.planes[at].pop_idle() {
            let core = &mut self.core;
            let Some(c) = find(&mut self.conns, conn) else { continue };
            if c.next_redundant(core, now, plane, mem, out) {
                core.planes[at].push_idle(conn);
                return true;
            }
            c.in_idle &= !(1 << plane);
            if !c.has_new() {
                c.go_idle(core, now);
            }
        }
        false
    }
}
