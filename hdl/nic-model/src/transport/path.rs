//! One path of a connection, sender side: its window, its round trip, its congestion state, its health.
//!
//! ```text
//! BOOTSTRAP --first ACK--> ACTIVE --heavy marking--> SKIP --one SRTT--> ACTIVE
//! ACTIVE/SKIP --RTO--> SUSPECT --ACK--> ACTIVE
//! SUSPECT --each further RTO--> re-aim (new UDP source port, epoch + 1, cwnd 1) --> BOOTSTRAP
//! re-aims used up on every plane --> DEAD --re-aimed again at intervals, first ACK--> ACTIVE    any --admin--> DENIED
//! ```
//! A packet keeps its (path, sequence number) for ever: leaving a bad route means re-aiming the path, never moving a
//! packet to another one. Before the timer gives up, it sends probes, whose answers show what is missing.

use super::bitmap::Bitmap;
use super::cc::{AckSample, CongestionControl, PathCc, Q};
use super::route_marks::RouteMarks;
use super::rtt::Rtt;
use super::window::{AckError, Cause, CopyState, Desc, Finding, Mark, SendWindow};
use crate::config::TransportConfig;
use crate::footprint::of_queue;
use crate::time::{Ticks, Time};
use alloc::collections::VecDeque;
use nic_spec::consts::{TLP_COLD_MINS, TLP_STEADY};
use nic_spec::num::Psn;

/// Probes that follow each other at the same distance; after them it doubles.
const STEADY_PROBES: u8 = TLP_STEADY as u8;

/// Health of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathState {
    /// Not in use: not opened yet, or more than the round trip needs. What is outstanding is still recovered.
    #[default]
    Unused,
    /// Opened or re-aimed, not yet acknowledged.
    Bootstrap,
    /// Carries data.
    Active,
    /// Marked heavily: others are preferred for one round trip.
    Skip,
    /// Timed out: retransmissions and probes only.
    Suspect,
    /// Every route was tried: one packet at intervals, by another route each time.
    Dead,
    /// Switched off by the administrator. What is outstanding is still recovered.
    Denied,
}

/// What an acknowledgement says, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckInfo {
    /// Everything up to this was received.
    pub cum: Psn,
    /// Bit i: cum + 1 + i was received.
    pub sack: Bitmap,
    /// Clock of the packet that triggered it.
    pub ts_echo: Ticks,
    /// Receiver residency, ps; `None` when it is too long to be told.
    pub hold_ps: Option<u64>,
    /// CE-marked packets of this path so far, modulo 2^16.
    pub ce_cnt: u16,
    /// Epoch of the trigger.
    pub epoch: u8,
    /// The trigger was a duplicate.
    pub dup: bool,
    /// The trigger was a retransmission.
    pub rtxe: bool,
    /// The trigger was a data packet and not a probe.
    pub is_data: bool,
    /// Sequence number of the trigger.
    pub trig: Psn,
}

/// What the connection knows that a path needs to take an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub struct AckContext<'a> {
    /// When it arrived.
    pub now: Time,
    /// The connection may put more packets in flight.
    pub may_grow: bool,
    /// Tolerated lateness within the path.
    pub reorder_ticks: u32,
    /// Round trip of the connection for a path that has none of its own.
    pub conn_srtt_ps: Option<u64>,
    /// The algorithm.
    pub cc: &'a dyn CongestionControl,
    /// Tunables.
    pub cfg: &'a TransportConfig,
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckOutcome {
    /// Packets acknowledged for the first time.
    pub acked_pkts: u32,
    /// Packets found lost and queued for retransmission.
    pub lost_pkts: u32,
    /// Packets of whose two transmissions the earlier one was found lost.
    pub single_pkts: u32,
    /// Packets marked since the last acknowledgement.
    pub ce_pkts: u32,
    /// Round trip of the trigger, receiver residency taken off, ps.
    pub rtt_ps: Option<u64>,
    /// The trigger came this much after a packet that was sent later.
    pub late_ticks: Option<u32>,
    /// The trigger repeated what the receiver had, only because of a gap.
    pub was_spurious: bool,
}

/// Which packets may be copied in idle time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// All of which one transmission is under way.
    All,
    /// Of those the ones of which a transmission was lost.
    Repaired,
}

