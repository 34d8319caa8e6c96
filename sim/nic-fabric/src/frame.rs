//! An Ethernet frame: header bytes in place, a payload that is shared, only counted, or absent.
//!
//! A frame reads as `header | payload | trailer`, without preamble and FCS. Headers are stored inline in a record that is
//! used again, so a packet costs no allocation. The payload is either real ([`Payload::Bytes`], a range of a shared buffer: one message buffer
//! serves all its packets) or virtual ([`Payload::Virtual`], a length whose bytes read as zero), with which a
//! 256 MB collective is simulated without touching 256 MB. The trailer holds what follows the payload (pad, ICRC).

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::prefetch::prefetch;

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

/// Length of a header that ends within the second cache line of a record.
const SHORT_HEADER_BYTES: usize = 94;

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
        len: u16,
    },
}

impl Payload {
    /// Length in bytes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match self {
            Payload::Empty => 0,
            Payload::Virtual(len) => *len as usize,
            Payload::Bytes { len, .. } => usize::from(*len),
        }
    }

    /// The bytes, where they exist: `None` for a virtual payload of more than 0 bytes.
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Payload::Empty | Payload::Virtual(0) => Some(&[]),
            Payload::Virtual(_) => None,
            Payload::Bytes { data, offset, len } => Some(&data[*offset as usize..*offset as usize + usize::from(*len)]),
        }
    }
}

/// An Ethernet frame without preamble and FCS.
///
/// A handle of one word: to pass a frame on moves no bytes. The bytes stand in a record that goes back, when the frame
/// is dropped, to a store of the thread it is dropped on, from where the next new frame takes it.
#[derive(Default)]
pub struct Frame {
    /// `None` is a frame of no bytes.
    record: Option<Box<Record>>,
}

/// What a frame consists of. What is used of one with short headers lies in its first two cache lines.
#[repr(C, align(64))]
struct Record {
    payload: Payload,
    header_len: u8,
    trailer_len: u8,
    /// As `header`.
    trailer: [u8; TRAILER_BYTES_MAX],
    /// Bytes beyond `header_len` mean nothing.
    header: [u8; HEADER_BYTES_MAX],
}

const _: () = assert!(std::mem::offset_of!(Record, header) + SHORT_HEADER_BYTES == 128);

static EMPTY: Record = Record {
    payload: Payload::Empty,
    header_len: 0,
    trailer_len: 0,
    trailer: [0; TRAILER_BYTES_MAX],
    header: [0; HEADER_BYTES_MAX],
};

/// Records that a thread keeps for its next frames; 1 MiB. More than that go back to the allocator.
const SPARE_COUNT_MAX: usize = 4096;

thread_local! {
    // Boxed, because a record moves between here and a frame without being copied.
    #[allow(clippy::vec_box)]
    static SPARE: RefCell<Vec<Box<Record>>> = const { RefCell::new(Vec::new()) };
    static MADE_COUNT: Cell<u64> = const { Cell::new(0) };
}

impl Record {
    /// A record without payload and trailer, and with any bytes in the header.
    #[inline]
    fn take(header_len: usize) -> Box<Record> {
        let spare = SPARE.try_with(|spare| spare.try_borrow_mut().ok()?.pop());
        let mut record = spare.ok().flatten().unwrap_or_else(Record::make);
        record.header_len = header_len as u8;
        record.trailer_len = 0;
        record
    }

    #[cold]
    fn make() -> Box<Record> {
        MADE_COUNT.with(|count| count.set(count.get() + 1));
        Box::new(Record { payload: Payload::Empty, ..EMPTY })
    }

