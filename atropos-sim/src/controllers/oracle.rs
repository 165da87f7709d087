//! Knows who is to blame and ends it one look after it began: the upper bound. No source; nobody can have it.
//!
//! The patient one ends it once it has been at work for as long as ending a task has to free at least, the least for whoever expects
//! a task to go on for as long again. A yardstick and no bound: progress that tells of more to come can make a rule sooner.

use std::sync::Arc;

use atropos_engine::settings::Tuning;

use super::{Action, Controller, Seen};
use crate::plan::Plan;
use crate::scenario::RightAction;

/// The oracle.
pub(crate) struct Oracle {
    culprit: Vec<bool>,
    with_session: bool,
    acts: bool,
    patience_ns: u64,
}

impl Oracle {
    /// Reads the answer in the plan.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        let action = plan.scenario.answer.action;
        Self {
            culprit: plan.classes.iter().map(|class| class.culprit).collect(),
            with_session: action == RightAction::Session,
            acts: !matches!(action, RightAction::None | RightAction::Alert),
            patience_ns: 0,
        }
    }

    /// One that waits for as long as the engine's defaults want ending a task to free.
    pub(crate) fn patient(plan: &Arc<Plan>) -> Self {
        Self {
            patience_ns: (Tuning::default().min_gain_s * 1e9) as u64,
            ..Self::new(plan)
        }
    }
}

impl Controller for Oracle {
    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let culprits = seen
            .tasks
            .iter()
            .filter(|task| self.acts && self.culprit[task.class] && !task.killed)
            .filter(|task| task.started_ns + self.patience_ns <= seen.now_ns);
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
    fn the_patient_one_lets_the_harm_last_as_long_as_it_has_to_be_worth() {
        let (at_once, late) = (
            summary(&lock_hog(), "oracle").bad_s,
            summary(&lock_hog(), "oracle-patient").bad_s,
        );
        assert!((0.1..0.5).contains(&(late - at_once)), "{at_once} {late}");
    }

    #[test]
    fn with_nobody_to_blame_nothing_is_done() {
        for controller in ["oracle", "oracle-patient"] {
            assert!(summary(&demand(), controller).cancel_count < 1.0);
        }
    }
}
