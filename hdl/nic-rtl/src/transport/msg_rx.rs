//! Messages on their way in: retires them in order of MSEQ once they are written, with a completion if they have one.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready | a row of `conn` forgets the connection's messages; one of `sq` names its completion queue |
//! | `placed` | [`PlaceInfo`] | valid/ready | packets whose payload memory has answered, in order of acceptance |
//! | `completion` | [`Completion`] | valid/ready, registered | a message with immediate data is complete |
//! | `error` | [`ConnError`] | valid/ready | memory answered a write with an error, or a receive is used out of turn |
//! | `msg_base` | [`MsgBaseRead`] | none | MSEQ of the connection's oldest message not retired, one cycle later |
//! | `idle` | 1 | | nothing is left to retire, and no packet is on its way in |
//! | `count` | [`Count`] | valid | see [`COUNTS`] |
//!
//! A message is complete with the packet that carries `complete` (M-014): packets come in order of acceptance, so all others
//! of the message came before. Its immediate data came with the packet that has LAST and IMM. Messages that consume a
//! receive name them one after the other (M-006): one that names another, as a receive used twice, completes nothing and
//! ends its connection, since its completion would be for a receive that is not there. Cycles: a packet 3, a retired
//! message 4; the two kinds take turns. Reset forgets all messages in conns · msgs cycles, a context write those of the
//! connection in msgs cycles; nothing is taken meanwhile. State: 84 bits a message slot and 2 · 24 + 16 + 12 bits a connection
//! in RAM. Drops: packets of messages retired already, which cannot come from a sender that keeps the protocol.

use super::vector::{bit_at, bit_mask, next_after};
use crate::{
    params::NicParams,
    stream::{
        field_of, mflag, Completion, ConnError, Count, CtxWrite, MsgBaseRead, PlaceInfo, CONN_BITS, CQ_BITS, PSN_BITS,
    },
};
use nic_spec::{
    csr::stats::Counter,
    desc::{ConnRow, CqeOpcode, SqRow, Status, Table},
};
use rtl_graph::*;

/// What `count` names.
pub const COUNTS: &[Counter] = &[Counter::RxMessages];

record! {
    /// Row of a message slot; all 0 before the message's first packet.
    struct MessageRow {
        /// All bytes are written.
        done: 1,
        /// There is immediate data.
        imm_valid: 1,
        imm: 32,
        se: 1,
        rsn: 16,
        /// Length of the message.
        len: 32,
        failed: 1,
    }
}

