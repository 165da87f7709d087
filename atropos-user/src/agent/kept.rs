//! What the kernel half keeps at a moment.

use atropos_common::record::{OpenKey, OpenValue, SessionKey, SessionValue, UsageKey, UsageValue};

use crate::engine::input::ResourceId;

/// A copy of its maps.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Processes in scope.
    pub processes: Vec<u32>,
    /// Sessions whose requests it follows.
    pub sessions: Vec<(SessionKey, SessionValue)>,
    /// Waits and holds that have not ended.
    pub open: Vec<(OpenKey, OpenValue)>,
}

/// What sessions use of resources with limited room: running sums of the kernel half.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    /// As of when, `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// By session and resource.
    pub sums: Vec<(UsageKey, UsageValue)>,
    /// Resources whose probes are attached, all of them since the moment named.
    pub since: Vec<(ResourceId, u64)>,
}