    #[inline]
    fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len).min(HEADER_BYTES_MAX)]
    }

    #[inline]
    fn trailer(&self) -> &[u8] {
        &self.trailer[..usize::from(self.trailer_len).min(TRAILER_BYTES_MAX)]
    }

    #[inline]
    fn len_bytes(&self) -> usize {
        usize::from(self.header_len) + self.payload.len_bytes() + usize::from(self.trailer_len)
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        let Some(mut record) = self.record.take() else { return };
        if !matches!(record.payload, Payload::Empty) {
            record.payload = Payload::Empty;
        }
        // At the end of a thread its store may be gone; then the record goes back to the allocator.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_COUNT_MAX {
                spare.push(record);
            }
        });
    }
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        let mut frame = Frame::new(self.header());
        let record = frame.record_mut();
        record.payload = self.payload().clone();
        record.trailer_len = self.record().trailer_len;
        record.trailer = self.record().trailer;
        frame
    }
}

impl Frame {
    /// A frame that is all header.
    ///
    /// # Panics
    /// If `header` is longer than [`HEADER_BYTES_MAX`]; [`Frame::from_bytes`] takes any length.
    #[inline]
    pub fn new(header: &[u8]) -> Frame {
        assert!(header.len() <= HEADER_BYTES_MAX, "{} header bytes, at most {HEADER_BYTES_MAX}", header.len());
        let mut record = Record::take(header.len());
        record.header[..header.len()].copy_from_slice(header);
        Frame { record: Some(record) }
    }

    /// A frame of the first `header_len` bytes of a room for headers, of `payload`, and of the first `trailer_len` bytes
    /// of a room for trailers. The bytes behind them are copied too, since to copy a fixed number is quicker.
    ///
    /// # Panics
    /// If a length is more than its room, or the frame is longer than [`FRAME_BYTES_MAX`].
    #[inline]
    pub fn from_rooms(
        (header, header_len): (&[u8; HEADER_BYTES_MAX], usize),
        payload: Payload,
        (trailer, trailer_len): (&[u8; TRAILER_BYTES_MAX], usize),
    ) -> Frame {
        assert!(
            header_len <= HEADER_BYTES_MAX && trailer_len <= TRAILER_BYTES_MAX,
            "{header_len} + {trailer_len} bytes"
        );
        assert!(header_len + payload.len_bytes() + trailer_len <= FRAME_BYTES_MAX, "{payload:?} makes it too long");
        let mut record = Record::take(header_len);
        if header_len <= SHORT_HEADER_BYTES {
            record.header[..SHORT_HEADER_BYTES].copy_from_slice(&header[..SHORT_HEADER_BYTES]);
        } else {
            record.header = *header;
        }
        (record.payload, record.trailer, record.trailer_len) = (payload, *trailer, trailer_len as u8);
        Frame { record: Some(record) }
    }

    /// Records this thread has allocated so far, for tests that keep an eye on what a frame costs.
    pub fn made_count() -> u64 {
        MADE_COUNT.with(Cell::get)
    }

    #[inline]
    fn record(&self) -> &Record {
        self.record.as_deref().unwrap_or(&EMPTY)
    }

    #[inline]
    fn record_mut(&mut self) -> &mut Record {
        self.record.get_or_insert_with(|| Record::take(0))
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
        self.record_mut().payload = Payload::Virtual(len_bytes);
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
    /// If the range is not inside the buffer, lies beyond its first 4 GiB, or makes a frame of more than
    /// [`FRAME_BYTES_MAX`].
    pub fn with_payload_range(mut self, data: Arc<[u8]>, offset_bytes: usize, len_bytes: usize) -> Frame {
        assert!(offset_bytes + len_bytes <= data.len(), "payload range ends beyond its buffer of {} bytes", data.len());
        let offset = u32::try_from(offset_bytes).expect("payload offset fits 32 bits");
        let len = u16::try_from(len_bytes).unwrap_or(u16::MAX);
        assert!(usize::from(len) <= FRAME_BYTES_MAX, "payload of {len_bytes} bytes, at most {FRAME_BYTES_MAX}");
        self.record_mut().payload = Payload::Bytes { data, offset, len };
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
        let record = self.record_mut();
        record.trailer[..trailer.len()].copy_from_slice(trailer);
        record.trailer_len = trailer.len() as u8;
        self.check_length();
        self
    }

    /// Has the processor fetch what is read of a short frame on arrival, without waiting for it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let record = self.record();
        prefetch(record);
        prefetch(&record.header[SHORT_HEADER_BYTES - 1]);
    }

