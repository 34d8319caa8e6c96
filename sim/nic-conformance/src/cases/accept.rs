//! Acceptance: what is new, what is a duplicate, what is outside; and that each packet is placed exactly once.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::Caps;
use crate::failure::{check, equal, Outcome};
use crate::kit::{pattern, set_paths, Ack, Kit, US};
use nic_spec::csr::stats::Counter;
use nic_spec::num::{Msn, Psn};
use nic_spec::wire::Opcode;

cases! { "accept":
    "S-001" + "S-006" packets_in_order_advance_the_cumulative_number;
    "S-001" + "S-021" + "M-004" a_packet_behind_a_hole_is_placed_and_reported_in_the_bitmap;
    "S-001" [Caps::WINDOW_256] the_last_packet_of_the_window_is_taken;
    "S-003" [Caps::WINDOW_256] the_first_packet_beyond_the_window_is_dropped_without_a_trace;
    "S-006" a_filled_hole_lets_the_cumulative_number_jump;
    "S-006" two_holes_are_filled_one_after_the_other;
    "S-002" + "S-010" a_duplicate_is_acknowledged_and_not_placed => |k| duplicate(k, |c| c.write(0, 0, b"second"));
    "S-002" a_duplicate_behind_a_hole_is_acknowledged_and_not_placed;
    "S-002" the_first_packet_is_still_a_duplicate_after_many;
    "S-002" + "W-005" a_duplicate_by_another_port_is_a_duplicate => |k| duplicate(k, |c| {
        let mut p = c.write(0, 0, b"second");
        p.sport = 0xffff;
        p
    });
    "S-002" + "P-008" a_duplicate_of_another_epoch_is_a_duplicate => |k| duplicate(k, |c| c.write(0, 0, b"second").epoch(5).rtx());
    "S-002" + "S-022" a_retransmission_of_what_arrived_says_dup_and_rtxe;
    "P-001" the_same_number_on_another_path_is_another_packet;
    "P-001" + "P-002" pseq_wraps_at_2_pow_24 => |k| wraps(k, 0xff_fffe, &[0, 1, 2, 3]);
    "P-001" + "S-021" the_bitmap_spans_the_wrap_of_pseq => |k| wraps(k, 0xff_fffd, &[0, 2, 4, 1, 3]);
    "P-001" + "S-021" a_hole_at_the_last_number_before_the_wrap_is_reported => |k| wraps(k, 0xff_ffff, &[1, 2, 3, 0]);
    "S-002" + "P-002" a_duplicate_from_before_the_wrap_is_known => |k| {
        let c = open_at(k, 0xff_ffff)?;
        k.inject_all(&[c.write(0xff_ffff, 0, b"a").mseq(0), c.write(0, 1, b"b").mseq(1)])?;
        k.collect(k.at_once())?;
        let before = k.snapshot()?;
        k.inject(&c.write(0xff_ffff, 0, b"X").mseq(0))?;
        check(k.acks(0, &[])?.dup, "S-022: DUP")?;
        k.refused(&before, &[(Counter::RxDuplicate, 1)])
    };
    "S-003" + "P-002" the_window_ends_right_across_the_wrap => |k| {
        let c = open_at(k, 0xff_ff80)?;
        let before = k.snapshot()?;
        k.inject(&c.write(0x80, 0, b"beyond").mseq(1))?;
        k.silence(k.at_once())?;
        k.refused(&before, &[(Counter::RxOutOfWindow, 1)])?;
        k.memory_holds_only(&[])
    };
    "S-001" + "M-004" every_order_of_four_packets_gives_the_same_memory;
    "S-001" + "S-002" every_packet_twice_in_reverse_is_placed_once;
    "S-004" + "W-012" an_unknown_opcode_takes_no_number;
    "S-012" acknowledgements_are_not_acknowledged;
    "P-009" + "P-001" paths_have_states_of_their_own;
    "M-004" [Caps::STREAMS] a_hole_on_one_path_holds_back_no_other => |k| {
        let c = k.open(|cfg| set_paths(cfg, 2, 1))?;
        k.inject(&c.write(1, 0, b"late").mseq(1))?;
        k.acks(0xff_ffff, &[1])?;
        k.inject(&c.write(0, 8, b"free").mseq(0).path(1))?;
        let ack = k.acks(0, &[])?;
        equal(ack.apath, 1, "path acknowledged")?;
        k.memory_holds_only(&[(0, b"late"), (8, b"free")])
    };
}

/// A connection whose path and stream begin with this number.
fn open_at(k: &mut Kit<'_>, first: u32) -> Outcome<Conn> {
    k.open(|cfg| cfg.rx_paths[0].first = Psn::new(first))
}

fn packets_in_order_advance_the_cumulative_number(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for n in 0..20u32 {
        k.inject(&c.write(n, u64::from(n) * 4, &n.to_be_bytes()).ack_req())?;
        k.acks(n, &[])?;
    }
    let all: Vec<u8> = (0..20u32).flat_map(u32::to_be_bytes).collect();
    k.memory_holds_only(&[(0, &all)])
}

