use super::super::input::{InstanceKey, InstanceName};
use super::super::testkit::{MS, RESOURCE, busy, ledger, settings, snapshot, tick, wait};
use super::*;

const WRITER: u32 = 900;

fn wake(waiter: u64, thread: u32, waker: Option<u64>, count: u64) -> WakeUp {
    WakeUp {
        resource: RESOURCE,
        instance: InstanceKey(7),
        waiter: SessionKey(waiter),
        thread,
        name: "writer".to_owned(),
        waker: waker.map(SessionKey),
        count,
    }
}

fn look(at_ms: u64, wakes: Vec<WakeUp>) -> Woken {
    Woken {
        at_ns: at_ms * MS,
        covered_ns: 100 * MS,
        wakes,
    }
}

/// Three sessions, of which two wait for `WALWrite`.
fn known() -> Ledger {
    let sessions = vec![busy(1, 0), busy(2, 0), busy(3, 0)];
    let mut ledger = ledger(1000, vec![wait(1, 7, 900, &[])], sessions);
    let mut named = snapshot(1000, vec![wait(1, 7, 900, &[]), wait(2, 7, 900, &[])]);
    named.instances = vec![InstanceName {
        instance: InstanceKey(7),
        name: "WALWrite".to_owned(),
    }];
    ledger.snapshot(&named);
    ledger
}

#[test]
fn wakers_are_told_with_how_often_and_of_whom_the_most_frequent_first() {
    let (mut wakers, ledger) = (Wakers::default(), known());
    wakers.look(&look(1000, vec![wake(1, 3, Some(3), 4)]), &ledger);
    wakers.look(
        &look(1000, vec![wake(2, 3, Some(3), 1), wake(1, WRITER, None, 1)]),
        &ledger,
    );
    let hints = wakers.hints(&settings(), &ledger);
    let says: Vec<&str> = hints.iter().map(|hint| hint.says.as_str()).collect();
    assert_eq!(
        says,
        [
            "2 sessions that waited for WALWrite were woken by session 3 (app), 5 times: a hint at who held it, no proof",
            "1 session that waited for WALWrite was woken by thread 900 (writer), once: a hint at who held it, no proof",
        ]
    );
    assert_eq!(hints[0].task.as_ref().map(|task| task.id), Some(3));
    assert!(
        hints
            .iter()
            .all(|hint| hint.evidence == Evidence::Inference)
    );
}

#[test]
fn a_resource_is_told_of_once_until_nothing_of_it_is_kept() {
    let (mut wakers, mut ledger) = (Wakers::default(), known());
    let told = |wakers: &mut Wakers, ledger: &Ledger| {
        let mut out = Vec::new();
        wakers.tell(&settings(), ledger, &mut out);
        out.len()
    };
    wakers.look(&look(1000, vec![wake(1, 3, Some(3), 1)]), &ledger);
    assert_eq!(told(&mut wakers, &ledger), 1);
    wakers.look(&look(2000, vec![wake(1, WRITER, None, 1)]), &ledger);
    assert_eq!(told(&mut wakers, &ledger), 0, "it is the same story");
    ledger.tick(&tick(60_000, vec![busy(1, 0)]));
    assert!(
        wakers.hints(&settings(), &ledger).is_empty(),
        "too long ago"
    );
    assert_eq!(wakers.count(), 0);
    wakers.look(&look(60_000, vec![wake(1, 3, Some(3), 1)]), &ledger);
    assert_eq!(told(&mut wakers, &ledger), 1);
}

#[test]
fn what_is_kept_and_told_is_bounded_and_unknown_resources_are_left_out() {
    let (mut wakers, ledger) = (Wakers::default(), known());
    for _ in 0..100 {
        let crowd = (0..1000).map(|thread| wake(1, thread, None, 1));
        wakers.look(&look(1000, crowd.collect()), &ledger);
    }
    assert_eq!(wakers.count(), LOOKS * Woken::MOST);
    assert_eq!(wakers.hints(&settings(), &ledger).len(), TOLD);
    let mut foreign = wake(1, 3, None, 1);
    foreign.resource = ResourceId(9);
    let mut wakers = Wakers::default();
    wakers.look(&look(1000, vec![foreign]), &ledger);
    assert_eq!(wakers.count(), 0);
}
