//! Means with their 95 % intervals.

use serde::Serialize;

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom; beyond, 1.96 is close enough.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

/// A mean over seeds, and half the width of its 95 % interval (0 for a single seed, for which there is none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    pub(crate) half_width: f64,
}

impl Estimate {
    /// Of these values.
    pub(crate) fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        if values.len() < 2 {
            return Self {
                mean,
                half_width: 0.0,
            };
        }
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (count - 1.0);
        let t = T95.get(values.len() - 2).copied().unwrap_or(1.96);
        Self {
            mean,
            half_width: t * (variance / count).sqrt(),
        }
    }

    /// Of the mean of independent estimates: their errors add up as squares.
    pub(crate) fn mean_of(estimates: &[Self]) -> Self {
        let count = estimates.len().max(1) as f64;
        let squares = estimates
            .iter()
            .map(|estimate| estimate.half_width.powi(2))
            .sum::<f64>();
        Self {
            mean: estimates.iter().map(|estimate| estimate.mean).sum::<f64>() / count,
            half_width: squares.sqrt() / count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students_for_few_values() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0]);
        assert!((estimate.mean - 2.0).abs() < 1e-12);
        // t(2) x s / sqrt(3), with s = 1.
        assert!((estimate.half_width - 4.303 / 3.0_f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn the_mean_of_independent_estimates_is_surer_than_each() {
        let one = Estimate {
            mean: 1.0,
            half_width: 0.2,
        };
        let other = Estimate { mean: 3.0, ..one };
        let both = Estimate::mean_of(&[one, other]);
        assert!((both.mean - 2.0).abs() < 1e-12);
        assert!((both.half_width - 0.2 / 2.0_f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn equal_values_have_no_width() {
        assert!(Estimate::of(&[0.5; 20]).half_width < 1e-12);
    }
}
