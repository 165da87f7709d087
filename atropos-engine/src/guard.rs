//! What may not be cancelled, whatever it would free. Each check is one reason of [`PassedOver`], in a fixed order.

use std::collections::VecDeque;

use super::again::Again;
use super::case::{Case, is_under_way};
use super::gain::Scored;
use super::graph::Node;
use super::input::{Activity, Evidence, SessionKey, SessionState};
use super::ledger::Ledger;
use super::pacing::Flying;
use super::record::{Order, PassedOver, Task};
use super::settings::{Class, Rung, Settings};

/// A session that slipped away is met by the next rung for this many windows.
const SLIP_WINDOWS: u64 = 4;

/// One that has slipped away from every rung is left alone for so long. 30 s: a routine whose statements each have a number of their own
/// slips away whatever is sent; six orders a minute leave most of the budget to others.
const OUT_OF_REACH_NS: u64 = 30_000_000_000;

/// When an order could not leave (no connection, the one before under way, no room for its line in the audit log), none is made
/// for so long. 1 s: the control connection is tried once a second; an overload that waits longer for it is no better served.
const UNSENT_PAUSE_NS: u64 = 1_000_000_000;

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;

/// Remembers orders and losses. Its size is bounded by the budgets.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    orders_ns: VecDeque<u64>,
    pub(super) again: Again,
    slipped: Vec<Slip>,
    quarantine_until_ns: u64,
    unsent_until_ns: u64,
}

/// A session whose request had ended when an order for it arrived.
#[derive(Clone, Copy, Debug)]
struct Slip {
    at_ns: u64,
    session: SessionKey,
    id: u64,
    transaction_since_ns: Option<u64>,
    rung: u8,
}

impl Slip {
    /// Whether a session is that one, and not somebody else whom a pooler has given its connection since.
    fn is_of(&self, state: &SessionState) -> bool {
        let transactions = self.transaction_since_ns.zip(state.transaction_since_ns);
        (self.session, self.id) == (state.session, state.id)
            && transactions.is_none_or(|(then, now)| then == now)
    }
}

impl Guard {
    /// Events were lost.
    pub(super) fn lost(&mut self, settings: &Settings, now_ns: u64) {
        self.quarantine_until_ns = now_ns.saturating_add(settings.tuning.loss_quarantine_ns);
    }

    /// An order was made.
    pub(super) fn ordered(&mut self, order: u64, state: &SessionState, now_ns: u64) {
        self.orders_ns.push_back(now_ns);
        self.again.ordered(order, state, now_ns);
    }

    /// The order reached nobody: the work may be ended after all.
    pub(super) fn missed(&mut self, flying: &Flying, now_ns: u64) {
        self.again.missed(flying.order.order);
        self.slipped(flying, now_ns);
    }

    /// No order could leave, whoever it names: this one counts for nothing, and it is tried again after a pause.
    pub(super) fn unsent(&mut self, order: &Order, now_ns: u64) {
        self.again.missed(order.order);
        let mut made = self.orders_ns.iter();
        if let Some(at) = made.rposition(|at_ns| *at_ns == order.at_ns) {
            self.orders_ns.remove(at);
        }
        self.unsent_until_ns = now_ns.saturating_add(UNSENT_PAUSE_NS);
    }

    /// The request that an order named is over. A session that is still in the way, with one short request after the other, is
    /// met by the next rung.
    pub(super) fn slipped(&mut self, flying: &Flying, now_ns: u64) {
        let Task { session, id, .. } = flying.order.task;
        self.slipped.retain(|slip| slip.session != session);
        self.slipped.push(Slip {
            at_ns: now_ns,
            session,
            id,
            transaction_since_ns: flying.transaction_since_ns,
            rung: flying.order.rung,
        });
    }

