//! Wire format: what a receiver takes, and what every frame of a sender looks like.

use crate::case::cases;
use crate::conn::Conn;
use crate::failure::{check, equal, Outcome};
use crate::kit::{pattern, remote, set_paths, Kit, PEER_KEY, PEER_VA, US};
use crate::packet::Packet;
use crate::setup::{SendOp, SendWr};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::{Pkey, Qpn, Rsn};
use nic_spec::wire::{Opcode, ECN_ECT0};

cases! { "wire":
    "W-001" + "M-003" + "M-012" a_write_goes_to_its_address_and_nowhere_else;
    "W-002" reserved_bits_are_ignored;
    "W-002" reserved_bits_of_acknowledgements_are_ignored;
    "W-003" frames_without_tag_are_taken => |k| tagged(k, &[]);
    "W-003" frames_with_one_tag_are_taken => |k| tagged(k, &[100]);
    "W-003" frames_with_two_tags_are_taken => |k| tagged(k, &[200, 100]);
    "W-004" ipv6_carries_data_both_ways;
    "W-004" + "W-006" + "W-009" + "W-010" sent_data_are_ecn_capable_and_unfragmented;
    "W-005" + "P-001" the_source_port_does_not_identify_the_path;
    "W-006" the_udp_checksum_is_not_looked_at;
    "W-007" bytes_behind_the_ip_packet_are_padding;
    "W-007" + "M-005" the_shortest_frame_is_taken_with_its_ethernet_padding;
    "W-009" + "S-007" a_mark_counts_when_the_icrc_is_right;
    "W-009" + "W-020" a_mark_in_a_packet_with_a_wrong_icrc_does_not_count;
    "W-013" + "M-006" immediate_data_stand_in_the_last_packet_only;
    "W-014" unsequenced_packets_carry_no_number_and_no_stream;
    "W-015" the_connection_s_p_key_goes_out_and_is_asked_for;
    "W-016" + "S-022" any_clock_is_echoed_unchanged;
    "W-016" sent_packets_name_path_plane_and_stream;
    "W-017" pad_of_0_bytes_is_made_and_taken_off => |k| padded(k, 64);
    "W-017" pad_of_1_byte_is_made_and_taken_off => |k| padded(k, 63);
    "W-017" pad_of_2_bytes_is_made_and_taken_off => |k| padded(k, 62);
    "W-017" pad_of_3_bytes_is_made_and_taken_off => |k| padded(k, 61);
    "W-017" a_payload_of_one_byte_is_placed_alone => |k| padded(k, 1);
    "W-018" switches_may_change_what_the_icrc_leaves_out;
    "W-018" switches_may_change_ipv6_fields_too;
    "W-018" + "W-003" tags_are_outside_the_icrc;
    "W-019" a_new_source_port_has_a_new_icrc;
    "W-020" a_damaged_packet_leaves_its_number_free;
    "W-021" a_frame_with_several_faults_counts_once;
    "W-008" a_promiscuous_port_takes_frames_to_any_address;
    "W-022" data_and_control_packets_have_classes_of_their_own;
    "W-022" + "W-018" the_class_of_a_received_packet_means_nothing;
    "W-023" + "W-018" the_flow_label_of_a_received_packet_means_nothing;
    "W-024" + "W-018" bits_that_a_switch_may_write_are_ignored;
    "W-015" the_largest_connection_ids_are_ids;
}

/// The card takes `packet`, a WRITE with PSEQ 0 of these bytes at offset 64.
fn takes(k: &mut Kit<'_>, frame: &[u8], bytes: &[u8]) -> Outcome {
    let before = k.snapshot()?;
    k.dut.inject(0, frame)?;
    k.acks(0, &[])?;
    k.memory_holds_only(&[(64, bytes)])?;
    k.refused(&before, &[])
}

fn small(c: &Conn, bytes: &[u8]) -> Packet {
    c.write(0, 64, bytes)
}

fn a_write_goes_to_its_address_and_nowhere_else(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let bytes = pattern(1, 999);
    takes(k, &small(&c, &bytes).to_bytes(), &bytes)
}

fn reserved_bits_are_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let p = small(&c, b"reserved").with_mxth(|h| _ = h.set_resv1(true).set_resv8(0xff));
    let frame = p.spoil().bth(|b| _ = b.set_m(true).set_resv5(0x1f).set_resv6(0x3f)).sealed();
    takes(k, &frame.bytes, b"reserved")
}

