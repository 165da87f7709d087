//! What the engine says: effects, and the record that explains a decision.

use serde::{Deserialize, Serialize};

use super::input::{Activity, BlockKind, Evidence, InstanceKey, ResourceId, SessionKey};
use super::settings::{Kind, Mode};

/// What the engine wants done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Attach or detach the fuller probe set.
    Level(Level),
    /// The overload began, changed its nature, or ended.
    Overload(OverloadNote),
    /// A decision, explained. Comes before the orders it makes.
    Decision(Box<Decision>),
    /// End a task. In `observe` and `dry-run` the agent writes it down and reports `NotSent`.
    Cancel(Order),
    /// What finally became of an order.
    Outcome(OrderOutcome),
    /// What to do about work that was ended.
    Advice(Advice),
    /// Who may hold what nobody can be told to hold: for a person alone.
    Hints(Hints),
}

/// How closely the target is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Slow-path probes and samples only.
    Calm,
    /// Everything the preset offers.
    Suspect,
}

/// The overload began, changed its nature, or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverloadNote {
    /// When.
    pub at_ns: u64,
    /// What.
    pub state: OverloadState,
    /// In one sentence, with the numbers.
    pub reason: String,
}

/// What kind of overload it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverloadState {
    /// Latency above the SLO, throughput flat, work pending: a contended resource explains it.
    Resource,
    /// Overloaded, but no resource explains it: nothing is cancelled, other mechanisms must help.
    Regular,
    /// Over.
    Ended,
}

/// A decision, explained so that it can be checked from this record alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Number of the decision since the start.
    pub decision: u64,
    /// When it was made.
    pub at_ns: u64,
    /// When the SLO was first broken in this overload.
    pub breach_ns: u64,
    /// Mode in force.
    pub mode: Mode,
    /// What made the engine look.
    pub trigger: Trigger,
    /// Every resource with its level.
    pub resources: Vec<Assessment>,
    /// Every candidate, best first, with its score in parts and, if it was passed over, why.
    pub candidates: Vec<Candidate>,
    /// The orders it makes; empty when every candidate was passed over.
    pub orders: Vec<Order>,
    /// In one sentence: who, for what, why, and why not the runner-up.
    pub summary: String,
    /// The group that is to blame together, where no single task is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// Who woke those that waited for what nobody can be told to hold, in the seconds before. No part of the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    /// The limit that the one candidate is beyond, where the decision is about that and not about an overload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Exceeded>,
}

/// What is new of who wakes those that wait for a resource whose holders are not seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hints {
    /// When it was seen.
    pub at_ns: u64,
    /// Of that resource, the one with the most wake-ups first.
    pub hints: Vec<Hint>,
}

/// Somebody woke those that waited for what nobody can be told to hold: it may have been the holder, or have held it before them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hint {
    /// Of which resource.
    pub resource: ResourceId,
    /// What was waited for.
    pub instances: Vec<String>,
    /// Sessions that waited and were woken.
    pub waiter_count: u64,
    /// How often, at most.
    pub wake_count: u64,
    /// The thread that woke them.
    pub thread: u32,
    /// Its session, where it is one's.
    pub task: Option<Task>,
    /// Always [`Evidence::Inference`].
    pub evidence: Evidence,
    /// In one sentence.
    pub says: String,
}

/// A limit that a task is beyond.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exceeded {
    /// Its name in the preset.
    pub name: String,
    /// How much the task has of what is limited.
    pub value: u64,
    /// How much it may have.
    pub most: u64,
    /// For how long its transaction has been open, seconds.
    pub open_s: f64,
    /// For how long it may have more, seconds.
    pub longest_s: f64,
}

/// Tasks that are to blame together while each by itself does what is usual.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// What they have in common.
    pub by: GroupBy,
    /// The user's name, or the statement without literals.
    pub name: String,
    /// Of which resource they take so much.
    pub resource: ResourceId,
    /// How many they are.
    pub member_count: u64,
    /// Their share of all use, or of the blame, 0 to 1.
    pub share: f64,
}

/// What the members of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// They belong to one user.
    User,
    /// They run the same statement.
    Statement,
}

