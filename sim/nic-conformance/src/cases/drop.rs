//! Every reason for which a receiver drops a frame: nothing is placed or answered, the reason is counted once, and the
//! card goes on.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::Caps;
use crate::failure::Outcome;
use crate::kit::{set_paths, Kit};
use crate::packet::{Bytes, Packet};
use nic_spec::consts::PMTU_BYTES_MAX;
use nic_spec::csr::stats::Counter;
use nic_spec::num::{Pkey, Qpn};
use nic_spec::wire::Opcode;

cases! { "drop":
    "W-003" three_tags => |k| drops(k, Counter::RxTooManyTags, |c| good(c).vlans(&[3, 2, 1]).spoil());
    "W-004" arp => |k| drops(k, Counter::RxNotIp, |c| good(c).spoil().edit(|b| (b[12], b[13]) = (0x08, 0x06)));
    "W-004" version_6_in_an_ipv4_frame => |k| drops(k, Counter::RxBadIpVersion, |c| good(c).spoil().ipv4(|ip| _ = ip.set_version(6)));
    "W-004" version_4_in_an_ipv6_frame => |k| drops6(k, Counter::RxBadIpVersion, |c| good(c).spoil().ipv6(|ip| _ = ip.set_version(4)));
    "W-004" ipv4_options => |k| drops(k, Counter::RxIpOptions, with_options);
    "W-004" short_ipv4_header => |k| drops(k, Counter::RxIpOptions, |c| good(c).spoil().ipv4(|ip| _ = ip.set_ihl(4)));
    "W-004" wrong_ipv4_checksum => |k| drops(k, Counter::RxBadIpChecksum, |c| good(c).spoil().edit(|b| b[24] ^= 1));
    "W-004" first_fragment => |k| drops(k, Counter::RxIpFragment, |c| good(c).spoil().ipv4(|ip| _ = ip.set_mf(true)).sealed());
    "W-004" later_fragment => |k| drops(k, Counter::RxIpFragment, |c| good(c).spoil().ipv4(|ip| _ = ip.set_frag_offset(9)).sealed());
    "W-004" ipv6_hop_by_hop => |k| drops6(k, Counter::RxIpv6Extension, |c| extended(c, 0));
    "W-004" ipv6_routing => |k| drops6(k, Counter::RxIpv6Extension, |c| extended(c, 43));
    "W-004" ipv6_fragment => |k| drops6(k, Counter::RxIpv6Extension, |c| extended(c, 44));
    "W-004" ipv6_destination_options => |k| drops6(k, Counter::RxIpv6Extension, |c| extended(c, 60));
    "W-004" tcp_over_ipv4 => |k| drops(k, Counter::RxNotUdp, |c| good(c).spoil().ipv4(|ip| _ = ip.set_protocol(6)));
    "W-004" tcp_over_ipv6 => |k| drops6(k, Counter::RxNotUdp, |c| good(c).spoil().ipv6(|ip| _ = ip.set_next_header(6)));
    "W-005" another_udp_port => |k| drops(k, Counter::RxOtherUdpPort, |c| Packet { dport: 4790, ..good(c) }.spoil());
    "W-007" udp_length_below_the_ip_length => |k| drops(k, Counter::RxBadUdpLen, |c| good(c).spoil().udp(|u| u.set_len(u.len() - 4).len()).sealed());
    "W-007" udp_length_above_the_ip_length => |k| drops(k, Counter::RxBadUdpLen, |c| good(c).spoil().udp(|u| u.set_len(u.len() + 4).len()).sealed());
    "W-008" end_within_ethernet => |k| drops(k, Counter::RxTruncated, |c| good(c).spoil().edit(|b| b.truncate(13)));
    "W-008" end_within_a_tag => |k| drops(k, Counter::RxTruncated, |c| good(c).vlans(&[1]).spoil().edit(|b| b.truncate(16)));
    "W-008" end_within_ipv4 => |k| drops(k, Counter::RxTruncated, |c| good(c).spoil().edit(|b| b.truncate(30)));
    "W-008" end_within_ipv6 => |k| drops6(k, Counter::RxTruncated, |c| good(c).spoil().edit(|b| b.truncate(50)));
    "W-008" end_within_udp => |k| drops(k, Counter::RxTruncated, |c| cut(c, 38));
    "W-008" end_within_bth => |k| drops(k, Counter::RxTruncated, |c| cut(c, 52));
    "W-008" end_within_pxth => |k| drops(k, Counter::RxTruncated, |c| cut(c, 64));
    "W-008" end_within_mxth => |k| drops(k, Counter::RxTruncated, |c| cut(c, 72));
    "W-008" end_within_reth => |k| drops(k, Counter::RxTruncated, |c| cut(c, 88));
    "W-008" end_within_the_payload => |k| drops(k, Counter::RxTruncated, |c| good(c).spoil().edit(|b| b.truncate(b.len() - 1)));
    "W-008" end_within_an_optional_header => |k| drops(k, Counter::RxTruncated, |c| {
        // IMM and LAST promise four more bytes than there are.
        shortened(c.packet(Opcode::Write).with_mxth(|h| _ = h.set_last(true).set_imm(true)).rkey(c.key), 4)
    });
    "W-008" payload_above_the_largest_pmtu => |k| drops(k, Counter::RxTooLong, |c| c.write(0, 0, &[7; PMTU_BYTES_MAX + 4]).spoil());
    "W-008" frame_above_the_largest => |k| drops(k, Counter::RxTooLong, |c| c.write(0, 0, &[7; 16_000]).spoil());
    "W-008" foreign_mac_address => |k| drops(k, Counter::RxOtherMac, |c| good(c).spoil().edit(|b| b[5] ^= 0x80));
    "W-008" [Caps::MAC_ERROR] frame_damaged_on_the_line => |k| {
        let c = k.open(|_| ())?;
        let before = k.snapshot()?;
        k.dut.inject_damaged(0, &good(&c).to_bytes())?;
        goes_on(k, &c, |k| k.refused(&before, &[(Counter::RxMacError, 1)]))
    };
    "W-011" version_0_is_rocev2 => |k| drops(k, Counter::RxBadTver, |c| good(c).spoil().bth(|b| _ = b.set_tver(0)).sealed());
    "W-011" version_2_is_unknown => |k| drops(k, Counter::RxBadTver, |c| good(c).spoil().bth(|b| _ = b.set_tver(2)).sealed());
    "W-012" rocev2_opcode => |k| drops(k, Counter::RxUnknownOpcode, |c| good(c).spoil().bth(|b| _ = b.set_opcode(0x0a)).sealed());
    "W-012" undefined_opcode => |k| drops(k, Counter::RxUnknownOpcode, |c| good(c).spoil().bth(|b| _ = b.set_opcode(0xef)).sealed());
    "W-012" [Caps::ATOMIC] undefined_atomic_operation => |k| drops(k, Counter::RxUnsupportedOpcode, |c| {
        c.atomic(0, 0, 0, nic_spec::wire::AtomicOp::FetchAdd, 1, 0).with_atag(|h| _ = h.set_op(9)).spoil()
    });
    "W-015" unknown_connection => |k| drops(k, Counter::RxUnknownConn, |c| to(c, Qpn::new(0x12_0105)));
    "W-015" another_id_of_the_same_row => |k| drops(k, Counter::RxUnknownConn, |c| to(c, Qpn::new(c.cfg.local_id.get() ^ 0x80_0000)));
    "W-015" foreign_p_key => |k| drops(k, Counter::RxBadPkey, |c| good(c).spoil().bth(|b| _ = b.set_pkey(Pkey::new(0x7fff))).sealed());
    "W-017" more_pad_than_content => |k| drops(k, Counter::RxBadLength, |c| {
        c.write(0, 0, &[]).spoil().bth(|b| _ = b.set_pad_count(1)).sealed()
    });
    "W-017" content_in_an_acknowledgement => |k| drops(k, Counter::RxBadLength, |c| {
        c.packet(Opcode::Ack).with_axth(|_| ()).payload(b"four").spoil()
    });
    "W-017" content_in_a_probe => |k| drops(k, Counter::RxBadLength, |c| c.probe(0, 0).payload(b"four").spoil());
    "W-020" wrong_icrc => |k| drops(k, Counter::RxBadIcrc, |c| good(c).spoil().edit(|b| *b.last_mut().expect("bytes") ^= 0x80));
    "W-020" icrc_of_zero => |k| drops(k, Counter::RxBadIcrc, |c| good(c).spoil().edit(|b| {
        let at = b.len() - 4;
        b[at..].fill(0);
    }));
    "P-009" path_that_is_not_open => |k| drops(k, Counter::RxUnknownPath, |c| good(c).path(1).spoil());
    "P-009" probe_of_a_path_that_is_not_open => |k| drops(k, Counter::RxUnknownPath, |c| c.probe(5, 1).path(255).spoil());
    "P-009" acknowledgement_of_a_path_that_is_not_open => |k| drops(k, Counter::RxUnknownPath, |c| {
        c.packet(Opcode::Ack).apath(9).with_axth(|h| _ = h.set_syndrome(0x1f)).spoil()
    });
    "S-003" beyond_the_window => |k| drops(k, Counter::RxOutOfWindow, |c| c.write(256, 0, b"far").spoil());
    "S-003" half_the_circle_ahead => |k| drops(k, Counter::RxOutOfWindow, |c| c.write(0x7f_fffe, 0, b"far").spoil());
    "S-034" connection_in_error;
    "R-002" acknowledgement_of_a_packet_that_was_never_sent => |k| drops(k, Counter::RxBadAck, |c| {
        c.packet(Opcode::Ack).cum(0).with_axth(|h| _ = h.set_syndrome(0x1f)).spoil()
    });
}

