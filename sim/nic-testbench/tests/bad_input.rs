//! What a card must not do with what it is sent: each fault is counted by name, nothing is placed, the card keeps running.

use cocotb_rs::Seed;
use nic_driver::{ConnInfo, Cq, CqConfig, Device, DmaMem, Mr, MrAccess, Pd, Qp, QpConfig};
use nic_spec::csr::stats::Counter;
use nic_spec::wire::{Axth, Bth, Eth, Ipv4, NakReason, Nxth, Opcode, Pxth, Udp};
use nic_testbench::craft::WritePacket;
use nic_testbench::wire::Way;
use nic_testbench::{Bench, BenchConfig};

/// Where the region begins for peers.
const VA: u64 = 0x7f00_0000_0000;
/// Bytes of the region.
const REGION: u64 = 16384;
/// What the memory holds before anything is placed.
const FILL: u8 = 0xee;
/// Ticks between two refusals of a connection, shorter than the default so that the tests are.
const NAK_INTERVAL_TICKS: u32 = 6400;
/// Connection id of the peer that the test plays.
const PEER_QPN: u32 = 0x0000_abcd;

/// A card with one connection whose peer is the test.
struct Target {
    bench: Bench,
    device: Device,
    qp: Qp,
    _cq: Cq,
    memory: DmaMem,
    writable: Mr,
    readable: Mr,
    _pd: Pd,
    pseq: u32,
    mseq: u32,
}

impl Target {
    fn new(is_ipv6: bool) -> Self {
        let mut bench = Bench::start(BenchConfig::lone_card(Seed::new(3))).expect("the bench starts");
        let device = bench.open(0, is_ipv6).expect("the card comes up");
        let pd = Pd::new(&device).expect("a protection domain");
        let cq = Cq::new(&device, CqConfig { log2_size: 8, vector: 0 }).expect("a completion queue");
        let qp = Qp::create(&pd, &cq, &cq, &QpConfig::default()).expect("a queue pair");
        let peer = Bench::port_config(1, is_ipv6);
        let info = ConnInfo { qpn: PEER_QPN, mac: peer.mac, ip: peer.ip, ..qp.conn_info().clone() };
        qp.connect(&info).expect("the connection opens");
        let memory = DmaMem::zeroed(REGION);
        memory.write(0, &[FILL; REGION as usize]);
        let writable = Mr::register_at(&pd, &memory, 0, REGION, MrAccess::REMOTE_WRITE, VA).expect("a region");
        let readable = Mr::register(&pd, &memory, 0, REGION, MrAccess::LOCAL_READ).expect("a region");
        let mut tunables = device.transport().expect("tunables");
        tunables.nak_interval_ticks = NAK_INTERVAL_TICKS;
        device.set_transport(&tunables).expect("tunables");
        bench.wires[0].record();
        Self { bench, device, qp, _cq: cq, memory, writable, readable, _pd: pd, pseq: 0, mseq: 0 }
    }

    /// A packet that is good as it stands: next sequence number of path 0, next message.
    fn packet(&self, offset: u64, payload: &[u8]) -> WritePacket {
        let (own, peer) = (self.device.port(), Bench::port_config(1, self.device.port().ip.is_ipv6()));
        let macs = (own.mac.to_u64(), peer.mac.to_u64());
        let mut packet = WritePacket::new(
            macs,
            (peer.ip, own.ip),
            self.qp.qpn().get(),
            VA + offset,
            self.writable.rkey().get(),
            payload,
        );
        (packet.pseq, packet.mseq) = (self.pseq, self.mseq);
        packet
    }

    fn send(&self, packet: &WritePacket) {
        self.bench.wires[0].inject(packet.to_bytes());
        self.settle();
    }

    fn settle(&self) {
        for _ in 0..30 {
            self.device.idle().expect("time passes");
        }
    }

    fn is_untouched(&self) -> bool {
        self.memory.to_vec(0, REGION as usize).iter().all(|b| *b == FILL)
    }

    /// Acknowledgements the card sent since the last call.
    fn acks(&self) -> Vec<Ack> {
        self.bench.wires[0]
            .take()
            .into_iter()
            .filter(|f| f.way == Way::Sent)
            .filter_map(|f| Ack::of(&f.bytes))
            .collect()
    }

    /// Sends a bad packet: exactly this counter moves, by one, nothing is placed and nothing is answered.
    fn is_dropped(&self, what: &str, counter: Counter, packet: &WritePacket) {
        self.frame_is_dropped(what, counter, packet.to_bytes(), false);
    }

