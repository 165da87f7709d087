//! What ending a task would free, in seconds.
//!
//! The gain of a resource is the future usage of what others wait for, less the cost of undoing the task's work, times
//! the share of the resource's lost time that the task is to blame for. Future usage is usage x (1 - p) / p with progress
//! p; where no progress is known, as long again as so far, up to a horizon. A queued request blocks for at least as long
//! as those that it queues behind.
//!
//! A slot of a pool that the task gives back serves others for all of that time, so there the share does not count: it is
//! asked of all candidates together (`choose`).
//!
//! Usage is the time for which the task has been in the way by itself (of a lock or a pool), or at the resource (memory, processor,
//! device): seconds for every kind, so that a sum over kinds means something. How much it takes of what others lack is in the
//! blame.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Graph, InWay, Node};
use super::input::{BlockKind, Evidence, ResourceId, SessionKey};
use super::ledger::Ledger;
use super::settings::{Kind, Settings};
use super::window::seconds;

/// No estimate goes beyond this, however small the progress: ten minutes. Beyond it all culprits are alike.
const FUTURE_LIMIT_S: f64 = 600.0;

/// No estimate by progress goes beyond so many times what was used so far: progress below a tenth is told in steps that are
/// too large, by plans that are too rough, to be multiplied with. It bounds what a progress that is ten times too small can do.
const FUTURE_TIMES: f64 = 10.0;

/// How a task is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It waits for nobody.
    Root,
    /// It waits in the line that it blocks: a queued request or an upgrade.
    Queued,
    /// It waits for something else, or in a circle: a victim itself, of this session.
    Victim(SessionKey),
}

/// What ending a task would free of one resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) resource: ResourceId,
    pub(super) usage_s: f64,
    pub(super) progress: Option<f64>,
    pub(super) blame: f64,
    pub(super) undo_s: f64,
    pub(super) gain_s: f64,
}

/// A task that is in the way, with what ending it would free.
#[derive(Clone, Debug)]
pub(super) struct Scored {
    pub(super) session: SessionKey,
    pub(super) role: Role,
    /// By resource, one for each resource of the settings.
    pub(super) parts: Vec<Part>,
    /// For how long it has been in somebody's way by itself, nanoseconds: time in which it waited for others is theirs.
    pub(super) in_way_ns: u64,
    /// The weakest evidence that it rests on.
    pub(super) evidence: Evidence,
    /// When a snapshot last showed the waits behind it; `u64::MAX` if events follow them.
    pub(super) seen_ns: u64,
}

impl Scored {
    /// Gain over all resources, seconds.
    pub(super) fn gain_s(&self) -> f64 {
        self.parts.iter().map(|part| part.gain_s).sum()
    }
}

/// Scores every task that is to blame for something.
pub(super) fn score(settings: &Settings, ledger: &Ledger, graph: &Graph) -> Vec<Scored> {
    let lost_s: Vec<f64> = (0..)
        .zip(&settings.resources)
        .map(|(r, resource)| {
            let id = ResourceId(r);
            // The line in front of a pool moves on all the time: of those who are through, nobody knows who was in the way.
            seconds(match resource.kind {
                Kind::Queue => ledger.open_lost_ns(id),
                _ => ledger.lost_ns(id),
            })
        })
        .collect();
    let mut futures = Futures {
        settings,
        ledger,
        graph,
        known: BTreeMap::new(),
        open: BTreeSet::new(),
    };
    graph
        .iter()
        .filter(|(_, node)| node.is_blamed())
        .map(|(session, node)| {
            let remaining_s = futures.of(*session);
            scored(settings, ledger, (*session, node), remaining_s, &lost_s)
        })
        .collect()
}

