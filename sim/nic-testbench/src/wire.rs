//! What passed on the wire of a card, and frames of a test's own.

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which way a frame went, seen from the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The card sent it.
    Sent,
    /// The card was offered it.
    Received,
}

/// A frame on the wire of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireFrame {
    /// When its last bit left or its first was offered, ps.
    pub at_ps: u64,
    /// Its way.
    pub way: Way,
    /// Its bytes, without preamble and FCS.
    pub bytes: Vec<u8>,
}

/// A frame that a test puts on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The MAC marks it as bad.
    pub is_bad: bool,
}

#[derive(Debug, Default)]
struct State {
    is_recording: bool,
    frames: Vec<WireFrame>,
    injected: Vec<Injected>,
}

/// One card's wire, shared by the world and the test.
#[derive(Clone, Debug, Default)]
pub struct Wire(Arc<Mutex<State>>);

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep every frame.
    pub fn record(&self) {
        self.state().is_recording = true;
    }

    /// Takes the frames kept so far.
    pub fn take(&self) -> Vec<WireFrame> {
        std::mem::take(&mut self.state().frames)
    }

    /// Puts a frame before the card, behind those that wait.
    pub fn inject(&self, bytes: Vec<u8>) {
        self.state().injected.push(Injected { bytes, is_bad: false });
    }

    /// Puts a frame before the card that its MAC marks as bad.
    pub fn inject_bad(&self, bytes: Vec<u8>) {
        self.state().injected.push(Injected { bytes, is_bad: true });
    }

    pub(crate) fn take_injected(&self) -> Vec<Injected> {
        std::mem::take(&mut self.state().injected)
    }

    pub(crate) fn saw(&self, way: Way, at_ps: u64, bytes: &[u8]) {
        let mut state = self.state();
        if state.is_recording {
            state.frames.push(WireFrame { at_ps, way, bytes: bytes.to_vec() });
        }
    }
}

/// Writes frames as a nanosecond pcap file, in order of time.
///
/// # Errors
/// The writer's.
pub fn write_pcap(mut frames: Vec<WireFrame>, to: impl Write) -> Result<(), PcapError> {
    frames.sort_by_key(|f| f.at_ps);
    let header =
        PcapHeader { ts_resolution: TsResolution::NanoSecond, datalink: DataLink::ETHERNET, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(to, header)?;
    for frame in &frames {
        let time = Duration::from_nanos(frame.at_ps / 1000);
        let len = u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX);
        writer.write_packet(&PcapPacket::new(time, len, &frame.bytes))?;
    }
    writer.into_writer().flush().map_err(PcapError::IoError)
}
