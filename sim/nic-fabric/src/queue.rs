//! A real egress queue: a control class before a data class, and pausing of the data class (PFC).
//!
//! The virtual FIFO of [`crate::link`] knows a frame's departure when it arrives; with priorities or pauses nobody can,
//! so here frames wait in two queues and each departure is an event. Control frames (by DSCP, see
//! [`crate::Topology::control_dscps`]) go first and are never paused.
//!
//! PFC: a switch counts the data bytes it holds per link they came in by. Above `xoff_bytes` it pauses that link, at or
//! below `xon_bytes` it lets it go on. The request takes the cable's delay and the line time of a minimum frame; that a
//! real one waits for the frame being sent is left out, so headroom that just suffices here is short by a frame there.

use std::collections::VecDeque;

use crate::engine::{event, key, Core, Crossing, PauseRequest};
use crate::flight::Flight;
use crate::frame::{FRAME_BYTES_MIN, WIRE_OVERHEAD_BYTES};
use crate::link::LinkSpec;
use crate::stats::DropCause;

/// How frames wait for a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueSpec {
    /// One class, departures computed on arrival: fast, and exact for one class.
    #[default]
    VirtualFifo,
    /// A control class with strict priority over the data class. `buffer_bytes` of the link is the data class's room.
    Classes {
        /// Room of the control class, bytes of line time.
        control_buffer_bytes: u64,
    },
}

/// Thresholds of priority flow control, bytes of line time of one link's data frames in the switch at its far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pfc {
    /// More than this pauses the link.
    pub xoff_bytes: u64,
    /// This or less lets it go on.
    pub xon_bytes: u64,
    /// Room above `xoff_bytes` for what is on its way when the pause takes effect; frames beyond it are dropped.
    pub headroom_bytes: u64,
}

/// A frame that waits.
pub(crate) struct Waiting {
    pub flight: Flight,
    /// The link to whose [`Ingress`] the frame is charged.
    charged_to: Option<u32>,
}

impl Waiting {
    pub(crate) fn new(flight: Flight, charged_to: Option<u32>) -> Waiting {
        Waiting { flight, charged_to }
    }

    /// Bytes of line time.
    fn bytes(&self) -> u64 {
        u64::from(self.flight.packet.wire_bytes())
    }

    pub(crate) fn charge(&self) -> Charge {
        Charge { to: self.charged_to, bytes: self.bytes() }
    }
}

/// What a frame takes of a switch's memory until it has left.
#[derive(Clone, Copy)]
pub(crate) struct Charge {
    /// The link to whose [`Ingress`] it stands.
    to: Option<u32>,
    bytes: u64,
}

/// The two queues in front of a link.
pub(crate) struct ClassQueue {
    control: VecDeque<Waiting>,
    data: VecDeque<Waiting>,
    control_bytes: u64,
    data_bytes: u64,
    control_buffer_bytes: u64,
    data_buffer_bytes: u64,
    /// The frame on the line, until its last bit has left.
    pub sending: Option<Charge>,
    /// Whether the far end has paused the data class.
    pub is_paused: bool,
}

impl ClassQueue {
    /// The queue a link needs, if it has classes.
    pub(crate) fn of(spec: &LinkSpec) -> Option<ClassQueue> {
        let QueueSpec::Classes { control_buffer_bytes } = spec.queue else { return None };
        Some(ClassQueue {
            control: VecDeque::new(),
            data: VecDeque::new(),
            control_bytes: 0,
            data_bytes: 0,
            control_buffer_bytes,
            data_buffer_bytes: spec.buffer_bytes,
            sending: None,
            is_paused: false,
        })
    }

    /// Frames that wait, without the frame on the line.
    pub(crate) fn len(&self) -> usize {
        self.control.len() + self.data.len()
    }

    /// Bytes that wait in a class, without the frame on the line.
    pub(crate) fn class_bytes(&self, is_control: bool) -> u64 {
        if is_control {
            self.control_bytes
        } else {
            self.data_bytes
        }
    }

