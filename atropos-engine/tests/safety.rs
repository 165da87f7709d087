//! What is left alone: the innocent, the protected, and everything while the evidence is not whole.

mod kit;

use atropos_engine::input::Evidence;
use atropos_engine::record::{Effect, OverloadState, PassedOver};
use kit::{
    BACKUP, DDL, EXCLUSIVE, MS, OTHER, REPLICATION, SHARED, Sense, T, WRITE, World, c1, m01,
    settings, sleeper,
};

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
    assert_eq!(world.targets(), [0_u64; 0]);
    assert_eq!(world.verdict(2), Some(PassedOver::ProtectedClass));
    world.run(3000);
    assert_eq!(world.targets(), [1]);
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
        assert_eq!(world.targets(), [0_u64; 0], "holds of {hold_ms} ms");
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
fn alike_culprits_that_ran_side_by_side_are_ended_one_after_the_other() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    for culprit in [1, 2] {
        world.begin(culprit, None, "select sum(v) from t");
        world.lock(culprit, T, SHARED);
    }
    world.begin(3, None, "lock tables t write");
    world.lock(3, T, EXCLUSIVE);
    world.edit(3, |state| state.principal = "root".to_owned());
    world.run(6000);
    let mut ended = world.targets();
    ended.sort_unstable();
    assert_eq!(ended, [1, 2]);
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
        assert_eq!(world.targets(), [0_u64; 0]);
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
    assert_eq!(world.targets(), [0_u64; 0]);
    assert_eq!(world.verdict(1), Some(PassedOver::Own));
}

