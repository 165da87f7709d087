//! What holds for every input, however odd: safety of victims, quarantine, determinism, bounded memory.

mod inputs;
#[path = "../kit/mod.rs"]
mod kit;

use std::collections::BTreeSet;

use atropos_engine::Engine;
use atropos_engine::input::{
    Activity, Event, EventKind, Input, RequestStats, SessionKey, Tick, Woken,
};
use atropos_engine::record::Effect;
use inputs::{input, woken};
use kit::{EXCLUSIVE, MS, Obey, SHARED, Sense, World, all_kinds, settings};
use proptest::prelude::*;

const SESSIONS: u64 = 12;
const LOSS_QUARANTINE_NS: u64 = 1_000_000_000;

/// A small target: holders, chains of waiters, and the load in front of them.
#[derive(Clone, Debug)]
struct Plan {
    /// Lock wanted, exclusive, milliseconds before the next.
    requests: Vec<(u64, bool, u64)>,
    idle: BTreeSet<usize>,
    lost_at: Option<usize>,
    obey: u8,
}

fn plan() -> impl Strategy<Value = Plan> {
    let requests = prop::collection::vec((0..3u64, any::<bool>(), 0..400u64), 1..8);
    (
        requests,
        prop::collection::btree_set(0..8usize, 0..3),
        prop::option::of(0..8usize),
        0..5u8,
    )
        .prop_map(|(requests, idle, lost_at, obey)| Plan {
            requests,
            idle,
            lost_at,
            obey,
        })
}

fn play(plan: &Plan, sense: Sense) -> World {
    let mut world = World::new(settings());
    world.sense = sense;
    world.obey = match plan.obey {
        0 => Obey::Refuse,
        1 => Obey::Miss,
        2 => Obey::Ignore,
        3 => Obey::NotSent,
        _ => Obey::After(20),
    };
    for lock in 0..3 {
        world.victims(100 + 10 * lock, 6, lock, 60);
    }
    world.run(1500);
    for (n, (lock, exclusive, pause_ms)) in plan.requests.iter().enumerate() {
        let key = n as u64 + 1;
        world.begin(key, None, "work");
        let granted = world.lock(key, *lock, if *exclusive { EXCLUSIVE } else { SHARED });
        if granted && plan.idle.contains(&n) {
            world.idle(key, Activity::IdleInTransaction);
        }
        if plan.lost_at == Some(n) {
            world.lose(1);
        }
        world.run(*pause_ms);
    }
    world.run(2000);
    world
}

/// What the engine says of these inputs, but for the hints.
fn without_hints(inputs: &[Input]) -> Vec<Effect> {
    let (mut engine, mut effects) = (Engine::new(settings()), Vec::new());
    for input in inputs {
        engine.handle(input, &mut effects);
    }
    effects.retain(|effect| !matches!(effect, Effect::Hints(_)));
    for effect in &mut effects {
        if let Effect::Decision(decision) = effect {
            decision.hints.clear();
        }
    }
    effects
}

/// Whether a fresh engine, given these inputs, orders something too soon after a loss that it knew of: an order and a loss
/// may carry the same time, so what counts is which came first.
fn orders_in_quarantine(inputs: &[Input]) -> bool {
    let mut engine = Engine::new(all_kinds());
    let (mut now_ns, mut lost_ns, mut effects) = (0, None, Vec::new());
    inputs.iter().any(|input| {
        now_ns = input.at_ns().max(now_ns);
        if matches!(input, Input::Lost(_)) {
            lost_ns = Some(now_ns);
        }
        effects.clear();
        engine.handle(input, &mut effects);
        let ordered = effects
            .iter()
            .any(|effect| matches!(effect, Effect::Cancel(_)));
        ordered && lost_ns.is_some_and(|lost_ns| now_ns - lost_ns < LOSS_QUARANTINE_NS)
    })
}