/// What the path's timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerAction {
    /// Nothing was due.
    None,
    /// Send a probe (marker) on the path.
    Probe,
    /// The oldest outstanding packet was queued for retransmission.
    Retransmit,
    /// Another timeout in a row: the connection must re-aim the path; the oldest packet is queued.
    Reaim,
}

/// Counts of one path, for telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PathStats {
    /// Retransmissions.
    pub rtx_pkts: u64,
    /// Redundant copies sent in idle time.
    pub redundant_pkts: u64,
    /// Gap retransmissions that the receiver reported as duplicates.
    pub spurious_pkts: u64,
    /// Timeouts.
    pub rto_count: u32,
    /// Re-aims.
    pub reaim_count: u32,
}

/// The path. In memory, what every packet touches comes first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct TxPath {
    /// Health.
    pub state: PathState,
    /// Plane it leaves by.
    pub plane: u8,
    /// Incremented by each re-aim, modulo 16.
    pub epoch: u8,
    tlp_count: u8,
    /// UDP source port: the route's entropy.
    pub sport: u16,
    /// Timeouts since the last acknowledgement, re-aims notwithstanding.
    silent_rtos: u8,
    /// Re-aims since the last acknowledgement.
    failed_reaims: u8,
    /// What the timer counts from: the last transmission or acknowledgement.
    base: Time,
    /// Since when packets are outstanding and nothing was heard.
    silent_since: Time,
    /// Of what is outstanding from here on, nothing may be copied in idle time.
    copy_from: Psn,
    /// Outstanding packets that wait for a refusal to pass.
    parked_pkts: u32,
    ce_last: u16,
    /// The last packet or probe asks for an acknowledgement at once.
    pub is_ack_asked: bool,
    /// Data left after the last marker.
    marker_owed: bool,
    /// What came marked by its route.
    pub(crate) route: RouteMarks,
    /// Congestion state.
    pub cc: PathCc,
    /// Round trip.
    pub rtt: Rtt,
    /// Packets sent for the first time.
    pub new_pkts: u64,
    /// Packets outstanding.
    pub window: SendWindow,
    loss_window: (u32, u32),
    pub(super) skip_until: Time,
    /// When it took another route; never, once what that left behind is dealt with.
    reaimed_at: Time,
    rtx: VecDeque<Psn>,
    /// Other counts.
    pub stats: PathStats,
}

impl TxPath {
    /// A path that was just opened.
    pub fn open(plane: u8, sport: u16, epoch: u8, first: Psn) -> Self {
        Self {
            state: PathState::Bootstrap,
            plane,
            epoch: epoch & 15,
            sport,
            window: SendWindow::new(first),
            cc: PathCc::new(),
            rtt: Rtt::default(),
            new_pkts: 0,
            stats: PathStats::default(),
            rtx: VecDeque::new(),
            parked_pkts: 0,
            ce_last: 0,
            tlp_count: 0,
            silent_rtos: 0,
            failed_reaims: 0,
            marker_owed: false,
            copy_from: first,
            is_ack_asked: false,
            base: Time::ZERO,
            silent_since: Time::ZERO,
            skip_until: Time::ZERO,
            reaimed_at: Time::NEVER,
            loss_window: (0, 0),
            route: RouteMarks::default(),
        }
    }

    /// Memory on the heap, bytes.
    pub fn heap_bytes(&self) -> usize {
        self.window.heap_bytes() + of_queue(&self.rtx)
    }

    /// True when its state permits new packets.
    pub const fn is_healthy(&self) -> bool {
        matches!(self.state, PathState::Bootstrap | PathState::Active | PathState::Skip)
    }

    /// True when a new packet may go: healthy and the window open.
    pub fn is_open(&self, cfg: &TransportConfig) -> bool {
        self.is_healthy()
            && self.window.in_flight_pkts() < self.cc.cwnd_pkts()
            && !self.window.is_full(cfg.path_cap_pkts)
    }

    /// True while other paths should be preferred.
    #[inline]
    pub fn is_skipped(&self, now: Time) -> bool {
        self.state == PathState::Skip && self.has_skip_left(now)
    }

    // Apart, so that the cache line is not touched for nothing.
    #[cold]
    #[inline(never)]
    fn has_skip_left(&self, now: Time) -> bool {
        now < self.skip_until
    }

    /// Re-aims since the last acknowledgement.
    pub const fn failed_reaims(&self) -> u8 {
        self.failed_reaims
    }

