//! What a case works with: a card on a bench, one region of host memory, and words for what is asked again and again.

use crate::conn::Conn;
use crate::dut::{Buffer, CardParams, Dut, Nanos, Region};
use crate::failure::{check, equal, Failure, Outcome};
use crate::packet::{Bytes, Packet};
use crate::setup::{
    Address, ConnConfig, Cqe, Local, PathConfig, RecvWr, RemoteMemory, SendOp, SendWr, TagMatch, Tunables, NS_PS,
};
use nic_spec::csr::stats::{Class, Counter, COUNTERS};
use nic_spec::desc::Status;
use nic_spec::num::{Lkey, Pd, Psn, Qpn, Rkey};
use nic_spec::wire::{NakReason, Opcode};
use std::ops::Deref;

/// One microsecond.
pub const US: Nanos = 1_000;
/// One millisecond.
pub const MS: Nanos = 1_000_000;
/// Round trip of a warm connection.
pub const RTT: Nanos = 5 * US;
/// Bytes of each message of a burst; enough that the card's clock ticks between two of them.
pub const BURST_BYTES: u32 = 1000;
/// What "at once" means: far less than the shortest delay that a case configures.
pub const AT_ONCE: Nanos = 10 * US;
/// First address of the region that every case has.
pub const VA: u64 = 0x7f00_0000_0000;
/// Length of the region, bytes.
pub const LEN: usize = 1 << 18;
/// Bytes before and behind the region in its buffer.
pub const GUARD: usize = 4096;
/// Address of the peer's memory.
pub const PEER_VA: u64 = 0x1234_5678_9000;
/// Key of the peer's memory.
pub const PEER_KEY: u32 = 0x00ab_cd17;
/// Protection domain of everything unless a case says otherwise.
pub const PD: u32 = 3;

/// A packet that the card sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When it began to leave.
    pub at: Nanos,
    /// By which port.
    pub port: u8,
    /// What it says.
    pub packet: Packet,
}

impl Deref for Sent {
    type Target = Packet;
    fn deref(&self) -> &Packet {
        &self.packet
    }
}

/// The counters at some moment.
pub struct Snapshot(Vec<u64>);

/// See the module.
pub struct Kit<'a> {
    /// The card.
    pub dut: &'a mut dyn Dut,
    /// The buffer around the region.
    pub buffer: Buffer,
    /// Key of the region.
    pub key: u32,
    opened: u32,
}

/// The peer's address in the network of a port.
pub fn peer_address(port: usize, is_ipv6: bool) -> Address {
    let ip = if is_ipv6 { 0xfd00_0000 << 96 | (port as u128) << 16 | 0xfe } else { 0x0a00_00fe | (port as u128) << 16 };
    Address { mac: 0x0200_0000_fe00 | port as u64, ip }
}

/// Bytes that differ from place to place.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed.wrapping_mul(0x5b).wrapping_add(1)).collect()
}

/// The tunables of a case: nothing leaves but what the case provokes.
fn quiet() -> Tunables {
    Tunables {
        ack_delay_ps: 50 * US * NS_PS,
        tail_marker: false,
        idle_redundancy: false,
        tlp_limit: 0,
        conn_init_pkts: 12,
        conn_ramp_pkts: 1 << 16,
        ..Tunables::default()
    }
}

impl<'a> Kit<'a> {
    /// Resets the card and gives it one region.
    pub fn new(dut: &'a mut dyn Dut) -> Outcome<Self> {
        Self::with(dut, &CardParams::default())
    }

    fn with(dut: &'a mut dyn Dut, params: &CardParams) -> Outcome<Self> {
        let mut kit = Self { dut, buffer: Buffer { id: 0, len: 0 }, key: 0, opened: 0 };
        kit.reset(params)?;
        Ok(kit)
    }

    /// Resets the card to these settings.
    pub fn reset(&mut self, params: &CardParams) -> Outcome {
        self.dut.configure(params)?;
        self.opened = 0;
        self.buffer = self.dut.allocate(LEN + 2 * GUARD)?;
        self.key = self.dut.register(&self.region())?;
        Ok(())
    }

    /// The region that every case has, with all accesses permitted.
    pub fn region(&self) -> Region {
        let pd = Pd::new(PD);
        Region { buffer: self.buffer, offset: GUARD, len: LEN, va: VA, pd, access: 0xf, key: 0x42 }
    }

