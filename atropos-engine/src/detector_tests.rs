//! Tests of the detector.

use atropos_common::histogram::bucket_of;

use super::super::input::{RequestStats, SessionKey, Tick};
use super::super::settings::{Slo, SloLimit, Tuning};
use super::super::testkit::MS;
use super::{Detector, Flight};

const P99: Slo = Slo {
    percentile: 99.0,
    limit: SloLimit::Absolute { ns: 20 * MS },
};

fn flight(since_ms: u64) -> Flight {
    Flight {
        session: SessionKey(since_ms),
        since_ns: since_ms * MS,
        waiting: true,
        waited_ns: 0,
    }
}

/// Ticks of 50 ms, each with so many completions of `took_ms`.
struct Clock {
    detector: Detector,
    now_ms: u64,
}

impl Clock {
    fn new(slo: Slo) -> Self {
        let mut clock = Self {
            detector: Detector::new(slo, &Tuning::default()),
            now_ms: 1_000_000,
        };
        clock.ticks(1, 0, 0, false);
        clock
    }

    fn ticks(&mut self, ticks: u64, completed: u64, took_ms: u64, covered: bool) {
        for _ in 0..ticks {
            self.now_ms += 50;
            let latency = if covered {
                vec![(bucket_of(took_ms * MS) as u16, completed)]
            } else {
                Vec::new()
            };
            let covered_ns = if covered { 50 * MS } else { 0 };
            let requests = RequestStats {
                completed: Some(completed),
                covered_ns,
                latency,
            };
            let tick = Tick {
                at_ns: self.now_ms * MS,
                requests,
                sessions: Vec::new(),
                blind: Vec::new(),
            };
            self.detector.count(&tick.requests, self.now_ms * MS);
        }
    }

    fn calm(&mut self, ticks: u64, completed: u64, took_ms: u64) {
        for _ in 0..ticks {
            self.ticks(1, completed, took_ms, true);
            self.detector.learn();
        }
    }

    fn assess(&mut self, flights: &[Flight]) -> super::Reading {
        self.detector.assess(flights, self.now_ms * MS)
    }
}

#[test]
fn a_full_stall_shows_in_the_ages_of_requests_in_flight_though_nothing_completes() {
    let mut clock = Clock::new(P99);
    clock.calm(100, 15, 3);
    clock.ticks(1, 0, 0, true);
    let flights: Vec<Flight> = (0..24).map(|n| flight(clock.now_ms - 40 - n)).collect();
    let reading = clock.assess(&flights);
    assert!(reading.over);
    assert_eq!((reading.in_flight, reading.waiting), (24, 24));
    assert!(
        (40 * MS..64 * MS).contains(&reading.latency_ns),
        "{}",
        reading.latency_ns
    );
}

#[test]
fn the_breach_began_when_the_request_that_made_the_percentile_cross_passed_the_limit() {
    let mut clock = Clock::new(P99);
    clock.ticks(10, 15, 3, true);
    // 150 completed and 3 in flight: rank 152 of 153 is the second oldest of those in flight.
    let flights: Vec<Flight> = [100, 80, 5].map(|age| flight(clock.now_ms - age)).to_vec();
    let reading = clock.assess(&flights);
    assert_eq!(reading.latency_ns, 80 * MS);
    assert_eq!(reading.breach_ns, (clock.now_ms - 80 + 20) * MS);
}

#[test]
fn with_nothing_in_flight_there_is_no_overload_however_far_throughput_fell() {
    let mut clock = Clock::new(P99);
    clock.calm(100, 15, 3);
    clock.ticks(2, 15, 300, true);
    clock.ticks(5, 0, 0, true);
    let reading = clock.assess(&[]);
    assert!(reading.breached && !reading.over);
}

#[test]
fn latency_above_the_limit_with_growing_throughput_is_no_overload_for_a_while() {
    let mut clock = Clock::new(P99);
    clock.calm(100, 15, 3);
    clock.ticks(10, 30, 40, true);
    let flights = [flight(clock.now_ms - 40), flight(clock.now_ms - 41)];
    assert!(!clock.assess(&flights).over);
    // Two windows of 500 ms.
    for _ in 0..15 {
        clock.ticks(1, 30, 40, true);
        assert!(!clock.assess(&flights).over);
    }
    for _ in 0..6 {
        clock.ticks(1, 30, 40, true);
        clock.assess(&flights);
    }
    assert!(clock.assess(&flights).over);
}

#[test]
fn what_is_usual_follows_the_load_within_seconds_and_not_at_once() {
    let mut clock = Clock::new(P99);
    clock.calm(200, 100, 3);
    let reference = |clock: &mut Clock| clock.assess(&[]).reference.unwrap();
    assert!((reference(&mut clock) - 2000.0).abs() < 1.0);
    clock.calm(30, 200, 3);
    let after = reference(&mut clock);
    assert!(after > 2300.0 && after < 2800.0, "{after}");
    clock.calm(400, 200, 3);
    let after = reference(&mut clock);
    assert!(after > 3900.0, "{after}");
}

