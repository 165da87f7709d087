//! DARC / Persephone (SOSP 2021): workers reserved for short types of requests. Source: maxdml/psp `dispatch_su.cc`,
//! `DispatchSu.hh`.
//!
//! Types are classes. First come, first served until 1,000 requests are done (50,000 there, which a database's bench never
//! reaches); then types are grouped by mean service time (a type joins a group within 20 %), each group gets its share of
//! the workers (rounded, at least one; worker 0 serves all that find none), and short groups may use longer groups'
//! workers. 4,096 may wait of a type. Recomputed each 1,000 requests. As many workers as pool slots, else four for each
//! core. Nothing that runs is interrupted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Action, Controller, Ended, Job, Verdict};
use crate::plan::Plan;
use crate::world::task::TaskRef;

const WINDOW: u64 = 1_000;
const QUEUE_LIMIT: usize = 4_096;
const SIMILAR: f64 = 0.2;

#[derive(Clone, Debug, Default)]
struct Kind {
    queue: VecDeque<(TaskRef, u64)>,
    service_ns: f64,
    count: f64,
    group: usize,
}

/// DARC.
pub(crate) struct Darc {
    kinds: Vec<Kind>,
    /// Whom each worker serves.
    serves: Vec<Option<TaskRef>>,
    /// The longest group that each worker takes; without reservations, all.
    takes: Vec<usize>,
    done_count: u64,
    worker_of: BTreeMap<TaskRef, usize>,
}

impl Darc {
    /// Workers as many as slots, or four for each core.
    pub(crate) fn new(plan: &Arc<Plan>) -> Self {
        let slots: usize = plan.pools.iter().map(|pool| pool.slot_count).sum();
        let worker_count = if slots > 0 {
            slots
        } else {
            4 * plan.cores as usize
        };
        Self {
            kinds: vec![Kind::default(); plan.classes.len()],
            serves: vec![None; worker_count],
            takes: vec![usize::MAX; worker_count],
            done_count: 0,
            worker_of: BTreeMap::new(),
        }
    }

    fn give(&mut self, worker: usize, task: TaskRef) {
        self.serves[worker] = Some(task);
        self.worker_of.insert(task, worker);
    }

    /// The next request for a worker: shortest group first, and first come first served within it.
    fn next_for(&mut self, worker: usize) -> Option<TaskRef> {
        let takes = self.takes[worker];
        let waiting = self
            .kinds
            .iter()
            .enumerate()
            .filter(|(_, kind)| kind.group <= takes && !kind.queue.is_empty());
        let first = waiting.min_by_key(|(_, kind)| {
            (
                kind.group,
                kind.queue.front().map(|(_, since_ns)| *since_ns),
            )
        });
        let kind = first.map(|(index, _)| index)?;
        self.kinds[kind].queue.pop_front().map(|(task, _)| task)
    }

    fn reserve(&mut self) {
        let mean = |kind: &Kind| kind.service_ns / kind.count;
        let mut order: Vec<usize> = (0..self.kinds.len())
            .filter(|kind| self.kinds[*kind].count > 0.0)
            .collect();
        order.sort_by(|a, b| mean(&self.kinds[*a]).total_cmp(&mean(&self.kinds[*b])));
        let mut groups: Vec<(f64, f64)> = Vec::new();
        for kind in order {
            let (mean_ns, demand_ns) = (mean(&self.kinds[kind]), self.kinds[kind].service_ns);
            match groups.last_mut() {
                Some((first_ns, total_ns)) if mean_ns - *first_ns < SIMILAR * mean_ns => {
                    *total_ns += demand_ns;
                }
                _ => groups.push((mean_ns, demand_ns)),
            }
            self.kinds[kind].group = groups.len() - 1;
        }
        let total_ns: f64 = groups.iter().map(|(_, demand_ns)| demand_ns).sum();
        let worker_count = self.serves.len();
        self.takes = vec![0; worker_count];
        let mut next = 0;
        for (group, (_, demand_ns)) in groups.iter().enumerate() {
            let workers = (demand_ns / total_ns * worker_count as f64)
                .round()
                .max(1.0) as usize;
            for worker in next..(next + workers).min(worker_count) {
                self.takes[worker] = group;
            }
            next += workers;
        }
        // Worker 0 takes what has found no worker.
        self.takes[0] = usize::MAX;
        for kind in &mut self.kinds {
            kind.service_ns = 0.0;
            kind.count = 0.0;
        }
    }
}

impl Controller for Darc {
    fn sees_waits(&self) -> bool {
        false
    }

    fn admit(&mut self, job: &Job) -> Verdict {
        let kind = &self.kinds[job.class];
        let group = kind.group;
        let idle = (0..self.serves.len())
            .rev()
            .find(|worker| self.serves[*worker].is_none() && self.takes[*worker] >= group);
        match idle {
            Some(worker) => {
                self.give(worker, job.task);
                Verdict::Admit
            }
            None if kind.queue.len() >= QUEUE_LIMIT => Verdict::Reject,
            None => {
                self.kinds[job.class]
                    .queue
                    .push_back((job.task, job.now_ns));
                Verdict::Hold
            }
        }
    }

    fn ended(&mut self, ended: &Ended, out: &mut Vec<Action>) {
        let kind = &mut self.kinds[ended.job.class];
        kind.service_ns += ended.service_ns as f64;
        kind.count += 1.0;
        self.done_count += 1;
        if self.done_count.is_multiple_of(WINDOW) {
            self.reserve();
        }
        let Some(worker) = self.worker_of.remove(&ended.job.task) else {
            return;
        };
        self.serves[worker] = None;
        if let Some(task) = self.next_for(worker) {
            self.give(worker, task);
            out.push(Action::LetIn(task));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testkit::{long_and_short, summary};

    #[test]
    fn short_requests_no_longer_stand_behind_long_ones() {
        let (with, without) = (
            summary(&long_and_short(), "darc"),
            summary(&long_and_short(), "none"),
        );
        assert!(with.good_count > without.good_count, "{with:?} {without:?}");
        assert!(with.cancel_count < 1.0 && with.innocent_drops < f64::EPSILON);
    }
}
