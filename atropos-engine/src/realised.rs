//! What an order gave back: the time that was blamed on the task, before the order and after the release.
//!
//! Like is compared with like: of the sessions that waited for the task at the order, what they lose to the same resources
//! by then, whoever is in their way; of what it used, what everybody loses to the same resources. What others lose elsewhere is
//! not the order's doing.

use std::collections::BTreeSet;

use super::input::{ResourceId, SessionKey};
use super::ledger::Ledger;
use super::window::within_ns;

/// Time that was blamed on a task.
#[derive(Clone, Debug)]
pub(super) struct Blamed {
    /// Who waited for it, and for which resource.
    waited: BTreeSet<(SessionKey, ResourceId)>,
    /// Resources that it used so much of that others lost by it.
    used: Vec<ResourceId>,
    before_ns: u64,
}

impl Blamed {
    /// As of the order, the window before it.
    pub(super) fn at_order(ledger: &Ledger, target: SessionKey, used: Vec<ResourceId>) -> Self {
        let waited = ledger
            .foreign_waits()
            .filter(|wait| ledger.edges(wait).any(|edge| edge.session == target))
            .map(|wait| (wait.waiter, wait.resource))
            .collect();
        let mut blamed = Self {
            waited,
            used,
            before_ns: 0,
        };
        blamed.before_ns = blamed.lost_ns(ledger);
        blamed
    }

    /// It was chosen for what it uses as well.
    pub(super) fn by_use(&self) -> bool {
        !self.used.is_empty()
    }

    /// The share of it that is gone in the window that ends now: 1 all of it, below 0 if it has become more.
    pub(super) fn share_gone(&self, ledger: &Ledger) -> Option<f64> {
        let (before, after) = (self.before_ns as f64, self.lost_ns(ledger) as f64);
        (before > 0.0).then(|| ((before - after) / before).clamp(-1.0, 1.0))
    }

    fn lost_ns(&self, ledger: &Ledger) -> u64 {
        let waited = self
            .waited
            .iter()
            .map(|(waiter, resource)| ledger.waited_for_ns(*waiter, *resource));
        let used = self.used.iter().map(|resource| ledger.lost_ns(*resource));
        waited.chain(used).fold(0, u64::saturating_add)
    }
}

impl Ledger {
    /// How long a session has waited for a resource within the window: its open wait and the one before.
    fn waited_for_ns(&self, waiter: SessionKey, resource: ResourceId) -> u64 {
        let open_ns = self
            .waits
            .get(&waiter)
            .filter(|wait| wait.resource == resource)
            .map_or(0, |wait| {
                within_ns(wait.since_ns, self.now_ns, self.window_ns)
            });
        let past_ns = self
            .sessions
            .get(&waiter)
            .and_then(|known| known.last_wait)
            .filter(|last| last.is_for(resource))
            .map_or(0, |last| {
                let from_ns = self.now_ns.saturating_sub(self.window_ns);
                last.end_ns().saturating_sub(last.begin_ns().max(from_ns))
            });
        open_ns.saturating_add(past_ns).min(self.window_ns)
    }
}
