//! What ending a task would free, in seconds.
//!
//! The gain of a resource is the future usage of what others wait for, less the cost of undoing the task's work, times
//! the share of the resource's lost time that the task is to blame for. Future usage is usage x (1 - p) / p with progress
//! p; where no progress is known, as long again as so far, up to a horizon. A queued request blocks for at least as long
//! as those that it queues behind.

use std::collections::{BTreeMap, BTreeSet};

use super::blame::{Graph, InWay, Node};
use super::input::{BlockKind, Evidence, ResourceId, SessionKey};
use super::ledger::Ledger;
use super::settings::Settings;
use super::window::seconds;

/// No estimate goes beyond this, however small the progress: ten minutes. Beyond it all culprits are alike.
const FUTURE_LIMIT_S: f64 = 600.0;

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
    /// Since when at least it is in somebody's way.
    pub(super) in_way_since_ns: u64,
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
    let lost_s: Vec<f64> = (0..settings.resources.len())
        .map(|r| seconds(ledger.lost_ns(ResourceId(r as u16))))
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
        let usage_s = usage_s(
            ledger,
            node.in_way.iter().filter(|way| way.resource == resource),
        );
        let gain_s = (remaining_s - undo_s).max(0.0) * blame;
        Part {
            resource,
            usage_s,
            progress,
            blame,
            undo_s,
            gain_s,
        }
    };
    let ways = || node.in_way.iter();
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
        in_way_since_ns: ways()
            .map(|way| way.since_ns)
            .min()
            .unwrap_or(ledger.now_ns),
        evidence: ways()
            .map(|way| way.evidence)
            .max()
            .unwrap_or(Evidence::Inference),
        seen_ns: ways().map(|way| way.seen_ns).min().unwrap_or(u64::MAX),
    }
}

fn role(session: SessionKey, node: &Node) -> Role {
    match &node.waiting {
        None => Role::Root,
        Some(_) if node.waits_in_line() && !node.in_cycle => Role::Queued,
        Some(waiting) => Role::Victim(waiting.blockers.first().copied().unwrap_or(session)),
    }
}

/// Time in the way on contended instances, seconds; an instance counts once.
fn usage_s<'a>(ledger: &Ledger, ways: impl Iterator<Item = &'a InWay>) -> f64 {
    let mut since_ns = BTreeMap::new();
    for way in ways {
        let first = since_ns
            .entry((way.resource, way.instance))
            .or_insert(way.since_ns);
        *first = way.since_ns.min(*first);
    }
    since_ns
        .values()
        .map(|since_ns| seconds(ledger.now_ns.saturating_sub(*since_ns)))
        .sum()
}

fn progress(ledger: &Ledger, session: SessionKey) -> Option<f64> {
    let state = ledger.sessions.get(&session)?.state.as_ref()?;
    // Zero says that the target does not tell, rather than that the work will never end.
    state.progress.filter(|p| *p > 0.0 && *p <= 1.0)
}

/// What it takes to undo the work of a running task, seconds. Time spent waiting did no work.
fn undo_s(settings: &Settings, ledger: &Ledger, session: SessionKey) -> f64 {
    let class = ledger
        .sessions
        .get(&session)
        .and_then(|known| known.state.as_ref())
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
                .get(&top)
                .and_then(|node| node.waiting.as_ref())
                .map(|waiting| &waiting.blockers);
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
        let Some(node) = self.graph.get(&session) else {
            return 0.0;
        };
        let horizon_s = seconds(self.settings.tuning.unknown_horizon_ns);
        let queued = node.waiting.as_ref().filter(|_| node.waits_in_line());
        if let Some(waiting) = queued {
            return seconds(self.ledger.now_ns.saturating_sub(waiting.since_ns)).min(horizon_s);
        }
        let usage_s = usage_s(
            self.ledger,
            node.in_way
                .iter()
                .filter(|way| way.kind == BlockKind::Granted),
        );
        match progress(self.ledger, session) {
            Some(p) => (usage_s * (1.0 - p) / p).min(FUTURE_LIMIT_S),
            None => usage_s.min(horizon_s),
        }
    }
}

#[cfg(test)]
#[path = "gain_tests.rs"]
mod tests;
