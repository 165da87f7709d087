//! How contended each resource is and how much of it each task uses, for the paper's rules and their variants.
//!
//! Resources are the engine's (locks, pools) and behind them processor, pages and heap: the paper's rules as such do not
//! care whether the agent has eyes for them.

use std::collections::BTreeMap;

use super::Seen;
use super::seen::SeenTask;
use crate::plan::Plan;
use crate::world::task::TaskRef;

/// Extra resources behind locks and pools.
pub(crate) const EXTRA: usize = 3;

/// A look in numbers.
pub(crate) struct Usage<'a> {
    /// Contention of each resource: share of execution time lost.
    pub(crate) levels: Vec<f64>,
    /// What each task that waits for nobody uses of each resource, nanoseconds.
    pub(crate) tasks: Vec<(&'a SeenTask, Vec<f64>)>,
}

/// Reads a look. Waits and ages count within `window_ns` only.
pub(crate) fn measure<'a>(plan: &Plan, seen: &'a Seen, window_ns: u64) -> Usage<'a> {
    let named = plan.line_count();
    let span_ns = |since_ns: u64| (seen.now_ns - since_ns).min(window_ns) as f64;
    let open_ns: f64 = seen
        .tasks
        .iter()
        .filter(|task| task.idle_since_ns.is_none())
        .map(|task| span_ns(task.started_ns))
        .sum();
    let busy_ns = open_ns.max(1.0);
    let mut levels = vec![0.0; named + EXTRA];
    let mut held: BTreeMap<TaskRef, Vec<f64>> = BTreeMap::new();
    let mut told = std::collections::BTreeSet::new();
    for wait in &seen.waits {
        levels[wait.resource] += span_ns(wait.since_ns) / busy_ns;
        for blocker in wait.blockers.iter().filter(|blocker| !blocker.queued) {
            if told.insert((blocker.task, wait.resource, wait.instance)) {
                let usage = held
                    .entry(blocker.task)
                    .or_insert_with(|| vec![0.0; named + EXTRA]);
                usage[wait.resource] += (seen.now_ns - blocker.since_ns) as f64;
            }
        }
    }
    levels[named] = (1.0 - 1.0 / seen.cpu_load.max(1.0)).max(0.0);
    levels[named + 1] = (seen.missed_count as f64 * plan.page_ns as f64 / busy_ns).min(1.0);
    levels[named + 2] = ((seen.heap_share - 0.7) / 0.3).clamp(0.0, 1.0);
    let tasks = seen.tasks.iter().filter(|task| !task.waits).map(|task| {
        let mut usage = held
            .remove(&task.task)
            .unwrap_or_else(|| vec![0.0; named + EXTRA]);
        usage[named] = task.cpu_ns as f64;
        usage[named + 1] = task.miss_count as f64 * plan.page_ns as f64;
        usage[named + 2] = task.heap_mbytes * 1e6;
        (task, usage)
    });
    Usage {
        tasks: tasks.collect(),
        levels,
    }
}

/// Remaining over done: 1 if nothing is known.
pub(crate) fn to_go(progress: Option<f64>) -> f64 {
    match progress {
        Some(p) if p > 0.0 => (1.0 - p) / p,
        _ => 1.0,
    }
}
