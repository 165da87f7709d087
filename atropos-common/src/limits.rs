//! Sizes that both halves agree on. Each bounds memory or verifier work; none is tuned to an application.

/// Sites that can be attached at once. `SITES` has one slot for each; the cookie is the index.
pub const MAX_SITES: u32 = 256;

/// Processes in scope at once (a postmaster and its backends, say).
pub const MAX_PROCESSES: u32 = 16_384;

/// Sessions with a request in progress that the kernel half can time at once.
pub const MAX_SESSIONS: u32 = 65_536;

/// Intervals (waits and holds) open at once.
pub const MAX_OPEN: u32 = 131_072;

/// Bytes of the event ring: 200,000 records of 56 bytes a second fill it in 0.7 s, ten times the agent's longest pause.
pub const RING_BYTES: u32 = 8 << 20;

/// Steps of one argument expression: a register, then at most this many displacement-and-dereference steps.
pub const MAX_STEPS: usize = 4;