/// What made the engine look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// The SLO's percentile over completed and in-flight requests, nanoseconds.
    pub latency_ns: u64,
    /// The limit in force, nanoseconds.
    pub limit_ns: u64,
    /// Completions a second in the window, if they could be counted.
    pub throughput: Option<f64>,
    /// The calm reference, if one has been learned.
    pub reference: Option<f64>,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests in flight that wait for a resource.
    pub waiting: u64,
    /// Share of the latency above the limit that the resources explain, 0 to 1.
    pub explained: f64,
}

/// One resource at the time of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assessment {
    /// Which.
    pub resource: ResourceId,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The paper's raw contention (for LOCK: wait time over hold time).
    pub raw: f64,
    /// Contention level: share of execution time lost, 0 to 1.
    pub level: f64,
    /// Time lost in the window, seconds.
    pub lost_s: f64,
    /// Why it cannot be seen, if so.
    pub blind: Option<String>,
    /// Who used most of it in the window, where that is told (MEMORY, CPU, IO); to blame or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_used: Option<MostUsed>,
}

/// Who used most of a resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MostUsed {
    /// Number of the session.
    pub id: u64,
    /// Its share of all use (or of all that is held) that is known, 0 to 1.
    pub share: f64,
}

/// One candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Who.
    pub task: Task,
    /// What ending it would free, by resource.
    pub gains: Vec<Gain>,
    /// Sum of level times gain.
    pub score: f64,
    /// Why it was not chosen; `None` for the chosen ones.
    pub passed_over: Option<PassedOver>,
}

/// A task as a person knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Session.
    pub session: SessionKey,
    /// Number by which the cancel command knows it.
    pub id: u64,
    /// Operating system thread, 0 if unknown.
    pub thread: u32,
    /// The current request's number, 0 if unknown.
    pub request: u64,
    /// What it was doing when it was chosen: the identity check before an order asks for the same.
    pub activity: Activity,
    /// Name of its class, empty for an ordinary request.
    pub class: String,
    /// User.
    pub principal: String,
    /// Hash of the statement without literals, 0 if unknown.
    pub fingerprint: u64,
    /// The statement without literals, may be empty.
    pub digest: String,
    /// "running 1.2 s", "idle in a transaction for 31 s".
    pub doing: String,
    /// Since when, nanoseconds of `CLOCK_MONOTONIC`; 0 if unknown. For the identity check alone, and written nowhere.
    #[serde(skip)]
    pub since_ns: u64,
    /// When it was seen to do that.
    #[serde(skip)]
    pub seen_ns: u64,
}

impl Task {
    /// A task of which nothing else is known.
    #[must_use]
    pub fn new(session: SessionKey, activity: Activity) -> Self {
        Self {
            session,
            id: 0,
            thread: 0,
            request: 0,
            activity,
            class: String::new(),
            principal: String::new(),
            fingerprint: 0,
            digest: String::new(),
            doing: String::new(),
            since_ns: 0,
            seen_ns: 0,
        }
    }
}

/// What ending a task would free of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Which resource.
    pub resource: ResourceId,
    /// Which contended instances, with names.
    pub instances: Vec<HeldInstance>,
    /// Usage so far, seconds: time in the way, less what the task itself lost to others meanwhile.
    pub usage_s: f64,
    /// Progress taken for the estimate, and whether it is known.
    pub progress: Option<f64>,
    /// Share of the resource's lost time that this task is to blame for, 0 to 1.
    pub blame: f64,
    /// Cost of undoing its work, seconds.
    pub undo_s: f64,
    /// Future usage freed, less the undo, times the blame (of a pool, whose slots serve everybody, the whole); seconds.
    pub gain_s: f64,
}

/// A contended instance that a candidate is in the way of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldInstance {
    /// Which.
    pub instance: InstanceKey,
    /// Its name.
    pub name: String,
    /// Mode held or wanted, by name.
    pub mode: String,
    /// Holding or queued.
    pub kind: BlockKind,
    /// For how long at least, seconds.
    pub for_s: f64,
    /// Sessions that wait for it because of this task, directly.
    pub waiters: u64,
    /// How it is known.
    pub evidence: Evidence,
}

