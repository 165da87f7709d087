//! Breakwater (OSDI 2020): credits by queueing delay. Source: shenango/caladan `breakwater/src/bw_server.c`, `bw_config.h`.
//!
//! Constants there are for a mean service time S of 10 us. Ratios are kept: target delay 8 S, refusal at 16 S, a client's
//! own queue S (at least one period); MD 0.02, AI 0.001 for each of 1,000 clients; period 10 ms instead of 10 us. The cores
//! of the simulated server are shared, so its run-queue delay is (jobs / cores - 1) slices of 3 ms. It knows no
//! resources: behind a lock no queue for the processor builds up, and it admits.

use std::sync::Arc;

use super::credits::{CLIENT_COUNT, Gate};
use super::{Action, Controller, Ended, Job, Seen, Verdict};
use crate::plan::Plan;

const PERIOD_NS: u64 = 10_000_000;
const DECREASE: f64 = 0.02;
const INCREASE: f64 = 0.001;

/// Breakwater.
pub(crate) struct Breakwater {
    target_ns: u64,
    patience_ns: u64,
    gate: Gate,
}

impl Breakwater {
    /// Scaled to the plan's mean service time.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        let service_ns = plan.mean_service_ns();
        Self {
            target_ns: 8 * service_ns,
            patience_ns: service_ns.max(PERIOD_NS),
            gate: Gate::new(plan.cores),
        }
    }
}

impl Controller for Breakwater {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        PERIOD_NS
    }

    fn admit(&mut self, job: &Job) -> Verdict {
        if job.queue_delay_ns >= 2 * self.target_ns {
            return Verdict::Reject;
        }
        self.gate.admit(job)
    }

    fn ended(&mut self, _ended: &Ended, out: &mut Vec<Action>) {
        self.gate.ended(out);
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        let over = seen.queue_delay_ns as f64 / self.target_ns as f64 - 1.0;
        self.gate.change(|credits| {
            if over >= 0.0 {
                credits * (1.0 - DECREASE * over).max(0.5)
            } else {
                credits + INCREASE * CLIENT_COUNT
            }
        });
        self.gate.drop_late(seen.now_ns, self.patience_ns, out);
        self.gate.let_in(seen, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{demand, lock_hog, summary};

    #[test]
    fn demand_beyond_capacity_is_served_within_the_objective_by_refusing_the_rest() {
        let (with, without) = (summary(&demand(), "breakwater"), summary(&demand(), "none"));
        assert!(
            with.good_count > 3.0 * without.good_count,
            "{with:?} {without:?}"
        );
        assert!(with.innocent_drops > 0.2);
    }

    #[test]
    fn a_lock_hog_is_not_seen() {
        let with = summary(&lock_hog(), "breakwater");
        assert!(
            with.culprit_drops < f64::EPSILON && with.bad_s > 3.0,
            "{with:?}"
        );
    }
}
