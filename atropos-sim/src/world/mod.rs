//! The server and its clients: discrete events on a virtual clock.
//!
//! Requests are small programs (`task`, `steps`) that use cores, a disk, locks, pools and caches. The controller is asked
//! at fixed points and acts through fixed hooks (`acts`). Everything that happens follows from the plan and the seed.

mod acts;
pub(crate) mod cache;
pub(crate) mod cpu;
pub(crate) mod disk;
mod ending;
pub(crate) mod lock;
mod look;
mod parked;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod rng;
mod source;
pub(crate) mod spent;
mod steps;
pub(crate) mod task;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::controllers::seen::SeenDone;
use crate::controllers::{Controller, Job};
use crate::measure::Measure;
use crate::plan::Plan;
use crate::scenario::FaultKind;
use cache::Cache;
use cpu::Cores;
use disk::Disk;
use lock::Lock;
use pool::Pool;
use queue::{Happening, Queue};
use task::{State, Task, TaskRef};

/// A slice of processor time, for the delay that a crowd on the cores means, nanoseconds.
const SLICE_NS: f64 = 3e6;

/// The server and its clients.
pub(crate) struct World {
    plan: Arc<Plan>,
    seed: u64,
    now_ns: u64,
    queue: Queue,
    cores: Vec<Cores>,
    /// Group of cores of each client.
    group_of: Vec<usize>,
    /// Cores of each group before garbage collection and pauses take theirs.
    group_cores: Vec<f64>,
    pause_count: u32,
    heap_mbytes: f64,
    /// Tasks that keep old versions alive, oldest first.
    snapshots: BTreeSet<(u64, usize)>,
    disk: Disk,
    locks: Vec<Lock>,
    pools: Vec<Pool>,
    caches: Vec<Cache>,
    tasks: Vec<Task>,
    unused: Vec<usize>,
    sessions: Vec<u64>,
    session_count: u64,
    serial: u64,
    ticket: u64,
    sources: Vec<source::Source>,
    controller: Box<dyn Controller>,
    commands: BTreeMap<u64, acts::Command>,
    command_count: u64,
    since_look: SinceLook,
    stolen: spent::Stolen,
    /// Cancelled requests that are kept to be run again, by number.
    parked: BTreeMap<u64, parked::Parked>,
    /// What requests spent that have ended since the latest look, by session.
    spent_by_gone: BTreeMap<u64, spent::Spent>,
    happening_count: u64,
    pub(crate) measure: Measure,
}

/// What has happened since the latest look.
#[derive(Clone, Debug, Default)]
struct SinceLook {
    at_ns: u64,
    done: Vec<SeenDone>,
    missed_count: u64,
    busy_ns: f64,
}

impl World {
    /// A server that runs this plan under this controller.
    pub(crate) fn new(plan: Arc<Plan>, seed: u64, controller: Box<dyn Controller>) -> Self {
        let lock_count = plan.locks.last().map_or(0, |group| group.end);
        let caches = plan.scenario.caches.iter().map(|cache| {
            let mut made = Cache::new(cache.pages, cache.of);
            for page in 0..cache.warm {
                made.insert(page, 0);
            }
            made
        });
        Self {
            seed,
            now_ns: 0,
            queue: Queue::default(),
            cores: vec![Cores::new(plan.cores)],
            group_of: vec![0; plan.clients.len()],
            group_cores: vec![plan.cores],
            pause_count: 0,
            heap_mbytes: 0.0,
            snapshots: BTreeSet::new(),
            disk: Disk::new(plan.scenario.disk.as_ref().map_or(1, |disk| disk.channels)),
            locks: vec![Lock::default(); lock_count],
            pools: plan
                .pools
                .iter()
                .map(|pool| Pool::new(pool.slot_count, pool.queue_limit))
                .collect(),
            caches: caches.collect(),
            tasks: Vec::new(),
            unused: Vec::new(),
            sessions: Vec::new(),
            session_count: 0,
            serial: 0,
            ticket: 0,
            sources: plan
                .clients
                .iter()
                .map(|_| source::Source::default())
                .collect(),
            controller,
            commands: BTreeMap::new(),
            command_count: 0,
            since_look: SinceLook::default(),
            stolen: spent::Stolen::default(),
            parked: BTreeMap::new(),
            spent_by_gone: BTreeMap::new(),
            happening_count: 0,
            measure: Measure::default(),
            plan,
        }
    }

    /// Runs to the end; returns how many things happened.
    pub(crate) fn run(&mut self) -> u64 {
        self.open_sources();
        for (index, trouble) in self.plan.clone().troubles.iter().enumerate() {
            self.queue.at(
                trouble.from_ns,
                Happening::Fault {
                    index,
                    begins: true,
                },
            );
            self.queue.at(
                trouble.to_ns,
                Happening::Fault {
                    index,
                    begins: false,
                },
            );
        }
        self.queue.at(self.controller.tick_ns(), Happening::Tick);
        while let Some((at_ns, happening)) = self.queue.pop() {
            if at_ns > self.plan.duration_ns {
                break;
            }
            self.now_ns = at_ns;
            self.happening_count += 1;
            self.happen(happening);
        }
        self.now_ns = self.plan.duration_ns;
        self.close();
        self.close_parked();
        self.happening_count
    }

