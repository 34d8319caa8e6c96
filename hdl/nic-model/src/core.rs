//! What all connections of a card share: tables, queues of the ports, timers, counters.

use crate::config::NicConfig;
use crate::counters::Counters;
use crate::mr::MrTable;
use crate::plane::PlaneQueue;
use crate::timer::Timers;
use crate::transport::rate_hint::HintEngine;
use crate::wire::emit::EmitConfig;
use crate::work::{Cqe, Event};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use nic_spec::csr::stats::Counter;

/// Events kept for a host that does not fetch them; older ones are lost first.
const EVENTS_MAX: usize = 4096;

/// The shared part of a card.
#[derive(Debug)]
pub(crate) struct Core {
    pub cfg: NicConfig,
    pub counters: Counters,
    pub timers: Timers,
    pub mrs: MrTable,
    pub planes: Vec<PlaneQueue>,
    pub hints: HintEngine,
    pub emit: EmitConfig,
    cqs: Vec<VecDeque<Cqe>>,
    events: VecDeque<Event>,
}

impl Core {
    pub fn new(cfg: NicConfig) -> Self {
        let hints = HintEngine::new(cfg.rate_mbps(), cfg.hint_eta_q8, cfg.hint_window_ps);
        let planes = cfg.planes.iter().map(|_| PlaneQueue::default()).collect();
        let emit = EmitConfig { udp_dport: cfg.udp_dport, elide_icrc: cfg.elide_icrc };
        Self {
            cfg,
            counters: Counters::default(),
            timers: Timers::default(),
            mrs: MrTable::default(),
            planes,
            hints,
            emit,
            cqs: Vec::new(),
            events: VecDeque::new(),
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
