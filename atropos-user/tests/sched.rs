//! What the scheduler did to threads whose fate is known.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests may panic, and say what they measured"
)]

mod common;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use atropos::target::sched::{Scheduler, ThreadUsage};
use common::{Started, clock_ns, compile};

const SCHED: &str = include_str!("fixtures/sched.c");

/// Time between the two looks: many time slices.
const SPAN: Duration = Duration::from_secs(2);

/// Shares of the time on a processor and in the queue.
fn shares(usage: &ThreadUsage) -> (f64, f64) {
    let covered = usage.covered_ns as f64;
    (
        usage.times.on_cpu_ns as f64 / covered,
        usage.times.run_delay_ns as f64 / covered,
    )
}

#[test]
fn two_threads_on_one_processor_wait_for_each_other_and_a_sleeper_waits_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(SCHED, &folder.path().join("sched"), &["-O1", "-pthread"]);
    let mut started = Started::new(Command::new(program).arg(folder.path().join("file")));
    let pid = started.pid();
    let threads: Vec<(u32, u32)> = started
        .line()
        .split(' ')
        .map(|tid| (pid, tid.parse().unwrap()))
        .collect();
    let mut scheduler = Scheduler::new();
    let begun_ns = clock_ns();
    assert!(
        scheduler
            .look(&threads, &BTreeSet::new(), begun_ns)
            .is_empty()
    );
    // The measured time itself; nothing is waited for.
    std::thread::sleep(SPAN);
    let looked_ns = clock_ns();
    let usages = scheduler.look(&threads, &BTreeSet::new(), looked_ns);
    let took_us = (clock_ns() - looked_ns) / 1000;
    println!(
        "{usages:#?}\nlooked at {} threads in {took_us} us",
        threads.len()
    );
    let [one, other, asleep, writes] = usages.as_slice() else {
        panic!("{usages:?}")
    };
    for busy in [one, other] {
        let (on_cpu, queued) = shares(busy);
        assert!(
            (0.85..1.15).contains(&(on_cpu + queued)),
            "{on_cpu} {queued}"
        );
        // Half is the other thread's, more if the machine has other work.
        assert!(queued > 0.4, "{on_cpu} {queued}");
    }
    assert!(shares(one).0 + shares(other).0 < 1.1, "one processor");
    assert_eq!((asleep.times.on_cpu_ns, asleep.times.run_delay_ns), (0, 0));
    assert!(writes.times.on_cpu_ns > 0);
    if scheduler.counts_io() {
        assert!(writes.times.io_ns.unwrap() > 0);
        assert_eq!(asleep.times.io_ns, Some(0));
    } else {
        println!("kernel.task_delayacct is not 1: time blocked on a disk is not counted");
        assert_eq!(writes.times.io_ns, None);
    }
    drop(started);
    assert!(
        scheduler
            .look(&threads, &BTreeSet::new(), clock_ns())
            .is_empty(),
        "all gone"
    );
}
