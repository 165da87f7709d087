//! Settings, inputs, decisions and orders for the tests of the journal.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each integration test is a crate of its own and uses a part of this"
)]

use atropos::engine::input::{
    Activity, Beyond, Blind, BlockKind, Blocker, Event, EventKind, Evidence, Excess, Input,
    InstanceKey, InstanceName, Lost, OrderReport, OrderResult, RequestStats, ResourceId,
    SessionKey, SessionState, SessionUsage, Snapshot, Tick, Unseen, Usage, Wait, WakeUp, Woken,
};
use atropos::engine::record::{
    Assessment, Candidate, Decision, Gain, HeldInstance, Hint, Order, PassedOver, Task, Trigger,
};
use atropos::engine::settings::{
    Class, Kind, Mode, Repeat, Rerun, Resource, Rung, Settings, Slo, SloLimit, Tuning,
};
use proptest::prelude::*;

const RESOURCE: ResourceId = ResourceId(0);

pub fn settings() -> Settings {
    Settings {
        preset: "mariadb".into(),
        resources: vec![Resource {
            name: "metadata_lock".into(),
            kind: Kind::Lock,
            modes: vec!["SR".into(), "X".into()],
        }],
        classes: vec![Class {
            name: "ddl".into(),
            protected: true,
            protected_queued: false,
            undo: 0.5,
        }],
        ladder: vec![Rung {
            name: "KILL QUERY ID".into(),
            busy: true,
            idle: false,
            deadline_ns: 1_000_000_000,
        }],
        slo: Slo {
            percentile: 99.0,
            limit: SloLimit::Absolute { ns: 20_000_000 },
        },
        protected_principals: vec!["root".into()],
        mode: Mode::Enforce,
        tuning: tuning(),
        rerun: Rerun::default(),
    }
}

/// Written out, so that other defaults are not taken for another format.
fn tuning() -> Tuning {
    Tuning {
        window_ns: 500_000_000,
        suspect_wait_share: 0.5,
        calm_after_ns: 2_000_000_000,
        confirm_ticks: 2,
        contention_floor: 0.1,
        explained_floor: 0.5,
        flat_tolerance: 0.1,
        unknown_horizon_ns: 5_000_000_000,
        nearly_done: 0.9,
        min_blocking_ns: 50_000_000,
        min_idle_ns: 500_000_000,
        min_gain_s: 0.02,
        per_decision: 1,
        per_minute: 6,
        per_hour: 60,
        loss_quarantine_ns: 1_000_000_000,
        repeat_after_ns: 60_000_000_000,
        repeat: Repeat::BackOff,
        repeat_pause_ns: 1_000_000_000,
        end_groups: false,
    }
}

/// A tick like those of a busy server.
pub fn tick(at_ns: u64, session_count: u64) -> Input {
    let session = |n: u64| SessionState {
        session: SessionKey(0x7f3c_5400_0b18 + n * 0x1_a2c0),
        id: 1_000 + n,
        thread: 40_000 + n as u32,
        request: at_ns / 40_000_000 * 50 + n * 7,
        activity: if n % 9 == 8 {
            Activity::IdleInTransaction
        } else {
            Activity::Busy
        },
        since_ns: at_ns.saturating_sub(n * 811_003 % 40_000_000),
        transaction_since_ns: (n % 9 == 8).then_some(at_ns / 2),
        class: n.is_multiple_of(5).then_some(0),
        principal: "shop".into(),
        fingerprint: 0,
        digest: String::new(),
        progress: None,
        killed: false,
        own: n == 0,
    };
    Input::Tick(Tick {
        at_ns,
        requests: RequestStats {
            completed: Some(500 + at_ns % 37),
            covered_ns: 50_000_000,
            latency: (80..96)
                .map(|bucket| (bucket, (at_ns / 50_000_000 + u64::from(bucket)) % 41))
                .collect(),
        },
        sessions: (0..session_count).map(session).collect(),
        blind: vec![],
    })
}

