//! Whole incidents through the engine: which task is chosen, when, and what is left alone.

mod engine_kit;

use atropos::engine::input::Activity;
use atropos::engine::record::{OutcomeKind, OverloadState, PassedOver};
use engine_kit::{BACKUP, DDL, EXCLUSIVE, MS, Obey, SHARED, WRITE, World, settings};

const T: u64 = 1;

/// Case c1: a long UPDATE, a queued FLUSH TABLES WITH READ LOCK behind it, and 24 writers behind that.
fn c1(world: &mut World) {
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, Some(WRITE), "update sbtest1 set k = k + ?");
    world.lock(1, T, SHARED);
    world.run(700);
    world.begin(2, Some(BACKUP), "flush tables with read lock");
    world.lock(2, T, EXCLUSIVE);
}

/// Case M01: a forgotten transaction, an ALTER queued behind it, 24 readers behind that.
fn m01(world: &mut World, idle_ms: u64) {
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "select * from t where id = ?");
    world.lock(1, T, SHARED);
    world.idle(1, Activity::IdleInTransaction);
    world.run(idle_ms);
    world.begin(2, Some(DDL), "alter table t add c int");
    world.lock(2, T, EXCLUSIVE);
}

#[test]
fn c1_the_queued_backup_lock_is_chosen_within_250_ms_because_undoing_the_update_eats_its_gain() {
    let mut world = World::new(settings());
    c1(&mut world);
    world.run(1000);
    assert_eq!(world.targets(), [2]);
    let decision = world.decisions()[0];
    assert!(
        decision.at_ns - decision.breach_ns <= 250 * MS,
        "{} ns",
        decision.at_ns - decision.breach_ns
    );
    assert_eq!(world.verdict(1), Some(PassedOver::GainTooSmall));
    assert_eq!(world.orders()[0].rung_name, "KILL QUERY ID");
    assert_eq!(world.outcome_kinds(), [OutcomeKind::Released]);
    assert_eq!(world.outcomes()[0].time_to_release_ns, Some(5 * MS));
    println!("{}\n{}", decision.summary, world.outcomes()[0].summary);
}

#[test]
fn m01_the_forgotten_transaction_is_ended_by_the_rung_that_works_on_idle_sessions() {
    let mut world = World::new(settings());
    m01(&mut world, 2000);
    world.run(1000);
    assert_eq!(world.targets(), [1]);
    assert_eq!(world.orders()[0].rung_name, "KILL CONNECTION");
    let decision = world.decisions()[0];
    assert!(decision.at_ns - decision.breach_ns <= 250 * MS);
    println!("{}\n{}", decision.summary, world.outcomes()[0].summary);
    assert_eq!(world.overloads()[0], OverloadState::Resource);
}
