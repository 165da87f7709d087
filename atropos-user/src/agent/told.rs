//! An application that tells of itself by marks: sessions and waits out of what the kernel half keeps, without a look at the
//! target's memory. Pure.
//!
//! A wait whose blockers are not known (they came before the probes) makes its resource partly unknown: nothing is cancelled for
//! its sake.

use std::collections::{BTreeMap, BTreeSet};

use atropos_common::op::Op;
use atropos_common::record::{EventRecord, SessionValue};

use super::kept::Kept;
use super::statement::{digest, fingerprint};
use super::watch::View;
use crate::config::Preset;
use crate::engine::input::{
    Activity, BlockKind, Blocker, Evidence, InstanceKey, InstanceName, ResourceId, SessionKey,
    SessionState, Snapshot, Wait,
};
use crate::engine::settings::Kind;
use crate::memory::Memory;

/// The mode that is shared with others who have it; any other excludes everybody (`usdt-probes/include/atropos.h`).
const SHARED: u32 = 1;

/// As much of a label as is read.
const LABEL_BYTES: usize = 1024;

/// What is known beyond one look.
pub struct Told {
    preset: Preset,
    /// Kind and name of each resource.
    resources: Vec<(Kind, String)>,
    /// What each session said last that it does, without literals.
    labels: BTreeMap<u64, String>,
    /// Since when a session that holds something has been seen without a task.
    idle_since: BTreeMap<u64, u64>,
    /// Sessions that take what others lack.
    users: BTreeSet<u64>,
}

/// A wait or a hold.
struct Open {
    session: u64,
    mode: u32,
    since_ns: u64,
}

/// What is open of one instance.
#[derive(Default)]
struct Line {
    waits: Vec<Open>,
    holds: Vec<Open>,
}

impl Told {
    /// For the resources of a preset.
    pub fn new(preset: &Preset) -> Self {
        let resources = preset
            .resources
            .iter()
            .map(|resource| (resource.kind, resource.name.value.clone()))
            .collect();
        Self {
            preset: preset.clone(),
            resources,
            labels: BTreeMap::new(),
            idle_since: BTreeMap::new(),
            users: BTreeSet::new(),
        }
    }

    /// These sessions take what others lack: at the next look it is wanted what they do.
    pub fn take(&mut self, users: BTreeSet<u64>) {
        self.users = users;
    }

    /// Something was told over the ring: keeps labels, whose text is read at once, since it may be gone later.
    pub fn hear(&mut self, op: Op, record: &EventRecord, memory: &dyn Memory) {
        match op {
            Op::Label if record.flags & EventRecord::ARG_UNKNOWN == 0 => {
                // What cannot be read any more is no reason to forget what was told before.
                if let Ok(text) = memory.read_c_string(record.value, LABEL_BYTES) {
                    let text = digest(&String::from_utf8_lossy(&text));
                    self.labels.insert(record.session, text);
                }
            }
            Op::SessionEnd => {
                self.labels.remove(&record.session);
            }
            _ => {}
        }
    }

    /// One look.
    pub fn look(&mut self, kept: &Kept, now_ns: u64) -> View {
        let mut open: BTreeMap<u16, BTreeMap<u64, Line>> = BTreeMap::new();
        for (key, value) in &kept.open {
            let of_resource = open.entry(key.resource).or_default();
            let line = of_resource.entry(key.instance).or_default();
            let side = match key.hold {
                0 => &mut line.waits,
                _ => &mut line.holds,
            };
            side.push(Open {
                session: key.session,
                mode: value.value as u32,
                since_ns: value.since_ns,
            });
        }
        // Of the other kinds nobody holds anything that another waits for.
        let waited_for = |kind: &Kind| matches!(kind, Kind::Lock | Kind::Queue);
        let snapshots: Vec<Snapshot> = (0_u16..)
            .zip(&self.resources)
            .filter(|(_, (kind, _))| waited_for(kind))
            .map(|(index, (kind, name))| {
                let lines = open.remove(&index).unwrap_or_default();
                snapshot(ResourceId(index), *kind, name, &lines, now_ns)
            })
            .collect();
        View {
            sessions: self.sessions(kept, now_ns),
            waiting_count: snapshots.iter().map(|look| look.waits.len()).sum(),
            snapshots,
            session_count: kept.sessions.len(),
            ..View::default()
        }
    }

