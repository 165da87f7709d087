//! Log-linear latency buckets: 16 steps for each power of two, so that a bucket is at most 6.25 % wide.
//!
//! The kernel half counts into them without division or floating point; the agent reads percentiles off them.

/// Steps for each power of two, as a power of two.
const STEP_BITS: u32 = 4;

/// Buckets: values up to 2^41 ns (36 minutes) keep their precision, all above share the last bucket.
pub const BUCKETS: usize = 608;

/// The bucket of a latency.
#[inline]
#[must_use]
#[allow(
    clippy::manual_ilog2,
    reason = "`ilog2` has a panicking path, which a BPF program may not have"
)]
pub const fn bucket_of(ns: u64) -> usize {
    // The leading one and the four bits behind it name the bucket; values below 16 name themselves.
    if ns < 1 << STEP_BITS {
        return ns as usize;
    }
    let exponent = 63 - ns.leading_zeros();
    let step = (ns >> (exponent - STEP_BITS)) as usize & ((1 << STEP_BITS) - 1);
    let index = (((exponent - STEP_BITS + 1) as usize) << STEP_BITS) + step;
    if index < BUCKETS { index } else { BUCKETS - 1 }
}

/// The smallest latency that falls into a bucket; one that there is not stands for the last.
#[must_use]
pub const fn lower_bound_ns(bucket: usize) -> u64 {
    let bucket = if bucket < BUCKETS {
        bucket
    } else {
        BUCKETS - 1
    };
    if bucket < 1 << STEP_BITS {
        return bucket as u64;
    }
    let exponent = (bucket >> STEP_BITS) as u32 + STEP_BITS - 1;
    let step = (bucket & ((1 << STEP_BITS) - 1)) as u64;
    ((1 << STEP_BITS) + step) << (exponent - STEP_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_contains_its_lower_bound_and_nothing_smaller() {
        for bucket in 1..BUCKETS {
            let low = lower_bound_ns(bucket);
            assert_eq!(bucket_of(low), bucket);
            assert_eq!(bucket_of(low - 1), bucket - 1);
        }
    }

    #[test]
    fn huge_latencies_share_the_last_bucket() {
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(lower_bound_ns(usize::MAX), lower_bound_ns(BUCKETS - 1));
    }

    #[test]
    fn a_bucket_is_at_most_one_sixteenth_wide() {
        for bucket in 16..BUCKETS - 1 {
            let (low, high) = (lower_bound_ns(bucket), lower_bound_ns(bucket + 1));
            assert!((high - low) * 16 <= low, "bucket {bucket}: {low}..{high}");
        }
    }
}
