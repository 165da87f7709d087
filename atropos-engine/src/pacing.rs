//! The order in flight: sent, accepted, released, or on to the next rung.
//!
//! While an order is in flight nothing else is decided. It is *released* when the task is no longer in the way of any
//! wait that it blocked at the order; then one window passes, so that the next decision sees a target that has settled,
//! and the realised gain is known. A rung's deadline starts at the target's acceptance.

use super::explain;
use super::guard::rung;
use super::input::{Activity, OrderReport, OrderResult, ResourceId, SessionKey, SessionState};
use super::ledger::Ledger;
use super::realised::Blamed;
use super::record::{Order, OrderOutcome, OutcomeKind, PassedOver};
use super::settings::Settings;

/// An order whose next rung may not be taken for so long is given up: meanwhile nobody else is chosen. 10 s: twice the longest
/// deadline of the presets, and ten times the quarantine after a loss of events.
const WITHHELD_NS: u64 = 10_000_000_000;

/// An order in flight.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    pub(super) order: Order,
    /// Class of the task.
    pub(super) class: Option<u16>,
    /// What it kept from others.
    pub(super) resources: Vec<ResourceId>,
    /// Waits that it blocked at the order and that are not over: who, and the number of the wait.
    blocked: Vec<(SessionKey, u64)>,
    /// What was blamed on it at the order.
    blamed: Blamed,
    /// Number of its session and start of its transaction, if it has let go only once that is over.
    until_gone: Option<(u64, Option<u64>)>,
    /// How long the task had worked, for what undoing it may take; 0 if there is nothing to undo.
    undo_ns: u64,
    accepted_ns: Option<u64>,
    /// The target has taken the command of a rung before.
    accepted_before: bool,
    released_ns: Option<u64>,
    /// The release was confirmed at a tick.
    settled: bool,
    rolling_back: bool,
    /// Start of the request or of the idle time that it named.
    began_ns: u64,
    /// Start of the transaction that its session was in, if that is known.
    pub(super) transaction_since_ns: Option<u64>,
    /// Since when that request has been over while what it held stays held.
    spent_ns: Option<u64>,
    /// Since when a further rung has been due that may not be taken, and why.
    withheld: Option<(u64, PassedOver)>,
    deadline_ns: u64,
}

/// What is known of the task that an order names.
#[derive(Clone, Debug)]
pub(super) struct Of {
    pub(super) class: Option<u16>,
    /// Seconds of undo for each second of work.
    pub(super) undo_per_s: f64,
    /// What it uses so much of that others lose by it: it goes on using that until its request is over.
    pub(super) used: Vec<ResourceId>,
    /// It has let go once its session's transaction is over, whoever waits for what meanwhile.
    pub(super) until_gone: bool,
    /// What it keeps from others.
    pub(super) resources: Vec<ResourceId>,
}

/// What to do about the order in flight.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Nothing: wait on.
    Wait,
    /// Tell the outcome; the order stays in flight.
    Tell(OutcomeKind),
    /// Tell the outcome; the order is done with.
    Finish(OutcomeKind),
    /// The deadline passed: go on to this rung.
    Escalate(u8),
    /// The deadline passed, and what the task kept others waiting for cannot be seen.
    Unseen,
}

impl Flying {
    /// Follows an order that is about to be sent.
    pub(super) fn new(settings: &Settings, ledger: &Ledger, order: Order, of: Of) -> Self {
        let Of {
            class,
            undo_per_s,
            used,
            until_gone,
            resources,
        } = of;
        let target = order.task.session;
        let blocked: Vec<(SessionKey, u64)> = ledger
            .foreign_waits()
            .filter(|wait| ledger.edges(wait).any(|edge| edge.session == target))
            .map(|wait| (wait.waiter, wait.number))
            .collect();
        let undo_ns = if undo_per_s > 0.0 {
            ledger.worked_ns(target)
        } else {
            0
        };
        let deadline_ns = order
            .at_ns
            .saturating_add(deadline_of(settings, order.rung));
        Self {
            began_ns: began_ns(ledger, target),
            transaction_since_ns: transaction(ledger, target).and_then(|(_, since_ns)| since_ns),
            blamed: Blamed::at_order(ledger, target, used),
            until_gone: transaction(ledger, target).filter(|_| until_gone),
            order,
            class,
            resources,
            blocked,
            undo_ns,
            accepted_ns: None,
            accepted_before: false,
            released_ns: None,
            settled: false,
            rolling_back: false,
            spent_ns: None,
            withheld: None,
            deadline_ns,
        }
    }

    /// The same task by the next rung.
    pub(super) fn escalate(&mut self, settings: &Settings, ledger: &Ledger, order: Order) {
        self.began_ns = began_ns(ledger, order.task.session);
        self.spent_ns = None;
        self.withheld = None;
        self.deadline_ns = order
            .at_ns
            .saturating_add(deadline_of(settings, order.rung));
        self.order = order;
        self.accepted_before |= self.accepted_ns.take().is_some();
    }

