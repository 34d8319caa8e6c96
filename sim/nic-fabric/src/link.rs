//! A link: one direction of a cable, with the egress queue in front of it.
//!
//! The queue is a virtual FIFO: a frame departs at `max(now, free_at) + serialisation`, and the backlog a frame meets,
//! `free_at - now` in line time, decides marking and dropping without an event of its own. Frames in flight wait at the
//! far end for the node there to come to them. Buffer and marking thresholds are bytes of
//! line time, that is frames with their 24 bytes of preamble, FCS and gap, the rest of the frame on the wire included.
//! A link with priority classes has a real queue instead; see [`crate::queue`].

use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

use crate::line::Line;
use crate::pcap::Capture;
use crate::queue::{ClassQueue, Ingress, Pfc, QueueSpec};
use crate::rule::RuleState;
use crate::seed::threshold_of_ppm;
use crate::stats::LinkStats;

/// Marking by queue depth, as RED does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecn {
    /// Backlog up to which nothing is marked. Bytes of line time.
    pub min_bytes: u64,
    /// Backlog above which everything is marked. Equal to `min_bytes` it is a step.
    pub max_bytes: u64,
    /// Marking probability just below `max_bytes`, parts per million.
    pub max_ppm: u32,
}

impl Ecn {
    /// Marks every ECN-capable frame that meets a backlog above the threshold.
    pub fn step(threshold_bytes: u64) -> Ecn {
        Ecn { min_bytes: threshold_bytes, max_bytes: threshold_bytes, max_ppm: 1_000_000 }
    }
}

/// A link, described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Line rate, megabits per second; 400 Gb/s is 400,000.
    pub rate_mbps: u64,
    /// Propagation delay, picoseconds. What a switch takes to forward is added here.
    pub delay_ps: u64,
    /// Room of the egress queue, bytes of line time; `u64::MAX` is no limit.
    pub buffer_bytes: u64,
    /// Marking, if any.
    pub ecn: Option<Ecn>,
    /// How frames wait.
    pub queue: QueueSpec,
    /// When the switch at the far end pauses this link; without it the link is lossy.
    pub pfc: Option<Pfc>,
}

impl LinkSpec {
    /// A link without limits and without marking.
    pub fn new(rate_mbps: u64, delay_ps: u64) -> LinkSpec {
        LinkSpec { rate_mbps, delay_ps, buffer_bytes: u64::MAX, ecn: None, queue: QueueSpec::VirtualFifo, pfc: None }
    }

    /// Sets the room of the egress queue.
    pub fn with_buffer_bytes(mut self, buffer_bytes: u64) -> LinkSpec {
        self.buffer_bytes = buffer_bytes;
        self
    }

    /// Sets marking.
    pub fn with_ecn(mut self, ecn: Ecn) -> LinkSpec {
        self.ecn = Some(ecn);
        self
    }

    /// Gives control frames a queue of their own, with this much room.
    pub fn with_classes(mut self, control_buffer_bytes: u64) -> LinkSpec {
        self.queue = QueueSpec::Classes { control_buffer_bytes };
        self
    }

    /// Lets the switch at the far end pause this link's data class.
    pub fn with_pfc(mut self, pfc: Pfc) -> LinkSpec {
        self.pfc = Some(pfc);
        self
    }

    /// The same without drop-tail and marking.
    pub fn without_limits(mut self) -> LinkSpec {
        self.buffer_bytes = u64::MAX;
        self.ecn = None;
        if let QueueSpec::Classes { control_buffer_bytes } = &mut self.queue {
            *control_buffer_bytes = u64::MAX;
        }
        self
    }

    /// Time a frame of so many wire bytes takes, rounded up to whole picoseconds.
    pub fn serialisation_ps(&self, wire_bytes: u64) -> u64 {
        (wire_bytes * PS_MBPS_PER_BYTE).div_ceil(self.rate_mbps)
    }
}

