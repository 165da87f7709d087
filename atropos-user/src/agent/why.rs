//! One look at a server that may be stalled: who blocks whom on what, what ending each candidate would free, and what
//! could not be seen. No probe, no query, no connection: `/proc` and the target's memory only.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;

use super::forest::{Forest, doing};
use super::processor::{self, Processor};
use super::resolve::Resolved;
use super::watch::{Slots, View, Watcher};
use super::{clock, initiator};
use crate::engine::input::{Activity, BlockKind, Input, RequestStats, ResourceId, Tick};
use crate::engine::record::{Candidate, Task};
use crate::engine::settings::{Mode, Slo, SloLimit};
use crate::engine::{Engine, Survey};
use crate::target::BlockingLock;
use crate::target::glibc::LockOwner;

/// Version of the JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// Looks that may fail before what was seen is said to be incomplete. A stalled server stands still; a busy one moves
/// between two reads now and then.
const LOOKS: u32 = 8;

/// What one look found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// Preset that was used.
    pub preset: String,
    /// Time that the look took, milliseconds.
    pub took_ms: f64,
    /// Sessions in all.
    pub session_count: usize,
    /// Sessions that wait for another.
    pub waiting_count: usize,
    /// Wait-for trees, those with the most waiters first. A root waits for nobody.
    pub roots: Vec<Node>,
    /// What could be ended, best first.
    pub candidates: Vec<Choice>,
    /// In one or two sentences.
    pub summary: String,
    /// Waits for what nobody can be told to hold, those with the most sessions first.
    pub unowned: Vec<Unowned>,
    /// What else is worth telling of a session.
    pub notes: Vec<Told>,
    /// Places for sessions, where the preset tells how many there are.
    pub slots: Option<Slots>,
    /// Threads that wait for a lock of the C library, by owner.
    pub mutexes: Vec<MutexWait>,
    /// What could not be seen.
    pub unseen: Vec<String>,
}

/// One session in a tree.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// Number by which the cancel command knows it.
    pub id: u64,
    /// Thread of the operating system.
    pub thread: u32,
    /// User.
    pub principal: String,
    /// Statement without its literals; of an idle session the last one that was seen, often empty.
    pub statement: String,
    /// What it is doing: "running for 1.2 s", "idle in a transaction for 31 s".
    pub doing: String,
    /// How its thread gets on at the scheduler, of a root that runs a request.
    pub processor: Option<Processor>,
    /// What it waits for, if it waits.
    pub waits_for: Option<WaitsFor>,
    /// How it is in the way of those below it.
    pub in_the_way: Vec<InTheWay>,
    /// Sessions below it, at any depth.
    pub waiters_count: usize,
    /// Others above it besides the one it stands under.
    pub also_behind: Vec<u64>,
    /// Those that it keeps waiting, directly.
    pub children: Vec<Node>,
}

/// What a session waits for.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsFor {
    /// Name of the instance.
    pub instance: String,
    /// Mode that it wants.
    pub mode: String,
    /// For at most so long, seconds: since its statement began.
    pub for_s: f64,
}

/// How a session is in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct InTheWay {
    /// Name of the instance.
    pub instance: String,
    /// Mode held or wanted.
    pub mode: String,
    /// Holding or queued.
    pub kind: BlockKind,
}

/// Something that could be ended.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Session.
    pub id: u64,
    /// The command that a person could type.
    pub command: String,
    /// Sessions that would go on.
    pub frees_count: usize,
    /// Time that ending it would save the others, seconds.
    pub gain_s: f64,
    /// Undoing its work would take about so long, seconds.
    pub undo_s: f64,
    /// Why it would not be chosen; nothing for the best.
    pub but: Option<String>,
}

/// Sessions that wait for something whose holder cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unowned {
    /// The resource.
    pub resource: String,
    /// What of it.
    pub instance: String,
    /// How many wait.
    pub sessions: usize,
}

/// Something worth telling of a session beside whom it keeps waiting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// Number of the session.
    pub id: u64,
    /// What it is doing, if anything.
    pub doing: String,
    /// The sentence.
    pub says: String,
}

/// A thread that waits for a lock of the C library.
#[derive(Clone, Debug, Serialize)]
pub struct MutexWait {
    /// The thread.
    pub thread: u32,
    /// Its session's number, if it has one.
    pub session: Option<u64>,
    /// `mutex` or `rwlock`, with its address.
    pub lock: String,
    /// Owner's thread; nothing if readers hold it, of whom the C library keeps no list.
    pub owner_thread: Option<u32>,
    /// Owner's session.
    pub owner_session: Option<u64>,
}

