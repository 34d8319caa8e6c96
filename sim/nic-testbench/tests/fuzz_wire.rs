//! Damaged and forged packets against one card: nothing is written where it may not be, every frame is counted, the card goes on.

use cocotb_rs::{Replay, Rng, Seed};
use nic_driver::{ConnInfo, Mr, MrAccess, PathConfig, Qp, QpConfig, QpState};
use nic_spec::csr::stats::Counter;
use nic_spec::desc::Status;
use nic_spec::wire::{Bth, Eth, Ipv4, Mxth, NakReason, Opcode, Pxth, Reth, Udp};
use nic_testbench::craft::WritePacket;
use nic_testbench::impostor::{reseal, AckPacket, Impostor, PEER_QPN, REGION};
use nic_testbench::traffic::{nonzero, unexplained_frames, FILL};
use nic_testbench::Bench;

const COMMAND: &str = "cargo test -p nic-testbench --test fuzz_wire";
/// Bytes of Ethernet, IPv4 and UDP headers.
const OUTER: usize = Eth::LEN + Ipv4::LEN + Udp::LEN;
/// Bytes of the headers of a WRITE behind them.
const INNER: usize = Bth::LEN + Pxth::LEN + Mxth::LEN + Reth::LEN;
/// The part of the card's memory that forged packets may reach.
const REACH: std::ops::Range<u64> = 4096 + 100..4096 + 8000;
/// Its address for peers.
const REACH_VA: u64 = 0x1234_5678_9000_0064;

fn config() -> QpConfig {
    QpConfig { paths: vec![PathConfig::default(); 4], ..QpConfig::default() }
}

fn rounds(default: u64) -> u64 {
    if std::env::var_os("RUN_SLOW").is_some() {
        40 * default
    } else {
        default
    }
}

/// A new connection of the card in place of the old one.
fn reconnect(t: &mut Impostor) {
    let fresh = t.side.qp(&config());
    let peer = Bench::port_config(1, false);
    let info = ConnInfo { qpn: PEER_QPN, mac: peer.mac, ip: peer.ip, ..fresh.conn_info().clone() };
    fresh.connect(&info).expect("the connection opens");
    std::mem::replace(&mut t.qp, fresh).destroy().expect("the old connection closes");
    t.next = (0, 0);
}

fn flip(rng: &mut Rng, frame: &mut [u8], from: usize, to: usize) {
    for _ in 0..1 + rng.below(3) {
        let bit = 8 * from as u64 + rng.below(8 * (to - from) as u64);
        frame[bit as usize / 8] ^= 1 << (bit % 8);
    }
}

/// What must hold after any frames.
fn check(t: &Impostor, before: &nic_driver::Stats, frames: u64) {
    let moved = t.side.device.stats().expect("counters").since(before);
    assert_eq!(moved.get(Counter::RxFrames), frames, "{:?}", nonzero(&moved));
    assert_eq!(unexplained_frames(&moved), 0, "{:?}", nonzero(&moved));
    assert_eq!(t.bench.memories[0].fault_count(), 0, "{:?}", t.bench.memories[0].take_faults());
}

