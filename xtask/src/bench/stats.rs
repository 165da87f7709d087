//! What many runs have in common: spread of a value, and an interval for a median that asks nothing of the distribution. Pure.

use serde::Serialize;

/// How widely the two-sided interval of a median is meant to cover.
const COVERAGE: f64 = 0.95;

/// The spread of a value over runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// Values.
    pub(crate) count: usize,
    /// The smallest.
    pub(crate) min: f64,
    /// The middle one.
    pub(crate) median: f64,
    /// 95 % are at most this, by nearest rank.
    pub(crate) p95: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Of these values; `None` of none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(values);
        let rank = (sorted.len() * 95).div_ceil(100);
        Some(Self {
            count: sorted.len(),
            min: *sorted.first()?,
            median: median_of_sorted(&sorted)?,
            p95: *sorted.get(rank.saturating_sub(1))?,
            max: *sorted.last()?,
        })
    }
}

/// A median with an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Interval {
    /// The median.
    pub(crate) median: f64,
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
    /// How often such an interval holds the true median: at least 0.95 where there are six values or more.
    pub(crate) coverage: f64,
}

impl Interval {
    /// The interval that a sign test does not refuse: between two of the values, counted from either end. `None` of none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(values);
        let count = sorted.len();
        let median = median_of_sorted(&sorted)?;
        // Going one value further in for as long as what is left outside stays unlikely enough.
        let mut left_out = 0;
        while 2 * (left_out + 1) < count && 1.0 - 2.0 * tail(count, left_out + 1) >= COVERAGE {
            left_out += 1;
        }
        Some(Self {
            median,
            low: sorted[left_out],
            high: sorted[count - 1 - left_out],
            coverage: 1.0 - 2.0 * tail(count, left_out),
        })
    }
}

/// A mean with an interval by the bootstrap: 2.5 % of the means of resampled values lie outside of either end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Mean {
    /// The mean.
    pub(crate) value: f64,
    /// Lower end.
    pub(crate) low: f64,
    /// Upper end.
    pub(crate) high: f64,
}

impl Mean {
    /// Resamplings.
    const DRAWS: usize = 4000;

    /// Of these values; `None` of none. The same values always give the same interval.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mean = |sum: f64| sum / values.len() as f64;
        let mut dice = Dice::new(1);
        let draws = (0..Self::DRAWS).map(|_| {
            let drawn = (0..values.len()).map(|_| values[dice.below(values.len())]);
            mean(drawn.sum())
        });
        let draws = sorted(draws);
        Some(Self {
            value: mean(values.iter().sum()),
            low: draws[Self::DRAWS / 40],
            high: draws[Self::DRAWS - 1 - Self::DRAWS / 40],
        })
    }

    /// In another unit; a larger value stays the larger one.
    pub(crate) fn map(self, to: impl Fn(f64) -> f64) -> Self {
        Self {
            value: to(self.value),
            low: to(self.low),
            high: to(self.high),
        }
    }
}

/// Numbers that look drawn, and are the same in every run (splitmix64).
pub(crate) struct Dice(u64);

impl Dice {
    /// A sequence of its own for each seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// Puts things into another order.
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for end in (1..things.len()).rev() {
            things.swap(end, self.below(end + 1));
        }
    }
}

/// The chance that at most `successes` of `count` fair coins show heads.
fn tail(count: usize, successes: usize) -> f64 {
    let mut term = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut sum = term;
    for k in 1..=successes {
        term *= (count + 1 - k) as f64 / k as f64;
        sum += term;
    }
    sum
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(sorted[middle - 1], upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_does_not_depend_on_the_order_of_the_runs() {
        let spread = Spread::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 3.0, 5.0));
        let median = |values: [f64; 4]| Spread::of(values).map(|spread| spread.median);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn one_run_of_twenty_may_be_beyond_the_95th_percentile() {
        let spread = Spread::of((1..=20).map(f64::from)).unwrap();
        assert_eq!((spread.p95, spread.max), (19.0, 20.0));
        assert_eq!(Spread::of([7.0]).map(|spread| spread.p95), Some(7.0));
    }

    #[test]
    fn the_interval_of_a_median_is_the_one_of_the_textbooks() {
        // Tables of the sign test: of 12 values the third from either end, of 20 the sixth, of 6 the outermost.
        for (count, low, high) in [(6, 1.0, 6.0), (12, 3.0, 10.0), (20, 6.0, 15.0)] {
            let interval = Interval::of((1..=count).map(f64::from)).unwrap();
            assert_eq!((interval.low, interval.high), (low, high), "{count} values");
            assert!(interval.coverage >= 0.95, "{interval:?}");
        }
        let twelve = Interval::of((1..=12).map(f64::from)).unwrap();
        assert!((twelve.coverage - 0.9614).abs() < 0.0001, "{twelve:?}");
    }

    #[test]
    fn too_few_values_give_their_whole_range_and_say_how_little_it_covers() {
        let three = Interval::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((three.low, three.high, three.coverage), (1.0, 3.0, 0.75));
        let one = Interval::of([4.0]).unwrap();
        assert_eq!((one.low, one.median, one.high), (4.0, 4.0, 4.0));
        assert!(one.coverage <= 0.0, "{one:?}");
    }

    #[test]
    fn the_interval_of_a_mean_holds_it_and_narrows_with_agreement() {
        let wide = Mean::of(&[1.0, 1.2, 0.8, 1.1, 0.9]).unwrap();
        assert!((wide.value - 1.0).abs() < 1e-9, "{wide:?}");
        assert!(wide.low < 0.95 && wide.high > 1.05, "{wide:?}");
        let same = Mean::of(&[1.5; 5]).unwrap();
        assert_eq!((same.low, same.high), (1.5, 1.5));
        assert_eq!(Mean::of(&[]), None);
    }

    #[test]
    fn a_shuffle_keeps_everything_and_every_place_is_taken_by_turns() {
        let mut dice = Dice::new(7);
        let mut firsts = [0; 5];
        for _ in 0..500 {
            let mut things = [0, 1, 2, 3, 4];
            dice.shuffle(&mut things);
            firsts[things[0]] += 1;
            things.sort_unstable();
            assert_eq!(things, [0, 1, 2, 3, 4]);
        }
        assert!(
            firsts.iter().all(|first| (60..140).contains(first)),
            "{firsts:?}"
        );
    }
}
