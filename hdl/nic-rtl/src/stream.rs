//! What flows between the card's blocks: one record a stream, widths architectural and constant.
//!
//! A stream is [`rtl_graph::Stream`] of a record: `valid` does not wait for `ready`, the record is stable until taken.
//! Fields that come from a header have the width that the header's table states and are named `HEADER_field`. Fields
//! that several records share are numbers with the least significant bit first, but [`RxMeta`] and [`AckPacket`], which
//! mirror the wire: there `sack_bitmap` is the header's number, its most significant bit standing for cum + 1.
//!
//! Beside the streams: read ports of tables ([`ConnRead`] and others: the row of the index presented before a clock
//! edge stands on the port after it), counter events ([`Count`]) and the settings of the `transport` registers.

use nic_spec::{
    csr::{self, stats::Counter},
    desc::{AhRow, ConnRow, MrRow},
    layout::{Field, Layout},
    register::Register,
    wire::{Axth, Bth, ImmDt, Mxth, Nxth, Pxth, Reth, Sack},
};
use rtl_graph::{bundle, record, B, S};

/// Bits of a connection index on every port.
pub const CONN_BITS: u32 = 12;
/// Bits of a path id on every port.
pub const PATH_BITS: u32 = 8;
/// Bits of a completion queue number on every port.
pub const CQ_BITS: u32 = 12;
/// Bits of a message slot index on every port.
pub const SLOT_BITS: u32 = 6;
/// Bits of a context table's row index.
pub const ROW_BITS: u32 = 16;
/// Bits of a context row.
pub const CTX_BITS: u32 = 512;
/// Bits of a packet's payload length. Bytes, 0..=8192.
pub const LEN_BITS: u32 = 14;
/// Bytes of a beat of packet or memory data.
pub const BEAT_BYTES: u32 = 64;
/// Bits of an address in host memory.
pub const ADDR_BITS: u32 = 64;
/// Bits of a number of core clock ticks.
pub const TIME_BITS: u32 = 32;
/// Bits of PSEQ, MSEQ and RSN.
pub const PSN_BITS: u32 = nic_spec::consts::PSN_BITS;
/// Bits of the selective acknowledgement bitmap.
pub const SACK_BITS: u32 = nic_spec::consts::SACK_BITS;

/// Width of a field of a table.
#[track_caller]
pub fn field_bits(layout: &Layout, name: &str) -> u32 {
    layout.field(name).bits as u32
}

/// The field of a context row, a WQE or another little-endian format held with byte 0 in bits 7:0.
#[track_caller]
pub fn field_of<'a>(row: S<'a>, field: Field) -> S<'a> {
    let lanes: Vec<S> = field.lanes(0).map(|(lsb, bits)| row.bits(lsb as u32, bits as u32)).collect();
    row.builder().cat(&lanes)
}

/// The bit of `mflags`, the first byte of MXTH as a number, that the one-bit field `name` of MXTH is.
#[track_caller]
pub fn mflag(name: &str) -> u32 {
    let field = Mxth::LAYOUT.field(name);
    assert!(field.bits == 1 && field.bit_offset < 8, "`{name}` is no flag of MXTH");
    7 - field.bit_offset as u32
}

fn csr_bits(register: &Register) -> u32 {
    register.fields.first().map_or(32, |f| f.bits)
}

record! {
    /// What a retransmission needs to know of a packet. Part of other records, packed.
    pub struct PacketDesc {
        /// Address of the payload in host memory.
        iova: ADDR_BITS,
        /// Bytes of payload.
        payload_len: LEN_BITS,
        /// Address of the first byte at the receiver.
        remote_va: field_bits(&Reth::LAYOUT, "va"),
        rkey: field_bits(&Reth::LAYOUT, "rkey"),
        /// Length of the whole message. Bytes.
        dma_len: field_bits(&Reth::LAYOUT, "dma_len"),
        mseq: field_bits(&Mxth::LAYOUT, "mseq"),
        rsn: field_bits(&Mxth::LAYOUT, "rsn"),
        /// First byte of MXTH; see [`mflag`].
        mflags: 8,
        imm: field_bits(&ImmDt::LAYOUT, "imm"),
        /// BTH.SE.
        se: field_bits(&Bth::LAYOUT, "se"),
        /// Slot of the message in msg_tx.
        msg_slot: SLOT_BITS,
    }
}

