//! Snapshots into the ledger, and the questions that are asked of it.

use std::collections::{BTreeSet, HashMap};

use rustc_hash::FxBuildHasher;

use super::brief::Brief;
use super::input::{
    Activity, BlockKind, Blocker, Evidence, InstanceKey, ResourceId, SessionKey, SessionState,
    Snapshot, Wait,
};
use super::ledger::{Ledger, List, OpenWait, Session};
use super::window::within_ns;

/// Somebody in the way of a wait, with everything that the ledger knows about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) session: SessionKey,
    pub(super) kind: BlockKind,
    pub(super) mode: u32,
    /// Since when at least it has been in the way; not before the end of its own wait for the same instance.
    pub(super) since_ns: u64,
    pub(super) evidence: Evidence,
}

/// Lists of blockers in a snapshot, by instance: in front of a pool everybody's is the same, and is kept once.
#[derive(Debug, Default)]
struct Lists(HashMap<InstanceKey, List, FxBuildHasher>);

impl Lists {
    /// The list of a wait, shared with one of the same instance that was listed before or with its `former` self.
    fn list(&mut self, wait: &Wait, former: Option<List>) -> List {
        let is_same = |list: &List| **list == wait.blockers;
        let mut known = self
            .0
            .get(&wait.instance)
            .cloned()
            .into_iter()
            .chain(former);
        let list = known
            .find(is_same)
            .unwrap_or_else(|| List::new(wait.blockers.clone()));
        self.0.insert(wait.instance, list.clone());
        list
    }
}

