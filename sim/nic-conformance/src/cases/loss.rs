//! Loss of every packet that a transfer consists of, one after the other and in storms.

use crate::case::cases;
use crate::conn::Conn;
use crate::dut::{Caps, Nanos};
use crate::failure::{check, equal, Outcome};
use crate::kit::{pattern, set_paths, Kit, Sent, MS, RTT};
use crate::peer::{Fate, Peer};
use crate::setup::{ConnConfig, RecvWr, StreamConfig};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::num::Psn;
use nic_spec::wire::Opcode;

cases! { "loss":
    "R-003" + "R-006" every_data_packet_once => |k| each(k, 8, Opcode::Write, |_, n, at| n == at, |_| ());
    "R-003" + "R-006" every_data_packet_twice => |k| each(k, 8, Opcode::Write, |s, n, at| n == at || (s.bth.rtx() && s.bth.pseq().get() == at as u32 && n <= at + 20 && n % 2 == 0), |_| ());
    "R-001" + "R-006" every_acknowledgement_once => |k| each_answer(k, 8, |_| ());
    "R-003" + "R-020" [Caps::PROBE] every_data_packet_once_with_markers => |k| each(k, 8, Opcode::Write, |_, n, at| n == at, with_markers);
    "R-001" + "R-021" [Caps::PROBE] every_acknowledgement_once_with_markers => |k| each_answer(k, 10, with_markers);
    "R-020" + "R-021" [Caps::PROBE] every_probe_once => |k| each(k, 4, Opcode::ProbeReq, |_, n, at| n == at, with_markers);
    "R-022" [Caps::REDUNDANCY] every_data_packet_once_with_copies => |k| each(k, 8, Opcode::Write, |_, n, at| n == at, |cfg| {
        with_markers(cfg);
        cfg.transport.idle_redundancy = true;
    });
    "R-003" + "P-003" every_data_packet_once_on_three_paths => |k| each(k, 8, Opcode::Write, |_, n, at| n == at, |cfg| set_paths(cfg, 3, 1));
    "R-003" + "P-002" every_data_packet_once_across_the_wrap => |k| each(k, 8, Opcode::Write, |_, n, at| n == at, |cfg| cfg.tx_paths[0].first = Psn::new(0xff_fffc));
    "R-003" + "R-004" a_tenth_of_all_packets => |k| storm(k, 10, |_| ());
    "R-003" + "R-004" [Caps::PROBE] a_third_of_all_packets => |k| storm(k, 3, with_markers);
    "R-007" + "R-006" a_silence_shorter_than_the_retries;
    "S-001" + "S-002" + "M-004" every_packet_of_a_received_message_late;
    "S-001" + "S-002" every_packet_of_a_received_message_twice;
    "S-001" + "S-002" + "M-016" [Caps::STREAMS.and(Caps::SEND).and(Caps::BULK)] everything_shuffled_and_doubled;
    "M-008" + "M-016" nothing_at_all => |k| {
        let (c, mut peer) = transfer(k, |_| ())?;
        finish(k, &c, &mut peer, |_, _| Fate::Pass)?;
        equal(peer.retransmissions(), 0, "R-004: retransmissions without a loss")
    };
}

const BYTES: usize = 8 * 1024 - 5;

fn with_markers(cfg: &mut ConnConfig) {
    cfg.transport.tail_marker = true;
    cfg.transport.tlp_limit = 3;
}

/// A connection and a message of 8 packets.
fn transfer(k: &mut Kit<'_>, change: impl Fn(&mut ConnConfig)) -> Outcome<(Conn, Peer)> {
    k.reset(&Default::default())?;
    let c = k.open(|cfg| {
        cfg.pmtu_log2 = 10;
        change(cfg);
    })?;
    k.fill(0, &pattern(7, BYTES))?;
    k.post_write(&c, 1, 0, BYTES as u32)?;
    let peer = Peer::new(&c, RTT);
    Ok((c, peer))
}

const LIMIT: Nanos = 500 * MS;

