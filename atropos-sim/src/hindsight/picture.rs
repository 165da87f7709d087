//! What recorded inputs show of the server, as a look that the controllers understand.
//!
//! In: ticks, snapshots and events. Out: looks with sessions, ages, waits, and who is in their way. What a controller would
//! have ended is gone from its later looks, and so is whoever waited for nobody else: the recording itself goes on as it was.

use std::collections::{BTreeMap, BTreeSet};

use atropos_common::histogram::lower_bound_ns;
use atropos_engine::Settings;
use atropos_engine::input::{
    Activity, Event, EventKind, InstanceKey, RequestStats, ResourceId, SessionKey, SessionState,
    Snapshot, Tick,
};

use super::waits::{Held, Waits};
use crate::controllers::seen::{SeenBlocker, SeenDone, SeenTask, SeenWait};
use crate::controllers::{Job, Seen};
use crate::world::task::TaskRef;

/// The place of sessions that no tick lists; they cannot be ended.
const STRANGER: usize = 1;

/// A request, or the idle time of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) state: SessionState,
    pub(super) task: TaskRef,
}

impl Known {
    fn goes_on(&self, state: &SessionState) -> bool {
        let before = &self.state;
        let same = if state.request == 0 {
            before.since_ns == state.since_ns
        } else {
            before.request == state.request
        };
        before.id == state.id && before.activity == state.activity && same
    }
}

/// The picture.
#[derive(Debug)]
pub(super) struct Picture {
    protected_classes: Vec<bool>,
    protected_principals: Vec<String>,
    now_ns: u64,
    known: BTreeMap<SessionKey, Known>,
    waits: Waits,
    names: BTreeMap<(ResourceId, InstanceKey), String>,
    classes: BTreeMap<u64, usize>,
    /// Tasks that the controller has ended, and those that this would have let go on.
    gone: BTreeSet<TaskRef>,
    done: Vec<SeenDone>,
    done_count: u64,
    serial: u64,
}

