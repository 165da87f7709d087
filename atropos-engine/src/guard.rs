//! What may not be cancelled, whatever it would free. Each check is one reason of [`PassedOver`], in a fixed order.

use std::collections::VecDeque;

use super::again::Again;
use super::gain::{Role, Scored};
use super::graph::Node;
use super::input::{Activity, BlockKind, Evidence, ResourceId, SessionKey, SessionState};
use super::ledger::Ledger;
use super::record::{Order, PassedOver, Task};
use super::settings::{Class, Kind, Rung, Settings};

/// A second of work is cheap to repeat: a queued request of a protected class that has done no more is still only queued.
const QUEUED_WORK_NS: u64 = 1_000_000_000;

/// A session that slipped away is met by the next rung for this many windows.
const SLIP_WINDOWS: u64 = 4;

const MINUTE_NS: u64 = 60_000_000_000;
const HOUR_NS: u64 = 60 * MINUTE_NS;

/// For so long a request that runs what many run may hold what others want. 1 s: a disk's flush takes a tenth of that when
/// it is busy; a second is a culprit in anybody's eyes. Less, and equal small writers are ended for a slow disk's sake.
const ORDINARY_PATIENCE_NS: u64 = 1_000_000_000;

/// Remembers orders and losses. Its size is bounded by the budgets.
#[derive(Clone, Debug, Default)]
pub(super) struct Guard {
    orders_ns: VecDeque<u64>,
    pub(super) again: Again,
    slipped: Vec<Slip>,
    quarantine_until_ns: u64,
}

/// A session whose request had ended when an order for it arrived.
#[derive(Clone, Copy, Debug)]
struct Slip {
    at_ns: u64,
    session: SessionKey,
    id: u64,
    rung: u8,
}

impl Guard {
    /// Events were lost.
    pub(super) fn lost(&mut self, settings: &Settings, now_ns: u64) {
        self.quarantine_until_ns = now_ns.saturating_add(settings.tuning.loss_quarantine_ns);
    }

    /// Nothing may be cancelled for the moment, because events were lost.
    pub(super) fn in_quarantine(&self, now_ns: u64) -> bool {
        now_ns < self.quarantine_until_ns
    }

    /// An order was made.
    pub(super) fn ordered(&mut self, order: u64, state: &SessionState, now_ns: u64) {
        self.orders_ns.push_back(now_ns);
        self.again.ordered(order, state, now_ns);
    }

    /// The order reached nobody: the work may be ended after all. A session that is still in the way, with one short
    /// request after the other, is met by the next rung.
    pub(super) fn missed(&mut self, order: &Order, now_ns: u64) {
        self.again.missed(order.order);
        let Task { session, id, .. } = order.task;
        self.slipped.retain(|slip| slip.session != session);
        self.slipped.push(Slip {
            at_ns: now_ns,
            session,
            id,
            rung: order.rung,
        });
    }

