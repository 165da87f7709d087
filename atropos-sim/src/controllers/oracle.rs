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
        out.extend(culprits.map(|culprit| Action::Cancel {
            task: culprit.task,
            with_session: self.with_session || culprit.idle_since_ns.is_some(),
            number: 0,
        }));
    }
}
