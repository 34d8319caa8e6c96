//! The baseline: additive increase, decrease by the fraction of packets marked CE (RFC 8257), per path.
//!
//! α ← α + g·(f − α), g = 1/16. Unmarked: cwnd grows by one packet per round trip. Marked: at most once per smoothed
//! round trip cwnd ← cwnd·(1 − α/2), which is one half at full marking (RFC 3168). A path begins by doubling its window
//! each round trip until it is marked, is heavily lossy or its delay rises by a quarter, else a long path would need
//! hundreds of round trips to fill.

use super::{halve_once_per_rtt, AckSample, CongestionControl, PathCc, Q};
use crate::time::Time;

/// `aux[0]`: α. `aux[1]`: not 0 once the window stopped doubling.
const ALPHA: usize = 0;
const IS_SETTLED: usize = 1;
/// Fixed point of α: 16 fractional bits.
const ALPHA_ONE: u32 = 1 << 16;

/// Parameters.
#[derive(Clone, Copy, Debug)]
pub struct Dctcp {
    /// α's gain is 2^-`gain_shift`.
    pub gain_shift: u32,
    /// Largest window of a path, packets.
    pub cap_pkts: u32,
}

impl Default for Dctcp {
    fn default() -> Self {
        Self { gain_shift: nic_spec::consts::ALPHA_GAIN_SHIFT, cap_pkts: super::super::bitmap::BITS }
    }
}

impl CongestionControl for Dctcp {
    fn name(&self) -> &'static str {
        "dctcp"
    }

    fn on_ack(&self, path: &mut PathCc, s: &AckSample) -> bool {
        let fraction = if s.ce_pkts == 0 {
            0
        } else {
            (u64::from(s.ce_pkts) * u64::from(ALPHA_ONE) / u64::from(s.acked_pkts.max(s.ce_pkts))) as u32
        };
        let alpha = path.aux[ALPHA];
        path.aux[ALPHA] = alpha - (alpha >> self.gain_shift) + (fraction >> self.gain_shift);
        if s.ce_pkts > 0 || s.rtt_ps > s.min_rtt_ps + s.min_rtt_ps / 4 {
            path.aux[IS_SETTLED] = 1;
        }
        if s.ce_pkts == 0 {
            if s.may_grow && s.acked_pkts > 0 {
                // After a cut one acknowledgement may tell of more than the window is now.
                let acked_q = (u64::from(s.acked_pkts) << Q).min(path.cwnd_q.into());
                let step = if path.aux[IS_SETTLED] == 0 { acked_q } else { (acked_q << Q) / u64::from(path.cwnd_q) };
                path.set_cwnd_q(path.cwnd_q + step as u32, self.cap_pkts);
            }
        } else if s.now.since_ps(path.last_cut) >= s.srtt_ps {
            let cut = (u64::from(path.cwnd_q) * u64::from(path.aux[ALPHA]) / u64::from(2 * ALPHA_ONE)) as u32;
            path.set_cwnd_q(path.cwnd_q - cut, self.cap_pkts);
            path.last_cut = s.now;
        }
        fraction > ALPHA_ONE / 2
    }

    fn on_heavy_loss(&self, path: &mut PathCc, now: Time, srtt_ps: u64) {
        path.aux[IS_SETTLED] = 1;
        halve_once_per_rtt(path, now, srtt_ps, self.cap_pkts);
    }

    fn on_rto(&self, path: &mut PathCc, now: Time) {
        path.aux[IS_SETTLED] = 1;
        path.set_cwnd_q(1 << Q, self.cap_pkts);
        path.last_cut = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(now_ps: u64, acked_pkts: u32, ce_pkts: u32) -> AckSample {
        AckSample { now: Time(now_ps), acked_pkts, ce_pkts, rtt_ps: 10, srtt_ps: 10, min_rtt_ps: 10, may_grow: true }
    }

    #[test]
    fn an_unmarked_window_grows_by_one_packet_per_round_trip() {
        let (cc, mut path) = (Dctcp::default(), PathCc { aux: [0, 1], ..PathCc::new() });
        path.set_cwnd_q(8 << Q, 256);
        for _ in 0..8 {
            cc.on_ack(&mut path, &sample(0, 1, 0));
        }
        assert!((8 << Q) + 200 < path.cwnd_q && path.cwnd_q <= 9 << Q, "{}", path.cwnd_q);
    }

    #[test]
    fn full_marking_halves_at_most_once_per_round_trip_and_never_below_one_packet() {
        let (cc, mut path) = (Dctcp::default(), PathCc { cwnd_q: 64 << Q, last_cut: Time::ZERO, aux: [ALPHA_ONE, 0] });
        assert!(cc.on_ack(&mut path, &sample(100, 4, 4)));
        assert_eq!(path.cwnd_pkts(), 32);
        cc.on_ack(&mut path, &sample(105, 4, 4));
        assert_eq!(path.cwnd_pkts(), 32, "within the same round trip");
        for t in 0..40 {
            cc.on_ack(&mut path, &sample(200 + 20 * t, 4, 4));
        }
        assert_eq!(path.cwnd_pkts(), 1);
    }

    #[test]
    fn a_new_path_doubles_until_a_mark_or_a_rising_delay() {
        for ends_it in [AckSample { ce_pkts: 1, ..sample(9, 8, 0) }, AckSample { rtt_ps: 13, ..sample(9, 8, 0) }] {
            let (cc, mut path) = (Dctcp::default(), PathCc::new());
            path.set_cwnd_q(8 << Q, 256);
            cc.on_ack(&mut path, &sample(0, 8, 0));
            assert_eq!(path.cwnd_pkts(), 16);
            cc.on_ack(&mut path, &ends_it);
            let before = path.cwnd_pkts();
            cc.on_ack(&mut path, &sample(10, 8, 0));
            assert!(path.cwnd_pkts() <= before + 1);
        }
    }
}
