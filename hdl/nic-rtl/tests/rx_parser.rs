//! The receive side of the wire as a whole: records and payloads of good frames, the reason of every bad one.

mod wire;

use cocotb_rs::{Replay, Rng, Seed};
use nic_rtl::{
    rx::{verdict::Verdict, Parser},
    stream::RxMeta,
};
use nic_spec::{
    consts,
    csr::stats::Counter,
    wire::{Bth, Eth, Ipv4, Ipv6, Mxth, Udp, Vlan, ETHERTYPE_VLAN},
};
use rtl_graph::Lib;
use std::collections::{HashMap, HashSet, VecDeque};
use wire::{
    axis::FrameSource,
    bytes,
    dut::{Dut, Engine},
    frame::{self, Frame, Ip},
    hex,
    oracle::{judge, Packet, Port},
};

const PORT: Port = Port { mac: frame::PORT_MAC, is_promiscuous: false, dport: consts::UDP_DPORT };

/// A record and the payload that belongs to it.
struct Received {
    fields: HashMap<String, Vec<u64>>,
    payload: Vec<u8>,
}

/// The parser between a MAC and a responder that takes records and payload at random.
struct Bench {
    dut: Dut,
    rng: Rng,
    source: FrameSource,
    /// Per cent of the cycles in which the responder is ready.
    ready: u32,
    records: VecDeque<HashMap<String, Vec<u64>>>,
    beats: VecDeque<(Vec<u8>, bool)>,
    beats_announced: u64,
    beats_taken: u64,
    frames_counted: u64,
    bytes_counted: u64,
    /// Cycle in which each record was first shown.
    shown: Vec<u64>,
}

impl Bench {
    fn new(engine: Engine, seed: Seed) -> Bench {
        let guards = [("meta", "meta_valid"), ("payload", "payload_valid"), ("count_frames", "count_frames_valid")];
        let guards = [&guards[..], &[("count_bytes", "count_bytes_valid")]].concat();
        let mut dut = Dut::new(&Parser::def(&Lib::new()), engine, seed, &guards);
        dut.set("enable", 1);
        dut.set("mac", PORT.mac);
        dut.set("dport", PORT.dport.into());
        Bench {
            dut,
            rng: seed.named("stimuli").rng(),
            source: FrameSource::new("s_axis", 100),
            ready: 100,
            records: VecDeque::new(),
            beats: VecDeque::new(),
            beats_announced: 0,
            beats_taken: 0,
            frames_counted: 0,
            bytes_counted: 0,
            shown: vec![],
        }
    }

    fn cycle(&mut self) {
        let (dut, rng) = (&mut self.dut, &mut self.rng);
        self.source.drive(dut, rng);
        let meta_ready = rng.percent(self.ready);
        let payload_ready = rng.percent(self.ready);
        dut.set("meta_ready", meta_ready.into());
        dut.set("payload_ready", payload_ready.into());
        self.source.take(dut);
        if dut.is_set("meta_valid") {
            if self.shown.len() == self.records.len() {
                self.shown.push(dut.cycles());
            }
            let beats = dut.get("meta_payload_beats");
            if beats > 0 && self.beats_taken == self.beats_announced {
                assert!(dut.is_set("payload_valid"), "the payload must be there when its record is");
            }
            if meta_ready {
                let name = |f: &rtl_graph::Field| f.name.clone();
                let fields = RxMeta::layout().fields;
                self.records
                    .push_back(fields.iter().map(|f| (name(f), dut.get_wide(&format!("meta_{}", f.name)))).collect());
                self.beats_announced += beats;
            }
        }
        if dut.is_set("payload_valid") && payload_ready {
            let data = bytes(&dut.get_wide("payload_data"));
            let keep = dut.get("payload_keep");
            assert_eq!(keep.count_ones(), keep.trailing_ones(), "keep {keep:#x}");
            self.beats.push_back((data[..keep.count_ones() as usize].to_vec(), dut.is_set("payload_last")));
            self.beats_taken += 1;
        }
        if dut.is_set("count_frames_valid") {
            assert_eq!(dut.get("count_frames_code"), u64::from(Counter::RxFrames.code()));
            self.frames_counted += dut.get("count_frames_amount");
            assert!(
                dut.is_set("count_bytes_valid") && dut.get("count_bytes_code") == u64::from(Counter::RxBytes.code())
            );
            self.bytes_counted += dut.get("count_bytes_amount");
        }
        self.dut.clock();
    }

