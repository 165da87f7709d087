//! What probes cost: a passing, and the switch between the two levels.

use std::time::{Duration, Instant};

use atropos::agent::clock;
use atropos::kernel::{SiteLink, calibrate};
use atropos_common::op::Op;

use super::{Bench, spec};
use crate::fixture::Fixture;

/// What the full set of a large preset has.
const SITES: usize = 40;

#[test]
fn what_a_passing_costs_is_measured_and_a_single_stepped_one_costs_most() {
    let begun = Instant::now();
    let costs = calibrate(clock::thread_cpu_ns).unwrap_or_else(|e| panic!("{e:#}"));
    println!("{costs:?}, in {:?}", begun.elapsed());
    assert!(costs.calibrated);
    assert!(
        costs.emulated_ns > 50.0 && costs.usdt_ns > 50.0,
        "a trap takes longer: {costs:?}"
    );
    assert!(
        costs.stepped_ns > 2.0 * costs.emulated_ns,
        "single-stepping takes longer: {costs:?}"
    );
}

#[test]
fn forty_sites_are_attached_within_a_tick() {
    let mut bench = Bench::with(Fixture::busy());
    bench.target.tell("go");
    let offsets: Vec<u64> = (10..10 + SITES)
        .map(|n| bench.target.offset_of(&format!("busy_site_{n}")))
        .collect();
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        let links: Vec<SiteLink> = (1_u16..)
            .zip(&offsets)
            .map(|(cookie, offset)| {
                let spec = spec(Op::WaitBegin, 0);
                bench
                    .kernel
                    .attach(cookie, &spec, bench.target.program(), *offset)
                    .unwrap_or_else(|e| panic!("{e:#}"))
            })
            .collect();
        let attached = begun.elapsed();
        let begun = Instant::now();
        drop(links);
        println!(
            "{SITES} sites: attached in {attached:?}, detached in {:?}",
            begun.elapsed()
        );
        best = best.min(attached);
    }
    assert!(
        best < Duration::from_millis(20),
        "the best of five switches took {best:?}"
    );
}
