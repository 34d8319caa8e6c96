//! One path by itself: states, timers, what an acknowledgement teaches, re-aim.

use nic_model::config::TransportConfig;
use nic_model::time::{Ticks, Time, US_PS};
use nic_model::transport::bitmap::Bitmap;
use nic_model::transport::cc::{CongestionControl, Dctcp, Q};
use nic_model::transport::path::{AckContext, AckInfo, AckOutcome, Copies, PathState, TimerAction, TxPath};
use nic_model::transport::window::{Cause, Desc};
use nic_spec::num::Psn;

const US: u64 = US_PS;

struct Bench {
    path: TxPath,
    cfg: TransportConfig,
    cc: Dctcp,
    now: Time,
    reorder_ticks: u32,
}

impl Bench {
    fn new(first: u32) -> Self {
        Self {
            path: TxPath::open(0, 0xc000, 0, Psn::new(first)),
            cfg: TransportConfig::default(),
            cc: Dctcp::default(),
            now: Time(1000 * US),
            reorder_ticks: 0,
        }
    }

    /// A path that knows a round trip of 10 us and holds nothing.
    fn warm(first: u32) -> Self {
        let mut b = Self::new(first);
        b.send(1);
        b.now = b.now.after_ps(10 * US);
        b.ack(0, &[], 10 * US);
        assert_eq!((b.path.state, b.path.window.in_flight_pkts()), (PathState::Active, 0));
        b
    }

    /// A path that knows a round trip of 10 us very well and holds nothing.
    fn settled(first: u32) -> Self {
        let mut b = Self::warm(first);
        for _ in 0..60 {
            b.send(1);
            b.now = b.now.after_ps(10 * US - US / 10);
            b.ack(0, &[], 10 * US);
        }
        b
    }

    /// Sends `count` packets 100 ns apart.
    fn send(&mut self, count: u32) {
        for i in 0..count {
            let tx_ts = self.now.ticks(self.cfg.tick_ps);
            self.path.send_new(self.now, tx_ts, Desc { slot: i, ..Desc::default() }, &self.cfg);
            self.now = self.now.after_ps(US / 10);
        }
    }

    fn info(&self, cum_of_first: u32, bits: &[u32], age_ps: u64) -> AckInfo {
        let mut sack = Bitmap::EMPTY;
        bits.iter().for_each(|b| sack.set(*b));
        let cum = Psn::new(self.path.window.una().get()) + cum_of_first;
        AckInfo {
            cum,
            sack,
            ts_echo: Ticks(((self.now.0 - age_ps) / self.cfg.tick_ps) as u32),
            hold_ps: Some(0),
            ce_cnt: 0,
            epoch: self.path.epoch,
            dup: false,
            rtxe: false,
            is_data: true,
            trig: bits.last().map_or(cum, |b| cum + 1 + *b),
        }
    }

    fn take(&mut self, info: &AckInfo) -> AckOutcome {
        let ctx = AckContext {
            now: self.now,
            may_grow: true,
            reorder_ticks: self.reorder_ticks,
            conn_srtt_ps: None,
            cc: &self.cc,
            cfg: &self.cfg,
        };
        self.path.on_ack(info, &ctx, |_, _| ()).expect("what it acknowledges was sent")
    }

    /// Acknowledges up to una + `cum`, and bits beyond, with a trigger that was sent `age_ps` ago.
    fn ack(&mut self, cum: u32, bits: &[u32], age_ps: u64) -> AckOutcome {
        let info = self.info(cum, bits, age_ps);
        self.take(&info)
    }

    /// Lets the timer come due and says what it did.
    fn expire(&mut self) -> TimerAction {
        self.now = self.path.deadline(None, &self.cfg);
        self.path.on_timer(self.now, None, &self.cc, &self.cfg)
    }
}

#[test]
fn the_first_acknowledgement_opens_the_window() {
    let mut b = Bench::new(0);
    assert!(b.path.is_open(&b.cfg));
    b.send(1);
    assert!(!b.path.is_open(&b.cfg), "one packet until then");
    b.now = b.now.after_ps(10 * US);
    let outcome = b.ack(0, &[], 10 * US);
    assert_eq!((outcome.acked_pkts, outcome.rtt_ps.map(|r| r / US)), (1, Some(10)));
    assert_eq!((b.path.state, b.path.cc.cwnd_pkts() >= 6), (PathState::Active, true));
}

