//! Whether a path's route is a crowded one: the part of its packets that came marked.
//!
//! Where many flows hash onto few links, some links carry more than others for as long as the flows last. Windows bring
//! the load of such a link down to what it carries, at the cost of a standing queue there and of idle links elsewhere;
//! another source port brings the path to another link. A path changes its port only while nothing is outstanding on it,
//! when that costs nothing: no packet can overtake another one, and no acknowledgement of the old route is awaited.

/// Packets by the present route, and how many of them were marked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteMarks {
    pkts: u16,
    marked: u16,
}

/// Older packets count half when so many times what a judgement takes have been seen.
const MEMORY: u32 = 8;

impl RouteMarks {
    /// An acknowledgement told of so many packets, and of so many that were marked. `enough_pkts` as for
    /// [`is_crowded`](Self::is_crowded).
    #[inline]
    pub fn note(&mut self, acked_pkts: u32, ce_pkts: u32, enough_pkts: u32) {
        // A path tells of 256 packets at most; the sums stay below 2^16 whatever is configured.
        let most_pkts = MEMORY.saturating_mul(enough_pkts).min(1 << 15);
        self.pkts = self.pkts.saturating_add(acked_pkts.min(256) as u16);
        self.marked = self.marked.saturating_add(ce_pkts.min(256) as u16);
        while u32::from(self.pkts) > most_pkts {
            (self.pkts, self.marked) = (self.pkts / 2, self.marked / 2);
        }
    }

    /// True when of `enough_pkts` packets at least the part `crowded_q8` (1/256) was marked. What was judged counts no more.
    pub fn is_crowded(&mut self, enough_pkts: u32, crowded_q8: u32) -> bool {
        if u32::from(self.pkts) < enough_pkts {
            return false;
        }
        let (pkts, marked) = (u32::from(self.pkts), u32::from(self.marked));
        *self = Self::default();
        marked * 256 >= pkts * crowded_q8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_eight_packets_is_crowded_and_less_or_fewer_is_not() {
        for (pkts, marked, crowded) in [(8, 2, true), (8, 1, false), (7, 7, false), (40, 10, true), (40, 9, false)] {
            let mut marks = RouteMarks::default();
            (0..pkts).for_each(|i| marks.note(1, u32::from(i < marked), 8));
            assert_eq!(marks.is_crowded(8, 64), crowded, "{marked} of {pkts}");
        }
    }

    #[test]
    fn each_judgement_is_made_of_new_packets() {
        let mut marks = RouteMarks::default();
        marks.note(8, 8, 8);
        assert!(marks.is_crowded(8, 64) && !marks.is_crowded(8, 64));
        marks.note(8, 0, 8);
        assert!(!marks.is_crowded(8, 64), "the marks before do not count");
    }

    #[test]
    fn what_was_long_ago_counts_little_and_no_setting_overflows() {
        let mut marks = RouteMarks::default();
        (0..1_000).for_each(|_| marks.note(4, 4, 8));
        (0..40).for_each(|_| marks.note(4, 0, 8));
        assert!(!marks.is_crowded(8, 64));
        for enough_pkts in [1, 65_536, u32::MAX] {
            (0..1_000).for_each(|_| marks.note(u32::MAX, u32::MAX, enough_pkts));
            marks.is_crowded(enough_pkts, 256);
        }
    }
}
