//! Looks into the target once a tick: sessions and wait-for graphs as the engine wants them.
//!
//! In: the target's memory and what the ring told of waits. Out: [`View`]. A view that fails a check is taken again at once,
//! since the target does not stand still; a walk that keeps failing is reported blind.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::agent::register::{Part, Register};
use crate::config::Preset;
use crate::engine::input::{
    Blind, BlockKind, Blocker, Evidence, InstanceKey, InstanceName, ResourceId, SessionKey,
    SessionState, Snapshot, Wait,
};
use crate::memory::Memory;
use crate::walk::{Fields, Graph, LockWalk, Look, SessionList, SessionView, Trust, WalkError};

/// How often a view that fails a check is taken again within one tick.
const ATTEMPTS: u32 = 3;

/// What one look saw.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Sessions that matter (see [`crate::engine::input::Tick::sessions`]).
    pub sessions: Vec<SessionState>,
    /// One snapshot a resource, for those that could be seen.
    pub snapshots: Vec<Snapshot>,
    /// Resources that could not be seen.
    pub blind: Vec<Blind>,
    /// Resources of which only waits can be seen, and those were.
    pub unowned: Vec<Blind>,
    /// Sessions in all, idle ones included.
    pub session_count: usize,
    /// Sessions that wait for another.
    pub waiting_count: usize,
    /// Places for sessions, where the preset tells how many there are.
    pub slots: Option<Slots>,
}

impl View {
    /// Resources that can be no reason to end anything, with why.
    pub fn no_reason(&self) -> Vec<Blind> {
        self.blind.iter().chain(&self.unowned).cloned().collect()
    }
}

/// Places for sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Slots {
    /// How many there are.
    pub limit: u64,
    /// How many are taken.
    pub taken: usize,
    /// ... by sessions that run a request.
    pub busy: usize,
    /// ... by sessions that are idle in a transaction.
    pub idle_in_transaction: usize,
}

/// Looks into one process.
pub struct Watcher {
    list: SessionList,
    walks: Vec<Watched>,
    list_trust: Trust,
    preset: Preset,
    register: Register,
    /// Sessions of the last look: key by number.
    keys: BTreeMap<u64, u64>,
    /// Begin of the wait in progress by session, from the ring.
    begun: BTreeMap<u64, u64>,
    fields: Fields,
    first_look: bool,
    epoch_minus_monotonic_ns: i64,
}

struct Watched {
    walk: LockWalk,
    trust: Trust,
    /// When each (waiter, ticket) was first seen.
    since: BTreeMap<(u64, u64), u64>,
    /// The last graph that passed its checks.
    graph: Graph,
}

impl Watcher {
    /// A watcher of the process that the list and the walks are bound to.
    pub fn new(
        list: SessionList,
        walks: Vec<LockWalk>,
        preset: Preset,
        epoch_minus_monotonic_ns: i64,
    ) -> Self {
        let walks = walks
            .into_iter()
            .map(|walk| Watched {
                walk,
                trust: Trust::default(),
                since: BTreeMap::new(),
                graph: Graph::default(),
            })
            .collect();
        Self {
            list,
            walks,
            list_trust: Trust::default(),
            preset,
            register: Register::default(),
            keys: BTreeMap::new(),
            begun: BTreeMap::new(),
            fields: Fields::default(),
            first_look: true,
            epoch_minus_monotonic_ns,
        }
    }

    /// The session that a probe told of: by its key or, where the preset says so, by its number. One that no look has seen
    /// keeps what the probe told.
    pub fn session_told(&self, told: u64) -> u64 {
        let by_id = self
            .preset
            .sessions
            .as_ref()
            .is_some_and(|sessions| sessions.probes_tell_id);
        self.keys
            .get(&told)
            .copied()
            .filter(|_| by_id)
            .unwrap_or(told)
    }

    /// The ring told that a session began to wait.
    pub fn wait_begun(&mut self, session: u64, at_ns: u64) {
        self.begun.entry(session).or_insert(at_ns);
    }

    /// The ring told that a session's wait is over, or that the session is gone.
    pub fn wait_over(&mut self, session: u64) {
        self.begun.remove(&session);
    }

    /// The walks, for names of modes and for reports.
    pub fn walks(&self) -> impl Iterator<Item = (&LockWalk, &Trust)> {
        self.walks
            .iter()
            .map(|watched| (&watched.walk, &watched.trust))
    }

    /// Name of an instance that somebody waits for.
    pub fn instance_name(&self, resource: ResourceId, instance: InstanceKey) -> String {
        let watched = self
            .walks
            .iter()
            .find(|watched| watched.walk.resource() == resource);
        watched
            .and_then(|watched| watched.graph.names.get(&instance.0))
            .cloned()
            .unwrap_or_default()
    }

