//! How sessions are listed, and what is read of each.

use super::{Formula, TextAt};

/// How to list every session. Expressions know the session as [`Sessions::name`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sessions {
    /// Variable that stands for a session's key.
    pub name: String,
    /// First session (no variables).
    pub first: Formula,
    /// The session after this one.
    pub next: Formula,
    /// What stands in the place of a session at the end of the list (no variables).
    pub end: Formula,
    /// Longest list that is believed.
    pub limit: u32,
    /// Whether an entry is a session at all (no lets); all are without it.
    pub present: Option<Formula>,
    /// Variables worked out in turn, each from those before it.
    pub lets: Vec<(String, Formula)>,
    /// What `started_us` and `ended_us` count from.
    pub clock: SessionClock,
    /// Probes name a session by its number, not by its key.
    pub probes_tell_id: bool,
    /// Each must be true of every session, or the layout is wrong.
    pub checks: Vec<Formula>,
    /// Number by which people and the cancel command know the session.
    pub id: Formula,
    /// Thread of the operating system.
    pub thread: Option<Formula>,
    /// Number of the current request.
    pub request: Option<Formula>,
    /// Whether it runs a request.
    pub busy: Formula,
    /// Whether a transaction is open.
    pub in_transaction: Option<Formula>,
    /// Whether it holds locks that a person asked for by name.
    pub explicit_locks: Option<Formula>,
    /// Start of the current or last request, microseconds of [`Self::clock`].
    pub started_us: Option<Formula>,
    /// Start of the transaction that is open, microseconds of [`Self::clock`]; 0 if none is.
    pub transaction_us: Option<Formula>,
    /// End of the last request, microseconds of [`Self::clock`].
    pub ended_us: Option<Formula>,
    /// The start again, in seconds since 1970: a check of the times.
    pub started_epoch_s: Option<Formula>,
    /// Each must be true of a session's times, or these are unknown; in some session they are, or the layout is wrong.
    pub times: Vec<Formula>,
    /// Not 0 once it has been asked to stop.
    pub killed: Option<Formula>,
    /// The statement.
    pub text: Option<TextAt>,
    /// Who it belongs to.
    pub principal: Option<TextAt>,
    /// How far the request is; the first step whose `when` holds.
    pub progress: Vec<Step>,
    /// What is worth telling of a session beside whom it keeps waiting.
    pub notes: Vec<Note>,
    /// How many sessions there can be (no variables).
    pub slots: Option<Formula>,
    /// Whether the session takes one of them; all do without it.
    pub takes_slot: Option<Formula>,
}

impl Sessions {
    /// Variables of a session's expressions, by slot: the session, then the lets.
    pub fn scope(&self) -> Vec<&str> {
        std::iter::once(self.name.as_str())
            .chain(self.lets.iter().map(|(name, _)| name.as_str()))
            .collect()
    }
}

/// What a session's times count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionClock {
    /// `CLOCK_MONOTONIC`.
    #[default]
    Monotonic,
    /// The wall clock, since 1970.
    Since1970,
    /// The wall clock, since 2000.
    Since2000,
}

/// One stretch of a request's work.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Whether the request is in it.
    pub when: Formula,
    /// Work of the step that is done.
    pub done: Formula,
    /// All of the step's work in the same unit; 0 while it is unknown.
    pub total: Formula,
    /// Share of the request's work that lies before the step, 0 to 1.
    pub from: f64,
    /// Share of the request's work that is done at its end, above `from`.
    pub to: f64,
    /// The whole is a guess, made before the work began.
    pub is_estimate: bool,
    /// Everything but `when` is read in the memory of the process that is the session's thread.
    pub own_process: bool,
    /// Variables of `done`, `total` and `checks`, each from the session's and those before it.
    pub lets: Vec<(String, Formula)>,
    /// Each must be true, or nothing is told.
    pub checks: Vec<Formula>,
}

/// Something worth telling of whichever session has most of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Its name.
    pub name: String,
    /// How much.
    pub value: Formula,
    /// Less than this is not worth telling.
    pub least: u64,
    /// The sentence; `{value}` stands for the number.
    pub says: String,
    /// From when on a session is ended for it; never without it.
    pub end: Option<NoteEnd>,
}

/// From when on a session is ended for what a note tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct NoteEnd {
    /// Whether it may be ended for it at all; every session may without it.
    pub may_end: Option<Formula>,
    /// The value must be above this.
    pub above: u64,
    /// The transaction must have been open for longer than this, nanoseconds.
    pub after_ns: u64,
}
