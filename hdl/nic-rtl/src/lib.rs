//! The MetaRoCE card's RTL.

// What flows between the blocks.
pub mod stream;

// Sizes of one build, checked at elaboration.
pub mod params;

// Building blocks that know nothing of NICs.
pub mod prim;

// Host memory over AXI4.
pub mod dma;
