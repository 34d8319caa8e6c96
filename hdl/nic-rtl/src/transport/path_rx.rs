//! Receiving side of paths: which packets are new, and when to acknowledge.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready | a row of `path_rx` (re)opens or closes a path |
//! | `event` | [`PathRxEvent`] | valid/ready | check, commit or refusal of a packet |
//! | `verdict` | [`PathRxVerdict`] | valid/ready | answer to each check; nothing set when the path is not open |
//! | `ack` | [`AckPacket`] | valid/ready, registered | acknowledgements and refusals to send |
//! | `conn_read`, `credit_read` | [`ConnRead`], [`CreditRead`] | none | stream and receive credit of a connection |
//! | `cfg`, `now` | [`TransportConfig`], 32 | | registers, time |
//! | `count` | [`Count`] | valid | see [`COUNTS`] |
//!
//! One engine, one event at a time. Priority: context write, ACK to be built, event of the responder. A row that owes an
//! ACK stands once in a queue; the ACK is built from the row when its turn comes, so it tells the newest state (S-020).
//! S-010 and S-011 say when. A refusal changes nothing and is sent at most once per interval and connection (S-031).
//!
//! Cycles: check 3, commit 4 (5 when it joins packets behind a hole), ACK 2, refusal 2. Reset closes all paths in `rows`
//! cycles, during which nothing is taken. State a path row: 487 bits and 33 bits of deadline in RAM, one place in the
//! queue; 3 flops a connection. Drops: a refusal too soon after another; none is counted here.

use super::{
    ack_gen::{build, nak_allowed, AckSource},
    sack::{acceptance, distance, Acceptance, PathRxState, BYTES_BITS, PKTS_BITS},
    timer::{deadlines, has_passed, DeadlineWrite},
    vector::{bit_mask, conn_of, row_of, wires_over},
};
use crate::{
    params::NicParams,
    prim::{fifo::pushed, ram::sweep},
    stream::{
        field_of, AckPacket, ConnContext, ConnRead, Count, CreditRead, CtxWrite, PathRxEvent, PathRxVerdict,
        TransportConfig, CONN_BITS, PATH_RX_CHECK, PATH_RX_COMMIT, PATH_RX_NAK, SACK_BITS, TIME_BITS,
    },
};
use nic_spec::{
    csr::stats::Counter,
    desc::{PathRxRow, Table},
};
use rtl_graph::*;

/// What `count` names.
pub const COUNTS: &[Counter] = &[Counter::TxAckShort, Counter::TxAckLong, Counter::TxNak];

