//! The transmit side of the wire: packets and acknowledgements in, frames out.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ack` | [`AckPacket`] | valid/ready | acknowledgements; each goes before any packet that has not begun |
//! | `packet` | [`TxPacket`] | valid/ready | packets in the order in which they are to be sent |
//! | `read`, `data` | [`DmaRead`], [`ReadBeat`] | valid/ready | host memory, see [`payload`](super::payload) |
//! | `error` | [`ConnError`] | valid/ready | a packet was dropped for its payload |
//! | `conn`, `ah` | [`ConnRead`], [`AhRead`] | | rows of the connection |
//! | `dport` | 16 | | UDP destination port |
//! | `m_axis` | 512-bit AXI-Stream | valid/ready | frames without FCS and without gaps; `tuser` is 0 |
//! | `count_frames`, `count_bytes` | [`Count`] | valid only | `tx_frames_count`, `tx_bytes` |
//!
//! Latency 24 cycles from an acknowledgement to its first beat; of a packet that after the last beat of its payload,
//! plus 3. 1 beat per cycle. Reset drops what is under way. Drops: see [`payload`](super::payload).

use super::{header_build::HeaderBuild, icrc::Icrc, payload::Payload};
use crate::{
    prim::Axis,
    rx::chain::BEAT_BYTES,
    stream::{AckPacket, AhRead, ConnError, ConnRead, Count, DmaRead, ReadBeat, TxPacket},
};
use rtl_graph::*;

module! {
    /// Transmit side of the wire.
    pub struct Transmitter = "nic_tx" () {
        ack: in Stream<AckPacket>,
        packet: in Stream<TxPacket>,
        read: out Stream<DmaRead>,
        data: in Stream<ReadBeat>,
        error: out Stream<ConnError>,
        conn: out ConnRead,
        ah: out AhRead,
        dport: in Uint(16),
        m_axis: out Axis(BEAT_BYTES as u32),
        count_frames: out Count,
        count_bytes: out Count,
    } |b| {
        let payload = Payload::at(b, "payload");
        b.connect(&packet, &payload.packet);
        b.connect(&payload.read, &read);
        b.connect(&data, &payload.data);
        b.connect(&payload.error, &error);

        let build = HeaderBuild::at(b, "header_build");
        b.connect(&ack, &build.ack);
        b.connect(&payload.next, &build.packet);
        b.connect(&payload.payload, &build.payload);
        b.connect(&build.conn, &conn);
        b.connect(&build.ah, &ah);
        build.dport.set(dport);
        b.connect(&build.count_frames, &count_frames);
        b.connect(&build.count_bytes, &count_bytes);

        let icrc = Icrc::at(b, "icrc");
        b.connect(&build.frame, &icrc.frame);
        build.room.set(icrc.room);
        b.connect(&icrc.m_axis, &m_axis);
    }
}
