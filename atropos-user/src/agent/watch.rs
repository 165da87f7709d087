//! Looks into the target once a tick: sessions and wait-for graphs as the engine wants them.
//!
//! In: the target's memory and what the ring told of waits. Out: [`View`]. A view that fails a check is taken again at once,
//! since the target does not stand still; a walk that keeps failing is reported blind.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::agent::opened::Opened;
use crate::agent::register::{Part, Register, Sight};
use crate::agent::watched::{Moment, Watched};
use crate::config::Preset;
use crate::engine::input::{
    Beyond, Blind, InstanceKey, ResourceId, SessionKey, SessionState, Snapshot,
};
use crate::memory::Memory;
use crate::walk::{
    Fields, Graph, LockWalk, Look, SessionList, SessionView, Times, Trust, WalkError,
};

/// How often a view that fails a check is taken again within one tick.
const ATTEMPTS: u32 = 3;

/// Clocks that have parted by more than this, nanoseconds, were set: 5 ms, more than lies between two readings of them.
const STEP_NS: u64 = 5_000_000;
/// Sessions whose own processes one look reads at most, for how far their work is: it takes some microseconds each.
const OWN_READS: usize = 16;

/// How often it is asked who is beyond a limit, nanoseconds: what limits are set to grows slowly.
const LIMITS_EVERY_NS: u64 = 1_000_000_000;

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
    /// Sessions that have more of something than the user wants any to have; nothing if this look did not ask.
    pub beyond: Option<Vec<Beyond>>,
    /// Sessions in all, idle ones included.
    pub session_count: usize,
    /// Sessions that wait for another.
    pub waiting_count: usize,
    /// Places for sessions, where the preset tells how many there are.
    pub slots: Option<Slots>,
    /// The list of sessions could not be read: that nobody is in it says nothing.
    pub unseen: bool,
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
    /// Sessions that take what others lack, by key.
    users: BTreeSet<u64>,
    fields: Fields,
    opened: Opened,
    /// When it is next asked who is beyond a limit.
    limits_due_ns: u64,
    first_look: bool,
    epoch_minus_monotonic_ns: i64,
    /// Times of a session have been seen to agree.
    clocks_proved: bool,
}

impl Watcher {
    /// A watcher of the process that the list and the walks are bound to.
    pub fn new(
        list: SessionList,
        walks: Vec<LockWalk>,
        preset: Preset,
        epoch_minus_monotonic_ns: i64,
    ) -> Self {
        let walks = walks.into_iter().map(Watched::new).collect();
        Self {
            list,
            walks,
            list_trust: Trust::default(),
            preset,
            register: Register::default(),
            keys: BTreeMap::new(),
            begun: BTreeMap::new(),
            users: BTreeSet::new(),
            fields: Fields::default(),
            opened: Opened::default(),
            limits_due_ns: 0,
            first_look: true,
            epoch_minus_monotonic_ns,
            clocks_proved: false,
        }
    }