#[test]
fn probes_go_on_until_the_path_was_silent_for_the_timeout_and_each_timeout_waits_twice_as_long() {
    let mut b = Bench::settled(0);
    let start = b.now;
    b.send(2);
    let mut waits = Vec::new();
    let end = loop {
        let before = b.now;
        match b.expire() {
            TimerAction::Probe => waits.push(b.now.since_ps(before) / US),
            other => break other,
        }
        assert_eq!(b.path.state, PathState::Active);
    };
    // A round trip, a microsecond of jitter, and at first the delay of an acknowledgement that was not asked for.
    assert_eq!(waits, [12, 11, 11, 11, 11, 22], "the next one would come after the timeout");
    assert_eq!((end, b.path.state), (TimerAction::Retransmit, PathState::Suspect));
    assert_eq!(b.now.since_ps(start), b.cfg.rto_min_ps);
    assert_eq!(b.path.cc.cwnd_q, 1 << Q);
    assert_eq!(b.path.send_retransmit(b.now, &b.cfg).map(|r| (r.0.get(), r.2)), Some((61, Cause::Timer)), "the oldest");
    for factor in [2, 4, 8] {
        let before = b.now;
        assert_eq!(b.expire(), TimerAction::Reaim);
        assert_eq!(b.now.since_ps(before), factor * b.cfg.rto_min_ps);
    }
    assert_eq!(b.path.silent_rtos(), 4);
}

#[test]
fn where_a_round_trip_is_longer_than_the_smallest_timeout_there_are_still_probes() {
    let mut b = Bench::new(0);
    b.send(1);
    b.now = b.now.after_ps(1000 * US);
    b.ack(0, &[], 1000 * US);
    b.send(1);
    let actions: Vec<_> = (0..4).map(|_| b.expire()).collect();
    assert_eq!(actions[..3], [TimerAction::Probe; 3]);
    assert_eq!(actions[3], TimerAction::Retransmit);
}

#[test]
fn a_packet_that_asks_for_its_acknowledgement_is_missed_sooner() {
    let mut b = Bench::settled(0);
    b.send(1);
    let held = b.path.deadline(None, &b.cfg);
    b.path.is_ack_asked = true;
    assert_eq!(held.since_ps(b.path.deadline(None, &b.cfg)), b.cfg.ack_delay_ps);
}

#[test]
fn a_repair_and_what_lost_one_of_two_transmissions_may_be_copied() {
    let mut b = Bench::settled(0);
    b.send(3);
    let copy = |b: &mut Bench, copies| {
        let candidate = b.path.redundancy_candidate(copies)?;
        b.now = b.now.after_ps(US / 10);
        b.path.send_redundant(b.now, candidate.0, &b.cfg)?;
        Some(candidate.0.get() - b.path.window.una().get())
    };
    assert_eq!(copy(&mut b, Copies::Repaired), None, "nothing was lost yet");
    let copied: Vec<_> = std::iter::from_fn(|| copy(&mut b, Copies::All)).collect();
    assert_eq!(copied, [2, 1, 0], "each once, the newest first");
    // The third packet arrived, and with it the copy of the third, which left before that of the second.
    b.now = b.now.after_ps(10 * US);
    let outcome = b.ack(u32::MAX, &[2], 10 * US + US / 5);
    assert_eq!((outcome.single_pkts, outcome.lost_pkts), (2, 0), "the copies of both are still under way");
    assert_eq!([(); 3].map(|()| copy(&mut b, Copies::Repaired)), [Some(1), Some(0), None]);
    // All of them are lost; so are the repairs' chances to be copied but once.
    b.now = b.now.after_ps(10 * US);
    b.send(1);
    b.now = b.now.after_ps(10 * US);
    assert_eq!(b.ack(u32::MAX, &[2, 3], 10 * US + US / 10).lost_pkts, 2);
    assert_eq!(copy(&mut b, Copies::All), None, "the repairs have not left");
    while b.path.send_retransmit(b.now, &b.cfg).is_some() {}
    assert_eq!([(); 3].map(|()| copy(&mut b, Copies::Repaired)), [Some(1), Some(0), None]);
}

