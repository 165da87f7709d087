//! Whole incidents through the engine: which task is chosen, and when.

mod kit;

use atropos_engine::record::{Effect, Level, OutcomeKind, OverloadState, PassedOver};
use atropos_engine::settings::{Mode, Settings, SloLimit};
use kit::{
    BACKUP, DDL, EXCLUSIVE, MS, OTHER, Obey, SHARED, Sense, T, WRITE, World, alter,
    breach_to_decision_ns, c1, m01, settings, sleeper,
};

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
    assert_eq!(world.targets(), [0_u64; 0]);
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
fn m01_the_forgotten_transaction_is_ended_by_the_rung_that_works_on_idle_sessions() {
    let mut world = m01(settings(), 4000);
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
fn a_stall_that_is_30_s_old_at_the_first_look_is_decided_within_three_ticks() {
    let mut stalled = m01(settings(), 4000);
    stalled.obey = Obey::NotSent;
    stalled.engine = atropos_engine::Engine::new(Settings {
        mode: Mode::Observe,
        ..settings()
    });
    stalled.run(30_000);
    let mut world = stalled;
    world.engine = atropos_engine::Engine::new(settings());
    world.effects.clear();
    world.obey = Obey::After(5);
    world.run(150);
    assert_eq!(world.targets(), [1]);
    assert_eq!(world.effects.first(), Some(&Effect::Level(Level::Suspect)));
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
fn a_wait_of_half_the_limit_is_a_sign_and_a_shorter_one_is_none() {
    let mut settings = settings();
    settings.slo.limit = SloLimit::Absolute { ns: 400 * MS };
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, Some(DDL), "alter");
    world.lock(1, T, EXCLUSIVE);
    world.run(190);
    assert_eq!(world.effects, []);
    world.run(140);
    assert_eq!(world.effects, [Effect::Level(Level::Suspect)]);
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
fn one_look_at_a_stalled_target_names_the_holder_and_the_rung_and_decides_nothing() {
    let mut stalled = m01(settings(), 4000);
    stalled.obey = Obey::NotSent;
    stalled.run(5000);
    let mut world = stalled;
    world.engine = atropos_engine::Engine::new(settings());
    world.effects.clear();
    world.tick();
    let survey = world.engine.survey();
    assert_eq!(survey.candidates[0].task.id, 1);
    assert_eq!(survey.candidates[0].passed_over, None);
    assert_eq!(survey.candidates[1].task.id, 2);
    assert!(survey.resources[0].level > 0.5);
    assert_eq!(
        world.engine.rung_for(survey.candidates[0].task.session),
        Some(2)
    );
    assert_eq!(world.engine.survey(), survey);
    assert_eq!(world.targets(), [0_u64; 0]);
}

#[test]
fn a_backup_lock_that_already_holds_its_first_half_and_waits_to_upgrade_is_still_only_queued() {
    // The holder of the shared half blocks new writers by what it holds and waits on the same lock for the second half.
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, Some(WRITE), "update t set k = k + ?");
    world.lock(1, T, SHARED);
    world.run(700);
    world.begin(2, Some(BACKUP), "flush tables with read lock");
    world.hold(2, T, EXCLUSIVE);
    world.lock(2, T, EXCLUSIVE);
    world.run(1000);
    assert_eq!(world.targets(), [2]);
}

#[test]
fn a_long_queue_is_judged_by_its_holder() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "lock tables t write");
    world.lock(1, T, EXCLUSIVE);
    for key in 1000..1300 {
        world.begin(key, None, "update t");
        world.lock(key, T, EXCLUSIVE);
    }
    world.run(250);
    assert_eq!(world.targets(), [1]);
    assert!(world.decisions()[0].candidates.len() <= 64);
}