    /// A connection with one path and ids of its own, after `change`.
    pub fn config(&mut self, change: impl FnOnce(&mut ConnConfig)) -> Outcome<ConnConfig> {
        let n = self.opened;
        self.opened += 1;
        let mut cfg = ConnConfig::new(Qpn::new(0x12_0101 + n), Qpn::new(0x45_0602 + n));
        cfg.pd = Pd::new(PD);
        cfg.transport = quiet();
        set_paths(&mut cfg, 1, 1);
        change(&mut cfg);
        if cfg.addresses.is_empty() {
            let own = self.dut.addresses(cfg.is_ipv6);
            cfg.addresses = own.into_iter().enumerate().map(|(p, a)| (a, peer_address(p, cfg.is_ipv6))).collect();
        }
        Ok(cfg)
    }

    /// Opens a connection with one path after `change`.
    pub fn open(&mut self, change: impl FnOnce(&mut ConnConfig)) -> Outcome<Conn> {
        let cfg = self.config(change)?;
        let id = self.dut.open(&cfg)?;
        Ok(Conn { id, cfg, key: self.key })
    }

    /// What "at once" means on this bench.
    pub fn at_once(&self) -> Nanos {
        AT_ONCE + self.dut.slack()
    }

    /// Sends the card a packet by its plane's port.
    pub fn inject(&mut self, packet: &Packet) -> Outcome {
        self.dut.inject(packet.pxth.plane().get(), &packet.to_bytes())
    }

