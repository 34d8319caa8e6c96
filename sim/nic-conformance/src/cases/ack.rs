//! Acknowledgements: when they leave and what they say.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::Caps;
use crate::failure::{check, equal, Outcome};
use crate::kit::{pattern, set_paths, Ack, Kit, US};
use crate::packet::Packet;
use crate::setup::{ConnConfig, NS_PS};
use nic_spec::csr::stats::Counter;
use nic_spec::wire::Opcode;

cases! { "ack":
    "S-010" the_first_packet_of_a_path_is_acknowledged_at_once => |k| {
        let c = k.open(lazy)?;
        k.inject(&middle(&c, 0))?;
        k.acks(0, &[]).map(|_| ())
    };
    "S-010" a_packet_that_leaves_a_hole_is_acknowledged_at_once => |k| at_once(k, |c| vec![middle(c, 2)]);
    "S-010" a_packet_that_fills_a_hole_is_acknowledged_at_once;
    "S-010" a_packet_behind_a_hole_is_acknowledged_at_once;
    "S-010" + "S-007" a_marked_packet_is_acknowledged_at_once => |k| at_once(k, |c| vec![middle(c, 1).ce()]);
    "S-010" a_duplicate_is_acknowledged_at_once => |k| at_once(k, |c| vec![middle(c, 0)]);
    "S-010" a_packet_that_asks_is_acknowledged_at_once => |k| at_once(k, |c| vec![middle(c, 1).ack_req()]);
    "S-010" the_last_packet_of_a_message_is_acknowledged_at_once => |k| at_once(k, |c| vec![middle(c, 1).last()]);
    "S-011" a_packet_in_order_is_not_acknowledged_at_once;
    "S-011" the_fourth_packet_is_acknowledged_at_once => |k| at_once(k, |c| (1..5).map(|n| middle(c, n)).collect());
    "S-011" three_packets_wait;
    "S-011" sixteen_kibibytes_are_acknowledged_at_once;
    "S-011" the_delay_ends_the_wait;
    "S-011" the_delay_counts_from_the_first_packet_that_waits;
    "S-012" + "P-001" an_acknowledgement_names_the_path_it_is_about;
    "S-020" + "S-022" several_packets_are_acknowledged_together_by_the_last;
    "S-021" the_bitmap_is_there_only_with_a_hole;
    "S-021" [Caps::WINDOW_256] every_bit_of_the_bitmap_can_be_set;
    "S-022" plane_and_epoch_of_the_trigger_come_back;
    "S-022" hold_is_the_time_that_the_receiver_kept_the_acknowledgement;
    "S-022" [Caps::BULK] hold_saturates;
    "S-007" marks_on_duplicates_count;
    "S-007" + "S-020" [Caps::BULK] ce_cnt_wraps_at_2_pow_16;
    "S-005" + "H-034" what_is_acknowledged_stands_in_memory;
    "S-013" [Caps::PROBE] a_probe_is_answered_at_once_with_the_state_of_the_path;
    "S-013" [Caps::PROBE] a_probe_of_a_path_without_packets_is_answered;
    "S-013" + "S-003" [Caps::PROBE] a_probe_changes_nothing;
    "S-013" + "S-022" [Caps::PROBE] the_answer_to_a_probe_echoes_the_probe;
    "S-014" acknowledgements_are_counted_by_length;
}

/// Acknowledgements wait for long, for many packets and for many bytes.
fn lazy(cfg: &mut ConnConfig) {
    cfg.pmtu_log2 = 12;
    cfg.transport.ack_delay_ps = 500 * US * NS_PS;
}

/// A packet of a message of 2^30 bytes that neither begins nor ends it.
fn middle(c: &Conn, pseq: u32) -> Packet {
    c.write(pseq, 0, b"mid!").mseq(0).middle().dma_len(1 << 30)
}

/// After packet 0 and its acknowledgement, these provoke exactly one acknowledgement at once, by the last of them.
fn at_once(k: &mut Kit<'_>, provoke: impl Fn(&Conn) -> Vec<Packet>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject(&middle(&c, 0))?;
    k.acks(0, &[])?;
    let packets = provoke(&c);
    k.inject_all(&packets)?;
    let ack = k.ack()?;
    equal(Some(ack.trig), packets.last().map(|p| p.bth.pseq().get()), "trigger")?;
    k.silence(k.at_once())
}

fn a_packet_that_fills_a_hole_is_acknowledged_at_once(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject(&middle(&c, 1))?;
    k.acks(0xff_ffff, &[1])?;
    k.inject(&middle(&c, 0))?;
    k.acks(1, &[])?;
    // The hole is gone: the next packet in order waits.
    k.inject(&middle(&c, 2))?;
    k.silence(k.at_once())
}

fn a_packet_behind_a_hole_is_acknowledged_at_once(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    for (n, beyond) in [(1, &[1][..]), (2, &[1, 2]), (3, &[1, 2, 3])] {
        k.inject(&middle(&c, n))?;
        k.acks(0xff_ffff, beyond)?;
    }
    Ok(())
}

