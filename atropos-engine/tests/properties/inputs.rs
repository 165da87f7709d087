//! Inputs of every kind, in any order, about a few sessions and locks.

use atropos_engine::input::{
    BlockKind, Blocker, Event, EventKind, Evidence, Input, InstanceKey, InstanceName, Lost,
    OrderReport, OrderResult, RequestStats, ResourceId, SessionKey, SessionState, SessionUsage,
    Snapshot, Tick, Unseen, Usage, Wait, WakeUp, Woken,
};
use proptest::prelude::*;

use super::SESSIONS;
use super::kit::{ACTIVITIES, MS};

fn session() -> impl Strategy<Value = SessionKey> {
    (0..SESSIONS).prop_map(SessionKey)
}

fn instance() -> impl Strategy<Value = InstanceKey> {
    (0..4u64).prop_map(InstanceKey)
}

fn kind() -> impl Strategy<Value = EventKind> {
    let resource = ResourceId(0);
    prop_oneof![
        Just(EventKind::RequestBegin),
        Just(EventKind::RequestEnd),
        Just(EventKind::SessionEnd),
        Just(EventKind::Killed),
        instance().prop_map(move |instance| EventKind::WaitBegin { resource, instance }),
        instance().prop_map(move |instance| EventKind::WaitEnd { resource, instance }),
        instance().prop_map(move |instance| EventKind::Acquire {
            resource,
            instance,
            mode: 0
        }),
        instance().prop_map(move |instance| EventKind::Release { resource, instance }),
        Just(EventKind::ReleaseAll { resource }),
        instance().prop_map(|instance| EventKind::Acquire {
            resource: ResourceId(9),
            instance,
            mode: 7
        }),
    ]
}

fn blocker() -> impl Strategy<Value = Blocker> {
    (session(), any::<bool>(), 0..3u32, 0..3000u64).prop_map(
        |(session, granted, mode, since_ms)| Blocker {
            session,
            kind: if granted {
                BlockKind::Granted
            } else {
                BlockKind::Queued
            },
            mode,
            since_ns: since_ms * MS,
        },
    )
}

fn wait() -> impl Strategy<Value = Wait> {
    (
        session(),
        instance(),
        0..3000u64,
        prop::collection::vec(blocker(), 0..4),
    )
        .prop_map(|(waiter, instance, since_ms, blockers)| Wait {
            waiter,
            instance,
            mode: 0,
            since_ns: since_ms * MS,
            blockers,
        })
}

fn state() -> impl Strategy<Value = SessionState> {
    (
        session(),
        0..3u8,
        0..3000u64,
        prop::option::of(0..6u16),
        0..4u64,
        prop::option::of(0.0..1.0),
        any::<bool>(),
    )
        .prop_map(
            |(session, activity, since_ms, class, request, progress, killed)| SessionState {
                id: session.0 + 100,
                request,
                class,
                principal: "app".to_owned(),
                fingerprint: request,
                progress,
                killed,
                own: session.0 == 0,
                ..SessionState::new(session, ACTIVITIES[usize::from(activity)], since_ms * MS)
            },
        )
}

fn usage() -> impl Strategy<Value = Input> {
    let one = (session(), 0..200u64, 0..80u64, 0..9u64).prop_map(|(session, used, lost, held)| {
        SessionUsage {
            session,
            used: used * MS,
            lost_ns: lost * MS,
            held,
        }
    });
    let sessions = prop::collection::vec(one, 0..8);
    (
        0..3000u64,
        0..4u16,
        0..300u64,
        any::<bool>(),
        any::<bool>(),
        sessions,
    )
        .prop_map(|(at_ms, resource, covered_ms, walk, complete, sessions)| {
            Input::Usage(Usage {
                at_ns: at_ms * MS,
                resource: ResourceId(resource),
                covered_ns: covered_ms * MS,
                evidence: if walk {
                    Evidence::Walk
                } else {
                    Evidence::Inference
                },
                complete,
                sessions,
            })
        })
}

/// A look at who woke whom.
pub(super) fn woken(at_ns: impl Strategy<Value = u64>) -> impl Strategy<Value = Input> {
    let one = (
        0..2u16,
        instance(),
        session(),
        0..4u32,
        any::<bool>(),
        0..9u64,
    );
    let one = one.prop_map(|(resource, instance, waiter, thread, own, count)| WakeUp {
        resource: ResourceId(resource * 9),
        instance,
        waiter,
        thread,
        name: "thread".to_owned(),
        waker: own.then_some(SessionKey(u64::from(thread))),
        count,
    });
    (at_ns, prop::collection::vec(one, 0..6)).prop_map(|(at_ns, wakes)| {
        Input::Woken(Woken {
            at_ns,
            covered_ns: 100 * MS,
            wakes,
        })
    })
}

/// One input at a time near `at_ms`, before or after what came before.
pub(super) fn input() -> impl Strategy<Value = Input> {
    let at_ns = || (0..3000u64).prop_map(|at_ms| at_ms * MS);
    let requests = (
        prop::option::of(0..50u64),
        0..60u64,
        prop::collection::vec((any::<u16>(), 0..9u64), 0..4),
    )
        .prop_map(|(completed, covered_ms, latency)| RequestStats {
            completed,
            covered_ns: covered_ms * MS,
            latency,
        });
    let snapshot = (at_ns(), any::<bool>(), prop::collection::vec(wait(), 0..8)).prop_map(
        |(at_ns, complete, waits)| {
            let name = |wait: &Wait| InstanceName {
                instance: wait.instance,
                name: "t".to_owned(),
            };
            let instances = waits.iter().map(name).collect();
            Input::Snapshot(Snapshot {
                at_ns,
                resource: ResourceId(0),
                evidence: Evidence::Walk,
                complete,
                waits,
                instances,
            })
        },
    );
    let report = (at_ns(), 0..5u64, 0..4u8).prop_map(|(at_ns, order, result)| {
        let result = match result {
            0 => OrderResult::Accepted,
            1 => OrderResult::Missed,
            2 => OrderResult::Refused("no".to_owned()),
            _ => OrderResult::NotSent,
        };
        Input::Outcome(OrderReport {
            at_ns,
            order,
            rung: 0,
            result,
        })
    });
    prop_oneof![
        6 => (at_ns(), session(), kind()).prop_map(|(at_ns, session, kind)| Input::Event(Event { at_ns, session, kind })),
        1 => (at_ns(), requests.clone())
            .prop_map(|(at_ns, requests)| Input::Unseen(Unseen { at_ns, requests })),
        3 => (at_ns(), requests, prop::collection::vec(state(), 0..8))
            .prop_map(|(at_ns, requests, sessions)| Input::Tick(Tick { at_ns, requests, sessions, blind: Vec::new() })),
        2 => snapshot,
        1 => (at_ns(), 1..9u64).prop_map(|(at_ns, count)| Input::Lost(Lost { at_ns, count })),
        1 => report,
        2 => usage(),
        1 => woken(at_ns()),
    ]
}
