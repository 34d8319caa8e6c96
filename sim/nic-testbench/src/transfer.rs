//! The main experiment: a file crosses from one card to another.
//!
//! Two cards stand at the ends of a network of parallel links; a path is spread over the links by its UDP source port.
//! The file is written message by message into the receiver's memory; the last message carries immediate data, so that
//! its completion tells the receiver that everything before it is placed.

use crate::bench::{Bench, BenchConfig, BenchError, Surroundings, TraceConfig};
use crate::wire::{Way, WireFrame};
use cocotb_rs::Seed;
use nic_driver::{Cq, CqConfig, Device, DmaMem, Mr, MrAccess, PathConfig, Pd, Qp, QpConfig, SendWr};
use nic_fabric::{LinkSelect, LinkSpec, Rule, Topology};
use nic_rtl::params::NicParams;
use nic_spec::consts::UDP_SPORT_MIN;
use nic_spec::csr::stats::{Class, COUNTERS};
use nic_spec::desc::Status;
use nic_spec::num::Rkey;

/// Cycles after the first doorbell that the utilisation leaves out: the pipe fills.
const FILL_CYCLES: u64 = 200;
/// Address at which the receiver's region begins for remote peers; not its DMA address, so that translation is used.
const REMOTE_VA: u64 = 0x7f00_0000_0000;
/// Immediate data of the last message.
const LAST_IMM: u32 = 0x6d65_7461;

/// What to do.
#[derive(Clone, Debug)]
pub struct TransferPlan {
    /// What is sent. May be empty.
    pub data: Vec<u8>,
    /// Paths of the connection, and parallel links of the network.
    pub paths: u32,
    /// Loss on each of the parallel links, parts per million.
    pub loss_ppm: u32,
    /// Root of every random choice.
    pub seed: u64,
    /// Largest message, bytes.
    pub message_bytes: u32,
    /// Logarithm of the PMTU.
    pub pmtu_log2: u8,
    /// Rate of each parallel link, Mb/s.
    pub link_mbps: u64,
    /// Delay of each parallel link, ps.
    pub link_delay_ps: u64,
    /// IPv6 instead of IPv4.
    pub is_ipv6: bool,
    /// Hosts and MACs.
    pub surroundings: Surroundings,
    /// First sequence number of every path; near 2^24 it wraps on the way.
    pub first_pseq: u32,
    /// Sizes of the cards.
    pub params: NicParams,
    /// Trace of card 0.
    pub trace: Option<TraceConfig>,
    /// Keep the frames on the wire of card 0.
    pub keep_frames: bool,
    /// Simulated time after which the run is given up, ps.
    pub limit_ps: u64,
}

