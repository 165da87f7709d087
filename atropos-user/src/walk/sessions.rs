//! The target's own list of sessions, read without a query.

use std::collections::BTreeMap;

use super::notes::Notes;
use super::progress::Progress;
use super::{Check, Text, Unbound, WalkError, bind, bind_checks, bind_some};
use crate::config::expr::{Bindings, Bound};
use crate::config::{SessionClock, Sessions};
use crate::memory::{Fault, Memory};

/// Microseconds to nanoseconds.
const NS_IN_US: u64 = 1000;
/// Seconds to nanoseconds.
const NS_IN_S: u64 = 1_000_000_000;
/// From 1970 to 2000, seconds.
const EPOCH_2000_S: u64 = 946_684_800;
/// How far the two clocks of one start may differ, seconds: the wall clock is slewed, and steps by less are not worth a word.
const CLOCK_SLACK_S: u64 = 5;

/// One session as its memory shows it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, read from its own field"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// Session key (its address).
    pub key: u64,
    /// Number by which people and the cancel command know it.
    pub id: u64,
    /// Thread of the operating system, 0 if unknown.
    pub thread: u32,
    /// Number of the current request, 0 if unknown.
    pub request: u64,
    /// It runs a request.
    pub busy: bool,
    /// A transaction is open.
    pub in_transaction: bool,
    /// It holds locks that were asked for by name.
    pub explicit_locks: bool,
    /// Start of the current or last request, `CLOCK_MONOTONIC` ns; 0 if unknown.
    pub started_ns: u64,
    /// Start of the transaction that is open, `CLOCK_MONOTONIC` ns; 0 if none is, or if that is unknown.
    pub transaction_ns: u64,
    /// End of the last request, `CLOCK_MONOTONIC` ns; 0 if unknown.
    pub ended_ns: u64,
    /// It has been asked to stop.
    pub killed: bool,
    /// It takes one of the places that there are for sessions.
    pub takes_slot: bool,
    /// Whether its times can be believed. Those that cannot be are unknown: 0.
    pub times: Times,
}

/// What the checks say of a session's times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Nothing: the preset has no check of times, or the session tells none.
    Unchecked,
    /// All of them hold.
    Agree,
    /// One does not hold: somebody set a clock, the session's own (`SET TIMESTAMP`) or the machine's.
    Differ,
}

/// The bound list of sessions.
#[derive(Clone, Debug)]
pub struct SessionList {
    first: Bound,
    next: Bound,
    end: Bound,
    limit: u32,
    present: Option<Bound>,
    lets: Vec<Bound>,
    clock: SessionClock,
    checks: Vec<Check>,
    id: Bound,
    thread: Option<Bound>,
    request: Option<Bound>,
    busy: Bound,
    in_transaction: Option<Bound>,
    explicit_locks: Option<Bound>,
    started_us: Option<Bound>,
    transaction_us: Option<Bound>,
    ended_us: Option<Bound>,
    started_epoch_s: Option<Bound>,
    times: Vec<Check>,
    killed: Option<Bound>,
    text: Option<Text>,
    principal: Option<Text>,
    progress: Progress,
    notes: Notes,
    slots: Option<Bound>,
    takes_slot: Option<Bound>,
}

impl SessionList {
    /// Binds the list to a process.
    ///
    /// # Errors
    /// When an expression names a symbol or layout number that the process does not have.
    pub fn bind(sessions: &Sessions, names: &Bindings) -> Result<Self, Unbound> {
        let nothing = names.with_variables(Vec::<String>::new());
        let of_key = names.with_variables([sessions.name.as_str()]);
        let scope = sessions.scope();
        let mut lets = Vec::new();
        for (index, (_, formula)) in sessions.lets.iter().enumerate() {
            // A let sees the session and the lets before it.
            lets.push(bind(
                formula,
                &names.with_variables(scope[..=index].iter().copied()),
            )?);
        }
        let names = names.with_variables(scope.iter().copied());
        let optional = |formula: &Option<_>| bind_some(formula.as_ref(), &names);
        Ok(Self {
            first: bind(&sessions.first, &nothing)?,
            next: bind(&sessions.next, &of_key)?,
            end: bind(&sessions.end, &nothing)?,
            limit: sessions.limit,
            present: bind_some(sessions.present.as_ref(), &of_key)?,
            lets,
            clock: sessions.clock,
            checks: bind_checks(&sessions.checks, &names)?,
            id: bind(&sessions.id, &names)?,
            thread: optional(&sessions.thread)?,
            request: optional(&sessions.request)?,
            busy: bind(&sessions.busy, &names)?,
            in_transaction: optional(&sessions.in_transaction)?,
            explicit_locks: optional(&sessions.explicit_locks)?,
            started_us: optional(&sessions.started_us)?,
            transaction_us: optional(&sessions.transaction_us)?,
            ended_us: optional(&sessions.ended_us)?,
            started_epoch_s: optional(&sessions.started_epoch_s)?,
            times: bind_checks(&sessions.times, &names)?,
            killed: optional(&sessions.killed)?,
            text: sessions
                .text
                .as_ref()
                .map(|text| Text::bind(text, &names))
                .transpose()?,
            principal: sessions
                .principal
                .as_ref()
                .map(|text| Text::bind(text, &names))
                .transpose()?,
            progress: Progress::bind(&sessions.progress, &scope, &names)?,
            notes: Notes::bind(&sessions.notes, &names)?,
            slots: bind_some(sessions.slots.as_ref(), &nothing)?,
            takes_slot: optional(&sessions.takes_slot)?,
        })
    }

