//! Functions that do nothing but be passed: where a probe can see a session begin, wait, wake and end.
//!
//! Each begins with a `nop` of one byte, which the kernel emulates under a probe instead of single-stepping it, and leaves
//! its arguments alone.

use std::arch::naked_asm;

use crate::visible::{Lock, Session};

macro_rules! marks {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),+);)+) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub(crate) extern "C" fn $name($($argument: $kind),+) {
                naked_asm!("nop", "ret")
            }
        )+
    };
}

marks! {
    /// The session starts a statement.
    fn sample_request_begin(session: &'static Session);
    /// The session's statement is over.
    fn sample_request_end(session: &'static Session);
    /// The session has to wait for the lock.
    fn sample_lock_wait(session: &'static Session, lock: &'static Lock);
    /// The session waits no longer, whether it got the lock or gave up.
    fn sample_lock_woken(session: &'static Session, lock: &'static Lock);
    /// Somebody asked for the end of the session's work.
    fn sample_killed(session: &'static Session);
    /// The session is over and holds nothing.
    fn sample_session_end(session: &'static Session);
    /// The session begins to load a value that is not in the cache.
    fn sample_fetch_begin(session: &'static Session, unit: u64);
    /// The value is in the cache, or will not be.
    fn sample_fetch_end(session: &'static Session, unit: u64);
    /// The session has put a value into the cache.
    fn sample_use(session: &'static Session, unit: u64);
    /// The session has taken a value out of the cache, to make room.
    fn sample_evict(session: &'static Session, unit: u64);
}
