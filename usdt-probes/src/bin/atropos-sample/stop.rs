//! The two signals by which work is ended, sent to a session's own thread: `SIGUSR1` cancels the statement that runs,
//! `SIGUSR2` ends the session.
//!
//! The handlers run on that thread, between two of its own steps. So a cancel that comes between statements finds the
//! session idle and does nothing, and one that is late finds another statement's number: neither hits the next statement.

use std::cell::Cell;
use std::io;
use std::mem::zeroed;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::marks::sample_killed;
use crate::visible::{Session, state};

usdt_probes::cancels_task!(SIGUSR1);
usdt_probes::ends_session!(SIGUSR2);

thread_local! {
    /// The session that this thread serves.
    static CURRENT: Cell<Option<&'static Session>> = const { Cell::new(None) };
}

/// Why a statement ends before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The statement was cancelled.
    Cancelled,
    /// The session has to end.
    Ended,
    /// It waited for a lock for too long.
    TimedOut,
}

/// From here on signals to this thread are about this session; `None`: about nothing.
pub(crate) fn serve(session: Option<&'static Session>) {
    CURRENT.set(session);
}

/// Whether the session's statement has to stop: the safe points ask.
pub(crate) fn asked(session: &Session) -> Result<(), Stop> {
    if session.ending.load(Ordering::Relaxed) != 0 {
        return Err(Stop::Ended);
    }
    let request = session.request.load(Ordering::Relaxed);
    if session.cancelled_request.load(Ordering::Relaxed) == request {
        Err(Stop::Cancelled)
    } else {
        Ok(())
    }
}

/// Installs the handlers, for the whole process.
pub(crate) fn listen() -> io::Result<()> {
    install(libc::SIGUSR1, on_cancel)?;
    install(libc::SIGUSR2, on_end)
}

fn install(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid: default handler, no flags, empty mask.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // No SA_RESTART: a sleep or read that the signal finds must return.
    action.sa_sigaction = handler as *const () as libc::sighandler_t;
    // SAFETY: the handlers call async-signal-safe functions only: atomics, a const thread-local without destructor, shutdown.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

extern "C" fn on_cancel(_: libc::c_int) {
    let Some(session) = CURRENT.get() else { return };
    if session.is(state::BUSY) {
        session
            .cancelled_request
            .store(session.request.load(Ordering::Relaxed), Ordering::Relaxed);
        killed(session);
    }
}

extern "C" fn on_end(_: libc::c_int) {
    let Some(session) = CURRENT.get() else { return };
    session.ending.store(1, Ordering::Relaxed);
    killed(session);
    let errno = errno();
    // A read that begins after this handler must not wait for a client that is no longer wanted.
    // SAFETY: the socket is open as long as the session is served; shutdown takes no memory.
    unsafe { libc::shutdown(session.socket.load(Ordering::Relaxed), libc::SHUT_RDWR) };
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

fn killed(session: &'static Session) {
    session.set(state::KILLED, true);
    // The thread is here and not in its sleep; the word changes so that it does not go to sleep either.
    session.wake.fetch_add(1, Ordering::Relaxed);
    sample_killed(session);
}

fn errno() -> libc::c_int {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() }
}
