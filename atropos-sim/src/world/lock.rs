//! A lock with shared and exclusive holders, a fair queue and re-entry.

use std::collections::VecDeque;

/// How a lock is held or wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// With other readers.
    Shared,
    /// Alone.
    Exclusive,
}

impl Mode {
    /// Its index in the engine's settings.
    pub(crate) fn index(self) -> u32 {
        u32::from(self == Self::Exclusive)
    }

    fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// A holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) owner: usize,
    pub(crate) mode: Mode,
    pub(crate) since_ns: u64,
    count: u32,
}

/// A waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) owner: usize,
    pub(crate) mode: Mode,
    pub(crate) since_ns: u64,
}

/// A lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    pub(crate) holders: Vec<Holder>,
    pub(crate) queue: VecDeque<Waiter>,
}

impl Lock {
    /// Asks for the lock; true if it is granted at once, false if `owner` is queued.
    pub(crate) fn ask(&mut self, owner: usize, mode: Mode, now_ns: u64) -> bool {
        let held = self.holders.iter().position(|holder| holder.owner == owner);
        if let Some(at) = held {
            if mode <= self.holders[at].mode || self.holders.len() == 1 {
                let holder = &mut self.holders[at];
                holder.mode = holder.mode.max(mode);
                holder.count += 1;
                return true;
            }
            // An upgrade goes before everybody: nobody behind it could be served first.
            self.queue.push_front(Waiter {
                owner,
                mode,
                since_ns: now_ns,
            });
            return false;
        }
        if self.queue.is_empty() && self.admits(owner, mode) {
            self.holders.push(Holder {
                owner,
                mode,
                since_ns: now_ns,
                count: 1,
            });
            return true;
        }
        self.queue.push_back(Waiter {
            owner,
            mode,
            since_ns: now_ns,
        });
        false
    }

    fn admits(&self, owner: usize, mode: Mode) -> bool {
        self.holders
            .iter()
            .all(|holder| holder.owner == owner || !mode.conflicts(holder.mode))
    }

    /// Lets the lock go altogether, however often it was taken; returns who got it.
    pub(crate) fn let_go(&mut self, owner: usize, now_ns: u64) -> Vec<usize> {
        self.holders.retain(|holder| holder.owner != owner);
        self.grant(now_ns)
    }

    /// Takes a waiter out of the queue; returns who got the lock by that.
    pub(crate) fn leave(&mut self, owner: usize, now_ns: u64) -> Vec<usize> {
        self.queue.retain(|waiter| waiter.owner != owner);
        self.grant(now_ns)
    }

    fn grant(&mut self, now_ns: u64) -> Vec<usize> {
        let mut granted = Vec::new();
        while let Some(next) = self.queue.front().copied() {
            if !self.admits(next.owner, next.mode) {
                break;
            }
            self.queue.pop_front();
            match self
                .holders
                .iter_mut()
                .find(|holder| holder.owner == next.owner)
            {
                Some(holder) => holder.mode = next.mode,
                None => self.holders.push(Holder {
                    owner: next.owner,
                    mode: next.mode,
                    since_ns: now_ns,
                    count: 1,
                }),
            }
            granted.push(next.owner);
        }
        granted
    }

    /// Holders in the way of a waiter.
    pub(crate) fn blocking(&self, waiter: Waiter) -> impl Iterator<Item = &Holder> {
        self.holders.iter().filter(move |holder| {
            holder.owner != waiter.owner && waiter.mode.conflicts(holder.mode)
        })
    }

    /// Waiters before the one at `place` that want what conflicts with it.
    pub(crate) fn ahead(&self, place: usize) -> impl Iterator<Item = &Waiter> {
        let mode = self.queue[place].mode;
        self.queue
            .iter()
            .take(place)
            .filter(move |waiter| mode.conflicts(waiter.mode))
    }
}

#[cfg(test)]
mod tests {
    use super::Mode::{Exclusive, Shared};
    use super::*;

    #[test]
    fn readers_share_and_a_queued_writer_stops_later_readers() {
        let mut lock = Lock::default();
        assert!(lock.ask(1, Shared, 0));
        assert!(lock.ask(2, Shared, 0));
        assert!(!lock.ask(3, Exclusive, 1));
        assert!(!lock.ask(4, Shared, 2));
        assert_eq!(
            lock.ahead(1).map(|waiter| waiter.owner).collect::<Vec<_>>(),
            [3]
        );
        assert_eq!(lock.leave(3, 3), [4]);
    }

    #[test]
    fn a_holder_enters_again_even_behind_a_queue() {
        let mut lock = Lock::default();
        assert!(lock.ask(1, Shared, 0));
        assert!(!lock.ask(2, Exclusive, 0));
        assert!(lock.ask(1, Shared, 0));
        assert_eq!(lock.let_go(1, 1), [2]);
    }

    #[test]
    fn an_upgrade_waits_for_the_other_readers_only() {
        let mut lock = Lock::default();
        assert!(lock.ask(1, Shared, 0));
        assert!(lock.ask(2, Shared, 0));
        assert!(!lock.ask(3, Exclusive, 0));
        assert!(!lock.ask(1, Exclusive, 0));
        assert_eq!(lock.let_go(2, 1), [1]);
        assert_eq!(lock.holders.len(), 1);
    }
}