fn a_packet_in_order_is_not_acknowledged_at_once(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject(&middle(&c, 0))?;
    k.acks(0, &[])?;
    k.inject(&middle(&c, 1))?;
    k.silence(400 * US)
}

fn three_packets_wait(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject(&middle(&c, 0))?;
    k.acks(0, &[])?;
    k.inject_all(&[middle(&c, 1), middle(&c, 2), middle(&c, 3)])?;
    k.silence(400 * US)
}

fn sixteen_kibibytes_are_acknowledged_at_once(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| {
        lazy(cfg);
        cfg.transport.ack_packets = 64;
    })?;
    let bytes = pattern(1, 4096);
    let packet = |n: u32| middle(&c, n).payload(&bytes);
    k.inject(&packet(0))?;
    k.acks(0, &[])?;
    k.inject_all(&[packet(1), packet(2), packet(3)])?;
    k.silence(k.at_once())?;
    k.inject(&packet(4))?;
    k.acks(4, &[])?;
    // One byte less is not enough.
    k.inject_all(&[packet(5), packet(6), packet(7), middle(&c, 8).payload(&bytes[1..])])?;
    k.silence(k.at_once())
}

fn the_delay_ends_the_wait(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject(&middle(&c, 0))?;
    k.acks(0, &[])?;
    k.inject(&middle(&c, 1))?;
    let arrived = k.dut.now();
    let sent = k.expect(Opcode::Ack, 600 * US + k.dut.slack())?;
    equal(Ack::of(&sent)?.cum, 1, "cum_pseq")?;
    let waited = sent.at - arrived;
    let limit = 500 * US + k.at_once();
    check((499 * US..=limit).contains(&waited), format!("acknowledged after {waited} ns of 500 us"))
}

fn the_delay_counts_from_the_first_packet_that_waits(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject(&middle(&c, 0))?;
    k.acks(0, &[])?;
    let begun = k.dut.now();
    k.inject(&middle(&c, 1))?;
    k.advance(300 * US)?;
    k.inject(&middle(&c, 2))?;
    let sent = k.expect(Opcode::Ack, 400 * US)?;
    let waited = sent.at - begun;
    check(waited <= 500 * US + k.at_once(), format!("acknowledged after {waited} ns of 500 us"))?;
    equal(Ack::of(&sent)?.cum, 2, "cum_pseq")
}

fn an_acknowledgement_names_the_path_it_is_about(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|cfg| set_paths(cfg, 3, 1))?;
    for path in [2u8, 0, 1, 2] {
        let pseq = u32::from(k.dut.counter(Counter::RxData)? >= 3);
        let mseq = u32::from(path) + 3 * pseq;
        let order = if pseq == 0 { [1, 2, 0][usize::from(path)] } else { 3 };
        k.inject(&c.write(pseq, mseq.into(), b"x").mseq(order).path(path).ack_req())?;
        equal(k.acks(pseq, &[])?.apath, path, "path acknowledged")?;
    }
    Ok(())
}

fn several_packets_are_acknowledged_together_by_the_last(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject(&middle(&c, 0))?;
    k.acks(0, &[])?;
    k.inject_all(&[middle(&c, 1).ts(100), middle(&c, 2).ts(200).rtx(), middle(&c, 3).ts(300)])?;
    k.inject(&middle(&c, 4).ts(400))?;
    let ack = k.acks(4, &[])?;
    equal((ack.trig, ack.echo, ack.rtxe, ack.ce), (4, 400, false, false), "trigger, its clock and flags")
}

fn the_bitmap_is_there_only_with_a_hole(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"x"))?;
    check(!k.ack()?.has_bitmap, "S-021: a bitmap without a hole")?;
    k.inject(&c.write(2, 0, b"x"))?;
    check(k.ack()?.has_bitmap, "S-021: no bitmap with a hole")?;
    k.inject(&c.write(1, 0, b"x"))?;
    check(!k.ack()?.has_bitmap, "S-021: a bitmap without a hole")
}

fn every_bit_of_the_bitmap_can_be_set(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for n in 1..256 {
        k.inject(&middle(&c, n))?;
    }
    k.collect(k.at_once())?;
    k.inject(&middle(&c, 255))?;
    let ack = k.ack()?;
    equal(ack.sack, (1..256).collect::<Vec<_>>(), "bits set")?;
    k.inject(&middle(&c, 0))?;
    k.acks(255, &[]).map(|_| ())
}

fn plane_and_epoch_of_the_trigger_come_back(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for (n, epoch) in [(0, 0), (1, 15), (2, 0), (3, 7)] {
        k.inject(&c.write(n, 0, b"x").epoch(epoch))?;
        let ack = k.acks(n, &[])?;
        equal((ack.plane, ack.epoch), (0, epoch), "plane and epoch")?;
    }
    Ok(())
}

