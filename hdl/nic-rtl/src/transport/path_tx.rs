//! Sending side of paths: gives packets their PSEQ, keeps what is in flight, finds what is lost, sends it again.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready | a row of `path_tx` (re)opens or closes a path and forgets what it had in flight |
//! | `ack` | [`AckEvent`] | valid/ready | acknowledgements that arrived |
//! | `alloc` | [`AllocRequest`] | valid/ready | new packets; one for a full path waits, one for a closed path is dropped |
//! | `tx` | [`TxPacket`] | valid/ready, registered | packets to send, in the order of their `tx_ts` |
//! | `acked` | [`AckedPacket`] | valid/ready | each packet once, when it is first acknowledged |
//! | `error` | [`ConnError`] | valid/ready | fatal refusal, or too many timeouts |
//! | `path_open` | 1 a path row | | the path takes one more packet; exact two cycles after `alloc` took one |
//! | `conn_error` | 1 a connection | | its paths send nothing, time nothing and ignore acknowledgements |
//! | `cfg`, `now` | [`TransportConfig`], 32 | | registers, time |
//! | `count` × 2 | [`Count`] | valid | see [`COUNTS`] |
//!
//! One engine, one event at a time. Priority: context write, ACK, retransmission, timer, new packet. A packet is lost when
//! it is missing below the highest acknowledged one and the ACK, of the path's epoch and of the packet's, echoes a time
//! later than the packet's last transmission: so each loss, of a retransmission too, is repaired once a proof.
//! A packet refused for now waits for `rnr_ticks` instead. Timer.
//!
//! Cycles: 2 for a new packet, 4 for a retransmission, 2 for an expiry, for an ACK 9 + the packets it newly acknowledges
//! + the packets missing below the highest. Latency `alloc` to `tx` 2. Reset closes all paths in `rows` cycles, during
//! which nothing is taken. State a path row: 193 + 2 · window_pkts bits and 33 bits of deadline in RAM, 3 in flops; a
//! packet in flight 42 + 301 bits in RAM. Drops: `rx_bad_ack_count`, `rx_unknown_path_count`.

use super::{
    inflight::{InFlight, SentInfo},
    retransmit,
    timer::{deadlines, has_passed, DeadlineWrite},
    vector::{bit_at, bit_mask, conn_of, is_later, path_of, row_of, wires_over, written_bits},
    window::{acknowledged, below_highest, outstanding, place, Acknowledged, PathTxState, Placement},
};
use crate::{
    params::NicParams,
    prim::ram::sweep,
    stream::{
        field_of, AckEvent, AckedPacket, AllocRequest, ConnError, Count, CtxWrite, PacketDesc, TransportConfig,
        TxPacket, CONN_BITS, PATH_BITS, TIME_BITS,
    },
};
use nic_spec::{
    csr::stats::Counter,
    desc::{PathTxRow, Status, Table},
    wire::NakReason,
};
use rtl_graph::*;

/// What `count` names, port by port.
pub const COUNTS: [&[Counter]; 2] = [
    &[
        Counter::TxData,
        Counter::TxRtxGap,
        Counter::TxRtxRto,
        Counter::PathRto,
        Counter::RxBadAck,
        Counter::RxUnknownPath,
    ],
    &[Counter::TxDataBytes],
];

/// Longest timeout, R-006. Milliseconds.
const TIMEOUT_MAX_MS: u64 = 8000;

/// Longest timeout in ticks, within half the circle of time.
fn timeout_max(p: &NicParams) -> u64 {
    (u64::from(p.clock_khz) * TIMEOUT_MAX_MS).min((1 << (TIME_BITS - 1)) - 1)
}