#[test]
fn before_any_round_trip_is_known_the_initial_timeout_holds_and_the_largest_bounds_it() {
    let mut b = Bench::new(0);
    b.send(1);
    assert!(b.path.deadline(Some(10 * US), &b.cfg) < b.path.deadline(None, &b.cfg), "the connection knows better");
    let start = Time(1000 * US);
    for n in 1..=5 {
        assert_eq!((b.expire(), b.now), (TimerAction::Probe, start.after_ps(n * 16 * b.cfg.tlp_min_ps)));
    }
    while b.expire() == TimerAction::Probe {}
    let silent_ps = b.now.since_ps(start);
    assert!((b.cfg.rto_init_ps..2 * b.cfg.rto_init_ps).contains(&silent_ps), "{silent_ps} ps before the timeout");
    for _ in 0..40 {
        b.expire();
    }
    let last = b.now;
    b.expire();
    assert_eq!(b.now.since_ps(last), b.cfg.rto_max_ps);
}

#[test]
fn a_path_with_nothing_outstanding_has_no_timer() {
    let mut b = Bench::warm(7);
    assert_eq!(b.path.deadline(None, &b.cfg), Time::NEVER);
    assert_eq!(b.path.on_timer(Time(u64::MAX - 1), None, &b.cc, &b.cfg), TimerAction::None);
}

#[test]
fn an_acknowledgement_heals_a_suspect_path_and_an_old_epoch_does_not() {
    let mut b = Bench::warm(0);
    b.send(3);
    while b.path.state != PathState::Suspect {
        b.expire();
    }
    assert!(!b.path.is_open(&b.cfg));
    let mut old = b.info(0, &[], 10 * US);
    old.epoch = 9;
    assert_eq!(b.take(&old).acked_pkts, 1, "it acknowledges all the same");
    assert_eq!(b.path.state, PathState::Suspect);
    b.ack(0, &[], 5 * US);
    assert_eq!((b.path.state, b.path.silent_rtos()), (PathState::Active, 0));
}

#[test]
fn a_gap_is_repaired_once_per_proof_and_a_duplicate_of_it_speaks_of_reordering() {
    let mut b = Bench::warm(0xff_fffd);
    b.send(4);
    // The first is missing; the trigger is the last.
    let mut info = b.info(0, &[], US / 10);
    (info.cum, info.sack, info.trig) = (b.path.window.una() - 1, Bitmap::EMPTY, b.path.window.nxt() - 1);
    [1, 2, 3].iter().for_each(|i| info.sack.set(*i));
    let outcome = b.take(&info);
    assert_eq!((outcome.acked_pkts, outcome.lost_pkts), (3, 1));
    assert_eq!(b.take(&info).lost_pkts, 0, "the same again proves nothing new");
    let (psn, desc, cause) = b.path.send_retransmit(b.now, &b.cfg).expect("the first");
    assert_eq!((psn.get(), desc.slot, cause), (0xff_fffe, 0, Cause::Gap));
    assert_eq!(b.path.send_retransmit(b.now, &b.cfg), None);
    b.now = b.now.after_ps(10 * US);
    assert!(!b.ack(3, &[], 10 * US).was_spurious);
    let mut dup = b.info(0, &[], 10 * US);
    (dup.cum, dup.trig, dup.dup, dup.rtxe) = (b.path.window.una() - 1, psn, true, true);
    assert!(b.take(&dup).was_spurious);
    assert_eq!(b.path.stats.spurious_pkts, 1);
}

