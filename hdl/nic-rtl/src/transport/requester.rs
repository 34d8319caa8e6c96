//! Cuts messages into packets and spreads them over the open paths of their connection.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ctx` | [`CtxWrite`] | valid/ready | a row of `conn` forgets the connection's messages; others are ignored |
//! | `message` | [`TxMessage`] | valid/ready, always ready | two messages of a connection at most, see `credit` |
//! | `credit` | [`TxCredit`] | valid only | a message is cut to its end: one more of that connection may come |
//! | `open` | [`MsgOpen`] | valid/ready | each message, before its first packet |
//! | `alloc` | [`AllocRequest`] | valid/ready | each packet once |
//! | `can_open` | 1 a connection | | msg_tx has a free slot; exact two cycles after `open` took one |
//! | `path_open` | 1 a path row | | the path takes one more packet; exact two cycles after `alloc` took one |
//! | `conn_valid`, `conn_error` | 1 a connection | | which connections are in use, which have failed |
//! | `conn_read` | [`ConnRead`] | none | PMTU of the connection |
//!
//! One packet at a time: connections in turn, and within a connection its open paths in turn. A connection whose paths
//! are all full, or whose message slots are used up, does not hold up the others. A message with a bad status, and every
//! message of a connection that has failed, is opened with no packets and a status: it completes in order.
//!
//! 5 cycles a packet when nothing waits; latency `message` to `alloc` 7. Reset: no messages. State a connection: two
//! messages of 307 bits, 40 bits of progress in RAM, 4 in flops. Drops: none.

use super::vector::{bit_at, bit_mask, next_after};
use crate::{
    params::NicParams,
    stream::{
        mflag, AllocRequest, ConnContext, ConnRead, CtxWrite, MsgOpen, PacketDesc, TxCredit, TxMessage, CONN_BITS,
        LEN_BITS, PATH_BITS, SLOT_BITS,
    },
};
use nic_spec::{
    consts::{PMTU_LOG2_MAX, PMTU_LOG2_MIN},
    desc::{Status, Table},
};
use rtl_graph::*;

record! {
    /// How far the active message is cut.
    struct Progress(p: &NicParams) {
        /// Bytes sent.
        offset: 32,
        /// Path of the last packet.
        path: p.path_bits(),
    }
}

/// What `of` gives for the PMTU's logarithm; out of range it counts as the smallest.
fn per_pmtu<'a>(pmtu_log2: S<'a>, of: impl Fn(u32) -> S<'a>) -> S<'a> {
    let (min, max) = (u32::from(PMTU_LOG2_MIN), u32::from(PMTU_LOG2_MAX));
    let arms: Vec<(S, S)> = (min + 1..=max).map(|log2| (pmtu_log2.eq(u64::from(log2)), of(log2))).collect();
    pmtu_log2.builder().select(&arms, of(min))
}

