//! Tests of the gain, with the worked numbers of the design.

use super::super::blame::assign;
use super::super::input::{Activity, SessionKey};
use super::super::ledger::Ledger;
use super::super::testkit::{busy, granted, ledger, queued, settings, wait};
use super::{Role, Scored, score};

fn scored(ledger: &Ledger, key: u64) -> Scored {
    let all = score(&settings(), ledger, &assign(ledger));
    all.into_iter()
        .find(|scored| scored.session == SessionKey(key))
        .expect("to blame for something")
}

fn assert_close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn a_lock_held_for_1_s_at_40_per_cent_gives_1_5_s() {
    let mut holder = busy(1, 9000);
    holder.progress = Some(0.4);
    let ledger = ledger(
        10_000,
        vec![wait(2, 7, 9500, &[granted(1, 9000)])],
        vec![holder],
    );
    let scored = scored(&ledger, 1);
    assert_close(scored.parts[0].blame, 1.0);
    assert_close(scored.parts[0].usage_s, 1.0);
    assert_close(scored.gain_s(), 1.5);
    assert_eq!(scored.role, Role::Root);
}

#[test]
fn without_progress_a_hold_is_expected_to_last_as_long_again_up_to_the_horizon() {
    let young = ledger(
        10_000,
        vec![wait(2, 7, 9500, &[granted(1, 8000)])],
        vec![busy(1, 8000)],
    );
    assert_close(scored(&young, 1).gain_s(), 2.0);
    let old = ledger(
        100_000,
        vec![wait(2, 7, 99_500, &[granted(1, 0)])],
        vec![busy(1, 0)],
    );
    assert_close(scored(&old, 1).gain_s(), 5.0);
}

#[test]
fn progress_of_zero_means_that_it_is_unknown() {
    let mut holder = busy(1, 9000);
    holder.progress = Some(0.0);
    let ledger = ledger(
        10_000,
        vec![wait(2, 7, 9500, &[granted(1, 9000)])],
        vec![holder],
    );
    assert_eq!(scored(&ledger, 1).parts[0].progress, None);
    assert_close(scored(&ledger, 1).gain_s(), 1.0);
}

#[test]
fn the_gain_is_the_part_that_the_task_is_to_blame_for() {
    let waits = vec![wait(3, 7, 9500, &[granted(1, 9000), granted(2, 9000)])];
    let ledger = ledger(10_000, waits, vec![busy(1, 9000), busy(2, 9000)]);
    assert_close(scored(&ledger, 1).parts[0].blame, 0.5);
    assert_close(scored(&ledger, 1).gain_s(), 0.5);
}

#[test]
fn undoing_a_writer_costs_what_it_worked_and_not_what_it_waited() {
    let mut writer = busy(1, 9000);
    writer.class = Some(0);
    writer.progress = Some(0.25);
    let blocked = || wait(2, 7, 9500, &[granted(1, 9000)]);
    let worked = ledger(10_000, vec![blocked()], vec![writer.clone()]);
    assert_close(scored(&worked, 1).parts[0].undo_s, 1.0);
    assert_close(scored(&worked, 1).gain_s(), 2.0);

    let waits = vec![blocked(), wait(1, 8, 9200, &[granted(5, 9000)])];
    let waiting = ledger(10_000, waits, vec![writer]);
    assert_close(scored(&waiting, 1).parts[0].undo_s, 0.2);
    assert_eq!(scored(&waiting, 1).role, Role::Victim(SessionKey(5)));
}

#[test]
fn an_idle_session_has_nothing_running_to_undo() {
    let mut idle = busy(1, 9000);
    idle.class = Some(0);
    idle.activity = Activity::IdleInTransaction;
    let ledger = ledger(
        10_000,
        vec![wait(2, 7, 9500, &[granted(1, 9000)])],
        vec![idle],
    );
    assert_close(scored(&ledger, 1).gain_s(), 1.0);
}

#[test]
fn a_queued_request_blocks_for_as_long_as_those_before_it_or_as_it_has_queued() {
    let behind = |holder_since_ms| {
        let waits = vec![
            wait(2, 7, 9600, &[granted(1, holder_since_ms)]),
            wait(3, 7, 9700, &[queued(2, 9600)]),
        ];
        ledger(
            10_000,
            waits,
            vec![busy(1, holder_since_ms), busy(2, 9600), busy(3, 9700)],
        )
    };
    let long = scored(&behind(7000), 2);
    assert_eq!(long.role, Role::Queued);
    assert_close(long.gain_s(), 3.0 * 0.3 / 0.7);
    assert_close(scored(&behind(9900), 2).gain_s(), 0.4 * 0.3 / 0.7);
}

#[test]
fn usage_adds_up_over_contended_instances() {
    let waits = vec![
        wait(2, 7, 9500, &[granted(1, 9000)]),
        wait(3, 8, 9500, &[granted(1, 8000)]),
    ];
    let ledger = ledger(10_000, waits, vec![busy(1, 8000)]);
    assert_close(scored(&ledger, 1).parts[0].usage_s, 3.0);
}

#[test]
fn usage_of_an_instance_begins_when_the_task_first_had_it() {
    // It reads the table, and now queues to change it.
    let waits = vec![
        wait(1, 7, 9000, &[granted(4, 8500)]),
        wait(2, 7, 9500, &[granted(1, 8000)]),
        wait(3, 7, 9500, &[queued(1, 9000)]),
    ];
    let ledger = ledger(10_000, waits, vec![busy(1, 8000), busy(4, 8500)]);
    assert_close(scored(&ledger, 1).parts[0].usage_s, 2.0);
}

#[test]
fn a_future_by_progress_ends_at_ten_times_the_past_and_at_ten_minutes() {
    let of = |used_s: u64| {
        let since_ms = 1_000_000 - used_s * 1000;
        let mut holder = busy(1, since_ms);
        holder.progress = Some(0.01);
        let waits = vec![wait(2, 7, 999_500, &[granted(1, since_ms)])];
        scored(&ledger(1_000_000, waits, vec![holder]), 1).gain_s()
    };
    assert_close(of(5), 50.0);
    assert_close(of(100), 600.0);
}

#[test]
fn a_holder_that_waited_in_the_line_holds_only_since_it_was_granted() {
    let mut ledger = ledger(
        9900,
        vec![wait(1, 7, 9000, &[granted(5, 0)])],
        vec![busy(1, 9000), busy(2, 9000)],
    );
    ledger.snapshot(&super::super::testkit::snapshot(
        10_000,
        vec![wait(2, 7, 9000, &[granted(1, 9000)])],
    ));
    // Its wait was last seen at 9.9 s.
    assert_close(scored(&ledger, 1).parts[0].usage_s, 0.1);
}