fn a_packet_behind_a_hole_is_placed_and_reported_in_the_bitmap(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"0"))?;
    k.acks(0, &[])?;
    k.inject(&c.write(5, 50, b"five"))?;
    let ack = k.acks(0, &[5])?;
    check(ack.has_bitmap && ack.trig == 5, "S-021: the bitmap, and the trigger")?;
    k.memory_holds_only(&[(0, b"0"), (50, b"five")])
}

fn the_last_packet_of_the_window_is_taken(k: &mut Kit<'_>) -> Outcome {
    // Number cum + 256 is bit 255.
    let c = k.open(|_| ())?;
    let far = c.write_many(255, 1, 0, b"far", 1024);
    k.inject(&far[0])?;
    let ack = k.acks(0xff_ffff, &[255])?;
    equal(ack.sack, [255], "bit of the bitmap")?;
    k.memory_holds_only(&[(0, b"far")])
}

fn the_first_packet_beyond_the_window_is_dropped_without_a_trace(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    k.inject(&c.write(256, 0, b"far").mseq(1).ack_req())?;
    k.silence(k.at_once())?;
    k.refused(&before, &[(Counter::RxOutOfWindow, 1)])?;
    k.inject(&c.write(0, 0, b"0"))?;
    k.acks(0, &[])?;
    k.inject(&c.write(256, 0, b"far").mseq(1).ack_req())?;
    k.acks(0, &[256])?;
    k.memory_holds_only(&[(0, b"far")])
}

fn a_filled_hole_lets_the_cumulative_number_jump(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for n in [1, 2, 3] {
        k.inject(&c.write(n, n.into(), b"x"))?;
    }
    let acks = k.collect(k.at_once())?;
    let last =
        Ack::of(acks.last().ok_or_else(|| crate::failure::Failure::new("S-010: no acknowledgement of a hole"))?)?;
    equal((last.cum, last.sack), (0xff_ffff, vec![1, 2, 3]), "before the hole is filled")?;
    k.inject(&c.write(0, 0, b"x").rtx())?;
    let ack = k.acks(3, &[])?;
    check(!ack.has_bitmap, "S-021: a bitmap without a bit set")
}

fn two_holes_are_filled_one_after_the_other(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(1, 1, b"1"))?;
    k.acks(0xff_ffff, &[1])?;
    k.inject(&c.write(4, 4, b"4"))?;
    k.acks(0xff_ffff, &[1, 4])?;
    k.inject(&c.write(0, 0, b"0"))?;
    k.acks(1, &[4])?;
    k.inject(&c.write(3, 3, b"3"))?;
    k.acks(1, &[3, 4])?;
    k.inject(&c.write(2, 2, b"2"))?;
    k.acks(4, &[])?;
    k.memory_holds_only(&[(0, b"01234")])
}

fn duplicate(k: &mut Kit<'_>, again: impl Fn(&Conn) -> crate::packet::Packet) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"first!"))?;
    k.acks(0, &[])?;
    let before = k.snapshot()?;
    k.inject(&again(&c))?;
    let ack = k.acks(0, &[])?;
    check(ack.dup, "S-022: DUP")?;
    k.memory_holds_only(&[(0, b"first!")])?;
    equal(k.counted(&before, Counter::RxData)?, 0, "rx_data_count")?;
    k.refused(&before, &[(Counter::RxDuplicate, 1)])
}

fn a_duplicate_behind_a_hole_is_acknowledged_and_not_placed(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(2, 0, b"first!"))?;
    check(!k.acks(0xff_ffff, &[2])?.dup, "S-022: DUP of a new packet")?;
    let before = k.snapshot()?;
    k.inject(&c.write(2, 0, b"second"))?;
    check(k.acks(0xff_ffff, &[2])?.dup, "S-022: DUP")?;
    k.memory_holds_only(&[(0, b"first!")])?;
    k.refused(&before, &[(Counter::RxDuplicate, 1)])
}

fn the_first_packet_is_still_a_duplicate_after_many(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for n in 0..600 {
        k.inject(&c.write(n, 0, &n.to_be_bytes()))?;
    }
    k.collect(k.at_once())?;
    for n in [0, 1, 343, 344, 598, 599] {
        k.inject(&c.write(n, 0, b"xxxx"))?;
        check(k.acks(599, &[])?.dup, format!("S-002: packet {n} is a duplicate"))?;
    }
    k.memory_holds_only(&[(0, &599u32.to_be_bytes())])
}

fn a_retransmission_of_what_arrived_says_dup_and_rtxe(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"x").ts(10))?;
    let ack = k.acks(0, &[])?;
    equal((ack.dup, ack.rtxe), (false, false), "DUP and RTXE of the first transmission")?;
    k.inject(&c.write(0, 0, b"x").ts(20).rtx())?;
    let ack = k.acks(0, &[])?;
    equal((ack.dup, ack.rtxe, ack.echo), (true, true, 20), "DUP, RTXE and ts_echo of the second")?;
    k.inject(&c.write(1, 0, b"x").ts(30).rtx().ack_req())?;
    let ack = k.acks(1, &[])?;
    equal((ack.dup, ack.rtxe), (false, true), "DUP and RTXE of a retransmission that is new")
}