    /// Timeouts since the last acknowledgement, re-aims notwithstanding.
    pub const fn silent_rtos(&self) -> u8 {
        self.silent_rtos
    }

    /// Takes the next sequence number for a new packet, which carries the clock `tx_ts`.
    #[inline(always)]
    pub fn send_new(&mut self, now: Time, tx_ts: Ticks, desc: Desc, cfg: &TransportConfig) -> Psn {
        if self.window.in_flight_pkts() == 0 {
            (self.tlp_count, self.silent_since) = (0, now);
            if self.base != Time::ZERO && now.since_ps(self.base) > cfg.idle_restart_ps {
                // What the window was learnt from is long past.
                self.cc.set_cwnd_q(self.cc.cwnd_q.min(cfg.path_init_pkts << Q), cfg.path_cap_pkts);
            }
        }
        self.base = now;
        self.marker_owed = true;
        self.new_pkts += 1;
        let psn = self.window.push(desc, tx_ts, self.epoch);
        self.copy_from = self.window.nxt();
        psn
    }

    /// True when retransmissions wait.
    pub fn has_retransmit(&self) -> bool {
        !self.rtx.is_empty()
    }

    /// The packet that [`send_retransmit`](Self::send_retransmit) would send.
    pub fn peek_retransmit(&mut self) -> Option<(Psn, Desc)> {
        loop {
            let psn = *self.rtx.front()?;
            if let Some(entry) = self.window.entry(psn) {
                return Some((psn, entry.desc));
            }
            self.rtx.pop_front();
        }
    }

    /// The next packet to retransmit, oldest loss first; it counts as sent now.
    pub fn send_retransmit(&mut self, now: Time, cfg: &TransportConfig) -> Option<(Psn, Desc, Cause)> {
        while let Some(psn) = self.rtx.pop_front() {
            let (epoch, ticks) = (self.epoch, now.ticks(cfg.tick_ps));
            let Some(entry) = self.window.entry_mut(psn) else { continue };
            let is_gap = entry.marks.cause() == Cause::Gap;
            entry.marks.set(Mark::Queued, false);
            entry.marks.set(Mark::GapResent, is_gap);
            entry.retries = entry.retries.saturating_add(1);
            // What a timer repeats may not have been lost at all.
            entry.marks.set(Mark::Repaired, is_gap);
            entry.copy = if is_gap { CopyState::Past } else { CopyState::UnderWay };
            (entry.older_ts, entry.tx_ts, entry.epoch) = (entry.tx_ts, ticks, epoch);
            let (desc, cause) = (entry.desc, entry.marks.cause());
            self.may_copy(psn);
            self.base = now;
            self.marker_owed = true;
            self.stats.rtx_pkts += 1;
            return Some((psn, desc, cause));
        }
        None
    }

    /// Takes `psn` out of the retransmit queue's care until [`resume`](Self::resume): the receiver refused it for now.
    /// False when it is there already or not outstanding.
    pub fn park(&mut self, psn: Psn) -> bool {
        let Some(entry) = self.window.entry_mut(psn).filter(|e| !e.marks.has(Mark::Parked)) else { return false };
        entry.marks.set(Mark::Parked, true);
        self.parked_pkts += 1;
        if entry.marks.set(Mark::Queued, true) {
            self.rtx.retain(|p| *p != psn);
        }
        true
    }

    /// Queues a parked packet for retransmission.
    pub fn resume(&mut self, now: Time, psn: Psn) {
        if let Some(entry) = self.window.entry_mut(psn).filter(|e| e.marks.has(Mark::Parked)) {
            entry.marks.set(Mark::Parked, false);
            entry.marks.queue(Cause::Timer);
            self.parked_pkts -= 1;
            self.rtx.push_back(psn);
            self.base = self.base.max(now);
            self.silent_since = self.silent_since.max(now);
        }
    }

    /// One transmission of `psn` is under way, so it is among those that may be copied.
    fn may_copy(&mut self, psn: Psn) {
        let una = self.window.una();
        let (from, next) = (self.copy_from.distance_from(una), psn.next().distance_from(una));
        if from > self.window.span_pkts() || next > from {
            self.copy_from = psn.next();
        }
    }

