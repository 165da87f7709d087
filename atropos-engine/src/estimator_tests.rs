//! Tests of the contention level and of what it explains.

use super::super::blame::assign;
use super::super::detector::{Detector, Flight};
use super::super::input::SessionKey;
use super::super::ledger::Ledger;
use super::super::testkit::{MS, busy, granted, ledger, settings, snapshot, wait};
use super::{Estimate, estimate};

/// One request that waits since 9.6 s for a holder since 9.0 s, and one that works since 9.9 s.
fn target() -> Ledger {
    let waits = vec![wait(2, 7, 9600, &[granted(1, 9000)])];
    ledger(
        10_000,
        waits,
        vec![busy(1, 9000), busy(2, 9600), busy(3, 9900)],
    )
}

fn look(ledger: &Ledger, flights: &[(u64, u64)]) -> Estimate {
    let settings = settings();
    let detector = Detector::new(settings.slo, &settings.tuning);
    let flights: Vec<Flight> = flights
        .iter()
        .map(|(since_ms, waited_ms)| Flight {
            session: SessionKey(*since_ms),
            since_ns: since_ms * MS,
            waiting: *waited_ms > 0,
            waited_ns: waited_ms * MS,
        })
        .collect();
    estimate(&settings, ledger, &assign(ledger), &detector, &flights)
}

fn assert_close(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn the_level_is_the_share_of_request_time_in_the_window_that_was_lost() {
    let estimate = look(&target(), &[]);
    assert_close(estimate.resources[0].lost_s, 0.4);
    assert_close(estimate.resources[0].level, 0.4 / (0.5 + 0.4 + 0.1));
    assert_close(estimate.resources[0].raw, 0.4 / 0.5);
}

#[test]
fn an_instance_with_two_holders_is_in_use_once_and_since_the_first() {
    // Held since 9.7 s, and by another since 9.9 s; waited for since 9.95 s.
    let waits = vec![wait(3, 7, 9950, &[granted(1, 9700), granted(2, 9900)])];
    let sessions = vec![busy(1, 9700), busy(2, 9900), busy(3, 9950)];
    let estimate = look(&ledger(10_000, waits, sessions), &[]);
    assert_close(estimate.resources[0].raw, 0.05 / 0.3);
}

#[test]
fn waits_that_are_over_explain_nothing_if_no_completed_request_was_late() {
    let mut ledger = target();
    ledger.snapshot(&snapshot(10_000, Vec::new()));
    let estimate = look(&ledger, &[(9000, 0)]);
    assert_close(estimate.resources[0].lost_s, 0.4);
    assert_close(estimate.explained, 0.0);
}

#[test]
fn a_resource_that_cannot_be_seen_has_no_level() {
    let mut ledger = target();
    ledger.blind[0] = Some("layout".to_owned());
    let estimate = look(&ledger, &[]);
    assert_close(estimate.resources[0].level, 0.0);
    assert_eq!(estimate.resources[0].blind.as_deref(), Some("layout"));
}

#[test]
fn waiting_explains_latency_above_the_limit_and_working_does_not() {
    // Ages 400 and 120 ms against a limit of 20: 380 ms of excess waited for, 100 ms worked for.
    let estimate = look(&target(), &[(9600, 400), (9880, 0)]);
    assert_close(estimate.explained, 0.38 / 0.48);
}

#[test]
fn only_the_part_above_the_limit_needs_an_explanation() {
    let estimate = look(&target(), &[(9600, 190), (9990, 10)]);
    assert_close(estimate.explained, 0.19 / 0.38);
}

#[test]
fn both_floors_must_be_reached_for_a_resource_overload() {
    let settings = settings();
    let with = |level, explained| {
        let mut estimate = look(&target(), &[]);
        estimate.resources[0].level = level;
        estimate.explained = explained;
        estimate.is_resource_overload(&settings)
    };
    assert!(with(0.1, 0.5));
    assert!(!with(0.09, 1.0));
    assert!(!with(1.0, 0.49));
}

#[test]
fn a_resource_below_the_floor_counts_for_nothing_in_the_choice() {
    let estimate = look(&target(), &[]);
    assert_eq!(estimate.levels(0.3), [estimate.resources[0].level]);
    assert_eq!(estimate.levels(0.5), [0.0]);
}

#[test]
fn what_is_not_known_for_certain_of_use_has_no_level_and_says_why() {
    use super::super::input::{Evidence, ResourceId, SessionUsage, Usage};
    use super::super::settings::Kind;
    let level = |evidence, complete| {
        let mut settings = settings();
        settings.resources[0].kind = Kind::Cpu;
        let mut ledger = Ledger::new(&settings.resources, settings.tuning.window_ns);
        ledger.tick(&super::super::testkit::tick(
            9900,
            vec![busy(1, 9000), busy(2, 9000)],
        ));
        let used = |key, used, lost_ms| SessionUsage {
            session: SessionKey(key),
            used,
            lost_ns: lost_ms * MS,
            held: 0,
        };
        ledger.usage(&Usage {
            at_ns: 10_000 * MS,
            resource: ResourceId(0),
            covered_ns: 100 * MS,
            evidence,
            complete,
            sessions: vec![used(1, 30, 0), used(2, 10, 100)],
        });
        let mut estimate = look(&ledger, &[]);
        estimate.resources.remove(0)
    };
    let known = level(Evidence::Event, true);
    assert!(known.level > 0.05 && known.blind.is_none());
    let most = known.most_used.unwrap();
    assert_eq!(most.id, 1);
    assert_close(most.share, 0.75);
    let inferred = level(Evidence::Inference, true);
    assert_close(inferred.level, 0.0);
    assert!(inferred.blind.unwrap().contains("inferred"));
    assert!(inferred.most_used.is_some(), "it is told all the same");
    let partial = level(Evidence::Event, false);
    assert_close(partial.level, 0.0);
    assert!(partial.blind.unwrap().contains("not everything"));
}
