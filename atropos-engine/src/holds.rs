//! Holds known from events, and how they end.
//!
//! A hold is written down twice: at its session, where most have few, and at its instance, where it is looked for when
//! somebody waits.

use smallvec::SmallVec;

use super::input::{Evidence, InstanceKey, ResourceId, SessionKey};
use super::ledger::{Ledger, List, OpenWait};
use super::table::Table;

/// A hold known from events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) resource: ResourceId,
    pub(super) instance: InstanceKey,
    pub(super) count: u32,
    pub(super) mode: u32,
    pub(super) since_ns: u64,
    pub(super) evidence: Evidence,
}

/// What one session holds, by resource and instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Holds(SmallVec<[Hold; 4]>);

impl Holds {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// None.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The hold of an instance.
    pub(super) fn get(&self, resource: ResourceId, instance: InstanceKey) -> Option<&Hold> {
        self.find(resource, instance).ok().map(|at| &self.0[at])
    }

    /// All of them, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Hold> {
        self.0.iter_mut()
    }

    fn find(&self, resource: ResourceId, instance: InstanceKey) -> Result<usize, usize> {
        self.0
            .binary_search_by_key(&(resource, instance), |hold| (hold.resource, hold.instance))
    }
}

/// Who holds each instance, by session.
pub(super) type Holders = Table<(ResourceId, InstanceKey), SmallVec<[SessionKey; 4]>>;

fn remove_holder(holders: &mut Holders, hold: &Hold, session: SessionKey) {
    let key = (hold.resource, hold.instance);
    let Some(sessions) = holders.get_mut(&key) else {
        return;
    };
    if let Ok(at) = sessions.binary_search(&session) {
        sessions.remove(at);
    }
    // Where many held at once many will again: their room is kept until the next tick.
    if sessions.is_empty() && !sessions.spilled() {
        holders.discard(&key);
    }
}

/// Takes a session out of the way of waits; what they share they go on sharing.
struct Without {
    session: SessionKey,
    /// The latest list that it was in, and what is left of it.
    latest: Option<(List, List)>,
}

impl Without {
    fn new(session: SessionKey) -> Self {
        Self {
            session,
            latest: None,
        }
    }

    fn unblock(&mut self, wait: &mut OpenWait) {
        let session = self.session;
        let Some(listed) = &mut wait.listed else {
            return;
        };
        if let Some(alone) = List::get_mut(listed) {
            alone.retain(|blocker| blocker.session != session);
            return;
        }
        let known = self.latest.as_ref();
        if let Some((_, left)) = known.filter(|(before, _)| List::ptr_eq(before, listed)) {
            *listed = left.clone();
        } else if listed.iter().any(|blocker| blocker.session == session) {
            let others = listed.iter().filter(|blocker| blocker.session != session);
            let left = List::new(others.copied().collect());
            self.latest = Some((std::mem::replace(listed, left.clone()), left));
        }
    }
}

impl Ledger {
    pub(super) fn acquire(
        &mut self,
        session: SessionKey,
        resource: ResourceId,
        instance: InstanceKey,
        mode: u32,
        at_ns: u64,
    ) {
        if !self.knows(resource) {
            return;
        }
        let known = self.sessions.entry(session).or_default();
        if known
            .orphan_release
            .is_some_and(|(r, i, end_ns)| (r, i) == (resource, instance) && at_ns <= end_ns)
        {
            // Its release came first: the hold is over.
            known.orphan_release = None;
            return;
        }
        match known.holds.find(resource, instance) {
            Ok(at) => {
                let hold = &mut known.holds.0[at];
                hold.count = hold.count.saturating_add(1);
                hold.mode = hold.mode.max(mode);
                hold.since_ns = hold.since_ns.min(at_ns);
            }
            Err(at) => {
                let hold = Hold {
                    resource,
                    instance,
                    count: 1,
                    mode,
                    since_ns: at_ns,
                    evidence: Evidence::Event,
                };
                known.holds.0.insert(at, hold);
                let sessions = self.holders.entry((resource, instance)).or_default();
                if let Err(at) = sessions.binary_search(&session) {
                    sessions.insert(at, session);
                }
            }
        }
    }

    pub(super) fn release(
        &mut self,
        session: SessionKey,
        resource: ResourceId,
        instance: InstanceKey,
        at_ns: u64,
    ) {
        let known = self.sessions.entry(session).or_default();
        if let Ok(at) = known.holds.find(resource, instance) {
            let hold = &mut known.holds.0[at];
            hold.count = hold.count.saturating_sub(1);
            if hold.count > 0 {
                return;
            }
            let hold = known.holds.0.remove(at);
            remove_holder(&mut self.holders, &hold, session);
        } else {
            known.orphan_release = Some((resource, instance, at_ns));
        }
        self.unblock_instance(session, resource, instance);
    }

    pub(super) fn release_all(&mut self, session: SessionKey, resource: Option<ResourceId>) {
        if let Some(known) = self.sessions.get_mut(&session) {
            let holders = &mut self.holders;
            known.holds.0.retain(|hold| {
                let stays = resource.is_some_and(|resource| hold.resource != resource);
                if !stays {
                    remove_holder(holders, hold, session);
                }
                stays
            });
        }
        if self.blockers.contains(&session) {
            let mut without = Without::new(session);
            let of_resource = |wait: &&mut OpenWait| resource.is_none_or(|of| wait.resource == of);
            for wait in self.waits.values_mut().filter(of_resource) {
                without.unblock(wait);
            }
        }
    }

    /// Takes a session that released an instance out of the way of waits for it that a snapshot listed before.
    fn unblock_instance(
        &mut self,
        session: SessionKey,
        resource: ResourceId,
        instance: InstanceKey,
    ) {
        if !self.blockers.contains(&session) {
            return;
        }
        let key = (resource, instance);
        let first = self.listed.partition_point(|(listed, _)| *listed < key);
        let mut without = Without::new(session);
        for (_, waiter) in self.listed[first..]
            .iter()
            .take_while(|(listed, _)| *listed == key)
        {
            let wait = self.waits.get_mut(waiter);
            if let Some(wait) = wait.filter(|wait| (wait.resource, wait.instance) == key) {
                without.unblock(wait);
            }
        }
    }

    /// Writes down anew which waits snapshots have listed, by instance, and whom they named. What ends stays in it until
    /// the next time.
    pub(super) fn index_listed(&mut self) {
        self.listed.clear();
        self.blockers.clear();
        let mut latest: Option<&List> = None;
        for wait in self.waits.iter_any().map(|(_, wait)| wait) {
            let Some(listed) = &wait.listed else {
                continue;
            };
            self.listed
                .push(((wait.resource, wait.instance), wait.waiter));
            if !latest.is_some_and(|latest| List::ptr_eq(latest, listed)) {
                self.blockers
                    .extend(listed.iter().map(|blocker| blocker.session));
            }
            latest = Some(listed);
        }
        self.listed.sort_unstable();
    }

    /// Ends a session and everything that it did.
    pub(super) fn end_session(&mut self, session: SessionKey, at_ns: u64) {
        self.close_wait(session, at_ns);
        self.release_all(session, None);
        self.sessions.discard(&session);
    }
}
