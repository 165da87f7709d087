//! The paper's policy on plain looks, and its two ablations: current instead of future usage, and greedy on the most
//! contended resource. They share everything but the choice: overload is a p99 (with the ages of requests in flight)
//! above the objective for two looks, the resource must be contended above 0.1, one cancel each half second. No guard, no
//! blame, no undo: that is what the engine adds.

use std::collections::VecDeque;
use std::sync::Arc;

use super::seen::SeenTask;
use super::usage::{Usage, measure, to_go};
use super::{Action, Controller, Seen};
use crate::plan::Plan;

const WINDOW_NS: u64 = 500_000_000;
const FLOOR: f64 = 0.1;

/// How the choice is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Largest sum of contention times future usage.
    Future,
    /// Largest sum of contention times current usage.
    Current,
    /// Largest future usage of the most contended resource.
    Greedy,
}

/// The paper's policy.
pub(crate) struct Paper {
    plan: Arc<Plan>,
    rule: Rule,
    done: VecDeque<(u64, u64)>,
    looks_over: u32,
    acted_ns: u64,
}

impl Paper {
    /// With this rule.
    pub(crate) fn new(plan: &Arc<Plan>, rule: Rule) -> Self {
        Self {
            plan: plan.clone(),
            rule,
            done: VecDeque::new(),
            looks_over: 0,
            acted_ns: 0,
        }
    }

    fn is_over(&mut self, seen: &Seen) -> bool {
        self.done
            .extend(seen.done.iter().map(|done| (seen.now_ns, done.latency_ns)));
        while self
            .done
            .front()
            .is_some_and(|(at_ns, _)| at_ns + WINDOW_NS < seen.now_ns)
        {
            self.done.pop_front();
        }
        let busy = seen
            .tasks
            .iter()
            .filter(|task| task.idle_since_ns.is_none());
        let open = busy.map(|task| seen.now_ns - task.arrived_ns);
        let mut latencies: Vec<u64> = self
            .done
            .iter()
            .map(|(_, latency_ns)| *latency_ns)
            .chain(open)
            .collect();
        latencies.sort_unstable();
        let rank = (latencies.len() as f64 * 0.99).ceil() as usize;
        let p99_ns = latencies.get(rank.saturating_sub(1)).copied().unwrap_or(0);
        self.looks_over = if p99_ns > self.plan.slo_ns {
            self.looks_over + 1
        } else {
            0
        };
        self.looks_over >= 2
    }

    fn score(&self, usage: &Usage, task: &SeenTask, used: &[f64], most: usize) -> f64 {
        let factor = if self.rule == Rule::Current {
            1.0
        } else {
            to_go(task.progress)
        };
        let gains = used.iter().map(|used| used * factor);
        match self.rule {
            Rule::Greedy => gains
                .enumerate()
                .filter(|(r, _)| *r == most)
                .map(|(_, gain)| gain)
                .sum(),
            _ => gains
                .zip(&usage.levels)
                .filter(|(_, level)| **level >= FLOOR)
                .map(|(gain, level)| gain * level)
                .sum(),
        }
    }
}