record! {
    /// A doorbell write.
    pub struct Doorbell {
        /// 0 = send queue, 1 = receive queue, 2 = completion queue.
        kind: 2,
        /// Connection, or completion queue.
        number: CONN_BITS,
        /// New producer index, receives posted so far, or new consumer index.
        index: 16,
        /// Completion queue: interrupt wanted.
        arm: 1,
    }
}
/// `Doorbell.kind` of a send queue.
pub const DOORBELL_SQ: u64 = 0;
/// `Doorbell.kind` of a receive queue.
pub const DOORBELL_RQ: u64 = 1;
/// `Doorbell.kind` of a completion queue.
pub const DOORBELL_CQ: u64 = 2;

record! {
    /// A message to send.
    pub struct TxMessage {
        conn: CONN_BITS,
        wqe_index: 16,
        /// WQE opcode, also the opcode of the completion.
        opcode: 8,
        imm_valid: 1,
        /// Solicited event.
        se: 1,
        fence: 1,
        signaled: 1,
        /// Bytes.
        len: 32,
        /// Address of the first byte in host memory.
        iova: ADDR_BITS,
        /// Address of the first byte at the receiver.
        remote_va: field_bits(&Reth::LAYOUT, "va"),
        rkey: field_bits(&Reth::LAYOUT, "rkey"),
        imm: field_bits(&ImmDt::LAYOUT, "imm"),
        mseq: field_bits(&Mxth::LAYOUT, "mseq"),
        rsn: field_bits(&Mxth::LAYOUT, "rsn"),
        /// 0 = good; otherwise nothing is sent and the message completes with this status.
        status: 8,
    }
}

record! {
    /// Tells msg_tx of a message before its first packet.
    pub struct MsgOpen {
        conn: CONN_BITS,
        mseq: PSN_BITS,
        /// Packets to be acknowledged; 0 with a bad status.
        pkt_count: 23,
        wqe_index: 16,
        opcode: 8,
        signaled: 1,
        /// Bytes.
        len: 32,
        status: 8,
    }
}

record! {
    /// A packet that wants a PSEQ.
    pub struct AllocRequest {
        conn: CONN_BITS,
        path: PATH_BITS,
        ack_req: 1,
        eob: 1,
        /// A [`PacketDesc`].
        desc: PacketDesc::width(),
    }
}

record! {
    /// A sequenced packet to send, for the first time or again.
    pub struct TxPacket {
        conn: CONN_BITS,
        path: PATH_BITS,
        plane: field_bits(&Pxth::LAYOUT, "plane"),
        epoch: field_bits(&Pxth::LAYOUT, "epoch"),
        sport: 16,
        pseq: PSN_BITS,
        tx_ts: TIME_BITS,
        rtx: 1,
        ack_req: 1,
        eob: 1,
        /// A [`PacketDesc`].
        desc: PacketDesc::width(),
    }
}