    /// Sends frames and waits until every record came and nothing is left.
    fn run(&mut self, frames: &[(Vec<u8>, bool)]) -> Vec<Received> {
        frames.iter().for_each(|(f, is_bad)| self.source.send(f, *is_bad));
        let mut idle = 0;
        while idle < 40 {
            let before = (self.records.len(), self.beats.len());
            self.cycle();
            let is_quiet = self.source.is_done() && before == (self.records.len(), self.beats.len());
            idle = if is_quiet { idle + 1 } else { 0 };
            assert!(self.dut.cycles() < 2_000_000, "the parser hangs");
        }
        let received: Vec<Received> =
            std::mem::take(&mut self.records).into_iter().map(|r| self.with_payload(r)).collect();
        assert!(self.beats.is_empty(), "payload beats that no record announced");
        self.shown.clear();
        received
    }

    fn with_payload(&mut self, fields: HashMap<String, Vec<u64>>) -> Received {
        let count = fields["payload_beats"][0];
        let mut payload = vec![];
        for k in 0..count {
            let (bytes, is_last) = self.beats.pop_front().expect("announced payload");
            assert_eq!(is_last, k + 1 == count);
            payload.extend(bytes);
        }
        Received { fields, payload }
    }

    /// Sends frames and compares each with the oracle's judgement; gives the reasons (`None` = good).
    fn check(&mut self, frames: &[(Vec<u8>, bool)], port: &Port) -> Vec<Option<Counter>> {
        let received = self.run(frames);
        assert_eq!(received.len(), frames.len(), "one record a frame");
        let pairs = frames.iter().zip(received).enumerate();
        pairs.map(|(k, ((f, is_bad), got))| compare(k, f, &got, judge(f, *is_bad, port))).collect()
    }
}

fn compare(k: usize, frame: &[u8], got: &Received, expected: Result<Packet, Counter>) -> Option<Counter> {
    let drop = Counter::from_code(got.fields["drop"][0] as u8);
    let what = || {
        format!("frame {k}, {} bytes: {}", frame.len(), frame.iter().map(|b| format!("{b:02x}")).collect::<String>())
    };
    match expected {
        Err(why) => {
            assert_eq!(drop, Some(why), "{}", what());
            assert_eq!(got.fields["payload_beats"], [0], "{}", what());
        }
        Ok(packet) => {
            assert_eq!(drop, None, "{}", what());
            for (name, value) in got.fields.iter().filter(|(name, _)| *name != "drop") {
                if let Some(expected) = packet.fields.get(name) {
                    assert_eq!(value, expected, "{name} of {}", what());
                }
            }
            assert_eq!(got.payload, packet.payload, "payload of {}", what());
        }
    }
    drop
}

/// A good frame of a random kind with at most `most` bytes of payload.
fn random_good(rng: &mut Rng, most: u64) -> Vec<u8> {
    let len = rng.below(most + 1) as usize;
    let (a, b) = (rng.percent(50), rng.percent(50));
    match rng.below(3) {
        0 => frame::random_ack(rng, a, b).bytes(),
        _ => frame::random_write(rng, len, a).bytes(),
    }
}

fn start(test: &str, default: u64) -> (Seed, Replay) {
    let seed = Seed::from_env_or(default).unwrap();
    (seed, Replay::new(seed, format!("cargo test -p nic-rtl --test rx_parser {test}")))
}

/// The packets of protocol.md C.11, IP onward.
const GOLDEN_WRITE: &str =
    "4502005400004000401126930a0100010a010002c00312b700400000e001ffff00000123800000070310000511223344
    c00000090000000000007f0012340000deadbeef00000008000102030405060785200b4e";
const GOLDEN_SEND: &str =
    "45020048000040004011269f0a0100010a010002c00312b700340000e101ffff00000123200000080310000511223400
    c000000a00000004000000000000000470696e6725fd1cbf";
const GOLDEN_LONG_ACK: &str =
    "4502007000004000401126770a0100020a010001c10312b7005c0000f001ffff00000456000000000310000055667788
    ca03101f00000006000000091122350000 0c00011100b98c0005010420000000
    00000000000000000000000000000000000000000000000000000000 6087e47f";
