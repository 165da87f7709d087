//! What operators use today against long requests: limits on age and on waiting. All of them take age for guilt.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::seen::SeenTask;
use super::{Action, Controller, Job, Seen, Verdict};
use crate::plan::Plan;

const SECOND_NS: u64 = 1_000_000_000;

fn cancel(task: &SeenTask) -> Action {
    Action::Cancel {
        task: task.task,
        with_session: false,
        number: 0,
    }
}

fn age_ns(seen: &Seen, task: &SeenTask) -> u64 {
    seen.now_ns - task.started_ns
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that `filter` wants"
)]
fn is_busy(task: &&SeenTask) -> bool {
    task.idle_since_ns.is_none() && !task.killed
}

/// Ends the oldest busy request beyond a limit, as `pt-kill --busy-time --victims oldest` does: one look a second, one
/// kill a look. The limit is ten objectives.
pub(crate) struct PtKill {
    limit_ns: u64,
}

impl PtKill {
    /// A limit of ten objectives.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            limit_ns: 10 * plan.slo_ns,
        }
    }
}

impl Controller for PtKill {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        SECOND_NS
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let old = seen
            .tasks
            .iter()
            .filter(is_busy)
            .filter(|task| age_ns(seen, task) > self.limit_ns);
        out.extend(
            old.min_by_key(|task| (task.started_ns, task.task))
                .map(cancel),
        );
    }
}

/// Ends every active backend beyond a limit, as scripts around `pg_terminate_backend` do, once a second, waiters too.
/// The limit is ten objectives.
pub(crate) struct PgTerminate {
    limit_ns: u64,
}

impl PgTerminate {
    /// A limit of ten objectives.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            limit_ns: 10 * plan.slo_ns,
        }
    }
}

impl Controller for PgTerminate {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        SECOND_NS
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let old = seen
            .tasks
            .iter()
            .filter(is_busy)
            .filter(|task| age_ns(seen, task) > self.limit_ns);
        out.extend(old.map(|task| Action::Cancel {
            task: task.task,
            with_session: true,
            number: 0,
        }));
    }
}

/// `statement_timeout`, `max_statement_time`: whatever runs longer than ten objectives is ended.
pub(crate) struct TimeoutAny {
    limit_ns: u64,
}

impl TimeoutAny {
    /// A limit of ten objectives.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            limit_ns: 10 * plan.slo_ns,
        }
    }
}

impl Controller for TimeoutAny {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let old = seen
            .tasks
            .iter()
            .filter(is_busy)
            .filter(|task| age_ns(seen, task) > self.limit_ns);
        out.extend(old.map(cancel));
    }
}

/// `lock_timeout`, `innodb_lock_wait_timeout`: whoever waits longer than the objective gives up.
pub(crate) struct TimeoutVictim {
    limit_ns: u64,
}

impl TimeoutVictim {
    /// Waits of one objective.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            limit_ns: plan.slo_ns,
        }
    }
}

impl Controller for TimeoutVictim {
    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let long = seen
            .waits
            .iter()
            .filter(|wait| seen.now_ns - wait.since_ns > self.limit_ns);
        out.extend(long.map(|wait| Action::AbortWaiter(wait.task)));
    }
}

/// `TiDB`'s runaway queries: a statement that runs longer than ten objectives is ended, and its like is refused for ten
/// minutes.
pub(crate) struct TidbRunaway {
    limit_ns: u64,
    refused_until_ns: BTreeMap<usize, u64>,
}

impl TidbRunaway {
    /// A limit of ten objectives.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            limit_ns: 10 * plan.slo_ns,
            refused_until_ns: BTreeMap::new(),
        }
    }
}

impl Controller for TidbRunaway {
    fn sees_waits(&self) -> bool {
        false
    }

    fn admit(&mut self, job: &Job) -> Verdict {
        let refused = self
            .refused_until_ns
            .get(&job.class)
            .is_some_and(|until_ns| job.now_ns < *until_ns);
        if refused {
            Verdict::Reject
        } else {
            Verdict::Admit
        }
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        for task in seen
            .tasks
            .iter()
            .filter(is_busy)
            .filter(|task| age_ns(seen, task) > self.limit_ns)
        {
            self.refused_until_ns
                .insert(task.class, seen.now_ns + 600 * SECOND_NS);
            out.push(cancel(task));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{lock_hog, summary};

    #[test]
    fn age_based_killers_end_the_hog_and_its_victims() {
        let plan = lock_hog();
        assert!(summary(&plan, "pt-kill").culprit_drops > 0.0);
        let all = summary(&plan, "pg-terminate");
        assert!(all.culprit_drops > 0.0 && all.wrong_count > 5.0, "{all:?}");
        assert!(summary(&plan, "timeout-any").wrong_count > 5.0);
    }

    #[test]
    fn a_lock_timeout_drops_the_victims_and_leaves_the_hog() {
        let waiters = summary(&lock_hog(), "timeout-victim");
        assert!(waiters.innocent_drops > 0.3, "{waiters:?}");
        assert!(waiters.culprit_drops < f64::EPSILON);
    }

    #[test]
    fn runaway_rules_refuse_the_victims_class_for_good() {
        let runaway = summary(&lock_hog(), "tidb-runaway");
        assert!(runaway.innocent_drops > 0.8, "{runaway:?}");
    }
}