fn good(c: &Conn) -> Packet {
    c.write(0, 0, b"nowhere!")
}

fn to(c: &Conn, id: Qpn) -> Bytes {
    good(c).spoil().bth(|b| _ = b.set_dest_qpn(id)).sealed()
}

/// Four bytes of options that do nothing.
fn with_options(c: &Conn) -> Bytes {
    let options = good(c).spoil().edit(|b| _ = b.splice(34..34, [1, 1, 1, 0]));
    options.ipv4(|ip| {
        let len = ip.total_len() + 4;
        _ = ip.set_ihl(6).set_total_len(len);
    })
}

/// An extension header of this kind without content.
fn extended(c: &Conn, kind: u8) -> Bytes {
    let extended = good(c).spoil().edit(|b| _ = b.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]));
    extended.ipv6(|ip| {
        let len = ip.payload_len() + 8;
        _ = ip.set_next_header(kind).set_payload_len(len);
    })
}

/// The frame ends after `len` bytes, and IP and UDP say so.
fn cut(c: &Conn, len: usize) -> Bytes {
    let cut = good(c).spoil().edit(|b| b.truncate(len)).ipv4(|ip| _ = ip.set_total_len(len as u16 - 14));
    if len < 42 {
        cut
    } else {
        cut.udp(|u| _ = u.set_len(len as u16 - 34))
    }
}

