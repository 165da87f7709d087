//! How a request goes through its steps.

use super::World;
use super::disk::Operation;
use super::pool::Entry;
use super::queue::Happening;
use super::task::{Failure, State};
use crate::controllers::Waiting;
use crate::plan::{Bring, Step};

/// Whether a task can go on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    On,
    Blocked,
}

impl World {
    /// Goes on with a task until it blocks or is done.
    pub(super) fn advance(&mut self, owner: usize) {
        loop {
            let task = &self.tasks[owner];
            let steps = &self.plan.classes[task.class].steps;
            let Some(step) = steps.get(task.step).copied() else {
                self.serve(owner);
                return;
            };
            if self.take(owner, step) == Flow::Blocked {
                return;
            }
            // A step that was granted at once may have ended the task.
            if self.tasks[owner].serial == 0 {
                return;
            }
            self.step_done(owner);
        }
    }

    /// The present step is behind the task.
    pub(super) fn step_done(&mut self, owner: usize) {
        let task = &self.tasks[owner];
        let step = self.plan.classes[task.class].steps[task.step];
        let nominal_ns = self.plan.nominal_ns(&step);
        let task = &mut self.tasks[owner];
        task.done_ns += nominal_ns;
        task.step += 1;
    }

    fn take(&mut self, owner: usize, step: Step) -> Flow {
        match step {
            Step::Cpu(time) => self.take(owner, Step::Spread(time, 1)),
            Step::Spread(time, threads) => {
                let work_ns = self.tasks[owner].rng.draw_ns(time);
                self.compute(owner, (work_ns, threads), false);
                Flow::Blocked
            }
            Step::Snapshot => {
                self.tasks[owner].snapshot_ns = Some(self.now_ns);
                self.snapshots.insert((self.now_ns, owner));
                Flow::On
            }
            Step::Versions(per_s_ns) => {
                let age_s = self.oldest_snapshot_s();
                self.compute(owner, ((per_s_ns as f64 * age_s) as u64, 1), false);
                Flow::Blocked
            }
            Step::Sleep(time) => self.rest(owner, time, State::Asleep),
            Step::Idle(time) => self.rest(owner, time, State::Idle),
            Step::Disk(time) => {
                let service_ns = self.tasks[owner].rng.draw_ns(time);
                self.tasks[owner].driven_out = 0;
                self.use_disk(owner, service_ns, 1);
                Flow::Blocked
            }
            Step::Lock { first, end, mode } => {
                let lock = self.tasks[owner].rng.between(first as u64, end as u64) as usize;
                self.take_lock(owner, lock, mode)
            }
            Step::Unlock { first, end } => {
                self.let_locks_go(owner, first, end);
                Flow::On
            }
            Step::Read {
                page_count, from, ..
            } => {
                let task = &mut self.tasks[owner];
                task.pages_left = page_count;
                task.scan_at = from;
                self.read_on(owner)
            }
            Step::Enter(pool) => self.enter_pool(owner, pool),
            Step::Leave(pool) => {
                self.leave_pool(owner, pool);
                Flow::On
            }
            Step::Alloc(mbytes) => {
                self.allocate(owner, mbytes);
                Flow::On
            }
        }
    }

    /// Age of the oldest snapshot, seconds.
    fn oldest_snapshot_s(&self) -> f64 {
        let oldest = self.snapshots.first();
        let since_ns = oldest.map_or(self.now_ns, |(since_ns, _)| *since_ns);
        (self.now_ns - since_ns) as f64 / 1e9
    }

    fn allocate(&mut self, owner: usize, mbytes: f64) {
        self.tasks[owner].heap_mbytes += mbytes;
        self.tasks[owner].spent.heap_mbytes += mbytes as u64;
        self.heap_mbytes += mbytes;
        self.resize_cores();
    }

