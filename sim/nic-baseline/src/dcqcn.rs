//! DCQCN, the sender's side: a rate that CNPs cut and that time and bytes raise again.
//!
//! After "Congestion Control for Large-Scale RDMA Deployments" (Zhu et al., SIGCOMM 2015), section 3 and figure 7. A cut is by
//! alpha/2, where alpha estimates how often packets are marked; the rate then goes half of the way back to where it was,
//! five times (fast recovery), then the goal itself rises, slowly or, when both the timer and the byte counter have passed
//! five rounds, ever faster. Timers are evaluated when someone looks, so a QP costs no events.

use nic_fabric::PS_PER_US;

/// Alpha of 1.
const ALPHA_ONE: u64 = 1 << 20;

/// Parameters of the reaction point. Rates in kilobits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnConfig {
    /// Rate of the port, at which a QP starts.
    pub line_rate_kbps: u64,
    /// Least rate. The paper has none; a hundredth of a percent of the line, so that a QP can still find out.
    pub rate_kbps_min: u64,
    /// Weight of a mark in alpha as a right shift; the paper's g is 1/256.
    pub g_shift: u32,
    /// Time without a CNP after which alpha falls, picoseconds; 55 us in the paper.
    pub alpha_timer_ps: u64,
    /// Time between two increases, picoseconds; 55 us in the paper.
    pub increase_timer_ps: u64,
    /// Bytes between two increases; 10 MB in the paper.
    pub byte_counter: u64,
    /// Rounds of fast recovery; 5 in the paper.
    pub fast_recovery_rounds: u32,
    /// Additive increase; 40 Mb/s at 40 Gb/s in the paper, so a thousandth of the line.
    pub rate_ai_kbps: u64,
    /// Hyper increase. The paper gives no value; ten times the additive one.
    pub rate_hai_kbps: u64,
}

impl DcqcnConfig {
    /// The paper's values, rates scaled to this line.
    pub fn new(line_rate_mbps: u64) -> DcqcnConfig {
        let line_rate_kbps = line_rate_mbps * 1_000;
        DcqcnConfig {
            line_rate_kbps,
            rate_kbps_min: line_rate_kbps / 10_000,
            g_shift: 8,
            alpha_timer_ps: 55 * PS_PER_US,
            increase_timer_ps: 55 * PS_PER_US,
            byte_counter: 10_000_000,
            fast_recovery_rounds: 5,
            rate_ai_kbps: line_rate_kbps / 1_000,
            rate_hai_kbps: line_rate_kbps / 100,
        }
    }
}

/// The rate of one QP.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    config: DcqcnConfig,
    /// What a QP under rate control needs; none while it sends at line rate.
    limited: Option<Limited>,
    /// Cuts so far.
    cuts: u64,
}

#[derive(Clone, Debug)]
struct Limited {
    rate_kbps: u64,
    target_kbps: u64,
    alpha: u64,
    next_alpha_ps: u64,
    next_increase_ps: u64,
    bytes: u64,
    timer_rounds: u32,
    byte_rounds: u32,
}

impl Dcqcn {
    /// A QP that has seen no congestion.
    pub fn new(config: DcqcnConfig) -> Dcqcn {
        Dcqcn { config, limited: None, cuts: 0 }
    }

    /// A CNP came.
    pub fn on_cnp(&mut self, now_ps: u64) {
        self.advance(now_ps);
        self.cuts += 1;
        let config = &self.config;
        let fresh = Limited {
            rate_kbps: config.line_rate_kbps,
            target_kbps: config.line_rate_kbps,
            alpha: ALPHA_ONE,
            next_alpha_ps: 0,
            next_increase_ps: 0,
            bytes: 0,
            timer_rounds: 0,
            byte_rounds: 0,
        };
        let state = self.limited.get_or_insert(fresh);
        state.target_kbps = state.rate_kbps;
        let cut_kbps = (u128::from(state.rate_kbps) * u128::from(state.alpha) / u128::from(2 * ALPHA_ONE)) as u64;
        state.rate_kbps = (state.rate_kbps - cut_kbps).max(config.rate_kbps_min);
        state.alpha = state.alpha - (state.alpha >> config.g_shift) + (ALPHA_ONE >> config.g_shift);
        state.next_alpha_ps = now_ps + config.alpha_timer_ps;
        state.next_increase_ps = now_ps + config.increase_timer_ps;
        (state.bytes, state.timer_rounds, state.byte_rounds) = (0, 0, 0);
    }

    /// So many bytes were sent.
    pub fn on_sent(&mut self, bytes: u64, now_ps: u64) {
        self.advance(now_ps);
        let Some(state) = &mut self.limited else { return };
        state.bytes += bytes;
        if state.bytes >= self.config.byte_counter {
            state.bytes -= self.config.byte_counter;
            state.byte_rounds += 1;
            state.increase(&self.config);
            self.release();
        }
    }

    /// Rate now, kilobits per second.
    pub fn rate_kbps(&mut self, now_ps: u64) -> u64 {
        self.advance(now_ps);
        self.last_rate_kbps()
    }

