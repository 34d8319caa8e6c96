//! Placement: hands a judged packet's payload to memory or swallows it, then reports the packet to path_rx and msg_rx.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `command` | [`Command`] | valid/ready | what to do with the next packet of `payload` |
//! | `payload` | [`Beat`] | valid/ready | payload of all packets in order |
//! | `place`, `place_data` | [`PlaceRequest`], [`Beat`] | valid/ready | a write and its beats, passed through without a register |
//! | `event` | [`PathRxEvent`] | valid/ready | commit or refusal, after the last beat (S-005) |
//! | `info` | [`PlaceInfo`] | valid/ready | the packet for msg_rx, with the commit |
//! | `pending` × 2 | [`PendingPlace`] | | packets being placed: their commit has not been taken yet |
//! | `placed` | 1 | | a placed packet's commit was taken; `placed_len` its bytes |
//! | `idle` | 1 | | no packet is in it |
//!
//! Two steps, a packet each: the transfer, and the report; so the report of a packet hides behind the transfer of the
//! next. Latency of a beat 0; throughput one beat a cycle across packets. Reset forgets the packets. Drops: none.

use crate::stream::{Beat, PathRxEvent, PlaceInfo, PlaceRequest, ADDR_BITS, CONN_BITS, LEN_BITS, PATH_BITS, PSN_BITS};
use rtl_graph::*;

record! {
    /// What to do with a packet.
    pub struct Command {
        /// Beats of the packet in the payload stream.
        beats: 8,
        /// They go to memory at `iova`; otherwise they are swallowed.
        place: 1,
        iova: ADDR_BITS,
        /// path_rx is told.
        tell: 1,
        /// A [`PathRxEvent`].
        event: PathRxEvent::width(),
        /// With `place`: a [`PlaceInfo`].
        info: PlaceInfo::width(),
    }
}

bundle! {
    /// A packet being placed.
    pub struct PendingPlace { fwd valid: 1, conn: CONN_BITS, path: PATH_BITS, pseq: PSN_BITS }
}

module! {
    /// The two steps.
    pub struct Placement = "nic_transport_placement" () {
        command: in Stream<Command>,
        payload: in Stream<Beat>,
        place: out Stream<PlaceRequest>,
        place_data: out Stream<Beat>,
        event: out Stream<PathRxEvent>,
        info: out Stream<PlaceInfo>,
        pending: out PendingPlace [2],
        placed: out Uint(1),
        placed_len: out Uint(LEN_BITS),
        idle: out Uint(1),
    } |b| {
        // s1: the transfer.
        let s1_valid = b.reg_reset("s1_valid", 1, 0);
        let s1_asked = b.reg("s1_asked", 1);
        let s1_left = b.reg("s1_left", 8);
        let s1_take = b.wire("s1_take", 1);
        let s1 = command.data.reg_en("s1", s1_take);
        let s1_info = PlaceInfo::unpack(s1.info);
        let has_beat = s1_valid & s1_left.any();
        place.valid.set(s1_valid & s1.place & !s1_asked);
        place.data.iova.set(s1.iova);
        place.data.len.set(s1_info.payload_len);
        place_data.valid.set(has_beat & s1.place & payload.valid);
        place_data.data.set(&payload.data);
        payload.ready.set(has_beat & (!s1.place | place_data.ready));
        let beat = payload.fire();
        let is_moved = s1_left.is_zero() | s1_left.eq(1) & beat;
        let is_asked = !s1.place | s1_asked | place.ready;

        // s2: the report.
        let s2_valid = b.reg_reset("s2_valid", 1, 0);
        let (s2_tell, s2_inform) = (b.reg("s2_tell", 1), b.reg("s2_inform", 1));
        let told = !s2_tell | event.ready;
        let informed = !s2_inform | info.ready;
        let s2_done = (s2_valid & told & informed).named("s2_done");
        let s1_done = (s1_valid & is_moved & is_asked & (!s2_valid | s2_done)).named("s1_done");
        let s2 = s1.reg_en("s2", s1_done);
        s2_valid.set(s1_done | s2_valid & !s2_done);
        s2_tell.set(s1_done.mux(s1.tell, s2_tell & !(s2_valid & event.ready)));
        s2_inform.set(s1_done.mux(s1.place, s2_inform & !(s2_valid & info.ready)));
        event.put(s2_valid & s2_tell, &PathRxEvent::unpack(s2.event));
        info.put(s2_valid & s2_inform, &PlaceInfo::unpack(s2.info));

        s1_take.set(command.valid & (!s1_valid | s1_done));
        command.ready.set(!s1_valid | s1_done);
        s1_valid.set(s1_take | s1_valid & !s1_done);
        // A packet without payload is placed without a request.
        s1_asked.set(s1_take.mux(command.data.beats.is_zero(), s1_asked | s1_valid & place.ready));
        s1_left.set(s1_take.mux(command.data.beats, s1_left - beat.zext(8)));

        let s1_event = PathRxEvent::unpack(s1.event);
        let s2_event = PathRxEvent::unpack(s2.event);
        let steps = [(s1_valid & s1.place, s1_event), (s2_valid & s2.place & s2_tell, s2_event)];
        for (port, (valid, of)) in pending.iter().zip(steps) {
            port.valid.set(valid);
            port.conn.set(of.conn);
            port.path.set(of.path);
            port.pseq.set(of.pseq);
        }
        placed.set(s2_valid & s2.place & s2_tell & event.ready);
        placed_len.set(PlaceInfo::unpack(s2.info).payload_len);
        idle.set(!s1_valid & !s2_valid);
        b.assert("a_placed_packet_is_told", !s1_valid | !s1.place | s1.tell);
    }
}
