//! The transmit side of the wire as a whole: frames byte for byte, payload from a memory with delay, errors, order.

mod wire;

use cocotb_rs::{Replay, Rng, Seed};
use nic_rtl::{
    stream::{AckPacket, AhContext, ConnContext, PacketDesc, TxPacket},
    tx::{header::AHEAD_BEATS, Transmitter},
};
use nic_spec::{
    consts,
    csr::stats::Counter,
    desc::Status,
    num::*,
    wire::{icrc, *},
};
use rtl_graph::{Layout, Lib};
use std::collections::{BTreeMap, HashMap, VecDeque};
use wire::{
    axis::FrameSink,
    dut::{Dut, Engine},
    hex,
    oracle::{judge, Port},
    words,
};

/// Values of a record's fields, least significant word first.
type Values = BTreeMap<String, Vec<u64>>;

fn random_values(layout: &Layout, rng: &mut Rng) -> Values {
    let field = |f: &rtl_graph::Field, rng: &mut Rng| {
        let mut value: Vec<u64> = (0..f.width.div_ceil(64)).map(|_| rng.next_u64()).collect();
        if !f.width.is_multiple_of(64) {
            *value.last_mut().unwrap() &= (1 << (f.width % 64)) - 1;
        }
        value
    };
    layout.fields.iter().map(|f| (f.name.clone(), field(f, rng))).collect()
}

/// The packed record, the first field least significant.
fn pack(layout: &Layout, values: &Values) -> Vec<u64> {
    let mut packed = vec![0u64; layout.width().div_ceil(64) as usize];
    let mut at = 0;
    for f in &layout.fields {
        for k in 0..f.width {
            let bit = values[&f.name][(k / 64) as usize] >> (k % 64) & 1;
            packed[((at + k) / 64) as usize] |= bit << ((at + k) % 64);
        }
        at += f.width;
    }
    packed
}

/// A connection as the tables hold it.
struct Conn {
    conn: Values,
    ah: Values,
}

impl Conn {
    fn random(rng: &mut Rng, is_ipv6: bool) -> Conn {
        let mut conn = random_values(&ConnContext::layout(), rng);
        conn.insert("ip_version".into(), vec![is_ipv6.into()]);
        Conn { conn, ah: random_values(&AhContext::layout(), rng) }
    }

    fn is_ipv6(&self) -> bool {
        self.conn["ip_version"] == [1]
    }
}

fn wide(value: &[u64]) -> u128 {
    u128::from(value[0]) | value.get(1).map_or(0, |high| u128::from(*high) << 64)
}

/// The frame of a packet: everything from BTH on is given, the rest comes from the connection.
fn frame(conn: &Conn, sport: u64, body: &[u8]) -> Vec<u8> {
    let get = |name: &str| conn.ah[name][0];
    let mut eth = Eth::zeroed();
    eth.set_dst_mac(get("dst_mac")).set_src_mac(get("src_mac"));
    let udp_len = Udp::LEN + body.len() + consts::ICRC_BYTES;
    let dscp = Dscp::new(conn.conn["dscp"][0] as u8);
    let (dst, src) = (wide(&conn.ah["dst_ip"]), wide(&conn.ah["src_ip"]));
    let mut packet = if conn.is_ipv6() {
        eth.set_ethertype(ETHERTYPE_IPV6);
        let mut ip = Ipv6::zeroed();
        ip.set_version(6).set_dscp(dscp).set_ecn(ECN_ECT0).set_payload_len(udp_len as u16);
        ip.set_next_header(IP_PROTOCOL_UDP).set_hop_limit(get("hop_limit") as u8).set_dst_ip(dst).set_src_ip(src);
        ip.0.to_vec()
    } else {
        eth.set_ethertype(ETHERTYPE_IPV4);
        let mut ip = Ipv4::zeroed();
        ip.set_version(4).set_ihl(5).set_dscp(dscp).set_ecn(ECN_ECT0).set_total_len((Ipv4::LEN + udp_len) as u16);
        ip.set_df(true).set_ttl(get("hop_limit") as u8).set_protocol(IP_PROTOCOL_UDP);
        ip.set_dst_ip(dst as u32).set_src_ip(src as u32).fill_checksum();
        ip.0.to_vec()
    };
    let mut udp = Udp::zeroed();
    udp.set_src_port(sport as u16).set_dst_port(consts::UDP_DPORT).set_len(udp_len as u16);
    packet.extend([&udp.0[..], body].concat());
    packet.extend(icrc::icrc(&packet).unwrap().to_le_bytes());
    [&eth.0[..], &packet].concat()
}

