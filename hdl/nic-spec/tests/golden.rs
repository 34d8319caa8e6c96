//! The golden packets of the format, byte by byte: made from fields, read back, ICRC over IPv4 and IPv6.

use nic_spec::{
    consts,
    num::{Epoch, HintSeq, Msn, PathId, Pkey, Plane, Psn, Qpn, Rkey, Rsn, RsnLimit, StreamId},
    wire::{icrc, Axth, Bth, Bxth, Ipv4, Ipv6, Mxth, Opcode, Pxth, Reth, Sack, Udp, ECN_ECT0},
};

/// WRITE of 8 bytes in one packet, PSEQ 7 on path 3 of connection 0x123.
const WRITE: &str = "4502005400004000401126930a0100010a010002c00312b700400000e001ffff \
    00000123800000070310000511223344c00000090000000000007f0012340000 \
    deadbeef00000008000102030405060785200b4e";

/// SEND of "ping", end of burst, into receive 4.
const SEND: &str = "45020048000040004011269f0a0100010a010002c00312b700340000e101ffff \
    00000123200000080310000511223400c000000a000000040000000000000004 \
    70696e6725fd1cbf";

/// ACK with bitmap: cumulative 6, trigger 9, packets 7 and 8 missing, congestion mark, hint 47.5 Gb/s, credit 260.
const LONG_ACK: &str = "4502007000004000401126770a0100020a010001c10312b7005c0000f001ffff \
    00000456000000000310000055667788ca03101f000000060000000911223500 \
    000c00011100b98c000501042000000000000000000000000000000000000000 \
    0000000000000000000000006087e47f";

/// ACK without bitmap: cumulative 9, hint unlimited.
const SHORT_ACK: &str = "4502005000004000401126970a0100020a010001c10312b7003c0000f001ffff \
    000004560000000003100000556677990803101f000000090000000911223500 \
    000c000112ffffff00000000fc94d731";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

/// An IPv4 packet from 10.1.0.`src` to 10.1.0.`dst` around `body`.
fn ipv4_packet(src: u32, dst: u32, sport: u16, body: &[u8]) -> Vec<u8> {
    let len = Ipv4::LEN + Udp::LEN + body.len() + consts::ICRC_BYTES;
    let mut ip = Ipv4::zeroed();
    ip.set_version(4).set_ihl(5).set_ecn(ECN_ECT0).set_total_len(len as u16).set_df(true).set_ttl(consts::HOP_LIMIT);
    ip.set_protocol(17).set_src_ip(0x0a01_0000 + src).set_dst_ip(0x0a01_0000 + dst).fill_checksum();
    let mut udp = Udp::zeroed();
    udp.set_src_port(sport).set_dst_port(consts::UDP_DPORT).set_len((len - Ipv4::LEN) as u16);
    let mut packet = [&ip.0[..], &udp.0, body].concat();
    packet.extend(icrc::icrc(&packet).unwrap().to_le_bytes());
    packet
}

fn bth(opcode: Opcode, qpn: u32, pseq: u32) -> Bth<[u8; 12]> {
    let mut h = Bth::zeroed();
    h.set_opcode(opcode.code()).set_tver(consts::TVER).set_pkey(Pkey::new(consts::PKEY_DEFAULT));
    h.set_dest_qpn(Qpn::new(qpn)).set_pseq(Psn::new(pseq));
    h
}

fn pxth(stream: u16, tx_ts: u32) -> Pxth<[u8; 8]> {
    let mut h = Pxth::zeroed();
    h.set_path_id(PathId::new(3)).set_plane(Plane::new(1)).set_epoch(Epoch::new(0));
    h.set_stream_id(StreamId::new(stream)).set_tx_ts(tx_ts);
    h
}

#[test]
fn a_write_packet_is_made_byte_for_byte() {
    let (mut bth, mut mxth, mut reth) = (bth(Opcode::Write, 0x123, 7), Mxth::zeroed(), Reth::zeroed());
    bth.set_ack_req(true);
    mxth.set_first(true).set_last(true).set_mseq(Msn::new(9));
    reth.set_va(0x7f00_1234_0000).set_rkey(Rkey::new(0xdead_beef)).set_dma_len(8);
    let body = [&bth.0[..], &pxth(5, 0x1122_3344).0, &mxth.0, &reth.0, &[0, 1, 2, 3, 4, 5, 6, 7]].concat();
    assert_eq!(ipv4_packet(1, 2, 0xc003, &body), bytes(WRITE));
}

#[test]
fn a_send_packet_is_made_byte_for_byte() {
    let (mut bth, mut mxth, mut bxth) = (bth(Opcode::Send, 0x123, 8), Mxth::zeroed(), Bxth::zeroed());
    bth.set_eob(true);
    mxth.set_first(true).set_last(true).set_mseq(Msn::new(10)).set_rsn(Rsn::new(4));
    bxth.set_msg_len(4);
    let body = [&bth.0[..], &pxth(5, 0x1122_3400).0, &mxth.0, &bxth.0, b"ping"].concat();
    assert_eq!(ipv4_packet(1, 2, 0xc003, &body), bytes(SEND));
}

