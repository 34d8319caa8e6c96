//! Random traffic between two cards: many connections, both ways, every alignment, checked byte for byte.
//!
//! Each message has a slot of its own in the peer's memory, with bytes before and behind it that nobody may write. What
//! must hold at the end holds for every network that delivers sometimes: see [`Traffic::run`].

use crate::bench::{Bench, BenchConfig};
use cocotb_rs::{Rng, Seed};
use nic_driver::{Completion, Cq, CqConfig, Device, DmaMem, Mr, MrAccess, PathConfig, Pd, Qp, QpConfig, SendWr, Stats};
use nic_spec::csr::stats::{Class, Counter, COUNTERS};
use nic_spec::desc::{CqeOpcode, Status};
use std::collections::{BTreeMap, VecDeque};

/// Where a card's region begins for its peers.
pub const REMOTE_VA: u64 = 0x7f00_0000_0000;
/// What memory holds where nothing is to be placed.
pub const FILL: u8 = 0xee;
/// Polls without a completion after which the traffic has stopped.
const EMPTY_POLLS_MAX: u32 = 40_000;

/// One card with what a program sets up on it.
pub struct Side {
    /// The card.
    pub device: Device,
    /// Its protection domain.
    pub pd: Pd,
    /// Its completion queue.
    pub cq: Cq,
    /// Memory that peers write, filled with [`FILL`].
    pub sink: DmaMem,
    /// Memory that is sent.
    pub source: DmaMem,
    /// Region over `source`.
    pub local: Mr,
    /// Region over `sink`, at [`REMOTE_VA`].
    pub remote: Mr,
}

impl Side {
    /// Opens card `card` of the bench, with two regions of `len_bytes`.
    ///
    /// # Panics
    /// When the driver refuses: the bench is wrong.
    pub fn open(bench: &mut Bench, card: u32, len_bytes: u64, cq_log2_size: u8) -> Self {
        let device = bench.open(card, false).expect("the card comes up");
        Self::on(device, len_bytes, cq_log2_size)
    }

    /// The same on a card that is open.
    ///
    /// # Panics
    /// When the driver refuses: the bench is wrong.
    pub fn on(device: Device, len_bytes: u64, cq_log2_size: u8) -> Self {
        let pd = Pd::new(&device).expect("a protection domain");
        let cq = Cq::new(&device, CqConfig { log2_size: cq_log2_size, vector: 0 }).expect("a completion queue");
        let (sink, source) = (DmaMem::zeroed(len_bytes), DmaMem::zeroed(len_bytes));
        sink.write(0, &vec![FILL; len_bytes as usize]);
        let local = Mr::register(&pd, &source, 0, len_bytes, MrAccess::LOCAL_READ).expect("a region");
        let remote = Mr::register_at(&pd, &sink, 0, len_bytes, MrAccess::REMOTE_WRITE, REMOTE_VA).expect("a region");
        Self { device, pd, cq, sink, source, local, remote }
    }

    /// A queue pair on the side's completion queue.
    ///
    /// # Panics
    /// When there is none left.
    pub fn qp(&self, config: &QpConfig) -> Qp {
        Qp::create(&self.pd, &self.cq, &self.cq, config).expect("a queue pair")
    }

    /// A write from `from` of this side's source to `to` of the peer's sink.
    pub fn write(&self, peer: &Side, wr_id: u64, from: u64, to: u64, len_bytes: u32) -> SendWr {
        SendWr::write(wr_id, self.local.sge(from, len_bytes), REMOTE_VA + to, peer.remote.rkey())
    }

    /// The same with immediate data.
    pub fn write_imm(&self, peer: &Side, wr_id: u64, from: u64, to: u64, len_bytes: u32, imm: u32) -> SendWr {
        SendWr::write_imm(wr_id, self.local.sge(from, len_bytes), REMOTE_VA + to, peer.remote.rkey(), imm)
    }

    /// The next `count` completions.
    ///
    /// # Panics
    /// When they do not come.
    pub fn completions(&self, count: usize) -> Vec<Completion> {
        let got = self.cq.poll_until(count, EMPTY_POLLS_MAX).expect("the ring is read");
        assert_eq!(got.len(), count, "completions are missing; there are {got:?}");
        got
    }

