//! Which work request stands behind which entry of a queue.
//!
//! The card names entries by index. The application's 64-bit `wr_id` stays here, so the card cannot lose or change it,
//! and what the card names is checked against what was posted.

use crate::ring::{Ring, RingSize};

/// Bookkeeping of a send queue.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Ring,
    slots: Vec<SendSlot>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SendSlot {
    wr_id: u64,
    is_signaled: bool,
}

/// A completed send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendDone {
    pub(crate) wr_id: u64,
    /// Entries that are free again: this one and the unsignaled ones before it.
    pub(crate) retired: u32,
}

impl SendQueue {
    pub(crate) fn new(size: RingSize) -> Self {
        Self { ring: Ring::new(size, 0), slots: vec![SendSlot::default(); size.entries() as usize] }
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Adds an entry, for which there must be room, and returns its slot.
    pub(crate) fn push(&mut self, wr_id: u64, is_signaled: bool) -> usize {
        let index = self.ring.push().expect("the caller made sure that there is room");
        let slot = self.ring.size().slot(index);
        self.slots[slot] = SendSlot { wr_id, is_signaled };
        slot
    }

    /// The card reports entry `index` as done. Nothing changes when that cannot be.
    pub(crate) fn complete(&mut self, index: u16, is_ok: bool) -> Result<SendDone, String> {
        let size = self.ring.size();
        if !self.ring.contains(index) {
            let (consumer, producer) = (self.ring.consumer(), self.ring.producer());
            return Err(format!("WQE {index} is not in flight ({consumer}..{producer} are)"));
        }
        let is_signaled = |index| self.slots[size.slot(index)].is_signaled;
        if let Some(skipped) = self.ring.indices().take_while(|&i| i != index).find(|&i| is_signaled(i)) {
            return Err(format!("WQE {index} completes before WQE {skipped}, which is signaled"));
        }
        if is_ok && !is_signaled(index) {
            return Err(format!("WQE {index} completes well and is not signaled"));
        }
        let retired = self.ring.retire_through(index).expect("the index is in flight");
        Ok(SendDone { wr_id: self.slots[size.slot(index)].wr_id, retired })
    }
}

/// Bookkeeping of a receive queue. Receives complete in the order in which they were posted.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    ring: Ring,
    wr_ids: Vec<u64>,
    /// Low bits of the ordinal (RSN) that the card gives to the first receive.
    first_ordinal: u16,
}

impl RecvQueue {
    pub(crate) fn new(size: RingSize, first_ordinal: u16) -> Self {
        Self { ring: Ring::new(size, 0), wr_ids: vec![0; size.entries() as usize], first_ordinal }
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Adds a receive, for which there must be room.
    pub(crate) fn push(&mut self, wr_id: u64) {
        let index = self.ring.push().expect("the caller made sure that there is room");
        self.wr_ids[self.ring.size().slot(index)] = wr_id;
    }

    /// Receives posted so far, modulo 2^16: what the doorbell tells.
    pub(crate) fn posted(&self) -> u16 {
        self.ring.producer()
    }

    /// The card reports the receive of `ordinal` as used. Nothing changes when that cannot be.
    pub(crate) fn complete(&mut self, ordinal: u16) -> Result<u64, String> {
        let index = ordinal.wrapping_sub(self.first_ordinal);
        if !self.ring.contains(index) {
            let [first, end] = [self.ring.consumer(), self.ring.producer()].map(|i| i.wrapping_add(self.first_ordinal));
            return Err(format!("receive {ordinal} is not posted ({first}..{end} are)"));
        }
        if index != self.ring.consumer() {
            let oldest = self.ring.consumer().wrapping_add(self.first_ordinal);
            return Err(format!("receive {ordinal} completes before receive {oldest}"));
        }
        Ok(self.pop())
    }

    /// Takes back the oldest receive that was not used.
    pub(crate) fn flush_one(&mut self) -> Option<u64> {
        (self.ring.in_flight() > 0).then(|| self.pop())
    }

    fn pop(&mut self) -> u64 {
        let index = self.ring.consumer();
        self.ring.retire_through(index).expect("there is an entry in flight");
        self.wr_ids[self.ring.size().slot(index)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sends(log2: u8) -> SendQueue {
        SendQueue::new(RingSize::new(log2).unwrap())
    }

    #[test]
    fn a_signaled_completion_retires_the_unsignaled_entries_before_it() {
        let mut queue = sends(2);
        for (wr_id, is_signaled) in [(10, false), (11, false), (12, true), (13, true)] {
            queue.push(wr_id, is_signaled);
        }
        assert_eq!(queue.ring().room(), 0);
        assert_eq!(queue.complete(2, true), Ok(SendDone { wr_id: 12, retired: 3 }));
        assert_eq!(queue.complete(3, true), Ok(SendDone { wr_id: 13, retired: 1 }));
    }

    #[test]
    fn an_unsignaled_entry_completes_by_itself_only_in_error() {
        let mut queue = sends(2);
        queue.push(10, false);
        assert_eq!(queue.complete(0, true).unwrap_err(), "WQE 0 completes well and is not signaled");
        assert_eq!(queue.complete(0, false), Ok(SendDone { wr_id: 10, retired: 1 }));
    }

    #[test]
    fn a_completion_that_cannot_be_is_refused_and_changes_nothing() {
        let mut queue = sends(2);
        queue.push(10, true);
        queue.push(11, true);
        assert_eq!(queue.complete(1, true).unwrap_err(), "WQE 1 completes before WQE 0, which is signaled");
        assert_eq!(queue.complete(2, false).unwrap_err(), "WQE 2 is not in flight (0..2 are)");
        assert_eq!(queue.complete(0, true), Ok(SendDone { wr_id: 10, retired: 1 }));
        assert_eq!(queue.complete(0, true).unwrap_err(), "WQE 0 is not in flight (1..2 are)");
    }

    #[test]
    fn receives_complete_in_order_of_their_ordinals_across_the_wrap() {
        let mut queue = RecvQueue::new(RingSize::new(1).unwrap(), 0xffff);
        queue.push(20);
        queue.push(21);
        assert_eq!((queue.posted(), queue.ring().room()), (2, 0));
        assert_eq!(queue.complete(0).unwrap_err(), "receive 0 completes before receive 65535");
        assert_eq!(queue.complete(1).unwrap_err(), "receive 1 is not posted (65535..1 are)");
        assert_eq!(queue.complete(0xffff), Ok(20));
        assert_eq!(queue.flush_one(), Some(21));
        assert_eq!(queue.flush_one(), None);
    }

    #[test]
    fn every_wr_id_comes_back_at_every_size_and_across_the_16_bit_wrap() {
        for log2 in 0..=15 {
            let (mut queue, size) = (sends(log2), 1u64 << log2);
            let mut receives = RecvQueue::new(RingSize::new(log2).unwrap(), 7);
            let rounds = (0x1_0000 / size + 2).min(300);
            for round in 0..rounds {
                for i in 0..size {
                    let slot = queue.push(round * size + i, true);
                    assert_eq!(slot as u64, i, "slots are used in turn");
                    receives.push(round * size + i);
                }
                for i in 0..size {
                    let wr_id = round * size + i;
                    assert_eq!(queue.complete(wr_id as u16, true), Ok(SendDone { wr_id, retired: 1 }));
                    assert_eq!(receives.complete((wr_id as u16).wrapping_add(7)), Ok(wr_id));
                }
            }
        }
    }
}
