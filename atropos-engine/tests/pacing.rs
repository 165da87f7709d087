//! After the order: release, refusal, escalation, and what may be decided next.

mod kit;

use atropos_engine::input::OrderResult;
use atropos_engine::record::{Decision, OutcomeKind, PassedOver};
use atropos_engine::settings::{Mode, Settings};
use kit::{EXCLUSIVE, MS, OTHER, Obey, T, WRITE, World, alter, c1, m01, settings};

#[test]
fn when_the_kill_is_refused_the_next_candidate_follows() {
    let mut world = m01(settings(), 4000);
    world.obey = Obey::Refuse;
    world.run(100);
    assert_eq!(world.targets(), [1]);
    world.obey = Obey::After(5);
    world.run(150);
    assert_eq!(world.targets(), [1, 2]);
    assert_eq!(world.verdict(1), Some(PassedOver::CancelledBefore));
    world.run(1000);
    assert_eq!(
        world.outcome_kinds(),
        [OutcomeKind::Refused, OutcomeKind::Released]
    );
}

#[test]
fn an_order_that_came_too_late_does_not_count_against_the_same_work() {
    let mut world = c1(settings());
    world.obey = Obey::Miss;
    world.run(100);
    assert_eq!(world.targets(), [2]);
    world.obey = Obey::After(5);
    world.run(100);
    assert_eq!(world.targets(), [2, 2]);
    assert_eq!(world.outcome_kinds()[0], OutcomeKind::Missed);
}

#[test]
fn a_task_that_does_not_let_go_is_taken_up_the_ladder_and_then_reported_as_stuck() {
    let mut world = c1(settings());
    world.obey = Obey::Ignore;
    world.run(8000);
    let rungs: Vec<&str> = world
        .orders()
        .iter()
        .map(|order| order.rung_name.as_str())
        .collect();
    assert_eq!(
        rungs[..3],
        ["KILL QUERY ID", "KILL QUERY", "KILL CONNECTION"]
    );
    assert!(
        world.orders()[..3]
            .iter()
            .all(|order| order.task.id == 2 && order.decision == 1)
    );
    let gap_ns = world.orders()[1].at_ns - world.orders()[0].at_ns;
    assert!((1000 * MS..=1050 * MS).contains(&gap_ns), "{gap_ns}");
    assert_eq!(world.outcome_kinds()[0], OutcomeKind::Stuck);
}

#[test]
fn nothing_else_is_decided_while_an_order_is_in_flight() {
    let mut world = m01(settings(), 4000);
    world.obey = Obey::Ignore;
    world.run(4000);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn a_writer_that_rolls_back_is_waited_for_and_not_escalated() {
    let mut settings = settings();
    settings.classes[usize::from(WRITE)].undo = 0.05;
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.begin(1, Some(WRITE), "update t set k = k + ?");
    world.run(4000);
    world.lock(1, T, EXCLUSIVE);
    world.obey = Obey::After(3000);
    world.run(650);
    assert_eq!(world.targets(), [1]);
    world.edit(1, |state| state.killed = true);
    world.run(4000);
    assert_eq!(world.targets(), [1]);
    assert_eq!(
        world.outcome_kinds(),
        [OutcomeKind::RollingBack, OutcomeKind::Released]
    );
    assert_eq!(world.outcomes()[1].time_to_release_ns, Some(3000 * MS));
}

#[test]
fn in_observe_mode_the_same_advice_is_given_once() {
    let mut world = m01(
        Settings {
            mode: Mode::Observe,
            ..settings()
        },
        4000,
    );
    world.obey = Obey::NotSent;
    world.run(10_000);
    assert_eq!(world.targets(), [1]);
    assert_eq!(world.decisions().len(), 1);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::NotSent]);
}