    /// Every session, in the order of the list. `epoch_minus_monotonic_ns` is this machine's wall clock less its
    /// monotonic clock, for the check that the two starts agree.
    ///
    /// Where sessions tell times that can be checked, those of one must agree: what makes them differ (a clock that is set)
    /// does so for the sessions that it meets, a wrong layout for all.
    ///
    /// # Errors
    /// The first check that does not hold: the list changed while it was read, or the layout is wrong.
    pub fn read(
        &self,
        memory: &dyn Memory,
        epoch_minus_monotonic_ns: i64,
    ) -> Result<Vec<SessionView>, WalkError> {
        let views = self.read_again(memory, epoch_minus_monotonic_ns)?;
        let agree = |view: &SessionView| view.times == Times::Agree;
        match views.iter().find(|view| view.times == Times::Differ) {
            Some(view) if !views.iter().any(agree) => Err(WalkError::Check {
                check: "the start by one clock agrees with that by another, in some session"
                    .to_owned(),
                what: "session",
                address: view.key,
            }),
            _ => Ok(views),
        }
    }

    /// The same in a process where times of a session have agreed before: the layout is right, whatever became of the clocks.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_again(
        &self,
        memory: &dyn Memory,
        epoch_minus_monotonic_ns: i64,
    ) -> Result<Vec<SessionView>, WalkError> {
        let end = self.end.eval(&[], memory)?;
        let mut key = self.first.eval(&[], memory)?;
        let mut views = Vec::new();
        let mut ids = BTreeMap::new();
        let mut read_count = 0;
        while key != end {
            if read_count >= self.limit {
                return Err(WalkError::TooLong {
                    head: end,
                    limit: self.limit,
                });
            }
            read_count += 1;
            if !self.is_present(key, memory)? {
                key = self.next.eval(&[key], memory)?;
                continue;
            }
            let view = self.view(key, memory, epoch_minus_monotonic_ns)?;
            // Background threads have no number of their own; two sessions with one number are a wrong layout.
            if view.id != 0 && ids.insert(view.id, key).is_some() {
                return Err(WalkError::Check {
                    check: "session numbers differ".to_owned(),
                    what: "session",
                    address: key,
                });
            }
            views.push(view);
            key = self.next.eval(&[key], memory)?;
        }
        Ok(views)
    }

    /// Whether something that is not in the list is a session all the same, by every check of the preset.
    pub fn proves(&self, key: u64, memory: &dyn Memory) -> bool {
        let holds = |check: &Check, of: &[u64]| check.hold(of, memory, "session", key).is_ok();
        !self.checks.is_empty()
            && self
                .variables(key, memory)
                .is_ok_and(|of| self.checks.iter().all(|check| holds(check, &of)))
    }

    /// One session.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn view(
        &self,
        key: u64,
        memory: &dyn Memory,
        epoch_minus_monotonic_ns: i64,
    ) -> Result<SessionView, WalkError> {
        let of = self.variables(key, memory)?;
        for check in &self.checks {
            check.hold(&of, memory, "session", key)?;
        }
        let number = |bound: &Option<Bound>| {
            bound
                .as_ref()
                .map_or(Ok(0), |bound| bound.eval(&of, memory))
        };
        let moment = |us: u64| self.monotonic_ns(us, epoch_minus_monotonic_ns);
        let (started_ns, ended_ns) = (
            moment(number(&self.started_us)?),
            moment(number(&self.ended_us)?),
        );
        let times = self.times(&of, memory, started_ns, epoch_minus_monotonic_ns)?;
        let believed = |ns| if times == Times::Differ { 0 } else { ns };
        Ok(SessionView {
            key,
            id: self.id.eval(&of, memory)?,
            thread: u32::try_from(number(&self.thread)?).unwrap_or(0),
            request: number(&self.request)?,
            busy: self.busy.eval(&of, memory)? != 0,
            in_transaction: number(&self.in_transaction)? != 0,
            explicit_locks: number(&self.explicit_locks)? != 0,
            started_ns: believed(started_ns),
            transaction_ns: believed(moment(number(&self.transaction_us)?)),
            ended_ns: believed(ended_ns),
            killed: number(&self.killed)? != 0,
            takes_slot: match &self.takes_slot {
                Some(takes_slot) => takes_slot.eval(&of, memory)? != 0,
                None => true,
            },
            times,
        })
    }

    /// What the checks say of a session's times.
    fn times(
        &self,
        of: &[u64],
        memory: &dyn Memory,
        started_ns: u64,
        epoch_minus_monotonic_ns: i64,
    ) -> Result<Times, Fault> {
        if started_ns == 0 || (self.started_epoch_s.is_none() && self.times.is_empty()) {
            return Ok(Times::Unchecked);
        }
        if let Some(epoch_s) = &self.started_epoch_s {
            let epoch_s = epoch_s.eval(of, memory)?.cast_signed();
            let started_s = (started_ns / NS_IN_S).cast_signed();
            let told_s = started_s.saturating_add(epoch_minus_monotonic_ns / NS_IN_S.cast_signed());
            if told_s.abs_diff(epoch_s) > CLOCK_SLACK_S {
                return Ok(Times::Differ);
            }
        }
        for check in &self.times {
            if check.bound.eval(of, memory)? == 0 {
                return Ok(Times::Differ);
            }
        }
        Ok(Times::Agree)
    }

    /// Whether an entry of the list is a session.
    fn is_present(&self, key: u64, memory: &dyn Memory) -> Result<bool, WalkError> {
        let present = self
            .present
            .as_ref()
            .map_or(Ok(1), |present| present.eval(&[key], memory))?;
        Ok(present != 0)
    }

    /// The session and its lets.
    fn variables(&self, key: u64, memory: &dyn Memory) -> Result<Vec<u64>, Fault> {
        let mut variables = vec![key];
        for bound in &self.lets {
            variables.push(bound.eval(&variables, memory)?);
        }
        Ok(variables)
    }

    /// A time of the session's clock as `CLOCK_MONOTONIC` nanoseconds; 0, which is unknown, stays 0.
    fn monotonic_ns(&self, us: u64, epoch_minus_monotonic_ns: i64) -> u64 {
        let ns = us.saturating_mul(NS_IN_US);
        let since_1970_ns = match self.clock {
            SessionClock::Monotonic => return ns,
            _ if us == 0 => return 0,
            SessionClock::Since1970 => ns,
            SessionClock::Since2000 => ns.saturating_add(EPOCH_2000_S * NS_IN_S),
        };
        // At least 1: a session that is older than the machine's last start is known all the same.
        since_1970_ns
            .saturating_add_signed(epoch_minus_monotonic_ns.saturating_neg())
            .max(1)
    }

    /// The session's statement; empty if there is none or it is just being replaced.
    pub fn statement(&self, key: u64, memory: &dyn Memory) -> String {
        self.text
            .as_ref()
            .and_then(|text| text.read(&self.variables(key, memory).ok()?, memory).ok())
            .unwrap_or_default()
    }

    /// The user that the session belongs to; empty if unknown.
    pub fn principal(&self, key: u64, memory: &dyn Memory) -> String {
        self.principal
            .as_ref()
            .and_then(|text| text.read(&self.variables(key, memory).ok()?, memory).ok())
            .unwrap_or_default()
    }

    /// Share of the session's request that is done, 0 to 1, where its memory tells. Its own process is read only if `in_own`.
    pub fn progress(
        &self,
        session: &SessionView,
        memory: &dyn Memory,
        in_own: bool,
    ) -> Option<f64> {
        let of = self.variables(session.key, memory).ok()?;
        let own = || in_own.then(|| memory.of_child(session.thread)).flatten();
        self.progress.share(&of, memory, own).ok()?
    }

    /// Whether sessions are ended for a note of the preset.
    pub fn ends_for_notes(&self) -> bool {
        self.notes.end_sessions()
    }

    /// Each note with more than sessions may have, where they are ended for it: its index, the value, and whether this
    /// session may be ended for it.
    pub fn beyond(&self, key: u64, memory: &dyn Memory) -> Vec<(usize, u64, bool)> {
        self.variables(key, memory)
            .map(|of| self.notes.beyond(&of, memory))
            .unwrap_or_default()
    }

    /// Index and value of each note of the preset that is worth telling of the session.
    pub fn notes(&self, key: u64, memory: &dyn Memory) -> Vec<(usize, u64)> {
        self.variables(key, memory)
            .map(|of| self.notes.of(&of, memory))
            .unwrap_or_default()
    }

    /// How many sessions there can be, if the preset says.
    pub fn slots(&self, memory: &dyn Memory) -> Option<u64> {
        self.slots.as_ref()?.eval(&[], memory).ok()
    }
}
