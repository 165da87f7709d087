//! Tests of the ledger: order of arrival, repeats, what ends what, and what is forgotten.

use super::super::input::{
    Activity, Event, EventKind, Evidence, InstanceKey, InstanceName, ResourceId, SessionKey,
    Snapshot,
};
use super::super::testkit::{MS, RESOURCE, busy, granted, ledger, settings, snapshot, tick, wait};
use super::Ledger;

const CONTEXT: InstanceKey = InstanceKey(0xc0);
const LOCK: InstanceKey = InstanceKey(7);

fn at(ledger: &mut Ledger, at_ms: u64, session: u64, kind: EventKind) {
    ledger.event(&Event {
        at_ns: at_ms * MS,
        session: SessionKey(session),
        kind,
    });
}

fn begin(instance: InstanceKey) -> EventKind {
    EventKind::WaitBegin {
        resource: RESOURCE,
        instance,
    }
}

fn end(instance: InstanceKey) -> EventKind {
    EventKind::WaitEnd {
        resource: RESOURCE,
        instance,
    }
}

fn acquire(instance: InstanceKey) -> EventKind {
    EventKind::Acquire {
        resource: RESOURCE,
        instance,
        mode: 0,
    }
}

fn release(instance: InstanceKey) -> EventKind {
    EventKind::Release {
        resource: RESOURCE,
        instance,
    }
}

fn lost_ms(ledger: &Ledger) -> u64 {
    ledger.lost_ns(RESOURCE) / MS
}

#[test]
fn a_wait_that_repeats_its_begin_keeps_the_first() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 900)]);
    at(&mut ledger, 1000, 1, begin(CONTEXT));
    at(&mut ledger, 1200, 1, begin(CONTEXT));
    at(&mut ledger, 1300, 1, end(CONTEXT));
    assert!(ledger.waits.is_empty());
    assert_eq!(lost_ms(&ledger), 300);
}

#[test]
fn a_snapshot_gives_the_true_instance_of_a_wait_that_events_began() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 900)]);
    at(&mut ledger, 1000, 1, begin(CONTEXT));
    ledger.snapshot(&snapshot(
        1100,
        vec![wait(1, LOCK.0, 1100, &[granted(2, 0)])],
    ));
    let open = &ledger.waits[&SessionKey(1)];
    assert_eq!((open.instance, open.since_ns), (LOCK, 1000 * MS));
    at(&mut ledger, 1200, 1, end(CONTEXT));
    assert_eq!(lost_ms(&ledger), 200);
}

#[test]
fn a_complete_snapshot_ends_the_waits_that_it_does_not_list_when_they_were_last_seen() {
    let mut ledger = ledger(1000, vec![wait(1, 7, 900, &[granted(2, 0)])], vec![]);
    at(&mut ledger, 1120, 3, begin(CONTEXT));
    ledger.snapshot(&snapshot(1100, vec![]));
    assert_eq!(
        ledger.waits.keys().collect::<Vec<_>>(),
        [&SessionKey(3)],
        "the later wait stays"
    );
    assert_eq!(lost_ms(&ledger), 100);
    ledger.snapshot(&Snapshot {
        complete: false,
        ..snapshot(1200, vec![])
    });
    assert_eq!(ledger.waits.len(), 1, "an incomplete one ends nothing");
    assert!(ledger.partial[0]);
}

#[test]
fn a_snapshot_does_not_bring_back_a_wait_that_an_event_has_ended_since() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 900)]);
    at(&mut ledger, 1000, 1, begin(CONTEXT));
    at(&mut ledger, 1101, 1, end(CONTEXT));
    ledger.snapshot(&snapshot(1100, vec![wait(1, 7, 900, &[granted(2, 0)])]));
    assert!(ledger.waits.is_empty());
    ledger.snapshot(&snapshot(1150, vec![wait(1, 8, 900, &[granted(2, 0)])]));
    assert_eq!(
        ledger.waits[&SessionKey(1)].since_ns,
        1101 * MS,
        "the next wait began after the last"
    );
}

#[test]
fn an_end_that_arrives_before_its_begin_leaves_no_wait_open() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 900)]);
    at(&mut ledger, 1100, 1, end(CONTEXT));
    at(&mut ledger, 1000, 1, begin(CONTEXT));
    assert!(ledger.waits.is_empty());
    assert_eq!(lost_ms(&ledger), 100);
    at(&mut ledger, 1200, 1, begin(CONTEXT));
    assert_eq!(ledger.waits.len(), 1);
}

#[test]
fn a_begin_that_overtakes_the_end_of_the_wait_before_opens_a_wait_of_its_own() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 900)]);
    at(&mut ledger, 1000, 1, begin(CONTEXT));
    at(&mut ledger, 1200, 1, begin(CONTEXT));
    at(&mut ledger, 1100, 1, end(CONTEXT));
    assert_eq!(ledger.waits[&SessionKey(1)].since_ns, 1200 * MS);
    assert_eq!(lost_ms(&ledger), 100);
}