module! {
    /// The engine of the path_tx table.
    pub struct PathTx = "nic_transport_path_tx" (p: &NicParams) {
        ctx: in Stream<CtxWrite>,
        ack: in Stream<AckEvent>,
        alloc: in Stream<AllocRequest>,
        tx: out Stream<TxPacket>,
        acked: out Stream<AckedPacket>,
        error: out Stream<ConnError>,
        path_open: out Uint(p.rows()),
        conn_error: in Uint(p.conns),
        cfg: in TransportConfig,
        now: in Uint(TIME_BITS),
        count: out Count [2],
    } |b| {
        let (rows, row_bits, w) = (p.rows(), p.row_bits(), p.window_pkts);
        let clear = sweep(b, "clear", rows);
        let fsm = b.fsm("state", &["idle", "row", "resend", "mask", "merge", "find", "walk", "finish", "fail"]);

        // Vectors of flops, written with the rows below.
        let (opens, valids, pendings) = (b.wire("opens", rows), b.wire("valids", rows), b.wire("pendings", rows));

        // idle: choose an event and read its row.
        let idle = fsm.is("idle") & !clear.busy;
        let tx_valid = b.reg_reset("tx_valid", 1, 0);
        let tx_free = (!tx_valid | tx.ready).named("tx_free");
        let is_path_tx = ctx.data.table.eq(Table::PathTx.code()) & ctx.data.index.shr(row_bits).is_zero();
        let open = (idle & ctx.valid & is_path_tx).named("open");
        ctx.ready.set(idle | !is_path_tx);
        let alloc_row = row_of(p, alloc.data.conn, alloc.data.path);
        let alloc_failed = bit_at(conn_error, conn_of(p, alloc_row));
        let alloc_can = tx_free & (bit_at(opens, alloc_row) | !bit_at(valids, alloc_row) | alloc_failed);
        let take_ack = (idle & !open & ack.valid).named("take_ack");
        let rtx_taken = b.wire("rtx_taken", 1);
        let resend = retransmit::search(b, pendings, rtx_taken);
        let take_rtx = (idle & !open & !ack.valid & resend.valid & tx_free).named("take_rtx");
        rtx_taken.set(take_rtx);
        let timer_taken = b.wire("timer_taken", 1);
        let write = DeadlineWrite {
            en: b.wire("row_write", 1),
            row: b.wire("row_write_at", row_bits),
            armed: b.wire("row_armed", 1),
            deadline: b.wire("row_deadline", TIME_BITS),
        };
        let expired = deadlines(b, "timer", rows, write, now, timer_taken);
        let take_timer = (idle & !open & !ack.valid & !take_rtx & expired.valid).named("take_timer");
        timer_taken.set(take_timer);
        let alloc_turn = idle & !open & !ack.valid & !take_rtx & !expired.valid & alloc_can;
        let take_alloc = (alloc_turn & alloc.valid).named("take_alloc");
        ack.ready.set(idle & !open);
        alloc.ready.set(alloc_turn);
        let taken = take_ack | take_rtx | take_timer | take_alloc;
        fsm.step("idle", taken, "row");

        let event_row = b.one_hot_select(&[
            (take_ack, row_of(p, ack.data.conn, ack.data.apath)),
            (take_rtx, resend.row),
            (take_timer, expired.row),
            (take_alloc, alloc_row),
        ]);
        let row = b.reg("row", row_bits);
        row.set_en(idle, event_row);
        let is = |name: &str, take: S| { let r = b.reg(name, 1); r.set_en(idle, take); r };
        let (is_ack, is_rtx) = (is("is_ack", take_ack), is("is_rtx", take_rtx));
        let (is_timer, is_alloc) = (is("is_timer", take_timer), is("is_alloc", take_alloc));
        let event = ack.data.reg_en("event", take_ack);
        let request = alloc.data.reg_en("request", take_alloc);

        // The row stands on the RAM's output from state `row` on; the write of an event is its last step.
        let mem = b.mem("paths", rows.into(), PathTxState::width(p)).style(RamStyle::Block).zeroed();
        let read_at = fsm.is("idle").mux(event_row, row);
        let st = PathTxState::unpack(mem.read(read_at), p).named("st");
        let has_failed = bit_at(conn_error, conn_of(p, row)).named("has_failed");
        let works = (st.valid & !has_failed).named("works");
        let next = wires_over("next", &st);
        let (in_row, finish) = (fsm.is("row"), fsm.is("finish"));
        let count_now = outstanding(p, st.una, st.nxt).named("outstanding");
        let first_timeout = cfg.rto_ticks.gt(timeout_max(p)).mux(timeout_max(p), cfg.rto_ticks).named("first_timeout");

        // A new packet takes the next PSEQ.
        let send_new = (in_row & is_alloc & works).named("send_new");
        b.when(send_new, || {
            next.nxt.set(st.nxt.inc());
            b.when(count_now.is_zero(), || {
                next.armed.set(1);
                next.deadline.set(now + first_timeout);
                next.timeout.set(first_timeout);
            });
        });

        // The oldest packet to be sent again leaves the row's list; its description is read.
        let (has_rtx, rtx_place) = st.rtx.first_one();
        let rtx_pseq = (st.una + rtx_place.zext(24)).named("rtx_pseq");
        let by_timer = (st.by_timer & rtx_pseq.eq(st.timer_pseq)).named("by_timer");
        let choose_rtx = (in_row & is_rtx & works & has_rtx).named("choose_rtx");
        let forget_rtx = in_row & is_rtx & !works;
        next.rtx.when(choose_rtx, st.rtx & !st.rtx.lowest_one());
        next.by_timer.when(choose_rtx, st.by_timer & !by_timer);
        next.rtx.when(forget_rtx, 0);
        let (resend_pseq, resend_by_timer) = (b.reg("resend_pseq", 24), b.reg("resend_by_timer", 1));
        resend_pseq.set_en(in_row, rtx_pseq);
        resend_by_timer.set_en(in_row, by_timer);

        // The timer of a path: the refused packet, or the oldest one, is due again.
        let fires = (in_row & is_timer & works & st.armed & has_passed(now, st.deadline)).named("fires");
        let stops = in_row & is_timer & !works;
        let refused_at = st.refused_pseq - st.una;
        let refused_bit = bit_mask(w, refused_at, st.refused).named("refused_bit");
        let doubled = st.timeout.shl(1);
        let longer = (st.timeout.msb() | doubled.gt(timeout_max(p))).mux(timeout_max(p), doubled).named("longer");
        let resend_refused = fires & st.refused;
        let still_queued = fires & !st.refused & st.rtx.bit(0);
        let is_over = fires & !st.refused & !st.rtx.bit(0) & st.retries.ge(cfg.retry_limit.zext(st.retries.width()));
        let expires = fires & !st.refused & !st.rtx.bit(0) & !is_over;
        b.when(resend_refused, || {
            next.rtx.set(st.rtx | refused_bit & !st.sacked & !b.ones(w).shl_by(count_now));
            next.by_timer.set(1);
            next.timer_pseq.set(st.refused_pseq);
            next.refused.set(0);
            next.timeout.set(first_timeout);
            next.deadline.set(now + first_timeout);
        });
        // Not sent yet since the last expiry: wait, the network has had no chance.
        next.deadline.when(still_queued, now + st.timeout);
        b.when(expires, || {
            next.rtx.set(st.rtx | 1);
            next.by_timer.set(1);
            next.timer_pseq.set(st.una);
            next.retries.set(st.retries.inc());
            next.timeout.set(longer);
            next.deadline.set(now + longer);
        });
        next.armed.when(is_over | stops, 0);

        // An acknowledgement. row: where it lies to the window.
        let ack_works = in_row & is_ack & works;
        let lies = place(&st, &event);
        let lies = Placement { ahead: lies.ahead.delay("ahead", 1), room: lies.room.delay("room", 1) };
        // mask: what it says of each packet of the window.
        let said = acknowledged(p, lies, count_now, event.sack);
        let said = Acknowledged { map: said.map.delay("said", 1), is_bad: said.is_bad.delay("said_bad", 1) };
        // merge: what is new in it.
        let fresh = b.reg("fresh", w);
        let known = b.reg("known", w);
        let in_merge = fsm.is("merge");
        fresh.set_en(in_merge, said.map & !st.sacked);
        known.set_en(in_merge, said.map | st.sacked);
        // find: which packets have to be looked up, how far the window moves.
        let in_find = fsm.is("find");
        let missing = !known & below_highest(known) & !st.rtx & !refused_bit;
        let advance = b.reg("advance", known.trailing_ones().width());
        advance.set_en(in_find, known.trailing_ones());
        // walk: one packet a cycle: its place (w1), its info (w2), the verdict.
        let in_walk = fsm.is("walk");
        let walk_on = b.wire("walk_on", 1);
        let todo = b.reg("todo", w);
        let (w1_found, w1_place) = todo.first_one();
        todo.when(in_find, fresh | missing);
        todo.when(in_walk & walk_on, todo & !todo.lowest_one());
        let (w1_valid, w1_at) = (b.reg_reset("w1_valid", 1, 0), b.reg("w1_at", w1_place.width()));
        let (w2_valid, w2_at) = (b.reg_reset("w2_valid", 1, 0), b.reg("w2_at", w1_place.width()));
        w1_valid.set_en(walk_on, in_walk & w1_found);
        w1_at.set_en(walk_on, w1_place);
        w2_valid.set_en(walk_on, w1_valid);
        w2_at.set_en(walk_on, w1_at);
        let table = InFlight::new(b, p);
        let w1_pseq = st.una + w1_at.zext(24);
        let info = table.read_info(walk_on, InFlight::address(p, row, w1_pseq));
        let is_fresh = bit_at(fresh, w2_at).named("is_fresh");
        acked.valid.set(w2_valid & is_fresh);
        acked.data.conn.set(conn_of(p, row).zext(CONN_BITS));
        acked.data.msg_slot.set(info.msg_slot);
        walk_on.set(!acked.valid | acked.ready);
        let same_epoch = event.epoch.eq(st.epoch) & event.epoch.eq(info.epoch);
        let is_lost = w2_valid & !is_fresh & same_epoch & is_later(event.ts_echo, info.tx_ts);
        let lost = b.reg("lost", w);
        lost.when(in_find, 0);
        lost.when(is_lost, lost | bit_mask(w, w2_at, b.high()));
        let walked = in_walk & todo.is_zero() & !w1_valid & !w2_valid;

        // finish: the row after the acknowledgement.
        let left = count_now - advance.resize(count_now.width());
        let reason = |list: &[NakReason]| {
            let hits: Vec<S> = list.iter().map(|r| event.nak_reason.eq(r.code())).collect();
            b.or_tree(&hits)
        };
        let trig_at = event.trig - st.una;
        let trig_is_out = trig_at.lt(count_now.zext(24)) & !known.shr_by(trig_at).bit(0);
        let (access, request_bad): (Vec<NakReason>, Vec<NakReason>) =
            NakReason::ALL.iter().copied().filter(|r| r.is_fatal()).partition(|r| is_access(*r));
        let waits = (trig_is_out & reason(&[NakReason::Rnr, NakReason::NoResource])).named("waits");
        let fatal_access = (trig_is_out & reason(&access)).named("fatal_access");
        let fatal_request = (trig_is_out & reason(&request_bad)).named("fatal_request");
        let progress = fresh.any();
        let refused_acked = (refused_bit & known).any() | refused_at.ge(count_now.zext(24));
        b.when(finish, || {
            next.una.set(st.una + advance.resize(24));
            next.sacked.set(known.shr_by(advance));
            next.rtx.set(((st.rtx | lost) & !known).shr_by(advance));
            next.refused.when(refused_acked, 0);
            next.retries.when(progress | waits, 0);
            next.timeout.when(progress | waits, first_timeout);
            next.deadline.when(progress & (!st.refused | refused_acked), now + first_timeout);
            b.when(waits, || {
                next.refused.set(1);
                next.refused_pseq.set(event.trig);
                next.deadline.set(now + cfg.rnr_ticks);
            });
            next.armed.when(left.is_zero(), 0);
        });

        // A context write needs no row read.
        let field = |name: &str| field_of(ctx.data.data, PathTxRow::LAYOUT.field(name));
        let opened = PathTxState {
            valid: field("valid"),
            sport: field("sport"),
            plane: field("plane"),
            epoch: field("epoch"),
            una: field("init_pseq"),
            nxt: field("init_pseq"),
            ..PathTxState::zero(b, p)
        };
        let after = PathTxState::mux(open, &opened, &next);
        let row_done = in_row & (is_alloc | is_timer | choose_rtx | forget_rtx);
        let mem_write = (clear.busy | open | row_done | finish).named("mem_write");
        let at = b.select(&[(clear.busy, clear.addr), (open, ctx.data.index.trunc(row_bits))], row).named("mem_at");
        let data = (!clear.busy).rep(PathTxState::width(p)) & after.pack();
        mem.write(mem_write, at, data);
        let stored = PathTxState::unpack(data, p);
        write.en.set(mem_write);
        write.row.set(at);
        write.armed.set(stored.armed);
        write.deadline.set(stored.deadline);
        let is_full = outstanding(p, stored.una, stored.nxt).msb();
        opens.set(written_bits(b, "open_rows", rows, mem_write, at, stored.valid & !is_full));
        valids.set(written_bits(b, "valid_rows", rows, mem_write, at, stored.valid));
        pendings.set(written_bits(b, "pending_rows", rows, mem_write, at, stored.rtx.any()));
        path_open.set(opens);

        // resend: the description has come.
        let in_resend = fsm.is("resend");
        let place_new = InFlight::address(p, row, st.nxt);
        let desc = table.read_desc(InFlight::address(p, row, rtx_pseq));
        let sent_desc = in_resend.mux(desc, request.desc);
        let sent_at = in_resend.mux(InFlight::address(p, row, resend_pseq), place_new);
        let sent = SentInfo { tx_ts: now, epoch: st.epoch, msg_slot: PacketDesc::unpack(sent_desc).msg_slot };
        table.write_info(send_new | in_resend, sent_at, &sent);
        table.write_desc(send_new, place_new, request.desc);
        let fills = count_now.eq(w - 1);
        let packet = TxPacket {
            conn: conn_of(p, row).zext(CONN_BITS),
            path: path_of(p, row).zext(PATH_BITS),
            plane: st.plane,
            epoch: st.epoch,
            sport: st.sport,
            pseq: in_resend.mux(resend_pseq, st.nxt),
            tx_ts: now,
            rtx: in_resend,
            ack_req: in_resend | request.ack_req | fills,
            eob: !in_resend & request.eob,
            desc: sent_desc,
        };
        let push = send_new | in_resend;
        tx_valid.set(push | tx_valid & !tx.ready);
        tx.put(tx_valid, &packet.reg_en("tx", push));
        b.assert("tx_has_room", !push | tx_free);

        // fail: report until taken.
        let status = b.reg("status", 8);
        status.when(is_over, Status::RetryExc.code());
        status.when(finish, fatal_access.mux(Status::RemAccess.code(), b.lit(Status::RemInvReq.code().into(), 8)));
        error.put(fsm.is("fail"), &ConnError { conn: conn_of(p, row).zext(CONN_BITS), status });

        fsm.step("row", !choose_rtx & !ack_works & !is_over, "idle");
        fsm.step("row", choose_rtx, "resend");
        fsm.step("row", ack_works, "mask");
        fsm.step("row", is_over, "fail");
        fsm.step("resend", b.high(), "idle");
        fsm.step("mask", b.high(), "merge");
        fsm.step("merge", b.high(), "find");
        fsm.step("merge", said.is_bad, "idle");
        fsm.step("find", b.high(), "walk");
        fsm.step("walk", walked, "finish");
        fsm.step("finish", b.high(), "idle");
        fsm.step("finish", fatal_access | fatal_request, "fail");
        fsm.step("fail", error.ready, "idle");

        count[0].drive(b, &[
            (send_new, Counter::TxData),
            (in_resend & !resend_by_timer, Counter::TxRtxGap),
            (in_resend & resend_by_timer, Counter::TxRtxRto),
            (expires | is_over, Counter::PathRto),
            (in_merge & said.is_bad, Counter::RxBadAck),
            (in_row & is_ack & !st.valid, Counter::RxUnknownPath),
        ]);
        let bytes = PacketDesc::unpack(request.desc).payload_len.zext(16);
        count[1].drive_amounts(b, &[(send_new, b.lit(Counter::TxDataBytes.code().into(), 8), bytes)]);
        b.assert("window_is_bounded", !in_row | count_now.le(w));
        b.cover("loss_found", is_lost);
        b.cover("timer_fires", fires);
        b.cover("old_ack", fsm.is("mask") & lies.ahead.msb());
    }
}

/// Whether the refusal is one of access to memory.
fn is_access(reason: NakReason) -> bool {
    matches!(reason, NakReason::Rkey | NakReason::Pd | NakReason::Range | NakReason::Access)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod refusal_tests;
