//! The exact way of an order: put down, found or not, taken back; and the ordinary way behind it.
#![allow(
    clippy::unwrap_used,
    reason = "in a test an unmet expectation is a failure"
)]

mod common;
mod samples;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atropos::cancel::exact::{Attempt, Found, Note};
use atropos::cancel::{Answer, Desk, Exact, ExactSettings, Initiator, Ladder};
use atropos::engine::input::{Activity, OrderResult};
use atropos::engine::record::Task;
use atropos::engine::settings::Mode;
use common::clock_ns;
use nix::sys::signal::Signal;
use samples::{order, task};

/// What happens at a desk.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Open(u32),
    Put { tid: u32, request: u64, signal: u32 },
    TakeBack,
    Close,
}

/// How long an order waits to be found.
const WITHIN: Duration = Duration::from_millis(20);

/// A desk where it is known beforehand what will be found.
struct Prepared {
    made_ns: u64,
    acts: Arc<Mutex<Vec<Act>>>,
    opens: Result<(), String>,
    found: Found,
    /// It is found only by a look at this time after the deadline or later.
    late: Option<Duration>,
}

impl Prepared {
    fn did(&self, act: Act) {
        self.acts.lock().unwrap().push(act);
    }
}

impl Desk for Prepared {
    fn open(&mut self, pid: u32) -> Result<(), String> {
        self.did(Act::Open(pid));
        self.opens.clone()
    }

    fn close(&mut self) {
        self.did(Act::Close);
    }

    fn put(&mut self, note: &Note) -> Result<(), String> {
        // Not over before it began, and over in time: a busy machine may have let some of it pass already.
        let within = self.made_ns..=clock_ns() + WITHIN.as_nanos() as u64;
        assert!(within.contains(&note.deadline_ns), "{note:?} {within:?}");
        self.did(Act::Put {
            tid: note.tid,
            request: note.request,
            signal: note.signal,
        });
        Ok(())
    }

    fn look(&self, note: &Note) -> Result<Found, String> {
        let from_ns = |late: Duration| note.deadline_ns + late.as_nanos() as u64;
        let too_early = self.late.is_some_and(|late| clock_ns() < from_ns(late));
        Ok(if too_early {
            Found::Waiting { unknown: 0 }
        } else {
            self.found
        })
    }

    fn take_back(&mut self, _note: &Note) {
        self.did(Act::TakeBack);
    }
}

/// The exact way of rung 0 by SIGINT for sessions that are processes, and what is done at its desk.
fn exact(found: Found, opens: Result<(), String>) -> (Exact, Arc<Mutex<Vec<Act>>>) {
    exact_late(found, opens, None)
}

fn exact_late(
    found: Found,
    opens: Result<(), String>,
    late: Option<Duration>,
) -> (Exact, Arc<Mutex<Vec<Act>>>) {
    let settings = ExactSettings {
        pid: 1,
        forks: true,
        signals: vec![Some(Signal::SIGINT), None],
        within: WITHIN,
        nudge: None,
        clock: clock_ns,
    };
    let mut exact = Exact::new(settings, Box::new(|thread| Some((thread, thread))));
    let acts = Arc::<Mutex<Vec<Act>>>::default();
    exact.equip(Box::new(Prepared {
        made_ns: clock_ns(),
        acts: Arc::clone(&acts),
        opens,
        found,
        late,
    }));
    (exact, acts)
}

fn busy() -> Task {
    Task {
        activity: Activity::Busy,
        thread: 77,
        request: 5,
        ..task(42)
    }
}

/// What a whole order does at the desk.
fn whole() -> Vec<Act> {
    vec![
        Act::Open(77),
        Act::Put {
            tid: 77,
            request: 5,
            signal: Signal::SIGINT as u32,
        },
        Act::TakeBack,
        Act::Close,
    ]
}

#[tokio::test]
async fn an_order_that_is_found_is_accepted_or_missed_and_never_left_behind() {
    for (found, result) in [
        (
            Found::Delivered { at_ns: clock_ns() },
            OrderResult::Accepted,
        ),
        (Found::Missed { request: 6 }, OrderResult::Missed),
        (Found::Missed { request: 0 }, OrderResult::Missed),
    ] {
        let (mut exact, acts) = exact(found, Ok(()));
        let Attempt::Done(answer) = exact.attempt(0, &busy()).await else {
            panic!("{found:?}")
        };
        assert_eq!(answer.result, result, "{found:?}");
        assert_eq!(*acts.lock().unwrap(), whole(), "{found:?}");
    }
}

