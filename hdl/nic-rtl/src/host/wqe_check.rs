//! Checks WQEs as they come from memory and makes messages of them.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `entry`, `wqe` | [`Fetch`], [`ReadBeat`] | valid/ready | WQEs in order; one to be flushed has no beat |
//! | `conn_read` | [`ConnRead`] | | protection domain of the connection |
//! | `lookup`, `verdict` | [`MrLookup`], [`MrResult`] | valid/ready | check of local memory, answered in order |
//! | `message` | [`TxMessage`] | valid/ready | messages in order, registered |
//! | `ctx` | [`CtxWrite`] | valid/ready | table `conn`: first MSEQ and RSN; others are taken and ignored |
//! | `conn_error` | `conns` | | connections in error |
//! | `life` | `conns` | | entries of another life are forgotten |
//! | `failed` | `conns` | | connections that have had a message with a bad status since their row was written |
//! | `delivered`, `forgotten`, `reopened` | [`ConnPulse`] | valid only | for the credits |
//! | `count` × 2 | | | `wqe_fetched_count`; `wqe_bad_count`, `wqe_flushed_count` |
//!
//! The first that applies is the status: WR_FLUSH (connection in error or failed), LOC_DMA (memory answered with an
//! error), LOC_QP_OP (unknown opcode, a reserved bit set, connection not valid), LOC_LEN (more than 2^31 bytes), LOC_PROT
//! (no memory region permits it; not asked for a message of no bytes). A row write is taken when no message waits at the
//! port, so those who get it later never see an old message. Latency 8 cycles; 1 WQE in 2 cycles. Reset empties it; MSEQ
//! and RSN are undefined until the row is written. State: 48 bits a connection. Drops: what is forgotten, uncounted.

use super::send_queue::{at, bit_of, ConnPulse, Fetch};
use crate::{
    params::NicParams,
    prim::fifo,
    stream::{
        field_of, ConnContext, ConnRead, Count, CtxWrite, MrLookup, MrResult, ReadBeat, TxMessage, CONN_BITS, PSN_BITS,
    },
};
use nic_spec::{
    consts::MSG_BYTES_MAX,
    csr::stats::Counter,
    desc::{ConnRow, Status, Table, Wqe, WqeOpcode},
};
use rtl_graph::*;

/// WQEs whose memory is being looked up, at most.
const LOOKUPS: u32 = 8;

record! {
    /// A WQE, and what the check has found so far.
    struct Checked {
        conn: CONN_BITS,
        index: 16,
        life: 1,
        opcode: 8,
        signaled: 1,
        solicited: 1,
        fence: 1,
        length: 32,
        rkey: 32,
        remote_va: 64,
        imm: 32,
        status: 8,
        /// The verdict on its memory is on the way.
        asked: 1,
    }
}

record! {
    /// Next numbers of a connection.
    struct Numbers { mseq: PSN_BITS, rsn: PSN_BITS }
}

fn status(b: &B, status: Status) -> S<'_> {
    b.lit(status as u64, 8)
}

