//! What the engine has to know before the first input: resources, classes, ladder, objective, limits.

use serde::{Deserialize, Serialize};

/// Everything the engine is configured with. Part of a recording, so that a replay needs nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The preset's name, for records.
    pub preset: String,
    /// Resources by [`super::input::ResourceId`].
    pub resources: Vec<Resource>,
    /// Task classes by index.
    pub classes: Vec<Class>,
    /// Ways to end a task, gentlest first.
    pub ladder: Vec<Rung>,
    /// The objective.
    pub slo: Slo,
    /// Principals (user names) that are never cancelled.
    pub protected_principals: Vec<String>,
    /// What may be done.
    pub mode: Mode,
    /// Constants; the defaults hold for every preset.
    pub tuning: Tuning,
    /// Work that was ended and may be run again. Last: a recording that ends before it has the defaults.
    #[serde(default)]
    pub rerun: Rerun,
}

/// What the agent may do with a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Decisions are recorded as advice.
    Observe,
    /// Orders are written out and not sent.
    DryRun,
    /// Orders are sent.
    Enforce,
}

/// A class of application resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Name in the preset.
    pub name: String,
    /// How contention and usage are measured.
    pub kind: Kind,
    /// Names of the modes, by index; empty if there is only one.
    pub modes: Vec<String>,
}

/// Kinds of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// Held by one or several, waited for by others.
    Lock,
    /// Bounded, evicting.
    Memory,
    /// Bounded number of slots.
    Queue,
    /// Processor time.
    Cpu,
    /// Blocked on a device.
    Io,
}

/// A class of task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Class {
    /// Name in the preset: `ddl`, `backup`, `replication`, `write`, …
    pub name: String,
    /// Never cancelled while it holds or runs.
    pub protected: bool,
    /// Not even while it is only queued (a queued request has done no work, so by default it may be cancelled).
    pub protected_queued: bool,
    /// Seconds of undo for each second it has run (0 for what has nothing to undo).
    pub undo: f64,
}

/// One way to end a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// Name in the preset.
    pub name: String,
    /// Works while the session runs a request.
    pub busy: bool,
    /// Works while the session is idle in a transaction or with explicit locks.
    pub idle: bool,
    /// How long the target may take to release after it accepted, before the next rung.
    pub deadline_ns: u64,
}

/// The objective: which latency is too much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// Which percentile, 0 to 100 (99.0 for p99).
    pub percentile: f64,
    /// How much.
    pub limit: SloLimit,
}

/// How much latency is too much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SloLimit {
    /// Above so many nanoseconds.
    Absolute {
        /// The limit.
        ns: u64,
    },
    /// Above the percentile learned in calm by this share, and above a floor under which nobody cares.
    Relative {
        /// 0.2 for "+20%".
        above: f64,
        /// The floor.
        floor_ns: u64,
    },
}

