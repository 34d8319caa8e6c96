//! From an interrupt of the card to something a thread can wait for.
//!
//! An [`IrqEvent`] counts the interrupts since it was last taken, as an eventfd does. A backend signals it; the driver
//! takes it. What it is made of is private, so that one backed by a file descriptor can be added for the kernel.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::pci::PciDevice;

/// Counts interrupts until they are taken. Clones name the same event.
#[derive(Clone, Debug, Default)]
pub struct IrqEvent {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: Mutex<u64>,
    raised: Condvar,
}

impl IrqEvent {
    /// An event that has not happened.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more interrupt; wakes whoever waits.
    pub fn signal(&self) {
        *self.count() += 1;
        self.inner.raised.notify_all();
    }

    /// Interrupts since the last call; 0 = none.
    pub fn take(&self) -> u64 {
        std::mem::take(&mut *self.count())
    }

    /// Waits for an interrupt while this thread moves the device on: calls [`PciDevice::idle`] up to `polls_max` times
    /// and returns the number of interrupts.
    ///
    /// # Errors
    /// [`Error::Timeout`] when none came; [`Error::Idle`] when the device is gone.
    pub fn wait_polling(&self, device: &dyn PciDevice, polls_max: u32) -> Result<u64> {
        for _ in 0..polls_max {
            match self.take() {
                0 => device.idle().map_err(|source| Error::Idle { source })?,
                count => return Ok(count),
            }
        }
        match self.take() {
            0 => Err(Error::Timeout { what: "interrupt", polls: polls_max }),
            count => Ok(count),
        }
    }

    /// Blocks until an interrupt comes or `timeout` of real time has passed, and returns the number of interrupts.
    /// For a thread that waits while another one, or a card, moves on by itself.
    pub fn wait_blocking(&self, timeout: Duration) -> u64 {
        let waited = self.inner.raised.wait_timeout_while(self.count(), timeout, |count| *count == 0);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// A thread that died holding the count left a valid number behind.
    fn count(&self) -> MutexGuard<'_, u64> {
        self.inner.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_until_it_is_taken() {
        let event = IrqEvent::new();
        event.signal();
        event.clone().signal();
        assert_eq!([event.take(), event.take()], [2, 0]);
    }

    #[test]
    fn a_blocked_thread_is_woken() {
        let event = IrqEvent::new();
        let count = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| event.wait_blocking(Duration::from_secs(600)));
            event.signal();
            waiter.join().unwrap()
        });
        assert_eq!(count, 1);
        assert_eq!(event.wait_blocking(Duration::ZERO), 0);
    }
}
