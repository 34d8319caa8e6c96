//! A card with one open connection whose peer is the test: good frames to start from, forged ones, what it answers.

use crate::bench::{Bench, BenchConfig};
use crate::craft::WritePacket;
use crate::traffic::{Side, FILL, REMOTE_VA};
use crate::wire::Way;
use cocotb_rs::Seed;
use nic_driver::{ConnInfo, Qp, QpConfig};
use nic_spec::consts::{ICRC_BYTES, PKEY_DEFAULT, TVER, UDP_DPORT, UDP_SPORT_MIN};
use nic_spec::num::{Epoch, PathId, Pkey, Psn, Qpn, StreamId};
use nic_spec::wire::icrc::icrc;
use nic_spec::wire::{Axth, Bth, Eth, Ipv4, Nxth, Opcode, Pxth, Sack, Udp, ECN_ECT0, ETHERTYPE_IPV4, IP_PROTOCOL_UDP};

/// Bytes of the card's two regions.
pub const REGION: u64 = 16384;
/// Connection id that the test uses.
pub const PEER_QPN: u32 = 0x0000_abcd;

/// A forged acknowledgement.
#[derive(Clone, Debug, Default)]
pub struct AckPacket {
    /// Path it speaks of.
    pub apath: u8,
    /// Epoch of that path.
    pub epoch: u8,
    /// Everything up to here is received.
    pub cum: u32,
    /// Packet that caused it.
    pub trig: u32,
    /// Bits of the bitmap, if there is one.
    pub sack: Option<Vec<usize>>,
    /// Clock of the trigger.
    pub ts_echo: u32,
    /// Refusal: reason, detail.
    pub nak: Option<(u8, u16)>,
    /// Marks.
    pub ce_cnt: u16,
}

/// The card and its connection.
pub struct Impostor {
    /// The card's side.
    pub side: Side,
    /// Its queue pair.
    pub qp: Qp,
    /// The world.
    pub bench: Bench,
    /// Next PSEQ of path 0 and next MSEQ of the test.
    pub next: (u32, u32),
}

impl Impostor {
    /// Brings the card up and opens the connection.
    ///
    /// # Panics
    /// When bench or driver refuse.
    pub fn new(seed: Seed, config: &QpConfig, cq_log2_size: u8) -> Self {
        let mut bench = Bench::start(BenchConfig::lone_card(seed)).expect("the bench starts");
        let side = Side::open(&mut bench, 0, REGION, cq_log2_size);
        let qp = side.qp(config);
        let peer = Bench::port_config(1, false);
        let info = ConnInfo { qpn: PEER_QPN, mac: peer.mac, ip: peer.ip, ..qp.conn_info().clone() };
        qp.connect(&info).expect("the connection opens");
        bench.wires[0].record();
        Self { side, qp, bench, next: (config.paths[0].init_pseq, config.init_msn) }
    }

    /// A WRITE that is good as it stands: next packet of path 0, next message.
    pub fn packet(&self, offset: u64, payload: &[u8]) -> WritePacket {
        let (own, peer) = (self.side.device.port(), Bench::port_config(1, false));
        let macs = (own.mac.to_u64(), peer.mac.to_u64());
        let rkey = self.side.remote.rkey().get();
        let packet = WritePacket::new(macs, (peer.ip, own.ip), self.qp.qpn().get(), REMOTE_VA + offset, rkey, payload);
        WritePacket { pseq: self.next.0, mseq: self.next.1, ..packet }
    }