fn reserved_bits_of_acknowledgements_are_ignored(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_write(&c, 1, 0, 8)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    let ack = c.ack(&data).with_axth(|h| _ = h.set_resv1(true).set_resv8a(0xff).set_resv8b(0xff));
    k.inject(&ack)?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn tagged(k: &mut Kit<'_>, vlans: &[u16]) -> Outcome {
    let c = k.open(|_| ())?;
    takes(k, &small(&c, b"tagged").vlans(vlans).to_bytes(), b"tagged")
}

fn ipv6_carries_data_both_ways(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.is_ipv6 = true)?;
    takes(k, &small(&c, b"sixth").to_bytes(), b"sixth")?;
    k.post_write(&c, 1, 64, 5)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    check(data.is_ipv6, "W-004: the card answers IPv6 with IPv4")?;
    equal(&data.payload[..], b"sixth", "payload")?;
    k.inject(&c.ack(&data))?;
    k.completes(&[(1, Status::Ok)]).map(|_| ())
}

fn sent_data_are_ecn_capable_and_unfragmented(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| (cfg.dscp, cfg.dscp_control) = (10, 46))?;
    k.post_write(&c, 1, 0, 100)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    equal((data.ecn, data.hop_limit, data.dscp), (ECN_ECT0, 64, 10), "ECN, time to live and code point of data")?;
    check(data.sport >= 0xc000, format!("P-007: source port {:#x}", data.sport))?;
    k.inject(&small(&c, b"x"))?;
    let ack = k.expect(Opcode::Ack, k.at_once())?;
    equal((ack.hop_limit, ack.dscp), (64, 46), "time to live and code point of an acknowledgement")
}

fn the_source_port_does_not_identify_the_path(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 2, 1))?;
    for (n, sport) in [0xe000u16, 0xe001, 1, 0xffff].into_iter().enumerate() {
        let mut p = c.write(n as u32, 8 * n as u64, b"anyport!").ack_req();
        p.sport = sport;
        k.inject(&p)?;
        equal(k.acks(n as u32, &[])?.apath, 0, "path acknowledged")?;
    }
    k.memory_holds_only(&[(0, &b"anyport!".repeat(4))])
}

fn the_udp_checksum_is_not_looked_at(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    takes(k, &small(&c, b"sum").spoil().udp(|u| _ = u.set_checksum(0xbeef)).bytes, b"sum")
}

fn bytes_behind_the_ip_packet_are_padding(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    takes(k, &small(&c, b"tail").spoil().edit(|b| b.extend([0xa5; 37])).bytes, b"tail")
}

fn the_shortest_frame_is_taken_with_its_ethernet_padding(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    // An acknowledgement without bitmap is longer than 60 bytes; a probe is the shortest packet there is.
    let probe = c.probe(0, 7).spoil().edit(|b| b.resize(b.len().max(60) + 4, 0));
    k.inject_bytes(&probe)?;
    k.expect(Opcode::ProbeRsp, k.at_once()).map(|_| ())
}

fn a_mark_counts_when_the_icrc_is_right(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    k.inject(&small(&c, b"marked").ce())?;
    let ack = k.acks(0, &[])?;
    equal((ack.ce, ack.ce_cnt), (true, 1), "CE and ce_cnt")?;
    equal(k.counted(&before, Counter::RxCe)?, 1, "rx_ce_count")
}

fn a_mark_in_a_packet_with_a_wrong_icrc_does_not_count(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    k.inject_bytes(&small(&c, b"marked").ce().spoil().edit(|b| *b.last_mut().expect("a frame") ^= 1))?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::RxBadIcrc, 1)])?;
    equal(k.counted(&before, Counter::RxCe)?, 0, "rx_ce_count")?;
    k.inject(&small(&c, b"marked"))?;
    let ack = k.acks(0, &[])?;
    equal((ack.ce, ack.ce_cnt), (false, 0), "CE and ce_cnt")
}

fn immediate_data_stand_in_the_last_packet_only(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = 10)?;
    let bytes = pattern(2, 2000);
    k.fill(0, &bytes)?;
    let op = SendOp::Write { remote: remote(0), imm: Some(0xcafe_f00d) };
    k.post(&c, SendWr::new(1, op, k.local(0), 2000))?;
    let first = k.expect(Opcode::Write, k.at_once())?;
    k.inject(&c.ack(&first))?;
    let last = k.expect(Opcode::Write, k.at_once())?;
    let flags = |p: &Packet| p.mxth().map(|h| (h.first(), h.last(), h.imm(), h.rsn()));
    equal(flags(&first), Some((true, false, true, Rsn::new(0))), "FIRST, LAST, IMM and RSN of the first packet")?;
    equal(flags(&last), Some((false, true, true, Rsn::new(0))), "FIRST, LAST, IMM and RSN of the last packet")?;
    equal(first.immdt().is_some(), false, "immediate data in the first packet")?;
    equal(last.immdt().map(|h| h.imm()), Some(0xcafe_f00d), "immediate data in the last packet")?;
    equal([&first.payload[..], &last.payload].concat(), bytes, "payload")?;
    // And the other way round: without LAST the bytes after RETH are payload.
    k.post_recv(&c, 2, 0, 0)?;
    let packets = c.write_many(0, 0, 4096, &pattern(3, 1500), 1024);
    packets.iter().try_for_each(|p| k.inject(&p.clone().imm(77)))?;
    k.advance(k.at_once())?;
    equal(k.memory(4096, 1500)?, pattern(3, 1500), "memory")?;
    let done = k.completes(&[(2, Status::Ok)])?;
    equal(done[0].imm, Some(77), "immediate data of the completion")
}

