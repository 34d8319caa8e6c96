//! The card's RTL under cocotb-rs: bring-up, host memory, wire.