    /// Name of a mode of an instance that somebody waits for.
    pub fn mode_name(&self, resource: ResourceId, instance: InstanceKey, mode: u32) -> String {
        let watched = self
            .walks
            .iter()
            .find(|watched| watched.walk.resource() == resource);
        watched
            .map(|watched| watched.walk.mode_name(&watched.graph, instance.0, mode))
            .unwrap_or_default()
    }

    /// How the list of sessions fares.
    pub fn list_trust(&self) -> &Trust {
        &self.list_trust
    }

    /// One look. `own` are numbers of the agent's own sessions.
    pub fn look(&mut self, memory: &dyn Memory, now_ns: u64, own: &[u64]) -> View {
        let mut view = View::default();
        let (near, seen) = self.consistent(memory);
        let (sessions, graphs) = match seen {
            Ok(seen) => seen,
            Err(error) => {
                self.list_trust.failed(error);
                view.blind = self.blind();
                return view;
            }
        };
        self.list_trust.passed();
        view.session_count = sessions.len();
        view.slots = self.list.slots(&near).map(|limit| slots(limit, &sessions));
        self.keys = sessions.iter().map(|s| (s.id, s.key)).collect();
        let by_key: BTreeMap<u64, &SessionView> = sessions.iter().map(|s| (s.key, s)).collect();
        self.register.keep(&by_key);
        let mut parts: BTreeMap<u64, Part> = BTreeMap::new();
        let mut waiting = BTreeSet::new();
        let whole = graphs.iter().all(Result::is_ok);
        for (index, graph) in graphs.into_iter().enumerate() {
            match graph {
                Ok(graph) => {
                    for wait in graph.waits.iter().filter(|wait| !wait.blockers.is_empty()) {
                        view.waiting_count += 1;
                        waiting.insert(wait.waiter);
                        parts.entry(wait.waiter).or_insert(Part::Waiter);
                        let blockers = wait.blockers.iter();
                        parts.extend(blockers.map(|edge| (edge.session, Part::InTheWay)));
                    }
                    self.walks[index].trust.passed();
                    view.snapshots
                        .push(self.snapshot(index, &graph, &by_key, now_ns));
                }
                Err(error) => self.walks[index].trust.failed(error),
            }
        }
        if whole {
            // A wait that ended in a timeout or a kill is told by nobody: its begin must not become that of the next one.
            self.begun.retain(|session, _| waiting.contains(session));
        }
        for session in &sessions {
            let part = parts.get(&session.key).copied().unwrap_or_default();
            let matters = session.busy || session.in_transaction || session.explicit_locks;
            if matters || part != Part::Bystander {
                let (list, preset) = (&self.list, &self.preset);
                let mut state = self.register.state(session, part, list, preset, &near);
                state.own = own.contains(&session.id);
                view.sessions.push(state);
            }
        }
        self.fields = near.learned();
        view.blind = self.blind();
        view.unowned = self.unowned();
        self.first_look = false;
        view
    }

    /// Sessions of the last look that something is worth telling of: the one with most of it for each note of the preset.
    pub fn notes(&self, memory: &dyn Memory) -> Vec<(SessionKey, usize, u64)> {
        let mut most: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        for key in self.keys.values() {
            for (note, value) in self.list.notes(*key, memory) {
                let best = most.entry(note).or_insert((value, *key));
                *best = (value, *key).max(*best);
            }
        }
        let told = |(note, (value, key))| (SessionKey(key), note, value);
        most.into_iter().map(told).collect()
    }