    /// Sessions that run a task, or hold something between two tasks.
    fn sessions(&mut self, kept: &Kept, now_ns: u64) -> Vec<SessionState> {
        let mut states = BTreeMap::new();
        // Whose task began before the probes came is only known by what it does: it is taken for busy, and has no number.
        for (key, value) in &kept.open {
            let since_ns = value.since_ns;
            let state = states
                .entry(key.session)
                .or_insert_with(|| state(key.session, value.tid, 0, Activity::Busy, since_ns));
            state.since_ns = state.since_ns.min(since_ns);
        }
        let mut idle = BTreeMap::new();
        for (key, value) in &kept.sessions {
            let (session, request) = (key.session, u64::from(value.generation));
            let (activity, since_ns) = if value.begin_ns != 0 {
                (Activity::Busy, value.begin_ns)
            } else if states.contains_key(&session) {
                let before = self.idle_since.get(&session).copied().unwrap_or(now_ns);
                idle.insert(session, before);
                (Activity::IdleWithLocks, before)
            } else {
                continue;
            };
            let mut state = state(session, value.tid, request, activity, since_ns);
            state.progress = progress(value).filter(|_| activity == Activity::Busy);
            states.insert(session, state);
        }
        self.idle_since = idle;
        // Words are wanted for those alone that take part in a wait or may, or take what others lack.
        let open = kept.open.iter().map(|(key, _)| key.session);
        for session in open.chain(self.users.iter().copied()) {
            if let (Some(state), Some(label)) =
                (states.get_mut(&session), self.labels.get(&session))
            {
                state.class = self.preset.classify("", label);
                state.fingerprint = fingerprint(label);
                state.digest.clone_from(label);
            }
        }
        states.into_values().collect()
    }
}

fn state(
    session: u64,
    thread: u32,
    request: u64,
    activity: Activity,
    since_ns: u64,
) -> SessionState {
    SessionState {
        thread,
        request,
        ..SessionState::new(SessionKey(session), activity, since_ns)
    }
}

/// Share of the work that is done; nothing where the application does not tell how much there is.
fn progress(value: &SessionValue) -> Option<f64> {
    (value.work > 0).then(|| (value.done as f64 / value.work as f64).min(1.0))
}

/// Who waits for whom on one resource.
fn snapshot(
    resource: ResourceId,
    kind: Kind,
    name: &str,
    lines: &BTreeMap<u64, Line>,
    now_ns: u64,
) -> Snapshot {
    let mut complete = true;
    let mut listed = Vec::new();
    for (instance, line) in lines {
        let explained = line.waits.iter().filter(|wait| line.explains(kind, wait));
        let explained: Vec<&Open> = explained.collect();
        for wait in &line.waits {
            let blockers = line.blockers(kind, wait, &explained);
            complete &= !blockers.is_empty();
            if !blockers.is_empty() {
                listed.push(Wait {
                    waiter: SessionKey(wait.session),
                    instance: InstanceKey(*instance),
                    mode: wait.mode,
                    since_ns: wait.since_ns.min(now_ns),
                    blockers,
                });
            }
        }
    }
    let mut instances: Vec<u64> = listed.iter().map(|wait| wait.instance.0).collect();
    instances.dedup();
    let instances = instances.into_iter().map(|instance| InstanceName {
        instance: InstanceKey(instance),
        name: if instance < 0x10000 {
            format!("{name} {instance}")
        } else {
            format!("{name} {instance:#x}")
        },
    });
    Snapshot {
        at_ns: now_ns,
        resource,
        evidence: Evidence::OpenMap,
        complete,
        instances: instances.collect(),
        waits: listed,
    }
}

/// Whether one that has or wants the instance keeps another from having it.
fn excludes(kind: Kind, other: &Open, wait: &Open) -> bool {
    let together = kind == Kind::Lock && wait.mode == SHARED && other.mode == SHARED;
    other.session != wait.session && !together
}

impl Line {
    /// Whether somebody who excludes a waiter has what it waits for, or waits for it longer.
    fn explains(&self, kind: Kind, wait: &Open) -> bool {
        let came_before =
            |other: &Open| other.since_ns < wait.since_ns && excludes(kind, other, wait);
        self.holds.iter().any(|hold| excludes(kind, hold, wait))
            || self.waits.iter().any(came_before)
    }

    /// Everybody who must go before a wait can end: holders; of a lock, also those who wait for it longer. Where nobody holds it
    /// in a mode that excludes the waiter and nobody came before, somebody who queues must be in its way all the same, whatever
    /// the order: a wait is told of a moment before it stands in the line, where another can have passed it. Such a waiter is
    /// not `explained`: it is behind, and so in nobody's way itself.
    fn blockers(&self, kind: Kind, wait: &Open, explained: &[&Open]) -> Vec<Blocker> {
        let in_way = |other: &&Open| excludes(kind, other, wait);
        let blocker = |kind| {
            move |other: &Open| Blocker {
                session: SessionKey(other.session),
                kind,
                mode: other.mode,
                since_ns: other.since_ns,
            }
        };
        // Somebody holds what is waited for. If that one is not known, nothing is known of the wait, whoever queues beside it.
        if self.holds.is_empty() {
            return Vec::new();
        }
        let holds = self.holds.iter().filter(in_way);
        let mut blockers: Vec<Blocker> = holds.map(blocker(BlockKind::Granted)).collect();
        if kind != Kind::Lock {
            return blockers;
        }
        let earlier = explained.iter().copied().filter(in_way);
        let earlier = earlier.filter(|other| other.since_ns < wait.since_ns);
        blockers.extend(earlier.map(blocker(BlockKind::Queued)));
        if blockers.is_empty() {
            let queued = self.waits.iter().filter(in_way);
            blockers.extend(queued.map(blocker(BlockKind::Queued)));
        }
        blockers
    }
}

#[cfg(test)]
#[path = "told_tests.rs"]
mod tests;