record! {
    /// An acknowledgement to send.
    pub struct AckPacket {
        conn: CONN_BITS,
        /// Path it travels on, with that path's plane, epoch and port.
        path: PATH_BITS,
        plane: field_bits(&Pxth::LAYOUT, "plane"),
        epoch: field_bits(&Pxth::LAYOUT, "epoch"),
        sport: 16,
        tx_ts: TIME_BITS,
        axth_bm: field_bits(&Axth::LAYOUT, "bm"),
        axth_ce: field_bits(&Axth::LAYOUT, "ce"),
        axth_dup: field_bits(&Axth::LAYOUT, "dup"),
        axth_rtxe: field_bits(&Axth::LAYOUT, "rtxe"),
        axth_hint: field_bits(&Axth::LAYOUT, "hint"),
        axth_nak: field_bits(&Axth::LAYOUT, "nak"),
        axth_credit: field_bits(&Axth::LAYOUT, "credit"),
        axth_apath: field_bits(&Axth::LAYOUT, "apath"),
        axth_plane: field_bits(&Axth::LAYOUT, "plane"),
        axth_epoch: field_bits(&Axth::LAYOUT, "epoch"),
        axth_syndrome: field_bits(&Axth::LAYOUT, "syndrome"),
        axth_cum_pseq: field_bits(&Axth::LAYOUT, "cum_pseq"),
        axth_trig_pseq: field_bits(&Axth::LAYOUT, "trig_pseq"),
        axth_ts_echo: field_bits(&Axth::LAYOUT, "ts_echo"),
        axth_hold: field_bits(&Axth::LAYOUT, "hold"),
        axth_ce_cnt: field_bits(&Axth::LAYOUT, "ce_cnt"),
        axth_hint_seq: field_bits(&Axth::LAYOUT, "hint_seq"),
        axth_rate_hint: field_bits(&Axth::LAYOUT, "rate_hint"),
        axth_cstream: field_bits(&Axth::LAYOUT, "cstream"),
        axth_rq_limit: field_bits(&Axth::LAYOUT, "rq_limit"),
        /// As on the wire: the most significant bit stands for cum + 1.
        sack_bitmap: SACK_BITS,
        nxth_reason: field_bits(&Nxth::LAYOUT, "reason"),
        nxth_detail: field_bits(&Nxth::LAYOUT, "detail"),
    }
}

record! {
    /// All that was learnt of a frame, one a frame in order, after its last byte. Headers that it has not are undefined.
    pub struct RxMeta {
        /// 0 = good, else the code of the counter: to be counted and dropped.
        drop: 8,
        bth_opcode: field_bits(&Bth::LAYOUT, "opcode"),
        bth_se: field_bits(&Bth::LAYOUT, "se"),
        bth_m: field_bits(&Bth::LAYOUT, "m"),
        bth_pad_count: field_bits(&Bth::LAYOUT, "pad_count"),
        bth_tver: field_bits(&Bth::LAYOUT, "tver"),
        bth_pkey: field_bits(&Bth::LAYOUT, "pkey"),
        bth_fecn: field_bits(&Bth::LAYOUT, "fecn"),
        bth_becn: field_bits(&Bth::LAYOUT, "becn"),
        bth_dest_qpn: field_bits(&Bth::LAYOUT, "dest_qpn"),
        bth_ack_req: field_bits(&Bth::LAYOUT, "ack_req"),
        bth_rtx: field_bits(&Bth::LAYOUT, "rtx"),
        bth_eob: field_bits(&Bth::LAYOUT, "eob"),
        bth_pseq: field_bits(&Bth::LAYOUT, "pseq"),
        pxth_path_id: field_bits(&Pxth::LAYOUT, "path_id"),
        pxth_plane: field_bits(&Pxth::LAYOUT, "plane"),
        pxth_epoch: field_bits(&Pxth::LAYOUT, "epoch"),
        pxth_stream_id: field_bits(&Pxth::LAYOUT, "stream_id"),
        pxth_tx_ts: field_bits(&Pxth::LAYOUT, "tx_ts"),
        mxth_first: field_bits(&Mxth::LAYOUT, "first"),
        mxth_last: field_bits(&Mxth::LAYOUT, "last"),
        mxth_imm: field_bits(&Mxth::LAYOUT, "imm"),
        mxth_inv: field_bits(&Mxth::LAYOUT, "inv"),
        mxth_se: field_bits(&Mxth::LAYOUT, "se"),
        mxth_fence: field_bits(&Mxth::LAYOUT, "fence"),
        mxth_tag: field_bits(&Mxth::LAYOUT, "tag"),
        mxth_mseq: field_bits(&Mxth::LAYOUT, "mseq"),
        mxth_rsn: field_bits(&Mxth::LAYOUT, "rsn"),
        reth_va: field_bits(&Reth::LAYOUT, "va"),
        reth_rkey: field_bits(&Reth::LAYOUT, "rkey"),
        reth_dma_len: field_bits(&Reth::LAYOUT, "dma_len"),
        immdt_imm: field_bits(&ImmDt::LAYOUT, "imm"),
        axth_bm: field_bits(&Axth::LAYOUT, "bm"),
        axth_ce: field_bits(&Axth::LAYOUT, "ce"),
        axth_dup: field_bits(&Axth::LAYOUT, "dup"),
        axth_rtxe: field_bits(&Axth::LAYOUT, "rtxe"),
        axth_hint: field_bits(&Axth::LAYOUT, "hint"),
        axth_nak: field_bits(&Axth::LAYOUT, "nak"),
        axth_credit: field_bits(&Axth::LAYOUT, "credit"),
        axth_apath: field_bits(&Axth::LAYOUT, "apath"),
        axth_plane: field_bits(&Axth::LAYOUT, "plane"),
        axth_epoch: field_bits(&Axth::LAYOUT, "epoch"),
        axth_syndrome: field_bits(&Axth::LAYOUT, "syndrome"),
        axth_cum_pseq: field_bits(&Axth::LAYOUT, "cum_pseq"),
        axth_trig_pseq: field_bits(&Axth::LAYOUT, "trig_pseq"),
        axth_ts_echo: field_bits(&Axth::LAYOUT, "ts_echo"),
        axth_hold: field_bits(&Axth::LAYOUT, "hold"),
        axth_ce_cnt: field_bits(&Axth::LAYOUT, "ce_cnt"),
        axth_hint_seq: field_bits(&Axth::LAYOUT, "hint_seq"),
        axth_rate_hint: field_bits(&Axth::LAYOUT, "rate_hint"),
        axth_cstream: field_bits(&Axth::LAYOUT, "cstream"),
        axth_rq_limit: field_bits(&Axth::LAYOUT, "rq_limit"),
        /// As on the wire: the most significant bit stands for cum + 1.
        sack_bitmap: field_bits(&Sack::LAYOUT, "bitmap"),
        nxth_reason: field_bits(&Nxth::LAYOUT, "reason"),
        nxth_detail: field_bits(&Nxth::LAYOUT, "detail"),
        /// UDP source port of the packet.
        sport: 16,
        /// ECN field of the IP header.
        ecn: 2,
        /// Bytes of payload without pad.
        payload_len: LEN_BITS,
        /// Beats that stand for this packet in the payload stream, whether it is good or dropped. 0..=128.
        payload_beats: 8,
    }
}