fn scored(
    settings: &Settings,
    ledger: &Ledger,
    (session, node): (SessionKey, &Node),
    remaining_s: f64,
    lost_s: &[f64],
) -> Scored {
    let undo_s = undo_s(settings, ledger, session);
    let progress = progress(ledger, session);
    let part = |(r, (blamed_s, lost_s)): (usize, (&f64, &f64))| {
        let resource = ResourceId(r as u16);
        let blame = if *lost_s > 0.0 {
            (blamed_s / lost_s).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let used = node.uses.iter().find(|used| used.resource == resource);
        let usage_s = used.map_or_else(
            || {
                let ways = node.in_way.iter().filter(|way| way.resource == resource);
                usage_s(ledger, session, ways)
            },
            |used| seconds(ledger.moving_ns(used.since_ns)),
        );
        let left_s = used.map_or(remaining_s, |_| future_s(settings, usage_s, progress));
        // A slot that is free is free for everybody, however many slots there are.
        let share = match settings.resources.get(r).map(|resource| resource.kind) {
            Some(Kind::Queue) if blame > 0.0 => 1.0,
            _ => blame,
        };
        let gain_s = (left_s - undo_s).max(0.0) * share;
        Part {
            resource,
            usage_s,
            progress,
            blame,
            undo_s,
            gain_s,
        }
    };
    let in_way_ns = node.in_way.iter().map(|way| way_ns(ledger, session, way));
    let used_ns = node.uses.iter().map(|used| ledger.moving_ns(used.since_ns));
    let evidence = node.in_way.iter().map(|way| way.evidence);
    let seen_ns = node.in_way.iter().map(|way| way.seen_ns);
    Scored {
        session,
        role: role(session, node),
        parts: node
            .blamed_s
            .iter()
            .zip(lost_s)
            .enumerate()
            .map(part)
            .collect(),
        in_way_ns: in_way_ns.chain(used_ns).max().unwrap_or(0),
        evidence: evidence
            .chain(node.uses.iter().map(|used| used.evidence))
            .max()
            .unwrap_or(Evidence::Inference),
        seen_ns: seen_ns
            .chain(node.uses.iter().map(|used| used.seen_ns))
            .min()
            .unwrap_or(u64::MAX),
    }
}

/// How long a task goes on that has been at it for so long.
fn future_s(settings: &Settings, usage_s: f64, progress: Option<f64>) -> f64 {
    match progress {
        Some(p) => usage_s * ((1.0 - p) / p).min(FUTURE_TIMES),
        None => usage_s.min(seconds(settings.tuning.unknown_horizon_ns)),
    }
    .min(FUTURE_LIMIT_S)
}

fn role(session: SessionKey, node: &Node) -> Role {
    match &node.waiting {
        None => Role::Root,
        Some(_) if node.is_only_in_line() && !node.in_cycle => Role::Queued,
        Some(waiting) => Role::Victim(waiting.blockers.first().copied().unwrap_or(session)),
    }
}

/// Time in the way on contended instances, seconds; an instance counts once.
fn usage_s<'a>(ledger: &Ledger, session: SessionKey, ways: impl Iterator<Item = &'a InWay>) -> f64 {
    let mut usage_ns = BTreeMap::new();
    for way in ways {
        let place = (way.resource, way.instance);
        let way_ns = match way.kind {
            BlockKind::Granted => ledger.held_ns(place, session, way.since_ns),
            BlockKind::Queued => way_ns(ledger, session, way),
        };
        let most = usage_ns.entry(place).or_insert(way_ns);
        *most = way_ns.max(*most);
    }
    usage_ns.values().map(|usage_ns| seconds(*usage_ns)).sum()
}

/// How long a session has been in this way by itself, nanoseconds. Who is in the way by its place in the line is in it by
/// waiting.
fn way_ns(ledger: &Ledger, session: SessionKey, way: &InWay) -> u64 {
    match way.kind {
        BlockKind::Granted => ledger.own_ns(session, way.since_ns),
        BlockKind::Queued => ledger.moving_ns(way.since_ns),
    }
}

fn progress(ledger: &Ledger, session: SessionKey) -> Option<f64> {
    ledger.sessions.get(&session)?.progress.done()
}

/// What it takes to undo the work of a running task, seconds. Time spent waiting did no work.
fn undo_s(settings: &Settings, ledger: &Ledger, session: SessionKey) -> f64 {
    let class = ledger
        .state(session)
        .and_then(|state| settings.classes.get(usize::from(state.class?)));
    class.map_or(0.0, |class| class.undo * seconds(ledger.worked_ns(session)))
}

/// How long each session will go on being in the way, worked out along the line that it waits in.
struct Futures<'a> {
    settings: &'a Settings,
    ledger: &'a Ledger,
    graph: &'a Graph,
    known: BTreeMap<SessionKey, f64>,
    open: BTreeSet<SessionKey>,
}

impl Futures<'_> {
    /// Depth is bounded by walking an explicit stack: a line can be as long as there are sessions.
    fn of(&mut self, session: SessionKey) -> f64 {
        let mut stack = vec![session];
        while let Some(top) = stack.last().copied() {
            if self.known.contains_key(&top) {
                stack.pop();
                continue;
            }
            let blockers = self
                .graph
                .get(top)
                .and_then(|node| node.waiting.as_ref())
                .map(|waiting| &*waiting.blockers);
            let first_visit = self.open.insert(top);
            if first_visit {
                let unknown = blockers
                    .into_iter()
                    .flatten()
                    .filter(|b| !self.known.contains_key(b));
                // A blocker that is open already closes a circle: it adds nothing to itself.
                stack.extend(unknown.filter(|b| !self.open.contains(b)));
                continue;
            }
            let ahead_s = blockers
                .into_iter()
                .flatten()
                .filter_map(|b| self.known.get(b))
                .fold(0.0, |a, b| f64::max(a, *b));
            let own_s = self.own_s(top);
            self.known.insert(top, own_s.max(ahead_s));
            stack.pop();
        }
        self.known.get(&session).copied().unwrap_or(0.0)
    }

    fn own_s(&self, session: SessionKey) -> f64 {
        let Some(node) = self.graph.get(session) else {
            return 0.0;
        };
        let queued = node.waiting.as_ref().filter(|_| node.waits_in_line());
        if let Some(waiting) = queued {
            let waited_s = seconds(self.ledger.moving_ns(waiting.since_ns));
            return future_s(self.settings, waited_s, None);
        }
        let usage_s = usage_s(
            self.ledger,
            session,
            node.in_way
                .iter()
                .filter(|way| way.kind == BlockKind::Granted),
        );
        future_s(self.settings, usage_s, progress(self.ledger, session))
    }
}

#[cfg(test)]
#[path = "gain_tests.rs"]
mod tests;
