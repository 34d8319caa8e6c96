//! Header bytes of the next frame, from the same tables as the parser: the mirror of `rx`.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `ack` | [`AckPacket`] | valid/ready | acknowledgements; they go first |
//! | `packet` | [`TxPacket`] | valid/ready | WRITE packets whose payload is there |
//! | `dport` | 16 | | UDP destination port |
//! | `conn`, `ah` | [`ConnRead`], [`AhRead`] | | rows of the connection that the packet belongs to |
//! | `sent` | 2 | | a beat of a frame has gone, and one more than was reckoned is not needed (see below) |
//! | `header` | [`Header`] | valid/ready | one a frame, in order |
//!
//! Latency 12 cycles; 1 frame in 2 cycles, and none takes fewer beats. Reset forgets what is under way. State: [`HEADERS`] headers of LUT RAM.
//!
//! Packets are taken as late as possible, so that an acknowledgement never waits behind more than the frame being sent
//! and a few beats: only while the beats of all frames taken and not yet sent are [`AHEAD_BEATS`] or fewer. That covers
//! the latency, so the next header is there when the last beat of a frame goes. The reckoning is done before lengths
//! are known, with one beat too many at most; the header's `spare` says so and `sent` corrects it.
//!
//! IPv4 identification 0, do not fragment; IPv6 flow label 0; ECN ECT(0); UDP checksum 0. DSCP is that of the
//! connection, hop limit that of the address row. Drops: none.

use super::parts::Inputs;
use crate::{
    prim::{fifo, lanes::scatter},
    rx::chain::{chains, Chain, Link, BEAT_BYTES},
    stream::{mflag, AckPacket, AhContext, AhRead, ConnContext, ConnRead, PacketDesc, TxPacket, LEN_BITS},
};
use nic_spec::{
    consts::{ICRC_BYTES, PMTU_BYTES_MAX},
    wire::{
        opcode::{BITMAP, IMM_AND_LAST, NAK},
        Condition, Eth, Ipv4, Opcode,
    },
};
use rtl_graph::*;

/// Headers that wait for their frame to be sent.
pub const HEADERS: u32 = 16;
/// Beats of frames taken and not yet sent up to which another is taken.
pub const AHEAD_BEATS: u64 = 24;
/// Beats reckoned for the headers and the ICRC of a frame.
const RECKONED_BEATS: u64 = 3;

/// IPv4 and IPv6: this card sends no VLAN tags.
const LINKS: [Link; 2] = [Link { tags: 0, is_ipv6: false }, Link { tags: 0, is_ipv6: true }];

/// Longest part from UDP to the last header. Bytes.
pub fn transport_bytes() -> usize {
    chains().iter().map(Chain::len_bytes).max().unwrap_or(0)
}

/// Longest headers of a frame. Bytes.
pub fn header_bytes() -> usize {
    LINKS[1].udp_offset() + transport_bytes()
}

/// Bytes of the second beat that headers fill when payload follows, over all shapes and chains, ascending.
pub fn payload_shifts() -> Vec<u32> {
    let with_payload: Vec<usize> = chains().iter().filter(|c| c.has_payload()).map(Chain::len_bytes).collect();
    let ends = LINKS.iter().flat_map(|l| with_payload.iter().map(|len| l.udp_offset() + len));
    let mut all: Vec<u32> = ends.map(|end| (end - BEAT_BYTES) as u32).collect();
    all.sort();
    all.dedup();
    all
}

/// What the block takes for granted of the tables.
fn check_tables() {
    for (link, chain) in LINKS.iter().flat_map(|l| chains().into_iter().map(move |c| (l, c))) {
        let len = link.udp_offset() + chain.len_bytes();
        let name = chain.opcode.info().name;
        // The longest pad, the ICRC and a whole beat less one byte of payload behind them.
        let most = len + if chain.has_payload() { 3 + BEAT_BYTES - 1 } else { 0 } + ICRC_BYTES;
        assert!(
            most <= RECKONED_BEATS as usize * BEAT_BYTES,
            "{name}: headers of {len} bytes need more beats than reckoned"
        );
        assert!(
            len + ICRC_BYTES > BEAT_BYTES,
            "{name}: headers of {len} bytes need fewer beats than the reckoning corrects"
        );
        assert!(
            !chain.has_payload() || (BEAT_BYTES..2 * BEAT_BYTES).contains(&len),
            "{name}: payload begins at byte {len}"
        );
    }
}

record! {
    /// What a frame is made of besides its payload.
    pub struct Header {
        /// All header bytes, byte 0 in bits 7:0; zero behind the last header.
        bytes: 8 * header_bytes() as u32,
        /// One-hot: bytes of the second beat before the payload; see [`payload_shifts`]. Zero without payload.
        shift: payload_shifts().len() as u32,
        /// Beats of payload.
        payload_beats: 8,
        /// Index of the frame's last beat, ICRC included.
        last_beat: 8,
        /// Length of the frame, ICRC included. Bytes.
        frame_len: LEN_BITS,
        /// The frame has a beat less than was reckoned.
        spare: 1,
        /// IPv6 rather than IPv4.
        is_ipv6: 1,
    }
}

