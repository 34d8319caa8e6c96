//! The MetaRoCE card's RTL.

// What flows between the blocks.
pub mod stream;

// Sizes of one build, checked at elaboration.
pub mod params;

// Building blocks that know nothing of NICs.
pub mod prim;

// Frames in: parse, check, keep the payload until it is known to be good.
pub mod rx;

// Connections, paths, recovery, messages.
pub mod transport;

// Frames out: payload, headers, ICRC.
pub mod tx;

// Host memory over AXI4.
pub mod dma;

// Registers, doorbells, work and completion queues, interrupts.
pub mod host;

// The card: all blocks, wired.
pub mod top;
