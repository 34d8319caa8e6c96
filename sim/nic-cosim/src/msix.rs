//! Interrupt requests of the card: always taken, handed to the host's sink.

use cocotb_rs::{Agent, Handle, Io, Port, SimError};
use nic_host::MsixSink;

/// The agent behind the vector request stream.
pub struct MsixPort {
    sink: MsixSink,
    valid: Port,
    ready: Port,
    vector: Port,
}

impl MsixPort {
    /// The ports named `{prefix}_valid`, `{prefix}_ready`, `{prefix}_vector`.
    ///
    /// # Errors
    /// A port is missing.
    pub fn find(handle: &Handle, prefix: &str, sink: MsixSink) -> Result<Self, SimError> {
        let port = |name: &str| handle.port(&format!("{prefix}_{name}"));
        Ok(Self { sink, valid: port("valid")?, ready: port("ready")?, vector: port("vector")? })
    }
}

impl Agent for MsixPort {
    fn on_edge(&mut self, io: &mut Io<'_>) {
        if !io.is_in_reset() && io.is_set(self.valid) && io.is_set(self.ready) {
            let vector = u32::try_from(io.get(self.vector)).unwrap_or(u32::MAX);
            if self.sink.raise(vector).is_err() {
                io.fail(format!(
                    "the card asked for interrupt vector {vector}; the host has {}",
                    self.sink.vector_count()
                ));
            }
        }
        io.set(self.ready, 1);
    }
}