#[test]
fn holds_are_counted_and_a_release_that_overtakes_its_acquisition_leaves_none() {
    let mut ledger = Ledger::new(&settings().resources, 500 * MS);
    at(&mut ledger, 1000, 1, acquire(LOCK));
    at(&mut ledger, 1001, 1, acquire(LOCK));
    at(&mut ledger, 1002, 1, release(LOCK));
    assert_eq!(ledger.hold_count(), 1);
    at(&mut ledger, 1003, 1, release(LOCK));
    assert!(ledger.hold_count() == 0 && ledger.holders.is_empty());
    at(&mut ledger, 1005, 1, release(LOCK));
    at(&mut ledger, 1004, 1, acquire(LOCK));
    assert!(ledger.hold_count() == 0);
}

#[test]
fn a_release_takes_the_holder_out_of_the_way_of_waits_that_a_snapshot_listed() {
    let mut ledger = ledger(1000, vec![wait(1, 7, 900, &[granted(2, 0)])], vec![]);
    at(&mut ledger, 1010, 2, release(InstanceKey(8)));
    assert_eq!(ledger.edges(&ledger.waits[&SessionKey(1)]).count(), 1);
    at(&mut ledger, 1020, 2, release(LOCK));
    assert_eq!(ledger.edges(&ledger.waits[&SessionKey(1)]).count(), 0);
}

#[test]
fn a_release_takes_the_holder_out_of_the_way_of_all_who_name_the_same() {
    let holders = [granted(8, 0), granted(9, 0)];
    let waits = (1..=3).map(|waiter| wait(waiter, 7, 900, &holders));
    let mut ledger = ledger(1000, waits.collect(), vec![]);
    let count = |ledger: &Ledger, waiter| ledger.edges(&ledger.waits[&SessionKey(waiter)]).count();
    at(&mut ledger, 1010, 8, release(LOCK));
    assert_eq!([1, 2, 3].map(|waiter| count(&ledger, waiter)), [1, 1, 1]);
    at(&mut ledger, 1020, 9, EventKind::SessionEnd);
    assert_eq!([1, 2, 3].map(|waiter| count(&ledger, waiter)), [0, 0, 0]);
}

#[test]
fn the_end_of_a_session_ends_its_wait_its_holds_and_its_being_in_the_way() {
    let waits = vec![
        wait(1, 7, 900, &[granted(2, 0)]),
        wait(2, 8, 900, &[granted(3, 0)]),
    ];
    let mut ledger = ledger(1000, waits, vec![busy(2, 0)]);
    at(&mut ledger, 1010, 2, acquire(InstanceKey(9)));
    at(&mut ledger, 1020, 2, EventKind::SessionEnd);
    assert!(ledger.hold_count() == 0 && !ledger.sessions.contains_key(&SessionKey(2)));
    assert_eq!(ledger.waits.keys().collect::<Vec<_>>(), [&SessionKey(1)]);
    assert_eq!(ledger.edges(&ledger.waits[&SessionKey(1)]).count(), 0);
}

#[test]
fn a_key_that_is_given_to_another_session_starts_from_nothing() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 0)]);
    at(&mut ledger, 1000, 1, acquire(LOCK));
    let mut other = busy(1, 1020);
    other.id = 99;
    ledger.tick(&tick(1050, vec![other]));
    assert!(ledger.hold_count() == 0);
}

#[test]
fn a_wait_belongs_to_the_request_that_runs() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 900)]);
    at(&mut ledger, 1000, 1, begin(CONTEXT));
    let mut next = busy(1, 1100);
    next.request = 2;
    ledger.tick(&tick(1150, vec![next.clone()]));
    assert!(
        ledger.waits.is_empty(),
        "the end of the wait was not seen, but that request is over"
    );
    assert_eq!(ledger.waited_ns(SessionKey(1)), 0);
    next.activity = Activity::IdleInTransaction;
    at(&mut ledger, 1160, 1, begin(CONTEXT));
    ledger.tick(&tick(1200, vec![next]));
    assert!(ledger.waits.is_empty(), "an idle session waits for nothing");
}

#[test]
fn time_worked_leaves_out_time_waited() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 500)]);
    at(&mut ledger, 600, 1, begin(CONTEXT));
    at(&mut ledger, 700, 1, end(CONTEXT));
    at(&mut ledger, 950, 1, begin(CONTEXT));
    assert_eq!(ledger.waited_ns(SessionKey(1)), 150 * MS);
    assert_eq!(ledger.worked_ns(SessionKey(1)), 350 * MS);
}