record! {
    /// An acknowledgement that arrived.
    pub struct AckEvent {
        conn: CONN_BITS,
        /// Path that is acknowledged.
        apath: PATH_BITS,
        epoch: field_bits(&Axth::LAYOUT, "epoch"),
        cum: PSN_BITS,
        trig: PSN_BITS,
        /// Bit i stands for cum + 1 + i. Zero when the ACK had no bitmap.
        sack: SACK_BITS,
        ts_echo: TIME_BITS,
        /// First byte of AXTH.
        flags: 8,
        ce_cnt: field_bits(&Axth::LAYOUT, "ce_cnt"),
        /// 0 = no refusal.
        nak_reason: field_bits(&Nxth::LAYOUT, "reason"),
        nak_detail: field_bits(&Nxth::LAYOUT, "detail"),
    }
}

record! {
    /// A question to, or a command for, the receiving side of a path.
    pub struct PathRxEvent {
        /// 0 = check, 1 = commit, 2 = nak.
        kind: 2,
        conn: CONN_BITS,
        path: PATH_BITS,
        pseq: PSN_BITS,
        epoch: field_bits(&Pxth::LAYOUT, "epoch"),
        plane: field_bits(&Pxth::LAYOUT, "plane"),
        tx_ts: TIME_BITS,
        /// Marked congestion experienced.
        ce: 1,
        /// The packet wants an ACK at once (A bit, LAST).
        ack_now: 1,
        rtx: 1,
        /// Bytes of payload.
        len: LEN_BITS,
        /// nak: why.
        nak_reason: field_bits(&Nxth::LAYOUT, "reason"),
        nak_detail: field_bits(&Nxth::LAYOUT, "detail"),
    }
}
/// `PathRxEvent.kind`: what would become of this packet? Changes nothing; answered by one [`PathRxVerdict`].
pub const PATH_RX_CHECK: u64 = 0;
/// `PathRxEvent.kind`: the packet is received (or came again). No answer.
pub const PATH_RX_COMMIT: u64 = 1;
/// `PathRxEvent.kind`: the packet is refused. No answer.
pub const PATH_RX_NAK: u64 = 2;

