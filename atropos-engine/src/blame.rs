//! Who is to blame for the time that others lost.
//!
//! Each open wait lost some time in the window. Its direct blockers share that in equal parts, each for no longer than
//! it has been in the way. A blocker that waits itself keeps its share and passes on what it got to *its* blockers,
//! for the part of the time that it has been waiting (`flow`). So the root of a tree is charged with the loss of the whole
//! tree, and a task that is in nobody's way is charged with nothing: victims are safe by construction.
//!
//! A queued request is charged only with waits that could end if it went: a waiter that a *holder* or another queued
//! request blocks as well gains nothing when one before it leaves the queue.
//!
//! What sessions lost to the *use* of others (`usage`) is added to the blame of those whose use stands out.
//!
//! In front of a pool thousands name the same holders: who is in the way is worked out once for all of them.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::absent::Absent;
use super::flow::{Blocking, Link, flow};
use super::graph::{Graph, InUse, InWay, Node, Waiting};
use super::input::{BlockKind, Blocker, Evidence, ResourceId, SessionKey};
use super::ledger::{Ledger, List, OpenWait};
use super::usage::Charge;
use super::view::Edge;
use super::window::within_ns;

/// Builds the graph of all waits on resources that can be seen, and lets the blame flow.
pub(super) fn assign(ledger: &Ledger) -> Graph {
    assign_without(ledger, &BTreeSet::new())
}

/// The same as if these sessions were gone: what they are charged with is freed and goes to nobody else.
pub(super) fn assign_without(ledger: &Ledger, gone: &BTreeSet<SessionKey>) -> Graph {
    let absent = Absent::of(ledger, gone);
    let charges = charges(ledger, &absent);
    let mut lines = Lines::of(ledger, &absent);
    let mut graph = Graph::of(
        (lines.edges.iter().map(|edge| edge.session))
            .chain(lines.waits.iter().map(|(wait, _)| wait.waiter))
            .chain(charges.iter().map(|(_, charge)| charge.session)),
    );
    for line in &lines.all {
        let blockings = lines.to[line.to.clone()].iter_mut();
        for (blocking, session) in blockings.zip(&*line.blockers) {
            blocking.place = graph.place(*session).unwrap_or_default();
        }
        for edge in &lines.edges[line.edges.clone()] {
            if let Some(place) = graph.place(edge.session) {
                line.note_in_way(&mut graph.nodes[place], edge);
            }
        }
    }
    let mut links: Vec<Option<Link<'_>>> = vec![None; graph.len()];
    for (wait, at) in &lines.waits {
        let line = &lines.all[*at];
        let Some(place) = graph.place(wait.waiter) else {
            continue;
        };
        graph.nodes[place].waiting = Some(Waiting {
            resource: wait.resource,
            instance: wait.instance,
            since_ns: wait.since_ns,
            blockers: line.blockers.clone(),
        });
        links[place] = Some(Link {
            resource: usize::from(wait.resource.0),
            lost_ns: within_ns(wait.since_ns, ledger.now_ns, ledger.window_ns),
            parts: line.parts,
            to: &lines.to[line.to.clone()],
        });
    }
    flow(&mut graph, &links, ledger.past.len());
    for (r, charge) in charges {
        charge_user(&mut graph, r, &charge);
    }
    graph
}

/// Who is to blame for what others lost to their use, by resource.
fn charges(ledger: &Ledger, absent: &Absent) -> Vec<(usize, Charge)> {
    let mut all = Vec::new();
    for (r, account) in ledger.accounts.iter().enumerate() {
        if ledger.is_blind(ResourceId(r as u16)) {
            continue;
        }
        let charges = account.charges(ledger.now_ns).into_iter();
        let there = charges
            .filter(|charge| !absent.is_gone(charge.session) && !ledger.is_own(charge.session));
        all.extend(there.map(|charge| (r, charge)));
    }
    all
}

fn charge_user(graph: &mut Graph, r: usize, charge: &Charge) {
    let Some(place) = graph.place(charge.session) else {
        return;
    };
    let node = &mut graph.nodes[place];
    node.blamed_s[r] += charge.blamed_s;
    node.uses.push(InUse {
        resource: ResourceId(r as u16),
        share: charge.share,
        since_ns: charge.since_ns,
        evidence: charge.evidence,
        seen_ns: charge.seen_ns,
    });
}

/// Those in the way of a wait, or of several that name the same.
struct Line<'a> {
    /// The first of the waits.
    wait: &'a OpenWait,
    wait_count: u64,
    /// When the one that was seen longest ago was seen; `u64::MAX` for one that events follow.
    seen_ns: u64,
    /// Among so many each wait's time is shared, whether all of them are still there or not.
    parts: usize,
    /// Blockers in the order of their keys.
    blockers: Rc<[SessionKey]>,
    /// Its part of all edges.
    edges: Range<usize>,
    /// Its part of all blockings, one for each blocker.
    to: Range<usize>,
}

/// Who is in whose way.
#[derive(Default)]
struct Lines<'a> {
    all: Vec<Line<'a>>,
    edges: Vec<Edge>,
    to: Vec<Blocking>,
    /// Each wait with the index of its line.
    waits: Vec<(&'a OpenWait, usize)>,
}