    /// The frame of an acknowledgement.
    pub fn ack(&self, ack: &AckPacket) -> Vec<u8> {
        let (own, peer) = (self.side.device.port(), Bench::port_config(1, false));
        let mut bth = Bth::zeroed();
        bth.set_opcode(Opcode::Ack.code()).set_tver(TVER).set_pkey(Pkey::new(PKEY_DEFAULT));
        bth.set_dest_qpn(Qpn::new(self.qp.qpn().get()));
        let mut pxth = Pxth::zeroed();
        pxth.set_path_id(PathId::new(ack.apath)).set_stream_id(StreamId::new(1));
        let mut axth = Axth::zeroed();
        axth.set_bm(ack.sack.is_some()).set_nak(ack.nak.is_some()).set_apath(PathId::new(ack.apath));
        axth.set_epoch(Epoch::new(ack.epoch)).set_cum_pseq(Psn::new(ack.cum)).set_trig_pseq(Psn::new(ack.trig));
        axth.set_ts_echo(ack.ts_echo).set_ce_cnt(ack.ce_cnt);
        let mut out = [&bth.0[..], &pxth.0, &axth.0].concat();
        if let Some(bits) = &ack.sack {
            let mut sack = Sack::zeroed();
            for bit in bits {
                sack.mark(*bit);
            }
            out.extend(sack.0);
        }
        if let Some((reason, detail)) = ack.nak {
            let mut nxth = Nxth::zeroed();
            nxth.set_reason(reason).set_detail(detail);
            out.extend(nxth.0);
        }
        let udp_len = Udp::LEN + out.len() + ICRC_BYTES;
        let mut udp = Udp::zeroed();
        udp.set_src_port(UDP_SPORT_MIN).set_dst_port(UDP_DPORT).set_len(udp_len as u16);
        let mut ip = Ipv4::zeroed();
        ip.set_version(4).set_ihl(5).set_ecn(ECN_ECT0).set_total_len((Ipv4::LEN + udp_len) as u16).set_ttl(64);
        ip.set_df(true).set_protocol(IP_PROTOCOL_UDP);
        if let (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) = (peer.ip, own.ip) {
            ip.set_src_ip(src.into()).set_dst_ip(dst.into());
        }
        ip.fill_checksum();
        let mut eth = Eth::zeroed();
        eth.set_dst_mac(own.mac.to_u64()).set_src_mac(peer.mac.to_u64()).set_ethertype(ETHERTYPE_IPV4);
        let mut frame = [&eth.0[..], &ip.0, &udp.0, &out, &[0; ICRC_BYTES]].concat();
        reseal(&mut frame);
        frame
    }

    /// Puts a frame before the card.
    pub fn inject(&self, frame: Vec<u8>) {
        self.bench.wires[0].inject(frame);
    }

    /// Lets time pass: `polls` idle times of the driver.
    ///
    /// # Panics
    /// When the world has ended.
    pub fn settle(&self, polls: u32) {
        for _ in 0..polls {
            self.side.device.idle().expect("time passes");
        }
    }

    /// Frames that the card sent since the last call.
    pub fn sent(&self) -> Vec<Vec<u8>> {
        self.bench.wires[0].take().into_iter().filter(|f| f.way == Way::Sent).map(|f| f.bytes).collect()
    }

    /// Everything of the region that peers write.
    pub fn sink(&self) -> Vec<u8> {
        self.side.sink.to_vec(0, REGION as usize)
    }

    /// A new connection of the card carries a good packet: whatever happened before, the card goes on.
    ///
    /// # Panics
    /// When it does not.
    pub fn still_works(&mut self, config: &QpConfig) {
        let fresh = self.side.qp(config);
        let peer = Bench::port_config(1, false);
        let info = ConnInfo { qpn: PEER_QPN + 1, mac: peer.mac, ip: peer.ip, ..fresh.conn_info().clone() };
        fresh.connect(&info).expect("the connection opens");
        self.side.sink.write(0, &[FILL; 64]);
        let mut packet = self.packet(0, b"still alive");
        (packet.dest, packet.pseq, packet.mseq) = (fresh.qpn().get(), config.paths[0].init_pseq, config.init_msn);
        self.sent();
        self.inject(packet.to_bytes());
        self.settle(40);
        assert_eq!(self.side.sink.to_vec(0, 11), b"still alive");
        assert_eq!(self.sent().len(), 1, "one acknowledgement");
        self.side.sink.write(0, &[FILL; 64]);
        fresh.destroy().expect("the connection closes");
    }
}

/// Makes lengths, checksum and ICRC of an untagged IPv4 frame right again, as far as its header allows.
pub fn reseal(frame: &mut [u8]) {
    let Some(packet) = frame.get_mut(Eth::LEN..) else { return };
    if packet.len() < Ipv4::LEN + Udp::LEN + ICRC_BYTES {
        return;
    }
    let len = packet.len();
    let mut ip = Ipv4(&mut packet[..Ipv4::LEN]);
    ip.set_total_len(len as u16).fill_checksum();
    let mut udp = Udp(&mut packet[Ipv4::LEN..Ipv4::LEN + Udp::LEN]);
    udp.set_len((len - Ipv4::LEN) as u16);
    if let Ok(crc) = icrc(&packet[..len - ICRC_BYTES]) {
        packet[len - ICRC_BYTES..].copy_from_slice(&crc.to_le_bytes());
    }
}
