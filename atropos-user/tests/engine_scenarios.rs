//! Whole incidents through the engine: which task is chosen, when, and what is left alone.

mod engine_kit;

use atropos::engine::input::{Activity, Evidence, OrderResult};
use atropos::engine::record::{Effect, Level, OutcomeKind, OverloadState, PassedOver};
use atropos::engine::settings::{Mode, Settings};
use engine_kit::{
    BACKUP, DDL, EXCLUSIVE, MS, Obey, REPLICATION, SHARED, Sense, WRITE, World, settings,
};

const T: u64 = 1;
const OTHER: u64 = 2;

/// Case c1: a long UPDATE, a queued FLUSH TABLES WITH READ LOCK behind it, and 24 writers behind that.
fn c1(settings: Settings) -> World {
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, Some(WRITE), "update sbtest1 set k = k + ?");
    world.lock(1, T, SHARED);
    world.run(700);
    world.begin(2, Some(BACKUP), "flush tables with read lock");
    world.lock(2, T, EXCLUSIVE);
    world.ends_after_grant(2, 10);
    world
}

/// Case M01: a forgotten transaction, an ALTER queued behind it, 24 readers behind that.
fn m01(settings: Settings, idle_ms: u64) -> World {
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    sleeper(&mut world, 1, T);
    world.run(idle_ms);
    alter(&mut world, 2);
    world
}

fn sleeper(world: &mut World, key: u64, instance: u64) {
    world.begin(key, None, "select * from t where id = ?");
    world.lock(key, instance, SHARED);
    world.idle(key, Activity::IdleInTransaction);
}

fn alter(world: &mut World, key: u64) {
    world.begin(key, Some(DDL), "alter table t add c int");
    world.lock(key, T, EXCLUSIVE);
    world.ends_after_grant(key, 10);
}

fn breach_to_decision_ns(world: &World) -> u64 {
    let decision = world
        .decisions()
        .into_iter()
        .find(|decision| !decision.orders.is_empty())
        .expect("an order");
    decision.at_ns - decision.breach_ns
}

#[test]
fn c1_the_queued_backup_lock_is_chosen_within_250_ms_because_undoing_the_update_eats_its_gain() {
    let mut world = c1(settings());
    world.run(1000);
    assert_eq!(world.targets(), [2]);
    assert!(breach_to_decision_ns(&world) <= 250 * MS);
    assert_eq!(world.orders()[0].rung_name, "KILL QUERY ID");
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Released]);
    assert_eq!(world.outcomes()[0].time_to_release_ns, Some(5 * MS));
    assert!(world.outcomes()[0].realised_gain_s.expect("known") > 0.5);
    let decision = world.decisions()[0];
    assert_eq!(
        decision.summary,
        "KILL QUERY ID for session 2 (app, flush tables with read lock), running 0.10 s, of it waiting 0.10 s for table \
         shop.t1, queued for table shop.t1 with 24 sessions waiting behind it, to blame for 93 % of the time lost to \
         metadata_lock (level 0.67); ending it frees about 0.75 s; next, session 1 (app, update sbtest1 set k = k + ?): \
         ending it needs about 0.80 s of undoing, which eats the gain"
    );
}

#[test]
fn c1_with_a_backup_that_may_not_even_be_taken_from_the_queue_cancels_nothing_and_says_why() {
    let mut settings = settings();
    settings.classes[usize::from(BACKUP)].protected_queued = true;
    let mut world = c1(settings);
    world.run(1000);
    assert_eq!(world.targets(), []);
    assert_eq!(world.verdict(2), Some(PassedOver::ProtectedClass));
    assert_eq!(world.verdict(1), Some(PassedOver::GainTooSmall));
    assert_eq!(world.decisions().len(), 1, "said once, not at every tick");
    assert!(
        world.decisions()[0]
            .summary
            .contains("its class backup is protected")
    );
}

