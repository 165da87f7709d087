//! What holds for every order of an incident, the first and each further rung, whatever happens in between.

mod kit;

use atropos_engine::Engine;
use atropos_engine::input::{Input, SessionState, Snapshot, Tick};
use atropos_engine::record::{Effect, Order};
use kit::{DDL, EXCLUSIVE, MS, OTHER, Obey, T, World, settings};
use proptest::prelude::*;

const LOSS_QUARANTINE_NS: u64 = 1_000_000_000;

/// Something that speaks against a further order.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Blind,
    Partial,
    Stale,
    Lost,
    User,
    Class,
    NextRequest,
    WaitsElsewhere,
    Gone,
}

const TURNS: [Turn; 9] = [
    Turn::Blind,
    Turn::Partial,
    Turn::Stale,
    Turn::Lost,
    Turn::User,
    Turn::Class,
    Turn::NextRequest,
    Turn::WaitsElsewhere,
    Turn::Gone,
];

/// A holder that takes no notice of orders; after so many milliseconds each of these happens.
fn play(turns: &[(usize, u64)], obey: u8, per_minute: u32) -> World {
    let mut settings = settings();
    settings.tuning.per_minute = per_minute;
    let mut world = World::new(settings);
    world.obey = match obey {
        0 => Obey::Ignore,
        1 => Obey::Statement(20),
        2 => Obey::Silent(u64::from(u32::MAX)),
        3 => Obey::Miss,
        _ => Obey::Unsent,
    };
    world.victims(100, 12, T, 80);
    world.run(2000);
    world.begin(1, None, "lock tables t write");
    world.lock(1, T, EXCLUSIVE);
    for (turn, after_ms) in turns {
        world.run(*after_ms);
        match TURNS[*turn] {
            Turn::Blind => world.blind("a check failed"),
            Turn::Partial => world.complete = false,
            Turn::Stale => world.walks = false,
            Turn::Lost => world.lose(1),
            Turn::User => world.edit(1, |state| "root".clone_into(&mut state.principal)),
            Turn::Class => world.edit(1, |state| state.class = Some(DDL)),
            Turn::NextRequest => world.edit(1, |state| state.request += 1000),
            Turn::WaitsElsewhere => {
                world.begin(2, Some(DDL), "alter table other");
                world.lock(2, OTHER, EXCLUSIVE);
                world.lock(1, OTHER, EXCLUSIVE);
            }
            Turn::Gone => world.end(1),
        }
    }
    world.run(2500);
    world
}

/// What the engine had been told when it made an order.
#[derive(Default)]
struct Known {
    tick: Option<Tick>,
    snapshot: Option<Snapshot>,
    lost_ns: Option<u64>,
}

/// Why an order should not have been made, by what was known.
fn against(order: &Order, known: &Known, orders: &[Order]) -> Option<&'static str> {
    let (Some(tick), Some(snapshot)) = (&known.tick, &known.snapshot) else {
        return Some("nothing was known");
    };
    let named = |state: &&SessionState| state.session == order.task.session;
    let Some(state) = tick.sessions.iter().find(named) else {
        return Some("nobody listed the session");
    };
    let blocks = snapshot.waits.iter().any(|wait| {
        let blocker = |blocker: &atropos_engine::input::Blocker| blocker.session == state.session;
        wait.waiter != state.session && wait.blockers.iter().any(blocker)
    });
    let waits = snapshot
        .waits
        .iter()
        .any(|wait| wait.waiter == state.session);
    let before = orders
        .iter()
        .rev()
        .find(|before| before.decision == order.decision);
    let other_request = before.is_some_and(|before| before.task.request != order.task.request);
    let in_quarantine = known
        .lost_ns
        .is_some_and(|lost_ns| order.at_ns - lost_ns < LOSS_QUARANTINE_NS);
    [
        (!tick.blind.is_empty(), "its resource was blind"),
        (!snapshot.complete, "only a part of the waits was seen"),
        (
            order.at_ns - snapshot.at_ns > 125 * MS,
            "the picture was old",
        ),
        (in_quarantine, "events had been lost"),
        (state.principal == "root", "its user was protected"),
        (
            state.class == Some(DDL) && !waits,
            "its class was protected",
        ),
        (
            state.id != order.task.id || state.request != order.task.request,
            "it ran something else",
        ),
        (other_request, "the decision was about another request"),
        (!blocks, "it was in nobody's way"),
        (waits && order.task.id == 1, "it was a victim"),
    ]
    .into_iter()
    .find_map(|(speaks, reason)| speaks.then_some(reason))
}

/// The first order that something spoke against, of all that a fresh engine makes of these inputs.
fn wrong(inputs: &[Input], per_minute: u32) -> Option<(Order, &'static str)> {
    let mut settings = settings();
    settings.tuning.per_minute = per_minute;
    let (mut engine, mut known) = (Engine::new(settings), Known::default());
    let (mut orders, mut effects) = (Vec::new(), Vec::new());
    for input in inputs {
        match input {
            Input::Tick(tick) => known.tick = Some(tick.clone()),
            Input::Snapshot(snapshot) => known.snapshot = Some(snapshot.clone()),
            Input::Lost(lost) => known.lost_ns = Some(lost.at_ns),
            _ => {}
        }
        effects.clear();
        engine.handle(input, &mut effects);
        for effect in &effects {
            let Effect::Cancel(order) = effect else {
                continue;
            };
            if let Some(reason) = against(order, &known, &orders) {
                return Some((order.clone(), reason));
            }
            orders.push(order.clone());
        }
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_speaks_against_any_order_at_the_moment_at_which_it_is_made(
        turns in prop::collection::vec((0..TURNS.len(), 0..1500u64), 1..4),
        obey in 0..5u8,
        per_minute in 1..20u32,
    ) {
        let world = play(&turns, obey, per_minute);
        let found = wrong(&world.inputs, per_minute);
        prop_assert!(found.is_none(), "{found:?}");
        if obey != 4 {
            prop_assert!(world.orders().len() <= per_minute as usize, "within a minute");
        }
    }
}

#[test]
fn a_deaf_holder_is_taken_all_the_way_up() {
    let world = play(&[(TURNS.len() - 1, 4000)], 0, 20);
    let rungs: Vec<u8> = world.orders().iter().map(|order| order.rung).collect();
    assert_eq!(rungs, [0, 1, 2]);
}
