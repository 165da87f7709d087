//! A request on its way through the server.

use std::collections::VecDeque;

use super::rng::Rng;
use super::spent::Spent;

/// A task by its place and number: the place is used again, the number never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskRef {
    pub(crate) index: usize,
    pub(crate) serial: u64,
}

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    /// The controller has not let it in yet.
    Outside,
    /// It computes, since this moment of the cores' virtual clock.
    OnCpu {
        group: usize,
        start_v: f64,
        threads: u32,
    },
    /// The disk works for it, or will.
    OnDisk,
    /// It waits for a lock.
    ForLock { lock: usize },
    /// It waits for a slot.
    ForSlot { pool: usize },
    /// It waits for something outside.
    Asleep,
    /// It is idle with its transaction open.
    Idle,
    /// It undoes its work.
    Undoing {
        group: usize,
        start_v: f64,
        threads: u32,
    },
}

/// Why a request did not get an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Refused at the door, or by a full queue.
    Rejected,
    /// Taken out of a queue.
    Dropped,
    /// Its wait was ended, by the controller or as victim of a deadlock.
    Aborted,
    /// It was cancelled.
    Cancelled,
    /// Its client lost patience.
    TimedOut,
}

/// A task.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    /// Its number; 0 in an unused place.
    pub(crate) serial: u64,
    pub(crate) class: usize,
    pub(crate) client: usize,
    /// Number of the request at its client: retries keep it.
    pub(crate) request: u64,
    pub(crate) attempt: u32,
    /// When the client first asked.
    pub(crate) first_ns: u64,
    /// When this attempt arrived.
    pub(crate) arrived_ns: u64,
    /// When the server began with it.
    pub(crate) started_ns: u64,
    pub(crate) session: u64,
    pub(crate) state: State,
    /// Since when it is in this state.
    pub(crate) since_ns: u64,
    /// Names the state: happenings that were planned for an earlier one are void.
    pub(crate) ticket: u64,
    /// The step that it is at.
    pub(crate) step: usize,
    pub(crate) rng: Rng,
    pub(crate) locks: Vec<usize>,
    pub(crate) slots: Vec<usize>,
    pub(crate) heap_mbytes: f64,
    pub(crate) pages_left: u32,
    pub(crate) scan_at: u64,
    /// Pages on their way into a cache.
    pub(crate) coming: VecDeque<u64>,
    /// Of those on their way, how many had been there and were driven out.
    pub(crate) driven_out: u64,
    /// Operations that the disk has got from it at once, and how long each takes on a disk that is well.
    pub(crate) operations: u64,
    pub(crate) service_ns: u64,
    /// What it used and lost up to the state that it is in.
    pub(crate) spent: Spent,
    /// ... and what of it a look has shown.
    pub(crate) told: Spent,
    /// Collection and pauses at the time when it entered its state.
    pub(crate) stolen_ns: (f64, f64),
    /// Since when it keeps old versions alive.
    pub(crate) snapshot_ns: Option<u64>,
    /// Work done, nanoseconds: processor and disk.
    pub(crate) worked_ns: u64,
    /// ... and on the processor alone.
    pub(crate) cpu_ns: u64,
    pub(crate) miss_count: u64,
    /// Nominal work of the steps behind it.
    pub(crate) done_ns: u64,
    /// Time spent waiting for locks and slots.
    pub(crate) waited_ns: u64,
    /// The server accepted a command to end it.
    pub(crate) killed: bool,
    /// How it will end, once it has undone its work.
    pub(crate) fate: Option<Failure>,
    /// Its client does not wait for it any more.
    pub(crate) forsaken: bool,
}

impl Task {
    /// An unused place.
    pub(crate) fn unused() -> Self {
        Self {
            serial: 0,
            class: 0,
            client: 0,
            request: 0,
            attempt: 0,
            first_ns: 0,
            arrived_ns: 0,
            started_ns: 0,
            session: 0,
            state: State::Outside,
            since_ns: 0,
            ticket: 0,
            step: 0,
            rng: Rng::of(0, 0, 0),
            locks: Vec::new(),
            slots: Vec::new(),
            heap_mbytes: 0.0,
            pages_left: 0,
            scan_at: 0,
            coming: VecDeque::new(),
            driven_out: 0,
            operations: 0,
            service_ns: 0,
            spent: Spent::default(),
            told: Spent::default(),
            stolen_ns: (0.0, 0.0),
            snapshot_ns: None,
            worked_ns: 0,
            cpu_ns: 0,
            miss_count: 0,
            done_ns: 0,
            waited_ns: 0,
            killed: false,
            fate: None,
            forsaken: false,
        }
    }
}