/// Why a candidate was not chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassedOver {
    /// Another candidate has the higher score.
    LowerScore,
    /// Another candidate gains at least as much on every resource.
    Dominated {
        /// By the task with this id.
        by: u64,
    },
    /// Its class is protected.
    ProtectedClass,
    /// Its user is protected.
    ProtectedPrincipal,
    /// It is the agent's own session.
    Own,
    /// It waits itself for something else: it is a victim of the task with this id.
    Victim {
        /// Who it waits for.
        of: u64,
    },
    /// It has not been in the way long enough.
    TooYoung,
    /// It is idle in a transaction, but not for long enough.
    NotIdleLongEnough,
    /// It is nearly done.
    NearlyDone,
    /// The expected gain is not worth a cancel.
    GainTooSmall,
    /// It is to blame for little of the loss beside another task that is in the way.
    MinorCause,
    /// It has held what others want for no longer than is usual there: all of them together are too much.
    LikeItsPeers,
    /// It is one of many alike that come and go, queued or writing: the next would stand where it stood.
    Ordinary,
    /// The same work was cancelled before.
    CancelledBefore,
    /// An order for it is under way.
    UnderWay,
    /// No rung of the ladder works in its state.
    NoRung,
    /// The budget of orders is spent.
    Budget,
    /// Its evidence is not good enough.
    WeakEvidence,
    /// The agent has lost events.
    LostEvents,
    /// It waits itself at this moment, for a lock whose holders cannot be seen: another may be to blame, or a disk.
    HeldUp,
    /// An order could not be sent a moment ago.
    Unsent,
}

/// An order to end one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Number of the order since the start.
    pub order: u64,
    /// Decision that made it.
    pub decision: u64,
    /// When.
    pub at_ns: u64,
    /// Whom.
    pub task: Task,
    /// Which rung of the ladder, by index.
    pub rung: u8,
    /// Name of the rung.
    pub rung_name: String,
    /// Gain expected, seconds.
    pub expected_gain_s: f64,
}

/// What finally became of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderOutcome {
    /// Which.
    pub order: u64,
    /// When this was established.
    pub at_ns: u64,
    /// Whom it named (id).
    pub id: u64,
    /// What.
    pub result: OutcomeKind,
    /// From the target's acceptance to its release, if it released.
    pub time_to_release_ns: Option<u64>,
    /// Gain expected, seconds.
    pub expected_gain_s: f64,
    /// Gain realised, seconds: the expected gain times the share that is gone of what was blamed on the task. Blamed is the
    /// time that those who waited for it lost in the window before the order (and for what it used, everybody's loss to those
    /// resources); what is left of it is what the same sessions lose to the same resources in the window after the release.
    /// `None` while unknown.
    pub realised_gain_s: Option<f64>,
    /// In one sentence.
    pub summary: String,
}

/// Final fate of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The target released what the task held.
    Released,
    /// It had ended before the order arrived.
    Missed,
    /// The target or the identity check refused.
    Refused,
    /// Accepted, and the deadline of the last rung passed without a release.
    Stuck,
    /// Accepted, and the task is undoing its work beyond the rung's deadline; not escalated, since that would not be faster.
    RollingBack,
    /// Not sent, by mode.
    NotSent,
    /// It could not be sent; tried again after a pause if it is still to blame by then.
    Unsent,
    /// The session has gone on to another request, or is not listed any more, and others still wait for it: the order is done
    /// with, and what it does by now is judged afresh.
    GoneOn,
    /// Still in the way after the rung, and by what is seen at present no further rung may be taken; the order stays in flight.
    Withheld,
}

/// What to do about a request that was ended. Whoever sent it, or stands in front of the server, may follow it; the agent
/// itself runs nothing again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The order that ended it.
    pub order: u64,
    /// When this is said.
    pub at_ns: u64,
    /// What to do.
    pub kind: AdviceKind,
    /// The task as it was when it was ended.
    pub task: Task,
    /// Time since it let go.
    pub waited_ns: u64,
    /// In one sentence.
    pub summary: String,
}

/// What to do about a request that was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdviceKind {
    /// Run it again: what it kept from others has stayed available, or it is background work that has waited as long as it may.
    Retry,
    /// Tell the client that there will be no answer: it comes too late by now.
    Drop,
}