const GOLDEN_SHORT_ACK: &str =
    "4502005000004000401126970a0100020a010001c10312b7003c0000f001ffff00000456000000000310000055667799
    0803101f0000000900000009112235000 00c000112ffffff00000000fc94d731";

fn ethernet(packet: &str) -> Vec<u8> {
    [hex("020000000002 020000000001 0800"), hex(packet)].concat()
}

#[test]
fn the_golden_packets_are_read_field_by_field() {
    let (seed, _replay) = start("the_golden", 1);
    let mut bench = Bench::new(Engine::Both, seed);
    let frames = [GOLDEN_WRITE, GOLDEN_SEND, GOLDEN_LONG_ACK, GOLDEN_SHORT_ACK].map(|p| (ethernet(p), false));
    let got = bench.run(&frames);
    let field = |k: usize, name: &str| got[k].fields[name][0];
    let has = |k: usize, expected: &[(&str, u64)]| {
        expected.iter().for_each(|(name, value)| assert_eq!(field(k, name), *value, "{name} of packet {k}"));
    };
    has(0, &[("drop", 0), ("bth_opcode", 0xe0), ("bth_pkey", 0xffff), ("bth_dest_qpn", 0x123), ("bth_ack_req", 1)]);
    has(0, &[("bth_rtx", 0), ("bth_pseq", 7), ("bth_pad_count", 0), ("pxth_path_id", 3), ("pxth_plane", 1)]);
    has(
        0,
        &[("pxth_epoch", 0), ("pxth_stream_id", 5), ("pxth_tx_ts", 0x1122_3344), ("mxth_first", 1), ("mxth_last", 1)],
    );
    has(0, &[("mxth_imm", 0), ("mxth_mseq", 9), ("reth_va", 0x7f00_1234_0000), ("reth_rkey", 0xdead_beef)]);
    has(0, &[("reth_dma_len", 8), ("payload_len", 8), ("payload_beats", 1), ("sport", 0xc003), ("ecn", 2)]);
    assert_eq!(got[0].payload, [0, 1, 2, 3, 4, 5, 6, 7]);
    has(1, &[("drop", Counter::RxUnsupportedOpcode.code().into()), ("payload_beats", 0)]);
    has(2, &[("drop", 0), ("bth_opcode", 0xf0), ("bth_dest_qpn", 0x456), ("axth_bm", 1), ("axth_ce", 1)]);
    has(2, &[("axth_dup", 0), ("axth_hint", 1), ("axth_nak", 0), ("axth_credit", 1), ("axth_apath", 3)]);
    has(2, &[("axth_plane", 1), ("axth_syndrome", 0x1f), ("axth_cum_pseq", 6), ("axth_trig_pseq", 9)]);
    has(2, &[("axth_ts_echo", 0x1122_3500), ("axth_hold", 12), ("axth_ce_cnt", 1), ("axth_hint_seq", 17)]);
    has(2, &[("axth_rate_hint", 47_500), ("axth_cstream", 5), ("axth_rq_limit", 260), ("payload_len", 0)]);
    // Bit 2 from the first on the wire: PSEQ 9 is there, 7 and 8 are missing.
    assert_eq!(got[2].fields["sack_bitmap"], [0, 0, 0, 0x2000_0000_0000_0000]);
    has(3, &[("drop", 0), ("axth_bm", 0), ("axth_cum_pseq", 9), ("axth_rate_hint", 0xff_ffff), ("axth_hint_seq", 18)]);
}

#[test]
fn the_specification_s_vectors_are_read_as_their_fields_say() {
    let (seed, _replay) = start("the_specification", 2);
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../nic-spec/vectors/packets.toml"));
    let table: toml::Table = text.parse().unwrap();
    let packets = table["packet"].as_array().unwrap();
    let frames: Vec<(Vec<u8>, bool)> = packets.iter().map(|p| (hex(p["frame"].as_str().unwrap()), false)).collect();
    let mut bench = Bench::new(Engine::Interpreter, seed);
    bench.dut.set("promiscuous", 1);
    let port = Port { is_promiscuous: true, ..PORT };
    let got = bench.run(&frames);
    let mut good = 0;
    for ((packet, (frame, _)), got) in packets.iter().zip(&frames).zip(&got) {
        compare(0, frame, got, judge(frame, false, &port));
        if got.fields["drop"] != [0] {
            continue;
        }
        good += 1;
        for (name, value) in packet["fields"].as_table().unwrap() {
            let Some(found) = got.fields.get(&name.replace('.', "_")) else { continue };
            if let Some(value) = value.as_integer() {
                assert_eq!(*found, [value as u64], "{name} of {}", packet["name"]);
            }
        }
    }
    assert!(good >= 20, "{good} good packets");
}

