//! AXI-Stream: a source that sends frames, a sink that receives them, a monitor that only watches.

mod collect;
mod monitor;
mod sink;
mod source;

pub use collect::{AxisCapture, AxisStats};
pub use monitor::AxisMonitor;
pub use sink::AxisSink;
pub use source::AxisSource;

use crate::{
    error::SimError,
    port::{Direction, Port},
    sim::Handle,
};

/// Widest data bus, in bytes.
pub const AXIS_BYTES_MAX: usize = 128;

/// The ports of one stream.
#[derive(Clone, Debug)]
pub struct AxisPorts {
    /// What the stream is called in messages.
    pub name: String,
    /// Payload, a whole number of bytes, at most [`AXIS_BYTES_MAX`].
    pub data: Port,
    /// One bit per byte of data; absent if all bytes always count.
    pub keep: Option<Port>,
    /// Marks the last beat of a frame; absent if every beat is a frame.
    pub last: Option<Port>,
    /// Side information, at most 64 bits.
    pub user: Option<Port>,
    /// The source offers a beat.
    pub valid: Port,
    /// The sink takes it.
    pub ready: Port,
}

impl AxisPorts {
    /// The ports named `{prefix}_tdata`, `{prefix}_tkeep` and so on, or the same without the `t`.
    ///
    /// # Errors
    /// Data, valid or ready is missing, or widths do not fit each other.
    pub fn find(handle: &Handle, prefix: &str) -> Result<Self, SimError> {
        let t = if handle.find_port(&format!("{prefix}_tdata")).is_some() { "t" } else { "" };
        let optional = |signal: &str| handle.find_port(&format!("{prefix}_{t}{signal}"));
        let needed = |signal: &str| handle.port(&format!("{prefix}_{t}{signal}"));
        let ports = AxisPorts {
            name: prefix.to_owned(),
            data: needed("data")?,
            keep: optional("keep"),
            last: optional("last"),
            user: optional("user"),
            valid: needed("valid")?,
            ready: needed("ready")?,
        };
        ports.check()?;
        Ok(ports)
    }

    /// Bytes per beat.
    pub fn width_bytes(&self) -> usize {
        self.data.width_bits() as usize / 8
    }

    fn check(&self) -> Result<(), SimError> {
        let wrong = |reason: String| Err(SimError::PortShape { name: self.name.clone(), reason });
        let bits = self.data.width_bits();
        if !bits.is_power_of_two() || bits < 8 || self.width_bytes() > AXIS_BYTES_MAX {
            return wrong(format!("data has {bits} bits; a power of two from 8 to {} is needed", AXIS_BYTES_MAX * 8));
        }
        match self.keep {
            Some(keep) if keep.width_bits() * 8 != bits => {
                return wrong(format!("keep has {} bits for {bits} bits of data", keep.width_bits()));
            }
            _ => {}
        }
        if self.user.is_some_and(|user| user.width_bits() > 64) {
            return wrong("user is wider than 64 bits".into());
        }
        Ok(())
    }

    /// Checks that the testbench drives valid and payload (`Input`), or ready (`Output` of the payload).
    fn check_direction(&self, payload: Direction) -> Result<(), SimError> {
        let reverse = if payload == Direction::Input { Direction::Output } else { Direction::Input };
        let optional = [self.keep, self.last, self.user].into_iter().flatten();
        let is_payload_right = optional.chain([self.data, self.valid]).all(|port| port.direction() == payload);
        if is_payload_right && self.ready.direction() == reverse {
            return Ok(());
        }
        let role = if payload == Direction::Input { "source" } else { "sink" };
        Err(SimError::PortShape {
            name: self.name.clone(),
            reason: format!("the design is no partner for a {role} here"),
        })
    }

    /// All ports that must not change while a beat waits.
    fn payload(&self) -> impl Iterator<Item = Port> {
        [Some(self.data), self.keep, self.last, self.user].into_iter().flatten()
    }
}
