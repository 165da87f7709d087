//! Requests that wait outside until there is room for them: what the schemes with credits share.

use std::collections::VecDeque;

use super::{Action, Job, Seen, Verdict};
use crate::world::task::TaskRef;

/// Clients that the constants are made for.
pub(crate) const CLIENT_COUNT: f64 = 1_000.0;

/// Credits, and the line of those who have none.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    /// The least that there can be: one for each core.
    least: f64,
    credits: f64,
    used: usize,
    line: Line,
}

impl Gate {
    /// Theirs start with one for each core and grow within microseconds; a tenth of a second is worth ten times that here.
    pub(crate) fn new(cores: f64) -> Self {
        Self {
            least: cores,
            credits: 10.0 * cores,
            used: 0,
            line: Line::default(),
        }
    }

    /// A request at the door: it takes a credit, or waits for one.
    pub(crate) fn admit(&mut self, job: &Job) -> Verdict {
        if self.room() == 0 {
            self.line.hold(job);
            return Verdict::Hold;
        }
        self.used += 1;
        Verdict::Admit
    }

    /// A request is over: its credit goes to the next.
    pub(crate) fn ended(&mut self, out: &mut Vec<Action>) {
        self.used = self.used.saturating_sub(1);
        self.used += self.line.let_in(self.room(), out);
    }

    /// Every credit is in use.
    pub(crate) fn is_full(&self) -> bool {
        self.used as f64 >= self.credits
    }

    /// Changes the number of credits.
    pub(crate) fn change(&mut self, change: impl FnOnce(f64) -> f64) {
        self.credits = change(self.credits).clamp(self.least, CLIENT_COUNT * 64.0);
    }

    /// Those who have waited outside beyond their patience go.
    pub(crate) fn drop_late(&mut self, now_ns: u64, patience_ns: u64, out: &mut Vec<Action>) {
        self.line.drop_late(now_ns, patience_ns, out);
    }

    /// Lets in whom the credits allow.
    pub(crate) fn let_in(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        self.used += self.line.let_in(self.room(), out);
        // A request let in may have been given up by its client: the server's own count is the truth.
        self.used = self.used.min(seen.tasks.len() + self.room());
    }

    fn room(&self) -> usize {
        (self.credits as usize).saturating_sub(self.used)
    }
}

/// A line of requests outside.
#[derive(Clone, Debug, Default)]
struct Line {
    held: VecDeque<(TaskRef, u64)>,
}

impl Line {
    /// Adds one.
    fn hold(&mut self, job: &Job) {
        self.held.push_back((job.task, job.now_ns));
    }

    /// Lets in as many as fit.
    fn let_in(&mut self, room: usize, out: &mut Vec<Action>) -> usize {
        let count = room.min(self.held.len());
        out.extend(
            self.held
                .drain(..count)
                .map(|(task, _)| Action::LetIn(task)),
        );
        count
    }

    /// Drops those who have waited longer than this.
    fn drop_late(&mut self, now_ns: u64, patience_ns: u64, out: &mut Vec<Action>) {
        while let Some((task, since_ns)) = self.held.front().copied() {
            if now_ns - since_ns <= patience_ns {
                return;
            }
            self.held.pop_front();
            out.push(Action::AbortWaiter(task));
        }
    }
}
