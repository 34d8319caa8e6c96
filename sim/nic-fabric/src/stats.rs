//! What happened to every frame, by named cause.
//!
//! Conservation holds at every moment between calls of [`crate::Fabric::advance`]:
//! `sent + duplicated = delivered + dropped + in flight`.

use std::fmt;

/// Why a frame did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum DropCause {
    /// The queue of an egress port had no room.
    BufferFull,
    /// The link was down, or went down while the frame was queued or in flight.
    LinkDown,
    /// No host owns the destination address.
    UnknownDestination,
    /// The switch has no way to the destination host.
    NoRoute,
    /// A Bernoulli loss rule.
    Loss,
    /// A burst loss rule.
    BurstLoss,
    /// A rule that drops the n-th matching frame.
    Nth,
    /// A rule given as a function.
    Custom,
    /// A bit was damaged and the FCS check at the end of the link found it.
    FcsError,
    /// A lossless class ran out of its headroom.
    HeadroomExceeded,
}

impl DropCause {
    /// Every cause, in the order of their counters.
    pub const ALL: [DropCause; 10] = [
        DropCause::BufferFull,
        DropCause::LinkDown,
        DropCause::UnknownDestination,
        DropCause::NoRoute,
        DropCause::Loss,
        DropCause::BurstLoss,
        DropCause::Nth,
        DropCause::Custom,
        DropCause::FcsError,
        DropCause::HeadroomExceeded,
    ];

    /// Name of its counter.
    pub fn name(self) -> &'static str {
        match self {
            DropCause::BufferFull => "buffer_full",
            DropCause::LinkDown => "link_down",
            DropCause::UnknownDestination => "unknown_destination",
            DropCause::NoRoute => "no_route",
            DropCause::Loss => "loss",
            DropCause::BurstLoss => "burst_loss",
            DropCause::Nth => "nth",
            DropCause::Custom => "custom",
            DropCause::FcsError => "fcs_error",
            DropCause::HeadroomExceeded => "headroom_exceeded",
        }
    }
}

/// Frames dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropCause::ALL.len()]);

impl Drops {
    /// Frames dropped for this cause.
    pub fn count(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }

    /// Frames dropped for any cause.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Causes that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> + '_ {
        DropCause::ALL.into_iter().map(|cause| (cause, self.count(cause))).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn add(&mut self, cause: DropCause, count: u64) {
        self.0[cause as usize] += count;
    }

    pub(crate) fn merge(&mut self, other: &Drops) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }
}

impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (cause, count) in self.iter() {
            write!(f, "{separator}{} {count}", cause.name())?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Counters of the whole fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricStats {
    /// Frames that nodes sent and drivers injected.
    pub sent: u64,
    /// Copies made by duplication rules.
    pub duplicated: u64,
    /// Frames that reached a host.
    pub delivered: u64,
    /// Frames that did not.
    pub drops: Drops,
    /// Frames queued or on a link now.
    pub in_flight: u64,
    /// Frames marked CE.
    pub ecn_marked: u64,
    /// Frames put on a link; a frame over h links counts h times.
    pub link_hops: u64,
    /// Events processed.
    pub events: u64,
    /// Bytes of frames delivered, without wire overhead.
    pub delivered_bytes: u64,
    /// Pause requests sent upstream by lossless queues.
    pub pauses: u64,
}

impl FabricStats {
    pub(crate) fn merge(&mut self, other: &FabricStats) {
        self.sent += other.sent;
        self.duplicated += other.duplicated;
        self.delivered += other.delivered;
        self.drops.merge(&other.drops);
        self.in_flight += other.in_flight;
        self.ecn_marked += other.ecn_marked;
        self.link_hops += other.link_hops;
        self.events += other.events;
        self.delivered_bytes += other.delivered_bytes;
        self.pauses += other.pauses;
    }
}

/// Counters of one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames the queue accepted.
    pub frames: u64,
    /// Line time of these in bytes, with wire overhead.
    pub wire_bytes: u64,
    /// Frames this link's queue marked CE.
    pub ecn_marked: u64,
    /// Deepest backlog met by an arriving frame, in bytes of line time.
    pub backlog_bytes_max: u64,
    /// Frames lost on this link or refused by its queue.
    pub drops: Drops,
}