    /// Puts a task on the cores.
    pub(super) fn compute(&mut self, owner: usize, (work_ns, threads): (u64, u32), undoing: bool) {
        let group = self.group_of[self.tasks[owner].client];
        let ticket = self.enter_state(owner, State::Asleep);
        let start_v = self.cores[group].start(owner, ticket, (work_ns, threads), self.now_ns);
        self.tasks[owner].state = if undoing {
            State::Undoing {
                group,
                start_v,
                threads,
            }
        } else {
            State::OnCpu {
                group,
                start_v,
                threads,
            }
        };
        self.plan_cores(group);
    }

    /// The cores are done with a task's work.
    pub(super) fn work_done(&mut self, owner: usize, ticket: u64) {
        if self.tasks[owner].ticket != ticket {
            return;
        }
        let state = self.tasks[owner].state;
        self.count_work(owner);
        match state {
            State::Undoing { .. } => self.undone(owner),
            _ => self.page_or_step_done(owner),
        }
    }

    /// Adds the work of the present state to the task's account, which ends that state: the task is between two steps.
    pub(super) fn count_work(&mut self, owner: usize) {
        self.count_spent(owner);
        let (now_ns, state) = (self.now_ns, self.tasks[owner].state);
        let task = &mut self.tasks[owner];
        match state {
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
                let worked_ns = self.cores[group].worked_ns(start_v, now_ns) * u64::from(threads);
                task.cpu_ns += worked_ns;
                task.worked_ns += worked_ns;
            }
            State::OnDisk | State::Asleep => task.worked_ns += now_ns - task.since_ns,
            State::ForLock { .. } | State::ForSlot { .. } => {
                task.waited_ns += now_ns - task.since_ns;
            }
            State::Outside | State::Idle => {}
        }
        self.enter_state(owner, State::Asleep);
    }

    fn rest(&mut self, owner: usize, time: super::rng::Time, state: State) -> Flow {
        let rest_ns = self.tasks[owner].rng.draw_ns(time);
        let ticket = self.enter_state(owner, state);
        self.queue
            .at(self.now_ns + rest_ns, Happening::Wake { owner, ticket });
        Flow::Blocked
    }

    fn use_disk(&mut self, owner: usize, service_ns: u64, count: usize) {
        let ticket = self.enter_state(owner, State::OnDisk);
        let task = &mut self.tasks[owner];
        (task.operations, task.service_ns) = (count as u64, service_ns);
        for _ in 0..count {
            if let Some(service_ns) = self.disk.ask(Operation {
                owner,
                ticket,
                service_ns,
            }) {
                self.queue
                    .at(self.now_ns + service_ns, Happening::Disk { owner, ticket });
            }
        }
    }

    /// Reads pages until some have to be brought in.
    fn read_on(&mut self, owner: usize) -> Flow {
        let class = self.tasks[owner].class;
        let step = self.plan.classes[class]
            .steps
            .get(self.tasks[owner].step)
            .copied();
        let Some(Step::Read {
            cache,
            from,
            to,
            scan,
            bring,
            ..
        }) = step
        else {
            return Flow::On;
        };
        let at_once = match bring {
            Bring::Disk { ahead } => ahead,
            Bring::Cpu(_) => 1,
        };
        let task = &mut self.tasks[owner];
        task.driven_out = 0;
        while task.pages_left > 0 && task.coming.len() < at_once {
            task.pages_left -= 1;
            let page = if scan {
                task.scan_at
            } else {
                task.rng.between(from, to)
            };
            task.scan_at = if page + 1 < to { page + 1 } else { from };
            if !self.caches[cache].touch(page) {
                task.coming.push_back(page);
                task.miss_count += 1;
                task.spent.page_count += 1;
                task.driven_out += u64::from(self.caches[cache].was_there(page));
            }
        }
        let missing = task.coming.len();
        match bring {
            _ if missing == 0 => return Flow::On,
            Bring::Disk { .. } => self.use_disk(owner, self.plan.page_ns, missing),
            Bring::Cpu(time) => {
                let work_ns = self.tasks[owner].rng.draw_ns(time);
                self.compute(owner, (work_ns, 1), false);
            }
        }
        Flow::Blocked
    }

    /// The disk is done with one of a task's operations.
    pub(super) fn disk_step_done(&mut self, owner: usize) {
        if self.tasks[owner].coming.len() > 1 {
            self.bring_in(owner);
            return;
        }
        self.count_work(owner);
        self.page_or_step_done(owner);
    }

    /// Puts the first page on its way into its cache.
    fn bring_in(&mut self, owner: usize) {
        let task = &self.tasks[owner];
        let step = self.plan.classes[task.class].steps.get(task.step).copied();
        if let Some(Step::Read { cache, .. }) = step
            && let Some(page) = self.tasks[owner].coming.pop_front()
        {
            self.caches[cache].insert(page, owner as u32);
        }
    }

    /// A page is there, or the step is over.
    fn page_or_step_done(&mut self, owner: usize) {
        self.bring_in(owner);
        if self.read_on(owner) == Flow::Blocked {
            return;
        }
        self.step_done(owner);
        self.advance(owner);
    }

    fn take_lock(&mut self, owner: usize, lock: usize, mode: super::lock::Mode) -> Flow {
        let oldest_wait_ns = self.locks[lock]
            .queue
            .front()
            .map_or(0, |waiter| self.now_ns - waiter.since_ns);
        if self.locks[lock].ask(owner, mode, self.now_ns) {
            if !self.tasks[owner].locks.contains(&lock) {
                self.tasks[owner].locks.push(lock);
            }
            return Flow::On;
        }
        self.enter_state(owner, State::ForLock { lock });
        let waiting = Waiting {
            job: self.job(owner),
            oldest_wait_ns,
        };
        if self.is_deadlocked(owner) {
            self.measure.deadlock_count += 1;
            self.stop(owner, Failure::Aborted);
        } else if !self.controller.wait(&waiting) {
            self.measure.abort_count += 1;
            self.stop(owner, Failure::Aborted);
        }
        Flow::Blocked
    }

    /// Whether a task that is about to wait would wait for itself.
    fn is_deadlocked(&self, owner: usize) -> bool {
        let mut pending = vec![owner];
        let mut seen = vec![owner];
        while let Some(at) = pending.pop() {
            let State::ForLock { lock } = self.tasks[at].state else {
                continue;
            };
            let lock = &self.locks[lock];
            let Some(waiter) = lock.queue.iter().find(|waiter| waiter.owner == at) else {
                continue;
            };
            for holder in lock.blocking(*waiter) {
                if holder.owner == owner {
                    return true;
                }
                if !seen.contains(&holder.owner) {
                    seen.push(holder.owner);
                    pending.push(holder.owner);
                }
            }
        }
        false
    }

    /// Those who got a lock go on.
    pub(super) fn granted(&mut self, lock: usize, owners: Vec<usize>) {
        for owner in owners {
            self.count_work(owner);
            if !self.tasks[owner].locks.contains(&lock) {
                self.tasks[owner].locks.push(lock);
            }
            self.step_done(owner);
            self.advance(owner);
        }
    }

    fn enter_pool(&mut self, owner: usize, pool: usize) -> Flow {
        match self.pools[pool].enter(owner, self.now_ns) {
            Entry::In => {
                self.tasks[owner].slots.push(pool);
                Flow::On
            }
            Entry::Queued => {
                self.enter_state(owner, State::ForSlot { pool });
                Flow::Blocked
            }
            Entry::Full => {
                self.stop(owner, Failure::Rejected);
                Flow::Blocked
            }
        }
    }

    /// Gives a slot back and lets those in line have it.
    pub(super) fn leave_pool(&mut self, owner: usize, pool: usize) {
        self.pools[pool].leave(owner);
        self.tasks[owner].slots.retain(|held| *held != pool);
        self.fill_pool(pool);
    }

    /// Gives free slots to those in line.
    pub(super) fn fill_pool(&mut self, pool: usize) {
        while let Some(next) = self.pools[pool].next(self.now_ns) {
            self.count_work(next);
            self.tasks[next].slots.push(pool);
            let job = self.job(next);
            if self.controller.dequeue(&job) {
                self.step_done(next);
                self.advance(next);
            } else {
                self.stop(next, Failure::Dropped);
            }
        }
    }
}
