//! Times in which everything stood still: a pause for garbage, a frozen virtual machine, a debugger. What somebody held in
//! such a time it did not keep from others, since nobody could have used it.
//!
//! A stall behind a lock looks different: there those who do not go on *wait*. Stillness is when requests that wait for
//! nothing, and that began not long ago, do not end, and nobody's wait ends either.

use std::collections::VecDeque;

use super::input::Tick;
use super::ledger::Ledger;

/// Requests that are older than this may well be at work that takes long: that they do not end says nothing. 5 s; a pause
/// that is longer than that is counted in its first five seconds.
const YOUNG_NS: u64 = 5_000_000_000;

/// So many young requests must stand still: one or two may be slow by themselves.
const ENOUGH: u64 = 3;

/// Times remembered.
const KEPT: usize = 64;

/// Times in which everything stood still, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Stillness {
    times_ns: VecDeque<(u64, u64)>,
    looked_ns: u64,
    /// Waits that had ended at the latest tick.
    ended: u64,
}

impl Stillness {
    fn add(&mut self, from_ns: u64, to_ns: u64) {
        if let Some(last) = self.times_ns.back_mut().filter(|last| last.1 == from_ns) {
            last.1 = to_ns;
            return;
        }
        if self.times_ns.len() == KEPT {
            self.times_ns.pop_front();
        }
        self.times_ns.push_back((from_ns, to_ns));
    }

    /// How much of the time since `since_ns` stood still, nanoseconds.
    fn since_ns(&self, since_ns: u64) -> u64 {
        let inside = |(from_ns, to_ns): &(u64, u64)| to_ns.saturating_sub((*from_ns).max(since_ns));
        self.times_ns.iter().map(inside).sum()
    }
}

impl Ledger {
    /// Judges the time since the tick before; to be called after the tick's sessions were taken in.
    pub(super) fn note_stillness(&mut self, tick: &Tick) {
        let now_ns = self.now_ns;
        let from_ns = std::mem::replace(&mut self.stillness.looked_ns, now_ns);
        let ended = std::mem::replace(&mut self.stillness.ended, self.ended_waits);
        let none_ended = tick.requests.completed == Some(0)
            && tick.requests.latency.is_empty()
            && ended == self.ended_waits;
        if !none_ended || from_ns == 0 || from_ns == now_ns {
            return;
        }
        let (mut still, mut waiting) = (0_u64, 0_u64);
        for (_, brief) in self.sessions.briefs() {
            let begun_ns = brief
                .busy_since_ns()
                .filter(|since_ns| now_ns.saturating_sub(*since_ns) < YOUNG_NS);
            match begun_ns {
                Some(_) if brief.waits => waiting += 1,
                Some(_) => still += 1,
                None => {}
            }
        }
        if still >= ENOUGH && still >= waiting {
            self.stillness.add(from_ns, now_ns);
        }
    }

    /// Nothing is known of the time since the tick before.
    pub(super) fn note_unseen(&mut self) {
        (self.stillness.looked_ns, self.stillness.ended) = (self.now_ns, self.ended_waits);
    }

    /// Time since `since_ns` in which the target moved, nanoseconds.
    pub(super) fn moving_ns(&self, since_ns: u64) -> u64 {
        self.now_ns
            .saturating_sub(since_ns)
            .saturating_sub(self.stillness.since_ns(since_ns))
    }
}

#[cfg(test)]
#[path = "stillness_tests.rs"]
mod tests;