record! {
    /// Answer to a check. None set: the path is not open.
    pub struct PathRxVerdict {
        accept: 1,
        duplicate: 1,
        out_of_window: 1,
    }
}

record! {
    /// A write of payload into host memory; its beats follow in the payload stream beside it. `len` is not 0.
    pub struct PlaceRequest {
        iova: ADDR_BITS,
        /// Bytes.
        len: LEN_BITS,
    }
}

record! {
    /// A packet of a message whose payload is being written (`PlaceInfo`), or is written (`Placed`).
    ///
    /// One follows each [`PlaceRequest`] in order. One with `payload_len` 0 has no request: it is released as soon as
    /// those before it are.
    pub struct PlaceInfo {
        conn: CONN_BITS,
        mseq: PSN_BITS,
        /// Bytes.
        payload_len: LEN_BITS,
        /// Length of the whole message. Bytes.
        dma_len: 32,
        /// First byte of MXTH; see [`mflag`].
        mflags: 8,
        imm: 32,
        rsn: PSN_BITS,
        /// BTH.SE.
        se: 1,
        /// With this packet all bytes of the message are accepted; so once it is written, all of them are.
        complete: 1,
        /// The write failed. 0 in a `PlaceInfo`.
        error: 1,
    }
}

record! {
    /// A packet is acknowledged.
    pub struct AckedPacket {
        conn: CONN_BITS,
        msg_slot: SLOT_BITS,
    }
}

record! {
    /// A connection has failed.
    pub struct ConnError {
        conn: CONN_BITS,
        status: 8,
    }
}

record! {
    /// A completion entry to write.
    pub struct Completion {
        cq: CQ_BITS,
        conn: CONN_BITS,
        /// CQE opcode.
        opcode: 8,
        status: 8,
        wqe_index: 16,
        byte_len: 32,
        imm: 32,
        imm_valid: 1,
        se: 1,
    }
}

record! {
    /// A read of host memory, answered by [`ReadBeat`]s.
    pub struct DmaRead {
        addr: ADDR_BITS,
        /// Bytes, not 0.
        len: LEN_BITS,
    }
}

record! {
    /// A beat of payload; byte 0 of the packet's payload stands in byte 0 of its first beat.
    pub struct Beat {
        data: 8 * BEAT_BYTES,
        /// Bit i: byte i is part of it. All ones but in the last beat.
        keep: BEAT_BYTES,
        last: 1,
    }
}

record! {
    /// A beat of memory that was read; the first byte read stands in byte 0 of the first beat.
    pub struct ReadBeat {
        data: 8 * BEAT_BYTES,
        /// Bit i: byte i is part of it. All ones but in the last beat.
        keep: BEAT_BYTES,
        last: 1,
        /// Memory answered with an error; valid with `last`.
        error: 1,
    }
}

record! {
    /// A context row for the owner of its table. An owner takes every write and ignores those for other tables.
    pub struct CtxWrite {
        /// See `nic_spec::desc::Table`.
        table: 4,
        index: ROW_BITS,
        data: CTX_BITS,
    }
}

record! {
    /// May this memory be accessed?
    pub struct MrLookup {
        /// lkey or rkey.
        rkey: 32,
        va: 64,
        /// Bytes, not 0.
        len: 32,
        pd: field_bits(&MrRow::LAYOUT, "pd"),
        /// Access bits of which all are needed.
        access: field_bits(&MrRow::LAYOUT, "access"),
    }
}

