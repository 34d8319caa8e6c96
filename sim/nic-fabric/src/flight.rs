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

/// What the network knows about a frame: two words, which stay in registers from one line to the next.
#[derive(Clone, Copy, Default)]
pub(crate) struct Packet {
    /// Hash of the five-tuple (upper half) and destination host.
    way: u64,
    /// Bytes of line time (16 bits), offset of the IP header (8 bits), flags.
    form: u64,
}

const IP_OFFSET_BIT: u32 = 16;
const IS_MARKABLE: u64 = 1 << 24;
const IS_MARKED: u64 = 1 << 25;
const IS_CONTROL: u64 = 1 << 26;

impl Packet {
    /// A packet of so many bytes of line time to a host, or to `HOST_UNKNOWN`.
    #[inline]
    pub(crate) fn new(wire_bytes: u16, flow_hash: u32, dst_host: u32) -> Packet {
        Packet { way: u64::from(flow_hash) << 32 | u64::from(dst_host), form: u64::from(wire_bytes) }
    }

    /// The same with an IP header; whether a queue may mark it (it is ECT) and whether it belongs to the control class.
    #[inline]
    #[must_use]
    pub(crate) fn with_ip(mut self, offset_bytes: u8, is_markable: bool, is_control: bool) -> Packet {
        self.form |= u64::from(offset_bytes) << IP_OFFSET_BIT;
        self.form |= (u64::from(is_markable) * IS_MARKABLE) | (u64::from(is_control) * IS_CONTROL);
        self
    }

    /// Hash of the five-tuple.
    #[inline]
    pub(crate) fn flow_hash(self) -> u32 {
        (self.way >> 32) as u32
    }

    /// Destination host, or `HOST_UNKNOWN`.
    #[inline]
    pub(crate) fn dst_host(self) -> u32 {
        self.way as u32
    }

    /// Bytes of line time.
    #[inline]
    pub(crate) fn wire_bytes(self) -> u32 {
        self.form as u32 & 0xffff
    }

    fn ip_offset_bytes(self) -> usize {
        (self.form >> IP_OFFSET_BIT) as usize & 0xff
    }

    /// Whether a queue may mark it: ECT and not yet CE.
    #[inline]
    pub(crate) fn is_markable(self) -> bool {
        self.form & IS_MARKABLE != 0
    }

    /// Whether it belongs to the control class.
    pub(crate) fn is_control(self) -> bool {
        self.form & IS_CONTROL != 0
    }

    /// Marks it; the header follows when someone looks at the frame.
    #[inline]
    pub(crate) fn mark(&mut self) {
        self.form = (self.form & !IS_MARKABLE) | IS_MARKED;
    }

    #[inline]
    fn is_marked(self) -> bool {
        self.form & IS_MARKED != 0
    }

    /// The frame at the end of its journey, its header up to date.
    #[inline(always)]
    pub(crate) fn finish(self, mut frame: Frame) -> Frame {
        if self.is_marked() {
            mark_ce(&mut frame, self.ip_offset_bytes());
        }
        frame
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
    pub(crate) fn frame_mut(&mut self) -> &mut Frame {
        if self.packet.is_marked() {
            self.packet.form &= !IS_MARKED;
            mark_ce(&mut self.frame, self.packet.ip_offset_bytes());
        }
        &mut self.frame
    }
}
