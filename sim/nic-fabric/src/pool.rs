//! The frames in flight of one shard, and what every hop needs to know of them.
//!
//! A hop reads a record of 24 bytes; the 230 bytes of the frame itself are touched when it enters, when it leaves, and
//! when a rule or a capture looks. Frames on a link are chained through their records, and freed slots are reused last
//! in first out, so the memory that is touched is no more than what is in flight, however long queues once were.

use crate::flow::mark_ce;
use crate::frame::Frame;

/// Index of a frame in flight.
pub(crate) type FrameId = u32;

/// No frame.
pub(crate) const FRAME_NONE: FrameId = u32::MAX;

/// What a hop needs to know about a frame.
#[derive(Clone, Copy)]
pub(crate) struct Packet {
    /// When it reaches the far end of the link it is on.
    pub arrival_ps: u64,
    /// The frame behind it on the same link.
    pub next: FrameId,
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
        Packet { arrival_ps: 0, next: FRAME_NONE, flow_hash: 0, dst_host, wire_bytes, ip_offset_bytes: 0, flags: 0 }
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
    pub(crate) fn mark(&mut self) {
        self.flags = (self.flags & !IS_MARKABLE) | IS_MARKED;
    }

    fn take_mark(&mut self) -> bool {
        let is_marked = self.flags & IS_MARKED != 0;
        self.flags &= !IS_MARKED;
        is_marked
    }
}

/// Storage for frames in flight.
#[derive(Default)]
pub(crate) struct Pool {
    packets: Vec<Packet>,
    frames: Vec<Frame>,
    free: Vec<FrameId>,
}

impl Pool {
    #[inline]
    pub(crate) fn insert(&mut self, packet: Packet, frame: Frame) -> FrameId {
        match self.free.pop() {
            Some(id) => {
                self.packets[id as usize] = packet;
                self.frames[id as usize].assign(frame);
                id
            }
            None => {
                self.packets.push(packet);
                self.frames.push(frame);
                u32::try_from(self.frames.len() - 1).expect("frames in flight fit 32 bits")
            }
        }
    }

    #[inline]
    pub(crate) fn packet(&self, id: FrameId) -> &Packet {
        &self.packets[id as usize]
    }

    #[inline]
    pub(crate) fn packet_mut(&mut self, id: FrameId) -> &mut Packet {
        &mut self.packets[id as usize]
    }

    /// The frame, its header up to date.
    pub(crate) fn frame_mut(&mut self, id: FrameId) -> &mut Frame {
        let frame = &mut self.frames[id as usize];
        let packet = &mut self.packets[id as usize];
        if packet.take_mark() {
            mark_ce(frame, packet.ip_offset_bytes as usize);
        }
        frame
    }

    #[inline]
    pub(crate) fn remove(&mut self, id: FrameId) -> Frame {
        self.free.push(id);
        self.frame_mut(id).take()
    }

    pub(crate) fn discard(&mut self, id: FrameId) {
        self.free.push(id);
        self.frames[id as usize].release_payload();
    }

    pub(crate) fn in_flight_count(&self) -> usize {
        self.frames.len() - self.free.len()
    }
}
