//! Short ways to say what the target looks like, for the unit tests of the engine's parts.

use super::input::{
    Activity, BlockKind, Blocker, Evidence, InstanceKey, ResourceId, SessionKey, SessionState,
    Snapshot, Tick, Wait,
};
use super::ledger::Ledger;
use super::settings::{Class, Kind, Mode, Rerun, Resource, Rung, Settings, Slo, SloLimit, Tuning};

pub(super) const MS: u64 = 1_000_000;
pub(super) const RESOURCE: ResourceId = ResourceId(0);

pub(super) fn settings() -> Settings {
    Settings {
        preset: "test".to_owned(),
        resources: vec![Resource {
            name: "lock".to_owned(),
            kind: Kind::Lock,
            modes: Vec::new(),
        }],
        classes: vec![Class {
            name: "write".to_owned(),
            protected: false,
            protected_queued: false,
            undo: 1.0,
        }],
        ladder: vec![Rung {
            name: "kill".to_owned(),
            busy: true,
            idle: true,
            deadline_ns: 1000 * MS,
        }],
        slo: Slo {
            percentile: 99.0,
            limit: SloLimit::Absolute { ns: 20 * MS },
        },
        protected_principals: Vec::new(),
        mode: Mode::Enforce,
        tuning: Tuning::default(),
        rerun: Rerun::default(),
    }
}

/// A session that has been busy since `since_ms`.
pub(super) fn busy(key: u64, since_ms: u64) -> SessionState {
    SessionState {
        request: 1,
        principal: "app".to_owned(),
        ..SessionState::new(SessionKey(key), Activity::Busy, since_ms * MS)
    }
}

pub(super) fn granted(key: u64, since_ms: u64) -> Blocker {
    Blocker {
        session: SessionKey(key),
        kind: BlockKind::Granted,
        mode: 0,
        since_ns: since_ms * MS,
    }
}

pub(super) fn queued(key: u64, since_ms: u64) -> Blocker {
    Blocker {
        kind: BlockKind::Queued,
        ..granted(key, since_ms)
    }
}

/// `waiter` waits for `instance` since `since_ms`.
pub(super) fn wait(waiter: u64, instance: u64, since_ms: u64, blockers: &[Blocker]) -> Wait {
    Wait {
        waiter: SessionKey(waiter),
        instance: InstanceKey(instance),
        mode: 0,
        since_ns: since_ms * MS,
        blockers: blockers.to_vec(),
    }
}

pub(super) fn snapshot(at_ms: u64, waits: Vec<Wait>) -> Snapshot {
    Snapshot {
        at_ns: at_ms * MS,
        resource: RESOURCE,
        evidence: Evidence::Walk,
        complete: true,
        waits,
        instances: Vec::new(),
    }
}

pub(super) fn tick(at_ms: u64, sessions: Vec<SessionState>) -> Tick {
    Tick {
        at_ns: at_ms * MS,
        requests: super::input::RequestStats::default(),
        sessions,
        blind: Vec::new(),
    }
}

/// A ledger that has seen these waits and sessions at `at_ms`.
pub(super) fn ledger(at_ms: u64, waits: Vec<Wait>, sessions: Vec<SessionState>) -> Ledger {
    let mut ledger = Ledger::new(&settings().resources, Tuning::default().window_ns);
    ledger.tick(&tick(at_ms, sessions));
    ledger.snapshot(&snapshot(at_ms, waits));
    ledger
}
