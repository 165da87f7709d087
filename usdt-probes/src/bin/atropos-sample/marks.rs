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
            pub(crate) extern "C" fn $name($($argument: &'static $kind),+) {
                naked_asm!("nop", "ret")
            }
        )+
    };
}

marks! {
    /// The session starts a statement.
    fn sample_request_begin(session: Session);
    /// The session's statement is over.
    fn sample_request_end(session: Session);
    /// The session has to wait for the lock.
    fn sample_lock_wait(session: Session, lock: Lock);
    /// The session waits no longer, whether it got the lock or gave up.
    fn sample_lock_woken(session: Session, lock: Lock);
    /// Somebody asked for the end of the session's work.
    fn sample_killed(session: Session);
    /// The session is over and holds nothing.
    fn sample_session_end(session: Session);
}