fn the_same_number_on_another_path_is_another_packet(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 3, 1))?;
    for path in 0..3u8 {
        let bytes = [path + 1; 4];
        k.inject(&c.write(0, u64::from(path) * 4, &bytes).mseq(path.into()).path(path))?;
        let ack = k.acks(0, &[])?;
        equal((ack.apath, ack.dup), (path, false), "path acknowledged, DUP")?;
    }
    k.memory_holds_only(&[(0, &[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3])])
}

/// Packets `first + i` for these `i` in this order; each acknowledgement says exactly what arrived.
fn wraps(k: &mut Kit<'_>, first: u32, order: &[u32]) -> Outcome {
    let c = open_at(k, first)?;
    let number = |i: u32| (first + i) & 0xff_ffff;
    let mut got = Vec::new();
    for i in order {
        k.inject(&c.write(number(*i), u64::from(*i), &[b'a' + *i as u8]).mseq(*i).ack_req())?;
        got.push(*i);
        got.sort_unstable();
        let run = got.iter().enumerate().take_while(|(n, i)| *n as u32 == **i).count() as u32;
        let beyond: Vec<u32> = got.iter().filter(|i| **i >= run).map(|i| number(*i)).collect();
        k.acks(number(run).wrapping_sub(1), &beyond)?;
    }
    let all: Vec<u8> = (0..order.len() as u8).map(|i| b'a' + i).collect();
    k.memory_holds_only(&[(0, &all)])
}

fn every_order_of_four_packets_gives_the_same_memory(k: &mut Kit<'_>) -> Outcome {
    let bytes = pattern(7, 3700);
    for n in 0..24usize {
        let mut left = vec![0, 1, 2, 3];
        let order: Vec<usize> = [n / 6, n / 2 % 3, n % 2, 0].iter().map(|i| left.remove(*i)).collect();
        let c = k.open(|cfg| {
            cfg.pmtu_log2 = 10;
            cfg.local_id = nic_spec::num::Qpn::new(cfg.local_id.get());
        })?;
        k.fill(0, &[0; 3700])?;
        let packets = c.write_many(0, 0, 0, &bytes, 1024);
        let before = k.snapshot()?;
        for i in &order {
            k.inject(&packets[*i])?;
        }
        k.collect(k.at_once())?;
        k.memory_holds_only(&[(0, &bytes)]).map_err(|e| e.context(format!("order {order:?}")))?;
        equal(k.counted(&before, Counter::RxMessages)?, 1, format!("messages placed in order {order:?}"))?;
    }
    Ok(())
}

fn every_packet_twice_in_reverse_is_placed_once(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| cfg.pmtu_log2 = 10)?;
    let bytes = pattern(8, 20_000);
    let packets = c.write_many(0, 0, 0, &bytes, 1024);
    let before = k.snapshot()?;
    for p in packets.iter().rev() {
        k.inject(p)?;
        k.inject(&p.clone().rtx().payload(&vec![0xff; p.payload.len()]))?;
        k.collect(US)?;
    }
    k.memory_holds_only(&[(0, &bytes)])?;
    equal(k.counted(&before, Counter::RxDataBytes)?, 20_000, "rx_data_bytes")?;
    k.refused(&before, &[(Counter::RxDuplicate, packets.len() as u64)])
}

fn an_unknown_opcode_takes_no_number(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject_bytes(&c.write(0, 0, b"x").spoil().bth(|b| _ = b.set_opcode(0xec)).sealed())?;
    k.silence(k.at_once())?;
    k.inject(&c.write(1, 1, b"x"))?;
    k.acks(0xff_ffff, &[1]).map(|_| ())
}

fn acknowledgements_are_not_acknowledged(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.post_write(&c, 1, 0, 4)?;
    let data = k.expect(Opcode::Write, k.at_once())?;
    let before = k.snapshot()?;
    for _ in 0..20 {
        k.inject(&c.ack(&data))?;
    }
    k.silence(200 * US)?;
    equal(k.counted(&before, Counter::RxAck)?, 20, "rx_ack_count")
}

fn paths_have_states_of_their_own(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        set_paths(cfg, 2, 1);
        cfg.rx_paths[1].first = Psn::new(0xff_ffff);
        cfg.streams[0].first_msn = Msn::new(7);
    })?;
    k.inject(&c.write(3, 0, b"a").mseq(7))?;
    equal(k.acks(0xff_ffff, &[3])?.apath, 0, "path acknowledged")?;
    k.inject(&c.write(0xff_ffff, 1, b"b").mseq(8).path(1).ce())?;
    let ack = k.acks(0xff_ffff, &[])?;
    equal((ack.apath, ack.ce_cnt), (1, 1), "path acknowledged and its marks")?;
    k.inject(&c.write(0, 2, b"c").mseq(9))?;
    let ack = k.acks(0, &[3])?;
    equal((ack.apath, ack.ce_cnt), (0, 0), "path acknowledged and its marks")
}