#[test]
fn culprits_of_several_tables_are_ended_in_one_decision_and_waited_for_together() {
    let mut world = World::new(settings());
    for n in 0..6 {
        world.victims(100 + 10 * n, 6, 10 + n, 80);
    }
    world.run(3000);
    for n in 0..6 {
        world.begin(1 + n, None, "lock tables t write");
        world.lock(1 + n, 10 + n, EXCLUSIVE);
    }
    world.obey = Obey::After(400);
    world.run(1400);
    let first = |d: &&&Decision| !d.orders.is_empty();
    let decisions = world.decisions();
    let decision = decisions.iter().find(first).expect("an order");
    assert_eq!(decision.orders.len(), 4);
    let chosen = decision
        .candidates
        .iter()
        .filter(|c| c.passed_over.is_none());
    assert_eq!(chosen.count(), 4);
    assert_eq!(
        world.targets().len(),
        4,
        "the rest waits for the release of these"
    );
    world.run(2000);
    let mut ended = world.targets();
    ended.sort_unstable();
    assert_eq!(ended, [1, 2, 3, 4, 5, 6]);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Released; 6]);
}

#[test]
fn beside_a_long_holder_one_that_is_about_to_let_go_or_that_is_twice_as_far_is_left() {
    for progress in [0.8, 0.19] {
        assert_eq!(ended_beside_one_that_has_just_begun(progress), [1]);
    }
    assert_eq!(ended_beside_one_that_has_just_begun(0.12), [1, 2]);
}

/// Whom one decision ends where one culprit has a tenth of its work behind it and another, 2, so much.
fn ended_beside_one_that_has_just_begun(progress: f64) -> Vec<u64> {
    let mut world = World::new(settings());
    world.victims(100, 12, T, 80);
    world.victims(200, 12, OTHER, 80);
    world.run(3000);
    for (key, progress, table) in [(1, 0.1, T), (2, progress, OTHER)] {
        world.begin(key, None, "select for update");
        world.edit(key, |state| {
            state.since_ns -= 2000 * MS;
            state.progress = Some(progress);
        });
        world.lock(key, table, EXCLUSIVE);
    }
    world.run(250);
    world.targets()
}

#[test]
fn two_culprits_are_ended_one_after_the_other_as_soon_as_the_first_has_let_go() {
    let mut world = World::new(settings());
    world.victims(100, 12, T, 80);
    world.victims(200, 12, OTHER, 80);
    world.run(3000);
    world.begin(1, None, "lock tables t write");
    world.lock(1, T, EXCLUSIVE);
    world.begin(2, None, "lock tables other write");
    world.lock(2, OTHER, EXCLUSIVE);
    world.run(1500);
    let mut targets = world.targets();
    targets.sort_unstable();
    assert_eq!(targets, [1, 2]);
    let gap_ns = world.orders()[1].at_ns - world.orders()[0].at_ns;
    assert!(gap_ns <= 700 * MS, "{gap_ns}");
}

#[test]
fn a_report_for_an_order_that_is_not_in_flight_changes_nothing() {
    let mut world = c1(settings());
    world.run(1000);
    let order = world.orders()[0].clone();
    let before = world.effects.len();
    world.report(&order, OrderResult::Missed);
    assert_eq!(world.effects.len(), before);
}

#[test]
fn a_transaction_that_keeps_its_locks_when_its_statement_is_cancelled_is_ended_without_waiting_for_the_deadline()
 {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "select sleep(10)");
    world.lock(1, T, EXCLUSIVE);
    world.obey = Obey::Statement(5);
    world.run(1500);
    assert_eq!(rungs(&world), [0, 2]);
    let gap_ns = world.orders()[1].at_ns - world.orders()[0].at_ns;
    assert!((250 * MS..=350 * MS).contains(&gap_ns), "{gap_ns}");
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Released]);
}

/// A session in everybody's way whose orders all come too late for the request that they name.
fn slippery() -> World {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "insert one row");
    world.lock(1, T, EXCLUSIVE);
    world.obey = Obey::Miss;
    world
}

fn rungs(world: &World) -> Vec<u8> {
    world.orders().iter().map(|order| order.rung).collect()
}

#[test]
fn a_session_that_slips_away_by_short_requests_while_it_holds_on_is_met_by_the_next_rung() {
    let mut world = slippery();
    for request in 0..40 {
        world.edit(1, |state| state.request = 1_000_000 + request);
        world.run(10);
    }
    assert_eq!(rungs(&world), [0, 1, 2]);
    assert_eq!(world.verdict(1), Some(PassedOver::NoRung));
    for request in 100..1600 {
        world.edit(1, |state| state.request = 1_000_000 + request);
        world.run(10);
    }
    assert_eq!(
        rungs(&world),
        [0, 1, 2],
        "what cannot be met does not use the budget up"
    );
}