    /// The wall clock less the monotonic clock at this moment: they part when somebody sets the clock, or the machine sleeps.
    /// Two readings of two clocks differ by themselves a little, and a start that moved with each look would not be one.
    pub fn follow_clock(&mut self, epoch_minus_monotonic_ns: i64) {
        if self
            .epoch_minus_monotonic_ns
            .abs_diff(epoch_minus_monotonic_ns)
            > STEP_NS
        {
            self.epoch_minus_monotonic_ns = epoch_minus_monotonic_ns;
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

    /// These sessions, by key, take what others lack: at the next look it is wanted what they run and how far it is.
    pub fn take(&mut self, users: BTreeSet<u64>) {
        self.users = users;
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
                view.unseen = true;
                view.blind = self.blind();
                return view;
            }
        };
        self.list_trust.passed();
        self.clocks_proved |= sessions.iter().any(|s| s.times == Times::Agree);
        view.session_count = sessions.len();
        view.slots = self.list.slots(&near).map(|limit| slots(limit, &sessions));
        self.keys = sessions.iter().map(|s| (s.id, s.key)).collect();
        let by_key: BTreeMap<u64, &SessionView> = sessions.iter().map(|s| (s.key, s)).collect();
        self.register.keep(&by_key);
        view.beyond = self.beyond(&sessions, now_ns, &near);
        let beyond = view.beyond.iter().flatten();
        let beyond: BTreeSet<u64> = beyond.map(|one| one.session.0).collect();
        let sight = Sight {
            list: &self.list,
            preset: &self.preset,
            memory: &near,
            now_ns,
        };
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
                    let moment = Moment {
                        sessions: &by_key,
                        begun: &self.begun,
                        is_first_look: self.first_look,
                        now_ns,
                    };
                    let register = &mut self.register;
                    let mut yields = |key: u64| register.yields_ns(by_key.get(&key)?, sight);
                    let watched = &mut self.walks[index];
                    watched.trust.passed();
                    let snapshot = watched.snapshot(graph, &moment, &mut yields);
                    view.snapshots.push(snapshot);
                }
                Err(error) => self.walks[index].trust.failed(error),
            }
        }
        if whole {
            // A wait that ended in a timeout or a kill is told by nobody: its begin must not become that of the next one.
            self.begun.retain(|session, _| waiting.contains(session));
        }
        let mut own_reads = 0;
        for session in &sessions {
            let key = session.key;
            let part = parts.get(&key).copied().unwrap_or_default();
            let is_beyond = beyond.contains(&key);
            let is_open = session.busy || session.in_transaction || session.explicit_locks;
            if !is_open && !is_beyond && part == Part::Bystander {
                continue;
            }
            let part = match part {
                // Who takes what others lack is in their way, and holds nothing that would make an idle session matter.
                _ if self.users.contains(&key) => Part::InTheWay,
                Part::Bystander if is_beyond => Part::Beyond,
                part => part,
            };
            let part = match part {
                Part::InTheWay if !waiting.contains(&key) && own_reads < OWN_READS => {
                    own_reads += 1;
                    Part::Root
                }
                part => part,
            };
            let own = own.contains(&session.id);
            let state = self.register.state(session, part, sight);
            view.sessions
                .extend(state.map(|state| SessionState { own, ..state }));
        }
        self.fields = near.learned();
        view.blind = self.blind();
        view.unowned = self.unowned();
        self.first_look = false;
        view
    }

    /// Sessions that have more of something than the user wants any to have; nothing if it is not yet time to ask again.
    fn beyond(
        &mut self,
        sessions: &[SessionView],
        now_ns: u64,
        memory: &dyn Memory,
    ) -> Option<Vec<Beyond>> {
        if !self.list.ends_for_notes() {
            return None;
        }
        self.opened.look(sessions, now_ns);
        if now_ns < self.limits_due_ns {
            return None;
        }
        self.limits_due_ns = now_ns.saturating_add(LIMITS_EVERY_NS);
        let notes = self
            .preset
            .sessions
            .as_ref()
            .map(|one| one.notes.as_slice());
        let notes = notes.unwrap_or_default();
        let mut beyond = Vec::new();
        for session in sessions {
            for (note, value, may_end) in self.list.beyond(session.key, memory) {
                let Some((note, end)) = notes.get(note).and_then(|n| Some((n, n.end.as_ref()?)))
                else {
                    continue;
                };
                beyond.push(Beyond {
                    session: SessionKey(session.key),
                    limit: note.name.clone(),
                    value,
                    most: end.above,
                    may_end,
                    open_ns: self.opened.open_ns(session.key, now_ns),
                    longest_ns: end.after_ns,
                });
            }
        }
        Some(beyond)
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
            let offset_ns = self.epoch_minus_monotonic_ns;
            let sessions = if self.clocks_proved {
                self.list.read_again(&near, offset_ns)
            } else {
                self.list.read(&near, offset_ns)
            };
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