/// Takes `less` bytes before the ICRC out of an IPv4 packet and makes its lengths right.
fn shortened(p: Packet, less: u16) -> Bytes {
    let shorter = p.spoil().edit(|b| b.truncate(b.len() - usize::from(less)));
    let shorter = shorter.ipv4(|ip| ip.set_total_len(ip.total_len() - less).total_len());
    shorter.udp(|u| u.set_len(u.len() - less).len()).sealed()
}

/// Nothing was placed or answered, `counted` holds, and PSEQ 0 is still free.
fn goes_on(k: &mut Kit<'_>, c: &Conn, counted: impl FnOnce(&mut Kit<'_>) -> Outcome) -> Outcome {
    k.silence(k.at_once())?;
    k.memory_holds_only(&[])?;
    k.completes_nothing()?;
    counted(k)?;
    let before = k.snapshot()?;
    k.inject(&c.write(0, 8, b"goes on"))?;
    k.acks(0, &[])?;
    k.memory_holds_only(&[(8, b"goes on")])?;
    k.refused(&before, &[])
}

fn drops(k: &mut Kit<'_>, counter: Counter, frame: impl Fn(&Conn) -> Bytes) -> Outcome {
    let c = k.open(|_| ())?;
    drops_on(k, &c, counter, &frame(&c))
}

fn drops6(k: &mut Kit<'_>, counter: Counter, frame: impl Fn(&Conn) -> Bytes) -> Outcome {
    let c = k.open(|cfg| cfg.is_ipv6 = true)?;
    drops_on(k, &c, counter, &frame(&c))
}

fn drops_on(k: &mut Kit<'_>, c: &Conn, counter: Counter, frame: &Bytes) -> Outcome {
    let before = k.snapshot()?;
    k.inject_bytes(frame)?;
    goes_on(k, c, |k| k.refused(&before, &[(counter, 1)]))
}

fn connection_in_error(k: &mut Kit<'_>) -> Outcome {
    let bad = k.open(|cfg| set_paths(cfg, 1, 1))?;
    let c = k.open(|_| ())?;
    k.post_write(&bad, 1, 0, 8)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&bad.ack(&data).cum(0xff_ffff).nak(nic_spec::wire::NakReason::Rkey))?;
    k.completes(&[(1, nic_spec::desc::Status::RemAccess)])?;
    drops_on(k, &c, Counter::RxConnError, &good(&bad).spoil())
}