#[test]
fn within_the_tolerance_a_gap_is_no_loss_and_lateness_is_measured() {
    let mut b = Bench::warm(0);
    b.reorder_ticks = 100;
    b.send(4);
    let una = b.path.window.una();
    let mut info = b.info(0, &[], US / 10);
    (info.cum, info.trig, info.sack) = (una - 1, una + 3, Bitmap::EMPTY);
    info.sack.set(3);
    let outcome = b.take(&info);
    assert_eq!((outcome.lost_pkts, outcome.late_ticks), (0, None));
    // The first arrives after the last: 300 ns or 75 ticks late.
    let mut late = info;
    (late.cum, late.trig, late.ts_echo) = (una, una, Ticks(info.ts_echo.0 - 75));
    late.sack = Bitmap::EMPTY;
    late.sack.set(2);
    assert_eq!(b.take(&late).late_ticks, Some(75));
    late.rtxe = true;
    assert_eq!(b.take(&late).late_ticks, None, "a repair is late by nature");
}

#[test]
fn marks_count_across_the_wrap_of_their_counter_and_never_backwards() {
    let mut b = Bench::warm(0);
    let mut marks = 0;
    for ce_cnt in [30_000u16, 60_000, 65_535, 65_535, 3, 2] {
        b.send(1);
        b.now = b.now.after_ps(20 * US);
        let info = AckInfo { ce_cnt, ..b.info(0, &[], 20 * US) };
        marks += b.take(&info).ce_pkts;
    }
    assert_eq!(marks, 65_536 + 3);
}

#[test]
fn heavy_marking_makes_others_preferred_for_one_round_trip() {
    let mut b = Bench::warm(0);
    b.send(4);
    b.now = b.now.after_ps(10 * US);
    let info = AckInfo { ce_cnt: 4, ..b.info(3, &[], 10 * US) };
    b.take(&info);
    assert_eq!((b.path.state, b.path.is_skipped(b.now)), (PathState::Skip, true));
    assert!(b.path.is_open(&b.cfg), "only preferred, not closed");
    assert!(!b.path.is_skipped(b.now.after_ps(11 * US)));
    b.send(1);
    b.now = b.now.after_ps(20 * US);
    let info = AckInfo { ce_cnt: 4, ..b.info(0, &[], 10 * US) };
    b.take(&info);
    assert_eq!(b.path.state, PathState::Active);
}

#[test]
fn isolated_losses_leave_the_window_and_a_third_lost_cuts_it() {
    for (every, is_cut) in [(20, false), (3, true)] {
        let mut b = Bench::warm(0);
        b.path.cc.set_cwnd_q(90 << Q, 256);
        b.path.cc.aux[1] = 1;
        b.send(90);
        b.now = b.now.after_ps(10 * US);
        let una = b.path.window.una();
        let mut info = b.info(0, &[], US / 10);
        (info.cum, info.sack) = (una - 1, Bitmap::EMPTY);
        (0..90).filter(|i| i % every != 0).for_each(|i| info.sack.set(i));
        info.ts_echo = Ticks((b.now.0 / b.cfg.tick_ps) as u32 - 2500);
        b.take(&info);
        assert_eq!(b.path.cc.cwnd_pkts() < 80, is_cut, "every {every}th lost: {}", b.path.cc.cwnd_pkts());
    }
}

#[test]
fn a_saturated_residency_teaches_no_round_trip() {
    let mut b = Bench::warm(0);
    b.send(1);
    b.now = b.now.after_ps(5000 * US);
    let info = AckInfo { hold_ps: None, ..b.info(0, &[], 5000 * US) };
    let before = b.path.rtt;
    assert_eq!((b.take(&info).rtt_ps, b.path.rtt), (None, before));
}

#[test]
fn residency_is_taken_off_the_round_trip() {
    let mut b = Bench::warm(0);
    b.send(1);
    b.now = b.now.after_ps(15 * US);
    let info = AckInfo { hold_ps: Some(4 * US), ..b.info(0, &[], 15 * US) };
    assert_eq!(b.take(&info).rtt_ps.map(|r| r / 1_000_000), Some(11));
}