impl Ledger {
    /// Takes a snapshot of one resource in.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot) {
        self.advance(snapshot.at_ns);
        let resource = snapshot.resource;
        if !self.knows(resource) {
            return;
        }
        self.partial[usize::from(resource.0)] = !snapshot.complete;
        for name in &snapshot.instances {
            self.names
                .insert((resource, name.instance), name.name.clone());
        }
        let mut listed = BTreeSet::new();
        let mut lists = Lists::default();
        for wait in &snapshot.waits {
            listed.insert(wait.waiter);
            self.wait_seen(wait, snapshot, &mut lists);
        }
        if snapshot.complete {
            let over: Vec<(SessionKey, u64)> = self
                .waits
                .values()
                .filter(|wait| wait.resource == resource && wait.since_ns <= snapshot.at_ns)
                .filter(|wait| {
                    wait.last_begin_ns <= snapshot.at_ns && !listed.contains(&wait.waiter)
                })
                .map(|wait| (wait.waiter, wait.seen_ns))
                .collect();
            for (waiter, seen_ns) in over {
                self.close_wait(waiter, seen_ns);
            }
        }
        self.index_listed();
    }

    fn wait_seen(&mut self, wait: &Wait, snapshot: &Snapshot, lists: &mut Lists) {
        let (at_ns, resource) = (snapshot.at_ns, snapshot.resource);
        let ended_ns = self.last_wait_end_ns(wait.waiter);
        if ended_ns > at_ns {
            // An event from after the snapshot's moment has already ended it.
            return;
        }
        let mut since_ns = wait.since_ns.min(at_ns).max(ended_ns);
        let mut last_begin_ns = 0;
        let mut same = None;
        if let Some(open) = self.waits.get(&wait.waiter) {
            let same_instance = open.listed.is_none() || open.instance == wait.instance;
            if open.resource == resource && same_instance {
                since_ns = since_ns.min(open.since_ns);
                last_begin_ns = open.last_begin_ns;
                same = Some((open.number, open.listed.clone()));
            } else if open.seen_ns > at_ns {
                return;
            } else {
                let seen_ns = open.seen_ns;
                self.close_wait(wait.waiter, seen_ns);
                since_ns = since_ns.max(seen_ns);
            }
        }
        let (number, former) = same.unzip();
        let open = OpenWait {
            number: 0,
            waiter: wait.waiter,
            resource,
            instance: wait.instance,
            since_ns,
            seen_ns: at_ns,
            last_begin_ns,
            evidence: snapshot.evidence,
            listed: Some(lists.list(wait, former.flatten())),
        };
        match number {
            Some(number) => {
                self.waits.insert(wait.waiter, OpenWait { number, ..open });
            }
            None => self.open_wait(open),
        }
    }

    fn last_wait_end_ns(&self, session: SessionKey) -> u64 {
        self.sessions
            .get(&session)
            .map_or(0, Session::last_wait_end_ns)
    }

    /// Who is in the way of a wait: as the latest snapshot told, else the holders that events told.
    pub(super) fn edges(&self, wait: &OpenWait) -> impl Iterator<Item = Edge> {
        let listed = wait.listed.as_deref().map_or(&[][..], Vec::as_slice);
        let told = wait.listed.is_none().then(|| self.holder_edges(wait));
        self.listed_edges(wait, listed)
            .chain(told.into_iter().flatten())
    }

    fn listed_edges(&self, wait: &OpenWait, listed: &[Blocker]) -> impl Iterator<Item = Edge> {
        let (resource, instance) = (wait.resource, wait.instance);
        listed
            .iter()
            .filter(|blocker| blocker.session != wait.waiter)
            .map(move |blocker| {
                let held_from_ns = match blocker.kind {
                    BlockKind::Granted => self.waited_until_ns(blocker.session, resource, instance),
                    BlockKind::Queued => 0,
                };
                Edge {
                    session: blocker.session,
                    kind: blocker.kind,
                    mode: blocker.mode,
                    since_ns: blocker.since_ns.max(held_from_ns).min(self.now_ns),
                    evidence: wait.evidence,
                }
            })
    }

    fn holder_edges(&self, wait: &OpenWait) -> impl Iterator<Item = Edge> {
        let (resource, instance) = (wait.resource, wait.instance);
        let sessions = self.holders.get(&(resource, instance));
        sessions
            .into_iter()
            .flatten()
            .filter(|session| **session != wait.waiter)
            .filter_map(move |session| {
                let hold = self.sessions.get(session)?.holds.get(resource, instance)?;
                Some(Edge {
                    session: *session,
                    kind: BlockKind::Granted,
                    mode: hold.mode,
                    since_ns: hold.since_ns,
                    evidence: hold.evidence.max(wait.evidence),
                })
            })
    }

    /// Open waits of everybody but the agent.
    pub(super) fn foreign_waits(&self) -> impl Iterator<Item = &OpenWait> {
        self.waits.values().filter(|wait| !self.is_own(wait.waiter))
    }

    /// It is the agent's own session.
    pub(super) fn is_own(&self, session: SessionKey) -> bool {
        self.sessions.brief(&session).is_some_and(Brief::is_own)
    }

    /// Somebody has asked the target to cancel what the session runs, as events told.
    pub(super) fn is_killed(&self, session: SessionKey) -> bool {
        let brief = self.sessions.brief(&session);
        brief.is_some_and(|brief| brief.killed_ns.is_some())
    }

    /// The resource cannot be seen at present.
    pub(super) fn is_blind(&self, resource: ResourceId) -> bool {
        self.blind
            .get(usize::from(resource.0))
            .is_none_or(Option::is_some)
    }

    /// Time lost to a resource within the window, nanoseconds.
    pub(super) fn lost_ns(&self, resource: ResourceId) -> u64 {
        let past_ns = self
            .past
            .get(usize::from(resource.0))
            .map_or(0, |past| past.sum_ns(self.now_ns));
        let open_ns = self.open_lost_ns(resource);
        let used_ns = self
            .accounts
            .get(usize::from(resource.0))
            .map_or(0, |account| account.lost_ns(self.now_ns));
        past_ns.saturating_add(open_ns).saturating_add(used_ns)
    }

    /// ... by those who wait at present.
    pub(super) fn open_lost_ns(&self, resource: ResourceId) -> u64 {
        self.waits
            .values()
            .filter(|wait| wait.resource == resource && !self.is_own(wait.waiter))
            .map(|wait| within_ns(wait.since_ns, self.now_ns, self.window_ns))
            .fold(0, u64::saturating_add)
    }

    /// What was last told of a session, if anything was.
    pub(super) fn state(&self, session: SessionKey) -> Option<&SessionState> {
        self.sessions.get(&session)?.state.as_ref()
    }

    /// How long a session's current request has waited so far, nanoseconds.
    pub(super) fn waited_ns(&self, session: SessionKey) -> u64 {
        let over_ns = self
            .sessions
            .brief(&session)
            .map_or(0, |brief| brief.waited_ns);
        let open_ns = self
            .waits
            .get(&session)
            .map_or(0, |wait| self.now_ns.saturating_sub(wait.since_ns));
        over_ns.saturating_add(open_ns)
    }

    /// How long a session's current request has run without waiting, nanoseconds; 0 if it runs none.
    pub(super) fn worked_ns(&self, session: SessionKey) -> u64 {
        self.state(session)
            .filter(|state| state.activity == Activity::Busy)
            .map_or(0, |state| self.now_ns.saturating_sub(state.since_ns))
            .saturating_sub(self.waited_ns(session))
    }

    /// The name of an instance for a person.
    pub(super) fn name(&self, resource: ResourceId, instance: InstanceKey) -> String {
        self.names
            .get(&(resource, instance))
            .cloned()
            .unwrap_or_else(|| format!("instance {:#x}", instance.0))
    }
}