    /// The rung to begin with for a session in this state.
    pub(super) fn first_rung<'a>(
        &self,
        settings: &'a Settings,
        state: &SessionState,
    ) -> Option<(u8, &'a Rung)> {
        let slipped = self
            .slipped
            .iter()
            .find(|slip| slip.session == state.session && slip.id == state.id);
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
        let slip_ns = SLIP_WINDOWS * settings.tuning.window_ns;
        self.slipped
            .retain(|slip| now_ns.saturating_sub(slip.at_ns) < slip_ns);
    }

    /// Why this candidate may not be ended now; `None` if it may.
    pub(super) fn check(
        &self,
        settings: &Settings,
        ledger: &Ledger,
        node: &Node,
        candidate: &Scored,
    ) -> Option<PassedOver> {
        let session = ledger.sessions.get(&candidate.session);
        if ledger.is_own(candidate.session) {
            return Some(PassedOver::Own);
        }
        if let Role::Victim(of) = candidate.role {
            return Some(PassedOver::Victim {
                of: id_of(ledger, of),
            });
        }
        let Some(state) = session.and_then(|known| known.state.as_ref()) else {
            // Nobody has said who this is, so no order could name it.
            return Some(PassedOver::WeakEvidence);
        };
        let case = Case {
            settings,
            ledger,
            node,
            candidate,
            state,
        };
        case.protected()
            .or_else(|| self.evidence(&case))
            .or_else(|| case.too_early())
            .or_else(|| case.held_up())
            .or_else(|| case.usual())
            .or_else(|| case.under_way(session.is_some_and(|known| known.killed_ns.is_some())))
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
            .or_else(|| {
                let spent =
                    settings.tuning.per_decision == 0 || self.room(settings, ledger.now_ns) == 0;
                spent.then_some(PassedOver::Budget)
            })
    }

    fn evidence(&self, case: &Case) -> Option<PassedOver> {
        let Case {
            settings,
            ledger,
            node,
            candidate,
            ..
        } = *case;
        if self.in_quarantine(ledger.now_ns) {
            return Some(PassedOver::LostEvents);
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

/// One candidate with everything that the checks look at.
struct Case<'a> {
    settings: &'a Settings,
    ledger: &'a Ledger,
    node: &'a Node,
    candidate: &'a Scored,
    state: &'a SessionState,
}

impl Case<'_> {
    fn protected(&self) -> Option<PassedOver> {
        if self
            .settings
            .protected_principals
            .contains(&self.state.principal)
        {
            return Some(PassedOver::ProtectedPrincipal);
        }
        let class = class_of(self.settings, self.state)?;
        let spared = class.protected_queued || !self.is_only_queued();
        (class.protected && spared).then_some(PassedOver::ProtectedClass)
    }

    /// It is in the way by its place in the queue alone, and has done next to nothing.
    fn is_only_queued(&self) -> bool {
        let session = self.candidate.session;
        let worked_ns = self.ledger.worked_ns(session);
        self.candidate.role == Role::Queued
            && (worked_ns <= QUEUED_WORK_NS || worked_ns <= self.ledger.waited_ns(session))
    }

    fn too_early(&self) -> Option<PassedOver> {
        let (tuning, now_ns) = (&self.settings.tuning, self.ledger.now_ns);
        if self.ledger.moving_ns(self.candidate.in_way_since_ns) < tuning.min_blocking_ns {
            return Some(PassedOver::TooYoung);
        }
        let idle = self.state.activity != Activity::Busy;
        if idle && now_ns.saturating_sub(self.state.since_ns) < tuning.min_idle_ns {
            return Some(PassedOver::NotIdleLongEnough);
        }
        let done = self.ledger.sessions.get(&self.candidate.session);
        let nearly_done = done
            .and_then(|known| known.progress.done())
            .is_some_and(|progress| progress > tuning.nearly_done);
        nearly_done.then_some(PassedOver::NearlyDone)
    }

    /// It does what others do as well, and each of them no worse: ending it gives its place to the next.
    fn usual(&self) -> Option<PassedOver> {
        let (ledger, node, session) = (self.ledger, self.node, self.candidate.session);
        if !node.uses.is_empty() {
            return None;
        }
        let mut holds = node
            .in_way
            .iter()
            .filter(|way| way.kind == BlockKind::Granted)
            .peekable();
        if holds.peek().is_none() {
            let many = ledger.familiar.is_ordinary(self.state, ledger.now_ns);
            return many.then_some(PassedOver::Ordinary);
        }
        if self.is_ordinary_writer() {
            return Some(PassedOver::Ordinary);
        }
        let usual = self.candidate.role == Role::Root
            && holds.all(|way| {
                !ledger.holds_unusually_long((way.resource, way.instance), session, way.since_ns)
            });
        usual.then_some(PassedOver::LikeItsPeers)
    }

    /// It runs what many run, and has been in the way by locks alone, for a moment: where a disk or a processor stands still,
    /// each of many equal transactions holds its rows for that long.
    fn is_ordinary_writer(&self) -> bool {
        let now_ns = self.ledger.now_ns;
        now_ns.saturating_sub(self.candidate.in_way_since_ns) < ORDINARY_PATIENCE_NS
            && self
                .node
                .in_way
                .iter()
                .all(|way| self.is_lock(way.resource))
            && self.ledger.familiar.is_ordinary(self.state, now_ns)
    }

    /// A commit that waits for the disk, a request behind a latch of the server: it holds what others want, and cannot help it.
    /// What waits for a device or a client of its own is at its own work.
    fn held_up(&self) -> Option<PassedOver> {
        let wait = self.ledger.waits.get(&self.candidate.session)?;
        let unseen = self.ledger.is_blind(wait.resource) && self.is_lock(wait.resource);
        unseen.then_some(PassedOver::HeldUp)
    }

    fn is_lock(&self, resource: ResourceId) -> bool {
        let resource = self.settings.resources.get(usize::from(resource.0));
        resource.is_some_and(|resource| resource.kind == Kind::Lock)
    }

    /// Somebody has already asked the target to end it. An idle session takes no notice of a statement cancel.
    fn under_way(&self, killed: bool) -> Option<PassedOver> {
        let busy = self.state.activity == Activity::Busy;
        (busy && (killed || self.state.killed)).then_some(PassedOver::UnderWay)
    }
}

/// The class of a session, if it has one.
pub(super) fn class_of<'a>(settings: &'a Settings, state: &SessionState) -> Option<&'a Class> {
    settings.classes.get(usize::from(state.class?))
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
    ledger
        .sessions
        .get(&session)
        .and_then(|known| known.state.as_ref())
        .map_or(0, |state| state.id)
}
