//! Three places to shed load, and all of them together. Source: the load-shedding page of the seeds: cap the work in
//! flight; look at the queue before adding to it; skip work that nobody waits for any more.
//!
//! Limits: in flight, as many as the cores can serve within the objective (cores x L / S); queue, 100 (the page's own);
//! deadline, L - S after arrival, checked by the worker when it takes the job. None of them touches a running culprit.

use std::sync::Arc;

use super::{Action, Controller, Ended, Job, Verdict};
use crate::plan::Plan;

const QUEUE_LIMIT: usize = 100;

/// Any of the three.
pub(crate) struct Shedding {
    cap: Option<usize>,
    inside: usize,
    queue_limit: Option<usize>,
    budget_ns: Option<u64>,
}

impl Shedding {
    /// The chosen ones of the three.
    pub(crate) fn new(plan: &Arc<Plan>, cap: bool, length: bool, deadline: bool) -> Self {
        let service_ns = plan.mean_service_ns().max(1);
        let fits = (plan.cores * plan.slo_ns as f64 / service_ns as f64).max(plan.cores) as usize;
        Self {
            cap: cap.then_some(fits),
            inside: 0,
            queue_limit: length.then_some(QUEUE_LIMIT),
            budget_ns: deadline.then_some(plan.slo_ns.saturating_sub(service_ns)),
        }
    }
}

impl Controller for Shedding {
    fn sees_waits(&self) -> bool {
        false
    }

    fn admit(&mut self, job: &Job) -> Verdict {
        let full = self.cap.is_some_and(|cap| self.inside >= cap);
        let long = self.queue_limit.is_some_and(|limit| job.queue_len >= limit);
        if full || long {
            return Verdict::Reject;
        }
        self.inside += 1;
        Verdict::Admit
    }

    fn dequeue(&mut self, job: &Job) -> bool {
        self.budget_ns
            .is_none_or(|budget_ns| job.now_ns - job.arrived_ns <= budget_ns)
    }

    /// However a request ends, its place is free again: nothing leaks.
    fn ended(&mut self, _ended: &Ended, _out: &mut Vec<Action>) {
        self.inside = self.inside.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{demand, lock_hog, summary};

    #[test]
    fn each_serves_more_within_the_objective_when_there_is_too_much_demand() {
        let without = summary(&demand(), "none");
        for name in ["shed-cap", "shed-deadline", "shed-all"] {
            let with = summary(&demand(), name);
            assert!(
                with.good_count > 1.3 * without.good_count,
                "{name}: {with:?} {without:?}"
            );
        }
    }

    #[test]
    fn a_short_queue_bounds_the_latency() {
        let (with, without) = (
            summary(&demand(), "shed-length"),
            summary(&demand(), "none"),
        );
        assert!(
            with.p99_ns * 5.0 < without.p99_ns && with.innocent_drops > 0.2,
            "{with:?} {without:?}"
        );
    }

    #[test]
    fn the_cap_comes_down_again_after_the_hog() {
        let with = summary(&lock_hog(), "shed-cap");
        assert!(with.culprit_drops < f64::EPSILON);
        // Four of the eight seconds are lost; what comes after is served.
        assert!(
            with.innocent_drops > 0.3 && with.innocent_drops < 0.55,
            "{with:?}"
        );
    }
}