#[test]
fn random_packets_come_through_gaps_and_stalls() {
    let (seed, _replay) = start("random_packets", 3);
    let mut bench = Bench::new(Engine::Both, seed);
    for (offered, ready, most) in [(100, 100, 300), (30, 100, 200), (100, 25, 700), (60, 60, 300)] {
        (bench.source.percent, bench.ready) = (offered, ready);
        let frames: Vec<_> = (0..40).map(|_| (random_good(&mut bench.rng, most), false)).collect();
        let reasons = bench.check(&frames, &PORT);
        assert!(reasons.iter().all(Option::is_none));
    }
    assert_eq!(bench.frames_counted, 160);
}

#[test]
fn every_payload_length_up_to_two_beats_and_each_pmtu_arrives() {
    let (seed, _replay) = start("every_payload", 4);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    let lengths = (0..=130).chain([1024, 2048, 4095, 4096, 8189, 8192]);
    let frames: Vec<_> = lengths.map(|n| (frame::random_write(&mut bench.rng, n, n % 2 == 1).bytes(), false)).collect();
    assert!(bench.check(&frames, &PORT).iter().all(Option::is_none));
    assert_eq!(bench.bytes_counted, frames.iter().map(|(f, _)| f.len() as u64).sum::<u64>());
}

/// A good frame over IPv4 and IPv6, with and without tags, each changed by `change` with the offset of its IP header.
fn changed(rng: &mut Rng, change: impl Fn(&mut Vec<u8>, usize, bool)) -> Vec<Vec<u8>> {
    let mut all = vec![];
    for tags in 0..=2 {
        for is_ipv6 in [false, true] {
            let mut f = frame::random_write(rng, 100, false);
            f.tags = vec![(ETHERTYPE_VLAN, 7); tags];
            f.ip = if is_ipv6 { Ip::v6() } else { Ip::v4() };
            let mut bytes = f.bytes();
            change(&mut bytes, Eth::LEN + 4 * tags, is_ipv6);
            all.push(bytes);
        }
    }
    all
}