/// 8 bits a byte, 1e12 ps a second, 1e6 bit/s a Mb/s.
const PS_MBPS_PER_BYTE: u64 = 8_000_000;

/// The near end of a link: queue, line, what happens on the way. What each frame needs is the first cache line.
#[repr(C, align(64))]
pub(crate) struct TxLink {
    /// When the last accepted frame has left.
    pub free_at_ps: u64,
    pub delay_ps: u64,
    /// Limits in line time.
    buffer_ps: u64,
    ecn_min_ps: u64,
    pub backlog_max_ps: u64,
    wire_bytes: u64,
    frames: u64,
    /// Picoseconds a byte takes, where that is whole; else 0 and `rate_mbps` counts.
    ps_per_byte: u32,
    /// A frame that was admitted flies on: the link is up and has nothing that few links have.
    pub is_plain: bool,
    /// What few links have.
    pub extra: Option<Box<TxExtra>>,
    /// The real queue of a link with classes.
    pub queue: Option<Box<ClassQueue>>,
    /// Shard of the far end.
    pub to_shard: u16,
    /// Whether that is the shard of the near end too.
    is_inner: bool,
    is_down: bool,
    /// Counts failures; a frame that sees a different number at the far end was lost.
    pub epoch: u32,
    rate_mbps: u64,
    ecn_max_ps: u64,
    ecn_max_threshold: u64,
    ecn_rng: Option<Box<ChaCha8Rng>>,
    pub stats: LinkStats,
}

/// Rules and capture of a link.
#[derive(Default)]
pub(crate) struct TxExtra {
    pub rules: Vec<RuleState>,
    pub capture: Option<Capture>,
    /// Number of the next frame that leaves the order of the link.
    pub stray_number: u32,
}

/// What the queue says to a frame.
pub(crate) enum Admission {
    /// It has left by `departure_ps`.
    Accepted { departure_ps: u64, is_marked: bool },
    /// No room.
    Full,
}

impl TxLink {
    /// The near end of a link that goes from one shard to another, or stays in one.
    pub(crate) fn new(spec: &LinkSpec, shards: [u16; 2], ecn_rng: impl FnOnce() -> ChaCha8Rng) -> TxLink {
        let divides = PS_MBPS_PER_BYTE % spec.rate_mbps == 0;
        let line_ps = |bytes: u64| {
            let ps = u128::from(bytes) * u128::from(PS_MBPS_PER_BYTE) / u128::from(spec.rate_mbps);
            u64::try_from(ps).unwrap_or(u64::MAX)
        };
        let ecn = spec.ecn.unwrap_or(Ecn::step(u64::MAX));
        let mut link = TxLink {
            free_at_ps: 0,
            ps_per_byte: if divides { (PS_MBPS_PER_BYTE / spec.rate_mbps) as u32 } else { 0 },
            is_plain: false,
            rate_mbps: spec.rate_mbps,
            delay_ps: spec.delay_ps,
            buffer_ps: line_ps(spec.buffer_bytes),
            ecn_min_ps: line_ps(ecn.min_bytes),
            ecn_max_ps: line_ps(ecn.max_bytes),
            ecn_max_threshold: threshold_of_ppm(ecn.max_ppm),
            backlog_max_ps: 0,
            to_shard: shards[1],
            is_inner: shards[0] == shards[1],
            is_down: false,
            epoch: 0,
            frames: 0,
            wire_bytes: 0,
            stats: LinkStats::default(),
            extra: None,
            queue: ClassQueue::of(spec).map(Box::new),
            ecn_rng: (ecn.min_bytes < ecn.max_bytes).then(|| Box::new(ecn_rng())),
        };
        link.settle();
        link
    }

    /// Brings `is_plain` up to date.
    fn settle(&mut self) {
        self.is_plain = self.is_inner && !self.is_down && self.extra.is_none() && self.queue.is_none();
    }

