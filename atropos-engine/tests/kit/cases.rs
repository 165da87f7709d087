//! The incidents that several tests begin from.

use atropos_engine::Settings;
use atropos_engine::input::Activity;

use super::{BACKUP, DDL, EXCLUSIVE, SHARED, WRITE, World};

pub const T: u64 = 1;
pub const OTHER: u64 = 2;

/// Case c1: a long UPDATE, a queued FLUSH TABLES WITH READ LOCK behind it, and 24 writers behind that.
pub fn c1(settings: Settings) -> World {
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
pub fn m01(settings: Settings, idle_ms: u64) -> World {
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    sleeper(&mut world, 1, T);
    world.run(idle_ms);
    alter(&mut world, 2);
    world
}

pub fn sleeper(world: &mut World, key: u64, instance: u64) {
    world.begin(key, None, "select * from t where id = ?");
    world.lock(key, instance, SHARED);
    world.idle(key, Activity::IdleInTransaction);
}

pub fn alter(world: &mut World, key: u64) {
    world.begin(key, Some(DDL), "alter table t add c int");
    world.lock(key, T, EXCLUSIVE);
    world.ends_after_grant(key, 10);
}

pub fn breach_to_decision_ns(world: &World) -> u64 {
    let decision = world
        .decisions()
        .into_iter()
        .find(|decision| !decision.orders.is_empty())
        .expect("an order");
    decision.at_ns - decision.breach_ns
}
