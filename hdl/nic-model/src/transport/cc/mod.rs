//! Congestion control of one path behind one small interface, so that an algorithm of one's own is one file.
//!
//! The path hands every acknowledgement's facts to the algorithm and asks for a window in packets. What holds for every
//! algorithm stays outside: the connection window, the rate hint, the clamp to 1..=256, one packet per path until the
//! first acknowledgement, and that an isolated loss is not congestion.

mod dctcp;
mod delay;

pub use dctcp::Dctcp;
pub use delay::Delay;

use crate::time::Time;

/// Fixed point of windows: 8 fractional bits.
pub const Q: u32 = 8;

/// What one acknowledgement says about its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSample {
    /// When it arrived.
    pub now: Time,
    /// Packets newly acknowledged.
    pub acked_pkts: u32,
    /// Of the packets the receiver took since the last acknowledgement, those marked CE.
    pub ce_pkts: u32,
    /// Round trip of the packet that triggered it, receiver residency taken off, ps.
    pub rtt_ps: u64,
    /// Smoothed round trip, ps.
    pub srtt_ps: u64,
    /// Smallest round trip remembered, ps.
    pub min_rtt_ps: u64,
    /// False when the connection as a whole may not grow (its window is at its limit or was not used).
    pub may_grow: bool,
}

/// Congestion state of one path; algorithms use `aux` as they like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PathCc {
    /// Congestion window, packets with [`Q`] fractional bits, 1..=256 packets.
    pub cwnd_q: u32,
    /// The algorithm's own memory.
    pub aux: [u32; 2],
    /// When the window was last cut.
    pub last_cut: Time,
}

impl PathCc {
    /// One packet, until the first acknowledgement.
    pub const fn new() -> Self {
        Self { cwnd_q: 1 << Q, last_cut: Time::ZERO, aux: [0; 2] }
    }

    /// Whole packets that may be in flight, at least 1.
    pub const fn cwnd_pkts(&self) -> u32 {
        let pkts = self.cwnd_q >> Q;
        if pkts == 0 {
            1
        } else {
            pkts
        }
    }

    /// Sets the window, clamped to 1..=`cap_pkts`.
    pub fn set_cwnd_q(&mut self, cwnd_q: u32, cap_pkts: u32) {
        self.cwnd_q = cwnd_q.clamp(1 << Q, cap_pkts << Q);
    }
}

impl Default for PathCc {
    fn default() -> Self {
        Self::new()
    }
}

/// A congestion control algorithm; stateless, the state is in [`PathCc`].
pub trait CongestionControl: core::fmt::Debug + Send + Sync {
    /// Name as plans and reports write it.
    fn name(&self) -> &'static str;
    /// An acknowledgement arrived. True when the path was marked so heavily that new packets should go elsewhere for one
    /// round trip.
    fn on_ack(&self, path: &mut PathCc, sample: &AckSample) -> bool;
    /// More than the tolerated fraction of a window was lost.
    fn on_heavy_loss(&self, path: &mut PathCc, now: Time, srtt_ps: u64);
    /// The retransmission timer expired.
    fn on_rto(&self, path: &mut PathCc, now: Time);
}

/// Halves the window, at most once per smoothed round trip.
fn halve_once_per_rtt(path: &mut PathCc, now: Time, srtt_ps: u64, cap_pkts: u32) {
    if now.since_ps(path.last_cut) >= srtt_ps {
        path.set_cwnd_q(path.cwnd_q / 2, cap_pkts);
        path.last_cut = now;
    }
}
