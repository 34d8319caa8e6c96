//! Invariant CRC of frames to be sent: computed over the beats as they pass and put into their last four bytes.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `room` | 1 | | a beat may be sent towards `frame`, to come [`MERGE_LATENCY`] cycles later; a register |
//! | `frame` | [`FrameBeats`] | valid only | frames with room for the ICRC, zero |
//! | `m_axis` | 512-bit AXI-Stream | valid/ready | the frames; `tuser` is 0 |
//!
//! Latency 10 cycles; 1 beat per cycle. Once a frame has begun on `m_axis` its beats follow without a gap, if they came
//! so. Reset empties the queue.
//!
//! As in the check, the CRC begins at the IP header from a zero register, and bytes before it count as zero. The zeros
//! behind the message, the ICRC's room and the unused end of the beat, are taken back afterwards: a constant part of
//! them for nothing within the beat's own matrix, the rest in steps of four bytes. A frame's length is 14 plus a
//! multiple of four, so the ICRC stands at 16 places of a beat, and at one of them half in the beat before: therefore a
//! beat waits for the one behind it.
//!
//! State: a queue of [`QUEUE`] beats of LUT RAM, twice the pipeline before it, so that it never runs dry within a frame
//! after `m_axis` stood still. Drops: none.

use super::merge::{FrameBeats, FILL_BITS, MERGE_LATENCY};
use crate::{
    prim::{
        crc32::{self, BLOCK_LATENCY},
        fifo,
        lanes::len_keep,
        ready_while_room, Axis,
    },
    rx::{
        chain::{links, BEAT_BYTES},
        icrc::{masked, running},
    },
};
use nic_spec::{consts::ICRC_BYTES, wire::Eth};
use rtl_graph::*;

/// Beats that wait for the MAC.
pub const QUEUE: u32 = 32;

/// Bits of a beat.
const BITS: u32 = 8 * BEAT_BYTES as u32;
/// Every header and the padded payload are a multiple of this; so is the ICRC.
const UNIT: u32 = 4;
/// What the length of a frame is beyond a multiple of [`UNIT`].
const ODD: u32 = Eth::LEN as u32 % UNIT;
/// Zero bytes behind the message in a last beat that is as full as can be.
const BACK: u32 = ICRC_BYTES as u32 + BEAT_BYTES as u32 - (BEAT_BYTES as u32 - UNIT + ODD);
/// Cycles of taking back what depends on the last beat: 0..=15 units.
const RETREAT: u32 = 2;
/// Cycles from a beat to its meeting with the CRC: mask, contribution, register, what depends on the length.
const MEET: u32 = 1 + BLOCK_LATENCY + 1 + RETREAT;

record! {
    /// A beat of a finished frame.
    struct Sent {
        data: BITS,
        fill: FILL_BITS,
        last: 1,
    }
}

module! {
    /// Computes and inserts the ICRC.
    pub struct Icrc = "nic_tx_icrc" () {
        room: out Uint(1),
        frame: in FrameBeats,
        m_axis: out Axis(BEAT_BYTES as u32),
    } |b| {
        let links = links(0);
        let is_second = b.reg_reset("is_second", 1, 0);
        is_second.set_en(frame.valid, frame.first & !frame.last);

        // c1: the beat as the CRC sees it. c2, c3: its contribution.
        let shape: Vec<S> =
            links.iter().rev().map(|l| if l.is_ipv6 { frame.is_ipv6 } else { !frame.is_ipv6 }).collect();
        let seen = masked(b, &links, b.cat(&shape), frame.data, frame.first, is_second & !frame.first);
        let crc = crc32::block(b, "c", seen.delay("c1_data", 1), BACK);
        let wait = 1 + BLOCK_LATENCY;
        let valid = frame.valid.delay_reset("valid", wait);
        let first = frame.first.delay("first", wait);

        // c4: the register, BACK zero bytes taken back. c5, c6: the rest of them.
        let c4_state = running(b, "c4_state", valid, first, crc);
        let units = UNIT.ilog2();
        let unused = !frame.fill.trunc(FILL_BITS - 1).bits(units, FILL_BITS - 1 - units);
        let c4_unused = unused.delay("unused", wait + 1);
        let c6_crc = !crc32::retreat("c_retreat", c4_state, c4_unused, UNIT);
        assert_eq!(crc32::retreat_latency(unused.width()), RETREAT, "the pipeline and its constant disagree");

        // c6: beat and CRC meet. Place k of the beat takes the CRC when the frame ends behind it.
        let c6_valid = frame.valid.delay_reset("met", MEET);
        let c6 = Sent {
            data: frame.data.delay("data", MEET),
            fill: frame.fill.delay("fill", MEET),
            last: frame.last.delay("last", MEET),
        };
        let c6_unused = c4_unused.delay("late_unused", RETREAT);
        let places = BEAT_BYTES as u32 / UNIT;
        // End of the frame at byte UNIT * k + ODD, for k = 0 …: the CRC begins UNIT before it.
        let ends: Vec<S> = (0..places).map(|k| c6.last & c6_unused.eq(places - 1 - k)).collect();
        let head = (BITS - 8 * (UNIT - ODD), 8 * (UNIT - ODD));
        let (low, high) = (c6_crc.trunc(head.1), c6_crc.bits(head.1, 8 * ODD));
        let mut inserted = vec![ends[0].rep(8 * ODD) & high];
        inserted.extend(ends[1..].iter().map(|end| end.rep(8 * UNIT) & c6_crc));
        inserted.push(b.zero(head.1));
        inserted.reverse();
        let whole = Sent { data: c6.data | b.cat(&inserted), ..c6 };

        // c7: a beat waits for the one behind it, which may put half of the CRC at its end.
        let c7_valid = b.reg_reset("c7_valid", 1, 0);
        let c7 = whole.reg_en("c7", c6_valid);
        let leaves = (c7_valid & (c7.last | c6_valid)).named("c7_leaves");
        c7_valid.set(c6_valid | (c7_valid & !leaves));
        let borrowed = (c6_valid & ends[0] & !c7.last).rep(head.1) & low;
        let c7_data = c7.data | borrowed.cat(b.zero(head.0));

        // c8: into the queue.
        let c8_valid = leaves.delay_reset("c8_valid", 1);
        let c8 = Sent { data: c7_data, ..c7 }.delayed("c8");
        let queue = fifo::pushed(b, "queue", c8_valid, &c8, QUEUE);
        let out = queue.tx.data;
        m_axis.tvalid.set(queue.tx.valid);
        m_axis.tdata.set(out.data);
        m_axis.tkeep.set(len_keep(out.fill, BEAT_BYTES as u32));
        m_axis.tlast.set(out.last);
        m_axis.tuser.set(0);
        queue.tx.ready.set(m_axis.tready);

        // Registers from the decision to the queue, its push, and the beat that may wait in c7.
        let under_way = MERGE_LATENCY + MEET + 3 + 1;
        room.set(ready_while_room(b, "has_room", queue.level, QUEUE, under_way));
        let is_odd = frame.fill.trunc(units).eq(ODD);
        b.assert("length_is_a_multiple_beyond_ethernet", !(frame.valid & frame.last) | is_odd);
    }
}