#[test]
fn after_a_loss_what_events_told_is_inference_until_a_snapshot_confirms_it() {
    let begun = |hold_first: bool| {
        let mut ledger = ledger(1000, vec![], vec![busy(1, 900), busy(2, 0)]);
        let (before, after) = ((2, acquire(LOCK)), (1, begin(LOCK)));
        let (before, after) = if hold_first {
            (before, after)
        } else {
            (after, before)
        };
        at(&mut ledger, 1000, before.0, before.1);
        ledger.lose_trust(1010 * MS);
        at(&mut ledger, 1020, after.0, after.1);
        ledger
    };
    let evidence = |ledger: &Ledger| {
        let edge = ledger.edges(&ledger.waits[&SessionKey(1)]).next();
        edge.expect("a holder").evidence
    };
    assert_eq!(
        evidence(&begun(true)),
        Evidence::Inference,
        "the hold may be over"
    );
    assert_eq!(
        evidence(&begun(false)),
        Evidence::Inference,
        "the wait may be over"
    );
    let mut confirmed = begun(true);
    confirmed.snapshot(&snapshot(1100, vec![wait(1, 7, 1020, &[granted(2, 1000)])]));
    assert_eq!(evidence(&confirmed), Evidence::Walk);
    at(&mut confirmed, 1110, 1, end(LOCK));
    at(&mut confirmed, 1120, 2, release(LOCK));
    at(&mut confirmed, 1130, 2, acquire(LOCK));
    at(&mut confirmed, 1140, 1, begin(LOCK));
    assert_eq!(
        evidence(&confirmed),
        Evidence::Event,
        "what came after the loss is whole"
    );
}

#[test]
fn names_and_sessions_are_kept_for_as_long_as_somebody_waits_or_holds() {
    let mut named = snapshot(1000, vec![wait(1, 7, 900, &[granted(2, 0)])]);
    named.instances = vec![InstanceName {
        instance: LOCK,
        name: "table shop.orders".to_owned(),
    }];
    let mut ledger = Ledger::new(&settings().resources, 500 * MS);
    ledger.snapshot(&named);
    ledger.tick(&tick(1000, vec![busy(1, 900), busy(2, 0)]));
    assert_eq!(ledger.name(RESOURCE, LOCK), "table shop.orders");
    ledger.snapshot(&snapshot(1050, vec![]));
    ledger.tick(&tick(1050, vec![]));
    assert!(ledger.names.is_empty() && ledger.sessions.is_empty());
    assert_eq!(ledger.name(RESOURCE, LOCK), "instance 0x7");
}

#[test]
fn a_listed_wait_that_no_snapshot_repeats_for_a_window_is_over() {
    let mut ledger = ledger(
        1000,
        vec![wait(1, 7, 900, &[granted(2, 0)])],
        vec![busy(1, 900)],
    );
    ledger.tick(&tick(1400, vec![busy(1, 900)]));
    assert_eq!(ledger.waits.len(), 1);
    ledger.tick(&tick(1550, vec![busy(1, 900)]));
    assert!(ledger.waits.is_empty());
}

#[test]
fn what_names_an_unknown_resource_is_ignored() {
    let mut ledger = Ledger::new(&settings().resources, 500 * MS);
    let resource = ResourceId(5);
    at(
        &mut ledger,
        1000,
        1,
        EventKind::WaitBegin {
            resource,
            instance: LOCK,
        },
    );
    at(
        &mut ledger,
        1000,
        1,
        EventKind::WaitEnd {
            resource,
            instance: LOCK,
        },
    );
    at(
        &mut ledger,
        1000,
        1,
        EventKind::Acquire {
            resource,
            instance: LOCK,
            mode: 0,
        },
    );
    ledger.snapshot(&Snapshot {
        resource,
        ..snapshot(1000, vec![wait(1, 7, 900, &[granted(2, 0)])])
    });
    assert!(ledger.waits.is_empty() && ledger.hold_count() == 0);
}

#[test]
fn events_from_the_past_do_not_turn_time_back() {
    let mut ledger = ledger(1000, vec![], vec![busy(1, 900)]);
    at(&mut ledger, 400, 1, begin(CONTEXT));
    assert_eq!(ledger.now_ns, 1000 * MS);
    at(&mut ledger, 300, 1, end(CONTEXT));
    assert!(
        ledger
            .waits
            .values()
            .all(|wait| wait.since_ns <= ledger.now_ns)
    );
}

#[test]
fn time_lost_to_what_cannot_be_seen_is_counted_but_explains_no_request() {
    for (blind, waited_ms) in [(None, 100), (Some("nobody tells who holds it"), 0)] {
        let waits = vec![wait(1, LOCK.0, 1000, &[granted(2, 900)])];
        let mut ledger = ledger(1000, waits, vec![busy(1, 900)]);
        ledger.blind[0] = blind.map(str::to_owned);
        ledger.snapshot(&snapshot(1100, vec![wait(1, LOCK.0, 1000, &[])]));
        ledger.snapshot(&snapshot(1150, Vec::new()));
        assert_eq!(ledger.waited_ns(SessionKey(1)) / MS, waited_ms);
        assert_eq!(lost_ms(&ledger), 100);
    }
}