    /// Bytes that wait in both classes, without the frame on the line.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.control_bytes + self.data_bytes
    }

    /// Whether a class has room for so many bytes.
    pub(crate) fn has_room(&self, is_control: bool, bytes: u64) -> bool {
        let room = if is_control { self.control_buffer_bytes } else { self.data_buffer_bytes };
        self.class_bytes(is_control) + bytes <= room
    }

    pub(crate) fn push(&mut self, waiting: Waiting) {
        if waiting.flight.packet.is_control() {
            self.control_bytes += waiting.bytes();
            self.control.push_back(waiting);
        } else {
            self.data_bytes += waiting.bytes();
            self.data.push_back(waiting);
        }
    }

    /// The frame that may go next.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        if let Some(waiting) = self.control.pop_front() {
            self.control_bytes -= waiting.bytes();
            return Some(waiting);
        }
        if self.is_paused {
            return None;
        }
        let waiting = self.data.pop_front()?;
        self.data_bytes -= waiting.bytes();
        Some(waiting)
    }
}

/// What a switch holds of the data frames of one link.
pub(crate) struct Ingress {
    pfc: Pfc,
    held_bytes: u64,
    /// Whether the link was told to pause.
    is_pausing: bool,
}

impl Ingress {
    pub(crate) fn new(pfc: Pfc) -> Ingress {
        Ingress { pfc, held_bytes: 0, is_pausing: false }
    }

    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.held_bytes + bytes <= self.pfc.xoff_bytes + self.pfc.headroom_bytes
    }

    /// Takes a frame in. True if the link must pause now.
    pub(crate) fn charge(&mut self, bytes: u64) -> bool {
        self.held_bytes += bytes;
        let must_pause = !self.is_pausing && self.held_bytes > self.pfc.xoff_bytes;
        self.is_pausing |= must_pause;
        must_pause
    }

    /// Lets a frame go. True if the link may go on now.
    pub(crate) fn release(&mut self, bytes: u64) -> bool {
        self.held_bytes -= bytes;
        let may_go_on = self.is_pausing && self.held_bytes <= self.pfc.xon_bytes;
        self.is_pausing &= !may_go_on;
        may_go_on
    }

    /// The link failed: when it is back, neither side remembers a pause.
    pub(crate) fn forget_pause(&mut self) {
        self.is_pausing = false;
    }
}

/// The part of a shard that deals with queues of classes.
impl Core {
    /// Offers a frame to a queue with classes.
    pub(crate) fn enqueue(&mut self, link: u32, mut flight: Flight, from: Option<u32>, now_ps: u64) {
        let packet = flight.packet;
        let (is_control, bytes) = (packet.is_control(), u64::from(packet.wire_bytes()));
        let Some(queue) = self.tx[link as usize].queue.as_ref() else { return };
        let (class_bytes, has_room) = (queue.class_bytes(is_control), queue.has_room(is_control, bytes));
        let charged_to = from.filter(|from| !is_control && self.rx[*from as usize].ingress.is_some());
        if let Some(from) = charged_to {
            if !self.charge(from, bytes, now_ps) {
                return self.lose(from, flight.take_frame(), DropCause::HeadroomExceeded);
            }
        } else if !has_room {
            return self.lose(link, flight.take_frame(), DropCause::BufferFull);
        }
        let tx = &mut self.tx[link as usize];
        let backlog_ps = tx.line_ps(class_bytes) + tx.free_at_ps.saturating_sub(now_ps);
        tx.backlog_max_ps = tx.backlog_max_ps.max(backlog_ps);
        tx.count(packet.wire_bytes());
        if packet.is_markable() && tx.draw_mark(backlog_ps) {
            self.mark(link, &mut flight.packet);
        }
        if let Some(queue) = self.tx[link as usize].queue.as_mut() {
            queue.push(Waiting::new(flight, charged_to));
        }
        self.send_next(link, now_ps);
    }

    /// Puts the next frame of a queue with classes on the line, if that is free and one may go.
    fn send_next(&mut self, link: u32, now_ps: u64) {
        let tx = &mut self.tx[link as usize];
        let Some(queue) = tx.queue.as_mut().filter(|queue| queue.sending.is_none()) else { return };
        let Some(waiting) = queue.pop() else { return };
        queue.sending = Some(waiting.charge());
        tx.free_at_ps = now_ps + tx.line_ps(waiting.bytes());
        let departure_ps = tx.free_at_ps;
        self.agenda.push(self.near_node(link), departure_ps, key(event::SENT, link, 0));
        self.depart(link, waiting.flight, departure_ps);
    }

