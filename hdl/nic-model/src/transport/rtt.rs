//! Round-trip estimate of one path: SRTT and RTTVAR as in RFC 6298, and the minimum of a recent period.
//!
//! A sample is the echo of the packet's own clock less the receiver's residency, so retransmissions give samples too.

use crate::time::Time;

/// Filter state of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Rtt {
    /// Smoothed round trip, ps; 0 before the first sample.
    srtt_ps: u64,
    /// Mean deviation, ps.
    var_ps: u64,
    /// Smallest sample of this period, ps.
    min_now_ps: u64,
    /// Smallest sample of the period before, ps.
    min_last_ps: u64,
    /// When this period began.
    period_start: Time,
}

impl Rtt {
    /// Takes a sample; `period_ps` is how long a minimum is remembered (at least that, at most twice).
    pub fn sample(&mut self, now: Time, rtt_ps: u64, period_ps: u64) {
        if self.srtt_ps == 0 {
            *self = Self {
                srtt_ps: rtt_ps.max(1),
                var_ps: rtt_ps / 2,
                min_now_ps: rtt_ps,
                min_last_ps: rtt_ps,
                period_start: now,
            };
            return;
        }
        let off = self.srtt_ps.abs_diff(rtt_ps);
        self.var_ps = self.var_ps - self.var_ps / 4 + off / 4;
        self.srtt_ps = (self.srtt_ps - self.srtt_ps / 8 + rtt_ps / 8).max(1);
        if now.since_ps(self.period_start) > period_ps {
            self.min_last_ps = self.min_now_ps;
            self.min_now_ps = rtt_ps;
            self.period_start = now;
        }
        self.min_now_ps = self.min_now_ps.min(rtt_ps);
    }

    /// Smoothed round trip, ps, or `None` before the first sample.
    pub const fn srtt_ps(&self) -> Option<u64> {
        if self.srtt_ps == 0 {
            None
        } else {
            Some(self.srtt_ps)
        }
    }

    /// Smallest round trip of this and the last period, ps, or `None` before the first sample.
    pub fn min_ps(&self) -> Option<u64> {
        (self.srtt_ps != 0).then(|| self.min_now_ps.min(self.min_last_ps))
    }

    /// SRTT + 4·RTTVAR, ps, or `None` before the first sample.
    pub fn rto_ps(&self) -> Option<u64> {
        (self.srtt_ps != 0).then(|| self.srtt_ps + 4 * self.var_ps)
    }

    /// SRTT and 4·RTTVAR, ps, or `None` before the first sample.
    #[inline]
    pub const fn srtt_and_jitter_ps(&self) -> Option<(u64, u64)> {
        if self.srtt_ps == 0 {
            None
        } else {
            Some((self.srtt_ps, 4 * self.var_ps))
        }
    }

    /// Forgets everything: the path was re-aimed.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_round_trip_is_learnt_and_its_deviation_dies_out() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.srtt_ps(), rtt.min_ps(), rtt.rto_ps()), (None, None, None));
        for i in 0..100 {
            rtt.sample(Time(i * 1_000_000), 10_000_000, 10_000_000_000);
        }
        assert_eq!(rtt.srtt_ps(), Some(10_000_000));
        assert!(rtt.rto_ps().unwrap_or(0) < 10_100_000, "{rtt:?}");
    }

    #[test]
    fn the_minimum_is_forgotten_after_two_periods() {
        let mut rtt = Rtt::default();
        rtt.sample(Time(0), 5, 100);
        for t in (10..500).step_by(10) {
            rtt.sample(Time(t), 9, 100);
            if t <= 100 {
                assert_eq!(rtt.min_ps(), Some(5));
            }
        }
        assert_eq!(rtt.min_ps(), Some(9));
    }
}
