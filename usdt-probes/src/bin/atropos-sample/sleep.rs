//! Sleeping on a session's futex word, so that a signal or a granted lock ends the sleep at once.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::clock;

/// Sleeps until the word is no longer `seen`, a signal came, or the monotonic time is `until_us`. May return early.
pub(crate) fn while_unchanged(word: &AtomicU32, seen: u32, until_us: u64) {
    let left_us = until_us.saturating_sub(clock::monotonic_us());
    if left_us == 0 {
        return;
    }
    let timeout = libc::timespec {
        tv_sec: i64::try_from(left_us / 1_000_000).unwrap_or(i64::MAX),
        tv_nsec: (left_us % 1_000_000 * 1000).cast_signed(),
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word and the timeout live until the call returns; FUTEX_WAIT reads them and writes nothing.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            seen,
            ptr::from_ref(&timeout),
        )
    };
}

/// Changes the word and wakes its sleeper.
pub(crate) fn wake(word: &AtomicU32) {
    word.fetch_add(1, Ordering::Release);
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: FUTEX_WAKE uses the word's address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}
