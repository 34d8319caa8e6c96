//! Responder: judges each received packet, then has it placed, acknowledged, refused or dropped.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready | a row of `conn` forgets the connection's partly received messages |
//! | `meta`, `payload` | [`RxMeta`], [`Beat`] | valid/ready | one record a frame and its payload, in order |
//! | `conn_read`, `credit_read`, `msg_base` | [`ConnRead`], [`CreditRead`], [`MsgBaseRead`] | none | what the judgement needs of the connection |
//! | `conn_error` | 1 a connection | | packets of a failed connection are dropped |
//! | `mr_lookup`, `mr_result` | [`MrLookup`], [`MrResult`] | valid/ready | memory check of a packet with payload |
//! | `ack` | [`AckEvent`] | valid/ready | acknowledgements, to path_tx |
//! | `event`, `verdict` | [`PathRxEvent`], [`PathRxVerdict`] | valid/ready | check of each WRITE; commit or refusal, to path_rx |
//! | `place`, `place_data`, `place_info` | [`PlaceRequest`], [`Beat`], [`PlaceInfo`] | valid/ready | payload to memory, and the packet to msg_rx |
//! | `placed`, `msgs_idle` | 1 | | msg_rx took a packet; msg_rx has nothing left to retire |
//! | `judging`, `handed` | 1, 1 | | a packet is being judged; one was accepted |
//! | `count` × 5 | [`Count`] | valid | see [`counts`] |
//!
//! A duplicate is acknowledged again whatever else is wrong with it: its connection may have moved on. For a new packet
//! the order of M-010 holds: stream, PMTU, memory, message, receive. A message beyond the window of `msgs` waits as long as
//! one before it is still being written, since its sender may know more than msg_rx; then it is refused.
//!
//! Two engines: the judgement here, one packet at a time, and [`placement`](super::placement). The judgement of a packet
//! waits while the same PSEQ is being placed. Cycles: an ACK 4, a WRITE 8 or its beats, a drop 4, with path_rx and the memory table
//! idle. Reset forgets all messages in conns · msgs cycles, during which no packet is taken. State: 51 bits a message
//! slot in RAM. Drops: see [`counts`].

use super::{
    accept::{messages, PacketOfMessage},
    placement::{Command, Placement},
    vector::bit_at,
};
use crate::{
    params::NicParams,
    stream::{
        AckEvent, Beat, ConnContext, ConnRead, Count, CreditRead, CtxWrite, MrLookup, MrResult, MsgBaseRead,
        PathRxEvent, PathRxVerdict, PlaceInfo, PlaceRequest, RxMeta, CONN_BITS, PATH_RX_CHECK, PATH_RX_COMMIT,
        PATH_RX_NAK,
    },
};
use nic_spec::{
    consts::{PMTU_LOG2_MAX, PMTU_LOG2_MIN},
    csr::stats::{Class, Counter, COUNTERS},
    desc::{Table, ACCESS_REMOTE_WRITE},
    wire::{NakReason, Opcode, ECN_CE},
};
use rtl_graph::*;

/// What `count` names, port by port.
pub fn counts() -> [Vec<Counter>; 5] {
    let outcomes = COUNTERS.iter().filter(|info| !matches!(info.class, Class::Event)).map(|info| info.counter);
    [
        outcomes.chain([Counter::RxAck]).collect(),
        vec![Counter::RxData],
        vec![Counter::RxDataBytes],
        vec![Counter::RxCe],
        vec![Counter::RxNak],
    ]
}

/// Bits of the count of packets between the responder and msg_rx.
const BETWEEN_BITS: u32 = 12;