/// What waits must have in common to name the same: the very list, and how it is known.
type Shared = (*const Vec<Blocker>, Evidence);

impl<'a> Lines<'a> {
    fn of(ledger: &'a Ledger, absent: &Absent) -> Self {
        let mut lines = Self::default();
        let mut known: HashMap<Shared, usize, FxBuildHasher> = HashMap::default();
        let there = ledger
            .foreign_waits()
            .filter(|wait| !ledger.is_blind(wait.resource) && !absent.is_gone(wait.waiter));
        for wait in there {
            let shared = shared(wait);
            let found = shared.and_then(|shared| known.get(&shared)).copied();
            let at = found.unwrap_or_else(|| lines.add(ledger, absent, wait));
            if let Some(shared) = shared {
                known.insert(shared, at);
            }
            let line = &mut lines.all[at];
            line.wait_count += 1;
            line.seen_ns = line.seen_ns.min(seen_ns(wait));
            lines.waits.push((wait, at));
        }
        lines
    }

    /// Works a line out; returns its index.
    fn add(&mut self, ledger: &Ledger, absent: &Absent, wait: &'a OpenWait) -> usize {
        let (first_edge, first_to) = (self.edges.len(), self.to.len());
        self.edges.extend(ledger.edges(wait));
        let mut merged = merged_by_session(&self.edges[first_edge..]);
        let (parts, alone) = (merged.len(), merged.len() == 1);
        if !absent.is_empty() {
            let left = self.edges.split_off(first_edge);
            let there = left.into_iter().filter(|edge| !absent.drops(edge));
            self.edges.extend(there);
            let left = merged_by_session(&self.edges[first_edge..]);
            let is_left = |session| {
                left.binary_search_by_key(&session, |one| one.session)
                    .is_ok()
            };
            merged.retain(|one| is_left(one.session));
        }
        self.to.extend(merged.iter().map(|one| Blocking {
            place: 0,
            moving_ns: one.in_way_ns(ledger),
            can_end: one.holds || alone,
        }));
        self.all.push(Line {
            wait,
            wait_count: 0,
            seen_ns: u64::MAX,
            parts,
            blockers: merged.iter().map(|one| one.session).collect(),
            edges: first_edge..self.edges.len(),
            to: first_to..self.to.len(),
        });
        self.all.len() - 1
    }
}

/// Who is in its own way, as one that upgrades, names others than those who wait with it.
fn shared(wait: &OpenWait) -> Option<Shared> {
    let listed = wait.listed.as_ref()?;
    let names_itself = listed.iter().any(|blocker| blocker.session == wait.waiter);
    (!names_itself).then_some((List::as_ptr(listed), wait.evidence))
}

fn seen_ns(wait: &OpenWait) -> u64 {
    if wait.listed.is_some() {
        wait.seen_ns
    } else {
        u64::MAX
    }
}

impl Line<'_> {
    fn note_in_way(&self, node: &mut Node, edge: &Edge) {
        let (resource, instance) = (self.wait.resource, self.wait.instance);
        let wanted = (resource, instance, edge.kind);
        let place = |way: &InWay| (way.resource, way.instance, way.kind);
        match node.in_way.binary_search_by_key(&wanted, place) {
            Ok(at) => {
                let known = &mut node.in_way[at];
                known.since_ns = known.since_ns.min(edge.since_ns);
                known.evidence = known.evidence.max(edge.evidence);
                known.seen_ns = known.seen_ns.min(self.seen_ns);
                known.waiters += self.wait_count;
            }
            Err(at) => node.in_way.insert(
                at,
                InWay {
                    resource,
                    instance,
                    kind: edge.kind,
                    mode: edge.mode,
                    since_ns: edge.since_ns,
                    evidence: edge.evidence,
                    seen_ns: self.seen_ns,
                    waiters: self.wait_count,
                },
            ),
        }
    }
}

/// A session in the way, by what it holds and what it wants.
struct Merged {
    session: SessionKey,
    since_ns: u64,
    holds: bool,
}

impl Merged {
    /// Who is in the way by its place in the line alone is in it by waiting.
    fn in_way_ns(&self, ledger: &Ledger) -> u64 {
        if self.holds {
            ledger.own_ns(self.session, self.since_ns)
        } else {
            ledger.moving_ns(self.since_ns)
        }
    }
}

/// A session can be in the way twice. In the order of their keys.
fn merged_by_session(edges: &[Edge]) -> SmallVec<[Merged; 16]> {
    let one = |edge: &Edge| Merged {
        session: edge.session,
        since_ns: edge.since_ns,
        holds: edge.kind == BlockKind::Granted,
    };
    let mut all: SmallVec<[Merged; 16]> = edges.iter().map(one).collect();
    all.sort_unstable_by_key(|one| one.session);
    all.dedup_by(|next, kept| {
        let same = next.session == kept.session;
        if same {
            kept.since_ns = kept.since_ns.min(next.since_ns);
            kept.holds |= next.holds;
        }
        same
    });
    all
}

#[cfg(test)]
#[path = "blame_tests.rs"]
mod tests;
