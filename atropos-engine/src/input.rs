//! What the engine is told. These types are also what a recording holds (`docs/recording.md`).

mod usage;

use serde::{Deserialize, Serialize};

pub use usage::{SessionUsage, Usage, WakeUp, Woken};

/// What outlives requests and can hold resources between them: a connection, a backend process, a thread.
/// The key (a `THD*`, a pid, a tid, …) is unique while the session lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionKey(pub u64);

/// One lock, pool or queue of a resource (usually its address in the target).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceKey(pub u64);

/// Index of a resource in [`super::EngineConfig`], in the order of the preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResourceId(pub u16);

/// Where a piece of knowledge comes from, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A hold or wait seen event by event.
    Event,
    /// A walk through the target's memory whose checks held.
    Walk,
    /// The kernel half's OPEN map, read at each tick of an application that tells by marks.
    OpenMap,
    /// The application's own list, read over the control connection.
    Snapshot,
    /// Age or wake-up order: good for advice, never enough to cancel.
    Inference,
}

/// Everything that can happen to the engine. Times are `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A transition seen by a probe.
    Event(Event),
    /// Events were lost between the last input and this one.
    Lost(Lost),
    /// The periodic summary; drives every decision.
    Tick(Tick),
    /// Who waits for whom on one resource, as of a moment.
    Snapshot(Snapshot),
    /// What became of an order.
    Outcome(OrderReport),
    /// What sessions used of a resource that nobody waits for in a line.
    Usage(Usage),
    /// In the place of a tick: the sessions could not be looked at.
    Unseen(Unseen),
    /// Who woke sessions that waited for what nobody can be told to hold.
    Woken(Woken),
    /// Sessions that have more of something than the user wants any session to have.
    Excess(Excess),
}

impl Input {
    /// When it happened.
    pub fn at_ns(&self) -> u64 {
        match self {
            Self::Event(event) => event.at_ns,
            Self::Lost(lost) => lost.at_ns,
            Self::Tick(tick) => tick.at_ns,
            Self::Snapshot(snapshot) => snapshot.at_ns,
            Self::Outcome(report) => report.at_ns,
            Self::Usage(usage) => usage.at_ns,
            Self::Unseen(unseen) => unseen.at_ns,
            Self::Woken(woken) => woken.at_ns,
            Self::Excess(excess) => excess.at_ns,
        }
    }
}

/// A transition seen by a probe.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at_ns: u64,
    /// Whose.
    pub session: SessionKey,
    /// What.
    pub kind: EventKind,
}

/// What a transition was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A request starts.
    RequestBegin,
    /// The request is over.
    RequestEnd,
    /// The session is gone with everything it held.
    SessionEnd,
    /// A wait starts.
    WaitBegin {
        /// For what.
        resource: ResourceId,
        /// For which one.
        instance: InstanceKey,
    },
    /// The wait is over, granted or not.
    WaitEnd {
        /// For what.
        resource: ResourceId,
        /// For which one.
        instance: InstanceKey,
    },
    /// The session holds an instance (once more, if it held it already).
    Acquire {
        /// Of what.
        resource: ResourceId,
        /// Which one.
        instance: InstanceKey,
        /// In which mode (an index into the resource's modes; 0 where there is only one).
        mode: u32,
    },
    /// The session lets the instance go (once).
    Release {
        /// Of what.
        resource: ResourceId,
        /// Which one.
        instance: InstanceKey,
    },
    /// The session lets go of every instance of the resource.
    ReleaseAll {
        /// Of what.
        resource: ResourceId,
    },
    /// Somebody (we or a person) asked the target to cancel this session's work.
    Killed,
}

/// Events were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// When this was found out.
    pub at_ns: u64,
    /// How many.
    pub count: u64,
}

/// The periodic summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// When it was taken.
    pub at_ns: u64,
    /// Requests completed since the tick before.
    pub requests: RequestStats,
    /// Sessions that run a request, or are between requests inside a transaction or with explicit locks.
    /// Sessions that are plainly idle are left out.
    pub sessions: Vec<SessionState>,
    /// Resources that cannot be seen at present, with the reason: they can never be a reason to cancel.
    pub blind: Vec<Blind>,
}

/// A look that failed. Nobody knows who runs, waits or holds at this moment: that is not the same as nobody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unseen {
    /// When it was tried.
    pub at_ns: u64,
    /// Requests completed since the tick before.
    pub requests: RequestStats,
}

/// Requests completed since the tick before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestStats {
    /// Completed requests as the target itself counts them, over the whole tick; `None` if it has no such counter.
    pub completed: Option<u64>,
    /// For how long of the tick request probes were attached (0: none, then `latency` is empty).
    pub covered_ns: u64,
    /// Latencies of requests that completed while probes were attached: pairs of (bucket of
    /// [`atropos_common::histogram`], count), in rising order of bucket.
    pub latency: Vec<(u16, u64)>,
}

