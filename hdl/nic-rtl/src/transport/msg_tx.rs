//! Messages on their way out: counts their packets as these are acknowledged, completes them in order.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready | a row of `conn` forgets the connection's messages; a row of `sq` names its completion queue |
//! | `open` | [`MsgOpen`] | valid/ready | a message before its first packet, in the order of MSEQ |
//! | `acked` | [`AckedPacket`] | valid/ready | one packet of a message, once |
//! | `completion` | [`Completion`] | valid/ready | signaled messages, and all that end badly |
//! | `error` | [`ConnError`] | valid/ready | a message with a bad status has become the oldest |
//! | `can_open` | 1 a connection | | a slot is free; exact two cycles after `open` took one |
//! | `conn_error` | 1 a connection | | what is not acknowledged of its messages is flushed |
//! | `status_read` | [`StatusRead`] | none | why a connection has failed |
//! | `count` | [`Count`] | valid | see [`COUNTS`] |
//!
//! A message that opens with a bad status waits for its turn like any other, then fails its connection. Of a failed
//! connection the oldest incomplete message gets the connection's status, unless that is its own doing, and all behind it
//! are flushed, acknowledged or not (H-025).
//!
//! One event in 2 cycles, a completion in 3. Priority: context write, acknowledgement, completion, opening. Reset: no messages, in
//! `conns` cycles during which nothing is taken. State: 89 bits a message, 60 a connection in RAM; 4 bits a connection in
//! flops. Drops: none.

use super::vector::{bit_at, bit_mask, next_after, written_bits};
use crate::{
    params::NicParams,
    prim::ram::sweep,
    stream::{
        field_of, AckedPacket, Completion, ConnError, Count, CtxWrite, MsgOpen, StatusRead, CONN_BITS, CQ_BITS,
        PSN_BITS,
    },
};
use nic_spec::{
    csr::stats::Counter,
    desc::{ConnRow, SqRow, Status, Table},
};
use rtl_graph::*;

/// What `count` names.
pub const COUNTS: &[Counter] = &[Counter::TxMessages, Counter::WqeFlushed];

record! {
    /// A message.
    struct Slot {
        /// Packets not acknowledged.
        left: 23,
        wqe_index: 16,
        opcode: 8,
        signaled: 1,
        len: 32,
        status: 8,
    }
}

record! {
    /// The messages of a connection: `head` is the oldest not completed, `tail` the next to open.
    struct Ring {
        head: PSN_BITS,
        tail: PSN_BITS,
    }
}

