//! Golden model of the MetaRoCE transport: bit-exact, integer-only, sans-IO.
//!
//! Events and the time go in, actions come out; nothing here reads a clock, draws a random number or touches a socket.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

/// Time.
pub mod time;

/// Tunables.
pub mod config;

/// Paths, windows, recovery, congestion control.
pub mod transport;
