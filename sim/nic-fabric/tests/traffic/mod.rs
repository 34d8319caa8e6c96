//! Frames and checks that several tests use.
#![allow(dead_code)]

use nic_fabric::{Fabric, Frame, NodeId, Port, Topology};

/// Port 0 of the first host.
pub const A: Port = Port { node: NodeId(0), index: 0 };
/// Port 0 of the second host.
pub const B: Port = Port { node: NodeId(1), index: 0 };

/// A UDP frame between two hosts in a plane, `tos` being DSCP and ECN, with a valid IPv4 checksum.
pub fn udp_in_plane(plane: u16, from: u32, to: u32, src_port: u16, tos: u8, payload_bytes: u32) -> Frame {
    let mut bytes = Vec::new();
    bytes.extend(Topology::mac_of(to, plane));
    bytes.extend(Topology::mac_of(from, plane));
    bytes.extend([0x08, 0x00, 0x45, tos]);
    bytes.extend((28 + payload_bytes as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(Topology::ipv4_of(from, plane).octets());
    bytes.extend(Topology::ipv4_of(to, plane).octets());
    let sum: u32 = bytes[14..34].chunks(2).map(|w| u16::from_be_bytes([w[0], w[1]]) as u32).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(src_port.to_be_bytes());
    bytes.extend(4791u16.to_be_bytes());
    bytes.extend((8 + payload_bytes as u16).to_be_bytes());
    bytes.extend([0, 0]);
    Frame::new(&bytes).with_virtual_payload(payload_bytes)
}

/// The same in plane 0.
pub fn udp(from: u32, to: u32, src_port: u16, tos: u8, payload_bytes: u32) -> Frame {
    udp_in_plane(0, from, to, src_port, tos, payload_bytes)
}

/// Asserts that no frame was lost without a cause or counted twice.
pub fn assert_conserved(fabric: &Fabric) {
    let stats = fabric.stats();
    assert_eq!(stats.sent + stats.duplicated, stats.delivered + stats.drops.total() + stats.in_flight, "{stats:?}");
}

/// Frames a link's queue accepted.
pub fn frames_on(fabric: &Fabric, link: &str) -> u64 {
    fabric.link_stats(fabric.link_named(link).unwrap()).frames
}