    /// Their numbers and statuses.
    ///
    /// # Panics
    /// As [`Self::completions`].
    pub fn statuses(&self, count: usize) -> Vec<(u64, Status)> {
        self.completions(count).iter().map(|c| (c.wr_id, c.status)).collect()
    }
}

/// Connects two queue pairs.
///
/// # Panics
/// When the driver refuses.
pub fn connect(a: &Qp, b: &Qp) {
    a.connect(b.conn_info()).expect("the connection opens");
    b.connect(a.conn_info()).expect("the connection opens");
}

/// Frames that a card took less those that one counter explains; 0 when every frame has exactly one outcome.
pub fn unexplained_frames(stats: &Stats) -> i64 {
    // A bad ACK is an ACK whose content is refused: the frame counts as the ACK.
    let is_outcome = |c: Counter, class: Class| {
        (class != Class::Event && c != Counter::RxBadAck) || matches!(c, Counter::RxData | Counter::RxAck)
    };
    let explained: u64 = COUNTERS.iter().filter(|i| is_outcome(i.counter, i.class)).map(|i| stats.get(i.counter)).sum();
    stats.get(Counter::RxFrames) as i64 - explained as i64
}

/// Counters that are not zero.
pub fn nonzero(stats: &Stats) -> Vec<(&'static str, u64)> {
    stats.iter().filter(|c| c.1 > 0).map(|(c, n)| (c.name(), n)).collect()
}

/// What traffic to make.
#[derive(Clone, Debug)]
pub struct TrafficPlan {
    /// Connections.
    pub conns: usize,
    /// Messages each way of each connection.
    pub messages: usize,
    /// Longest message, bytes; shorter ones are drawn, often around borders.
    pub message_bytes_max: u64,
    /// Logarithm of the PMTU.
    pub pmtu_log2: u8,
    /// Paths of a connection.
    pub paths: usize,
    /// Sequence numbers begin here: packets, messages, receives.
    pub first: (u32, u32, u32),
    /// Logarithm of the sizes of send and receive queues.
    pub queue_log2_size: u8,
    /// Logarithm of the size of the completion queues.
    pub cq_log2_size: u8,
    /// Timeout of a path, ticks.
    pub rto_ticks: u32,
}

impl Default for TrafficPlan {
    fn default() -> Self {
        Self {
            conns: 2,
            messages: 10,
            message_bytes_max: 5000,
            pmtu_log2: 10,
            paths: 2,
            first: (0, 0, 0),
            queue_log2_size: 4,
            cq_log2_size: 9,
            rto_ticks: 10_000,
        }
    }
}

/// A message to be sent.
#[derive(Clone, Debug)]
struct Message {
    from: u64,
    to: u64,
    len: u32,
    imm: Option<u32>,
    is_signaled: bool,
}

/// One way of one connection.
struct Flow {
    to_post: VecDeque<(u64, Message)>,
    /// Signaled messages whose completion has not come.
    expected: VecDeque<(u64, u32, CqeOpcode)>,
    /// Receives of the other end: immediate data and length.
    receives: VecDeque<(u64, u32, u32)>,
    to_receive: u64,
    posted_receives: u64,
}

/// Two cards and what is sent between them.
pub struct Traffic {
    /// The cards.
    pub sides: [Side; 2],
    /// The world.
    pub bench: Bench,
    plan: TrafficPlan,
    rng: Rng,
}

impl Traffic {
    /// Brings both cards up.
    ///
    /// # Panics
    /// When bench or driver refuse.
    pub fn new(config: BenchConfig, plan: TrafficPlan, seed: Seed) -> Self {
        let mut bench = Bench::start(config).expect("the bench starts");
        let bytes = (plan.conns * plan.messages) as u64 * slot_bytes(&plan) + 4096;
        let sides = [0, 1].map(|card| Side::open(&mut bench, card, bytes, plan.cq_log2_size));
        for side in &sides {
            let mut tunables = side.device.transport().expect("tunables");
            tunables.rto_ticks = plan.rto_ticks;
            side.device.set_transport(&tunables).expect("tunables");
        }
        Self { sides, bench, plan, rng: seed.named("traffic").rng() }
    }