    /// The newest outstanding packet that may be copied, and the clock of its last transmission.
    pub fn redundancy_candidate(&mut self, copies: Copies) -> Option<(Psn, Ticks)> {
        if copies == Copies::Repaired {
            let of = |psn: Psn| self.window.entry(psn).map(|e| (psn, e));
            let mut entries = self.window.outstanding().rev().filter_map(of);
            let found = entries.find(|(_, e)| e.marks.has(Mark::Repaired) && e.is_single());
            return found.map(|(psn, e)| (psn, e.tx_ts));
        }
        // Copies go from the newest to the oldest, so what was passed over once need not be looked at again.
        let una = self.window.una();
        for i in (0..self.copy_from.distance_from(una).min(self.window.span_pkts())).rev() {
            let psn = una + i;
            let candidate = self.window.entry(psn).filter(|e| e.is_single());
            if let Some(e) = candidate {
                self.copy_from = psn.next();
                return Some((psn, e.tx_ts));
            }
        }
        self.copy_from = una;
        None
    }

    /// Lets every outstanding packet be copied once more: nothing was heard for a while.
    pub fn renew_redundancy(&mut self) {
        self.copy_from = self.window.nxt();
        for i in 0..self.window.span_pkts() {
            let psn = self.window.una() + i;
            if let Some(e) = self.window.entry_mut(psn).filter(|e| e.copy == CopyState::UnderWay) {
                e.copy = CopyState::Past;
            }
        }
    }

    /// Sends `psn` once more in idle time; it counts as sent now.
    pub fn send_redundant(&mut self, now: Time, psn: Psn, cfg: &TransportConfig) -> Option<Desc> {
        let (epoch, ticks) = (self.epoch, now.ticks(cfg.tick_ps));
        let entry = self.window.entry_mut(psn)?;
        // Nothing proves what became of a transmission by another route.
        entry.copy = if entry.epoch == epoch { CopyState::UnderWay } else { CopyState::Past };
        // A duplicate of it says nothing about reordering any more.
        entry.marks.set(Mark::GapResent, false);
        (entry.older_ts, entry.tx_ts, entry.epoch) = (entry.tx_ts, ticks, epoch);
        let desc = entry.desc;
        self.base = now;
        // Another marker after the copies, since a copy looks like a packet under way until something later answers.
        self.marker_owed = true;
        self.stats.redundant_pkts += 1;
        Some(desc)
    }

    /// True when the path should tell the receiver that nothing follows: data left since the last marker.
    pub fn wants_marker(&self) -> bool {
        self.marker_owed
            && self.window.in_flight_pkts() > 0
            && self.rtx.is_empty()
            && matches!(self.state, PathState::Active | PathState::Skip | PathState::Bootstrap)
    }

    /// A marker or probe is on its way to the port.
    pub fn sent_marker(&mut self, now: Time) {
        (self.marker_owed, self.is_ack_asked) = (false, true);
        self.base = now;
    }

