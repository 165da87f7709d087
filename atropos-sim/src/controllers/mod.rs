//! What may steer the server: one trait for every controller, and the controllers by name.
//!
//! All of them see the same and can only act through the same hooks, so that they differ in what they decide alone.

use crate::world::task::TaskRef;

mod admission;
mod artifact;
mod both;
mod breakwater;
mod credits;
mod darc;
mod killers;
pub(crate) mod names;
mod opensearch;
mod oracle;
mod paper;
mod parties;
mod pbox;
mod protego;
mod root_blocker;
pub(crate) mod seen;
mod shedding;
mod usage;

#[cfg(test)]
pub(crate) mod testkit;

pub(crate) use seen::Seen;

/// A request at a moment when the controller may have a say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) task: TaskRef,
    pub(crate) class: usize,
    pub(crate) client: usize,
    pub(crate) now_ns: u64,
    pub(crate) arrived_ns: u64,
    /// Time spent waiting for locks and slots so far, nanoseconds.
    pub(crate) waited_ns: u64,
    /// Requests in all queues for slots and cores.
    pub(crate) queue_len: usize,
    /// Delay that a request at the head of the longest queue has had, nanoseconds.
    pub(crate) queue_delay_ns: u64,
}

/// A request that is about to wait for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) job: Job,
    /// How long the first in the queue has waited, nanoseconds.
    pub(crate) oldest_wait_ns: u64,
}

/// A request that lets a lock go for which others wait.
#[derive(Clone, Debug)]
pub(crate) struct Letting {
    pub(crate) job: Job,
    /// Time since it got the lock, nanoseconds.
    pub(crate) held_ns: u64,
    /// Who waits: the client, since when, and since when its request has been running.
    pub(crate) waiters: Vec<(usize, u64, u64)>,
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) job: Job,
    /// It got its answer.
    pub(crate) served: bool,
    /// Time since it was let in, nanoseconds.
    pub(crate) service_ns: u64,
}

/// What happens to a request at the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It goes in.
    Admit,
    /// It is refused.
    Reject,
    /// It waits outside until the controller lets it in.
    Hold,
}

/// What a controller does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// End a running task: by its statement, or with its session. The number comes back in the report.
    Cancel {
        task: TaskRef,
        with_session: bool,
        number: u64,
    },
    /// End a wait, inside or still outside; the request fails.
    AbortWaiter(TaskRef),
    /// Let in a request that was held.
    LetIn(TaskRef),
    /// Send a cancelled request that was kept, by its number, into the server again.
    RunAgain(u64),
    /// Give a cancelled request that was kept up: its client gets no answer.
    GiveUpOn(u64),
    /// Divide the cores between clients: the group of each client, and the cores of each group.
    Shares {
        group_of: Vec<usize>,
        cores: Vec<f64>,
    },
}

/// What became of a cancel at the server's door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) at_ns: u64,
    pub(crate) number: u64,
    /// The server took it; otherwise the task was over, or not in a state in which it could work.
    pub(crate) accepted: bool,
}

/// A controller.
pub(crate) trait Controller {
    /// How often it looks, nanoseconds.
    fn tick_ns(&self) -> u64 {
        50_000_000
    }

    /// Whether it looks at who waits for whom: with thousands of waiters that is most of a run.
    fn sees_waits(&self) -> bool {
        true
    }

    /// Whether requests that it cancels are kept until it says what to do with them; else their clients are told at once.
    fn keeps_cancelled(&self) -> bool {
        false
    }

    /// A request is at the door.
    fn admit(&mut self, _job: &Job) -> Verdict {
        Verdict::Admit
    }

    /// A request is next in line for a slot: true if it shall have it, false if it is to be dropped.
    fn dequeue(&mut self, _job: &Job) -> bool {
        true
    }

    /// A request is about to wait for a lock: true if it may.
    fn wait(&mut self, _waiting: &Waiting) -> bool {
        true
    }

    /// A request lets a lock go: how long its client's next request has to wait, nanoseconds.
    fn let_go(&mut self, _letting: &Letting) -> u64 {
        0
    }

    /// A request is over.
    fn ended(&mut self, _ended: &Ended, _out: &mut Vec<Action>) {}

    /// The periodic look.
    fn tick(&mut self, _seen: &Seen, _out: &mut Vec<Action>) {}

    /// What became of a cancel.
    fn report(&mut self, _report: &Report, _out: &mut Vec<Action>) {}

    /// What it decided and why, a line each.
    fn explain(&self) -> Vec<String> {
        Vec::new()
    }
}
