//! Every rung is an order: what forbids the first forbids each further one.

mod kit;

use atropos_engine::record::{OutcomeKind, PassedOver};
use atropos_engine::settings::Kind;
use kit::{DDL, EXCLUSIVE, MS, OTHER, Obey, SHARED, T, World, settings};

/// A holder that has been ordered to end and takes no notice.
fn deaf() -> World {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "lock tables t write");
    world.lock(1, T, EXCLUSIVE);
    world.obey = Obey::Ignore;
    while world.orders().is_empty() {
        world.run(50);
    }
    world
}

fn rungs(world: &World) -> Vec<u8> {
    world.orders().iter().map(|order| order.rung).collect()
}

/// What was said when no further rung was taken.
fn said(world: &World) -> Vec<String> {
    let withheld =
        |outcome: &&&atropos_engine::record::OrderOutcome| outcome.result == OutcomeKind::Withheld;
    let outcomes = world.outcomes();
    let withheld = outcomes.iter().filter(withheld);
    withheld.map(|outcome| outcome.summary.clone()).collect()
}

#[test]
fn a_user_who_is_protected_is_met_by_no_further_rung() {
    let mut world = deaf();
    world.edit(1, |state| state.principal = "root".to_owned());
    world.run(4000);
    assert_eq!(rungs(&world), [0]);
    let said = said(&world);
    assert_eq!(said.len(), 1, "once for each reason");
    assert!(
        said[0].contains("its user root is protected"),
        "{}",
        said[0]
    );
}

#[test]
fn a_task_whose_class_is_protected_by_then_is_met_by_no_further_rung() {
    let mut world = deaf();
    world.edit(1, |state| state.class = Some(DDL));
    world.run(4000);
    assert_eq!(rungs(&world), [0]);
    assert!(said(&world)[0].contains("its class ddl is protected"));
}

#[test]
fn while_its_resource_is_blind_a_task_is_met_by_no_further_rung() {
    let mut world = deaf();
    world.blind("the layout check failed");
    world.run(3000);
    assert_eq!(rungs(&world), [0]);
    assert!(said(&world)[0].contains("evidence"), "{:?}", said(&world));
    world.sees_again();
    world.run(100);
    assert_eq!(rungs(&world), [0, 1]);
}

#[test]
fn while_only_a_part_of_the_waits_is_seen_no_further_rung_is_taken() {
    let mut world = deaf();
    world.complete = false;
    world.run(3000);
    assert_eq!(rungs(&world), [0]);
    assert!(said(&world)[0].contains("evidence"), "{:?}", said(&world));
    world.complete = true;
    world.run(100);
    assert_eq!(rungs(&world), [0, 1]);
}

#[test]
fn on_a_view_that_is_not_renewed_no_further_rung_is_taken() {
    let mut world = deaf();
    world.run(800);
    world.walks = false;
    world.run(400);
    assert_eq!(rungs(&world), [0]);
    world.walks = true;
    world.run(100);
    assert_eq!(rungs(&world), [0, 1]);
}

#[test]
fn a_task_that_waits_for_something_else_by_then_is_a_victim_and_met_by_no_further_rung() {
    let mut world = deaf();
    world.begin(2, None, "lock tables other write");
    world.lock(2, OTHER, EXCLUSIVE);
    world.lock(1, OTHER, EXCLUSIVE);
    world.run(4000);
    let of_1 = world
        .orders()
        .iter()
        .filter(|order| order.task.id == 1)
        .count();
    assert_eq!(of_1, 1);
    assert!(said(&world)[0].contains("it waits itself, for session 2"));
}

#[test]
fn the_budget_holds_for_further_rungs() {
    let mut settings = settings();
    settings.tuning.per_minute = 1;
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "lock tables t write");
    world.lock(1, T, EXCLUSIVE);
    world.obey = Obey::Ignore;
    world.run(4000);
    assert_eq!(rungs(&world), [0]);
    assert!(said(&world)[0].contains("the budget of cancels is spent"));
}

#[test]
fn an_order_whose_next_rung_is_forbidden_for_long_is_given_up_so_that_others_can_be_chosen() {
    let mut world = deaf();
    world.edit(1, |state| state.principal = "root".to_owned());
    world.run(12_000);
    assert_eq!(
        world.outcome_kinds(),
        [OutcomeKind::Withheld, OutcomeKind::Stuck]
    );
    world.victims(200, 24, OTHER, 80);
    world.begin(2, None, "lock tables other write");
    world.lock(2, OTHER, EXCLUSIVE);
    world.obey = Obey::After(5);
    world.run(1000);
    assert_eq!(world.targets(), [1, 2]);
}

#[test]
fn a_session_that_has_gone_on_to_another_request_is_judged_afresh_and_not_by_the_old_order() {
    let mut world = deaf();
    world.edit(1, |state| state.request += 1_000_000);
    world.run(400);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::GoneOn]);
    let decisions: Vec<u64> = world.orders().iter().map(|order| order.decision).collect();
    assert_eq!(
        rungs(&world),
        [0, 1],
        "it slipped away under the first rung"
    );
    assert!(
        decisions[1] > decisions[0],
        "a decision of its own: {decisions:?}"
    );
    world.edit(1, |state| {
        state.request += 1;
        state.principal = "root".to_owned();
    });
    world.run(4000);
    assert_eq!(rungs(&world), [0, 1]);
    assert_eq!(world.verdict(1), Some(PassedOver::ProtectedPrincipal));
}