module! {
    /// The message window of the sending side.
    pub struct MsgTx = "nic_transport_msg_tx" (p: &NicParams) {
        ctx: in Stream<CtxWrite>,
        open: in Stream<MsgOpen>,
        acked: in Stream<AckedPacket>,
        completion: out Stream<Completion>,
        error: out Stream<ConnError>,
        can_open: out Uint(p.conns),
        conn_error: in Uint(p.conns),
        status_read: out StatusRead,
        count: out Count,
    } |b| {
        let (n, bits, slot_bits) = (p.conns, p.conn_bits(), p.slot_bits());
        let clear = sweep(b, "clear", n);
        let fsm = b.fsm("state", &["idle", "row", "complete", "fail"]);

        // One bit a connection: has it messages, is one more possible, is its oldest to be looked at, was its error told.
        let filled = b.wire("filled", n);
        let look = b.reg_reset("look", n, 0);
        let told = b.reg_reset("told", n, 0);

        // idle: choose an event.
        let idle = fsm.is("idle") & !clear.busy;
        let in_range = ctx.data.index.shr(bits).is_zero();
        let is_conn = ctx.data.table.eq(Table::Conn.code()) & in_range;
        let is_sq = ctx.data.table.eq(Table::Sq.code()) & in_range;
        ctx.ready.set(idle | !(is_conn | is_sq));
        let restart = (idle & ctx.valid & is_conn).named("restart");
        let names_cq = (idle & ctx.valid & is_sq).named("names_cq");
        let writes = restart | names_cq;
        let take_acked = (idle & !writes & acked.valid).named("take_acked");
        acked.ready.set(idle & !writes);
        let asks = (filled & (look | conn_error)).named("asks");
        let last_asked = b.reg_reset("last_asked", bits, 0);
        let (asked, asker) = next_after(asks, last_asked);
        let take_look = (idle & !writes & !acked.valid & asked).named("take_look");
        last_asked.set_en(take_look, asker);
        let take_open = (idle & !writes & !acked.valid & !asked & open.valid).named("take_open");
        open.ready.set(idle & !writes & !acked.valid & !asked);
        fsm.step("idle", take_acked | take_look | take_open, "row");
        let chosen = b.one_hot_select(&[
            (take_acked, acked.data.conn.trunc(bits)), (take_look, asker), (take_open, open.data.conn.trunc(bits)),
        ]);
        let conn = b.reg("conn", bits);
        conn.set_en(idle, chosen);
        let is = |name: &str, take: S| { let r = b.reg(name, 1); r.set_en(idle, take); r };
        let (is_acked, is_look, is_open) = (is("is_acked", take_acked), is("is_look", take_look), is("is_open", take_open));
        let acked_slot = b.reg("acked_slot", slot_bits);
        acked_slot.set_en(take_acked, acked.data.msg_slot.trunc(slot_bits));
        let opening = open.data.reg_en("opening", take_open);

        // row: the ring, and the slot that the event is about.
        let in_row = fsm.is("row");
        let rings = b.mem("rings", n.into(), Ring::width()).style(RamStyle::Distributed).zeroed();
        let ring = Ring::unpack(rings.read_async(conn)).named("ring");
        let cqs = b.mem("cqs", n.into(), CQ_BITS).style(RamStyle::Distributed).zeroed();
        cqs.write(names_cq, ctx.data.index.trunc(bits), field_of(ctx.data.data, SqRow::LAYOUT.field("cq")));
        let slots = b.mem("slots", u64::from(n) * u64::from(p.msgs), Slot::width()).style(RamStyle::Distributed);
        let head_at = ring.head.trunc(slot_bits);
        let slot_at = is_acked.mux(acked_slot, is_open.mux(ring.tail.trunc(slot_bits), head_at)).named("slot_at");
        let slot = Slot::unpack(slots.read_async(conn.cat(slot_at))).named("slot");
        let depth = ring.tail - ring.head;

        // An acknowledged packet. One of a message that is not there belongs to a connection that was opened anew.
        let is_there = (slot_at.zext(PSN_BITS) - head_at.zext(PSN_BITS)).trunc(slot_bits).zext(PSN_BITS).lt(depth);
        let counts_down = (in_row & is_acked & is_there & slot.left.any()).named("counts_down");
        let last_packet = counts_down & slot.left.eq(1);
        // A new message.
        let opens = (in_row & is_open).named("opens");
        slots.write(
            counts_down | opens,
            conn.cat(slot_at),
            opens.mux(
                Slot {
                    left: opening.pkt_count,
                    wqe_index: opening.wqe_index,
                    opcode: opening.opcode,
                    signaled: opening.signaled,
                    len: opening.len,
                    status: opening.status,
                }.pack(),
                Slot { left: slot.left.dec(), ..slot }.pack(),
            ),
        );
        // The oldest message.
        let has_failed = bit_at(conn_error, conn).named("has_failed");
        let is_done = slot.left.is_zero() | has_failed;
        let retires = (in_row & is_look & is_done & depth.any()).named("retires");
        let rests = in_row & is_look & !is_done;
        fsm.step("row", !retires, "idle");
        fsm.step("row", retires, "complete");

        // complete: with its own status, with that of the connection, or flushed.
        let in_complete = fsm.is("complete");
        let retired = slot.reg_en("retired", in_row);
        status_read.conn.set(conn.zext(CONN_BITS));
        let was_told = bit_at(told, conn);
        let was_failed = b.reg("was_failed", 1);
        was_failed.set_en(in_row, has_failed);
        let own_fault = retired.left.is_zero() & retired.status.any() & retired.status.ne(Status::WrFlush as u64);
        let is_good = (retired.left.is_zero() & retired.status.is_zero() & !was_told).named("is_good");
        let flush = b.lit(Status::WrFlush as u64, 8);
        let status = b.select(
            &[(is_good, b.zero(8)), (own_fault & !was_told, retired.status), (was_failed & !was_told & retired.left.any(), status_read.status)],
            flush,
        ).named("status");
        let speaks = (retired.signaled | !is_good).named("speaks");
        completion.put(in_complete & speaks, &Completion {
            cq: cqs.read_async(conn),
            conn: conn.zext(CONN_BITS),
            opcode: retired.opcode,
            status,
            wqe_index: retired.wqe_index,
            byte_len: retired.len,
            imm: b.zero(32),
            imm_valid: b.low(),
            se: b.low(),
        });
        let completes = (in_complete & (!speaks | completion.ready)).named("completes");
        let fails = (own_fault & !was_told & !was_failed).named("fails");
        fsm.step("complete", completes & fails, "fail");
        fsm.step("complete", completes & !fails, "idle");
        // fail: a message with a bad status takes its connection along.
        let in_fail = fsm.is("fail");
        let cause = b.reg("cause", 8);
        cause.set_en(in_complete, retired.status);
        error.put(in_fail, &ConnError { conn: conn.zext(CONN_BITS), status: cause });
        fsm.step("fail", error.ready, "idle");

        // Rings.
        let here = |on| bit_mask(n, conn, on);
        let at = b.select(&[(clear.busy, clear.addr), (restart, ctx.data.index.trunc(bits))], conn);
        let init = field_of(ctx.data.data, ConnRow::LAYOUT.field("init_msn"));
        let next = Ring {
            head: b.select(&[(clear.busy, b.zero(PSN_BITS)), (restart, init)], ring.head + completes.zext(PSN_BITS)),
            tail: b.select(&[(clear.busy, b.zero(PSN_BITS)), (restart, init)], ring.tail + opens.zext(PSN_BITS)),
        };
        let ring_write = (clear.busy | restart | opens | completes).named("ring_write");
        rings.write(ring_write, at, next.pack());
        let next_depth = (next.tail - next.head).named("next_depth");
        filled.set(written_bits(b, "filled_conns", n, ring_write, at, next_depth.any()));
        let full = written_bits(b, "full_conns", n, ring_write, at, next_depth.ge(u64::from(p.msgs)));
        can_open.set(!full);
        let restarted = bit_mask(n, at, restart);
        let wakes = last_packet & slot_at.eq(head_at) | opens & depth.is_zero() & opening.pkt_count.is_zero() | completes;
        look.set((look & !here(rests) | here(wakes)) & !restarted);
        told.set((told | here(completes & !is_good)) & !restarted);

        let flushed = completes & status.eq(Status::WrFlush as u64) & retired.status.is_zero();
        count.drive(b, &[(completes & is_good, Counter::TxMessages), (flushed, Counter::WqeFlushed)]);
        b.assert("opened_into_a_free_slot", !opens | depth.lt(u64::from(p.msgs)));
    }
}

#[cfg(test)]
mod tests;