#[test]
fn damage_that_the_icrc_sees_places_nothing_and_other_damage_only_the_original() {
    let seed = Seed::from_env_or(21).expect("a seed");
    let _replay = Replay::new(seed, format!("{COMMAND} damage"));
    let mut rng = seed.named("frames").rng();
    let mut t = Impostor::new(seed, &config(), 8);
    for _ in 0..rounds(3) {
        reconnect(&mut t);
        let before = t.side.device.stats().expect("counters");
        t.side.sink.write(0, &[FILL; REGION as usize]);
        let payloads: Vec<Vec<u8>> = (0..60)
            .map(|_| {
                let len = 1 + rng.below(120) as usize;
                rng.bytes(len)
            })
            .collect();
        for (i, payload) in payloads.iter().enumerate() {
            let packet = WritePacket { pseq: i as u32, mseq: i as u32, ..t.packet(i as u64 * 256, payload) };
            let mut frame = packet.to_bytes();
            let len = frame.len();
            match rng.below(4) {
                0 => frame.truncate(1 + rng.below(len as u64 - 1) as usize),
                1 => frame.extend(rng.bytes(1 + i)),
                2 => flip(&mut rng, &mut frame, 0, OUTER),
                _ => flip(&mut rng, &mut frame, OUTER, len),
            }
            t.inject(frame);
        }
        t.settle(30);
        check(&t, &before, payloads.len() as u64);
        let sink = t.sink();
        for (slot, payload) in sink.chunks(256).zip(&payloads) {
            let (placed, rest) = slot.split_at(payload.len());
            assert!(placed == payload || placed.iter().all(|b| *b == FILL), "changed bytes were placed");
            assert!(rest.iter().all(|b| *b == FILL), "bytes behind a payload were written");
        }
    }
    t.still_works(&config());
}

#[test]
fn forged_packets_with_a_right_icrc_stay_within_the_region_that_their_key_names() {
    let seed = Seed::from_env_or(22).expect("a seed");
    let _replay = Replay::new(seed, format!("{COMMAND} forged_packets"));
    let mut rng = seed.named("frames").rng();
    let mut t = Impostor::new(seed, &config(), 8);
    let reach = Mr::register_at(
        &t.side.pd,
        &t.side.sink,
        REACH.start,
        REACH.end - REACH.start,
        MrAccess::REMOTE_WRITE,
        REACH_VA,
    )
    .expect("a region");
    let mut placed = 0;
    for _ in 0..rounds(4) {
        reconnect(&mut t);
        t.qp.post_recv(1).expect("room");
        let before = t.side.device.stats().expect("counters");
        for _ in 0..100 {
            let len = [0, 1, 63, 64, 65, 1500, 4096][rng.below(7) as usize];
            let span = REACH.end - REACH.start;
            // Often at the edges of the region, within and beyond.
            let at = match rng.below(4) {
                0 => rng.below(3).wrapping_sub(1),
                1 => (span + rng.below(3)).wrapping_sub(len + 1),
                2 => rng.next_u64(),
                _ => rng.below(span),
            };
            let mut packet = t.packet(0, &rng.bytes(len as usize));
            packet.va = REACH_VA.wrapping_add(at);
            packet.rkey = reach.rkey().get();
            (packet.pseq, packet.path) = (rng.below(300) as u32, rng.below(4) as u8);
            packet.mseq = (rng.below(72) as u32).wrapping_sub(2) & 0xff_ffff;
            (packet.first, packet.last) = (rng.percent(50), rng.percent(50));
            packet.dma_len = rng.percent(50).then(|| rng.below(9000) as u32);
            packet.imm = rng.percent(20).then(|| rng.next_u64() as u32);
            packet.rsn = rng.below(3) as u32;
            let mut frame = packet.to_bytes();
            let end = frame.len();
            match rng.below(6) {
                0 => flip(&mut rng, &mut frame, OUTER, OUTER + INNER),
                1 => flip(&mut rng, &mut frame, OUTER, end),
                2 => frame[OUTER] = rng.next_u64() as u8,
                3 => frame.truncate(OUTER + rng.below((end - OUTER) as u64) as usize),
                _ => {}
            }
            reseal(&mut frame);
            t.inject(frame);
        }
        t.settle(60);
        check(&t, &before, 100);
        let moved = t.side.device.stats().expect("counters").since(&before);
        placed += moved.get(Counter::RxData);
        let sink = t.sink();
        for (i, byte) in sink.iter().enumerate() {
            assert!(REACH.contains(&(i as u64)) || *byte == FILL, "byte {i:#x} outside the region was written");
        }
        let _ = t.side.cq.poll(64);
    }
    assert!(placed > 50, "the forgery is too clumsy to test anything: {placed} packets accepted");
    t.still_works(&config());
}

