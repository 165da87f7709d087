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
    /// For [`crate::op::Op::Exit`]: there is a session with the number of the thread that exits, and another thread served it last.
    pub const NOT_ITS_SESSION: u8 = 4;
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
    /// Number of the request: one more than that of the session's request before; that of the first comes from the clock.
    pub generation: u32,
    /// Thread that began it.
    pub tid: u32,
    /// Work that the request has done so far; 0 before it tells.
    pub done: u64,
    /// Work that it will take in all, in the same unit; 0 before it tells.
    pub work: u64,
}

/// Key of what a session uses of a MEMORY resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct UsageKey {
    /// Session key.
    pub session: u64,
    /// Process id.
    pub pid: u32,
    /// Index of the resource in the preset.
    pub resource: u16,
    /// Zero.
    pub reserved: u16,
}

/// Running sums of what a session uses of a MEMORY resource. They are never set back; the reader takes differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct UsageValue {
    /// Units brought in.
    pub used: u64,
    /// Units driven out that another had brought in.
    pub evicted: u64,
    /// Time spent bringing in again what another had driven out, nanoseconds.
    pub lost_ns: u64,
    /// When it began to bring in what it is bringing in now, `CLOCK_MONOTONIC` nanoseconds; 0 if nothing.
    pub fetch_ns: u64,
    /// Not 0 if that is something that another had driven out.
    pub fetch_again: u32,
    /// Thread that used it first.
    pub tid: u32,
}

/// Key of a unit of a MEMORY resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct UnitKey {
    /// The unit's name, as the site's instance expression gave it; never 0.
    pub unit: u64,
    /// Index of the resource in the preset.
    pub resource: u16,
    /// Zero.
    pub reserved: [u16; 3],
}

/// Who brought a unit in, or drove it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UnitValue {
    /// Session key.
    pub session: u64,
    /// When, `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// Process id of the session.
    pub pid: u32,
    /// 0: the session brought it in. 1: the session drove it out, and another had brought it in.
    pub evicted: u32,
}

const _: () = assert!(core::mem::size_of::<EventRecord>() == 56);
const _: () = assert!(core::mem::size_of::<OpenKey>() == 24);
const _: () = assert!(core::mem::size_of::<OpenValue>() == 24);
const _: () = assert!(core::mem::size_of::<SessionKey>() == 16);
const _: () = assert!(core::mem::size_of::<SessionValue>() == 32);
const _: () = assert!(core::mem::size_of::<UsageKey>() == 16);
const _: () = assert!(core::mem::size_of::<UsageValue>() == 40);
const _: () = assert!(core::mem::size_of::<UnitKey>() == 16);
const _: () = assert!(core::mem::size_of::<UnitValue>() == 24);
