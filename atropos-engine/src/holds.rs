//! Holds known from events, and how they end.
//!
//! A hold is written down twice: at its session, where most have few, and at its instance, where it is looked for when
//! somebody waits.

use smallvec::SmallVec;

use super::input::{Evidence, InstanceKey, ResourceId, SessionKey};
use super::ledger::Ledger;
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
        holders.remove(&key);
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
        let of_resource = |of| resource.is_none_or(|resource| of == resource);
        for wait in self.waits.values_mut() {
            if let Some(listed) = wait.listed.as_mut().filter(|_| of_resource(wait.resource)) {
                listed.retain(|blocker| blocker.session != session);
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
        let key = (resource, instance);
        let first = self.listed.partition_point(|(listed, _)| *listed < key);
        for (_, waiter) in self.listed[first..]
            .iter()
            .take_while(|(listed, _)| *listed == key)
        {
            let wait = self.waits.get_mut(waiter);
            let same = wait.filter(|wait| (wait.resource, wait.instance) == key);
            if let Some(listed) = same.and_then(|wait| wait.listed.as_mut()) {
                listed.retain(|blocker| blocker.session != session);
            }
        }
    }

    /// Writes down anew which waits snapshots have listed, by instance. A wait that ends stays in it until the next time.
    pub(super) fn index_listed(&mut self) {
        self.listed.clear();
        let listed = self.waits.values().filter(|wait| wait.listed.is_some());
        self.listed
            .extend(listed.map(|wait| ((wait.resource, wait.instance), wait.waiter)));
        self.listed.sort_unstable();
    }

    /// Ends a session and everything that it did.
    pub(super) fn end_session(&mut self, session: SessionKey, at_ns: u64) {
        self.close_wait(session, at_ns);
        self.release_all(session, None);
        self.sessions.remove(&session);
    }
}
