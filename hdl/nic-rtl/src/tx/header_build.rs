//! From packets and acknowledgements to frames without their ICRC: [`HeaderBytes`] beside [`Merge`].
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ack` | [`AckPacket`] | valid/ready | acknowledgements; they go first |
//! | `packet` | [`TxPacket`] | valid/ready | packets whose payload is there |
//! | `payload` | [`PayloadBeat`] | valid/ready | the payload of these packets, in order |
//! | `conn`, `ah` | [`ConnRead`], [`AhRead`] | | rows of the connection |
//! | `dport` | 16 | | UDP destination port |
//! | `room` | 1 | | a beat may be sent, with all that is under way |
//! | `frame` | [`FrameBeats`] | valid only | frames, pad and ICRC zero |
//! | `count_frames`, `count_bytes` | [`Count`] | valid only | `tx_frames_count`, `tx_bytes` |
//!
//! Latency 14 cycles from `packet` to the frame's first beat; 1 beat per cycle, without a gap within a frame. Reset
//! drops what is under way. Drops: none.

use super::{
    header::HeaderBytes,
    merge::{FrameBeats, Merge},
    payload::PayloadBeat,
};
use crate::stream::{AckPacket, AhRead, ConnRead, Count, TxPacket};
use rtl_graph::*;

module! {
    /// Builds frames.
    pub struct HeaderBuild = "nic_tx_header_build" () {
        ack: in Stream<AckPacket>,
        packet: in Stream<TxPacket>,
        payload: in Stream<PayloadBeat>,
        conn: out ConnRead,
        ah: out AhRead,
        dport: in Uint(16),
        room: in Uint(1),
        frame: out FrameBeats,
        count_frames: out Count,
        count_bytes: out Count,
    } |b| {
        let header = HeaderBytes::at(b, "header");
        b.connect(&ack, &header.ack);
        b.connect(&packet, &header.packet);
        b.connect(&header.conn, &conn);
        b.connect(&header.ah, &ah);
        header.dport.set(dport);

        let merge = Merge::at(b, "merge");
        b.connect(&header.header, &merge.header);
        b.connect(&payload, &merge.payload);
        header.sent.set(merge.sent);
        merge.room.set(room);
        b.connect(&merge.frame, &frame);
        b.connect(&merge.count_frames, &count_frames);
        b.connect(&merge.count_bytes, &count_bytes);
    }
}