#[test]
fn c1_with_a_protected_backup_and_an_update_that_is_cheap_to_undo_takes_the_update() {
    let mut settings = settings();
    settings.classes[usize::from(BACKUP)].protected_queued = true;
    settings.classes[usize::from(WRITE)].undo = 0.1;
    let mut world = c1(settings);
    world.run(1000);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn m01_the_forgotten_transaction_is_ended_by_the_rung_that_works_on_idle_sessions() {
    let mut world = m01(settings(), 2000);
    world.run(1000);
    assert_eq!(world.targets(), [1]);
    assert_eq!(world.orders()[0].rung_name, "KILL CONNECTION");
    assert!(breach_to_decision_ns(&world) <= 250 * MS);
    assert_eq!(
        world.overloads(),
        [OverloadState::Resource, OverloadState::Ended]
    );
    let realised_s = world.outcomes()[0].realised_gain_s.expect("known");
    assert!(
        (realised_s - world.outcomes()[0].expected_gain_s).abs() < 0.2,
        "{realised_s}"
    );
}

#[test]
fn m01_with_a_session_that_went_idle_only_now_ends_the_queued_alter() {
    let mut world = m01(settings(), 10);
    world.run(400);
    assert_eq!(world.targets(), [2]);
    assert_eq!(world.verdict(1), Some(PassedOver::NotIdleLongEnough));
}

#[test]
fn m01_with_two_sleepers_ends_the_alter_because_ending_one_sleeper_would_not_do() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    sleeper(&mut world, 1, T);
    sleeper(&mut world, 3, T);
    world.run(2000);
    alter(&mut world, 2);
    world.run(1000);
    assert_eq!(world.targets(), [2]);
}

#[test]
fn an_alter_that_has_worked_for_long_before_it_queued_is_protected_as_a_running_one() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(2, Some(DDL), "alter table t engine = innodb");
    world.run(3000);
    sleeper(&mut world, 1, T);
    world.run(100);
    world.lock(2, T, EXCLUSIVE);
    world.run(350);
    assert_eq!(world.targets(), []);
    assert_eq!(world.verdict(2), Some(PassedOver::ProtectedClass));
    world.run(1000);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn a_hold_of_100_s_on_a_table_that_nobody_wants_or_one_request_waits_for_never_wins() {
    for unimportant_waiter in [false, true] {
        let mut world = World::new(settings());
        sleeper(&mut world, 5, OTHER);
        world.run(100_000);
        world.victims(100, 24, T, 80);
        world.run(3000);
        if unimportant_waiter {
            world.begin(6, Some(DDL), "alter table other add c int");
            world.lock(6, OTHER, EXCLUSIVE);
            world.begin(7, None, "select * from other");
            world.lock(7, OTHER, SHARED);
        }
        world.begin(1, None, "lock tables t write");
        world.lock(1, T, EXCLUSIVE);
        world.run(1000);
        assert_eq!(
            world.targets().first(),
            Some(&1),
            "unimportant waiter: {unimportant_waiter}"
        );
        assert!(breach_to_decision_ns(&world) <= 250 * MS);
        if unimportant_waiter {
            let first = world
                .decisions()
                .into_iter()
                .find(|d| !d.orders.is_empty())
                .expect("an order");
            let decoy = first
                .candidates
                .iter()
                .find(|c| c.task.id == 5)
                .expect("listed");
            assert_eq!(decoy.passed_over, Some(PassedOver::MinorCause));
        }
    }
}

#[test]
fn an_innocent_long_request_that_is_in_nobodys_way_is_not_even_a_candidate() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.begin(9, None, "select sleep(30)");
    world.run(5000);
    world.begin(1, None, "lock tables t write");
    world.lock(1, T, EXCLUSIVE);
    world.run(1000);
    assert_eq!(world.targets(), [1]);
    assert!(
        world
            .decisions()
            .iter()
            .all(|d| d.candidates.iter().all(|c| c.task.id != 9))
    );
}

#[test]
fn a_stall_that_is_30_s_old_at_the_first_look_is_decided_within_three_ticks() {
    let mut stalled = m01(settings(), 2000);
    stalled.obey = Obey::NotSent;
    stalled.engine = atropos::engine::Engine::new(Settings {
        mode: Mode::Observe,
        ..settings()
    });
    stalled.run(30_000);
    let mut world = stalled;
    world.engine = atropos::engine::Engine::new(settings());
    world.effects.clear();
    world.obey = Obey::After(5);
    world.run(150);
    assert_eq!(world.targets(), [1]);
    assert_eq!(world.effects.first(), Some(&Effect::Level(Level::Suspect)));
}

