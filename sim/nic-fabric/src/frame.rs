//! An Ethernet frame: header bytes in place, a payload that is shared, only counted, or absent.
//!
//! A frame reads as `header | payload | trailer`, without preamble and FCS. Headers are stored inline, so a packet
//! costs no allocation. The payload is either real ([`Payload::Bytes`], a range of a shared buffer: one message buffer
//! serves all its packets) or virtual ([`Payload::Virtual`], a length whose bytes read as zero), with which a
//! 256 MB collective is simulated without touching 256 MB. The trailer holds what follows the payload (pad, ICRC).

use std::sync::Arc;

/// Bytes of header that a frame keeps inline.
pub const HEADER_BYTES_MAX: usize = 192;
/// Bytes that may follow the payload: up to 3 of pad and 4 of ICRC.
pub const TRAILER_BYTES_MAX: usize = 8;
/// Longest frame, without preamble and FCS, that the fabric carries.
pub const FRAME_BYTES_MAX: usize = 16_384;
/// Preamble and start delimiter 8, FCS 4, inter-frame gap 12: what a frame takes on the wire besides its own bytes.
pub const WIRE_OVERHEAD_BYTES: u32 = 24;
/// Shortest frame on the wire without FCS; a shorter one is charged as this long.
pub const FRAME_BYTES_MIN: u32 = 60;

/// The middle of a frame.
#[derive(Clone, Debug, Default)]
pub enum Payload {
    /// No payload: the frame is all header (and trailer).
    #[default]
    Empty,
    /// So many bytes that read as zero and exist nowhere.
    Virtual(u32),
    /// Bytes `offset..offset + len` of a shared buffer.
    Bytes {
        /// The buffer; cheap to share among frames and threads.
        data: Arc<[u8]>,
        /// First byte of this payload in `data`.
        offset: u32,
        /// Length in bytes.
        len: u32,
    },
}

impl Payload {
    /// Length in bytes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self {
            Payload::Empty => 0,
            Payload::Virtual(len) => *len as usize,
            Payload::Bytes { len, .. } => *len as usize,
        }
    }

    /// The bytes, where they exist: `None` for a virtual payload of more than 0 bytes.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Payload::Empty | Payload::Virtual(0) => Some(&[]),
            Payload::Virtual(_) => None,
            Payload::Bytes { data, offset, len } => Some(&data[*offset as usize..*offset as usize + *len as usize]),
        }
    }
}

/// An Ethernet frame without preamble and FCS.
///
/// The layout is fixed so that what is used of a frame with short headers lies in its first two cache lines.
#[derive(Clone)]
#[repr(C)]
pub struct Frame {
    payload: Payload,
    header_len: u8,
    trailer_len: u8,
    trailer: [u8; TRAILER_BYTES_MAX],
    header: [u8; HEADER_BYTES_MAX],
}

impl Frame {
    /// A frame that is all header.
    ///
    /// # Panics
    /// If `header` is longer than [`HEADER_BYTES_MAX`]; [`Frame::from_bytes`] takes any length.
    #[inline]
    pub fn new(header: &[u8]) -> Frame {
        assert!(header.len() <= HEADER_BYTES_MAX, "{} header bytes, at most {HEADER_BYTES_MAX}", header.len());
        // Filled in place: a frame is large enough for each copy to show.
        let mut frame = Frame::empty();
        frame.header_len = header.len() as u8;
        frame.header[..header.len()].copy_from_slice(header);
        frame
    }

    #[inline]
    fn empty() -> Frame {
        Frame {
            payload: Payload::Empty,
            header_len: 0,
            trailer_len: 0,
            trailer: [0; TRAILER_BYTES_MAX],
            header: [0; HEADER_BYTES_MAX],
        }
    }

    /// A frame of real bytes: the first [`HEADER_BYTES_MAX`] become the header, the rest the payload.
    ///
    /// # Panics
    /// If longer than [`FRAME_BYTES_MAX`].
    pub fn from_bytes(bytes: &[u8]) -> Frame {
        let (header, rest) = bytes.split_at(bytes.len().min(HEADER_BYTES_MAX));
        let frame = Frame::new(header);
        if rest.is_empty() {
            frame
        } else {
            frame.with_payload(rest.into())
        }
    }

