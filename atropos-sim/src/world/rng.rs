//! Random numbers that depend on the seed alone: one stream for each client and one for each request, so that every
//! controller meets the same requests at the same times.

use rand_core::RngCore as _;
use rand_pcg::Pcg64Mcg;

/// How long something takes, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// Always so long.
    Fixed(u64),
    /// Exponentially distributed around this mean.
    Exp(u64),
}

impl Time {
    /// Its mean, nanoseconds.
    pub(crate) fn mean_ns(self) -> u64 {
        let (Self::Fixed(ns) | Self::Exp(ns)) = self;
        ns
    }
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Pcg64Mcg);

impl Rng {
    /// The stream that belongs to these numbers.
    pub(crate) fn of(seed: u64, client: u64, request: u64) -> Self {
        let mixed = mix(mix(mix(seed) ^ client) ^ request);
        Self(Pcg64Mcg::new(
            u128::from(mixed) << 64 | u128::from(mix(mixed)),
        ))
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in `from..to`; `from` if that is empty.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + (self.unit() * to.saturating_sub(from) as f64) as u64
    }

    /// A draw of a time, nanoseconds; at most 20 means, so that no single draw decides a run.
    pub(crate) fn draw_ns(&mut self, time: Time) -> u64 {
        match time {
            Time::Fixed(ns) => ns,
            Time::Exp(mean_ns) => (mean_ns as f64 * -(1.0 - self.unit()).ln().max(-20.0)) as u64,
        }
    }
}

/// A bijection that spreads neighbouring numbers over the whole range.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_exponential_draws_is_the_mean() {
        let mut rng = Rng::of(1, 2, 3);
        let sum_ns: u64 = (0..100_000)
            .map(|_| rng.draw_ns(Time::Exp(1_000_000)))
            .sum();
        let mean_ns = sum_ns / 100_000;
        assert!((980_000..1_020_000).contains(&mean_ns), "{mean_ns}");
    }

    #[test]
    fn streams_of_neighbouring_requests_differ_and_repeat() {
        assert_ne!(
            Rng::of(1, 0, 0).unit().to_bits(),
            Rng::of(1, 0, 1).unit().to_bits()
        );
        assert_eq!(
            Rng::of(7, 1, 2).unit().to_bits(),
            Rng::of(7, 1, 2).unit().to_bits()
        );
    }
}