fn bth(conn: &Conn, opcode: Opcode) -> Bth<[u8; 12]> {
    let mut bth = Bth::zeroed();
    bth.set_opcode(opcode.code()).set_tver(consts::TVER).set_pkey(Pkey::new(conn.conn["pkey"][0] as u16));
    bth.set_dest_qpn(Qpn::new(conn.conn["remote_id"][0] as u32));
    bth
}

fn pxth(values: &Values, stream: u64) -> Pxth<[u8; 8]> {
    let get = |name: &str| values[name][0];
    let mut h = Pxth::zeroed();
    h.set_path_id(PathId::new(get("path") as u8)).set_plane(Plane::new(get("plane") as u8));
    h.set_epoch(Epoch::new(get("epoch") as u8)).set_stream_id(StreamId::new(stream as u16));
    h.set_tx_ts(get("tx_ts") as u32);
    h
}

/// The frame of a WRITE packet.
fn write_frame(conn: &Conn, packet: &Values, desc: &Values, payload: &[u8]) -> Vec<u8> {
    let (p, d) = (|name: &str| packet[name][0], |name: &str| desc[name][0]);
    let mut bth = bth(conn, Opcode::Write);
    bth.set_se(d("se") == 1)
        .set_pad_count((payload.len().wrapping_neg() % 4) as u8)
        .set_pseq(Psn::new(p("pseq") as u32));
    bth.set_ack_req(p("ack_req") == 1).set_rtx(p("rtx") == 1).set_eob(p("eob") == 1);
    let mut mxth = Mxth::zeroed();
    mxth.0[0] = d("mflags") as u8;
    mxth.set_resv1(false).set_mseq(Msn::new(d("mseq") as u32)).set_rsn(Rsn::new(d("rsn") as u32));
    let mut reth = Reth::zeroed();
    reth.set_va(d("remote_va")).set_rkey(Rkey::new(d("rkey") as u32)).set_dma_len(d("dma_len") as u32);
    let mut body = [&bth.0[..], &pxth(packet, conn.conn["stream_id"][0]).0, &mxth.0, &reth.0].concat();
    if mxth.imm() && mxth.last() {
        body.extend((d("imm") as u32).to_be_bytes());
    }
    body.extend(payload);
    body.resize(body.len() + payload.len().wrapping_neg() % 4, 0);
    frame(conn, p("sport"), &body)
}

/// The frame of an acknowledgement.
fn ack_frame(conn: &Conn, ack: &Values) -> Vec<u8> {
    let get = |name: &str| ack[name][0];
    let is_set = |name: &str| get(name) == 1;
    let mut axth = Axth::zeroed();
    axth.set_bm(is_set("axth_bm")).set_ce(is_set("axth_ce")).set_dup(is_set("axth_dup")).set_rtxe(is_set("axth_rtxe"));
    axth.set_hint(is_set("axth_hint")).set_nak(is_set("axth_nak")).set_credit(is_set("axth_credit"));
    axth.set_apath(PathId::new(get("axth_apath") as u8)).set_plane(Plane::new(get("axth_plane") as u8));
    axth.set_epoch(Epoch::new(get("axth_epoch") as u8)).set_syndrome(get("axth_syndrome") as u8);
    axth.set_cum_pseq(Psn::new(get("axth_cum_pseq") as u32)).set_trig_pseq(Psn::new(get("axth_trig_pseq") as u32));
    axth.set_ts_echo(get("axth_ts_echo") as u32)
        .set_hold(get("axth_hold") as u16)
        .set_ce_cnt(get("axth_ce_cnt") as u16);
    axth.set_hint_seq(HintSeq::new(get("axth_hint_seq") as u8)).set_rate_hint(get("axth_rate_hint") as u32);
    axth.set_cstream(StreamId::new(get("axth_cstream") as u16))
        .set_rq_limit(RsnLimit::new(get("axth_rq_limit") as u16));
    let mut body = [&bth(conn, Opcode::Ack).0[..], &pxth(ack, 0).0, &axth.0].concat();
    if axth.bm() {
        // The record's bitmap is the header's number.
        body.extend(ack["sack_bitmap"].iter().rev().flat_map(|word| word.to_be_bytes()));
    }
    if axth.nak() {
        body.extend([get("nxth_reason") as u8, 0]);
        body.extend((get("nxth_detail") as u16).to_be_bytes());
    }
    frame(conn, get("sport"), &body)
}