fn unsequenced_packets_carry_no_number_and_no_stream(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.rx_paths[0].first = nic_spec::num::Psn::new(0x00ab_cdef))?;
    k.inject(&c.write(0x00ab_cdef, 0, b"x").mseq(0))?;
    // Kit::next checks W-014 in every frame.
    k.acks(0x00ab_cdef, &[]).map(|_| ())
}

fn the_connection_s_p_key_goes_out_and_is_asked_for(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.pkey = Pkey::new(0x8123))?;
    k.inject(&small(&c, b"x"))?;
    let ack = k.expect(Opcode::Ack, k.at_once())?;
    equal(ack.bth.pkey(), Pkey::new(0x8123), "P_Key of an acknowledgement")?;
    equal(ack.bth.dest_qpn(), c.cfg.remote_id, "DestQP of an acknowledgement")?;
    k.post_write(&c, 1, 0, 1)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    equal((data.bth.pkey(), data.bth.dest_qpn()), (Pkey::new(0x8123), c.cfg.remote_id), "P_Key and DestQP of data")
}

fn any_clock_is_echoed_unchanged(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for (n, clock) in [0u32, u32::MAX, 1, 0x8000_0000, 0x7fff_ffff].into_iter().enumerate() {
        k.inject(&c.write(n as u32, 0, b"x").ts(clock).ack_req())?;
        equal(k.acks(n as u32, &[])?.echo, clock, "ts_echo")?;
    }
    Ok(())
}

fn sent_packets_name_path_plane_and_stream(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 3, 1);
        cfg.tx_paths.iter_mut().for_each(|p| p.epoch = 9);
        cfg.streams[0].id = 0x8005;
    })?;
    (0..3).try_for_each(|i| k.post_write(&c, i, 0, 8))?;
    let mut paths = Vec::new();
    for _ in 0..3 {
        let data = k.expect(Opcode::Write, k.at_once())?;
        let path = data.pxth.path_id().get();
        equal((data.pxth.epoch().get(), data.pxth.stream_id().get()), (9, 0x8005), "epoch and stream")?;
        equal(data.sport, c.cfg.tx_paths[usize::from(path)].sport, "P-007: the path's source port")?;
        paths.push(path);
    }
    paths.sort_unstable();
    equal(paths, [0, 1, 2], "P-006: paths used")
}

fn padded(k: &mut Kit<'_>, len: usize) -> Outcome {
    let c = k.open(|_| ())?;
    let bytes = pattern(4, len);
    k.fill(64 + len, &[0xee; 4])?;
    k.inject(&small(&c, &bytes))?;
    k.acks(0, &[])?;
    k.memory_holds_only(&[(64, &bytes), (64 + len, &[0xee; 4])])?;
    k.post_write(&c, 1, 64, len as u32)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    equal(usize::from(data.bth.pad_count()), len.wrapping_neg() & 3, "PadCnt")?;
    equal(&data.payload, &bytes, "payload")?;
    equal(
        data.reth().map(|h| (h.va(), h.rkey().get(), h.dma_len())),
        Some((PEER_VA + 64, PEER_KEY, len as u32)),
        "RETH",
    )
}

fn switches_may_change_what_the_icrc_leaves_out(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let on_the_way = small(&c, b"changed").spoil().ipv4(|ip| {
        _ = ip.set_ttl(3).set_dscp(nic_spec::num::Dscp::new(0x2a)).set_ecn(3);
    });
    let on_the_way = on_the_way.udp(|u| _ = u.set_checksum(1)).bth(|b| _ = b.set_fecn(true).set_becn(true));
    takes(k, &on_the_way.bytes, b"changed")
}

fn switches_may_change_ipv6_fields_too(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.is_ipv6 = true)?;
    let on_the_way = small(&c, b"changed").spoil().ipv6(|ip| {
        _ = ip.set_hop_limit(3).set_dscp(nic_spec::num::Dscp::new(0x2a)).set_ecn(3).set_flow_label(0xabcde);
    });
    takes(k, &on_the_way.bytes, b"changed")
}

fn tags_are_outside_the_icrc(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    // Priority and VLAN change on the way; the ICRC stays.
    takes(k, &small(&c, b"vlan").vlans(&[5]).spoil().edit(|b| (b[14], b[15]) = (0xef, 0xff)).bytes, b"vlan")
}