    /// What the controller decided and why.
    pub(crate) fn explain(&self) -> Vec<String> {
        self.controller.explain()
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrival { client } => self.arrival(client),
            Happening::Again {
                client,
                request,
                attempt,
                first_ns,
            } => {
                self.ask(client, request, attempt, first_ns);
            }
            Happening::Cores { group, epoch } => self.cores_done(group, epoch),
            Happening::Disk { owner, ticket } => self.disk_done(owner, ticket),
            Happening::Wake { owner, ticket } => self.wake(owner, ticket),
            Happening::Patience { owner, serial } => self.lose_patience(owner, serial),
            Happening::Tick => self.tick(),
            Happening::Command { number } => self.command_arrives(number),
            Happening::Notice { owner, serial } => self.notice(TaskRef {
                index: owner,
                serial,
            }),
            Happening::Fault { index, begins } => self.fault(index, begins),
        }
    }

    fn fault(&mut self, index: usize, begins: bool) {
        match self.plan.troubles[index].kind {
            FaultKind::SlowDisk(times) => self.disk.slowness = if begins { times } else { 1.0 },
            FaultKind::Pause => {
                if begins {
                    self.pause_count += 1;
                } else {
                    self.pause_count = self.pause_count.saturating_sub(1);
                }
                self.resize_cores();
            }
        }
    }

    /// Share of the processor that is left to requests.
    fn cpu_left(&self) -> f64 {
        if self.pause_count > 0 {
            return 0.0;
        }
        let Some(heap) = self.plan.scenario.heap else {
            return 1.0;
        };
        let over = (self.heap_mbytes / heap.mbytes - heap.pressure) / (1.0 - heap.pressure);
        1.0 - 0.95 * over.clamp(0.0, 1.0)
    }

    fn resize_cores(&mut self) {
        let left = self.cpu_left();
        let (collect, pause) = if self.pause_count > 0 {
            (0.0, 1.0)
        } else {
            (1.0 - left, 0.0)
        };
        self.stolen.change(self.now_ns, collect, pause);
        for group in 0..self.cores.len() {
            self.cores[group].resize(self.group_cores[group] * left, self.now_ns);
            self.plan_cores(group);
        }
    }

    /// Plans the next completion of a group of cores.
    fn plan_cores(&mut self, group: usize) {
        let cores = &mut self.cores[group];
        if let Some(at_ns) = cores.next_ns() {
            let epoch = cores.epoch;
            self.queue
                .at(at_ns.max(self.now_ns), Happening::Cores { group, epoch });
        }
    }

    fn cores_done(&mut self, group: usize, epoch: u64) {
        if self
            .cores
            .get(group)
            .is_none_or(|cores| cores.epoch != epoch)
        {
            return;
        }
        while let Some((owner, ticket)) = self.cores[group].pop_done(self.now_ns) {
            self.work_done(owner, ticket);
        }
        self.plan_cores(group);
    }

    fn disk_done(&mut self, owner: usize, ticket: u64) {
        if let Some((next, service_ns)) = self.disk.done() {
            let happening = Happening::Disk {
                owner: next.owner,
                ticket: next.ticket,
            };
            self.queue.at(self.now_ns + service_ns, happening);
        }
        if self.tasks[owner].ticket == ticket {
            self.disk_step_done(owner);
        }
    }

    fn wake(&mut self, owner: usize, ticket: u64) {
        if self.tasks[owner].ticket == ticket {
            self.count_work(owner);
            self.step_done(owner);
            self.advance(owner);
        }
    }

    /// A task changes what it is doing.
    fn enter_state(&mut self, owner: usize, state: State) -> u64 {
        self.ticket += 1;
        let stolen_ns = self.stolen.until(self.now_ns);
        let task = &mut self.tasks[owner];
        task.state = state;
        task.since_ns = self.now_ns;
        task.stolen_ns = stolen_ns;
        task.ticket = self.ticket;
        self.ticket
    }

    fn refer(&self, owner: usize) -> TaskRef {
        TaskRef {
            index: owner,
            serial: self.tasks[owner].serial,
        }
    }

    /// The longest delay of whoever is first in a queue; cores count as a queue that turns over each slice.
    fn queue_delay_ns(&self) -> u64 {
        let slots = self
            .pools
            .iter()
            .map(|pool| pool.head_wait_ns(self.now_ns))
            .max()
            .unwrap_or(0);
        let cores = self
            .cores
            .iter()
            .map(|cores| (cores.load() - 1.0).max(0.0) * SLICE_NS);
        slots.max(cores.fold(0.0, f64::max) as u64)
    }

    fn job(&self, owner: usize) -> Job {
        let task = &self.tasks[owner];
        let in_pools: usize = self.pools.iter().map(|pool| pool.queue.len()).sum();
        let on_cores: f64 = self
            .cores
            .iter()
            .zip(&self.group_cores)
            .map(|(cores, count)| (cores.load() - 1.0).max(0.0) * count)
            .sum();
        Job {
            task: self.refer(owner),
            class: task.class,
            client: task.client,
            now_ns: self.now_ns,
            arrived_ns: task.arrived_ns,
            waited_ns: task.waited_ns,
            queue_len: in_pools + on_cores as usize,
            queue_delay_ns: self.queue_delay_ns(),
        }
    }
}
