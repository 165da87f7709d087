//! What operators use today against long requests: limits on age and on waiting. All of them take age for guilt.

use std::collections::BTreeMap;

use super::seen::SeenTask;
use super::{Action, Controller, Job, Seen, Verdict};
use crate::plan::Plan;

const SECOND_NS: u64 = 1_000_000_000;

/// Requests that have been busy for longer than ten objectives.
#[derive(Clone, Copy, Debug)]
struct AgeLimit {
    ns: u64,
}

impl AgeLimit {
    fn new(plan: &Plan) -> Self {
        Self {
            ns: 10 * plan.slo_ns,
        }
    }

    fn beyond(self, seen: &Seen) -> impl Iterator<Item = &SeenTask> {
        let is_old = move |task: &&SeenTask| seen.now_ns - task.started_ns > self.ns;
        let busy = |task: &&SeenTask| task.idle_since_ns.is_none() && !task.killed;
        seen.tasks.iter().filter(busy).filter(is_old)
    }
}

/// Ends busy requests beyond a limit, and knows nothing else about them.
pub(crate) struct AgeKiller {
    limit: AgeLimit,
    every_ns: u64,
    /// The oldest alone, or all of them.
    one: bool,
    with_session: bool,
}

impl AgeKiller {
    /// The oldest, as `pt-kill --busy-time --victims oldest` does: one look a second, one kill a look.
    pub(crate) fn pt_kill(plan: &Plan) -> Self {
        Self {
            limit: AgeLimit::new(plan),
            every_ns: SECOND_NS,
            one: true,
            with_session: false,
        }
    }

    /// Every active backend, as scripts around `pg_terminate_backend` do, once a second, waiters too.
    pub(crate) fn pg_terminate(plan: &Plan) -> Self {
        Self {
            limit: AgeLimit::new(plan),
            every_ns: SECOND_NS,
            one: false,
            with_session: true,
        }
    }

    /// `statement_timeout`, `max_statement_time`: whatever runs too long.
    pub(crate) fn timeout_any(plan: &Plan) -> Self {
        Self {
            limit: AgeLimit::new(plan),
            every_ns: SECOND_NS / 20,
            one: false,
            with_session: false,
        }
    }
}

impl Controller for AgeKiller {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        self.every_ns
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let mut old: Vec<&SeenTask> = self.limit.beyond(seen).collect();
        old.sort_by_key(|task| (task.started_ns, task.task));
        let count = if self.one { 1 } else { old.len() };
        out.extend(
            old.into_iter()
                .take(count)
                .map(|task| task.end(self.with_session)),
        );
    }
}

/// `lock_timeout`, `innodb_lock_wait_timeout`: whoever waits longer than the objective gives up.
pub(crate) struct TimeoutVictim {
    limit_ns: u64,
}

impl TimeoutVictim {
    /// Waits of one objective.
    pub(crate) fn new(plan: &Plan) -> Self {
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
    limit: AgeLimit,
    refused_until_ns: BTreeMap<usize, u64>,
}

impl TidbRunaway {
    /// A limit of ten objectives.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            limit: AgeLimit::new(plan),
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
        for task in self.limit.beyond(seen) {
            self.refused_until_ns
                .insert(task.class, seen.now_ns + 600 * SECOND_NS);
            out.push(task.end(false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{lock_hog, plan, summary};

    #[test]
    fn pt_kill_ends_one_a_second_the_oldest_first_guilty_or_not() {
        // The hog of two seconds in is not the oldest for long: each second somebody is ended, ten objectives old or more.
        let with = summary(&lock_hog(), "pt-kill");
        assert!(with.culprit_drops > 0.9, "{with:?}");
        let job = plan(
            "innocent",
            "",
            "[[classes]]\nname = 'job'\nsteps = [{ sleep = '9s' }]\n\
             [[clients]]\nclass = 'job'\nsend = { at = ['1s', '1.1s', '1.2s', '1.3s', '1.4s', '1.5s', '1.6s', '1.7s'] }\n",
        );
        let of_jobs = summary(&job, "pt-kill");
        // Looks at 2, 3, .. 9 s.
        assert!(
            (of_jobs.wrong_count - 8.0).abs() < f64::EPSILON,
            "{of_jobs:?}"
        );
    }

    #[test]
    fn age_based_killers_end_the_hog_and_its_victims() {
        let plan = lock_hog();
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
