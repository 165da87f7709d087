//! What the kernel half keeps at a moment.

use atropos_common::record::{OpenKey, OpenValue, SessionKey, SessionValue};

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