/// PSEQ and path of the data packets among frames.
fn data(frames: &[Vec<u8>]) -> Vec<(u8, u32, u32)> {
    let parse = |f: &Vec<u8>| {
        let (bth, rest) = Bth::split(f.get(OUTER..)?).ok()?;
        let (pxth, _) = Pxth::split(rest).ok()?;
        (bth.opcode() == Opcode::Write.code()).then(|| (pxth.path_id().get(), bth.pseq().get(), pxth.tx_ts()))
    };
    frames.iter().filter_map(parse).collect()
}

#[test]
fn acknowledgements_of_what_was_never_sent_complete_nothing_and_are_counted() {
    let mut t = Impostor::new(Seed::new(23), &config(), 8);
    let peer_rkey = nic_spec::num::Rkey::new(0x77);
    let wr = nic_driver::SendWr::write(5, t.side.local.sge(0, 9000), 0x4000, peer_rkey);
    t.qp.post_send(&wr).expect("room");
    t.settle(12);
    let sent = data(&t.sent());
    assert_eq!(sent.len(), 3);
    let nxt = |path: u8| sent.iter().filter(|s| s.0 == path).count() as u32;
    let bad = [
        ("one beyond", AckPacket { apath: 0, cum: nxt(0), ..AckPacket::default() }),
        ("far beyond", AckPacket { apath: 0, cum: 0x7f_ffff, ..AckPacket::default() }),
        ("far behind", AckPacket { apath: 0, cum: 0x80_0000, ..AckPacket::default() }),
        (
            "a bit beyond",
            AckPacket { apath: 1, cum: 0xff_ffff, sack: Some(vec![nxt(1) as usize]), ..AckPacket::default() },
        ),
        ("the last bit", AckPacket { apath: 1, cum: 0xff_ffff, sack: Some(vec![255]), ..AckPacket::default() }),
        ("idle path", AckPacket { apath: 3, cum: nxt(3), ..AckPacket::default() }),
    ];
    for (what, ack) in bad {
        let before = t.side.device.counter(Counter::RxBadAck).expect("counter");
        t.inject(t.ack(&ack));
        t.settle(6);
        assert_eq!(t.side.device.counter(Counter::RxBadAck).expect("counter") - before, 1, "{what}");
        assert_eq!(t.side.cq.poll(1).expect("the ring").len(), 0, "{what}");
    }
    for path in 0..4u8 {
        if nxt(path) > 0 {
            t.inject(t.ack(&AckPacket { apath: path, cum: nxt(path) - 1, ..AckPacket::default() }));
        }
    }
    assert_eq!(t.side.statuses(1), [(5, Status::Ok)]);
    t.still_works(&config());
}

