//! Knows who is to blame and ends it one look after it began: the upper bound. No source; nobody can have it.

use std::sync::Arc;

use super::{Action, Controller, Seen};
use crate::plan::Plan;
use crate::scenario::RightAction;

/// The oracle.
pub(crate) struct Oracle {
    culprit: Vec<bool>,
    with_session: bool,
    acts: bool,
}

impl Oracle {
    /// Reads the answer in the plan.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        let action = plan.scenario.answer.action;
        Self {
            culprit: plan.classes.iter().map(|class| class.culprit).collect(),
            with_session: action == RightAction::Session,
            acts: !matches!(action, RightAction::None | RightAction::Alert),
        }
    }
}

impl Controller for Oracle {
    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let culprits = seen
            .tasks
            .iter()
            .filter(|task| self.acts && self.culprit[task.class] && !task.killed);
        out.extend(
            culprits
                .map(|culprit| culprit.end(self.with_session || culprit.idle_since_ns.is_some())),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{demand, lock_hog, summary};

    #[test]
    fn the_culprit_alone_is_ended_before_anybody_is_late() {
        let with = summary(&lock_hog(), "oracle");
        assert!(
            with.culprit_drops > 0.9 && with.wrong_count < 1.0 && with.bad_s < 0.2,
            "{with:?}"
        );
    }

    #[test]
    fn with_nobody_to_blame_nothing_is_done() {
        assert!(summary(&demand(), "oracle").cancel_count < 1.0);
    }
}