    fn frame_is_dropped(&self, what: &str, counter: Counter, bytes: Vec<u8>, is_marked_bad: bool) {
        let before = self.device.stats().expect("counters");
        if is_marked_bad {
            self.bench.wires[0].inject_bad(bytes);
        } else {
            self.bench.wires[0].inject(bytes);
        }
        self.settle();
        let moved = self.device.stats().expect("counters").since(&before);
        assert_eq!(moved.get(counter), 1, "{what}: {} did not count; moved: {:?}", counter.name(), nonzero(&moved));
        let placed = moved.get(Counter::RxData);
        assert_eq!((placed, self.acks()), (0, vec![]), "{what}");
        assert!(self.is_untouched(), "{what}: memory was written");
    }

    /// Sends a bad packet: it is refused with this reason, its bit stays clear, nothing is placed.
    fn is_refused(&self, what: &str, reason: NakReason, packet: &WritePacket) {
        let before = self.device.stats().expect("counters");
        self.acks();
        self.send(packet);
        let moved = self.device.stats().expect("counters").since(&before);
        assert_eq!(moved.get(Counter::of_nak(reason)), 1, "{what}: moved {:?}", nonzero(&moved));
        let acks = self.acks();
        assert_eq!(acks.iter().map(|a| a.nak).collect::<Vec<_>>(), [Some(reason.code())], "{what}");
        assert!(acks[0].cum != packet.pseq && !acks[0].has_bitmap, "{what}: {acks:?}");
        assert!(self.is_untouched(), "{what}: memory was written");
        // The card keeps refusals of a connection one to one and a quarter intervals apart.
        for _ in 0..NAK_INTERVAL_TICKS * 5 / 4 / 64 + 2 {
            self.device.idle().expect("time passes");
        }
    }

    /// The card keeps running: a good packet is placed and acknowledged.
    fn still_works(&mut self) {
        self.acks();
        let packet = self.packet(8192, b"still alive");
        self.send(&packet);
        assert_eq!(self.memory.to_vec(8192, 11), b"still alive");
        self.memory.write(8192, &[FILL; 11]);
        let acks = self.acks();
        assert_eq!(acks.iter().map(|a| (a.cum, a.nak)).collect::<Vec<_>>(), [(packet.pseq, None)]);
        (self.pseq, self.mseq) = (self.pseq + 1, self.mseq + 1);
        assert_eq!(self.bench.memories[0].fault_count(), 0);
    }
}

fn nonzero(stats: &nic_driver::Stats) -> Vec<(&'static str, u64)> {
    stats.iter().filter(|c| c.1 > 0).map(|(c, n)| (c.name(), n)).collect()
}

/// What matters here of an acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ack {
    dest: u32,
    cum: u32,
    trig: u32,
    is_dup: bool,
    has_bitmap: bool,
    ce_cnt: u16,
    nak: Option<u8>,
}

impl Ack {
    fn of(frame: &[u8]) -> Option<Self> {
        let (eth, rest) = Eth::split(frame).ok()?;
        let ip_len =
            if eth.ethertype() == nic_spec::wire::ETHERTYPE_IPV6 { nic_spec::wire::Ipv6::LEN } else { Ipv4::LEN };
        let packet = rest;
        assert!(nic_spec::wire::icrc::is_valid(packet).expect("long enough"), "the card sent a wrong ICRC");
        let (bth, rest) = Bth::split(packet.get(ip_len + Udp::LEN..)?).ok()?;
        if bth.opcode() != Opcode::Ack.code() {
            return None;
        }
        let (_, rest) = Pxth::split(rest).ok()?;
        let (axth, rest) = Axth::split(rest).ok()?;
        let rest = if axth.bm() { &rest[32..] } else { rest };
        let nak = if axth.nak() { Some(Nxth::split(rest).ok()?.0.reason()) } else { None };
        Some(Self {
            dest: bth.dest_qpn().get(),
            cum: axth.cum_pseq().get(),
            trig: axth.trig_pseq().get(),
            is_dup: axth.dup(),
            has_bitmap: axth.bm(),
            ce_cnt: axth.ce_cnt(),
            nak,
        })
    }
}

