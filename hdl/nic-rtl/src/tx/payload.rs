//! Payload of packets out of host memory: a packet leaves when its payload is there, whole and good.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `packet` | [`TxPacket`] | valid/ready | packets in the order in which they are to be sent |
//! | `read` | [`DmaRead`] | valid/ready | one read for each packet with payload |
//! | `data` | [`ReadBeat`] | valid/ready | the answers, in order; `ready` is always 1, room was reserved |
//! | `next` | [`TxPacket`] | valid/ready | packets whose payload is there |
//! | `payload` | [`PayloadBeat`] | valid/ready | their payload in the same order, bytes beyond the end zero |
//! | `error` | [`ConnError`] | valid/ready | a packet was dropped because memory answered with an error: `LOC_DMA` |
//!
//! Latency: 2 cycles to `read`; 3 cycles from the last beat of data to `next`; 4 without payload. 1 packet in 2 cycles, 1
//! beat per cycle. Reset forgets everything; reads under way must have been answered before.
//!
//! State: the buffer, [`BUFFER_BEATS`] beats of block RAM, and [`PENDING`] packets of LUT RAM. A read is issued when the
//! buffer has room for all of it beside what is under way. 512 beats are four packets of the largest PMTU, or eight of
//! the default one: at one beat a cycle they cover 512 cycles of memory latency (2 µs at 250 MHz). Sixteen packets keep
//! that many short reads under way.
//!
//! Drops: a packet with a bad read, told by `error`; the memory side counts `dma_read_error_count`.

use crate::{
    prim::{fifo, lanes::mask_bytes, PacketFifo},
    stream::{ConnError, DmaRead, PacketDesc, ReadBeat, TxPacket, BEAT_BYTES},
};
use nic_spec::desc::Status;
use rtl_graph::*;

/// Beats of payload that are read ahead.
pub const BUFFER_BEATS: u32 = 512;
/// Packets whose payload is under way or waits.
pub const PENDING: u32 = 16;

/// Bits of a number of beats of one packet: 0..=128.
const BEATS_BITS: u32 = 8;
/// Bits of a number of beats of the buffer.
const ROOM_BITS: u32 = 10;

record! {
    /// A beat of a packet's payload, bytes beyond its end zero.
    pub struct PayloadBeat {
        data: 8 * BEAT_BYTES,
        last: 1,
    }
}

record! {
    /// A packet with the number of beats of its payload.
    struct Pending {
        packet: TxPacket::width(),
        beats: BEATS_BITS,
    }
}

record! {
    /// How a read ended.
    struct Outcome { error: 1 }
}

module! {
    /// Fetches payload.
    pub struct Payload = "nic_tx_payload" () {
        packet: in Stream<TxPacket>,
        read: out Stream<DmaRead>,
        data: in Stream<ReadBeat>,
        next: out Stream<TxPacket>,
        payload: out Stream<PayloadBeat>,
        error: out Stream<ConnError>,
    } |b| {
        let desc = PacketDesc::unpack(packet.data.desc);

        // p1: the packet and its beats.
        let p1_valid = b.reg_reset("p1_valid", 1, 0);
        let issue = b.wire("issue", 1);
        let p1_free = (!p1_valid | issue).named("p1_free");
        packet.ready.set(p1_free);
        p1_valid.set_en(p1_free, packet.valid);
        let beats = (desc.payload_len + (BEAT_BYTES - 1)).bits(BEAT_BYTES.ilog2(), BEATS_BITS);
        let p1_packet = packet.data.reg_en("p1", p1_free);
        let p1_beats = b.reg("p1_beats", BEATS_BITS);
        p1_beats.set_en(p1_free, beats);
        let p1_desc = PacketDesc::unpack(p1_packet.desc);
        let reads = p1_beats.any();

        // A read goes out when its answer has a place and the packet too.
        let room = b.reg_reset("room", ROOM_BITS, BUFFER_BEATS.into());
        // Room shrinks by an issue alone, so the comparison stays true until then.
        let fits = b.reg_reset("fits", 1, 0);
        fits.set(p1_valid & !issue & p1_beats.zext(ROOM_BITS).le(room));
        let has_place = b.wire("has_place", 1);
        let may = (fits & has_place).named("may");
        read.put(may & reads, &DmaRead { addr: p1_desc.iova, len: p1_desc.payload_len });
        issue.set(may & (!reads | read.ready));
        let data_of = Pending { packet: p1_packet.pack(), beats: p1_beats };
        let waiting = Stream { data: data_of, valid: issue, ready: has_place };
        let pending = fifo(b, "pending", &waiting, PENDING);

        // d1: a beat of data, its tail zeroed.
        data.ready.set(1);
        let d1_valid = data.valid.delay_reset("d1_valid", 1);
        let d1_data = mask_bytes(data.data.data, data.data.keep).delay("d1_data", 1);
        let d1_last = data.data.last.delay("d1_last", 1);
        let d1_error = data.data.error.delay("d1_error", 1);
        let ends = (d1_valid & d1_last).named("d1_ends");
        let word = PayloadBeat { data: d1_data, last: d1_last };
        let buffer = PacketFifo::at(b, "buffer", PayloadBeat::width(), BUFFER_BEATS);
        buffer.push.set(d1_valid);
        buffer.data.set(word.pack());
        buffer.commit.set(ends & !d1_error);
        buffer.rollback.set(ends & d1_error);
        payload.put(buffer.tx.valid, &PayloadBeat::unpack(buffer.tx.data.data));
        buffer.tx.ready.set(payload.ready);
        let outcome = fifo::pushed(b, "outcome", ends, &Outcome { error: d1_error }, PENDING);

        // Beats that came for the packet under way, to give their room back together.
        let came = b.reg_reset("came", BEATS_BITS, 0);
        came.set_en(d1_valid, d1_last.mux(0, came.inc()));
        let given_back = (ends & d1_error).mux(came.inc(), 0).zext(ROOM_BITS).delay_reset("given_back", 1);
        let popped = (buffer.tx.valid & payload.ready).delay_reset("popped", 1);
        let taken = issue.mux(p1_beats, 0).zext(ROOM_BITS).named("taken");
        room.set((room - taken) + (given_back + popped.zext(ROOM_BITS)));

        // The oldest packet goes when the outcome of its read is known.
        let oldest = Pending::unpack(pending.data.pack());
        let has_read = oldest.beats.any();
        let outcome_good = (outcome.tx.valid & !outcome.tx.data.error).named("outcome_good");
        let outcome_bad = (outcome.tx.valid & outcome.tx.data.error).named("outcome_bad");
        let oldest_packet = TxPacket::unpack(oldest.packet);
        next.put(pending.valid & (!has_read | outcome_good), &oldest_packet);
        let status = b.lit(Status::LocDma.code().into(), 8);
        error.put(pending.valid & has_read & outcome_bad, &ConnError { conn: oldest_packet.conn, status });
        let leaves = (next.fire() | error.fire()).named("leaves");
        pending.ready.set(leaves);
        outcome.tx.ready.set(leaves & has_read);

        b.assert("room_is_within_the_buffer", room.le(BUFFER_BEATS));
        b.cover("dropped", error.fire());
        b.cover("waits_for_room", p1_valid & !fits);
    }
}
