//! A pool of slots (workers, tickets, connections) with a queue in front, bounded or not.

use std::collections::VecDeque;

/// Somebody with a slot, or in line for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) owner: usize,
    pub(crate) since_ns: u64,
}

/// What became of a request for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It has one.
    In,
    /// It waits.
    Queued,
    /// The queue is full.
    Full,
}

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    slot_count: usize,
    queue_limit: usize,
    pub(crate) holders: Vec<Place>,
    pub(crate) queue: VecDeque<Place>,
}

impl Pool {
    /// So many slots, and room for so many to wait.
    pub(crate) fn new(slot_count: usize, queue_limit: usize) -> Self {
        Self {
            slot_count,
            queue_limit,
            holders: Vec::new(),
            queue: VecDeque::new(),
        }
    }

    /// Asks for a slot.
    pub(crate) fn enter(&mut self, owner: usize, now_ns: u64) -> Entry {
        let place = Place {
            owner,
            since_ns: now_ns,
        };
        if self.holders.len() < self.slot_count {
            self.holders.push(place);
            return Entry::In;
        }
        if self.queue.len() >= self.queue_limit {
            return Entry::Full;
        }
        self.queue.push_back(place);
        Entry::Queued
    }

    /// Gives a slot back.
    pub(crate) fn leave(&mut self, owner: usize) {
        self.holders.retain(|place| place.owner != owner);
    }

    /// Leaves the line.
    pub(crate) fn give_up(&mut self, owner: usize) {
        self.queue.retain(|place| place.owner != owner);
    }

    /// The next in line, if there is a slot for it: it holds the slot from now on.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<usize> {
        if self.holders.len() >= self.slot_count {
            return None;
        }
        let owner = self.queue.pop_front()?.owner;
        self.holders.push(Place {
            owner,
            since_ns: now_ns,
        });
        Some(owner)
    }

    /// How long the first in line has waited, nanoseconds.
    pub(crate) fn head_wait_ns(&self, now_ns: u64) -> u64 {
        self.queue
            .front()
            .map_or(0, |place| now_ns.saturating_sub(place.since_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_in_order_and_a_full_queue_refuses() {
        let mut pool = Pool::new(1, 1);
        assert_eq!(pool.enter(1, 0), Entry::In);
        assert_eq!(pool.enter(2, 5), Entry::Queued);
        assert_eq!(pool.enter(3, 6), Entry::Full);
        assert_eq!(pool.head_wait_ns(15), 10);
        assert_eq!(pool.next(15), None);
        pool.leave(1);
        assert_eq!(pool.next(15), Some(2));
    }
}