/// Each variant of each type that a recording can hold.
pub fn every_kind_of_input() -> Vec<Input> {
    let event = |kind| {
        Input::Event(Event {
            at_ns: 77,
            session: SessionKey(u64::MAX),
            kind,
        })
    };
    let instance = InstanceKey(0x55);
    let report = |result| {
        Input::Outcome(OrderReport {
            at_ns: 5,
            order: 1,
            rung: 2,
            result,
        })
    };
    let mut inputs: Vec<Input> = [
        EventKind::RequestBegin,
        EventKind::RequestEnd,
        EventKind::SessionEnd,
        EventKind::WaitBegin {
            resource: RESOURCE,
            instance,
        },
        EventKind::WaitEnd {
            resource: RESOURCE,
            instance,
        },
        EventKind::Acquire {
            resource: RESOURCE,
            instance,
            mode: 3,
        },
        EventKind::Release {
            resource: RESOURCE,
            instance,
        },
        EventKind::ReleaseAll { resource: RESOURCE },
        EventKind::Killed,
    ]
    .map(event)
    .into();
    inputs.push(Input::Lost(Lost { at_ns: 3, count: 9 }));
    inputs.push(tick(1_000_000, 9));
    inputs.push(Input::Tick(Tick {
        at_ns: 4,
        requests: RequestStats::default(),
        sessions: vec![],
        blind: vec![Blind {
            resource: RESOURCE,
            reason: "wrong layout".into(),
        }],
    }));
    for evidence in [
        Evidence::Event,
        Evidence::Walk,
        Evidence::OpenMap,
        Evidence::Snapshot,
        Evidence::Inference,
    ] {
        inputs.push(snapshot(evidence));
    }
    inputs.extend(every_result().map(report));
    inputs.push(Input::Usage(Usage {
        at_ns: 13,
        resource: RESOURCE,
        covered_ns: 50_000_000,
        evidence: Evidence::Event,
        complete: true,
        sessions: vec![SessionUsage {
            session: SessionKey(2),
            used: 1_000_000,
            lost_ns: 500,
            held: 7,
        }],
    }));
    inputs.push(Input::Unseen(Unseen {
        at_ns: 14,
        requests: RequestStats {
            completed: Some(3),
            covered_ns: 9,
            latency: vec![(4, 2)],
        },
    }));
    let wake_up = |waker| WakeUp {
        resource: RESOURCE,
        instance: InstanceKey(7),
        waiter: SessionKey(1),
        thread: 4_712,
        name: "postgres: walwriter".into(),
        waker,
        count: 3,
    };
    inputs.push(Input::Woken(Woken {
        at_ns: 14,
        covered_ns: 100_000_000,
        wakes: vec![wake_up(None), wake_up(Some(SessionKey(2)))],
    }));
    inputs.push(excess());
    inputs
}

fn every_result() -> [OrderResult; 6] {
    [
        OrderResult::Accepted,
        OrderResult::Missed,
        OrderResult::Refused("no right".into()),
        OrderResult::NotSent,
        OrderResult::Unknown("no answer".into()),
        OrderResult::Unsent("not connected".into()),
    ]
}

fn excess() -> Input {
    Input::Excess(Excess {
        at_ns: 14,
        sessions: vec![Beyond {
            session: SessionKey(2),
            limit: "old_snapshot".into(),
            value: 2_000_001,
            most: 2_000_000,
            may_end: true,
            open_ns: 3_600_000_000_000,
            longest_ns: 1_800_000_000_000,
        }],
    })
}

fn snapshot(evidence: Evidence) -> Input {
    let blocker = |kind| Blocker {
        session: SessionKey(2),
        kind,
        mode: 1,
        since_ns: 8,
    };
    Input::Snapshot(Snapshot {
        at_ns: 12,
        resource: RESOURCE,
        evidence,
        complete: true,
        waits: vec![Wait {
            waiter: SessionKey(1),
            instance: InstanceKey(7),
            mode: 0,
            since_ns: 9,
            blockers: vec![blocker(BlockKind::Granted), blocker(BlockKind::Queued)],
        }],
        instances: vec![InstanceName {
            instance: InstanceKey(7),
            name: "table shop.ördérs".into(),
        }],
    })
}

