//! The arithmetic of incrementing bursts, and the rules an address must keep.

use super::ports::AddressPorts;
use crate::port::PortImage;

/// No burst may cross a multiple of this.
const BOUNDARY_BYTES: u64 = 4096;
const BURST_INCR: u64 = 1;

/// An accepted address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) id: u64,
    pub(super) addr: u64,
    pub(super) beats: usize,
    pub(super) beat_bytes: usize,
}

impl Burst {
    /// Reads an address channel; the second value names every rule the address breaks.
    pub(super) fn read(image: &PortImage, ports: &AddressPorts, width_bytes: usize) -> (Self, Option<String>) {
        let field = |port: Option<_>, default| port.map_or(default, |port| image.get(port));
        let beats = field(ports.len, 0) as usize + 1;
        let size_log2 = field(ports.size, u64::from(width_bytes.trailing_zeros()));
        let beat_bytes = 1_usize << size_log2;
        let burst = Burst { id: field(ports.id, 0), addr: image.get(ports.addr), beats, beat_bytes };
        let mut broken = None;
        if beat_bytes > width_bytes {
            broken = Some(format!("a size of {beat_bytes} bytes on a bus of {width_bytes}"));
        } else if beats > 1 && field(ports.burst, BURST_INCR) != BURST_INCR {
            broken = Some("a burst that is not incrementing".to_owned());
        } else if burst.first_page() != burst.last_page() {
            let last = burst.last_addr();
            broken = Some(format!("a burst from {:#x} to {last:#x} crosses a 4 KiB boundary", burst.addr));
        }
        let burst = Burst { beat_bytes: beat_bytes.min(width_bytes), ..burst };
        (burst, broken)
    }

    /// The address rounded down to a beat.
    pub(super) fn aligned(&self) -> u64 {
        self.addr & !(self.beat_bytes as u64 - 1)
    }

    fn first_page(&self) -> u64 {
        self.addr / BOUNDARY_BYTES
    }

    fn last_page(&self) -> u64 {
        self.last_addr() / BOUNDARY_BYTES
    }

    /// The address of the last byte. Like all addresses here it wraps: the design may well give one near 2^64.
    fn last_addr(&self) -> u64 {
        self.aligned().wrapping_add((self.beats * self.beat_bytes) as u64 - 1)
    }

    /// Bytes from the address to the end of the last beat.
    pub(super) fn len_bytes(&self) -> usize {
        self.beats * self.beat_bytes - self.skipped()
    }

    /// Bytes of the first beat below the address.
    pub(super) fn skipped(&self) -> usize {
        (self.addr - self.aligned()) as usize
    }

    /// The first byte lane of a beat.
    pub(super) fn lane(&self, beat: usize, width_bytes: usize) -> usize {
        (self.aligned() as usize).wrapping_add(beat * self.beat_bytes) & (width_bytes - 1)
    }

    /// The address of the first byte of a beat's lanes.
    pub(super) fn beat_addr(&self, beat: usize) -> u64 {
        self.aligned().wrapping_add((beat * self.beat_bytes) as u64)
    }

    /// The lanes a beat may use, one bit a byte.
    pub(super) fn lanes(&self, beat: usize, width_bytes: usize) -> u128 {
        let all = (u128::MAX >> (128 - self.beat_bytes)) << self.lane(beat, width_bytes);
        if beat == 0 {
            all & (all << self.skipped())
        } else {
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unaligned_burst_skips_the_lanes_below_its_address() {
        let burst = Burst { id: 0, addr: 0x1003, beats: 3, beat_bytes: 8 };
        assert_eq!((burst.aligned(), burst.skipped(), burst.len_bytes()), (0x1000, 3, 21));
        assert_eq!((burst.lanes(0, 8), burst.lanes(1, 8)), (0xf8, 0xff));
        assert_eq!((burst.beat_addr(2), burst.lane(2, 8)), (0x1010, 0));
    }

    #[test]
    fn a_burst_at_the_top_of_the_address_space_wraps_instead_of_overflowing() {
        let burst = Burst { id: 0, addr: u64::MAX - 5, beats: 2, beat_bytes: 8 };
        assert_eq!((burst.last_addr(), burst.beat_addr(1)), (7, 0));
        assert_ne!(burst.first_page(), burst.last_page());
    }

    #[test]
    fn a_narrow_burst_walks_over_the_lanes() {
        let burst = Burst { id: 0, addr: 0x1006, beats: 3, beat_bytes: 2 };
        let lanes: Vec<_> = (0..3).map(|beat| (burst.lane(beat, 8), burst.lanes(beat, 8))).collect();
        assert_eq!(lanes, [(6, 0xc0), (0, 0x03), (2, 0x0c)]);
    }
}
