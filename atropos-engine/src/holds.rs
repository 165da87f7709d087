//! Holds known from events, and how they end.

use super::input::{Evidence, InstanceKey, ResourceId, SessionKey};
use super::ledger::{Hold, Ledger};

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
        let hold = self
            .holds
            .entry((session, resource, instance))
            .or_insert(Hold {
                count: 0,
                mode,
                since_ns: at_ns,
                evidence: Evidence::Event,
            });
        hold.count = hold.count.saturating_add(1);
        hold.mode = hold.mode.max(mode);
        hold.since_ns = hold.since_ns.min(at_ns);
        self.holders.insert((resource, instance, session));
    }

    pub(super) fn release(
        &mut self,
        session: SessionKey,
        resource: ResourceId,
        instance: InstanceKey,
        at_ns: u64,
    ) {
        let key = (session, resource, instance);
        if !self.holds.contains_key(&key) {
            self.sessions.entry(session).or_default().orphan_release =
                Some((resource, instance, at_ns));
        }
        let over = self.holds.get_mut(&key).is_none_or(|hold| {
            hold.count = hold.count.saturating_sub(1);
            hold.count == 0
        });
        if over {
            self.holds.remove(&key);
            self.holders.remove(&(resource, instance, session));
            self.unblock(session, Some((resource, Some(instance))));
        }
    }

    pub(super) fn release_all(&mut self, session: SessionKey, resource: Option<ResourceId>) {
        let low = (session, resource.unwrap_or(ResourceId(0)), InstanceKey(0));
        let high = (
            session,
            resource.unwrap_or(ResourceId(u16::MAX)),
            InstanceKey(u64::MAX),
        );
        let gone: Vec<_> = self.holds.range(low..=high).map(|(key, _)| *key).collect();
        for (session, resource, instance) in gone {
            self.holds.remove(&(session, resource, instance));
            self.holders.remove(&(resource, instance, session));
        }
        self.unblock(session, resource.map(|resource| (resource, None)));
    }

    /// Takes a session that released out of the way of waits that a snapshot listed before.
    fn unblock(&mut self, session: SessionKey, what: Option<(ResourceId, Option<InstanceKey>)>) {
        for wait in self.waits.values_mut() {
            let matches = what.is_none_or(|(resource, instance)| {
                wait.resource == resource
                    && instance.is_none_or(|instance| wait.instance == instance)
            });
            if let Some(listed) = wait.listed.as_mut().filter(|_| matches) {
                listed.retain(|blocker| blocker.session != session);
            }
        }
    }

    /// Ends a session and everything that it did.
    pub(super) fn end_session(&mut self, session: SessionKey, at_ns: u64) {
        self.close_wait(session, at_ns);
        self.release_all(session, None);
        self.sessions.remove(&session);
    }
}
