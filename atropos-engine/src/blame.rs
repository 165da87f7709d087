//! Who is to blame for the time that others lost: the wait-for graph and the flow of lost time along it.
//!
//! Each open wait lost some time in the window. Its direct blockers share that in equal parts, each for no longer than
//! it has been in the way. A blocker that waits itself keeps its share and passes on what it got to *its* blockers,
//! for the part of the time that it has been waiting. So the root of a tree is charged with the loss of the whole tree,
//! and a task that is in nobody's way is charged with nothing: victims are safe by construction.
//!
//! A queued request is charged only with waits that could end if it went: a waiter that a *holder* or another queued
//! request blocks as well gains nothing when one before it leaves the queue.
//!
//! What sessions lost to the *use* of others (`usage`) is added to the blame of those whose use stands out.

use std::collections::{BTreeMap, BTreeSet};

use super::absent::Absent;
use super::input::{BlockKind, Evidence, InstanceKey, ResourceId, SessionKey};
use super::ledger::{Ledger, OpenWait};
use super::view::Edge;
use super::window::{seconds, within_ns};

/// How a session is in the way on one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InWay {
    pub(super) resource: ResourceId,
    pub(super) instance: InstanceKey,
    pub(super) kind: BlockKind,
    pub(super) mode: u32,
    pub(super) since_ns: u64,
    pub(super) evidence: Evidence,
    /// When a snapshot last showed the waits behind it; `u64::MAX` for waits that events follow.
    pub(super) seen_ns: u64,
    /// Waits that it blocks directly.
    pub(super) waiters: u64,
}

/// How much of a resource that nobody waits for a session uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InUse {
    pub(super) resource: ResourceId,
    /// Its share of all use, 0 to 1.
    pub(super) share: f64,
    pub(super) since_ns: u64,
    pub(super) evidence: Evidence,
    pub(super) seen_ns: u64,
}

/// What a session waits for.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) resource: ResourceId,
    pub(super) instance: InstanceKey,
    pub(super) since_ns: u64,
    pub(super) blockers: Vec<SessionKey>,
}

/// A session that waits or is in the way.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// Where it is in the way of others, by (resource, instance, kind).
    pub(super) in_way: Vec<InWay>,
    /// Resources of which it uses so much that others lose by it.
    pub(super) uses: Vec<InUse>,
    /// What it waits for.
    pub(super) waiting: Option<Waiting>,
    /// It waits in a circle: nobody in it is the root.
    pub(super) in_cycle: bool,
    /// Lost time that ending it could give back, seconds by resource.
    pub(super) blamed_s: Vec<f64>,
}

impl Node {
    /// It is to blame for something.
    pub(super) fn is_blamed(&self) -> bool {
        self.blamed_s.iter().any(|blamed_s| *blamed_s > 0.0)
    }

    /// Its own wait is for an instance on which it is in the way of others: a queued request, or an upgrade.
    pub(super) fn waits_in_line(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| {
            self.in_way
                .iter()
                .any(|way| (way.resource, way.instance) == (waiting.resource, waiting.instance))
        })
    }

    /// It is in the way there and nowhere else. Who holds, elsewhere, what others want, and stands in a queue itself, is held up
    /// as they are: what is behind it is the fault of those that it waits for.
    pub(super) fn is_only_in_line(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| {
            !self.in_way.is_empty()
                && self
                    .in_way
                    .iter()
                    .all(|way| (way.resource, way.instance) == (waiting.resource, waiting.instance))
        })
    }
}

/// The wait-for graph.
pub(super) type Graph = BTreeMap<SessionKey, Node>;

/// One wait with its edges merged by blocker.
struct Link {
    resource: usize,
    lost_s: f64,
    /// Among so many the wait's time is shared, whether all of them are still there or not.
    parts: usize,
    /// Blocker, seconds of this wait that it has been in the way, and whether ending it could end the wait.
    to: Vec<(SessionKey, f64, bool)>,
}

/// Builds the graph of all waits on resources that can be seen, and lets the blame flow.
pub(super) fn assign(ledger: &Ledger) -> Graph {
    assign_without(ledger, &BTreeSet::new())
}