module! {
    /// The engine of the receive message slots.
    pub struct MsgRx = "nic_transport_msg_rx" (p: &NicParams) {
        ctx: in Stream<CtxWrite>,
        placed: in Stream<PlaceInfo>,
        completion: out Stream<Completion>,
        error: out Stream<ConnError>,
        msg_base: in MsgBaseRead,
        idle: out Uint(1),
        count: out Count,
    } |b| {
        let (n, conn_bits, slot_bits) = (p.conns, p.conn_bits(), p.slot_bits());
        let slots = n * p.msgs;
        let fsm = b.fsm("state", &["idle", "row", "look", "end", "fail"]);

        // Walk over the slots of one connection, or of all after reset.
        let clearing = b.reg_reset("clearing", 1, 1);
        let clear_at = b.reg_reset("clear_at", conn_bits + slot_bits, 0);
        let clear_last = b.reg_reset("clear_last", conn_bits + slot_bits, u64::from(slots) - 1);

        let is_free = (fsm.is("idle") & !clearing).named("is_free");
        let at = ctx.data.index.trunc(conn_bits);
        let in_range = ctx.data.index.shr(conn_bits).is_zero();
        let is_conn = ctx.data.table.eq(Table::Conn.code()) & in_range;
        let is_sq = ctx.data.table.eq(Table::Sq.code()) & in_range;
        ctx.ready.set(is_free | !is_conn);
        let restart = (is_free & ctx.valid & is_conn).named("restart");
        clearing.set(restart | clearing & clear_at.ne(clear_last));
        clear_at.set(restart.mux(at.cat(b.zero(slot_bits)), clearing.mux(clear_at.inc(), clear_at)));
        clear_last.set_en(restart, at.cat(b.ones(slot_bits)));

        // idle: a packet or a connection to look after, in turns.
        let ripe = b.reg_reset("ripe", n, 0);
        let last_conn = b.reg_reset("last_conn", conn_bits, 0);
        let (has_ripe, ripe_conn) = next_after(ripe, last_conn);
        let packet_turn = b.reg_reset("packet_turn", 1, 0);
        let take_packet = (is_free & !restart & placed.valid & (packet_turn | !has_ripe)).named("take_packet");
        let take_ripe = (is_free & !restart & has_ripe & !take_packet).named("take_ripe");
        placed.ready.set(is_free & !restart & (packet_turn | !has_ripe));
        packet_turn.set(take_ripe | packet_turn & !take_packet);
        last_conn.set_en(take_ripe, ripe_conn);
        let chosen = take_ripe.mux(ripe_conn, placed.data.conn.trunc(conn_bits));
        let conn = b.reg("conn", conn_bits);
        conn.set_en(is_free, chosen);
        let is_packet = b.reg("is_packet", 1);
        is_packet.set_en(is_free, take_packet);
        let packet = placed.data.reg_en("packet", take_packet);
        fsm.step("idle", take_packet | take_ripe, "row");

        // row: the connection's base has come; it says which slot. look: the slot has come.
        let bases = b.mem("bases", n.into(), PSN_BITS).style(RamStyle::Distributed);
        let base = bases.read(fsm.is("idle").mux(chosen, conn)).named("base");
        let (in_row, in_look, in_end) = (fsm.is("row"), fsm.is("look"), fsm.is("end"));
        let mseq = is_packet.mux(packet.mseq, base);
        let slot = conn.cat(mseq.trunc(slot_bits)).named("slot");
        let mem = b.mem("messages", slots.into(), MessageRow::width()).style(RamStyle::Block).zeroed();
        let row = MessageRow::unpack(mem.read(slot));
        fsm.step("row", b.high(), "look");

        // look, packet: what it adds to its message.
        let is_current = (packet.mseq - base).lt(p.msgs);
        let adds = (in_look & is_packet & is_current).named("adds");
        let has_imm = packet.mflags.bit(mflag("imm")) & packet.mflags.bit(mflag("last"));
        let added = MessageRow {
            done: row.done | packet.complete,
            imm_valid: row.imm_valid | has_imm,
            imm: has_imm.mux(packet.imm, row.imm),
            se: has_imm.mux(packet.se, row.se),
            rsn: has_imm.mux(packet.rsn.trunc(16), row.rsn),
            len: packet.dma_len,
            failed: row.failed | packet.error,
        };
        let ripens = (adds & packet.complete).named("ripens");
        // look, connection: its oldest message retires if it is done.
        let retires = (in_look & !is_packet & row.done).named("retires");
        let spends = (in_look & !is_packet & !row.done).named("spends");
        // A message with immediate data consumes the receive whose turn it is.
        let rsns = b.mem("rsns", n.into(), 16).style(RamStyle::Distributed);
        let rsn_next = rsns.read(fsm.is("idle").mux(chosen, conn)).named("rsn_next");
        let in_turn = row.rsn.eq(rsn_next).named("in_turn");
        let completes = retires & row.imm_valid & !row.failed & in_turn;
        let breaks = (retires & row.imm_valid & !row.failed & !in_turn).named("breaks");
        let first_rsn = field_of(ctx.data.data, ConnRow::LAYOUT.field("init_rsn")).trunc(16);
        rsns.write(
            restart | retires & row.imm_valid & in_turn,
            restart.mux(at, conn),
            restart.mux(first_rsn, rsn_next.inc()),
        );
        let retired = row.reg_en("retired", in_look);

        mem.write(
            clearing | adds | retires,
            clearing.mux(clear_at, slot),
            adds.rep(MessageRow::width()) & added.pack(),
        );
        let init = field_of(ctx.data.data, ConnRow::LAYOUT.field("init_msn"));
        let write_base = restart | retires;
        let base_at = restart.mux(at, conn);
        let base_new = restart.mux(init, base.inc());
        bases.write(write_base, base_at, base_new);
        let shown = b.mem("shown_bases", n.into(), PSN_BITS).style(RamStyle::Distributed);
        shown.write(write_base, base_at, base_new);
        msg_base.base.set(shown.read(msg_base.conn.trunc(conn_bits)));
        let sets = bit_mask(n, conn, ripens);
        let clears = bit_mask(n, conn, spends) | bit_mask(n, at, restart);
        ripe.set((ripe | sets) & !clears);

        // end: the completion entry.
        let queues = b.mem("queues", n.into(), CQ_BITS).style(RamStyle::Distributed);
        queues.write(ctx.valid & is_sq, at, field_of(ctx.data.data, SqRow::LAYOUT.field("rq_cq")));
        let done_valid = b.reg_reset("completion_valid", 1, 0);
        let push = in_end & (!done_valid | completion.ready);
        done_valid.set(push | done_valid & !completion.ready);
        let entry = Completion {
            cq: queues.read(conn),
            conn: conn.zext(CONN_BITS),
            opcode: b.lit(CqeOpcode::RecvImm.code().into(), 8),
            status: b.lit(Status::Ok.code().into(), 8),
            wqe_index: retired.rsn,
            byte_len: retired.len,
            imm: retired.imm,
            imm_valid: b.high(),
            se: retired.se,
        };
        completion.put(done_valid, &entry.reg_en("completion", push));
        error.put(
            fsm.is("fail"),
            &ConnError {
                conn: conn.zext(CONN_BITS),
                status: is_packet
                    .mux(b.lit(Status::LocDma.code().into(), 8), b.lit(Status::RemInvReq.code().into(), 8)),
            },
        );
        fsm.step("look", b.high(), "idle");
        fsm.step("look", completes, "end");
        fsm.step("look", is_packet & packet.error | breaks, "fail");
        fsm.step("end", push, "idle");
        fsm.step("fail", error.ready, "idle");

        idle.set(is_free & !placed.valid & ripe.is_zero());
        count.drive(b, &[(retires & !row.failed & !breaks, Counter::RxMessages)]);
        b.assert("a_ripe_message_is_seen", !take_ripe | bit_at(ripe, ripe_conn));
        b.assert("one_state_at_a_time", !(in_row & in_look));
    }
}

#[cfg(test)]
mod tests;