proptest! {
    // A case plays a whole incident: a quarter as many as `PROPTEST_CASES` says, 64 if it says nothing.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whoever_blocks_nobody_is_never_chosen(plan in plan(), by_events in any::<bool>()) {
        let world = play(&plan, if by_events { Sense::Events } else { Sense::Walk });
        for decision in world.decisions() {
            for order in &decision.orders {
                prop_assert!(order.task.id < 100, "a victim: {}", decision.summary);
                // In the snapshot that the engine had just seen, the target blocks somebody else.
                let held = decision.candidates.iter().find(|c| c.task.session == order.task.session).expect("listed");
                let waiters: u64 = held.gains.iter().flat_map(|gain| &gain.instances).map(|held| held.waiters).sum();
                prop_assert!(waiters > 0);
                if !by_events {
                    prop_assert!(blocks_somebody(&world.inputs, decision.at_ns, order.task.session));
                }
            }
        }
    }

    #[test]
    fn no_order_is_made_within_the_quarantine_after_a_loss(inputs in prop::collection::vec(input(), 1..200)) {
        prop_assert!(!orders_in_quarantine(&inputs));
    }

    #[test]
    fn no_order_of_a_played_incident_falls_into_a_quarantine(plan in plan()) {
        let world = play(&plan, Sense::Walk);
        prop_assert!(!orders_in_quarantine(&world.inputs));
    }

    #[test]
    fn who_woke_whom_changes_nothing_but_the_hints(plan in plan(), look in woken(Just(0)), every in 1..40usize) {
        let world = play(&plan, Sense::Walk);
        let mut inputs = Vec::new();
        for (n, input) in world.inputs.iter().enumerate() {
            inputs.push(input.clone());
            if let (0, Input::Woken(look)) = (n % every, &look) {
                inputs.push(Input::Woken(Woken { at_ns: input.at_ns(), ..look.clone() }));
            }
        }
        prop_assert_eq!(without_hints(&world.inputs), without_hints(&inputs));
    }

    #[test]
    fn the_same_recording_gives_the_same_effects_byte_for_byte(inputs in prop::collection::vec(input(), 1..150)) {
        let run = || {
            let (mut engine, mut effects) = (Engine::new(all_kinds()), Vec::new());
            for input in &inputs {
                engine.handle(input, &mut effects);
            }
            serde_json::to_string(&effects).expect("effects are plain data")
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn a_recording_that_went_through_text_gives_the_same_effects(plan in plan()) {
        let world = play(&plan, Sense::Walk);
        let (mut engine, mut effects) = (Engine::new(settings()), Vec::new());
        for input in &world.inputs {
            let text = serde_json::to_string(input).expect("inputs are plain data");
            engine.handle(&serde_json::from_str(&text).expect("just written"), &mut effects);
        }
        prop_assert_eq!(&effects, &world.effects);
    }

    #[test]
    fn effects_never_go_back_in_time_and_numbers_are_sound(inputs in prop::collection::vec(input(), 1..200)) {
        let mut engine = Engine::new(all_kinds());
        let (mut now_ns, mut effects) = (0, Vec::new());
        for input in &inputs {
            now_ns = input.at_ns().max(now_ns);
            effects.clear();
            engine.handle(input, &mut effects);
            for effect in &effects {
                let Effect::Decision(decision) = effect else { continue };
                prop_assert_eq!(decision.at_ns, now_ns);
                prop_assert!(decision.breach_ns <= decision.at_ns);
                for resource in &decision.resources {
                    prop_assert!((0.0..=1.0).contains(&resource.level) && resource.raw.is_finite());
                }
                for gain in decision.candidates.iter().flat_map(|candidate| &candidate.gains) {
                    prop_assert!((0.0..=1.0).contains(&gain.blame) && gain.gain_s.is_finite() && gain.gain_s >= 0.0);
                    prop_assert!(gain.instances.iter().all(|held| held.for_s >= 0.0));
                }
            }
        }
    }

    #[test]
    fn memory_follows_what_lives(inputs in prop::collection::vec(input(), 1..300)) {
        let (mut engine, mut effects) = (Engine::new(all_kinds()), Vec::new());
        for input in &inputs {
            engine.handle(input, &mut effects);
            let footprint = engine.footprint();
            prop_assert!(footprint.sessions as u64 <= SESSIONS && footprint.waits as u64 <= SESSIONS);
            prop_assert!(footprint.holds as u64 <= SESSIONS * 4);
            prop_assert!(footprint.usages as u64 <= SESSIONS * 3);
            prop_assert!(footprint.wakers <= 8 * Woken::MOST);
        }
        for key in 0..SESSIONS {
            let event = Event { at_ns: 3000 * MS, session: SessionKey(key), kind: EventKind::SessionEnd };
            engine.handle(&Input::Event(event), &mut effects);
        }
        // What woke whom is kept for five seconds.
        let tick = Tick { at_ns: 8000 * MS, requests: RequestStats::default(), sessions: Vec::new(), blind: Vec::new() };
        engine.handle(&Input::Tick(tick), &mut effects);
        prop_assert_eq!(engine.footprint(), atropos_engine::Footprint::default());
    }

    #[test]
    fn a_load_that_comes_and_goes_cancels_nothing(pauses in prop::collection::vec((50..3000u64, 50..3000u64, 1..40u64), 1..5)) {
        let mut world = World::new(settings());
        for (busy_ms, idle_ms, clients) in pauses {
            world.victims(100, clients, 1, 50);
            world.run(busy_ms);
            world.stop_victims();
            world.run(idle_ms);
        }
        prop_assert!(world.orders().is_empty());
        prop_assert!(world.overloads().is_empty());
    }

    #[test]
    fn an_exclusive_holder_is_judged_the_same_by_events_and_by_walks(hold_after_ms in 0..300u64, count in 4..30u64) {
        let run = |sense| {
            let mut world = World::new(settings());
            world.sense = sense;
            world.victims(100, count, 1, 60);
            world.run(2000 + hold_after_ms);
            world.begin(1, None, "lock tables t write");
            world.lock(1, 1, EXCLUSIVE);
            world.run(1500);
            world.orders().iter().map(|order| (order.at_ns, order.task.id, order.rung)).collect::<Vec<_>>()
        };
        let by_walk = run(Sense::Walk);
        prop_assert_eq!(by_walk.len(), 1);
        prop_assert_eq!(by_walk, run(Sense::Events));
    }
}

/// By the latest snapshot before `at_ns`, the session is in the way of another one's wait.
fn blocks_somebody(inputs: &[Input], at_ns: u64, session: SessionKey) -> bool {
    let mut snapshots = inputs.iter().filter_map(|input| match input {
        Input::Snapshot(snapshot) if snapshot.at_ns <= at_ns => Some(snapshot),
        _ => None,
    });
    let latest = snapshots
        .next_back()
        .expect("a snapshot before the decision");
    latest.waits.iter().any(|wait| {
        wait.waiter != session
            && wait
                .blockers
                .iter()
                .any(|blocker| blocker.session == session)
    })
}
