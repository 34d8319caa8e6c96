//! Round-trip time and the retransmission timeout that follows it (RFC 6298, in integer picoseconds).

use crate::config::RoceConfig;

/// Smoothed round trip of a QP.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rtt {
    /// Smoothed time and its variation, eight and four times; none before the first measurement.
    state: Option<(u64, u64)>,
}

impl Rtt {
    /// A packet that was sent once was acknowledged after so long.
    pub(crate) fn measure(&mut self, rtt_ps: u64) {
        self.state = Some(match self.state {
            None => (rtt_ps * 8, rtt_ps * 2),
            Some((srtt8, var4)) => {
                let error_ps = rtt_ps.abs_diff(srtt8 / 8);
                (srtt8 - srtt8 / 8 + rtt_ps, var4 - var4 / 4 + error_ps)
            }
        });
    }

    /// The timeout after so many in a row.
    pub(crate) fn rto_ps(&self, config: &RoceConfig, expiries: u32) -> u64 {
        let base_ps = match self.state {
            None => config.rto_ps_initial,
            Some((srtt8, var4)) => srtt8 / 8 + var4,
        };
        let base_ps = base_ps.max(config.rto_ps_min);
        (base_ps << expiries.min(config.backoff_max.min(20))).min(config.rto_ps_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_the_round_trip_and_doubles_when_it_expires() {
        let config = RoceConfig::new(400_000);
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto_ps(&config, 0), config.rto_ps_initial);
        rtt.measure(200_000_000);
        assert_eq!(rtt.rto_ps(&config, 0), 600_000_000);
        (0..100).for_each(|_| rtt.measure(200_000_000));
        assert!(rtt.rto_ps(&config, 0) < 210_000_000);
        (0..200).for_each(|_| rtt.measure(5_000_000));
        assert_eq!(rtt.rto_ps(&config, 0), config.rto_ps_min);
        assert_eq!(rtt.rto_ps(&config, 3), 8 * config.rto_ps_min);
        assert_eq!(rtt.rto_ps(&config, 99), 8 * config.rto_ps_min);
        let config = RoceConfig { backoff_max: u32::MAX, ..config };
        assert_eq!(rtt.rto_ps(&config, 99), config.rto_ps_max);
    }
}
