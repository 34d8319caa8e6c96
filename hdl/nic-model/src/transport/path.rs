//! One path of a connection, sender side: its window, its round trip, its congestion state, its health.
//!
//! ```text
//! BOOTSTRAP --first ACK--> ACTIVE --heavy marking--> SKIP --one SRTT--> ACTIVE
//! ACTIVE/SKIP --RTO or unanswered probes--> SUSPECT --ACK--> ACTIVE
//! SUSPECT --second RTO--> re-aim (new UDP source port, epoch + 1, cwnd 1) --> BOOTSTRAP
//! re-aims used up on every plane --> DEAD --probes answered--> BOOTSTRAP          any --admin--> DENIED
//! ```
//! A packet keeps its (path, sequence number) for ever: leaving a bad route means re-aiming the path, never moving a
//! packet to another one.

use super::bitmap::Bitmap;
use super::cc::{AckSample, CongestionControl, PathCc, Q};
use super::rtt::Rtt;
use super::window::{AckError, DescId, SendWindow};
use crate::config::TransportConfig;
use crate::time::{Ticks, Time};
use alloc::collections::VecDeque;
use nic_spec::num::Psn;

/// Health of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathState {
    /// Not opened.
    #[default]
    Unused,
    /// Opened or re-aimed, not yet acknowledged.
    Bootstrap,
    /// Carries data.
    Active,
    /// Marked heavily: no new data for one round trip.
    Skip,
    /// Timed out: retransmissions and probes only.
    Suspect,
    /// Every route was tried: probes only.
    Dead,
    /// Switched off by the administrator.
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
    /// Receiver residency, ps.
    pub hold_ps: u64,
    /// CE-marked packets of this path so far, modulo 2^16.
    pub ce_cnt: u16,
    /// Epoch of the trigger.
    pub epoch: u8,
    /// The trigger was a duplicate.
    pub dup: bool,
    /// Sequence number of the trigger.
    pub trig: Psn,
}

/// What the path's timer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerAction {
    /// Nothing was due.
    None,
    /// Send a probe (marker) on the path.
    Probe,
    /// The oldest outstanding packet was queued for retransmission.
    Retransmit,
    /// The second timeout in a row: the connection must re-aim the path; the oldest packet is queued.
    Reaim,
}

/// Counts of one path, for telemetry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Packets sent for the first time.
    pub new_pkts: u64,
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

