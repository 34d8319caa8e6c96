//! A frame as the model sends and receives it: header bytes inline, a payload of bytes or of a length only.
//!
//! A virtual payload lets a network of models carry hundreds of megabytes without touching a byte of them. It reads as
//! zeros and carries no ICRC; everything else about the frame is the same to the bit.

use alloc::sync::Arc;
use alloc::vec::Vec;

/// Room for any header chain: two VLAN tags, IPv6, UDP, BTH, PXTH and the longest extension, 152 bytes, rounded up.
pub const HEADER_BYTES_MAX: usize = 192;
/// Pad and ICRC.
pub const TRAILER_BYTES_MAX: usize = 8;

/// Content of a packet or of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Bytes `start..start + len` of a shared buffer.
    Bytes {
        /// The buffer.
        buffer: Arc<[u8]>,
        /// First byte.
        start: u32,
        /// Bytes.
        len: u32,
    },
    /// So many bytes that nobody looks at.
    Virtual(u32),
}

impl Default for Payload {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Payload {
    /// No bytes.
    pub const EMPTY: Self = Self::Virtual(0);

    /// A payload that owns a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::Bytes { buffer: bytes.into(), start: 0, len: bytes.len() as u32 }
    }

    /// Length, bytes.
    pub const fn len_bytes(&self) -> u32 {
        match self {
            Self::Bytes { len, .. } | Self::Virtual(len) => *len,
        }
    }

    /// Part `start..start + len` of this payload. Panics when it reaches beyond.
    pub fn slice(&self, start: u32, len: u32) -> Self {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len_bytes()), "a slice beyond its payload");
        match self {
            Self::Bytes { buffer, start: base, .. } => Self::Bytes { buffer: buffer.clone(), start: base + start, len },
            Self::Virtual(_) => Self::Virtual(len),
        }
    }

    /// The bytes; `None` for a virtual payload of more than 0 bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Virtual(0) => Some(&[]),
            Self::Bytes { buffer, start, len } => buffer.get(*start as usize..(*start + *len) as usize),
            Self::Virtual(_) => None,
        }
    }
}

/// The parts of a frame, wherever they lie.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    /// First bytes.
    pub header: &'a [u8],
    /// What the packet carries.
    pub payload: &'a Payload,
    /// Last bytes.
    pub trailer: &'a [u8],
}

impl FrameRef<'_> {
    /// Length, bytes.
    #[inline]
    pub const fn len_bytes(&self) -> u32 {
        self.header.len() as u32 + self.payload.len_bytes() + self.trailer.len() as u32
    }

    /// True when the payload has no bytes although it has a length; such a frame carries no ICRC.
    pub const fn is_virtual(&self) -> bool {
        matches!(self.payload, Payload::Virtual(len) if *len > 0)
    }

    /// All bytes in one; a virtual payload reads as zeros.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len_bytes() as usize);
        out.extend_from_slice(self.header);
        match self.payload.bytes() {
            Some(bytes) => out.extend_from_slice(bytes),
            None => out.resize(out.len() + self.payload.len_bytes() as usize, 0),
        }
        out.extend_from_slice(self.trailer);
        out
    }
}

/// A frame without preamble and FCS: `header | payload | trailer`.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Frame {
    /// What the packet carries.
    pub payload: Payload,
    header_len: u8,
    trailer_len: u8,
    trailer: [u8; TRAILER_BYTES_MAX],
    header: [u8; HEADER_BYTES_MAX],
}

impl Frame {
    /// A frame of `header` (at most [`HEADER_BYTES_MAX`]), `payload` and `trailer` (at most [`TRAILER_BYTES_MAX`]).
    /// Panics when one is longer.
    pub fn new(header: &[u8], payload: Payload, trailer: &[u8]) -> Self {
        let mut frame = Self::zeroed(payload);
        frame.header[..header.len()].copy_from_slice(header);
        frame.trailer[..trailer.len()].copy_from_slice(trailer);
        (frame.header_len, frame.trailer_len) = (header.len() as u8, trailer.len() as u8);
        frame
    }