module! {
    /// Builds headers.
    pub struct HeaderBytes = "nic_tx_header" () {
        ack: in Stream<AckPacket>,
        packet: in Stream<TxPacket>,
        dport: in Uint(16),
        conn: out ConnRead,
        ah: out AhRead,
        sent: in Uint(2),
        header: out Stream<Header>,
    } |b| {
        check_tables();
        let all = chains();

        // h0: whose turn it is.
        let ahead = b.reg_reset("ahead", 9, 0);
        // What was taken in the cycle before is not in the reckoning yet: one packet in two cycles at most.
        let h1_valid = b.reg_reset("h1_valid", 1, 0);
        let is_near = b.reg_reset("is_near", 1, 0);
        is_near.set(ahead.le(AHEAD_BEATS));
        let may = (is_near & !h1_valid).named("may_take");
        ack.ready.set(may);
        packet.ready.set(may & !ack.valid);
        let take_ack = (may & ack.valid).named("take_ack");
        let take = (may & (ack.valid | packet.valid)).named("take");
        let payload_len = PacketDesc::unpack(packet.data.desc).payload_len;
        let reckoned = take_ack.mux(0, whole_beats(payload_len).zext(9)) + RECKONED_BEATS;
        let gone = sent.bit(0).zext(9) + sent.bit(1).zext(9);
        ahead.set((ahead - gone) + take.mux(reckoned, 0));

        // h1: the packet; its rows are asked for.
        h1_valid.set(take);
        let h1_is_ack = take_ack.delay("h1_is_ack", 1);
        let h1_ack = ack.data.delayed("h1_ack");
        let h1_packet = packet.data.delayed("h1_packet");
        let h1_desc = PacketDesc::unpack(h1_packet.desc);
        let h1_conn = h1_is_ack.mux(h1_ack.conn, h1_packet.conn).named("h1_conn");
        conn.conn.set(h1_conn);
        ah.conn.set(h1_conn);
        let holds = |condition: &Condition| match *condition {
            IMM_AND_LAST => h1_desc.mflags.bit(mflag("imm")) & h1_desc.mflags.bit(mflag("last")),
            BITMAP => h1_ack.axth_bm,
            NAK => h1_ack.axth_nak,
            _ => panic!("no field of this card's packets tells {condition:?}"),
        };
        let is_chain = |c: &Chain| {
            let is_opcode = if c.opcode == Opcode::Ack { h1_is_ack } else { !h1_is_ack };
            let as_set = |(cond, is_set): &(Condition, bool)| if *is_set { holds(cond) } else { !holds(cond) };
            c.conditions.iter().map(as_set).fold(is_opcode, |all, term| all & term)
        };
        let h1_chain = one_hot(b, &all.iter().map(is_chain).collect::<Vec<_>>());

        // h2: the rows arrive.
        let h2_ack = h1_ack.delayed("h2_ack");
        let h2_packet = h1_packet.delayed("h2_packet");
        let h2_is_ack = h1_is_ack.delay("h2_is_ack", 1);
        let h2_chain = h1_chain.delay("h2_chain", 1);
        let h2_len = h1_is_ack.mux(0, h1_desc.payload_len).delay("h2_len", 1);
        let h2_padded = (h2_len + 3).bits(2, LEN_BITS - 2).cat(b.zero(2)).named("h2_padded");
        let overhead: Vec<(S, S)> =
            all.iter().zip(0..).map(|(c, k)| (h2_chain.bit(k), b.lit((c.len_bytes() + ICRC_BYTES) as u64, 16))).collect();

        // h3: everything in registers, with the length from UDP on.
        let h3_len = h2_len.delay("h3_len", 1);
        let h3 = Inputs {
            chain: h2_chain.delay("h3_chain", 1),
            is_ack: h2_is_ack.delay("h3_is_ack", 1),
            ack: h2_ack.delayed("h3_ack"),
            packet: h2_packet.delayed("h3_packet"),
            conn: ConnContext::unpack(conn.row.delay("h3_conn", 1)),
            ah: AhContext::unpack(ah.row.delay("h3_ah", 1)),
            pad: h3_len.trunc(2).neg(),
            udp_len: (h2_padded.zext(16) + b.one_hot_select(&overhead)).delay("h3_udp_len", 1),
            dport,
        };

        // h4: bytes of both parts, the IPv4 checksum still zero; length of the frame.
        let h4_transport = h3.transport(&all).delay("h4_transport", 1);
        let h4_ipv4 = h3.ipv4().delay("h4_ipv4", 1);
        let h4_ipv6 = h3.ipv6().delay("h4_ipv6", 1);
        let h4_is_ipv6 = h3.conn.ip_version.delay("h4_is_ipv6", 1);
        let h4_chain = h3.chain.delay("h4_chain", 1);
        let h4_len = h3_len.delay("h4_len", 1);
        let [v4_len, v6_len] = LINKS.map(|l| b.lit(l.udp_offset() as u64, LEN_BITS));
        let link_len = h3.conn.ip_version.mux(v6_len, v4_len);
        let h4_frame_len = (h3.udp_len.trunc(LEN_BITS) + link_len).delay("h4_frame_len", 1);

        // h5: the headers in one piece; beats; first sums of the checksum.
        let bits = 8 * header_bytes() as u32;
        let bytes = h4_is_ipv6.mux(h4_transport.cat(h4_ipv6), h4_transport.cat(h4_ipv4).zext(bits));
        let shifts: Vec<S> =
            payload_shifts().into_iter().map(|s| shifts_by(b, &all, h4_chain, h4_is_ipv6, s)).collect();
        let h5_last_beat = whole_beats(h4_frame_len - 1).delay("h5_last_beat", 1);
        let h5_payload_beats = whole_beats(h4_len + (BEAT_BYTES - 1)).delay("h5_payload_beats", 1);
        let h5_reckoned = (whole_beats(h4_len) + (RECKONED_BEATS - 1)).delay("h5_reckoned", 1);
        let words = h4_ipv4.bits(8 * Eth::LEN as u32, 8 * Ipv4::LEN as u32).chunks(16);
        let mut pairs = vec![];
        for (k, pair) in words.chunks(2).enumerate() {
            pairs.push(pair[0].swap_bytes().add_carry(pair[1].swap_bytes()).delay(&format!("h5_sum_{k}"), 1));
        }
        let [p0, p1, p2, p3, p4] = pairs[..] else { panic!("an IPv4 header has five pairs of words") };

        // h6 … h10: the sum, its carries twice, its complement.
        let h6_a = p0.add_carry(p1).delay("h6_sum_a", 1);
        let h6_b = p2.add_carry(p3).delay("h6_sum_b", 1);
        let h7_sum = h6_a.add_carry(h6_b).delay("h7_sum", 1);
        let h8_sum = (h7_sum.zext(20) + p4.delay("p4", 2).zext(20)).delay("h8_sum", 1);
        let h9_sum = (h8_sum.trunc(16).zext(17) + h8_sum.bits(16, 4).zext(17)).delay("h9_sum", 1);
        let h10_sum = (!(h9_sum.trunc(16) + h9_sum.msb().zext(16))).delay("h10_sum", 1);

        // h10: the checksum goes to its place.
        let h10_is_ipv6 = h4_is_ipv6.delay("is_ipv6", 6);
        let place = Ipv4::LAYOUT.field("checksum").lanes(LINKS[0].ip_offset()).collect();
        let checksum = scatter(b, header_bytes(), [(place, h10_is_ipv6.mux(0, h10_sum))]);
        let done = Header {
            bytes: bytes.delay("bytes", 6) | checksum,
            shift: one_hot(b, &shifts).delay("shift", 6),
            payload_beats: h5_payload_beats.delay("payload_beats", 5),
            last_beat: h5_last_beat.delay("last_beat", 5),
            frame_len: h4_frame_len.delay("frame_len", 6),
            spare: h5_reckoned.ne(h5_last_beat).delay("spare", 5),
            is_ipv6: h10_is_ipv6,
        };
        let queue = fifo::pushed(b, "headers", h1_valid.delay_reset("valid", 9), &done, HEADERS);
        b.connect(&queue.tx, &header);
        let longest = (PMTU_BYTES_MAX / BEAT_BYTES) as u64 + RECKONED_BEATS;
        b.assert("reckoning_is_bounded", ahead.le(AHEAD_BEATS + longest));
    }
}

/// Whole beats in a number of bytes.
fn whole_beats(len: S<'_>) -> S<'_> {
    len.bits(BEAT_BYTES.ilog2(), LEN_BITS - BEAT_BYTES.ilog2())
}

/// Bits, the first least significant.
fn one_hot<'a>(b: &'a B, bits: &[S<'a>]) -> S<'a> {
    b.cat(&bits.iter().rev().copied().collect::<Vec<_>>())
}

/// 1 when payload follows and begins `shift` bytes into the second beat.
fn shifts_by<'a>(b: &'a B, all: &[Chain], chain: S<'a>, is_ipv6: S<'a>, shift: u32) -> S<'a> {
    let mut terms = vec![];
    for (k, c) in all.iter().enumerate().filter(|(_, c)| c.has_payload()) {
        for link in LINKS.iter().filter(|l| l.udp_offset() + c.len_bytes() == BEAT_BYTES + shift as usize) {
            terms.push(chain.bit(k as u32) & if link.is_ipv6 { is_ipv6 } else { !is_ipv6 });
        }
    }
    b.or_tree(&terms)
}