    /// Takes an acknowledgement. `acked` is called for packets acknowledged for the first time, with a descriptor of which
    /// only slot and pool are meant, and how many packets have it.
    #[inline]
    pub fn on_ack(
        &mut self,
        ack: &AckInfo,
        ctx: &AckContext<'_>,
        mut acked: impl FnMut(Desc, u32),
    ) -> Result<AckOutcome, AckError> {
        let AckContext { now, cfg, .. } = *ctx;
        let cwnd_used = 2 * self.window.in_flight_pkts() >= self.cc.cwnd_pkts();
        let run = if self.parked_pkts == 0 { self.window.acknowledge_run(ack.cum, &ack.sack) } else { None };
        let acked_pkts = match run {
            Some((count, desc)) => {
                if count > 0 {
                    acked(desc, count);
                }
                count
            }
            None => {
                let parked_pkts = &mut self.parked_pkts;
                self.window.acknowledge(ack.cum, &ack.sack, |_, e| {
                    *parked_pkts -= u32::from(e.marks.has(Mark::Parked));
                    acked(e.desc, 1);
                })?
            }
        };
        let mut outcome = AckOutcome { acked_pkts, ..AckOutcome::default() };
        if ack.dup && self.window.recent(ack.trig).is_some_and(|e| e.marks.has(Mark::GapResent)) {
            outcome.was_spurious = true;
            self.stats.spurious_pkts += 1;
        }
        // A stale acknowledgement counts backwards; half the circle is far more than a path can mark between two.
        let ce_pkts = ack.ce_cnt.wrapping_sub(self.ce_last);
        if ce_pkts < 1 << 15 {
            self.ce_last = ack.ce_cnt;
            outcome.ce_pkts = ce_pkts.into();
        }
        if ack.epoch != self.epoch {
            if self.window.in_flight_pkts() == 0 && matches!(self.state, PathState::Suspect | PathState::Dead) {
                // Nothing is left whose timer would try the present route; the next new packet tries it.
                self.state = PathState::Bootstrap;
            }
            return Ok(outcome);
        }
        if !(ack.trig == ack.cum && ack.sack.is_empty()) {
            // Else nothing that was sent later is there yet.
            outcome.late_ticks = self.lateness(ack);
        }
        let mut rtt_ps = self.rtt.srtt_ps().or(ctx.conn_srtt_ps).unwrap_or(cfg.rto_init_ps);
        if let Some(hold_ps) = ack.hold_ps {
            let age_ps = u64::from(now.ticks(cfg.tick_ps).since(ack.ts_echo)) * cfg.tick_ps;
            let sample_ps = age_ps.saturating_sub(hold_ps);
            if sample_ps < cfg.rto_max_ps {
                self.rtt.sample(now, sample_ps, cfg.min_rtt_period_ps);
                rtt_ps = sample_ps;
                outcome.rtt_ps = Some(sample_ps);
            }
        }
        self.heard(now, cfg);
        self.route.note(acked_pkts, outcome.ce_pkts, cfg.reroute_pkts);
        let srtt_ps = self.rtt.srtt_ps().or(ctx.conn_srtt_ps).unwrap_or(cfg.rto_init_ps);
        let sample = AckSample {
            now,
            acked_pkts,
            ce_pkts: outcome.ce_pkts,
            rtt_ps,
            srtt_ps,
            min_rtt_ps: self.rtt.min_ps().unwrap_or(srtt_ps),
            may_grow: ctx.may_grow && cwnd_used,
        };
        if ctx.cc.on_ack(&mut self.cc, &sample) && self.state == PathState::Active {
            self.state = PathState::Skip;
            self.skip_until = now.after_ps(srtt_ps);
        } else if self.state == PathState::Skip && now >= self.skip_until {
            self.state = PathState::Active;
        }
        let before = self.rtx.len();
        let (rtx, mut single) = (&mut self.rtx, None);
        // Nearly always nothing that was sent before the trigger is missing.
        if !(ack.is_data && self.window.is_later_than(ack.trig)) {
            self.window.find_lost(ack.ts_echo, ack.epoch, ctx.reorder_ticks, |psn, finding| match finding {
                Finding::Lost => rtx.push_back(psn),
                Finding::Single => {
                    outcome.single_pkts += 1;
                    single = Some(psn);
                }
            });
        }
        if let Some(newest) = single {
            self.may_copy(newest);
        }
        if self.reaimed_at != Time::NEVER && now.since_ps(self.reaimed_at) > srtt_ps {
            self.adopt_older_epochs();
        }
        outcome.lost_pkts = (self.rtx.len() - before) as u32;
        self.count_loss(now, acked_pkts, outcome.lost_pkts, srtt_ps, ctx.cc, cfg);
        Ok(outcome)
    }

    /// How long the trigger came after a packet of this path that was sent later, if both were sent once and by the
    /// present route.
    #[inline(never)]
    fn lateness(&self, ack: &AckInfo) -> Option<u32> {
        if ack.dup || ack.rtxe || !ack.is_data {
            return None;
        }
        let high = ack.sack.highest().map_or(ack.cum, |h| ack.cum + 1 + h);
        if !ack.trig.is_before(high) {
            return None;
        }
        let later = self.window.recent(high)?;
        (later.epoch == ack.epoch && later.is_first() && later.tx_ts.is_after_by(ack.ts_echo, 0))
            .then(|| later.tx_ts.since(ack.ts_echo))
    }

    /// An acknowledgement of this epoch arrived: the route works.
    fn heard(&mut self, now: Time, cfg: &TransportConfig) {
        if self.state == PathState::Bootstrap && self.cc.cwnd_pkts() < cfg.path_init_pkts {
            self.cc.set_cwnd_q(cfg.path_init_pkts << Q, cfg.path_cap_pkts);
        }
        if matches!(self.state, PathState::Bootstrap | PathState::Suspect | PathState::Dead) {
            self.state = PathState::Active;
        }
        (self.tlp_count, self.silent_rtos, self.failed_reaims) = (0, 0, 0);
        self.base = self.base.max(now);
        self.silent_since = self.silent_since.max(now);
    }

