//! The transport, one mechanism a file.

/// 256-bit maps.
pub mod bitmap;

/// Send window of one path, and the loss rule.
pub mod window;

/// Tolerance of reordering.
pub mod reorder;

/// Round-trip estimate.
pub mod rtt;

/// Congestion control.
pub mod cc;

/// What a card loses.
pub mod loss_meter;

/// One path, sender side.
pub mod path;

/// The paths of a connection, and the choice among them.
pub mod path_set;

/// Marks along a path's route.
pub mod route_marks;

/// One path, receiver side.
pub mod rx_path;

/// The receiver's share-out.
pub mod rate_hint;

/// The sender's pacing.
pub mod pacer;