/// The path.
#[derive(Clone, Debug)]
pub struct TxPath {
    /// Health.
    pub state: PathState,
    /// Plane it leaves by.
    pub plane: u8,
    /// Incremented by each re-aim, modulo 16.
    pub epoch: u8,
    /// UDP source port: the route's entropy.
    pub sport: u16,
    /// Packets outstanding.
    pub window: SendWindow,
    /// Congestion state.
    pub cc: PathCc,
    /// Round trip.
    pub rtt: Rtt,
    /// Counts.
    pub stats: PathStats,
    rtx: VecDeque<Psn>,
    ce_last: u16,
    tlp_count: u8,
    rto_count: u8,
    backoff: u8,
    /// Re-aims since the last acknowledgement.
    pub failed_reaims: u8,
    last_tx: Time,
    skip_until: Time,
    reaimed_at: Time,
    /// A marker was sent for this `nxt`.
    marked_nxt: Option<Psn>,
    loss_window: (u32, u32),
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
            stats: PathStats::default(),
            rtx: VecDeque::new(),
            ce_last: 0,
            tlp_count: 0,
            rto_count: 0,
            backoff: 0,
            failed_reaims: 0,
            last_tx: Time::ZERO,
            skip_until: Time::ZERO,
            reaimed_at: Time::ZERO,
            marked_nxt: None,
            loss_window: (0, 0),
        }
    }

    /// True when a new packet may go: healthy, not skipped, window open.
    pub fn is_open(&self, now: Time, cfg: &TransportConfig) -> bool {
        let healthy = match self.state {
            PathState::Bootstrap | PathState::Active => true,
            PathState::Skip => now >= self.skip_until,
            _ => false,
        };
        healthy && self.window.in_flight_pkts() < self.cc.cwnd_pkts() && !self.window.is_full(cfg.path_cap_pkts)
    }

    /// Takes the next sequence number for a new packet.
    pub fn send_new(&mut self, now: Time, desc: DescId, cfg: &TransportConfig) -> Psn {
        self.last_tx = now;
        self.stats.new_pkts += 1;
        if self.window.in_flight_pkts() == 0 {
            self.tlp_count = 0;
        }
        self.window.push(desc, now.ticks(cfg.tick_ps), self.epoch)
    }

    /// True when retransmissions wait.
    pub fn has_retransmit(&self) -> bool {
        !self.rtx.is_empty() && !matches!(self.state, PathState::Dead | PathState::Denied | PathState::Unused)
    }

    /// The next packet to retransmit, oldest first; it counts as sent now.
    pub fn send_retransmit(&mut self, now: Time, cfg: &TransportConfig) -> Option<(Psn, DescId)> {
        while let Some(psn) = self.rtx.pop_front() {
            let (epoch, ticks) = (self.epoch, now.ticks(cfg.tick_ps));
            let Some(entry) = self.window.entry_mut(psn) else { continue };
            entry.queued = false;
            entry.retries = entry.retries.saturating_add(1);
            entry.tx_ts = ticks;
            entry.epoch = epoch;
            let desc = entry.desc;
            self.last_tx = now;
            self.stats.rtx_pkts += 1;
            return Some((psn, desc));
        }
        None
    }

    /// The newest outstanding packet that was not sent redundantly yet; it counts as sent now.
    pub fn send_redundant(&mut self, now: Time, cfg: &TransportConfig) -> Option<(Psn, DescId)> {
        let psn = self
            .window
            .outstanding()
            .rev()
            .find(|p| self.window.entry(*p).is_some_and(|e| !e.redundant && e.retries == 0 && !e.queued))?;
        let (epoch, ticks) = (self.epoch, now.ticks(cfg.tick_ps));
        let entry = self.window.entry_mut(psn)?;
        entry.redundant = true;
        entry.tx_ts = ticks;
        entry.epoch = epoch;
        let desc = entry.desc;
        self.last_tx = now;
        self.stats.redundant_pkts += 1;
        Some((psn, desc))
    }

    /// True when the path should tell the receiver that nothing follows: data is out and no marker was sent for it.
    pub fn wants_marker(&self) -> bool {
        self.window.in_flight_pkts() > 0
            && self.marked_nxt != Some(self.window.nxt())
            && self.rtx.is_empty()
            && matches!(self.state, PathState::Active | PathState::Skip | PathState::Bootstrap)
    }

    /// A marker or probe left.
    pub fn sent_marker(&mut self, now: Time) {
        self.marked_nxt = Some(self.window.nxt());
        self.last_tx = now;
    }

    /// Takes an acknowledgement. `acked` is called for each packet acknowledged for the first time.
    pub fn on_ack(
        &mut self,
        now: Time,
        ack: &AckInfo,
        may_grow: bool,
        reorder_ticks: u32,
        cc: &dyn CongestionControl,
        cfg: &TransportConfig,
        mut acked: impl FnMut(DescId),
    ) -> Result<u32, AckError> {
        let current = ack.epoch == self.epoch;
        let mut gap_dup = false;
        if ack.dup {
            // A copy the receiver had already: it speaks of reordering only if a gap had triggered the copy.
            gap_dup = self.window.entry(ack.trig).is_some_and(|e| e.gap_resent);
        }
        let mut gap_resent = 0;
        let count = self.window.acknowledge(ack.cum, &ack.sack, |_, e| {
            gap_resent += u32::from(e.gap_resent);
            acked(e.desc);
        })?;
        if gap_dup {
            self.stats.spurious_pkts += 1;
        }
        let ce_pkts = u32::from(ack.ce_cnt.wrapping_sub(self.ce_last));
        // A stale acknowledgement counts backwards; half the circle is far more than a path can mark between two.
        let ce_pkts = if ce_pkts < 1 << 15 {
            self.ce_last = ack.ce_cnt;
            ce_pkts
        } else {
            0
        };
        if current {
            let rtt_ps =
                (u64::from(now.ticks(cfg.tick_ps).since(ack.ts_echo)) * cfg.tick_ps).saturating_sub(ack.hold_ps);
            if rtt_ps < cfg.rto_max_ps {
                self.rtt.sample(now, rtt_ps, cfg.min_rtt_period_ps);
            }
            self.heard(now, cfg);
            let srtt_ps = self.rtt.srtt_ps().unwrap_or(cfg.rto_init_ps);
            let sample = AckSample {
                now,
                acked_pkts: count,
                ce_pkts,
                rtt_ps,
                srtt_ps,
                min_rtt_ps: self.rtt.min_ps().unwrap_or(srtt_ps),
                may_grow,
            };
            if cc.on_ack(&mut self.cc, &sample) && self.state == PathState::Active {
                self.state = PathState::Skip;
                self.skip_until = now.after_ps(srtt_ps);
            } else if self.state == PathState::Skip && now >= self.skip_until {
                self.state = PathState::Active;
            }
            let before = self.rtx.len();
            let rtx = &mut self.rtx;
            self.window.find_lost(ack.ts_echo, ack.epoch, reorder_ticks, |psn| rtx.push_back(psn));
            if now.since_ps(self.reaimed_at) > srtt_ps && self.reaimed_at != Time::ZERO {
                self.adopt_older_epochs();
            }
            let lost = (self.rtx.len() - before) as u32;
            self.count_loss(now, count, lost, srtt_ps, cc, cfg);
        }
        Ok(count)
    }

    /// An acknowledgement of this epoch arrived: the route works.
    fn heard(&mut self, now: Time, cfg: &TransportConfig) {
        if matches!(self.state, PathState::Bootstrap) && self.cc.cwnd_pkts() < cfg.path_init_pkts {
            self.cc.set_cwnd_q(cfg.path_init_pkts << Q, cfg.path_cap_pkts);
        }
        if matches!(self.state, PathState::Bootstrap | PathState::Suspect | PathState::Dead) {
            self.state = PathState::Active;
        }
        (self.tlp_count, self.rto_count, self.backoff, self.failed_reaims) = (0, 0, 0, 0);
        self.last_tx = self.last_tx.max(now);
    }

    /// One round trip after a re-aim, what was sent before it and is still missing went down with the old route.
    fn adopt_older_epochs(&mut self) {
        let epoch = self.epoch;
        let mut stale: VecDeque<Psn> = self
            .window
            .outstanding()
            .filter(|p| self.window.entry(*p).is_some_and(|e| e.epoch != epoch && !e.queued))
            .collect();
        for psn in &stale {
            if let Some(e) = self.window.entry_mut(*psn) {
                e.queued = true;
            }
        }
        self.rtx.append(&mut stale);
        self.reaimed_at = Time::ZERO;
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

    fn rto_ps(&self, cfg: &TransportConfig) -> u64 {
        let base = self.rtt.rto_ps().unwrap_or(cfg.rto_init_ps).max(cfg.rto_min_ps);
        base.saturating_mul(1 << self.backoff.min(30)).min(cfg.rto_max_ps)
    }

    /// When the timer is due: a tail-loss probe first, the retransmission timeout once the probes are used up.
    pub fn deadline(&self, cfg: &TransportConfig) -> Time {
        if self.window.in_flight_pkts() == 0 || matches!(self.state, PathState::Unused | PathState::Denied) {
            return Time::NEVER;
        }
        if self.state == PathState::Dead {
            return self.last_tx.after_ps(cfg.probe_interval_ps);
        }
        match self.rtt.srtt_ps() {
            Some(srtt_ps) if self.tlp_count < cfg.tlp_limit && self.rto_count == 0 => {
                self.last_tx.after_ps((2 * srtt_ps).max(srtt_ps + 10 * crate::time::US_PS).max(cfg.tlp_min_ps))
            }
            _ => self.last_tx.after_ps(self.rto_ps(cfg)),
        }
    }

    /// The timer may be due.
    pub fn on_timer(&mut self, now: Time, cc: &dyn CongestionControl, cfg: &TransportConfig) -> TimerAction {
        if now < self.deadline(cfg) {
            return TimerAction::None;
        }
        self.last_tx = now;
        if self.state == PathState::Dead {
            return TimerAction::Probe;
        }
        if self.rtt.srtt_ps().is_some() && self.tlp_count < cfg.tlp_limit && self.rto_count == 0 {
            self.tlp_count += 1;
            return TimerAction::Probe;
        }
        self.stats.rto_count += 1;
        self.rto_count = self.rto_count.saturating_add(1);
        self.backoff = self.backoff.saturating_add(1);
        cc.on_rto(&mut self.cc, now);
        self.queue_oldest();
        if self.rto_count >= 2 {
            return TimerAction::Reaim;
        }
        self.state = PathState::Suspect;
        TimerAction::Retransmit
    }

    fn queue_oldest(&mut self) {
        let Some(psn) = self.window.outstanding().next() else { return };
        if let Some(entry) = self.window.entry_mut(psn) {
            if !entry.queued {
                entry.queued = true;
                self.rtx.push_front(psn);
            }
        }
    }

    /// Takes another route: new port, perhaps another plane, next epoch, one packet of window.
    pub fn reaim(&mut self, now: Time, plane: u8, sport: u16) {
        (self.plane, self.sport, self.epoch) = (plane, sport, (self.epoch + 1) & 15);
        self.state = PathState::Bootstrap;
        self.cc = PathCc::new();
        self.rtt.reset();
        (self.tlp_count, self.rto_count, self.marked_nxt) = (0, 0, None);
        self.failed_reaims = self.failed_reaims.saturating_add(1);
        self.reaimed_at = Time(now.0.max(1));
        self.last_tx = now;
        self.stats.reaim_count += 1;
        self.queue_oldest();
    }
}
