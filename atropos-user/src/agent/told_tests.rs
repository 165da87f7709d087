use atropos_common::record::{OpenKey, OpenValue, SessionKey as KeptKey, SessionValue};

use super::*;
use crate::config;

const LOCK: u16 = 0;
const POOL: u16 = 1;
const NOW_NS: u64 = 100;

fn preset() -> Preset {
    let text = "schema = 1\nname = \"x\"\n[match]\nprograms = [\"x\"]\n\
                [[resource]]\nname = \"lock\"\nkind = \"LOCK\"\n[[resource]]\nname = \"pool\"\nkind = \"QUEUE\"\n";
    config::parse("x", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn open(session: u64, resource: u16, hold: bool, mode: u64, since_ns: u64) -> (OpenKey, OpenValue) {
    let key = OpenKey {
        session,
        instance: 7,
        pid: 1,
        resource,
        hold: u8::from(hold),
        reserved: 0,
    };
    let value = OpenValue {
        since_ns,
        value: mode,
        depth: 1,
        tid: 50,
    };
    (key, value)
}

fn task(session: u64, begin_ns: u64) -> (KeptKey, SessionValue) {
    let key = KeptKey {
        session,
        pid: 1,
        reserved: 0,
    };
    let value = SessionValue {
        begin_ns,
        generation: 9,
        tid: 60,
        done: 0,
        work: 0,
    };
    (key, value)
}

fn look(open: Vec<(OpenKey, OpenValue)>) -> View {
    let kept = Kept {
        open,
        ..Kept::default()
    };
    Told::new(&preset()).look(&kept, NOW_NS)
}

/// Blockers of a session's wait: who, and whether it queues only.
fn blockers_of(view: &View, resource: u16, waiter: u64) -> Vec<(u64, bool)> {
    let snapshot = &view.snapshots[usize::from(resource)];
    let wait = snapshot.waits.iter().find(|wait| wait.waiter.0 == waiter);
    wait.map_or_else(Vec::new, |wait| {
        wait.blockers
            .iter()
            .map(|blocker| (blocker.session.0, blocker.kind == BlockKind::Queued))
            .collect()
    })
}

#[test]
fn who_shares_waits_for_who_queued_alone_before_and_that_one_for_the_holder() {
    let view = look(vec![
        open(1, LOCK, true, 1, 10),
        open(2, LOCK, false, 0, 20),
        open(3, LOCK, false, 1, 30),
        open(4, LOCK, false, 1, 40),
    ]);
    assert_eq!(blockers_of(&view, LOCK, 2), [(1, false)]);
    assert_eq!(blockers_of(&view, LOCK, 3), [(2, true)]);
    assert_eq!(
        blockers_of(&view, LOCK, 4),
        [(2, true)],
        "not who shares as well"
    );
    assert!(view.snapshots[0].complete);
    assert_eq!(view.snapshots[0].instances[0].name, "lock 7");
}

#[test]
fn whoever_waits_though_nobody_excludes_it_waits_for_somebody_who_queues() {
    let view = look(vec![
        open(1, LOCK, true, 1, 10),
        open(3, LOCK, false, 1, 20),
        open(2, LOCK, false, 0, 30),
    ]);
    assert_eq!(blockers_of(&view, LOCK, 3), [(2, true)]);
    assert_eq!(
        blockers_of(&view, LOCK, 2),
        [(1, false)],
        "the other is behind it, though it was told of before: no circle"
    );
}

#[test]
fn a_wait_without_a_known_blocker_makes_the_resource_partly_unknown() {
    let view = look(vec![open(3, LOCK, false, 0, 20)]);
    assert!(!view.snapshots[0].complete && view.snapshots[0].waits.is_empty());
    assert!(
        view.snapshots[1].complete,
        "the other resource is not touched"
    );
}

#[test]
fn a_place_in_a_pool_is_waited_for_behind_its_holders_alone() {
    let view = look(vec![
        open(1, POOL, true, 1, 10),
        open(2, POOL, true, 1, 15),
        open(3, POOL, false, 1, 20),
        open(4, POOL, false, 1, 30),
    ]);
    assert_eq!(blockers_of(&view, POOL, 4), [(1, false), (2, false)]);
}

#[test]
fn sessions_are_listed_while_they_run_a_task_or_hold_something() {
    let mut told = Told::new(&preset());
    let mut kept = Kept {
        sessions: vec![task(1, 40), task(2, 0), task(3, 0)],
        open: vec![open(2, LOCK, true, 0, 30), open(5, LOCK, true, 0, 20)],
        ..Kept::default()
    };
    let view = told.look(&kept, NOW_NS);
    let seen: Vec<_> = view
        .sessions
        .iter()
        .map(|state| {
            (
                state.id,
                state.activity,
                state.since_ns,
                state.request,
                state.thread,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            (1, Activity::Busy, 40, 9, 60),
            (2, Activity::IdleWithLocks, NOW_NS, 9, 60),
            (5, Activity::Busy, 20, 0, 50),
        ]
    );
    // Idle since it was first seen so; from a new task on it is busy.
    assert_eq!(told.look(&kept, NOW_NS + 50).sessions[1].since_ns, NOW_NS);
    kept.sessions[1] = task(2, 160);
    assert_eq!(
        told.look(&kept, NOW_NS + 70).sessions[1].activity,
        Activity::Busy
    );
}

/// Memory with one text.
struct Text(&'static [u8]);

impl Memory for Text {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), crate::memory::Fault> {
        let fault = crate::memory::Fault { address };
        let start = usize::try_from(address).map_err(|_| fault)?;
        let bytes = self.0.get(start..start + into.len()).ok_or(fault)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}

#[test]
fn a_session_in_a_wait_has_the_words_that_it_said_last_until_it_ends() {
    let mut memory = [0; 512];
    memory[300..310].copy_from_slice(b"SCAN t 600");
    let memory = Text(Vec::leak(memory.to_vec()));
    let record = |value| EventRecord {
        at_ns: 0,
        session: 2,
        instance: 0,
        value,
        generation: 0,
        pid: 1,
        tid: 1,
        site: 0,
        resource: u16::MAX,
        op: 0,
        flags: 0,
        reserved: [0; 6],
    };
    let kept = Kept {
        open: vec![open(2, LOCK, true, 0, 30)],
        ..Kept::default()
    };
    let mut told = Told::new(&preset());
    told.hear(Op::Label, &record(300), &memory);
    assert_eq!(told.look(&kept, NOW_NS).sessions[0].digest, "scan t ?");
    told.hear(Op::SessionEnd, &record(0), &memory);
    assert_eq!(told.look(&kept, NOW_NS).sessions[0].digest, "");
}

#[test]
fn a_task_is_as_far_as_it_says_while_it_runs_and_says_how_much_there_is() {
    let told = |begin_ns, done, work| {
        let (key, value) = task(1, begin_ns);
        let kept = Kept {
            sessions: vec![(
                key,
                SessionValue {
                    done,
                    work,
                    ..value
                },
            )],
            open: vec![open(1, LOCK, true, 0, 30)],
            ..Kept::default()
        };
        Told::new(&preset()).look(&kept, NOW_NS).sessions[0].progress
    };
    assert_eq!(told(40, 30, 120), Some(0.25));
    assert_eq!(told(40, 30, 0), None, "nobody knows of how much");
    assert_eq!(told(40, 130, 120), Some(1.0));
    assert_eq!(told(0, 30, 120), None, "between two tasks");
}
