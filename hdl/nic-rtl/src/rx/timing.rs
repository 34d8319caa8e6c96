//! Cycles of the receive pipeline, counted from the cycle in which `front`'s first register holds a beat.
//!
//! A fact told by beat `k` of a frame is visible in a register at a fixed cycle after beat `k`. It is held until the
//! next frame's comes at the same distance, hence not before the cycle in which this frame's end is judged.

/// `front` gives the beat, with the frame's shape; on the last beat its length.
pub const FRONT: u32 = 2;
/// A beat that starts at UDP comes out of the strip, counted from the frame's last beat.
pub const FROM_UDP: u32 = FRONT + STRIP;
/// The strip's latency for the last beat of a frame.
pub const STRIP: u32 = 2;
/// `transport` hands beats on with the place of the payload.
pub const TRANSPORT: u32 = FROM_UDP + 1;
/// A beat that starts at the payload comes out of the strip.
pub const PAYLOAD: u32 = TRANSPORT + STRIP;
/// Conditions are compared.
pub const COMPARE: u32 = 9;
/// The frame is kept or dropped, and its record enters the queue.
pub const DECIDE: u32 = COMPARE + 2;

/// Cycles from `network`'s input to its facts.
pub const NETWORK_LATENCY: u32 = COMPARE - FRONT;
/// Cycles from a beat at `transport`'s input to the facts that it tells.
pub const TRANSPORT_FACTS_LATENCY: u32 = COMPARE - FROM_UDP;
/// Cycles from a beat at `transport`'s input to the header fields that it carries.
pub const TRANSPORT_HEADERS_LATENCY: u32 = DECIDE - FROM_UDP;
/// Cycles from the last beat at `icrc`'s input to its answer.
pub const ICRC_LATENCY: u32 = 5;