/// Every class of bad frame: (what, its reason, the frames).
fn bad_classes(rng: &mut Rng) -> Vec<(&'static str, Counter, Vec<Vec<u8>>)> {
    let ip_len = |is_ipv6: bool| if is_ipv6 { Ipv6::LEN } else { Ipv4::LEN };
    let only =
        |is_ipv6: bool, all: Vec<Vec<u8>>| all.into_iter().skip(usize::from(is_ipv6)).step_by(2).collect::<Vec<_>>();
    // Changes behind the IP header keep the ICRC right, so that only the change is wrong.
    let transport = |rng: &mut Rng, change: &dyn Fn(&mut [u8])| {
        changed(rng, |f, ip, is_ipv6| {
            change(&mut f[ip + ip_len(is_ipv6)..]);
            frame::repair_icrc(f, ip);
        })
    };
    let ipv4 = |rng: &mut Rng, change: &dyn Fn(&mut Ipv4<&mut [u8]>)| {
        let all = changed(rng, |f, ip, is_ipv6| {
            if !is_ipv6 {
                change(&mut Ipv4(&mut f[ip..ip + Ipv4::LEN]));
                frame::repair_checksum(f, ip);
            }
        });
        only(false, all)
    };
    let many_tags = |rng: &mut Rng, tags: usize| {
        let mut f = frame::random_write(rng, 40, true);
        f.tags = vec![(ETHERTYPE_VLAN, 1); tags];
        f.bytes()
    };
    let lengthened = |rng: &mut Rng, len: usize| {
        let mut f = frame::random_write(rng, 50, false).bytes();
        f.resize(len, 7);
        f
    };
    let write = |rng: &mut Rng, len: usize| {
        let mut f = frame::random_write(rng, len, false);
        (f.tags, f.ip) = (vec![], Ip::v4());
        f
    };
    let mut short_pad = write(rng, 0);
    Bth(&mut short_pad.headers[..]).set_pad_count(3);
    let mut ack_with_payload = frame::random_ack(rng, false, false);
    ack_with_payload.payload = vec![0; 4];
    let mut ack_with_pad = frame::random_ack(rng, true, false);
    Bth(&mut ack_with_pad.headers[..]).set_pad_count(1);
    let mut truncated_chain = write(rng, 0);
    truncated_chain.headers.truncate(40);
    let mut bth_alone = write(rng, 0);
    bth_alone.headers.truncate(Bth::LEN);
    let mut promised_imm = write(rng, 0);
    Mxth(&mut promised_imm.headers[20..]).set_imm(true).set_last(true);
    let above_pmtu = write(rng, consts::PMTU_BYTES_MAX + 1);
    let padded_udp = {
        // An IPv4 packet without content in a padded frame.
        let mut f = write(rng, 0).bytes()[..34].to_vec();
        Ipv4(&mut f[14..]).set_total_len(20).fill_checksum();
        f.resize(60, 0);
        f
    };
    vec![
        ("another MAC", Counter::RxOtherMac, changed(rng, |f, _, _| f[5] ^= 1)),
        ("another MAC, first byte", Counter::RxOtherMac, changed(rng, |f, _, _| f[0] ^= 0x80)),
        ("three tags", Counter::RxTooManyTags, vec![many_tags(rng, 3), many_tags(rng, 4)]),
        ("no IP", Counter::RxNotIp, changed(rng, |f, ip, _| f[ip - 1] ^= 0x40)),
        ("ARP, padded", Counter::RxNotIp, vec![[hex("020000000002 020000000001 0806"), vec![1; 46]].concat()]),
        ("version against type", Counter::RxBadIpVersion, changed(rng, |f, ip, _| f[ip] ^= 0x20)),
        ("IPv4 options", Counter::RxIpOptions, ipv4(rng, &|ip| _ = ip.set_ihl(6))),
        ("IPv4 header too short", Counter::RxIpOptions, ipv4(rng, &|ip| _ = ip.set_ihl(4))),
        ("IPv4 checksum", Counter::RxBadIpChecksum, only(false, changed(rng, |f, ip, v6| f[ip + 11] ^= u8::from(!v6)))),
        ("more fragments", Counter::RxIpFragment, ipv4(rng, &|ip| _ = ip.set_mf(true))),
        ("last fragment", Counter::RxIpFragment, ipv4(rng, &|ip| _ = ip.set_frag_offset(1))),
        (
            "IPv6 hop by hop",
            Counter::RxIpv6Extension,
            only(true, changed(rng, |f, ip, v6| f[ip + 6] = if v6 { 0 } else { f[ip + 6] })),
        ),
        (
            "IPv6 fragment",
            Counter::RxIpv6Extension,
            only(true, changed(rng, |f, ip, v6| f[ip + 6] = if v6 { 44 } else { f[ip + 6] })),
        ),
        ("TCP over IPv4", Counter::RxNotUdp, ipv4(rng, &|ip| _ = ip.set_protocol(6))),
        (
            "TCP over IPv6",
            Counter::RxNotUdp,
            only(true, changed(rng, |f, ip, v6| f[ip + 6] = if v6 { 6 } else { f[ip + 6] })),
        ),
        ("cut off by a byte", Counter::RxTruncated, changed(rng, |f, _, _| f.truncate(f.len() - 1))),
        ("cut off within the headers", Counter::RxTruncated, changed(rng, |f, ip, _| f.truncate(ip + 30))),
        ("a runt", Counter::RxTruncated, changed(rng, |f, _, _| f.truncate(9))),
        ("a byte too long", Counter::RxTooLong, changed(rng, |f, _, _| f.push(0))),
        ("as long as can be told", Counter::RxTooLong, vec![lengthened(rng, 16_383)]),
        ("longer than can be told", Counter::RxTooLong, vec![lengthened(rng, 16_384), lengthened(rng, 32_800)]),
        ("IP without content", Counter::RxTruncated, vec![padded_udp]),
        ("another port", Counter::RxOtherUdpPort, transport(rng, &|f| f[3] ^= 1)),
        ("UDP length", Counter::RxBadUdpLen, transport(rng, &|f| f[5] ^= 4)),
        ("RoCEv2", Counter::RxBadTver, transport(rng, &|f| f[Udp::LEN + 1] &= 0xf0)),
        ("unknown opcode", Counter::RxUnknownOpcode, transport(rng, &|f| f[Udp::LEN] = 0x0a)),
        ("SEND", Counter::RxUnsupportedOpcode, transport(rng, &|f| f[Udp::LEN] = 0xe1)),
        ("ICRC", Counter::RxBadIcrc, changed(rng, |f, _, _| *f.last_mut().unwrap() ^= 1)),
        ("payload bit", Counter::RxBadIcrc, changed(rng, |f, _, _| f[140] ^= 0x10)),
        ("nothing behind BTH", Counter::RxTruncated, vec![bth_alone.bytes()]),
        ("headers cut off", Counter::RxTruncated, vec![truncated_chain.bytes()]),
        ("immediate promised, not there", Counter::RxTruncated, vec![promised_imm.bytes()]),
        ("pad longer than payload", Counter::RxBadLength, vec![short_pad.bytes()]),
        ("ACK with payload", Counter::RxBadLength, vec![ack_with_payload.bytes()]),
        ("ACK with pad", Counter::RxBadLength, vec![ack_with_pad.bytes()]),
        ("payload above the largest PMTU", Counter::RxTooLong, vec![above_pmtu.bytes()]),
    ]
}

