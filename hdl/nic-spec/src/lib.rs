//! Single source of truth of the MetaRoCE card: headers, registers, descriptors, constants.
//!
//! Every format is one table. The table gives typed accessors to Rust ([`wire`], [`desc`]), reflection to the RTL
//! elaboration, and through `nic-gen` the Markdown, C, JSON and Lua that the outside world reads. Nothing here
//! allocates, and nothing panics on values read from a wire or a device.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

// How a table is written down.
pub mod codes;
pub mod layout;
pub mod register;

// Identifiers and sequence numbers.
pub mod num;

// Numbers every block agrees on.
pub mod consts;

// What travels: headers, opcodes, the invariant CRC.
pub mod wire;

// What the host sees: registers and memory formats.
pub mod csr;
pub mod desc;