module! {
    /// The engine of the path_rx table.
    pub struct PathRx = "nic_transport_path_rx" (p: &NicParams) {
        ctx: in Stream<CtxWrite>,
        event: in Stream<PathRxEvent>,
        verdict: out Stream<PathRxVerdict>,
        ack: out Stream<AckPacket>,
        conn_read: out ConnRead,
        credit_read: out CreditRead,
        cfg: in TransportConfig,
        now: in Uint(TIME_BITS),
        count: out Count,
    } |b| {
        let (rows, row_bits) = (p.rows(), p.row_bits());
        let clear = sweep(b, "clear", rows);
        let fsm = b.fsm("state", &["idle", "row", "look", "join", "store"]);

        // idle: choose an event and read its row.
        let idle = fsm.is("idle") & !clear.busy;
        let ack_valid = b.reg_reset("ack_valid", 1, 0);
        let ack_free = (!ack_valid | ack.ready).named("ack_free");
        let is_path_rx = ctx.data.table.eq(Table::PathRx.code()) & ctx.data.index.shr(row_bits).is_zero();
        let take_ctx = (idle & ctx.valid & is_path_rx).named("take_ctx");
        ctx.ready.set(idle | !is_path_rx);
        let (queue_push, row) = (b.wire("queue_push", 1), b.reg("row", row_bits));
        let queue = pushed(b, "queue", queue_push, &Raw { data: row }, rows).tx;
        let take_queued = (idle & !take_ctx & queue.valid & ack_free).named("take_queued");
        queue.ready.set(idle & !take_ctx & ack_free);
        let timer_taken = b.wire("timer_taken", 1);
        let write = DeadlineWrite {
            en: b.wire("row_write", 1),
            row: b.wire("row_write_at", row_bits),
            armed: b.wire("row_armed", 1),
            deadline: b.wire("row_deadline", TIME_BITS),
        };
        let expired = deadlines(b, "timer", rows, write, now, timer_taken);
        let take_timer = (idle & !take_ctx & !queue.valid & expired.valid & ack_free).named("take_timer");
        timer_taken.set(take_timer);
        let ack_waits = (queue.valid | expired.valid) & ack_free;
        let event_turn = idle & !take_ctx & !ack_waits & (event.data.kind.ne(PATH_RX_NAK) | ack_free);
        let take_event = (event_turn & event.valid).named("take_event");
        event.ready.set(event_turn);
        fsm.step("idle", take_ctx | take_queued | take_timer | take_event, "row");

        let event_row = b.one_hot_select(&[
            (take_ctx, ctx.data.index.trunc(row_bits)),
            (take_queued, queue.data.data),
            (take_timer, expired.row),
            (take_event, row_of(p, event.data.conn, event.data.path)),
        ]);
        row.set_en(idle, event_row);
        let kind = |code: u64| take_event & event.data.kind.eq(code);
        let held = |name: &str, take: S| { let r = b.reg(name, 1); r.set_en(idle, take); r };
        let (is_ctx, is_queued) = (held("is_ctx", take_ctx), held("is_queued", take_queued));
        let (is_timer, is_nak) = (held("is_timer", take_timer), held("is_nak", kind(PATH_RX_NAK)));
        let (is_check, is_commit) = (held("is_check", kind(PATH_RX_CHECK)), held("is_commit", kind(PATH_RX_COMMIT)));
        let packet = event.data.reg_en("packet", take_event);
        let field = |name: &str| field_of(ctx.data.data, PathRxRow::LAYOUT.field(name));
        let opened = |name: &str| {
            let r = b.reg(&format!("open_{name}"), field(name).width());
            r.set_en(take_ctx, field(name));
            r
        };

        // The row stands on the RAM's output from state `row` on; the write of an event is its last step.
        let mem = b.mem("paths", rows.into(), PathRxState::width()).style(RamStyle::Block).zeroed();
        let read_at = fsm.is("idle").mux(event_row, row);
        let st = PathRxState::unpack(mem.read(read_at)).named("st");
        let next = wires_over("next", &st);
        conn_read.conn.set(conn_of(p, read_at).zext(CONN_BITS));
        credit_read.conn.set(conn_of(p, read_at).zext(CONN_BITS));
        let in_row = fsm.is("row");

        // A context write. The place in the queue is kept, or the row could stand in it twice.
        let open = in_row & is_ctx;
        let fresh = PathRxState {
            valid: opened("valid"),
            sport: opened("sport"),
            plane: opened("plane"),
            epoch: opened("epoch"),
            cum: opened("init_pseq") - 1,
            fresh: b.high(),
            queued: st.queued,
            ..PathRxState::zero(b)
        };
        next.when(open, &fresh);

        // An ACK whose turn has come. One of a path opened since has nothing to say.
        let comes_due = st.armed & !st.queued & has_passed(now, st.deadline);
        let is_turn = in_row & (is_queued & st.queued | is_timer & comes_due);
        let build_ack = (is_turn & st.valid & !st.fresh).named("build_ack");
        b.when(is_turn, || {
            next.queued.set(0);
            next.armed.set(0);
            next.pkts.set(0);
            next.bytes.set(0);
        });
        let conn = conn_of(p, row);
        let wants_nak = in_row & is_nak & st.valid;
        let nak_sent = b.wire("nak_sent", 1);
        nak_sent.set(wants_nak & nak_allowed(b, p, cfg.nak_interval_ticks, conn, nak_sent));
        let source = AckSource {
            row,
            state: st,
            is_nak,
            refused: packet,
            conn: ConnContext::unpack(conn_read.row),
            rq_limit: credit_read.rq_limit,
            now,
        };
        let push = build_ack | nak_sent;
        ack_valid.set(push | ack_valid & !ack.ready);
        ack.put(ack_valid, &build(p, &source).reg_en("ack", push));
        b.assert("ack_has_room", !push | ack_free);

        // row: how far from cum + 1. look: what the packet is, the bitmap with it.
        let away = distance(&st, packet.pseq).delay("away", 1);
        let in_look = fsm.is("look");
        let Acceptance { is_new, is_duplicate, is_beyond } = acceptance(st.map, away);
        verdict.valid.set(in_look & is_check);
        verdict.data.accept.set(st.valid & is_new);
        verdict.data.duplicate.set(st.valid & is_duplicate);
        verdict.data.out_of_window.set(st.valid & is_beyond);
        let counts_now = (is_commit & st.valid & !is_beyond).named("counts_now");
        let was_new = is_new.delay("was_new", 1);
        let marked = (st.map | bit_mask(SACK_BITS, away, is_new)).delay("marked", 1).named("marked_map");
        let had_hole = st.map.any().delay("had_hole", 1);
        // join: how many packets follow the one that filled the hole. Without, the window moves by one or not at all.
        let joins = is_new & away.is_zero() & st.map.bit(1);
        let in_join = fsm.is("join");
        let steps = b.reg("steps", count_bits(SACK_BITS.into()));
        steps.when(in_look, (is_new & away.is_zero()).zext(steps.width()));
        steps.when(in_join, marked.trailing_ones());

        // store: the row with the packet, and whether it makes an ACK due.
        let store = fsm.is("store");
        let map = marked.shr_by(steps).named("moved_map");
        let pkts = (st.pkts.all()).mux(st.pkts, st.pkts.inc());
        let total = st.bytes.add_carry(packet.len.zext(BYTES_BITS));
        let bytes = total.msb().mux(b.ones(BYTES_BITS), total.trunc(BYTES_BITS));
        let pkts_wanted = cfg.ack_packets.any().mux(cfg.ack_packets, b.lit(1, PKTS_BITS));
        let at_once = !was_new | packet.ce | packet.ack_now | st.fresh | had_hole | map.any();
        let is_due = (at_once | pkts.ge(pkts_wanted) | bytes.ge(cfg.ack_bytes)).named("is_due");
        b.when(store, || {
            next.cum.set(st.cum + steps.zext(24));
            next.map.set(map);
            next.ce_cnt.set(st.ce_cnt + packet.ce.zext(16));
            next.fresh.set(0);
            next.trig.set(packet.pseq);
            next.trig_ts.set(packet.tx_ts);
            next.trig_time.set(now);
            next.trig_plane.set(packet.plane);
            next.trig_epoch.set(packet.epoch);
            next.trig_ce.set(packet.ce);
            next.trig_dup.set(!was_new);
            next.trig_rtx.set(packet.rtx);
            next.pkts.set(pkts);
            next.bytes.set(bytes);
            b.when(is_due, || {
                next.queued.set(1);
                next.armed.set(0);
            })
            .elif(!st.armed & !st.queued, || {
                next.armed.set(1);
                next.deadline.set(now + cfg.ack_delay_ticks);
            });
        });
        queue_push.set(store & is_due & !st.queued);

        let mem_write = (clear.busy | open | is_turn | store).named("mem_write");
        let at = clear.busy.mux(clear.addr, row);
        let data = (!clear.busy).rep(PathRxState::width()) & next.pack();
        mem.write(mem_write, at, data);
        let stored = PathRxState::unpack(data);
        write.en.set(mem_write);
        write.row.set(at);
        write.armed.set(stored.armed);
        write.deadline.set(stored.deadline);

        fsm.step("row", b.high(), "idle");
        fsm.step("row", is_check | is_commit, "look");
        fsm.step("look", is_check & verdict.ready, "idle");
        fsm.step("look", is_commit & !counts_now, "idle");
        fsm.step("look", counts_now & !joins, "store");
        fsm.step("look", counts_now & joins, "join");
        fsm.step("join", b.high(), "store");
        fsm.step("store", b.high(), "idle");

        count.drive(b, &[
            (build_ack & !st.map.any(), Counter::TxAckShort),
            (build_ack & st.map.any(), Counter::TxAckLong),
            (nak_sent, Counter::TxNak),
        ]);
        b.assert("bit_0_is_0", !store | !map.bit(0));
        b.cover("joined", store & steps.gt(1));
        b.cover("by_timer", build_ack & is_timer);
        b.cover("nak_too_soon", wants_nak & !nak_sent);
    }
}

#[cfg(test)]
mod tests;
