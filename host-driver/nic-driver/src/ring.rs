//! Arithmetic of rings with free-running 16-bit indices.
//!
//! An index counts modulo 2^16 whatever the ring's size; its low bits are the slot. So full (`size` entries) and empty
//! (none) differ in all sizes up to 2^15 without wasting a slot, and the bit above the slot tells the rounds apart.

/// Largest `log2_size`: with 2^15 entries the round is still a bit of the 16-bit index.
pub const LOG2_SIZE_MAX: u8 = 15;

/// Size of a ring as a power of two, 2^0..=2^15 entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSize {
    log2: u8,
}

impl RingSize {
    /// 2^`log2` entries; `None` above [`LOG2_SIZE_MAX`].
    pub const fn new(log2: u8) -> Option<Self> {
        if log2 > LOG2_SIZE_MAX {
            return None;
        }
        Some(Self { log2 })
    }

    /// The logarithm, as the card takes it.
    pub const fn log2(self) -> u8 {
        self.log2
    }

    /// Entries.
    pub const fn entries(self) -> u32 {
        1 << self.log2
    }

    /// Where in the ring the entry of `index` lies.
    pub const fn slot(self, index: u16) -> usize {
        (index as u32 & (self.entries() - 1)) as usize
    }

    /// The phase bit of an entry written at `index`: 1 on the ring's first round, then alternating.
    pub const fn phase(self, index: u16) -> bool {
        (index >> self.log2) & 1 == 0
    }
}

/// What is in flight in a ring: entries `consumer..producer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    size: RingSize,
    producer: u16,
    consumer: u16,
}

impl Ring {
    /// An empty ring whose first entry gets index `first`.
    pub const fn new(size: RingSize, first: u16) -> Self {
        Self { size, producer: first, consumer: first }
    }

    /// Its size.
    pub const fn size(&self) -> RingSize {
        self.size
    }

    /// Index that the next entry will get.
    pub const fn producer(&self) -> u16 {
        self.producer
    }

    /// Index of the oldest entry in flight, equal to [`Self::producer`] when there is none.
    pub const fn consumer(&self) -> u16 {
        self.consumer
    }

    /// Entries in flight.
    pub const fn in_flight(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) as u32
    }

    /// Entries that may be added.
    pub const fn room(&self) -> u32 {
        self.size.entries() - self.in_flight()
    }

    /// Adds an entry and returns its index; `None` when the ring is full.
    pub fn push(&mut self) -> Option<u16> {
        if self.room() == 0 {
            return None;
        }
        let index = self.producer;
        self.producer = index.wrapping_add(1);
        Some(index)
    }

    /// True when `index` names an entry in flight.
    pub const fn contains(&self, index: u16) -> bool {
        (index.wrapping_sub(self.consumer) as u32) < self.in_flight()
    }

    /// Indices of the entries in flight, oldest first.
    pub fn indices(&self) -> impl Iterator<Item = u16> {
        let consumer = self.consumer;
        (0..self.in_flight()).map(move |i| consumer.wrapping_add(i as u16))
    }

    /// Retires all entries up to and including `index` and returns how many; `None` when `index` is not in flight.
    pub fn retire_through(&mut self, index: u16) -> Option<u32> {
        if !self.contains(index) {
            return None;
        }
        let count = u32::from(index.wrapping_sub(self.consumer)) + 1;
        self.consumer = index.wrapping_add(1);
        Some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes() -> impl Iterator<Item = RingSize> {
        (0..=LOG2_SIZE_MAX).map(|log2| RingSize::new(log2).unwrap())
    }

    #[test]
    fn a_ring_takes_exactly_its_size_at_every_size_and_across_the_16_bit_wrap() {
        for size in sizes() {
            for first in [0u16, 0x7fff, 0xfff0, 0xffff] {
                let mut ring = Ring::new(size, first);
                for i in 0..size.entries() {
                    assert_eq!(ring.push(), Some(first.wrapping_add(i as u16)));
                }
                assert_eq!((ring.push(), ring.room(), ring.in_flight()), (None, 0, size.entries()));
                assert_eq!(ring.retire_through(ring.producer().wrapping_sub(1)), Some(size.entries()));
                assert_eq!((ring.in_flight(), ring.room()), (0, size.entries()));
            }
        }
        assert_eq!(RingSize::new(16), None);
    }

    #[test]
    fn the_phase_is_1_in_the_first_round_and_changes_with_each_round_at_every_size() {
        for size in sizes() {
            let mut expected = true;
            let mut index = 0u16;
            for _round in 0..(0x2_0000 / size.entries()).min(64) {
                for slot in 0..size.entries() {
                    assert_eq!((size.slot(index), size.phase(index)), (slot as usize, expected));
                    index = index.wrapping_add(1);
                }
                expected = !expected;
            }
        }
    }

    #[test]
    fn the_phase_is_continuous_where_the_index_wraps() {
        for size in sizes() {
            assert!(size.phase(0), "index 0 is on a round of phase 1");
            assert!(!size.phase(0xffff), "the round before it has phase 0, log2 size {}", size.log2());
        }
    }

    proptest! {
        #![proptest_config(crate::random::config())]
        #[test]
        fn a_ring_behaves_as_a_queue_of_counters(log2 in 0u8..=15, first: u16, steps in prop::collection::vec((any::<bool>(), 0u16..40), 1..200)) {
            let size = RingSize::new(log2).unwrap();
            let mut ring = Ring::new(size, first);
            let mut model = std::collections::VecDeque::new();
            let mut next = u32::from(first);
            for (is_push, count) in steps {
                if is_push {
                    for _ in 0..count {
                        let fits = (model.len() as u32) < size.entries();
                        prop_assert_eq!(ring.push(), fits.then_some(next as u16));
                        if fits {
                            model.push_back(next as u16);
                            next += 1;
                        }
                    }
                } else if let Some(&index) = model.get(usize::from(count)) {
                    prop_assert!(ring.contains(index));
                    prop_assert_eq!(ring.retire_through(index), Some(u32::from(count) + 1));
                    model.drain(..=usize::from(count));
                    prop_assert!(!ring.contains(index));
                }
                prop_assert_eq!(ring.indices().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(ring.retire_through(ring.producer()), None);
            }
        }
    }
}
