//! Open waits and holds, out of recorded snapshots and events.

use std::collections::{BTreeMap, BTreeSet};

use atropos_engine::input::{
    BlockKind, Event, EventKind, InstanceKey, ResourceId, SessionKey, Snapshot,
};

/// A wait in progress.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) resource: ResourceId,
    pub(super) instance: InstanceKey,
    pub(super) mode: u32,
    pub(super) since_ns: u64,
    /// Who is in its way, if a snapshot told.
    listed: Option<Vec<Held>>,
}

/// Somebody in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) session: SessionKey,
    pub(super) queued: bool,
    pub(super) mode: u32,
    pub(super) since_ns: u64,
}

/// A hold that events told of.
#[derive(Clone, Copy, Debug)]
struct Hold {
    count: u32,
    mode: u32,
    since_ns: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Waits {
    open: BTreeMap<SessionKey, Open>,
    holds: BTreeMap<(ResourceId, InstanceKey), BTreeMap<SessionKey, Hold>>,
}

impl Waits {
    /// Waits in progress, by session.
    pub(super) fn open(&self) -> impl Iterator<Item = (SessionKey, &Open)> {
        self.open.iter().map(|(session, open)| (*session, open))
    }

    /// Whether a session waits.
    pub(super) fn is_waiting(&self, session: SessionKey) -> bool {
        self.open.contains_key(&session)
    }

    /// Who is in the way of a wait: as a snapshot lists them, else whoever holds the instance.
    pub(super) fn blockers(&self, waiter: SessionKey, wait: &Open) -> Vec<Held> {
        if let Some(listed) = &wait.listed {
            return listed.clone();
        }
        let holders = self.holds.get(&(wait.resource, wait.instance));
        let others = holders
            .into_iter()
            .flatten()
            .filter(|(session, _)| **session != waiter);
        others
            .map(|(session, hold)| Held {
                session: *session,
                queued: false,
                mode: hold.mode,
                since_ns: hold.since_ns,
            })
            .collect()
    }

    /// The session waits for nothing any more.
    pub(super) fn end(&mut self, session: SessionKey) {
        self.open.remove(&session);
    }

    /// Events were lost: what they told may be over.
    pub(super) fn lost(&mut self) {
        self.holds.clear();
        self.open.retain(|_, open| open.listed.is_some());
    }

    /// A snapshot of one resource: where it is complete, whoever is not in it does not wait.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot) {
        let listed: BTreeSet<SessionKey> = snapshot.waits.iter().map(|wait| wait.waiter).collect();
        if snapshot.complete {
            self.open.retain(|session, open| {
                open.resource != snapshot.resource || listed.contains(session)
            });
        }
        for wait in &snapshot.waits {
            let blockers = wait.blockers.iter().map(|blocker| Held {
                session: blocker.session,
                queued: blocker.kind == BlockKind::Queued,
                mode: blocker.mode,
                since_ns: blocker.since_ns,
            });
            let open = Open {
                resource: snapshot.resource,
                instance: wait.instance,
                mode: wait.mode,
                since_ns: wait.since_ns,
                listed: Some(blockers.collect()),
            };
            self.open.insert(wait.waiter, open);
        }
    }

    /// A transition.
    pub(super) fn event(&mut self, event: &Event) {
        let session = event.session;
        match event.kind {
            EventKind::WaitBegin { resource, instance } => {
                self.open.entry(session).or_insert(Open {
                    resource,
                    instance,
                    mode: 0,
                    since_ns: event.at_ns,
                    listed: None,
                });
            }
            EventKind::WaitEnd { .. } | EventKind::RequestEnd => self.end(session),
            EventKind::SessionEnd => {
                self.end(session);
                self.let_go(|_, holder| holder == session);
            }
            EventKind::Acquire {
                resource,
                instance,
                mode,
            } => {
                let holders = self.holds.entry((resource, instance)).or_default();
                let hold = holders.entry(session).or_insert(Hold {
                    count: 0,
                    mode,
                    since_ns: event.at_ns,
                });
                hold.count += 1;
            }
            EventKind::Release { resource, instance } => self.release(session, resource, instance),
            EventKind::ReleaseAll { resource } => {
                self.let_go(|(held, _), holder| held == resource && holder == session);
            }
            EventKind::RequestBegin | EventKind::Killed => {}
        }
    }

    fn release(&mut self, session: SessionKey, resource: ResourceId, instance: InstanceKey) {
        let key = (resource, instance);
        let Some(holders) = self.holds.get_mut(&key) else {
            return;
        };
        if let Some(hold) = holders.get_mut(&session) {
            hold.count -= 1;
            if hold.count == 0 {
                holders.remove(&session);
            }
        }
        if holders.is_empty() {
            self.holds.remove(&key);
        }
    }

    fn let_go(&mut self, which: impl Fn((ResourceId, InstanceKey), SessionKey) -> bool) {
        self.holds.retain(|key, holders| {
            holders.retain(|session, _| !which(*key, *session));
            !holders.is_empty()
        });
    }
}
