//! What sessions used and lost beside the events of locks: sums by resource, and who woke whom.

use serde::{Deserialize, Serialize};

use super::{Evidence, InstanceKey, ResourceId, SessionKey};

/// What sessions used of a resource of kind MEMORY, CPU or IO since the report before, and what the use of others cost
/// them. What a session did for requests that ended in between is part of its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// As of when.
    pub at_ns: u64,
    /// Of which resource.
    pub resource: ResourceId,
    /// How far back from `at_ns` the numbers reach.
    pub covered_ns: u64,
    /// How it was learned.
    pub evidence: Evidence,
    /// Every session that used, lost or holds anything is in `sessions`: a share of the whole can be told.
    pub complete: bool,
    /// Sessions that used, lost or hold anything.
    pub sessions: Vec<SessionUsage>,
}

/// One session's part of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionUsage {
    /// Whose.
    pub session: SessionKey,
    /// CPU: nanoseconds on a processor, of all its threads. IO: nanoseconds for which it kept the device busy. MEMORY: units
    /// brought in (pages, bytes: the same unit throughout), 0 if only what is held matters.
    pub used: u64,
    /// Time lost to others, nanoseconds. CPU: ready and not running. IO: blocked on the device beyond its own service.
    /// MEMORY: what it took to bring in again what others had driven out, to collect garbage for the heap that others
    /// filled, or to walk versions that others keep alive.
    pub lost_ns: u64,
    /// MEMORY: what it holds at `at_ns`, in the resource's unit (pages, bytes; for versions the age of its view in
    /// nanoseconds); 0 if that is not known or nothing.
    pub held: u64,
}

/// Who woke sessions while they waited for what nobody can be told to hold, as seen in a short look. A hint at who held it and
/// no proof ([`Evidence::Inference`]): a thread is woken for a hundred reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Woken {
    /// End of the look.
    pub at_ns: u64,
    /// How long the look was.
    pub covered_ns: u64,
    /// Whom by whom, at most [`Woken::MOST`].
    pub wakes: Vec<WakeUp>,
}

impl Woken {
    /// Most pairs that one look tells of: those with the most wake-ups.
    pub const MOST: usize = 64;
}

/// One session that was woken by one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WakeUp {
    /// Of which resource.
    pub resource: ResourceId,
    /// What it waited for.
    pub instance: InstanceKey,
    /// Who waited and was woken.
    pub waiter: SessionKey,
    /// The thread that woke it.
    pub thread: u32,
    /// What the system calls that thread.
    pub name: String,
    /// Whose thread it is, if a session's.
    pub waker: Option<SessionKey>,
    /// How often in the look, at most.
    pub count: u64,
}
