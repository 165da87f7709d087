//! The list of sessions, and what a session shows of its statements.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use usdt_probes::mark;

use crate::marks::{sample_request_begin, sample_request_end, sample_session_end};
use crate::visible::{Session, sample_completed, sample_sessions, state, write};
use crate::{clock, list};

/// Sessions that may be used again. Its mutex guards the list as well.
static IDLE: Mutex<Vec<&'static Session>> = Mutex::new(Vec::new());
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
static NEXT_REQUEST: AtomicU64 = AtomicU64::new(1);

/// Opens a session for this thread and shows it.
pub(crate) fn open(socket: i32) -> &'static Session {
    let mut idle = lock(&IDLE);
    let session = idle.pop().unwrap_or_else(Session::leak);
    // SAFETY: the call has no arguments and cannot fail.
    let thread = unsafe { libc::gettid() }.cast_unsigned();
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    session.id.store(id, Ordering::Relaxed);
    session.thread.store(thread, Ordering::Relaxed);
    session.socket.store(socket, Ordering::Relaxed);
    session.ending.store(0, Ordering::Relaxed);
    session.cancelled_request.store(0, Ordering::Relaxed);
    session.state.store(state::TAG, Ordering::Relaxed);
    for time in [
        &session.started_us,
        &session.started_epoch_s,
        &session.ended_us,
        &session.text_length,
    ] {
        time.store(0, Ordering::Relaxed);
    }
    write(&session.user_bytes, "nobody");
    session.seal.store(
        session.address() + id + u64::from(thread),
        Ordering::Release,
    );
    list::append(&sample_sessions, &session.node);
    session
}

/// Takes a session out of the list.
pub(crate) fn close(session: &'static Session) {
    sample_session_end(session);
    mark::session_end(load(&session.id));
    let mut idle = lock(&IDLE);
    list::remove(&session.node);
    session.seal.store(0, Ordering::Release);
    idle.push(session);
}

/// A statement begins.
pub(crate) fn begin(session: &'static Session, statement: &str) {
    let length = write(&session.text_bytes, statement);
    session.text_length.store(length as u64, Ordering::Relaxed);
    session.request.store(
        NEXT_REQUEST.fetch_add(1, Ordering::Relaxed),
        Ordering::Relaxed,
    );
    session
        .started_us
        .store(clock::monotonic_us(), Ordering::Relaxed);
    session
        .started_epoch_s
        .store(clock::epoch_s(), Ordering::Relaxed);
    session.set(state::BUSY, true);
    sample_request_begin(session);
    mark::label(load(&session.id), load(&session.text));
    mark::task_begin(load(&session.id));
}

/// The statement is over.
pub(crate) fn end(session: &'static Session) {
    session
        .ended_us
        .store(clock::monotonic_us(), Ordering::Relaxed);
    session.set(state::BUSY | state::KILLED, false);
    sample_completed.fetch_add(1, Ordering::Relaxed);
    sample_request_end(session);
    mark::task_end(load(&session.id));
}

/// The session as the marks know it.
pub(crate) fn number(session: &Session) -> u64 {
    load(&session.id)
}

fn load(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

/// Locks a mutex. A thread that panicked left nothing half done that the others could not bear.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
