//! What a look at the server shows: the same for every controller.

use super::Action;
use crate::world::spent::Spent;
use crate::world::task::TaskRef;

/// A task as it is seen.
#[derive(Clone, Debug)]
pub(crate) struct SeenTask {
    pub(crate) task: TaskRef,
    pub(crate) class: usize,
    pub(crate) client: usize,
    pub(crate) session: u64,
    /// When the client asked, nanoseconds.
    pub(crate) arrived_ns: u64,
    /// When the server began with it, nanoseconds.
    pub(crate) started_ns: u64,
    /// Since when it has been idle with its transaction open, if it is.
    pub(crate) idle_since_ns: Option<u64>,
    /// It waits for a lock or slot.
    pub(crate) waits: bool,
    /// Processor time, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// Pages that it had to bring in.
    pub(crate) miss_count: u64,
    /// Heap in use, mbytes.
    pub(crate) heap_mbytes: f64,
    /// For how long it has kept old versions alive, nanoseconds; 0 if it does not.
    pub(crate) view_age_ns: u64,
    /// Progress as the server tells it.
    pub(crate) progress: Option<f64>,
    pub(crate) killed: bool,
    /// Nobody may end it.
    pub(crate) protected: bool,
}

impl SeenTask {
    /// Ends it: its statement, or its session.
    pub(crate) fn end(&self, with_session: bool) -> Action {
        Action::Cancel {
            task: self.task,
            with_session,
            number: 0,
        }
    }
}

/// Somebody in the way of a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenBlocker {
    pub(crate) task: TaskRef,
    pub(crate) session: u64,
    /// It waits itself, before this waiter.
    pub(crate) queued: bool,
    pub(crate) mode: u32,
    pub(crate) since_ns: u64,
}

/// A wait.
#[derive(Clone, Debug)]
pub(crate) struct SeenWait {
    pub(crate) task: TaskRef,
    pub(crate) session: u64,
    /// Index of the resource in the engine's settings.
    pub(crate) resource: usize,
    pub(crate) instance: usize,
    pub(crate) mode: u32,
    pub(crate) since_ns: u64,
    pub(crate) blockers: Vec<SeenBlocker>,
}

/// A request that completed since the look before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenDone {
    pub(crate) client: usize,
    pub(crate) latency_ns: u64,
}

/// A look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) now_ns: u64,
    pub(crate) tasks: Vec<SeenTask>,
    pub(crate) waits: Vec<SeenWait>,
    pub(crate) done: Vec<SeenDone>,
    /// Requests that completed since the look before. More than are in `done` where not every latency is seen.
    pub(crate) done_count: u64,
    pub(crate) queue_delay_ns: u64,
    /// Share of the cores in use since the look before.
    pub(crate) cpu_share: f64,
    /// Share of the heap in use.
    pub(crate) heap_share: f64,
    /// Jobs for each core.
    pub(crate) cpu_load: f64,
    /// What each session used and lost since the look before.
    pub(crate) spent: Vec<(u64, Spent)>,
    /// Pages that were not there since the look before.
    pub(crate) missed_count: u64,
}