#[test]
fn when_the_kill_is_refused_the_next_candidate_follows() {
    let mut world = m01(settings(), 2000);
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
    let mut world = m01(settings(), 2000);
    world.obey = Obey::Ignore;
    world.run(4000);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn a_writer_that_rolls_back_is_waited_for_and_not_escalated() {
    let mut settings = settings();
    settings.classes[usize::from(WRITE)].undo = 0.1;
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
        2000,
    );
    world.obey = Obey::NotSent;
    world.run(10_000);
    assert_eq!(world.targets(), [1]);
    assert_eq!(world.decisions().len(), 1);
    assert_eq!(world.outcome_kinds(), [OutcomeKind::NotSent]);
}

#[test]
fn too_much_demand_without_a_culprit_is_handed_off_once_and_cancels_nothing() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.stop_victims();
    for key in 200..230 {
        world.begin(key, None, "select heavy");
    }
    world.run(5000);
    assert_eq!(world.overloads(), [OverloadState::Regular]);
    assert!(world.orders().is_empty() && world.decisions().is_empty());
}

#[test]
fn many_equal_small_holders_are_not_cancelled_one_by_one() {
    for (sense, hold_ms) in [
        (Sense::Walk, 3),
        (Sense::Walk, 60),
        (Sense::Events, 3),
        (Sense::Events, 60),
    ] {
        let mut world = World::new(settings());
        world.sense = sense;
        world.clients(100, 30, T, EXCLUSIVE, 40, hold_ms);
        world.run(20_000);
        assert_eq!(world.targets(), [], "holds of {hold_ms} ms");
        assert!(
            world.decisions().len() < 20,
            "{} decisions",
            world.decisions().len()
        );
    }
}

#[test]
fn a_load_that_drops_to_zero_and_comes_back_cancels_nothing() {
    let mut world = World::new(settings());
    for _ in 0..3 {
        world.victims(100, 24, T, 80);
        world.run(4000);
        world.stop_victims();
        world.run(4000);
    }
    assert!(world.effects.is_empty(), "{:?}", world.effects);
}

#[test]
fn a_culprit_that_blocks_more_and_more_requests_is_found_in_a_slow_ramp() {
    let mut world = World::new(settings());
    for n in 0..24 {
        world.victims(100 + n, 1, 10 + n, 80);
    }
    world.run(3000);
    world.begin(1, None, "select slow for update");
    for n in 0..24 {
        world.lock(1, 10 + n, EXCLUSIVE);
        world.run(250);
    }
    assert_eq!(world.targets(), [1]);
    assert!(breach_to_decision_ns(&world) <= 250 * MS);
}

#[test]
fn a_minority_of_blocked_requests_among_many_fast_ones_is_seen() {
    let mut world = World::new(settings());
    world.victims(100, 20, T, 40);
    world.victims(200, 4, OTHER, 80);
    world.run(3000);
    world.begin(1, None, "lock tables other write");
    world.lock(1, OTHER, EXCLUSIVE);
    world.run(1000);
    assert_eq!(world.targets(), [1]);
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
fn the_same_work_is_not_cancelled_again_when_its_client_retries() {
    let mut world = c1(settings());
    world.run(1000);
    assert_eq!(world.targets(), [2]);
    world.run(2000);
    world.begin(2, Some(BACKUP), "flush tables with read lock");
    world.lock(2, T, EXCLUSIVE);
    world.run(1000);
    assert_eq!(world.targets(), [2]);
    assert_eq!(world.verdict(2), Some(PassedOver::CancelledBefore));
}

#[test]
fn protected_tasks_and_users_are_named_and_left_alone() {
    for (class, user, reason) in [
        (Some(REPLICATION), "system user", PassedOver::ProtectedClass),
        (None, "root", PassedOver::ProtectedPrincipal),
    ] {
        let mut world = World::new(settings());
        world.victims(100, 24, T, 80);
        world.run(3000);
        world.begin(1, class, "lock tables t write");
        world.edit(1, |state| state.principal = user.to_owned());
        world.lock(1, T, EXCLUSIVE);
        world.run(2000);
        assert_eq!(world.targets(), []);
        assert_eq!(world.verdict(1), Some(reason));
    }
}

#[test]
fn the_agents_own_session_is_never_ordered_to_end() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "select from information_schema");
    world.edit(1, |state| state.own = true);
    world.lock(1, T, EXCLUSIVE);
    world.run(2000);
    assert_eq!(world.targets(), []);
    assert_eq!(world.verdict(1), Some(PassedOver::Own));
}