    /// Sessions and graphs of one moment, taken again while a check fails, and the memory that they were read from. A graph
    /// that keeps failing does not take the others with it.
    #[expect(
        clippy::type_complexity,
        reason = "a private pair, taken apart at once"
    )]
    fn consistent<'a>(
        &self,
        memory: &'a dyn Memory,
    ) -> (
        Look<'a>,
        Result<(Vec<SessionView>, Vec<Result<Graph, WalkError>>), WalkError>,
    ) {
        let mut attempt = 1;
        let mut fields = self.fields.clone();
        loop {
            let near = fields.fetch(memory);
            let sessions = self.list.read(&near, self.epoch_minus_monotonic_ns);
            let is_session = |key| self.list.proves(key, memory);
            let seen = sessions.map(|sessions| {
                let graphs: Vec<_> = self
                    .walks
                    .iter()
                    .map(|w| w.walk.graph(&sessions, &near, memory, &is_session))
                    .collect();
                (sessions, graphs)
            });
            let whole = seen
                .as_ref()
                .is_ok_and(|(_, graphs)| graphs.iter().all(Result::is_ok));
            if whole || attempt == ATTEMPTS {
                return (near, seen);
            }
            if seen.is_ok() {
                fields = near.learned();
            }
            attempt += 1;
        }
    }

    /// A graph as the engine wants it.
    fn snapshot(
        &mut self,
        index: usize,
        graph: &Graph,
        sessions: &BTreeMap<u64, &SessionView>,
        now_ns: u64,
    ) -> Snapshot {
        // What probes and the start of the statement tell of a wait's begin, they tell of waits for somebody.
        let unowned = self.walks[index].walk.is_unowned();
        let (begun, first_look) = (&self.begun, self.first_look && !unowned);
        let Watched {
            walk,
            trust: _,
            since,
            graph: before,
        } = &mut self.walks[index];
        let started_ns = |key: u64| sessions.get(&key).map_or(0, |session| session.started_ns);
        // A wait seen for the first time began at its announcement if the probe saw it. One that was there before the first
        // look began after its statement did; all others within this tick.
        let first_seen: BTreeMap<(u64, u64), u64> = graph
            .waits
            .iter()
            .map(|wait| {
                let key = (wait.waiter, wait.ticket);
                let fresh = if first_look && started_ns(wait.waiter) > 0 {
                    started_ns(wait.waiter)
                } else {
                    now_ns
                };
                let began = since
                    .get(&key)
                    .copied()
                    .or_else(|| begun.get(&wait.waiter).copied().filter(|_| !unowned))
                    .unwrap_or(fresh);
                (key, began.min(now_ns))
            })
            .collect();
        *since = first_seen;
        let queued_since: BTreeMap<u64, u64> = since
            .iter()
            .map(|((waiter, _), at)| (*waiter, *at))
            .collect();
        let blocker = |edge: &crate::walk::Edge, wait_ns: u64| {
            // What a statement holds it took at its start or later; what an idle session holds, at the start of its last
            // statement or before. A place in the queue is as old as the wait.
            let start = started_ns(edge.session);
            let since_ns = match edge.kind {
                BlockKind::Queued => queued_since.get(&edge.session).copied().unwrap_or(start),
                BlockKind::Granted => start,
            };
            // Whose start is unknown (a prepared transaction) has been in the way for as long as the wait lasts.
            let since_ns = if since_ns == 0 {
                wait_ns
            } else {
                since_ns.min(now_ns)
            };
            Blocker {
                session: SessionKey(edge.session),
                kind: edge.kind,
                mode: edge.mode,
                since_ns,
            }
        };
        let waits = graph
            .waits
            .iter()
            .map(|wait| Wait {
                waiter: SessionKey(wait.waiter),
                instance: InstanceKey(wait.instance),
                mode: wait.mode,
                since_ns: since[&(wait.waiter, wait.ticket)],
                blockers: wait
                    .blockers
                    .iter()
                    .map(|edge| blocker(edge, since[&(wait.waiter, wait.ticket)]))
                    .collect(),
            })
            .collect();
        let instances = graph
            .names
            .iter()
            .map(|(instance, name)| InstanceName {
                instance: InstanceKey(*instance),
                name: name.clone(),
            })
            .collect();
        before.clone_from(graph);
        Snapshot {
            at_ns: now_ns,
            resource: walk.resource(),
            evidence: Evidence::Walk,
            complete: true,
            waits,
            instances,
        }
    }

    /// Resources that cannot be seen at present.
    fn blind(&self) -> Vec<Blind> {
        let list = self
            .list_trust
            .blind()
            .map(|reason| format!("the list of sessions: {reason}"));
        let reason = |watched: &Watched| list.clone().or_else(|| watched.trust.blind());
        self.walks
            .iter()
            .filter_map(|watched| {
                Some(Blind {
                    resource: watched.walk.resource(),
                    reason: reason(watched)?,
                })
            })
            .collect()
    }

    /// Resources of which only the waits are seen, unless they are blind.
    fn unowned(&self) -> Vec<Blind> {
        let seen =
            |watched: &&Watched| watched.walk.is_unowned() && watched.trust.blind().is_none();
        self.walks
            .iter()
            .filter(seen)
            .map(|watched| Blind {
                resource: watched.walk.resource(),
                reason: "who waits is seen, who is in the way is not".to_owned(),
            })
            .collect()
    }
}

impl Slots {
    /// Nine of ten are taken: whoever comes next may be refused.
    pub fn is_scarce(&self) -> bool {
        self.taken as u64 * 10 >= self.limit * 9
    }
}

fn slots(limit: u64, sessions: &[SessionView]) -> Slots {
    let taken = || sessions.iter().filter(|session| session.takes_slot);
    Slots {
        limit,
        taken: taken().count(),
        busy: taken().filter(|session| session.busy).count(),
        idle_in_transaction: taken()
            .filter(|session| !session.busy && session.in_transaction)
            .count(),
    }
}