prop_compose! {
    fn session()(
        key in any::<u64>(), id in any::<u64>(), thread in any::<u32>(), request in any::<u64>(), since_ns in any::<u64>(),
        transaction_since_ns in any::<Option<u64>>(), class in any::<Option<u16>>(), principal in ".{0,20}",
        digest in ".{0,40}", progress in proptest::option::of(0.0..1.0), killed in any::<bool>(), own in any::<bool>(),
    ) -> SessionState {
        SessionState {
            session: SessionKey(key), id, thread, request, activity: Activity::IdleWithLocks, since_ns,
            transaction_since_ns, class, principal, fingerprint: key ^ id, digest, progress, killed, own,
        }
    }
}

/// Any input.
pub fn input() -> impl Strategy<Value = Input> {
    let ticks = (
        any::<u64>(),
        proptest::collection::vec(session(), 0..6),
        proptest::collection::vec(any::<(u16, u64)>(), 0..9),
    )
        .prop_map(|(at_ns, sessions, latency)| {
            let requests = RequestStats {
                completed: None,
                covered_ns: at_ns / 3,
                latency,
            };
            Input::Tick(Tick {
                at_ns,
                requests,
                sessions,
                blind: vec![],
            })
        });
    let fixed = proptest::sample::select(every_kind_of_input());
    let refused = (any::<u64>(), ".{0,30}").prop_map(|(at_ns, why)| {
        Input::Outcome(OrderReport {
            at_ns,
            order: at_ns,
            rung: 0,
            result: OrderResult::Refused(why),
        })
    });
    prop_oneof![3 => ticks, 2 => fixed, 1 => refused]
}

pub fn task(id: u64) -> Task {
    Task {
        session: SessionKey(0x7f3c_5400_0b18),
        id,
        thread: 4_711,
        request: 99_123,
        activity: Activity::Busy,
        class: "write".into(),
        principal: "shop".into(),
        fingerprint: 0xfeed,
        digest: "UPDATE t SET a = ?".into(),
        doing: "running 1.2 s".into(),
        since_ns: 0,
        seen_ns: 0,
    }
}

fn hint() -> Hint {
    Hint {
        resource: RESOURCE,
        instances: vec!["WALWrite".into()],
        waiter_count: 2,
        wake_count: 9,
        thread: 4_711,
        task: Some(task(44)),
        evidence: Evidence::Inference,
        says: "2 sessions that waited for WALWrite were woken by session 44".into(),
    }
}

pub fn order() -> Order {
    Order {
        order: 3,
        decision: 2,
        at_ns: 1_000,
        task: task(42),
        rung: 0,
        rung_name: "KILL QUERY ID".into(),
        expected_gain_s: 1.5,
    }
}

pub fn decision() -> Decision {
    let gain = Gain {
        resource: RESOURCE,
        instances: vec![HeldInstance {
            instance: InstanceKey(7),
            name: "table shop.orders".into(),
            mode: "X".into(),
            kind: BlockKind::Granted,
            for_s: 1.2,
            waiters: 40,
            evidence: Evidence::Walk,
        }],
        usage_s: 1.2,
        progress: None,
        blame: 1.0,
        undo_s: 0.2,
        gain_s: 1.5,
    };
    let candidate = |id, passed_over| Candidate {
        task: task(id),
        gains: vec![gain.clone()],
        score: 1.4,
        passed_over,
    };
    Decision {
        decision: 2,
        at_ns: 990,
        breach_ns: 900,
        mode: Mode::Enforce,
        trigger: Trigger {
            latency_ns: 80_000_000,
            limit_ns: 20_000_000,
            throughput: Some(10.0),
            reference: None,
            in_flight: 41,
            waiting: 40,
            explained: 0.97,
        },
        resources: vec![Assessment {
            resource: RESOURCE,
            name: "metadata_lock".into(),
            kind: Kind::Lock,
            raw: 33.0,
            level: 0.95,
            lost_s: 19.0,
            blind: None,
            most_used: None,
        }],
        candidates: vec![
            candidate(42, None),
            candidate(43, Some(PassedOver::Victim { of: 42 })),
        ],
        orders: vec![order()],
        summary: "session 42 holds table shop.orders".into(),
        group: None,
        hints: vec![hint()],
        limit: None,
    }
}
