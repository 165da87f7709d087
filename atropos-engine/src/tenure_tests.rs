//! Tests of how long holders keep what others want, and of what is usual.

use super::super::input::{InstanceKey, SessionKey, SessionState, Wait};
use super::super::ledger::Ledger;
use super::super::settings::{Kind, Settings};
use super::super::testkit::{MS, RESOURCE, busy, granted, settings, snapshot, tick, wait};

const PLACE: (super::super::input::ResourceId, InstanceKey) = (RESOURCE, InstanceKey(7));

fn of_kind(kind: Kind) -> Ledger {
    let mut settings: Settings = settings();
    settings.resources[0].kind = kind;
    Ledger::new(&settings.resources, settings.tuning.window_ns)
}

fn look(ledger: &mut Ledger, at_ms: u64, waits: Vec<Wait>, sessions: Vec<SessionState>) {
    ledger.snapshot(&snapshot(at_ms, waits));
    ledger.tick(&tick(at_ms, sessions));
}

/// Session 99 waits while holders 1 to `count` follow each other, each for 10 ms when it is seen.
fn one_after_the_other(ledger: &mut Ledger, count: u64) {
    for n in 1..=count {
        let at_ms = 1000 + n * 50;
        let waits = vec![wait(99, 7, 1000, &[granted(n, at_ms - 10)])];
        look(
            ledger,
            at_ms,
            waits,
            vec![busy(n, at_ms - 10), busy(99, 1000)],
        );
    }
}

#[test]
fn a_holder_of_a_lock_is_measured_by_those_that_have_let_go() {
    let mut ledger = of_kind(Kind::Lock);
    one_after_the_other(&mut ledger, 8);
    let now_ms = 1450;
    let waits = vec![wait(99, 7, 1000, &[granted(50, now_ms - 40)])];
    look(
        &mut ledger,
        now_ms,
        waits,
        vec![busy(50, now_ms - 40), busy(99, 1000)],
    );
    let unusual = |since_ms: u64| ledger.holds_unusually_long(PLACE, SessionKey(50), since_ms * MS);
    assert!(!unusual(now_ms - 199));
    assert!(unusual(now_ms - 200));
}

#[test]
fn a_few_that_have_let_go_do_not_tell_what_is_usual_for_a_lock() {
    let mut ledger = of_kind(Kind::Lock);
    one_after_the_other(&mut ledger, 5);
    assert!(ledger.holds_unusually_long(PLACE, SessionKey(5), 1240 * MS));
}

#[test]
fn a_holder_of_a_slot_is_measured_by_those_beside_it() {
    let mut ledger = of_kind(Kind::Queue);
    let holders: Vec<_> = (1..=8).map(|n| granted(n, 1000 + n * 20)).collect();
    let sessions = (1..=8).map(|n| busy(n, 1000 + n * 20)).collect();
    look(
        &mut ledger,
        2000,
        vec![wait(99, 7, 1500, &holders)],
        sessions,
    );
    assert!(!ledger.holds_unusually_long(PLACE, SessionKey(1), 1020 * MS));
}

#[test]
fn one_that_takes_the_same_lock_again_in_the_same_request_goes_on_where_it_was() {
    let mut ledger = of_kind(Kind::Lock);
    for n in 0..4 {
        let at_ms = 1100 + n * 200;
        let waits = vec![wait(99, 7, 1000, &[granted(1, at_ms - 90)])];
        look(
            &mut ledger,
            at_ms,
            waits,
            vec![busy(1, 900), busy(99, 1000)],
        );
    }
    let since_ns = (1700 - 90) * MS;
    assert_eq!(ledger.held_ns(PLACE, SessionKey(1), since_ns), 4 * 90 * MS);
    let mut other = busy(1, 1750);
    other.request = 2;
    let waits = vec![wait(99, 7, 1000, &[granted(1, 1760)])];
    look(&mut ledger, 1800, waits, vec![other, busy(99, 1000)]);
    assert_eq!(ledger.held_ns(PLACE, SessionKey(1), 1760 * MS), 40 * MS);
}

#[test]
fn what_is_usual_in_a_pool_is_told_by_more_than_the_last_sixteen() {
    let unusual = |kind| {
        let mut ledger = of_kind(kind);
        for n in 1..=60 {
            let at_ms = 1000 + n * 50;
            let held_ms = if n <= 40 { 200 } else { 10 };
            let waits = vec![wait(99, 7, 1000, &[granted(n, at_ms - held_ms)])];
            let sessions = vec![busy(n, at_ms - held_ms), busy(99, 1000)];
            look(&mut ledger, at_ms, waits, sessions);
        }
        let now_ms = 4050;
        let waits = vec![wait(99, 7, 1000, &[granted(80, now_ms - 900)])];
        let sessions = vec![busy(80, now_ms - 900), busy(99, 1000)];
        look(&mut ledger, now_ms, waits, sessions);
        ledger.holds_unusually_long(PLACE, SessionKey(80), (now_ms - 900) * MS)
    };
    assert!(unusual(Kind::Lock));
    assert!(!unusual(Kind::Queue));
}
