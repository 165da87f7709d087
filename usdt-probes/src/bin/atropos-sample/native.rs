//! Locks of the C library by name, so that there is something to see for whoever decodes their owners from outside.
//! Waiting for one cannot be cancelled, as in real applications.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::sessions::lock as locked;
use crate::visible::Mode;

/// Locks of each kind that there can be.
const MOST_LOCKS: usize = 100;

static MUTEXES: Mutex<BTreeMap<String, &'static NativeMutex>> = Mutex::new(BTreeMap::new());
static RW_LOCKS: Mutex<BTreeMap<String, &'static NativeRwLock>> = Mutex::new(BTreeMap::new());

struct NativeMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the C library's functions are the only ones that touch the inside.
unsafe impl Sync for NativeMutex {}

struct NativeRwLock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: the C library's functions are the only ones that touch the inside.
unsafe impl Sync for NativeRwLock {}

/// Does something while holding the mutex of this name; nothing if there are too many.
pub(crate) fn with_mutex<T>(name: &str, work: impl FnOnce() -> T) -> Option<T> {
    let fresh = || NativeMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    let mutex = named(&MUTEXES, name, fresh)?;
    // SAFETY: an initialised mutex that is never freed nor moved.
    unsafe { libc::pthread_mutex_lock(mutex.0.get()) };
    let result = work();
    // SAFETY: as above, and this thread holds it.
    unsafe { libc::pthread_mutex_unlock(mutex.0.get()) };
    Some(result)
}

/// Does something while holding the readers-writer lock of this name; nothing if there are too many.
pub(crate) fn with_rw_lock<T>(name: &str, mode: Mode, work: impl FnOnce() -> T) -> Option<T> {
    let fresh = || NativeRwLock(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    let lock = named(&RW_LOCKS, name, fresh)?;
    match mode {
        // SAFETY: an initialised lock that is never freed nor moved.
        Mode::Shared => unsafe { libc::pthread_rwlock_rdlock(lock.0.get()) },
        // SAFETY: as above.
        Mode::Exclusive => unsafe { libc::pthread_rwlock_wrlock(lock.0.get()) },
    };
    let result = work();
    // SAFETY: as above, and this thread holds it.
    unsafe { libc::pthread_rwlock_unlock(lock.0.get()) };
    Some(result)
}

fn named<L>(
    all: &Mutex<BTreeMap<String, &'static L>>,
    name: &str,
    fresh: impl FnOnce() -> L,
) -> Option<&'static L> {
    let mut all = locked(all);
    if let Some(lock) = all.get(name) {
        return Some(lock);
    }
    if all.len() >= MOST_LOCKS {
        return None;
    }
    let lock: &'static L = Box::leak(Box::new(fresh()));
    all.insert(name.to_owned(), lock);
    Some(lock)
}
