//! The one place where the agent reads a clock.

use nix::time::{ClockId, clock_gettime};

const NS_IN_S: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of the kernel half's records.
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::CLOCK_MONOTONIC)
}

/// The wall clock in nanoseconds since 1970.
pub fn epoch_ns() -> u64 {
    read_ns(ClockId::CLOCK_REALTIME)
}

/// The wall clock less the monotonic clock, nanoseconds.
pub fn epoch_minus_monotonic_ns() -> i64 {
    epoch_ns().cast_signed() - monotonic_ns().cast_signed()
}

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("Linux has both clocks");
    u64::try_from(time.tv_sec()).unwrap_or(0) * NS_IN_S + u64::try_from(time.tv_nsec()).unwrap_or(0)
}
