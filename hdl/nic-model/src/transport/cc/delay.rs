//! An alternative that needs no marking: a target delay over the smallest round trip, in the manner of Swift and NSCC.
//!
//! Below the target the window grows by one packet per round trip; above it the window shrinks in proportion to the
//! excess, at most by half and at most once per smoothed round trip. A CE mark counts as twice the target.

use super::{halve_once_per_rtt, AckSample, CongestionControl, PathCc, Q};
use crate::time::Time;

/// Parameters.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// Tolerated queueing delay, as a fraction of the smallest round trip in 1/256.
    pub target_of_min_q8: u32,
    /// Largest window of a path, packets.
    pub cap_pkts: u32,
}

impl Default for Delay {
    fn default() -> Self {
        Self { target_of_min_q8: 128, cap_pkts: super::super::bitmap::BITS }
    }
}

impl CongestionControl for Delay {
    fn name(&self) -> &'static str {
        "delay"
    }

    fn on_ack(&self, path: &mut PathCc, s: &AckSample) -> bool {
        let target_ps = ((s.min_rtt_ps * u64::from(self.target_of_min_q8)) >> 8).max(1);
        let measured_ps = s.rtt_ps.saturating_sub(s.min_rtt_ps);
        let delay_ps = if s.ce_pkts > 0 { measured_ps.max(2 * target_ps) } else { measured_ps };
        if delay_ps <= target_ps {
            if s.may_grow && s.acked_pkts > 0 {
                let acked_q = (u64::from(s.acked_pkts) << Q).min(path.cwnd_q.into());
                let step = (acked_q << Q) / u64::from(path.cwnd_q);
                path.set_cwnd_q(path.cwnd_q + step as u32, self.cap_pkts);
            }
        } else if s.now.since_ps(path.last_cut) >= s.srtt_ps {
            // 4/5 of the relative excess, at most one half.
            let excess_ps = delay_ps - target_ps;
            let cut = (u128::from(path.cwnd_q) * u128::from(excess_ps) * 4 / (u128::from(delay_ps) * 5)) as u32;
            path.set_cwnd_q(path.cwnd_q - cut.min(path.cwnd_q / 2), self.cap_pkts);
            path.last_cut = s.now;
        }
        delay_ps > 4 * target_ps
    }

    fn on_heavy_loss(&self, path: &mut PathCc, now: Time, srtt_ps: u64) {
        halve_once_per_rtt(path, now, srtt_ps, self.cap_pkts);
    }

    fn on_rto(&self, path: &mut PathCc, now: Time) {
        path.set_cwnd_q(1 << Q, self.cap_pkts);
        path.last_cut = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(now_ps: u64, rtt_ps: u64, ce_pkts: u32) -> AckSample {
        AckSample { now: Time(now_ps), acked_pkts: 4, ce_pkts, rtt_ps, srtt_ps: 1000, min_rtt_ps: 1000, may_grow: true }
    }

    #[test]
    fn delay_below_the_target_grows_and_delay_above_it_shrinks() {
        let (cc, mut path) = (Delay::default(), PathCc { cwnd_q: 32 << Q, ..PathCc::new() });
        cc.on_ack(&mut path, &sample(5_000, 1_400, 0));
        assert!(path.cwnd_q > 32 << Q);
        let before = path.cwnd_q;
        cc.on_ack(&mut path, &sample(9_000, 3_000, 0));
        assert!(path.cwnd_q < before && path.cwnd_q >= before / 2);
        let once = path.cwnd_q;
        cc.on_ack(&mut path, &sample(9_500, 3_000, 0));
        assert_eq!(path.cwnd_q, once, "within the same round trip");
    }

    #[test]
    fn a_mark_counts_as_delay() {
        let (cc, mut path) = (Delay::default(), PathCc { cwnd_q: 32 << Q, ..PathCc::new() });
        cc.on_ack(&mut path, &sample(5_000, 1_000, 1));
        assert!(path.cwnd_q < 32 << Q);
    }
}