/// A read under way.
struct Read {
    due: u64,
    addr: u64,
    len: u64,
    given: u64,
}

/// What host memory holds at an address: its low bits in the first 64 KiB, beyond a number that no neighbour shares.
fn memory(addr: u64) -> u8 {
    if addr < 0x1_0000 {
        return addr as u8;
    }
    let mixed = addr.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

/// The transmitter between path_tx, ack_gen, a memory and a MAC.
struct Bench {
    dut: Dut,
    rng: Rng,
    conns: Vec<Conn>,
    sink: FrameSink,
    /// Packets to send: values and description.
    packets: VecDeque<(Values, Values)>,
    acks: VecDeque<Values>,
    is_packet_offered: bool,
    is_ack_offered: bool,
    /// Per cent of the cycles in which sources offer and memory gives a beat.
    offered: u32,
    /// Cycles from a read to its first beat.
    latency: u64,
    reads: VecDeque<Read>,
    /// Addresses whose reads fail.
    bad_addresses: Vec<u64>,
    errors: VecDeque<(u64, u64)>,
    frames_counted: u64,
    bytes_counted: u64,
    /// Rows on the tables' read ports.
    asked: Option<(u64, u64)>,
}

impl Bench {
    fn new(engine: Engine, seed: Seed) -> Bench {
        let guards = ["read", "error", "m_axis", "count_frames", "count_bytes"];
        let valid = |name: &str| if name == "m_axis" { "m_axis_tvalid".into() } else { format!("{name}_valid") };
        let valids: Vec<String> = guards.iter().map(|g| valid(g)).collect();
        let mut guards: Vec<(&str, &str)> = guards.iter().zip(&valids).map(|(g, v)| (*g, v.as_str())).collect();
        // Lookups mean something only when a packet was taken: they are judged by what comes of them.
        guards.extend([("conn_conn", ""), ("ah_conn", "")]);
        let mut dut = Dut::new(&Transmitter::def(&Lib::new()), engine, seed, &guards);
        dut.set("dport", consts::UDP_DPORT.into());
        dut.set("error_ready", 1);
        let mut rng = seed.named("stimuli").rng();
        let conns = (0..4).map(|k| Conn::random(&mut rng, k % 2 == 1)).collect();
        Bench {
            dut,
            rng,
            conns,
            sink: FrameSink::new("m_axis", 100),
            packets: VecDeque::new(),
            acks: VecDeque::new(),
            is_packet_offered: false,
            is_ack_offered: false,
            offered: 100,
            latency: 10,
            reads: VecDeque::new(),
            bad_addresses: vec![],
            errors: VecDeque::new(),
            frames_counted: 0,
            bytes_counted: 0,
            asked: None,
        }
    }

    /// A WRITE packet with random fields.
    fn random_packet(&mut self, len: u64, with_imm: bool) -> (Values, Values) {
        let mut desc = random_values(&PacketDesc::layout(), &mut self.rng);
        let others = self.rng.next_u64() & 0x9e;
        let flags = if with_imm { 0x60 } else { [0, 0x20, 0x40][self.rng.below(3) as usize] };
        desc.insert("mflags".into(), vec![others | flags]);
        desc.insert("payload_len".into(), vec![len]);
        desc.insert("iova".into(), vec![self.rng.next_u64() >> 8]);
        let mut packet = random_values(&TxPacket::layout(), &mut self.rng);
        packet.insert("conn".into(), vec![self.rng.below(4)]);
        packet.insert("desc".into(), pack(&PacketDesc::layout(), &desc));
        (packet, desc)
    }

    fn random_ack(&mut self, with_bitmap: bool, is_nak: bool) -> Values {
        let mut ack = random_values(&AckPacket::layout(), &mut self.rng);
        ack.insert("conn".into(), vec![self.rng.below(4)]);
        ack.insert("axth_bm".into(), vec![with_bitmap.into()]);
        ack.insert("axth_nak".into(), vec![is_nak.into()]);
        ack
    }

    fn drive_record(&mut self, port: &str, values: &Values) {
        values.iter().for_each(|(name, value)| self.dut.set_wide(&format!("{port}_{name}"), value));
    }

    fn cycle(&mut self) {
        if !self.is_packet_offered && !self.packets.is_empty() && self.rng.percent(self.offered) {
            self.is_packet_offered = true;
            let values = std::mem::take(&mut self.packets[0].0);
            self.drive_record("packet", &values);
        }
        if !self.is_ack_offered && !self.acks.is_empty() && self.rng.percent(self.offered) {
            self.is_ack_offered = true;
            let values = std::mem::take(&mut self.acks[0]);
            self.drive_record("ack", &values);
        }
        self.dut.set("packet_valid", self.is_packet_offered.into());
        self.dut.set("ack_valid", self.is_ack_offered.into());
        self.dut.set("read_ready", self.rng.percent(self.offered).into());
        let gives = self.drive_data();
        self.sink.drive(&mut self.dut, &mut self.rng);

        self.sink.take(&mut self.dut);
        if self.is_packet_offered && self.dut.is_set("packet_ready") {
            self.packets.pop_front();
            self.is_packet_offered = false;
        }
        if self.is_ack_offered && self.dut.is_set("ack_ready") {
            self.acks.pop_front();
            self.is_ack_offered = false;
        }
        assert!(self.dut.is_set("data_ready"), "room for every beat was reserved");
        self.take_data(gives);
        if self.dut.is_set("read_valid") && self.dut.get("read_ready") == 1 {
            let (addr, len) = (self.dut.get("read_addr"), self.dut.get("read_len"));
            assert!(len > 0, "a read of nothing");
            self.reads.push_back(Read { due: self.dut.cycles() + self.latency, addr, len, given: 0 });
        }
        if self.dut.is_set("error_valid") {
            self.errors.push_back((self.dut.get("error_conn"), self.dut.get("error_status")));
        }
        if self.dut.is_set("count_frames_valid") {
            assert_eq!(self.dut.get("count_frames_code"), u64::from(Counter::TxFrames.code()));
            assert_eq!(self.dut.get("count_bytes_code"), u64::from(Counter::TxBytes.code()));
            self.frames_counted += self.dut.get("count_frames_amount");
            self.bytes_counted += self.dut.get("count_bytes_amount");
        }
        let (conn, ah) = (self.dut.get("conn_conn"), self.dut.get("ah_conn"));
        self.dut.clock();
        // Tables answer after the edge.
        let asked = (conn % 4, ah % 4);
        if self.asked.replace(asked) != Some(asked) {
            let row = |k: u64| &self.conns[k as usize];
            let conn = pack(&ConnContext::layout(), &row(asked.0).conn);
            let ah = pack(&AhContext::layout(), &row(asked.1).ah);
            self.dut.set_wide("conn_row", &conn);
            self.dut.set_wide("ah_row", &ah);
        }
    }

    /// Offers the next beat of memory; true when there is one.
    fn drive_data(&mut self) -> bool {
        let now = self.dut.cycles();
        let is_due = self.reads.front().is_some_and(|r| r.due <= now);
        let gives = is_due && self.rng.percent(self.offered);
        self.dut.set("data_valid", gives.into());
        if gives {
            let r = &self.reads[0];
            let count = (r.len - r.given).min(64);
            let beat: Vec<u8> = (0..64u64).map(|k| memory(r.addr + r.given + k)).collect();
            let is_last = r.given + count == r.len;
            let is_bad = self.bad_addresses.contains(&r.addr);
            self.dut.set_wide("data_data", &words(&beat));
            self.dut.set("data_keep", if count == 64 { u64::MAX } else { (1 << count) - 1 });
            self.dut.set("data_last", is_last.into());
            self.dut.set("data_error", (is_last && is_bad).into());
        }
        gives
    }

    fn take_data(&mut self, gives: bool) {
        if gives {
            let r = &mut self.reads[0];
            r.given += 64;
            if r.given >= r.len {
                self.reads.pop_front();
            }
        }
    }

    /// Runs until nothing has moved for a while.
    fn drain(&mut self) {
        let mut idle = 0;
        while idle < 60 {
            let before = (self.sink.beats, self.errors.len(), self.packets.len(), self.acks.len());
            self.cycle();
            let is_quiet = before == (self.sink.beats, self.errors.len(), self.packets.len(), self.acks.len());
            idle = if is_quiet && self.reads.is_empty() { idle + 1 } else { 0 };
            assert!(self.dut.cycles() < 1_000_000, "the transmitter hangs");
        }
        assert!(self.packets.is_empty() && self.acks.is_empty(), "something was not taken");
    }

    fn payload_of(desc: &Values) -> Vec<u8> {
        (0..desc["payload_len"][0]).map(|k| memory(desc["iova"][0] + k)).collect()
    }

    /// Sends packets and acknowledgements and compares every frame; gives the frames in order.
    fn check(&mut self, packets: Vec<(Values, Values)>, acks: Vec<Values>) -> Vec<Vec<u8>> {
        let is_good = |(_, desc): &&(Values, Values)| !self.bad_addresses.contains(&desc["iova"][0]);
        let conn = |values: &Values| &self.conns[values["conn"][0] as usize];
        let good = packets.iter().filter(is_good);
        let mut writes: VecDeque<Vec<u8>> =
            good.map(|(p, d)| write_frame(conn(p), p, d, &Self::payload_of(d))).collect();
        let mut answers: VecDeque<Vec<u8>> = acks.iter().map(|a| ack_frame(conn(a), a)).collect();
        self.packets.extend(packets);
        self.acks.extend(acks);
        self.drain();
        let frames: Vec<Vec<u8>> = std::mem::take(&mut self.sink.frames).into_iter().map(|(f, _)| f).collect();
        for (k, f) in frames.iter().enumerate() {
            let is_write = bth_of(f).opcode() == Opcode::Write.code();
            let expected = if is_write { writes.pop_front() } else { answers.pop_front() };
            assert_eq!(Some(f), expected.as_ref(), "frame {k}");
        }
        assert!(writes.is_empty() && answers.is_empty(), "{} packets, {} ACKs missing", writes.len(), answers.len());
        assert_eq!(self.sink.gaps, 0, "a frame had a gap");
        frames
    }
}

fn bth_of(frame: &[u8]) -> Bth<&[u8]> {
    let ip = if Eth(frame).ethertype() == ETHERTYPE_IPV6 { Ipv6::LEN } else { Ipv4::LEN };
    Bth(&frame[Eth::LEN + ip + Udp::LEN..])
}

fn start(test: &str, default: u64) -> (Seed, Replay) {
    let seed = Seed::from_env_or(default).unwrap();
    (seed, Replay::new(seed, format!("cargo test -p nic-rtl --test tx_frame {test}")))
}

fn values<const N: usize>(layout: &Layout, set: [(&str, u64); N]) -> Values {
    let zero = layout.fields.iter().map(|f| (f.name.clone(), vec![0; f.width.div_ceil(64) as usize]));
    let mut all: Values = zero.collect();
    for (name, value) in set {
        all.get_mut(name).unwrap_or_else(|| panic!("no field `{name}`"))[0] = value;
    }
    all
}

/// Rows of a connection between 10.1.0.`src` and 10.1.0.`dst`.
fn golden_conn(src: u64, dst: u64, remote_id: u64) -> Conn {
    let conn = [("valid", 1), ("remote_id", remote_id), ("pkey", 0xffff), ("stream_id", 5)];
    let ip = 0x0a01_0000;
    let ah = [("dst_mac", 0x0200_0000_0002), ("src_mac", 0x0200_0000_0001), ("hop_limit", 64), ("dst_ip", ip + dst)];
    let mut ah = values(&AhContext::layout(), ah);
    ah.get_mut("src_ip").unwrap()[0] = ip + src;
    Conn { conn: values(&ConnContext::layout(), conn), ah }
}

#[test]
fn the_golden_packets_are_built_byte_for_byte() {
    let (seed, _replay) = start("the_golden", 1);
    let mut bench = Bench::new(Engine::Both, seed);
    bench.conns = vec![golden_conn(1, 2, 0x123), golden_conn(2, 1, 0x456), golden_conn(0, 0, 0), golden_conn(0, 0, 0)];
    let desc = values(
        &PacketDesc::layout(),
        [("iova", 0x1000), ("payload_len", 8), ("remote_va", 0x7f00_1234_0000), ("rkey", 0xdead_beef), ("dma_len", 8)],
    );
    let desc: Values = desc.into_iter().chain([("mflags".into(), vec![0xc0]), ("mseq".into(), vec![9])]).collect();
    let mut packet = values(
        &TxPacket::layout(),
        [
            ("conn", 0),
            ("path", 3),
            ("plane", 1),
            ("sport", 0xc003),
            ("pseq", 7),
            ("tx_ts", 0x1122_3344),
            ("ack_req", 1),
        ],
    );
    packet.insert("desc".into(), pack(&PacketDesc::layout(), &desc));
    let ack = |more: &[(&str, u64)]| {
        let all = [("conn", 1), ("path", 3), ("plane", 1), ("sport", 0xc103), ("axth_apath", 3), ("axth_plane", 1)];
        let mut ack = values(&AckPacket::layout(), all);
        let common = [("axth_hint", 1), ("axth_syndrome", 0x1f), ("axth_trig_pseq", 9), ("axth_ts_echo", 0x1122_3500)];
        for (name, value) in common.iter().chain(&[("axth_hold", 12), ("axth_ce_cnt", 1)]).chain(more) {
            ack.get_mut(*name).unwrap()[0] = *value;
        }
        ack
    };
    let mut long = ack(&[
        ("tx_ts", 0x5566_7788),
        ("axth_bm", 1),
        ("axth_ce", 1),
        ("axth_credit", 1),
        ("axth_cum_pseq", 6),
        ("axth_hint_seq", 17),
        ("axth_rate_hint", 47_500),
        ("axth_cstream", 5),
        ("axth_rq_limit", 260),
    ]);
    // Bit 2 on the wire.
    long.insert("sack_bitmap".into(), vec![0, 0, 0, 0x2000_0000_0000_0000]);
    let short =
        ack(&[("tx_ts", 0x5566_7799), ("axth_cum_pseq", 9), ("axth_hint_seq", 18), ("axth_rate_hint", 0xff_ffff)]);
    let frames = bench.check(vec![(packet, desc)], vec![long, short]);
    let by_opcode = |opcode: u8| frames.iter().filter(move |f| bth_of(f).opcode() == opcode).collect::<Vec<_>>();
    let golden_write =
        hex("4502005400004000401126930a0100010a010002c00312b700400000e001ffff00000123800000070310000511223344
         c00000090000000000007f0012340000deadbeef0000000800010203040506078520 0b4e");
    assert_eq!(by_opcode(0xe0)[0][14..], golden_write);
    let acks = by_opcode(0xf0);
    let golden_long =
        hex("4502007000004000401126770a0100020a010001c10312b7005c0000f001ffff00000456000000000310000055667788
         ca03101f0000000600000009112235000 00c00011100b98c0005010420000000
         00000000000000000000000000000000000000000000000000000000 6087e47f");
    let golden_short =
        hex("4502005000004000401126970a0100020a010001c10312b7003c0000f001ffff00000456000000000310000055667799
         0803101f0000000900000009112235000 00c000112ffffff00000000fc94d731");
    assert_eq!((&acks[0][14..], &acks[1][14..]), (&golden_long[..], &golden_short[..]));
}

#[test]
fn random_packets_and_acknowledgements_come_out_byte_for_byte() {
    let (seed, _replay) = start("random_packets", 2);
    let mut bench = Bench::new(Engine::Both, seed);
    for (offered, ready, latency) in [(100, 100, 5), (40, 100, 30), (100, 30, 1), (60, 60, 100)] {
        (bench.offered, bench.sink.percent, bench.latency) = (offered, ready, latency);
        let packets = (0..25)
            .map(|_| {
                let len = [0, 1, 64, 90, 300][bench.rng.below(5) as usize] + bench.rng.below(70);
                let with_imm = bench.rng.percent(50);
                bench.random_packet(len, with_imm)
            })
            .collect();
        let acks = (0..25)
            .map(|_| {
                let (bitmap, nak) = (bench.rng.percent(50), bench.rng.percent(50));
                bench.random_ack(bitmap, nak)
            })
            .collect();
        bench.check(packets, acks);
    }
    assert_eq!(bench.frames_counted, 200);
}

#[test]
fn every_length_of_payload_gets_its_pad_and_its_icrc() {
    let (seed, _replay) = start("every_length", 3);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    let lengths = (0..=132).chain([1024, 4095, 4096, 8190, 8192]);
    let packets: Vec<_> = lengths.map(|len| bench.random_packet(len, len % 3 == 0)).collect();
    let frames = bench.check(packets, vec![]);
    assert_eq!(bench.bytes_counted, frames.iter().map(|f| f.len() as u64).sum::<u64>());
    // The ICRC stood at each of its places in a beat, once over two beats.
    let ends: std::collections::HashSet<usize> = frames.iter().map(|f| f.len() % 64).collect();
    assert_eq!(ends.len(), 16);
    assert!(ends.contains(&2));
}

#[test]
fn what_is_sent_is_what_the_parser_accepts() {
    let (seed, _replay) = start("what_is_sent", 4);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    let packets: Vec<_> = (0..20).map(|k| bench.random_packet(13 * k, k % 2 == 0)).collect();
    let acks: Vec<_> = (0..8).map(|k| bench.random_ack(k & 1 == 1, k & 2 == 2)).collect();
    let frames = bench.check(packets, acks);
    let port = Port { mac: 0, is_promiscuous: true, dport: consts::UDP_DPORT };
    frames.iter().for_each(|f| assert!(judge(f, false, &port).is_ok()));
}

#[test]
fn a_packet_whose_payload_cannot_be_read_is_dropped_and_its_connection_told() {
    let (seed, _replay) = start("a_packet_whose", 5);
    let mut bench = Bench::new(Engine::Both, seed);
    (bench.offered, bench.latency) = (80, 20);
    let mut packets = vec![];
    let mut failed = vec![];
    // More bad payload than the buffer holds: its room must come back.
    for k in 0..60u64 {
        let packet = bench.random_packet([70, 1500, 0, 64][(k % 4) as usize], k % 3 == 0);
        if k % 4 != 2 && k % 5 < 3 {
            bench.bad_addresses.push(packet.1["iova"][0]);
            failed.push((packet.0["conn"][0], u64::from(Status::LocDma.code())));
        }
        packets.push(packet);
    }
    bench.check(packets, vec![]);
    assert_eq!(bench.errors, failed);
    assert!(bench.dut.covered("payload.dropped") > 20);
}

#[test]
fn packets_of_4_kib_keep_the_stream_busy_in_every_cycle() {
    let (seed, _replay) = start("packets_of_4_kib", 6);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    // 1 µs at 250 MHz.
    bench.latency = 250;
    let packets: Vec<_> = (0..32).map(|_| bench.random_packet(4096, false)).collect();
    bench.packets.extend(packets);
    while bench.sink.beats == 0 {
        bench.cycle();
    }
    let (start, beats) = (bench.dut.cycles(), bench.sink.beats);
    while bench.sink.frames.len() < 32 {
        bench.cycle();
    }
    let (cycles, beats) = (bench.dut.cycles() - start, bench.sink.beats - beats);
    assert_eq!(beats, cycles);
}

#[test]
fn short_packets_and_acknowledgements_leave_no_idle_cycle_between_them() {
    let (seed, _replay) = start("short_packets", 7);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    for is_ack in [false, true] {
        for _ in 0..200 {
            if is_ack {
                let ack = bench.random_ack(false, false);
                bench.acks.push_back(ack);
            } else {
                let packet = bench.random_packet(64, false);
                bench.packets.push_back(packet);
            }
        }
        let before = bench.sink.beats;
        while bench.sink.beats < before + 40 {
            bench.cycle();
        }
        let (start, beats) = (bench.dut.cycles(), bench.sink.beats);
        while bench.dut.cycles() < start + 250 {
            bench.cycle();
        }
        assert_eq!(bench.sink.beats - beats, 250, "acknowledgements: {is_ack}");
        bench.drain();
    }
}

#[test]
fn an_acknowledgement_waits_for_one_frame_at_most() {
    let (seed, _replay) = start("an_acknowledgement", 8);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    let packets: Vec<_> = (0..30).map(|_| bench.random_packet(4096, false)).collect();
    bench.packets.extend(packets);
    for _ in 0..8 {
        let wait = 100 + bench.rng.below(150);
        (0..wait).for_each(|_| bench.cycle());
        let ack = bench.random_ack(true, false);
        bench.acks.push_back(ack);
        bench.sink.frames.clear();
        let before = bench.sink.beats;
        while !bench.sink.frames.iter().any(|(f, _)| bth_of(f).opcode() == Opcode::Ack.code()) {
            bench.cycle();
        }
        // The frame being sent, beats of the next that were taken ahead with its whole length, the queue, itself.
        let waited = bench.sink.beats - before;
        assert!(waited <= 66 + AHEAD_BEATS + 32 + 3, "{waited} beats went before it");
    }
    bench.drain();
}

#[test]
fn the_first_beat_stands_24_cycles_after_the_acknowledgement() {
    let (seed, _replay) = start("the_first_beat", 10);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    (0..5).for_each(|_| bench.cycle());
    let ack = bench.random_ack(false, false);
    bench.acks.push_back(ack);
    let offered = bench.dut.cycles();
    bench.cycle();
    assert!(bench.acks.is_empty(), "it is taken at once");
    while !bench.dut.is_set("m_axis_tvalid") {
        bench.cycle();
    }
    assert_eq!(bench.dut.cycles() - offered, 24);
}

#[test]
fn a_mac_that_stands_still_stops_everything_and_loses_nothing() {
    let (seed, _replay) = start("a_mac_that", 9);
    let mut bench = Bench::new(Engine::Interpreter, seed);
    bench.sink.percent = 0;
    let packets: Vec<_> = (0..30).map(|k| bench.random_packet(100 * k, false)).collect();
    let copy: HashMap<usize, _> = packets.iter().cloned().enumerate().collect();
    bench.packets.extend(packets);
    (0..700).for_each(|_| bench.cycle());
    assert!(!bench.packets.is_empty() && bench.sink.frames.is_empty());
    bench.sink.percent = 100;
    bench.drain();
    assert_eq!(bench.sink.frames.len(), 30);
    for (k, (f, _)) in bench.sink.frames.iter().enumerate() {
        let (p, d) = &copy[&k];
        assert_eq!(*f, write_frame(&bench.conns[p["conn"][0] as usize], p, d, &Bench::payload_of(d)), "frame {k}");
    }
}
