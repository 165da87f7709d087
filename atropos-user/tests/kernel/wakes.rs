//! Who woke whom, of a fixture whose child waits for it.

use super::Bench;
use super::common::wait_for;

#[test]
fn a_process_in_scope_that_wakes_another_is_told_and_nobody_else() {
    let mut bench = Bench::start();
    let mut stranger = super::Fixture::start();
    let wakes = bench.kernel.wakes().unwrap_or_else(|e| panic!("{e:#}"));
    let child: u32 = bench.target.ask("fork").parse().unwrap();
    // The child waits on a pipe; each line may come before it does.
    let wake = wait_for("the child to be woken", || {
        bench.target.tell("child");
        stranger.tell("begin 1");
        wakes.seen().into_iter().find(|wake| wake.woken == child)
    });
    assert_eq!(wake.waker, bench.target.pid());
    assert!(wake.count > 0 && wake.last_ns <= super::common::clock_ns());
    let wakers: Vec<u32> = wakes.seen().iter().map(|wake| wake.waker).collect();
    assert!(!wakers.contains(&stranger.pid()), "it is not in scope");
    drop(wakes);
    bench.target.tell("reap");
}
