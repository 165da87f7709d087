//! Who woke whom: key and value of the `WAKES` map.
//!
//! A wake-up hints at who kept whom waiting and proves nothing: a lock is handed on by whoever lets it go, but a thread is also woken
//! for a hundred other reasons.

/// Where `HITS` counts the wake-ups by threads in scope, while somebody asks for them. Sites have cookies from 1 on.
pub const WAKES_SITE: u16 = 0;

/// Who woke whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct WakeKey {
    /// Thread that woke; it belongs to a process in scope.
    pub waker: u32,
    /// Thread that was woken, of whatever process.
    pub woken: u32,
}

/// How often and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct WakeValue {
    /// How often.
    pub count: u64,
    /// The last time, `CLOCK_MONOTONIC` nanoseconds.
    pub last_ns: u64,
}

const _: () = assert!(core::mem::size_of::<WakeKey>() == 8);
const _: () = assert!(core::mem::size_of::<WakeValue>() == 16);
