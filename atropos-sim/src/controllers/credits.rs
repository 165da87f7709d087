//! Requests that wait outside until there is room for them: what the schemes with credits share.

use std::collections::VecDeque;

use super::{Action, Job};
use crate::world::task::TaskRef;

/// A line of requests outside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    held: VecDeque<(TaskRef, u64)>,
}

impl Line {
    /// Adds one.
    pub(crate) fn hold(&mut self, job: &Job) {
        self.held.push_back((job.task, job.now_ns));
    }

    /// Lets in as many as fit.
    pub(crate) fn let_in(&mut self, room: usize, out: &mut Vec<Action>) -> usize {
        let count = room.min(self.held.len());
        out.extend(
            self.held
                .drain(..count)
                .map(|(task, _)| Action::LetIn(task)),
        );
        count
    }

    /// Drops those who have waited longer than this.
    pub(crate) fn drop_late(&mut self, now_ns: u64, patience_ns: u64, out: &mut Vec<Action>) {
        while let Some((task, since_ns)) = self.held.front().copied() {
            if now_ns - since_ns <= patience_ns {
                return;
            }
            self.held.pop_front();
            out.push(Action::AbortWaiter(task));
        }
    }
}