/// The same as if these sessions were gone: what they are charged with is freed and goes to nobody else.
pub(super) fn assign_without(ledger: &Ledger, gone: &BTreeSet<SessionKey>) -> Graph {
    let absent = Absent::of(ledger, gone);
    let mut graph = Graph::new();
    let mut links = BTreeMap::new();
    for wait in ledger
        .foreign_waits()
        .filter(|wait| !ledger.is_blind(wait.resource) && !absent.is_gone(wait.waiter))
    {
        let mut edges = ledger.edges(wait);
        let mut link = link(ledger, wait, &edges);
        if !gone.is_empty() {
            edges.retain(|edge| !absent.drops(edge));
            let there: BTreeSet<SessionKey> = edges.iter().map(|edge| edge.session).collect();
            link.to.retain(|(blocker, ..)| there.contains(blocker));
        }
        for edge in &edges {
            note_in_way(graph.entry(edge.session).or_default(), wait, edge);
        }
        graph.entry(wait.waiter).or_default().waiting = Some(Waiting {
            resource: wait.resource,
            instance: wait.instance,
            since_ns: wait.since_ns,
            blockers: link.to.iter().map(|(blocker, ..)| *blocker).collect(),
        });
        links.insert(wait.waiter, link);
    }
    let order = order(&mut graph);
    flow(&mut graph, &links, &order, ledger.past.len());
    charge_users(&mut graph, ledger, &absent);
    graph
}

fn charge_users(graph: &mut Graph, ledger: &Ledger, absent: &Absent) {
    for (r, account) in ledger.accounts.iter().enumerate() {
        let resource = ResourceId(r as u16);
        if ledger.is_blind(resource) {
            continue;
        }
        let charges = account.charges(ledger.now_ns);
        for charge in charges
            .iter()
            .filter(|charge| !absent.is_gone(charge.session) && !ledger.is_own(charge.session))
        {
            let node = graph.entry(charge.session).or_default();
            node.blamed_s.resize(ledger.accounts.len(), 0.0);
            node.blamed_s[r] += charge.blamed_s;
            node.uses.push(InUse {
                resource,
                share: charge.share,
                since_ns: charge.since_ns,
                evidence: charge.evidence,
                seen_ns: charge.seen_ns,
            });
        }
    }
}

/// How many sessions wait behind this one, directly or through others.
pub(super) fn waiting_behind(graph: &Graph, session: SessionKey) -> usize {
    let mut waiters = Neighbours::new();
    for (waiter, node) in graph {
        for blocker in node.waiting.iter().flat_map(|waiting| &waiting.blockers) {
            waiters.entry(*blocker).or_default().push(*waiter);
        }
    }
    let mut behind = BTreeSet::new();
    let mut open = vec![session];
    while let Some(next) = open.pop() {
        open.extend(
            waiters
                .get(&next)
                .into_iter()
                .flatten()
                .filter(|waiter| behind.insert(**waiter)),
        );
    }
    behind.remove(&session);
    behind.len()
}

fn note_in_way(node: &mut Node, wait: &OpenWait, edge: &Edge) {
    let at = (wait.resource, wait.instance, edge.kind);
    let seen_ns = if wait.listed.is_some() {
        wait.seen_ns
    } else {
        u64::MAX
    };
    if let Some(known) = node
        .in_way
        .iter_mut()
        .find(|way| (way.resource, way.instance, way.kind) == at)
    {
        known.since_ns = known.since_ns.min(edge.since_ns);
        known.evidence = known.evidence.max(edge.evidence);
        known.seen_ns = known.seen_ns.min(seen_ns);
        known.waiters += 1;
        return;
    }
    node.in_way.push(InWay {
        resource: wait.resource,
        instance: wait.instance,
        kind: edge.kind,
        mode: edge.mode,
        since_ns: edge.since_ns,
        evidence: edge.evidence,
        seen_ns,
        waiters: 1,
    });
    node.in_way
        .sort_by_key(|way| (way.resource, way.instance, way.kind));
}

fn link(ledger: &Ledger, wait: &OpenWait, edges: &[Edge]) -> Link {
    let lost_ns = within_ns(wait.since_ns, ledger.now_ns, ledger.window_ns);
    // A session can be in the way twice, by what it holds and by what it wants.
    let mut merged: BTreeMap<SessionKey, (u64, bool)> = BTreeMap::new();
    for edge in edges {
        let (since_ns, holds) = merged.entry(edge.session).or_insert((edge.since_ns, false));
        *since_ns = edge.since_ns.min(*since_ns);
        *holds |= edge.kind == BlockKind::Granted;
    }
    let alone = merged.len() == 1;
    let to: Vec<(SessionKey, f64, bool)> = merged
        .into_iter()
        .map(|(session, (since_ns, holds))| {
            let charged_ns = lost_ns.min(ledger.moving_ns(since_ns));
            (session, seconds(charged_ns), holds || alone)
        })
        .collect();
    Link {
        resource: usize::from(wait.resource.0),
        lost_s: seconds(lost_ns),
        parts: to.len(),
        to,
    }
}

