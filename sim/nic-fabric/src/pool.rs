//! The frames in flight of one shard, by index.
//!
//! What every hop needs (flow hash, destination, length, ECN) stands in one small record; the 230 bytes of the frame
//! itself are touched when it enters, when it leaves, and when it is marked or damaged.

use crate::frame::Frame;

/// Index of a frame in flight.
pub(crate) type FrameId = u32;

/// What a hop needs to know about a frame.
#[derive(Clone, Copy, Default)]
pub(crate) struct Meta {
    /// Hash of the five-tuple.
    pub flow_hash: u64,
    /// Destination host, or `HOST_UNKNOWN`.
    pub dst_host: u32,
    /// Bytes of line time.
    pub wire_bytes: u32,
    /// Link on which the frame came into the switch it is in; what PFC accounts it to.
    pub ingress_link: u32,
    /// Offset of the IP header.
    pub ip_offset_bytes: u8,
    /// Whether a queue may mark it: ECT and not yet CE.
    pub is_markable: bool,
    /// Whether it belongs to the control class.
    pub is_control: bool,
}

/// Storage for frames in flight, with free slots reused.
#[derive(Default)]
pub(crate) struct Pool {
    meta: Vec<Meta>,
    frames: Vec<Frame>,
    free: Vec<FrameId>,
}

impl Pool {
    pub(crate) fn insert(&mut self, meta: Meta, frame: Frame) -> FrameId {
        match self.free.pop() {
            Some(id) => {
                self.meta[id as usize] = meta;
                self.frames[id as usize] = frame;
                id
            }
            None => {
                self.meta.push(meta);
                self.frames.push(frame);
                u32::try_from(self.meta.len() - 1).expect("frames in flight fit 32 bits")
            }
        }
    }

    pub(crate) fn meta(&self, id: FrameId) -> &Meta {
        &self.meta[id as usize]
    }

    pub(crate) fn meta_mut(&mut self, id: FrameId) -> &mut Meta {
        &mut self.meta[id as usize]
    }

    pub(crate) fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id as usize]
    }

    pub(crate) fn frame_mut(&mut self, id: FrameId) -> &mut Frame {
        &mut self.frames[id as usize]
    }

    pub(crate) fn remove(&mut self, id: FrameId) -> (Meta, Frame) {
        self.free.push(id);
        (self.meta[id as usize], self.frames[id as usize].take())
    }

    pub(crate) fn discard(&mut self, id: FrameId) {
        self.free.push(id);
        self.frames[id as usize].release_payload();
    }

    pub(crate) fn in_flight_count(&self) -> usize {
        self.meta.len() - self.free.len()
    }
}
