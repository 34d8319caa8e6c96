//! The cases, one file a section of the text.

use crate::case::Case;

mod wire;

mod drop;

mod accept;

mod ack;

mod nak;

/// All sections in the order of the text.
pub const SECTIONS: &[&[Case]] = &[wire::CASES, drop::CASES, accept::CASES, ack::CASES, nak::CASES];
