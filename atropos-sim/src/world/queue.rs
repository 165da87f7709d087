//! What will happen when: events in order of time, and of insertion among equals.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Happening {
    /// A client's next request.
    Arrival { client: usize },
    /// A request again, after a failure.
    Again {
        client: usize,
        request: u64,
        attempt: u32,
        first_ns: u64,
    },
    /// A group of cores may have finished a job, if nothing changed since.
    Cores { group: usize, epoch: u64 },
    /// The disk has finished an operation.
    Disk { owner: usize, ticket: u64 },
    /// Somebody's sleep is over.
    Wake { owner: usize, ticket: u64 },
    /// The client has waited long enough.
    Patience { owner: usize, serial: u64 },
    /// The controller looks.
    Tick,
    /// A command to end a task reaches the server.
    Command { number: u64 },
    /// A task notices that it shall end.
    Notice { owner: usize, serial: u64 },
    /// A fault begins or ends.
    Fault { index: usize, begins: bool },
}

/// The queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    count: u64,
}

impl Queue {
    /// Plans something.
    pub(crate) fn at(&mut self, at_ns: u64, happening: Happening) {
        self.count += 1;
        self.heap.push(Reverse((at_ns, self.count, happening)));
    }

    /// What comes next.
    pub(crate) fn pop(&mut self) -> Option<(u64, Happening)> {
        self.heap
            .pop()
            .map(|Reverse((at_ns, _, happening))| (at_ns, happening))
    }
}