#[tokio::test]
async fn a_thread_that_acts_just_after_the_deadline_is_not_met_a_second_time() {
    let late = Duration::from_millis(5);
    let (exact, acts) = exact_late(Found::Delivered { at_ns: clock_ns() }, Ok(()), Some(late));
    let mut ladder = Ladder::new(Fake::default(), Mode::Enforce, clock_ns).with_exact(Some(exact));
    let mut order = order();
    order.task = busy();
    let sent = ladder.carry_out(order).await;
    assert_eq!(sent.answer.result, OrderResult::Accepted);
    assert_eq!(ladder.initiator().sent, 0, "no ordinary command behind it");
    assert_eq!(*acts.lock().unwrap(), whole());
}

#[tokio::test]
async fn an_order_that_is_not_carried_out_goes_the_ordinary_way_and_says_why() {
    let gone = Err("no such process".to_owned());
    for (found, opens, why) in [
        (
            Found::Waiting { unknown: 0 },
            Ok(()),
            "passed no place of orders within 20 ms",
        ),
        (Found::Waiting { unknown: 3 }, Ok(()), "no page in memory"),
        (Found::Refused, Ok(()), "would not send SIGINT"),
        (Found::Refused, gone, "no such process"),
    ] {
        let (exact, acts) = exact(found, opens.clone());
        let fake = Fake::default();
        let mut ladder = Ladder::new(fake, Mode::Enforce, clock_ns).with_exact(Some(exact));
        let mut order = order();
        order.task = busy();
        let sent = ladder.carry_out(order).await;
        assert_eq!(ladder.initiator().sent, 1);
        assert_eq!(sent.answer.result, OrderResult::Accepted);
        let detail = &sent.answer.detail;
        assert!(
            detail.contains("ordinary way") && detail.contains(why),
            "{detail}"
        );
        let acts = acts.lock().unwrap();
        match opens {
            Ok(()) => assert_eq!(*acts, whole()),
            Err(_) => assert_eq!(*acts, [Act::Open(77)]),
        }
    }
}

#[tokio::test]
async fn only_a_named_request_of_another_session_goes_the_exact_way_and_only_in_enforce_mode() {
    let idle = Task {
        activity: Activity::IdleInTransaction,
        ..busy()
    };
    let nameless = Task {
        request: 0,
        ..busy()
    };
    let own = Task { id: 7, ..busy() };
    for (mode, rung, task) in [
        (Mode::Enforce, 0, idle),
        (Mode::Enforce, 0, nameless),
        (Mode::Enforce, 0, own),
        (Mode::Enforce, 1, busy()),
        (Mode::Enforce, 9, busy()),
        (Mode::Observe, 0, busy()),
        (Mode::DryRun, 0, busy()),
    ] {
        let (exact, acts) = exact(Found::Delivered { at_ns: 0 }, Ok(()));
        let mut ladder = Ladder::new(Fake::default(), mode, clock_ns).with_exact(Some(exact));
        let mut order = order();
        (order.rung, order.task) = (rung, task);
        let sent = ladder.carry_out(order).await;
        let through = usize::from(mode == Mode::Enforce);
        assert_eq!(ladder.initiator().sent, through, "{sent:?}");
        assert!(acts.lock().unwrap().is_empty(), "{sent:?}");
    }
}

/// Counts what it was asked to do.
#[derive(Default)]
struct Fake {
    sent: usize,
}

impl Initiator for Fake {
    fn describe(&self, rung: u8, task: &Task) -> String {
        format!("end {} by {rung}", task.id)
    }

    async fn send(&mut self, _rung: u8, _task: &Task) -> Answer {
        self.sent += 1;
        Answer::accepted()
    }

    async fn check_permission(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn own_ids(&self) -> Vec<u64> {
        vec![7]
    }

    async fn keep_warm(&mut self) -> Result<(), String> {
        Ok(())
    }
}