/// Constants of the engine. One set of defaults serves every preset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Length of the window that rates and shares are taken over. 500 ms: long enough for a percentile at 100 requests/s,
    /// short enough to decide within 250 ms of a full stall (a stall fills half the window).
    pub window_ns: u64,
    /// A wait this share of the SLO old makes the engine suspect. 0.5.
    pub suspect_wait_share: f64,
    /// Quiet time before it calms down again. 2 s.
    pub calm_after_ns: u64,
    /// Ticks that must show overload, the objective broken all the while, before anything is chosen. 2: one tick can be a torn view.
    pub confirm_ticks: u32,
    /// Contention level below which a resource is no bottleneck. 0.1.
    pub contention_floor: f64,
    /// Share of the latency above the SLO that contention must explain, else the overload is regular. 0.5.
    pub explained_floor: f64,
    /// Completions may exceed the calm reference by this share and still count as flat. 0.1.
    pub flat_tolerance: f64,
    /// Expected future usage of a task with unknown progress is its usage so far, at most this. 5 s: beyond it age says nothing more.
    pub unknown_horizon_ns: u64,
    /// A task whose progress is beyond this is left to finish. 0.9.
    pub nearly_done: f64,
    /// A task is not cancelled before it has been in the way this long. 50 ms.
    pub min_blocking_ns: u64,
    /// A session idle in a transaction or with explicit locks is not ended before it has been idle this long. 3 s: tools that
    /// swap tables hold locks idly for one to three seconds, on purpose, and applications call each other in between.
    pub min_idle_ns: u64,
    /// The least expected gain, in seconds, worth a cancel. 0.2 s: what waits for a statement of a tenth of a
    /// second is over before anybody would thank for its cancel, and somebody loses work by each; and a full stall is
    /// still decided within 250 ms of its first breach.
    pub min_gain_s: f64,
    /// Orders for each decision. 4: a decision and its release take half a second, so sixteen culprits are ended in two
    /// seconds, and a mistake hits four tasks before its outcome is known.
    pub per_decision: u32,
    /// Orders a minute. 20: more than the sixteen culprits of the largest known incident; a rule that has gone wrong is
    /// stopped within seconds all the same.
    pub per_minute: u32,
    /// Orders an hour. 120: an incident every ten minutes.
    pub per_hour: u32,
    /// After a loss of events nothing is cancelled for this long. 1 s: two windows.
    pub loss_quarantine_ns: u64,
    /// The same work (principal and fingerprint) that was not cancelled for this long is new work. 60 s.
    pub repeat_after_ns: u64,
    /// What happens to work that comes back after it was cancelled.
    pub repeat: Repeat,
    /// Under [`Repeat::BackOff`] the same work is left alone for this long after it was cancelled once, twice as long after the
    /// second time, and so on. 1 s: two windows, so that the first return is not met before it has shown what it does.
    pub repeat_pause_ns: u64,
    /// Members of a group that is to blame only together are ended one by one, within the budget. Off: the group is named
    /// and nothing is cancelled, since each member by itself does what is usual.
    pub end_groups: bool,
}

/// When work that was ended is to be run again, or dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rerun {
    /// What the work kept from others must have been available for so long. 2 s: as long as it takes until the target counts as
    /// calm.
    pub quiet_ns: u64,
    /// A request that could not be run again for so long is dropped: nobody waits for the answer any more. 10 s: the objective is that of ordinary
    /// requests, and whatever was long enough to be a culprit has left it behind; most clients give up within some ten seconds.
    pub wait_ns: u64,
    /// What was ended is run again on this advice and not otherwise, so each is let through to its end the second time. Off: clients try again by
    /// themselves, whatever the engine says, and [`Tuning::repeat`] rules.
    pub once: bool,
    /// Classes for whose answer nobody waits.
    pub background: Vec<Background>,
}

/// A class of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// Index of the class.
    pub class: u16,
    /// After so long it is run again, whatever is overloaded.
    pub wait_ns: u64,
}

impl Rerun {
    /// How long work of a class may wait, if it is background work.
    pub(crate) fn of_class(&self, class: Option<u16>) -> Option<u64> {
        let of_class = self.background.iter().find(|one| Some(one.class) == class);
        of_class.map(|one| one.wait_ns)
    }
}

impl Default for Rerun {
    fn default() -> Self {
        Self {
            quiet_ns: 2_000_000_000,
            wait_ns: 10_000_000_000,
            once: false,
            background: Vec::new(),
        }
    }
}

/// What happens to work (the same statement of the same user, begun since) that comes back after it was cancelled. The very
/// request that an order named is never ordered twice but by the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repeat {
    /// It is left alone, as the paper has it: whoever insists gets through.
    Endure,
    /// It is cancelled again after a pause that grows each time: the others get most of the time, and whoever insists gets
    /// through in a pause. The default.
    BackOff,
    /// It is left alone and named, for a person to see to.
    Alert,
    /// It is a candidate like any other. For targets where the same statement comes from many who know nothing of each other.
    Again,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            window_ns: 500_000_000,
            suspect_wait_share: 0.5,
            calm_after_ns: 2_000_000_000,
            confirm_ticks: 2,
            contention_floor: 0.1,
            explained_floor: 0.5,
            flat_tolerance: 0.1,
            unknown_horizon_ns: 5_000_000_000,
            nearly_done: 0.9,
            min_blocking_ns: 50_000_000,
            min_idle_ns: 3_000_000_000,
            min_gain_s: 0.2,
            per_decision: 4,
            per_minute: 20,
            per_hour: 120,
            loss_quarantine_ns: 1_000_000_000,
            repeat_after_ns: 60_000_000_000,
            repeat: Repeat::BackOff,
            repeat_pause_ns: 1_000_000_000,
            end_groups: false,
        }
    }
}
