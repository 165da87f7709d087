//! The wait-for graph: sessions that wait or are in the way, in the order of their keys.

use std::collections::HashMap;
use std::ops::Index;
use std::rc::Rc;

use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::input::{BlockKind, Evidence, InstanceKey, ResourceId, SessionKey};

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
    /// In the order of their keys.
    pub(super) blockers: Rc<[SessionKey]>,
}

/// A session that waits or is in the way.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// Where it is in the way of others, by (resource, instance, kind).
    pub(super) in_way: SmallVec<[InWay; 1]>,
    /// Resources of which it uses so much that others lose by it.
    pub(super) uses: Vec<InUse>,
    /// What it waits for.
    pub(super) waiting: Option<Waiting>,
    /// It waits in a circle: nobody in it is the root.
    pub(super) in_cycle: bool,
    /// Lost time that ending it could give back, seconds by resource.
    pub(super) blamed_s: SmallVec<[f64; 4]>,
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

/// The graph. A session has a place: its rank among the keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    keys: Vec<SessionKey>,
    pub(super) nodes: Vec<Node>,
    places: HashMap<SessionKey, usize, FxBuildHasher>,
}

impl Graph {
    /// A graph of these sessions, in whatever order and however often they come, with nothing known of them.
    pub(super) fn of(sessions: impl Iterator<Item = SessionKey>) -> Self {
        let mut keys: Vec<SessionKey> = sessions.collect();
        keys.sort_unstable();
        keys.dedup();
        Self {
            nodes: vec![Node::default(); keys.len()],
            places: keys.iter().copied().zip(0..).collect(),
            keys,
        }
    }

    /// The place of a session that is in the graph.
    pub(super) fn place(&self, session: SessionKey) -> Option<usize> {
        self.places.get(&session).copied()
    }

    /// A session, if it is in the graph.
    pub(super) fn get(&self, session: SessionKey) -> Option<&Node> {
        self.place(session).map(|place| &self.nodes[place])
    }

    /// All, in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&SessionKey, &Node)> {
        self.keys.iter().zip(&self.nodes)
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many sessions wait behind this one, directly or through others.
    pub(super) fn waiting_behind(&self, session: SessionKey) -> usize {
        let Some(root) = self.place(session) else {
            return 0;
        };
        let mut waiters: Vec<Vec<usize>> = vec![Vec::new(); self.len()];
        for (place, node) in self.nodes.iter().enumerate() {
            let blockers = node.waiting.iter().flat_map(|waiting| &*waiting.blockers);
            for blocker in blockers.filter_map(|blocker| self.place(*blocker)) {
                waiters[blocker].push(place);
            }
        }
        let mut behind = vec![false; self.len()];
        let mut open = vec![root];
        while let Some(next) = open.pop() {
            for waiter in &waiters[next] {
                if !std::mem::replace(&mut behind[*waiter], true) {
                    open.push(*waiter);
                }
            }
        }
        behind[root] = false;
        behind.into_iter().filter(|is_behind| *is_behind).count()
    }
}

impl Index<&SessionKey> for Graph {
    type Output = Node;

    fn index(&self, session: &SessionKey) -> &Node {
        self.get(*session)
            .expect("whoever indexes knows that it is there")
    }
}
