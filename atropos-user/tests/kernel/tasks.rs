//! Threads and processes that come and go.

use std::collections::BTreeSet;

use atropos_common::op::Op;
use atropos_common::record::EventRecord;
use atropos_common::scope::Scope;
use atropos_common::site::SiteSpec;

use super::{Bench, of_session, spec};

#[test]
fn the_exit_of_a_thread_is_told_and_what_it_held_is_closed() {
    let mut bench = Bench::start();
    bench.probe("op_acquire", spec(Op::Acquire, SiteSpec::EMIT));
    bench.target.tell("thread_hold 70");
    // Whoever joins a thread may go on before the thread's exit is told.
    let records = bench.records_until(Op::Exit);
    let acquired = records.iter().find(|d| d.op == Op::Acquire).unwrap().record;
    let exit = records.last().unwrap().record;
    assert_eq!(
        (exit.tid, exit.pid, exit.flags),
        (acquired.tid, bench.target.pid(), 0)
    );
    assert_eq!(bench.kernel.open_intervals().len(), 1);
    bench
        .kernel
        .close_exited(&BTreeSet::from([(exit.pid, exit.tid)]));
    assert!(bench.kernel.open_intervals().is_empty());
}

#[test]
fn the_exit_of_a_thread_is_not_the_end_of_a_session_that_has_its_number_by_chance() {
    let mut bench = Bench::start();
    bench.probe("op_begin", of_session(Op::RequestBegin, SiteSpec::EMIT));
    let number: u64 = bench.target.ask("namesake").parse().unwrap();
    let exit = bench.wait_for(Op::Exit);
    assert_eq!(
        (exit.session, exit.flags),
        (number, EventRecord::NOT_ITS_SESSION)
    );
    bench
        .kernel
        .close_exited(&BTreeSet::from([(exit.pid, exit.tid)]));
    let sessions = bench.kernel.sessions();
    assert!(
        sessions.iter().any(|(key, _)| key.session == number),
        "{sessions:?}"
    );
}

#[test]
fn a_forked_child_comes_into_scope_and_leaves_it_when_it_exits() {
    let mut bench = Bench::start();
    bench
        .kernel
        .follow_forks()
        .unwrap_or_else(|e| panic!("{e:#}"));
    bench.watch(Scope::FOLLOW_FORKS);
    bench.probe("op_begin", of_session(Op::RequestBegin, SiteSpec::EMIT));
    let child: u32 = bench.target.ask("fork").parse().unwrap();
    let fork = bench.wait_for(Op::Fork);
    assert_eq!(
        (fork.pid, fork.session),
        (child, u64::from(bench.target.pid()))
    );
    bench.target.tell("child");
    let begun = bench.wait_for(Op::RequestBegin);
    assert_eq!((begun.session, begun.pid), (4242, child));
    bench.target.tell("reap");
    assert_eq!(bench.wait_for(Op::Exit).flags, EventRecord::PROCESS);
    assert_eq!(bench.kernel.watched(), [bench.target.pid()]);
}

#[test]
fn a_process_that_was_seen_counts_no_longer_once_it_looks_over() {
    let mut bench = Bench::start();
    let cookie = bench.probe("op_begin", spec(Op::RequestBegin, 0));
    bench.target.tell("begin 5");
    assert_eq!(bench.hits(cookie), 1);
    bench.target.tell("headless");
    assert_eq!(bench.wait_for(Op::Exit).flags, EventRecord::PROCESS);
    bench.target.tell("begin 5");
    assert_eq!(bench.hits(cookie), 1);
    bench.watch(0);
    bench.target.tell("begin 5");
    assert_eq!(bench.hits(cookie), 2, "until it is brought back");
}
