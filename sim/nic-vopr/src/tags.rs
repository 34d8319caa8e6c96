//! VLAN tags that a network puts on frames before they reach a host.

use nic_fabric::frame::{Frame, Payload};

/// Where a tag stands: after both MAC addresses.
const TAG_AT: usize = 12;
/// Frames with longer headers stay as they are.
const HEADER_MAX: usize = 150;

/// Puts none, one or two tags on each frame that passes, by its own count of them.
#[derive(Clone, Debug)]
pub struct Tagger {
    percent: u64,
    state: u64,
    bytes: u64,
}

impl Tagger {
    /// Tags so many of a hundred frames; `number` makes hosts differ.
    pub fn new(percent: u64, number: u32) -> Tagger {
        Tagger { percent, state: u64::from(number), bytes: 0 }
    }

    /// Bytes of all tags so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The frame as it arrives.
    pub fn pass(&mut self, frame: Frame) -> Frame {
        // Weyl sequence, upper bits: even enough, and the same in every run.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let draw = self.state >> 40;
        if draw % 100 >= self.percent || frame.header().len() > HEADER_MAX || frame.header().len() < TAG_AT {
            return frame;
        }
        let tag = |ethertype: u16| [(ethertype >> 8) as u8, ethertype as u8, 0x20, (draw >> 8) as u8];
        let tags = if draw & 0x1_0000 == 0 { tag(0x8100).to_vec() } else { [tag(0x88a8), tag(0x8100)].concat() };
        self.bytes += tags.len() as u64;
        let (macs, rest) = frame.header().split_at(TAG_AT);
        let tagged = Frame::new(&[macs, &tags, rest].concat());
        let tagged = match frame.payload() {
            Payload::Empty => tagged,
            Payload::Virtual(len) => tagged.with_virtual_payload(*len),
            Payload::Bytes { data, offset, len } => {
                tagged.with_payload_range(data.clone(), *offset as usize, *len as usize)
            }
        };
        tagged.with_trailer(frame.trailer())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_stand_after_the_addresses_and_the_rest_is_as_it_was() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut tagger = Tagger::new(60, 1);
        let mut lengths = [0; 3];
        for _ in 0..200 {
            let passed = tagger.pass(Frame::new(&bytes[..60]).with_payload(bytes[60..].into())).to_bytes();
            let added = passed.len() - bytes.len();
            lengths[added / 4] += 1;
            assert!(passed[..12] == bytes[..12] && passed[12 + added..] == bytes[12..]);
            assert!((0..added / 4).all(|tag| matches!(passed[12 + 4 * tag..][..2], [0x81, 0] | [0x88, 0xa8])));
        }
        assert!(lengths.iter().all(|count| *count > 10), "{lengths:?}");
        assert_eq!(tagger.bytes(), 4 * lengths[1] + 8 * lengths[2]);
    }
}
