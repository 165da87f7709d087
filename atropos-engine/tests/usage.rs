//! Who is ended for what it uses, and who is not.

mod kit;

use std::collections::BTreeSet;

use atropos_common::histogram::bucket_of;
use atropos_engine::Engine;
use atropos_engine::input::{
    Activity, Evidence, Input, OrderReport, OrderResult, RequestStats, ResourceId, SessionKey,
    SessionState, SessionUsage, Tick, Usage,
};
use atropos_engine::record::{Effect, OutcomeKind};
use kit::{MS, all_kinds};
use proptest::prelude::*;

/// Whom the engine orders to end on a busy processor: sessions use so much (milliseconds) in each of forty ticks, and lose most
/// of their time.
fn ended_for_use(used_ms: &[u64]) -> BTreeSet<u64> {
    let target = |effect: &Effect| match effect {
        Effect::Cancel(order) => Some(order.task.id),
        _ => None,
    };
    effects_of_use(used_ms, Evidence::Event)
        .iter()
        .filter_map(target)
        .collect()
}

/// What sessions used in the 50 ms before.
fn used(at_ms: u64, evidence: Evidence, sessions: Vec<SessionUsage>) -> Input {
    Input::Usage(Usage {
        at_ns: at_ms * MS,
        resource: ResourceId(1),
        covered_ns: 50 * MS,
        evidence,
        complete: true,
        sessions,
    })
}

/// A session that has been busy since then.
fn busy(key: u64, since_ms: u64) -> SessionState {
    SessionState {
        request: 1,
        principal: "app".to_owned(),
        ..SessionState::new(SessionKey(key), Activity::Busy, since_ms * MS)
    }
}

/// What the engine says to such a processor. Whoever is cancelled idles in its transaction from then on, with the number of
/// the request that it had.
fn effects_of_use(used_ms: &[u64], evidence: Evidence) -> Vec<Effect> {
    let (mut engine, mut effects) = (Engine::new(all_kinds()), Vec::new());
    let mut ended: Option<(u64, u64)> = None;
    let session = |n: usize, ended: Option<(u64, u64)>| SessionState {
        activity: match ended {
            Some((_, id)) if id == n as u64 => Activity::IdleInTransaction,
            _ => Activity::Busy,
        },
        ..busy(n as u64, 9_000)
    };
    for at_ms in (10_000..12_000).step_by(50) {
        let order = effects.iter().find_map(|effect| match effect {
            Effect::Cancel(order) => Some((order.order, order.task.id)),
            _ => None,
        });
        if let Some((order, _)) = order.filter(|_| ended.is_none()) {
            let report = OrderReport {
                at_ns: at_ms * MS - 1,
                order,
                rung: 0,
                result: OrderResult::Accepted,
            };
            engine.handle(&Input::Outcome(report), &mut effects);
        }
        ended = order;
        let works = |n: usize| ended.is_none_or(|(_, id)| id != n as u64);
        let lost_ms = if ended.is_none() { 45 } else { 0 };
        let sessions = used_ms.iter().enumerate().map(|(n, used)| SessionUsage {
            session: SessionKey(n as u64),
            used: if works(n) { used * MS } else { 0 },
            lost_ns: lost_ms * MS,
            held: 0,
        });
        engine.handle(&used(at_ms, evidence, sessions.collect()), &mut effects);
        let tick = Tick {
            at_ns: at_ms * MS,
            requests: RequestStats::default(),
            sessions: (0..used_ms.len()).map(|n| session(n, ended)).collect(),
            blind: Vec::new(),
        };
        engine.handle(&Input::Tick(tick), &mut effects);
    }
    effects
}

#[test]
fn a_task_that_was_ended_for_its_use_is_not_met_by_the_next_rung_while_its_session_idles_in_a_transaction()
 {
    let mut used_ms = [1; 10];
    used_ms[3] = 100;
    let effects = effects_of_use(&used_ms, Evidence::Event);
    let orders: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Cancel(order) => Some((order.task.id, order.rung)),
            _ => None,
        })
        .collect();
    assert_eq!(orders, [(3, 0)]);
    let released = |effect: &Effect| matches!(effect, Effect::Outcome(outcome) if outcome.result == OutcomeKind::Released);
    assert!(effects.iter().any(released), "{effects:?}");
}

#[test]
fn use_that_is_inferred_is_told_with_who_used_most_and_ends_nobody() {
    let mut used_ms = [1; 10];
    used_ms[3] = 100;
    let effects = effects_of_use(&used_ms, Evidence::Inference);
    let said: Vec<&str> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Overload(note) => Some(note.reason.as_str()),
            _ => None,
        })
        .collect();
    let [said] = said[..] else {
        panic!("one hand-off: {said:?}")
    };
    assert!(
        said.contains("were lost to processor in this window, but who used it is inferred"),
        "{said}"
    );
    assert!(
        said.ends_with("; session 3 used most of processor, 92 %"),
        "{said}"
    );
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::Cancel(_) | Effect::Decision(_)))
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_ended_for_using_as_much_as_its_peers(used_ms in prop::collection::vec(4..76u64, 2..40)) {
        prop_assert!(ended_for_use(&used_ms).is_empty());
    }

    #[test]
    fn one_that_uses_a_hundred_times_as_much_is_the_only_one_to_go(used_ms in prop::collection::vec(1..10u64, 4..20), at in 0..4usize) {
        let mut used_ms = used_ms;
        used_ms[at] = 1000;
        prop_assert_eq!(ended_for_use(&used_ms), BTreeSet::from([at as u64]));
    }
}

/// Whether a task is ended that sweeps what others need, whose requests of 30 ms are in flight at every `nth` tick, and end in every
/// one of those that `broken` says.
fn is_ended_among_short_requests(nth: u64, broken: impl Fn(u64) -> bool) -> bool {
    let (mut engine, mut effects) = (Engine::new(all_kinds()), Vec::new());
    for number in 0..200 {
        let at_ms = 10_000 + 50 * number;
        let one = |key: u64, used: u64, lost_ms: u64| SessionUsage {
            session: SessionKey(key),
            used,
            lost_ns: lost_ms * MS,
            held: 0,
        };
        let all = vec![one(1, 100, 0), one(2, 1, 25), one(3, 1, 25)];
        engine.handle(&used(at_ms, Evidence::Event, all), &mut effects);
        let mut sessions = vec![busy(1, 9_000)];
        if number % nth == 0 {
            sessions.push(busy(2, at_ms - 25));
        }
        let completed = u64::from(broken(number));
        let tick = Tick {
            at_ns: at_ms * MS,
            requests: RequestStats {
                completed: Some(completed),
                latency: vec![(bucket_of(30 * MS) as u16, completed)],
                covered_ns: 50 * MS,
            },
            sessions,
            blind: Vec::new(),
        };
        engine.handle(&Input::Tick(tick), &mut effects);
    }
    let ends = |effect: &Effect| matches!(effect, Effect::Cancel(order) if order.task.id == 1);
    effects.iter().any(ends)
}

#[test]
fn a_sweep_among_requests_that_few_ticks_meet_is_ended() {
    assert!(is_ended_among_short_requests(3, |_| true));
}

#[test]
fn single_ticks_with_a_met_objective_between_them_end_nobody() {
    assert!(!is_ended_among_short_requests(40, |number| number % 40 == 0));
}
