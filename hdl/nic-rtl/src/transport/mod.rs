//! Reliable transport: connections, paths with their sequences, acknowledgement and recovery, messages.
//!
//! TX: requester → path_tx → (wire); RX: (wire) → responder → path_rx → (wire). The order below is that of a packet's
//! life. Every table has one owner; who needs a change sends an event.

// Helpers of all blocks.

/// One bit a connection or row: how vectors of flops are read, written and searched.
mod vector;

/// Deadlines of all rows of a table, and the search for one that has passed.
mod timer;

// Connections.

/// Connection and address tables, and which connections have failed.
pub mod conn;

/// Receive credit of each connection.
pub mod credit;

// Sending side of paths.

/// Window of a path, and what an acknowledgement means to it.
mod window;

/// What is in flight.
mod inflight;

/// Which paths have packets to send again.
mod retransmit;

/// The engine of the sending side.
pub mod path_tx;

// Messages on their way out.

/// Cuts messages into packets, spreads them over paths.
pub mod requester;

/// Counts acknowledged packets of messages, completes these in order.
pub mod msg_tx;

// Receiving side of paths.

/// Acceptance of packets.
mod sack;

/// What an acknowledgement says.
mod ack_gen;

/// The engine of the receiving side.
pub mod path_rx;

// Messages on their way in.

/// Which message a packet belongs to, and whether it may be taken.
mod accept;

/// The payload's way to memory.
mod placement;

/// What becomes of each received packet.
pub mod responder;

/// Completes received messages in order.
pub mod msg_rx;

/// Keeps a region's row back until the writes that it let through are done.
pub mod fence;

// Test bench.
#[cfg(test)]
mod bench;
#[cfg(test)]
mod replay;