module! {
    /// The judgement, with its placement.
    pub struct Responder = "nic_transport_responder" (p: &NicParams) {
        ctx: in Stream<CtxWrite>,
        meta: in Stream<RxMeta>,
        payload: in Stream<Beat>,
        conn_read: out ConnRead,
        credit_read: out CreditRead,
        msg_base: out MsgBaseRead,
        conn_error: in Uint(p.conns),
        mr_lookup: out Stream<MrLookup>,
        mr_result: in Stream<MrResult>,
        ack: out Stream<AckEvent>,
        event: out Stream<PathRxEvent>,
        verdict: in Stream<PathRxVerdict>,
        place: out Stream<PlaceRequest>,
        place_data: out Stream<Beat>,
        place_info: out Stream<PlaceInfo>,
        placed: in Uint(1),
        msgs_idle: in Uint(1),
        judging: out Uint(1),
        handed: out Uint(1),
        count: out Count [5],
    } |b| {
        let m = meta.data;
        let code = |c: Counter| b.lit(c.code().into(), 8);
        let reason = |r: NakReason| b.lit(r.code().into(), 8);
        let fsm = b.fsm("state", &["idle", "conn", "route", "ask", "decide", "hand"]);
        let index = m.bth_dest_qpn.trunc(p.conn_bits()).named("index");
        let conn = index.zext(CONN_BITS);
        let (first, last, imm, inv) = (m.mxth_first, m.mxth_last, m.mxth_imm, m.mxth_inv);
        let mflags = b.cat(&[first, last, imm, inv, m.mxth_se, m.mxth_fence, m.mxth_tag, b.low()]);

        // A context write forgets the connection's messages.
        let is_conn = ctx.data.table.eq(Table::Conn.code()) & ctx.data.index.shr(p.conn_bits()).is_zero();
        let hand_place = b.wire("hand_place", 1);
        let forget = b.wire("forget", 1);
        let of_message =
            PacketOfMessage { conn: index, mseq: m.mxth_mseq, dma_len: m.reth_dma_len, payload_len: m.payload_len };
        let message = messages(b, p, of_message, hand_place, forget, ctx.data.index.trunc(p.conn_bits()));
        let idle = fsm.is("idle") & !message.busy;
        forget.set(idle & ctx.valid & is_conn);
        ctx.ready.set(idle | !is_conn);

        // idle: the rows are read. conn: they have come; what they say is kept.
        let start = (idle & meta.valid & !forget).named("start");
        conn_read.conn.set(conn);
        credit_read.conn.set(conn);
        msg_base.conn.set(conn);
        let in_conn = fsm.is("conn");
        let row = ConnContext::unpack(conn_read.row);
        let is_write = m.bth_opcode.eq(Opcode::Write.code()).named("is_write");
        let is_ack = m.bth_opcode.eq(Opcode::Ack.code()).named("is_ack");
        let path = is_ack.mux(m.axth_apath, m.pxth_path_id);
        let path_is_bad = path.ge(row.path_count) | path.shr(p.path_bits()).any();
        let drop = b.select(
            &[
                (m.drop.any(), m.drop),
                (!row.valid | row.local_id.ne(m.bth_dest_qpn), code(Counter::RxUnknownConn)),
                (row.pkey.ne(m.bth_pkey), code(Counter::RxBadPkey)),
                (!is_write & !is_ack, code(Counter::RxUnsupportedOpcode)),
                (bit_at(conn_error, index), code(Counter::RxConnError)),
                (path_is_bad, code(Counter::RxUnknownPath)),
            ],
            0,
        );
        let drop = { let r = b.reg("drop", 8); r.set_en(in_conn, drop); r };
        let pmtu: Vec<(S, S)> = (PMTU_LOG2_MIN..=PMTU_LOG2_MAX)
            .map(|log2| (row.pmtu_log2.eq(log2), m.payload_len.gt(1u32 << log2)))
            .collect();
        let early = b.select(
            &[
                (m.pxth_stream_id.ne(row.stream_id), reason(NakReason::Stream)),
                (b.select(&pmtu, 1), reason(NakReason::Mtu)),
            ],
            0,
        );
        let early = { let r = b.reg("early", 8); r.set_en(in_conn, early); r };
        let pd = { let r = b.reg("pd", row.pd.width()); r.set_en(in_conn, row.pd); r };
        let in_route = fsm.is("route");
        let is_good = drop.is_zero();

        // route: an ACK goes to path_tx as soon as it can.
        ack.valid.set(in_route & is_good & is_ack);
        ack.data.set(&AckEvent {
            conn,
            apath: m.axth_apath,
            epoch: m.axth_epoch,
            cum: m.axth_cum_pseq,
            trig: m.axth_trig_pseq,
            sack: m.axth_bm.rep(m.sack_bitmap.width()) & m.sack_bitmap.reverse(),
            ts_echo: m.axth_ts_echo,
            flags: b.cat(&[
                m.axth_bm,
                m.axth_ce,
                m.axth_dup,
                m.axth_rtxe,
                m.axth_hint,
                m.axth_nak,
                m.axth_credit,
                b.low(),
            ]),
            ce_cnt: m.axth_ce_cnt,
            nak_reason: m.axth_nak.rep(8) & m.nxth_reason,
            nak_detail: m.axth_nak.rep(16) & m.nxth_detail,
        });

        // ask: path_rx what the packet is, the memory table whether it may be placed; both at once.
        let in_ask = fsm.is("ask");
        let placement = Placement::at(b, "placement");
        let is_same: Vec<S> = placement
            .pending
            .iter()
            .map(|x| x.valid & x.conn.eq(conn) & x.path.eq(m.pxth_path_id) & x.pseq.eq(m.bth_pseq))
            .collect();
        let is_being_placed = b.or_tree(&is_same).named("is_being_placed");
        let has_memory = early.is_zero() & m.payload_len.any();
        let step = |name: &str, first: S<'_>, en: S<'_>| {
            let r = b.reg(name, 1);
            r.set(in_ask.mux(r | en, first));
            r
        };
        let check_wants = b.wire("check_wants", 1);
        let check_taken = b.wire("check_taken", 1);
        let check_sent = step("check_sent", b.low(), check_taken);
        check_wants.set(in_ask & !check_sent & !is_being_placed);
        let check_answered = step("check_answered", b.low(), verdict.valid);
        verdict.ready.set(b.high());
        let mr_sent = step("mr_sent", !has_memory, mr_lookup.ready);
        let mr_answered = step("mr_answered", !has_memory, mr_result.valid);
        mr_result.ready.set(b.high());
        mr_lookup.put(
            in_ask & !mr_sent,
            &MrLookup {
                rkey: m.reth_rkey,
                va: m.reth_va,
                len: m.payload_len.zext(32),
                pd,
                access: b.lit(ACCESS_REMOTE_WRITE.into(), 8),
            },
        );
        let said = verdict.data.reg_en("said", verdict.valid);
        let memory = mr_result.data.reg_en("memory", mr_result.valid);

        // decide: what becomes of the packet.
        let in_decide = fsm.is("decide");
        let between = b.reg_reset("between", BETWEEN_BITS, 0);
        let informed = place_info.valid & place_info.ready;
        between.set(b.select(&[(informed & !placed, between.inc()), (placed & !informed, between.dec())], between));
        // Quiet for as long as a retired message takes to be seen on `msg_base`.
        let quiet = placement.idle & between.is_zero() & msgs_idle;
        let quiet_1 = quiet.delay_reset("quiet", 1);
        let settled = (quiet & quiet_1 & quiet_1.delay_reset("quiet_long", 1)).named("settled");
        let away = (m.mxth_mseq - msg_base.base).named("away");
        let is_beyond = !away.msb() & away.ge(p.msgs);
        let waits = (said.accept & is_beyond & away.lt(2 * p.msgs) & !settled).named("waits");
        let room = credit_read.rq_limit - m.mxth_rsn.trunc(16);
        let has_receive = room.any() & !room.msb();
        let why = b.select(
            &[
                (early.any(), early),
                (m.payload_len.any() & !memory.ok, memory.reason),
                (away.msb() | message.is_done, reason(NakReason::Stream)),
                (is_beyond, reason(NakReason::NoResource)),
                (message.is_too_long, reason(NakReason::Mtu)),
                (m.mxth_imm & !has_receive, reason(NakReason::Rnr)),
            ],
            0,
        );
        let why = (said.accept.rep(8) & why).named("why");
        let arms: Vec<(S, S)> =
            NakReason::ALL.iter().map(|r| (why.eq(r.code()), code(Counter::of_nak(*r)))).collect();
        let becomes = b.select(
            &[
                (said.duplicate, code(Counter::RxDuplicate)),
                (said.out_of_window, code(Counter::RxOutOfWindow)),
                (said.accept, b.one_hot_select(&arms)),
            ],
            b.lit(Counter::RxUnknownPath.code().into(), 8),
        );
        // The judgement, as it is handed on. Of an ACK or a dropped packet only the payload, if any, is swallowed.
        let (accepted, again) = (b.reg("accepted", 1), b.reg("again", 1));
        let (refusal, outcome) = (b.reg("refusal", 8), b.reg("outcome", 8));
        let completes = b.reg("completes", 1);
        b.when(in_route, || {
            accepted.set(0);
            again.set(0);
            refusal.set(0);
            outcome.set(is_good.mux(code(Counter::RxAck), drop));
        });
        b.when(in_decide, || {
            accepted.set(said.accept & why.is_zero());
            again.set(said.duplicate);
            refusal.set(why);
            outcome.set(becomes);
            completes.set(message.completes);
        });

        // hand: to the placement.
        let in_hand = fsm.is("hand");
        let check = PathRxEvent {
            kind: b.lit(PATH_RX_CHECK, 2),
            conn,
            path: m.pxth_path_id,
            pseq: m.bth_pseq,
            epoch: m.pxth_epoch,
            plane: m.pxth_plane,
            tx_ts: m.pxth_tx_ts,
            ce: m.ecn.eq(ECN_CE),
            ack_now: m.bth_ack_req | m.mxth_last,
            rtx: m.bth_rtx,
            len: m.payload_len,
            nak_reason: b.zero(8),
            nak_detail: b.zero(16),
        };
        let tell = accepted | again | refusal.any();
        let has_work = tell | m.payload_beats.any();
        placement.command.valid.set(in_hand & has_work);
        let done = (in_hand & (!has_work | placement.command.ready)).named("done");
        hand_place.set(done & accepted);
        judging.set(!fsm.is("idle"));
        handed.set(hand_place);
        let kind = refusal.any().mux(b.lit(PATH_RX_NAK, 2), b.lit(PATH_RX_COMMIT, 2));
        let told = PathRxEvent { kind, nak_reason: refusal, ..check };
        let info = PlaceInfo {
            conn,
            mseq: m.mxth_mseq,
            payload_len: m.payload_len,
            dma_len: m.reth_dma_len,
            mflags,
            imm: m.immdt_imm,
            rsn: m.mxth_rsn,
            se: m.bth_se,
            complete: completes,
            error: b.low(),
        };
        placement.command.data.set(&Command {
            beats: m.payload_beats,
            place: accepted,
            iova: memory.iova,
            tell,
            event: told.pack(),
            info: info.pack(),
        });
        meta.ready.set(done);
        b.connect(&payload, &placement.payload);
        b.connect(&placement.place, &place);
        b.connect(&placement.place_data, &place_data);
        b.connect(&placement.info, &place_info);

        // A report goes before a check, unless the check is already offered.
        let check_offered = b.reg_reset("check_offered", 1, 0);
        let report = placement.event.valid & !check_offered;
        event.put(report | check_wants, &PathRxEvent::mux(report, &placement.event.data, &check));
        placement.event.ready.set(report & event.ready);
        check_taken.set(check_wants & !report & event.ready);
        check_offered.set(check_wants & !report & !event.ready);

        fsm.step("idle", start, "conn");
        fsm.step("conn", b.high(), "route");
        fsm.step("route", !is_good | is_ack & ack.ready, "hand");
        fsm.step("route", is_good & is_write, "ask");
        fsm.step("ask", check_answered & mr_answered, "decide");
        fsm.step("decide", !waits, "hand");
        fsm.step("hand", done, "idle");

        count[0].drive_amounts(b, &[(done & outcome.any(), outcome, b.lit(1, 16))]);
        count[1].drive(b, &[(placement.placed, Counter::RxData)]);
        let bytes = placement.placed_len.zext(16);
        count[2].drive_amounts(b, &[(placement.placed, code(Counter::RxDataBytes), bytes)]);
        count[3].drive(b, &[(done & m.drop.is_zero() & m.ecn.eq(ECN_CE), Counter::RxCe)]);
        count[4].drive(b, &[(done & is_good & is_ack & m.axth_nak, Counter::RxNak)]);
        b.assert("memory_is_asked_once", !in_ask | !mr_result.valid | mr_sent);
        b.cover("waits_for_messages", in_decide & waits);
        b.cover("same_packet_is_being_placed", in_ask & is_being_placed);
    }
}

#[cfg(test)]
mod tests;
