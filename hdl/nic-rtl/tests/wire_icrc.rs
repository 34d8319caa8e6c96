//! The two ICRC blocks alone: every length of frame, every kind of header, right and wrong.

mod wire;

use cocotb_rs::{Replay, Rng, Seed};
use nic_rtl::{rx, tx};
use nic_spec::wire::{icrc, ETHERTYPE_VLAN};
use rtl_graph::Lib;
use wire::{
    dut::{Dut, Engine},
    frame::{self, Ip},
    words,
};

fn start(test: &str, default: u64) -> (Seed, Replay) {
    let seed = Seed::from_env_or(default).unwrap();
    (seed, Replay::new(seed, format!("cargo test -p nic-rtl --test wire_icrc {test}")))
}

/// Headers of a frame with `tags` tags and random content behind them, `len` bytes in all without an ICRC; also where
/// its IP header begins.
fn covered(rng: &mut Rng, tags: usize, is_ipv6: bool, len: usize) -> (Vec<u8>, usize) {
    let mut f = frame::random_write(rng, 0, false);
    f.tags = vec![(ETHERTYPE_VLAN, rng.next_u64() as u16); tags];
    f.ip = if is_ipv6 { Ip::v6() } else { Ip::v4() };
    let mut bytes = f.bytes();
    bytes.truncate(len);
    let more = len - bytes.len();
    bytes.extend(rng.bytes(more));
    // Fields that switches may rewrite hold anything; the version stays.
    let ip = 14 + 4 * tags;
    bytes[ip + 1] = rng.next_u64() as u8;
    (bytes, ip)
}

/// The answer of the check for one frame, as soon as it must be there.
fn check(dut: &mut Dut, frame: &[u8], ip_offset: usize, is_ipv6: bool) -> bool {
    let link = (ip_offset - 14) / 4 * 2 + usize::from(is_ipv6);
    let count = frame.len().div_ceil(64);
    for (k, beat) in frame.chunks(64).enumerate() {
        dut.set("beats_valid", 1);
        dut.set_wide("beats_data", &words(beat));
        dut.set("beats_first", (k == 0).into());
        dut.set("beats_last", (k + 1 == count).into());
        dut.set("beats_link", 1 << link);
        dut.set("len", frame.len() as u64 % 64);
        dut.clock();
    }
    dut.set("beats_valid", 0);
    (1..rx::timing::ICRC_LATENCY).for_each(|_| dut.clock());
    dut.is_set("is_good")
}

#[test]
fn a_received_icrc_is_judged_at_every_length() {
    let (seed, _replay) = start("a_received", 1);
    let mut rng = seed.named("frames").rng();
    // The answer means something only at its cycle, so it is compared there.
    let mut dut = Dut::new(&rx::icrc::Icrc::def(&Lib::new()), Engine::Interpreter, seed, &[]);
    for len in 90..230 {
        let (tags, is_ipv6) = (rng.below(3) as usize, rng.percent(50));
        let (mut f, ip) = covered(&mut rng, tags, is_ipv6, len);
        f.extend(icrc::icrc(&f[ip..]).unwrap().to_le_bytes());
        assert!(check(&mut dut, &f, ip, is_ipv6), "{len} bytes and a right ICRC");
        let at = ip + 20 + rng.below((f.len() - ip - 20) as u64) as usize;
        let bit = 1 << rng.below(8);
        f[at] ^= bit;
        let is_right = icrc::is_valid(&f[ip..]).unwrap();
        assert_eq!(check(&mut dut, &f, ip, is_ipv6), is_right, "{len} bytes, byte {at} ^ {bit:#x}");
    }
}

#[test]
fn each_field_that_switches_may_rewrite_is_left_out_and_no_other() {
    let (seed, _replay) = start("each_field", 2);
    let mut rng = seed.named("frames").rng();
    let mut dut = Dut::new(&rx::icrc::Icrc::def(&Lib::new()), Engine::Interpreter, seed, &[]);
    for (tags, is_ipv6) in [(0, false), (1, true), (2, true), (2, false)] {
        let (mut f, ip) = covered(&mut rng, tags, is_ipv6, 140);
        f.extend(icrc::icrc(&f[ip..]).unwrap().to_le_bytes());
        for at in 0..100 {
            let bit = 1 << rng.below(8);
            f[at] ^= bit;
            // Before the IP header nothing counts; where the version breaks, nothing is defined.
            let expected = if at < ip { Ok(true) } else { icrc::is_valid(&f[ip..]) };
            if let Ok(expected) = expected {
                assert_eq!(check(&mut dut, &f, ip, is_ipv6), expected, "byte {at}, IP header at {ip}");
            }
            f[at] ^= bit;
        }
    }
}

/// Sends frames of these lengths through the sender's block and compares; they have room for their ICRC.
fn insert(engine: Engine, seed: Seed, offered: u32, ready: u32, lengths: &[usize]) {
    let mut rng = seed.named("frames").rng();
    let guards = [("m_axis", "m_axis_tvalid")];
    let mut dut = Dut::new(&tx::icrc::Icrc::def(&Lib::new()), engine, seed, &guards);
    let mut sink = wire::axis::FrameSink::new("m_axis", ready);
    let mut expected = vec![];
    let mut beats = std::collections::VecDeque::new();
    for len in lengths {
        let is_ipv6 = rng.percent(50);
        let (mut f, ip) = covered(&mut rng, 0, is_ipv6, len - 4);
        let crc = icrc::icrc(&f[ip..]).unwrap().to_le_bytes();
        let room = [&f[..], &[0; 4]].concat();
        f.extend(crc);
        expected.push(f);
        let count = room.len().div_ceil(64);
        beats.extend(room.chunks(64).enumerate().map(|(k, b)| (b.to_vec(), k == 0, k + 1 == count, is_ipv6)));
    }
    // A beat comes as many cycles after its credit as the block before takes.
    let mut granted = std::collections::VecDeque::from(vec![false; tx::merge::MERGE_LATENCY as usize]);
    while sink.frames.len() < expected.len() {
        granted.push_back(dut.is_set("room") && rng.percent(offered));
        let beat = granted.pop_front().unwrap().then(|| beats.pop_front()).flatten();
        dut.set("frame_valid", beat.is_some().into());
        if let Some((data, first, last, is_ipv6)) = beat {
            dut.set_wide("frame_data", &words(&data));
            dut.set("frame_fill", data.len() as u64);
            dut.set("frame_first", first.into());
            dut.set("frame_last", last.into());
            dut.set("frame_is_ipv6", is_ipv6.into());
        }
        sink.drive(&mut dut, &mut rng);
        sink.take(&mut dut);
        dut.clock();
        assert!(dut.cycles() < 100_000, "the block hangs");
    }
    for (f, (got, user)) in expected.iter().zip(&sink.frames) {
        assert_eq!((got, *user), (f, false), "{} bytes", f.len());
    }
}

#[test]
fn a_sent_icrc_stands_at_each_place_of_a_beat() {
    let (seed, _replay) = start("a_sent", 3);
    let lengths: Vec<usize> = (90..=350).step_by(4).collect();
    assert!(lengths.iter().all(|len| len % 4 == 2));
    insert(Engine::Both, seed, 100, 100, &lengths);
    insert(Engine::Interpreter, seed, 30, 100, &lengths);
    insert(Engine::Interpreter, seed, 100, 40, &lengths);
}