#[test]
fn requests_that_nobody_covered_are_taken_to_have_taken_the_usual_time() {
    let mut clock = Clock::new(P99);
    clock.calm(200, 15, 4);
    clock.ticks(10, 100, 0, false);
    // 1,000 of 4 ms; a bucket is known by its lower end.
    let completed_s = clock.detector.completed_s();
    assert!(completed_s > 3.7 && completed_s <= 4.0, "{completed_s}");
}

#[test]
fn a_completed_request_exceeds_by_what_is_above_the_limit_and_at_most_by_a_window() {
    let excess_s = |took_ms| {
        let mut clock = Clock::new(P99);
        clock.ticks(10, 30, took_ms, true);
        clock.detector.completed_excess_s()
    };
    // 300 requests, 20 ms above the limit of 20 ms; a bucket is known by its lower end.
    let slow = excess_s(40);
    assert!(slow > 5.0 && slow <= 6.0, "{slow}");
    assert!(excess_s(15) < f64::EPSILON);
    assert!((excess_s(5000) - 150.0).abs() < 1e-6);
}

#[test]
fn throughput_a_little_above_the_reference_is_flat() {
    let over_at = |completed| {
        let mut clock = Clock::new(P99);
        clock.calm(100, 100, 3);
        clock.ticks(10, completed, 40, true);
        let flights = [flight(clock.now_ms - 40), flight(clock.now_ms - 41)];
        clock.assess(&flights).over
    };
    assert!(over_at(105));
    assert!(!over_at(120));
}

#[test]
fn a_standstill_is_flat_even_while_the_window_still_shows_growth() {
    let mut clock = Clock::new(P99);
    clock.calm(100, 5, 3);
    clock.ticks(8, 50, 3, true);
    clock.ticks(1, 0, 0, false);
    let flights: Vec<Flight> = (0..24).map(|n| flight(clock.now_ms - 60 - n)).collect();
    assert!(!clock.assess(&flights).over);
    clock.ticks(1, 0, 0, false);
    assert!(clock.assess(&flights).over);
}

#[test]
fn completions_that_were_not_covered_count_as_fast() {
    let mut clock = Clock::new(P99);
    clock.ticks(10, 100, 0, false);
    assert!(!clock.assess(&[flight(clock.now_ms - 5000)]).breached);
    clock.ticks(10, 1, 0, false);
    assert!(clock.assess(&[flight(clock.now_ms - 5000)]).breached);
}

#[test]
fn one_slow_request_that_waits_for_nothing_is_no_overload() {
    let mut clock = Clock::new(P99);
    clock.ticks(10, 1, 3, true);
    let alone = Flight {
        waiting: false,
        ..flight(clock.now_ms - 5000)
    };
    assert!(!clock.assess(&[alone]).over);
    assert!(
        clock
            .assess(&[Flight {
                waiting: true,
                ..alone
            }])
            .over
    );
    assert!(
        clock
            .assess(&[
                alone,
                Flight {
                    waiting: false,
                    ..flight(clock.now_ms - 100)
                }
            ])
            .over
    );
}

#[test]
fn a_relative_limit_follows_the_calm_percentile_and_never_goes_below_its_floor() {
    let slo = Slo {
        percentile: 99.0,
        limit: SloLimit::Relative {
            above: 0.2,
            floor_ns: 5 * MS,
        },
    };
    let mut clock = Clock::new(slo);
    assert_eq!(clock.detector.limit_ns(), 5 * MS);
    clock.calm(200, 15, 2);
    assert_eq!(clock.detector.limit_ns(), 5 * MS);
    clock.calm(400, 15, 100);
    let limit_ns = clock.detector.limit_ns();
    assert!((105 * MS..=121 * MS).contains(&limit_ns), "{limit_ns}");
}

#[test]
fn an_idle_time_does_not_become_the_reference() {
    let mut clock = Clock::new(P99);
    clock.calm(400, 15, 3);
    let busy = clock.assess(&[]).reference.expect("learned");
    assert!((busy - 300.0).abs() < 3.0, "{busy}");
    clock.ticks(20, 0, 0, true);
    clock.calm(2000, 0, 0);
    assert!((clock.assess(&[]).reference.expect("kept") - busy).abs() < 1.0);
}

#[test]
fn completions_without_a_counter_are_scaled_from_the_covered_part() {
    let mut clock = Clock::new(P99);
    for _ in 0..10 {
        clock.now_ms += 50;
        let requests = RequestStats {
            completed: None,
            covered_ns: 10 * MS,
            latency: vec![(100, 2)],
        };
        let tick = Tick {
            at_ns: clock.now_ms * MS,
            requests,
            sessions: Vec::new(),
            blind: Vec::new(),
        };
        clock.detector.count(&tick.requests, clock.now_ms * MS);
    }
    let throughput = clock.assess(&[]).throughput.expect("covered");
    assert!((throughput - 200.0).abs() < 1e-9, "{throughput}");
}