module! {
    /// The check.
    pub struct WqeCheck = "nic_host_wqe_check" (params: &NicParams) {
        entry: in Stream<Fetch>,
        wqe: in Stream<ReadBeat>,
        conn_read: out ConnRead,
        lookup: out Stream<MrLookup>,
        verdict: in Stream<MrResult>,
        message: out Stream<TxMessage>,
        ctx: in Stream<CtxWrite>,
        conn_error: in Uint(params.conns),
        life: in Uint(params.conns),
        failed: out Uint(params.conns),
        delivered: out ConnPulse,
        forgotten: out ConnPulse,
        reopened: out ConnPulse,
        count: out Count [2],
    } |b| {
        let (conns, bits) = (params.conns, params.conn_bits());

        // s1: a WQE; the connection's row arrives with it.
        let s1_valid = b.reg_reset("s1_valid", 1, 0);
        let s1_go = b.wire("s1_go", 1);
        let s1_free = (!s1_valid | s1_go).named("s1_free");
        let take = (entry.valid & (entry.data.flush | wqe.valid) & s1_free).named("take");
        entry.ready.set(take);
        wqe.ready.set(take & !entry.data.flush);
        s1_valid.set_en(s1_free, take);
        let s1 = entry.data.reg_en("s1", take);
        let row = wqe.data.data;
        let of_wqe = |name: &str| {
            let value = field_of(row, Wqe::LAYOUT.field(name));
            let r = b.reg(&format!("s1_wqe_{name}"), value.width());
            r.set_en(take, value);
            r
        };
        let reserved: Vec<S> =
            Wqe::LAYOUT.fields.iter().filter(|f| f.is_reserved()).map(|f| field_of(row, *f).any()).collect();
        let has_reserved = b.reg("s1_has_reserved", 1);
        has_reserved.set_en(take, b.or_tree(&reserved));
        let read_failed = b.reg("s1_read_failed", 1);
        read_failed.set_en(take, wqe.data.error);
        conn_read.conn.set(s1_free.mux(entry.data.conn, s1.conn));
        let conn = ConnContext::unpack(conn_read.row);
        count[0].drive(b, &[(take & !entry.data.flush, Counter::WqeFetched)]);

        let (opcode, length) = (of_wqe("opcode"), of_wqe("length"));
        let opcodes: Vec<S> = WqeOpcode::ALL.iter().map(|code| opcode.eq(*code as u8)).collect();
        let is_known = b.or_tree(&opcodes).named("is_known");
        let bad_op = !is_known | has_reserved | !conn.valid;
        let too_long = length.gt(MSG_BYTES_MAX);
        let found = b.select(
            &[
                (s1.flush, status(b, Status::WrFlush)),
                (read_failed, status(b, Status::LocDma)),
                (bad_op, status(b, Status::LocQpOp)),
                (too_long, status(b, Status::LocLen)),
            ],
            status(b, Status::Ok),
        );
        let asked = (found.is_zero() & length.any()).named("asked");
        let zero_when_flushed = |value| s1.flush.mux(b.zero(S::width(value)), value);
        let checked = Checked {
            conn: s1.conn,
            index: s1.index,
            life: s1.life,
            // What completes carries an opcode that exists: a receive's could not be told from it otherwise.
            opcode: zero_when_flushed(opcode & is_known.rep(8)),
            signaled: of_wqe("signaled"),
            solicited: of_wqe("solicited"),
            fence: of_wqe("fence"),
            length: zero_when_flushed(length),
            rkey: of_wqe("rkey"),
            remote_va: of_wqe("remote_va"),
            imm: of_wqe("imm"),
            status: found,
            asked,
        };
        let checked_in = Stream { data: checked, valid: b.wire("checked_valid", 1), ready: b.wire("checked_ready", 1) };
        let queue = fifo(b, "checked", &checked_in, LOOKUPS);
        checked_in.valid.set(s1_valid & (!asked | lookup.ready));
        let question = MrLookup {
            rkey: of_wqe("lkey"),
            va: of_wqe("local_va"),
            len: length,
            pd: conn.pd,
            access: b.zero(8),
        };
        lookup.put(s1_valid & asked & checked_in.ready, &question);
        s1_go.set(checked_in.fire());

        // s2, s3: the numbers of the connection, then the message.
        let acting = b.reg_reset("acting", 1, 0);
        let out_valid = b.reg_reset("out_valid", 1, 0);
        let is_conn = ctx.data.table.eq(Table::Conn as u8);
        let renumber = (ctx.valid & is_conn & !acting & !out_valid).named("renumber");
        let start = (queue.valid & (!queue.data.asked | verdict.valid) & !acting & !(out_valid & !message.ready)).named("start");
        let start = start & !(ctx.valid & is_conn);
        acting.set(start);
        let head = queue.data;
        let index = head.conn.trunc(bits);
        let numbers = b.mem("numbers", conns.into(), Numbers::width());
        let now = Numbers::unpack(numbers.read(index)).named("now");
        queue.ready.set(acting);
        verdict.ready.set(acting & head.asked);

        let failed_q = b.reg_reset("failed_q", conns, 0);
        let is_stale = (bit_of(life, index) ^ head.life).named("is_stale");
        let is_stopped = bit_of(failed_q | conn_error, index).named("is_stopped");
        let denied = head.asked & !verdict.data.ok;
        let verdict_status = b.select(
            &[(is_stopped, status(b, Status::WrFlush)), (denied, status(b, Status::LocProt))],
            head.status,
        );
        let is_good = verdict_status.is_zero().named("is_good");
        let send = (acting & !is_stale).named("send");
        let imm_valid = head.opcode.eq(WqeOpcode::WriteImm as u8);
        let out = TxMessage {
            conn: head.conn,
            wqe_index: head.index,
            opcode: head.opcode,
            imm_valid,
            se: head.solicited,
            fence: head.fence,
            signaled: head.signaled,
            len: head.length,
            iova: (head.asked & is_good).mux(verdict.data.iova, 0),
            remote_va: head.remote_va,
            rkey: head.rkey,
            imm: head.imm,
            mseq: now.mseq,
            rsn: imm_valid.mux(now.rsn, 0),
            status: verdict_status,
        };
        message.put(out_valid, &out.reg_en("out", send));
        out_valid.when(message.ready, 0);
        out_valid.when(send, 1);

        let field = |name| field_of(ctx.data.data, ConnRow::LAYOUT.field(name));
        let first = Numbers { mseq: field("init_msn"), rsn: field("init_rsn") };
        let after = Numbers { mseq: now.mseq.inc(), rsn: (imm_valid & is_good).mux(now.rsn.inc(), now.rsn) };
        let ctx_index = ctx.data.index.trunc(bits);
        numbers.write(renumber | send, renumber.mux(ctx_index, index), renumber.mux(first.pack(), after.pack()));
        failed_q.set((failed_q & !at(renumber, ctx_index, conns)) | at(send & !is_good, index, conns));
        failed.set(failed_q);
        ctx.ready.set(renumber | (ctx.valid & !is_conn));

        b.assert("one_leaves_at_a_time", !(message.fire() & acting));
        let is_flushed = verdict_status.eq(status(b, Status::WrFlush));
        count[1].drive(
            b,
            &[(send & is_flushed, Counter::WqeFlushed), (send & !is_good & !is_flushed, Counter::WqeBad)],
        );
        for (pulse, on, conn) in [
            (delivered, message.fire(), message.data.conn),
            (forgotten, acting & is_stale, head.conn),
            (reopened, renumber, ctx_index.zext(CONN_BITS)),
        ] {
            pulse.valid.set(on);
            pulse.conn.set(conn);
        }
    }
}