impl Picture {
    /// Of a target that nothing is known of yet.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            protected_classes: settings
                .classes
                .iter()
                .map(|class| class.protected)
                .collect(),
            protected_principals: settings.protected_principals.clone(),
            now_ns: 0,
            known: BTreeMap::new(),
            waits: Waits::default(),
            names: BTreeMap::new(),
            classes: BTreeMap::new(),
            gone: BTreeSet::new(),
            done: Vec::new(),
            done_count: 0,
            serial: 0,
        }
    }

    /// A transition.
    pub(super) fn event(&mut self, event: &Event) {
        self.waits.event(event);
        if event.kind == EventKind::SessionEnd {
            self.known.remove(&event.session);
        }
    }

    /// What events told may be over.
    pub(super) fn lost(&mut self) {
        self.waits.lost();
    }

    /// Who waits for whom.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot) {
        for name in &snapshot.instances {
            self.names
                .insert((snapshot.resource, name.instance), name.name.clone());
        }
        self.waits.snapshot(snapshot);
    }

    /// The sessions; returns the requests that are new.
    pub(super) fn tick(&mut self, tick: &Tick) -> Vec<Job> {
        self.now_ns = tick.at_ns;
        self.count(&tick.requests);
        let mut before = std::mem::take(&mut self.known);
        let mut fresh = Vec::new();
        for state in tick.sessions.iter().filter(|state| !state.own) {
            let known = before.remove(&state.session);
            let task = if let Some(known) = known.filter(|known| known.goes_on(state)) {
                known.task
            } else {
                self.serial += 1;
                let task = TaskRef {
                    index: 0,
                    serial: self.serial,
                };
                fresh.extend(self.job(state, task));
                task
            };
            let state = state.clone();
            self.known.insert(state.session, Known { state, task });
        }
        // Who is no longer listed is idle, and waits for nothing.
        for session in before.keys() {
            self.waits.end(*session);
        }
        let known = &self.known;
        self.gone
            .retain(|gone| known.values().any(|known| known.task == *gone));
        fresh
    }

    fn count(&mut self, requests: &RequestStats) {
        let seen: u64 = requests.latency.iter().map(|(_, count)| count).sum();
        self.done_count += requests.completed.unwrap_or(seen);
        for (bucket, count) in &requests.latency {
            let latency_ns = lower_bound_ns(usize::from(*bucket));
            let done = SeenDone {
                client: 0,
                latency_ns,
            };
            self.done.extend((0..*count).map(|_| done));
        }
    }

    /// A request at the door, if its statement is known: by that alone can its like be told.
    fn job(&mut self, state: &SessionState, task: TaskRef) -> Option<Job> {
        let class = self.class(state.fingerprint)?;
        (state.activity == Activity::Busy).then_some(Job {
            task,
            class,
            client: 0,
            now_ns: self.now_ns,
            arrived_ns: state.since_ns,
            waited_ns: 0,
            queue_len: 0,
            queue_delay_ns: 0,
        })
    }

    fn class(&mut self, fingerprint: u64) -> Option<usize> {
        if fingerprint == 0 {
            return None;
        }
        let next = self.classes.len();
        Some(*self.classes.entry(fingerprint).or_insert(next))
    }

    /// The task is gone from later looks; false if it was already.
    pub(super) fn end(&mut self, task: TaskRef) -> bool {
        task.index != STRANGER && self.gone.insert(task)
    }

    /// The task of this reference.
    pub(super) fn find(&self, task: TaskRef) -> Option<&Known> {
        self.known.values().find(|known| known.task == task)
    }

    /// The name of an instance for a person.
    pub(super) fn name(&self, resource: usize, instance: usize) -> String {
        let key = (ResourceId(resource as u16), InstanceKey(instance as u64));
        let known = self.names.get(&key);
        known.map_or_else(|| format!("instance {instance:#x}"), Clone::clone)
    }

    /// A look; counts of completed requests begin anew.
    pub(super) fn look(&mut self) -> Seen {
        self.let_go();
        let tasks: Vec<SeenTask> = self
            .known
            .values()
            .filter(|known| !self.gone.contains(&known.task))
            .map(|known| self.seen_task(known))
            .collect();
        Seen {
            now_ns: self.now_ns,
            tasks,
            waits: self.seen_waits(),
            done: std::mem::take(&mut self.done),
            done_count: std::mem::take(&mut self.done_count),
            ..Seen::default()
        }
    }

    /// Whoever waits only for those that are gone would have gone on.
    fn let_go(&mut self) {
        loop {
            let free: Vec<TaskRef> = self
                .seen_waits_of_all()
                .into_iter()
                .filter(|wait| !self.gone.contains(&wait.task) && !wait.blockers.is_empty())
                .filter(|wait| {
                    wait.blockers
                        .iter()
                        .all(|blocker| self.gone.contains(&blocker.task))
                })
                .map(|wait| wait.task)
                .collect();
            if free.is_empty() {
                return;
            }
            self.gone.extend(free);
        }
    }

    fn seen_waits(&self) -> Vec<SeenWait> {
        let mut waits = self.seen_waits_of_all();
        waits.retain(|wait| !self.gone.contains(&wait.task));
        for wait in &mut waits {
            wait.blockers
                .retain(|blocker| !self.gone.contains(&blocker.task));
        }
        waits
    }

    fn seen_waits_of_all(&self) -> Vec<SeenWait> {
        let open = self.waits.open();
        open.filter_map(|(session, wait)| {
            let known = self.known.get(&session)?;
            let blockers = self.waits.blockers(session, wait);
            Some(SeenWait {
                task: known.task,
                session: session.0,
                resource: usize::from(wait.resource.0),
                instance: wait.instance.0 as usize,
                mode: wait.mode,
                since_ns: wait.since_ns.max(known.state.since_ns).min(self.now_ns),
                blockers: blockers
                    .iter()
                    .map(|held| self.seen_blocker(held))
                    .collect(),
            })
        })
        .collect()
    }

    fn seen_blocker(&self, held: &Held) -> SeenBlocker {
        let known = self.known.get(&held.session);
        SeenBlocker {
            task: known.map_or(
                TaskRef {
                    index: STRANGER,
                    serial: held.session.0,
                },
                |known| known.task,
            ),
            session: held.session.0,
            queued: held.queued,
            mode: held.mode,
            since_ns: held.since_ns.min(self.now_ns),
        }
    }

    fn seen_task(&self, known: &Known) -> SeenTask {
        let state = &known.state;
        let busy = state.activity == Activity::Busy;
        let since_ns = state.since_ns.min(self.now_ns);
        let started_ns = match state.transaction_since_ns {
            Some(begin_ns) if !busy => begin_ns.min(since_ns),
            _ => since_ns,
        };
        let of_class = state
            .class
            .and_then(|class| self.protected_classes.get(usize::from(class)));
        SeenTask {
            task: known.task,
            class: self
                .classes
                .get(&state.fingerprint)
                .copied()
                .unwrap_or(usize::MAX),
            client: 0,
            session: state.session.0,
            arrived_ns: started_ns,
            started_ns,
            idle_since_ns: (!busy).then_some(since_ns),
            waits: self.waits.is_waiting(state.session),
            cpu_ns: 0,
            miss_count: 0,
            heap_mbytes: 0.0,
            view_age_ns: 0,
            progress: state.progress,
            killed: state.killed,
            protected: of_class.is_some_and(|protected| *protected)
                || self.protected_principals.contains(&state.principal),
        }
    }
}
