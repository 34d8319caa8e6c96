//! Where a card's MSI-X messages end: per vector a count and the event that the driver attached.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nic_driver::irq::IrqEvent;
use nic_driver::pci::{PciError, PciResult, IRQ_MSIX};

/// The interrupt sink of one card. Clones name the same sink.
#[derive(Clone, Debug)]
pub struct MsixSink {
    vectors: Arc<Mutex<Vec<Vector>>>,
}

#[derive(Clone, Debug, Default)]
struct Vector {
    count: u64,
    event: Option<IrqEvent>,
}

impl MsixSink {
    /// A sink of `vectors` vectors, at most 2048 as PCIe has it, without events.
    pub fn new(vectors: u32) -> Self {
        assert!(vectors <= 2048, "{vectors} vectors; MSI-X has at most 2048");
        Self { vectors: Arc::new(Mutex::new(vec![Vector::default(); vectors as usize])) }
    }

    /// Number of vectors.
    pub fn vector_count(&self) -> u32 {
        self.lock().len() as u32
    }

    /// A message of the card: counts, and signals the vector's event if one is attached.
    ///
    /// # Errors
    /// [`PciError::Irq`] when there is no such vector: the card is wrong.
    pub fn raise(&self, vector: u32) -> PciResult<()> {
        let mut vectors = self.lock();
        let have = vectors.len() as u32;
        let entry = vectors.get_mut(vector as usize);
        let entry = entry.ok_or(PciError::Irq { index: IRQ_MSIX, start: vector, end: u64::from(vector) + 1, have })?;
        entry.count += 1;
        if let Some(event) = &entry.event {
            event.signal();
        }
        Ok(())
    }

    /// Messages of `vector` since the start; 0 for a vector that does not exist.
    pub fn count(&self, vector: u32) -> u64 {
        self.lock().get(vector as usize).map_or(0, |entry| entry.count)
    }

    /// Messages of all vectors since the start.
    pub fn total(&self) -> u64 {
        self.lock().iter().map(|entry| entry.count).sum()
    }

    /// Attaches `events` to the vectors from `start` on.
    ///
    /// # Errors
    /// [`PciError::Irq`] when a vector does not exist; nothing is attached then.
    pub fn attach(&self, start: u32, events: &[IrqEvent]) -> PciResult<()> {
        let mut vectors = self.lock();
        let (have, end) = (vectors.len() as u32, u64::from(start) + events.len() as u64);
        if end > u64::from(have) {
            return Err(PciError::Irq { index: IRQ_MSIX, start, end, have });
        }
        for (entry, event) in vectors[start as usize..].iter_mut().zip(events) {
            entry.event = Some(event.clone());
        }
        Ok(())
    }

    /// Detaches all events.
    pub fn detach_all(&self) {
        self.lock().iter_mut().for_each(|entry| entry.event = None);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vector>> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_and_signals_only_its_vector() {
        let sink = MsixSink::new(4);
        let events = [IrqEvent::new(), IrqEvent::new()];
        sink.attach(1, &events).unwrap();
        for vector in [0, 2, 2] {
            sink.raise(vector).unwrap();
        }
        assert_eq!([events[0].take(), events[1].take()], [0, 2]);
        assert_eq!([sink.count(0), sink.count(1), sink.count(2), sink.count(9), sink.total()], [1, 0, 2, 0, 3]);
        sink.detach_all();
        sink.raise(2).unwrap();
        assert_eq!((events[1].take(), sink.count(2)), (0, 3));
    }

    #[test]
    fn a_vector_beyond_the_sink_is_an_error_and_attaches_nothing() {
        let sink = MsixSink::new(2);
        let event = IrqEvent::new();
        let wrong = |start, end| Err(PciError::Irq { index: IRQ_MSIX, start, end, have: 2 });
        assert_eq!(sink.raise(2), wrong(2, 3));
        assert_eq!(sink.attach(1, &[event.clone(), event.clone()]), wrong(1, 3));
        assert_eq!(sink.attach(u32::MAX, std::slice::from_ref(&event)), wrong(u32::MAX, 1 << 32));
        sink.raise(1).unwrap();
        assert_eq!(event.take(), 0);
    }
}
