//! Work that comes back after it was ended: the same statement of the same user, begun since.
//!
//! It is left alone for a while that grows each time, so that the others get most of the time and whoever insists gets
//! through in the end. Once it has got through it has what it wanted: what comes next is new work.

use std::collections::BTreeSet;

use super::input::{SessionKey, SessionState};
use super::ledger::Ledger;
use super::settings::{Repeat, Tuning};

/// What a session does, so that it is known when it comes again.
#[derive(Clone, Debug, PartialEq)]
struct Work {
    session: SessionKey,
    request: u64,
    principal: String,
    /// 0: only this very request is meant.
    fingerprint: u64,
}

impl Work {
    fn of(state: &SessionState) -> Self {
        Self {
            session: state.session,
            request: state.request,
            principal: state.principal.clone(),
            fingerprint: state.fingerprint,
        }
    }

    /// Whether a session runs this very request.
    fn is_same(&self, state: &SessionState) -> bool {
        (self.session, self.request) == (state.session, state.request)
    }

    /// Whether it is the same statement of the same user.
    fn is_alike(&self, fingerprint: u64, principal: &str) -> bool {
        self.fingerprint != 0
            && (self.fingerprint, self.principal.as_str()) == (fingerprint, principal)
    }
}

/// Work that was ended.
#[derive(Clone, Debug)]
struct Ended {
    at_ns: u64,
    order: u64,
    work: Work,
}

impl Ended {
    /// Whether a session does that work once more. One that ran beside it, begun before, is a culprit of its own.
    fn is_again(&self, state: &SessionState) -> bool {
        self.work.is_alike(state.fingerprint, &state.principal) && state.since_ns >= self.at_ns
    }
}

/// Remembers what was ended. Its size is bounded by the budgets.
#[derive(Clone, Debug, Default)]
pub(super) struct Again {
    ended: Vec<Ended>,
    /// Requests that do again what was ended, and were left alone for it.
    let_through: Vec<Work>,
}

impl Again {
    /// An order was made. The next rung for the same request is the same time.
    pub(super) fn ordered(&mut self, order: u64, state: &SessionState, at_ns: u64) {
        let work = Work::of(state);
        match self.ended.iter_mut().find(|ended| ended.work == work) {
            Some(ended) => ended.order = order,
            None => self.ended.push(Ended { at_ns, order, work }),
        }
    }

    /// The order reached nobody.
    pub(super) fn missed(&mut self, order: u64) {
        self.ended.retain(|ended| ended.order != order);
    }

    /// The order was refused: this very request is left alone, the same work elsewhere is not.
    pub(super) fn refused(&mut self, order: u64) {
        let of_order = self.ended.iter_mut().filter(|ended| ended.order == order);
        for ended in of_order {
            ended.work.fingerprint = 0;
        }
    }

    /// Forgets what is long past.
    pub(super) fn forget(&mut self, tuning: &Tuning, now_ns: u64) {
        self.ended
            .retain(|ended| now_ns.saturating_sub(ended.at_ns) < tuning.repeat_after_ns);
    }

    /// A request was in the way and was left alone, since it does again what was ended.
    pub(super) fn lets_through(&mut self, state: &SessionState) {
        if !self.let_through.iter().any(|work| work.is_same(state)) {
            self.let_through.push(Work::of(state));
        }
    }

    /// Looks at a tick who has got through.
    pub(super) fn follow(&mut self, ledger: &Ledger) {
        let ended = &mut self.ended;
        self.let_through.retain(|work| {
            if ended.iter().any(|ended| ended.work == *work) {
                // Its pause was over before it was.
                return false;
            }
            let state = ledger.state(work.session);
            let runs = state.is_some_and(|state| work.is_same(state));
            if !runs {
                ended.retain(|ended| !ended.work.is_alike(work.fingerprint, &work.principal));
            }
            runs
        });
    }

    /// Whether a session is left alone, since what it does was ended before.
    pub(super) fn is_spared(&self, tuning: &Tuning, state: &SessionState, now_ns: u64) -> bool {
        if self.ended.iter().any(|ended| ended.work.is_same(state)) {
            return true;
        }
        let again = || self.ended.iter().filter(|ended| ended.is_again(state));
        match tuning.repeat {
            Repeat::Again => false,
            Repeat::Endure | Repeat::Alert => again().next().is_some(),
            Repeat::BackOff => {
                // Those ended in one decision are one time.
                let times_ns: BTreeSet<u64> = again().map(|ended| ended.at_ns).collect();
                let Some(last_ns) = times_ns.last() else {
                    return false;
                };
                let doubled = times_ns.len().saturating_sub(1).min(32) as u32;
                let pause_ns = tuning
                    .repeat_pause_ns
                    .saturating_mul(1 << doubled)
                    .min(tuning.repeat_after_ns);
                now_ns < last_ns.saturating_add(pause_ns)
            }
        }
    }
}