    /// Sends everything and checks: completions in order with the right status, length and immediate data; each byte of
    /// the peer's memory right, those beside the messages untouched; each packet accepted once; each frame counted
    /// once; no access that the IOMMU refused; every request and receive reclaimed.
    ///
    /// # Panics
    /// When something of that does not hold.
    pub fn run(&mut self) {
        let plan = self.plan.clone();
        let config = QpConfig {
            paths: vec![PathConfig { init_pseq: plan.first.0, ..PathConfig::default() }; plan.paths],
            pmtu_log2: plan.pmtu_log2,
            init_msn: plan.first.1,
            init_rsn: plan.first.2,
            sq_log2_size: plan.queue_log2_size,
            rq_log2_size: Some(plan.queue_log2_size),
            ..QpConfig::default()
        };
        let qps: Vec<[Qp; 2]> =
            (0..plan.conns).map(|_| [self.sides[0].qp(&config), self.sides[1].qp(&config)]).collect();
        for [a, b] in &qps {
            connect(a, b);
        }
        let before = [0, 1].map(|k| self.sides[k].device.stats().expect("counters"));
        let len = plan.conns * plan.messages * slot_bytes(&plan) as usize;
        let mut images = [0, 1].map(|_| vec![FILL; len]);
        let mut packets = [0u64; 2];
        let mut flows: Vec<[Flow; 2]> = Vec::new();
        for side in &self.sides {
            side.source.write(0, &self.rng.bytes(len));
        }
        for conn in 0..plan.conns {
            let flow = [0, 1].map(|way| self.flow(conn, way, &mut images[1 - way], &mut packets[way]));
            flows.push(flow);
        }
        self.exchange(&qps, &mut flows);
        // Late acknowledgements and copies.
        for _ in 0..400 {
            self.sides[0].device.idle().expect("time passes");
        }
        for (k, ((side, image), memory)) in self.sides.iter().zip(&images).zip(&self.bench.memories).enumerate() {
            let got = side.sink.to_vec(0, image.len());
            if let Some(at) = (0..got.len()).find(|i| got[*i] != image[*i]) {
                panic!("card {k}: byte {at:#x} is {:#x}, not {:#x}", got[at], image[at]);
            }
            assert_eq!(memory.fault_count(), 0, "card {k}: {:?}", memory.take_faults());
            assert_eq!(side.cq.poll(100).expect("the ring").len(), 0, "card {k}: a completion too many");
        }
        for (k, qp) in qps.iter().flatten().enumerate() {
            assert_eq!(qp.posted_receives(), 0, "queue pair {k}");
        }
        let after = [0, 1].map(|k| self.sides[k].device.stats().expect("counters").since(&before[k]));
        for (k, peer) in [(0, 1), (1, 0)] {
            let (own, other) = (&after[k], &after[peer]);
            let messages = (plan.conns * plan.messages) as u64;
            assert_eq!(
                (own.get(Counter::TxData), own.get(Counter::TxMessages), own.get(Counter::CqOverflow)),
                (packets[k], messages, 0),
                "card {k}: {:?}",
                nonzero(own)
            );
            assert_eq!(
                (other.get(Counter::RxData), other.get(Counter::RxMessages), other.get(Counter::RxDataBytes)),
                (packets[k], messages, own.get(Counter::TxDataBytes)),
                "card {peer}: {:?}",
                nonzero(other)
            );
            assert_eq!(unexplained_frames(own), 0, "card {k}: {:?}", nonzero(own));
            assert_eq!(own.get(Counter::ConnErrors), 0, "card {k}");
        }
    }