/// One session at a tick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    /// Which.
    pub session: SessionKey,
    /// The number by which a person and the cancel command know it (a connection id, a pid).
    pub id: u64,
    /// The operating system's thread, 0 if unknown.
    pub thread: u32,
    /// The current request's number in the target (a query id), or the generation; 0 if unknown.
    pub request: u64,
    /// What it is doing.
    pub activity: Activity,
    /// Since when it has been doing that: start of the request, or of the idle time.
    pub since_ns: u64,
    /// Start of the transaction if one is open and its start is known.
    pub transaction_since_ns: Option<u64>,
    /// Index of its task class in [`super::EngineConfig`]; `None` for an ordinary request.
    pub class: Option<u16>,
    /// Who it belongs to (user name), empty if unknown.
    pub principal: String,
    /// Hash of the statement with its literals taken out, 0 if unknown.
    pub fingerprint: u64,
    /// The statement with its literals taken out, cut to 256 bytes; only for sessions that take part in a wait.
    pub digest: String,
    /// Share of the request's work already done, 0 to 1, where the target tells.
    pub progress: Option<f64>,
    /// The target says that the session has been asked to stop.
    pub killed: bool,
    /// It is the agent's own connection.
    pub own: bool,
}

impl SessionState {
    /// A session of which no more is known: it goes by its key for a person as well, and has no number of anything else.
    pub fn new(session: SessionKey, activity: Activity, since_ns: u64) -> Self {
        Self {
            session,
            id: session.0,
            thread: 0,
            request: 0,
            activity,
            since_ns,
            transaction_since_ns: None,
            class: None,
            principal: String::new(),
            fingerprint: 0,
            digest: String::new(),
            progress: None,
            killed: false,
            own: false,
        }
    }
}

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It runs a request.
    Busy,
    /// No request, but a transaction is open.
    IdleInTransaction,
    /// No request and no transaction, but explicit locks (LOCK TABLES, FLUSH TABLES WITH READ LOCK, `GET_LOCK`).
    IdleWithLocks,
}

/// A resource that cannot be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blind {
    /// Which.
    pub resource: ResourceId,
    /// Why, as a sentence for a person.
    pub reason: String,
}

/// Who waits for whom on one resource, as of a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// As of when.
    pub at_ns: u64,
    /// Of which resource.
    pub resource: ResourceId,
    /// How it was learned.
    pub evidence: Evidence,
    /// Every wait of this resource is in `waits`: a wait that is not has ended.
    pub complete: bool,
    /// The waits in progress.
    pub waits: Vec<Wait>,
    /// Names of the instances in `waits` that were not named before (or whose name changed). The engine forgets the name of
    /// an instance that nobody waits for or holds, so one that comes back is named again; naming one too often is harmless.
    pub instances: Vec<InstanceName>,
}

/// A wait in progress and who is in its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// Who waits.
    pub waiter: SessionKey,
    /// For which instance.
    pub instance: InstanceKey,
    /// In which mode it wants it (an index into the resource's modes).
    pub mode: u32,
    /// Since when at least.
    pub since_ns: u64,
    /// Everybody who must go before the wait can end. Never empty in a complete snapshot that passed its checks.
    pub blockers: Vec<Blocker>,
}

/// Somebody who is in the way of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Who.
    pub session: SessionKey,
    /// Holding, or queued ahead.
    pub kind: BlockKind,
    /// Mode held or wanted.
    pub mode: u32,
    /// Since when at least it has been in the way.
    pub since_ns: u64,
}

/// How a session is in the way of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// It holds the instance in a mode that conflicts.
    Granted,
    /// It waits itself, in a mode that goes before the waiter's.
    Queued,
}

/// The name of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceName {
    /// Which.
    pub instance: InstanceKey,
    /// For a person: "table shop.orders", "global read lock".
    pub name: String,
}

/// What became of an order, as far as the agent that carries it out can tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderReport {
    /// When.
    pub at_ns: u64,
    /// Which order.
    pub order: u64,
    /// Which rung of the ladder.
    pub rung: u8,
    /// What happened.
    pub result: OrderResult,
}

/// What happened to an order at the target's door. That the target *released* is seen by the engine itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderResult {
    /// The target accepted the command.
    Accepted,
    /// The task had ended before the command reached it; nobody else was hit.
    Missed,
    /// The target, or the identity check before it, refused; with the reason.
    Refused(String),
    /// The command was written down and not sent (`observe`, `dry-run`).
    NotSent,
    /// Nothing came back: the command was sent, and the target may or may not carry it out; with what was seen.
    Unknown(String),
    /// The command could not be sent for now (no connection, the order before under way, no room in the audit log): the
    /// target has not heard of it. With the reason.
    Unsent(String),
}

/// Sessions that have more of something than the user wants any session to have, though nobody need wait for them. The harm is
/// that of the one that has most: as long as it stays, nothing is gained by ending another. Told right before the tick of
/// the same moment, from time to time, and once more when there are none any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excess {
    /// As of when.
    pub at_ns: u64,
    /// All of them, also those that are not to be ended for it.
    pub sessions: Vec<Beyond>,
}

/// A session that has more than a limit allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beyond {
    /// Which.
    pub session: SessionKey,
    /// Name of the limit.
    pub limit: String,
    /// How much the session has of what is limited, in the limit's own unit.
    pub value: u64,
    /// How much it may have.
    pub most: u64,
    /// It may be ended for it at all.
    pub may_end: bool,
    /// For how long its transaction has been open, nanoseconds.
    pub open_ns: u64,
    /// For how long it may have more than `most`, nanoseconds.
    pub longest_ns: u64,
}