type Neighbours = BTreeMap<SessionKey, Vec<SessionKey>>;

/// Every session before those that it waits for; marks circles, which are cut at their smallest key.
fn order(graph: &mut Graph) -> Vec<SessionKey> {
    let mut blockers = Neighbours::new();
    let mut waiters = Neighbours::new();
    for (session, node) in graph.iter() {
        let behind = node
            .waiting
            .as_ref()
            .map(|waiting| waiting.blockers.clone())
            .unwrap_or_default();
        for blocker in &behind {
            waiters.entry(*blocker).or_default().push(*session);
        }
        blockers.insert(*session, behind);
        waiters.entry(*session).or_default();
    }
    // What cannot be peeled off from either end lies on a circle, or between two.
    let from_waiters: BTreeSet<SessionKey> = peel(&blockers, &waiters, &BTreeSet::new())
        .into_iter()
        .collect();
    let from_roots: BTreeSet<SessionKey> = peel(&waiters, &blockers, &BTreeSet::new())
        .into_iter()
        .collect();
    let mut circles = BTreeSet::new();
    for (session, node) in graph.iter_mut() {
        node.in_cycle = !from_waiters.contains(session) && !from_roots.contains(session);
        if node.in_cycle {
            circles.insert(*session);
        }
    }
    peel(&blockers, &waiters, &circles)
}

/// Takes nodes off that nobody left points at; when there are none, cuts the circles at their smallest member.
fn peel(out: &Neighbours, into: &Neighbours, circles: &BTreeSet<SessionKey>) -> Vec<SessionKey> {
    let mut pending: BTreeMap<SessionKey, usize> = into
        .iter()
        .map(|(node, from)| (*node, from.len()))
        .collect();
    let mut ready: BTreeSet<SessionKey> = pending
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(node, _)| *node)
        .collect();
    let mut cuts = circles.clone();
    let mut order = Vec::with_capacity(out.len());
    while let Some(node) = ready.pop_first().or_else(|| cuts.pop_first()) {
        cuts.remove(&node);
        if pending.remove(&node).is_none() {
            continue;
        }
        order.push(node);
        for next in out.get(&node).into_iter().flatten() {
            if let Some(count) = pending.get_mut(next) {
                *count -= 1;
                if *count == 0 {
                    ready.insert(*next);
                }
            }
        }
    }
    order
}

/// Lets lost time flow from the waiters to the roots.
fn flow(
    graph: &mut Graph,
    links: &BTreeMap<SessionKey, Link>,
    order: &[SessionKey],
    resource_count: usize,
) {
    let mut carried: BTreeMap<SessionKey, Vec<f64>> = BTreeMap::new();
    // The longest wait directly or indirectly behind a session.
    let mut behind_s: BTreeMap<SessionKey, f64> = BTreeMap::new();
    for node in graph.values_mut() {
        node.blamed_s = vec![0.0; resource_count];
    }
    for session in order {
        let Some(link) = links.get(session).filter(|link| !link.to.is_empty()) else {
            continue;
        };
        let inflow = carried
            .get(session)
            .cloned()
            .unwrap_or_else(|| vec![0.0; resource_count]);
        let longest_s = link
            .lost_s
            .max(behind_s.get(session).copied().unwrap_or(0.0));
        let parts = link.parts as f64;
        for (blocker, charged_s, can_end) in &link.to {
            let share = if longest_s > 0.0 {
                charged_s / longest_s / parts
            } else {
                0.0
            };
            let mut amounts: Vec<f64> = inflow.iter().map(|amount| amount * share).collect();
            amounts[link.resource] += charged_s / parts;
            let longest_behind = behind_s.entry(*blocker).or_insert(0.0);
            *longest_behind = longest_behind.max(*charged_s);
            let total = carried
                .entry(*blocker)
                .or_insert_with(|| vec![0.0; resource_count]);
            let blamed = graph.get_mut(blocker).filter(|_| *can_end);
            for (sum, amount) in total.iter_mut().zip(&amounts) {
                *sum += amount;
            }
            for (sum, amount) in blamed
                .into_iter()
                .flat_map(|node| &mut node.blamed_s)
                .zip(&amounts)
            {
                *sum += amount;
            }
        }
    }
}

#[cfg(test)]
#[path = "blame_tests.rs"]
mod tests;