#[test]
fn a_good_packet_with_no_one_or_two_vlan_tags_is_placed_over_ipv4_and_ipv6() {
    for is_ipv6 in [false, true] {
        let mut t = Target::new(is_ipv6);
        for vlans in [vec![], vec![5], vec![5, 6]] {
            let mut packet = t.packet(100, b"tagged");
            packet.vlans = vlans.clone();
            t.send(&packet);
            assert_eq!(t.memory.to_vec(100, 6), b"tagged", "{vlans:?}");
            t.memory.write(100, &[FILL; 6]);
            let acks = t.acks();
            assert_eq!(acks.len(), 1);
            assert_eq!((acks[0].dest, acks[0].cum, acks[0].nak), (PEER_QPN, t.pseq, None));
            (t.pseq, t.mseq) = (t.pseq + 1, t.mseq + 1);
        }
        t.still_works();
    }
}

#[test]
fn broken_frames_are_dropped_each_with_its_counter() {
    let mut t = Target::new(false);
    let good = t.packet(0, &[7; 200]);
    let bytes = good.to_bytes();
    t.is_dropped("three tags", Counter::RxTooManyTags, &WritePacket { vlans: vec![1, 2, 3], ..good.clone() });
    t.is_dropped("IPv4 options", Counter::RxIpOptions, &WritePacket { has_ip_options: true, ..good.clone() });
    t.is_dropped("fragment", Counter::RxIpFragment, &WritePacket { is_fragment: true, ..good.clone() });
    t.is_dropped("UDP port", Counter::RxOtherUdpPort, &WritePacket { ports: (0xc000, 4793), ..good.clone() });
    t.is_dropped("UDP length", Counter::RxBadUdpLen, &WritePacket { udp_len_error: 4, ..good.clone() });
    t.is_dropped("TVer 0, plain RoCEv2", Counter::RxBadTver, &WritePacket { tver: 0, ..good.clone() });
    t.is_dropped("TVer 2", Counter::RxBadTver, &WritePacket { tver: 2, ..good.clone() });
    t.is_dropped("unknown opcode", Counter::RxUnknownOpcode, &WritePacket { opcode: 0xef, ..good.clone() });
    t.is_dropped("ICRC", Counter::RxBadIcrc, &WritePacket { has_bad_icrc: true, ..good.clone() });
    t.is_dropped("frame cut short", Counter::RxTruncated, &WritePacket { cut_bytes: 8, ..good.clone() });
    t.is_dropped(
        "frame cut within its headers",
        Counter::RxTruncated,
        &WritePacket { cut_bytes: bytes.len() - 50, ..good.clone() },
    );
    t.is_dropped("frame longer than its packet", Counter::RxTooLong, &WritePacket { extra_bytes: 4, ..good.clone() });
    t.is_dropped("unknown connection", Counter::RxUnknownConn, &WritePacket { dest: good.dest + 1, ..good.clone() });
    t.is_dropped(
        "other generation of the id",
        Counter::RxUnknownConn,
        &WritePacket { dest: good.dest ^ 0x10_0000, ..good.clone() },
    );
    t.is_dropped("P_Key", Counter::RxBadPkey, &WritePacket { pkey: 0x7ffe, ..good.clone() });
    t.is_dropped("path not open", Counter::RxUnknownPath, &WritePacket { path: 9, ..good.clone() });
    t.is_dropped(
        "other MAC",
        Counter::RxOtherMac,
        &WritePacket { macs: (good.macs.0 ^ 4, good.macs.1), ..good.clone() },
    );
    let mut arp = bytes.clone();
    arp[12..14].copy_from_slice(&0x0806u16.to_be_bytes());
    t.frame_is_dropped("ARP", Counter::RxNotIp, arp, false);
    let mut sum = bytes.clone();
    sum[24] ^= 1;
    t.frame_is_dropped("IPv4 checksum", Counter::RxBadIpChecksum, sum, false);
    let mut tcp = bytes.clone();
    tcp[23] = 6;
    let fixed = Ipv4(&mut tcp[14..34]).fill_checksum().checksum();
    assert_ne!(fixed, 0);
    t.frame_is_dropped("TCP", Counter::RxNotUdp, tcp, false);
    t.frame_is_dropped("marked bad by the MAC", Counter::RxMacError, bytes, true);
    t.still_works();
}

#[test]
fn ipv6_extension_headers_are_dropped() {
    let mut t = Target::new(true);
    let good = t.packet(0, &[7; 64]);
    t.is_dropped("extension header", Counter::RxIpv6Extension, &WritePacket { has_extension: true, ..good });
    t.still_works();
}

