//! What each request uses of the machine and loses to the use of others, as a server's own counters and the kernel's would
//! tell it: no more than that.

use std::ops::{AddAssign, Sub};

use super::World;
use super::task::{State, Task};
use crate::plan::{Bring, Step};

/// Use and loss of one request, or of one session for a while. Times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    /// On a processor, all threads together.
    pub(crate) cpu_ns: u64,
    /// Ready to run and not running because of others.
    pub(crate) cpu_lost_ns: u64,
    /// The disk was busy for it.
    pub(crate) disk_ns: u64,
    /// It stood in the disk's queue.
    pub(crate) disk_lost_ns: u64,
    /// Pages that it brought into a cache.
    pub(crate) page_count: u64,
    /// Bringing pages in that had been in the cache and were driven out.
    pub(crate) page_lost_ns: u64,
    /// Heap that it allocated, mbytes.
    pub(crate) heap_mbytes: u64,
    /// Processor time that the collection of garbage took away from it.
    pub(crate) heap_lost_ns: u64,
    /// Walking old versions.
    pub(crate) version_lost_ns: u64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.cpu_ns += other.cpu_ns;
        self.cpu_lost_ns += other.cpu_lost_ns;
        self.disk_ns += other.disk_ns;
        self.disk_lost_ns += other.disk_lost_ns;
        self.page_count += other.page_count;
        self.page_lost_ns += other.page_lost_ns;
        self.heap_mbytes += other.heap_mbytes;
        self.heap_lost_ns += other.heap_lost_ns;
        self.version_lost_ns += other.version_lost_ns;
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(other.cpu_ns),
            cpu_lost_ns: self.cpu_lost_ns.saturating_sub(other.cpu_lost_ns),
            disk_ns: self.disk_ns.saturating_sub(other.disk_ns),
            disk_lost_ns: self.disk_lost_ns.saturating_sub(other.disk_lost_ns),
            page_count: self.page_count.saturating_sub(other.page_count),
            page_lost_ns: self.page_lost_ns.saturating_sub(other.page_lost_ns),
            heap_mbytes: self.heap_mbytes.saturating_sub(other.heap_mbytes),
            heap_lost_ns: self.heap_lost_ns.saturating_sub(other.heap_lost_ns),
            version_lost_ns: self.version_lost_ns.saturating_sub(other.version_lost_ns),
        }
    }
}

/// How long everybody has been kept from the processor by the collection of garbage, and by pauses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stolen {
    at_ns: u64,
    collect_ns: f64,
    pause_ns: f64,
    collect_rate: f64,
    pause_rate: f64,
}

impl Stolen {
    /// From now on these shares are taken.
    pub(super) fn change(&mut self, now_ns: u64, collect_rate: f64, pause_rate: f64) {
        (self.collect_ns, self.pause_ns) = self.until(now_ns);
        (self.at_ns, self.collect_rate, self.pause_rate) = (now_ns, collect_rate, pause_rate);
    }

    /// Collection and pauses up to now, nanoseconds.
    pub(super) fn until(&self, now_ns: u64) -> (f64, f64) {
        let passed_ns = (now_ns - self.at_ns) as f64;
        (
            self.collect_ns + passed_ns * self.collect_rate,
            self.pause_ns + passed_ns * self.pause_rate,
        )
    }
}

impl World {
    /// What a task has spent up to now, the state that it is in included.
    pub(super) fn spent(&self, task: &Task) -> Spent {
        let mut spent = task.spent;
        spent += self.spent_in_state(task);
        spent
    }

    fn spent_in_state(&self, task: &Task) -> Spent {
        let elapsed_ns = self.now_ns - task.since_ns;
        match task.state {
            State::OnCpu {
                group,
                start_v,
                threads,
            }
            | State::Undoing {
                group,
                start_v,
                threads,
            } => {
                let worked_ns = self.cores[group].worked_ns(start_v, self.now_ns);
                self.on_cpu(task, elapsed_ns, worked_ns, threads)
            }
            State::OnDisk => self.on_disk(task, elapsed_ns),
            _ => Spent::default(),
        }
    }

    fn on_cpu(&self, task: &Task, elapsed_ns: u64, worked_ns: u64, threads: u32) -> Spent {
        let (collect_ns, pause_ns) = self.stolen.until(self.now_ns);
        let paused_ns = (pause_ns - task.stolen_ns.1) as u64;
        let idle_ns = elapsed_ns
            .saturating_sub(worked_ns)
            .saturating_sub(paused_ns);
        let heap_lost_ns = idle_ns.min((collect_ns - task.stolen_ns.0) as u64);
        let step = self.plan.classes[task.class].steps.get(task.step);
        let walks = matches!(step, Some(Step::Versions(_)));
        let brings = matches!(
            step,
            Some(Step::Read {
                bring: Bring::Cpu(_),
                ..
            })
        );
        Spent {
            cpu_ns: worked_ns * u64::from(threads),
            cpu_lost_ns: idle_ns - heap_lost_ns,
            heap_lost_ns,
            version_lost_ns: if walks { worked_ns } else { 0 },
            page_lost_ns: if brings && task.driven_out > 0 {
                worked_ns
            } else {
                0
            },
            ..Spent::default()
        }
    }

    fn on_disk(&self, task: &Task, elapsed_ns: u64) -> Spent {
        let channels = self
            .plan
            .scenario
            .disk
            .as_ref()
            .map_or(1, |disk| disk.channels)
            .max(1);
        let count = task.operations.max(1);
        let disk_ns = (task.service_ns as f64 * self.disk.slowness) as u64 * count;
        // Nobody else there, this is how long it would take.
        let alone_ns = disk_ns / count.min(channels as u64);
        let share = task.driven_out as f64 / count as f64;
        Spent {
            disk_ns: disk_ns.min(elapsed_ns.saturating_mul(count)),
            disk_lost_ns: elapsed_ns.saturating_sub(alone_ns),
            page_lost_ns: (elapsed_ns.min(alone_ns) as f64 * share.min(1.0)) as u64,
            ..Spent::default()
        }
    }

    /// Adds what the present state spent to the task's account; before the state is left.
    pub(super) fn count_spent(&mut self, owner: usize) {
        let spent = self.spent_in_state(&self.tasks[owner]);
        self.tasks[owner].spent += spent;
    }

    /// What each session has spent since the latest look.
    pub(super) fn spent_since_look(&mut self) -> Vec<(u64, Spent)> {
        let mut told = std::mem::take(&mut self.spent_by_gone);
        for owner in 0..self.tasks.len() {
            let task = &self.tasks[owner];
            if task.serial == 0 || task.state == State::Outside {
                continue;
            }
            let spent = self.spent(task);
            *told.entry(task.session).or_default() += spent - task.told;
            self.tasks[owner].told = spent;
        }
        told.into_iter()
            .filter(|(_, spent)| *spent != Spent::default())
            .collect()
    }

    /// A task is about to be gone: what was not told yet is told at the next look.
    pub(super) fn leave_spent(&mut self, owner: usize) {
        let task = &self.tasks[owner];
        let left = task.spent - task.told;
        *self.spent_by_gone.entry(task.session).or_default() += left;
    }
}
