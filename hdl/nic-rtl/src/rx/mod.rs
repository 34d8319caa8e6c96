//! From the wire to one record a frame: parse, check, realign, keep the payload until it is known to be good.
//!
//! ```text
//!          ┌► icrc ────────────────────────────────────────────┐
//! s_axis ► front ─┬► network ───────────────────────────────┐  │
//!                 └► strip to UDP ► transport ─┬─ facts ────┼──┼► verdict ► RxMeta queue ► meta
//!                                              └► strip to payload ───► packet buffer ───► payload
//! ```
//!
//! Nothing between `front` and the two queues can be stopped: `front` takes a beat only when both queues have room for
//! all that is under way. Each block answers a fixed number of cycles after the beat that it asks, so all that is known
//! of a frame meets at its last beat without a queue in between; [`timing`] has the numbers.

/// Cycles from a beat to each thing that is known by it.
pub mod timing;

/// Where headers stand, from the tables.
pub mod chain;

/// Takes beats from the MAC, tells the frame's shape and length.
pub mod front;

/// Ethernet and IP headers.
pub mod network;

/// Invariant CRC.
pub mod icrc;

/// UDP and what follows, up to the payload.
pub mod transport;

/// One reason to drop a frame, or none.
pub mod verdict;

/// All of it.
pub mod parser;

pub use parser::Parser;
