//! What a look at the server shows.

use super::World;
use super::task::{State, Task};
use crate::controllers::seen::{Seen, SeenBlocker, SeenTask, SeenWait};
use crate::plan::Step;
use crate::scenario::Progress;

/// How many of those before a waiter in line are listed if a holder blocks it anyway.
const LINE: usize = 4;

impl World {
    /// Looks, and starts counting anew.
    pub(super) fn look(&mut self) -> Seen {
        let now_ns = self.now_ns;
        let busy_ns: f64 = self
            .cores
            .iter_mut()
            .map(|cores| cores.busy_ns(now_ns))
            .sum();
        let since = std::mem::take(&mut self.since_look);
        self.since_look.at_ns = now_ns;
        self.since_look.busy_ns = busy_ns;
        let missed_count = self.caches.iter().map(|cache| cache.miss_count).sum();
        self.since_look.missed_count = missed_count;
        let spent = self.spent_since_look();
        let span_ns = (now_ns - since.at_ns) as f64 * self.plan.cores;
        Seen {
            now_ns,
            tasks: self.seen_tasks(),
            waits: if self.controller.sees_waits() {
                self.seen_waits()
            } else {
                Vec::new()
            },
            done_count: since.done.len() as u64,
            done: since.done,
            queue_delay_ns: self.queue_delay_ns(),
            cpu_share: if span_ns > 0.0 {
                (busy_ns - since.busy_ns) / span_ns
            } else {
                0.0
            },
            cpu_load: self
                .cores
                .iter()
                .map(super::cpu::Cores::load)
                .fold(0.0, f64::max),
            spent,
            missed_count: missed_count - since.missed_count,
            heap_share: self
                .plan
                .scenario
                .heap
                .map_or(0.0, |heap| self.heap_mbytes / heap.mbytes),
        }
    }

    fn seen_tasks(&self) -> Vec<SeenTask> {
        let inside = |task: &&Task| task.serial > 0 && task.state != State::Outside;
        let tasks = self
            .tasks
            .iter()
            .enumerate()
            .filter(|(_, task)| inside(task));
        tasks
            .map(|(index, task)| self.seen_task(index, task))
            .collect()
    }

    fn seen_task(&self, index: usize, task: &Task) -> SeenTask {
        let waits = matches!(task.state, State::ForLock { .. } | State::ForSlot { .. });
        let on_cpu_ns = match task.state {
            State::OnCpu {
                group,
                start_v,
                threads,
            }
            | State::Undoing {
                group,
                start_v,
                threads,
            } => self.cores[group].worked_ns(start_v, self.now_ns) * u64::from(threads),
            _ => 0,
        };
        SeenTask {
            task: self.refer(index),
            class: task.class,
            client: task.client,
            session: task.session,
            arrived_ns: task.arrived_ns,
            started_ns: task.started_ns,
            idle_since_ns: (task.state == State::Idle).then_some(task.since_ns),
            waits,
            cpu_ns: task.cpu_ns + on_cpu_ns,
            miss_count: task.miss_count,
            heap_mbytes: task.heap_mbytes,
            view_age_ns: task
                .snapshot_ns
                .map_or(0, |since_ns| self.now_ns - since_ns),
            progress: self.progress(task, on_cpu_ns),
            killed: task.killed,
            protected: self.plan.classes[task.class].protected,
        }
    }

    /// Progress as the server tells it.
    fn progress(&self, task: &Task, on_cpu_ns: u64) -> Option<f64> {
        let class = &self.plan.classes[task.class];
        let step = class.steps.get(task.step);
        let present_ns = match (step, task.state) {
            (Some(Step::Read { page_count, .. }), _) => {
                let read =
                    f64::from(page_count.saturating_sub(task.pages_left)) / f64::from(*page_count);
                step.map_or(0, |step| (self.plan.nominal_ns(step) as f64 * read) as u64)
            }
            (_, State::OnCpu { .. }) => on_cpu_ns,
            (_, State::Asleep | State::OnDisk) => self.now_ns - task.since_ns,
            _ => 0,
        };
        let right = ((task.done_ns + present_ns) as f64 / class.nominal_ns.max(1) as f64).min(1.0);
        match class.progress {
            Progress::Missing => None,
            Progress::Right => Some(right),
            Progress::Tenth => Some(right * 0.1),
            Progress::Tenfold => Some((right * 10.0).min(1.0)),
            Progress::Stuck => Some(0.05),
        }
    }

    fn seen_waits(&self) -> Vec<SeenWait> {
        let mut waits = Vec::new();
        for (resource, group) in self.plan.locks.iter().enumerate() {
            if group.blind {
                continue;
            }
            for lock in group.first..group.end {
                self.lock_waits(resource, lock, &mut waits);
            }
        }
        for pool in 0..self.pools.len() {
            self.pool_waits(self.plan.locks.len() + pool, pool, &mut waits);
        }
        waits
    }

    fn lock_waits(&self, resource: usize, lock: usize, waits: &mut Vec<SeenWait>) {
        let known = &self.locks[lock];
        for (place, waiter) in known.queue.iter().enumerate() {
            let holders = known.blocking(*waiter).map(|holder| SeenBlocker {
                task: self.refer(holder.owner),
                session: self.tasks[holder.owner].session,
                queued: false,
                mode: holder.mode.index(),
                since_ns: holder.since_ns,
            });
            // Whom a holder blocks gains nothing from those before it in line: a few of them say that there is a line.
            let listed = if known.blocking(*waiter).next().is_some() {
                LINE
            } else {
                usize::MAX
            };
            let ahead = known.ahead(place).take(listed).map(|other| SeenBlocker {
                task: self.refer(other.owner),
                session: self.tasks[other.owner].session,
                queued: true,
                mode: other.mode.index(),
                since_ns: other.since_ns,
            });
            waits.push(SeenWait {
                task: self.refer(waiter.owner),
                session: self.tasks[waiter.owner].session,
                resource,
                instance: lock,
                mode: waiter.mode.index(),
                since_ns: waiter.since_ns,
                blockers: holders.chain(ahead).collect(),
            });
        }
    }

    fn pool_waits(&self, resource: usize, pool: usize, waits: &mut Vec<SeenWait>) {
        let known = &self.pools[pool];
        for place in &known.queue {
            let holders = known.holders.iter().map(|holder| SeenBlocker {
                task: self.refer(holder.owner),
                session: self.tasks[holder.owner].session,
                queued: false,
                mode: 0,
                since_ns: holder.since_ns,
            });
            waits.push(SeenWait {
                task: self.refer(place.owner),
                session: self.tasks[place.owner].session,
                resource,
                instance: pool,
                mode: 0,
                since_ns: place.since_ns,
                blockers: holders.collect(),
            });
        }
    }
}
