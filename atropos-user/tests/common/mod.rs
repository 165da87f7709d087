//! What several integration tests share.

#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "each integration test is a crate of its own and uses a part of this"
)]

pub mod mariadb;
pub mod orders;

/// Says that a test cannot run on this machine. On CI that is a failure: everything must be there.
#[track_caller]
#[allow(clippy::print_stderr, reason = "a skipped test must say so")]
pub fn skip(reason: &str) {
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "skipped on CI, where nothing may be missing: {reason}"
    );
    eprintln!("SKIPPED: {reason}");
}

/// `CLOCK_MONOTONIC` for the code under test.
pub fn clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).expect("monotonic time is positive") * 1_000_000_000
        + u64::try_from(now.tv_nsec).expect("nanoseconds are positive")
}
