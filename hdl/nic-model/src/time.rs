//! Model time in picoseconds, and the 32-bit tick clock that packets carry.

/// A moment, picoseconds since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// One nanosecond in picoseconds.
pub const NS_PS: u64 = 1_000;
/// One microsecond in picoseconds.
pub const US_PS: u64 = 1_000_000;
/// One millisecond in picoseconds.
pub const MS_PS: u64 = 1_000_000_000;

impl Time {
    /// The start.
    pub const ZERO: Self = Self(0);
    /// Later than anything; used for "no deadline".
    pub const NEVER: Self = Self(u64::MAX);

    /// Picoseconds from `earlier` to `self`, 0 when `earlier` is later.
    pub const fn since_ps(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// `self` plus `span_ps`; never wraps.
    pub const fn after_ps(self, span_ps: u64) -> Self {
        Self(self.0.saturating_add(span_ps))
    }

    /// The wire's clock at this moment: ticks of `tick_ps`, modulo 2^32.
    pub const fn ticks(self, tick_ps: u64) -> Ticks {
        Ticks((self.0 / tick_ps) as u32)
    }
}

/// The sender's free-running clock as carried in PXTH, modulo 2^32; opaque to the peer. No `Ord`: it wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ticks(pub u32);

impl Ticks {
    /// Ticks from `earlier` to `self`, modulo 2^32.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// True when `self` lies ahead of `earlier` by more than `margin` ticks (and less than half the circle).
    pub const fn is_after_by(self, earlier: Self, margin: u32) -> bool {
        let ahead = self.since(earlier);
        ahead > margin && ahead < 1 << 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_compare_across_the_wrap() {
        assert!(Ticks(3).is_after_by(Ticks(u32::MAX - 2), 0));
        assert!(!Ticks(u32::MAX - 2).is_after_by(Ticks(3), 0));
        assert!(!Ticks(7).is_after_by(Ticks(7), 0));
        assert!(!Ticks(12).is_after_by(Ticks(7), 5) && Ticks(13).is_after_by(Ticks(7), 5));
    }

    #[test]
    fn never_stays_never() {
        assert_eq!(Time::NEVER.after_ps(5), Time::NEVER);
        assert_eq!(Time(5).since_ps(Time(9)), 0);
    }
}