    /// One round trip after a re-aim, what was sent before it and is still missing went down with the old route.
    fn adopt_older_epochs(&mut self) {
        let epoch = self.epoch;
        self.reaimed_at = Time::NEVER;
        for i in 0..self.window.span_pkts() {
            let psn = self.window.una() + i;
            if let Some(e) = self.window.entry_mut(psn).filter(|e| e.epoch != epoch && !e.marks.has(Mark::Queued)) {
                e.marks.queue(Cause::Timer);
                self.rtx.push_back(psn);
            }
        }
    }

    fn count_loss(
        &mut self,
        now: Time,
        acked: u32,
        lost: u32,
        srtt_ps: u64,
        cc: &dyn CongestionControl,
        cfg: &TransportConfig,
    ) {
        let (a, l) = (self.loss_window.0 + acked, self.loss_window.1 + lost);
        if a + l < self.cc.cwnd_pkts().max(cfg.heavy_loss_pkts) {
            self.loss_window = (a, l);
            return;
        }
        self.loss_window = (0, 0);
        if l * 256 > (a + l) * cfg.heavy_loss_q8 {
            cc.on_heavy_loss(&mut self.cc, now, srtt_ps);
        }
    }

    #[inline(never)]
    fn rto_ps(&self, conn_srtt_ps: Option<u64>, cfg: &TransportConfig) -> u64 {
        let base = self.rtt.rto_ps().or(conn_srtt_ps.map(|s| 3 * s)).unwrap_or(cfg.rto_init_ps).max(cfg.rto_min_ps);
        base.saturating_mul(1 << self.silent_rtos.min(30)).min(cfg.rto_max_ps)
    }

    /// How long the answer to the last packet may take: a round trip with its jitter, and the receiver's own delay
    /// unless it was asked not to wait. `None` before the path's first round trip.
    #[inline]
    fn own_answer_ps(&self, cfg: &TransportConfig) -> Option<u64> {
        let (srtt_ps, jitter_ps) = self.rtt.srtt_and_jitter_ps()?;
        Some(self.answer_ps(srtt_ps, jitter_ps, cfg))
    }

    #[inline]
    fn answer_ps(&self, srtt_ps: u64, jitter_ps: u64, cfg: &TransportConfig) -> u64 {
        let held_ps = if self.is_ack_asked { 0 } else { cfg.ack_delay_ps };
        (srtt_ps + jitter_ps.max(cfg.tlp_slack_ps) + held_ps).max(cfg.tlp_min_ps)
    }

    /// When the timer is due, and whether it asks for a probe then: `tlp_limit` of them at least, and more until the
    /// path was silent for the retransmission timeout.
    #[inline]
    fn expiry(&self, conn_srtt_ps: Option<u64>, cfg: &TransportConfig) -> (Time, bool) {
        if cfg.tlp_limit == 0 || self.silent_rtos > 0 {
            return (self.base.after_ps(self.rto_ps(conn_srtt_ps, cfg)), false);
        }
        // Of another path's round trip nothing is known but its size.
        let answer_ps = self.own_answer_ps(cfg).or(conn_srtt_ps.map(|srtt_ps| self.answer_ps(srtt_ps, srtt_ps, cfg)));
        let answer_ps = answer_ps.unwrap_or(u64::from(TLP_COLD_MINS) * cfg.tlp_min_ps);
        let doublings = self.tlp_count.saturating_sub(STEADY_PROBES - 1).min(16);
        let probe_at = self.base.after_ps(answer_ps << doublings);
        if self.tlp_count < cfg.tlp_limit {
            return (probe_at, true);
        }
        let timeout_at = self.silent_since.after_ps(self.rto_ps(conn_srtt_ps, cfg));
        if probe_at < timeout_at {
            (probe_at, true)
        } else {
            // The last probe had its time, too.
            (timeout_at.max(self.base.after_ps(answer_ps)), false)
        }
    }