impl Controller for Paper {
    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        if !self.is_over(seen) || seen.now_ns < self.acted_ns + WINDOW_NS {
            return;
        }
        let usage = measure(&self.plan, seen, WINDOW_NS);
        let Some((most, level)) = usage
            .levels
            .iter()
            .copied()
            .enumerate()
            .max_by(|a, b| a.1.total_cmp(&b.1))
        else {
            return;
        };
        if level < FLOOR {
            return;
        }
        let free = usage
            .tasks
            .iter()
            .filter(|(task, _)| !task.killed && !task.protected);
        let best = free
            .map(|(task, used)| (self.score(&usage, task, used, most), *task))
            .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.task.cmp(&a.1.task)));
        if let Some((_, task)) = best.filter(|(score, _)| *score > 0.0) {
            self.acted_ns = seen.now_ns;
            out.push(task.end(task.idle_since_ns.is_some()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::seen::{SeenBlocker, SeenWait};
    use super::super::testkit::{lock_hog, plan, seen_task, summary};
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Task 1 has held a lock of the first kind for 3 s; task 2 one of it for 2 s, and one of the second kind for 3 s.
    /// Six wait for the first kind, four for the second.
    fn two_kinds() -> Seen {
        let mut seen = Seen {
            now_ns: 10 * S,
            tasks: (1..=12).map(|n| seen_task(n, 6 * S)).collect(),
            ..Seen::default()
        };
        let held = [(1, 0, 0, 3), (2, 0, 1, 2), (2, 1, 2, 3)];
        for waiter in 3..=12_u64 {
            let (holder, resource, instance, for_s) = held[match waiter {
                3..=5 => 0,
                6..=8 => 1,
                _ => 2,
            }];
            seen.tasks[waiter as usize - 1].waits = true;
            seen.waits.push(SeenWait {
                task: seen.tasks[waiter as usize - 1].task,
                session: waiter,
                resource,
                instance,
                mode: 1,
                since_ns: 9 * S,
                blockers: vec![SeenBlocker {
                    task: seen.tasks[holder - 1].task,
                    session: holder as u64,
                    queued: false,
                    mode: 1,
                    since_ns: (10 - for_s) * S,
                }],
            });
        }
        seen
    }

    fn choice(rule: Rule) -> Vec<Action> {
        let plan = plan(
            "hard",
            "",
            "locks = [{ name = 'one', count = 2 }, { name = 'two' }]\n\
             [[classes]]\nname = 'small'\nsteps = [{ cpu = '~1ms' }]\n\
             [[clients]]\nclass = 'small'\nsend = { poisson = 1.0 }\n",
        );
        let mut paper = Paper::new(&plan, rule);
        let mut out = Vec::new();
        paper.tick(&two_kinds(), &mut out);
        paper.tick(&two_kinds(), &mut out);
        out
    }

    #[test]
    fn the_sum_over_resources_decides_and_greedy_looks_at_the_most_contended_alone() {
        // 0.5 x 3 against 0.5 x 2 + 0.33 x 3.
        let tasks = two_kinds().tasks;
        assert_eq!(choice(Rule::Future), [tasks[1].end(false)]);
        assert_eq!(choice(Rule::Greedy), [tasks[0].end(false)]);
    }

    #[test]
    fn a_lock_hog_is_ended_under_every_rule() {
        for name in ["paper", "paper-current", "paper-greedy"] {
            assert!(summary(&lock_hog(), name).culprit_drops > 0.9, "{name}");
        }
    }

    #[test]
    fn current_usage_ends_the_old_and_nearly_done_where_future_usage_ends_the_young() {
        // Both hold a lock; the old one is about to let go, the young one has just begun.
        let two = plan(
            "hard",
            "'young'",
            "locks = [{ name = 'table', count = 2 }]\n\
             [[classes]]\nname = 'small'\nsteps = [{ lock = { of = 'table' } }, { cpu = '~1ms' }]\n\
             [[classes]]\nname = 'old'\nprogress = 'right'\nsteps = [{ lock = { of = 'table', pick = { number = 0 } } }, { sleep = '1s' }]\n\
             [[classes]]\nname = 'young'\nprogress = 'right'\nsteps = [{ lock = { of = 'table', pick = { number = 1 } } }, { sleep = '5s' }]\n\
             [[clients]]\nclass = 'small'\nsend = { poisson = 200.0 }\nfrom = '2.5s'\n\
             [[clients]]\nclass = 'old'\nsend = { at = ['2s'] }\ninjected = true\n\
             [[clients]]\nclass = 'young'\nsend = { at = ['2.3s'] }\ninjected = true\n",
        );
        assert!(summary(&two, "paper").wrong_count < 1.0);
        assert!(summary(&two, "paper-current").wrong_count > 0.0);
    }
}
