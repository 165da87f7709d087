//! Sliding sums of time over the window, in constant memory.
//!
//! An interval is spread over slots of a tenth of the window; the sum reads the slots that the window covers, the
//! oldest by the part that is still inside. However many intervals end within a window, the size stays the same.

/// Slots in a window.
const SLOTS: u64 = 10;

/// Kept slots: the window's, and the one that is leaving it.
const KEPT: usize = SLOTS as usize + 1;

/// Time summed over a sliding window, nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct SlidingSum {
    slot_ns: u64,
    newest: u64,
    sums_ns: [u64; KEPT],
}

impl SlidingSum {
    /// An empty sum over `window_ns`.
    pub(super) fn new(window_ns: u64) -> Self {
        Self {
            slot_ns: (window_ns / SLOTS).max(1),
            newest: 0,
            sums_ns: [0; KEPT],
        }
    }

    /// Adds the interval. What lies before the kept slots is dropped.
    pub(super) fn add(&mut self, begin_ns: u64, end_ns: u64) {
        if end_ns <= begin_ns {
            return;
        }
        let last = (end_ns - 1) / self.slot_ns;
        self.advance(last);
        let first = (begin_ns / self.slot_ns).max(self.oldest());
        for slot in first..=last {
            let low = begin_ns.max(slot.saturating_mul(self.slot_ns));
            let high = end_ns.min((slot + 1).saturating_mul(self.slot_ns));
            let sum_ns = &mut self.sums_ns[Self::index(slot)];
            *sum_ns = sum_ns.saturating_add(high.saturating_sub(low));
        }
    }

    /// Adds an amount that came up evenly over the interval; at its end if it has no length.
    pub(super) fn add_amount(&mut self, begin_ns: u64, end_ns: u64, amount: u64) {
        if amount == 0 {
            return;
        }
        let (begin_ns, end_ns) = if end_ns > begin_ns {
            (begin_ns, end_ns)
        } else {
            (end_ns.saturating_sub(1), end_ns.max(1))
        };
        let last = (end_ns - 1) / self.slot_ns;
        self.advance(last);
        let first = (begin_ns / self.slot_ns).max(self.oldest());
        for slot in first..=last {
            let low = begin_ns.max(slot.saturating_mul(self.slot_ns));
            let high = end_ns.min((slot + 1).saturating_mul(self.slot_ns));
            let part = scale(amount, high.saturating_sub(low), end_ns - begin_ns);
            let sum = &mut self.sums_ns[Self::index(slot)];
            *sum = sum.saturating_add(part);
        }
    }

    /// The time within the window that ends at `now_ns`.
    pub(super) fn sum_ns(&self, now_ns: u64) -> u64 {
        let from_ns = now_ns.saturating_sub(self.slot_ns * SLOTS);
        (self.oldest()..=self.newest)
            .map(|slot| {
                let (low, high) = (
                    slot.saturating_mul(self.slot_ns),
                    (slot + 1).saturating_mul(self.slot_ns),
                );
                let inside_ns = high.saturating_sub(low.max(from_ns));
                let sum_ns = self.sums_ns[Self::index(slot)];
                if inside_ns >= self.slot_ns {
                    sum_ns
                } else {
                    scale(sum_ns, inside_ns, self.slot_ns)
                }
            })
            .fold(0, u64::saturating_add)
    }

    fn oldest(&self) -> u64 {
        self.newest.saturating_sub(KEPT as u64 - 1)
    }

    fn advance(&mut self, slot: u64) {
        if slot <= self.newest {
            return;
        }
        let cleared = (slot - self.newest).min(KEPT as u64);
        for empty in slot + 1 - cleared..=slot {
            self.sums_ns[Self::index(empty)] = 0;
        }
        self.newest = slot;
    }

    fn index(slot: u64) -> usize {
        (slot % KEPT as u64) as usize
    }
}

/// `value` times `part` in `whole`.
pub(super) fn scale(value: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(part) / u128::from(whole)).unwrap_or(u64::MAX)
}

/// How much of `[begin_ns, now_ns]` lies within the window that ends at `now_ns`.
pub(super) fn within_ns(begin_ns: u64, now_ns: u64, window_ns: u64) -> u64 {
    now_ns.saturating_sub(begin_ns).min(window_ns)
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_interval_counts_as_long_as_the_window_covers_it() {
        let mut sum = SlidingSum::new(500 * MS);
        sum.add(1000 * MS, 1100 * MS);
        assert_eq!(sum.sum_ns(1100 * MS), 100 * MS);
        assert_eq!(sum.sum_ns(1500 * MS), 100 * MS);
        assert_eq!(sum.sum_ns(1550 * MS), 50 * MS);
        assert_eq!(sum.sum_ns(1600 * MS), 0);
    }

    #[test]
    fn intervals_add_up_and_a_late_one_still_counts() {
        let mut sum = SlidingSum::new(500 * MS);
        sum.add(1000 * MS, 1200 * MS);
        sum.add(900 * MS, 1000 * MS);
        assert_eq!(sum.sum_ns(1200 * MS), 300 * MS);
    }

    #[test]
    fn a_long_interval_counts_at_most_one_window() {
        let mut sum = SlidingSum::new(500 * MS);
        sum.add(0, 30_000 * MS);
        assert_eq!(sum.sum_ns(30_000 * MS), 500 * MS);
    }

    #[test]
    fn an_amount_is_spread_over_its_interval() {
        let mut sum = SlidingSum::new(500 * MS);
        sum.add_amount(1000 * MS, 1100 * MS, 40);
        assert_eq!(sum.sum_ns(1100 * MS), 40);
        assert_eq!(sum.sum_ns(1550 * MS), 20);
        sum.add_amount(1600 * MS, 1600 * MS, 7);
        assert_eq!(sum.sum_ns(1600 * MS), 7);
    }

    #[test]
    fn a_quiet_time_empties_the_sum() {
        let mut sum = SlidingSum::new(500 * MS);
        sum.add(0, 400 * MS);
        sum.add(90_000 * MS, 90_001 * MS);
        assert_eq!(sum.sum_ns(90_001 * MS), MS);
    }
}
