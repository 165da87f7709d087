//! Tests of what is a standstill and what is a stall.

use super::super::input::Tick;
use super::super::ledger::Ledger;
use super::super::settings::Kind;
use super::super::testkit::{MS, busy, granted, settings, snapshot, tick, wait};

/// A tick with so many completions, and sessions 1 to `count` running since `since_ms`.
fn counted(at_ms: u64, completed: u64, count: u64, since_ms: u64) -> Tick {
    let mut tick = tick(at_ms, (1..=count).map(|key| busy(key, since_ms)).collect());
    tick.requests.completed = Some(completed);
    tick
}

fn ledger() -> Ledger {
    let mut settings = settings();
    settings.resources[0].kind = Kind::Lock;
    let mut ledger = Ledger::new(&settings.resources, settings.tuning.window_ns);
    ledger.tick(&counted(1000, 9, 0, 0));
    ledger
}

#[test]
fn while_young_requests_stand_still_and_nobody_ends_nothing_is_held() {
    let mut ledger = ledger();
    ledger.tick(&counted(1050, 5, 4, 1040));
    for at_ms in [1100, 1150, 1200] {
        ledger.tick(&counted(at_ms, 0, 6, 1040));
    }
    assert_eq!(ledger.moving_ns(1040 * MS), 10 * MS);
    ledger.tick(&counted(1250, 3, 6, 1040));
    assert_eq!(ledger.moving_ns(1040 * MS), 60 * MS);
    assert_eq!(ledger.moving_ns(1150 * MS), 50 * MS);
}

#[test]
fn a_stall_behind_a_lock_is_no_standstill_since_those_who_do_not_go_on_wait() {
    let mut ledger = ledger();
    let waits = || {
        (2..=9)
            .map(|key| wait(key, 7, 1040, &[granted(1, 1010)]))
            .collect()
    };
    for at_ms in [1100, 1150] {
        ledger.snapshot(&snapshot(at_ms, waits()));
        ledger.tick(&counted(at_ms, 0, 12, 1040));
    }
    assert_eq!(ledger.moving_ns(1010 * MS), 140 * MS);
}

#[test]
fn one_or_two_long_jobs_that_do_not_end_are_no_standstill() {
    let mut ledger = ledger();
    ledger.tick(&counted(1100, 0, 2, 1040));
    assert_eq!(ledger.moving_ns(1000 * MS), 100 * MS);
    let mut old = ledger.clone();
    old.tick(&counted(9000, 0, 9, 1500));
    assert_eq!(old.moving_ns(1000 * MS), 8000 * MS);
}
