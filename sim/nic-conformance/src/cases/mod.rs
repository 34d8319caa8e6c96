//! The cases, one file a section of the text.

use crate::case::Case;

// Frames.
mod wire;

mod drop;

// The receiver of packets.
mod accept;

mod ack;

mod nak;

mod hint;

// The sender of packets.
mod path;

mod congestion;

mod recovery;

mod probe;

mod waiting;

mod plane;

mod retire;

mod loss;

// Messages.
mod message;

mod request;

mod send;

mod read;

mod atomic;

mod region;

// Connections.
mod establish;

/// All sections in the order of the text.
pub const SECTIONS: &[&[Case]] = &[
    wire::CASES,
    drop::CASES,
    path::CASES,
    plane::CASES,
    retire::CASES,
    congestion::CASES,
    hint::CASES,
    accept::CASES,
    ack::CASES,
    nak::CASES,
    recovery::CASES,
    probe::CASES,
    waiting::CASES,
    loss::CASES,
    message::CASES,
    request::CASES,
    send::CASES,
    read::CASES,
    atomic::CASES,
    region::CASES,
    establish::CASES,
];