    /// The rung to begin with for a session in this state.
    pub(super) fn first_rung<'a>(
        &self,
        settings: &'a Settings,
        state: &SessionState,
    ) -> Option<(u8, &'a Rung)> {
        let slipped = self.slipped.iter().find(|slip| slip.is_of(state));
        rung(settings, state.activity, slipped.map(|slip| slip.rung))
    }

    /// The order was refused: this very request is left alone, the same work elsewhere is not.
    pub(super) fn refused(&mut self, order: &Order) {
        self.again.refused(order.order);
    }

    /// Forgets what no limit looks at any more.
    pub(super) fn forget(&mut self, settings: &Settings, now_ns: u64) {
        let hour_ago_ns = now_ns.saturating_sub(HOUR_NS);
        while self
            .orders_ns
            .front()
            .is_some_and(|at_ns| now_ns > HOUR_NS && *at_ns < hour_ago_ns)
        {
            self.orders_ns.pop_front();
        }
        self.again.forget(&settings.tuning, now_ns);
        let slip_ns = SLIP_WINDOWS.saturating_mul(settings.tuning.window_ns);
        self.slipped.retain(|slip| {
            let is_last = rung(settings, Activity::Busy, Some(slip.rung)).is_none();
            let kept_ns = if is_last { OUT_OF_REACH_NS } else { slip_ns };
            now_ns.saturating_sub(slip.at_ns) < kept_ns
        });
    }

    /// Why this candidate may not be ended now; `None` if it may.
    pub(super) fn check(
        &self,
        settings: &Settings,
        ledger: &Ledger,
        node: &Node,
        candidate: &Scored,
    ) -> Option<PassedOver> {
        Case::judge(settings, ledger, node, candidate, |case| {
            let state = case.state;
            case.protected()
                .or_else(|| self.evidence(case))
                .or_else(|| case.too_early())
                .or_else(|| case.held_up())
                .or_else(|| case.usual())
                .or_else(|| case.under_way())
                .or_else(|| {
                    self.first_rung(settings, state)
                        .is_none()
                        .then_some(PassedOver::NoRung)
                })
                .or_else(|| {
                    self.again
                        .is_spared(&settings.tuning, state, ledger.now_ns)
                        .then_some(PassedOver::CancelledBefore)
                })
                .or_else(|| {
                    (candidate.gain_s() < settings.tuning.min_gain_s)
                        .then_some(PassedOver::GainTooSmall)
                })
                .or_else(|| self.spent(settings, ledger.now_ns))
        })
    }

    /// Why a task that an order is in flight for may not be met by a further rung now: of the checks those that can have come to
    /// hold since. Its age, its peers, what ending it would free and that it was ordered before were judged by the decision.
    pub(super) fn check_again(
        &self,
        settings: &Settings,
        ledger: &Ledger,
        node: &Node,
        candidate: &Scored,
    ) -> Option<PassedOver> {
        Case::judge(settings, ledger, node, candidate, |case| {
            case.protected()
                .or_else(|| self.evidence(case))
                .or_else(|| self.spent(settings, ledger.now_ns))
        })
    }

    /// Whether a task was ended before, or has been asked to stop already.
    pub(super) fn is_over_with(
        &self,
        settings: &Settings,
        ledger: &Ledger,
        session: SessionKey,
    ) -> bool {
        let Some(state) = ledger.state(session) else {
            return true;
        };
        is_under_way(ledger, state) || self.again.is_spared(&settings.tuning, state, ledger.now_ns)
    }

    /// Why no order may be made for anybody, for the budget's sake.
    pub(super) fn spent(&self, settings: &Settings, now_ns: u64) -> Option<PassedOver> {
        let spent = settings.tuning.per_decision == 0 || self.room(settings, now_ns) == 0;
        spent.then_some(PassedOver::Budget)
    }

    /// Why no order may be made for anybody for a while.
    pub(super) fn paused(&self, now_ns: u64) -> Option<PassedOver> {
        if now_ns < self.quarantine_until_ns {
            return Some(PassedOver::LostEvents);
        }
        (now_ns < self.unsent_until_ns).then_some(PassedOver::Unsent)
    }

    fn evidence(&self, case: &Case) -> Option<PassedOver> {
        let Case {
            settings,
            ledger,
            node,
            candidate,
            ..
        } = *case;
        if let Some(reason) = self.paused(ledger.now_ns) {
            return Some(reason);
        }
        // Two ticks old at most: a look that is not repeated is no look at the present.
        let stale_ns = settings.tuning.window_ns / 4;
        let partial = node
            .in_way
            .iter()
            .any(|way| ledger.partial[usize::from(way.resource.0)]);
        let weak = candidate.evidence > Evidence::OpenMap
            || partial
            || candidate.seen_ns.saturating_add(stale_ns) < ledger.now_ns;
        weak.then_some(PassedOver::WeakEvidence)
    }

    /// How many more orders the budget allows for at present.
    pub(super) fn room(&self, settings: &Settings, now_ns: u64) -> usize {
        let tuning = &settings.tuning;
        let left = |span_ns: u64, limit: u32| {
            let made = self
                .orders_ns
                .iter()
                .filter(|at_ns| now_ns.saturating_sub(**at_ns) < span_ns)
                .count();
            (limit as usize).saturating_sub(made)
        };
        left(MINUTE_NS, tuning.per_minute).min(left(HOUR_NS, tuning.per_hour))
    }
}

/// The class of a session, if it has one.
pub(super) fn class_of<'a>(settings: &'a Settings, state: &SessionState) -> Option<&'a Class> {
    class_at(settings, state.class)
}

/// The class of this index, if there is one.
pub(super) fn class_at(settings: &Settings, class: Option<u16>) -> Option<&Class> {
    settings.classes.get(usize::from(class?))
}

/// The first rung after `after` that works in this state.
pub(super) fn rung(
    settings: &Settings,
    activity: Activity,
    after: Option<u8>,
) -> Option<(u8, &Rung)> {
    let from = after.map_or(0, |rung| usize::from(rung) + 1);
    let works = |rung: &Rung| {
        if activity == Activity::Busy {
            rung.busy
        } else {
            rung.idle
        }
    };
    let (index, rung) = settings
        .ladder
        .iter()
        .enumerate()
        .skip(from)
        .find(|(_, rung)| works(rung))?;
    Some((u8::try_from(index).ok()?, rung))
}

/// The number by which a person knows a session, 0 if unknown.
pub(super) fn id_of(ledger: &Ledger, session: SessionKey) -> u64 {
    ledger.state(session).map_or(0, |state| state.id)
}
