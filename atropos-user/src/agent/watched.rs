//! One walk over time: how long each wait lasts, and the graph as the engine wants it.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::input::{
    BlockKind, Blocker, Evidence, InstanceKey, InstanceName, SessionKey, Snapshot, Wait,
};
use crate::walk::{Edge, Graph, LockWalk, SessionView, Trust, WaitFor};

/// A walk with what is remembered of its earlier views.
pub(super) struct Watched {
    pub(super) walk: LockWalk,
    pub(super) trust: Trust,
    /// The last graph that passed its checks.
    pub(super) graph: Graph,
    /// When each (waiter, ticket) was first seen.
    since: BTreeMap<(u64, u64), u64>,
}

/// What a view is seen by.
pub(super) struct Moment<'a> {
    /// Sessions by key.
    pub(super) sessions: &'a BTreeMap<u64, &'a SessionView>,
    /// Begin of the wait in progress by session, from the ring.
    pub(super) begun: &'a BTreeMap<u64, u64>,
    /// Nothing was seen before.
    pub(super) is_first_look: bool,
    /// Now.
    pub(super) now_ns: u64,
}

impl Moment<'_> {
    fn started_ns(&self, session: u64) -> u64 {
        self.sessions
            .get(&session)
            .map_or(0, |session| session.started_ns)
    }
}

impl Watched {
    /// A walk that has not been taken yet.
    pub(super) fn new(walk: LockWalk) -> Self {
        Self {
            walk,
            trust: Trust::default(),
            graph: Graph::default(),
            since: BTreeMap::new(),
        }
    }

    /// A graph as the engine wants it. `yields_ns` says after how long a session lets go by itself for whoever waits.
    pub(super) fn snapshot(
        &mut self,
        graph: Graph,
        moment: &Moment<'_>,
        yields_ns: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Snapshot {
        self.since = self.first_seen(&graph, moment);
        let since = &self.since;
        let since_ns = |wait: &WaitFor| since[&(wait.waiter, wait.ticket)];
        let mut queued_ns: BTreeMap<u64, u64> = since
            .iter()
            .map(|((waiter, _), at)| (*waiter, *at))
            .collect();
        for waiter in soon_served(&graph, moment.now_ns, since_ns, yields_ns) {
            queued_ns.insert(waiter, moment.now_ns);
        }
        let wait = |wait: &WaitFor| Wait {
            waiter: SessionKey(wait.waiter),
            instance: InstanceKey(wait.instance),
            mode: wait.mode,
            since_ns: since_ns(wait),
            blockers: wait
                .blockers
                .iter()
                .map(|edge| blocker(edge, since_ns(wait), &queued_ns, moment))
                .collect(),
        };
        let name = |(instance, name): (&u64, &String)| InstanceName {
            instance: InstanceKey(*instance),
            name: name.clone(),
        };
        let snapshot = Snapshot {
            at_ns: moment.now_ns,
            resource: self.walk.resource(),
            evidence: Evidence::Walk,
            complete: true,
            waits: graph.waits.iter().map(wait).collect(),
            instances: graph.names.iter().map(name).collect(),
        };
        self.graph = graph;
        snapshot
    }

    /// Since when each wait lasts. One that is seen for the first time began at its announcement if the probe saw it; one
    /// that was there before the first look began after its statement did; all others within this tick. What probes and
    /// statements tell, they tell of waits for somebody.
    fn first_seen(&self, graph: &Graph, moment: &Moment<'_>) -> BTreeMap<(u64, u64), u64> {
        let owned = !self.walk.is_unowned();
        let began = |wait: &WaitFor| {
            let key = (wait.waiter, wait.ticket);
            let started_ns = moment.started_ns(wait.waiter);
            let fresh_ns = if owned && moment.is_first_look && started_ns > 0 {
                started_ns
            } else {
                moment.now_ns
            };
            let told_ns = moment.begun.get(&wait.waiter).filter(|_| owned);
            let known_ns = self.since.get(&key).or(told_ns).copied();
            (key, known_ns.unwrap_or(fresh_ns).min(moment.now_ns))
        };
        graph.waits.iter().map(began).collect()
    }
}

/// Waiters whose holders all let go by themselves before long: whoever queues behind them does not wait for them yet.
fn soon_served(
    graph: &Graph,
    now_ns: u64,
    since_ns: impl Fn(&WaitFor) -> u64,
    yields_ns: &mut dyn FnMut(u64) -> Option<u64>,
) -> BTreeSet<u64> {
    let mut served = BTreeSet::new();
    for wait in &graph.waits {
        let holders = wait
            .blockers
            .iter()
            .filter(|edge| edge.kind == BlockKind::Granted);
        let until: Option<Vec<u64>> = holders.map(|edge| yields_ns(edge.session)).collect();
        let longest_ns = until.and_then(|until| until.into_iter().max());
        if longest_ns.is_some_and(|ns| now_ns.saturating_sub(since_ns(wait)) < ns) {
            served.insert(wait.waiter);
        }
    }
    served
}

/// Somebody in the way of a wait that lasts since `wait_ns`. What a statement holds it took at its start or later; what an
/// idle session holds, at the start of its last statement or before. A place in the queue is as old as the wait.
fn blocker(
    edge: &Edge,
    wait_ns: u64,
    queued_ns: &BTreeMap<u64, u64>,
    moment: &Moment<'_>,
) -> Blocker {
    let start_ns = moment.started_ns(edge.session);
    let since_ns = match edge.kind {
        BlockKind::Queued => queued_ns.get(&edge.session).copied().unwrap_or(start_ns),
        BlockKind::Granted => start_ns,
    };
    // Whose start is unknown (a prepared transaction) has been in the way for as long as the wait lasts.
    let since_ns = if since_ns == 0 {
        wait_ns
    } else {
        since_ns.min(moment.now_ns)
    };
    Blocker {
        session: SessionKey(edge.session),
        kind: edge.kind,
        mode: edge.mode,
        since_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VACUUM: u64 = 1;
    const READER: u64 = 2;
    const ALTER: u64 = 3;
    const YIELDS_NS: u64 = 1_500;

    fn wait(waiter: u64, blockers: &[(u64, BlockKind)]) -> WaitFor {
        WaitFor {
            waiter,
            instance: 7,
            mode: 0,
            ticket: waiter,
            blockers: blockers
                .iter()
                .map(|(session, kind)| Edge {
                    session: *session,
                    kind: *kind,
                    mode: 0,
                })
                .collect(),
        }
    }

    fn served(now_ns: u64, waits: Vec<WaitFor>) -> Vec<u64> {
        let graph = Graph {
            waits,
            ..Graph::default()
        };
        let mut yields = |session| (session == VACUUM).then_some(YIELDS_NS);
        soon_served(&graph, now_ns, |_| 1_000, &mut yields)
            .into_iter()
            .collect()
    }

    #[test]
    fn behind_whoever_lets_go_by_itself_one_is_not_in_the_way_until_its_time_is_up() {
        let waits = || vec![wait(ALTER, &[(VACUUM, BlockKind::Granted)])];
        assert_eq!(served(2_000, waits()), [ALTER]);
        assert_eq!(served(2_500, waits()), [0_u64; 0]);
    }

    #[test]
    fn one_holder_that_stays_is_enough() {
        let both = [(VACUUM, BlockKind::Granted), (READER, BlockKind::Granted)];
        assert_eq!(served(2_000, vec![wait(ALTER, &both)]), [0_u64; 0]);
        let queued = [(VACUUM, BlockKind::Queued)];
        assert_eq!(served(2_000, vec![wait(ALTER, &queued)]), [0_u64; 0]);
    }
}
