//! Time in which a holder could not go on itself is not its own.

mod kit;

use atropos_engine::Settings;
use atropos_engine::input::{Evidence, Input, ResourceId, SessionKey, SessionUsage, Usage};
use atropos_engine::record::PassedOver;
use atropos_engine::settings::{Kind, Resource};
use kit::{EXCLUSIVE, MS, OTHER, T, World, all_kinds, settings};

/// Locks whose holders cannot be seen, beside those whose can.
fn with_unseen_locks() -> Settings {
    let mut settings = settings();
    let locks = settings.resources[0].clone();
    settings.resources.push(Resource {
        name: "log".to_owned(),
        ..locks
    });
    settings
}

/// Session 1 holds what a crowd of short requests wants.
fn held(settings: Settings, statement: &str) -> World {
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, statement);
    world.lock(1, T, EXCLUSIVE);
    world
}

#[test]
fn a_holder_that_waits_for_a_lock_whose_holders_are_not_seen_is_left_alone() {
    let mut world = held(with_unseen_locks(), "commit");
    // Until those before it have gone.
    world.run(90);
    world.waits_unseen(1);
    world.run(400);
    assert_eq!(world.targets(), [0_u64; 0]);
    assert_eq!(world.verdict(1), Some(PassedOver::HeldUp));
}

#[test]
fn who_was_held_up_is_not_to_blame_for_that_time_when_it_goes_on() {
    let mut world = held(with_unseen_locks(), "commit");
    for _ in 0..60 {
        world.waits_unseen(1);
        world.run(50);
    }
    // The disk is back. It holds for a moment what it has held for three seconds.
    world.waits_unseen_end();
    world.run(100);
    assert_eq!(world.targets(), [0_u64; 0]);
    // From here on it is its own time.
    world.run(300);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn who_found_no_processor_is_not_to_blame_for_that_time() {
    let mut world = held(all_kinds(), "commit");
    for _ in 0..60 {
        world.give(Input::Usage(Usage {
            at_ns: world.now_ns(),
            resource: ResourceId(1),
            covered_ns: 50 * MS,
            evidence: Evidence::Inference,
            complete: true,
            sessions: vec![SessionUsage {
                session: SessionKey(1),
                used: 0,
                lost_ns: 50 * MS,
                held: 0,
            }],
        }));
        world.run(50);
    }
    assert_eq!(world.targets(), [0_u64; 0]);
    world.run(300);
    assert_eq!(world.targets(), [1]);
}

#[test]
fn who_waits_for_a_device_is_at_its_own_work() {
    let mut settings = with_unseen_locks();
    settings.resources[1].kind = Kind::Io;
    let mut world = held(settings, "update");
    for _ in 0..10 {
        world.waits_unseen(1);
        world.run(50);
    }
    assert_eq!(world.targets(), [1]);
}

#[test]
fn who_is_let_on_is_not_to_blame_for_the_time_in_which_it_was_a_victim() {
    let mut settings = settings();
    settings.protected_principals = vec!["backup".to_owned()];
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    world.begin(1, None, "backup");
    world.edit(1, |state| state.principal = "backup".to_owned());
    world.lock(1, OTHER, EXCLUSIVE);
    // As writers of two hot rows: one holds the first and stands in the line for the second.
    world.begin(2, None, "update b");
    world.lock(2, T, EXCLUSIVE);
    world.run(90);
    world.lock(2, OTHER, EXCLUSIVE);
    world.run(3000);
    assert_eq!(world.verdict(2), Some(PassedOver::Victim { of: 1 }));
    world.end(1);
    world.run(100);
    assert_eq!(world.targets(), [0_u64; 0]);
    world.run(300);
    assert_eq!(world.targets(), [2]);
}