    /// Sends the card several packets back to back.
    pub fn inject_all<'p>(&mut self, packets: impl IntoIterator<Item = &'p Packet>) -> Outcome {
        packets.into_iter().try_for_each(|p| self.inject(p))
    }

    /// Sends the card a frame by port 0.
    pub fn inject_bytes(&mut self, frame: &Bytes) -> Outcome {
        self.dut.inject(0, &frame.bytes)
    }

    /// Lets time pass.
    pub fn advance(&mut self, by: Nanos) -> Outcome {
        self.dut.advance(by)
    }

    /// The next packet of the card, which must be well formed and properly addressed.
    pub fn next(&mut self, within: Nanos) -> Outcome<Option<Sent>> {
        let Some(frame) = self.dut.next_frame(within)? else { return Ok(None) };
        let packet = Packet::parse(&frame.bytes)?;
        let own = self.dut.addresses(packet.is_ipv6).get(usize::from(frame.port)).copied();
        equal(Some(packet.src), own, "source address of a frame of the card")?;
        equal(
            packet.dst,
            peer_address(frame.port.into(), packet.is_ipv6),
            "destination address of a frame of the card",
        )?;
        equal(packet.pxth.plane().get(), frame.port, "W-016: plane of a frame of the card")?;
        Ok(Some(Sent { at: frame.at, port: frame.port, packet }))
    }

    /// The next packet of the card, which must be of this kind.
    #[track_caller]
    pub fn expect(&mut self, opcode: Opcode, within: Nanos) -> Outcome<Sent> {
        match self.next(within)? {
            Some(sent) if sent.opcode == opcode => Ok(sent),
            Some(sent) => Err(Failure::new(format!("expected {opcode:?}, the card sent {}", sent.packet))),
            None => Err(Failure::new(format!("expected {opcode:?}, the card sent nothing within {within} ns"))),
        }
    }

    /// The next packet of the card, which must be an acknowledgement that leaves at once and refuses nothing.
    #[track_caller]
    pub fn ack(&mut self) -> Outcome<Ack> {
        let sent = self.expect(Opcode::Ack, self.at_once())?;
        let ack = Ack::of(&sent)?;
        equal(ack.nak, None, "the card refused a packet")?;
        Ok(ack)
    }

    /// The same, of which only this matters: everything up to `cum`, and beyond it these, are received.
    #[track_caller]
    pub fn acks(&mut self, cum: u32, beyond: &[u32]) -> Outcome<Ack> {
        let ack = self.ack()?;
        let received: Vec<u32> = ack.sack.iter().map(|i| (ack.cum + 1 + i) & 0xff_ffff).collect();
        equal((ack.cum, &received[..]), (cum & 0xff_ffff, beyond), "cumulative number and what is beyond it")?;
        Ok(ack)
    }

    /// The next packet of the card, which must be a refusal for this reason.
    #[track_caller]
    pub fn nak(&mut self, reason: NakReason) -> Outcome<Ack> {
        let sent = self.expect(Opcode::Ack, self.at_once())?;
        let ack = Ack::of(&sent)?;
        equal(ack.nak, Some(reason), "reason of the refusal")?;
        Ok(ack)
    }

    /// The card must send nothing for this long.
    #[track_caller]
    pub fn silence(&mut self, span: Nanos) -> Outcome {
        match self.next(span)? {
            None => Ok(()),
            Some(sent) => Err(Failure::new(format!("the card sent {}", sent.packet))),
        }
    }

    /// Everything that the card sends in this time.
    pub fn collect(&mut self, span: Nanos) -> Outcome<Vec<Sent>> {
        let end = self.dut.now() + span;
        let mut all = Vec::new();
        while let Some(sent) = self.next(end.saturating_sub(self.dut.now()))? {
            all.push(sent);
        }
        Ok(all)
    }

    /// What stands in the region at `offset`.
    pub fn memory(&mut self, offset: usize, len: usize) -> Outcome<Vec<u8>> {
        self.dut.read(self.buffer, GUARD + offset, len)
    }

    /// Writes to the region at `offset`.
    pub fn fill(&mut self, offset: usize, bytes: &[u8]) -> Outcome {
        self.dut.write(self.buffer, GUARD + offset, bytes)
    }

    /// The buffer must be zero but for these pieces of the region.
    #[track_caller]
    pub fn memory_holds_only(&mut self, pieces: &[(usize, &[u8])]) -> Outcome {
        let mut want = vec![0; self.buffer.len];
        for (offset, bytes) in pieces {
            want[GUARD + offset..GUARD + offset + bytes.len()].copy_from_slice(bytes);
        }
        let got = self.dut.read(self.buffer, 0, self.buffer.len)?;
        match got.iter().zip(&want).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => {
                let offset = at as i64 - GUARD as i64;
                Err(Failure::new(format!("byte {offset} of the region is {:#x}, want {:#x}", got[at], want[at])))
            }
        }
    }

    /// Local memory at `offset` of the region.
    pub fn local(&self, offset: u64) -> Local {
        Local { va: VA + offset, lkey: Lkey::new(self.key) }
    }

    /// Posts a request on the connection's first stream.
    pub fn post(&mut self, c: &Conn, wr: SendWr) -> Outcome {
        self.dut.post_send(c.id, c.stream(), wr)
    }

    /// Posts a WRITE of `len` bytes from `offset` of the region to the same offset of the peer's memory.
    pub fn post_write(&mut self, c: &Conn, wr_id: u64, offset: u64, len: u32) -> Outcome {
        let wr = SendWr::new(wr_id, SendOp::Write { remote: remote(offset), imm: None }, self.local(offset), len);
        self.post(c, wr)
    }

    /// Posts a receive of `len` bytes at `offset` of the region on the connection's first stream.
    pub fn post_recv(&mut self, c: &Conn, wr_id: u64, offset: u64, len: u32) -> Outcome {
        let wr = RecvWr { wr_id, local: self.local(offset), len, tag: None };
        self.dut.post_recv(c.id, c.stream(), wr)
    }

    /// Posts a tagged receive.
    pub fn post_tagged(&mut self, c: &Conn, wr_id: u64, offset: u64, len: u32, tag: TagMatch) -> Outcome {
        let wr = RecvWr { wr_id, local: self.local(offset), len, tag: Some(tag) };
        self.dut.post_recv(c.id, c.stream(), wr)
    }

    /// Opens a connection after `change` of which each path has been acknowledged once, after [`RTT`]: windows are open
    /// and the round trip is known. The next number of each path is its first plus 1, that of messages the path count.
    pub fn warm(&mut self, change: impl FnOnce(&mut ConnConfig)) -> Outcome<Conn> {
        let c = self.open(change)?;
        let count = c.cfg.tx_paths.len() as u64;
        (0..count).try_for_each(|i| self.post_write(&c, 1000 + i, 0, BURST_BYTES))?;
        let sent = self.collect(RTT)?;
        equal(sent.len() as u64, count, "P-006: packets to begin with, one on each path")?;
        for s in &sent {
            self.inject(&c.ack(s))?;
        }
        let all: Vec<_> = (0..count).map(|i| (1000 + i, Status::Ok)).collect();
        self.completes(&all)?;
        Ok(c)
    }

    /// Posts `count` WRITEs of one packet each, with request numbers from `wr_id` on, all of which leave at once.
    pub fn burst(&mut self, c: &Conn, wr_id: u64, count: u64) -> Outcome<Vec<Sent>> {
        (0..count).try_for_each(|i| self.post_write(c, wr_id + i, i * u64::from(BURST_BYTES), BURST_BYTES))?;
        (0..count).map(|_| self.expect(Opcode::Write, self.at_once())).collect()
    }

    /// Every completion of queue `cq` that is there now or comes at once; waits for `want` of them.
    pub fn completions_of(&mut self, cq: u32, want: usize) -> Outcome<Vec<Cqe>> {
        let end = self.dut.now() + self.at_once();
        let mut all = Vec::new();
        loop {
            while let Some(cqe) = self.dut.poll(cq)? {
                all.push(cqe);
            }
            if all.len() >= want || self.dut.now() >= end {
                return Ok(all);
            }
            self.dut.advance(100)?;
        }
    }

    /// The completions of queue 0 must be these, in this order.
    #[track_caller]
    pub fn completes(&mut self, want: &[(u64, Status)]) -> Outcome<Vec<Cqe>> {
        let all = self.completions_of(0, want.len())?;
        let got: Vec<_> = all.iter().map(|c| (c.wr_id, c.status)).collect();
        equal(&got[..], want, "completions")?;
        Ok(all)
    }

    /// There must be no completion.
    #[track_caller]
    pub fn completes_nothing(&mut self) -> Outcome {
        self.completes(&[]).map(|_| ())
    }

    /// The counters now.
    pub fn snapshot(&mut self) -> Outcome<Snapshot> {
        COUNTERS.iter().map(|info| self.dut.counter(info.counter)).collect::<Outcome<_>>().map(Snapshot)
    }

    /// How far a counter went since `before`.
    pub fn counted(&mut self, before: &Snapshot, counter: Counter) -> Outcome<u64> {
        Ok(self.dut.counter(counter)?.wrapping_sub(before.0[counter as usize]))
    }

    /// Since `before` exactly these drops and refusals were counted.
    #[track_caller]
    pub fn refused(&mut self, before: &Snapshot, want: &[(Counter, u64)]) -> Outcome {
        let mut got = Vec::new();
        for info in COUNTERS.iter().filter(|info| info.class != Class::Event) {
            let n = self.counted(before, info.counter)?;
            if n > 0 {
                got.push((info.counter, n));
            }
        }
        check(got == want, format!("drops and refusals counted: {got:?}, want {want:?}"))
    }
}