#[test]
fn packets_outside_of_the_window_are_dropped_and_duplicates_acknowledged_but_not_placed_again() {
    let mut t = Target::new(false);
    t.still_works();
    let beyond = WritePacket { pseq: t.pseq + 256, ..t.packet(0, b"far") };
    t.is_dropped("PSEQ 257 beyond cum", Counter::RxOutOfWindow, &beyond);
    // The last number of the window is taken, and leaves a hole that the bitmap shows.
    let last = WritePacket { pseq: t.pseq + 255, ..t.packet(64, b"edge") };
    t.send(&last);
    assert_eq!(t.memory.to_vec(64, 4), b"edge");
    let acks = t.acks();
    assert_eq!((acks.len(), acks[0].has_bitmap, acks[0].trig), (1, true, last.pseq));
    // Once more, with other content and a congestion mark: acknowledged, counted, not placed.
    let again = WritePacket { payload: b"EDGE".to_vec(), ecn: 3, ..last };
    let before = t.device.stats().expect("counters");
    t.send(&again);
    assert_eq!(t.memory.to_vec(64, 4), b"edge");
    let acks = t.acks();
    assert_eq!((acks.len(), acks[0].is_dup, acks[0].ce_cnt), (1, true, 1));
    assert_eq!(t.device.stats().expect("counters").since(&before).get(Counter::RxDuplicate), 1);
}

#[test]
fn memory_that_may_not_be_written_is_refused_with_the_reason() {
    let mut t = Target::new(false);
    let other = Pd::new(&t.device).expect("another protection domain");
    let foreign = Mr::register_at(&other, &t.memory, 0, REGION, MrAccess::REMOTE_WRITE, VA).expect("a region");
    let good = t.packet(0, &[9; 100]);
    t.is_refused("key of no region", NakReason::Rkey, &WritePacket { rkey: 0x3fff, ..good.clone() });
    t.is_refused("old key of the region", NakReason::Rkey, &WritePacket { rkey: good.rkey ^ 0x55, ..good.clone() });
    t.is_refused("region far beyond the table", NakReason::Rkey, &WritePacket { rkey: 0xffff_ff01, ..good.clone() });
    t.is_refused(
        "region of another domain",
        NakReason::Pd,
        &WritePacket { rkey: foreign.rkey().get(), ..good.clone() },
    );
    t.is_refused(
        "region without remote write",
        NakReason::Access,
        &WritePacket { rkey: t.readable.rkey().get(), va: t.readable.va(), ..good.clone() },
    );
    t.is_refused("one byte before", NakReason::Range, &WritePacket { va: VA - 1, ..good.clone() });
    t.is_refused("one byte behind", NakReason::Range, &WritePacket { va: VA + REGION - 99, ..good.clone() });
    t.is_refused("address that wraps", NakReason::Range, &WritePacket { va: u64::MAX - 50, ..good.clone() });
    t.is_refused("payload above the PMTU", NakReason::Mtu, &WritePacket { payload: vec![1; 4100], ..good.clone() });
    t.is_refused("more than the message's length", NakReason::Mtu, &WritePacket { dma_len: Some(50), ..good.clone() });
    t.is_refused("another stream", NakReason::Stream, &WritePacket { stream: 2, ..good.clone() });
    t.is_refused(
        "message beyond the window",
        NakReason::NoResource,
        &WritePacket { mseq: good.mseq + 64, ..good.clone() },
    );
    t.is_refused("no receive posted", NakReason::Rnr, &WritePacket { imm: Some(1), ..good.clone() });
    t.still_works();
}

#[test]
fn refusals_of_a_connection_are_kept_apart() {
    let mut t = Target::new(false);
    let bad = WritePacket { rkey: 0x3fff, ..t.packet(0, &[1; 8]) };
    for _ in 0..10 {
        t.bench.wires[0].inject(bad.to_bytes());
    }
    t.settle();
    let stats = t.device.stats().expect("counters");
    assert_eq!((stats.get(Counter::NakRkey), stats.get(Counter::TxNak)), (10, 1));
    assert_eq!(t.acks().len(), 1);
    t.still_works();
}

#[test]
fn every_length_of_a_truncated_frame_is_survived() {
    let mut t = Target::new(false);
    let bytes = t.packet(0, &[3; 40]).to_bytes();
    for len in 1..bytes.len() {
        t.bench.wires[0].inject(bytes[..len].to_vec());
    }
    t.settle();
    t.settle();
    let stats = t.device.stats().expect("counters");
    assert_eq!(stats.get(Counter::RxFrames), bytes.len() as u64 - 1);
    assert_eq!(stats.get(Counter::RxTruncated), bytes.len() as u64 - 1);
    assert!(t.is_untouched());
    t.still_works();
}