#[test]
fn every_class_of_bad_frame_has_its_reason_and_leaves_nothing_behind() {
    let (seed, _replay) = start("every_class", 5);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    (bench.source.percent, bench.ready) = (80, 70);
    for (what, why, frames) in bad_classes(&mut bench.rng) {
        let mut sent = vec![];
        for f in frames {
            sent.push((f, false));
            // A good frame behind each, to see that nothing of the bad one stuck to it.
            sent.push((random_good(&mut bench.rng, 70), false));
        }
        let reasons = bench.check(&sent, &PORT);
        for pair in reasons.chunks(2) {
            assert_eq!(pair, [Some(why), None], "{what}");
        }
    }
    bench.check(&[(vec![0; 70], true)], &PORT);
    // Every condition decided once at least, also of those that share a reason.
    let text = Verdict::def(&Lib::new()).verilog();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let conditions: HashSet<&str> =
        words.filter(|w| w.strip_prefix("v1_").is_some_and(|w| w.starts_with(|c: char| c.is_ascii_digit()))).collect();
    assert!(conditions.len() >= 25, "{conditions:?}");
    for name in conditions {
        assert!(bench.dut.covered(&format!("verdict.{name}")) > 0, "{name} never decided");
    }
}

#[test]
fn a_frame_that_the_mac_calls_bad_is_dropped_before_anything_else() {
    let (seed, _replay) = start("a_frame_that", 6);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    let frames =
        [(random_good(&mut bench.rng, 300), true), (random_good(&mut bench.rng, 300), false), (vec![0; 20], true)];
    let (bad, good) = (Some(Counter::RxMacError), None);
    assert_eq!(bench.check(&frames, &PORT), [bad, good, bad]);
}

#[test]
fn a_promiscuous_port_takes_every_address() {
    let (seed, _replay) = start("a_promiscuous", 7);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    bench.dut.set("promiscuous", 1);
    let frames: Vec<_> = changed(&mut bench.rng, |f, _, _| f[3] ^= 0x55).into_iter().map(|f| (f, false)).collect();
    assert!(bench.check(&frames, &Port { is_promiscuous: true, ..PORT }).iter().all(Option::is_none));
}

#[test]
fn another_destination_port_can_be_set() {
    let (seed, _replay) = start("another_destination", 8);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    let mut f = frame::random_write(&mut bench.rng, 10, false);
    f.udp.set_dst_port(1234);
    bench.dut.set("dport", 1234);
    assert_eq!(bench.check(&[(f.bytes(), false)], &Port { dport: 1234, ..PORT }), [None]);
}

#[test]
fn a_frame_begun_while_reception_is_off_vanishes_whole() {
    let (seed, _replay) = start("a_frame_begun", 9);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    let frames: Vec<Vec<u8>> = (0..3).map(|k| frame::random_write(&mut bench.rng, 500 + k, false).bytes()).collect();
    bench.dut.set("enable", 0);
    bench.source.send(&frames[0], false);
    (0..3).for_each(|_| bench.cycle());
    // Switched on within the frame: it stays away; switched off within the next: that one stays.
    bench.dut.set("enable", 1);
    bench.source.send(&frames[1], false);
    (0..9).for_each(|_| bench.cycle());
    bench.dut.set("enable", 0);
    let got = bench.run(&[(frames[2].clone(), false)]);
    assert_eq!(got.len(), 1);
    compare(1, &frames[1], &got[0], judge(&frames[1], false, &PORT));
    assert_eq!(bench.frames_counted, 1);
}