record! {
    /// Answer to a [`MrLookup`].
    pub struct MrResult {
        ok: 1,
        /// Why not: the code of a NakReason (RKEY, PD, RANGE, ACCESS).
        reason: 8,
        /// Where the memory is on the bus, when ok.
        iova: ADDR_BITS,
    }
}

record! {
    /// Row of the connection table.
    pub struct ConnContext {
        valid: field_bits(&ConnRow::LAYOUT, "valid"),
        ip_version: field_bits(&ConnRow::LAYOUT, "ip_version"),
        local_id: field_bits(&ConnRow::LAYOUT, "local_id"),
        remote_id: field_bits(&ConnRow::LAYOUT, "remote_id"),
        path_count: field_bits(&ConnRow::LAYOUT, "path_count"),
        pd: field_bits(&ConnRow::LAYOUT, "pd"),
        pmtu_log2: field_bits(&ConnRow::LAYOUT, "pmtu_log2"),
        pkey: field_bits(&ConnRow::LAYOUT, "pkey"),
        stream_id: field_bits(&ConnRow::LAYOUT, "stream_id"),
        init_msn: field_bits(&ConnRow::LAYOUT, "init_msn"),
        dscp: field_bits(&ConnRow::LAYOUT, "dscp"),
        init_rsn: field_bits(&ConnRow::LAYOUT, "init_rsn"),
    }
}

record! {
    /// Row of the address table.
    pub struct AhContext {
        dst_mac: field_bits(&AhRow::LAYOUT, "dst_mac"),
        src_mac: field_bits(&AhRow::LAYOUT, "src_mac"),
        hop_limit: field_bits(&AhRow::LAYOUT, "hop_limit"),
        dst_ip: field_bits(&AhRow::LAYOUT, "dst_ip"),
        src_ip: field_bits(&AhRow::LAYOUT, "src_ip"),
    }
}

/// The fields named in `names` of a context row, packed in that order, the first least significant.
#[track_caller]
pub fn ctx_fields<'a>(data: S<'a>, layout: &Layout, names: &rtl_graph::Layout) -> S<'a> {
    let mut parts: Vec<S> = names.fields.iter().map(|f| field_of(data, layout.field(&f.name))).collect();
    parts.reverse();
    data.builder().cat(&parts)
}

bundle! {
    /// Read port of the connection table, from the reader's side: `conn` before a clock edge, its `row`, a packed
    /// [`ConnContext`], after it.
    pub struct ConnRead { fwd conn: CONN_BITS; rev row: ConnContext::width() }
}

bundle! {
    /// Read port of the address table, like [`ConnRead`]; `row` is a packed [`AhContext`].
    pub struct AhRead { fwd conn: CONN_BITS; rev row: AhContext::width() }
}

bundle! {
    /// Read port of the status of failed connections: 0 = no error. Timed like [`ConnRead`].
    pub struct StatusRead { fwd conn: CONN_BITS; rev status: 8 }
}

bundle! {
    /// Read port of the receive credit, the first RSN that may not be used, modulo 2^16. Timed like [`ConnRead`].
    pub struct CreditRead { fwd conn: CONN_BITS; rev rq_limit: field_bits(&Axth::LAYOUT, "rq_limit") }
}

bundle! {
    /// Read port of the receive message window: MSEQ of the oldest message not yet retired. Timed like [`ConnRead`].
    pub struct MsgBaseRead { fwd conn: CONN_BITS; rev base: PSN_BITS }
}

bundle! {
    /// The requester has done with a message: wqe_fetch may give it one more of that connection.
    pub struct TxCredit { fwd valid: 1, conn: CONN_BITS }
}

bundle! {
    /// Something to be counted, now: never refused, so without `ready`.
    ///
    /// A block lists the counters that its port can name, so that the statistics wire only those.
    pub struct Count {
        fwd valid: 1,
        /// `Counter::code()`.
        code: 8,
        /// How much to add: 1, or a number of bytes.
        amount: 16,
    }
}