    pub(crate) fn extra_mut(&mut self) -> &mut TxExtra {
        self.is_plain = false;
        self.extra.get_or_insert_with(Box::default)
    }

    pub(crate) fn is_down(&self) -> bool {
        self.is_down
    }

    pub(crate) fn set_down(&mut self, is_down: bool) {
        self.is_down = is_down;
        self.settle();
    }

    /// Time on the line.
    #[inline]
    pub(crate) fn serialisation_ps(&self, wire_bytes: u32) -> u64 {
        self.line_ps(u64::from(wire_bytes))
    }

    /// Offers a frame to the virtual FIFO at `now_ps`.
    #[inline]
    pub(crate) fn admit(&mut self, now_ps: u64, wire_bytes: u32, is_markable: bool) -> Admission {
        let start_ps = self.free_at_ps.max(now_ps);
        let backlog_ps = start_ps - now_ps;
        let serialisation_ps = self.serialisation_ps(wire_bytes);
        if backlog_ps + serialisation_ps > self.buffer_ps {
            return Admission::Full;
        }
        self.backlog_max_ps = self.backlog_max_ps.max(backlog_ps);
        self.free_at_ps = start_ps + serialisation_ps;
        self.count(wire_bytes);
        let is_marked = is_markable && self.draw_mark(backlog_ps);
        Admission::Accepted { departure_ps: self.free_at_ps, is_marked }
    }

    #[inline]
    pub(crate) fn count(&mut self, wire_bytes: u32) {
        self.frames += 1;
        self.wire_bytes += u64::from(wire_bytes);
    }

    /// Whether a markable frame that meets this backlog is marked.
    #[inline]
    pub(crate) fn draw_mark(&mut self, backlog_ps: u64) -> bool {
        backlog_ps > self.ecn_min_ps && self.draw_mark_above_min(backlog_ps)
    }

    fn draw_mark_above_min(&mut self, backlog_ps: u64) -> bool {
        if backlog_ps > self.ecn_max_ps {
            return true;
        }
        let Some(rng) = &mut self.ecn_rng else { return false };
        let span = u128::from(self.ecn_max_ps - self.ecn_min_ps);
        let threshold = u128::from(self.ecn_max_threshold) * u128::from(backlog_ps - self.ecn_min_ps) / span;
        u128::from(rng.next_u32()) < threshold
    }

    /// Line time of everything that waits here.
    #[inline]
    pub(crate) fn backlog_ps(&self, now_ps: u64) -> u64 {
        let rest_ps = self.free_at_ps.saturating_sub(now_ps);
        self.queue.as_ref().map_or(rest_ps, |queue| rest_ps + self.line_ps(queue.waiting_bytes()))
    }

    /// Line time of so many bytes.
    #[inline]
    pub(crate) fn line_ps(&self, bytes: u64) -> u64 {
        if self.ps_per_byte != 0 {
            bytes * u64::from(self.ps_per_byte)
        } else {
            (bytes * PS_MBPS_PER_BYTE).div_ceil(self.rate_mbps)
        }
    }

    /// Bytes of line time that this much of it holds.
    pub(crate) fn bytes_in(&self, line_ps: u64) -> u64 {
        (u128::from(line_ps) * u128::from(self.rate_mbps) / u128::from(PS_MBPS_PER_BYTE)) as u64
    }

    /// Counters so far.
    pub(crate) fn stats(&self) -> LinkStats {
        LinkStats {
            frames: self.frames,
            wire_bytes: self.wire_bytes,
            backlog_bytes_max: self.bytes_in(self.backlog_max_ps),
            ..self.stats
        }
    }
}

/// The far end of a link; a cache line.
#[repr(align(64))]
pub(crate) struct RxLink {
    /// Frames on the way, in the order of their arrival.
    pub line: Line,
    /// Node at the far end.
    pub node: u32,
    /// Its port.
    pub port: u16,
    /// As `TxLink::epoch`, seen from here.
    pub epoch: u32,
    pub capture: Option<Box<Capture>>,
    /// What the switch here holds of this link's frames, if it may pause the link.
    pub ingress: Option<Box<Ingress>>,
}