module! {
    /// The requester.
    pub struct Requester = "nic_transport_requester" (p: &NicParams) {
        ctx: in Stream<CtxWrite>,
        message: in Stream<TxMessage>,
        credit: out TxCredit,
        open: out Stream<MsgOpen>,
        alloc: out Stream<AllocRequest>,
        can_open: in Uint(p.conns),
        path_open: in Uint(p.rows()),
        conn_valid: in Uint(p.conns),
        conn_error: in Uint(p.conns),
        conn_read: out ConnRead,
    } |b| {
        let (n, bits) = (p.conns, p.conn_bits());
        let fsm = b.fsm("state", &["idle", "row", "cut", "open", "alloc", "gap"]);

        // One bit a connection: which of the two places holds the message being cut, is there one, is there another
        // behind it, was it opened.
        let place = b.reg_reset("place", n, 0);
        let active = b.reg_reset("active", n, 0);
        let waiting = b.reg_reset("waiting", n, 0);
        let opened = b.reg_reset("opened", n, 0);

        // A context row comes between packets, so nothing that it forgets is half done.
        let in_idle = fsm.is("idle");
        let is_conn = ctx.data.table.eq(Table::Conn.code()) & ctx.data.index.shr(bits).is_zero();
        ctx.ready.set(in_idle | !is_conn);
        let forget = (ctx.valid & is_conn & in_idle).named("forget");
        let forgotten = bit_mask(n, ctx.data.index.trunc(bits), forget).named("forgotten");

        // A message takes the place that is free; one of a connection that was closed meanwhile is dropped.
        message.ready.set(b.high());
        let to = message.data.conn.trunc(bits);
        let keep = (message.valid & bit_at(conn_valid, to) & !bit_at(forgotten, to)).named("keep");
        let arrives = bit_mask(n, to, keep).named("arrives");
        let messages = b.mem("messages", 2 * u64::from(n), TxMessage::width()).style(RamStyle::Distributed);
        messages.write(keep, to.cat(bit_at(place, to) ^ bit_at(active, to)), message.payload());

        // idle: the next connection that can do something.
        let has_path: Vec<S> = path_open.chunks(p.paths).iter().map(|paths| paths.any()).collect();
        let has_path = b.cat(&has_path.into_iter().rev().collect::<Vec<_>>()).named("has_path");
        let able = (active & (opened & (has_path | conn_error) | !opened & can_open)).named("able");
        let last_conn = b.reg_reset("last_conn", bits, 0);
        let (found, next_conn) = next_after(able, last_conn);
        let take = (in_idle & found & !forget).named("take");
        last_conn.set_en(take, next_conn);
        fsm.step("idle", take, "row");
        let conn = last_conn;
        conn_read.conn.set(in_idle.mux(next_conn, conn).zext(CONN_BITS));

        // row: everything about it.
        let in_row = fsm.is("row");
        let msg = TxMessage::unpack(messages.read_async(conn.cat(bit_at(place, conn)))).reg_en("msg", in_row);
        let context = ConnContext::unpack(conn_read.row);
        let progress = b.mem("progress", n.into(), Progress::width(p)).style(RamStyle::Distributed);
        let so_far = Progress::unpack(progress.read_async(conn), p).reg_en("so_far", in_row);
        let is_opened = b.reg("is_opened", 1);
        is_opened.set_en(in_row, bit_at(opened, conn));
        let paths = b.reg("paths", p.paths);
        paths.set_en(in_row, path_open.chunks(p.paths).into_iter().enumerate().map(|(k, v)| (conn.eq(k as u64), v)).fold(b.zero(p.paths), |acc, (hit, v)| acc | hit.rep(p.paths) & v));
        let pmtu_log2 = b.reg("pmtu_log2", context.pmtu_log2.width());
        pmtu_log2.set_en(in_row, context.pmtu_log2);
        fsm.step("row", b.high(), "cut");

        // cut: the packet, or the message's packet count; a PMTU out of range counts as the smallest.
        let in_cut = fsm.is("cut");
        let has_failed = bit_at(conn_error, conn).named("has_failed");
        let pmtu = per_pmtu(pmtu_log2, |log2| b.lit(1 << log2, LEN_BITS)).named("pmtu");
        let count = per_pmtu(pmtu_log2, |log2| (msg.len.shr(log2) + msg.len.trunc(log2).any().zext(32)).trunc(23)).named("count");
        let pkt_count = b.reg("pkt_count", 23);
        pkt_count.set_en(in_cut, msg.len.is_zero().mux(1, count));
        let left = (msg.len - so_far.offset).named("left");
        let is_last_now = left.le(pmtu.zext(32)).named("is_last_now");
        let is_last = b.reg("is_last", 1);
        is_last.set_en(in_cut, is_last_now);
        let payload_len = b.reg("payload_len", LEN_BITS);
        payload_len.set_en(in_cut, is_last_now.mux(left.trunc(LEN_BITS), pmtu));
        let (has_route, route) = next_after(paths, so_far.path);
        let path = b.reg("path", p.path_bits());
        path.set_en(in_cut, route);
        // An opened message of a failed connection is left: msg_tx flushes it.
        let abandon = (in_cut & is_opened & has_failed).named("abandon");
        fsm.step("cut", !is_opened, "open");
        fsm.step("cut", is_opened & !has_failed & has_route, "alloc");
        fsm.step("cut", is_opened & (has_failed | !has_route), "idle");

        // open: with its packets, or with none and a status.
        let is_flushed = b.reg("is_flushed", 1);
        is_flushed.set_en(in_cut, has_failed);
        let is_bad = (is_flushed | msg.status.any()).named("is_bad");
        let in_open = fsm.is("open");
        let status = msg.status.any().mux(msg.status, is_flushed.mux(Status::WrFlush as u64, b.zero(8)));
        open.put(in_open, &MsgOpen {
            conn: conn.zext(CONN_BITS),
            mseq: msg.mseq,
            pkt_count: is_bad.mux(0, pkt_count),
            wqe_index: msg.wqe_index,
            opcode: msg.opcode,
            signaled: msg.signaled,
            len: msg.len,
            status,
        });
        let opens = in_open & open.ready;
        fsm.step("open", open.ready, "gap");

        // alloc: the packet asks for its sequence number.
        let in_alloc = fsm.is("alloc");
        let is_first = so_far.offset.is_zero();
        let flags = [("first", is_first), ("last", is_last), ("imm", msg.imm_valid), ("se", msg.se), ("fence", msg.fence)];
        let mflags = flags.iter().fold(b.zero(8), |acc, (name, on)| acc | on.zext(8).shl(mflag(name)));
        let desc = PacketDesc {
            iova: msg.iova + so_far.offset.zext(64),
            payload_len,
            remote_va: msg.remote_va + so_far.offset.zext(64),
            rkey: msg.rkey,
            dma_len: msg.len,
            mseq: msg.mseq,
            rsn: msg.rsn,
            mflags,
            imm: msg.imm,
            se: msg.se & is_last,
            msg_slot: msg.mseq.trunc(p.slot_bits()).zext(SLOT_BITS),
        };
        alloc.put(in_alloc, &AllocRequest {
            conn: conn.zext(CONN_BITS),
            path: path.zext(PATH_BITS),
            ack_req: is_last,
            eob: is_last & !bit_at(waiting, conn),
            desc: desc.pack(),
        });
        let sends = in_alloc & alloc.ready;
        fsm.step("alloc", alloc.ready, "gap");
        // gap: path_open and can_open catch up with what was taken.
        fsm.step("gap", b.high(), "idle");

        let ends = (sends & is_last | opens & is_bad | abandon).named("ends");
        let starts_over = opens | ends;
        let (on, to_row) = (sends | starts_over | forget, forget.mux(ctx.data.index.trunc(bits), conn));
        // The first packet of a connection takes its first open path.
        let last_path = b.select(&[(forget, b.ones(p.path_bits())), (sends, path)], so_far.path);
        let offset = (starts_over | forget).mux(0, so_far.offset + payload_len.zext(32));
        progress.write(on, to_row, Progress { offset, path: last_path }.pack());
        let here = |on| bit_mask(n, conn, on);
        let gone = here(ends).named("gone");
        place.set(place ^ gone);
        opened.set((opened | here(opens & !is_bad)) & !gone & !forgotten);
        let behind = waiting & !gone | arrives & active & !gone;
        waiting.set(behind & !forgotten);
        active.set((active & !gone | gone & waiting | arrives & (!active | gone)) & !forgotten);
        credit.valid.set(ends);
        credit.conn.set(conn.zext(CONN_BITS));
        b.assert("no_third_message", !keep | !bit_at(waiting, to));
    }
}

#[cfg(test)]
mod tests;
