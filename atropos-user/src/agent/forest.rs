//! A view as trees: who keeps whom waiting, from those who wait for nobody down.

use std::collections::{BTreeMap, BTreeSet};

use super::watch::{View, Watcher};
use super::why::{InTheWay, Node, WaitsFor};
use crate::engine::input::{Activity, BlockKind, SessionState, Wait};

/// The view as trees.
pub(super) struct Forest<'a> {
    sessions: BTreeMap<u64, &'a SessionState>,
    waits: BTreeMap<u64, (&'a Wait, WaitsFor)>,
    below: BTreeMap<u64, BTreeSet<u64>>,
    ways: BTreeMap<u64, BTreeSet<InTheWay>>,
    now_ns: u64,
}

impl<'a> Forest<'a> {
    pub(super) fn new(watcher: &Watcher, view: &'a View, now_ns: u64) -> Self {
        let mut forest = Self {
            sessions: view
                .sessions
                .iter()
                .map(|state| (state.session.0, state))
                .collect(),
            waits: BTreeMap::new(),
            below: BTreeMap::new(),
            ways: BTreeMap::new(),
            now_ns,
        };
        for snapshot in &view.snapshots {
            // What nobody can be told to hold is no part of a tree.
            for wait in snapshot
                .waits
                .iter()
                .filter(|wait| !wait.blockers.is_empty())
            {
                let instance = watcher.instance_name(snapshot.resource, wait.instance);
                let mode = |mode| watcher.mode_name(snapshot.resource, wait.instance, mode);
                let for_s = now_ns.saturating_sub(wait.since_ns) as f64 / 1e9;
                for blocker in &wait.blockers {
                    let way = InTheWay {
                        instance: instance.clone(),
                        mode: mode(blocker.mode),
                        kind: blocker.kind,
                    };
                    forest
                        .ways
                        .entry(blocker.session.0)
                        .or_default()
                        .insert(way);
                    forest
                        .below
                        .entry(blocker.session.0)
                        .or_default()
                        .insert(wait.waiter.0);
                }
                let waits_for = WaitsFor {
                    mode: mode(wait.mode),
                    instance,
                    for_s,
                };
                forest.waits.insert(wait.waiter.0, (wait, waits_for));
            }
        }
        forest
    }

    /// Trees under those that wait for nobody; members of a cycle stand as roots of their own.
    pub(super) fn roots(&self) -> Vec<Node> {
        let mut placed = BTreeSet::new();
        let free = self
            .below
            .keys()
            .filter(|key| !self.waits.contains_key(key));
        let mut roots: Vec<Node> = free.map(|key| self.node(*key, None, &mut placed)).collect();
        for key in self.waits.keys() {
            if !placed.contains(key) {
                roots.push(self.node(*key, None, &mut placed));
            }
        }
        roots.sort_by_key(|node| std::cmp::Reverse(node.waiters_count));
        roots
    }

    /// A session with those below it. Each session stands once: under whoever is queued ahead of it, else under its
    /// first holder; its other blockers are named beside it.
    fn node(&self, key: u64, parent: Option<u64>, placed: &mut BTreeSet<u64>) -> Node {
        placed.insert(key);
        let state = self.sessions.get(&key);
        let mut children = Vec::new();
        for child in self.below.get(&key).into_iter().flatten() {
            if !placed.contains(child) && self.parent_of(*child) == Some(key) {
                children.push(self.node(*child, Some(key), placed));
            }
        }
        children.sort_by_key(|node| std::cmp::Reverse(node.waiters_count));
        let blockers = self.waits.get(&key).map(|(wait, _)| &wait.blockers);
        let also = blockers
            .into_iter()
            .flatten()
            .map(|blocker| blocker.session.0)
            .filter(|other| Some(*other) != parent);
        let also_behind: BTreeSet<u64> = also.map(|other| self.id(other)).collect();
        Node {
            id: self.id(key),
            thread: state.map_or(0, |state| state.thread),
            principal: state
                .map(|state| state.principal.clone())
                .unwrap_or_default(),
            statement: state.map(|state| state.digest.clone()).unwrap_or_default(),
            doing: state
                .map(|state| doing(state, self.now_ns))
                .unwrap_or_default(),
            processor: None,
            waits_for: self.waits.get(&key).map(|(_, waits_for)| waits_for.clone()),
            in_the_way: self.ways.get(&key).into_iter().flatten().cloned().collect(),
            waiters_count: self.freed(key).len(),
            also_behind: also_behind.into_iter().collect(),
            children,
        }
    }

    fn parent_of(&self, key: u64) -> Option<u64> {
        let (wait, _) = self.waits.get(&key)?;
        let queued = wait
            .blockers
            .iter()
            .find(|blocker| blocker.kind == BlockKind::Queued);
        queued
            .or_else(|| wait.blockers.first())
            .map(|blocker| blocker.session.0)
    }

    /// Sessions below one, at any depth.
    pub(super) fn freed(&self, key: u64) -> BTreeSet<u64> {
        let mut seen = BTreeSet::new();
        let mut open = vec![key];
        while let Some(next) = open.pop() {
            for child in self.below.get(&next).into_iter().flatten() {
                if *child != key && seen.insert(*child) {
                    open.push(*child);
                }
            }
        }
        seen
    }

    fn id(&self, key: u64) -> u64 {
        self.sessions.get(&key).map_or(0, |state| state.id)
    }
}

/// "running for 1.2 s".
pub(super) fn doing(state: &SessionState, now_ns: u64) -> String {
    let seconds = now_ns.saturating_sub(state.since_ns) as f64 / 1e9;
    let what = match state.activity {
        Activity::Busy => "running",
        Activity::IdleInTransaction => "idle in a transaction",
        Activity::IdleWithLocks => "idle, holding locks,",
    };
    if state.since_ns == 0 {
        what.trim_end_matches(',').to_owned()
    } else {
        format!("{what} for {seconds:.1} s")
    }
}
