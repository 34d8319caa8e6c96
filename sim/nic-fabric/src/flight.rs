//! A frame on its way through one shard, and what every hop needs to know of it.
//!
//! A hop moves a record of 32 bytes from the line it came by to the one it leaves by; the frame itself is touched when
//! it enters, when it leaves, and when a rule or a capture looks.

use crate::flow::mark_ce;
use crate::frame::Frame;

/// A frame on its way; half a cache line.
#[derive(Default)]
#[repr(C, align(32))]
pub(crate) struct Flight {
    /// When it reaches the end of the link that it is on.
    pub arrival_ps: u64,
    frame: Frame,
    pub packet: Packet,
}

const _: () = assert!(std::mem::size_of::<Flight>() == 32, "two of them share a cache line");

/// What the network knows about a frame.
#[derive(Clone, Copy, Default)]
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

impl Flight {
    #[inline]
    pub(crate) fn new(packet: Packet, frame: Frame) -> Flight {
        Flight { arrival_ps: 0, frame, packet }
    }

    /// Fills a place that is empty.
    #[inline(always)]
    pub(crate) fn set(&mut self, arrival_ps: u64, packet: Packet, frame: Frame) {
        (self.arrival_ps, self.packet, self.frame) = (arrival_ps, packet, frame);
    }

    /// Takes the frame, its header as it was sent, out of its place.
    #[inline(always)]
    pub(crate) fn take_frame(&mut self) -> Frame {
        std::mem::take(&mut self.frame)
    }

    /// What is known of the frame, and the frame, its header as it was sent.
    #[inline(always)]
    pub(crate) fn into_parts(self) -> (Packet, Frame) {
        (self.packet, self.frame)
    }

    /// The frame, its header as it was sent.
    #[inline]
    pub(crate) fn sent_frame(&self) -> &Frame {
        &self.frame
    }

    /// The frame, its header up to date.
    #[inline]
    pub(crate) fn frame_mut(&mut self) -> &mut Frame {
        if self.packet.take_mark() {
            mark_ce(&mut self.frame, self.packet.ip_offset_bytes as usize);
        }
        &mut self.frame
    }
}

impl Packet {
    /// The frame at the end of its journey, its header up to date.
    #[inline(always)]
    pub(crate) fn finish(self, mut frame: Frame) -> Frame {
        if self.flags & IS_MARKED != 0 {
            mark_ce(&mut frame, self.ip_offset_bytes as usize);
        }
        frame
    }
}