#[test]
fn whoever_comes_next_on_the_connection_of_one_that_slipped_away_is_met_by_the_first_rung() {
    let mut world = slippery();
    for request in 0..200 {
        world.edit(1, |state| {
            state.request = 1_000_000 + request;
            state.transaction_since_ns = Some(request);
        });
        world.run(10);
    }
    let rungs = rungs(&world);
    assert!(rungs.len() > 1, "it was in the way again and again");
    assert!(rungs.iter().all(|rung| *rung == 0), "{rungs:?}");
}

#[test]
fn waiters_that_give_up_and_come_back_are_no_release() {
    let mut world = m01(settings(), 4000);
    world.obey = Obey::Ignore;
    for _ in 0..20 {
        world.run(97);
        world.give_up();
        world.end(2);
        alter(&mut world, 2);
    }
    assert_eq!(world.targets(), [1]);
    assert_eq!(world.outcome_kinds(), []);
}

#[test]
fn a_writer_that_took_no_notice_is_escalated_and_one_that_rolls_back_for_too_long_as_well() {
    let run = |killed: bool| {
        let mut settings = settings();
        settings.classes[usize::from(WRITE)].undo = 0.05;
        let mut world = World::new(settings);
        world.victims(100, 24, T, 80);
        world.begin(1, Some(WRITE), "update t set k = k + ?");
        world.run(4000);
        world.lock(1, T, EXCLUSIVE);
        world.obey = Obey::Ignore;
        world.run(650);
        world.edit(1, |state| state.killed = killed);
        world.run(8000);
        let ordered_ns = world.orders()[0].at_ns;
        (
            world.orders()[1].at_ns - ordered_ns,
            ordered_ns / MS % 1_000_000,
            world.outcome_kinds().first().copied(),
        )
    };
    let (gap_ns, _, outcome) = run(false);
    assert!((1000 * MS..=1050 * MS).contains(&gap_ns), "{gap_ns}");
    assert_ne!(outcome, Some(OutcomeKind::RollingBack));
    let (gap_ns, worked_ms, outcome) = run(true);
    let patience_ns = worked_ms * MS * 3 / 2;
    assert!(
        (patience_ns..=patience_ns + 100 * MS).contains(&gap_ns),
        "{gap_ns}, not {patience_ns}"
    );
    assert_eq!(outcome, Some(OutcomeKind::RollingBack));
}

#[test]
fn no_further_rung_is_taken_while_events_have_been_lost() {
    let mut world = c1(settings());
    world.obey = Obey::Ignore;
    world.run(900);
    assert_eq!(world.targets(), [2]);
    for _ in 0..30 {
        world.lose(1);
        world.run(50);
    }
    assert_eq!(world.targets(), [2]);
    world.run(1100);
    assert_eq!(world.targets(), [2, 2]);
}

/// A culprit that has been told to go and does not.
fn disobeyed() -> World {
    let mut world = c1(settings());
    world.obey = Obey::Ignore;
    world.run(100);
    assert_eq!(world.targets(), [2]);
    world
}

#[test]
fn a_look_that_fails_is_no_release() {
    let mut world = disobeyed();
    let before = world.effects.len();
    for failed_ms in [50, 700] {
        world.seen = false;
        world.run(failed_ms);
        assert_eq!(
            world.effects.len(),
            before,
            "nothing is known, nothing is said"
        );
        world.seen = true;
        world.run(50);
        assert_eq!(world.effects.len(), before, "it is still in the way");
    }
    world.end(2);
    world.run(600);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Released]);
}

#[test]
fn nobody_is_taken_up_the_ladder_while_the_looks_fail() {
    let mut world = disobeyed();
    world.seen = false;
    world.run(3000);
    assert_eq!(world.targets(), [2]);
    world.seen = true;
    world.run(100);
    assert_eq!(world.targets(), [2, 2], "it is seen to be in the way still");
}

#[test]
fn a_lock_that_cannot_be_seen_is_no_release() {
    let mut world = disobeyed();
    world.blind("a check failed");
    world.walks = false;
    world.run(2000);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Withheld]);
    assert_eq!(world.targets(), [2], "and nobody is taken up the ladder");
    world.blind.clear();
    world.walks = true;
    world.run(100);
    assert_eq!(world.targets(), [2, 2], "it is seen to be in the way still");
}
