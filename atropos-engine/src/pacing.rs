//! The order in flight: sent, accepted, released, or on to the next rung.
//!
//! While an order is in flight nothing else is decided. It is *released* when the task is no longer in the way of any
//! wait that it blocked at the order; then one window passes, so that the next decision sees a target that has settled,
//! and the realised gain is known. A rung's deadline starts at the target's acceptance.

use super::guard::rung;
use super::input::{Activity, OrderReport, OrderResult, ResourceId, SessionKey};
use super::ledger::Ledger;
use super::record::{Order, OrderOutcome, OutcomeKind};
use super::settings::Settings;
use super::window::seconds;

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
    /// How many it blocked at the order.
    blocked_count: usize,
    /// It was chosen for what it uses as well, which it goes on using until its request is over: time that was lost in the
    /// window before the order, seconds.
    lost_by_use_s: Option<f64>,
    /// How long the task had worked, for what undoing it may take; 0 if there is nothing to undo.
    undo_ns: u64,
    accepted_ns: Option<u64>,
    released_ns: Option<u64>,
    /// The release was confirmed at a tick.
    settled: bool,
    rolling_back: bool,
    /// It named a running request.
    ordered_busy: bool,
    /// Since when that request has been over while what it held stays held.
    spent_ns: Option<u64>,
    deadline_ns: u64,
}

/// What is known of the task that an order names.
#[derive(Clone, Debug)]
pub(super) struct Of {
    pub(super) class: Option<u16>,
    /// Seconds of undo for each second of work.
    pub(super) undo_per_s: f64,
    /// It was chosen for what it uses as well.
    pub(super) uses: bool,
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
}

impl Flying {
    /// Follows an order that is about to be sent.
    pub(super) fn new(settings: &Settings, ledger: &Ledger, order: Order, of: Of) -> Self {
        let Of {
            class,
            undo_per_s,
            uses,
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
            order,
            class,
            resources,
            blocked_count: blocked.len(),
            blocked,
            lost_by_use_s: uses.then(|| lost_s(settings, ledger)),
            undo_ns,
            accepted_ns: None,
            released_ns: None,
            settled: false,
            rolling_back: false,
            ordered_busy: is_busy(ledger, target),
            spent_ns: None,
            deadline_ns,
        }
    }

    /// The same task by the next rung.
    pub(super) fn escalate(&mut self, settings: &Settings, ledger: &Ledger, order: Order) {
        self.ordered_busy = is_busy(ledger, order.task.session);
        self.spent_ns = None;
        self.deadline_ns = order
            .at_ns
            .saturating_add(deadline_of(settings, order.rung));
        self.order = order;
        self.accepted_ns = None;
    }

    /// The target has taken the command.
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted_ns.is_some()
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
        }
    }

    /// Looks whether the waits that the task blocked are free of it; to be called after every input.
    pub(super) fn watch(&mut self, ledger: &Ledger) {
        if self.settled || self.is_unseen(ledger) {
            return;
        }
        if self.blocks_as_ordered(ledger) || (self.lost_by_use_s.is_some() && self.is_same(ledger))
        {
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
        let state = ledger
            .sessions
            .get(&task.session)
            .and_then(|known| known.state.as_ref());
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
        let state = ledger
            .sessions
            .get(&task.session)
            .and_then(|known| known.state.as_ref());
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
                return Step::Wait;
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
                .map_or(Step::Wait, Step::Escalate);
        }
        self.overdue(settings, ledger)
    }

    /// The order has ended the request, and what it held stays held, since a transaction outlives its statements: the
    /// rung to go on to, once the client has had half a window to end the transaction itself.
    fn next_when_spent(&mut self, settings: &Settings, ledger: &Ledger) -> Option<u8> {
        let task = &self.order.task;
        let state = ledger
            .sessions
            .get(&task.session)
            .and_then(|known| known.state.as_ref())?;
        let over = state.request != task.request || state.activity != Activity::Busy;
        if !self.ordered_busy || !over {
            self.spent_ns = None;
            return None;
        }
        let since_ns = *self.spent_ns.get_or_insert(ledger.now_ns);
        let patience_ns = settings.tuning.window_ns / 2;
        let next = rung(settings, state.activity, Some(self.order.rung))?;
        (ledger.now_ns.saturating_sub(since_ns) >= patience_ns).then_some(next.0)
    }

    fn overdue(&mut self, settings: &Settings, ledger: &Ledger) -> Step {
        let known = ledger.sessions.get(&self.order.task.session);
        let state = known.and_then(|known| known.state.as_ref());
        let killed = known.is_some_and(|known| {
            known.killed_ns.is_some() || known.state.as_ref().is_some_and(|state| state.killed)
        });
        let begun_ns = self.accepted_ns.unwrap_or(self.order.at_ns);
        let undone_ns = begun_ns
            .saturating_add(self.undo_ns)
            .saturating_add(self.undo_ns / 2);
        if killed && !self.rolling_back && undone_ns > self.deadline_ns {
            self.rolling_back = true;
            self.deadline_ns = undone_ns;
            return Step::Tell(OutcomeKind::RollingBack);
        }
        let activity = state.map_or(Activity::IdleInTransaction, |state| state.activity);
        match rung(settings, activity, Some(self.order.rung)) {
            Some((next, _)) => Step::Escalate(next),
            None => Step::Finish(OutcomeKind::Stuck),
        }
    }

    /// The record of an outcome.
    pub(super) fn outcome(
        &self,
        settings: &Settings,
        ledger: &Ledger,
        result: OutcomeKind,
    ) -> OrderOutcome {
        let released_ns = self.released_ns.filter(|_| result == OutcomeKind::Released);
        let time_to_release_ns = released_ns
            .zip(self.accepted_ns)
            .map(|(released_ns, accepted_ns)| released_ns.saturating_sub(accepted_ns));
        let realised_gain_s = released_ns.and_then(|_| self.realised_gain_s(settings, ledger));
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
        outcome.summary = super::explain::outcome(&outcome, &self.order);
        outcome
    }

    /// The share of the blamed waiting that is gone, taken of the expected gain.
    fn realised_gain_s(&self, settings: &Settings, ledger: &Ledger) -> Option<f64> {
        let window_s = seconds(settings.tuning.window_ns);
        let after = lost_s(settings, ledger) / window_s;
        let before = self
            .lost_by_use_s
            .map_or(self.blocked_count as f64, |lost_s| lost_s / window_s);
        (before > 0.0)
            .then(|| self.order.expected_gain_s * ((before - after) / before).clamp(-1.0, 1.0))
    }
}

/// Time lost in the window, over all resources, seconds.
fn lost_s(settings: &Settings, ledger: &Ledger) -> f64 {
    let lost_ns = (0..settings.resources.len())
        .map(|r| ledger.lost_ns(ResourceId(r as u16)))
        .fold(0, u64::saturating_add);
    seconds(lost_ns)
}

fn is_busy(ledger: &Ledger, session: SessionKey) -> bool {
    let state = ledger
        .sessions
        .get(&session)
        .and_then(|known| known.state.as_ref());
    state.is_some_and(|state| state.activity == Activity::Busy)
}

fn deadline_of(settings: &Settings, rung: u8) -> u64 {
    settings
        .ladder
        .get(usize::from(rung))
        .map_or(0, |rung| rung.deadline_ns)
}
