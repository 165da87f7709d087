//! How a request ends: with an answer, or by being stopped, undoing its work and letting everything go.

use super::World;
use super::task::{Failure, State, Task, TaskRef};
use crate::controllers::seen::SeenDone;
use crate::controllers::{Ended, Letting};
use crate::measure::Fate;

impl World {
    /// A request got to its end.
    pub(super) fn serve(&mut self, owner: usize) {
        let task = &self.tasks[owner];
        let (class, client, forsaken) = (task.class, task.client, task.forsaken);
        let latency_ns = self.now_ns - task.arrived_ns;
        self.since_look.done.push(SeenDone { client, latency_ns });
        if forsaken {
            self.measure.wasted_ns += task.worked_ns;
        } else {
            self.measure
                .over(class, task.first_ns, self.now_ns, Fate::Served);
            self.next_of_closed(client);
        }
        self.measure.worked_ns += self.tasks[owner].worked_ns;
        self.depart(owner, true);
    }

    /// Takes a task out of whatever it is doing; it undoes its work and ends.
    pub(super) fn stop(&mut self, owner: usize, failure: Failure) {
        let Task { ticket, state, .. } = self.tasks[owner];
        self.count_work(owner);
        match state {
            State::OnCpu { group, threads, .. } => {
                self.cores[group].stop(ticket, threads, self.now_ns);
                self.plan_cores(group);
            }
            State::OnDisk => self.disk.cancel(ticket),
            State::ForLock { lock } => {
                let granted = self.locks[lock].leave(owner, self.now_ns);
                self.granted(lock, granted);
            }
            State::ForSlot { pool } => self.pools[pool].give_up(owner),
            State::Outside | State::Asleep | State::Idle | State::Undoing { .. } => {}
        }
        self.tasks[owner].fate = Some(failure);
        let task = &self.tasks[owner];
        let undo_ns = (task.worked_ns as f64 * self.plan.classes[task.class].undo) as u64;
        if undo_ns > 0 {
            self.compute(owner, (undo_ns, 1), true);
        } else {
            self.undone(owner);
        }
    }

    /// A stopped task has undone its work.
    pub(super) fn undone(&mut self, owner: usize) {
        let task = &self.tasks[owner];
        let failure = task.fate.unwrap_or(Failure::Cancelled);
        self.measure.wasted_ns += task.worked_ns;
        self.measure.worked_ns += task.worked_ns;
        if failure != Failure::Cancelled || !self.park(owner) {
            self.failed(owner, failure);
        }
        self.depart(owner, false);
    }

    /// A task lets everything go and its place is free.
    fn depart(&mut self, owner: usize, served: bool) {
        let task = &self.tasks[owner];
        let ended = Ended {
            job: self.job(owner),
            served,
            service_ns: self.now_ns - task.started_ns,
        };
        self.leave_spent(owner);
        // Void whatever is planned, before others move on and this place is looked at.
        self.enter_state(owner, State::Asleep);
        if self.tasks[owner].heap_mbytes > 0.0 {
            self.heap_mbytes -= self.tasks[owner].heap_mbytes;
            self.resize_cores();
        }
        if let Some(since_ns) = self.tasks[owner].snapshot_ns {
            self.snapshots.remove(&(since_ns, owner));
        }
        self.let_locks_go(owner, 0, usize::MAX);
        while let Some(pool) = self.tasks[owner].slots.first().copied() {
            self.leave_pool(owner, pool);
        }
        let mut actions = Vec::new();
        self.controller.ended(&ended, &mut actions);
        self.free(owner);
        self.act(actions);
    }

    /// Lets the locks `first..end` go that a task holds.
    pub(super) fn let_locks_go(&mut self, owner: usize, first: usize, end: usize) {
        let held = std::mem::take(&mut self.tasks[owner].locks);
        let (gone, kept): (Vec<usize>, Vec<usize>) = held
            .into_iter()
            .partition(|lock| (first..end).contains(lock));
        self.tasks[owner].locks = kept;
        for lock in gone {
            self.tell_letting_go(owner, lock);
            let granted = self.locks[lock].let_go(owner, self.now_ns);
            self.granted(lock, granted);
        }
    }

    fn tell_letting_go(&mut self, owner: usize, lock: usize) {
        let known = &self.locks[lock];
        if known.queue.is_empty() {
            return;
        }
        let held = known.holders.iter().find(|holder| holder.owner == owner);
        let letting = Letting {
            job: self.job(owner),
            held_ns: held.map_or(0, |holder| self.now_ns - holder.since_ns),
            waiters: known
                .queue
                .iter()
                .map(|waiter| {
                    let task = &self.tasks[waiter.owner];
                    (task.client, waiter.since_ns, task.started_ns)
                })
                .collect(),
        };
        let penalty_ns = self.controller.let_go(&letting);
        if penalty_ns > 0 {
            let source = &mut self.sources[letting.job.client];
            source.penalty_until_ns = source.penalty_until_ns.max(self.now_ns + penalty_ns);
        }
    }

    /// A task notices that it shall end.
    pub(super) fn notice(&mut self, task: TaskRef) {
        if !self.is_current(task) || matches!(self.tasks[task.index].state, State::Undoing { .. }) {
            return;
        }
        self.stop(task.index, Failure::Cancelled);
    }
}
