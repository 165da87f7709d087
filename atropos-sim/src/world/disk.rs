//! A disk: a few channels that serve one first-in-first-out queue.

use std::collections::VecDeque;

/// An operation: who wants it, by ticket, and its nominal service time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) owner: usize,
    pub(crate) ticket: u64,
    pub(crate) service_ns: u64,
}

/// A disk.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    channel_count: usize,
    busy: usize,
    queue: VecDeque<Operation>,
    /// How much slower than nominal it is at present.
    pub(crate) slowness: f64,
}

impl Disk {
    /// An idle disk.
    pub(crate) fn new(channel_count: usize) -> Self {
        Self {
            channel_count: channel_count.max(1),
            busy: 0,
            queue: VecDeque::new(),
            slowness: 1.0,
        }
    }

    /// Adds an operation; its service time if it starts at once.
    pub(crate) fn ask(&mut self, operation: Operation) -> Option<u64> {
        if self.busy < self.channel_count {
            self.busy += 1;
            return Some(self.service_ns(operation));
        }
        self.queue.push_back(operation);
        None
    }

    fn service_ns(&self, operation: Operation) -> u64 {
        (operation.service_ns as f64 * self.slowness) as u64
    }

    /// An operation is over: the next one and its service time.
    pub(crate) fn done(&mut self) -> Option<(Operation, u64)> {
        let Some(next) = self.queue.pop_front() else {
            self.busy -= 1;
            return None;
        };
        Some((next, self.service_ns(next)))
    }

    /// Takes an operation out of the queue. One that is being served goes on: a device does not stop half way.
    pub(crate) fn cancel(&mut self, ticket: u64) {
        self.queue.retain(|operation| operation.ticket != ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_served_in_order_and_slower_on_a_slow_disk() {
        let mut disk = Disk::new(1);
        let operation = |ticket| Operation {
            owner: 0,
            ticket,
            service_ns: 100,
        };
        assert_eq!(disk.ask(operation(1)), Some(100));
        assert_eq!(disk.ask(operation(2)), None);
        assert_eq!(disk.ask(operation(3)), None);
        disk.cancel(2);
        disk.slowness = 10.0;
        assert_eq!(disk.done(), Some((operation(3), 1_000)));
        assert_eq!(disk.done(), None);
        assert_eq!(disk.ask(operation(4)), Some(1_000));
    }
}
