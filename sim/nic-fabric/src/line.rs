//! The frames on a link, in the order of their arrival: a ring whose places are filled and emptied where they are.
//!
//! A queue of the standard library would move whole records in and out; here the parts of one go from the ring of one
//! link to that of the next through registers.

use crate::agenda::NEVER_PS;
use crate::flight::{Flight, Packet};
use crate::frame::Frame;

/// Frames on a link.
#[derive(Default)]
pub(crate) struct Line {
    /// As many places as a power of two, or none.
    places: Vec<Flight>,
    /// Place of the first, not yet wrapped.
    first: u32,
    len: u32,
}

impl Line {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn index(&self, at: u32) -> usize {
        // There are places when this is asked.
        self.first.wrapping_add(at) as usize & (self.places.len() - 1)
    }

    /// The flight that comes after `at` others.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&Flight> {
        (at < self.len).then(|| &self.places[self.index(at)])
    }

    /// When the first arrives; `NEVER_PS` if there is none.
    #[inline]
    pub(crate) fn first_ps(&self) -> u64 {
        self.get(0).map_or(NEVER_PS, |flight| flight.arrival_ps)
    }

    /// Those that arrive until `end_ps`.
    #[inline]
    pub(crate) fn until(&self, end_ps: u64) -> impl Iterator<Item = &Flight> {
        (0..self.len).map(|at| &self.places[self.index(at)]).take_while(move |flight| flight.arrival_ps <= end_ps)
    }

    /// Puts a frame behind the others.
    #[inline(always)]
    pub(crate) fn push(&mut self, arrival_ps: u64, packet: Packet, frame: Frame) {
        if self.len as usize == self.places.len() {
            self.grow();
        }
        let index = self.index(self.len);
        self.len += 1;
        self.places[index].set(arrival_ps, packet, frame);
    }

    /// Takes the first frame off, its header as it was sent.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<(Packet, Frame)> {
        if self.len == 0 {
            return None;
        }
        let index = self.index(0);
        self.first = index as u32 + 1;
        self.len -= 1;
        let place = &mut self.places[index];
        Some((place.packet, place.take_frame()))
    }

    #[cold]
    fn grow(&mut self) {
        if self.len > 0 {
            let first = self.index(0);
            self.places.rotate_left(first);
        }
        self.first = 0;
        let place_count = (2 * self.len()).max(PLACES_MIN);
        assert!(u32::try_from(place_count).is_ok(), "{place_count} frames on a link");
        self.places.resize_with(place_count, Flight::default);
    }
}

const PLACES_MIN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u32) -> Packet {
        Packet::new(100, number, 0)
    }

    #[test]
    fn frames_leave_in_the_order_in_which_they_came_however_often_the_ring_wraps_and_grows() {
        let mut line = Line::default();
        let (mut pushed, mut popped) = (0_u32, 0_u32);
        for step in 0..1_000_u32 {
            // Now more come, now more go.
            let (come, go) = if step / 50 % 2 == 0 { (3, 2) } else { (2, 3) };
            for _ in 0..come {
                line.push(u64::from(pushed), packet(pushed), Frame::new(&pushed.to_be_bytes()));
                pushed += 1;
            }
            for _ in 0..go.min(line.len()) {
                assert_eq!(line.first_ps(), u64::from(popped));
                let (packet, frame) = line.pop().unwrap();
                assert_eq!((packet.flow_hash(), frame.header()), (popped, &popped.to_be_bytes()[..]));
                popped += 1;
            }
            assert_eq!(line.len() as u32, pushed - popped);
            let due = line.until(u64::from(popped) + 1).count();
            assert_eq!(due, line.len().min(2));
        }
        assert!(line.places.len() > PLACES_MIN, "the ring never grew");
        while line.pop().is_some() {}
        assert_eq!(line.first_ps(), NEVER_PS);
    }
}