fn hold_is_the_time_that_the_receiver_kept_the_acknowledgement(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject(&middle(&c, 0))?;
    let ack = k.acks(0, &[])?;
    let at_most = k.at_once() / 16;
    check(u64::from(ack.hold) <= at_most, format!("hold {} of an acknowledgement at once", ack.hold))?;
    k.inject(&middle(&c, 1))?;
    let arrived = k.dut.now();
    let sent = k.expect(Opcode::Ack, 600 * US)?;
    let (hold, waited) = (u64::from(Ack::of(&sent)?.hold) * 16, sent.at - arrived);
    let slack = 32 + k.dut.slack();
    check(hold.abs_diff(waited) <= slack, format!("hold {hold} ns, the acknowledgement left after {waited} ns"))
}

fn hold_saturates(k: &mut Kit<'_>) -> Outcome {
    // 65535 units of 16 ns are 1.05 ms.
    let c = k.open(|cfg| cfg.transport.ack_delay_ps = 2_000 * US * NS_PS)?;
    k.inject(&middle(&c, 0))?;
    k.acks(0, &[])?;
    k.inject(&middle(&c, 1))?;
    let sent = k.expect(Opcode::Ack, 2_100 * US)?;
    equal(Ack::of(&sent)?.hold, u16::MAX, "hold after 2 ms")
}

fn marks_on_duplicates_count(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.write(0, 0, b"x"))?;
    equal(k.acks(0, &[])?.ce_cnt, 0, "ce_cnt")?;
    for n in 1..4 {
        k.inject(&c.write(0, 0, b"x").ce())?;
        let ack = k.acks(0, &[])?;
        equal((ack.ce, ack.dup, ack.ce_cnt), (true, true, n), "CE, DUP and ce_cnt")?;
    }
    k.inject(&c.write(0, 0, b"x"))?;
    let ack = k.acks(0, &[])?;
    equal((ack.ce, ack.ce_cnt), (false, 3), "CE and ce_cnt of an unmarked one")
}

fn ce_cnt_wraps_at_2_pow_16(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let marked = c.write(0, 0, b"x").ce().to_bytes();
    for n in 1..=0x1_0003u32 {
        k.dut.inject(0, &marked)?;
        let frame = k.dut.next_frame(k.at_once())?;
        if n > 0xfffd {
            let packet =
                Packet::parse(&frame.ok_or_else(|| crate::failure::Failure::new("no acknowledgement"))?.bytes)?;
            equal(packet.axth().map(|h| h.ce_cnt()), Some(n as u16), "ce_cnt")?;
        }
    }
    Ok(())
}

fn what_is_acknowledged_stands_in_memory(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    for n in 0..32u32 {
        let bytes = pattern(n as u8, 4096);
        k.inject(&c.write(n, u64::from(n) * 4096, &bytes))?;
        k.acks(n, &[])?;
        equal(k.memory(n as usize * 4096, 4096)? == bytes, true, format!("memory of packet {n} when its ACK is seen"))?;
    }
    Ok(())
}

fn probe(k: &mut Kit<'_>, c: &Conn, snd_nxt: u32, ts: u32) -> Outcome<Ack> {
    k.inject(&c.probe(snd_nxt, 99).ts(ts))?;
    let sent = k.expect(Opcode::ProbeRsp, k.at_once())?;
    Ack::of(&sent)
}

fn a_probe_is_answered_at_once_with_the_state_of_the_path(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(lazy)?;
    k.inject_all(&[middle(&c, 0), middle(&c, 2)])?;
    k.collect(k.at_once())?;
    let ack = probe(k, &c, 4, 5)?;
    equal((ack.cum, &ack.sack[..], ack.apath), (0, &[1][..], 0), "what the answer says")
}

fn a_probe_of_a_path_without_packets_is_answered(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let ack = probe(k, &c, 0, 5)?;
    equal((ack.cum, ack.has_bitmap), (0xff_ffff, false), "cum_pseq and bitmap")
}

fn a_probe_changes_nothing(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    // It says that three packets were sent; none has arrived.
    equal(probe(k, &c, 3, 5)?.cum, 0xff_ffff, "cum_pseq")?;
    k.inject(&c.write(0, 0, b"x"))?;
    check(!k.acks(0, &[])?.dup, "S-022: DUP")?;
    k.refused(&before, &[])
}

fn the_answer_to_a_probe_echoes_the_probe(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    k.inject(&c.probe(7, 99).ts(0xfeed_beef).epoch(3).ce())?;
    let sent = k.expect(Opcode::ProbeRsp, k.at_once())?;
    let ack = Ack::of(&sent)?;
    equal((ack.echo, ack.epoch, ack.trig), (0xfeed_beef, 3, 6), "ts_echo, epoch and trig_pseq")?;
    equal((ack.ce, ack.ce_cnt), (true, 1), "CE and ce_cnt")
}

fn acknowledgements_are_counted_by_length(k: &mut Kit<'_>) -> Outcome {
    let c = k.open(|_| ())?;
    let before = k.snapshot()?;
    for n in [0, 2, 3, 1] {
        k.inject(&c.write(n, 0, b"x"))?;
        k.ack()?;
    }
    equal(k.counted(&before, Counter::TxAckShort)?, 2, "tx_ack_short_count")?;
    equal(k.counted(&before, Counter::TxAckLong)?, 2, "tx_ack_long_count")?;
    equal(k.counted(&before, Counter::TxFrames)?, 4, "tx_frames_count")
}