#[test]
fn forged_acknowledgements_leave_each_request_with_one_completion_in_order() {
    let seed = Seed::from_env_or(24).expect("a seed");
    let _replay = Replay::new(seed, format!("{COMMAND} forged_acknowledgements"));
    let mut rng = seed.named("acks").rng();
    let mut t = Impostor::new(seed, &config(), 9);
    let mut tunables = t.side.device.transport().expect("tunables");
    (tunables.rto_ticks, tunables.retry_limit, tunables.rnr_ticks) = (1500, 2, 500);
    t.side.device.set_transport(&tunables).expect("tunables");
    let mut ok = 0;
    for round in 0..rounds(6) {
        reconnect(&mut t);
        let before = t.side.device.stats().expect("counters");
        let count = 30u64;
        for i in 0..count {
            let len = rng.below(10_000) as u32;
            let wr = nic_driver::SendWr::write(i, t.side.local.sge(0, len), 0x4000, nic_spec::num::Rkey::new(0x77));
            t.qp.post_send(&wr).expect("room");
        }
        t.settle(4);
        let mut highest = [0u32; 4];
        let mut clock = 0;
        let mut frames = 0;
        for _ in 0..25 {
            for (path, pseq, ts) in data(&t.sent()) {
                if path < 4 {
                    highest[path as usize] = highest[path as usize].max(pseq + 1);
                }
                clock = ts;
            }
            for _ in 0..rng.below(4) {
                let apath = rng.below(4) as u8;
                let near = highest[apath as usize];
                let cum = match rng.below(5) {
                    0 => rng.next_u64() as u32 & 0xff_ffff,
                    1 => near,
                    _ => (rng.below(u64::from(near) + 1) as u32).wrapping_sub(1) & 0xff_ffff,
                };
                let bits = (0..rng.below(6)).map(|_| rng.below(20) as usize).collect();
                // Fatal refusals end the connection, so they come in some rounds only.
                let reason = match rng.below(12) {
                    0 => NakReason::Rnr.code(),
                    1 => NakReason::NoResource.code(),
                    2 if round % 3 == 2 => rng.next_u64() as u8,
                    _ => 0,
                };
                let ack = AckPacket {
                    apath,
                    epoch: if rng.percent(10) { rng.below(16) as u8 } else { 0 },
                    cum,
                    trig: cum.wrapping_add(rng.below(8) as u32) & 0xff_ffff,
                    sack: rng.percent(50).then_some(bits),
                    ts_echo: if rng.percent(20) { rng.next_u64() as u32 } else { clock },
                    nak: (reason != 0).then_some((reason, rng.next_u64() as u16)),
                    ce_cnt: rng.next_u64() as u16,
                };
                t.inject(t.ack(&ack));
                frames += 1;
            }
            t.settle(2);
        }
        // From here on nobody answers: what is left ends in an error and in flushes.
        let done = t.side.statuses(count as usize);
        let good = done.iter().take_while(|d| d.1 == Status::Ok).count();
        ok += good;
        for (i, (wr_id, status)) in done.iter().enumerate() {
            assert_eq!(*wr_id, i as u64);
            match i.cmp(&good) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => {
                    assert_ne!(*status, Status::WrFlush, "round {round}: the first error says why")
                }
                std::cmp::Ordering::Greater => assert_eq!(*status, Status::WrFlush, "round {round}"),
            }
        }
        if good < count as usize {
            assert_eq!(t.qp.query().expect("the bitmap"), QpState::Error, "round {round}");
        }
        check(&t, &before, frames);
    }
    assert!(ok > 10, "the forgery is too clumsy to test anything: {ok} messages completed");
    t.still_works(&config());
}

#[test]
fn packets_of_a_destroyed_connection_are_dropped() {
    let mut t = Impostor::new(Seed::new(26), &config(), 8);
    let old: Qp = std::mem::replace(&mut t.qp, t.side.qp(&config()));
    let mut packet = t.packet(0, &[1; 50]);
    packet.dest = old.qpn().get();
    old.destroy().expect("the connection closes");
    let before = t.side.device.stats().expect("counters");
    t.inject(packet.to_bytes());
    t.settle(20);
    check(&t, &before, 1);
    assert_eq!(t.side.device.stats().expect("counters").since(&before).get(Counter::RxUnknownConn), 1);
    assert!(t.sink().iter().all(|b| *b == FILL));
}

#[test]
fn a_peer_that_uses_a_receive_twice_gets_no_second_completion_out_of_it() {
    let mut t = Impostor::new(Seed::new(25), &config(), 3);
    t.qp.post_recv(1).expect("room");
    for i in 0..20 {
        let packet = WritePacket { pseq: i, mseq: i, imm: Some(i), rsn: 0, ..t.packet(0, &[i as u8; 8]) };
        t.inject(packet.to_bytes());
    }
    t.settle(60);
    let done = t.side.cq.poll(20).expect("the ring holds no nonsense");
    assert_eq!(done.iter().map(|c| (c.wr_id, c.imm)).collect::<Vec<_>>(), [(1, Some(0))]);
    assert_eq!(t.side.cq.poll(20).expect("the ring holds no nonsense"), []);
    assert_eq!(t.side.device.counter(Counter::CqOverflow).expect("counter"), 0);
    t.still_works(&config());
}
