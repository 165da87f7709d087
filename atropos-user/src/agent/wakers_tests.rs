use super::*;
use crate::engine::input::{Activity, BlockKind, Blocker, Evidence, SessionState, Snapshot, Wait};
use crate::kernel::Wake;

const LOCK: ResourceId = ResourceId(1);

fn session(key: u64, thread: u32) -> SessionState {
    SessionState {
        thread,
        ..SessionState::new(SessionKey(key), Activity::Busy, 0)
    }
}

fn wait(waiter: u64, instance: u64, blockers: Vec<Blocker>) -> Wait {
    Wait {
        waiter: SessionKey(waiter),
        instance: InstanceKey(instance),
        mode: 0,
        since_ns: 0,
        blockers,
    }
}

/// Sessions 1 to 3 with threads 101 to 103, and their waits.
fn view(waits: Vec<Wait>) -> View {
    View {
        sessions: (1..=3).map(|key| session(key, 100 + key as u32)).collect(),
        snapshots: vec![Snapshot {
            at_ns: 0,
            resource: LOCK,
            evidence: Evidence::Walk,
            complete: true,
            waits,
            instances: Vec::new(),
        }],
        ..View::default()
    }
}

fn wake(waker: u32, woken: u32, count: u64, last_ns: u64) -> Wake {
    Wake {
        waker,
        woken,
        count,
        last_ns,
    }
}

fn look(wakes: Vec<Wake>) -> WakeLook {
    WakeLook {
        since_ns: 10,
        until_ns: 110,
        wakes,
    }
}

fn name(thread: u32) -> String {
    format!("t{thread}")
}

#[test]
fn only_who_waits_for_what_nobody_is_seen_to_hold_is_asked_for() {
    let holder = Blocker {
        session: SessionKey(2),
        kind: BlockKind::Granted,
        mode: 0,
        since_ns: 0,
    };
    let mut asked = Asked::default();
    assert!(!asked.note(&view(Vec::new()), 20));
    assert!(!asked.note(&view(vec![wait(1, 7, vec![holder])]), 20));
    assert!(
        !asked.note(&view(vec![wait(9, 7, Vec::new())]), 20),
        "nobody knows its thread"
    );
    assert!(asked.note(&view(vec![wait(1, 7, Vec::new())]), 20));
    let view = view(Vec::new());
    let wakes = vec![wake(102, 101, 1, 30), wake(102, 103, 5, 30)];
    let woken = asked.answer(&look(wakes), &view, Some, name).unwrap();
    assert_eq!((woken.at_ns, woken.covered_ns), (110, 100));
    assert_eq!(
        woken.wakes,
        [WakeUp {
            resource: LOCK,
            instance: InstanceKey(7),
            waiter: SessionKey(1),
            thread: 102,
            name: "t102".to_owned(),
            waker: Some(SessionKey(2)),
            count: 1,
        }]
    );
    assert_eq!(
        asked.answer(&look(vec![wake(102, 101, 1, 30)]), &view, Some, name),
        None,
        "each look asks anew"
    );
}

#[test]
fn a_wake_up_from_before_the_wait_or_by_itself_says_nothing() {
    let waits = || view(vec![wait(1, 7, Vec::new())]);
    let answer = |at_ns, wakes| {
        let mut asked = Asked::default();
        asked.note(&waits(), at_ns);
        asked.answer(&look(wakes), &waits(), Some, name)
    };
    assert_eq!(answer(50, vec![wake(102, 101, 1, 49)]), None);
    assert_eq!(answer(50, vec![wake(101, 101, 1, 60)]), None);
    assert_eq!(
        answer(9, vec![wake(102, 101, 1, 60)]),
        None,
        "it was not seen to wait in the look"
    );
    let woken = answer(50, vec![wake(900, 101, 1, 50)]).unwrap();
    assert_eq!(woken.wakes[0].waker, None, "a thread of no session");
}

#[test]
fn a_wait_for_something_else_begins_anew() {
    let mut asked = Asked::default();
    asked.note(&view(vec![wait(1, 7, Vec::new())]), 20);
    asked.note(&view(vec![wait(1, 7, Vec::new())]), 40);
    asked.note(&view(vec![wait(1, 8, Vec::new())]), 60);
    let wakes = vec![wake(102, 101, 1, 50)];
    assert_eq!(
        asked.answer(&look(wakes), &view(Vec::new()), Some, name),
        None
    );
}

#[test]
fn of_many_wakers_those_with_the_most_wake_ups_are_told() {
    let mut asked = Asked::default();
    asked.note(&view(vec![wait(1, 7, Vec::new())]), 20);
    let crowd = (0..200).map(|n| wake(1000 + n, 101, u64::from(n), 30));
    let woken = asked.answer(&look(crowd.collect()), &view(Vec::new()), Some, name);
    let wakes = woken.unwrap().wakes;
    assert_eq!(wakes.len(), Woken::MOST);
    assert!(wakes.iter().all(|wake| wake.count >= 136));
}

#[test]
fn threads_are_told_by_the_target_s_own_numbers() {
    let mut asked = Asked::default();
    asked.note(&view(vec![wait(1, 7, Vec::new())]), 20);
    // In the target 101 is what the kernel calls 5101.
    let theirs = |thread: u32| thread.checked_sub(5000);
    let wakes = vec![wake(5102, 5101, 1, 30), wake(102, 101, 1, 30)];
    let woken = asked.answer(&look(wakes), &view(Vec::new()), theirs, name);
    let told: Vec<_> = woken.unwrap().wakes;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].thread, told[0].waker), (102, Some(SessionKey(2))));
    assert_eq!(told[0].name, "t5102");
}
