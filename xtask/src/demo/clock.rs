//! `CLOCK_MONOTONIC` in nanoseconds: the clock of the kernel and of the agent, so that their times and ours compare.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000 * MS;

/// The time, nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    u64::try_from(Duration::from(now).as_nanos())
        .expect("the machine has been up for less than 584 years")
}