/// Peer's memory at `offset`.
pub fn remote(offset: u64) -> RemoteMemory {
    RemoteMemory { va: PEER_VA + offset, rkey: Rkey::new(PEER_KEY) }
}

/// `count` paths each way, dealt to `planes` planes in turn, whose numbers begin with 0.
pub fn set_paths(cfg: &mut ConnConfig, count: usize, planes: usize) {
    let path = |base: u16| {
        move |i: usize| PathConfig { plane: (i % planes) as u8, sport: base + i as u16, epoch: 0, first: Psn::new(0) }
    };
    cfg.tx_paths = (0..count).map(path(0xc100)).collect();
    cfg.rx_paths = (0..count).map(path(0xd200)).collect();
}

/// What an acknowledgement says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// When it left.
    pub at: Nanos,
    /// By which port.
    pub port: u8,
    /// Path it travels on.
    pub path: u8,
    /// Path acknowledged.
    pub apath: u8,
    /// Plane of the trigger.
    pub plane: u8,
    /// Epoch of the trigger.
    pub epoch: u8,
    /// IBTA syndrome.
    pub syndrome: u8,
    /// Everything up to this is received.
    pub cum: u32,
    /// The trigger.
    pub trig: u32,
    /// Its clock.
    pub echo: u32,
    /// Residency, units of 16 ns.
    pub hold: u16,
    /// Marks counted.
    pub ce_cnt: u16,
    /// The trigger was marked.
    pub ce: bool,
    /// The trigger was a duplicate.
    pub dup: bool,
    /// The trigger was a retransmission.
    pub rtxe: bool,
    /// A bitmap is there.
    pub has_bitmap: bool,
    /// i: cum + 1 + i is received.
    pub sack: Vec<u32>,
    /// Number and rate of the hint.
    pub hint: Option<(u8, u32)>,
    /// Stream and limit.
    pub credit: Option<(u16, u16)>,
    /// Reason of a refusal.
    pub nak: Option<NakReason>,
}

impl Ack {
    /// Reads an acknowledgement or the answer to a probe.
    pub fn of(sent: &Sent) -> Outcome<Self> {
        let h = sent.axth().ok_or_else(|| Failure::new("the packet acknowledges nothing"))?;
        let reason = sent.nxth().map(|n| NakReason::try_from(n.reason()));
        let nak = reason.transpose().map_err(|e| Failure::new(format!("S-032: {e}")))?;
        let bits = sent.sack_header();
        let sack = (0..256).filter(|i| bits.is_some_and(|b| b.is_received(*i as usize))).collect();
        Ok(Self {
            at: sent.at,
            port: sent.port,
            path: sent.pxth.path_id().get(),
            apath: h.apath().get(),
            plane: h.plane().get(),
            epoch: h.epoch().get(),
            syndrome: h.syndrome(),
            cum: h.cum_pseq().get(),
            trig: h.trig_pseq().get(),
            echo: h.ts_echo(),
            hold: h.hold(),
            ce_cnt: h.ce_cnt(),
            ce: h.ce(),
            dup: h.dup(),
            rtxe: h.rtxe(),
            has_bitmap: h.bm(),
            sack,
            hint: h.hint().then(|| (h.hint_seq().get(), h.rate_hint())),
            credit: h.credit().then(|| (h.cstream().get(), h.rq_limit().get())),
            nak,
        })
    }
}
