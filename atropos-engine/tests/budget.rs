//! How often work may be ended: within the budgets, and again when it comes back.

mod kit;

use atropos_engine::record::{Order, PassedOver};
use atropos_engine::settings::Repeat;
use kit::{BACKUP, EXCLUSIVE, MS, T, World, c1, settings};

#[test]
fn the_same_work_is_not_cancelled_again_when_its_client_retries() {
    for repeat in [Repeat::Endure, Repeat::Alert] {
        let mut settings = settings();
        settings.tuning.repeat = repeat;
        let mut world = c1(settings);
        world.run(1000);
        assert_eq!(world.targets(), [2]);
        world.run(2000);
        world.begin(2, Some(BACKUP), "flush tables with read lock");
        world.lock(2, T, EXCLUSIVE);
        world.run(1000);
        assert_eq!(world.targets(), [2]);
        assert_eq!(world.verdict(2), Some(PassedOver::CancelledBefore));
    }
}

/// When the same statement is ended, milliseconds since it first began, if it comes back each time and stays.
fn ended_at_ms(repeat: Repeat) -> Vec<u64> {
    let mut settings = settings();
    settings.tuning.repeat = repeat;
    let mut world = World::new(settings);
    world.victims(100, 8, T, 80);
    world.run(1000);
    let begun_ms = world.now_ms;
    while world.now_ms < begun_ms + 8_500 {
        world.begin(1, None, "lock tables t write");
        world.lock(1, T, EXCLUSIVE);
        let orders = world.orders().len();
        while world.orders().len() == orders && world.now_ms < begun_ms + 8_500 {
            world.run(50);
        }
        world.run(100);
    }
    let at_ms = |order: &&Order| order.at_ns / MS - begun_ms;
    world.orders().iter().map(at_ms).collect()
}

#[test]
fn work_that_comes_back_is_cancelled_again_after_a_pause_that_doubles_each_time() {
    let at_ms = ended_at_ms(Repeat::BackOff);
    let gaps_ms: Vec<u64> = at_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps_ms, [1000, 2000, 4000]);
    assert_eq!(ended_at_ms(Repeat::Endure).len(), 1);
    assert!(ended_at_ms(Repeat::Again).len() > 6);
}

#[test]
fn when_the_budget_is_spent_the_decision_says_so() {
    let mut settings = settings();
    settings.tuning.per_minute = 3;
    let mut world = World::new(settings);
    for n in 0..5 {
        world.victims(100 + 10 * n, 6, 10 + n, 80);
    }
    world.run(3000);
    for n in 0..5 {
        world.begin(1 + n, None, "lock tables t write");
        world.lock(1 + n, 10 + n, EXCLUSIVE);
    }
    world.run(1400);
    assert_eq!(world.targets().len(), 3);
    let decisions = world.decisions();
    let decision = decisions
        .iter()
        .find(|decision| !decision.orders.is_empty())
        .expect("an order");
    assert!(
        decision.summary.contains("the budget of cancels is spent"),
        "{}",
        decision.summary
    );
    world.run(2000);
    assert_eq!(world.targets().len(), 3);
    let decisions = world.decisions();
    let last = decisions.last().expect("said again");
    assert!(
        last.orders.is_empty() && last.summary.contains("the budget of cancels is spent"),
        "{}",
        last.summary
    );
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
fn the_hourly_budget_is_kept_as_well() {
    let mut settings = settings();
    settings.tuning.per_hour = 1;
    let mut world = World::new(settings);
    world.victims(100, 24, T, 80);
    world.run(3000);
    for key in 1..=2 {
        world.begin(key, None, "lock tables t write");
        world.lock(key, T, EXCLUSIVE);
        world.run(2000);
    }
    world.run(61_000);
    assert_eq!(world.targets(), [1]);
}