    /// Sets a payload that has a length and no bytes.
    #[inline]
    pub fn with_virtual_payload(mut self, len_bytes: u32) -> Frame {
        self.payload = Payload::Virtual(len_bytes);
        self.check_length();
        self
    }

    /// Sets a payload of real bytes.
    pub fn with_payload(self, data: Arc<[u8]>) -> Frame {
        let len = data.len();
        self.with_payload_range(data, 0, len)
    }

    /// Sets a payload that is `len_bytes` of a shared buffer from `offset_bytes` on.
    ///
    /// # Panics
    /// If the range is not inside the buffer, or lies beyond its first 4 GiB.
    pub fn with_payload_range(mut self, data: Arc<[u8]>, offset_bytes: usize, len_bytes: usize) -> Frame {
        assert!(offset_bytes + len_bytes <= data.len(), "payload range ends beyond its buffer of {} bytes", data.len());
        let offset = u32::try_from(offset_bytes).expect("payload offset fits 32 bits");
        let len = u32::try_from(len_bytes).expect("payload length fits 32 bits");
        self.payload = Payload::Bytes { data, offset, len };
        self.check_length();
        self
    }

    /// Sets the bytes after the payload.
    ///
    /// # Panics
    /// If longer than [`TRAILER_BYTES_MAX`].
    #[inline]
    pub fn with_trailer(mut self, trailer: &[u8]) -> Frame {
        assert!(trailer.len() <= TRAILER_BYTES_MAX, "{} trailer bytes, at most {TRAILER_BYTES_MAX}", trailer.len());
        self.trailer[..trailer.len()].copy_from_slice(trailer);
        self.trailer_len = trailer.len() as u8;
        self.check_length();
        self
    }

    /// Copies the frame out and leaves its place without a payload.
    #[inline]
    pub(crate) fn take(&mut self) -> Frame {
        let mut frame = Frame::empty();
        frame.header_len = self.header_len;
        frame.header[..self.header_len as usize].copy_from_slice(self.header());
        frame.trailer_len = self.trailer_len;
        frame.trailer = self.trailer;
        frame.payload = std::mem::take(&mut self.payload);
        frame
    }

    /// Takes another frame's place, touching no more bytes than that has.
    #[inline]
    pub(crate) fn assign(&mut self, other: Frame) {
        self.header[..other.header_len as usize].copy_from_slice(other.header());
        self.header_len = other.header_len;
        self.trailer = other.trailer;
        self.trailer_len = other.trailer_len;
        self.payload = other.payload;
    }

    /// Lets go of a shared payload buffer.
    #[inline]
    pub(crate) fn release_payload(&mut self) {
        self.payload = Payload::Empty;
    }

    #[inline]
    fn check_length(&self) {
        assert!(self.len_bytes() <= FRAME_BYTES_MAX, "frame of {} bytes, at most {FRAME_BYTES_MAX}", self.len_bytes());
    }

    /// The inline bytes the frame begins with.
    #[inline]
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_len as usize]
    }

    /// The same, to be changed.
    #[inline]
    pub fn header_mut(&mut self) -> &mut [u8] {
        &mut self.header[..self.header_len as usize]
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// The bytes after the payload.
    #[inline]
    pub fn trailer(&self) -> &[u8] {
        &self.trailer[..self.trailer_len as usize]
    }

    /// Whether part of the frame exists as a length only.
    pub fn is_virtual(&self) -> bool {
        self.payload.bytes().is_none()
    }

    /// Length in bytes, without preamble, FCS and Ethernet padding.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.header_len as usize + self.payload.len_bytes() + self.trailer_len as usize
    }

    /// Bytes of line time: padded to the Ethernet minimum, with preamble, FCS and inter-frame gap.
    #[inline]
    pub fn wire_bytes(&self) -> u32 {
        (self.len_bytes() as u32).max(FRAME_BYTES_MIN) + WIRE_OVERHEAD_BYTES
    }

    /// Appends the whole frame to `out`; a virtual payload becomes zeros.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len_bytes());
        out.extend_from_slice(self.header());
        match self.payload.bytes() {
            Some(bytes) => out.extend_from_slice(bytes),
            None => out.resize(out.len() + self.payload.len_bytes(), 0),
        }
        out.extend_from_slice(self.trailer());
    }

    /// The whole frame as contiguous bytes; a virtual payload becomes zeros.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_to(&mut out);
        out
    }

    /// Flips one bit, counted from the first bit on the wire's byte order (bit 0 is the top bit of byte 0). A virtual
    /// payload hit by it becomes real. Does nothing beyond the end of the frame.
    pub fn flip_bit(&mut self, bit: u64) {
        let (byte, mask) = ((bit / 8) as usize, 0x80u8 >> (bit % 8));
        let header_end = self.header_len as usize;
        let payload_end = header_end + self.payload.len_bytes();
        if byte < header_end {
            self.header[byte] ^= mask;
        } else if byte < payload_end {
            let mut data = match self.payload.bytes() {
                Some(bytes) => bytes.to_vec(),
                None => vec![0; self.payload.len_bytes()],
            };
            data[byte - header_end] ^= mask;
            let len = data.len() as u32;
            self.payload = Payload::Bytes { data: data.into(), offset: 0, len };
        } else if byte < payload_end + self.trailer_len as usize {
            self.trailer[byte - payload_end] ^= mask;
        }
    }
}