impl<'a> Count<'a> {
    /// Drives the port from conditions of which at most one holds at a time.
    #[track_caller]
    pub fn drive(&self, b: &'a B, events: &[(S<'a>, Counter)]) {
        let arms: Vec<(S, S, S)> =
            events.iter().map(|(on, counter)| (*on, b.lit(counter.code().into(), 8), b.lit(1, 16))).collect();
        self.drive_amounts(b, &arms);
    }

    /// Drives the port from (condition, code, amount) of which at most one condition holds at a time.
    #[track_caller]
    pub fn drive_amounts(&self, b: &'a B, events: &[(S<'a>, S<'a>, S<'a>)]) {
        let on: Vec<S> = events.iter().map(|e| e.0).collect();
        self.valid.set(b.or_tree(&on));
        self.code.set(b.one_hot_select(&events.iter().map(|e| (e.0, e.1)).collect::<Vec<_>>()));
        self.amount.set(b.one_hot_select(&events.iter().map(|e| (e.0, e.2)).collect::<Vec<_>>()));
    }
}

bundle! {
    /// Settings of the `transport` registers. Not a stream: wires that may change at any time.
    pub struct TransportConfig {
        fwd rto_ticks: csr_bits(&csr::transport::RTO_TICKS),
        retry_limit: csr_bits(&csr::transport::RETRY_LIMIT),
        ack_packets: csr_bits(&csr::transport::ACK_PACKETS),
        ack_bytes: csr_bits(&csr::transport::ACK_BYTES),
        ack_delay_ticks: csr_bits(&csr::transport::ACK_DELAY_TICKS),
        nak_interval_ticks: csr_bits(&csr::transport::NAK_INTERVAL_TICKS),
        rnr_ticks: csr_bits(&csr::transport::RNR_TICKS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carries_all_of(record: &rtl_graph::Layout, headers: &[(&str, Layout)]) {
        for (prefix, header) in headers {
            for f in header.fields.iter().filter(|f| !f.is_reserved()) {
                assert_eq!(record.place(&format!("{prefix}_{}", f.name)).1, f.bits as u32, "{prefix}_{}", f.name);
            }
        }
    }

    #[test]
    fn the_receive_record_carries_every_field_of_its_headers() {
        let headers = [
            ("bth", Bth::LAYOUT),
            ("pxth", Pxth::LAYOUT),
            ("mxth", Mxth::LAYOUT),
            ("reth", Reth::LAYOUT),
            ("immdt", ImmDt::LAYOUT),
            ("axth", Axth::LAYOUT),
            ("sack", Sack::LAYOUT),
            ("nxth", Nxth::LAYOUT),
        ];
        carries_all_of(&RxMeta::layout(), &headers);
    }

    #[test]
    fn the_acknowledgement_record_carries_every_field_of_its_headers() {
        carries_all_of(&AckPacket::layout(), &[("axth", Axth::LAYOUT), ("sack", Sack::LAYOUT), ("nxth", Nxth::LAYOUT)]);
    }

    #[test]
    fn a_context_record_carries_every_field_of_its_row() {
        for (record, row) in [(ConnContext::layout(), ConnRow::LAYOUT), (AhContext::layout(), AhRow::LAYOUT)] {
            let fields: Vec<_> = row.fields.iter().filter(|f| !f.is_reserved()).map(|f| (f.name, f.bits)).collect();
            assert_eq!(record.fields.len(), fields.len());
            for (name, bits) in fields {
                assert_eq!(record.place(name).1, bits as u32, "{name}");
            }
        }
    }

    #[test]
    fn message_flags_are_bits_of_the_first_byte_of_mxth() {
        let mut h = Mxth::zeroed();
        h.set_first(true).set_imm(true).set_fence(true);
        assert_eq!(u32::from(h.0[0]), 1 << mflag("first") | 1 << mflag("imm") | 1 << mflag("fence"));
        assert_eq!((mflag("first"), mflag("last")), (7, 6));
    }

    #[test]
    fn the_codes_of_counters_fit_their_port() {
        assert!(csr::stats::COUNTERS.len() < 256);
    }
}
