//! Frames into an AXI-Stream port of 64 bytes and out of one, with random gaps and stalls.

use super::{bytes, dut::Dut, words};
use cocotb_rs::Rng;
use std::collections::VecDeque;

/// Bytes of a beat.
const BEAT: usize = 64;

/// One beat offered.
struct OfferedBeat {
    data: Vec<u8>,
    is_last: bool,
    user: bool,
}

/// Frames into a port.
pub struct FrameSource {
    port: String,
    beats: VecDeque<OfferedBeat>,
    is_offered: bool,
    /// Per cent of the cycles in which a beat is offered when none is.
    pub percent: u32,
    /// Cycles in which a beat was offered and not taken.
    pub stalled_cycles: u64,
}

impl FrameSource {
    /// A source without frames.
    pub fn new(port: &str, percent: u32) -> FrameSource {
        FrameSource { port: port.into(), beats: VecDeque::new(), is_offered: false, percent, stalled_cycles: 0 }
    }

    /// Queues a frame; `user` stands with its last beat.
    pub fn send(&mut self, frame: &[u8], user: bool) {
        let count = frame.len().div_ceil(BEAT);
        for (k, data) in frame.chunks(BEAT).enumerate() {
            let is_last = k + 1 == count;
            self.beats.push_back(OfferedBeat { data: data.to_vec(), is_last, user: user && is_last });
        }
    }

    /// True when every beat was taken.
    pub fn is_done(&self) -> bool {
        self.beats.is_empty()
    }

    /// Before the clock. Bytes that the keep leaves out are random.
    pub fn drive(&mut self, dut: &mut Dut, rng: &mut Rng) {
        self.is_offered |= !self.beats.is_empty() && rng.percent(self.percent);
        dut.set(&format!("{}_tvalid", self.port), self.is_offered.into());
        if self.is_offered {
            let beat = &self.beats[0];
            let mut data = beat.data.clone();
            data.resize_with(BEAT, || rng.next_u64() as u8);
            dut.set_wide(&format!("{}_tdata", self.port), &words(&data));
            let keep = if beat.data.len() == BEAT { u64::MAX } else { (1 << beat.data.len()) - 1 };
            dut.set(&format!("{}_tkeep", self.port), keep);
            dut.set(&format!("{}_tlast", self.port), beat.is_last.into());
            dut.set(&format!("{}_tuser", self.port), beat.user.into());
        }
    }

    /// After all inputs are driven, before the clock.
    pub fn take(&mut self, dut: &mut Dut) {
        if self.is_offered {
            if dut.is_set(&format!("{}_tready", self.port)) {
                self.beats.pop_front();
                self.is_offered = false;
            } else {
                self.stalled_cycles += 1;
            }
        }
    }
}

/// Frames out of a port.
pub struct FrameSink {
    port: String,
    /// Per cent of the cycles in which the sink is ready.
    pub percent: u32,
    partial: Vec<u8>,
    waiting: Option<(Vec<u64>, u64, u64)>,
    /// Frames complete so far, with `tuser` of the last beat.
    pub frames: VecDeque<(Vec<u8>, bool)>,
    /// Beats taken.
    pub beats: u64,
    /// Cycles without a beat between the first and the last beat of a frame, while ready.
    pub gaps: u64,
}

impl FrameSink {
    /// A sink that has seen nothing.
    pub fn new(port: &str, percent: u32) -> FrameSink {
        let (partial, waiting, frames) = (vec![], None, VecDeque::new());
        FrameSink { port: port.into(), percent, partial, waiting, frames, beats: 0, gaps: 0 }
    }

    /// Before the clock.
    pub fn drive(&mut self, dut: &mut Dut, rng: &mut Rng) {
        dut.set(&format!("{}_tready", self.port), rng.percent(self.percent).into());
    }

    /// After all inputs are driven, before the clock. `is_ready` as driven.
    pub fn take(&mut self, dut: &mut Dut) {
        let is_ready = dut.is_set(&format!("{}_tready", self.port));
        let is_valid = dut.is_set(&format!("{}_tvalid", self.port));
        if !is_valid {
            assert!(self.waiting.is_none(), "a beat was withdrawn");
            self.gaps += u64::from(is_ready && !self.partial.is_empty());
            return;
        }
        let data = dut.get_wide(&format!("{}_tdata", self.port));
        let (keep, last) = (dut.get(&format!("{}_tkeep", self.port)), dut.get(&format!("{}_tlast", self.port)));
        let beat = (data, keep, last);
        if let Some(before) = &self.waiting {
            assert_eq!(&beat, before, "a beat must stay until it is taken");
        }
        if !is_ready {
            self.waiting = Some(beat);
            return;
        }
        self.waiting = None;
        self.beats += 1;
        let count = keep.trailing_ones() as usize;
        assert!(keep.count_ones() as usize == count && count > 0, "keep {keep:#x} is not contiguous from byte 0");
        assert!(last == 1 || count == BEAT, "a partial beat within a frame");
        self.partial.extend(&bytes(&beat.0)[..count]);
        if last == 1 {
            let user = dut.is_set(&format!("{}_tuser", self.port));
            self.frames.push_back((std::mem::take(&mut self.partial), user));
        }
    }
}
