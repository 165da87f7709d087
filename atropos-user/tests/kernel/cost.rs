//! What probes cost: a passing, and the switch between the two levels.

use std::time::{Duration, Instant};

use atropos::agent::clock;
use atropos::kernel::{SiteAt, beside_nothing, calibrate};
use atropos_common::op::Op;

use super::{Bench, spec};
use crate::fixture::Fixture;

/// What the full set of a large preset has.
const SITES: usize = 40;
/// Times that our program is measured beside an empty one.
const ROUNDS: usize = 15;
/// Well within a tick.
const SWITCH: Duration = Duration::from_millis(20);

#[test]
fn what_a_passing_costs_is_measured_and_a_single_stepped_one_costs_most() {
    let costs =
        calibrate(clock::thread_cpu_ns, clock::monotonic_ns).unwrap_or_else(|e| panic!("{e:#}"));
    println!("{costs:?}");
    assert!(costs.calibrated && costs.took_ms > 0.0);
    assert!(
        costs.emulated_ns > 50.0 && costs.usdt_ns > 50.0,
        "a trap takes longer: {costs:?}"
    );
    assert!(
        costs.stepped_ns > 2.0 * costs.emulated_ns,
        "single-stepping takes longer: {costs:?}"
    );
}

/// `cargo xtask bench hit` reads what it prints.
#[test]
fn our_program_beside_an_empty_one_at_the_same_site() {
    for _ in 0..ROUNDS {
        let passings = beside_nothing(clock::thread_cpu_ns).unwrap_or_else(|e| panic!("{e:#}"));
        println!("passings {}", serde_json::to_string(&passings).unwrap());
        for passing in passings {
            assert!(passing.empty_ns > 50.0, "a trap takes longer: {passing:?}");
            assert!(
                passing.ours_ns < 3.0 * passing.empty_ns,
                "most of a passing is the trap: {passing:?}"
            );
        }
    }
}

#[test]
fn forty_sites_are_attached_within_a_tick() {
    let mut bench = Bench::with(Fixture::busy());
    bench.target.tell("go");
    let offsets: Vec<u64> = (10..10 + SITES)
        .map(|n| bench.target.offset_of(&format!("busy_site_{n}")))
        .collect();
    let program = bench.target.program().to_owned();
    let sites: Vec<SiteAt<'_>> = (1_u16..)
        .zip(&offsets)
        .map(|(cookie, offset)| SiteAt {
            cookie,
            spec: spec(Op::WaitBegin, 0),
            file: &program,
            offset: *offset,
            semaphore_offset: None,
        })
        .collect();
    // A machine with other work takes longer now and then.
    crate::common::wait_for("a switch within a tick", || {
        let begun = Instant::now();
        let links = bench
            .kernel
            .attach_all(&sites)
            .unwrap_or_else(|e| panic!("{e:#}"));
        let attached = begun.elapsed();
        let before = bench.counters.hits().unwrap();
        crate::common::wait_for("the site that is passed to be seen", || {
            (bench.counters.hits().unwrap()[1] > before[1]).then_some(())
        });
        let begun = Instant::now();
        drop(links);
        println!(
            "{SITES} sites: attached in {attached:?}, detached in {:?}",
            begun.elapsed()
        );
        (attached < SWITCH).then_some(())
    });
    let hits = bench.counters.hits().unwrap();
    assert_eq!(
        hits[2..].iter().sum::<u64>(),
        0,
        "and no other, by its cookie"
    );
}