    #[inline]
    fn check_length(&self) {
        assert!(self.len_bytes() <= FRAME_BYTES_MAX, "frame of {} bytes, at most {FRAME_BYTES_MAX}", self.len_bytes());
    }

    /// The inline bytes the frame begins with.
    #[inline]
    pub fn header(&self) -> &[u8] {
        self.record().header()
    }

    /// The same, to be changed.
    #[inline]
    pub fn header_mut(&mut self) -> &mut [u8] {
        let record = self.record_mut();
        &mut record.header[..usize::from(record.header_len)]
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &Payload {
        &self.record().payload
    }

    /// The bytes after the payload.
    #[inline]
    pub fn trailer(&self) -> &[u8] {
        self.record().trailer()
    }

    /// Whether part of the frame exists as a length only.
    pub fn is_virtual(&self) -> bool {
        self.payload().bytes().is_none()
    }

    /// Length in bytes, without preamble, FCS and Ethernet padding.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.record().len_bytes()
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
        match self.payload().bytes() {
            Some(bytes) => out.extend_from_slice(bytes),
            None => out.resize(out.len() + self.payload().len_bytes(), 0),
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
        let record = self.record_mut();
        let header_end = record.header_len as usize;
        let payload_end = header_end + record.payload.len_bytes();
        if byte < header_end {
            record.header[byte] ^= mask;
        } else if byte < payload_end {
            let mut data = match record.payload.bytes() {
                Some(bytes) => bytes.to_vec(),
                None => vec![0; record.payload.len_bytes()],
            };
            data[byte - header_end] ^= mask;
            let len = data.len() as u16;
            record.payload = Payload::Bytes { data: data.into(), offset: 0, len };
        } else if byte < payload_end + record.trailer_len as usize {
            record.trailer[byte - payload_end] ^= mask;
        }
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
        let trailer_len = self.trailer().len();
        match self.payload() {
            Payload::Empty => write!(f, ")"),
            Payload::Virtual(len) => write!(f, " + {len} virtual + {trailer_len})"),
            Payload::Bytes { len, .. } => write!(f, " + {len} real + {trailer_len})"),
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
    fn a_frame_in_a_used_record_has_nothing_of_the_one_before() {
        drop(Frame::new(&[7; 100]).with_virtual_payload(9).with_trailer(&[7; 8]));
        let made = Frame::made_count();
        let mut frame = Frame::new(&[1, 2]);
        assert_eq!((frame.to_bytes(), Frame::made_count()), (vec![1, 2], made));
        frame = frame.with_trailer(&[3]);
        assert_eq!((frame.header(), frame.trailer(), frame.payload().len_bytes()), (&[1, 2][..], &[3][..], 0));
        assert_eq!((std::mem::take(&mut frame).len_bytes(), frame.len_bytes()), (3, 0));
        frame.flip_bit(0);
        assert_eq!(frame.with_virtual_payload(3).to_bytes(), [0, 0, 0]);
    }

    #[test]
    fn a_frame_from_rooms_has_what_the_lengths_say() {
        let (header, trailer): ([u8; HEADER_BYTES_MAX], _) = (std::array::from_fn(|i| i as u8), [7; TRAILER_BYTES_MAX]);
        for header_len in [0, SHORT_HEADER_BYTES, SHORT_HEADER_BYTES + 1, HEADER_BYTES_MAX] {
            let frame = Frame::from_rooms((&header, header_len), Payload::Virtual(2), (&trailer, 3));
            assert_eq!(frame, Frame::new(&header[..header_len]).with_virtual_payload(2).with_trailer(&[7; 3]));
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