    /// The frame on the line of a queue with classes has left. True if nothing waits any more.
    pub(crate) fn sent(&mut self, link: u32) -> bool {
        let sent = self.tx[link as usize].queue.as_mut().and_then(|queue| queue.sending.take());
        if let Some(charge) = sent {
            self.release(charge);
        }
        self.send_next(link, self.now_ps);
        let queue = self.tx[link as usize].queue.as_ref();
        queue.is_some_and(|queue| queue.sending.is_none() && queue.waiting_bytes() == 0)
    }

    /// Takes a lossless frame into a switch. False if there is no room even in the headroom.
    fn charge(&mut self, from: u32, bytes: u64, now_ps: u64) -> bool {
        let Some(ingress) = self.rx[from as usize].ingress.as_mut() else { return true };
        if !ingress.has_room(bytes) {
            return false;
        }
        if ingress.charge(bytes) {
            self.stats.pauses += 1;
            self.request_pause(from, false, now_ps);
        }
        true
    }

    /// A frame has left the switch to whose account it stood.
    pub(crate) fn release(&mut self, charge: Charge) {
        let Some(from) = charge.to else { return };
        let ingress = self.rx[from as usize].ingress.as_mut();
        if ingress.is_some_and(|ingress| ingress.release(charge.bytes)) {
            self.request_pause(from, true, self.now_ps);
        }
    }

    /// Sends a pause request against the direction of a link.
    fn request_pause(&mut self, link: u32, may_go_on: bool, now_ps: u64) {
        let back = &self.tx[(link ^ 1) as usize];
        let at_ps = now_ps + back.serialisation_ps(FRAME_BYTES_MIN + WIRE_OVERHEAD_BYTES) + back.delay_ps;
        // Every shard knows the epoch of every link.
        let request = PauseRequest::new(self.tx[link as usize].epoch, may_go_on);
        match back.to_shard {
            shard if shard == self.shard => self.expect_pause(link, at_ps, request),
            shard => self.outbox[shard as usize].push(Crossing::Pause { link, at_ps, request }),
        }
    }

    /// A request of the far end is there, unless it was lost.
    pub(crate) fn pause(&mut self, link: u32, request: PauseRequest) {
        let tx = &mut self.tx[link as usize];
        let Some(may_go_on) = request.may_go_on(tx.epoch) else { return };
        if let Some(queue) = tx.queue.as_mut() {
            queue.is_paused = !may_go_on;
        }
        self.send_next(link, self.now_ps);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::Packet;
    use crate::frame::Frame;

    /// A frame of 100 bytes of line time that can be told by its flow hash.
    fn frame(id: u32, is_control: bool) -> Waiting {
        let packet = Packet::new(100, id, 0).with_ip(0, false, is_control);
        Waiting::new(Flight::new(packet, Frame::default()), None)
    }

    #[test]
    fn control_goes_first_and_is_not_paused() {
        let mut queue = ClassQueue::of(&LinkSpec::new(1, 0).with_classes(1_000)).unwrap();
        for (id, is_control) in [(0, false), (1, true), (2, false), (3, true)] {
            queue.push(frame(id, is_control));
        }
        let mut pop = |is_paused| {
            queue.is_paused = is_paused;
            queue.pop().map(|waiting| waiting.flight.packet.flow_hash())
        };
        assert_eq!(
            [pop(false), pop(true), pop(true), pop(false), pop(false), pop(false)],
            [Some(1), Some(3), None, Some(0), Some(2), None]
        );
        assert_eq!(queue.waiting_bytes(), 0);
    }

    #[test]
    fn each_class_has_its_own_room() {
        let spec = LinkSpec::new(1, 0).with_buffer_bytes(200).with_classes(100);
        let mut queue = ClassQueue::of(&spec).unwrap();
        queue.push(frame(0, false));
        assert!(queue.has_room(false, 100));
        queue.push(frame(1, false));
        assert!(!queue.has_room(false, 100));
        assert!(queue.has_room(true, 100));
        queue.push(frame(2, true));
        assert!(!queue.has_room(true, 100));
    }

    #[test]
    fn ingress_pauses_above_xoff_once_and_resumes_at_xon_once() {
        let mut ingress = Ingress::new(Pfc { xoff_bytes: 250, xon_bytes: 100, headroom_bytes: 100 });
        assert_eq!([(); 3].map(|()| ingress.charge(100)), [false, false, true]);
        assert!(ingress.has_room(50) && !ingress.has_room(51));
        assert!(!ingress.charge(50));
        assert_eq!([100, 100, 50, 50, 50].map(|bytes| ingress.release(bytes)), [false, false, true, false, false]);
    }
}
