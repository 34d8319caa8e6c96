//! AXI4: a memory that answers the design's manager, a manager for designs that are subordinates, and AXI4-Lite.

mod burst;
mod config;
mod lite;
mod manager;
mod memory;
mod ports;
mod read;
mod storage;
mod write;

pub use config::{Axi4MemoryConfig, Fault};
pub use lite::{AxiLiteError, AxiLiteManager, AxiLitePorts};
pub use manager::{Axi4Manager, ReadResult};
pub use memory::{Axi4Memory, Axi4Stats};
pub use ports::{AddressPorts, Axi4Ports, ReadDataPorts, ResponsePorts, WriteDataPorts};
pub use storage::{Memory, SparseMemory};

/// Widest data bus, in bytes.
pub const AXI_BYTES_MAX: usize = 128;

/// The response of a transaction or beat, in the order of its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Response {
    /// Done.
    #[default]
    Okay,
    /// Exclusive access done.
    ExclusiveOkay,
    /// The subordinate refused.
    SubordinateError,
    /// Nothing is at that address.
    DecodeError,
}

impl Response {
    /// The two bits on the bus.
    pub fn code(self) -> u64 {
        match self {
            Response::Okay => 0,
            Response::ExclusiveOkay => 1,
            Response::SubordinateError => 2,
            Response::DecodeError => 3,
        }
    }

    /// The response of these two bits; higher bits are ignored.
    pub fn of_code(code: u64) -> Self {
        match code & 3 {
            0 => Response::Okay,
            1 => Response::ExclusiveOkay,
            2 => Response::SubordinateError,
            _ => Response::DecodeError,
        }
    }

    /// Whether it is an error.
    pub fn is_error(self) -> bool {
        self >= Response::SubordinateError
    }
}
