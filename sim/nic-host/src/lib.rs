//! Host side in memory: address space, IOMMU with faults, interrupt sink.
//!
//! ```text
//!   driver thread(s)                                    world thread
//!   nic-driver ── PciDevice ── SimPciDevice ──requests──► WorldLink ── World ── cards
//!        │ dma_map, set_irqs      │  │         ◄─replies──                       │
//!        │                        │  └────► MsixSink ◄────────── raise ──────────┤
//!        └── DmaMem ◄─── HostMemory (IOMMU) ◄───────────── read, write ──────────┘
//! ```
//!
//! Memory and interrupts are shared objects: the cards touch them whenever they like, as over PCIe. Register accesses,
//! idling and reset take simulated time and are therefore messages to the one thread that owns that time.
#![forbid(unsafe_code)]

// What the cards see of the host.
pub mod iommu;
pub mod msix;

// What the driver sees of the cards.
pub mod link;
pub mod sim_device;

pub use iommu::{DeviceMemory, HostMemory, IommuFault};
pub use link::{host_link, CardId, HostLink, Job, Request, World, WorldError, WorldLink};
pub use msix::MsixSink;
pub use sim_device::{SimOptions, SimPciDevice};
