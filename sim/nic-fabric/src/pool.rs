//! The frames in flight of one shard, and what every hop needs to know of them.
//!
//! A hop reads a slot of 32 bytes; the frame itself is touched when it enters, when it leaves, and when a rule or a
//! capture looks. Frames on a link are chained through their slots: a slot says who comes next and when, so that the
//! next one's event is set without reading its slot. Free slots are reused last in first out, so the memory that is
//! touched is no more than what is in flight, however long queues once were.

use crate::flow::mark_ce;
use crate::frame::Frame;
use crate::prefetch::prefetch;

/// Index of a frame in flight.
pub(crate) type FrameId = u32;

/// No frame.
pub(crate) const FRAME_NONE: FrameId = u32::MAX;

/// What a hop needs to know about a frame.
#[derive(Clone, Copy)]
pub(crate) struct Packet {
    /// Hash of the five-tuple.
    pub flow_hash: u32,
    /// Destination host, or `HOST_UNKNOWN`.
    pub dst_host: u32,
    /// Bytes of line time.
    pub wire_bytes: u16,
    /// Offset of the IP header.
    pub ip_offset_bytes: u8,
    flags: u8,
}

const IS_MARKABLE: u8 = 1;
const IS_MARKED: u8 = 2;
const IS_CONTROL: u8 = 4;

impl Packet {
    /// A packet of so many bytes of line time, about which nothing else is known.
    pub(crate) fn new(wire_bytes: u16, dst_host: u32) -> Packet {
        Packet { flow_hash: 0, dst_host, wire_bytes, ip_offset_bytes: 0, flags: 0 }
    }

    /// Sets whether a queue may mark it (it is ECT) and whether it belongs to the control class.
    pub(crate) fn classify(&mut self, is_markable: bool, is_control: bool) {
        self.flags = (u8::from(is_markable) * IS_MARKABLE) | (u8::from(is_control) * IS_CONTROL);
    }

    /// Whether a queue may mark it: ECT and not yet CE.
    #[inline]
    pub(crate) fn is_markable(&self) -> bool {
        self.flags & IS_MARKABLE != 0
    }

    /// Whether it belongs to the control class.
    pub(crate) fn is_control(&self) -> bool {
        self.flags & IS_CONTROL != 0
    }

    /// Marks it; the header follows when someone looks at the frame.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.flags = (self.flags & !IS_MARKABLE) | IS_MARKED;
    }

    #[inline]
    fn take_mark(&mut self) -> bool {
        let is_marked = self.flags & IS_MARKED != 0;
        self.flags &= !IS_MARKED;
        is_marked
    }
}

/// Who comes behind a frame on its link.
#[derive(Clone, Copy)]
pub(crate) struct Next {
    /// When it reaches the far end; without meaning if there is none.
    pub arrival_ps: u64,
    /// `FRAME_NONE` if there is none.
    pub id: FrameId,
}

impl Next {
    pub(crate) const NONE: Next = Next { arrival_ps: 0, id: FRAME_NONE };
}

/// A frame in flight; half a cache line.
#[repr(C, align(32))]
struct Slot {
    next_arrival_ps: u64,
    frame: Frame,
    next_id: FrameId,
    packet: Packet,
}

const _: () = assert!(std::mem::size_of::<Slot>() == 32, "two slots share a cache line");

/// Storage for frames in flight.
#[derive(Default)]
pub(crate) struct Pool {
    slots: Vec<Slot>,
    free: Vec<FrameId>,
}

impl Pool {
    #[inline]
    pub(crate) fn insert(&mut self, packet: Packet, frame: Frame) -> FrameId {
        let slot = Slot { next_arrival_ps: 0, frame, next_id: FRAME_NONE, packet };
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("frames in flight fit 32 bits")
            }
        }
    }

    #[inline]
    pub(crate) fn packet(&self, id: FrameId) -> &Packet {
        &self.slots[id as usize].packet
    }

    #[inline]
    pub(crate) fn packet_mut(&mut self, id: FrameId) -> &mut Packet {
        &mut self.slots[id as usize].packet
    }

    /// Who comes behind a frame.
    #[inline]
    pub(crate) fn next(&self, id: FrameId) -> Next {
        let slot = &self.slots[id as usize];
        Next { arrival_ps: slot.next_arrival_ps, id: slot.next_id }
    }

    #[inline]
    pub(crate) fn set_next(&mut self, id: FrameId, next: Next) {
        let slot = &mut self.slots[id as usize];
        (slot.next_arrival_ps, slot.next_id) = (next.arrival_ps, next.id);
    }

    /// Has the processor fetch a slot, without waiting for it; the id may be `FRAME_NONE` or out of date.
    #[inline]
    pub(crate) fn prefetch_if_any(&self, id: FrameId) {
        if let Some(slot) = self.slots.get(id as usize) {
            prefetch(slot);
        }
    }

    /// The same for the frame in a slot.
    #[inline]
    pub(crate) fn prefetch_frame(&self, id: FrameId) {
        self.slots[id as usize].frame.prefetch();
    }

    /// The frame, its header as it was sent.
    #[inline]
    pub(crate) fn frame(&self, id: FrameId) -> &Frame {
        &self.slots[id as usize].frame
    }

    /// The frame, its header up to date.
    #[inline]
    pub(crate) fn frame_mut(&mut self, id: FrameId) -> &mut Frame {
        let Slot { frame, packet, .. } = &mut self.slots[id as usize];
        if packet.take_mark() {
            mark_ce(frame, packet.ip_offset_bytes as usize);
        }
        frame
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: FrameId) -> Frame {
        self.free.push(id);
        std::mem::take(self.frame_mut(id))
    }

    pub(crate) fn discard(&mut self, id: FrameId) {
        self.free.push(id);
        self.slots[id as usize].frame = Frame::default();
    }

    pub(crate) fn in_flight_count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
