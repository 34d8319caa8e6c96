//! What all connections of a card share: tables, queues of the ports, timers, counters.

use crate::config::NicConfig;
use crate::counters::Counters;
use crate::mr::MrTable;
use crate::plane::PlaneQueue;
use crate::read_budget::ReadBudget;
use crate::timer::{TimerKey, Timers};
use crate::transport::loss_meter::LossMeter;
use crate::transport::rate_hint::{HintEngine, HintRules};
use crate::wire::emit::EmitConfig;
use crate::wire::parser::PortFilter;
use crate::work::{Cqe, Event};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nic_spec::csr::stats::Counter;

/// Events kept for a host that does not fetch them; older ones are lost first.
const EVENTS_MAX: usize = 4096;

/// The shared part of a card. In memory, what every packet touches comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Core {
    pub planes: Vec<PlaneQueue>,
    /// A connection's id and this is its row.
    pub row_mask: u32,
    /// Inbound bandwidth is allotted.
    pub has_hints: bool,
    /// A connection may wait for room for a read.
    pub are_reads_awaited: bool,
    pub emit: EmitConfig,
    pub timers: Timers,
    pub mrs: MrTable,
    pub hints: HintEngine,
    /// What all connections lose.
    pub losses: LossMeter,
    pub reads: ReadBudget,
    pub counters: Counters,
    pub cfg: NicConfig,
    cqs: Vec<VecDeque<Cqe>>,
    events: VecDeque<Event>,
}

impl Core {
    pub fn new(cfg: NicConfig) -> Self {
        let rules = HintRules {
            eta_q8: cfg.hint_eta_q8,
            eta_min_q8: cfg.hint_eta_min_q8,
            eta_max_q8: cfg.hint_eta_max_q8,
            window_ps: cfg.hint_window_ps,
        };
        let hints = HintEngine::new(cfg.rate_mbps(), rules);
        let reads = ReadBudget::new(cfg.rate_mbps(), cfg.read_horizon_ps);
        let filter = |mac: u64| PortFilter {
            mac: (!cfg.promiscuous).then_some(mac),
            udp_dport: cfg.udp_dport,
            frame_bytes_max: cfg.frame_bytes_max,
            elide_icrc: cfg.elide_icrc,
        };
        let planes = cfg.planes.iter().map(|p| PlaneQueue::new(filter(p.mac))).collect();
        let emit = EmitConfig { udp_dport: cfg.udp_dport, elide_icrc: cfg.elide_icrc };
        Self {
            planes,
            row_mask: cfg.conns_max - 1,
            has_hints: cfg.hints,
            are_reads_awaited: false,
            emit,
            timers: Timers::default(),
            mrs: MrTable::default(),
            hints,
            losses: LossMeter::default(),
            reads,
            counters: Counters::default(),
            cfg,
            cqs: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Connection `conn` waits for room for `bytes` that a read asks for. Room comes with answers, and else by the clock:
    /// perhaps nothing arrives any more.
    pub fn wait_for_read_room(&mut self, conn: u32, bytes: u32) {
        self.reads.wait(conn, bytes);
        self.are_reads_awaited = true;
        self.arm_reads();
    }

    /// Sets the timer by which room comes back by itself, if a connection waits for it.
    pub fn arm_reads(&mut self) {
        if let Some(at) = self.reads.deadline() {
            self.timers.arm(&mut self.reads.armed, at, TimerKey::Reads);
        }
    }

    /// Puts a completion into queue `cq`.
    pub fn complete(&mut self, cq: u32, cqe: Cqe) {
        let at = cq as usize;
        if at >= self.cqs.len() {
            self.cqs.resize_with(at + 1, VecDeque::new);
        }
        if self.cqs[at].len() >= self.cfg.cq_depth as usize {
            self.counters.count(Counter::CqOverflow);
        }
        self.cqs[at].push_back(cqe);
        self.counters.count(Counter::CqeWritten);
    }

    /// Takes the oldest completion of queue `cq`.
    pub fn pop_completion(&mut self, cq: u32) -> Option<Cqe> {
        self.cqs.get_mut(cq as usize)?.pop_front()
    }

    /// Tells the host.
    pub fn event(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Takes the oldest event.
    pub fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
