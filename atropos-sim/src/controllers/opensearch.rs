//! `OpenSearch`'s search backpressure: in duress, end the searches that use most. Source: the shipped rules as in PEERS.
//!
//! Each second; duress is processor use of 90 % or heap use of 70 % for three looks. A task is a candidate if it has run
//! beyond 4.5 objectives, used processor time beyond 3 objectives (45 s and 30 s there, kept in proportion), or has 2 % of
//! the heap and twice the mean of all. Most breaches first. Cancels come out of token buckets: a tenth of completions and
//! 3 a second, burst 10; it stops when both are empty.

use std::sync::Arc;

use super::seen::SeenTask;
use super::{Action, Controller, Seen};
use crate::plan::Plan;

const BURST: f64 = 10.0;

/// Search backpressure.
pub(crate) struct Backpressure {
    objective_ns: u64,
    heap_mbytes: f64,
    looks_in_duress: u32,
    by_completions: f64,
    by_time: f64,
}

impl Backpressure {
    /// Thresholds in objectives.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        Self {
            objective_ns: plan.slo_ns,
            heap_mbytes: plan.scenario.heap.map_or(f64::INFINITY, |heap| heap.mbytes),
            looks_in_duress: 0,
            by_completions: BURST,
            by_time: BURST,
        }
    }

    fn breaches(&self, seen: &Seen, task: &SeenTask, mean_mbytes: f64) -> u32 {
        let age_ns = seen.now_ns - task.started_ns;
        let old = age_ns * 2 > 9 * self.objective_ns;
        let busy = task.cpu_ns > 3 * self.objective_ns;
        let large =
            task.heap_mbytes > 0.02 * self.heap_mbytes && task.heap_mbytes > 2.0 * mean_mbytes;
        u32::from(old) + u32::from(busy) + u32::from(large)
    }
}

impl Controller for Backpressure {
    fn sees_waits(&self) -> bool {
        false
    }

    fn tick_ns(&self) -> u64 {
        1_000_000_000
    }

    fn tick(&mut self, seen: &Seen, out: &mut Vec<Action>) {
        self.by_completions = (self.by_completions + 0.1 * seen.done_count as f64).min(BURST);
        self.by_time = (self.by_time + 3.0).min(BURST);
        let duress = seen.cpu_share >= 0.9 || seen.heap_share >= 0.7;
        self.looks_in_duress = if duress { self.looks_in_duress + 1 } else { 0 };
        if self.looks_in_duress < 3 {
            return;
        }
        let mean_mbytes = seen.tasks.iter().map(|task| task.heap_mbytes).sum::<f64>()
            / seen.tasks.len().max(1) as f64;
        let mut candidates: Vec<(u32, &SeenTask)> = seen
            .tasks
            .iter()
            .filter(|task| !task.killed)
            .map(|task| (self.breaches(seen, task, mean_mbytes), task))
            .filter(|(breaches, _)| *breaches > 0)
            .collect();
        candidates.sort_by_key(|(breaches, task)| (std::cmp::Reverse(*breaches), task.task));
        for (_, task) in candidates {
            if self.by_completions < 1.0 && self.by_time < 1.0 {
                return;
            }
            self.by_completions = (self.by_completions - 1.0).max(0.0);
            self.by_time = (self.by_time - 1.0).max(0.0);
            out.push(task.end(false));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{lock_hog, plan, summary};

    #[test]
    fn a_search_that_fills_the_heap_is_ended() {
        let hog = plan(
            "memory",
            "'nest'",
            "heap = { mbytes = 1000, pressure = 0.7 }\n\
             [[classes]]\nname = 'small'\nsteps = [{ cpu = '~4ms' }]\n\
             [[classes]]\nname = 'nest'\nsteps = [{ alloc = 950 }, { cpu = '60s' }]\n\
             [[clients]]\nclass = 'small'\nsend = { poisson = 300.0 }\n\
             [[clients]]\nclass = 'nest'\nsend = { at = ['2s'] }\ninjected = true\n",
        );
        assert!(summary(&hog, "opensearch").culprit_drops > 0.9);
    }

    #[test]
    fn a_lock_hog_causes_no_duress() {
        assert!(summary(&lock_hog(), "opensearch").cancel_count < 1.0);
    }
}
