//! Puts beats together to frames and checks the rules of the protocol on the way.

use super::AxisPorts;
use crate::{agent::Io, port::Port, stable::Stability};

/// A frame as it was seen on a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AxisCapture {
    /// The bytes kept.
    pub bytes: Vec<u8>,
    /// The user port in the first beat.
    pub user_first: u64,
    /// The user port in the last beat.
    pub user_last: u64,
    /// Time of the first beat's handshake in picoseconds.
    pub first_ps: u64,
    /// Time of the last beat's handshake in picoseconds.
    pub last_ps: u64,
    /// Beats taken.
    pub beats: u64,
}

/// What happened on a stream, in cycles since it is watched; resets do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AxisStats {
    /// Frames taken whole.
    pub frames: u64,
    /// Cycles with valid and ready.
    pub beats: u64,
    /// Cycles with valid and not ready.
    pub stalled_cycles: u64,
    /// Cycles without valid.
    pub idle_cycles: u64,
    /// Bytes kept.
    pub bytes: u64,
}

pub(super) struct Collector {
    ports: AxisPorts,
    stability: Stability,
    current: AxisCapture,
    pub(super) stats: AxisStats,
}

impl Collector {
    pub(super) fn new(ports: AxisPorts) -> Self {
        let stability = Stability::new(ports.payload());
        Collector { ports, stability, current: AxisCapture::default(), stats: AxisStats::default() }
    }

    pub(super) fn reset(&mut self) {
        self.stability.forget();
        self.current = AxisCapture::default();
    }

    /// One cycle, with `is_ready` as it was at the edge; gives a frame when its last beat was taken.
    pub(super) fn on_edge(&mut self, io: &mut Io<'_>, is_ready: bool) -> Option<AxisCapture> {
        let is_valid = io.is_set(self.ports.valid);
        if let Err(broken) = self.stability.check(io, is_valid, is_ready) {
            io.fail(format!("{}: {broken}", self.ports.name));
        }
        if !is_valid {
            self.stats.idle_cycles += 1;
            return None;
        }
        if !is_ready {
            self.stats.stalled_cycles += 1;
            return None;
        }
        self.take_beat(io)
    }

    fn take_beat(&mut self, io: &mut Io<'_>) -> Option<AxisCapture> {
        let is_last = self.ports.last.is_none_or(|last| io.is_set(last));
        let len_bytes = self.kept(io, is_last);
        let user = self.ports.user.map_or(0, |user| io.get(user));
        let current = &mut self.current;
        if current.beats == 0 {
            (current.first_ps, current.user_first) = (io.time_ps(), user);
        }
        current.beats += 1;
        io.append_bytes(self.ports.data, len_bytes, &mut current.bytes);
        self.stats.beats += 1;
        self.stats.bytes += len_bytes as u64;
        if !is_last {
            return None;
        }
        (current.last_ps, current.user_last) = (io.time_ps(), user);
        self.stats.frames += 1;
        // The next frame is likely to be as long.
        let next = AxisCapture { bytes: Vec::with_capacity(current.bytes.len()), ..AxisCapture::default() };
        Some(std::mem::replace(current, next))
    }

    /// Bytes kept in this beat: all, or in the last beat the first few.
    fn kept(&self, io: &mut Io<'_>, is_last: bool) -> usize {
        let width_bytes = self.ports.width_bytes();
        let Some(keep) = self.ports.keep else { return width_bytes };
        let mask = keep_mask(io, keep);
        let len_bytes = mask.trailing_ones() as usize;
        let has_holes = len_bytes < 128 && mask >> len_bytes != 0;
        if has_holes {
            io.fail(format!("{}: keep {mask:#x} has holes", self.ports.name));
        } else if len_bytes == 0 {
            io.fail(format!("{}: a beat keeps no byte", self.ports.name));
        } else if !is_last && len_bytes < width_bytes {
            io.fail(format!("{}: a beat before the last keeps {len_bytes} of {width_bytes} bytes", self.ports.name));
        }
        len_bytes
    }
}

fn keep_mask(io: &Io<'_>, keep: Port) -> u128 {
    let words = io.words(keep);
    u128::from(words[0]) | words.get(1).map_or(0, |high| u128::from(*high) << 64)
}
