//! A target that counts its processes and threads in a PID namespace of its own.

use std::collections::BTreeSet;

use atropos::target::Process;
use atropos_common::op::Op;
use atropos_common::site::{ArgSpec, Base, SiteSpec};

use super::{Bench, spec};
use crate::fixture::Fixture;

#[test]
fn ids_are_told_as_the_target_counts_them() {
    let fixture = Fixture::contained();
    let process = Process::open(fixture.pid()).unwrap();
    let namespace = process.pid_namespace().unwrap().expect("one of its own");
    let mut bench = Bench::with(fixture);
    bench.kernel.count_in(namespace).unwrap();
    let id = |base: Base| ArgSpec {
        base: base as u8,
        ..ArgSpec::NONE
    };
    bench.probe(
        "op_begin",
        SiteSpec {
            session: id(Base::Pid),
            instance: id(Base::Tid),
            ..spec(Op::RequestBegin, SiteSpec::EMIT)
        },
    );
    bench.probe("op_acquire", spec(Op::Acquire, SiteSpec::EMIT));
    bench.target.tell("begin 5");
    let begun = bench.wait_for(Op::RequestBegin);
    assert_eq!(
        (begun.session, begun.instance, begun.tid, begun.pid),
        (1, 1, 1, bench.target.pid())
    );
    // The fixture's thread gives its own id for the session.
    bench.target.tell("thread_hold 70");
    let records = bench.records_until(Op::Exit);
    let of = |op: Op| records.iter().find(|d| d.op == op).unwrap().record;
    let (held, exit) = (of(Op::Acquire), of(Op::Exit));
    assert_eq!(u64::from(held.tid), held.session);
    assert_eq!((exit.tid, exit.session), (held.tid, held.session));
    assert_eq!((exit.pid, exit.flags), (bench.target.pid(), 0));
    bench
        .kernel
        .close_exited(&BTreeSet::from([(exit.pid, exit.tid)]));
    assert!(bench.kernel.open_intervals().is_empty());
    assert_eq!(bench.counters.lost().unwrap().iter().sum::<u64>(), 0);
}

#[test]
fn numbers_of_the_target_become_ours() {
    let mut fixture = Fixture::contained();
    let process = Process::open(fixture.pid()).unwrap();
    assert!(process.in_other_pid_namespace());
    assert_eq!(process.ours(1), Some(fixture.pid()));
    assert_eq!(process.ours(u32::MAX), None);
    let child: u32 = fixture.ask("fork").parse().unwrap();
    let ours = process.ours(child).expect("the child is ours");
    assert_ne!(ours, child, "it has a number of its own with us");
    assert_eq!(process.children(), [ours]);
    fixture.tell("reap");
}
