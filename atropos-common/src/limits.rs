//! Sizes that both halves agree on. Each bounds memory or verifier work; none is tuned to an application.

/// Sites that can be attached at once. `SITES` has one slot for each; the cookie is the index.
pub const MAX_SITES: u32 = 256;

/// Processes in scope at once (a postmaster and its backends, say).
pub const MAX_PROCESSES: u32 = 16_384;

/// Process ids that there can be: the kernel's own limit (`PID_MAX_LIMIT`), a byte of `KNOWN` for each, 4 MiB.
pub const PROCESS_IDS: u32 = 1 << 22;

/// Process ids of one block of `KNOWN`.
pub const KNOWN_BLOCK: u32 = 64;

/// Sessions with a request in progress that the kernel half can time at once.
pub const MAX_SESSIONS: u32 = 16_384;

/// Intervals (waits and holds) open at once.
pub const MAX_OPEN: u32 = 32_768;

/// Sessions whose use of a MEMORY resource is summed at once, one for each resource that a session uses.
pub const MAX_USES: u32 = 16_384;

/// Units of MEMORY resources that are remembered by who brought them in or drove them out; the oldest make room. That another
/// drove a unit out is proved only while the unit is remembered, so this should be no less than the units of a pool: half a
/// gigabyte in pages of 8 KiB.
pub const MAX_UNITS: u32 = 65_536;

/// Orders that can wait for their threads at once.
pub const MAX_ORDERS: u32 = 64;

/// Pairs of waker and woken that are remembered; the oldest make room.
pub const MAX_WAKES: u32 = 8192;

/// Bytes of the event ring. 200,000 records a second of 64 bytes (with their header) fill it in 0.33 s, several times the
/// agent's longest pause.
pub const RING_BYTES: u32 = 4 << 20;

/// Steps of one argument expression: a register, then at most this many displacement-and-dereference steps.
pub const MAX_STEPS: usize = 4;

/// Of what the kernel half must know since when it is whole: index into `SINCE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Since {
    /// Requests: those that began before the current sample are not timed.
    Requests = 0,
    /// Units and what is being brought in: what was known before the probes came back may be otherwise by now.
    Units = 1,
}

impl Since {
    /// Number of slots.
    pub const COUNT: usize = 2;
}

/// What the kernel half could not keep: index into the `LOST` counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Loss {
    /// The ring was full: a record was dropped.
    Ring = 0,
    /// `OPEN` was full: a wait or hold is not timed.
    Open = 1,
    /// `SESSIONS` was full: a request is not timed.
    Sessions = 2,
    /// `SCOPE` was full: a child process is not watched.
    Scope = 3,
    /// An argument lay on a page that was not in memory: the passing counts for nothing.
    Argument = 4,
    /// `USES` was full: a session's use is not summed.
    Uses = 5,
}

impl Loss {
    /// Number of causes.
    pub const COUNT: usize = 6;

    /// Every cause, in numeric order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ring,
        Self::Open,
        Self::Sessions,
        Self::Scope,
        Self::Argument,
        Self::Uses,
    ];
}