/// Takes one look.
///
/// # Errors
/// When the sessions cannot be listed at all.
pub fn look(resolved: &Resolved) -> Result<Report> {
    let begun_ns = clock::monotonic_ns();
    // Before the sessions: whoever is blocked now is at work when those are read, unless it has gone on.
    let blocked = blocked(resolved);
    let mut watcher = resolved.watcher()?;
    let mut view = watcher.look(&resolved.memory, begun_ns, &[]);
    for _ in 1..LOOKS {
        if view.snapshots.len() == resolved.walks.len() {
            break;
        }
        view = watcher.look(&resolved.memory, clock::monotonic_ns(), &[]);
    }
    let now_ns = clock::monotonic_ns();
    let survey = survey(resolved, &view, now_ns);
    let forest = Forest::new(&watcher, &view, now_ns);
    let roots = forest.roots();
    let candidates = choices(resolved, &survey, &forest);
    let took_ms = clock::monotonic_ns().saturating_sub(begun_ns) as f64 / 1e6;
    let mut report = Report {
        schema_version: SCHEMA_VERSION,
        pid: resolved.process.pid(),
        program: resolved.process.exe().display().to_string(),
        preset: resolved.preset.name.value.clone(),
        session_count: view.session_count,
        waiting_count: view.waiting_count,
        unowned: unowned(resolved, &view, &watcher),
        notes: notes(resolved, &view, &watcher, now_ns),
        slots: view.slots,
        summary: summary(&view, &candidates),
        mutexes: mutexes(resolved, &view, blocked),
        unseen: unseen(resolved, &view, &watcher),
        roots,
        candidates,
        took_ms,
    };
    processor::watch(resolved, &view.sessions, &mut report.roots);
    Ok(report)
}

/// What the engine would say of this one view: the same scoring as in `run`, without waiting for an overload.
fn survey(resolved: &Resolved, view: &View, now_ns: u64) -> Survey {
    let slo = Slo {
        percentile: 99.0,
        limit: SloLimit::Absolute { ns: u64::MAX },
    };
    let mut engine = Engine::new(resolved.preset.settings(slo, Mode::Observe, Vec::new()));
    let mut effects = Vec::new();
    let tick = |at_ns| {
        let (requests, sessions, blind) = (
            RequestStats::default(),
            view.sessions.clone(),
            view.no_reason(),
        );
        Input::Tick(Tick {
            at_ns,
            requests,
            sessions,
            blind,
        })
    };
    engine.handle(&tick(now_ns), &mut effects);
    for snapshot in &view.snapshots {
        engine.handle(&Input::Snapshot(snapshot.clone()), &mut effects);
    }
    engine.handle(&tick(now_ns), &mut effects);
    engine.survey()
}

/// The engine's candidates with the command that a person would type.
fn choices(resolved: &Resolved, survey: &Survey, forest: &Forest<'_>) -> Vec<Choice> {
    let choice = |candidate: &Candidate| Choice {
        id: candidate.task.id,
        command: command(resolved, &candidate.task),
        frees_count: forest.freed(candidate.task.session.0).len(),
        gain_s: candidate.gains.iter().map(|gain| gain.gain_s).sum(),
        undo_s: candidate
            .gains
            .iter()
            .map(|gain| gain.undo_s)
            .fold(0.0, f64::max),
        but: candidate.why_not(),
    };
    survey.candidates.iter().map(choice).collect()
}

/// The gentlest command that works in the task's state.
fn command(resolved: &Resolved, task: &Task) -> String {
    let busy = task.activity == Activity::Busy;
    let rungs = resolved
        .preset
        .cancel
        .as_ref()
        .map(|cancel| cancel.rungs.as_slice())
        .unwrap_or_default();
    let rung = rungs
        .iter()
        .position(|rung| if busy { rung.busy } else { rung.idle });
    rung.map(|rung| initiator::describe(resolved, rung, task))
        .unwrap_or_default()
}

fn summary(view: &View, choices: &[Choice]) -> String {
    if view.waiting_count == 0 {
        let unowned = view
            .snapshots
            .iter()
            .any(|snapshot| !snapshot.waits.is_empty());
        return if unowned {
            "Nobody is seen to wait for another; who is in the way of those that wait cannot be told."
        } else {
            "Nobody waits for anybody."
        }
        .to_owned();
    }
    match choices.iter().find(|choice| choice.but.is_none()) {
        Some(Choice {
            id,
            command,
            frees_count,
            ..
        }) => {
            format!("{command} would end session {id}'s work and let {frees_count} go on.")
        }
        None if choices.is_empty() => {
            "Sessions wait, but nobody can be told to be the cause.".to_owned()
        }
        None => "Sessions wait; ending none of those in the way is advised.".to_owned(),
    }
}

