//! Table locks: shared and exclusive, with a queue in which whoever wants the lock alone goes before whoever shares it.
//!
//! One mutex guards all queues: an operation on them is a few stores. Waiting is outside of it, on the session's own word.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use usdt_probes::mark;

use crate::marks::{sample_lock_wait, sample_lock_woken};
use crate::sessions::{lock as locked, number};
use crate::stop::{self, Stop};
use crate::visible::{Lock, Mode, Session, Ticket};
use crate::{clock, list, sleep};

/// Tickets that may be used again. Its mutex guards every lock's lists as well.
static SPARE: Mutex<Vec<&'static Ticket>> = Mutex::new(Vec::new());

/// The number that the marks give table locks.
const TABLE_LOCK: u64 = 0;

usdt_probes::resource!(0, LOCK, "table_lock");

/// Gets a lock, waiting if need be, at most until `until_us` of the monotonic clock.
pub(crate) fn acquire(
    session: &'static Session,
    lock: &'static Lock,
    mode: Mode,
    until_us: u64,
) -> Result<&'static Ticket, Stop> {
    let ticket = get(session, lock, mode, until_us)?;
    mark::acquire(number(session), TABLE_LOCK, address(lock), shared(mode));
    Ok(ticket)
}

fn get(
    session: &'static Session,
    lock: &'static Lock,
    mode: Mode,
    until_us: u64,
) -> Result<&'static Ticket, Stop> {
    let mut spare = locked(&SPARE);
    let ticket = spare.pop().unwrap_or_else(Ticket::leak);
    ticket.mode.store(mode as u32, Ordering::Relaxed);
    ticket
        .lock
        .store(ptr::from_ref(lock).cast_mut(), Ordering::Relaxed);
    ticket
        .session
        .store(ptr::from_ref(session).cast_mut(), Ordering::Relaxed);
    ticket
        .seal
        .store(ptr::from_ref(ticket).addr() as u64, Ordering::Release);
    if may_have(session, lock, mode) {
        list::append(&lock.granted, &ticket.node);
        return Ok(ticket);
    }
    list::append(&lock.queued, &ticket.node);
    session
        .waiting
        .store(ptr::from_ref(ticket).cast_mut(), Ordering::Release);
    drop(spare);
    sample_lock_wait(session, lock);
    mark::wait_begin(number(session), TABLE_LOCK, address(lock), shared(mode));
    let result = wait(session, until_us);
    mark::wait_end(number(session), TABLE_LOCK, address(lock));
    sample_lock_woken(session, lock);
    match result {
        Ok(()) => Ok(ticket),
        Err(stop) => withdraw(session, lock, ticket, stop),
    }
}

/// Gives a lock back.
pub(crate) fn release(ticket: &'static Ticket, lock: &'static Lock) {
    if let Some(session) = owner(ticket) {
        mark::release(number(session), TABLE_LOCK, address(lock));
    }
    let mut spare = locked(&SPARE);
    list::remove(&ticket.node);
    retire(ticket, &mut spare);
    promote(lock);
}

/// Sleeps until the lock is granted or the session has to stop.
fn wait(session: &'static Session, until_us: u64) -> Result<(), Stop> {
    loop {
        let seen = session.wake.load(Ordering::Acquire);
        if session.waiting.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        stop::asked(session)?;
        if clock::monotonic_us() >= until_us {
            return Err(Stop::TimedOut);
        }
        sleep::while_unchanged(&session.wake, seen, until_us);
    }
}

/// Leaves the queue; unless the lock was granted in the meantime, which the next safe point deals with.
fn withdraw(
    session: &'static Session,
    lock: &'static Lock,
    ticket: &'static Ticket,
    stop: Stop,
) -> Result<&'static Ticket, Stop> {
    let mut spare = locked(&SPARE);
    if session.waiting.load(Ordering::Relaxed).is_null() {
        return Ok(ticket);
    }
    session.waiting.store(ptr::null_mut(), Ordering::Release);
    list::remove(&ticket.node);
    retire(ticket, &mut spare);
    promote(lock);
    Err(stop)
}

/// Makes a ticket that is in no list worthless to readers, and keeps it for the next.
fn retire(ticket: &'static Ticket, spare: &mut Vec<&'static Ticket>) {
    ticket.seal.store(0, Ordering::Release);
    ticket.lock.store(ptr::null_mut(), Ordering::Relaxed);
    ticket.session.store(ptr::null_mut(), Ordering::Relaxed);
    spare.push(ticket);
}

/// Grants whatever can be granted, those who want the lock alone first.
fn promote(lock: &'static Lock) {
    for mode in [Mode::Exclusive, Mode::Shared] {
        for ticket in list::tickets(&lock.queued).filter(|ticket| ticket.mode() == mode) {
            let Some(session) = owner(ticket).filter(|session| may_have(session, lock, mode))
            else {
                continue;
            };
            session.waiting.store(ptr::null_mut(), Ordering::Release);
            list::remove(&ticket.node);
            list::append(&lock.granted, &ticket.node);
            sleep::wake(&session.wake);
        }
    }
}

/// Whether nobody is in the session's way.
fn may_have(session: &Session, lock: &'static Lock, mode: Mode) -> bool {
    let others = |head| list::tickets(head).filter(|ticket| !ticket.belongs_to(session));
    let mut holders = others(&lock.granted);
    match mode {
        Mode::Exclusive => holders.next().is_none(),
        // Whoever has it already need not queue for it again: the one ahead may be waiting for him.
        Mode::Shared => {
            list::tickets(&lock.granted).any(|ticket| ticket.belongs_to(session))
                || holders
                    .chain(others(&lock.queued))
                    .all(|ticket| ticket.mode() == Mode::Shared)
        }
    }
}

fn owner(ticket: &Ticket) -> Option<&'static Session> {
    // SAFETY: null, or set from a `&'static Session` by `acquire`.
    unsafe { ticket.session.load(Ordering::Relaxed).as_ref() }
}

/// The lock as the marks know it.
fn address(lock: &'static Lock) -> u64 {
    ptr::from_ref(lock).addr() as u64
}

/// The mode as the marks have it.
fn shared(mode: Mode) -> u64 {
    u64::from(mode == Mode::Shared)
}
