//! Whatever is told of sessions beyond limits: whom it ends is beyond one, may be ended for it, and is nobody who is spared.

mod kit;

use std::collections::BTreeMap;

use atropos_engine::Engine;
use atropos_engine::input::{
    Activity, Beyond, BlockKind, Blocker, Evidence, Excess, Input, InstanceKey, OrderReport,
    OrderResult, RequestStats, ResourceId, SessionKey, SessionState, Snapshot, Tick, Wait,
};
use atropos_engine::record::{Decision, Effect};
use kit::{ACTIVITIES, MS, settings};
use proptest::prelude::*;

const SESSIONS: u64 = 5;

/// One tick: who is there, who waits for whom, who is told to be beyond a limit, and what the target answers.
#[derive(Clone, Debug)]
struct Moment {
    sessions: Vec<SessionState>,
    waits: Vec<(u64, u64)>,
    beyond: Option<Vec<Beyond>>,
    answer: OrderResult,
}

fn state() -> impl Strategy<Value = SessionState> {
    (
        0..SESSIONS,
        0..3usize,
        0..9000u64,
        prop::option::of(0..5u16),
        0..3u64,
        any::<bool>(),
    )
        .prop_map(
            |(key, activity, since_ms, class, request, killed)| SessionState {
                id: key + 100,
                request,
                transaction_since_ns: Some(request * MS),
                class,
                principal: if key == 1 { "boss" } else { "app" }.to_owned(),
                killed,
                own: key == 0,
                ..SessionState::new(SessionKey(key), ACTIVITIES[activity], since_ms * MS)
            },
        )
}

fn beyond() -> impl Strategy<Value = Beyond> {
    (
        0..SESSIONS,
        any::<bool>(),
        98..103u64,
        prop::bool::weighted(0.8),
        999..1003u64,
    )
        .prop_map(|(key, first, value, may_end, open_ms)| Beyond {
            session: SessionKey(key),
            limit: if first { "first" } else { "second" }.to_owned(),
            value,
            most: 99,
            may_end,
            open_ns: open_ms * MS,
            longest_ns: 1000 * MS,
        })
}

fn moment() -> impl Strategy<Value = Moment> {
    (
        prop::collection::vec(state(), 0..6),
        prop::collection::vec((0..SESSIONS, 0..SESSIONS), 0..2),
        prop::option::of(prop::collection::vec(beyond(), 0..6)),
        0..4u8,
    )
        .prop_map(|(mut sessions, waits, beyond, answer)| {
            let mut seen = Vec::new();
            sessions.retain(|state| {
                let new = !seen.contains(&state.session);
                seen.push(state.session);
                new
            });
            let answer = match answer {
                0 => OrderResult::Accepted,
                1 => OrderResult::Missed,
                2 => OrderResult::Refused("no".to_owned()),
                _ => OrderResult::NotSent,
            };
            Moment {
                sessions,
                waits,
                beyond,
                answer,
            }
        })
}

fn snapshot(at_ns: u64, waits: &[(u64, u64)]) -> Input {
    let wait = |(waiter, blocker): &(u64, u64)| Wait {
        waiter: SessionKey(*waiter),
        instance: InstanceKey(7),
        mode: 0,
        since_ns: at_ns,
        blockers: vec![Blocker {
            session: SessionKey(*blocker),
            kind: BlockKind::Granted,
            mode: 0,
            since_ns: at_ns,
        }],
    };
    Input::Snapshot(Snapshot {
        at_ns,
        resource: ResourceId(0),
        evidence: Evidence::Walk,
        complete: true,
        waits: waits.iter().filter(|(a, b)| a != b).map(wait).collect(),
        instances: Vec::new(),
    })
}

/// What forbids the order of a decision that is about a limit; nothing if it is right.
fn objection(decision: &Decision, moment: &Moment, before: &[Beyond]) -> Option<String> {
    let [order] = decision.orders.as_slice() else {
        return Some(format!("{} orders", decision.orders.len()));
    };
    let limit = decision.limit.as_ref()?;
    let session = order.task.session;
    let state = moment.sessions.iter().find(|one| one.session == session)?;
    let told = moment.beyond.iter().flatten();
    let own: Vec<&Beyond> = told
        .clone()
        .filter(|one| one.session == session && one.limit == limit.name)
        .collect();
    let is_over =
        |one: &&Beyond| one.may_end && one.value > one.most && one.open_ns > one.longest_ns;
    let highest = told
        .filter(|one| one.limit == limit.name && !one.may_end)
        .map(|one| one.value)
        .max()
        .unwrap_or(0);
    let classes = settings().classes;
    let protected = state
        .class
        .and_then(|class| classes.get(usize::from(class)))
        .is_some_and(|class| class.protected);
    let reasons = [
        (!own.iter().any(is_over), "it is within its limit"),
        (
            !before
                .iter()
                .any(|one| one.session == session && is_over(&one)),
            "it was seen once only",
        ),
        (state.own, "it is the agent's own"),
        (state.principal == "boss", "its user is protected"),
        (protected, "its class is protected"),
        (
            state.activity == Activity::IdleWithLocks,
            "it has no transaction",
        ),
        (limit.value <= highest, "somebody who stays has as much"),
        (
            moment
                .waits
                .iter()
                .any(|(waiter, blocker)| waiter != blocker && SessionKey(*waiter) == session),
            "it waits for another",
        ),
    ];
    let wrong = reasons.into_iter().find(|(is_so, _)| *is_so)?;
    Some(format!("{}: {}", wrong.1, decision.summary))
}

proptest! {
    #[test]
    fn only_whom_a_limit_is_meant_for_is_ended_and_one_at_a_time(moments in prop::collection::vec(moment(), 1..60)) {
        let mut settings = settings();
        settings.protected_principals.push("boss".to_owned());
        let mut engine = Engine::new(settings);
        let (mut effects, mut before, mut open) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (n, moment) in moments.iter().enumerate() {
            let at_ns = (10_000 + 50 * n as u64) * MS;
            effects.clear();
            engine.handle(&snapshot(at_ns, &moment.waits), &mut effects);
            if let Some(sessions) = &moment.beyond {
                engine.handle(&Input::Excess(Excess { at_ns, sessions: sessions.clone() }), &mut effects);
            }
            let tick = Tick { at_ns, requests: RequestStats::default(), sessions: moment.sessions.clone(), blind: Vec::new() };
            engine.handle(&Input::Tick(tick), &mut effects);
            for effect in &effects {
                match effect {
                    Effect::Decision(decision) if decision.limit.is_some() && !decision.orders.is_empty() => {
                        prop_assert!(open.is_empty(), "another order is in flight");
                        prop_assert_eq!(objection(decision, moment, &before), None);
                    }
                    Effect::Cancel(order) => { open.insert(order.order, moment.answer.clone()); }
                    Effect::Outcome(outcome) => { open.remove(&outcome.order); }
                    _ => {}
                }
            }
            for (order, result) in open.clone() {
                let report = OrderReport { at_ns, order, rung: 0, result: result.clone() };
                effects.clear();
                engine.handle(&Input::Outcome(report), &mut effects);
                if result != OrderResult::Accepted {
                    open.remove(&order);
                }
            }
            if let Some(sessions) = &moment.beyond {
                before.clone_from(sessions);
            }
        }
    }
}