#[test]
fn a_task_that_is_nearly_done_is_left_to_finish() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "select big");
    world.edit(1, |state| {
        state.since_ns -= 10_000 * MS;
        state.progress = Some(0.95);
    });
    world.lock(1, T, EXCLUSIVE);
    world.run(1000);
    assert_eq!(world.targets(), [0_u64; 0]);
    assert_eq!(world.verdict(1), Some(PassedOver::NearlyDone));
    // At 95 % after 10 s it must be over half a second later; progress that says so for longer is not believed.
    world.run(1500);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn lost_events_forbid_orders_for_the_quarantine_and_no_longer() {
    let mut world = m01(settings(), 4000);
    for _ in 0..20 {
        world.run(50);
        world.lose(3);
    }
    assert_eq!(world.targets(), [0_u64; 0]);
    assert_eq!(world.verdict(1), Some(PassedOver::LostEvents));
    world.run(900);
    assert_eq!(world.targets(), [0_u64; 0]);
    world.run(200);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn a_blind_resource_is_never_a_reason_to_cancel() {
    let mut world = m01(settings(), 4000);
    world.blind("the layout check failed");
    world.run(3000);
    assert_eq!(world.targets(), [0_u64; 0]);
    assert_eq!(world.overloads(), [OverloadState::Regular]);
    let said = world.effects.iter().find_map(|effect| match effect {
        Effect::Overload(note) => Some(note.reason.clone()),
        _ => None,
    });
    let said = said.unwrap();
    assert!(
        said.contains("lost to metadata_lock in this window, but the layout check failed"),
        "what is lost is said: {said}"
    );
}

#[test]
fn whoever_stands_in_a_queue_is_a_victim_whatever_it_holds_elsewhere() {
    let mut world = World::new(settings());
    world.victims(100, 12, T, 80);
    world.victims(200, 12, OTHER, 80);
    world.run(3000);
    // As writers of a few hot rows: one forgot its transaction, the next holds the second row and queues for the first.
    sleeper(&mut world, 1, T);
    world.begin(2, None, "update b");
    world.lock(2, OTHER, EXCLUSIVE);
    world.lock(2, T, EXCLUSIVE);
    world.ends_after_grant(2, 20);
    world.run(2500);
    assert_eq!(world.verdict(2), Some(PassedOver::Victim { of: 1 }));
    world.run(3000);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn one_of_many_equal_writers_is_given_a_second_before_it_is_a_culprit() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    for key in 1..=4 {
        world.begin(key, None, "update hot");
        world.edit(key, |state| state.fingerprint = 5);
        world.run(60);
        if key < 4 {
            world.end(key);
        }
    }
    world.run(3000);
    world.lock(4, T, EXCLUSIVE);
    world.run(900);
    assert_eq!(world.targets(), [0_u64; 0]);
    assert_eq!(world.verdict(4), Some(PassedOver::Ordinary));
    world.run(300);
    assert_eq!(world.targets(), [4]);
}

#[test]
fn incomplete_walks_and_inferred_waits_are_no_evidence() {
    for (complete, evidence) in [
        (false, Evidence::Walk),
        (true, Evidence::Inference),
        (true, Evidence::Snapshot),
    ] {
        let mut world = m01(settings(), 4000);
        world.complete = complete;
        world.evidence = evidence;
        world.run(2000);
        assert_eq!(world.targets(), [0_u64; 0]);
        assert_eq!(world.verdict(1), Some(PassedOver::WeakEvidence));
    }
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
    assert_eq!(world.targets(), [0_u64; 0]);
    assert!(matches!(world.verdict(1), Some(PassedOver::Victim { .. })));
}

#[test]
fn one_slow_report_on_a_server_with_little_traffic_raises_no_alarm() {
    let mut world = World::new(settings());
    world.victims(100, 1, T, 80);
    world.begin(1, None, "select report");
    world.run(20_000);
    assert!(world.effects.is_empty(), "{:?}", world.effects);
}

#[test]
fn a_view_that_is_not_renewed_is_no_evidence() {
    let mut world = m01(settings(), 10);
    world.engine = atropos_engine::Engine::new({
        let mut settings = settings();
        settings.classes[usize::from(DDL)].protected_queued = true;
        settings
    });
    world.run(300);
    world.walks = false;
    world.run(1000);
    assert_eq!(world.targets(), [0_u64; 0]);
    assert!(world.decisions().iter().any(|d| {
        d.candidates
            .iter()
            .any(|c| c.task.id == 1 && c.passed_over == Some(PassedOver::WeakEvidence))
    }));
}

#[test]
fn nobody_is_cancelled_before_it_has_been_in_the_way_for_the_least_time() {
    let mut settings = settings();
    settings.tuning.min_blocking_ns = 400 * MS;
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    let held_ns = world.now_ns();
    world.begin(1, None, "lock tables t write");
    world.lock(1, T, EXCLUSIVE);
    world.run(1000);
    assert_eq!(world.targets(), [1]);
    let after_ns = world.orders()[0].at_ns - held_ns;
    assert!((400 * MS..=450 * MS).contains(&after_ns), "{after_ns}");
    assert_eq!(
        world.decisions().len(),
        1,
        "what passes by itself is not said"
    );
}

#[test]
fn long_work_of_protected_classes_does_not_break_the_objective() {
    let mut world = World::new(settings());
    world.victims(100, 1, T, 80);
    world.begin(1, Some(DDL), "alter table huge");
    world.begin(2, Some(BACKUP), "backup stage start");
    world.run(10_000);
    assert!(world.effects.is_empty(), "{:?}", world.effects);
}

#[test]
fn slow_work_beside_a_little_waiting_is_a_regular_overload() {
    let mut world = World::new(settings());
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.stop_victims();
    world.begin(1, None, "lock tables other write");
    world.lock(1, OTHER, EXCLUSIVE);
    for key in 200..230 {
        world.begin(key, None, "select heavy");
    }
    for key in 230..234 {
        world.begin(key, None, "select from other");
        world.lock(key, OTHER, SHARED);
    }
    world.run(3000);
    assert_eq!(world.overloads(), [OverloadState::Regular]);
    assert_eq!(world.targets(), [0_u64; 0]);
}
