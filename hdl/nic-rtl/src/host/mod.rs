//! Host side of the card: registers, doorbells, context rows, work queues, completion queues, interrupts.

// Registers.
pub mod bus;
pub mod csr_decode;
pub mod regs;

pub mod settings;
pub mod stats;

// Commands of software.
pub mod ctx;
pub mod doorbell;

// All registers behind one AXI4-Lite port.
pub mod registers;

// Queues in host memory.
pub mod send_queue;
pub mod wqe_check;
pub mod wqe_fetch;

pub mod cqe_write;
pub mod msix;

pub use bus::{AxiLite, CsrBus};
pub use cqe_write::CqeWriter;
pub use csr_decode::CsrDecode;
pub use ctx::CtxWindow;
pub use doorbell::DoorbellPages;
pub use msix::{IrqRequest, MsixQueue};
pub use registers::Registers;
pub use settings::Settings;
pub use stats::{CountLists, Stats};
pub use wqe_fetch::WqeFetch;
