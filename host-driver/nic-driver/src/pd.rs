//! Protection domains: which connections may use which memory regions.

use std::sync::Arc;

use nic_spec::num;

use crate::device::Device;
use crate::error::{Error, Result};

/// A protection domain. Clones name the same domain; it ends with the last clone and the last object in it.
#[derive(Clone, Debug)]
pub struct Pd {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: Device,
    number: u32,
}

impl Pd {
    /// A new domain on `device`.
    ///
    /// # Errors
    /// [`Error::Exhausted`] when there are too many.
    pub fn new(device: &Device) -> Result<Self> {
        let have = 1 << num::Pd::BITS;
        let number = device.pools().pds.take().ok_or(Error::Exhausted { what: "protection domains", have })?;
        Ok(Self { inner: Arc::new(Inner { device: device.clone(), number }) })
    }

    /// The card it is on.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Its number on the card.
    pub fn number(&self) -> num::Pd {
        num::Pd::new(self.inner.number)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.pools().pds.give_back(self.number);
    }
}
