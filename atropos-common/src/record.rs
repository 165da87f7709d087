//! What travels through the ring and what lies in the maps.

/// One transition. 56 bytes, no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EventRecord {
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// Session key as the site's expression gave it (a pointer, a thread id, …).
    pub session: u64,
    /// Instance key, or 0.
    pub instance: u64,
    /// Mode, amount or progress, by operation.
    pub value: u64,
    /// Generation of the session's request at this moment, 0 if the kernel half has seen none.
    pub generation: u32,
    /// Process id (thread group id), as the kernel counts.
    pub pid: u32,
    /// Thread id, as the target counts (see [`crate::namespace`]).
    pub tid: u32,
    /// Site that made the record.
    pub site: u16,
    /// Index of the resource in the preset.
    pub resource: u16,
    /// An [`crate::op::Op`].
    pub op: u8,
    /// [`EventRecord::ARG_UNKNOWN`] and other flags.
    pub flags: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

impl EventRecord {
    /// An argument lay on a page that was not in memory: `session`, `instance` or `value` is not to be trusted.
    pub const ARG_UNKNOWN: u8 = 1;
    /// For [`crate::op::Op::Exit`]: the whole process is gone, not one thread.
    pub const PROCESS: u8 = 2;
}

/// Key of an open interval: who waits for or holds what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct OpenKey {
    /// Session key.
    pub session: u64,
    /// Instance key.
    pub instance: u64,
    /// Process id, because pointers of two processes may be equal.
    pub pid: u32,
    /// Index of the resource in the preset.
    pub resource: u16,
    /// 0 a wait, 1 a hold.
    pub hold: u8,
    /// Zero.
    pub reserved: u8,
}

/// An open interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct OpenValue {
    /// When it began, `CLOCK_MONOTONIC` nanoseconds.
    pub since_ns: u64,
    /// Mode wanted or held.
    pub value: u64,
    /// How often it was entered without being left (re-entrant holds).
    pub depth: u32,
    /// Thread that began it.
    pub tid: u32,
}

/// Key of a session's current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct SessionKey {
    /// Session key.
    pub session: u64,
    /// Process id.
    pub pid: u32,
    /// Zero.
    pub reserved: u32,
}

/// A session's current request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SessionValue {
    /// When the request in progress began; 0 while the session is between requests.
    pub begin_ns: u64,
    /// Number of requests begun so far.
    pub generation: u32,
    /// Thread that began it.
    pub tid: u32,
}

/// Sums of one resource on one CPU since the start of the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Totals {
    /// Intervals that ended.
    pub count: u64,
    /// Their summed length.
    pub sum_ns: u64,
    /// Ends without a begin: evidence of a missed event or of a begin before the probes came.
    pub unmatched: u64,
    /// Sum of amounts (`use`, `evict`, `progress`).
    pub amount: u64,
}

const _: () = assert!(core::mem::size_of::<EventRecord>() == 56);
const _: () = assert!(core::mem::size_of::<OpenKey>() == 24);
const _: () = assert!(core::mem::size_of::<OpenValue>() == 24);
const _: () = assert!(core::mem::size_of::<SessionKey>() == 16);
const _: () = assert!(core::mem::size_of::<SessionValue>() == 16);