impl Default for Frame {
    fn default() -> Frame {
        Frame::new(&[])
    }
}

/// Frames are equal when their bytes are, however these are split and stored.
impl PartialEq for Frame {
    fn eq(&self, other: &Frame) -> bool {
        self.len_bytes() == other.len_bytes() && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Frame {}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({} bytes: ", self.len_bytes())?;
        for byte in self.header() {
            write!(f, "{byte:02x}")?;
        }
        match &self.payload {
            Payload::Empty => write!(f, ")"),
            Payload::Virtual(len) => write!(f, " + {len} virtual + {})", self.trailer_len),
            Payload::Bytes { len, .. } => write!(f, " + {len} real + {})", self.trailer_len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_the_split_into_header_and_payload() {
        for len in [0, 1, 60, 191, 192, 193, 4096, FRAME_BYTES_MAX] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let frame = Frame::from_bytes(&bytes);
            assert_eq!(frame.to_bytes(), bytes, "{len} bytes");
            assert_eq!(frame.len_bytes(), len);
        }
    }

    #[test]
    fn virtual_payload_reads_as_zeros_of_the_same_length() {
        let frame = Frame::new(&[1, 2]).with_virtual_payload(5).with_trailer(&[9]);
        assert_eq!(frame.to_bytes(), [1, 2, 0, 0, 0, 0, 0, 9]);
        assert_eq!(frame, Frame::from_bytes(&[1, 2, 0, 0, 0, 0, 0, 9]));
        assert!(frame.is_virtual());
    }

    #[test]
    fn payload_range_shares_the_buffer() {
        let buffer: Arc<[u8]> = (0..100).collect::<Vec<u8>>().into();
        let frame = Frame::new(&[]).with_payload_range(buffer.clone(), 10, 3);
        assert_eq!(frame.to_bytes(), [10, 11, 12]);
        assert_eq!(Arc::strong_count(&buffer), 2);
    }

    #[test]
    fn flip_bit_changes_exactly_that_bit_in_every_part() {
        let frame = Frame::new(&[0; 3]).with_virtual_payload(4).with_trailer(&[0; 2]);
        for bit in 0..9 * 8 {
            let mut flipped = frame.clone();
            flipped.flip_bit(bit);
            let mut expected = vec![0u8; 9];
            expected[(bit / 8) as usize] = 0x80 >> (bit % 8);
            assert_eq!(flipped.to_bytes(), expected, "bit {bit}");
        }
        let mut same = frame.clone();
        same.flip_bit(9 * 8);
        assert_eq!(same, frame);
    }

    #[test]
    fn short_frames_are_charged_as_the_ethernet_minimum() {
        assert_eq!(Frame::new(&[0; 10]).wire_bytes(), 84);
        assert_eq!(Frame::new(&[0; 60]).wire_bytes(), 84);
        assert_eq!(Frame::new(&[0; 61]).wire_bytes(), 85);
        assert_eq!(Frame::new(&[0; 82]).with_virtual_payload(4096).wire_bytes(), 4096 + 82 + 24);
    }
}
