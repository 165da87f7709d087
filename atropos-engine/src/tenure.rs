//! How long the holders of contended instances keep them, and what is usual.
//!
//! Looked at once a tick: whoever is in the way by what it holds. A holder that is no longer there tells how long is usual;
//! one that comes back to the same instance in the same request goes on where it was, since a task that takes a lock again and
//! again is in the way for the sum of it.

use std::collections::BTreeMap;

use super::input::{BlockKind, InstanceKey, ResourceId, SessionKey};
use super::ledger::Ledger;
use super::peers::{self, MEMORY_NS, Peers};
use super::settings::Kind;

/// Of a lock, so many others must have let go lately before their time is what is usual: fewer may all be culprits that
/// were ended.
const ENOUGH: usize = 5;

/// So many of those that let go are remembered for each instance: there can be thousands of instances.
const MOST: usize = 16;

type Place = (ResourceId, InstanceKey);

/// One holder of one instance.
#[derive(Clone, Copy, Debug)]
struct Tenure {
    /// Of which request of the session.
    request: u64,
    since_ns: u64,
    seen_ns: u64,
    /// What the same request held before, in the way of others.
    before_ns: u64,
    /// It was in the way at the latest tick.
    open: bool,
}

/// Holders of contended instances at present and lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenures {
    known: BTreeMap<(Place, SessionKey), Tenure>,
    past: BTreeMap<Place, Peers>,
}

impl Tenures {
    /// How long the session's present request held the instance before it took it this time, nanoseconds.
    pub(super) fn before_ns(&self, place: Place, session: SessionKey) -> u64 {
        self.known
            .get(&(place, session))
            .map_or(0, |tenure| tenure.before_ns)
    }

    fn hold(&mut self, key: (Place, SessionKey), request: u64, since_ns: u64, now_ns: u64) {
        let fresh = Tenure {
            request,
            since_ns,
            seen_ns: now_ns,
            before_ns: 0,
            open: true,
        };
        let tenure = self.known.entry(key).or_insert(fresh);
        if tenure.request != request {
            *tenure = fresh;
        } else if since_ns > tenure.seen_ns {
            let held_ns = tenure.seen_ns.saturating_sub(tenure.since_ns);
            let before_ns = tenure.before_ns.saturating_add(held_ns);
            *tenure = Tenure { before_ns, ..fresh };
        }
        tenure.since_ns = tenure.since_ns.min(since_ns);
        tenure.seen_ns = now_ns;
        tenure.open = true;
    }

    /// `runs` tells whether a session still runs a request.
    fn sweep(&mut self, now_ns: u64, runs: impl Fn(SessionKey, u64) -> bool) {
        let past = &mut self.past;
        self.known.retain(|(place, session), tenure| {
            if tenure.open && tenure.seen_ns < now_ns {
                tenure.open = false;
                let held_ns = tenure.seen_ns.saturating_sub(tenure.since_ns);
                past.entry(*place)
                    .or_default()
                    .add_to(MOST, now_ns, held_ns.max(1));
            }
            let lately = || tenure.seen_ns.saturating_add(MEMORY_NS) >= now_ns;
            tenure.open || (lately() && runs(*session, tenure.request))
        });
        past.retain(|_, peers| !peers.forget(now_ns));
    }

    /// Whether a holder has had an instance for much longer than is usual there. Slots of a pool are alike, so whoever has
    /// one at present is a peer; of a lock only those who have let go are.
    fn stands_out(
        &self,
        kind: Kind,
        place: Place,
        (session, held_ns): (SessionKey, u64),
        moving_ns: impl Fn(u64) -> u64,
    ) -> bool {
        let beside = self
            .known
            .range((place, SessionKey(0))..=(place, SessionKey(u64::MAX)))
            .filter(|((_, other), tenure)| kind == Kind::Queue && *other != session && tenure.open)
            .map(|(_, tenure)| moving_ns(tenure.since_ns).max(1));
        let nobody = Peers::default();
        let past = self.past.get(&place).unwrap_or(&nobody);
        if kind != Kind::Queue && past.count() < ENOUGH {
            return true;
        }
        peers::stands_out(held_ns, past.usual(beside))
    }
}

impl Ledger {
    /// Looks who holds what others wait for; once a tick.
    pub(super) fn note_tenures(&mut self) {
        let now_ns = self.now_ns;
        let mut tenures = std::mem::take(&mut self.tenures);
        for wait in self.foreign_waits() {
            for edge in self.edges(wait) {
                if edge.kind == BlockKind::Granted {
                    let place = (wait.resource, wait.instance);
                    let request = self.request_of(edge.session);
                    tenures.hold((place, edge.session), request, edge.since_ns, now_ns);
                }
            }
        }
        tenures.sweep(now_ns, |session, request| {
            let known = self.sessions.get(&session);
            known
                .and_then(|known| known.state.as_ref())
                .is_some_and(|state| state.request == request)
        });
        self.tenures = tenures;
    }

    fn request_of(&self, session: SessionKey) -> u64 {
        let state = self
            .sessions
            .get(&session)
            .and_then(|known| known.state.as_ref());
        state.map_or(0, |state| state.request)
    }

    /// For how long a session's request has had an instance on which others wait, taken together, nanoseconds; time in
    /// which everything stood still is nobody's.
    pub(super) fn held_ns(
        &self,
        (resource, instance): Place,
        session: SessionKey,
        since_ns: u64,
    ) -> u64 {
        self.moving_ns(since_ns)
            .saturating_add(self.tenures.before_ns((resource, instance), session))
    }

    /// Whether a holder has had an instance for much longer than is usual there.
    pub(super) fn holds_unusually_long(
        &self,
        place: Place,
        session: SessionKey,
        since_ns: u64,
    ) -> bool {
        let kind = self
            .kinds
            .get(usize::from(place.0.0))
            .copied()
            .unwrap_or(Kind::Lock);
        let held_ns = self.held_ns(place, session, since_ns);
        self.tenures
            .stands_out(kind, place, (session, held_ns), |since_ns| {
                self.moving_ns(since_ns)
            })
    }
}

#[cfg(test)]
#[path = "tenure_tests.rs"]
mod tests;