#[test]
fn a_reaimed_path_begins_anew_keeps_its_numbers_and_resends_what_the_old_route_lost() {
    let mut b = Bench::warm(0);
    b.send(5);
    let (una, nxt) = (b.path.window.una(), b.path.window.nxt());
    b.path.reaim(b.now, 3, 0xd000);
    assert_eq!((b.path.plane, b.path.sport, b.path.epoch), (3, 0xd000, 1));
    assert_eq!((b.path.window.una(), b.path.window.nxt(), b.path.state), (una, nxt, PathState::Bootstrap));
    assert_eq!((b.path.cc.cwnd_pkts(), b.path.rtt.srtt_ps()), (1, None));
    assert_eq!(b.path.send_retransmit(b.now, &b.cfg).map(|r| r.0), Some(una), "the oldest tries the new route");
    b.now = b.now.after_ps(10 * US);
    let outcome = b.ack(0, &[], 10 * US);
    assert_eq!((outcome.acked_pkts, outcome.lost_pkts, b.path.state), (1, 0, PathState::Active));
    // One round trip later the rest is known to have gone down with the old route.
    b.send(1);
    b.now = b.now.after_ps(10 * US);
    let mut info = b.info(0, &[], 10 * US);
    (info.cum, info.trig) = (b.path.window.una() - 1, b.path.window.nxt() - 1);
    info.sack.set(4);
    assert_eq!(b.take(&info).lost_pkts, 4);
}

#[test]
fn the_epoch_wraps_at_sixteen() {
    let mut b = Bench::new(0);
    for i in 1..=20u8 {
        b.path.reaim(b.now, 0, 0xc000);
        assert_eq!(b.path.epoch, i & 15);
    }
    assert_eq!(b.path.failed_reaims(), 20);
}

#[test]
fn a_long_idle_path_falls_back_to_its_initial_window() {
    let mut b = Bench::warm(0);
    b.path.cc.set_cwnd_q(100 << Q, 256);
    b.now = b.now.after_ps(b.cfg.idle_restart_ps - 1000 * US);
    b.send(1);
    assert_eq!(b.path.cc.cwnd_pkts(), 100);
    b.ack(0, &[], US / 10);
    b.now = b.now.after_ps(b.cfg.idle_restart_ps + US);
    b.send(1);
    assert_eq!(b.path.cc.cwnd_pkts(), b.cfg.path_init_pkts);
}

#[test]
fn a_parked_packet_waits_without_a_timer_until_it_is_resumed() {
    let mut b = Bench::warm(0);
    b.send(1);
    let psn = b.path.window.una();
    assert!(b.path.park(psn) && !b.path.park(psn));
    assert_eq!(b.path.deadline(None, &b.cfg), Time::NEVER);
    b.send(1);
    assert!(b.path.deadline(None, &b.cfg) < Time::NEVER, "the other one");
    b.path.resume(b.now, psn);
    assert_eq!(b.path.send_retransmit(b.now, &b.cfg).map(|r| (r.0, r.2)), Some((psn, Cause::Timer)));
    assert!(!b.path.park(Psn::new(999)), "not outstanding");
}

#[test]
fn every_algorithm_stays_within_one_packet_and_the_cap() {
    let algorithms: [&dyn CongestionControl; 2] = [&Dctcp::default(), &nic_model::transport::cc::Delay::default()];
    for cc in algorithms {
        let mut path = nic_model::transport::cc::PathCc::new();
        let mut seed = 1u64;
        for i in 0..10_000u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let acked_pkts = (seed >> 33) as u32 % 300;
            let ce_pkts = if seed >> 62 == 0 { acked_pkts / 2 } else { 0 };
            let rtt_ps = 10 * US + (seed >> 40);
            let sample = nic_model::transport::cc::AckSample {
                now: Time(i * US),
                acked_pkts,
                ce_pkts,
                rtt_ps,
                srtt_ps: 11 * US,
                min_rtt_ps: 10 * US,
                may_grow: seed >> 61 != 1,
            };
            cc.on_ack(&mut path, &sample);
            match seed >> 54 & 63 {
                0 => cc.on_rto(&mut path, Time(i * US)),
                1 => cc.on_heavy_loss(&mut path, Time(i * US), 11 * US),
                _ => {}
            }
            assert!((1..=256).contains(&path.cwnd_pkts()), "{} at step {i}", cc.name());
        }
    }
}
