//! Invariant CRC of frames to be sent: computed over the beats as they pass and put into their last four bytes.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `frame` | [`FrameBeat`] | valid/ready | frames with room for the ICRC, zero; `ready` is a register |
//! | `m_axis` | 512-bit AXI-Stream | valid/ready | the frames; `tuser` is 0 |
//!
//! Latency 11 cycles; 1 beat per cycle. Once a frame has begun on `m_axis` its beats follow without a gap, if they came
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

use super::merge::{FrameBeat, FILL_BITS};
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
/// Cycles from the first register to the beat that meets its CRC.
const MEET: u32 = 2 + BLOCK_LATENCY + RETREAT;

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
        frame: in Stream<FrameBeat>,
        m_axis: out Axis(BEAT_BYTES as u32),
    } |b| {
        let links = links(0);
        let f = frame.data;

        // c1: the beat.
        let c1_valid = frame.fire().delay_reset("c1_valid", 1);
        let c1 = f.delayed("c1");
        let is_second = b.reg_reset("c1_is_second", 1, 0);
        is_second.set_en(c1_valid, c1.first & !c1.last);

        // c2: as the CRC sees it. c3, c4: its contribution.
        let shape: Vec<S> = links.iter().rev().map(|l| if l.is_ipv6 { c1.is_ipv6 } else { !c1.is_ipv6 }).collect();
        let c2_data = masked(b, &links, b.cat(&shape), c1.data, c1.first, is_second & !c1.first).delay("c2_data", 1);
        let crc = crc32::block(b, "c", c2_data, BACK);
        let wait = 1 + BLOCK_LATENCY;
        let valid = c1_valid.delay_reset("valid", wait);
        let first = c1.first.delay("first", wait);

        // c5: the register, BACK zero bytes taken back. c6, c7: the rest of them.
        let c5_state = running(b, "c5_state", valid, first, crc);
        let units = UNIT.ilog2();
        let c1_unused = !c1.fill.trunc(FILL_BITS - 1).bits(units, FILL_BITS - 1 - units);
        let c5_unused = c1_unused.delay("unused", wait + 1);
        let c7_crc = !crc32::retreat("c_retreat", c5_state, c5_unused, UNIT);
        assert_eq!(crc32::retreat_latency(c1_unused.width()), RETREAT, "the pipeline and its constant disagree");

        // c7: beat and CRC meet. Place k of the beat takes the CRC when the frame ends behind it.
        let c7_valid = c1_valid.delay_reset("met", MEET);
        let c7 = Sent {
            data: c1.data.delay("data", MEET),
            fill: c1.fill.delay("fill", MEET),
            last: c1.last.delay("last", MEET),
        };
        let unused = c5_unused.delay("late_unused", RETREAT);
        let places = BEAT_BYTES as u32 / UNIT;
        // End of the frame at byte UNIT * k + ODD, for k = 0 …: the CRC begins UNIT before it.
        let ends: Vec<S> = (0..places).map(|k| c7.last & unused.eq(places - 1 - k)).collect();
        let head = (BITS - 8 * (UNIT - ODD), 8 * (UNIT - ODD));
        let (low, high) = (c7_crc.trunc(head.1), c7_crc.bits(head.1, 8 * ODD));
        let mut inserted = vec![ends[0].rep(8 * ODD) & high];
        inserted.extend(ends[1..].iter().map(|end| end.rep(8 * UNIT) & c7_crc));
        inserted.push(b.zero(head.1));
        inserted.reverse();
        let whole = Sent { data: c7.data | b.cat(&inserted), ..c7 };

        // c8: a beat waits for the one behind it, which may put half of the CRC at its end.
        let c8_valid = b.reg_reset("c8_valid", 1, 0);
        let c8 = whole.reg_en("c8", c7_valid);
        let leaves = (c8_valid & (c8.last | c7_valid)).named("c8_leaves");
        c8_valid.set(c7_valid | (c8_valid & !leaves));
        let borrowed = (c7_valid & ends[0] & !c8.last).rep(head.1) & low;
        let c8_data = c8.data | borrowed.cat(b.zero(head.0));

        // c9: into the queue.
        let c9_valid = leaves.delay_reset("c9_valid", 1);
        let c9 = Sent { data: c8_data, ..c8 }.delayed("c9");
        let queue = fifo::pushed(b, "queue", c9_valid, &c9, QUEUE);
        let out = queue.tx.data;
        m_axis.tvalid.set(queue.tx.valid);
        m_axis.tdata.set(out.data);
        m_axis.tkeep.set(len_keep(out.fill, BEAT_BYTES as u32));
        m_axis.tlast.set(out.last);
        m_axis.tuser.set(0);
        queue.tx.ready.set(m_axis.tready);

        // Registers on the way to the queue, and the beat that may wait in c8.
        frame.ready.set(ready_while_room(b, "room", queue.level, QUEUE, MEET + 3 + 1));
        b.assert("length_is_a_multiple_beyond_ethernet", !(c1_valid & c1.last) | c1.fill.trunc(units).eq(ODD));
    }
}
