//! Bytes still to come of each message at the receiver, counted as packets are accepted.
//!
//! One row a message slot, MSEQ mod msgs: the message's upper MSEQ bits and the bytes missing. A row of another message is
//! a free row: the slots follow one another in MSEQ, and a message has at least one packet. Payload is written in the
//! order of acceptance, so the packet with which nothing is missing tells msg_rx when the message is placed (M-014, M-016).
//!
//! Reset clears all rows, a write to a connection's context those of the connection: one row a cycle.

use crate::{
    params::NicParams,
    stream::{LEN_BITS, PSN_BITS},
};
use rtl_graph::*;

/// Bits of a message's length.
const MSG_BITS: u32 = 32;

record! {
    struct MessageRow(p: &NicParams) {
        is_used: 1,
        /// Upper bits of MSEQ.
        upper: PSN_BITS - p.slot_bits(),
        /// Bytes missing.
        left: MSG_BITS,
    }
}

/// A packet's place in its message.
#[derive(Clone, Copy)]
pub(super) struct PacketOfMessage<'a> {
    pub conn: S<'a>,
    pub mseq: S<'a>,
    pub dma_len: S<'a>,
    pub payload_len: S<'a>,
}

/// What the packet is to its message, one cycle after it was named.
#[derive(Clone, Copy)]
pub(super) struct Accounted<'a> {
    /// Nothing is missing any more.
    pub is_done: S<'a>,
    /// More than is missing.
    pub is_too_long: S<'a>,
    /// Nothing is missing after it.
    pub completes: S<'a>,
    /// The rows are being cleared: no packet may be named.
    pub busy: S<'a>,
}

/// The table. `accept` takes the packet named in the cycle before into account; `clear` begins to forget a connection.
pub(super) fn messages<'a>(
    b: &'a B,
    p: &NicParams,
    packet: PacketOfMessage<'a>,
    accept: S<'a>,
    clear: S<'a>,
    clear_conn: S<'a>,
) -> Accounted<'a> {
    let (bits, rows) = (p.conn_bits() + p.slot_bits(), p.conns * p.msgs);
    let busy = b.reg_reset("messages_busy", 1, 1);
    let at = b.reg_reset("messages_at", bits, 0);
    let last = b.reg_reset("messages_last", bits, u64::from(rows) - 1);
    busy.set(clear | busy & at.ne(last));
    at.set(clear.mux(clear_conn.cat(b.zero(p.slot_bits())), busy.mux(at.inc(), at)));
    last.set_en(clear, clear_conn.cat(b.ones(p.slot_bits())));

    let slot = packet.conn.trunc(p.conn_bits()).cat(packet.mseq.trunc(p.slot_bits()));
    let mem = b.mem("messages", rows.into(), MessageRow::width(p)).style(RamStyle::Block).zeroed();
    let row = MessageRow::unpack(mem.read(slot), p);
    let upper = packet.mseq.high_bits(PSN_BITS - p.slot_bits());
    let is_known = row.is_used & row.upper.eq(upper);
    let left = is_known.mux(row.left, packet.dma_len);
    let rest = left.sub_borrow(packet.payload_len.zext(MSG_BITS)).named("message_rest");
    let after = MessageRow { is_used: b.high(), upper, left: rest.trunc(MSG_BITS) };
    let data = (!busy).rep(MessageRow::width(p)) & after.pack();
    mem.write(busy | accept, busy.mux(at, slot), data);
    Accounted { is_done: is_known & row.left.is_zero(), is_too_long: rest.msb(), completes: rest.is_zero(), busy }
}

/// Width of a packet's length as it is named here.
const _: () = assert!(LEN_BITS < MSG_BITS);