impl TransferPlan {
    /// The default experiment with this content.
    pub fn new(data: Vec<u8>) -> Self {
        Self {
            data,
            paths: 4,
            loss_ppm: 0,
            seed: 7,
            message_bytes: 1 << 20,
            pmtu_log2: nic_spec::consts::PMTU_LOG2,
            link_mbps: 100_000,
            link_delay_ps: 1_000_000,
            is_ipv6: false,
            surroundings: Surroundings::Typical,
            first_pseq: 0,
            params: NicParams::default(),
            trace: None,
            keep_frames: false,
            limit_ps: 1_000_000_000_000,
        }
    }
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The bench.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The driver.
    #[error("the driver")]
    Driver(#[from] nic_driver::Error),
    /// A work request failed.
    #[error("work request {wr_id} completed with {status:?} after {sent_bytes} of {total_bytes} bytes")]
    Completion {
        /// Its number.
        wr_id: u64,
        /// Its status.
        status: Status,
        /// Bytes completed before it.
        sent_bytes: u64,
        /// Bytes to send.
        total_bytes: u64,
    },
    /// The receiver's completion is not what was sent.
    #[error("the receiver's completion carries {got}; {want} was sent")]
    WrongReceive {
        /// What came.
        got: String,
        /// What was sent.
        want: String,
    },
    /// Nothing completed for too long.
    #[error("nothing completed for {polls} polls, {sent_bytes} of {total_bytes} bytes are through")]
    Stalled {
        /// Empty polls.
        polls: u32,
        /// Bytes completed.
        sent_bytes: u64,
        /// Bytes to send.
        total_bytes: u64,
    },
}

/// What happened.
#[derive(Clone, Debug)]
pub struct TransferReport {
    /// What stands in the receiver's memory.
    pub received: Vec<u8>,
    /// From the first doorbell to the last completion, ps.
    pub elapsed_ps: u64,
    /// The same in clock cycles.
    pub elapsed_cycles: u64,
    /// Cycles simulated in all, both cards together.
    pub simulated_cycles: u64,
    /// Frequency of the cards, kHz.
    pub clock_khz: u32,
    /// Beats of the sender's stream, per mille of the cycles from 200 after the doorbell to the last data packet.
    pub tx_busy_permille: u64,
    /// Counters of the two cards that are not zero: name, is it a drop, sender, receiver.
    pub counters: Vec<(&'static str, bool, u64, u64)>,
    /// Frames the network dropped, by cause.
    pub network_drops: Vec<(&'static str, u64)>,
    /// Frames dropped that carried data towards the receiver.
    pub lost_data_frames: u64,
    /// IOMMU faults of both hosts.
    pub iommu_faults: u64,
    /// Frames on the wire of card 0, if asked for.
    pub frames: Vec<WireFrame>,
}

impl TransferReport {
    /// Goodput, Mb/s.
    pub fn goodput_mbps(&self) -> u64 {
        (self.received.len() as u128 * 8_000_000).checked_div(u128::from(self.elapsed_ps)).unwrap_or(0) as u64
    }

    /// A counter of sender and receiver.
    pub fn counter(&self, name: &str) -> (u64, u64) {
        self.counters.iter().find(|c| c.0 == name).map_or((0, 0), |c| (c.2, c.3))
    }

    /// Retransmissions of the sender, whatever their cause.
    pub fn retransmissions(&self) -> u64 {
        self.counter("tx_rtx_gap_count").0 + self.counter("tx_rtx_rto_count").0
    }
}

/// What a running transfer tells.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Bytes acknowledged.
    pub done_bytes: u64,
    /// Bytes to send.
    pub total_bytes: u64,
    /// Clock cycles of one card.
    pub cycles: u64,
}

/// Sends the data and reports.
///
/// # Errors
/// The model cannot be built, the driver reports an error, or a work request fails.
pub fn run(plan: &TransferPlan, mut progress: impl FnMut(Progress)) -> Result<TransferReport, TransferError> {
    // Deep buffers: what the experiment loses it loses by its rule. The hosts' cables are faster than the cards.
    let link = LinkSpec::new(plan.link_mbps, plan.link_delay_ps).with_buffer_bytes(16 << 20);
    let host_link = LinkSpec::new(400_000, 200_000).with_buffer_bytes(16 << 20);
    let topology = Topology::parallel_paths(&host_link, &vec![link; plan.paths.max(1) as usize]);
    let mut bench = Bench::start(BenchConfig {
        params: plan.params,
        rules: if plan.loss_ppm > 0 { vec![(LinkSelect::Core, Rule::loss(plan.loss_ppm))] } else { Vec::new() },
        surroundings: plan.surroundings,
        trace: plan.trace.clone(),
        limit_ps: plan.limit_ps,
        ..BenchConfig::two_cards(Seed::new(plan.seed), topology)
    })?;
    bench.wires[0].record();
    bench.wires[1].record();
    let (sender, receiver) = (bench.open(0, plan.is_ipv6)?, bench.open(1, plan.is_ipv6)?);
    let outcome = exchange(plan, &bench, &sender, &receiver, &mut progress);
    let counters = counters(&sender, &receiver);
    drop((sender, receiver));
    let (received, begin_ps, end_ps) = outcome?;
    let counters = counters?;
    let period_ps = 1_000_000_000 / u64::from(plan.params.clock_khz);
    let (sent, arrived) = (bench.wires[0].take(), bench.wires[1].take());
    let drops = bench
        .shared
        .fabric_stats()
        .map(|s| s.drops.iter().filter(|d| d.1 > 0).map(|(c, n)| (c.name(), n)).collect())
        .unwrap_or_default();
    let report = TransferReport {
        received,
        elapsed_ps: end_ps - begin_ps,
        elapsed_cycles: (end_ps - begin_ps) / period_ps,
        simulated_cycles: 2 * bench.shared.cycles(),
        clock_khz: plan.params.clock_khz,
        tx_busy_permille: busy_permille(&sent, begin_ps + FILL_CYCLES * period_ps, period_ps),
        counters,
        network_drops: drops,
        lost_data_frames: lost_data(&sent, &arrived),
        iommu_faults: bench.memories.iter().map(|m| m.fault_count()).sum(),
        frames: if plan.keep_frames { sent } else { Vec::new() },
    };
    bench.join();
    Ok(report)
}

/// Sets both ends up, sends, waits; returns the receiver's memory and when the exchange began and ended.
fn exchange(
    plan: &TransferPlan,
    bench: &Bench,
    sender: &Device,
    receiver: &Device,
    progress: &mut impl FnMut(Progress),
) -> Result<(Vec<u8>, u64, u64), TransferError> {
    let total = plan.data.len();
    let region_bytes = total.max(1) as u64;
    let messages = total.div_ceil(plan.message_bytes as usize).max(1);
    let config = QpConfig {
        paths: (0..plan.paths)
            .map(|k| PathConfig {
                sport: Some(sport(plan.seed, k)),
                init_pseq: plan.first_pseq,
                ..PathConfig::default()
            })
            .collect(),
        pmtu_log2: plan.pmtu_log2,
        ..QpConfig::default()
    };
    let (pd_a, pd_b) = (Pd::new(sender)?, Pd::new(receiver)?);
    let cq = CqConfig { log2_size: 9, vector: 0 };
    let (cq_a, cq_b) = (Cq::new(sender, cq)?, Cq::new(receiver, cq)?);
    let qp_a = Qp::create(&pd_a, &cq_a, &cq_a, &config)?;
    let qp_b = Qp::create(&pd_b, &cq_b, &cq_b, &config)?;
    qp_a.to_rtr(qp_b.conn_info())?;
    qp_b.to_rtr(qp_a.conn_info())?;
    let (source, sink) = (DmaMem::zeroed(region_bytes), DmaMem::zeroed(region_bytes));
    source.write(0, &plan.data);
    let mr_a = Mr::register(&pd_a, &source, 0, region_bytes, MrAccess::LOCAL_READ)?;
    let mr_b = Mr::register_at(&pd_b, &sink, 0, region_bytes, MrAccess::REMOTE_WRITE, REMOTE_VA)?;
    let remote = mr_b.remote();
    qp_b.post_recv(0)?;
    qp_a.to_rts()?;
    qp_b.to_rts()?;

    let begin_ps = bench.shared.now_ps();
    let (mut posted, mut done, mut sent_bytes, mut empty) = (0usize, 0usize, 0u64, 0u32);
    // Enough for every retry of a path at the doubled timeouts.
    let polls_max = 400_000;
    while done < messages {
        while posted < messages && qp_a.send_room() > 0 {
            let begin = posted * plan.message_bytes as usize;
            let len = plan.message_bytes.min((total - begin) as u32);
            let (sge, va, rkey) = (mr_a.sge(begin as u64, len), remote.va + begin as u64, Rkey::new(remote.rkey));
            let wr = if posted + 1 == messages {
                SendWr::write_imm(posted as u64, sge, va, rkey, LAST_IMM)
            } else {
                SendWr::write(posted as u64, sge, va, rkey)
            };
            qp_a.post_send(&wr)?;
            posted += 1;
        }
        let completions = cq_a.poll(64)?;
        empty = if completions.is_empty() { empty + 1 } else { 0 };
        if empty > polls_max {
            return Err(TransferError::Stalled { polls: empty, sent_bytes, total_bytes: total as u64 });
        }
        for c in completions {
            if c.status != Status::Ok {
                return Err(TransferError::Completion {
                    wr_id: c.wr_id,
                    status: c.status,
                    sent_bytes,
                    total_bytes: total as u64,
                });
            }
            done += 1;
            sent_bytes += u64::from(c.byte_len);
        }
        progress(Progress { done_bytes: sent_bytes, total_bytes: total as u64, cycles: bench.shared.cycles() });
    }
    let receive = cq_b.poll_until(1, polls_max)?;
    let end_ps = bench.shared.now_ps();
    let last_len = if total == 0 { 0 } else { (total - (messages - 1) * plan.message_bytes as usize) as u32 };
    let want = format!("{:?}", (Status::Ok, Some(LAST_IMM), last_len));
    match receive.first() {
        Some(c) if c.status == Status::Ok && c.imm == Some(LAST_IMM) && c.byte_len == last_len => {}
        Some(c) => {
            return Err(TransferError::WrongReceive { got: format!("{:?}", (c.status, c.imm, c.byte_len)), want })
        }
        None => return Err(TransferError::Stalled { polls: polls_max, sent_bytes, total_bytes: total as u64 }),
    }
    Ok((sink.to_vec(0, total), begin_ps, end_ps))
}

fn counters(sender: &Device, receiver: &Device) -> Result<Vec<(&'static str, bool, u64, u64)>, TransferError> {
    let (a, b) = (sender.stats()?, receiver.stats()?);
    Ok(COUNTERS
        .iter()
        .map(|row| (row.name, row.class != Class::Event, a.get(row.counter), b.get(row.counter)))
        .filter(|row| row.2 + row.3 > 0)
        .collect())
}

/// UDP source port of a path: from the seed, so that another seed takes other ways through the network.
fn sport(seed: u64, path: u32) -> u16 {
    let spread = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
    UDP_SPORT_MIN | (spread.wrapping_add(path) as u16 & !UDP_SPORT_MIN)
}

/// Per mille of the cycles in `from_ps..` to the end of the last sent frame in which the stream carried a beat.
fn busy_permille(frames: &[WireFrame], from_ps: u64, period_ps: u64) -> u64 {
    let sent: Vec<(u64, u64)> = frames
        .iter()
        .filter(|f| f.way == Way::Sent && f.at_ps > from_ps)
        .map(|f| (f.at_ps, f.bytes.len().div_ceil(64) as u64))
        .collect();
    let Some(end_ps) = sent.iter().filter(|f| f.1 > 4).map(|f| f.0).max() else { return 0 };
    let beats: u64 = sent.iter().filter(|f| f.0 <= end_ps).map(|f| f.1).sum();
    beats * 1000 / ((end_ps - from_ps) / period_ps).max(1)
}

/// Data frames that the sender sent and the receiver was never offered.
fn lost_data(sent: &[WireFrame], arrived: &[WireFrame]) -> u64 {
    let is_data = |f: &&WireFrame| is_write(&f.bytes);
    let out = sent.iter().filter(|f| f.way == Way::Sent).filter(is_data).count();
    let came = arrived.iter().filter(|f| f.way == Way::Received).filter(is_data).count();
    out.saturating_sub(came) as u64
}

/// True for a WRITE, by its opcode behind Ethernet, IP and UDP.
fn is_write(frame: &[u8]) -> bool {
    use nic_spec::wire::{Eth, Ipv4, Ipv6, Opcode, Udp, ETHERTYPE_IPV6};
    let Ok((eth, _)) = Eth::split(frame) else { return false };
    let ip = if eth.ethertype() == ETHERTYPE_IPV6 { Ipv6::LEN } else { Ipv4::LEN };
    frame.get(Eth::LEN + ip + Udp::LEN) == Some(&Opcode::Write.code())
}
