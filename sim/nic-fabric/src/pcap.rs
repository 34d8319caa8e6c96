//! Captures: what leaves or reaches one end of a link, as a nanosecond pcap file.
//!
//! Real bytes are written as they are, virtual payloads as zeros. pcap keeps nanoseconds; the picoseconds below are cut.

use std::io::Write;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, PcapError, TsResolution};

use crate::frame::Frame;

/// Which end of a link a capture listens at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tap {
    /// What the queue put on the line, lost frames included, at the time the last bit left.
    Sent,
    /// What reached the far end, at the time of arrival.
    Received,
}

/// An open capture file.
pub(crate) struct Capture {
    writer: PcapWriter<Box<dyn Write + Send>>,
    scratch: Vec<u8>,
    /// The first error; nothing is written after it.
    error: Option<PcapError>,
}

impl Capture {
    pub(crate) fn new(writer: Box<dyn Write + Send>) -> Result<Capture, PcapError> {
        let header = PcapHeader {
            ts_resolution: TsResolution::NanoSecond,
            datalink: DataLink::ETHERNET,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(writer, header)?;
        Ok(Capture { writer, scratch: Vec::new(), error: None })
    }

    pub(crate) fn record(&mut self, time_ps: u64, frame: &Frame) {
        if self.error.is_some() {
            return;
        }
        self.scratch.clear();
        frame.write_to(&mut self.scratch);
        let time = Duration::from_nanos(time_ps / 1_000);
        let packet = PcapPacket::new(time, self.scratch.len() as u32, &self.scratch);
        self.error = self.writer.write_packet(&packet).err();
    }

    /// Flushes, and reports the first error of the capture's life.
    pub(crate) fn close(self) -> Result<(), PcapError> {
        match self.error {
            Some(error) => Err(error),
            None => self.writer.into_writer().flush().map_err(PcapError::IoError),
        }
    }
}
