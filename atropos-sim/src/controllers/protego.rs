//! Protego (NSDI 2023): admission by performance, and an end for those who wait for locks too long. Source:
//! inhocho89/shenango-protego `breakwater/src/bw2_server.c`, `sync.c`.
//!
//! Constants: slope 1/4, AI 0.0005 for each of 1,000 clients, credits between the number of cores and 64 a client, changed
//! each 200 ms (200 us there) with the first 100 ms after a change ignored. Budget of waiting: half the objective, the
//! bench's choice (55 us there). It drops *victims*: everybody behind the hog, while the hog keeps the lock.

use std::sync::Arc;

use super::credits::Gate;
use super::{Action, Controller, Ended, Job, Seen, Verdict, Waiting};
use crate::plan::Plan;

const PERIOD_NS: u64 = 100_000_000;
const SLOPE_INVERSE: i64 = 4;
const STEP: f64 = 1.0;

/// Protego.
pub(crate) struct Protego {
    budget_ns: u64,
    gate: Gate,
    counted: Counts,
    before: Counts,
    ignoring: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    came: i64,
    served: i64,
}

impl Protego {
    /// Scaled to the plan's objective.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            budget_ns: plan.slo_ns / 2,
            gate: Gate::new(plan.cores),
            counted: Counts::default(),
            before: Counts::default(),
            ignoring: true,
        }
    }

    /// More credits while they pay off in requests served.
    fn adjust(&mut self) {
        let (now, before) = (self.counted, self.before);
        let (came, served) = (now.came - before.came, now.served - before.served);
        let full = self.gate.is_full();
        let up = if now.came == 0 {
            true
        } else if came >= 0 {
            served > 0 && SLOPE_INVERSE * served >= came && full
        } else {
            served < 0 && SLOPE_INVERSE * -served > -came && full
        };
        let change = if up { STEP } else { -STEP };
        self.gate.change(|credits| credits + change);
        self.before = now;
    }
}

impl Controller for Protego {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        PERIOD_NS
    }

    fn admit(&mut self, job: &Job) -> Verdict {
        self.counted.came += 1;
        if job.queue_delay_ns > self.budget_ns {
            return Verdict::Reject;
        }
        self.gate.admit(job)
    }

    fn wait(&mut self, waiting: &Waiting) -> bool {
        waiting.job.waited_ns + waiting.oldest_wait_ns <= self.budget_ns
    }

    fn ended(&mut self, ended: &Ended, out: &mut Vec<Action>) {
        self.counted.served += i64::from(ended.served);
        self.gate.ended(out);
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        self.gate.drop_late(seen.now_ns, self.budget_ns, out);
        self.ignoring = !self.ignoring;
        if self.ignoring {
            self.adjust();
        }
        self.counted = Counts::default();
        self.gate.let_in(seen, out);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{lock_hog, summary};

    #[test]
    fn victims_of_a_lock_hog_are_dropped_and_the_hog_goes_on() {
        let with = summary(&lock_hog(), "protego");
        assert!(with.innocent_drops > 0.3, "{with:?}");
        assert!(with.culprit_drops < f64::EPSILON && with.cancel_count < 1.0);
    }
}