#[test]
fn a_task_that_is_nearly_done_is_left_to_finish() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "select big");
    world.edit(1, |state| state.progress = Some(0.95));
    world.lock(1, T, EXCLUSIVE);
    world.run(1000);
    assert_eq!(world.targets(), []);
    assert_eq!(world.verdict(1), Some(PassedOver::NearlyDone));
}

#[test]
fn lost_events_forbid_orders_for_the_quarantine_and_no_longer() {
    let mut world = m01(settings(), 2000);
    for _ in 0..20 {
        world.run(50);
        world.lose(3);
    }
    assert_eq!(world.targets(), []);
    assert_eq!(world.verdict(1), Some(PassedOver::LostEvents));
    world.run(900);
    assert_eq!(world.targets(), []);
    world.run(200);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn a_blind_resource_is_never_a_reason_to_cancel() {
    let mut world = m01(settings(), 2000);
    world.blind("the layout check failed");
    world.run(3000);
    assert_eq!(world.targets(), []);
    assert_eq!(world.overloads(), [OverloadState::Regular]);
}

#[test]
fn incomplete_walks_and_inferred_waits_are_no_evidence() {
    for (complete, evidence) in [
        (false, Evidence::Walk),
        (true, Evidence::Inference),
        (true, Evidence::Snapshot),
    ] {
        let mut world = m01(settings(), 2000);
        world.complete = complete;
        world.evidence = evidence;
        world.run(2000);
        assert_eq!(world.targets(), []);
        assert_eq!(world.verdict(1), Some(PassedOver::WeakEvidence));
    }
}

#[test]
fn the_budget_of_orders_is_kept() {
    let mut settings = settings();
    settings.tuning.per_minute = 2;
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    for key in 1..=4 {
        world.begin(key, None, "lock tables t write");
        world.lock(key, T, EXCLUSIVE);
        world.run(2000);
    }
    assert_eq!(world.targets(), [1, 2]);
    assert_eq!(world.verdict(3), Some(PassedOver::Budget));
    world.run(60_000);
    assert_eq!(world.targets().len(), 4);
}

#[test]
fn a_deadlock_is_left_to_the_server() {
    let mut world = World::new(settings());
    world.victims(100, 12, T, 80);
    world.victims(200, 12, OTHER, 80);
    world.run(3000);
    for (key, first, second) in [(1, T, OTHER), (2, OTHER, T)] {
        world.begin(key, None, "lock tables write");
        world.lock(key, first, EXCLUSIVE);
        world.edit(key, |state| state.request += second);
    }
    world.lock(1, OTHER, EXCLUSIVE);
    world.lock(2, T, EXCLUSIVE);
    world.run(3000);
    assert_eq!(world.targets(), []);
    assert!(matches!(world.verdict(1), Some(PassedOver::Victim { .. })));
}

#[test]
fn the_level_rises_within_a_tick_of_a_long_wait_and_falls_after_a_quiet_time() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, Some(DDL), "alter");
    world.lock(1, T, EXCLUSIVE);
    world.begin(3, None, "select");
    world.lock(3, T, SHARED);
    world.run(62);
    assert_eq!(world.effects.first(), Some(&Effect::Level(Level::Suspect)));
    world.end(1);
    world.end(3);
    world.run(1900);
    assert!(!world.effects.contains(&Effect::Level(Level::Calm)));
    world.run(700);
    assert!(world.effects.contains(&Effect::Level(Level::Calm)));
}

#[test]
fn what_events_tell_and_what_snapshots_tell_lead_to_the_same_order_at_the_same_time() {
    let run = |sense| {
        let mut world = World::new(settings());
        world.sense = sense;
        world.victims(100, 24, T, 80);
        world.run(3000);
        world.begin(1, None, "lock tables t write");
        world.lock(1, T, EXCLUSIVE);
        world.run(1000);
        let orders: Vec<(u64, u64, u8)> = world
            .orders()
            .iter()
            .map(|o| (o.at_ns, o.task.id, o.rung))
            .collect();
        let outcomes: Vec<_> = world
            .outcomes()
            .iter()
            .map(|o| (o.result, o.time_to_release_ns))
            .collect();
        (orders, outcomes)
    };
    let by_walk = run(Sense::Walk);
    assert_eq!(by_walk.0.len(), 1);
    assert_eq!(by_walk, run(Sense::Events));
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