    /// Rate when somebody last asked, kilobits per second.
    pub fn last_rate_kbps(&self) -> u64 {
        self.limited.as_ref().map_or(self.config.line_rate_kbps, |state| state.rate_kbps)
    }

    /// How often the rate was cut.
    pub fn cuts(&self) -> u64 {
        self.cuts
    }

    /// When a frame may follow one of so many wire bytes that was sent at `now_ps`; `now_ps` itself at line rate, where the
    /// port sets the pace.
    pub fn next_send_ps(&mut self, wire_bytes: u64, now_ps: u64) -> u64 {
        self.advance(now_ps);
        match &self.limited {
            Some(state) => now_ps + (wire_bytes * 8_000_000_000).div_ceil(state.rate_kbps),
            None => now_ps,
        }
    }

    /// Does what the timers would have done by now, in order.
    fn advance(&mut self, now_ps: u64) {
        while let Some(state) = &mut self.limited {
            let next_ps = state.next_alpha_ps.min(state.next_increase_ps);
            if next_ps > now_ps {
                break;
            }
            if next_ps == state.next_alpha_ps {
                state.alpha -= state.alpha >> self.config.g_shift;
                state.next_alpha_ps += self.config.alpha_timer_ps;
            } else {
                state.timer_rounds += 1;
                state.next_increase_ps += self.config.increase_timer_ps;
                state.increase(&self.config);
                self.release();
            }
        }
    }

    /// At line rate there is nothing to control; the next cut starts afresh.
    fn release(&mut self) {
        if self.limited.as_ref().is_some_and(|state| state.rate_kbps >= self.config.line_rate_kbps) {
            self.limited = None;
        }
    }
}

impl Limited {
    fn increase(&mut self, config: &DcqcnConfig) {
        let rounds = config.fast_recovery_rounds;
        let (least, most) = (self.timer_rounds.min(self.byte_rounds), self.timer_rounds.max(self.byte_rounds));
        if least > rounds {
            self.target_kbps += config.rate_hai_kbps * u64::from(least - rounds);
        } else if most >= rounds {
            self.target_kbps += config.rate_ai_kbps;
        }
        self.target_kbps = self.target_kbps.min(config.line_rate_kbps);
        // Rounded up, so that the line rate is reached.
        self.rate_kbps = (self.rate_kbps + self.target_kbps).div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = PS_PER_US;

    fn dcqcn() -> Dcqcn {
        Dcqcn::new(DcqcnConfig::new(400_000))
    }

    #[test]
    fn first_cut_halves_the_rate_and_fast_recovery_goes_half_the_way_back() {
        let mut rate = dcqcn();
        rate.on_cnp(0);
        let at = |rate: &mut Dcqcn, us: u64| rate.rate_kbps(us * US) / 1_000;
        assert_eq!(
            [0, 54, 55, 110, 165, 220].map(|us| at(&mut rate, us)),
            [200_000, 200_000, 300_000, 350_000, 375_000, 387_500]
        );
    }

    #[test]
    fn cut_depends_on_how_often_cnps_come() {
        // One CNP in 2 ms: alpha has fallen between, so the second cut is less than half.
        let mut rate = dcqcn();
        rate.on_cnp(0);
        let before = rate.rate_kbps(200 * US);
        rate.on_cnp(200 * US);
        let after = rate.rate_kbps(200 * US);
        assert!(after > before / 2 && after < before * 52 / 100, "{before} to {after}");
        assert_eq!(rate.cuts(), 2);
    }

    #[test]
    fn goal_rises_slowly_by_the_timer_and_fast_when_bytes_keep_up() {
        let after = |byte_rounds: u32| {
            let mut rate = dcqcn();
            // Down to about a tenth.
            (0..4).for_each(|_| rate.on_cnp(0));
            for round in 1..=12u64 {
                if round <= u64::from(byte_rounds) {
                    rate.on_sent(10_000_000, round * 55 * US);
                }
            }
            rate.rate_kbps(12 * 55 * US)
        };
        let (slow, fast) = (after(0), after(12));
        // Seven or eight steps of 0.4 Gb/s against steps of 4, 8, 12 ... Gb/s.
        assert!(slow > 49_000_000 && slow < 55_000_000, "{slow}");
        assert!(fast > slow + 20_000_000, "{fast} against {slow}");
    }

    #[test]
    fn line_rate_is_reached_and_ends_the_control() {
        let mut rate = dcqcn();
        rate.on_cnp(0);
        assert_eq!(rate.next_send_ps(4_200, 0), 4_200 * 8 * 5);
        assert_eq!(rate.rate_kbps(10_000_000 * US), 400_000_000);
        assert_eq!(rate.next_send_ps(4_200, 7), 7);
    }

    #[test]
    fn rate_never_falls_below_its_least() {
        let mut rate = dcqcn();
        (0..1_000).for_each(|_| rate.on_cnp(0));
        assert_eq!(rate.rate_kbps(0), 40_000);
    }
}
