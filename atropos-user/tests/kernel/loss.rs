//! Many events: what is kept, what is lost, and that the two make up what happened.

use std::time::Instant;

use atropos::agent::run::TICK;
use atropos::kernel::Decoded;
use atropos_common::limits::Loss;
use atropos_common::op::Op;
use atropos_common::site::SiteSpec;

use super::common::wait_for;
use super::{Bench, spec};

#[test]
fn nothing_is_lost_at_two_hundred_thousand_events_a_second_and_forced_loss_is_counted_exactly() {
    const LOOPS: u64 = 50_000;
    /// Of each of the two threads: enough for 200,000 events a second even if the machine is a little late.
    const PAIRS_A_SECOND: u64 = 60_000;
    let mut bench = Bench::start();
    bench.probe("op_acquire", spec(Op::Acquire, SiteSpec::EMIT));
    bench.probe("op_release", spec(Op::Release, SiteSpec::EMIT));
    // Two threads, drained once a tick while they run, as the agent does.
    let begun = Instant::now();
    bench
        .target
        .send(&format!("many {LOOPS} 2 100 {PAIRS_A_SECOND}"));
    let (mut seen, mut exits) = (0_u64, 0_u64);
    let mut count = |decoded: Decoded| match decoded.op {
        Op::Exit => exits += 1,
        _ => seen += 1,
    };
    while !bench.target.answered() {
        bench.ring.drain(&mut count);
        std::thread::sleep(TICK);
    }
    let rate = 4.0 * LOOPS as f64 / begun.elapsed().as_secs_f64();
    bench.ring.drain(&mut count);
    assert_eq!(seen, 4 * LOOPS, "at {rate:.0} a second");
    // The threads are joined before their exits are told.
    wait_for("two exits", || {
        bench.ring.drain(|_| exits += 1);
        (exits == 2).then_some(())
    });
    assert_eq!(
        bench.counters.lost().unwrap()[Loss::Ring as usize],
        0,
        "at {rate:.0} events a second"
    );
    println!("{rate:.0} events a second, none lost");
    // Nobody drains: the ring fills, and seen plus lost is what happened.
    bench.target.tell(&format!("many {LOOPS} 2 100"));
    let mut kept = 0_u64;
    let lost = wait_for("everything to be kept or lost", || {
        bench.ring.drain(|_| kept += 1);
        let lost = bench.counters.lost().unwrap()[Loss::Ring as usize];
        (kept + lost >= 4 * LOOPS + exits).then_some(lost)
    });
    assert!(
        lost > 0,
        "the ring should have been too small for {} records",
        4 * LOOPS
    );
    assert_eq!(kept + lost, 4 * LOOPS + exits, "kept {kept}, lost {lost}");
}