fn axth(cum: u32, hint_seq: u8, ce_cnt: u16, rate_hint: u32) -> Axth<[u8; 28]> {
    let mut h = Axth::zeroed();
    h.set_hint(true).set_apath(PathId::new(3)).set_plane(Plane::new(1)).set_syndrome(consts::SYNDROME_ACK);
    h.set_cum_pseq(Psn::new(cum)).set_trig_pseq(Psn::new(9)).set_ts_echo(0x1122_3500).set_hold(12).set_ce_cnt(1);
    h.set_hint_seq(HintSeq::new(hint_seq)).set_rate_hint(rate_hint).set_ce_cnt(ce_cnt);
    h
}

#[test]
fn a_long_ack_is_made_byte_for_byte() {
    let (mut axth, mut sack) = (axth(6, 17, 1, 47_500), Sack::zeroed());
    axth.set_bm(true).set_ce(true).set_credit(true).set_cstream(StreamId::new(5)).set_rq_limit(RsnLimit::new(260));
    sack.mark(2);
    let body = [&bth(Opcode::Ack, 0x456, 0).0[..], &pxth(0, 0x5566_7788).0, &axth.0, &sack.0].concat();
    assert_eq!(ipv4_packet(2, 1, 0xc103, &body), bytes(LONG_ACK));
}

#[test]
fn a_short_ack_is_made_byte_for_byte() {
    let body =
        [&bth(Opcode::Ack, 0x456, 0).0[..], &pxth(0, 0x5566_7799).0, &axth(9, 18, 1, consts::RATE_HINT_UNLIMITED).0]
            .concat();
    assert_eq!(ipv4_packet(2, 1, 0xc103, &body), bytes(SHORT_ACK));
}

#[test]
fn fields_of_a_write_packet_are_read() {
    let packet = bytes(WRITE);
    let (ip, rest) = Ipv4::split(&packet).unwrap();
    let (udp, rest) = Udp::split(rest).unwrap();
    let (bth, rest) = Bth::split(rest).unwrap();
    let (pxth, rest) = Pxth::split(rest).unwrap();
    let (mxth, rest) = Mxth::split(rest).unwrap();
    let (reth, rest) = Reth::split(rest).unwrap();
    assert_eq!((ip.check(), usize::from(ip.total_len())), (Ok(()), packet.len()));
    assert_eq!((udp.src_port(), udp.dst_port(), usize::from(udp.len())), (0xc003, 4791, packet.len() - 20));
    assert_eq!(Opcode::try_from(bth.opcode()), Ok(Opcode::Write));
    assert_eq!((bth.dest_qpn(), bth.pseq(), bth.ack_req()), (Qpn::new(0x123), Psn::new(7), true));
    assert_eq!((pxth.path_id(), pxth.stream_id(), pxth.tx_ts()), (PathId::new(3), StreamId::new(5), 0x1122_3344));
    assert_eq!((mxth.first(), mxth.last(), mxth.mseq()), (true, true, Msn::new(9)));
    assert_eq!((reth.va(), reth.rkey(), reth.dma_len()), (0x7f00_1234_0000, Rkey::new(0xdead_beef), 8));
    assert_eq!(rest, [0, 1, 2, 3, 4, 5, 6, 7, 0x85, 0x20, 0x0b, 0x4e]);
}

/// The golden WRITE in IPv6 from fd00::1 to fd00::2.
fn write_in_ipv6() -> Vec<u8> {
    let body = &bytes(WRITE)[Ipv4::LEN..];
    let mut ip = Ipv6::zeroed();
    ip.set_version(6).set_ecn(ECN_ECT0).set_payload_len(body.len() as u16).set_next_header(17).set_hop_limit(64);
    ip.set_src_ip(0xfd00 << 112 | 1).set_dst_ip(0xfd00 << 112 | 2);
    let mut packet = [&ip.0[..], &body[..body.len() - 4]].concat();
    packet.extend(0x0b5b_534f_u32.to_be_bytes());
    packet
}

#[test]
fn the_icrc_of_known_packets_is_valid_over_ipv4_and_ipv6() {
    for packet in [bytes(WRITE), bytes(SEND), bytes(LONG_ACK), bytes(SHORT_ACK), write_in_ipv6()] {
        assert_eq!(icrc::is_valid(&packet), Ok(true));
    }
}

/// Flips every bit of `packet` and collects the bytes of which the ICRC does not see any bit.
fn uncovered_bytes(packet: &[u8]) -> Vec<usize> {
    let mut uncovered = Vec::new();
    for at in 1..packet.len() {
        let seen = (0..8).filter(|bit| {
            let mut changed = packet.to_vec();
            changed[at] ^= 1 << bit;
            icrc::is_valid(&changed) == Ok(false)
        });
        match seen.count() {
            0 => uncovered.push(at),
            8 => {}
            n => panic!("the ICRC sees {n} bits of byte {at}"),
        }
    }
    uncovered
}

#[test]
fn the_icrc_covers_every_bit_except_what_a_switch_may_change() {
    // Type of service, time to live, header checksum, UDP checksum, byte 4 of BTH.
    assert_eq!(uncovered_bytes(&bytes(WRITE)), [1, 8, 10, 11, 26, 27, 32]);
    // Traffic class and flow label, hop limit, UDP checksum, byte 4 of BTH.
    assert_eq!(uncovered_bytes(&write_in_ipv6()), [1, 2, 3, 7, 46, 47, 52]);
}