/// The message completes once and stands in the peer's memory, byte for byte; then the card is silent.
fn finish(k: &mut Kit<'_>, _: &Conn, peer: &mut Peer, fate: impl FnMut(&Sent, usize) -> Fate) -> Outcome {
    let done = peer.complete(k, 1, LIMIT, fate)?;
    equal(done.iter().map(|c| (c.wr_id, c.status)).collect::<Vec<_>>(), [(1, Status::Ok)], "completions")?;
    equal(peer.memory[..BYTES] == pattern(7, BYTES), true, "memory of the peer")?;
    check(peer.memory[BYTES..].iter().all(|b| *b == 0), "M-003: bytes behind the message")?;
    // What was on the way may still be answered.
    k.collect(50 * RTT)?;
    k.completes_nothing()?;
    k.silence(20 * MS)
}

/// For each of the first `count` packets of this kind: it is lost.
fn each(
    k: &mut Kit<'_>,
    count: usize,
    opcode: Opcode,
    is_lost: impl Fn(&Sent, usize, usize) -> bool,
    change: impl Fn(&mut ConnConfig),
) -> Outcome {
    let mut lost_any = 0;
    for position in 0..count {
        let (c, mut peer) = transfer(k, &change)?;
        let (mut seen, mut lost) = (0, 0);
        finish(k, &c, &mut peer, |s, _| {
            if s.opcode != opcode {
                return Fate::Pass;
            }
            seen += 1;
            if is_lost(s, seen - 1, position) && lost < 3 {
                lost += 1;
                return Fate::Lose;
            }
            Fate::Pass
        })
        .map_err(|e| e.context(format!("{opcode:?} number {position} lost")))?;
        lost_any += lost;
    }
    check(lost_any > 0, format!("no {opcode:?} was there to be lost"))
}

/// For each of the first `count` answers of the peer: it is lost.
fn each_answer(k: &mut Kit<'_>, count: usize, change: impl Fn(&mut ConnConfig)) -> Outcome {
    for position in 0..count {
        let (c, mut peer) = transfer(k, &change)?;
        finish(k, &c, &mut peer, |_, n| if n == position { Fate::LoseAnswer } else { Fate::Pass })
            .map_err(|e| e.context(format!("answer number {position} lost")))?;
    }
    Ok(())
}

/// One in `n` packets and one in `n` answers is lost, by a fixed sequence.
fn storm(k: &mut Kit<'_>, n: u32, change: impl Fn(&mut ConnConfig)) -> Outcome {
    for seed in 1..=8u32 {
        let (c, mut peer) = transfer(k, &change)?;
        let mut x = seed.wrapping_mul(0x9e37_79b9);
        let mut draw = || {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            x.is_multiple_of(n)
        };
        finish(k, &c, &mut peer, |_, _| match (draw(), draw()) {
            (true, _) => Fate::Lose,
            (_, true) => Fate::LoseAnswer,
            _ => Fate::Pass,
        })
        .map_err(|e| e.context(format!("losses by sequence {seed}")))?;
    }
    Ok(())
}

fn a_silence_shorter_than_the_retries(k: &mut Kit<'_>) -> Outcome {
    let (c, mut peer) = transfer(k, |_| ())?;
    let mut left = 4;
    finish(k, &c, &mut peer, |_, n| {
        if n >= 3 && left > 0 {
            left -= 1;
            return Fate::Lose;
        }
        Fate::Pass
    })
}

/// The card receives: packet `late` of a message of 8 comes last.
fn every_packet_of_a_received_message_late(k: &mut Kit<'_>) -> Outcome {
    for late in 0..8 {
        k.reset(&Default::default())?;
        let c = k.open(|cfg| cfg.pmtu_log2 = 10)?;
        k.post_recv(&c, 5, 0, 0)?;
        let bytes = pattern(9, BYTES);
        let packets: Vec<_> = c.write_many(0, 0, 0, &bytes, 1024).into_iter().map(|p| p.imm(3)).collect();
        for (n, p) in packets.iter().enumerate().filter(|(n, _)| *n != late) {
            k.inject(p).map_err(|e| e.context(format!("packet {n}")))?;
        }
        k.collect(k.at_once())?;
        k.completes_nothing()?;
        k.inject(&packets[late].clone().rtx())?;
        k.acks(7, &[])?;
        k.completes(&[(5, Status::Ok)])?;
        k.memory_holds_only(&[(0, &bytes)])?;
    }
    Ok(())
}

