//! How long the holders of contended instances keep them, and what is usual.
//!
//! Looked at once a tick: whoever is in the way by what it holds. A holder that is no longer there tells how long is usual;
//! one that comes back to the same instance in the same request goes on where it was, since a task that takes a lock again and
//! again is in the way for the sum of it.

use super::input::{BlockKind, InstanceKey, ResourceId, SessionKey};
use super::ledger::{Ledger, List};
use super::peers::{self, MEMORY_NS, Peers};
use super::settings::Kind;
use super::table::Table;

/// Of a lock, so many others must have let go lately before their time is what is usual: fewer may all be culprits that
/// were ended.
const ENOUGH: usize = 5;

/// So many of those that let go are remembered for each lock: there can be thousands of locks. Of a pool, of which there are few,
/// as many as of anything else: the median of sixteen can be a fifth of what is usual by mere chance.
const MOST: usize = 16;

type Place = (ResourceId, InstanceKey);

/// One holder of one instance.
#[derive(Clone, Copy, Debug)]
struct Tenure {
    session: SessionKey,
    /// Of which request of the session.
    request: u64,
    since_ns: u64,
    seen_ns: u64,
    /// What the same request held before, in the way of others.
    before_ns: u64,
    /// It was in the way at the latest tick.
    open: bool,
}

/// Holders of one instance.
#[derive(Clone, Debug, Default)]
struct Holders {
    /// At present and lately, by session.
    known: Vec<Tenure>,
    /// What those that let go held.
    past: Peers,
}

/// Holders of contended instances at present and lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Tenures(Table<Place, Holders>);

impl Tenures {
    /// How long the session's present request held the instance before it took it this time, nanoseconds.
    fn before_ns(&self, place: Place, session: SessionKey) -> u64 {
        self.0
            .get(&place)
            .and_then(|holders| holders.find(session).ok().map(|at| &holders.known[at]))
            .map_or(0, |tenure| tenure.before_ns)
    }

    /// Takes in who is gone.
    fn sweep(&mut self, ledger: &Ledger) {
        let now_ns = ledger.now_ns;
        self.0.retain(|(resource, _), holders| {
            let Holders { known, past } = holders;
            let is_pool = ledger.kind(*resource) == Kind::Queue;
            known.retain_mut(|tenure| {
                if tenure.open && tenure.seen_ns < now_ns {
                    tenure.open = false;
                    let held_ns = tenure.own_ns(ledger);
                    if is_pool {
                        past.add(now_ns, held_ns.max(1));
                    } else {
                        past.add_to(MOST, now_ns, held_ns.max(1));
                    }
                }
                let lately = tenure.seen_ns.saturating_add(MEMORY_NS) >= now_ns;
                tenure.open || (lately && tenure.runs(ledger))
            });
            let nothing_past = past.forget(now_ns);
            !nothing_past || !known.is_empty()
        });
    }

    /// Whether a holder has had an instance for much longer than is usual there. Slots of a pool are alike, so whoever has
    /// one at present is a peer; of a lock only those who have let go are.
    fn stands_out(
        &self,
        kind: Kind,
        place: Place,
        (session, held_ns): (SessionKey, u64),
        own_ns: impl Fn(SessionKey, u64) -> u64,
    ) -> bool {
        let nobody = Holders::default();
        let holders = self.0.get(&place).unwrap_or(&nobody);
        let beside = holders
            .known
            .iter()
            .filter(|tenure| kind == Kind::Queue && tenure.session != session && tenure.open)
            .map(|tenure| own_ns(tenure.session, tenure.since_ns).max(1));
        if kind != Kind::Queue && holders.past.count() < ENOUGH {
            return true;
        }
        peers::stands_out(held_ns, holders.past.usual(beside))
    }
}

impl Tenure {
    /// For how long it held the instance this time, less what it waited for others meanwhile, nanoseconds.
    fn own_ns(&self, ledger: &Ledger) -> u64 {
        let waited_ns = ledger.waited_between_ns(self.session, self.since_ns, self.seen_ns);
        self.seen_ns
            .saturating_sub(self.since_ns)
            .saturating_sub(waited_ns)
    }

    /// The session still runs that request.
    fn runs(&self, ledger: &Ledger) -> bool {
        let state = ledger.state(self.session);
        state.is_some_and(|state| state.request == self.request)
    }
}

impl Holders {
    fn find(&self, session: SessionKey) -> Result<usize, usize> {
        self.known
            .binary_search_by_key(&session, |tenure| tenure.session)
    }

    fn hold(&mut self, ledger: &Ledger, session: SessionKey, since_ns: u64) {
        let (request, now_ns) = (ledger.request_of(session), ledger.now_ns);
        let fresh = Tenure {
            session,
            request,
            since_ns,
            seen_ns: now_ns,
            before_ns: 0,
            open: true,
        };
        let at = self.find(session).unwrap_or_else(|at| {
            self.known.insert(at, fresh);
            at
        });
        let tenure = &mut self.known[at];
        if tenure.request != request {
            *tenure = fresh;
        } else if since_ns > tenure.seen_ns {
            let before_ns = tenure.before_ns.saturating_add(tenure.own_ns(ledger));
            *tenure = Tenure { before_ns, ..fresh };
        }
        tenure.since_ns = tenure.since_ns.min(since_ns);
        tenure.seen_ns = now_ns;
        tenure.open = true;
    }
}

impl Ledger {
    /// Looks who holds what others wait for; once a tick.
    pub(super) fn note_tenures(&mut self) {
        let mut tenures = std::mem::take(&mut self.tenures);
        let mut latest: Option<(Place, &List)> = None;
        for wait in self.foreign_waits() {
            let place = (wait.resource, wait.instance);
            let listed = wait.listed.as_ref();
            if let (Some((at, before)), Some(listed)) = (latest, listed)
                && at == place
                && List::ptr_eq(before, listed)
            {
                // Whoever stands in the same line names the same holders.
                continue;
            }
            let names_itself = |listed: &&List| listed.iter().any(|one| one.session == wait.waiter);
            latest = listed
                .filter(|listed| !names_itself(listed))
                .map(|listed| (place, listed));
            for edge in self.edges(wait) {
                if edge.kind == BlockKind::Granted {
                    let holders = tenures.0.entry(place).or_default();
                    holders.hold(self, edge.session, edge.since_ns);
                }
            }
        }
        tenures.sweep(self);
        self.tenures = tenures;
    }

    fn kind(&self, resource: ResourceId) -> Kind {
        let kind = self.kinds.get(usize::from(resource.0));
        kind.copied().unwrap_or(Kind::Lock)
    }

    fn request_of(&self, session: SessionKey) -> u64 {
        let state = self.state(session);
        state.map_or(0, |state| state.request)
    }

    /// For how long a session's request has had an instance on which others wait, taken together, nanoseconds; time in
    /// which everything stood still is nobody's, and time in which it waited itself is not its own.
    pub(super) fn held_ns(&self, place: Place, session: SessionKey, since_ns: u64) -> u64 {
        self.own_ns(session, since_ns)
            .saturating_add(self.tenures.before_ns(place, session))
    }

    /// Whether a holder has had an instance for much longer than is usual there.
    pub(super) fn holds_unusually_long(
        &self,
        place: Place,
        session: SessionKey,
        since_ns: u64,
    ) -> bool {
        let kind = self.kind(place.0);
        let held_ns = self.held_ns(place, session, since_ns);
        self.tenures
            .stands_out(kind, place, (session, held_ns), |other, since_ns| {
                self.own_ns(other, since_ns)
            })
    }
}

#[cfg(test)]
#[path = "tenure_tests.rs"]
mod tests;