/// Waits without anybody in the way, counted by what is waited for.
fn unowned(resolved: &Resolved, view: &View, watcher: &Watcher) -> Vec<Unowned> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for snapshot in &view.snapshots {
        let waits = snapshot.waits.iter();
        for wait in waits.filter(|wait| wait.blockers.is_empty()) {
            let resource = name(resolved, snapshot.resource).to_owned();
            let instance = watcher.instance_name(snapshot.resource, wait.instance);
            *counts.entry((resource, instance)).or_default() += 1;
        }
    }
    let counted = |((resource, instance), sessions)| Unowned {
        resource,
        instance,
        sessions,
    };
    let mut unowned: Vec<Unowned> = counts.into_iter().map(counted).collect();
    unowned.sort_by_key(|one| std::cmp::Reverse(one.sessions));
    unowned
}

/// The preset's notes with the sessions that they are about.
fn notes(resolved: &Resolved, view: &View, watcher: &Watcher, now_ns: u64) -> Vec<Told> {
    let notes = resolved.preset.sessions.iter().flat_map(|s| &s.notes);
    let texts: Vec<&str> = notes.map(|note| note.says.as_str()).collect();
    let told = watcher.notes(&resolved.memory);
    told.into_iter()
        .filter_map(|(key, note, value)| {
            let state = view.sessions.iter().find(|state| state.session == key);
            Some(Told {
                id: state.map_or(0, |state| state.id),
                doing: state.map(|state| doing(state, now_ns)).unwrap_or_default(),
                says: texts.get(note)?.replace("{value}", &value.to_string()),
            })
        })
        .collect()
}

/// Name of a resource.
fn name(resolved: &Resolved, resource: ResourceId) -> &str {
    resolved
        .preset
        .resources
        .get(usize::from(resource.0))
        .map_or("?", |resource| resource.name.value.as_str())
}

/// Threads that wait for a mutex or rwlock of the C library, each with what blocks it.
fn blocked(resolved: &Resolved) -> Vec<(u32, BlockingLock)> {
    let threads = resolved.process.thread_ids().unwrap_or_default();
    let with_lock = |thread: u32| {
        let lock = resolved.process.lock_that_blocks(thread, &resolved.memory);
        Some((thread, lock.ok()??))
    };
    threads.into_iter().filter_map(with_lock).collect()
}

/// The same with the sessions of who waits and of who owns.
fn mutexes(resolved: &Resolved, view: &View, blocked: Vec<(u32, BlockingLock)>) -> Vec<MutexWait> {
    let session_of = |tid: u32| {
        let thread = resolved.process.theirs(tid)?;
        view.sessions
            .iter()
            .find(|s| s.thread == thread && thread != 0)
            .map(|s| s.id)
    };
    let wait = |(thread, blocking): (u32, BlockingLock)| MutexWait {
        thread,
        session: session_of(thread),
        lock: match blocking.lock {
            LockOwner::Mutex { address, .. } => format!("mutex {address:#x}"),
            LockOwner::RwLockWriter { address, .. } => format!("rwlock {address:#x}"),
            LockOwner::RwLockReaders { address, .. } => {
                format!("rwlock {address:#x}, held by readers")
            }
        },
        owner_thread: blocking.owner_tid,
        owner_session: blocking.owner_tid.and_then(session_of),
    };
    blocked.into_iter().map(wait).collect()
}

/// What could not be seen, in sentences.
fn unseen(resolved: &Resolved, view: &View, watcher: &Watcher) -> Vec<String> {
    let mut unseen: Vec<String> = resolved.unlearned.iter().map(ToString::to_string).collect();
    unseen.extend(
        resolved
            .walks
            .iter()
            .filter_map(|walk| walk.as_ref().err().cloned()),
    );
    for (walk, trust) in watcher.walks() {
        let seen = view
            .snapshots
            .iter()
            .any(|snapshot| snapshot.resource == walk.resource());
        if !seen {
            let reason = trust.last().map_or_else(
                || "the sessions could not be listed".to_owned(),
                ToString::to_string,
            );
            unseen.push(format!(
                "{} could not be read: {reason}",
                name(resolved, walk.resource())
            ));
        }
    }
    unseen.extend(resolved.preset.unseen.iter().cloned());
    unseen
}
