//! The server's locks: who holds, who queues, and the walk that shows it.

use atropos_engine::input::{
    BlockKind, Blocker, EventKind, InstanceKey, InstanceName, SessionKey, Snapshot, Wait,
};

use super::world::LOCKS;
use super::{EXCLUSIVE, MS, Sense, World};

impl World {
    /// A session holds an instance, whoever else does.
    pub fn hold(&mut self, key: u64, instance: u64, mode: u32) {
        let now_ms = self.now_ms;
        self.locks
            .entry(instance)
            .or_default()
            .granted
            .push((key, mode, now_ms));
        self.acquired(key, instance, mode);
    }

    /// A session wants an instance; true if it has it at once.
    pub fn lock(&mut self, key: u64, instance: u64, mode: u32) -> bool {
        let now_ms = self.now_ms;
        let lock = self.locks.entry(instance).or_default();
        let conflicts =
            |entry: &(u64, u32, u64)| entry.0 != key && (entry.1 == EXCLUSIVE || mode == EXCLUSIVE);
        let waits = lock.granted.iter().any(conflicts) || lock.queue.iter().any(conflicts);
        if waits {
            lock.queue.push((key, mode, now_ms));
            let kind = EventKind::WaitBegin {
                resource: LOCKS,
                instance: self.event_instance(key, instance),
            };
            self.event(key, kind);
        } else {
            lock.granted.push((key, mode, now_ms));
            self.acquired(key, instance, mode);
        }
        !waits
    }

    /// In a walked target the event names the session's own context, not the lock.
    fn event_instance(&self, key: u64, instance: u64) -> InstanceKey {
        match self.sense {
            Sense::Walk => InstanceKey(0xc000_0000 + key),
            Sense::Events => InstanceKey(instance),
        }
    }

    fn acquired(&mut self, key: u64, instance: u64, mode: u32) {
        if self.sense == Sense::Events {
            self.event(
                key,
                EventKind::Acquire {
                    resource: LOCKS,
                    instance: InstanceKey(instance),
                    mode,
                },
            );
        }
    }

    pub(super) fn unlock(&mut self, key: u64, instance: u64) {
        let Some(lock) = self.locks.get_mut(&instance) else {
            return;
        };
        let held = lock.granted.iter().any(|entry| entry.0 == key);
        let queued = lock.queue.iter().any(|entry| entry.0 == key);
        lock.granted.retain(|entry| entry.0 != key);
        lock.queue.retain(|entry| entry.0 != key);
        if queued {
            let kind = EventKind::WaitEnd {
                resource: LOCKS,
                instance: self.event_instance(key, instance),
            };
            self.event(key, kind);
        }
        if held && self.sense == Sense::Events {
            self.event(
                key,
                EventKind::Release {
                    resource: LOCKS,
                    instance: InstanceKey(instance),
                },
            );
        }
        self.grant(instance);
    }

    fn grant(&mut self, instance: u64) {
        loop {
            let now_ms = self.now_ms;
            let lock = self.locks.entry(instance).or_default();
            let Some(&(key, mode, _)) = lock.queue.first() else {
                return;
            };
            let blocked = lock
                .granted
                .iter()
                .any(|entry| entry.0 != key && (entry.1 == EXCLUSIVE || mode == EXCLUSIVE));
            if blocked {
                return;
            }
            lock.queue.remove(0);
            lock.granted.push((key, mode, now_ms));
            let kind = EventKind::WaitEnd {
                resource: LOCKS,
                instance: self.event_instance(key, instance),
            };
            self.event(key, kind);
            self.acquired(key, instance, mode);
            if let Some(work_ms) = self.ends_after.remove(&key) {
                self.ends_at.push((now_ms + work_ms, key));
            }
            if let Some(victim) = self
                .members
                .get_mut(&key)
                .and_then(|member| member.victim.as_mut())
            {
                victim.done_at_ms = Some(now_ms + victim.hold_ms);
            }
        }
    }

    /// The target's own view, as a walk would give it.
    pub fn snapshot(&self) -> Snapshot {
        let mut waits = Vec::new();
        let mut instances = Vec::new();
        for (instance, lock) in &self.locks {
            for (place, (waiter, mode, since_ms)) in lock.queue.iter().enumerate() {
                let conflicts = |entry: &&(u64, u32, u64)| {
                    entry.0 != *waiter && (entry.1 == EXCLUSIVE || *mode == EXCLUSIVE)
                };
                let blocker = |kind: BlockKind| {
                    move |entry: &(u64, u32, u64)| Blocker {
                        session: SessionKey(entry.0),
                        kind,
                        mode: entry.1,
                        since_ns: entry.2 * MS,
                    }
                };
                let granted = lock
                    .granted
                    .iter()
                    .filter(conflicts)
                    .map(blocker(BlockKind::Granted));
                let queued = lock.queue[..place]
                    .iter()
                    .filter(conflicts)
                    .map(blocker(BlockKind::Queued));
                waits.push(Wait {
                    waiter: SessionKey(*waiter),
                    instance: InstanceKey(*instance),
                    mode: *mode,
                    since_ns: since_ms * MS,
                    blockers: granted.chain(queued).collect(),
                });
            }
            instances.push(InstanceName {
                instance: InstanceKey(*instance),
                name: format!("table shop.t{instance}"),
            });
        }
        Snapshot {
            at_ns: self.now_ns(),
            resource: LOCKS,
            evidence: self.evidence,
            complete: self.complete,
            waits,
            instances,
        }
    }
}
