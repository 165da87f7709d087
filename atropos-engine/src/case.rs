//! One candidate as the checks see it: what speaks against ending it that needs no memory of earlier orders.

use super::gain::{Role, Scored};
use super::graph::Node;
use super::guard::{class_of, id_of};
use super::input::{Activity, BlockKind, ResourceId, SessionState};
use super::ledger::Ledger;
use super::record::PassedOver;
use super::settings::{Kind, Settings};

/// A second of work is cheap to repeat: a queued request of a protected class that has done no more is still only queued.
const QUEUED_WORK_NS: u64 = 1_000_000_000;

/// For so long a request that runs what many run may hold what others want. 1 s: a disk's flush takes a tenth of that when
/// it is busy; a second is a culprit in anybody's eyes. Less, and equal small writers are ended for a slow disk's sake.
const ORDINARY_PATIENCE_NS: u64 = 1_000_000_000;

/// One candidate with everything that the checks look at.
pub(super) struct Case<'a> {
    pub(super) settings: &'a Settings,
    pub(super) ledger: &'a Ledger,
    pub(super) node: &'a Node,
    pub(super) candidate: &'a Scored,
    pub(super) state: &'a SessionState,
}

impl<'a> Case<'a> {
    /// What speaks against ending a candidate by these checks, or that it is no case at all.
    pub(super) fn judge(
        settings: &'a Settings,
        ledger: &'a Ledger,
        node: &'a Node,
        candidate: &'a Scored,
        checks: impl FnOnce(&Self) -> Option<PassedOver>,
    ) -> Option<PassedOver> {
        match Self::of(settings, ledger, node, candidate) {
            Ok(case) => checks(&case),
            Err(reason) => Some(reason),
        }
    }

    /// The case of a task that others wait for; the reason, if it is none.
    fn of(
        settings: &'a Settings,
        ledger: &'a Ledger,
        node: &'a Node,
        candidate: &'a Scored,
    ) -> Result<Self, PassedOver> {
        if ledger.is_own(candidate.session) {
            return Err(PassedOver::Own);
        }
        if let Role::Victim(of) = candidate.role {
            return Err(PassedOver::Victim {
                of: id_of(ledger, of),
            });
        }
        // If nobody has said who this is, no order could name it.
        let state = ledger
            .state(candidate.session)
            .ok_or(PassedOver::WeakEvidence)?;
        Ok(Self {
            settings,
            ledger,
            node,
            candidate,
            state,
        })
    }

    pub(super) fn protected(&self) -> Option<PassedOver> {
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

    pub(super) fn too_early(&self) -> Option<PassedOver> {
        let (tuning, now_ns) = (&self.settings.tuning, self.ledger.now_ns);
        if self.candidate.in_way_ns < tuning.min_blocking_ns {
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
    pub(super) fn usual(&self) -> Option<PassedOver> {
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
        self.candidate.in_way_ns < ORDINARY_PATIENCE_NS
            && self
                .node
                .in_way
                .iter()
                .all(|way| self.is_lock(way.resource))
            && self.ledger.familiar.is_ordinary(self.state, now_ns)
    }

    /// A commit that waits for the disk, a request behind a latch of the server: it holds what others want, and cannot help it.
    /// What waits for a device or a client of its own is at its own work.
    pub(super) fn held_up(&self) -> Option<PassedOver> {
        let wait = self.ledger.waits.get(&self.candidate.session)?;
        let unseen = self.ledger.is_blind(wait.resource) && self.is_lock(wait.resource);
        unseen.then_some(PassedOver::HeldUp)
    }

    fn is_lock(&self, resource: ResourceId) -> bool {
        let resource = self.settings.resources.get(usize::from(resource.0));
        resource.is_some_and(|resource| resource.kind == Kind::Lock)
    }

    pub(super) fn under_way(&self) -> Option<PassedOver> {
        is_under_way(self.ledger, self.state).then_some(PassedOver::UnderWay)
    }
}

/// Somebody has already asked the target to end it. An idle session takes no notice of a statement cancel.
pub(super) fn is_under_way(ledger: &Ledger, state: &SessionState) -> bool {
    let killed = ledger.is_killed(state.session);
    state.activity == Activity::Busy && (killed || state.killed)
}
