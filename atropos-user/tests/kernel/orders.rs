//! Orders that the fixture's own thread finds: signalled on the spot if it is at the request that is meant, else left alone.

use atropos::cancel::exact::{Desk as _, Found, Note};
use atropos::kernel::{OrderSite, Orders};
use atropos_common::op::Op;
use atropos_common::site::{ArgSpec, Base, Cond, SiteSpec};
use nix::sys::signal::Signal;

use super::common::{PATIENCE, clock_ns, wait_for};
use super::{ARG0, ARG1, Bench};

/// The request is the first argument of `op_wait`; it counts while the second one is 7.
fn desk(bench: &mut Bench) -> Orders {
    let cookie = bench.next_cookie;
    bench.next_cookie += 1;
    let spec = SiteSpec {
        session: ArgSpec {
            base: Base::Tid as u8,
            ..ArgSpec::NONE
        },
        instance: ArgSpec::NONE,
        value: ARG0,
        guard: ARG1,
        guard_value: 7,
        resource: u16::MAX,
        op: Op::Killed as u8,
        cond: Cond::Equal as u8,
        flags: 0,
    };
    bench.kernel.say(cookie, &spec).unwrap();
    let desk = bench.kernel.orders().unwrap_or_else(|e| panic!("{e:#}"));
    desk.at(vec![OrderSite {
        cookie,
        file: bench.target.program().to_owned().into(),
        offset: bench.target.offset_of("op_wait"),
        semaphore_offset: None,
    }])
}

/// An order for request 5 of the fixture's main thread.
fn note(bench: &Bench) -> Note {
    Note {
        pid: bench.target.pid(),
        tid: bench.target.pid(),
        request: 5,
        signal: Signal::SIGUSR1 as u32,
        deadline_ns: clock_ns() + PATIENCE.as_nanos() as u64,
    }
}

#[test]
fn an_order_is_carried_out_before_the_thread_does_anything_else() {
    let mut bench = Bench::start();
    let mut desk = desk(&mut bench);
    let note = note(&bench);
    desk.open(note.pid).unwrap();
    desk.put(&note).unwrap();
    assert_eq!(desk.look(&note), Ok(Found::Waiting { unknown: 0 }));
    let before_ns = clock_ns();
    bench.target.send("wait 5 7");
    let signal = wait_for("the fixture's end", || bench.target.ended_by());
    assert_eq!(signal, Signal::SIGUSR1 as i32);
    assert!(!bench.target.answered(), "it got past the site");
    let Ok(Found::Delivered { at_ns }) = desk.look(&note) else {
        panic!("{:?}", desk.look(&note))
    };
    assert!((before_ns..clock_ns()).contains(&at_ns));
    let record = bench.wait_for(Op::Killed);
    assert_eq!((record.session, record.value), (note.tid.into(), 5));
    desk.take_back(&note);
    assert_eq!(desk.count(), 0);
}

#[test]
fn a_thread_at_another_request_or_at_none_is_left_alone_for_good() {
    for (line, request) in [("wait 6 7", 6), ("wait 5 8", 0)] {
        let mut bench = Bench::start();
        let mut desk = desk(&mut bench);
        let note = note(&bench);
        desk.open(note.pid).unwrap();
        desk.put(&note).unwrap();
        bench.target.tell(line);
        assert_eq!(desk.look(&note), Ok(Found::Missed { request }), "{line}");
        // It comes to the request afterwards: the order is over.
        bench.target.tell("wait 5 7");
        assert_eq!(desk.look(&note), Ok(Found::Missed { request }), "{line}");
        assert_eq!(bench.target.ended_by(), None);
        assert!(bench.records().is_empty());
    }
}

#[test]
fn an_order_whose_time_is_over_or_that_is_taken_back_or_is_another_thread_s_is_not_carried_out() {
    let mut bench = Bench::start();
    let mut desk = desk(&mut bench);
    let waits = Ok(Found::Waiting { unknown: 0 });
    let late = Note {
        deadline_ns: clock_ns(),
        ..note(&bench)
    };
    desk.open(late.pid).unwrap();
    desk.put(&late).unwrap();
    bench.target.tell("wait 5 7");
    assert_eq!(desk.look(&late), waits);
    desk.take_back(&late);
    let back = note(&bench);
    desk.put(&back).unwrap();
    desk.take_back(&back);
    assert_eq!(desk.count(), 0);
    bench.target.tell("wait 5 7");
    let others = Note {
        tid: bench.target.pid() + 1,
        ..note(&bench)
    };
    desk.put(&others).unwrap();
    bench.target.tell("wait 5 7");
    assert_eq!(desk.look(&others), waits);
    desk.take_back(&others);
    desk.put(&note(&bench)).unwrap();
    desk.close();
    wait_for("the places to be closed", || {
        let before = bench.counters.hits().unwrap();
        bench.target.tell("wait 6 7");
        (bench.counters.hits().unwrap() == before).then_some(())
    });
    assert_eq!(bench.target.ended_by(), None);
}

#[test]
fn no_place_is_opened_in_a_process_that_is_gone() {
    let mut bench = Bench::start();
    let mut desk = desk(&mut bench);
    let note = note(&bench);
    bench.target.kill();
    let refused = desk.open(note.pid).unwrap_err();
    assert!(refused.contains("cannot attach site"), "{refused}");
}