    /// A frame of nothing, to be filled in place.
    pub const fn empty() -> Self {
        Self::zeroed(Payload::EMPTY)
    }

    const fn zeroed(payload: Payload) -> Self {
        Self { payload, header_len: 0, trailer_len: 0, trailer: [0; TRAILER_BYTES_MAX], header: [0; HEADER_BYTES_MAX] }
    }

    /// The room for the header.
    pub(crate) fn header_room(&mut self) -> &mut [u8; HEADER_BYTES_MAX] {
        &mut self.header
    }

    /// Says how much of the header's room is used.
    pub(crate) fn set_header_len(&mut self, len: usize) {
        self.header_len = len as u8;
    }

    /// Sets the bytes after the payload: `pad` zeros and the ICRC.
    pub(crate) fn set_trailer(&mut self, pad: usize, icrc: u32) {
        // Pad, ICRC and what is left are 8 bytes together.
        self.trailer = (u64::from(icrc) << (8 * pad)).to_le_bytes();
        self.trailer_len = pad as u8 + 4;
    }

    /// A frame of bytes; as many as fit become the header.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (header, rest) = bytes.split_at(bytes.len().min(HEADER_BYTES_MAX));
        Self::new(header, if rest.is_empty() { Payload::EMPTY } else { Payload::from_bytes(rest) }, &[])
    }

    /// The inline first bytes.
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    /// The inline first bytes, to be changed.
    pub fn header_mut(&mut self) -> &mut [u8] {
        &mut self.header[..usize::from(self.header_len)]
    }

    /// The inline last bytes.
    pub fn trailer(&self) -> &[u8] {
        &self.trailer[..usize::from(self.trailer_len)]
    }

    /// Length, bytes.
    pub const fn len_bytes(&self) -> u32 {
        self.header_len as u32 + self.payload.len_bytes() + self.trailer_len as u32
    }

    /// Its parts.
    #[inline]
    pub fn as_parts(&self) -> FrameRef<'_> {
        FrameRef { header: self.header(), payload: &self.payload, trailer: self.trailer() }
    }

    /// True when the payload has no bytes although it has a length; such a frame carries no ICRC.
    pub fn is_virtual(&self) -> bool {
        self.as_parts().is_virtual()
    }

    /// All bytes in one; a virtual payload reads as zeros.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.as_parts().to_bytes()
    }

    /// The room of the header, of which the first [`header`](Self::header)`.len()` bytes are used, and that of the
    /// trailer. To copy all of it is quicker than to copy so many bytes.
    #[inline]
    pub const fn rooms(&self) -> (&[u8; HEADER_BYTES_MAX], &[u8; TRAILER_BYTES_MAX]) {
        (&self.header, &self.trailer)
    }
}

/// Frames are equal when their bytes are, however they are stored.
impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        self.is_virtual() == other.is_virtual() && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Frame {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_keeps_its_bytes_whatever_part_they_stand_in() {
        let bytes: Vec<u8> = (0..=255).cycle().take(300).map(|b: u8| b).collect();
        let split = Frame::new(&bytes[..100], Payload::from_bytes(&bytes[100..295]), &bytes[295..]);
        let whole = Frame::from_bytes(&bytes);
        assert_eq!((split.as_parts().len_bytes(), split.as_parts().to_bytes()), (300, bytes.clone()));
        assert_eq!((split.len_bytes(), split.to_bytes()), (300, bytes));
        assert_eq!(split, whole);
    }

    #[test]
    fn a_virtual_payload_reads_as_zeros_and_slices_by_length() {
        let frame = Frame::new(&[1, 2], Payload::Virtual(5), &[3]);
        assert_eq!(frame.to_bytes(), [1, 2, 0, 0, 0, 0, 0, 3]);
        assert!(frame.is_virtual() && !Frame::from_bytes(&[1]).is_virtual());
        assert_eq!(Payload::Virtual(5).slice(1, 3), Payload::Virtual(3));
        assert_eq!(Payload::from_bytes(&[1, 2, 3]).slice(1, 2).bytes(), Some(&[2, 3][..]));
    }
}