impl RxLink {
    /// An empty far end.
    pub(crate) fn new(node: u32, port: u16, pfc: Option<Pfc>) -> RxLink {
        let ingress = pfc.map(|pfc| Box::new(Ingress::new(pfc)));
        RxLink { line: Line::default(), node, port, epoch: 0, capture: None, ingress }
    }
}

const _: () = assert!(std::mem::size_of::<RxLink>() == 64);
const _: () = assert!(std::mem::offset_of!(TxLink, extra) == 64, "what each frame needs is one cache line");

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::SeedableRng;

    fn tx(spec: &LinkSpec) -> TxLink {
        TxLink::new(spec, [0, 0], || ChaCha8Rng::seed_from_u64(1))
    }

    fn departure(link: &mut TxLink, now_ps: u64, wire_bytes: u32) -> Option<(u64, bool)> {
        match link.admit(now_ps, wire_bytes, true) {
            Admission::Accepted { departure_ps, is_marked } => Some((departure_ps, is_marked)),
            Admission::Full => None,
        }
    }

    #[test]
    fn serialisation_is_exact_where_the_rate_divides_and_rounded_up_where_not() {
        for (rate_mbps, wire_bytes, expected_ps) in
            [(400_000, 4202, 84_040), (100_000, 84, 6_720), (25_000, 1, 320), (3_000, 1, 2_667), (7_000, 7, 8_000)]
        {
            let spec = LinkSpec::new(rate_mbps, 0);
            assert_eq!(tx(&spec).serialisation_ps(wire_bytes), expected_ps, "{rate_mbps} Mb/s");
            assert_eq!(spec.serialisation_ps(wire_bytes.into()), expected_ps);
        }
    }

    #[test]
    fn frames_queue_behind_each_other() {
        let mut link = tx(&LinkSpec::new(400_000, 0));
        assert_eq!(departure(&mut link, 1_000, 100), Some((3_000, false)));
        assert_eq!(departure(&mut link, 1_500, 100), Some((5_000, false)));
        assert_eq!(departure(&mut link, 9_000, 100), Some((11_000, false)));
    }

    #[test]
    fn buffer_takes_frames_up_to_its_last_byte() {
        let mut link = tx(&LinkSpec::new(400_000, 0).with_buffer_bytes(250));
        assert!(departure(&mut link, 0, 100).is_some());
        assert!(departure(&mut link, 0, 100).is_some());
        assert!(departure(&mut link, 0, 51).is_none());
        assert!(departure(&mut link, 0, 50).is_some());
        assert!(departure(&mut link, 19, 1).is_none());
        assert!(departure(&mut link, 20, 1).is_some());
        assert_eq!(link.stats().backlog_bytes_max, 249);
    }

    #[test]
    fn step_marks_above_the_threshold_only() {
        let mut link = tx(&LinkSpec::new(400_000, 0).with_ecn(Ecn::step(100)));
        assert_eq!(departure(&mut link, 0, 100), Some((2_000, false)));
        assert_eq!(departure(&mut link, 0, 100), Some((4_000, false)));
        assert_eq!(departure(&mut link, 0, 100), Some((6_000, true)));
    }

    #[test]
    fn marking_rises_linearly_between_the_thresholds() {
        let mut link = tx(&LinkSpec::new(400_000, 0).with_ecn(Ecn { min_bytes: 0, max_bytes: 1000, max_ppm: 500_000 }));
        for (backlog_bytes, expected) in [(200, 1_000), (600, 3_000), (1_000, 5_000), (1_001, 10_000)] {
            let marked = (0..10_000).filter(|_| link.draw_mark(backlog_bytes * 20)).count();
            assert!(marked.abs_diff(expected) < 200, "{marked} of 10000 marked at {backlog_bytes} bytes");
        }
    }
}