    /// The target has taken the command.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted_ns.is_some()
    }

    /// The target had taken the command of a rung before this one.
    pub(super) fn was_accepted(&self) -> bool {
        self.accepted_before
    }

    /// Takes a report in; the outcome if it is final.
    pub(super) fn report(
        &mut self,
        settings: &Settings,
        report: &OrderReport,
    ) -> Option<OutcomeKind> {
        match report.result {
            OrderResult::Accepted => {
                self.accepted_ns = Some(report.at_ns);
                self.deadline_ns = report
                    .at_ns
                    .saturating_add(deadline_of(settings, self.order.rung));
                None
            }
            OrderResult::Missed => Some(OutcomeKind::Missed),
            OrderResult::Refused(_) => Some(OutcomeKind::Refused),
            OrderResult::NotSent => Some(OutcomeKind::NotSent),
            // The target may still carry it out: nobody else is chosen until the rung's deadline.
            OrderResult::Unknown(_) => None,
            OrderResult::Unsent(_) => Some(OutcomeKind::Unsent),
        }
    }

    /// Looks whether the waits that the task blocked are free of it; to be called after every input.
    pub(super) fn watch(&mut self, ledger: &Ledger) {
        if self.settled || self.is_unseen(ledger) {
            return;
        }
        let stays = self.until_gone.is_some()
            && transaction(ledger, self.order.task.session) == self.until_gone;
        let uses = self.blamed.by_use() && self.is_same(ledger);
        if stays || uses || self.blocks_as_ordered(ledger) {
            self.released_ns = None;
        } else if self.released_ns.is_none() {
            self.released_ns = Some(ledger.now_ns);
        }
    }

    /// Something that the task kept others waiting for cannot be seen: neither that it let go nor that it did not.
    fn is_unseen(&self, ledger: &Ledger) -> bool {
        self.resources
            .iter()
            .any(|resource| ledger.is_blind(*resource))
    }

    /// The request that the order named still runs, or the session still idles where it did.
    fn is_same(&self, ledger: &Ledger) -> bool {
        let task = &self.order.task;
        let state = ledger.state(task.session);
        // Between two statements a session still answers to the number of the last one, and may be in a transaction still.
        state.is_some_and(|state| {
            (state.id, state.request, state.activity) == (task.id, task.request, task.activity)
        })
    }

    fn blocks_as_ordered(&mut self, ledger: &Ledger) -> bool {
        let target = self.order.task.session;
        let wait_of = |(waiter, number): &(SessionKey, u64)| {
            let wait = ledger.waits.get(waiter);
            wait.filter(|wait| wait.number == *number)
        };
        // One that is over stays over: the next wait of the same session has another number.
        while self
            .blocked
            .pop_if(|blocked| wait_of(blocked).is_none())
            .is_some()
        {}
        let blocks = |wait| ledger.edges(wait).any(|edge| edge.session == target);
        self.blocked.iter().rev().filter_map(wait_of).any(blocks)
    }

    /// The waiters may have given up and come back while the task is still there.
    fn blocks_others(&self, ledger: &Ledger) -> bool {
        let task = &self.order.task;
        let state = ledger.state(task.session);
        let same = state.is_none_or(|state| state.id == task.id && state.request == task.request);
        same && ledger
            .foreign_waits()
            .any(|wait| ledger.edges(wait).any(|edge| edge.session == task.session))
    }

    /// What to do at a tick.
    pub(super) fn step(&mut self, settings: &Settings, ledger: &Ledger) -> Step {
        let now_ns = ledger.now_ns;
        if !self.settled {
            if self.is_unseen(ledger) {
                let is_due = now_ns >= self.deadline_ns;
                return if is_due { Step::Unseen } else { Step::Wait };
            }
            let heard = self.accepted_ns.is_some() || now_ns >= self.deadline_ns;
            self.settled = self.released_ns.is_some() && heard && !self.blocks_others(ledger);
        }
        if self.settled {
            let released_ns = self.released_ns.unwrap_or(now_ns);
            let settled = now_ns >= released_ns.saturating_add(settings.tuning.window_ns);
            return if settled {
                Step::Finish(OutcomeKind::Released)
            } else {
                Step::Wait
            };
        }
        let spent = self.next_when_spent(settings, ledger);
        if now_ns < self.deadline_ns {
            return spent
                .filter(|_| self.accepted_ns.is_some())
                .unwrap_or(Step::Wait);
        }
        self.overdue(settings, ledger)
    }

    /// The session is still what the order named: it runs that very request, or idles behind it, or idles as it did.
    fn is_as_ordered(&self, state: &SessionState) -> bool {
        let task = &self.order.task;
        let same_request = if task.request == 0 {
            state.since_ns == self.began_ns
        } else {
            state.request == task.request
        };
        let same_state = task.activity == Activity::Busy || state.activity == task.activity;
        state.id == task.id && same_request && same_state
    }

    /// The order has ended the request, and what it held stays held, since a transaction outlives its statements: what to do
    /// once the client has had half a window to end the transaction itself. A session that idles is met by the next rung; one
    /// that has begun something else is another task.
    fn next_when_spent(&mut self, settings: &Settings, ledger: &Ledger) -> Option<Step> {
        let task = &self.order.task;
        let state = ledger.state(task.session)?;
        let as_ordered = self.is_as_ordered(state);
        let over = !as_ordered || state.activity != Activity::Busy;
        if task.activity != Activity::Busy || !over {
            self.spent_ns = None;
            return None;
        }
        let since_ns = *self.spent_ns.get_or_insert(ledger.now_ns);
        let patience_ns = settings.tuning.window_ns / 2;
        if ledger.now_ns.saturating_sub(since_ns) < patience_ns {
            return None;
        }
        if !as_ordered {
            return Some(Step::Finish(OutcomeKind::GoneOn));
        }
        let (next, _) = rung(settings, state.activity, Some(self.order.rung))?;
        Some(Step::Escalate(next))
    }

    /// Why no further rung is taken, if one is due.
    pub(super) fn withheld(&self) -> Option<&PassedOver> {
        self.withheld.as_ref().map(|(_, reason)| reason)
    }

    /// A further rung is due and may not be taken: says so once for each reason, and gives the order up in the end.
    pub(super) fn withhold(&mut self, reason: PassedOver, now_ns: u64) -> Step {
        let before = self.withheld.take();
        let since_ns = before.as_ref().map_or(now_ns, |(since_ns, _)| *since_ns);
        let is_news = before.is_none_or(|(_, before)| before != reason);
        self.withheld = Some((since_ns, reason));
        if now_ns.saturating_sub(since_ns) >= WITHHELD_NS {
            Step::Finish(OutcomeKind::Stuck)
        } else if is_news {
            Step::Tell(OutcomeKind::Withheld)
        } else {
            Step::Wait
        }
    }

    fn overdue(&mut self, settings: &Settings, ledger: &Ledger) -> Step {
        let state = ledger.state(self.order.task.session);
        let Some(state) = state.filter(|state| self.is_as_ordered(state)) else {
            return Step::Finish(OutcomeKind::GoneOn);
        };
        let killed = state.killed || ledger.is_killed(state.session);
        let begun_ns = self.accepted_ns.unwrap_or(self.order.at_ns);
        let undone_ns = begun_ns
            .saturating_add(self.undo_ns)
            .saturating_add(self.undo_ns / 2);
        if killed && !self.rolling_back && undone_ns > self.deadline_ns {
            self.rolling_back = true;
            self.deadline_ns = undone_ns;
            return Step::Tell(OutcomeKind::RollingBack);
        }
        match rung(settings, state.activity, Some(self.order.rung)) {
            Some((next, _)) => Step::Escalate(next),
            None => Step::Finish(OutcomeKind::Stuck),
        }
    }

    /// The record of an outcome.
    pub(super) fn outcome(&self, ledger: &Ledger, result: OutcomeKind) -> OrderOutcome {
        let released_ns = self.released_ns.filter(|_| result == OutcomeKind::Released);
        let time_to_release_ns = released_ns
            .zip(self.accepted_ns)
            .map(|(released_ns, accepted_ns)| released_ns.saturating_sub(accepted_ns));
        // Of a task that was in nobody's way no gain was expected.
        let realised_gain_s = released_ns
            .filter(|_| self.order.expected_gain_s > 0.0)
            .and_then(|_| self.blamed.share_gone(ledger))
            .map(|share| self.order.expected_gain_s * share);
        let mut outcome = OrderOutcome {
            order: self.order.order,
            at_ns: ledger.now_ns,
            id: self.order.task.id,
            result,
            time_to_release_ns,
            expected_gain_s: self.order.expected_gain_s,
            realised_gain_s,
            summary: String::new(),
        };
        outcome.summary = explain::outcome(&outcome, &self.order);
        outcome
    }
}

/// What names the transaction that a session is in: its number and since when that is open.
fn transaction(ledger: &Ledger, session: SessionKey) -> Option<(u64, Option<u64>)> {
    let state = ledger.state(session)?;
    Some((state.id, state.transaction_since_ns))
}

fn began_ns(ledger: &Ledger, session: SessionKey) -> u64 {
    let state = ledger.state(session);
    state.map_or(0, |state| state.since_ns)
}

fn deadline_of(settings: &Settings, rung: u8) -> u64 {
    settings
        .ladder
        .get(usize::from(rung))
        .map_or(0, |rung| rung.deadline_ns)
}
