//! Host driver of the MetaRoCE card.
//!
//! ```text
//!   Device ── Pd ── Mr            what an application holds
//!      │       └─── Qp ── Cq
//!      ├── bar, ctx, doorbell     registers
//!      ├── dma, iova, mem         memory that the card sees
//!      └── irq                    interrupts
//!   PciDevice                     how the card is reached: a simulation, later the kernel
//! ```
//!
//! The driver talks to the card through [`pci::PciDevice`] and host memory only. Every number it puts into a register or
//! a descriptor comes from `nic-spec`. What it reads from the card or from a peer is data: it gives errors, not panics.
//!
//! Objects are cheap handles or own their resource; whoever is needed by another object stays alive until that one is
//! gone (a [`Qp`] keeps its [`Cq`]s and its [`Pd`]). All of them may be used from several threads.
#![forbid(unsafe_code)]

// How the card is reached.
pub mod pci;

pub mod mem;

pub mod iova;

pub mod dma;

pub mod irq;

// Registers.
pub mod bar;

pub mod ctx;

pub mod doorbell;

pub mod stats;

// The card and what is created on it.
pub mod device;

mod pool;

pub mod pd;

pub mod mr;

// Queues.
pub mod ring;

pub mod cq;

pub mod qp;

mod queue;

// Agreement with the peer.
pub mod address;

pub mod conn_info;

pub mod error;

#[cfg(test)]
mod random;

pub use address::MacAddr;
pub use conn_info::{ConnInfo, PathInfo};
pub use cq::{Completion, Cq, CqConfig};
pub use device::{Device, DeviceInfo, PortConfig, TransportConfig};
pub use error::{Error, Result};
pub use irq::IrqEvent;
pub use mem::DmaMem;
pub use mr::{Mr, MrAccess, RemoteBuffer};
pub use pci::{PciDevice, PciError};
pub use pd::Pd;
pub use qp::{PathConfig, Qp, QpConfig, QpState, SendOp, SendWr, Sge};
pub use stats::Stats;