    fn flow(&mut self, conn: usize, way: usize, image: &mut [u8], packets: &mut u64) -> Flow {
        let plan = &self.plan;
        let pmtu = 1u64 << plan.pmtu_log2;
        let slot = slot_bytes(plan);
        let mut flow = Flow {
            to_post: VecDeque::new(),
            expected: VecDeque::new(),
            receives: VecDeque::new(),
            to_receive: 0,
            posted_receives: 0,
        };
        for k in 0..plan.messages {
            let base = (conn * plan.messages + k) as u64 * slot;
            let rng = &mut self.rng;
            let max = plan.message_bytes_max;
            let len = match rng.below(8) {
                0 => 0,
                1 => rng.below(4),
                2 => (pmtu * rng.below(max / pmtu + 1) + rng.below(5)).saturating_sub(2),
                3 => 64 * rng.below(1 + max.min(512) / 64) + rng.below(3),
                _ => rng.below(max + 1),
            }
            .min(max);
            // Anywhere, so also across pages, on both sides.
            let (from, to) = (base + rng.below(slot - len), base + rng.below(slot - len));
            let imm = rng.percent(40).then(|| rng.next_u64() as u32);
            // A queue full of unsignaled requests can never be reclaimed: that is the program's fault.
            let is_signaled = k + 1 == plan.messages || rng.percent(70) || k % (1 << plan.queue_log2_size) == 0;
            let wr_id = (conn * 2 + way) as u64 * 1_000_000 + k as u64;
            let bytes = self.sides[way].source.to_vec(from, len as usize);
            image[to as usize..(to + len) as usize].copy_from_slice(&bytes);
            *packets += len.div_ceil(pmtu).max(1);
            let opcode = if imm.is_some() { CqeOpcode::WriteImm } else { CqeOpcode::Write };
            if is_signaled {
                flow.expected.push_back((wr_id, len as u32, opcode));
            }
            if let Some(imm) = imm {
                flow.receives.push_back((flow.to_receive, imm, len as u32));
                flow.to_receive += 1;
            }
            flow.to_post.push_back((wr_id, Message { from, to, len: len as u32, imm, is_signaled }));
        }
        flow
    }

    fn exchange(&self, qps: &[[Qp; 2]], flows: &mut [[Flow; 2]]) {
        let by_qpn: [BTreeMap<u32, usize>; 2] =
            [0, 1].map(|k| qps.iter().enumerate().map(|(i, pair)| (pair[k].qpn().get(), i)).collect());
        let mut empty = 0;
        loop {
            let mut is_done = true;
            for (pair, flow) in qps.iter().zip(flows.iter_mut()) {
                for way in [0, 1] {
                    let (own, peer) = (&self.sides[way], &self.sides[1 - way]);
                    let flow = &mut flow[way];
                    while flow.posted_receives < flow.to_receive
                        && pair[1 - way].post_recv(flow.posted_receives).is_ok()
                    {
                        flow.posted_receives += 1;
                    }
                    while let Some((wr_id, m)) = flow.to_post.front() {
                        let mut wr = match m.imm {
                            Some(imm) => own.write_imm(peer, *wr_id, m.from, m.to, m.len, imm),
                            None => own.write(peer, *wr_id, m.from, m.to, m.len),
                        };
                        wr.is_signaled = m.is_signaled;
                        if pair[way].post_send(&wr).is_err() {
                            break;
                        }
                        flow.to_post.pop_front();
                    }
                    is_done &= flow.to_post.is_empty() && flow.expected.is_empty() && flow.receives.is_empty();
                }
            }
            if is_done {
                return;
            }
            let mut got = 0;
            for k in 0..2 {
                for c in self.sides[k].cq.poll(16).expect("the ring is read") {
                    got += 1;
                    let conn = by_qpn[k][&c.qpn.get()];
                    assert_eq!(c.status, Status::Ok, "card {k}: {c:?}");
                    if c.opcode == CqeOpcode::RecvImm {
                        let want = flows[conn][1 - k].receives.pop_front();
                        assert_eq!(c.imm.map(|imm| (c.wr_id, imm, c.byte_len)), want, "card {k}: {c:?}");
                    } else {
                        let want = flows[conn][k].expected.pop_front();
                        assert_eq!(Some((c.wr_id, c.byte_len, c.opcode)), want, "card {k}");
                    }
                }
            }
            empty = if got > 0 { 0 } else { empty + 1 };
            if empty == EMPTY_POLLS_MAX {
                let left: Vec<_> =
                    flows.iter().flatten().map(|f| (f.to_post.len(), f.expected.len(), f.receives.len())).collect();
                let stats = [0, 1].map(|k| self.sides[k].device.stats().map(|s| nonzero(&s)));
                panic!("no completion for {empty} polls; a flow's messages not posted, sends, receives left: {left:?}; {stats:?}");
            }
        }
    }
}

/// Room of a message: the longest one and bytes around it.
fn slot_bytes(plan: &TrafficPlan) -> u64 {
    plan.message_bytes_max + 130
}
