//! The rule common to all ready/valid channels: what is offered stays offered, unchanged, until it is taken.

use crate::port::{Port, PortImage};

/// Watches one channel.
pub(crate) struct Stability {
    payload: Vec<Port>,
    held: Vec<u64>,
    is_held: bool,
}

impl Stability {
    pub(crate) fn new(payload: impl IntoIterator<Item = Port>) -> Self {
        Stability { payload: payload.into_iter().collect(), held: Vec::new(), is_held: false }
    }

    pub(crate) fn forget(&mut self) {
        self.is_held = false;
    }

    /// One cycle of the channel; an error says what was broken.
    pub(crate) fn check(&mut self, image: &PortImage, is_valid: bool, is_ready: bool) -> Result<(), &'static str> {
        let mut result = Ok(());
        if self.is_held {
            if !is_valid {
                result = Err("valid was taken back before ready");
            } else {
                let mut held = self.held.iter();
                let is_same = self
                    .payload
                    .iter()
                    .all(|port| image.words(*port).iter().eq(held.by_ref().take(port.width_words())));
                if !is_same {
                    result = Err("the payload changed between valid and ready");
                }
            }
        }
        let was_held = std::mem::replace(&mut self.is_held, is_valid && !is_ready);
        // Held payloads are copied once, not again every cycle of a stall.
        if self.is_held && (!was_held || result.is_err()) {
            self.held.clear();
            self.payload.iter().for_each(|port| self.held.extend_from_slice(image.words(*port)));
        }
        result
    }
}