fn a_new_source_port_has_a_new_icrc(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    k.inject_bytes(&small(&c, b"port").spoil().udp(|u| _ = u.set_src_port(0xffff)))?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::RxBadIcrc, 1)])?;
    takes(k, &small(&c, b"port").spoil().udp(|u| _ = u.set_src_port(0xffff)).sealed().bytes, b"port")
}

fn a_damaged_packet_leaves_its_number_free(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let bytes = pattern(5, 300);
    let frame = small(&c, &bytes).spoil();
    // One bit in each part that the ICRC covers: UDP port, DestQP, PSEQ, path, MSEQ, address, payload, ICRC.
    for at in [34, 48, 53, 54, 65, 77, 200, frame.bytes.len() - 1] {
        let before = k.snapshot()?;
        k.inject_bytes(&frame.clone().edit(|b| b[at] ^= 0x10))?;
        k.silence(US)?;
        k.refused(&before, &[(Counter::RxBadIcrc, 1)]).map_err(|e| e.context(format!("bit in byte {at}")))?;
    }
    k.memory_holds_only(&[])?;
    takes(k, &frame.bytes, &bytes)
}

fn a_frame_with_several_faults_counts_once(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    let mut p = small(&c, b"bad");
    p.bth.set_pkey(Pkey::new(1)).set_tver(0).set_opcode(0xff);
    p.dport = 1;
    k.inject_bytes(&p.path(200).spoil().edit(|b| *b.last_mut().expect("a frame") ^= 1))?;
    k.silence(k.at_once())?;
    let mut counts = Vec::new();
    for counter in [Counter::RxOtherUdpPort, Counter::RxBadTver, Counter::RxUnknownOpcode, Counter::RxBadIcrc] {
        counts.push(k.counted(&before, counter)?);
    }
    counts.push(k.counted(&before, Counter::RxBadPkey)?);
    counts.push(k.counted(&before, Counter::RxUnknownPath)?);
    equal(counts.iter().sum::<u64>(), 1, "drops counted")?;
    equal(k.counted(&before, Counter::RxFrames)?, 1, "rx_frames_count")
}

fn a_promiscuous_port_takes_frames_to_any_address(k: &mut Kit<'_>) -> Outcome {
    k.reset(&crate::dut::CardParams { promiscuous: true, ..Default::default() })?;
    let c = k.open(|_| ())?;
    let mut p = small(&c, b"anyone");
    p.dst.mac = 0x0200_1234_5678;
    takes(k, &p.to_bytes(), b"anyone")
}

fn data_and_control_packets_have_classes_of_their_own(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| (cfg.dscp, cfg.dscp_control) = (10, 46))?;
    k.post_write(&c, 1, 0, 8)?;
    equal(k.expect(Opcode::Write, k.at_once())?.dscp, 10, "DSCP of data")?;
    k.inject(&c.write(0, 0, b"x"))?;
    equal(k.expect(Opcode::Ack, k.at_once())?.dscp, 46, "DSCP of an acknowledgement")
}

fn the_class_of_a_received_packet_means_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&Packet { dscp: 63, ..c.write(0, 0, b"any class") })?;
    k.acks(0, &[])?;
    k.memory_holds_only(&[(0, b"any class")])
}

fn the_flow_label_of_a_received_packet_means_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.is_ipv6 = true)?;
    k.inject_bytes(&c.write(0, 0, b"labelled").spoil().ipv6(|ip| _ = ip.set_flow_label(0xabcde)))?;
    k.acks(0, &[])?;
    k.memory_holds_only(&[(0, b"labelled")])
}

fn bits_that_a_switch_may_write_are_ignored(k: &mut Kit<'_>) -> Outcome {
    // Byte 4 of BTH, which the ICRC leaves out.
    let c = k.open(|_| ())?;
    k.inject_bytes(&c.write(0, 0, b"noted").spoil().edit(|b| b[46] = 0xff))?;
    let ack = k.acks(0, &[])?;
    check(!ack.ce && ack.ce_cnt == 0, "W-009: a mark that is none")?;
    k.memory_holds_only(&[(0, b"noted")])
}

fn the_largest_connection_ids_are_ids(k: &mut Kit<'_>) -> Outcome {
    let (own, peer) = (Qpn::new(0xff_ffff), Qpn::new(0xff_fffe));
    let c = k.open(|cfg| (cfg.local_id, cfg.remote_id) = (own, peer))?;
    k.inject(&c.write(0, 0, b"far end"))?;
    let ack = k.expect(Opcode::Ack, k.at_once())?;
    equal(ack.bth.dest_qpn(), peer, "DestQP of the acknowledgement")?;
    k.memory_holds_only(&[(0, b"far end")])
}