#[test]
fn an_order_for_an_idle_session_is_not_carried_on_against_what_it_runs_by_then() {
    let mut settings = settings();
    settings.ladder[1].idle = true;
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    kit::sleeper(&mut world, 1, T);
    world.run(4000);
    kit::alter(&mut world, 2);
    world.obey = Obey::Ignore;
    while world.orders().is_empty() {
        world.run(50);
    }
    assert_eq!((world.targets(), rungs(&world)), (vec![1], vec![1]));
    let now_ns = world.now_ns();
    world.edit(1, |state| {
        state.activity = atropos_engine::input::Activity::Busy;
        state.since_ns = now_ns;
    });
    world.run(1100);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::GoneOn]);
    let first = world.orders()[0].decision;
    assert!(
        world.orders()[1..]
            .iter()
            .all(|order| order.decision > first)
    );
}

#[test]
fn an_order_without_an_answer_is_waited_for_until_its_deadline_before_anybody_else_is_chosen() {
    let mut world = kit::m01(settings(), 4000);
    world.obey = Obey::Silent(700);
    world.run(900);
    assert_eq!(world.targets(), [1], "the target may still carry it out");
    world.run(6000);
    assert_eq!(world.targets(), [1]);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Released]);
    assert_eq!(world.outcomes()[0].time_to_release_ns, None);

    let mut world = kit::c1(settings());
    world.obey = Obey::Silent(u64::from(u32::MAX));
    world.run(2000);
    assert_eq!(world.targets(), [2, 2], "the next rung, at the deadline");
    let gap_ns = world.orders()[1].at_ns - world.orders()[0].at_ns;
    assert!((1000 * MS..=1050 * MS).contains(&gap_ns), "{gap_ns}");
}

#[test]
fn an_order_that_could_not_be_sent_is_tried_again_after_a_pause_and_costs_no_budget() {
    let mut settings = settings();
    settings.tuning.per_minute = 2;
    let mut world = kit::m01(settings, 4000);
    world.obey = Obey::Unsent;
    world.run(3400);
    assert_eq!(world.targets(), [1, 1, 1, 1], "nobody else instead");
    let at_ms: Vec<u64> = world
        .orders()
        .iter()
        .map(|order| order.at_ns / MS)
        .collect();
    assert!(
        at_ms.windows(2).all(|pair| pair[1] - pair[0] == 1000),
        "{at_ms:?}"
    );
    assert!(
        world.orders().iter().all(|order| order.rung == 2),
        "the first that works on it"
    );
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Unsent; 4]);
    world.obey = Obey::After(5);
    world.run(1600);
    assert_eq!(world.outcome_kinds().last(), Some(&OutcomeKind::Released));
}

#[test]
fn what_others_lose_elsewhere_is_no_loss_of_an_orders_gain() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.victims(200, 24, OTHER, 80);
    world.run(3000);
    world.begin(2, None, "lock tables other write");
    world.edit(2, |state| state.principal = "root".to_owned());
    world.lock(2, OTHER, EXCLUSIVE);
    world.begin(1, None, "lock tables t write");
    world.lock(1, T, EXCLUSIVE);
    world.run(2000);
    assert_eq!(world.targets(), [1]);
    let outcome = world.outcomes()[0].clone();
    assert_eq!(outcome.result, OutcomeKind::Released);
    let share = outcome.realised_gain_s.expect("released") / outcome.expected_gain_s;
    assert!(share > 0.95, "{share}: all who waited for it go on");
}

#[test]
fn the_same_waiters_behind_another_one_have_gained_nothing() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    for key in [1, 2] {
        world.begin(key, None, "lock tables t write");
    }
    world.lock(1, T, EXCLUSIVE);
    world.run(60);
    world.hold(2, T, EXCLUSIVE);
    world.edit(2, |state| state.principal = "root".to_owned());
    world.run(1500);
    assert_eq!(world.targets(), [1]);
    let outcome = world.outcomes()[0].clone();
    assert_eq!(outcome.result, OutcomeKind::Released);
    let share = outcome.realised_gain_s.expect("released") / outcome.expected_gain_s;
    assert!(share < 0.1, "{share}");
}

#[test]
fn a_member_of_a_group_that_was_refused_or_is_being_ended_is_not_ordered_again() {
    for killed in [false, true] {
        let mut settings = settings();
        settings.resources[0].kind = Kind::Queue;
        settings.tuning.end_groups = true;
        let mut world = World::new(settings);
        world.clients(100, 20, T, EXCLUSIVE, 80, 0);
        world.run(3000);
        for key in 1..=6 {
            world.begin(key, None, "select report");
            world.edit(key, |state| {
                state.principal = "batch".to_owned();
                state.killed = killed && key != 6;
            });
            world.hold(key, T, SHARED);
        }
        world.obey = Obey::Refuse;
        world.run(4000);
        let mut ordered = world.targets();
        let count = ordered.len();
        ordered.sort_unstable();
        ordered.dedup();
        assert_eq!(ordered.len(), count, "nobody twice");
        let open: Vec<u64> = if killed { vec![6] } else { (1..=6).collect() };
        assert_eq!(ordered, open);
    }
}
