//! What operators use today against blocked sessions: end the root of the wait-for tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atropos_engine::settings::Kind;

use super::{Action, Controller, Seen};
use crate::plan::Plan;
use crate::world::task::TaskRef;

const SECOND_NS: u64 = 1_000_000_000;

/// Ends the root of the largest wait-for tree over locks (as with `pg_blocking_pids`, Oracle's root blocker). Looks each
/// 100 ms; acts when a wait is older than the objective; one at a time; ends the session if it is idle.
pub(crate) struct RootBlocker {
    wait_ns: u64,
    /// By resource: it is a lock.
    is_lock: Vec<bool>,
}

impl RootBlocker {
    /// Acts on waits beyond the objective.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            wait_ns: plan.slo_ns,
            is_lock: plan
                .engine
                .resources
                .iter()
                .map(|resource| resource.kind == Kind::Lock)
                .collect(),
        }
    }
}

impl Controller for RootBlocker {
    fn tick_ns(&self) -> u64 {
        SECOND_NS / 10
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let mut blockers: BTreeMap<TaskRef, Vec<TaskRef>> = BTreeMap::new();
        let mut old = false;
        for wait in seen.waits.iter().filter(|wait| self.is_lock[wait.resource]) {
            old |= seen.now_ns - wait.since_ns > self.wait_ns;
            blockers
                .entry(wait.task)
                .or_default()
                .extend(wait.blockers.iter().map(|blocker| blocker.task));
        }
        if !old {
            return;
        }
        // Every waiter counts for each root that it can reach.
        let mut behind: BTreeMap<TaskRef, usize> = BTreeMap::new();
        for waiter in blockers.keys() {
            for root in roots(&blockers, *waiter) {
                *behind.entry(root).or_default() += 1;
            }
        }
        let known: BTreeMap<TaskRef, _> = seen.tasks.iter().map(|task| (task.task, task)).collect();
        let age = |root: &TaskRef| known.get(root).map_or(u64::MAX, |task| task.started_ns);
        let most = behind
            .iter()
            .max_by(|a, b| a.1.cmp(b.1).then(age(b.0).cmp(&age(a.0))));
        let Some(root) = most
            .and_then(|(root, _)| known.get(root))
            .filter(|root| !root.killed)
        else {
            return;
        };
        out.push(root.end(root.idle_since_ns.is_some()));
    }
}

fn roots(blockers: &BTreeMap<TaskRef, Vec<TaskRef>>, from: TaskRef) -> BTreeSet<TaskRef> {
    let mut pending = vec![from];
    let mut seen = BTreeSet::new();
    let mut roots = BTreeSet::new();
    while let Some(at) = pending.pop() {
        if !seen.insert(at) {
            continue;
        }
        match blockers.get(&at) {
            Some(next) => pending.extend(next),
            None => {
                roots.insert(at);
            }
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{demand, lock_hog, summary};

    #[test]
    fn the_holder_is_ended_and_nobody_else() {
        let summary = summary(&lock_hog(), "root-blocker");
        assert!(
            summary.culprit_drops > 0.9 && summary.wrong_count < 1.0,
            "{summary:?}"
        );
    }

    #[test]
    fn without_locks_there_is_no_root() {
        assert!(summary(&demand(), "root-blocker").cancel_count < 1.0);
    }
}