/// A good frame damaged somewhere, or cut, or lengthened; sometimes with checks repaired so that damage gets deeper.
fn damaged(rng: &mut Rng) -> Vec<u8> {
    let mut f = random_good(rng, 200);
    for _ in 0..1 + rng.below(2) {
        match rng.below(6) {
            0 => f.truncate(1 + rng.below(f.len() as u64) as usize),
            1 => {
                let more = 1 + rng.below(80) as usize;
                f.extend(rng.bytes(more));
            }
            _ => {
                // Most of the decisions hang on the first 90 bytes.
                let at = rng.below(f.len().min(90) as u64) as usize;
                f[at] ^= 1 << rng.below(8);
            }
        }
    }
    let tag = Vlan::LEN;
    let ip =
        [14, 14 + tag, 14 + 2 * tag].into_iter().find(|at| f.len() > *at && matches!(f[*at] >> 4, 4 | 6)).unwrap_or(14);
    if rng.percent(60) && f.len() >= ip + 60 {
        if f[ip] == 0x45 {
            frame::repair_checksum(&mut f, ip);
        }
        frame::repair_icrc(&mut f, ip);
    }
    f
}

#[test]
fn damaged_frames_are_judged_as_the_specification_judges_them() {
    let (seed, _replay) = start("damaged_frames", 10);
    let mut bench = Bench::new(Engine::Both, seed);
    (bench.source.percent, bench.ready) = (90, 80);
    let frames: Vec<_> = (0..700).map(|_| (damaged(&mut bench.rng), false)).collect();
    let reasons = bench.check(&frames, &PORT);
    let kinds: HashSet<_> = reasons.iter().collect();
    assert!(kinds.len() >= 14, "only {kinds:?} were met");
}

#[test]
fn the_mac_is_never_held_up_while_the_responder_keeps_up() {
    let (seed, _replay) = start("the_mac_is_never", 11);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    // The first credit comes one cycle after reset.
    bench.cycle();
    // Frames of one beat, two and three, of the default PMTU and of the largest.
    let mut frames: Vec<_> = (0..20).map(|k| (vec![k; 20 + usize::from(k)], false)).collect();
    frames.extend((0..20).map(|_| (frame::random_ack(&mut bench.rng, false, false).bytes(), false)));
    frames.extend((0..20).map(|k| (frame::random_write(&mut bench.rng, k, false).bytes(), false)));
    frames.extend([4096, 4096, 8192, 8192].map(|n| (frame::random_write(&mut bench.rng, n, false).bytes(), false)));
    bench.check(&frames, &PORT);
    assert_eq!(bench.source.stalled_cycles, 0);
}

#[test]
fn a_responder_that_stands_still_stops_the_mac_and_loses_nothing() {
    let (seed, _replay) = start("a_responder_that", 12);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    for (count, len) in [(60, 0), (60, 60), (12, 4096)] {
        let frames: Vec<_> =
            (0..count).map(|_| (frame::random_write(&mut bench.rng, len, false).bytes(), false)).collect();
        frames.iter().for_each(|(f, _)| bench.source.send(f, false));
        bench.ready = 0;
        let before = bench.source.stalled_cycles;
        (0..800).for_each(|_| bench.cycle());
        assert!(bench.source.stalled_cycles > before + 200, "the MAC goes on at {len} bytes");
        bench.ready = 100;
        let got = bench.run(&[]);
        assert_eq!(got.len(), frames.len());
        for (k, ((f, _), got)) in frames.iter().zip(&got).enumerate() {
            compare(k, f, got, judge(f, false, &PORT));
        }
    }
}

#[test]
fn the_record_stands_14_cycles_after_the_last_beat() {
    let (seed, _replay) = start("the_record_stands", 13);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    let frame: Frame = frame::random_write(&mut bench.rng, 200, false);
    bench.source.send(&frame.bytes(), false);
    let mut last_beat = 0;
    while !bench.source.is_done() {
        last_beat = bench.dut.cycles();
        bench.cycle();
    }
    while bench.shown.is_empty() {
        bench.cycle();
    }
    assert_eq!(bench.shown[0] - last_beat, 14);
}