    /// When the timer is due: tail-loss probes first, then the retransmission timeout.
    #[inline(always)]
    pub fn deadline(&self, conn_srtt_ps: Option<u64>, cfg: &TransportConfig) -> Time {
        let is_calm = self.silent_rtos == 0 && self.tlp_count < STEADY_PROBES.min(cfg.tlp_limit);
        if is_calm && self.state != PathState::Dead && self.window.in_flight_pkts() > self.parked_pkts {
            if let Some(answer_ps) = self.own_answer_ps(cfg) {
                // The first probes, as nearly always.
                return self.base.after_ps(answer_ps);
            }
        }
        self.late_deadline(conn_srtt_ps, cfg)
    }

    /// As [`deadline`](Self::deadline), whatever the path has been through.
    #[inline(never)]
    fn late_deadline(&self, conn_srtt_ps: Option<u64>, cfg: &TransportConfig) -> Time {
        if self.window.in_flight_pkts() == self.parked_pkts {
            // What the receiver refused for now is not missing.
            return Time::NEVER;
        }
        if self.state == PathState::Dead {
            return self.base.after_ps(cfg.probe_interval_ps);
        }
        self.expiry(conn_srtt_ps, cfg).0
    }

    /// The timer may be due.
    pub fn on_timer(
        &mut self,
        now: Time,
        conn_srtt_ps: Option<u64>,
        cc: &dyn CongestionControl,
        cfg: &TransportConfig,
    ) -> TimerAction {
        if now < self.deadline(conn_srtt_ps, cfg) {
            return TimerAction::None;
        }
        let (_, is_probe) = self.expiry(conn_srtt_ps, cfg);
        self.base = now;
        if self.state == PathState::Dead {
            self.silent_rtos = self.silent_rtos.saturating_add(1);
            self.queue_oldest();
            return TimerAction::Reaim;
        }
        if is_probe {
            self.tlp_count = self.tlp_count.saturating_add(1);
            self.is_ack_asked = true;
            return TimerAction::Probe;
        }
        self.stats.rto_count += 1;
        self.silent_rtos = self.silent_rtos.saturating_add(1);
        cc.on_rto(&mut self.cc, now);
        self.queue_oldest();
        if self.silent_rtos >= 2 {
            return TimerAction::Reaim;
        }
        if self.is_in_use() {
            self.state = PathState::Suspect;
        }
        TimerAction::Retransmit
    }

    fn queue_oldest(&mut self) {
        let is_parked = |psn: &Psn| self.window.entry(*psn).is_some_and(|e| e.marks.has(Mark::Parked));
        let Some(psn) = self.window.outstanding().find(|psn| !is_parked(psn)) else { return };
        if let Some(entry) = self.window.entry_mut(psn) {
            if !entry.marks.has(Mark::Queued) {
                entry.marks.queue(Cause::Timer);
                self.rtx.push_front(psn);
            }
        }
    }

    /// True when it may carry new packets, now or when its route carries again: it is neither rested nor switched off.
    pub fn is_in_use(&self) -> bool {
        !matches!(self.state, PathState::Unused | PathState::Denied)
    }

    /// Switches the path off for new packets, or on again; what is outstanding is recovered all the same.
    pub fn deny(&mut self, is_denied: bool) {
        match (is_denied, self.state) {
            (true, _) => self.state = PathState::Denied,
            (false, PathState::Denied) => self.state = PathState::Bootstrap,
            _ => {}
        }
    }

    /// Takes another route of its plane with nothing outstanding; window and round trip are kept.
    pub fn reroute(&mut self, sport: u16) {
        (self.sport, self.epoch) = (sport, (self.epoch + 1) & 15);
        self.stats.reaim_count += 1;
    }

    /// Takes another route: new port, perhaps another plane, next epoch, one packet of window.
    pub fn reaim(&mut self, now: Time, plane: u8, sport: u16) {
        (self.plane, self.sport, self.epoch) = (plane, sport, (self.epoch + 1) & 15);
        if !matches!(self.state, PathState::Unused | PathState::Denied | PathState::Dead) {
            self.state = PathState::Bootstrap;
        }
        self.cc = PathCc::new();
        self.rtt.reset();
        self.route = RouteMarks::default();
        self.tlp_count = 0;
        self.failed_reaims = self.failed_reaims.saturating_add(1);
        self.reaimed_at = now;
        (self.base, self.silent_since) = (now, now);
        self.stats.reaim_count += 1;
        self.queue_oldest();
    }
}
