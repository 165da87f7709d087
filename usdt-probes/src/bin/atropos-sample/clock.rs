//! The two clocks that a session shows.

use std::mem::MaybeUninit;

/// `CLOCK_MONOTONIC`, microseconds.
pub(crate) fn monotonic_us() -> u64 {
    let (seconds, nanoseconds) = read(libc::CLOCK_MONOTONIC);
    seconds * 1_000_000 + nanoseconds / 1000
}

/// Seconds since 1970.
pub(crate) fn epoch_s() -> u64 {
    read(libc::CLOCK_REALTIME).0
}

/// Seconds and nanoseconds of a clock.
fn read(clock: libc::clockid_t) -> (u64, u64) {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the pointer is to a whole timespec, and every bit pattern of one is valid, so it may be read even if the call
    // failed, which it cannot for these clocks.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned())
}