fn every_packet_of_a_received_message_twice(k: &mut Kit<'_>) -> Outcome {
    for twice in 0..8 {
        k.reset(&Default::default())?;
        let c = k.open(|cfg| cfg.pmtu_log2 = 10)?;
        k.post_recv(&c, 5, 0, 0)?;
        let bytes = pattern(9, BYTES);
        let packets: Vec<_> = c.write_many(0, 0, 0, &bytes, 1024).into_iter().map(|p| p.imm(3)).collect();
        for (n, p) in packets.iter().enumerate() {
            k.inject(p)?;
            if n == twice {
                k.inject(&p.clone().rtx())?;
            }
        }
        k.collect(k.at_once())?;
        k.completes(&[(5, Status::Ok)])?;
        k.memory_holds_only(&[(0, &bytes)])?;
        equal(k.dut.counter(Counter::RxDuplicate)?, 1, "rx_duplicate_count")?;
    }
    Ok(())
}

/// Numbers by a fixed sequence.
struct Draw(u32);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 as usize % end.max(1)
    }
}

const STREAM_MESSAGES: usize = 20;

/// 20 SENDs of each of two streams over three paths, in an order that only the window bounds, a third of them twice.
fn everything_shuffled_and_doubled(k: &mut Kit<'_>) -> Outcome {
    for seed in 1..=6 {
        k.reset(&Default::default())?;
        shuffled(k, seed).map_err(|e| e.context(format!("order by sequence {seed}")))?;
    }
    Ok(())
}

fn shuffled(k: &mut Kit<'_>, seed: u32) -> Outcome {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9));
    let c = k.open(|cfg| {
        set_paths(cfg, 3, 1);
        cfg.pmtu_log2 = 10;
        cfg.streams = vec![StreamConfig::new(1, 0), StreamConfig::new(2, 1)];
    })?;
    let size = 4096;
    let (mut packets, mut want, mut next) = (Vec::new(), Vec::new(), [0u32; 3]);
    for m in 0..STREAM_MESSAGES {
        for stream in 0..2usize {
            let at = (2 * m + stream) * size;
            let wr = RecvWr { wr_id: m as u64, local: k.local(at as u64), len: size as u32, tag: None };
            k.dut.post_recv(c.id, stream as u16 + 1, wr)?;
            let bytes = pattern(at as u8 ^ (at >> 8) as u8, draw.below(size + 1));
            // An empty message is one packet.
            let mut parts = c.send_many(0, m as u32, &bytes, 1024);
            if parts.is_empty() {
                parts.push(c.send(0, &[]).mseq(m as u32).rsn(m as u32));
            }
            for p in parts {
                let path = draw.below(3);
                packets.push(p.pseq(next[path]).path(path as u8).stream(stream as u16 + 1));
                next[path] += 1;
            }
            want.push((at, bytes));
        }
    }
    k.collect(k.at_once())?;
    while !packets.is_empty() {
        let p = packets.swap_remove(draw.below(packets.len()));
        k.inject(&p)?;
        if draw.below(3) == 0 {
            k.inject(&p.rtx())?;
        }
    }
    k.collect(k.at_once())?;
    let pieces: Vec<_> = want.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
    k.memory_holds_only(&pieces)?;
    for cq in 0..2 {
        let done = k.completions_of(cq, STREAM_MESSAGES)?;
        let got: Vec<_> = done.iter().map(|c| (c.wr_id as usize, c.byte_len as usize, c.status)).collect();
        let lens = want.iter().skip(cq as usize).step_by(2).map(|(_, bytes)| bytes.len()).enumerate();
        equal(got, lens.map(|(m, len)| (m, len, Status::Ok)).collect::<Vec<_>>(), "completions of a stream")?;
    }
    Ok(())
}
